// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/replicas.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/collective/collective.h"
#include "workerd/job/cores.h"
#include "workerd/job/objectives.h"
#include "workerd/job/timeline.h"
#include "workerd/strategy/configuration.h"

// "gpu:1", or without a list the job's own.
static void replicas_name_device(const struct ps_job *job, uint32_t i, char *text, size_t size)
{
    const struct ps_job_device *d = job->devices.n ? &job->devices.device[i] : NULL;
    if (d)
        snprintf(text, size, "%s:%d", d->kind, d->index);
    else
        snprintf(text, size, "%s", job->device);
}

static const enum nn_precision replicas_precision[] = {
    [PS_PRECISION_FLOAT32] = NN_FLOAT32,
    [PS_PRECISION_TENSORFLOAT32] = NN_TENSORFLOAT32,
    [PS_PRECISION_BFLOAT16] = NN_BFLOAT16,
};

static const enum nn_convolutions replicas_convolutions[] = {
    [PS_CUDNN_DETERMINISTIC] = NN_CONVOLUTIONS_DETERMINISTIC,
    [PS_CUDNN_FASTEST] = NN_CONVOLUTIONS_FASTEST,
    [PS_CUDNN_NONE] = NN_CONVOLUTIONS_OWN,
};

// After its precision: what is measured is measured with that.
static enum ps_code replicas_set_cudnn(struct wk_run *run, uint32_t i, const struct nn_device *device,
                                       struct ps_error *e)
{
    const int wanted = run->env.job->cudnn;
    const char *const name = wanted == PS_CUDNN_FASTEST ? "fastest" : "none";
    if (wanted == PS_CUDNN_DETERMINISTIC)
        return PS_OK;
    if (!device->set_convolutions)
        return ps_fail(e, PS_FAILED_PRECONDITION, "cudnn is %s, and replica %u is on a %s: expected a GPU", name, i,
                       device->name);
    if (nn_replica_set_convolutions(run->env.replica, replicas_convolutions[wanted], e))
        return ps_error_prefix(e, "cudnn is %s", name);
    return PS_OK;
}

enum ps_code wk_replica_create(struct wk_run *run, uint32_t i, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    const struct nn_device *found;
    char device[32];
    int index;
    struct wk_objectives o;
    replicas_name_device(job, i, device, sizeof device);
    if (nn_device_find(device, &found, &index, e))
        return ps_error_prefix(e, "device %s", device);
    if (wk_objectives_bind(&o, job, run->env.model, e) ||
        nn_replica_create(run->env.model, device, job->batch_size, job->threads, job->seed, o.loss, &run->env.replica,
                          e))
        return e->code;
    nn_replica_set_precision(run->env.replica, replicas_precision[job->matmul_precision]);
    if (replicas_set_cudnn(run, i, found, e))
        return e->code;
    return nn_replica_measure(run->env.replica, o.metric, o.n_metrics, e);
}

// One on a thread.
struct replica {
    struct wk_run run;
    const struct wk_cores *cores;
    pthread_t thread;
    bool runs;  // the thread has been started
    struct ps_error error;
};

uint32_t wk_replicas_of_worker(const struct wk_run *run)
{
    const size_t n = run->env.job->devices.n;
    return run->strategy->replicates && n ? (uint32_t)n : 1;
}

// What goes wrong with one is told to the others, who would wait for it.
static void replicas_tell(const struct wk_run *run, const struct ps_error *e)
{
    if (run->env.collective && e->code)
        wk_collective_fail(run->env.collective, run->env.device, e);
}

static void *replica_thread(void *arg)
{
    struct replica *r = arg;
    struct wk_run *run = &r->run;
    wk_cores_bind(r->cores, run->env.device);
    if (wk_replica_create(run, run->env.device, &r->error) == PS_OK) {
        wk_timeline_add(run);
        if (run->strategy->open(&run->env, &run->state, &r->error) == PS_OK)
            wk_loop(run, &r->error);
    }
    replicas_tell(run, &r->error);
    return NULL;
}

// Those beside replica 0, which is `run`.
static struct replica *replicas_start(const struct wk_run *run, const struct wk_cores *cores, uint32_t n)
{
    struct replica *all = ps_alloc(n * sizeof *all);
    for (uint32_t i = 1; i < n; i++) {
        struct wk_run *own = &all[i].run;
        own->env = run->env;
        own->env.replica_rank += i;
        own->env.device = i;
        own->env.replica = NULL;
        own->env.waits = NULL;
        own->strategy = run->strategy;
        own->data = run->data;
        own->resume = run->resume;
        own->metrics = run->metrics;
        own->started = run->started;
        own->quiet = true;
        all[i].cores = cores;
        const int failed = pthread_create(&all[i].thread, NULL, replica_thread, &all[i]);
        all[i].runs = failed == 0;
        if (failed) {
            ps_fail(&all[i].error, PS_RESOURCE_EXHAUSTED, "no thread for replica %u: %s", i, strerror(failed));
            replicas_tell(own, &all[i].error);
        }
    }
    return all;
}

// Waits for them. *e, replica 0's, becomes the error that the others are a consequence of.
static void replicas_join(struct replica *all, uint32_t n, struct ps_error *e)
{
    for (uint32_t i = 1; i < n; i++) {
        if (all[i].runs)
            pthread_join(all[i].thread, NULL);
        const struct ps_error *theirs = &all[i].error;
        if (theirs->code && (e->code == PS_OK || (e->code == PS_ABORTED && theirs->code != PS_ABORTED)))
            *e = *theirs;
    }
}

static void replicas_free(struct replica *all, uint32_t n, const struct ps_error *why)
{
    for (uint32_t i = 1; i < n; i++) {
        struct wk_run *run = &all[i].run;
        if (run->state)
            run->strategy->close(run->state, why);
        wk_run_free(run);
        nn_replica_free(run->env.replica);
    }
    free(all);
}

static enum ps_code replicas_meet(struct wk_run *run, const struct wk_replicas_options *o, uint32_t n,
                                  struct ps_error *e)
{
    char *configuration = wk_configuration_to_meet(&run->env);
    struct wk_peers_options peers = o->peers;
    peers.configuration = configuration;
    enum ps_code code = wk_collective_open(&peers, n, &run->env.collective, e);
    free(configuration);
    return code;
}

static enum ps_code replicas_plan_cores(const struct wk_run *run, uint32_t n, struct wk_cores **cores,
                                        struct ps_error *e)
{
    char text[512];
    if (wk_cores_plan(run->env.job->bind, n, cores, e))
        return e->code;
    if (*cores && !run->quiet) {
        wk_cores_text(*cores, text, sizeof text);
        ps_info("cores: %s", text);
    }
    return PS_OK;
}

// Replica 0 is this thread, whose cores are not those of the threads between.
static enum ps_code replicas_create_first(struct wk_run *run, const struct wk_cores *cores, struct ps_error *e)
{
    wk_cores_bind(cores, 0);
    enum ps_code code = wk_replica_create(run, 0, e);
    wk_cores_release(cores);
    return code;
}

static enum ps_code replicas_train(struct wk_run *run, const struct wk_replicas_options *o,
                                   const struct wk_cores *cores, struct ps_error *e)
{
    const uint32_t n = wk_replicas_of_worker(run);
    run->env.replica_rank = run->env.rank * n;
    run->env.replicas = run->env.workers * n;
    e->code = PS_OK;
    if (replicas_create_first(run, cores, e) || o->made(o->arg, e) ||
        (run->strategy->replicates && replicas_meet(run, o, n, e)))
        return e->code;
    wk_timeline_add(run);
    struct replica *others = replicas_start(run, cores, n);
    wk_cores_bind(cores, 0);
    if (run->strategy->open(&run->env, &run->state, e) == PS_OK) {
        o->opened(o->arg);
        o->work(run, o->arg, e);
    }
    replicas_tell(run, e);
    replicas_join(others, n, e);
    const struct ps_error *why = e->code ? e : NULL;
    wk_collective_close(run->env.collective, why ? why->text : NULL);
    replicas_free(others, n, why);
    if (run->state)
        run->strategy->close(run->state, why);
    run->state = NULL;
    return e->code;
}

enum ps_code wk_replicas_train(struct wk_run *run, const struct wk_replicas_options *o, struct ps_error *e)
{
    struct wk_cores *cores;
    if (replicas_plan_cores(run, wk_replicas_of_worker(run), &cores, e))
        return e->code;
    enum ps_code code = replicas_train(run, o, cores, e);
    wk_cores_release(cores);
    wk_cores_free(cores);
    return code;
}
