// SPDX-License-Identifier: Apache-2.0
//
// What a worker tells of its training while it lasts, over all runs of the job that it takes part in. A run's metrics
// of NULL are those that nobody wants: all functions take it and do nothing.
//
// Receives from: main, attempt.c, the step loop. Hands to: workerd/http. Threads: the replicas' write, any reads; what
// is said in each step is atomic, what is said less often is guarded by the lock.
#ifndef WK_JOB_METRICS_H
#define WK_JOB_METRICS_H

#include <pthread.h>
#include <stdatomic.h>

#include "workerd/job/figures.h"
#include "workerd/strategy/waits.h"

struct wk_metrics {
    uint64_t started;            // ns, ps_now()
    atomic_bool trains;          // the training has begun, and nobody has begun it anew since
    atomic_uint_least64_t runs;  // of the job, this one too
    // Replica 0's.
    atomic_uint_least64_t steps, step, epoch;  // steps trained; one past the last, as the strategy counts; from 1
    atomic_uint_least64_t trained_ns;          // as run->train_seconds
    _Atomic double loss;                       // the mean of its last batch that was not empty
    struct wk_waits waits;
    // All replicas'.
    atomic_uint_least64_t examples;

    pthread_mutex_t lock;  // guards what follows
    char *job;             // NULL: not known yet
    char *strategy;
    uint32_t rank;
    struct wk_figures figures;  // of the last epoch
};

void wk_metrics_init(struct wk_metrics *m);
void wk_metrics_fini(struct wk_metrics *m);

// A run of the job begins: which one it is, and this worker's rank.
void wk_metrics_begin(struct wk_metrics *m, const char *job, const char *strategy, uint32_t rank);
// The strategy is open: steps follow.
void wk_metrics_trains(struct wk_metrics *m);
// An epoch, from 0, has begun;
void wk_metrics_begin_epoch(struct wk_metrics *m, uint64_t epoch);
// and ended, with these figures.
void wk_metrics_end_epoch(struct wk_metrics *m, const struct wk_figures *figures);

// A step of replica 0, or of another one of this worker (device).
struct wk_metrics_step {
    uint32_t device;
    uint64_t step, ns;  // one past it; how long it took, what is waited for too
    int rows;
    double loss;  // summed over the rows
};
void wk_metrics_step(struct wk_metrics *m, const struct wk_metrics_step *step);
// What device has waited for besides: the end of an epoch.
void wk_metrics_time(struct wk_metrics *m, uint32_t device, uint64_t ns);

#endif
