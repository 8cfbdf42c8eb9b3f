// SPDX-License-Identifier: Apache-2.0
//
// Masking, and the operations on masks that Keras 3 writes into a model's JSON as if they were layers: of a layer that
// makes a mask, what computes it, and of one that takes it, that it does.
#include <float.h>
#include <string.h>

#include "workerd/nn/layer.h"
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
    int y, mask = call->child ? masking_mask(m, call) : nn_emit_mask_of(m, call->out);
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

static enum ps_code masking_build_both(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 2, e))
        return e->code;
    if (memcmp(&b->in[0]->type, &b->in[1]->type, sizeof b->in[0]->type) != 0)
        return nn_json_fail(b->at, e, "%s expects two inputs of one shape", b->layer->class->name);
    b->out = b->in[0]->type;
    return PS_OK;
}

static int masking_emit_both(struct nn_emitter *m, const struct nn_call *call)
{
    const bool either = strcmp(nn_emit_layer(m, call)->class->name, "LogicalOr") == 0;
    int y;
    nn_tape_put(m->tape, either ? &nn_op_mask_or : &nn_op_mask_and, NULL, 0,
                (int[]){nn_emit_tensor(m, call->in[0]), nn_emit_tensor(m, call->in[1])}, 2, &y, 1);
    return y;
}

const struct nn_layer_class nn_layer_logical_or = {
    .name = "LogicalOr", .keys = no_keys, .build = masking_build_both, .emit = masking_emit_both};
const struct nn_layer_class nn_layer_logical_and = {
    .name = "LogicalAnd", .keys = no_keys, .build = masking_build_both, .emit = masking_emit_both};
