// SPDX-License-Identifier: Apache-2.0
#include "psd/store/numbers.h"

#include <stdint.h>

#include "common/math/cpu.h"
#include "common/wire/dtype.h"

typedef float unaligned_float __attribute__((aligned(1)));
typedef double unaligned_double __attribute__((aligned(1)));
typedef uint32_t unaligned_uint32_t __attribute__((aligned(1)));
typedef uint64_t unaligned_uint64_t __attribute__((aligned(1)));

#define EACH(name, type, op)                                                                      \
    PS_PER_CPU static void name(type *to, const type *from, const unaligned_##type *by, size_t n) \
    {                                                                                             \
        PS_ELEMENTWISE                                                                            \
        for (size_t i = 0; i < n; i++)                                                            \
            to[i] = from[i] op by[i];                                                             \
    }
EACH(add_float, float, +)
EACH(add_double, double, +)
EACH(add_uint32, uint32_t, +)
EACH(add_uint64, uint64_t, +)
EACH(subtract_float, float, -)
EACH(subtract_double, double, -)
EACH(subtract_uint32, uint32_t, -)
EACH(subtract_uint64, uint64_t, -)

void psd_numbers_add(int dtype, void *to, const void *from, const void *by, size_t n)
{
    switch (dtype) {
    case PS_FLOAT32:
        add_float(to, from, by, n);
        break;
    case PS_FLOAT64:
        add_double(to, from, by, n);
        break;
    case PS_INT32:
        add_uint32(to, from, by, n);
        break;
    case PS_INT64:
        add_uint64(to, from, by, n);
        break;
    }
}

void psd_numbers_subtract(int dtype, void *to, const void *from, const void *by, size_t n)
{
    switch (dtype) {
    case PS_FLOAT32:
        subtract_float(to, from, by, n);
        break;
    case PS_FLOAT64:
        subtract_double(to, from, by, n);
        break;
    case PS_INT32:
        subtract_uint32(to, from, by, n);
        break;
    case PS_INT64:
        subtract_uint64(to, from, by, n);
        break;
    }
}
