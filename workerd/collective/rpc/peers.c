// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/rpc/peers.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "proto/worker.pb-c.h"
#include "workerd/collective/rpc/rendezvous.h"

enum { REASON_MAX = 320 };  // bytes of why a worker ends

static const uint64_t abort_timeout = PS_SECOND, close_grace = 2 * PS_SECOND;

struct wk_peers {
    struct wk_peers_options options;
    struct ps_server *server;
    struct ps_client *client;   // for chunks
    struct ps_client *control;  // for what must not wait behind them; its connections are its own
    struct wk_ring *ring;
    struct wk_rendezvous rendezvous;
    uint32_t next;  // on the ring: the first worker of another host, or of this one
    uint32_t hosts;
    uint32_t first;            // worker of this host,
    uint32_t member, members;  // of which this is which one of how many
    struct wk_shm *shm;
    struct ps_call *watcher;   // the worker before this one; NULL: it has not called, or is gone
    uint64_t watcher_session;  // as it says; looked at where it comes before this worker's own
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t session;              // 0: not known yet
    struct wk_ring_message *held;  // chunks that came before it was
    uint32_t aborts;               // under way
    bool notified;                 // the others know, or will, that there is an end
    char why[REASON_MAX];          // it was another one's; "": it was not
    bool closed;
};

// A call's part of ours: a chunk.
struct inbound {
    struct wk_ring_message message;  // first: one is the other
    struct ps_call *from;
    uint64_t session;
};

// ---- an end -------------------------------------------------------------------------------------------------------

static void peers_on_abort_reply(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct wk_peers *p = arg;
    (void)code;
    (void)text;
    (void)reply;
    pthread_mutex_lock(&p->lock);
    p->aborts--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

// Once: what comes later is a consequence of the first.
static void peers_tell(struct wk_peers *p, const char *text)
{
    Paramserver__V1__AbortRequest r = PARAMSERVER__V1__ABORT_REQUEST__INIT;
    pthread_mutex_lock(&p->lock);
    const bool tell = !p->notified && p->session;
    p->notified = true;
    p->aborts += tell ? p->options.workers - 1 : 0;
    pthread_mutex_unlock(&p->lock);
    r.session = p->session;
    r.rank = p->options.rank;
    r.text = (char *)text;
    for (uint32_t rank = 0; tell && rank < p->options.workers; rank++) {
        struct ps_slices request = PS_SLICES_EMPTY;
        if (rank == p->options.rank)
            continue;
        ps_msg_pack(&r.base, NULL, &request);
        ps_client_call(p->control, rank, PARAMSERVER__V1__METHOD__ABORT, false, ps_now() + abort_timeout, &request,
                       peers_on_abort_reply, p);
    }
}

static void peers_fail(struct wk_peers *p, const char *text)
{
    peers_tell(p, text);
    wk_ring_fail(p->ring, PS_ABORTED, text);
}

// ---- chunks that leave --------------------------------------------------------------------------------------------

struct outbound {
    struct ps_owner owner;  // of the bytes, which are the reduction's; and one reference until the reply
    struct wk_peers *peers;
    struct wk_reduction *reduction;
};

static void outbound_free(struct ps_owner *o)
{
    free(o);
}

static void peers_on_sent(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct outbound *out = arg;
    struct wk_peers *p = out->peers;
    const uint32_t next = p->next;
    char why[400];
    (void)reply;
    snprintf(why, sizeof why, "worker %" PRIu32 " (%s) is gone: %s", next, p->options.addresses[next], text);
    if (code == PS_OK)
        wk_ring_sent(p->ring, out->reduction);
    else if (code == PS_ABORTED || code == PS_INVALID_ARGUMENT)  // it says why itself
        peers_fail(p, text);
    else if (code != PS_CANCELLED)
        peers_fail(p, why);
    ps_owner_unref(&out->owner);
}

static void peers_send(void *ctx, struct wk_reduction *r, struct wk_ring_chunk chunk, const void *bytes, size_t size)
{
    struct wk_peers *p = ctx;
    struct outbound *out = ps_alloc(sizeof *out);
    struct ps_slices payload = PS_SLICES_EMPTY, request = PS_SLICES_EMPTY;
    Paramserver__V1__SendRequest m = PARAMSERVER__V1__SEND_REQUEST__INIT;
    *out = (struct outbound){{.free = outbound_free}, p, r};
    atomic_init(&out->owner.refs, 2);
    m.session = p->session;
    m.sequence = chunk.sequence;
    m.hop = chunk.hop;
    m.first = chunk.first;
    ps_slices_add(&payload, (struct ps_slice){bytes, size, &out->owner});
    ps_msg_pack(&m.base, &payload, &request);
    ps_client_call(p->client, p->next, PARAMSERVER__V1__METHOD__SEND, true, UINT64_MAX, &request, peers_on_sent, out);
}

// ---- calls that come ----------------------------------------------------------------------------------------------

static void inbound_done(struct wk_ring_message *m, enum ps_code code, const char *text)
{
    struct inbound *in = (struct inbound *)m;
    ps_slices_clear(&m->data);
    ps_call_reply(in->from, code, text, NULL);
}

// Of this session: the ring's.
static void peers_hand_over(struct wk_peers *p, struct inbound *in)
{
    if (in->session == p->session)
        wk_ring_receive(p->ring, &in->message);
    else
        inbound_done(&in->message, PS_FAILED_PRECONDITION, "the chunk is of another run");
}

static void peers_take_chunk(struct wk_peers *p, struct ps_call *call)
{
    struct inbound *in = call->user;
    struct ps_error e = {.code = PS_OK};
    ProtobufCMessage *m = NULL;
    in->from = call;
    in->message.done = inbound_done;
    if (ps_msg_unpack(&paramserver__v1__send_request__descriptor, &call->request, &m, &in->message.data, &e)) {
        inbound_done(&in->message, e.code, e.text);
        return;
    }
    const Paramserver__V1__SendRequest *r = (const Paramserver__V1__SendRequest *)m;
    in->session = r->session;
    in->message.chunk = (struct wk_ring_chunk){r->sequence, r->first, r->hop};
    ps_msg_free(m);
    ps_slices_clear(&call->request);
    pthread_mutex_lock(&p->lock);
    const bool early = !p->session && !p->closed;
    if (early) {
        in->message.next = p->held;
        p->held = &in->message;
    }
    pthread_mutex_unlock(&p->lock);
    if (!early)
        peers_hand_over(p, in);
}

// Another worker ends.
static void peers_take_abort(struct wk_peers *p, struct ps_call *call)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_slices none = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    char why[REASON_MAX] = "";
    ps_msg_unpack(&paramserver__v1__abort_request__descriptor, &call->request, &m, &none, &e);
    const Paramserver__V1__AbortRequest *r = (const Paramserver__V1__AbortRequest *)m;
    if (r)
        ps_utf8_cut(r->text[0] ? r->text : "another worker has ended", why, sizeof why);
    pthread_mutex_lock(&p->lock);
    if (r && (r->session == 0 || r->session != p->session))
        ps_fail(&e, PS_FAILED_PRECONDITION, "the end is another run's");
    if (e.code == PS_OK && !p->why[0])
        snprintf(p->why, sizeof p->why, "%s", why);
    pthread_mutex_unlock(&p->lock);
    if (e.code == PS_OK)
        wk_ring_fail(p->ring, PS_ABORTED, why);
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
    ps_call_reply(call, e.code, e.text, NULL);
}

// ---- watching -----------------------------------------------------------------------------------------------------

static uint32_t peers_after(const struct wk_peers *p)
{
    return (p->options.rank + 1) % p->options.workers;
}

static uint32_t peers_before(const struct wk_peers *p)
{
    return (p->options.rank + p->options.workers - 1) % p->options.workers;
}

static void peers_on_watch_reply(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct wk_peers *p = arg;
    const uint32_t after = peers_after(p);
    char why[REASON_MAX];
    (void)reply;
    snprintf(why, sizeof why, "worker %" PRIu32 " (%.100s) is gone: %.150s", after, p->options.addresses[after], text);
    if (code != PS_OK && code != PS_ABORTED && code != PS_CANCELLED)  // those it says itself
        peers_fail(p, why);
}

static void peers_watch(struct wk_peers *p)
{
    Paramserver__V1__WatchRequest r = PARAMSERVER__V1__WATCH_REQUEST__INIT;
    struct ps_slices request = PS_SLICES_EMPTY;
    r.session = p->session;
    r.rank = p->options.rank;
    ps_msg_pack(&r.base, NULL, &request);
    ps_client_call(p->control, peers_after(p), PARAMSERVER__V1__METHOD__WATCH, false, UINT64_MAX, &request,
                   peers_on_watch_reply, p);
}

// A later watcher takes an earlier one's place: of another session that one was, or its connection was lost.
static void peers_take_watch(struct wk_peers *p, struct ps_call *call)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_slices none = PS_SLICES_EMPTY;
    struct ps_call *earlier = NULL;
    ProtobufCMessage *m = NULL;
    ps_msg_unpack(&paramserver__v1__watch_request__descriptor, &call->request, &m, &none, &e);
    const Paramserver__V1__WatchRequest *r = (const Paramserver__V1__WatchRequest *)m;
    pthread_mutex_lock(&p->lock);
    if (r && ((p->session && r->session != p->session) || r->rank != peers_before(p)))
        ps_fail(&e, PS_FAILED_PRECONDITION, "worker %" PRIu32 " is watched by worker %" PRIu32 " of its run",
                p->options.rank, peers_before(p));
    if (e.code == PS_OK && p->closed)
        ps_fail(&e, PS_ABORTED, "worker %" PRIu32 " has ended", p->options.rank);
    if (e.code == PS_OK) {
        earlier = p->watcher;
        p->watcher = call;
        p->watcher_session = r->session;
    }
    pthread_mutex_unlock(&p->lock);
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
    if (earlier)
        ps_call_reply(earlier, PS_ABORTED, "another call watches", NULL);
    if (e.code)
        ps_call_reply(call, e.code, e.text, NULL);
}

// The worker before this one has ended, or is done.
static void peers_lose_watcher(struct wk_peers *p, struct ps_call *call)
{
    const uint32_t before = peers_before(p);
    char text[REASON_MAX];
    pthread_mutex_lock(&p->lock);
    const bool waits = p->watcher == call, watches = waits && p->watcher_session == p->session;
    p->watcher = waits ? NULL : p->watcher;
    pthread_mutex_unlock(&p->lock);
    snprintf(text, sizeof text, "worker %" PRIu32 " (%.200s) is gone: its connection has ended", before,
             p->options.addresses[before]);
    if (watches)
        wk_ring_end_of_chunks(p->ring, PS_ABORTED, text);
    if (waits)
        ps_call_reply(call, PS_CANCELLED, "the worker is gone", NULL);
}

static void peers_end_watching(struct wk_peers *p, const char *reason)
{
    struct ps_slices none = PS_SLICES_EMPTY;
    pthread_mutex_lock(&p->lock);
    struct ps_call *watcher = p->watcher;
    p->watcher = NULL;
    pthread_mutex_unlock(&p->lock);
    if (watcher)
        ps_call_reply(watcher, reason ? PS_ABORTED : PS_OK, reason, &none);
}

// ---- calls that come, by method ------------------------------------------------------------------------------------

static void peers_on_call(void *ctx, struct ps_call *call)
{
    struct wk_peers *p = ctx;
    switch (call->method) {
    case PARAMSERVER__V1__METHOD__RENDEZVOUS:
        wk_rendezvous_call(&p->rendezvous, call);
        break;
    case PARAMSERVER__V1__METHOD__SEND:
        peers_take_chunk(p, call);
        break;
    case PARAMSERVER__V1__METHOD__ABORT:
        peers_take_abort(p, call);
        break;
    case PARAMSERVER__V1__METHOD__WATCH:
        peers_take_watch(p, call);
        break;
    default:
        ps_call_reply(call, PS_UNIMPLEMENTED, "this is a worker, not a ps task", NULL);
    }
}

static void peers_on_cancel(void *ctx, struct ps_call *call)
{
    struct wk_peers *p = ctx;
    if (call->method == PARAMSERVER__V1__METHOD__RENDEZVOUS)
        wk_rendezvous_cancel(&p->rendezvous, call);
    else if (call->method == PARAMSERVER__V1__METHOD__WATCH)
        peers_lose_watcher(p, call);
}

// ---- open and close -----------------------------------------------------------------------------------------------

struct wk_ring *wk_peers_ring(struct wk_peers *p)
{
    return p->ring;
}

struct wk_shm *wk_peers_shm(struct wk_peers *p)
{
    return p->shm;
}

bool wk_peers_is_first(const struct wk_peers *p)
{
    return p->first == p->options.rank;
}

uint32_t wk_peers_hosts(const struct wk_peers *p)
{
    return p->hosts;
}

static enum ps_code peers_start(struct wk_peers *p, struct ps_error *e)
{
    const struct ps_server_options options = {
        .insecure = p->options.insecure,
        .threads = 1,
        .call_bytes = sizeof(struct inbound),
        .call = peers_on_call,
        .cancel = peers_on_cancel,
        .ctx = p,
    };
    p->client = ps_client_create(p->options.addresses, p->options.workers);
    // The core shares connections between clients that make them alike: these have more time for an attempt.
    p->control = ps_client_create_patient(p->options.addresses, p->options.workers, 2 * PS_CLIENT_ATTEMPT_MS);
    return ps_server_start(&p->options.addresses[p->options.rank], 1, &options, &p->server, e);
}

// Which workers are on which host: the first of each are the ring.
static void peers_find_hosts(struct wk_peers *p)
{
    char **host = p->rendezvous.host;
    const char *own = host[p->options.rank];
    uint32_t at = 0, firsts[2] = {UINT32_MAX, UINT32_MAX};  // the lowest first, and the next above this host's
    p->first = UINT32_MAX;
    for (uint32_t rank = 0; rank < p->options.workers; rank++) {
        const bool here = rank == p->options.rank || (own[0] && strcmp(host[rank], own) == 0);
        bool is_first = true;
        for (uint32_t lower = 0; lower < rank && host[rank][0]; lower++)
            is_first &= strcmp(host[lower], host[rank]) != 0;
        p->first = here && p->first == UINT32_MAX ? rank : p->first;
        p->members += here;
        p->member += here && rank < p->options.rank;
        at = here && is_first ? p->hosts : at;
        p->hosts += is_first;
        if (is_first && firsts[0] == UINT32_MAX)
            firsts[0] = rank;
        if (is_first && firsts[1] == UINT32_MAX && p->first != UINT32_MAX && rank > p->first)
            firsts[1] = rank;
    }
    p->next = firsts[1] == UINT32_MAX ? firsts[0] : firsts[1];
    wk_ring_join(p->ring, at, p->hosts);
}

static enum ps_code peers_look(void *arg, struct ps_error *e)
{
    struct wk_peers *p = arg;
    if (*p->options.stop)
        return ps_fail(e, PS_CANCELLED, "stopped by signal %d in an all-reduce", (int)*p->options.stop);
    return wk_ring_look(p->ring, e);
}

// From now on chunks are taken.
static void peers_begin_session(struct wk_peers *p)
{
    pthread_mutex_lock(&p->lock);
    p->session = p->rendezvous.session;
    struct wk_ring_message *held = p->held;
    p->held = NULL;
    struct ps_call *stranger = p->watcher_session == p->session ? NULL : p->watcher;
    p->watcher = stranger ? NULL : p->watcher;
    pthread_mutex_unlock(&p->lock);
    if (stranger)
        ps_call_reply(stranger, PS_FAILED_PRECONDITION, "the watch is of another run", NULL);
    while (held) {
        struct inbound *in = (struct inbound *)held;
        held = held->next;
        peers_hand_over(p, in);
    }
}

enum ps_code wk_peers_open(const struct wk_peers_options *options, struct wk_peers **peers, struct ps_error *e)
{
    struct wk_peers *p = ps_alloc(sizeof *p);
    const struct wk_ring_link link = {peers_send, p};
    p->options = *options;
    p->ring = wk_ring_create(link);
    wk_rendezvous_init(&p->rendezvous, &p->options);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    e->code = PS_OK;
    if (peers_start(p, e) == PS_OK)
        wk_rendezvous_wait(&p->rendezvous, p->control, e);
    if (e->code == PS_OK) {
        peers_find_hosts(p);
        peers_begin_session(p);
    }
    if (options->rank == 0)
        wk_rendezvous_end(&p->rendezvous, e);
    if (e->code == PS_OK) {
        peers_watch(p);
        if (p->members > 1)
            wk_shm_open(p->session, p->first, p->member, p->members, peers_look, p, &p->shm, e);
    }
    p->options.configuration = NULL;
    if (e->code) {
        wk_peers_close(p, p->session ? e->text : NULL);
        return e->code;
    }
    *peers = p;
    return PS_OK;
}

// Those who are notified hear it, or have had their time. A reason that is another worker's goes on as it is: who hears
// of that one later than this worker's connection ends would take this one for the first.
static void peers_say_farewell(struct wk_peers *p, const char *reason)
{
    char text[REASON_MAX];
    pthread_mutex_lock(&p->lock);
    if (p->why[0])
        snprintf(text, sizeof text, "%s", p->why);
    else
        snprintf(text, sizeof text, "worker %" PRIu32 " has ended: %.240s", p->options.rank, reason);
    pthread_mutex_unlock(&p->lock);
    peers_tell(p, text);
    pthread_mutex_lock(&p->lock);
    while (p->aborts > 0)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

// What came before a session that never began.
static void peers_refuse_held(struct wk_peers *p)
{
    pthread_mutex_lock(&p->lock);
    struct wk_ring_message *held = p->held;
    p->held = NULL;
    p->closed = true;
    pthread_mutex_unlock(&p->lock);
    while (held) {
        struct wk_ring_message *m = held;
        held = m->next;
        inbound_done(m, PS_ABORTED, "this worker has ended");
    }
}

void wk_peers_close(struct wk_peers *p, const char *reason)
{
    enum ps_stop stopped = PS_STOP_DONE;
    if (reason)
        peers_say_farewell(p, reason);
    peers_refuse_held(p);
    peers_end_watching(p, reason);
    wk_ring_fail(p->ring, PS_ABORTED, reason ? reason : "the job is done");
    ps_client_stop(p->client);
    ps_client_stop(p->control);
    if (p->server)
        stopped = ps_server_stop(p->server, close_grace);
    if (stopped == PS_STOP_STUCK)
        return;  // a peer neither reads nor goes: what its calls use stays
    if (p->server)
        ps_server_destroy(p->server);
    ps_client_destroy(p->client);
    ps_client_destroy(p->control);
    wk_shm_close(p->shm);
    wk_rendezvous_fini(&p->rendezvous);
    wk_ring_destroy(p->ring);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
