// SPDX-License-Identifier: Apache-2.0
#ifndef NN_OPS_BIAS_H
#define NN_OPS_BIAS_H

#include "workerd/nn/op.h"

extern const struct nn_op_class nn_op_bias;           // x (..., n), b (n) -> x + b
extern const struct nn_op_class nn_op_bias_backward;  // dy (..., n) -> db (n)

#endif
