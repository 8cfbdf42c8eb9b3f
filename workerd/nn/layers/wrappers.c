// SPDX-License-Identifier: Apache-2.0
//
// Layers around another layer: Bidirectional calls a recurrent one twice, TimeDistributed calls any on each step.
#include "workerd/nn/layers/rnn.h"
#include "workerd/nn/ops/both_ways.h"

#include <stdio.h>
#include <string.h>

// ---- Bidirectional ------------------------------------------------------------------------------------------------

struct bidirectional {
    int merge;  // of `merges`
};

static const char *const merges[] = {"none", "concat", "sum",
                                     "mul",  "ave",    NULL};  // null, a list of both, is the first

static const struct nn_key bidirectional_keys[] = {
    {"layer", NN_KEY_BY_BUILD},
    {"backward_layer", NN_KEY_BY_BUILD},
    {"merge_mode", NN_KEY_CHOICE, NN_AT(struct bidirectional, merge), .words = merges, .fallback = 1},
    {NULL},
};

// "forward_lstm" of a layer that Keras calls lstm, or forward_lstm already.
static void bidirectional_name(const struct nn_json *at, const char *prefix, char *to, size_t size)
{
    const char *word = json_string_value(json_object_get(json_object_get(at->value, "config"), "name"));
    word = word ? word : "";
    snprintf(to, size, "%s%s", strncmp(word, prefix, strlen(prefix)) == 0 ? "" : prefix, word);
}

static enum ps_code bidirectional_build_way(struct nn_building *b, const struct nn_json *at, int way,
                                            struct nn_type *out, struct ps_error *e)
{
    char name[160];
    const struct nn_json backward = nn_json_member(b->config, "backward_layer");
    const bool given = way == 1 && nn_json_given(&backward);
    bidirectional_name(at, way == 0 ? "forward_" : "backward_", name, sizeof name);
    const bool own = given && !nn_setting_is_keras2(b->at);  // Keras 2 renames both
    if (nn_build_inner(b, way, at, own ? NULL : name, &b->in[0]->type, true, out, e))
        return e->code;
    if (!nn_layer_is_recurrent(&b->layer->child[way]))
        return nn_json_fail(at, e, "Bidirectional wraps SimpleRNN, LSTM or GRU");
    struct nn_recurrent *c = b->layer->child[way].config;
    if (b->first && way == 1 && !given)
        c->backwards = true;
    if (b->first)
        c->zero_masked = c->sequences;  // as Keras does
    return PS_OK;
}

// The states of the forward layer, then those of the other.
static void bidirectional_build_states(struct nn_building *b)
{
    for (int way = 0; way < 2; way++)
        for (int k = 0; k < b->inner[way].n_more; k++)
            b->more[b->n_more++] = b->model->value[b->inner[way].more[k]].type;
}

static enum ps_code bidirectional_build(struct nn_building *b, struct ps_error *e)
{
    const struct bidirectional *c = NN_CONFIG(struct bidirectional, b->layer);
    struct nn_json layer = nn_json_member(b->config, "layer"), other = nn_json_member(b->config, "backward_layer");
    struct nn_json mode = nn_json_member(b->config, "merge_mode");
    struct nn_type out[2];
    if (c->merge == 0)
        return nn_json_expected(&mode, e, "concat, sum, mul or ave");
    if (nn_build_inputs(b, 1, e) || bidirectional_build_way(b, &layer, 0, &out[0], e) ||
        bidirectional_build_way(b, nn_json_given(&other) ? &other : &layer, 1, &out[1], e))
        return e->code;
    const struct nn_recurrent *forward = b->layer->child[0].config, *backward = b->layer->child[1].config;
    if (memcmp(&out[0], &out[1], sizeof out[0]) != 0 || forward->backwards == backward->backwards ||
        forward->states != backward->states)
        return nn_json_fail(&other, e,
                            "expected a layer that gives what the first one gives, and goes the other way through the "
                            "steps");
    b->out = out[0];
    b->out.dim[b->out.rank - 1] *= c->merge == 1 ? 2 : 1;
    b->out_mask = forward->sequences ? b->mask[0] : -1;
    bidirectional_build_states(b);
    return PS_OK;
}

static int bidirectional_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct bidirectional *c = NN_CONFIG(struct bidirectional, nn_emit_layer(m, call));
    const struct nn_both_ways attr = {(enum nn_merge)(c->merge - 1)};
    const int x = nn_emit_tensor(m, call->in[0]);
    const int forward = nn_emit_inner(m, call, 0, x, 1), backward = nn_emit_inner(m, call, 1, x, 1);
    int y, n = 0;
    for (int way = 0; way < 2; way++)
        for (int k = 0; k < call->inner[way].n_more; k++)
            *nn_emit_more(m, call, n++) = *nn_emit_more(m, &call->inner[way], k);
    nn_tape_put(m->tape, &nn_op_both_ways, &attr, sizeof attr, (int[]){forward, backward}, 2, &y, 1);
    return y;
}

static const struct nn_argument arguments[] = {{"sequences", NN_ARG_INPUT, 0}, {"mask", NN_ARG_MASK, 0}, {NULL}};

const struct nn_layer_class nn_layer_bidirectional = {.name = "Bidirectional",
                                                      .config_bytes = sizeof(struct bidirectional),
                                                      .keys = bidirectional_keys,
                                                      .build = bidirectional_build,
                                                      .emit = bidirectional_emit,
                                                      .arguments = arguments};

// ---- TimeDistributed ----------------------------------------------------------------------------------------------

static const struct nn_key distributed_keys[] = {{"layer", NN_KEY_BY_BUILD}, {NULL}};

// Steps are rows to the layer inside, which therefore may not look at rows together: Keras gives a BatchNormalization
// those of one step at a time.
static enum ps_code distributed_check(const struct nn_building *b, const struct nn_json *layer, struct ps_error *e)
{
    for (int i = 0; i < b->layer->n_variables; i++)
        if (b->model->variable[b->layer->variable[i]].param.rule)
            return nn_json_fail(layer, e, "TimeDistributed of %s, which has states, is not supported",
                                b->layer->child[0].class->name);
    return PS_OK;
}

static enum ps_code distributed_build(struct nn_building *b, struct ps_error *e)
{
    struct nn_json layer = nn_json_member(b->config, "layer");
    struct nn_type out;
    if (nn_build_inputs(b, 1, e))
        return e->code;
    struct nn_type step = b->in[0]->type;
    if (step.rank < 2)
        return nn_json_fail(b->at, e, "TimeDistributed expects an input of shape (steps, ...)");
    for (int i = 1; i < step.rank; i++)
        step.dim[i - 1] = step.dim[i];
    step.dim[--step.rank] = 0;
    if (nn_build_inner(b, 0, &layer, NULL, &step, false, &out, e) || distributed_check(b, &layer, e))
        return e->code;
    if (!nn_setting_is_keras2(b->at))  // Keras 3 leaves it to the call around a layer, of which there is none here
        b->layer->child[0].activity = (struct nn_regularizer){0, 0};
    if (b->inner[0].n_more)
        return nn_json_fail(&layer, e, "TimeDistributed of a layer with several outputs is not supported");
    if (out.rank == PS_MAX_RANK)
        return nn_json_fail(&layer, e, "expected a layer that gives at most %d dimensions", PS_MAX_RANK - 1);
    b->out = out;
    b->out.rank++;
    for (int i = out.rank; i > 0; i--)
        b->out.dim[i] = out.dim[i - 1];
    b->out.dim[0] = b->in[0]->type.dim[0];
    return PS_OK;
}

static int distributed_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_type *in = nn_emit_type(m, call->in[0]);
    struct nn_type rows = {.dtype = in->dtype, .rank = in->rank, .dim = {m->rows * in->dim[0]}};
    for (int i = 1; i < in->rank; i++)
        rows.dim[i] = in->dim[i];
    const int x = nn_tape_view(m->tape, nn_emit_tensor(m, call->in[0]), &rows);
    const int y = nn_emit_inner(m, call, 0, x, (int)in->dim[0]);
    return nn_emit_view(m, y, nn_emit_type(m, call->out));
}

const struct nn_layer_class nn_layer_time_distributed = {.name = "TimeDistributed",
                                                         .keys = distributed_keys,
                                                         .build = distributed_build,
                                                         .emit = distributed_emit,
                                                         .passes_mask = true,
                                                         .integers = true};
