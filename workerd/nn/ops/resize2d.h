// SPDX-License-Identifier: Apache-2.0
#ifndef NN_OPS_RESIZE2D_H
#define NN_OPS_RESIZE2D_H

#include "common/base/host_device.h"
#include "workerd/nn/op.h"

// y (n, to[0], to[1], c) of x (n, from[0], from[1], c): each pixel is the one at its place, or between the nearest ones
// in proportion to how near their centres are (TensorFlow's resize, with half-pixel centres and without antialiasing).
struct nn_resize2d {
    int from[2], to[2];
    bool bilinear;
};

extern const struct nn_op_class nn_op_resize2d;           // x -> y
extern const struct nn_op_class nn_op_resize2d_backward;  // dy -> dx

// Along one axis pixel o of y is (1 - part) * x[at] + part * x[next].
struct nn_resize_tap {
    int at, next;
    nn_real part;
};

static inline PS_HOST_DEVICE struct nn_resize_tap nn_resize_tap_of(const struct nn_resize2d *a, int axis, int o)
{
    const int64_t from = a->from[axis], to = a->to[axis];
    const int nearest = (int)((2 * (int64_t)o + 1) * from / (2 * to));
    struct nn_resize_tap tap = {nearest, nearest, 0};
    if (!a->bilinear)
        return tap;
    // Where the centre of pixel o lies among those of x: (o + 1/2) * from / to - 1/2, in 2 * to-ths.
    const int64_t place = (2 * (int64_t)o + 1) * from - to, whole = place < 0 ? 0 : place / (2 * to);
    const bool between = place > 0 && place % (2 * to) != 0 && whole + 1 < from;
    tap.at = (int)whole;
    tap.next = (int)(between ? whole + 1 : whole);
    tap.part = between ? (nn_real)(place % (2 * to)) / (nn_real)(2 * to) : 0;
    return tap;
}

#endif
