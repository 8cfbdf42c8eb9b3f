// SPDX-License-Identifier: Apache-2.0
//
// From a model to the operators of one step: its layers, one after the other, then the loss, then, to train, the
// backward pass.
#ifndef NN_EMIT_H
#define NN_EMIT_H

#include "workerd/nn/model.h"
#include "workerd/nn/tape.h"

// The inputs of a program, each of so many rows.
enum nn_column {
    NN_COLUMN_X,        // (rows, the model's input shape)
    NN_COLUMN_LABEL,    // (rows) int32
    NN_COLUMN_TARGET,   // (rows, the model's output shape)
    NN_COLUMN_EXAMPLE,  // (rows) uint64, the examples' numbers
    NN_COLUMN_WEIGHT,   // (rows): what is made small is the sum of these times the rows' losses
    NN_COLUMNS
};

// Tensors of the tape that are kept.
struct nn_emitted {
    int output;  // (rows, the model's output shape)
    int loss;    // (rows)
};

void nn_emit(const struct nn_model *m, const struct nn_loss *loss, int rows, bool training, struct nn_tape *t,
             struct nn_emitted *to);

#endif
