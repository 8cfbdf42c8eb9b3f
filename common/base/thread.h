// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_THREAD_H
#define PS_COMMON_THREAD_H

// This thread waits most of the time, and others wait for it: when it wakes, it is to run at once, also where other
// threads compute on all processors. Its share of them stays the same, but it asks for it in short slices: a thread
// preempts one whose slice is longer (EEVDF, Linux 6.12; sched_setattr(2)). Older kernels let it wait for up to the end
// of a slice of some milliseconds.
void ps_thread_ask_short_slices(void);

// Processors that this process may use.
unsigned ps_thread_processors(void);

#endif
