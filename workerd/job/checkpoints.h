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
uint64_t wk_checkpoints_written_ms(const char *path);                      // since 1970; 0: it is not there
// Says in the checkpoint whose it is.
void wk_checkpoints_sign(const struct wk_checkpoints *c, struct wk_checkpoint *checkpoint);
// ALREADY_EXISTS: the file at path, which has a name that is given here, is of another job. One that does not say whose
// it is, or that somebody has given that name, is of none.
enum ps_code wk_checkpoints_check_owner(const struct wk_checkpoints *c, const char *path, struct ps_error *e);
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

// A checkpoint that was found, and read to see whether it is as it was written.
struct wk_found {
    char *path;                 // NULL: there is none
    char *words;                // that are of no other one (wk_resume_describe)
    struct wk_checkpoint read;  // all of it, but for shards that the ps tasks load
};

// Checkpoints that could be read here, but of which something is lost that others keep. {0} has none.
struct wk_lost {
    struct wk_lost_one {
        char *path, *words;  // as wk_found's
        struct ps_error why;
        bool tried;  // to be set aside,
        bool aside;  // which this process did
    } * v;
    size_t n;
};

void wk_lost_add(struct wk_lost *lost, const char *path, const char *words, const struct ps_error *why);
// Once there is another one to go on from, of that path: they get the ending .lost, so that who comes later, and has
// not heard of it, finds the same. Their shards stay as long as that.
void wk_lost_set_aside(struct wk_lost *lost, const char *path);
// Where none is left to go on from: those have their names again. False: there was none.
bool wk_lost_put_back(struct wk_lost *lost);
void wk_lost_free(struct wk_lost *lost);

// The first of *n folders that are searched; NULL: none is. It lives as long as the job.
const char *wk_checkpoints_folder(const struct ps_job *job, bool backups, size_t *n);
// Where a search fails so, no checkpoint is left: each is damaged or lost, or was removed meanwhile.
bool wk_checkpoints_passes_over(enum ps_code code);
// The newest checkpoint that a callback of the job has written and that is as it was written. One that is damaged or
// lost is passed over, which is logged. backups: those of the callback backup alone. UNAVAILABLE: a folder cannot be
// read; PERMISSION_DENIED: it may not. Where all are passed over, the error is the newest one's. wk_found_free follows
// in any case.
enum ps_code wk_checkpoints_find(const struct ps_job *job, bool backups, const struct wk_lost *lost,
                                 struct wk_found *found, struct ps_error *e);
void wk_found_free(struct wk_found *found);
// Warns of files that make another one the newest than a person may think, for the worker that speaks: of the job's
// checkpoints of an earlier training, where this one begins anew (found NULL), as --resume goes by the step; and of one
// that was written later than the one that was found.
void wk_checkpoints_warn(const struct ps_job *job, const struct wk_found *found);

#endif
