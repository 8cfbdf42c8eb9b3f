// SPDX-License-Identifier: Apache-2.0
//
// The values of a job's hyperparameters: what was declared, and above it what was changed by hand since.
//
// Receives from: step, sync, control, declaration.c, service. Hands to: nobody. Threads: any; the job's snapshot lock
// is held shared, but where it is said.
#ifndef PSD_JOB_HYPER_H
#define PSD_JOB_HYPER_H

#include "psd/job/job.h"

// Clipping by norm, which is the worker's where there are no rounds.
struct psd_clip {
    enum { PSD_CLIP_NONE, PSD_CLIP_VARIABLE, PSD_CLIP_MODEL } by;  // whose norm
    double limit;
};

// The index of a hyperparameter of the rule, -1: it has none of that name.
int psd_hyper_find(const struct ps_rule *rule, const char *name);
// A hyperparameter of the job's rule, but for the schedule. round: the one that is being applied; 0: none.
double psd_hyper_of_job(const struct psd_job *job, int hyper, uint64_t round);
struct psd_clip psd_clip_at(const struct psd_job *job, const struct psd_variable *v, uint64_t round);
// May the variable's gradient ever count in the norm of the model? If one clips by that, it does.
bool psd_clips_with_model(const struct psd_variable *v);

// ---- changes by hand: the snapshot lock is not held, each takes it ------------------------------------------------

// Makes room for one more change. No partition here needs what held before round `least`; UINT64_MAX: this task has no
// rounds. False: there is no room.
bool psd_hyper_reserve(struct psd_job *job, uint64_t least);
// From its round on the value holds. There is room for it.
void psd_hyper_change(struct psd_job *job, const struct psd_change *change);
// The job leaves its rounds, or the run that they were of; `closed` is the last: what would hold in the next one holds
// from now on, and so does what was to hold as soon as possible. What was named for a later round is kept for the round
// of that number.
void psd_hyper_leave_rounds(struct psd_job *job, uint64_t closed);

static inline bool psd_hyper_is_own(const struct psd_variable *v, int hyper)  // of the variable, not the job's
{
    return v->own >> hyper & 1;
}

#endif
