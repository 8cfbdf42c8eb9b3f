// SPDX-License-Identifier: Apache-2.0
//
// conv2d_pool for any processor.
#define ISA conv2d_pool_4
#define V 4
#define CELLS 1
#define WIDE 2
#define TILES 6
#include "workerd/nn/cpu/conv2d_pool_isa.h"
