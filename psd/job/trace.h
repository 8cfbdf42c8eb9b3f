// SPDX-License-Identifier: Apache-2.0
//
// The last waits of a job's calls, once they are over: a ring, in the job from its declaration on, in which the newest
// takes the place of the oldest. Nothing is allocated or formatted for a wait.
//
// Receives from: service. Threads: any; its lock is taken last, with any lock of the job's held.
#ifndef PSD_TRACE_H
#define PSD_TRACE_H

#include "psd/job/component.h"

struct psd_past_wait {
    struct psd_wait wait;
    uint64_t since, until;  // ns
    uint32_t worker, whom;  // who waited, and the worker that let it go on: as in Caller
    uint8_t client[16];
    uint8_t method, end;  // Method and WaitEnd of the proto
};

struct psd_trace {
    pthread_mutex_t lock;
    uint64_t added;  // so many, since the declaration
    struct psd_past_wait ring[PSD_TRACE_WAITS];
};

// The job is declared.
void psd_trace_add(struct psd_job *job, const struct psd_past_wait *wait);
// Copies all that there are, the newest first, and returns how many.
size_t psd_trace_copy(struct psd_job *job, struct psd_past_wait waits[PSD_TRACE_WAITS]);

extern const struct psd_component psd_trace_component;

#endif
