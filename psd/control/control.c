// SPDX-License-Identifier: Apache-2.0
#include "psd/control/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "psd/job/table.h"
#include "psd/sync/sync.h"

// Takes room for c from its pool, and for that the room of the run before.
static bool take_room(struct psd_control *c, struct psd_control *before)
{
    size_t had = before ? before->room : 0;
    size_t room = sizeof *c + strlen(c->configuration) +
                  c->workers * (sizeof *c->members + 7 * PS_QUEUE_BYTES + 4 * PS_HEAP_BYTES) +
                  c->tasks * (2 * sizeof(uint64_t) + sizeof(bool));
    psd_pool_give(c->pool, had);
    bool taken = psd_pool_take(c->pool, room);
    c->room = taken ? room : 0;
    if (before && (taken || !psd_pool_take(c->pool, had)))
        before->room = 0;
    return taken;
}

static bool control_make_orders(struct psd_control *c)
{
    const uint32_t n = c->workers;
    return ps_queue_init(&c->silent, n) && ps_queue_init(&c->idle, n) && ps_queue_init(&c->withdrawn, n) &&
           ps_queue_init(&c->in_collective, n) && ps_queue_init(&c->in_lease, n) && ps_queue_init(&c->succeeded, n) &&
           ps_queue_init(&c->changes, n) && ps_heap_init(&c->seniority, n) && ps_heap_init(&c->clocks, n) &&
           ps_heap_init(&c->gates, n) && ps_heap_init(&c->deadlines, n);
}

static void control_free_orders(struct psd_control *c)
{
    ps_queue_fini(&c->silent);
    ps_queue_fini(&c->idle);
    ps_queue_fini(&c->withdrawn);
    ps_queue_fini(&c->in_collective);
    ps_queue_fini(&c->in_lease);
    ps_queue_fini(&c->succeeded);
    ps_queue_fini(&c->changes);
    ps_heap_fini(&c->seniority);
    ps_heap_fini(&c->clocks);
    ps_heap_fini(&c->gates);
    ps_heap_fini(&c->deadlines);
}

// c may be NULL.
static void control_destroy(struct psd_control *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; c->members && i < c->workers; i++)
        psd_participation_clear(&c->members[i].participation);
    psd_epoch_free(&c->data);
    control_free_orders(c);
    free(c->in_flight);
    free(c->open);
    free(c->acked);
    free(c->members);
    free(c->configuration);
    psd_pool_give(c->pool, c->room);
    free(c);
}

struct psd_control *psd_control_new(const struct psd_host *host, struct psd_control *before,
                                    const Paramserver__V1__JoinRequest *r, struct ps_error *e)
{
    const uint32_t tasks = host->tasks;
    struct psd_control *c = ps_try_alloc(sizeof *c);
    if (!c) {
        ps_no_memory(e, "a job's members");
        return NULL;
    }
    c->pool = host->pool;
    c->update = r->update;
    c->workers = r->workers;
    c->min_workers = r->min_workers ? r->min_workers : 1;
    c->staleness = r->staleness;
    c->follows_mode = r->follows_mode;
    c->mode = c->next = (struct psd_mode){r->update, r->staleness};
    c->rounds.kept = psd_control_is_sync(c);
    c->opened = psd_host_now(host);
    c->slept = atomic_load(&host->slept);
    c->join_within = (r->join_within_ms ? r->join_within_ms : PSD_JOIN_WITHIN_MS) * PS_MS;
    c->tasks = tasks;
    if (before) {
        memcpy(c->openers, before->openers, sizeof c->openers);
        c->n_openers = before->n_openers;
    }
    c->configuration = ps_try_strdup(r->configuration);
    c->members = ps_try_alloc_array(c->workers, sizeof *c->members);
    c->acked = ps_try_alloc_array(tasks, sizeof *c->acked);
    c->open = ps_try_alloc_array(tasks, sizeof *c->open);
    c->in_flight = ps_try_alloc_array(tasks, sizeof *c->in_flight);
    if (!control_make_orders(c) || !c->configuration || !c->members || !c->acked || !c->open || !c->in_flight) {
        control_destroy(c);
        ps_no_memory(e, "a job's members");
        return NULL;
    }
    if (!take_room(c, before)) {
        control_destroy(c);
        ps_fail(e, PS_RESOURCE_EXHAUSTED,
                "there is no room for the %" PRIu32 " workers of a job; the limit is %zu bytes", r->workers,
                host->pool->limit);
        return NULL;
    }
    c->epoch = before ? before->epoch : 0;
    c->first_epoch = c->epoch + 1;
    for (uint32_t i = 0; i < c->workers; i++) {
        c->members[i].state = PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
        psd_member_recount(c, &c->members[i]);
    }
    return c;
}

void psd_control_take_drained(struct psd_control *c, struct psd_job *old)
{
    pthread_mutex_lock(&old->lock);
    const struct psd_control *before = old->control;
    const bool anew = !psd_job_was_interrupted(old) && c->opened < before->last_heard + before->join_within;
    for (uint32_t i = 1; anew && i < c->workers && i < before->workers; i++)
        c->members[i].draining =
            before->members[i].draining && before->members[i].state == PARAMSERVER__V1__MEMBER_STATE__LEFT;
    pthread_mutex_unlock(&old->lock);
}

// A Join that found the job before its run was over may have parked itself since: it is for this run.
static void control_release(struct psd_control *c, struct psd_call **ready)
{
    for (uint32_t i = 0; c && i < c->workers; i++)
        psd_member_release(&c->members[i], ready);
}

// What all tasks take for the end of the run before: this one's rounds, or others' that it has heard of.
static uint64_t control_open_round(const struct psd_job *job)
{
    const uint64_t here = psd_sync_last_closed(job), heard = job->control ? psd_view_closed(job->control) : 0;
    return (here > heard ? here : heard) + 1;
}

void psd_control_open(struct psd_job *job, struct psd_control *c, Paramserver__V1__OnExisting how,
                      struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    c->resumed_round = how == PARAMSERVER__V1__ON_EXISTING__RESUME && job->control ? control_open_round(job) : 0;
    control_release(job->control, ready);
    control_destroy(job->control);
    job->control = c;
    c->on_existing = how;
    psd_job_set_run(job, psd_runs_next(job->host->runs), false);
    ps_info("job '%s' begins: %" PRIu32 " worker%s", job->name, c->workers, c->workers == 1 ? "" : "s");
    psd_members_leave_out_drained(job, ready);
    pthread_mutex_unlock(&job->lock);
}

// ---- what goes on after a change ----------------------------------------------------------------------------------

// Before all go on together, all are included again, and every task knows it: else one of them could close a round
// without some of them.
static bool control_include_all(struct psd_control *c, const struct ps_queue *who)
{
    if (!psd_control_is_sync(c))
        return true;
    if (!psd_view_is_known(c))
        return false;  // who is excluded, gone or new: that decides their rounds
    for (uint32_t rank = who->first; rank != PS_NO_ITEM; rank = ps_queue_next(who, rank)) {
        struct psd_member *m = &c->members[rank];
        c->visited++;
        if (!m->excluded)
            continue;
        m->excluded = false;
        psd_view_changed(c, m);
        psd_member_recount(c, m);
    }
    return psd_view_is_known(c);
}

// Some wait in a collective, all others for a lease. Who is in the collective will not train what these wait for; after
// that they are on the way to the next epoch, and do not come: as late workers are, and those whom late workers miss.
// Before the first epoch only late workers wait for a lease.
static void control_part(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    if (!c->data.over && c->data.examples) {
        psd_lease_end_epoch(c, ready);
        return;
    }
    for (uint32_t rank = c->in_lease.first; rank != PS_NO_ITEM; rank = ps_queue_next(&c->in_lease, rank)) {
        c->members[rank].newcomer = true;
        psd_member_recount(c, &c->members[rank]);
    }
    if (control_include_all(c, &c->in_collective))
        psd_collective_complete(job, ready);
}

// All live workers wait for what they train next.
static void control_hand_out(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    if (!control_include_all(c, &c->in_lease))
        return;
    if (c->data.over && psd_mode_switches(c))
        psd_mode_switch(job, ready);
    else if (psd_control_is_sync(c))
        psd_lease_assign(job, ready);
    else
        psd_lease_wake_all(c, ready);  // they take ranges
}

void psd_control_advance(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    const struct psd_tally *t = &c->tally;
    psd_mode_tidy(job);
    psd_clock_advance(c, ready);
    if (c->declared)
        psd_ready_all(ready, &job->waiting);  // Describe(wait)
    if (psd_lease_offer(c, ready) || t->live == 0 || t->expected)
        return;
    if (t->in_collective && t->in_collective == t->awaited) {
        if (control_include_all(c, &c->in_collective))
            psd_collective_complete(job, ready);
    } else if (t->in_lease == t->live && (psd_control_is_sync(c) || c->data.over)) {
        control_hand_out(job, ready);
    } else if (t->in_collective && t->in_collective + t->in_lease == t->live) {
        control_part(job, ready);
    }
}

// ---- broadcasting the view ----------------------------------------------------------------------------------------

// A SetMembers under way. It holds a reference on the job.
struct broadcast {
    struct psd_job *job;
    uint64_t run;
    uint32_t task;
    bool lets_go;  // of what was declared for a run that has ended before it was declared here
    struct psd_view_delta delta;
};

// False: not this message.
static bool broadcast_read_reply(const struct ps_slices *reply, struct psd_view_delta *d)
{
    ProtobufCMessage *m;
    struct ps_slices payload = PS_SLICES_EMPTY;
    if (ps_msg_unpack(&paramserver__v1__set_members_reply__descriptor, reply, &m, &payload, NULL))
        return false;
    const Paramserver__V1__SetMembersReply *r = (const Paramserver__V1__SetMembersReply *)m;
    for (size_t i = 0; i < d->n && i < r->n_counted && r->n_counted == r->n_counted_in_all; i++) {
        d->v[i].counted = r->counted[i];
        d->v[i].counted_in_all = r->counted_in_all[i];
    }
    d->open = r->open_round;
    ps_slices_clear(&payload);
    ps_msg_free(m);
    return true;
}

// Job locked. A task that does not know a job that was declared on all of them has restarted: nobody can train on, and
// those who come back, or have not noticed yet, would wait for what it had. True: the job ends by that.
static bool broadcast_task_is_lost(struct psd_job *job, uint32_t task, enum ps_code code)
{
    char why[80];
    if (code != PS_NOT_FOUND || !job->control->declared || psd_job_is_over(job))
        return false;
    snprintf(why, sizeof why, "ps task %" PRIu32 " has restarted and lost what it had", task);
    return psd_job_fail(job, atomic_load(&job->run), why);
}

// Job locked. It has let go, or has nothing of that run; else it is told again.
static void broadcast_note_let_go(struct psd_control *c, uint32_t task, enum ps_code code)
{
    if (!c->declared)
        c->acked[task] = code == PS_OK || code == PS_NOT_FOUND || code == PS_FAILED_PRECONDITION;
}

// Job locked. It is told again at every tick, and barriers wait for it meanwhile.
static void broadcast_log_refusal(struct psd_job *job, uint32_t task, enum ps_code code)
{
    char more[PS_LOG_MORE];
    const bool passes = code == PS_OK || code == PS_UNAVAILABLE || code == PS_ABORTED || code == PS_NOT_FOUND ||
                        code == PS_FAILED_PRECONDITION || code == PS_DEADLINE_EXCEEDED || code == PS_CANCELLED;
    if (!passes && ps_log_is_due(&job->control->refusals, psd_host_now(job->host), more))
        ps_warn("job '%s': ps task %" PRIu32 " refuses to hear who takes part (%s): barriers wait until it does%s",
                job->name, task, ps_code_name(code), more);
}

// What cannot be read is told again at the next tick; a task that lacks what was before is told of all.
static void broadcast_on_reply(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct broadcast *x = arg;
    struct psd_call *ready = NULL;
    bool lost = false;
    pthread_mutex_lock(&x->job->lock);
    if (atomic_load(&x->job->run) == x->run) {
        struct psd_control *c = x->job->control;
        c->in_flight[x->task] = false;
        broadcast_log_refusal(x->job, x->task, code);
        if (x->lets_go)
            broadcast_note_let_go(c, x->task, code);
        else if (code == PS_ABORTED)
            c->acked[x->task] = 0;
        else if (code == PS_NOT_FOUND && psd_job_is_over(x->job) && x->delta.epoch > c->acked[x->task])
            c->acked[x->task] = x->delta.epoch;  // nothing is left there that could hear of the end
        if (code == PS_OK && x->delta.epoch > c->acked[x->task] && broadcast_read_reply(reply, &x->delta)) {
            psd_view_acked(x->job, x->task, &x->delta);
            psd_control_advance(x->job, &ready);
        }
        lost = broadcast_task_is_lost(x->job, x->task, code);
    }
    pthread_mutex_unlock(&x->job->lock);
    if (lost)
        psd_job_collect(x->job, &ready);
    psd_host_run_ready(x->job->host, ready);
    psd_job_unref(x->job);
    psd_view_delta_free(&x->delta);
    free(x);
}

// What a task reads of a member (psd/service/peer.c). All that people are told of very many would be a larger message
// than it takes.
static void broadcast_strip(Paramserver__V1__Member *m)
{
    const Paramserver__V1__Member whole = *m;
    paramserver__v1__member__init(m);
    m->rank = whole.rank;
    m->state = whole.state;
    m->incarnation = whole.incarnation;
    m->excluded = whole.excluded;
}

// Job locked. Packs what a task must know; false: no memory, the next tick tries again.
static bool broadcast_pack(struct psd_job *job, uint64_t now, const struct psd_view_delta *d, struct ps_slices *message)
{
    Paramserver__V1__SetMembersRequest request = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    struct psd_member_list list;
    if (!psd_members_list(job->control, d->since, now, &list))
        return false;
    for (size_t i = 0; i < list.n; i++)
        broadcast_strip(list.pointers[i]);
    request.job = job->name;
    request.run = atomic_load(&job->run);
    request.epoch = d->epoch;
    request.since = d->since;
    request.n_members = list.n;
    request.members = list.pointers;
    request.failure = psd_job_has_failed(job) ? job->failure : (char *)"";
    request.interrupted = psd_job_was_interrupted(job);
    ps_msg_pack(&request.base, NULL, message);
    psd_members_list_free(&list);
    return !message->broken;
}

// Job locked. The same of a run that has ended before it was declared: other tasks may have declared it.
static bool broadcast_pack_end(const struct psd_job *job, struct ps_slices *message)
{
    Paramserver__V1__SetMembersRequest request = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    request.job = job->name;
    request.run = atomic_load(&job->run);
    request.since = 1;  // of no member
    request.failure =
        psd_job_has_failed(job) ? (char *)job->failure : (char *)"its workers left before it was declared";
    request.interrupted = psd_job_was_interrupted(job);
    request.undeclared = true;
    request.forget = job->control->on_existing == PARAMSERVER__V1__ON_EXISTING__REPLACE;
    ps_msg_pack(&request.base, NULL, message);
    return !message->broken;
}

// Job locked. Such a run?
static bool broadcast_is_undeclared(const struct psd_job *job)
{
    return job->control && !job->control->declared && psd_job_is_over(job);
}

// Job locked. Does the task not know how it stands? Task 0 itself has nothing of a run that it has not declared.
static bool broadcast_is_behind(const struct psd_job *job, uint32_t task)
{
    const struct psd_control *c = job->control;
    if (c && c->declared)
        return c->acked[task] < c->changed;
    return task && broadcast_is_undeclared(job) && !c->acked[task];
}

static bool broadcast_is_due(const struct psd_job *job, uint32_t task)
{
    return broadcast_is_behind(job, task) && !job->control->in_flight[task];
}

// Job locked. A message that is due to a task; NULL: none is, or there is no memory for it.
static struct broadcast *broadcast_make(struct psd_job *job, uint32_t task, uint64_t now, struct ps_slices *message)
{
    struct psd_control *c = job->control;
    struct broadcast *x = broadcast_is_due(job, task) ? ps_try_alloc(sizeof *x) : NULL;
    if (!x)
        return NULL;
    *x = (struct broadcast){.job = job, .run = atomic_load(&job->run), .task = task, .lets_go = !c->declared};
    if (x->lets_go
            ? broadcast_pack_end(job, message)
            : psd_view_delta_since(c, c->acked[task], &x->delta) && broadcast_pack(job, now, &x->delta, message)) {
        c->in_flight[task] = true;
        return x;
    }
    ps_slices_clear(message);
    psd_view_delta_free(&x->delta);
    free(x);
    return NULL;
}

static void broadcast_to(struct psd_job *job, uint32_t task, uint64_t now)
{
    struct ps_slices message = PS_SLICES_EMPTY;
    pthread_mutex_lock(&job->lock);
    struct broadcast *x = broadcast_make(job, task, now, &message);
    pthread_mutex_unlock(&job->lock);
    if (!x)
        return;
    psd_job_ref(job);
    job->host->send(job->host->world, task, PARAMSERVER__V1__METHOD__SET_MEMBERS, &message, broadcast_on_reply, x);
}

// This task's own rounds hear of it without a message.
static void broadcast_to_self(struct psd_job *job, struct psd_call **ready)
{
    struct psd_view_delta d = {0};
    struct ps_error e;
    pthread_mutex_lock(&job->lock);
    struct psd_control *c = job->control;
    bool must = broadcast_is_due(job, 0) && psd_view_delta_since(c, c->acked[0], &d);
    const uint32_t workers = must ? c->workers : 0;
    const uint64_t run = atomic_load(&job->run);
    pthread_mutex_unlock(&job->lock);
    if (must && psd_view_take(job, run, workers, &d, ready, &e) == PS_OK) {
        pthread_mutex_lock(&job->lock);
        if (atomic_load(&job->run) == run && d.epoch > c->acked[0]) {
            psd_view_acked(job, 0, &d);
            psd_control_advance(job, ready);
        }
        pthread_mutex_unlock(&job->lock);
    }
    psd_view_delta_free(&d);
}

// Job locked. Is there a task that does not know?
static bool broadcast_any_is_behind(const struct psd_job *job)
{
    if (job->control && job->control->declared)
        return !psd_view_is_known(job->control);
    for (uint32_t task = 1; broadcast_is_undeclared(job) && task < job->host->tasks; task++)
        if (broadcast_is_behind(job, task))
            return true;
    return false;
}

// Job unlocked.
static bool broadcast_any_due(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    const bool due = broadcast_any_is_behind(job);
    pthread_mutex_unlock(&job->lock);
    return due;
}

// Job unlocked. Has a change of the rounds been proposed, and nobody been asked yet?
static bool control_asks_tasks(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool asks = job->control && job->control->rounds.asked && psd_agree_is_busy(job);
    pthread_mutex_unlock(&job->lock);
    return asks;
}

void psd_control_broadcast(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    if (job->host->task != 0)
        return;
    if (psd_job_has_failed(job))
        psd_job_collect(job, ready);
    if (control_asks_tasks(job))
        psd_agree_go_on(job, ready);
    if (!broadcast_any_due(job))
        return;
    broadcast_to_self(job, ready);
    for (uint32_t task = 1; task < job->host->tasks; task++)
        broadcast_to(job, task, now);
}

// ---- time ---------------------------------------------------------------------------------------------------------

// A worker that has waited here for a while is excluded from rounds, where others still train.
static void control_exclude_idle(struct psd_control *c, uint64_t now)
{
    if (!psd_control_is_sync(c) || !c->declared || !c->tally.busy)
        return;
    while (c->idle.n) {
        struct psd_member *m = &c->members[c->idle.first];
        c->visited++;
        if (now < m->waits_since + PSD_EXCLUDE_AFTER_MS * PS_MS)
            return;
        m->excluded = true;
        psd_view_changed(c, m);
        psd_member_recount(c, m);
    }
}

static uint64_t control_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Job locked. When something is due that comes of no call. All wait: for the other tasks to know, or for memory.
static uint64_t control_due(const struct psd_job *job, uint64_t now)
{
    struct psd_control *c = job->control;
    const struct psd_tally *t = &c->tally;
    uint64_t due = ps_heap_least(&c->deadlines);
    if (broadcast_any_is_behind(job) || (t->live && !t->expected && !t->busy))
        return now;
    if (c->silent.n)
        due = control_earlier(due, c->members[c->silent.first].last_seen + job->host->dead_after_ms * PS_MS + c->slept);
    if (t->expected)
        due = control_earlier(due, c->opened + c->join_within);
    if (psd_control_is_sync(c) && c->declared && c->idle.n)
        due = control_earlier(due, c->members[c->idle.first].waits_since + PSD_EXCLUDE_AFTER_MS * PS_MS);
    if (c->withdrawn.n)
        due = control_earlier(due, c->members[c->withdrawn.first].withdrawn_at + PSD_ASK_AGAIN_MS * PS_MS + c->slept);
    return due;
}

static uint64_t control_tick(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    uint64_t due = UINT64_MAX;
    if (job->host->task != 0)
        return due;
    psd_members_tick(job, now, ready);
    pthread_mutex_lock(&job->lock);
    if (job->control) {
        control_exclude_idle(job->control, now);
        psd_members_include_withdrawn(job->control, now);
        psd_control_advance(job, ready);
    }
    pthread_mutex_unlock(&job->lock);
    psd_control_broadcast(job, now, ready);
    pthread_mutex_lock(&job->lock);
    if (job->control)
        due = control_due(job, now);
    pthread_mutex_unlock(&job->lock);
    return due;
}

// ---- what others ask ----------------------------------------------------------------------------------------------

bool psd_control_may_declare(struct psd_job *job, const Paramserver__V1__DeclareRequest *r, struct ps_error *e)
{
    const Paramserver__V1__Caller *caller = r->caller;
    uint32_t chief = PS_NO_ITEM;
    bool open = false, may = false, same = false;
    if (job) {
        pthread_mutex_lock(&job->lock);
        const struct psd_control *c = job->control;
        open = c != NULL;
        chief = open ? psd_chief(c) : chief;
        may = chief != PS_NO_ITEM && memcmp(c->members[chief].client, caller->client.data, 16) == 0;
        same = open && c->workers == r->workers && c->update == r->update && c->staleness == r->staleness;
        pthread_mutex_unlock(&job->lock);
    }
    if (!open)
        ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' is not open: its chief joins before it declares", caller->job);
    else if (chief == PS_NO_ITEM)
        ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' is declared by its chief, and no worker of it is alive",
                caller->job);
    else if (may && !same)
        ps_fail(e, PS_FAILED_PRECONDITION,
                "job '%s' is declared with %" PRIu32 " workers as %s with staleness %" PRIu32 ", not as it was opened",
                caller->job, r->workers, psd_update_name(r->update), r->staleness);
    else if (!may)
        ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' is declared by its chief, worker %" PRIu32, caller->job, chief);
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
    job->control->declared = !psd_job_is_over(job);  // it may be: the others have let go of a run that was not declared
    psd_ready_all(ready, &job->waiting);
    // Fresh rounds hear of those who have departed since the run began, and each task whose the job is.
    if (job->control->declared)
        psd_view_broadcast(job->control);
    pthread_mutex_unlock(&job->lock);
    psd_control_broadcast(job, psd_host_now(job->host), ready);
}

// Another task goes by what it was told last: it knows that a job is done while task 0 is away, or has lost the job.
static bool control_all_left(const struct psd_job *job)
{
    const struct psd_control *c = job->control;
    if (job->host->task != 0)
        return psd_view_all_gone(job->view);
    return c && !c->tally.live && !c->tally.expected;
}

// Added up once per second at most: every worker that comes asks for the job's state, too.
static double control_speed(struct psd_control *c, uint64_t now)
{
    if (c->speed_at && now < c->speed_at + PS_SECOND)
        return c->speed;
    c->speed_at = now;
    c->speed = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct psd_member *m = &c->members[i];
        c->visited++;
        if (psd_is_live(m) && isfinite(m->examples_per_second) && m->examples_per_second > 0)
            c->speed += m->examples_per_second;
    }
    return c->speed;
}

// 0: not known. A job whose epochs are not all the same length is taken for one where they are.
static uint64_t control_time_left_ms(const struct psd_control *c, uint64_t examples_done, double speed)
{
    const struct ps_progress *p = &c->progress;
    if (c->data.number >= p->epochs || !(speed > 0))
        return 0;
    const double left = (double)(p->epochs - c->data.number) * (double)c->data.examples - (double)examples_done;
    return left > 0 && left / speed < 1e12 ? (uint64_t)(1000 * left / speed) : 0;
}

static void control_describe_progress(struct psd_job *job, struct psd_control *c, Paramserver__V1__JobStatus *out)
{
    const uint64_t now = psd_host_now(job->host);
    const bool over = psd_job_has_failed(job) || control_all_left(job);
    const uint64_t until = over ? c->last_heard : now;
    out->age_ms = until > c->opened ? (until - c->opened) / PS_MS : 0;
    if (over)
        return;
    out->examples_per_second = control_speed(c, now);
    out->time_left_ms = control_time_left_ms(c, out->examples_done, out->examples_per_second);
}

void psd_control_describe(struct psd_job *job, Paramserver__V1__JobStatus *out, char *reason, size_t size,
                          struct ps_progress *progress)
{
    pthread_mutex_lock(&job->lock);
    struct psd_control *c = job->control;
    *progress = c ? c->progress : (struct ps_progress){0};
    reason[0] = '\0';
    if (psd_job_has_failed(job)) {
        out->state = (char *)(psd_job_was_interrupted(job) ? "interrupted" : "failed");
        snprintf(reason, size, "%s", job->failure);
    } else if (!atomic_load(&job->declared) || (c && !c->declared)) {
        out->state = (char *)"opening";
    } else {
        out->state = (char *)(control_all_left(job) ? "done" : "running");
    }
    if (c && c->before[0] && c->tally.expected && !psd_job_has_failed(job)) {
        char text[PSD_FAILURE_MAX + 32];
        snprintf(text, sizeof text, "its last run has ended: %s", c->before);
        ps_utf8_cut(text, reason, size);
    }
    if (c) {
        if (out->update)  // 0: it is not declared
            out->update = c->mode.update;
        out->live_workers = c->tally.live;
        out->min_workers = c->min_workers;
        out->workers = c->workers;
        out->data_epoch = c->data.number;
        out->examples = c->data.examples;
        out->examples_done = psd_lease_done(c, out->round);
        out->staleness = c->farthest;
        out->splits = c->splits;
        out->split_round = c->split_round;
        out->split_worker = c->split_rank;
        control_describe_progress(job, c, out);
    }
    pthread_mutex_unlock(&job->lock);
}

// ---- the component ------------------------------------------------------------------------------------------------

// The other tasks forget what they were told in the run before; here the new one has begun when it was joined.
static void control_begin_run(struct psd_job *job, struct psd_call **ready)
{
    (void)ready;
    pthread_mutex_lock(&job->lock);
    psd_view_free(job->view);
    job->view = NULL;
    pthread_mutex_unlock(&job->lock);
}

static void control_free(struct psd_job *job)
{
    psd_view_free(job->view);
    control_destroy(job->control);
}

static void control_name_worker(struct psd_job *job, uint32_t rank, char *text, size_t size)
{
    psd_member_name(job->control, rank, psd_host_now(job->host), text, size);
}

const struct psd_component psd_control_component = {.name = "control",
                                                    .begin_run = control_begin_run,
                                                    .tick = control_tick,
                                                    .walk = psd_members_walk,
                                                    .free = control_free,
                                                    .is_over = control_all_left,
                                                    .name_worker = control_name_worker};
