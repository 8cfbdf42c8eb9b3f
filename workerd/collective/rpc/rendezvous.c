// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/rpc/rendezvous.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/base/thread.h"
#include "common/base/utf8.h"
#include "common/plan/configuration.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "proto/worker.pb-c.h"
#include "workerd/collective/shm.h"

// How often a waiting worker looks whether a signal has come, and calls again where nobody listened. How much longer
// the others wait than the host. How often the host of a further meeting asks those who are missing whether they live,
// and how long they have to answer.
static const uint64_t rendezvous_look = 100 * PS_MS, rendezvous_margin = 2 * PS_SECOND,
                      rendezvous_ask_every = PS_SECOND;

// ---- init ---------------------------------------------------------------------------------------------------------

void wk_rendezvous_init(struct wk_rendezvous *v, const struct wk_peers_options *options)
{
    char own[WK_SHM_HOST] = "";
    *v = (struct wk_rendezvous){.options = options};
    if (options->shares_memory && !options->host)
        wk_shm_host(options->workers, own);
    v->own_host = ps_strdup(options->shares_memory && options->host ? options->host : own);
    v->guest = ps_alloc(options->workers * sizeof *v->guest);
    v->lost = ps_alloc(options->workers * sizeof *v->lost);
    v->left = ps_alloc(options->workers * sizeof *v->left);
    v->heard = ps_alloc(options->workers * sizeof *v->heard);
    v->newcomer = ps_alloc(options->workers * sizeof *v->newcomer);
    v->rank = ps_alloc(options->workers * sizeof *v->rank);
    v->host = ps_alloc(options->workers * sizeof *v->host);
    v->ring_at = ps_alloc(options->workers * sizeof *v->ring_at);
    for (v->n = 0; v->n < options->workers; v->n++)
        v->rank[v->n] = v->n;
    pthread_mutex_init(&v->lock, NULL);
    ps_cond_init(&v->changed);
}

void wk_rendezvous_fini(struct wk_rendezvous *v)
{
    for (uint32_t rank = 0; rank < v->options->workers; rank++) {
        free(v->guest[rank].host);
        free(v->guest[rank].ring_at);
        free(v->host[rank]);
        free(v->ring_at[rank]);
    }
    free(v->guest);
    free(v->lost);
    free(v->left);
    free(v->heard);
    free(v->newcomer);
    free(v->rank);
    free(v->host);
    free(v->ring_at);
    free(v->own_host);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
}

// ---- who comes ----------------------------------------------------------------------------------------------------

static enum ps_code rendezvous_check_job(const struct wk_rendezvous *v, const Paramserver__V1__RendezvousRequest *r,
                                         struct ps_error *e)
{
    const struct wk_peers_options *o = v->options;
    char job[64];
    ps_utf8_cut(r->job, job, sizeof job);
    if (r->protocol != PS_PROTOCOL)
        return ps_fail(e, PS_FAILED_PRECONDITION, "protocol %" PRIu32 " is not spoken here; this is %d", r->protocol,
                       PS_PROTOCOL);
    if (strcmp(r->job, o->job) != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "worker %" PRIu32 " trains job '%s', not '%s'", o->rank, o->job, job);
    if (r->workers != o->workers)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "worker %" PRIu32 " expects %" PRIu32 " workers, worker %" PRIu32 " %" PRIu32
                       ": give all the same cluster and number of devices",
                       r->rank, r->workers, o->rank, o->workers);
    if (!r->ring_at[0])
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "worker %" PRIu32 " does not say where it takes the numbers of others: it is of another version",
                       r->rank);
    if (r->rank == o->rank || r->rank >= o->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "rank %" PRIu32 " is not one of the others of %" PRIu32 " workers",
                       r->rank, o->workers);
    return ps_configuration_check(o->job, false, o->configuration, r->rank, r->configuration, e);
}

// locked. Where who comes finds the others: here, or at another worker.
static uint32_t rendezvous_place(const struct wk_rendezvous *v, uint64_t after)
{
    return after ? v->options->rank : v->session ? v->rank[0] : 0;
}

// Locked. One that has ended is as one that does not answer: who looks for the others goes on to the next.
static enum ps_code rendezvous_check_over(const struct wk_rendezvous *v, struct ps_error *e)
{
    e->code = PS_OK;
    return v->over ? ps_fail(e, PS_UNAVAILABLE, "worker %" PRIu32 " has ended", v->options->rank) : PS_OK;
}

// locked
static enum ps_code rendezvous_check_session(const struct wk_rendezvous *v, uint32_t rank, uint64_t after,
                                             struct ps_error *e)
{
    if (rendezvous_check_over(v, e))
        return e->code;
    if (v->session && after == 0 && !v->options->min_workers)
        return ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' has begun with the workers that had come", v->options->job);
    if (after && after != v->session)
        return ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' goes on without worker %" PRIu32, v->options->job, rank);
    if (v->guest[rank].call)
        return ps_fail(e, PS_ALREADY_EXISTS, "a worker %" PRIu32 " has come already: each needs a rank of its own",
                       rank);
    return PS_OK;
}

// locked. Is it of the last session?
static bool rendezvous_has_member(const struct wk_rendezvous *v, uint32_t rank)
{
    bool has = false;
    for (uint32_t k = 0; v->session && k < v->n; k++)
        has |= v->rank[k] == rank;
    return has;
}

// locked. The session that ends with it: one of its members has begun anew.
static uint64_t rendezvous_admit(struct wk_rendezvous *v, const Paramserver__V1__RendezvousRequest *r,
                                 struct ps_call *call)
{
    struct guest *guest = &v->guest[r->rank];
    const bool is_member = r->after != 0 || rendezvous_has_member(v, r->rank);
    free(guest->host);
    free(guest->ring_at);
    *guest = (struct guest){call, ps_strdup(r->host), ps_strdup(r->ring_at), v->session && !r->after, r->after};
    pthread_cond_broadcast(&v->changed);
    return is_member ? v->session : 0;
}

static void rendezvous_send_on(struct ps_call *call, uint32_t place, bool running)
{
    Paramserver__V1__RendezvousReply reply = PARAMSERVER__V1__RENDEZVOUS_REPLY__INIT;
    struct ps_slices body = PS_SLICES_EMPTY;
    reply.rank = &place;
    reply.n_rank = 1;
    reply.running = running;
    ps_msg_pack(&reply.base, NULL, &body);
    ps_call_reply(call, PS_OK, NULL, &body);
}

static void rendezvous_pack_session(const struct wk_rendezvous *v, struct ps_slices *body)
{
    uint32_t *newcomers = ps_alloc(v->n * sizeof *newcomers);
    Paramserver__V1__RendezvousReply reply = PARAMSERVER__V1__RENDEZVOUS_REPLY__INIT;
    reply.session = v->session;
    reply.rank = v->rank;
    reply.n_rank = v->n;
    reply.host = v->host;
    reply.n_host = v->n;
    reply.ring_at = v->ring_at;
    reply.n_ring_at = v->n;
    reply.running = v->running;
    reply.newcomer = newcomers;
    for (uint32_t k = 0; k < v->n; k++)
        if (v->newcomer[v->rank[k]])
            newcomers[reply.n_newcomer++] = v->rank[k];
    ps_msg_pack(&reply.base, NULL, body);
    free(newcomers);
}

// locked. Has the session begun whose members this one meets again? The answer came in the moment in which it asked
// anew, and was lost.
static bool rendezvous_has_answered(const struct wk_rendezvous *v, uint32_t rank, uint64_t after)
{
    return after && after == v->before && !v->over && rendezvous_has_member(v, rank);
}

// One that has been checked stays, or goes to another worker, or hears again what it has missed.
static uint64_t rendezvous_receive(struct wk_rendezvous *v, const Paramserver__V1__RendezvousRequest *r,
                                   struct ps_call *call, struct ps_error *e)
{
    uint64_t ended = 0;
    struct ps_slices session = PS_SLICES_EMPTY;
    pthread_mutex_lock(&v->lock);
    const uint32_t place = rendezvous_place(v, r->after);
    const bool running = v->session != 0, stays = place == v->options->rank && !r->asks;
    const bool again = rendezvous_has_answered(v, r->rank, r->after);
    if (again)
        rendezvous_pack_session(v, &session);
    else if (rendezvous_check_session(v, r->rank, r->after, e) == PS_OK && stays)
        ended = rendezvous_admit(v, r, call);
    pthread_mutex_unlock(&v->lock);
    if (again)
        ps_call_reply(call, PS_OK, NULL, &session);
    else if (e->code == PS_OK && !stays)
        rendezvous_send_on(call, place, running);
    return ended;
}

uint64_t wk_rendezvous_call(struct wk_rendezvous *v, struct ps_call *call, char *why, size_t size)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_slices none = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    uint64_t ended = 0;
    ps_msg_unpack(&paramserver__v1__rendezvous_request__descriptor, &call->request, &m, &none, &e);
    const Paramserver__V1__RendezvousRequest *r = (const Paramserver__V1__RendezvousRequest *)m;
    if (r && rendezvous_check_job(v, r, &e) == PS_OK)
        ended = rendezvous_receive(v, r, call, &e);
    if (e.code && e.code != PS_UNAVAILABLE && r && !r->asks)
        ps_warn("a worker is refused: %s", e.text);
    if (ended)
        ps_utf8_cut(r->why[0] ? r->why : "a worker has come back that was thought to be here", why, size);
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
    if (e.code)
        ps_call_reply(call, e.code, e.text, NULL);
    return ended;
}

void wk_rendezvous_cancel(struct wk_rendezvous *v, struct ps_call *call)
{
    bool waits = false;
    pthread_mutex_lock(&v->lock);
    for (uint32_t rank = 0; rank < v->options->workers && !waits; rank++) {
        waits = v->guest[rank].call == call;
        if (waits)
            v->guest[rank].call = NULL;
    }
    pthread_mutex_unlock(&v->lock);
    if (waits)
        ps_call_reply(call, PS_CANCELLED, "the worker is gone", NULL);
}

uint32_t wk_rendezvous_guests(struct wk_rendezvous *v)
{
    uint32_t n = 0;
    pthread_mutex_lock(&v->lock);
    for (uint32_t rank = 0; rank < v->options->workers; rank++)
        n += v->guest[rank].call && v->guest[rank].is_new;
    pthread_mutex_unlock(&v->lock);
    return n;
}

void wk_rendezvous_lose(struct wk_rendezvous *v, uint32_t rank)
{
    pthread_mutex_lock(&v->lock);
    if (rank < v->options->workers)
        v->lost[rank] = true;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

void wk_rendezvous_leave(struct wk_rendezvous *v, uint32_t rank, uint64_t session)
{
    pthread_mutex_lock(&v->lock);
    if (rank < v->options->workers)
        v->left[rank] = session;
    pthread_mutex_unlock(&v->lock);
}

// ---- newcomers ----------------------------------------------------------------------------------------------------

bool wk_rendezvous_has_newcomers(struct wk_rendezvous *v)
{
    bool has = false;
    pthread_mutex_lock(&v->lock);
    for (uint32_t k = 0; k < v->n; k++)
        has |= v->newcomer[v->rank[k]];
    pthread_mutex_unlock(&v->lock);
    return has;
}

void wk_rendezvous_welcome(struct wk_rendezvous *v, bool all_know)
{
    const enum wk_majority majority = all_know ? WK_OF_ALL : WK_OF_BOTH;
    pthread_mutex_lock(&v->lock);
    v->majority = majority > v->majority ? majority : v->majority;
    pthread_mutex_unlock(&v->lock);
}

// locked
static bool rendezvous_is_unwelcomed(const struct wk_rendezvous *v, uint32_t rank)
{
    return v->newcomer[rank] && v->majority == WK_OF_OTHERS_THAN_NEWCOMERS;
}

bool wk_rendezvous_is_newcomer(struct wk_rendezvous *v)
{
    pthread_mutex_lock(&v->lock);
    const bool is_newcomer = rendezvous_is_unwelcomed(v, v->options->rank);
    pthread_mutex_unlock(&v->lock);
    return is_newcomer;
}

// ---- answers ------------------------------------------------------------------------------------------------------

// locked
static struct ps_call *rendezvous_take_guest(struct wk_rendezvous *v, uint32_t rank)
{
    struct ps_call *call = v->guest[rank].call;
    v->guest[rank].call = NULL;
    return call;
}

// Where not all are refused, the members of the session stay. They have been answered: for one that has come again
// since then the session has ended already.
static void rendezvous_refuse(struct wk_rendezvous *v, bool all, enum ps_code code, const char *text)
{
    for (uint32_t rank = 0; rank < v->options->workers; rank++) {
        pthread_mutex_lock(&v->lock);
        const bool comes_again = v->guest[rank].after == v->session;
        struct ps_call *call = all || !comes_again ? rendezvous_take_guest(v, rank) : NULL;
        pthread_mutex_unlock(&v->lock);
        if (call)
            ps_call_reply(call, code, text, NULL);
    }
}

void wk_rendezvous_end(struct wk_rendezvous *v)
{
    struct ps_error e;
    pthread_mutex_lock(&v->lock);
    v->over = true;
    rendezvous_check_over(v, &e);
    pthread_mutex_unlock(&v->lock);
    rendezvous_refuse(v, true, e.code, e.text);
}

// To those who are of the session that begins.
static void rendezvous_answer(struct wk_rendezvous *v)
{
    for (uint32_t k = 0; k < v->n; k++) {
        struct ps_slices body = PS_SLICES_EMPTY;
        pthread_mutex_lock(&v->lock);
        struct ps_call *call = rendezvous_take_guest(v, v->rank[k]);
        pthread_mutex_unlock(&v->lock);
        if (!call)
            continue;
        rendezvous_pack_session(v, &body);
        ps_call_reply(call, PS_OK, NULL, &body);
    }
}

// ---- who waits ----------------------------------------------------------------------------------------------------

static enum ps_code rendezvous_stopped(const struct wk_rendezvous *v, struct ps_error *e)
{
    const int number = ps_signal_number(v->options->stop);
    return number ? ps_fail(e, PS_CANCELLED, "stopped by %s while the workers were awaited", ps_signal_name(number))
                  : PS_OK;
}

// Waits, locked, until something changes, or a moment.
static void rendezvous_pause(struct wk_rendezvous *v)
{
    ps_cond_wait_until(&v->changed, &v->lock, ps_now() + rendezvous_look);
}

// locked. Is this member of the last session still to come?
static bool rendezvous_misses(const struct wk_rendezvous *v, uint32_t member)
{
    const uint32_t rank = v->rank[member];
    return rank != v->options->rank && !v->guest[rank].call && !(v->session && v->lost[rank]);
}

static uint32_t rendezvous_missing(const struct wk_rendezvous *v)
{
    uint32_t missing = 0;
    for (uint32_t k = 0; k < v->n; k++)
        missing += rendezvous_misses(v, k);
    return missing;
}

// "worker 2", "workers 2, 3 and 7": those that have not come.
static void rendezvous_name_missing(const struct wk_rendezvous *v, char *text, size_t size)
{
    const uint32_t missing = rendezvous_missing(v);
    uint32_t named = 0;
    size_t used = (size_t)snprintf(text, size, missing == 1 ? "worker" : "workers");
    for (uint32_t k = 0; k < v->n && used + 32 < size; k++) {
        if (!rendezvous_misses(v, k))
            continue;
        const char *before = named == 0 ? " " : named + 1 == missing ? " and " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu32, before, v->rank[k]);
        named++;
    }
    if (named < missing)
        snprintf(text + used, size - used, " and %" PRIu32 " more", missing - named);
}

static void rendezvous_say_who_is_missing(const struct wk_rendezvous *v)
{
    char missing[160];
    rendezvous_name_missing(v, missing, sizeof missing);
    ps_info("waiting for %s of %" PRIu32 " to come", missing, v->n);
}

// ---- who lives ----------------------------------------------------------------------------------------------------

// A question whether somebody lives.
struct question {
    struct wk_rendezvous *rendezvous;
    uint32_t rank;
};

static void rendezvous_on_sign_of_life(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct question *q = arg;
    struct wk_rendezvous *v = q->rendezvous;
    (void)text;
    (void)reply;
    if (code == PS_UNAVAILABLE || code == PS_DEADLINE_EXCEEDED)
        wk_rendezvous_lose(v, q->rank);
    pthread_mutex_lock(&v->lock);
    v->heard[q->rank] = ps_now();
    if (code == PS_OK)
        v->busy = v->heard[q->rank];
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
    free(q);
}

// Locked. session: the one that has ended, as the other one is told, too; 0: it is told nothing.
static void rendezvous_ask_whether_lives(struct wk_rendezvous *v, uint32_t rank, uint64_t session)
{
    Paramserver__V1__AbortRequest r = PARAMSERVER__V1__ABORT_REQUEST__INIT;
    struct ps_slices request = PS_SLICES_EMPTY;
    r.session = session;
    r.rank = v->options->rank;
    r.text = (char *)(v->why ? v->why : "");
    r.lost = v->options->rank + 1;  // nobody else: this worker has left the session
    struct question *q = ps_alloc(sizeof *q);
    *q = (struct question){v, rank};
    ps_msg_pack(&r.base, NULL, &request);
    ps_client_call(v->client, rank, PARAMSERVER__V1__METHOD__ABORT,
                   &(struct ps_call_options){.deadline = ps_now() + 3 * rendezvous_ask_every}, &request,
                   rendezvous_on_sign_of_life, q);
}

// Asks it, and waits for the answer.
static bool rendezvous_lives(struct wk_rendezvous *v, uint32_t rank, uint64_t session)
{
    pthread_mutex_lock(&v->lock);
    v->heard[rank] = 0;
    rendezvous_ask_whether_lives(v, rank, session);
    while (v->heard[rank] == 0)
        rendezvous_pause(v);
    const bool lives = !v->lost[rank];
    pthread_mutex_unlock(&v->lock);
    return lives;
}

// ---- the host -----------------------------------------------------------------------------------------------------

// locked
static void rendezvous_ask_missing(struct wk_rendezvous *v)
{
    for (uint32_t k = 0; k < v->n; k++)
        if (rendezvous_misses(v, k))
            rendezvous_ask_whether_lives(v, v->rank[k], v->session);
}

// Locked. Until all who are to come have come, or time is up.
static enum ps_code rendezvous_wait_for_guests(struct wk_rendezvous *v, struct ps_error *e)
{
    const uint64_t began = ps_now();
    uint64_t ask = began, say = began + PS_SECOND;
    v->busy = began;
    while (rendezvous_missing(v) && rendezvous_stopped(v, e) == PS_OK && ps_now() < v->busy + v->options->timeout) {
        if (v->session && ps_now() >= ask) {
            rendezvous_ask_missing(v);
            ask = ps_now() + rendezvous_ask_every;
        }
        if (ps_now() > say) {
            rendezvous_say_who_is_missing(v);
            say = ps_now() + v->options->timeout;
        }
        rendezvous_pause(v);
    }
    return e->code;
}

// Members of the last session, and those of them who have come.
struct tally {
    uint32_t members, come;
    bool has_lowest;
};

// locked. newcomers: these are counted, too.
static struct tally rendezvous_count(const struct wk_rendezvous *v, bool newcomers)
{
    struct tally t = {0};
    for (uint32_t k = 0; k < v->n; k++) {
        const uint32_t rank = v->rank[k];
        const bool come = rank == v->options->rank || (v->guest[rank].call && !v->guest[rank].is_new);
        if (v->newcomer[rank] && !newcomers)
            continue;
        t.has_lowest |= t.members++ == 0 && come;
        t.come += come;
    }
    return t;
}

static enum ps_code rendezvous_check_majority(const struct tally *t, struct ps_error *e)
{
    if (2 * t->come > t->members || (2 * t->come == t->members && t->has_lowest))
        return PS_OK;
    return ps_fail(e, PS_ABORTED,
                   "%" PRIu32 " of %" PRIu32 " workers are left, and the others may go on: expected more than half",
                   t->come, t->members);
}

// locked. Are those who have come enough?
static enum ps_code rendezvous_check_guests(struct wk_rendezvous *v, struct ps_error *e)
{
    const uint32_t least = v->options->min_workers ? v->options->min_workers : v->n;
    const struct tally all = rendezvous_count(v, true), others = rendezvous_count(v, false);
    char missing[160];
    rendezvous_name_missing(v, missing, sizeof missing);
    if (v->session == 0)
        return all.come == v->n
                   ? PS_OK
                   : ps_fail(e, PS_DEADLINE_EXCEEDED, "%s of %" PRIu32 " did not come within %" PRIu64 " s", missing,
                             v->n, v->options->timeout / PS_SECOND);
    if (v->majority != WK_OF_OTHERS_THAN_NEWCOMERS)
        rendezvous_check_majority(&all, e);
    if (e->code == PS_OK && v->majority != WK_OF_ALL)
        rendezvous_check_majority(&others, e);
    v->leads_rest = all.come < least && e->code == PS_OK;
    if (all.come < least)
        return ps_fail(e, PS_ABORTED, "%" PRIu32 " worker%s left, of at least %" PRIu32, all.come,
                       all.come == 1 ? " is" : "s are", least);
    return e->code;
}

// locked. Of member k.
static void rendezvous_set_place(struct wk_rendezvous *v, uint32_t k, const char *host, const char *ring_at)
{
    free(v->host[k]);
    free(v->ring_at[k]);
    v->host[k] = ps_strdup(host);
    v->ring_at[k] = ps_strdup(ring_at);
}

// locked
static void rendezvous_take_members(struct wk_rendezvous *v, bool admits)
{
    for (uint32_t rank = 0; rank < v->options->workers; rank++)
        v->newcomer[rank] = rendezvous_is_unwelcomed(v, rank) || v->guest[rank].is_new;
    v->majority = WK_OF_OTHERS_THAN_NEWCOMERS;
    v->n = 0;
    v->admits = false;
    for (uint32_t rank = 0; rank < v->options->workers; rank++) {
        const struct guest *guest = &v->guest[rank];
        const bool self = rank == v->options->rank;
        if (!self && !(guest->call && (admits || !guest->is_new)))
            continue;
        v->admits |= !self && guest->is_new;
        rendezvous_set_place(v, v->n, self ? v->own_host : guest->host, self ? v->options->ring_at : guest->ring_at);
        v->rank[v->n++] = rank;
    }
    memset(v->lost, 0, v->options->workers * sizeof *v->lost);
    v->running = v->session != 0;
    v->joined = false;
    v->before = v->session;
    do
        v->session = ps_random();
    while (v->session == 0);
}

static enum ps_code rendezvous_host(struct wk_rendezvous *v, bool admits, struct ps_error *e)
{
    pthread_mutex_lock(&v->lock);
    if (rendezvous_wait_for_guests(v, e) == PS_OK && rendezvous_check_guests(v, e) == PS_OK)
        rendezvous_take_members(v, admits);
    pthread_mutex_unlock(&v->lock);
    if (e->code == PS_OK)
        rendezvous_answer(v);
    else  // a deadline is not the guests' own
        rendezvous_refuse(v, true, e->code == PS_DEADLINE_EXCEEDED ? PS_ABORTED : e->code, e->text);
    return e->code;
}

// ---- the others ---------------------------------------------------------------------------------------------------

// This worker and others, ascending, each with its host and where that takes connections.
static bool rendezvous_is_session(const struct wk_rendezvous *v, const Paramserver__V1__RendezvousReply *r)
{
    bool is_of_it = false, is_well = r->n_host == r->n_rank && r->n_ring_at == r->n_rank;
    for (size_t k = 0; k < r->n_rank; k++) {
        is_of_it |= r->rank[k] == v->options->rank;
        is_well &= r->rank[k] < v->options->workers && (k == 0 || r->rank[k - 1] < r->rank[k]);
    }
    for (size_t k = 0; k < r->n_newcomer; k++)
        is_well &= r->newcomer[k] < v->options->workers;
    return is_of_it && is_well;
}

// locked
static void rendezvous_take_session(struct wk_rendezvous *v, const Paramserver__V1__RendezvousReply *r)
{
    if (!rendezvous_is_session(v, r)) {
        ps_fail(&v->said, PS_INVALID_ARGUMENT,
                "the host answers with a session of %zu workers, which is not this one's", r->n_rank);
        return;
    }
    v->running = r->running;
    v->joined = r->running && v->session == 0;
    v->admits = false;
    for (size_t k = 0; v->session && k < r->n_rank; k++)
        v->admits |= !rendezvous_has_member(v, r->rank[k]);
    v->session = r->session;
    v->n = (uint32_t)r->n_rank;
    memset(v->lost, 0, v->options->workers * sizeof *v->lost);
    memset(v->newcomer, 0, v->options->workers * sizeof *v->newcomer);
    v->majority = WK_OF_OTHERS_THAN_NEWCOMERS;
    for (uint32_t k = 0; k < v->n; k++) {
        rendezvous_set_place(v, k, r->host[k], r->ring_at[k]);
        v->rank[k] = r->rank[k];
    }
    for (size_t k = 0; k < r->n_newcomer; k++)
        v->newcomer[r->newcomer[k]] = true;
}

// locked
static void rendezvous_take_reply(struct wk_rendezvous *v, const Paramserver__V1__RendezvousReply *r)
{
    if (r->session)
        rendezvous_take_session(v, r);
    else if (r->n_rank != 1 || r->rank[0] >= v->options->workers)
        ps_fail(&v->said, PS_INVALID_ARGUMENT, "the host answers with no session, and not where there is one");
    else
        v->sent_to = r->rank[0];
}

static void rendezvous_on_reply(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct wk_rendezvous *v = arg;
    struct ps_error said = {.code = PS_OK};
    struct ps_slices none = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    if (code)
        ps_fail(&said, code, "%s", text);
    else
        ps_msg_unpack(&paramserver__v1__rendezvous_reply__descriptor, reply, &m, &none, &said);
    pthread_mutex_lock(&v->lock);
    // Where the time is over, why the calls before have failed says more than that the last one has.
    if (said.code == PS_DEADLINE_EXCEEDED && v->said.code == PS_UNAVAILABLE)
        strcpy(said.text, v->said.text);
    v->answered = true;
    v->said = said;
    v->sent_to = UINT32_MAX;
    if (m)
        rendezvous_take_reply(v, (const Paramserver__V1__RendezvousReply *)m);
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
}

static Paramserver__V1__RendezvousRequest rendezvous_request(const struct wk_rendezvous *v)
{
    const struct wk_peers_options *o = v->options;
    Paramserver__V1__RendezvousRequest r = PARAMSERVER__V1__RENDEZVOUS_REQUEST__INIT;
    r.protocol = PS_PROTOCOL;
    r.job = (char *)o->job;
    r.rank = o->rank;
    r.workers = o->workers;
    r.configuration = (char *)o->configuration;
    r.host = v->own_host;
    r.ring_at = (char *)o->ring_at;
    r.after = v->session;
    r.why = (char *)(v->why ? v->why : "");
    return r;
}

// locked
static void rendezvous_ask(struct wk_rendezvous *v, uint32_t host, uint64_t deadline)
{
    const Paramserver__V1__RendezvousRequest r = rendezvous_request(v);
    struct ps_slices request = PS_SLICES_EMPTY;
    ps_msg_pack(&r.base, NULL, &request);
    v->answered = false;
    if (v->asked != host)
        v->said.code = PS_OK;  // what another one has said
    v->asked = host;
    ps_client_call(v->client, host, PARAMSERVER__V1__METHOD__RENDEZVOUS,
                   &(struct ps_call_options){.deadline = deadline}, &request, rendezvous_on_reply, v);
}

static enum ps_code rendezvous_say_why(const struct wk_rendezvous *v, uint32_t host, struct ps_error *e)
{
    if (v->said.code == PS_UNAVAILABLE || v->said.code == PS_DEADLINE_EXCEEDED)
        return ps_fail(e, v->said.code,
                       "worker %" PRIu32 " (%s), where the workers meet, did not answer within %" PRIu64 " s: %s", host,
                       v->options->addresses[host], v->options->timeout / PS_SECOND, v->said.text);
    // Not a worker's words.
    if (v->said.code == PS_UNIMPLEMENTED || v->said.code == PS_INTERNAL || v->said.code == PS_RESOURCE_EXHAUSTED)
        return ps_fail(e, v->said.code, "worker %" PRIu32 " (%s), where the workers meet, answers: %s", host,
                       v->options->addresses[host], v->said.text);
    return ps_fail(e, v->said.code, "%s", v->said.text);
}

// Calls one worker once. PS_OK: it begins a session, or says where to go (v->sent_to).
static enum ps_code rendezvous_ask_host(struct wk_rendezvous *v, uint32_t host, uint64_t deadline, struct ps_error *e)
{
    e->code = PS_OK;
    pthread_mutex_lock(&v->lock);
    rendezvous_ask(v, host, deadline);
    while (rendezvous_stopped(v, e) == PS_OK && !v->answered)
        rendezvous_pause(v);
    if (e->code == PS_OK && v->said.code)
        rendezvous_say_why(v, host, e);
    pthread_mutex_unlock(&v->lock);
    return e->code;
}

// ---- where a session is -------------------------------------------------------------------------------------------

// Questions to all others at once.
struct search {
    struct wk_rendezvous *rendezvous;
    uint32_t open, found;  // answers to come; where a session is, UINT32_MAX: nobody knows of one
};

static void rendezvous_on_place(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct search *search = arg;
    struct wk_rendezvous *v = search->rendezvous;
    struct ps_error e = {.code = PS_OK};
    struct ps_slices none = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    (void)text;
    if (code == PS_OK)
        ps_msg_unpack(&paramserver__v1__rendezvous_reply__descriptor, reply, &m, &none, &e);
    const Paramserver__V1__RendezvousReply *r = (const Paramserver__V1__RendezvousReply *)m;
    pthread_mutex_lock(&v->lock);
    if (r && r->running && r->n_rank == 1 && r->rank[0] < v->options->workers)
        search->found = r->rank[0];
    search->open--;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
}

// The lowest worker of a session that goes on, as the others say; UINT32_MAX: nobody says so.
static uint32_t rendezvous_search(struct wk_rendezvous *v)
{
    struct search search = {v, v->options->workers - 1, UINT32_MAX};
    Paramserver__V1__RendezvousRequest r = rendezvous_request(v);
    r.asks = true;
    for (uint32_t rank = 0; rank < v->options->workers; rank++) {
        struct ps_slices request = PS_SLICES_EMPTY;
        if (rank == v->options->rank)
            continue;
        ps_msg_pack(&r.base, NULL, &request);
        ps_client_call(v->client, rank, PARAMSERVER__V1__METHOD__RENDEZVOUS,
                       &(struct ps_call_options){.deadline = ps_now() + rendezvous_margin}, &request,
                       rendezvous_on_place, &search);
    }
    pthread_mutex_lock(&v->lock);
    while (search.open > 0)
        rendezvous_pause(v);
    pthread_mutex_unlock(&v->lock);
    return search.found;
}

// ---- meet ---------------------------------------------------------------------------------------------------------

// Until when; who hosts gives up somewhat earlier, and then says who is missing.
static uint64_t rendezvous_deadline(const struct wk_rendezvous *v)
{
    return ps_now() + v->options->timeout + rendezvous_margin;
}

// The lowest of the last session that is left.
static uint32_t rendezvous_find_host(struct wk_rendezvous *v)
{
    uint32_t k = 0;
    pthread_mutex_lock(&v->lock);
    while (v->rank[k] != v->options->rank && v->lost[v->rank[k]])
        k++;
    const uint32_t rank = v->rank[k];
    pthread_mutex_unlock(&v->lock);
    return rank;
}

static enum ps_code rendezvous_meet_again(struct wk_rendezvous *v, bool admits, struct ps_error *e)
{
    for (;;) {
        const uint32_t host = rendezvous_find_host(v);
        e->code = PS_OK;
        if (host == v->options->rank)
            return rendezvous_host(v, admits, e);
        rendezvous_ask_host(v, host, rendezvous_deadline(v), e);
        if (e->code != PS_UNAVAILABLE && e->code != PS_DEADLINE_EXCEEDED)
            return e->code;
        // One that lives may be busy still, or wait for another that is.
        if (e->code == PS_UNAVAILABLE || !rendezvous_lives(v, host, v->session))
            wk_rendezvous_lose(v, host);
    }
}

// Time is up. Where the others go on, who is to let this worker in may come to that later, after a long evaluation or
// long steps: it is awaited anew for as long.
static uint32_t rendezvous_await_anew(struct wk_rendezvous *v, uint64_t *deadline, struct ps_error *e)
{
    const uint32_t host = rendezvous_search(v);
    if (host == UINT32_MAX || host == v->options->rank)
        return UINT32_MAX;
    ps_info("the others go on, and have not let this worker in yet: it waits");
    *deadline = rendezvous_deadline(v);
    e->code = PS_OK;
    return host;
}

// One attempt at a worker. Whom to try next, UINT32_MAX: nobody knows; *e is only set where there is no next.
static uint32_t rendezvous_try(struct wk_rendezvous *v, uint32_t host, uint64_t *deadline, struct ps_error *e)
{
    const enum ps_code code = rendezvous_ask_host(v, host, *deadline, e);
    if (code == PS_DEADLINE_EXCEEDED)
        return rendezvous_await_anew(v, deadline, e);
    if (code == PS_UNAVAILABLE && ps_now() < *deadline) {
        e->code = PS_OK;
        return rendezvous_search(v);
    }
    return v->sent_to;
}

// At worker 0, which may come later than this one; or where a session goes on. A session whose lowest member this
// worker has been has not noticed yet that it is gone.
static enum ps_code rendezvous_meet_first(struct wk_rendezvous *v, struct ps_error *e)
{
    const uint32_t self = v->options->rank;
    uint64_t deadline = rendezvous_deadline(v);
    uint32_t host = self == 0 ? rendezvous_search(v) : 0;
    while (v->session == 0 && e->code == PS_OK && rendezvous_stopped(v, e) == PS_OK) {
        if (host == UINT32_MAX && self == 0)
            return rendezvous_host(v, false, e);
        host = host == UINT32_MAX ? 0 : host;
        host = host == self ? rendezvous_search(v) : rendezvous_try(v, host, &deadline, e);
        if (v->session == 0 && e->code == PS_OK && ps_now() >= deadline)
            ps_fail(e, PS_DEADLINE_EXCEEDED, "the workers, who have begun, did not let worker %" PRIu32 " in", self);
        pthread_mutex_lock(&v->lock);
        if (v->session == 0 && e->code == PS_OK)
            rendezvous_pause(v);
        pthread_mutex_unlock(&v->lock);
    }
    return e->code;
}

// Locked. UINT32_MAX: all are lost.
static uint32_t rendezvous_find_leader(const struct wk_rendezvous *v, const double *arrival)
{
    uint32_t leader = v->n;
    for (uint32_t k = 0; k < v->n; k++)
        if (!v->lost[v->rank[k]] && (leader == v->n || (arrival && arrival[v->rank[k]] < arrival[v->rank[leader]])))
            leader = k;
    return leader < v->n ? v->rank[leader] : UINT32_MAX;
}

bool wk_rendezvous_leads(struct wk_rendezvous *v, const double *arrival)
{
    pthread_mutex_lock(&v->lock);
    const bool leads = rendezvous_find_leader(v, arrival) == v->options->rank;
    pthread_mutex_unlock(&v->lock);
    return leads;
}

// attempt_ms: what an attempt to connect may take; 0: as usual.
static enum ps_code rendezvous_create_client(struct wk_rendezvous *v, int attempt_ms, struct ps_error *e)
{
    const struct ps_client_options options = {
        .attempt_ms = attempt_ms, .tls = v->options->tls, .munge = v->options->munge, .to = PS_ROLE_WORKER};
    v->client = ps_client_create(v->options->addresses, v->options->workers, &options);
    e->code = PS_OK;
    return v->client ? PS_OK : ps_no_thread(e, "connections", errno);
}

static void rendezvous_destroy_client(struct wk_rendezvous *v)
{
    if (!v->client)
        return;
    ps_client_stop(v->client);
    ps_client_destroy(v->client);
    v->client = NULL;
}

// Another one that leads, and of which it is not known that it lives, or has ended by itself; else UINT32_MAX.
static uint32_t rendezvous_find_silent_leader(struct wk_rendezvous *v, const double *arrival)
{
    pthread_mutex_lock(&v->lock);
    const uint32_t leader = rendezvous_find_leader(v, arrival);
    const bool asks = leader != UINT32_MAX && leader != v->options->rank && v->left[leader] != v->session;
    pthread_mutex_unlock(&v->lock);
    return asks ? leader : UINT32_MAX;
}

void wk_rendezvous_ask_leader(struct wk_rendezvous *v, const double *arrival)
{
    struct ps_error e;
    uint32_t leader;
    if (rendezvous_create_client(v, 3 * PS_CLIENT_ATTEMPT_MS, &e)) {  // one that ends may be busy with that
        ps_warn("%s; whether the worker that leads lives is not asked", e.text);
        return;
    }
    do
        leader = rendezvous_find_silent_leader(v, arrival);
    while (leader != UINT32_MAX && !rendezvous_lives(v, leader, 0));
    rendezvous_destroy_client(v);
}

enum ps_code wk_rendezvous_meet(struct wk_rendezvous *v, bool admits, const char *why, struct ps_error *e)
{
    v->why = why;
    v->leads_rest = v->stopped = false;
    rendezvous_create_client(v, 0, e);
    if (e->code == PS_OK && v->session == 0)
        rendezvous_meet_first(v, e);
    else if (e->code == PS_OK)
        rendezvous_meet_again(v, admits, e);
    if (v->rank[0] != v->options->rank)
        rendezvous_refuse(v, e->code != PS_OK, PS_UNAVAILABLE, "the workers meet elsewhere");
    rendezvous_destroy_client(v);
    v->why = NULL;
    v->stopped = e->code == PS_CANCELLED;
    return e->code;
}
