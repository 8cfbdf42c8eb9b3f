// SPDX-License-Identifier: Apache-2.0
//
// Clipping by norm in a sync job. A partition whose round is complete has a sum of squares of its mean gradient; the
// norm needs those of all partitions of its variable, or of the model. They meet at the control task, where they are
// added in the order of the partitions: the same bits whoever owns them.
//
//   round AWAITING --> due --SumSquares--> control task: parked until the group's sums are in --> totals --> applied
//                       ^______________________| it failed, or was lost: sent again at the next tick
//
// The rounds of the control task itself stay due until their total is known. A sum that comes again changes nothing.
// Two rounds are remembered for each partition: one cannot be two rounds ahead of another that still waits for it.
//
// Receives from: round, service. Hands to: round, the other tasks. Threads: any. The lock of psd_norm is a leaf.
#ifndef PSD_NORMS_H
#define PSD_NORMS_H

#include "psd/job/job.h"

struct psd_core;
struct psd_norm;

// What the control task needs besides: counted before, taken by create. job->norms stays NULL where there are no rounds.
size_t psd_norm_bytes(const struct psd_job *job, uint32_t task);
enum ps_code psd_norm_create(struct psd_job *job, uint32_t task, struct ps_error *e);
void psd_norm_free(struct psd_norm *norms);  // may be NULL
void psd_norm_reset(struct psd_job *job);    // for a new run; its rounds have been reset

// The round begins to wait for its norm; its lock is held. Goes no further: psd_norm_send does, with no lock held. (It
// does nothing where nothing is due.)
void psd_norm_await(struct psd_job *job, struct psd_round *round);
void psd_norm_send(struct psd_core *core, struct psd_job *job, struct psd_call **ready);

// The SumSquares calls that are parked, as in psd_agree_walk. What was lost is sent again by psd_norm_send: call it at
// every tick.
bool psd_norm_walk(struct psd_job *job, bool (*look)(struct psd_waiters *list, void *arg), void *arg, char *what,
                   char *whom, size_t size);

#endif
