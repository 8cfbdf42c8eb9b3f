// SPDX-License-Identifier: Apache-2.0
//
// The queue on disk. NUMBER.job is a job: a line with the CRC-32C of what follows it, a StoredJob; it appears whole or
// not at all. NUMBER.log is what its workers have written, the last PSD_QUEUE_LOG_BYTES of it at least: a line with the
// number of bytes that went before, then these.
//
// Receives from: queue. Threads: one at a time.
#ifndef PSD_QUEUE_FILES_H
#define PSD_QUEUE_FILES_H

#include "psd/queue/queue.h"

// Locks the folder for this process, until the descriptor is closed; where it fails *fd is -1. Errors as
// psd_queue_open's.
enum ps_code psd_queue_lock(const char *folder, int *fd, struct ps_error *e);

enum ps_code psd_queue_write_job(const char *folder, const struct psd_queue_job *job, struct ps_error *e);
// Calls found for each job of the folder, which takes it over. Files that do not hold one are set aside,
// those that cannot be read are passed over with a warning, and those that were not written to their end are removed.
// *last: the greatest number that a file of the folder is named by, raised; also one that holds no job.
enum ps_code psd_queue_read_jobs(const char *folder, void (*found)(void *arg, struct psd_queue_job *job), void *arg,
                                 uint64_t *last, struct ps_error *e);
void psd_queue_remove_job(const char *folder, uint64_t number);
void psd_queue_remove_log(const char *folder, uint64_t number);

// All of the bytes or, where it fails, none.
enum ps_code psd_queue_write_log(const char *folder, uint64_t number, const void *bytes, size_t len,
                                 struct ps_error *e);
enum ps_code psd_queue_read_log(const char *folder, uint64_t number, uint64_t *offset, void *to, size_t size,
                                size_t *len, struct ps_error *e);

void psd_queue_job_free(struct psd_queue_job *job);

#endif
