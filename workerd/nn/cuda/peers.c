// SPDX-License-Identifier: Apache-2.0
//
// Sums on one of several GPUs: rank 0's. Whoever begins a sum last queues it, on a stream of that GPU: each rank's
// numbers come there, are added in the order of the ranks, and the sums go back.
//
// Threads: each rank's; what they share is under the group's lock.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/cuda/cuda.h"

// A sum that not all ranks have begun.
struct peer_sum {
    float **values;  // [ranks]
    size_t n;
    int begun;  // by so many
    struct peer_sum *next;
};

struct nn_cuda_group {
    pthread_mutex_t lock;
    struct nn_context **member;  // [ranks]; NULL: it has not joined
    uint64_t *begun;             // [ranks] sums
    int ranks, members;
    struct peer_sum *first;  // that is not queued, after so many that are
    uint64_t queued;
    struct ps_error error;  // the first one; from then on nothing is queued
    // Of rank 0's GPU.
    int index;
    cudaStream_t stream;
    cudaEvent_t done;  // the last that is queued
    float *scratch;
    size_t scratch_bytes;
};

static void gpus_note(struct nn_cuda_group *p, cudaError_t error, const char *what)
{
    if (error != cudaSuccess && p->error.code == PS_OK)
        ps_fail(&p->error, nn_cuda_code(error), "gpu:%d: %s has failed: %s (%s)", p->index, what,
                cudaGetErrorString(error), cudaGetErrorName(error));
}

// ---- ranks --------------------------------------------------------------------------------------------------------

static enum ps_code gpus_check(struct ps_error *e)
{
    e->code = PS_OK;
    return PS_OK;
}

// All ranks are threads of this process: the name is where the group lies.
static enum ps_code gpus_name(char name[NN_SUMS_NAME], struct ps_error *e)
{
    struct nn_cuda_group *p = ps_alloc(sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    memset(name, 0, NN_SUMS_NAME);
    memcpy(name, &p, sizeof p);
    e->code = PS_OK;
    return PS_OK;
}

// locked, by rank 0
static void gpus_open(struct nn_cuda_group *p, int index)
{
    p->index = index;
    gpus_note(p, cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking), "a stream is made");
    gpus_note(p, cudaEventCreateWithFlags(&p->done, cudaEventDisableTiming), "an event is made");
}

// Without it what a GPU copies from another one goes through the host's memory; where that cannot be, it goes there.
static void gpus_let_reach(int device, int peer)
{
    int can = 0;
    cudaSetDevice(device);
    if (cudaDeviceCanAccessPeer(&can, device, peer) == cudaSuccess && can)
        cudaDeviceEnablePeerAccess(peer, 0);
    cudaGetLastError();  // it may have been enabled before
}

// locked. Rank 0's GPU and that of each other rank, once both are there.
static void gpus_let_first_reach(const struct nn_cuda_group *p, int rank)
{
    for (int other = 0; other < p->ranks; other++) {
        if (other == rank || !p->member[other] || (rank != 0 && other != 0))
            continue;
        gpus_let_reach(p->member[rank]->index, p->member[other]->index);
        gpus_let_reach(p->member[other]->index, p->member[rank]->index);
    }
    cudaSetDevice(p->member[rank]->index);
}

static enum ps_code gpus_join(struct nn_context *c, const struct nn_sums_ranks *r, struct ps_error *e)
{
    struct nn_cuda_group *p;
    memcpy(&p, r->name, sizeof p);
    nn_cuda_note(c, cudaSetDevice(c->index), "cudaSetDevice");
    nn_cuda_note(c, cudaEventCreateWithFlags(&c->added, cudaEventDisableTiming), "an event is made");
    pthread_mutex_lock(&p->lock);
    if (!p->member) {
        p->member = ps_alloc((size_t)r->ranks * sizeof(struct nn_context *));
        p->begun = ps_alloc((size_t)r->ranks * sizeof *p->begun);
        p->ranks = r->ranks;
    }
    if (r->rank == 0)
        gpus_open(p, c->index);
    p->member[r->rank] = c;
    p->members++;
    gpus_let_first_reach(p, r->rank);
    pthread_mutex_unlock(&p->lock);
    c->peers = p;
    c->rank = r->rank;
    return c->error.code ? ps_fail(e, c->error.code, "%s", c->error.text) : PS_OK;
}

// locked
static void gpus_drop(struct nn_cuda_group *p, struct peer_sum *s)
{
    p->first = s->next;
    free(s->values);
    free(s);
}

static void gpus_free(struct nn_cuda_group *p)
{
    while (p->first)
        gpus_drop(p, p->first);
    cudaSetDevice(p->index);
    cudaFree(p->scratch);
    if (p->done)
        cudaEventDestroy(p->done);
    if (p->stream)
        cudaStreamDestroy(p->stream);
    pthread_mutex_destroy(&p->lock);
    free(p->member);
    free(p->begun);
    free(p);
}

static void gpus_abort(struct nn_context *c)
{
    struct nn_cuda_group *p = c->peers;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    if (!p->error.code)
        ps_fail(&p->error, PS_ABORTED, "%s has left the sums", c->name);
    if (p->stream)
        cudaStreamSynchronize(p->stream);
    pthread_mutex_unlock(&p->lock);
    cudaSetDevice(c->index);
    cudaStreamSynchronize(c->stream);  // nothing uses this GPU's gradients any more
}

void nn_cuda_close_peers(struct nn_context *c)
{
    struct nn_cuda_group *p = c->peers;
    if (!p)
        return;
    gpus_abort(c);
    pthread_mutex_lock(&p->lock);
    const bool last = --p->members == 0;
    pthread_mutex_unlock(&p->lock);
    if (last)
        gpus_free(p);
    cudaSetDevice(c->index);
}

// ---- sums ---------------------------------------------------------------------------------------------------------

// locked
static void gpus_fit_scratch(struct nn_cuda_group *p, size_t bytes)
{
    if (bytes <= p->scratch_bytes || p->error.code)
        return;
    gpus_note(p, cudaStreamSynchronize(p->stream), "what was queued on it");
    cudaFree(p->scratch);
    p->scratch = NULL;
    gpus_note(p, cudaMalloc((void **)&p->scratch, bytes), "memory for the gradients of other GPUs");
    p->scratch_bytes = p->error.code ? 0 : bytes;
}

// locked
static void gpus_add_rank(struct nn_cuda_group *p, const struct peer_sum *s, int rank)
{
    const size_t bytes = s->n * sizeof(float);
    gpus_note(p, cudaStreamWaitEvent(p->stream, p->member[rank]->added, 0), "an event");
    gpus_note(p, cudaMemcpyPeerAsync(p->scratch, p->index, s->values[rank], p->member[rank]->index, bytes, p->stream),
              "a copy between GPUs");
    gpus_note(p, nn_cuda_sum_two(p->stream, s->values[0], p->scratch, s->n), "a sum");
}

// locked, on rank 0's GPU
static void gpus_queue(struct nn_cuda_group *p, const struct peer_sum *s)
{
    const size_t bytes = s->n * sizeof(float);
    gpus_fit_scratch(p, bytes);
    if (!p->error.code)
        gpus_note(p, cudaStreamWaitEvent(p->stream, p->member[0]->added, 0), "an event");
    for (int rank = 1; rank < p->ranks && !p->error.code; rank++)
        gpus_add_rank(p, s, rank);
    for (int rank = 1; rank < p->ranks && !p->error.code; rank++)
        gpus_note(
            p, cudaMemcpyPeerAsync(s->values[rank], p->member[rank]->index, s->values[0], p->index, bytes, p->stream),
            "a copy between GPUs");
    if (!p->error.code)
        gpus_note(p, cudaEventRecord(p->done, p->stream), "an event");
}

// locked. The sum that this rank begins: one that others have begun, or a new one.
static struct peer_sum *gpus_next(struct nn_cuda_group *p, int rank)
{
    struct peer_sum **s = &p->first;
    for (uint64_t k = p->queued; k < p->begun[rank]; k++)
        s = &(*s)->next;
    p->begun[rank]++;
    if (!*s) {
        *s = ps_alloc(sizeof **s);
        (*s)->values = ps_alloc((size_t)p->ranks * sizeof(float *));
    }
    return *s;
}

static void gpus_begin(struct nn_context *c, float *values, size_t n)
{
    struct nn_cuda_group *p = c->peers;
    struct peer_sum *s = gpus_next(p, c->rank);
    if (s->begun && s->n != n && !p->error.code)
        ps_fail(&p->error, PS_INVALID_ARGUMENT, "%s adds up %zu numbers, and another GPU %zu: expected the same",
                c->name, n, s->n);
    s->n = n;
    s->values[c->rank] = values;
    if (++s->begun < p->ranks)
        return;
    cudaSetDevice(p->index);
    gpus_queue(p, s);
    cudaSetDevice(c->index);
    gpus_drop(p, s);
    p->queued++;
}

static void gpus_add(struct nn_context *c, float *values, size_t n, float scale)
{
    if (scale != 1)
        nn_cuda_scale(c, values, n, scale);
    pthread_mutex_lock(&c->peers->lock);
    nn_cuda_note(c, cudaEventRecord(c->added, c->stream), "an event");
    if (c->error.code == PS_OK)
        gpus_begin(c, values, n);
    pthread_mutex_unlock(&c->peers->lock);
}

static enum ps_code gpus_look(struct nn_context *c, bool *done, struct ps_error *e)
{
    struct nn_cuda_group *p = c->peers;
    const cudaError_t own = cudaStreamQuery(c->stream);
    nn_cuda_note(c, own == cudaErrorNotReady ? cudaSuccess : own, "what was queued on it");
    pthread_mutex_lock(&p->lock);
    const cudaError_t state = p->error.code ? cudaSuccess : cudaEventQuery(p->done);
    gpus_note(p, state == cudaErrorNotReady ? cudaSuccess : state, "a sum");
    *done = state == cudaSuccess && p->queued == p->begun[c->rank];
    *e = c->error.code ? c->error : p->error;
    pthread_mutex_unlock(&p->lock);
    return e->code;
}

const struct nn_device_sums nn_cuda_peers = {
    .check = gpus_check, .name = gpus_name, .join = gpus_join, .add = gpus_add, .look = gpus_look, .abort = gpus_abort};
