// SPDX-License-Identifier: Apache-2.0
//
// Names, defaults and formulas are Keras's (keras.regularizers, keras.constraints).
#include "workerd/nn/regularizer.h"

#include <math.h>
#include <string.h>

#include "workerd/nn/setting.h"

// An object's class and config, or a name.
static enum ps_code regularizer_read_class(const struct nn_json *at, struct nn_json *named, struct nn_json *config,
                                           const char **name, struct ps_error *e)
{
    *named = json_is_object(at->value) ? nn_json_member(at, "class_name") : *at;
    *config = nn_json_member(at, "config");
    if (nn_json_string(named, name, e) || nn_setting_class(at, e))
        return e->code;
    return nn_json_given(config) ? nn_json_object(config, e) : PS_OK;
}

static enum ps_code regularizer_read_number(const struct nn_json *config, const char *key, double *v,
                                            struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, key);
    return nn_json_given(&at) ? nn_json_real(&at, 0, 1e30, v, e) : PS_OK;
}

// ---- regularizers -------------------------------------------------------------------------------------------------

static const struct {
    const char *name, *function;
    struct nn_regularizer fallback;
    const char *keys[3];
} regularizers[] = {
    {"L1", "l1", {0.01, 0}, {"l1"}},
    {"L2", "l2", {0, 0.01}, {"l2"}},
    {"L1L2", "l1_l2", {0, 0}, {"l1", "l2"}},
};

enum ps_code nn_regularizer_read(const struct nn_json *at, struct nn_regularizer *r, struct ps_error *e)
{
    struct nn_json named, config;
    const char *name;
    *r = (struct nn_regularizer){0, 0};
    if (!nn_json_given(at))
        return PS_OK;
    if (regularizer_read_class(at, &named, &config, &name, e))
        return e->code;
    for (size_t i = 0; i < sizeof regularizers / sizeof *regularizers; i++) {
        if (strcmp(name, regularizers[i].name) != 0 && strcmp(name, regularizers[i].function) != 0)
            continue;
        *r = regularizers[i].fallback;
        if (!nn_json_given(&config))
            return PS_OK;
        if (nn_json_only(&config, regularizers[i].keys, e) || regularizer_read_number(&config, "l1", &r->l1, e))
            return e->code;
        return regularizer_read_number(&config, "l2", &r->l2, e);
    }
    return nn_json_expected(&named, e, "L1, L2 or L1L2");
}

// ---- constraints --------------------------------------------------------------------------------------------------

static const struct {
    const char *name, *function;
    struct nn_constraint fallback;
    const char *keys[5];
} constraints[] = {
    {"MaxNorm", "max_norm", {.kind = NN_MAX_NORM, .max = 2, .rate = 1}, {"max_value", "axis"}},
    {"MinMaxNorm",
     "min_max_norm",
     {.kind = NN_MIN_MAX_NORM, .max = 1, .rate = 1},
     {"min_value", "max_value", "rate", "axis"}},
    {"NonNeg", "non_neg", {.kind = NN_NON_NEG}, {NULL}},
    {"UnitNorm", "unit_norm", {.kind = NN_UNIT_NORM}, {"axis"}},
};
enum { CONSTRAINTS = sizeof constraints / sizeof *constraints };

// One dimension of the variable, or a list of them; null: all; absent: 0.
static enum ps_code constraint_read_axes(const struct nn_json *config, size_t rank, unsigned *axes, struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, "axis");
    size_t n = json_is_array(at.value) ? json_array_size(at.value) : 1;
    *axes = nn_json_given(&at) ? 0 : at.value ? (1u << rank) - 1 : 1;
    for (size_t i = 0; i < n && nn_json_given(&at); i++) {
        struct nn_json own = nn_json_element(&at, i);
        int64_t v;
        if (nn_json_int(json_is_array(at.value) ? &own : &at, -(int64_t)rank, (int64_t)rank - 1, &v, e))
            return e->code;
        *axes |= 1u << (v < 0 ? v + (int64_t)rank : v);
    }
    return PS_OK;
}

static enum ps_code constraint_read_config(const struct nn_json *config, size_t rank, struct nn_constraint *c,
                                           struct ps_error *e)
{
    struct nn_json rate = nn_json_member(config, "rate");
    if (regularizer_read_number(config, "min_value", &c->min, e) ||
        regularizer_read_number(config, "max_value", &c->max, e) ||
        (nn_json_given(&rate) && nn_json_real(&rate, 0, 1, &c->rate, e)))
        return e->code;
    return constraint_read_axes(config, rank, &c->axes, e);
}

enum ps_code nn_constraint_read(const struct nn_json *at, size_t rank, struct nn_constraint *c, struct ps_error *e)
{
    struct nn_json named, config;
    const char *name;
    *c = (struct nn_constraint){.kind = NN_FREE};
    if (!nn_json_given(at))
        return PS_OK;
    if (regularizer_read_class(at, &named, &config, &name, e))
        return e->code;
    for (int i = 0; i < CONSTRAINTS; i++) {
        if (strcmp(name, constraints[i].name) != 0 && strcmp(name, constraints[i].function) != 0)
            continue;
        *c = constraints[i].fallback;
        if (nn_json_given(&config) && nn_json_only(&config, constraints[i].keys, e))
            return e->code;
        return constraint_read_config(&config, rank, c, e);
    }
    return nn_json_expected(&named, e, "MaxNorm, MinMaxNorm, NonNeg or UnitNorm");
}

const char *nn_constraint_name(const struct nn_constraint *c)
{
    for (int i = 0; i < CONSTRAINTS; i++)
        if (constraints[i].fallback.kind == c->kind)
            return constraints[i].name;
    return NULL;
}

// What a part of this norm is multiplied by.
static double constraint_factor(const struct nn_constraint *c, double norm)
{
    const double least = 1e-7;  // Keras's epsilon
    double wanted = norm < c->min ? c->min : norm > c->max ? c->max : norm;
    return c->kind == NN_UNIT_NORM ? 1 / (least + norm) : (c->rate * wanted + (1 - c->rate) * norm) / (least + norm);
}

// Element k of those that the dimensions in `axes` (or all others) span: how far it lies from the first. *n: how many.
static uint64_t constraint_place(const uint64_t *shape, size_t rank, unsigned axes, uint64_t k, uint64_t *n)
{
    uint64_t at = 0, step = 1;
    *n = 1;
    for (size_t d = rank; d-- > 0; step *= shape[d]) {
        if (!(axes >> d & 1))
            continue;
        at += k / *n % shape[d] * step;
        *n *= shape[d];
    }
    return at;
}

static void constraint_scale(const struct nn_constraint *c, const uint64_t *shape, size_t rank, float *part)
{
    uint64_t n = 1;
    double squares = 0;
    for (uint64_t k = 0; k < n; k++) {
        double v = (double)part[constraint_place(shape, rank, c->axes, k, &n)];
        squares += v * v;
    }
    const double factor = constraint_factor(c, sqrt(squares));
    for (uint64_t k = 0; k < n; k++) {
        float *v = &part[constraint_place(shape, rank, c->axes, k, &n)];
        *v = (float)((double)*v * factor);
    }
}

void nn_constraint_apply(const struct nn_constraint *c, const uint64_t *shape, size_t rank, float *value)
{
    uint64_t n = 1, parts = 1;
    for (size_t d = 0; d < rank; d++)
        n *= shape[d];
    for (uint64_t i = 0; c->kind == NN_NON_NEG && i < n; i++)
        value[i] = value[i] < 0 ? 0 : value[i];
    for (uint64_t k = 0; c->kind != NN_FREE && c->kind != NN_NON_NEG && k < parts; k++)
        constraint_scale(c, shape, rank, value + constraint_place(shape, rank, ~c->axes, k, &parts));
}
