// SPDX-License-Identifier: Apache-2.0
//
// Pooling of images (n, h, w, c): a thread for each element that is written. A gradient gathers from the windows that
// its pixel lies in, in their order.
#include "workerd/nn/cuda/cuda.h"

struct pool_shape {
    struct nn_pool2d a;
    int c;
};

static struct pool_shape pool_shape_of(const struct nn_frame *f, const struct nn_type *x)
{
    const struct pool_shape s = {*nn_cuda_attr<nn_pool2d>(f), (int)x->dim[3]};
    return s;
}

// The channel, row, column and image of element i of (n, h, w, c).
struct pool_cell {
    int c, x, y;
    size_t n;
};

static __device__ struct pool_cell pool_cell_at(size_t at, int h, int w, int c)
{
    const unsigned i = (unsigned)at, pixel = i / c;  // 32 bits are divided faster
    const struct pool_cell cell = {(int)(i % c), (int)(pixel % w), (int)(pixel / w % h), pixel / w / h};
    return cell;
}

static __device__ size_t pool_input_at(const struct pool_shape &s, size_t n, int y, int x, int c)
{
    return ((n * s.a.image[0] + y) * s.a.image[1] + x) * s.c + c;
}

static __device__ size_t pool_output_at(const struct pool_shape &s, size_t n, int y, int x, int c)
{
    return ((n * s.a.out[0] + y) * s.a.out[1] + x) * s.c + c;
}

// The cells [from, to) of window o along one axis that lie in the image.
struct pool_range {
    int first, from, to;
};

static __device__ struct pool_range pool_window(const struct pool_shape &s, int axis, int o)
{
    const int first = o * s.a.stride[axis] - s.a.pad_begin[axis], left = s.a.image[axis] - first;
    const struct pool_range r = {first, first < 0 ? -first : 0, left < s.a.window[axis] ? left : s.a.window[axis]};
    return r;
}

// The windows [from, to) along one axis that have pixel i.
static __device__ struct pool_range pool_windows(const struct pool_shape &s, int axis, int i)
{
    const int at = i + s.a.pad_begin[axis], before = at - s.a.window[axis];
    const int to = at / s.a.stride[axis] + 1;
    const struct pool_range r = {0, before < 0 ? 0 : before / s.a.stride[axis] + 1,
                                 to < s.a.out[axis] ? to : s.a.out[axis]};
    return r;
}

// ---- the greatest -------------------------------------------------------------------------------------------------

template <class P>
static __global__ void greatest_of_windows(size_t n, struct pool_shape s, const float *x, float *y, P *at)
{
    NN_CUDA_EACH(i, n)
    {
        const struct pool_cell o = pool_cell_at(i, s.a.out[0], s.a.out[1], s.c);
        const struct pool_range rows = pool_window(s, 0, o.y), columns = pool_window(s, 1, o.x);
        float max = 0;
        int best = -1;
        for (int ky = rows.from; ky < rows.to; ky++)
            for (int kx = columns.from; kx < columns.to; kx++) {
                const float v = x[pool_input_at(s, o.n, rows.first + ky, columns.first + kx, o.c)];
                if (best < 0 || v > max || (isnan(v) && !isnan(max))) {
                    max = v;
                    best = ky * s.a.window[1] + kx;
                }
            }
        y[i] = max;
        at[i] = (P)best;
    }
}

template <class P>
static __global__ void greatest_of_windows_backward(size_t n, struct pool_shape s, const float *dy, const P *at,
                                                    float *dx)
{
    NN_CUDA_EACH(i, n)
    {
        const struct pool_cell p = pool_cell_at(i, s.a.image[0], s.a.image[1], s.c);
        const struct pool_range rows = pool_windows(s, 0, p.y), columns = pool_windows(s, 1, p.x);
        float sum = 0;
        for (int oy = rows.from; oy < rows.to; oy++)
            for (int ox = columns.from; ox < columns.to; ox++) {
                const int ky = p.y - oy * s.a.stride[0] + s.a.pad_begin[0];
                const int kx = p.x - ox * s.a.stride[1] + s.a.pad_begin[1];
                const size_t o = pool_output_at(s, p.n, oy, ox, p.c);
                if ((int)at[o] == ky * s.a.window[1] + kx)
                    sum += dy[o];
            }
        dx[i] = sum;
    }
}

static void cuda_maxpool_run(const struct nn_frame *f)
{
    const struct nn_type *x = &f->op->in_type[0];
    const struct pool_shape s = pool_shape_of(f, x);
    const size_t n = nn_type_count(&f->op->out_type[0]);
    if (f->op->out_type[1].dtype == NN_UINT8)
        NN_CUDA_RUN_EACH(f->context, greatest_of_windows<uint8_t>, n, s, nn_cuda_in(f, 0), nn_cuda_out(f, 0),
                         (uint8_t *)f->out[1]);
    else
        NN_CUDA_RUN_EACH(f->context, greatest_of_windows<int32_t>, n, s, nn_cuda_in(f, 0), nn_cuda_out(f, 0),
                         (int32_t *)f->out[1]);
}

static void cuda_maxpool_run_backward(const struct nn_frame *f)
{
    const struct pool_shape s = pool_shape_of(f, &f->op->in_type[0]);
    const size_t n = nn_type_count(&f->op->out_type[0]);
    if (f->op->in_type[1].dtype == NN_UINT8)
        NN_CUDA_RUN_EACH(f->context, greatest_of_windows_backward<uint8_t>, n, s, nn_cuda_in(f, 0),
                         (const uint8_t *)f->in[1], nn_cuda_out(f, 0));
    else
        NN_CUDA_RUN_EACH(f->context, greatest_of_windows_backward<int32_t>, n, s, nn_cuda_in(f, 0),
                         (const int32_t *)f->in[1], nn_cuda_out(f, 0));
}

// ---- the mean -----------------------------------------------------------------------------------------------------

static __device__ float pool_cells(const struct pool_range &rows, const struct pool_range &columns)
{
    return (float)(rows.to - rows.from) * (float)(columns.to - columns.from);
}

static __global__ void average_windows(size_t n, struct pool_shape s, const float *x, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const struct pool_cell o = pool_cell_at(i, s.a.out[0], s.a.out[1], s.c);
        const struct pool_range rows = pool_window(s, 0, o.y), columns = pool_window(s, 1, o.x);
        float sum = 0;
        for (int ky = rows.from; ky < rows.to; ky++)
            for (int kx = columns.from; kx < columns.to; kx++)
                sum += x[pool_input_at(s, o.n, rows.first + ky, columns.first + kx, o.c)];
        y[i] = sum / pool_cells(rows, columns);
    }
}

static __global__ void average_windows_backward(size_t n, struct pool_shape s, const float *dy, float *dx)
{
    NN_CUDA_EACH(i, n)
    {
        const struct pool_cell p = pool_cell_at(i, s.a.image[0], s.a.image[1], s.c);
        const struct pool_range rows = pool_windows(s, 0, p.y), columns = pool_windows(s, 1, p.x);
        float sum = 0;
        for (int oy = rows.from; oy < rows.to; oy++)
            for (int ox = columns.from; ox < columns.to; ox++)
                sum +=
                    dy[pool_output_at(s, p.n, oy, ox, p.c)] / pool_cells(pool_window(s, 0, oy), pool_window(s, 1, ox));
        dx[i] = sum;
    }
}

static void cuda_avgpool_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, average_windows, nn_type_count(&f->op->out_type[0]),
                     pool_shape_of(f, &f->op->in_type[0]), nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

static void cuda_avgpool_run_backward(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, average_windows_backward, nn_type_count(&f->op->out_type[0]),
                     pool_shape_of(f, &f->op->in_type[0]), nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_maxpool = {NULL, cuda_maxpool_run, NULL, NULL};
const struct nn_kernel nn_cuda_maxpool_backward = {NULL, cuda_maxpool_run_backward, NULL, NULL};
const struct nn_kernel nn_cuda_avgpool = {NULL, cuda_avgpool_run, NULL, NULL};
const struct nn_kernel nn_cuda_avgpool_backward = {NULL, cuda_avgpool_run_backward, NULL, NULL};
