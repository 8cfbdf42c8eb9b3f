// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/add.h"

#include <string.h>

// Two functions for each type: of arrays, and from memory that may not be aligned.
#define ADD(NAME, TYPE)                                                                 \
    static void NAME##s(TYPE *sum, const TYPE *a, const TYPE *b, size_t n)              \
    {                                                                                   \
        for (size_t i = 0; i < n; i++)                                                  \
            sum[i] = a[i] + b[i];                                                       \
    }                                                                                   \
                                                                                        \
    static void NAME##_bytes(TYPE *restrict to, const uint8_t *restrict come, size_t n) \
    {                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                \
            TYPE v;                                                                     \
            memcpy(&v, come + i * sizeof v, sizeof v);                                  \
            to[i] = v + to[i];                                                          \
        }                                                                               \
    }                                                                                   \
    _Static_assert(sizeof(TYPE) <= sizeof(double), "a number that a slice cuts has room")

ADD(add_float, float);
ADD(add_double, double);

void wk_sum(enum wk_number type, void *sum, const void *a, const void *b, size_t n)
{
    if (type == WK_FLOAT)
        add_floats(sum, a, b, n);
    else
        add_doubles(sum, a, b, n);
}

void wk_add(enum wk_number type, void *sum, const void *v, size_t n)
{
    wk_sum(type, sum, sum, v, n);
}

static void add_whole(enum wk_number type, void *to, size_t first, const uint8_t *come, size_t n)
{
    if (type == WK_FLOAT)
        add_float_bytes((float *)to + first, come, n);
    else
        add_double_bytes((double *)to + first, come, n);
}

// Slice by slice; a number that lies in two or more is put together first.
void wk_add_slices(enum wk_number type, void *to, const struct ps_slices *come, size_t n)
{
    const size_t size = wk_number_size(type);
    size_t done = 0, at = 0;  // numbers; where the slice begins
    for (size_t k = 0; k < come->n && done < n; at += come->v[k++].len) {
        const struct ps_slice *s = &come->v[k];
        const size_t skip = done * size - at;
        if (skip >= s->len)
            continue;
        const size_t whole = (s->len - skip) / size < n - done ? (s->len - skip) / size : n - done;
        add_whole(type, to, done, s->data + skip, whole);
        done += whole;
        if (done < n && done * size < at + s->len) {
            uint8_t cut[sizeof(double)];
            ps_slices_copy_out(come, done * size, size, cut);
            add_whole(type, to, done++, cut, 1);
        }
    }
}
