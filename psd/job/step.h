// SPDX-License-Identifier: Apache-2.0
//
// One application of a variable's rule to one block: which rule, with which hyperparameters of the moment. They are
// what was declared, the learning rate that of the schedule at the block's steps, and above both what was changed by
// hand since. What a variable has declared for itself alone follows neither the schedule nor those changes.
//
// Receives from: apply, sync. Hands to: the rules of common/. Threads: any; the job's snapshot lock is held shared,
// and with a block its lock.
#ifndef PSD_STEP_H
#define PSD_STEP_H

#include "psd/job/hyper.h"

struct psd_step {
    const struct ps_rule *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    uint64_t step;  // Keras's iterations + 1
    bool trainable;
    float clip_factor;  // 1, until the caller sets what clipping by norm has found
};

void psd_step_init(struct psd_step *s, const struct psd_job *job, const struct psd_variable *v,
                   const struct psd_block *b, uint64_t round);
// Elements [at, at + n) of the block, into out. g: n floats, unaligned. psd_block.steps is counted by the caller, once.
void psd_step_apply(const struct psd_step *s, const struct psd_block *b, struct psd_page *out, size_t at, size_t n,
                    const void *g);

#endif
