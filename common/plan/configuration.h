// SPDX-License-Identifier: Apache-2.0
//
// What all workers of a job must have alike: lines KEY=VALUE, compared with those of worker 0, which opened the job.
// Neither order matters, nor that a side has none.
#ifndef PS_CONFIGURATION_H
#define PS_CONFIGURATION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

const char *ps_configuration_next(const char *line);  // the line behind this one, or the end
// The line of a text that has this one's key; NULL: none has.
const char *ps_configuration_find(const char *text, const char *line);

// theirs: of this rank. begun: the job has, and whoever comes gets what the others have: then the key "checkpoint", of
// what all begin with, does not count. FAILED_PRECONDITION names the first key that differs.
enum ps_code ps_configuration_check(const char *job, bool begun, const char *ours, uint32_t rank, const char *theirs,
                                    struct ps_error *e);

#endif
