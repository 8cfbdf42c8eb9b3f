// SPDX-License-Identifier: Apache-2.0
//
// Softmax of rows: as it is, of attention's scores with their masks, with the cross-entropy in one. What costs is exp:
// a polynomial over all cells of a row at once.
#include <math.h>
#include <string.h>

#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/cpu/lanes.h"
#include "workerd/nn/cpu/vector.h"
#include "workerd/nn/ops/activation.h"
#include "workerd/nn/ops/attention.h"

enum { LANES = NN_CPU_LANES };

// ---- rows ---------------------------------------------------------------------------------------------------------

PS_PER_CPU static float row_greatest(size_t n, const float *x)
{
    float lane[LANES], max;
    size_t at = LANES;
    if (n < 2 * LANES) {
        max = x[0];
        for (size_t i = 1; i < n; i++)
            max = x[i] > max ? x[i] : max;
        return max;
    }
    memcpy(lane, x, sizeof lane);
    for (; at + LANES <= n; at += LANES)
        for (size_t i = 0; i < LANES; i++)
            lane[i] = x[at + i] > lane[i] ? x[at + i] : lane[i];
    for (size_t i = 0; at + i < n; i++)
        lane[i] = x[at + i] > lane[i] ? x[at + i] : lane[i];
    max = lane[0];
    for (size_t i = 1; i < LANES; i++)
        max = lane[i] > max ? lane[i] : max;
    return max;
}

// y, which may be x, = e^(x - max). Returns the sum of it.
PS_PER_CPU static double row_exp(size_t n, const float *x, float max, float *y)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        y[i] = vector_exp_of_negative(x[i] - max);
    return nn_cpu_sum_lanes(n, y);
}

// The sum alone.
PS_PER_CPU static double row_exp_sum(size_t n, const float *x, float max)
{
    float lane[LANES] = {0};
    size_t at = 0;
    for (; at + LANES <= n; at += LANES)
        for (size_t i = 0; i < LANES; i++)
            lane[i] += vector_exp_of_negative(x[at + i] - max);
    for (size_t i = 0; at + i < n; i++)
        lane[i] += vector_exp_of_negative(x[at + i] - max);
    return nn_cpu_fold(lane);
}

PS_PER_CPU static void row_scale(size_t n, float by, const float *x, float *y)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * by;
}

PS_PER_CPU static double row_dot(size_t n, const float *a, const float *b)
{
    float lane[LANES] = {0};
    size_t at = 0;
    for (; at + LANES <= n; at += LANES)
        for (size_t i = 0; i < LANES; i++)
            lane[i] += a[at + i] * b[at + i];
    for (size_t i = 0; at + i < n; i++)
        lane[i] += a[at + i] * b[at + i];
    return nn_cpu_fold(lane);
}

// y = a (b - less)
PS_PER_CPU static void row_times_difference(size_t n, const float *a, const float *b, float less, float *y)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] * (b[i] - less);
}

static void row_softmax(size_t n, const float *x, float *y)
{
    double sum = row_exp(n, x, row_greatest(n, x), y);
    row_scale(n, (float)(1 / sum), y, y);
}

// dx = y (dy - sum of dy y)
static void row_softmax_back(size_t n, const float *y, const float *dy, float *dx)
{
    row_times_difference(n, y, dy, (float)row_dot(n, y, dy), dx);
}

// Rows of the last axis of x.
static void row_share(const struct nn_frame *f, const struct nn_type *x, nn_cpu_part *part)
{
    nn_cpu_share(f->context, nn_type_rows(x), nn_cpu_least(4 * (size_t)x->dim[x->rank - 1]), part, (void *)f);
}

// ---- softmax ------------------------------------------------------------------------------------------------------

static void softmax_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_type *x = &f->op->in_type[0];
    const size_t n = (size_t)x->dim[x->rank - 1];
    for (size_t r = first; r < last; r++)
        row_softmax(n, (const float *)f->in[0] + r * n, (float *)f->out[0] + r * n);
}

static void softmax_part_backward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_type *y = &f->op->in_type[0];
    const size_t n = (size_t)y->dim[y->rank - 1];
    for (size_t r = first; r < last; r++)
        row_softmax_back(n, (const float *)f->in[0] + r * n, (const float *)f->in[1] + r * n,
                         (float *)f->out[0] + r * n);
}

static void softmax_run(const struct nn_frame *f)
{
    row_share(f, &f->op->in_type[0], softmax_part);
}

static void softmax_run_backward(const struct nn_frame *f)
{
    row_share(f, &f->op->in_type[0], softmax_part_backward);
}

// Is it softmax over rows? Its logarithm, and other axes, are the reference's.
static bool axis_is_row(const struct nn_frame *f)
{
    const struct nn_axis_function *a = (const struct nn_axis_function *)f->op->attr;
    return a->kind == NN_F_SOFTMAX && a->axis == f->op->in_type[0].rank - 1;
}

static void axis_function_run(const struct nn_frame *f)
{
    (axis_is_row(f) ? softmax_run : f->op->class->reference)(f);
}

static void axis_function_run_backward(const struct nn_frame *f)
{
    (axis_is_row(f) ? softmax_run_backward : f->op->class->reference)(f);
}

// ---- attention ----------------------------------------------------------------------------------------------------

// What a row of scores may look at: its first `limit` cells, of them where `mask`, which may be NULL, is not 0.
struct attention_row {
    size_t n, limit;
    const float *mask;
    bool any;
};

PS_PER_CPU static bool attention_any(size_t n, const float *mask)
{
    bool any = false;
    for (size_t j = 0; j < n; j++)
        any |= mask[j] != 0;
    return any;
}

// masks: the first input that is one.
static struct attention_row attention_row_at(const struct nn_frame *f, int masks, size_t k)
{
    const struct nn_attention_softmax *a = (const struct nn_attention_softmax *)f->op->attr;
    const struct nn_type *s = &f->op->in_type[0];
    const size_t rows = (size_t)s->dim[2], i = k % rows, example = k / rows / (size_t)s->dim[1];
    struct attention_row r = {.n = (size_t)s->dim[3], .any = true};
    r.limit = a->causal && i + 1 < r.n ? i + 1 : r.n;
    if (a->by_i)
        r.any = ((const float *)f->in[masks])[example * rows + i] != 0;
    if (a->by_j || a->by_both) {
        r.mask = (const float *)f->in[masks + a->by_i] + (a->by_both ? example * rows + i : example) * r.n;
        r.any = r.any && attention_any(r.limit, r.mask);
    }
    return r;
}

// y = x where the mask is not 0, else `other`.
PS_PER_CPU static void attention_keep(size_t n, const float *restrict mask, float other, const float *x, float *y)
{
    PS_ELEMENTWISE
    for (size_t j = 0; j < n; j++) {
        const float v = x[j];
        y[j] = mask[j] != 0 ? v : other;
    }
}

// unseen: what all are where nothing counts.
static void row_attention(const struct attention_row *r, float unseen, const float *x, float *y)
{
    if (!r->any) {
        for (size_t j = 0; j < r->n; j++)
            y[j] = unseen;
        return;
    }
    if (r->mask) {
        attention_keep(r->limit, r->mask, -INFINITY, x, y);
        row_softmax(r->limit, y, y);
        attention_keep(r->limit, r->mask, 0, y, y);
    } else {
        row_softmax(r->limit, x, y);
    }
    memset(y + r->limit, 0, (r->n - r->limit) * sizeof *y);
}

static void attention_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const bool zero = ((const struct nn_attention_softmax *)f->op->attr)->zero_unseen;
    for (size_t k = first; k < last; k++) {
        const struct attention_row r = attention_row_at(f, 1, k);
        row_attention(&r, zero ? 0 : 1 / (float)r.n, (const float *)f->in[0] + k * r.n, (float *)f->out[0] + k * r.n);
    }
}

// Where a cell does not count, p is 0.
static void attention_part_backward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    for (size_t k = first; k < last; k++) {
        const struct attention_row r = attention_row_at(f, 2, k);
        const float *p = (const float *)f->in[0] + k * r.n, *dp = (const float *)f->in[1] + k * r.n;
        float *dx = (float *)f->out[0] + k * r.n;
        if (r.any)
            row_softmax_back(r.n, p, dp, dx);
        else
            memset(dx, 0, r.n * sizeof *dx);
    }
}

static void attention_softmax_run(const struct nn_frame *f)
{
    row_share(f, &f->op->in_type[0], attention_part);
}

static void attention_softmax_run_backward(const struct nn_frame *f)
{
    row_share(f, &f->op->in_type[0], attention_part_backward);
}

// ---- softmax and cross-entropy ------------------------------------------------------------------------------------

// The exponentials go where a result is wanted, and become it there.
static float xent_row(size_t n, const float *x, int32_t label, float scale, float *y, float *dx)
{
    float max = row_greatest(n, x), *e = y ? y : dx;
    double sum = e ? row_exp(n, x, max, e) : row_exp_sum(n, x, max);
    if (dx) {
        row_scale(n, (float)((double)scale / sum), e, dx);
        dx[label] -= scale;
    }
    if (y)
        row_scale(n, (float)(1 / sum), e, y);
    return (float)(log(sum) + (double)(max - x[label]));
}

static void softmax_xent_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_loss_outputs *a = (const struct nn_loss_outputs *)f->op->attr;
    const size_t n = (size_t)f->op->in_type[0].dim[1];
    const float *x = f->in[0], *weight = f->in[2];
    const int32_t *label = f->in[1];
    float *loss = f->out[0], *y = a->probabilities ? f->out[1] : NULL;
    float *dx = a->gradient ? f->out[1 + a->probabilities] : NULL;
    for (size_t r = first; r < last; r++)
        loss[r] = xent_row(n, x + r * n, label[r], weight[r], y ? y + r * n : NULL, dx ? dx + r * n : NULL);
}

static void softmax_xent_run(const struct nn_frame *f)
{
    row_share(f, &f->op->in_type[0], softmax_xent_part);
}

const struct nn_kernel nn_cpu_softmax = {.run = softmax_run};
const struct nn_kernel nn_cpu_softmax_backward = {.run = softmax_run_backward};
const struct nn_kernel nn_cpu_axis_function = {.run = axis_function_run};
const struct nn_kernel nn_cpu_axis_function_backward = {.run = axis_function_run_backward};
const struct nn_kernel nn_cpu_attention_softmax = {.run = attention_softmax_run};
const struct nn_kernel nn_cpu_attention_softmax_backward = {.run = attention_softmax_run_backward};
const struct nn_kernel nn_cpu_softmax_xent = {.run = softmax_xent_run};
