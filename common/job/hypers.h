// SPDX-License-Identifier: Apache-2.0
//
// An optimizer's hyperparameters, and so which update rule applies it: that of all that Keras's optimizer can do, with
// the fewest slots that will do. For common/job alone.
#ifndef PS_COMMON_JOB_HYPERS_H
#define PS_COMMON_JOB_HYPERS_H

#include "common/file/yaml.h"
#include "common/job/job.h"

// A learning rate is a number, or a map that says which schedule. Before the fields are taken.
enum ps_code ps_job_check_rate(const struct ps_yaml *root, struct ps_error *e);
// `optimizer` and `strategy.outer_optimizer`, after the fields. INVALID_ARGUMENT: a hyperparameter that it has not, or
// a value that it cannot have.
enum ps_code ps_job_take_optimizer(const struct ps_yaml *root, struct ps_job *job, struct ps_error *e);
enum ps_code ps_job_take_outer_optimizer(const struct ps_yaml *root, struct ps_job *job, struct ps_error *e);

// The hyperparameter of that name, which the rule has.
const struct ps_rule_hyper *ps_job_hyper_of(const struct ps_rule *rule, const char *name);

#endif
