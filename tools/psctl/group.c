// SPDX-License-Identifier: Apache-2.0
//
//                 all ready              workers ended
//   STARTING --------------> TRAINING ----------------> CLOSING --> all ended
//       |                        |                         ^
//       +---- failure, signal ---+--> STOPPING ------------+
//
// STARTING: ps tasks run and are waited for. TRAINING: workers run. STOPPING: workers were told to end.
// CLOSING: ps tasks were told to end. Nothing is polled: every step is taken by an event of the loop.
#include "tools/psctl/group.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/signals.h"
#include "common/base/starts.h"
#include "tools/psctl/child.h"
#include "tools/psctl/guard.h"

enum {
    READY_MS = 60000,
    // From being told to end until SIGKILL. Together they stay below the 30 s that batch systems and service
    // managers grant psctl itself.
    WORKER_END_MS = 20000,
    PS_END_MS = 5000,
    HOLD_MS = 3000,  // so long the other workers' words wait for worker 0 to open the job
    SOON_MS = 3000,  // what takes longer to end is named
    SIGNALS = 3,
};

enum phase { STARTING, TRAINING, STOPPING, CLOSING };

struct group {
    const struct group_spec *spec;
    enum phase phase;
    struct child *ps, *workers;
    struct guard guard;
    bool holds;             // TRAINING: worker 0 has not opened the job yet, and what others say and do is kept
    bool opened_nothing;    // worker 0 has ended before that, with an error
    bool done;              // a worker has ended well
    bool was_signalled;     // a signal has asked for the end
    bool signalled, named;  // STOPPING: by a signal; those who take long to end were named
    int failed_workers;
    int first_failure;  // exit code that the first failed worker stands for
    int exit_code;
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    uv_timer_t patience;
};

static void group_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void group_say(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    child_say(stderr, "psctl", text);
}

static int group_running(const struct child *children, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += children[i].running;
    return count;
}

static void end_all(struct child *children, int n, int signum)
{
    for (int i = 0; i < n; i++)
        child_end(&children[i], signum);
}

// ---- the end ------------------------------------------------------------------------------------------------------

static void on_patience(uv_timer_t *timer);

static void finish_if_ended(struct group *g)
{
    if (group_running(g->ps, g->spec->n_ps) || group_running(g->workers, g->spec->n_workers) ||
        uv_is_closing((uv_handle_t *)&g->patience))
        return;
    uv_close((uv_handle_t *)&g->patience, NULL);
    for (int i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&g->signals[i], NULL);
}

static void close_ps(struct group *g)
{
    g->phase = CLOSING;
    end_all(g->ps, g->spec->n_ps, SIGTERM);
    uv_update_time(&g->loop);  // spec->trained may have waited, which is none of their time
    uv_timer_start(&g->patience, on_patience, PS_END_MS, 0);
    finish_if_ended(g);
}

// Ends the job early. The first call decides the exit code.
static void group_stop(struct group *g, int exit_code)
{
    if (g->exit_code == 0)
        g->exit_code = exit_code;
    if (g->phase >= STOPPING)
        return;
    g->phase = STOPPING;
    end_all(g->workers, g->spec->n_workers, SIGTERM);
    uv_timer_start(&g->patience, on_patience, SOON_MS, 0);
    if (group_running(g->workers, g->spec->n_workers) == 0)
        close_ps(g);
}

static void name_unready(const struct group *g)
{
    for (int i = 0; i < g->spec->n_ps; i++)
        if (g->ps[i].running && !g->ps[i].ready)
            group_say("%s (pid %d) was not ready within %d s", g->ps[i].name, g->ps[i].pid, READY_MS / 1000);
}

// Those who were told to end though the job is not stopped.
static void kill_late(struct group *g)
{
    for (struct child *worker = g->workers; worker < g->workers + g->spec->n_workers; worker++)
        if (worker->stopped)
            child_end(worker, SIGKILL);
}

// They may be at a step, at their output, at a checkpoint; or hang. The ps tasks serve until they are killed.
static void name_late(struct group *g)
{
    const int left = (WORKER_END_MS - SOON_MS) / 1000;
    for (int i = 0; i < g->spec->n_workers; i++)
        if (g->workers[i].running)
            group_say("waits for %s (pid %d), which has not ended yet; it is killed in %d s", g->workers[i].name,
                      g->workers[i].pid, left);
    if (g->signalled && g->spec->in_need)
        group_say("until then another terminal can save the weights: %s", g->spec->in_need);
    g->named = true;
    uv_timer_start(&g->patience, on_patience, WORKER_END_MS - SOON_MS, 0);
}

static void group_let_go(struct group *g);

static void on_patience(uv_timer_t *timer)
{
    struct group *g = timer->data;
    if (g->phase == STARTING) {
        name_unready(g);
        group_stop(g, ps_code_exit(PS_UNAVAILABLE));
    } else if (g->phase == TRAINING && g->holds) {
        group_let_go(g);
    } else if (g->phase == TRAINING) {
        kill_late(g);
    } else if (g->phase == STOPPING && !g->named) {
        name_late(g);
    } else if (g->phase == STOPPING) {
        end_all(g->workers, g->spec->n_workers, SIGKILL);
    } else {
        end_all(g->ps, g->spec->n_ps, SIGKILL);
    }
}

static void group_on_signal(uv_signal_t *handle, int signum)
{
    struct group *g = handle->data;
    const bool again = g->was_signalled;
    g->was_signalled = true;
    if (again) {  // at once
        end_all(g->workers, g->spec->n_workers, SIGKILL);
        end_all(g->ps, g->spec->n_ps, SIGKILL);
        return;
    }
    if (g->phase >= STOPPING) {  // all are on their way already: what the job's end means stays
        group_say("%s: the job ends already; another signal kills what still runs", ps_signal_name(signum));
        return;
    }
    group_say("%s: stopping the job", ps_signal_name(signum));
    g->signalled = g->phase == TRAINING;
    group_stop(g, 128 + signum);
}

// ---- once more ----------------------------------------------------------------------------------------------------

// A signal that nobody here sent has ended the child: the training goes on from its backup, once the child is back.
// Where a worker has ended well the job is done.
static bool group_restart(struct group *g, struct child *child, char **argv)
{
    struct ps_error e;
    char text[256];
    const bool may = g->spec->goes_on && g->phase == TRAINING && !g->done;
    if (!may || child->stopped || !child->signal || !ps_starts_again(&child->starts, ps_now()))
        return false;
    child_describe_end(child, text, sizeof text);
    child->ready &= !g->spec->ends_together;  // the others go on without it until it is in the job again
    if (child_start(child, &g->loop, argv, &e)) {
        group_say("%s", e.text);
        return false;
    }
    group_say("%s: it was started again", text);
    guard_add(&g->guard, child->pid);
    return true;
}

// ---- workers ------------------------------------------------------------------------------------------------------

static int code_of_worker(const struct child *child)
{
    switch (child->signal) {
    case 0:
        return (int)child->exit_code;
    case SIGSEGV:
    case SIGBUS:
    case SIGABRT:
    case SIGFPE:
    case SIGILL:
        return ps_code_exit(PS_INTERNAL);
    default:
        return ps_code_exit(PS_ABORTED);
    }
}

static void lose_worker(struct group *g, const struct child *child)
{
    const struct group_spec *spec = g->spec;
    int live = group_running(g->workers, spec->n_workers);
    if (g->failed_workers++ == 0)
        g->first_failure = code_of_worker(child);
    const bool was_in_it = child->ready || (spec->ends_together && child->starts.n > 1);
    if (spec->n_ps && child == g->workers && !was_in_it) {
        if (live > 0)
            group_say("%s did not open the job, for which the others wait: stopping", child->name);
        group_stop(g, code_of_worker(child));
        return;
    }
    if (spec->n_workers - g->failed_workers < spec->min_workers) {
        if (live > 0)
            group_say("the job needs %d of its %d workers: stopping", spec->min_workers, spec->n_workers);
        group_stop(g, g->first_failure);
    } else if (live > 0 && (child->signal || !spec->ends_together)) {
        group_say("the job goes on with %d of %d workers", live, spec->n_workers);
    }
}

// The job is done, for all who were in it: who was not, as one that was started again too late, waits in vain.
static void group_end_late(struct group *g)
{
    for (struct child *worker = g->workers; worker < g->workers + g->spec->n_workers; worker++)
        if (worker->running && !worker->ready && !worker->stopped) {
            group_say("the job is done without %s (pid %d), which was not in it: it is stopped", worker->name,
                      worker->pid);
            child_end(worker, SIGTERM);
            uv_timer_start(&g->patience, on_patience, WORKER_END_MS, 0);
        }
}

// A mistake in a job's file or data is every worker's, and each finds it. What the others say before worker 0 has
// opened the job is kept; where that ends with an error, those who end with the same one have said the same.
static bool group_is_repetition(const struct group *g, const struct child *child)
{
    return g->opened_nothing && child != g->workers && child->held && child->exit_code == g->workers->exit_code &&
           !child->signal;
}

static void worker_ended(struct group *g, struct child *child)
{
    if (group_restart(g, child, g->spec->workers[child - g->workers]))
        return;
    char text[256];
    bool failed = child->signal || child->exit_code;
    g->done |= !failed;
    const bool repeats = group_is_repetition(g, child);
    child_let_go(child, !repeats);
    child_describe_end(child, text, sizeof text);
    if (failed && !repeats && (!child->stopped || (child->signal && child->signal != SIGTERM)))
        group_say("%s", text);
    if (failed && !child->stopped && !repeats)
        lose_worker(g, child);
    if (g->done && g->spec->ends_together)
        group_end_late(g);
    // One of those who were told to stop had failed already, and the first failure was a consequence of it.
    const bool consequence = g->exit_code == ps_code_exit(PS_ABORTED) && child->stopped && !child->signal;
    if (consequence && child->exit_code && child->exit_code < 128)
        g->exit_code = (int)child->exit_code;
    // The job may be done without it; who looks at the output has not seen all of it.
    if (child->terminal && g->exit_code == 0 && child->exit_code == ps_code_exit(PS_CANNOT_WRITE))
        g->exit_code = (int)child->exit_code;
    if (group_running(g->workers, g->spec->n_workers) == 0 && g->phase < CLOSING) {
        if (g->phase == TRAINING && g->spec->trained)
            g->spec->trained(g->spec->arg);
        close_ps(g);
    }
    finish_if_ended(g);
}

// What has been kept happens: worker 0 has opened the job, or has ended, or takes long.
static void group_let_go(struct group *g)
{
    g->holds = false;
    if (g->phase == TRAINING)
        uv_timer_stop(&g->patience);
    for (struct child *worker = g->workers + 1; worker < g->workers + g->spec->n_workers; worker++) {
        if (!g->opened_nothing)
            child_let_go(worker, true);
        if (!worker->running)
            worker_ended(g, worker);
    }
}

static void on_worker_end(struct child *child)
{
    struct group *g = child->arg;
    guard_remove(&g->guard, child->pid);
    if (g->holds && child != g->workers)
        return;  // group_let_go sees that it has ended
    g->opened_nothing |= g->holds && child->exit_code;
    worker_ended(g, child);
    if (g->holds)
        group_let_go(g);
}

// A worker says so once it is in the job, or has opened it; what follows from it is seen where it ends.
static void on_job_open(struct child *child)
{
    struct group *g = child->arg;
    if (g->holds && child == g->workers)
        group_let_go(g);
}

static void start_workers(struct group *g)
{
    struct ps_error e;
    g->phase = TRAINING;
    uv_timer_stop(&g->patience);
    if (g->spec->notice)
        group_say("%s", g->spec->notice);
    for (int i = 0; i < g->spec->n_workers; i++) {
        struct child *worker = &g->workers[i];
        snprintf(worker->name, sizeof worker->name, "worker %d", i);
        worker->terminal = i == 0;  // the chief shows the progress
        worker->on_ready = g->spec->ends_together || (i == 0 && g->spec->n_ps) ? on_job_open : NULL;
        worker->on_end = on_worker_end;
        worker->arg = g;
        if (i > 0 && g->workers->on_ready)
            child_hold(worker);
        if (child_start(worker, &g->loop, g->spec->workers[i], &e)) {
            group_say("%s", e.text);
            group_stop(g, ps_code_exit(e.code));
            return;
        }
        guard_add(&g->guard, worker->pid);
    }
    g->holds = g->spec->n_workers > 1 && g->workers->on_ready;
    if (g->holds)
        uv_timer_start(&g->patience, on_patience, HOLD_MS, 0);
}

// ---- ps tasks -----------------------------------------------------------------------------------------------------

static void on_ps_ready(struct child *child)
{
    struct group *g = child->arg;
    const char *page = g->spec->page;
    if (page && child->page_port)
        group_say("status page: http://%.*s:%d/", (int)(strrchr(page, ':') - page), page, child->page_port);
    for (int i = 0; i < g->spec->n_ps; i++)
        if (!g->ps[i].ready)
            return;
    if (g->phase == STARTING)
        start_workers(g);
}

static void on_ps_end(struct child *child)
{
    struct group *g = child->arg;
    guard_remove(&g->guard, child->pid);
    if (group_restart(g, child, g->spec->ps[child - g->ps]))
        return;
    char text[256];
    child_describe_end(child, text, sizeof text);
    if (!child->stopped) {
        group_say("%s; without it the job cannot go on", text);
        const bool says_why = !child->signal && child->exit_code && child->exit_code < 128;
        group_stop(g, says_why ? (int)child->exit_code : ps_code_exit(PS_UNAVAILABLE));
    } else if (child->signal == SIGKILL && g->done && g->exit_code == 0) {  // the workers have written the results
        group_say("%s when it was told to end; the job is done all the same", text);
    } else if (child->signal || child->exit_code) {
        group_say("%s when it was told to end", text);
        g->exit_code = g->exit_code ? g->exit_code : ps_code_exit(PS_UNAVAILABLE);
    }
    finish_if_ended(g);
}

static void start_ps(struct group *g)
{
    struct ps_error e;
    uv_timer_start(&g->patience, on_patience, READY_MS, 0);
    for (int i = 0; i < g->spec->n_ps; i++) {
        struct child *ps = &g->ps[i];
        snprintf(ps->name, sizeof ps->name, "ps %d", i);
        ps->on_ready = on_ps_ready;
        ps->on_end = on_ps_end;
        ps->arg = g;
        if (child_start(ps, &g->loop, g->spec->ps[i], &e)) {
            group_say("%s", e.text);
            group_stop(g, ps_code_exit(e.code));
            return;
        }
        guard_add(&g->guard, ps->pid);
    }
}

// ---- the whole ----------------------------------------------------------------------------------------------------

static void watch_signals(struct group *g)
{
    static const int signum[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    signal(SIGPIPE, SIG_IGN);  // who reads our output may go, the children still have to be ended
    for (int i = 0; i < SIGNALS; i++) {
        uv_signal_init(&g->loop, &g->signals[i]);
        g->signals[i].data = g;
        if (ps_signal_ends(signum[i]))
            uv_signal_start(&g->signals[i], group_on_signal, signum[i]);
    }
}

int group_run(const struct group_spec *spec)
{
    struct group g = {.spec = spec,
                      .ps = ps_alloc((size_t)spec->n_ps * sizeof *g.ps + 1),
                      .workers = ps_alloc((size_t)spec->n_workers * sizeof *g.workers)};
    guard_start(&g.guard);
    uv_loop_init(&g.loop);
    uv_timer_init(&g.loop, &g.patience);
    g.patience.data = &g;
    watch_signals(&g);
    if (spec->n_ps > 0)
        start_ps(&g);
    else
        start_workers(&g);
    uv_run(&g.loop, UV_RUN_DEFAULT);
    uv_loop_close(&g.loop);
    guard_end(&g.guard);
    free(g.workers);
    free(g.ps);
    return g.exit_code;
}
