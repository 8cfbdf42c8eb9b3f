// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/dot.h"

#include <math.h>

#include "workerd/nn/tape.h"

// ---- dot ----------------------------------------------------------------------------------------------------------

// An operand of an example as (before, n, after), summed over the one in the middle.
struct operand {
    size_t before, n, after;
};

static struct operand dot_operand(const struct nn_type *type, int axis)
{
    struct operand o = {1, (size_t)type->dim[axis], 1};
    for (int i = 1; i < type->rank; i++)
        *(i < axis ? &o.before : &o.after) *= i == axis ? 1 : (size_t)type->dim[i];
    return o;
}

static enum ps_code dot_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_dot *a = (const struct nn_dot *)op->attr;
    struct nn_type *y = &op->out_type[0];
    const struct nn_type *x = op->in_type;
    for (int k = 0; k < 2; k++)
        if (a->axis[k] < 1 || a->axis[k] >= x[k].rank)
            return nn_op_fail(op, e, "axis %d of a tensor of rank %d", a->axis[k], x[k].rank);
    if (x[0].dim[a->axis[0]] != x[1].dim[a->axis[1]] || x[0].rank + x[1].rank - 3 > NN_MAX_RANK)
        return nn_op_fail(op, e, "axes of %d and %d places", (int)x[0].dim[a->axis[0]], (int)x[1].dim[a->axis[1]]);
    *y = (struct nn_type){NN_FLOAT, 1, {x[0].dim[0]}};
    for (int k = 0; k < 2; k++)
        for (int i = 1; i < x[k].rank; i++)
            if (i != a->axis[k])
                y->dim[y->rank++] = x[k].dim[i];
    if (y->rank == 1)
        y->dim[y->rank++] = 1;
    return PS_OK;
}

static enum ps_code dot_infer_backward(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = ((const struct nn_dot_backward *)op->attr)->to;
    return PS_OK;
}

static void dot_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    for (int k = 0; k < 2; k++) {
        const struct nn_dot_backward attr = {*(const struct nn_dot *)op->attr, k, op->in_type[k]};
        if (wanted[k])
            nn_tape_put(t, &nn_op_dot_backward, &attr, sizeof attr, (int[]){op->in[!k], dy[0]}, 2, &dx[k], 1);
    }
}

// v: a, b and y of one example. To v[to], which is 0 before, are added the products of the two others.
static void dot_add(struct operand a, struct operand b, nn_real *const v[3], int to)
{
    const int p = to == 0, q = to == 2 ? 1 : 2;
    size_t at[3] = {0};
    for (size_t i = 0; i < a.before * a.after; i++)
        for (size_t j = 0; j < b.before * b.after; j++, at[2]++)
            for (size_t k = 0; k < a.n; k++) {
                at[0] = (i / a.after * a.n + k) * a.after + i % a.after;
                at[1] = (j / b.after * b.n + k) * b.after + j % b.after;
                v[to][at[to]] += v[p][at[p]] * v[q][at[q]];
            }
}

// type: those of a, b and y; v: their memory.
static void dot_rows(const struct nn_dot *d, const struct nn_type *const type[3], nn_real *const v[3], int to)
{
    const size_t rows = (size_t)type[2]->dim[0];
    const struct operand a = dot_operand(type[0], d->axis[0]), b = dot_operand(type[1], d->axis[1]);
    for (size_t i = 0, n = nn_type_count(type[to]); i < n; i++)
        v[to][i] = 0;
    for (size_t r = 0; r < rows; r++)
        dot_add(a, b,
                (nn_real *const[]){v[0] + r * (nn_type_count(type[0]) / rows),
                                   v[1] + r * (nn_type_count(type[1]) / rows),
                                   v[2] + r * (nn_type_count(type[2]) / rows)},
                to);
}

static void dot_reference(const struct nn_frame *f)
{
    const struct nn_op *op = f->op;
    dot_rows((const struct nn_dot *)op->attr,
             (const struct nn_type *const[]){&op->in_type[0], &op->in_type[1], &op->out_type[0]},
             (nn_real *const[]){f->in[0], f->in[1], f->out[0]}, 2);
}

static void dot_reference_backward(const struct nn_frame *f)
{
    const struct nn_op *op = f->op;
    const struct nn_dot_backward *a = (const struct nn_dot_backward *)op->attr;
    const struct nn_type *type[3] = {[2] = &op->in_type[1]};
    nn_real *v[3] = {[2] = f->in[1]};
    type[a->of] = &op->out_type[0];
    type[!a->of] = &op->in_type[0];
    v[a->of] = f->out[0];
    v[!a->of] = f->in[0];
    dot_rows(&a->dot, type, v, a->of);
}

// ---- unit length --------------------------------------------------------------------------------------------------

static enum ps_code unit_length_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void unit_length_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                      int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_unit_length_backward, op->attr, sizeof(struct nn_unit_length), (int[]){op->in[0], dy[0]}, 2,
                dx, 1);
}

// y = x / |x|; with dy, dx = (dy - y (y . dy)) / |x|, without the second term where the length is the shortest one.
static void unit_length_line(size_t n, size_t step, double shortest, const nn_real *x, const nn_real *dy, nn_real *to)
{
    double squares = 0, along = 0;
    for (size_t i = 0; i < n; i++) {
        squares += (double)x[i * step] * (double)x[i * step];
        along += dy ? (double)x[i * step] * (double)dy[i * step] : 0;
    }
    const bool own = sqrt(squares) > shortest || isnan(squares);
    const double length = own ? sqrt(squares) : shortest;
    along = own ? along : 0;
    for (size_t i = 0; i < n; i++) {
        double y = (double)x[i * step] / length;
        to[i * step] = (nn_real)(dy ? ((double)dy[i * step] - y * along / length) / length : y);
    }
}

static void unit_length_reference(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->in_type[0];
    const struct nn_unit_length *attr = (const struct nn_unit_length *)f->op->attr;
    const int axis = attr->axis;
    size_t n = (size_t)type->dim[axis], step = 1;
    for (int i = axis + 1; i < type->rank; i++)
        step *= (size_t)type->dim[i];
    for (size_t k = 0, lines = nn_type_count(type) / n; k < lines; k++) {
        const size_t at = k / step * n * step + k % step;
        unit_length_line(n, step, (double)attr->shortest, (const nn_real *)f->in[0] + at,
                         f->op->n_in > 1 ? (const nn_real *)f->in[1] + at : NULL, (nn_real *)f->out[0] + at);
    }
}

static double dot_flop(const struct nn_op *op)
{
    const struct nn_dot *a = (const struct nn_dot *)op->attr;
    return 2.0 * (double)nn_type_count(&op->out_type[0]) * (double)op->in_type[0].dim[a->axis[0]];
}

static double dot_flop_backward(const struct nn_op *op)
{
    const struct nn_dot_backward *a = (const struct nn_dot_backward *)op->attr;
    return 2.0 * (double)nn_type_count(&op->in_type[1]) * (double)a->to.dim[a->dot.axis[a->of]];
}

const struct nn_op_class nn_op_dot = {.name = "dot",
                                      .infer = dot_infer,
                                      .differentiate = dot_differentiate,
                                      .reference = dot_reference,
                                      .flop = dot_flop};
const struct nn_op_class nn_op_dot_backward = {.name = "dot_backward",
                                               .infer = dot_infer_backward,
                                               .reference = dot_reference_backward,
                                               .flop = dot_flop_backward};
const struct nn_op_class nn_op_unit_length = {.name = "unit_length",
                                              .infer = unit_length_infer,
                                              .differentiate = unit_length_differentiate,
                                              .reference = unit_length_reference};
const struct nn_op_class nn_op_unit_length_backward = {
    .name = "unit_length_backward", .infer = unit_length_infer, .reference = unit_length_reference};
