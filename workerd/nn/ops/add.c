// SPDX-License-Identifier: Apache-2.0
//
// The sum of two tensors of one shape; the gradients of what is read twice are added with it.
#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code add_infer(struct nn_op *op, struct ps_error *e)
{
    if (memcmp(&op->in_type[0], &op->in_type[1], sizeof op->in_type[0]) != 0)
        return nn_op_fail(op, e, "expected two tensors of one shape");
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void add_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)t;
    (void)op;
    for (int i = 0; i < 2; i++)
        dx[i] = wanted[i] ? dy[0] : -1;
}

static void add_reference(const struct nn_frame *f)
{
    const nn_real *a = f->in[0], *b = f->in[1];
    nn_real *y = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++)
        y[i] = a[i] + b[i];
}

const struct nn_op_class nn_op_add = {
    .name = "add", .infer = add_infer, .differentiate = add_differentiate, .reference = add_reference, .in_place = 1};
