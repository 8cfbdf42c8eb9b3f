// SPDX-License-Identifier: Apache-2.0
//
// The process that jobs are in, as far as they need it: its time, its memory, its peers, and what runs the calls that
// became ready.
//
// Receives from: service, which makes it. Threads: any; constant, but for what is atomic, or has a lock of its own.
#ifndef PSD_HOST_H
#define PSD_HOST_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/error.h"
#include "common/base/workers.h"
#include "common/wire/slice.h"

struct psd_call;
struct psd_component;
struct psd_pool;
struct psd_runs;
struct psd_users;

struct psd_host {
    uint32_t task, tasks;
    uint32_t dead_after_ms;
    atomic_ullong slept;         // ns, in all, for which this process did not run, as its ticks found
    atomic_ullong ticked_at;     // ns: the time, to a tick
    atomic_ullong *touched;      // [PSD_MAX_JOBS / 64] psd/job/table.h
    atomic_uint *asking;         // psd/sync/norm.c: messages of all jobs that ask the control task for norms
    struct ps_workers *workers;  // NULL: who makes work possible does it
    struct psd_pool *pool;
    struct psd_runs *runs;
    struct psd_users *users;
    const struct psd_component *const *components;  // what each job consists of, the highest first; ends with NULL
    pthread_mutex_t cancelling;                     // taken before any other; while it is held no job is freed

    void *world;
    uint64_t (*now)(void *world);  // ns, monotonic
    // As psd_world.send.
    void (*send)(void *world, uint32_t task, int method, struct ps_slices *request,
                 void (*done)(void *arg, enum ps_code code, const struct ps_slices *reply), void *arg);
    void *core;
    void (*run_ready)(void *core, struct psd_call *ready);  // no lock is held
};

static inline uint64_t psd_host_now(const struct psd_host *host)
{
    return host->now(host->world);
}

static inline void psd_host_run_ready(const struct psd_host *host, struct psd_call *ready)
{
    host->run_ready(host->core, ready);
}

#endif
