// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"

struct dropout {
    double rate;
};

static const struct nn_key keys[] = {
    {"rate", NN_KEY_REAL, NN_AT(struct dropout, rate), .required = true, .min = 0, .max = 1},
    {"seed", NN_KEY_NONE},
    {"noise_shape", NN_KEY_REFUSED},
    {NULL},
};

static enum ps_code dropout_build(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    return PS_OK;
}

static int dropout_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const struct nn_dropout attr = {.rate = (float)NN_CONFIG(struct dropout, l)->rate, .layer = l->number};
    int x = nn_emit_tensor(m, call->in[0]);
    if (m->training && attr.rate > 0)
        nn_tape_put(m->tape, &nn_op_dropout, &attr, sizeof attr, (int[]){x, nn_emit_examples(m)}, 2, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_dropout = {"Dropout",     sizeof(struct dropout), keys,
                                                dropout_build, dropout_emit,           .passes_mask = true};
