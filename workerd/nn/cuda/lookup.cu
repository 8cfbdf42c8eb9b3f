// SPDX-License-Identifier: Apache-2.0
//
// Whole numbers: from tables, from bins of floats, as vectors; and constants. What a layer's config holds is copied to
// the device when the program is made: that copy is the plan.
#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/lookup.h"
#include "workerd/nn/ops/noise.h"

// ---- tables -------------------------------------------------------------------------------------------------------

struct lookup_table {
    const void *from;
    size_t bytes;
};

// One after the other.
static enum ps_code lookup_keep(struct nn_context *c, const struct lookup_table *table, int n, void **plan,
                                struct ps_error *e)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += table[i].bytes;
    if (nn_cuda_memory.get(c, bytes, plan, e))
        return e->code;
    char *to = (char *)*plan;
    for (int i = 0; i < n; to += table[i++].bytes)
        if (table[i].bytes > 0)
            nn_cuda_memory.put(c, to, table[i].from, table[i].bytes);
    return PS_OK;
}

static void lookup_free(void *plan)
{
    cudaFree(plan);
}

// ---- numbers ------------------------------------------------------------------------------------------------------

static __global__ void find_numbers(size_t n, struct nn_lookup a, const int32_t *x, int32_t *y)
{
    NN_CUDA_EACH(i, n)
    {
        int64_t low = 0, high = a.n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (a.key[middle] < x[i])
                low = middle + 1;
            else
                high = middle;
        }
        const int32_t rest = x[i] % a.others;
        const bool known = low < a.n && a.key[low] == x[i];
        y[i] = known ? a.value[low] : a.other + (rest < 0 ? rest + a.others : rest);
    }
}

// A NaN is above all boundaries.
static __global__ void find_bins(size_t n, struct nn_bins a, const float *x, int32_t *y)
{
    NN_CUDA_EACH(i, n)
    {
        int64_t low = 0, high = a.n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (x[i] < a.boundary[middle])
                high = middle;
            else
                low = middle + 1;
        }
        y[i] = (int32_t)low;
    }
}

static enum ps_code cuda_lookup_plan(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    const struct nn_lookup *a = (const struct nn_lookup *)(const void *)op->attr;
    const struct lookup_table table[2] = {{a->key, (size_t)a->n * sizeof *a->key},
                                          {a->value, (size_t)a->n * sizeof *a->value}};
    return lookup_keep(c, table, 2, plan, e);
}

static void cuda_lookup_run(const struct nn_frame *f)
{
    struct nn_lookup a = *nn_cuda_attr<nn_lookup>(f);
    a.key = (const int32_t *)f->plan;
    a.value = a.key + a.n;
    NN_CUDA_RUN_EACH(f->context, find_numbers, nn_type_count(&f->op->in_type[0]), a, (const int32_t *)f->in[0],
                     (int32_t *)f->out[0]);
}

static enum ps_code cuda_bins_plan(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    const struct nn_bins *a = (const struct nn_bins *)(const void *)op->attr;
    const struct lookup_table table = {a->boundary, (size_t)a->n * sizeof *a->boundary};
    return lookup_keep(c, &table, 1, plan, e);
}

static void cuda_bins_run(const struct nn_frame *f)
{
    struct nn_bins a = *nn_cuda_attr<nn_bins>(f);
    a.boundary = (const float *)f->plan;
    NN_CUDA_RUN_EACH(f->context, find_bins, nn_type_count(&f->op->in_type[0]), a, nn_cuda_in(f, 0),
                     (int32_t *)f->out[0]);
}

// ---- constants ----------------------------------------------------------------------------------------------------

static enum ps_code cuda_constant_plan(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    const struct nn_constant *a = (const struct nn_constant *)(const void *)op->attr;
    const struct lookup_table table = {a->value, (size_t)a->n * sizeof *a->value};
    return lookup_keep(c, &table, 1, plan, e);
}

static void cuda_constant_run(const struct nn_frame *f)
{
    if (f->context->error.code == PS_OK)
        nn_cuda_note(f->context,
                     cudaMemcpyAsync(f->out[0], f->plan, nn_type_bytes(&f->op->out_type[0]), cudaMemcpyDeviceToDevice,
                                     f->context->stream),
                     "a copy on it");
}

// ---- places -------------------------------------------------------------------------------------------------------

// A thread for each row of y, which is 0: it adds what the row has one after the other. weight may be NULL.
static __global__ void mark_places(size_t rows, size_t each, struct nn_places a, const int32_t *x, const float *weight,
                                   float *y)
{
    NN_CUDA_EACH(r, rows)
    {
        float *const row = y + r * (size_t)a.depth;
        for (size_t i = r * each; i < (r + 1) * each; i++)
            if (x[i] >= 0 && x[i] < a.depth)
                row[x[i]] = a.at_most_one ? 1 : row[x[i]] + (weight ? weight[i] : 1);
    }
}

static __global__ void read_places(size_t n, size_t each, int64_t depth, const int32_t *x, const float *dy,
                                   float *dweight)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, each) * (size_t)depth;
        dweight[i] = x[i] >= 0 && x[i] < depth ? dy[row + (size_t)x[i]] : 0;
    }
}

// Of each row of y, how many numbers are in it.
static size_t places_each(const struct nn_frame *f)
{
    return nn_cuda_attr<nn_places>(f)->summed ? (size_t)f->op->in_type[0].dim[1] : 1;
}

static void cuda_places_run(const struct nn_frame *f)
{
    struct nn_context *c = f->context;
    const size_t each = places_each(f);
    if (c->error.code == PS_OK)
        nn_cuda_note(c, cudaMemsetAsync(f->out[0], 0, nn_type_bytes(&f->op->out_type[0]), c->stream),
                     "its memory is cleared");
    NN_CUDA_RUN_EACH(c, mark_places, nn_type_count(&f->op->in_type[0]) / each, each, *nn_cuda_attr<nn_places>(f),
                     (const int32_t *)f->in[0], f->op->n_in == 2 ? nn_cuda_in(f, 1) : NULL, nn_cuda_out(f, 0));
}

static void cuda_places_run_backward(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, read_places, nn_type_count(&f->op->in_type[0]), places_each(f),
                     nn_cuda_attr<nn_places>(f)->depth, (const int32_t *)f->in[0], nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_lookup = {cuda_lookup_plan, cuda_lookup_run, lookup_free, NULL};
const struct nn_kernel nn_cuda_bins = {cuda_bins_plan, cuda_bins_run, lookup_free, NULL};
const struct nn_kernel nn_cuda_constant = {cuda_constant_plan, cuda_constant_run, lookup_free, NULL};
const struct nn_kernel nn_cuda_places = {NULL, cuda_places_run, NULL, NULL};
const struct nn_kernel nn_cuda_places_backward = {NULL, cuda_places_run_backward, NULL, NULL};
