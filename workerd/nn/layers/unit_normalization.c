// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"
#include "workerd/nn/ops/dot.h"

struct unit_normalization {
    int axis;
    bool keras2;
};

static const struct nn_key keys[] = {{"axis", NN_KEY_AXIS, NN_AT(struct unit_normalization, axis), .fallback = -1},
                                     {NULL}};

static enum ps_code unit_normalization_build(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    ((struct unit_normalization *)b->layer->config)->keras2 = nn_setting_is_keras2(b->at);
    b->out = b->in[0]->type;
    return PS_OK;
}

static int unit_normalization_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct unit_normalization *c = NN_CONFIG(struct unit_normalization, nn_emit_layer(m, call));
    const int axis = nn_axis_of(c->axis, nn_emit_type(m, call->in[0])->rank);
    const struct nn_unit_length attr = {axis + 1, c->keras2 ? 1e-6f : 1e-12f};  // Keras 2: 1e-12 is of the square
    int x = nn_emit_tensor(m, call->in[0]);
    nn_tape_put(m->tape, &nn_op_unit_length, &attr, sizeof attr, &x, 1, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_unit_normalization = {
    "UnitNormalization",      sizeof(struct unit_normalization), keys,
    unit_normalization_build, unit_normalization_emit,           .passes_mask = true};
