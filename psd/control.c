// SPDX-License-Identifier: Apache-2.0
#include "psd/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/utf8.h"
#include "psd/update.h"

#define EXPECTED PARAMSERVER__V1__MEMBER_STATE__EXPECTED
#define LIVE PARAMSERVER__V1__MEMBER_STATE__LIVE
#define LEFT PARAMSERVER__V1__MEMBER_STATE__LEFT
#define DEAD PARAMSERVER__V1__MEMBER_STATE__DEAD

static uint64_t now_of(const struct psd_core *core)
{
    return core->world.now(core->world.ctx);
}

static struct psd_control *control_new(const Paramserver__V1__JoinRequest *r, uint32_t tasks)
{
    struct psd_control *c = ps_alloc(sizeof *c);
    c->update = r->update;
    c->workers = r->workers;
    c->min_workers = r->min_workers ? r->min_workers : 1;
    c->tasks = tasks;
    c->members = ps_alloc(c->workers * sizeof *c->members);
    c->told = ps_alloc(tasks * sizeof *c->told);
    c->telling = ps_alloc(tasks * sizeof *c->telling);
    for (uint32_t i = 0; i < c->workers; i++)
        c->members[i].state = EXPECTED;
    return c;
}

void psd_control_free(struct psd_control *c)
{
    if (!c)
        return;
    free(c->data.returned);
    free(c->telling);
    free(c->told);
    free(c->members);
    free(c);
}

static uint32_t count_state(const struct psd_control *c, Paramserver__V1__MemberState state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        n += c->members[i].state == state;
    return n;
}

static bool is_over(const struct psd_job *job)
{
    return atomic_load(&job->failed) == 2 || (!count_state(job->control, LIVE) && !count_state(job->control, EXPECTED));
}

// A name that is 'LIVE' etc. for people.
static const char *state_name(Paramserver__V1__MemberState state)
{
    return state == EXPECTED ? "not joined yet" : state == LIVE ? "live" : state == LEFT ? "left" : "dead";
}

// ---- membership on the wire ---------------------------------------------------------------------------------------

struct member_list {
    Paramserver__V1__Member *members, **pointers;
    size_t n;
};

static struct member_list list_members(const struct psd_control *c, uint64_t now)
{
    struct member_list list = {ps_alloc(c->workers * sizeof *list.members), ps_alloc(c->workers * sizeof(void *)),
                               c->workers};
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct psd_member *m = &c->members[i];
        Paramserver__V1__Member *out = list.pointers[i] = &list.members[i];
        paramserver__v1__member__init(out);
        out->rank = i;
        out->state = m->state;
        out->incarnation = m->incarnation;
        out->address = (char *)m->address;
        out->step = m->step;
        out->silent_ms = m->state == LIVE && now > m->last_seen ? (now - m->last_seen) / PS_MS : 0;
        out->images_per_second = m->images_per_second;
        out->loss = m->loss;
        out->reason = (char *)m->reason;
    }
    return list;
}

static void free_members(struct member_list *list)
{
    free(list->members);
    free(list->pointers);
}

// ---- barriers -----------------------------------------------------------------------------------------------------

static bool is_in_barrier(const struct psd_member *m)
{
    return m->barrier_entered > m->barrier_passed;
}

// Lets everyone through if all who live are there. A worker that is expected is waited for.
static void try_barrier(struct psd_control *c, struct psd_call **ready)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->members[i].state == EXPECTED || (c->members[i].state == LIVE && !is_in_barrier(&c->members[i])))
            return;
    for (uint32_t i = 0; i < c->workers; i++) {
        c->members[i].barrier_passed = c->members[i].barrier_entered;
        psd_ready_all(ready, &c->members[i].in_barrier);
    }
}

// ---- leases -------------------------------------------------------------------------------------------------------

static void wake_leases(struct psd_control *c, struct psd_call **ready)
{
    for (uint32_t i = 0; i < c->workers; i++)
        psd_ready_all(ready, &c->members[i].for_lease);
}

static void return_lease(struct psd_control *c, struct psd_member *m, struct psd_call **ready)
{
    if (m->lease.count == 0)
        return;
    c->data.returned = ps_realloc(c->data.returned, (c->data.n_returned + 1) * sizeof *c->data.returned);
    c->data.returned[c->data.n_returned++] = m->lease;
    m->lease.count = 0;
    wake_leases(c, ready);
}

// The next range of at most want examples: what came back first. count 0: nothing is left to give out.
static struct psd_range take_range(struct psd_epoch *d, uint64_t want)
{
    struct psd_range r = {0};
    if (d->n_returned) {
        struct psd_range *last = &d->returned[d->n_returned - 1];
        r = (struct psd_range){last->first, last->count < want ? last->count : want};
        last->first += r.count;
        last->count -= r.count;
        d->n_returned -= last->count == 0;
    } else if (d->next < d->examples) {
        r = (struct psd_range){d->next, d->examples - d->next < want ? d->examples - d->next : want};
        d->next += r.count;
    }
    return r;
}

// ---- changes ------------------------------------------------------------------------------------------------------

// Whom sync rounds wait for: everyone who has neither left nor died. Job locked.
static struct psd_roster roster_of(const struct psd_control *c)
{
    struct psd_roster roster = {c->epoch, c->workers, ps_alloc(c->workers * sizeof *roster.takes_part)};
    for (uint32_t i = 0; i < c->workers; i++)
        roster.takes_part[i] = c->members[i].state == LIVE || c->members[i].state == EXPECTED;
    return roster;
}

// Job unlocked: closing a round takes its time. departed: a rank, or UINT32_MAX.
static void reform_rounds(struct psd_job *job, const struct psd_roster *roster, uint32_t departed,
                          struct psd_call **ready)
{
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (!round)
            continue;
        if (departed < job->workers && psd_round_has_gradient(round, departed))
            ps_warn("job '%s': worker %" PRIu32
                    "'s gradient still counts in the open round of '%s' (its partition at %" PRIu64 ")",
                    job->name, departed, job->variables[job->partitions[i].variable].name, job->partitions[i].first);
        psd_round_set_members(job, round, roster, ready);
    }
}

// Does the death of this member end the job? Job locked.
static void judge_death(struct psd_job *job, uint32_t worker)
{
    const struct psd_control *c = job->control;
    const char *why = c->members[worker].reason;
    uint32_t remain = count_state(c, LIVE) + count_state(c, EXPECTED);
    char reason[256] = "";
    if (remain < c->min_workers)
        snprintf(reason, sizeof reason, "worker %" PRIu32 " %.120s, and %" PRIu32 " of at least %" PRIu32 " remain",
                 worker, why, remain, c->min_workers);
    else if (!c->declared)
        snprintf(reason, sizeof reason, "worker %" PRIu32 " %.120s before the job was declared", worker, why);
    if (reason[0])
        psd_job_fail(job, reason);
}

// A member leaves or dies: its lease comes back, no barrier waits for it, too few may remain. Job locked, from the
// change of its state on: nobody sees one without the other. settle_departure follows, unlocked.
static struct psd_roster depart(struct psd_job *job, uint32_t worker, Paramserver__V1__MemberState state,
                                struct psd_call **ready)
{
    struct psd_control *c = job->control;
    struct psd_member *m = &c->members[worker];
    m->state = state;
    c->epoch++;
    c->departed = true;
    psd_ready_all(ready, &m->in_barrier);
    psd_ready_all(ready, &m->for_lease);
    return_lease(c, m, ready);
    try_barrier(c, ready);
    if (state == DEAD)
        judge_death(job, worker);
    return roster_of(c);
}

static void settle_departure(struct psd_job *job, uint32_t worker, struct psd_roster *roster, struct psd_call **ready)
{
    if (atomic_load(&job->failed) == 2)
        psd_job_collect(job, ready);
    else
        reform_rounds(job, roster, worker, ready);
    free(roster->takes_part);
}

// ---- Join ---------------------------------------------------------------------------------------------------------

enum ps_code psd_check_on_existing(Paramserver__V1__OnExisting what, struct ps_error *e)
{
    if (what != PARAMSERVER__V1__ON_EXISTING__REFUSE && what != PARAMSERVER__V1__ON_EXISTING__RESUME &&
        what != PARAMSERVER__V1__ON_EXISTING__REPLACE)
        return ps_fail(e, PS_INVALID_ARGUMENT, "on_existing %d is none of REFUSE, RESUME, REPLACE", (int)what);
    return PS_OK;
}

static enum ps_code check_join(struct psd_turn *t, const Paramserver__V1__JoinRequest *r)
{
    struct ps_error *e = &t->error;
    if (t->core->config.task != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "join: this is ps task %" PRIu32 ", members join at task 0",
                       t->core->config.task);
    if (r->workers == 0 || r->workers > 4096 || t->caller->worker == 0 || t->caller->worker > r->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: rank + 1 = %" PRIu32 " of %" PRIu32 " workers: expected 1 to %s",
                       t->caller->worker, r->workers, r->workers > 4096 ? "4096" : "their number");
    if (r->update != PARAMSERVER__V1__UPDATE__ASYNC && r->update != PARAMSERVER__V1__UPDATE__SYNC)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: update %d is neither ASYNC nor SYNC", (int)r->update);
    if (psd_check_on_existing(r->on_existing, e))
        return ps_error_prefix(e, "join");
    if (r->min_workers > r->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "join: at least %" PRIu32 " of %" PRIu32 " workers", r->min_workers,
                       r->workers);
    return PS_OK;
}

static void new_run(struct psd_turn *t, struct psd_job *job, const Paramserver__V1__JoinRequest *r)
{
    pthread_mutex_lock(&job->lock);
    uint64_t epoch = job->control ? job->control->epoch : 0;
    psd_control_free(job->control);
    job->control = control_new(r, t->core->config.tasks);
    job->control->epoch = epoch;
    atomic_store(&job->failed, 0);
    snprintf(job->run_id, sizeof job->run_id, "%016" PRIx64, t->core->world.random(t->core->world.ctx));
    pthread_mutex_unlock(&job->lock);
    psd_ready_all(&t->ready, &t->core->joining);
}

// Table lock held: the job the caller means to join in t->job (referenced), opened if it is worker 0 that
// asks.
static int open_job(struct psd_turn *t, const Paramserver__V1__JoinRequest *r)
{
    struct psd_job *job = psd_job_lookup(t->core, t->caller->job);
    bool first = t->caller->worker == 1, over = false;
    if (job) {
        pthread_mutex_lock(&job->lock);
        over = is_over(job);
        pthread_mutex_unlock(&job->lock);
    }
    if (job && over && first && r->on_existing == PARAMSERVER__V1__ON_EXISTING__REFUSE)
        return ps_fail(&t->error, PS_ALREADY_EXISTS,
                       "job '%s' exists, %s: resume it, replace it, or choose another name", job->name,
                       atomic_load(&job->failed) == 2 ? "failed" : "done");
    if ((!job || over) && !first)
        return psd_park(t, &t->core->joining);
    if (job && over && job->declaring)
        return ps_fail(&t->error, PS_UNAVAILABLE, "job '%s' is being declared", job->name);
    if (job && over && r->on_existing == PARAMSERVER__V1__ON_EXISTING__REPLACE) {
        job->refs++;
        t->gone = job;
        psd_job_remove(t->core, job, &t->ready);
        job = NULL;
    } else if (job && over) {
        new_run(t, job, r);
    }
    if (!job) {
        job = psd_job_install(t->core, t->caller->job);
        new_run(t, job, r);
    }
    job->refs++;
    t->job = job;
    return PS_OK;
}

// Job locked.
static int admit(struct psd_turn *t, const Paramserver__V1__JoinRequest *r)
{
    struct psd_control *c = t->job->control;
    struct psd_member *m;
    if (c->workers != r->workers || c->update != r->update)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "job '%s' was opened with %" PRIu32 " workers and update %d, this worker brings %" PRIu32
                       " and %d",
                       t->job->name, c->workers, (int)c->update, r->workers, (int)r->update);
    m = &c->members[t->caller->worker - 1];
    bool same = memcmp(m->client, t->caller->client.data, 16) == 0;
    if (m->state == LIVE && !same)
        return ps_fail(&t->error, PS_ALREADY_EXISTS,
                       "worker %" PRIu32 " of job '%s' is alive at %s: two workers cannot have one rank",
                       t->caller->worker - 1, t->job->name, m->address);
    if (m->state == LEFT || m->state == DEAD) {
        if (c->update == PARAMSERVER__V1__UPDATE__SYNC || t->caller->incarnation <= m->incarnation)
            return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                           "worker %" PRIu32 " of job '%s' %s: it can come back to an async job only, with a higher "
                           "incarnation",
                           t->caller->worker - 1, t->job->name, m->state == LEFT ? "has left" : "is dead");
    }
    if (m->state != LIVE) {
        *m = (struct psd_member){.state = LIVE, .incarnation = t->caller->incarnation};
        memcpy(m->client, t->caller->client.data, 16);
        snprintf(m->address, sizeof m->address, "%s", r->address);
        ps_utf8_repair(m->address);
        c->epoch++;
    }
    m->last_seen = now_of(t->core);
    return PS_OK;
}

int psd_join(struct psd_turn *t)
{
    const Paramserver__V1__JoinRequest *r = (const Paramserver__V1__JoinRequest *)t->request;
    Paramserver__V1__JoinReply out = PARAMSERVER__V1__JOIN_REPLY__INIT;
    if (check_join(t, r))
        return (int)t->error.code;
    pthread_mutex_lock(&t->core->table);
    int code = open_job(t, r);
    pthread_mutex_unlock(&t->core->table);
    psd_drop_gone(t);
    if (code != PS_OK)
        return code;
    pthread_mutex_lock(&t->job->lock);
    code = admit(t, r);
    if (code == PS_OK) {
        struct member_list list = list_members(t->job->control, now_of(t->core));
        out.generation = t->core->generation;
        out.run_id = t->job->run_id;
        out.epoch = t->job->control->epoch;
        out.heartbeat_ms = t->core->config.heartbeat_ms;
        out.dead_after_ms = t->core->config.dead_after_ms;
        out.n_members = list.n;
        out.members = list.pointers;
        psd_turn_reply(t, &out.base, NULL);
        free_members(&list);
    }
    pthread_mutex_unlock(&t->job->lock);
    return code;
}

// ---- members' other calls -----------------------------------------------------------------------------------------

// Job locked. The caller as a live member, or NULL with the error.
static struct psd_member *live_member(struct psd_turn *t)
{
    struct psd_control *c = t->job->control;
    struct psd_member *m =
        c && t->caller->worker && t->caller->worker <= c->workers ? &c->members[t->caller->worker - 1] : NULL;
    if (!m) {
        ps_fail(&t->error, PS_FAILED_PRECONDITION,
                "rank + 1 = %" PRIu32 " is not a member of job '%s' at ps task %" PRIu32, t->caller->worker,
                t->job->name, t->core->config.task);
        return NULL;
    }
    if (m->state != LIVE || memcmp(m->client, t->caller->client.data, 16) != 0 ||
        m->incarnation != t->caller->incarnation) {
        ps_fail(&t->error, PS_ABORTED, "worker %" PRIu32 " of job '%s' is %s%s%s", t->caller->worker - 1, t->job->name,
                m->state == LIVE ? "another process now" : state_name(m->state), m->reason[0] ? ": " : "", m->reason);
        return NULL;
    }
    m->last_seen = now_of(t->core);
    return m;
}

int psd_heartbeat(struct psd_turn *t)
{
    const Paramserver__V1__HeartbeatRequest *r = (const Paramserver__V1__HeartbeatRequest *)t->request;
    Paramserver__V1__HeartbeatReply out = PARAMSERVER__V1__HEARTBEAT_REPLY__INIT;
    struct member_list list = {0};
    pthread_mutex_lock(&t->job->lock);
    struct psd_member *m = live_member(t);
    if (m) {
        m->step = r->step;
        m->images_per_second = r->images_per_second;
        m->loss = r->loss;
        out.generation = t->core->generation;
        out.epoch = t->job->control->epoch;
        if (out.epoch != r->epoch) {
            list = list_members(t->job->control, now_of(t->core));
            out.n_members = list.n;
            out.members = list.pointers;
        }
        psd_turn_reply(t, &out.base, NULL);
        free_members(&list);
    }
    pthread_mutex_unlock(&t->job->lock);
    return m ? PS_OK : (int)t->error.code;
}

int psd_leave(struct psd_turn *t)
{
    const Paramserver__V1__LeaveRequest *r = (const Paramserver__V1__LeaveRequest *)t->request;
    Paramserver__V1__LeaveReply out = PARAMSERVER__V1__LEAVE_REPLY__INIT;
    pthread_mutex_lock(&t->job->lock);
    struct psd_control *c = t->job->control;
    bool known = c && t->caller->worker && t->caller->worker <= c->workers &&
                 memcmp(c->members[t->caller->worker - 1].client, t->caller->client.data, 16) == 0;
    bool again = known && c->members[t->caller->worker - 1].state != LIVE;
    struct psd_member *m = again ? NULL : live_member(t);
    struct psd_roster roster;
    if (m) {
        snprintf(m->reason, sizeof m->reason, "%s%.120s", r->failed ? "failed: " : "", r->reason);
        ps_utf8_repair(m->reason);
        roster = depart(t->job, t->caller->worker - 1, r->failed ? DEAD : LEFT, &t->ready);
    }
    pthread_mutex_unlock(&t->job->lock);
    if (!m && !again)
        return (int)t->error.code;
    if (m)
        settle_departure(t->job, t->caller->worker - 1, &roster, &t->ready);
    out.generation = t->core->generation;
    return psd_turn_reply(t, &out.base, NULL);
}

// A message of a call that its caller has given up, or a late copy: it must not undo what came after it.
static int fail_superseded(struct psd_turn *t, const char *what, uint64_t newest)
{
    return ps_fail(&t->error, PS_ABORTED,
                   "%s: sequence %" PRIu64 " is superseded: worker %" PRIu32 " has asked again under %" PRIu64, what,
                   t->caller->sequence, t->caller->worker - 1, newest);
}

// Is somebody else in a barrier of another name? Then the two would wait for each other for ever.
static enum ps_code check_barrier(struct psd_turn *t, const char *name)
{
    const struct psd_control *c = t->job->control;
    for (uint32_t i = 0; i < c->workers; i++)
        if (i != t->caller->worker - 1 && c->members[i].state == LIVE && is_in_barrier(&c->members[i]) &&
            strncmp(c->members[i].barrier_name, name, sizeof c->members[i].barrier_name - 1) != 0)
            return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                           "barrier '%.80s': worker %" PRIu32 " waits in barrier '%s': they would wait for each other",
                           name, i, c->members[i].barrier_name);
    return PS_OK;
}

// Job locked.
static int pass_barrier(struct psd_turn *t, const char *name)
{
    uint64_t sequence = t->caller->sequence;
    struct psd_member *m = live_member(t);
    if (!m)
        return (int)t->error.code;
    if (sequence == 0)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "barrier: expected a sequence, so that a retry is known as one");
    if (sequence <= m->barrier_passed)
        return PS_OK;
    if (sequence < m->barrier_entered)
        return fail_superseded(t, "barrier", m->barrier_entered);
    if (check_barrier(t, name))
        return (int)t->error.code;
    m->barrier_entered = sequence;
    snprintf(m->barrier_name, sizeof m->barrier_name, "%s", name);
    int code = psd_park(t, &m->in_barrier);
    if (code == PSD_PARKED)
        try_barrier(t->job->control, &t->ready);
    return code;
}

int psd_barrier(struct psd_turn *t)
{
    const Paramserver__V1__BarrierRequest *r = (const Paramserver__V1__BarrierRequest *)t->request;
    Paramserver__V1__BarrierReply out = PARAMSERVER__V1__BARRIER_REPLY__INIT;
    pthread_mutex_lock(&t->job->lock);
    int code = pass_barrier(t, r->name);
    out.epoch = t->job->control ? t->job->control->epoch : 0;
    pthread_mutex_unlock(&t->job->lock);
    out.generation = t->core->generation;
    return code == PS_OK ? psd_turn_reply(t, &out.base, NULL) : code;
}

static enum ps_code check_lease(struct psd_turn *t, const Paramserver__V1__LeaseRequest *r)
{
    const struct psd_epoch *d = &t->job->control->data;
    bool finished = d->done == d->examples;
    if (r->examples == 0 || r->want == 0 || t->caller->sequence == 0)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "lease: expected examples, want and sequence above 0");
    if (d->examples && r->examples != d->examples)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "lease: the epoch has %" PRIu64 " examples elsewhere, %" PRIu64
                       " here: the workers' data differ",
                       d->examples, r->examples);
    if (r->epoch > d->number + 1 || (r->epoch == d->number + 1 && !finished))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "lease: epoch %" PRIu64 " is not over, %" PRIu64 " was asked for", d->number, r->epoch);
    return PS_OK;
}

// Job locked. *range: count 0 with PS_OK: the epoch is done.
static int take_lease(struct psd_turn *t, const Paramserver__V1__LeaseRequest *r, struct psd_range *range)
{
    struct psd_epoch *d;
    struct psd_member *m = live_member(t);
    if (!m || check_lease(t, r))
        return (int)t->error.code;
    d = &t->job->control->data;
    if (t->caller->sequence < m->lease_sequence)
        return fail_superseded(t, "lease", m->lease_sequence);
    if (t->caller->sequence == m->lease_sequence && m->lease.count) {
        *range = m->lease;
        return PS_OK;
    }
    if (r->epoch < d->number)
        return PS_OK;
    if (r->epoch > d->number) {
        d->number = r->epoch;
        d->next = d->done = 0;
    }
    d->examples = r->examples;
    d->done += m->lease.count;
    m->lease = take_range(d, r->want);
    m->lease_sequence = t->caller->sequence;
    *range = m->lease;
    if (range->count)
        return PS_OK;
    if (d->done < d->examples)
        return psd_park(t, &m->for_lease);
    wake_leases(t->job->control, &t->ready);
    return PS_OK;
}

int psd_lease(struct psd_turn *t)
{
    const Paramserver__V1__LeaseRequest *r = (const Paramserver__V1__LeaseRequest *)t->request;
    Paramserver__V1__LeaseReply out = PARAMSERVER__V1__LEASE_REPLY__INIT;
    struct psd_range range = {0};
    pthread_mutex_lock(&t->job->lock);
    int code = take_lease(t, r, &range);
    pthread_mutex_unlock(&t->job->lock);
    out.generation = t->core->generation;
    out.first = range.first;
    out.count = range.count;
    return code == PS_OK ? psd_turn_reply(t, &out.base, NULL) : code;
}

// ---- the other tasks ----------------------------------------------------------------------------------------------

// The roster in a message, which names every rank once.
static enum ps_code read_roster(struct psd_turn *t, const Paramserver__V1__SetMembersRequest *r,
                                struct psd_roster *roster)
{
    bool *seen = ps_alloc(t->job->workers * sizeof *seen);
    enum ps_code code = PS_OK;
    *roster = (struct psd_roster){r->epoch, t->job->workers, ps_alloc(t->job->workers * sizeof *roster->takes_part)};
    for (size_t i = 0; i < r->n_members && code == PS_OK; i++) {
        const Paramserver__V1__Member *m = r->members[i];
        if (m->rank >= t->job->workers || seen[m->rank])
            code = ps_fail(&t->error, PS_INVALID_ARGUMENT,
                           "set members: rank %" PRIu32 " is there twice, or is none of %" PRIu32, m->rank,
                           t->job->workers);
        else
            seen[m->rank] = true;
        if (code == PS_OK)
            roster->takes_part[m->rank] = m->state == LIVE || m->state == EXPECTED;
    }
    if (code == PS_OK && r->n_members != t->job->workers)
        code = ps_fail(&t->error, PS_INVALID_ARGUMENT, "set members: %zu of %" PRIu32 " members are named",
                       r->n_members, t->job->workers);
    free(seen);
    return code;
}

// The job, if it is here and in the run that is meant: what is said of an earlier run must not reach this one.
static enum ps_code check_run(struct psd_turn *t, const Paramserver__V1__SetMembersRequest *r)
{
    t->job = psd_job_find(t->core, r->job);
    if (!t->job || !atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_NOT_FOUND, "ps task %" PRIu32 " has no job '%.128s'", t->core->config.task,
                       r->job);
    if (t->core->config.task == 0)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "members are kept here, at the control task");
    pthread_mutex_lock(&t->job->lock);
    bool same = t->job->run_id[0] == '\0' || strcmp(t->job->run_id, r->run_id) == 0;
    pthread_mutex_unlock(&t->job->lock);
    if (!same)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "job '%s' is in another run here than '%.32s'", t->job->name,
                       r->run_id);
    return PS_OK;
}

int psd_set_members(struct psd_turn *t)
{
    const Paramserver__V1__SetMembersRequest *r = (const Paramserver__V1__SetMembersRequest *)t->request;
    Paramserver__V1__SetMembersReply out = PARAMSERVER__V1__SET_MEMBERS_REPLY__INIT;
    struct psd_roster roster = {0};
    if (check_run(t, r) == PS_OK && read_roster(t, r, &roster) == PS_OK) {
        if (r->failure[0]) {
            psd_job_fail(t->job, r->failure);
            psd_job_collect(t->job, &t->ready);
        } else {
            reform_rounds(t->job, &roster, UINT32_MAX, &t->ready);
        }
    }
    free(roster.takes_part);
    if (t->error.code)
        return (int)t->error.code;
    out.generation = t->core->generation;
    return psd_turn_reply(t, &out.base, NULL);
}

// A SetMembers under way. It holds a reference on the job.
struct telling {
    struct psd_core *core;
    struct psd_job *job;
    struct psd_control *control;
    uint32_t task;
    uint64_t epoch;
};

static void told(void *arg, enum ps_code code, const struct ps_rope *reply)
{
    struct telling *x = arg;
    (void)reply;
    pthread_mutex_lock(&x->job->lock);
    if (x->job->control == x->control) {
        x->control->telling[x->task] = false;
        if (code == PS_OK && x->epoch > x->control->told[x->task])
            x->control->told[x->task] = x->epoch;
    }
    pthread_mutex_unlock(&x->job->lock);
    psd_job_unref(x->core, x->job);
    free(x);
}

static void tell(struct psd_core *core, struct psd_job *job, uint32_t task, uint64_t now)
{
    Paramserver__V1__SetMembersRequest request = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    struct ps_rope message = PS_ROPE_EMPTY;
    struct telling *x = ps_alloc(sizeof *x);
    pthread_mutex_lock(&job->lock);
    struct member_list list = list_members(job->control, now);
    *x = (struct telling){core, job, job->control, task, job->control->epoch};
    job->control->telling[task] = true;
    request.job = job->name;
    request.run_id = job->run_id;
    request.epoch = job->control->epoch;
    request.n_members = list.n;
    request.members = list.pointers;
    request.failure = atomic_load(&job->failed) == 2 ? job->failure : (char *)"";
    ps_msg_pack(&request.base, NULL, &message);
    free_members(&list);
    pthread_mutex_unlock(&job->lock);
    core->world.send(core->world.ctx, task, PARAMSERVER__V1__METHOD__SET_MEMBERS, &message, told, x);
}

static bool must_tell(struct psd_job *job, uint32_t task)
{
    pthread_mutex_lock(&job->lock);
    struct psd_control *c = job->control;
    bool must = c && c->departed && c->declared && c->told[task] < c->epoch && !c->telling[task];
    pthread_mutex_unlock(&job->lock);
    return must;
}

// ---- time ---------------------------------------------------------------------------------------------------------

// Declares one live member dead that has been silent for too long. False: there is none.
static bool bury_silent(struct psd_job *job, uint64_t now, uint64_t limit, struct psd_call **ready)
{
    struct psd_roster roster = {0};
    uint32_t found = UINT32_MAX;
    pthread_mutex_lock(&job->lock);
    struct psd_control *c = job->control;
    for (uint32_t i = 0; c && i < c->workers && found == UINT32_MAX; i++) {
        struct psd_member *m = &c->members[i];
        if (m->state != LIVE || now < m->last_seen + limit)
            continue;
        snprintf(m->reason, sizeof m->reason, "sent no heartbeat for %.1f s", (double)(now - m->last_seen) / 1e9);
        ps_warn("job '%s': worker %" PRIu32 " (%s) is dead: it %s", job->name, i, m->address, m->reason);
        roster = depart(job, i, DEAD, ready);
        found = i;
    }
    pthread_mutex_unlock(&job->lock);
    if (found != UINT32_MAX)
        settle_departure(job, found, &roster, ready);
    return found != UINT32_MAX;
}

void psd_control_tick(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    if (core->config.task != 0)
        return;
    while (bury_silent(job, now, core->config.dead_after_ms * PS_MS, ready))
        continue;
    for (uint32_t task = 1; task < core->config.tasks; task++) {
        if (!must_tell(job, task))
            continue;
        pthread_mutex_lock(&core->table);
        job->refs++;
        pthread_mutex_unlock(&core->table);
        tell(core, job, task, now);
    }
}

// Runs fn over every list of parked calls that control keeps.
static void for_each_list(struct psd_job *job, void (*fn)(struct psd_waiters *list, void *arg), void *arg)
{
    pthread_mutex_lock(&job->lock);
    for (uint32_t i = 0; job->control && i < job->control->workers; i++) {
        fn(&job->control->members[i].in_barrier, arg);
        fn(&job->control->members[i].for_lease, arg);
    }
    pthread_mutex_unlock(&job->lock);
}

static void collect(struct psd_waiters *list, void *arg)
{
    psd_ready_all(arg, list);
}

void psd_control_collect(struct psd_job *job, struct psd_call **ready)
{
    for_each_list(job, collect, ready);
}

static void count_calls(struct psd_waiters *list, void *arg)
{
    *(uint32_t *)arg += list->n;
}

uint32_t psd_control_waiting(struct psd_job *job)
{
    uint32_t n = 0;
    for_each_list(job, count_calls, &n);
    return n;
}

struct late {
    uint64_t now;
    struct psd_call **calls;
};

static void take_late(struct psd_waiters *list, void *arg)
{
    struct late *late = arg;
    psd_take_late(list, late->now, late->calls);
}

void psd_control_take_late(struct psd_job *job, uint64_t now, struct psd_call **late)
{
    for_each_list(job, take_late, &(struct late){now, late});
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
    while (chief < c->workers && c->members[chief].state != LIVE)
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

void psd_control_set_declared(struct psd_job *job, struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    job->control->declared = true;
    struct psd_roster roster = roster_of(job->control);
    pthread_mutex_unlock(&job->lock);
    reform_rounds(job, &roster, UINT32_MAX, ready);
    free(roster.takes_part);
}

void psd_control_describe(struct psd_job *job, const char **state, uint32_t *live, char *reason, size_t size)
{
    pthread_mutex_lock(&job->lock);
    *live = job->control ? count_state(job->control, LIVE) : 0;
    reason[0] = '\0';
    if (atomic_load(&job->failed) == 2) {
        *state = "failed";
        snprintf(reason, size, "%s", job->failure);
    } else if (!atomic_load(&job->declared) || (job->control && !job->control->declared)) {
        *state = "opening";
    } else {
        *state = job->control && is_over(job) ? "done" : "running";
    }
    pthread_mutex_unlock(&job->lock);
}

// "worker 1 (live, step 17), worker 3 (not joined yet)"; job locked.
static void name_members(const struct psd_control *c, bool (*wanted)(const struct psd_member *), char *text,
                         size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < c->workers && at < size; i++) {
        const struct psd_member *m = &c->members[i];
        if (wanted(m))
            at += (size_t)snprintf(text + at, size - at, "%sworker %" PRIu32 " (%s, step %" PRIu64 ")", at ? ", " : "",
                                   i, state_name(m->state), m->step);
    }
}

static bool misses_barrier(const struct psd_member *m)
{
    return m->state == EXPECTED || (m->state == LIVE && !is_in_barrier(m));
}

static bool holds_lease(const struct psd_member *m)
{
    return m->state == LIVE && m->lease.count;
}

static bool takes_part(const struct psd_member *m)
{
    return m->state == EXPECTED || m->state == LIVE;
}

void psd_waits_for(struct psd_job *job, const struct psd_call *call, char *text, size_t size)
{
    char who[160] = "";
    int method = call->method;
    if (job) {
        pthread_mutex_lock(&job->lock);
        if (job->control)
            name_members(job->control,
                         method == PARAMSERVER__V1__METHOD__BARRIER ? misses_barrier
                         : method == PARAMSERVER__V1__METHOD__LEASE ? holds_lease
                                                                    : takes_part,
                         who, sizeof who);
        pthread_mutex_unlock(&job->lock);
    }
    snprintf(text, size, "%s%s%s",
             method == PARAMSERVER__V1__METHOD__JOIN       ? "worker 0 to open the job"
             : method == PARAMSERVER__V1__METHOD__DESCRIBE ? "the chief to declare the job"
             : method == PARAMSERVER__V1__METHOD__PULL     ? "a round to close"
             : method == PARAMSERVER__V1__METHOD__BARRIER  ? "the barrier"
                                                           : "the end of the epoch",
             who[0] ? ", for " : "", who);
}

int psd_workers(struct psd_turn *t)
{
    const Paramserver__V1__WorkersRequest *r = (const Paramserver__V1__WorkersRequest *)t->request;
    Paramserver__V1__WorkersReply out = PARAMSERVER__V1__WORKERS_REPLY__INIT;
    t->job = psd_job_find(t->core, r->job);
    if (!t->job)
        return ps_fail(&t->error, PS_NOT_FOUND, "ps task %" PRIu32 " has no job '%.128s'", t->core->config.task,
                       r->job);
    pthread_mutex_lock(&t->job->lock);
    bool here = t->job->control != NULL;
    if (here) {
        struct member_list list = list_members(t->job->control, now_of(t->core));
        out.epoch = t->job->control->epoch;
        out.n_members = list.n;
        out.members = list.pointers;
        psd_turn_reply(t, &out.base, NULL);
        free_members(&list);
    }
    pthread_mutex_unlock(&t->job->lock);
    return here ? PS_OK
                : (int)ps_fail(&t->error, PS_FAILED_PRECONDITION, "workers are known at ps task 0, this is %" PRIu32,
                               t->core->config.task);
}
