// SPDX-License-Identifier: Apache-2.0
//
// Functions of each element alone. ops/activation.c has them in double; here they are of float.
#include <math.h>

#include "workerd/nn/cuda/cuda.h"
#include "workerd/nn/ops/activation.h"

#define GELU_SCALE 0.79788456080286536f  // sqrt(2 / pi)
#define GELU_CUBE 0.044715f
#define SQRT1_2 0.70710678118654752f

static __device__ float sigmoid_of(float x)
{
    return x < 0 ? expf(x) / (1 + expf(x)) : 1 / (1 + expf(-x));
}

static __device__ float softplus_of(float x)
{
    return (x < 0 ? 0 : x) + log1pf(expf(-fabsf(x)));
}

static __device__ float float_within(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;  // a NaN stays one
}

static __device__ float gelu_tanh(float x)
{
    return tanhf(GELU_SCALE * (x + GELU_CUBE * x * x * x));
}

// ---- values -------------------------------------------------------------------------------------------------------

// Straight lines.
static __device__ float line_value(const struct nn_function &f, float x)
{
    switch (f.kind) {
    case NN_F_RECTIFIER:
        return x > f.b ? (x > f.c ? f.c : x) : f.a * (x - f.b);
    case NN_F_RAMP:
        return float_within(f.a * x + f.b, f.c, 1);
    case NN_F_HARD_SHRINK:
        return fabsf(x) <= f.a ? 0 : x;
    case NN_F_SOFT_SHRINK:
        return fabsf(x) <= f.a ? 0 : x < 0 ? x + f.a : x - f.a;
    case NN_F_HARD_SILU:
        return x * float_within(x / 6 + 0.5f, 0, 1);
    case NN_F_SPARSE_PLUS:
        return x <= -1 ? 0 : x < 1 ? (x + 1) * (x + 1) / 4 : x;
    default:
        return x;
    }
}

static __device__ float function_value(const struct nn_function &f, float x)
{
    switch (f.kind) {
    case NN_F_ELU:
        return x > 0 ? f.b * x : f.a * expm1f(x);
    case NN_F_EXPONENTIAL:
        return expf(x);
    case NN_F_GELU:
        return x * 0.5f * erfcf(-x * SQRT1_2);
    case NN_F_GELU_APPROXIMATE:
        return 0.5f * x * (1 + gelu_tanh(x));
    case NN_F_LOG_SIGMOID:
        return -softplus_of(-x);
    case NN_F_MISH:
        return x * tanhf(softplus_of(x));
    case NN_F_SIGMOID:
        return sigmoid_of(x);
    case NN_F_SILU:
        return x * sigmoid_of(x);
    case NN_F_SOFTPLUS:
        return softplus_of(x);
    case NN_F_SOFTSIGN:
        return x / (1 + fabsf(x));
    case NN_F_SQUAREPLUS:
        return (x + sqrtf(x * x + f.a)) / 2;
    case NN_F_TANH:
        return tanhf(x);
    case NN_F_TANH_SHRINK:
        return x - tanhf(x);
    default:
        return line_value(f, x);
    }
}

// ---- slopes -------------------------------------------------------------------------------------------------------
//
// By v, the value or the argument: by_value in the table of nn/ops/activation.c says which.

static __device__ float line_slope(const struct nn_function &f, float v)
{
    switch (f.kind) {
    case NN_F_RECTIFIER:
        return v > f.c ? 0 : v > f.b ? 1 : f.a;
    case NN_F_RAMP:
        return v > f.c && v < 1 ? f.a : 0;
    case NN_F_HARD_SHRINK:
    case NN_F_SOFT_SHRINK:
        return v == 0 ? 0 : 1;
    case NN_F_HARD_SILU:
        return v < -3 ? 0 : v > 3 ? 1 : v / 3 + 0.5f;
    case NN_F_SPARSE_PLUS:
        return v <= -1 ? 0 : v < 1 ? (v + 1) / 2 : 1;
    default:
        return 1;
    }
}

static __device__ float slope_by_argument(const struct nn_function &f, float x)
{
    const float t = f.kind == NN_F_GELU_APPROXIMATE ? gelu_tanh(x)
                    : f.kind == NN_F_MISH           ? tanhf(softplus_of(x))
                                                    : tanhf(x);
    switch (f.kind) {
    case NN_F_GELU:
        return 0.5f * erfcf(-x * SQRT1_2) + x * expf(-x * x / 2) * GELU_SCALE / 2;
    case NN_F_GELU_APPROXIMATE:
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * GELU_SCALE * (1 + 3 * GELU_CUBE * x * x);
    case NN_F_MISH:
        return t + x * (1 - t * t) * sigmoid_of(x);
    case NN_F_SILU:
        return sigmoid_of(x) * (1 + x * (1 - sigmoid_of(x)));
    case NN_F_SQUAREPLUS:
        return (1 + x / sqrtf(x * x + f.a)) / 2;
    case NN_F_TANH_SHRINK:
        return t * t;
    default:
        return line_slope(f, x);
    }
}

static __device__ float function_slope(const struct nn_function &f, float v)
{
    switch (f.kind) {
    case NN_F_ELU:
        return v > 0 ? f.b : v + f.a;
    case NN_F_EXPONENTIAL:
        return v;
    case NN_F_LOG_SIGMOID:
        return -expm1f(v);
    case NN_F_SIGMOID:
        return v * (1 - v);
    case NN_F_SOFTPLUS:
        return -expm1f(-v);
    case NN_F_SOFTSIGN:
        return (1 - fabsf(v)) * (1 - fabsf(v));
    case NN_F_TANH:
        return 1 - v * v;
    default:
        return slope_by_argument(f, v);
    }
}

// ---- runs ---------------------------------------------------------------------------------------------------------

static __global__ void apply_function(size_t n, struct nn_function f, const float *x, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = function_value(f, x[i]);
}

static __global__ void apply_slope(size_t n, struct nn_function f, const float *v, const float *dy, float *dx)
{
    NN_CUDA_EACH(i, n)
    dx[i] = function_slope(f, v[i]) * dy[i];
}

static void cuda_activation_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, apply_function, nn_type_count(&f->op->out_type[0]), *nn_cuda_attr<nn_function>(f),
                     nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

static void cuda_activation_run_backward(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, apply_slope, nn_type_count(&f->op->out_type[0]), *nn_cuda_attr<nn_function>(f),
                     nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_activation = {NULL, cuda_activation_run, NULL, NULL};
const struct nn_kernel nn_cuda_activation_backward = {NULL, cuda_activation_run_backward, NULL, NULL};
