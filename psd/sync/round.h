// SPDX-License-Identifier: Apache-2.0
//
// One partition's round: its state, its sum and its application. A round is complete when the whole gradients of enough
// of its members are in: of all, or of the first replicas_to_aggregate *different* ones, and then either of all others
// too, or the time of grace has passed since there were enough. It counts a set of ranks, never requests. Once it is
// complete its contributors do not change: what comes for it later is STALE, and a member that leaves has contributed.
// The update is sum(n_i g_i) / sum(n_i), added in rank order whatever the order of arrival, so the bits do not depend
// on timing, on the number of threads or on the number of tasks.
//
//         add (last block of a gradient)        not held        clipped by a norm          total known            all blocks
//   OPEN ------------------------------> COMPLETE ------> SQUARING -----------> AWAITING ------------> APPLYING -----> OPEN
//         set_members                         \--------- clipped by none, or by its own norm alone ----/
//
// A gradient whose last block is in counts, whatever happens to its worker. So a whole gradient is added to the sum as
// soon as no lower rank can contribute any more that has not been added, and its memory is free then: a round holds one
// sum, the gradients that came out of order, and the parts of those that are not whole.
//
// Memory for the worst of that, one gradient per worker, is counted in the pool when the job is declared; pages exist
// while they are needed. Beyond that a round needs a page for each block that readers pin: it applies nothing to a
// block before that page is there, and tries again at the next tick.
//
// Threads: any. The round's lock (a "partition" lock in the order of psd/store/block.h) guards the state; it is not
// held while a gradient is copied, added or applied. The one thread that has set `busy` owns the sum, the whole
// gradients and what is marked so below, without the lock. psd/sync/sync.h decides which thread that is, and when.
//
// Receives from: sync, service. Hands to: job, the rules and the mean of common/math.
#ifndef PSD_ROUND_H
#define PSD_ROUND_H

#include "common/base/workers.h"
#include "psd/job/hyper.h"
#include "psd/job/job.h"
#include "psd/job/step.h"

struct psd_contribution {
    uint64_t examples;
    uint64_t sequence;  // with the client: the operation that its blocks come from
    uint32_t client;
    uint32_t blocks;          // of the partition that are in
    bool folded;              // its gradient is in the sum, or the busy thread adds it
    struct psd_page **pages;  // [n_blocks] of the round's array; until it is folded: its gradient, NULL: not in
};

// Who takes part, at one epoch of the membership.
struct psd_view {
    uint64_t run;  // of the job
    uint64_t epoch;
    uint32_t n;        // ranks from n on take no part
    bool *takes_part;  // [n]
    bool over;         // all have departed: the run is over
};

enum psd_round_state {
    PSD_ROUND_OPEN,
    PSD_ROUND_COMPLETE,
    PSD_ROUND_SQUARING,  // the sum of squares of its mean is computed
    PSD_ROUND_AWAITING,  // the norm's total
    PSD_ROUND_APPLYING
};

struct psd_round {
    pthread_mutex_t lock;
    uint64_t closed;  // the last round that was applied; what follows is about closed + 1
    enum psd_round_state state;
    uint32_t workers, enough;  // enough: whole gradients of that many members complete it, or of all
    uint64_t grace;            // ns that an open round which has enough waits for the other members
    uint64_t enough_at;        // by the host's clock: since when it has; 0: it has not, or there is no grace
    const struct psd_host *host;
    bool *member;                            // [workers]
    uint64_t epoch;                          // of the membership that says so
    bool over;                               // as the view: what is not complete closes no more
    bool off;                                // the job has left its rounds: none takes gradients
    struct psd_contribution *contributions;  // [workers]
    struct psd_page **pages;                 // [workers][n_blocks]
    uint64_t *counted;                       // [workers] the last round in which its gradient counted
    struct psd_waiters waiting;              // Pulls for a round that has not closed
    uint32_t awaited;  // the worker that it waited for last, as in Caller: it brought its gradient, or was given up
    struct psd_partition *partition;
    struct psd_pool *pool;
    uint32_t members, whole, whole_members;  // how many there are: members, whole gradients, and of these members'
    atomic_ullong run;                       // grows with every reset: what was computed before belongs to another run
    const atomic_ullong *job_run;            // the job's, which changes before the reset

    bool busy;        // a thread computes; before it ends it looks whether there is more to do
    bool abandoned;   // reset meanwhile: the busy thread forgets all gradients, none is taken until it has
    uint32_t next;    // ranks below have been folded, or do not count in this round
    uint32_t *batch;  // [n_batch] ranks that are being folded; the busy thread's, as are those below
    uint32_t n_batch;
    struct psd_page **sum;  // [n_blocks] NULL: nothing is folded, or the block has been applied
    bool begun;             // sum holds something
    uint64_t examples;      // in the sum
    bool ignores;           // while these are none: a gradient that is not zero

    // SQUARING and AWAITING: what psd/sync/norm.h is told, and its link.
    uint64_t number;  // of the round
    struct psd_clip clip;
    double *squares;  // [n_blocks]
    double square;    // their sum, in the order of the blocks
    struct psd_round *next_due;
    bool recorded;  // while it is due: the control task has the sum

    // APPLYING
    struct psd_page **spares;  // [n_blocks] for those that are pinned; NULL: none is needed, or it was
    bool *applied;             // [n_blocks]
    float factor;              // that the mean gradient is clipped by

    // psd/sync/sync.c: while the round is queued for a thread
    struct ps_work work;
    struct psd_job *job;
};

// What a round takes besides the pages' data and their overhead.
enum {
    PSD_ROUND_BYTES_PER_WORKER = sizeof(struct psd_contribution) + sizeof(bool) + sizeof(uint64_t) + sizeof(uint32_t),
    PSD_ROUND_BYTES_PER_GRADIENT_BLOCK = sizeof(struct psd_page *),
    PSD_ROUND_BYTES_PER_BLOCK = 2 * sizeof(struct psd_page *) + sizeof(double) + sizeof(bool),
};

// All workers are members at first. RESOURCE_EXHAUSTED: no memory.
enum ps_code psd_round_create(const struct psd_job *job, struct psd_partition *p, struct psd_round **round,
                              struct ps_error *e);
void psd_round_destroy(struct psd_round *round);  // may be NULL

// ---- gradients ----------------------------------------------------------------------------------------------------

// One block of a worker's gradient, but for its values.
struct psd_gradient {
    uint32_t rank, block;
    uint64_t number, examples;  // number: the round that it is for
    struct psd_request_id id;
};

// May it be added to its round? Outcome STALE (complete or closed already) or QUEUED with PS_OK; FAILED_PRECONDITION:
// not open yet; ABORTED: not a member; ALREADY_EXISTS: this block of its gradient is in, or another one is that came
// from another operation; INVALID_ARGUMENT: more than PS_EXAMPLES_MAX examples, or others than those of its blocks that
// are in; UNAVAILABLE, come again: the round before is complete and not applied yet, or this one still ends its work
// for an earlier run.
enum ps_code psd_round_check(struct psd_round *round, const char *variable, const struct psd_gradient *g,
                             Paramserver__V1__Outcome *outcome, struct ps_error *e);
// A copy of a block's gradient, for psd_round_add: no lock is held, so nobody waits for it. NULL: malloc has nothing
// left. Received buffers are not kept instead, because the transport would have to do without them: gRPC counts them
// against the quota from which it receives everybody's messages, cancels streams when that is used up, and lets
// neighbouring messages share a buffer.
struct psd_page *psd_round_copy(const struct psd_round *round, uint32_t block, const struct ps_slices *payload,
                                size_t offset);
// Adds g, of the job's `run`, and takes its values, *gradient (which becomes NULL), unless the block has the id
// already, or finds it stale (as one of an earlier run, or whose worker is no member any more) or (a second gradient
// that raced past the check) duplicate. A *gradient that is NULL is never fresh. QUEUED: with this block the gradient
// is whole, and counts in the round. STAGED: the block is in; what becomes of the gradient is said with its last block.
// OUTCOME_NONE: there is no room to remember the request.
Paramserver__V1__Outcome psd_round_add(struct psd_round *round, uint64_t run, const struct psd_gradient *g,
                                       struct psd_page **gradient);
// The first round that may still take gradients, now or when the one before it has closed.
uint64_t psd_round_open(struct psd_round *round);
// The greatest round whose gradients and hyperparameters are decided: closed, or only its norm, arithmetic or memory is
// missing.
uint64_t psd_round_decided(struct psd_round *round);

// ---- members ------------------------------------------------------------------------------------------------------

// From now on the view says whom to wait for, unless it is of a run that is over, or a later one has said so: views may
// overtake each other. A departed
// worker's gradient counts if it is in whole, beside those of the members. Where all have departed, who waits for a
// round is made ready.
void psd_round_set_members(struct psd_round *round, const struct psd_view *view, struct psd_call **ready);
// Time passes: is an open round complete by that? Returns when it will be, whoever comes; UINT64_MAX: not by time.
uint64_t psd_round_tick(struct psd_round *round);
// Does the open round wait for this worker's gradient? The round's lock is held.
bool psd_round_misses(const struct psd_round *round, uint32_t rank);
// Starts over for a new run on the old values: round 1, all workers members. Who waits for a round of the old run is
// made ready. A round of the old run that is being applied may have changed some blocks; it changes no more.
void psd_round_reset(struct psd_round *round, struct psd_call **ready);

// The job comes into its rounds again: the next one is closed + 1, of all workers until a view says otherwise.
void psd_round_begin(struct psd_round *round, uint64_t closed);
// The job leaves its rounds: parts of gradients are forgotten, who waits for a round is made ready.
void psd_round_end(struct psd_round *round, struct psd_call **ready);
// Nobody pushes any more: whole gradients in the open round complete it. Is nothing of it under way but parts of
// gradients of workers that are gone?
bool psd_round_settle(struct psd_round *round);

// For each rank, [workers], the last round in which its gradient counts in some partition here and in all of them; that
// of one that has departed counts in the open round as soon as it is whole. 0 where this task has no rounds.
void psd_rounds_counted(struct psd_job *job, uint64_t *counted, uint64_t *counted_in_all);
// The least round that some partition of this task still takes gradients for; 0: it has no rounds.
uint64_t psd_rounds_open(struct psd_job *job);

// ---- arithmetic ---------------------------------------------------------------------------------------------------

// The round's lock is held:
// How many blocks' worth of arithmetic can be done now, 0: nothing can; held: the complete round may not be closed.
size_t psd_round_work(const struct psd_round *round, bool held);
// Takes the whole gradients whose turn it is into the batch. False: there is none.
bool psd_round_take_batch(struct psd_round *round);
// All blocks are applied: opens the next round. Calls that wait for this one are moved to *ready.
void psd_round_close(struct psd_round *round, struct psd_call **ready);
void psd_round_forget(struct psd_round *round);  // all gradients; opens the round again

// The round's lock is not held, but the caller is the busy thread. Each divides its blocks among the workers (NULL:
// none).
void psd_round_fold(struct psd_round *round, struct ps_workers *workers);    // adds the batch to the sum
void psd_round_square(struct psd_round *round, struct ps_workers *workers);  // computes `square`
// Applies the mean, clipped by `factor`, to all blocks to which it has not been applied, as long as the round is in
// this run. A round whose gradients stand for no example at all changes nothing; where they are not zero, a warning
// says so, once per job. False: a reader has pinned a block, and there is no memory for a copy.
bool psd_round_apply(struct psd_job *job, struct psd_round *round, uint64_t run, struct ps_workers *workers);

#endif
