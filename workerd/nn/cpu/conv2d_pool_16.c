// SPDX-License-Identifier: Apache-2.0
//
// conv2d_pool for processors with AVX-512.
#ifdef __x86_64__
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#define ISA conv2d_pool_16
#define V 16
#define CELLS 2
#define WIDE 2
#define TILES 13
#include "workerd/nn/cpu/conv2d_pool_isa.h"
#endif
