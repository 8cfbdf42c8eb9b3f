// SPDX-License-Identifier: Apache-2.0
//
// Calls that read and write files: they run on a thread of their own, one at a time, so that a disk that is slow delays
// no training. Such a call is parked until that thread takes it up.
//
// Receives from: queue. Hands to: request. Threads: any.
#ifndef PSD_SLOW_H
#define PSD_SLOW_H

#include "psd/service/request.h"

// run_ready goes on with calls; tick runs on the thread every second.
struct psd_slow_work {
    struct psd_core *core;
    void (*run_ready)(struct psd_core *core, struct psd_call *ready);
    void (*tick)(struct psd_core *core);
};

enum ps_code psd_slow_start(const struct psd_slow_work *work, struct psd_slow **slow, struct ps_error *e);
// Parks the request's call for the thread. As psd_park.
int psd_slow_park(struct psd_request *q, struct psd_slow *slow);
// Finishes what is parked and ends the thread; nothing parks any more, as the core drains. Once or more often.
void psd_slow_stop(struct psd_slow *slow);  // may be NULL
void psd_slow_free(struct psd_slow *slow);  // stopped; may be NULL

#endif
