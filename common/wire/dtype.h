// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_DTYPE_H
#define PS_COMMON_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/limits.h"

// Values are those of DType in proto/paramserver.proto.
enum ps_dtype {
    PS_FLOAT32 = 1,
    PS_FLOAT64 = 2,
    PS_INT32 = 3,
    PS_INT64 = 4,
    PS_BFLOAT16 = 5,
    PS_FLOAT16 = 6,
    PS_UINT8 = 7,
    PS_STRING = 8,
    PS_SCALED_INT8 = 9,  // of no variable: see common/math/encoding.h
};

enum {
    PS_STRING_BLOCK = 1024,  // elements of a block of strings
    PS_STRING_LENGTH = 4,    // bytes of the length of each, which is all there is of an empty one
};

size_t ps_dtype_size(int dtype);       // 0: no such type, PS_STRING or PS_SCALED_INT8
const char *ps_dtype_name(int dtype);  // "float32"
bool ps_dtype_is_number(int dtype);    // may be added to: float32, float64, int32, int64

// Elements of a shape; INVALID_ARGUMENT if the product or its bytes (of strings: of their lengths) do not fit 63 bits,
// a dimension is 0, or the rank exceeds PS_MAX_RANK.
enum ps_code ps_shape_count(const uint64_t *shape, size_t rank, int dtype, uint64_t *count, struct ps_error *e);
// "(3, 3, 32)", in to; returns to.
char *ps_shape_text(const uint64_t *shape, size_t rank, char *to, size_t size);

#endif
