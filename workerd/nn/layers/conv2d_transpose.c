// SPDX-License-Identifier: Apache-2.0
//
// Conv2DTranspose and Conv1DTranspose: the gradient of a convolution by its image, as a layer. The convolution is that
// of what this layer gives; its kernel is (height, width, filters, in).
#include "workerd/nn/layers/images.h"
#include "workerd/nn/ops/bias.h"

struct transpose {
    struct nn_windows windows;
    int filters, output_padding[2];  // -1: none is given
    bool use_bias;
    struct nn_function function;
};

#define KEYS(IS_SEQUENCE)                                                                                           \
    {                                                                                                               \
        {"filters", NN_KEY_SIZE, NN_AT(struct transpose, filters), .required = true},                               \
            NN_KEYS_OF_WINDOWS(struct transpose, IS_SEQUENCE, NULL), {"groups", NN_KEY_ONLY_NUMBER, .fallback = 1}, \
            {"output_padding", NN_KEY_COUNTS, NN_AT(struct transpose, output_padding), .sequence = IS_SEQUENCE},    \
            NN_KEYS_OF_WEIGHTS(struct transpose), {NULL},                                                           \
    }

static const struct nn_key conv1d_transpose_keys[] = KEYS(true);
static const struct nn_key conv2d_transpose_keys[] = KEYS(false);

// How long an axis of `in` becomes: so long that a convolution of it has `in` places.
static int64_t transpose_length(const struct transpose *c, int axis, int64_t in)
{
    const int64_t stride = c->windows.stride[axis];
    const int64_t reach = (int64_t)(c->windows.size[axis] - 1) * c->windows.dilation[axis] + 1;
    const int64_t smallest = (in - 1) * stride + (c->windows.padding == NN_SAME ? reach % 2 : reach);
    if (c->output_padding[axis] >= 0)
        return smallest + c->output_padding[axis];
    return c->windows.padding == NN_SAME ? in * stride : (in - 1) * stride + (reach > stride ? reach : stride);
}

static enum ps_code transpose_check(struct nn_building *b, const struct nn_type *image, struct ps_error *e)
{
    const struct transpose *c = NN_CONFIG(struct transpose, b->layer);
    const struct nn_json given = nn_json_member(b->config, "output_padding");
    for (int i = 0; i < 2; i++) {
        const int64_t in = image->dim[i], stride = c->windows.stride[i], length = transpose_length(c, i, in);
        if (c->output_padding[i] >= stride)
            return nn_json_expected(&given, e, "less than the strides");
        if ((int64_t)(c->windows.size[i] - 1) * c->windows.dilation[i] + in + stride > NN_MAX_ELEMENTS)
            return nn_json_fail(b->config, e, "a window of %d, %d apart, over %d: expected at most %d together",
                                c->windows.size[i], c->windows.dilation[i], (int)in, NN_MAX_ELEMENTS);
        if (c->windows.padding == NN_SAME && (length + stride - 1) / stride != in)
            return nn_json_expected(&given, e, "1 or more, with padding \"same\" and an even kernel_size");
    }
    return PS_OK;
}

static enum ps_code transpose_build(struct nn_building *b, bool sequence, struct ps_error *e)
{
    const struct transpose *c = NN_CONFIG(struct transpose, b->layer);
    const int *k = c->windows.size;
    struct nn_type image;
    uint64_t count;
    if (nn_image_build(b, sequence, &image, e) || nn_image_check_windows(b, &c->windows, e) ||
        transpose_check(b, &image, e))
        return e->code;
    const struct nn_type bias = {NN_FLOAT, 1, {c->filters}};
    const struct nn_type kernel = sequence ? (struct nn_type){NN_FLOAT, 3, {k[1], c->filters, image.dim[2]}}
                                           : (struct nn_type){NN_FLOAT, 4, {k[0], k[1], c->filters, image.dim[2]}};
    nn_image_give(b, transpose_length(c, 0, image.dim[0]), transpose_length(c, 1, image.dim[1]), c->filters);
    if (nn_build_elements(b->at, "an output", &b->out, &count, e) ||
        nn_build_variable(b, "kernel", "GlorotUniform", &kernel, e))
        return e->code;
    return c->use_bias ? nn_build_variable(b, "bias", "Zeros", &bias, e) : PS_OK;
}

static enum ps_code conv1d_transpose_build(struct nn_building *b, struct ps_error *e)
{
    return transpose_build(b, true, e);
}

static enum ps_code conv2d_transpose_build(struct nn_building *b, struct ps_error *e)
{
    return transpose_build(b, false, e);
}

static int transpose_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct transpose *c = NN_CONFIG(struct transpose, nn_emit_layer(m, call));
    const struct nn_type in = nn_image_of(nn_emit_type(m, call->in[0])), out = nn_image_of(nn_emit_type(m, call->out));
    const struct nn_conv2d attr = nn_image_conv2d(&c->windows, &out, 1, false);
    const int x = nn_image_input(m, call);
    const int kernel = nn_image_kernel(m, call, 0, &c->windows, c->filters, in.dim[2]);
    int y;
    nn_tape_put(m->tape, &nn_op_conv2d_backward_data, &attr, sizeof attr, (int[]){kernel, x}, 2, &y, 1);
    if (c->use_bias)
        nn_tape_put(m->tape, &nn_op_bias, NULL, 0, (int[]){y, nn_emit_variable(m, call, 1)}, 2, &y, 1);
    return nn_emit_function(m, nn_image_output(m, call, y), c->function);
}

const struct nn_layer_class nn_layer_conv1d_transpose = {"Conv1DTranspose", sizeof(struct transpose),
                                                         conv1d_transpose_keys, conv1d_transpose_build, transpose_emit};
const struct nn_layer_class nn_layer_conv2d_transpose = {"Conv2DTranspose", sizeof(struct transpose),
                                                         conv2d_transpose_keys, conv2d_transpose_build, transpose_emit};
