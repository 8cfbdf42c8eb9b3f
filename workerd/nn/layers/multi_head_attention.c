// SPDX-License-Identifier: Apache-2.0
//
// Attention of a query's steps (i) over a value's (j). Without a key, the value is the key.
#include <math.h>

#include "workerd/nn/layer.h"
#include "workerd/nn/ops/attention.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/mask.h"

struct multi_head_attention {
    int heads, key_dim, value_dim;  // value_dim 0: as key_dim
    bool use_bias;
    double dropout;  // of the weights by which the values are summed
    bool keras2;
};

enum { ATTENTION_MASK = 3 };  // of the call's masks: that of each pair of steps

#define AT(member) NN_AT(struct multi_head_attention, member)
static const struct nn_key keys[] = {
    {"num_heads", NN_KEY_SIZE, AT(heads), .required = true},
    {"key_dim", NN_KEY_SIZE, AT(key_dim), .required = true},
    {"value_dim", NN_KEY_SIZE, AT(value_dim)},
    {"use_bias", NN_KEY_BOOL, AT(use_bias), .fallback = 1},
    {"dropout", NN_KEY_REAL, AT(dropout), .min = 0, .max = 1},
    {"attention_axes", NN_KEY_BY_BUILD},
    {"seed", NN_KEY_NONE},
    {"query_shape", NN_KEY_NONE},
    {"key_shape", NN_KEY_NONE},
    {"value_shape", NN_KEY_NONE},
    {"softmax_robust_masking", NN_KEY_NONE},
    {"flash_attention", NN_KEY_NONE},
    {"output_shape", NN_KEY_REFUSED},
    {"use_gate", NN_KEY_REFUSED},
    {"sliding_window", NN_KEY_REFUSED},
    {"kernel_initializer", NN_KEY_INITIALIZER},
    {"bias_initializer", NN_KEY_INITIALIZER},
    {"kernel_regularizer", NN_KEY_BY_BUILD},
    {"bias_regularizer", NN_KEY_BY_BUILD},
    {"activity_regularizer", NN_KEY_BY_BUILD},
    {"kernel_constraint", NN_KEY_BY_BUILD},
    {"bias_constraint", NN_KEY_BY_BUILD},
    {NULL},
};

// ---- build --------------------------------------------------------------------------------------------------------

static enum ps_code attention_build_pair(struct nn_building *b, const char *kernel, const char *bias,
                                         const struct nn_type *shape, int given, struct ps_error *e)
{
    struct nn_type outputs = {.dtype = NN_FLOAT, .rank = shape->rank - given};
    for (int i = given; i < shape->rank; i++)
        outputs.dim[i - given] = shape->dim[i];
    if (nn_build_variable(b, kernel, "GlorotUniform", shape, e))
        return e->code;
    return NN_CONFIG(struct multi_head_attention, b->layer)->use_bias ? nn_build_variable(b, bias, "Zeros", &outputs, e)
                                                                      : PS_OK;
}

static enum ps_code attention_build_variables(struct nn_building *b, struct ps_error *e)
{
    const struct multi_head_attention *c = NN_CONFIG(struct multi_head_attention, b->layer);
    const int64_t d = b->in[0]->type.dim[1], dv = b->in[1]->type.dim[1], dk = b->in[b->n_in - 1]->type.dim[1];
    const int value_dim = c->value_dim ? c->value_dim : c->key_dim;
    const struct nn_type query = {NN_FLOAT, 3, {d, c->heads, c->key_dim}},
                         key = {NN_FLOAT, 3, {dk, c->heads, c->key_dim}};
    const struct nn_type value = {NN_FLOAT, 3, {dv, c->heads, value_dim}},
                         output = {NN_FLOAT, 3, {c->heads, value_dim, d}};
    if (attention_build_pair(b, "query/kernel", "query/bias", &query, 1, e) ||
        attention_build_pair(b, "key/kernel", "key/bias", &key, 1, e) ||
        attention_build_pair(b, "value/kernel", "value/bias", &value, 1, e))
        return e->code;
    return attention_build_pair(b, "attention_output/kernel", "attention_output/bias", &output, 2, e);
}

// null, or Keras's [1], which is all that there are.
static enum ps_code attention_check_axes(const struct nn_building *b, struct ps_error *e)
{
    struct nn_json axes = nn_json_member(b->config, "attention_axes"), first = nn_json_element(&axes, 0);
    const bool one = json_array_size(axes.value) == 1 && json_integer_value(first.value) == 1;
    return one || !nn_json_given(&axes) ? PS_OK : nn_json_expected(&axes, e, "null or [1]");
}

// (i, j), or (1, j) of all i.
static enum ps_code attention_check_mask(const struct nn_building *b, struct ps_error *e)
{
    const int mask = b->mask[ATTENTION_MASK];
    const int64_t i = b->in[0]->type.dim[0], j = b->in[1]->type.dim[0];
    if (mask < 0)
        return PS_OK;
    const struct nn_type *type = &b->model->value[mask].type;
    return type->rank == 2 && (type->dim[0] == i || type->dim[0] == 1) && type->dim[1] == j
               ? PS_OK
               : nn_json_fail(b->at, e, "MultiHeadAttention expects an attention_mask of shape (%d, %d)", (int)i,
                              (int)j);
}

// Keras 3 takes the masks off what it reads.
static void attention_drop_masks(struct nn_building *b)
{
    for (int i = 0; i < b->n_in && !nn_setting_is_keras2(b->at); i++)
        b->model->value[b->value[i]].mask = -1;
}

static enum ps_code multi_head_attention_build(struct nn_building *b, struct ps_error *e)
{
    struct multi_head_attention *c = b->layer->config;
    if (b->n_in < 2 || b->n_in > 3)
        return nn_json_fail(b->at, e,
                            "MultiHeadAttention takes a query, a value and, if it is another, a key, not %d "
                            "inputs",
                            b->n_in);
    for (int i = 0; i < b->n_in; i++)
        if (b->in[i]->type.rank != 2)
            return nn_json_fail(b->at, e, "MultiHeadAttention expects inputs of shape (steps, features)");
    if (b->n_in == 3 && b->in[1]->type.dim[0] != b->in[2]->type.dim[0])
        return nn_json_fail(b->at, e, "MultiHeadAttention expects a value and a key of as many steps");
    if (attention_check_axes(b, e) || attention_check_mask(b, e))
        return e->code;
    b->out = b->in[0]->type;
    attention_drop_masks(b);
    c->keras2 = nn_setting_is_keras2(b->at);
    return attention_build_variables(b, e);
}

// ---- emit ---------------------------------------------------------------------------------------------------------

// x (n, t, in) by kernel (in, ...), whose last dimensions are `out` elements, and its bias: (n, t, out).
static int attention_project(struct nn_emitter *m, const struct nn_call *call, int k, int x, int64_t in, int64_t out)
{
    const bool bias = NN_CONFIG(struct multi_head_attention, nn_emit_layer(m, call))->use_bias;
    const struct nn_dense attr = {.bias = bias};
    const struct nn_type kernel = {NN_FLOAT, 2, {in, out}}, flat = {NN_FLOAT, 1, {out}};
    int operands[3] = {x, nn_tape_view(m->tape, nn_emit_variable(m, call, (1 + bias) * k), &kernel)}, y;
    if (bias)
        operands[2] = nn_tape_view(m->tape, nn_emit_variable(m, call, 2 * k + 1), &flat);
    nn_tape_put(m->tape, &nn_op_dense, &attr, sizeof attr, operands, 2 + bias, &y, 1);
    return y;
}

// Projection k of input i: (n, t, heads, size). Keras has a layer for each, with the activity regularizer of this one.
static int attention_heads(struct nn_emitter *m, const struct nn_call *call, int k, int i, int64_t size)
{
    const int64_t heads = NN_CONFIG(struct multi_head_attention, nn_emit_layer(m, call))->heads;
    const struct nn_type *in = nn_emit_type(m, call->in[i]);
    const int y = attention_project(m, call, k, nn_emit_tensor(m, call->in[i]), in->dim[1], heads * size);
    nn_emit_activity(m, nn_emit_layer(m, call), y);
    return nn_emit_view(m, y, &(struct nn_type){NN_FLOAT, 3, {in->dim[0], heads, size}});
}

// Where both are, of masks of which the one may have one place for all of the other's.
static int attention_both(struct nn_emitter *m, int a, int b)
{
    const struct nn_binary attr = {NN_B_MINIMUM};
    if (a >= 0 && b >= 0)
        nn_tape_put(m->tape, &nn_op_binary, &attr, sizeof attr, (int[]){a, b}, 2, &a, 1);
    return a >= 0 ? a : b;
}

// Of the value and the key by j, and of each pair: (n, j), or (n, i, j).
static int attention_mask(struct nn_emitter *m, const struct nn_call *call, bool *pairs)
{
    const int64_t j = nn_emit_type(m, call->in[1])->dim[0];
    const struct nn_type one = {NN_FLOAT, 2, {1, j}}, all = {NN_FLOAT, 1, {j}};
    const double zero = 0;
    int steps = attention_both(m, nn_emit_mask(m, call, 1), call->n_in == 3 ? nn_emit_mask(m, call, 2) : -1);
    int given = nn_emit_mask(m, call, ATTENTION_MASK);
    *pairs = given >= 0 && nn_emit_type(m, call->mask[ATTENTION_MASK])->dim[0] != 1;
    if (given < 0)
        return steps;
    nn_tape_put(m->tape, &nn_op_not_equal, &zero, sizeof zero, &given, 1, &given, 1);
    given = attention_both(m, given, steps >= 0 ? nn_emit_view(m, steps, &one) : -1);
    return *pairs ? given : nn_emit_view(m, given, &all);
}

// The weights: what counts, and, while it is trained, what is not dropped.
static int attention_softmax(struct nn_emitter *m, const struct nn_call *call, int s)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const struct multi_head_attention *c = NN_CONFIG(struct multi_head_attention, l);
    const struct nn_dropout drop = {(float)c->dropout, call->stream};
    // Keras 3 has a Softmax that takes masks where it drops weights, and the backend's own attention where it does not.
    struct nn_attention_softmax attr = {.causal = call->flag, .zero_unseen = c->dropout > 0 && !c->keras2};
    const int query = nn_emit_mask(m, call, 0), other = attention_mask(m, call, &attr.by_both);
    int in[3] = {s}, n = 1;
    attr.by_i = query >= 0;
    attr.by_j = other >= 0 && !attr.by_both;
    if (attr.by_i)
        in[n++] = query;
    if (other >= 0)
        in[n++] = other;
    nn_tape_put(m->tape, &nn_op_attention_softmax, &attr, sizeof attr, in, n, &s, 1);
    if (m->training && drop.rate > 0)
        nn_tape_put(m->tape, &nn_op_dropout, &drop, sizeof drop, (int[]){s, nn_emit_examples(m)}, 2, &s, 1);
    return s;
}

static int multi_head_attention_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct multi_head_attention *c = NN_CONFIG(struct multi_head_attention, nn_emit_layer(m, call));
    const int64_t value_dim = c->value_dim ? c->value_dim : c->key_dim;
    const int64_t steps = nn_emit_type(m, call->in[0])->dim[0], d = nn_emit_type(m, call->in[0])->dim[1];
    const struct nn_attention scaled = {.scale = 1 / sqrtf((float)c->key_dim)}, plain = {.scale = 1};
    const int query = attention_heads(m, call, 0, 0, c->key_dim);
    const int key = attention_heads(m, call, 1, call->n_in - 1, c->key_dim);
    const int value = attention_heads(m, call, 2, 1, value_dim);
    int s, y;
    nn_tape_put(m->tape, &nn_op_attention_scores, &scaled, sizeof scaled, (int[]){query, key}, 2, &s, 1);
    s = attention_softmax(m, call, s);
    nn_tape_put(m->tape, &nn_op_attention_sum, &plain, sizeof plain, (int[]){s, value}, 2, &y, 1);
    y = nn_emit_view(m, y, &(struct nn_type){NN_FLOAT, 2, {steps, c->heads * value_dim}});
    y = attention_project(m, call, 3, y, c->heads * value_dim, d);
    if (c->keras2)  // where it is the last projection's, and this layer's own
        nn_emit_activity(m, nn_emit_layer(m, call), y);
    return y;
}

static const struct nn_argument arguments[] = {{"query", NN_ARG_INPUT, 0},
                                               {"value", NN_ARG_INPUT, 0},
                                               {"key", NN_ARG_INPUT, 0},
                                               {"query_mask", NN_ARG_MASK, 0},
                                               {"value_mask", NN_ARG_MASK, 1},
                                               {"key_mask", NN_ARG_MASK, 2},
                                               {"attention_mask", NN_ARG_MASK, ATTENTION_MASK},
                                               {"use_causal_mask", NN_ARG_FLAG, 0},
                                               {NULL}};

const struct nn_layer_class nn_layer_multi_head_attention = {.name = "MultiHeadAttention",
                                                             .config_bytes = sizeof(struct multi_head_attention),
                                                             .keys = keys,
                                                             .build = multi_head_attention_build,
                                                             .emit = multi_head_attention_emit,
                                                             .passes_mask = true,
                                                             .arguments = arguments};
