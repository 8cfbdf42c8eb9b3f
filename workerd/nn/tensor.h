// SPDX-License-Identifier: Apache-2.0
//
// What the operators of a network work on: dense arrays, row-major, without gaps.
#ifndef NN_TENSOR_H
#define NN_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "common/wire/dtype.h"

// float; double where operators are built a second time, so that finite differences are exact enough to judge them.
#ifndef NN_REAL
#define NN_REAL float
#endif
typedef NN_REAL nn_real;

enum nn_dtype { NN_FLOAT, NN_INT32, NN_UINT8, NN_UINT64 };  // NN_FLOAT: nn_real
enum { NN_MAX_RANK = PS_MAX_RANK + 1 };                     // a batch of examples

struct nn_type {
    enum nn_dtype dtype;
    int rank;
    int64_t dim[NN_MAX_RANK];  // each 1 or more; of a batch, the first counts its rows
};

static inline size_t nn_type_count(const struct nn_type *t)
{
    size_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= (size_t)t->dim[i];
    return n;
}

static inline size_t nn_type_bytes(const struct nn_type *t)
{
    static const size_t size[] = {sizeof(nn_real), sizeof(int32_t), sizeof(uint8_t), sizeof(uint64_t)};
    return nn_type_count(t) * size[t->dtype];
}

// Of all dimensions but the last.
static inline size_t nn_type_rows(const struct nn_type *t)
{
    return nn_type_count(t) / (size_t)t->dim[t->rank - 1];
}

#endif
