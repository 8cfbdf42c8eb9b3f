// SPDX-License-Identifier: Apache-2.0
//
// Noise while a network is trained, and constants.
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

// (n): those that the layer's config holds, which lives as long as the model.
struct nn_constant {
    const float *value;
    int64_t n;
};

extern const struct nn_op_class nn_op_noise;     // x, example -> y
extern const struct nn_op_class nn_op_constant;  // -> y

#endif
