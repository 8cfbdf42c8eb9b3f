// SPDX-License-Identifier: Apache-2.0
//
// Mean squared error: of a row, the mean of (x - target)^2 over its elements.
#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code mse_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_loss_outputs *a = (const struct nn_loss_outputs *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (memcmp(x, &op->in_type[1], sizeof *x) != 0)
        return nn_op_fail(op, e, "expected targets of the output's shape");
    nn_loss_outputs_infer(op, false, a->gradient);
    return PS_OK;
}

static nn_real mse_row(size_t n, const nn_real *x, const nn_real *target, nn_real weight, nn_real *dx)
{
    double sum = 0, scale = 2 * (double)weight / (double)n;
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - target[i];
        sum += d * d;
        if (dx)
            dx[i] = (nn_real)(scale * d);
    }
    return (nn_real)(sum / (double)n);
}

static void mse_reference(const struct nn_frame *f)
{
    size_t rows = (size_t)f->op->in_type[0].dim[0], n = nn_type_count(&f->op->in_type[0]) / rows;
    const nn_real *x = f->in[0], *target = f->in[1], *weight = f->in[2];
    nn_real *loss = f->out[0], *dx = f->op->n_out > 1 ? f->out[1] : NULL;
    for (size_t r = 0; r < rows; r++)
        loss[r] = mse_row(n, x + r * n, target + r * n, weight[r], dx ? dx + r * n : NULL);
}

const struct nn_op_class nn_op_mse = {.name = "mse", .infer = mse_infer, .reference = mse_reference};
