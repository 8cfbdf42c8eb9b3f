// SPDX-License-Identifier: Apache-2.0
//
// The processes of one job on this machine: ps tasks, then workers, watched until all have ended.
#ifndef PSCTL_GROUP_H
#define PSCTL_GROUP_H

#include <stdbool.h>

enum { GROUP_MAX = 256 };  // of a kind

// What to start. A ps task writes "READY <port>" to descriptor CHILD_READY_FD when it serves. Each argv ends
// with NULL and begins with the program's path.
struct group_spec {
    char ***ps;       // [n_ps]
    char ***workers;  // [n_workers]
    int n_ps, n_workers;
    int min_workers;     // the job goes on while at least so many have not failed,
    bool ends_together;  // and none has ended by itself with an error, of which the others hear
    bool goes_on;        // from a backup: what a signal ends is started again, so often that it may be an accident
    const char *page;    // host:port of ps task 0's status page, where port 0 is one that is free; NULL: there is none
    const char *notice;  // said when the workers start; NULL: nothing
    // What to type for the weights while the ps tasks serve and a worker does not end; NULL: nothing has them all.
    const char *in_need;
    // Called when all workers have ended by themselves and the ps tasks still serve; NULL: nothing.
    void (*trained)(void *arg);
    void *arg;
};

// Runs the job to its end and returns psctl's exit code:
//   0       at least min_workers workers ended with 0, and every ps task did
//   69      a ps task could not be started or ended before the workers
//   70, 75  too few workers are left, and the first to fail was ended by a signal: 70 where that speaks of a
//   defect
//           (SIGSEGV, SIGABRT, ...), else 75
//   128+n   signal n (SIGINT, SIGTERM, SIGHUP) told psctl to stop
//   else    the code of the first worker that failed
int group_run(const struct group_spec *spec);

#endif
