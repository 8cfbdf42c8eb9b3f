// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/add.h"

#include <string.h>

// One function for each type: to, from memory that may not be aligned.
#define ADD(NAME, TYPE)                                                         \
    static void NAME(const uint8_t *restrict come, TYPE *restrict to, size_t n) \
    {                                                                           \
        for (size_t i = 0; i < n; i++) {                                        \
            TYPE v;                                                             \
            memcpy(&v, come + i * sizeof v, sizeof v);                          \
            to[i] = v + to[i];                                                  \
        }                                                                       \
    }                                                                           \
    _Static_assert(sizeof(TYPE) <= sizeof(double), "a number that a slice cuts has room")

ADD(add_floats, float);
ADD(add_doubles, double);

static void add_whole(const uint8_t *come, void *to, size_t first, size_t n, size_t size)
{
    if (size == sizeof(float))
        add_floats(come, (float *)to + first, n);
    else
        add_doubles(come, (double *)to + first, n);
}

// Slice by slice; a number that lies in two or more is put together first.
static void add_slices(const struct ps_slices *come, void *to, size_t n, size_t size)
{
    size_t done = 0, at = 0;  // numbers; where the slice begins
    for (size_t k = 0; k < come->n && done < n; at += come->v[k++].len) {
        const struct ps_slice *s = &come->v[k];
        const size_t skip = done * size - at;
        if (skip >= s->len)
            continue;
        const size_t whole = (s->len - skip) / size < n - done ? (s->len - skip) / size : n - done;
        add_whole(s->data + skip, to, done, whole, size);
        done += whole;
        if (done < n && done * size < at + s->len) {
            uint8_t cut[sizeof(double)];
            ps_slices_copy_out(come, done * size, size, cut);
            add_whole(cut, to, done++, 1, size);
        }
    }
}

void wk_add_floats(const struct ps_slices *come, float *to, size_t n)
{
    add_slices(come, to, n, sizeof *to);
}

void wk_add_doubles(const struct ps_slices *come, double *to, size_t n)
{
    add_slices(come, to, n, sizeof *to);
}

void wk_add_to_floats(float *restrict sum, const float *restrict v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] = sum[i] + v[i];
}

void wk_add_to_doubles(double *restrict sum, const double *restrict v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] = sum[i] + v[i];
}
