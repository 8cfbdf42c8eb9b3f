// SPDX-License-Identifier: Apache-2.0
//
// The private directory of one run: the sockets of ps tasks and workers, and the cluster file that names them.
#ifndef TOOLS_RUNDIR_H
#define TOOLS_RUNDIR_H

#include "common/base/error.h"

enum { RUNDIR_MAX = 80, RUNDIR_PATH_MAX = RUNDIR_MAX + 32 };  // a socket's path has room for 107 bytes

struct rundir {
    char path[RUNDIR_MAX];
    int n_ps, n_workers;
    int lock;  // on its file "lock", which the kernel lets go of when this process and its guard have ended
};

// Makes it under $XDG_RUNTIME_DIR where that is short enough, else under /tmp, and writes cluster.yaml. Removes first
// what killed runs of the same user left there: directories whose lock nobody holds.
// Workers have sockets where they reach each other, else n_workers is 0.
enum ps_code rundir_create(struct rundir *dir, int n_ps, int n_workers, struct ps_error *e);
void rundir_remove(struct rundir *dir);
// The directory stays, and no later run removes it.
void rundir_keep(struct rundir *dir);

// "unix:/run/user/1000/psctl-Ab12Cd/ps0", in to[RUNDIR_PATH_MAX]; returns to.
char *rundir_address(const struct rundir *dir, int task, char *to);
char *rundir_worker_address(const struct rundir *dir, int rank, char *to);
char *rundir_cluster_file(const struct rundir *dir, char *to);

#endif
