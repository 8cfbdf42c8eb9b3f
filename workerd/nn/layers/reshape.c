// SPDX-License-Identifier: Apache-2.0
//
// The layers that change shapes alone: Reshape, Permute, RepeatVector.
#include "workerd/nn/layer.h"
#include "workerd/nn/ops/transpose.h"

// ---- Reshape ------------------------------------------------------------------------------------------------------

static const struct nn_key reshape_keys[] = {{"target_shape", NN_KEY_NONE}, {NULL}};

// Dimensions of one example; one may be -1: what is left for it. Sets b->out.
static enum ps_code reshape_read(struct nn_building *b, const struct nn_json *at, size_t n, struct ps_error *e)
{
    int64_t all = (int64_t)nn_type_count(&b->in[0]->type), known = 1;
    int open = -1;
    b->out = (struct nn_type){.dtype = b->in[0]->type.dtype, .rank = (int)n};
    for (size_t i = 0; i < n; i++) {
        struct nn_json one = nn_json_element(at, i);
        if (nn_json_int(&one, -1, NN_MAX_ELEMENTS, &b->out.dim[i], e))
            return e->code;
        if (b->out.dim[i] == 0 || (b->out.dim[i] == -1 && open >= 0))
            return nn_json_expected(&one, e, "a size of 1 or more, or -1 in one place");
        open = b->out.dim[i] == -1 ? (int)i : open;
        known *= b->out.dim[i] == -1 ? 1 : b->out.dim[i];
        if (known > all)
            break;
    }
    if (known > all || (open < 0 ? known != all : all % known != 0))
        return nn_json_fail(at, e, "expected a shape of the %lld elements that the input has", (long long)all);
    if (open >= 0)
        b->out.dim[open] = all / known;
    return PS_OK;
}

static enum ps_code reshape_build(struct nn_building *b, struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, "target_shape");
    size_t n;
    if (nn_build_inputs(b, 1, e) || nn_json_array(&at, &n, e))
        return e->code;
    return n >= 1 && n <= PS_MAX_RANK ? reshape_read(b, &at, n, e)
                                      : nn_json_expected(&at, e, "1 to %d dimensions", PS_MAX_RANK);
}

// Memory is the same, seen differently.
static int reshape_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_view(m, nn_emit_tensor(m, call->in[0]), nn_emit_type(m, call->out));
}

const struct nn_layer_class nn_layer_reshape = {"Reshape",       0, reshape_keys, reshape_build, reshape_emit,
                                                .integers = true};

// ---- Permute ------------------------------------------------------------------------------------------------------

struct permute {
    int from[PS_MAX_RANK];  // dimensions of the example; set by build
};

static const struct nn_key permute_keys[] = {{"dims", NN_KEY_NONE}, {NULL}};

static enum ps_code permute_build(struct nn_building *b, struct ps_error *e)
{
    struct permute *c = b->layer->config;
    struct nn_json at = nn_json_member(b->config, "dims");
    unsigned seen = 0;
    size_t n;
    if (nn_build_inputs(b, 1, e) || nn_json_array(&at, &n, e))
        return e->code;
    const struct nn_type *in = &b->in[0]->type;
    b->out = *in;
    for (size_t i = 0; i < n && n == (size_t)in->rank; i++) {
        struct nn_json one = nn_json_element(&at, i);
        int64_t axis;
        if (nn_json_int(&one, 1, in->rank, &axis, e))
            return e->code;
        seen |= 1U << axis;
        c->from[i] = (int)axis - 1;
        b->out.dim[i] = in->dim[axis - 1];
    }
    return seen == (2U << in->rank) - 2 ? PS_OK
                                        : nn_json_expected(&at, e, "each of the numbers 1 to %d once", in->rank);
}

static int permute_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct permute *c = NN_CONFIG(struct permute, nn_emit_layer(m, call));
    struct nn_transpose attr = {{0}};
    int x = nn_emit_tensor(m, call->in[0]);
    for (int i = 0; i < nn_emit_type(m, call->in[0])->rank; i++)
        attr.from[1 + i] = 1 + c->from[i];
    nn_tape_put(m->tape, &nn_op_transpose, &attr, sizeof attr, &x, 1, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_permute = {"Permute",     sizeof(struct permute), permute_keys,
                                                permute_build, permute_emit,           .integers = true};

// ---- RepeatVector -------------------------------------------------------------------------------------------------

struct repeat_vector {
    int n;
};

static const struct nn_key repeat_vector_keys[] = {{"n", NN_KEY_SIZE, NN_AT(struct repeat_vector, n), .required = true},
                                                   {NULL}};

static enum ps_code repeat_vector_build(struct nn_building *b, struct ps_error *e)
{
    const struct repeat_vector *c = NN_CONFIG(struct repeat_vector, b->layer);
    if (nn_build_inputs(b, 1, e))
        return e->code;
    const struct nn_type *in = &b->in[0]->type;
    b->out = (struct nn_type){in->dtype, 2, {c->n, in->dim[0]}};
    return in->rank == 1 ? PS_OK : nn_json_fail(b->at, e, "RepeatVector expected an input of shape (elements,)");
}

static int repeat_vector_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_repeat attr = {NN_CONFIG(struct repeat_vector, nn_emit_layer(m, call))->n};
    int x = nn_emit_tensor(m, call->in[0]);
    nn_tape_put(m->tape, &nn_op_repeat, &attr, sizeof attr, &x, 1, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_repeat_vector = {"RepeatVector",     sizeof(struct repeat_vector),
                                                      repeat_vector_keys, repeat_vector_build,
                                                      repeat_vector_emit, .integers = true};
