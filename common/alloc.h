// SPDX-License-Identifier: Apache-2.0
//
// Memory for control structures. These are small and bounded by what was admitted; where there is none left, the
// process says so and aborts. Memory whose size a user decides (blocks, rounds, tensors, decoded messages) is asked
// for with malloc's own functions or a pool, and its absence is an error like any other.
#ifndef PS_COMMON_ALLOC_H
#define PS_COMMON_ALLOC_H

#include <stddef.h>

void *ps_alloc(size_t size);          // zeroed
void *ps_alloc_aligned(size_t size);  // 64-byte aligned, not zeroed
void *ps_realloc(void *p, size_t size);
char *ps_strdup(const char *s);
char *ps_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Tells glibc to keep large blocks instead of giving each back to the kernel: with its defaults every receive buffer
// is mapped and page-faulted anew, which halves the throughput of large tensors. Call once, first in main.
void ps_alloc_tune(void);

#endif
