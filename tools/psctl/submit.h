// SPDX-License-Identifier: Apache-2.0
//
// A job that other hosts are to train: psctl submit, psctl slurm.
#ifndef PSCTL_SUBMIT_H
#define PSCTL_SUBMIT_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/job/job.h"
#include "tools/common/cli.h"

// Reads a job's file with what --set says, and checks it, with its model where that can be read here. *job is set only
// on success. Errors: those of ps_job_load, and of the model.
enum ps_code submit_load_job(const char *file, const struct cli_list *sets, struct ps_job **job, struct ps_error *e);
// What workers read and write may lie where they find it, and this host does not: that is said on standard error, and
// no more. The job's paths are absolute.
void submit_look_at_files(const struct ps_job *job);
// INVALID_ARGUMENT: the job is to have fewer workers than it needs; option says how many.
enum ps_code submit_check_workers(uint32_t min_workers, uint32_t workers, const char *option, struct ps_error *e);

#endif
