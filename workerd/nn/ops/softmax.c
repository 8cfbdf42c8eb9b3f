// SPDX-License-Identifier: Apache-2.0
//
// Softmax over the last axis, and the cross-entropy of it and labels in one: the loss of logits, which is exact where
// the probability of the label is too small for a float.
#include <math.h>

#include "workerd/nn/tape.h"

// ---- softmax ------------------------------------------------------------------------------------------------------

static enum ps_code softmax_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void softmax_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_softmax_backward, NULL, 0, (int[]){op->out[0], dy[0]}, 2, dx, 1);
}

static double softmax_max(size_t n, const nn_real *x)
{
    double max = x[0];
    for (size_t i = 1; i < n; i++)
        max = x[i] > max || isnan(x[i]) ? x[i] : max;
    return max;
}

// The sum of exp(x - max): nothing overflows.
static double softmax_sum(size_t n, const nn_real *x, double max)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return sum;
}

static void softmax_row(size_t n, const nn_real *x, nn_real *y)
{
    double max = softmax_max(n, x), sum = softmax_sum(n, x, max);
    for (size_t i = 0; i < n; i++)
        y[i] = (nn_real)(exp(x[i] - max) / sum);
}

static void softmax_reference(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->in_type[0];
    size_t n = (size_t)type->dim[type->rank - 1], rows = nn_type_rows(type);
    for (size_t r = 0; r < rows; r++)
        softmax_row(n, (const nn_real *)f->in[0] + r * n, (nn_real *)f->out[0] + r * n);
}

// dy_j/dx_i = y_j * ([i = j] - y_i), so dx_i = y_i * (dy_i - sum_j dy_j * y_j).
static void softmax_reference_backward(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->in_type[0];
    size_t n = (size_t)type->dim[type->rank - 1], rows = nn_type_rows(type);
    const nn_real *y = f->in[0], *dy = f->in[1];
    nn_real *dx = f->out[0];
    for (size_t r = 0; r < rows; r++, y += n, dy += n, dx += n) {
        double dot = 0;
        for (size_t i = 0; i < n; i++)
            dot += (double)dy[i] * y[i];
        for (size_t i = 0; i < n; i++)
            dx[i] = (nn_real)(y[i] * (dy[i] - dot));
    }
}

// ---- softmax and sparse categorical cross-entropy -----------------------------------------------------------------

static enum ps_code softmax_xent_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_loss_outputs *a = (const struct nn_loss_outputs *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (x->rank != 2)
        return nn_op_fail(op, e, "expected logits of shape (rows, classes)");
    nn_loss_outputs_infer(op, a->probabilities, a->gradient);
    return PS_OK;
}

// loss = -log softmax(x)[label]; its gradient is weight * (softmax(x) - onehot(label)).
static nn_real softmax_xent_row(size_t n, const nn_real *x, int32_t label, nn_real weight, nn_real *y, nn_real *dx)
{
    double max = softmax_max(n, x), sum = softmax_sum(n, x, max);
    for (size_t i = 0; (y || dx) && i < n; i++) {
        double p = exp(x[i] - max) / sum;
        if (y)
            y[i] = (nn_real)p;
        if (dx)
            dx[i] = (nn_real)(((int32_t)i == label ? p - 1 : p) * weight);
    }
    return (nn_real)(log(sum) + max - x[label]);
}

static void softmax_xent_reference(const struct nn_frame *f)
{
    const struct nn_loss_outputs *a = (const struct nn_loss_outputs *)f->op->attr;
    size_t rows = (size_t)f->op->in_type[0].dim[0], n = (size_t)f->op->in_type[0].dim[1];
    const nn_real *x = f->in[0], *weight = f->in[2];
    const int32_t *label = f->in[1];
    nn_real *loss = f->out[0], *y = a->probabilities ? f->out[1] : NULL;
    nn_real *dx = a->gradient ? f->out[1 + a->probabilities] : NULL;
    for (size_t r = 0; r < rows; r++)
        loss[r] = softmax_xent_row(n, x + r * n, label[r], weight[r], y ? y + r * n : NULL, dx ? dx + r * n : NULL);
}

const struct nn_op_class nn_op_softmax = {
    .name = "softmax", .infer = softmax_infer, .differentiate = softmax_differentiate, .reference = softmax_reference};
const struct nn_op_class nn_op_softmax_backward = {
    .name = "softmax_backward", .infer = softmax_infer, .reference = softmax_reference_backward, .in_place = 1 + 1};
const struct nn_op_class nn_op_softmax_xent = {
    .name = "softmax_xent", .infer = softmax_xent_infer, .reference = softmax_xent_reference};
