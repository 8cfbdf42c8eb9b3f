// SPDX-License-Identifier: Apache-2.0
//
// Sums of arrays. What has come is added to what is here: to[i] = come[i] + to[i], of little-endian numbers that lie
// anywhere in a slice list. Threads: any.
#ifndef WK_ADD_H
#define WK_ADD_H

#include "common/wire/slice.h"

// come has n of them.
void wk_add_floats(const struct ps_slices *come, float *to, size_t n);
void wk_add_doubles(const struct ps_slices *come, double *to, size_t n);

// sum[i] += v[i]; the arrays do not overlap.
void wk_add_to_floats(float *sum, const float *v, size_t n);
void wk_add_to_doubles(double *sum, const double *v, size_t n);

#endif
