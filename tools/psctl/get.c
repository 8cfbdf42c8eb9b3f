// SPDX-License-Identifier: Apache-2.0
//
// psctl get: reads a variable through the client library, shows what its values are like, writes them as
// .npy.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/dtype.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/npy.h"
#include "tools/psctl/table.h"

enum { FIRST_VALUES = 6 };

static const struct table_column columns[] = {
    {"name", "variable", TABLE_TEXT},
    {"dtype", "dtype", TABLE_TEXT},
    {"shape", "shape", TABLE_SHAPE},
    {"bytes", "bytes", TABLE_BYTES},
    {"version", "version", TABLE_COUNT},
    {"min", "min", TABLE_REAL},
    {"max", "max", TABLE_REAL},
    {"mean", "mean", TABLE_REAL},
    {"norm", "norm", TABLE_REAL},
    {"not_finite", "not finite", TABLE_COUNT},
    {"first", "first values", TABLE_LIST},
};

struct value {
    const psc_variable *variable;
    uint64_t count, version;
    void *data;
};

// Over the finite values; NAN where there is none.
struct statistics {
    double min, max, mean, norm;
    uint64_t not_finite;
};

static double element(const struct value *v, uint64_t i)
{
    switch (v->variable->dtype) {
    case PSC_FLOAT32:
        return ((const float *)v->data)[i];
    case PSC_FLOAT64:
        return ((const double *)v->data)[i];
    case PSC_INT32:
        return ((const int32_t *)v->data)[i];
    default:
        return (double)((const int64_t *)v->data)[i];
    }
}

static struct statistics statistics_of(const struct value *v)
{
    struct statistics s = {.min = NAN, .max = NAN};
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < v->count; i++) {
        double x = element(v, i);
        if (!isfinite(x)) {
            s.not_finite++;
            continue;
        }
        s.min = fmin(s.min, x);  // the other one where one is NAN
        s.max = fmax(s.max, x);
        sum += x;
        squares += x * x;
    }
    s.mean = sum / (double)(v->count - s.not_finite);
    s.norm = sqrt(squares);
    return s;
}

static json_t *first_values(const struct value *v)
{
    json_t *first = json_array();
    for (uint64_t i = 0; i < v->count && i < FIRST_VALUES; i++) {
        json_t *real = json_real(element(v, i));
        json_array_append_new(first, real ? real : json_null());
    }
    return first;
}

static void show(const struct value *v, bool json)
{
    struct statistics s = statistics_of(v);
    json_t *shape = json_array();
    for (size_t i = 0; i < v->variable->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)v->variable->shape[i]));
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    table_row(&t);
    table_cell(&t, table_text(v->variable->name));
    table_cell(&t, table_text(ps_dtype_name((int)v->variable->dtype)));
    table_cell(&t, shape);
    table_cell(&t, json_integer((json_int_t)(v->count * ps_dtype_size((int)v->variable->dtype))));
    table_cell(&t, json_integer((json_int_t)v->version));
    table_cell(&t, json_real(s.min));
    table_cell(&t, json_real(s.max));
    table_cell(&t, json_real(s.mean));
    table_cell(&t, json_real(s.norm));
    table_cell(&t, json_integer((json_int_t)s.not_finite));
    table_cell(&t, first_values(v));
    table_show(&(struct table_part){"variable", &t, true}, 1, json, stdout);
    table_fini(&t);
}

// The variable of this name; NOT_FOUND suggests one.
static enum ps_code find(psc_client *client, const char *job, const char *name, const psc_variable **variable,
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

// v->data is malloc'd.
static enum ps_code read_value(psc_client *client, const char *job, const char *name, struct value *v,
                               struct ps_error *e)
{
    psc_error error;
    psc_result result;
    psc_op *op;
    if (psc_attach(client, &error))
        return ps_fail(e, (enum ps_code)error.code, "%s", error.text);
    if (find(client, job, name, &v->variable, e))
        return e->code;
    int dtype = (int)v->variable->dtype;
    if (ps_shape_count(v->variable->shape, v->variable->rank, dtype, &v->count, e))
        return ps_error_prefix(e, "variable %s", name);
    v->data = malloc(v->count * ps_dtype_size(dtype));
    if (!v->data)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for the %zu bytes of %s", v->count * ps_dtype_size(dtype),
                       name);
    psc_get(client, &(psc_tensor){name, v->data, v->count, v->variable->dtype}, 1, NULL, NULL, &op);
    if (psc_wait(op, &result, &error))
        return ps_fail(e, (enum ps_code)error.code, "%s", error.text);
    v->version = result.version;
    return PS_OK;
}

static int get(struct cluster *c, const struct call *call, const char *output, struct value *v)
{
    const char *job = call->argv[0], *name = call->argv[1];
    struct ps_error e = {0};
    struct answer *answers;
    // psc_attach waits for a job that is not there yet: ask first.
    cluster_describe(c, &answers);
    int exit_code = cluster_report(answers, c->tasks);
    cluster_answers_free(answers, c->tasks);
    if (exit_code)
        return exit_code;
    if (read_value(c->client, job, name, v, &e))
        return report(&e);
    if (!output || strcmp(output, "-") != 0)
        show(v, call->target.json);
    if (output &&
        npy_write(output, (int)v->variable->dtype, v->variable->shape, v->variable->rank, v->data, v->count, &e))
        return report(&e);
    return 0;
}

int command_get(struct call *call)
{
    const char *output = NULL;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "output", .letter = 'o', .text = &output}};
    struct cluster c;
    struct value v = {0};
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, 4, &exit_code))
        return exit_code;
    if (cluster_open(&c, &call->target, call->argv[0], &e))
        return report(&e);
    exit_code = get(&c, call, output, &v);
    cluster_close(&c);
    free(v.data);  // an operation that failed may write to it until the client is closed
    return exit_code;
}
