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
// With several fragments (Streaming DiLoCo: Douillard et al., arXiv 2501.18512) the model is cut into parts that are
// pushed one after the other, at equal distances within a period. With fragment_sync_delay a part is under way while
// this worker trains so many further steps; then its weights become what has come, plus what these steps have added.
// In the last period of a share, as at an epoch's end, all parts are exchanged at the end, and waited for.
//
// Differences may travel in fewer bytes (gradient_compression). What that loses of one is added to the next one of the
// same worker. Weights come back whole, and states travel whole both ways.
//
// The slots of the job's optimizer stay in the worker, from one period to the next, and end with it; a checkpoint has
// those of the worker that writes it, with which all go on, and those of the outer rule. An epoch's end is a period's
// end: an epoch is cut into as many equal periods as come nearest to the length that the job asks for.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "workerd/strategy/local_rule.h"
#include "workerd/strategy/parameter_server.h"

enum { OVERLAPPED_PERIODS = 8 };

// A part of the model; its bucket has the operation that is under way.
struct local_fragment {
    bool pushed;    // in the period at hand
    uint64_t due;   // under way: the count of trained steps at which it is waited for
    uint64_t seen;  // of local_steps.examples, when it was pushed last
};

struct local_steps {
    struct wk_parameter_server_state server;  // first: the sharder and the group know it alone
    struct wk_local_rule rule;
    psc_tensor *begun;  // [n_trained] what the ps tasks had, with which its training began; pulls go there
    psc_tensor *left;   // [n_trained] with a delay: the weights when they were pushed; else NULL
    struct local_fragment *fragment;  // [server.n_buckets]
    uint64_t delay;                   // steps
    uint64_t examples;                // trained so far
    uint64_t in_period;               // steps of the period at hand
    uint64_t last_step;               // the last one of all
    uint64_t next;                    // the number of the step after it
    uint64_t ended;                   // the last step of the last period that ended here
    uint64_t skipped;                 // numbers of steps that were none of this worker's, or had no rows
    bool given_up;                    // the last period's exchange, after a signal
    bool latest;  // the replica has the values of all variables, and nobody can have changed them since
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

// Parts of about the same size, in the order in which gradients become ready.
static void local_steps_cut(struct local_steps *l)
{
    struct wk_parameter_server_state *s = &l->server;
    const uint64_t parts = s->env->job->fragments > 1 ? (uint64_t)s->env->job->fragments : 1;
    uint64_t total = 0, before = 0;
    for (size_t i = 0; i < s->n_trained; i++)
        total += s->weights[i].count;
    s->bucket = ps_alloc((parts + 1) * sizeof *s->bucket);
    l->fragment = ps_alloc((parts + 1) * sizeof *l->fragment);
    for (size_t i = 0; i < s->n_trained; i++) {
        if (s->n_buckets == 0 || before * parts >= s->n_buckets * total)
            s->bucket[s->n_buckets++] = (struct wk_bucket){.first = i};
        s->bucket[s->n_buckets - 1].n++;
        before += s->weights[i].count;
    }
}

static psc_dtype local_steps_encoding(const struct ps_job *job)
{
    switch (job->compression) {
    case PS_COMPRESSION_BFLOAT16:
        return PSC_BFLOAT16;
    case PS_COMPRESSION_INT8:
        return PSC_SCALED_INT8;
    default:
        return 0;
    }
}

// Without a delay nothing trains while a push is under way: its memory is the gradients'.
static enum ps_code local_steps_make_home(struct local_steps *l, struct ps_error *e)
{
    struct wk_parameter_server_state *s = &l->server;
    if (ps_job_server_rule(s->env->job, &s->rule, s->hyper, e))
        return e->code;
    wk_home_add_tensors(s);
    s->pushed = s->gradients;
    local_steps_cut(l);
    wk_home_name_buckets(s);
    if (wk_local_rule_open(&l->rule, s->env, true, e) || wk_local_rule_keep(&l->rule, e) ||
        wk_home_make_tensors(s, &l->begun, e))
        return e->code;
    if (local_steps_encoding(s->env->job) && wk_home_encode(s, local_steps_encoding(s->env->job), e))
        return e->code;
    s->pulled = l->begun;
    return l->delay && (wk_home_make_tensors(s, &s->pushed, e) || wk_home_make_tensors(s, &l->left, e)) ? e->code
                                                                                                        : PS_OK;
}

static void local_steps_close(void *state, const struct ps_error *why)
{
    struct local_steps *l = state;
    wk_psd_close(&l->server, why);
    wk_home_abandon(&l->server);
    wk_home_free_tensors(&l->server, l->begun);
    wk_home_free_tensors(&l->server, l->left);
    wk_home_free(&l->server);
    wk_local_rule_close(&l->rule);
    free(l->fragment);
    free(l);
}

// Periods in a share of sync. One: who comes late joins with the next period. But all workers wait for each other
// between two shares: where those who are late are not waited for, a share is of the whole epoch; where parts are under
// way from one period to the next, of some.
static uint32_t local_steps_share_rounds(const struct ps_job *job)
{
    if (job->update != PS_SYNC || job->replicas_to_aggregate)
        return 0;
    return job->fragment_delay || job->fragments > 1 ? OVERLAPPED_PERIODS : 1;
}

static struct local_steps *local_steps_create(const struct wk_env *env)
{
    struct local_steps *l = ps_alloc(sizeof *l);
    struct wk_parameter_server_state *s = &l->server;
    s->env = l->rule.env = env;
    s->update = (psc_update)env->job->update;
    s->settle = local_steps_settle;
    s->period = local_steps_period(env);
    l->delay = (uint64_t)env->job->fragment_delay;
    s->share_rounds = local_steps_share_rounds(env->job);
    s->is_outer = true;
    s->loaded_version = 1;
    l->state_momentum = env->job->update == PS_SYNC ? 0 : 1 - 1.0 / env->workers;
    s->state_momentum = &l->state_momentum;
    return l;
}

static enum ps_code local_steps_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    if (wk_psd_refuse_constraints(env, e))
        return e->code;
    struct local_steps *l = local_steps_create(env);
    if (local_steps_make_home(l, e) || (env->rank == 0 && wk_init_weights(env, e)) || wk_psd_join(&l->server, e)) {
        local_steps_close(l, e);
        return e->code;
    }
    local_steps_say_period(l);
    *state = l;
    return PS_OK;
}

// ---- a part's exchange --------------------------------------------------------------------------------------------

// Before weights are read or written: they may be on a device, from where they come, and where they go with the next
// step.
static enum ps_code local_steps_fetch(const struct local_steps *l, struct ps_error *e)
{
    return nn_replica_fetch(l->server.env->replica, e);
}

static void local_steps_copy(const psc_tensor *to, const psc_tensor *from)
{
    memcpy(to->data, from->data, from->count * sizeof(float));
}

// What is pushed of a variable: how far its weights have moved, against the direction; a state as it is.
static void local_steps_make_difference(struct local_steps *l, size_t i)
{
    struct wk_parameter_server_state *s = &l->server;
    float *pushed = s->pushed[i].data;
    const float *begun = l->begun[i].data, *now = s->weights[i].data;
    for (uint64_t k = 0; k < s->weights[i].count; k++)
        pushed[k] = s->learns[i] ? begun[k] - now[k] : now[k];
    if (l->left)
        local_steps_copy(&l->left[i], &s->weights[i]);
}

// Where a round closes without this worker (replicas_to_aggregate), it is the one after the last that all variables of
// the part have closed, as far as this worker has seen: too late, it is dropped there.
static uint64_t local_steps_round(const struct local_steps *l, const struct wk_bucket *part)
{
    const struct wk_parameter_server_state *s = &l->server;
    if (s->update != PSC_SYNC)
        return 0;
    return s->env->job->replicas_to_aggregate ? part->closed + 1 : (l->last_step - s->base) / s->period + 1;
}

// The weights become what has come, plus what this worker has added to them since the push.
static void local_steps_take(struct local_steps *l, size_t i)
{
    struct wk_parameter_server_state *s = &l->server;
    float *now = s->weights[i].data;
    const float *begun = l->begun[i].data, *left = l->left ? l->left[i].data : now;
    if (!l->left || !s->learns[i])
        local_steps_copy(&s->weights[i], &l->begun[i]);
    else
        for (uint64_t k = 0; k < s->weights[i].count; k++)
            now[k] = begun[k] + (now[k] - left[k]);
}

// Waits for a part, where it is under way.
static enum ps_code local_steps_finish(struct local_steps *l, size_t part, struct ps_error *e)
{
    struct wk_parameter_server_state *s = &l->server;
    struct wk_bucket *b = &s->bucket[part];
    if (!b->op)
        return PS_OK;
    if (wk_home_settle_bucket(s, b, e))
        return e->code;
    if (local_steps_fetch(l, e))
        return e->code;
    for (size_t i = b->first; i < b->first + b->n; i++)
        local_steps_take(l, i);
    return PS_OK;
}

static enum ps_code local_steps_start(struct local_steps *l, size_t part, struct ps_error *e)
{
    struct wk_parameter_server_state *s = &l->server;
    struct wk_bucket *b = &s->bucket[part];
    struct local_fragment *f = &l->fragment[part];
    if (local_steps_finish(l, part, e))
        return e->code;
    if (local_steps_fetch(l, e))
        return e->code;
    for (size_t i = b->first; i < b->first + b->n; i++) {
        local_steps_make_difference(l, i);
        wk_home_clip(s, s->pushed, i);
    }
    wk_home_clip_all(s, s->pushed);  // in async, which has one part
    s->round = local_steps_round(l, b);
    wk_home_push(s, b, l->examples - f->seen, true);
    *f = (struct local_fragment){true, s->trained + l->delay, l->examples};
    return PS_OK;
}

// ---- a period's end -----------------------------------------------------------------------------------------------

// Nothing is under way, and the weights are those that the ps tasks had.
static enum ps_code local_steps_finish_all(struct local_steps *l, struct ps_error *e)
{
    struct wk_parameter_server_state *s = &l->server;
    for (size_t part = 0; part < s->n_buckets; part++)
        if (local_steps_finish(l, part, e))
            return e->code;
    if (local_steps_fetch(l, e))
        return e->code;
    for (size_t i = 0; i < s->n_trained; i++)
        local_steps_copy(&s->weights[i], &l->begun[i]);
    s->pushed_all = s->in_push = s->trained;
    l->latest = s->update == PSC_SYNC && !s->env->job->replicas_to_aggregate && !s->env->job->steps;
    return PS_OK;
}

// Pushes the parts that have not been in this period.
static enum ps_code local_steps_end_period(struct local_steps *l, struct ps_error *e)
{
    struct wk_parameter_server_state *s = &l->server;
    wk_home_delay(s, l->last_step);
    for (size_t part = 0; part < s->n_buckets; part++)
        if (!l->fragment[part].pushed && local_steps_start(l, part, e))
            return e->code;
    for (size_t part = 0; part < s->n_buckets; part++)
        l->fragment[part].pushed = false;
    l->in_period = 0;
    return PS_OK;
}

static enum ps_code local_steps_settle(struct wk_parameter_server_state *state, struct ps_error *e)
{
    struct local_steps *l = (struct local_steps *)state;
    if (l->in_period && local_steps_end_period(l, e))
        return e->code;
    return l->server.has_weights && !l->latest ? local_steps_finish_all(l, e) : PS_OK;
}

// Parts leave at equal distances; what has been under way for long enough is waited for.
static enum ps_code local_steps_exchange(struct local_steps *l, const struct wk_work *work, struct ps_error *e)
{
    struct wk_parameter_server_state *s = &l->server;
    for (size_t part = 0; part < s->n_buckets && !work->last_period && !work->ends_period; part++)
        if (!l->fragment[part].pushed && l->in_period * s->n_buckets >= (part + 1) * s->period &&
            local_steps_start(l, part, e))
            return e->code;
    if (work->ends_period && local_steps_end_period(l, e))
        return e->code;
    for (size_t part = 0; part < s->n_buckets; part++)
        if (l->fragment[part].due <= s->trained && local_steps_finish(l, part, e))
            return e->code;
    return work->ends_period && work->last_period ? local_steps_finish_all(l, e) : PS_OK;
}

// ---- a step -------------------------------------------------------------------------------------------------------

static void local_steps_keep(struct local_steps *l)
{
    for (size_t i = 0; i < l->server.n_trained; i++)
        local_steps_copy(&l->begun[i], &l->server.weights[i]);
}

static enum ps_code local_steps_begin(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct local_steps *l = state;
    struct wk_parameter_server_state *s = &l->server;
    if (s->has_weights)
        return wk_psd_health(s, e);
    if (local_steps_fetch(l, e))
        return e->code;
    if (wk_home_pull_all(s, s->update == PSC_SYNC ? s->share.round : 0, e) || wk_home_take_changes(s, e))
        return e->code;
    l->rule.began = s->base && !psc_is_late(s->client) ? 0 : work->step + s->ahead;
    l->next = work->step;
    local_steps_keep(l);
    return PS_OK;
}

// After a signal the others may have ended before they have pushed. What this worker has pushed in this period is with
// the ps tasks: salvage finds whether it counts, and the period is over for this worker.
static bool local_steps_gives_up(struct local_steps *l, const struct wk_work *work, enum ps_code code)
{
    const struct wk_parameter_server_state *s = &l->server;
    const bool signalled = s->env->stop && ps_signal_number(s->env->stop);
    l->given_up = signalled && code == PS_CANCELLED && work->ends_period && wk_psd_closes_whole_rounds(s) &&
                  s->n_buckets > 0 && s->bucket[0].op && s->round == local_steps_round(l, &s->bucket[0]);
    return l->given_up;
}

// The worker's own rule counts the gradients that it has had: where a period ends early, step numbers are left out.
// A worker that came late has heard with its share how far ahead the count is.
static void local_steps_skip_to(struct local_steps *l, uint64_t step)
{
    l->skipped += step - l->next;
    l->next = step;
    l->rule.ahead = l->server.ahead - l->skipped;
}

// A step of no rows has no gradient, and its worker waits for the others with the weights that it has.
static enum ps_code local_steps_apply(struct local_steps *l, const struct wk_work *work, struct ps_error *e)
{
    local_steps_skip_to(l, work->step);
    if (work->rows && wk_local_rule_apply(&l->rule, work->step, e))
        return e->code;
    l->next += work->rows > 0;
    local_steps_skip_to(l, work->step + 1 + work->skipped);
    return PS_OK;
}

static enum ps_code local_steps_end(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct local_steps *l = state;
    if (l->server.env->job->refuse_nonfinite && wk_local_rule_check_finite(&l->rule, e))
        return e->code;
    if (local_steps_apply(l, work, e))
        return e->code;
    l->server.trained++;
    l->server.trained_to = work->step + 1 - l->server.base;
    l->in_period++;
    l->examples += (uint64_t)work->rows;
    l->last_step = work->step;
    l->latest = false;
    const enum ps_code code = local_steps_exchange(l, work, e);
    if (code != PS_OK && !local_steps_gives_up(l, work, code))
        return code;
    if (work->ends_period) {
        l->server.counted = l->server.round;
        l->ended = work->step;
    }
    return PS_OK;
}

// In the middle of a period a worker's own weights are what there is.
static enum ps_code local_steps_refresh(void *state, struct ps_error *e)
{
    struct local_steps *l = state;
    struct wk_parameter_server_state *s = &l->server;
    bool busy = l->in_period > 0;
    if (l->given_up)
        return ps_fail(e, PS_CANCELLED, "stopped by %s while it waited for the others",
                       ps_signal_name(ps_signal_number(s->env->stop)));
    for (size_t part = 0; part < s->n_buckets; part++)
        busy |= s->bucket[part].op != NULL;
    if (busy || (l->latest && !s->averages))
        return PS_OK;
    if (local_steps_fetch(l, e))
        return e->code;
    if (wk_home_pull_all(s, s->round, e) || wk_home_take_changes(s, e))
        return e->code;
    local_steps_keep(l);
    return PS_OK;
}

// A period that is taken back is not in the weights, but in the slots, and the position is that of its last step.
static enum ps_code local_steps_salvage(void *state, bool *undone, struct ps_error *e)
{
    struct local_steps *l = state;
    if (local_steps_fetch(l, e) || wk_home_salvage(state, undone, e))
        return e->code;
    l->rule.ahead = l->server.ahead - l->skipped + (*undone ? l->next - l->ended : 0);
    return PS_OK;
}

// ---- what steers --------------------------------------------------------------------------------------------------

static double local_steps_rate(void *state)
{
    const struct local_steps *l = state;
    return wk_local_rule_rate(&l->rule, l->next);
}

static bool local_steps_follows_schedule(const void *state)
{
    const struct local_steps *l = state;
    return wk_local_rule_follows_schedule(&l->rule);
}

static void local_steps_set_rate(void *state, double rate)
{
    struct local_steps *l = state;
    wk_local_rule_set_rate(&l->rule, l->next, rate);
}

static void local_steps_take_rate(void *state, bool is_set, double rate)
{
    struct local_steps *l = state;
    wk_local_rule_take_rate(&l->rule, is_set, rate);
}

// Of the slots, which are each worker's own, those of who writes; and those of the outer rule.
static enum ps_code local_steps_save(void *state, struct wk_checkpoint *to, struct ps_error *e)
{
    struct local_steps *l = state;
    if (!l->server.reader && local_steps_refresh(state, e))
        return e->code;
    wk_local_rule_save(&l->rule, to);
    wk_psd_save(&l->server, to);
    return PS_OK;
}

// All begin with the same slots. The first step pulls all that it needs.
static enum ps_code local_steps_load(void *state, const struct wk_checkpoint *from, uint64_t epoch, uint64_t first,
                                     uint64_t step, struct ps_error *e)
{
    struct local_steps *l = state;
    if (wk_local_rule_load(&l->rule, from, e) || wk_psd_load(&l->server, from, epoch, first, step, e))
        return e->code;
    if (local_steps_fetch(l, e) || wk_home_pull_loaded(&l->server, e))
        return e->code;
    l->last_step = l->next = step;
    if (l->server.env->rank == 0 && wk_psd_load_changes(&l->server, from, e))
        return e->code;
    return wk_psd_barrier(&l->server, "checkpoint taken", e);
}

static const struct wk_home local_steps_home = {
    .begin = local_steps_begin,
    .end = local_steps_end,
    .refresh = local_steps_refresh,
    .salvage = local_steps_salvage,
    .save = local_steps_save,
    .load = local_steps_load,
    .rate = local_steps_rate,
    .set_rate = local_steps_set_rate,
    .take_rate = local_steps_take_rate,
    .follows_schedule = local_steps_follows_schedule,
};

const struct wk_strategy wk_local_steps = {
    .sharder = &wk_psd_sharder,
    .home = &local_steps_home,
    .group = &wk_psd_group,
    .open = local_steps_open,
    .close = local_steps_close,
};
