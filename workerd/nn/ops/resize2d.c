// SPDX-License-Identifier: Apache-2.0
//
// An image of another size: Keras's UpSampling2D and the end of its RandomCrop.
#include "workerd/nn/ops/resize2d.h"

#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code resize2d_check(struct nn_op *op, const int size[2], struct ps_error *e)
{
    const struct nn_resize2d *a = (const struct nn_resize2d *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (x->rank != 4 || x->dim[1] != size[0] || x->dim[2] != size[1] || a->from[0] < 1 || a->from[1] < 1 ||
        a->to[0] < 1 || a->to[1] < 1)
        return nn_op_fail(op, e, "expected images of the size that it says");
    return PS_OK;
}

static void resize2d_give(struct nn_op *op, const int size[2])
{
    const struct nn_type *x = &op->in_type[0];
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {x->dim[0], size[0], size[1], x->dim[3]}};
}

static enum ps_code resize2d_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_resize2d *a = (const struct nn_resize2d *)op->attr;
    resize2d_give(op, a->to);
    return resize2d_check(op, a->from, e);
}

static enum ps_code resize2d_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_resize2d *a = (const struct nn_resize2d *)op->attr;
    resize2d_give(op, a->from);
    return resize2d_check(op, a->to, e);
}

static void resize2d_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                   int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_resize2d_backward, op->attr, sizeof(struct nn_resize2d), &dy[0], 1, dx, 1);
}

// The four pixels of x that one of y comes from, and what each counts.
struct resize_source {
    size_t at[4];
    nn_real part[4];
};

static struct resize_source resize_source(const struct nn_resize2d *a, const struct nn_type *x, int64_t n, int oy,
                                          int ox)
{
    const struct nn_resize_tap v = nn_resize_tap_of(a, 0, oy), h = nn_resize_tap_of(a, 1, ox);
    const int64_t top = (n * x->dim[1] + v.at) * x->dim[2], below = (n * x->dim[1] + v.next) * x->dim[2];
    const int64_t pixel[] = {top + h.at, top + h.next, below + h.at, below + h.next};
    struct resize_source s = {
        .part = {(1 - v.part) * (1 - h.part), (1 - v.part) * h.part, v.part * (1 - h.part), v.part * h.part}};
    for (int i = 0; i < 4; i++)
        s.at[i] = (size_t)(pixel[i] * x->dim[3]);
    return s;
}

static void resize2d_reference(const struct nn_frame *f)
{
    const struct nn_resize2d *a = (const struct nn_resize2d *)f->op->attr;
    const int64_t *out = f->op->out_type[0].dim;
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    for (int64_t n = 0; n < out[0]; n++)
        for (int oy = 0; oy < out[1]; oy++)
            for (int ox = 0; ox < out[2]; ox++) {
                const struct resize_source s = resize_source(a, &f->op->in_type[0], n, oy, ox);
                for (int64_t c = 0; c < out[3]; c++, y++) {
                    *y = 0;
                    for (int i = 0; i < 4; i++)
                        *y += s.part[i] != 0 ? s.part[i] * x[s.at[i] + (size_t)c] : 0;
                }
            }
}

static void resize2d_reference_backward(const struct nn_frame *f)
{
    const struct nn_resize2d *a = (const struct nn_resize2d *)f->op->attr;
    const int64_t *out = f->op->in_type[0].dim;
    const nn_real *dy = f->in[0];
    nn_real *dx = f->out[0];
    memset(dx, 0, nn_type_bytes(&f->op->out_type[0]));
    for (int64_t n = 0; n < out[0]; n++)
        for (int oy = 0; oy < out[1]; oy++)
            for (int ox = 0; ox < out[2]; ox++) {
                const struct resize_source s = resize_source(a, &f->op->out_type[0], n, oy, ox);
                for (int64_t c = 0; c < out[3]; c++, dy++)
                    for (int i = 0; i < 4; i++)
                        dx[s.at[i] + (size_t)c] += s.part[i] * *dy;
            }
}

const struct nn_op_class nn_op_resize2d = {.name = "resize2d",
                                           .infer = resize2d_infer,
                                           .differentiate = resize2d_differentiate,
                                           .reference = resize2d_reference};
const struct nn_op_class nn_op_resize2d_backward = {
    .name = "resize2d_backward", .infer = resize2d_infer_backward, .reference = resize2d_reference_backward};
