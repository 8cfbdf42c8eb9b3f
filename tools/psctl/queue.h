// SPDX-License-Identifier: Apache-2.0
//
// Jobs that wait for workers, at ps task 0.
#ifndef PSCTL_QUEUE_H
#define PSCTL_QUEUE_H

#include <stdbool.h>

#include "tools/psctl/cluster.h"

// The jobs of the queue, as a table below others; only those that have not ended. Nothing where there are none, or no
// queue.
void queue_show_open(struct cluster *c);

// Shows what the job's workers have written, and with follow goes on until it ends, however long that takes. what: a
// number or a name. Returns the exit code: of a job that has ended its own, with follow.
int queue_show_output(struct cluster *c, const char *what, bool follow);

#endif
