// SPDX-License-Identifier: Apache-2.0
//
// Several tensors one after the other along an axis.
#include "workerd/nn/ops/concat.h"

#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code concat_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_concat *a = (const struct nn_concat *)op->attr;
    const struct nn_type *first = &op->in_type[0];
    if (a->axis < 0 || a->axis >= first->rank)
        return nn_op_fail(op, e, "axis %d of tensors of rank %d", a->axis, first->rank);
    if (first->dtype != NN_FLOAT)
        return nn_op_fail(op, e, "expected numbers");
    op->out_type[0] = *first;
    for (int k = 1; k < op->n_in; k++) {
        bool fits = op->in_type[k].rank == first->rank && op->in_type[k].dtype == first->dtype;
        for (int i = 0; i < first->rank && fits; i++)
            fits = i == a->axis || op->in_type[k].dim[i] == first->dim[i];
        if (!fits)
            return nn_op_fail(op, e, "input %d fits no other along axis %d", k, a->axis);
        op->out_type[0].dim[a->axis] += op->in_type[k].dim[a->axis];
    }
    return PS_OK;
}

static enum ps_code concat_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_slice *a = (const struct nn_slice *)op->attr;
    op->out_type[0] = op->in_type[0];
    op->out_type[0].dim[a->axis] = a->places;
    return a->first + a->places <= op->in_type[0].dim[a->axis] ? PS_OK
                                                               : nn_op_fail(op, e, "a slice beyond the last place");
}

static void concat_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    struct nn_slice attr = {.axis = ((const struct nn_concat *)op->attr)->axis};
    for (int k = 0; k < op->n_in; k++, attr.first += attr.places) {
        attr.places = op->in_type[k].dim[attr.axis];
        if (wanted[k])
            nn_tape_put(t, &nn_op_concat_backward, &attr, sizeof attr, dy, 1, &dx[k], 1);
    }
}

// Elements of `places` places along an axis and all that comes after it: what lies together.
static size_t concat_run(const struct nn_type *type, int axis, int64_t places)
{
    size_t n = (size_t)places;
    for (int i = axis + 1; i < type->rank; i++)
        n *= (size_t)type->dim[i];
    return n;
}

static void concat_reference(const struct nn_frame *f)
{
    const struct nn_concat *a = (const struct nn_concat *)f->op->attr;
    const struct nn_type *y = &f->op->out_type[0];
    const size_t whole = concat_run(y, a->axis, y->dim[a->axis]), rows = nn_type_count(y) / whole;
    size_t at = 0;
    for (int k = 0; k < f->op->n_in; k++) {
        const size_t n = concat_run(y, a->axis, f->op->in_type[k].dim[a->axis]);
        for (size_t r = 0; r < rows; r++)
            memcpy((nn_real *)f->out[0] + r * whole + at, (const nn_real *)f->in[k] + r * n, n * sizeof(nn_real));
        at += n;
    }
}

static void concat_reference_backward(const struct nn_frame *f)
{
    const struct nn_slice *a = (const struct nn_slice *)f->op->attr;
    const struct nn_type *y = &f->op->in_type[0];
    const size_t whole = concat_run(y, a->axis, y->dim[a->axis]), rows = nn_type_count(y) / whole;
    const size_t n = concat_run(y, a->axis, a->places), at = concat_run(y, a->axis, a->first);
    for (size_t r = 0; r < rows; r++)
        memcpy((nn_real *)f->out[0] + r * n, (const nn_real *)f->in[0] + r * whole + at, n * sizeof(nn_real));
}

const struct nn_op_class nn_op_concat = {
    .name = "concat", .infer = concat_infer, .differentiate = concat_differentiate, .reference = concat_reference};
const struct nn_op_class nn_op_concat_backward = {
    .name = "concat_backward", .infer = concat_infer_backward, .reference = concat_reference_backward};
