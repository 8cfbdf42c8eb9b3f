// SPDX-License-Identifier: Apache-2.0
//
// The same elements elsewhere: with axes in another order, or several times.
#include "workerd/nn/ops/transpose.h"

#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code transpose_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_transpose *a = (const struct nn_transpose *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    unsigned seen = 0;
    op->out_type[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        if (a->from[i] < 0 || a->from[i] >= x->rank || seen >> a->from[i] & 1)
            return nn_op_fail(op, e, "expected each of the %d axes once", x->rank);
        seen |= 1U << a->from[i];
        op->out_type[0].dim[i] = x->dim[a->from[i]];
    }
    return PS_OK;
}

static void transpose_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                    int *dx)
{
    const struct nn_transpose *a = (const struct nn_transpose *)op->attr;
    struct nn_transpose back = {{0}};
    (void)wanted;
    for (int i = 0; i < op->in_type[0].rank; i++)
        back.from[a->from[i]] = i;
    nn_tape_put(t, &nn_op_transpose, &back, sizeof back, dy, 1, dx, 1);
}

static void transpose_reference(const struct nn_frame *f)
{
    const struct nn_transpose *a = (const struct nn_transpose *)f->op->attr;
    const struct nn_type *xt = &f->op->in_type[0], *yt = &f->op->out_type[0];
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    size_t step[NN_MAX_RANK], at[NN_MAX_RANK] = {0}, stride = 1, from = 0;
    for (int i = xt->rank; i--; stride *= (size_t)xt->dim[i])
        for (int k = 0; k < xt->rank; k++)
            if (a->from[k] == i)
                step[k] = stride;
    for (size_t n = nn_type_count(yt), i = 0; i < n; i++) {
        y[i] = x[from];
        for (int k = yt->rank; k--;) {
            from += step[k];
            if (++at[k] < (size_t)yt->dim[k])
                break;
            from -= step[k] * at[k];
            at[k] = 0;
        }
    }
}

// ---- repeat -------------------------------------------------------------------------------------------------------

static enum ps_code repeat_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_repeat *a = (const struct nn_repeat *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    op->out_type[0] = (struct nn_type){x->dtype, 3, {x->dim[0], a->times, x->dim[1]}};
    return x->rank == 2 ? PS_OK : nn_op_fail(op, e, "expected an input of shape (rows, elements)");
}

static enum ps_code repeat_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *dy = &op->in_type[0];
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 2, {dy->dim[0], dy->dim[2]}};
    return PS_OK;
}

static void repeat_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_repeat_backward, op->attr, sizeof(struct nn_repeat), dy, 1, dx, 1);
}

static void repeat_reference(const struct nn_frame *f)
{
    const struct nn_type *y = &f->op->out_type[0];
    const size_t rows = (size_t)y->dim[0], times = (size_t)y->dim[1], n = (size_t)y->dim[2];
    for (size_t i = 0; i < rows * times; i++)
        memcpy((nn_real *)f->out[0] + i * n, (const nn_real *)f->in[0] + i / times * n, n * sizeof(nn_real));
}

static void repeat_reference_backward(const struct nn_frame *f)
{
    const struct nn_type *dy = &f->op->in_type[0];
    const size_t rows = (size_t)dy->dim[0], times = (size_t)dy->dim[1], n = (size_t)dy->dim[2];
    for (size_t i = 0; i < rows * n; i++) {
        const nn_real *from = (const nn_real *)f->in[0] + i / n * times * n + i % n;
        double sum = 0;
        for (size_t k = 0; k < times; k++)
            sum += (double)from[k * n];
        ((nn_real *)f->out[0])[i] = (nn_real)sum;
    }
}

const struct nn_op_class nn_op_transpose = {.name = "transpose",
                                            .infer = transpose_infer,
                                            .differentiate = transpose_differentiate,
                                            .reference = transpose_reference};
const struct nn_op_class nn_op_repeat = {
    .name = "repeat", .infer = repeat_infer, .differentiate = repeat_differentiate, .reference = repeat_reference};
const struct nn_op_class nn_op_repeat_backward = {
    .name = "repeat_backward", .infer = repeat_infer_backward, .reference = repeat_reference_backward};
