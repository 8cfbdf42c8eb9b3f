// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/rpc/address.h"
#include "common/rpc/client_inside.h"
#include "common/rpc/method.h"

// So long a unix socket may take nothing of what is written to it, and so often that is looked at.
enum { STUCK_MS = 2000, STUCK_LOOK_MS = 1000 };
enum { LENT_BYTES = 2048 };  // of what is shorter the core has a copy

void ps_client_call(struct ps_client *c, uint32_t task, int method, const struct ps_call_options *options,
                    struct ps_slices *request, ps_reply_fn reply, void *arg)
{
    struct ps__peer *peer = &c->peers[task];
    struct ps__pending *p = ps_alloc(sizeof *p);
    struct ps_releases releases;
    p->reply = reply;
    p->arg = arg;
    p->method = method;
    p->deadline = options->deadline;
    p->priority = options->priority;
    ps_slices_move(&p->request, request);
    p->lends = p->request.len > LENT_BYTES;
    p->tls = c->options.tls;

    ps_releases_begin(&releases);
    if (p->request.len > PS_BODY_MAX)
        ps__pending_end_later(c, p, PS_INVALID_ARGUMENT,
                              ps_printf("%s: a request of %zu bytes, at most %d are accepted", ps_method_name(method),
                                        p->request.len, PS_BODY_MAX));
    else if (options->stream && ps_method_streams(method) && !ps_method_is_control(method))
        ps__stream_call(peer, p);
    else
        ps__unary_call(peer, p);
    ps_releases_end();

    if (releases.n) {
        pthread_mutex_lock(&c->lock);
        ps_releases_move(&c->released, &releases);
        pthread_mutex_unlock(&c->lock);
        ps__client_poke(c, 0);
    }
}

void ps_client_open(struct ps_client *c, uint32_t task, int method, struct ps_slice request)
{
    struct ps__peer *peer = &c->peers[task];
    pthread_mutex_lock(&c->lock);
    struct ps_slice before = peer->opening;
    peer->opening = request;
    peer->opening_method = method;
    peer->openings++;
    pthread_mutex_unlock(&c->lock);
    ps_slice_unref(before);
}

// ---- timers: a binary heap ----------------------------------------------------------------------------------------

static void timer_push(struct ps_client *c, struct ps__timer t)  // locked
{
    if (c->n_timers == c->cap_timers) {
        c->cap_timers = c->cap_timers ? 2 * c->cap_timers : 16;
        c->timers = ps_realloc(c->timers, c->cap_timers * sizeof *c->timers);
    }
    size_t i = c->n_timers++;
    for (; i && t.at < c->timers[(i - 1) / 2].at; i = (i - 1) / 2)
        c->timers[i] = c->timers[(i - 1) / 2];
    c->timers[i] = t;
}

static struct ps__timer timer_pop(struct ps_client *c)  // locked
{
    struct ps__timer first = c->timers[0], last = c->timers[--c->n_timers];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < c->n_timers) {
        if (child + 1 < c->n_timers && c->timers[child + 1].at < c->timers[child].at)
            child++;
        if (last.at <= c->timers[child].at)
            break;
        c->timers[i] = c->timers[child];
        i = child;
    }
    c->timers[i] = last;
    return first;
}

void ps_client_after(struct ps_client *c, uint64_t delay_ns, void (*fn)(void *arg), void *arg)
{
    struct ps__timer t = {ps_now() + delay_ns, fn, arg};
    pthread_mutex_lock(&c->lock);
    timer_push(c, t);
    pthread_mutex_unlock(&c->lock);
    ps__client_poke(c, t.at);
}

static void client_run_timers(struct ps_client *c, uint64_t now)
{
    pthread_mutex_lock(&c->lock);
    while (!c->stopping && c->n_timers && c->timers[0].at <= now) {
        struct ps__timer t = timer_pop(c);
        pthread_mutex_unlock(&c->lock);
        t.fn(t.arg);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

// ---- the thread ---------------------------------------------------------------------------------------------------

static void client_on_wake(struct ps_event *ev, bool ok)
{
    (void)ok;
    struct ps_client *c = PS_CONTAINER(ev, struct ps_client, on_wake);
    pthread_mutex_lock(&c->lock);
    c->waking = false;
    pthread_mutex_unlock(&c->lock);
}

// Tells what ended without the core and drops what calls left to drop. True: there was something.
static bool client_report_ended(struct ps_client *c)
{
    struct ps__pendings ended = TAILQ_HEAD_INITIALIZER(ended);
    struct ps_releases released = {0};
    struct ps_slices none = PS_SLICES_EMPTY;
    struct ps__pending *p;
    pthread_mutex_lock(&c->lock);
    TAILQ_CONCAT(&ended, &c->ended, link);
    ps_releases_move(&released, &c->released);
    pthread_mutex_unlock(&c->lock);

    bool some = released.n || !TAILQ_EMPTY(&ended);
    ps_releases_run(&released);
    while ((p = TAILQ_FIRST(&ended))) {
        TAILQ_REMOVE(&ended, p, link);
        p->reply(p->arg, p->code, p->text, &none);
        ps__pending_free(p);
    }
    return some;
}

// Cancels what is under way, and closes the queue once nothing is. Then it shuts down by itself.
static void client_stop_all(struct ps_client *c)
{
    ps__unary_cancel_all(c);
    ps__streams_cancel(c);
    pthread_mutex_lock(&c->lock);
    bool close = !c->closed && TAILQ_EMPTY(&c->unaries) && TAILQ_EMPTY(&c->ended);
    for (size_t i = 0; i < c->n_peers; i++)
        close &= !c->peers[i].stream;
    c->closed |= close;
    pthread_mutex_unlock(&c->lock);
    if (close)
        ps_cq_close(&c->cq);
}

static uint64_t client_next_due(const struct ps_client *c)  // locked
{
    uint64_t next = ps__streams_soonest(c);
    if (c->n_timers && !c->stopping && c->timers[0].at < next)
        next = c->timers[0].at;
    if (c->connects_until > ps_now() && c->connects_until < next)
        next = c->connects_until;
    if (c->has_unix && c->looks_at < next)
        next = c->looks_at;
    return c->released.n || !TAILQ_EMPTY(&c->ended) ? 0 : next;
}

// The core holds what it writes until the write has ended, whatever becomes of the call; and while one is under way no
// ping is sent whose answer could be missed. TCP ends it by TCP_USER_TIMEOUT, which the core sets to the keepalive's. A
// unix socket never does where a peer neither reads nor goes: so we do, once the time of a call is over whose bytes may
// be among them. Before that the peer may have no room, and read on later.
static void client_look_for_stuck(struct ps_client *c, uint64_t now)
{
    if (!c->has_unix || now < c->looks_at)
        return;
    c->looks_at = now + STUCK_LOOK_MS * PS_MS;
    for (size_t i = 0; i < c->n_peers; i++) {
        struct ps__peer *peer = &c->peers[i];
        const unsigned back = atomic_load(&peer->loans.back);
        if (!atomic_load(&peer->loans.out) || back != peer->back) {
            peer->gave_up &= atomic_load(&peer->loans.out) > 0;
            peer->back = back;
            peer->back_since = now;
        } else if (peer->gave_up && now - peer->back_since >= STUCK_MS * PS_MS) {
            ps_address_break(peer->address);
            peer->back_since = now;
        }
    }
}

// All that is due. Returns when to come back: who adds something that is due sooner, rings.
static uint64_t client_run_due(struct ps_client *c)
{
    uint64_t now = ps_now();
    while (client_report_ended(c))
        continue;
    client_run_timers(c, now);
    ps__streams_expire(c, now);
    ps__channels_look(c, now);
    client_look_for_stuck(c, now);
    pthread_mutex_lock(&c->lock);
    bool stopping = c->stopping, cuts = c->cuts;
    c->cuts = false;
    uint64_t next = c->wake = client_next_due(c);
    pthread_mutex_unlock(&c->lock);
    if (stopping)
        client_stop_all(c);
    else if (cuts)
        ps__streams_cancel(c);
    return next;
}

static bool client_has_work(const struct ps_client *c)  // locked
{
    bool some = c->stopping || c->n_timers || c->released.n || !TAILQ_EMPTY(&c->ended) || !TAILQ_EMPTY(&c->unaries) ||
                c->connects_until > ps_now();
    for (size_t i = 0; i < c->n_peers && !some; i++)
        some = c->peers[i].stream || (c->peers[i].is_unix && atomic_load(&c->peers[i].loans.out));
    return some;
}

// Does not poll while nothing is under way, an attempt to connect included: a call ends at once where the last attempt
// has failed, and the core makes the next one by itself, which fails, too, where nobody polls. In the core one thread
// of the process polls for all: were it this one, in a psd whose peers are silent, each event of the server would be
// met here and cost a switch of threads.
static void client_await_work(struct ps_client *c)
{
    pthread_mutex_lock(&c->lock);
    while (!client_has_work(c))
        pthread_cond_wait(&c->work, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

// Once all calls have been told, what may be left are messages stuck in the socket of a peer that neither reads nor
// goes. TCP gives up on it after the keepalive's 2 s, and we on a unix socket: client_look_for_stuck. Should that be of
// no use, the client is left as it is.
static void *client_thread(void *arg)
{
    const uint64_t patience = (STUCK_MS + 2 * STUCK_LOOK_MS) * PS_MS;
    struct ps_client *c = arg;
    uint64_t give_up = UINT64_MAX;
    enum ps_cq_step step;
    do {
        client_await_work(c);
        uint64_t next = client_run_due(c);
        if (c->closed && give_up == UINT64_MAX)
            give_up = ps_now() + patience;
        step = ps_cq_step(&c->cq, next < give_up ? next : give_up);
        c->stuck = step == PS_CQ_TIMEOUT && ps_now() >= give_up;
    } while (step != PS_CQ_SHUTDOWN && !c->stuck);
    return NULL;
}

// ---- start and end ------------------------------------------------------------------------------------------------

static grpc_call *client_call_nowhere(struct ps_client *c)
{
    c->nowhere = grpc_lame_client_channel_create("nowhere", GRPC_STATUS_UNAVAILABLE, "never called");
    return grpc_channel_create_call(c->nowhere, NULL, 0, c->cq.queue, grpc_slice_from_static_string("/"), NULL,
                                    ps_timespec(UINT64_MAX), NULL);
}

static struct ps_client *client_create(const char *const *addresses, size_t n, const struct ps_client_options *options)
{
    struct ps_client *c = ps_alloc(sizeof *c);
    if (options)
        c->options = *options;
    c->options.attempt_ms = c->options.attempt_ms ? c->options.attempt_ms : PS_CLIENT_ATTEMPT_MS;
    c->options.to = c->options.to ? c->options.to : PS_ROLE_PSD;
    if (c->options.munge)
        ps_munge_ref(c->options.munge);
    if (c->options.tls)
        c->tls_version = ps_tls_version(c->options.tls);
    ps__client_keep_grpc_quiet();
    ps_cq_init(&c->cq);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    TAILQ_INIT(&c->unaries);
    TAILQ_INIT(&c->ended);
    c->on_wake.fn = client_on_wake;
    c->waker = client_call_nowhere(c);
    c->peers = ps_alloc(n * sizeof *c->peers);
    c->n_peers = n;
    for (size_t i = 0; i < n; i++)
        ps__peer_init(&c->peers[i], c, addresses[i]);
    const int failed = pthread_create(&c->thread, NULL, client_thread, c);
    c->has_thread = failed == 0;
    if (c->has_thread)
        return c;
    ps_client_stop(c);
    ps_client_destroy(c);
    errno = failed;
    return NULL;
}

// The program may not be ours: signals are for its own threads. Those of the core, too, inherit what is blocked.
struct ps_client *ps_client_create(const char *const *addresses, size_t n, const struct ps_client_options *options)
{
    sigset_t before;
    ps_thread_block_signals(&before);
    struct ps_client *c = client_create(addresses, n, options);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return c;
}

void ps_client_stop(struct ps_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_mutex_unlock(&c->lock);
    ps__client_poke(c, 0);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    else
        client_thread(c);
    for (size_t i = 0; i < c->n_peers; i++)
        ps__peer_stop(&c->peers[i]);
    while (client_report_ended(c))  // what came in while it ended
        continue;
    for (size_t i = 0; i < c->n_peers; i++) {
        if (!ps_loans_wait(&c->peers[i].loans, STUCK_LOOK_MS))
            ps_address_break(c->peers[i].address);
        c->stuck |= !ps_loans_settle(&c->peers[i].loans);
    }
}

void ps_client_destroy(struct ps_client *c)
{
    if (c->stuck)
        return;  // the core will still write to it
    grpc_call_unref(c->waker);
    grpc_channel_destroy(c->nowhere);
    ps_cq_fini(&c->cq);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    for (size_t i = 0; i < c->n_peers; i++)
        ps__peer_fini(&c->peers[i]);
    ps_munge_close(c->options.munge);
    free(c->peers);
    free(c->timers);
    free(c);
}
