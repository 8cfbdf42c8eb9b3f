// SPDX-License-Identifier: Apache-2.0
//
// conv2d_pool for processors with AVX-512.
#ifdef __x86_64__
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#define V 16
#define CELLS 2
#define WIDE 2
#define TILES 13
#include "workerd/nn/cpu/conv2d_pool_isa.h"

const struct conv2d_pool_isa conv2d_pool_16 = {.vector = V,
                                               .pack = pool_pack,
                                               .forward = pool_forward,
                                               .tiles = TILES,
                                               .pack_tiles = pool_pack_tiles,
                                               .forward_tiles = pool_forward_tiles,
                                               .bias = pool_bias,
                                               .weights = pool_weights,
                                               .weights_dense = pool_weights_dense,
                                               .data = pool_data};
#endif
