// SPDX-License-Identifier: Apache-2.0
#include "workerd/http/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "config.h"

enum { PAGES = 3 };

struct wk_http {
    struct ps_http *server;
    struct ps_http_page pages[PAGES];
};

// ---- metrics ------------------------------------------------------------------------------------------------------

// Job and rank of all samples, as they were when the page was asked for.
struct text {
    struct ps_metrics to;
    struct wk_metrics *from;
    char *job, *strategy, rank[16];
    struct wk_figures figures;
};

static bool text_take_place(struct text *t)
{
    struct wk_metrics *m = t->from;
    pthread_mutex_lock(&m->lock);
    if (m->job) {
        t->job = ps_strdup(m->job);
        t->strategy = ps_strdup(m->strategy);
        snprintf(t->rank, sizeof t->rank, "%" PRIu32, m->rank);
        wk_figures_copy(&t->figures, &m->figures);
    }
    pthread_mutex_unlock(&m->lock);
    return t->job;
}

// A family of one sample.
static void text_put(struct text *t, const char *name, const char *type, const char *help, double value)
{
    const struct ps_label labels[] = {{"job", t->job}, {"worker", t->rank}};
    ps_metrics_family(&t->to, name, type, help);
    ps_metrics_sample(&t->to, labels, 2, value);
}

static double text_seconds(uint64_t ns)
{
    return (double)ns / (double)PS_SECOND;
}

static void text_put_process(struct text *t)
{
    const struct ps_label version = {"version", PACKAGE_VERSION};
    ps_metrics_family(&t->to, "paramserver_workerd_info", "gauge", "The program that runs as this worker.");
    ps_metrics_sample(&t->to, &version, 1, 1);
    ps_metrics_family(&t->to, "paramserver_workerd_uptime_seconds", "gauge", "Time since this worker was started.");
    ps_metrics_sample(&t->to, NULL, 0, text_seconds(ps_now() - t->from->started));
}

static void text_put_job(struct text *t)
{
    const struct ps_label labels[] = {{"job", t->job}, {"worker", t->rank}, {"strategy", t->strategy}};
    const uint64_t runs = atomic_load(&t->from->runs);
    ps_metrics_family(&t->to, "paramserver_workerd_job_info", "gauge", "The job that this worker trains.");
    ps_metrics_sample(&t->to, labels, 3, 1);
    text_put(t, "paramserver_workerd_training", "gauge", "1 where the training has begun.",
             atomic_load(&t->from->trains));
    text_put(t, "paramserver_workerd_restarts_total", "counter",
             "How often the training has begun anew from a backup because others were lost.",
             (double)(runs ? runs - 1 : 0));
}

static void text_put_training(struct text *t)
{
    struct wk_metrics *m = t->from;
    const double examples = (double)atomic_load(&m->examples), seconds = text_seconds(atomic_load(&m->trained_ns));
    text_put(t, "paramserver_workerd_epoch", "gauge", "The epoch that is trained, from 1.",
             (double)atomic_load(&m->epoch));
    text_put(t, "paramserver_workerd_step", "gauge", "The step, as the job counts.", (double)atomic_load(&m->step));
    text_put(t, "paramserver_workerd_steps_total", "counter", "Steps that this worker has trained.",
             (double)atomic_load(&m->steps));
    text_put(t, "paramserver_workerd_examples_total", "counter", "Examples that this worker has trained.", examples);
    text_put(t, "paramserver_workerd_training_seconds_total", "counter",
             "Time of all epochs, waits among it, without evaluations.", seconds);
    text_put(t, "paramserver_workerd_examples_per_second", "gauge", "Examples trained per second of that time.",
             seconds > 0 ? examples / seconds : 0);
    text_put(t, "paramserver_workerd_loss", "gauge", "The mean loss of the last batch.", atomic_load(&m->loss));
}

static void text_put_waits(struct text *t)
{
    static const char *const names[WK_WAITS] = {
        [WK_WAIT_EXAMPLES] = "examples", [WK_WAIT_BATCH] = "batch",         [WK_WAIT_WEIGHTS] = "weights",
        [WK_WAIT_CLOCK] = "clock",       [WK_WAIT_GRADIENTS] = "gradients", [WK_WAIT_WORKERS] = "workers"};
    uint64_t all = 0;
    ps_metrics_family(&t->to, "paramserver_workerd_waiting_seconds_total", "counter",
                      "Time that replica 0 has waited: to be told its examples, for its batch, for weights of ps "
                      "tasks, for the clock of an ssp job, for the gradients of all, for the end of others' epoch.");
    for (int i = 0; i < WK_WAITS; i++) {
        const struct ps_label labels[] = {{"job", t->job}, {"worker", t->rank}, {"what", names[i]}};
        const uint64_t ns = atomic_load(&t->from->waits.ns[i]);
        ps_metrics_sample(&t->to, labels, 3, text_seconds(ns));
        all += ns;
    }
    text_put(t, "paramserver_workerd_waiting_ratio", "gauge", "The share of waits in the time since the start.",
             (double)all / (double)(ps_now() - t->from->started));
}

// By Keras's names.
static void text_put_figures(struct text *t)
{
    ps_metrics_family(&t->to, "paramserver_workerd_figure", "gauge", "A figure of the last epoch, as it is shown.");
    for (size_t i = 0; i < t->figures.n; i++) {
        const struct ps_label labels[] = {{"job", t->job}, {"worker", t->rank}, {"figure", t->figures.v[i].name}};
        ps_metrics_sample(&t->to, labels, 3, t->figures.v[i].value);
    }
}

static enum ps_code http_make_worker_metrics(void *ctx, char **text, struct ps_error *e)
{
    struct text t = {.from = ctx};
    if (ps_metrics_open(&t.to, e))
        return e->code;
    text_put_process(&t);
    if (text_take_place(&t)) {
        text_put_job(&t);
        text_put_training(&t);
        text_put_waits(&t);
        text_put_figures(&t);
    }
    free(t.job);
    free(t.strategy);
    wk_figures_free(&t.figures);
    return ps_metrics_close(&t.to, text, e);
}

// ---- health -------------------------------------------------------------------------------------------------------

static enum ps_code http_make_worker_readiness(void *ctx, char **text, struct ps_error *e)
{
    struct wk_metrics *m = ctx;
    if (!atomic_load(&m->trains))
        return ps_fail(
            e, PS_UNAVAILABLE,
            "the training has not begun: this worker prepares it, or waits for a job, ps tasks or other workers");
    return ps_http_make_ok(ctx, text, e);
}

// ---- start and end ------------------------------------------------------------------------------------------------

enum ps_code wk_http_start(struct wk_metrics *metrics, const char *address, bool insecure, struct wk_http **http,
                           struct ps_error *e)
{
    struct wk_http *h = ps_alloc(sizeof *h);
    *http = NULL;
    *h = (struct wk_http){.pages = {{"/metrics", PS_METRICS_TYPE, http_make_worker_metrics, metrics},
                                    {"/healthz", PS_HTTP_PLAIN, ps_http_make_ok, metrics},
                                    {"/readyz", PS_HTTP_PLAIN, http_make_worker_readiness, metrics}}};
    if (ps_http_open(address, insecure, h->pages, PAGES, "/metrics", &h->server, e)) {
        free(h);
        return e->code;
    }
    *http = h;
    return PS_OK;
}

void wk_http_stop(struct wk_http *h)
{
    if (h)
        ps_http_stop(h->server);
    free(h);
}
