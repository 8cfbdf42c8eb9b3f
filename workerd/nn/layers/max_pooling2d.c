// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"

enum { WINDOW_CELLS = 256 };  // the position of the maximum is kept in a byte

struct pooling {
    int window[2], strides[2];  // strides 0: as the window
    bool same;
};

static const struct nn_key keys[] = {
    {"pool_size", NN_KEY_PAIR, NN_AT(struct pooling, window), .fallback = 2},
    {"strides", NN_KEY_PAIR, NN_AT(struct pooling, strides)},
    {"padding", NN_KEY_SAME, NN_AT(struct pooling, same)},
    {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"},
    {NULL},
};

static struct nn_axis pooling_axis(const struct pooling *c, const struct nn_type *in, int i)
{
    return (struct nn_axis){
        .in = (int)in->dim[i], .k = c->window[i], .stride = c->strides[i] ? c->strides[i] : c->window[i]};
}

static enum ps_code pooling_build(struct nn_building *b, struct ps_error *e)
{
    const struct pooling *c = NN_CONFIG(struct pooling, b->layer);
    struct nn_json size = nn_json_member(b->config, "pool_size");
    if ((int64_t)c->window[0] * c->window[1] > WINDOW_CELLS)
        return nn_json_fail(&size, e, "expected at most %d cells, not %d x %d", WINDOW_CELLS, c->window[0],
                            c->window[1]);
    if (nn_build_image(b, e))
        return e->code;
    b->out = b->in[0]->type;
    for (int i = 0; i < 2; i++) {
        struct nn_axis axis = pooling_axis(c, &b->in[0]->type, i);
        if (nn_build_window(b, &axis, c->same, e))
            return e->code;
        b->out.dim[i] = axis.out;
    }
    return PS_OK;
}

static int pooling_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct pooling *c = NN_CONFIG(struct pooling, nn_emit_layer(m, call));
    struct nn_maxpool attr;
    for (int i = 0; i < 2; i++) {
        struct nn_axis axis = pooling_axis(c, nn_emit_type(m, call->in[0]), i);
        nn_axis_place(&axis, c->same);
        attr.image[i] = axis.in;
        attr.window[i] = axis.k;
        attr.stride[i] = axis.stride;
        attr.pad_begin[i] = axis.pad_begin;
        attr.out[i] = axis.out;
    }
    return nn_emit_maxpool(m, nn_emit_tensor(m, call->in[0]), &attr);
}

const struct nn_layer_class nn_layer_max_pooling2d = {"MaxPooling2D", sizeof(struct pooling), keys, pooling_build,
                                                      pooling_emit};
