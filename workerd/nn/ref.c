// SPDX-License-Identifier: Apache-2.0
//
// What each operator means, in loops as plain as they can be. Sums are kept in double: this is what the fast tables are
// measured against. Compiled a second time for the tests with nn_real = double.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/math/philox.h"
#include "workerd/nn/loss.h"
#include "workerd/nn/op.h"

struct nn_context {
    int threads;  // taken, and one used
};

struct nn_plan {
    union {
        struct nn_conv2d conv2d;
        struct nn_dense dense;
        struct nn_maxpool maxpool;
    };
};

static enum ps_code ref_open(int threads, struct nn_context **ctx, struct ps_error *e)
{
    (void)e;
    *ctx = ps_alloc(sizeof **ctx);
    (*ctx)->threads = threads;
    return PS_OK;
}

static void ref_close(struct nn_context *ctx)
{
    free(ctx);
}

static void ref_plan_free(struct nn_plan *plan)
{
    free(plan);
}

static const char *ref_plan_info(const struct nn_plan *plan)
{
    (void)plan;
    return "";
}

// Elementwise, and what conv2d and dense share

static void ref_relu_forward(size_t n, const nn_real *x, nn_real *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];  // a NaN stays one
}

static void ref_relu_backward(size_t n, const nn_real *y, const nn_real *dy, nn_real *dx)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

static nn_real ref_activate(enum nn_activation act, double x)
{
    return act == NN_RELU && x < 0 ? 0 : (nn_real)x;
}

// dy (rows, n) becomes the gradient before the activation; db (n) is its sum over the rows.
static void activation_bias_backward(enum nn_activation act, size_t rows, size_t n, const nn_real *y, nn_real *dy,
                                     nn_real *db)
{
    if (act == NN_RELU)
        ref_relu_backward(rows * n, y, dy, dy);
    for (size_t i = 0; db && i < n; i++) {
        double sum = 0;
        for (size_t r = 0; r < rows; r++)
            sum += dy[r * n + i];
        db[i] = (nn_real)sum;
    }
}

// conv2d

static enum ps_code ref_conv2d_plan(struct nn_context *ctx, const struct nn_conv2d *s, struct nn_plan **plan,
                                    struct ps_error *e)
{
    (void)ctx;
    enum ps_code code = nn_conv2d_check(s, e);
    if (code)
        return code;
    *plan = ps_alloc(sizeof **plan);
    (*plan)->conv2d = *s;
    return PS_OK;
}

static bool ref_inside(int i, int size)
{
    return i >= 0 && i < size;
}

// The channels of input pixel (n, y, x), of output pixel (n, y, x), and of the kernel's cell (ky, kx).
static size_t input_at(const struct nn_conv2d *s, int n, int y, int x)
{
    return (((size_t)n * s->h + y) * s->w + x) * s->c;
}

static size_t output_at(const struct nn_conv2d *s, int n, int y, int x)
{
    return (((size_t)n * s->oh + y) * s->ow + x) * s->oc;
}

static size_t kernel_at(const struct nn_conv2d *s, int ky, int kx)
{
    return ((size_t)ky * s->kw + kx) * s->c * s->oc;
}

// y[n, oy, ox, o] = sum over ky, kx, i of x[n, oy * sh + ky - pad, ox * sw + kx - pad, i] * w[ky, kx, i, o]
static double conv2d_sum(const struct nn_conv2d *s, const nn_real *x, const nn_real *w, int n, int oy, int ox, int o)
{
    double sum = 0;
    for (int ky = 0; ky < s->kh; ky++)
        for (int kx = 0; kx < s->kw; kx++) {
            int iy = oy * s->sh + ky - s->pad_top, ix = ox * s->sw + kx - s->pad_left;
            if (!ref_inside(iy, s->h) || !ref_inside(ix, s->w))
                continue;
            const nn_real *in = x + input_at(s, n, iy, ix), *kernel = w + kernel_at(s, ky, kx) + o;
            for (int i = 0; i < s->c; i++)
                sum += (double)in[i] * kernel[(size_t)i * s->oc];
        }
    return sum;
}

static void ref_conv2d_forward(struct nn_plan *p, const nn_real *x, const nn_real *w, const nn_real *b, nn_real *y)
{
    const struct nn_conv2d *s = &p->conv2d;
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++)
            for (int ox = 0; ox < s->ow; ox++)
                for (int o = 0; o < s->oc; o++)
                    y[output_at(s, n, oy, ox) + o] =
                        ref_activate(s->act, conv2d_sum(s, x, w, n, oy, ox, o) + (b ? b[o] : 0));
}

// dw[ky, kx, i, o]: every pair of an input and an output pixel that this weight joined.
static double conv2d_dw(const struct nn_conv2d *s, const nn_real *x, const nn_real *dy, int ky, int kx, int i, int o)
{
    double sum = 0;
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++)
            for (int ox = 0; ox < s->ow; ox++) {
                int iy = oy * s->sh + ky - s->pad_top, ix = ox * s->sw + kx - s->pad_left;
                if (ref_inside(iy, s->h) && ref_inside(ix, s->w))
                    sum += (double)x[input_at(s, n, iy, ix) + i] * dy[output_at(s, n, oy, ox) + o];
            }
    return sum;
}

static void conv2d_backward_weights(const struct nn_conv2d *s, const nn_real *x, const nn_real *dy, nn_real *dw)
{
    for (int ky = 0; ky < s->kh; ky++)
        for (int kx = 0; kx < s->kw; kx++)
            for (int i = 0; i < s->c; i++)
                for (int o = 0; o < s->oc; o++)
                    dw[kernel_at(s, ky, kx) + (size_t)i * s->oc + o] = (nn_real)conv2d_dw(s, x, dy, ky, kx, i, o);
}

// What the output pixel (n, oy, ox) with gradient dy (oc) gives back to the pixels that it came from.
static void conv2d_scatter(const struct nn_conv2d *s, const nn_real *w, const nn_real *dy, int n, int oy, int ox,
                           nn_real *dx)
{
    for (int ky = 0; ky < s->kh; ky++)
        for (int kx = 0; kx < s->kw; kx++) {
            int iy = oy * s->sh + ky - s->pad_top, ix = ox * s->sw + kx - s->pad_left;
            if (!ref_inside(iy, s->h) || !ref_inside(ix, s->w))
                continue;
            nn_real *in = dx + input_at(s, n, iy, ix);
            const nn_real *kernel = w + kernel_at(s, ky, kx);
            for (int i = 0; i < s->c; i++)
                for (int o = 0; o < s->oc; o++)
                    in[i] += kernel[(size_t)i * s->oc + o] * dy[o];
        }
}

static void conv2d_backward_data(const struct nn_conv2d *s, const nn_real *w, const nn_real *dy, nn_real *dx)
{
    memset(dx, 0, input_at(s, s->n, 0, 0) * sizeof *dx);
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++)
            for (int ox = 0; ox < s->ow; ox++)
                conv2d_scatter(s, w, dy + output_at(s, n, oy, ox), n, oy, ox, dx);
}

static void ref_conv2d_backward(struct nn_plan *p, const nn_real *x, const nn_real *w, const nn_real *y, nn_real *dy,
                                nn_real *dx, nn_real *dw, nn_real *db)
{
    const struct nn_conv2d *s = &p->conv2d;
    activation_bias_backward(s->act, (size_t)s->n * s->oh * s->ow, (size_t)s->oc, y, dy, db);
    if (dw)
        conv2d_backward_weights(s, x, dy, dw);
    if (dx)
        conv2d_backward_data(s, w, dy, dx);
}

// dense

static enum ps_code ref_dense_plan(struct nn_context *ctx, const struct nn_dense *s, struct nn_plan **plan,
                                   struct ps_error *e)
{
    (void)ctx;
    enum ps_code code = nn_dense_check(s, e);
    if (code)
        return code;
    *plan = ps_alloc(sizeof **plan);
    (*plan)->dense = *s;
    return PS_OK;
}

// sum over k < n of a[k * a_step] * b[k * b_step]
static double ref_dot(size_t n, const nn_real *a, size_t a_step, const nn_real *b, size_t b_step)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += (double)a[k * a_step] * b[k * b_step];
    return sum;
}

// y = x w + b
static void ref_dense_forward(struct nn_plan *p, const nn_real *x, const nn_real *w, const nn_real *b, nn_real *y)
{
    const struct nn_dense *s = &p->dense;
    size_t n = (size_t)s->n, in = (size_t)s->in, out = (size_t)s->out;
    for (size_t r = 0; r < n; r++)
        for (size_t o = 0; o < out; o++)
            y[r * out + o] = ref_activate(s->act, ref_dot(in, x + r * in, 1, w + o, out) + (b ? b[o] : 0));
}

// dw = x^T dy, dx = dy w^T
static void ref_dense_backward(struct nn_plan *p, const nn_real *x, const nn_real *w, const nn_real *y, nn_real *dy,
                               nn_real *dx, nn_real *dw, nn_real *db)
{
    const struct nn_dense *s = &p->dense;
    size_t n = (size_t)s->n, in = (size_t)s->in, out = (size_t)s->out;
    activation_bias_backward(s->act, n, out, y, dy, db);
    for (size_t i = 0; dw && i < in; i++)
        for (size_t o = 0; o < out; o++)
            dw[i * out + o] = (nn_real)ref_dot(n, x + i, in, dy + o, out);
    for (size_t r = 0; dx && r < n; r++)
        for (size_t i = 0; i < in; i++)
            dx[r * in + i] = (nn_real)ref_dot(out, dy + r * out, 1, w + i * out, 1);
}

// maxpool

static enum ps_code ref_maxpool_plan(struct nn_context *ctx, const struct nn_maxpool *s, struct nn_plan **plan,
                                     struct ps_error *e)
{
    (void)ctx;
    enum ps_code code = nn_maxpool_check(s, e);
    if (code)
        return code;
    *plan = ps_alloc(sizeof **plan);
    (*plan)->maxpool = *s;
    return PS_OK;
}

// Element of x under cell k of the window at (oy, ox), or -1 where that is outside the image.
static ptrdiff_t maxpool_source(const struct nn_maxpool *s, int n, int oy, int ox, int c, int k)
{
    int iy = oy * s->sh - s->pad_top + k / s->pw, ix = ox * s->sw - s->pad_left + k % s->pw;
    if (!ref_inside(iy, s->h) || !ref_inside(ix, s->w))
        return -1;
    return (((ptrdiff_t)n * s->h + iy) * s->w + ix) * s->c + c;
}

static int maxpool_argmax(const struct nn_maxpool *s, const nn_real *x, int n, int oy, int ox, int c)
{
    int best = -1;
    nn_real max = 0;
    for (int k = 0; k < s->ph * s->pw; k++) {
        ptrdiff_t i = maxpool_source(s, n, oy, ox, c, k);
        if (i >= 0 && (best < 0 || x[i] > max || (isnan(x[i]) && !isnan(max)))) {
            best = k;
            max = x[i];
        }
    }
    return best;
}

static void ref_maxpool_forward(struct nn_plan *p, const nn_real *x, nn_real *y, uint8_t *at)
{
    const struct nn_maxpool *s = &p->maxpool;
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++)
            for (int ox = 0; ox < s->ow; ox++)
                for (int c = 0; c < s->c; c++, y++, at++) {
                    *at = (uint8_t)maxpool_argmax(s, x, n, oy, ox, c);
                    *y = x[maxpool_source(s, n, oy, ox, c, *at)];
                }
}

static void ref_maxpool_backward(struct nn_plan *p, const nn_real *dy, const uint8_t *at, nn_real *dx)
{
    const struct nn_maxpool *s = &p->maxpool;
    memset(dx, 0, (size_t)s->n * s->h * s->w * s->c * sizeof *dx);
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++)
            for (int ox = 0; ox < s->ow; ox++)
                for (int c = 0; c < s->c; c++, dy++, at++)
                    dx[maxpool_source(s, n, oy, ox, c, *at)] += *dy;
}

// dropout

static void ref_dropout(int rows, int per, const uint64_t *example, float rate, uint64_t seed, uint32_t layer,
                        uint32_t step, const nn_real *x, nn_real *y)
{
    nn_real scale = (nn_real)(1 / (1 - rate));
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < per; j++, x++, y++) {
            uint64_t element = example[r] * (uint64_t)per + (uint64_t)j;
            uint32_t draw[4];
            ps_philox(seed, PS_RANDOM_DROPOUT, (uint64_t)layer << 32 | step, element / 4, draw);
            *y = ps_uniform(draw[element % 4]) >= rate ? *x * scale : 0;
        }
}

const struct nn_ops nn_ref_ops = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .plan_free = ref_plan_free,
    .plan_info = ref_plan_info,
    .conv2d_plan = ref_conv2d_plan,
    .conv2d_forward = ref_conv2d_forward,
    .conv2d_backward = ref_conv2d_backward,
    .dense_plan = ref_dense_plan,
    .dense_forward = ref_dense_forward,
    .dense_backward = ref_dense_backward,
    .maxpool_plan = ref_maxpool_plan,
    .maxpool_forward = ref_maxpool_forward,
    .maxpool_backward = ref_maxpool_backward,
    .relu_forward = ref_relu_forward,
    .relu_backward = ref_relu_backward,
    .softmax_forward = nn_softmax_forward,
    .softmax_backward = nn_softmax_backward,
    .dropout = ref_dropout,
    .softmax_xent = nn_softmax_xent,
    .sparse_xent = nn_sparse_xent,
    .mse = nn_mse,
};
