// SPDX-License-Identifier: Apache-2.0
//
// Synchronized batch normalization: replicas that train one batch together, each with a part of it, normalize by the
// mean and the variance of the whole.
//
//     forward     nn_op_moments         x -> mean, variance: of this replica's part
//                 nn_op_join_moments    those of the batch
//                 nn_op_normalize_by    y (synchronized)
//     backward    nn_op_normalize_backward    dx as if the batch were the part, and the sums of dy and dy h, with h the
//                                             normalized x
//                 nn_op_join_slopes           what the other parts add to dx: scale * h + offset
//                 nn_op_normalize_by, nn_op_add
//
// The joining ones add up over the replicas (nn_op_class.sums). A part has at least one element for each mean; the loss
// is the mean over the batch, and the gradient of a replica that of the mean over its part.
#ifndef NN_OPS_MOMENTS_H
#define NN_OPS_MOMENTS_H

#include "workerd/nn/ops/normalize.h"

// Both have the struct nn_normalize of the part, with gamma where it has a scale.
extern const struct nn_op_class nn_op_join_moments;  // mean, variance -> mean, variance
extern const struct nn_op_class nn_op_join_slopes;   // dgamma, dbeta, variance[, gamma] -> scale, offset

// Of an nn_op_normalize_by that is synchronized: nn_op_class.differentiate.
void nn_moments_differentiate(struct nn_tape *t, const struct nn_op *op, int dy, const bool *wanted, int *dx);

#endif
