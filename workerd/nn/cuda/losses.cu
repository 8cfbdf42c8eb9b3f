// SPDX-License-Identifier: Apache-2.0
//
// Losses that compare an output with numbers of its shape, weights of rows, and penalties. ops/losses.c says what each
// computes. A team of threads for each row; in double, since there are few of these elements, and differences of what
// is almost equal among them.
#include <math.h>

#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/losses.h"
#include "workerd/nn/ops/penalty.h"

#define EPSILON 1e-7                          // Keras's
#define ONE_LESS ((double)(float)(1 - 1e-7))  // as in ops/losses.c

// One row. y and dx may be NULL.
struct loss_row {
    struct ps_loss loss;
    size_t n;
    const float *p, *t;
    float *y, *dx;
    float weight;
    bool binary;  // all targets of the batch are 0 or 1
};

static __device__ double loss_clip(double p, double least, double most)
{
    return p < least ? least : p > most ? most : p;  // a NaN stays one
}

static __device__ bool loss_is_inside(double p, double least, double most)
{
    return !(p < least || p > most);
}

static __device__ double loss_sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static __device__ double loss_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

// ---- of elements, whose mean it is --------------------------------------------------------------------------------

static __device__ double loss_mae(double p, double t, double *slope)
{
    *slope = p > t ? 1 : p < t ? -1 : p - t;
    return fabs(p - t);
}

static __device__ double loss_mape(double p, double t, double *slope)
{
    const double base = fmax(fabs(t), EPSILON), error = 100 * loss_mae(p, t, slope) / base;
    *slope *= 100 / base;
    return error;
}

static __device__ double loss_msle(double p, double t, double *slope)
{
    const double floor_p = p < EPSILON ? EPSILON : p, floor_t = t < EPSILON ? EPSILON : t;
    const double d = log(floor_p + 1) - log(floor_t + 1);
    *slope = p < EPSILON ? 0 : 2 * d / (floor_p + 1);
    return d * d;
}

static __device__ double loss_huber(double delta, double p, double t, double *slope)
{
    const double error = p - t;
    if (fabs(error) > delta) {
        *slope = error > 0 ? delta : -delta;
        return delta * fabs(error) - 0.5 * delta * delta;
    }
    *slope = error;
    return 0.5 * error * error;
}

static __device__ double loss_log_cosh(double p, double t, double *slope)
{
    const double x = p - t;
    *slope = tanh(x);
    return x + loss_softplus(-2 * x) - log(2.0);
}

static __device__ double loss_hinge(bool binary, double p, double t, double *slope)
{
    const double side = binary ? 2 * t - 1 : t, lack = 1 - side * p;
    *slope = lack < 0 ? 0 : -side;
    return lack < 0 ? 0 : lack;
}

static __device__ double loss_squared_hinge(bool binary, double p, double t, double *slope)
{
    const double lack = loss_hinge(binary, p, t, slope);
    *slope *= 2 * lack;
    return lack * lack;
}

static __device__ double loss_poisson(double p, double t, double *slope)
{
    *slope = 1 - t / (p + EPSILON);
    return p - t * log(p + EPSILON);
}

// Of a probability.
static __device__ double loss_binary_of(double p, double t, double *slope)
{
    const double q = loss_clip(p, EPSILON, ONE_LESS);
    *slope = loss_is_inside(p, EPSILON, ONE_LESS) ? (1 - t) / (1 - q) - t / q : 0;
    return -t * log(q) - (1 - t) * log(1 - q);
}

static __device__ double loss_binary_xent(const struct ps_loss &l, double x, double t, double *slope)
{
    t = t * (1 - l.label_smoothing) + 0.5 * l.label_smoothing;
    if (!l.from_logits)
        return loss_binary_of(x, t, slope);
    *slope = loss_sigmoid(x) - t;
    return loss_softplus(x) - x * t;
}

// The cross-entropy times (1 - p_t)^gamma, p_t the probability of the right answer.
static __device__ double loss_binary_focal(const struct ps_loss &l, double x, double given, double *slope)
{
    const double t = given * (1 - l.label_smoothing) + 0.5 * l.label_smoothing;
    const double p = l.from_logits ? loss_sigmoid(x) : x, dp = l.from_logits ? p * (1 - p) : 1;
    const double wrong = 1 - (t * p + (1 - t) * (1 - p)), factor = pow(wrong, l.gamma);
    const double balance = l.apply_class_balancing ? t * l.alpha + (1 - t) * (1 - l.alpha) : 1;
    const double entropy = loss_binary_xent(l, x, given, slope);
    const double steep = l.gamma > 0 ? l.gamma * pow(wrong, l.gamma - 1) * (1 - 2 * t) * dp : 0;
    *slope = balance * (factor * *slope + steep * entropy);
    return balance * factor * entropy;
}

static __device__ double loss_element(const struct loss_row &r, double p, double t, double *slope)
{
    switch (r.loss.kind) {
    case PS_LOSS_MAE:
        return loss_mae(p, t, slope);
    case PS_LOSS_MAPE:
        return loss_mape(p, t, slope);
    case PS_LOSS_MSLE:
        return loss_msle(p, t, slope);
    case PS_LOSS_HUBER:
        return loss_huber(r.loss.delta, p, t, slope);
    case PS_LOSS_LOG_COSH:
        return loss_log_cosh(p, t, slope);
    case PS_LOSS_HINGE:
        return loss_hinge(r.binary, p, t, slope);
    case PS_LOSS_SQUARED_HINGE:
        return loss_squared_hinge(r.binary, p, t, slope);
    case PS_LOSS_POISSON:
        return loss_poisson(p, t, slope);
    case PS_LOSS_BINARY_XENT:
        return loss_binary_xent(r.loss, p, t, slope);
    default:
        return loss_binary_focal(r.loss, p, t, slope);
    }
}

static __device__ double loss_mean_of_elements(const struct loss_row &r, double *part)
{
    double sum = 0, slope;
    NN_CUDA_TEAM_EACH(i, r.n)
    {
        sum += loss_element(r, (double)r.p[i], (double)r.t[i], &slope);
        if (r.dx)
            r.dx[i] = (float)(slope / (double)r.n) * r.weight;
        if (r.y)
            r.y[i] = (float)loss_sigmoid((double)r.p[i]);
    }
    return nn_cuda_team_sum(sum, part) / (double)r.n;
}

// ---- of rows ------------------------------------------------------------------------------------------------------

// A NaN is greater than all.
struct loss_greater {
    static __device__ double of(double a, double b)
    {
        return b > a || isnan(b) ? b : a;
    }
};

static __device__ double loss_smooth(const struct loss_row &r, size_t i)
{
    return (double)r.t[i] * (1 - r.loss.label_smoothing) + r.loss.label_smoothing / (double)r.n;
}

// The gradient is softmax(x) - t, as in TensorFlow: targets are taken to add up to 1.
static __device__ double loss_xent_of_logits(const struct loss_row &r, double *part)
{
    double max = -INFINITY, sum = 0, loss = 0;
    NN_CUDA_TEAM_EACH(i, r.n)
    max = loss_greater::of(max, (double)r.p[i]);
    max = nn_cuda_team_all<loss_greater>(max, part);
    NN_CUDA_TEAM_EACH(i, r.n)
    sum += exp((double)r.p[i] - max);
    sum = nn_cuda_team_sum(sum, part);
    NN_CUDA_TEAM_EACH(i, r.n)
    {
        const double p = exp((double)r.p[i] - max) / sum, t = loss_smooth(r, i);
        loss += t > 0 || t < 0 ? t * (log(sum) + max - (double)r.p[i]) : 0;
        if (r.y)
            r.y[i] = (float)p;
        if (r.dx)
            r.dx[i] = (float)(p - t) * r.weight;
    }
    return nn_cuda_team_sum(loss, part);
}

// -t log q, and its slope by q. With focal, times alpha (1 - q)^gamma.
static __device__ double loss_xent_term(const struct loss_row &r, size_t i, double q, double *slope)
{
    const struct ps_loss &l = r.loss;
    const double entropy = -loss_smooth(r, i) * log(q);
    *slope = -loss_smooth(r, i) / q;
    if (l.kind == PS_LOSS_XENT)
        return entropy;
    const double factor = l.alpha * pow(1 - q, l.gamma);
    const double steep = l.gamma > 0 ? -l.alpha * l.gamma * pow(1 - q, l.gamma - 1) : 0;
    *slope = factor * *slope + steep * entropy;
    return factor * entropy;
}

// q = clip(p / sum of p): d loss / d p_j = (g_j - sum_i g_i p_i / sum) / sum, where g_i = d loss / d q_i.
static __device__ double loss_xent_of_probabilities(const struct loss_row &r, double *part)
{
    double sum = 0, loss = 0, dot = 0, slope;
    NN_CUDA_TEAM_EACH(i, r.n)
    sum += (double)r.p[i];
    sum = nn_cuda_team_sum(sum, part);
    NN_CUDA_TEAM_EACH(i, r.n)
    {
        const double share = (double)r.p[i] / sum;
        loss += loss_xent_term(r, i, loss_clip(share, EPSILON, ONE_LESS), &slope);
        slope = loss_is_inside(share, EPSILON, ONE_LESS) ? slope : 0;
        dot += slope * share;
        if (r.dx)
            r.dx[i] = (float)slope;
    }
    dot = nn_cuda_team_sum(dot, part);
    for (size_t i = threadIdx.x; r.dx && i < r.n; i += blockDim.x)
        r.dx[i] = (float)(((double)r.dx[i] - dot) / sum) * r.weight;
    return nn_cuda_team_sum(loss, part);
}

static __device__ double loss_kl(const struct loss_row &r, double *part)
{
    double loss = 0;
    NN_CUDA_TEAM_EACH(i, r.n)
    {
        const double p = loss_clip((double)r.p[i], EPSILON, 1), t = loss_clip((double)r.t[i], EPSILON, 1);
        loss += t * log(t / p);
        if (r.dx)
            r.dx[i] = (float)(loss_is_inside((double)r.p[i], EPSILON, 1) ? -t / p : 0) * r.weight;
    }
    return nn_cuda_team_sum(loss, part);
}

// max(1 + max((1 - t) p) - sum(t p), 0); of several that are greatest, each has its part of the gradient.
static __device__ double loss_categorical_hinge(const struct loss_row &r, double *part)
{
    double right = 0, wrong = -INFINITY, ties = 0;
    NN_CUDA_TEAM_EACH(i, r.n)
    {
        wrong = loss_greater::of(wrong, (1 - (double)r.t[i]) * (double)r.p[i]);
        right += (double)r.t[i] * (double)r.p[i];
    }
    right = nn_cuda_team_sum(right, part);
    wrong = nn_cuda_team_all<loss_greater>(wrong, part);
    NN_CUDA_TEAM_EACH(i, r.n)
    ties += !((1 - (double)r.t[i]) * (double)r.p[i] < wrong);
    ties = nn_cuda_team_sum(ties, part);
    const double lack = wrong - right + 1;
    for (size_t i = threadIdx.x; r.dx && i < r.n; i += blockDim.x) {
        const double t = (double)r.t[i];
        const bool greatest = !((1 - t) * (double)r.p[i] < wrong);
        r.dx[i] = (float)(lack < 0 ? 0 : (greatest ? (1 - t) / ties : 0) - t) * r.weight;
    }
    return lack < 0 ? 0 : lack;
}

// 1 / |x|, at most 1 / EPSILON.
static __device__ double loss_inverse_norm(size_t n, const float *x, double *part)
{
    double sum = 0;
    NN_CUDA_TEAM_EACH(i, n)
    sum += (double)x[i] * (double)x[i];
    sum = nn_cuda_team_sum(sum, part);
    return sum > EPSILON * EPSILON || isnan(sum) ? 1 / sqrt(sum) : 1 / EPSILON;
}

static __device__ double loss_cosine(const struct loss_row &r, double *part)
{
    const double by_p = loss_inverse_norm(r.n, r.p, part), by_t = loss_inverse_norm(r.n, r.t, part);
    double dot = 0;
    NN_CUDA_TEAM_EACH(i, r.n)
    dot += (double)r.p[i] * by_p * (double)r.t[i] * by_t;
    dot = nn_cuda_team_sum(dot, part);
    const double fall = by_p < 1 / EPSILON ? dot * by_p * by_p : 0;
    for (size_t i = threadIdx.x; r.dx && i < r.n; i += blockDim.x)
        r.dx[i] = (float)((double)r.p[i] * fall - (double)r.t[i] * by_t * by_p) * r.weight;
    return -dot;
}

static __device__ double loss_of_row(const struct loss_row &r, double *part)
{
    switch (r.loss.kind) {
    case PS_LOSS_XENT:
        return r.loss.from_logits ? loss_xent_of_logits(r, part) : loss_xent_of_probabilities(r, part);
    case PS_LOSS_FOCAL:
        return loss_xent_of_probabilities(r, part);
    case PS_LOSS_KL:
        return loss_kl(r, part);
    case PS_LOSS_CATEGORICAL_HINGE:
        return loss_categorical_hinge(r, part);
    case PS_LOSS_COSINE:
        return loss_cosine(r, part);
    default:
        return loss_mean_of_elements(r, part);
    }
}

// ---- the operator -------------------------------------------------------------------------------------------------

// r is of the first row. other: 1 where a target is not 0 or 1; NULL where nobody asks.
static __global__ void loss_of_rows(size_t rows, struct loss_row r, const float *weight, const unsigned *other,
                                    float *loss)
{
    __shared__ double part[NN_CUDA_PARTS];
    const size_t k = nn_cuda_line();
    if (k >= rows)
        return;
    r.p += k * r.n;
    r.t += k * r.n;
    r.y = r.y ? r.y + k * r.n : NULL;
    r.dx = r.dx ? r.dx + k * r.n : NULL;
    r.weight = weight[k];
    r.binary = other && *other == 0;
    const double of_row = loss_of_row(r, part);
    if (threadIdx.x == 0)
        loss[k] = (float)of_row;
}

static __global__ void find_other_targets(size_t n, const float *t, unsigned *other)
{
    NN_CUDA_EACH(i, n)
    if (!(t[i] == 0 || t[i] == 1))
        atomicOr(other, 1u);
}

static bool loss_asks_targets(const struct nn_op *op)
{
    const struct nn_loss_attr *a = (const struct nn_loss_attr *)(const void *)op->attr;
    return a->loss.kind == PS_LOSS_HINGE || a->loss.kind == PS_LOSS_SQUARED_HINGE;
}

static enum ps_code cuda_loss_plan(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    *plan = NULL;
    return loss_asks_targets(op) ? nn_cuda_reserve(c, sizeof(unsigned), e) : PS_OK;
}

static const unsigned *loss_ask_targets(const struct nn_frame *f)
{
    struct nn_context *c = f->context;
    if (!loss_asks_targets(f->op))
        return NULL;
    if (c->error.code == PS_OK)
        nn_cuda_note(c, cudaMemsetAsync(c->scratch, 0, sizeof(unsigned), c->stream), "a hinge loss");
    NN_CUDA_RUN_EACH(c, find_other_targets, nn_type_count(&f->op->in_type[1]), nn_cuda_in(f, 1),
                     (unsigned *)c->scratch);
    return (const unsigned *)c->scratch;
}

static void cuda_loss_run(const struct nn_frame *f)
{
    const struct nn_loss_attr *a = nn_cuda_attr<nn_loss_attr>(f);
    const size_t rows = (size_t)f->op->in_type[0].dim[0], n = (size_t)f->op->in_type[0].dim[1];
    const struct loss_row r = {a->loss,
                               n,
                               nn_cuda_in(f, 0),
                               nn_cuda_in(f, 1),
                               a->probabilities ? nn_cuda_out(f, 1) : NULL,
                               a->gradient ? nn_cuda_out(f, 1 + a->probabilities) : NULL,
                               0,
                               false};
    const unsigned *other = loss_ask_targets(f);
    NN_CUDA_RUN_TEAMS(f->context, loss_of_rows, nn_cuda_team(rows, n, 1), rows, r, nn_cuda_in(f, 2), other,
                      nn_cuda_out(f, 0));
}

// ---- mean squared error -------------------------------------------------------------------------------------------

// dx may be NULL.
static __global__ void squared_error(size_t rows, size_t n, const float *x, const float *target, const float *weight,
                                     float *loss, float *dx)
{
    __shared__ double part[NN_CUDA_PARTS];
    const size_t r = nn_cuda_line();
    double sum = 0;
    if (r >= rows)
        return;
    const double scale = 2 * (double)weight[r] / (double)n;
    for (size_t i = r * n + threadIdx.x; i < (r + 1) * n; i += blockDim.x) {
        const double d = (double)x[i] - (double)target[i];
        sum += d * d;
        if (dx)
            dx[i] = (float)(scale * d);
    }
    sum = nn_cuda_team_sum(sum, part);
    if (threadIdx.x == 0)
        loss[r] = (float)(sum / (double)n);
}

static void cuda_mse_run(const struct nn_frame *f)
{
    const size_t rows = (size_t)f->op->in_type[0].dim[0], n = nn_type_count(&f->op->in_type[0]) / rows;
    NN_CUDA_RUN_TEAMS(f->context, squared_error, nn_cuda_team(rows, n, 1), rows, n, nn_cuda_in(f, 0), nn_cuda_in(f, 1),
                      nn_cuda_in(f, 2), nn_cuda_out(f, 0), f->op->n_out > 1 ? nn_cuda_out(f, 1) : NULL);
}

// ---- weights ------------------------------------------------------------------------------------------------------

// mask: NULL where all steps count.
struct step_mask {
    const void *mask;
    enum nn_dtype dtype;
};

static __device__ bool step_counts(const struct step_mask &m, size_t i)
{
    if (m.dtype == NN_UINT8)
        return ((const uint8_t *)m.mask)[i] != 0;
    if (m.dtype == NN_INT32)
        return ((const int32_t *)m.mask)[i] != 0;
    return ((const float *)m.mask)[i] > 0 || ((const float *)m.mask)[i] < 0;
}

// One block.
static __global__ void weigh_steps(size_t n, size_t steps, struct step_mask m, const float *weight, float *to)
{
    __shared__ double part[NN_CUDA_PARTS];
    double count = 0;
    NN_CUDA_TEAM_EACH(i, n)
    count += !m.mask || step_counts(m, i);
    count = nn_cuda_team_sum(count, part);
    const double scale = count > 0 ? (double)n / count / (double)steps : 0;
    NN_CUDA_TEAM_EACH(i, n)
    to[i] = !m.mask || step_counts(m, i) ? (float)((double)weight[nn_cuda_quotient(i, steps)] * scale) : 0;
}

static void cuda_loss_weights_run(const struct nn_frame *f)
{
    const struct step_mask m = {f->op->n_in > 1 ? f->in[1] : NULL, f->op->in_type[1].dtype};
    NN_CUDA_RUN(f->context, weigh_steps, 1, NN_CUDA_TEAM_MOST, 0, nn_type_count(&f->op->out_type[0]),
                (size_t)nn_cuda_attr<nn_loss_weights>(f)->steps, m, nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

// ---- penalties ----------------------------------------------------------------------------------------------------

enum { PENALTY_BLOCKS = 512 };  // at most

// A sum for each block.
static __global__ void penalty_of_parts(size_t n, struct nn_penalty a, const float *x, double *sum)
{
    __shared__ double part[NN_CUDA_PARTS];
    double mine = 0;
    NN_CUDA_EACH(i, n)
    mine += (double)a.l1 * fabs((double)x[i]) + (double)a.l2 * (double)x[i] * (double)x[i];
    mine = nn_cuda_team_sum(mine, part);
    if (threadIdx.x == 0)
        sum[blockIdx.x] = mine;
}

static __global__ void penalty_of_all(size_t parts, const double *sum, const float *before, float *to)
{
    __shared__ double part[NN_CUDA_PARTS];
    double all = 0;
    NN_CUDA_TEAM_EACH(i, parts)
    all += sum[i];
    all = nn_cuda_team_sum(all, part);
    if (threadIdx.x == 0)
        *to = (float)((before ? (double)*before : 0) + all);
}

// The slope of |x| is 0 at 0, as TensorFlow's.
static __global__ void penalty_backward(size_t n, struct nn_penalty a, const float *x, const float *by, float *dx)
{
    NN_CUDA_EACH(i, n)
    {
        const float sign = x[i] > 0 ? 1 : x[i] < 0 ? -1 : 0;
        dx[i] = *by * (a.l1 * sign + 2 * a.l2 * x[i]);
    }
}

static enum ps_code cuda_penalty_plan(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    (void)op;
    *plan = NULL;
    return nn_cuda_reserve(c, PENALTY_BLOCKS * sizeof(double), e);
}

static void cuda_penalty_run(const struct nn_frame *f)
{
    const size_t n = nn_type_count(&f->op->in_type[0]), most = nn_cuda_blocks(n);
    const size_t parts = most < PENALTY_BLOCKS ? most : (size_t)PENALTY_BLOCKS;
    NN_CUDA_RUN(f->context, penalty_of_parts, (unsigned)parts, NN_CUDA_TEAM_MOST, 0, n, *nn_cuda_attr<nn_penalty>(f),
                nn_cuda_in(f, 0), (double *)f->context->scratch);
    NN_CUDA_RUN(f->context, penalty_of_all, 1, NN_CUDA_TEAM_MOST, 0, parts, (const double *)f->context->scratch,
                f->op->n_in > 1 ? nn_cuda_in(f, 1) : NULL, nn_cuda_out(f, 0));
}

static void cuda_penalty_run_backward(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, penalty_backward, nn_type_count(&f->op->out_type[0]), *nn_cuda_attr<nn_penalty>(f),
                     nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_loss = {cuda_loss_plan, cuda_loss_run, NULL, NULL};
const struct nn_kernel nn_cuda_loss_weights = {NULL, cuda_loss_weights_run, NULL, NULL};
const struct nn_kernel nn_cuda_mse = {NULL, cuda_mse_run, NULL, NULL};
const struct nn_kernel nn_cuda_penalty = {cuda_penalty_plan, cuda_penalty_run, NULL, NULL};
const struct nn_kernel nn_cuda_penalty_backward = {NULL, cuda_penalty_run_backward, NULL, NULL};
