// SPDX-License-Identifier: Apache-2.0
//
// The test split through the replica, with its weights as they are.
#ifndef WK_EVALUATE_H
#define WK_EVALUATE_H

#include "workerd/job/loop.h"

// Puts the test split's figures in place of those that the run has of it; none where there is no test split. CANCELLED:
// a signal came.
enum ps_code wk_evaluate(struct wk_run *run, struct ps_error *e);

// The same by several workers. Each evaluates batches part, part + parts, ... of the split, adds what is measured to
// *to, and learns of how many examples that is;
enum ps_code wk_evaluate_share(struct wk_run *run, uint64_t part, uint64_t parts, struct wk_meter *to,
                               uint64_t *examples, struct ps_error *e);
// the sums of all take the place of the figures that the run has.
void wk_evaluate_set(struct wk_run *run, const struct wk_meter *meter);
void wk_evaluate_forget(struct wk_run *run);

// Writes the model's output for the test split to a file of NumPy's, (examples, ...) of float32; of several outputs
// each to one of its own, "out-NAME.npy" for out.npy. FAILED_PRECONDITION: there is no test split.
enum ps_code wk_predict(struct wk_run *run, const char *path, struct ps_error *e);
// The k-th output's. malloc'd.
char *wk_predict_path(const struct wk_run *run, const char *path, size_t k);

// CANCELLED where a signal has come.
enum ps_code wk_stopped(const struct wk_run *run, struct ps_error *e);

#endif
