// SPDX-License-Identifier: Apache-2.0
//
// conv2d_pool for processors with AVX2.
#ifdef __x86_64__
#pragma GCC target("avx2,fma")
#define V 8
#define CELLS 1
#define WIDE 2
#define TILES 6
#include "workerd/nn/cpu/conv2d_pool_isa.h"

const struct conv2d_pool_isa conv2d_pool_8 = {.vector = V,
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
