// SPDX-License-Identifier: Apache-2.0
//
// A training in a checkpoint: the variables, what the strategy keeps of them, where the training is, what it has seen,
// the callbacks' states. Of what a training that goes on from it does nothing differs from what the one that was not
// interrupted does.
#ifndef WK_RESUME_H
#define WK_RESUME_H

#include "workerd/job/loop.h"

// What the training is now. Its arrays live until the next step; on PS_OK wk_checkpoint_free follows.
enum ps_code wk_resume_save(struct wk_run *run, const struct ps_shards_of *shards, struct wk_checkpoint *c,
                            struct ps_error *e);
// From run->resume, or what run->resume_read has of it. FAILED_PRECONDITION: it is of a job that differs in more than
// epochs and steps. The strategy is open, the callbacks have not begun.
enum ps_code wk_resume_load(struct wk_run *run, struct ps_error *e);
// Of a worker that comes late: run->seed, which is the strategy's, becomes that of the others, who have gone on from
// this checkpoint or have written it. Where it cannot be read nothing changes.
void wk_resume_take_seed(struct wk_run *run);
// Are a checkpoint's shards read here? Not where the ps tasks load theirs.
bool wk_resume_reads_shards(const struct ps_job *job);
// Frees what is in run->resume_read: it is not needed any more.
void wk_resume_forget(struct wk_run *run);

// A checkpoint that was read, in some words, which are of no other one; malloc'd.
char *wk_resume_describe(const struct wk_checkpoint *c);

#endif
