// SPDX-License-Identifier: Apache-2.0
//
// The jobs of a cluster, each summed over the ps tasks that answered.
#ifndef PSCTL_JOBS_H
#define PSCTL_JOBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/paramserver.pb-c.h"
#include "tools/psctl/cluster.h"

// Strings belong to the answers.
struct job_sum {
    const char *name, *user, *state, *reason;
    uint64_t run;
    int update;
    const Paramserver__V1__JobStatus
        *control;    // as the control task sees it; NULL: it did not answer, or has no such job
    uint64_t steps;  // the most that any task has applied
    uint64_t partitions, bytes, updates, waiting, duplicates, stale, nonfinite, dedup_bytes, bytes_moved;
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
// What the job's chief has said. NULL: nothing, or the control task does not answer.
const Paramserver__V1__Progress *jobs_progress(const struct job_sum *job);
// NULL: the control task alone knows, and has not said.
json_t *jobs_live_workers(const struct job_sum *job);
json_t *jobs_all_workers(const struct job_sum *job);  // that it was opened for
json_t *jobs_min_workers(const struct job_sum *job);  // that it needs to go on
// How much of the epoch is trained, 0 to 1; NULL: not said, as the next ones.
json_t *jobs_epoch_done(const struct job_sum *job);

json_t *jobs_epoch(const struct job_sum *job);                    // that it is in, from 0
json_t *jobs_epochs(const struct job_sum *job);                   // that it trains in all
json_t *jobs_age(const struct job_sum *job);                      // ms
json_t *jobs_time_left(const struct job_sum *job);                // ms
json_t *jobs_checkpoint(const struct job_sum *job);               // the newest one's step
json_t *jobs_checkpoint_age(const struct job_sum *job);           // ms
json_t *jobs_speed(const struct job_sum *job);                    // examples per second
json_t *jobs_metrics(const Paramserver__V1__Progress *progress);  // an object

// report, but where no task has the job says so once, with those there are.
int jobs_report_error(struct cluster *c, const char *job, const struct ps_error *e);
// cluster_report, likewise.
int jobs_report_answers(struct cluster *c, const struct answer *answers, const char *job);
// Is the job there? psc_attach would wait for one that is not. Returns the exit code.
int jobs_ask_for(struct cluster *c, const char *job);
// The control task's word on the job, as JobStatus.state; "": it is not known. to[size]
void jobs_state(struct cluster *c, const char *job, char *to, size_t size);

// Names on stderr every task that did not answer, or else that the job `only` is not there. Returns the exit code.
int jobs_report(struct cluster *c, const struct answer *answers, const struct jobs *jobs, const char *only);

// Shows what tasks (answers are StatusReply) and jobs are. only: of one job; NULL: all.
typedef void (*jobs_show_fn)(struct cluster *c, const struct answer *answers, const struct jobs *jobs, const char *only,
                             bool json);
// Asks every task for its status, shows it and reports. Returns the exit code.
int jobs_show(struct cluster *c, struct call *call, jobs_show_fn show);

#endif
