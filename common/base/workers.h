// SPDX-License-Identifier: Apache-2.0
//
// A few threads that do arithmetic for those who must not wait for it. Work is done in the order in which it came. The
// threads run at a lower priority than those that asked, so they take the processors that are free.
//
// Every function takes NULL for the workers: then, as once they have been stopped, work is done at once by the thread
// that brings it, in order. Threads: any, but for create, stop and free.
#ifndef PS_COMMON_WORKERS_H
#define PS_COMMON_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

struct ps_workers;

// Lies in whatever the work is about. It belongs to the workers until run is called, which may free it.
struct ps_work {
    void (*run)(struct ps_work *work);
    struct ps_work *next;
};

// n threads, 0: one for each processor that this process may use. NULL: there is no memory, or no thread.
struct ps_workers *ps_workers_create(unsigned n);
// Waits for all work that has been brought, and ends the threads.
void ps_workers_stop(struct ps_workers *workers);
void ps_workers_free(struct ps_workers *workers);  // after stop; may be NULL

void ps_workers_run(struct ps_workers *workers, struct ps_work *work);
// Calls fn(arg, i) once for each i below n, on this thread and on those that are free; returns when all calls have.
void ps_workers_for(struct ps_workers *workers, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg);

#endif
