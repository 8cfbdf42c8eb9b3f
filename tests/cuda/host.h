// SPDX-License-Identifier: Apache-2.0
//
// The host's threads as actors: each has a clock of its own. They learn of each other where they are ordered: by
// mutexes, with condition variables or without, by barriers, and where one creates or joins another. Those functions
// of pthreads are intercepted in programs that link with the emulator; atomic operations of watched code count, too.
#ifndef EMU_HOST_H
#define EMU_HOST_H

#include "tests/cuda/task.h"

// Of the calling thread. The emulator's lock is held.
uint32_t emu_host_task();                      // what it does now
void emu_host_calls(emu_place at);             // its next task begins: after a call at this place
void emu_host_learns(const emu_clock &clock);  // it has waited for what this clock says
const emu_clock &emu_host_clock();

// Through this object it tells others what it knows, or learns what they told. Without the lock.
void emu_host_release(const volatile void *object);
void emu_host_acquire(const volatile void *object);

void emu_hosts_reset();

#endif
