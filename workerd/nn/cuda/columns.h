// SPDX-License-Identifier: Apache-2.0
//
// Columns of a matrix (rows, columns) that lies by rows, which blocks of threads (x, y) walk down: a thread has N
// columns side by side, as many as one load moves (vectors.h), in NN_CUDA_PLACES rows at once, all of which are on
// their way before the first one is used. Sums of columns are made in parts, one of each block, then of the parts.
//
//   const size_t column = nn_cuda_column<N>();
//   NN_CUDA_COLUMN_EACH(step, c)
//   {
//       nn_cuda_floats<N> v[NN_CUDA_PLACES];
//       nn_cuda_load_places(x, nn_cuda_places_of(c, step, column), v);
//       ...
//   }
#ifndef NN_CUDA_COLUMNS_H
#define NN_CUDA_COLUMNS_H

#include "workerd/nn/cuda/vectors.h"

// Of blocks: two for each of the 132 multiprocessors of an H100.
enum { NN_CUDA_PLACES = 4, NN_CUDA_COLUMN_THREADS = 256, NN_CUDA_COLUMN_BLOCKS = 264 };

struct nn_cuda_columns {
    size_t rows, columns;
    dim3 grid, block;  // grid.y: the parts
};

// Threads with n columns each. The parts have as many steps as each other, but for the last.
static inline struct nn_cuda_columns nn_cuda_columns_of(size_t rows, size_t columns, size_t n)
{
    const size_t wide = (columns + n - 1) / n, blocks = (wide + 31) / 32, x = (wide + blocks - 1) / blocks;
    const size_t y = NN_CUDA_COLUMN_THREADS / x, steps = (rows + y * NN_CUDA_PLACES - 1) / (y * NN_CUDA_PLACES);
    const size_t parts = blocks < NN_CUDA_COLUMN_BLOCKS ? NN_CUDA_COLUMN_BLOCKS / blocks : 1;
    const size_t of_part = (steps + parts - 1) / parts;
    const struct nn_cuda_columns c = {rows, columns,
                                      dim3((unsigned)blocks, (unsigned)((steps + of_part - 1) / of_part)),
                                      dim3((unsigned)x, (unsigned)y)};
    return c;
}

// ---- in kernels ---------------------------------------------------------------------------------------------------

// The first of the thread's columns; there may be none.
template <int N> static inline __device__ size_t nn_cuda_column(void)
{
    return ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
}

// Steps of this block, each of blockDim.y * NN_CUDA_PLACES rows.
#define NN_CUDA_COLUMN_EACH(step, c) \
    for (size_t step = blockIdx.y; step * (NN_CUDA_PLACES * blockDim.y) < (c).rows; step += gridDim.y)

// Where to read: the first n are there.
struct nn_cuda_places {
    size_t at[NN_CUDA_PLACES];
    int n;
};

// The i-th place, and those each `by` behind the one before it, until `end`.
static inline __device__ struct nn_cuda_places nn_cuda_places_from(size_t i, size_t by, size_t end)
{
    struct nn_cuda_places p;
    p.n = 0;
#pragma unroll
    for (int k = 0; k < NN_CUDA_PLACES; k++) {
        p.at[k] = i + (size_t)k * by;
        p.n += p.at[k] < end;
    }
    return p;
}

static inline __device__ struct nn_cuda_places nn_cuda_places_of(const struct nn_cuda_columns &c, size_t step,
                                                                 size_t column)
{
    struct nn_cuda_places p =
        nn_cuda_places_from(step * (NN_CUDA_PLACES * blockDim.y) + threadIdx.y, blockDim.y, c.rows);
#pragma unroll
    for (int k = 0; k < NN_CUDA_PLACES; k++)
        p.at[k] = p.at[k] * c.columns + column;
    return p;
}

// Zeros where there is nothing, or x is NULL.
template <int N>
static inline __device__ void nn_cuda_load_places(const float *x, const struct nn_cuda_places &p, nn_cuda_floats<N> *to)
{
#pragma unroll
    for (int k = 0; k < NN_CUDA_PLACES; k++)
        if (x && k < p.n)
            to[k] = nn_cuda_load<N>(x + p.at[k]);
        else
            to[k] = nn_cuda_floats<N>();
}

// To the threads with threadIdx.y == 0: the N sums of all in the block with their threadIdx.x, in a fixed order.
// T::of(a, b): a and b together. part: N of them for each thread of the block, each of which comes here.
template <int N, class T> static inline __device__ void nn_cuda_sum_columns_of_block(T *sum, T *part)
{
    const unsigned threads = blockDim.x * blockDim.y, me = threadIdx.y * blockDim.x + threadIdx.x;
    for (unsigned left = blockDim.y, half; left > 1; left = half) {
        half = (left + 1) / 2;
        for (int j = 0; j < N && threadIdx.y >= half && threadIdx.y < left; j++)
            part[j * threads + me] = sum[j];
        __syncthreads();
        for (int j = 0; j < N && threadIdx.y + half < left; j++)
            sum[j] = T::of(sum[j], part[j * threads + me + half * blockDim.x]);
    }
}

#endif
