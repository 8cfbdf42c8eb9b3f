// SPDX-License-Identifier: Apache-2.0
//
// The limits of psd's rooms, each with its unit and its reason. Those that other programs keep, too, are in
// common/base/limits.h; those that clients can meet are in proto/paramserver.proto, too.
#ifndef PSD_LIMITS_H
#define PSD_LIMITS_H

enum {
    // ---- agreement ----
    PSD_AGREE_VALUE_MAX = 256,    // bytes of a proposal's value: kept in place, so that nothing has to be allocated
    PSD_AGREE_TEXT_MAX = 200,     // bytes of its description in texts
    PSD_AGREE_SILENT_MS = 2000,   // a task that has not answered in a phase by then keeps no proposer waiting
    PSD_INQUIRE_AFTER_MS = 2500,  // a prepared proposal: longer than the control task itself waits in PREPARE
    PSD_INQUIRE_AGAIN_MS = 1000,  // between two inquiries
    PSD_HELD_TOO_LONG_MS = 5000,  // a held round has a line in the log
    PSD_AGREE_AHEAD = 4,          // rounds between the last one known to be closed and the one that is tried first
    PSD_AGREE_AHEAD_MAX = 4096,   // rounds: it is doubled with every try up to this

    // ---- jobs ----
    PSD_GRACE_MS_MAX = 86400000,  // that a round which has enough gradients stays open for others: a day
    PSD_MAX_JOBS = 1024,          // that a task knows at once: finished ones stay until they are stopped or replaced
    PSD_PAST_RUNS = 4096,         // the last runs of names, remembered when the job is gone
    PSD_MAX_CHANGES = 64,      // of a job's hyperparameters whose rounds are not over: they have their place in the job
    PSD_FAILURE_MAX = 400,     // bytes of why a run has ended: a sentence, with a worker's own in it
    PSD_WAIT_TEXT_MAX = 256,   // bytes of what a call waits for, and of for whom
    PSD_WAIT_NAME_MAX = 32,    // bytes of a collective's name, kept with each wait for one
    PSD_TRACE_WAITS = 1024,    // of a job, kept when they are over: with 8 workers the last 128 rounds, in 96 KiB
    PSD_MAX_CLIENTS = 131072,  // of a job: as many as workers, and as many others again
    PSD_STAGED_S = 60,         // s: the rest of an atomic update that has not come by then is not waited for
    PSD_MAX_SNAPSHOTS = 4096,  // that are kept at once: readers that never finish would keep more
    PSD_SNAPSHOT_S = 60,       // s: a reader that has not asked for the rest by then has to begin again
    PSD_SNAPSHOT_READ_S = 5,   // s: its last part has been sent, and is sent once more where the answer was lost

    // ---- a job whose control task is gone ----
    PSD_WATCH_IDLE_MS = 20000,    // in which nothing moves, before another task asks for the job
    PSD_WATCH_AGAIN_MS = 10000,   // between two questions
    PSD_WATCH_SILENT_MS = 60000,  // without an answer: the job ends there

    // ---- declaration ----
    PSD_MAX_VARIABLES = 65536,  // of a job: a description of more is larger than clients decode

    // ---- parked calls ----
    PSD_DECODED_FACTOR = 4,   // a decoded request takes at most so many times its bytes as a message
    PSD_PARKED_SMALL = 1024,  // bytes: smaller ones are not counted, the transport counts each call as so much
    PSD_PARKED_FRACTION = 8,  // of the memory for blocks, and beside it: what decoded requests may take that wait

    // ---- the queue ----
    PSD_QUEUE_WAITING = 1000,           // jobs that wait or run at once: each is in memory whole
    PSD_QUEUE_BYTES = 64 << 20,         // bytes of their texts, likewise
    PSD_QUEUE_TEXT_MAX = 1 << 20,       // bytes of one: what is read of a job file
    PSD_QUEUE_PRIORITY = 1000,          // from minus this to this
    PSD_QUEUE_KEEP = 100,               // jobs that have ended, the latest, and of these
    PSD_QUEUE_KEEP_S = 7 * 24 * 3600,   // s: none that ended longer ago,
    PSD_QUEUE_LEAST_S = 24 * 3600,      // s: but each for so long after psd's start
    PSD_QUEUE_LOG_BYTES = 256 << 10,    // of a job's output; up to twice as much is on disk
    PSD_QUEUE_REPORT_BYTES = 64 << 10,  // of output in one report
    PSD_QUEUE_READ_BYTES = 256 << 10,   // of output in one reply
    PSD_QUEUE_HEARD_MS = 3000,          // a worker that has not asked for so long is not there; it asks twice a second
    PSD_QUEUE_LOST_MS = 30000,  // one that trains reports five times a second; started again, it asks within this
    PSD_QUEUE_WAITS_MAX = 300,  // bytes of what a worker waits for

    // ---- membership ----
    PSD_MEMBERS_WHOLE = 128,  // more members than this are in no JoinReply or HeartbeatReply: that would be n^2 in all
    PSD_JOIN_WITHIN_MS = 60000,  // a worker that has not joined by then is not waited for, unless Join says otherwise
    PSD_CONFIGURATION_MAX = 16384,  // bytes of what the workers of a job must have alike, kept for each job
    PSD_OPENERS = 32,  // worker 0's processes that are remembered of a job's name, over its runs: messages come
                       // late by seconds, in which it is not started again so often
    PSD_EXCLUDE_AFTER_MS = 100,  // a worker that waits here for longer is excluded from rounds where others train
    PSD_ASK_AGAIN_MS = 2000,     // one that waits on asks again within this, or says that it does
};

#endif
