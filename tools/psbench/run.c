// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/psbench/allreduce.h"
#include "tools/psbench/client.h"
#include "tools/psbench/load.h"
#include "tools/psbench/memory.h"
#include "tools/psbench/servers.h"
#include "tools/psbench/socket.h"
#include "tools/psbench/socket_ring.h"
#include "tools/psbench/stop.h"

struct run {
    const struct bench_plan *plan;
    struct servers servers;
};

static enum ps_code run_psd(struct run *r, struct bench_case *c, struct bench_sample *sample, struct ps_error *e)
{
    const struct client_work work = {c, &r->servers};
    if (servers_start(&r->servers, (int)c->ps, c->transport, e))
        return e->code;
    const struct load_how how = {client_work, &work, r->servers.pids, (size_t)r->servers.n, r->plan->seconds};
    load_run(c, &how, sample, e);
    servers_end(&r->servers);
    return e->code;
}

static enum ps_code run_allreduce(const struct run *r, struct bench_case *c, load_work_fn work,
                                  struct bench_sample *sample, struct ps_error *e)
{
    struct allreduce_places places;
    const struct allreduce_work on = {c, &places, c->transport == BENCH_TLS ? r->plan->tls : NULL};
    const struct load_how how = {.work = work, .arg = &on, .seconds = r->plan->seconds};
    if (allreduce_open(&places, c, r->plan->host, e) == PS_OK && load_run(c, &how, sample, e) == PS_OK)
        allreduce_sum_up(c, sample);
    allreduce_close(&places);
    return e->code;
}

static enum ps_code run_socket(const struct run *r, struct bench_case *c, struct bench_sample *sample,
                               struct ps_error *e)
{
    struct socket_server server = {.pid = 0};
    const struct socket_work work = {c, &server};
    const struct load_how how = {socket_work, &work, &server.pid, 1, r->plan->seconds};
    if (socket_server_start(&server, c, r->plan->host, r->plan->netns, e) == PS_OK)
        load_run(c, &how, sample, e);
    socket_server_end(&server);
    return e->code;
}

static enum ps_code run_case(struct run *r, struct bench_case *c, struct ps_error *e)
{
    struct bench_sample *sample = &c->samples[c->n_samples];
    e->code = PS_OK;
    switch (c->target) {
    case BENCH_PSD:
        run_psd(r, c, sample, e);
        break;
    case BENCH_RING:
        run_allreduce(r, c, allreduce_work, sample, e);
        break;
    case BENCH_SOCKET:
        if (c->command == BENCH_ALLREDUCE)
            run_allreduce(r, c, socket_ring_work, sample, e);
        else
            run_socket(r, c, sample, e);
        break;
    case BENCH_MEMORY:
        load_run(c, &(struct load_how){.work = memory_work, .arg = c, .seconds = r->plan->seconds}, sample, e);
        break;
    }
    if (e->code)
        return ps_error_prefix(e, "%s, %s, %" PRIu64 " bytes", bench_targets[c->target], bench_commands[c->command],
                               c->size);
    c->n_samples++;
    return PS_OK;
}

static void run_show_progress(const struct bench_cases *cases, long repeat, size_t done)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%zu of %zu measurements", done, cases->n * (size_t)repeat);
}

enum ps_code run_all(const struct bench_plan *plan, struct bench_cases *cases, struct ps_error *e)
{
    struct run r = {.plan = plan, .servers = {.host = plan->host, .netns = plan->netns, .tls = plan->tls}};
    size_t done = 0;
    if (servers_find(&r.servers, e))
        return e->code;
    for (long repeat = 0; repeat < plan->repeat; repeat++)
        for (size_t i = 0; i < cases->n; i++, done++) {
            run_show_progress(cases, plan->repeat, done);
            if (stop_asked(e) || run_case(&r, &cases->v[i], e))
                return e->code;
        }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    return PS_OK;
}
