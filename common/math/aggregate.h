// SPDX-License-Identifier: Apache-2.0
//
// The mean gradient of several contributors: sum(n_i g_i) / sum(n_i), n_i the examples behind gradient g_i.
//
// A sum is begun with one gradient and goes on with the others in the order of their ranks. The order decides the bits,
// because float addition is not associative; nothing else does: the loops are elementwise, and products are not
// contracted into fused multiply-adds. So whoever adds the same gradients in the same order gets the same bits, on any
// machine, in one pass or in many, over any division of the elements among threads or tasks.
//
// A gradient with n_i = 0 is left out by the caller. It is not multiplied by 0, which would make a NaN of an infinity.
//
// Threads: any; a call touches nothing but its arguments.
#ifndef PS_COMMON_AGGREGATE_H
#define PS_COMMON_AGGREGATE_H

#include <stddef.h>
#include <stdint.h>

// The greatest n_i. The sum of the n_i of 2^23 contributors fits 63 bits, so it cannot wrap.
#define PS_EXAMPLES_MAX (UINT64_C(1) << 40)

// sum[i] = 0 + examples * g[i]. sum may be g.
void ps_aggregate_begin(size_t n, uint64_t examples, const float *g, float *sum);
// sum[i] += examples * g[i]. The arrays do not overlap.
void ps_aggregate_add(size_t n, uint64_t examples, const float *g, float *sum);
// mean[i] = sum[i] / total, total being the sum of the examples, above 0. mean may be sum.
void ps_aggregate_mean(size_t n, uint64_t total, const float *sum, float *mean);

#endif
