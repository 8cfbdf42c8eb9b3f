// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"

static const struct nn_key keys[] = {{"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"}, {NULL}};

static enum ps_code flatten_build(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = (struct nn_type){b->in[0]->type.dtype, 1, {(int64_t)nn_type_count(&b->in[0]->type)}};
    return PS_OK;
}

// Memory is the same, seen differently.
static int flatten_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_view(m, nn_emit_tensor(m, call->in[0]), nn_emit_type(m, call->out));
}

const struct nn_layer_class nn_layer_flatten = {"Flatten", 0, keys, flatten_build, flatten_emit, .integers = true};
