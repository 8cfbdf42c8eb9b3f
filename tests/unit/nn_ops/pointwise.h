// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_NN_OPS_POINTWISE_H
#define TEST_NN_OPS_POINTWISE_H

#include "workerd/nn/ops/activation.h"

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
};

#endif
