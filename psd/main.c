// SPDX-License-Identifier: Apache-2.0
//
// psd: one ps task. Everything is started in order and ended in reverse; in between the loop waits for signals and
// gives the core its ticks, while the server's threads do the work.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/notify.h"
#include "common/base/self.h"
#include "common/base/signals.h"
#include "common/base/workers.h"
#include "common/plan/cost.h"
#include "common/tls/munge.h"
#include "common/tls/tls.h"
#include "config.h"
#include "psd/http/http.h"
#include "psd/options.h"
#include "psd/rpc/descriptors.h"
#include "psd/rpc/rpc.h"
#include "psd/service/core.h"

enum { TICK_MS = 50 };

// What SIGTERM leaves for the last replies; a client that does not read must not keep the others from their next psd.
static const uint64_t grace_ns = 2 * PS_SECOND;

// ---- what is said -------------------------------------------------------------------------------------------------

static void say_tls(struct ps_tls *tls)
{
    char until[PS_TLS_TIME];
    const bool soon = ps_tls_ends_soon(tls, until);
    ps_log(soon ? PS_LOG_WARNING : PS_LOG_INFO, "TLS: the certificate holds until %s%s", until,
           soon ? ": psctl tls issue makes a new one" : "");
}

static void say_ready(const struct psd_options *o, const struct psd_rpc *rpc, const struct psd_http *http)
{
    for (size_t i = 0; i < o->n_listen; i++) {
        int port = psd_rpc_port(rpc, i);
        if (port)
            ps_info("listening on port %d of %.*s", port, (int)(strrchr(o->listen[i], ':') - o->listen[i]),
                    o->listen[i]);
        else
            ps_info("listening on %s", o->listen[i]);
    }
    if (o->memory_why)
        ps_info("memory: %.1f GiB, 3/4 of %s; --memory says otherwise", (double)o->memory / (1 << 30), o->memory_why);
    if (o->ready_fd >= 0) {
        if (http)
            dprintf(o->ready_fd, "READY %d %d\n", psd_rpc_port(rpc, 0), psd_http_port(http));
        else
            dprintf(o->ready_fd, "READY %d\n", psd_rpc_port(rpc, 0));
        close(o->ready_fd);
    }
    ps_notify("READY=1");
}

// ---- the loop -----------------------------------------------------------------------------------------------------

static void on_signal(uv_signal_t *handle, int number)
{
    ps_info("signal %d: stopping", number);
    uv_stop(handle->loop);
}

// A tick takes the core's locks: where they are held for ever, the service manager's watchdog sees it.
struct ticking {
    struct psd_core *core;
    struct ps_watchdog watchdog;
};

static void on_tick(uv_timer_t *handle)
{
    struct ticking *t = handle->data;
    psd_core_tick(t->core);
    ps_watchdog_feed(&t->watchdog);
}

// A terminal that is closed ends it, unless nohup has started it.
static void watch_hangup(uv_loop_t *loop)
{
    static uv_signal_t hangup;
    if (ps_signal_ignored(SIGHUP))
        return;
    uv_signal_init(loop, &hangup);
    uv_signal_start(&hangup, on_signal, SIGHUP);
}

// Returns once SIGTERM, SIGINT or SIGHUP has come, which may be as soon as somebody knows that it is ready. Who starts
// psd with SIGTERM ignored ends it by SIGINT: a batch system's SIGTERM to all does not take it from its workers.
// Further signals change nothing: they are taken, and not looked at, until the process ends.
static void run_loop(const struct psd_options *o, const struct psd_rpc *rpc, struct psd_core *core,
                     const struct psd_http *http)
{
    static uv_loop_t loop;
    static uv_signal_t term, interrupt;
    static uv_timer_t tick;
    uv_loop_init(&loop);
    uv_signal_init(&loop, &term);
    uv_signal_init(&loop, &interrupt);
    uv_timer_init(&loop, &tick);
    struct ticking ticking = {.core = core};
    ps_watchdog_init(&ticking.watchdog);
    tick.data = &ticking;
    if (!ps_signal_ignored(SIGTERM))
        uv_signal_start(&term, on_signal, SIGTERM);
    uv_signal_start(&interrupt, on_signal, SIGINT);
    watch_hangup(&loop);
    uv_timer_start(&tick, on_tick, TICK_MS, TICK_MS);
    say_ready(o, rpc, http);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_timer_stop(&tick);
}

// ---- start --------------------------------------------------------------------------------------------------------

static enum ps_code main_serve(const struct psd_options *o, struct psd_rpc *rpc, struct psd_core *core,
                               struct ps_error *e)
{
    struct psd_http *http = NULL;
    long files = psd_descriptors_raise();
    const struct psd_rpc_listen listen = {o->listen,   o->n_listen, o->peers[o->task],
                                          o->insecure, o->threads,  ps_memory_in_flight(o->memory)};
    if (psd_rpc_start(rpc, core, &listen, e))
        return e->code;
    if (o->http && psd_http_start(core, o->http, o->insecure, &http, e))
        return e->code;
    if (files)
        ps_info("the limit of open files, and with it of connections, is %ld", files);
    run_loop(o, rpc, core, http);

    ps_notify("STOPPING=1");
    psd_http_stop(http);
    psd_rpc_drain(rpc);
    psd_core_drain(core);
    return PS_OK;
}

// Of the addresses with their ends.
static uint64_t cluster_hash(const struct psd_options *o)
{
    uint64_t h = PS_HASH_SEED;
    for (size_t i = 0; i < o->n_peers; i++)
        h = ps_hash(h, o->peers[i], strlen(o->peers[i]) + 1);
    return h;
}

static enum ps_code main_run(const struct psd_options *o, struct ps_tls *tls, struct ps_munge *munge,
                             struct ps_error *e)
{
    const struct psd_config config = {
        .task = o->task,
        .tasks = (uint32_t)o->n_peers,
        .cluster_hash = cluster_hash(o),
        .memory_bytes = ps_memory_for_blocks(o->memory),
        .heartbeat_ms = o->heartbeat_ms,
        .dead_after_ms = o->dead_after_ms,
        .stall_ms = o->stall_after_ms,
        .user_jobs = o->user_jobs,
        .user_bytes = o->user_memory,
        .queue = o->queue,
        .checkpoints = o->checkpoints,
    };
    struct psd_core *core = NULL;
    struct psd_rpc *rpc = psd_rpc_create(o->peers, o->n_peers, tls, munge, e);
    if (!rpc)
        return e->code;
    struct psd_world world = *psd_rpc_world(rpc);
    struct ps_workers *workers = world.workers = ps_workers_create(0);
    enum ps_code code = psd_core_create(&config, &world, &core, e);
    if (code == PS_OK)
        code = main_serve(o, rpc, core, e);
    ps_workers_stop(workers);
    if (!psd_rpc_stop(rpc, grace_ns))
        return code;
    if (core)
        psd_core_destroy(core);
    psd_rpc_destroy(rpc);
    ps_workers_free(workers);
    return code;
}

static enum ps_code main_open_tls(const struct psd_options *o, struct ps_tls **tls, struct ps_error *e)
{
    if (!ps_tls_files_given(&o->tls))
        return PS_OK;
    if (ps_tls_open(&o->tls, PS_ROLE_PSD, tls, e))
        return ps_error_prefix(e, "TLS");
    say_tls(*tls);
    return PS_OK;
}

static enum ps_code main_open_munge(const struct psd_options *o, struct ps_munge **munge, struct ps_error *e)
{
    if (!o->munge)
        return PS_OK;
    if (ps_munge_open(o->munge_socket, o->munge_users, munge, e))
        return e->code;
    ps_info("munge: uid %u and root may do all, other users %s; nothing is encrypted", (unsigned)geteuid(),
            o->munge_users ? "train" : "nothing: --munge-users lets them train");
    return PS_OK;
}

int main(int argc, char **argv)
{
    struct psd_options options;
    struct ps_tls *tls = NULL;
    struct ps_munge *munge = NULL;
    struct ps_error e;
    char name[32];
    ps_self_begin(argc);
    ps_alloc_tune();
    ps_log_init("psd", PS_LOG_INFO);
    enum ps_code code = psd_options_parse(argc, argv, &options, &e);
    if (code == PS_OK) {
        snprintf(name, sizeof name, "psd[%u]", options.task);
        ps_log_init(name, options.log_level);
        ps_log_times();
        signal(SIGPIPE, SIG_IGN);
        // A service has no terminal: who sends it a SIGHUP wants it to read certificates anew, as it does by itself.
        if (getenv("NOTIFY_SOCKET"))
            signal(SIGHUP, SIG_IGN);
        code = main_open_tls(&options, &tls, &e);
        if (code == PS_OK)
            code = main_open_munge(&options, &munge, &e);
        if (code == PS_OK)
            code = main_run(&options, tls, munge, &e);
        if (code == PS_OK)
            ps_info("stopped");
    }
    if (code)
        ps_error_log("%s", e.text);
    ps_tls_close(tls);
    ps_munge_close(munge);
    psd_options_free(&options);
    return ps_code_exit(code);
}
