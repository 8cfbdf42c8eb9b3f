// SPDX-License-Identifier: Apache-2.0
//
// parameter_server: the variables live on the ps tasks. A step pulls them, and pushes its gradients; in sync jobs the
// pull waits for the round that the last push was part of.
//
// Push and the next pull leave together at the end of a step and are waited for at the beginning of the next one.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/philox.h"
#include "libclient/psclient.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/variables.h"

enum { LEASE_BATCHES = 4 };

struct parameter_server {
    const struct wk_env *env;
    bool sync;
    psc_client *client;
    size_t n;
    psc_tensor *weights, *gradients;   // [n]
    psc_op *push, *pull;               // under way
    uint64_t round;                    // of the last push
    uint64_t epoch, global_step;       // sync: position in the epoch, in global batches
    uint64_t lease_first, lease_left;  // async
};

// ---- open ---------------------------------------------------------------------------------------------------------

static enum ps_code connect_cluster(struct parameter_server *s, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    psc_error error;
    psc_cluster *cluster;
    psc_options options = {
        .job = job->name,
        .rank = (int)s->env->rank,
        .workers = s->env->workers,
        .min_workers = s->env->min_workers,
        .update = s->sync ? PSC_SYNC : PSC_ASYNC,
        .on_existing = (psc_on_existing)job->on_existing,
        .timeout_ms = (int)(job->timeout * 1000),
    };
    if (psc_cluster_create(s->env->ps, s->env->n_ps, &cluster, &error))
        return wk_take_error(&error, e);
    psc_code code = psc_connect(cluster, &options, &s->client, &error);
    psc_cluster_free(cluster);
    return code ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code declare(struct parameter_server *s, bool *resumed, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    psc_error error;
    psc_declaration d = {
        .rule = job->rule, .placement = job->placement, .partitioner = job->partitioner, .n_hypers = job->n_hypers};
    psc_hyper *hypers = ps_alloc(job->n_hypers * sizeof *hypers);
    for (size_t i = 0; i < job->n_hypers; i++)
        hypers[i] = (psc_hyper){job->hypers[i].name, job->hypers[i].value};
    psc_variable *variables = wk_variables(s->env->model, &d.n_variables);
    d.variables = variables;
    d.hypers = hypers;
    psc_code code = psc_declare(s->client, &d, resumed, &error);
    free(variables);
    free(hypers);
    return code ? wk_take_error(&error, e) : PS_OK;
}

// The chief's: initial weights, unless the job goes on with old ones.
static enum ps_code put_initial(struct parameter_server *s, bool resumed, struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    if (wk_history_clear(s->client, e))
        return e->code;
    if (resumed)
        return PS_OK;
    if (wk_init_weights(s->env, e))
        return e->code;
    psc_put(s->client, s->weights, s->n, NULL, NULL, &op);
    return psc_wait(op, NULL, &error) ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code barrier(struct parameter_server *s, const char *name, struct ps_error *e)
{
    psc_error error;
    return psc_barrier(s->client, name, &error) ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code agree_on_weights(struct parameter_server *s, struct ps_error *e)
{
    psc_error error;
    bool resumed = false;
    if (s->env->rank == 0) {
        if (declare(s, &resumed, e) || put_initial(s, resumed, e))
            return e->code;
    } else if (psc_attach(s->client, &error)) {
        return wk_take_error(&error, e);
    }
    return barrier(s, "start", e);
}

static void parameter_server_close(void *state, const char *reason)
{
    struct parameter_server *s = state;
    psc_error ignored;
    if (s->client)
        psc_close(s->client, reason);
    // What was under way when the job failed has ended with the client; its handles are still ours.
    if (s->push)
        psc_wait(s->push, NULL, &ignored);
    if (s->pull)
        psc_wait(s->pull, NULL, &ignored);
    free(s->weights);
    free(s->gradients);
    free(s);
}

static enum ps_code parameter_server_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    struct parameter_server *s = ps_alloc(sizeof *s);
    s->env = env;
    s->sync = env->job->update == PSC_SYNC;
    s->n = nn_model_params(env->model);
    s->weights = ps_alloc(s->n * sizeof *s->weights);
    s->gradients = ps_alloc(s->n * sizeof *s->gradients);
    for (size_t i = 0; i < s->n; i++) {
        const struct nn_param *p = nn_model_param(env->model, i);
        s->weights[i] = (psc_tensor){p->name, nn_replica_param(env->replica, i), p->count, PSC_FLOAT32};
        s->gradients[i] = (psc_tensor){p->name, nn_replica_grad(env->replica, i), p->count, PSC_FLOAT32};
    }
    if (connect_cluster(s, e) || agree_on_weights(s, e)) {
        parameter_server_close(s, e->text);
        return e->code;
    }
    *state = s;
    return PS_OK;
}

// Waits for one of the operations under way. A signal ends the waiting, not the operation: that ends with the client.
static enum ps_code settle_one(struct parameter_server *s, psc_op **op, struct ps_error *e)
{
    enum { LOOK_MS = 200 };
    psc_error error;
    if (!*op)
        return PS_OK;
    while (!psc_done(*op, LOOK_MS))
        if (*s->env->stop)
            return ps_fail(e, PS_CANCELLED, "stopped by signal %d", (int)*s->env->stop);
    psc_code code = psc_wait(*op, NULL, &error);
    *op = NULL;
    return code ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code settle(struct parameter_server *s, struct ps_error *e)
{
    return settle_one(s, &s->push, e) || settle_one(s, &s->pull, e) ? e->code : PS_OK;
}

// ---- which examples -----------------------------------------------------------------------------------------------

// Global batch s is positions [s G, (s + 1) G) with G = workers * batch size; worker i takes its slice i.
static enum wk_next next_slice(struct parameter_server *s, uint64_t epoch, bool idle, struct wk_work *work)
{
    uint64_t batch = (uint64_t)s->env->job->batch_size, n = s->env->examples;
    if (epoch != s->epoch) {
        s->epoch = epoch;
        s->global_step = 0;
    }
    uint64_t global = s->global_step * batch * s->env->workers, first = global + s->env->rank * batch;
    if (global >= n)
        return idle ? WK_EPOCH_END : WK_LATER;
    s->global_step++;
    work->epoch = epoch;
    work->first = first < n ? first : n;
    work->rows = (int)(n - work->first < batch ? n - work->first : batch);
    return WK_BATCH;
}

// Ranges are leased from the control task, a few batches at a time; the next one when the last has been pushed.
static enum wk_next next_leased(struct parameter_server *s, uint64_t epoch, bool idle, struct wk_work *work,
                                struct ps_error *e)
{
    uint64_t batch = (uint64_t)s->env->job->batch_size;
    psc_error error;
    if (s->lease_left == 0) {
        if (!idle)
            return WK_LATER;
        if (settle_one(s, &s->push, e))
            return WK_FAILED;
        psc_share share;
        if (psc_lease(s->client, epoch, s->env->examples, LEASE_BATCHES * batch, 0, &share, &error)) {
            wk_take_error(&error, e);
            return WK_FAILED;
        }
        s->lease_first = share.first;
        s->lease_left = share.count;
        if (s->lease_left == 0)
            return WK_EPOCH_END;
    }
    work->epoch = epoch;
    work->first = s->lease_first;
    work->rows = (int)(s->lease_left < batch ? s->lease_left : batch);
    s->lease_first += (uint64_t)work->rows;
    s->lease_left -= (uint64_t)work->rows;
    return WK_BATCH;
}

static enum wk_next parameter_server_next(void *state, uint64_t epoch, bool idle, struct wk_work *work,
                                          struct ps_error *e)
{
    struct parameter_server *s = state;
    return s->sync ? next_slice(s, epoch, idle, work) : next_leased(s, epoch, idle, work, e);
}

// ---- steps --------------------------------------------------------------------------------------------------------

static void start_pull(struct parameter_server *s)
{
    psc_pull(s->client, s->weights, s->n, s->round, NULL, NULL, &s->pull);
}

static enum ps_code parameter_server_begin_step(void *state, uint64_t step, struct ps_error *e)
{
    struct parameter_server *s = state;
    if (step == 0)
        start_pull(s);
    return settle(s, e);
}

// For tests and demonstrations: a worker that is late at random.
static void delay(const struct parameter_server *s, uint64_t step)
{
    uint32_t word[4];
    if (s->env->job->delay_ms <= 0)
        return;
    ps_philox(s->env->job->seed, PS_RANDOM_DELAY, s->env->rank, step, word);
    uint64_t ns = (uint64_t)(ps_uniform(word[0]) * (float)s->env->job->delay_ms * (float)PS_MS);
    struct timespec t = {(time_t)(ns / PS_SECOND), (long)(ns % PS_SECOND)};
    nanosleep(&t, NULL);
}

static enum ps_code parameter_server_end_step(void *state, uint64_t step, int rows, struct ps_error *e)
{
    struct parameter_server *s = state;
    (void)e;
    if (rows == 0)
        for (size_t i = 0; i < s->n; i++)
            memset(s->gradients[i].data, 0, s->gradients[i].count * sizeof(float));
    delay(s, step);
    s->round = s->sync ? step + 1 : 0;
    psc_push(s->client, s->gradients, s->n, &(psc_push_options){.round = s->round, .examples = (uint64_t)rows}, NULL,
             NULL, &s->push);
    start_pull(s);
    return PS_OK;
}

static enum ps_code parameter_server_refresh(void *state, struct ps_error *e)
{
    struct parameter_server *s = state;
    if (settle(s, e))
        return e->code;
    start_pull(s);
    return settle(s, e);
}

// ---- end ----------------------------------------------------------------------------------------------------------

static bool parameter_server_is_chief(void *state)
{
    struct parameter_server *s = state;
    return psc_is_chief(s->client);
}

static enum ps_code parameter_server_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    struct parameter_server *s = state;
    if (settle(s, e) || wk_history_join(s->client, s->sync, history, e) || barrier(s, "finish", e))
        return e->code;
    return psc_is_chief(s->client) ? parameter_server_refresh(s, e) : PS_OK;
}

static void parameter_server_report(void *state, uint64_t step, double images_per_second, double loss)
{
    struct parameter_server *s = state;
    psc_report(s->client, step, images_per_second, loss);
}

const struct wk_strategy wk_parameter_server = {
    .name = "parameter_server",
    .open = parameter_server_open,
    .next = parameter_server_next,
    .begin_step = parameter_server_begin_step,
    .end_step = parameter_server_end_step,
    .refresh = parameter_server_refresh,
    .finish = parameter_server_finish,
    .is_chief = parameter_server_is_chief,
    .report = parameter_server_report,
    .close = parameter_server_close,
};
