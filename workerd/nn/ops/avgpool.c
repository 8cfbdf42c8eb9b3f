// SPDX-License-Identifier: Apache-2.0
//
// Average-pooling over NHWC: the mean of a window's cells inside the image. Sums are kept in double.
#include "workerd/nn/ops/avgpool.h"

#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code avgpool_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (x->rank != 4 || x->dim[1] != a->image[0] || x->dim[2] != a->image[1])
        return nn_op_fail(op, e, "the image is not as its attributes say");
    // Every window needs a cell inside the image, or it has no mean.
    for (int i = 0; i < 2; i++)
        if (a->pad_begin[i] >= a->window[i] || (int64_t)(a->out[i] - 1) * a->stride[i] - a->pad_begin[i] >= a->image[i])
            return nn_op_fail(op, e, "a window of %d lies outside the image of %d", a->window[i], a->image[i]);
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {x->dim[0], a->out[0], a->out[1], x->dim[3]}};
    return PS_OK;
}

static enum ps_code avgpool_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)op->attr;
    const struct nn_type *dy = &op->in_type[0];
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {dy->dim[0], a->image[0], a->image[1], dy->dim[3]}};
    return PS_OK;
}

static void avgpool_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_avgpool_backward, op->attr, sizeof(struct nn_pool2d), &dy[0], 1, dx, 1);
}

// Cells [y0, y1) x [x0, x1) of the image, and the element of the image's first pixel.
struct avgpool_window {
    int y0, y1, x0, x1;
    size_t image;
    double cells;
};

static struct avgpool_window avgpool_at(const struct nn_pool2d *a, int64_t channels, int64_t n, int oy, int ox)
{
    struct avgpool_window w = {.image = (size_t)(n * a->image[0] * a->image[1] * channels)};
    nn_pool2d_inside(a, 0, oy, &w.y0, &w.y1);
    nn_pool2d_inside(a, 1, ox, &w.x0, &w.x1);
    w.cells = (double)(w.y1 - w.y0) * (w.x1 - w.x0);
    return w;
}

static void avgpool_reference(const struct nn_frame *f)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)f->op->attr;
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    int64_t rows = f->op->in_type[0].dim[0], channels = f->op->in_type[0].dim[3];
    for (int64_t n = 0; n < rows; n++)
        for (int oy = 0; oy < a->out[0]; oy++)
            for (int ox = 0; ox < a->out[1]; ox++) {
                const struct avgpool_window w = avgpool_at(a, channels, n, oy, ox);
                for (int64_t c = 0; c < channels; c++, y++) {
                    double sum = 0;
                    for (int64_t iy = w.y0; iy < w.y1; iy++)
                        for (int64_t ix = w.x0; ix < w.x1; ix++)
                            sum += x[w.image + (size_t)((iy * a->image[1] + ix) * channels + c)];
                    *y = (nn_real)(sum / w.cells);
                }
            }
}

static void avgpool_reference_backward(const struct nn_frame *f)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)f->op->attr;
    const nn_real *dy = f->in[0];
    nn_real *dx = f->out[0];
    int64_t rows = f->op->in_type[0].dim[0], channels = f->op->in_type[0].dim[3];
    memset(dx, 0, nn_type_bytes(&f->op->out_type[0]));
    for (int64_t n = 0; n < rows; n++)
        for (int oy = 0; oy < a->out[0]; oy++)
            for (int ox = 0; ox < a->out[1]; ox++) {
                const struct avgpool_window w = avgpool_at(a, channels, n, oy, ox);
                for (int64_t c = 0; c < channels; c++, dy++)
                    for (int64_t iy = w.y0; iy < w.y1; iy++)
                        for (int64_t ix = w.x0; ix < w.x1; ix++)
                            dx[w.image + (size_t)((iy * a->image[1] + ix) * channels + c)] += (nn_real)(*dy / w.cells);
            }
}

const struct nn_op_class nn_op_avgpool = {
    .name = "avgpool", .infer = avgpool_infer, .differentiate = avgpool_differentiate, .reference = avgpool_reference};
const struct nn_op_class nn_op_avgpool_backward = {
    .name = "avgpool_backward", .infer = avgpool_infer_backward, .reference = avgpool_reference_backward};
