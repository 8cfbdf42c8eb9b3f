// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_THREAD_H
#define PS_COMMON_THREAD_H

#include <signal.h>

#include "common/base/error.h"

// This thread waits most of the time, and others wait for it: when it wakes, it is to run at once, also where other
// threads compute on all processors. Its share of them stays the same, but it asks for it in short slices: a thread
// preempts one whose slice is longer (EEVDF, Linux 6.12; sched_setattr(2)). Older kernels let it wait for up to the end
// of a slice of some milliseconds.
void ps_thread_ask_short_slices(void);

// This thread, and those that it starts from now on, take no signal that is sent to the process, but those that one
// brings upon itself, and SIGPROF, by which a profiler looks at each. *before, if not NULL: what it blocked until then.
void ps_thread_block_signals(sigset_t *before);

// RESOURCE_EXHAUSTED, "no thread for ...": error, of pthread_create, says why.
enum ps_code ps_no_thread(struct ps_error *e, const char *what, int error);

// Processors that this process may use.
unsigned ps_thread_processors(void);

#endif
