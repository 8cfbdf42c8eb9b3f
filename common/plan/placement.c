// SPDX-License-Identifier: Apache-2.0
#include "common/plan/placement.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"

// ---- the spec -----------------------------------------------------------------------------------------------------

// From 1 on.
static bool parse_count(const char *text, uint64_t *count)
{
    const char *end;
    return ps_parse_digits(text, &end, count) && *count && !*end;
}

static enum ps_code parse_partitioner(const char *text, struct ps_placement_spec *spec, struct ps_error *e)
{
    static const struct {
        const char *prefix;
        enum ps_partitioner partitioner;
    } kind[] = {
        {"fixed:", PS_PARTITION_FIXED}, {"min_bytes:", PS_PARTITION_MIN_BYTES}, {"max_bytes:", PS_PARTITION_MAX_BYTES}};
    if (strcmp(text, "none") == 0) {
        spec->partitioner = PS_PARTITION_NONE;
        spec->partitioner_arg = 0;
        return PS_OK;
    }
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
        size_t len = strlen(kind[i].prefix);
        const bool counts = kind[i].partitioner == PS_PARTITION_FIXED;
        uint64_t amount;
        if (strncmp(text, kind[i].prefix, len) != 0)
            continue;
        if (!(counts ? parse_count : ps_parse_bytes)(text + len, &amount))
            break;
        spec->partitioner = kind[i].partitioner;
        spec->partitioner_arg = amount;
        return PS_OK;
    }
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "partitioner \"%s\" is not one of none, fixed:N, min_bytes:B, max_bytes:B (N and B from 1; B with "
                   "KiB, MiB or GiB if wanted)",
                   text);
}

enum ps_code ps_placement_parse(const char *placement, const char *partitioner, struct ps_placement_spec *spec,
                                struct ps_error *e)
{
    struct ps_placement_spec s = {.placement = PS_GREEDY};
    if (placement && strcmp(placement, "round_robin") == 0)
        s.placement = PS_ROUND_ROBIN;
    else if (placement && strcmp(placement, "greedy") != 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "placement \"%s\" is not one of round_robin, greedy", placement);
    enum ps_code code = partitioner ? parse_partitioner(partitioner, &s, e) : PS_OK;
    if (code == PS_OK)
        *spec = s;
    return code;
}

// ---- cutting ------------------------------------------------------------------------------------------------------

static uint64_t placement_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Into how many parts a variable is cut: 1 to its rows.
static uint64_t placement_parts_of(const struct ps_placement_spec *spec, const struct ps_placement_var *v,
                                   uint32_t tasks)
{
    uint64_t row_bytes = v->row_count * v->elem_size, arg = spec->partitioner_arg;
    switch (spec->partitioner) {
    case PS_PARTITION_NONE:
        break;
    case PS_PARTITION_FIXED:
        return placement_least(arg, v->rows);
    case PS_PARTITION_MIN_BYTES: {
        uint64_t min_rows = arg / row_bytes + (arg % row_bytes != 0);
        uint64_t parts = placement_least(v->rows / min_rows, tasks);
        return parts ? parts : 1;
    }
    case PS_PARTITION_MAX_BYTES: {
        uint64_t max_rows = arg / row_bytes ? arg / row_bytes : 1;
        return v->rows / max_rows + (v->rows % max_rows != 0);
    }
    }
    return 1;
}

// Adds the variable's bytes, slots included, to *total, which bounds every load that is computed later.
static enum ps_code check_var(const struct ps_placement_var *v, uint64_t *total, struct ps_error *e)
{
    uint64_t bytes;
    if (v->rows == 0 || v->row_count == 0 || v->elem_size == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable %s has no elements", v->name);
    if (__builtin_mul_overflow(v->rows, v->row_count, &bytes) || __builtin_mul_overflow(bytes, v->elem_size, &bytes) ||
        __builtin_mul_overflow(bytes, UINT64_C(1) + v->slots, &bytes) || __builtin_add_overflow(*total, bytes, total) ||
        *total > INT64_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the bytes of the variables up to %s overflow 63 bits", v->name);
    return PS_OK;
}

// How many partitions there will be.
static enum ps_code count_parts(const struct ps_placement_spec *spec, const struct ps_placement_var *vars,
                                size_t n_vars, uint32_t tasks, size_t *n, struct ps_error *e)
{
    uint64_t total = 0;
    size_t sum = 0;
    for (size_t i = 0; i < n_vars; i++) {
        if (check_var(&vars[i], &total, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
        uint64_t parts = placement_parts_of(spec, &vars[i], tasks);
        if (parts > PS_MAX_PARTITIONS - sum)
            return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                           "variable %s would be cut into %" PRIu64 " partitions; a job may have %d in all",
                           vars[i].name, parts, PS_MAX_PARTITIONS);
        sum += (size_t)parts;
    }
    *n = sum;
    return PS_OK;
}

// Returns how many it wrote.
static size_t placement_cut(const struct ps_placement_var *v, uint32_t index, uint64_t parts, struct ps_partition *to)
{
    uint64_t row = 0;
    for (uint64_t i = 0; i < parts; i++) {
        uint64_t rows = v->rows / parts + (i < v->rows % parts);
        to[i] =
            (struct ps_partition){.var = index, .first = row * v->row_count, .count = rows * v->row_count, .task = 0};
        row += rows;
    }
    return (size_t)parts;
}

// ---- placing ------------------------------------------------------------------------------------------------------

static void place_round_robin(struct ps_partition *p, size_t n, uint32_t tasks)
{
    for (size_t i = 0; i < n; i++)
        p[i].task = (uint32_t)(i % tasks);
}

struct weighed {
    struct ps_partition *p;
    const char *name;
    uint64_t bytes;
};

// Heaviest first; by name, then by place, where the same.
static int compare_weight(const void *x, const void *y)
{
    const struct weighed *a = x, *b = y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    int names = strcmp(a->name, b->name);
    if (names != 0)
        return names;
    return a->p < b->p ? -1 : a->p > b->p;
}

static uint32_t least_loaded(const uint64_t *load, uint32_t tasks)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < tasks; i++)
        if (load[i] < load[best])
            best = i;
    return best;
}

static enum ps_code place_greedy(const struct ps_placement_var *vars, struct ps_partition *p, size_t n, uint32_t tasks,
                                 struct ps_error *e)
{
    struct weighed *order = calloc(n, sizeof *order);
    uint64_t *load = calloc(tasks, sizeof *load);
    enum ps_code code = PS_OK;
    if (!order || !load) {
        code = ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory to place %zu partitions on %" PRIu32 " tasks", n, tasks);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        const struct ps_placement_var *v = &vars[p[i].var];
        order[i] = (struct weighed){&p[i], v->name, p[i].count * v->elem_size * (UINT64_C(1) + v->slots)};
    }
    qsort(order, n, sizeof *order, compare_weight);
    for (size_t i = 0; i < n; i++) {
        uint32_t task = least_loaded(load, tasks);
        order[i].p->task = task;
        load[task] += order[i].bytes;
    }
out:
    free(load);
    free(order);
    return code;
}

enum ps_code ps_placement_plan(const struct ps_placement_spec *spec, const struct ps_placement_var *vars, size_t n_vars,
                               uint32_t tasks, struct ps_partition **out, size_t *n_out, struct ps_error *e)
{
    size_t n = 0, at = 0;
    if (tasks == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "there is no ps task to place variables on");
    enum ps_code code = count_parts(spec, vars, n_vars, tasks, &n, e);
    if (code != PS_OK)
        return code;
    struct ps_partition *p = calloc(n ? n : 1, sizeof *p);
    if (!p)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for a plan of %zu partitions", n);
    for (size_t i = 0; i < n_vars; i++)
        at += placement_cut(&vars[i], (uint32_t)i, placement_parts_of(spec, &vars[i], tasks), p + at);
    if (spec->placement == PS_ROUND_ROBIN)
        place_round_robin(p, n, tasks);
    else
        code = n ? place_greedy(vars, p, n, tasks, e) : PS_OK;
    if (code != PS_OK) {
        free(p);
        return code;
    }
    *out = p;
    *n_out = n;
    return PS_OK;
}
