// SPDX-License-Identifier: Apache-2.0
//
// A dense layer: y = act(x kernel + bias), over the last axis of x. Sums are kept in double.
#include "workerd/nn/tape.h"

static enum ps_code dense_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_dense *a = (const struct nn_dense *)op->attr;
    const struct nn_type *x = &op->in_type[0], *k = &op->in_type[1];
    if (k->rank != 2 || x->dim[x->rank - 1] != k->dim[0])
        return nn_op_fail(op, e, "the kernel is not as long as the last axis of its input");
    if (a->bias != (op->n_in == 3) || (a->bias && op->in_type[2].dim[0] != k->dim[1]))
        return nn_op_fail(op, e, "expected a bias of %d elements", (int)k->dim[1]);
    op->out_type[0] = *x;
    op->out_type[0].dim[x->rank - 1] = k->dim[1];
    return PS_OK;
}

static enum ps_code dense_infer_data(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *k = &op->in_type[0], *dy = &op->in_type[1];
    (void)e;
    op->out_type[0] = *dy;
    op->out_type[0].dim[dy->rank - 1] = k->dim[0];
    return PS_OK;
}

static enum ps_code dense_infer_weights(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *x = &op->in_type[0], *dy = &op->in_type[1];
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 2, {x->dim[x->rank - 1], dy->dim[dy->rank - 1]}};
    op->out_type[1] = (struct nn_type){NN_FLOAT, 1, {dy->dim[dy->rank - 1]}};
    return PS_OK;
}

static void dense_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    const struct nn_dense *a = (const struct nn_dense *)op->attr;
    int dz = dy[0], dw[2];
    if (a->act == NN_RELU)
        nn_tape_put(t, &nn_op_relu_backward, NULL, 0, (int[]){op->out[0], dy[0]}, 2, &dz, 1);
    if (wanted[1] || (a->bias && wanted[2])) {
        nn_tape_put(t, &nn_op_dense_backward_weights, a, sizeof *a, (int[]){op->in[0], dz}, 2, dw, 1 + a->bias);
        dx[1] = dw[0];
        if (a->bias)
            dx[2] = dw[1];
    }
    if (wanted[0])
        nn_tape_put(t, &nn_op_dense_backward_data, a, sizeof *a, (int[]){op->in[1], dz}, 2, &dx[0], 1);
}

// sum over k < n of a[k * a_step] * b[k * b_step]
static double dense_dot(size_t n, const nn_real *a, size_t a_step, const nn_real *b, size_t b_step)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += (double)a[k * a_step] * b[k * b_step];
    return sum;
}

static void dense_reference(const struct nn_frame *f)
{
    const struct nn_dense *a = (const struct nn_dense *)f->op->attr;
    size_t n = nn_type_rows(&f->op->in_type[0]), in = (size_t)f->op->in_type[1].dim[0];
    size_t out = (size_t)f->op->in_type[1].dim[1];
    const nn_real *x = f->in[0], *w = f->in[1], *b = a->bias ? f->in[2] : NULL;
    nn_real *y = f->out[0];
    for (size_t r = 0; r < n; r++)
        for (size_t o = 0; o < out; o++) {
            double v = dense_dot(in, x + r * in, 1, w + o, out) + (b ? b[o] : 0);
            y[r * out + o] = a->act == NN_RELU && v < 0 ? 0 : (nn_real)v;
        }
}

// dkernel = x^T dy
static void dense_reference_weights(const struct nn_frame *f)
{
    size_t n = nn_type_rows(&f->op->in_type[0]), in = (size_t)f->op->out_type[0].dim[0];
    size_t out = (size_t)f->op->out_type[0].dim[1];
    const nn_real *x = f->in[0], *dy = f->in[1], one = 1;
    nn_real *dw = f->out[0], *db = f->op->n_out > 1 ? f->out[1] : NULL;
    for (size_t i = 0; i < in; i++)
        for (size_t o = 0; o < out; o++)
            dw[i * out + o] = (nn_real)dense_dot(n, x + i, in, dy + o, out);
    for (size_t o = 0; db && o < out; o++)
        db[o] = (nn_real)dense_dot(n, dy + o, out, &one, 0);
}

// dx = dy kernel^T
static void dense_reference_data(const struct nn_frame *f)
{
    size_t n = nn_type_rows(&f->op->in_type[1]), in = (size_t)f->op->in_type[0].dim[0];
    size_t out = (size_t)f->op->in_type[0].dim[1];
    const nn_real *w = f->in[0], *dy = f->in[1];
    nn_real *dx = f->out[0];
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < in; i++)
            dx[r * in + i] = (nn_real)dense_dot(out, dy + r * out, 1, w + i * out, 1);
}

static double dense_flop(const struct nn_op *op)
{
    return 2.0 * (double)nn_type_count(&op->in_type[1]) * (double)nn_type_rows(&op->in_type[0]);
}

static double dense_flop_data(const struct nn_op *op)
{
    return 2.0 * (double)nn_type_count(&op->in_type[0]) * (double)nn_type_rows(&op->in_type[1]);
}

static double dense_flop_weights(const struct nn_op *op)
{
    return 2.0 * (double)nn_type_count(&op->out_type[0]) * (double)nn_type_rows(&op->in_type[0]);
}

const struct nn_op_class nn_op_dense = {.name = "dense",
                                        .infer = dense_infer,
                                        .differentiate = dense_differentiate,
                                        .reference = dense_reference,
                                        .flop = dense_flop};
const struct nn_op_class nn_op_dense_backward_data = {.name = "dense_backward_data",
                                                      .infer = dense_infer_data,
                                                      .reference = dense_reference_data,
                                                      .flop = dense_flop_data};
const struct nn_op_class nn_op_dense_backward_weights = {.name = "dense_backward_weights",
                                                         .infer = dense_infer_weights,
                                                         .reference = dense_reference_weights,
                                                         .flop = dense_flop_weights};
