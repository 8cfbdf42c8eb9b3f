// SPDX-License-Identifier: Apache-2.0
//
// A bias added to the last axis, where the operator before it adds none.
#include "workerd/nn/ops/bias.h"

#include "workerd/nn/tape.h"

static enum ps_code bias_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *x = &op->in_type[0], *b = &op->in_type[1];
    if (b->rank != 1 || b->dim[0] != x->dim[x->rank - 1])
        return nn_op_fail(op, e, "expected a bias of %d elements", (int)x->dim[x->rank - 1]);
    op->out_type[0] = *x;
    return PS_OK;
}

static enum ps_code bias_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *dy = &op->in_type[0];
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 1, {dy->dim[dy->rank - 1]}};
    return PS_OK;
}

static void bias_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)op;
    if (wanted[1])
        nn_tape_put(t, &nn_op_bias_backward, NULL, 0, &dy[0], 1, &dx[1], 1);
    if (wanted[0])
        dx[0] = dy[0];
}

static void bias_reference(const struct nn_frame *f)
{
    const size_t n = (size_t)f->op->in_type[1].dim[0], rows = nn_type_rows(&f->op->in_type[0]);
    const nn_real *x = f->in[0], *b = f->in[1];
    nn_real *y = f->out[0];
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++)
            y[r * n + i] = x[r * n + i] + b[i];
}

static void bias_reference_backward(const struct nn_frame *f)
{
    const size_t n = (size_t)f->op->out_type[0].dim[0], rows = nn_type_rows(&f->op->in_type[0]);
    const nn_real *dy = f->in[0];
    nn_real *db = f->out[0];
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t r = 0; r < rows; r++)
            sum += dy[r * n + i];
        db[i] = (nn_real)sum;
    }
}

const struct nn_op_class nn_op_bias = {.name = "bias",
                                       .infer = bias_infer,
                                       .differentiate = bias_differentiate,
                                       .reference = bias_reference,
                                       .in_place = 1};
const struct nn_op_class nn_op_bias_backward = {
    .name = "bias_backward", .infer = bias_infer_backward, .reference = bias_reference_backward};
