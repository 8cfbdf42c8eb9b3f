// SPDX-License-Identifier: Apache-2.0
//
// The test split through the replica, with its weights as they are.
#ifndef WK_EVALUATE_H
#define WK_EVALUATE_H

#include "workerd/job/loop.h"

// Puts the test split's figures in place of those that the run has of it; none where there is no test split. CANCELLED:
// a signal came.
enum ps_code wk_evaluate(struct wk_run *run, struct ps_error *e);
// Writes the model's output for the test split to a file of NumPy's, (examples, ...) of float32; of several outputs
// each to one of its own, "out-NAME.npy" for out.npy. FAILED_PRECONDITION: there is no test split.
enum ps_code wk_predict(struct wk_run *run, const char *path, struct ps_error *e);

// CANCELLED where a signal has come.
enum ps_code wk_stopped(const struct wk_run *run, struct ps_error *e);

#endif
