// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layers/categories.h"
#include "workerd/nn/ops/embedding.h"
#include "workerd/nn/ops/lookup.h"

// ---- what makes numbers -------------------------------------------------------------------------------------------

static bool categories_are_summed(enum nn_encoding encoding)
{
    return encoding > NN_AS_ONE_HOT;
}

enum ps_code nn_categories_build(struct nn_building *b, enum nn_encoding encoding, int64_t depth, struct ps_error *e)
{
    b->out = b->in[0]->type;
    b->out.dtype = encoding == NN_AS_INT ? NN_INT32 : NN_FLOAT;
    if (encoding == NN_AS_INT) {
        b->below = depth;
        return PS_OK;
    }
    if (categories_are_summed(encoding) && b->out.rank != 1)
        return nn_json_fail(b->at, e, "%s that sums the places of an example expects an input of shape (n)",
                            b->layer->class->name);
    if (!categories_are_summed(encoding) && b->out.dim[b->out.rank - 1] != 1)
        b->out.rank++;
    if (b->out.rank > PS_MAX_RANK)
        return nn_json_fail(b->at, e, "%s expects an input of at most %d dimensions", b->layer->class->name,
                            PS_MAX_RANK - 1);
    b->out.dim[b->out.rank - 1] = depth;
    return PS_OK;
}

int nn_categories_input(struct nn_emitter *m, const struct nn_call *call)
{
    int x = nn_emit_tensor(m, call->in[0]);
    if (nn_emit_type(m, call->in[0])->dtype == NN_FLOAT)
        nn_tape_put(m->tape, &nn_op_truncate, NULL, 0, &x, 1, &x, 1);
    return x;
}

int nn_categories_emit(struct nn_emitter *m, const struct nn_call *call, enum nn_encoding encoding, int64_t depth,
                       int numbers, int weights)
{
    const struct nn_places attr = {depth, categories_are_summed(encoding), encoding == NN_AS_MULTI_HOT};
    int y;
    if (encoding == NN_AS_INT)
        return numbers;
    nn_tape_put(m->tape, &nn_op_places, &attr, sizeof attr, (int[]){numbers, weights}, 1 + (weights >= 0), &y, 1);
    return nn_emit_view(m, y, nn_emit_type(m, call->out));
}

// ---- CategoryEncoding ---------------------------------------------------------------------------------------------

struct category_encoding {
    int depth, mode;
};

static const char *const modes[] = {"int", "one_hot", "multi_hot", "count", NULL};

static const struct nn_key keys[] = {
    {"num_tokens", NN_KEY_SIZE, NN_AT(struct category_encoding, depth), .required = true},
    {"output_mode", NN_KEY_CHOICE, NN_AT(struct category_encoding, mode), .words = modes, .fallback = NN_AS_MULTI_HOT},
    {"sparse", NN_KEY_REFUSED},
    {NULL}};

// A number that has no place is an error where a batch brings it, as Keras 2 has it.
static enum ps_code category_encoding_build(struct nn_building *b, struct ps_error *e)
{
    const struct category_encoding *c = NN_CONFIG(struct category_encoding, b->layer);
    struct nn_json mode = nn_json_member(b->config, "output_mode");
    if (c->mode == NN_AS_INT)
        return nn_json_expected(&mode, e, "one_hot, multi_hot or count");
    if (b->n_in == 2 && c->mode != NN_AS_COUNT)
        return nn_json_expected(&mode, e, "count, where a call has count_weights");
    if (b->n_in != 2 && nn_build_inputs(b, 1, e))
        return e->code;
    if (b->n_in == 2 && (b->in[1]->type.rank != b->in[0]->type.rank || b->in[1]->type.dtype != NN_FLOAT ||
                         b->in[1]->type.dim[0] != b->in[0]->type.dim[0]))
        return nn_json_fail(b->at, e, "expected count_weights of the input's shape, floats");
    nn_build_ids(b, c->depth);
    return nn_categories_build(b, (enum nn_encoding)c->mode, c->depth, e);
}

static int category_encoding_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct category_encoding *c = NN_CONFIG(struct category_encoding, nn_emit_layer(m, call));
    return nn_categories_emit(m, call, (enum nn_encoding)c->mode, c->depth, nn_categories_input(m, call),
                              call->n_in == 2 ? nn_emit_tensor(m, call->in[1]) : -1);
}

static const struct nn_argument arguments[] = {{"inputs", NN_ARG_INPUT, 0}, {"count_weights", NN_ARG_INPUT, 0}, {NULL}};

const struct nn_layer_class nn_layer_category_encoding = {.name = "CategoryEncoding",
                                                          .config_bytes = sizeof(struct category_encoding),
                                                          .keys = keys,
                                                          .build = category_encoding_build,
                                                          .emit = category_encoding_emit,
                                                          .arguments = arguments,
                                                          .integers = true,
                                                          .any_dtype = true};
