// SPDX-License-Identifier: Apache-2.0
//
// Sync aggregation of one partition. A round is complete when the whole gradients of enough of its members are in: of
// all, or of the first replicas_to_aggregate *different* ones. A set of ranks, never a count of requests. From then on
// who contributes does not change any more: what comes for the round is STALE, who leaves has contributed. The update is
// sum(n_i g_i) / sum(n_i), summed in rank order whatever the order of arrival, so the bits do not depend on timing or
// on how many tasks there are.
//
//         add (last block of a gradient)        try_close, unless held       total known              all blocks
//   OPEN ------------------------------> COMPLETE ------------> AWAITING ---------------> APPLYING -----------> next OPEN
//         set_members                           \------- clipped by no norm -----------/
//
// Memory for one gradient per worker is taken when the job is declared. What it takes besides is a page for each block
// that readers hold: nothing is applied before these are there, and a round that lacks one tries again at the next tick.
// Threads: any; guarded by the round's lock (a "partition" lock in the order of psd/store/block.h).
#ifndef PSD_ROUND_H
#define PSD_ROUND_H

#include "psd/job/job.h"
#include "psd/job/step.h"

struct psd_contribution {
    uint64_t examples;
    uint32_t blocks;          // of the partition that are in
    struct psd_page **pages;  // [n_blocks] its gradient; in the round's array, as `in` is
    bool *in;                 // [n_blocks]
};

// Who takes part, at one epoch of the membership.
struct psd_view {
    uint64_t epoch;
    uint32_t n;        // ranks from n on take no part
    bool *takes_part;  // [n]
    bool over;         // all have departed: the run is over
};

enum psd_round_state { PSD_ROUND_OPEN, PSD_ROUND_COMPLETE, PSD_ROUND_AWAITING, PSD_ROUND_APPLYING };

struct psd_round {
    pthread_mutex_t lock;
    uint64_t closed;  // the last round that was applied; what follows is about closed + 1
    enum psd_round_state state;
    uint32_t workers, enough;                // enough: whole gradients of that many members complete it, or of all
    bool *member;                            // [workers]
    uint64_t epoch;                          // of the membership that says so
    bool over;                               // as the roster: what is not complete closes no more
    struct psd_contribution *contributions;  // [workers]
    struct psd_page **pages;                 // [workers][n_blocks]
    bool *in;                                // [workers][n_blocks]
    uint64_t *counted;                       // [workers] the last round in which its gradient counted
    struct psd_waiters waiting;              // Pulls for a round that has not closed
    struct psd_partition *partition;

    // AWAITING: what psd/sync/norm.c is told, and its link.
    uint64_t number;  // of the round
    struct psd_clip clip;
    double sum;  // of the squares of its mean gradient
    struct psd_round *next_due;

    // APPLYING
    struct psd_page **spares;  // [n_blocks] for those that are held; NULL: none is needed, or it was
    uint32_t applied;          // blocks; they may be less than all for long only where a reader came in between
    float factor;              // that the mean gradient is clipped by
};

// What a round takes besides the pages' data and their overhead.
enum {
    PSD_ROUND_BYTES_PER_WORKER = sizeof(struct psd_contribution) + sizeof(bool) + sizeof(uint64_t),
    PSD_ROUND_BYTES_PER_GRADIENT_BLOCK = sizeof(struct psd_page *) + sizeof(bool),
    PSD_ROUND_BYTES_PER_BLOCK = sizeof(struct psd_page *),
};

// All workers are members at first. RESOURCE_EXHAUSTED: no memory.
enum ps_code psd_round_create(const struct psd_job *job, struct psd_partition *p, struct psd_round **round,
                              struct ps_error *e);
void psd_round_destroy(struct psd_round *round);  // may be NULL

// May rank contribute to round number? Outcome STALE (complete or closed already) or QUEUED with PS_OK;
// FAILED_PRECONDITION: not open yet; ABORTED: not a member; ALREADY_EXISTS: this block of its gradient is in;
// INVALID_ARGUMENT: more than PS_EXAMPLES_MAX examples, or others than those of its blocks that are in.
enum ps_code psd_round_check(struct psd_round *round, const char *variable, uint32_t rank, uint64_t number,
                             uint64_t examples, uint32_t block, Paramserver__V1__Outcome *outcome, struct ps_error *e);
// Adds one block of a gradient unless the block has the stamp already, or finds it stale (as one whose worker is no member
// any more) or (a second gradient that raced past the check) duplicate. OUTCOME_NONE: there is no room to remember it.
Paramserver__V1__Outcome psd_round_add(struct psd_round *round, uint32_t rank, uint64_t number, uint64_t examples,
                                       uint32_t block, const struct psd_request_id *stamp,
                                       const struct ps_slices *payload, size_t offset);
// The first round that may still take gradients, now or when the one before it has closed.
uint64_t psd_round_open(struct psd_round *round);
// Applies and opens the next round if it is complete and not held (psd/control/agree.h), or goes on with one that lacked memory:
// call it at every tick. Calls that this makes ready are moved
// to *ready. One that waits for a norm is with psd/sync/norm.h: psd_norm_send.
void psd_round_try_close(struct psd_job *job, struct psd_round *round, struct psd_call **ready);
void psd_rounds_try_close(struct psd_job *job, struct psd_call **ready);  // all that are here
// The total that round number has awaited, unless it does not any more.
void psd_round_finish(struct psd_job *job, struct psd_round *round, uint64_t number, double total,
                      struct psd_call **ready);
// The greatest round whose gradients and hyperparameters are decided: closed, or it waits for its norm or memory only.
uint64_t psd_round_decided(struct psd_round *round);
// From now on the roster says whom to wait for, unless a later one has said so: rosters may overtake each other. A
// departed worker's gradient counts if it is in whole, beside those of the members. Where all have departed, who waits
// for a round is made ready: psd_wait_for_round.
void psd_round_set_members(struct psd_job *job, struct psd_round *round, const struct psd_view *roster,
                           struct psd_call **ready);
// Is the whole gradient of rank in the round that has not closed?
bool psd_round_has_gradient(struct psd_round *round, uint32_t rank);
// Does the open round wait for this worker's gradient? The round's lock is held.
bool psd_round_misses(const struct psd_round *round, uint32_t rank);
// For each rank (arrays [workers of the job], zeroed): the last round in which its whole gradient counts in some
// partition of this task, and in all of them.
void psd_rounds_counted(struct psd_job *job, uint64_t *counted, uint64_t *counted_in_all);
// The least round that some partition of this task still takes gradients for; 0: it has no rounds.
uint64_t psd_rounds_open(struct psd_job *job);
// Starts over for a new run on the old values: round 1, all workers members.
void psd_round_reset(struct psd_round *round);

// For each rank, [workers], the last round in which its gradient counts in some partition here and in all of them; that
// of one that has departed counts in the open round as soon as it is whole. 0 where this task has no rounds.
void psd_rounds_counted(struct psd_job *job, uint64_t *counted, uint64_t *counted_in_all);

#endif
