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
    bool masked;  // what comes out depends on the masks of what comes in
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

// Of Keras 3's Multiply, Maximum and Minimum: a mask of an input is one of all steps that come out.
static enum ps_code merge_build_masked(struct nn_building *b, struct ps_error *e)
{
    struct merge *c = b->layer->config;
    if (merge_build(b, e))
        return e->code;
    c->masked = !c->keras2 && !nn_setting_is_operation(b->at);
    for (int i = 0; i < b->n_in && c->masked; i++) {
        if (b->mask[i] < 0 || b->in[i]->type.rank < b->out.rank)
            continue;
        const struct nn_type *mask = &b->model->value[b->mask[i]].type;
        if (mask->rank != b->out.rank - 1 || memcmp(mask->dim, b->out.dim, (size_t)mask->rank * sizeof *mask->dim) != 0)
            return nn_json_fail(b->at, e, "%s expected a mask of input %d for each step of what comes out, or none",
                                b->layer->class->name, i);
    }
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

static int merge_input(struct nn_emitter *m, const struct nn_call *call, int i)
{
    const int rank = nn_emit_type(m, call->out)->rank, x = nn_emit_tensor(m, call->in[i]);
    const struct nn_type *type = nn_emit_type(m, call->in[i]), full = merge_expanded(type, rank);
    return type->rank < rank ? nn_emit_view(m, x, &full) : x;
}

static int merge_emit(struct nn_emitter *m, const struct nn_call *call, enum nn_binary_kind kind)
{
    int y = merge_input(m, call, 0);
    for (int i = 1; i < call->n_in; i++)
        y = merge_two(m, kind, y, merge_input(m, call, i));
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

static int average_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_affine attr = {1 / (float)call->n_in, 0};
    int y = merge_emit(m, call, NN_B_ADD);
    nn_tape_put(m->tape, &nn_op_affine, &attr, sizeof attr, &y, 1, &y, 1);
    return y;
}

// ---- by masks -----------------------------------------------------------------------------------------------------

// The mask by which input i goes; -1: all of it counts. One with fewer dimensions than others loses its mask in Keras.
static int merge_own_mask(struct nn_emitter *m, const struct nn_call *call, int i)
{
    const bool masked = NN_CONFIG(struct merge, nn_emit_layer(m, call))->masked;
    const bool full = nn_emit_type(m, call->in[i])->rank == nn_emit_type(m, call->out)->rank;
    return masked && full ? nn_emit_mask(m, call, i) : -1;
}

static int merge_opposite(struct nn_emitter *m, int mask)
{
    const struct nn_affine attr = {-1, 1};
    nn_tape_put(m->tape, &nn_op_affine, &attr, sizeof attr, &mask, 1, &mask, 1);
    return mask;
}

// (rows, steps) as (rows, steps, 1).
static int merge_mask_view(struct nn_emitter *m, int mask)
{
    if (mask < 0)
        return -1;
    struct nn_type type = m->tape->tensor[mask].type;
    type.dim[type.rank++] = 1;
    return nn_tape_view(m->tape, mask, &type);
}

// x where the mask is, else 0. An x of one step stands for all.
static int merge_where(struct nn_emitter *m, int x, int mask)
{
    if (x < 0 || mask < 0)
        return -1;
    const struct nn_type *type = &m->tape->tensor[x].type, *steps = &m->tape->tensor[mask].type;
    if (memcmp(type->dim, steps->dim, (size_t)steps->rank * sizeof *type->dim) != 0)
        x = merge_two(m, NN_B_MULTIPLY, x, merge_mask_view(m, nn_emit_ones(m, mask)));
    nn_tape_put(m->tape, &nn_op_masked, NULL, 0, (int[]){x, mask}, 2, &x, 1);
    return x;
}

// x where the mask is, else y.
static int merge_choose(struct nn_emitter *m, int mask, int x, int y)
{
    return merge_two(m, NN_B_ADD, merge_where(m, x, mask), merge_where(m, y, merge_opposite(m, mask)));
}

// What is masked counts as 1; where all have masks and none counts, the product is 0.
static int multiply_emit(struct nn_emitter *m, const struct nn_call *call)
{
    bool all = true;
    int y = -1;
    for (int i = 0; i < call->n_in; i++) {
        const int mask = merge_own_mask(m, call, i);
        int x = merge_input(m, call, i);
        if (mask >= 0)
            x = merge_two(m, NN_B_ADD, merge_where(m, x, mask), merge_mask_view(m, merge_opposite(m, mask)));
        y = i == 0 ? x : merge_two(m, NN_B_MULTIPLY, y, x);
        all = all && mask >= 0;
    }
    return all ? merge_where(m, y, nn_emit_mask_of(m, call->out)) : y;
}

// Instead of what is masked stands what has come of the inputs before, and the other way round.
static int merge_extreme(struct nn_emitter *m, const struct nn_call *call, enum nn_binary_kind kind)
{
    int y = merge_input(m, call, 0), mask = merge_own_mask(m, call, 0);
    for (int i = 1; i < call->n_in; i++) {
        const int own = merge_own_mask(m, call, i);
        int x = merge_input(m, call, i);
        x = own >= 0 ? merge_choose(m, own, x, y) : x;
        y = mask >= 0 && mask != own ? merge_choose(m, mask, y, x) : y;
        y = merge_two(m, kind, y, x);
        if (mask >= 0 && own >= 0 && mask != own)
            nn_tape_put(m->tape, &nn_op_mask_or, NULL, 0, (int[]){mask, own}, 2, &mask, 1);
        mask = own >= 0 ? mask : -1;
    }
    return y;
}

static int maximum_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return merge_extreme(m, call, NN_B_MAXIMUM);
}

static int minimum_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return merge_extreme(m, call, NN_B_MINIMUM);
}

#define CLASS(word, builds, emits)                                                                        \
    {                                                                                                     \
        .name = word, .config_bytes = sizeof(struct merge), .keys = keys, .build = builds, .emit = emits, \
        .mask = merge_mask                                                                                \
    }
const struct nn_layer_class nn_layer_add = CLASS("Add", merge_build, add_emit);
const struct nn_layer_class nn_layer_subtract = CLASS("Subtract", merge_build_two, subtract_emit);
const struct nn_layer_class nn_layer_multiply = CLASS("Multiply", merge_build_masked, multiply_emit);
const struct nn_layer_class nn_layer_average = CLASS("Average", merge_build, average_emit);
const struct nn_layer_class nn_layer_maximum = CLASS("Maximum", merge_build_masked, maximum_emit);
const struct nn_layer_class nn_layer_minimum = CLASS("Minimum", merge_build_masked, minimum_emit);
