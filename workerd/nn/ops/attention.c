// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/attention.h"

#include <math.h>

#include "workerd/nn/tape.h"

// ---- scores and sums ----------------------------------------------------------------------------------------------

static enum ps_code attention_infer_scores(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type *a = &op->in_type[0], *b = &op->in_type[1];
    if (a->rank != 4 || b->rank != 4 || a->dim[0] != b->dim[0] || a->dim[2] != b->dim[2] || a->dim[3] != b->dim[3])
        return nn_op_fail(op, e, "expected two sequences with as many heads of one size");
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {a->dim[0], a->dim[2], a->dim[1], b->dim[1]}};
    return PS_OK;
}

static enum ps_code attention_infer_sum(struct nn_op *op, struct ps_error *e)
{
    const struct nn_attention *t = (const struct nn_attention *)op->attr;
    const struct nn_type *s = &op->in_type[0], *b = &op->in_type[1];
    if (s->rank != 4 || b->rank != 4 || s->dim[0] != b->dim[0] || s->dim[1] != b->dim[2] ||
        b->dim[1] != s->dim[t->across ? 2 : 3])
        return nn_op_fail(op, e, "the sequence does not fit the scores");
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {s->dim[0], s->dim[t->across ? 3 : 2], b->dim[2], b->dim[3]}};
    return PS_OK;
}

static void attention_put_sum(struct nn_tape *t, const struct nn_attention *like, bool across, int s, int b, int *y)
{
    const struct nn_attention attr = {.scale = like->scale, .across = across};
    nn_tape_put(t, &nn_op_attention_sum, &attr, sizeof attr, (int[]){s, b}, 2, y, 1);
}

// s = scale a . b: da = scale ds b, db = scale ds^T a.
static void attention_differentiate_scores(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                           int *dx)
{
    const struct nn_attention *attr = (const struct nn_attention *)op->attr;
    if (wanted[0])
        attention_put_sum(t, attr, false, dy[0], op->in[1], &dx[0]);
    if (wanted[1])
        attention_put_sum(t, attr, true, dy[0], op->in[0], &dx[1]);
}

// y = scale s b: ds = scale dy . b, db = scale s^T dy; across: y = scale s^T a, ds = scale a . dy, da = scale s dy.
static void attention_differentiate_sum(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                        int *dx)
{
    const struct nn_attention *attr = (const struct nn_attention *)op->attr;
    const int a = attr->across ? op->in[1] : dy[0], b = attr->across ? dy[0] : op->in[1];
    const struct nn_attention scores = {.scale = attr->scale};
    if (wanted[0])
        nn_tape_put(t, &nn_op_attention_scores, &scores, sizeof scores, (int[]){a, b}, 2, &dx[0], 1);
    if (wanted[1])
        attention_put_sum(t, attr, !attr->across, op->in[0], dy[0], &dx[1]);
}

static void attention_reference_scores(const struct nn_frame *f)
{
    const struct nn_attention *attr = (const struct nn_attention *)f->op->attr;
    const struct nn_type *s = &f->op->out_type[0];
    const int64_t heads = s->dim[1], rows = s->dim[2], columns = s->dim[3], d = f->op->in_type[0].dim[3];
    nn_real *y = f->out[0];
    for (int64_t k = 0; k < s->dim[0] * heads * rows * columns; k++) {
        const int64_t j = k % columns, i = k / columns % rows, h = k / columns / rows % heads,
                      n = k / columns / rows / heads;
        const nn_real *a = (const nn_real *)f->in[0] + ((n * rows + i) * heads + h) * d;
        const nn_real *b = (const nn_real *)f->in[1] + ((n * columns + j) * heads + h) * d;
        double sum = 0;
        for (int64_t c = 0; c < d; c++)
            sum += (double)a[c] * (double)b[c];
        y[k] = (nn_real)((double)attr->scale * sum);
    }
}

static void attention_reference_sum(const struct nn_frame *f)
{
    const struct nn_attention *attr = (const struct nn_attention *)f->op->attr;
    const struct nn_type *y = &f->op->out_type[0], *s = &f->op->in_type[0];
    const int64_t heads = y->dim[2], steps = y->dim[1], d = y->dim[3], over = f->op->in_type[1].dim[1];
    const int64_t row = attr->across ? 1 : s->dim[3], column = attr->across ? s->dim[3] : 1;
    for (int64_t k = 0; k < (int64_t)nn_type_count(y); k++) {
        const int64_t c = k % d, h = k / d % heads, i = k / d / heads % steps, n = k / d / heads / steps;
        const nn_real *p = (const nn_real *)f->in[0] + (n * heads + h) * s->dim[2] * s->dim[3] + i * row;
        const nn_real *b = (const nn_real *)f->in[1] + (n * over * heads + h) * d + c;
        double sum = 0;
        for (int64_t j = 0; j < over; j++)
            sum += (double)p[j * column] * (double)b[j * heads * d];
        ((nn_real *)f->out[0])[k] = (nn_real)((double)attr->scale * sum);
    }
}

static double attention_flop_scores(const struct nn_op *op)
{
    return 2.0 * (double)nn_type_count(&op->out_type[0]) * (double)op->in_type[0].dim[3];
}

static double attention_flop_sum(const struct nn_op *op)
{
    return 2.0 * (double)nn_type_count(&op->in_type[0]) * (double)op->in_type[1].dim[3];
}

const struct nn_op_class nn_op_attention_scores = {.name = "attention_scores",
                                                   .infer = attention_infer_scores,
                                                   .differentiate = attention_differentiate_scores,
                                                   .reference = attention_reference_scores,
                                                   .flop = attention_flop_scores};
const struct nn_op_class nn_op_attention_sum = {.name = "attention_sum",
                                                .infer = attention_infer_sum,
                                                .differentiate = attention_differentiate_sum,
                                                .reference = attention_reference_sum,
                                                .flop = attention_flop_sum};

// ---- softmax ------------------------------------------------------------------------------------------------------

static enum ps_code attention_infer_softmax(struct nn_op *op, struct ps_error *e)
{
    if (op->in_type[0].rank != 4)
        return nn_op_fail(op, e, "expected scores (rows, heads, steps, steps)");
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void attention_differentiate_softmax(struct nn_tape *t, const struct nn_op *op, const int *dy,
                                            const bool *wanted, int *dx)
{
    const struct nn_attention_softmax *attr = (const struct nn_attention_softmax *)op->attr;
    int in[4] = {op->out[0], dy[0]};
    for (int i = 1; i < op->n_in; i++)
        in[i + 1] = op->in[i];
    if (wanted[0])
        nn_tape_put(t, &nn_op_attention_softmax_backward, attr, sizeof *attr, in, op->n_in + 1, dx, 1);
}

// What one row of scores may look at: its cells, and which of them count.
struct attention_row {
    size_t n;
    bool any, causal;
    size_t i;
    const nn_real *by_j;
};

static bool attention_counts(const struct attention_row *r, size_t j)
{
    return r->any && (!r->causal || j <= r->i) && (!r->by_j || r->by_j[j] != 0);
}

// masks: the first input that is one.
static struct attention_row attention_row(const struct nn_frame *f, int masks, size_t k)
{
    const struct nn_attention_softmax *attr = (const struct nn_attention_softmax *)f->op->attr;
    const struct nn_type *s = &f->op->in_type[0];
    const size_t rows = (size_t)s->dim[2], n = k / rows / (size_t)s->dim[1];
    struct attention_row r = {.n = (size_t)s->dim[3], .any = true, .causal = attr->causal, .i = k % rows};
    if (attr->by_i)
        r.any = ((const nn_real *)f->in[masks])[n * rows + r.i] != 0;
    if (attr->by_j)
        r.by_j = (const nn_real *)f->in[masks + attr->by_i] + n * r.n;
    if (attr->by_both)
        r.by_j = (const nn_real *)f->in[masks + attr->by_i] + (n * rows + r.i) * r.n;
    bool any = false;
    for (size_t j = 0; j < r.n; j++)
        any |= attention_counts(&r, j);
    r.any = any;
    return r;
}

// unseen: what all are where nothing counts.
static void attention_softmax_row(const struct attention_row *r, double unseen, const nn_real *x, nn_real *y)
{
    double max = -INFINITY, sum = 0;
    for (size_t j = 0; j < r->n; j++)
        max = attention_counts(r, j) && (double)x[j] > max ? (double)x[j] : max;
    for (size_t j = 0; j < r->n; j++)
        sum += attention_counts(r, j) ? exp((double)x[j] - max) : 0;
    for (size_t j = 0; j < r->n; j++)
        y[j] = !r->any ? (nn_real)unseen : attention_counts(r, j) ? (nn_real)(exp((double)x[j] - max) / sum) : 0;
}

static void attention_reference_softmax(const struct nn_frame *f)
{
    const bool zero = ((const struct nn_attention_softmax *)f->op->attr)->zero_unseen;
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    for (size_t k = 0, rows = nn_type_rows(&f->op->in_type[0]); k < rows; k++) {
        const struct attention_row r = attention_row(f, 1, k);
        attention_softmax_row(&r, zero ? 0 : 1.0 / (double)r.n, x + k * r.n, y + k * r.n);
    }
}

static void attention_reference_softmax_backward(const struct nn_frame *f)
{
    for (size_t k = 0, rows = nn_type_rows(&f->op->in_type[0]); k < rows; k++) {
        const struct attention_row r = attention_row(f, 2, k);
        const nn_real *p = (const nn_real *)f->in[0] + k * r.n, *dp = (const nn_real *)f->in[1] + k * r.n;
        nn_real *dx = (nn_real *)f->out[0] + k * r.n;
        double dot = 0;
        for (size_t j = 0; j < r.n; j++)
            dot += (double)p[j] * (double)dp[j];
        for (size_t j = 0; j < r.n; j++)
            dx[j] = r.any ? (nn_real)((double)p[j] * ((double)dp[j] - dot)) : 0;
    }
}

const struct nn_op_class nn_op_attention_softmax = {.name = "attention_softmax",
                                                    .infer = attention_infer_softmax,
                                                    .differentiate = attention_differentiate_softmax,
                                                    .reference = attention_reference_softmax};
const struct nn_op_class nn_op_attention_softmax_backward = {.name = "attention_softmax_backward",
                                                             .infer = attention_infer_softmax,
                                                             .reference = attention_reference_softmax_backward,
                                                             .in_place = 1 + 1};
