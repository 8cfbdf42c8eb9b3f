// SPDX-License-Identifier: Apache-2.0
//
// Functions of all elements along an axis: softmax and its logarithm. A line is the n elements along the axis, `step`
// apart.
#include <math.h>

#include "workerd/nn/ops/activation.h"
#include "workerd/nn/tape.h"

static enum ps_code axis_function_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_axis_function *a = (const struct nn_axis_function *)op->attr;
    if (a->axis < 0 || a->axis >= op->in_type[0].rank)
        return nn_op_fail(op, e, "axis %d of a tensor of rank %d", a->axis, op->in_type[0].rank);
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void axis_function_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                        int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_axis_function_backward, op->attr, sizeof(struct nn_axis_function), (int[]){op->out[0], dy[0]},
                2, dx, 1);
}

struct line {
    size_t n, step;
};

static double line_greatest(struct line l, const nn_real *x)
{
    double max = (double)x[0];
    for (size_t i = 1; i < l.n; i++)
        max = (double)x[i * l.step] > max || isnan(x[i * l.step]) ? (double)x[i * l.step] : max;
    return max;
}

static void line_softmax(struct line l, const nn_real *x, nn_real *y, bool logarithm)
{
    double max = line_greatest(l, x), sum = 0;
    for (size_t i = 0; i < l.n; i++)
        sum += exp((double)x[i * l.step] - max);
    for (size_t i = 0; i < l.n; i++) {
        double d = (double)x[i * l.step] - max;
        y[i * l.step] = (nn_real)(logarithm ? d - log(sum) : exp(d) / sum);
    }
}

// softmax: dx_i = y_i (dy_i - sum_j dy_j y_j). Its logarithm: dx_i = dy_i - exp(y_i) sum_j dy_j.
static void line_backward(struct line l, bool logarithm, const nn_real *y, const nn_real *dy, nn_real *dx)
{
    double sum = 0;
    for (size_t i = 0; i < l.n; i++)
        sum += (double)dy[i * l.step] * (logarithm ? 1 : (double)y[i * l.step]);
    for (size_t i = 0; i < l.n; i++) {
        double v = (double)y[i * l.step], d = (double)dy[i * l.step];
        dx[i * l.step] = (nn_real)(logarithm ? d - exp(v) * sum : v * (d - sum));
    }
}

// The lines of a tensor: line k begins at element line_begin(k).
static size_t axis_lines(const struct nn_op *op, struct line *l)
{
    const struct nn_axis_function *a = (const struct nn_axis_function *)op->attr;
    const struct nn_type *type = &op->in_type[0];
    *l = (struct line){.n = (size_t)type->dim[a->axis], .step = 1};
    for (int i = a->axis + 1; i < type->rank; i++)
        l->step *= (size_t)type->dim[i];
    return nn_type_count(type) / l->n;
}

static size_t line_begin(struct line l, size_t k)
{
    return k / l.step * l.n * l.step + k % l.step;
}

static void axis_function_reference(const struct nn_frame *f)
{
    const struct nn_axis_function *a = (const struct nn_axis_function *)f->op->attr;
    struct line l;
    for (size_t k = 0, n = axis_lines(f->op, &l); k < n; k++) {
        const nn_real *x = (const nn_real *)f->in[0] + line_begin(l, k);
        nn_real *y = (nn_real *)f->out[0] + line_begin(l, k);
        line_softmax(l, x, y, a->kind == NN_F_LOG_SOFTMAX);
    }
}

static void axis_function_reference_backward(const struct nn_frame *f)
{
    const struct nn_axis_function *a = (const struct nn_axis_function *)f->op->attr;
    struct line l;
    for (size_t k = 0, n = axis_lines(f->op, &l); k < n; k++) {
        size_t at = line_begin(l, k);
        line_backward(l, a->kind == NN_F_LOG_SOFTMAX, (const nn_real *)f->in[0] + at, (const nn_real *)f->in[1] + at,
                      (nn_real *)f->out[0] + at);
    }
}

const struct nn_op_class nn_op_axis_function = {.name = "axis_function",
                                                .infer = axis_function_infer,
                                                .differentiate = axis_function_differentiate,
                                                .reference = axis_function_reference};
const struct nn_op_class nn_op_axis_function_backward = {.name = "axis_function_backward",
                                                         .infer = axis_function_infer,
                                                         .reference = axis_function_reference_backward,
                                                         .in_place = 1 + 1};
