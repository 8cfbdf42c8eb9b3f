// SPDX-License-Identifier: Apache-2.0
#ifndef NN_OPS_AVGPOOL_H
#define NN_OPS_AVGPOOL_H

#include "workerd/nn/op.h"

// Attributes: struct nn_pool2d.
extern const struct nn_op_class nn_op_avgpool;           // x -> y
extern const struct nn_op_class nn_op_avgpool_backward;  // dy -> dx

// The part of window `o` along one axis that lies inside the image: its cells [*begin, *end).
static inline void nn_pool2d_inside(const struct nn_pool2d *a, int axis, int o, int *begin, int *end)
{
    int64_t first = (int64_t)o * a->stride[axis] - a->pad_begin[axis], last = first + a->window[axis];
    *begin = first > 0 ? (int)first : 0;
    *end = last < a->image[axis] ? (int)last : a->image[axis];
}

#endif
