// SPDX-License-Identifier: Apache-2.0
//
// The greatest, or the mean, of windows: MaxPooling2D, AveragePooling2D; and of the whole image: GlobalMaxPooling2D,
// GlobalAveragePooling2D. All of them over sequences, too.
#include "workerd/nn/layers/images.h"
#include "workerd/nn/ops/avgpool.h"
#include "workerd/nn/ops/mask.h"

static int pooling_put(struct nn_emitter *m, const struct nn_call *call, const struct nn_windows *w, bool mean)
{
    const struct nn_type image = nn_image_of(nn_emit_type(m, call->in[0]));
    const struct nn_pool2d attr = nn_image_pool2d(w, &image);
    int in = nn_image_input(m, call), out;
    if (!mean)
        return nn_emit_maxpool(m, in, &attr);
    nn_tape_put(m->tape, &nn_op_avgpool, &attr, sizeof attr, &in, 1, &out, 1);
    return out;
}

// ---- windows ------------------------------------------------------------------------------------------------------

struct pooling {
    struct nn_windows windows;  // strides 0: as the size
};

#define KEYS(IS_SEQUENCE)                                                                                        \
    {                                                                                                            \
        {"pool_size", NN_KEY_PAIR, NN_AT(struct pooling, windows.size), .fallback = 2, .sequence = IS_SEQUENCE}, \
            {"strides", NN_KEY_PAIR, NN_AT(struct pooling, windows.stride), .sequence = IS_SEQUENCE},            \
            {"padding", NN_KEY_PADDING, NN_AT(struct pooling, windows.padding)},                                 \
            {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"}, {NULL},                                  \
    }

static const struct nn_key pooling1d_keys[] = KEYS(true);
static const struct nn_key pooling2d_keys[] = KEYS(false);

static struct nn_windows pooling_windows(const struct nn_layer *l)
{
    struct nn_windows w = NN_CONFIG(struct pooling, l)->windows;
    for (int i = 0; i < 2; i++) {
        w.stride[i] = w.stride[i] ? w.stride[i] : w.size[i];
        w.dilation[i] = 1;
    }
    return w;
}

static enum ps_code pooling_build(struct nn_building *b, bool sequence, struct ps_error *e)
{
    const struct nn_windows w = pooling_windows(b->layer);
    const struct nn_json size = nn_json_member(b->config, "pool_size");
    struct nn_type image;
    struct nn_axis axis[2];
    if ((int64_t)w.size[0] * w.size[1] > NN_MAX_ELEMENTS)
        return nn_json_fail(&size, e, "expected at most %d cells, not %d x %d", NN_MAX_ELEMENTS, w.size[0], w.size[1]);
    if (nn_image_build(b, sequence, &image, e) || nn_image_build_windows(b, &w, &image, axis, e))
        return e->code;
    nn_image_give(b, axis[0].out, axis[1].out, image.dim[2]);
    return PS_OK;
}

static enum ps_code pooling1d_build(struct nn_building *b, struct ps_error *e)
{
    return pooling_build(b, true, e);
}

static enum ps_code pooling2d_build(struct nn_building *b, struct ps_error *e)
{
    return pooling_build(b, false, e);
}

static int max_pooling_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_windows w = pooling_windows(nn_emit_layer(m, call));
    return nn_image_output(m, call, pooling_put(m, call, &w, false));
}

static int average_pooling_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_windows w = pooling_windows(nn_emit_layer(m, call));
    return nn_image_output(m, call, pooling_put(m, call, &w, true));
}

const struct nn_layer_class nn_layer_max_pooling1d = {"MaxPooling1D", sizeof(struct pooling), pooling1d_keys,
                                                      pooling1d_build, max_pooling_emit};
const struct nn_layer_class nn_layer_max_pooling2d = {"MaxPooling2D", sizeof(struct pooling), pooling2d_keys,
                                                      pooling2d_build, max_pooling_emit};
const struct nn_layer_class nn_layer_average_pooling1d = {"AveragePooling1D", sizeof(struct pooling), pooling1d_keys,
                                                          pooling1d_build, average_pooling_emit};
const struct nn_layer_class nn_layer_average_pooling2d = {"AveragePooling2D", sizeof(struct pooling), pooling2d_keys,
                                                          pooling2d_build, average_pooling_emit};

// ---- the whole image ----------------------------------------------------------------------------------------------

struct global_pooling {
    bool keepdims;
};

static const struct nn_key global_keys[] = {{"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"},
                                            {"keepdims", NN_KEY_BOOL, NN_AT(struct global_pooling, keepdims)},
                                            {NULL}};

static enum ps_code global_pooling_build(struct nn_building *b, bool sequence, struct ps_error *e)
{
    struct nn_type image;
    if (nn_image_build(b, sequence, &image, e))
        return e->code;
    nn_image_give(b, 1, 1, image.dim[2]);
    if (!NN_CONFIG(struct global_pooling, b->layer)->keepdims)
        b->out = (struct nn_type){NN_FLOAT, 1, {image.dim[2]}};
    return PS_OK;
}

static enum ps_code global_pooling1d_build(struct nn_building *b, struct ps_error *e)
{
    return global_pooling_build(b, true, e);
}

static enum ps_code global_pooling2d_build(struct nn_building *b, struct ps_error *e)
{
    return global_pooling_build(b, false, e);
}

static struct nn_windows global_window(const struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_type image = nn_image_of(nn_emit_type(m, call->in[0]));
    return (struct nn_windows){{(int)image.dim[0], (int)image.dim[1]}, {1, 1}, {1, 1}, NN_VALID};
}

static int global_max_pooling_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_windows w = global_window(m, call);
    return nn_image_output(m, call, pooling_put(m, call, &w, false));
}

static int global_average_pooling_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_windows w = global_window(m, call);
    return nn_image_output(m, call, pooling_put(m, call, &w, true));
}

// Of the steps that count, where the input has a mask.
static int global_average_pooling1d_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const int mask = nn_emit_mask(m, call, 0);
    int y;
    if (mask < 0)
        return global_average_pooling_emit(m, call);
    nn_tape_put(m->tape, &nn_op_masked_mean, NULL, 0, (int[]){nn_emit_tensor(m, call->in[0]), mask}, 2, &y, 1);
    return nn_emit_view(m, y, nn_emit_type(m, call->out));
}

const struct nn_layer_class nn_layer_global_max_pooling1d = {
    "GlobalMaxPooling1D", sizeof(struct global_pooling), global_keys, global_pooling1d_build, global_max_pooling_emit};
const struct nn_layer_class nn_layer_global_max_pooling2d = {
    "GlobalMaxPooling2D", sizeof(struct global_pooling), global_keys, global_pooling2d_build, global_max_pooling_emit};
const struct nn_layer_class nn_layer_global_average_pooling1d = {"GlobalAveragePooling1D",
                                                                 sizeof(struct global_pooling), global_keys,
                                                                 global_pooling1d_build, global_average_pooling1d_emit};
const struct nn_layer_class nn_layer_global_average_pooling2d = {"GlobalAveragePooling2D",
                                                                 sizeof(struct global_pooling), global_keys,
                                                                 global_pooling2d_build, global_average_pooling_emit};
