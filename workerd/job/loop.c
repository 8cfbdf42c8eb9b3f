// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "workerd/job/objectives.h"
#include "workerd/job/progress.h"
#include "workerd/job/summary.h"

struct loop {
    struct wk_run *run;
    struct wk_feed *feed;
    struct wk_progress progress;
    struct wk_meter meter;                // of the epoch
    struct wk_work ahead[WK_FEED_AHEAD];  // a ring: requested from the feed, not trained yet
    int head, n_ahead;
    uint64_t trained;  // steps of this worker
    uint64_t timed;    // ns: run->train_seconds counts up to then
    uint64_t step;     // one past the last, as the strategy counts
    uint64_t cap;      // of the history
    bool epoch_over, drained;
    struct nn_batch weighted;  // the feed's, with weights of classes
    float *class_weight;       // [batch_size]; NULL: none yet
};

static double seconds_since(uint64_t t)
{
    return (double)(ps_now() - t) / (double)PS_SECOND;
}

// ---- batches ------------------------------------------------------------------------------------------------------

// Asks for as many batches as the strategy gives and the feed takes.
static enum ps_code loop_request_batches(struct loop *l, uint64_t epoch, struct ps_error *e)
{
    while (l->n_ahead < WK_FEED_AHEAD && !l->epoch_over) {
        struct wk_work work;
        switch (l->run->strategy->next(l->run->state, epoch, l->n_ahead == 0, &work, e)) {
        case WK_BATCH:
            l->ahead[(l->head + l->n_ahead++) % WK_FEED_AHEAD] = work;
            if (work.rows)
                wk_feed_request(l->feed, work.epoch, work.first, work.rows);
            break;
        case WK_LATER:
            return PS_OK;
        case WK_EPOCH_END:
            l->epoch_over = true;
            break;
        case WK_DRAINED:
            l->epoch_over = l->drained = true;
            break;
        case WK_FAILED:
            return e->code;
        }
    }
    return PS_OK;
}

static struct wk_work loop_take_work(struct loop *l)
{
    struct wk_work work = l->ahead[l->head];
    l->head = (l->head + 1) % WK_FEED_AHEAD;
    l->n_ahead--;
    return work;
}

// ---- one step -----------------------------------------------------------------------------------------------------

// Steps that this worker was not there for are empty.
static void loop_remember_step(struct loop *l, uint64_t step, double loss, double examples)
{
    struct wk_history *h = &l->run->history;
    for (; h->steps <= step; h->steps++) {
        if (h->steps == l->cap) {
            l->cap = l->cap ? 2 * l->cap : 1024;
            h->loss = ps_realloc(h->loss, l->cap * sizeof *h->loss);
            h->examples = ps_realloc(h->examples, l->cap * sizeof *h->examples);
        }
        h->loss[h->steps] = h->examples[h->steps] = 0;
    }
    h->loss[step] = loss;
    h->examples[step] = examples;
    h->total_examples += examples;
}

// Of an epoch all time counts, what is waited for between two steps too.
static void loop_count_time(struct loop *l)
{
    uint64_t now = ps_now();
    l->run->train_seconds += (double)(now - l->timed) / (double)PS_SECOND;
    l->timed = now;
}

static enum ps_code loop_stopped(const struct loop *l, struct ps_error *e)
{
    int signal = (int)*l->run->env.stop;
    return signal ? ps_fail(e, PS_CANCELLED, "stopped by signal %d after step %" PRIu64, signal, l->step) : PS_OK;
}

// Those of the epoch so far.
static void loop_make_figures(struct loop *l)
{
    struct wk_run *run = l->run;
    run->figures.n = 0;
    wk_meter_figures(&l->meter, "", &run->figures);
}

// The next batch of the feed, whose examples count by their class where the job says so.
static const struct nn_batch *loop_take_batch(struct loop *l)
{
    const struct wk_env *env = &l->run->env;
    const struct nn_batch *b = wk_feed_take(l->feed);
    if (!env->job->class_weight.n)
        return b;
    if (!l->class_weight)
        l->class_weight = ps_alloc((size_t)env->job->batch_size * sizeof *l->class_weight);
    l->weighted = *b;
    l->weighted.weight = l->class_weight;
    wk_class_weights(&env->job->class_weight, env->model, &env->job->loss.of[0].loss, b, l->class_weight);
    return &l->weighted;
}

static enum ps_code loop_train(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    struct wk_work work = loop_take_work(l);
    struct nn_result result = {0};
    l->step = work.step;
    if (run->strategy->begin_step(run->state, work.step, e))
        return e->code;
    if (work.rows && nn_replica_train(run->env.replica, loop_take_batch(l), work.step, NULL, NULL, &result, e))
        return e->code;
    if (run->strategy->end_step(run->state, work.step, work.rows, e))
        return e->code;
    l->step = work.step + 1;
    if (l->trained++ == 0)
        run->seconds_to_first_step = seconds_since(run->started);
    loop_count_time(l);
    loop_remember_step(l, work.step, result.loss, work.rows);
    wk_meter_add(&l->meter, &result);
    if (wk_progress_step(&l->progress)) {
        loop_make_figures(l);
        wk_progress_show(&l->progress, &run->figures);
    }
    run->strategy->report(run->state, l->step, run->history.total_examples / run->train_seconds,
                          work.rows ? result.loss / work.rows : 0);
    return PS_OK;
}

static bool is_enough(const struct loop *l)
{
    uint64_t limit = l->run->env.job->steps;
    return limit && l->step >= limit;
}

// ---- evaluation ---------------------------------------------------------------------------------------------------

// The whole test split with the replica's weights: adds its figures to the run's.
static enum ps_code loop_evaluate(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    uint64_t n = wk_data_test(run->data)->examples, asked = 0;
    int batch = run->env.job->batch_size;
    struct wk_meter meter = {0};
    struct wk_feed *feed;
    if (n == 0)
        return PS_OK;
    if (wk_feed_create(run->data, true, batch, false, 0, &feed, e))
        return e->code;
    enum ps_code code = loop_stopped(l, e);
    for (uint64_t done = 0, ahead = 0; code == PS_OK && done < n;) {
        for (; ahead < WK_FEED_AHEAD && asked < n; ahead++) {
            int rows = n - asked < (uint64_t)batch ? (int)(n - asked) : batch;
            wk_feed_request(feed, 0, asked, rows);
            asked += (uint64_t)rows;
        }
        struct nn_result part;
        const struct nn_batch *b = wk_feed_take(feed);
        code = nn_replica_evaluate(run->env.replica, b, &part, e);
        wk_meter_add(&meter, &part);
        done += (uint64_t)b->rows;
        ahead--;
        if (code == PS_OK && done < n)
            code = loop_stopped(l, e);
    }
    wk_feed_free(feed);
    if (code == PS_OK)
        wk_meter_figures(&meter, "val_", &run->figures);
    wk_meter_reset(&meter);
    return code;
}

// ---- epochs -------------------------------------------------------------------------------------------------------

static enum ps_code train_epoch(struct loop *l, uint64_t epoch, struct ps_error *e)
{
    l->epoch_over = false;
    l->timed = ps_now();
    while (!is_enough(l)) {
        if (loop_stopped(l, e))
            return e->code;
        if (loop_request_batches(l, epoch, e))
            return ps_error_prefix(e, "step %" PRIu64, l->step);
        if (l->n_ahead == 0)
            break;
        if (loop_train(l, e))
            return ps_error_prefix(e, "step %" PRIu64, l->step);
    }
    loop_count_time(l);
    return PS_OK;
}

// The chief shows its progress; where it has died or left, the next one does.
static bool is_shown(const struct loop *l)
{
    return !l->run->quiet && l->run->strategy->is_chief(l->run->state);
}

// An epoch that is not the last: the chief looks at the test split with the weights of the moment, shown or not.
static enum ps_code end_epoch(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    if (!run->strategy->is_chief(run->state))
        return PS_OK;
    loop_make_figures(l);
    if (run->strategy->refresh(run->state, e) || loop_evaluate(l, e))
        return e->code;
    l->progress.quiet = run->quiet;
    wk_progress_epoch_end(&l->progress, &run->figures);
    return PS_OK;
}

static enum ps_code train_all(struct loop *l, struct ps_error *e)
{
    const struct ps_job *job = l->run->env.job;
    bool late;
    uint64_t epoch = l->run->strategy->first_epoch(l->run->state, &late);
    for (; epoch < job->epochs && !is_enough(l) && !l->drained; epoch++) {
        l->progress.quiet = !is_shown(l);
        wk_progress_epoch_begin(&l->progress, epoch);
        wk_meter_reset(&l->meter);
        if (train_epoch(l, epoch, e))
            return e->code;
        bool last = l->drained || epoch + 1 == job->epochs || is_enough(l);
        if (!last && end_epoch(l, e))
            return e->code;
    }
    // The others may be over the end already, where they do not wait for it any more.
    l->drained |= late && l->trained == 0;
    return PS_OK;
}

static enum ps_code loop_write_results(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    loop_make_figures(l);
    if (run->strategy->refresh(run->state, e) || loop_evaluate(l, e))
        return e->code;
    l->progress.quiet = run->quiet;
    wk_progress_epoch_end(&l->progress, &run->figures);
    if (wk_save_weights(run, e) || (run->summary && wk_save_summary(run, e)))
        return e->code;
    if (!run->quiet)
        printf("Weights written to %s\n", run->env.job->output);
    return PS_OK;
}

static enum ps_code loop_finish(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    enum wk_writer writer = WK_ANOTHER;
    bool written = false;
    if (run->strategy->finish(run->state, &run->history, e))
        return ps_error_prefix(e, "after the last step");
    while (writer != WK_NOBODY) {
        if (run->strategy->elect(run->state, written, &writer, e))
            return ps_error_prefix(e, "while the results are written");
        if (writer == WK_SELF && loop_write_results(l, e))
            return e->code;
        written |= writer == WK_SELF;
    }
    return PS_OK;
}

// The number of this worker's steps in an epoch, for the progress bar; async workers share them by who comes first.
static uint64_t steps_per_epoch(const struct wk_env *env)
{
    uint64_t per_step = (uint64_t)env->job->batch_size * (env->workers ? env->workers : 1);
    return (env->examples + per_step - 1) / per_step;
}

enum ps_code wk_loop(struct wk_run *run, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    struct loop l = {.run = run};
    const uint64_t seed = run->strategy->seed(run->state);
    nn_replica_reseed(run->env.replica, seed);
    if (wk_feed_create(run->data, false, job->batch_size, job->shuffle, seed, &l.feed, e))
        return e->code;
    wk_progress_init(&l.progress, run->quiet, job->epochs, steps_per_epoch(&run->env));
    enum ps_code code = train_all(&l, e);
    if (code == PS_OK && !l.drained)
        code = loop_finish(&l, e);
    run->drained = l.drained;
    wk_progress_fini(&l.progress);
    wk_meter_reset(&l.meter);
    free(l.class_weight);
    wk_feed_free(l.feed);
    return code;
}

void wk_run_free(struct wk_run *run)
{
    free(run->history.loss);
    free(run->history.examples);
}
