// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/dot.h"

#include "workerd/nn/layer.h"

struct dot {
    int axis[2];  // as NN_KEY_AXIS
    bool normalize, keras2;
};

static const struct nn_key keys[] = {
    {"axes", NN_KEY_BY_BUILD}, {"normalize", NN_KEY_BOOL, NN_AT(struct dot, normalize)}, {NULL}};

// One number for both inputs, or one for each.
static enum ps_code dot_read_axes(struct nn_building *b, struct dot *c, struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, "axes");
    if (!json_is_integer(at.value) && json_array_size(at.value) != 2)
        return nn_json_expected(&at, e, "a whole number or two of them");
    for (size_t k = 0; k < 2; k++) {
        const struct nn_json own = json_is_array(at.value) ? nn_json_element(&at, k) : at;
        if (nn_axis_read(&own, own.value, b->in[k]->type.rank, &c->axis[k], e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code dot_build(struct nn_building *b, struct ps_error *e)
{
    struct dot *c = b->layer->config;
    c->keras2 = nn_setting_is_keras2(b->at);
    if (nn_build_inputs(b, 2, e) || dot_read_axes(b, c, e))
        return e->code;
    const struct nn_type *x = &b->in[0]->type, *y = &b->in[1]->type;
    const int axis[2] = {nn_axis_of(c->axis[0], x->rank), nn_axis_of(c->axis[1], y->rank)};
    if (x->dim[axis[0]] != y->dim[axis[1]])
        return nn_json_fail(b->at, e, "Dot expected axes of one size, not of %d and %d", (int)x->dim[axis[0]],
                            (int)y->dim[axis[1]]);
    if (x->rank + y->rank - 2 > PS_MAX_RANK)
        return nn_json_fail(b->at, e, "Dot of inputs with %d and %d dimensions: expected fewer", x->rank, y->rank);
    b->out = (struct nn_type){.dtype = NN_FLOAT};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < b->in[k]->type.rank; i++)
            if (i != axis[k])
                b->out.dim[b->out.rank++] = b->in[k]->type.dim[i];
    if (b->out.rank == 0)
        b->out.dim[b->out.rank++] = 1;
    return PS_OK;
}

static int dot_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct dot *c = NN_CONFIG(struct dot, nn_emit_layer(m, call));
    struct nn_dot attr;
    int in[2], y;
    for (int k = 0; k < 2; k++) {
        attr.axis[k] = 1 + nn_axis_of(c->axis[k], nn_emit_type(m, call->in[k])->rank);
        const struct nn_unit_length unit = {attr.axis[k], c->keras2 ? 1e-6f : 1e-7f};
        in[k] = nn_emit_tensor(m, call->in[k]);
        if (c->normalize)
            nn_tape_put(m->tape, &nn_op_unit_length, &unit, sizeof unit, &in[k], 1, &in[k], 1);
    }
    nn_tape_put(m->tape, &nn_op_dot, &attr, sizeof attr, in, 2, &y, 1);
    return y;
}

const struct nn_layer_class nn_layer_dot = {"Dot", sizeof(struct dot), keys, dot_build, dot_emit};
