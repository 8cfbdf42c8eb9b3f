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
#include "psd/control/state.h"
#include "psd/job/job.h"

#define EXPECTED PARAMSERVER__V1__MEMBER_STATE__EXPECTED
#define LIVE PARAMSERVER__V1__MEMBER_STATE__LIVE
#define LEFT PARAMSERVER__V1__MEMBER_STATE__LEFT
#define DEAD PARAMSERVER__V1__MEMBER_STATE__DEAD

// ---- going --------------------------------------------------------------------------------------------------------

// Does the death of this member end the job? Job locked.
static void member_end_job_if_too_few(struct psd_job *job, uint32_t worker)
{
    const struct psd_control *c = job->control;
    const char *why = c->members[worker].reason;
    uint32_t remain = c->tally.live + c->tally.expected;
    char reason[PSD_FAILURE_MAX] = "";
    if (remain < c->min_workers)
        snprintf(reason, sizeof reason, "worker %" PRIu32 " %s, and %" PRIu32 " of at least %" PRIu32 " remain", worker,
                 why, remain, c->min_workers);
    else if (!c->declared)
        snprintf(reason, sizeof reason, "worker %" PRIu32 " %s before the job was declared", worker, why);
    if (reason[0])
        psd_job_fail(job, reason);
}

// A member leaves or dies: what it had comes back, nobody waits for it, too few may remain. Job locked, from the change
// of its state on: nobody sees one without the other.
static void member_depart(struct psd_job *job, uint32_t worker, Paramserver__V1__MemberState state,
                          struct psd_call **ready)
{
    struct psd_control *c = job->control;
    struct psd_member *m = &c->members[worker];
    m->state = state;
    psd_view_changed(c, m);
    psd_ready_all(ready, &m->participation.waiting);
    psd_ready_all(ready, &m->for_lease);
    psd_ready_all(ready, &m->for_clock);
    psd_ready_all(ready, &m->successors);
    psd_member_recount(c, m);
    psd_lease_return(c, worker);
    if (state == DEAD)
        member_end_job_if_too_few(job, worker);
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
    size_t at = r->failed ? (size_t)snprintf(m->reason, sizeof m->reason, "failed: ") : 0;
    ps_utf8_cut(r->reason, m->reason + at, sizeof m->reason - at);
    ps_log(r->failed ? PS_LOG_WARNING : PS_LOG_INFO, "job '%s': worker %" PRIu32 " %s%s", job->name, worker - 1,
           r->failed ? "" : "left", r->failed ? m->reason : "");
    member_depart(job, worker - 1, r->failed ? DEAD : LEFT, ready);
    if (!r->failed && psd_control_is_over(job))
        ps_info("job '%s' is done", job->name);
    return PS_OK;
}

static void member_die(struct psd_job *job, struct psd_member *m, struct psd_call **ready)
{
    const uint32_t rank = psd_rank_of(job->control, m);
    ps_warn("job '%s': worker %" PRIu32 "%s%s%s is dead: it %s", job->name, rank, m->address[0] ? " (" : "", m->address,
            m->address[0] ? ")" : "", m->reason);
    member_depart(job, rank, DEAD, ready);
}

// Has the member asked for data since it was heard otherwise, within the limit? That is looked at only where it would be dead.
static bool member_moved_data(const struct psd_core *core, struct psd_job *job, struct psd_member *m, uint64_t awake,
                              uint64_t limit)
{
    struct psd_control *c = job->control;
    const uint32_t rank = psd_rank_of(c, m);
    if (!atomic_load(&job->declared) || rank >= job->workers ||
        atomic_load(&job->heard[rank].incarnation) != m->incarnation)
        return false;
    uint64_t at = atomic_exchange(&job->heard[rank].at, 0);
    at = at ? at + atomic_load(&core->slept_in_all) - c->slept : 0;
    at = at < awake ? at : awake;
    if (at + limit <= awake)
        return false;
    m->last_seen = at;
    psd_queue_push(&c->silent, rank);
    return true;
}

// Those who were heard longest ago are first.
static void members_end_silent(const struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    const uint64_t limit = core->config.dead_after_ms * PS_MS;
    struct psd_control *c = job->control;
    const uint64_t awake = psd_control_awake(c, now);
    while (c->silent.n) {
        struct psd_member *m = &c->members[c->silent.first];
        c->visited++;
        if (awake < m->last_seen + limit)
            return;
        if (member_moved_data(core, job, m, awake, limit))
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
static bool member_lives_beside(const struct psd_core *core, const struct psd_member *m)
{
    return m->last_seen >= m->succeeded_at + core->config.dead_after_ms * PS_MS;
}

// Those who wait for the rank of one that lives are told so.
static void members_refuse_successors(struct psd_core *core, struct psd_control *c, struct psd_call **ready)
{
    uint32_t rank = c->succeeded.first, next;
    for (; rank != PSD_NO_RANK; rank = next) {
        struct psd_member *m = &c->members[rank];
        next = psd_queue_next(&c->succeeded, rank);
        c->visited++;
        if (!member_lives_beside(core, m))
            continue;
        psd_ready_all(ready, &m->successors);
        psd_member_recount(c, m);
    }
}

void psd_members_tick(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    struct psd_control *c = job->control;
    if (c) {
        c->slept += core->slept;
        members_end_silent(core, job, now, ready);
        members_refuse_successors(core, c, ready);
        if (c->tally.expected && now >= c->opened + c->join_within)
            members_end_expected(job, ready);
    }
    pthread_mutex_unlock(&job->lock);
}

// ---- Join ---------------------------------------------------------------------------------------------------------

enum ps_code psd_check_on_existing(Paramserver__V1__OnExisting what, struct ps_error *e)
{
    if (what != PARAMSERVER__V1__ON_EXISTING__REFUSE && what != PARAMSERVER__V1__ON_EXISTING__RESUME &&
        what != PARAMSERVER__V1__ON_EXISTING__REPLACE)
        return ps_fail(e, PS_INVALID_ARGUMENT, "on_existing %d is none of REFUSE, RESUME, REPLACE", (int)what);
    return PS_OK;
}

static enum ps_code check_join(struct psd_request *t, const Paramserver__V1__JoinRequest *r)
{
    struct ps_error *e = &t->error;
    if (t->core->config.task != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "join: this is ps task %" PRIu32 ", members join at task 0",
                       t->core->config.task);
    if (r->workers == 0 || r->workers > PSD_MAX_WORKERS || t->caller->worker == 0 || t->caller->worker > r->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: rank + 1 = %" PRIu32 " of %" PRIu32 " workers: expected 1 to %s",
                       t->caller->worker, r->workers, r->workers > PSD_MAX_WORKERS ? "65536" : "their number");
    if (r->update <= PARAMSERVER__V1__UPDATE__UPDATE_NONE || r->update > PARAMSERVER__V1__UPDATE__SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: update %d is none of ASYNC, SYNC, SSP", (int)r->update);
    if (psd_check_on_existing(r->on_existing, e))
        return ps_error_prefix(e, "join");
    if (r->min_workers > r->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: at least %" PRIu32 " of %" PRIu32 " workers", r->min_workers,
                       r->workers);
    return PS_OK;
}

// Table lock held. before: the run that is over (may be NULL). Where there is no room, a job that is void gives way: see
// join.
static enum ps_code new_run(struct psd_request *t, struct psd_job *job, struct psd_control *before,
                            const Paramserver__V1__JoinRequest *r, Paramserver__V1__OnExisting what)
{
    struct psd_control *c =
        psd_control_new(&t->core->pool, before, r, t->core->config.tasks, psd_now(t->core), &t->error);
    if (!c && !t->gone)
        psd_job_drop_void(t);
    if (!c)
        return t->error.code;
    psd_job_collect(job, &t->ready);  // of the run that is over, in which nobody waits any more
    pthread_mutex_lock(&job->lock);
    psd_control_free(job->control);
    job->control = c;
    c->on_existing = what;
    atomic_store(&job->failed, 0);
    atomic_store(&job->run, psd_runs_next(&t->core->runs));
    ps_info("job '%s' begins: %" PRIu32 " worker%s", job->name, c->workers, c->workers == 1 ? "" : "s");
    pthread_mutex_unlock(&job->lock);
    psd_ready_all(&t->ready, &t->core->joining);
    return PS_OK;
}

// Table lock held. Puts a job of this name into the table, in place of that one (may be NULL). Nothing has happened
// where there is no memory for it, but that a job which is void may have given way.
static struct psd_job *open_new(struct psd_request *t, const Paramserver__V1__JoinRequest *r, struct psd_job *old,
                                Paramserver__V1__OnExisting what)
{
    if (!old && psd_job_make_place(t))
        return NULL;
    struct psd_job *job = psd_job_new(t->caller->job, &t->core->pool);
    if (!job) {
        ps_no_memory(&t->error, "a job");
        return NULL;
    }
    if (new_run(t, job, old ? old->control : NULL, r, what)) {
        psd_job_free(job);
        return NULL;
    }
    if (old) {
        old->refs++;
        t->gone = old;
        psd_job_remove(t->core, old, &t->ready);
    }
    psd_job_install(t->core, job);
    return job;
}

// Job locked. Was this process worker 0 in a run that is over? Then its Join comes late.
static bool member_has_opened(const struct psd_control *c, const uint8_t *client)
{
    for (uint32_t i = 0; i < c->n_openers && i < PSD_OPENERS; i++)
        if (memcmp(c->openers[i], client, 16) == 0)
            return true;
    return false;
}

// Table lock held. A run on old values is of the workers that these were declared for.
static enum ps_code check_resume(struct psd_request *t, const Paramserver__V1__JoinRequest *r,
                                 const struct psd_job *job)
{
    if (!atomic_load(&job->declared) || (job->workers == r->workers && job->update == r->update))
        return PS_OK;
    return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                   "job '%s' was declared with %" PRIu32 " workers and update %d, this worker brings %" PRIu32
                   " and %d: it can only be resumed as it was",
                   job->name, job->workers, (int)job->update, r->workers, (int)r->update);
}

// Table lock held: the job the caller means to join in t->job (referenced), opened if it is worker 0 that
// asks.
static int open_job(struct psd_request *t, const Paramserver__V1__JoinRequest *r)
{
    struct psd_job *job = psd_job_lookup(t->core, t->caller->job);
    bool first = t->caller->worker == 1, over = false, late = false;
    Paramserver__V1__OnExisting what = r->on_existing;
    if (job) {
        pthread_mutex_lock(&job->lock);
        over = psd_control_is_over(job);
        late = over && first && member_has_opened(job->control, t->caller->client.data);
        pthread_mutex_unlock(&job->lock);
    }
    if (late)
        return ps_fail(&t->error, PS_ABORTED, "job '%s' has ended: this process was its worker 0", job->name);
    if (over && first && t->call->parked_since)  // it was to go on with that run, not to begin another
        return ps_fail(&t->error, PS_ABORTED, "job '%s' has ended while this worker waited for its rank", job->name);
    if (job && over && first && what == PARAMSERVER__V1__ON_EXISTING__REFUSE) {
        if (atomic_load(&job->failed) == 2)
            return ps_fail(&t->error, PS_ALREADY_EXISTS,
                           "job '%s' exists, failed: resume it or replace it (on_existing: resume, replace), or choose "
                           "another name",
                           job->name);
        what = PARAMSERVER__V1__ON_EXISTING__REPLACE;  // it is done: its name is free
    }
    if ((!job || over) && !first)
        return psd_park(t, &t->core->joining, &t->core->table);
    if ((!job || over) && psd_refuse_when_draining(t))
        return (int)t->error.code;
    if (job && over && job->declaring)
        return ps_fail(&t->error, PS_UNAVAILABLE, "job '%s' is being declared", job->name);
    if (!job || (over && what == PARAMSERVER__V1__ON_EXISTING__REPLACE)) {
        if (!(job = open_new(t, r, job, what)))
            return (int)t->error.code;
    } else if (over && (check_resume(t, r, job) || new_run(t, job, job->control, r, what))) {
        return (int)t->error.code;
    }
    job->refs++;
    t->job = job;
    return PS_OK;
}

// Job locked. May the caller be this member? PSD_WAITS: when it is gone, which it may be without our knowing.
static int check_admission(struct psd_request *t, const Paramserver__V1__JoinRequest *r, const struct psd_member *m)
{
    const struct psd_control *c = t->job->control;
    bool same = memcmp(m->client, t->caller->client.data, 16) == 0;
    if (c->workers != r->workers || c->update != r->update || c->staleness != r->staleness)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "job '%s' was opened with %" PRIu32 " workers, update %d and staleness %" PRIu32
                       ", this worker brings %" PRIu32 ", %d and %" PRIu32,
                       t->job->name, c->workers, (int)c->update, c->staleness, r->workers, (int)r->update,
                       r->staleness);
    if (m->state == LIVE && !same && (!t->call->parked_since || !member_lives_beside(t->core, m)))
        return PSD_WAITS;
    if (m->state == LIVE && !same)
        return ps_fail(&t->error, PS_ALREADY_EXISTS,
                       "worker %" PRIu32 " of job '%s' is alive as %s: two workers cannot have one rank",
                       t->caller->worker - 1, t->job->name, m->address);
    if ((m->state == LEFT || m->state == DEAD) && m->incarnation && same)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "worker %" PRIu32 " of job '%s' %s: only another process can come back as this worker",
                       t->caller->worker - 1, t->job->name, m->state == LEFT ? "has left" : "is dead");
    return PS_OK;
}

// Job locked. Who comes to a sync job that has begun rests until the others wait for it.
static void admit(struct psd_request *t, const Paramserver__V1__JoinRequest *r, struct psd_member *m)
{
    struct psd_control *c = t->job->control;
    if (m->state != LIVE) {
        bool back = m->state != EXPECTED;
        uint64_t incarnation = back ? psd_runs_next(&t->core->runs) : atomic_load(&t->job->run);
        psd_participation_clear(&m->participation);
        *m = (struct psd_member){.state = LIVE,
                                 .tallied = m->tallied,
                                 .changed_at = m->changed_at,
                                 .incarnation = incarnation,
                                 .counted = m->counted,
                                 .split = m->split};
        memcpy(m->client, t->caller->client.data, 16);
        if (m == c->members)
            memcpy(c->openers[c->n_openers++ % PSD_OPENERS], m->client, 16);
        snprintf(m->address, sizeof m->address, "%s", r->address);
        ps_utf8_plain(m->address);
        m->excluded = m->newcomer = c->begun && c->update == PARAMSERVER__V1__UPDATE__SYNC;
        psd_clock_level(c, m);
        ps_info("job '%s': worker %td joined%s%s%s", t->job->name, m - c->members, back ? " again" : "",
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
    psd_member_heard(c, m, psd_now(t->core));
}

// All that the reply needs.
static enum ps_code reserve_join(struct psd_request *t, const Paramserver__V1__JoinRequest *r,
                                 struct psd_member_list *list)
{
    const uint32_t named = r->workers <= PSD_MEMBERS_WHOLE ? r->workers : 0;
    if (!psd_members_reserve(named, list))
        return ps_no_memory(&t->error, "a list of members");
    return psd_request_reserve(t, PSD_REPLY_BYTES + named * PSD_MEMBER_BYTES);
}

// Job locked.
static int reply_join(struct psd_request *t, const struct psd_member *m, struct psd_member_list *list)
{
    Paramserver__V1__JoinReply out = PARAMSERVER__V1__JOIN_REPLY__INIT;
    struct psd_control *c = t->job->control;
    if (list->n)
        psd_members_fill(c, psd_now(t->core), list);
    out.generation = t->core->generation;
    out.run = atomic_load(&t->job->run);
    out.incarnation = m->incarnation;
    out.epoch = c->epoch;
    out.heartbeat_ms = t->core->config.heartbeat_ms;
    out.dead_after_ms = t->core->config.dead_after_ms;
    out.n_members = list->n;
    out.members = list->pointers;
    out.live = c->tally.live;
    out.chief = c->chief;
    out.late = c->begun && !m->participation.passed && !m->lease_sequence;
    out.data_epoch = c->data.number + c->data.over;
    out.on_existing = c->on_existing;
    return psd_request_reply(t, &out.base, NULL);
}

// Job locked. Another process that comes under the rank of a member waits until that is gone: the two may be one worker that
// has been started again.
static int join_park(struct psd_request *t, struct psd_member *m)
{
    struct psd_control *c = t->job->control;
    if (m->successors.n == 0)
        m->succeeded_at = psd_control_awake(c, psd_now(t->core));
    int code = psd_park(t, &m->successors, &t->job->lock);
    psd_member_recount(c, m);
    return code;
}

static int join(struct psd_request *t, const Paramserver__V1__JoinRequest *r, struct psd_member_list *list)
{
    int code;
    bool again;
    psd_job_unref(t->core, t->job);  // in which it has waited for its rank: the name may be another job's by now
    t->job = NULL;
    do {
        pthread_mutex_lock(&t->core->table);
        code = open_job(t, r);
        pthread_mutex_unlock(&t->core->table);
        again = code == PS_RESOURCE_EXHAUSTED && t->gone;  // there is more room without it
        psd_drop_gone(t);
    } while (again);
    if (code != PS_OK)
        return code;
    pthread_mutex_lock(&t->job->lock);
    struct psd_member *m = t->caller->worker <= t->job->control->workers
                               ? &t->job->control->members[t->caller->worker - 1]
                               : &(struct psd_member){.state = EXPECTED};
    code = check_admission(t, r, m);
    if (code == PSD_WAITS)
        code = join_park(t, m);
    else if (code == PS_OK) {
        admit(t, r, m);
        code = reply_join(t, m, list);
        psd_control_advance(t->job, &t->ready);
    }
    pthread_mutex_unlock(&t->job->lock);
    if (code == PS_OK)
        psd_control_broadcast(t->core, t->job, psd_now(t->core), &t->ready);
    return code;
}

int psd_join(struct psd_request *t)
{
    const Paramserver__V1__JoinRequest *r = (const Paramserver__V1__JoinRequest *)t->request;
    struct psd_member_list list = {0};
    int code = (int)check_join(t, r);
    if (code == PS_OK)
        code = (int)reserve_join(t, r, &list);
    if (code == PS_OK)
        code = join(t, r, &list);
    psd_members_list_free(&list);
    return code;
}
