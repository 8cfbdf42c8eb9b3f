// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/allreduce.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/tls/tls.h"
#include "tools/psbench/endpoint.h"
#include "workerd/collective/collective.h"

// ---- where the workers are ----------------------------------------------------------------------------------------

// A port that was free a moment ago.
static enum ps_code allreduce_find_port(const char *host, char *address, struct ps_error *e)
{
    int fd = -1;
    snprintf(address, RUNDIR_PATH_MAX, "%s:0", host);
    endpoint_listen(address, &fd, e);
    if (fd >= 0)
        close(fd);
    return e->code;
}

enum ps_code allreduce_open(struct allreduce_places *p, const struct bench_case *c, const char *host,
                            struct ps_error *e)
{
    *p = (struct allreduce_places){.n = c->workers};
    p->has_dir = c->transport != BENCH_TCP && c->transport != BENCH_TLS;
    if (p->has_dir && rundir_create(&p->dir, 0, (int)p->n, e))
        return e->code;
    for (int i = 0; i < p->n; i++)
        if (p->has_dir)
            rundir_worker_address(&p->dir, i, p->address[i]);
        else if (allreduce_find_port(host, p->address[i], e))
            return e->code;
    return PS_OK;
}

void allreduce_close(struct allreduce_places *p)
{
    if (p->has_dir)
        rundir_remove(&p->dir);
}

// ---- a worker -----------------------------------------------------------------------------------------------------

// One call after the other. The last number says whether any worker has had enough: all end with the same call.
static enum ps_code allreduce_call(struct wk_collective *collective, float *values, size_t n, struct load_meter *m,
                                   struct ps_error *e)
{
    uint64_t started = ps_now();
    bool more = true;
    do {
        struct wk_reduction sum = {.values = values, .n = n, .type = WK_FLOAT};
        values[n - 1] = more ? 0 : 1;
        if (wk_collective_reduce(collective, 0, &sum, e))
            return e->code;
        more = load_count(m, &started, 1);
    } while (values[n - 1] == 0);
    return PS_OK;
}

enum ps_code allreduce_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e)
{
    static const volatile sig_atomic_t no_signal;
    const struct allreduce_work *work = arg;
    const size_t n = (size_t)(work->c->size / sizeof(float));
    const char *addresses[BENCH_RING_WORKERS_MAX];
    for (long i = 0; i < work->places->n; i++)
        addresses[i] = work->places->address[i];
    struct ps_tls *tls = NULL;  // the process's, until it ends
    const struct ps_tls_files files = {.folder = (char *)work->tls};
    if (work->tls && ps_tls_open(&files, PS_ROLE_WORKER, &tls, e))
        return e->code;
    const struct wk_peers_options options = {.job = "psbench",
                                             .tls = tls,
                                             .patience = 10 * PS_SECOND,
                                             .rank = (uint32_t)rank,
                                             .addresses = addresses,
                                             .workers = (uint32_t)work->places->n,
                                             .configuration = "",
                                             .shares_memory = work->c->transport == BENCH_SHM,
                                             .insecure = true,
                                             .timeout = 20 * PS_SECOND,
                                             .stop = &no_signal};
    struct wk_collective *collective;
    float *values = ps_alloc(n * sizeof *values);
    if (wk_collective_open(&options, 1, &collective, e))
        return e->code;
    load_ready(m);
    if (allreduce_call(collective, values, n, m, e))
        return e->code;
    load_done(m);
    wk_collective_close(collective, NULL);
    return PS_OK;
}

void allreduce_sum_up(const struct bench_case *c, struct bench_sample *sample)
{
    const double workers = (double)c->workers;
    sample->calls_per_s /= workers;
    sample->bytes_per_s /= workers;
    sample->client_cpu *= workers;
}
