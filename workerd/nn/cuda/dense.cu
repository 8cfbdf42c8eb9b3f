// SPDX-License-Identifier: Apache-2.0
//
// Dense layers: products by cuBLAS; the bias, the activation, and the sum of rows that is the bias's gradient.
#include "workerd/nn/cuda/cuda.h"

// ---- y = act(y + b) -----------------------------------------------------------------------------------------------

// A NaN goes on.
static __device__ float cuda_activate(enum nn_activation act, float x)
{
    return act == NN_RELU && x < 0 ? 0 : x;
}

static __global__ void add_bias_activation(size_t n, size_t columns, const float *b, enum nn_activation act, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = cuda_activate(act, y[i] + (b ? b[i % columns] : 0));
}

void nn_cuda_bias_activation(struct nn_context *c, enum nn_activation act, size_t rows, size_t n, const float *b,
                             float *y)
{
    if (b || act != NN_LINEAR)
        NN_CUDA_RUN_EACH(c, add_bias_activation, rows * n, n, b, act, y);
}

// ---- sums of rows -------------------------------------------------------------------------------------------------

enum { SUM_COLUMNS = 32, SUM_ROWS = 16, SUM_OF_PART = 256 };
static const size_t SUM_PARTS = 64;

// How many parts the rows are cut into: as many as are worth a block, and have room in the scratch memory.
static unsigned sum_parts(size_t rows)
{
    const size_t parts = rows / SUM_OF_PART;
    return parts < 2 ? 1 : (unsigned)(parts > SUM_PARTS ? SUM_PARTS : parts);
}

enum ps_code nn_cuda_reserve_sum(struct nn_context *c, size_t rows, size_t n, struct ps_error *e)
{
    const unsigned parts = sum_parts(rows);
    return parts > 1 ? nn_cuda_reserve(c, parts * n * sizeof(float), e) : PS_OK;
}

// A block for 32 columns of a part of the rows: each of its 16 rows of threads adds up every 16th row, four of which are
// on their way at once, then the first adds up those sums. sums (parts, n)
static __global__ void sum_rows(size_t rows, size_t n, const float *x, float *sums)
{
    __shared__ float part[SUM_ROWS][SUM_COLUMNS];
    const size_t column = (size_t)blockIdx.x * SUM_COLUMNS + threadIdx.x;
    const size_t per = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * per;
    const size_t end = first + per < rows ? first + per : rows;
    float mine = 0;
#pragma unroll 4
    for (size_t r = first + threadIdx.y; column < n && r < end; r += SUM_ROWS)
        mine += x[r * n + column];
    part[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y != 0 || column >= n)
        return;
    for (int k = 1; k < SUM_ROWS; k++)
        mine += part[k][threadIdx.x];
    sums[blockIdx.y * n + column] = mine;
}

static void sum_rows_into(struct nn_context *c, size_t rows, size_t n, unsigned parts, const float *x, float *sums)
{
    NN_CUDA_RUN(c, sum_rows, dim3((unsigned)((n + SUM_COLUMNS - 1) / SUM_COLUMNS), parts), dim3(SUM_COLUMNS, SUM_ROWS),
                0, rows, n, x, sums);
}

void nn_cuda_sum_rows(struct nn_context *c, size_t rows, size_t n, const float *x, float *sum)
{
    const unsigned parts = sum_parts(rows);
    float *sums = parts > 1 ? (float *)c->scratch : sum;
    sum_rows_into(c, rows, n, parts, x, sums);
    if (parts > 1)
        sum_rows_into(c, parts, n, 1, sums, sum);
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
