// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/layers/categories.h"
#include "workerd/nn/ops/lookup.h"

struct discretization {
    int mode;
    int64_t n;
    float boundary[];
};

static const char *const modes[] = {"int", "one_hot", "multi_hot", "count", NULL};

static const struct nn_key keys[] = {
    {"bin_boundaries", NN_KEY_BY_BUILD},
    {"num_bins", NN_KEY_NONE},
    {"epsilon", NN_KEY_NONE},
    {"output_mode", NN_KEY_CHOICE, NN_AT(struct discretization, mode), .words = modes, .fallback = NN_AS_INT},
    {"sparse", NN_KEY_REFUSED},
    {NULL}};

// Ascending; adapt() puts them into the document, too.
static enum ps_code discretization_read(struct nn_building *b, struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, "bin_boundaries");
    struct discretization *c = b->layer->config;
    size_t n;
    if (nn_json_array(&at, &n, e))
        return e->code;
    c = ps_try_alloc_array(1, sizeof *c + n * sizeof *c->boundary);
    if (!c)
        return ps_no_memory(e, "bin_boundaries");
    c->mode = NN_CONFIG(struct discretization, b->layer)->mode;
    c->n = (int64_t)n;
    free(b->layer->config);
    b->layer->config = c;
    for (size_t i = 0; i < n; i++) {
        struct nn_json one = nn_json_element(&at, i);
        double v;
        if (nn_json_real(&one, -1e38, 1e38, &v, e))
            return e->code;
        c->boundary[i] = (float)v;
        if (i > 0 && c->boundary[i] < c->boundary[i - 1])
            return nn_json_expected(&one, e, "boundaries that ascend");
    }
    return PS_OK;
}

static enum ps_code discretization_build(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e) || (b->first && discretization_read(b, e)))
        return e->code;
    const struct discretization *c = NN_CONFIG(struct discretization, b->layer);
    return nn_categories_build(b, (enum nn_encoding)c->mode, c->n + 1, e);
}

static int discretization_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct discretization *c = NN_CONFIG(struct discretization, nn_emit_layer(m, call));
    const struct nn_bins attr = {c->boundary, c->n};
    int x = nn_emit_tensor(m, call->in[0]);
    nn_tape_put(m->tape, &nn_op_bins, &attr, sizeof attr, &x, 1, &x, 1);
    return nn_categories_emit(m, call, (enum nn_encoding)c->mode, c->n + 1, x, -1);
}

const struct nn_layer_class nn_layer_discretization = {.name = "Discretization",
                                                       .config_bytes = sizeof(struct discretization),
                                                       .keys = keys,
                                                       .build = discretization_build,
                                                       .emit = discretization_emit,
                                                       .any_dtype = true};
