// SPDX-License-Identifier: Apache-2.0
//
// The search for the newest checkpoint of a job, over the folders of all its callbacks, and what it passes over: what
// is damaged, or of which others have lost a part.
//
// Receives from: attempt.c, main, loop.c.
#ifndef WK_SEARCH_H
#define WK_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/job/job.h"
#include "workerd/strategy/checkpoint.h"

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
const char *wk_search_folder(const struct ps_job *job, bool backups, size_t *n);
// Where a search fails so, no checkpoint is left: each is damaged or lost, or was removed meanwhile.
bool wk_search_passes_over(enum ps_code code);
// The newest checkpoint that a callback of the job has written and that is as it was written. One that is damaged or
// lost is passed over, which is logged. backups: those of the callback backup alone. UNAVAILABLE: a folder cannot be
// read; PERMISSION_DENIED: it may not. Where all are passed over, the error is the newest one's. wk_found_free follows
// in any case.
enum ps_code wk_search_newest(const struct ps_job *job, bool backups, const struct wk_lost *lost,
                              struct wk_found *found, struct ps_error *e);
void wk_found_free(struct wk_found *found);
// Warns of files that make another one the newest than a person may think, for the worker that speaks: of the job's
// checkpoints of an earlier training, where this one begins anew (found NULL), as --resume goes by the step; and of one
// of an earlier step that was written later than the one that was found.
void wk_search_warn(const struct ps_job *job, const struct wk_found *found);

#endif
