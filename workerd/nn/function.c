// SPDX-License-Identifier: Apache-2.0
//
// Activations as Keras writes them: a name, or a layer that is one.
#include <math.h>
#include <string.h>

#include "workerd/nn/model.h"
#include "workerd/nn/setting.h"

static const struct named {
    const char *name;
    struct nn_function function;
} named[] = {
    {"linear", {NN_F_LINEAR, 0, 0, 0}},
    {"relu", {NN_F_RELU, 0, 0, 0}},
    {"softmax", {NN_F_SOFTMAX, 0, 0, 0}},
    {"sigmoid", {NN_F_SIGMOID, 0, 0, 0}},
    {"tanh", {NN_F_TANH, 0, 0, 0}},
    {"celu", {NN_F_ELU, 1, 1, 0}},
    {"elu", {NN_F_ELU, 1, 1, 0}},
    {"exponential", {NN_F_EXPONENTIAL, 0, 0, 0}},
    {"gelu", {NN_F_GELU, 0, 0, 0}},
    {"gelu_approximate", {NN_F_GELU_APPROXIMATE, 0, 0, 0}},  // KerasHub's name of gelu(approximate=True)
    {"hard_shrink", {NN_F_HARD_SHRINK, 0.5f, 0, 0}},
    {"hard_sigmoid", {NN_F_RAMP, 1 / 6.0f, 0.5f, 0}},
    {"hard_silu", {NN_F_HARD_SILU, 0, 0, 0}},
    {"hard_swish", {NN_F_HARD_SILU, 0, 0, 0}},
    {"hard_tanh", {NN_F_RAMP, 1, 0, -1}},
    {"leaky_relu", {NN_F_RECTIFIER, 0.2f, 0, INFINITY}},
    {"log_sigmoid", {NN_F_LOG_SIGMOID, 0, 0, 0}},
    {"log_softmax", {NN_F_LOG_SOFTMAX, 0, 0, 0}},
    {"mish", {NN_F_MISH, 0, 0, 0}},
    {"relu6", {NN_F_RECTIFIER, 0, 0, 6}},
    {"selu", {NN_F_ELU, 1.05070098735548f * 1.67326324235437f, 1.05070098735548f, 0}},
    {"silu", {NN_F_SILU, 0, 0, 0}},
    {"soft_shrink", {NN_F_SOFT_SHRINK, 0.5f, 0, 0}},
    {"softplus", {NN_F_SOFTPLUS, 0, 0, 0}},
    {"softsign", {NN_F_SOFTSIGN, 0, 0, 0}},
    {"sparse_plus", {NN_F_SPARSE_PLUS, 0, 0, 0}},
    {"sparse_sigmoid", {NN_F_RAMP, 0.5f, 0.5f, 0}},
    {"squareplus", {NN_F_SQUAREPLUS, 4, 0, 0}},
    {"swish", {NN_F_SILU, 0, 0, 0}},
    {"tanh_shrink", {NN_F_TANH_SHRINK, 0, 0, 0}},
};
enum { NAMED = sizeof named / sizeof *named };

const char *nn_function_name(size_t i)
{
    return i < NAMED ? named[i].name : NULL;
}

static enum ps_code function_unknown(const struct nn_json *at, const char *word, struct ps_error *e)
{
    const char *known[NAMED + 1] = {0};
    char list[512];
    for (int i = 0; i < NAMED; i++)
        known[i] = named[i].name;
    const char *near = ps_nearest(word, known, NAMED);
    if (near)
        return nn_json_expected(at, e, "an activation that is known (did you mean %s?)", near);
    return nn_json_expected(at, e, "one of %s", nn_json_list(known, list, sizeof list));
}

static enum ps_code function_of_name(const struct nn_json *at, struct nn_function *f, struct ps_error *e)
{
    const char *word = json_string_value(at->value);
    for (int i = 0; i < NAMED; i++) {
        if (strcmp(word, named[i].name) != 0)
            continue;
        *f = named[i].function;
        if (strcmp(word, "hard_sigmoid") == 0 && nn_setting_is_keras2(at))
            f->a = 0.2f;
        return PS_OK;
    }
    return function_unknown(at, word, e);
}

// ---- layers that are activations ----------------------------------------------------------------------------------

static enum ps_code function_read_number(const struct nn_json *config, const char *key, double min, float *v,
                                         struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, key);
    double number;
    if (!nn_json_given(&at))
        return PS_OK;
    if (nn_json_real(&at, min, 1e30, &number, e))
        return e->code;
    *v = (float)number;
    return PS_OK;
}

static enum ps_code function_read_relu(const struct nn_json *config, struct nn_function *f, struct ps_error *e)
{
    *f = (struct nn_function){NN_F_RECTIFIER, 0, 0, INFINITY};
    if (function_read_number(config, "negative_slope", 0, &f->a, e) ||
        function_read_number(config, "threshold", 0, &f->b, e) ||
        function_read_number(config, "max_value", 0, &f->c, e))
        return e->code;
    if (f->a == 0 && f->b == 0 && isinf(f->c))
        *f = (struct nn_function){.kind = NN_F_RELU};
    return PS_OK;
}

// Keras 3 calls the slope negative_slope, Keras 2 alpha.
static enum ps_code function_read_leaky(const struct nn_json *config, struct nn_function *f, struct ps_error *e)
{
    *f = (struct nn_function){NN_F_RECTIFIER, 0.3f, 0, INFINITY};
    if (function_read_number(config, "alpha", 0, &f->a, e))
        return e->code;
    return function_read_number(config, "negative_slope", 0, &f->a, e);
}

static enum ps_code function_read_elu(const struct nn_json *config, struct nn_function *f, struct ps_error *e)
{
    *f = (struct nn_function){NN_F_ELU, 1, 1, 0};
    return function_read_number(config, "alpha", 0, &f->a, e);  // below 0, what comes out does not tell the slope
}

static enum ps_code function_read_softmax(const struct nn_json *config, struct nn_function *f, struct ps_error *e)
{
    *f = (struct nn_function){.kind = NN_F_SOFTMAX};
    return nn_setting_only_number(config, "axis", -1, e);
}

static const struct {
    const char *name;
    enum ps_code (*read)(const struct nn_json *config, struct nn_function *f, struct ps_error *e);
    const char *keys[7];
} classes[] = {
    {"ReLU", function_read_relu, {"name", "trainable", "dtype", "max_value", "negative_slope", "threshold"}},
    {"LeakyReLU", function_read_leaky, {"name", "trainable", "dtype", "negative_slope", "alpha"}},
    {"ELU", function_read_elu, {"name", "trainable", "dtype", "alpha"}},
    {"Softmax", function_read_softmax, {"name", "trainable", "dtype", "axis"}},
};

enum ps_code nn_function_of_class(const struct nn_json *config, const char *class, struct nn_function *f,
                                  struct ps_error *e)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(class, classes[i].name) == 0)
            return classes[i].read(config, f, e);
    return ps_fail(e, PS_INTERNAL, "%s is no activation", class);
}

static enum ps_code function_of_object(const struct nn_json *at, struct nn_function *f, struct ps_error *e)
{
    struct nn_json class_name = nn_json_member(at, "class_name"), config = nn_json_member(at, "config");
    const char *word;
    if (nn_json_string(&class_name, &word, e))
        return e->code;
    if (strcmp(word, "function") == 0 && json_is_string(config.value))
        return function_of_name(&config, f, e);
    if (nn_setting_class(at, e) || nn_json_object(&config, e))
        return e->code;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(word, classes[i].name) == 0)
            return nn_json_only(&config, classes[i].keys, e) ? e->code : classes[i].read(&config, f, e);
    return nn_json_expected(&class_name, e, "ReLU, LeakyReLU, ELU or Softmax");
}

enum ps_code nn_setting_function(const struct nn_json *at, struct nn_function *f, struct ps_error *e)
{
    *f = (struct nn_function){.kind = NN_F_LINEAR};
    if (!nn_json_given(at))
        return PS_OK;
    if (json_is_object(at->value))
        return function_of_object(at, f, e);
    return json_is_string(at->value) ? function_of_name(at, f, e)
                                     : nn_json_expected(at, e, "the name of an activation");
}
