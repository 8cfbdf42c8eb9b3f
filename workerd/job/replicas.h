// SPDX-License-Identifier: Apache-2.0
//
// The replicas of one worker: one, or where the strategy replicates one for each of the job's devices, each on a thread
// of its own. Replica 0 is the caller's thread, and the one that speaks.
//
// Receives from: attempt.c. Hands to: loop, strategy, collective.
#ifndef WK_REPLICAS_H
#define WK_REPLICAS_H

#include "workerd/collective/rpc/peers.h"
#include "workerd/job/loop.h"

// A replica of run's model for run's data, on the job's device or the i-th of its devices.
enum ps_code wk_replica_create(struct wk_run *run, uint32_t i, struct ps_error *e);

// How many it makes.
uint32_t wk_replicas_of_worker(const struct wk_run *run);

// What a training needs beside a run that has its job, model and data.
struct wk_replicas_options {
    struct wk_peers_options peers;  // this worker and the others
    // Replica 0 is made, and has spoken with nobody yet. An error ends the training.
    enum ps_code (*made)(void *arg, struct ps_error *e);
    void (*opened)(void *arg);  // told once replica 0's strategy is open
    // What replica 0 does then: wk_loop, or something else that takes steps. The others do wk_loop.
    enum ps_code (*work)(struct wk_run *run, void *arg, struct ps_error *e);
    void *arg;
};

// Makes the replicas, opens the strategy, trains, and closes it. run->env has this worker's rank and the number of
// workers, and is left with replica 0's. The first error that is not another one's consequence.
enum ps_code wk_replicas_train(struct wk_run *run, const struct wk_replicas_options *o, struct ps_error *e);

#endif
