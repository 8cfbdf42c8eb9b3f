// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers: the order of things is the reference's, the products are oneDNN's sgemm, the cells loops of ours.
#include "workerd/nn/ops/rnn.h"

#include <string.h>

#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/cpu/vector.h"

// ---- functions ----------------------------------------------------------------------------------------------------

// y = f(x), d *= the slope of f where it gave y: a loop for each function.
#define RNN_FUNCTION(name, value, slope)                                                             \
    PS_PER_CPU static void rnn_##name##_loop(size_t n, const float *in, float *out)                  \
    {                                                                                                \
        PS_ELEMENTWISE                                                                               \
        for (size_t i = 0; i < n; i++) {                                                             \
            const float x = in[i];                                                                   \
            out[i] = value;                                                                          \
        }                                                                                            \
    }                                                                                                \
    PS_PER_CPU static void rnn_##name##_slope(size_t n, const float *restrict in, float *restrict d) \
    {                                                                                                \
        for (size_t i = 0; i < n; i++) {                                                             \
            const float y = in[i];                                                                   \
            (void)y;                                                                                 \
            d[i] *= slope;                                                                           \
        }                                                                                            \
    }

static inline float rnn_within(float x)
{
    const float least = x < 0 ? 0 : x;
    return least > 1 ? 1 : least;
}

static inline float rnn_inside(float y, float slope)
{
    const float above = y > 0 ? slope : 0;
    return y < 1 ? above : 0;
}

// clang-format off
RNN_FUNCTION(linear, x, 1)
RNN_FUNCTION(tanh, vector_tanh(x), 1 - y * y)
RNN_FUNCTION(sigmoid, vector_sigmoid(x), y * (1 - y))
RNN_FUNCTION(relu, x < 0 ? 0 : x, y > 0 ? 1 : 0)
RNN_FUNCTION(hard_sigmoid, rnn_within(x / 6 + 0.5f), rnn_inside(y, 1 / 6.0f))
RNN_FUNCTION(hard_sigmoid2, rnn_within(x / 5 + 0.5f), rnn_inside(y, 1 / 5.0f))
// clang-format on

#define RNN_LOOPS(name)                       \
    {                                         \
        rnn_##name##_loop, rnn_##name##_slope \
    }
static const struct {
    void (*value)(size_t n, const float *in, float *out);
    void (*slope)(size_t n, const float *in, float *d);
} rnn_loops[] = {
    [NN_RNN_LINEAR] = RNN_LOOPS(linear),
    [NN_RNN_TANH] = RNN_LOOPS(tanh),
    [NN_RNN_SIGMOID] = RNN_LOOPS(sigmoid),
    [NN_RNN_RELU] = RNN_LOOPS(relu),
    [NN_RNN_HARD_SIGMOID] = RNN_LOOPS(hard_sigmoid),
    [NN_RNN_HARD_SIGMOID2] = RNN_LOOPS(hard_sigmoid2),
};

static void rnn_apply(enum nn_rnn_function f, size_t n, const float *in, float *out)
{
    rnn_loops[f].value(n, in, out);
}

static void rnn_times_slope(enum nn_rnn_function f, size_t n, const float *in, float *d)
{
    rnn_loops[f].slope(n, in, d);
}

// ---- forward ------------------------------------------------------------------------------------------------------

PS_PER_CPU static void rnn_add(size_t n, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

// y = x by
PS_PER_CPU static void rnn_multiply(size_t n, const float *x, const float *by, float *y)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * by[i];
}

// y = a b + c d, of which b may be NULL: zeros.
PS_PER_CPU static void rnn_two_products(size_t n, const float *restrict a, const float *restrict b,
                                        const float *restrict c, const float *restrict d, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = c[i] * d[i];
    for (size_t i = 0; b && i < n; i++)
        y[i] += a[i] * b[i];
}

// y = z before + (1 - z) g, where before may be NULL: zeros.
PS_PER_CPU static void rnn_mix(size_t n, const float *restrict z, const float *restrict before, const float *restrict g,
                               float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (1 - z[i]) * g[i];
    for (size_t i = 0; before && i < n; i++)
        y[i] += z[i] * before[i];
}

static void rnn_fast_simple(const struct nn_rnn *a, size_t u, float *k, const float *before)
{
    (void)before;
    rnn_apply(a->act, u, k, k);
}

static void rnn_fast_lstm(const struct nn_rnn *a, size_t u, float *k, const float *before)
{
    rnn_apply(a->gate, 2 * u, k, k);
    rnn_apply(a->act, u, k + 2 * u, k + 2 * u);
    rnn_apply(a->gate, u, k + 3 * u, k + 3 * u);
    rnn_two_products(u, k + u, before ? before + 4 * u : NULL, k, k + 2 * u, k + 4 * u);
    rnn_apply(a->act, u, k + 4 * u, k + 5 * u);
    rnn_multiply(u, k + 5 * u, k + 3 * u, k + 5 * u);
}

static void rnn_fast_gru_gates(const struct nn_rnn *a, size_t u, float *k, const float *before)
{
    rnn_apply(a->gate, 2 * u, k, k);
    if (a->cell == NN_RNN_GRU && before)
        rnn_multiply(u, k + u, before + 4 * u, k + 3 * u);
    else if (a->cell == NN_RNN_GRU)
        memset(k + 3 * u, 0, u * sizeof *k);
}

static void rnn_fast_gru_state(const struct nn_rnn *a, size_t u, float *k, const float *before)
{
    if (a->cell == NN_RNN_GRU_AFTER) {
        rnn_multiply(u, k + u, k + 3 * u, k + 4 * u);
        rnn_add(u, k + 4 * u, k + 2 * u);
    }
    rnn_apply(a->act, u, k + 2 * u, k + 2 * u);
    rnn_mix(u, k, before ? before + 4 * u : NULL, k + 2 * u, k + 4 * u);
}

// ---- backward -----------------------------------------------------------------------------------------------------

static void rnn_fast_simple_back(const struct nn_rnn *a, size_t u, const float *k, float *dz, float *dh)
{
    memcpy(dz, dh, u * sizeof *dz);
    memset(dh, 0, u * sizeof *dh);
    rnn_times_slope(a->act, u, k, dz);
}

// Of what the slopes are still to be multiplied with: dz of o holds act(c), dz of i holds dh o times its slope.
PS_PER_CPU static void rnn_lstm_products(size_t u, const float *restrict k, const float *restrict before,
                                         float *restrict dz, const float *restrict dh, float *restrict dc)
{
    for (size_t j = 0; j < u; j++) {
        const float d = dc[j] + dz[j], i = k[j], g = k[2 * u + j];
        dz[j] = d * g;
        dz[2 * u + j] = d * i;
        dz[3 * u + j] *= dh[j];
        dc[j] = d * k[u + j];
        dz[u + j] = d;
    }
    for (size_t j = 0; j < u; j++)
        dz[u + j] *= before ? before[j] : 0;
}

static void rnn_fast_lstm_back(const struct nn_rnn *a, size_t u, const float *k, const float *before, float *dz,
                               float *dh, float *dc)
{
    rnn_apply(a->act, u, k + 4 * u, dz + 3 * u);
    rnn_multiply(u, dh, k + 3 * u, dz);
    rnn_times_slope(a->act, u, dz + 3 * u, dz);
    rnn_lstm_products(u, k, before ? before + 4 * u : NULL, dz, dh, dc);
    rnn_times_slope(a->gate, 2 * u, k, dz);
    rnn_times_slope(a->act, u, k + 2 * u, dz + 2 * u);
    rnn_times_slope(a->gate, u, k + 3 * u, dz + 3 * u);
    memset(dh, 0, u * sizeof *dh);
}

// dz of h~ holds its slope times dh.
PS_PER_CPU static void rnn_gru_products(size_t u, bool after, const float *restrict k, const float *restrict before,
                                        float *restrict dz, float *restrict dh, float *restrict da)
{
    for (size_t j = 0; j < u; j++) {
        const float z = k[j], g = k[2 * u + j], d = dz[2 * u + j] * (1 - z);
        dz[2 * u + j] = d;
        dz[j] = before ? dh[j] * (before[j] - g) : dh[j] * -g;
        dh[j] *= z;
        da[j] = d;
    }
    for (size_t j = 0; j < u; j++)
        dz[u + j] = after ? da[j] * k[3 * u + j] : 0;
    for (size_t j = 0; after && j < u; j++)
        da[j] *= k[u + j];
}

static void rnn_fast_gru_back(const struct nn_rnn *a, size_t u, const float *k, const float *before, float *dz,
                              float *dh, float *da)
{
    memcpy(dz + 2 * u, dh, u * sizeof *dz);
    rnn_times_slope(a->act, u, k + 2 * u, dz + 2 * u);
    rnn_gru_products(u, a->cell == NN_RNN_GRU_AFTER, k, before ? before + 4 * u : NULL, dz, dh, da);
    rnn_times_slope(a->gate, 2 * u, k, dz);
}

// ---- kernels ------------------------------------------------------------------------------------------------------

static void rnn_sgemm(bool ta, bool tb, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                      size_t ldb, float beta, float *c, size_t ldc)
{
    nn_cpu_must(dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1, a,
                           (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, beta, c, (dnnl_dim_t)ldc),
                "rnn");
}

static void rnn_rows(struct nn_context *context, size_t n, size_t each, nn_rnn_rows *part, void *arg)
{
    nn_cpu_share(context, n, nn_cpu_least(2 * each), part, arg);
}

static const struct nn_rnn_parts rnn_fast = {.product = rnn_sgemm,
                                             .add = rnn_add,
                                             .simple = rnn_fast_simple,
                                             .lstm = rnn_fast_lstm,
                                             .gru_gates = rnn_fast_gru_gates,
                                             .gru_state = rnn_fast_gru_state,
                                             .simple_back = rnn_fast_simple_back,
                                             .lstm_back = rnn_fast_lstm_back,
                                             .gru_back = rnn_fast_gru_back,
                                             .rows = rnn_rows};

static void rnn_run(const struct nn_frame *f)
{
    nn_rnn_forward(f, &rnn_fast);
}

static void rnn_run_backward(const struct nn_frame *f)
{
    nn_rnn_backward(f, &rnn_fast);
}

static const char *rnn_info(const void *plan)
{
    (void)plan;
    return "sgemm";
}

const struct nn_kernel nn_cpu_rnn = {.run = rnn_run, .info = rnn_info};
const struct nn_kernel nn_cpu_rnn_backward = {.run = rnn_run_backward, .info = rnn_info};
