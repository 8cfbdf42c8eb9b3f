// SPDX-License-Identifier: Apache-2.0
//
// psctl restore: the weights of a checkpoint, or of what psctl save has written, put into a job; and where the file has
// them, too, what the optimizer keeps beside the weights and how often it has been applied.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/file/safetensors.h"
#include "common/math/half.h"
#include "common/math/rule.h"
#include "tools/common/table.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/value.h"

typedef Paramserver__V1__DescribeReply Description;

static const struct table_column columns[] = {
    {"file", "file", TABLE_TEXT},       {"variables", "variables", TABLE_COUNT}, {"bytes", "bytes", TABLE_BYTES},
    {"slots", "slots", TABLE_LIST},     {"steps", "steps", TABLE_COUNT},         {"left_out", "left out", TABLE_LIST},
    {"state", "state", TABLE_SENTENCE},
};

// A variable of floats, its array in the file, and the rule that changes it.
struct restored {
    struct value value;
    const struct ps_safetensor *array;
    const struct ps_rule *rule;  // NULL: none has slots
    double hyper[PS_RULE_MAX_HYPERS];
};

struct restore {
    const char *path;
    struct ps_safetensors *file;
    json_t *state;       // of the training that wrote it; NULL: the file says nothing of one
    const char *prefix;  // before the names of slots: of the job's rule, or of an outer one
    struct restored *v;  // [n]
    size_t n;
    json_t *left_out;  // names of variables that are no floats: they stay as they are
    json_t *slots;     // names of those that were put
    bool is_training;  // a training has written the file, for a rule with these slots
    uint64_t steps;    // how often the rule had been applied then
};

static void restore_fini(struct restore *r)
{
    for (size_t i = 0; i < r->n; i++)
        value_fini(&r->v[i].value);
    free(r->v);
    ps_safetensors_free(r->file);
    json_decref(r->state);
    json_decref(r->left_out);
    json_decref(r->slots);
}

// ---- the file -----------------------------------------------------------------------------------------------------

// With local steps the ps tasks have an outer rule, beside the workers' own: it has a name, slots and steps of its own.
static void restore_read_steps(struct restore *r, const char *rule, int slots)
{
    const json_t *outer = json_object_get(r->state, "outer_optimizer");
    const char *outer_rule = json_string_value(json_object_get(outer, "rule"));
    const bool is_outer =
        outer_rule && strcmp(outer_rule, rule) == 0 && json_integer_value(json_object_get(outer, "slots")) == slots;
    r->prefix = is_outer ? "outer_optimizer/" : "";
    r->steps = is_outer ? (uint64_t)json_integer_value(json_object_get(outer, "steps"))
                        : (uint64_t)json_integer_value(json_object_get(r->state, "step")) +
                              (uint64_t)json_integer_value(json_object_get(r->state, "iterations_ahead"));
}

static enum ps_code restore_read(struct restore *r, struct ps_error *e)
{
    if (ps_safetensors_read(r->path, &r->file, e))
        return e->code;
    const char *text = ps_safetensors_metadata(r->file, "paramserver");
    r->state = text ? json_loads(text, 0, NULL) : NULL;
    return PS_OK;
}

static enum ps_code restore_find(const struct restore *r, struct restored *v, struct ps_error *e)
{
    const psc_variable *is = v->value.variable;
    char expected[128], found[128];
    v->array = ps_safetensors_find(r->file, is->name);
    ps_shape_text(is->shape, is->rank, expected, sizeof expected);
    if (!v->array || !v->array->data)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: expected floats of shape %s under the name %s, but has none",
                       r->path, expected, is->name);
    if (v->array->rank == is->rank && memcmp(v->array->shape, is->shape, is->rank * sizeof *is->shape) == 0)
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION, "%s: %s has shape %s, expected the variable's, %s", r->path, is->name,
                   ps_shape_text(v->array->shape, v->array->rank, found, sizeof found), expected);
}

// ---- the job ------------------------------------------------------------------------------------------------------

static void restore_set_hypers(struct restored *v, Paramserver__V1__Hyper *const *hypers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ps_rule_set(v->rule, v->hyper, hypers[i]->name, hypers[i]->value, NULL);
}

// Its own rule, or the job's if it is trainable, with the hyperparameters of either.
static void restore_find_rule(struct restored *v, const Description *d, const Paramserver__V1__Variable *is)
{
    const bool own = is->rule[0] != '\0';
    v->rule = own ? ps_rule_find(is->rule) : is->trainable ? ps_rule_find(d->rule) : NULL;
    if (!v->rule)
        return;
    ps_rule_defaults(v->rule, v->hyper);
    if (!own)
        restore_set_hypers(v, d->hypers, d->n_hypers);
    restore_set_hypers(v, is->hypers, is->n_hypers);
}

static enum ps_code restore_take_variables(struct restore *r, psc_client *client, const Description *d,
                                           struct ps_error *e)
{
    r->v = ps_alloc((d->n_variables + 1) * sizeof *r->v);
    r->left_out = json_array();
    for (size_t i = 0; i < d->n_variables; i++) {
        const psc_variable *is = psc_variable_find(client, d->variables[i]->name);
        struct restored *v = &r->v[r->n];
        if (!is || !value_is_float(is->dtype)) {
            json_array_append_new(r->left_out, json_string(d->variables[i]->name));
            continue;
        }
        r->n++;
        if (value_of(is, &v->value, e) || restore_find(r, v, e))
            return e->code;
        restore_find_rule(v, d, d->variables[i]);
    }
    return PS_OK;
}

static int restore_slots(const struct restored *v)
{
    return v->rule ? ps_rule_slots(v->rule, v->hyper) : 0;
}

static int restore_most_slots(const struct restore *r)
{
    int most = 0;
    for (size_t i = 0; i < r->n; i++)
        most = restore_slots(&r->v[i]) > most ? restore_slots(&r->v[i]) : most;
    return most;
}

// Malloc'd: what the file calls a slot.
static char *restore_slot_name(const struct restore *r, const struct restored *v, int slot)
{
    return ps_printf("%s%s", r->prefix, ps_rule_slot_name(v->rule, v->hyper, slot));
}

// What the file has of a slot; NULL: nothing of that size.
static const float *restore_find_slot(const struct restore *r, const struct restored *v, int slot)
{
    char *prefix = restore_slot_name(r, v, slot), *name = ps_printf("%s/%s", prefix, v->value.variable->name);
    const struct ps_safetensor *array = ps_safetensors_find(r->file, name);
    free(prefix);
    free(name);
    return array && array->count == v->array->count ? array->data : NULL;
}

// All, or none: half of what an optimizer keeps is of no training.
static bool restore_has_slots(const struct restore *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (int k = 0; k < restore_slots(&r->v[i]); k++)
            if (!restore_find_slot(r, &r->v[i], k))
                return false;
    return true;
}

// ---- put ----------------------------------------------------------------------------------------------------------

static void restore_convert(const struct ps_safetensor *from, const struct npy_array *to)
{
    for (uint64_t i = 0; i < to->count; i++)
        switch (to->dtype) {
        case PSC_FLOAT64:
            ((double *)to->data)[i] = from->doubles ? from->doubles[i] : (double)from->data[i];
            break;
        case PSC_BFLOAT16:
            ((uint16_t *)to->data)[i] = ps_to_bfloat16(from->data[i]);
            break;
        case PSC_FLOAT16:
            ((uint16_t *)to->data)[i] = ps_to_float16(from->data[i]);
            break;
        default:
            ((float *)to->data)[i] = from->data[i];
        }
}

static enum ps_code restore_put(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t steps,
                                struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    psc_put_state(client, tensors, n, steps, NULL, NULL, &op);
    return psc_wait(op, NULL, &error) ? ps_fail(e, (enum ps_code)error.code, "%s", error.text) : PS_OK;
}

static enum ps_code restore_put_values(struct restore *r, psc_client *client, psc_tensor *tensors, struct ps_error *e)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct npy_array *a = &r->v[i].value.array;
        restore_convert(r->v[i].array, a);
        tensors[i] = (psc_tensor){
            .name = r->v[i].value.variable->name, .data = a->data, .count = a->count, .dtype = (psc_dtype)a->dtype};
    }
    return restore_put(client, tensors, r->n, r->is_training ? r->steps : 0, e);
}

static void restore_note_slot(struct restore *r, const struct restored *v, int k)
{
    char *name = restore_slot_name(r, v, k);
    json_array_append_new(r->slots, json_string(name));
    free(name);
}

// The k-th slot of all variables that have one. Returns of how many.
static size_t restore_list_slot(struct restore *r, int k, psc_tensor *tensors)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct restored *v = &r->v[i];
        if (k >= restore_slots(v))
            continue;
        if (n == 0)
            restore_note_slot(r, v, k);
        tensors[n++] = (psc_tensor){.name = v->value.variable->name,
                                    .data = (void *)restore_find_slot(r, v, k),
                                    .count = v->array->count,
                                    .dtype = (psc_dtype)v->value.variable->dtype,
                                    .slot = (uint32_t)k + 1};
    }
    return n;
}

// One operation for the values, and one for each slot: with an error between two the job has a part of the file.
static enum ps_code restore_put_all(struct restore *r, psc_client *client, struct ps_error *e)
{
    psc_tensor *tensors = ps_alloc((r->n + 1) * sizeof *tensors);
    size_t n = 1;
    r->is_training = r->state && restore_has_slots(r);
    r->slots = json_array();
    enum ps_code code = restore_put_values(r, client, tensors, e);
    for (int k = 0; r->is_training && n && code == PS_OK; k++)
        if ((n = restore_list_slot(r, k, tensors)))
            code = restore_put(client, tensors, n, r->steps, e);
    free(tensors);
    return code ? ps_error_prefix(e, "the job may have a part of %s now, restore it again", r->path) : PS_OK;
}

// ---- the command --------------------------------------------------------------------------------------------------

static void restore_show(const struct restore *r, bool json)
{
    uint64_t bytes = 0;
    struct table t;
    for (size_t i = 0; i < r->n; i++) {
        const struct ps_safetensor *a = r->v[i].array;
        const size_t slots = r->is_training ? (size_t)restore_slots(&r->v[i]) : 0;
        bytes += a->count * ((a->doubles ? sizeof(double) : sizeof(float)) + slots * sizeof(float));
    }
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    table_row(&t);
    table_cell(&t, table_text(r->path));
    table_cell(&t, table_count(r->n));
    table_cell(&t, table_count(bytes));
    table_cell(&t, json_array_size(r->slots) ? json_incref(r->slots) : NULL);
    table_cell(&t, r->is_training ? table_count(r->steps) : NULL);
    table_cell(&t, json_array_size(r->left_out) ? json_incref(r->left_out) : NULL);
    table_cell(&t, table_text(r->is_training ? "the weights and all that the optimizer keeps are the file's"
                                             : "the weights are the file's; what the optimizer keeps is as it was"));
    table_show(&(struct table_part){"restored", &t, true}, 1, json, stdout);
    table_fini(&t);
}

static enum ps_code restore_job(struct cluster *c, struct restore *r, const Description *d, struct ps_error *e)
{
    psc_error error;
    if (psc_attach(c->client, &error))
        return ps_fail(e, (enum ps_code)error.code, "%s", error.text);
    if (restore_take_variables(r, c->client, d, e))
        return e->code;
    restore_read_steps(r, d->rule, restore_most_slots(r));
    return restore_put_all(r, c->client, e);
}

// One that has ended early takes nothing, however often it is asked.
static enum ps_code restore_check_state(struct cluster *c, const char *job, struct ps_error *e)
{
    char state[32];
    jobs_state(c, job, state, sizeof state);
    if (strcmp(state, "failed") != 0 && strcmp(state, "interrupted") != 0)
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION, "job %.128s is %s: a file is restored into a job that runs, or is done",
                   job, state);
}

// Nothing is put where a ps task does not answer.
static int restore_run(struct cluster *c, struct call *call, struct restore *r)
{
    struct answer *answers;
    struct ps_error e = {.code = PS_OK};
    if (cluster_check(c, &e))
        return call_report(&e);
    cluster_describe(c, &answers);
    int exit_code = jobs_report_answers(c, answers, call->argv[0]);
    if (exit_code == 0 &&
        (restore_check_state(c, call->argv[0], &e) || restore_job(c, r, (const Description *)answers[0].reply, &e)))
        exit_code = call_report(&e);
    if (exit_code == 0)
        restore_show(r, call->target.json);
    cluster_answers_free(answers, c->tasks);
    return exit_code;
}

int command_restore(struct call *call)
{
    struct cluster c;
    struct restore r = {0};
    struct ps_error e;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target)};
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    r.path = call->argv[1];
    if (restore_read(&r, &e) || cluster_open(&c, &call->target, call->argv[0], &e)) {
        restore_fini(&r);
        return call_report(&e);
    }
    exit_code = restore_run(&c, call, &r);
    cluster_close(&c);
    restore_fini(&r);
    return exit_code;
}
