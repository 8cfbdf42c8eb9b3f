// SPDX-License-Identifier: Apache-2.0
//
// An all-reduce over a ring of processes, as the strategy multi_worker_mirrored makes it: one call after the other.
#ifndef PSBENCH_ALLREDUCE_H
#define PSBENCH_ALLREDUCE_H

#include "tools/common/rundir.h"
#include "tools/psbench/load.h"

// Where the workers are.
struct allreduce_places {
    struct rundir dir;  // of unix sockets
    bool has_dir;
    char address[BENCH_RING_WORKERS_MAX][RUNDIR_PATH_MAX];
    long n;
};

enum ps_code allreduce_open(struct allreduce_places *p, const struct bench_case *c, const char *host,
                            struct ps_error *e);
void allreduce_close(struct allreduce_places *p);

struct allreduce_work {
    const struct bench_case *c;
    const struct allreduce_places *places;
    const char *tls;  // folder of certificates; NULL: none
};
// For load_run; arg is a struct allreduce_work.
enum ps_code allreduce_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e);

// Every worker has counted the same calls.
void allreduce_sum_up(const struct bench_case *c, struct bench_sample *sample);

#endif
