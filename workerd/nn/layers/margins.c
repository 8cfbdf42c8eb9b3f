// SPDX-License-Identifier: Apache-2.0
//
// ZeroPadding2D and Cropping2D, and both over sequences: the image in a larger or a smaller frame.
#include "workerd/nn/layers/images.h"
#include "workerd/nn/ops/pad2d.h"

struct margins {
    int size[2][2];  // of height and width, at both ends
};

#define KEYS(NAME, FALLBACK, IS_SEQUENCE)                                                                   \
    {                                                                                                       \
        {NAME, NN_KEY_MARGINS, NN_AT(struct margins, size), .fallback = FALLBACK, .sequence = IS_SEQUENCE}, \
            {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"}, {NULL},                             \
    }

static const struct nn_key zero_padding1d_keys[] = KEYS("padding", 1, true);
static const struct nn_key zero_padding2d_keys[] = KEYS("padding", 1, false);
static const struct nn_key cropping1d_keys[] = KEYS("cropping", 1, true);
static const struct nn_key cropping2d_keys[] = KEYS("cropping", 0, false);

// sign: 1 of what is added, -1 of what is taken away.
static enum ps_code margins_build(struct nn_building *b, bool sequence, int sign, struct ps_error *e)
{
    const struct margins *c = NN_CONFIG(struct margins, b->layer);
    struct nn_type image;
    if (nn_image_build(b, sequence, &image, e))
        return e->code;
    for (int i = 0; i < 2; i++) {
        const int64_t all = (int64_t)c->size[i][0] + c->size[i][1];
        const struct nn_json at = nn_json_member(b->config, "cropping");
        if (sign < 0 && all >= image.dim[i])
            return nn_json_expected(&at, e, "less than the %d of its input", (int)image.dim[i]);
        image.dim[i] += sign * all;
    }
    nn_image_give(b, image.dim[0], image.dim[1], image.dim[2]);
    return PS_OK;
}

static enum ps_code zero_padding1d_build(struct nn_building *b, struct ps_error *e)
{
    return margins_build(b, true, 1, e);
}

static enum ps_code zero_padding2d_build(struct nn_building *b, struct ps_error *e)
{
    return margins_build(b, false, 1, e);
}

static enum ps_code cropping1d_build(struct nn_building *b, struct ps_error *e)
{
    return margins_build(b, true, -1, e);
}

static enum ps_code cropping2d_build(struct nn_building *b, struct ps_error *e)
{
    return margins_build(b, false, -1, e);
}

static int margins_emit(struct nn_emitter *m, const struct nn_call *call, int sign)
{
    const struct margins *c = NN_CONFIG(struct margins, nn_emit_layer(m, call));
    const struct nn_type out = nn_image_of(nn_emit_type(m, call->out));
    const struct nn_pad2d attr = {{sign * c->size[0][0], sign * c->size[1][0]}, {(int)out.dim[0], (int)out.dim[1]}};
    int x = nn_image_input(m, call);
    nn_tape_put(m->tape, &nn_op_pad2d, &attr, sizeof attr, &x, 1, &x, 1);
    return nn_image_output(m, call, x);
}

static int zero_padding_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return margins_emit(m, call, 1);
}

static int cropping_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return margins_emit(m, call, -1);
}

const struct nn_layer_class nn_layer_zero_padding1d = {"ZeroPadding1D", sizeof(struct margins), zero_padding1d_keys,
                                                       zero_padding1d_build, zero_padding_emit};
const struct nn_layer_class nn_layer_zero_padding2d = {"ZeroPadding2D", sizeof(struct margins), zero_padding2d_keys,
                                                       zero_padding2d_build, zero_padding_emit};
const struct nn_layer_class nn_layer_cropping1d = {"Cropping1D", sizeof(struct margins), cropping1d_keys,
                                                   cropping1d_build, cropping_emit};
const struct nn_layer_class nn_layer_cropping2d = {"Cropping2D", sizeof(struct margins), cropping2d_keys,
                                                   cropping2d_build, cropping_emit};
