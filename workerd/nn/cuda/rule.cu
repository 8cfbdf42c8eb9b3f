// SPDX-License-Identifier: Apache-2.0
//
// Update rules on the GPU, for values that stay there: those of common/math/rule.c, whose formulas these are, that most
// networks are trained with. Numbers of double are computed on the host, as there.
//
// A network may have hundreds of small variables, each of which takes less time than a launch. So one launch applies a
// rule to many: its argument lists them, and each block finds the part of a variable that is its own.
#include <math.h>
#include <string.h>

#include "workerd/nn/cuda/vectors.h"

// What a rule makes of its hyperparameters; of the gradient before it: factor and clip, of the weight: decay,
// times decay_rate.
struct rule_numbers {
    float rate, factor, clip, decay, decay_rate;
    float a, b, c;  // its own
};

enum { RULE_THREADS = 256, RULE_PART = 8 * RULE_THREADS, RULE_SLOTS = 2 };

// A variable, of which each block has RULE_PART elements.
struct rule_arrays {
    const float *g;
    float *w, *slot[RULE_SLOTS];
    uint32_t end;   // the first block that is not its own
    uint32_t last;  // elements of its last block
};

// A kernel has at least 4 KB of arguments.
enum { RULE_MOST = (4000 - sizeof(struct rule_numbers) - sizeof(uint32_t)) / sizeof(struct rule_arrays) };

// The argument: variables of the same numbers.
struct rule_list {
    struct rule_numbers s;
    uint32_t n;
    struct rule_arrays x[RULE_MOST];
};
static_assert(sizeof(struct rule_list) <= 4000, "the argument of a kernel");

static double rule_hyper(const struct ps_rule *rule, const double *hyper, const char *name)
{
    for (int i = 0; i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++)
        if (strcmp(rule->hyper[i].name, name) == 0)
            return hyper[i];
    return 0;
}

// ---- the rules: an element's weight after a gradient ---------------------------------------------------------------

struct rule_sgd {
    enum { SLOTS = 0 };
    static __device__ float after(const struct rule_numbers &s, float *, float g, float w)
    {
        return w - g * s.rate;
    }
    static void prepare(struct rule_numbers *, const struct ps_rule *, const double *, uint64_t)
    {
    }
};

// a: momentum
struct rule_momentum {
    enum { SLOTS = 1 };
    static __device__ float after(const struct rule_numbers &s, float *slot, float g, float w)
    {
        const float m = slot[0] * s.a - g * s.rate;
        slot[0] = m;
        return w + m;
    }
    static void prepare(struct rule_numbers *s, const struct ps_rule *rule, const double *hyper, uint64_t)
    {
        s->a = (float)rule_hyper(rule, hyper, "momentum");
    }
};

struct rule_nesterov : rule_momentum {
    static __device__ float after(const struct rule_numbers &s, float *slot, float g, float w)
    {
        const float step = g * s.rate, m = slot[0] * s.a - step;
        slot[0] = m;
        return w + (m * s.a - step);
    }
};

// a: rho, b: 1 - rho, c: epsilon
struct rule_rmsprop {
    enum { SLOTS = 1 };
    static __device__ float after(const struct rule_numbers &s, float *slot, float g, float w)
    {
        const float v = s.a * slot[0] + s.b * (g * g);
        slot[0] = v;
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
    enum { SLOTS = 2 };
    static __device__ float after(const struct rule_numbers &s, float *slot, float g, float w)
    {
        const float m = slot[0] + (g - slot[0]) * s.a, v = slot[1] + (g * g - slot[1]) * s.b;
        slot[0] = m;
        slot[1] = v;
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
    enum { SLOTS = 0 };
    static __device__ float after(const struct rule_numbers &s, float *, float g, float w)
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

// ---- the kernel ---------------------------------------------------------------------------------------------------

// NaN stays NaN.
template <class R> static __device__ float rule_after(const struct rule_numbers &s, float *slot, float g, float w)
{
    g *= s.factor;
    g = g < -s.clip ? -s.clip : g;
    g = g > s.clip ? s.clip : g;
    w -= w * s.decay * s.decay_rate;
    return R::after(s, slot, g, w);
}

// The i-th N elements from `first` on.
template <class R, int N>
static __device__ void rule_change(const struct rule_numbers &s, const struct rule_arrays &x, size_t first, uint32_t i)
{
    typedef nn_cuda_floats<N> lanes;
    const lanes g = ((const lanes *)(x.g + first))[i];
    lanes w = ((lanes *)(x.w + first))[i], slot[RULE_SLOTS] = {};
#pragma unroll
    for (int k = 0; k < R::SLOTS; k++)
        slot[k] = ((lanes *)(x.slot[k] + first))[i];
#pragma unroll
    for (int j = 0; j < N; j++) {
        float own[RULE_SLOTS] = {slot[0].at[j], slot[1].at[j]};
        w.at[j] = rule_after<R>(s, own, g.at[j], w.at[j]);
        slot[0].at[j] = own[0];
        slot[1].at[j] = own[1];
    }
    ((lanes *)(x.w + first))[i] = w;
#pragma unroll
    for (int k = 0; k < R::SLOTS; k++)
        ((lanes *)(x.slot[k] + first))[i] = slot[k];
}

static __device__ uint32_t rule_variable(const struct rule_list &l, uint32_t block)
{
    uint32_t from = 0, to = l.n - 1;
    while (from < to) {
        const uint32_t middle = (from + to) / 2;
        if (block < l.x[middle].end)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

static __device__ bool rule_is_aligned(const struct rule_arrays &x)
{
    return ((uintptr_t)x.g | (uintptr_t)x.w | (uintptr_t)x.slot[0] | (uintptr_t)x.slot[1]) % (4 * sizeof(float)) == 0;
}

template <class R> static __global__ void apply_rule(const struct rule_list l)
{
    const uint32_t v = rule_variable(l, blockIdx.x), begin = v == 0 ? 0 : l.x[v - 1].end;
    const struct rule_arrays &x = l.x[v];
    const uint32_t n = blockIdx.x + 1 == x.end ? x.last : (uint32_t)RULE_PART, fours = rule_is_aligned(x) ? n / 4 : 0;
    const size_t first = (size_t)(blockIdx.x - begin) * RULE_PART;
    for (uint32_t i = threadIdx.x; i < fours; i += RULE_THREADS)
        rule_change<R, 4>(l.s, x, first, i);
    for (uint32_t i = 4 * fours + threadIdx.x; i < n; i += RULE_THREADS)
        rule_change<R, 1>(l.s, x, first, i);
}

template <class R> static void rule_launch(struct nn_context *c, const struct rule_list *l)
{
    NN_CUDA_RUN(c, apply_rule<R>, l->x[l->n - 1].end, RULE_THREADS, 0, *l);
}

// ---- an application -----------------------------------------------------------------------------------------------

static const struct {
    const char *name;
    void (*prepare)(struct rule_numbers *s, const struct ps_rule *rule, const double *hyper, uint64_t step);
    void (*launch)(struct nn_context *c, const struct rule_list *l);
} rules_here[] = {
    {"adam", rule_adam::prepare, rule_launch<rule_adam>},
    {"adamw", rule_adam::prepare, rule_launch<rule_adam>},
    {"ema", rule_ema::prepare, rule_launch<rule_ema>},
    {"momentum", rule_momentum::prepare, rule_launch<rule_momentum>},
    {"nesterov", rule_nesterov::prepare, rule_launch<rule_nesterov>},
    {"rmsprop", rule_rmsprop::prepare, rule_launch<rule_rmsprop>},
    {"sgd", rule_sgd::prepare, rule_launch<rule_sgd>},
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

static struct rule_numbers rule_numbers_for(const struct nn_update *u)
{
    struct rule_numbers s = {0, 1, INFINITY, 0, 0, 0, 0, 0};
    if (!u->rule->learns)
        return s;
    s.rate = (float)u->hyper[PS_HYPER_LEARNING_RATE];
    if (!u->args.trainable)
        return s;
    s.factor = u->args.clip_factor;
    s.clip = u->hyper[PS_HYPER_CLIPVALUE] > 0 ? (float)u->hyper[PS_HYPER_CLIPVALUE] : INFINITY;
    s.decay = (float)u->hyper[PS_HYPER_WEIGHT_DECAY];
    s.decay_rate = s.rate;
    return s;
}

// Have they the same rule, and the same numbers?
static bool rule_is_same(const struct nn_update *a, const struct nn_update *b)
{
    size_t n = 0;
    while (n < PS_RULE_MAX_HYPERS && a->rule->hyper[n].name)
        n++;
    return a->rule == b->rule && a->args.step == b->args.step && a->args.trainable == b->args.trainable &&
           a->args.clip_factor == b->args.clip_factor &&
           (a->hyper == b->hyper || memcmp(a->hyper, b->hyper, n * sizeof *a->hyper) == 0);
}

static void rule_add(struct rule_list *l, const struct nn_update *u)
{
    struct rule_arrays *x = &l->x[l->n];
    const size_t before = (u->args.n - 1) / RULE_PART;  // blocks, before its last one
    *x = {u->args.g, u->args.w_out, {NULL, NULL}, 0, 0};
    for (int k = 0; k < u->rule->own_slots; k++)
        x->slot[k] = u->args.slot_out[k];
    x->end = (l->n == 0 ? 0 : l->x[l->n - 1].end) + (uint32_t)before + 1;
    x->last = (uint32_t)(u->args.n - before * RULE_PART);
    l->n++;
}

// Lists the first of n that go together. Returns how many these are.
static size_t rule_fill(struct rule_list *l, const struct nn_update *u, size_t n)
{
    l->s = rule_numbers_for(u);
    l->n = 0;
    while (l->n < n && l->n < RULE_MOST && rule_is_same(u, u + l->n))
        rule_add(l, u + l->n);
    return l->n;
}

void nn_cuda_apply(struct nn_context *c, const struct nn_update *u, size_t n)
{
    struct rule_list l;
    for (size_t i = 0, some; i < n; i += some) {
        const int rule = rule_place(u[i].rule);
        some = rule_fill(&l, u + i, n - i);
        rules_here[rule].prepare(&l.s, u[i].rule, u[i].hyper, u[i].args.step);
        rules_here[rule].launch(c, &l);
    }
}
