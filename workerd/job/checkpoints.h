// SPDX-License-Identifier: Apache-2.0
//
// The checkpoints that a callback keeps in a folder: FOLDER/JOB-STEP.safetensors, a backup's JOB-backup-STEP.
#ifndef WK_CHECKPOINTS_H
#define WK_CHECKPOINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/job/job.h"

struct wk_checkpoints {
    const char *folder, *job, *kind;  // the caller's; kind: "" or "-backup"
};

char *wk_checkpoints_path(const struct wk_checkpoints *c, uint64_t step);  // malloc'd
// Removes those that a killed training has left half written.
void wk_checkpoints_clean(const struct wk_checkpoints *c);
// Of those up to the step `newest` removes all but the newest `keep`. Later ones are of a training before this one.
void wk_checkpoints_prune(const struct wk_checkpoints *c, uint64_t newest, uint64_t keep);

// The newest checkpoint that a callback of the job has written and that is as it was written, with words that are of no
// other one (wk_resume_describe), both malloc'd; NULL: there is none. One that is damaged is passed over, which is
// logged. backups: those of the callback backup alone. UNAVAILABLE: a folder cannot be read. Where all are damaged, the
// error is the newest one's.
enum ps_code wk_checkpoints_find(const struct ps_job *job, bool backups, char **path, char **words, struct ps_error *e);

#endif
