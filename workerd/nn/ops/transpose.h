// SPDX-License-Identifier: Apache-2.0
#ifndef NN_OPS_TRANSPOSE_H
#define NN_OPS_TRANSPOSE_H

#include "workerd/nn/op.h"

// Axis i of y is axis from[i] of x, as in numpy.transpose.
struct nn_transpose {
    int from[NN_MAX_RANK];
};

// y (rows, times, n): x (rows, n) so many times.
struct nn_repeat {
    int64_t times;
};

extern const struct nn_op_class nn_op_transpose;        // x -> y
extern const struct nn_op_class nn_op_repeat;           // x -> y
extern const struct nn_op_class nn_op_repeat_backward;  // dy -> dx

#endif
