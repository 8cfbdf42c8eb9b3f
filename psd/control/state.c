// SPDX-License-Identifier: Apache-2.0
#include "psd/control/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EXPECTED PARAMSERVER__V1__MEMBER_STATE__EXPECTED
#define LIVE PARAMSERVER__V1__MEMBER_STATE__LIVE
#define LEFT PARAMSERVER__V1__MEMBER_STATE__LEFT

const char *psd_state_name(Paramserver__V1__MemberState state)
{
    return state == EXPECTED ? "not joined yet" : state == LIVE ? "live" : state == LEFT ? "left" : "dead";
}

// ---- counting -----------------------------------------------------------------------------------------------------

enum {
    IS_LIVE = 1,
    IS_EXPECTED = 2,
    IS_AWAITED = 4,
    IS_IN_COLLECTIVE = 8,
    IS_IN_LEASE = 16,
    IS_BUSY = 32,
};

static uint32_t member_bits(const struct psd_member *m)
{
    if (psd_is_expected(m))
        return IS_EXPECTED;
    if (!psd_is_live(m))
        return 0;
    return IS_LIVE | (psd_is_awaited(m) ? IS_AWAITED : 0) | (m->waits_since ? 0 : IS_BUSY) |
           (psd_in_collective(m) ? IS_IN_COLLECTIVE
            : psd_in_lease(m)    ? IS_IN_LEASE
                                 : 0);
}

static void tally_add(struct psd_tally *t, uint32_t bits, int by)
{
    t->live += bits & IS_LIVE ? (uint32_t)by : 0;
    t->expected += bits & IS_EXPECTED ? (uint32_t)by : 0;
    t->awaited += bits & IS_AWAITED ? (uint32_t)by : 0;
    t->in_collective += bits & IS_IN_COLLECTIVE ? (uint32_t)by : 0;
    t->in_lease += bits & IS_IN_LEASE ? (uint32_t)by : 0;
    t->busy += bits & IS_BUSY ? (uint32_t)by : 0;
}

// Where it is in the queue already it keeps its place.
static void queue_keep(struct ps_queue *q, uint32_t rank, bool in)
{
    if (in && !ps_queue_has(q, rank))
        ps_queue_push(q, rank);
    else if (!in)
        ps_queue_drop(q, rank);
}

static void heap_keep(struct ps_heap *h, uint32_t rank, bool in, uint64_t key)
{
    if (in)
        ps_heap_set(h, rank, key);
    else
        ps_heap_drop(h, rank);
}

static uint64_t member_deadline(const struct psd_member *m)
{
    const struct psd_waiters *lists[] = {&m->participation.waiting, &m->for_lease, &m->for_clock, &m->successors};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 4; i++)
        if (lists[i]->n && lists[i]->earliest < least)
            least = lists[i]->earliest;
    return least;
}

static uint64_t member_seniority(const struct psd_control *c, const struct psd_member *m)
{
    return m->arrival * c->workers + psd_rank_of(c, m);
}

void psd_member_recount(struct psd_control *c, struct psd_member *m)
{
    const uint32_t rank = psd_rank_of(c, m), bits = member_bits(m);
    const bool live = psd_is_live(m), lease = live && psd_in_lease(m), collective = bits & IS_IN_COLLECTIVE;
    const bool parked = m->participation.waiting.n || m->for_lease.n || m->for_clock.n || m->successors.n;
    c->visited++;
    tally_add(&c->tally, m->tallied, -1);
    tally_add(&c->tally, bits, 1);
    m->tallied = bits;
    queue_keep(&c->silent, rank, live);
    queue_keep(&c->in_collective, rank, collective);
    queue_keep(&c->in_lease, rank, lease);
    queue_keep(&c->idle, rank, live && m->waits_since && !m->excluded);
    queue_keep(&c->withdrawn, rank, live && m->excluded && m->withdrawn_at);
    queue_keep(&c->succeeded, rank, m->successors.n > 0);
    heap_keep(&c->seniority, rank, live, member_seniority(c, m));
    heap_keep(&c->clocks, rank, psd_is_expected(m) || (live && !collective && !lease), m->clock);
    heap_keep(&c->gates, rank, m->for_clock.n > 0, psd_clock_gate(c, m));
    heap_keep(&c->deadlines, rank, parked, member_deadline(m));
}

void psd_member_heard(struct psd_control *c, struct psd_member *m, uint64_t now)
{
    m->last_seen = psd_control_awake(c, now);
    c->last_heard = now;
    c->visited++;
    ps_queue_push(&c->silent, psd_rank_of(c, m));
}

// ---- members ------------------------------------------------------------------------------------------------------

struct psd_member *psd_member_live(struct psd_job *job, const Paramserver__V1__Caller *caller, uint64_t now,
                                   struct ps_error *e)
{
    struct psd_control *c = job->control;
    struct psd_member *m = c && caller->worker && caller->worker <= c->workers ? &c->members[caller->worker - 1] : NULL;
    if (!m) {
        char who[32] = "a client that is no worker";
        if (caller->worker)
            snprintf(who, sizeof who, "worker %" PRIu32, caller->worker - 1);
        ps_fail(e, PS_FAILED_PRECONDITION, "%s is not a member of job '%s' at this ps task%s", who, job->name,
                c ? "" : ": members are known at ps task 0");
        return NULL;
    }
    if (m->state != LIVE || memcmp(m->client, caller->client.data, 16) != 0 || m->incarnation != caller->incarnation) {
        ps_fail(e, PS_ABORTED, "worker %" PRIu32 " of job '%s' is %s%s%s", caller->worker - 1, job->name,
                m->state == LIVE ? "another process now" : psd_state_name(m->state), m->reason[0] ? ": " : "",
                m->reason);
        return NULL;
    }
    psd_member_heard(c, m, now);
    return m;
}

void psd_member_waits(struct psd_control *c, struct psd_member *m, uint64_t now)
{
    if (m->waits_since == 0)
        m->waits_since = now;
    m->withdrawn_at = 0;
    psd_member_recount(c, m);
}

void psd_member_goes_on(struct psd_control *c, struct psd_member *m)
{
    m->waits_since = 0;
    m->newcomer = false;
    c->begun = true;
    psd_member_recount(c, m);
}

int psd_fail_superseded(const Paramserver__V1__Caller *caller, const char *what, uint64_t newest, struct ps_error *e)
{
    return ps_fail(e, PS_ABORTED,
                   "%s: worker %" PRIu32 " has asked for another since (sequence %" PRIu64 ", this is %" PRIu64 ")",
                   what, caller->worker - 1, newest, caller->sequence);
}
