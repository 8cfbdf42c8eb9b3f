// SPDX-License-Identifier: Apache-2.0
//
// A load: worker processes that make calls, and the measurement over them. A worker counts its calls in memory that it
// shares with psbench, which says when the counting begins and ends; calls go on before and after that, so that no
// worker is measured alone.
#ifndef PSBENCH_LOAD_H
#define PSBENCH_LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "tools/psbench/case.h"

// When calls count, in ns of ps_now. 0: not known yet.
struct load_time {
    _Atomic uint64_t begin, end;
    atomic_bool over;  // psbench has looked at everybody's memory
};

// What one worker has done; in shared memory, written by that worker alone.
struct load_meter {
    struct load_time *time;
    pthread_mutex_t lock;   // among the worker's threads
    int news;               // pipe to psbench
    uint64_t calls;         // that ended while they count
    uint64_t before, last;  // when the last call before those ended, and the last of them
    struct histogram latency;
    struct ps_error error;
};

// In a worker. Everything is set up, the first call is about to be made.
void load_ready(struct load_meter *m);
// That many calls that were begun at *started (ns) have ended; it becomes now, when the next are begun. False: it is
// enough, make no more.
bool load_count(struct load_meter *m, uint64_t *started, uint64_t calls);
// Calls have ended. Returns when everyone's have and the worker may take things down.
void load_done(struct load_meter *m);

// What a worker does: load_ready, calls as long as load_count says so, load_done. Runs in a process of its own.
typedef enum ps_code (*load_work_fn)(const void *arg, int rank, struct load_meter *m, struct ps_error *e);

struct load_how {
    load_work_fn work;
    const void *arg;
    const pid_t *servers;  // [n_servers] whose use of the processor is the server's
    size_t n_servers;
    double seconds;  // measured, after a quarter of them
};

// Runs how->work in c->workers processes and measures it. Fills *sample and adds to c->latency. Errors: a worker's,
// with its rank; CANCELLED where a signal asks psbench to end.
enum ps_code load_run(struct bench_case *c, const struct load_how *how, struct bench_sample *sample,
                      struct ps_error *e);

#endif
