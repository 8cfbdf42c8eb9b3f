// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/step.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/job/objectives.h"
#include "workerd/strategy/waits.h"

enum ps_code wk_stepper_open(struct wk_stepper *s, struct wk_run *run, uint64_t seed, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    s->run = run;
    nn_replica_reseed(run->env.replica, seed);
    return wk_feed_create(run->data, false, job->batch_size, job->shuffle, seed, &s->feed, e);
}

void wk_stepper_close(struct wk_stepper *s)
{
    free(s->class_weight);
    wk_feed_free(s->feed);
}

static void stepper_lap(struct wk_stepper *s, enum wk_part part)
{
    if (s->lap)
        s->lap(s->lap_arg, part);
}

// ---- what comes next ----------------------------------------------------------------------------------------------

void wk_stepper_begin_epoch(struct wk_stepper *s)
{
    s->epoch_over = false;
}

// Asks for as many batches as the strategy gives and the feed takes.
static enum ps_code stepper_request(struct wk_stepper *s, uint64_t epoch, struct ps_error *e)
{
    while (s->n_ahead < WK_FEED_AHEAD && !s->epoch_over) {
        struct wk_work work = {0};  // what a strategy has no use for
        const uint64_t start = wk_wait_begin(&s->run->env);
        enum wk_next next = s->run->strategy->sharder->next(s->run->state, epoch, s->n_ahead == 0, &work, e);
        wk_wait_end(&s->run->env, WK_WAIT_EXAMPLES, "next examples", start);
        stepper_lap(s, WK_PART_NEXT);
        if (next == WK_FAILED || next == WK_LATER)
            return next == WK_FAILED ? e->code : PS_OK;
        s->epoch_over = next != WK_BATCH;
        s->drained |= next == WK_DRAINED;
        if (next != WK_BATCH)
            return PS_OK;
        s->ahead[(s->head + s->n_ahead++) % WK_FEED_AHEAD] = work;
        if (work.rows)
            wk_feed_request(s->feed, work.epoch, work.first, work.rows);
        stepper_lap(s, WK_PART_FEED);
    }
    return PS_OK;
}

static const struct nn_batch *stepper_take(struct wk_stepper *s, struct ps_error *e)
{
    const struct nn_batch *b = wk_feed_take(s->feed, e);
    s->run->data_lost |= !b && e->code != PS_CANCELLED;
    return b;
}

static enum ps_code stepper_drop(struct wk_stepper *s, int rows, struct ps_error *e)
{
    return rows == 0 || stepper_take(s, e) ? PS_OK : e->code;
}

// Drops what was asked for, where it is void; *is_void says whether it was.
static enum ps_code stepper_drop_void(struct wk_stepper *s, bool *is_void, struct ps_error *e)
{
    const struct wk_run *run = s->run;
    *is_void = run->strategy->sharder->is_void && run->strategy->sharder->is_void(run->state);
    if (!*is_void)
        return PS_OK;
    if (stepper_drop(s, s->untaken, e))
        return e->code;
    for (s->untaken = false; s->n_ahead > 0; s->n_ahead--) {
        if (stepper_drop(s, s->ahead[s->head].rows, e))
            return e->code;
        s->head = (s->head + 1) % WK_FEED_AHEAD;
    }
    s->epoch_over = false;
    return PS_OK;
}

enum ps_code wk_stepper_next(struct wk_stepper *s, uint64_t epoch, struct wk_work *work, bool *some, struct ps_error *e)
{
    bool is_void;
    if (stepper_drop_void(s, &is_void, e) || stepper_request(s, epoch, e))
        return e->code;
    *some = s->n_ahead > 0;
    if (!*some)
        return PS_OK;
    *work = s->ahead[s->head];
    s->head = (s->head + 1) % WK_FEED_AHEAD;
    s->n_ahead--;
    return PS_OK;
}

// ---- one step -----------------------------------------------------------------------------------------------------

// The next batch of the feed, whose examples count by their class where the job says so.
static const struct nn_batch *stepper_take_batch(struct wk_stepper *s, struct ps_error *e)
{
    const struct wk_env *env = &s->run->env;
    const struct nn_batch *b = stepper_take(s, e);
    if (!b || !env->job->class_weight.n)
        return b;
    if (!s->class_weight)
        s->class_weight = ps_alloc((size_t)env->job->batch_size * sizeof *s->class_weight);
    s->weighted = *b;
    s->weighted.weight = s->class_weight;
    wk_class_weights(&env->job->class_weight, env->model, &env->job->loss.of[0].loss, b, s->class_weight);
    return &s->weighted;
}

static enum ps_code stepper_train(struct wk_stepper *s, const struct wk_work *work, struct nn_result *result,
                                  struct ps_error *e)
{
    static const struct nn_batch none;
    const struct wk_run *run = s->run;
    const struct wk_home *home = run->strategy->home;
    const struct nn_hooks hooks = {home->need, home->ready, home->sum, run->state};
    s->untaken = work->rows > 0;
    if (home->begin(run->state, work, e))
        return e->code;
    stepper_lap(s, WK_PART_BEGIN);
    const uint64_t start = wk_wait_begin(&run->env);
    const struct nn_batch *batch = work->rows ? stepper_take_batch(s, e) : &none;
    s->untaken = false;
    wk_wait_end(&run->env, WK_WAIT_BATCH, "batch", start);
    stepper_lap(s, WK_PART_FEED);
    if (!batch || nn_replica_train(run->env.replica, batch, work->step, home->need ? &hooks : NULL, result, e))
        return e->code;
    stepper_lap(s, WK_PART_MODEL);
    if (home->end(run->state, work, e))
        return e->code;
    stepper_lap(s, WK_PART_END);
    return PS_OK;
}

enum ps_code wk_stepper_train(struct wk_stepper *s, const struct wk_work *work, struct nn_result *result,
                              bool *happened, struct ps_error *e)
{
    const uint64_t start = ps_track_now(s->run->env.compute);
    enum ps_code code = stepper_train(s, work, result, e);
    bool is_void = false;
    if (code == PS_ABORTED && stepper_drop_void(s, &is_void, e) == PS_OK && is_void)
        code = PS_OK;
    *happened = !is_void;
    ps_track_end(s->run->env.compute, &(struct ps_span){PS_SPAN_STEP, "step", start, "step", work->step});
    return code;
}
