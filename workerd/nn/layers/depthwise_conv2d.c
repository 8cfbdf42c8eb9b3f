// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseConv2D and DepthwiseConv1D: convolutions with groups of one channel each. Keras's kernel (height, width, in,
// multiplier) lies in memory as one of groups does: (height, width, 1, in * multiplier).
#include "workerd/nn/layers/images.h"

struct depthwise {
    struct nn_windows windows;
    int multiplier;
    bool use_bias;
    struct nn_function function;
};

#define KEYS(IS_SEQUENCE)                                                                                 \
    {                                                                                                     \
        NN_KEYS_OF_WINDOWS(struct depthwise, IS_SEQUENCE, NULL),                                          \
            {"depth_multiplier", NN_KEY_SIZE, NN_AT(struct depthwise, multiplier), .fallback = 1},        \
            {"activation", NN_KEY_FUNCTION, NN_AT(struct depthwise, function)},                           \
            {"use_bias", NN_KEY_BOOL, NN_AT(struct depthwise, use_bias), .fallback = 1},                  \
            {"groups", NN_KEY_ONLY_NUMBER, .fallback = 1}, {"depthwise_initializer", NN_KEY_INITIALIZER}, \
            {"bias_initializer", NN_KEY_INITIALIZER}, {"depthwise_regularizer", NN_KEY_BY_BUILD},         \
            {"bias_regularizer", NN_KEY_BY_BUILD}, {"activity_regularizer", NN_KEY_BY_BUILD},             \
            {"depthwise_constraint", NN_KEY_BY_BUILD}, {"bias_constraint", NN_KEY_BY_BUILD}, {NULL},      \
    }

static const struct nn_key depthwise_conv1d_keys[] = KEYS(true);
static const struct nn_key depthwise_conv2d_keys[] = KEYS(false);

// Keras 2 calls the kernel depthwise_kernel.
static enum ps_code depthwise_build_variables(struct nn_building *b, const struct nn_type *kernel, int64_t outputs,
                                              struct ps_error *e)
{
    const struct depthwise *c = NN_CONFIG(struct depthwise, b->layer);
    if (nn_build_variable_by(b, nn_setting_is_keras2(b->at) ? "depthwise_kernel" : "kernel", "depthwise_initializer",
                             "GlorotUniform", kernel, e))
        return e->code;
    return c->use_bias ? nn_build_variable(b, "bias", "Zeros", &(struct nn_type){NN_FLOAT, 1, {outputs}}, e) : PS_OK;
}

static enum ps_code depthwise_build(struct nn_building *b, bool sequence, struct ps_error *e)
{
    const struct depthwise *c = NN_CONFIG(struct depthwise, b->layer);
    const int *k = c->windows.size;
    struct nn_type image;
    struct nn_axis axis[2];
    uint64_t count;
    if (nn_image_build(b, sequence, &image, e) || nn_image_build_windows(b, &c->windows, &image, axis, e))
        return e->code;
    const int64_t in = image.dim[2], outputs = in * c->multiplier;
    nn_image_give(b, axis[0].out, axis[1].out, outputs);
    if (nn_build_elements(b->at, "an output", &b->out, &count, e))
        return e->code;
    return depthwise_build_variables(b,
                                     sequence ? &(struct nn_type){NN_FLOAT, 3, {k[1], in, c->multiplier}}
                                              : &(struct nn_type){NN_FLOAT, 4, {k[0], k[1], in, c->multiplier}},
                                     outputs, e);
}

static enum ps_code depthwise_conv1d_build(struct nn_building *b, struct ps_error *e)
{
    return depthwise_build(b, true, e);
}

static enum ps_code depthwise_conv2d_build(struct nn_building *b, struct ps_error *e)
{
    return depthwise_build(b, false, e);
}

static int depthwise_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct depthwise *c = NN_CONFIG(struct depthwise, nn_emit_layer(m, call));
    const struct nn_type image = nn_image_of(nn_emit_type(m, call->in[0]));
    const struct nn_conv2d attr = nn_image_conv2d(&c->windows, &image, (int)image.dim[2], c->use_bias);
    const int x = nn_image_input(m, call);
    const int kernel = nn_image_kernel(m, call, 0, &c->windows, 1, image.dim[2] * c->multiplier);
    const int y = nn_image_put_conv2d(m, call, &attr, x, kernel, 1);
    return nn_emit_function(m, nn_image_output(m, call, y), c->function);
}

const struct nn_layer_class nn_layer_depthwise_conv1d = {"DepthwiseConv1D", sizeof(struct depthwise),
                                                         depthwise_conv1d_keys, depthwise_conv1d_build, depthwise_emit};
const struct nn_layer_class nn_layer_depthwise_conv2d = {"DepthwiseConv2D", sizeof(struct depthwise),
                                                         depthwise_conv2d_keys, depthwise_conv2d_build, depthwise_emit};
