// SPDX-License-Identifier: Apache-2.0
//
// What differs between the versions of CUDA that these sources are built with: 12 (sm_70 on) and 13 (sm_75 on).
#ifndef NN_CUDA_VERSION_H
#define NN_CUDA_VERSION_H

#include <cuda_runtime.h>

#if CUDART_VERSION < 12000
#error "CUDA 12 or later is needed: configure --with-cuda=DIR names another one"
#endif

// The oldest driver that runs programs of this CUDA, as NVIDIA names it; and the oldest GPU that these sources can be
// compiled for with it, ten times its compute capability.
#if CUDART_VERSION >= 13000
#define NN_CUDA_DRIVER "580"
#define NN_CUDA_OLDEST 75
#else
#define NN_CUDA_DRIVER "525"
#define NN_CUDA_OLDEST 70
#endif

#endif
