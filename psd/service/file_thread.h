// SPDX-License-Identifier: Apache-2.0
//
// Calls that read and write files: they run on a thread of their own, one at a time, so that a disk that is slow delays
// no training. Such a call is parked until that thread takes it up.
//
// Receives from: queue, shard. Hands to: request. Threads: any.
#ifndef PSD_FILE_THREAD_H
#define PSD_FILE_THREAD_H

#include "psd/service/request.h"

// run_ready goes on with calls; tick (may be NULL) runs on the thread every second.
struct psd_file_thread_work {
    struct psd_core *core;
    void (*run_ready)(struct psd_core *core, struct psd_call *ready);
    void (*tick)(struct psd_core *core);
    int nice;  // of the thread: 0, as the process has it
};

enum ps_code psd_file_thread_start(const struct psd_file_thread_work *work, struct psd_file_thread **thread,
                                   struct ps_error *e);
// Parks the request's call for the thread. As psd_park.
int psd_file_thread_park(struct psd_request *q, struct psd_file_thread *thread);
// Shows the calls of a job, or (NULL) of none, that are parked or worked on, under the thread's lock: their method,
// since when they are parked, their deadline, and the caller of those that have one. thread may be NULL.
void psd_file_thread_look(struct psd_file_thread *thread, const struct psd_job *job,
                          void (*look)(const struct psd_call *call, void *arg), void *arg);
// Finishes what is parked and ends the thread; nothing parks any more, as the core drains. Once or more often.
void psd_file_thread_stop(struct psd_file_thread *thread);  // may be NULL
void psd_file_thread_free(struct psd_file_thread *thread);  // stopped; may be NULL

#endif
