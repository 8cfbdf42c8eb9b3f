// SPDX-License-Identifier: Apache-2.0
//
// A training that goes on by itself. Where a ps task or too many workers are lost, the run of the job ends; then each
// worker that is left begins anew, as --resume does, from the newest checkpoint, with the others and with those that
// were started again.
//
// Not for ever: for as long as the job's timeout nobody may train a step, and a few times the training may end early on
// its way from one checkpoint to the next, which then is no accident.
//
// Receives from: main.c. Threads: the main thread.
#ifndef WK_RECOVERY_H
#define WK_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

// How a run of the job has ended, for this worker.
struct wk_ended {
    bool recovers;        // its strategy and its callbacks let a training go on
    bool opened;          // it had come into the job
    bool trained;         // it took a step
    bool data_lost;       // its own data could not be read: whatever that comes from, no other one is lost
    bool lost;            // nothing was left to go on from of the checkpoint, as all workers heard
    bool outdated;        // there is another checkpoint by now than the one that it went on from
    uint64_t checkpoint;  // the step of the one that it went on from; 0: it began at the beginning
    uint64_t patience;    // ns: the job's timeout
    uint64_t saved;       // the step of the newest checkpoint that it has written; 0: none
    bool all_saved;       // it has all that was trained until a signal came
    bool resumes;         // it takes --resume to go on from that
    bool holds_data;      // a thread of its feed hangs in a read: data, model and job stay (wk_feed_free)
};

struct wk_recovery {
    uint64_t since;       // ns, ps_now: when the training stood still; 0: it has not yet
    uint64_t checkpoint;  // from which it has ended early last,
    unsigned ends;        // so many times
};

// So many early ends on the way from one checkpoint to the next may be a restart of each ps task; more are no accident.
enum { WK_RECOVERY_ENDS = 10 };

// Does the training go on? *e: why the run has ended; where it does not go on, with what was tried, and INTERNAL where
// it ended early too often.
bool wk_recovery_begins(struct wk_recovery *r, const struct wk_ended *ended, uint64_t now, struct ps_error *e);

#endif
