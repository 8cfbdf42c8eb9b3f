// SPDX-License-Identifier: Apache-2.0
//
// Memory. psd and libclient, and what they use of common/, ask with the ps_try_ functions: there NULL is an error like
// any other, which ends one request and nothing else (tests/nomem). The programs around them (start-up, workerd, psctl)
// may use those without try, which say so and abort; so may what lies on the gRPC core, which does so itself.
#ifndef PS_COMMON_ALLOC_H
#define PS_COMMON_ALLOC_H

#include <stddef.h>
#include <stdio.h>

#include "common/base/error.h"

void *ps_try_alloc(size_t size);                  // zeroed; NULL: no memory
void *ps_try_alloc_array(size_t n, size_t size);  // likewise; also where n * size overflows
void *ps_try_alloc_aligned(size_t size);          // 64-byte aligned, not zeroed: for tensors
void *ps_try_realloc(void *p, size_t size);       // NULL: no memory, p is as it was
// Memory of the kernel's own pages: zeroed, and none of it touched yet. What is asked for in a row lies in huge pages,
// where Linux has them: one page fault for 2 MiB instead of 512. NULL: no memory.
void *ps_try_map(size_t size);
void ps_unmap(void *p, size_t size);  // of ps_try_map; p may be NULL
char *ps_try_strdup(const char *s);
char *ps_try_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
// An array of *cap elements of that size, with room for n; where it has to grow, for twice as many as before. NULL: no
// memory, array and *cap are as they were.
void *ps_try_reserve(void *array, size_t n, size_t *cap, size_t size);
// RESOURCE_EXHAUSTED "no memory for <what>".
enum ps_code ps_no_memory(struct ps_error *e, const char *what);

void *ps_alloc(size_t size);          // zeroed
void *ps_alloc_aligned(size_t size);  // as ps_try_alloc_aligned
void *ps_realloc(void *p, size_t size);
char *ps_strdup(const char *s);
char *ps_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
FILE *ps_open_memory(char **text, size_t *size);  // open_memstream: once it is closed *text is the caller's to free

// Tells glibc to keep large blocks instead of giving each back to the kernel: with its defaults every receive buffer
// is mapped and page-faulted anew, which halves the throughput of large tensors. Call once, first in main.
void ps_alloc_tune(void);

#endif
