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
    struct ps_client *client;
    struct wk_ring *ring;
    struct wk_rendezvous rendezvous;
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
        ps_client_call(p->client, rank, PARAMSERVER__V1__METHOD__ABORT, false, ps_now() + abort_timeout, &request,
                       peers_on_abort_reply, p);
    }
}

static void peers_fail(struct wk_peers *p, const char *text)
{
    peers_tell(p, text);
    wk_ring_fail(p->ring, PS_ABORTED, text);
}

// ---- chunks that leave --------------------------------------------------------------------------------------------

static uint32_t peers_next(const struct wk_peers *p)
{
    return (p->options.rank + 1) % p->options.workers;
}

static uint32_t peers_previous(const struct wk_peers *p)
{
    return (p->options.rank + p->options.workers - 1) % p->options.workers;
}

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
    const uint32_t next = peers_next(p);
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
    ps_client_call(p->client, peers_next(p), PARAMSERVER__V1__METHOD__SEND, true, UINT64_MAX, &request, peers_on_sent,
                   out);
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
    if (call->stream)
        *call->stream = p;
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
    char why[REASON_MAX];
    ps_msg_unpack(&paramserver__v1__abort_request__descriptor, &call->request, &m, &none, &e);
    const Paramserver__V1__AbortRequest *r = (const Paramserver__V1__AbortRequest *)m;
    if (r && r->session != p->session)
        ps_fail(&e, PS_FAILED_PRECONDITION, "the end is another run's");
    if (e.code == PS_OK) {
        ps_utf8_cut(r->text, why, sizeof why);
        pthread_mutex_lock(&p->lock);
        if (!p->why[0])
            snprintf(p->why, sizeof p->why, "%s", why);
        pthread_mutex_unlock(&p->lock);
        wk_ring_fail(p->ring, PS_ABORTED, why);
    }
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
    ps_call_reply(call, e.code, e.text, NULL);
}

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
    default:
        ps_call_reply(call, PS_UNIMPLEMENTED, "this is a worker, not a ps task", NULL);
    }
}

static void peers_on_cancel(void *ctx, struct ps_call *call)
{
    struct wk_peers *p = ctx;
    if (call->method == PARAMSERVER__V1__METHOD__RENDEZVOUS)
        wk_rendezvous_cancel(&p->rendezvous, call);
}

// The worker before this one in the ring has ended, or is done.
static void peers_on_stream_ended(void *ctx, void *stream)
{
    struct wk_peers *p = ctx;
    const uint32_t previous = peers_previous(p);
    char text[320];
    (void)stream;
    snprintf(text, sizeof text, "worker %" PRIu32 " (%s) is gone: its connection has ended", previous,
             p->options.addresses[previous]);
    wk_ring_end_of_chunks(p->ring, PS_ABORTED, text);
}

// ---- open and close -----------------------------------------------------------------------------------------------

struct wk_ring *wk_peers_ring(struct wk_peers *p)
{
    return p->ring;
}

static enum ps_code peers_start(struct wk_peers *p, struct ps_error *e)
{
    const struct ps_server_options options = {
        .insecure = p->options.insecure,
        .threads = 1,
        .call_bytes = sizeof(struct inbound),
        .call = peers_on_call,
        .cancel = peers_on_cancel,
        .stream_ended = peers_on_stream_ended,
        .ctx = p,
    };
    p->client = ps_client_create(p->options.addresses, p->options.workers);
    return ps_server_start(&p->options.addresses[p->options.rank], 1, &options, &p->server, e);
}

// From now on chunks are taken.
static void peers_begin_session(struct wk_peers *p)
{
    pthread_mutex_lock(&p->lock);
    p->session = p->rendezvous.session;
    struct wk_ring_message *held = p->held;
    p->held = NULL;
    pthread_mutex_unlock(&p->lock);
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
    p->ring = wk_ring_create(options->rank, options->workers, link);
    wk_rendezvous_init(&p->rendezvous, &p->options);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    e->code = PS_OK;
    if (peers_start(p, e) == PS_OK)
        wk_rendezvous_wait(&p->rendezvous, p->client, e);
    if (e->code == PS_OK)
        peers_begin_session(p);
    if (options->rank == 0)
        wk_rendezvous_end(&p->rendezvous, e);
    p->options.configuration = NULL;
    if (e->code) {
        wk_peers_close(p, NULL);
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
    wk_ring_fail(p->ring, PS_ABORTED, reason ? reason : "the job is done");
    ps_client_stop(p->client);
    if (p->server)
        stopped = ps_server_stop(p->server, close_grace);
    if (stopped == PS_STOP_STUCK)
        return;  // a peer neither reads nor goes: what its calls use stays
    if (p->server)
        ps_server_destroy(p->server);
    ps_client_destroy(p->client);
    wk_rendezvous_fini(&p->rendezvous);
    wk_ring_destroy(p->ring);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
