// SPDX-License-Identifier: Apache-2.0
//
// A simulated worker: joins, declares or attaches, then pulls and pushes step by step through the real libclient, all
// by callbacks. Its gradients are given, so that the outcome is known beforehand.
#ifndef SIM_WORKER_H
#define SIM_WORKER_H

#include "libclient/client.h"
#include "tests/sim/sim.h"

enum { SIM_MAX_VARIABLES = 4 };

struct sim_job {
    const char *name;
    psc_update update;
    uint32_t workers, min_workers;
    uint64_t steps;
    psc_declaration declaration;
    // The gradient of variable v that this worker pushes in a step; count elements.
    void (*gradient)(uint32_t rank, uint64_t step, size_t v, float *g, uint64_t count);
};

struct sim_worker {
    struct sim *sim;
    const struct sim_job *job;
    uint32_t rank;
    struct psc_world world;
    struct psc_client *client;
    uint64_t step;
    int pending;  // operations of this step under way
    psc_tensor weights[SIM_MAX_VARIABLES], gradients[SIM_MAX_VARIABLES];
    bool done;              // has left, or failed, or was killed
    struct ps_error error;  // why it failed
    uint64_t applied, queued, stale, duplicates, staleness;
    bool (*before_push)(struct sim_worker *w);  // may be NULL; false: the worker dies here
};

void sim_worker_start(struct sim_worker *w, struct sim *sim, const struct sim_job *job, uint32_t rank);
void sim_worker_kill(struct sim_worker *w);
void sim_worker_free(struct sim_worker *w);

#endif
