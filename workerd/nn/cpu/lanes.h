// SPDX-License-Identifier: Apache-2.0
//
// Sums of floats in lanes beside each other, which a PS_PER_CPU function turns into vector code: lane i has what stands
// at i, i + 32, i + 64, ... How they add up decides the bits of a sum, and is the same for every operator.
#ifndef NN_CPU_LANES_H
#define NN_CPU_LANES_H

#include <stddef.h>

enum { NN_CPU_LANES = 32 };

// The sum of the lanes.
static inline double nn_cpu_fold(const float *lane)
{
    double sum = 0;
    for (size_t i = 0; i < NN_CPU_LANES; i++)
        sum += (double)lane[i];
    return sum;
}

// The sum of x (n). Always inlined: as a function of its own it would not be compiled for each kind of processor.
static inline __attribute__((always_inline)) double nn_cpu_sum_lanes(size_t n, const float *x)
{
    float lane[NN_CPU_LANES] = {0};
    size_t at = 0;
    for (; at + NN_CPU_LANES <= n; at += NN_CPU_LANES)
        for (size_t i = 0; i < NN_CPU_LANES; i++)
            lane[i] += x[at + i];
    for (size_t i = 0; at + i < n; i++)
        lane[i] += x[at + i];
    return nn_cpu_fold(lane);
}

#endif
