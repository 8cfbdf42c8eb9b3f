// SPDX-License-Identifier: Apache-2.0
//
// Who takes part in a job, as all its ps tasks must know it: members as they are told, and the telling.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "psd/control/control.h"
#include "psd/job/apply.h"
#include "psd/job/staging.h"
#include "psd/sync/norm.h"

// ---- members on the wire ------------------------------------------------------------------------------------------

bool psd_members_reserve(uint32_t workers, struct psd_member_list *list)
{
    *list = (struct psd_member_list){ps_try_alloc_array(workers, sizeof *list->members),
                                     ps_try_alloc_array(workers, sizeof(void *)), workers};
    if (list->members && list->pointers)
        return true;
    psd_members_list_free(list);
    return false;
}

void psd_members_fill(const struct psd_control *c, uint64_t now, struct psd_member_list *list)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct psd_member *m = &c->members[i];
        Paramserver__V1__Member *out = list->pointers[i] = &list->members[i];
        paramserver__v1__member__init(out);
        out->rank = i;
        out->state = m->state;
        out->incarnation = m->incarnation;
        out->address = (char *)m->address;
        out->step = m->step;
        out->silent_ms = m->last_seen && now > m->last_seen ? (now - m->last_seen) / PS_MS : 0;
        out->images_per_second = m->images_per_second;
        out->loss = m->loss;
        out->reason = (char *)m->reason;
        out->resting = m->resting;
        out->draining = m->draining;
        out->clock = m->clock;
    }
}

bool psd_members_list(const struct psd_control *c, uint64_t now, struct psd_member_list *list)
{
    if (!psd_members_reserve(c->workers, list))
        return false;
    psd_members_fill(c, now, list);
    return true;
}

void psd_members_list_free(struct psd_member_list *list)
{
    free(list->members);
    free(list->pointers);
    *list = (struct psd_member_list){0};
}

// ---- rosters ------------------------------------------------------------------------------------------------------

// Whom rounds wait for: everyone who lives and does not rest, and who is still expected.
static bool takes_part(Paramserver__V1__MemberState state, bool resting)
{
    return state == PARAMSERVER__V1__MEMBER_STATE__EXPECTED ||
           (state == PARAMSERVER__V1__MEMBER_STATE__LIVE && !resting);
}

static bool roster_init(struct psd_view *roster, uint64_t epoch, uint32_t workers)
{
    *roster = (struct psd_view){epoch, workers, ps_try_alloc_array(workers, sizeof *roster->takes_part), true};
    return roster->takes_part != NULL;
}

static bool is_gone(Paramserver__V1__MemberState state)
{
    return state == PARAMSERVER__V1__MEMBER_STATE__LEFT || state == PARAMSERVER__V1__MEMBER_STATE__DEAD;
}

// Nobody changes anything any more under an incarnation that has died, or has been followed by another.
static void fence(struct psd_job *job, uint32_t rank, Paramserver__V1__MemberState state, uint64_t incarnation)
{
    uint64_t least = incarnation + (state == PARAMSERVER__V1__MEMBER_STATE__DEAD && incarnation != UINT64_MAX);
    if (job->incarnations && job->incarnations[rank] < least)
        job->incarnations[rank] = least;
}

void psd_view_changed(struct psd_control *c)
{
    c->changed = ++c->epoch;
}

bool psd_view_is_known(const struct psd_control *c)
{
    for (uint32_t task = 0; c->declared && task < c->tasks; task++)
        if (c->told[task] < c->changed)
            return false;
    return true;
}

bool psd_view_has_member(const struct psd_control *c, const struct psd_member *m)
{
    for (uint32_t task = 0; c->declared && task < c->tasks; task++)
        if (c->told[task] < m->since)
            return false;
    return true;
}

uint64_t psd_view_closed(const struct psd_control *c)
{
    uint64_t least = 0;
    for (uint32_t task = 0; task < c->tasks; task++)
        if (c->open[task] && (least == 0 || c->open[task] < least))
            least = c->open[task];
    return least ? least - 1 : 0;
}

// Job unlocked: closing a round takes its time.
static void reform_rounds(struct psd_job *job, const struct psd_view *roster, struct psd_call **ready)
{
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions; i++)
        if (job->partitions[i].round)
            psd_round_set_members(job, job->partitions[i].round, roster, ready);
}

// Which rounds of each worker count on this task.
struct counted {
    uint64_t *some, *all;  // [workers]
};

static bool counted_init(struct counted *k, struct psd_job *job)
{
    *k = (struct counted){ps_try_alloc_array(job->workers, sizeof *k->some),
                          ps_try_alloc_array(job->workers, sizeof *k->all)};
    return k->some && k->all;
}

static void counted_fini(struct counted *k)
{
    free(k->some);
    free(k->all);
}

// Job locked. A task without rounds counts nothing.
static void merge_counted(struct psd_job *job, const uint64_t *some, const uint64_t *all, size_t n)
{
    struct psd_control *c = job->control;
    for (uint32_t i = 0; i < c->workers && i < n; i++) {
        struct psd_member *m = &c->members[i];
        if (some[i] > m->counted)
            m->counted = some[i];
        if (some[i] && m->state == PARAMSERVER__V1__MEMBER_STATE__DEAD && some[i] != all[i])
            ps_warn("job '%s': worker %" PRIu32 "'s gradient of round %" PRIu64
                    " counts in some partitions and not in others",
                    job->name, i, some[i]);
    }
}

// ---- SetMembers: what the other tasks hear ------------------------------------------------------------------------

// The roster in a message, which names every rank once.
static enum ps_code read_roster(struct psd_request *t, const Paramserver__V1__SetMembersRequest *r,
                                struct psd_view *roster)
{
    bool *seen = ps_try_alloc_array(t->job->workers, sizeof *seen);
    enum ps_code code = PS_OK;
    if (!roster_init(roster, r->epoch, t->job->workers) || !seen)
        code = ps_no_memory(&t->error, "a roster");
    for (size_t i = 0; i < r->n_members && code == PS_OK; i++) {
        const Paramserver__V1__Member *m = r->members[i];
        if (m->rank >= t->job->workers || seen[m->rank]) {
            code = ps_fail(&t->error, PS_INVALID_ARGUMENT,
                           "set members: rank %" PRIu32 " is there twice, or is none of %" PRIu32, m->rank,
                           t->job->workers);
        } else {
            seen[m->rank] = true;
            roster->takes_part[m->rank] = takes_part(m->state, m->resting);
            roster->over &= is_gone(m->state);
        }
    }
    if (code == PS_OK && r->n_members != t->job->workers)
        code = ps_fail(&t->error, PS_INVALID_ARGUMENT, "set members: %zu of %" PRIu32 " members are named",
                       r->n_members, t->job->workers);
    free(seen);
    return code;
}

// The job, if it is here and in the run that is meant: what is said of an earlier run must not reach this one.
static enum ps_code check_run(struct psd_request *t, const Paramserver__V1__SetMembersRequest *r)
{
    t->job = psd_job_find(t->core, r->job);
    if (!t->job || !atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_NOT_FOUND, "ps task %" PRIu32 " has no job '%.128s'", t->core->config.task,
                       r->job);
    if (t->core->config.task == 0)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "members are kept here, at the control task");
    if (r->run != atomic_load(&t->job->run))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "job '%s' is in another run here than %" PRIu64, t->job->name,
                       r->run);
    return PS_OK;
}

static void take_members(struct psd_request *t, const Paramserver__V1__SetMembersRequest *r,
                         const struct psd_view *roster)
{
    if (r->failure[0]) {
        psd_job_fail(t->job, r->failure);
        psd_job_collect(t->job, &t->ready);
        return;
    }
    pthread_mutex_lock(&t->job->lock);
    for (size_t i = 0; i < r->n_members; i++)
        fence(t->job, r->members[i]->rank, r->members[i]->state, r->members[i]->incarnation);
    pthread_mutex_unlock(&t->job->lock);
    for (size_t i = 0; i < r->n_members; i++)
        if (is_gone(r->members[i]->state))
            psd_staging_drop_worker(t->job, r->members[i]->rank, r->members[i]->incarnation);
    reform_rounds(t->job, roster, &t->ready);
    psd_norm_send(t->core, t->job, &t->ready);
}

enum { COUNTED_BYTES = 2 * 10 };  // of a reply, for one worker

int psd_set_members(struct psd_request *t)
{
    const Paramserver__V1__SetMembersRequest *r = (const Paramserver__V1__SetMembersRequest *)t->request;
    Paramserver__V1__SetMembersReply out = PARAMSERVER__V1__SET_MEMBERS_REPLY__INIT;
    struct psd_view roster = {0};
    struct counted counted = {0};
    if (check_run(t, r) == PS_OK && read_roster(t, r, &roster) == PS_OK && !counted_init(&counted, t->job))
        ps_no_memory(&t->error, "what has counted");
    if (t->error.code == PS_OK && psd_request_reserve(t, PSD_REPLY_BYTES + t->job->workers * COUNTED_BYTES) == PS_OK) {
        take_members(t, r, &roster);
        psd_rounds_counted(t->job, counted.some, counted.all);
        out.generation = t->core->generation;
        out.n_counted = out.n_counted_in_all = t->job->workers;
        out.counted = counted.some;
        out.counted_in_all = counted.all;
        out.open_round = psd_rounds_open(t->job);
        psd_request_reply(t, &out.base, NULL);
    }
    counted_fini(&counted);
    free(roster.takes_part);
    return (int)t->error.code;
}

// ---- telling them -------------------------------------------------------------------------------------------------

// A SetMembers under way. It holds a reference on the job.
struct telling {
    struct psd_core *core;
    struct psd_job *job;
    uint64_t run;
    uint32_t task;
    uint64_t epoch;
};

// False: no memory, or not this message.
static bool read_counted(struct psd_job *job, uint32_t task, const struct ps_slices *reply)
{
    ProtobufCMessage *m;
    struct ps_slices payload = PS_ROPE_EMPTY;
    if (ps_msg_unpack(&paramserver__v1__set_members_reply__descriptor, reply, &m, &payload, NULL))
        return false;
    const Paramserver__V1__SetMembersReply *r = (const Paramserver__V1__SetMembersReply *)m;
    if (r->n_counted == r->n_counted_in_all)
        merge_counted(job, r->counted, r->counted_in_all, r->n_counted);
    job->control->open[task] = r->open_round;
    ps_slices_clear(&payload);
    ps_msg_free(m);
    return true;
}

// What cannot be read is told again at the next tick.
static void told(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct telling *x = arg;
    struct psd_call *ready = NULL;
    pthread_mutex_lock(&x->job->lock);
    if (atomic_load(&x->job->run) == x->run) {
        struct psd_control *c = x->job->control;
        c->telling[x->task] = false;
        if (code == PS_OK && x->epoch > c->told[x->task] && read_counted(x->job, x->task, reply)) {
            c->told[x->task] = x->epoch;
            psd_control_advance(x->job, &ready);
        }
    }
    pthread_mutex_unlock(&x->job->lock);
    psd_run_ready(x->core, ready);
    psd_job_unref(x->core, x->job);
    free(x);
}

// Job locked. Packs what a task must know; false: no memory, the next tick tries again.
static bool pack_members(struct psd_job *job, uint64_t now, struct ps_slices *message)
{
    Paramserver__V1__SetMembersRequest request = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    struct psd_member_list list;
    if (!psd_members_list(job->control, now, &list))
        return false;
    request.job = job->name;
    request.run = atomic_load(&job->run);
    request.epoch = job->control->epoch;
    request.n_members = list.n;
    request.members = list.pointers;
    request.failure = atomic_load(&job->failed) == 2 ? job->failure : (char *)"";
    ps_msg_pack(&request.base, NULL, message);
    psd_members_list_free(&list);
    return !message->broken;
}

static bool must_tell(const struct psd_control *c, uint32_t task)
{
    return c && c->declared && c->told[task] < c->changed && !c->telling[task];
}

static void tell(struct psd_core *core, struct psd_job *job, uint32_t task, uint64_t now)
{
    struct ps_slices message = PS_ROPE_EMPTY;
    struct telling *x = NULL;
    pthread_mutex_lock(&job->lock);
    if (must_tell(job->control, task) && (x = ps_try_alloc(sizeof *x)) && !pack_members(job, now, &message)) {
        free(x);
        x = NULL;
    }
    if (x) {
        *x = (struct telling){core, job, atomic_load(&job->run), task, job->control->epoch};
        job->control->telling[task] = true;
    }
    pthread_mutex_unlock(&job->lock);
    if (!x) {
        ps_slices_clear(&message);
        return;
    }
    pthread_mutex_lock(&core->table);
    job->refs++;
    pthread_mutex_unlock(&core->table);
    core->world.send(core->world.ctx, task, PARAMSERVER__V1__METHOD__SET_MEMBERS, &message, told, x);
}

struct departure {
    bool is;
    uint64_t incarnation;
};

// This task's own rounds hear of it without a message.
static void tell_self(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    struct psd_view roster = {0};
    struct counted counted = {0};
    pthread_mutex_lock(&job->lock);
    struct psd_control *c = job->control;
    struct departure *gone = must_tell(c, 0) ? ps_try_alloc_array(c->workers, sizeof *gone) : NULL;
    bool must = gone && roster_init(&roster, c->epoch, c->workers) && counted_init(&counted, job);
    for (uint32_t i = 0; must && i < c->workers; i++) {
        gone[i] = (struct departure){is_gone(c->members[i].state), c->members[i].incarnation};
        roster.takes_part[i] = takes_part(c->members[i].state, c->members[i].resting);
        roster.over &= gone[i].is;
        fence(job, i, c->members[i].state, c->members[i].incarnation);
    }
    pthread_mutex_unlock(&job->lock);
    if (must) {
        for (uint32_t i = 0; i < roster.n; i++)
            if (gone[i].is)
                psd_staging_drop_worker(job, i, gone[i].incarnation);
        reform_rounds(job, &roster, ready);
        psd_norm_send(core, job, ready);
        psd_rounds_counted(job, counted.some, counted.all);
        uint64_t open = psd_rounds_open(job);
        pthread_mutex_lock(&job->lock);
        if (job->control == c && roster.epoch > c->told[0]) {
            merge_counted(job, counted.some, counted.all, job->workers);
            c->open[0] = open;
            c->told[0] = roster.epoch;
            psd_control_advance(job, ready);
        }
        pthread_mutex_unlock(&job->lock);
    }
    counted_fini(&counted);
    free(roster.takes_part);
    free(gone);
}

void psd_view_spread(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    if (core->config.task != 0)
        return;
    if (atomic_load(&job->failed) == 2)
        psd_job_collect(job, ready);
    tell_self(core, job, ready);
    for (uint32_t task = 1; task < core->config.tasks; task++)
        tell(core, job, task, now);
}
