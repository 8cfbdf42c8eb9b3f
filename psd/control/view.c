// SPDX-License-Identifier: Apache-2.0
//
// Who takes part in a job, as all its ps tasks must know it: the membership view, in flight and acknowledged.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/sometimes.h"
#include "psd/control/state.h"
#include "psd/job/job.h"
#include "psd/job/staging.h"
#include "psd/sync/sync.h"

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

uint64_t psd_member_silent_ms(const struct psd_control *c, uint32_t rank, uint64_t now)
{
    const uint64_t awake = psd_control_awake(c, now), seen = c->members[rank].last_seen;
    return seen && awake > seen ? (awake - seen) / PS_MS : 0;
}

static void member_fill(struct psd_control *c, uint32_t rank, uint64_t now, Paramserver__V1__Member *out)
{
    const struct psd_member *m = &c->members[rank];
    c->visited++;
    paramserver__v1__member__init(out);
    out->rank = rank;
    out->state = m->state;
    out->incarnation = m->incarnation;
    out->address = (char *)m->address;
    out->step = m->step;
    out->silent_ms = psd_member_silent_ms(c, rank, now);
    out->examples_per_second = m->examples_per_second;
    out->loss = m->loss;
    out->reason = (char *)m->reason;
    out->interrupted = m->state == PARAMSERVER__V1__MEMBER_STATE__DEAD && m->interrupted;
    out->excluded = m->excluded;
    out->draining = m->draining;
    out->clock = m->clock;
}

void psd_members_fill(struct psd_control *c, uint64_t now, struct psd_member_list *list)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        list->pointers[i] = &list->members[i];
        member_fill(c, i, now, list->pointers[i]);
    }
}

// How many members have changed since that epoch; those of an earlier run, or of none: all. Of many that is not counted
// out: all.
static uint32_t view_count_since(struct psd_control *c, uint64_t since)
{
    uint32_t n = 0, rank = c->changes.last;
    if (since < c->first_epoch)
        return c->workers;
    for (; n <= PSD_MEMBERS_WHOLE && rank != PS_NO_ITEM && c->members[rank].changed_at > since;
         rank = ps_queue_before(&c->changes, rank))
        n++;
    return n > PSD_MEMBERS_WHOLE ? c->workers : n;
}

bool psd_members_are_many(struct psd_control *c, uint64_t since)
{
    return c->workers > PSD_MEMBERS_WHOLE && view_count_since(c, since) == c->workers;
}

bool psd_members_list(struct psd_control *c, uint64_t since, uint64_t now, struct psd_member_list *list)
{
    uint32_t n = view_count_since(c, since), rank = c->changes.last;
    if (!psd_members_reserve(n, list))
        return false;
    if (n == c->workers) {
        psd_members_fill(c, now, list);
        return true;
    }
    for (uint32_t i = n; i--; rank = ps_queue_before(&c->changes, rank)) {
        list->pointers[i] = &list->members[i];
        member_fill(c, rank, now, list->pointers[i]);
    }
    return true;
}

void psd_members_list_free(struct psd_member_list *list)
{
    free(list->members);
    free(list->pointers);
    *list = (struct psd_member_list){0};
}

// ---- what has changed ---------------------------------------------------------------------------------------------

void psd_view_joined(struct psd_control *c, struct psd_member *m)
{
    m->changed_at = ++c->epoch;
    ps_queue_push(&c->changes, psd_rank_of(c, m));
}

void psd_view_changed(struct psd_control *c, struct psd_member *m)
{
    psd_view_joined(c, m);
    c->changed = c->epoch;
    c->known = false;
}

void psd_view_broadcast(struct psd_control *c)
{
    c->changed = ++c->epoch;
    c->known = false;
    for (uint32_t task = 0; task < c->tasks; task++)
        c->acked[task] = 0;
}

bool psd_view_is_known(struct psd_control *c)
{
    for (uint32_t task = 0; c->declared && !c->known && task < c->tasks; task++)
        if (c->acked[task] < c->changed)
            return false;
    c->known |= c->declared;
    return true;
}

bool psd_view_has_member(const struct psd_control *c, const struct psd_member *m)
{
    for (uint32_t task = 0; c->declared && task < c->tasks; task++)
        if (c->acked[task] < m->since)
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

bool psd_view_delta_init(struct psd_view_delta *d, size_t n)
{
    *d = (struct psd_view_delta){.n = n, .v = ps_try_alloc_array(n, sizeof *d->v)};
    return d->v != NULL;
}

void psd_view_delta_free(struct psd_view_delta *d)
{
    free(d->v);
    *d = (struct psd_view_delta){0};
}

bool psd_view_delta_since(struct psd_control *c, uint64_t since, struct psd_view_delta *d)
{
    const uint32_t n = view_count_since(c, since);
    const bool all = n == c->workers;
    uint32_t rank = c->changes.last;
    if (!psd_view_delta_init(d, n))
        return false;
    d->since = all ? 0 : since;
    d->epoch = c->epoch;
    for (uint32_t i = n; i--;) {
        const uint32_t at = all ? i : rank;
        const struct psd_member *m = &c->members[at];
        d->v[i] = (struct psd_view_entry){at, m->state, m->excluded, m->incarnation, 0, 0};
        c->visited++;
        rank = all ? rank : ps_queue_before(&c->changes, rank);
    }
    return true;
}

// Which rounds m's gradient counts in on one more task: in some partition there, and in all. When m is gone these are
// final; where they differ, between partitions or tasks, its last round has a part of its gradient. Not so with backup
// workers, where that is ordinary.
static void view_note_counted(struct psd_job *job, struct psd_member *m, uint64_t some, uint64_t all)
{
    struct psd_control *c = job->control;
    if (some > m->counted)
        m->counted = some;
    if (!psd_is_gone(m->state) || job->replicas_to_aggregate)
        return;
    if (!m->n_counted++ || all < m->counted_in_all)
        m->counted_in_all = all;
    if (m->counted == m->counted_in_all || m->split == m->counted)
        return;
    m->split = m->counted;
    c->splits++;
    c->split_rank = psd_rank_of(c, m);
    c->split_round = m->counted;
    ps_warn("job '%s': worker %" PRIu32 "'s gradient of round %" PRIu64 " counts in some partitions and not in others",
            job->name, c->split_rank, c->split_round);
}

void psd_view_acked(struct psd_job *job, uint32_t task, const struct psd_view_delta *d)
{
    struct psd_control *c = job->control;
    for (size_t i = 0; i < d->n; i++) {
        struct psd_member *m = d->v[i].rank < c->workers ? &c->members[d->v[i].rank] : NULL;
        if (m && d->open)
            view_note_counted(job, m, d->v[i].counted, d->v[i].counted_in_all);
    }
    c->open[task] = d->open;
    c->acked[task] = d->epoch;
}

// ---- a task hears of it -------------------------------------------------------------------------------------------

// The view of a ps task: what it was told last, whole.
struct psd_task_view {
    uint64_t epoch;
    uint32_t n_gone;
    uint32_t n;
    bool *gone;         // [n]
    bool takes_part[];  // [n], and then those of gone
};

// Whom rounds wait for: a worker that is live and not excluded, or is still expected.
static bool view_includes(Paramserver__V1__MemberState state, bool excluded)
{
    return state == PARAMSERVER__V1__MEMBER_STATE__EXPECTED ||
           (state == PARAMSERVER__V1__MEMBER_STATE__LIVE && !excluded);
}

// Nobody changes anything any more under an incarnation that has died, or has been followed by another.
static void view_fence(struct psd_job *job, uint32_t rank, Paramserver__V1__MemberState state, uint64_t incarnation)
{
    uint64_t least = incarnation + (state == PARAMSERVER__V1__MEMBER_STATE__DEAD && incarnation != UINT64_MAX);
    if (job->incarnations && job->incarnations[rank] < least)
        job->incarnations[rank] = least;
}

bool psd_view_all_gone(const struct psd_task_view *view)
{
    return view && view->n_gone == view->n;
}

void psd_view_free(struct psd_task_view *view)
{
    free(view);
}

// Job locked. The task's view, made where there is none: the first that it is told of is all members. NULL: no memory.
static struct psd_task_view *view_of_task(struct psd_job *job, uint32_t workers)
{
    if (!job->view)
        job->view = ps_try_alloc(sizeof *job->view + 2 * workers * sizeof job->view->takes_part[0]);
    if (!job->view)
        return NULL;
    job->view->n = workers;
    job->view->gone = job->view->takes_part + workers;
    return job->view;
}

static void view_put(struct psd_task_view *view, const struct psd_view_entry *entry)
{
    const bool gone = psd_is_gone(entry->state);
    view->n_gone += gone;
    view->n_gone -= view->gone[entry->rank];
    view->gone[entry->rank] = gone;
    view->takes_part[entry->rank] = view_includes(entry->state, entry->excluded);
}

// Job locked. A view of a run that is over must not become the next run's: that begins with none, under this lock.
static enum ps_code view_check_run(const struct psd_job *job, uint64_t run, struct ps_error *e)
{
    if (atomic_load(&job->run) == run)
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION, "set members: job '%s' is in another run here than %" PRIu64, job->name,
                   run);
}

// Job locked. Merges d into the task's view, and copies that into *copy for the rounds. A late copy of an earlier delta
// changes nothing: its members are known as they were later.
static enum ps_code view_merge(struct psd_job *job, const struct psd_view_delta *d, struct psd_view *copy,
                               struct ps_error *e)
{
    if (view_check_run(job, copy->run, e))
        return e->code;
    struct psd_task_view *view = view_of_task(job, copy->n);
    if (!view)
        return ps_no_memory(e, "a view of the members");
    if (d->since > view->epoch)
        return ps_fail(e, PS_ABORTED,
                       "set members: what has changed since epoch %" PRIu64 ", this task knows %" PRIu64
                       ": it must be told of all",
                       d->since, view->epoch);
    for (size_t i = 0; i < d->n; i++)
        view_fence(job, d->v[i].rank, d->v[i].state, d->v[i].incarnation);
    if (d->epoch < view->epoch)
        ps_sometimes(PS_SOMETIMES_LATE_VIEW);
    for (size_t i = 0; i < d->n && d->epoch > view->epoch; i++)
        view_put(view, &d->v[i]);
    view->epoch = d->epoch > view->epoch ? d->epoch : view->epoch;
    copy->epoch = view->epoch;
    copy->over = view->n_gone == view->n;
    memcpy(copy->takes_part, view->takes_part, view->n * sizeof *view->takes_part);
    return PS_OK;
}

// Closing a round takes its time.
static void view_reform_rounds(struct psd_job *job, const struct psd_view *view, struct psd_call **ready)
{
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (round)
            psd_sync_set_members(job, round, view, ready);
    }
}

// What counts here of those that d names. A task without rounds counts nothing.
static void view_answer(struct psd_job *job, struct psd_view_delta *d, uint64_t *counted, uint64_t *in_all)
{
    psd_rounds_counted(job, counted, in_all);
    for (size_t i = 0; i < d->n; i++) {
        d->v[i].counted = counted[d->v[i].rank];
        d->v[i].counted_in_all = in_all[d->v[i].rank];
    }
    d->open = psd_rounds_open(job);
}

enum ps_code psd_view_take(struct psd_job *job, uint64_t run, uint32_t workers, struct psd_view_delta *d,
                           struct psd_call **ready, struct ps_error *e)
{
    struct psd_view copy = {
        .run = run, .n = workers, .takes_part = ps_try_alloc_array(workers, sizeof *copy.takes_part)};
    uint64_t *counted = ps_try_alloc_array(workers, sizeof *counted), *all = ps_try_alloc_array(workers, sizeof *all);
    enum ps_code code = PS_OK;
    if (!copy.takes_part || !counted || !all)
        code = ps_no_memory(e, "a view of the members");
    pthread_mutex_lock(&job->lock);
    if (code == PS_OK)
        code = view_merge(job, d, &copy, e);
    pthread_mutex_unlock(&job->lock);
    for (size_t i = 0; code == PS_OK && i < d->n; i++)
        if (psd_is_gone(d->v[i].state))
            psd_staging_drop_worker(job, d->v[i].rank, d->v[i].incarnation);
    if (code == PS_OK) {
        // No view closes a round of a job that has ended: other tasks would not.
        if (!psd_job_has_failed(job))
            view_reform_rounds(job, &copy, ready);
        psd_sync_send_norms(job, ready);
        view_answer(job, d, counted, all);
    }
    free(all);
    free(counted);
    free(copy.takes_part);
    return code;
}

void psd_view_begin_rounds(struct psd_job *job, struct psd_call **ready)
{
    const struct psd_task_view *view = job->view;
    if (!view)
        return;
    view_reform_rounds(job,
                       &(struct psd_view){.run = atomic_load(&job->run),
                                          .epoch = view->epoch,
                                          .n = view->n,
                                          .takes_part = (bool *)view->takes_part,
                                          .over = view->n_gone == view->n},
                       ready);
}
