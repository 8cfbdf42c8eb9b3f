// SPDX-License-Identifier: Apache-2.0
//
// A recurrent layer over whole sequences. What its input gives to each step is a dense operator before it; from there:
//
//   z (n, t, g u), recurrent (u, g u)[, bias][, states][, mask (n, t)] -> y (n, t, u) or (n, u), kept (n, t, ...)[, states]
//
// u units have g gates, in Keras's order: LSTM i, f, c, o; GRU z, r, h. Steps are taken from the first, or, backwards,
// from the last; y stands in the order in which they are taken. Where the mask is 0, a step changes nothing, and y is
// that of the step before, or, zero_masked, 0. States are h (n, u) and, of LSTM, c (n, u): those that the first step
// finds, which are 0 where they are not given, and those that the last one leaves. y is 0 up to the first step that is
// not masked, whatever the states.
#ifndef NN_OPS_RNN_H
#define NN_OPS_RNN_H

#include "workerd/nn/op.h"

enum nn_rnn_function {
    NN_RNN_LINEAR,
    NN_RNN_TANH,
    NN_RNN_SIGMOID,
    NN_RNN_RELU,
    NN_RNN_HARD_SIGMOID,   // Keras 3: (x + 3) / 6 within [0, 1]
    NN_RNN_HARD_SIGMOID2,  // Keras 2: x / 5 + 1 / 2 within [0, 1]
};

enum nn_rnn_cell {
    NN_RNN_SIMPLE,     // h = act(z + h R)
    NN_RNN_LSTM,       // a = z + h R; c = gate(a_f) c + gate(a_i) act(a_c); h = gate(a_o) act(c)
    NN_RNN_GRU,        // z, r = gate(a); h = z h + (1 - z) act(z_h + (r h) R_h)
    NN_RNN_GRU_AFTER,  // as that, with act(z_h + b_0h + r (h R_h + b_1h)); bias (2, 3 u) is b, where it has one
};

struct nn_rnn {
    enum nn_rnn_cell cell;
    enum nn_rnn_function act, gate;
    bool sequences, backwards, zero_masked, bias, mask;
    bool initial, states;  // are states given, and taken?
    bool dy[3];            // of rnn_backward: are there gradients of y, h, c?
};

extern const struct nn_op_class nn_op_rnn;
// recurrent, kept[, dy][, dstates][, mask] -> dz, drecurrent[, dbias][, dstates], carry (4, n, u) to work in
extern const struct nn_op_class nn_op_rnn_backward;

// c (m, n) = beta c + a b, each with so many elements from row to row; a, where ta is set, and b, where tb is set, are
// read transposed.
typedef void nn_rnn_product(bool ta, bool tb, size_t m, size_t n, size_t k, const nn_real *a, size_t lda,
                            const nn_real *b, size_t ldb, nn_real beta, nn_real *c, size_t ldc);
// What a device has of its own for both operators; rnn.c's references say what each does with one row of one step.
typedef void nn_rnn_row(const struct nn_rnn *a, size_t u, nn_real *k, const nn_real *before);
typedef void nn_rnn_rows(void *arg, size_t first, size_t last);
struct nn_rnn_parts {
    nn_rnn_product *product;
    // y (n) += x
    void (*add)(size_t n, const nn_real *x, nn_real *y);
    nn_rnn_row *simple, *lstm, *gru_gates, *gru_state;
    void (*simple_back)(const struct nn_rnn *a, size_t u, const nn_real *k, nn_real *dz, nn_real *dh);
    void (*lstm_back)(const struct nn_rnn *a, size_t u, const nn_real *k, const nn_real *before, nn_real *dz,
                      nn_real *dh, nn_real *dc);
    void (*gru_back)(const struct nn_rnn *a, size_t u, const nn_real *k, const nn_real *before, nn_real *dz,
                     nn_real *dh, nn_real *da);
    // Calls part for ranges of rows that together are [0, n), of `each` elements; they may be at the same time.
    void (*rows)(struct nn_context *context, size_t n, size_t each, nn_rnn_rows *part, void *arg);
};
void nn_rnn_forward(const struct nn_frame *f, const struct nn_rnn_parts *parts);
void nn_rnn_backward(const struct nn_frame *f, const struct nn_rnn_parts *parts);

#endif
