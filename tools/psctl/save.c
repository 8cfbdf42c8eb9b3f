// SPDX-License-Identifier: Apache-2.0
//
// psctl save: all weights of a job that runs or has ended, as one file of safetensors.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/file/output.h"
#include "common/file/safetensors.h"
#include "common/math/half.h"
#include "tools/common/table.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/operand.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/value.h"

static const struct table_column columns[] = {
    {"file", "file", TABLE_TEXT},       {"variables", "variables", TABLE_COUNT}, {"bytes", "bytes", TABLE_BYTES},
    {"round", "round", TABLE_COUNT},    {"version", "version", TABLE_COUNT},     {"left_out", "left out", TABLE_LIST},
    {"state", "state", TABLE_SENTENCE},
};

// The job's variables that are floats; safetensors' writer takes float32 and float64.
struct save {
    struct value *value;  // [n]
    struct ps_safetensor *tensor;
    size_t n;
    json_t *left_out;  // names of the others
    psc_result result;
};

static void save_fini(struct save *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->tensor[i].data == s->value[i].array.data ? NULL : (void *)s->tensor[i].data);
        value_fini(&s->value[i]);
    }
    free(s->value);
    free(s->tensor);
    json_decref(s->left_out);
}

// ---- read ---------------------------------------------------------------------------------------------------------

static enum ps_code save_make_room(struct save *s, psc_client *client, struct ps_error *e)
{
    const size_t all = psc_variables(client);
    s->value = ps_alloc((all + 1) * sizeof *s->value);
    s->tensor = ps_alloc((all + 1) * sizeof *s->tensor);
    s->left_out = json_array();
    e->code = PS_OK;
    for (size_t i = 0; i < all && e->code == PS_OK; i++) {
        const psc_variable *v = psc_variable_at(client, i);
        if (value_is_float(v->dtype))
            value_of(v, &s->value[s->n++], e);
        else
            json_array_append_new(s->left_out, json_string(v->name));
    }
    return e->code;
}

static enum ps_code save_get(struct save *s, psc_client *client, struct ps_error *e)
{
    psc_tensor *tensors = ps_alloc((s->n + 1) * sizeof *tensors);
    psc_error error;
    psc_op *op;
    for (size_t i = 0; i < s->n; i++)
        tensors[i] = (psc_tensor){.name = s->value[i].variable->name,
                                  .data = s->value[i].array.data,
                                  .count = s->value[i].array.count,
                                  .dtype = s->value[i].variable->dtype};
    psc_get(client, tensors, s->n, NULL, NULL, &op);
    free(tensors);
    e->code = PS_OK;
    if (psc_wait(op, &s->result, &error))
        ps_fail(e, (enum ps_code)error.code, "%s", error.text);
    return e->code;
}

// ---- write --------------------------------------------------------------------------------------------------------

static float save_element(const struct npy_array *a, uint64_t i)
{
    const uint16_t half = ((const uint16_t *)a->data)[i];
    return a->dtype == PSC_BFLOAT16 ? ps_of_bfloat16(half) : ps_of_float16(half);
}

// The array as it is, or as the float32 that has the same value.
static const float *save_floats(const struct npy_array *a)
{
    if (a->dtype == PSC_FLOAT32)
        return a->data;
    float *floats = ps_alloc((size_t)a->count * sizeof *floats);
    for (uint64_t i = 0; i < a->count; i++)
        floats[i] = save_element(a, i);
    return floats;
}

static enum ps_code save_write(struct save *s, const char *path, struct ps_error *e)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct npy_array *a = &s->value[i].array;
        struct ps_safetensor *t = &s->tensor[i];
        *t = (struct ps_safetensor){.name = s->value[i].variable->name, .rank = a->rank};
        if (a->dtype == PSC_FLOAT64)
            t->doubles = a->data;
        else
            t->data = save_floats(a);
        memcpy(t->shape, a->shape, a->rank * sizeof *t->shape);
    }
    return ps_safetensors_write(path, s->tensor, s->n, e);
}

static void save_show(const struct save *s, const char *path, bool json)
{
    const bool rounds = s->result.round != 0;
    uint64_t bytes = 0;
    struct table t;
    for (size_t i = 0; i < s->n; i++)
        bytes += s->value[i].array.count * (s->tensor[i].doubles ? sizeof(double) : sizeof(float));
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    table_row(&t);
    table_cell(&t, table_text(path));
    table_cell(&t, table_count(s->n));
    table_cell(&t, table_count(bytes));
    table_cell(&t, rounds ? table_count(s->result.round) : NULL);
    table_cell(&t, table_count(s->result.version));
    table_cell(&t, json_array_size(s->left_out) ? json_incref(s->left_out) : NULL);
    table_cell(&t,
               table_text(!rounds ? "each variable as it was between two updates"
                          : s->result.round == s->result.last_round
                              ? "one state of the whole model, between two rounds"
                              : "rounds went on while it was read: variables are of the round named or later ones"));
    table_show(&(struct table_part){"saved", &t, true}, 1, json, stdout);
    table_fini(&t);
}

// ---- the command --------------------------------------------------------------------------------------------------

static enum ps_code save_job(struct cluster *c, const char *path, struct save *s, struct ps_error *e)
{
    psc_error error;
    if (psc_attach(c->client, &error))
        return ps_fail(e, (enum ps_code)error.code, "%s", error.text);
    if (save_make_room(s, c->client, e) || save_get(s, c->client, e))
        return e->code;
    return save_write(s, path, e);
}

int command_save(struct call *call)
{
    struct cluster c;
    struct save s = {0};
    struct ps_error e = {.code = PS_OK};
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target)};
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    const char *path = strcmp(call->argv[1], "-") == 0 ? "/dev/stdout" : call->argv[1];
    if (ps_output_check(path, &e) || cluster_open(&c, &call->target, call->argv[0], &e))
        return call_report(&e);
    exit_code = jobs_ask_for(&c, call->argv[0]);
    const bool shows = !operand_is_stdout(path);
    if (exit_code == 0) {
        exit_code = save_job(&c, path, &s, &e) ? call_report(&e) : 0;
        if (exit_code == 0 && shows)
            save_show(&s, path, call->target.json);
    }
    cluster_close(&c);
    save_fini(&s);
    return exit_code;
}
