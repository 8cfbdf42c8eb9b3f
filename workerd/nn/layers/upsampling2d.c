// SPDX-License-Identifier: Apache-2.0
//
// UpSampling2D, nearest and bilinear, and UpSampling1D.
#include <string.h>

#include "workerd/nn/layers/images.h"
#include "workerd/nn/ops/resize2d.h"

struct upsampling {
    int size[2];
    bool bilinear;
};

static const struct nn_key upsampling1d_keys[] = {
    {"size", NN_KEY_PAIR, NN_AT(struct upsampling, size), .fallback = 2, .sequence = true}, {NULL}};
static const struct nn_key upsampling2d_keys[] = {{"size", NN_KEY_PAIR, NN_AT(struct upsampling, size), .fallback = 2},
                                                  {"interpolation", NN_KEY_NONE},  // read by the build
                                                  {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"},
                                                  {NULL}};

static enum ps_code upsampling_build(struct nn_building *b, bool sequence, struct ps_error *e)
{
    const struct upsampling *c = NN_CONFIG(struct upsampling, b->layer);
    struct nn_type image;
    if (nn_image_build(b, sequence, &image, e))
        return e->code;
    nn_image_give(b, image.dim[0] * c->size[0], image.dim[1] * c->size[1], image.dim[2]);
    return PS_OK;
}

static enum ps_code upsampling1d_build(struct nn_building *b, struct ps_error *e)
{
    return upsampling_build(b, true, e);
}

static enum ps_code upsampling2d_build(struct nn_building *b, struct ps_error *e)
{
    const struct nn_json at = nn_json_member(b->config, "interpolation");
    const char *word = "nearest";
    if (at.value && nn_json_string(&at, &word, e))
        return e->code;
    const bool bilinear = strcmp(word, "bilinear") == 0;
    if (!bilinear && strcmp(word, "nearest") != 0)
        return nn_json_expected(&at, e, "\"nearest\" or \"bilinear\"");
    ((struct upsampling *)b->layer->config)->bilinear = bilinear;
    return upsampling_build(b, false, e);
}

static int upsampling_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct upsampling *c = NN_CONFIG(struct upsampling, nn_emit_layer(m, call));
    const struct nn_type image = nn_image_of(nn_emit_type(m, call->in[0]));
    const int h = (int)image.dim[0], w = (int)image.dim[1];
    const struct nn_resize2d attr = {{h, w}, {h * c->size[0], w * c->size[1]}, c->bilinear};
    int x = nn_image_input(m, call);
    nn_tape_put(m->tape, &nn_op_resize2d, &attr, sizeof attr, &x, 1, &x, 1);
    return nn_image_output(m, call, x);
}

const struct nn_layer_class nn_layer_upsampling1d = {"UpSampling1D", sizeof(struct upsampling), upsampling1d_keys,
                                                     upsampling1d_build, upsampling_emit};
const struct nn_layer_class nn_layer_upsampling2d = {"UpSampling2D", sizeof(struct upsampling), upsampling2d_keys,
                                                     upsampling2d_build, upsampling_emit};
