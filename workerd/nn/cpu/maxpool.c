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
    const struct nn_pool2d *a = (const struct nn_pool2d *)f->op->attr;
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

// Of windows of at most NN_POOL_BYTE cells, and of larger ones: the positions' type differs.
#define MAXPOOL_NAME(name) name##_bytes
#define POSITION uint8_t
#include "workerd/nn/cpu/maxpool_rows.h"
#undef MAXPOOL_NAME
#undef POSITION
#define MAXPOOL_NAME(name) name##_words
#define POSITION int32_t
#include "workerd/nn/cpu/maxpool_rows.h"

static size_t maxpool_cells(const struct maxpool *s)
{
    return (size_t)s->oh * (size_t)s->ow * (size_t)s->c;
}

static size_t maxpool_pixels(const struct maxpool *s)
{
    return (size_t)s->h * (size_t)s->w * (size_t)s->c;
}

static void maxpool_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    struct maxpool s = maxpool_of(f, &f->op->in_type[0]);
    const size_t to = first * maxpool_cells(&s);
    const float *x = (const float *)f->in[0] + first * maxpool_pixels(&s);
    float *y = (float *)f->out[0] + to;
    s.n = (int)(last - first);
    if (f->op->out_type[1].dtype == NN_UINT8)
        pool_bytes(&s, x, y, (uint8_t *)f->out[1] + to);
    else
        pool_words(&s, x, y, (int32_t *)f->out[1] + to);
}

static void maxpool_part_backward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    struct maxpool s = maxpool_of(f, &f->op->in_type[0]);
    const size_t from = first * maxpool_cells(&s), image = maxpool_pixels(&s);
    const float *dy = (const float *)f->in[0] + from;
    float *dx = (float *)f->out[0] + first * image;
    s.n = (int)(last - first);
    memset(dx, 0, (last - first) * image * sizeof *dx);
    if (f->op->in_type[1].dtype == NN_UINT8)
        unpool_bytes(&s, dy, (const uint8_t *)f->in[1] + from, dx);
    else
        unpool_words(&s, dy, (const int32_t *)f->in[1] + from, dx);
}

// images: the type of those that are pooled.
static void maxpool_share(const struct nn_frame *f, const struct nn_type *images, nn_cpu_part *part)
{
    const size_t n = (size_t)images->dim[0];
    nn_cpu_share(f->context, n, nn_cpu_least(nn_type_count(images) / n), part, (void *)f);
}

static void maxpool_run(const struct nn_frame *f)
{
    maxpool_share(f, &f->op->in_type[0], maxpool_part);
}

static void maxpool_run_backward(const struct nn_frame *f)
{
    maxpool_share(f, &f->op->out_type[0], maxpool_part_backward);
}

const struct nn_kernel nn_cpu_maxpool = {.run = maxpool_run};
const struct nn_kernel nn_cpu_maxpool_backward = {.run = maxpool_run_backward};
