// SPDX-License-Identifier: Apache-2.0
//
// A job's workers: how they come, show that they live, and go.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/sometimes.h"
#include "common/base/utf8.h"
#include "common/plan/configuration.h"
#include "psd/control/state.h"
#include "psd/job/runs.h"

#define EXPECTED PARAMSERVER__V1__MEMBER_STATE__EXPECTED
#define LIVE PARAMSERVER__V1__MEMBER_STATE__LIVE
#define LEFT PARAMSERVER__V1__MEMBER_STATE__LEFT
#define DEAD PARAMSERVER__V1__MEMBER_STATE__DEAD

// ---- going --------------------------------------------------------------------------------------------------------

// Has one of them told that it died of something else than a signal? One that fell silent, or never came, was spared.
static bool members_any_failed(const struct psd_control *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->members[i].state == DEAD && c->members[i].failed)
            return true;
    return false;
}

// Does the death of this member end the job? Job locked.
static void member_end_job_if_too_few(struct psd_job *job, uint32_t worker)
{
    const struct psd_control *c = job->control;
    const char *why = c->members[worker].reason;
    const bool interrupted = c->members[worker].interrupted;
    uint32_t remain = c->tally.live + c->tally.expected;
    char reason[PSD_FAILURE_MAX] = "";
    if (remain < c->min_workers)
        snprintf(reason, sizeof reason, "worker %" PRIu32 " %s, and %" PRIu32 " of at least %" PRIu32 " remain", worker,
                 why, remain, c->min_workers);
    else if (interrupted && !c->tally.live)  // nobody waits for those who have not come yet
        snprintf(reason, sizeof reason, "worker %" PRIu32 " %s, and no worker lives", worker, why);
    else if (!c->declared)
        snprintf(reason, sizeof reason, "worker %" PRIu32 " %s before the job was declared", worker, why);
    if (reason[0])
        psd_job_end(job, atomic_load(&job->run), reason, interrupted && !members_any_failed(c));
}

// Nobody is left: those who have waited for a rank of a run that is over are for the next one.
static void members_release_successors(struct psd_control *c, struct psd_call **ready)
{
    while (c->succeeded.n) {
        struct psd_member *m = &c->members[c->succeeded.first];
        psd_ready_all(ready, &m->successors);
        psd_member_recount(c, m);
    }
}

// A member leaves or dies: what it had comes back, nobody waits for it, too few may remain. Job locked, from the change
// of its state on: nobody sees one without the other.
static void member_depart(struct psd_job *job, uint32_t worker, Paramserver__V1__MemberState state,
                          struct psd_call **ready)
{
    struct psd_control *c = job->control;
    struct psd_member *m = &c->members[worker];
    if (psd_chief(c) == worker)
        c->lost_chief = state == DEAD && !m->interrupted;
    m->state = state;
    c->mover = worker + 1;
    psd_view_changed(c, m);
    psd_member_release(m, ready);
    psd_member_recount(c, m);
    psd_lease_return(c, worker);
    if (state == DEAD)
        member_end_job_if_too_few(job, worker);
    if (psd_job_is_over(job))
        members_release_successors(c, ready);
}

enum ps_code psd_member_leave(struct psd_job *job, const Paramserver__V1__LeaveRequest *r, uint64_t now,
                              struct psd_call **ready, struct ps_error *e)
{
    struct psd_control *c = job->control;
    uint32_t worker = r->caller->worker;
    bool known =
        c && worker && worker <= c->workers && memcmp(c->members[worker - 1].client, r->caller->client.data, 16) == 0;
    if (known && !psd_is_live(&c->members[worker - 1]))
        return PS_OK;
    struct psd_member *m = psd_member_live(job, r->caller, now, e);
    if (!m)
        return e->code;
    m->interrupted = r->failed && r->interrupted;
    m->failed = r->failed && !r->interrupted;
    const char *how = !r->failed ? "" : m->interrupted ? "ended: " : "failed: ";
    size_t at = (size_t)snprintf(m->reason, sizeof m->reason, "%s", how);
    ps_utf8_cut(r->reason, m->reason + at, sizeof m->reason - at);
    ps_log(r->failed ? PS_LOG_WARNING : PS_LOG_INFO, "job '%s': worker %" PRIu32 " %s%s", job->name, worker - 1,
           r->failed ? "" : "left", r->failed ? m->reason : "");
    member_depart(job, worker - 1, r->failed ? DEAD : LEFT, ready);
    if (!r->failed && psd_job_is_over(job))
        ps_info("job '%s' is done", job->name);
    return PS_OK;
}

static void member_die(struct psd_job *job, struct psd_member *m, struct psd_call **ready)
{
    const uint32_t rank = psd_rank_of(job->control, m);
    m->interrupted = false;
    ps_warn("job '%s': worker %" PRIu32 "%s%s%s is dead: it %s", job->name, rank, m->address[0] ? " (" : "", m->address,
            m->address[0] ? ")" : "", m->reason);
    member_depart(job, rank, DEAD, ready);
}

// Has the member asked for data since it was heard otherwise, within the limit? That is looked at only where it would
// be dead.
static bool member_moved_data(struct psd_job *job, struct psd_member *m, uint64_t awake, uint64_t limit)
{
    struct psd_control *c = job->control;
    const uint32_t rank = psd_rank_of(c, m);
    if (!atomic_load(&job->declared) || rank >= job->workers ||
        atomic_load(&job->heard[rank].incarnation) != m->incarnation)
        return false;
    uint64_t at = atomic_exchange(&job->heard[rank].at, 0);
    at = at < awake ? at : awake;
    if (at + limit <= awake)
        return false;
    m->last_seen = at;
    ps_queue_push(&c->silent, rank);
    return true;
}

// Those who were heard longest ago are first.
static void members_end_silent(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    const uint64_t limit = job->host->dead_after_ms * PS_MS;
    struct psd_control *c = job->control;
    const uint64_t awake = psd_control_awake(c, now);
    while (c->silent.n) {
        struct psd_member *m = &c->members[c->silent.first];
        c->visited++;
        if (awake < m->last_seen + limit)
            return;
        if (member_moved_data(job, m, awake, limit))
            continue;
        snprintf(m->reason, sizeof m->reason, "sent no message for %.1f s", (double)(awake - m->last_seen) / 1e9);
        member_die(job, m, ready);
    }
}

static void members_end_expected(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    for (uint32_t i = 0; i < c->workers && c->tally.expected; i++) {
        struct psd_member *m = &c->members[i];
        if (!psd_is_expected(m))
            continue;
        snprintf(m->reason, sizeof m->reason, "did not join within %.1f s", (double)c->join_within / 1e9);
        member_die(job, m, ready);
    }
}

// Has the member been heard so long after another process came under its rank that it cannot be what died there?
static bool member_lives_beside(const struct psd_host *host, const struct psd_member *m)
{
    return m->last_seen >= m->succeeded_at + host->dead_after_ms * PS_MS;
}

// Those who wait for the rank of one that lives are told so.
static void members_refuse_successors(const struct psd_host *host, struct psd_control *c, struct psd_call **ready)
{
    uint32_t rank = c->succeeded.first, next;
    for (; rank != PS_NO_ITEM; rank = next) {
        struct psd_member *m = &c->members[rank];
        next = ps_queue_next(&c->succeeded, rank);
        c->visited++;
        if (!member_lives_beside(host, m))
            continue;
        psd_ready_all(ready, &m->successors);
        psd_member_recount(c, m);
    }
}

void psd_members_tick(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    struct psd_control *c = job->control;
    if (c) {
        c->slept = atomic_load(&job->host->slept);
        members_end_silent(job, now, ready);
        members_refuse_successors(job->host, c, ready);
        if (c->tally.expected && now >= c->opened + c->join_within)
            members_end_expected(job, ready);
    }
    pthread_mutex_unlock(&job->lock);
}

void psd_members_leave_out_drained(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (!m->draining)
            continue;
        snprintf(m->reason, sizeof m->reason, "it was asked to leave the run before");
        ps_info("job '%s': worker %" PRIu32 " is not waited for: %s", job->name, i, m->reason);
        member_depart(job, i, LEFT, ready);
    }
}

// ---- coming -------------------------------------------------------------------------------------------------------

bool psd_control_was_opened_by(const struct psd_control *c, const uint8_t *client)
{
    for (uint32_t i = 0; i < c->n_openers && i < PSD_OPENERS; i++)
        if (memcmp(c->openers[i], client, 16) == 0)
            return true;
    return false;
}

int psd_member_check_join(struct psd_job *job, const Paramserver__V1__JoinRequest *r, bool was_parked,
                          struct ps_error *e)
{
    const struct psd_control *c = job->control;
    const uint32_t rank = r->caller->worker - 1;
    if (c->workers != r->workers || c->update != r->update || c->staleness != r->staleness)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "job '%s' was opened with %" PRIu32 " workers as %s with staleness %" PRIu32
                       ", this worker brings %" PRIu32 ", %s and %" PRIu32,
                       job->name, c->workers, psd_update_name(c->update), c->staleness, r->workers,
                       psd_update_name(r->update), r->staleness);
    if (c->follows_mode != (bool)r->follows_mode)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "job '%s' was opened by a worker that %s changes of the mode, this one %s them", job->name,
                       c->follows_mode ? "follows" : "ignores", r->follows_mode ? "follows" : "ignores");
    if (ps_configuration_check(job->name, c->begun, c->configuration, rank, r->configuration, e))
        return (int)e->code;
    const struct psd_member *m = &c->members[rank];
    bool same = memcmp(m->client, r->caller->client.data, 16) == 0;
    if (m->state == LIVE && !same && (!was_parked || !member_lives_beside(job->host, m)))
        return PSD_WAITS;
    if (m->state == LIVE && !same)
        return ps_fail(e, PS_ALREADY_EXISTS,
                       "worker %" PRIu32 " of job '%s' is alive as %s: two workers cannot have one rank", rank,
                       job->name, m->address);
    if ((m->state == LEFT || m->state == DEAD) && m->incarnation && same)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "worker %" PRIu32 " of job '%s' %s: only another client id can come back as this worker", rank,
                       job->name, m->state == LEFT ? "has left" : "is dead");
    if (psd_member_is_through(m))
        return PSD_WAITS;
    return PS_OK;
}

// A worker that joins a sync job that has begun is excluded from rounds until the others wait for it.
static void member_come(struct psd_job *job, struct psd_member *m, const Paramserver__V1__JoinRequest *r)
{
    struct psd_control *c = job->control;
    const bool back = m->state != EXPECTED;
    psd_participation_clear(&m->participation);
    *m = (struct psd_member){.state = LIVE,
                             .tallied = m->tallied,
                             .changed_at = m->changed_at,
                             .incarnation = back ? psd_runs_next(job->host->runs) : atomic_load(&job->run),
                             .counted = m->counted,
                             .split = m->split};
    memcpy(m->client, r->caller->client.data, 16);
    if (m == c->members)
        memcpy(c->openers[c->n_openers++ % PSD_OPENERS], m->client, 16);
    snprintf(m->address, sizeof m->address, "%s", r->address);
    ps_utf8_plain(m->address);
    m->excluded = m->newcomer = c->begun && psd_control_is_sync(c);
    m->arrival = c->begun ? c->epoch + 1 : 0;
    psd_clock_level(c, m);
    ps_info("job '%s': worker %td joined%s%s%s", job->name, m - c->members, back ? " again" : "",
            m->address[0] ? ", " : "", m->address);
    if (back) {
        ps_sometimes(PS_SOMETIMES_RETURNED);
        psd_view_changed(c, m);  // tasks have heard of its departure, and must refuse who it was before
        m->since = c->changed;
    } else {
        psd_view_joined(c, m);
    }
    psd_member_recount(c, m);
}

struct psd_member *psd_member_admit(struct psd_job *job, const Paramserver__V1__JoinRequest *r, uint64_t now)
{
    struct psd_member *m = &job->control->members[r->caller->worker - 1];
    if (m->state != LIVE)
        member_come(job, m, r);
    psd_member_heard(job->control, m, now);
    return m;
}

void psd_member_succeeded(struct psd_control *c, struct psd_member *m, uint64_t now)
{
    if (m->successors.n == 0)
        m->succeeded_at = psd_control_awake(c, now);
}
