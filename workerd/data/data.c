// SPDX-License-Identifier: Apache-2.0
#include "workerd/data/data.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

static enum ps_code check_alike(const struct wk_split *train, const struct wk_split *test, struct ps_error *e);

static enum ps_code scale_floats(struct wk_part *part, double scale, struct ps_error *e)
{
    uint64_t n = part->floats && scale != 1 ? part->split.examples * part->split.inputs : 0;
    for (uint64_t i = 0; i < n; i++) {
        double value = (double)part->floats[i] * scale;
        if (fabs(value) > FLT_MAX)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "element %" PRIu64 " of example %" PRIu64 " is %g, which times scale %g is no float32",
                           i % part->split.inputs, i / part->split.inputs, (double)part->floats[i], scale);
        part->floats[i] = (float)value;
    }
    return PS_OK;
}

enum ps_code wk_data_open(const struct wk_data_spec *spec, struct wk_data **data, struct ps_error *e)
{
    static enum ps_code (*const open[])(const struct wk_data_spec *, struct wk_data *, struct ps_error *) = {
        [WK_IDX] = wk_idx_open, [WK_CSV] = wk_csv_open, [WK_NPY] = wk_npy_open, [WK_DIGITS] = wk_digits_open};
    struct wk_data *d = ps_alloc(sizeof *d);
    d->scale = spec->scale != 0 ? spec->scale : 1;
    enum ps_code code = open[spec->kind](spec, d, e);
    if (code == PS_OK)
        code = scale_floats(&d->train, d->scale, e);
    if (code == PS_OK && (code = scale_floats(&d->test, d->scale, e)) != PS_OK)
        ps_error_prefix(e, "test data");
    if (code == PS_OK && d->test.split.examples)
        code = check_alike(&d->train.split, &d->test.split, e);
    if (code != PS_OK) {
        wk_data_free(d);
        return code;
    }
    *data = d;
    return PS_OK;
}

void wk_data_free(struct wk_data *data)
{
    if (!data)
        return;
    wk_part_fini(&data->train);
    wk_part_fini(&data->test);
    free(data);
}

const struct wk_split *wk_data_train(const struct wk_data *data)
{
    return &data->train.split;
}

const struct wk_split *wk_data_test(const struct wk_data *data)
{
    return &data->test.split;
}

static enum ps_code check_alike(const struct wk_split *train, const struct wk_split *test, struct ps_error *e)
{
    char a[128], b[128];
    if (train->rank != test->rank || memcmp(train->shape, test->shape, train->rank * sizeof *train->shape) != 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "a test example has shape %s, expected %s as in the training data",
                       ps_shape_text(test->shape, test->rank, b, sizeof b),
                       ps_shape_text(train->shape, train->rank, a, sizeof a));
    if (train->targets != test->targets)
        return ps_fail(e, PS_INVALID_ARGUMENT, "a test target has %zu elements, expected %zu as in the training data",
                       test->targets, train->targets);
    return PS_OK;
}

void wk_part_need(const struct wk_part *part, uint64_t example)
{
    if (part->drawing)
        wk_drawing_need(part, example);
}

void wk_part_fini(struct wk_part *part)
{
    wk_drawing_free(part->drawing);
    free(part->bytes);
    free(part->floats);
    free(part->label);
    free(part->target);
}

void *wk_array(uint64_t rows, uint64_t columns, size_t element, struct ps_error *e)
{
    size_t size;
    void *p = NULL;
    if (!__builtin_mul_overflow(rows, columns, &size) && !__builtin_mul_overflow(size, element, &size))
        p = malloc(size);
    if (!p)
        ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for %" PRIu64 " times %" PRIu64 " elements of %zu bytes", rows,
                columns, element);
    return p;
}

enum ps_code wk_part_alloc_y(struct wk_part *part, bool labels, const uint64_t *shape, size_t rank, struct ps_error *e)
{
    struct wk_split *split = &part->split;
    size_t targets = 1;
    for (size_t i = 0; i < rank; i++)
        targets *= split->target_shape[i] = shape[i];
    void *y = wk_array(part->split.examples, targets, labels ? sizeof *part->label : sizeof *part->target, e);
    if (!y)
        return PS_RESOURCE_EXHAUSTED;
    split->targets = targets;
    split->target_rank = rank;
    if (labels)
        part->label = y;
    else
        part->target = y;
    return PS_OK;
}

enum ps_code wk_part_put_y(struct wk_part *part, uint64_t i, double value, struct ps_error *e)
{
    if (!part->label) {
        if (!(fabs(value) <= FLT_MAX))
            return ps_fail(e, PS_INVALID_ARGUMENT, "target %g is not a finite float32", value);
        part->target[i] = (float)value;
        return PS_OK;
    }
    if (!(value >= 0 && value < INT32_MAX && value == floor(value)))
        return ps_fail(e, PS_INVALID_ARGUMENT, "label %.15g is not a class number (an integer from 0 to %d)", value,
                       INT32_MAX - 1);
    part->label[i] = (int32_t)value;
    if (part->split.classes <= part->label[i])
        part->split.classes = part->label[i] + 1;
    return PS_OK;
}
