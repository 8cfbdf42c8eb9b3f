// SPDX-License-Identifier: Apache-2.0
//
// Masking, and the operations on masks that Keras 3 writes into a model's JSON as if they were layers: of a layer that
// makes a mask, what computes it, and of one that takes it, that it does.
#include <float.h>
#include <string.h>

#include "workerd/nn/layer.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/mask.h"

// ---- Masking ------------------------------------------------------------------------------------------------------

struct masking {
    double value;
};

static const struct nn_key masking_keys[] = {
    {"mask_value", NN_KEY_REAL, NN_AT(struct masking, value), .min = -FLT_MAX, .max = FLT_MAX}, {NULL}};

static enum ps_code masking_build(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->new_mask = b->in[0]->type;
    if (b->out.rank < 2)
        return nn_json_fail(b->at, e, "Masking expects an input of shape (steps, features)");
    b->out_mask = NN_NEW_MASK;
    b->new_mask.dim[--b->new_mask.rank] = 0;
    return PS_OK;
}

static int masking_mask(struct nn_emitter *m, const struct nn_call *call)
{
    const double value = NN_CONFIG(struct masking, nn_emit_layer(m, call))->value;
    int x = nn_emit_tensor(m, call->in[0]);
    nn_tape_put(m->tape, &nn_op_not_equal, &value, sizeof value, &x, 1, &x, 1);
    nn_tape_put(m->tape, &nn_op_any, NULL, 0, &x, 1, &x, 1);
    return x;
}

static int masking_emit(struct nn_emitter *m, const struct nn_call *call)
{
    int y, mask = nn_emit_mask_of(m, call->out);
    mask = mask >= 0 ? mask : masking_mask(m, call);
    nn_tape_put(m->tape, &nn_op_masked, NULL, 0, (int[]){nn_emit_tensor(m, call->in[0]), mask}, 2, &y, 1);
    return y;
}

const struct nn_layer_class nn_layer_masking = {.name = "Masking",
                                                .config_bytes = sizeof(struct masking),
                                                .keys = masking_keys,
                                                .build = masking_build,
                                                .emit = masking_emit,
                                                .mask = masking_mask};

// ---- operations ---------------------------------------------------------------------------------------------------

static const struct nn_key no_keys[] = {{NULL}};

static enum ps_code masking_build_not_equal(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    b->out.dtype = NN_FLOAT;
    return PS_OK;
}

static int masking_emit_not_equal(struct nn_emitter *m, const struct nn_call *call)
{
    int x = nn_emit_tensor(m, call->in[0]);
    nn_tape_put(m->tape, &nn_op_not_equal, &call->constant, sizeof call->constant, &x, 1, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_not_equal = {.name = "NotEqual",
                                                  .keys = no_keys,
                                                  .build = masking_build_not_equal,
                                                  .emit = masking_emit_not_equal,
                                                  .integers = true,
                                                  .constant = true};

static const struct nn_key any_keys[] = {{"axis", NN_KEY_LAST_AXIS}, {"keepdims", NN_KEY_REFUSED}, {NULL}};

static enum ps_code masking_build_any(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    if (b->out.rank < 2)
        return nn_json_fail(b->at, e, "Any expects an input of two dimensions or more");
    b->out.dim[--b->out.rank] = 0;
    return PS_OK;
}

static int masking_emit_any(struct nn_emitter *m, const struct nn_call *call)
{
    int x = nn_emit_tensor(m, call->in[0]);
    nn_tape_put(m->tape, &nn_op_any, NULL, 0, &x, 1, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_any = {
    .name = "Any", .keys = any_keys, .build = masking_build_any, .emit = masking_emit_any};

// Of one shape, but that one may have one place for all of the other's.
static enum ps_code masking_build_both(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 2, e))
        return e->code;
    const struct nn_type *x = &b->in[0]->type, *y = &b->in[1]->type;
    bool fits = x->rank == y->rank;
    b->out = *x;
    for (int i = 0; fits && i < x->rank; i++) {
        fits = x->dim[i] == y->dim[i] || x->dim[i] == 1 || y->dim[i] == 1;
        b->out.dim[i] = x->dim[i] == 1 ? y->dim[i] : x->dim[i];
    }
    return fits ? PS_OK : nn_json_fail(b->at, e, "%s expects two inputs of one shape", b->layer->class->name);
}

static int masking_emit_both(struct nn_emitter *m, const struct nn_call *call)
{
    const bool either = strcmp(nn_emit_layer(m, call)->class->name, "LogicalOr") == 0;
    const struct nn_binary attr = {either ? NN_B_MAXIMUM : NN_B_MINIMUM};
    int y;
    nn_tape_put(m->tape, &nn_op_binary, &attr, sizeof attr,
                (int[]){nn_emit_tensor(m, call->in[0]), nn_emit_tensor(m, call->in[1])}, 2, &y, 1);
    return y;
}

const struct nn_layer_class nn_layer_logical_or = {
    .name = "LogicalOr", .keys = no_keys, .build = masking_build_both, .emit = masking_emit_both};
const struct nn_layer_class nn_layer_logical_and = {
    .name = "LogicalAnd", .keys = no_keys, .build = masking_build_both, .emit = masking_emit_both};

static const struct nn_key like_keys[] = {{"dtype", NN_KEY_ONLY_WORD, .word = "bool"}, {NULL}};

static int masking_emit_ones(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_ones(m, nn_emit_tensor(m, call->in[0]));
}

static int masking_emit_zeros(struct nn_emitter *m, const struct nn_call *call)
{
    const double one = 1;
    int x = masking_emit_ones(m, call);
    nn_tape_put(m->tape, &nn_op_not_equal, &one, sizeof one, &x, 1, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_zeros_like = {.name = "ZerosLike",
                                                   .keys = like_keys,
                                                   .build = masking_build_not_equal,
                                                   .emit = masking_emit_zeros,
                                                   .integers = true,
                                                   .any_dtype = true};
const struct nn_layer_class nn_layer_ones_like = {.name = "OnesLike",
                                                  .keys = like_keys,
                                                  .build = masking_build_not_equal,
                                                  .emit = masking_emit_ones,
                                                  .integers = true,
                                                  .any_dtype = true};

// One more dimension of 1 at the end.
static const struct nn_key expand_keys[] = {{"axis", NN_KEY_ONLY_NUMBER, .fallback = -1}, {NULL}};

static enum ps_code masking_build_expand(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    if (b->out.rank == PS_MAX_RANK)
        return nn_json_fail(b->at, e, "ExpandDims expects an input of at most %d dimensions", PS_MAX_RANK - 1);
    b->out.dim[b->out.rank++] = 1;
    return PS_OK;
}

static int masking_emit_expand(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_view(m, nn_emit_tensor(m, call->in[0]), nn_emit_type(m, call->out));
}

const struct nn_layer_class nn_layer_expand_dims = {.name = "ExpandDims",
                                                    .keys = expand_keys,
                                                    .build = masking_build_expand,
                                                    .emit = masking_emit_expand,
                                                    .integers = true};
