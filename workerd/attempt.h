// SPDX-License-Identifier: Apache-2.0
//
// One attempt at a job: a worker's part in it, from the job file to the results. Where others are lost, main makes the
// next one, from the newest backup.
#ifndef WK_ATTEMPT_H
#define WK_ATTEMPT_H

#include <signal.h>

#include "workerd/job/recovery.h"
#include "workerd/options.h"

struct wk_attempt {
    struct wk_options *options;  // ready_fd is -1 once READY has been written there
    uint64_t not_before;  // ps_now: it joins the job no sooner; it reads the checkpoint and builds the model before
    volatile sig_atomic_t *begun;  // set as soon as a signal finds something that is to be left in order
};

// run: env.stop, env.checkpoint_signals, started, lost, timeline and what main shares are the caller's; what else is
// there is made here, and gone at the end. ended: how it ended, as wk_recovery_begins wants to know.
enum ps_code wk_attempt(const struct wk_attempt *asked, struct wk_run *run, struct wk_ended *ended, struct ps_error *e);

#endif
