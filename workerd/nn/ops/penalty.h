// SPDX-License-Identifier: Apache-2.0
#ifndef NN_OPS_PENALTY_H
#define NN_OPS_PENALTY_H

#include "workerd/nn/op.h"

// l1 times the sum of |x|, and l2 times that of x^2.
struct nn_penalty {
    float l1, l2;
};

extern const struct nn_op_class nn_op_penalty;           // x[, sum (1) so far] -> sum (1)
extern const struct nn_op_class nn_op_penalty_backward;  // x, dsum (1) -> dx

#endif
