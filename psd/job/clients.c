// SPDX-License-Identifier: Apache-2.0
#include "psd/job/clients.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/sometimes.h"
#include "psd/job/component.h"
#include "psd/job/host.h"

// Multiplicative hashing (Knuth, The Art of Computer Programming 6.4), by 2^64 / phi.
static const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);

static struct psd_client **client_bucket_of_id(const struct psd_clients *cs, const uint8_t *id)
{
    uint64_t a, b;
    memcpy(&a, id, sizeof a);
    memcpy(&b, id + sizeof a, sizeof b);
    return &cs->of_id[((a * golden ^ b) * golden >> 32) & (cs->cap - 1)];
}

static struct psd_client **client_bucket_of_number(const struct psd_clients *cs, uint32_t number)
{
    return &cs->of_number[(number * golden >> 32) & (cs->cap - 1)];
}

static struct psd_client *client_find(const struct psd_clients *cs, const uint8_t *id)
{
    struct psd_client *c = cs->cap ? *client_bucket_of_id(cs, id) : NULL;
    while (c && memcmp(c->id, id, sizeof c->id) != 0)
        c = c->next_of_id;
    return c;
}

uint64_t psd_clients_oldest(void *clients, uint32_t number)
{
    struct psd_clients *cs = clients;
    pthread_mutex_lock(&cs->lock);
    struct psd_client *c = cs->cap ? *client_bucket_of_number(cs, number) : NULL;
    while (c && c->number != number)
        c = c->next_of_number;
    uint64_t oldest = c ? atomic_load(&c->oldest) : UINT64_MAX;
    pthread_mutex_unlock(&cs->lock);
    return oldest;
}

// ---- the list by age: the job's lock is held ----------------------------------------------------------------------

static void client_append(struct psd_clients *cs, struct psd_client *c)
{
    c->older = cs->newest;
    c->newer = NULL;
    *(cs->newest ? &cs->newest->newer : &cs->oldest) = c;
    cs->newest = c;
}

static void client_remove(struct psd_clients *cs, struct psd_client *c)
{
    *(c->older ? &c->older->newer : &cs->oldest) = c->newer;
    *(c->newer ? &c->newer->older : &cs->newest) = c->older;
}

static void client_touch(struct psd_clients *cs, struct psd_client *c)
{
    c->touched = cs->now;
    if (cs->newest == c)
        return;
    client_remove(cs, c);
    client_append(cs, c);
}

// ---- the tables: both locks are held ------------------------------------------------------------------------------

static void client_link(struct psd_clients *cs, struct psd_client *c)
{
    struct psd_client **of_id = client_bucket_of_id(cs, c->id);
    struct psd_client **of_number = client_bucket_of_number(cs, c->number);
    c->next_of_id = *of_id;
    c->next_of_number = *of_number;
    *of_id = *of_number = c;
}

static void client_unlink(struct psd_clients *cs, struct psd_client *c)
{
    struct psd_client **at = client_bucket_of_id(cs, c->id);
    while (*at != c)
        at = &(*at)->next_of_id;
    *at = c->next_of_id;
    at = client_bucket_of_number(cs, c->number);
    while (*at != c)
        at = &(*at)->next_of_number;
    *at = c->next_of_number;
}

static size_t client_table_bytes(uint32_t cap)
{
    return 2 * cap * sizeof(struct psd_client *);
}

size_t psd_clients_bytes(const struct psd_clients *cs)
{
    return client_table_bytes(cs->cap) + cs->n * sizeof(struct psd_client);
}

static bool clients_grow(struct psd_clients *cs)
{
    uint32_t cap = cs->cap ? 2 * cs->cap : 8;
    struct psd_client **tables = ps_try_alloc_array(2 * cap, sizeof *tables);
    if (!tables)
        return false;
    free(cs->of_id);
    cs->of_id = tables;
    cs->of_number = tables + cap;
    cs->cap = cap;
    for (struct psd_client *c = cs->oldest; c; c = c->newer)
        client_link(cs, c);
    return true;
}

// ---- coming and going: the job's lock is held ---------------------------------------------------------------------

// NULL: no room, see *e.
static struct psd_client *client_add(struct psd_job *job, const Paramserver__V1__Caller *caller, struct ps_error *e)
{
    struct psd_clients *cs = &job->clients;
    bool full = cs->n == cs->cap;
    size_t more = sizeof(struct psd_client) + (full ? client_table_bytes(cs->cap ? cs->cap : 8) : 0);
    if (!psd_pool_take(job->pool, more)) {
        ps_fail(e, PS_RESOURCE_EXHAUSTED, "%zu bytes for the clients of job '%s' do not fit the limit of %zu", more,
                job->name, job->pool->limit);
        return NULL;
    }
    struct psd_client *c = ps_try_alloc(sizeof *c);
    pthread_mutex_lock(&cs->lock);
    if (c && (!full || clients_grow(cs))) {
        c->number = ++cs->last_number;
        c->worker = caller->worker;
        c->incarnation = caller->incarnation;
        c->touched = cs->now;
        memcpy(c->id, caller->client.data, sizeof c->id);
        client_link(cs, c);
        client_append(cs, c);
        cs->n++;
    } else {
        free(c);
        c = NULL;
        psd_pool_give(job->pool, more);
        ps_no_memory(e, "the clients of a job");
    }
    pthread_mutex_unlock(&cs->lock);
    return c;
}

static void client_forget(struct psd_job *job, struct psd_client *c)
{
    struct psd_clients *cs = &job->clients;
    pthread_mutex_lock(&cs->lock);
    client_unlink(cs, c);
    client_remove(cs, c);
    cs->n--;
    pthread_mutex_unlock(&cs->lock);
    psd_pool_give(job->pool, sizeof *c);
    free(c);
}

// Would nothing that it sent be taken any more? A worker that is alive may be silent for as long as it likes.
static bool client_is_gone(const struct psd_job *job, const struct psd_client *c)
{
    if (c->worker && job->incarnations)
        return c->incarnation < job->incarnations[c->worker - 1];
    return job->clients.now >= c->touched + PS_SILENT_CLIENT_S * PS_SECOND;
}

// A few at a time, from those that have been silent for longest; a worker that is alive goes behind the others.
static void clients_forget_some(struct psd_job *job)
{
    struct psd_clients *cs = &job->clients;
    for (int i = 0; i < 64 && cs->oldest; i++) {
        struct psd_client *c = cs->oldest;
        if (client_is_gone(job, c))
            client_forget(job, c);
        else if (cs->now < c->touched + PS_SILENT_CLIENT_S * PS_SECOND)
            return;
        else
            client_touch(cs, c);
    }
}

void psd_clients_init(struct psd_clients *cs)
{
    *cs = (struct psd_clients){0};
    pthread_mutex_init(&cs->lock, NULL);
}

static void clients_fini(struct psd_job *job)
{
    struct psd_clients *cs = &job->clients;
    while (cs->oldest)
        client_forget(job, cs->oldest);
    psd_pool_give(job->pool, psd_clients_bytes(cs));
    free(cs->of_id);
    pthread_mutex_destroy(&cs->lock);
}

static uint64_t clients_tick(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    const struct psd_clients *cs = &job->clients;
    (void)ready;
    pthread_mutex_lock(&job->lock);
    job->clients.now = now;
    clients_forget_some(job);
    uint64_t due = cs->oldest ? cs->oldest->touched + PS_SILENT_CLIENT_S * PS_SECOND : UINT64_MAX;
    pthread_mutex_unlock(&job->lock);
    return due;
}

const struct psd_component psd_clients_component = {.name = "clients", .tick = clients_tick, .free = clients_fini};

// Job locked.
static enum ps_code client_check_incarnation(const struct psd_job *job, const Paramserver__V1__Caller *caller,
                                             struct ps_error *e)
{
    const uint64_t known = caller->worker ? job->incarnations[caller->worker - 1] : caller->incarnation;
    if (caller->incarnation < known) {
        ps_sometimes(PS_SOMETIMES_OLD_INCARNATION);
        return ps_fail(e, PS_ABORTED,
                       "worker %" PRIu32 " of job '%s': this process was taken for dead, or another has its rank now",
                       caller->worker - 1, job->name);
    }
    if (caller->incarnation > known)
        return ps_fail(e, PS_UNAVAILABLE,
                       "worker %" PRIu32 " of job '%s' is another process, as far as was heard here yet",
                       caller->worker - 1, job->name);
    return PS_OK;
}

enum ps_code psd_job_check_incarnation(struct psd_job *job, const Paramserver__V1__Caller *caller, struct ps_error *e)
{
    pthread_mutex_lock(&job->lock);
    const enum ps_code code = client_check_incarnation(job, caller, e);
    pthread_mutex_unlock(&job->lock);
    return code;
}

enum ps_code psd_job_client(struct psd_job *job, const Paramserver__V1__Caller *caller, struct psd_request_id *id,
                            struct ps_error *e)
{
    uint64_t now = atomic_load_explicit(&job->host->ticked_at, memory_order_relaxed);
    enum ps_code code = PS_OK;
    if (!now)  // before the first tick: a client is not silent since the machine has been started
        now = psd_host_now(job->host);
    pthread_mutex_lock(&job->lock);
    if (now > job->clients.now)
        job->clients.now = now;
    struct psd_client *c = client_find(&job->clients, caller->client.data);
    if (c && c->worker != caller->worker)
        code = ps_fail(e, PS_INVALID_ARGUMENT,
                       "this client id belongs to another worker (rank + 1 = %" PRIu32 "): expected a new one for each "
                       "rank that a process joins as",
                       c->worker);
    else
        code = client_check_incarnation(job, caller, e);
    if (code == PS_OK && !c && job->clients.n >= PSD_MAX_CLIENTS)
        code = ps_fail(e, PS_RESOURCE_EXHAUSTED,
                       "job '%s' has been changed by %d clients in the last ten minutes, it takes no more for now",
                       job->name, PSD_MAX_CLIENTS);
    if (code == PS_OK && !c && !(c = client_add(job, caller, e)))
        code = PS_RESOURCE_EXHAUSTED;
    if (code == PS_OK) {
        c->incarnation = caller->incarnation;
        if (caller->oldest > atomic_load(&c->oldest))
            atomic_store(&c->oldest, caller->oldest);
        client_touch(&job->clients, c);
        *id = (struct psd_request_id){c->number, caller->sequence, atomic_load(&c->oldest)};
    }
    pthread_mutex_unlock(&job->lock);
    return code;
}
