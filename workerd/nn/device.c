// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/device.h"

#include <string.h>

const struct nn_device *nn_device_at(size_t i)
{
    static const struct nn_device *const known[] = {&nn_device_cpu, &nn_device_ref, NULL};
    return known[i];
}

enum ps_code nn_device_find(const char *name, const struct nn_device **device, struct ps_error *e)
{
    const struct nn_device *one;
    for (size_t i = 0; (one = nn_device_at(i)); i++) {
        if (strcmp(name, one->name) == 0) {
            *device = one;
            return PS_OK;
        }
    }
    return ps_fail(e, PS_INVALID_ARGUMENT, "device \"%s\" is not known: expected \"cpu\" or \"ref\"", name);
}
