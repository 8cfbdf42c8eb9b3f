// SPDX-License-Identifier: Apache-2.0
//
// Softmax along an axis, its logarithm, and the cross-entropies with class numbers. A team of threads for each line.
#include <math.h>

#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/activation.h"

// ---- along an axis ------------------------------------------------------------------------------------------------

// Lines of n elements, `step` apart.
struct softmax_lines {
    size_t lines, n, step;
    bool logarithm;
};

static __device__ size_t softmax_first(const struct softmax_lines &l, size_t k)
{
    const size_t before = nn_cuda_quotient(k, l.step);
    return before * l.n * l.step + (k - before * l.step);
}

// The greatest, and the sum of exp(x - max): nothing overflows.
struct softmax_sums {
    float max, sum;
};

static __device__ struct softmax_sums softmax_sums_of(size_t n, size_t step, const float *x, float *part)
{
    struct softmax_sums s = {-INFINITY, 0};
    NN_CUDA_TEAM_EACH(j, n)
    s.max = fmaxf(s.max, x[j * step]);
    s.max = nn_cuda_team_max(s.max, part);
    NN_CUDA_TEAM_EACH(j, n)
    s.sum += expf(x[j * step] - s.max);
    s.sum = nn_cuda_team_sum(s.sum, part);
    return s;
}

static __global__ void softmax_of_lines(size_t lines, struct softmax_lines l, const float *x, float *y)
{
    __shared__ float part[NN_CUDA_PARTS];
    const size_t k = nn_cuda_line();
    if (k >= lines)
        return;
    x += softmax_first(l, k);
    y += softmax_first(l, k);
    const struct softmax_sums s = softmax_sums_of(l.n, l.step, x, part);
    NN_CUDA_TEAM_EACH(j, l.n)
    {
        const float d = x[j * l.step] - s.max;
        y[j * l.step] = l.logarithm ? d - logf(s.sum) : expf(d) / s.sum;
    }
}

// softmax: dx_i = y_i (dy_i - sum_j dy_j y_j). Its logarithm: dx_i = dy_i - exp(y_i) sum_j dy_j.
static __global__ void softmax_of_lines_backward(size_t lines, struct softmax_lines l, const float *y, const float *dy,
                                                 float *dx)
{
    __shared__ float part[NN_CUDA_PARTS];
    const size_t k = nn_cuda_line(), first = softmax_first(l, k);
    float sum = 0;
    if (k >= lines)
        return;
    NN_CUDA_TEAM_EACH(j, l.n)
    sum += dy[first + j * l.step] * (l.logarithm ? 1.0f : y[first + j * l.step]);
    sum = nn_cuda_team_sum(sum, part);
    NN_CUDA_TEAM_EACH(j, l.n)
    {
        const size_t i = first + j * l.step;
        dx[i] = l.logarithm ? dy[i] - expf(y[i]) * sum : y[i] * (dy[i] - sum);
    }
}

static struct softmax_lines softmax_lines_of(const struct nn_frame *f, int axis, bool logarithm)
{
    const struct nn_type *type = &f->op->in_type[0];
    struct softmax_lines l = {0, (size_t)type->dim[axis], 1, logarithm};
    for (int i = axis + 1; i < type->rank; i++)
        l.step *= (size_t)type->dim[i];
    l.lines = nn_type_count(type) / l.n;
    return l;
}

static void softmax_forward(const struct nn_frame *f, struct softmax_lines l)
{
    NN_CUDA_RUN_TEAMS(f->context, softmax_of_lines, nn_cuda_team(l.lines, l.n, l.step), l.lines, l, nn_cuda_in(f, 0),
                      nn_cuda_out(f, 0));
}

static void softmax_backward(const struct nn_frame *f, struct softmax_lines l)
{
    NN_CUDA_RUN_TEAMS(f->context, softmax_of_lines_backward, nn_cuda_team(l.lines, l.n, l.step), l.lines, l,
                      nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

static void cuda_softmax_run(const struct nn_frame *f)
{
    softmax_forward(f, softmax_lines_of(f, f->op->in_type[0].rank - 1, false));
}

static void cuda_softmax_run_backward(const struct nn_frame *f)
{
    softmax_backward(f, softmax_lines_of(f, f->op->in_type[0].rank - 1, false));
}

static void cuda_axis_function_run(const struct nn_frame *f)
{
    const struct nn_axis_function *a = nn_cuda_attr<nn_axis_function>(f);
    softmax_forward(f, softmax_lines_of(f, a->axis, a->kind == NN_F_LOG_SOFTMAX));
}

static void cuda_axis_function_run_backward(const struct nn_frame *f)
{
    const struct nn_axis_function *a = nn_cuda_attr<nn_axis_function>(f);
    softmax_backward(f, softmax_lines_of(f, a->axis, a->kind == NN_F_LOG_SOFTMAX));
}

// ---- cross-entropies ----------------------------------------------------------------------------------------------

// loss = -log softmax(x)[label]; its gradient is weight * (softmax(x) - onehot(label)). y and dx may be NULL.
static __global__ void softmax_xent(size_t rows, size_t n, const float *x, const int32_t *label, const float *weight,
                                    float *loss, float *y, float *dx)
{
    __shared__ float part[NN_CUDA_PARTS];
    const size_t r = nn_cuda_line();
    if (r >= rows)
        return;
    x += r * n;
    const struct softmax_sums s = softmax_sums_of(n, 1, x, part);
    const size_t right = (size_t)label[r];
    NN_CUDA_TEAM_EACH(j, n)
    {
        const float p = y || dx ? expf(x[j] - s.max) / s.sum : 0;
        if (y)
            y[r * n + j] = p;
        if (dx)
            dx[r * n + j] = (j == right ? p - 1 : p) * weight[r];
    }
    if (threadIdx.x == 0)
        loss[r] = logf(s.sum) + (s.max - x[right]);
}

static void cuda_softmax_xent_run(const struct nn_frame *f)
{
    const struct nn_loss_outputs *a = nn_cuda_attr<nn_loss_outputs>(f);
    const size_t rows = (size_t)f->op->in_type[0].dim[0], n = (size_t)f->op->in_type[0].dim[1];
    NN_CUDA_RUN_TEAMS(f->context, softmax_xent, nn_cuda_team(rows, n, 1), rows, n, nn_cuda_in(f, 0),
                      (const int32_t *)f->in[1], nn_cuda_in(f, 2), nn_cuda_out(f, 0),
                      a->probabilities ? nn_cuda_out(f, 1) : NULL,
                      a->gradient ? nn_cuda_out(f, 1 + a->probabilities) : NULL);
}

#define CLIP 1e-7  // Keras's epsilon

static __device__ double sparse_xent_clip(float p)
{
    return p < CLIP ? CLIP : p > 1 - CLIP ? 1 - CLIP : p;  // a NaN stays one
}

// In double: logarithms of what is close to 1. dx may be NULL.
static __global__ void sparse_xent(size_t rows, size_t n, const float *p, const int32_t *label, const float *weight,
                                   float *loss, float *dx)
{
    __shared__ double part[NN_CUDA_PARTS];
    const size_t r = nn_cuda_line();
    double sum = 0;
    if (r >= rows)
        return;
    p += r * n;
    NN_CUDA_TEAM_EACH(j, n)
    sum += sparse_xent_clip(p[j]);
    sum = nn_cuda_team_sum(sum, part);
    const size_t right = (size_t)label[r];
    for (size_t j = threadIdx.x; dx && j < n; j += blockDim.x) {
        const bool held = p[j] < CLIP || p[j] > 1 - CLIP;
        const double slope = 1 / sum - (j == right ? 1 / sparse_xent_clip(p[j]) : 0);
        dx[r * n + j] = held ? 0 : (float)(slope * weight[r]);
    }
    if (threadIdx.x == 0)
        loss[r] = (float)(log(sum) - log(sparse_xent_clip(p[right])));
}

static void cuda_sparse_xent_run(const struct nn_frame *f)
{
    const size_t rows = (size_t)f->op->in_type[0].dim[0], n = (size_t)f->op->in_type[0].dim[1];
    NN_CUDA_RUN_TEAMS(f->context, sparse_xent, nn_cuda_team(rows, n, 1), rows, n, nn_cuda_in(f, 0),
                      (const int32_t *)f->in[1], nn_cuda_in(f, 2), nn_cuda_out(f, 0),
                      f->op->n_out > 1 ? nn_cuda_out(f, 1) : NULL);
}

const struct nn_kernel nn_cuda_softmax = {NULL, cuda_softmax_run, NULL, NULL};
const struct nn_kernel nn_cuda_softmax_backward = {NULL, cuda_softmax_run_backward, NULL, NULL};
const struct nn_kernel nn_cuda_axis_function = {NULL, cuda_axis_function_run, NULL, NULL};
const struct nn_kernel nn_cuda_axis_function_backward = {NULL, cuda_axis_function_run_backward, NULL, NULL};
const struct nn_kernel nn_cuda_softmax_xent = {NULL, cuda_softmax_xent_run, NULL, NULL};
const struct nn_kernel nn_cuda_sparse_xent = {NULL, cuda_sparse_xent_run, NULL, NULL};
