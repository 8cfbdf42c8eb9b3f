// SPDX-License-Identifier: Apache-2.0
//
// mirrored: every replica has all variables, in its own memory. Gradients are added up over all replicas while the
// backward pass goes on, and each applies the same rule to the same sum: the replicas stay equal, to the bit.
//
// central_storage: the same, but that the sum is replica 0's, which alone has the optimizer's slots and applies the
// rule; the others take its variables.
//
// A step takes one batch for each replica: slice `rank` of the step's examples. At the end of an epoch some have fewer
// rows, or none. The gradient is the mean over all rows of the step, so each replica's is weighted by its rows.
//
// Where a worker is lost, those that are left go on, and one that comes back gets what they have (rounds.h).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/signals.h"
#include "workerd/strategy/buckets.h"
#include "workerd/strategy/losses.h"
#include "workerd/strategy/waits.h"

// After so many steps those who have lost a worker see whether it wants to come back.
enum { LET_IN_EVERY = 16 };

struct mirrored {
    const struct wk_env *env;
    struct wk_local_rule rule;
    struct wk_device_sums *sums;  // while it is on, the devices add up, and keep the gradients
    struct wk_buckets buckets;
    bool central;               // replica 0 applies the rule for all
    struct wk_reduction *copy;  // [variables] of its values, to all
    struct wk_work work;        // of the step at hand,
    bool in_backward;           // whose backward pass has begun
    struct wk_work ending;      // of the step that is ending, or ended and is still open (buckets.h)
    bool completed;             // those that are left have completed that
    struct ps_error why;        // a gradient of the step is not finite
    bool compared;              // the replicas have been found equal, once
    struct ps_error ended;      // after the last step the others were gone: nothing more begins
    double *hashes;             // [2 * ranks] of the replicas' variables

    struct wk_rounds rounds;
    bool late;           // the others had begun
    bool in_sum;         // of what belongs to no step
    uint64_t at, steps;  // examples of the epoch that have been handed out to all; steps
};

// ---- open ---------------------------------------------------------------------------------------------------------

// Rank 0's values for all: the others add nothing to them.
static enum ps_code mirrored_broadcast(struct mirrored *s, struct ps_error *e)
{
    const struct wk_env *env = s->env;
    for (size_t i = 0; i < nn_model_params(env->model); i++) {
        if (!wk_env_has(env, i))
            continue;
        float *w = nn_replica_param(env->replica, i);
        const size_t n = (size_t)nn_model_param(env->model, i)->count;
        if (wk_rounds_rank(&s->rounds) != 0)
            wk_rounds_clear(w, n);
        if (wk_rounds_add_up(&s->rounds, w, n, WK_FLOAT, "initial weights", e))
            return ps_error_prefix(e, "initial weights");
    }
    return PS_OK;
}

static void mirrored_close(void *state, const struct ps_error *why)
{
    struct mirrored *s = state;
    wk_device_sums_close(s->sums, why != NULL);
    wk_rounds_close(&s->rounds);
    wk_local_rule_close(&s->rule);
    wk_buckets_close(&s->buckets);
    free(s->hashes);
    free(s->copy);
    free(s);
}

static enum ps_code mirrored_begin_training(struct mirrored *s, struct ps_error *e)
{
    if (wk_device_sums_meet(s->sums, e))
        return e->code;
    if (wk_rounds_rank(&s->rounds) == 0 && wk_init_weights(s->env, e))
        return e->code;
    return mirrored_broadcast(s, e);
}

static void mirrored_go_on_from(struct mirrored *s)
{
    s->late = true;
    s->at = s->rounds.end;
    s->steps = s->rounds.steps;
}

static void mirrored_take_step(struct mirrored *s)
{
    wk_rounds_take_step(&s->rounds, s->ending.end, s->ending.step + 1);
}

static enum ps_code mirrored_complete(void *state, struct ps_error *e)
{
    struct mirrored *s = state;
    bool completed;
    if (wk_buckets_complete(&s->buckets, &completed, e) == PS_OK && completed)
        mirrored_take_step(s);
    s->completed |= completed;
    return e->code;
}

// Who is let in now trains at least one step: whoever has none to train leaves at once, and those that are left might
// be too few then. Between epochs callbacks may end the training.
static bool mirrored_admits(const struct mirrored *s)
{
    const struct ps_job *job = s->env->job;
    const bool has_all_steps = job->steps && s->steps >= job->steps;
    const bool has_all_epochs = s->rounds.epoch + 1 >= job->epochs && s->at >= s->env->examples;
    return !s->in_sum && !has_all_steps && !has_all_epochs;
}

// After ABORTED, as wk_rounds_meet. *taken: this replica has the step that was ending, as others had it or could
// complete it. Devices that add up join anew when the next step begins.
static enum ps_code mirrored_meet(struct mirrored *s, bool *taken, struct ps_error *e)
{
    bool behind;
    wk_device_sums_stop(s->sums);
    s->completed = false;
    if (wk_rounds_meet(&s->rounds, mirrored_admits(s), &behind, e))
        return e->code;
    wk_buckets_forget(&s->buckets);
    if (behind)
        mirrored_take_step(s);
    *taken = behind || s->completed;
    return PS_OK;
}

// Begins with the others, or gets what they have. Where a worker is lost before all have begun, who is left begins
// anew.
static enum ps_code mirrored_start(struct mirrored *s, struct ps_error *e)
{
    bool taken;
    for (;;) {
        const bool comes_back = s->rounds.is_new;
        if (!comes_back && mirrored_begin_training(s, e) != PS_ABORTED)
            return e->code;
        s->rounds.is_new = true;
        if (comes_back)
            wk_rounds_join(&s->rounds, e);
        else
            mirrored_meet(s, &taken, e);
        if (e->code == PS_OK)
            mirrored_go_on_from(s);
        if (e->code != PS_NOT_FOUND)
            return e->code;
        s->rounds.is_new = false;
    }
}

static bool mirrored_applies(const struct mirrored *s)
{
    return !s->central || s->env->device == 0;
}

static enum ps_code mirrored_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    struct mirrored *s = ps_alloc(sizeof *s);
    s->env = env;
    s->central = env->job->strategy == PS_STRATEGY_CENTRAL_STORAGE;
    s->copy = ps_alloc((nn_model_params(env->model) + 1) * sizeof *s->copy);
    s->hashes = ps_alloc(2 * (size_t)env->replicas * sizeof *s->hashes);
    wk_rounds_open(&s->rounds, env, &s->rule);
    s->rounds.complete = mirrored_complete;
    s->rounds.arg = s;
    *state = s;
    wk_device_sums_open(&s->sums, env, &s->rule);
    if (wk_local_rule_open(&s->rule, env, mirrored_applies(s), e))
        return e->code;
    wk_buckets_open(&s->buckets, env, &s->rule, &s->rounds, s->sums);
    return mirrored_start(s, e);
}

// ---- who trains what ----------------------------------------------------------------------------------------------

static uint64_t mirrored_first_epoch(void *state, bool *late)
{
    const struct mirrored *s = state;
    *late = s->late;
    return s->rounds.epoch;
}

static uint64_t mirrored_seed(void *state)
{
    const struct mirrored *s = state;
    return s->env->job->seed;
}

// Of all replicas in one step.
static uint64_t mirrored_batch(const struct mirrored *s)
{
    return (uint64_t)s->env->job->batch_size * wk_rounds_ranks(&s->rounds);
}

static enum wk_next mirrored_next(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e)
{
    struct mirrored *s = state;
    const uint64_t examples = s->env->examples, batch = (uint64_t)s->env->job->batch_size;
    (void)e;
    if (epoch != s->rounds.epoch) {
        s->rounds.epoch = epoch;
        s->at = s->rounds.end = 0;
    }
    if (s->at >= examples)
        return idle ? WK_EPOCH_END : WK_LATER;
    const uint64_t first = s->at + wk_rounds_rank(&s->rounds) * batch;
    work->epoch = epoch;
    work->step = s->steps++;
    work->first = first < examples ? first : examples;
    work->rows = (int)(examples - work->first < batch ? examples - work->first : batch);
    const uint64_t left = examples - s->at, all = mirrored_batch(s);
    work->rows_of_all = left < all ? left : all;
    s->at += work->rows_of_all;
    work->end = s->at;
    return WK_BATCH;
}

static bool mirrored_is_void(void *state)
{
    struct mirrored *s = state;
    if (!wk_rounds_met(&s->rounds))
        return false;
    s->at = s->rounds.end;
    s->steps = s->rounds.steps;
    s->compared = false;
    return true;
}

// ---- a step -------------------------------------------------------------------------------------------------------

static enum ps_code mirrored_again(struct ps_error *e)
{
    return ps_fail(e, PS_ABORTED, "the step is taken again");
}

// After some of the open step's sums have come, or a worker was lost: then who is left has met, and *met says so.
static enum ps_code mirrored_look_at_open(struct mirrored *s, bool was_open, bool *met, struct ps_error *e)
{
    bool taken;
    *met = e->code != PS_OK;
    if (was_open && !s->buckets.open)
        mirrored_take_step(s);
    return *met ? mirrored_meet(s, &taken, e) : PS_OK;
}

// No step is open any more: for who looks at the variables.
static enum ps_code mirrored_settle(struct mirrored *s, bool *met, struct ps_error *e)
{
    const bool was_open = s->buckets.open;
    wk_buckets_apply_all(&s->buckets, e);
    return mirrored_look_at_open(s, was_open, met, e);
}

// In the forward pass, while other variables still wait for the sums of the step before.
static enum ps_code mirrored_need(void *state, size_t variable, struct ps_error *e)
{
    struct mirrored *s = state;
    const bool was_open = s->buckets.open;
    bool met;
    wk_buckets_apply(&s->buckets, s->buckets.of[variable], e);
    return mirrored_look_at_open(s, was_open, &met, e) || !met ? e->code : mirrored_again(e);
}

// The first gradient is ready, or the replicas add up something else: the step before is over by then.
static enum ps_code mirrored_enter_backward(struct mirrored *s, struct ps_error *e)
{
    e->code = PS_OK;
    if (s->in_backward)
        return PS_OK;
    bool met;
    if (mirrored_settle(s, &met, e) || met)
        return e->code ? e->code : mirrored_again(e);
    if (wk_device_sums_prepare(s->sums, &s->work, e))
        return mirrored_meet(s, &met, e) ? e->code : mirrored_again(e);
    wk_buckets_begin(&s->buckets, &s->work);
    s->in_backward = true;
    return PS_OK;
}

static enum ps_code mirrored_ready(void *state, size_t variable, struct ps_error *e)
{
    struct mirrored *s = state;
    if (mirrored_enter_backward(s, e))
        return e->code;
    if (s->env->job->refuse_nonfinite && !s->why.code)  // the first reason stays, and is given at the end of the step
        wk_check_gradient(s->env, variable, &s->why);
    if (!s->why.code)
        wk_buckets_ready(&s->buckets, variable);
    return PS_OK;
}

static enum ps_code mirrored_add_hash(void *arg, float *values, size_t n, struct ps_error *e)
{
    uint64_t *hash = arg;
    *hash = ps_hash(*hash, values, n * sizeof *values);
    (void)e;
    return PS_OK;
}

// Of all variables, what the optimizer keeps of them (where all replicas have that), the next step, and how often the
// rule has been applied by then.
static enum ps_code mirrored_hash(const struct mirrored *s, uint64_t step, uint64_t *all, struct ps_error *e)
{
    const uint64_t applied = step + s->rule.ahead;
    uint64_t hash = ps_hash(ps_hash(PS_HASH_SEED, &step, sizeof step), &applied, sizeof applied);
    if (!s->central && wk_local_rule_each(&s->rule, mirrored_add_hash, &hash, e))
        return e->code;
    for (size_t i = 0; i < nn_model_params(s->env->model) && s->central; i++)
        mirrored_add_hash(&hash, nn_replica_param(s->env->replica, i), (size_t)nn_model_param(s->env->model, i)->count,
                          NULL);
    *all = hash;
    return nn_replica_fetch(s->env->replica, e);
}

// Before the first step, that is of the checkpoints from which they go on; later a defect, of the machine or of this
// program.
static enum ps_code mirrored_differ(const struct mirrored *s, uint64_t step, uint32_t rank, struct ps_error *e)
{
    const bool begins = s->rounds.taken == 0;
    return ps_fail(e, begins ? PS_FAILED_PRECONDITION : PS_INTERNAL,
                   "before step %" PRIu64 " replica %" PRIu32
                   " has other variables, or is at another step, than replica 0%s",
                   step, rank, begins ? ": expected all workers to go on from the same checkpoint, or none" : "");
}

// All hashes, in an array that each rank puts its own into: halves, which a double holds.
static enum ps_code mirrored_compare(struct mirrored *s, uint64_t step, struct ps_error *e)
{
    const uint32_t n = wk_rounds_ranks(&s->rounds);
    uint64_t hash = 0;
    if (mirrored_hash(s, step, &hash, e))
        return e->code;
    for (uint32_t rank = 0; rank < 2 * n; rank++)
        s->hashes[rank] = 0;
    s->hashes[2 * wk_rounds_rank(&s->rounds)] = (double)(hash >> 32);
    s->hashes[2 * wk_rounds_rank(&s->rounds) + 1] = (double)(hash & UINT32_MAX);
    if (wk_rounds_add_up(&s->rounds, s->hashes, 2 * (size_t)n, WK_DOUBLE, "hashes of variables", e))
        return e->code;
    for (uint32_t rank = 1; rank < n; rank++)
        if (s->hashes[2 * rank] != s->hashes[0] || s->hashes[2 * rank + 1] != s->hashes[1])
            return mirrored_differ(s, step, rank, e);
    s->compared = true;
    return PS_OK;
}

static bool mirrored_lacks_some(const struct mirrored *s)
{
    return wk_rounds_ranks(&s->rounds) < s->env->replicas;
}

static enum ps_code mirrored_begin(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct mirrored *s = state;
    bool met, taken;
    if (s->ended.code) {
        *e = s->ended;
        return e->code;
    }
    const bool lets_in = mirrored_lacks_some(s) && work->step % LET_IN_EVERY == 0;
    if (lets_in && (mirrored_settle(s, &met, e) || met))
        return e->code ? e->code : mirrored_again(e);
    if (lets_in && wk_rounds_let_in(&s->rounds, e))
        return e->code;
    // Compared once, before the first step: workers that go on from different checkpoints would train different models.
    if (wk_device_sums_meet(s->sums, e) || (!s->compared && mirrored_compare(s, work->step, e)))
        return mirrored_meet(s, &taken, e) ? e->code : mirrored_again(e);
    s->work = *work;
    s->why.code = PS_OK;
    s->in_backward = false;
    return PS_OK;
}

// In the midst of a step, behind the buckets that have left before. A replica that has found a gradient which is not
// finite lets no more leave, and ends here.
static enum ps_code mirrored_add_up(void *state, double *values, size_t n, struct ps_error *e)
{
    struct mirrored *s = state;
    char what[64];
    struct wk_reduction sum = {.values = values, .n = n, .type = WK_DOUBLE, .what = what};
    bool taken;
    *e = s->why;
    if (e->code || mirrored_enter_backward(s, e))
        return e->code;
    snprintf(what, sizeof what, "the batch's statistics in step %" PRIu64, s->work.step);
    const uint64_t start = wk_wait_begin(s->env);
    const enum ps_code code = wk_collective_reduce(s->env->collective, s->env->device, &sum, e);
    wk_wait_end(s->env, WK_WAIT_GRADIENTS, "statistics of the batch", start);
    if (code)
        return mirrored_meet(s, &taken, e) ? e->code : mirrored_again(e);
    return PS_OK;
}

// Replica 0's variables, for all.
static enum ps_code mirrored_distribute(struct mirrored *s, struct ps_error *e)
{
    const size_t n = nn_model_params(s->env->model);
    e->code = PS_OK;
    for (size_t i = 0; i < n; i++)
        if (nn_param_changes(nn_model_param(s->env->model, i))) {
            s->copy[i] = (struct wk_reduction){.operation = WK_BROADCAST,
                                               .values = nn_replica_param(s->env->replica, i),
                                               .n = (size_t)nn_model_param(s->env->model, i)->count,
                                               .type = WK_FLOAT};
            wk_collective_begin(s->env->collective, s->env->device, &s->copy[i]);
        }
    for (size_t i = 0; i < n && e->code == PS_OK; i++)
        if (nn_param_changes(nn_model_param(s->env->model, i)))
            wk_collective_wait(s->env->collective, &s->copy[i], e);
    return e->code;
}

static enum ps_code mirrored_apply(struct mirrored *s, uint64_t step, struct ps_error *e)
{
    if (mirrored_applies(s) && wk_local_rule_apply(&s->rule, step, e))
        return e->code;
    return s->central ? mirrored_distribute(s, e) : PS_OK;
}

// Where there is no going on after a step that counts, the next one does not begin.
static enum ps_code mirrored_end_here(struct mirrored *s, struct ps_error *e)
{
    if (e->code == PS_ABORTED || e->code == PS_CANCELLED) {
        s->ended = *e;
        e->code = PS_OK;
    }
    return e->code;
}

// After a step that is taken, whoever is lost then.
static enum ps_code mirrored_compare_after(struct mirrored *s, uint64_t steps, struct ps_error *e)
{
    bool taken;
    if (mirrored_compare(s, steps, e) == PS_OK || mirrored_meet(s, &taken, e) == PS_OK)
        return PS_OK;
    return mirrored_end_here(s, e);
}

// All sums are there; or the step is open, and goes on while the next one computes.
static enum ps_code mirrored_take_sums(struct mirrored *s, struct ps_error *e)
{
    const uint64_t every = s->env->job->compare_every, steps = s->ending.step + 1;
    const bool compares = every && steps % every == 0, is_open = s->buckets.open;
    bool met = false;
    if (!s->buckets.overlaps && mirrored_apply(s, s->ending.step, e))
        return e->code;
    if (!is_open)
        mirrored_take_step(s);
    if (is_open && compares && mirrored_settle(s, &met, e))
        return mirrored_end_here(s, e);
    return compares && !met ? mirrored_compare_after(s, steps, e) : PS_OK;
}

static enum ps_code mirrored_end(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct mirrored *s = state;
    bool taken;
    *e = s->why;
    if (e->code || mirrored_enter_backward(s, e))
        return e->code;
    s->ending = *work;
    if (wk_buckets_end(&s->buckets, e) == PS_OK)
        return mirrored_take_sums(s, e);
    if (mirrored_meet(s, &taken, e))
        return wk_buckets_counts(&s->buckets) ? mirrored_end_here(s, e) : e->code;
    return taken ? PS_OK : mirrored_again(e);
}

static enum ps_code mirrored_refresh(void *state, struct ps_error *e)
{
    bool met;
    return mirrored_settle(state, &met, e);
}

// Who was to keep the weights may be gone just now, which those that watch it have not told yet: it is asked. Or it
// may be lost a moment later.
static bool mirrored_keeps_weights(const struct mirrored *s)
{
    const uint64_t until = ps_now() + WK_SIGNAL_SECONDS * PS_SECOND;
    bool leads = wk_rounds_leads_rest(&s->rounds);
    if (leads || !ps_signal_number(s->env->stop))
        return leads;
    wk_rounds_ask_leader(&s->rounds);
    while (!(leads = wk_rounds_leads_rest(&s->rounds)) && ps_now() < until)
        ps_sleep(10 * PS_MS);
    return leads;
}

// Every replica has the weights; where the others are gone, a last step that counts in part with its own gradients.
static enum ps_code mirrored_salvage(void *state, bool *undone, struct ps_error *e)
{
    struct mirrored *s = state;
    (void)undone;
    if (wk_buckets_apply_all(&s->buckets, e))
        wk_buckets_complete_alone(&s->buckets);
    e->code = PS_OK;
    return s->env->device == 0 && mirrored_keeps_weights(s)
               ? PS_OK
               : ps_fail(e, PS_NOT_FOUND, "another replica writes the weights, or other workers train on");
}

// ---- checkpoints, the learning rate -------------------------------------------------------------------------------

static enum ps_code mirrored_save(void *state, struct wk_checkpoint *to, struct ps_error *e)
{
    struct mirrored *s = state;
    bool met;
    if (mirrored_settle(s, &met, e))
        return e->code;
    wk_local_rule_save(&s->rule, to);
    return PS_OK;
}

static enum ps_code mirrored_load(void *state, const struct wk_checkpoint *from, uint64_t epoch, uint64_t first,
                                  uint64_t step, struct ps_error *e)
{
    struct mirrored *s = state;
    if (wk_local_rule_load(&s->rule, from, e))
        return e->code;
    s->rounds.epoch = epoch;
    s->at = s->rounds.end = first;
    s->steps = s->rounds.steps = step;
    return PS_OK;
}

static double mirrored_rate(void *state)
{
    const struct mirrored *s = state;
    return wk_local_rule_rate(&s->rule, s->steps);
}

static void mirrored_set_rate(void *state, double rate)
{
    struct mirrored *s = state;
    wk_local_rule_set_rate(&s->rule, s->steps, rate);
}

static void mirrored_take_rate(void *state, bool is_set, double rate)
{
    struct mirrored *s = state;
    wk_local_rule_take_rate(&s->rule, is_set, rate);
}

static bool mirrored_follows_schedule(const void *state)
{
    const struct mirrored *s = state;
    return wk_local_rule_follows_schedule(&s->rule);
}

// ---- with whom ----------------------------------------------------------------------------------------------------

static enum ps_code mirrored_sum(void *state, double *values, uint64_t n, struct ps_error *e)
{
    struct mirrored *s = state;
    if (s->ended.code) {
        *e = s->ended;
        return e->code;
    }
    bool met;
    s->in_sum = true;
    const enum ps_code code = mirrored_settle(s, &met, e);
    s->in_sum = false;
    return code ? code : wk_rounds_sum(&s->rounds, values, n, e);
}

// All have taken the same steps.
static enum ps_code mirrored_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    struct mirrored *s = state;
    const uint64_t kept = wk_losses_kept(history);
    double examples[] = {history->total_examples, history->examples_before};
    if (mirrored_sum(s, examples, 2, e) || mirrored_sum(s, history->loss, kept, e) ||
        mirrored_sum(s, history->examples, kept, e))
        return e->code;
    history->total_examples = examples[0];
    history->examples_before = examples[1];
    history->averaged = s->steps > 0 && wk_local_rule_averages(&s->rule);
    if (history->averaged && mirrored_applies(s))
        wk_local_rule_take_averages(&s->rule);
    return history->averaged && s->central ? mirrored_distribute(s, e) : PS_OK;
}

static enum ps_code mirrored_elect(void *state, bool written, enum wk_writer *writer, struct ps_error *e)
{
    const struct mirrored *s = state;
    double is_written = written;
    if (mirrored_sum(state, &is_written, 1, e))
        return e->code;
    *writer = is_written > 0 ? WK_NOBODY : wk_rounds_leads(&s->rounds) ? WK_SELF : WK_ANOTHER;
    return PS_OK;
}

static bool mirrored_is_chief(void *state)
{
    const struct mirrored *s = state;
    return wk_rounds_leads(&s->rounds);
}

// A replica that has not been let in yet comes to no epoch.
static uint64_t mirrored_arrival(void *state)
{
    const struct mirrored *s = state;
    return (uint64_t)s->rounds.arrival;
}

static bool mirrored_in_rounds(void *state)
{
    (void)state;
    return true;
}

static const struct wk_sharder sharder_of_steps = {
    .first_epoch = mirrored_first_epoch,
    .seed = mirrored_seed,
    .next = mirrored_next,
    .is_void = mirrored_is_void,
};

static const struct wk_home mirrored_home = {
    .begin = mirrored_begin,
    .need = mirrored_need,
    .ready = mirrored_ready,
    .sum = mirrored_add_up,
    .end = mirrored_end,
    .refresh = mirrored_refresh,
    .salvage = mirrored_salvage,
    .save = mirrored_save,
    .load = mirrored_load,
    .rate = mirrored_rate,
    .set_rate = mirrored_set_rate,
    .take_rate = mirrored_take_rate,
    .follows_schedule = mirrored_follows_schedule,
};

static const struct wk_group replicas = {
    .sum = mirrored_sum,
    .finish = mirrored_finish,
    .elect = mirrored_elect,
    .is_chief = mirrored_is_chief,
    .arrival = mirrored_arrival,
    .in_rounds = mirrored_in_rounds,
};

const struct wk_strategy wk_mirrored = {
    .replicates = true,
    .sharder = &sharder_of_steps,
    .home = &mirrored_home,
    .group = &replicas,
    .open = mirrored_open,
    .close = mirrored_close,
};
