// SPDX-License-Identifier: Apache-2.0
//
// What a regularizer adds to the loss.
#include "workerd/nn/ops/penalty.h"

#include <math.h>

#include "workerd/nn/tape.h"

static enum ps_code penalty_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 1, {1}};
    return PS_OK;
}

static enum ps_code penalty_infer_backward(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void penalty_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    if (wanted[0])
        nn_tape_put(t, &nn_op_penalty_backward, op->attr, sizeof(struct nn_penalty), (int[]){op->in[0], dy[0]}, 2,
                    &dx[0], 1);
    if (op->n_in > 1 && wanted[1])
        dx[1] = dy[0];
}

static void penalty_reference(const struct nn_frame *f)
{
    const struct nn_penalty *a = (const struct nn_penalty *)f->op->attr;
    const nn_real *x = f->in[0];
    double sum = f->op->n_in > 1 ? (double)*(const nn_real *)f->in[1] : 0, size = 0, squares = 0;
    for (size_t i = 0, n = nn_type_count(&f->op->in_type[0]); i < n; i++) {
        size += fabs((double)x[i]);
        squares += (double)x[i] * (double)x[i];
    }
    *(nn_real *)f->out[0] = (nn_real)(sum + (double)a->l1 * size + (double)a->l2 * squares);
}

// The slope of |x| is 0 at 0, as TensorFlow's.
static void penalty_reference_backward(const struct nn_frame *f)
{
    const struct nn_penalty *a = (const struct nn_penalty *)f->op->attr;
    const nn_real *x = f->in[0], by = *(const nn_real *)f->in[1], l1 = (nn_real)a->l1, l2 = (nn_real)a->l2;
    nn_real *dx = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++) {
        nn_real sign = x[i] > 0 ? 1 : x[i] < 0 ? -1 : 0;
        dx[i] = by * (l1 * sign + 2 * l2 * x[i]);
    }
}

const struct nn_op_class nn_op_penalty = {
    .name = "penalty", .infer = penalty_infer, .differentiate = penalty_differentiate, .reference = penalty_reference};
const struct nn_op_class nn_op_penalty_backward = {
    .name = "penalty_backward", .infer = penalty_infer_backward, .reference = penalty_reference_backward};
