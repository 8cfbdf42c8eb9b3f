// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_NN_OPS_BASICS_H
#define TEST_NN_OPS_BASICS_H

static const struct op_case basics_cases[] = {
    {"relu", &nn_op_relu, NULL, 0, 1, 1, {FLOATS(2, 4, 5)}, {true}},
    {"softmax", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(2, 4, 5)}, {true}},
    {"add", &nn_op_add, NULL, 0, 2, 1, {FLOATS(2, 4, 5), FLOATS(2, 4, 5)}, {true, true}},
    {"copy", &nn_op_copy, NULL, 0, 1, 1, {FLOATS(2, 4, 5)}, {true}},
};

#endif
