// SPDX-License-Identifier: Apache-2.0
//
// psctl get and put: a variable read through the client library, shown or written as .npy; and written from one.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/math/half.h"
#include "tools/common/table.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/operand.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/value.h"

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

// Over the finite values; NAN where there is none.
struct statistics {
    double min, max, mean, norm;
    uint64_t not_finite;
};

static double get_element(const struct value *v, uint64_t i)
{
    const void *data = v->array.data;
    switch (v->variable->dtype) {
    case PSC_FLOAT32:
        return ((const float *)data)[i];
    case PSC_FLOAT64:
        return ((const double *)data)[i];
    case PSC_INT32:
        return ((const int32_t *)data)[i];
    case PSC_INT64:
        return (double)((const int64_t *)data)[i];
    case PSC_BFLOAT16:
        return ps_of_bfloat16(((const uint16_t *)data)[i]);
    case PSC_FLOAT16:
        return ps_of_float16(((const uint16_t *)data)[i]);
    default:
        return ((const uint8_t *)data)[i];
    }
}

static struct statistics statistics_of(const struct value *v)
{
    struct statistics s = {.min = NAN, .max = NAN};
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < v->array.count; i++) {
        double x = get_element(v, i);
        if (!isfinite(x)) {
            s.not_finite++;
            continue;
        }
        s.min = fmin(s.min, x);  // the other one where one is NAN
        s.max = fmax(s.max, x);
        sum += x;
        squares += x * x;
    }
    const uint64_t finite = v->array.count - s.not_finite;
    s.mean = sum / (double)finite;
    s.norm = finite ? sqrt(squares) : NAN;
    return s;
}

// What can be shown of a byte string: JSON is UTF-8.
static json_t *string_value(const psc_string *s)
{
    json_t *text = json_stringn(s->len ? s->data : "", s->len);
    return text ? text : json_string("(bytes)");
}

static json_t *first_values(const struct value *v)
{
    json_t *first = json_array();
    for (uint64_t i = 0; i < v->array.count && i < FIRST_VALUES; i++) {
        json_t *value = v->variable->dtype == PSC_STRING ? string_value((const psc_string *)v->array.data + i)
                                                         : table_real(get_element(v, i));
        json_array_append_new(first, value);
    }
    return first;
}

static uint64_t bytes_of(const struct value *v)
{
    const psc_string *s = v->array.data;
    uint64_t bytes = 0;
    if (v->variable->dtype != PSC_STRING)
        return v->array.count * npy_element_size(v->array.dtype);
    for (uint64_t i = 0; i < v->array.count; i++)
        bytes += s[i].len;
    return bytes;
}

static void number_cells(struct table *t, const struct value *v)
{
    struct statistics s = statistics_of(v);
    table_cell(t, json_real(s.min));
    table_cell(t, json_real(s.max));
    table_cell(t, json_real(s.mean));
    table_cell(t, json_real(s.norm));
    table_cell(t, table_count(s.not_finite));
}

static void get_show(const struct value *v, bool json)
{
    json_t *shape = json_array();
    for (size_t i = 0; i < v->array.rank; i++)
        json_array_append_new(shape, table_count(v->shape[i]));
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    table_row(&t);
    table_cell(&t, table_text(v->variable->name));
    table_cell(&t, table_text(ps_dtype_name(v->array.dtype)));
    table_cell(&t, shape);
    table_cell(&t, table_count(bytes_of(v)));
    table_cell(&t, table_count(v->version));
    if (v->variable->dtype != PSC_STRING)
        number_cells(&t, v);
    for (int i = 0; v->variable->dtype == PSC_STRING && i < 5; i++)
        table_cell(&t, NULL);
    table_cell(&t, first_values(v));
    table_show(&(struct table_part){"variable", &t, true}, 1, json, stdout);
    table_fini(&t);
}

static int get_read(struct cluster *c, const struct call *call, const char *rows, const char *file, struct value *v)
{
    struct ps_error e = {0};
    int exit_code = jobs_ask_for(c, call->argv[0]);
    if (exit_code)
        return exit_code;
    if (value_open(c, call->argv[0], call->argv[1], rows, v, &e) || value_get(c, v, &e))
        return call_report(&e);
    const bool shows = !file || !operand_is_stdout(file);
    if (file && npy_write(file, &v->array, &e))
        return call_report(&e);
    if (shows)
        get_show(v, call->target.json);
    return 0;
}

static int get_write(struct cluster *c, const struct call *call, const char *rows, const char *file, struct value *v)
{
    struct ps_error e = {0};
    if (cluster_check(c, &e))
        return call_report(&e);
    int exit_code = jobs_ask_for(c, call->argv[0]);
    if (exit_code)
        return exit_code;
    if (value_open(c, call->argv[0], call->argv[1], rows, v, &e) || npy_read(file, &v->array, &e) ||
        value_put(c, v, &e))
        return call_report(&e);
    get_show(v, call->target.json);
    return 0;
}

static int get_run(struct call *call, const char *rows, const char *file,
                   int (*body)(struct cluster *c, const struct call *call, const char *rows, const char *file,
                               struct value *v))
{
    struct cluster c;
    struct value v = {0};
    struct ps_error e;
    if (cluster_open(&c, &call->target, call->argv[0], &e))
        return call_report(&e);
    int exit_code = body(&c, call, rows, file, &v);
    cluster_close(&c);
    value_fini(&v);
    return exit_code;
}

int command_get(struct call *call)
{
    const char *output = NULL, *rows = NULL;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "output", .letter = 'o', .text = &output},
                                         {.name = "rows", .text = &rows}};
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    if (output && call->argc == 3)
        return call_wrong(call, "the file is named twice");
    return get_run(call, rows, call->argc == 3 ? call->argv[2] : output, get_read);
}

int command_put(struct call *call)
{
    const char *rows = NULL;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target), {.name = "rows", .text = &rows}};
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    return get_run(call, rows, call->argv[2], get_write);
}
