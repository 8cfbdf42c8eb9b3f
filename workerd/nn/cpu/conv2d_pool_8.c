// SPDX-License-Identifier: Apache-2.0
//
// conv2d_pool for processors with AVX2.
#ifdef __x86_64__
#pragma GCC target("avx2,fma")
#define V 8
#define CELLS 1
#define WIDE 2
#include "workerd/nn/cpu/conv2d_pool_isa.h"

const struct conv2d_pool_isa conv2d_pool_8 = {V, pool_pack, pool_forward, pool_weights, pool_weights_dense, pool_data};
#endif
