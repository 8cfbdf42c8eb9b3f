// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_NN_OPS_SPATIAL_H
#define TEST_NN_OPS_SPATIAL_H

#include "workerd/nn/ops/avgpool.h"
#include "workerd/nn/ops/bias.h"
#include "workerd/nn/ops/pad2d.h"
#include "workerd/nn/ops/resize2d.h"

// x (n, h, w, c), kernel (kh, kw, c / groups, oc), strides, dilation, padding.
#define SPATIAL_CONV(name, n, h, w, c, kh, kw, sh, sw, dh, dw, pt, pl, pb, pr, groups, oc, act, bias)              \
    {                                                                                                              \
        name, &nn_op_conv2d,                                                                                       \
            ATTR((struct nn_conv2d){{h, w}, {kh, kw}, {sh, sw}, {pt, pl}, {pb, pr}, act, bias, {dh, dw}, groups}), \
            2 + bias, 1, {FLOATS(4, n, h, w, c), FLOATS(4, kh, kw, c / groups, oc), FLOATS(1, oc)},                \
        {                                                                                                          \
            true, true, bias                                                                                       \
        }                                                                                                          \
    }
// Gives (n, h, w, c) of kernel (kh, kw, c, ic) and x (n, ih, iw, ic).
#define SPATIAL_TRANSPOSE(name, n, ih, iw, ic, kh, kw, sh, sw, dh, dw, pt, pl, pb, pr, h, w, c)                      \
    {                                                                                                                \
        name, &nn_op_conv2d_backward_data,                                                                           \
            ATTR((struct nn_conv2d){{h, w}, {kh, kw}, {sh, sw}, {pt, pl}, {pb, pr}, NN_LINEAR, false, {dh, dw}, 1}), \
            2, 1, {FLOATS(4, kh, kw, c, ic), FLOATS(4, n, ih, iw, ic)},                                              \
        {                                                                                                            \
            true, true                                                                                               \
        }                                                                                                            \
    }
#define SPATIAL_POOL(name, class, n_out, n, h, w, c, ph, pw, sh, sw, pt, pl, oh, ow)                     \
    {                                                                                                    \
        name, class, ATTR((struct nn_pool2d){{h, w}, {ph, pw}, {sh, sw}, {pt, pl}, {oh, ow}}), 1, n_out, \
            {FLOATS(4, n, h, w, c)},                                                                     \
        {                                                                                                \
            true                                                                                         \
        }                                                                                                \
    }
#define SPATIAL_PAD(name, n, h, w, c, top, left, oh, ow)                                                   \
    {                                                                                                      \
        name, &nn_op_pad2d, ATTR((struct nn_pad2d){{top, left}, {oh, ow}}), 1, 1, {FLOATS(4, n, h, w, c)}, \
        {                                                                                                  \
            true                                                                                           \
        }                                                                                                  \
    }
#define SPATIAL_RESIZE(name, n, h, w, c, oh, ow, bilinear)                                                            \
    {                                                                                                                 \
        name, &nn_op_resize2d, ATTR((struct nn_resize2d){{h, w}, {oh, ow}, bilinear}), 1, 1, {FLOATS(4, n, h, w, c)}, \
        {                                                                                                             \
            true                                                                                                      \
        }                                                                                                             \
    }

static const struct op_case spatial_cases[] = {
    SPATIAL_CONV("dilated", 2, 7, 8, 3, 3, 2, 1, 1, 2, 3, 0, 0, 0, 0, 1, 4, NN_RELU, 1),
    SPATIAL_CONV("dilated, same", 1, 6, 5, 2, 3, 3, 1, 1, 2, 1, 2, 1, 2, 1, 1, 3, NN_LINEAR, 0),
    SPATIAL_CONV("two groups", 2, 5, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 6, NN_RELU, 1),
    SPATIAL_CONV("three groups, strides", 1, 7, 5, 3, 2, 3, 2, 1, 1, 1, 0, 1, 1, 1, 3, 6, NN_LINEAR, 0),
    SPATIAL_CONV("groups of 16 channels", 1, 3, 3, 32, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 2, 32, NN_LINEAR, 1),
    SPATIAL_CONV("depthwise", 2, 6, 5, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 7, 7, NN_RELU, 1),
    SPATIAL_CONV("depthwise of 16", 1, 5, 5, 16, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0, 16, 16, NN_LINEAR, 1),
    SPATIAL_CONV("depthwise, strides", 1, 7, 7, 3, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 3, 3, NN_LINEAR, 0),
    SPATIAL_CONV("depthwise, dilated", 1, 7, 6, 3, 3, 2, 1, 1, 2, 2, 0, 0, 0, 0, 3, 3, NN_LINEAR, 1),
    SPATIAL_CONV("depthwise, several of each", 2, 5, 6, 3, 3, 2, 1, 1, 1, 1, 1, 0, 1, 1, 3, 6, NN_RELU, 1),
    SPATIAL_CONV("sequence, causal", 3, 1, 9, 2, 1, 3, 1, 1, 1, 2, 0, 4, 0, 0, 1, 5, NN_RELU, 1),
    SPATIAL_CONV("sequence, strides", 1, 1, 11, 3, 1, 4, 1, 3, 1, 1, 0, 0, 0, 0, 1, 2, NN_LINEAR, 1),
    SPATIAL_TRANSPOSE("transpose", 2, 3, 4, 3, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0, 5, 6, 2),
    SPATIAL_TRANSPOSE("transpose, strides", 2, 3, 2, 5, 3, 2, 2, 3, 1, 1, 0, 0, 0, 0, 7, 6, 4),
    SPATIAL_TRANSPOSE("transpose, same", 1, 3, 4, 2, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1, 6, 8, 3),
    SPATIAL_TRANSPOSE("transpose, gaps", 1, 3, 3, 2, 1, 2, 2, 3, 1, 1, 0, 0, 0, 0, 6, 9, 2),
    SPATIAL_TRANSPOSE("transpose, dilated", 1, 3, 3, 2, 3, 2, 1, 1, 2, 3, 0, 0, 0, 0, 7, 6, 2),
    SPATIAL_TRANSPOSE("transpose of 16", 1, 2, 3, 16, 2, 2, 2, 2, 1, 1, 0, 0, 0, 0, 4, 6, 16),
    SPATIAL_POOL("average", &nn_op_avgpool, 1, 2, 6, 5, 3, 2, 2, 2, 2, 0, 0, 3, 2),
    SPATIAL_POOL("average, same", &nn_op_avgpool, 1, 1, 5, 7, 17, 3, 2, 2, 2, 1, 0, 3, 4),
    SPATIAL_POOL("average, overlapping", &nn_op_avgpool, 1, 1, 5, 5, 2, 3, 3, 1, 1, 1, 1, 5, 5),
    SPATIAL_POOL("average, global", &nn_op_avgpool, 1, 3, 7, 5, 9, 7, 5, 1, 1, 0, 0, 1, 1),
    SPATIAL_POOL("average, beyond the window", &nn_op_avgpool, 1, 1, 7, 7, 1, 2, 1, 3, 2, 0, 0, 2, 4),
    SPATIAL_POOL("maximum of 300 cells", &nn_op_maxpool, 2, 1, 20, 15, 2, 20, 15, 1, 1, 0, 0, 1, 1),
    SPATIAL_POOL("maximum of 306, same", &nn_op_maxpool, 2, 2, 17, 4, 3, 17, 18, 16, 2, 8, 8, 2, 2),
    SPATIAL_PAD("zeros around", 2, 3, 4, 3, 1, 2, 5, 9),
    SPATIAL_PAD("zeros before", 1, 2, 1, 5, 3, 0, 5, 1),
    SPATIAL_PAD("cropped", 2, 6, 5, 3, -1, -2, 3, 2),
    SPATIAL_PAD("cropped and filled", 1, 4, 4, 2, -1, 2, 2, 5),
    SPATIAL_RESIZE("nearest", 2, 3, 2, 3, 6, 6, false),
    SPATIAL_RESIZE("nearest, one pixel", 1, 1, 1, 5, 4, 1, false),
    SPATIAL_RESIZE("bilinear, twice", 2, 3, 4, 3, 6, 8, true),
    SPATIAL_RESIZE("bilinear, odd factors", 1, 3, 2, 2, 9, 10, true),
    SPATIAL_RESIZE("bilinear, one row", 1, 1, 4, 17, 3, 16, true),
    SPATIAL_RESIZE("bilinear, smaller", 2, 7, 5, 3, 4, 3, true),
    SPATIAL_RESIZE("bilinear, higher and narrower", 1, 3, 7, 18, 5, 2, true),
    SPATIAL_RESIZE("nearest, smaller", 2, 5, 7, 2, 2, 3, false),
    {"bias", &nn_op_bias, NULL, 0, 2, 1, {FLOATS(3, 2, 5, 7), FLOATS(1, 7)}, {true, true}},
};

#endif
