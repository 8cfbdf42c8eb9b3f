// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_NN_OPS_NORM_H
#define TEST_NN_OPS_NORM_H

#include "workerd/nn/ops/normalize.h"

#define EPSILON 1e-3f

static const struct op_case norm_cases[] = {
    {"normalize, batch, channels last",
     &nn_op_normalize,
     ATTR((struct nn_normalize){{21, 5, 1, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}),
     3,
     3,
     {FLOATS(3, 3, 7, 5), FLOATS(1, 5), FLOATS(1, 5)},
     {true, true, true}},
    {"normalize, batch, many channels",
     &nn_op_normalize,
     ATTR((struct nn_normalize){{3, 37, 1, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, false, true}),
     2,
     3,
     {FLOATS(2, 3, 37), FLOATS(1, 37)},
     {true, true}},
    {"normalize, batch, channels first",
     &nn_op_normalize,
     ATTR((struct nn_normalize){{4, 3, 5, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, false}),
     2,
     3,
     {FLOATS(3, 4, 3, 5), FLOATS(1, 3)},
     {true, true}},
    {"normalize, layer",
     &nn_op_normalize,
     ATTR((struct nn_normalize){{6, 11, 1, 1}, {1, 0, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}),
     3,
     3,
     {FLOATS(2, 6, 11), FLOATS(1, 11), FLOATS(1, 11)},
     {true, true, true}},
    {"normalize, group",
     &nn_op_normalize,
     ATTR((struct nn_normalize){{2, 5, 3, 4}, {1, 0, 1, 0}, {0, 0, 1, 1}, EPSILON, true, true}),
     3,
     3,
     {FLOATS(3, 2, 5, 12), FLOATS(1, 12), FLOATS(1, 12)},
     {true, true, true}},
    {"normalize, neither gamma nor beta",
     &nn_op_normalize,
     ATTR((struct nn_normalize){{6, 4, 1, 1}, {1, 0, 0, 0}, {0, 1, 0, 0}, EPSILON, false, false}),
     1,
     3,
     {FLOATS(2, 6, 4)},
     {true}},
    {"normalize, means of two axes",  // nobody's but the reference's
     &nn_op_normalize,
     ATTR((struct nn_normalize){{4, 3, 5, 1}, {1, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}),
     3,
     3,
     {FLOATS(3, 4, 3, 5), FLOATS(1, 3), FLOATS(1, 3)},
     {true, true, true}},
    // A variance that is drawn may be negative: not with this epsilon.
    {"normalize by what is given",
     &nn_op_normalize_by,
     ATTR((struct nn_normalize){{6, 4, 1, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, 2.5f, true, true}),
     5,
     1,
     {FLOATS(2, 6, 4), FLOATS(1, 4), FLOATS(1, 4), FLOATS(1, 4), FLOATS(1, 4)},
     {true}},
};

#endif
