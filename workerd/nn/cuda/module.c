// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/cuda/module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

// Where it is installed, or for what is not installed, where this variable says.
static const char *module_path(void)
{
    const char *path = getenv("PARAMSERVER_CUDA_MODULE");
    return path ? path : PKGLIBDIR "/cuda.so";
}

enum ps_code nn_cuda_load(const struct nn_device **device, struct ps_error *e)
{
    void *module = dlopen(module_path(), RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "a GPU needs the CUDA module, which cannot be loaded: %s: expected paramserver configured "
                       "--with-cuda, and the CUDA libraries that it was built with",
                       dlerror());
    const char *version = dlsym(module, "nn_cuda_version");
    const struct nn_device *found = dlsym(module, "nn_device_cuda");
    if (!version || !found || strcmp(version, PACKAGE_VERSION) != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the CUDA module %s is of version %s: expected that of workerd, %s",
                       module_path(), version ? version : "unknown", PACKAGE_VERSION);
    *device = found;
    return PS_OK;
}
