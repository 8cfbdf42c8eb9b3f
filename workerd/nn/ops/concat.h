// SPDX-License-Identifier: Apache-2.0
#ifndef NN_OPS_CONCAT_H
#define NN_OPS_CONCAT_H

#include "workerd/nn/op.h"

struct nn_concat {
    int axis;  // counted with the batch
};

// The places from `first` along an axis, so many.
struct nn_slice {
    int axis;
    int64_t first, places;
};

extern const struct nn_op_class nn_op_concat;           // x, ... -> y
extern const struct nn_op_class nn_op_concat_backward;  // dy -> dx: a slice, whose gradient nobody asks for

#endif
