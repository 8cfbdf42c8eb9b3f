// SPDX-License-Identifier: Apache-2.0
#ifndef NN_OPS_UPSAMPLE2D_H
#define NN_OPS_UPSAMPLE2D_H

#include "workerd/nn/op.h"

// y (n, h * factor[0], w * factor[1], c): each pixel of x (n, h, w, c) repeated, or between the nearest pixels in
// proportion to how near their centres are.
struct nn_upsample2d {
    int factor[2];
    bool bilinear;
};

extern const struct nn_op_class nn_op_upsample2d;           // x -> y
extern const struct nn_op_class nn_op_upsample2d_backward;  // dy -> dx

// Along one axis of size pixels, pixel o of y is (1 - part) * x[at] + part * x[next].
struct nn_upsample_tap {
    int at, next;
    nn_real part;
};

static inline struct nn_upsample_tap nn_upsample_tap(const struct nn_upsample2d *a, int axis, int64_t size, int o)
{
    const int factor = a->factor[axis];
    if (!a->bilinear)
        return (struct nn_upsample_tap){o / factor, o / factor, 0};
    // Where the centre of pixel o lies among those of x: (o + 1/2) / factor - 1/2, in 2 * factor-ths.
    const int64_t place = 2 * (int64_t)o + 1 - factor, whole = place < 0 ? 0 : place / (2 * (int64_t)factor);
    const bool between = place > 0 && place % (2 * (int64_t)factor) != 0 && whole + 1 < size;
    return (struct nn_upsample_tap){(int)whole, (int)(between ? whole + 1 : whole),
                                    between ? (nn_real)(place % (2 * (int64_t)factor)) / (nn_real)(2 * (int64_t)factor)
                                            : 0};
}

#endif
