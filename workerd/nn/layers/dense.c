// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"

struct dense {
    int units;
    struct nn_function function;
    bool use_bias;
};

static const struct nn_key keys[] = {
    {"units", NN_KEY_SIZE, NN_AT(struct dense, units), .required = true}, NN_KEYS_OF_WEIGHTS(struct dense), {NULL}};

static enum ps_code dense_build(struct nn_building *b, struct ps_error *e)
{
    const struct dense *c = NN_CONFIG(struct dense, b->layer);
    if (nn_build_inputs(b, 1, e))
        return e->code;
    const struct nn_type *in = &b->in[0]->type;
    b->out = *in;
    b->out.dim[in->rank - 1] = c->units;
    return nn_build_kernel_bias(b, &(struct nn_type){NN_FLOAT, 2, {in->dim[in->rank - 1], c->units}}, c->use_bias, e);
}

static int dense_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct dense *c = NN_CONFIG(struct dense, nn_emit_layer(m, call));
    const struct nn_dense attr = {.bias = c->use_bias};
    return nn_emit_function(m, nn_emit_weighted(m, call, &nn_op_dense, &attr, sizeof attr), c->function);
}

const struct nn_layer_class nn_layer_dense = {"Dense",     sizeof(struct dense), keys,
                                              dense_build, dense_emit,           .passes_mask = true};
