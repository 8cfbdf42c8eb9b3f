// SPDX-License-Identifier: Apache-2.0
//
// All parked calls of a job, or of none (job NULL: those that wait for a job that is not there yet): they are counted,
// end in time, and have a line in the log where they wait for long. Those of the threads for files are counted and told
// alone: they end when their file is done.
//
// Receives from: core, service. Threads: any.
#ifndef PSD_WAITS_H
#define PSD_WAITS_H

#include "psd/service/service.h"

// Answers those whose deadline has passed.
void psd_waits_end_late(struct psd_core *core, struct psd_job *job, uint64_t now);
// Logs those who have waited for longer than core->config.stall_ms, each once; those that wait for the same have one
// line.
void psd_waits_log_stalls(struct psd_core *core, struct psd_job *job, uint64_t now);
// Time passes in a job: both, where it is time. component_due: as psd_job_tick says. Returns when it will be time
// again.
uint64_t psd_waits_tick(struct psd_core *core, struct psd_job *job, uint64_t now, uint64_t component_due);
uint32_t psd_waits_count(struct psd_core *core, struct psd_job *job);

#endif
