// SPDX-License-Identifier: Apache-2.0
#include "common/math/aggregate.h"

#include "common/math/cpu.h"

// Adding to +0 makes +0 of a product of -0, as a sum that starts at zero does.
PS_PER_CPU static void aggregate_begin_loop(size_t n, float weight, const float *g, float *sum)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        sum[i] = 0.0f + weight * g[i];
}

PS_PER_CPU static void aggregate_add_loop(size_t n, float weight, const float *g, float *sum)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        sum[i] += weight * g[i];
}

PS_PER_CPU static void aggregate_mean_loop(size_t n, float total, const float *sum, float *mean)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        mean[i] = sum[i] / total;
}

void ps_aggregate_begin(size_t n, uint64_t examples, const float *g, float *sum)
{
    aggregate_begin_loop(n, (float)examples, g, sum);
}

void ps_aggregate_add(size_t n, uint64_t examples, const float *g, float *sum)
{
    aggregate_add_loop(n, (float)examples, g, sum);
}

void ps_aggregate_mean(size_t n, uint64_t total, const float *sum, float *mean)
{
    aggregate_mean_loop(n, (float)total, sum, mean);
}
