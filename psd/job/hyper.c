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
