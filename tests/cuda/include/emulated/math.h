// SPDX-License-Identifier: Apache-2.0
//
// Intrinsics of device code that the host's compiler does not know. The fast ones are as exact here as the others.
#ifndef EMULATED_MATH_H
#define EMULATED_MATH_H

#include <math.h>

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T value)
{
    *p = value;
}

#define EMU_MIN_MAX(T)            \
    static inline T min(T a, T b) \
    {                             \
        return a < b ? a : b;     \
    }                             \
    static inline T max(T a, T b) \
    {                             \
        return a > b ? a : b;     \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
// As on the device: of a number and a NaN, the number.
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
// Macros: the host's C library declares functions of these names.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __frsqrt_rn(float x)
{
    return 1.0f / sqrtf(x);
}
static inline float sinpif(float x)
{
    return (float)sin(M_PI * (double)x);
}
static inline float cospif(float x)
{
    return (float)cos(M_PI * (double)x);
}
static inline void sincospif(float x, float *sine, float *cosine)
{
    *sine = sinpif(x);
    *cosine = cospif(x);
}
static inline float normcdff(float x)
{
    return 0.5f * erfcf(x * (float)-M_SQRT1_2);
}
static inline float __saturatef(float x)
{
    return fminf(fmaxf(x, 0.0f), 1.0f);
}
static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fsub_rn(float x, float y)
{
    return x - y;
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline int __float2int_rn(float x)
{
    return (int)lrintf(x);
}
static inline int __float2int_rz(float x)
{
    return (int)x;
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

static inline int __float_as_int(float x)
{
    int y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x)
{
    return (unsigned)__float_as_int(x);
}
static inline float __int_as_float(int x)
{
    float y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
static inline float __uint_as_float(unsigned x)
{
    return __int_as_float((int)x);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((unsigned long long)a * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

#endif
