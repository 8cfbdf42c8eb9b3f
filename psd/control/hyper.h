// SPDX-License-Identifier: Apache-2.0
//
// Hyperparameters of the job's rule that are changed by hand: SetHyper at the control task, PrepareHyper at the others.
//
// async, ssp: COMMIT is sent to every task, which uses the value from then on. sync: all blocks of all tasks change in
// the same round, in two phases, one change at a time:
//
//            all have prepared                 all have it
//   PREPARE ------------------------> COMMIT -------------> done: the caller is answered
//      | \--one has closed the round, refuses, or is silent--> FORGET --all have forgotten--> again, further ahead,
//      |                                                                                     or done: it has failed
//      +-- a task that has prepared does not close the round, and those after it, until it hears what became of it
//
// A task that is silent for 2 s in a phase keeps no caller waiting: they are told UNAVAILABLE. A change that has come
// to COMMIT is made all the same, and an earlier one must be heard before there is another.
//
// The last word counts: from its round on, also where something was said before for a later one.
//
// Messages may be lost, late, repeated or overtake each other: what was not acknowledged is sent again, and a change
// whose number is decided at a task is not decided once more. In the log a held round has a name after 5 s.
//
// A job that is resumed keeps what was committed, from its first round on.
//
// Receives from: service. Hands to: the changes of psd/job/job.h, the rounds, the other tasks. Threads: any; guarded by
// the job's lock, but for the changes themselves and `held`.
#ifndef PSD_HYPER_H
#define PSD_HYPER_H

#include "psd/job/job.h"

struct psd_core;
struct psd_hyper_change;

size_t psd_hyper_change_bytes(const struct psd_job *job, uint32_t task);
enum ps_code psd_hyper_change_create(struct psd_job *job, uint32_t task, struct ps_error *e);
void psd_hyper_change_free(struct psd_hyper_change *tuning);  // may be NULL
// For a new run; who has waited in an earlier one asks again in this.
void psd_hyper_change_resume(struct psd_job *job, struct psd_call **ready);

// Goes on with a change that the control task makes, logs rounds that are held for long.
void psd_hyper_change_tick(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready);
// The SetHyper calls that are parked, if there are any: look may take them, or some, out of the list. Where it returns
// true, what and whom (size bytes each) say what they wait for. Returns what look did.
bool psd_hyper_change_walk(struct psd_job *job, bool (*look)(struct psd_waiters *list, void *arg), void *arg,
                           char *what, char *whom, size_t size);

#endif
