// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"
#include "workerd/nn/ops/concat.h"

struct concatenate {
    int axis;
};

static const struct nn_key keys[] = {{"axis", NN_KEY_AXIS, NN_AT(struct concatenate, axis), .fallback = -1}, {NULL}};

static enum ps_code concatenate_build(struct nn_building *b, struct ps_error *e)
{
    const struct concatenate *c = NN_CONFIG(struct concatenate, b->layer);
    if (b->n_in < 1)
        return nn_json_fail(b->at, e, "Concatenate takes 1 or more inputs, not %d", b->n_in);
    b->out = b->in[0]->type;
    for (int k = 1; k < b->n_in; k++) {
        const struct nn_type *in = &b->in[k]->type;
        bool fits = in->rank == b->out.rank && in->dtype == b->out.dtype;
        for (int i = 0; i < in->rank && fits; i++)
            fits = i == c->axis || in->dim[i] == b->out.dim[i];
        if (!fits || in->dim[c->axis] > NN_MAX_ELEMENTS - b->out.dim[c->axis])
            return nn_json_fail(b->at, e,
                                "Concatenate expected inputs of one shape but along axis %d; input %d has "
                                "another",
                                c->axis + 1, k);
        b->out.dim[c->axis] += in->dim[c->axis];
    }
    return PS_OK;
}

// An operator takes so many at a time: what comes of the first stands before the next.
static int concatenate_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_concat attr = {NN_CONFIG(struct concatenate, nn_emit_layer(m, call))->axis + 1};
    int in[NN_OP_IN] = {nn_emit_tensor(m, call->in[0])}, n = 1;
    for (int i = 1; i < call->n_in; i++) {
        in[n++] = nn_emit_tensor(m, call->in[i]);
        if (n < NN_OP_IN && i + 1 < call->n_in)
            continue;
        nn_tape_put(m->tape, &nn_op_concat, &attr, sizeof attr, in, n, &in[0], 1);
        n = 1;
    }
    return in[0];
}

const struct nn_layer_class nn_layer_concatenate = {"Concatenate", sizeof(struct concatenate), keys, concatenate_build,
                                                    concatenate_emit};
