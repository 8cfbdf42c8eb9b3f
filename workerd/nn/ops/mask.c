// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/mask.h"

#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code not_equal_infer(struct nn_op *op, struct ps_error *e)
{
    if (op->in_type[0].dtype != NN_FLOAT && op->in_type[0].dtype != NN_INT32)
        return nn_op_fail(op, e, "expected floats or whole numbers");
    op->out_type[0] = op->in_type[0];
    op->out_type[0].dtype = NN_FLOAT;
    return PS_OK;
}

static void not_equal_reference(const struct nn_frame *f)
{
    double number;
    nn_real *y = f->out[0];
    memcpy(&number, f->op->attr, sizeof number);
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++)
        if (f->op->in_type[0].dtype == NN_INT32)
            y[i] = ((const int32_t *)f->in[0])[i] != number;
        else
            y[i] = ((const nn_real *)f->in[0])[i] != (nn_real)number;
}

static enum ps_code any_infer(struct nn_op *op, struct ps_error *e)
{
    if (op->in_type[0].rank < 2)
        return nn_op_fail(op, e, "expected an axis besides the rows");
    op->out_type[0] = op->in_type[0];
    op->out_type[0].dim[--op->out_type[0].rank] = 0;
    return PS_OK;
}

static void any_reference(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->in_type[0];
    const size_t width = (size_t)type->dim[type->rank - 1];
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    for (size_t i = 0, n = nn_type_rows(type); i < n; i++, x += width) {
        bool found = false;
        for (size_t j = 0; j < width; j++)
            found |= x[j] != 0;
        y[i] = found;
    }
}

static enum ps_code mask_infer_both(struct nn_op *op, struct ps_error *e)
{
    if (memcmp(&op->in_type[0], &op->in_type[1], sizeof op->in_type[0]) != 0)
        return nn_op_fail(op, e, "expected two masks of one shape");
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void mask_or_reference(const struct nn_frame *f)
{
    const nn_real *a = f->in[0], *b = f->in[1];
    nn_real *y = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++)
        y[i] = a[i] != 0 || b[i] != 0;
}

static void mask_and_reference(const struct nn_frame *f)
{
    const nn_real *a = f->in[0], *b = f->in[1];
    nn_real *y = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++)
        y[i] = a[i] != 0 && b[i] != 0;
}

static enum ps_code masked_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *x = &op->in_type[0], *m = &op->in_type[1];
    bool fits = m->rank <= x->rank;
    for (int i = 0; fits && i < m->rank; i++)
        fits = m->dim[i] == x->dim[i];
    if (!fits)
        return nn_op_fail(op, e, "expected a mask of the first dimensions");
    op->out_type[0] = *x;
    return PS_OK;
}

static void masked_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    if (wanted[0])
        nn_tape_put(t, &nn_op_masked, NULL, 0, (int[]){dy[0], op->in[1]}, 2, dx, 1);
}

static void masked_reference(const struct nn_frame *f)
{
    const nn_real *x = f->in[0], *m = f->in[1];
    nn_real *y = f->out[0];
    const size_t n = nn_type_count(&f->op->in_type[1]), width = nn_type_count(&f->op->in_type[0]) / n;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < width; j++)
            y[i * width + j] = m[i] != 0 ? x[i * width + j] : 0;
}

const struct nn_op_class nn_op_not_equal = {
    .name = "not_equal", .infer = not_equal_infer, .reference = not_equal_reference};
const struct nn_op_class nn_op_any = {.name = "any", .infer = any_infer, .reference = any_reference};
const struct nn_op_class nn_op_mask_or = {.name = "mask_or", .infer = mask_infer_both, .reference = mask_or_reference};
const struct nn_op_class nn_op_mask_and = {
    .name = "mask_and", .infer = mask_infer_both, .reference = mask_and_reference};
const struct nn_op_class nn_op_masked = {.name = "masked",
                                         .infer = masked_infer,
                                         .differentiate = masked_differentiate,
                                         .reference = masked_reference,
                                         .in_place = 1 + 0};

// ---- the mean of what counts --------------------------------------------------------------------------------------

static enum ps_code masked_mean_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *x = &op->in_type[0], *m = &op->in_type[1];
    struct nn_type y = {.dtype = NN_FLOAT, .rank = x->rank - 1, .dim = {x->dim[0]}};
    if (x->rank < 3 || m->rank != 2 || m->dim[0] != x->dim[0] || m->dim[1] != x->dim[1])
        return nn_op_fail(op, e, "expected a mask of the steps");
    for (int i = 2; i < x->rank; i++)
        y.dim[i - 1] = x->dim[i];
    op->out_type[0] = y;
    return PS_OK;
}

static enum ps_code masked_mean_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *m = &op->in_type[0], *dy = &op->in_type[1];
    struct nn_type x = {.dtype = NN_FLOAT, .rank = dy->rank + 1, .dim = {m->dim[0], m->dim[1]}};
    (void)e;
    for (int i = 1; i < dy->rank; i++)
        x.dim[i + 1] = dy->dim[i];
    op->out_type[0] = x;
    return PS_OK;
}

static void masked_mean_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                      int *dx)
{
    if (wanted[0])
        nn_tape_put(t, &nn_op_masked_mean_backward, NULL, 0, (int[]){op->in[1], dy[0]}, 2, dx, 1);
}

static double masked_mean_count(const nn_real *m, size_t steps)
{
    double count = 0;
    for (size_t s = 0; s < steps; s++)
        count += m[s] != 0;
    return count;
}

static void masked_mean_reference(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->in_type[0];
    const size_t n = (size_t)type->dim[0], steps = (size_t)type->dim[1], width = nn_type_count(type) / n / steps;
    nn_real *y = f->out[0];
    for (size_t r = 0; r < n; r++) {
        const nn_real *x = (const nn_real *)f->in[0] + r * steps * width, *m = (const nn_real *)f->in[1] + r * steps;
        const double count = masked_mean_count(m, steps);
        for (size_t j = 0; j < width; j++) {
            double sum = 0;
            for (size_t s = 0; s < steps; s++)
                sum += m[s] != 0 ? (double)x[s * width + j] : 0;
            y[r * width + j] = (nn_real)(sum / count);
        }
    }
}

static void masked_mean_reference_backward(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->out_type[0];
    const size_t n = (size_t)type->dim[0], steps = (size_t)type->dim[1], width = nn_type_count(type) / n / steps;
    for (size_t r = 0; r < n; r++) {
        const nn_real *m = (const nn_real *)f->in[0] + r * steps, *dy = (const nn_real *)f->in[1] + r * width;
        const double count = masked_mean_count(m, steps);
        nn_real *dx = (nn_real *)f->out[0] + r * steps * width;
        for (size_t k = 0; k < steps * width; k++)
            dx[k] = m[k / width] != 0 ? (nn_real)((double)dy[k % width] / count) : 0;
    }
}

const struct nn_op_class nn_op_masked_mean = {.name = "masked_mean",
                                              .infer = masked_mean_infer,
                                              .differentiate = masked_mean_differentiate,
                                              .reference = masked_mean_reference};
const struct nn_op_class nn_op_masked_mean_backward = {
    .name = "masked_mean_backward", .infer = masked_mean_infer_backward, .reference = masked_mean_reference_backward};
