// SPDX-License-Identifier: Apache-2.0
//
// The clients of a job, by their ids: where the marks of what each has changed are kept, and who is too old to change
// anything. They are looked up once per update, and never forgotten while the job lives: a mark that was forgotten
// would let a late copy of a request take effect.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "psd/service.h"

// Every block that a client changes keeps a mark of it.
enum { MAX_CLIENTS = 1 << 16, NONE = 0 };

// Multiplicative hashing of the two halves (Knuth, The Art of Computer Programming 6.4), by 2^64 / phi.
static uint32_t *bucket_of(const struct psd_job *job, const uint8_t *id)
{
    uint64_t a, b;
    memcpy(&a, id, sizeof a);
    memcpy(&b, id + sizeof a, sizeof b);
    uint64_t h = ((a * UINT64_C(0x9e3779b97f4a7c15)) ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    return &job->client_buckets[(h >> 32) & (job->cap_clients - 1)];
}

static struct psd_client *find(const struct psd_job *job, const uint8_t *id)
{
    uint32_t i = job->n_clients ? *bucket_of(job, id) : NONE;
    while (i != NONE && memcmp(job->clients[i - 1].id, id, 16) != 0)
        i = job->clients[i - 1].next;
    return i == NONE ? NULL : &job->clients[i - 1];
}

static void link_client(struct psd_job *job, uint32_t i)
{
    uint32_t *bucket = bucket_of(job, job->clients[i].id);
    job->clients[i].next = *bucket;
    *bucket = i + 1;
}

static void grow(struct psd_job *job)
{
    job->cap_clients = job->cap_clients ? 2 * job->cap_clients : 8;
    job->clients = ps_realloc(job->clients, job->cap_clients * sizeof *job->clients);
    free(job->client_buckets);
    job->client_buckets = ps_alloc(job->cap_clients * sizeof *job->client_buckets);
    for (uint32_t i = 0; i < job->n_clients; i++)
        link_client(job, i);
}

static struct psd_client *add(struct psd_job *job, const Paramserver__V1__Caller *caller)
{
    if (job->n_clients == job->cap_clients)
        grow(job);
    struct psd_client *c = &job->clients[job->n_clients];
    *c = (struct psd_client){.worker = caller->worker, .incarnation = caller->incarnation};
    memcpy(c->id, caller->client.data, sizeof c->id);
    link_client(job, job->n_clients++);
    return c;
}

enum ps_code psd_job_client(struct psd_job *job, const Paramserver__V1__Caller *caller, struct psd_stamp *stamp,
                            struct ps_error *e)
{
    enum ps_code code = PS_OK;
    pthread_mutex_lock(&job->lock);
    struct psd_client *c = find(job, caller->client.data);
    uint64_t newest = caller->worker ? job->incarnations[caller->worker - 1] : c ? c->incarnation : 0;
    if (c && c->worker != caller->worker)
        code = ps_fail(e, PS_INVALID_ARGUMENT, "this client id belongs to another worker (rank + 1 = %" PRIu32 ")",
                       c->worker);
    else if (caller->incarnation < newest)
        code =
            ps_fail(e, PS_ABORTED, "incarnation %" PRIu64 " is superseded: the same worker has been here as %" PRIu64,
                    caller->incarnation, newest);
    else if (!c && job->n_clients == MAX_CLIENTS)
        code = ps_fail(e, PS_RESOURCE_EXHAUSTED, "job '%s' has been changed by %d clients already, it takes no more",
                       job->name, MAX_CLIENTS);
    if (code == PS_OK) {
        c = c ? c : add(job, caller);
        c->incarnation = caller->incarnation;
        if (caller->worker)
            job->incarnations[caller->worker - 1] = caller->incarnation;
        if (caller->oldest > c->oldest)
            c->oldest = caller->oldest;
        *stamp = (struct psd_stamp){(uint32_t)(c - job->clients), caller->sequence, c->oldest};
    }
    pthread_mutex_unlock(&job->lock);
    return code;
}
