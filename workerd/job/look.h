// SPDX-License-Identifier: Apache-2.0
//
// What workerd does with a model instead of training it.
#ifndef WK_LOOK_H
#define WK_LOOK_H

#include "workerd/job/loop.h"

struct wk_look {
    bool model;           // its layers, on standard output
    bool evaluate, json;  // the figures of the test split, on standard output
    const char *predict;  // where the model's output for the test split is written; NULL: not wanted
};

bool wk_look_is_wanted(const struct wk_look *look);
// And, where the job can be trained, what a step takes of memory.
void wk_look_at_model(const struct ps_job *job, const struct nn_model *model);
// evaluate and predict, with the job's weights: those of `weights`, and where there is no such key those that a
// training of the job has written.
enum ps_code wk_look_at_weights(struct wk_run *run, const struct wk_look *look, struct ps_error *e);

#endif
