// SPDX-License-Identifier: Apache-2.0
//
// Atomic updates. What the requests of one sequence bring is kept, block by block, in pages of the pool until all of it
// has come; then all of it is applied under the job's snapshot lock, held exclusively: no reader sees a part of it.
//
//     first request --> staged --(all bytes are here)--> applied, the blocks marked
//                          \--(60 s of silence, a later incarnation, departure, the job's end)--> forgotten
//
// Receives from: service. Hands to: apply, store. Threads: any; guarded by the job's `staging` lock.
#ifndef PSD_STAGING_H
#define PSD_STAGING_H

#include "psd/job/apply.h"
#include "psd/job/component.h"

// A request of an atomic update.
struct psd_atomic {
    const Paramserver__V1__Caller *caller;
    struct psd_request_id id;
    uint64_t bytes;  // of the whole update, on this task
    uint64_t now;
    int method;  // Method of the proto
    const struct psd_extents *extents;
    struct psd_feed *feed;
};

// *outcome: STAGED; APPLIED, this was the last of it; DUPLICATE, all these blocks have the sequence. A block that has
// been staged under the sequence is not staged again. INVALID_ARGUMENT: it does not go with what was staged before.
// FAILED_PRECONDITION: some of it is staged, and its client has given its sequence up since.
// RESOURCE_EXHAUSTED: no room; it may be sent again.
enum ps_code psd_staging_add(struct psd_job *job, const struct psd_atomic *a, Paramserver__V1__Outcome *outcome,
                             struct ps_error *e);

// Of a worker that has departed; a later incarnation's stay.
void psd_staging_drop_worker(struct psd_job *job, uint32_t rank, uint64_t incarnation);

extern const struct psd_component psd_staging_component;

#endif
