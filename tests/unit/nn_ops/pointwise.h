// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_NN_OPS_POINTWISE_H
#define TEST_NN_OPS_POINTWISE_H

#include "workerd/nn/ops/activation.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/concat.h"
#include "workerd/nn/ops/dot.h"
#include "workerd/nn/ops/lookup.h"
#include "workerd/nn/ops/noise.h"
#include "workerd/nn/ops/penalty.h"

// 63 elements: no multiple of a vector's. Numbers are such that both sides of each bend are met.
#define FUNCTION(kind, ...)                                                                                \
    {                                                                                                      \
#kind, &nn_op_activation, ATTR((struct nn_function){kind, __VA_ARGS__}), 1, 1, {FLOATS(2, 7, 9) }, \
        {                                                                                                  \
            true                                                                                           \
        }                                                                                                  \
    }
#define ALONG(kind, axis)                                                                                      \
    {                                                                                                          \
#kind, &nn_op_axis_function, ATTR((struct nn_axis_function){kind, axis}), 1, 1, {FLOATS(3, 4, 5, 3) }, \
        {                                                                                                      \
            true                                                                                               \
        }                                                                                                      \
    }

#define BOTH       \
    {              \
        true, true \
    }
// Of one shape; one of all along some dimensions, each of a and b.
#define BINARY(kind)                                                                                                  \
    {#kind, &nn_op_binary, ATTR((struct nn_binary){kind}), 2, 1, {FLOATS(2, 7, 9), FLOATS(2, 7, 9)}, BOTH},           \
        {#kind, &nn_op_binary, ATTR((struct nn_binary){kind}), 2, 1, {FLOATS(3, 3, 1, 5), FLOATS(3, 1, 4, 5)}, BOTH}, \
    {                                                                                                                 \
#kind, &nn_op_binary, ATTR((struct nn_binary){kind}), 2, 1, {FLOATS(3, 2, 3, 5), FLOATS(3, 2, 1, 1) }, BOTH   \
    }
#define NOISE(name, kind, rank, ...)                                                         \
    {                                                                                        \
        name, &nn_op_noise, ATTR((struct nn_noise){kind, 0.3f, 5, {[1] = rank == 3}}), 2, 1, \
            {FLOATS(rank, __VA_ARGS__), {NN_UINT64, 1, {4}}},                                \
        {                                                                                    \
            true                                                                             \
        }                                                                                    \
    }

// Numbers are below the last dimension.
static const int32_t lookup_numbers[] = {1, 3, 4, 7, 5, -1};
static const float lookup_bins[] = {-0.5f, 0, 0.25f};

static const struct op_case pointwise_cases[] = {
    FUNCTION(NN_F_RECTIFIER, 0.2f, 0, INFINITY),
    FUNCTION(NN_F_RECTIFIER, 0.1f, 0.26f, 0.7f),
    FUNCTION(NN_F_ELU, 1.5f, 2, 0),
    FUNCTION(NN_F_RAMP, 2, 0.3f, -0.9f),
    FUNCTION(NN_F_EXPONENTIAL, 0, 0, 0),
    FUNCTION(NN_F_GELU, 0, 0, 0),
    FUNCTION(NN_F_GELU_APPROXIMATE, 0, 0, 0),
    FUNCTION(NN_F_HARD_SHRINK, 0.3f, 0, 0),
    FUNCTION(NN_F_HARD_SILU, 0, 0, 0),
    FUNCTION(NN_F_LOG_SIGMOID, 0, 0, 0),
    FUNCTION(NN_F_MISH, 0, 0, 0),
    FUNCTION(NN_F_SIGMOID, 0, 0, 0),
    FUNCTION(NN_F_SILU, 0, 0, 0),
    FUNCTION(NN_F_SOFT_SHRINK, 0.3f, 0, 0),
    FUNCTION(NN_F_SOFTPLUS, 0, 0, 0),
    FUNCTION(NN_F_SOFTSIGN, 0, 0, 0),
    FUNCTION(NN_F_SPARSE_PLUS, 0, 0, 0),
    FUNCTION(NN_F_SQUAREPLUS, 4, 0, 0),
    FUNCTION(NN_F_TANH, 0, 0, 0),
    FUNCTION(NN_F_TANH_SHRINK, 0, 0, 0),
    ALONG(NN_F_SOFTMAX, 1),
    ALONG(NN_F_LOG_SOFTMAX, 2),
    BINARY(NN_B_ADD),
    BINARY(NN_B_SUBTRACT),
    BINARY(NN_B_MULTIPLY),
    BINARY(NN_B_MAXIMUM),
    BINARY(NN_B_MINIMUM),
    {"affine", &nn_op_affine, ATTR((struct nn_affine){-2, 0.5f}), 1, 1, {FLOATS(2, 7, 9)}, {true}},
    {"concat",
     &nn_op_concat,
     ATTR((struct nn_concat){1}),
     3,
     1,
     {FLOATS(3, 2, 3, 4), FLOATS(3, 2, 1, 4), FLOATS(3, 2, 2, 4)},
     {true, false, true}},
    {"concat, last", &nn_op_concat, ATTR((struct nn_concat){2}), 2, 1, {FLOATS(3, 2, 3, 4), FLOATS(3, 2, 3, 1)}, BOTH},
    {"dot of vectors", &nn_op_dot, ATTR((struct nn_dot){{1, 1}}), 2, 1, {FLOATS(2, 3, 5), FLOATS(2, 3, 5)}, BOTH},
    {"dot", &nn_op_dot, ATTR((struct nn_dot){{1, 2}}), 2, 1, {FLOATS(3, 3, 5, 2), FLOATS(3, 3, 4, 5)}, BOTH},
    {"dot of four", &nn_op_dot, ATTR((struct nn_dot){{2, 1}}), 2, 1, {FLOATS(4, 2, 2, 3, 4), FLOATS(2, 2, 3)}, BOTH},
    {"unit length", &nn_op_unit_length, ATTR((struct nn_unit_length){1, 1e-7f}), 1, 1, {FLOATS(3, 3, 5, 2)}, {true}},
    {"unit length, all short",
     &nn_op_unit_length,
     ATTR((struct nn_unit_length){1, 9}),
     1,
     1,
     {FLOATS(3, 3, 5, 2)},
     {true}},
    NOISE("added", NN_NOISE_ADDED, 2, 4, 7),
    NOISE("times", NN_NOISE_TIMES, 2, 4, 7),
    NOISE("times, shared", NN_NOISE_TIMES, 3, 4, 3, 5),
    NOISE("drops, shared", NN_NOISE_DROPS, 3, 4, 3, 5),
    {"lookup",
     &nn_op_lookup,
     ATTR((struct nn_lookup){lookup_numbers, lookup_numbers + 3, 3, 2, 2}),
     1,
     1,
     {{NN_INT32, 2, {3, 7}}},
     {false}},
    {"bins", &nn_op_bins, ATTR((struct nn_bins){lookup_bins, 3}), 1, 1, {FLOATS(2, 3, 7)}, {false}},
    {"places", &nn_op_places, ATTR((struct nn_places){3, false, false}), 1, 1, {{NN_INT32, 2, {3, 5}}}, {false}},
    {"places, several", &nn_op_places, ATTR((struct nn_places){3, true, true}), 1, 1, {{NN_INT32, 2, {3, 5}}}, {false}},
    {"places, weights",
     &nn_op_places,
     ATTR((struct nn_places){4, true, false}),
     2,
     1,
     {{NN_INT32, 2, {3, 5}}, FLOATS(2, 3, 5)},
     {false, true}},
    {"penalty", &nn_op_penalty, ATTR((struct nn_penalty){0.5f, 0.25f}), 2, 1, {FLOATS(2, 7, 9), FLOATS(1, 1)}, BOTH},
    {"first penalty", &nn_op_penalty, ATTR((struct nn_penalty){0, 0.25f}), 1, 1, {FLOATS(2, 7, 9)}, {true}},
    {"window",
     &nn_op_window,
     ATTR((struct nn_window){{6, 5}, {3, 4}, 3}),
     2,
     1,
     {FLOATS(4, 5, 6, 5, 2), {NN_UINT64, 1, {5}}},
     {true}},
    {"window, all of it",
     &nn_op_window,
     ATTR((struct nn_window){{3, 4}, {3, 4}, 3}),
     2,
     1,
     {FLOATS(4, 2, 3, 4, 1), {NN_UINT64, 1, {2}}},
     {true}},
    {"flip",
     &nn_op_flip,
     ATTR((struct nn_flip){true, true, 3}),
     2,
     1,
     {FLOATS(4, 5, 3, 4, 2), {NN_UINT64, 1, {5}}},
     {true}},
};

#endif
