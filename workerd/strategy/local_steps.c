// SPDX-License-Identifier: Apache-2.0
//
// local_steps: each worker trains a period of steps alone, with the job's optimizer in its own memory, then pushes the
// weights that it had minus those that it has, as the gradient of an outer rule that the ps tasks apply, and takes what
// comes of it for its weights (DiLoCo: Douillard et al., arXiv 2311.08105; with update async, each worker when it is
// ready: Liu et al., arXiv 2401.09135).
//
//     sync    a period is a round: the outer gradient is the mean of all workers', weighted by their examples. Each
//             trains its part of the round; who has no example left in it pushes a gradient that counts for nothing
//     async   a worker's outer gradient is applied when it arrives
//
// States that follow the batches (moving averages of batch normalisation) become the mean of the workers'. In async one
// worker's moves them by its part of all workers.
//
// The slots of the job's optimizer stay in the worker, from one period to the next, and end with it. An epoch's end is
// a period's end: an epoch is cut into as many equal periods as come nearest to the length that the job asks for.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/strategy/local_rule.h"
#include "workerd/strategy/parameter_server.h"

struct local_steps {
    struct wk_parameter_server_state server;  // first: the sharder and the group know it alone
    struct wk_local_rule rule;
    // server.pushed has the weights with which the period began (of states nothing), then what is pushed of it.
    uint64_t pending, examples;  // steps of the period at hand, or that has not been pushed yet, and their examples
    uint64_t last_step;          // of them
    bool latest;                 // the replica has the values of all variables, and nobody can have changed them since
    double state_momentum;
};

// ---- open ---------------------------------------------------------------------------------------------------------

static uint64_t local_steps_divide(uint64_t a, uint64_t by)
{
    return a / by + (a % by != 0);
}

// Steps of a period: the length nearest to the wanted one that cuts an epoch evenly.
static uint64_t local_steps_period(const struct wk_env *env)
{
    const uint64_t wanted = (uint64_t)env->job->local_steps;
    const uint64_t steps = local_steps_divide(env->examples, (uint64_t)env->job->batch_size * env->workers);
    const uint64_t periods = (2 * steps + wanted) / (2 * wanted);
    return periods > 1 ? local_steps_divide(steps, periods) : steps;
}

static enum ps_code local_steps_settle(struct wk_parameter_server_state *state, struct ps_error *e);

static void local_steps_say_period(const struct local_steps *l)
{
    const struct wk_env *env = l->server.env;
    if (env->rank == 0 && l->server.period != (uint64_t)env->job->local_steps)
        ps_info("weights are exchanged every %" PRIu64 " steps, not %d: this cuts an epoch evenly", l->server.period,
                env->job->local_steps);
}

static enum ps_code local_steps_make_home(struct local_steps *l, struct ps_error *e)
{
    struct wk_parameter_server_state *s = &l->server;
    const struct ps_rule *rule;
    if (ps_job_server_rule(s->env->job, &rule, s->hyper, e))
        return e->code;
    wk_home_add_tensors(s);
    s->pushed = s->gradients;
    s->n_buckets = s->n_trained > 0;
    s->bucket = ps_alloc(sizeof *s->bucket);
    *s->bucket = (struct wk_bucket){.n = s->n_trained};
    wk_home_name_buckets(s);
    return wk_local_rule_open(&l->rule, s->env, e) || wk_home_make_pushed(s, e) ? e->code : PS_OK;
}

static void local_steps_close(void *state, const char *reason)
{
    struct local_steps *l = state;
    if (l->server.client)
        psc_close(l->server.client, reason);
    wk_home_free(&l->server);
    wk_local_rule_close(&l->rule);
    free(l);
}

static struct local_steps *local_steps_create(const struct wk_env *env)
{
    struct local_steps *l = ps_alloc(sizeof *l);
    l->server.env = l->rule.env = env;
    l->server.update = (psc_update)env->job->update;
    l->server.settle = local_steps_settle;
    l->server.period = local_steps_period(env);
    l->server.share_rounds = l->server.update == PSC_SYNC ? 1 : 0;  // who comes late trains the next period
    l->state_momentum = env->job->update == PS_SYNC ? 0 : 1 - 1.0 / env->workers;
    l->server.state_momentum = &l->state_momentum;
    return l;
}

static enum ps_code local_steps_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    if (wk_psd_refuse_constraints(env->model, "local_steps", e))
        return e->code;
    struct local_steps *l = local_steps_create(env);
    if (local_steps_make_home(l, e) || (env->rank == 0 && wk_init_weights(env, e)) || wk_psd_join(&l->server, e)) {
        local_steps_close(l, e->text);
        return e->code;
    }
    local_steps_say_period(l);
    *state = l;
    return PS_OK;
}

// ---- a period's end -----------------------------------------------------------------------------------------------

// The weights with which a period begins.
static void local_steps_keep(struct local_steps *l)
{
    struct wk_parameter_server_state *s = &l->server;
    for (size_t i = 0; i < s->n_trained; i++)
        memcpy(s->pushed[i].data, s->weights[i].data, s->weights[i].count * sizeof(float));
}

// What is pushed of a period: how far the weights have moved, against the direction; a state as it is.
static void local_steps_make_difference(struct local_steps *l)
{
    struct wk_parameter_server_state *s = &l->server;
    for (size_t i = 0; i < s->n_trained; i++) {
        float *pushed = s->pushed[i].data;
        const float *now = s->weights[i].data;
        for (uint64_t k = 0; k < s->weights[i].count; k++)
            pushed[k] = s->learns[i] ? pushed[k] - now[k] : now[k];
    }
}

// Where a round closes without this worker (replicas_to_aggregate), it is the one after the last that this worker has
// seen: too late, it is dropped there.
static uint64_t local_steps_round(const struct local_steps *l)
{
    const struct wk_parameter_server_state *s = &l->server;
    if (s->update != PSC_SYNC)
        return 0;
    return s->env->job->replicas_to_aggregate ? s->closed + 1 : l->last_step / s->period + 1;
}

static enum ps_code local_steps_exchange(struct local_steps *l, struct ps_error *e)
{
    struct wk_parameter_server_state *s = &l->server;
    wk_home_delay(s, l->last_step);
    local_steps_make_difference(l);
    s->round = local_steps_round(l);
    s->in_push = s->trained;
    if (s->n_buckets) {
        wk_home_push(s, s->bucket, l->examples, true);
        if (wk_home_settle_bucket(s, s->bucket, e))
            return e->code;
    }
    local_steps_keep(l);
    l->pending = l->examples = 0;
    l->latest = s->update == PSC_SYNC && !s->env->job->replicas_to_aggregate && !s->env->job->steps;
    return PS_OK;
}

static enum ps_code local_steps_settle(struct wk_parameter_server_state *state, struct ps_error *e)
{
    struct local_steps *l = (struct local_steps *)state;
    return l->pending ? local_steps_exchange(l, e) : PS_OK;
}

// ---- a step -------------------------------------------------------------------------------------------------------

static enum ps_code local_steps_begin(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct local_steps *l = state;
    struct wk_parameter_server_state *s = &l->server;
    if (s->has_weights)
        return PS_OK;
    if (wk_home_pull_all(s, s->update == PSC_SYNC ? s->share.round : 0, e))
        return e->code;
    l->rule.began = work->step;
    local_steps_keep(l);
    return PS_OK;
}

// A step of no rows has no gradient, and its worker waits for the others with the weights that it has.
static enum ps_code local_steps_end(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct local_steps *l = state;
    if (l->server.env->job->refuse_nonfinite && wk_local_rule_check_finite(&l->rule, e))
        return e->code;
    if (work->rows)
        wk_local_rule_apply(&l->rule, work->step);
    l->server.trained++;
    l->pending++;
    l->examples += (uint64_t)work->rows;
    l->last_step = work->step;
    l->latest = false;
    return work->ends_period ? local_steps_exchange(l, e) : PS_OK;
}

// In the middle of a period a worker's own weights are what there is.
static enum ps_code local_steps_refresh(void *state, struct ps_error *e)
{
    struct local_steps *l = state;
    struct wk_parameter_server_state *s = &l->server;
    if (l->pending || (l->latest && !s->averages))
        return PS_OK;
    if (wk_home_pull_all(s, s->round, e))
        return e->code;
    local_steps_keep(l);
    return PS_OK;
}

// ---- what steers --------------------------------------------------------------------------------------------------

static double local_steps_rate(void *state)
{
    const struct local_steps *l = state;
    return l->rule.hyper[PS_HYPER_LEARNING_RATE];
}

static void local_steps_set_rate(void *state, double rate)
{
    struct local_steps *l = state;
    l->rule.hyper[PS_HYPER_LEARNING_RATE] = rate;
}

// The slots are each worker's own, and the outer ones stay on the ps tasks.
static void local_steps_save(void *state, struct wk_checkpoint *to)
{
    json_object_set_new(to->json, "learning_rate", json_real(local_steps_rate(state)));
}

static const struct wk_home local_steps_home = {
    .begin = local_steps_begin,
    .end = local_steps_end,
    .refresh = local_steps_refresh,
    .salvage = wk_home_salvage,
    .save = local_steps_save,
    .rate = local_steps_rate,
    .set_rate = local_steps_set_rate,
};

const struct wk_strategy wk_local_steps = {
    .name = "local_steps",
    .tasks = WK_TASKS_PS,
    .sharder = &wk_psd_sharder,
    .home = &local_steps_home,
    .group = &wk_psd_group,
    .open = local_steps_open,
    .close = local_steps_close,
};
