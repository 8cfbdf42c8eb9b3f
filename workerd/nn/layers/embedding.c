// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/embedding.h"
#include "workerd/nn/layer.h"
#include "workerd/nn/ops/mask.h"

struct embedding {
    int input_dim, output_dim;
    bool mask_zero;
};

static const struct nn_key keys[] = {
    {"input_dim", NN_KEY_SIZE, NN_AT(struct embedding, input_dim), .required = true},
    {"output_dim", NN_KEY_SIZE, NN_AT(struct embedding, output_dim), .required = true},
    {"embeddings_initializer", NN_KEY_INITIALIZER},
    {"embeddings_regularizer", NN_KEY_BY_BUILD},
    {"embeddings_constraint", NN_KEY_BY_BUILD},
    {"mask_zero", NN_KEY_BOOL, NN_AT(struct embedding, mask_zero)},
    {"input_length", NN_KEY_NONE},
    {"quantization_config", NN_KEY_REFUSED},
    {"sparse", NN_KEY_REFUSED},
    {"activity_regularizer", NN_KEY_BY_BUILD},
    {"lora_rank", NN_KEY_REFUSED},
    {NULL},
};

static enum ps_code embedding_build(struct nn_building *b, struct ps_error *e)
{
    const struct embedding *c = NN_CONFIG(struct embedding, b->layer);
    if (nn_build_inputs(b, 1, e))
        return e->code;
    const struct nn_type *in = &b->in[0]->type;
    if (in->rank == PS_MAX_RANK)
        return nn_json_fail(b->at, e, "Embedding expects an input of at most %d dimensions", PS_MAX_RANK - 1);
    if (b->in[0]->below > c->input_dim)
        return nn_json_fail(b->at, e, "Embedding has %d rows, but its input's numbers go up to %lld", c->input_dim,
                            (long long)b->in[0]->below - 1);
    nn_build_ids(b, c->input_dim);
    b->out = *in;
    b->out.dtype = NN_FLOAT;
    b->out.dim[b->out.rank++] = c->output_dim;
    if (c->mask_zero) {
        b->out_mask = NN_NEW_MASK;
        b->new_mask = *in;
        b->new_mask.dtype = NN_FLOAT;
    }
    const struct nn_type table = {NN_FLOAT, 2, {c->input_dim, c->output_dim}};
    return nn_build_table(b, "embeddings", "RandomUniform", &table, e);
}

static int embedding_emit(struct nn_emitter *m, const struct nn_call *call)
{
    int ids = nn_emit_tensor(m, call->in[0]), y;
    if (nn_emit_type(m, call->in[0])->dtype == NN_FLOAT)
        nn_tape_put(m->tape, &nn_op_truncate, NULL, 0, &ids, 1, &ids, 1);
    nn_tape_put(m->tape, &nn_op_embedding, NULL, 0, (int[]){nn_emit_variable(m, call, 0), ids}, 2, &y, 1);
    return y;
}

// By the input as it is: of 0.5, which reads row 0, Keras says that it is not 0.
static int embedding_mask(struct nn_emitter *m, const struct nn_call *call)
{
    const double zero = 0;
    int ids = nn_emit_tensor(m, call->in[0]), mask;
    nn_tape_put(m->tape, &nn_op_not_equal, &zero, sizeof zero, &ids, 1, &mask, 1);
    return mask;
}

const struct nn_layer_class nn_layer_embedding = {.name = "Embedding",
                                                  .config_bytes = sizeof(struct embedding),
                                                  .keys = keys,
                                                  .build = embedding_build,
                                                  .emit = embedding_emit,
                                                  .integers = true,
                                                  .mask = embedding_mask};
