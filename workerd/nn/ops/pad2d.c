// SPDX-License-Identifier: Apache-2.0
//
// An image put into a frame of another size: zeros around it, or less of it. Its gradient is put back the same way.
#include "workerd/nn/ops/pad2d.h"

#include "workerd/nn/tape.h"

static enum ps_code pad2d_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_pad2d *a = (const struct nn_pad2d *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (x->rank != 4 || a->out[0] < 1 || a->out[1] < 1)
        return nn_op_fail(op, e, "expected an image, and a frame of 1x1 or more");
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {x->dim[0], a->out[0], a->out[1], x->dim[3]}};
    return PS_OK;
}

static void pad2d_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    const struct nn_pad2d *a = (const struct nn_pad2d *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    const struct nn_pad2d back = {{-a->begin[0], -a->begin[1]}, {(int)x->dim[1], (int)x->dim[2]}};
    (void)wanted;
    nn_tape_put(t, &nn_op_pad2d, &back, sizeof back, &dy[0], 1, dx, 1);
}

static void pad2d_reference(const struct nn_frame *f)
{
    const struct nn_pad2d *a = (const struct nn_pad2d *)f->op->attr;
    const int64_t *in = f->op->in_type[0].dim;
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    for (int64_t n = 0; n < in[0]; n++)
        for (int oy = 0; oy < a->out[0]; oy++)
            for (int ox = 0; ox < a->out[1]; ox++) {
                int64_t iy = (int64_t)oy - a->begin[0], ix = (int64_t)ox - a->begin[1];
                bool inside = iy >= 0 && iy < in[1] && ix >= 0 && ix < in[2];
                for (int64_t c = 0; c < in[3]; c++)
                    *y++ = inside ? x[((n * in[1] + iy) * in[2] + ix) * in[3] + c] : 0;
            }
}

const struct nn_op_class nn_op_pad2d = {
    .name = "pad2d", .infer = pad2d_infer, .differentiate = pad2d_differentiate, .reference = pad2d_reference};
