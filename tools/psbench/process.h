// SPDX-License-Identifier: Apache-2.0
//
// Processes that psbench starts: none outlives it, however it ends. What they have used of the processor and of memory.
#ifndef PSBENCH_PROCESS_H
#define PSBENCH_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"

// As fork; in the child (0) the kernel kills it when psbench ends, and signals do what they do by default. psbench has
// one thread, so that the child may do anything.
pid_t process_fork(void);

// In a child: into the network namespace of that name (of ip-netns); NULL: stays.
enum ps_code process_enter(const char *netns, struct ps_error *e);

// SIGTERM, and SIGKILL where it has not ended after some seconds. Returns when it has ended.
void process_end(pid_t pid);

// Processor time in ns since its start, of all its threads; 0: it is gone.
uint64_t process_cpu(pid_t pid);
// Its peak of resident memory in bytes; 0: it is gone.
uint64_t process_rss(pid_t pid);

#endif
