// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_NN_OPS_SHAPE_H
#define TEST_NN_OPS_SHAPE_H

#include "workerd/nn/ops/transpose.h"

static const struct op_case shape_cases[] = {
    {"transpose, several tiles",
     &nn_op_transpose,
     ATTR((struct nn_transpose){{1, 0}}),
     1,
     1,
     {FLOATS(2, 33, 35)},
     {true}},
    {"transpose", &nn_op_transpose, ATTR((struct nn_transpose){{0, 3, 1, 2}}), 1, 1, {FLOATS(4, 2, 3, 4, 5)}, {true}},
    {"transpose of two", &nn_op_transpose, ATTR((struct nn_transpose){{1, 0}}), 1, 1, {FLOATS(2, 3, 4)}, {true}},
    {"repeat", &nn_op_repeat, ATTR((struct nn_repeat){3}), 1, 1, {FLOATS(2, 4, 5)}, {true}},
};

#endif
