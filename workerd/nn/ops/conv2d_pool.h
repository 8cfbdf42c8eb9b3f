// SPDX-License-Identifier: Apache-2.0
//
// A convolution, its activation and the maximum of each 2x2 cells of it, in one: what lies between is never written,
// and of four cells one alone has a gradient.
#ifndef NN_OPS_CONV2D_POOL_H
#define NN_OPS_CONV2D_POOL_H

#include "workerd/nn/op.h"

// y (n, oh / 2, ow / 2, oc), at like y: the position of the maximum, 2 * row + column, the first of equals. A row and a
// column that are left over belong to no window.
struct nn_conv2d_pool {
    struct nn_conv2d conv;
};

extern const struct nn_op_class nn_op_conv2d_pool;                   // x, kernel[, bias] -> y, at
extern const struct nn_op_class nn_op_conv2d_pool_backward_data;     // kernel, y, at, dy -> dx
extern const struct nn_op_class nn_op_conv2d_pool_backward_weights;  // x, y, at, dy -> dkernel[, dbias]

// Can this convolution and the pooling of what it gives be one?
bool nn_conv2d_pool_joins(const struct nn_conv2d *conv, const struct nn_pool2d *pool);

#endif
