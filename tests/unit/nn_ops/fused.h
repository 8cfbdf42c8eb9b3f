// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_NN_OPS_FUSED_H
#define TEST_NN_OPS_FUSED_H

#include "workerd/nn/ops/conv2d_pool.h"

// x (n, h, w, c), kernel (kh, kw, oc), padding.
#define CONV_POOL(name, n, h, w, c, kh, kw, pt, pl, pb, pr, oc, relu, b)                                    \
    {                                                                                                       \
        name, &nn_op_conv2d_pool,                                                                           \
            ATTR((struct nn_conv2d_pool){                                                                   \
                {{h, w}, {kh, kw}, {1, 1}, {pt, pl}, {pb, pr}, relu, b, .dilation = {1, 1}, .groups = 1}}), \
            2 + b, 2, {FLOATS(4, n, h, w, c), FLOATS(4, kh, kw, c, oc), FLOATS(1, oc)},                     \
        {                                                                                                   \
            true, true, b                                                                                   \
        }                                                                                                   \
    }

static const struct op_case fused_cases[] = {
    CONV_POOL("conv2d_pool", 2, 7, 6, 3, 3, 3, 0, 0, 0, 0, 5, NN_RELU, 1),
    CONV_POOL("conv2d_pool, same", 2, 6, 5, 2, 3, 3, 1, 1, 1, 1, 4, NN_RELU, 1),
    CONV_POOL("conv2d_pool, linear, no bias", 1, 5, 5, 1, 2, 2, 0, 0, 0, 0, 3, NN_LINEAR, 0),
    CONV_POOL("conv2d_pool, same, an even kernel", 1, 6, 6, 2, 2, 4, 0, 1, 1, 2, 3, NN_RELU, 0),
    CONV_POOL("conv2d_pool, 1x1, many channels", 1, 4, 4, 9, 1, 1, 0, 0, 0, 0, 17, NN_RELU, 1),
    CONV_POOL("conv2d_pool, three rows of six vectors", 2, 6, 6, 32, 3, 3, 0, 0, 0, 0, 19, NN_RELU, 1),
    CONV_POOL("conv2d_pool, pieces of rows", 1, 5, 8, 13, 2, 5, 0, 0, 0, 0, 33, NN_LINEAR, 1),
    CONV_POOL("conv2d_pool, one cell", 1, 4, 5, 10, 3, 3, 0, 0, 0, 0, 2, NN_RELU, 1),
};

#endif
