// SPDX-License-Identifier: Apache-2.0
//
// workerd/nn: reading Keras models, their shapes and parameters, what is refused and in which words, initial values.
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "tests/unit/nn_files.h"
#include "workerd/nn/model.h"

static struct nn_model *parse(const char *json)
{
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    if (nn_model_parse(json, "test", &m, &e) != PS_OK)
        fail_msg("%s", e.text);
    return m;
}

static uint64_t parameters(const struct nn_model *m)
{
    uint64_t n = 0;
    for (size_t i = 0; i < nn_model_params(m); i++)
        n += nn_model_param(m, i)->count;
    return n;
}

// ---- what is read -------------------------------------------------------------------------------------------------

static void check_cnn(const struct nn_model *m)
{
    static const struct {
        const char *name, *shape;
        uint64_t count;
    } expected[] = {
        {"sequential/conv2d/kernel", "(3, 3, 1, 32)", 288},      {"sequential/conv2d/bias", "(32,)", 32},
        {"sequential/conv2d_1/kernel", "(3, 3, 32, 64)", 18432}, {"sequential/conv2d_1/bias", "(64,)", 64},
        {"sequential/dense/kernel", "(1600, 64)", 102400},       {"sequential/dense/bias", "(64,)", 64},
        {"sequential/dense_1/kernel", "(64, 10)", 640},          {"sequential/dense_1/bias", "(10,)", 10},
    };
    assert_int_equal(nn_model_params(m), 8);
    for (size_t i = 0; i < 8; i++) {
        const struct nn_param *p = nn_model_param(m, i);
        char shape[64];
        assert_string_equal(p->name, expected[i].name);
        assert_string_equal(ps_shape_text(p->shape, p->rank, shape, sizeof shape), expected[i].shape);
        assert_int_equal(p->count, expected[i].count);
        assert_true(p->trainable);
    }
    assert_string_equal(nn_model_param(m, 2)->layer, "conv2d_1");
    assert_int_equal(parameters(m), 121930);
    assert_int_equal(elements(nn_model_input(m, 0)), 784);
    assert_int_equal(elements(nn_model_output(m, 0)), 10);
    const struct nn_type *in = nn_model_input(m, 0).type;
    assert_int_equal(in->rank, 3);
    assert_true(in->dim[0] == 28 && in->dim[1] == 28 && in->dim[2] == 1);
}

static void keras3_and_keras2(void **state)
{
    (void)state;
    struct nn_model *keras3 = load("tests/golden/cnn_keras3.json"), *keras2 = load("tests/golden/cnn_keras2.json");
    check_cnn(keras3);
    check_cnn(keras2);
    nn_model_free(keras3);
    nn_model_free(keras2);
}

static void examples(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint64_t inputs, outputs, parameters;
    } expected[] = {
        {"deploy/examples/softmax/model.json", 784, 10, 7850},
        {"deploy/examples/conv/model.json", 784, 10, 320 + 346176 + 650},
        {"deploy/examples/mnist-cnn/model.json", 784, 10, 320 + 18496 + 102464 + 650},
        {"deploy/examples/linear/model.json", 4, 1, 5},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct nn_model *m = load(expected[i].path);
        assert_int_equal(elements(nn_model_input(m, 0)), expected[i].inputs);
        assert_int_equal(elements(nn_model_output(m, 0)), expected[i].outputs);
        assert_int_equal(parameters(m), expected[i].parameters);
        nn_model_free(m);
    }
}

static void summary(void **state)
{
    (void)state;
    struct nn_model *m = load("deploy/examples/mnist-cnn/model.json");
    char *text = nn_model_summary(m);
    static const char *const lines[] = {
        "Model: \"sequential\"",
        "conv2d_1 (Conv2D)                    (None, 11, 11, 64)             18,496\n",
        "max_pooling2d_1 (MaxPooling2D)       (None, 5, 5, 64)                    0\n",
        "flatten (Flatten)                    (None, 1600)                        0\n",
        "Total parameters: 121,930 (trainable: 121,930)\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!strstr(text, lines[i]))
            fail_msg("no \"%s\" in\n%s", lines[i], text);
    free(text);
    nn_model_free(m);
}

// Documents by hand, with what Keras would leave to its defaults left out. ' stands for ".
static char *quoted(const char *text)
{
    char *s = ps_strdup(text);
    for (char *c = s; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return s;
}

static char *document(const char *layers)
{
    char *text = ps_printf("{'class_name': 'Sequential', 'config': {'name': 'net', 'layers': [%s]}}", layers);
    char *json = quoted(text);
    free(text);
    return json;
}

static struct nn_model *parse_layers(const char *layers)
{
    char *json = document(layers);
    struct nn_model *m = parse(json);
    free(json);
    return m;
}

#define LAYER(class, config) "{'class_name': '" class "', 'config': {" config "}}"
#define INPUT(shape) LAYER("InputLayer", "'name': 'in', 'batch_shape': [null, " shape "]")
#define DENSE(config) LAYER("Dense", "'name': 'd', " config)
#define CONV(config) LAYER("Conv2D", "'name': 'c', " config)
#define POOL(config) LAYER("MaxPooling2D", "'name': 'p'" config)

// (height, width) of what a convolution or pool gives, through the parameters of a dense layer above it.
static void check_window(const char *layer, uint64_t elements)
{
    char *layers =
        ps_printf("%s, %s, " LAYER("Flatten", "'name': 'f'") ", " DENSE("'units': 1"), INPUT("9, 8, 2"), layer);
    struct nn_model *m = parse_layers(layers);
    assert_int_equal(nn_model_param(m, nn_model_params(m) - 2)->count, elements);
    nn_model_free(m);
    free(layers);
}

static void windows(void **state)
{
    (void)state;
    check_window(CONV("'filters': 4, 'kernel_size': 3"), 7 * 6 * 4);
    check_window(CONV("'filters': 4, 'kernel_size': [2, 3], 'strides': [1, 2]"), 8 * 3 * 4);
    check_window(CONV("'filters': 4, 'kernel_size': 3, 'padding': 'same', 'strides': 2"), 5 * 4 * 4);
    check_window(CONV("'filters': 1, 'kernel_size': [9, 8]"), 1);
    check_window(CONV("'filters': 1, 'kernel_size': [30, 40], 'padding': 'same'"), 9 * 8);
    check_window(POOL(""), 4 * 4 * 2);
    check_window(POOL(", 'padding': 'same'"), 5 * 4 * 2);
    check_window(POOL(", 'pool_size': 3, 'strides': 1"), 7 * 6 * 2);
    check_window(POOL(", 'pool_size': [2, 3], 'strides': null"), 4 * 2 * 2);
}

static void defaults_and_details(void **state)
{
    (void)state;
    // A class as Keras says whose it is, in all its spellings.
    nn_model_free(parse_layers(INPUT("3") ", {'module': 'keras.layers', 'registered_name': null, 'class_name': "
                                          "'Flatten', 'config': {'name': 'f'}}, {'module': 'keras.src.layers', "
                                          "'registered_name': 'Flatten', 'class_name': 'Flatten', 'config': {'name': "
                                          "'g'}}, {'module': 'tf_keras.layers', 'class_name': 'Flatten', 'config': "
                                          "{'name': 'h'}}"));
    // A dense layer acts on the last axis; no bias; frozen; Keras 2's implied input.
    struct nn_model *m = parse_layers(LAYER(
        "Dense", "'name': 'd', 'units': 4, 'use_bias': false, 'trainable': false, 'batch_input_shape': [null, 5, 3]"));
    assert_int_equal(elements(nn_model_input(m, 0)), 15);
    assert_int_equal(elements(nn_model_output(m, 0)), 20);
    assert_int_equal(nn_model_params(m), 1);
    assert_string_equal(nn_model_param(m, 0)->name, "net/d/kernel");
    assert_int_equal(nn_model_param(m, 0)->count, 12);
    assert_false(nn_model_param(m, 0)->trainable);
    nn_model_free(m);
    m = parse_layers(INPUT("6") ", " LAYER("ReLU", "'name': 'r', 'negative_slope': 0.0") ", " LAYER(
        "Softmax", "'name': 's', 'axis': 1") ", " LAYER("Dropout", "'name': 'x', 'rate': 0.25, 'seed': 3"));
    assert_int_equal(nn_model_params(m), 0);
    assert_int_equal(elements(nn_model_output(m, 0)), 6);
    nn_model_free(m);
}

// ---- what is refused ----------------------------------------------------------------------------------------------

// says: the words after "test: ", and after the layer's name where they begin with its place.
static void check_refused(const char *json, const char *says)
{
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    char *expected = quoted(says);
    enum ps_code code = nn_model_parse(json, "test", &m, &e);
    if (code != PS_INVALID_ARGUMENT || m)
        fail_msg("was read, but expected: %s", expected);
    bool placed = strncmp(says, "$.config.layers[", 16) == 0 && strncmp(e.text, "test: layer \"", 13) == 0;
    const char *found = placed ? strchr(e.text + 13, '$') : e.text + 6;
    if (strncmp(e.text, "test: ", 6) != 0 || !found || strncmp(found, expected, strlen(expected)) != 0)
        fail_msg("expected: %s\nfound:    %s", expected, e.text);
    free(expected);
}

static void bad_documents(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "line 1, column 0: expected JSON"},
        {"{'class_name': 'Sequential',\n 'config'", "line 2, column"},
        {"{'a': 1, 'a': 2}", "line 1, column "},
        {"[]", "$: expected an object, not an array of 0"},
        {"{}", "$.class_name: expected 'Sequential' or 'Functional', which is missing"},
        {"{'class_name': null}", "$.class_name: expected 'Sequential' or 'Functional', not null"},
        {"{'class_name': 'functional'}", "$.class_name: expected 'Sequential' or 'Functional', not 'functional'"},
        {"{'class_name': 'Sequential'}", "$.config: expected an object, which is missing"},
        {"{'class_name': 'Sequential', 'module': 'mine'}", "$.module: expected a class of Keras itself, not 'mine'"},
        {"{'class_name': 'Sequential', 'registered_name': 'mine>Sequential'}",
         "$.registered_name: expected a class of Keras itself, not 'mine>Sequential'"},
        {"{'class_name': 'Sequential', 'config': {}}", "$.config.name: expected a string, which is missing"},
        {"{'class_name': 'Sequential', 'config': {'name': 'a/b'}}",
         "$.config.name: expected a name of 1 to 128 bytes without '/' and control characters, not 'a/b'"},
        {"{'class_name': 'Sequential', 'config': {'name': 'a\\u001b[1m'}}",
         "$.config.name: expected a name of 1 to 128 bytes without '/' and control characters, not 'a\\u001B[1m'"},
        {"{'class_name': 'Sequential', 'config': {'name': 'n'}}",
         "$.config.layers: expected an array, which is missing"},
        {"{'class_name': 'Sequential', 'config': {'name': 'n', 'layers': []}}",
         "$.config.layers: expected 1 to 10000 layers, not an array of 0"},
        {"{'class_name': 'Sequential', 'config': {'name': 'n', 'dtype': 'mixed_float16', 'layers': []}}",
         "$.config.dtype: expected 'float32' or 'mixed_bfloat16', not 'mixed_float16'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *json = quoted(cases[i].json);
        check_refused(json, cases[i].says);
        free(json);
    }
}

#define IDS LAYER("InputLayer", "'name': 'in', 'batch_shape': [null, 5], 'dtype': 'int32'")
#define BOTH(config, layer) LAYER("Bidirectional", "'name': 'b', " config ", 'layer': " layer)
#define WRAP(layer) LAYER("TimeDistributed", "'name': 't', 'layer': " layer)
#define NAMED(config) "'name': 'l', " config
static const struct {
    const char *layers, *says;  // the words after "$.config.layers"
} bad_layers[] = {
    {"1", "[0]: expected an object, not 1"},
    {"{}", "[0].class_name: expected a string, which is missing"},
    {"{'class_name': 'Dense'}", "[0].config: expected an object, which is missing"},
    {LAYER("Conv2d", ""),
     "[0].class_name: expected a layer of those that 'workerd --layers' lists (did you mean Conv2D?"},
    {LAYER("Quantum", ""), "[0].class_name: expected a layer of those that 'workerd --layers' lists, not 'Quantum'"},
    {INPUT("3") ", " LAYER("BatchNormalization", NAMED("'axis': 2")),
     "[1].config.axis: expected an axis of the input but the batch: -1 to -1, or 1 to 1, not 2"},
    {INPUT("3") ", " LAYER("BatchNormalization", NAMED("'momentum': 1")),
     "[1].config.momentum: expected a number from 0 to below 1"},
    {INPUT("3") ", " LAYER("BatchNormalization", NAMED("'renorm': true")), "[1].config.renorm: expected null"},
    {INPUT("4, 3") ", " LAYER("Masking", "'name': 'k'") ", " LAYER("BatchNormalization", "'name': 'n'"),
     "[2]: BatchNormalization of an input with a mask, whose statistics would leave out what is masked, is not"},
    {INPUT("4, 3") ", " LAYER("Reshape", NAMED("'target_shape': [5, -1]")),
     "[1].config.target_shape: expected a shape of the 12 elements that the input has"},
    {INPUT("4, 3") ", " LAYER("Reshape", NAMED("'target_shape': [-1, -1]")),
     "[1].config.target_shape[1]: expected a size of 1 or more, or -1 in one place, not -1"},
    {INPUT("4, 3") ", " LAYER("Permute", NAMED("'dims': [1, 1]")),
     "[1].config.dims: expected each of the numbers 1 to 2 once"},
    {INPUT("4, 3") ", " LAYER("RepeatVector", NAMED("'n': 2")),
     "[1]: RepeatVector expected an input of shape (elements,)"},
    {INPUT("4, 3") ", " LAYER("LayerNormalization", NAMED("'axis': [1]")),
     "[1].config.axis: expected the last axis or axes of the input: -1, or a list like [-2, -1]"},
    {INPUT("6") ", " LAYER("GroupNormalization", NAMED("'groups': 4")),
     "[1].config.groups: expected a number that divides the 6 channels, or -1, not 4"},
    {INPUT("3") ", " LAYER("Sequential", NAMED("'layers': [" INPUT("4") ", " DENSE("'units': 1") "]")),
     "[1].config.layers[0]: the model is called on a value of shape (3,), but its InputLayer has (4,)"},
    {INPUT("3") ", " LAYER("Sequential", NAMED("'layers': [" DENSE("'units': 0") "]")),
     "[1].config.layers[0].config.units: expected a whole number"},
    {INPUT("3") ", " LAYER("Functional",
                           NAMED("'layers': [" INPUT("4") "], 'input_layers': [['in', 0, 0], ['in', 0, 0]]")),
     "[1]: the model takes 2 inputs, not 1"},
    {LAYER("Sequential", NAMED("'layers': [" DENSE("'units': 1") "]")), "[0]: expected an InputLayer"},
    {DENSE("'units': 1"), "[0]: expected an InputLayer with a batch_shape as the first layer, or a batch_input_shape"},
    {LAYER("InputLayer", NAMED("'batch_shape': 3")), "[0].config.batch_shape: expected an array, not 3"},
    {LAYER("InputLayer", "'name': 'i'"), "[0].config.batch_shape: expected an array, which is missing"},
    {LAYER("InputLayer", NAMED("'batch_shape': [null]")),
     "[0].config.batch_shape: expected null for the batch and 1 to 8 dimensions, not an array of 1"},
    {INPUT("null"), "[0].config.batch_shape[1]: expected a whole number from 1 to 2147483647, not null"},
    {INPUT("65536, 65536"), "[0]: an output of shape (65536, 65536) has more than 2147483647 elements"},
    {LAYER("InputLayer", NAMED("'batch_shape': [null, 1], 'dtype': 'float16'")),
     "[0].config.dtype: expected 'float32', 'bool', 'string' or a type of whole numbers: 'int32', not 'float16'"},
    {LAYER("InputLayer", NAMED("'batch_shape': [null, 1], 'sparse': true")),
     "[0].config.sparse: expected null: this setting is not supported"},
    {INPUT("3") ", " LAYER("InputLayer", NAMED("'batch_shape': [null, 1]")),
     "[1]: expected InputLayer as the first layer only"},
    {INPUT("3") ", " LAYER("Dense", "'units': 1"), "[1].config.name: expected a string, which is missing"},
    {INPUT("3") ", " LAYER("Dense", "'name': 'in', 'units': 1"),
     "[1].config.name: expected a name that no other layer has, not 'in'"},
    {INPUT("3") ", " DENSE("'units': 1, 'trainable': 'no'"), "[1].config.trainable: expected true or false, not 'no'"},
    {INPUT("3") ", " DENSE("'dtype': {'class_name': 'DTypePolicy', 'config': {'name': 'bfloat16'}}"),
     "[1].config.dtype.config.name: expected 'float32' or 'mixed_bfloat16', not 'bfloat16'"},
    {INPUT("3") ", " DENSE("'dtype': {'config': {'name': null}}"),
     "[1].config.dtype.config.name: expected the name of a dtype policy, not null"},
    {INPUT("3") ", " DENSE("'dtype': {}"), "[1].config.dtype.config.name: expected the name of a dtype policy"},
    {INPUT("3") ", " DENSE("'units': 0"), "[1].config.units: expected a whole number from 1 to 2147483647, not 0"},
    {INPUT("3") ", " DENSE("'units': -3"), "[1].config.units: expected a whole number from 1 to 2147483647, not -3"},
    {INPUT("3") ", " DENSE("'units': 2.0"), "[1].config.units: expected a whole number from 1 to 2147483647, not 2.0"},
    {INPUT("3") ", " DENSE("'unit': 3"), "[1].config: 'unit' is not known; did you mean 'units'?"},
    {INPUT("3") ", " DENSE("'unit': false"), "[1].config: 'unit' is not known; did you mean 'units'?"},
    {INPUT("3") ", " DENSE("'units': 3, 'enable_lora': false"),
     "[1].config: 'enable_lora' is not supported; expected only units"},
    {LAYER("InputLayer", NAMED("'batch_shape': [null, 1], 'optional': true")),
     "[0].config.optional: expected null: this setting is not supported"},
    // As Keras 3 writes a class of the program's own: not registered, registered, and out of another module.
    {"{'module': null, 'registered_name': 'Dense', 'class_name': 'Dense', 'config': {'units': 1}}",
     "[0].registered_name: expected a class of Keras itself, not 'Dense'"},
    {"{'module': null, 'registered_name': 'mine>Dense', 'class_name': 'Dense', 'config': {'units': 1}}",
     "[0].registered_name: expected a class of Keras itself, not 'mine>Dense'"},
    {"{'module': 'keras_cv.layers', 'registered_name': null, 'class_name': 'Dense', 'config': {'units': 1}}",
     "[0].module: expected a class of Keras itself, not 'keras_cv.layers'"},
    {"{'module': 3, 'class_name': 'Dense', 'config': {'units': 1}}",
     "[0].module: expected a class of Keras itself, not 3"},
    {INPUT("3") ", " DENSE(
         "'units': 3, 'kernel_initializer': {'module': null, 'class_name': 'Zeros', 'registered_name': "
         "'mine>Zeros'}"),
     "[1].config.kernel_initializer.registered_name: expected a class of Keras itself, not 'mine>Zeros'"},
    {INPUT("3") ", " DENSE("'units': 3, 'momentum': 3"),
     "[1].config: 'momentum' is not supported; expected only units"},
    {INPUT("3") ", " DENSE("'units': 3, 'lora_rank': 2"),
     "[1].config.lora_rank: expected null: this setting is not supported"},
    {INPUT("3") ", " DENSE("'units': 3, 'kernel_regularizer': {'class_name': 'OrthogonalRegularizer'}"),
     "[1].config.kernel_regularizer.class_name: expected L1, L2 or L1L2, not 'OrthogonalRegularizer'"},
    {INPUT("3") ", " DENSE("'units': 3, 'bias_regularizer': {'class_name': 'L2', 'config': {'l2': -1}}"),
     "[1].config.bias_regularizer.config.l2: expected a number from 0 to 1e+30, not -1"},
    {INPUT("3") ", " DENSE("'units': 3, 'activity_regularizer': 'l3'"),
     "[1].config.activity_regularizer: expected L1, L2 or L1L2, not 'l3'"},
    {INPUT("3") ", " DENSE("'units': 3, 'kernel_constraint': 'max'"),
     "[1].config.kernel_constraint: expected MaxNorm, MinMaxNorm, NonNeg or UnitNorm, not 'max'"},
    {INPUT("3") ", " DENSE("'units': 3, 'bias_constraint': {'class_name': 'UnitNorm', 'config': {'axis': 1}}"),
     "[1].config.bias_constraint.config.axis: expected a whole number from -1 to 0, not 1"},
    {INPUT("3") ", " DENSE("'units': 3, 'bias_constraint': {'module': 'mine', 'class_name': 'NonNeg'}"),
     "[1].config.bias_constraint.module: expected a class of Keras itself, not 'mine'"},
    {INPUT("3") ", " DENSE("'units': 3, 'activation': 'rleu'"),
     "[1].config.activation: expected an activation that is known (did you mean relu?), not 'rleu'"},
    {INPUT("3") ", " DENSE("'units': 3, 'activation': 'quantum'"),
     "[1].config.activation: expected one of linear, relu, softmax, sigmoid, tanh, celu, elu, exponential, gelu, "},
    {INPUT("3") ", " DENSE("'units': 3, 'activation': 7"),
     "[1].config.activation: expected the name of an activation, not 7"},
    {INPUT("3") ", " DENSE("'units': 3, 'activation': {}"), "[1].config.activation.class_name: expected a string"},
    {INPUT("3") ", " DENSE("'units': 3, 'activation': {'class_name': 'PReLU', 'config': {}}"),
     "[1].config.activation.class_name: expected ReLU, LeakyReLU, ELU or Softmax, not 'PReLU'"},
    {INPUT("3") ", " DENSE("'units': 3, 'activation': {'class_name': 'ELU', 'config': {'alfa': 2}}"),
     "[1].config.activation.config: 'alfa' is not supported; expected only name, trainable, dtype, alpha"},
    {INPUT("3") ", " DENSE("'units': 3, 'activation': {'module': 'mine', 'class_name': 'ELU', 'config': {}}"),
     "[1].config.activation.module: expected a class of Keras itself, not 'mine'"},
    {INPUT("3") ", " DENSE("'units': 3, 'use_bias': 1"), "[1].config.use_bias: expected true or false, not 1"},
    {INPUT("65536") ", " DENSE("'units': 65536"), "[1]: kernel of shape (65536, 65536) has more than 2147483647"},
    {INPUT("9, 3") ", " DENSE("'units': 2147483647"), "[1]: an output of shape (9, 2147483647) has more than"},
    {INPUT("3") ", " DENSE("'units': 3, 'kernel_initializer': 'zeroes'"),
     "[1].config.kernel_initializer: expected an initializer that is known (did you mean Zeros?), not 'zeroes'"},
    {INPUT("3") ", " DENSE("'units': 3, 'kernel_initializer': {'class_name': 'STFT'}"),
     "[1].config.kernel_initializer.class_name: expected one of GlorotUniform, GlorotNormal,"},
    {INPUT("3") ", " DENSE("'units': 3, 'bias_initializer': 'orthogonal'"),
     "[1].config.bias_initializer: Orthogonal expected a variable of 2 or more dimensions, not of 1"},
    {INPUT("3") ", " DENSE("'units': 3, 'bias_initializer': 'identity'"),
     "[1].config.bias_initializer: Identity expected a variable of 2 dimensions, not of 1"},
    {INPUT("3") ", " DENSE(
         "'units': 3, 'kernel_initializer': {'class_name': 'VarianceScaling', 'config': {'mode': 'fan'}}"),
     "[1].config.kernel_initializer.config.mode: expected fan_in, fan_out or fan_avg, not 'fan'"},
    {INPUT("3") ", " DENSE("'units': 3, 'bias_initializer': {'class_name': 'RandomNormal', 'config': {'stddev': -1}}"),
     "[1].config.bias_initializer.config.stddev: expected a number from 0 to 1e+30, not -1"},
    {INPUT("3") ", " DENSE("'units': 3, 'bias_initializer': {'class_name': 'Constant', 'config': {'vale': 1}}"),
     "[1].config.bias_initializer.config: 'vale' is not known; did you mean 'value'?"},
    {INPUT("5, 5") ", " CONV("'filters': 1, 'kernel_size': 3"),
     "[1]: Conv2D expected an input of shape (height, width, channels), but 'in' gives (5, 5)"},
    {INPUT("5, 5, 1") ", " CONV("'kernel_size': 3"), "[1].config.filters: expected a whole number from 1 to"},
    {INPUT("5, 5, 1") ", " CONV("'filters': 1"), "[1].config.kernel_size: expected a whole number or two of them"},
    {INPUT("5, 5, 1") ", " CONV("'filters': 1, 'kernel_size': [3, 0]"), "[1].config.kernel_size[1]: expected a whole"},
    {INPUT("5, 5, 1") ", " CONV("'filters': 1, 'kernel_size': [3, 3, 3]"), "[1].config.kernel_size: expected a whole"},
    {INPUT("5, 5, 1") ", " CONV("'filters': 1, 'kernel_size': [3, 7]"),
     "[1].config: a window of 7 does not fit the input (5, 5, 1): expected a smaller one, or padding 'same'"},
    {INPUT("5, 5, 1") ", " CONV("'filters': 1, 'kernel_size': 3, 'padding': 'full'"),
     "[1].config.padding: expected 'valid' or 'same', not 'full'"},
    {INPUT("5, 5, 1") ", " CONV("'filters': 1, 'kernel_size': 3, 'data_format': 'channels_first'"),
     "[1].config.data_format: expected 'channels_last', not 'channels_first'"},
    {INPUT("5, 5, 1") ", " CONV("'filters': 1, 'kernel_size': 3, 'dilation_rate': [1, 3]"),
     "[1].config: a window of 7 does not fit the input (5, 5, 1): expected a smaller one, or padding 'same'"},
    {INPUT("9, 9, 1") ", " CONV("'filters': 1, 'kernel_size': 3, 'dilation_rate': [1, 2], 'strides': [2, 1]"),
     "[1].config.dilation_rate: expected 1 where strides are not, not an array of 2"},
    {INPUT("9, 9, 1") ", " CONV("'filters': 1, 'kernel_size': 3, 'padding': 'causal'"),
     "[1].config.padding: expected 'valid' or 'same', not 'causal'"},
    {INPUT("5, 5, 3") ", " CONV("'filters': 2, 'kernel_size': 3, 'groups': 2"),
     "[1].config.groups: expected a divisor of the 3 channels of its input, not 2"},
    {INPUT("5, 5, 2") ", " CONV("'filters': 3, 'kernel_size': 3, 'groups': 2"),
     "[1].config.groups: expected a divisor of the 3 filters, not 2"},
    {INPUT("5, 5, 2") ", " CONV("'filters': 3, 'kernel_size': 3, 'groups': 0"),
     "[1].config.groups: expected a whole number from 1 to"},
    {INPUT("5, 5, 2") ", " LAYER("Conv1D", NAMED("'filters': 3, 'kernel_size': 3")),
     "[1]: Conv1D expected an input of shape (steps, channels), but 'in' gives (5, 5, 2)"},
    {INPUT("5, 2") ", " LAYER("Conv1D", NAMED("'filters': 3, 'kernel_size': [3, 3]")),
     "[1].config.kernel_size: expected a whole number, not an array of 2"},
    {INPUT("5, 2") ", " LAYER("Conv1D", NAMED("'filters': 3, 'kernel_size': 6")),
     "[1].config: a window of 6 does not fit the input (5, 2): expected a smaller one"},
    {INPUT("5, 2") ", " LAYER("Conv1D", NAMED("'filters': 3, 'kernel_size': 3, 'padding': 'full'")),
     "[1].config.padding: expected 'valid', 'same' or 'causal', not 'full'"},
    {INPUT("5, 2") ", " LAYER("Conv1D", NAMED("'filters': 3, 'kernel_size': 2, 'padding': 'causal', 'dilation_rate': "
                                              "2147483646")),
     "[1].config: an image of 5 padded for a window of 2147483647: expected at most 2147483647 together"},
    {INPUT("5, 5, 2") ", " LAYER("DepthwiseConv2D", NAMED("'kernel_size': 3, 'depth_multiplier': 0")),
     "[1].config.depth_multiplier: expected a whole number from 1 to"},
    {INPUT("5, 5, 2") ", " LAYER("DepthwiseConv2D", NAMED("'kernel_size': 3, 'depthwise_regularizer': 'l3'")),
     "[1].config.depthwise_regularizer: expected L1, L2 or L1L2, not 'l3'"},
    {INPUT("9, 9, 9") ", " LAYER("DepthwiseConv2D", NAMED("'kernel_size': 3, 'depth_multiplier': 2147483647")),
     "[1]: an output of shape (7, 7, 19327352823) has more than"},
    {INPUT("9, 9, 9") ", " LAYER("SeparableConv2D",
                                 NAMED("'filters': 1, 'kernel_size': 3, 'depth_multiplier': 99999999")),
     "[1]: what lies between its convolutions of shape (7, 7, 899999991) has more than"},
    {INPUT("5, 5, 2") ", " LAYER("SeparableConv2D", NAMED("'filters': 1, 'kernel_size': 3, 'dilation_rate': 2, "
                                                          "'strides': 2")),
     "[1].config.dilation_rate: expected 1 where strides are not, not 2"},
    {INPUT("5, 5, 2") ", " LAYER("Conv2DTranspose", NAMED("'filters': 1, 'kernel_size': 3, 'output_padding': [0, 1]")),
     "[1].config.output_padding: expected less than the strides, not an array of 2"},
    {INPUT("5, 5, 2") ", " LAYER("Conv2DTranspose", NAMED("'filters': 1, 'kernel_size': 2, 'strides': 2, 'padding': "
                                                          "'same', 'output_padding': 0")),
     "[1].config.output_padding: expected 1 or more, with padding 'same' and an even kernel_size, not 0"},
    {INPUT("5, 5, 2") ", " LAYER("Conv2DTranspose", NAMED("'filters': 1, 'kernel_size': 3, 'strides': 2147483647")),
     "[1].config: a window of 3, 1 apart, over 5: expected at most 2147483647 together"},
    {INPUT("5, 2") ", " LAYER("Conv1DTranspose",
                              NAMED("'filters': 1, 'kernel_size': 3, 'strides': 2, 'dilation_rate': 2")),
     "[1].config.dilation_rate: expected 1 where strides are not, not 2"},
    {INPUT("3") ", " LAYER("GlobalMaxPooling1D", "'name': 'g'"),
     "[1]: GlobalMaxPooling1D expected an input of shape (steps, channels), but 'in' gives (3,)"},
    {INPUT("3, 3") ", " LAYER("GlobalAveragePooling2D", "'name': 'g'"),
     "[1]: GlobalAveragePooling2D expected an input of shape (height, width, channels), but 'in' gives (3, 3)"},
    {INPUT("3, 3") ", " LAYER("AveragePooling1D", NAMED("'pool_size': 4")),
     "[1].config: a window of 4 does not fit the input (3, 3)"},
    {INPUT("3, 3, 1") ", " LAYER("ZeroPadding2D", NAMED("'padding': [[1, 2], [3]]")),
     "[1].config.padding[1]: expected a whole number, or [begin, end], not an array of 1"},
    {INPUT("3, 3, 1") ", " LAYER("ZeroPadding2D", NAMED("'padding': [1, 2, 3]")),
     "[1].config.padding: expected a whole number, [height, width], or [[top, bottom], [left, right]], not an array of "
     "3"},
    {INPUT("3, 3, 1") ", " LAYER("ZeroPadding2D", NAMED("'padding': -1")),
     "[1].config.padding: expected a whole number from 0 to 2147483647, not -1"},
    {INPUT("3, 3, 1") ", " LAYER("ZeroPadding2D", NAMED("'padding': 2147483647")),
     "[1]: an output of shape (4294967297, 4294967297, 1) has more than"},
    {INPUT("3, 3, 1") ", " LAYER("Cropping2D", NAMED("'cropping': [[1, 2], [0, 0]]")),
     "[1].config.cropping: expected less than the 3 of its input, not an array of 2"},
    {INPUT("3, 1") ", " LAYER("Cropping1D", NAMED("'cropping': [1, [2]]")),
     "[1].config.cropping[1]: expected a whole number from 0 to 2147483647, not an array of 1"},
    {INPUT("3, 3, 1") ", " LAYER("UpSampling2D", NAMED("'size': [2, 0]")),
     "[1].config.size[1]: expected a whole number from 1 to"},
    {INPUT("3, 3, 1") ", " LAYER("UpSampling2D", NAMED("'interpolation': 'bicubic'")),
     "[1].config.interpolation: expected 'nearest' or 'bilinear', not 'bicubic'"},
    {INPUT("3, 3, 1") ", " LAYER("UpSampling2D", NAMED("'size': 2147483647")),
     "[1]: an output of shape (6442450941, 6442450941, 1) has more than"},
    {INPUT("2147483647, 1, 1") ", " CONV("'filters': 1, 'kernel_size': [2147483647, 1], 'padding': 'same'"),
     "[1].config: an image of 2147483647 padded for a window of 2147483647: expected at most 2147483647 together"},
    {INPUT("99, 99, 999") ", " CONV("'filters': 999, 'kernel_size': 99"),
     "[1]: kernel of shape (99, 99, 999, 999) has more than 2147483647 elements"},
    {INPUT("5, 5, 1") ", " POOL(", 'pool_size': 65536, 'padding': 'same'"),
     "[1].config.pool_size: expected at most 2147483647 cells, not 65536 x 65536"},
    {INPUT("5, 5, 1") ", " POOL(", 'strides': 0"), "[1].config.strides: expected a whole number from 1"},
    {INPUT("5, 5, 1") ", " LAYER("Flatten", NAMED("'data_format': 'channels_first'")),
     "[1].config.data_format: expected 'channels_last', not 'channels_first'"},
    {INPUT("5") ", " LAYER("Activation", "'name': 'a'"), "[1].config.activation: expected the name of an activation"},
    {INPUT("5") ", " LAYER("Dropout", NAMED("'rate': 1")),
     "[1].config.rate: expected a number from 0 to below 1, not 1"},
    {INPUT("5") ", " LAYER("Dropout", NAMED("'rate': 0.999999999")),
     "[1].config.rate: expected a number from 0 to below 1"},
    {INPUT("5") ", " LAYER("Dropout", NAMED("'rate': -0.5")),
     "[1].config.rate: expected a number from 0 to 1, not -0.5"},
    {INPUT("5") ", " LAYER("Dropout", NAMED("'rate': 0.5, 'noise_shape': [1]")),
     "[1].config.noise_shape: expected null, or null for the batch and 1 sizes, not an array of 1"},
    {INPUT("5, 2") ", " LAYER("Dropout", NAMED("'rate': 0.5, 'noise_shape': [null, 3, 2]")),
     "[1].config.noise_shape[1]: expected null, 1 or the size of the input, not 3"},
    {INPUT("5") ", " LAYER("SpatialDropout1D", NAMED("'rate': 0.5")),
     "[1]: SpatialDropout1D expected an input with 2 dimensions besides the batch, not 1"},
    {INPUT("5") ", " LAYER("GaussianNoise", NAMED("'stddev': -1")), "[1].config.stddev: expected a number from 0"},
    {INPUT("5") ", " LAYER("PReLU", NAMED("'shared_axes': [2]")),
     "[1].config.shared_axes[0]: expected a whole number from 1 to 1, not 2"},
    {INPUT("5") ", " LAYER("Rescaling", NAMED("'scale': [1, 2]")), "[1].config.scale: expected a number"},
    {INPUT("5") ", " LAYER("Normalization", NAMED("'mean': [1, 2], 'variance': [1, 2]")),
     "[1].config.mean: expected 1 or 5 numbers, not an array of 2"},
    {INPUT("5") ", " LAYER("Normalization", NAMED("'mean': 1")),
     "[1].config.variance: expected mean and variance, or neither, which is missing"},
    {INPUT("5") ", " LAYER("Normalization", NAMED("'mean': 1, 'variance': -1")),
     "[1].config.variance: expected variances of 0 or more, not -1"},
    {INPUT("5, 2") ", " LAYER("Normalization", NAMED("'axis': 1")),
     "[1].config.axis: expected the last axis or axes of the input: -1, or a list like [-2, -1], not 1"},
    {INPUT("5, 5, 1") ", " LAYER("RandomFlip", NAMED("'rng_type': 'stateful', 'mode': 'left'")),
     "[1].config.mode: expected horizontal, vertical or horizontal_and_vertical, not 'left'"},
    {INPUT("5, 5, 1") ", " LAYER("RandomCrop", NAMED("'height': 0, 'width': 2")), "[1].config.height: expected"},
    {INPUT("5, 5, 1") ", " LAYER("RandomCrop", NAMED("'height': 2")),
     "[1].config.width: expected a whole number from 1"},
    {INPUT("5") ", " LAYER("RandomFlip", "'name': 'f'"), "[1]: RandomFlip expected an input of shape (height, width"},
    {INPUT("5") ", " LAYER("Multiply", "'name': 'm'"), "[1]: Multiply takes 2 or more inputs, not 1"},
    {INPUT("5") ", " LAYER("Dot", NAMED("'axes': 1")), "[1]: Dot takes 2 inputs, not 1"},
    {INPUT("5") ", " LAYER("ReLU", NAMED("'max_value': -6")), "[1].config.max_value: expected a number from 0 to"},
    {INPUT("5") ", " LAYER("ELU", NAMED("'alpha': -0.5")), "[1].config.alpha: expected a number from 0 to"},
    {INPUT("5") ", " LAYER("LeakyReLU", NAMED("'negative_slope': 'a'")),
     "[1].config.negative_slope: expected a number"},
    {IDS ", " DENSE("'units': 1"), "[1]: Dense expects floats, but 'in' gives integers"},
    {IDS ", " LAYER("Embedding", NAMED("'output_dim': 2")), "[1].config.input_dim: expected a whole number from 1 to"},
    {IDS ", " LAYER("Embedding", NAMED("'input_dim': 3, 'output_dim': 2, 'sparse': true")),
     "[1].config.sparse: expected null: this setting is not supported"},
    {INPUT("5") ", " LAYER("Masking", NAMED("'mask_value': 0")),
     "[1]: Masking expects an input of shape (steps, features)"},
    {INPUT("5") ", " LAYER("LSTM", NAMED("'units': 2")), "[1]: LSTM expects an input of shape (steps, features)"},
    {INPUT("5, 5") ", " LAYER("SimpleRNN", "'name': 'r'"), "[1].config.units: expected a whole number from 1 to"},
    {INPUT("5, 5") ", " LAYER("LSTM", NAMED("'units': 2, 'stateful': true")),
     "[1].config.stateful: expected null: this setting is not supported"},
    {INPUT("5, 5") ", " LAYER("GRU", NAMED("'units': 2, 'dropout': 1")),
     "[1].config.dropout: expected a number from 0 to below 1, not 1"},
    {INPUT("5, 5") ", " LAYER("GRU", NAMED("'units': 2, 'recurrent_dropout': 0.5")),
     "[1].config.recurrent_dropout: expected 0, not 0.5"},
    {INPUT("5, 5") ", " LAYER("GRU", NAMED("'units': 2, 'activation': 'gelu'")),
     "[1].config.activation: expected tanh, sigmoid, relu, hard_sigmoid or linear, not 'gelu'"},
    {INPUT("5, 5") ", " LAYER("LSTM", NAMED("'units': 2, 'recurrent_activation': 'softmax'")),
     "[1].config.recurrent_activation: expected tanh, sigmoid, relu, hard_sigmoid or linear, not 'softmax'"},
    {INPUT("5, 5") ", " LAYER("Bidirectional", "'name': 'b'"),
     "[1].config.layer: expected an object, which is missing"},
    {INPUT("5, 5") ", " BOTH("'merge_mode': null", LAYER("LSTM", "'name': 'l', 'units': 2")),
     "[1].config.merge_mode: expected concat, sum, mul or ave, not null"},
    {INPUT("5, 5") ", " BOTH("'merge_mode': 'add'", LAYER("LSTM", "'name': 'l', 'units': 2")),
     "[1].config.merge_mode: expected one of"},
    {INPUT("5, 5") ", " BOTH("'merge_mode': 'sum'", DENSE("'units': 2")),
     "[1].config.layer: Bidirectional wraps SimpleRNN, LSTM or GRU"},
    {INPUT("5, 5") ", " BOTH("'merge_mode': 'sum'", LAYER("LSTM", "'name': 'l', 'units': 0")),
     "[1].config.layer.config.units: expected a whole number from 1 to"},
    {INPUT("5, 5") ", " BOTH("'backward_layer': " LAYER("LSTM", "'name': 'k', 'units': 2"),
                             LAYER("LSTM", "'name': 'l', 'units': 2")),
     "[1].config.backward_layer: expected a layer that gives what the first one gives, and goes the other way"},
    {INPUT("5") ", " WRAP(DENSE("'units': 2")), "[1]: TimeDistributed expects an input of shape (steps, ...)"},
    {INPUT("5, 5") ", " WRAP(CONV("'filters': 1, 'kernel_size': 3")),
     "[1].config.layer: Conv2D expected an input of shape (height, width, channels)"},
    {INPUT("5, 5") ", " WRAP(LAYER("BatchNormalization", "'name': 'n'")),
     "[1].config.layer: TimeDistributed of BatchNormalization, which has states, is not supported"},
    {INPUT("5, 5") ", " LAYER("MultiHeadAttention", NAMED("'num_heads': 2, 'key_dim': 2")),
     "[1]: MultiHeadAttention takes a query, a value and, if it is another, a key, not 1 inputs"},
    {INPUT("5, 5") ", " LAYER("MultiHeadAttention", NAMED("'num_heads': 2, 'key_dim': 2, 'dropout': 1")),
     "[1].config.dropout: expected a number from 0 to below 1, not 1"},
    {INPUT("5, 5") ", " LAYER("Softmax", NAMED("'axis': 3")), "[1].config.axis: expected an axis of the input"},
    {INPUT("5, 4") ", " LAYER("Masking", "'name': 'k'") ", " LAYER("Softmax", "'name': 's'"),
     "[2]: Softmax expects a mask of the shape of its input, or with 1 for some of its sizes"},
};

// Whatever is wrong in a layer, the error names it, and of layers in one another the inner one.
static void errors_name_the_layer(void **state)
{
    (void)state;
    char *outer = document(INPUT("5") ", " DENSE("'units': 0"));
    check_refused(outer, "layer 'd': $.config.layers[1].config.units: expected a whole number from 1");
    char *inner = document(INPUT("5, 5") ", " WRAP(DENSE("'units': 0")));
    check_refused(inner, "layer 'd': $.config.layers[1].config.layer.config.units: expected a whole number from 1");
    free(outer);
    free(inner);
}

static void bad_layer(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_layers / sizeof bad_layers[0]; i++) {
        char *json = document(bad_layers[i].layers), *says = ps_printf("$.config.layers%s", bad_layers[i].says);
        check_refused(json, says);
        free(says);
        free(json);
    }
}

static void hostile_sizes(void **state)
{
    (void)state;
    size_t n = 100000;
    char *deep = ps_alloc(n + 1);
    memset(deep, '[', n);
    check_refused(deep, "line 1, column");
    free(deep);
    char *many = ps_alloc(20003 + 1);
    memset(many, ',', 20003);
    for (size_t i = 0; i <= 20002; i += 2)
        many[i] = '1';
    char *json = document(many);
    check_refused(json, "$.config.layers: expected 1 to 10000 layers, not an array of 10002");
    free(json);
    free(many);
}

// Two inputs x and z, a Dense d of `of`, and what the model says of itself.
static void check_functional(const char *of, const char *ends, const char *says)
{
    char *json = ps_printf(
        "{'class_name': 'Functional', 'config': {'name': 'n', 'layers': ["
        "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_shape': [null, 3]}, 'inbound_nodes': []}, "
        "{'class_name': 'Dense', 'config': {'name': 'd', 'units': 2}, 'inbound_nodes': [%s]}%s}}",
        of, ends);
    char *text = quoted(json);
    check_refused(text, says);
    free(text);
    free(json);
}

static void bad_graphs(void **state)
{
    (void)state;
    const char *ends = "], 'input_layers': ['x', 0, 0], 'output_layers': ['d', 0, 0]";
    check_functional("[['y', 0, 0, {}]]", ends,
                     "$.config.layers[1].inbound_nodes[0][0][0]: expected the name of a layer");
    check_functional("[['x', 1, 0, {}]]", ends,
                     "$.config.layers[1].inbound_nodes[0][0][1]: expected a call of layer 'x', not 1");
    check_functional("[['x', 0, 1, {}]]", ends,
                     "$.config.layers[1].inbound_nodes[0][0][2]: expected an output of layer 'x', not 1");
    check_functional("[['d', 0, 0, {}]]", ends,
                     "$.config.layers: expected calls that can be made one after the other: 1 takes what they give");
    check_functional("[['x', 0, 0, {}], ['x', 0, 0, {}]]", ends, "$.config.layers[1]: Dense takes 1 input, not 2");
    check_functional("7", ends, "$.config.layers[1].inbound_nodes[0]: expected an array, not 7");
    check_functional("{'args': [{'a': 1}], 'kwargs': {}}", ends,
                     "$.config.layers[1].inbound_nodes[0].args[0]: expected a value, or a list of them: a layer takes "
                     "none by name");
    check_functional("[['x', 0, 0, {}]]", "], 'input_layers': ['d', 0, 0], 'output_layers': ['d', 0, 0]",
                     "$.config.input_layers: expected each InputLayer of the model once");
    check_functional("[['x', 0, 0, {}]]",
                     ", {'class_name': 'InputLayer', 'config': {'name': 'z', 'batch_shape': [null, 3]}}], "
                     "'input_layers': ['x', 0, 0], 'output_layers': ['d', 0, 0]",
                     "$.config.input_layers: expected each InputLayer of the model once");
    check_functional("[['x', 0, 0, {}]]", "], 'input_layers': [['x', 0, 0], ['x', 0, 0]], 'output_layers': ['d', 0, 0]",
                     "$.config.input_layers: expected each InputLayer of the model once");
    check_functional("[['x', 0, 0, {}]]", "], 'input_layers': [['x', 0, 0]]", "$.config.output_layers");
}

// Of two inputs, (3, 4) and (2, 4).
static void check_merge(const char *layer, const char *says)
{
    char *json = ps_printf(
        "{'class_name': 'Functional', 'config': {'name': 'n', 'layers': ["
        "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_shape': [null, 3, 4]}, 'inbound_nodes': []}, "
        "{'class_name': 'InputLayer', 'config': {'name': 'z', 'batch_shape': [null, 2, 4]}, 'inbound_nodes': []}, "
        "{%s, 'inbound_nodes': [[['x', 0, 0, {}], ['z', 0, 0, {}]]]}], 'input_layers': [['x', 0, 0], ['z', 0, 0]], "
        "'output_layers': ['m', 0, 0]}}",
        layer);
    char *text = quoted(json);
    check_refused(text, says);
    free(text);
    free(json);
}

// A mask of one step, where three come out.
static void check_masked_merge(const char *class, const char *says)
{
    char *json = ps_printf(
        "{'class_name': 'Functional', 'config': {'name': 'n', 'layers': ["
        "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_shape': [null, 3, 4]}, 'inbound_nodes': []}, "
        "{'class_name': 'InputLayer', 'config': {'name': 'z', 'batch_shape': [null, 1, 4]}, 'inbound_nodes': []}, "
        "{'class_name': 'Masking', 'config': {'name': 'k'}, 'inbound_nodes': [[['z', 0, 0, {}]]]}, "
        "{'class_name': '%s', 'config': {'name': 'm'}, 'inbound_nodes': [[['x', 0, 0, {}], ['k', 0, 0, {}]]]}], "
        "'input_layers': [['x', 0, 0], ['z', 0, 0]], 'output_layers': ['m', 0, 0]}}",
        class);
    char *text = quoted(json);
    check_refused(text, says);
    free(text);
    free(json);
}

static void bad_merges(void **state)
{
    (void)state;
    check_masked_merge("Multiply",
                       "$.config.layers[3]: Multiply expected a mask of input 1 for each step of what comes");
    check_masked_merge("Minimum", "$.config.layers[3]: Minimum expected a mask of input 1 for each step of what comes");
    check_merge("'class_name': 'Subtract', 'config': {'name': 'm'}",
                "$.config.layers[2]: Subtract expected inputs of shapes that fit; input 1 has 2 places where others "
                "have 3");
    check_merge("'class_name': 'Concatenate', 'config': {'name': 'm'}",
                "$.config.layers[2]: Concatenate expected inputs of one shape but along axis 2; input 1 has another");
    check_merge("'class_name': 'Concatenate', 'config': {'name': 'm', 'axis': 0}",
                "$.config.layers[2].config.axis: expected an axis of the input but the batch");
    check_merge("'class_name': 'Dot', 'config': {'name': 'm', 'axes': 1}",
                "$.config.layers[2]: Dot expected axes of one size, not of 3 and 2");
    check_merge("'class_name': 'Dot', 'config': {'name': 'm', 'axes': [1, 3]}",
                "$.config.layers[2].config.axes[1]: expected an axis of the input but the batch: -2 to -1, or 1 to 2");
    check_merge("'class_name': 'Dot', 'config': {'name': 'm'}",
                "$.config.layers[2].config.axes: expected a whole number or two of them, which is missing");
}

// A layer m of n inputs that are all x, and then all r, which has another shape.
static char *shared_layer(const char *layer, int n, const char *x, const char *r)
{
    const char *both = n == 2 ? "[[['x', 0, 0, {}], ['x', 0, 0, {}]], [['r', 0, 0, {}], ['r', 0, 0, {}]]]"
                              : "[[['x', 0, 0, {}]], [['r', 0, 0, {}]]]";
    char *json = ps_printf(
        "{'class_name': 'Functional', 'config': {'name': 'n', 'layers': ["
        "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_shape': [null, %s]}, 'inbound_nodes': []}, "
        "{'class_name': 'Reshape', 'config': {'name': 'r', 'target_shape': [%s]}, 'inbound_nodes': [[['x', 0, 0, "
        "{}]]]}, {%s, 'inbound_nodes': %s}], 'input_layers': [['x', 0, 0]], 'output_layers': ['m', 1, 0]}}",
        x, r, layer, both);
    char *text = quoted(json);
    free(json);
    return text;
}

static void variables_of_other_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *class, *config, *x, *r, *says;
    } cases[] = {
        {"Dense", ", 'units': 4", "2, 3", "6",
         "Dense is called on inputs of different shapes: its kernel of shape (3, 4) would have to be of shape (6, 4)"},
        {"Dense", ", 'units': 4", "6", "2, 3", "Dense is called on inputs of different shapes: its kernel"},
        {"PReLU", "", "2, 3", "6", "PReLU is called on inputs of different shapes: its alpha of shape (2, 3)"},
        {"LSTM", ", 'units': 4", "2, 3", "3, 2", "LSTM is called on inputs of different shapes: its lstm_cell/kernel"},
        {"GRU", ", 'units': 4", "2, 3", "3, 2", "GRU is called on inputs of different shapes: its gru_cell/kernel"},
        {"SimpleRNN", ", 'units': 4", "2, 3", "3, 2", "SimpleRNN is called on inputs of different shapes"},
        {"Conv1D", ", 'filters': 4, 'kernel_size': 1", "2, 3", "3, 2", "Conv1D is called on inputs of different"},
        {"Conv2D", ", 'filters': 4, 'kernel_size': 1", "2, 1, 3", "3, 1, 2", "Conv2D is called on inputs of different"},
        {"Conv1DTranspose", ", 'filters': 4, 'kernel_size': 1", "2, 3", "3, 2", "Conv1DTranspose is called on inputs"},
        {"DepthwiseConv1D", ", 'kernel_size': 1", "2, 3", "3, 2", "DepthwiseConv1D is called on inputs of different"},
        {"SeparableConv1D", ", 'filters': 4, 'kernel_size': 1", "2, 3", "3, 2", "SeparableConv1D is called on inputs"},
        {"LayerNormalization", "", "2, 3", "6",
         "LayerNormalization is called on inputs of different shapes: its gamma"},
        {"GroupNormalization", ", 'groups': 1", "2, 3", "3, 2", "GroupNormalization is called on inputs of different"},
        {"BatchNormalization", ", 'trainable': false, 'scale': false, 'center': false", "2, 3", "3, 2",
         "BatchNormalization is called on inputs of different shapes: its moving_mean of shape (3,)"},
        {"Normalization", "", "2, 3", "3, 2", "Normalization is called on inputs of different shapes: expected 3"},
        {"Normalization", ", 'axis': [1, 2]", "2, 3", "3, 2", "Normalization is called on inputs of different shapes"},
        {"MultiHeadAttention", ", 'num_heads': 2, 'key_dim': 2", "2, 3", "3, 2", "MultiHeadAttention is called on inp"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *layer = ps_printf("'class_name': '%s', 'config': {'name': 'm'%s}", cases[i].class, cases[i].config);
        char *says = ps_printf("$.config.layers[2]: %s", cases[i].says);
        char *json =
            shared_layer(layer, strcmp(cases[i].class, "MultiHeadAttention") == 0 ? 2 : 1, cases[i].x, cases[i].r);
        check_refused(json, says);
        free(json);
        free(says);
        free(layer);
    }
}

// The place is that of the layer that is wrapped, or of the axis that an input has not.
static void shared_layers_on_other_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *layer, *says;
    } cases[] = {
        {"'class_name': 'Bidirectional', 'config': {'name': 'm', 'layer': {'class_name': 'LSTM', 'config': {'name': "
         "'l', 'units': 2}}}",
         ".config.layer: LSTM is called on inputs of different shapes: its lstm_cell/kernel of shape (3, 8)"},
        {"'class_name': 'TimeDistributed', 'config': {'name': 'm', 'layer': {'class_name': 'Dense', 'config': {'name': "
         "'l', 'units': 2}}}",
         ".config.layer: Dense is called on inputs of different shapes: its kernel of shape (3, 2)"},
        {"'class_name': 'BatchNormalization', 'config': {'name': 'm', 'trainable': false, 'axis': 1}",
         ": BatchNormalization is called on inputs of 2 and of 1 dimensions: expected one number of them"},
        {"'class_name': 'UnitNormalization', 'config': {'name': 'm', 'axis': 2}",
         ".config.axis: expected an axis of the input but the batch: -1 to -1, or 1 to 1, not 2"},
        {"'class_name': 'GroupNormalization', 'config': {'name': 'm', 'groups': 1, 'axis': 2}",
         ".config.axis: expected the last axis: -1 or 1, not 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = shared_layer(cases[i].layer, 1, "2, 3", i < 2 ? "3, 2" : "6");
        char *says = ps_printf("$.config.layers[2]%s", cases[i].says);
        check_refused(json, says);
        free(says);
        free(json);
    }
}

// What Keras 2 says of a call's training.
static void check_training(const char *layer, const char *training, const char *says)
{
    char *json = ps_printf(
        "{'class_name': 'Functional', 'keras_version': '2.15.0', 'config': {'name': 'n', 'layers': ["
        "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_input_shape': [null, 3]}, 'inbound_nodes': []}, "
        "{%s, 'inbound_nodes': [[['x', 0, 0, {'training': %s}]]]}], 'input_layers': [['x', 0, 0]], "
        "'output_layers': ['d', 0, 0]}}",
        layer, training);
    char *text = quoted(json);
    check_refused(text, says);
    free(text);
    free(json);
}

static void training_of_a_call(void **state)
{
    (void)state;
    check_training("'class_name': 'Dropout', 'config': {'name': 'd', 'rate': 0.5}", "true",
                   "$.config.layers[1].inbound_nodes[0][0][3].training: expected null or false: a layer cannot train");
    check_training("'class_name': 'BatchNormalization', 'config': {'name': 'd'}", "false",
                   "$.config.layers[1]: BatchNormalization is called with training=False: expected trainable: false");
}

// Of a kernel {{3, 0}, {4, 12}}: the norm is a column's, or with a null axis that of all, 13.
static void constraint_axes(void **state)
{
    (void)state;
    static const struct {
        const char *axis;
        float expected[4];
    } cases[] = {{"", {0.6f, 0, 0.8f, 1}},
                 {"'axis': null", {3 / 13.0f, 0, 4 / 13.0f, 12 / 13.0f}},
                 {"'axis': [0, 1]", {3 / 13.0f, 0, 4 / 13.0f, 12 / 13.0f}}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *layers = ps_printf(INPUT("2") ", " DENSE("'units': 2, 'kernel_constraint': {'class_name': 'UnitNorm', "
                                                       "'config': {%s}}"),
                                 cases[k].axis);
        struct nn_model *m = parse_layers(layers);
        float kernel[4] = {3, 0, 4, 12};
        nn_model_constrain(m, 0, kernel);
        for (int i = 0; i < 4; i++)
            assert_true(fabsf(kernel[i] - cases[k].expected[i]) < 1e-6f);
        nn_model_free(m);
        free(layers);
    }
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    char *file = ps_alloc(4001), *word = ps_alloc(4001);
    memset(file, 'f', 4000);
    memset(word, 'w', 4000);
    char *json = ps_printf("{\"class_name\": \"%s\"}", word);
    assert_int_equal(nn_model_parse(json, file, &m, &e), PS_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "fff: $.class_name: expected \"Sequential\" or \"Functional\", not \"www"));
    assert_string_equal(e.text + strlen(e.text) - 6, "www...");
    free(json);
    free(file);
    free(word);
}

// Editors of Windows write one.
static void byte_order_mark(void **state)
{
    (void)state;
    char path[] = "bom.XXXXXX", *json = document(INPUT("5") ", " DENSE("'units': 2"));
    struct nn_model *m = NULL;
    struct ps_error e = {0};
    FILE *f = fdopen(mkstemp(path), "w");
    assert_true(fprintf(f, "\xef\xbb\xbf%s", json) > 0 && fclose(f) == 0);
    if (nn_model_load(path, &m, &e) != PS_OK)
        fail_msg("%s", e.text);
    remove(path);
    nn_model_free(m);
    free(json);
}

static void bad_files(void **state)
{
    (void)state;
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    assert_int_equal(nn_model_load("/no/such/model.json", &m, &e), PS_NOT_FOUND);
    assert_string_equal(e.text, "/no/such/model.json: No such file or directory");
    assert_int_equal(nn_model_load("/tmp", &m, &e), PS_INVALID_ARGUMENT);
    assert_int_equal(nn_model_load("/dev/zero", &m, &e), PS_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "/dev/zero: expected a file of at most"));
}

// ---- the loss -----------------------------------------------------------------------------------------------------

static void check_loss(const char *layers, const struct ps_loss loss, const char *says)
{
    struct nn_model *m = parse_layers(layers);
    struct ps_error e = {0};
    enum ps_code code = nn_model_check_loss(m, &loss, &e);
    assert_int_equal(code, says ? PS_FAILED_PRECONDITION : PS_OK);
    if (says && !strstr(e.text, says))
        fail_msg("no \"%s\" in \"%s\"", says, e.text);
    nn_model_free(m);
}

static void losses(void **state)
{
    (void)state;
    const struct ps_loss logits = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT, .from_logits = true),
                         probabilities = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT), mse = PS_LOSS(.kind = PS_LOSS_MSE);
    const char *plain = INPUT("4") ", " DENSE("'units': 3");
    const char *softmax = INPUT("4") ", " DENSE("'units': 3, 'activation': 'softmax'");
    const char *layer = INPUT("4") ", " LAYER("Softmax", "'name': 's'") ", " LAYER("Flatten", "'name': 'f'");
    check_loss(plain, logits, NULL);
    check_loss(softmax, probabilities, NULL);
    check_loss(layer, probabilities, NULL);
    check_loss(plain, mse, NULL);
    check_loss(plain, probabilities,
               "layer \"d\" gives logits, but the loss expects probabilities: set from_logits to true");
    check_loss(softmax, logits, "layer \"d\" ends in a softmax, but the loss expects logits: set from_logits to false");
    check_loss(layer, logits, "layer \"s\" ends in a softmax");
    check_loss(INPUT("4") ", " DENSE("'units': 1"), logits, "2 or more classes, but layer \"d\" gives (1,)");
    check_loss(INPUT("4, 5") ", " DENSE("'units': 3"), logits, NULL);
    check_loss(INPUT("4, 5") ", " DENSE("'units': 3"), mse, NULL);
}

// ---- initial values -----------------------------------------------------------------------------------------------

struct moments {
    double min, max, mean, deviation;
};

static struct moments measure(const float *v, size_t n)
{
    struct moments m = {.min = INFINITY, .max = -INFINITY};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        m.min = fmin(m.min, (double)v[i]);
        m.max = fmax(m.max, (double)v[i]);
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    m.mean = sum / (double)n;
    m.deviation = sqrt(squares / (double)n - m.mean * m.mean);
    return m;
}

// 40,000 values of a (200, 200) kernel.
static struct moments drawn(const char *initializer)
{
    char *layers = ps_printf(INPUT("200") ", {'class_name': 'Dense', 'config': {'name': 'd', 'units': 200, "
                                          "'kernel_initializer': %s}}",
                             initializer);
    struct nn_model *m = parse_layers(layers);
    float *v = ps_alloc(40000 * sizeof *v);
    nn_model_init_param(m, 0, 5, v);
    struct moments found = measure(v, 40000);
    free(v);
    nn_model_free(m);
    free(layers);
    return found;
}

static void check_near(const char *what, double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%s: %g, expected %g within %g", what, found, expected, tolerance);
}

static double golden_number(const json_t *from, const char *key)
{
    const json_t *v = json_object_get(from, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

// What 40,000 numbers are, and what Keras's million are. Only those that have bounds come as far.
static void check_drawn(const json_t *golden)
{
    char *initializer = json_dumps(json_object_get(golden, "initializer"), 0);
    const struct moments m = drawn(initializer);
    const double min = golden_number(golden, "min"), max = golden_number(golden, "max"), width = max - min;
    const double mean = golden_number(golden, "mean"), deviation = golden_number(golden, "deviation");
    const bool bounded = json_is_true(json_object_get(golden, "bounded"));
    if (!bounded)
        assert_true(m.min < mean - 3 * deviation && m.max > mean + 3 * deviation);
    check_near(initializer, m.min, min, bounded ? width * 2e-3 : width / 4);
    check_near(initializer, m.max, max, bounded ? width * 2e-3 : width / 4);
    check_near(initializer, m.mean, mean, deviation * 0.02);
    check_near(initializer, m.deviation, deviation, deviation * 0.02);
    free(initializer);
}

// tests/golden/initializers.json, and that each has one there.
static void initializers(void **state)
{
    (void)state;
    json_t *goldens = json_load_file(source("tests/golden/initializers.json"), 0, NULL), *golden;
    size_t k;
    json_array_foreach(goldens, k, golden) check_drawn(golden);
    for (size_t i = 0; nn_initializer_name(i); i++) {
        bool found = false;
        json_array_foreach(goldens, k, golden)
        {
            const json_t *name = json_object_get(json_object_get(golden, "initializer"), "class_name");
            found |= strcmp(json_string_value(name), nn_initializer_name(i)) == 0;
        }
        if (!found)
            fail_msg("%s has no golden", nn_initializer_name(i));
    }
    json_decref(goldens);
    const struct moments usual = drawn("null"), named = drawn("'glorot_uniform'");
    assert_true(usual.min == named.min && usual.deviation == named.deviation);
}

// A kernel (4, 30) or the other way round: what belongs to `of`, whose products with each other are gain^2 or 0.
static float *drawn_kernel(const char *initializer, int in, int units)
{
    char *layers = ps_printf("{'class_name': 'InputLayer', 'config': {'name': 'in', 'batch_shape': [null, %d]}}, "
                             "{'class_name': 'Dense', 'config': {'name': 'd', 'units': %d, 'kernel_initializer': %s}}",
                             in, units, initializer);
    struct nn_model *m = parse_layers(layers);
    float *v = ps_alloc((size_t)in * (size_t)units * sizeof *v);
    nn_model_init_param(m, 0, 5, v);
    nn_model_free(m);
    free(layers);
    return v;
}

static void check_orthogonal(const char *class, int in, int units)
{
    char *initializer = ps_printf("{'class_name': '%s', 'config': {'gain': 3}}", class);
    float *v = drawn_kernel(initializer, in, units);
    const bool tall = in >= units;
    const int n = tall ? units : in, length = tall ? in : units, step = tall ? 1 : units, next = tall ? units : 1;
    for (int a = 0; a < n; a++)
        for (int b = 0; b <= a; b++) {
            double dot = 0;
            for (int i = 0; i < length; i++)
                dot += (double)v[a * step + i * next] * (double)v[b * step + i * next];
            check_near("product", dot, a == b ? 9 : 0, 1e-5);
        }
    free(v);
    free(initializer);
}

static void matrices(void **state)
{
    (void)state;
    check_orthogonal("Orthogonal", 30, 4);
    check_orthogonal("OrthogonalInitializer", 4, 30);  // as Keras 3.0 to 3.7 writes it
    check_orthogonal("Orthogonal", 50, 50);
    float *v;
    for (int k = 0; k < 2; k++) {
        v = drawn_kernel(k == 0 ? "{'class_name': 'Identity', 'config': {'gain': 2}}"
                                : "{'class_name': 'IdentityInitializer', 'config': {'gain': 2}}",
                         3, 5);
        for (int i = 0; i < 15; i++)
            assert_true(v[i] == (i % 6 == 0 ? 2 : 0));
        free(v);
    }
    // fan_out of (4, 30): the other mean would be 17, fan_in 4.
    v = drawn_kernel("{'class_name': 'VarianceScaling', 'config': {'mode': 'fan_out', 'distribution': 'uniform'}}", 4,
                     30);
    check_near("greatest", measure(v, 120).max, sqrt(3.0 / 30), 0.02);
    assert_true(measure(v, 120).max <= sqrt(3.0 / 30));
    free(v);
}

// A recurrent kernel of 5 units: rows of length 1 across each other; the bias of LSTM's second gate.
static void recurrent_initializers(void **state)
{
    (void)state;
    struct nn_model *m = parse_layers(INPUT("3, 4") ", " LAYER("LSTM", "'name': 'l', 'units': 5"));
    float r[5 * 20], bias[20];
    assert_string_equal(nn_model_param(m, 1)->name, "net/l/lstm_cell/recurrent_kernel");
    nn_model_init_param(m, 1, 3, r);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++) {
            double dot = 0;
            for (int j = 0; j < 20; j++)
                dot += (double)r[20 * i + j] * (double)r[20 * k + j];
            check_near("product", dot, i == k, 1e-6);
        }
    nn_model_init_param(m, 2, 3, bias);
    for (int j = 0; j < 20; j++)
        assert_true(bias[j] == (float)(j / 5 == 1));
    nn_model_free(m);
}

// The names of what a wrapped layer has.
static void wrapped_names(void **state)
{
    (void)state;
    struct nn_model *m = parse_layers(INPUT("3, 4") ", " BOTH(
        "'trainable': false",
        LAYER("GRU", "'name': 'g', 'units': 5, 'return_sequences': true")) ", " WRAP(DENSE("'units': 2")));
    assert_int_equal(nn_model_params(m), 8);
    assert_string_equal(nn_model_param(m, 0)->name, "net/b/forward_g/gru_cell/kernel");
    assert_string_equal(nn_model_param(m, 5)->name, "net/b/backward_g/gru_cell/bias");
    assert_string_equal(nn_model_param(m, 6)->name, "net/t/d/kernel");
    assert_string_equal(nn_model_param(m, 5)->layer, "b");
    assert_false(nn_model_param(m, 5)->trainable);
    assert_true(nn_model_param(m, 6)->trainable);
    assert_int_equal(elements(nn_model_output(m, 0)), 6);
    nn_model_free(m);
}

// A convolution's fans count its receptive field, and draws repeat: by seed and by parameter.
static void fans_and_seeds(void **state)
{
    (void)state;
    struct nn_model *m = load("tests/golden/cnn_keras3.json");
    size_t n = 18432;
    float *a = ps_alloc(n * sizeof *a), *b = ps_alloc(n * sizeof *b);
    nn_model_init_param(m, 2, 1, a);
    double limit = sqrt(6.0 / (3 * 3 * 32 + 3 * 3 * 64));
    check_near("greatest", measure(a, n).max, limit, limit * 0.01);
    assert_true(measure(a, n).max <= limit * 1.000001);
    nn_model_init_param(m, 2, 1, b);
    assert_memory_equal(a, b, n * sizeof *a);
    nn_model_init_param(m, 2, 2, b);
    assert_memory_not_equal(a, b, n * sizeof *a);
    nn_model_init_param(m, 3, 1, a);
    assert_true(a[0] == 0 && a[63] == 0);
    free(a);
    free(b);
    nn_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keras3_and_keras2),
        cmocka_unit_test(examples),
        cmocka_unit_test(summary),
        cmocka_unit_test(windows),
        cmocka_unit_test(defaults_and_details),
        cmocka_unit_test(bad_documents),
        cmocka_unit_test(bad_layer),
        cmocka_unit_test(errors_name_the_layer),
        cmocka_unit_test(hostile_sizes),
        cmocka_unit_test(bad_graphs),
        cmocka_unit_test(bad_merges),
        cmocka_unit_test(variables_of_other_shapes),
        cmocka_unit_test(shared_layers_on_other_ranks),
        cmocka_unit_test(training_of_a_call),
        cmocka_unit_test(constraint_axes),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(byte_order_mark),
        cmocka_unit_test(losses),
        cmocka_unit_test(initializers),
        cmocka_unit_test(matrices),
        cmocka_unit_test(recurrent_initializers),
        cmocka_unit_test(wrapped_names),
        cmocka_unit_test(fans_and_seeds),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
