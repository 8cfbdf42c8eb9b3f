// SPDX-License-Identifier: Apache-2.0
//
// The checkpoints that a callback keeps in a folder: FOLDER/JOB-STEP.safetensors, a backup's JOB-backup-STEP. The
// backups of job t and the checkpoints of job t-backup have the same names: each file says whose it is, and those of
// another job are neither read, nor removed, nor written over.
#ifndef WK_CHECKPOINTS_H
#define WK_CHECKPOINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/job/job.h"
#include "workerd/strategy/checkpoint.h"

struct wk_checkpoints {
    const char *folder, *job, *kind;  // the caller's; kind: "" or "-backup"
};

// Those of a callback. False: it keeps none.
bool wk_checkpoints_of(const struct ps_job *job, const struct ps_callback *callback, struct wk_checkpoints *c);
char *wk_checkpoints_path(const struct wk_checkpoints *c, uint64_t step);  // malloc'd
char *wk_checkpoints_lost_path(const char *path);                          // malloc'd; that of one set aside
uint64_t wk_checkpoints_written_ms(const char *path);                      // since 1970; 0: it is not there
// Says in the checkpoint whose it is.
void wk_checkpoints_sign(const struct wk_checkpoints *c, struct wk_checkpoint *checkpoint);
// ALREADY_EXISTS: the file at path, which has a name that is given here, is of another job. One that does not say whose
// it is, or that somebody has given that name, is of none.
enum ps_code wk_checkpoints_check_owner(const struct wk_checkpoints *c, const char *path, struct ps_error *e);
// The steps of those in the folder, newest first; malloc'd, also where it fails. NULL: there are none. UNAVAILABLE: the
// folder cannot be read; PERMISSION_DENIED: it may not.
enum ps_code wk_checkpoints_list(const struct wk_checkpoints *c, uint64_t **steps, size_t *n, struct ps_error *e);
// Removes those that a killed training has left half written.
void wk_checkpoints_clean(const struct wk_checkpoints *c);
// Of those up to the step `newest` removes all but the newest `keep`, the oldest first. Later ones are of a training
// before this one. Shards beside them go with them. True: one of them had shards, which may lie elsewhere.
bool wk_checkpoints_prune(const struct wk_checkpoints *c, uint64_t newest, uint64_t keep);

// What the shards of a checkpoint that is to be written have in common; their name is malloc'd. Their series is the
// folder's.
struct ps_shards_of wk_checkpoints_shards(const struct wk_checkpoints *c, uint64_t step);
// Has the shards of the folder's series removed whose checkpoints are not there, such as those of one that was not
// written to its end; arg: prune's. Nothing is removed where a checkpoint that is there cannot be read.
enum ps_code wk_checkpoints_prune_shards(const struct wk_checkpoints *c, wk_prune_shards_fn *prune, void *arg,
                                         struct ps_error *e);

#endif
