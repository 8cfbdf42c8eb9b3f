// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/nn/device.h"

static enum ps_code host_memory_get(size_t bytes, void **memory, struct ps_error *e)
{
    void *got = ps_try_alloc_aligned(bytes);
    if (!got)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for %zu bytes", bytes);
    *memory = got;
    return PS_OK;
}

enum ps_code nn_memory_get(const struct nn_device *device, struct nn_context *context, size_t bytes, void **memory,
                           struct ps_error *e)
{
    return device->memory ? device->memory->get(context, bytes, memory, e) : host_memory_get(bytes, memory, e);
}

void nn_memory_free(const struct nn_device *device, struct nn_context *context, void *memory)
{
    if (memory && device->memory)
        device->memory->free(context, memory);
    else
        free(memory);
}

enum ps_code nn_memory_get_host(const struct nn_device *device, struct nn_context *context, size_t bytes, void **memory,
                                struct ps_error *e)
{
    return device->memory ? device->memory->get_host(context, bytes, memory, e) : host_memory_get(bytes, memory, e);
}

void nn_memory_free_host(const struct nn_device *device, struct nn_context *context, void *memory)
{
    if (memory && device->memory)
        device->memory->free_host(context, memory);
    else
        free(memory);
}
