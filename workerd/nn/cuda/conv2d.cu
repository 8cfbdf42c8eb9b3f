// SPDX-License-Identifier: Apache-2.0
//
// Convolution as a product: each output pixel's window is a row of a matrix of patches, and the kernel, as Keras has
// it, a matrix of what those rows are multiplied with. The patches of as many images as fit into the scratch memory are
// made at a time. Groups are the batch of the product: a patch has their channels one group after the other.
//
// Where there are few channels, implicit.cu computes the convolution; else cuDNN, where it has an algorithm, of the
// kernel in its own order.
#include "workerd/nn/cuda/implicit.h"

// A plan is cuDNN's, or this one, that implicit.cu computes it, or NULL: by patches.
static char conv2d_implicit;

// Patches: rows of `row` floats, of which each group has `group`.
struct conv2d_patches {
    size_t group, row;
    int images;  // at a time
    bool whole;  // each patch is the pixel itself: x is the matrix
};

// Bytes of patches at a time, unless one image has more. Tests make it small.
#ifndef NN_CUDA_PATCHES
#define NN_CUDA_PATCHES (256 << 20)
#endif

static struct nn_cuda_conv2d conv2d_shape_of(const struct nn_conv2d *a, const struct nn_type *x,
                                             const struct nn_type *y)
{
    const struct nn_cuda_conv2d s = {(int)x->dim[0],
                                     a->image[0],
                                     a->image[1],
                                     (int)x->dim[3],
                                     a->kernel[0],
                                     a->kernel[1],
                                     (int)y->dim[1],
                                     (int)y->dim[2],
                                     (int)y->dim[3],
                                     a->groups,
                                     {a->stride[0], a->stride[1]},
                                     {a->pad_begin[0], a->pad_begin[1]},
                                     {a->dilation[0], a->dilation[1]}};
    return s;
}

static size_t conv2d_pixels(const struct nn_cuda_conv2d *s)
{
    return (size_t)s->oh * (size_t)s->ow;
}

static struct conv2d_patches conv2d_patches_of(const struct nn_cuda_conv2d *s)
{
    struct conv2d_patches p;
    p.group = (size_t)s->kh * (size_t)s->kw * (size_t)(s->c / s->groups);
    p.row = p.group * (size_t)s->groups;
    const size_t image = conv2d_pixels(s) * p.row * sizeof(float), fit = NN_CUDA_PATCHES / image;
    p.images = fit < 1 ? 1 : fit < (size_t)s->n ? (int)fit : s->n;
    p.whole = s->kh == 1 && s->kw == 1 && s->stride[0] == 1 && s->stride[1] == 1 && s->oh == s->h && s->ow == s->w &&
              s->pad[0] == 0 && s->pad[1] == 0;
    return p;
}

// Elements are counted in 32 bits.
static enum ps_code conv2d_reserve(struct nn_context *c, const struct nn_cuda_conv2d *s, struct ps_error *e)
{
    const struct conv2d_patches p = conv2d_patches_of(s);
    if (conv2d_pixels(s) * p.row > INT32_MAX)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                       "conv2d: %zu pixels with windows of %zu numbers each: expected at most %d numbers of an image",
                       conv2d_pixels(s), p.row, INT32_MAX);
    return p.whole ? PS_OK : nn_cuda_reserve(c, (size_t)p.images * conv2d_pixels(s) * p.row * sizeof(float), e);
}

// ---- patches ------------------------------------------------------------------------------------------------------

// patch (images, oh, ow, groups, kh, kw, c / groups) of x (images, h, w, c); 0 outside the image.
static __global__ void gather_patches(size_t n, struct nn_cuda_conv2d s, const float *x, float *patch)
{
    const unsigned per = (unsigned)(s.c / s.groups);
    NN_CUDA_EACH(at, n)
    {
        const unsigned i = (unsigned)at;  // 32 bits are divided faster
        const unsigned channel = i % per, cell = i / per, kx = cell % s.kw, ky = cell / s.kw % s.kh;
        const unsigned of = cell / s.kw / s.kh, group = of % s.groups, pixel = of / s.groups;
        const unsigned ox = pixel % s.ow, oy = pixel / s.ow % s.oh, image = pixel / s.ow / s.oh;
        const int iy = (int)oy * s.stride[0] + (int)ky * s.dilation[0] - s.pad[0];
        const int ix = (int)ox * s.stride[1] + (int)kx * s.dilation[1] - s.pad[1];
        patch[i] = iy >= 0 && iy < s.h && ix >= 0 && ix < s.w
                       ? x[((image * s.h + iy) * s.w + ix) * s.c + group * per + channel]
                       : 0.0f;
    }
}

// The output row that had this input row under the kernel's row k, along one axis; -1: none had.
static __device__ int conv2d_place(const struct nn_cuda_conv2d &s, int axis, int i, int k, int places)
{
    const int at = i + s.pad[axis] - k * s.dilation[axis];
    return at >= 0 && at % s.stride[axis] == 0 && at / s.stride[axis] < places ? at / s.stride[axis] : -1;
}

// x (images, h, w, c) = the sum of what patches have of each of its pixels.
static __global__ void scatter_patches(size_t n, struct nn_cuda_conv2d s, const float *patch, float *x)
{
    const unsigned per = (unsigned)(s.c / s.groups);
    NN_CUDA_EACH(at, n)
    {
        const unsigned i = (unsigned)at, c = i % s.c, pixel_in = i / s.c, image = pixel_in / s.w / s.h;
        const int ix = (int)(pixel_in % s.w), iy = (int)(pixel_in / s.w % s.h);
        float sum = 0;
        for (int ky = 0; ky < s.kh; ky++) {
            const int oy = conv2d_place(s, 0, iy, ky, s.oh);
            for (int kx = 0; oy >= 0 && kx < s.kw; kx++) {
                const int ox = conv2d_place(s, 1, ix, kx, s.ow);
                const unsigned pixel = (image * s.oh + oy) * s.ow + ox;
                if (ox >= 0)
                    sum += patch[(((pixel * s.groups + c / per) * s.kh + ky) * s.kw + kx) * per + c % per];
            }
        }
        x[i] = sum;
    }
}

// ---- cuDNN --------------------------------------------------------------------------------------------------------

enum { FILTER_TILE = 32, FILTER_ROWS = 8 };

// The kernel as a matrix (cells * c, oc) and the filter are each other's transposes, but that in a filter whose
// channels are not last the c come before the cells. What is read lies side by side, and so does what is written where
// it can.
struct filter_matrix {
    unsigned rows, columns, cells, c;
    bool channels_last;
};

static __device__ size_t filter_place(const struct filter_matrix &m, unsigned row, unsigned column)
{
    const unsigned at = m.channels_last ? row : row % m.c * m.cells + row / m.c;
    return (size_t)column * m.rows + at;
}

// A tile of the kernel's matrix is a block's.
static __global__ void filter_of_kernel(struct filter_matrix m, const float *kernel, float *filter)
{
    __shared__ float tile[FILTER_TILE][FILTER_TILE + 1];
    const unsigned left = blockIdx.y * FILTER_TILE, top = blockIdx.x * FILTER_TILE;
    for (unsigned k = threadIdx.y; k < FILTER_TILE; k += FILTER_ROWS)
        if (top + k < m.rows && left + threadIdx.x < m.columns)
            tile[k][threadIdx.x] = kernel[(size_t)(top + k) * m.columns + left + threadIdx.x];
    __syncthreads();
    for (unsigned k = threadIdx.y; k < FILTER_TILE; k += FILTER_ROWS)
        if (left + k < m.columns && top + threadIdx.x < m.rows)
            filter[filter_place(m, top + threadIdx.x, left + k)] = tile[threadIdx.x][k];
}

static __global__ void kernel_of_filter(struct filter_matrix m, const float *filter, float *kernel)
{
    __shared__ float tile[FILTER_TILE][FILTER_TILE + 1];
    const unsigned left = blockIdx.y * FILTER_TILE, top = blockIdx.x * FILTER_TILE;
    for (unsigned k = threadIdx.y; k < FILTER_TILE; k += FILTER_ROWS)
        if (left + k < m.columns && top + threadIdx.x < m.rows)
            tile[threadIdx.x][k] = filter[filter_place(m, top + threadIdx.x, left + k)];
    __syncthreads();
    for (unsigned k = threadIdx.y; k < FILTER_TILE; k += FILTER_ROWS)
        if (top + k < m.rows && left + threadIdx.x < m.columns)
            kernel[(size_t)(top + k) * m.columns + left + threadIdx.x] = tile[k][threadIdx.x];
}

static struct filter_matrix filter_matrix_of(const struct nn_cuda_conv2d *s, const struct nn_cudnn_filter *f)
{
    struct filter_matrix m = {};
    m.cells = (unsigned)(s->kh * s->kw);
    m.c = (unsigned)(s->c / s->groups);
    m.rows = m.cells * m.c;
    m.columns = (unsigned)s->oc;
    m.channels_last = f->channels_last;
    return m;
}

static dim3 filter_tiles(const struct filter_matrix *m)
{
    return dim3((m->rows + FILTER_TILE - 1) / FILTER_TILE, (m->columns + FILTER_TILE - 1) / FILTER_TILE);
}

static bool conv2d_by_implicit(const struct nn_frame *f)
{
    return f->plan == &conv2d_implicit;
}

// NULL: another way.
static const struct nn_cudnn_conv2d *cudnn_plan_of(const struct nn_frame *f)
{
    return conv2d_by_implicit(f) ? NULL : (const struct nn_cudnn_conv2d *)f->plan;
}

static void cudnn_put_kernel(const struct nn_frame *f, const struct nn_cuda_conv2d *s, const float *kernel)
{
    const struct nn_cudnn_filter filter = nn_cudnn_filter_of(cudnn_plan_of(f));
    const struct filter_matrix m = filter_matrix_of(s, &filter);
    NN_CUDA_RUN(f->context, filter_of_kernel, filter_tiles(&m), dim3(FILTER_TILE, FILTER_ROWS), 0, m, kernel,
                filter.data);
}

static void cudnn_take_kernel(const struct nn_frame *f, const struct nn_cuda_conv2d *s, float *kernel)
{
    const struct nn_cudnn_filter filter = nn_cudnn_filter_of(cudnn_plan_of(f));
    const struct filter_matrix m = filter_matrix_of(s, &filter);
    NN_CUDA_RUN(f->context, kernel_of_filter, filter_tiles(&m), dim3(FILTER_TILE, FILTER_ROWS), 0, m, filter.data,
                kernel);
}

// ---- runs ---------------------------------------------------------------------------------------------------------

// Images [first, first + images).
struct conv2d_part {
    int first, images;
    size_t pixels;
};

static struct conv2d_part conv2d_part_at(const struct nn_cuda_conv2d *s, const struct conv2d_patches *p, int first)
{
    const int left = s->n - first, images = left < p->images ? left : p->images;
    const struct conv2d_part part = {first, images, (size_t)images * conv2d_pixels(s)};
    return part;
}

static const float *conv2d_input(const struct nn_cuda_conv2d *s, const struct conv2d_part *part, const float *x)
{
    return x + (size_t)part->first * s->h * s->w * s->c;
}

static size_t conv2d_output_at(const struct nn_cuda_conv2d *s, const struct conv2d_part *part)
{
    return (size_t)part->first * conv2d_pixels(s) * s->oc;
}

// The patches of some images of x.
static const float *conv2d_patch(struct nn_context *c, const struct nn_cuda_conv2d *s, const struct conv2d_patches *p,
                                 const struct conv2d_part *part, const float *x)
{
    float *patch = (float *)c->scratch;
    const float *from = conv2d_input(s, part, x);
    if (p->whole)
        return from;
    NN_CUDA_RUN_EACH(c, gather_patches, part->pixels * p->row, *s, from, patch);
    return patch;
}

// A matrix of output channels: of pixels, or of the kernel.
static struct nn_cuda_matrix conv2d_by_channel(const struct nn_cuda_conv2d *s, const float *data, bool transposed)
{
    const struct nn_cuda_matrix m = {data, (size_t)s->oc, transposed, (size_t)(s->oc / s->groups)};
    return m;
}

static struct nn_cuda_matrix conv2d_by_patch(const struct conv2d_patches *p, const float *data, bool transposed)
{
    const struct nn_cuda_matrix m = {data, p->row, transposed, p->group};
    return m;
}

// y = patches of x times the kernel
static void conv2d_multiply(const struct nn_frame *f, const struct nn_cuda_conv2d *shape)
{
    const struct nn_cuda_conv2d s = *shape;
    const struct conv2d_patches p = conv2d_patches_of(&s);
    const size_t per = (size_t)(s.oc / s.groups);
    for (int first = 0; first < s.n; first += p.images) {
        const struct conv2d_part part = conv2d_part_at(&s, &p, first);
        const float *patch = conv2d_patch(f->context, &s, &p, &part, nn_cuda_in(f, 0));
        float *y = nn_cuda_out(f, 0) + conv2d_output_at(&s, &part);
        const struct nn_cuda_product product = {part.pixels,
                                                per,
                                                p.group,
                                                conv2d_by_patch(&p, patch, false),
                                                conv2d_by_channel(&s, nn_cuda_in(f, 1), false),
                                                1,
                                                y,
                                                (size_t)s.oc,
                                                per,
                                                (size_t)s.groups};
        nn_cuda_multiply(f->context, &product);
    }
}

static void cuda_conv2d_run(const struct nn_frame *f)
{
    const struct nn_conv2d *a = nn_cuda_attr<nn_conv2d>(f);
    const struct nn_cuda_conv2d s = conv2d_shape_of(a, &f->op->in_type[0], &f->op->out_type[0]);
    const float *bias = a->bias ? nn_cuda_in(f, 2) : NULL;
    if (cudnn_plan_of(f)) {
        cudnn_put_kernel(f, &s, nn_cuda_in(f, 1));
        nn_cudnn_run_conv2d(cudnn_plan_of(f), (float *)f->in[0], nn_cuda_out(f, 0));
    } else if (conv2d_by_implicit(f)) {
        nn_cuda_implicit_forward(f->context, &s, nn_cuda_in(f, 0), nn_cuda_in(f, 1), bias, a->act, nn_cuda_out(f, 0));
        return;
    } else {
        conv2d_multiply(f, &s);
    }
    nn_cuda_bias_activation(f->context, a->act, (size_t)s.n * conv2d_pixels(&s), (size_t)s.oc, bias, nn_cuda_out(f, 0));
}

// dw = patches of x, transposed, times dy
static void conv2d_multiply_weights(const struct nn_frame *f, const struct nn_cuda_conv2d *shape)
{
    const struct nn_cuda_conv2d s = *shape;
    const struct conv2d_patches p = conv2d_patches_of(&s);
    const size_t per = (size_t)(s.oc / s.groups);
    for (int first = 0; first < s.n; first += p.images) {
        const struct conv2d_part part = conv2d_part_at(&s, &p, first);
        const float *patch = conv2d_patch(f->context, &s, &p, &part, nn_cuda_in(f, 0));
        const float *dy = nn_cuda_in(f, 1) + conv2d_output_at(&s, &part);
        const struct nn_cuda_product product = {p.group,
                                                per,
                                                part.pixels,
                                                conv2d_by_patch(&p, patch, true),
                                                conv2d_by_channel(&s, dy, false),
                                                1,
                                                nn_cuda_out(f, 0),
                                                (size_t)s.oc,
                                                per,
                                                (size_t)s.groups,
                                                first > 0};
        nn_cuda_multiply(f->context, &product);
    }
}

static void cuda_conv2d_run_weights(const struct nn_frame *f)
{
    const struct nn_conv2d *a = nn_cuda_attr<nn_conv2d>(f);
    const struct nn_cuda_conv2d s = conv2d_shape_of(a, &f->op->in_type[0], &f->op->in_type[1]);
    if (cudnn_plan_of(f)) {
        nn_cudnn_run_conv2d(cudnn_plan_of(f), (float *)f->in[0], (float *)f->in[1]);
        cudnn_take_kernel(f, &s, nn_cuda_out(f, 0));
    } else if (conv2d_by_implicit(f)) {
        nn_cuda_implicit_weights(f->context, &s, nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
    } else {
        conv2d_multiply_weights(f, &s);
    }
    if (f->op->n_out > 1)
        nn_cuda_sum_rows(f->context, (size_t)s.n * conv2d_pixels(&s), (size_t)s.oc, nn_cuda_in(f, 1),
                         nn_cuda_out(f, 1));
}

// The patches' gradient = dy times the kernel, transposed; dx is what pixels have of it.
static void conv2d_multiply_data(const struct nn_frame *f, const struct nn_cuda_conv2d *shape)
{
    const struct nn_cuda_conv2d s = *shape;
    const struct conv2d_patches p = conv2d_patches_of(&s);
    for (int first = 0; first < s.n; first += p.images) {
        const struct conv2d_part part = conv2d_part_at(&s, &p, first);
        float *dx = nn_cuda_out(f, 0) + (size_t)first * s.h * s.w * s.c;
        float *patch = p.whole ? dx : (float *)f->context->scratch;
        const struct nn_cuda_product product = {
            part.pixels,
            p.group,
            (size_t)(s.oc / s.groups),
            conv2d_by_channel(&s, nn_cuda_in(f, 1) + conv2d_output_at(&s, &part), false),
            conv2d_by_channel(&s, nn_cuda_in(f, 0), true),
            1,
            patch,
            p.row,
            p.group,
            (size_t)s.groups};
        nn_cuda_multiply(f->context, &product);
        if (!p.whole)
            NN_CUDA_RUN_EACH(f->context, scatter_patches, (size_t)part.images * s.h * s.w * s.c, s, patch, dx);
    }
}

static void cuda_conv2d_run_data(const struct nn_frame *f)
{
    const struct nn_conv2d *a = nn_cuda_attr<nn_conv2d>(f);
    const struct nn_cuda_conv2d s = conv2d_shape_of(a, &f->op->out_type[0], &f->op->in_type[1]);
    if (cudnn_plan_of(f)) {
        cudnn_put_kernel(f, &s, nn_cuda_in(f, 0));
        nn_cudnn_run_conv2d(cudnn_plan_of(f), nn_cuda_out(f, 0), (float *)f->in[1]);
    } else if (conv2d_by_implicit(f)) {
        nn_cuda_implicit_data(f->context, &s, nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
    } else {
        conv2d_multiply_data(f, &s);
    }
}

// ---- plans --------------------------------------------------------------------------------------------------------

static bool conv2d_is_implicit(const struct nn_cuda_conv2d *s)
{
    const struct conv2d_patches p = conv2d_patches_of(s);
    return !p.whole && nn_cuda_implicit_fits(s);
}

static enum ps_code cuda_conv2d_plan_way(struct nn_context *c, const struct nn_op *op, enum nn_cudnn_way way,
                                         void **plan, struct ps_error *e)
{
    const struct nn_type *x = way == NN_CUDNN_DATA ? &op->out_type[0] : &op->in_type[0];
    const struct nn_type *y = way == NN_CUDNN_FORWARD ? &op->out_type[0] : &op->in_type[1];
    const struct nn_cuda_conv2d s = conv2d_shape_of((const struct nn_conv2d *)(const void *)op->attr, x, y);
    struct nn_cudnn_conv2d *cudnn;
    if (conv2d_is_implicit(&s)) {
        *plan = &conv2d_implicit;
        return way == NN_CUDNN_WEIGHTS ? nn_cuda_implicit_reserve(c, &s, e) : PS_OK;
    }
    if (nn_cudnn_plan_conv2d(c, way, &s, &cudnn, e))
        return e->code;
    *plan = cudnn;
    return cudnn ? PS_OK : conv2d_reserve(c, &s, e);
}

static enum ps_code cuda_conv2d_plan(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    return cuda_conv2d_plan_way(c, op, NN_CUDNN_FORWARD, plan, e);
}

static enum ps_code cuda_conv2d_plan_weights(struct nn_context *c, const struct nn_op *op, void **plan,
                                             struct ps_error *e)
{
    if (nn_cuda_reserve_sum(c, nn_type_rows(&op->in_type[1]), (size_t)op->in_type[1].dim[3], e))
        return e->code;
    return cuda_conv2d_plan_way(c, op, NN_CUDNN_WEIGHTS, plan, e);
}

static enum ps_code cuda_conv2d_plan_data(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    return cuda_conv2d_plan_way(c, op, NN_CUDNN_DATA, plan, e);
}

static void cuda_conv2d_free(void *plan)
{
    if (plan != &conv2d_implicit)
        nn_cudnn_free_conv2d((struct nn_cudnn_conv2d *)plan);
}

static const char *cuda_conv2d_info(const void *plan)
{
    if (plan == &conv2d_implicit)
        return "implicit";
    return plan ? nn_cudnn_info_conv2d((const struct nn_cudnn_conv2d *)plan) : "im2col, cublas";
}

const struct nn_kernel nn_cuda_conv2d = {cuda_conv2d_plan, cuda_conv2d_run, cuda_conv2d_free, cuda_conv2d_info};
const struct nn_kernel nn_cuda_conv2d_backward_weights = {cuda_conv2d_plan_weights, cuda_conv2d_run_weights,
                                                          cuda_conv2d_free, cuda_conv2d_info};
const struct nn_kernel nn_cuda_conv2d_backward_data = {cuda_conv2d_plan_data, cuda_conv2d_run_data, cuda_conv2d_free,
                                                       cuda_conv2d_info};
