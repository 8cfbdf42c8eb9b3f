// SPDX-License-Identifier: Apache-2.0
//
// PS_HOST_DEVICE: an inline function that the GPU's kernels call, too.
#ifndef PS_COMMON_HOST_DEVICE_H
#define PS_COMMON_HOST_DEVICE_H

#ifdef __CUDACC__
#define PS_HOST_DEVICE __host__ __device__
#else
#define PS_HOST_DEVICE
#endif

#endif
