// SPDX-License-Identifier: Apache-2.0
//
// While a network is trained, each image is turned round along an axis or not, with equal chances.
#include <string.h>

#include "workerd/nn/layers/images.h"
#include "workerd/nn/ops/noise.h"

struct random_flip {
    bool horizontal, vertical;
};

static const struct nn_key keys[] = {{"mode", NN_KEY_BY_BUILD},
                                     {"seed", NN_KEY_NONE},
                                     {"rng_type", NN_KEY_NONE},
                                     {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"},
                                     {NULL}};

static enum ps_code random_flip_build(struct nn_building *b, struct ps_error *e)
{
    struct random_flip *c = b->layer->config;
    struct nn_json at = nn_json_member(b->config, "mode");
    const char *word = "horizontal_and_vertical";
    struct nn_type image;
    if (nn_image_build(b, false, &image, e) || (nn_json_given(&at) && nn_json_string(&at, &word, e)))
        return e->code;
    b->out = b->in[0]->type;
    c->horizontal = strcmp(word, "vertical") != 0;
    c->vertical = strcmp(word, "horizontal") != 0;
    if (c->horizontal && c->vertical && strcmp(word, "horizontal_and_vertical") != 0)
        return nn_json_expected(&at, e, "horizontal, vertical or horizontal_and_vertical");
    return PS_OK;
}

static int random_flip_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const struct random_flip *c = NN_CONFIG(struct random_flip, l);
    const struct nn_flip attr = {c->horizontal, c->vertical, call->stream};
    int x = nn_emit_tensor(m, call->in[0]);
    if (m->training)
        nn_tape_put(m->tape, &nn_op_flip, &attr, sizeof attr, (int[]){x, nn_emit_examples(m)}, 2, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_random_flip = {"RandomFlip", sizeof(struct random_flip), keys, random_flip_build,
                                                    random_flip_emit};
