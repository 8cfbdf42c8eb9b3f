// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/local_rule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/math/finite.h"
#include "common/wire/dtype.h"

enum { RUN = 2048 };  // elements of a mean that is made to be measured

// Slots on a device, [params * n_slots] as those of the host, and who has the newer ones; what is done with them in
// each step.
struct wk_kept_slots {
    float **slots;
    bool there, here;
    struct nn_update *update;
    size_t updates;
};

// ---- open ---------------------------------------------------------------------------------------------------------

static enum ps_code local_rule_take_rule(struct wk_local_rule *r, struct ps_error *e)
{
    if (ps_job_rule(r->env->job, &r->rule, r->hyper, e))
        return e->code;
    r->n_slots = ps_rule_slots(r->rule, r->hyper);
    return ps_rule_check(r->rule, r->hyper, e);
}

// Is the variable one that this rule trains?
static bool local_rule_trains(const struct wk_local_rule *r, size_t i)
{
    return nn_model_param(r->env->model, i)->trainable && wk_env_has(r->env, i);
}

// Slot k of a variable, all at what the rule starts it with.
static enum ps_code local_rule_make_slot(const struct wk_local_rule *r, int k, const struct nn_param *p, float **slot,
                                         struct ps_error *e)
{
    float start = ps_rule_slot_init(r->rule, r->hyper, k);
    *slot = ps_try_alloc_array(p->count, sizeof **slot);
    if (!*slot)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for a slot of '%s', which takes %" PRIu64 " bytes", p->name,
                       p->count * sizeof **slot);
    for (uint64_t i = 0; i < p->count; i++)
        (*slot)[i] = start;
    return PS_OK;
}

static enum ps_code local_rule_make_slots(struct wk_local_rule *r, struct ps_error *e)
{
    size_t n = nn_model_params(r->env->model), k_max = (size_t)r->n_slots;
    r->slots = ps_alloc(n * k_max * sizeof(float *));
    for (size_t i = 0; i < n; i++) {
        const struct nn_param *p = nn_model_param(r->env->model, i);
        for (size_t k = 0; k < k_max && local_rule_trains(r, i); k++)
            if (local_rule_make_slot(r, (int)k, p, &r->slots[i * k_max + k], e))
                return e->code;
    }
    return PS_OK;
}

enum ps_code wk_local_rule_open(struct wk_local_rule *r, const struct wk_env *env, bool applies, struct ps_error *e)
{
    *r = (struct wk_local_rule){.env = env};
    r->factor = ps_alloc(nn_model_params(env->model) * sizeof *r->factor);
    if (local_rule_take_rule(r, e))
        return e->code;
    r->n_slots = applies ? r->n_slots : 0;
    return local_rule_make_slots(r, e);
}

static void local_rule_free_kept(struct wk_kept_slots *kept)
{
    if (kept) {
        free(kept->slots);
        free(kept->update);
    }
    free(kept);
}

void wk_local_rule_close(struct wk_local_rule *r)
{
    for (size_t i = 0; r->slots && i < nn_model_params(r->env->model) * (size_t)r->n_slots; i++)
        free(r->slots[i]);
    local_rule_free_kept(r->kept);
    local_rule_free_kept(r->unused);
    free(r->slots);
    free(r->factor);
}

// ---- slots on a device --------------------------------------------------------------------------------------------

// What looks at more than an element at a time, or at what the host has, is for the host.
static bool local_rule_is_elementwise(const struct wk_local_rule *r)
{
    bool constrained = false;
    for (size_t i = 0; i < nn_model_params(r->env->model); i++)
        constrained |= nn_model_constraint(r->env->model, i) != NULL;
    return !constrained && !r->env->job->refuse_nonfinite && r->hyper[PS_HYPER_CLIPNORM] == 0 &&
           r->hyper[PS_HYPER_GLOBAL_CLIPNORM] == 0;
}

static size_t local_rule_padded(const struct wk_local_rule *r, size_t slot)
{
    enum { ALIGNED = 64 };  // floats
    return ((size_t)nn_model_param(r->env->model, slot / (size_t)r->n_slots)->count + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static enum ps_code local_rule_get_kept(struct wk_local_rule *r, struct ps_error *e)
{
    const size_t slots = nn_model_params(r->env->model) * (size_t)r->n_slots;
    float *at;
    size_t n = 0;
    for (size_t s = 0; s < slots; s++)
        n += r->slots[s] ? local_rule_padded(r, s) : 0;
    r->kept = ps_alloc(sizeof *r->kept);
    r->kept->slots = ps_alloc((slots + 1) * sizeof *r->kept->slots);
    r->kept->here = true;
    if (n == 0)
        return PS_OK;
    if (nn_replica_get_slots(r->env->replica, n, &at, e))
        return e->code;
    for (size_t s = 0; s < slots; s++) {
        r->kept->slots[s] = r->slots[s] ? at : NULL;
        at += r->slots[s] ? local_rule_padded(r, s) : 0;
    }
    return PS_OK;
}

static struct ps_rule_args *local_rule_list_update(const struct wk_local_rule *r, size_t i, const struct ps_rule *rule,
                                                   const double *hyper)
{
    struct nn_update *u = &r->kept->update[r->kept->updates++];
    *u = (struct nn_update){.variable = i, .rule = rule, .hyper = hyper};
    u->args.n = nn_model_param(r->env->model, i)->count;
    u->args.clip_factor = 1;
    return &u->args;
}

// As local_rule_train and local_rule_follow. Those of one rule follow each other: the device does them together.
static void local_rule_list_updates(const struct wk_local_rule *r)
{
    const size_t n = nn_model_params(r->env->model), k_max = (size_t)r->n_slots;
    r->kept->update = ps_alloc((2 * n + 1) * sizeof *r->kept->update);
    for (size_t i = 0; i < n; i++) {
        const struct nn_param *p = nn_model_param(r->env->model, i);
        if (p->rule)
            local_rule_list_update(r, i, ps_rule_find(p->rule), &p->momentum);
    }
    for (size_t i = 0; i < n; i++) {
        if (!local_rule_trains(r, i))
            continue;
        struct ps_rule_args *a = local_rule_list_update(r, i, r->rule, r->hyper);
        a->trainable = true;
        for (size_t k = 0; k < k_max; k++)
            a->slot_in[k] = a->slot_out[k] = r->kept->slots[i * k_max + k];
    }
}

bool wk_local_rule_can_keep(const struct wk_local_rule *r)
{
    return local_rule_is_elementwise(r) && nn_replica_can_keep(r->env->replica, r->rule, r->hyper);
}

enum ps_code wk_local_rule_keep(struct wk_local_rule *r, struct ps_error *e)
{
    if (r->kept || !local_rule_is_elementwise(r) || !nn_replica_keep(r->env->replica, r->rule, r->hyper))
        return PS_OK;
    if (!r->unused) {
        if (local_rule_get_kept(r, e))
            return e->code;
        local_rule_list_updates(r);
        return PS_OK;
    }
    r->kept = r->unused;
    r->unused = NULL;
    r->kept->here = true;
    return PS_OK;
}

static enum ps_code local_rule_send_slots(const struct wk_local_rule *r, struct ps_error *e)
{
    const size_t k_max = (size_t)r->n_slots;
    for (size_t s = 0; r->kept->here && s < nn_model_params(r->env->model) * k_max; s++)
        if (r->slots[s] && nn_replica_put_slots(r->env->replica, r->kept->slots[s], r->slots[s],
                                                (size_t)nn_model_param(r->env->model, s / k_max)->count, e))
            return e->code;
    r->kept->here = false;
    return PS_OK;
}

// Before the host looks at them.
static void local_rule_fetch_slots(const struct wk_local_rule *r)
{
    const size_t k_max = (size_t)r->n_slots;
    if (!r->kept || !r->kept->there)
        return;
    for (size_t s = 0; s < nn_model_params(r->env->model) * k_max; s++)
        if (r->slots[s])
            nn_replica_take_slots(r->env->replica, r->slots[s], r->kept->slots[s],
                                  (size_t)nn_model_param(r->env->model, s / k_max)->count);
    r->kept->there = false;
}

void wk_local_rule_keep_no_more(struct wk_local_rule *r)
{
    if (!r->kept)
        return;
    local_rule_fetch_slots(r);
    nn_replica_keep_no_more(r->env->replica);
    r->unused = r->kept;
    r->kept = NULL;
}

// Queues it: the host goes on to the next step.
static enum ps_code local_rule_apply_kept(const struct wk_local_rule *r, uint64_t step, struct ps_error *e)
{
    struct wk_kept_slots *kept = r->kept;
    if (local_rule_send_slots(r, e))
        return e->code;
    for (size_t k = 0; k < kept->updates; k++)
        kept->update[k].args.step = step - r->began + 1;
    nn_replica_apply(r->env->replica, kept->update, kept->updates);
    kept->there = true;
    return PS_OK;
}

// ---- a step -------------------------------------------------------------------------------------------------------

// Of the gradient that the rule will see: of the mean of those that have been accumulated, where they are.
static double local_rule_squares(const struct wk_local_rule *r, size_t i, float steps)
{
    const uint64_t n = nn_model_param(r->env->model, i)->count;
    const float *g = nn_replica_grad(r->env->replica, i);
    float mean[RUN];
    if (!(steps > 1))
        return ps_sum_squares(g, n);
    const float *sum = r->slots[i * (size_t)r->n_slots + (size_t)r->rule->own_slots];
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
static void local_rule_clip_by_norm(struct wk_local_rule *r)
{
    const float steps = (float)r->hyper[PS_HYPER_ACCUMULATION_STEPS];
    double own = r->hyper[PS_HYPER_CLIPNORM], global = r->hyper[PS_HYPER_GLOBAL_CLIPNORM], total = 0;
    size_t n = nn_model_params(r->env->model);
    for (size_t i = 0; i < n; i++) {
        r->factor[i] = 1;
        if (!local_rule_trains(r, i) || (own == 0 && global == 0))
            continue;
        double squares = local_rule_squares(r, i, steps);
        r->factor[i] = ps_clip_factor(squares, own);
        total += squares;
    }
    for (size_t i = 0; i < n && global > 0; i++)
        r->factor[i] = ps_clip_factor(total, global);
}

enum ps_code wk_check_gradient(const struct wk_env *env, size_t i, struct ps_error *e)
{
    const struct nn_param *p = nn_model_param(env->model, i);
    const size_t k = ps_nonfinite_first(PS_FLOAT32, nn_replica_grad(env->replica, i), p->count);
    return k < p->count
               ? ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': the gradient's element %zu is not finite", p->name, k)
               : PS_OK;
}

enum ps_code wk_local_rule_check_finite(const struct wk_local_rule *r, struct ps_error *e)
{
    for (size_t i = 0; i < nn_model_params(r->env->model); i++)
        if (nn_param_changes(nn_model_param(r->env->model, i)) && wk_check_gradient(r->env, i, e))
            return e->code;
    return PS_OK;
}

// A state follows what the batch has, by its own rule.
static void local_rule_follow(const struct wk_local_rule *r, size_t i, uint64_t step)
{
    const struct nn_param *p = nn_model_param(r->env->model, i);
    const struct ps_rule *rule = ps_rule_find(p->rule);
    float *w = nn_replica_param(r->env->replica, i);
    struct ps_rule_args a = {.n = p->count,
                             .step = step - r->began + 1,
                             .clip_factor = 1,
                             .g = nn_replica_grad(r->env->replica, i),
                             .w_in = w,
                             .w_out = w};
    ps_rule_apply(rule, &p->momentum, &a);
}

// By the rule of all that it trains.
static void local_rule_train(const struct wk_local_rule *r, size_t i, uint64_t step)
{
    const size_t k_max = (size_t)r->n_slots;
    float *w = nn_replica_param(r->env->replica, i);
    struct ps_rule_args a = {.n = nn_model_param(r->env->model, i)->count,
                             .step = step - r->began + 1,
                             .trainable = true,
                             .clip_factor = r->factor[i],
                             .g = nn_replica_grad(r->env->replica, i),
                             .w_in = w,
                             .w_out = w};
    for (size_t k = 0; k < k_max; k++)
        a.slot_in[k] = a.slot_out[k] = r->slots[i * k_max + k];
    ps_rule_apply(r->rule, r->hyper, &a);
    nn_model_constrain(r->env->model, i, w);
}

static void local_rule_update(const struct wk_local_rule *r, size_t i, uint64_t step)
{
    if (nn_model_param(r->env->model, i)->rule)
        local_rule_follow(r, i, step);
    if (local_rule_trains(r, i))
        local_rule_train(r, i, step);
}

static void local_rule_apply_here(struct wk_local_rule *r, uint64_t step)
{
    local_rule_clip_by_norm(r);
    for (size_t i = 0; i < nn_model_params(r->env->model); i++)
        local_rule_update(r, i, step);
}

bool wk_local_rule_follows_schedule(const struct wk_local_rule *r)
{
    return r->env->job->schedule.kind != PS_SCHEDULE_NONE && !r->rate_is_set;
}

double wk_local_rule_rate(const struct wk_local_rule *r, uint64_t step)
{
    return wk_local_rule_follows_schedule(r) ? ps_schedule_rate(&r->env->job->schedule, step + r->ahead)
                                             : r->hyper[PS_HYPER_LEARNING_RATE];
}

void wk_local_rule_set_rate(struct wk_local_rule *r, uint64_t step, double rate)
{
    if (rate == wk_local_rule_rate(r, step))
        return;
    r->hyper[PS_HYPER_LEARNING_RATE] = rate;
    r->rate_is_set = r->env->job->schedule.kind != PS_SCHEDULE_NONE;
}

void wk_local_rule_take_rate(struct wk_local_rule *r, bool is_set, double rate)
{
    if (is_set)
        r->hyper[PS_HYPER_LEARNING_RATE] = rate;
    r->rate_is_set = is_set && r->env->job->schedule.kind != PS_SCHEDULE_NONE;
}

enum ps_code wk_local_rule_apply(struct wk_local_rule *r, uint64_t step, struct ps_error *e)
{
    const uint64_t start = ps_track_now(r->env->compute);
    enum ps_code code = PS_OK;
    r->hyper[PS_HYPER_LEARNING_RATE] = wk_local_rule_rate(r, step);
    step += r->ahead;
    if (r->kept)
        code = local_rule_apply_kept(r, step, e);
    else
        local_rule_apply_here(r, step);
    ps_track_end(r->env->compute, &(struct ps_span){PS_SPAN_OPTIMIZER, r->rule->name, start});
    return code;
}

bool wk_local_rule_is_by_variable(const struct wk_local_rule *r)
{
    return r->hyper[PS_HYPER_CLIPNORM] == 0 && r->hyper[PS_HYPER_GLOBAL_CLIPNORM] == 0;
}

void wk_local_rule_apply_to(struct wk_local_rule *r, const size_t *variables, size_t n, uint64_t step)
{
    const uint64_t start = ps_track_now(r->env->compute);
    r->hyper[PS_HYPER_LEARNING_RATE] = wk_local_rule_rate(r, step);
    step += r->ahead;
    for (size_t k = 0; k < n; k++) {
        r->factor[variables[k]] = 1;
        local_rule_update(r, variables[k], step);
    }
    ps_track_end(r->env->compute, &(struct ps_span){PS_SPAN_OPTIMIZER, r->rule->name, start});
}

bool wk_local_rule_averages(const struct wk_local_rule *r)
{
    return ps_rule_average_slot(r->rule, r->hyper) >= 0;
}

void wk_local_rule_take_averages(struct wk_local_rule *r)
{
    const int average = ps_rule_average_slot(r->rule, r->hyper);
    local_rule_fetch_slots(r);
    for (size_t i = 0; i < nn_model_params(r->env->model); i++) {
        const struct nn_param *p = nn_model_param(r->env->model, i);
        if (local_rule_trains(r, i))
            memcpy(nn_replica_param(r->env->replica, i), r->slots[i * (size_t)r->n_slots + (size_t)average],
                   p->count * sizeof(float));
    }
}

enum ps_code wk_local_rule_each(const struct wk_local_rule *r, wk_array_fn fn, void *arg, struct ps_error *e)
{
    const size_t n = nn_model_params(r->env->model), k_max = (size_t)r->n_slots;
    local_rule_fetch_slots(r);
    if (nn_replica_fetch(r->env->replica, e))
        return e->code;
    if (r->kept)
        r->kept->here = true;  // fn may have changed them
    for (size_t i = 0; i < n; i++)
        if (wk_env_has(r->env, i) &&
            fn(arg, nn_replica_param(r->env->replica, i), (size_t)nn_model_param(r->env->model, i)->count, e))
            return e->code;
    for (size_t i = 0; i < n * k_max; i++)
        if (r->slots[i] && fn(arg, r->slots[i], (size_t)nn_model_param(r->env->model, i / k_max)->count, e))
            return e->code;
    return PS_OK;
}

// ---- checkpoints --------------------------------------------------------------------------------------------------

void wk_local_rule_save(const struct wk_local_rule *r, struct wk_checkpoint *to)
{
    size_t k_max = (size_t)r->n_slots;
    local_rule_fetch_slots(r);
    for (size_t i = 0; i < nn_model_params(r->env->model); i++) {
        const struct nn_param *p = nn_model_param(r->env->model, i);
        for (size_t k = 0; k < k_max && local_rule_trains(r, i); k++)
            wk_checkpoint_put(to, ps_rule_slot_name(r->rule, r->hyper, (int)k), p->name, p->shape, p->rank,
                              r->slots[i * k_max + k]);
    }
    wk_checkpoint_put_rule(to, r->hyper[PS_HYPER_LEARNING_RATE], r->rate_is_set, r->ahead);
}

enum ps_code wk_local_rule_load(struct wk_local_rule *r, const struct wk_checkpoint *from, struct ps_error *e)
{
    double rate;
    size_t k_max = (size_t)r->n_slots;
    local_rule_fetch_slots(r);
    if (r->kept)
        r->kept->here = true;
    if (wk_checkpoint_get_rule(from, &rate, &r->rate_is_set, &r->ahead, e))
        return e->code;
    for (size_t i = 0; i < nn_model_params(r->env->model); i++) {
        const struct nn_param *p = nn_model_param(r->env->model, i);
        for (size_t k = 0; k < k_max && local_rule_trains(r, i); k++)
            if (wk_checkpoint_get(from, ps_rule_slot_name(r->rule, r->hyper, (int)k), p->name, p->count,
                                  r->slots[i * k_max + k], e))
                return e->code;
    }
    r->hyper[PS_HYPER_LEARNING_RATE] = rate;
    return PS_OK;
}
