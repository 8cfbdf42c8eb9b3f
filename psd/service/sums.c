// SPDX-License-Identifier: Apache-2.0
//
// SumSquares: another ps task asks the control task for the norms that gradients of a sync job are clipped by. Decodes,
// checks, records the sums that it brings in the table of psd/sync/norm.h, and answers once a total is known, or at
// once.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "psd/service/service.h"

static enum ps_code sums_find_job(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r)
{
    if (!t->job)  // it has not waited
        t->job = psd_job_find(&t->core->table, r->job);
    if (!t->job || !atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_NOT_FOUND, "sum squares: ps task %" PRIu32 " has no job '%.128s'",
                       t->core->config.task, r->job);
    if (t->core->config.task != 0)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "sum squares: this is ps task %" PRIu32 ", norms are added up at task 0", t->core->config.task);
    if (r->run != atomic_load(&t->job->run))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "sum squares: job '%s' is in another run here than %" PRIu64,
                       t->job->name, r->run);
    if (psd_job_has_failed(t->job))
        return (enum ps_code)psd_request_fail_ended(t);
    if (!psd_job_is_sync(t->job))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "sum squares: job '%s' is not sync", t->job->name);
    return PS_OK;
}

static enum ps_code sums_check(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r)
{
    struct ps_error *e = &t->error;
    if (r->round == 0 || r->n_partitions == 0 || r->n_partitions != r->n_sums)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "sum squares: round %" PRIu64 ", %zu partitions and %zu sums; expected a round from 1 and a sum "
                       "for each partition",
                       r->round, r->n_partitions, r->n_sums);
    for (size_t i = 0; i < r->n_partitions; i++) {
        if (r->partitions[i] >= t->job->n_partitions)
            return ps_fail(e, PS_INVALID_ARGUMENT, "sum squares: partition %" PRIu32 " of %" PRIu32, r->partitions[i],
                           t->job->n_partitions);
        if (t->job->partitions[r->partitions[i]].task == 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "sum squares: partition %" PRIu32 " lies here, at ps task 0",
                           r->partitions[i]);
        if (r->sums[i] < 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "sum squares: %g is no sum of squares", r->sums[i]);
    }
    return PS_OK;
}

// Whose norm each partition is clipped by in this round.
static enum ps_code sums_read_groups(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r, bool *of_model)
{
    struct psd_job *job = t->job;
    enum ps_code code = PS_OK;
    pthread_rwlock_rdlock(&job->snapshot_lock);
    for (size_t i = 0; i < r->n_partitions && code == PS_OK; i++) {
        const struct psd_variable *v = &job->variables[job->partitions[r->partitions[i]].variable];
        struct psd_clip clip = {PSD_CLIP_NONE, 0};
        if (v->rule)
            clip = psd_clip_at(job, v, r->round);
        if (clip.by == PSD_CLIP_NONE)
            code = ps_fail(&t->error, PS_FAILED_PRECONDITION,
                           "sum squares: variable '%s' is clipped by no norm in round %" PRIu64, v->name, r->round);
        of_model[i] = clip.by == PSD_CLIP_MODEL;
    }
    pthread_rwlock_unlock(&job->snapshot_lock);
    return code;
}

static enum ps_code sums_check_rounds(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r)
{
    for (size_t i = 0; i < r->n_partitions; i++)
        if (psd_norm_is_past(t->job, r->partitions[i], r->round))
            return ps_fail(&t->error, PS_OUT_OF_RANGE,
                           "sum squares: round %" PRIu64 " of partition %" PRIu32 " is long over", r->round,
                           r->partitions[i]);
    return PS_OK;
}

// Records the sums, and fills in the totals that are known; PSD_PARKED: none of them is. Norms locked.
static int sums_take(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r, const bool *of_model,
                     Paramserver__V1__SumSquaresReply *out, bool *completed)
{
    if (sums_check_rounds(t, r))
        return (int)t->error.code;
    for (size_t i = 0; i < r->n_partitions; i++)
        *completed |= psd_norm_record(t->job, r->partitions[i], of_model[i], r->round, r->sums[i]);
    for (size_t i = 0; i < r->n_partitions; i++)
        if (psd_norm_total(t->job, r->partitions[i], of_model[i], r->round, &out->totals[out->n_totals]))
            out->partitions[out->n_totals++] = r->partitions[i];
    out->n_partitions = out->n_totals;
    if (*completed)
        psd_ready_all(&t->ready, &t->job->norms->waiting);
    const struct psd_wait wait = {.kind = PARAMSERVER__V1__WAIT_KIND__FOR_NORM, .number = r->round};
    return out->n_totals || r->at_once ? PS_OK : psd_park(t, &t->job->norms->waiting, &t->job->norms->lock, &wait);
}

int psd_sum_squares(struct psd_request *t)
{
    const Paramserver__V1__SumSquaresRequest *r = (const Paramserver__V1__SumSquaresRequest *)t->request;
    Paramserver__V1__SumSquaresReply out = PARAMSERVER__V1__SUM_SQUARES_REPLY__INIT;
    bool completed = false;
    if (sums_find_job(t, r) || sums_check(t, r))
        return (int)t->error.code;
    bool *of_model = ps_try_alloc_array(r->n_partitions, sizeof *of_model);
    out.totals = ps_try_alloc_array(r->n_partitions, sizeof *out.totals);
    out.partitions = ps_try_alloc_array(r->n_partitions, sizeof *out.partitions);
    int code = of_model && out.totals && out.partitions ? (int)sums_read_groups(t, r, of_model)
                                                        : (int)ps_no_memory(&t->error, "a sum of squares");
    if (code == PS_OK) {
        pthread_mutex_lock(&t->job->norms->lock);
        code = sums_take(t, r, of_model, &out, &completed);
        pthread_mutex_unlock(&t->job->norms->lock);
    }
    if (completed)
        psd_sync_send_norms(t->job, &t->ready);
    if (code == PS_OK) {
        out.generation = t->core->generation;
        code = psd_request_reply(t, &out.base, NULL);
    }
    free(out.totals);
    free(out.partitions);
    free(of_model);
    return code;
}
