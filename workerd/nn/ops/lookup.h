// SPDX-License-Identifier: Apache-2.0
//
// Whole numbers: from a table, from bins of floats, and as vectors. Numbers have no gradient.
#ifndef NN_OPS_LOOKUP_H
#define NN_OPS_LOOKUP_H

#include "workerd/nn/op.h"

// x int32 -> y int32: value[i] where x is key[i], else other + x mod others (not below 0). Both tables have n numbers,
// keys ascending; they are the layer's, and live as long as the model.
struct nn_lookup {
    const int32_t *key, *value;
    int64_t n;
    int32_t other, others;
};

// x -> y int32: how many of n boundaries, which ascend, are at x or below. The layer's, as above.
struct nn_bins {
    const float *boundary;
    int64_t n;
};

// x int32 -> (..., depth): 1 at the place x, else 0. summed: x (rows, n) -> (rows, depth), the sum over n; at_most_one:
// no more than 1. A number outside [0, depth) has no place. With weights, floats like x: those instead of ones.
struct nn_places {
    int64_t depth;
    bool summed, at_most_one;
};

extern const struct nn_op_class nn_op_lookup;
extern const struct nn_op_class nn_op_bins;
extern const struct nn_op_class nn_op_places;           // x[, weights] -> y
extern const struct nn_op_class nn_op_places_backward;  // x, dy -> dweights, of what is summed

#endif
