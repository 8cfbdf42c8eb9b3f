// SPDX-License-Identifier: Apache-2.0
//
// While a network is trained, a window at random of each image (Keras takes the same of all in a batch). Otherwise, and
// of an image that is smaller than the window, the largest part from its middle that has the window's proportions, in
// the window's size: so Keras documents it, and tf_keras does it. (Keras 3.15 gives the whole image where it does not
// train.)
#include "workerd/nn/layers/images.h"
#include "workerd/nn/ops/noise.h"
#include "workerd/nn/ops/pad2d.h"
#include "workerd/nn/ops/resize2d.h"

struct random_crop {
    int height, width;
};

static const struct nn_key keys[] = {{"height", NN_KEY_SIZE, NN_AT(struct random_crop, height), .required = true},
                                     {"width", NN_KEY_SIZE, NN_AT(struct random_crop, width), .required = true},
                                     {"seed", NN_KEY_NONE},
                                     {"rng_type", NN_KEY_NONE},
                                     {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"},
                                     {NULL}};

static enum ps_code random_crop_build(struct nn_building *b, struct ps_error *e)
{
    const struct random_crop *c = b->layer->config;
    struct nn_type image;
    if (nn_image_build(b, false, &image, e))
        return e->code;
    nn_image_give(b, c->height, c->width, image.dim[2]);
    return PS_OK;
}

// How much of `size` is used, where `across` of the other axis is all there is.
static int random_crop_fit(int64_t size, int64_t across, int64_t window, int64_t window_across)
{
    const int64_t most = across * window / window_across;
    return (int)(most < 1 ? 1 : most < size ? most : size);
}

static int random_crop_middle(struct nn_emitter *m, const struct random_crop *c, const struct nn_type *image, int x)
{
    const int h = (int)image->dim[0], w = (int)image->dim[1];
    const int used[2] = {random_crop_fit(h, w, c->height, c->width), random_crop_fit(w, h, c->width, c->height)};
    const struct nn_pad2d middle = {{-((h - used[0]) / 2), -((w - used[1]) / 2)}, {used[0], used[1]}};
    const struct nn_resize2d resize = {{used[0], used[1]}, {c->height, c->width}, true};
    nn_tape_put(m->tape, &nn_op_pad2d, &middle, sizeof middle, &x, 1, &x, 1);
    nn_tape_put(m->tape, &nn_op_resize2d, &resize, sizeof resize, &x, 1, &x, 1);
    return x;
}

static int random_crop_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const struct random_crop *c = NN_CONFIG(struct random_crop, l);
    const struct nn_type *image = nn_emit_type(m, call->in[0]);
    const struct nn_window attr = {{(int)image->dim[0], (int)image->dim[1]}, {c->height, c->width}, call->stream};
    int x = nn_emit_tensor(m, call->in[0]);
    if (!m->training || attr.from[0] < c->height || attr.from[1] < c->width)
        return random_crop_middle(m, c, image, x);
    nn_tape_put(m->tape, &nn_op_window, &attr, sizeof attr, (int[]){x, nn_emit_examples(m)}, 2, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_random_crop = {"RandomCrop", sizeof(struct random_crop), keys, random_crop_build,
                                                    random_crop_emit};
