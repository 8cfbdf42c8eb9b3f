// SPDX-License-Identifier: Apache-2.0
//
// What a job declares: its rule, variables and partitions, and the blocks of those partitions that lie on this task.
//
// Receives from: service. Hands to: store. Threads: a fresh job has one owner until it is declared.
#ifndef PSD_DECLARATION_H
#define PSD_DECLARATION_H

#include "psd/job/job.h"

// What a page takes besides its data: its head, and what malloc adds to align it.
enum { PSD_PAGE_OVERHEAD = sizeof(struct psd_page) + 64 };

// How many blocks the partition has, wherever it lies.
uint64_t psd_partition_blocks(const struct psd_job *job, const struct psd_partition *p);

// Fills the declaration of a fresh job and makes the blocks of this task's partitions. On failure the job is
// as before. INVALID_ARGUMENT names the variable or partition that is wrong; RESOURCE_EXHAUSTED says what is
// missing.
enum ps_code psd_job_declare(struct psd_job *job, const Paramserver__V1__DeclareRequest *request, uint32_t task,
                             struct ps_error *e);
// Job locked. Workers are obeyed as the incarnations that they have when they first join the run, until the control
// task says more.
void psd_job_reset_incarnations(struct psd_job *job);
uint64_t psd_declaration_digest(const Paramserver__V1__DeclareRequest *request);
void psd_job_undeclare(struct psd_job *job);  // gives back what psd_job_declare has made

#endif
