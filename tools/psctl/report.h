// SPDX-License-Identifier: Apache-2.0
//
// What psctl doctor --report writes: all that somebody who is to help would ask for, in one file of Markdown.
#ifndef PSCTL_REPORT_H
#define PSCTL_REPORT_H

#include "tools/psctl/call.h"
#include "tools/psctl/findings.h"

enum { REPORT_JOBS = 8 };  // that it says more of: each is three processes while it is asked

// This machine, the findings, and what psctl's commands say of the cluster and of each of the jobs. They are asked at
// the same time, and ended where they do not end themselves. "-": to standard output, whose errors stay with stdout.
// Errors as ps_output_open's.
enum ps_code report_write(const char *path, const struct findings *findings, const struct target *target,
                          const char *const *jobs, size_t n_jobs, struct ps_error *e);

#endif
