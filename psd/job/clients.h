// SPDX-License-Identifier: Apache-2.0
//
// The clients of a job, by their ids: who is too old to change anything, and what is known of what each has open.
//
// Receives from: service. Hands to: nobody. Threads: any; guarded by the job's lock.
#ifndef PSD_CLIENTS_H
#define PSD_CLIENTS_H

#include "psd/job/job.h"

// The index of the caller in the job's clients, made on first sight. INVALID_ARGUMENT, ABORTED: another
// identity, an old incarnation. RESOURCE_EXHAUSTED: too many clients.
enum ps_code psd_job_client(struct psd_job *job, const Paramserver__V1__Caller *caller, struct psd_request_id *stamp,
                            struct ps_error *e);
void psd_clients_free(struct psd_job *job);

#endif
