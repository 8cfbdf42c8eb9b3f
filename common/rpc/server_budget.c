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
static const uint64_t unread_ns = 10 * PS_SECOND;

// Who may not wait for room is let in beyond it, so many at a time.
enum { BEYOND = 4 };

void ps__budget_init(struct ps__budget *budget, size_t bytes)
{
    *budget = (struct ps__budget){.bytes = bytes};
    pthread_mutex_init(&budget->lock, NULL);
    TAILQ_INIT(&budget->waiting);
    TAILQ_INIT(&budget->charged);
    TAILQ_INIT(&budget->sending);
}

void ps__budget_fini(struct ps__budget *budget)
{
    pthread_mutex_destroy(&budget->lock);
}

bool ps__budget_take_calls(struct ps__budget *budget, size_t n, size_t bytes)
{
    size_t calls = atomic_fetch_add(&budget->calls, n) + n;
    return atomic_fetch_add(&budget->call_bytes, bytes) + bytes <= budget->bytes / 4 && calls <= PS_SERVER_CALLS;
}

void ps__budget_return_calls(struct ps__budget *budget, size_t n, size_t bytes)
{
    atomic_fetch_sub(&budget->calls, n);
    atomic_fetch_sub(&budget->call_bytes, bytes);
}

bool ps__budget_has_calls(const struct ps__budget *budget)
{
    return atomic_load(&budget->call_bytes) < budget->bytes / 4 && atomic_load(&budget->calls) < PS_SERVER_CALLS;
}

bool ps__budget_take_lane(struct ps__budget *budget, enum ps_lane lane)
{
    if ((atomic_fetch_add(&budget->lanes[lane], 1) + 1) * PS__UNARY_BYTES <= budget->bytes / 16)
        return true;
    ps__budget_return_lane(budget, lane);
    return false;
}

void ps__budget_return_lane(struct ps__budget *budget, enum ps_lane lane)
{
    atomic_fetch_sub(&budget->lanes[lane], 1);
}

bool ps__budget_has_answers(const struct ps__budget *budget)
{
    return atomic_load(&budget->answers) < budget->bytes / 2;
}

bool ps__budget_is_full(const struct ps__budget *budget)
{
    return atomic_load(&budget->requests) > budget->bytes / 4 * 3;
}

size_t ps__budget_used(const struct ps__budget *budget)
{
    return atomic_load(&budget->requests) + atomic_load(&budget->call_bytes) + atomic_load(&budget->answers) +
           (atomic_load(&budget->lanes[PS_LANE_CONTROL]) + atomic_load(&budget->lanes[PS_LANE_NORMS])) *
               PS__UNARY_BYTES;
}

// ---- receiving ----------------------------------------------------------------------------------------------------

static bool budget_fits(const struct ps__budget *budget, const struct ps__receiver *r)  // locked
{
    return atomic_load(&budget->requests) + budget->expected + r->expected <= budget->bytes / 2;
}

static void budget_begin(struct ps__budget *budget, struct ps__receiver *r, uint64_t now)  // locked
{
    r->since = now;
    r->charged = true;
    budget->expected += r->expected;
    TAILQ_INSERT_TAIL(&budget->charged, r, link);
}

static void budget_lift_charge(struct ps__budget *budget, struct ps__receiver *r)  // locked
{
    if (!r->charged)
        return;
    budget->expected -= r->expected;
    budget->beyond -= r->beyond;
    r->charged = r->beyond = false;
    TAILQ_REMOVE(&budget->charged, r, link);
}

bool ps__budget_ask(struct ps__budget *budget, struct ps__receiver *r, size_t own, size_t expected)
{
    r->own = own;
    r->expected = expected;
    pthread_mutex_lock(&budget->lock);
    bool go = budget->open || (TAILQ_EMPTY(&budget->waiting) && budget_fits(budget, r));
    if (go) {
        budget_begin(budget, r, ps_now());
    } else {
        TAILQ_INSERT_TAIL(&budget->waiting, r, link);
        atomic_fetch_add(&budget->n_waiting, 1);
    }
    pthread_mutex_unlock(&budget->lock);
    return go;
}

void ps__budget_received(struct ps__budget *budget, struct ps__receiver *r)
{
    pthread_mutex_lock(&budget->lock);
    budget_lift_charge(budget, r);
    pthread_mutex_unlock(&budget->lock);
}

static void budget_lift_idle(struct ps__budget *budget, uint64_t now)  // locked
{
    struct ps__receiver *r;
    while ((r = TAILQ_FIRST(&budget->charged)) && now - r->since >= idle_ns)
        budget_lift_charge(budget, r);
}

// The next that may begin: the first where there is room, else the first that has less than a share of its own.
static struct ps__receiver *budget_next(struct ps__budget *budget)  // locked
{
    struct ps__receiver *r = TAILQ_FIRST(&budget->waiting);
    if (!r || budget->open || budget_fits(budget, r))
        return r;
    if (budget->beyond >= BEYOND || atomic_load(&budget->requests) > budget->bytes / 4 * 3)
        return NULL;
    TAILQ_FOREACH(r, &budget->waiting, link)
    if (r->own < PS_STREAM_SHARE)
        break;
    if (r) {
        r->beyond = true;
        budget->beyond++;
    }
    return r;
}

static void budget_admit(struct ps__budget *budget)
{
    struct ps__receivers go = TAILQ_HEAD_INITIALIZER(go);
    struct ps__receiver *r;
    uint64_t now = ps_now();
    pthread_mutex_lock(&budget->lock);
    budget_lift_idle(budget, now);
    while ((r = budget_next(budget))) {
        TAILQ_REMOVE(&budget->waiting, r, link);
        atomic_fetch_sub(&budget->n_waiting, 1);
        budget_begin(budget, r, now);
        TAILQ_INSERT_TAIL(&go, r, also);
    }
    pthread_mutex_unlock(&budget->lock);
    while ((r = TAILQ_FIRST(&go))) {
        TAILQ_REMOVE(&go, r, also);
        r->go(r);
    }
}

// ---- sending ------------------------------------------------------------------------------------------------------

void ps__budget_begin_send(struct ps__budget *budget, struct ps__sender *s, grpc_call *call)
{
    s->call = call;
    s->since = ps_now();
    s->cut = false;
    pthread_mutex_lock(&budget->lock);
    TAILQ_INSERT_TAIL(&budget->sending, s, link);
    pthread_mutex_unlock(&budget->lock);
}

void ps__budget_end_send(struct ps__budget *budget, struct ps__sender *s)
{
    pthread_mutex_lock(&budget->lock);
    TAILQ_REMOVE(&budget->sending, s, link);
    pthread_mutex_unlock(&budget->lock);
}

// The longest that is not cut, and has taken too long; referenced.
static grpc_call *budget_next_slow(struct ps__budget *budget, uint64_t now)
{
    struct ps__sender *s;
    grpc_call *call = NULL;
    pthread_mutex_lock(&budget->lock);
    TAILQ_FOREACH(s, &budget->sending, link)
    if (!s->cut)
        break;
    if (s && now - s->since >= unread_ns) {
        s->cut = true;
        call = s->call;
        grpc_call_ref(call);  // counts, and nothing else: under the lock
    }
    pthread_mutex_unlock(&budget->lock);
    return call;
}

static void budget_cut_slow(struct ps__budget *budget)
{
    grpc_call *call;
    uint64_t now = ps_now();
    while (!ps__budget_has_answers(budget) && (call = budget_next_slow(budget, now))) {
        grpc_call_cancel_with_status(call, GRPC_STATUS_ABORTED, "answers were not read while others waited", NULL);
        grpc_call_unref(call);
    }
}

// -------------------------------------------------------------------------------------------------------------------

void ps__budget_work(struct ps__budget *budget)
{
    if (atomic_load(&budget->n_waiting))
        budget_admit(budget);
    if (!ps__budget_has_answers(budget))
        budget_cut_slow(budget);
}

void ps__budget_open(struct ps__budget *budget)
{
    pthread_mutex_lock(&budget->lock);
    budget->open = true;
    pthread_mutex_unlock(&budget->lock);
}
