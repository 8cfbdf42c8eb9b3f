// SPDX-License-Identifier: Apache-2.0
//
// The numbers that are added up, and their sums. Threads: any.
#ifndef WK_ADD_H
#define WK_ADD_H

#include "common/wire/slice.h"

enum wk_number { WK_FLOAT, WK_DOUBLE };

static inline size_t wk_number_size(enum wk_number type)
{
    return type == WK_FLOAT ? sizeof(float) : sizeof(double);
}

// Where part k of n numbers begins that are shared out into so many parts: on a cache line; that of `parts` is the end.
static inline size_t wk_part(size_t n, uint32_t parts, uint32_t k)
{
    return k == parts ? n : (size_t)((unsigned __int128)n * k / parts) & ~(size_t)15;
}

// sum[i] += v[i]; the arrays do not overlap.
void wk_add(enum wk_number type, void *sum, const void *v, size_t n);

// sum[i] = a[i] + b[i]; sum may be a.
void wk_sum(enum wk_number type, void *sum, const void *a, const void *b, size_t n);

// to[i] = come[i] + to[i], of n little-endian numbers that lie anywhere in a slice list.
void wk_add_slices(enum wk_number type, void *to, const struct ps_slices *come, size_t n);

#endif
