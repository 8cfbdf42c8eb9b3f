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

// What one thread needs for itself.
struct pool_worker {
    float *image;    // a copy of one image, and a vector of room behind it
    float *scratch;  // of Winograd's tiles
    struct conv2d_pool_gives gives;
    float *sum;  // of weights_dense: the gradients of the kernel, then of the bias
};

// Of one of the three operators. Workers share its images; or, for the gradients of weights, where each channel has its
// own list, the channels; where there are no lists, each worker has a group of images, whose sums are added in order.
// There are as many as the context has threads, but of groups as many as the batch asks for: the bits follow from them.
struct pool_plan {
    struct conv2d_pool shape;
    const struct conv2d_pool_isa *isa;
    bool apart;     // images are copied
    bool tiles;     // forward by Winograd's
    int h, w;       // of the tensor's image
    int top, left;  // padding
    float *kernel;  // forward: packed; backward: (oc, kh, run_padded)
    int *taps;
    struct pool_worker *worker;
    int workers;
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
    return p;
}

// At most `most`, and each with so much to multiply that a thread is worth its start.
static int pool_threads(const struct pool_plan *p, const struct nn_context *context, int most)
{
    const struct conv2d_pool *s = &p->shape;
    const size_t products = (size_t)s->rows * s->cells * (size_t)(s->kh * s->run);
    const size_t worth = products / 16 / NN_CPU_SHARED + 1;
    most = context->threads < most ? context->threads : most;
    return worth < (size_t)most ? (int)worth : most;
}

static void pool_plan_workers(struct pool_plan *p, int workers)
{
    const size_t image = p->shape.image + (size_t)p->isa->vector;
    p->workers = workers > 0 ? workers : 1;
    p->worker = ps_alloc((size_t)p->workers * sizeof *p->worker);
    for (int i = 0; p->apart && i < p->workers; i++) {
        p->worker[i].image = ps_alloc_aligned(image * sizeof(float));
        memset(p->worker[i].image, 0, image * sizeof(float));
    }
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

// What lists need.
static void pool_plan_gives(struct pool_plan *p)
{
    const struct conv2d_pool *s = &p->shape;
    const size_t step = s->cells / (size_t)s->oc + (size_t)p->isa->vector, n = (size_t)s->oc * step;
    p->kernel = ps_alloc_aligned((size_t)s->oc * (size_t)s->kh * (size_t)s->run_padded * sizeof(float));
    for (int i = 0; i < p->workers; i++)
        p->worker[i].gives = (struct conv2d_pool_gives){.at = ps_alloc_aligned(n * sizeof(int32_t)),
                                                        .g = ps_alloc_aligned(n * sizeof(float)),
                                                        .n = ps_alloc((size_t)s->oc * sizeof(int)),
                                                        .step = step};
}

// What the gradients of the weights need where there are no lists.
static void pool_plan_sums_dense(struct pool_plan *p)
{
    const struct conv2d_pool *s = &p->shape;
    for (int i = 0; i < p->workers; i++)
        p->worker[i].sum = ps_alloc_aligned((size_t)(s->kh * s->run + 1) * (size_t)s->oc * sizeof(float));
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
    for (int i = 0; i < p->workers; i++)
        p->worker[i].scratch = ps_alloc_aligned(16 * (size_t)p->isa->tiles * ((size_t)s->c + wide) * sizeof(float));
}

static enum ps_code pool_plan_forward(struct nn_context *context, const struct nn_op *op, void **plan,
                                      struct ps_error *e)
{
    (void)e;
    struct pool_plan *p = pool_plan_new(op, &op->in_type[0], &op->out_type[0]);
    const struct conv2d_pool *s = &p->shape;
    // With few channels the transforms take longer than what they save.
    p->tiles = s->kh == 3 && s->kw == 3 && s->c >= TILED_CHANNELS;
    pool_plan_workers(p, pool_threads(p, context, s->rows));
    if (p->tiles)
        pool_plan_tiles(p);
    else
        pool_plan_sums(p);
    *plan = p;
    return PS_OK;
}

static bool pool_is_dense(const struct pool_plan *p)
{
    return p->shape.run < p->isa->vector;
}

static int pool_blocks(const struct pool_plan *p)
{
    return (p->shape.oc + p->isa->vector - 1) / p->isa->vector;
}

enum { GROUPS = 8 };

static enum ps_code pool_plan_weights(struct nn_context *context, const struct nn_op *op, void **plan,
                                      struct ps_error *e)
{
    (void)e;
    struct pool_plan *p = pool_plan_new(op, &op->in_type[0], &op->in_type[1]);
    if (pool_is_dense(p)) {
        pool_plan_workers(p, p->shape.rows < GROUPS ? p->shape.rows : GROUPS);
        pool_plan_sums_dense(p);
        pool_plan_taps(p);
    } else {
        pool_plan_workers(p, pool_threads(p, context, pool_blocks(p)));
        pool_plan_gives(p);
    }
    *plan = p;
    return PS_OK;
}

static enum ps_code pool_plan_data(struct nn_context *context, const struct nn_op *op, void **plan, struct ps_error *e)
{
    (void)e;
    struct pool_plan *p = pool_plan_new(op, &op->out_type[0], &op->in_type[1]);
    pool_plan_workers(p, pool_threads(p, context, p->shape.rows));
    pool_plan_gives(p);
    *plan = p;
    return PS_OK;
}

static void pool_plan_free(void *plan)
{
    struct pool_plan *p = plan;
    for (int i = 0; i < p->workers; i++) {
        free(p->worker[i].image);
        free(p->worker[i].scratch);
        free(p->worker[i].gives.at);
        free(p->worker[i].gives.g);
        free(p->worker[i].gives.n);
        free(p->worker[i].sum);
    }
    free(p->worker);
    free(p->kernel);
    free(p->taps);
    free(p);
}

// ---- images -------------------------------------------------------------------------------------------------------

static size_t pool_pixels(const struct pool_plan *p)
{
    return (size_t)p->h * (size_t)p->w * (size_t)p->shape.c;
}

// Row y of the tensor's image in a copy.
static float *pool_copy_row(const struct pool_plan *p, float *image, int y)
{
    return image + (size_t)(p->top + y) * (size_t)p->shape.width + (size_t)(p->left * p->shape.c);
}

static const float *pool_image(const struct pool_plan *p, const struct pool_worker *worker, const float *x, int n)
{
    const size_t row = (size_t)p->w * (size_t)p->shape.c;
    x += (size_t)n * pool_pixels(p);
    if (!p->apart)
        return x;
    for (int y = 0; y < p->h; y++)
        memcpy(pool_copy_row(p, worker->image, y), x + (size_t)y * row, row * sizeof *x);
    return worker->image;
}

// ---- runs ---------------------------------------------------------------------------------------------------------

// Worker i's part of n: images, channels.
static int pool_first(const struct pool_plan *p, int n, size_t i)
{
    return (int)((int64_t)n * (int64_t)i / p->workers);
}

static void pool_share(const struct nn_frame *f, nn_cpu_part *part)
{
    const struct pool_plan *p = f->plan;
    nn_cpu_share(f->context, (size_t)p->workers, 1, part, (void *)f);
}

static void pool_part_forward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    const float *bias = f->op->n_in > 2 ? f->in[2] : NULL;
    const struct pool_worker *w = &p->worker[first];
    for (int n = pool_first(p, s->rows, first); n < pool_first(p, s->rows, last); n++) {
        const float *x = pool_image(p, w, f->in[0], n);
        float *y = (float *)f->out[0] + (size_t)n * s->cells;
        uint8_t *at = (uint8_t *)f->out[1] + (size_t)n * s->cells;
        if (p->tiles)
            p->isa->forward_tiles(s, x, p->kernel, bias, y, at, w->scratch);
        else
            p->isa->forward(s, x, p->kernel, bias, y, at);
    }
}

static void pool_run_forward(const struct nn_frame *f)
{
    const struct pool_plan *p = f->plan;
    (p->tiles ? p->isa->pack_tiles : p->isa->pack)(&p->shape, f->in[1], p->kernel);
    pool_share(f, pool_part_forward);
}

// The lists of channels [from, to) of image n. in: (...), y, at, dy.
static void pool_list_gives(const struct nn_frame *f, const struct pool_worker *w, int n, int from, int to, float *db)
{
    const struct pool_plan *p = f->plan;
    const size_t first = (size_t)n * p->shape.cells;
    p->isa->list(&p->shape, from, to, (const float *)f->in[1] + first, (const uint8_t *)f->in[2] + first,
                 (const float *)f->in[3] + first, &w->gives, db);
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

// Channels of all images.
static void pool_part_weights(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    const struct pool_worker *w = &p->worker[first];
    const size_t rows = (size_t)s->kh * (size_t)s->run_padded;
    const int from = pool_first(p, pool_blocks(p), first) * p->isa->vector;
    const int end = pool_first(p, pool_blocks(p), last) * p->isa->vector, to = end < s->oc ? end : s->oc;
    float *db = f->op->n_out > 1 ? f->out[1] : NULL;
    memset(p->kernel + (size_t)from * rows, 0, (size_t)(to - from) * rows * sizeof(float));
    if (db)
        memset(db + from, 0, (size_t)(to - from) * sizeof *db);
    for (int n = 0; n < s->rows; n++) {
        const float *x = pool_image(p, w, f->in[0], n);
        pool_list_gives(f, w, n, from, to, db);
        for (int c = from; c < to; c++)
            p->isa->weights(s, x, &w->gives, c, p->kernel + (size_t)c * rows);
    }
}

// A group's images.
static void pool_part_weights_dense(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    const size_t kernel = (size_t)(s->kh * s->run) * (size_t)s->oc;
    for (size_t g = first; g < last; g++) {
        float *sum = p->worker[g].sum, *db = f->op->n_out > 1 ? sum + kernel : NULL;
        memset(sum, 0, (kernel + (size_t)s->oc) * sizeof *sum);
        for (int n = pool_first(p, s->rows, g); n < pool_first(p, s->rows, g + 1); n++) {
            const size_t at = (size_t)n * s->cells;
            p->isa->weights_dense(s, pool_image(p, &p->worker[g], f->in[0], n), p->taps, (const float *)f->in[1] + at,
                                  (const uint8_t *)f->in[2] + at, (const float *)f->in[3] + at, sum, db);
        }
    }
}

static void pool_add_groups(const struct pool_plan *p, size_t from, size_t n, float *to)
{
    memcpy(to, p->worker[0].sum + from, n * sizeof *to);
    for (int g = 1; g < p->workers; g++)
        for (size_t i = 0; i < n; i++)
            to[i] += p->worker[g].sum[from + i];
}

static void pool_run_weights(const struct nn_frame *f)
{
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    const size_t kernel = (size_t)(s->kh * s->run) * (size_t)s->oc;
    if (!pool_is_dense(p)) {
        pool_share(f, pool_part_weights);
        pool_order_back(s, p->kernel, f->out[0]);
        return;
    }
    pool_share(f, pool_part_weights_dense);
    pool_add_groups(p, 0, kernel, f->out[0]);
    if (f->op->n_out > 1)
        pool_add_groups(p, kernel, (size_t)s->oc, f->out[1]);
}

static void pool_part_data(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    const struct pool_worker *w = &p->worker[first];
    const size_t rows = (size_t)s->kh * (size_t)s->run_padded, row = (size_t)p->w * (size_t)s->c;
    for (int n = pool_first(p, s->rows, first); n < pool_first(p, s->rows, last); n++) {
        float *out = (float *)f->out[0] + (size_t)n * pool_pixels(p), *dx = p->apart ? w->image : out;
        memset(dx, 0, s->image * sizeof *dx);
        pool_list_gives(f, w, n, 0, s->oc, NULL);
        for (int c = 0; c < s->oc; c++)
            p->isa->data(s, p->kernel + (size_t)c * rows, &w->gives, c, dx);
        for (int y = 0; p->apart && y < p->h; y++)
            memcpy(out + (size_t)y * row, pool_copy_row(p, w->image, y), row * sizeof *out);
    }
}

static void pool_run_data(const struct nn_frame *f)
{
    const struct pool_plan *p = f->plan;
    const struct conv2d_pool *s = &p->shape;
    if (s->run != s->run_padded)
        memset(p->kernel, 0, (size_t)(s->kh * s->run_padded) * (size_t)s->oc * sizeof(float));
    pool_order(s, f->in[0], p->kernel);
    pool_share(f, pool_part_data);
}

const struct nn_kernel nn_cpu_conv2d_pool = {pool_plan_forward, pool_run_forward, pool_plan_free, NULL};
const struct nn_kernel nn_cpu_conv2d_pool_backward_data = {pool_plan_data, pool_run_data, pool_plan_free, NULL};
const struct nn_kernel nn_cpu_conv2d_pool_backward_weights = {pool_plan_weights, pool_run_weights, pool_plan_free,
                                                              NULL};
