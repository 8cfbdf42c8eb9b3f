// SPDX-License-Identifier: Apache-2.0
//
// Activations: functions of each element alone (nn_op_activation, with relu as an operator of its own), and functions
// of all elements along an axis (nn_op_axis_function, with softmax over the last axis as an operator of its own).
#ifndef NN_OPS_ACTIVATION_H
#define NN_OPS_ACTIVATION_H

#include "workerd/nn/op.h"

enum nn_function_kind {
    NN_F_LINEAR,
    NN_F_RELU,
    NN_F_SOFTMAX,
    NN_F_LOG_SOFTMAX,
    // Of each element.
    NN_F_RECTIFIER,    // min(x, c) where x > b, a (x - b) elsewhere
    NN_F_ELU,          // b x where x > 0, a (e^x - 1) elsewhere
    NN_F_RAMP,         // a x + b, not below c nor above 1
    NN_F_EXPONENTIAL,  // e^x
    NN_F_GELU,         // x P(x), P the distribution function of the normal distribution
    NN_F_GELU_APPROXIMATE,
    NN_F_HARD_SHRINK,  // x where |x| > a, 0 elsewhere
    NN_F_HARD_SILU,    // x (x / 6 + 1 / 2), the factor not below 0 nor above 1
    NN_F_LOG_SIGMOID,
    NN_F_MISH,  // x tanh(softplus(x))
    NN_F_SIGMOID,
    NN_F_SILU,         // x sigmoid(x)
    NN_F_SOFT_SHRINK,  // x made smaller by a, 0 where |x| <= a
    NN_F_SOFTPLUS,     // log(e^x + 1)
    NN_F_SOFTSIGN,     // x / (1 + |x|)
    NN_F_SPARSE_PLUS,  // 0 up to -1, (x + 1)^2 / 4 up to 1, then x
    NN_F_SQUAREPLUS,   // (x + sqrt(x^2 + a)) / 2
    NN_F_TANH,
    NN_F_TANH_SHRINK,  // x - tanh(x)
    NN_FUNCTIONS
};

// A function with its numbers; attribute of nn_op_activation and its gradient.
struct nn_function {
    enum nn_function_kind kind;
    float a, b, c;
};

// Along one axis of x, counted with the batch: NN_F_SOFTMAX, NN_F_LOG_SOFTMAX.
struct nn_axis_function {
    enum nn_function_kind kind;
    int axis;
};

extern const struct nn_op_class nn_op_activation;              // x -> y
extern const struct nn_op_class nn_op_activation_backward;     // y or x, dy -> dx
extern const struct nn_op_class nn_op_axis_function;           // x -> y
extern const struct nn_op_class nn_op_axis_function_backward;  // y, dy -> dx

#endif
