// SPDX-License-Identifier: Apache-2.0
#include "psd/job/hyper.h"

#include <string.h>

int psd_hyper_find(const struct ps_rule *rule, const char *name)
{
    for (int i = 0; i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++)
        if (strcmp(rule->hyper[i].name, name) == 0)
            return i;
    return -1;
}

// The last change of a hyperparameter that a round is to use, or NULL.
static const struct psd_change *change_of(const struct psd_job *job, int hyper, uint64_t round)
{
    for (uint32_t k = job->n_changes; k--;)
        if (job->changes[k].hyper == hyper && job->changes[k].round <= round)
            return &job->changes[k];
    return NULL;
}

double psd_hyper_of_job(const struct psd_job *job, int hyper, uint64_t round)
{
    const struct psd_change *change = change_of(job, hyper, round);
    return change ? change->value : job->hyper[hyper];
}

// ---- changes by hand ----------------------------------------------------------------------------------------------

// Does a later one hold in all rounds from `least` on in which this one would?
static bool hyper_is_superseded(const struct psd_job *job, uint32_t i, uint64_t least)
{
    const struct psd_change *v = job->changes;
    for (uint32_t k = i + 1; k < job->n_changes; k++)
        if (v[k].hyper == v[i].hyper && (v[k].round <= least || v[k].round <= v[i].round))
            return true;
    return false;
}

// Forgets what no round from `least` on can need. The snapshot lock is held exclusively.
static void hyper_prune(struct psd_job *job, uint64_t least)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < job->n_changes; i++)
        if (!hyper_is_superseded(job, i, least))
            job->changes[kept++] = job->changes[i];
    job->n_changes = kept;
}

// A task without rounds does not know how far they are elsewhere; what it evaluates changes for it does not apply
// itself. It takes the older half to be over.
bool psd_hyper_reserve(struct psd_job *job, uint64_t least)
{
    pthread_rwlock_wrlock(&job->snapshot_lock);
    if (job->n_changes == PSD_MAX_CHANGES)
        hyper_prune(job, least == UINT64_MAX ? job->changes[PSD_MAX_CHANGES / 2].round : least);
    bool room = job->n_changes < PSD_MAX_CHANGES;
    pthread_rwlock_unlock(&job->snapshot_lock);
    return room;
}

// Tasks that have taken it once and twice keep the same: no round is before the first.
void psd_hyper_change(struct psd_job *job, const struct psd_change *change)
{
    pthread_rwlock_wrlock(&job->snapshot_lock);
    job->changes[job->n_changes++] = *change;
    hyper_prune(job, 1);
    pthread_rwlock_unlock(&job->snapshot_lock);
}

void psd_hyper_leave_rounds(struct psd_job *job, uint64_t closed)
{
    pthread_rwlock_wrlock(&job->snapshot_lock);
    for (uint32_t i = 0; i < job->n_changes; i++)
        if (job->changes[i].round <= closed + 1 || job->changes[i].any_round)
            job->changes[i].round = 0;
    hyper_prune(job, 0);
    pthread_rwlock_unlock(&job->snapshot_lock);
}

// ---- clipping by norm ---------------------------------------------------------------------------------------------

bool psd_clips_with_model(const struct psd_variable *v)
{
    return v->trainable && v->rule->learns &&
           !(psd_hyper_is_own(v, PS_HYPER_CLIPNORM) && v->hyper[PS_HYPER_CLIPNORM] > 0);
}

// A variable's own clipnorm comes first, then the job's, then the job's global_clipnorm: either all of the variables
// that may clip with the model do, or none.
struct psd_clip psd_clip_at(const struct psd_job *job, const struct psd_variable *v, uint64_t round)
{
    if (!v->trainable || !v->rule->learns)
        return (struct psd_clip){PSD_CLIP_NONE, 0};
    double of_job = job->rule->learns ? psd_hyper_of_job(job, PS_HYPER_CLIPNORM, round) : 0;
    double norm = psd_hyper_is_own(v, PS_HYPER_CLIPNORM) ? v->hyper[PS_HYPER_CLIPNORM] : of_job;
    if (norm > 0)
        return (struct psd_clip){PSD_CLIP_VARIABLE, norm};
    double of_model = job->rule->learns && of_job == 0 ? psd_hyper_of_job(job, PS_HYPER_GLOBAL_CLIPNORM, round) : 0;
    return (struct psd_clip){of_model > 0 ? PSD_CLIP_MODEL : PSD_CLIP_NONE, of_model};
}
