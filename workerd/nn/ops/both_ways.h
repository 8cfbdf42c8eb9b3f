// SPDX-License-Identifier: Apache-2.0
//
// What Bidirectional makes of the two ways through a sequence.
#ifndef NN_OPS_BOTH_WAYS_H
#define NN_OPS_BOTH_WAYS_H

#include "workerd/nn/op.h"

struct nn_both_ways {
    enum nn_merge { NN_MERGE_CONCAT, NN_MERGE_SUM, NN_MERGE_MUL, NN_MERGE_AVE } merge;
};

// a, b (n, t, u), whose steps stand the other way round, or (n, u) -> y (n, [t,] u), CONCAT: (n, [t,] 2 u)
extern const struct nn_op_class nn_op_both_ways;
extern const struct nn_op_class nn_op_both_ways_backward;  // a, b, dy -> da, db

#endif
