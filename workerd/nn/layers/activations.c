// SPDX-License-Identifier: Apache-2.0
//
// Activation, and the layers that are activations by themselves.
#include "workerd/nn/layer.h"

struct activation {
    enum nn_function function;
};

static enum ps_code activation_build(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    return PS_OK;
}

static int activation_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct activation *c = NN_CONFIG(struct activation, nn_emit_layer(m, call));
    return nn_emit_function(m, nn_emit_tensor(m, call->in[0]), c->function);
}

static const struct nn_key activation_keys[] = {
    {"activation", NN_KEY_FUNCTION, NN_AT(struct activation, function), .required = true}, {NULL}};

const struct nn_layer_class nn_layer_activation = {"Activation", sizeof(struct activation), activation_keys,
                                                   activation_build, activation_emit, .passes_mask = true};

static int relu_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_function(m, nn_emit_tensor(m, call->in[0]), NN_F_RELU);
}

static const struct nn_key relu_keys[] = {
    {"max_value", NN_KEY_REFUSED}, {"negative_slope", NN_KEY_ONLY_NUMBER}, {"threshold", NN_KEY_ONLY_NUMBER}, {NULL}};

const struct nn_layer_class nn_layer_relu = {"ReLU", 0, relu_keys, activation_build, relu_emit, .passes_mask = true};

static int softmax_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_function(m, nn_emit_tensor(m, call->in[0]), NN_F_SOFTMAX);
}

static const struct nn_key softmax_keys[] = {{"axis", NN_KEY_LAST_AXIS}, {NULL}};

const struct nn_layer_class nn_layer_softmax = {"Softmax", 0, softmax_keys, activation_build, softmax_emit, .passes_mask = true};
