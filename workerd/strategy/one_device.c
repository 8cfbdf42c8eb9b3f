// SPDX-License-Identifier: Apache-2.0
//
// one_device: the variables are the replica's own, the rule is applied where they lie.
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/rule.h"
#include "workerd/strategy/strategy.h"

struct one_device {
    const struct wk_env *env;
    const struct ps_rule *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    float **slots;  // [params * rule->slots]
    uint64_t epoch, at;
};

static void one_device_close(void *state, const char *reason)
{
    struct one_device *s = state;
    (void)reason;
    for (size_t i = 0; i < nn_model_params(s->env->model) * (size_t)s->rule->slots; i++)
        free(s->slots[i]);
    free(s->slots);
    free(s);
}

static enum ps_code take_rule(struct one_device *s, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    s->rule = ps_rule_find(job->rule);
    if (!s->rule)
        return ps_fail(e, PS_INVALID_ARGUMENT, "no update rule is named '%s'", job->rule);
    ps_rule_defaults(s->rule, s->hyper);
    for (size_t i = 0; i < job->n_hypers; i++)
        if (ps_rule_set(s->rule, s->hyper, job->hypers[i].name, job->hypers[i].value, e))
            return e->code;
    return PS_OK;
}

static enum ps_code one_device_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    struct one_device *s = ps_alloc(sizeof *s);
    size_t n = nn_model_params(env->model);
    s->env = env;
    if (take_rule(s, e) || wk_init_weights(env, e)) {
        free(s);
        return e->code;
    }
    s->slots = ps_alloc(n * (size_t)s->rule->slots * sizeof(float *));
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < s->rule->slots; k++)
            s->slots[i * (size_t)s->rule->slots + (size_t)k] =
                ps_alloc(nn_model_param(env->model, i)->count * sizeof(float));
    *state = s;
    return PS_OK;
}

static enum wk_next one_device_next(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e)
{
    struct one_device *s = state;
    uint64_t left;
    (void)e;
    if (epoch != s->epoch) {
        s->epoch = epoch;
        s->at = 0;
    }
    left = s->env->examples - s->at;
    if (left == 0)
        return idle ? WK_EPOCH_END : WK_LATER;
    work->epoch = epoch;
    work->first = s->at;
    work->rows = left < (uint64_t)s->env->job->batch_size ? (int)left : s->env->job->batch_size;
    s->at += (uint64_t)work->rows;
    return WK_BATCH;
}

static enum ps_code one_device_begin_step(void *state, uint64_t step, struct ps_error *e)
{
    (void)state;
    (void)step;
    (void)e;
    return PS_OK;
}

static enum ps_code one_device_end_step(void *state, uint64_t step, int rows, struct ps_error *e)
{
    struct one_device *s = state;
    size_t k_max = (size_t)s->rule->slots;
    (void)rows;
    (void)e;
    for (size_t i = 0; i < nn_model_params(s->env->model); i++) {
        float *w = nn_replica_param(s->env->replica, i);
        struct ps_rule_args a = {.n = nn_model_param(s->env->model, i)->count, .step = step + 1, .w_in = w, .w_out = w};
        a.g = nn_replica_grad(s->env->replica, i);
        for (size_t k = 0; k < k_max; k++)
            a.slot_in[k] = a.slot_out[k] = s->slots[i * k_max + k];
        s->rule->apply(s->hyper, &a);
    }
    return PS_OK;
}

static enum ps_code one_device_refresh(void *state, struct ps_error *e)
{
    (void)state;
    (void)e;
    return PS_OK;
}

static enum ps_code one_device_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    (void)state;
    (void)history;
    (void)e;
    return PS_OK;
}

static bool one_device_is_chief(void *state)
{
    (void)state;
    return true;
}

static void one_device_report(void *state, uint64_t step, double images_per_second, double loss)
{
    (void)state;
    (void)step;
    (void)images_per_second;
    (void)loss;
}

const struct wk_strategy wk_one_device = {
    .name = "one_device",
    .open = one_device_open,
    .next = one_device_next,
    .begin_step = one_device_begin_step,
    .end_step = one_device_end_step,
    .refresh = one_device_refresh,
    .finish = one_device_finish,
    .is_chief = one_device_is_chief,
    .report = one_device_report,
    .close = one_device_close,
};
