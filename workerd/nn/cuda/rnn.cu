// SPDX-License-Identifier: Apache-2.0
//
// SimpleRNN, LSTM and GRU: of each step, products with the recurrent kernel by cuBLAS, and a kernel for all that is
// between them. ops/rnn.c says what stands in `kept`; here a thread has one unit of one row, in all its pieces.
#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/rnn.h"

// ---- shapes -------------------------------------------------------------------------------------------------------

struct rnn_shape {
    struct nn_rnn a;
    size_t n, t, u, width, kept;  // width: of all gates; kept: elements of a step
    size_t leading;               // of kept: elements from row to row
};

static struct rnn_shape rnn_shape_of(const struct nn_rnn *a, const struct nn_type *kept,
                                     const struct nn_type *recurrent)
{
    const struct rnn_shape s = {*a,
                                (size_t)kept->dim[0],
                                (size_t)(kept->dim[1] - a->initial),
                                (size_t)recurrent->dim[0],
                                (size_t)recurrent->dim[1],
                                (size_t)kept->dim[2],
                                (size_t)(kept->dim[1] * kept->dim[2])};
    return s;
}

static int rnn_states(const struct nn_rnn *a)
{
    return a->cell == NN_RNN_LSTM ? 2 : 1;
}

static bool rnn_is_gru(const struct nn_rnn *a)
{
    return a->cell == NN_RNN_GRU || a->cell == NN_RNN_GRU_AFTER;
}

static __host__ __device__ size_t rnn_time(const struct rnn_shape &s, size_t step)
{
    return s.a.backwards ? s.t - 1 - step : step;
}

// What a step has kept, of row 0.
static float *rnn_kept(const struct rnn_shape *s, float *kept, size_t step)
{
    return kept + (step + s->a.initial) * s->kept;
}

// The state before a step, or NULL: zeros.
static float *rnn_before(const struct rnn_shape *s, float *kept, size_t step)
{
    return step == 0 && !s->a.initial ? NULL : rnn_kept(s, kept, step) - s->kept;
}

// A step in a kernel, of row 0.
struct rnn_step {
    size_t step;
    float *k;
    const float *before, *mask;
};

static struct rnn_step rnn_step_at(const struct rnn_shape *s, float *kept, const float *mask, size_t step)
{
    const struct rnn_step at = {step, rnn_kept(s, kept, step), rnn_before(s, kept, step), mask};
    return at;
}

static __device__ bool rnn_masked(const struct rnn_shape &s, const float *mask, size_t row, size_t step)
{
    return mask && mask[row * s.t + rnn_time(s, step)] == 0;
}

// Was each step up to this one masked, where the states before them are not 0?
static __device__ bool rnn_is_silent(const struct rnn_shape &s, const float *mask, size_t row, size_t step)
{
    bool silent = mask && s.a.initial;
    for (size_t i = 0; silent && i <= step; i++)
        silent = rnn_masked(s, mask, row, i);
    return silent;
}

// Is the output of a masked step 0?
static __device__ bool rnn_gives_nothing(const struct rnn_shape &s, const struct rnn_step &at, size_t row)
{
    return rnn_masked(s, at.mask, row, at.step) && (s.a.zero_masked || rnn_is_silent(s, at.mask, row, at.step));
}

// ---- functions ----------------------------------------------------------------------------------------------------

static __device__ float rnn_function(enum nn_rnn_function f, float x)
{
    const float wide = f == NN_RNN_HARD_SIGMOID ? x / 6 + 0.5f : x / 5 + 0.5f;
    switch (f) {
    case NN_RNN_LINEAR:
        return x;
    case NN_RNN_TANH:
        return tanhf(x);
    case NN_RNN_SIGMOID:
        return 1 / (1 + expf(-x));
    case NN_RNN_RELU:
        return x < 0 ? 0 : x;
    case NN_RNN_HARD_SIGMOID:
    case NN_RNN_HARD_SIGMOID2:
        return wide < 0 ? 0 : wide > 1 ? 1 : wide;
    }
    return x;
}

// By what the function gave.
static __device__ float rnn_slope(enum nn_rnn_function f, float y)
{
    switch (f) {
    case NN_RNN_LINEAR:
        return 1;
    case NN_RNN_TANH:
        return 1 - y * y;
    case NN_RNN_SIGMOID:
        return y * (1 - y);
    case NN_RNN_RELU:
        return y > 0;
    case NN_RNN_HARD_SIGMOID:
    case NN_RNN_HARD_SIGMOID2:
        return y > 0 && y < 1 ? (f == NN_RNN_HARD_SIGMOID ? 1.0f / 6 : 1.0f / 5) : 0;
    }
    return 1;
}

// ---- forward ------------------------------------------------------------------------------------------------------

// What the input gives to all steps, and bias, into `kept`. bias may be NULL.
static __global__ void rnn_take_input(size_t n, struct rnn_shape s, const float *z, const float *bias, float *kept)
{
    const bool after = s.a.cell == NN_RNN_GRU_AFTER;
    NN_CUDA_EACH(i, n)
    {
        const size_t at = nn_cuda_quotient(i, s.width), j = i - at * s.width, row = nn_cuda_quotient(at, s.t);
        const size_t step = rnn_time(s, at - row * s.t);
        float *const k = kept + row * s.leading + (step + s.a.initial) * s.kept;
        k[j] = z[i] + (bias ? bias[j] + (j < 2 * s.u ? bias[s.width + j] : 0) : 0);
        if (after && j >= 2 * s.u)
            k[j + s.u] = bias ? bias[s.width + j] : 0;
    }
}

// Each makes of the pre-activations of a step what its functions give, and the state.
static __device__ void rnn_simple(const struct rnn_shape &s, float *k)
{
    *k = rnn_function(s.a.act, *k);
}

static __device__ void rnn_lstm(const struct rnn_shape &s, float *k, const float *before)
{
    const size_t u = s.u;
    const float i = rnn_function(s.a.gate, k[0]), f = rnn_function(s.a.gate, k[u]);
    const float g = rnn_function(s.a.act, k[2 * u]), o = rnn_function(s.a.gate, k[3 * u]);
    const float c = f * (before ? before[4 * u] : 0) + i * g;
    k[0] = i;
    k[u] = f;
    k[2 * u] = g;
    k[3 * u] = o;
    k[4 * u] = c;
    k[5 * u] = o * rnn_function(s.a.act, c);
}

static __device__ void rnn_gru(const struct rnn_shape &s, float *k, const float *before)
{
    const size_t u = s.u;
    const float reset = s.a.cell == NN_RNN_GRU_AFTER ? k[u] * k[3 * u] : 0;
    const float g = rnn_function(s.a.act, k[2 * u] + reset), z = k[0];
    k[2 * u] = g;
    k[4 * u] = z * (before ? before[4 * u] : 0) + (1 - z) * g;
}

static __global__ void rnn_gru_gates(size_t n, struct rnn_shape s, struct rnn_step at)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, s.u), j = i - row * s.u, u = s.u;
        float *const k = at.k + row * s.leading + j;
        k[0] = rnn_function(s.a.gate, k[0]);
        k[u] = rnn_function(s.a.gate, k[u]);
        if (s.a.cell == NN_RNN_GRU)
            k[3 * u] = at.before ? k[u] * at.before[row * s.leading + j + 4 * u] : 0;
    }
}

// The state, or, of a masked step, what the step before has kept; and y, where the step has one.
static __global__ void rnn_end_step(size_t n, struct rnn_shape s, struct rnn_step at, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, s.u), j = i - row * s.u;
        float *const k = at.k + row * s.leading + j;
        const float *const before = at.before ? at.before + row * s.leading + j : NULL;
        if (rnn_masked(s, at.mask, row, at.step))
            for (size_t piece = 0; piece < s.kept; piece += s.u)
                k[piece] = before ? before[piece] : 0;
        else if (s.a.cell == NN_RNN_SIMPLE)
            rnn_simple(s, k);
        else if (s.a.cell == NN_RNN_LSTM)
            rnn_lstm(s, k, before);
        else
            rnn_gru(s, k, before);
        const float h = rnn_gives_nothing(s, at, row) ? 0 : k[s.kept - s.u];
        if (s.a.sequences)
            y[(row * s.t + at.step) * s.u + j] = h;
        else if (at.step + 1 == s.t)
            y[i] = h;
    }
}

// y (rows, columns) = a b, or, with add, that more.
static void rnn_multiply(struct nn_context *c, size_t rows, size_t columns, size_t inner, struct nn_cuda_matrix a,
                         struct nn_cuda_matrix b, float *y, size_t leading, bool add)
{
    const struct nn_cuda_product p = {rows, columns, inner, a, b, 1, y, leading, 0, 1, add};
    nn_cuda_multiply(c, &p);
}

static struct nn_cuda_matrix rnn_matrix(const float *data, size_t leading, bool transposed)
{
    const struct nn_cuda_matrix m = {data, leading, transposed, 0};
    return m;
}

// The products with the state before, and GRU's gates between them.
static void rnn_multiply_step(struct nn_context *c, const struct rnn_shape *s, const struct rnn_step *at,
                              const float *recurrent)
{
    const bool gru = rnn_is_gru(&s->a), after = s->a.cell == NN_RNN_GRU_AFTER;
    const size_t u = s->u, plain = gru ? 2 * u : s->width;
    const float *h = at->before ? at->before + s->kept - u : NULL;
    if (h)
        rnn_multiply(c, s->n, plain, u, rnn_matrix(h, s->leading, false), rnn_matrix(recurrent, s->width, false), at->k,
                     s->leading, true);
    if (gru)
        NN_CUDA_RUN_EACH(c, rnn_gru_gates, s->n * u, *s, *at);
    if (gru && h)
        rnn_multiply(c, s->n, u, u, rnn_matrix(after ? h : at->k + 3 * u, s->leading, false),
                     rnn_matrix(recurrent + 2 * u, s->width, false), at->k + (after ? 3 : 2) * u, s->leading, true);
}

// States as if a step before the first had left them. h stands last, c before it.
static __global__ void rnn_take_states(size_t n, struct rnn_shape s, const float *h, const float *c, float *kept)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, s.u), j = i - row * s.u;
        float *const k = kept + row * s.leading + j;
        for (size_t piece = 0; piece + s.u < s.kept; piece += s.u)
            k[piece] = 0;
        k[s.kept - s.u] = h[i];
        if (c)
            k[s.kept - 2 * s.u] = c[i];
    }
}

static __global__ void rnn_put_states(size_t n, struct rnn_shape s, const float *last, float *h, float *c)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, s.u), j = i - row * s.u;
        h[i] = last[row * s.leading + j + s.kept - s.u];
        if (c)
            c[i] = last[row * s.leading + j + s.kept - 2 * s.u];
    }
}

static const float *rnn_mask_of(const struct nn_frame *f)
{
    return nn_cuda_attr<nn_rnn>(f)->mask ? nn_cuda_in(f, f->op->n_in - 1) : NULL;
}

static void cuda_rnn_run(const struct nn_frame *f)
{
    const struct nn_rnn *a = nn_cuda_attr<nn_rnn>(f);
    const struct rnn_shape s = rnn_shape_of(a, &f->op->out_type[1], &f->op->in_type[1]);
    struct nn_context *c = f->context;
    float *y = nn_cuda_out(f, 0), *kept = nn_cuda_out(f, 1);
    const int given = 2 + a->bias;
    const bool two = rnn_states(a) == 2;
    NN_CUDA_RUN_EACH(c, rnn_take_input, s.n * s.t * s.width, s, nn_cuda_in(f, 0), a->bias ? nn_cuda_in(f, 2) : NULL,
                     kept);
    if (a->initial)
        NN_CUDA_RUN_EACH(c, rnn_take_states, s.n * s.u, s, nn_cuda_in(f, given), two ? nn_cuda_in(f, given + 1) : NULL,
                         kept);
    for (size_t step = 0; step < s.t; step++) {
        const struct rnn_step at = rnn_step_at(&s, kept, rnn_mask_of(f), step);
        rnn_multiply_step(c, &s, &at, nn_cuda_in(f, 1));
        NN_CUDA_RUN_EACH(c, rnn_end_step, s.n * s.u, s, at, y);
    }
    if (a->states)
        NN_CUDA_RUN_EACH(c, rnn_put_states, s.n * s.u, s, (const float *)rnn_kept(&s, kept, s.t - 1), nn_cuda_out(f, 2),
                         two ? nn_cuda_out(f, 3) : NULL);
}

// ---- backward -----------------------------------------------------------------------------------------------------

// (n, u) each: of the state, so far; of GRU's h part of the product; of r h.
struct rnn_slopes {
    const float *dy;
    float *dz, *dh, *dc, *da, *dm;
};

static __device__ float rnn_dy(const struct rnn_shape &s, const struct rnn_step &at, const float *dy, size_t row,
                               size_t j)
{
    if (!dy || rnn_gives_nothing(s, at, row))
        return 0;
    if (s.a.sequences)
        return dy[(row * s.t + at.step) * s.u + j];
    return at.step + 1 == s.t ? dy[row * s.u + j] : 0;
}

// Each turns dh (and dc) of the state after a step into the gradient dz of its pre-activations, and into the part of
// the state's before it that does not come through the product.
static __device__ void rnn_simple_back(const struct rnn_shape &s, const float *k, float *dz, float *dh)
{
    *dz = *dh * rnn_slope(s.a.act, *k);
    *dh = 0;
}

static __device__ void rnn_lstm_back(const struct rnn_shape &s, const float *k, const float *before, float *dz,
                                     float *dh, float *dc)
{
    const size_t u = s.u;
    const float i = k[0], f = k[u], g = k[2 * u], o = k[3 * u];
    const float act = rnn_function(s.a.act, k[4 * u]), c = before ? before[4 * u] : 0;
    const float d = *dc + *dh * o * rnn_slope(s.a.act, act);
    dz[0] = d * g * rnn_slope(s.a.gate, i);
    dz[u] = d * c * rnn_slope(s.a.gate, f);
    dz[2 * u] = d * i * rnn_slope(s.a.act, g);
    dz[3 * u] = *dh * act * rnn_slope(s.a.gate, o);
    *dc = d * f;
    *dh = 0;
}

// dz of z and h~; da is that of h~, or of its product where the reset comes after that.
static __device__ void rnn_gru_back(const struct rnn_shape &s, const float *k, const float *before, float *dz,
                                    float *dh, float *da)
{
    const size_t u = s.u;
    const bool after = s.a.cell == NN_RNN_GRU_AFTER;
    const float z = k[0], r = k[u], g = k[2 * u], h = before ? before[4 * u] : 0;
    const float d = *dh * (1 - z) * rnn_slope(s.a.act, g);
    dz[0] = *dh * (h - g) * rnn_slope(s.a.gate, z);
    dz[u] = after ? d * k[3 * u] * rnn_slope(s.a.gate, r) : 0;
    dz[2 * u] = d;
    *da = after ? d * r : d;
    *dh *= z;
}

static __global__ void rnn_step_back(size_t n, struct rnn_shape s, struct rnn_step at, struct rnn_slopes b)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, s.u), j = i - row * s.u;
        const float *const k = at.k + row * s.leading + j;
        const float *const before = at.before ? at.before + row * s.leading + j : NULL;
        float *const dz = b.dz + (row * s.t + rnn_time(s, at.step)) * s.width + j;
        b.dh[i] += rnn_dy(s, at, b.dy, row, j);
        if (rnn_masked(s, at.mask, row, at.step)) {
            for (size_t gate = 0; gate < s.width; gate += s.u)
                dz[gate] = 0;
            b.da[i] = 0;
        } else if (s.a.cell == NN_RNN_SIMPLE) {
            rnn_simple_back(s, k, dz, b.dh + i);
        } else if (s.a.cell == NN_RNN_LSTM) {
            rnn_lstm_back(s, k, before, dz, b.dh + i, b.dc + i);
        } else {
            rnn_gru_back(s, k, before, dz, b.dh + i, b.da + i);
        }
    }
}

// Of GRU, where the reset comes before the product: through r h.
static __global__ void rnn_reset_back(size_t n, struct rnn_shape s, struct rnn_step at, struct rnn_slopes b)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, s.u), j = i - row * s.u, place = row * s.leading + j;
        const float r = at.k[place + s.u];
        if (rnn_masked(s, at.mask, row, at.step))
            continue;
        b.dz[(row * s.t + rnn_time(s, at.step)) * s.width + s.u + j] =
            b.dm[i] * at.before[place + 4 * s.u] * rnn_slope(s.a.gate, r);
        b.dh[i] += b.dm[i] * r;
    }
}

// dh += of (n, columns) and their part of the recurrent kernel; dpart += h^T of.
static void rnn_product_back(struct nn_context *c, const struct rnn_shape *s, size_t columns, struct nn_cuda_matrix of,
                             const float *part, const float *h, float *dh, float *dpart)
{
    if (dh)
        rnn_multiply(c, s->n, s->u, columns, of, rnn_matrix(part, s->width, true), dh, s->u, true);
    rnn_multiply(c, s->u, columns, s->n, rnn_matrix(h, s->leading, true), of, dpart, s->width, true);
}

// Through the products with the state before: of the gates that dz holds as it is, then of GRU's h~.
static void rnn_products_back(struct nn_context *c, const struct rnn_shape *s, const struct rnn_step *at,
                              const struct rnn_slopes *b, const float *recurrent, float *drecurrent)
{
    const bool gru = rnn_is_gru(&s->a), after = s->a.cell == NN_RNN_GRU_AFTER;
    const size_t u = s->u;
    if (!at->before)
        return;
    const float *h = at->before + s->kept - u;
    rnn_product_back(c, s, gru ? 2 * u : s->width,
                     rnn_matrix(b->dz + rnn_time(*s, at->step) * s->width, s->t * s->width, false), recurrent, h, b->dh,
                     drecurrent);
    if (gru)
        rnn_product_back(c, s, u, rnn_matrix(b->da, u, false), recurrent + 2 * u, after ? h : at->k + 3 * u,
                         after ? b->dh : NULL, drecurrent + 2 * u);
}

static void rnn_back(struct nn_context *c, const struct rnn_shape *s, const struct rnn_step *at,
                     const struct rnn_slopes *b, const float *recurrent, float *drecurrent)
{
    NN_CUDA_RUN_EACH(c, rnn_step_back, s->n * s->u, *s, *at, *b);
    if (s->a.cell == NN_RNN_GRU && at->before) {
        rnn_multiply(c, s->n, s->u, s->u, rnn_matrix(b->da, s->u, false),
                     rnn_matrix(recurrent + 2 * s->u, s->width, true), b->dm, s->u, false);
        NN_CUDA_RUN_EACH(c, rnn_reset_back, s->n * s->u, *s, *at, *b);
    }
    rnn_products_back(c, s, at, b, recurrent, drecurrent);
}

enum { BIAS_COLUMNS = 32, BIAS_ROWS = 8 };

// The gradient of the bias that is added to h R_h: da of all steps, which follows from dz.
static __global__ void rnn_bias_back(struct rnn_shape s, const float *dz, const float *kept, float *dbias)
{
    __shared__ float part[BIAS_ROWS][BIAS_COLUMNS];
    const size_t j = (size_t)blockIdx.x * BIAS_COLUMNS + threadIdx.x;
    float mine = 0;
    for (size_t i = threadIdx.y; j < s.u && i < s.n * s.t; i += BIAS_ROWS) {
        const size_t row = nn_cuda_quotient(i, s.t), step = rnn_time(s, i - row * s.t);
        const float *const k = kept + row * s.leading + (step + s.a.initial) * s.kept;
        mine += dz[i * s.width + 2 * s.u + j] * (s.a.cell == NN_RNN_GRU_AFTER ? k[s.u + j] : 1);
    }
    part[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y != 0 || j >= s.u)
        return;
    for (int k = 1; k < BIAS_ROWS; k++)
        mine += part[k][threadIdx.x];
    dbias[j] = mine;
}

static void rnn_copy(struct nn_context *c, float *to, const float *from, size_t n)
{
    if (c->error.code == PS_OK)
        nn_cuda_note(c, cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDeviceToDevice, c->stream), "a copy on it");
}

static void rnn_clear(struct nn_context *c, float *to, size_t n)
{
    if (c->error.code == PS_OK)
        nn_cuda_note(c, cudaMemsetAsync(to, 0, n * sizeof *to, c->stream), "its memory is cleared");
}

// dbias (2, 3 u): both rows have the same for z and r.
static void rnn_biases_back(struct nn_context *c, const struct rnn_shape *s, const float *dz, const float *kept,
                            float *dbias)
{
    nn_cuda_sum_rows(c, s->n * s->t, s->width, dz, dbias);
    rnn_copy(c, dbias + s->width, dbias, 2 * s->u);
    NN_CUDA_RUN(c, rnn_bias_back, (unsigned)((s->u + BIAS_COLUMNS - 1) / BIAS_COLUMNS), dim3(BIAS_COLUMNS, BIAS_ROWS),
                0, *s, dz, kept, dbias + s->width + 2 * s->u);
}

// Where it begins: the gradients of what the last step has left, and of nothing.
static struct rnn_slopes rnn_begin_back(const struct nn_frame *f, const struct rnn_shape *s)
{
    const size_t piece = s->n * s->u;
    float *dh = nn_cuda_out(f, f->op->n_out - 1);
    struct rnn_slopes b = {NULL, nn_cuda_out(f, 0), dh, dh + piece, dh + 2 * piece, dh + 3 * piece};
    int n = 2;
    rnn_clear(f->context, b.dh, 2 * piece);
    rnn_clear(f->context, nn_cuda_out(f, 1), nn_type_count(&f->op->out_type[1]));
    if (s->a.dy[0])
        b.dy = nn_cuda_in(f, n++);
    for (int i = 1; i < 3; i++)
        if (s->a.dy[i])
            rnn_copy(f->context, i == 1 ? b.dh : b.dc, nn_cuda_in(f, n++), piece);
    return b;
}

static enum ps_code cuda_rnn_plan_backward(struct nn_context *c, const struct nn_op *op, void **plan,
                                           struct ps_error *e)
{
    const struct nn_type *dz = &op->out_type[0];
    (void)plan;
    return nn_cuda_reserve_sum(c, nn_type_rows(dz), (size_t)dz->dim[2], e);
}

static void cuda_rnn_run_backward(const struct nn_frame *f)
{
    const struct nn_rnn *a = nn_cuda_attr<nn_rnn>(f);
    const struct rnn_shape s = rnn_shape_of(a, &f->op->in_type[1], &f->op->in_type[0]);
    const struct rnn_slopes b = rnn_begin_back(f, &s);
    float *const kept = (float *)f->in[1];  // only read
    for (size_t step = s.t; step--;) {
        const struct rnn_step at = rnn_step_at(&s, kept, rnn_mask_of(f), step);
        rnn_back(f->context, &s, &at, &b, nn_cuda_in(f, 0), nn_cuda_out(f, 1));
    }
    if (a->bias)
        rnn_biases_back(f->context, &s, b.dz, kept, nn_cuda_out(f, 2));
    for (int i = 0; i < a->initial * rnn_states(a); i++)
        rnn_copy(f->context, nn_cuda_out(f, 2 + a->bias + i), i == 0 ? b.dh : b.dc, s.n * s.u);
}

static const char *cuda_rnn_info(const void *plan)
{
    (void)plan;
    return "cublas";
}

const struct nn_kernel nn_cuda_rnn = {NULL, cuda_rnn_run, NULL, cuda_rnn_info};
const struct nn_kernel nn_cuda_rnn_backward = {cuda_rnn_plan_backward, cuda_rnn_run_backward, NULL, cuda_rnn_info};
