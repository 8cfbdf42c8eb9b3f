// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint of what the ps tasks keep: the worker that writes it pulls the slots of the rule. A training that goes
// on from one begins with worker 0's putting values, slots and how often the rule has been applied, while all wait; the
// job is another run, whose rounds and clocks are counted from 0 again.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/parameter_server.h"

// ---- slots --------------------------------------------------------------------------------------------------------

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

// Memory for all slots, the first time.
static enum ps_code checkpoint_make_slots(struct wk_parameter_server_state *s, struct ps_error *e)
{
    const int n = checkpoint_n_slots(s);
    if (!s->slots)
        s->slots = ps_alloc(((size_t)n + 1) * sizeof *s->slots);
    for (int k = 0; k < n; k++)
        if (!s->slots[k] && wk_home_make_tensors(s, &s->slots[k], e))
            return e->code;
    return PS_OK;
}

void wk_psd_free_slots(struct wk_parameter_server_state *s)
{
    for (int k = 0; s->slots && k < checkpoint_n_slots(s); k++)
        wk_home_free_tensors(s, s->slots[k]);
    free(s->slots);
}

// Of a slot's tensors those of variables that learn: states have none. Returns how many.
static size_t checkpoint_pick(const struct wk_parameter_server_state *s, int slot, psc_tensor *to)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_trained; i++)
        if (s->learns[i])
            to[n++] = s->slots[slot][i];
    return n;
}

// Pulls a slot; puts one of a rule that has been applied `steps` times.
static enum ps_code checkpoint_move_slot(struct wk_parameter_server_state *s, psc_client *client, int slot, bool puts,
                                         uint64_t steps, struct ps_error *e)
{
    psc_tensor *tensors = ps_alloc((s->n_trained + 1) * sizeof *tensors);
    const size_t n = checkpoint_pick(s, slot, tensors);
    psc_error error;
    psc_op *op;
    if (puts)
        psc_put_state(client, tensors, n, (uint32_t)slot + 1, steps, NULL, NULL, &op);
    else
        psc_pull_slot(client, tensors, n, (uint32_t)slot + 1, NULL, NULL, &op);
    free(tensors);
    return psc_wait(op, NULL, &error) ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code checkpoint_pull_slots(struct wk_parameter_server_state *s, struct ps_error *e)
{
    if (checkpoint_make_slots(s, e))
        return e->code;
    for (int k = 0; k < checkpoint_n_slots(s); k++)
        if (checkpoint_move_slot(s, s->reader ? s->reader : s->client, k, false, 0, e))
            return e->code;
    return PS_OK;
}

static enum ps_code checkpoint_get_slots(struct wk_parameter_server_state *s, const struct wk_checkpoint *from,
                                         struct ps_error *e)
{
    if (checkpoint_make_slots(s, e))
        return e->code;
    enum ps_code code = PS_OK;
    for (int k = 0; k < checkpoint_n_slots(s) && code == PS_OK; k++) {
        char *slot = checkpoint_slot_name(s, k);
        for (size_t i = 0; i < s->n_trained && code == PS_OK; i++) {
            const psc_tensor *t = &s->slots[k][i];
            code = s->learns[i] ? wk_checkpoint_get(from, slot, t->name, t->count, t->data, e) : PS_OK;
        }
        free(slot);
    }
    return code;
}

// ---- save ---------------------------------------------------------------------------------------------------------

static void checkpoint_put_variable(const struct wk_parameter_server_state *s, size_t variable,
                                    struct wk_checkpoint *to)
{
    const struct nn_param *p = nn_model_param(s->env->model, variable);
    const size_t i = s->tensor[variable];
    for (int k = 0; k < checkpoint_n_slots(s) && i < s->n_trained && s->learns[i]; k++) {
        char *slot = checkpoint_slot_name(s, k);
        wk_checkpoint_put(to, slot, p->name, p->shape, p->rank, s->slots[k][i].data);
        free(slot);
    }
}

// Which outer rule it is, and how often it has been applied: once in a round, else as often as all workers push.
static void checkpoint_put_outer(const struct wk_parameter_server_state *s, struct wk_checkpoint *to)
{
    const uint64_t pushes = s->version > s->loaded_version ? s->version - s->loaded_version : 0;
    const uint64_t since = s->update == PSC_SYNC ? s->closed : pushes;
    json_t *outer = json_object();
    json_object_set_new(outer, "rule", json_string(s->rule->name));
    json_object_set_new(outer, "slots", json_integer(checkpoint_n_slots(s)));
    json_object_set_new(outer, "steps", json_integer((json_int_t)(s->outer_steps + since)));
    json_object_set_new(to->json, "outer_optimizer", outer);
}

// In rounds the rule is applied once in a step; else as often as all workers push. Who has been in rounds all the time
// counts its steps as they do.
static uint64_t checkpoint_ahead(const struct wk_parameter_server_state *s)
{
    const uint64_t trained = s->next_step - (s->handed_out - s->trained);
    return s->update == PSC_SYNC && !s->mode_changed ? s->ahead : wk_psd_iterations(s) - (s->base + trained);
}

enum ps_code wk_psd_save(struct wk_parameter_server_state *s, struct wk_checkpoint *to, struct ps_error *e)
{
    if (checkpoint_pull_slots(s, e))
        return e->code;
    for (size_t i = 0; i < nn_model_params(s->env->model); i++)
        checkpoint_put_variable(s, i, to);
    if (s->is_outer)
        checkpoint_put_outer(s, to);
    else
        wk_checkpoint_put_rule(to, s->rate, checkpoint_ahead(s));
    return PS_OK;
}

// ---- load ---------------------------------------------------------------------------------------------------------

// All values, and the slots that have been read.
static enum ps_code checkpoint_put_all(struct wk_parameter_server_state *s, bool slots, uint64_t steps,
                                       struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    psc_put_state(s->client, s->weights, s->n, 0, steps, NULL, NULL, &op);
    if (psc_wait(op, NULL, &error))
        return wk_take_error(&error, e);
    for (int k = 0; slots && k < checkpoint_n_slots(s); k++)
        if (checkpoint_move_slot(s, s->client, k, true, steps, e))
            return e->code;
    return PS_OK;
}

// Rounds, clocks and leases begin with the position of the checkpoint.
static void checkpoint_go_on(struct wk_parameter_server_state *s, uint64_t epoch, uint64_t first, uint64_t step)
{
    const bool over = first == s->env->examples;
    s->base = step;
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

enum ps_code wk_psd_load(struct wk_parameter_server_state *s, const struct wk_checkpoint *from, uint64_t epoch,
                         uint64_t first, uint64_t step, struct ps_error *e)
{
    const bool slots = !s->is_outer || checkpoint_has_outer(s, from);
    double rate;
    if (psc_resumptions(s->client))
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "%s: job '%s' goes on with what the ps tasks have (on_existing: resume): expected one of both",
                       from->path, s->env->job->name);
    if (wk_checkpoint_get_rule(from, &rate, &s->ahead, e) || (slots && checkpoint_get_slots(s, from, e)))
        return e->code;
    checkpoint_go_on(s, epoch, first, step);
    if (s->env->rank == 0 && checkpoint_put_all(s, slots, s->is_outer ? s->outer_steps : step + s->ahead, e))
        return e->code;
    return wk_psd_barrier(s, "checkpoint", e);
}
