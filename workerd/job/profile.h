// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a step goes: the operators of the program, and what lies around them.
#ifndef WK_PROFILE_H
#define WK_PROFILE_H

#include "workerd/job/loop.h"

// Trains some steps as the step loop does and prints a table, or JSON, on standard output. Writes no files: nothing of
// what was trained stays, and no callback is called. FAILED_PRECONDITION: the job has too few steps of full batches.
enum ps_code wk_profile(struct wk_run *run, bool json, struct ps_error *e);

#endif
