// SPDX-License-Identifier: Apache-2.0
//
// SeparableConv2D and SeparableConv1D: a depthwise convolution, then one of 1x1 that mixes the channels.
#include "workerd/nn/layers/images.h"

struct separable {
    struct nn_windows windows;
    int filters, multiplier;
    bool use_bias;
    struct nn_function function;
};

#define KEYS(IS_SEQUENCE, CAUSAL)                                                                         \
    {                                                                                                     \
        {"filters", NN_KEY_SIZE, NN_AT(struct separable, filters), .required = true},                     \
            NN_KEYS_OF_WINDOWS(struct separable, IS_SEQUENCE, CAUSAL),                                    \
            {"depth_multiplier", NN_KEY_SIZE, NN_AT(struct separable, multiplier), .fallback = 1},        \
            {"groups", NN_KEY_ONLY_NUMBER, .fallback = 1}, NN_KEYS_OF_WEIGHTS(struct separable),          \
            {"depthwise_initializer", NN_KEY_INITIALIZER}, {"pointwise_initializer", NN_KEY_INITIALIZER}, \
            {"depthwise_regularizer", NN_KEY_BY_BUILD}, {"pointwise_regularizer", NN_KEY_BY_BUILD},       \
            {"depthwise_constraint", NN_KEY_BY_BUILD}, {"pointwise_constraint", NN_KEY_BY_BUILD}, {NULL}, \
    }

static const struct nn_key separable_conv1d_keys[] = KEYS(true, "causal");
static const struct nn_key separable_conv2d_keys[] = KEYS(false, NULL);

// channels: of the image.
static enum ps_code separable_build_variables(struct nn_building *b, bool sequence, int64_t channels,
                                              struct ps_error *e)
{
    const struct separable *c = NN_CONFIG(struct separable, b->layer);
    const int *k = c->windows.size, multiplier = c->multiplier;
    const int64_t between = channels * multiplier;
    const struct nn_type depthwise = sequence ? (struct nn_type){NN_FLOAT, 3, {k[1], channels, multiplier}}
                                              : (struct nn_type){NN_FLOAT, 4, {k[0], k[1], channels, multiplier}};
    const struct nn_type pointwise = sequence ? (struct nn_type){NN_FLOAT, 3, {1, between, c->filters}}
                                              : (struct nn_type){NN_FLOAT, 4, {1, 1, between, c->filters}};
    const struct nn_type bias = {NN_FLOAT, 1, {c->filters}};
    if (nn_build_variable_by(b, "depthwise_kernel", "depthwise_initializer", "GlorotUniform", &depthwise, e) ||
        nn_build_variable_by(b, "pointwise_kernel", "pointwise_initializer", "GlorotUniform", &pointwise, e))
        return e->code;
    return c->use_bias ? nn_build_variable(b, "bias", "Zeros", &bias, e) : PS_OK;
}

static enum ps_code separable_build(struct nn_building *b, bool sequence, struct ps_error *e)
{
    const struct separable *c = NN_CONFIG(struct separable, b->layer);
    struct nn_type image;
    struct nn_axis axis[2];
    uint64_t count;
    if (nn_image_build(b, sequence, &image, e) || nn_image_build_windows(b, &c->windows, &image, axis, e))
        return e->code;
    const int64_t between = image.dim[2] * c->multiplier;
    const struct nn_type middle = {NN_FLOAT, 3, {axis[0].out, axis[1].out, between}};
    nn_image_give(b, axis[0].out, axis[1].out, c->filters);
    if (nn_build_elements(b->at, "what lies between its convolutions", &middle, &count, e) ||
        nn_build_elements(b->at, "an output", &b->out, &count, e))
        return e->code;
    return separable_build_variables(b, sequence, image.dim[2], e);
}

static enum ps_code separable_conv1d_build(struct nn_building *b, struct ps_error *e)
{
    return separable_build(b, true, e);
}

static enum ps_code separable_conv2d_build(struct nn_building *b, struct ps_error *e)
{
    return separable_build(b, false, e);
}

static int separable_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_windows pixel = {.size = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    const struct separable *c = NN_CONFIG(struct separable, nn_emit_layer(m, call));
    const struct nn_type image = nn_image_of(nn_emit_type(m, call->in[0])),
                         out = nn_image_of(nn_emit_type(m, call->out));
    const int64_t between = image.dim[2] * c->multiplier;
    const struct nn_conv2d depthwise = nn_image_conv2d(&c->windows, &image, (int)image.dim[2], false);
    const struct nn_conv2d pointwise = nn_image_conv2d(&pixel, &out, 1, c->use_bias);
    int x = nn_image_input(m, call), kernel = nn_image_kernel(m, call, 0, &c->windows, 1, between);
    x = nn_image_put_conv2d(m, call, &depthwise, x, kernel, -1);
    kernel = nn_image_kernel(m, call, 1, &pixel, between, c->filters);
    x = nn_image_put_conv2d(m, call, &pointwise, x, kernel, 2);
    return nn_emit_function(m, nn_image_output(m, call, x), c->function);
}

const struct nn_layer_class nn_layer_separable_conv1d = {"SeparableConv1D", sizeof(struct separable),
                                                         separable_conv1d_keys, separable_conv1d_build, separable_emit};
const struct nn_layer_class nn_layer_separable_conv2d = {"SeparableConv2D", sizeof(struct separable),
                                                         separable_conv2d_keys, separable_conv2d_build, separable_emit};
