// SPDX-License-Identifier: Apache-2.0
//
// In place of the module's loading (workerd/nn/cuda/module.c), for programs that know of no emulator: the device is
// linked with them, and the emulated GPU begins when it is first asked for.
//
// CUDA_SEED: the order of execution, 1 if it is not set. CUDA_DEVICES: how many GPUs there are, 2 if it is not set.
// CUDA_WITHOUT: what cuDNN lacks (enum emu_lack), nothing if it is not set.
// CUDA_IMPLICIT: how many channels cuda/implicit.cu computes convolutions of, its own number if it is not set.
// CUDA_UUID: that of the GPUs, with their index, other ones in each process if it is not set.
// CUDA_ABSENT_RANK: one more than the rank whose all-reduces never come. CUDA_BREAK: which all-reduce breaks, from 1.
#include <pthread.h>
#include <stdlib.h>

#include "tests/cuda/emulator.h"
#include "workerd/nn/cuda/implicit.h"
#include "workerd/nn/cuda/module.h"

extern const struct nn_device nn_device_cuda;

static unsigned long setting(const char *name, unsigned long fallback)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : fallback;
}

static void begin(void)
{
    nn_cuda_implicit_most = (int)setting("CUDA_IMPLICIT", (unsigned long)nn_cuda_implicit_most);
    emu_reset(&(struct emu_config){.seed = setting("CUDA_SEED", 1),
                                   .devices = (int)setting("CUDA_DEVICES", 2),
                                   .uuid = setting("CUDA_UUID", 0),
                                   .without = (unsigned)setting("CUDA_WITHOUT", 0),
                                   .patience = getenv("CUDA_ABSENT_RANK") ? UINT64_MAX : 0,
                                   .absent_rank = (int)setting("CUDA_ABSENT_RANK", 0),
                                   .break_collective = setting("CUDA_BREAK", 0)});
}

enum ps_code nn_cuda_load(const struct nn_device **device, struct ps_error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)e;
    pthread_once(&once, begin);
    *device = &nn_device_cuda;
    return PS_OK;
}
