// SPDX-License-Identifier: Apache-2.0
//
// Floats in 16 bits: bfloat16 (the upper half of a float) and float16 (IEEE 754 binary16). Without branches, so that
// loops over them become vector code.
#ifndef PS_HALF_H
#define PS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ps_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float ps_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Adding a half of the last place that stays, less one bit where that is even, rounds to the nearest or to even. A NaN
// stays one.
static inline uint16_t ps_to_bfloat16(float x)
{
    const uint32_t bits = ps_float_bits(x), rounded = bits + 0x7fff + (bits >> 16 & 1);
    const uint32_t is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)(is_nan ? bits >> 16 | 0x40 : rounded >> 16);
}

static inline float ps_of_bfloat16(uint16_t half)
{
    return ps_float_of((uint32_t)half << 16);
}

// Below 2^-14, the smallest normal number, adding 0.5 rounds to a multiple of 2^-24, the last place of them all, and
// leaves it in the lower bits. From there on the exponent's bias changes from 127 to 15.
static inline uint16_t ps_to_float16(float x)
{
    const uint32_t bits = ps_float_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    const uint32_t small = ps_float_bits(ps_float_of(size) + 0.5f) - ps_float_bits(0.5f);
    const uint32_t normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const uint32_t large = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (uint16_t)(sign | (size < 113u << 23 ? small : size < 143u << 23 ? normal : large));
}

// A subnormal number is its fraction times 2^-24.
static inline float ps_of_float16(uint16_t half)
{
    const uint32_t size = half & 0x7fff, sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t small = ps_float_bits((float)(int32_t)size * 0x1p-24f);
    const uint32_t normal = (size << 13) + (112u << 23), large = (size << 13) + (224u << 23);
    return ps_float_of(sign | (size < 0x400 ? small : size < 0x7c00 ? normal : large));
}

#endif
