// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/math/philox.h"
#include "common/wire/wire.h"
#include "psd/service/service.h"

// A process that is stopped, or has no processor, until then: what happens to it meanwhile happens afterwards.
struct sleeper {
    uint64_t until;
};

struct event {
    uint64_t at, order;  // events of one time happen in the order in which they were made
    void (*fn)(void *arg);
    void *arg;
    struct client *owner;           // whose death forgets it; NULL: nobody's
    const struct sleeper *sleeper;  // who must be awake for it; NULL: nobody
};

// One process on the client's side.
struct client {
    struct sim *sim;
    bool dead;
    bool loose;  // every call is on its own, and may overtake another
    struct sleeper sleeper;
    struct connection *connections;  // [ps]
    LIST_HEAD(, call) waiting;       // calls without an answer
    struct client *next;
};

struct tick {
    struct sim *sim;
    uint32_t task;
    uint64_t squeezed_until;  // the psd is short of memory until then
};

struct connection {
    // When the last message there, and back, of each priority arrives: later ones arrive later, unless they go before.
    uint64_t arrives[2][SIM_PRIORITIES];
    uint64_t serial;          // grows with every cut
    struct ps_slice opening;  // what it begins with; empty: nothing
    int opening_method;
    bool opened;            // that has been sent since it was set, and since the last cut
    struct stream *stream;  // since then; NULL: nothing has been sent
};

// What a psd keeps for a connection. Requests of one that was cut may arrive later: they are still of that stream.
struct stream {
    int refs;  // the connection's, and one per call
    struct psd_session *session;
};

// A call on its way, in the hands of a psd, or on its way back. It lives until all of these are over.
struct call {
    struct psd_call psd;  // first: the psd gives this pointer back
    struct client *client;
    uint32_t task, priority;
    uint64_t serial;        // of the connection it was made on
    struct stream *stream;  // likewise; NULL: the call is on its own
    bool answered;          // reply has run, or never will
    bool opens;             // it is the opening of its connection
    LIST_ENTRY(call) link;
    int refs;
    uint64_t note;  // of who watches
    psc_reply_fn reply;
    void *arg;
    enum ps_code code;
    char text[512];
    struct ps_slices body;
};

struct sim {
    uint64_t seed, draws, now, orders, events, digest;
    struct sim_faults faults;
    uint32_t ps;
    struct psd_core **cores;
    struct sleeper *sleepers;  // [ps]
    uint32_t *parked;          // [ps] calls that a psd has and has not answered
    struct tick *ticks;        // [ps]
    sim_watch_fn watch;
    void *watch_arg;
    struct event *heap;
    size_t n_events, cap_events;
    struct client *clients;
    struct client *peers;  // what the psds themselves send goes through this one
};

// ---- chance and time ----------------------------------------------------------------------------------------------

uint64_t sim_random(struct sim *sim)
{
    uint32_t w[4];
    ps_philox(sim->seed, PS_RANDOM_DELAY, UINT64_MAX, sim->draws++, w);
    return (uint64_t)w[0] << 32 | w[1];
}

static bool happens(struct sim *sim, double probability)
{
    return probability > 0 && (double)(sim_random(sim) >> 11) * 0x1p-53 < probability;
}

static uint64_t some_delay(struct sim *sim)
{
    return 1000 + (sim->faults.delay ? sim_random(sim) % sim->faults.delay : 0);
}

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push_event(struct sim *sim, struct event e)
{
    if (sim->n_events == sim->cap_events) {
        sim->cap_events = sim->cap_events ? 2 * sim->cap_events : 64;
        sim->heap = ps_realloc(sim->heap, sim->cap_events * sizeof *sim->heap);
    }
    size_t i = sim->n_events++;
    for (; i && before(&e, &sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = e;
}

static struct event pop_event(struct sim *sim)
{
    struct event top = sim->heap[0], last = sim->heap[--sim->n_events];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < sim->n_events) {
        if (child + 1 < sim->n_events && before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!before(&sim->heap[child], &last))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return top;
}

static void at(struct sim *sim, uint64_t when, const struct sleeper *sleeper, struct client *owner, void (*fn)(void *),
               void *arg)
{
    push_event(sim, (struct event){when, sim->orders++, fn, arg, owner, sleeper});
}

void sim_after(struct sim *sim, uint64_t delay, void (*fn)(void *), void *arg)
{
    at(sim, sim->now + delay, NULL, NULL, fn, arg);
}

static void sim_release_psd(struct sim *sim, uint32_t task)
{
    sim->cores[task]->pool.limit = sim->cores[task]->config.memory_bytes;
}

void sim_calm(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->ps; i++)
        sim_release_psd(sim, i);
    sim->faults = (struct sim_faults){.delay = sim->faults.delay};
}

uint32_t sim_parked(const struct sim *sim, uint32_t task)
{
    return sim->parked[task];
}

uint64_t sim_now(const struct sim *sim)
{
    return sim->now;
}

uint64_t sim_events(const struct sim *sim)
{
    return sim->events;
}

uint64_t sim_digest(const struct sim *sim)
{
    return sim->digest;
}

static void digest(struct sim *sim, const struct ps_slices *message, uint64_t what)
{
    uint64_t h = sim->digest ^ what ^ sim->now;
    for (size_t i = 0; i < message->n; i++)
        for (size_t k = 0, n; k < message->v[i].len; k += n) {
            uint64_t word = 0;
            n = message->v[i].len - k < sizeof word ? message->v[i].len - k : sizeof word;
            memcpy(&word, message->v[i].data + k, n);
            h = (h ^ word) * UINT64_C(0x100000001b3);
            h ^= h >> 32;
        }
    sim->digest = h * UINT64_C(0x9E3779B97F4A7C15);
}

// ---- calls --------------------------------------------------------------------------------------------------------

static void stream_unref(struct stream *s)
{
    if (!s || --s->refs)
        return;
    psd_session_close(s->session);
    free(s);
}

static struct stream *stream_ref(struct stream *s)
{
    if (s)
        s->refs++;
    return s;
}

static void call_unref(struct call *c)
{
    if (--c->refs)
        return;
    stream_unref(c->stream);
    ps_slices_clear(&c->psd.request);
    ps_slices_clear(&c->body);
    free(c);
}

static void answer(struct call *c, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct ps_slices none = PS_SLICES_EMPTY;
    if (c->answered || c->client->dead)
        return;
    c->answered = true;
    LIST_REMOVE(c, link);
    c->reply(c->arg, code, text, body ? body : &none);
    if (body)
        ps_slices_clear(body);
    call_unref(c);
}

static struct connection *connection_of(const struct call *c)
{
    return &c->client->connections[c->task];
}

static bool is_cut(const struct call *c)
{
    return c->client->dead || connection_of(c)->serial != c->serial;
}

// Events hold a reference on their call.
static void later(struct call *c, uint64_t when, void (*fn)(void *))
{
    c->refs++;
    at(c->client->sim, when, &c->client->sleeper, NULL, fn, c);
}

static void watch(struct call *c, const struct ps_slices *message, bool answered, enum ps_code code)
{
    const struct sim *sim = c->client->sim;
    const struct sim_seen seen = {c->task, c->psd.method, message, answered, c->client->loose, code, &c->note};
    if (sim->watch && c->client != sim->peers)
        sim->watch(sim->watch_arg, &seen);
}

static void on_lost(void *arg)
{
    struct call *c = arg;
    answer(c, PS_UNAVAILABLE, "connection lost", NULL);
    call_unref(c);
}

static void on_timeout(void *arg)
{
    struct call *c = arg;
    answer(c, PS_DEADLINE_EXCEEDED, "deadline exceeded", NULL);
    call_unref(c);
}

static void on_answered(void *arg)
{
    struct call *c = arg;
    if (c->opens && c->code && !is_cut(c))
        connection_of(c)->opened = false;
    if (is_cut(c)) {
        answer(c, PS_UNAVAILABLE, "connection lost", NULL);
    } else {
        digest(c->client->sim, &c->body, c->task * 2 + 1);
        answer(c, c->code, c->text, &c->body);
    }
    call_unref(c);
}

static uint64_t next_arrival(struct call *c, int direction)
{
    struct sim *sim = c->client->sim;
    uint64_t *last = connection_of(c)->arrives[direction], when = sim->now + some_delay(sim);
    for (uint32_t p = 0; p < SIM_PRIORITIES; p++)
        if (!ps_goes_before(c->priority, p) && last[p] >= when)
            when = last[p] + 1;
    return last[c->priority] = when;
}

// Most messages take their usual time; one in eight of those that are on their own takes seconds.
static uint64_t loose_arrival(struct sim *sim)
{
    uint64_t when = sim->now + some_delay(sim);
    return sim->faults.late && happens(sim, 0.125) ? when + sim_random(sim) % sim->faults.late : when;
}

// The psd's answer sets out on its way back.
static void psd_replied(struct psd_call *psd, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct call *c = (struct call *)psd;
    struct sim *sim = c->client->sim;
    sim->parked[c->task]--;
    watch(c, body, true, code);
    c->code = code;
    memcpy(c->text, text, strlen(text) < sizeof c->text ? strlen(text) + 1 : sizeof c->text - 1);
    ps_slices_move(&c->body, body);
    if (c->client->loose && happens(sim, sim->faults.lose))
        later(c, sim->now + some_delay(sim), on_lost);
    else if (c->client->loose)
        later(c, loose_arrival(sim), on_answered);
    else if (is_cut(c))
        later(c, c->client->sim->now + some_delay(c->client->sim), on_lost);
    else
        later(c, next_arrival(c, 1), on_answered);
    call_unref(c);
}

static void on_arrived(void *arg)
{
    struct call *c = arg;  // its reference passes to the psd
    struct sim *sim = c->client->sim;
    digest(sim, &c->psd.request, c->task * 2);
    watch(c, &c->psd.request, false, PS_OK);
    sim->parked[c->task]++;
    c->psd.session = c->stream ? &c->stream->session : NULL;
    psd_core_call(sim->cores[c->task], &c->psd);
}

// False: no memory (tests/nomem), *to is empty.
static bool copy_message(struct ps_slices *to, const struct ps_slices *from)
{
    uint8_t *bytes;
    ps_slices_add(to, ps_slice_new(from->len, &bytes));
    if (to->len == from->len)
        ps_slices_copy_out(from, 0, from->len, bytes);
    else
        ps_slices_clear(to);
    return to->len == from->len;
}

// Its reference passes on. The psd may be asleep when it arrives.
static void arrives(struct call *c, uint64_t when)
{
    at(c->client->sim, when, &c->client->sim->sleepers[c->task], NULL, on_arrived, c);
}

// A request that the network delivers a second time: bytes of its own, and nobody waits for what becomes of it.
static void repeat(const struct call *c)
{
    struct sim *sim = c->client->sim;
    struct call *copy = ps_alloc(sizeof *copy);
    *copy = (struct call){
        .client = c->client, .task = c->task, .stream = stream_ref(c->stream), .answered = true, .refs = 1};
    copy->psd = (struct psd_call){.method = c->psd.method, .deadline = c->psd.deadline, .reply = psd_replied};
    if (!copy_message(&copy->psd.request, &c->psd.request)) {
        call_unref(copy);
        return;
    }
    arrives(copy, sim->now + 20 * some_delay(sim) + (sim->faults.late ? sim_random(sim) % sim->faults.late : 0));
}

// The client's memory is let go of: what is on its way is a copy. False: no memory, and it is lost.
static bool call_let_go(struct call *c)
{
    struct ps_slices own = PS_SLICES_EMPTY;
    const bool copied = copy_message(&own, &c->psd.request);
    ps_slices_clear(&c->psd.request);
    ps_slices_move(&c->psd.request, &own);
    return copied;
}

// A call of its own: the request may be lost, late, or come twice, whatever the caller hears of it.
static void send_loose(struct call *c)
{
    struct sim *sim = c->client->sim;
    const bool copied = call_let_go(c);
    if (copied && happens(sim, sim->faults.repeat))
        repeat(c);
    if (!copied || happens(sim, sim->faults.lose)) {
        later(c, sim->now + some_delay(sim), on_lost);
        call_unref(c);
        return;
    }
    if (happens(sim, sim->faults.lose))  // the caller believes so, and it arrives
        later(c, sim->now + some_delay(sim), on_lost);
    arrives(c, loose_arrival(sim));
}

// The connection breaks under this call: calls before it may still arrive, this one does or does not, and its answer
// never comes.
static void cut(struct call *c)
{
    struct sim *sim = c->client->sim;
    struct connection *conn = connection_of(c);
    bool delivered = happens(sim, 0.5);
    if (happens(sim, sim->faults.repeat))
        repeat(c);
    conn->serial++;
    conn->opened = false;
    stream_unref(conn->stream);
    conn->stream = NULL;
    later(c, sim->now + some_delay(sim), on_lost);
    if (delivered) {
        arrives(c, next_arrival(c, 0));
        return;
    }
    ps_slices_clear(&c->psd.request);  // the client's memory is let go of
    call_unref(c);
}

static void world_open(void *ctx, uint32_t task, int method, struct ps_slice request)
{
    struct client *client = ctx;
    struct connection *conn = &client->connections[task];
    ps_slice_unref(conn->opening);
    conn->opening = request;
    conn->opening_method = method;
    conn->opened = false;
}

// The first call over a connection, and the first one after its opening was set, have it sent before them.
static void open_connection(struct client *client, uint32_t task)
{
    struct connection *conn = &client->connections[task];
    if (!conn->stream) {
        conn->stream = ps_alloc(sizeof *conn->stream);
        conn->stream->refs = 1;
    }
    if (conn->opened || !conn->opening.len)
        return;
    struct call *c = ps_alloc(sizeof *c);
    *c = (struct call){.client = client, .task = task, .stream = stream_ref(conn->stream), .answered = true, .refs = 1};
    c->opens = true;
    c->psd = (struct psd_call){.method = conn->opening_method, .deadline = UINT64_MAX, .reply = psd_replied};
    c->serial = conn->serial;
    c->psd.request = (struct ps_slices){ps_alloc(sizeof(struct ps_slice)), 1, 1, conn->opening.len, false};
    c->psd.request.v[0] = ps_slice_ref(conn->opening);
    conn->opened = true;
    arrives(c, next_arrival(c, 0));
}

static void world_call(void *ctx, uint32_t task, int method, uint32_t priority, uint64_t deadline,
                       struct ps_slices *request, psc_reply_fn reply, void *arg)
{
    struct client *client = ctx;
    struct sim *sim = client->sim;
    if (priority >= SIM_PRIORITIES)
        abort();
    if (!client->loose)
        open_connection(client, task);
    struct call *c = ps_alloc(sizeof *c);
    // One reference is the way's, one of the list: a dead client's calls wait in it for its world's shutdown.
    *c = (struct call){.client = client, .task = task, .priority = priority, .refs = 2, .reply = reply, .arg = arg};
    c->stream = client->loose ? NULL : stream_ref(client->connections[task].stream);
    LIST_INSERT_HEAD(&client->waiting, c, link);
    c->serial = client->connections[task].serial;
    c->psd = (struct psd_call){.method = method, .deadline = UINT64_MAX, .reply = psd_replied};
    ps_slices_move(&c->psd.request, request);
    if (deadline != UINT64_MAX) {
        uint64_t left = deadline > sim->now ? (deadline - sim->now) / PS_MS : 0;
        c->psd.deadline = sim->now + (left ? left : 1) * PS_MS;
        later(c, c->psd.deadline + some_delay(sim), on_timeout);
    }
    if (client->loose)
        send_loose(c);
    else if (happens(sim, sim->faults.cut))
        cut(c);
    else
        arrives(c, next_arrival(c, 0));
}

// ---- worlds -------------------------------------------------------------------------------------------------------

static uint64_t world_now(void *ctx)
{
    return ((struct client *)ctx)->sim->now;
}

static void world_after(void *ctx, uint64_t delay, void (*fn)(void *), void *arg)
{
    struct client *client = ctx;
    at(client->sim, client->sim->now + delay, &client->sleeper, client, fn, arg);
}

static uint64_t world_random(void *ctx)
{
    return sim_random(((struct client *)ctx)->sim);
}

static void world_shutdown(void *ctx)
{
    struct client *client = ctx;
    struct call *c;
    client->dead = false;  // of one that was killed, too, the calls end now
    while ((c = LIST_FIRST(&client->waiting))) {
        call_let_go(c);
        answer(c, PS_CANCELLED, "shut down", NULL);
    }
    client->dead = true;
}

static void world_destroy(void *ctx)
{
    (void)ctx;  // the simulation frees it: messages may still be on their way
}

struct psc_world sim_world(struct sim *sim)
{
    struct client *client = ps_alloc(sizeof *client);
    client->sim = sim;
    client->connections = ps_alloc(sim->ps * sizeof *client->connections);
    client->next = sim->clients;
    sim->clients = client;
    return (struct psc_world){.ctx = client,
                              .call = world_call,
                              .open = world_open,
                              .now = world_now,
                              .after = world_after,
                              .random = world_random,
                              .shutdown = world_shutdown,
                              .destroy = world_destroy};
}

void sim_world_loosen(const struct psc_world *world)
{
    ((struct client *)world->ctx)->loose = true;
}

// One that sleeps does not wake sooner for it: what it has put off comes in order.
static void fall_asleep(struct sleeper *s, uint64_t until)
{
    s->until = until > s->until ? until : s->until;
}

void sim_stall(const struct psc_world *world, uint64_t delay)
{
    struct client *client = world->ctx;
    fall_asleep(&client->sleeper, client->sim->now + delay);
}

void sim_stall_psd(struct sim *sim, uint32_t task, uint64_t delay)
{
    fall_asleep(&sim->sleepers[task], sim->now + delay);
}

static void on_squeeze_over(void *arg)
{
    struct tick *tick = arg;
    if (tick->sim->now >= tick->squeezed_until)
        sim_release_psd(tick->sim, tick->task);
}

void sim_squeeze_psd(struct sim *sim, uint32_t task, uint64_t delay)
{
    struct psd_pool *pool = &sim->cores[task]->pool;
    pool->limit = psd_pool_used(pool);
    sim->ticks[task].squeezed_until = sim->now + delay;
    sim_after(sim, delay, on_squeeze_over, &sim->ticks[task]);
}

void sim_watch(struct sim *sim, sim_watch_fn fn, void *arg)
{
    sim->watch = fn;
    sim->watch_arg = arg;
}

void sim_kill(struct sim *sim, const struct psc_world *world)
{
    (void)sim;
    ((struct client *)world->ctx)->dead = true;
}

// ---- the psds' world ----------------------------------------------------------------------------------------------

static uint64_t sim_psd_now(void *ctx)
{
    return ((struct sim *)ctx)->now;
}

static uint64_t psd_random(void *ctx)
{
    return sim_random(ctx);
}

static uint64_t psd_resident(void *ctx)
{
    (void)ctx;
    return 0;
}

static uint64_t psd_queued(void *ctx)
{
    (void)ctx;
    return 0;
}

// What waits for the answer to a message from one psd to another.
struct peer_call {
    void (*done)(void *, enum ps_code, const struct ps_slices *);
    void *arg;
};

static void peer_replied(void *arg, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct peer_call *p = arg;
    (void)text;
    p->done(p->arg, code, body);
    free(p);
}

static void psd_send(void *ctx, uint32_t task, int method, struct ps_slices *request,
                     void (*done)(void *, enum ps_code, const struct ps_slices *), void *arg)
{
    struct sim *sim = ctx;
    struct peer_call *p = ps_alloc(sizeof *p);
    p->done = done;
    p->arg = arg;
    world_call(sim->peers, task, method, 0, 1000, request, peer_replied, p);
}

static void on_tick(void *arg)
{
    struct tick *tick = arg;
    struct sim *sim = tick->sim;
    psd_core_tick(sim->cores[tick->task]);
    at(sim, sim->now + 50 * PS_MS, &sim->sleepers[tick->task], NULL, on_tick, tick);
}

// ---- the whole ----------------------------------------------------------------------------------------------------

struct sim *sim_create(uint64_t seed, uint32_t ps, const struct sim_faults *faults, uint64_t memory)
{
    struct sim *sim = ps_alloc(sizeof *sim);
    struct psd_world world = {.ctx = sim,
                              .now = sim_psd_now,
                              .random = psd_random,
                              .resident = psd_resident,
                              .queued = psd_queued,
                              .send = psd_send};
    sim->seed = seed;
    sim->now = PS_SECOND;
    sim->ps = ps;
    sim->faults = *faults;
    sim->cores = ps_alloc(ps * sizeof(struct psd_core *));
    sim->sleepers = ps_alloc(ps * sizeof *sim->sleepers);
    sim->parked = ps_alloc(ps * sizeof *sim->parked);
    sim->ticks = ps_alloc(ps * sizeof *sim->ticks);
    sim->peers = sim_world(sim).ctx;
    sim->peers->loose = true;
    for (uint32_t i = 0; i < ps; i++) {
        struct psd_config config = {
            .task = i, .tasks = ps, .memory_bytes = memory, .heartbeat_ms = 500, .dead_after_ms = 3000};
        psd_core_create(&config, &world, &sim->cores[i], NULL);
        sim->ticks[i] = (struct tick){sim, i, 0};
        at(sim, sim->now + 50 * PS_MS, &sim->sleepers[i], NULL, on_tick, &sim->ticks[i]);
    }
    return sim;
}

uint32_t sim_tasks(const struct sim *sim)
{
    return sim->ps;
}

struct psd_core *sim_core(struct sim *sim, uint32_t task)
{
    return sim->cores[task];
}

bool sim_run(struct sim *sim, bool (*done)(void *), void *arg, uint64_t until)
{
    while (!done(arg)) {
        if (sim->n_events == 0 || sim->now > until)
            return false;
        struct event e = pop_event(sim);
        sim->now = e.at;
        sim->events++;
        if (e.sleeper && e.sleeper->until > e.at) {
            e.at = e.sleeper->until;
            push_event(sim, e);  // in its old order, however often the sleeper is put to sleep again
        } else if (!e.owner || !e.owner->dead) {
            e.fn(e.arg);
        }
    }
    return true;
}

// Calls that are on their way end where they are; those that a psd has parked are answered by its draining.
void sim_destroy(struct sim *sim)
{
    for (struct client *c = sim->clients; c; c = c->next)
        c->dead = c != sim->peers;
    for (uint32_t i = 0; i < sim->ps; i++)
        psd_core_drain(sim->cores[i]);
    while (sim->n_events) {
        struct event e = pop_event(sim);
        sim->now = e.at;
        if (e.fn == on_arrived || e.fn == on_answered || e.fn == on_lost || e.fn == on_timeout)
            e.fn(e.arg);
    }
    for (uint32_t i = 0; i < sim->ps; i++)
        psd_core_destroy(sim->cores[i]);
    while (sim->clients) {
        struct client *c = sim->clients;
        sim->clients = c->next;
        for (uint32_t i = 0; i < sim->ps; i++) {
            ps_slice_unref(c->connections[i].opening);
            stream_unref(c->connections[i].stream);
        }
        free(c->connections);
        free(c);
    }
    free(sim->ticks);
    free(sim->sleepers);
    free(sim->parked);
    free(sim->cores);
    free(sim->heap);
    free(sim);
}
