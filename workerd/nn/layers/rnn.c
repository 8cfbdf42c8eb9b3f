// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layers/rnn.h"

#include "workerd/nn/ops/noise.h"

#define AT(member) NN_AT(struct nn_recurrent, member)
#define KEYS                                                                                                         \
    {"units", NN_KEY_SIZE, AT(units), .required = true}, {"activation", NN_KEY_FUNCTION, AT(act)},                   \
        {"use_bias", NN_KEY_BOOL, AT(use_bias), .fallback = 1}, {"return_sequences", NN_KEY_BOOL, AT(sequences)},    \
        {"go_backwards", NN_KEY_BOOL, AT(backwards)}, {"zero_output_for_mask", NN_KEY_BOOL, AT(zero_masked)},        \
        {"unroll", NN_KEY_NONE}, {"implementation", NN_KEY_NONE}, {"seed", NN_KEY_NONE}, {"use_cudnn", NN_KEY_NONE}, \
        {"return_state", NN_KEY_BOOL, AT(states)}, {"stateful", NN_KEY_REFUSED}, {"time_major", NN_KEY_REFUSED},     \
        {"dropout", NN_KEY_REAL, AT(dropout), .min = 0, .max = 1}, {"recurrent_dropout", NN_KEY_ONLY_NUMBER},        \
        {"kernel_initializer", NN_KEY_INITIALIZER}, {"recurrent_initializer", NN_KEY_INITIALIZER},                   \
        {"bias_initializer", NN_KEY_INITIALIZER}, {"kernel_regularizer", NN_KEY_BY_BUILD},                           \
        {"recurrent_regularizer", NN_KEY_BY_BUILD}, {"bias_regularizer", NN_KEY_BY_BUILD},                           \
        {"activity_regularizer", NN_KEY_BY_BUILD}, {"kernel_constraint", NN_KEY_BY_BUILD},                           \
        {"recurrent_constraint", NN_KEY_BY_BUILD},                                                                   \
    {                                                                                                                \
        "bias_constraint", NN_KEY_BY_BUILD                                                                           \
    }
#define GATE_KEY                                          \
    {                                                     \
        "recurrent_activation", NN_KEY_FUNCTION, AT(gate) \
    }

static const struct nn_key simple_keys[] = {KEYS, {NULL}};
static const struct nn_key lstm_keys[] = {
    KEYS, GATE_KEY, {"unit_forget_bias", NN_KEY_BOOL, AT(forget_bias), .fallback = 1}, {NULL}};
static const struct nn_key gru_keys[] = {
    KEYS, GATE_KEY, {"reset_after", NN_KEY_BOOL, AT(reset_after), .fallback = 1}, {NULL}};

// ---- build --------------------------------------------------------------------------------------------------------

static int rnn_gates(const struct nn_layer *l)
{
    return l->class == &nn_layer_lstm ? 4 : l->class == &nn_layer_gru ? 3 : 1;
}

bool nn_layer_is_recurrent(const struct nn_layer *l)
{
    return l->class == &nn_layer_lstm || l->class == &nn_layer_gru || l->class == &nn_layer_simple_rnn;
}

// Ours of an activation; absent, it is Keras's default. Of hard_sigmoid, the two Kerases mean two things.
static enum ps_code rnn_read_function(struct nn_building *b, const char *key, enum nn_function_kind fallback,
                                      struct nn_function *f, enum nn_rnn_function *to, struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, key);
    const enum nn_function_kind kind = at.value ? f->kind : fallback;
    const bool hard = kind == NN_F_RAMP && f->b == 0.5f && f->c == 0 && (f->a == 0.2f || f->a == 1 / 6.0f);
    *to = kind == NN_F_TANH      ? NN_RNN_TANH
          : kind == NN_F_SIGMOID ? NN_RNN_SIGMOID
          : kind == NN_F_RELU    ? NN_RNN_RELU
          : hard && f->a == 0.2f ? NN_RNN_HARD_SIGMOID2
          : hard                 ? NN_RNN_HARD_SIGMOID
                                 : NN_RNN_LINEAR;
    if (*to == NN_RNN_LINEAR && kind != NN_F_LINEAR)
        return nn_json_expected(&at, e, "tanh, sigmoid, relu, hard_sigmoid or linear");
    return PS_OK;
}

static enum ps_code rnn_read_functions(struct nn_building *b, struct ps_error *e)
{
    struct nn_recurrent *c = b->layer->config;
    if (rnn_read_function(b, "activation", NN_F_TANH, &c->act, &c->rnn_act, e))
        return e->code;
    return rnn_read_function(b, "recurrent_activation", NN_F_SIGMOID, &c->gate, &c->rnn_gate, e);
}

static enum ps_code rnn_build_variables(struct nn_building *b, const char *const name[3], struct ps_error *e)
{
    const struct nn_recurrent *c = NN_CONFIG(struct nn_recurrent, b->layer);
    const int64_t width = (int64_t)rnn_gates(b->layer) * c->units;
    const struct nn_type kernel = {NN_FLOAT, 2, {b->in[0]->type.dim[1], width}};
    const struct nn_type recurrent = {NN_FLOAT, 2, {c->units, width}};
    const struct nn_type bias =
        c->reset_after ? (struct nn_type){NN_FLOAT, 2, {2, width}} : (struct nn_type){NN_FLOAT, 1, {width}};
    if (nn_build_variable(b, name[0], "GlorotUniform", &kernel, e) ||
        nn_build_variable(b, name[1], "Orthogonal", &recurrent, e) ||
        (c->use_bias && nn_build_variable(b, name[2], "Zeros", &bias, e)))
        return e->code;
    if (c->use_bias && c->forget_bias) {
        struct nn_init *init = &b->model->variable[b->layer->variable[2]].init;
        init->ones_begin = (uint64_t)c->units;
        init->ones_end = 2 * (uint64_t)c->units;
    }
    return PS_OK;
}

static int rnn_n_states(const struct nn_layer *l)
{
    return l->class == &nn_layer_lstm ? 2 : 1;
}

// Behind the sequence stand the states before it, if they are given.
static enum ps_code rnn_build_states(struct nn_building *b, struct ps_error *e)
{
    const struct nn_recurrent *c = NN_CONFIG(struct nn_recurrent, b->layer);
    const int states = rnn_n_states(b->layer);
    if (b->n_in != 1 && b->n_in != 1 + states)
        return nn_json_fail(b->at, e, "%s takes a sequence, or a sequence and %d initial state%s, not %d inputs",
                            b->layer->class->name, states, states == 1 ? "" : "s", b->n_in);
    for (int i = 1; i < b->n_in; i++)
        if (b->in[i]->type.rank != 1 || b->in[i]->type.dim[0] != c->units)
            return nn_json_fail(b->at, e, "%s expects initial states of shape (%d)", b->layer->class->name, c->units);
    for (b->n_more = 0; c->states && b->n_more < states; b->n_more++)
        b->more[b->n_more] = (struct nn_type){NN_FLOAT, 1, {c->units}};
    return PS_OK;
}

static enum ps_code rnn_build(struct nn_building *b, const char *const name[3], struct ps_error *e)
{
    const struct nn_recurrent *c = NN_CONFIG(struct nn_recurrent, b->layer);
    if (rnn_build_states(b, e))
        return e->code;
    const struct nn_type *in = &b->in[0]->type;
    if (in->rank != 2)
        return nn_json_fail(b->at, e, "%s expects an input of shape (steps, features)", b->layer->class->name);
    const struct nn_type sequence = {NN_FLOAT, 2, {in->dim[0], c->units}}, last = {NN_FLOAT, 1, {c->units}};
    b->out = c->sequences ? sequence : last;
    b->out_mask = c->sequences ? b->mask[0] : -1;
    // Keras 3 hands a call with states the mask that is named, no other; but the output has it.
    if (b->n_in > 1 && !b->named_mask && !nn_setting_is_keras2(b->at))
        b->mask[0] = -1;
    if (b->first && rnn_read_functions(b, e))
        return e->code;
    return rnn_build_variables(b, name, e);
}

static enum ps_code rnn_build_simple(struct nn_building *b, struct ps_error *e)
{
    static const char *const names[] = {"simple_rnn_cell/kernel", "simple_rnn_cell/recurrent_kernel",
                                        "simple_rnn_cell/bias"};
    return rnn_build(b, names, e);
}

static enum ps_code rnn_build_lstm(struct nn_building *b, struct ps_error *e)
{
    static const char *const names[] = {"lstm_cell/kernel", "lstm_cell/recurrent_kernel", "lstm_cell/bias"};
    return rnn_build(b, names, e);
}

static enum ps_code rnn_build_gru(struct nn_building *b, struct ps_error *e)
{
    static const char *const names[] = {"gru_cell/kernel", "gru_cell/recurrent_kernel", "gru_cell/bias"};
    return rnn_build(b, names, e);
}

// ---- emit ---------------------------------------------------------------------------------------------------------

// What goes in, by its kernel: what is dropped is dropped from all steps of an example.
static int rnn_emit_input(struct nn_emitter *m, const struct nn_call *call, const struct nn_rnn *attr)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const struct nn_recurrent *c = NN_CONFIG(struct nn_recurrent, l);
    const struct nn_noise noise = {NN_NOISE_DROPS, (float)c->dropout, call->stream, {[1] = true}};
    const struct nn_dense dense = {.bias = c->use_bias && !attr->bias};
    const int bias = dense.bias ? nn_emit_variable(m, call, 2) : -1;
    int x = nn_emit_tensor(m, call->in[0]), z;
    if (m->training && c->dropout > 0)
        nn_tape_put(m->tape, &nn_op_noise, &noise, sizeof noise, (int[]){x, nn_emit_examples(m)}, 2, &x, 1);
    nn_tape_put(m->tape, &nn_op_dense, &dense, sizeof dense, (int[]){x, nn_emit_variable(m, call, 0), bias},
                2 + dense.bias, &z, 1);
    return z;
}

static struct nn_rnn rnn_attributes(const struct nn_layer *l, const struct nn_call *call)
{
    const struct nn_recurrent *c = NN_CONFIG(struct nn_recurrent, l);
    const enum nn_rnn_cell gru = c->reset_after ? NN_RNN_GRU_AFTER : NN_RNN_GRU;
    struct nn_rnn attr = {.cell = l->class == &nn_layer_lstm  ? NN_RNN_LSTM
                                  : l->class == &nn_layer_gru ? gru
                                                              : NN_RNN_SIMPLE,
                          .act = c->rnn_act,
                          .gate = c->rnn_gate,
                          .sequences = c->sequences,
                          .backwards = c->backwards,
                          .zero_masked = c->zero_masked,
                          .initial = call->n_in > 1,
                          .states = c->states};
    attr.bias = attr.cell == NN_RNN_GRU_AFTER && c->use_bias;
    return attr;
}

static int rnn_emit(struct nn_emitter *m, const struct nn_call *call)
{
    struct nn_rnn attr = rnn_attributes(nn_emit_layer(m, call), call);
    const int mask = nn_emit_mask(m, call, 0);
    int y[4], n = 0, in[NN_OP_IN];
    attr.mask = mask >= 0;
    in[n++] = rnn_emit_input(m, call, &attr);
    in[n++] = nn_emit_variable(m, call, 1);
    if (attr.bias)
        in[n++] = nn_emit_variable(m, call, 2);
    for (int i = 1; i < call->n_in; i++)
        in[n++] = nn_emit_tensor(m, call->in[i]);
    if (attr.mask)
        in[n++] = mask;
    nn_tape_put(m->tape, &nn_op_rnn, &attr, sizeof attr, in, n, y, 2 + call->n_more);
    for (int k = 0; k < call->n_more; k++)
        *nn_emit_more(m, call, k) = y[2 + k];
    return y[0];
}

static const struct nn_argument arguments[] = {
    {"sequences", NN_ARG_INPUT, 0}, {"initial_state", NN_ARG_INPUT, 0}, {"mask", NN_ARG_MASK, 0}, {NULL}};

#define CLASS(word, which)                                                                                 \
    {                                                                                                      \
        .name = word, .config_bytes = sizeof(struct nn_recurrent), .keys = which##_keys, .emit = rnn_emit, \
        .build = rnn_build_##which, .arguments = arguments                                                 \
    }
const struct nn_layer_class nn_layer_simple_rnn = CLASS("SimpleRNN", simple);
const struct nn_layer_class nn_layer_lstm = CLASS("LSTM", lstm);
const struct nn_layer_class nn_layer_gru = CLASS("GRU", gru);
