// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layers/normalization.h"

struct layer_normalization {
    struct normalization n;
    int axes;  // how many of the last ones; set by build
};

static const struct nn_key keys[] = {
    {"axis", NN_KEY_NONE},  // read where the input is known
    NORMALIZATION_KEYS(struct layer_normalization),
    {"rms_scaling", NN_KEY_REFUSED},
    {NULL},
};

// Of axes that are the last ones of the input, how many: -1 is one, a list may have more.
static enum ps_code layer_normalization_axes(const struct nn_building *b, int *axes, struct ps_error *e)
{
    struct nn_json axis = nn_json_member(b->config, "axis");
    const int rank = b->in[0]->type.rank;
    const size_t n = json_is_array(axis.value) ? json_array_size(axis.value) : 1;
    bool last = n > 0 && n <= (size_t)rank;
    for (size_t i = 0; last && i < n && nn_json_given(&axis); i++) {
        const json_t *one = json_is_array(axis.value) ? json_array_get(axis.value, i) : axis.value;
        const json_int_t want = (json_int_t)rank - (json_int_t)(n - 1 - i);
        last = json_is_integer(one) && (json_integer_value(one) == want || json_integer_value(one) == want - rank - 1);
    }
    *axes = (int)n;
    return last ? PS_OK : nn_json_expected(&axis, e, "the last axis or axes of the input: -1, or a list like [-2, -1]");
}

static enum ps_code layer_normalization_build(struct nn_building *b, struct ps_error *e)
{
    struct layer_normalization *c = b->layer->config;
    if (nn_build_inputs(b, 1, e) || layer_normalization_axes(b, &c->axes, e))
        return e->code;
    b->out = b->in[0]->type;
    struct nn_type elements = {.dtype = NN_FLOAT, .rank = c->axes};
    for (int i = 0; i < c->axes; i++)
        elements.dim[i] = b->out.dim[b->out.rank - c->axes + i];
    return normalization_build_parameters(b, &c->n, &elements, e);
}

// x as (rows and what comes before the axes, the axes).
static int layer_normalization_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct layer_normalization *c = NN_CONFIG(struct layer_normalization, nn_emit_layer(m, call));
    const struct nn_type *x = nn_emit_type(m, call->in[0]);
    struct nn_normalize attr = {.dim = {m->rows, 1, 1, 1}, .statistic = {[0] = true}, .parameter = {[1] = true}};
    int statistic[2];
    for (int i = 0; i < x->rank; i++)
        attr.dim[i < x->rank - c->axes ? 0 : 1] *= x->dim[i];
    return normalization_emit(m, call, &c->n, &attr, statistic);
}

const struct nn_layer_class nn_layer_layer_normalization = {
    "LayerNormalization",      sizeof(struct layer_normalization), keys,
    layer_normalization_build, layer_normalization_emit,           .passes_mask = true};
