// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"

struct conv2d {
    int filters, kernel[2], strides[2], dilation[2];
    bool same, use_bias;
    struct nn_function function;
};

static const struct nn_key keys[] = {
    {"filters", NN_KEY_SIZE, NN_AT(struct conv2d, filters), .required = true},
    {"kernel_size", NN_KEY_PAIR, NN_AT(struct conv2d, kernel), .required = true},
    {"strides", NN_KEY_PAIR, NN_AT(struct conv2d, strides), .fallback = 1},
    {"padding", NN_KEY_SAME, NN_AT(struct conv2d, same)},
    {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"},
    {"dilation_rate", NN_KEY_PAIR, NN_AT(struct conv2d, dilation), .fallback = 1},
    {"groups", NN_KEY_ONLY_NUMBER, .fallback = 1},
    NN_KEYS_OF_WEIGHTS(struct conv2d),
    {NULL},
};

static enum ps_code conv2d_axes(struct nn_building *b, struct nn_axis axis[2], struct ps_error *e)
{
    const struct conv2d *c = NN_CONFIG(struct conv2d, b->layer);
    for (int i = 0; i < 2; i++) {
        axis[i] = (struct nn_axis){.in = (int)b->in[0]->type.dim[i], .k = c->kernel[i], .stride = c->strides[i]};
        if (nn_build_window(b, &axis[i], c->same, e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code conv2d_build(struct nn_building *b, struct ps_error *e)
{
    const struct conv2d *c = NN_CONFIG(struct conv2d, b->layer);
    struct nn_json dilation = nn_json_member(b->config, "dilation_rate");
    struct nn_axis axis[2];
    if (c->dilation[0] != 1 || c->dilation[1] != 1)
        return nn_json_fail(&dilation, e, "expected 1 or [1, 1], not [%d, %d]", c->dilation[0], c->dilation[1]);
    if (nn_build_image(b, e) || conv2d_axes(b, axis, e))
        return e->code;
    const int64_t channels = b->in[0]->type.dim[2];
    b->out = (struct nn_type){NN_FLOAT, 3, {axis[0].out, axis[1].out, c->filters}};
    return nn_build_kernel_bias(b, &(struct nn_type){NN_FLOAT, 4, {c->kernel[0], c->kernel[1], channels, c->filters}},
                                c->use_bias, e);
}

static int conv2d_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct conv2d *c = NN_CONFIG(struct conv2d, nn_emit_layer(m, call));
    const struct nn_type *in = nn_emit_type(m, call->in[0]);
    struct nn_conv2d attr = {.bias = c->use_bias};
    for (int i = 0; i < 2; i++) {
        struct nn_axis axis = {.in = (int)in->dim[i], .k = c->kernel[i], .stride = c->strides[i]};
        nn_axis_place(&axis, c->same);
        attr.image[i] = axis.in;
        attr.kernel[i] = axis.k;
        attr.stride[i] = axis.stride;
        attr.pad_begin[i] = axis.pad_begin;
        attr.pad_end[i] = axis.pad_end;
    }
    return nn_emit_function(m, nn_emit_weighted(m, call, &nn_op_conv2d, &attr, sizeof attr), c->function);
}

const struct nn_layer_class nn_layer_conv2d = {"Conv2D", sizeof(struct conv2d), keys, conv2d_build, conv2d_emit};
