// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/binary.h"

#include <math.h>

#include "workerd/nn/tape.h"

// ---- broadcasting -------------------------------------------------------------------------------------------------

// A walk over the elements of y and those of a and b that belong to them, a line along the last dimension at a time.
struct walk {
    const struct nn_type *y;
    size_t step[2][NN_MAX_RANK];  // of a and b: elements to the next place along a dimension; 0 where it stands for all
    int64_t at[NN_MAX_RANK];
    size_t begin[2];  // of the line, in a and b
};

static void walk_start(struct walk *w, const struct nn_type *y, const struct nn_type *a, const struct nn_type *b)
{
    const struct nn_type *type[2] = {a, b};
    *w = (struct walk){.y = y};
    for (int k = 0; k < 2; k++) {
        size_t step = 1;
        for (int i = y->rank; i--;) {
            w->step[k][i] = type[k]->dim[i] == 1 ? 0 : step;
            step *= (size_t)type[k]->dim[i];
        }
    }
}

static void walk_next(struct walk *w)
{
    for (int i = w->y->rank - 1; i--;) {
        w->begin[0] += w->step[0][i];
        w->begin[1] += w->step[1][i];
        if (++w->at[i] < w->y->dim[i])
            return;
        w->begin[0] -= w->step[0][i] * (size_t)w->y->dim[i];
        w->begin[1] -= w->step[1][i] * (size_t)w->y->dim[i];
        w->at[i] = 0;
    }
}

static enum ps_code binary_infer_shape(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *a = &op->in_type[0], *b = &op->in_type[1];
    if (a->rank != b->rank)
        return nn_op_fail(op, e, "expected two tensors of as many dimensions, not %d and %d", a->rank, b->rank);
    op->out_type[0] = *a;
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i] && a->dim[i] != 1 && b->dim[i] != 1)
            return nn_op_fail(op, e, "%d and %d places along dimension %d", (int)a->dim[i], (int)b->dim[i], i);
        op->out_type[0].dim[i] = a->dim[i] == 1 ? b->dim[i] : a->dim[i];
    }
    return PS_OK;
}

// ---- binary -------------------------------------------------------------------------------------------------------

static int binary_like(struct nn_tape *t, int dy, const struct nn_type *type)
{
    const struct nn_reduce attr = {*type};
    bool same = true;
    for (int i = 0; i < type->rank && dy >= 0; i++)
        same = same && t->tensor[dy].type.dim[i] == type->dim[i];
    if (!same)
        nn_tape_put(t, &nn_op_reduce, &attr, sizeof attr, &dy, 1, &dy, 1);
    return dy;
}

// The gradient by operand `of`, of the shape of y.
static int binary_gradient(struct nn_tape *t, const struct nn_op *op, int dy, int of)
{
    const struct nn_binary *a = (const struct nn_binary *)op->attr, times = {NN_B_MULTIPLY};
    const struct nn_affine opposite = {-1, 0};
    const struct nn_choose choose = {a->kind, of};
    int dx = dy;
    if (a->kind == NN_B_SUBTRACT && of == 1)
        nn_tape_put(t, &nn_op_affine, &opposite, sizeof opposite, &dy, 1, &dx, 1);
    else if (a->kind == NN_B_MULTIPLY)
        nn_tape_put(t, &nn_op_binary, &times, sizeof times, (int[]){dy, op->in[!of]}, 2, &dx, 1);
    else if (a->kind == NN_B_MAXIMUM || a->kind == NN_B_MINIMUM)
        nn_tape_put(t, &nn_op_choose, &choose, sizeof choose, (int[]){op->in[0], op->in[1], dy}, 3, &dx, 1);
    return dx;
}

static void binary_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            dx[i] = binary_like(t, binary_gradient(t, op, dy[0], i), &op->in_type[i]);
}

static nn_real binary_of(enum nn_binary_kind kind, nn_real a, nn_real b)
{
    switch (kind) {
    case NN_B_ADD:
        return a + b;
    case NN_B_SUBTRACT:
        return a - b;
    case NN_B_MULTIPLY:
        return a * b;
    case NN_B_MAXIMUM:
        return b > a || isnan(b) ? b : a;
    case NN_B_MINIMUM:
        return b < a || isnan(b) ? b : a;
    }
    return 0;
}

static void binary_reference(const struct nn_frame *f)
{
    const struct nn_binary *attr = (const struct nn_binary *)f->op->attr;
    const struct nn_type *type = &f->op->out_type[0];
    const size_t n = (size_t)type->dim[type->rank - 1];
    nn_real *y = f->out[0];
    struct walk w;
    walk_start(&w, type, &f->op->in_type[0], &f->op->in_type[1]);
    for (size_t r = 0, rows = nn_type_rows(type); r < rows; r++, y += n, walk_next(&w)) {
        const nn_real *a = (const nn_real *)f->in[0] + w.begin[0], *b = (const nn_real *)f->in[1] + w.begin[1];
        const size_t by_a = w.step[0][type->rank - 1], by_b = w.step[1][type->rank - 1];
        for (size_t i = 0; i < n; i++)
            y[i] = binary_of(attr->kind, a[i * by_a], b[i * by_b]);
    }
}

// ---- choose -------------------------------------------------------------------------------------------------------

static void choose_reference(const struct nn_frame *f)
{
    const struct nn_choose *attr = (const struct nn_choose *)f->op->attr;
    const struct nn_type *type = &f->op->out_type[0];
    const size_t n = (size_t)type->dim[type->rank - 1];
    const nn_real *dy = f->in[2];
    nn_real *dx = f->out[0];
    struct walk w;
    walk_start(&w, type, &f->op->in_type[0], &f->op->in_type[1]);
    for (size_t r = 0, rows = nn_type_rows(type); r < rows; r++, dx += n, dy += n, walk_next(&w)) {
        const nn_real *a = (const nn_real *)f->in[0] + w.begin[0], *b = (const nn_real *)f->in[1] + w.begin[1];
        const size_t by_a = w.step[0][type->rank - 1], by_b = w.step[1][type->rank - 1];
        for (size_t i = 0; i < n; i++) {
            bool first = attr->kind == NN_B_MAXIMUM ? a[i * by_a] >= b[i * by_b] : a[i * by_a] <= b[i * by_b];
            dx[i] = first == (attr->of == 0) ? dy[i] : 0;
        }
    }
}

// ---- reduce -------------------------------------------------------------------------------------------------------

static enum ps_code reduce_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_reduce *a = (const struct nn_reduce *)op->attr;
    bool fits = a->to.rank == op->in_type[0].rank;
    for (int i = 0; i < a->to.rank && fits; i++)
        fits = a->to.dim[i] == 1 || a->to.dim[i] == op->in_type[0].dim[i];
    op->out_type[0] = a->to;
    return fits ? PS_OK : nn_op_fail(op, e, "expected dimensions of the input or 1");
}

static void reduce_reference(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->in_type[0];
    const size_t n = (size_t)type->dim[type->rank - 1];
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    struct walk w;
    walk_start(&w, type, type, &f->op->out_type[0]);
    for (size_t i = 0, all = nn_type_count(&f->op->out_type[0]); i < all; i++)
        y[i] = 0;
    for (size_t r = 0, rows = nn_type_rows(type); r < rows; r++, x += n, walk_next(&w))
        for (size_t i = 0; i < n; i++)
            y[w.begin[1] + i * w.step[1][type->rank - 1]] += x[i];
}

// ---- affine -------------------------------------------------------------------------------------------------------

static enum ps_code affine_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void affine_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    const struct nn_affine attr = {((const struct nn_affine *)op->attr)->scale, 0};
    (void)wanted;
    nn_tape_put(t, &nn_op_affine, &attr, sizeof attr, dy, 1, dx, 1);
}

static void affine_reference(const struct nn_frame *f)
{
    const struct nn_affine *a = (const struct nn_affine *)f->op->attr;
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++)
        y[i] = (nn_real)a->scale * x[i] + (nn_real)a->offset;
}

const struct nn_op_class nn_op_binary = {.name = "binary",
                                         .infer = binary_infer_shape,
                                         .differentiate = binary_differentiate,
                                         .reference = binary_reference};
const struct nn_op_class nn_op_choose = {.name = "choose", .infer = binary_infer_shape, .reference = choose_reference};
const struct nn_op_class nn_op_reduce = {.name = "reduce", .infer = reduce_infer, .reference = reduce_reference};
const struct nn_op_class nn_op_affine = {.name = "affine",
                                         .infer = affine_infer,
                                         .differentiate = affine_differentiate,
                                         .reference = affine_reference,
                                         .in_place = 1 + 0};
