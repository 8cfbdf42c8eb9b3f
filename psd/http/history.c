// SPDX-License-Identifier: Apache-2.0
#include "psd/http/history.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/http/json.h"
#include "common/summary/figures.h"

// Of the task: resident, blocks. Of a job: examples/s, loss, staleness; trains says whether the first two are known.
struct history_point {
    uint64_t clock_ms;
    double value[3];
    bool trains;
};

struct history_ring {
    uint32_t n, next;
    struct history_point points[PSD_HISTORY_POINTS];
};

struct history_job {
    char *name;
    uint64_t run;
    bool seen;  // by the overview that is being added
    bool runs;  // as the last one said
    struct history_ring ring;
};

struct psd_history {
    pthread_mutex_t lock;  // of all that follows
    struct history_ring task;
    struct history_job *jobs[PSD_HISTORY_JOBS];  // NULL: free
};

// ---- what is kept -------------------------------------------------------------------------------------------------

static void history_ring_add(struct history_ring *r, const struct history_point *point)
{
    r->points[r->next] = *point;
    r->next = (r->next + 1) % PSD_HISTORY_POINTS;
    r->n += r->n < PSD_HISTORY_POINTS;
}

static void history_job_free(struct history_job **job)
{
    if (*job)
        free((*job)->name);
    free(*job);
    *job = NULL;
}

static struct history_job *history_job_create(const Paramserver__V1__JobStatus *status)
{
    struct history_job *job = ps_try_alloc(sizeof *job);
    if (job)
        job->name = ps_try_strdup(status->name);
    if (job && !job->name)
        history_job_free(&job);
    return job;
}

// NULL: it has none.
static const struct history_point *history_last(const struct history_ring *r)
{
    return r->n ? &r->points[(r->next + PSD_HISTORY_POINTS - 1) % PSD_HISTORY_POINTS] : NULL;
}

static uint64_t history_age(const struct history_job *job)
{
    const struct history_point *last = history_last(&job->ring);
    return last ? last->clock_ms : 0;
}

// A free place, else that of the job which runs no more and whose last point is the oldest. NULL: all run.
static struct history_job **history_place(struct psd_history *h)
{
    struct history_job **place = NULL;
    for (struct history_job **at = h->jobs; at < h->jobs + PSD_HISTORY_JOBS; at++) {
        if (!*at)
            return at;
        if (!(*at)->runs && (!place || history_age(*at) < history_age(*place)))
            place = at;
    }
    return place;
}

static struct history_job **history_find(struct psd_history *h, const char *name)
{
    for (struct history_job **at = h->jobs; at < h->jobs + PSD_HISTORY_JOBS; at++)
        if (*at && strcmp((*at)->name, name) == 0)
            return at;
    return NULL;
}

// NULL: it has not run yet, or there is no room for it. A new run begins with no points.
static struct history_job *history_job_of(struct psd_history *h, const Paramserver__V1__JobStatus *status, bool runs)
{
    struct history_job **found = history_find(h, status->name);
    if (!found && runs && (found = history_place(h))) {
        history_job_free(found);
        *found = history_job_create(status);
    }
    if (!found)
        return NULL;
    if (*found && (*found)->run != status->run) {
        (*found)->run = status->run;
        (*found)->ring.n = (*found)->ring.next = 0;
    }
    return *found;
}

static void history_add_job(struct psd_history *h, const struct ps_overview *overview, size_t i)
{
    const Paramserver__V1__JobStatus *status = overview->status->jobs[i];
    const struct ps_figures f = ps_figures_of(overview->workers[i]);
    const bool runs = strcmp(status->state, "running") == 0;
    struct history_job *job = history_job_of(h, status, runs);
    if (!job)
        return;
    job->seen = true;
    job->runs = runs;
    if (!runs)
        return;
    history_ring_add(&job->ring, &(struct history_point){overview->status->clock_ms,
                                                         {f.examples_per_second, f.loss, (double)status->staleness},
                                                         f.trains});
}

// Those that the overview has not are gone.
static void history_drop_jobs(struct psd_history *h)
{
    for (int i = 0; i < PSD_HISTORY_JOBS; i++) {
        if (h->jobs[i] && !h->jobs[i]->seen)
            history_job_free(&h->jobs[i]);
        else if (h->jobs[i])
            h->jobs[i]->seen = false;
    }
}

void psd_history_add(struct psd_history *h, const struct ps_overview *overview)
{
    const Paramserver__V1__StatusReply *s = overview->status;
    pthread_mutex_lock(&h->lock);
    history_ring_add(&h->task,
                     &(struct history_point){s->clock_ms, {(double)s->resident_bytes, (double)s->block_bytes}, true});
    for (size_t i = 0; i < s->n_jobs; i++)
        history_add_job(h, overview, i);
    history_drop_jobs(h);
    pthread_mutex_unlock(&h->lock);
}

struct psd_history *psd_history_create(void)
{
    struct psd_history *h = ps_try_alloc(sizeof *h);
    if (h)
        pthread_mutex_init(&h->lock, NULL);
    return h;
}

void psd_history_destroy(struct psd_history *h)
{
    if (!h)
        return;
    for (int i = 0; i < PSD_HISTORY_JOBS; i++)
        history_job_free(&h->jobs[i]);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

// ---- what is said -------------------------------------------------------------------------------------------------

static void history_put_point(struct ps_json *j, const struct history_point *point, size_t values)
{
    ps_json_begin(j, NULL, '[');
    ps_json_count(j, NULL, point->clock_ms);
    for (size_t i = 0; i < values; i++)
        if (point->trains || i == 2)
            ps_json_number(j, NULL, point->value[i]);
        else
            ps_json_null(j, NULL);
    ps_json_end(j, ']');
}

// Its points since then (ms).
static void history_put_ring(struct ps_json *j, const char *key, const struct history_ring *r, uint64_t since,
                             size_t values)
{
    ps_json_begin(j, key, '[');
    for (uint32_t i = 0; i < r->n; i++) {
        const struct history_point *point = &r->points[(r->next + PSD_HISTORY_POINTS - r->n + i) % PSD_HISTORY_POINTS];
        if (point->clock_ms >= since)
            history_put_point(j, point, values);
    }
    ps_json_end(j, ']');
}

static void history_put_job(struct ps_json *j, const struct history_job *job, uint64_t since)
{
    char run[24];
    snprintf(run, sizeof run, "%" PRIu64, job->run);
    ps_json_begin(j, NULL, '{');
    ps_json_text(j, "name", job->name);
    ps_json_text(j, "run", run);
    history_put_ring(j, "points", &job->ring, since, 3);
    ps_json_end(j, '}');
}

enum ps_code psd_history_text(struct psd_history *h, char **text, struct ps_error *e)
{
    enum { WHOLE_MS = PSD_HISTORY_POINTS * PSD_HISTORY_SECONDS * 1000 };
    struct ps_json j;
    if (ps_json_open(&j, e))
        return e->code;
    pthread_mutex_lock(&h->lock);
    const struct history_point *last = history_last(&h->task);
    const uint64_t since = last && last->clock_ms > WHOLE_MS ? last->clock_ms - WHOLE_MS : 0;
    ps_json_begin(&j, NULL, '{');
    ps_json_count(&j, "interval_ms", PSD_HISTORY_SECONDS * 1000);
    history_put_ring(&j, "memory", &h->task, since, 2);
    ps_json_begin(&j, "jobs", '[');
    for (int i = 0; i < PSD_HISTORY_JOBS; i++)
        if (h->jobs[i])
            history_put_job(&j, h->jobs[i], since);
    ps_json_end(&j, ']');
    ps_json_end(&j, '}');
    pthread_mutex_unlock(&h->lock);
    return ps_json_close(&j, text, e);
}
