// SPDX-License-Identifier: Apache-2.0
//
// A training in a checkpoint: the variables, what the strategy keeps of them, where the training is, what it has seen,
// the callbacks' states. Of what a training that goes on from it does nothing differs from what the one that was not
// interrupted does.
#ifndef WK_RESUME_H
#define WK_RESUME_H

#include "workerd/job/loop.h"

enum ps_code wk_resume_save(struct wk_run *run, const char *path, struct ps_error *e);
// FAILED_PRECONDITION: it is of a job that differs in more than epochs and steps. The strategy is open, the callbacks
// have not begun.
enum ps_code wk_resume_load(struct wk_run *run, const char *path, struct ps_error *e);

// The newest checkpoint that a callback of the job has written, malloc'd; NULL: there is none. backups: those of the
// callback backup alone. UNAVAILABLE: a folder cannot be read.
enum ps_code wk_resume_find(const struct ps_job *job, bool backups, char **path, struct ps_error *e);

// A checkpoint in some words, which are of no other one; malloc'd. Errors as wk_checkpoint_read, and then NULL.
char *wk_resume_describe(const char *path, struct ps_error *e);

// A callback's file at a step; malloc'd. kind: "" or "-backup".
char *wk_resume_path(const char *folder, const char *job, const char *kind, uint64_t step);
// Removes those that a killed training has left half written.
void wk_resume_clean(const char *folder, const char *job, const char *kind);
// Removes all of a callback's files but the newest `keep`.
void wk_resume_prune(const char *folder, const char *job, const char *kind, uint64_t keep);

#endif
