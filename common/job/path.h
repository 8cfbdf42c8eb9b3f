// SPDX-License-Identifier: Apache-2.0
//
// Paths in a job file are relative to that file.
#ifndef PS_COMMON_JOB_PATH_H
#define PS_COMMON_JOB_PATH_H

struct ps_yaml;

// path as it is, or where it is relative and v stands in a file, beside that file; malloc'd.
char *ps_job_resolve_path(const struct ps_yaml *v, const char *path);

#endif
