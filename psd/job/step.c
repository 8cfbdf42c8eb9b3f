// SPDX-License-Identifier: Apache-2.0
#include "psd/job/step.h"

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

static bool is_own(const struct psd_variable *v, int hyper)
{
    return v->own >> hyper & 1;
}

// ---- clipping by norm ---------------------------------------------------------------------------------------------

bool psd_clips_with_model(const struct psd_variable *v)
{
    return v->trainable && v->rule->learns && !(is_own(v, PS_HYPER_CLIPNORM) && v->hyper[PS_HYPER_CLIPNORM] > 0);
}

// A variable's own clipnorm comes first, then the job's, then the job's global_clipnorm: either all of the variables
// that may clip with the model do, or none.
struct psd_clip psd_clip_at(const struct psd_job *job, const struct psd_variable *v, uint64_t round)
{
    if (!v->trainable || !v->rule->learns)
        return (struct psd_clip){PSD_CLIP_NONE, 0};
    double of_job = job->rule->learns ? psd_hyper_of_job(job, PS_HYPER_CLIPNORM, round) : 0;
    double norm = is_own(v, PS_HYPER_CLIPNORM) ? v->hyper[PS_HYPER_CLIPNORM] : of_job;
    if (norm > 0)
        return (struct psd_clip){PSD_CLIP_VARIABLE, norm};
    double of_model = job->rule->learns && of_job == 0 ? psd_hyper_of_job(job, PS_HYPER_GLOBAL_CLIPNORM, round) : 0;
    return (struct psd_clip){of_model > 0 ? PSD_CLIP_MODEL : PSD_CLIP_NONE, of_model};
}

// ---- a step -------------------------------------------------------------------------------------------------------

static void follow_job(struct psd_step *s, const struct psd_job *job, const struct psd_variable *v,
                       const struct psd_block *b, uint64_t round)
{
    if (job->schedule.kind != PS_SCHEDULE_NONE && !is_own(v, PS_HYPER_LEARNING_RATE))
        s->hyper[PS_HYPER_LEARNING_RATE] = ps_schedule_rate(&job->schedule, b->steps);
    for (uint32_t k = 0; k < job->n_changes; k++)  // the last one holds
        if (job->changes[k].round <= round && !is_own(v, job->changes[k].hyper))
            s->hyper[job->changes[k].hyper] = job->changes[k].value;
}

void psd_step_init(struct psd_step *s, const struct psd_job *job, const struct psd_variable *v,
                   const struct psd_block *b, uint64_t round)
{
    s->rule = v->rule;
    s->step = b->steps + 1;
    s->trainable = v->trainable;
    s->clip_factor = 1;
    memcpy(s->hyper, v->hyper, sizeof s->hyper);
    if (!v->own_rule)
        follow_job(s, job, v, b, round);
}

void psd_step_apply(const struct psd_step *s, const struct psd_block *b, struct psd_page *out, size_t at, size_t n,
                    const float *g)
{
    struct ps_rule_args a = {.n = n, .step = s->step, .trainable = s->trainable, .clip_factor = s->clip_factor, .g = g};
    a.w_in = (const float *)b->page->data + at;
    a.w_out = (float *)out->data + at;
    for (int k = 0; k < s->rule->slots; k++) {
        size_t offset = psd_slot_offset(b->value_bytes, k);
        a.slot_in[k] = (const float *)(b->page->data + offset) + at;
        a.slot_out[k] = (float *)(out->data + offset) + at;
    }
    ps_rule_apply(s->rule, s->hyper, &a);
}
