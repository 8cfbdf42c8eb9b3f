// SPDX-License-Identifier: Apache-2.0
//
// The jobs of a cluster, each summed over the ps tasks that answered.
#ifndef PSCTL_JOBS_H
#define PSCTL_JOBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/psctl/cluster.h"

// Strings belong to the answers.
struct job_sum {
    const char *name, *run_id, *state, *reason;
    int update;
    uint32_t live_workers;
    uint64_t partitions, bytes, updates, waiting, duplicates, stale, nonfinite, marks_bytes;
    uint64_t staleness;                            // the greatest that any task has met
    uint64_t data_epoch, examples, examples_done;  // the control task's
    uint64_t round;                                // the least of those that tasks have closed
    double updates_per_second, bytes_per_second;
};

struct jobs {
    struct job_sum *v;
    size_t n;
};

// Asks every task for its status and sums it up. jobs->v is malloc'd and points into the answers.
void jobs_ask(struct cluster *c, struct answer **answers, struct jobs *jobs);
// NOT_FOUND names those there are.
enum ps_code jobs_find(const struct jobs *jobs, const char *name, struct ps_error *e);
// How much of the epoch is trained, 0 to 1; NULL: not said.
json_t *jobs_epoch_done(const struct job_sum *job);
const char *jobs_update_name(int update);

// Shows what tasks (answers are StatusReply) and jobs are. only: of one job; NULL: all.
typedef void (*jobs_show_fn)(struct cluster *c, const struct answer *answers, const struct jobs *jobs, const char *only,
                             bool json);
// Asks every task for its status and shows it. Returns the exit code: that of a task which did not answer, or of a job
// which nobody knows.
int jobs_show(struct cluster *c, struct call *call, jobs_show_fn show);

#endif
