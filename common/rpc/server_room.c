// SPDX-License-Identifier: Apache-2.0
//
// Room for what is in flight. Whoever wants to receive a message asks; where there is none it queues up and is told
// later, by a thread that polls.
//
// How large a message will be is not known before it is there, and once one has begun to arrive the core takes all of
// it. So a receiver is charged what it brought last time. One that brings nothing for a while is idle: it goes on
// receiving, and its charge is lifted.
#include "common/base/clock.h"
#include "common/rpc/server_inside.h"

// Silence that lifts a charge.
static const uint64_t idle_ns = PS_SECOND;

// How long a client may leave its answers unread while others have no room for theirs.
static const uint64_t deaf_ns = 10 * PS_SECOND;

// Who may not wait for room is let in beyond it, so many at a time.
enum { BEYOND = 4 };

void ps__room_init(struct ps__room *room, size_t bytes)
{
    *room = (struct ps__room){.bytes = bytes};
    pthread_mutex_init(&room->lock, NULL);
    TAILQ_INIT(&room->waiting);
    TAILQ_INIT(&room->charged);
    TAILQ_INIT(&room->sending);
}

void ps__room_fini(struct ps__room *room)
{
    pthread_mutex_destroy(&room->lock);
}

bool ps__room_take_calls(struct ps__room *room, size_t n, size_t bytes)
{
    size_t calls = atomic_fetch_add(&room->calls, n) + n;
    return atomic_fetch_add(&room->call_bytes, bytes) + bytes <= room->bytes / 4 && calls <= PS_SERVER_CALLS;
}

void ps__room_return_calls(struct ps__room *room, size_t n, size_t bytes)
{
    atomic_fetch_sub(&room->calls, n);
    atomic_fetch_sub(&room->call_bytes, bytes);
}

bool ps__room_has_calls(const struct ps__room *room)
{
    return atomic_load(&room->call_bytes) < room->bytes / 4 && atomic_load(&room->calls) < PS_SERVER_CALLS;
}

bool ps__room_take_lane(struct ps__room *room)
{
    if ((atomic_fetch_add(&room->lane, 1) + 1) * PS__UNARY_BYTES <= room->bytes / 16)
        return true;
    ps__room_return_lane(room);
    return false;
}

void ps__room_return_lane(struct ps__room *room)
{
    atomic_fetch_sub(&room->lane, 1);
}

bool ps__room_has_answers(const struct ps__room *room)
{
    return atomic_load(&room->answers) < room->bytes / 2;
}

bool ps__room_is_full(const struct ps__room *room)
{
    return atomic_load(&room->requests) > room->bytes / 4 * 3;
}

size_t ps__room_used(const struct ps__room *room)
{
    return atomic_load(&room->requests) + atomic_load(&room->call_bytes) + atomic_load(&room->answers) +
           atomic_load(&room->lane) * PS__UNARY_BYTES;
}

// ---- receiving ----------------------------------------------------------------------------------------------------

static bool room_fits(const struct ps__room *room, const struct ps__receiver *r)  // locked
{
    return atomic_load(&room->requests) + room->expected + r->expected <= room->bytes / 2;
}

static void room_begin(struct ps__room *room, struct ps__receiver *r, uint64_t now)  // locked
{
    r->since = now;
    r->charged = true;
    room->expected += r->expected;
    TAILQ_INSERT_TAIL(&room->charged, r, link);
}

static void room_lift_charge(struct ps__room *room, struct ps__receiver *r)  // locked
{
    if (!r->charged)
        return;
    room->expected -= r->expected;
    room->beyond -= r->beyond;
    r->charged = r->beyond = false;
    TAILQ_REMOVE(&room->charged, r, link);
}

bool ps__room_ask(struct ps__room *room, struct ps__receiver *r, size_t own, size_t expected)
{
    r->own = own;
    r->expected = expected;
    pthread_mutex_lock(&room->lock);
    bool go = room->open || (TAILQ_EMPTY(&room->waiting) && room_fits(room, r));
    if (go) {
        room_begin(room, r, ps_now());
    } else {
        TAILQ_INSERT_TAIL(&room->waiting, r, link);
        atomic_fetch_add(&room->n_waiting, 1);
    }
    pthread_mutex_unlock(&room->lock);
    return go;
}

void ps__room_received(struct ps__room *room, struct ps__receiver *r)
{
    pthread_mutex_lock(&room->lock);
    room_lift_charge(room, r);
    pthread_mutex_unlock(&room->lock);
}

static void room_lift_idle(struct ps__room *room, uint64_t now)  // locked
{
    struct ps__receiver *r;
    while ((r = TAILQ_FIRST(&room->charged)) && now - r->since >= idle_ns)
        room_lift_charge(room, r);
}

// The next that may begin: the first where there is room, else the first that has less than a share of its own.
static struct ps__receiver *room_next(struct ps__room *room)  // locked
{
    struct ps__receiver *r = TAILQ_FIRST(&room->waiting);
    if (!r || room->open || room_fits(room, r))
        return r;
    if (room->beyond >= BEYOND || atomic_load(&room->requests) > room->bytes / 4 * 3)
        return NULL;
    TAILQ_FOREACH(r, &room->waiting, link)
    if (r->own < PS_STREAM_SHARE)
        break;
    if (r) {
        r->beyond = true;
        room->beyond++;
    }
    return r;
}

static void room_admit(struct ps__room *room)
{
    struct ps__receivers go = TAILQ_HEAD_INITIALIZER(go);
    struct ps__receiver *r;
    uint64_t now = ps_now();
    pthread_mutex_lock(&room->lock);
    room_lift_idle(room, now);
    while ((r = room_next(room))) {
        TAILQ_REMOVE(&room->waiting, r, link);
        atomic_fetch_sub(&room->n_waiting, 1);
        room_begin(room, r, now);
        TAILQ_INSERT_TAIL(&go, r, also);
    }
    pthread_mutex_unlock(&room->lock);
    while ((r = TAILQ_FIRST(&go))) {
        TAILQ_REMOVE(&go, r, also);
        r->go(r);
    }
}

// ---- sending ------------------------------------------------------------------------------------------------------

void ps__room_begin_send(struct ps__room *room, struct ps__sender *s, grpc_call *call)
{
    s->call = call;
    s->since = ps_now();
    s->cut = false;
    pthread_mutex_lock(&room->lock);
    TAILQ_INSERT_TAIL(&room->sending, s, link);
    pthread_mutex_unlock(&room->lock);
}

void ps__room_end_send(struct ps__room *room, struct ps__sender *s)
{
    pthread_mutex_lock(&room->lock);
    TAILQ_REMOVE(&room->sending, s, link);
    pthread_mutex_unlock(&room->lock);
}

// The longest that is not cut, and has taken too long; referenced.
static grpc_call *room_next_slow(struct ps__room *room, uint64_t now)
{
    struct ps__sender *s;
    grpc_call *call = NULL;
    pthread_mutex_lock(&room->lock);
    TAILQ_FOREACH(s, &room->sending, link)
    if (!s->cut)
        break;
    if (s && now - s->since >= deaf_ns) {
        s->cut = true;
        call = s->call;
        grpc_call_ref(call);  // counts, and nothing else: under the lock
    }
    pthread_mutex_unlock(&room->lock);
    return call;
}

static void room_cut_slow(struct ps__room *room)
{
    grpc_call *call;
    uint64_t now = ps_now();
    while (!ps__room_has_answers(room) && (call = room_next_slow(room, now))) {
        grpc_call_cancel_with_status(call, GRPC_STATUS_ABORTED, "answers were not read while others waited", NULL);
        grpc_call_unref(call);
    }
}

// -------------------------------------------------------------------------------------------------------------------

void ps__room_work(struct ps__room *room)
{
    if (atomic_load(&room->n_waiting))
        room_admit(room);
    if (!ps__room_has_answers(room))
        room_cut_slow(room);
}

void ps__room_open(struct ps__room *room)
{
    pthread_mutex_lock(&room->lock);
    room->open = true;
    pthread_mutex_unlock(&room->lock);
}
