// SPDX-License-Identifier: Apache-2.0
//
// Who ends psctl run's children where psctl itself cannot: a process that does nothing but hold a pipe from psctl.
// While psctl lives it is told which process groups run; when the pipe ends, psctl is gone, however that came, and what
// then still runs is ended.
#ifndef PSCTL_GUARD_H
#define PSCTL_GUARD_H

#include <sys/types.h>

struct guard {
    int fd;  // -1: there is none
    pid_t pid;
};

// Forks, so call it before there is a thread. Without one, psctl works as well, but for its own death.
void guard_start(struct guard *g);
void guard_add(struct guard *g, pid_t group);
void guard_remove(struct guard *g, pid_t group);
// The children have ended.
void guard_end(struct guard *g);

#endif
