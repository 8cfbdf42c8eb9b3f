// SPDX-License-Identifier: Apache-2.0
//
// Each rule is two functions: one that turns hyperparameters into float scalars, and a loop over the elements
// in Keras 3's order of operations. What all have in common comes around the rule, in runs that stay in the nearest
// cache: accumulation, clipping and weight decay before it, the average of the weights after. Where there is none of
// it, it costs nothing.
//
// The same input gives the same bits on every machine, in place or not: the loops are elementwise, this file
// is compiled without contraction into fused multiply-adds, and square root and division are exact in every
// instruction set. Scalars are computed in double and rounded to float once; Keras rounds at each step, which
// shows in the bias corrections of adam and nadam alone (relative 6e-6 at step 1, where a float close to 1 is
// subtracted from 1).
//
// Where Keras's formulas make a NaN of a finite gradient we do not follow: see rmsprop_centered and ftrl.
#include "common/math/rule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/math/cpu.h"
#include "common/math/elementary.h"

// ---- the rules ----------------------------------------------------------------------------------------------------

PS_PER_CPU static void assign_add_loop(size_t n, const ps_unaligned_float *g, const float *w_in, float *w_out)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        w_out[i] = w_in[i] + g[i];
}

static void assign_add_apply(const double *hyper, const struct ps_rule_args *a)
{
    (void)hyper;
    assign_add_loop(a->n, a->g, a->w_in, a->w_out);
}

PS_PER_CPU static void sgd_loop(size_t n, const ps_unaligned_float *g, const float *w_in, float *w_out, float rate)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        w_out[i] = w_in[i] - g[i] * rate;
}

static void sgd_apply(const double *hyper, const struct ps_rule_args *a)
{
    sgd_loop(a->n, a->g, a->w_in, a->w_out, (float)hyper[PS_HYPER_LEARNING_RATE]);
}

enum { MOMENTUM_MOMENTUM = PS_HYPER_OWN };

PS_PER_CPU static void momentum_loop(const struct ps_rule_args *a, float rate, float momentum)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *m_in = a->slot_in[0];
    float *w_out = a->w_out, *m_out = a->slot_out[0];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float m = m_in[i] * momentum - g[i] * rate;
        m_out[i] = m;
        w_out[i] = w_in[i] + m;
    }
}

PS_PER_CPU static void nesterov_loop(const struct ps_rule_args *a, float rate, float momentum)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *m_in = a->slot_in[0];
    float *w_out = a->w_out, *m_out = a->slot_out[0];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float step = g[i] * rate;
        float m = m_in[i] * momentum - step;
        m_out[i] = m;
        w_out[i] = w_in[i] + (m * momentum - step);
    }
}

static void momentum_apply(const double *hyper, const struct ps_rule_args *a)
{
    momentum_loop(a, (float)hyper[PS_HYPER_LEARNING_RATE], (float)hyper[MOMENTUM_MOMENTUM]);
}

static void nesterov_apply(const double *hyper, const struct ps_rule_args *a)
{
    nesterov_loop(a, (float)hyper[PS_HYPER_LEARNING_RATE], (float)hyper[MOMENTUM_MOMENTUM]);
}

enum { DELAYED_MOMENTUM = PS_HYPER_OWN, DELAYED_DELAY, DELAYED_ACTIVATION };

// Nesterov's momentum for gradients that come one by one from workers that do not wait for each other (Liu et al.,
// arXiv 2401.09135, algorithm 3: there beta, N and c). Each moves the weights by its N-th part, at once; momentum
// follows the mean of N gradients, and moves the weights with the last of them, or by its part c with each:
//
//     sum += g
//     step a multiple of N:  m = beta m + sum / N,  sum = 0,  w -= rate ((1 - c N + c) beta m + g / N)
//     else:                                                   w -= rate (c beta m + g / N)
struct delayed_scalars {
    float rate, momentum;
    float share;  // 1 / N
    float ahead;  // what multiplies m
    bool whole;   // N gradients are there
};

PS_PER_CPU static void delayed_loop(const struct ps_rule_args *a, struct delayed_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *m_in = a->slot_in[0], *sum_in = a->slot_in[1];
    float *w_out = a->w_out, *m_out = a->slot_out[0], *sum_out = a->slot_out[1];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float sum = sum_in[i] + g[i];
        float m = s.whole ? m_in[i] * s.momentum + sum * s.share : m_in[i];
        m_out[i] = m;
        sum_out[i] = s.whole ? 0 : sum;
        w_out[i] = w_in[i] - s.rate * (s.ahead * m + g[i] * s.share);
    }
}

// A delay of 0, as of 1: none.
static void delayed_nesterov_apply(const double *hyper, const struct ps_rule_args *a)
{
    const double n = hyper[DELAYED_DELAY] > 1 ? hyper[DELAYED_DELAY] : 1;
    const bool whole = a->step % (uint64_t)n == 0;
    const double part = hyper[DELAYED_ACTIVATION], now = whole ? 1 - part * n + part : part;
    delayed_loop(a, (struct delayed_scalars){.rate = (float)hyper[PS_HYPER_LEARNING_RATE],
                                             .momentum = (float)hyper[DELAYED_MOMENTUM],
                                             .share = (float)(1 / n),
                                             .ahead = (float)(now * hyper[DELAYED_MOMENTUM]),
                                             .whole = whole});
}

enum { ADAGRAD_INITIAL_ACCUMULATOR_VALUE = PS_HYPER_OWN, ADAGRAD_EPSILON };

PS_PER_CPU static void adagrad_loop(const struct ps_rule_args *a, float rate, float epsilon)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *sum_in = a->slot_in[0];
    float *w_out = a->w_out, *sum_out = a->slot_out[0];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float sum = sum_in[i] + g[i] * g[i];
        sum_out[i] = sum;
        w_out[i] = w_in[i] - rate * g[i] / sqrtf(sum + epsilon);
    }
}

static void adagrad_apply(const double *hyper, const struct ps_rule_args *a)
{
    adagrad_loop(a, (float)hyper[PS_HYPER_LEARNING_RATE], (float)hyper[ADAGRAD_EPSILON]);
}

// A moving average: rho of what it was, 1 - rho of what comes.
struct average {
    float rho;
    float gain;  // 1 - rho
};

static struct average rule_average(double rho)
{
    return (struct average){(float)rho, (float)(1 - rho)};
}

// Where Keras takes the difference in float.
static struct average float_average(double rho)
{
    return (struct average){(float)rho, 1 - (float)rho};
}

enum { ADADELTA_RHO = PS_HYPER_OWN, ADADELTA_EPSILON };

PS_PER_CPU static void adadelta_loop(const struct ps_rule_args *a, float rate, struct average by, float epsilon)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *sum_in = a->slot_in[0], *delta_in = a->slot_in[1];
    float *w_out = a->w_out, *sum_out = a->slot_out[0], *delta_out = a->slot_out[1];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float sum = by.rho * sum_in[i] + by.gain * (g[i] * g[i]);
        float step = sqrtf(delta_in[i] + epsilon) * g[i] / sqrtf(sum + epsilon);
        sum_out[i] = sum;
        delta_out[i] = by.rho * delta_in[i] + by.gain * (step * step);
        w_out[i] = w_in[i] - rate * step;
    }
}

static void adadelta_apply(const double *hyper, const struct ps_rule_args *a)
{
    adadelta_loop(a, (float)hyper[PS_HYPER_LEARNING_RATE], rule_average(hyper[ADADELTA_RHO]),
                  (float)hyper[ADADELTA_EPSILON]);
}

enum { RMSPROP_RHO = PS_HYPER_OWN, RMSPROP_EPSILON, RMSPROP_MOMENTUM };

struct rmsprop_scalars {
    float rate, epsilon, momentum;
    struct average by;
};

static struct rmsprop_scalars rmsprop_scalars(const double *hyper)
{
    return (struct rmsprop_scalars){(float)hyper[PS_HYPER_LEARNING_RATE], (float)hyper[RMSPROP_EPSILON],
                                    (float)hyper[RMSPROP_MOMENTUM], rule_average(hyper[RMSPROP_RHO])};
}

PS_PER_CPU static void rmsprop_loop(const struct ps_rule_args *a, struct rmsprop_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *v_in = a->slot_in[0];
    float *w_out = a->w_out, *v_out = a->slot_out[0];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float v = s.by.rho * v_in[i] + s.by.gain * (g[i] * g[i]);
        v_out[i] = v;
        w_out[i] = w_in[i] - s.rate * g[i] / sqrtf(v + s.epsilon);
    }
}

static void rmsprop_apply(const double *hyper, const struct ps_rule_args *a)
{
    rmsprop_loop(a, rmsprop_scalars(hyper));
}

PS_PER_CPU static void rmsprop_momentum_loop(const struct ps_rule_args *a, struct rmsprop_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *v_in = a->slot_in[0], *m_in = a->slot_in[1];
    float *w_out = a->w_out, *v_out = a->slot_out[0], *m_out = a->slot_out[1];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float v = s.by.rho * v_in[i] + s.by.gain * (g[i] * g[i]);
        float m = s.momentum * m_in[i] + s.rate * g[i] / sqrtf(v + s.epsilon);
        v_out[i] = v;
        m_out[i] = m;
        w_out[i] = w_in[i] - m;
    }
}

static void rmsprop_momentum_apply(const double *hyper, const struct ps_rule_args *a)
{
    rmsprop_momentum_loop(a, rmsprop_scalars(hyper));
}

// The variance, v - mean^2, is never below 0, but in floats their difference may be: where gradients hardly change.
PS_PER_CPU static void rmsprop_centered_loop(const struct ps_rule_args *a, struct rmsprop_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *v_in = a->slot_in[0], *m_in = a->slot_in[1], *mean_in = a->slot_in[2];
    float *w_out = a->w_out, *v_out = a->slot_out[0], *m_out = a->slot_out[1], *mean_out = a->slot_out[2];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float v = s.by.rho * v_in[i] + s.by.gain * (g[i] * g[i]);
        float mean = s.by.rho * mean_in[i] + s.by.gain * g[i];
        float variance = v - mean * mean;
        variance = variance < 0 ? 0 : variance;
        float m = s.momentum * m_in[i] + s.rate * g[i] / sqrtf(variance + s.epsilon);
        v_out[i] = v;
        mean_out[i] = mean;
        m_out[i] = m;
        w_out[i] = w_in[i] - m;
    }
}

static void rmsprop_centered_apply(const double *hyper, const struct ps_rule_args *a)
{
    rmsprop_centered_loop(a, rmsprop_scalars(hyper));
}

enum { ADAM_BETA_1 = PS_HYPER_OWN, ADAM_BETA_2, ADAM_EPSILON };

struct adam_scalars {
    float alpha;   // learning rate with both bias corrections
    float gain_1;  // 1 - beta_1
    float gain_2;  // 1 - beta_2
    float epsilon;
};

static struct adam_scalars adam_scalars(const double *hyper, uint64_t step)
{
    double correction_1 = 1 - ps_power_int(hyper[ADAM_BETA_1], step);
    double correction_2 = 1 - ps_power_int(hyper[ADAM_BETA_2], step);
    return (struct adam_scalars){
        .alpha = (float)(hyper[PS_HYPER_LEARNING_RATE] * sqrt(correction_2) / correction_1),
        .gain_1 = (float)(1 - hyper[ADAM_BETA_1]),
        .gain_2 = (float)(1 - hyper[ADAM_BETA_2]),
        .epsilon = (float)hyper[ADAM_EPSILON],
    };
}

PS_PER_CPU static void adam_loop(const struct ps_rule_args *a, struct adam_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *m_in = a->slot_in[0], *v_in = a->slot_in[1];
    float *w_out = a->w_out, *m_out = a->slot_out[0], *v_out = a->slot_out[1];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float m = m_in[i] + (g[i] - m_in[i]) * s.gain_1;
        float v = v_in[i] + (g[i] * g[i] - v_in[i]) * s.gain_2;
        m_out[i] = m;
        v_out[i] = v;
        w_out[i] = w_in[i] - m * s.alpha / (sqrtf(v) + s.epsilon);
    }
}

static void adam_apply(const double *hyper, const struct ps_rule_args *a)
{
    adam_loop(a, adam_scalars(hyper, a->step));
}

// Divides by the root of the greatest velocity so far. The comparison keeps a NaN of v.
PS_PER_CPU static void amsgrad_loop(const struct ps_rule_args *a, struct adam_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *m_in = a->slot_in[0], *v_in = a->slot_in[1], *most_in = a->slot_in[2];
    float *w_out = a->w_out, *m_out = a->slot_out[0], *v_out = a->slot_out[1], *most_out = a->slot_out[2];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float m = m_in[i] + (g[i] - m_in[i]) * s.gain_1;
        float v = v_in[i] + (g[i] * g[i] - v_in[i]) * s.gain_2;
        float most = most_in[i] >= v ? most_in[i] : v;
        m_out[i] = m;
        v_out[i] = v;
        most_out[i] = most;
        w_out[i] = w_in[i] - m * s.alpha / (sqrtf(most) + s.epsilon);
    }
}

static void amsgrad_apply(const double *hyper, const struct ps_rule_args *a)
{
    amsgrad_loop(a, adam_scalars(hyper, a->step));
}

struct adamax_scalars {
    float rate;
    float gain_1;  // 1 - beta_1
    float beta_2;
    float correction;  // 1 - beta_1^step
    float epsilon;
};

// A NaN of g stays in the momentum, and so in the weight.
PS_PER_CPU static void adamax_loop(const struct ps_rule_args *a, struct adamax_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *m_in = a->slot_in[0], *norm_in = a->slot_in[1];
    float *w_out = a->w_out, *m_out = a->slot_out[0], *norm_out = a->slot_out[1];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float m = m_in[i] + (g[i] - m_in[i]) * s.gain_1;
        float faded = s.beta_2 * norm_in[i], size = fabsf(g[i]);
        float norm = faded >= size ? faded : size;
        m_out[i] = m;
        norm_out[i] = norm;
        w_out[i] = w_in[i] - s.rate * m / (s.correction * (norm + s.epsilon));
    }
}

static void adamax_apply(const double *hyper, const struct ps_rule_args *a)
{
    struct adamax_scalars s = {
        .rate = (float)hyper[PS_HYPER_LEARNING_RATE],
        .gain_1 = (float)(1 - hyper[ADAM_BETA_1]),
        .beta_2 = (float)hyper[ADAM_BETA_2],
        .correction = (float)(1 - ps_power_int(hyper[ADAM_BETA_1], a->step)),
        .epsilon = (float)hyper[ADAM_EPSILON],
    };
    adamax_loop(a, s);
}

// The momentum of a step: u(t) = beta_1 (1 - 0.96^t / 2).
static double nadam_momentum(double beta_1, uint64_t step)
{
    return beta_1 * (1 - 0.5 * ps_power_int(0.96, step));
}

// u(1) u(2) ... u(step), which Keras keeps in a variable. Here a block has its step alone, from which the product is
// made anew, up to where 1 minus it is 1.
static double nadam_product(double beta_1, uint64_t step)
{
    double product = 1, power = 1;
    for (uint64_t t = 1; t <= step && product > 0x1p-60; t++) {
        power *= 0.96;
        product *= beta_1 * (1 - 0.5 * power);
    }
    return product;
}

struct nadam_scalars {
    float rate;
    float gain_1, gain_2;           // 1 - beta_1, 1 - beta_2
    float ahead, ahead_correction;  // of the momentum: u(t + 1), and 1 - the product up to it
    float fresh, fresh_correction;  // of the gradient: 1 - u(t), and 1 - the product up to it
    float correction_2;             // 1 - beta_2^step
    float epsilon;
};

PS_PER_CPU static void nadam_loop(const struct ps_rule_args *a, struct nadam_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *m_in = a->slot_in[0], *v_in = a->slot_in[1];
    float *w_out = a->w_out, *m_out = a->slot_out[0], *v_out = a->slot_out[1];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float m = m_in[i] + (g[i] - m_in[i]) * s.gain_1;
        float v = v_in[i] + (g[i] * g[i] - v_in[i]) * s.gain_2;
        float m_hat = s.ahead * m / s.ahead_correction + s.fresh * g[i] / s.fresh_correction;
        m_out[i] = m;
        v_out[i] = v;
        w_out[i] = w_in[i] - m_hat * s.rate / (sqrtf(v / s.correction_2) + s.epsilon);
    }
}

static void nadam_apply(const double *hyper, const struct ps_rule_args *a)
{
    double ahead = nadam_momentum(hyper[ADAM_BETA_1], a->step + 1);
    double product = nadam_product(hyper[ADAM_BETA_1], a->step);
    struct nadam_scalars s = {
        .rate = (float)hyper[PS_HYPER_LEARNING_RATE],
        .gain_1 = (float)(1 - hyper[ADAM_BETA_1]),
        .gain_2 = (float)(1 - hyper[ADAM_BETA_2]),
        .ahead = (float)ahead,
        .ahead_correction = (float)(1 - product * ahead),
        .fresh = (float)(1 - nadam_momentum(hyper[ADAM_BETA_1], a->step)),
        .fresh_correction = (float)(1 - product),
        .correction_2 = (float)(1 - ps_power_int(hyper[ADAM_BETA_2], a->step)),
        .epsilon = (float)hyper[ADAM_EPSILON],
    };
    nadam_loop(a, s);
}

enum { LION_BETA_1 = PS_HYPER_OWN, LION_BETA_2 };

// The step has one length: the sign, 0 of 0, of what the momentum and the gradient make together. NaN stays NaN.
PS_PER_CPU static void lion_loop(const struct ps_rule_args *a, float rate, struct average now, struct average later)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *m_in = a->slot_in[0];
    float *w_out = a->w_out, *m_out = a->slot_out[0];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float c = m_in[i] * now.rho + g[i] * now.gain;
        float up = c > 0 ? 1 : c, sign = c < 0 ? -1 : up;
        float m = m_in[i] * later.rho + g[i] * later.gain;
        m_out[i] = m;
        w_out[i] = w_in[i] - rate * sign;
    }
}

static void lion_apply(const double *hyper, const struct ps_rule_args *a)
{
    lion_loop(a, (float)hyper[PS_HYPER_LEARNING_RATE], float_average(hyper[LION_BETA_1]),
              float_average(hyper[LION_BETA_2]));
}

enum {
    FTRL_LEARNING_RATE_POWER = PS_HYPER_OWN,
    FTRL_INITIAL_ACCUMULATOR_VALUE,
    FTRL_L1,
    FTRL_L2,
    FTRL_L2_SHRINKAGE,
    FTRL_BETA
};

struct ftrl_scalars {
    float rate;
    float power;  // - learning_rate_power
    float l1;
    float l2;         // twice it, with beta's part
    float shrinkage;  // twice it
};

// One element, given the powers of its accumulator before and after. No gradient yet and no regularization leave 0 to
// divide by: the weight stays.
__attribute__((always_inline)) static inline float ftrl_element(struct ftrl_scalars s, float g, float w, float *linear,
                                                                float power_before, float power)
{
    float q = power / s.rate + s.l2;
    float l = *linear + ((g + s.shrinkage * w) - (power - power_before) / s.rate * w);
    float bound = l < -s.l1 ? -s.l1 : l;
    bound = bound > s.l1 ? s.l1 : bound;
    *linear = l;
    return q == 0 ? w : (bound - l) / q;
}

// learning_rate_power = -1/2.
PS_PER_CPU static void ftrl_loop(const struct ps_rule_args *a, struct ftrl_scalars s)
{
    const ps_unaligned_float *g = a->g;
    const float *w_in = a->w_in, *sum_in = a->slot_in[0], *linear_in = a->slot_in[1];
    float *w_out = a->w_out, *sum_out = a->slot_out[0], *linear_out = a->slot_out[1];
    PS_ELEMENTWISE
    for (size_t i = 0; i < a->n; i++) {
        float before = sum_in[i], sum = before + g[i] * g[i], linear = linear_in[i];
        w_out[i] = ftrl_element(s, g[i], w_in[i], &linear, sqrtf(before), sqrtf(sum));
        sum_out[i] = sum;
        linear_out[i] = linear;
    }
}

static void ftrl_power_loop(const struct ps_rule_args *a, struct ftrl_scalars s)
{
    for (size_t i = 0; i < a->n; i++) {
        float before = a->slot_in[0][i], sum = before + a->g[i] * a->g[i], linear = a->slot_in[1][i];
        float power_before = (float)ps_power((double)before, (double)s.power);
        float power = (float)ps_power((double)sum, (double)s.power);
        a->w_out[i] = ftrl_element(s, a->g[i], a->w_in[i], &linear, power_before, power);
        a->slot_out[0][i] = sum;
        a->slot_out[1][i] = linear;
    }
}

static void rule_copy(size_t n, const float *from, float *to)
{
    if (to != from)
        memcpy(to, from, n * sizeof *to);
}

// A rate of 0, by which Keras divides, changes nothing.
static void ftrl_apply(const double *hyper, const struct ps_rule_args *a)
{
    double rate = hyper[PS_HYPER_LEARNING_RATE];
    struct ftrl_scalars s = {
        .rate = (float)rate,
        .power = (float)-hyper[FTRL_LEARNING_RATE_POWER],
        .l1 = (float)hyper[FTRL_L1],
        .l2 = (float)(2 * hyper[FTRL_L2] + hyper[FTRL_BETA] / rate),
        .shrinkage = (float)(2 * hyper[FTRL_L2_SHRINKAGE]),
    };
    if (s.rate == 0) {
        rule_copy(a->n, a->w_in, a->w_out);
        rule_copy(a->n, a->slot_in[0], a->slot_out[0]);
        rule_copy(a->n, a->slot_in[1], a->slot_out[1]);
    } else if (s.power == 0.5F)
        ftrl_loop(a, s);
    else
        ftrl_power_loop(a, s);
}

enum { EMA_MOMENTUM };

PS_PER_CPU static void ema_loop(size_t n, const ps_unaligned_float *g, const float *w_in, float *w_out,
                                struct average by)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        w_out[i] = w_in[i] * by.rho + g[i] * by.gain;
}

static void ema_apply(const double *hyper, const struct ps_rule_args *a)
{
    ema_loop(a->n, a->g, a->w_in, a->w_out, rule_average(hyper[EMA_MOMENTUM]));
}

// ---- the table ----------------------------------------------------------------------------------------------------

#define BETA_MAX 0.999999999  // below 1: adam divides by 1 - beta^step
#define EPSILON_MIN 1e-30     // above 0: adam divides 0 by it where a gradient is 0; and a float
#define FACTOR_MAX 1e6        // of weight decay, regularization
#define LIMIT_MAX 1e30        // of gradients and of what they add up to; a float
#define COUNT_MAX 1e9         // of applications
#define STEPS_MAX 1e6         // that are accumulated; a float

// What every rule that learns has, with Keras's defaults for the two that differ.
#define LEARNS(learning_rate, weight_decay)                                                                     \
    [PS_HYPER_LEARNING_RATE] = {"learning_rate", learning_rate, 0, PS_RATE_MAX},                                \
    [PS_HYPER_WEIGHT_DECAY] = {"weight_decay", weight_decay, 0, FACTOR_MAX},                                    \
    [PS_HYPER_CLIPNORM] = {"clipnorm", 0, 0, LIMIT_MAX}, [PS_HYPER_CLIPVALUE] = {"clipvalue", 0, 0, LIMIT_MAX}, \
    [PS_HYPER_GLOBAL_CLIPNORM] = {"global_clipnorm", 0, 0, LIMIT_MAX},                                          \
    [PS_HYPER_ACCUMULATION_STEPS] = {"gradient_accumulation_steps", 0, 0, STEPS_MAX, PS_HYPER_COUNT, true},     \
    [PS_HYPER_USE_EMA] = {"use_ema", 0, 0, 1, PS_HYPER_FLAG, true},                                             \
    [PS_HYPER_EMA_MOMENTUM] = {"ema_momentum", 0.99, 0, 1},                                                     \
    [PS_HYPER_EMA_OVERWRITE_FREQUENCY] = {"ema_overwrite_frequency", 0, 0, COUNT_MAX, PS_HYPER_COUNT, false}

#define EPSILON                         \
    {                                   \
        "epsilon", 1e-7, EPSILON_MIN, 1 \
    }
#define MOMENTUM            \
    {                       \
        "momentum", 0, 0, 1 \
    }
#define INITIAL_ACCUMULATOR_VALUE                      \
    {                                                  \
        "initial_accumulator_value", 0.1, 0, LIMIT_MAX \
    }
#define ADAM                                                                                      \
    [ADAM_BETA_1] = {"beta_1", 0.9, 0, BETA_MAX}, [ADAM_BETA_2] = {"beta_2", 0.999, 0, BETA_MAX}, \
    [ADAM_EPSILON] = EPSILON
#define RMSPROP [RMSPROP_RHO] = {"rho", 0.9, 0, 1}, [RMSPROP_EPSILON] = EPSILON

static const struct ps_rule rules[] = {
    {.name = "assign_add", .apply = assign_add_apply},
    {.name = "sgd", .learns = true, .hyper = {LEARNS(0.01, 0)}, .apply = sgd_apply},
    {.name = "momentum",
     .learns = true,
     .own_slots = 1,
     .own_slot_name = {"momentum"},
     .hyper = {LEARNS(0.01, 0), [MOMENTUM_MOMENTUM] = MOMENTUM},
     .apply = momentum_apply},
    {.name = "nesterov",
     .learns = true,
     .own_slots = 1,
     .own_slot_name = {"momentum"},
     .hyper = {LEARNS(0.01, 0), [MOMENTUM_MOMENTUM] = MOMENTUM},
     .apply = nesterov_apply},
    {.name = "adagrad",
     .learns = true,
     .own_slots = 1,
     .own_slot_name = {"accumulator"},
     .slot_start = {ADAGRAD_INITIAL_ACCUMULATOR_VALUE},
     .hyper = {LEARNS(0.001, 0), [ADAGRAD_INITIAL_ACCUMULATOR_VALUE] = INITIAL_ACCUMULATOR_VALUE,
               [ADAGRAD_EPSILON] = EPSILON},
     .apply = adagrad_apply},
    {.name = "adadelta",
     .learns = true,
     .own_slots = 2,
     .own_slot_name = {"accumulated_grad", "accumulated_delta_var"},
     .hyper = {LEARNS(0.001, 0), [ADADELTA_RHO] = {"rho", 0.95, 0, 1}, [ADADELTA_EPSILON] = EPSILON},
     .apply = adadelta_apply},
    {.name = "rmsprop",
     .learns = true,
     .own_slots = 1,
     .own_slot_name = {"velocity"},
     .hyper = {LEARNS(0.001, 0), RMSPROP},
     .apply = rmsprop_apply},
    {.name = "rmsprop_momentum",
     .learns = true,
     .own_slots = 2,
     .own_slot_name = {"velocity", "momentum"},
     .hyper = {LEARNS(0.001, 0), RMSPROP, [RMSPROP_MOMENTUM] = MOMENTUM},
     .apply = rmsprop_momentum_apply},
    {.name = "rmsprop_centered",
     .learns = true,
     .own_slots = 3,
     .own_slot_name = {"velocity", "momentum", "average_gradient"},
     .hyper = {LEARNS(0.001, 0), RMSPROP, [RMSPROP_MOMENTUM] = MOMENTUM},
     .apply = rmsprop_centered_apply},
    {.name = "adam",
     .learns = true,
     .own_slots = 2,
     .own_slot_name = {"momentum", "velocity"},
     .hyper = {LEARNS(0.001, 0), ADAM},
     .apply = adam_apply},
    {.name = "adamw",
     .learns = true,
     .own_slots = 2,
     .own_slot_name = {"momentum", "velocity"},
     .hyper = {LEARNS(0.001, 0.004), ADAM},
     .apply = adam_apply},
    {.name = "adam_amsgrad",
     .learns = true,
     .own_slots = 3,
     .own_slot_name = {"momentum", "velocity", "velocity_hat"},
     .hyper = {LEARNS(0.001, 0), ADAM},
     .apply = amsgrad_apply},
    {.name = "adamw_amsgrad",
     .learns = true,
     .own_slots = 3,
     .own_slot_name = {"momentum", "velocity", "velocity_hat"},
     .hyper = {LEARNS(0.001, 0.004), ADAM},
     .apply = amsgrad_apply},
    {.name = "nadam",
     .learns = true,
     .own_slots = 2,
     .own_slot_name = {"momentum", "velocity"},
     .hyper = {LEARNS(0.001, 0), ADAM},
     .apply = nadam_apply},
    {.name = "adamax",
     .learns = true,
     .own_slots = 2,
     .own_slot_name = {"momentum", "norm"},
     .hyper = {LEARNS(0.001, 0), ADAM},
     .apply = adamax_apply},
    {.name = "lion",
     .learns = true,
     .own_slots = 1,
     .own_slot_name = {"momentum"},
     .hyper = {LEARNS(0.001, 0), [LION_BETA_1] = {"beta_1", 0.9, 0, 1}, [LION_BETA_2] = {"beta_2", 0.99, 0, 1}},
     .apply = lion_apply},
    {.name = "ftrl",
     .learns = true,
     .own_slots = 2,
     .own_slot_name = {"accumulator", "linear"},
     .slot_start = {FTRL_INITIAL_ACCUMULATOR_VALUE},
     .hyper = {LEARNS(0.001, 0), [FTRL_LEARNING_RATE_POWER] = {"learning_rate_power", -0.5, -10, 0},
               [FTRL_INITIAL_ACCUMULATOR_VALUE] = INITIAL_ACCUMULATOR_VALUE,
               [FTRL_L1] = {"l1_regularization_strength", 0, 0, FACTOR_MAX},
               [FTRL_L2] = {"l2_regularization_strength", 0, 0, FACTOR_MAX},
               [FTRL_L2_SHRINKAGE] = {"l2_shrinkage_regularization_strength", 0, 0, FACTOR_MAX},
               [FTRL_BETA] = {"beta", 0, 0, FACTOR_MAX}},
     .apply = ftrl_apply},
    {.name = "delayed_nesterov",
     .learns = true,
     .own_slots = 2,
     .own_slot_name = {"momentum", "gradient_sum"},
     .hyper = {LEARNS(0.01, 0), [DELAYED_MOMENTUM] = {"momentum", 0.9, 0, 1},
               [DELAYED_DELAY] = {"delay", 0, 0, COUNT_MAX, PS_HYPER_COUNT, false},
               [DELAYED_ACTIVATION] = {"activation", 0, 0, 1}},
     .apply = delayed_nesterov_apply},
    {.name = "ema", .hyper = {[EMA_MOMENTUM] = {"momentum", 0.99, 0, 1}}, .apply = ema_apply},
};

enum { N_RULES = sizeof rules / sizeof *rules };

const struct ps_rule *ps_rule_at(int i)
{
    return i >= 0 && i < N_RULES ? &rules[i] : NULL;
}

const struct ps_rule *ps_rule_find(const char *name)
{
    for (int i = 0; i < N_RULES; i++)
        if (strcmp(rules[i].name, name) == 0)
            return &rules[i];
    return NULL;
}

// Keras's optimizers whose rule is not the one of the same name.
static const struct {
    const char *name;
    const char *rule[2][2];  // [flag][with a momentum]
} families[] = {
    {"sgd", {{"sgd", "momentum"}, {"sgd", "nesterov"}}},
    {"rmsprop", {{"rmsprop", "rmsprop_momentum"}, {"rmsprop_centered", "rmsprop_centered"}}},
    {"adam", {{"adam", "adam"}, {"adam_amsgrad", "adam_amsgrad"}}},
    {"adamw", {{"adamw", "adamw"}, {"adamw_amsgrad", "adamw_amsgrad"}}},
};
static const char *const alone[] = {"adagrad", "adadelta", "nadam", "adamax", "lion", "ftrl", "delayed_nesterov"};

const struct ps_rule *ps_rule_for_optimizer(const char *keras_name, double momentum, bool flag)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcasecmp(keras_name, families[i].name) == 0)
            return ps_rule_find(families[i].rule[flag][momentum != 0]);
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (strcasecmp(keras_name, alone[i]) == 0)
            return ps_rule_find(alone[i]);
    return NULL;
}

// ---- hyperparameters ----------------------------------------------------------------------------------------------

void ps_rule_defaults(const struct ps_rule *rule, double *hyper)
{
    for (int i = 0; i < PS_RULE_MAX_HYPERS; i++)
        hyper[i] = rule->hyper[i].value;
}

static enum ps_code unknown_hyper(const struct ps_rule *rule, const char *name, struct ps_error *e)
{
    const char *known[PS_RULE_MAX_HYPERS] = {NULL};
    for (int i = 0; i < PS_RULE_MAX_HYPERS; i++)
        known[i] = rule->hyper[i].name;
    const char *nearest = ps_nearest(name, known, PS_RULE_MAX_HYPERS);
    if (nearest)
        return ps_fail(e, PS_INVALID_ARGUMENT, "rule %s has no \"%s\"; did you mean \"%s\"?", rule->name, name,
                       nearest);
    if (strcmp(name, "lr") == 0 && known[PS_HYPER_LEARNING_RATE] && rule->learns)
        return ps_fail(e, PS_INVALID_ARGUMENT, "rule %s has no \"lr\"; did you mean \"learning_rate\"?", rule->name);
    char names[384] = "";
    for (int i = 0; i < PS_RULE_MAX_HYPERS && known[i]; i++) {
        const size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "; it has ", known[i]);
    }
    return ps_fail(e, PS_INVALID_ARGUMENT, "rule %s has no \"%s\"%s", rule->name, name, names);
}

bool ps_rule_has(const struct ps_rule *rule, const char *hyper)
{
    int i = 0;
    while (i < PS_RULE_MAX_HYPERS && rule->hyper[i].name && strcmp(rule->hyper[i].name, hyper) != 0)
        i++;
    return i < PS_RULE_MAX_HYPERS && rule->hyper[i].name;
}

void ps_rule_names(char *names, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < N_RULES && at < size; i++)
        at += (size_t)snprintf(names + at, size - at, "%s%s", i ? ", " : "", rules[i].name);
}

enum ps_code ps_rule_set(const struct ps_rule *rule, double *hyper, const char *name, double value, struct ps_error *e)
{
    int i = 0;
    while (i < PS_RULE_MAX_HYPERS && rule->hyper[i].name && strcmp(rule->hyper[i].name, name) != 0)
        i++;
    if (i == PS_RULE_MAX_HYPERS || !rule->hyper[i].name)
        return unknown_hyper(rule, name, e);
    const struct ps_rule_hyper *h = &rule->hyper[i];
    if (!(value >= h->min && value <= h->max))  // so that NaN fails
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s of rule %s is %g; it must lie between %.10g and %.10g", name,
                       rule->name, value, h->min, h->max);
    if (h->type != PS_HYPER_REAL && value > floor(value))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s of rule %s is %g; it must be a whole number", name, rule->name,
                       value);
    hyper[i] = value;
    return PS_OK;
}

enum ps_code ps_rule_check(const struct ps_rule *rule, const double *hyper, struct ps_error *e)
{
    static const int ways[] = {PS_HYPER_CLIPNORM, PS_HYPER_CLIPVALUE, PS_HYPER_GLOBAL_CLIPNORM};
    int on = 0;
    for (size_t i = 0; rule->learns && i < sizeof ways / sizeof *ways; i++)
        on += hyper[ways[i]] > 0;
    if (on <= 1)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "only one of clipnorm (%g), clipvalue (%g) and global_clipnorm (%g) of rule %s may be set",
                   hyper[PS_HYPER_CLIPNORM], hyper[PS_HYPER_CLIPVALUE], hyper[PS_HYPER_GLOBAL_CLIPNORM], rule->name);
}

enum ps_code ps_rule_check_parts(const struct ps_rule *rule, const double *hyper, struct ps_error *e)
{
    if (ps_rule_check(rule, hyper, e))
        return e->code;
    if (!rule->learns || !(hyper[PS_HYPER_ACCUMULATION_STEPS] > 1) ||
        !(hyper[PS_HYPER_CLIPNORM] > 0 || hyper[PS_HYPER_GLOBAL_CLIPNORM] > 0))
        return PS_OK;
    return ps_fail(
        e, PS_INVALID_ARGUMENT,
        "gradient_accumulation_steps of rule %s does not go with clipnorm and global_clipnorm where ps tasks "
        "apply it: none of them has the accumulated gradient whole",
        rule->name);
}

// ---- slots --------------------------------------------------------------------------------------------------------

static bool rule_accumulates(const struct ps_rule *rule, const double *hyper)
{
    return rule->learns && hyper[PS_HYPER_ACCUMULATION_STEPS] > 1;
}

static bool rule_averages(const struct ps_rule *rule, const double *hyper)
{
    return rule->learns && hyper[PS_HYPER_USE_EMA] > 0;
}

// The rule's own, then the accumulator, then the average.
int ps_rule_slots(const struct ps_rule *rule, const double *hyper)
{
    return rule->own_slots + rule_accumulates(rule, hyper) + rule_averages(rule, hyper);
}

int ps_rule_average_slot(const struct ps_rule *rule, const double *hyper)
{
    return rule_averages(rule, hyper) ? ps_rule_slots(rule, hyper) - 1 : -1;
}

const char *ps_rule_slot_name(const struct ps_rule *rule, const double *hyper, int k)
{
    if (k < rule->own_slots)
        return rule->own_slot_name[k];
    return k == ps_rule_average_slot(rule, hyper) ? "average" : "gradient_accumulator";
}

float ps_rule_slot_init(const struct ps_rule *rule, const double *hyper, int k)
{
    return k < rule->own_slots && rule->slot_start[k] ? (float)hyper[rule->slot_start[k]] : 0;
}

// ---- an application -----------------------------------------------------------------------------------------------

enum { RUN = 2048 };  // elements whose gradient, weight and slots stay in the nearest cache

// What comes before the rule and after it.
struct around {
    int slots;
    float scale, clip;  // of the gradient; 1 and infinity: nothing
    float decay, rate;  // of the weight; 0: nothing
    int accumulator;    // slot; -1: none
    bool applies;       // the rule; false: the gradient is accumulated only
    float steps;        // as many were accumulated
    int average;        // slot; -1: none
    struct average by;  // of the weights
    bool overwrites;    // the weights by their average
};

// NaN stays NaN.
PS_PER_CPU static void gradient_loop(size_t n, const ps_unaligned_float *in, float *out, float scale, float clip)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        float g = in[i] * scale;
        g = g < -clip ? -clip : g;
        out[i] = g > clip ? clip : g;
    }
}

PS_PER_CPU static void decay_loop(size_t n, const float *w_in, float *w_out, float decay, float rate)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        w_out[i] = w_in[i] - w_in[i] * decay * rate;
}

PS_PER_CPU static void accumulate_loop(size_t n, const ps_unaligned_float *g, const float *sum_in, float *sum_out)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        sum_out[i] = g[i] + sum_in[i];
}

// The accumulated gradients' mean, with which they are done.
PS_PER_CPU static void accumulated_loop(size_t n, const ps_unaligned_float *g, const float *sum_in, float *sum_out,
                                        float *mean, float steps)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        mean[i] = (g[i] + sum_in[i]) / steps;
        sum_out[i] = 0;
    }
}

PS_PER_CPU static void average_loop(size_t n, const float *average_in, float *average_out, float *w, struct average by,
                                    bool overwrites)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        float average = by.rho * average_in[i] + by.gain * w[i];
        average_out[i] = average;
        w[i] = overwrites ? average : w[i];
    }
}

// Keras's quirk: the average of the first step, or of all that are accumulated for it, is the weight.
static struct around rule_around(const struct ps_rule *rule, const double *hyper, const struct ps_rule_args *a)
{
    struct around by = {.slots = ps_rule_slots(rule, hyper),
                        .scale = 1,
                        .clip = INFINITY,
                        .accumulator = -1,
                        .applies = true,
                        .steps = 1,
                        .average = ps_rule_average_slot(rule, hyper)};
    uint64_t frequency = rule->learns ? (uint64_t)hyper[PS_HYPER_EMA_OVERWRITE_FREQUENCY] : 0, done = a->step - 1;
    if (rule->learns && a->trainable) {
        by.scale = a->clip_factor;
        by.clip = hyper[PS_HYPER_CLIPVALUE] > 0 ? (float)hyper[PS_HYPER_CLIPVALUE] : INFINITY;
        by.decay = (float)hyper[PS_HYPER_WEIGHT_DECAY];
        by.rate = (float)hyper[PS_HYPER_LEARNING_RATE];
    }
    if (rule_accumulates(rule, hyper)) {
        const uint64_t steps = (uint64_t)hyper[PS_HYPER_ACCUMULATION_STEPS];
        by.accumulator = rule->own_slots;
        by.applies = a->step % steps == 0;
        by.steps = (float)steps;
        done /= steps;
    }
    if (by.average >= 0) {
        by.by = done ? float_average(hyper[PS_HYPER_EMA_MOMENTUM]) : (struct average){0, 1};
        by.overwrites = frequency && (done + 1) % frequency == 0;
    }
    return by;
}

static bool rule_is_alone(const struct around *by)
{
    return by->scale == 1 && !(by->clip < INFINITY) && by->decay == 0 && by->accumulator < 0 && by->average < 0;
}

// The run of a that begins at element `at`.
static struct ps_rule_args rule_run(const struct ps_rule_args *a, size_t at, const struct around *by)
{
    struct ps_rule_args run = *a;
    run.n = a->n - at < RUN ? a->n - at : RUN;
    run.g = a->g + at;
    run.w_in = a->w_in + at;
    run.w_out = a->w_out + at;
    for (int k = 0; k < by->slots; k++) {
        run.slot_in[k] = a->slot_in[k] + at;
        run.slot_out[k] = a->slot_out[k] + at;
    }
    if (by->accumulator >= 0)
        run.step = (a->step - 1) / (uint64_t)by->steps + 1;
    return run;
}

// g: room for the gradient that the rule sees.
static void rule_prepare(struct ps_rule_args *run, const struct around *by, float *g)
{
    const int k = by->accumulator;
    if (k >= 0) {
        accumulated_loop(run->n, run->g, run->slot_in[k], run->slot_out[k], g, by->steps);
        run->g = g;
    }
    if (by->scale != 1 || by->clip < INFINITY) {
        gradient_loop(run->n, run->g, g, by->scale, by->clip);
        run->g = g;
    }
    if (by->decay > 0) {
        decay_loop(run->n, run->w_in, run->w_out, by->decay, by->rate);
        run->w_in = run->w_out;
    }
}

// Everything but the accumulator stays as it is.
static void rule_accumulate(const struct ps_rule_args *run, const struct around *by)
{
    rule_copy(run->n, run->w_in, run->w_out);
    for (int k = 0; k < by->accumulator; k++)
        rule_copy(run->n, run->slot_in[k], run->slot_out[k]);
    accumulate_loop(run->n, run->g, run->slot_in[by->accumulator], run->slot_out[by->accumulator]);
}

void ps_rule_apply(const struct ps_rule *rule, const double *hyper, const struct ps_rule_args *a)
{
    float g[RUN];
    const struct around by = rule_around(rule, hyper, a);
    if (rule_is_alone(&by)) {
        rule->apply(hyper, a);
        return;
    }
    for (size_t at = 0; at < a->n; at += RUN) {
        struct ps_rule_args run = rule_run(a, at, &by);
        if (by.applies) {
            rule_prepare(&run, &by, g);
            rule->apply(hyper, &run);
        } else {
            rule_accumulate(&run, &by);
        }
        if (by.average >= 0)
            average_loop(run.n, run.slot_in[by.average], run.slot_out[by.average], run.w_out, by.by, by.overwrites);
    }
}

// ---- clipping by norm ---------------------------------------------------------------------------------------------

enum { LANES = 16 };

// Each lane adds up every LANES-th element; then lanes are folded in halves. The square of a float is exact in double.
PS_PER_CPU double ps_sum_squares(const float *g, size_t n)
{
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lane[k] += (double)g[i + k] * (double)g[i + k];
    for (; i < n; i++)
        lane[i % LANES] += (double)g[i] * (double)g[i];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

float ps_clip_factor(double sum_squares, double limit)
{
    if (!(limit > 0))
        return 1;
    if (!isfinite(sum_squares))
        return NAN;
    double norm = sqrt(sum_squares);
    return norm > limit ? (float)(limit / norm) : 1;
}
