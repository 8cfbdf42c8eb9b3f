// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

static size_t n_variables(const struct sim_worker *w)
{
    return w->job->declaration.n_variables;
}

static void on_given_up(void *arg, const struct ps_error *e)
{
    (void)e;
    ((struct sim_worker *)arg)->done = true;
}

// A worker that fails leaves, and says why.
static bool failed(struct sim_worker *w, const struct ps_error *e)
{
    if (e->code == PS_OK || w->error.code != PS_OK)
        return e->code != PS_OK;
    w->error = *e;
    psc__leave(w->client, e->text, on_given_up, w);
    return true;
}

static bool result_failed(struct sim_worker *w, const psc_result *r)
{
    struct ps_error e = {.code = (enum ps_code)r->error.code};
    snprintf(e.text, sizeof e.text, "%s", r->error.text);
    return failed(w, &e);
}

// ---- steps --------------------------------------------------------------------------------------------------------

static void on_step_part(void *arg, const psc_result *r);

static void on_left(void *arg, const struct ps_error *e)
{
    struct sim_worker *w = arg;
    if (!failed(w, e))
        w->done = true;
}

static void on_finished(void *arg, const struct ps_error *e)
{
    struct sim_worker *w = arg;
    if (!failed(w, e))
        psc__leave(w->client, NULL, on_left, w);
}

static uint64_t round_of(const struct sim_worker *w, uint64_t step)
{
    return w->job->update == PSC_SYNC ? step : 0;
}

static void on_push(void *arg, const psc_result *r)
{
    struct sim_worker *w = arg;
    w->applied += r->applied;
    w->queued += r->queued;
    w->stale += r->stale;
    w->duplicates += r->duplicates;
    if (r->staleness > w->staleness)
        w->staleness = r->staleness;
    on_step_part(arg, r);
}

// The gradient of the step goes out, and right behind it the pull for the next one.
static void step(struct sim_worker *w)
{
    if (w->before_push && !w->before_push(w)) {
        sim_worker_kill(w);
        return;
    }
    for (size_t v = 0; v < n_variables(w); v++)
        w->job->gradient(w->rank, w->step, v, w->gradients[v].data, w->gradients[v].count);
    w->step++;
    w->pending = 1;
    for (size_t v = 0; v < n_variables(w); v++) {
        w->pending++;
        psc_push(w->client, &w->gradients[v], 1,
                 &(psc_push_options){.round = round_of(w, w->step),
                                     .examples = 1,
                                     .priority = (uint32_t)(v + w->rank) % SIM_PRIORITIES},
                 on_push, w, NULL);
    }
    psc_pull(w->client, w->weights, n_variables(w), round_of(w, w->step), on_step_part, w, NULL);
}

static void on_step_part(void *arg, const psc_result *r)
{
    struct sim_worker *w = arg;
    if (result_failed(w, r) || w->done || --w->pending)
        return;
    if (w->step < w->job->steps)
        step(w);
    else
        psc__barrier(w->client, "finish", on_finished, w);
}

// ---- start --------------------------------------------------------------------------------------------------------

static void on_started(void *arg, const struct ps_error *e)
{
    struct sim_worker *w = arg;
    if (failed(w, e))
        return;
    w->pending = 1;
    psc_pull(w->client, w->weights, n_variables(w), 0, on_step_part, w, NULL);
}

static void on_put(void *arg, const psc_result *r)
{
    struct sim_worker *w = arg;
    if (!result_failed(w, r))
        psc__barrier(w->client, "start", on_started, w);
}

static void on_declared(void *arg, const struct ps_error *e)
{
    struct sim_worker *w = arg;
    if (failed(w, e))
        return;
    if (w->rank == 0)
        psc_put(w->client, w->weights, n_variables(w), on_put, w, NULL);
    else
        psc__barrier(w->client, "start", on_started, w);
}

static void on_joined(void *arg, const struct ps_error *e)
{
    struct sim_worker *w = arg;
    if (failed(w, e))
        return;
    if (w->rank == 0)
        psc__declare(w->client, &w->job->declaration, NULL, on_declared, w);
    else
        psc__attach(w->client, on_declared, w);
}

void sim_worker_start(struct sim_worker *w, struct sim *sim, const struct sim_job *job, uint32_t rank)
{
    bool (*before_push)(struct sim_worker *) = w->before_push;
    *w = (struct sim_worker){.sim = sim, .job = job, .rank = rank, .before_push = before_push};
    w->world = sim_world(sim);
    for (size_t v = 0; v < n_variables(w); v++) {
        const psc_variable *d = &job->declaration.variables[v];
        uint64_t count = 1;
        for (size_t i = 0; i < d->rank; i++)
            count *= d->shape[i];
        w->weights[v] = (psc_tensor){d->name, ps_alloc(count * sizeof(float)), count, PSC_FLOAT32};
        w->gradients[v] = (psc_tensor){d->name, ps_alloc(count * sizeof(float)), count, PSC_FLOAT32};
    }
    char names[16][24];
    const char *addresses[16];
    psc_cluster *cluster;
    for (uint32_t i = 0; i < sim_tasks(sim); i++) {
        snprintf(names[i], sizeof names[i], "simulated:%u", i + 1);
        addresses[i] = names[i];
    }
    psc_cluster_create(addresses, sim_tasks(sim), &cluster, NULL);
    psc_options options = {.job = job->name,
                           .rank = (int)rank,
                           .workers = job->workers,
                           .min_workers = job->min_workers,
                           .update = job->update,
                           .timeout_ms = 300000};
    if (psc__client_create(cluster, &options, &w->world, &w->client, &w->error) == PS_OK)
        psc__join(w->client, on_joined, w);
    else
        w->done = true;
    psc_cluster_free(cluster);
}

void sim_worker_kill(struct sim_worker *w)
{
    sim_kill(w->sim, &w->world);
    w->done = true;
    snprintf(w->error.text, sizeof w->error.text, "killed");
    w->error.code = PS_CANCELLED;
}

void sim_worker_free(struct sim_worker *w)
{
    psc__client_free(w->client);
    for (size_t v = 0; v < n_variables(w); v++) {
        free(w->weights[v].data);
        free(w->gradients[v].data);
    }
}
