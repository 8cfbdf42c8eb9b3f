// SPDX-License-Identifier: Apache-2.0
//
// workerd: trains a worker's replicas of a job and exits. 0: done; else why, on stderr and as the exit code. Without a
// job it waits for those of the queue, until a signal ends it.
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/self.h"
#include "common/base/signals.h"
#include "common/base/thread.h"
#include "workerd/agent/agent.h"
#include "workerd/attempt.h"
#include "workerd/http/http.h"
#include "workerd/job/place.h"
#include "workerd/job/search.h"
#include "workerd/job/timeline.h"

enum { WAKE = SIGURG };  // of what the kernel sends by itself nothing is asked for here

static volatile sig_atomic_t stop, begun, checkpoint_signals;
static volatile sig_atomic_t trains;
static pthread_t trainer;  // the main thread, where `trains`
static bool holds_data;    // struct wk_ended

// Until the training has begun there is nothing to leave in order.
static void workerd_on_signal(int number)
{
    if (!ps_signal_number(&begun))
        _exit(128 + number);
    ps_signal_set(&stop, number);
    if (ps_signal_number(&trains))
        pthread_kill(trainer, WAKE);
}

static void workerd_on_checkpoint_signal(int number)
{
    (void)number;
    ps_signal_count(&checkpoint_signals);
}

// A second SIGINT ends it at once, as one who waits at a terminal expects. A second SIGTERM changes nothing: Slurm
// sends two within a moment. SIGHUP, of a terminal that is closed, is as SIGTERM, unless nohup has started it.
// None comes to a thread that computes: see workerd_train.
static void workerd_catch_signals(void)
{
    struct sigaction action = {.sa_handler = workerd_on_signal};
    sigaction(SIGTERM, &action, NULL);
    if (!ps_signal_ignored(SIGHUP))
        sigaction(SIGHUP, &action, NULL);
    struct sigaction asked = action;
    asked.sa_flags |= SA_RESTART;  // what is written meanwhile goes on
    asked.sa_handler = workerd_on_checkpoint_signal;
    sigaction(SIGUSR1, &asked, NULL);
    action.sa_flags |= SA_RESETHAND;
    sigaction(SIGINT, &action, NULL);
}

// NCCL listens, too, by itself: where this worker may not be reached from other hosts, on the loopback interface. What
// switches add up (NVLS) comes in no order that repeats: without them a training repeats its bytes. What the user has
// set stays. Before there are threads.
static void workerd_set_up_nccl(const struct wk_options *o)
{
    if (!o->insecure)
        setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
    if (!getenv("NCCL_ALGO"))
        setenv("NCCL_NVLS_ENABLE", "0", 0);
}

// ---- with a job ---------------------------------------------------------------------------------------------------

// psctl run says when it began, so that seconds_to_first_step is what its user waited.
static uint64_t started_at(void)
{
    const char *text = getenv("PS_STARTED_NS");
    uint64_t now = ps_now(), began = text ? strtoull(text, NULL, 10) : now;
    return began && began < now ? began : now;
}

// Where a signal has come, or others are lost, and the training with them, this worker may have written a checkpoint.
static void workerd_say_way_on(const struct wk_ended *ended, struct ps_error *e)
{
    const struct ps_error why = *e;
    if (ended->all_saved || (ended->saved && (e->code == PS_UNAVAILABLE || e->code == PS_ABORTED)))
        ps_fail(e, why.code, "%.400s; %s from step %" PRIu64, why.text,
                ended->resumes ? "--resume goes on" : "started again, it goes on", ended->saved);
}

// Attempts at the job: one, unless others are lost.
static enum ps_code workerd_run_job(struct wk_options *o, struct wk_metrics *metrics, struct ps_error *e)
{
    const uint64_t started = started_at(), moment = 250 * PS_MS;
    struct wk_recovery recovery = {0};
    struct wk_lost lost = {0};
    struct wk_timeline timeline = {0};
    uint64_t not_before = 0;
    for (;;) {
        struct wk_run run = {.started = started,
                             .env.stop = &stop,
                             .env.checkpoint_signals = &checkpoint_signals,
                             .metrics = metrics,
                             .lost = &lost,
                             .timeline = &timeline};
        run.env.waits = metrics ? &metrics->waits : NULL;
        struct wk_ended ended = {0};
        const struct wk_attempt attempt = {.options = o, .not_before = not_before, .begun = &begun};
        e->code = wk_attempt(&attempt, &run, &ended, e);
        holds_data |= ended.holds_data;
        if (!wk_recovery_begins(&recovery, &ended, ps_now(), e)) {
            workerd_say_way_on(&ended, e);
            break;
        }
        if (ps_signal_number(&stop)) {
            const struct ps_error why = *e;
            ps_fail(e, PS_CANCELLED, "stopped by %s: %s", ps_signal_name(ps_signal_number(&stop)), why.text);
            break;
        }
        ps_warn("%s; begins anew from the newest backup", e->text);
        not_before = ps_now() + moment;
    }
    wk_lost_free(&lost);
    return wk_timeline_close(&timeline, e);
}

// The same with --http: the metrics are there from before the first attempt until after the last.
static enum ps_code workerd_run_job_watched(struct wk_options *o, struct ps_error *e)
{
    struct wk_metrics metrics;
    struct wk_http *http;
    if (!o->http)
        return workerd_run_job(o, NULL, e);
    wk_metrics_init(&metrics);
    enum ps_code code = wk_http_start(&metrics, o->http, o->insecure, &http, e);
    if (code == PS_OK)
        code = workerd_run_job(o, &metrics, e);
    wk_http_stop(http);
    wk_metrics_fini(&metrics);
    return code;
}

static void workerd_on_wake(int number)
{
    (void)number;
}

static void *workerd_take_signals(void *arg)
{
    for (;;)
        pause();
    return arg;
}

// A small thread takes the signals; none comes to one that computes, such as those of OpenMP's teams, which inherit
// what is blocked here: oneDNN's kernels use the stack pointer as they use any other register, and a signal's frame
// would be written over whatever that points to. What the main thread waits for in the kernel a signal still ends: it
// is woken, on a stack of its own.
static enum ps_code workerd_train(struct wk_options *o, struct ps_error *e)
{
    static char stack[64 << 10];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    const struct sigaction woken = {.sa_handler = workerd_on_wake, .sa_flags = SA_ONSTACK};
    pthread_t taker;
    sigset_t wake;
    sigaltstack(&own, NULL);
    sigaction(WAKE, &woken, NULL);
    trainer = pthread_self();
    const int failed = pthread_create(&taker, NULL, workerd_take_signals, NULL);
    if (failed)
        return ps_no_thread(e, "signals", failed);
    pthread_detach(taker);
    ps_thread_block_signals(NULL);
    sigemptyset(&wake);
    sigaddset(&wake, WAKE);
    pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
    ps_signal_set(&trains, 1);
    return workerd_run_job_watched(o, e);
}

// ---- without a job ------------------------------------------------------------------------------------------------

static enum ps_code workerd_check_rank(const struct wk_place *place, struct ps_error *e)
{
    if (!place->cluster.workers || place->rank < place->cluster.workers)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "--rank is %" PRIu32 ", but the cluster has %zu workers: ranks go from 0 to %zu", place->rank,
                   place->cluster.workers, place->cluster.workers - 1);
}

// --http while no process trains, which serves it then.
struct idle {
    const struct wk_options *options;
    struct wk_metrics metrics;
    struct wk_http *http;  // NULL: nobody listens
};

static enum ps_code workerd_serve_idle(struct idle *i, struct ps_error *e)
{
    const struct wk_options *o = i->options;
    return o->http ? wk_http_start(&i->metrics, o->http, o->insecure, &i->http, e) : PS_OK;
}

static void workerd_note_idle(void *arg, bool waits)
{
    struct idle *i = arg;
    struct ps_error e;
    wk_http_stop(i->http);
    i->http = NULL;
    if (waits && workerd_serve_idle(i, &e))
        ps_warn("no metrics are served while this worker waits for a job: %s", e.text);
}

static enum ps_code workerd_run_agent(const struct wk_options *o, const struct wk_place *place, char *const *args,
                                      struct ps_error *e)
{
    struct idle idle = {.options = o};
    wk_metrics_init(&idle.metrics);
    enum ps_code code = workerd_serve_idle(&idle, e);
    if (code == PS_OK) {
        ps_signal_set(&begun, 1);
        code = wk_agent_run(&(struct wk_agent_options){.args = args,
                                                       .ps = (const char *const *)place->cluster.addresses,
                                                       .n_ps = place->cluster.n,
                                                       .tls = place->tls,
                                                       .munge = place->munge,
                                                       .rank = place->rank,
                                                       .stop = &stop,
                                                       .waits = workerd_note_idle,
                                                       .arg = &idle},
                            e);
    }
    wk_http_stop(idle.http);
    wk_metrics_fini(&idle.metrics);
    return code;
}

// Waits for jobs of the queue and has them trained, until a signal comes.
static enum ps_code workerd_wait_for_jobs(const struct wk_options *o, char *const *args, struct ps_error *e)
{
    const struct wk_place_options asked = {.job = "without --job",
                                           .cluster = o->cluster,
                                           .ps = o->ps,
                                           .tls = o->tls,
                                           .munge = o->munge,
                                           .rank = o->rank,
                                           .workers = PS_MAX_WORKERS,
                                           .strategy = "parameter_server",
                                           .needs_ps = true};
    struct wk_place place;
    char name[32];
    enum ps_code code = wk_place_find(&place, &asked, e);
    if (code == PS_OK && place.evaluator)
        code = ps_fail(e, PS_FAILED_PRECONDITION, "TF_CONFIG: an evaluator trains no jobs: expected a worker");
    if (code == PS_OK)
        code = workerd_check_rank(&place, e);
    if (code == PS_OK) {
        snprintf(name, sizeof name, "workerd[%" PRIu32 "]", place.rank);
        ps_log_init(name, PS_LOG_INFO);
        code = workerd_run_agent(o, &place, args, e);
    }
    wk_place_fini(&place);
    return code;
}

// A failed write to standard output is an error, unless the run has failed already.
static enum ps_code workerd_end_output(enum ps_code code, struct ps_error *e)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code)
        return code;
    // A flush before this one may have met the error, and its reason is gone.
    return ps_fail(e, PS_CANNOT_WRITE, "cannot write standard output%s%s", errno ? ": " : "",
                   errno ? strerror(errno) : "");
}

int main(int argc, char **argv)
{
    struct ps_error e = {0};
    ps_self_begin(argc);
    prctl(PR_SET_NAME, "workerd");  // where it runs /proc/self/exe, or a bundle's loader, it would be called that
    ps_alloc_tune();
    struct wk_options o = wk_options_parse(argc, argv);
    ps_log_init("workerd", PS_LOG_INFO);
    workerd_catch_signals();
    workerd_set_up_nccl(&o);
    enum ps_code code = o.job ? workerd_end_output(workerd_train(&o, &e), &e) : workerd_wait_for_jobs(&o, argv + 1, &e);
    if (code != PS_OK)
        ps_error_log("%s", e.text);
    wk_options_free(&o);
    const int number = ps_signal_number(&stop);
    const int exit_code = number && (code == PS_CANCELLED || !o.job) ? 128 + number : ps_code_exit(code);
    if (holds_data)
        _exit(exit_code);  // nothing is taken down under the thread that hangs
    return exit_code;
}
