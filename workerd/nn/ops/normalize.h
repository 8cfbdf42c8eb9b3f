// SPDX-License-Identifier: Apache-2.0
//
// Normalization: y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, where mean and variance are those of x
// itself (batch, layer and group normalization), or given. (Ioffe and Szegedy, Batch Normalization, 2015, algorithms 1
// and 2; the variance is that of all elements, divided by their number, as in Keras.)
#ifndef NN_OPS_NORMALIZE_H
#define NN_OPS_NORMALIZE_H

#include "workerd/nn/op.h"

enum { NN_NORMALIZE_AXES = 4 };

// x is seen as an array of these dimensions. There is a mean and a variance for each place along the axes of which
// `statistic` says so, taken over all others; a gamma and a beta for each place along those of `parameter`.
//
//     batch normalization    (rows and image, channels)              statistic and parameter: channels
//     layer normalization    (rows, elements)                        statistic: rows, parameter: elements
//     group normalization    (rows, image, groups, of a group)       statistic: rows and groups, parameter: the last two
struct nn_normalize {
    int64_t dim[NN_NORMALIZE_AXES];  // those that are not needed are 1
    bool statistic[NN_NORMALIZE_AXES], parameter[NN_NORMALIZE_AXES];
    float epsilon;
    bool scale, center;  // are there gamma, beta?
    // Behind it; the gradient asks x where it was below 0. Not of nn_op_normalize_by_backward.
    enum nn_activation act;
    // Of nn_op_normalize_by: its mean and variance are those of x and of what other replicas have (moments.h).
    bool synchronized;
};

extern const struct nn_op_class nn_op_normalize;           // x[, gamma][, beta] -> y, mean, variance
extern const struct nn_op_class nn_op_normalize_backward;  // x, mean, variance, dy[, gamma][, beta], see below
// nn_op_normalize_backward gives dx[, dgamma][, dbeta]; it reads beta only with an activation.
//
// With a mean and a variance that are given, through which no gradient goes, unless they are synchronized.
extern const struct nn_op_class nn_op_normalize_by;           // x, mean, variance[, gamma][, beta] -> y
extern const struct nn_op_class nn_op_normalize_by_backward;  // variance, dy[, gamma] -> dx

extern const struct nn_op_class nn_op_moments;  // x -> mean, variance: without gradient

// Can the operator compute an activation, too? That of a batch normalization with channels last can.
bool nn_normalize_takes_activation(const struct nn_op *op);
int64_t nn_normalize_statistics(const struct nn_normalize *a);  // how many means there are
int64_t nn_normalize_parameters(const struct nn_normalize *a);  // how many gammas

#endif
