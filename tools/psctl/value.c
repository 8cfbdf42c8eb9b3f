// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/value.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tools/psctl/operand.h"

static enum ps_code value_from_psc(const psc_error *from, struct ps_error *e)
{
    return ps_fail(e, (enum ps_code)from->code, "%s", from->text);
}

// ---- rows ---------------------------------------------------------------------------------------------------------

static enum ps_code choose_rows(struct value *v, const char *rows, struct ps_error *e)
{
    const psc_variable *variable = v->variable;
    uint64_t first, end, row = 1;
    if (!rows)
        return PS_OK;
    if (variable->rank == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable %s is a scalar, it has no --rows", variable->name);
    if (operand_rows(rows, variable->shape[0], &first, &end, e))
        return ps_error_prefix(e, "variable %s", variable->name);
    for (size_t i = 1; i < variable->rank; i++)
        row *= variable->shape[i];
    v->shape[0] = end - first;
    v->first = first * row;
    v->array.count = (end - first) * row;
    return PS_OK;
}

// ---- the variable -------------------------------------------------------------------------------------------------

static enum ps_code value_find(psc_client *client, const char *job, const char *name, const psc_variable **variable,
                               struct ps_error *e)
{
    *variable = psc_variable_find(client, name);
    if (*variable)
        return PS_OK;
    size_t n = psc_variables(client);
    const char **names = ps_alloc((n + 1) * sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = psc_variable_at(client, i)->name;
    const char *near = ps_nearest(name, names, (int)n);
    free(names);
    return near ? ps_fail(e, PS_NOT_FOUND, "job %s has no variable %s, did you mean %s?", job, name, near)
                : ps_fail(e, PS_NOT_FOUND, "job %s has no variable %s; psctl vars %s lists the %zu it has", job, name,
                          job, n);
}

static enum ps_code make_room(struct value *v, struct ps_error *e)
{
    struct npy_array *a = &v->array;
    size_t size = npy_element_size(a->dtype);
    if (size == 0)
        return ps_fail(e, PS_UNIMPLEMENTED, "variable %s is of dtype %d, which this psctl does not know",
                       v->variable->name, a->dtype);
    a->data = ps_try_alloc_array(a->count, size);
    return a->data ? PS_OK : ps_no_memory(e, v->variable->name);
}

static void value_name(const psc_variable *variable, struct value *v)
{
    *v = (struct value){.variable = variable};
    v->array = (struct npy_array){.dtype = (int)variable->dtype, .shape = v->shape, .rank = variable->rank, .count = 1};
    for (size_t i = 0; i < variable->rank; i++) {
        v->shape[i] = variable->shape[i];
        v->array.count *= v->shape[i];
    }
}

enum ps_code value_open(struct cluster *c, const char *job, const char *name, const char *rows, struct value *v,
                        struct ps_error *e)
{
    psc_error error;
    *v = (struct value){0};
    if (psc_attach(c->client, &error))
        return value_from_psc(&error, e);
    if (value_find(c->client, job, name, &v->variable, e))
        return e->code;
    value_name(v->variable, v);
    if (choose_rows(v, rows, e))
        return e->code;
    return make_room(v, e);
}

bool value_is_float(psc_dtype dtype)
{
    return dtype == PSC_FLOAT32 || dtype == PSC_FLOAT64 || dtype == PSC_BFLOAT16 || dtype == PSC_FLOAT16;
}

enum ps_code value_of(const psc_variable *variable, struct value *v, struct ps_error *e)
{
    value_name(variable, v);
    return make_room(v, e);
}

void value_fini(struct value *v)
{
    npy_elements_free(&v->array);
    free(v->array.data);
}

// ---- its value ----------------------------------------------------------------------------------------------------

static psc_tensor tensor_of(const struct value *v)
{
    return (psc_tensor){.name = v->variable->name,
                        .data = v->array.data,
                        .count = v->array.count,
                        .dtype = v->variable->dtype,
                        .part = true,
                        .first = v->first};
}

static enum ps_code value_wait_for(psc_op *op, struct value *v, struct ps_error *e)
{
    psc_error error;
    psc_result result;
    if (psc_wait(op, &result, &error))
        return value_from_psc(&error, e);
    v->version = result.version;
    return PS_OK;
}

enum ps_code value_get(struct cluster *c, struct value *v, struct ps_error *e)
{
    psc_op *op;
    psc_tensor tensor = tensor_of(v);
    psc_get(c->client, &tensor, 1, NULL, NULL, &op);
    return value_wait_for(op, v, e);
}

enum ps_code value_put(struct cluster *c, struct value *v, struct ps_error *e)
{
    psc_op *op;
    psc_tensor tensor = tensor_of(v);
    psc_put(c->client, &tensor, 1, NULL, NULL, &op);
    return value_wait_for(op, v, e);
}
