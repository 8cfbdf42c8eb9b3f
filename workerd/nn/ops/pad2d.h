// SPDX-License-Identifier: Apache-2.0
#ifndef NN_OPS_PAD2D_H
#define NN_OPS_PAD2D_H

#include "workerd/nn/op.h"

// y (n, oh, ow, c), y[oy, ox] = x[oy - begin[0], ox - begin[1]], and 0 outside x (n, h, w, c). What is below 0 is
// cropped.
struct nn_pad2d {
    int begin[2], out[2];
};

extern const struct nn_op_class nn_op_pad2d;  // x -> y

#endif
