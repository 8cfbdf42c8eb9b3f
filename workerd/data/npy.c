// SPDX-License-Identifier: Apache-2.0
//
// Examples in NumPy's files.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/data/data_internal.h"

double wk_npy_element(const struct ps_npy *npy, uint64_t i)
{
    union {
        uint8_t u1;
        uint16_t u2;
        uint32_t u4;
        uint64_t u8;
        int8_t i1;
        int16_t i2;
        int32_t i4;
        int64_t i8;
        float f4;
        double f8;
    } v;
    memcpy(&v, npy->elements + i * npy->width, npy->width);
    if (npy->kind == 'f')
        return npy->width == 4 ? v.f4 : v.f8;
    bool is_signed = npy->kind == 'i';
    switch (npy->width) {
    case 1:
        return is_signed ? v.i1 : v.u1;
    case 2:
        return is_signed ? v.i2 : v.u2;
    case 4:
        return is_signed ? (double)v.i4 : (double)v.u4;
    default:
        return is_signed ? (double)v.i8 : (double)v.u8;
    }
}

static enum ps_code read_npy(const char *path, uint8_t **bytes, struct ps_npy *npy, struct ps_error *e)
{
    size_t size;
    enum ps_code code = wk_file_read(path, SIZE_MAX, bytes, &size, e);
    if (code != PS_OK)
        return code;
    code = ps_npy_parse(*bytes, size, npy, e);
    bool number = npy->kind == 'u' || npy->kind == 'i' || (npy->kind == 'f' && npy->width > 2);
    if (code == PS_OK && !number)
        code = ps_fail(e, PS_DATA_LOSS, "its elements are of type %c%zu, expected integers, float32 or float64",
                       npy->kind, npy->width);
    return code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", path);
}

static enum ps_code take_floats(struct wk_part *part, const struct ps_npy *npy, struct ps_error *e)
{
    part->floats = wk_array(npy->count, 1, sizeof *part->floats, e);
    if (!part->floats)
        return PS_RESOURCE_EXHAUSTED;
    for (uint64_t i = 0; i < npy->count; i++) {
        double value = wk_npy_element(npy, i);
        if (!(fabs(value) <= FLT_MAX))
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "element %" PRIu64 " of example %" PRIu64 " is %g, expected a finite "
                           "float32",
                           i % part->split.inputs, i / part->split.inputs, value);
        part->floats[i] = (float)value;
    }
    return PS_OK;
}

// Bytes stay bytes: the elements move to the front of the file's buffer, which then is the part's.
static enum ps_code take_x(struct wk_part *part, const struct ps_npy *npy, uint8_t **bytes, struct ps_error *e)
{
    struct wk_split *split = &part->split;
    if (npy->rank < 2)
        return ps_fail(e, PS_INVALID_ARGUMENT, "x has rank %zu, expected the examples and at least one dimension more",
                       npy->rank);
    split->examples = npy->shape[0];
    split->rank = npy->rank - 1;
    memcpy(split->shape, npy->shape + 1, split->rank * sizeof *split->shape);
    split->inputs = npy->count / split->examples;
    if (npy->kind == 'f')
        return take_floats(part, npy, e);
    if (npy->kind == 'i' || npy->width != 1)
        return ps_fail(e, PS_INVALID_ARGUMENT, "x is of type %c%zu, expected uint8, float32 or float64", npy->kind,
                       npy->width);
    part->bytes = memmove(*bytes, npy->elements, npy->count);
    *bytes = NULL;
    return PS_OK;
}

static enum ps_code take_y(struct wk_part *part, bool labels, const struct ps_npy *npy, struct ps_error *e)
{
    uint64_t n = part->split.examples;
    if (npy->rank < 1 || npy->shape[0] != n)
        return ps_fail(e, PS_INVALID_ARGUMENT, "y has %" PRIu64 " rows, expected %" PRIu64 " as x has",
                       npy->rank ? npy->shape[0] : 1, n);
    if (labels && npy->count != n)
        return ps_fail(e, PS_INVALID_ARGUMENT, "y has %" PRIu64 " elements per example, expected one class number",
                       npy->count / n);
    enum ps_code code = wk_part_alloc_y(part, labels, npy->shape + 1, npy->rank - 1, e);
    for (uint64_t i = 0; i < npy->count && code == PS_OK; i++)
        if ((code = wk_part_put_y(part, i, wk_npy_element(npy, i), e)) != PS_OK)
            ps_error_prefix(e, "row %" PRIu64, i / part->split.targets);
    return code;
}

static enum ps_code load_x(const char *path, struct wk_part *part, struct ps_error *e)
{
    uint8_t *bytes = NULL;
    struct ps_npy npy;
    enum ps_code code = read_npy(path, &bytes, &npy, e);
    if (code == PS_OK && (code = take_x(part, &npy, &bytes, e)) != PS_OK)
        ps_error_prefix(e, "%s", path);
    free(bytes);
    return code;
}

static enum ps_code load_y(const char *path, bool labels, struct wk_part *part, struct ps_error *e)
{
    uint8_t *bytes = NULL;
    struct ps_npy npy;
    enum ps_code code = read_npy(path, &bytes, &npy, e);
    if (code == PS_OK && (code = take_y(part, labels, &npy, e)) != PS_OK)
        ps_error_prefix(e, "%s", path);
    free(bytes);
    return code;
}

enum ps_code wk_npy_open(const struct wk_data_spec *spec, struct wk_data *data, struct ps_error *e)
{
    enum ps_code code = load_x(spec->x, &data->train, e);
    if (code == PS_OK)
        code = load_y(spec->y, spec->labels, &data->train, e);
    if (code == PS_OK && spec->x_test)
        code = load_x(spec->x_test, &data->test, e);
    if (code == PS_OK && spec->x_test)
        code = load_y(spec->y_test, spec->labels, &data->test, e);
    return code;
}
