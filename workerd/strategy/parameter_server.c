// SPDX-License-Identifier: Apache-2.0
//
// parameter_server, and of local_steps what it has alike: joins the job, which the chief declares and puts initial
// weights into; what all have seen and who writes the results, at the end. What happens in between:
// parameter_server.h says where.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/strategy/configuration.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/parameter_server.h"
#include "workerd/strategy/variables.h"

// ---- open ---------------------------------------------------------------------------------------------------------

static void say_what_it_waits_for(void *arg, const char *what)
{
    (void)arg;
    ps_info("waiting for %s", what);
}

static enum ps_code connect_cluster(struct wk_parameter_server_state *s, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    psc_error error;
    psc_cluster *cluster;
    psc_options options = {
        .job = job->name,
        .rank = (int)s->env->rank,
        .workers = s->env->workers,
        .min_workers = s->env->min_workers,
        .update = s->update,
        .staleness = (uint32_t)job->staleness,
        .share_rounds = s->share_rounds,
        .follows_mode = s->follows_mode,
        .share_batch = s->follows_mode ? (uint64_t)job->batch_size : 0,
        .on_existing = (psc_on_existing)job->on_existing,
        .timeout_ms = (int)(job->timeout * 1000),
        .join_within_ms = (int)(job->timeout * 1000),
        .stop = s->env->stop,
        .waits = say_what_it_waits_for,
    };
    if (wk_psd_cluster(s->env, &cluster, &error))
        return wk_take_error(&error, e);
    char *configuration = wk_configuration_to_begin(s->env);
    options.configuration = configuration;
    psc_code code = psc_connect(cluster, &options, &s->client, &error);
    psc_cluster_free(cluster);
    free(configuration);
    return code ? wk_take_error(&error, e) : PS_OK;
}

// delayed_nesterov: unless the job says otherwise, momentum follows as many differences as there are workers.
static double strategy_hyper_value(const struct wk_env *env, const struct ps_hyper *h)
{
    const bool fits = env->job->update == PS_ASYNC && h->value == 0 && strcmp(h->name, "delay") == 0;
    return fits ? (double)env->workers : h->value;
}

static enum ps_code strategy_declare(struct wk_parameter_server_state *s, bool *resumed, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    psc_error error;
    const struct ps_outer_optimizer *outer = job->strategy == PS_STRATEGY_LOCAL_STEPS ? &job->outer : NULL;
    const struct ps_schedule none = {.kind = PS_SCHEDULE_NONE}, *from = outer ? &none : &job->schedule;
    const struct ps_hyper *hyper = outer ? outer->hypers : job->hypers;
    psc_schedule schedule = {
        .kind = ps_schedule_name(from->kind),
        .boundaries = from->kind == PS_PIECEWISE ? from->boundary : NULL,
        .values = from->kind == PS_PIECEWISE ? from->value : NULL,
    };
#define COPY(name) schedule.name = from->name;
    PS_SCHEDULE_NUMBERS(COPY)
#undef COPY
    psc_declaration d = {
        .rule = outer ? outer->rule : job->rule,
        .placement = job->placement,
        .partitioner = job->partitioner,
        .n_hypers = outer ? outer->n_hypers : job->n_hypers,
        .schedule = from->kind == PS_SCHEDULE_NONE ? NULL : &schedule,
        .replicas_to_aggregate = (uint32_t)job->replicas_to_aggregate,
        .grace_ms = (uint32_t)(job->grace_seconds * 1000 + 0.5),
    };
    psc_hyper *hypers = ps_alloc(d.n_hypers * sizeof *hypers);
    for (size_t i = 0; i < d.n_hypers; i++)
        hypers[i] = (psc_hyper){hyper[i].name, strategy_hyper_value(s->env, &hyper[i])};
    psc_variable *variables = wk_variables(s->env->model, s->env->has, s->state_momentum, &d.n_variables);
    d.variables = variables;
    d.hypers = hypers;
    psc_code code = psc_declare(s->client, &d, resumed, &error);
    free(variables);
    free(hypers);
    return code ? wk_take_error(&error, e) : PS_OK;
}

// The chief's: initial weights, unless the job goes on with old ones, or a checkpoint has them.
static enum ps_code put_initial(struct wk_parameter_server_state *s, bool resumed, struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    if (resumed || s->env->checkpoint)
        return PS_OK;
    psc_put(s->client, s->weights, s->n, NULL, NULL, &op);
    return psc_wait(op, NULL, &error) ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code agree_on_weights(struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_error error;
    bool resumed = false;
    if (s->env->rank == 0 && !psc_is_late(s->client)) {
        if (strategy_declare(s, &resumed, e))
            return e->code;
        if (s->env->job->on_existing == PS_RESUME && !resumed && !s->env->checkpoint)
            ps_warn("the ps tasks have no weights of job '%s' to go on with (on_existing: resume): it begins anew",
                    s->env->job->name);
        if (put_initial(s, resumed, e))
            return e->code;
    } else if (psc_attach(s->client, &error)) {
        return wk_take_error(&error, e);
    }
    return psc_is_late(s->client) ? PS_OK : wk_psd_barrier(s, "start", e);
}

enum ps_code wk_psd_refuse_constraints(const struct wk_env *env, struct ps_error *e)
{
    const struct nn_model *model = env->model;
    for (size_t i = 0; i < nn_model_params(model); i++)
        if (wk_env_has(env, i) && nn_model_constraint(model, i))
            return ps_fail(
                e, PS_FAILED_PRECONDITION,
                "variable '%s' has the constraint %s, which %s does not apply: expected strategy one_device, "
                "mirrored, central_storage or multi_worker_mirrored",
                nn_model_param(model, i)->name, nn_model_constraint(model, i), ps_job_strategies[env->job->strategy]);
    return PS_OK;
}

enum ps_code wk_psd_join(struct wk_parameter_server_state *s, struct ps_error *e)
{
    if (connect_cluster(s, e) || agree_on_weights(s, e))
        return e->code;
    s->was_chief = psc_is_chief(s->client);
    return PS_OK;
}

static void parameter_server_close(void *state, const struct ps_error *why)
{
    struct wk_parameter_server_state *s = state;
    wk_psd_close(s, why);
    wk_home_free(s);
    free(s);
}

static enum ps_code parameter_server_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    if (wk_psd_refuse_constraints(env, e))
        return e->code;
    struct wk_parameter_server_state *s = ps_alloc(sizeof *s);
    s->env = env;
    s->update = (psc_update)env->job->update;
    s->follows_mode = env->job->n_push <= 1 && env->job->n_fetch <= 1;
    // Before anything is opened: with weights or memory that cannot be had no job begins.
    if (wk_home_open(s, e) || (env->rank == 0 && wk_init_weights(env, e)) || wk_psd_join(s, e)) {
        parameter_server_close(s, e);
        return e->code;
    }
    *state = s;
    return PS_OK;
}

// ---- end ----------------------------------------------------------------------------------------------------------

static bool parameter_server_is_chief(void *state)
{
    struct wk_parameter_server_state *s = state;
    return psc_is_chief(s->client);
}

// What the control task knows of gradients that count in part.
static enum ps_code strategy_count_splits(struct wk_parameter_server_state *s, struct wk_history *history,
                                          struct ps_error *e)
{
    psc_splits splits;
    psc_error error;
    if (psc_split_gradients(s->client, &splits, &error))
        return wk_take_error(&error, e);
    history->splits = splits.count;
    history->split_round = splits.round;
    history->split_worker = splits.worker;
    return PS_OK;
}

static enum ps_code parameter_server_sum(void *state, double *values, uint64_t n, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    return s->settle(s, e) ? e->code : wk_history_add_up(s->client, "the end of an epoch", values, n, e);
}

// As Keras's fit does, takes the weights' averages, if they are kept, for the weights from now on.
static enum ps_code parameter_server_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    if (s->settle(s, e) || wk_history_join(s->client, wk_psd_awaits_all(s), history, e))
        return e->code;
    s->averages = history->averaged = wk_home_averages(s);
    return s->update == PSC_SYNC ? strategy_count_splits(s, history, e) : PS_OK;
}

static uint64_t parameter_server_arrival(void *state)
{
    struct wk_parameter_server_state *s = state;
    return psc_arrival(s->client);
}

// Who has been there for longest, and of those the lowest rank, of all who have come this far: what heartbeats told may
// be of the past. -1, below all of them: the results are written.
static enum ps_code parameter_server_elect(void *state, bool written, enum wk_writer *writer, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    const int64_t self = (int64_t)psc_arrival(s->client) * s->env->workers + s->env->rank, done = -1;
    int64_t least = written ? done : self;
    psc_error error;
    if (psc_reduce(s->client, "writer", PSC_MIN, PSC_INT64, &least, 1, NULL, &error))
        return wk_take_error(&error, e);
    *writer = least == done ? WK_NOBODY : least == self ? WK_SELF : WK_ANOTHER;
    return PS_OK;
}

static uint64_t parameter_server_asked(void *state)
{
    const struct wk_parameter_server_state *s = state;
    return psc_checkpoints(s->client);
}

static void parameter_server_answer(void *state, uint64_t number, bool failed, const char *text)
{
    const struct wk_parameter_server_state *s = state;
    psc_report_checkpoint(s->client, number, failed, text);
}

static void parameter_server_report(void *state, uint64_t step, double examples_per_second, double loss)
{
    struct wk_parameter_server_state *s = state;
    psc_report(s->client, step, examples_per_second, loss);
}

static void parameter_server_report_progress(void *state, const struct ps_progress *p)
{
    struct wk_parameter_server_state *s = state;
    psc_metric metrics[PS_MAX_PROGRESS];
    for (size_t i = 0; i < p->n; i++)
        metrics[i] = (psc_metric){p->metric[i].name, p->metric[i].value};
    if (p->checkpoints != PS_CHECKPOINTS_UNKNOWN)
        psc_report_saved(s->client, p->checkpoints == PS_CHECKPOINTS_SOME, p->checkpoint, p->checkpoint_ms);
    psc_report_epoch(s->client, p->epochs, p->ended, metrics, p->n);
}

static bool parameter_server_in_rounds(void *state)
{
    const struct wk_parameter_server_state *s = state;
    return s->update == PSC_SYNC;
}

const struct wk_group wk_psd_group = {
    .sum = parameter_server_sum,
    .finish = parameter_server_finish,
    .elect = parameter_server_elect,
    .is_chief = parameter_server_is_chief,
    .arrival = parameter_server_arrival,
    .in_rounds = parameter_server_in_rounds,
    .report = parameter_server_report,
    .report_progress = parameter_server_report_progress,
    .asked = parameter_server_asked,
    .answer = parameter_server_answer,
};

const struct wk_strategy wk_parameter_server = {
    .sharder = &wk_psd_sharder,
    .home = &wk_psd_home,
    .group = &wk_psd_group,
    .open = parameter_server_open,
    .close = parameter_server_close,
};
