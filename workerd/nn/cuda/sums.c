// SPDX-License-Identifier: Apache-2.0
//
// Sums over the GPUs of a host, by NCCL: on a stream of their own, beside the kernels that are queued after what they
// add up. NCCL gives all ranks the same bits.
//
// The module needs no NCCL to be loaded: libnccl.so.2 is opened when a job first asks for it.
#include <dlfcn.h>
#include <pthread.h>

#include "config.h"
#include "workerd/nn/cuda/cuda.h"

#ifdef CUDA_EMULATED
#define HAVE_NCCL 1
#endif

#ifdef HAVE_NCCL

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>
#pragma GCC diagnostic pop

_Static_assert(sizeof(ncclUniqueId) == NN_SUMS_NAME, "a name is one of NCCL's");

// ---- the library --------------------------------------------------------------------------------------------------

// NCCL(function, arguments...) calls a function of the library.
#ifdef CUDA_EMULATED

#define NCCL(function, ...) function(__VA_ARGS__)

static enum ps_code nccl_check(struct ps_error *e)
{
    e->code = PS_OK;
    return PS_OK;
}

#else

#define NCCL(function, ...) nccl.function(__VA_ARGS__)
#define NCCL_POINTER(function) __typeof__(&function) function;
#define NCCL_FIND(function) &&(nccl.function = (__typeof__(&function))dlsym(library, #function))
#define NCCL_OF_ALL(X) X(ncclGetErrorString) X(ncclGetUniqueId)
#define NCCL_OF_RANKS(X) X(ncclCommAbort) X(ncclCommDestroy) X(ncclCommGetAsyncError) X(ncclCommInitRank)
#define NCCL_FUNCTIONS(X) NCCL_OF_ALL(X) NCCL_OF_RANKS(X) X(ncclAllReduce)

static struct {
    NCCL_FUNCTIONS(NCCL_POINTER)
} nccl;
static struct ps_error nccl_missing;

static void nccl_open(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        ps_fail(&nccl_missing, PS_FAILED_PRECONDITION, "NCCL cannot be loaded: %s", dlerror());
    else if (!(true NCCL_FUNCTIONS(NCCL_FIND)))
        ps_fail(&nccl_missing, PS_FAILED_PRECONDITION, "libnccl.so.2 lacks a function of NCCL %d.%d: %s", NCCL_MAJOR,
                NCCL_MINOR, dlerror());
}

static enum ps_code nccl_check(struct ps_error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, nccl_open);
    *e = nccl_missing;
    return e->code;
}

#endif

// ---- ranks --------------------------------------------------------------------------------------------------------

static void nccl_note(struct nn_context *c, ncclResult_t result, const char *what)
{
    // Where the device has failed before, that is the cause.
    if (result == ncclUnhandledCudaError)
        nn_cuda_note(c, cudaStreamSynchronize(c->stream), "what was queued on it");
    if (result != ncclSuccess && result != ncclInProgress && c->error.code == PS_OK)
        ps_fail(&c->error, PS_INTERNAL, "%s: %s has failed: NCCL: %s", c->name, what, NCCL(ncclGetErrorString, result));
}

static enum ps_code nccl_result(const struct nn_context *c, struct ps_error *e)
{
    return c->error.code ? ps_fail(e, c->error.code, "%s", c->error.text) : PS_OK;
}

static enum ps_code nccl_name(char name[NN_SUMS_NAME], struct ps_error *e)
{
    ncclUniqueId id;
    const ncclResult_t result = NCCL(ncclGetUniqueId, &id);
    if (result != ncclSuccess)
        return ps_fail(e, PS_INTERNAL, "NCCL names no group of GPUs: %s", NCCL(ncclGetErrorString, result));
    for (int i = 0; i < NN_SUMS_NAME; i++)
        name[i] = id.internal[i];
    return PS_OK;
}

static enum ps_code nccl_join(struct nn_context *c, const char name[NN_SUMS_NAME], int rank, int ranks,
                              struct ps_error *e)
{
    ncclUniqueId id;
    for (int i = 0; i < NN_SUMS_NAME; i++)
        id.internal[i] = name[i];
    nn_cuda_note(c, cudaSetDevice(c->index), "cudaSetDevice");
    nn_cuda_note(c, cudaStreamCreateWithFlags(&c->sums, cudaStreamNonBlocking), "a stream is made");
    nn_cuda_note(c, cudaEventCreateWithFlags(&c->added, cudaEventDisableTiming), "an event is made");
    if (c->error.code == PS_OK)
        nccl_note(c, NCCL(ncclCommInitRank, &c->comm, ranks, id, rank), "to meet the other GPUs");
    return nccl_result(c, e);
}

static void nccl_abort(struct nn_context *c)
{
    if (!c->comm)
        return;
    NCCL(ncclCommAbort, c->comm);
    c->comm = NULL;
    cudaSetDevice(c->index);
    cudaStreamSynchronize(c->sums);
    cudaStreamSynchronize(c->stream);  // nothing uses this GPU's gradients any more
}

void nn_cuda_close_sums(struct nn_context *c)
{
    if (c->error.code)
        nccl_abort(c);
    if (c->comm)
        NCCL(ncclCommDestroy, c->comm);
    if (c->added)
        cudaEventDestroy(c->added);
    if (c->sums)
        cudaStreamDestroy(c->sums);
}

// ---- sums ---------------------------------------------------------------------------------------------------------

static void nccl_add(struct nn_context *c, float *values, size_t n, float scale)
{
    if (scale != 1)
        nn_cuda_scale(c, values, n, scale);
    if (c->error.code || !c->comm)
        return;
    nn_cuda_note(c, cudaEventRecord(c->queued, c->stream), "an event");
    nn_cuda_note(c, cudaStreamWaitEvent(c->sums, c->queued, 0), "an event");
    nccl_note(c, NCCL(ncclAllReduce, values, values, n, ncclFloat32, ncclSum, c->comm, c->sums), "an all-reduce");
    nn_cuda_note(c, cudaEventRecord(c->added, c->sums), "an event");
}

static enum ps_code nccl_look(struct nn_context *c, bool *done, struct ps_error *e)
{
    ncclResult_t late = ncclSuccess;
    *done = false;
    if (c->error.code == PS_OK && c->comm)
        nccl_note(c, NCCL(ncclCommGetAsyncError, c->comm, &late), "an all-reduce");
    nccl_note(c, late, "an all-reduce");
    if (c->error.code)
        return nccl_result(c, e);
    const cudaError_t state = cudaEventQuery(c->added);
    *done = state == cudaSuccess;
    if (state != cudaErrorNotReady)
        nn_cuda_note(c, state, "an all-reduce");
    return nccl_result(c, e);
}

const struct nn_device_sums nn_cuda_sums = {
    .check = nccl_check, .name = nccl_name, .join = nccl_join, .add = nccl_add, .look = nccl_look, .abort = nccl_abort};

#else

static enum ps_code nccl_check(struct ps_error *e)
{
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "the CUDA module is built without NCCL: expected nccl.h where configure "
                   "finds it");
}

void nn_cuda_close_sums(struct nn_context *c)
{
    (void)c;
}

const struct nn_device_sums nn_cuda_sums = {.check = nccl_check};

#endif
