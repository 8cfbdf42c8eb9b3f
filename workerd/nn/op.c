// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/op.h"

#include <stdarg.h>
#include <stdio.h>

enum ps_code nn_op_fail(const struct nn_op *op, struct ps_error *e, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ps_fail(e, PS_INVALID_ARGUMENT, "%s: %s", op->class->name, text);
}

void nn_loss_outputs_infer(struct nn_op *op, bool probabilities, bool gradient)
{
    const struct nn_type x = op->in_type[0];
    int n = 1;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 1, {x.dim[0]}};
    if (probabilities)
        op->out_type[n++] = x;
    if (gradient)
        op->out_type[n] = x;
}
