// SPDX-License-Identifier: Apache-2.0
#include "common/math/finite.h"

#include <stdint.h>

#include "common/math/cpu.h"
#include "common/wire/dtype.h"

typedef uint32_t finite_bits32 __attribute__((aligned(1)));
typedef uint64_t finite_bits64 __attribute__((aligned(1)));

// IEEE 754: a number is NaN or infinite where its exponent is all ones.
static const uint32_t exponent32 = UINT32_C(0x7f800000);
static const uint64_t exponent64 = UINT64_C(0x7ff0000000000000);

PS_PER_CPU static size_t finite_count32(const finite_bits32 *x, size_t n)
{
    uint32_t found = 0;  // of a run that is shorter than 2^32
    for (size_t i = 0; i < n; i++)
        found += (x[i] & exponent32) == exponent32;
    return found;
}

PS_PER_CPU static size_t finite_count64(const finite_bits64 *x, size_t n)
{
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += (x[i] & exponent64) == exponent64;
    return found;
}

size_t ps_nonfinite(int dtype, const void *x, size_t n)
{
    return dtype == PS_FLOAT32 ? finite_count32(x, n) : dtype == PS_FLOAT64 ? finite_count64(x, n) : 0;
}

// Numbers that are looked through at once: no run is left before its end.
enum { FINITE_RUN = 4096 };

size_t ps_nonfinite_first(int dtype, const void *x, size_t n)
{
    const size_t size = ps_dtype_size(dtype);
    const uint8_t *bytes = x;
    size_t at = 0, run = FINITE_RUN;
    for (; at < n; at += run) {
        run = n - at < FINITE_RUN ? n - at : FINITE_RUN;
        if (ps_nonfinite(dtype, bytes + at * size, run) > 0)
            break;
    }
    while (at < n && ps_nonfinite(dtype, bytes + at * size, 1) == 0)
        at++;
    return at;
}
