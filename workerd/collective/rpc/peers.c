// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/rpc/peers.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/base/utf8.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "proto/worker.pb-c.h"
#include "workerd/collective/rpc/mesh.h"
#include "workerd/collective/rpc/rendezvous.h"

enum { REASON_MAX = 320 };  // bytes of why a formation ends

static const uint64_t abort_timeout = PS_SECOND, close_grace = 2 * PS_SECOND;
// So long numbers of a member that has ended, or is gone, may still be on their way.
static const uint64_t ended_silence = 250 * PS_MS, lost_silence = 2 * PS_SECOND;
// So much longer than one that comes back the others wait for it to connect: it is to give up first.
static const uint64_t connect_margin = 2 * PS_SECOND;

// A formation, and what connects its members.
struct session {
    struct wk_formation f;
    struct wk_peers *peers;
    // Its tasks are the workers, by rank. It is the session's own, since one that has been connected to a worker that
    // died is slow to see that it has come back.
    struct ps_client *client;
    uint64_t connect_until;  // ns, ps_now: so long it waits for the others to connect
    bool notified;           // somebody tells the others that it has ended
    bool over;               // a member has ended by itself: nobody goes on
    bool ended;              // this one has, and said so
    bool loses;              // a member is lost, which is not just one that has left it
    bool apart;              // those who came back to it and the others have not connected to each other
    char why[REASON_MAX];    // it was another one's doing; "": it was not
};

// What a member says of an end, as in AbortRequest.
struct notice {
    uint32_t lost;
    bool ends, leaves;
};

// Why a session ends for a worker: a member has said so, or meets the others anew.
struct end {
    uint64_t session;  // 0: there is none
    bool meets;        // it meets them,
    uint32_t rank;     // or this one has said that
    struct notice says;
    char why[REASON_MAX];
};

struct wk_peers {
    struct wk_peers_options options;
    struct ps_server *server;
    struct wk_mesh *mesh;
    struct wk_rendezvous rendezvous;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct session *now;       // NULL: the workers are about to meet
    struct end early;          // the end, as it came meanwhile, of one that others may have begun before this worker
    uint64_t past;             // the session before; 0: there was none
    uint32_t inside;           // calls that work with it
    struct ps_call *watcher;   // the member before this one; NULL: it has not called, or is gone
    uint64_t watcher_session;  // as it says; looked at where it comes before this worker's own
    uint32_t watcher_rank;
    uint32_t aborts;  // under way
    bool closed;
    struct wk_peers *stuck;  // of peers_stuck, the next
};

// Closed, but a peer neither reads nor goes: what its calls use stays until the process ends.
static struct wk_peers *_Atomic peers_stuck;

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

// Tells all other members.
static void peers_send(const struct session *s, const struct notice *n, const char *text)
{
    Paramserver__V1__AbortRequest r = PARAMSERVER__V1__ABORT_REQUEST__INIT;
    struct wk_peers *p = s->peers;
    pthread_mutex_lock(&p->lock);
    p->aborts += s->f.n - 1;
    pthread_mutex_unlock(&p->lock);
    r.session = s->f.session;
    r.rank = p->options.rank;
    r.text = (char *)text;
    r.lost = n->lost;
    r.ends = n->ends;
    r.leaves = n->leaves;
    for (uint32_t k = 0; k < s->f.n; k++) {
        struct ps_slices request = PS_SLICES_EMPTY;
        if (k == s->f.self)
            continue;
        ps_msg_pack(&r.base, NULL, &request);
        ps_client_call(s->client, s->f.rank[k], PARAMSERVER__V1__METHOD__ABORT,
                       &(struct ps_call_options){.deadline = ps_now() + abort_timeout}, &request, peers_on_abort_reply,
                       p);
    }
}

// The same once: what comes later is a consequence of the first. False: somebody has told them before.
static bool peers_tell(struct session *s, const struct notice *n, const char *text)
{
    struct wk_peers *p = s->peers;
    pthread_mutex_lock(&p->lock);
    const bool tell = !s->notified;
    s->notified = true;
    pthread_mutex_unlock(&p->lock);
    if (tell)
        peers_send(s, n, text);
    return tell;
}

static void peers_name(const struct session *s, uint32_t rank, const char *text, char why[REASON_MAX])
{
    snprintf(why, REASON_MAX, "worker %" PRIu32 " (%.100s) is gone: %.150s", rank, s->f.addresses[rank], text);
}

// A worker is lost. Where one has said that all ends, that one's reason stays; but the others are to know who is left
// to keep the weights.
static void peers_lose(struct session *s, uint32_t rank, const char *text)
{
    struct wk_peers *p = s->peers;
    const struct notice lost = {.lost = rank + 1};
    char why[REASON_MAX];
    peers_name(s, rank, text, why);
    pthread_mutex_lock(&p->lock);
    const bool over = s->over;
    s->loses |= !over;
    pthread_mutex_unlock(&p->lock);
    wk_rendezvous_lose(&p->rendezvous, rank);
    if (over) {
        peers_send(s, &lost, why);
        return;
    }
    peers_tell(s, &lost, why);
    wk_ring_fail(s->f.ring, PS_ABORTED, why);
}

// A worker, or whoever has its address, answers with an error that is no end of its own. To meet anew would not help.
static void peers_refused(struct session *s, uint32_t rank, enum ps_code code, const char *text)
{
    char why[REASON_MAX];
    snprintf(why, sizeof why, "worker %" PRIu32 " (%.100s) answers: %.150s", rank, s->f.addresses[rank], text);
    wk_ring_fail(s->f.ring, code, why);
}

// ---- the session at hand ------------------------------------------------------------------------------------------

// locked
static struct session *peers_enter_locked(struct wk_peers *p, uint64_t number)
{
    struct session *s = p->now && p->now->f.session == number ? p->now : NULL;
    p->inside += s != NULL;
    return s;
}

// The one of this number, which stays until peers_leave. NULL: it is another one's, or none.
static struct session *peers_enter(struct wk_peers *p, uint64_t number)
{
    pthread_mutex_lock(&p->lock);
    struct session *s = peers_enter_locked(p, number);
    pthread_mutex_unlock(&p->lock);
    return s;
}

static void peers_leave(struct wk_peers *p)
{
    pthread_mutex_lock(&p->lock);
    p->inside--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

// ---- others that end ----------------------------------------------------------------------------------------------

// The first reason stays. Of a session that is over a loss changes only who is left.
static void peers_note_end(struct session *s, const struct end *end)
{
    struct wk_peers *p = s->peers;
    const struct notice *n = &end->says;
    const bool loses = n->lost != 0 && (n->lost != end->rank + 1 || n->ends);
    pthread_mutex_lock(&p->lock);
    const bool was_over = s->over;
    s->over |= n->lost == 0;
    s->loses |= loses;
    s->notified |= n->lost != 0 && !was_over;  // who has lost one tells all
    if (!s->why[0])
        snprintf(s->why, sizeof s->why, "%s", end->why);
    pthread_mutex_unlock(&p->lock);
    if (loses && n->lost != p->options.rank + 1)
        wk_rendezvous_lose(&p->rendezvous, n->lost - 1);
    if (n->lost == 0 || n->leaves)
        wk_rendezvous_leave(&p->rendezvous, end->rank, end->session);
    if (n->lost && !was_over)
        wk_ring_fail(s->f.ring, PS_ABORTED, end->why);
    else if (n->lost == 0)
        wk_ring_end_of_numbers(s->f.ring, PS_ABORTED, end->why, ended_silence);
}

static bool session_has_other(const struct session *s, uint32_t rank)
{
    bool has = false;
    for (uint32_t k = 0; k < s->f.n; k++)
        has |= k != s->f.self && s->f.rank[k] == rank;
    return has;
}

// false: it is another session's, or said by no other member.
static bool session_take_end(struct session *s, const struct end *end)
{
    const bool counts = end->session == s->f.session && (end->meets || session_has_other(s, end->rank));
    if (counts && end->meets)
        wk_ring_fail(s->f.ring, PS_ABORTED, end->why);
    else if (counts)
        peers_note_end(s, end);
    return counts;
}

// Does it end the session at hand? Where there is none, and it is not of the last one, it is kept: another worker may
// have begun the next one before this worker does. Of a session the first end is kept, or one after which nobody goes
// on.
static bool peers_take_end(struct wk_peers *p, const struct end *end)
{
    const bool is_last = !end->meets && end->says.lost == 0;
    pthread_mutex_lock(&p->lock);
    struct session *s = peers_enter_locked(p, end->session);
    if (!p->now && end->session && end->session != p->past && (end->session != p->early.session || is_last))
        p->early = *end;
    pthread_mutex_unlock(&p->lock);
    const bool counts = s && session_take_end(s, end);
    if (s)
        peers_leave(p);
    return counts;
}

static void peers_take_abort(struct wk_peers *p, struct ps_call *call)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_slices none = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    ps_msg_unpack(&paramserver__v1__abort_request__descriptor, &call->request, &m, &none, &e);
    const Paramserver__V1__AbortRequest *r = (const Paramserver__V1__AbortRequest *)m;
    if (r) {
        struct end end = {.session = r->session, .rank = r->rank, .says = {r->lost, r->ends, r->leaves}};
        ps_utf8_cut(r->text[0] ? r->text : "another worker has ended", end.why, sizeof end.why);
        if (!peers_take_end(p, &end))
            ps_fail(&e, PS_FAILED_PRECONDITION, "the end is another session's, or of no other member");
        ps_msg_free(m);
    }
    ps_slices_clear(&none);
    ps_call_reply(call, e.code, e.text, NULL);
}

// Somebody waits for the others to meet anew: for this worker, too, the session has ended.
static void peers_take_rendezvous(struct wk_peers *p, struct ps_call *call)
{
    struct end end = {.meets = true};
    end.session = wk_rendezvous_call(&p->rendezvous, call, end.why, sizeof end.why);
    if (end.session)
        peers_take_end(p, &end);
}

// ---- watching -----------------------------------------------------------------------------------------------------

// A call that stays open as long as the member after this one is in the session.
struct watch {
    struct wk_peers *peers;
    uint64_t session;
    uint32_t rank;
};

static uint32_t session_neighbour(const struct session *s, uint32_t step)
{
    return s->f.rank[(s->f.self + step) % s->f.n];
}

static void peers_on_watch_reply(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct watch *w = arg;
    struct session *s = peers_enter(w->peers, w->session);
    (void)reply;
    // One that ends, or leaves the session, says so itself, or who has lost one tells all: this one, too, if it can be
    // reached.
    const bool leaves = code == PS_OK || code == PS_ABORTED || code == PS_FAILED_PRECONDITION || code == PS_CANCELLED;
    if (s && (code == PS_ABORTED || code == PS_FAILED_PRECONDITION))
        atomic_store(&s->f.left, ps_now());
    if (s && (code == PS_UNAVAILABLE || code == PS_DEADLINE_EXCEEDED))
        peers_lose(s, w->rank, text);
    else if (s && !leaves)
        peers_refused(s, w->rank, code, text);
    if (s)
        peers_leave(w->peers);
    free(w);
}

static void peers_watch(struct session *s)
{
    Paramserver__V1__WatchRequest r = PARAMSERVER__V1__WATCH_REQUEST__INIT;
    struct ps_slices request = PS_SLICES_EMPTY;
    struct wk_peers *p = s->peers;
    struct watch *w = ps_alloc(sizeof *w);
    *w = (struct watch){p, s->f.session, session_neighbour(s, 1)};
    r.session = s->f.session;
    r.rank = p->options.rank;
    ps_msg_pack(&r.base, NULL, &request);
    ps_client_call(s->client, w->rank, PARAMSERVER__V1__METHOD__WATCH,
                   &(struct ps_call_options){.deadline = UINT64_MAX}, &request, peers_on_watch_reply, w);
}

// locked. Is the watcher the member that should be?
static bool session_is_watched(const struct session *s)
{
    const struct wk_peers *p = s->peers;
    return p->watcher_session == s->f.session && p->watcher_rank == session_neighbour(s, s->f.n - 1);
}

// Locked. A later watcher takes an earlier one's place: of another session that one was, or its connection was lost.
static enum ps_code peers_admit_watcher(struct wk_peers *p, const Paramserver__V1__WatchRequest *r,
                                        struct ps_call *call, struct ps_call **earlier, struct ps_error *e)
{
    const struct session *s = p->now;
    if (s && (r->session != s->f.session || r->rank != session_neighbour(s, s->f.n - 1)))
        return ps_fail(e, PS_FAILED_PRECONDITION, "worker %" PRIu32 " is watched by worker %" PRIu32 " of its session",
                       p->options.rank, session_neighbour(s, s->f.n - 1));
    if (p->closed)
        return ps_fail(e, PS_ABORTED, "worker %" PRIu32 " has ended", p->options.rank);
    *earlier = p->watcher;
    p->watcher = call;
    p->watcher_session = r->session;
    p->watcher_rank = r->rank;
    return PS_OK;
}

static void peers_take_watch(struct wk_peers *p, struct ps_call *call)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_slices none = PS_SLICES_EMPTY;
    struct ps_call *earlier = NULL;
    ProtobufCMessage *m = NULL;
    ps_msg_unpack(&paramserver__v1__watch_request__descriptor, &call->request, &m, &none, &e);
    pthread_mutex_lock(&p->lock);
    if (m)
        peers_admit_watcher(p, (const Paramserver__V1__WatchRequest *)m, call, &earlier, &e);
    pthread_mutex_unlock(&p->lock);
    ps_slices_clear(&none);
    if (m)
        ps_msg_free(m);
    if (earlier)
        ps_call_reply(earlier, PS_CANCELLED, "another call watches", NULL);
    if (e.code)
        ps_call_reply(call, e.code, e.text, NULL);
}

// The member before this one has ended, or is done.
static void peers_lose_watcher(struct wk_peers *p, struct ps_call *call)
{
    char text[REASON_MAX];
    pthread_mutex_lock(&p->lock);
    const bool waits = p->watcher == call;
    const uint64_t session = p->watcher_session;
    const uint32_t rank = p->watcher_rank;
    p->watcher = waits ? NULL : p->watcher;
    pthread_mutex_unlock(&p->lock);
    if (!waits)
        return;
    struct session *s = peers_enter(p, session);
    if (s) {
        snprintf(text, sizeof text, "worker %" PRIu32 " (%.200s) is gone: its connection has ended", rank,
                 p->options.addresses[rank]);
        wk_ring_end_of_numbers(s->f.ring, PS_ABORTED, text, lost_silence);
        peers_leave(p);
    }
    ps_call_reply(call, PS_CANCELLED, "the worker is gone", NULL);
}

static void peers_end_watching(struct wk_peers *p, bool done)
{
    struct ps_slices none = PS_SLICES_EMPTY;
    pthread_mutex_lock(&p->lock);
    struct ps_call *watcher = p->watcher;
    p->watcher = NULL;
    pthread_mutex_unlock(&p->lock);
    if (watcher)
        ps_call_reply(watcher, done ? PS_OK : PS_ABORTED, "the session has ended", &none);
}

// ---- calls that come, by method -----------------------------------------------------------------------------------

// Workers of one user train together; munge has let no others in, but root.
static enum ps_code peers_check_user(const struct wk_peers *p, const struct ps_call *call, struct ps_error *e)
{
    e->code = PS_OK;
    if (!p->options.tls || strcmp(call->from->user, ps_tls_user(p->options.tls)) == 0)
        return PS_OK;
    return ps_fail(e, PS_PERMISSION_DENIED, "worker %" PRIu32 " trains for %s, not for %s", p->options.rank,
                   ps_tls_user(p->options.tls), call->from->user);
}

static void peers_on_call(void *ctx, struct ps_call *call)
{
    struct wk_peers *p = ctx;
    struct ps_error e;
    if (peers_check_user(p, call, &e)) {
        ps_call_reply(call, e.code, e.text, NULL);
        return;
    }
    switch (call->method) {
    case PARAMSERVER__V1__METHOD__RENDEZVOUS:
        peers_take_rendezvous(p, call);
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

// ---- a session begins ---------------------------------------------------------------------------------------------

// NULL: why is in *e.
static struct session *session_create(struct wk_peers *p, struct ps_error *e)
{
    const struct wk_rendezvous *v = &p->rendezvous;
    struct session *s = ps_alloc(sizeof *s);
    s->peers = p;
    const struct ps_client_options options = {
        .attempt_ms = 2 * PS_CLIENT_ATTEMPT_MS, .tls = p->options.tls, .munge = p->options.munge, .to = PS_ROLE_WORKER};
    s->client = ps_client_create(p->options.addresses, p->options.workers, &options);
    if (!s->client) {
        ps_no_thread(e, "connections", errno);
        free(s);
        return NULL;
    }
    s->f.session = v->session;
    s->f.addresses = p->options.addresses;
    s->f.stop = p->options.stop;
    s->f.patience = p->options.patience;
    wk_formation_open(&s->f, v->rank, (const char *const *)v->host, v->n, p->options.rank);
    return s;
}

static void session_begin(struct session *s)
{
    struct wk_peers *p = s->peers;
    pthread_mutex_lock(&p->lock);
    p->now = s;
    struct ps_call *stranger = session_is_watched(s) ? NULL : p->watcher;
    p->watcher = stranger ? NULL : p->watcher;
    pthread_mutex_unlock(&p->lock);
    if (stranger)
        ps_call_reply(stranger, PS_FAILED_PRECONDITION, "the watch is of another session", NULL);
    session_take_end(s, &p->early);
    if (s->f.n > 1)
        peers_watch(s);
}

// By who waits for a member of the ring to connect.
static enum ps_code session_look(void *arg, uint32_t rank, struct ps_error *e)
{
    struct session *s = arg;
    const struct wk_rendezvous *v = &s->peers->rendezvous;
    if (wk_ring_look(s->f.ring, e) || wk_formation_look_at_ring(&s->f, rank, e))
        return e->code;
    return ps_now() < s->connect_until
               ? PS_OK
               : ps_fail(e, PS_DEADLINE_EXCEEDED,
                         "%s takes the numbers of others at %.80s, this worker at %.80s, and within %" PRIu64
                         " s they have not connected to each other: expected a network that lets that through",
                         s->f.ring_name[rank], v->ring_at[s->f.first[rank]], s->peers->options.ring_at,
                         s->peers->options.timeout / PS_SECOND);
}

static uint64_t session_patience(const struct session *s)
{
    return s->peers->options.timeout + (s->peers->rendezvous.admits ? connect_margin : 0);
}

static enum ps_code session_connect(struct session *s, struct ps_error *e)
{
    const struct wk_hosts *h = &s->f.hosts;
    e->code = PS_OK;
    if (!wk_formation_is_on_ring(&s->f))
        return PS_OK;
    struct wk_ring_sockets sockets;
    const char **places = ps_alloc(h->hosts * sizeof *places);
    for (uint32_t k = 0; k < h->hosts; k++)
        places[k] = s->peers->rendezvous.ring_at[s->f.first[k]];
    const struct wk_mesh_ring ring = {s->f.session, places, h->host, h->hosts, session_look, s};
    s->connect_until = ps_now() + session_patience(s);
    if (wk_mesh_connect(s->peers->mesh, &ring, &sockets, e) == PS_OK)
        wk_ring_join(s->f.ring, h->host, h->hosts, sockets, s->f.ring_name);
    free(places);
    return e->code;
}

// The members have not connected to each other. Does this worker meet the others anew? One that has come back does
// where another one is lost: what else is amiss may be its own, and the others go on without it.
static bool session_meets_anew(struct session *s, enum ps_code code)
{
    const struct wk_rendezvous *v = &s->peers->rendezvous;
    pthread_mutex_lock(&s->peers->lock);
    const bool loses = s->loses;
    s->apart = v->admits;
    pthread_mutex_unlock(&s->peers->lock);
    return code == PS_ABORTED ? !v->joined || loses : code != PS_CANCELLED && v->admits;
}

// The workers meet, and begin. why: by which the last session has ended; NULL: it is the first.
static enum ps_code peers_meet(struct wk_peers *p, bool admits, const char *why, struct ps_error *e)
{
    if (wk_rendezvous_meet(&p->rendezvous, admits, why, e))
        return e->code;
    struct session *s = session_create(p, e);
    if (!s)
        return e->code;
    session_begin(s);
    if (session_connect(s, e) == PS_OK && wk_formation_share_memory(&s->f, session_patience(s), e) == PS_OK)
        return PS_OK;
    if (!session_meets_anew(s, e->code))
        return e->code;
    // The first reduction says so, and those that are left meet anew.
    wk_ring_fail(s->f.ring, PS_ABORTED, e->text);
    e->code = PS_OK;
    return PS_OK;
}

// ---- a session ends -----------------------------------------------------------------------------------------------

static void peers_await_aborts(struct wk_peers *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->aborts > 0)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

// Takes the session out of use, and waits until no call works with it.
static struct session *peers_take_out(struct wk_peers *p)
{
    pthread_mutex_lock(&p->lock);
    struct session *s = p->now;
    p->now = NULL;
    p->past = s ? s->f.session : p->past;
    while (p->inside > 0)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return s;
}

// Nobody works with it any more.
static void session_free(struct session *s)
{
    ps_client_destroy(s->client);
    wk_formation_close(&s->f);
    free(s);
}

struct wk_formation *wk_peers_formation(struct wk_peers *p)
{
    return &p->now->f;
}

bool wk_peers_joined(const struct wk_peers *p)
{
    return p->rendezvous.joined;
}

bool wk_peers_has_newcomers(struct wk_peers *p)
{
    return wk_rendezvous_has_newcomers(&p->rendezvous);
}

void wk_peers_welcome(struct wk_peers *p, bool all_know)
{
    wk_rendezvous_welcome(&p->rendezvous, all_know);
}

uint32_t wk_peers_guests(struct wk_peers *p)
{
    return wk_rendezvous_guests(&p->rendezvous);
}

bool wk_peers_leads(struct wk_peers *p, const double *arrival)
{
    return p->now || p->rendezvous.stopped ? wk_rendezvous_leads(&p->rendezvous, arrival) : p->rendezvous.leads_rest;
}

void wk_peers_ask_leader(struct wk_peers *p, const double *arrival)
{
    if (p->now || p->rendezvous.stopped)
        wk_rendezvous_ask_leader(&p->rendezvous, arrival);
}

enum ps_code wk_peers_reform(struct wk_peers *p, bool admits, struct ps_error *e)
{
    struct ps_error why = *e;
    struct session *s = p->now;
    wk_ring_fail(s->f.ring, PS_ABORTED, why.text);
    peers_tell(s, &(struct notice){.lost = p->options.rank + 1}, why.text);
    peers_await_aborts(p);
    pthread_mutex_lock(&p->lock);
    const bool over = s->over;
    admits &= !s->apart;
    pthread_mutex_unlock(&p->lock);
    if (over || !p->options.min_workers)
        return e->code;
    peers_take_out(p);
    peers_end_watching(p, false);
    ps_info("%s: the workers meet anew", why.text);
    peers_meet(p, admits, why.text, e);
    ps_client_stop(s->client);  // not before: the watch that ends with it would be taken for this worker's end
    session_free(s);
    if (e->code == PS_OK) {
        ps_info("goes on with %" PRIu32 " of %" PRIu32 " workers", p->now->f.n, p->options.workers);
        return PS_OK;
    }
    const enum ps_code code = e->code == PS_CANCELLED ? PS_CANCELLED : PS_ABORTED;
    const struct ps_error then = *e;
    return ps_fail(e, code, "%.250s; %.250s", why.text, then.text);
}

// A reason that is another worker's goes on as it is: who hears of that one later than this worker's connection ends
// would take this one for the first. Of several replicas each ends the session, and the first one says so.
void wk_peers_end(struct wk_peers *p, const char *reason)
{
    const bool alone = wk_rendezvous_is_newcomer(&p->rendezvous);
    char text[REASON_MAX];
    struct session *s = p->now;
    if (!s)
        return;
    pthread_mutex_lock(&p->lock);
    if (s->why[0])
        snprintf(text, sizeof text, "%s", s->why);
    else
        snprintf(text, sizeof text, "worker %" PRIu32 " has ended: %.240s", p->options.rank, reason);
    const bool again = s->ended;
    s->over = s->ended = true;
    pthread_mutex_unlock(&p->lock);
    wk_ring_flush(s->f.ring, ps_now() + abort_timeout);  // this does not overtake what others still add up
    // Where all know of a loss, this is no reason any more. Who asks later whether this worker lives is not to miss it.
    const struct notice ends = {.lost = alone ? p->options.rank + 1 : 0, .ends = alone};
    if (!again && !peers_tell(s, &ends, text))
        peers_send(s, &(struct notice){.lost = p->options.rank + 1, .leaves = true}, text);
    peers_await_aborts(p);
    wk_ring_fail(s->f.ring, PS_ABORTED, reason);
}

// ---- open and close -----------------------------------------------------------------------------------------------

static enum ps_code peers_start(struct wk_peers *p, struct ps_error *e)
{
    const struct ps_server_options options = {
        .tls = p->options.tls,
        .munge = p->options.munge,
        .known_as = p->options.addresses[p->options.rank],
        .insecure = p->options.insecure,
        .threads = 1,
        .call = peers_on_call,
        .cancel = peers_on_cancel,
        .ctx = p,
    };
    return ps_server_start(&p->options.addresses[p->options.rank], 1, &options, &p->server, e);
}

enum ps_code wk_peers_open(const struct wk_peers_options *options, struct wk_peers **peers, struct ps_error *e)
{
    struct wk_peers *p = ps_alloc(sizeof *p);
    p->options = *options;
    p->options.configuration = ps_strdup(options->configuration);
    wk_rendezvous_init(&p->rendezvous, &p->options);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    e->code = PS_OK;
    if (peers_start(p, e) == PS_OK && wk_mesh_open(p->options.addresses[p->options.rank], p->options.tls,
                                                   p->options.insecure || p->options.munge, &p->mesh, e) == PS_OK) {
        p->options.ring_at = wk_mesh_places(p->mesh);
        peers_meet(p, false, NULL, e);
    }
    if (e->code) {
        wk_peers_end(p, e->text);
        wk_peers_close(p);
        return e->code;
    }
    *peers = p;
    return PS_OK;
}

static void peers_free(struct wk_peers *p)
{
    wk_rendezvous_fini(&p->rendezvous);
    wk_mesh_close(p->mesh);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free((char *)p->options.configuration);
    free(p);
}

void wk_peers_close(struct wk_peers *p)
{
    enum ps_stop stopped = PS_STOP_DONE;
    pthread_mutex_lock(&p->lock);
    p->closed = true;
    const bool done = p->now && !p->now->notified && !p->now->over;
    pthread_mutex_unlock(&p->lock);
    wk_rendezvous_end(&p->rendezvous);
    if (done)
        wk_ring_flush(p->now->f.ring, ps_now() + close_grace);
    peers_end_watching(p, done);
    struct session *s = peers_take_out(p);
    if (s) {
        wk_ring_fail(s->f.ring, PS_ABORTED, "the job is done");
        ps_client_stop(s->client);
    }
    if (s)
        session_free(s);
    if (p->server)
        stopped = ps_server_stop(p->server, close_grace);
    if (stopped == PS_STOP_STUCK) {
        p->stuck = atomic_exchange(&peers_stuck, p);
        return;
    }
    if (p->server)
        ps_server_destroy(p->server);
    peers_free(p);
}
