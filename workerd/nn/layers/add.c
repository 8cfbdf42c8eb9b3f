// SPDX-License-Identifier: Apache-2.0
//
// The sum of two or more inputs of one shape. Keras's broadcasting of others is refused.
#include <string.h>

#include "workerd/nn/layer.h"

static const struct nn_key keys[] = {{NULL}};

static enum ps_code add_build(struct nn_building *b, struct ps_error *e)
{
    if (b->n_in < 2)
        return nn_json_fail(b->at, e, "Add takes 2 or more inputs, not %d", b->n_in);
    for (int i = 1; i < b->n_in; i++)
        if (memcmp(&b->in[i]->type, &b->in[0]->type, sizeof b->in[0]->type) != 0)
            return nn_json_fail(b->at, e, "Add expected inputs of one shape; input %d has another than input 0", i);
    b->out = b->in[0]->type;
    return PS_OK;
}

static int add_emit(struct nn_emitter *m, const struct nn_call *call)
{
    int sum = nn_emit_tensor(m, call->in[0]);
    for (int i = 1; i < call->n_in; i++)
        nn_tape_put(m->tape, &nn_op_add, NULL, 0, (int[]){sum, nn_emit_tensor(m, call->in[i])}, 2, &sum, 1);
    return sum;
}

const struct nn_layer_class nn_layer_add = {"Add", 0, keys, add_build, add_emit};
