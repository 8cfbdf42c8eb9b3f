// SPDX-License-Identifier: Apache-2.0
//
// The sums of squares from which the norms come that gradients are clipped by in a sync job: a table, which decides
// nothing else. A partition whose round is complete has the sum of squares of its mean gradient; the norm needs those
// of all partitions of its variable, or of the model: its group. They meet at the control task, where they are added in
// the order of the partitions: the same bits whoever owns them.
//
// A sum that comes again changes nothing. Two rounds are remembered for each partition: one cannot be two rounds ahead
// of another that still waits for it.
//
// Besides, on every task: the rounds that wait for their norm and are not on their way to the control task (due); and
// on the others, how many messages are under way to it. One that asks is parked there until a total is known, and those
// of a job, and of all jobs, are few: what becomes due beyond them is told by messages that are answered at once, one
// at a time, and is asked for when one that asks has been answered, or told again at the next tick.
//
// Receives from: sync, service. Hands to: nobody. Threads: any. The lock of psd_norm is a leaf; its functions take it
// unless they say otherwise.
#ifndef PSD_NORM_H
#define PSD_NORM_H

#include "psd/job/component.h"

struct psd_round;

// One partition's sum.
struct psd_norm_sum {
    uint64_t round;
    double value;
};

// The partitions whose sums are added up.
struct psd_norm_group {
    uint64_t round;
    uint32_t in;  // how many sums of this round are there
    double total;
};

struct psd_norm {
    pthread_mutex_t lock;
    uint64_t run;           // the job's, to which all of this belongs: what was sent in an earlier one is void
    struct psd_round *due;  // linked by next_due

    // Not at the control task: messages of this run that are under way.
    uint32_t asking;
    bool telling;

    // At the control task; of round r in [r % 2].
    struct psd_norm_sum (*sums)[2];      // [n_partitions]
    struct psd_norm_group (*groups)[2];  // [n_variables + 1]: each variable, then the model
    uint32_t in_model;                   // partitions that count in the norm of the model
    struct psd_waiters waiting;          // SumSquares calls, until their totals are known
};

// What the rounds of a task need besides, counted before, taken by create. Who uses job->norms has seen that the job is
// in rounds.
size_t psd_norm_bytes(const struct psd_job *job, uint32_t task);
enum ps_code psd_norm_create(struct psd_job *job, uint32_t task, struct ps_error *e);
void psd_norm_destroy(struct psd_job *job);
// For a new run; its rounds have been reset. SumSquares calls that wait are moved to *ready. A job that has no norms is
// left as it is.
void psd_norm_reset(struct psd_job *job, struct psd_call **ready);

// ---- sums, at the control task; the lock is held ------------------------------------------------------------------

// True: it was the last of its group.
bool psd_norm_record(struct psd_job *job, uint32_t partition, bool of_model, uint64_t round, double value);
// The total of a partition's group. False: it is not known yet.
bool psd_norm_total(const struct psd_job *job, uint32_t partition, bool of_model, uint64_t round, double *total);
// Has the partition begun a round so much later that this one is forgotten?
bool psd_norm_is_past(const struct psd_job *job, uint32_t partition, uint64_t round);

// ---- rounds that are due ------------------------------------------------------------------------------------------

void psd_norm_make_due(struct psd_job *job, struct psd_round *round);  // the round's lock may be held
// Is any due, and, not at the control task, may a message be sent for it now?
bool psd_norm_is_due(struct psd_job *job);
// What a message is for: rounds of one number.
enum { PSD_NORM_PER_MESSAGE = 1024 };
struct psd_norm_message {
    uint64_t run, round;
    bool at_once;  // it tells the sums; otherwise it asks for the totals, too
    uint32_t n;
    struct psd_round *rounds[PSD_NORM_PER_MESSAGE];
};
// Takes rounds out that are due, for the next message. False: none may be sent now, nothing was taken. The message has
// to end.
bool psd_norm_begin_message(struct psd_job *job, struct psd_norm_message *m);
// Puts back the rounds that are left in m, whose sums the control task has recorded or not, unless they are of an
// earlier run: those are void.
void psd_norm_end_message(struct psd_job *job, const struct psd_norm_message *m, bool recorded);
// Time has passed: what is recorded and not asked for is told again.
void psd_norm_tell_again(struct psd_job *job);
// Takes a round out whose total is known. NULL: there is none.
struct psd_round *psd_norm_take_known(struct psd_job *job, uint64_t *number, double *total);
// At the control task: records the sums of what is due here. SumSquares calls that this answers are moved to *ready.
void psd_norm_record_due(struct psd_job *job, struct psd_call **ready);
bool psd_norm_is_of_run(struct psd_job *job, uint64_t run);

void psd_norm_walk(struct psd_job *job, const struct psd_look *look);  // over the SumSquares calls that are parked

#endif
