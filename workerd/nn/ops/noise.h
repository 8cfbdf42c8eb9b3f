// SPDX-License-Identifier: Apache-2.0
//
// Noise, flips and windows while a network is trained, and constants.
#ifndef NN_OPS_NOISE_H
#define NN_OPS_NOISE_H

#include "workerd/nn/op.h"

// What is drawn is drawn as by dropout (op.h): by the seed, the layer, the step, the example and the place among what
// is drawn of that. Normal numbers are Box and Muller's, two of two.
struct nn_noise {
    enum { NN_NOISE_ADDED, NN_NOISE_TIMES, NN_NOISE_DROPS } kind;  // y = x + d z, x (1 + d z), x or 0 as dropout
    float amount;                                                  // d, or the rate
    uint32_t layer;
    bool shared[NN_MAX_RANK];  // dimensions along which all places have the same
};

// Each image (rows, h, w, c) as it is or turned round along an axis, by what is drawn for the example: word 0 says
// whether its columns, word 1 whether its rows.
struct nn_flip {
    bool horizontal, vertical;
    uint32_t layer;
};

// Of each image (rows, from[0], from[1], c) a window (rows, to[0], to[1], c), which is not larger, at a place that is
// drawn for the example: word 0 says which row it begins with, word 1 which column.
struct nn_window {
    int from[2], to[2];
    uint32_t layer;
};

// (n): those that the layer's config holds, which lives as long as the model.
struct nn_constant {
    const float *value;
    int64_t n;
};

extern const struct nn_op_class nn_op_noise;            // x, example -> y
extern const struct nn_op_class nn_op_flip;             // x, example -> y
extern const struct nn_op_class nn_op_window;           // x, example -> y
extern const struct nn_op_class nn_op_window_backward;  // dy, example -> dx
extern const struct nn_op_class nn_op_constant;         // -> y

#endif
