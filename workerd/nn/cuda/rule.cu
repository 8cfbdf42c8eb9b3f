// SPDX-License-Identifier: Apache-2.0
//
// Update rules on the GPU, for values that stay there: those of common/math/rule.c, whose formulas these are, that most
// networks are trained with. Numbers of double are computed on the host, as there.
#include <math.h>
#include <string.h>

#include "workerd/nn/cuda/cuda.h"

// What a rule makes of its hyperparameters; of the gradient before it: factor and clip, of the weight: decay.
struct rule_numbers {
    float rate, factor, clip, decay;
    float a, b, c;  // its own
};

struct rule_arrays {
    const float *g;
    float *w, *slot[2];
};

static double rule_hyper(const struct ps_rule *rule, const double *hyper, const char *name)
{
    for (int i = 0; i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++)
        if (strcmp(rule->hyper[i].name, name) == 0)
            return hyper[i];
    return 0;
}

// ---- the rules: the weight after a gradient ------------------------------------------------------------------------

struct rule_sgd {
    static __device__ float after(const struct rule_numbers &s, const struct rule_arrays &, size_t, float g, float w)
    {
        return w - g * s.rate;
    }
    static void prepare(struct rule_numbers *, const struct ps_rule *, const double *, uint64_t)
    {
    }
};

// a: momentum
struct rule_momentum {
    static __device__ float after(const struct rule_numbers &s, const struct rule_arrays &x, size_t i, float g, float w)
    {
        const float m = x.slot[0][i] * s.a - g * s.rate;
        x.slot[0][i] = m;
        return w + m;
    }
    static void prepare(struct rule_numbers *s, const struct ps_rule *rule, const double *hyper, uint64_t)
    {
        s->a = (float)rule_hyper(rule, hyper, "momentum");
    }
};

struct rule_nesterov : rule_momentum {
    static __device__ float after(const struct rule_numbers &s, const struct rule_arrays &x, size_t i, float g, float w)
    {
        const float step = g * s.rate, m = x.slot[0][i] * s.a - step;
        x.slot[0][i] = m;
        return w + (m * s.a - step);
    }
};

// a: rho, b: 1 - rho, c: epsilon
struct rule_rmsprop {
    static __device__ float after(const struct rule_numbers &s, const struct rule_arrays &x, size_t i, float g, float w)
    {
        const float v = s.a * x.slot[0][i] + s.b * (g * g);
        x.slot[0][i] = v;
        return w - s.rate * g / sqrtf(v + s.c);
    }
    static void prepare(struct rule_numbers *s, const struct ps_rule *rule, const double *hyper, uint64_t)
    {
        const double rho = rule_hyper(rule, hyper, "rho");
        s->a = (float)rho;
        s->b = (float)(1 - rho);
        s->c = (float)rule_hyper(rule, hyper, "epsilon");
    }
};

// rate: with both bias corrections; a: 1 - beta_1, b: 1 - beta_2, c: epsilon
struct rule_adam {
    static __device__ float after(const struct rule_numbers &s, const struct rule_arrays &x, size_t i, float g, float w)
    {
        const float m = x.slot[0][i] + (g - x.slot[0][i]) * s.a, v = x.slot[1][i] + (g * g - x.slot[1][i]) * s.b;
        x.slot[0][i] = m;
        x.slot[1][i] = v;
        return w - m * s.rate / (sqrtf(v) + s.c);
    }
    static void prepare(struct rule_numbers *s, const struct ps_rule *rule, const double *hyper, uint64_t step)
    {
        const double beta_1 = rule_hyper(rule, hyper, "beta_1"), beta_2 = rule_hyper(rule, hyper, "beta_2");
        s->rate = (float)(hyper[PS_HYPER_LEARNING_RATE] * sqrt(1 - pow(beta_2, (double)step)) /
                          (1 - pow(beta_1, (double)step)));
        s->a = (float)(1 - beta_1);
        s->b = (float)(1 - beta_2);
        s->c = (float)rule_hyper(rule, hyper, "epsilon");
    }
};

// Not of a gradient, but of what a batch has: a: momentum, b: 1 - momentum
struct rule_ema {
    static __device__ float after(const struct rule_numbers &s, const struct rule_arrays &, size_t, float g, float w)
    {
        return w * s.a + g * s.b;
    }
    static void prepare(struct rule_numbers *s, const struct ps_rule *rule, const double *hyper, uint64_t)
    {
        const double momentum = rule_hyper(rule, hyper, "momentum");
        s->a = (float)momentum;
        s->b = (float)(1 - momentum);
    }
};

// ---- an application -----------------------------------------------------------------------------------------------

// NaN stays NaN.
template <class R> static __global__ void apply_rule(size_t n, struct rule_numbers s, struct rule_arrays x)
{
    NN_CUDA_EACH(i, n)
    {
        float g = x.g[i] * s.factor, w = x.w[i];
        g = g < -s.clip ? -s.clip : g;
        g = g > s.clip ? s.clip : g;
        w -= w * s.decay;
        x.w[i] = R::after(s, x, i, g, w);
    }
}

static struct rule_numbers rule_numbers_of(const struct ps_rule *rule, const double *hyper,
                                           const struct ps_rule_args *a)
{
    struct rule_numbers s = {0, 1, INFINITY, 0, 0, 0, 0};
    if (!rule->learns)
        return s;
    s.rate = (float)hyper[PS_HYPER_LEARNING_RATE];
    if (!a->trainable)
        return s;
    s.factor = a->clip_factor;
    s.clip = hyper[PS_HYPER_CLIPVALUE] > 0 ? (float)hyper[PS_HYPER_CLIPVALUE] : INFINITY;
    s.decay = (float)hyper[PS_HYPER_WEIGHT_DECAY] * s.rate;
    return s;
}

template <class R>
static void rule_launch(struct nn_context *c, const struct ps_rule *rule, const double *hyper,
                        const struct ps_rule_args *a)
{
    struct rule_numbers s = rule_numbers_of(rule, hyper, a);
    struct rule_arrays x = {a->g, a->w_out, {NULL, NULL}};
    R::prepare(&s, rule, hyper, a->step);
    for (int k = 0; k < rule->own_slots; k++)
        x.slot[k] = a->slot_out[k];
    NN_CUDA_RUN_EACH(c, apply_rule<R>, a->n, s, x);
}

static const struct {
    const char *name;
    void (*run)(struct nn_context *c, const struct ps_rule *rule, const double *hyper, const struct ps_rule_args *a);
} rules_here[] = {
    {"adam", rule_launch<rule_adam>},         {"adamw", rule_launch<rule_adam>},
    {"ema", rule_launch<rule_ema>},           {"momentum", rule_launch<rule_momentum>},
    {"nesterov", rule_launch<rule_nesterov>}, {"rmsprop", rule_launch<rule_rmsprop>},
    {"sgd", rule_launch<rule_sgd>},
};

enum { RULES = sizeof rules_here / sizeof *rules_here };

static int rule_place(const struct ps_rule *rule)
{
    int i = 0;
    while (i < RULES && strcmp(rules_here[i].name, rule->name) != 0)
        i++;
    return i;
}

// Accumulated gradients and averages of weights are the host's.
bool nn_cuda_applies(const struct ps_rule *rule, const double *hyper)
{
    return rule_place(rule) < RULES &&
           (!rule->learns || (hyper[PS_HYPER_ACCUMULATION_STEPS] <= 1 && hyper[PS_HYPER_USE_EMA] == 0));
}

void nn_cuda_apply(struct nn_context *c, const struct ps_rule *rule, const double *hyper, const struct ps_rule_args *a)
{
    rules_here[rule_place(rule)].run(c, rule, hyper, a);
}
