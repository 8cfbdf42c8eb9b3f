// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint of what the ps tasks keep. The worker that writes it asks for the values, and for the slots of the rule,
// before it pushes anything more: each ps task pins all of it in one instant, and hands it out while the training goes
// on. A training that goes on from one begins with worker 0's putting values, slots and how often the rule has been
// applied, while all wait; the job is another run, whose rounds and clocks are counted from 0 again.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/parameter_server.h"

static int checkpoint_n_slots(const struct wk_parameter_server_state *s)
{
    return ps_rule_slots(s->rule, s->hyper);
}

// Malloc'd: what the arrays of a slot are called.
static char *checkpoint_slot_name(const struct wk_parameter_server_state *s, int slot)
{
    const char *name = ps_rule_slot_name(s->rule, s->hyper, slot);
    return s->is_outer ? ps_printf("outer_optimizer/%s", name) : ps_strdup(name);
}

// ---- save: what is fetched ----------------------------------------------------------------------------------------

struct fetch {
    struct wk_checkpoint_fetch is;  // first
    struct wk_parameter_server_state *s;
    psc_tensor *tensors;  // [n]
    size_t *array;        // [n] the checkpoint's arrays that they fill
    size_t n;
    uint64_t round;  // that the values are to be of; 0: there are none, or others close them without this worker
    json_t *count;   // what the checkpoint says of how often the rule has been applied, as known up to this
    uint64_t known;  // round, or version
    bool by_round;
    bool by_reader;     // after a signal
    psc_shards shards;  // name NULL: the values come here
    bool under_way;
    psc_op *op;
    psc_result result;
};

static void fetch_add(struct fetch *f, const psc_tensor *weights, uint32_t slot, size_t array)
{
    f->tensors[f->n] = *weights;
    f->tensors[f->n].slot = slot;
    f->array[f->n++] = array;
}

static void fetch_end(struct fetch *f)
{
    if (f->under_way)
        psc_wait(f->op, &f->result, NULL);
    f->under_way = false;
}

static void fetch_begin(struct wk_checkpoint_fetch *of, struct wk_checkpoint *c)
{
    struct fetch *f = (struct fetch *)of;
    psc_client *from = f->by_reader ? f->s->reader : f->s->client;
    for (size_t i = 0; i < f->n; i++)
        f->tensors[i].data = (void *)c->array[f->array[i]].data;
    if (f->shards.name)
        psc_write_shards(from, f->tensors, f->n, &f->shards, NULL, NULL, &f->op);
    else
        psc_get(from, f->tensors, f->n, NULL, NULL, &f->op);
    f->under_way = true;
    if (f->shards.name ? f->shards.alone : atomic_load(&f->s->reads_alone))
        fetch_end(f);
}

// A ps task may have no memory for what changes meanwhile. In rounds nothing does while this worker waits.
static enum ps_code fetch_fail_shards(struct fetch *f, psc_error *error, struct ps_error *e)
{
    const bool waits = f->round && !f->shards.alone && error->code == PSC_OUT_OF_RANGE;
    if (!waits)
        return wk_take_error(error, e);
    atomic_store(&f->s->shards_alone, true);
    return ps_fail(e, PS_FAILED_PRECONDITION, "%s; the next ones are written while the training waits", error->text);
}

// After a signal this worker's last step may be in no round, and what it has given up of that is with the ps tasks: the
// others can close its round at any moment, after the weights were read, too.
static enum ps_code fetch_check_salvaged(const struct fetch *f, struct ps_error *e)
{
    const psc_result *r = &f->result;
    const uint64_t position = f->s->is_outer ? f->s->salvaged : f->round;
    const bool in_rounds = f->n > 0 && wk_psd_closes_whole_rounds(f->s);
    if (!in_rounds || (r->round == r->last_round && (r->round == position || r->round == f->s->salvaged)))
        return PS_OK;
    if (r->round != r->last_round)
        return ps_fail(e, PS_ABORTED, "some of the weights are of round %" PRIu64 " and some of round %" PRIu64,
                       r->round, r->last_round);
    return ps_fail(e, PS_ABORTED, "others have closed round %" PRIu64 " since the weights were read", r->round);
}

// Where a ps task gives up what is pinned, as it has no memory for it, or its connection is lost, the values are read
// again, and others by then: the next ones are read while the training waits.
static enum ps_code fetch_check(struct fetch *f, struct ps_error *e)
{
    const psc_result *r = &f->result;
    psc_error error = r->error;
    if (error.code)
        return f->shards.name ? fetch_fail_shards(f, &error, e) : wk_take_error(&error, e);
    if (f->by_reader)
        return fetch_check_salvaged(f, e);
    const bool expected = r->round == r->last_round && r->round == f->round;
    atomic_store(&f->s->reads_alone, f->round && !expected);
    if (!f->round || expected)
        return PS_OK;
    return ps_fail(e, PS_UNAVAILABLE,
                   "the ps tasks did not keep what they had after round %" PRIu64
                   " beside the training, for lack of memory or connection: the next checkpoint is read while the "
                   "training waits",
                   f->round);
}

static enum ps_code fetch_wait(struct wk_checkpoint_fetch *of, struct ps_error *e)
{
    struct fetch *f = (struct fetch *)of;
    fetch_end(f);
    if (fetch_check(f, e))
        return e->code;
    const psc_result *r = &f->result;
    // Of a version the least is found, and the greatest known.
    const json_int_t more = (json_int_t)((f->by_round ? r->round : r->version) - f->known);
    if (f->by_round || more > 0)
        json_integer_set(f->count, json_integer_value(f->count) + more);
    return PS_OK;
}

static void fetch_free(struct wk_checkpoint_fetch *of)
{
    struct fetch *f = (struct fetch *)of;
    fetch_end(f);
    free(f->tensors);
    free(f->array);
    free(f);
}

// ---- save: what is known here -------------------------------------------------------------------------------------

// What was set by hand, and with tell_rate, as it holds in the next step; a rate that this worker is about to tell
// comes after all of it. The learning rate goes to rate, where that is not NULL: every checkpoint has one. Where none
// of this is to be had, as when a ps task is gone, the checkpoint is written without it.
static json_t *checkpoint_changes(const struct wk_parameter_server_state *s, double *rate)
{
    psc_hyper_change *change = NULL;
    psc_error error;
    size_t n = 0;
    const bool in_rounds = s->update == PSC_SYNC;
    json_t *changed = json_object();
    if (psc_hyper_changes(s->reader ? s->reader : s->client, &change, &n, &error) != PSC_OK)
        return changed;
    for (size_t i = 0; i < n; i++) {
        const bool is_rate = strcmp(change[i].name, "learning_rate") == 0;
        if ((in_rounds && change[i].round > s->closed + 1) || (is_rate && s->rate_changed))
            continue;
        if (is_rate && rate)
            *rate = change[i].value;
        else if (!is_rate || change[i].value != s->rate)  // that of a callback is the rule's
            json_object_set_new(changed, change[i].name, json_real(change[i].value));
    }
    free(change);
    return changed;
}

// Which outer rule it is, and how often it has been applied: once in a round, else as often as all workers push.
static void checkpoint_put_outer(const struct wk_parameter_server_state *s, struct wk_checkpoint *to, struct fetch *f)
{
    const uint64_t pushes = s->version > s->loaded_version ? s->version - s->loaded_version : 0;
    const uint64_t since = s->update == PSC_SYNC ? s->closed : pushes;
    json_t *outer = json_object(), *steps = json_integer((json_int_t)(s->outer_steps + since));
    json_object_set_new(outer, "rule", json_string(s->rule->name));
    json_object_set_new(outer, "slots", json_integer(checkpoint_n_slots(s)));
    json_object_set_new(outer, "steps", steps);
    json_object_set_new(outer, "changed", checkpoint_changes(s, NULL));
    json_object_set_new(to->json, "outer_optimizer", outer);
    f->count = steps;
    f->by_round = s->update == PSC_SYNC;
    f->known = f->by_round ? s->closed : s->version;
}

// In rounds the rule is applied once in a step; else as often as all workers push. Who has been in rounds all the time
// counts its steps as they do.
static void checkpoint_put_rule(const struct wk_parameter_server_state *s, struct wk_checkpoint *to, struct fetch *f)
{
    const bool in_rounds = s->update == PSC_SYNC && !s->mode_changed;
    // With hybrid the ps tasks have the tables alone, whose rate psctl changes without that of the rest.
    const bool hybrid = s->env->job->strategy == PS_STRATEGY_HYBRID;
    double rate = NAN;
    json_object_set_new(to->json, "changed", checkpoint_changes(s, hybrid ? NULL : &rate));
    const bool is_set = s->rate_is_set || (!isnan(rate) && s->env->job->schedule.kind != PS_SCHEDULE_NONE);
    wk_checkpoint_put_rule(to, isnan(rate) ? s->rate : rate, is_set,
                           in_rounds ? s->ahead : wk_psd_iterations(s) - (s->base + s->trained_to));
    f->count = json_object_get(to->json, "iterations_ahead");
    f->by_round = in_rounds;
    f->known = in_rounds ? wk_psd_rounds_trained(s) : s->version;
}

// The slots of a variable, of which the weights' array is there already; and its values, which are the ps tasks', where
// the rule there is not an outer one.
static void checkpoint_put_variable(struct wk_parameter_server_state *s, size_t variable, struct wk_checkpoint *to,
                                    struct fetch *f)
{
    const struct nn_param *p = nn_model_param(s->env->model, variable);
    const size_t i = s->tensor[variable];
    if (i >= s->n_trained)
        return;
    if (!s->is_outer) {
        to->array[variable].data = NULL;
        fetch_add(f, &s->weights[i], 0, variable);
    }
    for (int k = 0; k < checkpoint_n_slots(s) && s->learns[i]; k++) {
        char *slot = checkpoint_slot_name(s, k);
        fetch_add(f, &s->weights[i], (uint32_t)k + 1, to->n);
        wk_checkpoint_put(to, slot, p->name, p->shape, p->rank, NULL);
        free(slot);
    }
}

// What is left after a signal, a second at least.
static uint32_t checkpoint_ms_left(const struct wk_parameter_server_state *s)
{
    const uint64_t ms = (ps_now() - s->stopped_at) / PS_MS;
    return ms + 1000 < WK_LAST_SHARDS_MS ? (uint32_t)(WK_LAST_SHARDS_MS - ms) : 1000;
}

static void checkpoint_put_shards(const struct wk_parameter_server_state *s, struct wk_checkpoint *to, struct fetch *f)
{
    to->shards.job = s->env->job->name;
    to->shards.tasks = (uint32_t)s->env->n_ps;
    f->shards = (psc_shards){.name = to->shards.name,
                             .checkpoint = to->shards.id,
                             .timeout_ms = s->reader ? checkpoint_ms_left(s) : 0,
                             .alone = s->reader || (f->round && atomic_load(&s->shards_alone))};
}

void wk_psd_save(struct wk_parameter_server_state *s, struct wk_checkpoint *to)
{
    const size_t most = s->n_trained * ((size_t)checkpoint_n_slots(s) + 1) + 1;
    struct fetch *f = ps_alloc(sizeof *f);
    *f = (struct fetch){.is = {fetch_begin, fetch_wait, fetch_free},
                        .s = s,
                        .by_reader = s->reader != NULL,
                        .tensors = ps_alloc(most * sizeof *f->tensors),
                        .array = ps_alloc(most * sizeof *f->array),
                        .round = wk_psd_in_rounds_of_all(s) ? wk_psd_rounds_trained(s) : 0};
    if (to->shards.name)
        checkpoint_put_shards(s, to, f);
    for (size_t i = 0; i < nn_model_params(s->env->model); i++)
        checkpoint_put_variable(s, i, to, f);
    if (s->is_outer)
        checkpoint_put_outer(s, to, f);
    else
        checkpoint_put_rule(s, to, f);
    if (s->update != (psc_update)s->env->job->update && !s->is_outer)
        json_object_set_new(to->json, "mode", json_string(wk_psd_mode_name(s->update)));
    to->fetch = &f->is;
}

enum ps_code wk_psd_prune_shards(void *state, const char *name, uint32_t series, const uint64_t *keep, size_t n,
                                 struct ps_error *e)
{
    const struct wk_parameter_server_state *s = state;
    psc_client *by = s->reader ? s->reader : s->client;
    psc_error error;
    return psc_prune_shards(by, name, series, keep, n, &error) ? wk_take_error(&error, e) : PS_OK;
}

// ---- load ---------------------------------------------------------------------------------------------------------

// One change at a time: where another one is being made it is waited for.
psc_code wk_psd_set_hyper(const struct wk_parameter_server_state *s, const char *name, double value, uint64_t round,
                          psc_error *error)
{
    const uint64_t until = ps_now() + (uint64_t)(s->env->job->timeout * (double)PS_SECOND);
    psc_code code;
    psc_error why;
    while ((code = psc_set_hyper(s->client, name, value, &round, error)) == PSC_ABORTED &&
           psc_health(s->client, &why) == PSC_OK && ps_now() < until)
        ps_sleep(20 * PS_MS);
    return code;
}

enum ps_code wk_psd_load_changes(const struct wk_parameter_server_state *s, const struct wk_checkpoint *from,
                                 struct ps_error *e)
{
    const json_t *of = s->is_outer ? json_object_get(from->json, "outer_optimizer") : from->json;
    json_t *changed = json_object_get(of, "changed"), *value;
    const char *name;
    psc_error error;
    const char *mode = json_string_value(json_object_get(from->json, "mode"));
    if (mode)
        ps_warn("psctl set-mode had changed the job to %s when the checkpoint was written: it goes on as its file says",
                mode);
    json_object_foreach(changed, name, value)
    {
        if (!json_is_number(value))
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s: changed: expected numbers", from->path);
        if (wk_psd_set_hyper(s, name, json_number_value(value), 0, &error) != PSC_OK)
            return wk_take_error(&error, e);
        ps_info("%s is %g, as psctl had set it", name, json_number_value(value));
    }
    return PS_OK;
}

// Of one slot what the checkpoint has, for all variables that learn. Returns how many are in tensors; e->code says
// whether all are there.
static size_t checkpoint_find_slot(const struct wk_parameter_server_state *s, const struct wk_checkpoint *from, int k,
                                   psc_tensor *tensors, struct ps_error *e)
{
    char *slot = checkpoint_slot_name(s, k);
    size_t n = 0;
    for (size_t i = 0; i < s->n_trained && e->code == PS_OK; i++) {
        const psc_tensor *w = &s->weights[i];
        if (!s->learns[i])
            continue;
        tensors[n] = *w;
        tensors[n].slot = (uint32_t)k + 1;
        tensors[n++].data = (void *)wk_checkpoint_find(from, slot, w->name, w->count, e);
    }
    free(slot);
    return n;
}

static enum ps_code checkpoint_put(struct wk_parameter_server_state *s, const psc_tensor *tensors, size_t n,
                                   uint64_t steps, struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    psc_put_state(s->client, tensors, n, steps, NULL, NULL, &op);
    return psc_wait(op, NULL, &error) ? wk_take_error(&error, e) : PS_OK;
}

// All slots; puts: to the ps tasks.
static enum ps_code checkpoint_take_slots(struct wk_parameter_server_state *s, const struct wk_checkpoint *from,
                                          bool puts, uint64_t steps, struct ps_error *e)
{
    psc_tensor *tensors = ps_alloc((s->n_trained + 1) * sizeof *tensors);
    e->code = PS_OK;
    for (int k = 0; k < checkpoint_n_slots(s) && e->code == PS_OK; k++) {
        const size_t n = checkpoint_find_slot(s, from, k, tensors, e);
        if (e->code == PS_OK && puts)
            checkpoint_put(s, tensors, n, steps, e);
    }
    free(tensors);
    return e->code;
}

// All values, and the slots that the checkpoint has.
static enum ps_code checkpoint_put_all(struct wk_parameter_server_state *s, const struct wk_checkpoint *from,
                                       bool slots, uint64_t steps, struct ps_error *e)
{
    if (checkpoint_put(s, s->weights, s->n, steps, e))
        return e->code;
    return slots ? checkpoint_take_slots(s, from, true, steps, e) : PS_OK;
}

// The same of one of which the replica has nothing yet.
static enum ps_code checkpoint_put_whole(struct wk_parameter_server_state *s, const struct wk_checkpoint *whole,
                                         bool slots, uint64_t steps, struct ps_error *e)
{
    for (size_t i = 0; i < s->n_trained; i++)
        if (wk_checkpoint_get(whole, NULL, s->weights[i].name, s->weights[i].count, s->weights[i].data, e))
            return e->code;
    return checkpoint_put_all(s, whole, slots, steps, e);
}

// The shards were not read here either, after the ps tasks could not load them. DATA_LOSS: they are lost; not where as
// many ps tasks as there are now could never have loaded them.
static enum ps_code checkpoint_fail_shards(const struct ps_error *here, const char *why, bool fits, struct ps_error *e)
{
    const bool lost = here->code == PS_DATA_LOSS || here->code == PS_INVALID_ARGUMENT;
    if (lost || (fits && here->code == PS_NOT_FOUND))
        return ps_fail(e, PS_DATA_LOSS, "%s; %s", here->text, why);
    return ps_fail(e, here->code == PS_NOT_FOUND ? PS_FAILED_PRECONDITION : here->code, "%s; %s", here->text, why);
}

// Each ps task loads the shard that it has written. Where they cannot, this worker reads all shards, if they are here,
// and puts what they have.
static enum ps_code checkpoint_load_shards(struct wk_parameter_server_state *s, const struct wk_checkpoint *from,
                                           bool slots, uint64_t steps, struct ps_error *e)
{
    struct ps_shards_of of = {0};
    ps_shards_get(from->file, &of);
    const psc_shards shards = {.name = of.name, .checkpoint = of.id};
    const bool fits = of.tasks == s->env->n_ps;
    psc_error why = {.code = PSC_OK};
    snprintf(why.text, sizeof why.text, "%" PRIu32 " ps tasks have written its shards, and now there are %zu", of.tasks,
             s->env->n_ps);
    if (fits && psc_load_shards(s->client, &shards, ps_shards_elements(from->file), steps, &why) == PSC_OK)
        return checkpoint_put(s, s->weights + s->n_trained, s->n - s->n_trained, steps, e);
    if (fits && why.code != PSC_FAILED_PRECONDITION)  // one that has not answered may still be at it
        return wk_take_error(&why, e);
    struct ps_error here;
    struct wk_checkpoint whole;
    enum ps_code code = wk_checkpoint_read(&whole, from->path, true, &here);
    if (code)
        return checkpoint_fail_shards(&here, why.text, fits, e);
    ps_info("%s is put by this worker: %s", from->path, why.text);
    code = checkpoint_put_whole(s, &whole, slots, steps, e);
    wk_checkpoint_free(&whole);
    return code;
}

// Rounds, clocks and leases begin with the position of the checkpoint.
static void checkpoint_go_on(struct wk_parameter_server_state *s, uint64_t epoch, uint64_t first, uint64_t step)
{
    const bool over = first == s->env->examples;
    s->base = step;
    psc_count_from(s->client, step, step + s->ahead);
    s->epochs_over = over ? epoch + 1 : epoch;
    if (!over)
        psc_skip_examples(s->client, epoch, first);
}

// Has the checkpoint been written with this outer rule? Then s knows how often it had been applied.
static bool checkpoint_has_outer(struct wk_parameter_server_state *s, const struct wk_checkpoint *from)
{
    const json_t *outer = json_object_get(from->json, "outer_optimizer");
    const char *rule = json_string_value(json_object_get(outer, "rule"));
    const json_t *steps = json_object_get(outer, "steps");
    const bool has = rule && strcmp(rule, s->rule->name) == 0 && json_is_integer(steps) &&
                     json_integer_value(json_object_get(outer, "slots")) == checkpoint_n_slots(s);
    if (has)
        s->outer_steps = (uint64_t)json_integer_value(steps);
    else if (s->env->rank == 0)
        ps_info("%s has nothing of the outer optimizer, which begins anew", from->path);
    return has;
}

// All wait for worker 0, and hear from it whether there is anything to go on from. code: of what it has put, which *e
// tells of; PS_OK of the others.
static enum ps_code checkpoint_agree(struct wk_parameter_server_state *s, const struct wk_checkpoint *from,
                                     enum ps_code code, struct ps_error *e)
{
    enum { NOBODY_SAYS, THERE, LOST };
    int64_t said = s->env->rank > 0 ? NOBODY_SAYS : code == PS_OK ? THERE : LOST;
    psc_error error;
    if (psc_reduce(s->client, "checkpoint", PSC_MAX, PSC_INT64, &said, 1, NULL, &error))
        return wk_take_error(&error, e);
    if (said == NOBODY_SAYS)
        return ps_fail(e, PS_ABORTED, "worker 0 has ended before it had put what is in %.200s", from->path);
    if (said == LOST && code == PS_OK)
        return ps_fail(e, PS_DATA_LOSS, "%.200s: worker 0 says that its shards cannot be loaded", from->path);
    return code;
}

enum ps_code wk_psd_load(struct wk_parameter_server_state *s, const struct wk_checkpoint *from, uint64_t epoch,
                         uint64_t first, uint64_t step, struct ps_error *e)
{
    const bool slots = !s->is_outer || checkpoint_has_outer(s, from);
    double rate;
    if (psc_resumptions(s->client))
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "%s: job '%s' goes on with what the ps tasks have (on_existing: resume): expected one of both",
                       from->path, s->env->job->name);
    if (wk_checkpoint_get_rule(from, &rate, &s->rate_is_set, &s->ahead, e))
        return e->code;
    const bool is_index = wk_checkpoint_is_index(from);
    if (slots && !is_index && checkpoint_take_slots(s, from, false, 0, e))
        return e->code;
    checkpoint_go_on(s, epoch, first, step);
    enum ps_code code = PS_OK;
    if (s->env->rank == 0)
        code = (is_index ? checkpoint_load_shards
                         : checkpoint_put_all)(s, from, slots, s->is_outer ? s->outer_steps : step + s->ahead, e);
    return code && code != PS_DATA_LOSS ? code : checkpoint_agree(s, from, code, e);
}
