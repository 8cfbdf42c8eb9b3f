// SPDX-License-Identifier: Apache-2.0
//
// one_device: the variables are the replica's own, the rule is applied where they lie.
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/strategy/local_rule.h"

struct one_device {
    const struct wk_env *env;
    struct wk_local_rule rule;
    uint64_t epoch, at, steps;
};

static void one_device_close(void *state, const struct ps_error *why)
{
    struct one_device *s = state;
    (void)why;
    wk_local_rule_close(&s->rule);
    free(s);
}

static enum ps_code one_device_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    struct one_device *s = ps_alloc(sizeof *s);
    s->env = env;
    if (wk_local_rule_open(&s->rule, env, true, e) || wk_local_rule_keep(&s->rule, e) || wk_init_weights(env, e)) {
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
    work->rows_of_all = 0;
    work->end = s->at;
    return WK_BATCH;
}

static enum ps_code one_device_begin(void *state, const struct wk_work *work, struct ps_error *e)
{
    (void)state;
    (void)work;
    (void)e;
    return PS_OK;
}

static enum ps_code one_device_end(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct one_device *s = state;
    if (s->env->job->refuse_nonfinite && wk_local_rule_check_finite(&s->rule, e))
        return e->code;
    return wk_local_rule_apply(&s->rule, work->step, e);
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
    (void)e;
    history->averaged = s->steps > 0 && wk_local_rule_averages(&s->rule);
    if (history->averaged)
        wk_local_rule_take_averages(&s->rule);
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

// ---- checkpoints --------------------------------------------------------------------------------------------------

static enum ps_code one_device_save(void *state, struct wk_checkpoint *to, struct ps_error *e)
{
    const struct one_device *s = state;
    (void)e;
    wk_local_rule_save(&s->rule, to);
    return PS_OK;
}

static enum ps_code one_device_load(void *state, const struct wk_checkpoint *from, uint64_t epoch, uint64_t first,
                                    uint64_t step, struct ps_error *e)
{
    struct one_device *s = state;
    if (wk_local_rule_load(&s->rule, from, e))
        return e->code;
    s->epoch = epoch;
    s->at = first;
    s->steps = step;
    return PS_OK;
}

static double one_device_rate(void *state)
{
    const struct one_device *s = state;
    return wk_local_rule_rate(&s->rule, s->steps);
}

static void one_device_set_rate(void *state, double rate)
{
    struct one_device *s = state;
    wk_local_rule_set_rate(&s->rule, s->steps, rate);
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
};

const struct wk_strategy wk_one_device = {
    .sharder = &local_sharder,
    .home = &local_home,
    .group = &alone,
    .open = one_device_open,
    .close = one_device_close,
};
