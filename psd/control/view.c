// SPDX-License-Identifier: Apache-2.0
//
// Who takes part in a job, as all its ps tasks must know it: the membership view, in flight and acknowledged.
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
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
        out->resting = m->excluded;
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

// ---- views --------------------------------------------------------------------------------------------------------

bool psd_view_includes(Paramserver__V1__MemberState state, bool excluded)
{
    return state == PARAMSERVER__V1__MEMBER_STATE__EXPECTED ||
           (state == PARAMSERVER__V1__MEMBER_STATE__LIVE && !excluded);
}

bool psd_view_init(struct psd_view *view, uint64_t epoch, uint32_t workers)
{
    *view = (struct psd_view){epoch, workers, ps_try_alloc_array(workers, sizeof *view->takes_part), true};
    return view->takes_part != NULL;
}

bool psd_is_gone(Paramserver__V1__MemberState state)
{
    return state == PARAMSERVER__V1__MEMBER_STATE__LEFT || state == PARAMSERVER__V1__MEMBER_STATE__DEAD;
}

// Nobody changes anything any more under an incarnation that has died, or has been followed by another.
void psd_view_fence(struct psd_job *job, uint32_t rank, Paramserver__V1__MemberState state, uint64_t incarnation)
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
        if (c->acked[task] < c->changed)
            return false;
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

// ---- what counts on a task ----------------------------------------------------------------------------------------

bool psd_counted_init(struct psd_counted *k, uint32_t workers)
{
    *k = (struct psd_counted){ps_try_alloc_array(workers, sizeof *k->some), ps_try_alloc_array(workers, sizeof *k->all),
                              0};
    return k->some && k->all;
}

void psd_counted_free(struct psd_counted *k)
{
    free(k->some);
    free(k->all);
}

// A task without rounds counts nothing.
static void view_merge_counted(struct psd_job *job, const struct psd_counted *k)
{
    struct psd_control *c = job->control;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (k->some[i] > m->counted)
            m->counted = k->some[i];
        if (k->some[i] && m->state == PARAMSERVER__V1__MEMBER_STATE__DEAD && k->some[i] != k->all[i])
            ps_warn("job '%s': worker %" PRIu32 "'s gradient of round %" PRIu64
                    " counts in some partitions and not in others",
                    job->name, i, k->some[i]);
    }
}

void psd_view_acked(struct psd_job *job, uint32_t task, uint64_t epoch, const struct psd_counted *counted)
{
    struct psd_control *c = job->control;
    view_merge_counted(job, counted);
    c->open[task] = counted->open;
    c->acked[task] = epoch;
}

// Closing a round takes its time.
static void view_reform_rounds(struct psd_job *job, const struct psd_view *view, struct psd_call **ready)
{
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions; i++)
        if (job->partitions[i].round)
            psd_sync_set_members(job, job->partitions[i].round, view, ready);
}

void psd_view_take(struct psd_job *job, const struct psd_view *view, const struct psd_departure *gone,
                   struct psd_counted *counted, struct psd_call **ready)
{
    for (uint32_t i = 0; i < view->n; i++)
        if (gone[i].is)
            psd_staging_drop_worker(job, i, gone[i].incarnation);
    view_reform_rounds(job, view, ready);
    psd_sync_send_norms(job, ready);
    psd_rounds_counted(job, counted->some, counted->all);
    counted->open = psd_rounds_open(job);
}
