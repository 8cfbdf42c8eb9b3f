// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/collective.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "workerd/collective/add.h"

// How often who waits for other workers looks whether a signal has come; after how long it says for what it waits.
static const uint64_t collective_look = 100 * PS_MS, collective_patience = 10 * PS_SECOND;

struct wk_collective {
    const volatile sig_atomic_t *stop;
    uint32_t rank, workers;  // of this process
    uint32_t devices;        // replicas here
    struct wk_peers *peers;  // NULL: there is one worker
    void **values;           // [devices] of the reduction at hand

    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t waiting;        // at the barrier,
    uint64_t barriers;       // of which so many are over
    struct ps_error failed;  // code PS_OK: it has not
};

enum ps_code wk_collective_open(const struct wk_peers_options *peers, uint32_t d, struct wk_collective **collective,
                                struct ps_error *e)
{
    struct wk_collective *c = ps_alloc(sizeof *c);
    *c = (struct wk_collective){.stop = peers->stop, .rank = peers->rank, .workers = peers->workers, .devices = d};
    if (peers->workers > 1 && wk_peers_open(peers, &c->peers, e)) {
        free(c);
        return e->code;
    }
    c->values = ps_alloc(d * sizeof *c->values);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    *collective = c;
    return PS_OK;
}

void wk_collective_close(struct wk_collective *c, const char *reason)
{
    if (!c)
        return;
    if (c->peers)
        wk_peers_close(c->peers, reason);
    free(c->values);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void wk_collective_fail(struct wk_collective *c, const char *text)
{
    pthread_mutex_lock(&c->lock);
    if (!c->failed.code)
        ps_fail(&c->failed, PS_ABORTED, "%s", text);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

// ---- replicas of this process -------------------------------------------------------------------------------------

// Waits for the others. A failure ends it, for all; one that comes when all are there is the next one's.
static enum ps_code collective_barrier(struct wk_collective *c, struct ps_error *e)
{
    pthread_mutex_lock(&c->lock);
    const uint64_t this = c->barriers;
    if (++c->waiting == c->devices) {
        c->waiting = 0;
        c->barriers++;
        pthread_cond_broadcast(&c->changed);
    }
    while (c->barriers == this && !c->failed.code)
        pthread_cond_wait(&c->changed, &c->lock);
    e->code = PS_OK;
    if (c->barriers == this)
        *e = c->failed;
    pthread_mutex_unlock(&c->lock);
    return e->code;
}

// Where the part of a replica begins: on whole cache lines.
static size_t collective_share(const struct wk_collective *c, size_t n, uint32_t device)
{
    const size_t at = (size_t)((unsigned __int128)n * device / c->devices);
    return device == c->devices ? n : at & ~(size_t)15;
}

// A replica's part of the sum, into replica 0's array.
static void collective_sum_part(const struct wk_collective *c, uint32_t device, const struct wk_reduction *r)
{
    const size_t first = collective_share(c, r->n, device), n = collective_share(c, r->n, device + 1) - first;
    for (uint32_t k = 1; k < c->devices; k++) {
        if (r->type == WK_RING_FLOAT)
            wk_add_to_floats((float *)c->values[0] + first, (const float *)c->values[k] + first, n);
        else
            wk_add_to_doubles((double *)c->values[0] + first, (const double *)c->values[k] + first, n);
    }
}

// ---- other workers ------------------------------------------------------------------------------------------------

// Waits for the workers; says so once it takes long.
static enum ps_code collective_wait_for_workers(struct wk_collective *c, struct wk_reduction *r, struct ps_error *e)
{
    const uint64_t began = ps_now();
    uint64_t say = began + collective_patience;
    while (wk_ring_wait(wk_peers_ring(c->peers), r, ps_now() + collective_look, e) == PS_DEADLINE_EXCEEDED) {
        if (*c->stop)
            return ps_fail(e, PS_CANCELLED, "stopped by signal %d in an all-reduce", (int)*c->stop);
        if (ps_now() < say)
            continue;
        ps_info("waiting for worker %" PRIu32 " in an all-reduce, for %" PRIu64 " s",
                (c->rank + c->workers - 1) % c->workers, (ps_now() - began) / PS_SECOND);
        say += 6 * collective_patience;
    }
    return e->code;
}

// The workers of a host add up first, then the first ones of the hosts.
static enum ps_code collective_reduce_over_hosts(struct wk_collective *c, struct wk_reduction *r, struct ps_error *e)
{
    struct wk_shm *shm = wk_peers_shm(c->peers);
    const bool alone = wk_peers_hosts(c->peers) == 1;
    void *values = r->values;
    const size_t n = r->n;
    const enum wk_ring_type type = r->type;
    if (wk_shm_reduce(shm, values, n, type, alone, e) || alone)
        return e->code;
    if (wk_peers_is_first(c->peers)) {
        wk_ring_begin(wk_peers_ring(c->peers), r, values, n, type);
        if (collective_wait_for_workers(c, r, e))
            return e->code;
    }
    return wk_shm_broadcast(shm, values, n, type, e);
}

static bool collective_shares_memory(const struct wk_collective *c)
{
    return c->peers && wk_peers_shm(c->peers);
}

// The sum of this worker's replicas is *r's: adds up those of all.
static enum ps_code collective_reduce_over_workers(struct wk_collective *c, struct wk_reduction *r, struct ps_error *e)
{
    if (collective_shares_memory(c))
        return collective_reduce_over_hosts(c, r, e);
    wk_ring_begin(wk_peers_ring(c->peers), r, r->values, r->n, r->type);
    return collective_wait_for_workers(c, r, e);
}

// ---- all-reduce ---------------------------------------------------------------------------------------------------

void wk_collective_begin(struct wk_collective *c, uint32_t device, struct wk_reduction *r, void *values, size_t n,
                         enum wk_ring_type type)
{
    (void)device;
    if (c->devices == 1 && c->peers && !collective_shares_memory(c))
        wk_ring_begin(wk_peers_ring(c->peers), r, values, n, type);
    else
        *r = (struct wk_reduction){.values = values, .n = n, .type = type};
}

static enum ps_code collective_wait_for_all(struct wk_collective *c, uint32_t device, struct wk_reduction *r,
                                            struct ps_error *e)
{
    c->values[device] = r->values;
    if (collective_barrier(c, e))
        return e->code;
    collective_sum_part(c, device, r);
    if (collective_barrier(c, e))
        return e->code;
    if (c->peers && device == 0 && collective_reduce_over_workers(c, r, e))
        wk_collective_fail(c, e->text);
    if (c->peers && collective_barrier(c, e))
        return e->code;
    if (device)
        memcpy(r->values, c->values[0], r->n * (r->type == WK_RING_FLOAT ? sizeof(float) : sizeof(double)));
    return collective_barrier(c, e);
}

enum ps_code wk_collective_wait(struct wk_collective *c, uint32_t device, struct wk_reduction *r, struct ps_error *e)
{
    e->code = PS_OK;
    if (c->devices > 1)
        collective_wait_for_all(c, device, r, e);
    else if (collective_shares_memory(c))
        collective_reduce_over_hosts(c, r, e);
    else if (c->peers)
        collective_wait_for_workers(c, r, e);
    if (e->code == PS_ABORTED && *c->stop)
        return ps_fail(e, PS_CANCELLED, "stopped by signal %d in an all-reduce", (int)*c->stop);
    return e->code;
}
