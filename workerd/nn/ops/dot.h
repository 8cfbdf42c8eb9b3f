// SPDX-License-Identifier: Apache-2.0
//
// Products of two tensors, example by example, summed over one axis of each.
#ifndef NN_OPS_DOT_H
#define NN_OPS_DOT_H

#include "workerd/nn/op.h"

// The axes that are summed over, counted with the batch. y has the other dimensions of a, then those of b, or 1 where
// there are none.
struct nn_dot {
    int axis[2];
};

struct nn_dot_backward {
    struct nn_dot dot;
    int of;             // 0: a's gradient, 1: b's
    struct nn_type to;  // of that
};

// Each line along the axis is made as long as 1. One that is not longer than `shortest` is divided by that.
struct nn_unit_length {
    int axis;
    float shortest;
};

extern const struct nn_op_class nn_op_dot;                   // a, b -> y
extern const struct nn_op_class nn_op_dot_backward;          // the other of a and b, dy -> da or db
extern const struct nn_op_class nn_op_unit_length;           // x -> y
extern const struct nn_op_class nn_op_unit_length_backward;  // x, dy -> dx

#endif
