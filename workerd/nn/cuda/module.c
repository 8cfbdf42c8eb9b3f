// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/cuda/module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

// Where it is installed, or for what is not installed, where this variable says.
static const char *module_path(void)
{
    const char *path = getenv("PARAMSERVER_CUDA_MODULE");
    return path ? path : PKGLIBDIR "/cuda.so";
}

static enum ps_code module_refuse(const char *path, struct ps_error *e)
{
    const char *why = dlerror();
    if (access(path, F_OK) != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "there is no CUDA module %s: expected workerd built with CUDA "
                       "(configure --with-cuda=DIR)",
                       path);
    return ps_fail(e, PS_FAILED_PRECONDITION, "the CUDA module cannot be loaded: %s", why);
}

enum ps_code nn_cuda_load(const struct nn_device **device, struct ps_error *e)
{
    const char *path = module_path();
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return module_refuse(path, e);
    const char *version = dlsym(module, "nn_cuda_version");
    const struct nn_device *found = dlsym(module, "nn_device_cuda");
    if (!version || !found || strcmp(version, PACKAGE_VERSION) != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the CUDA module %s is of version %s: expected that of workerd, %s",
                       path, version ? version : "unknown", PACKAGE_VERSION);
    *device = found;
    return PS_OK;
}
