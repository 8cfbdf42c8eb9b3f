// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"
#include "workerd/nn/ops/concat.h"
#include "workerd/nn/ops/mask.h"

struct concatenate {
    int axis;
    bool keras2;
};

static const struct nn_key keys[] = {{"axis", NN_KEY_AXIS, NN_AT(struct concatenate, axis), .fallback = -1}, {NULL}};

// Along the last axis a step counts where any of the inputs has it, of Keras 2 where all that have masks have it; along
// another, masks are joined as what they belong to is.
static void concatenate_build_mask(struct nn_building *b)
{
    struct concatenate *c = b->layer->config;
    bool any = false, all = true;
    c->keras2 = nn_setting_is_keras2(b->at);
    for (int k = 0; k < b->n_in; k++) {
        any = any || b->mask[k] >= 0;
        all = all && b->mask[k] >= 0;
    }
    const bool last = nn_axis_of(c->axis, b->out.rank) == b->out.rank - 1;
    if (!any || b->out.rank < 2 || (last && !all && !c->keras2))
        return;
    b->out_mask = NN_NEW_MASK;
    b->new_mask = b->out;
    b->new_mask.dtype = NN_FLOAT;
    b->new_mask.dim[--b->new_mask.rank] = 0;
}

static enum ps_code concatenate_build(struct nn_building *b, struct ps_error *e)
{
    const struct concatenate *c = NN_CONFIG(struct concatenate, b->layer);
    if (b->n_in < 1)
        return nn_json_fail(b->at, e, "Concatenate takes 1 or more inputs, not %d", b->n_in);
    b->out = b->in[0]->type;
    const int axis = nn_axis_of(c->axis, b->out.rank);
    for (int k = 1; k < b->n_in; k++) {
        const struct nn_type *in = &b->in[k]->type;
        bool fits = in->rank == b->out.rank && in->dtype == b->out.dtype;
        for (int i = 0; i < in->rank && fits; i++)
            fits = i == axis || in->dim[i] == b->out.dim[i];
        if (!fits || in->dim[axis] > NN_MAX_ELEMENTS - b->out.dim[axis])
            return nn_json_fail(b->at, e,
                                "Concatenate expected inputs of one shape but along axis %d; input %d has "
                                "another",
                                axis + 1, k);
        b->out.dim[axis] += in->dim[axis];
    }
    concatenate_build_mask(b);
    return PS_OK;
}

// An operator takes so many at a time: what comes of the first stands before the next.
static int concatenate_join(struct nn_emitter *m, int axis, const int *part, int parts)
{
    const struct nn_concat attr = {axis + 1};
    int in[NN_OP_IN] = {part[0]}, n = 1;
    for (int i = 1; i < parts; i++) {
        in[n++] = part[i];
        if (n < NN_OP_IN && i + 1 < parts)
            continue;
        nn_tape_put(m->tape, &nn_op_concat, &attr, sizeof attr, in, n, &in[0], 1);
        n = 1;
    }
    return in[0];
}

static int concatenate_axis(struct nn_emitter *m, const struct nn_call *call)
{
    const int axis = NN_CONFIG(struct concatenate, nn_emit_layer(m, call))->axis;
    return nn_axis_of(axis, nn_emit_type(m, call->out)->rank);
}

static int concatenate_emit(struct nn_emitter *m, const struct nn_call *call)
{
    int part[NN_CALL_IN];
    for (int i = 0; i < call->n_in; i++)
        part[i] = nn_emit_tensor(m, call->in[i]);
    return concatenate_join(m, concatenate_axis(m, call), part, call->n_in);
}

// That of an input; ones where it has none: any of it counts.
static int concatenate_mask_of(struct nn_emitter *m, const struct nn_call *call, int k)
{
    int mask = nn_emit_mask(m, call, k);
    if (mask < 0) {
        mask = nn_emit_ones(m, nn_emit_tensor(m, call->in[k]));
        nn_tape_put(m->tape, &nn_op_any, NULL, 0, &mask, 1, &mask, 1);
    }
    return mask;
}

static int concatenate_mask(struct nn_emitter *m, const struct nn_call *call)
{
    const struct concatenate *c = NN_CONFIG(struct concatenate, nn_emit_layer(m, call));
    const int axis = concatenate_axis(m, call);
    const bool last = axis == nn_emit_type(m, call->out)->rank - 1;
    const struct nn_op_class *both = c->keras2 ? &nn_op_mask_and : &nn_op_mask_or;
    int part[NN_CALL_IN];
    for (int i = 0; i < call->n_in; i++)
        part[i] = concatenate_mask_of(m, call, i);
    if (!last)
        return concatenate_join(m, axis, part, call->n_in);
    for (int i = 1; i < call->n_in; i++)
        nn_tape_put(m->tape, both, NULL, 0, (int[]){part[0], part[i]}, 2, &part[0], 1);
    return part[0];
}

const struct nn_layer_class nn_layer_concatenate = {.name = "Concatenate",
                                                    .config_bytes = sizeof(struct concatenate),
                                                    .keys = keys,
                                                    .build = concatenate_build,
                                                    .emit = concatenate_emit,
                                                    .mask = concatenate_mask};
