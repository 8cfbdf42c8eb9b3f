// SPDX-License-Identifier: Apache-2.0
//
// A convolution and the pooling of what it gives, by our own vector code (conv2d_pool_isa.h): the forward pass keeps
// the four sums of a cell in registers and writes the greatest; the backward pass takes of each cell and channel the
// one position that has a gradient, where a convolution of its own would compute all four.
//
// Where the image is padded, or a run of it is not a whole number of vectors, images are copied to where there is room
// around them.
#include "workerd/nn/cpu/conv2d_pool.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/ops/conv2d_pool.h"

// Of one of the three operators.
struct pool_plan {
    struct conv2d_pool shape;
    const struct conv2d_pool_isa *isa;
    bool apart;      // images are copied
    int h, w;        // of the tensor's image
    int top, left;   // padding
    float *image;    // a copy of one image, and a vector of room behind it
    float *kernel;   // forward: packed; backward: (oc, kh, run_padded)
    float *scratch;  // of Winograd's tiles; NULL: the sums are taken as they come
    int *taps;
    // Of an image, and of each channel: the cells that have a gradient.
    struct conv2d_pool_give *give;  // [oc][cells]
    int *gives;                     // [oc]
};

// ---- plans --------------------------------------------------------------------------------------------------------

int conv2d_pool_widest = 16;

static const struct conv2d_pool_isa *pool_isa(void)
{
#ifdef __x86_64__
    if (conv2d_pool_widest >= 16 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return &conv2d_pool_16;
    if (conv2d_pool_widest >= 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &conv2d_pool_8;
#endif
    return &conv2d_pool_4;
}

static int pool_whole(int n, int of)
{
    return (n + of - 1) / of * of;
}

// x and y: the types of the images and of their cells.
static struct pool_plan *pool_plan_new(const struct nn_op *op, const struct nn_type *x, const struct nn_type *y)
{
    const struct nn_conv2d *a = &((const struct nn_conv2d_pool *)op->attr)->conv;
    struct pool_plan *p = ps_alloc(sizeof *p);
    struct conv2d_pool *s = &p->shape;
    const int pad_w = a->pad_begin[1] + a->pad_end[1], pad_h = a->pad_begin[0] + a->pad_end[0];
    p->isa = pool_isa();
    p->h = (int)x->dim[1];
    p->w = (int)x->dim[2];
    p->top = a->pad_begin[0];
    p->left = a->pad_begin[1];
    *s = (struct conv2d_pool){.rows = (int)x->dim[0],
                              .kh = a->kernel[0],
                              .kw = a->kernel[1],
                              .c = (int)x->dim[3],
                              .oc = (int)y->dim[3],
                              .cells_y = (int)y->dim[1],
                              .cells_x = (int)y->dim[2],
                              .relu = a->act == NN_RELU};
    s->width = (p->w + pad_w) * s->c;
    s->image = (size_t)s->width * (size_t)(p->h + pad_h);
    s->cells = (size_t)(s->cells_y * s->cells_x) * (size_t)s->oc;
    s->run = s->kw * s->c;
    s->run_padded = pool_whole(s->run, p->isa->vector);
    p->apart = pad_w > 0 || pad_h > 0 || s->run != s->run_padded;
    p->image = ps_alloc_aligned((s->image + (size_t)p->isa->vector) * sizeof(float));
    memset(p->image, 0, (s->image + (size_t)p->isa->vector) * sizeof(float));
    return p;
}

// The kernel's channels in whole blocks.
static size_t pool_plan_channels(const struct pool_plan *p)
{
    return (size_t)pool_whole(p->shape.oc, 2 * p->isa->vector);
}

static void pool_plan_sums(struct pool_plan *p)
{
    const struct conv2d_pool *s = &p->shape;
    p->kernel = ps_alloc_aligned((size_t)(s->kh * s->run) * pool_plan_channels(p) * sizeof(float));
}

// What the backward pass needs.
static void pool_plan_gives(struct pool_plan *p)
{
    const struct conv2d_pool *s = &p->shape;
    p->kernel = ps_alloc_aligned((size_t)s->oc * (size_t)s->kh * (size_t)s->run_padded * sizeof(float));
    p->give = ps_alloc(s->cells * sizeof *p->give);
    p->gives = ps_alloc((size_t)s->oc * sizeof *p->gives);
}

static void pool_plan_taps(struct pool_plan *p)
{
    const struct conv2d_pool *s = &p->shape;
    const int n = s->kh * s->run;
    p->taps = ps_alloc((size_t)pool_whole(n, CONV2D_POOL_TAPS) * sizeof *p->taps);
    for (int i = 0; i < n; i++)
        p->taps[i] = i / s->run * s->width + i % s->run;
}

enum { TILED_CHANNELS = 8 };

static void pool_plan_tiles(struct pool_plan *p)
{
    const struct conv2d_pool *s = &p->shape;
    const size_t wide = 2 * (size_t)p->isa->vector;
    p->kernel = ps_alloc_aligned(16 * (size_t)s->c * pool_plan_channels(p) * sizeof(float));
    p->scratch = ps_alloc_aligned(16 * (size_t)p->isa->tiles * ((size_t)s->c + wide) * sizeof(float));
}

static enum ps_code pool_plan_forward(struct nn_context *context, const struct nn_op *op, void **plan,
                                      struct ps_error *e)
{
    (void)context;
    (void)e;
    struct pool_plan *p = pool_plan_new(op, &op->in_type[0], &op->out_type[0]);
    const struct conv2d_pool *s = &p->shape;
    // With few channels the transforms take longer than what they save.
    if (s->kh == 3 && s->kw == 3 && s->c >= TILED_CHANNELS)
        pool_plan_tiles(p);
    else
        pool_plan_sums(p);
    *plan = p;
    return PS_OK;
}

static enum ps_code pool_plan_weights(struct nn_context *context, const struct nn_op *op, void **plan,
                                      struct ps_error *e)
{
    (void)context;
    (void)e;
    struct pool_plan *p = pool_plan_new(op, &op->in_type[0], &op->in_type[1]);
    pool_plan_gives(p);
    pool_plan_taps(p);
    *plan = p;
    return PS_OK;
}

static enum ps_code pool_plan_data(struct nn_context *context, const struct nn_op *op, void **plan, struct ps_error *e)
{
    (void)context;
    (void)e;
    struct pool_plan *p = pool_plan_new(op, &op->out_type[0], &op->in_type[1]);
    pool_plan_gives(p);
    *plan = p;
    return PS_OK;
}

static void pool_plan_free(void *plan)
{
    struct pool_plan *p = plan;
    free(p->image);
    free(p->kernel);
    free(p->scratch);
    free(p->taps);
    free(p->give);
    free(p->gives);
    free(p);
}

// ---- images -------------------------------------------------------------------------------------------------------

static size_t pool_pixels(const struct pool_plan *p)
{
    return (size_t)p->h * (size_t)p->w * (size_t)p->shape.c;
}

// Row y of the tensor's image in the copy.
static float *pool_copy_row(const struct pool_plan *p, int y)
{
    return p->image + (size_t)(p->top + y) * (size_t)p->shape.width + (size_t)(p->left * p->shape.c);
}

static const float *pool_image(const struct pool_plan *p, const float *x, int n)
{
    const size_t row = (size_t)p->w * (size_t)p->shape.c;
    x += (size_t)n * pool_pixels(p);
    if (!p->apart)
        return x;
    for (int y = 0; y < p->h; y++)
        memcpy(pool_copy_row(p, y), x + (size_t)y * row, row * sizeof *x);
    return p->image;
}

// ---- runs ---------------------------------------------------------------------------------------------------------

static void pool_run_forward(const struct nn_frame *f)
{
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    const float *bias = f->op->n_in > 2 ? f->in[2] : NULL;
    (p->scratch ? p->isa->pack_tiles : p->isa->pack)(s, f->in[1], p->kernel);
    for (int n = 0; n < s->rows; n++) {
        const float *x = pool_image(p, f->in[0], n);
        float *y = (float *)f->out[0] + (size_t)n * s->cells;
        uint8_t *at = (uint8_t *)f->out[1] + (size_t)n * s->cells;
        if (p->scratch)
            p->isa->forward_tiles(s, x, p->kernel, bias, y, at, p->scratch);
        else
            p->isa->forward(s, x, p->kernel, bias, y, at);
    }
}

// The cells of image n that have a gradient, by channels. in: (...), y, at, dy.
static void pool_list_gives(const struct pool_plan *p, const struct nn_frame *f, int n)
{
    const struct conv2d_pool *s = &p->shape;
    const int32_t place[4] = {0, s->c, s->width, s->width + s->c};
    const size_t cells = (size_t)(s->cells_y * s->cells_x), first = (size_t)n * s->cells;
    const float *y = (const float *)f->in[1] + first, *dy = (const float *)f->in[3] + first;
    const uint8_t *at = (const uint8_t *)f->in[2] + first;
    memset(p->gives, 0, (size_t)s->oc * sizeof *p->gives);
    for (int cy = 0; cy < s->cells_y; cy++)
        for (int cx = 0; cx < s->cells_x; cx++, y += s->oc, at += s->oc, dy += s->oc) {
            const int32_t cell = 2 * (cy * s->width + cx * s->c);
            for (size_t c = 0; c < (size_t)s->oc; c++) {
                const bool none = dy[c] == 0 || (s->relu && !(y[c] > 0));
                p->give[c * cells + (size_t)p->gives[c]] = (struct conv2d_pool_give){cell + place[at[c]], dy[c]};
                p->gives[c] += !none;
            }
        }
}

// Sums in the order (oc, kh, run) to the kernel's (kh, run, oc).
static void pool_order_back(const struct conv2d_pool *s, const float *sum, float *kernel)
{
    for (int ky = 0; ky < s->kh; ky++)
        for (int t = 0; t < s->run; t++)
            for (int c = 0; c < s->oc; c++)
                *kernel++ = sum[((size_t)c * (size_t)s->kh + (size_t)ky) * (size_t)s->run_padded + (size_t)t];
}

static void pool_order(const struct conv2d_pool *s, const float *kernel, float *rows)
{
    for (int ky = 0; ky < s->kh; ky++)
        for (int t = 0; t < s->run; t++)
            for (int c = 0; c < s->oc; c++)
                rows[((size_t)c * (size_t)s->kh + (size_t)ky) * (size_t)s->run_padded + (size_t)t] = *kernel++;
}

static void pool_run_weights(const struct nn_frame *f)
{
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    const bool dense = s->run < p->isa->vector;
    const size_t rows = (size_t)s->kh * (size_t)s->run_padded;
    float *dkernel = f->out[0];
    memset(dense ? dkernel : p->kernel, 0, (dense ? (size_t)(s->kh * s->run) : rows) * (size_t)s->oc * sizeof(float));
    for (int n = 0; n < s->rows; n++) {
        const size_t first = (size_t)n * s->cells, cells = (size_t)(s->cells_y * s->cells_x);
        const float *x = pool_image(p, f->in[0], n);
        if (dense) {
            p->isa->weights_dense(s, x, p->taps, (const float *)f->in[1] + first, (const uint8_t *)f->in[2] + first,
                                  (const float *)f->in[3] + first, dkernel);
            continue;
        }
        pool_list_gives(p, f, n);
        for (size_t c = 0; c < (size_t)s->oc; c++)
            p->isa->weights(s, x, p->give + c * cells, p->gives[c], p->kernel + c * rows);
    }
    if (!dense)
        pool_order_back(s, p->kernel, dkernel);
    if (f->op->n_out > 1)
        p->isa->bias(s, f->in[1], f->in[3], f->out[1]);
}

static void pool_run_data(const struct nn_frame *f)
{
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    const size_t rows = (size_t)s->kh * (size_t)s->run_padded, row = (size_t)p->w * (size_t)s->c;
    if (s->run != s->run_padded)
        memset(p->kernel, 0, rows * (size_t)s->oc * sizeof(float));
    pool_order(s, f->in[0], p->kernel);
    for (int n = 0; n < s->rows; n++) {
        float *out = (float *)f->out[0] + (size_t)n * pool_pixels(p), *dx = p->apart ? p->image : out;
        memset(dx, 0, s->image * sizeof *dx);
        pool_list_gives(p, f, n);
        for (size_t c = 0; c < (size_t)s->oc; c++)
            p->isa->data(s, p->kernel + c * rows, p->give + c * (s->cells / (size_t)s->oc), p->gives[c], dx);
        for (int y = 0; p->apart && y < p->h; y++)
            memcpy(out + (size_t)y * row, pool_copy_row(p, y), row * sizeof *out);
    }
}

const struct nn_kernel nn_cpu_conv2d_pool = {pool_plan_forward, pool_run_forward, pool_plan_free, NULL};
const struct nn_kernel nn_cpu_conv2d_pool_backward_data = {pool_plan_data, pool_run_data, pool_plan_free, NULL};
const struct nn_kernel nn_cpu_conv2d_pool_backward_weights = {pool_plan_weights, pool_run_weights, pool_plan_free,
                                                              NULL};
