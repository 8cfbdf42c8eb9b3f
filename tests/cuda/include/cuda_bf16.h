// SPDX-License-Identifier: Apache-2.0
//
// The emulated bf16: storage, and conversions that round to the nearest, to even between two.
#ifndef EMULATED_BF16_H
#define EMULATED_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short bits;
};
typedef struct __nv_bfloat16 nv_bfloat16;

#ifdef __cplusplus
static inline __nv_bfloat16 __float2bfloat16(float x)
{
    unsigned bits = __float_as_uint(x);
    bits = x == x ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
    return __nv_bfloat16{(unsigned short)(bits >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __float2bfloat16(x);
}
static inline float __bfloat162float(__nv_bfloat16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x)
{
    return __nv_bfloat16{x};
}
#endif

#endif
