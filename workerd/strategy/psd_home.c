// SPDX-License-Identifier: Apache-2.0
//
// The variables of a parameter_server job live on the ps tasks. Weights arrive before the operator that reads them, and
// gradients leave while the backward pass goes on.
//
// What a step changes travels in buckets, cut in the order in which the backward pass makes gradients ready. A bucket
// leaves with its last gradient; the forward pass waits for it where it needs the first of its weights. The other
// variables are pulled once, and for evaluations. What the forward pass needs first was ready last: such a bucket goes
// before those that have not left (Jayarajan et al., Priority-based Parameter Propagation, MLSys 2019).
//
//     async   push and pull of a bucket are one operation
//     sync    likewise; its answer comes when the round has closed that the push is part of
//     ssp     a bucket is pushed; all are pulled when the clock allows the next step, those first that are needed first
//
// All leave at the end of the step, where nobody but this worker has the whole gradient and it is clipped by its norm
// (global_clipnorm in async and ssp), and with n_fetch and n_push.
//
// async with n_fetch and n_push (Dean et al., Large Scale Distributed Deep Networks, NIPS 2012, section 4.1 and its
// appendix): weights are pulled every n_fetch steps and changed by plain SGD with the worker's own gradients between,
// at the rate that the ps tasks apply by then; gradients are added up and pushed every n_push steps, and what there is
// before an evaluation and at the end of an epoch.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/math/philox.h"
#include "workerd/collective/collective.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/parameter_server.h"
#include "workerd/strategy/waits.h"

// A bucket costs a message in each direction; what is in one waits for its last gradient. No more of them than are
// of use, and far fewer than a client may have open (256).
enum { BUCKET_BYTES = 64 << 10, BUCKETS = 64 };

// While an operation is waited for: how often a signal is looked for, and an end of the collective.
enum { LOOK_MS = 100 };

// ---- open ---------------------------------------------------------------------------------------------------------

enum ps_code wk_home_make_tensors(const struct wk_parameter_server_state *s, psc_tensor **tensors, struct ps_error *e)
{
    psc_tensor *t = *tensors = ps_alloc(s->n_trained * sizeof **tensors);
    for (size_t i = 0; i < s->n_trained; i++) {
        const psc_tensor *g = &s->gradients[i];
        t[i] = (psc_tensor){g->name, ps_try_alloc_array(g->count, sizeof(float)), g->count, g->dtype};
        if (!t[i].data)
            return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                           "no memory for what is pushed of '%s', which takes %" PRIu64 " bytes", g->name,
                           g->count * sizeof(float));
    }
    return PS_OK;
}

void wk_home_free_tensors(const struct wk_parameter_server_state *s, psc_tensor *tensors)
{
    for (size_t i = 0; tensors && i < s->n_trained; i++)
        free(tensors[i].data);
    free(tensors);
}

static void home_add_tensor(struct wk_parameter_server_state *s, size_t variable)
{
    const struct nn_param *p = nn_model_param(s->env->model, variable);
    struct nn_replica *replica = s->env->replica;
    s->tensor[variable] = s->n;
    s->weights[s->n++] = (psc_tensor){p->name, nn_replica_param(replica, variable), p->count, PSC_FLOAT32};
    if (!nn_param_changes(p))
        return;
    s->learns[s->n_trained] = p->trainable;
    s->momentum[s->n_trained] = p->momentum;
    s->gradients[s->n_trained++] = (psc_tensor){p->name, nn_replica_grad(replica, variable), p->count, PSC_FLOAT32};
}

void wk_home_add_tensors(struct wk_parameter_server_state *s)
{
    const size_t n = nn_model_params(s->env->model), *order;
    const size_t n_ready = nn_replica_order(s->env->replica, &order);
    s->weights = ps_alloc(n * sizeof *s->weights);
    s->gradients = ps_alloc(n * sizeof *s->gradients);
    s->learns = ps_alloc(n * sizeof *s->learns);
    s->momentum = ps_alloc(n * sizeof *s->momentum);
    s->tensor = ps_alloc(n * sizeof *s->tensor);
    for (size_t i = 0; i < n; i++)
        s->tensor[i] = n;
    for (size_t k = 0; k < n_ready; k++)
        if (wk_env_has(s->env, order[k]))
            home_add_tensor(s, order[k]);
    for (size_t i = 0; i < n; i++)
        if (wk_env_has(s->env, i) && !nn_param_changes(nn_model_param(s->env->model, i)))
            home_add_tensor(s, i);
}

enum ps_code wk_home_encode(struct wk_parameter_server_state *s, psc_dtype encoding, struct ps_error *e)
{
    s->residual = ps_alloc((s->n_trained + 1) * sizeof *s->residual);
    s->encoding = encoding;
    for (size_t i = 0; i < s->n_trained; i++) {
        const psc_tensor *g = &s->gradients[i];
        if (s->learns[i] && !(s->residual[i] = ps_try_alloc_array(g->count, sizeof(float))))
            return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                           "no memory for what compression loses of '%s', which takes %" PRIu64 " bytes", g->name,
                           g->count * sizeof(float));
    }
    return PS_OK;
}

static void home_cut_buckets(struct wk_parameter_server_state *s)
{
    uint64_t total = 0, bytes = 0;
    for (size_t i = 0; i < s->n_trained; i++)
        total += s->gradients[i].count * sizeof(float);
    const uint64_t enough = total / BUCKETS > BUCKET_BYTES ? total / BUCKETS : BUCKET_BYTES;
    s->bucket = ps_alloc((s->n_trained + 1) * sizeof *s->bucket);
    s->bucket_of = ps_alloc((s->n_trained + 1) * sizeof *s->bucket_of);
    for (size_t i = 0; i < s->n_trained; i++) {
        if (i == 0 || bytes >= enough) {
            s->bucket[s->n_buckets] = (struct wk_bucket){.first = i, .priority = (uint32_t)s->n_buckets + 1};
            s->n_buckets++;
            bytes = 0;
        }
        bytes += s->gradients[i].count * sizeof(float);
        s->bucket_of[i] = s->n_buckets - 1;
        s->bucket[s->n_buckets - 1].n++;
    }
}

void wk_home_name_buckets(struct wk_parameter_server_state *s)
{
    for (struct wk_bucket *b = s->bucket; s->env->communication && b < s->bucket + s->n_buckets; b++) {
        const char *first = s->weights[b->first].name;
        b->track = s->env->communication;
        b->name = b->n == 1 ? ps_strdup(first) : ps_printf("%s +%zu", first, b->n - 1);
        for (size_t i = b->first; i < b->first + b->n; i++)
            b->bytes += s->weights[i].count * sizeof(float);
    }
}

static enum ps_code home_settle(struct wk_parameter_server_state *s, struct ps_error *e);

enum ps_code wk_home_open(struct wk_parameter_server_state *s, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    if (ps_job_server_rule(job, &s->rule, s->hyper, e))
        return e->code;
    wk_home_add_tensors(s);
    home_cut_buckets(s);
    wk_home_name_buckets(s);
    s->rate = s->hyper[PS_HYPER_LEARNING_RATE];
    s->pushed = s->gradients;
    s->pulled = s->weights;
    s->settle = home_settle;
    s->period = s->loaded_version = 1;
    return job->n_push > 1 ? wk_home_make_tensors(s, &s->pushed, e) : PS_OK;
}

// How long an operation of a round may take after a signal, from now on: others may have ended before they have pushed
// to it, so that is as long as a step takes, and a little more. A period of local_steps, which may take much longer, is
// given up before others leave: then its round would close without their part. UINT64_MAX: as long as the client lets
// it.
static uint64_t home_deadline(struct wk_parameter_server_state *s)
{
    if (!s->env->stop || !ps_signal_number(s->env->stop))
        return UINT64_MAX;
    s->stopped_at = s->stopped_at ? s->stopped_at : ps_now();
    const bool in_step = s->update == PSC_SYNC && (!s->is_outer || wk_psd_closes_whole_rounds(s));
    return in_step ? s->stopped_at + WK_SIGNAL_SECONDS * PS_SECOND / 4 + wk_psd_step_ns(s) : UINT64_MAX;
}

// Until it has ended. CANCELLED: not in time after a signal. Where the workers have a collective, too, as in hybrid,
// that knows at once of one that is gone, long before the ps tasks do, and the wait ends as wk_collective_look says.
static enum ps_code home_await(struct wk_parameter_server_state *s, psc_op *op, struct ps_error *e)
{
    e->code = PS_OK;
    while (e->code == PS_OK && !psc_done(op, LOOK_MS)) {
        if (ps_now() >= home_deadline(s))
            ps_fail(e, PS_CANCELLED, "stopped by %s while it waited for the others",
                    ps_signal_name(ps_signal_number(s->env->stop)));
        else if (s->env->collective)
            wk_collective_look(s->env->collective, e);
    }
    return e->code;
}

// All of them, until then.
static void home_await_all(const struct wk_parameter_server_state *s, uint64_t until)
{
    for (size_t i = 0; i < s->n_buckets; i++) {
        const uint64_t now = ps_now(), ms = now < until ? (until - now) / PS_MS : 0;
        psc_done(s->bucket[i].op, ms < INT_MAX ? (int)ms : INT_MAX);
    }
}

static void home_forget(struct wk_bucket *b)
{
    psc_error ignored;
    if (b->op)
        psc_wait(b->op, NULL, &ignored);
    b->op = NULL;
}

// What was under way when the job failed ends with the client; its handles are still ours.
void wk_home_abandon(struct wk_parameter_server_state *s)
{
    for (size_t i = 0; i < s->n_buckets; i++)
        home_forget(&s->bucket[i]);
}

void wk_home_free(struct wk_parameter_server_state *s)
{
    wk_home_abandon(s);
    if (s->pushed != s->gradients)
        wk_home_free_tensors(s, s->pushed);
    for (size_t i = 0; i < s->n_buckets; i++)
        free(s->bucket[i].name);
    free(s->bucket);
    free(s->bucket_of);
    for (size_t i = 0; s->residual && i < s->n_trained; i++)
        free(s->residual[i]);
    free(s->residual);
    free(s->tensor);
    free(s->momentum);
    free(s->learns);
    free(s->weights);
    free(s->gradients);
}

bool wk_home_averages(const struct wk_parameter_server_state *s)
{
    return s->hyper[PS_HYPER_USE_EMA] > 0;
}

// ---- operations under way -----------------------------------------------------------------------------------------

// An operation on a bucket has ended, on a thread of the client's.
static void home_add_span(void *arg, const psc_result *result)
{
    const struct wk_bucket *b = arg;
    const enum ps_span_kind kind = !b->pushes ? PS_SPAN_PULL : b->pulls ? PS_SPAN_PUSH_PULL : PS_SPAN_PUSH;
    (void)result;
    ps_track_end(b->track, &(struct ps_span){kind, b->name, b->start, "bytes", b->bytes});
}

// What there is to be done when one that begins now ends.
static psc_callback home_span(struct wk_bucket *b)
{
    b->start = ps_track_now(b->track);
    return b->track ? home_add_span : NULL;
}

// closed: the last round that all have closed whose values have come, where any have.
static enum ps_code home_take(struct wk_parameter_server_state *s, psc_op *op, bool pushes, bool pulls,
                              uint64_t *closed, struct ps_error *e)
{
    psc_result r;
    psc_error error;
    if (psc_wait(op, &r, &error))
        return wk_take_error(&error, e);
    if (pulls && r.version == 0)
        return ps_fail(e, PS_ABORTED, "the weights have no values: who opened the job ended before it had put them");
    s->version = r.version > s->version ? r.version : s->version;
    if (!pulls)
        return PS_OK;
    const uint64_t last = pushes ? r.last_round : r.round;
    *closed = pushes ? r.open_round - (r.open_round > 0) : r.round;
    if (last > s->closed)
        s->closed = last;
    return PS_OK;
}

enum ps_code wk_home_settle_bucket(struct wk_parameter_server_state *s, struct wk_bucket *b, struct ps_error *e)
{
    psc_op *op = b->op;
    if (!op)
        return PS_OK;
    const uint64_t start = wk_wait_begin(s->env);
    const enum ps_code code = home_await(s, op, e);
    wk_wait_end(s->env, WK_WAIT_WEIGHTS, b->pulls ? "weights" : "push", start);
    if (code)
        return code;
    b->op = NULL;
    if (home_take(s, op, b->pushes, b->pulls, &b->closed, e))
        return e->code;
    if (b->pushes && --s->under_way == 0)
        s->pushed_all = s->in_push;
    return PS_OK;
}

static enum ps_code home_settle_buckets(struct wk_parameter_server_state *s, struct ps_error *e)
{
    for (size_t i = 0; i < s->n_buckets; i++)
        if (wk_home_settle_bucket(s, &s->bucket[i], e))
            return e->code;
    s->pushed_all = s->in_push;
    return PS_OK;
}

// Of a gradient that counts for nothing nothing would be made up for: what was lost before is kept.
void wk_home_push(struct wk_parameter_server_state *s, struct wk_bucket *b, uint64_t examples, bool pulls)
{
    const bool encodes = s->encoding && examples;
    const psc_push_options options = {.round = s->round,
                                      .examples = examples,
                                      .priority = b->priority,
                                      .refuse_nonfinite = s->env->job->refuse_nonfinite,
                                      .encoding = encodes ? s->encoding : 0,
                                      .residual = encodes ? s->residual + b->first : NULL};
    b->pushes = true;
    b->pulls = pulls;
    s->under_way++;
    if (pulls)
        psc_push_pull(s->client, s->pushed + b->first, s->pulled + b->first, b->n, &options, home_span(b), b, &b->op);
    else
        psc_push(s->client, s->pushed + b->first, b->n, &options, home_span(b), b, &b->op);
}

static void home_pull(struct wk_parameter_server_state *s, struct wk_bucket *b)
{
    b->pushes = false;
    b->pulls = true;
    psc_pull(s->client, s->weights + b->first, b->n, 0, home_span(b), b, &b->op);
}

// In the order in which the forward pass needs them.
static void home_pull_buckets(struct wk_parameter_server_state *s)
{
    for (size_t i = s->n_buckets; i--;)
        home_pull(s, &s->bucket[i]);
}

enum ps_code wk_home_pull_all(struct wk_parameter_server_state *s, uint64_t round, struct ps_error *e)
{
    psc_op *op;
    uint64_t closed;
    const uint64_t start = ps_track_now(s->env->communication);
    if (s->averages)
        psc_pull_averages(s->client, s->weights, s->n, round, NULL, NULL, &op);
    else
        psc_pull(s->client, s->weights, s->n, round, NULL, NULL, &op);
    const uint64_t began = wk_wait_begin(s->env);
    const enum ps_code code = home_take(s, op, false, true, &closed, e);
    wk_wait_end(s->env, WK_WAIT_WEIGHTS, "weights", began);
    if (code)
        return code;
    for (size_t i = 0; i < s->n_buckets; i++)
        s->bucket[i].closed = closed;
    ps_track_end(s->env->communication, &(struct ps_span){PS_SPAN_PULL, "all variables", start});
    s->has_weights = true;
    return PS_OK;
}

static enum ps_code home_flush(struct wk_parameter_server_state *s, struct ps_error *e)
{
    if (!s->summed)
        return PS_OK;
    if (home_settle_buckets(s, e))  // a pull may be under way
        return e->code;
    for (size_t i = s->n_buckets; i--;)
        wk_home_push(s, &s->bucket[i], s->summed_examples, false);
    s->in_push = s->trained;
    s->summed = s->summed_examples = 0;
    return home_settle_buckets(s, e);
}

// What waits for others ends here, and nothing more comes into the weights. The transport may still have a gradient.
static void home_cut(struct wk_parameter_server_state *s)
{
    const uint64_t moment = WK_SIGNAL_SECONDS * PS_SECOND / 4, least = ps_now() + moment, until = home_deadline(s);
    home_await_all(s, until > least ? until : least);
    for (size_t i = 0; i < s->n_buckets; i++)
        psc_cancel(s->bucket[i].op);
    home_await_all(s, ps_now() + moment);
    for (size_t i = 0; i < s->n_buckets; i++)
        if (psc_done(s->bucket[i].op, 0))
            home_forget(&s->bucket[i]);
}

// After a signal, while the ps tasks may still be reached: they get what counts as trained, and what is under way ends,
// or is cancelled as it waits for others who have ended.
static void home_leave(struct wk_parameter_server_state *s)
{
    struct ps_error e = {.code = PS_OK};
    if (home_flush(s, &e))
        ps_warn("the gradients of the last steps, %" PRIu64 " examples, are lost: %s", s->summed_examples, e.text);
    home_cut(s);
}

enum ps_code wk_home_salvage(void *state, bool *undone, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    s->stopped_at = s->stopped_at ? s->stopped_at : ps_now();
    home_leave(s);
    return wk_psd_salvage(s, undone, e);
}

static enum ps_code home_settle(struct wk_parameter_server_state *s, struct ps_error *e)
{
    return home_flush(s, e) || home_settle_buckets(s, e) ? e->code : PS_OK;
}

// ---- what is changed by hand --------------------------------------------------------------------------------------

static void home_take_rate(void *state, bool is_set, double rate)
{
    struct wk_parameter_server_state *s = state;
    s->rate = is_set ? rate : s->rate;
    s->rate_is_set = is_set && s->env->job->schedule.kind != PS_SCHEDULE_NONE;
    s->rate_changed = false;
}

// A rate that this worker is about to tell is newer. With hybrid the ps tasks have the tables alone; the outer
// optimizer's rate is no callback's.
enum ps_code wk_home_take_changes(struct wk_parameter_server_state *s, struct ps_error *e)
{
    const uint64_t next = s->update == PSC_SYNC ? s->closed + 1 : 0;
    enum ps_code code = PS_OK;
    psc_hyper_change *change = NULL;
    psc_error error;
    size_t n = 0;
    if (s->env->job->strategy == PS_STRATEGY_HYBRID)
        return PS_OK;
    if (psc_hyper_changes(s->client, &change, &n, &error))
        return error.code == PSC_CANCELLED ? PS_OK : wk_take_error(&error, e);  // a signal: no step follows
    for (size_t i = 0; i < n && code == PS_OK; i++) {
        if (change[i].round > next)
            continue;
        code = ps_rule_set(s->rule, s->hyper, change[i].name, change[i].value, e);
        if (strcmp(change[i].name, "learning_rate") == 0 && !s->rate_changed && !s->is_outer)
            home_take_rate(s, true, change[i].value);
    }
    free(change);
    return code;
}

// ---- a step: weights ----------------------------------------------------------------------------------------------

void wk_home_delay(const struct wk_parameter_server_state *s, uint64_t step)
{
    uint32_t word[4];
    if (s->env->job->delay_ms <= 0)
        return;
    ps_philox(s->env->job->seed, PS_RANDOM_DELAY, s->env->rank, step, word);
    ps_sleep((uint64_t)(ps_uniform(word[0]) * (float)s->env->job->delay_ms * (float)PS_MS));
}

// ssp: the clock ticks with every step, and may have to be waited for before weights are pulled.
static enum ps_code home_wait_for_clock(struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_error error;
    if (home_settle_buckets(s, e))
        return e->code;
    const uint64_t start = wk_wait_begin(s->env);
    const psc_code code = psc_clock(s->client, s->trained, true, NULL, NULL, &error);
    wk_wait_end(s->env, WK_WAIT_CLOCK, "clock", start);
    return code ? wk_take_error(&error, e) : PS_OK;
}

static uint64_t home_least_closed(const struct wk_parameter_server_state *s)
{
    uint64_t least = s->n_buckets ? s->bucket[0].closed : s->closed;
    for (size_t i = 1; i < s->n_buckets; i++)
        least = s->bucket[i].closed < least ? s->bucket[i].closed : least;
    return least;
}

// The round of a step. Where a round closes without this worker (replicas_to_aggregate), it is known when all weights
// have come: that of the variable that is furthest behind. Others drop the gradient, if they have closed that round.
// A later one cannot be waited for: whoever has closed it elsewhere may have died before it pushed here.
static enum ps_code home_find_round(struct wk_parameter_server_state *s, uint64_t step, struct ps_error *e)
{
    s->round = s->update == PSC_SYNC ? step - s->base - s->round_offset + 1 : 0;
    if (s->round == 0 || s->env->job->replicas_to_aggregate == 0)
        return PS_OK;
    if (home_settle_buckets(s, e))
        return e->code;
    s->round = home_least_closed(s) + 1;
    return PS_OK;
}

static enum ps_code home_begin(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    wk_psd_count_step(s);
    s->rows = work->rows;
    for (size_t i = 0; i < s->n_buckets; i++)
        s->bucket[i].missing = s->bucket[i].n;
    if (s->update == PSC_SSP && home_wait_for_clock(s, e))
        return e->code;
    if (!s->has_weights) {
        if (wk_home_pull_all(s, s->update == PSC_SYNC ? s->share.round : 0, e) || wk_home_take_changes(s, e))
            return e->code;
    } else if (s->update == PSC_SSP) {
        home_pull_buckets(s);
    }
    // As of a slower device, which begins when it has all weights.
    if (s->env->job->delay_ms > 0 && home_settle_buckets(s, e))
        return e->code;
    wk_home_delay(s, work->step);
    return home_find_round(s, work->step, e);
}

static enum ps_code home_need(void *state, size_t variable, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    const size_t i = s->tensor[variable];
    return i < s->n_trained ? wk_home_settle_bucket(s, &s->bucket[s->bucket_of[i]], e) : PS_OK;
}

// ---- a step: gradients --------------------------------------------------------------------------------------------

static void home_scale(psc_tensor *t, float by)
{
    float *g = t->data;
    for (uint64_t k = 0; by != 1 && k < t->count; k++)
        g[k] *= by;
}

void wk_home_clip(const struct wk_parameter_server_state *s, psc_tensor *gradients, size_t i)
{
    const double own = s->hyper[PS_HYPER_CLIPNORM];
    psc_tensor *g = &gradients[i];
    if (s->update != PSC_SYNC && own > 0 && s->learns[i])
        home_scale(g, ps_clip_factor(ps_sum_squares(g->data, g->count), own));
}

void wk_home_clip_all(const struct wk_parameter_server_state *s, psc_tensor *gradients)
{
    const double global = s->hyper[PS_HYPER_GLOBAL_CLIPNORM];
    double total = 0;
    if (s->update == PSC_SYNC || global == 0)
        return;
    for (size_t i = 0; i < s->n_trained; i++)
        total += s->learns[i] ? ps_sum_squares(gradients[i].data, gradients[i].count) : 0;
    for (size_t i = 0; i < s->n_trained; i++)
        if (s->learns[i])
            home_scale(&gradients[i], ps_clip_factor(total, global));
}

// Do gradients leave as they become ready, not at the end of the step?
static bool home_is_early(const struct wk_parameter_server_state *s)
{
    const struct ps_job *job = s->env->job;
    return job->n_push <= 1 && job->n_fetch <= 1 && (s->update == PSC_SYNC || s->hyper[PS_HYPER_GLOBAL_CLIPNORM] == 0);
}

// Nobody takes a bucket of a job that has ended: the step ends there.
static enum ps_code home_ready(void *state, size_t variable, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    const size_t i = s->tensor[variable];
    struct wk_bucket *b = &s->bucket[s->bucket_of[i]];
    wk_home_clip(s, s->gradients, i);
    if (--b->missing > 0)
        return PS_OK;
    if (wk_psd_health(s, e))
        return e->code;
    if (home_is_early(s))
        wk_home_push(s, b, (uint64_t)s->rows, s->update != PSC_SSP);
    return PS_OK;
}

static bool home_follows_schedule(const void *state)
{
    const struct wk_parameter_server_state *s = state;
    return s->env->job->schedule.kind != PS_SCHEDULE_NONE && !s->rate_is_set;
}

// That the next gradient meets there, as far as is known here.
static double home_get_rate(void *state)
{
    const struct wk_parameter_server_state *s = state;
    const struct ps_schedule *schedule = &s->env->job->schedule;
    return home_follows_schedule(s) ? ps_schedule_rate(schedule, wk_psd_iterations(s)) : s->rate;
}

// NaN stays NaN.
static float home_bound(float g, float limit)
{
    return g < -limit ? -limit : g > limit ? limit : g;
}

// The replica's own weights between two pulls.
static void home_step_alone(struct wk_parameter_server_state *s)
{
    const double whole = home_get_rate(s), accumulated = s->hyper[PS_HYPER_ACCUMULATION_STEPS];
    const float rate = (float)(accumulated > 1 ? whole / accumulated : whole);
    const float limit = s->hyper[PS_HYPER_CLIPVALUE] > 0 ? (float)s->hyper[PS_HYPER_CLIPVALUE] : INFINITY;
    for (size_t i = 0; i < s->n_trained; i++) {
        float *w = s->weights[i].data, keep = (float)s->momentum[i];
        const float *g = s->gradients[i].data;
        for (uint64_t k = 0; k < s->weights[i].count; k++)
            w[k] = s->learns[i] ? w[k] - rate * home_bound(g[k], limit) : keep * w[k] + (1 - keep) * g[k];
    }
}

// Of a state the mean of the batches is pushed.
static void home_add_up(struct wk_parameter_server_state *s)
{
    for (size_t i = 0; i < s->n_trained; i++) {
        float *sum = s->pushed[i].data, n = (float)(s->summed + 1);
        const float *g = s->gradients[i].data;
        for (uint64_t k = 0; k < s->pushed[i].count; k++)
            sum[k] = !s->summed ? g[k] : s->learns[i] ? sum[k] + g[k] : sum[k] + (g[k] - sum[k]) / n;
    }
    s->summed++;
    s->summed_examples += (uint64_t)s->rows;
}

// Are weights pulled with this step, counted from 0?
static bool home_fetches_at(const struct wk_parameter_server_state *s, uint64_t step)
{
    int every = s->env->job->n_fetch;
    return s->update != PSC_SSP && (every <= 1 || (step + 1) % (uint64_t)every == 0);
}

static enum ps_code home_end_with_sums(struct wk_parameter_server_state *s, bool fetches, struct ps_error *e)
{
    home_add_up(s);
    if (s->summed == (uint64_t)s->env->job->n_push && home_flush(s, e))
        return e->code;
    if (fetches)
        home_pull_buckets(s);
    return PS_OK;
}

static enum ps_code home_end(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    const bool fetches = home_fetches_at(s, work->step);
    s->trained++;
    s->trained_to = work->step + 1 - s->base;
    const bool early = home_is_early(s);
    if (!early)
        wk_home_clip_all(s, s->gradients);
    if (s->env->job->n_push > 1) {
        if (home_end_with_sums(s, fetches, e))
            return e->code;
    } else {
        s->in_push = s->trained;
        for (size_t i = early ? 0 : s->n_buckets; i--;)
            wk_home_push(s, &s->bucket[i], (uint64_t)s->rows, fetches);
    }
    if (!fetches && s->update == PSC_ASYNC)
        home_step_alone(s);
    return PS_OK;
}

static enum ps_code home_refresh(void *state, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    return home_settle(s, e) || wk_home_pull_all(s, s->round, e) || wk_home_take_changes(s, e) ? e->code : PS_OK;
}

// ---- what steers --------------------------------------------------------------------------------------------------

static void home_set_rate(void *state, double rate)
{
    struct wk_parameter_server_state *s = state;
    if (rate == home_get_rate(s))
        return;
    s->rate = rate;
    s->rate_changed = true;
    s->rate_is_set = s->env->job->schedule.kind != PS_SCHEDULE_NONE;
}

// As psctl set-lr does. All wait for it, in sync between two rounds: the next is the first that has it, unless others
// have closed rounds without this worker.
static enum ps_code home_tell_rate(void *state, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    psc_error error;
    psc_code code = PSC_OK;
    if (s->rate_changed)
        code = wk_psd_set_hyper(s, "learning_rate", s->rate, s->update == PSC_SYNC ? s->closed + 1 : 0, &error);
    if (code == PSC_OUT_OF_RANGE)
        code = wk_psd_set_hyper(s, "learning_rate", s->rate, 0, &error);
    s->rate_changed &= code != PSC_OK;
    return code ? wk_take_error(&error, e) : PS_OK;
}

// The ps tasks have all that this worker has trained, and its last round is closed; or what a signal has left them.
static enum ps_code home_save(void *state, struct wk_checkpoint *to, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    if (!s->reader && home_settle(s, e))
        return e->code;
    wk_psd_save(s, to);
    return PS_OK;
}

static enum ps_code home_note_loaded(struct wk_parameter_server_state *s, struct ps_error *e)
{
    if (home_settle_buckets(s, e))
        return e->code;
    s->loaded_version = s->version;
    return PS_OK;
}

enum ps_code wk_home_pull_loaded(struct wk_parameter_server_state *s, struct ps_error *e)
{
    home_pull_buckets(s);
    return home_note_loaded(s, e);
}

// Each put has counted, and slots are put of variables that learn alone: the greatest version is that of a bucket of
// nothing but these, where there is one. NULL: there is no bucket.
static struct wk_bucket *home_smallest_of_last_version(struct wk_parameter_server_state *s)
{
    struct wk_bucket *best = NULL;
    uint64_t least = 0;
    bool best_learns = false;
    for (struct wk_bucket *b = s->bucket; b < s->bucket + s->n_buckets; b++) {
        uint64_t count = 0;
        bool learns = true;
        for (size_t i = b->first; i < b->first + b->n; i++) {
            count += s->weights[i].count;
            learns &= s->learns[i];
        }
        if (best && (learns == best_learns ? count >= least : best_learns))
            continue;
        best = b;
        least = count;
        best_learns = learns;
    }
    return best;
}

// Worker 0 has put the values itself, and asks for the version that all of them are of.
static enum ps_code home_ask_version(struct wk_parameter_server_state *s, struct ps_error *e)
{
    struct wk_bucket *b = home_smallest_of_last_version(s);
    if (b)
        home_pull(s, b);
    return home_note_loaded(s, e);
}

// Where the checkpoint's rate follows a schedule, that goes on by itself.
static void home_load_rate(struct wk_parameter_server_state *s, double rate)
{
    if (s->env->job->schedule.kind != PS_SCHEDULE_NONE && !s->rate_is_set)
        return;
    s->rate_changed = s->rate_is_set || rate != s->rate;
    s->rate = rate;
}

static enum ps_code home_load(void *state, const struct wk_checkpoint *from, uint64_t epoch, uint64_t first,
                              uint64_t step, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    const bool has_values = s->env->rank == 0 && !wk_checkpoint_is_index(from);
    if (wk_psd_load(s, from, epoch, first, step, e) ||
        (has_values ? home_ask_version(s, e) : wk_home_pull_loaded(s, e)))
        return e->code;
    s->has_weights = true;  // nobody trains before all have come to the barrier below
    home_load_rate(s, json_real_value(json_object_get(from->json, "learning_rate")));
    if (s->env->rank == 0 && home_tell_rate(s, e))
        return e->code;
    if (s->env->rank == 0 && wk_psd_load_changes(s, from, e))
        return e->code;
    s->rate_changed = false;  // worker 0 has told it
    return wk_psd_barrier(s, "checkpoint taken", e) || wk_home_take_changes(s, e) ? e->code : PS_OK;
}

const struct wk_home wk_psd_home = {
    .begin = home_begin,
    .need = home_need,
    .ready = home_ready,
    .end = home_end,
    .refresh = home_refresh,
    .salvage = wk_home_salvage,
    .save = home_save,
    .prune_shards = wk_psd_prune_shards,
    .load = home_load,
    .rate = home_get_rate,
    .set_rate = home_set_rate,
    .take_rate = home_take_rate,
    .follows_schedule = home_follows_schedule,
    .tell_rate = home_tell_rate,
};
