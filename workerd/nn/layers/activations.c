// SPDX-License-Identifier: Apache-2.0
//
// Activation, and the layers that are activations by themselves: ReLU, LeakyReLU, ELU, Softmax. PReLU has a slope to
// learn.
#include "workerd/nn/layer.h"
#include "workerd/nn/ops/attention.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/mask.h"

struct activation {
    struct nn_function function;
    int axis;          // of Softmax
    bool zero_unseen;  // what a Softmax gives where nothing counts
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

// A mask has the input's dimensions, or 1 for all places of one.
static enum ps_code softmax_build(struct nn_building *b, struct ps_error *e)
{
    struct activation *c = b->layer->config;
    if (activation_build(b, e) || b->mask[0] < 0)
        return e->code;
    const struct nn_type *x = &b->out, *mask = &b->model->value[b->mask[0]].type;
    bool fits = mask->rank == x->rank;
    for (int i = 0; fits && i < x->rank; i++)
        fits = mask->dim[i] == x->dim[i] || mask->dim[i] == 1;
    if (!fits)
        return nn_json_fail(b->at, e,
                            "Softmax expects a mask of the shape of its input, or with 1 for some of its sizes");
    if (nn_axis_of(c->axis, x->rank) != x->rank - 1)
        return nn_json_fail(b->at, e, "Softmax with a mask is supported over the last axis only");
    c->zero_unseen = !nn_setting_is_keras2(b->at);
    return PS_OK;
}

// 1 where the mask is above a half, as in Keras, in all places of x.
static int softmax_mask(struct nn_emitter *m, const struct nn_call *call, int x)
{
    const struct nn_affine less = {1, -0.5f};
    const struct nn_binary both = {NN_B_MINIMUM};
    const struct nn_type *given = nn_emit_type(m, call->mask[0]);
    const double zero = 0;
    int mask = nn_emit_mask(m, call, 0);
    if (given->dtype == NN_FLOAT) {
        nn_tape_put(m->tape, &nn_op_affine, &less, sizeof less, &mask, 1, &mask, 1);
        nn_tape_put(m->tape, &nn_op_relu, NULL, 0, &mask, 1, &mask, 1);
    }
    nn_tape_put(m->tape, &nn_op_not_equal, &zero, sizeof zero, &mask, 1, &mask, 1);
    if (nn_type_count(given) != nn_type_count(nn_emit_type(m, call->in[0])))
        nn_tape_put(m->tape, &nn_op_binary, &both, sizeof both, (int[]){mask, nn_emit_ones(m, x)}, 2, &mask, 1);
    return mask;
}

// As the scores of one head, of which each row has its mask.
static int softmax_emit_masked(struct nn_emitter *m, const struct nn_call *call, bool zero_unseen)
{
    const struct nn_attention_softmax attr = {.by_both = true, .zero_unseen = zero_unseen};
    const struct nn_type *type = nn_emit_type(m, call->in[0]);
    const int64_t n = type->dim[type->rank - 1], rows = (int64_t)nn_type_count(type) / n;
    const struct nn_type scores = {NN_FLOAT, 3, {1, rows, n}}, pairs = {NN_FLOAT, 2, {rows, n}};
    const int x = nn_emit_tensor(m, call->in[0]), mask = softmax_mask(m, call, x);
    int in[] = {nn_emit_view(m, x, &scores), nn_emit_view(m, mask, &pairs)}, y;
    nn_tape_put(m->tape, &nn_op_attention_softmax, &attr, sizeof attr, in, 2, &y, 1);
    return nn_emit_view(m, y, type);
}

static int softmax_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct activation *c = NN_CONFIG(struct activation, nn_emit_layer(m, call));
    const int rank = nn_emit_type(m, call->in[0])->rank, axis = nn_axis_of(c->axis, rank);
    const struct nn_axis_function attr = {NN_F_SOFTMAX, axis + 1};
    int x = nn_emit_tensor(m, call->in[0]);
    if (call->mask[0] >= 0)
        return softmax_emit_masked(m, call, c->zero_unseen);
    if (axis == rank - 1)
        return nn_emit_function(m, x, (struct nn_function){.kind = NN_F_SOFTMAX});
    nn_tape_put(m->tape, &nn_op_axis_function, &attr, sizeof attr, &x, 1, &x, 1);
    return x;
}

static const struct nn_key softmax_keys[] = {{"axis", NN_KEY_AXIS, NN_AT(struct activation, axis), .fallback = -1},
                                             {NULL}};

const struct nn_layer_class nn_layer_softmax = {"Softmax",    sizeof(struct activation), softmax_keys, softmax_build,
                                                softmax_emit, .passes_mask = true};
