// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/add.h"

#include <string.h>

#include "common/base/hash.h"
#include "common/math/half.h"

#define ADD(TYPE)                                                                \
    static void add_##TYPE##s(TYPE *sum, const TYPE *a, const TYPE *b, size_t n) \
    {                                                                            \
        for (size_t i = 0; i < n; i++)                                           \
            sum[i] = a[i] + b[i];                                                \
    }                                                                            \
    _Static_assert(sizeof(TYPE) <= sizeof(double), "a number has at most eight bytes")

ADD(float);
ADD(double);

void wk_sum(enum wk_number type, void *sum, const void *a, const void *b, size_t n)
{
    if (type == WK_DOUBLE)
        add_doubles(sum, a, b, n);
    else
        add_floats(sum, a, b, n);
}

uint64_t wk_array_id(const struct wk_array *a)
{
    const uint64_t numbers[2] = {a->n, (uint64_t)a->type};
    return ps_hash(ps_hash(PS_HASH_SEED, numbers, sizeof numbers), a->what, strlen(a->what));
}

void wk_add(enum wk_number type, void *sum, const void *v, size_t n)
{
    wk_sum(type, sum, sum, v, n);
}

// ---- numbers that travel ------------------------------------------------------------------------------------------

#define ENCODE(NAME)                                                               \
    static void encode_##NAME(float *restrict v, uint8_t *restrict wire, size_t n) \
    {                                                                              \
        for (size_t i = 0; i < n; i++) {                                           \
            const uint16_t half = ps_to_##NAME(v[i]);                              \
            memcpy(wire + i * sizeof half, &half, sizeof half);                    \
            v[i] = ps_of_##NAME(half);                                             \
        }                                                                          \
    }                                                                              \
    _Static_assert(sizeof(uint16_t) == 2, "two bytes travel")

ENCODE(bfloat16);
ENCODE(float16);

void wk_encode(enum wk_number type, void *values, size_t n, uint8_t *wire)
{
    if (type == WK_FLOAT_AS_BFLOAT16)
        encode_bfloat16(values, wire, n);
    else if (type == WK_FLOAT_AS_FLOAT16)
        encode_float16(values, wire, n);
    else
        memcpy(wire, values, n * wk_number_size(type));
}

// Two functions for numbers that have travelled as WIRE, in memory that may not be aligned.
#define COME(NAME, TYPE, WIRE, OF)                                                     \
    static void add_##NAME(void *restrict at, const uint8_t *restrict come, size_t n)  \
    {                                                                                  \
        TYPE *to = at;                                                                 \
        for (size_t i = 0; i < n; i++) {                                               \
            WIRE v;                                                                    \
            memcpy(&v, come + i * sizeof v, sizeof v);                                 \
            to[i] = OF(v) + to[i];                                                     \
        }                                                                              \
    }                                                                                  \
                                                                                       \
    static void take_##NAME(void *restrict at, const uint8_t *restrict come, size_t n) \
    {                                                                                  \
        TYPE *to = at;                                                                 \
        for (size_t i = 0; i < n; i++) {                                               \
            WIRE v;                                                                    \
            memcpy(&v, come + i * sizeof v, sizeof v);                                 \
            to[i] = OF(v);                                                             \
        }                                                                              \
    }                                                                                  \
    _Static_assert(sizeof(WIRE) <= sizeof(double), "a number has at most eight bytes")

COME(float, float, float, );
COME(double, double, double, );
COME(bfloat16, float, uint16_t, ps_of_bfloat16);
COME(float16, float, uint16_t, ps_of_float16);

typedef void (*come_fn)(void *restrict to, const uint8_t *restrict come, size_t n);

static const struct {
    come_fn add, take;
} come_of[] = {
    [WK_FLOAT] = {add_float, take_float},
    [WK_DOUBLE] = {add_double, take_double},
    [WK_FLOAT_AS_BFLOAT16] = {add_bfloat16, take_bfloat16},
    [WK_FLOAT_AS_FLOAT16] = {add_float16, take_float16},
};

void wk_add_come(enum wk_number type, void *to, const uint8_t *come, size_t n)
{
    come_of[type].add(to, come, n);
}

void wk_take_come(enum wk_number type, void *to, const uint8_t *come, size_t n)
{
    come_of[type].take(to, come, n);
}
