// SPDX-License-Identifier: Apache-2.0
//
// In place of the module's loading (workerd/nn/cuda/module.c), for programs that know of no emulator: the device is
// linked with them, and the emulated GPU begins when it is first asked for.
//
// CUDA_SEED: the order of execution, 1 if it is not set.
#include <stdlib.h>

#include "tests/cuda/emulator.h"
#include "workerd/nn/cuda/module.h"

extern const struct nn_device nn_device_cuda;

enum ps_code nn_cuda_load(const struct nn_device **device, struct ps_error *e)
{
    static bool begun;
    const char *seed = getenv("CUDA_SEED");
    (void)e;
    if (!begun)
        emu_reset(&(struct emu_config){.seed = seed ? strtoull(seed, NULL, 10) : 1, .devices = 2});
    begun = true;
    *device = &nn_device_cuda;
    return PS_OK;
}
