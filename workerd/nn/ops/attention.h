// SPDX-License-Identifier: Apache-2.0
//
// Attention by several heads: sequences a (n, i, heads, d) and b (n, j, heads, d), and what every step of the one is to
// every step of the other, s (n, heads, i, j). The projections around them are dense operators.
#ifndef NN_OPS_ATTENTION_H
#define NN_OPS_ATTENTION_H

#include "workerd/nn/op.h"

struct nn_attention {
    float scale;
    bool across;  // nn_op_attention_sum: over i, not over j
};

extern const struct nn_op_class nn_op_attention_scores;  // a, b -> s = scale a . b
// s, b (n, j, heads, d) -> (n, i, heads, d): scale times the sum over j of s b; across: s, a -> (n, j, heads, d)
extern const struct nn_op_class nn_op_attention_sum;

// The softmax of s over j, of what counts: masks by i (n, i) and by j (n, j), or by both (n, i, j), and, causal, j up
// to i. Where nothing counts, everything counts alike, or is 0 where that is asked for, and has no gradient.
struct nn_attention_softmax {
    bool by_i, by_j, causal;
    bool by_both;      // not with by_j
    bool zero_unseen;  // where nothing counts
};

extern const struct nn_op_class nn_op_attention_softmax;           // s[, mask by i][, mask by j, or both] -> p
extern const struct nn_op_class nn_op_attention_softmax_backward;  // p, dp[, mask by i][, mask by j, or both] -> ds

#endif
