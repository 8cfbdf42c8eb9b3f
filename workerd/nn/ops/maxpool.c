// SPDX-License-Identifier: Apache-2.0
//
// Max-pooling over NHWC. Where it took each maximum is kept for the way back.
#include <math.h>
#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code maxpool_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (x->rank != 4 || x->dim[1] != a->image[0] || x->dim[2] != a->image[1])
        return nn_op_fail(op, e, "the image is not as its attributes say");
    int64_t cells = (int64_t)a->window[0] * a->window[1];
    if (cells > INT32_MAX)
        return nn_op_fail(op, e, "a window of %dx%d, expected at most %d cells", a->window[0], a->window[1], INT32_MAX);
    // Every window needs a cell inside the image, or it has no maximum.
    for (int i = 0; i < 2; i++)
        if (a->pad_begin[i] >= a->window[i] || (int64_t)(a->out[i] - 1) * a->stride[i] - a->pad_begin[i] >= a->image[i])
            return nn_op_fail(op, e, "a window of %d lies outside the image of %d", a->window[i], a->image[i]);
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {x->dim[0], a->out[0], a->out[1], x->dim[3]}};
    op->out_type[1] = op->out_type[0];
    op->out_type[1].dtype = cells <= NN_POOL_BYTE ? NN_UINT8 : NN_INT32;
    return PS_OK;
}

static enum ps_code maxpool_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)op->attr;
    const struct nn_type *dy = &op->in_type[0];
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {dy->dim[0], a->image[0], a->image[1], dy->dim[3]}};
    return PS_OK;
}

static void maxpool_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_maxpool_backward, op->attr, sizeof(struct nn_pool2d), (int[]){dy[0], op->out[1]}, 2, dx, 1);
}

// Element of x (n, h, w, c) under cell k of the window at (oy, ox), or -1 where that is outside the image.
static ptrdiff_t maxpool_source(const struct nn_pool2d *a, int64_t channels, int64_t n, int oy, int ox, int64_t c,
                                int k)
{
    int iy = oy * a->stride[0] - a->pad_begin[0] + k / a->window[1];
    int ix = ox * a->stride[1] - a->pad_begin[1] + k % a->window[1];
    if (iy < 0 || iy >= a->image[0] || ix < 0 || ix >= a->image[1])
        return -1;
    return ((n * a->image[0] + iy) * a->image[1] + ix) * channels + c;
}

static int maxpool_argmax(const struct nn_pool2d *a, const nn_real *x, int64_t channels, int64_t n, int oy, int ox,
                          int64_t c)
{
    int best = -1;
    nn_real max = 0;
    for (int k = 0; k < a->window[0] * a->window[1]; k++) {
        ptrdiff_t i = maxpool_source(a, channels, n, oy, ox, c, k);
        if (i >= 0 && (best < 0 || x[i] > max || (isnan(x[i]) && !isnan(max)))) {
            best = k;
            max = x[i];
        }
    }
    return best;
}

static void maxpool_reference(const struct nn_frame *f)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)f->op->attr;
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    bool wide = f->op->out_type[1].dtype == NN_INT32;
    uint8_t *byte = f->out[1];
    int32_t *word = f->out[1];
    size_t i = 0;
    int64_t rows = f->op->in_type[0].dim[0], channels = f->op->in_type[0].dim[3];
    for (int64_t n = 0; n < rows; n++)
        for (int oy = 0; oy < a->out[0]; oy++)
            for (int ox = 0; ox < a->out[1]; ox++)
                for (int64_t c = 0; c < channels; c++, i++) {
                    int at = maxpool_argmax(a, x, channels, n, oy, ox, c);
                    y[i] = x[maxpool_source(a, channels, n, oy, ox, c, at)];
                    if (wide)
                        word[i] = at;
                    else
                        byte[i] = (uint8_t)at;
                }
}

static void maxpool_reference_backward(const struct nn_frame *f)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)f->op->attr;
    const nn_real *dy = f->in[0];
    bool wide = f->op->in_type[1].dtype == NN_INT32;
    const uint8_t *byte = f->in[1];
    const int32_t *word = f->in[1];
    size_t i = 0;
    nn_real *dx = f->out[0];
    int64_t rows = f->op->in_type[0].dim[0], channels = f->op->in_type[0].dim[3];
    memset(dx, 0, nn_type_bytes(&f->op->out_type[0]));
    for (int64_t n = 0; n < rows; n++)
        for (int oy = 0; oy < a->out[0]; oy++)
            for (int ox = 0; ox < a->out[1]; ox++)
                for (int64_t c = 0; c < channels; c++, i++)
                    dx[maxpool_source(a, channels, n, oy, ox, c, wide ? word[i] : byte[i])] += dy[i];
}

const struct nn_op_class nn_op_maxpool = {
    .name = "maxpool", .infer = maxpool_infer, .differentiate = maxpool_differentiate, .reference = maxpool_reference};
const struct nn_op_class nn_op_maxpool_backward = {
    .name = "maxpool_backward", .infer = maxpool_infer_backward, .reference = maxpool_reference_backward};
