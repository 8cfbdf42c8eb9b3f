// SPDX-License-Identifier: Apache-2.0
//
// Masks: floats that are 1 where something stands and 0 where nothing does. They have no gradient.
#ifndef NN_OPS_MASK_H
#define NN_OPS_MASK_H

#include "workerd/nn/op.h"

extern const struct nn_op_class nn_op_not_equal;  // x, float or int32; attr: double -> where x is another number
extern const struct nn_op_class nn_op_any;        // x -> where any of the last axis is
extern const struct nn_op_class nn_op_mask_or;    // a, b of one shape -> where either is
extern const struct nn_op_class nn_op_mask_and;   // a, b of one shape -> where both are
// x (m..., ...), m (m...) -> x where m is, else 0. Its gradient by x is itself.
extern const struct nn_op_class nn_op_masked;
// x (n, t, ...), m (n, t) -> (n, ...): the mean over the steps where m is; 0 / 0 where it is nowhere, as Keras has it
extern const struct nn_op_class nn_op_masked_mean;
extern const struct nn_op_class nn_op_masked_mean_backward;  // m, dy -> dx

#endif
