// SPDX-License-Identifier: Apache-2.0
//
// Each rule is two functions: one that turns hyperparameters into float scalars, and a loop over the elements
// in Keras 3's order of operations.
//
// The same input gives the same bits on every machine, in place or not: the loops are elementwise, this file
// is compiled without contraction into fused multiply-adds, and square root and division are exact in every
// instruction set. Scalars are computed in double and rounded to float once; Keras rounds at each step, which
// shows in adam's alpha alone (relative 6e-6 at step 1, where it subtracts a float close to 1 from 1).
#include "common/rule.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "common/cpu.h"

PS_PER_CPU static void assign_add_loop(size_t n, const float *g, const float *w_in, float *w_out)
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

enum { SGD_LEARNING_RATE };

PS_PER_CPU static void sgd_loop(size_t n, const float *g, const float *w_in, float *w_out, float rate)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        w_out[i] = w_in[i] - g[i] * rate;
}

static void sgd_apply(const double *hyper, const struct ps_rule_args *a)
{
    sgd_loop(a->n, a->g, a->w_in, a->w_out, (float)hyper[SGD_LEARNING_RATE]);
}

enum { MOMENTUM_LEARNING_RATE, MOMENTUM_MOMENTUM, MOMENTUM_NESTEROV };

PS_PER_CPU static void momentum_loop(const struct ps_rule_args *a, float rate, float momentum)
{
    const float *g = a->g, *w_in = a->w_in, *m_in = a->slot_in[0];
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
    const float *g = a->g, *w_in = a->w_in, *m_in = a->slot_in[0];
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
    float rate = (float)hyper[MOMENTUM_LEARNING_RATE], momentum = (float)hyper[MOMENTUM_MOMENTUM];
    if (hyper[MOMENTUM_NESTEROV] != 0)
        nesterov_loop(a, rate, momentum);
    else
        momentum_loop(a, rate, momentum);
}

enum { ADAM_LEARNING_RATE, ADAM_BETA_1, ADAM_BETA_2, ADAM_EPSILON };

struct adam_scalars {
    float alpha;   // learning rate with both bias corrections
    float gain_1;  // 1 - beta_1
    float gain_2;  // 1 - beta_2
    float epsilon;
};

PS_PER_CPU static void adam_loop(const struct ps_rule_args *a, struct adam_scalars s)
{
    const float *g = a->g, *w_in = a->w_in, *m_in = a->slot_in[0], *v_in = a->slot_in[1];
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

// By squaring, not pow(): the C library has variants by CPU that may differ in the last bit.
static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

static void adam_apply(const double *hyper, const struct ps_rule_args *a)
{
    double correction_1 = 1 - power(hyper[ADAM_BETA_1], a->step);
    double correction_2 = 1 - power(hyper[ADAM_BETA_2], a->step);
    struct adam_scalars s = {
        .alpha = (float)(hyper[ADAM_LEARNING_RATE] * sqrt(correction_2) / correction_1),
        .gain_1 = (float)(1 - hyper[ADAM_BETA_1]),
        .gain_2 = (float)(1 - hyper[ADAM_BETA_2]),
        .epsilon = (float)hyper[ADAM_EPSILON],
    };
    adam_loop(a, s);
}

#define RATE_MAX 1e6
#define BETA_MAX 0.999999999  // below 1: adam divides by 1 - beta^step
#define EPSILON_MIN 1e-30     // above 0: adam divides 0 by it where a gradient is 0; and a float

static const struct ps_rule rules[] = {
    {.name = "assign_add", .apply = assign_add_apply},
    {.name = "sgd", .hyper = {[SGD_LEARNING_RATE] = {"learning_rate", 0.01, 0, RATE_MAX, false}}, .apply = sgd_apply},
    {.name = "momentum",
     .slots = 1,
     .slot_name = {"momentum"},
     .hyper = {[MOMENTUM_LEARNING_RATE] = {"learning_rate", 0.01, 0, RATE_MAX, false},
               [MOMENTUM_MOMENTUM] = {"momentum", 0, 0, 1, false},
               [MOMENTUM_NESTEROV] = {"nesterov", 0, 0, 1, true}},
     .apply = momentum_apply},
    {.name = "adam",
     .slots = 2,
     .slot_name = {"momentum", "velocity"},
     .hyper = {[ADAM_LEARNING_RATE] = {"learning_rate", 0.001, 0, RATE_MAX, false},
               [ADAM_BETA_1] = {"beta_1", 0.9, 0, BETA_MAX, false},
               [ADAM_BETA_2] = {"beta_2", 0.999, 0, BETA_MAX, false},
               [ADAM_EPSILON] = {"epsilon", 1e-7, EPSILON_MIN, 1, false}},
     .apply = adam_apply},
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

const struct ps_rule *ps_rule_for_optimizer(const char *keras_name, double momentum)
{
    if (strcasecmp(keras_name, "sgd") == 0)
        return ps_rule_find(momentum != 0 ? "momentum" : "sgd");
    return strcasecmp(keras_name, "adam") == 0 ? ps_rule_find("adam") : NULL;
}

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
    return ps_fail(e, PS_INVALID_ARGUMENT, "rule %s has no \"%s\"", rule->name, name);
}

enum ps_code ps_rule_set(const struct ps_rule *rule, double *hyper, const char *name, double value, struct ps_error *e)
{
    int i = 0;
    while (i < PS_RULE_MAX_HYPERS && rule->hyper[i].name && strcmp(rule->hyper[i].name, name) != 0)
        i++;
    if (i == PS_RULE_MAX_HYPERS || !rule->hyper[i].name)
        return unknown_hyper(rule, name, e);
    const struct ps_rule_hyper *h = &rule->hyper[i];
    if (h->flag && value != 0 && value != 1)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s of rule %s is %g; it must be 0 or 1", name, rule->name, value);
    if (!(value >= h->min && value <= h->max))  // so that NaN fails
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s of rule %s is %g; it must lie between %.10g and %.10g", name,
                       rule->name, value, h->min, h->max);
    hyper[i] = value;
    return PS_OK;
}
