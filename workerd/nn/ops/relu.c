// SPDX-License-Identifier: Apache-2.0
//
// relu: max(x, 0). A NaN goes on, so that training that has lost its way is seen.
#include "workerd/nn/tape.h"

static enum ps_code relu_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void relu_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_relu_backward, NULL, 0, (int[]){op->out[0], dy[0]}, 2, dx, 1);
}

static void relu_reference(const struct nn_frame *f)
{
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_reference_backward(const struct nn_frame *f)
{
    const nn_real *y = f->in[0], *dy = f->in[1];
    nn_real *dx = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

const struct nn_op_class nn_op_relu = {.name = "relu",
                                       .infer = relu_infer,
                                       .differentiate = relu_differentiate,
                                       .reference = relu_reference,
                                       .in_place = 1 + 0};
const struct nn_op_class nn_op_relu_backward = {
    .name = "relu_backward", .infer = relu_infer, .reference = relu_reference_backward, .in_place = 1 + 1};
