// SPDX-License-Identifier: Apache-2.0
//
// Operators of two tensors, element by element. Both have as many dimensions; where one has 1, it stands for all
// places along that dimension.
#ifndef NN_OPS_BINARY_H
#define NN_OPS_BINARY_H

#include "workerd/nn/op.h"

enum nn_binary_kind { NN_B_ADD, NN_B_SUBTRACT, NN_B_MULTIPLY, NN_B_MAXIMUM, NN_B_MINIMUM };

struct nn_binary {
    enum nn_binary_kind kind;
};

// Of the greater or lesser of two: the gradient goes where the value came from, to the first of equals. This is that of
// operand `of`, of the shape of y.
struct nn_choose {
    enum nn_binary_kind kind;
    int of;
};

// The sum over the dimensions that `to` has as 1.
struct nn_reduce {
    struct nn_type to;
};

// y = scale x + offset.
struct nn_affine {
    float scale, offset;
};

extern const struct nn_op_class nn_op_binary;  // a, b -> y
extern const struct nn_op_class nn_op_choose;  // a, b, dy -> da or db, like dy
extern const struct nn_op_class nn_op_reduce;  // x -> y
extern const struct nn_op_class nn_op_affine;  // x -> y

#endif
