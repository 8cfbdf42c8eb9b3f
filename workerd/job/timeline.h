// SPDX-License-Identifier: Apache-2.0
//
// workerd --timeline: which file a worker writes, and who adds spans to it (common/file/timeline.h).
#ifndef WK_TIMELINE_H
#define WK_TIMELINE_H

#include "workerd/job/loop.h"

// Of worker 0 the file itself, "trace.json"; of others one beside it, "trace-1.json". malloc'd.
char *wk_timeline_path(const char *file, uint32_t rank);

// A worker's, of all attempts at a job. {0}: none has begun.
struct wk_timeline {
    char *path;  // NULL: there is none
    struct ps_timeline *file;
};

// Begins run->timeline where it has a path, or goes on with it. Errors as ps_output_open's.
enum ps_code wk_timeline_open(struct wk_run *run, struct ps_error *e);
// Adds tracks of the run's replica, which is there by then and has its rank; with replica 0 of a worker, of its data.
void wk_timeline_add(struct wk_run *run);
// Ends it, when no run has it any more. e: what the last run has come to; returns that. Where all was well until then:
// CANNOT_WRITE.
enum ps_code wk_timeline_close(struct wk_timeline *timeline, struct ps_error *e);

#endif
