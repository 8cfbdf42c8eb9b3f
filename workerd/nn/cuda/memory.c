// SPDX-License-Identifier: Apache-2.0
//
// The GPU's memory and copies. What goes there is queued with the kernels. What comes back is queued on a stream of its
// own, behind the kernels so far: it travels while later ones run.
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/nn/cuda/cuda.h"

static void memory_enter(struct nn_context *c)
{
    nn_cuda_note(c, cudaSetDevice(c->index), "it is set for a thread");
}

void nn_cuda_open_memory(struct nn_context *c)
{
    nn_cuda_note(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream is made");
    nn_cuda_note(c, cudaStreamCreateWithFlags(&c->copies, cudaStreamNonBlocking), "a stream is made");
    nn_cuda_note(c, cudaEventCreateWithFlags(&c->queued, cudaEventDisableTiming), "an event is made");
}

void nn_cuda_close_memory(struct nn_context *c)
{
    for (size_t i = 0; i < c->n_arrived; i++)
        cudaEventDestroy(c->arrived[i]);
    if (c->queued)
        cudaEventDestroy(c->queued);
    if (c->copies)
        cudaStreamDestroy(c->copies);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    cudaFree(c->scratch);
    cudaFree(c->workspace);
    free(c->arrived);
}

// ---- memory -------------------------------------------------------------------------------------------------------

static size_t memory_available(struct nn_context *c)
{
    size_t available = 0, total;
    cudaSetDevice(c->index);
    return cudaMemGetInfo(&available, &total) == cudaSuccess ? available : 0;
}

static enum ps_code memory_refuse(struct nn_context *c, cudaError_t error, size_t bytes, const char *whose,
                                  struct ps_error *e)
{
    cudaGetLastError();
    if (error != cudaErrorMemoryAllocation)
        return ps_fail(e, PS_INTERNAL, "%s: %zu bytes of %s are asked for: %s (%s)", c->name, bytes, whose,
                       cudaGetErrorString(error), cudaGetErrorName(error));
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes of %s: it has %zu bytes left", c->name, bytes,
                   whose, memory_available(c));
}

static enum ps_code memory_get(struct nn_context *c, size_t bytes, void **memory, struct ps_error *e)
{
    memory_enter(c);
    const cudaError_t error = cudaMalloc(memory, bytes + !bytes);
    return error ? memory_refuse(c, error, bytes, "its memory", e) : PS_OK;
}

static void memory_free(struct nn_context *c, void *memory)
{
    memory_enter(c);
    cudaFree(memory);
}

static enum ps_code memory_get_host(struct nn_context *c, size_t bytes, void **memory, struct ps_error *e)
{
    memory_enter(c);
    const cudaError_t error = cudaHostAlloc(memory, bytes + !bytes, cudaHostAllocPortable);
    return error ? memory_refuse(c, error, bytes, "pinned memory of the host", e) : PS_OK;
}

static void memory_free_host(struct nn_context *c, void *memory)
{
    memory_enter(c);
    cudaFreeHost(memory);
}

enum ps_code nn_cuda_reserve(struct nn_context *c, size_t bytes, struct ps_error *e)
{
    void *scratch;
    if (bytes <= c->scratch_bytes)
        return PS_OK;
    if (memory_get(c, bytes, &scratch, e))
        return ps_error_prefix(e, "what an operator keeps while it runs");
    cudaFree(c->scratch);
    c->scratch = scratch;
    c->scratch_bytes = bytes;
    return PS_OK;
}

// ---- copies -------------------------------------------------------------------------------------------------------

static void memory_put(struct nn_context *c, void *to, const void *from, size_t bytes)
{
    if (c->error.code == PS_OK)
        nn_cuda_note(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream), "a copy to it");
}

// The event of the copy that is next, made where no step has had as many.
static cudaEvent_t memory_arrival(struct nn_context *c)
{
    const size_t i = c->taken - c->finished;
    if (i == c->n_arrived) {
        memory_enter(c);
        c->arrived = ps_realloc(c->arrived, (i + 1) * sizeof *c->arrived);
        nn_cuda_note(c, cudaEventCreateWithFlags(&c->arrived[i], cudaEventDisableTiming), "an event is made");
        c->n_arrived += c->error.code == PS_OK;
    }
    return c->error.code ? NULL : c->arrived[i];
}

static uint64_t memory_take(struct nn_context *c, void *to, const void *from, size_t bytes)
{
    const cudaEvent_t arrival = c->error.code ? NULL : memory_arrival(c);
    if (!arrival)
        return c->taken;
    nn_cuda_note(c, cudaEventRecord(c->queued, c->stream), "an event");
    nn_cuda_note(c, cudaStreamWaitEvent(c->copies, c->queued, 0), "an event");
    nn_cuda_note(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->copies), "a copy from it");
    nn_cuda_note(c, cudaEventRecord(arrival, c->copies), "an event");
    return c->taken++;
}

static enum ps_code memory_result(const struct nn_context *c, struct ps_error *e)
{
    return c->error.code ? ps_fail(e, c->error.code, "%s", c->error.text) : PS_OK;
}

static enum ps_code memory_wait(struct nn_context *c, uint64_t ticket, struct ps_error *e)
{
    if (c->error.code == PS_OK && ticket >= c->finished)
        nn_cuda_note(c, cudaEventSynchronize(c->arrived[ticket - c->finished]), "what was queued on it");
    return memory_result(c, e);
}

// After an error, too: nothing reads or writes the caller's memory any more. Copies of a graph are joined to the stream
// of the kernels (graph.c): for these, that of the copies need not be waited for.
static enum ps_code memory_finish(struct nn_context *c, struct ps_error *e)
{
    if (c->taken != c->finished)
        nn_cuda_note(c, cudaStreamSynchronize(c->copies), "what was queued on it");
    nn_cuda_note(c, cudaStreamSynchronize(c->stream), "what was queued on it");
    c->finished = c->taken;
    return memory_result(c, e);
}

const struct nn_device_memory nn_cuda_memory = {.get = memory_get,
                                                .free = memory_free,
                                                .available = memory_available,
                                                .get_host = memory_get_host,
                                                .free_host = memory_free_host,
                                                .put = memory_put,
                                                .take = memory_take,
                                                .wait = memory_wait,
                                                .finish = memory_finish,
                                                .record = nn_cuda_record,
                                                .recorded = nn_cuda_recorded,
                                                .replay = nn_cuda_replay,
                                                .free_graph = nn_cuda_free_graph};
