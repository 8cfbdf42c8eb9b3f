// SPDX-License-Identifier: Apache-2.0
#include "common/math/encoding.h"

#include <math.h>
#include <string.h>

#include "common/math/cpu.h"
#include "common/math/half.h"
#include "common/wire/dtype.h"

bool ps_is_encoding(int dtype)
{
    return dtype == PS_BFLOAT16 || dtype == PS_SCALED_INT8;
}

size_t ps_encoding_scales(int dtype, uint64_t first, uint64_t n)
{
    const uint64_t groups = (first + n - 1) / PS_ENCODING_GROUP - first / PS_ENCODING_GROUP + 1;
    return dtype == PS_SCALED_INT8 ? groups * sizeof(float) : 0;
}

size_t ps_encoding_numbers(int dtype, uint64_t n)
{
    return dtype == PS_SCALED_INT8 ? n : n * sizeof(uint16_t);
}

// ---- bfloat16 -----------------------------------------------------------------------------------------------------

typedef uint16_t unaligned_half __attribute__((aligned(1)));

PS_PER_CPU static void encode_halves(size_t n, const float *x, float *residual, unaligned_half *to)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        const float whole = x[i] + residual[i];
        const uint16_t half = ps_to_bfloat16(whole);
        const float lost = whole - ps_of_bfloat16(half);
        to[i] = half;
        residual[i] = lost - lost == 0 ? lost : 0;
    }
}

PS_PER_CPU static void decode_halves(size_t n, const unaligned_half *from, float *x)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        x[i] = ps_of_bfloat16(from[i]);
}

// ---- a group of bytes and its scale -------------------------------------------------------------------------------

// The difference of a number and itself is 0, of anything else NaN.
PS_PER_CPU static float group_scale(size_t n, const float *x, const float *residual)
{
    float most = 0, none = 0;
    for (size_t i = 0; i < n; i++) {
        const float whole = x[i] + residual[i], size = fabsf(whole);
        most = size > most ? size : most;
        none += whole - whole;
    }
    return most / 127 + none;
}

// Where the scale is 0, so is all that it could be multiplied by. 127 scales may round to less than what was divided.
PS_PER_CPU static void encode_bytes(size_t n, const float *x, float *residual, float scale, int8_t *to)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        const float whole = x[i] + residual[i], times = scale > 0 ? rintf(whole / scale) : 0;
        const float fits = times > 127 ? 127 : times < -127 ? -127 : times;
        const float lost = whole - fits * scale;
        to[i] = (int8_t)fits;
        residual[i] = lost - lost == 0 ? lost : 0;
    }
}

PS_PER_CPU static void decode_bytes(size_t n, const int8_t *from, float scale, float *x)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        x[i] = (float)from[i] * scale;
}

// How many of n elements lie in the group of the first.
static size_t group_part(uint64_t first, size_t n)
{
    const size_t left = PS_ENCODING_GROUP - first % PS_ENCODING_GROUP;
    return left < n ? left : n;
}

static void encode_groups(uint64_t first, size_t n, const float *x, float *residual, uint8_t *scales, int8_t *to)
{
    for (size_t at = 0, part; at < n; at += part, scales += sizeof(float)) {
        part = group_part(first + at, n - at);
        const float scale = group_scale(part, x + at, residual + at);
        memcpy(scales, &scale, sizeof scale);
        encode_bytes(part, x + at, residual + at, scale, to + at);
    }
}

static void decode_groups(uint64_t first, size_t n, const uint8_t *scales, const int8_t *from, float *x)
{
    for (size_t at = 0, part; at < n; at += part, scales += sizeof(float)) {
        float scale;
        part = group_part(first + at, n - at);
        memcpy(&scale, scales, sizeof scale);
        decode_bytes(part, from + at, scale, x + at);
    }
}

// ---- both ---------------------------------------------------------------------------------------------------------

void ps_encoding_write(int dtype, uint64_t first, size_t n, const float *x, float *residual, uint8_t *scales,
                       uint8_t *numbers)
{
    if (dtype == PS_SCALED_INT8)
        encode_groups(first, n, x, residual, scales, (int8_t *)numbers);
    else
        encode_halves(n, x, residual, (unaligned_half *)(void *)numbers);
}

// How many are no number when they come back. The greatest of a group of bytes comes back as it is here.
PS_PER_CPU static size_t encoding_nonfinite(int dtype, size_t n, const float *x, const float *residual)
{
    uint32_t found = 0;  // of a run that is shorter than 2^32
    if (dtype == PS_SCALED_INT8)
        for (size_t i = 0; i < n; i++) {
            const float back = (x[i] + residual[i]) / 127 * 127;
            found += !(back - back == 0);
        }
    else
        for (size_t i = 0; i < n; i++) {
            const float back = ps_of_bfloat16(ps_to_bfloat16(x[i] + residual[i]));
            found += !(back - back == 0);
        }
    return found;
}

size_t ps_encoding_nonfinite_first(int dtype, size_t n, const float *x, const float *residual)
{
    enum { RUN = 4096 };  // looked through at once: no run is left before its end
    size_t at = 0, run = RUN;
    for (; at < n; at += run) {
        run = n - at < RUN ? n - at : RUN;
        if (encoding_nonfinite(dtype, run, x + at, residual + at) > 0)
            break;
    }
    while (at < n && encoding_nonfinite(dtype, 1, x + at, residual + at) == 0)
        at++;
    return at;
}

void ps_encoding_read(int dtype, uint64_t first, size_t n, const uint8_t *scales, const uint8_t *numbers, float *x)
{
    if (dtype == PS_SCALED_INT8)
        decode_groups(first, n, scales, (const int8_t *)numbers, x);
    else
        decode_halves(n, (const unaligned_half *)(const void *)numbers, x);
}
