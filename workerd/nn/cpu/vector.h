// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions that a loop of a PS_PER_CPU function turns into vector code: no calls, and no branches that
// compute. Within a few units of the last place of the result, or of 1 where the result is small beside what it is
// the difference of. A NaN stays one.
#ifndef NN_CPU_VECTOR_H
#define NN_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

// e^x for x <= 0 to within 2 units of the last place, 0 below -87, NaN for NaN. x = n ln 2 + r, |r| <= ln 2 / 2;
// e^r by its series; 2^n through the exponent's bits.
static inline float vector_exp_of_negative(float x)
{
    const float to_integer = 12582912;  // 1.5 * 2^23: added to a small number, its last bits are the nearest integer
    float t = x * 1.44269504f + to_integer, n = t - to_integer;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;  // ln 2 in two parts
    float p = 1 + r * (1 + r * (1 / 2.0f + r * (1 / 6.0f + r * (1 / 24.0f + r * (1 / 120.0f + r * (1 / 720.0f))))));
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits << 23) + 0x3f800000;
    float power;
    memcpy(&power, &bits, sizeof power);
    float e = p * power;
    return x < -87 ? 0 : e;
}

static inline float vector_abs(float x)
{
    return __builtin_fabsf(x);
}

// Above 80 as e^16 e^(x - 16), for e^-x ends at -87.
static inline float vector_exp(float x)
{
    float less = x - 16, magnitude = vector_abs(x);
    float e = vector_exp_of_negative(x > 80 ? -less : -magnitude), inverse = 1 / e, more = inverse * 8886110.52f;
    float above = x > 80 ? more : inverse;
    return x > 0 ? above : e;
}

// e^x - 1 for x <= 0: by its series where the difference would lose digits.
static inline float vector_expm1_of_negative(float x)
{
    float far = vector_exp_of_negative(x) - 1;
    float near = x * (1 + x * (1 / 2.0f + x * (1 / 6.0f + x * (1 / 24.0f + x * (1 / 120.0f + x * (1 / 720.0f))))));
    return x > -0.3f ? near : far;
}

// log(1 + e) for 0 <= e <= 1: 2 atanh(s) with s = e / (2 + e) <= 1 / 3.
static inline float vector_log1p(float e)
{
    float s = e / (2 + e), q = s * s;
    return 2 * s * (1 + q * (1 / 3.0f + q * (1 / 5.0f + q * (1 / 7.0f + q * (1 / 9.0f + q * (1 / 11.0f + q / 13))))));
}

static inline float vector_sigmoid(float x)
{
    float e = vector_exp_of_negative(-vector_abs(x)), above = 1 / (1 + e), below = e * above;
    return x < 0 ? below : above;
}

static inline float vector_softplus(float x)
{
    float e = vector_exp_of_negative(-vector_abs(x)), positive = x < 0 ? 0 : x;
    return positive + vector_log1p(e);
}

// By its series where the difference would lose digits.
static inline float vector_tanh(float x)
{
    float e = vector_exp_of_negative(-2 * vector_abs(x)), far = (1 - e) / (1 + e), opposite = -far, q = x * x;
    float near = x * (1 + q * (-1 / 3.0f + q * (2 / 15.0f + q * (-17 / 315.0f + q * (62 / 2835.0f)))));
    float whole = x < 0 ? opposite : far;
    return q < 0.0625f ? near : whole;
}

// The distribution function of the normal distribution: Abramowitz and Stegun 1964, 7.1.26, of -|x| / sqrt 2, to
// within 1.5e-7. *density is e^(-x^2 / 2).
static inline float vector_normal(float x, float *density)
{
    float a = vector_abs(x) * 0.70710678f, t = 1 / (1 + 0.3275911f * a), e = vector_exp_of_negative(-a * a);
    float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float below = 0.5f * p * e, above = 1 - below;
    *density = e;
    return x < 0 ? below : above;
}

#endif
