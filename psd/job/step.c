// SPDX-License-Identifier: Apache-2.0
#include "psd/job/step.h"

#include <string.h>

static void follow_job(struct psd_step *s, const struct psd_job *job, const struct psd_variable *v,
                       const struct psd_block *b, uint64_t round)
{
    if (job->schedule.kind != PS_SCHEDULE_NONE && !psd_hyper_is_own(v, PS_HYPER_LEARNING_RATE))
        s->hyper[PS_HYPER_LEARNING_RATE] = ps_schedule_rate(&job->schedule, b->steps);
    for (uint32_t k = 0; k < job->n_changes; k++)  // the last one holds
        if (job->changes[k].round <= round && !psd_hyper_is_own(v, job->changes[k].hyper))
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
                    const void *g)
{
    struct ps_rule_args a = {.n = n, .step = s->step, .trainable = s->trainable, .clip_factor = s->clip_factor, .g = g};
    a.w_in = (const float *)b->page->data + at;
    a.w_out = (float *)out->data + at;
    for (int k = 0, slots = ps_rule_slots(s->rule, s->hyper); k < slots; k++) {
        size_t offset = psd_slot_offset(b->value_bytes, k);
        a.slot_in[k] = (const float *)(b->page->data + offset) + at;
        a.slot_out[k] = (float *)(out->data + offset) + at;
    }
    ps_rule_apply(s->rule, s->hyper, &a);
}
