// SPDX-License-Identifier: Apache-2.0
//
// The jobs of this task, by name. A reference keeps one alive after it has been removed.
//
// A tick looks at those alone that somebody has used since the last one, or whose time has come: whoever drops a
// reference has used the job. So nobody who changes something has to think of a timer, and jobs that stand still cost
// nothing.
//
// Receives from: service. Hands to: job. Threads: any. Functions take the table's lock themselves, but for those of
// which it is said that it is held. It is taken before any job's.
#ifndef PSD_TABLE_H
#define PSD_TABLE_H

#include "common/base/order.h"
#include "psd/job/component.h"
#include "psd/job/host.h"
#include "psd/job/runs.h"

enum {
    PSD_TABLE_BUCKETS = 2 * PSD_MAX_JOBS,  // a power of two
    PSD_TABLE_WORDS = PSD_MAX_JOBS / 64,
};

struct psd_table {
    pthread_mutex_t lock;
    struct psd_host *host;
    struct psd_job *newest, *oldest;
    struct psd_job *buckets[PSD_TABLE_BUCKETS];  // by hash of the name
    uint32_t n;
    struct psd_job *places[PSD_MAX_JOBS];
    uint32_t free_places[PSD_MAX_JOBS];      // [PSD_MAX_JOBS - n]
    struct ps_heap due;                      // of places, by when (ns)
    atomic_ullong touched[PSD_TABLE_WORDS];  // a bit for each place: its job has been used since the last tick
    uint64_t visited;                        // jobs that ticks have looked at: tests count them
    struct psd_waiters joining;              // calls that wait for a job to be opened, or declared
    struct psd_runs runs;
};

// wall_us: as psd_runs_init. The host's runs are the table's from now on. False: no memory.
bool psd_table_init(struct psd_table *table, struct psd_host *host, uint64_t wall_us);
void psd_table_fini(struct psd_table *table);  // frees all jobs: nobody has a reference

// ---- the table's lock is held --------------------------------------------------------------------------------------

struct psd_job *psd_job_lookup(struct psd_table *table, const char *name);  // not referenced, or NULL
void psd_job_install(struct psd_table *table, struct psd_job *job);         // a fresh one; there is room
// Takes a job out, unless somebody has, drops the table's reference and ends the job, for that reason where it has not
// ended; what waits in it is moved to *ready. The caller has another reference.
void psd_job_remove(struct psd_table *table, struct psd_job *job, const char *why, struct psd_call **ready);
// Stops a job that is in the table and takes it out. It is *gone, with a reference, for the caller to forget when the
// lock is free.
void psd_job_take_out(struct psd_table *table, struct psd_job *job, const char *why, struct psd_job **gone,
                      struct psd_call **ready);
// Takes the oldest job out that has ended and never was declared, so that there is nothing to resume: that account's
// (ps_identity_account), or anyone's (NULL). It is *gone, with a reference, for the caller to forget when the lock is
// free. False: there is none.
bool psd_job_drop_void(struct psd_table *table, const char *account, struct psd_job **gone, struct psd_call **ready);
// Room for one job more of who calls (NULL: nobody was asked): where the table is full, or the user has as many as it
// may, one that is void gives way, unless there is a *gone already. RESOURCE_EXHAUSTED: there is none, or the user may
// have no more.
enum ps_code psd_job_make_place(struct psd_table *table, const struct ps_identity *from, struct psd_job **gone,
                                struct psd_call **ready, struct ps_error *e);

// ---- references ----------------------------------------------------------------------------------------------------

struct psd_job *psd_job_find(struct psd_table *table, const char *name);  // referenced, or NULL
void psd_job_ref(struct psd_job *job);
void psd_job_unref(struct psd_job *job);  // may be NULL; no lock is held
void psd_job_touch(struct psd_job *job);  // the next tick looks at it; psd_job_unref does that

// ---- time ----------------------------------------------------------------------------------------------------------

// The jobs that a tick has to look at, each referenced. Returns how many.
uint32_t psd_table_take_due(struct psd_table *table, uint64_t now, struct psd_job *jobs[PSD_MAX_JOBS]);
// One of these has been looked at: drops the reference. due: when it is to be looked at again though nobody uses it.
void psd_table_put_due(struct psd_table *table, struct psd_job *job, uint64_t due);

// All jobs of the moment, or the one of this name; each referenced. NOT_FOUND; RESOURCE_EXHAUSTED.
struct psd_jobs {
    struct psd_job **v;
    size_t n;
};
enum ps_code psd_jobs_hold(struct psd_table *table, const char *name, struct psd_jobs *jobs, struct ps_error *e);
void psd_jobs_release(struct psd_jobs *jobs);

#endif
