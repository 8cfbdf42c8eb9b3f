// SPDX-License-Identifier: Apache-2.0
//
// The jobs of a cluster, each summed over the ps tasks that answered.
#ifndef PSCTL_JOBS_H
#define PSCTL_JOBS_H

#include <stdbool.h>
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

// Shows what tasks (answers are StatusReply) and jobs are. only: of one job; NULL: all.
typedef void (*jobs_show_fn)(struct cluster *c, const struct answer *answers, const struct jobs *jobs, const char *only,
                             bool json);
// Asks every task for its status and shows it. Returns the exit code: that of a task which did not answer, or of a job
// which nobody knows.
int jobs_show(struct cluster *c, struct call *call, jobs_show_fn show);

#endif
