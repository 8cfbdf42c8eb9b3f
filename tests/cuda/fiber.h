// SPDX-License-Identifier: Apache-2.0
//
// The threads of one block, as fibers that switch where they wait. One that never waits costs no switch: the next
// thread begins on the same stack.
#ifndef EMU_FIBER_H
#define EMU_FIBER_H

#include <stddef.h>
#include <stdint.h>

// Calls body(i) for every i below count, in an order that is drawn, until all have ended, none of those left can go
// on, or one gives up. Returns how many have ended.
unsigned emu_fibers_run(unsigned count, void (*body)(unsigned i));

// In a body.
unsigned emu_fiber_index();
void emu_fiber_wait();  // until another one wakes it
void emu_fiber_wake(unsigned i);
[[noreturn]] void emu_fibers_give_up();
bool emu_fiber_stack_has(const void *pointer);  // of the one that runs

// A number below n, drawn from the seed.
uint64_t emu_random(uint64_t n);
void emu_random_seed(uint64_t seed);

#endif
