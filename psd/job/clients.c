// SPDX-License-Identifier: Apache-2.0
#include "psd/job/clients.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

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

// Bytes of the tables of so many clients.
static size_t table_bytes(uint32_t cap)
{
    return cap * (sizeof(struct psd_client) + sizeof(uint32_t));
}

static enum ps_code grow(struct psd_job *job, struct ps_error *e)
{
    uint32_t cap = job->cap_clients ? 2 * job->cap_clients : 8;
    size_t more = table_bytes(cap) - table_bytes(job->cap_clients);
    if (!psd_pool_take(job->pool, more))
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%zu bytes for the clients of job '%s' do not fit the limit of %zu",
                       more, job->name, job->pool->limit);
    uint32_t *buckets = ps_try_alloc_array(cap, sizeof *buckets);
    struct psd_client *clients = buckets ? ps_try_realloc(job->clients, cap * sizeof *clients) : NULL;
    if (!clients) {
        psd_pool_give(job->pool, more);
        free(buckets);
        return ps_no_memory(e, "the clients of a job");
    }
    free(job->client_buckets);
    job->clients = clients;
    job->client_buckets = buckets;
    job->cap_clients = cap;
    for (uint32_t i = 0; i < job->n_clients; i++)
        link_client(job, i);
    return PS_OK;
}

// NULL: no room, see *e.
static struct psd_client *add(struct psd_job *job, const Paramserver__V1__Caller *caller, struct ps_error *e)
{
    if (job->n_clients == job->cap_clients && grow(job, e))
        return NULL;
    struct psd_client *c = &job->clients[job->n_clients];
    *c = (struct psd_client){.worker = caller->worker};
    memcpy(c->id, caller->client.data, sizeof c->id);
    link_client(job, job->n_clients++);
    return c;
}

void psd_clients_free(struct psd_job *job)
{
    psd_pool_give(job->pool, table_bytes(job->cap_clients));
    free(job->client_buckets);
    free(job->clients);
}

enum ps_code psd_job_client(struct psd_job *job, const Paramserver__V1__Caller *caller, struct psd_request_id *stamp,
                            struct ps_error *e)
{
    enum ps_code code = PS_OK;
    pthread_mutex_lock(&job->lock);
    struct psd_client *c = find(job, caller->client.data);
    uint64_t known = caller->worker ? job->incarnations[caller->worker - 1] : caller->incarnation;
    if (c && c->worker != caller->worker)
        code = ps_fail(e, PS_INVALID_ARGUMENT, "this client id belongs to another worker (rank + 1 = %" PRIu32 ")",
                       c->worker);
    else if (caller->incarnation < known)
        code = ps_fail(e, PS_ABORTED, "worker %" PRIu32 ": incarnation %" PRIu64 " is superseded by %" PRIu64,
                       caller->worker - 1, caller->incarnation, known);
    else if (caller->incarnation > known)
        code =
            ps_fail(e, PS_UNAVAILABLE,
                    "worker %" PRIu32 " has not joined job '%s' as incarnation %" PRIu64 ", as far as was heard here",
                    caller->worker - 1, job->name, caller->incarnation);
    else if (!c && job->n_clients == MAX_CLIENTS)
        code = ps_fail(e, PS_RESOURCE_EXHAUSTED, "job '%s' has been changed by %d clients already, it takes no more",
                       job->name, MAX_CLIENTS);
    if (code == PS_OK && !c && !(c = add(job, caller, e)))
        code = PS_RESOURCE_EXHAUSTED;
    if (code == PS_OK) {
        if (caller->oldest > c->oldest)
            c->oldest = caller->oldest;
        *stamp = (struct psd_request_id){(uint32_t)(c - job->clients), caller->sequence, c->oldest};
    }
    pthread_mutex_unlock(&job->lock);
    return code;
}
