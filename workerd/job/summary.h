// SPDX-License-Identifier: Apache-2.0
//
// What a finished job leaves behind: its weights, and one JSON object that says how it went.
#ifndef WK_SUMMARY_H
#define WK_SUMMARY_H

#include "workerd/job/loop.h"

// The first of the replica's parameters, as they were fetched last, that holds a NaN or an infinity; NULL: none does.
const struct nn_param *wk_nonfinite_weights(const struct wk_run *run);
// The replica's parameters as a file at job->output; a warning, where they are not finite.
enum ps_code wk_save_weights(const struct wk_run *run, struct ps_error *e);
// At run->summary.
enum ps_code wk_save_summary(const struct wk_run *run, struct ps_error *e);

#endif
