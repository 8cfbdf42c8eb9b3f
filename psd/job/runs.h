// SPDX-License-Identifier: Apache-2.0
//
// Runs and incarnations: numbers of one sequence that grows. The control task gives them out; every task remembers the
// last run of a job's name after the job is gone, so that what comes late of it is refused.
//
// Receives from: service, control, table.c. Threads: as said at each function.
#ifndef PSD_RUNS_H
#define PSD_RUNS_H

#include <stdatomic.h>
#include <stdint.h>

#include "psd/limits.h"

// A run from the wire is below this, so that the sequence cannot be exhausted by one number.
#define PSD_RUN_LIMIT (UINT64_C(1) << 63)

struct psd_runs {
    atomic_ullong last;  // the greatest number given out or heard of
    uint64_t farthest;   // what is above it is not believed
    // Guarded by the core's job table lock.
    struct psd_past_run {
        uint64_t name;  // its hash
        uint64_t run;   // 0: an unused entry
    } past[PSD_PAST_RUNS];
    uint64_t forgotten;  // the greatest run that gave way to another: a name that is not remembered may have had it
};

// wall_us: microseconds of the wall clock, so that the sequence grows over a restart.
void psd_runs_init(struct psd_runs *runs, uint64_t wall_us);
uint64_t psd_runs_next(struct psd_runs *runs);          // any thread
uint64_t psd_runs_newest(const struct psd_runs *runs);  // given out or heard of; any thread
// Any thread. Numbers given out later are greater than one that was heard of, but for one that is a century ahead: no
// control task gave it out.
void psd_runs_hear(struct psd_runs *runs, uint64_t number);
// The job of this name is gone, its last run was this one. Table lock held.
void psd_runs_remember(struct psd_runs *runs, const char *name, uint64_t run);
// The greatest run that a job of this name had before it went; 0: none is known. Table lock held.
uint64_t psd_runs_past(const struct psd_runs *runs, const char *name);

#endif
