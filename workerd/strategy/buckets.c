// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/buckets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/strategy/waits.h"

// Bytes. At least what a network of 1 Gbit/s carries in half a millisecond, which is what beginning with one costs; at
// most as PyTorch's DistributedDataParallel. Each is a sixteenth of the model: so the network has work early, and what
// is needed soon waits for little else. The last one, for which the next step waits, is of the least size, or a
// variable.
#ifndef BUCKET_SIZE_MIN
#define BUCKET_SIZE_MIN (64 << 10)  // a test may have smaller ones
#endif
enum { BUCKETS = 16, BUCKET_MIN = BUCKET_SIZE_MIN, BUCKET_MAX = 25 << 20 };

// ---- open ---------------------------------------------------------------------------------------------------------

// Numbers, with the padding behind them; of a variable that another home has none.
static size_t buckets_numbers(const struct wk_env *env, size_t variable)
{
    const uint64_t count = wk_env_has(env, variable) ? nn_model_param(env->model, variable)->count : 0;
    return (size_t)(count + 15) & ~(size_t)15;
}

// Bytes after which the next bucket begins.
static size_t buckets_size(const struct wk_env *env, const size_t *order, size_t n)
{
    size_t bytes = 0;
    for (size_t k = 0; k < n; k++)
        bytes += buckets_numbers(env, order[k]) * sizeof(float);
    bytes /= BUCKETS;
    return bytes < BUCKET_MIN ? BUCKET_MIN : bytes > BUCKET_MAX ? BUCKET_MAX : bytes;
}

// Where the last bucket begins.
static size_t buckets_last(const struct wk_env *env, const size_t *order, size_t n)
{
    size_t bytes = 0;
    while (n > 0 && (bytes += buckets_numbers(env, order[n - 1]) * sizeof(float)) <= BUCKET_MIN)
        n--;
    return n > 0 && buckets_numbers(env, order[n - 1]) * sizeof(float) == bytes ? n - 1 : n;
}

static void buckets_cut(struct wk_buckets *b)
{
    const size_t *order, n = nn_replica_order(b->env->replica, &order);
    const size_t enough = buckets_size(b->env, order, n), tail = buckets_last(b->env, order, n);
    b->bucket = ps_alloc((n + 1) * sizeof *b->bucket);
    b->of = ps_alloc((nn_model_params(b->env->model) + 1) * sizeof *b->of);
    struct wk_bucket *last = NULL;
    for (size_t k = 0; k < n; k++) {
        if (!wk_env_has(b->env, order[k])) {
            last = NULL;
            continue;
        }
        if (!last || last->count * sizeof(float) >= enough || k == tail) {
            last = &b->bucket[b->n++];
            *last = (struct wk_bucket){.variables = &order[k],
                                       .values = nn_replica_grad(b->env->replica, order[k]),
                                       .name = nn_model_param(b->env->model, order[k])->name};
        }
        last->count += buckets_numbers(b->env, order[k]);
        if (last->n++)
            snprintf(last->others, sizeof last->others, "+%zu", last->n - 1);
        b->of[order[k]] = last;
    }
}

static const enum wk_number buckets_types[] = {
    [PS_COMPRESSION_NONE] = WK_FLOAT,
    [PS_COMPRESSION_BFLOAT16] = WK_FLOAT_AS_BFLOAT16,
    [PS_COMPRESSION_FLOAT16] = WK_FLOAT_AS_FLOAT16,
};

// One that comes back has no times of steps before, and all must have the same order.
static void buckets_forget_times(struct wk_buckets *b)
{
    wk_bucket_order_reset(&b->order);
    b->reforms = wk_collective_reforms(b->env->collective);
    b->since = WK_BUCKETS_AGREE_EVERY - WK_BUCKETS_AGREE_FIRST;
    b->timed = false;
}

void wk_buckets_open(struct wk_buckets *b, const struct wk_env *env, struct wk_local_rule *rule,
                     struct wk_rounds *rounds, struct wk_device_sums *sums)
{
    const bool central = env->job->strategy == PS_STRATEGY_CENTRAL_STORAGE;
    *b = (struct wk_buckets){.env = env,
                             .rule = rule,
                             .rounds = rounds,
                             .sums = sums,
                             .type = buckets_types[env->job->compression],
                             .operation = central ? WK_REDUCE : WK_ALL_REDUCE};
    buckets_cut(b);
    b->may_overlap = b->n > 1 && !central && env->workers > 1 && !env->has && wk_local_rule_is_by_variable(rule) &&
                     !nn_model_synchronized(env->model);
    wk_bucket_order_open(&b->order, b->n);
    b->times = ps_alloc((2 * b->n + 1) * (size_t)env->replicas * sizeof *b->times);
    buckets_forget_times(b);
    b->table = ps_alloc((b->n + 1) * (size_t)env->replicas * sizeof *b->table);
}

void wk_buckets_close(struct wk_buckets *b)
{
    free(b->bucket);
    free(b->of);
    free(b->copies);
    free(b->times);
    free(b->table);
    wk_bucket_order_close(&b->order);
}

// ---- buckets leave ------------------------------------------------------------------------------------------------

static void buckets_get_copies(struct wk_buckets *b)
{
    size_t n = 0;
    for (size_t k = 0; k < b->n; k++)
        n += b->bucket[k].count;
    b->copies = ps_alloc(n * sizeof *b->copies);
    n = 0;
    for (size_t k = 0; k < b->n; n += b->bucket[k++].count)
        b->bucket[k].copy = b->copies + n;
}

// Tells the other ranks this one's times of the step before, whose sums are all there.
static void buckets_begin_to_agree(struct wk_buckets *b)
{
    const size_t row = 2 * b->n + 1, n = wk_rounds_ranks(b->rounds) * row;
    double *ready = &b->times[wk_rounds_rank(b->rounds) * row], *takes = ready + b->n, *computes = takes + b->n;
    memset(b->times, 0, n * sizeof *b->times);
    for (size_t k = 0; k < b->n; k++) {
        const struct wk_bucket *one = &b->bucket[k];
        ready[k] = (double)(one->ready - b->start);
        takes[k] = (double)(one->sum.ended - one->sum.began);
    }
    *computes = (double)(ps_now() - b->start - b->waited);
    b->agreement = (struct wk_reduction){.values = b->times, .n = n, .type = WK_DOUBLE, .what = "times of a step"};
    wk_collective_begin(b->env->collective, b->env->device, &b->agreement);
}

// All ranks decide the same, as each of these is equal at all of them. Between two epochs there is more than a step's
// time: a validation, callbacks.
static void buckets_consider_agreeing(struct wk_buckets *b, const struct wk_work *work)
{
    if (wk_collective_reforms(b->env->collective) != b->reforms)
        buckets_forget_times(b);
    b->agrees = b->may_overlap && b->timed && work->epoch == b->epoch && b->since >= WK_BUCKETS_AGREE_EVERY;
    if (b->agrees)
        buckets_begin_to_agree(b);
    b->since = b->agrees ? 1 : b->since + 1;
}

void wk_buckets_begin(struct wk_buckets *b, const struct wk_work *work)
{
    const bool devices = wk_device_sums_are_on(b->sums);
    const uint64_t full = (uint64_t)b->env->job->batch_size * wk_rounds_ranks(b->rounds);
    buckets_consider_agreeing(b, work);
    b->epoch = work->epoch;
    b->step = work->step;
    b->start = ps_now();
    b->waited = 0;
    b->weight = (float)work->rows / (float)work->rows_of_all;
    b->begun = 0;
    b->timed = !devices && work->rows_of_all == full;
    b->overlaps = b->order.last + 1 < b->n && !devices;
    for (size_t k = 0; k < b->n; k++) {
        b->bucket[k].missing = b->bucket[k].n;
        b->bucket[k].applied = false;
    }
    if (b->overlaps && !b->copies)
        buckets_get_copies(b);
}

static void buckets_weigh(const struct wk_buckets *b, size_t variable)
{
    const uint64_t n = nn_model_param(b->env->model, variable)->count;
    float *g = nn_replica_grad(b->env->replica, variable);
    for (uint64_t k = 0; k < n && b->weight != 1; k++)
        g[k] *= b->weight;
}

// After a signal others are still awaited: in a step that is open, and counts; and where another home has the rest of
// the step (hybrid), which may have taken it.
static bool buckets_await_others(const struct wk_buckets *b)
{
    return b->env->has || (b->overlaps && b->begun >= b->order.last);
}

static void buckets_let_leave(struct wk_buckets *b, struct wk_bucket *one)
{
    one->start = ps_track_now(b->env->communication);
    if (wk_device_sums_are_on(b->sums)) {
        wk_device_sums_add(b->sums, one->variables[0], one->count, b->weight);
        return;
    }
    const size_t length = strlen(one->name), most = sizeof one->what - sizeof one->others - 30;
    snprintf(one->what, sizeof one->what, "%s%s in step %" PRIu64, one->name + (length > most ? length - most : 0),
             one->others, b->step);
    if (b->overlaps)
        memcpy(one->copy, one->values, one->count * sizeof *one->copy);
    one->sum = (struct wk_reduction){.operation = b->operation,
                                     .values = one->values,
                                     .n = one->count,
                                     .type = b->type,
                                     .what = one->what,
                                     .grace = buckets_await_others(b) ? WK_STEP_SECONDS * PS_SECOND : 0};
    wk_collective_begin(b->env->collective, b->env->device, &one->sum);
}

void wk_buckets_ready(struct wk_buckets *b, size_t variable)
{
    struct wk_bucket *of = b->of[variable];
    if (!wk_device_sums_are_on(b->sums))
        buckets_weigh(b, variable);
    if (--of->missing == 0)
        of->ready = ps_now();
    for (; b->begun < b->n && b->bucket[b->order.at[b->begun]].missing == 0; b->begun++)
        buckets_let_leave(b, &b->bucket[b->order.at[b->begun]]);
}

// ---- sums come ----------------------------------------------------------------------------------------------------

static enum ps_code buckets_wait_for(struct wk_buckets *b, struct wk_bucket *one, struct ps_error *e)
{
    const uint64_t from = ps_now();
    wk_collective_wait(b->env->collective, &one->sum, e);
    b->waited += ps_now() - from;
    if (e->code)
        return e->code;
    const struct ps_span span = {PS_SPAN_ALL_REDUCE,         one->name,  one->start, "bytes",
                                 one->count * sizeof(float), one->others};
    ps_track_add(b->env->communication, &span, one->sum.ended);
    return PS_OK;
}

// After all sums.
static enum ps_code buckets_agree(struct wk_buckets *b, struct ps_error *e)
{
    if (!b->agrees)
        return PS_OK;
    if (wk_collective_wait(b->env->collective, &b->agreement, e))
        return e->code;
    b->agrees = false;
    wk_bucket_order_learn(&b->order, b->times, wk_rounds_ranks(b->rounds));
    return PS_OK;
}

static enum ps_code buckets_wait_for_all(struct wk_buckets *b, struct ps_error *e)
{
    for (size_t k = 0; k < b->n; k++)
        if (buckets_wait_for(b, &b->bucket[k], e))
            return e->code;
    return buckets_agree(b, e);
}

enum ps_code wk_buckets_end(struct wk_buckets *b, struct ps_error *e)
{
    e->code = PS_OK;
    b->open = b->overlaps;
    if (b->open)
        return wk_buckets_apply(b, &b->bucket[b->n - 1], e);
    const uint64_t start = wk_wait_begin(b->env);
    const enum ps_code code =
        wk_device_sums_are_on(b->sums) ? wk_device_sums_wait(b->sums, b->step, e) : buckets_wait_for_all(b, e);
    wk_wait_end(b->env, WK_WAIT_GRADIENTS, "all-reduce", start);
    return code;
}

// The sum is in its values, which the next step writes to.
static void buckets_apply_rule(struct wk_buckets *b, struct wk_bucket *one)
{
    memcpy(one->copy, one->values, one->count * sizeof *one->copy);
    wk_local_rule_apply_to(b->rule, one->variables, one->n, b->step);
    one->applied = true;
}

static bool buckets_are_applied(const struct wk_buckets *b)
{
    for (size_t k = 0; k < b->n; k++)
        if (!b->bucket[k].applied)
            return false;
    return true;
}

enum ps_code wk_buckets_apply(struct wk_buckets *b, struct wk_bucket *one, struct ps_error *e)
{
    e->code = PS_OK;
    if (!b->open || !one || one->applied)
        return PS_OK;
    const uint64_t start = wk_wait_begin(b->env);
    buckets_wait_for(b, one, e);
    wk_wait_end(b->env, WK_WAIT_GRADIENTS, "all-reduce", start);
    if (e->code)
        return e->code;
    buckets_apply_rule(b, one);
    if (!buckets_are_applied(b))
        return PS_OK;
    b->open = false;
    return buckets_agree(b, e);
}

enum ps_code wk_buckets_apply_all(struct wk_buckets *b, struct ps_error *e)
{
    e->code = PS_OK;
    for (size_t k = b->n; k > 0 && e->code == PS_OK; k--)
        wk_buckets_apply(b, &b->bucket[k - 1], e);
    return e->code;
}

bool wk_buckets_counts(const struct wk_buckets *b)
{
    return b->open && b->bucket[b->n - 1].applied;
}

// ---- a worker is lost ---------------------------------------------------------------------------------------------

// What a rank says: of each bucket whether it has the sum, and the weight of its gradients.
static double *buckets_said(const struct wk_buckets *b, uint32_t rank)
{
    return &b->table[rank * (b->n + 1)];
}

static enum ps_code buckets_ask_all(struct wk_buckets *b, struct ps_error *e)
{
    const size_t n = (b->n + 1) * wk_rounds_ranks(b->rounds);
    double *own = buckets_said(b, wk_rounds_rank(b->rounds));
    memset(b->table, 0, n * sizeof *b->table);
    for (size_t k = 0; k < b->n && b->open; k++)
        own[k] = b->bucket[k].applied;
    own[b->n] = b->open ? (double)b->weight : 0;
    return wk_rounds_add_up(b->rounds, b->table, n, WK_DOUBLE, "what a step has", e);
}

// The lowest rank that has the sum; else how many ranks there are.
static uint32_t buckets_giver(const struct wk_buckets *b, size_t bucket)
{
    uint32_t rank = 0;
    while (rank < wk_rounds_ranks(b->rounds) && !(buckets_said(b, rank)[bucket] > 0))
        rank++;
    return rank;
}

static float buckets_scale(const struct wk_buckets *b)
{
    double weight = 0;
    for (uint32_t rank = 0; rank < wk_rounds_ranks(b->rounds); rank++)
        weight += buckets_said(b, rank)[b->n];
    return weight > 0 ? (float)(1 / weight) : 1;
}

static void buckets_scale_copy(struct wk_bucket *one, float scale)
{
    one->sum.done = false;  // which was in its place
    for (size_t i = 0; i < one->count; i++)
        one->values[i] = one->copy[i] * scale;
}

// The sum that a rank has; or a new one of the copies of those that are left.
static enum ps_code buckets_complete_one(struct wk_buckets *b, size_t bucket, float scale, struct ps_error *e)
{
    struct wk_bucket *one = &b->bucket[bucket];
    const uint32_t giver = buckets_giver(b, bucket);
    const bool is_new_sum = giver == wk_rounds_ranks(b->rounds), lacks = b->open && !one->applied;
    if (is_new_sum && lacks)
        buckets_scale_copy(one, scale);
    const float *own = giver == wk_rounds_rank(b->rounds) ? one->copy : is_new_sum && lacks ? one->values : NULL, *sum;
    if (wk_rounds_add_arrays(b->rounds, own, one->count, "a step's gradients", &sum, e))
        return e->code;
    if (lacks) {
        memcpy(one->values, sum, one->count * sizeof *sum);
        buckets_apply_rule(b, one);
    }
    return PS_OK;
}

// Of a step that counts: what was there before a worker was lost is no less the sum of all.
static void buckets_apply_what_has_come(struct wk_buckets *b)
{
    const bool counts = wk_buckets_counts(b);
    for (size_t k = 0; k < b->n && counts; k++)
        if (!b->bucket[k].applied && wk_collective_is_done(b->env->collective, &b->bucket[k].sum))
            buckets_apply_rule(b, &b->bucket[k]);
}

enum ps_code wk_buckets_complete(struct wk_buckets *b, bool *completed, struct ps_error *e)
{
    *completed = false;
    if (!b->may_overlap)
        return PS_OK;
    b->open &= !b->rounds->is_new;
    buckets_apply_what_has_come(b);
    if (buckets_ask_all(b, e))
        return e->code;
    if (buckets_giver(b, b->n - 1) == wk_rounds_ranks(b->rounds))
        return PS_OK;
    // That one first: whoever has another one has it, if a further worker is lost.
    const float scale = buckets_scale(b);
    for (size_t k = b->n; k > 0; k--)
        if (buckets_complete_one(b, k - 1, scale, e))
            return e->code;
    *completed = b->open;
    b->open = false;
    return PS_OK;
}

void wk_buckets_complete_alone(struct wk_buckets *b)
{
    const bool counts = wk_buckets_counts(b);
    for (size_t k = 0; k < b->n && counts; k++)
        if (!b->bucket[k].applied) {
            buckets_scale_copy(&b->bucket[k], b->weight > 0 ? 1 / b->weight : 1);
            buckets_apply_rule(b, &b->bucket[k]);
        }
    b->open = false;
}

void wk_buckets_forget(struct wk_buckets *b)
{
    b->open = b->agrees = false;
}
