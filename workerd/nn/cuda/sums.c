// SPDX-License-Identifier: Apache-2.0
//
// Sums over GPUs, by NCCL: on a stream of their own, beside the kernels that are queued after what they add up. NCCL
// gives all ranks the same bits.
//
// Joining and the first all-reduce of a kind wait on the host for the other GPUs, which may fail or be lost before they
// come. So calls of NCCL go on by themselves (ncclConfig_t.blocking 0): who waits for them can give up, and abort.
//
// The module needs no NCCL to be loaded: libnccl.so.2 is opened when a job first asks for it.
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "common/base/hash.h"
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
#if NCCL_VERSION_CODE < 21400
#error "NCCL 2.14 or later is needed: without its nccl.h the module is built without NCCL"
#endif

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
#define NCCL_OF_ALL(X) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId)
#define NCCL_OF_RANKS(X) X(ncclCommAbort) X(ncclCommDestroy) X(ncclCommGetAsyncError) X(ncclCommInitRankConfig)
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

static bool nccl_has_failed(const struct nn_context *c)
{
    return c->error.code || c->unsummed.code;
}

// NCCL's result is a class of errors, and the first line of what it says last is the cause. It may lack memory for
// buffers of its own, which come when the variables have theirs.
static void nccl_fail(struct nn_context *c, ncclResult_t result, const char *what)
{
    const char *cause = NCCL(ncclGetLastError, c->comm);
    const int length = cause ? (int)strcspn(cause, "\n") : 0;
    const bool lacks_memory = length && strstr(cause, "out of memory");
    ps_fail(&c->unsummed,
            lacks_memory ? PS_RESOURCE_EXHAUSTED
            : c->abroad  ? PS_UNAVAILABLE
                         : PS_INTERNAL,
            "%s: %s has failed: NCCL: %s%s%.*s%s%s", c->name, what, NCCL(ncclGetErrorString, result),
            length ? ": " : "", length < 200 ? length : 200, length ? cause : "",
            lacks_memory ? "; expected a smaller batch, or strategy." : "",
            !lacks_memory ? ""
            : c->abroad   ? "communication: ring"
                          : "cross_device_ops: hierarchical_copy");
}

static void nccl_note(struct nn_context *c, ncclResult_t result, const char *what)
{
    // Where the device has failed before, that is the cause.
    if (result == ncclUnhandledCudaError)
        nn_cuda_note(c, cudaStreamSynchronize(c->stream), "what was queued on it");
    if (result != ncclSuccess && result != ncclInProgress && !nccl_has_failed(c))
        nccl_fail(c, result, what);
}

// Waits for a call that goes on by itself.
static void nccl_settle(struct nn_context *c, ncclResult_t result, const char *what)
{
    while (result == ncclInProgress && !nccl_has_failed(c)) {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        if (c->gives_up(c->gives_up_arg))
            ps_fail(&c->unsummed, PS_ABORTED, "%s: %s: other GPUs do not come", c->name, what);
        else
            nccl_note(c, NCCL(ncclCommGetAsyncError, c->comm, &result), what);
    }
    nccl_note(c, result, what);
}

static enum ps_code nccl_result(const struct nn_context *c, struct ps_error *e)
{
    *e = c->error.code ? c->error : c->unsummed;
    return e->code;
}

static uint64_t nccl_identity(const struct nn_context *c)
{
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, c->index))
        return 0;
    return ps_hash(PS_HASH_SEED, properties.uuid.bytes, sizeof properties.uuid.bytes);
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

static void nccl_open_stream(struct nn_context *c)
{
    nn_cuda_note(c, cudaSetDevice(c->index), "cudaSetDevice");
    if (!c->sums)
        nn_cuda_note(c, cudaStreamCreateWithFlags(&c->sums, cudaStreamNonBlocking), "a stream is made");
    if (!c->added)
        nn_cuda_note(c, cudaEventCreateWithFlags(&c->added, cudaEventDisableTiming), "an event is made");
}

static enum ps_code nccl_join(struct nn_context *c, const struct nn_sums_ranks *r, struct ps_error *e)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    for (int i = 0; i < NN_SUMS_NAME; i++)
        id.internal[i] = r->name[i];
    config.blocking = 0;
    c->abroad = r->abroad;
    c->gives_up = r->gives_up;
    c->gives_up_arg = r->arg;
    nccl_open_stream(c);
    if (c->error.code == PS_OK)
        nccl_settle(c, NCCL(ncclCommInitRankConfig, &c->comm, r->ranks, id, r->rank, &config),
                    "to meet the other GPUs");
    return nccl_result(c, e);
}

static void nccl_abort(struct nn_context *c)
{
    c->unsummed.code = PS_OK;
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
    if (nccl_has_failed(c))
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
    if (nccl_has_failed(c) || !c->comm)
        return;
    nn_cuda_note(c, cudaEventRecord(c->queued, c->stream), "an event");
    nn_cuda_note(c, cudaStreamWaitEvent(c->sums, c->queued, 0), "an event");
    nccl_settle(c, NCCL(ncclAllReduce, values, values, n, ncclFloat32, ncclSum, c->comm, c->sums), "an all-reduce");
    nn_cuda_note(c, cudaEventRecord(c->added, c->sums), "an event");
}

static enum ps_code nccl_look(struct nn_context *c, bool *done, struct ps_error *e)
{
    ncclResult_t late = ncclSuccess;
    *done = false;
    if (!nccl_has_failed(c) && c->comm)
        nccl_note(c, NCCL(ncclCommGetAsyncError, c->comm, &late), "an all-reduce");
    nccl_note(c, late, "an all-reduce");
    if (nccl_has_failed(c))
        return nccl_result(c, e);
    const cudaError_t state = cudaEventQuery(c->added);
    *done = state == cudaSuccess;
    if (state != cudaErrorNotReady)
        nn_cuda_note(c, state, "an all-reduce");
    return nccl_result(c, e);
}

const struct nn_device_sums nn_cuda_sums = {.check = nccl_check,
                                            .identity = nccl_identity,
                                            .name = nccl_name,
                                            .join = nccl_join,
                                            .add = nccl_add,
                                            .look = nccl_look,
                                            .abort = nccl_abort};

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
