// SPDX-License-Identifier: Apache-2.0
//
// Dense layers: products by cuBLAS; the bias, the activation, and the sum of rows that is the bias's gradient.
#include "workerd/nn/cuda/columns.h"

// ---- y = act(y + b) -----------------------------------------------------------------------------------------------

static __global__ void add_bias_activation(size_t n, size_t columns, const float *b, enum nn_activation act, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = nn_cuda_activate(act, y[i] + (b ? b[i % columns] : 0));
}

void nn_cuda_bias_activation(struct nn_context *c, enum nn_activation act, size_t rows, size_t n, const float *b,
                             float *y)
{
    if (b || act != NN_LINEAR)
        NN_CUDA_RUN_EACH(c, add_bias_activation, rows * n, n, b, act, y);
}

// ---- sums of rows -------------------------------------------------------------------------------------------------
//
// In parts, one of each block of threads, then of the parts: in the same order in each run.

enum { SUM_ACROSS = 8, SUM_DOWN = 32 };  // threads of a block

struct sum {
    float x;
    static __device__ struct sum of(struct sum a, struct sum b)
    {
        const struct sum both = {a.x + b.x};
        return both;
    }
};

// Threads with `width` columns each.
static struct nn_cuda_columns row_sums_of(size_t rows, size_t n, size_t width)
{
    const size_t blocks = (n + width * SUM_ACROSS - 1) / (width * SUM_ACROSS), step = NN_CUDA_PLACES * SUM_DOWN;
    const size_t steps = (rows + step - 1) / step;
    const size_t most =
        rows <= NN_CUDA_SUM_IN_ONE || blocks >= NN_CUDA_COLUMN_BLOCKS ? 1 : NN_CUDA_COLUMN_BLOCKS / blocks;
    const struct nn_cuda_columns c = {rows, n, dim3((unsigned)blocks, (unsigned)(steps < most ? steps : most)),
                                      dim3(SUM_ACROSS, SUM_DOWN)};
    return c;
}

enum ps_code nn_cuda_reserve_sum(struct nn_context *c, size_t rows, size_t n, struct ps_error *e)
{
    const size_t parts = row_sums_of(rows, n, NN_CUDA_VECTOR).grid.y;
    return parts > 1 ? nn_cuda_reserve(c, parts * n * sizeof(float), e) : PS_OK;
}

// sums (parts, columns)
template <int N> static __global__ void sum_rows(struct nn_cuda_columns c, const float *x, float *sums)
{
    NN_CUDA_SHARED(struct sum, part);
    const size_t column = nn_cuda_column<N>();
    const float *from = column < c.columns ? x : NULL;
    struct sum sum[N] = {};
    NN_CUDA_COLUMN_EACH(step, c)
    {
        nn_cuda_floats<N> v[NN_CUDA_PLACES];
        nn_cuda_load_places(from, nn_cuda_places_of(c, step, column), v);
#pragma unroll
        for (int k = 0; k < NN_CUDA_PLACES; k++)
            for (int j = 0; j < N; j++)
                sum[j].x += v[k].at[j];
    }
    nn_cuda_sum_columns_of_block<N>(sum, part);
    for (int j = 0; threadIdx.y == 0 && from && j < N; j++)
        sums[blockIdx.y * c.columns + column + j] = sum[j].x;
}

template <int N>
static void sum_rows_launch(struct nn_context *c, const struct nn_cuda_columns *columns, const float *x, float *sums)
{
    NN_CUDA_RUN(c, sum_rows<N>, columns->grid, columns->block, N * SUM_ACROSS * SUM_DOWN * sizeof(struct sum), *columns,
                x, sums);
}

static void sum_rows_into(struct nn_context *c, size_t rows, size_t n, const float *x, float *sums, bool vectors)
{
    const struct nn_cuda_columns columns = row_sums_of(rows, n, vectors ? NN_CUDA_VECTOR : 1);
    if (vectors)
        sum_rows_launch<NN_CUDA_VECTOR>(c, &columns, x, sums);
    else
        sum_rows_launch<1>(c, &columns, x, sums);
}

void nn_cuda_sum_rows(struct nn_context *c, size_t rows, size_t n, const float *x, float *sum)
{
    const bool vectors = nn_cuda_has_vectors(n, x);
    const size_t parts = row_sums_of(rows, n, vectors ? NN_CUDA_VECTOR : 1).grid.y;
    sum_rows_into(c, rows, n, x, parts > 1 ? (float *)c->scratch : sum, vectors);
    if (parts > 1)
        sum_rows_into(c, parts, n, (const float *)c->scratch, sum, vectors);
}

// ---- runs ---------------------------------------------------------------------------------------------------------

static void cuda_dense_run(const struct nn_frame *f)
{
    const struct nn_dense *a = nn_cuda_attr<nn_dense>(f);
    const struct nn_type *w = &f->op->in_type[1];
    const size_t n = nn_type_rows(&f->op->in_type[0]), in = (size_t)w->dim[0], out = (size_t)w->dim[1];
    const struct nn_cuda_product p = {
        n, out, in, {nn_cuda_in(f, 0), in}, {nn_cuda_in(f, 1), out}, 1, nn_cuda_out(f, 0), out, 0, 1};
    nn_cuda_multiply(f->context, &p);
    nn_cuda_bias_activation(f->context, a->act, n, out, a->bias ? nn_cuda_in(f, 2) : NULL, nn_cuda_out(f, 0));
}

// dw = x^T dy
static void cuda_dense_run_weights(const struct nn_frame *f)
{
    const struct nn_type *w = &f->op->out_type[0];
    const size_t n = nn_type_rows(&f->op->in_type[0]), in = (size_t)w->dim[0], out = (size_t)w->dim[1];
    const struct nn_cuda_product p = {
        in, out, n, {nn_cuda_in(f, 0), in, true}, {nn_cuda_in(f, 1), out}, 1, nn_cuda_out(f, 0), out, 0, 1};
    nn_cuda_multiply(f->context, &p);
    if (f->op->n_out > 1)
        nn_cuda_sum_rows(f->context, n, out, nn_cuda_in(f, 1), nn_cuda_out(f, 1));
}

// dx = dy w^T
static void cuda_dense_run_data(const struct nn_frame *f)
{
    const struct nn_type *w = &f->op->in_type[0];
    const size_t n = nn_type_rows(&f->op->in_type[1]), in = (size_t)w->dim[0], out = (size_t)w->dim[1];
    const struct nn_cuda_product p = {
        n, in, out, {nn_cuda_in(f, 1), out}, {nn_cuda_in(f, 0), out, true}, 1, nn_cuda_out(f, 0), in, 0, 1};
    nn_cuda_multiply(f->context, &p);
}

static enum ps_code cuda_dense_plan_weights(struct nn_context *c, const struct nn_op *op, void **plan,
                                            struct ps_error *e)
{
    (void)plan;
    return nn_cuda_reserve_sum(c, nn_type_rows(&op->in_type[1]), (size_t)op->out_type[0].dim[1], e);
}

static const char *cuda_dense_info(const void *plan)
{
    (void)plan;
    return "cublas";
}

const struct nn_kernel nn_cuda_dense = {NULL, cuda_dense_run, NULL, cuda_dense_info};
const struct nn_kernel nn_cuda_dense_backward_weights = {cuda_dense_plan_weights, cuda_dense_run_weights, NULL,
                                                         cuda_dense_info};
const struct nn_kernel nn_cuda_dense_backward_data = {NULL, cuda_dense_run_data, NULL, cuda_dense_info};
