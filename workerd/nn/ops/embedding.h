// SPDX-License-Identifier: Apache-2.0
//
// Rows of a table by their numbers. A number outside the table reads its first or last row: whoever has the data sees
// to it that there is none.
#ifndef NN_OPS_EMBEDDING_H
#define NN_OPS_EMBEDDING_H

#include "common/base/host_device.h"
#include "workerd/nn/op.h"

extern const struct nn_op_class nn_op_embedding;           // table (rows, width), ids (...) int32 -> y (..., width)
extern const struct nn_op_class nn_op_embedding_backward;  // ids, dy; attr: int64_t rows -> dtable (rows, width)
extern const struct nn_op_class nn_op_truncate;            // x -> int32, towards 0
extern const struct nn_op_class nn_op_spread;              // x (n) uint64; attr: int k -> (k n): k x, k x + 1, ...

// The row that a number reads.
static inline PS_HOST_DEVICE size_t nn_embedding_row(int32_t id, int64_t rows)
{
    return id < 0 ? 0 : (size_t)(id < rows ? id : rows - 1);
}

#endif
