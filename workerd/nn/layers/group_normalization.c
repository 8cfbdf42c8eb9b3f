// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layers/normalization.h"

struct group_normalization {
    struct normalization n;
    int groups;  // -1: one of each channel; set by build
};

static const struct nn_key keys[] = {
    {"groups", NN_KEY_NONE},  // read where the channels are known
    {"axis", NN_KEY_LAST_AXIS},
    NORMALIZATION_KEYS(struct group_normalization),
    {NULL},
};

static enum ps_code group_normalization_groups(const struct nn_building *b, int channels, int *groups,
                                               struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, "groups");
    int64_t n = 32;
    if (nn_json_given(&at) && nn_json_int(&at, -1, NN_MAX_ELEMENTS, &n, e))
        return e->code;
    *groups = (int)n;
    return n == -1 || (n > 0 && channels % n == 0)
               ? PS_OK
               : nn_json_expected(&at, e, "a number that divides the %d channels, or -1", channels);
}

static enum ps_code group_normalization_build(struct nn_building *b, struct ps_error *e)
{
    struct group_normalization *c = b->layer->config;
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    const struct nn_type channels = {NN_FLOAT, 1, {b->out.dim[b->out.rank - 1]}};
    if (group_normalization_groups(b, (int)channels.dim[0], &c->groups, e))
        return e->code;
    return normalization_build_parameters(b, &c->n, &channels, e);
}

// x as (rows, what lies between, groups, channels of a group).
static int group_normalization_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct group_normalization *c = NN_CONFIG(struct group_normalization, nn_emit_layer(m, call));
    const struct nn_type *x = nn_emit_type(m, call->in[0]);
    const int64_t channels = x->dim[x->rank - 1], groups = c->groups == -1 ? channels : c->groups;
    struct nn_normalize attr = {.dim = {m->rows, 1, groups, channels / groups},
                                .statistic = {[0] = true, [2] = true},
                                .parameter = {[2] = true, [3] = true}};
    int statistic[2];
    for (int i = 0; i < x->rank - 1; i++)
        attr.dim[1] *= x->dim[i];
    return normalization_emit(m, call, &c->n, &attr, statistic);
}

const struct nn_layer_class nn_layer_group_normalization = {
    "GroupNormalization",      sizeof(struct group_normalization), keys,
    group_normalization_build, group_normalization_emit,           .passes_mask = true};
