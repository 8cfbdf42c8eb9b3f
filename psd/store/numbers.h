// SPDX-License-Identifier: Apache-2.0
//
// Loops over runs of numbers, compiled for each instruction set. Pure; any thread.
#ifndef PSD_NUMBERS_H
#define PSD_NUMBERS_H

#include <stddef.h>

// to[i] = from[i] + by[i], or - by[i]; n elements of a dtype that is a number; by may be unaligned. Integers wrap
// around. to may be from.
void psd_numbers_add(int dtype, void *to, const void *from, const void *by, size_t n);
void psd_numbers_subtract(int dtype, void *to, const void *from, const void *by, size_t n);

#endif
