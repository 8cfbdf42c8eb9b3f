// SPDX-License-Identifier: Apache-2.0
// Which numbers are NaN or infinite. Pure; any thread.
#ifndef PS_COMMON_FINITE_H
#define PS_COMMON_FINITE_H

#include <stddef.h>

// How many of n numbers, which may be unaligned, are NaN or infinite; 0 where the dtype is not of floating point.
size_t ps_nonfinite(int dtype, const void *x, size_t n);
// The index of the first of them; n: there is none.
size_t ps_nonfinite_first(int dtype, const void *x, size_t n);

#endif
