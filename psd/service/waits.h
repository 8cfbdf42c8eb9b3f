// SPDX-License-Identifier: Apache-2.0
//
// All parked calls of a job: one walk over them, for whoever wants to list them, end them or say for whom they wait.
//
// Receives from: core, service. Threads: any.
#ifndef PSD_WAITS_H
#define PSD_WAITS_H

#include "psd/service/service.h"

struct psd_look {
    // One list, whose lock is held. True: tell me what these calls wait for, and for whom.
    bool (*look)(struct psd_waiters *list, void *arg);
    // May be NULL. No lock is held. whom: "" or names.
    void (*report)(struct psd_job *job, const char *what, const char *whom, void *arg);
    void *arg;
    uint64_t before;  // ns: only calls whose deadline has passed by then; 0: all
};

// job NULL: the calls that wait for a job that is not there yet.
void psd_waits_walk(struct psd_core *core, struct psd_job *job, const struct psd_look *look);

// Answers those of a job (or of none) whose deadline has passed.
void psd_waits_end_late(struct psd_core *core, struct psd_job *job, uint64_t now);
// Logs those who have waited for longer than core->config.stall_ms, once each.
void psd_waits_log_stalls(struct psd_core *core, struct psd_job *job, uint64_t now);
uint32_t psd_waits_count(struct psd_core *core, struct psd_job *job);

#endif
