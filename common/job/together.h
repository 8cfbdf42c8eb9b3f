// SPDX-License-Identifier: Apache-2.0
//
// Which values of a job's fields go together: what no field knows alone. For common/job alone.
#ifndef PS_COMMON_JOB_TOGETHER_H
#define PS_COMMON_JOB_TOGETHER_H

#include "common/file/yaml.h"
#include "common/job/job.h"

// Of a job whose fields are taken. INVALID_ARGUMENT: the text names the field, where it stands and what is expected.
enum ps_code ps_job_check_together(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e);

#endif
