// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/lookup.h"

#include <string.h>

#include "workerd/nn/tape.h"

// ---- numbers ------------------------------------------------------------------------------------------------------

static enum ps_code lookup_infer(struct nn_op *op, struct ps_error *e)
{
    op->out_type[0] = op->in_type[0];
    return op->in_type[0].dtype == NN_INT32 ? PS_OK : nn_op_fail(op, e, "expected whole numbers");
}

static int32_t lookup_find(const struct nn_lookup *a, int32_t x)
{
    int64_t low = 0, high = a->n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (a->key[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < a->n && a->key[low] == x)
        return a->value[low];
    const int32_t rest = x % a->others;
    return a->other + (rest < 0 ? rest + a->others : rest);
}

static void lookup_reference(const struct nn_frame *f)
{
    const int32_t *x = f->in[0];
    int32_t *y = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->in_type[0]); i < n; i++)
        y[i] = lookup_find((const struct nn_lookup *)f->op->attr, x[i]);
}

static enum ps_code bins_infer(struct nn_op *op, struct ps_error *e)
{
    op->out_type[0] = op->in_type[0];
    op->out_type[0].dtype = NN_INT32;
    return op->in_type[0].dtype == NN_FLOAT ? PS_OK : nn_op_fail(op, e, "expected floats");
}

// A NaN is above all boundaries.
static void bins_reference(const struct nn_frame *f)
{
    const struct nn_bins *a = (const struct nn_bins *)f->op->attr;
    const nn_real *x = f->in[0];
    int32_t *y = f->out[0];
    for (size_t i = 0, n = nn_type_count(&f->op->in_type[0]); i < n; i++) {
        int64_t low = 0, high = a->n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (x[i] < (nn_real)a->boundary[middle])
                high = middle;
            else
                low = middle + 1;
        }
        y[i] = (int32_t)low;
    }
}

// ---- places -------------------------------------------------------------------------------------------------------

static enum ps_code places_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_places *a = (const struct nn_places *)op->attr;
    struct nn_type *y = &op->out_type[0];
    *y = op->in_type[0];
    y->dtype = NN_FLOAT;
    if (op->in_type[0].dtype != NN_INT32 || y->rank == NN_MAX_RANK || (a->summed && y->rank != 2) ||
        (op->n_in == 2 && !a->summed))
        return nn_op_fail(op, e, "expected whole numbers, (rows, n) where they are summed");
    y->rank += !a->summed;
    y->dim[y->rank - 1] = a->depth;
    return PS_OK;
}

static enum ps_code places_infer_backward(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    op->out_type[0].dtype = NN_FLOAT;
    return PS_OK;
}

static void places_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    if (op->n_in == 2 && wanted[1])
        nn_tape_put(t, &nn_op_places_backward, op->attr, sizeof(struct nn_places), (int[]){op->in[0], dy[0]}, 2, &dx[1],
                    1);
}

// Of each row of y, how many numbers are in it.
static size_t places_each(const struct nn_places *a, const struct nn_type *x)
{
    return a->summed ? (size_t)x->dim[1] : 1;
}

static void places_reference(const struct nn_frame *f)
{
    const struct nn_places *a = (const struct nn_places *)f->op->attr;
    const size_t n = nn_type_count(&f->op->in_type[0]), each = places_each(a, &f->op->in_type[0]);
    const int32_t *x = f->in[0];
    const nn_real *weight = f->op->n_in == 2 ? f->in[1] : NULL;
    nn_real *y = f->out[0];
    memset(y, 0, nn_type_bytes(&f->op->out_type[0]));
    for (size_t i = 0; i < n; i++) {
        nn_real *row = y + i / each * (size_t)a->depth;
        if (x[i] >= 0 && x[i] < a->depth)
            row[x[i]] = a->at_most_one ? 1 : row[x[i]] + (weight ? weight[i] : 1);
    }
}

static void places_reference_backward(const struct nn_frame *f)
{
    const struct nn_places *a = (const struct nn_places *)f->op->attr;
    const size_t n = nn_type_count(&f->op->in_type[0]), each = places_each(a, &f->op->in_type[0]);
    const int32_t *x = f->in[0];
    const nn_real *dy = f->in[1];
    nn_real *dweight = f->out[0];
    for (size_t i = 0; i < n; i++)
        dweight[i] = x[i] >= 0 && x[i] < a->depth ? dy[i / each * (size_t)a->depth + (size_t)x[i]] : 0;
}

const struct nn_op_class nn_op_lookup = {.name = "lookup", .infer = lookup_infer, .reference = lookup_reference};
const struct nn_op_class nn_op_bins = {.name = "bins", .infer = bins_infer, .reference = bins_reference};
const struct nn_op_class nn_op_places = {
    .name = "places", .infer = places_infer, .differentiate = places_differentiate, .reference = places_reference};
const struct nn_op_class nn_op_places_backward = {
    .name = "places_backward", .infer = places_infer_backward, .reference = places_reference_backward};
