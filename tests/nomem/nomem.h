// SPDX-License-Identifier: Apache-2.0
//
// Memory that runs out where a test says so. The linker puts these in place of the allocator for all of our own objects
// (see $(nomem_ldflags)); what the C library and others allocate for themselves is not seen.
//
// The allocations that are made while the window is open are counted, and those of them that were chosen fail. Each
// thread has a window of its own; what was chosen, and the count, are of them all together. The
// functions of common/base/alloc.h that abort never fail here: tests and the simulated world use them, psd and
// libclient do not (tests/lint/lint.sh).
#ifndef TEST_NOMEM_H
#define TEST_NOMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A sweep tries each of these lengths of a row of failures, with every first one; sanitizers make it slow, so that some
// are left out there. NOMEM_FULL=1: more lengths, and none is left out.
size_t nomem_rows(const uint64_t **lengths);
uint64_t nomem_stride(void);

// From now on allocations nth, nth + 1, ... nth + k - 1 fail, counted from 0. k 0: none.
void nomem_fail(uint64_t nth, uint64_t k);
void nomem_window(bool open);
uint64_t nomem_count(void);   // in the window, since nomem_fail
uint64_t nomem_failed(void);  // of these
void nomem_mark(void);
size_t nomem_live(bool print);  // blocks that live and were made since the mark; print: the first few are shown

#endif
