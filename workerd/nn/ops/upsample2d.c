// SPDX-License-Identifier: Apache-2.0
//
// A larger image of whole factors, as Keras's UpSampling2D: nearest, or bilinear (TensorFlow's resize with half-pixel
// centres).
#include "workerd/nn/ops/upsample2d.h"

#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code upsample2d_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_upsample2d *a = (const struct nn_upsample2d *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (x->rank != 4 || a->factor[0] < 1 || a->factor[1] < 1 || x->dim[1] * a->factor[0] > INT32_MAX ||
        x->dim[2] * a->factor[1] > INT32_MAX)
        return nn_op_fail(op, e, "expected an image, and factors of 1 or more");
    op->out_type[0] =
        (struct nn_type){NN_FLOAT, 4, {x->dim[0], x->dim[1] * a->factor[0], x->dim[2] * a->factor[1], x->dim[3]}};
    return PS_OK;
}

static enum ps_code upsample2d_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_upsample2d *a = (const struct nn_upsample2d *)op->attr;
    const struct nn_type *dy = &op->in_type[0];
    (void)e;
    op->out_type[0] =
        (struct nn_type){NN_FLOAT, 4, {dy->dim[0], dy->dim[1] / a->factor[0], dy->dim[2] / a->factor[1], dy->dim[3]}};
    return PS_OK;
}

static void upsample2d_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                     int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_upsample2d_backward, op->attr, sizeof(struct nn_upsample2d), &dy[0], 1, dx, 1);
}

// The four pixels that one comes from, and what each counts. x: the type of the smaller image.
struct upsample_source {
    size_t at[4];
    nn_real part[4];
};

static struct upsample_source upsample_source(const struct nn_upsample2d *a, const struct nn_type *x, int64_t n, int oy,
                                              int ox)
{
    const struct nn_upsample_tap v = nn_upsample_tap(a, 0, x->dim[1], oy), h = nn_upsample_tap(a, 1, x->dim[2], ox);
    const int64_t top = (n * x->dim[1] + v.at) * x->dim[2], below = (n * x->dim[1] + v.next) * x->dim[2];
    const int64_t pixel[] = {top + h.at, top + h.next, below + h.at, below + h.next};
    struct upsample_source s = {
        .part = {(1 - v.part) * (1 - h.part), (1 - v.part) * h.part, v.part * (1 - h.part), v.part * h.part}};
    for (int i = 0; i < 4; i++)
        s.at[i] = (size_t)(pixel[i] * x->dim[3]);
    return s;
}

static void upsample2d_reference(const struct nn_frame *f)
{
    const struct nn_upsample2d *a = (const struct nn_upsample2d *)f->op->attr;
    const int64_t *out = f->op->out_type[0].dim;
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    for (int64_t n = 0; n < out[0]; n++)
        for (int oy = 0; oy < out[1]; oy++)
            for (int ox = 0; ox < out[2]; ox++) {
                const struct upsample_source s = upsample_source(a, &f->op->in_type[0], n, oy, ox);
                for (int64_t c = 0; c < out[3]; c++, y++) {
                    *y = 0;
                    for (int i = 0; i < 4; i++)
                        *y += s.part[i] != 0 ? s.part[i] * x[s.at[i] + (size_t)c] : 0;
                }
            }
}

static void upsample2d_reference_backward(const struct nn_frame *f)
{
    const struct nn_upsample2d *a = (const struct nn_upsample2d *)f->op->attr;
    const int64_t *out = f->op->in_type[0].dim;
    const nn_real *dy = f->in[0];
    nn_real *dx = f->out[0];
    memset(dx, 0, nn_type_bytes(&f->op->out_type[0]));
    for (int64_t n = 0; n < out[0]; n++)
        for (int oy = 0; oy < out[1]; oy++)
            for (int ox = 0; ox < out[2]; ox++) {
                const struct upsample_source s = upsample_source(a, &f->op->out_type[0], n, oy, ox);
                for (int64_t c = 0; c < out[3]; c++, dy++)
                    for (int i = 0; i < 4; i++)
                        dx[s.at[i] + (size_t)c] += s.part[i] * *dy;
            }
}

const struct nn_op_class nn_op_upsample2d = {.name = "upsample2d",
                                             .infer = upsample2d_infer,
                                             .differentiate = upsample2d_differentiate,
                                             .reference = upsample2d_reference};
const struct nn_op_class nn_op_upsample2d_backward = {
    .name = "upsample2d_backward", .infer = upsample2d_infer_backward, .reference = upsample2d_reference_backward};
