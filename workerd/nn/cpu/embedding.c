// SPDX-License-Identifier: Apache-2.0
//
// Rows of a table. Backward, a thread has columns of the whole table, so that each is added to in the batch's order.
#include "workerd/nn/ops/embedding.h"

#include <string.h>

#include "workerd/nn/cpu/cpu.h"

enum { COLUMNS = 16 };  // that one thread has at least: a line of the cache

static void embedding_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const size_t width = (size_t)f->op->in_type[0].dim[1];
    const int32_t *id = f->in[1];
    const float *table = f->in[0];
    float *y = f->out[0];
    for (size_t i = first; i < last; i++)
        memcpy(y + i * width, table + nn_embedding_row(id[i], f->op->in_type[0].dim[0]) * width, width * sizeof *y);
}

static void embedding_run(const struct nn_frame *f)
{
    const size_t width = (size_t)f->op->in_type[0].dim[1];
    nn_cpu_share(f->context, nn_type_count(&f->op->in_type[1]), nn_cpu_least(width), embedding_part, (void *)f);
}

PS_PER_CPU static void embedding_add(size_t n, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void embedding_part_backward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const size_t rows = (size_t)f->op->out_type[0].dim[0], width = (size_t)f->op->out_type[0].dim[1];
    const size_t from = first * COLUMNS, n = (last * COLUMNS < width ? last * COLUMNS : width) - from;
    const int32_t *id = f->in[0];
    const float *dy = (const float *)f->in[1] + from;
    float *table = (float *)f->out[0] + from;
    for (size_t r = 0; r < rows; r++)
        memset(table + r * width, 0, n * sizeof *table);
    for (size_t i = 0, all = nn_type_count(&f->op->in_type[0]); i < all; i++)
        embedding_add(n, dy + i * width, table + nn_embedding_row(id[i], (int64_t)rows) * width);
}

static void embedding_run_backward(const struct nn_frame *f)
{
    const struct nn_type *table = &f->op->out_type[0];
    const size_t width = (size_t)table->dim[1], ids = nn_type_count(&f->op->in_type[0]);
    nn_cpu_share(f->context, (width + COLUMNS - 1) / COLUMNS, nn_cpu_least(COLUMNS * (ids + (size_t)table->dim[0])),
                 embedding_part_backward, (void *)f);
}

const struct nn_kernel nn_cpu_embedding = {.run = embedding_run};
const struct nn_kernel nn_cpu_embedding_backward = {.run = embedding_run_backward};
