// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/rpc/rendezvous.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "common/plan/configuration.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "proto/worker.pb-c.h"
#include "workerd/collective/shm.h"

// How often a waiting worker looks whether a signal has come, and calls again where nobody listened. How much longer
// the others wait than worker 0.
static const uint64_t rendezvous_look = 100 * PS_MS, rendezvous_margin = 2 * PS_SECOND;

void wk_rendezvous_init(struct wk_rendezvous *v, const struct wk_peers_options *options)
{
    pthread_condattr_t attributes;
    *v = (struct wk_rendezvous){.options = options};
    char own[WK_SHM_HOST] = "";
    if (options->shares_memory && !options->host)
        wk_shm_host(options->workers, own);
    v->guest = ps_alloc(options->workers * sizeof *v->guest);
    v->host = ps_alloc(options->workers * sizeof *v->host);
    v->host[options->rank] = ps_strdup(options->shares_memory && options->host ? options->host : own);
    while (options->rank == 0 && v->session == 0)
        v->session = ps_random();
    pthread_mutex_init(&v->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&v->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

void wk_rendezvous_fini(struct wk_rendezvous *v)
{
    for (uint32_t rank = 0; rank < v->options->workers; rank++)
        free(v->host[rank]);
    free(v->host);
    free(v->guest);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
}

// ---- at worker 0 --------------------------------------------------------------------------------------------------

static enum ps_code rendezvous_check(const struct wk_rendezvous *v, const Paramserver__V1__RendezvousRequest *r,
                                     struct ps_error *e)
{
    const struct wk_peers_options *o = v->options;
    char job[64];
    ps_utf8_cut(r->job, job, sizeof job);
    if (r->protocol != PS_PROTOCOL)
        return ps_fail(e, PS_FAILED_PRECONDITION, "protocol %" PRIu32 " is not spoken here; this is %d", r->protocol,
                       PS_PROTOCOL);
    if (strcmp(r->job, o->job) != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "worker 0 trains job '%s', not '%s'", o->job, job);
    if (r->workers != o->workers)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "worker %" PRIu32 " expects %" PRIu32 " workers, worker 0 %" PRIu32
                       ": give all the same cluster and number of devices",
                       r->rank, r->workers, o->workers);
    if (r->rank == 0 || r->rank >= o->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "rank %" PRIu32 " is not one of 1 to %" PRIu32, r->rank, o->workers - 1);
    return ps_configuration_check(o->job, o->configuration, r->rank, r->configuration, e);
}

// Lets one in that has been checked.
static enum ps_code rendezvous_admit(struct wk_rendezvous *v, const Paramserver__V1__RendezvousRequest *r,
                                     struct ps_call *call, struct ps_error *e)
{
    const uint32_t rank = r->rank;
    if (v->guest[rank])
        return ps_fail(e, PS_ALREADY_EXISTS, "a worker %" PRIu32 " has come already: each needs a rank of its own",
                       rank);
    v->guest[rank] = call;
    free(v->host[rank]);
    v->host[rank] = ps_strdup(r->host);
    v->come++;
    pthread_cond_broadcast(&v->changed);
    return PS_OK;
}

void wk_rendezvous_call(struct wk_rendezvous *v, struct ps_call *call)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_slices none = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    ps_msg_unpack(&paramserver__v1__rendezvous_request__descriptor, &call->request, &m, &none, &e);
    const Paramserver__V1__RendezvousRequest *r = (const Paramserver__V1__RendezvousRequest *)m;
    pthread_mutex_lock(&v->lock);
    if (v->options->rank != 0)
        ps_fail(&e, PS_FAILED_PRECONDITION, "workers meet at worker 0, this is worker %" PRIu32, v->options->rank);
    else if (v->over)  // what it would be compared with is gone
        ps_fail(&e, PS_FAILED_PRECONDITION, "job '%s' has begun, or ended, with the workers that had come",
                v->options->job);
    if (e.code == PS_OK && rendezvous_check(v, r, &e) == PS_OK)
        rendezvous_admit(v, r, call, &e);
    pthread_mutex_unlock(&v->lock);
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
    if (e.code)
        ps_call_reply(call, e.code, e.text, NULL);
}

void wk_rendezvous_cancel(struct wk_rendezvous *v, struct ps_call *call)
{
    bool waits = false;
    pthread_mutex_lock(&v->lock);
    for (uint32_t rank = 0; rank < v->options->workers && !v->over && !waits; rank++) {
        waits = v->guest[rank] == call;
        if (waits)
            v->guest[rank] = NULL;
    }
    v->come -= waits;
    pthread_mutex_unlock(&v->lock);
    if (waits)
        ps_call_reply(call, PS_CANCELLED, "the worker is gone", NULL);
}

void wk_rendezvous_end(struct wk_rendezvous *v, const struct ps_error *why)
{
    Paramserver__V1__RendezvousReply reply = PARAMSERVER__V1__RENDEZVOUS_REPLY__INIT;
    reply.session = v->session;
    reply.host = v->host;
    reply.n_host = v->options->workers;
    pthread_mutex_lock(&v->lock);
    v->over = true;
    pthread_mutex_unlock(&v->lock);
    for (uint32_t rank = 1; rank < v->options->workers; rank++) {
        struct ps_slices body = PS_SLICES_EMPTY;
        if (!v->guest[rank])
            continue;
        if (why->code == PS_OK)
            ps_msg_pack(&reply.base, NULL, &body);
        // A deadline that is not the guest's own.
        ps_call_reply(v->guest[rank], why->code == PS_DEADLINE_EXCEEDED ? PS_ABORTED : why->code, why->text, &body);
    }
}

// ---- who waits ----------------------------------------------------------------------------------------------------

// "worker 2", "workers 2, 3 and 7": those that have not come.
static void rendezvous_name_missing(const struct wk_rendezvous *v, char *text, size_t size)
{
    const uint32_t missing = v->options->workers - 1 - v->come;
    uint32_t named = 0;
    size_t used = (size_t)snprintf(text, size, missing == 1 ? "worker" : "workers");
    for (uint32_t rank = 1; rank < v->options->workers && used + 32 < size; rank++) {
        if (v->guest[rank])
            continue;
        const char *before = named == 0 ? " " : named + 1 == missing ? " and " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu32, before, rank);
        named++;
    }
    if (named < missing)
        snprintf(text + used, size - used, " and %" PRIu32 " more", missing - named);
}

static void rendezvous_say_who_is_missing(const struct wk_rendezvous *v)
{
    char missing[160];
    rendezvous_name_missing(v, missing, sizeof missing);
    ps_info("waiting for %s of %" PRIu32 " to come", missing, v->options->workers);
}

static enum ps_code rendezvous_stopped(const struct wk_rendezvous *v, struct ps_error *e)
{
    return *v->options->stop
               ? ps_fail(e, PS_CANCELLED, "stopped by signal %d while the workers were awaited", (int)*v->options->stop)
               : PS_OK;
}

// Waits, locked, until something changes, or a moment.
static void rendezvous_pause(struct wk_rendezvous *v)
{
    const uint64_t until = ps_now() + rendezvous_look;
    const struct timespec at = {(time_t)(until / PS_SECOND), (long)(until % PS_SECOND)};
    pthread_cond_timedwait(&v->changed, &v->lock, &at);
}

static enum ps_code rendezvous_host(struct wk_rendezvous *v, struct ps_error *e)
{
    const uint64_t began = ps_now(), deadline = began + v->options->timeout;
    bool notified = false;
    char missing[160];
    pthread_mutex_lock(&v->lock);
    while (v->come < v->options->workers - 1 && rendezvous_stopped(v, e) == PS_OK && ps_now() < deadline) {
        if (!notified && ps_now() > began + PS_SECOND)
            rendezvous_say_who_is_missing(v);
        notified |= ps_now() > began + PS_SECOND;
        rendezvous_pause(v);
    }
    rendezvous_name_missing(v, missing, sizeof missing);
    if (e->code == PS_OK && v->come < v->options->workers - 1)
        ps_fail(e, PS_DEADLINE_EXCEEDED, "%s of %" PRIu32 " did not come within %" PRIu64 " s", missing,
                v->options->workers, v->options->timeout / PS_SECOND);
    pthread_mutex_unlock(&v->lock);
    return e->code;
}

// locked
static void rendezvous_take_reply(struct wk_rendezvous *v, const Paramserver__V1__RendezvousReply *r)
{
    v->session = r->session;
    if (r->session == 0 || r->n_host != v->options->workers)
        ps_fail(&v->said, PS_INVALID_ARGUMENT, "worker 0 answers with a session of %zu workers, not %" PRIu32,
                r->n_host, v->options->workers);
    for (uint32_t rank = 0; rank < v->options->workers && !v->said.code; rank++) {
        free(v->host[rank]);
        v->host[rank] = ps_strdup(r->host[rank]);
    }
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
    v->answered = true;
    v->said = said;
    if (m)
        rendezvous_take_reply(v, (const Paramserver__V1__RendezvousReply *)m);
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
}

static void rendezvous_ask(struct wk_rendezvous *v, struct ps_client *client, uint64_t deadline)
{
    const struct wk_peers_options *o = v->options;
    Paramserver__V1__RendezvousRequest r = PARAMSERVER__V1__RENDEZVOUS_REQUEST__INIT;
    struct ps_slices request = PS_SLICES_EMPTY;
    r.protocol = PS_PROTOCOL;
    r.job = (char *)o->job;
    r.rank = o->rank;
    r.workers = o->workers;
    r.configuration = (char *)o->configuration;
    r.host = v->host[o->rank];
    ps_msg_pack(&r.base, NULL, &request);
    v->answered = false;
    ps_client_call(client, 0, PARAMSERVER__V1__METHOD__RENDEZVOUS, false, deadline, &request, rendezvous_on_reply, v);
}

static enum ps_code rendezvous_say_why(const struct wk_rendezvous *v, struct ps_error *e)
{
    const char *at = v->options->addresses[0];
    if (v->said.code == PS_UNAVAILABLE || v->said.code == PS_DEADLINE_EXCEEDED)
        return ps_fail(e, v->said.code,
                       "worker 0 (%s), where the workers meet, did not answer within %" PRIu64 " s: %s", at,
                       v->options->timeout / PS_SECOND, v->said.text);
    return ps_fail(e, v->said.code, "%s", v->said.text);
}

static enum ps_code rendezvous_call_host(struct wk_rendezvous *v, struct ps_client *client, struct ps_error *e)
{
    // Somewhat later than worker 0 gives up, which then says who is missing.
    const uint64_t deadline = ps_now() + v->options->timeout + rendezvous_margin;
    pthread_mutex_lock(&v->lock);
    rendezvous_ask(v, client, deadline);
    while (rendezvous_stopped(v, e) == PS_OK && !(v->answered && v->said.code != PS_UNAVAILABLE)) {
        rendezvous_pause(v);
        if (v->answered && v->said.code == PS_UNAVAILABLE && ps_now() >= deadline)
            break;
        if (v->answered && v->said.code == PS_UNAVAILABLE)
            rendezvous_ask(v, client, deadline);
    }
    if (e->code == PS_OK && v->said.code)
        rendezvous_say_why(v, e);
    pthread_mutex_unlock(&v->lock);
    return e->code;
}

enum ps_code wk_rendezvous_wait(struct wk_rendezvous *v, struct ps_client *client, struct ps_error *e)
{
    e->code = PS_OK;
    return v->options->rank == 0 ? rendezvous_host(v, e) : rendezvous_call_host(v, client, e);
}
