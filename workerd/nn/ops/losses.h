// SPDX-License-Identifier: Apache-2.0
//
// Losses that compare an output with numbers of its shape, one operator for all kinds; those with class numbers are
// softmax_xent and sparse_xent, and the mean squared error has its own. A loss sees matrices: what it gives a number
// for is a row, the last axis of the output its width.
#ifndef NN_OPS_LOSSES_H
#define NN_OPS_LOSSES_H

#include "common/job/loss.h"
#include "workerd/nn/op.h"

struct nn_loss_attr {
    struct ps_loss loss;
    // As nn_loss_outputs'. probabilities: y is the softmax or sigmoid of x; with categorical and binary cross-entropy
    // and binary focal from logits.
    bool gradient, probabilities;
};

// x (rows, width), target like x, weight (rows) -> loss (rows)[, y][, dx]
extern const struct nn_op_class nn_op_loss;

// weight (rows)[, mask (rows, steps), not 0 where a step counts] -> weight (rows * steps) of what the rows consist of:
// the mean over the steps of a row, or with a mask over all steps of all rows that count, as Keras has it.
struct nn_loss_weights {
    int steps;
};
extern const struct nn_op_class nn_op_loss_weights;

#endif
