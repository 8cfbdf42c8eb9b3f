// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/metrics.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

void wk_metrics_init(struct wk_metrics *m)
{
    *m = (struct wk_metrics){.started = ps_now(), .loss = NAN};
    pthread_mutex_init(&m->lock, NULL);
}

void wk_metrics_fini(struct wk_metrics *m)
{
    pthread_mutex_destroy(&m->lock);
    free(m->job);
    free(m->strategy);
    wk_figures_free(&m->figures);
}

void wk_metrics_begin(struct wk_metrics *m, const char *job, const char *strategy, uint32_t rank)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    free(m->job);
    free(m->strategy);
    m->job = ps_strdup(job);
    m->strategy = ps_strdup(strategy);
    m->rank = rank;
    pthread_mutex_unlock(&m->lock);
    atomic_store(&m->trains, false);
    atomic_fetch_add(&m->runs, 1);
}

void wk_metrics_trains(struct wk_metrics *m)
{
    if (m)
        atomic_store(&m->trains, true);
}

void wk_metrics_begin_epoch(struct wk_metrics *m, uint64_t epoch)
{
    if (m)
        atomic_store_explicit(&m->epoch, epoch + 1, memory_order_relaxed);
}

void wk_metrics_end_epoch(struct wk_metrics *m, const struct wk_figures *figures)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    wk_figures_copy(&m->figures, figures);
    pthread_mutex_unlock(&m->lock);
}

void wk_metrics_step(struct wk_metrics *m, const struct wk_metrics_step *step)
{
    if (!m)
        return;
    atomic_fetch_add_explicit(&m->examples, (uint64_t)step->rows, memory_order_relaxed);
    wk_metrics_time(m, step->device, step->ns);
    if (step->device != 0)
        return;
    atomic_fetch_add_explicit(&m->steps, 1, memory_order_relaxed);
    atomic_store_explicit(&m->step, step->step, memory_order_relaxed);
    if (step->rows)
        atomic_store_explicit(&m->loss, step->loss / step->rows, memory_order_relaxed);
}

void wk_metrics_time(struct wk_metrics *m, uint32_t device, uint64_t ns)
{
    if (m && device == 0)
        atomic_fetch_add_explicit(&m->trained_ns, ns, memory_order_relaxed);
}
