// SPDX-License-Identifier: Apache-2.0
//
// Element by element: sums, relu, copies, biases, y = scale x + offset, the two ways through a sequence.
#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/cuda/vectors.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/both_ways.h"

static size_t pointwise_count(const struct nn_frame *f)
{
    return nn_type_count(&f->op->out_type[0]);
}

// ---- add, relu, copy, affine --------------------------------------------------------------------------------------

template <int N> static __global__ void add_two(size_t n, const float *a, const float *b, float *y)
{
    NN_CUDA_EACH_VECTOR(i, n, N)
    {
        nn_cuda_floats<N> v = nn_cuda_load<N>(a + i);
        const nn_cuda_floats<N> w = nn_cuda_load<N>(b + i);
        for (int k = 0; k < N; k++)
            v.at[k] += w.at[k];
        nn_cuda_store(y + i, v);
    }
}

// A NaN goes on.
template <int N> static __global__ void relu_of(size_t n, const float *x, float *y)
{
    NN_CUDA_EACH_VECTOR(i, n, N)
    {
        nn_cuda_floats<N> v = nn_cuda_load<N>(x + i);
        for (int k = 0; k < N; k++)
            v.at[k] = v.at[k] < 0 ? 0 : v.at[k];
        nn_cuda_store(y + i, v);
    }
}

template <int N> static __global__ void relu_backward(size_t n, const float *y, const float *dy, float *dx)
{
    NN_CUDA_EACH_VECTOR(i, n, N)
    {
        nn_cuda_floats<N> v = nn_cuda_load<N>(dy + i);
        const nn_cuda_floats<N> w = nn_cuda_load<N>(y + i);
        for (int k = 0; k < N; k++)
            v.at[k] = w.at[k] > 0 ? v.at[k] : 0;
        nn_cuda_store(dx + i, v);
    }
}

static __global__ void scale_and_shift(size_t n, const float *x, float scale, float offset, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = scale * x[i] + offset;
}

static void cuda_add_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_VECTORS(f->context, add_two, pointwise_count(f), nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

static void cuda_relu_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_VECTORS(f->context, relu_of, pointwise_count(f), nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

static void cuda_relu_run_backward(const struct nn_frame *f)
{
    NN_CUDA_RUN_VECTORS(f->context, relu_backward, pointwise_count(f), nn_cuda_in(f, 0), nn_cuda_in(f, 1),
                        nn_cuda_out(f, 0));
}

static void cuda_copy_run(const struct nn_frame *f)
{
    if (f->context->error.code == PS_OK)
        nn_cuda_note(f->context,
                     cudaMemcpyAsync(f->out[0], f->in[0], nn_type_bytes(&f->op->out_type[0]), cudaMemcpyDeviceToDevice,
                                     f->context->stream),
                     "a copy on it");
}

static void cuda_affine_run(const struct nn_frame *f)
{
    const struct nn_affine *a = nn_cuda_attr<nn_affine>(f);
    NN_CUDA_RUN_EACH(f->context, scale_and_shift, pointwise_count(f), nn_cuda_in(f, 0), a->scale, a->offset,
                     nn_cuda_out(f, 0));
}

// ---- bias ---------------------------------------------------------------------------------------------------------

static __global__ void add_bias(size_t n, size_t columns, const float *x, const float *b, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = x[i] + b[nn_cuda_remainder(i, columns)];
}

static void cuda_bias_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, add_bias, pointwise_count(f), (size_t)f->op->in_type[1].dim[0], nn_cuda_in(f, 0),
                     nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

static enum ps_code cuda_bias_plan_backward(struct nn_context *c, const struct nn_op *op, void **plan,
                                            struct ps_error *e)
{
    *plan = NULL;
    return nn_cuda_reserve_sum(c, nn_type_rows(&op->in_type[0]), nn_type_count(&op->out_type[0]), e);
}

static void cuda_bias_run_backward(const struct nn_frame *f)
{
    nn_cuda_sum_rows(f->context, nn_type_rows(&f->op->in_type[0]), pointwise_count(f), nn_cuda_in(f, 0),
                     nn_cuda_out(f, 0));
}

// ---- both ways ----------------------------------------------------------------------------------------------------

// Sequences of t steps of u elements; a step of y is `width` wide.
struct both_ways {
    enum nn_both_ways::nn_merge merge;
    size_t t, u, width;
};

// Where the step of the other way stands that belongs to this one.
static __device__ size_t other_way(const struct both_ways &w, size_t step)
{
    const size_t at = nn_cuda_remainder(step, w.t);
    return step - at + (w.t - 1 - at);
}

static __global__ void merge_both_ways(size_t n, struct both_ways w, const float *a, const float *b, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t step = nn_cuda_quotient(i, w.width), j = i - step * w.width, other = other_way(w, step) * w.u;
        if (w.merge == nn_both_ways::NN_MERGE_CONCAT) {
            y[i] = j < w.u ? a[step * w.u + j] : b[other + j - w.u];
            continue;
        }
        const float p = a[i], q = b[other + j];
        y[i] = w.merge == nn_both_ways::NN_MERGE_MUL   ? p * q
               : w.merge == nn_both_ways::NN_MERGE_SUM ? p + q
                                                       : (p + q) / 2;
    }
}

static __global__ void merge_both_ways_backward(size_t n, struct both_ways w, const float *a, const float *b,
                                                const float *dy, float *da, float *db)
{
    const float half = w.merge == nn_both_ways::NN_MERGE_AVE ? 0.5f : 1.0f;
    const bool times = w.merge == nn_both_ways::NN_MERGE_MUL;
    NN_CUDA_EACH(i, n)
    {
        const size_t step = nn_cuda_quotient(i, w.u), j = i - step * w.u, other = other_way(w, step) * w.u + j;
        da[i] = dy[step * w.width + j] * (times ? b[other] : half);
        db[other] = dy[step * w.width + w.width - w.u + j] * (times ? a[i] : half);
    }
}

static struct both_ways both_ways_of(const struct nn_frame *f)
{
    const enum nn_both_ways::nn_merge merge = nn_cuda_attr<nn_both_ways>(f)->merge;
    const struct nn_type *x = &f->op->in_type[0];
    const size_t u = (size_t)x->dim[x->rank - 1];
    const struct both_ways w = {merge, x->rank == 3 ? (size_t)x->dim[1] : 1, u,
                                merge == nn_both_ways::NN_MERGE_CONCAT ? 2 * u : u};
    return w;
}

static void cuda_both_ways_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, merge_both_ways, pointwise_count(f), both_ways_of(f), nn_cuda_in(f, 0),
                     nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

static void cuda_both_ways_run_backward(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, merge_both_ways_backward, pointwise_count(f), both_ways_of(f), nn_cuda_in(f, 0),
                     nn_cuda_in(f, 1), nn_cuda_in(f, 2), nn_cuda_out(f, 0), nn_cuda_out(f, 1));
}

const struct nn_kernel nn_cuda_add = {NULL, cuda_add_run, NULL, NULL};
const struct nn_kernel nn_cuda_relu = {NULL, cuda_relu_run, NULL, NULL};
const struct nn_kernel nn_cuda_relu_backward = {NULL, cuda_relu_run_backward, NULL, NULL};
const struct nn_kernel nn_cuda_copy = {NULL, cuda_copy_run, NULL, NULL};
const struct nn_kernel nn_cuda_affine = {NULL, cuda_affine_run, NULL, NULL};
const struct nn_kernel nn_cuda_bias = {NULL, cuda_bias_run, NULL, NULL};
const struct nn_kernel nn_cuda_bias_backward = {cuda_bias_plan_backward, cuda_bias_run_backward, NULL, NULL};
const struct nn_kernel nn_cuda_both_ways = {NULL, cuda_both_ways_run, NULL, NULL};
const struct nn_kernel nn_cuda_both_ways_backward = {NULL, cuda_both_ways_run_backward, NULL, NULL};
