// SPDX-License-Identifier: Apache-2.0
//
// cuDNN itself. The module needs none to be loaded: the library is opened when a program with a convolution is first
// planned, and so is the device's handle, which takes memory.
#include "workerd/nn/cuda/cudnn_inside.h"

#ifdef HAVE_CUDNN

#include <dlfcn.h>
#include <pthread.h>

// ---- the library --------------------------------------------------------------------------------------------------

#ifdef CUDA_EMULATED

static enum ps_code cudnn_find(struct ps_error *e)
{
    e->code = PS_OK;
    return PS_OK;
}

#else

#define CUDNN_TEXT_OF(x) #x
#define CUDNN_TEXT(x) CUDNN_TEXT_OF(x)
#define CUDNN_LIBRARY "libcudnn.so." CUDNN_TEXT(CUDNN_MAJOR)
#define CUDNN_FIND(function) &&(cudnn_functions.function = (__typeof__(&function))dlsym(library, #function))

static struct nn_cudnn_functions cudnn_functions;
static struct ps_error cudnn_missing;

const struct nn_cudnn_functions *nn_cudnn_library(void)
{
    return &cudnn_functions;
}

static void cudnn_open(void)
{
    void *library = dlopen(CUDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        ps_fail(&cudnn_missing, PS_FAILED_PRECONDITION, "cuDNN cannot be loaded: %s", dlerror());
    else if (!(true NN_CUDNN_FUNCTIONS(CUDNN_FIND)))
        ps_fail(&cudnn_missing, PS_FAILED_PRECONDITION, CUDNN_LIBRARY " lacks a function of cuDNN %d.%d: %s",
                CUDNN_MAJOR, CUDNN_MINOR, dlerror());
}

static enum ps_code cudnn_find(struct ps_error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, cudnn_open);
    *e = cudnn_missing;
    return e->code;
}

#endif

// ---- the handle ---------------------------------------------------------------------------------------------------

static enum ps_code cudnn_get_handle(struct nn_context *c, struct ps_error *e)
{
    if (cudnn_find(e))
        return e->code;
    nn_cuda_note(c, cudaSetDevice(c->index), "it is set for a thread");
    cudnnStatus_t status = CUDNN(cudnnCreate, &c->cudnn);
    if (status == CUDNN_STATUS_SUCCESS)
        status = CUDNN(cudnnSetStream, c->cudnn, c->stream);
    if (status == CUDNN_STATUS_SUCCESS)
        return PS_OK;
    nn_cudnn_close(c);
    cudaGetLastError();
    return ps_fail(e, PS_FAILED_PRECONDITION, "%s: cuDNN cannot be used: %s", c->name,
                   CUDNN(cudnnGetErrorString, status));
}

// A GPU that this cuDNN no longer knows or a driver that is too old for it are no error: own kernels serve.
enum ps_code nn_cudnn_check(struct nn_context *c, struct ps_error *e)
{
    if (!c->cudnn && c->no_cudnn.code == PS_OK)
        cudnn_get_handle(c, &c->no_cudnn);
    *e = c->no_cudnn;
    return e->code;
}

void nn_cudnn_close(struct nn_context *c)
{
    if (c->cudnn)
        CUDNN(cudnnDestroy, c->cudnn);
    c->cudnn = NULL;
}

void nn_cudnn_note(struct nn_context *c, cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS || c->error.code)
        return;
    // Where the device has failed before, that is the cause.
    nn_cuda_note(c, cudaStreamSynchronize(c->stream), "what was queued on it");
    if (c->error.code == PS_OK)
        ps_fail(&c->error, PS_INTERNAL, "%s: %s has failed: %s; a job with cudnn: none does without it", c->name, what,
                CUDNN(cudnnGetErrorString, status));
}

#else

enum ps_code nn_cudnn_check(struct nn_context *c, struct ps_error *e)
{
    (void)c;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "the CUDA module is built without cuDNN: expected cudnn.h of cuDNN 8 or later where configure finds "
                   "it");
}

void nn_cudnn_close(struct nn_context *c)
{
    (void)c;
}

#endif

enum ps_code nn_cudnn_set_convolutions(struct nn_context *c, enum nn_convolutions which, struct ps_error *e)
{
    if (which == NN_CONVOLUTIONS_FASTEST && nn_cudnn_check(c, e))
        return e->code;
    c->convolutions = which;
    return PS_OK;
}
