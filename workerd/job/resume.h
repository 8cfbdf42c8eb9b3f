// SPDX-License-Identifier: Apache-2.0
//
// A training in a checkpoint: the variables, what the strategy keeps of them, where the training is, what it has seen,
// the callbacks' states. Of what a training that goes on from it does nothing differs from what the one that was not
// interrupted does.
#ifndef WK_RESUME_H
#define WK_RESUME_H

#include "workerd/job/loop.h"

// What the training is now. Its arrays live until the next step; on PS_OK wk_checkpoint_free follows.
enum ps_code wk_resume_save(struct wk_run *run, struct wk_checkpoint *c, struct ps_error *e);
// FAILED_PRECONDITION: it is of a job that differs in more than epochs and steps. The strategy is open, the callbacks
// have not begun.
enum ps_code wk_resume_load(struct wk_run *run, const char *path, struct ps_error *e);

// A checkpoint in some words, which are of no other one; malloc'd. Errors as wk_checkpoint_read, and then NULL.
char *wk_resume_describe(const char *path, struct ps_error *e);

#endif
