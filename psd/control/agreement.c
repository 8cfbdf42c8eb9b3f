// SPDX-License-Identifier: Apache-2.0
//
// The agreement as a part of a job: which kinds there are, what a new run forgets, and what happens as time passes.
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "psd/control/agree.h"
#include "psd/job/hyper.h"

static bool agreement_bytes(const struct psd_job *job, uint32_t task, size_t *bytes)
{
    *bytes += sizeof(struct psd_agree) + (task == 0 ? job->tasks * sizeof(enum psd_agree_answer) : 0);
    return true;
}

static enum ps_code agreement_create(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    static const struct psd_agree_kind *const kinds[] = {[PARAMSERVER__V1__AGREE_KIND__HYPER] = &psd_agree_hyper,
                                                         [PARAMSERVER__V1__AGREE_KIND__ROUNDS] = &psd_agree_rounds};
    struct psd_agree *a = ps_try_alloc(sizeof *a);
    if (!a)
        return ps_no_memory(e, "a job's agreement");
    job->agree = a;
    a->kinds = (struct psd_agree_kinds){kinds, sizeof kinds / sizeof kinds[0]};
    a->lead.tasks = task == 0 ? job->tasks : 0;
    a->lead.answers = ps_try_alloc_array(a->lead.tasks, sizeof *a->lead.answers);
    return a->lead.answers ? PS_OK : ps_no_memory(e, "a job's agreement");
}

static void agreement_destroy(struct psd_job *job)
{
    if (job->agree)
        free(job->agree->lead.answers);
    free(job->agree);
    job->agree = NULL;
}

// What was changed by hand goes on to hold; what was named for a round that was not reached waits for the round of that
// number in this run.
static void agreement_begin_run(struct psd_job *job, struct psd_call **ready)
{
    struct psd_agree *a = job->agree;
    pthread_mutex_lock(&job->lock);
    atomic_store(&job->held, 0);
    a->prepared.number = 0;
    if (a->lead.tasks == 0)
        a->decided = 0;  // the control task may have restarted, and count from 1 again
    psd_agree_lead_again(job, ready);
    psd_hyper_leave_rounds(job, job->resumed_round - 1);
    pthread_mutex_unlock(&job->lock);
}

// "ps task 0, to say whether learning_rate becomes 0.1".
static void agreement_name_holder(struct psd_job *job, uint64_t round, char *text, size_t size)
{
    char what[PSD_AGREE_TEXT_MAX];
    if (!psd_round_is_held(job, round))
        return;
    pthread_mutex_lock(&job->lock);
    if (job->agree->prepared.number) {
        psd_agree_describe(job, &job->agree->prepared, what, sizeof what);
        snprintf(text, size, "ps task 0, to say whether %s", what);
    }
    pthread_mutex_unlock(&job->lock);
}

static uint64_t agreement_tick(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    if (!atomic_load(&job->declared) || psd_job_has_failed(job))
        return UINT64_MAX;
    psd_agree_watch(job, now);
    psd_agree_press_on(job, now, ready);
    pthread_mutex_lock(&job->lock);
    bool under_way = job->agree->prepared.number || job->agree->lead.phase != PSD_AGREE_NONE;
    pthread_mutex_unlock(&job->lock);
    return under_way ? now : UINT64_MAX;
}

const struct psd_component psd_agree_component = {.name = "agree",
                                                  .bytes = agreement_bytes,
                                                  .create = agreement_create,
                                                  .destroy = agreement_destroy,
                                                  .begin_run = agreement_begin_run,
                                                  .tick = agreement_tick,
                                                  .walk = psd_agree_walk,
                                                  .name_holder = agreement_name_holder};
