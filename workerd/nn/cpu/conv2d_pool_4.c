// SPDX-License-Identifier: Apache-2.0
//
// conv2d_pool for any processor.
#define V 4
#define CELLS 1
#define WIDE 2
#include "workerd/nn/cpu/conv2d_pool_isa.h"

const struct conv2d_pool_isa conv2d_pool_4 = {V, pool_pack, pool_forward, pool_weights, pool_weights_dense, pool_data};
