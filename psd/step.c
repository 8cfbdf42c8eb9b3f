// SPDX-License-Identifier: Apache-2.0
#include "psd/step.h"

#include <string.h>

void psd_step_init(struct psd_step *s, const struct psd_job *job, const struct psd_variable *v,
                   const struct psd_block *b, uint64_t round)
{
    (void)v;
    (void)round;
    s->rule = job->rule;
    s->step = b->steps + 1;
    memcpy(s->hyper, job->hyper, sizeof s->hyper);
}

void psd_step_apply(const struct psd_step *s, const struct psd_block *b, struct psd_page *out, size_t at, size_t n,
                    const float *g)
{
    struct ps_rule_args a = {.n = n, .step = s->step, .g = g};
    a.w_in = (const float *)b->page->data + at;
    a.w_out = (float *)out->data + at;
    for (int k = 0; k < s->rule->slots; k++) {
        size_t offset = psd_slot_offset(b->value_bytes, k);
        a.slot_in[k] = (const float *)(b->page->data + offset) + at;
        a.slot_out[k] = (float *)(out->data + offset) + at;
    }
    s->rule->apply(s->hyper, &a);
}
