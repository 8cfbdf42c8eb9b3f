// SPDX-License-Identifier: Apache-2.0
//
// The jobs of a cluster, each summed over the ps tasks that answered.
#ifndef PSCTL_JOBS_H
#define PSCTL_JOBS_H

#include <stdint.h>

#include "tools/psctl/cluster.h"

// Strings belong to the answers.
struct job_sum {
    const char *name, *run_id, *state, *reason;
    int update;
    uint32_t live_workers;
    uint64_t partitions, bytes, updates, waiting, duplicates, stale;
    uint64_t round;  // the least of those that tasks have closed
    double updates_per_second, bytes_per_second;
};

struct jobs {
    struct job_sum *v;
    size_t n;
};

// Asks every task for its status; *answers are StatusReply.
void jobs_ask(struct cluster *c, struct answer **answers, struct jobs *jobs);
void jobs_fini(struct jobs *jobs);

// NOT_FOUND names the jobs there are.
const struct job_sum *jobs_find(const struct jobs *jobs, const char *name, struct ps_error *e);

#endif
