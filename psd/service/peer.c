// SPDX-License-Identifier: Apache-2.0
//
// What the control task tells the other ps tasks: SetMembers. Decodes, finds the job in the run that is meant, hands the
// message to psd/control, and answers.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "psd/control/state.h"
#include "psd/job/job.h"

// The job, if it is here and in the run that is meant: what is said of an earlier run must not reach this one. A job that
// knows no run yet takes what is said of any, if the method allows that.
static enum ps_code peer_find_job(struct psd_request *t, const char *method, const char *name, const char *run,
                                  bool any)
{
    t->job = psd_job_find(t->core, name);
    if (!t->job || !atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_NOT_FOUND, "%s: ps task %" PRIu32 " has no job '%.128s'", method,
                       t->core->config.task, name);
    if (t->core->config.task == 0)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "%s: this is the control task, which says it to the other ps tasks", method);
    pthread_mutex_lock(&t->job->lock);
    bool same = strcmp(t->job->run_id, run) == 0 || (any && t->job->run_id[0] == '\0');
    pthread_mutex_unlock(&t->job->lock);
    if (!same)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "%s: job '%s' is in another run here than '%.32s'", method,
                       t->job->name, run);
    return PS_OK;
}

// ---- SetMembers ---------------------------------------------------------------------------------------------------

// What a message says of the members.
struct told_members {
    struct psd_view view;
    struct psd_departure *gone;  // [view.n]
    struct psd_counted counted;
};

static void told_members_free(struct told_members *told)
{
    free(told->view.takes_part);
    free(told->gone);
    psd_counted_free(&told->counted);
}

// The members in a message, which names every rank once.
static enum ps_code set_members_read(struct psd_request *t, const Paramserver__V1__SetMembersRequest *r,
                                     struct told_members *told)
{
    const uint32_t workers = t->job->workers;
    bool *seen = ps_try_alloc_array(workers, sizeof *seen);
    enum ps_code code = PS_OK;
    told->gone = ps_try_alloc_array(workers, sizeof *told->gone);
    if (!psd_view_init(&told->view, r->epoch, workers) || !seen || !told->gone ||
        !psd_counted_init(&told->counted, workers))
        code = ps_no_memory(&t->error, "a view of the members");
    for (size_t i = 0; i < r->n_members && code == PS_OK; i++) {
        const Paramserver__V1__Member *m = r->members[i];
        if (m->rank >= workers || seen[m->rank]) {
            code = ps_fail(&t->error, PS_INVALID_ARGUMENT,
                           "set members: rank %" PRIu32 " is there twice, or is none of %" PRIu32, m->rank, workers);
        } else {
            seen[m->rank] = true;
            told->gone[m->rank] = (struct psd_departure){psd_is_gone(m->state), m->incarnation};
            told->view.takes_part[m->rank] = psd_view_includes(m->state, m->resting);
            told->view.over &= psd_is_gone(m->state);
        }
    }
    if (code == PS_OK && r->n_members != workers)
        code = ps_fail(&t->error, PS_INVALID_ARGUMENT, "set members: %zu of %" PRIu32 " members are named",
                       r->n_members, workers);
    free(seen);
    return code;
}

static void set_members_take(struct psd_request *t, const Paramserver__V1__SetMembersRequest *r,
                             struct told_members *told)
{
    if (r->failure[0]) {
        psd_job_fail(t->job, r->failure);
        psd_job_collect(t->job, &t->ready);
        psd_rounds_counted(t->job, told->counted.some, told->counted.all);
        told->counted.open = psd_rounds_open(t->job);
        return;
    }
    pthread_mutex_lock(&t->job->lock);
    for (size_t i = 0; i < r->n_members; i++)
        psd_view_fence(t->job, r->members[i]->rank, r->members[i]->state, r->members[i]->incarnation);
    pthread_mutex_unlock(&t->job->lock);
    psd_view_take(t->core, t->job, &told->view, told->gone, &told->counted, &t->ready);
}

enum { COUNTED_BYTES = 2 * 10 };  // of a reply, for one worker

int psd_set_members(struct psd_request *t)
{
    const Paramserver__V1__SetMembersRequest *r = (const Paramserver__V1__SetMembersRequest *)t->request;
    Paramserver__V1__SetMembersReply out = PARAMSERVER__V1__SET_MEMBERS_REPLY__INIT;
    struct told_members told = {0};
    if (peer_find_job(t, "set members", r->job, r->run_id, true) == PS_OK && set_members_read(t, r, &told) == PS_OK &&
        psd_request_reserve(t, PSD_REPLY_BYTES + t->job->workers * COUNTED_BYTES) == PS_OK) {
        set_members_take(t, r, &told);
        out.generation = t->core->generation;
        out.n_counted = out.n_counted_in_all = t->job->workers;
        out.counted = told.counted.some;
        out.counted_in_all = told.counted.all;
        out.open_round = told.counted.open;
        psd_request_reply(t, &out.base, NULL);
    }
    told_members_free(&told);
    return (int)t->error.code;
}
