// SPDX-License-Identifier: Apache-2.0
//
// Which examples this worker trains: the control task says, for a share at a time.
//
// async, ssp: a range of the epoch, a few batches long. The next one is asked for while the last is being trained, once
// all before that has been pushed. sync: every n-th batch of what is left, where the k-th is trained in round
// share.round + k + 1, as it is by everyone.
//
// local_steps: what a round, or a range, is of is a period of several batches, which this worker trains one by one.
#include "common/base/log.h"
#include "common/math/philox.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/parameter_server.h"

enum { LEASE_BATCHES = 4 };

static uint64_t examples_per_period(const struct wk_parameter_server_state *s)
{
    return s->period * (uint64_t)s->env->job->batch_size;
}

// Examples in one range. No fewer than are pushed together: the ranges before the last have been pushed then.
static uint64_t examples_per_lease(const struct wk_parameter_server_state *s)
{
    const struct ps_job *job = s->env->job;
    uint64_t together = job->n_push > 1 ? (uint64_t)job->n_push : s->period;
    return (LEASE_BATCHES + together - 1) / together * together * (uint64_t)job->batch_size;
}

static uint64_t examples_first_epoch(void *state, bool *late)
{
    struct wk_parameter_server_state *s = state;
    *late = psc_is_late(s->client);
    return *late ? psc_data_epoch(s->client) : 0;
}

static uint64_t examples_seed(void *state)
{
    struct wk_parameter_server_state *s = state;
    uint64_t resumptions = psc_resumptions(s->client), seed = s->env->job->seed;
    uint32_t word[4];
    ps_philox(seed, PS_RANDOM_RESUME, resumptions, 0, word);
    return resumptions ? (uint64_t)word[1] << 32 | word[0] : seed;
}

const char *wk_psd_mode_name(psc_update update)
{
    static const char *const names[] = {[PSC_ASYNC] = "async", [PSC_SYNC] = "sync", [PSC_SSP] = "ssp"};
    return names[update];
}

// Another mode begins with an epoch. What this worker has pulled last may be older than what all have pushed since. Who
// comes when the last epoch is over learns in which mode it was.
static void take_mode(struct wk_parameter_server_state *s)
{
    if (!s->follows_mode || s->share.update == s->update)
        return;
    if (s->share.count)
        ps_info("from here on the job is %s: psctl set-mode", wk_psd_mode_name(s->share.update));
    s->update = s->share.update;
    s->mode_changed = true;
    s->has_weights = false;
    s->round_offset = s->next_step - s->share.round * s->period;
    s->count_offset = s->next_step - s->handed_out;
}

// Who comes late learns how many steps there were before this run. Its steps, and those of a worker that becomes the
// chief, go on from the furthest of all, because checkpoints are named by the chief's. In rounds a step has its round's
// number; where the mode has changed, who comes late knows as closely as others have reported it what is beyond that.
static void take_count(struct wk_parameter_server_state *s)
{
    const bool late = psc_is_late(s->client), chief = psc_is_chief(s->client), comes = late && s->handed_out == 0;
    if (late) {
        s->base = s->share.steps_before;
        s->ahead = s->share.iterations_before - s->share.steps_before;
        // Where they have gone on from a checkpoint each slot was put, too. Of an outer rule it may have had none.
        if (s->base && !s->is_outer)
            s->loaded_version = 1 + (uint64_t)ps_rule_slots(s->rule, s->hyper);
    }
    const uint64_t furthest = s->share.furthest > s->base ? s->share.furthest - s->base : 0;
    if (s->update == PSC_SYNC && comes && s->mode_changed)
        s->round_offset = furthest - s->share.round * s->period;
    else if (s->update != PSC_SYNC && (comes || (chief && !s->was_chief)) && furthest > s->count_offset + s->handed_out)
        s->count_offset = furthest - s->handed_out;
    s->was_chief = chief;
}

// Asking says that all before has been trained, so that has to be true.
static enum ps_code next_share(struct wk_parameter_server_state *s, uint64_t epoch, struct ps_error *e)
{
    // The batch of a share in rounds, which the next one may be whatever this one was, is known from psc_connect.
    const bool ranges = s->follows_mode || s->update != PSC_SYNC;
    const uint64_t want = ranges ? examples_per_lease(s) : examples_per_period(s);
    psc_error error;
    if (s->settle(s, e))
        return e->code;
    if (psc_lease(s->client, epoch, s->env->examples, want, s->closed, &s->share, &error))
        return wk_take_error(&error, e);
    take_mode(s);
    take_count(s);
    s->taken = s->in_period = 0;
    s->began = s->handed_out;
    s->nothing_ahead = false;
    return PS_OK;
}

// The next range, while batches of the last one are ahead.
static enum wk_next next_share_ahead(struct wk_parameter_server_state *s, uint64_t epoch, struct ps_error *e)
{
    psc_share share;
    psc_error error;
    if (s->update == PSC_SYNC || s->nothing_ahead || s->pushed_all < s->began)
        return WK_LATER;
    if (psc_lease_ahead(s->client, epoch, s->env->examples, examples_per_lease(s), &share, &error)) {
        wk_take_error(&error, e);
        return WK_FAILED;
    }
    s->nothing_ahead = share.count == 0;
    if (s->nothing_ahead)
        return WK_LATER;
    s->share = share;
    take_count(s);
    s->taken = 0;
    s->began = s->handed_out;
    return WK_BATCH;
}

static bool is_used_up(const struct wk_parameter_server_state *s)
{
    return s->taken == (s->update == PSC_SYNC ? s->share.steps : s->share.count);
}

static uint64_t examples_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Of the round at hand. Returns how many examples are left of it: none, where others alone have some in that round.
static uint64_t examples_take_of_round(struct wk_parameter_server_state *s, struct wk_work *work)
{
    const uint64_t done = s->in_period * (uint64_t)s->env->job->batch_size, end = s->share.end;
    const uint64_t from = examples_least(s->share.first + s->taken * s->share.stride, end);
    const uint64_t to = from + examples_least(end - from, examples_per_period(s));
    const uint64_t left = to - examples_least(from + done, to);
    work->step = s->base + s->round_offset + (s->share.round + s->taken) * s->period + s->in_period++;
    work->first = to - left;
    work->ends_period = left <= (uint64_t)s->env->job->batch_size;
    work->last_period = s->taken + 1 == s->share.steps;
    // Of all workers. In the middle of a period, whose end nobody has reached, all of it is to be trained again.
    work->end = work->ends_period ? examples_least(from + s->share.stride, end) : from;
    work->in_period = !work->ends_period;
    if (work->ends_period) {
        work->skipped = s->period - s->in_period;
        s->taken++;
        s->in_period = 0;
    }
    return left;
}

// Of the range at hand, whose last period may be shorter. Returns how many examples are left of it.
static uint64_t examples_take_of_range(struct wk_parameter_server_state *s, struct wk_work *work)
{
    const uint64_t left = s->share.count - s->taken;
    work->step = s->base + s->count_offset + s->handed_out;
    work->first = s->share.first + s->taken;
    s->taken += examples_least(left, (uint64_t)s->env->job->batch_size);
    work->ends_period = s->taken % examples_per_period(s) == 0 || is_used_up(s);
    work->last_period = true;
    work->end = s->share.first + s->taken;
    return left;
}

// The share's next batch.
static void examples_take_batch(struct wk_parameter_server_state *s, struct wk_work *work)
{
    const uint64_t batch = (uint64_t)s->env->job->batch_size;
    const uint64_t left = s->update == PSC_SYNC ? examples_take_of_round(s, work) : examples_take_of_range(s, work);
    work->rows = (int)examples_least(left, batch);
    work->rows_of_all = 0;
    s->handed_out++;
    s->next_step = work->step + 1 - s->base;
}

// Before this worker leaves: its last push counts, and a range that it has trained is told so by asking for another,
// which comes back as it is.
static enum ps_code end_share(struct wk_parameter_server_state *s, uint64_t epoch, struct ps_error *e)
{
    if (s->update != PSC_SYNC && s->share.count)
        return next_share(s, epoch, e);
    return s->settle(s, e);
}

static enum wk_next examples_next(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    if (epoch < s->epochs_over)
        return idle ? WK_EPOCH_END : WK_LATER;
    // What is left of a sync share others take over, to the round; a range that is handed back is trained again.
    if (psc_is_draining(s->client) && (s->update == PSC_SYNC ? s->in_period == 0 : is_used_up(s)))
        return !idle ? WK_LATER : end_share(s, epoch, e) ? WK_FAILED : WK_DRAINED;
    if (is_used_up(s) && !idle) {
        enum wk_next ahead = next_share_ahead(s, epoch, e);
        if (ahead != WK_BATCH)
            return ahead;
    } else if (is_used_up(s)) {
        if (next_share(s, epoch, e))
            return WK_FAILED;
        if (s->share.count == 0)
            return WK_EPOCH_END;
    }
    work->epoch = epoch;
    examples_take_batch(s, work);
    return WK_BATCH;
}

// This worker may be the chief since it asked for a share last: take_count has not heard of that.
static uint64_t examples_count_on(void *state)
{
    struct wk_parameter_server_state *s = state;
    const uint64_t furthest = psc_furthest(s->client);
    if (s->update == PSC_SYNC || s->was_chief || furthest <= s->base + s->trained_to)
        return 0;
    s->trained_to = furthest + 1 - s->base;
    return furthest + 1;
}

const struct wk_sharder wk_psd_sharder = {
    .first_epoch = examples_first_epoch,
    .seed = examples_seed,
    .next = examples_next,
    .count_on = examples_count_on,
};
