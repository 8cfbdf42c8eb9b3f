// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/both_ways.h"

#include <string.h>

#include "workerd/nn/tape.h"

static enum ps_code both_ways_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_both_ways *a = (const struct nn_both_ways *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (memcmp(x, &op->in_type[1], sizeof *x) != 0 || x->rank < 2 || x->rank > 3)
        return nn_op_fail(op, e, "expected two sequences of one shape");
    op->out_type[0] = *x;
    op->out_type[0].dim[x->rank - 1] *= a->merge == NN_MERGE_CONCAT ? 2 : 1;
    return PS_OK;
}

static enum ps_code both_ways_infer_backward(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->out_type[1] = op->in_type[0];
    return PS_OK;
}

static void both_ways_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                    int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_both_ways_backward, op->attr, sizeof(struct nn_both_ways),
                (int[]){op->in[0], op->in[1], dy[0]}, 3, dx, 2);
}

// Where the step stands that belongs to step i / t of the first way.
static size_t both_ways_other(const struct nn_type *x, size_t i)
{
    const size_t t = x->rank == 3 ? (size_t)x->dim[1] : 1;
    return i - i % t + (t - 1 - i % t);
}

static void both_ways_reference(const struct nn_frame *f)
{
    const enum nn_merge merge = ((const struct nn_both_ways *)f->op->attr)->merge;
    const struct nn_type *x = &f->op->in_type[0];
    const size_t u = (size_t)x->dim[x->rank - 1], width = merge == NN_MERGE_CONCAT ? 2 * u : u;
    for (size_t i = 0, n = nn_type_rows(x); i < n; i++) {
        const nn_real *a = (const nn_real *)f->in[0] + i * u;
        const nn_real *b = (const nn_real *)f->in[1] + both_ways_other(x, i) * u;
        nn_real *y = (nn_real *)f->out[0] + i * width;
        for (size_t j = 0; j < u; j++)
            y[j] = merge == NN_MERGE_CONCAT ? a[j]
                   : merge == NN_MERGE_MUL  ? a[j] * b[j]
                   : merge == NN_MERGE_SUM  ? a[j] + b[j]
                                            : (a[j] + b[j]) / 2;
        if (merge == NN_MERGE_CONCAT)
            memcpy(y + u, b, u * sizeof *y);
    }
}

static void both_ways_reference_backward(const struct nn_frame *f)
{
    const enum nn_merge merge = ((const struct nn_both_ways *)f->op->attr)->merge;
    const struct nn_type *x = &f->op->in_type[0];
    const size_t u = (size_t)x->dim[x->rank - 1], width = merge == NN_MERGE_CONCAT ? 2 * u : u;
    for (size_t i = 0, n = nn_type_rows(x); i < n; i++) {
        const size_t other = both_ways_other(x, i) * u;
        const nn_real *a = (const nn_real *)f->in[0] + i * u, *b = (const nn_real *)f->in[1] + other;
        const nn_real *dy = (const nn_real *)f->in[2] + i * width;
        nn_real *da = (nn_real *)f->out[0] + i * u, *db = (nn_real *)f->out[1] + other;
        const nn_real half = merge == NN_MERGE_AVE ? (nn_real)0.5 : 1;
        for (size_t j = 0; j < u; j++) {
            da[j] = dy[j] * (merge == NN_MERGE_MUL ? b[j] : half);
            db[j] = dy[width - u + j] * (merge == NN_MERGE_MUL ? a[j] : half);
        }
    }
}

const struct nn_op_class nn_op_both_ways = {.name = "both_ways",
                                            .infer = both_ways_infer,
                                            .differentiate = both_ways_differentiate,
                                            .reference = both_ways_reference};
const struct nn_op_class nn_op_both_ways_backward = {
    .name = "both_ways_backward", .infer = both_ways_infer_backward, .reference = both_ways_reference_backward};
