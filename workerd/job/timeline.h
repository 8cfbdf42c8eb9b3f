// SPDX-License-Identifier: Apache-2.0
//
// workerd --timeline: which file a worker writes, and who adds spans to it (common/file/timeline.h).
#ifndef WK_TIMELINE_H
#define WK_TIMELINE_H

#include "workerd/job/loop.h"

// Of worker 0 the file itself, "trace.json"; of others one beside it, "trace-1.json". malloc'd.
char *wk_timeline_path(const char *file, uint32_t rank);

// Begins run->timeline where it is not NULL, with tracks of the run's replica and data, which are there by then. Errors
// as ps_output_open's.
enum ps_code wk_timeline_open(struct wk_run *run, struct ps_error *e);
// Ends it: the replica and the feeds are idle, the strategy is closed. code: what the run has come to, and *e why;
// returns that. Where all was well until then: CANNOT_WRITE.
enum ps_code wk_timeline_close(struct wk_run *run, enum ps_code code, struct ps_error *e);

#endif
