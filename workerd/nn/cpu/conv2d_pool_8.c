// SPDX-License-Identifier: Apache-2.0
//
// conv2d_pool for processors with AVX2.
#ifdef __x86_64__
#pragma GCC target("avx2,fma")
#define ISA conv2d_pool_8
#define V 8
#define CELLS 1
#define WIDE 2
#define TILES 6
#include "workerd/nn/cpu/conv2d_pool_isa.h"
#endif
