// SPDX-License-Identifier: Apache-2.0
//
// What people know from Keras of an optimizer and its schedule, said with the keys and words of the job file's table:
// `optimizer: Adam`, `lr`, `CosineDecay` with its `warmup_target`.
#ifndef PS_COMMON_JOB_OPTIMIZER_H
#define PS_COMMON_JOB_OPTIMIZER_H

#include "common/base/error.h"
#include "common/file/yaml.h"

// The names of the optimizers, as a job file has them; ends with NULL.
extern const char *const ps_job_optimizers[];
// Those of local_steps' outer optimizer: the same, then one that is not Keras's.
extern const char *const ps_job_outer_optimizers[];

// `optimizer: NAME`, and strategy's `outer_optimizer: NAME`, become maps, so that what is assigned below them finds
// one.
void ps_job_optimizer_open(struct ps_yaml *root);
// All the rest, when the tree is complete. A key that is there in both spellings is taken from --set if one of them is
// from there. INVALID_ARGUMENT: both are in one place; what Keras would understand otherwise; an optimizer of Keras's
// that is not here.
enum ps_code ps_job_optimizer_spell(struct ps_yaml *root, struct ps_error *e);

#endif
