// SPDX-License-Identifier: Apache-2.0
//
// Join. Worker 0 opens the job, or begins another run of one that is over; the others wait until it has. Then the
// caller becomes the member of its rank, once that is free.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "psd/control/state.h"
#include "psd/service/service.h"

typedef Paramserver__V1__JoinRequest join_t;

enum ps_code psd_check_on_existing(Paramserver__V1__OnExisting what, struct ps_error *e)
{
    if (what != PARAMSERVER__V1__ON_EXISTING__REFUSE && what != PARAMSERVER__V1__ON_EXISTING__RESUME &&
        what != PARAMSERVER__V1__ON_EXISTING__REPLACE)
        return ps_fail(e, PS_INVALID_ARGUMENT, "on_existing %d is none of REFUSE, RESUME, REPLACE", (int)what);
    return PS_OK;
}

static enum ps_code join_check(struct psd_request *t, const join_t *r)
{
    struct ps_error *e = &t->error;
    if (t->core->config.task != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "join: this is ps task %" PRIu32 ", members join at task 0",
                       t->core->config.task);
    if (r->workers == 0 || r->workers > PS_MAX_WORKERS || t->caller->worker == 0 || t->caller->worker > r->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "join: worker (rank + 1) is %" PRIu32 " of %" PRIu32 ": expected 1 to %s", t->caller->worker,
                       r->workers, r->workers > PS_MAX_WORKERS ? "65536" : "their number");
    if (r->update <= PARAMSERVER__V1__UPDATE__UPDATE_NONE || r->update > PARAMSERVER__V1__UPDATE__SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: update is %d; expected async, sync or ssp (1 to 3)",
                       (int)r->update);
    if (r->staleness && r->update != PARAMSERVER__V1__UPDATE__SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: a bound of the staleness, %" PRIu32 ", is for ssp jobs alone",
                       r->staleness);
    if (psd_check_on_existing(r->on_existing, e))
        return ps_error_prefix(e, "join");
    if (strlen(r->configuration) > PSD_CONFIGURATION_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: the configuration has %zu bytes; expected at most %d",
                       strlen(r->configuration), PSD_CONFIGURATION_MAX);
    if (r->min_workers > r->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: at least %" PRIu32 " of %" PRIu32 " workers", r->min_workers,
                       r->workers);
    return PS_OK;
}

// ---- the job: the table lock is held ------------------------------------------------------------------------------

// old: whose run is over, not locked (may be NULL). Where there is no room, a job that is void gives way: see
// join_find_job.
static enum ps_code join_begin_run(struct psd_request *t, struct psd_job *job, struct psd_job *old, const join_t *r,
                                   Paramserver__V1__OnExisting how)
{
    struct psd_table *table = &t->core->table;
    struct psd_control *c = psd_control_new(table->host, old ? old->control : NULL, r, &t->error);
    if (!c && !t->gone)
        psd_job_drop_void(table, NULL, &t->gone, &t->ready);
    if (!c)
        return t->error.code;
    if (old && psd_job_has_failed(old)) {
        snprintf(c->before, sizeof c->before, "%s", old->failure);
        psd_control_take_drained(c, old);
    }
    psd_job_collect(job, &t->ready);  // of the run that is over, in which nobody waits any more
    psd_control_open(job, c, how, &t->ready);
    psd_ready_all(&t->ready, &table->joining);
    return PS_OK;
}

// Puts a job of this name into the table, in place of that one (may be NULL). Nothing has happened where there is no
// memory for it, but that a job which is void may have given way.
static struct psd_job *join_open_new(struct psd_request *t, const join_t *r, struct psd_job *old,
                                     Paramserver__V1__OnExisting how)
{
    struct psd_table *table = &t->core->table;
    if (!old && psd_job_make_place(table, t->call->from, &t->gone, &t->ready, &t->error))
        return NULL;
    struct psd_job *job = psd_job_new(t->caller->job, t->call->from, table->host);
    if (!job) {
        ps_no_memory(&t->error, "a job");
        return NULL;
    }
    if (join_begin_run(t, job, old, r, how)) {
        psd_job_free(job);
        return NULL;
    }
    if (old) {
        psd_job_ref(old);
        t->gone = old;
        psd_job_remove(table, old, "it was replaced", &t->ready);
    }
    psd_job_install(table, job);
    return job;
}

// A run on old values is of the workers that these were declared for.
static enum ps_code join_check_resume(struct psd_request *t, const join_t *r, const struct psd_job *job)
{
    if (!atomic_load(&job->declared) || (job->workers == r->workers && job->update == r->update))
        return PS_OK;
    return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                   "job '%s' was declared with %" PRIu32 " workers as %s, this worker brings %" PRIu32
                   " and %s: it can only be resumed as it was",
                   job->name, job->workers, psd_update_name(job->update), r->workers, psd_update_name(r->update));
}

static bool join_is_over(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool over = psd_job_is_over(job);
    pthread_mutex_unlock(&job->lock);
    return over;
}

static bool join_was_opener(const struct psd_request *t, struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool was = psd_control_was_opened_by(job->control, t->caller->client.data);
    pthread_mutex_unlock(&job->lock);
    return was;
}

static enum ps_code join_refuse_failed(struct psd_request *t, struct psd_job *job, Paramserver__V1__OnExisting how)
{
    if (how != PARAMSERVER__V1__ON_EXISTING__REFUSE || !psd_job_has_failed(job))
        return PS_OK;
    pthread_mutex_lock(&job->lock);
    job->control->refused = true;
    pthread_mutex_unlock(&job->lock);
    return ps_fail(&t->error, PS_ALREADY_EXISTS,
                   "job '%s' exists, %s: resume it or replace it (on_existing: resume, replace), or choose another "
                   "name",
                   job->name, psd_job_was_interrupted(job) ? "interrupted" : "failed");
}

// May this worker 0 begin another run of the job, which is over, and how? The process that opened the run that has
// ended, or has waited to go on with it, may not.
static enum ps_code join_check_over(struct psd_request *t, struct psd_job *job, Paramserver__V1__OnExisting *how)
{
    if (join_was_opener(t, job))
        return ps_fail(&t->error, PS_ABORTED, "job '%s' has ended: this process was its worker 0", job->name);
    if (t->call->parked_since)
        return ps_fail(&t->error, PS_ABORTED, "job '%s' has ended while this worker waited for its rank", job->name);
    if (join_refuse_failed(t, job, *how))
        return t->error.code;
    if (*how == PARAMSERVER__V1__ON_EXISTING__REFUSE)
        *how = PARAMSERVER__V1__ON_EXISTING__REPLACE;  // it is done: its name is free
    if (job->declaring)
        return ps_fail(&t->error, PS_UNAVAILABLE, "job '%s' is being declared", job->name);
    return PS_OK;
}

// By worker 0, where no run of the job is under way; *job may be NULL, and becomes the one that is.
static enum ps_code join_open_run(struct psd_request *t, const join_t *r, struct psd_job **job)
{
    Paramserver__V1__OnExisting how = r->on_existing;
    if ((*job && join_check_over(t, *job, &how)) || psd_refuse_when_draining(t))
        return t->error.code;
    if (*job && how == PARAMSERVER__V1__ON_EXISTING__RESUME)
        return join_check_resume(t, r, *job) ? t->error.code : join_begin_run(t, *job, *job, r, how);
    *job = join_open_new(t, r, *job, how);
    return *job ? PS_OK : t->error.code;
}

// The job that the caller means to join, in t->job (referenced), opened if it is worker 0 that asks.
static int join_open(struct psd_request *t, const join_t *r)
{
    struct psd_job *job = psd_job_lookup(&t->core->table, t->caller->job);
    if (job && psd_request_check_owner(t, job))
        return (int)t->error.code;
    const bool under_way = job && !join_is_over(job);
    // What worker 0 is refused for, with the same job file.
    const bool comes_after = job && !under_way && !t->call->parked_since && t->caller->worker != 1;
    if (comes_after && join_refuse_failed(t, job, r->on_existing))
        return (int)t->error.code;
    if (!under_way && t->caller->worker != 1)
        return psd_park(t, &t->core->table.joining, &t->core->table.lock,
                        &(struct psd_wait){.kind = PARAMSERVER__V1__WAIT_KIND__FOR_DECLARATION});
    if (!under_way && join_open_run(t, r, &job))
        return (int)t->error.code;
    psd_job_ref(job);
    t->job = job;
    return PS_OK;
}

// No lock is held.
static int join_find_job(struct psd_request *t, const join_t *r)
{
    int code;
    bool again;
    psd_job_unref(t->job);  // in which it has waited for its rank: the name may be another job's by now
    t->job = NULL;
    do {
        pthread_mutex_lock(&t->core->table.lock);
        code = join_open(t, r);
        pthread_mutex_unlock(&t->core->table.lock);
        again = code == PS_RESOURCE_EXHAUSTED && t->gone;  // there is more room without it
        psd_drop_gone(t);
    } while (again);
    return code;
}

// ---- the member ---------------------------------------------------------------------------------------------------

// All that the reply needs.
static enum ps_code join_reserve(struct psd_request *t, const join_t *r, struct psd_member_list *list)
{
    const uint32_t named = r->workers <= PSD_MEMBERS_WHOLE ? r->workers : 0;
    if (!psd_members_reserve(named, list))
        return ps_no_memory(&t->error, "a list of members");
    return psd_request_reserve(t, PSD_REPLY_BYTES + named * PSD_MEMBER_BYTES);
}

// Job locked.
static int join_reply(struct psd_request *t, const struct psd_member *m, struct psd_member_list *list)
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
    out.chief = psd_chief(c);
    out.arrival = m->arrival;
    out.late = c->begun && !m->participation.passed && !m->lease_sequence;
    out.data_epoch = c->data.number + c->data.over;
    out.on_existing = c->on_existing;
    out.resumed_round = c->resumed_round;
    return psd_request_reply(t, &out.base, NULL);
}

// Job locked. Another process that comes under the rank of a member waits until that is gone: the two may be one worker
// that has been started again.
static int join_park(struct psd_request *t)
{
    struct psd_control *c = t->job->control;
    struct psd_member *m = &c->members[t->caller->worker - 1];
    psd_member_succeeded(c, m, psd_now(t->core));
    int code =
        psd_park(t, &m->successors, &t->job->lock, &(struct psd_wait){.kind = PARAMSERVER__V1__WAIT_KIND__FOR_RANK});
    psd_member_recount(c, m);
    return code;
}

static int join_job(struct psd_request *t, const join_t *r, struct psd_member_list *list)
{
    const uint64_t now = psd_now(t->core);
    int code = join_find_job(t, r);
    if (code != PS_OK)
        return code;
    pthread_mutex_lock(&t->job->lock);
    code = psd_member_check_join(t->job, r, t->call->parked_since != 0, &t->error);
    if (code == PSD_WAITS) {
        code = join_park(t);
    } else if (code == PS_OK) {
        code = join_reply(t, psd_member_admit(t->job, r, now), list);
        psd_control_advance(t->job, &t->ready);
    }
    pthread_mutex_unlock(&t->job->lock);
    if (code == PS_OK)
        psd_control_broadcast(t->job, now, &t->ready);
    return code;
}

int psd_join(struct psd_request *t)
{
    const join_t *r = (const join_t *)t->request;
    struct psd_member_list list = {0};
    int code = (int)join_check(t, r);
    if (code == PS_OK)
        code = (int)join_reserve(t, r, &list);
    psd_runs_hear(&t->core->table.runs, r->newest);
    if (code == PS_OK)
        code = join_job(t, r, &list);
    psd_members_list_free(&list);
    return code;
}
