// SPDX-License-Identifier: Apache-2.0
//
// What moves and adds pixels, all channels of one at once: average-pooling, frames, larger images, biases.
#include <string.h>

#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/ops/avgpool.h"
#include "workerd/nn/ops/pad2d.h"
#include "workerd/nn/ops/resize2d.h"

// y (n) += by * x
PS_PER_CPU static void pixel_add(size_t n, float by, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += by * x[i];
}

// y (n) = sum of part[k] * x[k] (n)
PS_PER_CPU static void pixel_mix(size_t n, const float *const x[4], const float part[4], float *restrict y)
{
    const float *a = x[0], *b = x[1], *c = x[2], *d = x[3];
    for (size_t i = 0; i < n; i++)
        y[i] = (part[0] * a[i] + part[1] * b[i]) + (part[2] * c[i] + part[3] * d[i]);
}

// Part works on images of this type, or of as many pixels.
static void image_share(const struct nn_frame *f, const struct nn_type *images, nn_cpu_part *part)
{
    const size_t n = (size_t)images->dim[0];
    nn_cpu_share(f->context, n, nn_cpu_least(nn_type_count(images) / n), part, (void *)f);
}

// ---- average-pooling ----------------------------------------------------------------------------------------------

// All cells of a window: sums x's into y, or, backward, y's into each of x.
static void avgpool_window(const struct nn_pool2d *a, int oy, int ox, size_t channels, float *x, float *y,
                           bool backward)
{
    int y0, y1, x0, x1;
    nn_pool2d_inside(a, 0, oy, &y0, &y1);
    nn_pool2d_inside(a, 1, ox, &x0, &x1);
    const float by = 1 / ((float)(y1 - y0) * (float)(x1 - x0));
    for (int iy = y0; iy < y1; iy++)
        for (int ix = x0; ix < x1; ix++) {
            float *cell = x + ((size_t)iy * (size_t)a->image[1] + (size_t)ix) * channels;
            pixel_add(channels, by, backward ? y : cell, backward ? cell : y);
        }
}

// Of the images [first, last) all windows. What they are added to is 0 before.
static void avgpool_images(const struct nn_frame *f, const struct nn_type *small, float *x, float *y, size_t first,
                           size_t last, bool backward)
{
    const struct nn_pool2d *a = (const struct nn_pool2d *)f->op->attr;
    const size_t channels = (size_t)small->dim[3], image = (size_t)a->image[0] * (size_t)a->image[1] * channels;
    const size_t cells = (size_t)a->out[0] * (size_t)a->out[1] * channels;
    float *to = backward ? x : y;
    const size_t each = backward ? image : cells;
    memset(to + first * each, 0, (last - first) * each * sizeof *to);
    y += first * cells;
    for (size_t n = first; n < last; n++)
        for (int oy = 0; oy < a->out[0]; oy++)
            for (int ox = 0; ox < a->out[1]; ox++, y += channels)
                avgpool_window(a, oy, ox, channels, x + n * image, y, backward);
}

static void avgpool_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    avgpool_images(f, &f->op->out_type[0], f->in[0], f->out[0], first, last, false);
}

static void avgpool_part_backward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    avgpool_images(f, &f->op->in_type[0], f->out[0], f->in[0], first, last, true);
}

static void avgpool_run(const struct nn_frame *f)
{
    image_share(f, &f->op->in_type[0], avgpool_part);
}

static void avgpool_run_backward(const struct nn_frame *f)
{
    image_share(f, &f->op->out_type[0], avgpool_part_backward);
}

// ---- frames -------------------------------------------------------------------------------------------------------

// One row of y from one of x, of h and w pixels. row: of x, or outside.
static void pad2d_row(const struct nn_pad2d *a, const int64_t in[4], int64_t row, const float *x, float *y)
{
    const int64_t begin = a->begin[1], out = a->out[1], channels = in[3];
    const int64_t first = begin > 0 ? begin : 0, last = begin + in[2] < out ? begin + in[2] : out;
    memset(y, 0, (size_t)(out * channels) * sizeof *y);
    if (row >= 0 && row < in[1] && first < last)
        memcpy(y + first * channels, x + (row * in[2] + first - begin) * channels,
               (size_t)((last - first) * channels) * sizeof *y);
}

static void pad2d_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_pad2d *a = (const struct nn_pad2d *)f->op->attr;
    const int64_t *in = f->op->in_type[0].dim, row = a->out[1] * in[3];
    for (size_t n = first; n < last; n++)
        for (int64_t oy = 0; oy < a->out[0]; oy++)
            pad2d_row(a, in, oy - a->begin[0], (const float *)f->in[0] + (int64_t)n * in[1] * in[2] * in[3],
                      (float *)f->out[0] + ((int64_t)n * a->out[0] + oy) * row);
}

static void pad2d_run(const struct nn_frame *f)
{
    image_share(f, &f->op->out_type[0], pad2d_part);
}

// ---- images of another size ----------------------------------------------------------------------------------------

// The pixels of x (one image) that one of y comes from, and what each counts.
static void resize_sources(const struct nn_resize2d *a, const int64_t from[4], int oy, int ox, int64_t at[4],
                           float part[4])
{
    const struct nn_resize_tap v = nn_resize_tap_of(a, 0, oy), h = nn_resize_tap_of(a, 1, ox);
    const int64_t row[] = {v.at, v.at, v.next, v.next}, column[] = {h.at, h.next, h.at, h.next};
    const float down[] = {1 - v.part, v.part}, across[] = {1 - h.part, h.part};
    for (int i = 0; i < 4; i++) {
        at[i] = (row[i] * from[2] + column[i]) * from[3];
        part[i] = down[i / 2] * across[i % 2];
    }
}

static void resize_pixel(const struct nn_resize2d *a, const int64_t from[4], int oy, int ox, const float *x, float *y)
{
    int64_t at[4];
    float part[4];
    resize_sources(a, from, oy, ox, at, part);
    if (part[0] == 1)
        memcpy(y, x + at[0], (size_t)from[3] * sizeof *y);
    else
        pixel_mix((size_t)from[3], (const float *const[]){x + at[0], x + at[1], x + at[2], x + at[3]}, part, y);
}

static void resize2d_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_resize2d *a = (const struct nn_resize2d *)f->op->attr;
    const int64_t *from = f->op->in_type[0].dim, *to = f->op->out_type[0].dim;
    const float *x = (const float *)f->in[0] + (int64_t)first * from[1] * from[2] * from[3];
    float *y = (float *)f->out[0] + (int64_t)first * to[1] * to[2] * to[3];
    for (size_t n = first; n < last; n++, x += from[1] * from[2] * from[3])
        for (int oy = 0; oy < to[1]; oy++)
            for (int ox = 0; ox < to[2]; ox++, y += to[3])
                resize_pixel(a, from, oy, ox, x, y);
}

static void resize2d_run(const struct nn_frame *f)
{
    image_share(f, &f->op->out_type[0], resize2d_part);
}

static void resize2d_part_backward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_resize2d *a = (const struct nn_resize2d *)f->op->attr;
    const int64_t *from = f->op->out_type[0].dim, *to = f->op->in_type[0].dim;
    const size_t image = (size_t)(from[1] * from[2] * from[3]);
    const float *dy = (const float *)f->in[0] + (int64_t)first * to[1] * to[2] * to[3];
    float *dx = (float *)f->out[0] + first * image;
    memset(dx, 0, (last - first) * image * sizeof *dx);
    for (size_t n = first; n < last; n++, dx += image)
        for (int oy = 0; oy < to[1]; oy++)
            for (int ox = 0; ox < to[2]; ox++, dy += to[3]) {
                int64_t at[4];
                float part[4];
                resize_sources(a, from, oy, ox, at, part);
                for (int i = 0; i < 4; i++)
                    if (part[i] != 0)
                        pixel_add((size_t)to[3], part[i], dy, dx + at[i]);
            }
}

static void resize2d_run_backward(const struct nn_frame *f)
{
    image_share(f, &f->op->in_type[0], resize2d_part_backward);
}

// ---- biases -------------------------------------------------------------------------------------------------------

static void bias_run(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->out_type[0];
    if (f->out[0] != f->in[0])
        nn_cpu_copy.run(f);
    nn_cpu_bias_activation(f->context, NN_LINEAR, nn_type_rows(type), (size_t)f->op->in_type[1].dim[0], f->in[1],
                           f->out[0]);
}

static void bias_run_backward(const struct nn_frame *f)
{
    nn_cpu_sum_rows(f->context, nn_type_rows(&f->op->in_type[0]), (size_t)f->op->out_type[0].dim[0], f->in[0],
                    f->out[0]);
}

const struct nn_kernel nn_cpu_avgpool = {.run = avgpool_run};
const struct nn_kernel nn_cpu_avgpool_backward = {.run = avgpool_run_backward};
const struct nn_kernel nn_cpu_bias = {.run = bias_run};
const struct nn_kernel nn_cpu_bias_backward = {.run = bias_run_backward};
const struct nn_kernel nn_cpu_pad2d = {.run = pad2d_run};
const struct nn_kernel nn_cpu_resize2d = {.run = resize2d_run};
const struct nn_kernel nn_cpu_resize2d_backward = {.run = resize2d_run_backward};
