// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_NN_OPS_SEQUENCE_H
#define TEST_NN_OPS_SEQUENCE_H

#include "workerd/nn/ops/attention.h"
#include "workerd/nn/ops/both_ways.h"
#include "workerd/nn/ops/embedding.h"
#include "workerd/nn/ops/mask.h"
#include "workerd/nn/ops/rnn.h"

// n rows of t steps, u units of g gates.
#define RNN(n, t, u, g, ...)                                                                                        \
    {                                                                                                               \
        "rnn", &nn_op_rnn, ATTR((struct nn_rnn){__VA_ARGS__}), 2, 2, {FLOATS(3, n, t, g * u), FLOATS(2, u, g * u)}, \
        {                                                                                                           \
            true, true                                                                                              \
        }                                                                                                           \
    }
#define RNN_MASKED(n, t, u, g, ...)                                                         \
    {                                                                                       \
        "rnn, masked", &nn_op_rnn, ATTR((struct nn_rnn){.mask = true, __VA_ARGS__}), 3, 2,  \
            {FLOATS(3, n, t, g * u), FLOATS(2, u, g * u), FLOATS(2, n, t)}, {true, true}, 3 \
    }
#define RNN_BIAS(n, t, u, ...)                                                                                         \
    {                                                                                                                  \
        "rnn, two biases", &nn_op_rnn,                                                                                 \
            ATTR((struct nn_rnn){.cell = NN_RNN_GRU_AFTER, .bias = true, .mask = true, __VA_ARGS__}), 4, 2,            \
            {FLOATS(3, n, t, 3 * u), FLOATS(2, u, 3 * u), FLOATS(2, 2, 3 * u), FLOATS(2, n, t)}, {true, true, true}, 4 \
    }
// With states that are given and taken, masked; which of what comes out has the gradient.
#define LSTM_STATES(which, ...)                                                                               \
    {                                                                                                         \
        "rnn, states", &nn_op_rnn,                                                                            \
            ATTR((struct nn_rnn){.cell = NN_RNN_LSTM,                                                         \
                                 .act = NN_RNN_TANH,                                                          \
                                 .gate = NN_RNN_SIGMOID,                                                      \
                                 .mask = true,                                                                \
                                 .initial = true,                                                             \
                                 .states = true,                                                              \
                                 __VA_ARGS__}),                                                               \
            5, 4, {FLOATS(3, 3, 4, 20), FLOATS(2, 5, 20), FLOATS(2, 3, 5), FLOATS(2, 3, 5), FLOATS(2, 3, 4)}, \
            {true, true, true, true}, 5, which                                                                \
    }
#define RNN_STATES(which, g, ...)                                                                              \
    {                                                                                                          \
        "rnn, a state", &nn_op_rnn, ATTR((struct nn_rnn){.initial = true, .states = true, __VA_ARGS__}), 3, 3, \
            {FLOATS(3, 3, 4, 5 * g), FLOATS(2, 5, 5 * g), FLOATS(2, 3, 5)}, {true, true, true}, 0, which       \
    }
#define BOTH_WAYS(m)                                                                                                   \
    {                                                                                                                  \
        "both ways", &nn_op_both_ways, ATTR((struct nn_both_ways){m}), 2, 1, {FLOATS(3, 2, 3, 4), FLOATS(3, 2, 3, 4)}, \
        {                                                                                                              \
            true, true                                                                                                 \
        }                                                                                                              \
    }

static const struct op_case sequence_cases[] = {
    {"embedding", &nn_op_embedding, NULL, 0, 2, 1, {FLOATS(2, 5, 7), {NN_INT32, 2, {3, 4}}}, {true}},
    {"not_equal", &nn_op_not_equal, ATTR((double){0.5}), 1, 1, {FLOATS(2, 7, 9)}, {false}},
    {"any", &nn_op_any, NULL, 0, 1, 1, {FLOATS(3, 2, 7, 1)}, {false}, 1},
    {"mask_or", &nn_op_mask_or, NULL, 0, 2, 1, {FLOATS(2, 3, 7), FLOATS(2, 3, 7)}, {false}, 1},
    {"mask_and", &nn_op_mask_and, NULL, 0, 2, 1, {FLOATS(2, 3, 7), FLOATS(2, 3, 7)}, {false}, 1},
    {"masked_mean", &nn_op_masked_mean, NULL, 0, 2, 1, {FLOATS(3, 2, 5, 3), FLOATS(2, 2, 5)}, {true}, 2},
    {"masked", &nn_op_masked, NULL, 0, 2, 1, {FLOATS(3, 2, 3, 5), FLOATS(2, 2, 3)}, {true}, 2},
    RNN(3, 4, 5, 1, .act = NN_RNN_TANH, .sequences = true),
    RNN(1, 2, 2, 1, .act = NN_RNN_LINEAR),
    RNN_MASKED(3, 4, 5, 1, .act = NN_RNN_RELU, .backwards = true),
    RNN(3, 4, 3, 4, .cell = NN_RNN_LSTM, .act = NN_RNN_TANH, .gate = NN_RNN_SIGMOID, .sequences = true),
    RNN(2, 3, 3, 4, .cell = NN_RNN_LSTM, .act = NN_RNN_RELU, .gate = NN_RNN_HARD_SIGMOID, .backwards = true),
    RNN_MASKED(3, 4, 3, 4, .cell = NN_RNN_LSTM, .act = NN_RNN_TANH, .gate = NN_RNN_SIGMOID),
    RNN_MASKED(3, 4, 3, 4, .cell = NN_RNN_LSTM, .act = NN_RNN_TANH, .gate = NN_RNN_SIGMOID, .sequences = true,
               .zero_masked = true, .backwards = true),
    RNN(3, 4, 3, 3, .cell = NN_RNN_GRU, .act = NN_RNN_TANH, .gate = NN_RNN_SIGMOID),
    RNN_MASKED(3, 4, 3, 3, .cell = NN_RNN_GRU, .act = NN_RNN_TANH, .gate = NN_RNN_HARD_SIGMOID2, .sequences = true),
    RNN_MASKED(3, 4, 3, 3, .cell = NN_RNN_GRU_AFTER, .act = NN_RNN_TANH, .gate = NN_RNN_SIGMOID),
    RNN_BIAS(3, 4, 3, .act = NN_RNN_TANH, .gate = NN_RNN_SIGMOID, .sequences = true),
    RNN_BIAS(3, 4, 3, .act = NN_RNN_SIGMOID, .gate = NN_RNN_LINEAR, .backwards = true, .zero_masked = true),
    LSTM_STATES(0, .sequences = true),
    LSTM_STATES(0, .backwards = true),
    LSTM_STATES(2),
    LSTM_STATES(3, .sequences = true, .zero_masked = true),
    RNN_STATES(0, 1, .act = NN_RNN_TANH),
    RNN_STATES(2, 1, .act = NN_RNN_LINEAR, .sequences = true, .backwards = true),
    RNN_STATES(0, 3, .cell = NN_RNN_GRU, .act = NN_RNN_TANH, .gate = NN_RNN_SIGMOID),
    RNN_STATES(2, 3, .cell = NN_RNN_GRU_AFTER, .act = NN_RNN_TANH, .gate = NN_RNN_SIGMOID, .sequences = true),
    {"attention_scores",
     &nn_op_attention_scores,
     ATTR((struct nn_attention){0.5f, false}),
     2,
     1,
     {FLOATS(4, 2, 3, 2, 4), FLOATS(4, 2, 5, 2, 4)},
     {true, true}},
    {"attention_sum",
     &nn_op_attention_sum,
     ATTR((struct nn_attention){1, false}),
     2,
     1,
     {FLOATS(4, 2, 2, 3, 5), FLOATS(4, 2, 5, 2, 4)},
     {true, true}},
    {"attention_sum, across",
     &nn_op_attention_sum,
     ATTR((struct nn_attention){2, true}),
     2,
     1,
     {FLOATS(4, 2, 2, 3, 5), FLOATS(4, 2, 3, 2, 4)},
     {true, true}},
    {"attention_softmax",
     &nn_op_attention_softmax,
     ATTR((struct nn_attention_softmax){false, false, true}),
     1,
     1,
     {FLOATS(4, 2, 2, 4, 3)},
     {true}},
    {"attention_softmax, masked",
     &nn_op_attention_softmax,
     ATTR((struct nn_attention_softmax){true, true, true}),
     3,
     1,
     {FLOATS(4, 2, 2, 4, 3), FLOATS(2, 2, 4), FLOATS(2, 2, 3)},
     {true},
     2},
    {"attention_softmax, by both",
     &nn_op_attention_softmax,
     ATTR((struct nn_attention_softmax){.by_i = true, .by_both = true, .causal = true}),
     3,
     1,
     {FLOATS(4, 2, 2, 4, 3), FLOATS(2, 2, 4), FLOATS(3, 2, 4, 3)},
     {true},
     2},
    {"attention_softmax, 0 where nothing counts",
     &nn_op_attention_softmax,
     ATTR((struct nn_attention_softmax){.by_i = true, .by_j = true, .causal = true, .zero_unseen = true}),
     3,
     1,
     {FLOATS(4, 2, 2, 4, 3), FLOATS(2, 2, 4), FLOATS(2, 2, 3)},
     {true},
     2},
    BOTH_WAYS(NN_MERGE_CONCAT),
    BOTH_WAYS(NN_MERGE_SUM),
    BOTH_WAYS(NN_MERGE_MUL),
    BOTH_WAYS(NN_MERGE_AVE),
};

#endif
