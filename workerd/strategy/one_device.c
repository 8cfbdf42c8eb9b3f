// SPDX-License-Identifier: Apache-2.0
//
// one_device: the variables are the replica's own, the rule is applied where they lie.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/math/rule.h"
#include "workerd/strategy/strategy.h"

enum { RUN = 2048 };  // elements of a mean that is made to be measured

struct one_device {
    const struct wk_env *env;
    const struct ps_rule *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    int n_slots;    // of each trainable parameter
    float **slots;  // [params * n_slots], NULL where a parameter is not trainable
    float *factor;  // [params] what clipping by norm multiplies the gradients by
    uint64_t epoch, at, steps;
};

static void one_device_close(void *state, const char *reason)
{
    struct one_device *s = state;
    (void)reason;
    for (size_t i = 0; s->slots && i < nn_model_params(s->env->model) * (size_t)s->n_slots; i++)
        free(s->slots[i]);
    free(s->slots);
    free(s->factor);
    free(s);
}

static enum ps_code one_device_take_rule(struct one_device *s, struct ps_error *e)
{
    if (ps_job_rule(s->env->job, &s->rule, s->hyper, e))
        return e->code;
    s->n_slots = ps_rule_slots(s->rule, s->hyper);
    return ps_rule_check(s->rule, s->hyper, e);
}

// Slot k of a variable, all at what the rule starts it with.
static enum ps_code one_device_make_slot(const struct one_device *s, int k, const struct nn_param *p, float **slot,
                                         struct ps_error *e)
{
    float start = ps_rule_slot_init(s->rule, s->hyper, k);
    *slot = ps_try_alloc_array(p->count, sizeof **slot);
    if (!*slot)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for a slot of '%s', which takes %" PRIu64 " bytes", p->name,
                       p->count * sizeof **slot);
    for (uint64_t i = 0; i < p->count; i++)
        (*slot)[i] = start;
    return PS_OK;
}

static enum ps_code one_device_make_slots(struct one_device *s, struct ps_error *e)
{
    size_t n = nn_model_params(s->env->model), k_max = (size_t)s->n_slots;
    s->slots = ps_alloc(n * k_max * sizeof(float *));
    for (size_t i = 0; i < n; i++) {
        const struct nn_param *p = nn_model_param(s->env->model, i);
        for (size_t k = 0; k < k_max && p->trainable; k++)
            if (one_device_make_slot(s, (int)k, p, &s->slots[i * k_max + k], e))
                return e->code;
    }
    return PS_OK;
}

static enum ps_code one_device_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    struct one_device *s = ps_alloc(sizeof *s);
    s->env = env;
    s->factor = ps_alloc(nn_model_params(env->model) * sizeof *s->factor);
    if (one_device_take_rule(s, e) || wk_init_weights(env, e) || one_device_make_slots(s, e)) {
        one_device_close(s, NULL);
        return e->code;
    }
    *state = s;
    return PS_OK;
}

static uint64_t one_device_first_epoch(void *state, bool *late)
{
    (void)state;
    *late = false;
    return 0;
}

static uint64_t one_device_seed(void *state)
{
    struct one_device *s = state;
    return s->env->job->seed;
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
    work->step = s->steps++;
    work->first = s->at;
    work->rows = left < (uint64_t)s->env->job->batch_size ? (int)left : s->env->job->batch_size;
    s->at += (uint64_t)work->rows;
    return WK_BATCH;
}

static enum ps_code one_device_begin(void *state, const struct wk_work *work, struct ps_error *e)
{
    (void)state;
    (void)work;
    (void)e;
    return PS_OK;
}

// Of the gradient that the rule will see: of the mean of those that have been accumulated, where they are.
static double one_device_squares(const struct one_device *s, size_t i, float steps)
{
    const uint64_t n = nn_model_param(s->env->model, i)->count;
    const float *g = nn_replica_grad(s->env->replica, i);
    float mean[RUN];
    if (!(steps > 1))
        return ps_sum_squares(g, n);
    const float *sum = s->slots[i * (size_t)s->n_slots + (size_t)s->rule->own_slots];
    double squares = 0;
    for (uint64_t at = 0; at < n; at += RUN) {
        const size_t run = n - at < RUN ? (size_t)(n - at) : RUN;
        for (size_t k = 0; k < run; k++)
            mean[k] = (g[at + k] + sum[at + k]) / steps;
        squares += ps_sum_squares(mean, run);
    }
    return squares;
}

// By each parameter's own norm (clipnorm), or by that of all together (global_clipnorm). A step that accumulates only
// clips nothing.
static void one_device_clip_by_norm(struct one_device *s)
{
    const float steps = (float)s->hyper[PS_HYPER_ACCUMULATION_STEPS];
    double own = s->hyper[PS_HYPER_CLIPNORM], global = s->hyper[PS_HYPER_GLOBAL_CLIPNORM], total = 0;
    size_t n = nn_model_params(s->env->model);
    for (size_t i = 0; i < n; i++) {
        const struct nn_param *p = nn_model_param(s->env->model, i);
        s->factor[i] = 1;
        if (!p->trainable || (own == 0 && global == 0))
            continue;
        double squares = one_device_squares(s, i, steps);
        s->factor[i] = ps_clip_factor(squares, own);
        total += squares;
    }
    for (size_t i = 0; i < n && global > 0; i++)
        s->factor[i] = ps_clip_factor(total, global);
}

static enum ps_code one_device_check_finite(const struct one_device *s, struct ps_error *e)
{
    for (size_t i = 0; i < nn_model_params(s->env->model); i++) {
        const struct nn_param *p = nn_model_param(s->env->model, i);
        const float *g = nn_replica_grad(s->env->replica, i);
        for (uint64_t k = 0; nn_param_changes(p) && k < p->count; k++)
            if (!isfinite(g[k]))
                return ps_fail(e, PS_INVALID_ARGUMENT,
                               "variable '%s': the gradient's element %" PRIu64 " is not finite", p->name, k);
    }
    return PS_OK;
}

// A state follows what the batch has, by its own rule.
static void one_device_follow(const struct one_device *s, size_t i, uint64_t step)
{
    const struct nn_param *p = nn_model_param(s->env->model, i);
    const struct ps_rule *rule = ps_rule_find(p->rule);
    float *w = nn_replica_param(s->env->replica, i);
    struct ps_rule_args a = {.n = p->count,
                             .step = step + 1,
                             .clip_factor = 1,
                             .g = nn_replica_grad(s->env->replica, i),
                             .w_in = w,
                             .w_out = w};
    ps_rule_apply(rule, &p->momentum, &a);
}

static enum ps_code one_device_end(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct one_device *s = state;
    const size_t k_max = (size_t)s->n_slots;
    const uint64_t step = work->step, start = ps_track_now(s->env->compute);
    if (s->env->job->refuse_nonfinite && one_device_check_finite(s, e))
        return e->code;
    if (s->env->job->schedule.kind != PS_SCHEDULE_NONE)
        s->hyper[PS_HYPER_LEARNING_RATE] = ps_schedule_rate(&s->env->job->schedule, step);
    one_device_clip_by_norm(s);
    for (size_t i = 0; i < nn_model_params(s->env->model); i++) {
        const struct nn_param *p = nn_model_param(s->env->model, i);
        float *w = nn_replica_param(s->env->replica, i);
        if (p->rule)
            one_device_follow(s, i, step);
        if (!p->trainable)
            continue;
        struct ps_rule_args a = {.n = p->count,
                                 .step = step + 1,
                                 .trainable = true,
                                 .clip_factor = s->factor[i],
                                 .g = nn_replica_grad(s->env->replica, i),
                                 .w_in = w,
                                 .w_out = w};
        for (size_t k = 0; k < k_max; k++)
            a.slot_in[k] = a.slot_out[k] = s->slots[i * k_max + k];
        ps_rule_apply(s->rule, s->hyper, &a);
        nn_model_constrain(s->env->model, i, w);
    }
    ps_track_end(s->env->compute, &(struct ps_span){PS_SPAN_OPTIMIZER, s->rule->name, start});
    return PS_OK;
}

static enum ps_code one_device_refresh(void *state, struct ps_error *e)
{
    (void)state;
    (void)e;
    return PS_OK;
}

static enum ps_code one_device_sum(void *state, double *values, uint64_t n, struct ps_error *e)
{
    (void)state;
    (void)values;
    (void)n;
    (void)e;
    return PS_OK;
}

// As Keras's fit does, takes the weights' average, if one is kept, for the weights.
static enum ps_code one_device_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    struct one_device *s = state;
    const int average = ps_rule_average_slot(s->rule, s->hyper);
    (void)e;
    history->averaged = average >= 0 && s->steps > 0;
    for (size_t i = 0; i < nn_model_params(s->env->model) && history->averaged; i++) {
        const struct nn_param *p = nn_model_param(s->env->model, i);
        if (p->trainable)
            memcpy(nn_replica_param(s->env->replica, i), s->slots[i * (size_t)s->n_slots + (size_t)average],
                   p->count * sizeof(float));
    }
    return PS_OK;
}

static enum ps_code one_device_elect(void *state, bool written, enum wk_writer *writer, struct ps_error *e)
{
    (void)state;
    (void)e;
    *writer = written ? WK_NOBODY : WK_SELF;
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

// ---- checkpoints --------------------------------------------------------------------------------------------------

static void one_device_save(void *state, struct wk_checkpoint *to)
{
    struct one_device *s = state;
    size_t k_max = (size_t)s->n_slots;
    for (size_t i = 0; i < nn_model_params(s->env->model); i++) {
        const struct nn_param *p = nn_model_param(s->env->model, i);
        for (size_t k = 0; k < k_max && p->trainable; k++)
            wk_checkpoint_put(to, ps_rule_slot_name(s->rule, s->hyper, (int)k), p->name, p->shape, p->rank,
                              s->slots[i * k_max + k]);
    }
    json_object_set_new(to->json, "learning_rate", json_real(s->hyper[PS_HYPER_LEARNING_RATE]));
}

static enum ps_code one_device_load(void *state, const struct wk_checkpoint *from, uint64_t epoch, uint64_t first,
                                    uint64_t step, struct ps_error *e)
{
    struct one_device *s = state;
    const json_t *rate = json_object_get(from->json, "learning_rate");
    size_t k_max = (size_t)s->n_slots;
    if (!json_is_real(rate) || !(json_real_value(rate) >= 0))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: $.learning_rate: expected a number of 0 or more", from->path);
    for (size_t i = 0; i < nn_model_params(s->env->model); i++) {
        const struct nn_param *p = nn_model_param(s->env->model, i);
        for (size_t k = 0; k < k_max && p->trainable; k++)
            if (wk_checkpoint_get(from, ps_rule_slot_name(s->rule, s->hyper, (int)k), p->name, p->count,
                                  s->slots[i * k_max + k], e))
                return e->code;
    }
    s->hyper[PS_HYPER_LEARNING_RATE] = json_real_value(rate);
    s->epoch = epoch;
    s->at = first;
    s->steps = step;
    return PS_OK;
}

static double one_device_rate(void *state)
{
    struct one_device *s = state;
    return s->hyper[PS_HYPER_LEARNING_RATE];
}

static void one_device_set_rate(void *state, double rate)
{
    struct one_device *s = state;
    s->hyper[PS_HYPER_LEARNING_RATE] = rate;
}

static const struct wk_sharder local_sharder = {
    .first_epoch = one_device_first_epoch,
    .seed = one_device_seed,
    .next = one_device_next,
};

static const struct wk_home local_home = {
    .begin = one_device_begin,
    .end = one_device_end,
    .refresh = one_device_refresh,
    .save = one_device_save,
    .load = one_device_load,
    .rate = one_device_rate,
    .set_rate = one_device_set_rate,
};

static const struct wk_group alone = {
    .sum = one_device_sum,
    .finish = one_device_finish,
    .elect = one_device_elect,
    .is_chief = one_device_is_chief,
    .report = one_device_report,
};

const struct wk_strategy wk_one_device = {
    .name = "one_device",
    .sharder = &local_sharder,
    .home = &local_home,
    .group = &alone,
    .open = one_device_open,
    .close = one_device_close,
};
