// SPDX-License-Identifier: Apache-2.0
//
// The last half hour of this task and its jobs, a point every five seconds, so that a status page has plots when it is
// opened. It takes at most some 300 KiB: of more jobs than PSD_HISTORY_JOBS those that run go first, and the others
// have none.
//
// Receives from: the sampler. Hands to: the HTTP pages. Threads: any.
#ifndef PSD_HTTP_HISTORY_H
#define PSD_HTTP_HISTORY_H

#include "psd/http/overview.h"

enum {
    PSD_HISTORY_JOBS = 32,
    PSD_HISTORY_POINTS = 360,
    PSD_HISTORY_SECONDS = 5,  // between two points
};

struct psd_history;

struct psd_history *psd_history_create(void);     // NULL: no memory
void psd_history_destroy(struct psd_history *h);  // may be NULL

// A job that the overview does not have is forgotten.
void psd_history_add(struct psd_history *h, const struct ps_overview *overview);

// {"interval_ms", "memory": [[clock_ms, resident, blocks], ...],
//  "jobs": [{"name", "run", "points": [[clock_ms, examples/s, loss, staleness], ...]}, ...]}, from the oldest to the
// newest; null: not known. *text is malloc'd. RESOURCE_EXHAUSTED: no memory.
enum ps_code psd_history_text(struct psd_history *h, char **text, struct ps_error *e);

#endif
