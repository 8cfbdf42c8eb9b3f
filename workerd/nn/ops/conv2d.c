// SPDX-License-Identifier: Apache-2.0
//
// Convolution: y[n, oy, ox, o] = act(bias[o] + sum over ky, kx, i of x[n, oy * stride + ky * dilation - pad, ..., i] *
// kernel[ky, kx, i, o]), as Keras's Conv2D (a cross-correlation); i counts the channels of the group that o is in. Sums
// are kept in double.
//
// The gradient by x, which gives each pixel of y back to those that it came from, is a transposed convolution, and used
// as one: the gradient of that is the convolution again.
#include <string.h>

#include "workerd/nn/tape.h"

// c, oc: channels; per_c, per_oc: of one group.
struct dims {
    int n, h, w, c, kh, kw, oh, ow, oc, per_c, per_oc;
    const struct nn_conv2d *a;
};

static struct dims conv2d_dims(const struct nn_conv2d *a, const struct nn_type *x, const struct nn_type *y)
{
    const int c = (int)x->dim[3], oc = (int)y->dim[3];
    return (struct dims){(int)x->dim[0],
                         a->image[0],
                         a->image[1],
                         c,
                         a->kernel[0],
                         a->kernel[1],
                         (int)y->dim[1],
                         (int)y->dim[2],
                         oc,
                         c / a->groups,
                         oc / a->groups,
                         a};
}

// ---- types --------------------------------------------------------------------------------------------------------

// How many places a window has along one axis of a padded image.
static int64_t conv2d_places(const struct nn_conv2d *a, int axis)
{
    int64_t size = (int64_t)a->image[axis] + a->pad_begin[axis] + a->pad_end[axis];
    int64_t reach = (int64_t)(a->kernel[axis] - 1) * a->dilation[axis] + 1;
    return size < reach ? 0 : (size - reach) / a->stride[axis] + 1;
}

// Does a kernel's type fit the attributes?
static bool conv2d_kernel_fits(const struct nn_conv2d *a, const struct nn_type *k)
{
    return k->rank == 4 && k->dim[0] == a->kernel[0] && k->dim[1] == a->kernel[1] && a->groups >= 1 &&
           a->dilation[0] >= 1 && a->dilation[1] >= 1 && k->dim[3] % a->groups == 0;
}

static enum ps_code conv2d_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_conv2d *a = (const struct nn_conv2d *)op->attr;
    const struct nn_type *x = &op->in_type[0], *k = &op->in_type[1];
    if (!conv2d_kernel_fits(a, k) || x->rank != 4 || x->dim[3] != k->dim[2] * a->groups || x->dim[1] != a->image[0] ||
        x->dim[2] != a->image[1])
        return nn_op_fail(op, e, "the image or the kernel is not as its attributes say");
    if (a->bias != (op->n_in == 3) || (a->bias && op->in_type[2].dim[0] != k->dim[3]))
        return nn_op_fail(op, e, "expected a bias of %d elements", (int)k->dim[3]);
    int64_t oh = conv2d_places(a, 0), ow = conv2d_places(a, 1);
    if (oh < 1 || ow < 1)
        return nn_op_fail(op, e, "a kernel of %dx%d does not fit an image of %dx%d", a->kernel[0], a->kernel[1],
                          a->image[0], a->image[1]);
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {x->dim[0], oh, ow, k->dim[3]}};
    return PS_OK;
}

static enum ps_code conv2d_infer_data(struct nn_op *op, struct ps_error *e)
{
    const struct nn_conv2d *a = (const struct nn_conv2d *)op->attr;
    const struct nn_type *k = &op->in_type[0], *dy = &op->in_type[1];
    if (!conv2d_kernel_fits(a, k) || dy->rank != 4 || dy->dim[3] != k->dim[3] || dy->dim[1] != conv2d_places(a, 0) ||
        dy->dim[2] != conv2d_places(a, 1))
        return nn_op_fail(op, e, "the image or the kernel is not as its attributes say");
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {dy->dim[0], a->image[0], a->image[1], k->dim[2] * a->groups}};
    return PS_OK;
}

static enum ps_code conv2d_infer_weights(struct nn_op *op, struct ps_error *e)
{
    const struct nn_conv2d *a = (const struct nn_conv2d *)op->attr;
    const struct nn_type *x = &op->in_type[0], *dy = &op->in_type[1];
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {a->kernel[0], a->kernel[1], x->dim[3] / a->groups, dy->dim[3]}};
    op->out_type[1] = (struct nn_type){NN_FLOAT, 1, {dy->dim[3]}};
    return PS_OK;
}

// ---- gradient -----------------------------------------------------------------------------------------------------

static void conv2d_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    const struct nn_conv2d *a = (const struct nn_conv2d *)op->attr;
    int dz = dy[0], dw[2];
    if (a->act == NN_RELU)
        nn_tape_put(t, &nn_op_relu_backward, NULL, 0, (int[]){op->out[0], dy[0]}, 2, &dz, 1);
    if (wanted[1] || (a->bias && wanted[2])) {
        nn_tape_put(t, &nn_op_conv2d_backward_weights, a, sizeof *a, (int[]){op->in[0], dz}, 2, dw, 1 + a->bias);
        dx[1] = dw[0];
        if (a->bias)
            dx[2] = dw[1];
    }
    if (wanted[0])
        nn_tape_put(t, &nn_op_conv2d_backward_data, a, sizeof *a, (int[]){op->in[1], dz}, 2, &dx[0], 1);
}

// Of dx = transposed convolution of dy: dy[0] is the gradient by dx.
static void conv2d_differentiate_data(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                      int *dx)
{
    struct nn_conv2d a = *(const struct nn_conv2d *)op->attr;
    a.act = NN_LINEAR;
    a.bias = false;
    if (wanted[0])
        nn_tape_put(t, &nn_op_conv2d_backward_weights, &a, sizeof a, (int[]){dy[0], op->in[1]}, 2, &dx[0], 1);
    if (wanted[1])
        nn_tape_put(t, &nn_op_conv2d, &a, sizeof a, (int[]){dy[0], op->in[0]}, 2, &dx[1], 1);
}

// ---- reference ----------------------------------------------------------------------------------------------------

// The channels of input pixel (n, y, x), of output pixel (n, y, x), and of the kernel's cell (ky, kx).
static size_t input_at(const struct dims *d, int n, int y, int x)
{
    return (((size_t)n * (size_t)d->h + (size_t)y) * (size_t)d->w + (size_t)x) * (size_t)d->c;
}

static size_t output_at(const struct dims *d, int n, int y, int x)
{
    return (((size_t)n * (size_t)d->oh + (size_t)y) * (size_t)d->ow + (size_t)x) * (size_t)d->oc;
}

static size_t kernel_at(const struct dims *d, int ky, int kx)
{
    return ((size_t)ky * (size_t)d->kw + (size_t)kx) * (size_t)d->per_c * (size_t)d->oc;
}

// The first channel of x that output channel o is made from.
static size_t first_input_of(const struct dims *d, int o)
{
    return (size_t)(o / d->per_oc) * (size_t)d->per_c;
}

// The input pixel under cell (ky, kx) of the window at (oy, ox), if it lies in the image.
static bool input_under(const struct dims *d, int oy, int ox, int ky, int kx, int *iy, int *ix)
{
    *iy = oy * d->a->stride[0] + ky * d->a->dilation[0] - d->a->pad_begin[0];
    *ix = ox * d->a->stride[1] + kx * d->a->dilation[1] - d->a->pad_begin[1];
    return *iy >= 0 && *iy < d->h && *ix >= 0 && *ix < d->w;
}

static double conv2d_sum(const struct dims *d, const nn_real *x, const nn_real *w, int n, int oy, int ox, int o)
{
    double sum = 0;
    int iy, ix;
    for (int ky = 0; ky < d->kh; ky++)
        for (int kx = 0; kx < d->kw; kx++) {
            if (!input_under(d, oy, ox, ky, kx, &iy, &ix))
                continue;
            const nn_real *in = x + input_at(d, n, iy, ix) + first_input_of(d, o);
            const nn_real *kernel = w + kernel_at(d, ky, kx) + o;
            for (int i = 0; i < d->per_c; i++)
                sum += (double)in[i] * kernel[i * d->oc];
        }
    return sum;
}

static void conv2d_reference(const struct nn_frame *f)
{
    const struct nn_conv2d *a = (const struct nn_conv2d *)f->op->attr;
    const struct dims d = conv2d_dims(a, &f->op->in_type[0], &f->op->out_type[0]);
    const nn_real *b = a->bias ? f->in[2] : NULL;
    nn_real *y = f->out[0];
    for (int n = 0; n < d.n; n++)
        for (int oy = 0; oy < d.oh; oy++)
            for (int ox = 0; ox < d.ow; ox++)
                for (int o = 0; o < d.oc; o++) {
                    double v = conv2d_sum(&d, f->in[0], f->in[1], n, oy, ox, o) + (b ? b[o] : 0);
                    y[output_at(&d, n, oy, ox) + (size_t)o] = a->act == NN_RELU && v < 0 ? 0 : (nn_real)v;
                }
}

// Every pair of an input and an output pixel that this weight joined. i: the channel of x.
static double conv2d_weight_sum(const struct dims *d, const nn_real *x, const nn_real *dy, int ky, int kx, size_t i,
                                int o)
{
    double sum = 0;
    int iy, ix;
    for (int n = 0; n < d->n; n++)
        for (int oy = 0; oy < d->oh; oy++)
            for (int ox = 0; ox < d->ow; ox++)
                if (input_under(d, oy, ox, ky, kx, &iy, &ix))
                    sum += (double)x[input_at(d, n, iy, ix) + i] * dy[output_at(d, n, oy, ox) + (size_t)o];
    return sum;
}

static void conv2d_reference_weights(const struct nn_frame *f)
{
    const struct dims d = conv2d_dims((const struct nn_conv2d *)f->op->attr, &f->op->in_type[0], &f->op->in_type[1]);
    const nn_real *dy = f->in[1];
    nn_real *dw = f->out[0], *db = f->op->n_out > 1 ? f->out[1] : NULL;
    for (int ky = 0; ky < d.kh; ky++)
        for (int kx = 0; kx < d.kw; kx++)
            for (int i = 0; i < d.per_c; i++)
                for (int o = 0; o < d.oc; o++)
                    dw[kernel_at(&d, ky, kx) + (size_t)(i * d.oc + o)] =
                        (nn_real)conv2d_weight_sum(&d, f->in[0], dy, ky, kx, first_input_of(&d, o) + (size_t)i, o);
    for (int o = 0; db && o < d.oc; o++) {
        double sum = 0;
        for (size_t r = 0; r < (size_t)d.n * (size_t)d.oh * (size_t)d.ow; r++)
            sum += dy[r * (size_t)d.oc + (size_t)o];
        db[o] = (nn_real)sum;
    }
}

// What the output pixel (n, oy, ox) with gradient dy (oc) gives back to the pixels that it came from.
static void conv2d_scatter(const struct dims *d, const nn_real *w, const nn_real *dy, int n, int oy, int ox,
                           nn_real *dx)
{
    int iy, ix;
    for (int ky = 0; ky < d->kh; ky++)
        for (int kx = 0; kx < d->kw; kx++) {
            if (!input_under(d, oy, ox, ky, kx, &iy, &ix))
                continue;
            nn_real *in = dx + input_at(d, n, iy, ix);
            const nn_real *kernel = w + kernel_at(d, ky, kx);
            for (int i = 0; i < d->per_c; i++)
                for (int o = 0; o < d->oc; o++)
                    in[first_input_of(d, o) + (size_t)i] += kernel[i * d->oc + o] * dy[o];
        }
}

static void conv2d_reference_data(const struct nn_frame *f)
{
    const struct dims d = conv2d_dims((const struct nn_conv2d *)f->op->attr, &f->op->out_type[0], &f->op->in_type[1]);
    const nn_real *dy = f->in[1];
    memset(f->out[0], 0, nn_type_bytes(&f->op->out_type[0]));
    for (int n = 0; n < d.n; n++)
        for (int oy = 0; oy < d.oh; oy++)
            for (int ox = 0; ox < d.ow; ox++)
                conv2d_scatter(&d, f->in[0], dy + output_at(&d, n, oy, ox), n, oy, ox, f->out[0]);
}

// Cells of windows outside the image count: whoever measures convolutions counts so.
static double conv2d_count(const struct nn_type *kernel, const struct nn_type *y)
{
    return 2.0 * (double)nn_type_count(kernel) * (double)(nn_type_count(y) / (size_t)y->dim[3]);
}

static double conv2d_flop(const struct nn_op *op)
{
    return conv2d_count(&op->in_type[1], &op->out_type[0]);
}

static double conv2d_flop_data(const struct nn_op *op)
{
    return conv2d_count(&op->in_type[0], &op->in_type[1]);
}

static double conv2d_flop_weights(const struct nn_op *op)
{
    return conv2d_count(&op->out_type[0], &op->in_type[1]);
}

const struct nn_op_class nn_op_conv2d = {.name = "conv2d",
                                         .infer = conv2d_infer,
                                         .differentiate = conv2d_differentiate,
                                         .reference = conv2d_reference,
                                         .flop = conv2d_flop};
const struct nn_op_class nn_op_conv2d_backward_data = {.name = "conv2d_backward_data",
                                                       .infer = conv2d_infer_data,
                                                       .differentiate = conv2d_differentiate_data,
                                                       .reference = conv2d_reference_data,
                                                       .flop = conv2d_flop_data};
const struct nn_op_class nn_op_conv2d_backward_weights = {.name = "conv2d_backward_weights",
                                                          .infer = conv2d_infer_weights,
                                                          .reference = conv2d_reference_weights,
                                                          .flop = conv2d_flop_weights};
