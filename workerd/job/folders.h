// SPDX-License-Identifier: Apache-2.0
//
// The folders in which a job's callbacks keep checkpoints. Two trainings of one name would remove each other's files
// there: each callback's have a lock beside them, FOLDER/JOB-checkpoint.lock, a backup's FOLDER/JOB-backup.lock.
//
// Receives from: attempt.c, before worker 0 opens the job; callbacks/checkpoint.c, where another one takes its place.
#ifndef WK_FOLDERS_H
#define WK_FOLDERS_H

#include <stddef.h>
#include <stdint.h>

#include "common/file/lock.h"
#include "common/job/job.h"

struct wk_folders {
    // What the workers of a training have in common, also with those that follow them when it is started again, and no
    // other training does: a word (wk_place_training). NULL: it has one worker.
    const char *training;
    uint32_t rank;
    struct ps_lock *lock;  // of each callback
    size_t n;
};

// At first looks whether what callbacks write can be written. Makes the folders that are not there, and locks those
// that are not locked. ALREADY_EXISTS: another training of that name keeps one; CANNOT_CREATE. wk_folders_release
// follows in any case.
enum ps_code wk_folders_take(struct wk_folders *f, const struct ps_job *job, struct ps_error *e);
void wk_folders_release(struct wk_folders *f);

#endif
