// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/device.h"

#include <stdlib.h>
#include <string.h>

#include "workerd/nn/cuda/module.h"

const struct nn_device *nn_device_at(size_t i)
{
    static const struct nn_device *const known[] = {&nn_device_cpu, &nn_device_ref, NULL};
    return known[i];
}

static enum ps_code device_find_kind(const char *name, size_t length, const struct nn_device **device,
                                     struct ps_error *e)
{
    const struct nn_device *one;
    for (size_t i = 0; (one = nn_device_at(i)); i++) {
        if (strlen(one->name) == length && strncmp(name, one->name, length) == 0) {
            *device = one;
            return PS_OK;
        }
    }
    if ((length == 3 && strncmp(name, "gpu", length) == 0) || (length == 4 && strncmp(name, "cuda", length) == 0))
        return nn_cuda_load(device, e);
    return ps_fail(e, PS_INVALID_ARGUMENT, "device \"%s\" is not known: expected \"cpu\", \"gpu\" or \"ref\"", name);
}

enum ps_code nn_device_find(const char *name, const struct nn_device **device, int *index, struct ps_error *e)
{
    const char *colon = strchr(name, ':');
    const char *number = colon ? colon + 1 : "0";
    if (!*number || strlen(number) > 3 || number[strspn(number, "0123456789")])
        return ps_fail(e, PS_INVALID_ARGUMENT, "device \"%s\": expected a number after the colon, as in gpu:0", name);
    *index = atoi(number);
    return device_find_kind(name, strcspn(name, ":"), device, e);
}
