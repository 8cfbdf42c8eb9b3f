// SPDX-License-Identifier: Apache-2.0
//
// The references are those of the convolution and of the pooling, one after the other.
#include "workerd/nn/ops/conv2d_pool.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/tape.h"

enum { SIDE = 2 };  // of a window

bool nn_conv2d_pool_joins(const struct nn_conv2d *conv, const struct nn_pool2d *pool)
{
    bool joins = conv->groups == 1;
    for (int i = 0; i < 2; i++)
        joins = joins && conv->stride[i] == 1 && conv->dilation[i] == 1 && pool->window[i] == SIDE &&
                pool->stride[i] == SIDE && pool->pad_begin[i] == 0 && pool->out[i] == pool->image[i] / SIDE;
    return joins;
}

// ---- types --------------------------------------------------------------------------------------------------------

static const struct nn_conv2d_pool *conv2d_pool_attr(const struct nn_op *op)
{
    return (const struct nn_conv2d_pool *)op->attr;
}

// Of the convolution's output.
static int conv2d_pool_side(const struct nn_conv2d *a, int i)
{
    return a->image[i] + a->pad_begin[i] + a->pad_end[i] - a->kernel[i] + 1;
}

static struct nn_type conv2d_pool_full(const struct nn_conv2d *a, const struct nn_type *y)
{
    return (struct nn_type){NN_FLOAT, 4, {y->dim[0], conv2d_pool_side(a, 0), conv2d_pool_side(a, 1), y->dim[3]}};
}

static enum ps_code conv2d_pool_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_conv2d *a = &conv2d_pool_attr(op)->conv;
    struct nn_op conv = *op;
    conv.class = &nn_op_conv2d;
    if (a->stride[0] != 1 || a->stride[1] != 1 || a->dilation[0] != 1 || a->dilation[1] != 1 || a->groups != 1)
        return nn_op_fail(op, e, "expected strides, dilation and groups of 1");
    if (nn_op_conv2d.infer(&conv, e))
        return e->code;
    op->out_type[0] = conv.out_type[0];
    for (int i = 1; i <= 2; i++)
        if ((op->out_type[0].dim[i] /= SIDE) == 0)
            return nn_op_fail(op, e, "no window fits");
    op->out_type[1] = op->out_type[0];
    op->out_type[1].dtype = NN_UINT8;
    return PS_OK;
}

static enum ps_code conv2d_pool_infer_data(struct nn_op *op, struct ps_error *e)
{
    const struct nn_conv2d *a = &conv2d_pool_attr(op)->conv;
    (void)e;
    op->out_type[0] =
        (struct nn_type){NN_FLOAT, 4, {op->in_type[1].dim[0], a->image[0], a->image[1], op->in_type[0].dim[2]}};
    return PS_OK;
}

static enum ps_code conv2d_pool_infer_weights(struct nn_op *op, struct ps_error *e)
{
    const struct nn_conv2d *a = &conv2d_pool_attr(op)->conv;
    const int64_t channels = op->in_type[1].dim[3];
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {a->kernel[0], a->kernel[1], op->in_type[0].dim[3], channels}};
    op->out_type[1] = (struct nn_type){NN_FLOAT, 1, {channels}};
    return PS_OK;
}

static void conv2d_pool_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                      int *dx)
{
    const struct nn_conv2d_pool *a = conv2d_pool_attr(op);
    int dw[2];
    if (wanted[1] || (a->conv.bias && wanted[2])) {
        nn_tape_put(t, &nn_op_conv2d_pool_backward_weights, a, sizeof *a,
                    (int[]){op->in[0], op->out[0], op->out[1], dy[0]}, 4, dw, 1 + a->conv.bias);
        dx[1] = dw[0];
        if (a->conv.bias)
            dx[2] = dw[1];
    }
    if (wanted[0])
        nn_tape_put(t, &nn_op_conv2d_pool_backward_data, a, sizeof *a,
                    (int[]){op->in[1], op->out[0], op->out[1], dy[0]}, 4, dx, 1);
}

// ---- references ---------------------------------------------------------------------------------------------------

// One of the parts, with these arguments.
static void conv2d_pool_part(const struct nn_op_class *class, const void *attr, size_t attr_bytes,
                             const struct nn_type *in_type, void *const *in, int n_in, const struct nn_type *out_type,
                             void *const *out, int n_out)
{
    struct nn_op op = {.class = class, .n_in = n_in, .n_out = n_out};
    memcpy(op.attr, attr, attr_bytes);
    memcpy(op.in_type, in_type, (size_t)n_in * sizeof *in_type);
    memcpy(op.out_type, out_type, (size_t)n_out * sizeof *out_type);
    class->reference(&(struct nn_frame){.op = &op, .in = in, .out = out});
}

static struct nn_pool2d conv2d_pool_window(const struct nn_conv2d *a)
{
    struct nn_pool2d pool = {.window = {SIDE, SIDE}, .stride = {SIDE, SIDE}};
    for (int i = 0; i < 2; i++) {
        pool.image[i] = conv2d_pool_side(a, i);
        pool.out[i] = pool.image[i] / SIDE;
    }
    return pool;
}

static void conv2d_pool_reference(const struct nn_frame *f)
{
    const struct nn_conv2d *a = &conv2d_pool_attr(f->op)->conv;
    const struct nn_pool2d pool = conv2d_pool_window(a);
    const struct nn_type full = conv2d_pool_full(a, &f->op->out_type[0]);
    void *z = ps_alloc(nn_type_bytes(&full));
    conv2d_pool_part(&nn_op_conv2d, a, sizeof *a, f->op->in_type, f->in, f->op->n_in, &full, &z, 1);
    conv2d_pool_part(&nn_op_maxpool, &pool, sizeof pool, &full, &z, 1, f->op->out_type, f->out, 2);
    free(z);
}

// The gradient by what the convolution gives, before its activation. in: (...), y, at, dy.
static nn_real *conv2d_pool_unpool(const struct nn_frame *f, const struct nn_type *full)
{
    const struct nn_conv2d *a = &conv2d_pool_attr(f->op)->conv;
    const struct nn_pool2d pool = conv2d_pool_window(a);
    const struct nn_type *type = &f->op->in_type[1];
    const nn_real *y = f->in[1], *dy = f->in[3];
    const size_t n = nn_type_count(type);
    nn_real *g = ps_alloc(n * sizeof *g), *dz = ps_alloc(nn_type_bytes(full));
    for (size_t i = 0; i < n; i++)
        g[i] = a->act != NN_RELU || y[i] > 0 ? dy[i] : 0;
    conv2d_pool_part(&nn_op_maxpool_backward, &pool, sizeof pool, (struct nn_type[]){*type, f->op->in_type[2]},
                     (void *[]){g, f->in[2]}, 2, full, (void *[]){dz}, 1);
    free(g);
    return dz;
}

static void conv2d_pool_reference_data(const struct nn_frame *f)
{
    const struct nn_conv2d *a = &conv2d_pool_attr(f->op)->conv;
    const struct nn_type full = conv2d_pool_full(a, &f->op->in_type[1]);
    nn_real *dz = conv2d_pool_unpool(f, &full);
    conv2d_pool_part(&nn_op_conv2d_backward_data, a, sizeof *a, (struct nn_type[]){f->op->in_type[0], full},
                     (void *[]){f->in[0], dz}, 2, f->op->out_type, f->out, 1);
    free(dz);
}

static void conv2d_pool_reference_weights(const struct nn_frame *f)
{
    const struct nn_conv2d *a = &conv2d_pool_attr(f->op)->conv;
    const struct nn_type full = conv2d_pool_full(a, &f->op->in_type[1]);
    nn_real *dz = conv2d_pool_unpool(f, &full);
    conv2d_pool_part(&nn_op_conv2d_backward_weights, a, sizeof *a, (struct nn_type[]){f->op->in_type[0], full},
                     (void *[]){f->in[0], dz}, 2, f->op->out_type, f->out, f->op->n_out);
    free(dz);
}

// The pixels that a window covers, of which the pooling keeps one each...
static double conv2d_pool_flop(const struct nn_op *op)
{
    const struct nn_type *y = &op->out_type[0];
    return 2.0 * SIDE * SIDE * (double)nn_type_count(&op->in_type[1]) * (double)(nn_type_count(y) / (size_t)y->dim[3]);
}

// ... and back from those pixels alone: what is needed, not what the two operators would do.
static double conv2d_pool_flop_data(const struct nn_op *op)
{
    const struct nn_type *y = &op->in_type[1];
    return 2.0 * (double)nn_type_count(&op->in_type[0]) * (double)(nn_type_count(y) / (size_t)y->dim[3]);
}

static double conv2d_pool_flop_weights(const struct nn_op *op)
{
    const struct nn_type *y = &op->in_type[1];
    return 2.0 * (double)nn_type_count(&op->out_type[0]) * (double)(nn_type_count(y) / (size_t)y->dim[3]);
}

const struct nn_op_class nn_op_conv2d_pool = {.name = "conv2d_pool",
                                              .infer = conv2d_pool_infer,
                                              .differentiate = conv2d_pool_differentiate,
                                              .reference = conv2d_pool_reference,
                                              .flop = conv2d_pool_flop};
const struct nn_op_class nn_op_conv2d_pool_backward_data = {.name = "conv2d_pool_backward_data",
                                                            .infer = conv2d_pool_infer_data,
                                                            .reference = conv2d_pool_reference_data,
                                                            .flop = conv2d_pool_flop_data};
const struct nn_op_class nn_op_conv2d_pool_backward_weights = {.name = "conv2d_pool_backward_weights",
                                                               .infer = conv2d_pool_infer_weights,
                                                               .reference = conv2d_pool_reference_weights,
                                                               .flop = conv2d_pool_flop_weights};
