// SPDX-License-Identifier: Apache-2.0
// A function marked PS_PER_CPU is compiled once per instruction set; the loader picks when the program starts.
#ifndef PS_COMMON_CPU_H
#define PS_COMMON_CPU_H

// clang 14 does not vectorise its clones. Under ThreadSanitizer gcc instruments what picks, which runs before the
// sanitizer's runtime is up, and the program ends before main.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define PS_PER_CPU __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define PS_PER_CPU
#endif

// Before a loop in which element i of the outputs depends on elements i of the inputs alone, so that the arrays may be
// the same, or apart, but not overlap otherwise.
#ifdef __clang__
#define PS_ELEMENTWISE  // finds out for itself
#else
#define PS_ELEMENTWISE _Pragma("GCC ivdep")
#endif

#endif
