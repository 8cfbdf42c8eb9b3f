// SPDX-License-Identifier: Apache-2.0
//
// Functions of each element (ops/activation.c): a loop for each function and one for its slope.
#include "workerd/nn/ops/activation.h"

#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/cpu/vector.h"

typedef void (*activation_loop)(const struct nn_function *f, size_t n, const float *in, float *out);
typedef void (*slope_loop)(const struct nn_function *f, size_t n, const float *in, const float *dy, float *dx);

#define GELU_SCALE 0.79788456f
#define GELU_CUBE 0.044715f

// y = value(x), dx = slope(v) dy, where v is y or x as the operator's table says. a, b, c are the function's numbers.
#define FUNCTION(name, value, slope)                                                                                  \
    static inline float name##_of(float x, float a, float b, float c)                                                 \
    {                                                                                                                 \
        (void)a, (void)b, (void)c;                                                                                    \
        value                                                                                                         \
    }                                                                                                                 \
    static inline float name##_slope_of(float v, float a, float b, float c)                                           \
    {                                                                                                                 \
        (void)a, (void)b, (void)c;                                                                                    \
        slope                                                                                                         \
    }                                                                                                                 \
    PS_PER_CPU static void name##_loop(const struct nn_function *f, size_t n, const float *in, float *out)            \
    {                                                                                                                 \
        const float a = f->a, b = f->b, c = f->c;                                                                     \
        PS_ELEMENTWISE                                                                                                \
        for (size_t i = 0; i < n; i++)                                                                                \
            out[i] = name##_of(in[i], a, b, c);                                                                       \
    }                                                                                                                 \
    PS_PER_CPU static void name##_slope_loop(const struct nn_function *f, size_t n, const float *in, const float *dy, \
                                             float *dx)                                                               \
    {                                                                                                                 \
        const float a = f->a, b = f->b, c = f->c;                                                                     \
        PS_ELEMENTWISE                                                                                                \
        for (size_t i = 0; i < n; i++)                                                                                \
            dx[i] = dy[i] * name##_slope_of(in[i], a, b, c);                                                          \
    }

// clang-format off
FUNCTION(rectifier,
    float above = x > c ? c : x; float below = a * (x - b); return x > b ? above : below;,
    float s = v > b ? 1 : a; return v > c ? 0 : s;)
FUNCTION(elu,
    float above = b * x; float below = a * vector_expm1_of_negative(x > 0 ? 0 : x); return x > 0 ? above : below;,
    float below = v + a; return v > 0 ? b : below;)
FUNCTION(ramp,
    float r = a * x + b; r = r < c ? c : r; return r > 1 ? 1 : r;,
    float s = v > c ? a : 0; return v < 1 ? s : 0;)
FUNCTION(exponential, return vector_exp(x);, return v;)
FUNCTION(gelu,
    float density; return x * vector_normal(x, &density);,
    float density; float p = vector_normal(v, &density); return p + v * density * (GELU_SCALE / 2);)
FUNCTION(gelu_approximate,
    return 0.5f * x * (1 + vector_tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x)));,
    float t = vector_tanh(GELU_SCALE * (v + GELU_CUBE * v * v * v));
    return 0.5f * (1 + t) + 0.5f * v * (1 - t * t) * GELU_SCALE * (1 + 3 * GELU_CUBE * v * v);)
FUNCTION(hard_shrink, return vector_abs(x) <= a ? 0 : x;, return v == 0 ? 0 : 1;)
FUNCTION(hard_silu,
    float r = x * (1 / 6.0f) + 0.5f; r = r < 0 ? 0 : r; r = r > 1 ? 1 : r; return x * r;,
    float s = v * (1 / 3.0f) + 0.5f; s = v < -3 ? 0 : s; return v > 3 ? 1 : s;)
FUNCTION(log_sigmoid, return -vector_softplus(-x);, return -vector_expm1_of_negative(v);)
FUNCTION(mish,
    return x * vector_tanh(vector_softplus(x));,
    float t = vector_tanh(vector_softplus(v)); return t + v * (1 - t * t) * vector_sigmoid(v);)
FUNCTION(sigmoid, return vector_sigmoid(x);, return v * (1 - v);)
FUNCTION(silu, return x * vector_sigmoid(x);, float s = vector_sigmoid(v); return s * (1 + v * (1 - s));)
FUNCTION(soft_shrink,
    float near = x > a ? a : x; near = near < -a ? -a : near; return x - near;,
    return v == 0 ? 0 : 1;)
FUNCTION(softplus, return vector_softplus(x);, return -vector_expm1_of_negative(-v);)
FUNCTION(softsign, return x / (1 + vector_abs(x));, float s = 1 - vector_abs(v); return s * s;)
FUNCTION(sparse_plus,
    float near = (x + 1) * (x + 1) * 0.25f; near = x <= -1 ? 0 : near; return x >= 1 ? x : near;,
    float near = (v + 1) * 0.5f; near = v <= -1 ? 0 : near; return v >= 1 ? 1 : near;)
FUNCTION(squareplus,
    return (x + __builtin_sqrtf(x * x + a)) * 0.5f;,
    return (1 + v / __builtin_sqrtf(v * v + a)) * 0.5f;)
FUNCTION(tanh, return vector_tanh(x);, return 1 - v * v;)
FUNCTION(tanh_shrink, return x - vector_tanh(x);, float t = vector_tanh(v); return t * t;)
// clang-format on

#define LOOPS(name)                    \
    {                                  \
        name##_loop, name##_slope_loop \
    }
static const struct {
    activation_loop value;
    slope_loop slope;
} loops[NN_FUNCTIONS] = {
    [NN_F_RECTIFIER] = LOOPS(rectifier),
    [NN_F_ELU] = LOOPS(elu),
    [NN_F_RAMP] = LOOPS(ramp),
    [NN_F_EXPONENTIAL] = LOOPS(exponential),
    [NN_F_GELU] = LOOPS(gelu),
    [NN_F_GELU_APPROXIMATE] = LOOPS(gelu_approximate),
    [NN_F_HARD_SHRINK] = LOOPS(hard_shrink),
    [NN_F_HARD_SILU] = LOOPS(hard_silu),
    [NN_F_LOG_SIGMOID] = LOOPS(log_sigmoid),
    [NN_F_MISH] = LOOPS(mish),
    [NN_F_SIGMOID] = LOOPS(sigmoid),
    [NN_F_SILU] = LOOPS(silu),
    [NN_F_SOFT_SHRINK] = LOOPS(soft_shrink),
    [NN_F_SOFTPLUS] = LOOPS(softplus),
    [NN_F_SOFTSIGN] = LOOPS(softsign),
    [NN_F_SPARSE_PLUS] = LOOPS(sparse_plus),
    [NN_F_SQUAREPLUS] = LOOPS(squareplus),
    [NN_F_TANH] = LOOPS(tanh),
    [NN_F_TANH_SHRINK] = LOOPS(tanh_shrink),
};

// Elements are shared by whole pieces, so that the same ones are in vectors whatever the number of threads.
enum { PIECE = 64, WORTH = NN_CPU_SHARED / PIECE / 4 };

static size_t activation_size(const struct nn_frame *f, size_t first, size_t last)
{
    const size_t n = nn_type_count(&f->op->out_type[0]);
    return (last * PIECE < n ? last * PIECE : n) - first * PIECE;
}

static void activation_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_function *function = (const struct nn_function *)f->op->attr;
    const size_t at = first * PIECE;
    loops[function->kind].value(function, activation_size(f, first, last), (const float *)f->in[0] + at,
                                (float *)f->out[0] + at);
}

static void activation_part_backward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_function *function = (const struct nn_function *)f->op->attr;
    const size_t at = first * PIECE;
    loops[function->kind].slope(function, activation_size(f, first, last), (const float *)f->in[0] + at,
                                (const float *)f->in[1] + at, (float *)f->out[0] + at);
}

static void activation_share(const struct nn_frame *f, nn_cpu_part *part)
{
    const size_t n = nn_type_count(&f->op->out_type[0]);
    nn_cpu_share(f->context, (n + PIECE - 1) / PIECE, WORTH, part, (void *)f);
}

static void activation_run(const struct nn_frame *f)
{
    activation_share(f, activation_part);
}

static void activation_run_backward(const struct nn_frame *f)
{
    activation_share(f, activation_part_backward);
}

const struct nn_kernel nn_cpu_activation = {.run = activation_run};
const struct nn_kernel nn_cpu_activation_backward = {.run = activation_run_backward};
