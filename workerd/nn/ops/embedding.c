// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/embedding.h"

#include <string.h>

#include "workerd/nn/tape.h"

// ---- embedding ----------------------------------------------------------------------------------------------------

static enum ps_code embedding_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *table = &op->in_type[0], *ids = &op->in_type[1];
    if (table->rank != 2 || ids->dtype != NN_INT32 || ids->rank == NN_MAX_RANK)
        return nn_op_fail(op, e, "expected a table and whole numbers");
    op->out_type[0] = *ids;
    op->out_type[0].dtype = NN_FLOAT;
    op->out_type[0].dim[op->out_type[0].rank++] = table->dim[1];
    return PS_OK;
}

static enum ps_code embedding_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *dy = &op->in_type[1];
    int64_t rows;
    (void)e;
    memcpy(&rows, op->attr, sizeof rows);
    op->out_type[0] = (struct nn_type){NN_FLOAT, 2, {rows, dy->dim[dy->rank - 1]}};
    return PS_OK;
}

static void embedding_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                    int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_embedding_backward, &op->in_type[0].dim[0], sizeof(int64_t), (int[]){op->in[1], dy[0]}, 2, dx,
                1);
}

static void embedding_reference(const struct nn_frame *f)
{
    const int64_t rows = f->op->in_type[0].dim[0];
    const size_t width = (size_t)f->op->in_type[0].dim[1], n = nn_type_count(&f->op->in_type[1]);
    const nn_real *table = f->in[0];
    const int32_t *id = f->in[1];
    nn_real *y = f->out[0];
    for (size_t i = 0; i < n; i++, y += width)
        memcpy(y, table + nn_embedding_row(id[i], rows) * width, width * sizeof *y);
}

static void embedding_reference_backward(const struct nn_frame *f)
{
    const int64_t rows = f->op->out_type[0].dim[0];
    const size_t width = (size_t)f->op->out_type[0].dim[1], n = nn_type_count(&f->op->in_type[0]);
    const int32_t *id = f->in[0];
    const nn_real *dy = f->in[1];
    nn_real *table = f->out[0];
    memset(table, 0, nn_type_bytes(&f->op->out_type[0]));
    for (size_t i = 0; i < n; i++, dy += width)
        for (size_t j = 0; j < width; j++)
            table[nn_embedding_row(id[i], rows) * width + j] += dy[j];
}

const struct nn_op_class nn_op_embedding = {.name = "embedding",
                                            .infer = embedding_infer,
                                            .differentiate = embedding_differentiate,
                                            .reference = embedding_reference};
const struct nn_op_class nn_op_embedding_backward = {
    .name = "embedding_backward", .infer = embedding_infer_backward, .reference = embedding_reference_backward};

// ---- numbers ------------------------------------------------------------------------------------------------------

static enum ps_code truncate_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    op->out_type[0].dtype = NN_INT32;
    return PS_OK;
}

// What no int32 can hold, a NaN among it, is outside every table.
static void truncate_reference(const struct nn_frame *f)
{
    const nn_real *x = f->in[0];
    int32_t *y = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->in_type[0]); i < n; i++)
        y[i] = x[i] > -2147483520 && x[i] < 2147483520 ? (int32_t)x[i] : -1;
}

static enum ps_code spread_infer(struct nn_op *op, struct ps_error *e)
{
    int times;
    (void)e;
    memcpy(&times, op->attr, sizeof times);
    op->out_type[0] = op->in_type[0];
    op->out_type[0].dim[0] *= times;
    return PS_OK;
}

static void spread_reference(const struct nn_frame *f)
{
    const uint64_t *x = f->in[0];
    uint64_t *y = f->out[0];
    int times;
    memcpy(&times, f->op->attr, sizeof times);
    for (size_t i = 0, n = nn_type_count(&f->op->out_type[0]); i < n; i++)
        y[i] = x[i / (size_t)times] * (uint64_t)times + i % (size_t)times;
}

const struct nn_op_class nn_op_truncate = {
    .name = "truncate", .infer = truncate_infer, .reference = truncate_reference};
const struct nn_op_class nn_op_spread = {.name = "spread", .infer = spread_infer, .reference = spread_reference};
