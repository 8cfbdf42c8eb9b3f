// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/device.h"

#include <string.h>

enum ps_code nn_device_find(const char *name, const struct nn_device **device, struct ps_error *e)
{
    static const struct nn_device *const known[] = {&nn_device_cpu, &nn_device_ref};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i]->name) == 0) {
            *device = known[i];
            return PS_OK;
        }
    }
    return ps_fail(e, PS_INVALID_ARGUMENT, "device \"%s\" is not known: expected \"cpu\" or \"ref\"", name);
}
