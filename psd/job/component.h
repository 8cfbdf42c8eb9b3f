// SPDX-License-Identifier: Apache-2.0
//
// What a job consists of besides its blocks: the process names its components once, in a table, and this room goes
// through that table wherever all of them are meant. So it knows nobody above it.
//
//     component     room      what it keeps of a job
//     control       control   members, collectives, leases, clocks, the view
//     agree         control   a change that takes effect in one round on all tasks
//     sync          sync      rounds, norms
//     staging       job       atomic updates that are not complete
//     clients       job       who has changed something
//     trace         job       what its calls have waited for
//     watch         control   whether the control task still knows it
//
// Receives from: service, control, sync. Hands to: the components. Threads: any; no lock is held but where it says so.
#ifndef PSD_COMPONENT_H
#define PSD_COMPONENT_H

#include "psd/job/job.h"

// How somebody looks at the calls that wait in a job, list by list.
struct psd_look {
    // One list, whose lock is held. True: report what these calls wait for, and for whom.
    bool (*look)(struct psd_waiters *list, void *arg);
    // May be NULL. No lock is held. whom: "" or names.
    void (*report)(struct psd_job *job, const char *what, const char *whom, void *arg);
    void *arg;
    uint64_t before;  // ns: only lists with a call whose deadline has passed by then are wanted; 0: all
};

// Every function may be NULL.
struct psd_component {
    const char *name;
    // ---- the declaration ----
    // Adds what it needs on this task: that is taken from the pool at once. False: more than can be counted.
    bool (*bytes)(const struct psd_job *job, uint32_t task, size_t *bytes);
    enum ps_code (*create)(struct psd_job *job, uint32_t task, struct ps_error *e);  // the blocks are there
    void (*destroy)(struct psd_job *job);  // what create has made, perhaps a part of it, or nothing
    // ---- the job's life ----
    void (*begin_run)(struct psd_job *job, struct psd_call **ready);  // a new run on the old values
    // Time passes. Returns when it wants the next tick though nobody uses the job meanwhile (ns): `now` for the next
    // one that there is, UINT64_MAX for none. Where calls wait beyond their deadline, which it leaves alone, that is in
    // it.
    uint64_t (*tick)(struct psd_job *job, uint64_t now, struct psd_call **ready);
    void (*walk)(struct psd_job *job, const struct psd_look *look);  // over all lists of calls that wait here
    void (*free)(struct psd_job *job);                               // what is left, when nobody has the job any more
    // ---- questions ----
    bool (*is_over)(const struct psd_job *job);                                         // job locked
    void (*name_worker)(struct psd_job *job, uint32_t rank, char *text, size_t size);   // appends; job locked
    void (*name_holder)(struct psd_job *job, uint64_t round, char *text, size_t size);  // who keeps it open; "": nobody
};

bool psd_components_bytes(const struct psd_job *job, uint32_t task, size_t *bytes);
enum ps_code psd_components_create(struct psd_job *job, uint32_t task, struct ps_error *e);
void psd_components_destroy(struct psd_job *job);
void psd_components_free(struct psd_job *job);

// From the lowest up: what a round was applied with is forgotten after the round.
void psd_job_begin_run(struct psd_job *job, struct psd_call **ready);
uint64_t psd_job_tick(struct psd_job *job, uint64_t now, struct psd_call **ready);  // the earliest that one returns
void psd_job_walk(struct psd_job *job, const struct psd_look *look);
void psd_job_collect(struct psd_job *job, struct psd_call **ready);  // everything that waits in it
bool psd_job_is_over(const struct psd_job *job);                     // it has failed, or all have left; job locked
void psd_job_name_worker(struct psd_job *job, uint32_t rank, char *text, size_t size);
void psd_job_name_holder(struct psd_job *job, uint64_t round, char *text, size_t size);

static inline void psd_look_report(const struct psd_look *l, struct psd_job *job, const char *what, const char *whom)
{
    if (l->report)
        l->report(job, what, whom, l->arg);
}

#endif
