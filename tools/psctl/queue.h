// SPDX-License-Identifier: Apache-2.0
//
// Jobs that wait for workers, at ps task 0.
#ifndef PSCTL_QUEUE_H
#define PSCTL_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/paramserver.pb-c.h"
#include "tools/psctl/cluster.h"

// The jobs of the queue, as a table below others; only those that have not ended. Nothing where there are none, or no
// queue.
void queue_show_open(struct cluster *c);

// "number 3 of the queue, job kw, is queued: psctl queue shows it". False: the queue has no job of that number or name,
// or there is no queue. to[size]
bool queue_place(struct cluster *c, const char *what, char *to, size_t size);

// Shows what the job's workers have written, and with follow goes on until it ends, however long that takes. what: a
// number or a name. Returns the exit code: of a job that has ended its own, with follow.
int queue_show_output(struct cluster *c, const char *what, bool follow);

// Each job that runs, or is the latest of its name that has ended. complaint: of one that runs or has failed the last
// error that its workers wrote, else the last warning; empty: there is none. now_ms: by ps task 0's clock.
typedef void (*queue_examine_fn)(const Paramserver__V1__QueuedJob *job, uint64_t now_ms, const char *complaint,
                                 void *arg);
void queue_examine(struct cluster *c, queue_examine_fn examine, void *arg);

#endif
