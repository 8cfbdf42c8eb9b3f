// SPDX-License-Identifier: Apache-2.0
#include "psd/control/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

enum { JOIN_WITHIN_MS = 60000 };

// Takes room for c from its pool, and for that the room of the run before.
static bool take_room(struct psd_control *c, struct psd_control *before)
{
    size_t had = before ? before->room : 0;
    size_t room = sizeof *c + c->workers * sizeof *c->members + c->tasks * (2 * sizeof(uint64_t) + sizeof(bool));
    psd_pool_give(c->pool, had);
    bool taken = psd_pool_take(c->pool, room);
    c->room = taken ? room : 0;
    if (before && (taken || !psd_pool_take(c->pool, had)))
        before->room = 0;
    return taken;
}

struct psd_control *psd_control_new(struct psd_pool *pool, struct psd_control *before,
                                    const Paramserver__V1__JoinRequest *r, uint32_t tasks, uint64_t now,
                                    struct ps_error *e)
{
    struct psd_control *c = ps_try_alloc(sizeof *c);
    if (!c) {
        ps_no_memory(e, "a job's members");
        return NULL;
    }
    c->pool = pool;
    c->update = r->update;
    c->workers = r->workers;
    c->min_workers = r->min_workers ? r->min_workers : 1;
    c->staleness = r->staleness;
    c->opened = now;
    c->join_within = (r->join_within_ms ? r->join_within_ms : JOIN_WITHIN_MS) * PS_MS;
    c->tasks = tasks;
    c->members = ps_try_alloc_array(c->workers, sizeof *c->members);
    c->told = ps_try_alloc_array(tasks, sizeof *c->told);
    c->open = ps_try_alloc_array(tasks, sizeof *c->open);
    c->telling = ps_try_alloc_array(tasks, sizeof *c->telling);
    if (!c->members || !c->told || !c->open || !c->telling) {
        psd_control_free(c);
        ps_no_memory(e, "a job's members");
        return NULL;
    }
    if (!take_room(c, before)) {
        psd_control_free(c);
        ps_fail(e, PS_RESOURCE_EXHAUSTED,
                "there is no room for the %" PRIu32 " workers of a job; the limit is %zu bytes", r->workers,
                pool->limit);
        return NULL;
    }
    for (uint32_t i = 0; i < c->workers; i++)
        c->members[i].state = PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
    return c;
}

void psd_control_free(struct psd_control *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; c->members && i < c->workers; i++)
        psd_visit_clear(&c->members[i].visit);
    psd_epoch_free(&c->data);
    free(c->telling);
    free(c->open);
    free(c->told);
    free(c->members);
    psd_pool_give(c->pool, c->room);
    free(c);
}

void psd_control_waits(struct psd_member *m, uint64_t now)
{
    if (m->waits_since == 0)
        m->waits_since = now;
}

void psd_control_goes_on(struct psd_control *c, struct psd_member *m)
{
    m->waits_since = 0;
    m->fresh = false;
    c->begun = true;
    psd_clock_level(c, m);
}

// Before all go on together, all take part again, and every task knows it: else one of them could close a round without
// some of them.
static bool all_take_part(struct psd_control *c, bool (*goes_on)(const struct psd_member *))
{
    bool changed = false;
    if (c->update != PARAMSERVER__V1__UPDATE__SYNC)
        return true;
    if (!psd_view_is_known(c))
        return false;  // who rests, has gone or is new: their rounds are settled by that
    for (uint32_t i = 0; i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (!goes_on(m))
            continue;
        changed |= psd_is_live(m) && m->resting;
        m->resting = false;
    }
    if (changed)
        psd_view_changed(c);
    return psd_view_is_known(c);
}

void psd_control_advance(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    uint32_t live = 0, awaited = 0, in_meeting = 0, in_lease = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct psd_member *m = &c->members[i];
        live += psd_is_live(m);
        awaited += psd_is_awaited(m);
        in_meeting += psd_is_live(m) && psd_in_collective(m);
        in_lease += psd_is_live(m) && !psd_in_collective(m) && psd_in_lease(m);
    }
    psd_clock_advance(c, ready);
    if (c->declared)
        psd_ready_all(ready, &job->waiting);  // Describe(wait)
    if (live == 0 || psd_count_state(c, PARAMSERVER__V1__MEMBER_STATE__EXPECTED))
        return;
    if (in_meeting && in_meeting == awaited) {
        if (all_take_part(c, psd_in_collective))
            psd_collective_end(job, ready);
    } else if (in_lease == live && c->update == PARAMSERVER__V1__UPDATE__SYNC) {
        if (all_take_part(c, psd_in_lease))
            psd_lease_share_out(job, ready);
    } else if (in_meeting + in_lease == live && !c->data.over) {
        psd_lease_give_up(c, ready);  // who is in the meeting will not train what the others wait for
    }
}

// ---- time ---------------------------------------------------------------------------------------------------------

enum { REST_AFTER_MS = 100 };

// A worker that has waited here for a while rests, where others still train.
static void let_rest(struct psd_job *job, uint64_t now)
{
    struct psd_control *c = job->control;
    if (c->update != PARAMSERVER__V1__UPDATE__SYNC || !c->declared)
        return;
    bool changed = false, busy = false;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (!psd_in_collective(m) && !psd_in_lease(m))
            m->waits_since = 0;  // its call's time was over
        busy |= psd_is_live(m) && !m->waits_since;
    }
    for (uint32_t i = 0; busy && i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (psd_is_live(m) && !m->resting && m->waits_since && now >= m->waits_since + REST_AFTER_MS * PS_MS)
            changed = m->resting = true;
    }
    if (changed)
        psd_view_changed(c);
}

void psd_control_tick(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    if (core->config.task != 0)
        return;
    psd_members_tick(core, job, now, ready);
    pthread_mutex_lock(&job->lock);
    if (job->control) {
        let_rest(job, now);
        psd_control_advance(job, ready);
    }
    pthread_mutex_unlock(&job->lock);
    psd_view_spread(core, job, now, ready);
}

// ---- what others ask ----------------------------------------------------------------------------------------------

bool psd_control_may_declare(struct psd_job *job, const Paramserver__V1__DeclareRequest *r, struct ps_error *e)
{
    const Paramserver__V1__Caller *caller = r->caller;
    if (!job || !job->control) {
        ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' is not open: its chief joins before it declares", caller->job);
        return false;
    }
    pthread_mutex_lock(&job->lock);
    const struct psd_control *c = job->control;
    uint32_t chief = 0;
    while (chief < c->workers && !psd_is_live(&c->members[chief]))
        chief++;
    bool may = chief < c->workers && memcmp(c->members[chief].client, caller->client.data, 16) == 0;
    bool same = c->workers == r->workers && c->update == r->update;
    pthread_mutex_unlock(&job->lock);
    if (may && !same)
        ps_fail(e, PS_FAILED_PRECONDITION,
                "job '%s' is declared with %" PRIu32 " workers and update %d, not as it was opened", caller->job,
                r->workers, (int)r->update);
    else if (!may)
        ps_fail(e, PS_FAILED_PRECONDITION,
                "job '%s' is declared by its chief, the live worker of lowest rank (%" PRIu32 ")", caller->job, chief);
    return may && same;
}

bool psd_control_declared(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool declared = job->control && job->control->declared;
    pthread_mutex_unlock(&job->lock);
    return declared;
}

void psd_control_set_declared(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    job->control->declared = true;
    psd_ready_all(ready, &job->waiting);
    if (job->control->changed)
        psd_view_changed(job->control);  // fresh rounds hear of those who have departed since the run began
    pthread_mutex_unlock(&job->lock);
    psd_view_spread(core, job, psd_now(core), ready);
}

bool psd_control_is_over(const struct psd_job *job)
{
    return atomic_load(&job->failed) == 2 || (!psd_count_state(job->control, PARAMSERVER__V1__MEMBER_STATE__LIVE) &&
                                              !psd_count_state(job->control, PARAMSERVER__V1__MEMBER_STATE__EXPECTED));
}

void psd_control_describe(struct psd_job *job, Paramserver__V1__JobStatus *out, char *reason, size_t size)
{
    pthread_mutex_lock(&job->lock);
    const struct psd_control *c = job->control;
    reason[0] = '\0';
    if (atomic_load(&job->failed) == 2) {
        out->state = (char *)"failed";
        snprintf(reason, size, "%s", job->failure);
    } else if (!atomic_load(&job->declared) || (c && !c->declared)) {
        out->state = (char *)"opening";
    } else {
        out->state = (char *)(c && psd_control_is_over(job) ? "done" : "running");
    }
    if (c) {
        out->live_workers = psd_count_state(c, PARAMSERVER__V1__MEMBER_STATE__LIVE);
        out->data_epoch = c->data.number;
        out->examples = c->data.examples;
        out->examples_done = c->data.done;
        out->staleness = c->farthest;
    }
    pthread_mutex_unlock(&job->lock);
}
