// SPDX-License-Identifier: Apache-2.0
//
// Sync aggregation of one partition. A round closes when the gradients of all its members are in: a set of
// ranks, never a count. The update is sum(n_i g_i) / sum(n_i), summed in rank order whatever the order of
// arrival, so the bits do not depend on timing or on how many tasks there are.
//
//           begin                add (last block of last member) / set_members
//   round r open  ------------------------------------------------------------>  applied, round r + 1 open
//
// Memory for one gradient per worker is taken when the job is declared. Threads: any; guarded by the round's
// lock (a "partition" lock in the order of psd/storage.h).
#ifndef PSD_ROUND_H
#define PSD_ROUND_H

#include "psd/shard.h"

struct psd_contribution {
    uint64_t examples;
    uint32_t blocks;          // of the partition that are in
    struct psd_page **pages;  // [n_blocks] its gradient
    bool *in;                 // [n_blocks]
};

// Who takes part, at one epoch of the membership.
struct psd_roster {
    uint64_t epoch;
    uint32_t n;        // ranks from n on take no part
    bool *takes_part;  // [n]
};

struct psd_round {
    pthread_mutex_t lock;
    uint64_t closed;  // the last round that was applied; closed + 1 is open
    uint32_t workers;
    bool *member;                            // [workers] of the open round
    uint64_t epoch;                          // of the membership that says so
    struct psd_contribution *contributions;  // [workers]
    struct psd_waiters waiting;              // Pulls for a round that has not closed
    struct psd_partition *partition;
};

// All workers are members at first. RESOURCE_EXHAUSTED: no memory.
enum ps_code psd_round_create(struct psd_partition *p, struct psd_pool *pool, uint32_t workers,
                              struct psd_round **round, struct ps_error *e);
void psd_round_destroy(struct psd_round *round);  // may be NULL

// May rank contribute to round number? Outcome STALE (closed already) or QUEUED with PS_OK;
// FAILED_PRECONDITION: not open yet; ABORTED: not a member; ALREADY_EXISTS: this block of its gradient is in.
enum ps_code psd_round_check(struct psd_round *round, const char *variable, uint32_t rank, uint64_t number,
                             uint32_t block, Paramserver__V1__Outcome *outcome, struct ps_error *e);
// Adds one block of a gradient unless the block has the stamp already, or finds it stale or (a second
// gradient that raced past the check) duplicate.
Paramserver__V1__Outcome psd_round_add(struct psd_round *round, uint32_t rank, uint64_t number, uint64_t examples,
                                       uint32_t block, const struct psd_stamp *stamp, const struct ps_rope *payload,
                                       size_t offset);
// Applies and opens the next round if all members' gradients are in. Calls that this makes ready are moved to *ready.
void psd_round_try_close(struct psd_job *job, struct psd_round *round, struct psd_call **ready);
// From now on the roster says whom to wait for, unless a later one has said so: rosters may overtake each other. A
// departed worker's gradient counts if it is in whole.
void psd_round_set_members(struct psd_job *job, struct psd_round *round, const struct psd_roster *roster,
                           struct psd_call **ready);
// Is the whole gradient of rank in the open round?
bool psd_round_has_gradient(struct psd_round *round, uint32_t rank);
// Does the open round wait for this worker's gradient? The round's lock is held.
bool psd_round_misses(const struct psd_round *round, uint32_t rank);
// For each rank (arrays [workers of the job], zeroed): the last round in which its whole gradient counts in some
// partition of this task, and in all of them.
void psd_rounds_counted(struct psd_job *job, uint64_t *counted, uint64_t *counted_in_all);
// Starts over for a new run on the old values: round 1, all workers members.
void psd_round_reset(struct psd_round *round);

#endif
