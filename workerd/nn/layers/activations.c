// SPDX-License-Identifier: Apache-2.0
//
// Activation, and the layers that are activations by themselves: ReLU, LeakyReLU, ELU, Softmax. PReLU has a slope to
// learn.
#include "workerd/nn/layer.h"

struct activation {
    struct nn_function function;
    int axis;  // of Softmax
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

const struct nn_layer_class nn_layer_activation = {"Activation",     sizeof(struct activation), activation_keys,
                                                   activation_build, activation_emit,           .passes_mask = true};

// ---- ReLU, LeakyReLU, ELU -----------------------------------------------------------------------------------------

static enum ps_code activation_build_own(struct nn_building *b, struct ps_error *e)
{
    struct activation *c = b->layer->config;
    if (nn_function_of_class(b->config, b->layer->class->name, &c->function, e))
        return e->code;
    return activation_build(b, e);
}

static const struct nn_key relu_keys[] = {
    {"max_value", NN_KEY_BY_BUILD}, {"negative_slope", NN_KEY_BY_BUILD}, {"threshold", NN_KEY_BY_BUILD}, {NULL}};

const struct nn_layer_class nn_layer_relu = {
    "ReLU", sizeof(struct activation), relu_keys, activation_build_own, activation_emit, .passes_mask = true};

static const struct nn_key leaky_relu_keys[] = {
    {"negative_slope", NN_KEY_BY_BUILD}, {"alpha", NN_KEY_BY_BUILD}, {NULL}};

const struct nn_layer_class nn_layer_leaky_relu = {"LeakyReLU",     sizeof(struct activation),
                                                   leaky_relu_keys, activation_build_own,
                                                   activation_emit, .passes_mask = true};

static const struct nn_key elu_keys[] = {{"alpha", NN_KEY_BY_BUILD}, {NULL}};

const struct nn_layer_class nn_layer_elu = {"ELU",           sizeof(struct activation), elu_keys, activation_build_own,
                                            activation_emit, .passes_mask = true};

// ---- Softmax ------------------------------------------------------------------------------------------------------

static int softmax_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct activation *c = NN_CONFIG(struct activation, nn_emit_layer(m, call));
    const struct nn_axis_function attr = {NN_F_SOFTMAX, c->axis + 1};
    int x = nn_emit_tensor(m, call->in[0]);
    if (c->axis == nn_emit_type(m, call->in[0])->rank - 1)
        return nn_emit_function(m, x, (struct nn_function){.kind = NN_F_SOFTMAX});
    nn_tape_put(m->tape, &nn_op_axis_function, &attr, sizeof attr, &x, 1, &x, 1);
    return x;
}

static const struct nn_key softmax_keys[] = {{"axis", NN_KEY_AXIS, NN_AT(struct activation, axis), .fallback = -1},
                                             {NULL}};

const struct nn_layer_class nn_layer_softmax = {"Softmax",    sizeof(struct activation), softmax_keys, activation_build,
                                                softmax_emit, .passes_mask = true};
