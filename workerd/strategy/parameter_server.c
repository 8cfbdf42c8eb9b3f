// SPDX-License-Identifier: Apache-2.0
//
// parameter_server: the variables live on the ps tasks. A step pulls them, and pushes its gradients.
//
// Gradients are pushed of what is trained, and that is what a step pulls. The other variables are pulled once, and for
// evaluations.
//
// async, sync: push and the next pull leave together at the end of a step and are waited for at the beginning of the
// next one; in sync jobs the pull waits for the round that the push is part of. ssp: the pull waits for the clock
// first.
//
// async with n_fetch and n_push (Dean et al., Large Scale Distributed Deep Networks, NIPS 2012, section 4.1 and its
// appendix): weights are pulled every n_fetch steps and changed by plain SGD with the worker's own gradients between,
// at the rate that the ps tasks apply by then; gradients are added up and pushed every n_push steps, and what there is
// before an evaluation and at the end of an epoch.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/math/philox.h"
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
        .on_existing = (psc_on_existing)job->on_existing,
        .timeout_ms = (int)(job->timeout * 1000),
        .stop = s->env->stop,
        .waits = say_what_it_waits_for,
    };
    if (psc_cluster_create(s->env->ps, s->env->n_ps, &cluster, &error))
        return wk_take_error(&error, e);
    char *configuration = wk_configuration(s->env);
    options.configuration = configuration;
    psc_code code = psc_connect(cluster, &options, &s->client, &error);
    psc_cluster_free(cluster);
    free(configuration);
    return code ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code strategy_declare(struct wk_parameter_server_state *s, bool *resumed, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    psc_error error;
    const struct ps_schedule *from = &job->schedule;
    const psc_schedule schedule = {
        .kind = ps_schedule_name(from->kind),
        .initial = from->initial,
        .decay_steps = from->decay_steps,
        .decay_rate = from->decay_rate,
        .staircase = from->staircase,
        .alpha = from->alpha,
        .boundaries = from->kind == PS_PIECEWISE ? from->boundary : NULL,
        .values = from->kind == PS_PIECEWISE ? from->value : NULL,
        .n_boundaries = from->n_boundaries,
        .warmup_steps = from->warmup_steps,
        .warmup_initial = from->warmup_initial,
        .t_mul = from->t_mul,
        .m_mul = from->m_mul,
        .end_learning_rate = from->end_learning_rate,
        .power = from->power,
        .cycle = from->cycle,
    };
    psc_declaration d = {
        .rule = job->rule,
        .placement = job->placement,
        .partitioner = job->partitioner,
        .n_hypers = job->n_hypers,
        .schedule = from->kind == PS_SCHEDULE_NONE ? NULL : &schedule,
        .replicas_to_aggregate = (uint32_t)job->replicas_to_aggregate,
    };
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
static enum ps_code put_initial(struct wk_parameter_server_state *s, bool resumed, struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    if (resumed)
        return PS_OK;
    psc_put(s->client, s->weights, s->n, NULL, NULL, &op);
    return psc_wait(op, NULL, &error) ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code strategy_barrier(struct wk_parameter_server_state *s, const char *name, struct ps_error *e)
{
    psc_error error;
    return psc_barrier(s->client, name, &error) ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code agree_on_weights(struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_error error;
    bool resumed = false;
    if (s->env->rank == 0 && !psc_is_late(s->client)) {
        if (strategy_declare(s, &resumed, e) || put_initial(s, resumed, e))
            return e->code;
    } else if (psc_attach(s->client, &error)) {
        return wk_take_error(&error, e);
    }
    return psc_is_late(s->client) ? PS_OK : strategy_barrier(s, "start", e);
}

static void parameter_server_close(void *state, const char *reason)
{
    struct wk_parameter_server_state *s = state;
    psc_error ignored;
    if (s->client)
        psc_close(s->client, reason);
    // What was under way when the job failed has ended with the client; its handles are still ours.
    if (s->push)
        psc_wait(s->push, NULL, &ignored);
    if (s->pull)
        psc_wait(s->pull, NULL, &ignored);
    for (size_t i = 0; s->pushed != s->gradients && i < s->n_trained; i++)
        free(s->pushed[i].data);
    if (s->pushed != s->gradients)
        free(s->pushed);
    free(s->clip);
    free(s->momentum);
    free(s->weights);
    free(s->gradients);
    free(s);
}

// Where gradients are added up before they are pushed.
static enum ps_code strategy_make_sums(struct wk_parameter_server_state *s, struct ps_error *e)
{
    s->pushed = ps_alloc(s->n_trained * sizeof *s->pushed);
    for (size_t i = 0; i < s->n_trained; i++) {
        const psc_tensor *g = &s->gradients[i];
        s->pushed[i] = (psc_tensor){g->name, ps_try_alloc_array(g->count, sizeof(float)), g->count, g->dtype};
        if (!s->pushed[i].data)
            return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                           "no memory for the sum of gradients of '%s', which takes %" PRIu64 " bytes", g->name,
                           g->count * sizeof(float));
    }
    return PS_OK;
}

// The variables that learn, the states, or the others.
static void strategy_add_tensors(struct wk_parameter_server_state *s, bool learns, bool state)
{
    struct nn_replica *replica = s->env->replica;
    for (size_t i = 0; i < nn_model_params(s->env->model); i++) {
        const struct nn_param *p = nn_model_param(s->env->model, i);
        if (p->trainable != learns || (p->rule != NULL) != state)
            continue;
        s->momentum[s->n] = p->momentum;
        s->weights[s->n++] = (psc_tensor){p->name, nn_replica_param(replica, i), p->count, PSC_FLOAT32};
        if (learns || state)
            s->gradients[s->n_trained++] = (psc_tensor){p->name, nn_replica_grad(replica, i), p->count, PSC_FLOAT32};
        s->n_learning += learns;
    }
}

// psd applies rules, and no constraints.
static enum ps_code strategy_refuse_constraints(const struct nn_model *model, struct ps_error *e)
{
    for (size_t i = 0; i < nn_model_params(model); i++)
        if (nn_model_constraint(model, i))
            return ps_fail(e, PS_FAILED_PRECONDITION,
                           "variable '%s' has the constraint %s, which parameter_server does not apply: expected "
                           "strategy one_device",
                           nn_model_param(model, i)->name, nn_model_constraint(model, i));
    return PS_OK;
}

static enum ps_code parameter_server_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    if (strategy_refuse_constraints(env->model, e))
        return e->code;
    struct wk_parameter_server_state *s = ps_alloc(sizeof *s);
    s->env = env;
    s->update = (psc_update)env->job->update;
    size_t n = nn_model_params(env->model);
    s->weights = ps_alloc(n * sizeof *s->weights);
    s->gradients = ps_alloc(n * sizeof *s->gradients);
    s->momentum = ps_alloc(n * sizeof *s->momentum);
    s->clip = ps_alloc(n * sizeof *s->clip);
    strategy_add_tensors(s, true, false);
    strategy_add_tensors(s, false, true);
    strategy_add_tensors(s, false, false);
    s->pushed = s->gradients;
    // Before anything is opened: with weights or memory that cannot be had no job begins.
    if ((env->job->n_push > 1 && strategy_make_sums(s, e)) || (env->rank == 0 && wk_init_weights(env, e)) ||
        connect_cluster(s, e) || agree_on_weights(s, e)) {
        parameter_server_close(s, e->text);
        return e->code;
    }
    *state = s;
    return PS_OK;
}

static uint64_t parameter_server_first_epoch(void *state, bool *late)
{
    struct wk_parameter_server_state *s = state;
    *late = psc_is_late(s->client);
    return *late ? psc_data_epoch(s->client) : 0;
}

static uint64_t parameter_server_seed(void *state)
{
    struct wk_parameter_server_state *s = state;
    uint64_t resumptions = psc_resumptions(s->client), seed = s->env->job->seed;
    uint32_t word[4];
    ps_philox(seed, PS_RANDOM_RESUME, resumptions, 0, word);
    return resumptions ? (uint64_t)word[1] << 32 | word[0] : seed;
}

enum ps_code wk_settle(psc_op **op, psc_result *result, struct ps_error *e)
{
    psc_error error;
    if (!*op)
        return PS_OK;
    psc_code code = psc_wait(*op, result, &error);
    *op = NULL;
    return code ? wk_take_error(&error, e) : PS_OK;
}

enum ps_code wk_settle_push(struct wk_parameter_server_state *s, struct ps_error *e)
{
    bool pushes = s->push != NULL;
    if (wk_settle(&s->push, &s->push_result, e))
        return e->code;
    s->pushed_all = s->in_push;
    if (pushes && s->push_result.version > s->version)
        s->version = s->push_result.version;
    return PS_OK;
}

static enum ps_code settle_pull(struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_result r;
    if (!s->pull)
        return PS_OK;
    if (wk_settle(&s->pull, &r, e))
        return e->code;
    if (r.version == 0)
        return ps_fail(e, PS_ABORTED, "the weights have no values: who opened the job ended before it had put them");
    s->closed = r.round;
    s->version = r.version > s->version ? r.version : s->version;
    s->has_weights = true;
    return PS_OK;
}

static enum ps_code strategy_settle(struct wk_parameter_server_state *s, struct ps_error *e)
{
    return wk_settle_push(s, e) || settle_pull(s, e) ? e->code : PS_OK;
}

// ---- steps --------------------------------------------------------------------------------------------------------

static void start_pull(struct wk_parameter_server_state *s, size_t n, uint64_t round)
{
    psc_pull(s->client, s->weights, n, round, NULL, NULL, &s->pull);
}

// What steps change, once the rest is known.
static void start_pull_for_step(struct wk_parameter_server_state *s, uint64_t round)
{
    start_pull(s, s->has_weights && s->n_trained ? s->n_trained : s->n, round);
}

// Are weights pulled with this step, counted from 0?
static bool strategy_pulls_at(const struct wk_parameter_server_state *s, uint64_t step)
{
    int every = s->env->job->n_fetch;
    return every <= 1 || (step + 1) % (uint64_t)every == 0;
}

// The clock ticks with every step; where weights are pulled it may have to be waited for.
static enum ps_code pull_in_bounds(struct wk_parameter_server_state *s, uint64_t step, struct ps_error *e)
{
    psc_error error;
    if (wk_settle_push(s, e))
        return e->code;
    if (psc_clock(s->client, step, true, NULL, NULL, &error))
        return wk_take_error(&error, e);
    start_pull_for_step(s, 0);
    return PS_OK;
}

static enum ps_code parameter_server_begin_step(void *state, uint64_t step, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    if (s->update == PSC_SSP && pull_in_bounds(s, step, e))
        return e->code;
    if (!s->pull && !s->has_weights)
        start_pull_for_step(s, s->update == PSC_SYNC ? s->share.round : 0);
    return strategy_settle(s, e);
}

// For tests and demonstrations: a worker that is late at random.
static void strategy_delay(const struct wk_parameter_server_state *s, uint64_t step)
{
    uint32_t word[4];
    if (s->env->job->delay_ms <= 0)
        return;
    ps_philox(s->env->job->seed, PS_RANDOM_DELAY, s->env->rank, step, word);
    uint64_t ns = (uint64_t)(ps_uniform(word[0]) * (float)s->env->job->delay_ms * (float)PS_MS);
    struct timespec t = {(time_t)(ns / PS_SECOND), (long)(ns % PS_SECOND)};
    nanosleep(&t, NULL);
}

static double strategy_hyper_value(const struct wk_parameter_server_state *s, const char *name)
{
    const struct ps_job *job = s->env->job;
    for (size_t i = 0; i < job->n_hypers; i++)
        if (strcmp(job->hypers[i].name, name) == 0)
            return job->hypers[i].value;
    return 0;
}

static void strategy_scale_tensor(psc_tensor *t, float by)
{
    float *g = t->data;
    for (uint64_t k = 0; by != 1 && k < t->count; k++)
        g[k] *= by;
}

// Without rounds nobody but the worker has its whole gradient: it clips by norm before it pushes.
static void strategy_clip_by_norm(struct wk_parameter_server_state *s)
{
    double own = strategy_hyper_value(s, "clipnorm"), global = strategy_hyper_value(s, "global_clipnorm"), total = 0;
    if (s->update == PSC_SYNC || (own == 0 && global == 0))
        return;
    for (size_t i = 0; i < s->n_learning; i++) {
        double squares = ps_sum_squares(s->gradients[i].data, s->gradients[i].count);
        s->clip[i] = ps_clip_factor(squares, own);
        total += squares;
    }
    for (size_t i = 0; i < s->n_learning; i++)
        strategy_scale_tensor(&s->gradients[i], global > 0 ? ps_clip_factor(total, global) : s->clip[i]);
}

// The rate that the next gradient meets there, as far as is known here; psctl set-lr is not heard of.
static float strategy_rate(const struct wk_parameter_server_state *s)
{
    const struct ps_schedule *schedule = &s->env->job->schedule;
    const double accumulated = strategy_hyper_value(s, "gradient_accumulation_steps");
    const double rate = schedule->kind == PS_SCHEDULE_NONE
                            ? strategy_hyper_value(s, "learning_rate")
                            : ps_schedule_rate(schedule, s->version ? s->version - 1 : 0);
    return (float)(accumulated > 1 ? rate / accumulated : rate);
}

// The replica's own weights between two pulls.
static void step_alone(struct wk_parameter_server_state *s)
{
    float rate = strategy_rate(s);
    for (size_t i = 0; i < s->n_trained; i++) {
        float *w = s->weights[i].data, keep = (float)s->momentum[i];
        const float *g = s->gradients[i].data;
        bool learns = i < s->n_learning;
        for (uint64_t k = 0; k < s->weights[i].count; k++)
            w[k] = learns ? w[k] - rate * g[k] : keep * w[k] + (1 - keep) * g[k];
    }
}

// Of a state the mean of the batches is pushed.
static void strategy_add_up(struct wk_parameter_server_state *s, uint64_t examples)
{
    for (size_t i = 0; i < s->n_trained; i++) {
        float *sum = s->pushed[i].data, n = (float)(s->summed + 1);
        const float *g = s->gradients[i].data;
        for (uint64_t k = 0; k < s->pushed[i].count; k++)
            sum[k] = !s->summed ? g[k] : i < s->n_learning ? sum[k] + g[k] : sum[k] + (g[k] - sum[k]) / n;
    }
    s->summed++;
    s->summed_examples += examples;
}

static void start_push(struct wk_parameter_server_state *s, uint64_t examples)
{
    s->in_push = s->trained;
    const psc_push_options options = {
        .round = s->round, .examples = examples, .refuse_nonfinite = s->env->job->refuse_nonfinite};
    if (s->n_trained)
        psc_push(s->client, s->pushed, s->n_trained, &options, NULL, NULL, &s->push);
}

enum ps_code wk_flush(struct wk_parameter_server_state *s, struct ps_error *e)
{
    if (!s->summed)
        return PS_OK;
    start_push(s, s->summed_examples);
    s->summed = s->summed_examples = 0;
    return wk_settle_push(s, e);
}

static enum ps_code parameter_server_end_step(void *state, uint64_t step, int rows, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    const struct ps_job *job = s->env->job;
    s->trained++;
    if (rows == 0)
        for (size_t i = 0; i < s->n_trained; i++)
            memset(s->gradients[i].data, 0, s->gradients[i].count * sizeof(float));
    strategy_delay(s, step);
    strategy_clip_by_norm(s);
    s->round = s->update == PSC_SYNC ? s->closed + 1 : 0;
    if (job->n_push <= 1)
        start_push(s, (uint64_t)rows);
    else
        strategy_add_up(s, (uint64_t)rows);
    if (s->summed && s->summed == (uint64_t)job->n_push && wk_flush(s, e))
        return e->code;
    if (s->update == PSC_SSP)
        return PS_OK;
    if (strategy_pulls_at(s, step))
        start_pull_for_step(s, s->round);
    else
        step_alone(s);
    return PS_OK;
}

static enum ps_code parameter_server_refresh(void *state, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    if (wk_flush(s, e) || strategy_settle(s, e))
        return e->code;
    start_pull(s, s->n, s->round);
    return strategy_settle(s, e);
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

static enum ps_code parameter_server_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    bool in_step = s->update == PSC_SYNC && s->env->job->replicas_to_aggregate == 0;
    if (wk_flush(s, e) || strategy_settle(s, e) || wk_history_join(s->client, in_step, history, e))
        return e->code;
    return s->update == PSC_SYNC ? strategy_count_splits(s, history, e) : PS_OK;
}

// The lowest rank of those who have come this far: what heartbeats told may be of the past. Less than any rank, and the
// end of it, is who has written.
static enum ps_code parameter_server_elect(void *state, bool written, enum wk_writer *writer, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    const int64_t self = s->env->rank, done = -1;
    int64_t least = written ? done : self;
    psc_error error;
    if (psc_reduce(s->client, "writer", PSC_MIN, PSC_INT64, &least, 1, NULL, &error))
        return wk_take_error(&error, e);
    *writer = least == done ? WK_NOBODY : least == self ? WK_SELF : WK_ANOTHER;
    return PS_OK;
}

static void parameter_server_report(void *state, uint64_t step, double images_per_second, double loss)
{
    struct wk_parameter_server_state *s = state;
    psc_report(s->client, step, images_per_second, loss);
}

const struct wk_strategy wk_parameter_server = {
    .name = "parameter_server",
    .open = parameter_server_open,
    .first_epoch = parameter_server_first_epoch,
    .seed = parameter_server_seed,
    .next = wk_examples_next,
    .begin_step = parameter_server_begin_step,
    .end_step = parameter_server_end_step,
    .refresh = parameter_server_refresh,
    .finish = parameter_server_finish,
    .elect = parameter_server_elect,
    .is_chief = parameter_server_is_chief,
    .report = parameter_server_report,
    .close = parameter_server_close,
};
