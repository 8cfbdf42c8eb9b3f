// SPDX-License-Identifier: Apache-2.0
#include "common/wire/dtype.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [PS_FLOAT32] = {"float32", 4}, [PS_FLOAT64] = {"float64", 8},   [PS_INT32] = {"int32", 4},
    [PS_INT64] = {"int64", 8},     [PS_BFLOAT16] = {"bfloat16", 2}, [PS_FLOAT16] = {"float16", 2},
    [PS_UINT8] = {"uint8", 1},     [PS_STRING] = {"string", 0},     [PS_SCALED_INT8] = {"scaled_int8", 0},
};

static bool dtype_is_known(int dtype)
{
    return dtype >= PS_FLOAT32 && dtype <= PS_SCALED_INT8;
}

size_t ps_dtype_size(int dtype)
{
    return dtype_is_known(dtype) ? dtypes[dtype].size : 0;
}

const char *ps_dtype_name(int dtype)
{
    return dtype_is_known(dtype) ? dtypes[dtype].name : "unknown dtype";
}

bool ps_dtype_is_number(int dtype)
{
    return dtype >= PS_FLOAT32 && dtype <= PS_INT64;
}

enum ps_code ps_shape_count(const uint64_t *shape, size_t rank, int dtype, uint64_t *count, struct ps_error *e)
{
    uint64_t n = 1, size = dtype == PS_STRING ? PS_STRING_LENGTH : ps_dtype_size(dtype), bytes;
    if (size == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "dtype %d is not one of float32, float64, int32, int64, bfloat16, float16, uint8, string",
                       dtype);
    if (rank > PS_MAX_RANK)
        return ps_fail(e, PS_INVALID_ARGUMENT, "rank %zu is above %d", rank, PS_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        if (shape[i] == 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "dimension %zu is 0", i);
        if (__builtin_mul_overflow(n, shape[i], &n))
            return ps_fail(e, PS_INVALID_ARGUMENT, "the product of the dimensions overflows 64 bits");
    }
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > INT64_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%" PRIu64 " elements of %s overflow 63 bits of bytes", n,
                       ps_dtype_name(dtype));
    *count = n;
    return PS_OK;
}

char *ps_shape_text(const uint64_t *shape, size_t rank, char *to, size_t size)
{
    size_t at = (size_t)snprintf(to, size, "(");
    for (size_t i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(to + at, size - at, i ? ", %" PRIu64 : "%" PRIu64, shape[i]);
    if (at < size)
        snprintf(to + at, size - at, rank == 1 ? ",)" : ")");
    return to;
}
