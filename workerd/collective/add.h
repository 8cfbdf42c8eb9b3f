// SPDX-License-Identifier: Apache-2.0
//
// The numbers that are added up, and their sums. Threads: any.
#ifndef WK_ADD_H
#define WK_ADD_H

#include <stddef.h>
#include <stdint.h>

enum wk_number {
    WK_FLOAT,
    WK_DOUBLE,
    // Floats in memory, of which 16 bits travel from host to host: rounded to the nearest, and between two to the even
    // one. A float16 has no room for more than 65504.
    WK_FLOAT_AS_BFLOAT16,
    WK_FLOAT_AS_FLOAT16
};

static inline size_t wk_number_size(enum wk_number type)
{
    return type == WK_DOUBLE ? sizeof(double) : sizeof(float);
}

// Bytes of one that travels.
static inline size_t wk_wire_size(enum wk_number type)
{
    return type >= WK_FLOAT_AS_BFLOAT16 ? sizeof(uint16_t) : wk_number_size(type);
}

enum { WK_WHAT = 100 };  // bytes that are told of an array's name

// What is added up: an array of each rank, all of the same n, type and name.
struct wk_array {
    void *values;
    size_t n;
    enum wk_number type;
    const char *what;  // its name: "dense/kernel in step 7"
};

// A hash of n, type and name, by which ranks notice that they add up different arrays.
uint64_t wk_array_id(const struct wk_array *a);

// Where part k of n numbers begins that are shared out into so many parts: on a cache line; that of `parts` is the end.
static inline size_t wk_part(size_t n, uint32_t parts, uint32_t k)
{
    return k == parts ? n : (size_t)((unsigned __int128)n * k / parts) & ~(size_t)15;
}

// sum[i] += v[i]; the arrays do not overlap.
void wk_add(enum wk_number type, void *sum, const void *v, size_t n);

// sum[i] = a[i] + b[i]; sum may be a.
void wk_sum(enum wk_number type, void *sum, const void *a, const void *b, size_t n);

// What travels of n numbers, [n * wk_wire_size] bytes. The numbers become what who receives it will have.
void wk_encode(enum wk_number type, void *values, size_t n, uint8_t *wire);

// to[i] = come[i] + to[i], or to[i] = come[i], of n numbers that have travelled; come need not be aligned.
void wk_add_come(enum wk_number type, void *to, const uint8_t *come, size_t n);
void wk_take_come(enum wk_number type, void *to, const uint8_t *come, size_t n);

#endif
