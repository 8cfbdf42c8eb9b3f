// SPDX-License-Identifier: Apache-2.0
//
// Cases for devices alone: too large for finite differences; those of the MNIST network, and such as end in the middle
// of a vector, a block or a tile.
#ifndef TEST_NN_OPS_LARGER_H
#define TEST_NN_OPS_LARGER_H

#include "tests/unit/nn_ops/families.h"
#include "workerd/nn/ops/losses.h"

#define RATE ATTR((struct nn_dropout){0.3f, 2})

// x (n, h, w, c), kernel (kh, kw, oc), strides, padding.
#define CONV(name, n, h, w, c, kh, kw, sh, sw, pt, pl, pb, pr, oc, act, bias)                                         \
    {                                                                                                                 \
        name, &nn_op_conv2d,                                                                                          \
            ATTR((struct nn_conv2d){{h, w}, {kh, kw}, {sh, sw}, {pt, pl}, {pb, pr}, act, bias, {1, 1}, 1}), 2 + bias, \
            1, {FLOATS(4, n, h, w, c), FLOATS(4, kh, kw, c, oc), FLOATS(1, oc)},                                      \
        {                                                                                                             \
            true, true, bias                                                                                          \
        }                                                                                                             \
    }
#define DENSE(name, n, in, out, act, bias)                                   \
    {                                                                        \
        name, &nn_op_dense, ATTR((struct nn_dense){act, bias}), 2 + bias, 1, \
            {FLOATS(2, n, in), FLOATS(2, in, out), FLOATS(1, out)},          \
        {                                                                    \
            true, true, bias                                                 \
        }                                                                    \
    }
#define POOL(name, n, h, w, c, ph, pw, sh, sw, pt, pl, oh, ow)                                                \
    {                                                                                                         \
        name, &nn_op_maxpool, ATTR((struct nn_pool2d){{h, w}, {ph, pw}, {sh, sw}, {pt, pl}, {oh, ow}}), 1, 2, \
            {FLOATS(4, n, h, w, c)},                                                                          \
        {                                                                                                     \
            true                                                                                              \
        }                                                                                                     \
    }
#define DROPOUT(name, per)                                                          \
    {                                                                               \
        name, &nn_op_dropout, RATE, 2, 1, {FLOATS(2, 4, per), {NN_UINT64, 1, {4}}}, \
        {                                                                           \
            true                                                                    \
        }                                                                           \
    }
// A batch's and a layer's, of x (rows, n); a group's, of x (rows, image, groups, of a group).
#define BATCH_NORM(name, rows, n)                                                                                \
    {                                                                                                            \
        name, &nn_op_normalize,                                                                                  \
            ATTR((struct nn_normalize){{rows, n, 1, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}), 3, 3, \
            {FLOATS(2, rows, n), FLOATS(1, n), FLOATS(1, n)},                                                    \
        {                                                                                                        \
            true, true, true                                                                                     \
        }                                                                                                        \
    }
#define BATCH_NORM_RELU(name, rows, n)                                                                                 \
    {                                                                                                                  \
        name, &nn_op_normalize,                                                                                        \
            ATTR((struct nn_normalize){{rows, n, 1, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true, NN_RELU}), 3, \
            3, {FLOATS(2, rows, n), FLOATS(1, n), FLOATS(1, n)},                                                       \
        {                                                                                                              \
            true, true, true                                                                                           \
        }                                                                                                              \
    }
#define LAYER_NORM(name, rows, n)                                                                                \
    {                                                                                                            \
        name, &nn_op_normalize,                                                                                  \
            ATTR((struct nn_normalize){{rows, n, 1, 1}, {1, 0, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}), 3, 3, \
            {FLOATS(2, rows, n), FLOATS(1, n), FLOATS(1, n)},                                                    \
        {                                                                                                        \
            true, true, true                                                                                     \
        }                                                                                                        \
    }
#define GROUP_NORM(name, rows, image, groups, n)                                                                       \
    {                                                                                                                  \
        name, &nn_op_normalize,                                                                                        \
            ATTR((struct nn_normalize){{rows, image, groups, n}, {1, 0, 1, 0}, {0, 0, 1, 1}, EPSILON, true, true}), 3, \
            3, {FLOATS(3, rows, image, (groups) * (n)), FLOATS(1, (groups) * (n)), FLOATS(1, (groups) * (n))},         \
        {                                                                                                              \
            true, true, true                                                                                           \
        }                                                                                                              \
    }
#define CELL(name, cell, act, gate, n, t, u, gates, bias)                                                         \
    {                                                                                                             \
        name, &nn_op_rnn, ATTR((struct nn_rnn){cell, act, gate, true, false, false, bias, false}), 2 + (bias), 2, \
            {FLOATS(3, n, t, (gates) * (u)), FLOATS(2, u, (gates) * (u)), FLOATS(2, 2, (gates) * (u))},           \
        {                                                                                                         \
            true, true, bias                                                                                      \
        }                                                                                                         \
    }
#define PAIR(name, kind, learn, a0, a1, a2, a3, b0, b1, b2, b3)     \
    {                                                               \
        name, &nn_op_binary, ATTR((struct nn_binary){kind}), 2, 1,  \
            {FLOATS(4, a0, a1, a2, a3), FLOATS(4, b0, b1, b2, b3)}, \
        {                                                           \
            learn, learn                                            \
        }                                                           \
    }
#define BINARY_XENT(name, n, width, probability, slope, smoothing)                                               \
    {                                                                                                            \
        name, &nn_op_loss,                                                                                       \
            ATTR((struct nn_loss_attr){                                                                          \
                .loss = PS_LOSS(.kind = PS_LOSS_BINARY_XENT, .from_logits = true, .label_smoothing = smoothing), \
                .probabilities = probability,                                                                    \
                .gradient = slope}),                                                                             \
            3, 1 + (probability) + (slope), {FLOATS(2, n, width), FLOATS(2, n, width), FLOATS(1, n)},            \
        {                                                                                                        \
            false                                                                                                \
        }                                                                                                        \
    }
// mask: 2 where targets and weights are 0 or 1, 1 where the output is, too.
#define LOSS(name, n, width, mask, ...)                                                                       \
    {                                                                                                         \
        name, &nn_op_loss, ATTR((struct nn_loss_attr){.loss = PS_LOSS(__VA_ARGS__), .gradient = true}), 3, 2, \
            {FLOATS(2, n, width), FLOATS(2, n, width), FLOATS(1, n)}, {false}, mask                           \
    }
// Scores of 2 x 3 heads; masks (rows, i) and (rows, j) where they are.
#define ATTENTION(name, masks, causal, i, j, inputs)                                                          \
    {                                                                                                         \
        name, &nn_op_attention_softmax, ATTR((struct nn_attention_softmax){masks, masks, causal}), inputs, 1, \
            {FLOATS(4, 2, 3, i, j), FLOATS(2, 2, i), FLOATS(2, 2, j)}, {true}, (masks)*2                      \
    }

static const struct op_case cases[] = {
    CONV("MNIST, first", 64, 28, 28, 1, 3, 3, 1, 1, 0, 0, 0, 0, 32, NN_RELU, 1),
    CONV("MNIST, second", 64, 13, 13, 32, 3, 3, 1, 1, 0, 0, 0, 0, 64, NN_RELU, 1),
    CONV("same", 2, 28, 28, 1, 5, 5, 1, 1, 2, 2, 2, 2, 6, NN_LINEAR, 1),
    CONV("odd channels", 3, 7, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 5, NN_RELU, 0),
    CONV("same: padded below only", 2, 9, 8, 2, 2, 1, 1, 1, 0, 0, 1, 0, 3, NN_LINEAR, 0),
    CONV("same, strides 2", 2, 16, 15, 16, 3, 3, 2, 2, 0, 1, 1, 1, 32, NN_RELU, 1),
    CONV("uneven strides", 2, 8, 7, 4, 3, 2, 2, 3, 0, 0, 0, 0, 17, NN_RELU, 1),
    CONV("tall tiles", 3, 11, 10, 16, 3, 3, 1, 1, 1, 1, 1, 1, 12, NN_RELU, 1),
    CONV("tall tiles, fours, strides 2", 2, 15, 13, 20, 3, 3, 2, 2, 1, 1, 1, 1, 32, NN_LINEAR, 0),
    CONV("two tiles wide", 1, 7, 12, 68, 3, 2, 1, 1, 0, 0, 1, 0, 72, NN_RELU, 1),
    CONV("two tiles wide, odd", 1, 6, 5, 33, 3, 3, 1, 1, 1, 1, 1, 1, 70, NN_LINEAR, 1),
    CONV("many channels", 2, 5, 4, 132, 3, 3, 1, 1, 1, 1, 1, 1, 136, NN_RELU, 1),
    CONV("1x1", 1, 6, 6, 64, 1, 1, 1, 1, 0, 0, 0, 0, 10, NN_RELU, 1),
    DENSE("MNIST, third", 64, 1600, 64, NN_RELU, 1),
    DENSE("MNIST, last", 64, 64, 10, NN_LINEAR, 1),
    DENSE("no bias", 5, 3, 7, NN_RELU, 0),
    DENSE("one of one", 1, 17, 1, NN_LINEAR, 1),
    {"dense, three axes",
     &nn_op_dense,
     ATTR((struct nn_dense){NN_RELU, true}),
     3,
     1,
     {FLOATS(3, 3, 5, 4), FLOATS(2, 4, 6), FLOATS(1, 6)},
     {true, true, true}},
    POOL("pool, MNIST, first", 64, 26, 26, 32, 2, 2, 2, 2, 0, 0, 13, 13),
    POOL("pool, MNIST, second", 64, 11, 11, 64, 2, 2, 2, 2, 0, 0, 5, 5),
    POOL("pool, same", 2, 5, 7, 3, 2, 2, 2, 2, 0, 0, 3, 4),
    POOL("pool, same, overlapping", 2, 9, 9, 17, 3, 3, 1, 1, 1, 1, 9, 9),
    POOL("pool, strides beyond the window", 1, 7, 7, 1, 2, 1, 3, 2, 0, 0, 2, 4),
    {"relu", &nn_op_relu, NULL, 0, 1, 1, {FLOATS(2, 17, 59)}, {true}},
    {"relu, of vectors", &nn_op_relu, NULL, 0, 1, 1, {FLOATS(2, 17, 60)}, {true}},
    {"add, of vectors", &nn_op_add, NULL, 0, 2, 1, {FLOATS(2, 17, 60), FLOATS(2, 17, 60)}, {true, true}},
    {"add", &nn_op_add, NULL, 0, 2, 1, {FLOATS(2, 17, 59), FLOATS(2, 17, 59)}, {true, true}},
    {"softmax", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(3, 3, 4, 33)}, {true}},
    DROPOUT("dropout of one", 1),
    DROPOUT("dropout, part of a block", 7),
    DROPOUT("dropout, several batches of draws", 1601),
    BATCH_NORM("batch, one channel", 4099, 1),
    BATCH_NORM("batch, three channels", 20001, 3),
    BATCH_NORM("batch, 16 channels, an uneven last block", 4097, 16),
    BATCH_NORM("batch, 63 channels", 1000, 63),
    BATCH_NORM("batch, 65 channels", 1000, 65),
    BATCH_NORM("batch, two rows", 2, 40),
    BATCH_NORM("batch, four channels, several parts", 4099, 4),
    BATCH_NORM("batch, 12 channels", 515, 12),
    BATCH_NORM("batch, 132 channels, two blocks wide", 131, 132),
    BATCH_NORM("batch, channels that fill the GPU alone", 37, 8449),
    BATCH_NORM_RELU("batch, relu, 16 channels", 4097, 16),
    BATCH_NORM_RELU("batch, relu, 65 channels", 1000, 65),
    BATCH_NORM_RELU("batch, relu, 132 channels", 67, 132),
    LAYER_NORM("layer, two elements", 7, 2),
    LAYER_NORM("layer, 33 elements", 2001, 33),
    LAYER_NORM("layer, a long row", 5, 20001),
    LAYER_NORM("layer, 36 elements", 401, 36),
    LAYER_NORM("layer, one row", 1, 2052),
    GROUP_NORM("group, one of one", 3, 700, 1, 17),
    GROUP_NORM("group, of many", 3, 300, 8, 9),
    {"normalize, channels first, large images",
     &nn_op_normalize,
     ATTR((struct nn_normalize){{4, 3, 9001, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}),
     3,
     3,
     {FLOATS(3, 4, 3, 9001), FLOATS(1, 3), FLOATS(1, 3)},
     {true, true, true}},
    {"softmax, one class", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(2, 5, 1)}, {false}},
    {"softmax, many classes", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(2, 33, 1003)}, {true}},
    {"softmax, long rows", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(2, 3, 2051)}, {true}},
    {"softmax, along an axis of many lines",
     &nn_op_axis_function,
     ATTR((struct nn_axis_function){NN_F_LOG_SOFTMAX, 1}),
     1,
     1,
     {FLOATS(3, 2, 5, 1031)},
     {true}},
    ATTENTION("attention, whole", false, false, 9, 33, 1),
    ATTENTION("attention, causal", false, true, 65, 65, 1),
    ATTENTION("attention, masked by i and j", true, false, 17, 71, 3),
    ATTENTION("attention, masked and causal", true, true, 40, 71, 3),
    {"embedding, wide", &nn_op_embedding, NULL, 0, 2, 1, {FLOATS(2, 7, 83), {NN_INT32, 2, {3, 301}}}, {true}},
    {"embedding, many rows", &nn_op_embedding, NULL, 0, 2, 1, {FLOATS(2, 301, 83), {NN_INT32, 2, {20, 31}}}, {true}},
    PAIR("times, of one shape", NN_B_MULTIPLY, true, 4, 3, 1001, 7, 4, 3, 1001, 7),
    PAIR("times, each channel of each row", NN_B_MULTIPLY, true, 4, 33, 35, 7, 4, 1, 1, 7),
    PAIR("minus, each channel", NN_B_SUBTRACT, true, 4, 33, 35, 7, 1, 1, 1, 7),
    PAIR("plus, each row", NN_B_ADD, true, 4, 1, 1, 1, 4, 33, 35, 7),
    PAIR("times, one of all", NN_B_MULTIPLY, true, 4, 33, 35, 7, 1, 1, 1, 1),
    PAIR("times, every other dimension", NN_B_MULTIPLY, true, 1, 33, 1, 7, 4, 1, 35, 1),
    PAIR("times, one of one", NN_B_MULTIPLY, true, 1, 1, 1, 1, 1, 1, 1, 1),
    PAIR("greater", NN_B_MAXIMUM, false, 4, 33, 35, 7, 4, 1, 1, 7),
    PAIR("lesser", NN_B_MINIMUM, false, 4, 33, 35, 7, 1, 1, 35, 7),
    {"affine, many", &nn_op_affine, ATTR((struct nn_affine){-2, 0.5f}), 1, 1, {FLOATS(2, 33, 1003)}, {true}},
    {"penalty, many", &nn_op_penalty, ATTR((struct nn_penalty){0.5f, 0.25f}), 1, 1, {FLOATS(2, 33, 1003)}, {true}},
    BINARY_XENT("binary cross-entropy, one output", 65, 1, true, true, 0),
    BINARY_XENT("binary cross-entropy, of pixels", 64, 783, true, true, 0.25),
    BINARY_XENT("binary cross-entropy, the loss alone", 3, 67, false, false, 0),
    LOSS("mean absolute error", 7, 37, 0, .kind = PS_LOSS_MAE),
    LOSS("mean absolute percentage error", 7, 37, 0, .kind = PS_LOSS_MAPE),
    LOSS("mean squared logarithmic error", 7, 37, 0, .kind = PS_LOSS_MSLE),
    LOSS("huber", 7, 37, 0, .kind = PS_LOSS_HUBER, .delta = 0.5),
    LOSS("log cosh", 7, 37, 0, .kind = PS_LOSS_LOG_COSH),
    LOSS("hinge, of 0 and 1", 7, 37, 2, .kind = PS_LOSS_HINGE),
    LOSS("hinge, of other targets", 7, 37, 0, .kind = PS_LOSS_HINGE),
    LOSS("squared hinge", 7, 37, 2, .kind = PS_LOSS_SQUARED_HINGE),
    LOSS("poisson", 7, 37, 1, .kind = PS_LOSS_POISSON),
    LOSS("binary cross-entropy of probabilities", 7, 37, 1, .kind = PS_LOSS_BINARY_XENT, .label_smoothing = 0.25),
    LOSS("binary focal", 7, 37, 2, .kind = PS_LOSS_BINARY_FOCAL, .from_logits = true, .apply_class_balancing = true,
         .alpha = 0.25, .gamma = 2),
    LOSS("cross-entropy of logits", 7, 37, 2, .kind = PS_LOSS_XENT, .from_logits = true, .label_smoothing = 0.25),
    LOSS("cross-entropy of logits, long rows", 3, 2051, 2, .kind = PS_LOSS_XENT, .from_logits = true),
    LOSS("cross-entropy of probabilities", 7, 37, 1, .kind = PS_LOSS_XENT),
    LOSS("focal", 7, 37, 1, .kind = PS_LOSS_FOCAL, .alpha = 0.25, .gamma = 2),
    LOSS("Kullback and Leibler's divergence", 7, 37, 0, .kind = PS_LOSS_KL),
    LOSS("categorical hinge", 7, 37, 2, .kind = PS_LOSS_CATEGORICAL_HINGE),
    LOSS("cosine", 7, 37, 0, .kind = PS_LOSS_COSINE),
    CONV_POOL("conv2d_pool, MNIST, first", 20, 28, 28, 1, 3, 3, 0, 0, 0, 0, 32, NN_RELU, 1),
    CONV_POOL("conv2d_pool, MNIST, second", 10, 13, 13, 32, 3, 3, 0, 0, 0, 0, 64, NN_RELU, 1),
    CELL("LSTM, 128 units", NN_RNN_LSTM, NN_RNN_TANH, NN_RNN_SIGMOID, 33, 3, 128, 4, false),
    CELL("GRU, 130 units", NN_RNN_GRU, NN_RNN_TANH, NN_RNN_SIGMOID, 33, 3, 130, 3, false),
    CELL("GRU, reset after, 65 units", NN_RNN_GRU_AFTER, NN_RNN_TANH, NN_RNN_SIGMOID, 64, 3, 65, 3, true),
    CELL("LSTM, relu and Keras 2's hard sigmoid", NN_RNN_LSTM, NN_RNN_RELU, NN_RNN_HARD_SIGMOID2, 3, 4, 9, 4, false),
    CELL("simple, linear", NN_RNN_SIMPLE, NN_RNN_LINEAR, NN_RNN_LINEAR, 3, 4, 17, 1, false),
};

// Of each loss that is the mean of elements: a target that is no number makes it none.
static inline void check_nan_target(const struct nn_device *device)
{
    const struct op_case of_elements[] = {
        LOSS("mean absolute error", 2, 3, 0, .kind = PS_LOSS_MAE),
        LOSS("mean absolute percentage error", 2, 3, 0, .kind = PS_LOSS_MAPE),
        LOSS("mean squared logarithmic error", 2, 3, 0, .kind = PS_LOSS_MSLE),
        LOSS("huber", 2, 3, 0, .kind = PS_LOSS_HUBER, .delta = 1),
        LOSS("log cosh", 2, 3, 0, .kind = PS_LOSS_LOG_COSH),
        LOSS("hinge", 2, 3, 0, .kind = PS_LOSS_HINGE),
        LOSS("squared hinge", 2, 3, 0, .kind = PS_LOSS_SQUARED_HINGE),
    };
    for (size_t i = 0; i < COUNT(of_elements); i++) {
        struct op_run r;
        op_open(&r, &of_elements[i], device, 1);
        op_fill(&r, true);
        ((float *)r.in[1])[0] = NAN;
        op_go(&r);
        const float *const loss = op_out(&r, 0);
        if (!isnan(loss[0]) || isnan(loss[1]))
            fail_msg("%s: the losses are %g and %g: expected that of the first row to be no number",
                     of_elements[i].name, (double)loss[0], (double)loss[1]);
        op_close(&r);
    }
}

#endif
