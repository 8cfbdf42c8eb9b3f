// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/collective.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/signals.h"
#include "common/base/thread.h"

// What a replica has begun and what is not done, in that order.
struct queue {
    struct wk_reduction *first, **last;
};

struct wk_collective {
    const volatile sig_atomic_t *stop;
    uint32_t replicas;       // of this process
    struct wk_peers *peers;  // NULL: there is one worker
    uint32_t first, ranks;   // the rank of replica 0; of all workers
    pthread_t thread;        // that adds up

    pthread_mutex_t lock;
    pthread_cond_t changed;  // something is done, has failed or is over
    pthread_cond_t work;     // for the thread
    struct queue *queue;     // [replicas]
    void **values;           // [replicas] of the sum at hand
    bool busy;               // somebody adds up
    bool over;               // a replica of this process has ended, or all have
    struct ps_error failed;  // code PS_OK: it has not
    uint32_t reforming;      // replicas that want to meet anew,
    uint64_t reforms;        // which they have done so often
    struct ps_error met;     // how the last of them ended
};

// ---- a sum --------------------------------------------------------------------------------------------------------

static void collective_clear(struct wk_collective *c)
{
    for (uint32_t k = 0; k < c->replicas; k++)
        c->queue[k] = (struct queue){NULL, &c->queue[k].first};
}

// locked. Have all replicas begun the next one?
static bool collective_is_ready(const struct wk_collective *c)
{
    for (uint32_t k = 0; k < c->replicas; k++)
        if (!c->queue[k].first)
            return false;
    return !c->busy && !c->failed.code;
}

static const char *collective_what(const struct wk_reduction *r)
{
    return r->what ? r->what : "figures";
}

// locked
static enum ps_code collective_take_arrays(struct wk_collective *c, struct ps_error *e)
{
    const struct wk_reduction *first = c->queue[0].first;
    e->code = PS_OK;
    for (uint32_t k = 0; k < c->replicas; k++) {
        struct wk_reduction *r = c->queue[k].first;
        c->values[k] = r->values;
        r->began = ps_now();
        if (r->operation != first->operation || r->n != first->n || r->type != first->type ||
            strcmp(collective_what(r), collective_what(first)) != 0)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "replica %" PRIu32 " adds up %zu numbers of %.99s where replica 0 adds up %zu of %.99s: "
                           "expected the same",
                           k, r->n, collective_what(r), first->n, collective_what(first));
    }
    return PS_OK;
}

// r: replica 0's, whose others are alike.
static enum ps_code collective_add_up(const struct wk_collective *c, const struct wk_reduction *r, struct ps_error *e)
{
    const struct wk_array array = {c->values[0], r->n, r->type, collective_what(r)};
    for (uint32_t k = 1; k < c->replicas && r->operation != WK_BROADCAST; k++)
        wk_add(r->type, c->values[0], c->values[k], r->n);
    if (c->peers && wk_formation_reduce(wk_peers_formation(c->peers), &array, r->grace, e))
        return e->code;
    for (uint32_t k = 1; k < c->replicas && r->operation != WK_REDUCE; k++)
        memcpy(c->values[k], c->values[0], r->n * wk_number_size(r->type));
    return PS_OK;
}

// locked
static void collective_set_done(struct wk_collective *c)
{
    for (uint32_t k = 0; k < c->replicas; k++) {
        struct queue *q = &c->queue[k];
        struct wk_reduction *r = q->first;
        q->first = r->next;
        q->last = q->first ? q->last : &q->first;
        r->ended = ps_now();
        r->done = true;
    }
}

// locked, and ready: does what comes next.
static void collective_perform(struct wk_collective *c)
{
    const struct wk_reduction *r = c->queue[0].first;
    struct ps_error e;
    c->busy = true;
    if (collective_take_arrays(c, &e) == PS_OK) {
        pthread_mutex_unlock(&c->lock);
        collective_add_up(c, r, &e);
        pthread_mutex_lock(&c->lock);
    }
    c->busy = false;
    if (e.code == PS_OK)
        collective_set_done(c);
    else if (!c->failed.code)
        c->failed = e;
    pthread_cond_broadcast(&c->changed);
}

static void *collective_thread(void *arg)
{
    struct wk_collective *c = arg;
    ps_thread_ask_short_slices();
    pthread_mutex_lock(&c->lock);
    while (!c->over) {
        if (collective_is_ready(c))
            collective_perform(c);
        else
            pthread_cond_wait(&c->work, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

// ---- begin and wait -----------------------------------------------------------------------------------------------

// locked
static void collective_put(struct wk_collective *c, uint32_t replica, struct wk_reduction *r)
{
    struct queue *q = &c->queue[replica];
    *q->last = r;
    q->last = &r->next;
}

void wk_collective_begin(struct wk_collective *c, uint32_t replica, struct wk_reduction *r)
{
    pthread_mutex_lock(&c->lock);
    collective_put(c, replica, r);
    if (collective_is_ready(c))
        pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

static enum ps_code collective_consider_stop(const struct wk_collective *c, struct ps_error *e)
{
    const int number = ps_signal_number(c->stop);
    if (e->code == PS_ABORTED && number)
        return ps_fail(e, PS_CANCELLED, "stopped by %s in an all-reduce", ps_signal_name(number));
    return e->code;
}

// locked. After a failure, too, nobody works with *r any more.
static enum ps_code collective_wait(struct wk_collective *c, const struct wk_reduction *r, struct ps_error *e)
{
    e->code = PS_OK;
    while (!r->done && (!c->failed.code || c->busy)) {
        if (collective_is_ready(c))
            collective_perform(c);
        else
            pthread_cond_wait(&c->changed, &c->lock);
    }
    if (!r->done)
        *e = c->failed;
    else if (collective_is_ready(c))
        pthread_cond_signal(&c->work);  // what this one did not wait for
    return collective_consider_stop(c, e);
}

enum ps_code wk_collective_wait(struct wk_collective *c, struct wk_reduction *r, struct ps_error *e)
{
    pthread_mutex_lock(&c->lock);
    collective_wait(c, r, e);
    pthread_mutex_unlock(&c->lock);
    return e->code;
}

bool wk_collective_is_done(struct wk_collective *c, const struct wk_reduction *r)
{
    pthread_mutex_lock(&c->lock);
    const bool done = r->done;
    pthread_mutex_unlock(&c->lock);
    return done;
}

enum ps_code wk_collective_reduce(struct wk_collective *c, uint32_t replica, struct wk_reduction *r, struct ps_error *e)
{
    pthread_mutex_lock(&c->lock);
    collective_put(c, replica, r);
    if (collective_is_ready(c) && c->replicas > 1)
        pthread_cond_broadcast(&c->changed);
    collective_wait(c, r, e);
    pthread_mutex_unlock(&c->lock);
    return e->code;
}

// ---- ends ---------------------------------------------------------------------------------------------------------

void wk_collective_fail(struct wk_collective *c, uint32_t replica, const struct ps_error *why)
{
    pthread_mutex_lock(&c->lock);
    c->over = true;
    if (!c->failed.code)
        ps_fail(&c->failed, PS_ABORTED, "%s", why->text);
    pthread_cond_broadcast(&c->changed);
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    const bool own = why->code != PS_CANCELLED && why->code != PS_ABORTED;
    if (c->peers && (replica == 0 || own))
        wk_peers_end(c->peers, why->text);
}

enum ps_code wk_collective_look(struct wk_collective *c, struct ps_error *e)
{
    pthread_mutex_lock(&c->lock);
    *e = c->failed;
    pthread_mutex_unlock(&c->lock);
    if (e->code == PS_OK && c->peers)
        wk_formation_look(wk_peers_formation(c->peers), e);
    return collective_consider_stop(c, e);
}

uint64_t wk_collective_reforms(struct wk_collective *c)
{
    pthread_mutex_lock(&c->lock);
    const uint64_t reforms = c->reforms;
    pthread_mutex_unlock(&c->lock);
    return reforms;
}

static void collective_take_ranks(struct wk_collective *c)
{
    const struct wk_formation *f = c->peers ? wk_peers_formation(c->peers) : NULL;
    c->first = f ? f->self * c->replicas : 0;
    c->ranks = (f ? f->n : 1) * c->replicas;
}

// locked, by the last replica that comes.
static void collective_meet(struct wk_collective *c, bool admits, const struct ps_error *why)
{
    while (c->busy)
        pthread_cond_wait(&c->changed, &c->lock);
    c->met = *why;
    if (!c->over && c->peers) {
        pthread_mutex_unlock(&c->lock);
        wk_peers_reform(c->peers, admits, &c->met);
        pthread_mutex_lock(&c->lock);
    }
    c->reforming = 0;
    c->reforms++;
    if (c->met.code == PS_OK) {
        collective_take_ranks(c);
        collective_clear(c);
        c->failed.code = PS_OK;
    }
    pthread_cond_broadcast(&c->changed);
}

enum ps_code wk_collective_reform(struct wk_collective *c, bool admits, struct ps_error *e)
{
    pthread_mutex_lock(&c->lock);
    const uint64_t this = c->reforms;
    if (++c->reforming == c->replicas)
        collective_meet(c, admits, e);
    while (c->reforms == this && !c->over)
        pthread_cond_wait(&c->changed, &c->lock);
    if (c->reforms != this)
        *e = c->met;
    pthread_mutex_unlock(&c->lock);
    return e->code;
}

// ---- open and close -----------------------------------------------------------------------------------------------

uint32_t wk_collective_rank(const struct wk_collective *c, uint32_t replica)
{
    return c->first + replica;
}

uint32_t wk_collective_ranks(const struct wk_collective *c)
{
    return c->ranks;
}

bool wk_collective_joined(const struct wk_collective *c)
{
    return c->peers && wk_peers_joined(c->peers);
}

bool wk_collective_leads(const struct wk_collective *c, const double *arrival)
{
    return !c->peers || wk_peers_leads(c->peers, arrival);
}

void wk_collective_ask_leader(const struct wk_collective *c, const double *arrival)
{
    if (c->peers)
        wk_peers_ask_leader(c->peers, arrival);
}

bool wk_collective_has_newcomers(const struct wk_collective *c)
{
    return c->peers && wk_peers_has_newcomers(c->peers);
}

void wk_collective_welcome(struct wk_collective *c, bool all_know)
{
    if (c->peers)
        wk_peers_welcome(c->peers, all_know);
}

uint32_t wk_collective_guests(const struct wk_collective *c)
{
    return c->peers ? wk_peers_guests(c->peers) : 0;
}

static void collective_destroy(struct wk_collective *c)
{
    free(c->queue);
    free(c->values);
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

enum ps_code wk_collective_open(const struct wk_peers_options *peers, uint32_t replicas,
                                struct wk_collective **collective, struct ps_error *e)
{
    struct wk_collective *c = ps_alloc(sizeof *c);
    *c = (struct wk_collective){.stop = peers->stop, .replicas = replicas};
    c->queue = ps_alloc(replicas * sizeof *c->queue);
    c->values = ps_alloc(replicas * sizeof *c->values);
    collective_clear(c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    pthread_cond_init(&c->work, NULL);
    const int failed = pthread_create(&c->thread, NULL, collective_thread, c);
    if (failed) {
        collective_destroy(c);
        return ps_no_thread(e, "all-reduces", failed);
    }
    if (peers->workers > 1 && wk_peers_open(peers, &c->peers, e)) {
        wk_collective_close(c, NULL);
        return e->code;
    }
    collective_take_ranks(c);
    *collective = c;
    return PS_OK;
}

void wk_collective_close(struct wk_collective *c, const char *reason)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->over = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    if (c->peers && reason)
        wk_peers_end(c->peers, reason);
    pthread_join(c->thread, NULL);
    if (c->peers)
        wk_peers_close(c->peers);
    collective_destroy(c);
}
