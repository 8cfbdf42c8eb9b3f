// SPDX-License-Identifier: Apache-2.0
//
// A copy: where one gradient is that of two variables, each has it in its own memory.
#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code copy_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void copy_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)t;
    (void)op;
    dx[0] = wanted[0] ? dy[0] : -1;
}

static void copy_reference(const struct nn_frame *f)
{
    memcpy(f->out[0], f->in[0], nn_type_bytes(&f->op->out_type[0]));
}

const struct nn_op_class nn_op_copy = {
    .name = "copy", .infer = copy_infer, .differentiate = copy_differentiate, .reference = copy_reference};
