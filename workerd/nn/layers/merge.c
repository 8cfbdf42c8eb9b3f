// SPDX-License-Identifier: Apache-2.0
//
// Add, Subtract, Multiply, Average, Maximum, Minimum: of two or more inputs, element by element. As in Keras, an input
// with fewer dimensions gets dimensions of 1 behind the batch, and a dimension of 1 stands for all places.
#include <string.h>

#include "workerd/nn/layer.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/mask.h"
#include "workerd/nn/setting.h"

struct merge {
    bool keras2;
};

static const struct nn_key keys[] = {{NULL}};

// The type with `rank` dimensions.
static struct nn_type merge_expanded(const struct nn_type *type, int rank)
{
    struct nn_type to = {.dtype = type->dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        to.dim[i] = i < rank - type->rank ? 1 : type->dim[i - (rank - type->rank)];
    return to;
}

static enum ps_code merge_build_shape(struct nn_building *b, int input, struct ps_error *e)
{
    const struct nn_type *in = &b->in[input]->type;
    const int rank = in->rank > b->out.rank ? in->rank : b->out.rank;
    const struct nn_type x = merge_expanded(&b->out, rank), y = merge_expanded(in, rank);
    b->out = x;
    if (in->dtype != NN_FLOAT)
        return nn_json_fail(b->at, e, "%s expected numbers, but input %d has others", b->layer->class->name, input);
    for (int i = 0; i < rank; i++) {
        if (x.dim[i] != y.dim[i] && x.dim[i] != 1 && y.dim[i] != 1)
            return nn_json_fail(b->at, e,
                                "%s expected inputs of shapes that fit; input %d has %d places where others "
                                "have %d",
                                b->layer->class->name, input, (int)y.dim[i], (int)x.dim[i]);
        b->out.dim[i] = x.dim[i] == 1 ? y.dim[i] : x.dim[i];
    }
    return PS_OK;
}

// Where all inputs have masks, what comes out has one: that of them all.
static void merge_build_mask(struct nn_building *b)
{
    struct merge *c = b->layer->config;
    const struct nn_value *value = b->model->value;
    bool all = b->mask[0] >= 0, same = true;
    c->keras2 = nn_setting_is_keras2(b->at);
    for (int i = 1; i < b->n_in; i++) {
        all = all && b->mask[i] >= 0;
        all = all && memcmp(&value[b->mask[i]].type, &value[b->mask[0]].type, sizeof value->type) == 0;
        same = same && b->mask[i] == b->mask[0];
    }
    b->out_mask = !all ? -1 : same ? b->mask[0] : NN_NEW_MASK;
    if (all)
        b->new_mask = value[b->mask[0]].type;
}

// Keras 3: where one of them has something, Keras 2: where all have.
static int merge_mask(struct nn_emitter *m, const struct nn_call *call)
{
    const bool keras2 = NN_CONFIG(struct merge, nn_emit_layer(m, call))->keras2;
    int mask = nn_emit_mask(m, call, 0);
    for (int i = 1; i < call->n_in; i++)
        nn_tape_put(m->tape, keras2 ? &nn_op_mask_and : &nn_op_mask_or, NULL, 0,
                    (int[]){mask, nn_emit_mask(m, call, i)}, 2, &mask, 1);
    return mask;
}

static enum ps_code merge_build(struct nn_building *b, struct ps_error *e)
{
    if (b->n_in < 2)
        return nn_json_fail(b->at, e, "%s takes 2 or more inputs, not %d", b->layer->class->name, b->n_in);
    b->out = (struct nn_type){.dtype = NN_FLOAT};
    for (int i = 0; i < b->n_in; i++)
        if (merge_build_shape(b, i, e))
            return e->code;
    merge_build_mask(b);
    return PS_OK;
}

static enum ps_code merge_build_two(struct nn_building *b, struct ps_error *e)
{
    return nn_build_inputs(b, 2, e) ? e->code : merge_build(b, e);
}

// ---- emit ---------------------------------------------------------------------------------------------------------

static int merge_two(struct nn_emitter *m, enum nn_binary_kind kind, int a, int b)
{
    const struct nn_binary attr = {kind};
    int y;
    if (a < 0 || b < 0)
        return -1;
    const struct nn_type *x = &m->tape->tensor[a].type;
    if (kind == NN_B_ADD && memcmp(x, &m->tape->tensor[b].type, sizeof *x) == 0)
        nn_tape_put(m->tape, &nn_op_add, NULL, 0, (int[]){a, b}, 2, &y, 1);
    else
        nn_tape_put(m->tape, &nn_op_binary, &attr, sizeof attr, (int[]){a, b}, 2, &y, 1);
    return y;
}

static int merge_emit(struct nn_emitter *m, const struct nn_call *call, enum nn_binary_kind kind)
{
    const int rank = nn_emit_type(m, call->out)->rank;
    int y = -1;
    for (int i = 0; i < call->n_in; i++) {
        const struct nn_type *type = nn_emit_type(m, call->in[i]), full = merge_expanded(type, rank);
        int x = nn_emit_tensor(m, call->in[i]);
        x = type->rank < rank ? nn_emit_view(m, x, &full) : x;
        y = i == 0 ? x : merge_two(m, kind, y, x);
    }
    return y;
}

static int add_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return merge_emit(m, call, NN_B_ADD);
}

static int subtract_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return merge_emit(m, call, NN_B_SUBTRACT);
}

static int multiply_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return merge_emit(m, call, NN_B_MULTIPLY);
}

static int maximum_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return merge_emit(m, call, NN_B_MAXIMUM);
}

static int minimum_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return merge_emit(m, call, NN_B_MINIMUM);
}

static int average_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_affine attr = {1 / (float)call->n_in, 0};
    int y = merge_emit(m, call, NN_B_ADD);
    nn_tape_put(m->tape, &nn_op_affine, &attr, sizeof attr, &y, 1, &y, 1);
    return y;
}

#define CLASS(word, builds, emits)                                                                        \
    {                                                                                                     \
        .name = word, .config_bytes = sizeof(struct merge), .keys = keys, .build = builds, .emit = emits, \
        .mask = merge_mask                                                                                \
    }
const struct nn_layer_class nn_layer_add = CLASS("Add", merge_build, add_emit);
const struct nn_layer_class nn_layer_subtract = CLASS("Subtract", merge_build_two, subtract_emit);
const struct nn_layer_class nn_layer_multiply = CLASS("Multiply", merge_build, multiply_emit);
const struct nn_layer_class nn_layer_average = CLASS("Average", merge_build, average_emit);
const struct nn_layer_class nn_layer_maximum = CLASS("Maximum", merge_build, maximum_emit);
const struct nn_layer_class nn_layer_minimum = CLASS("Minimum", merge_build, minimum_emit);
