// SPDX-License-Identifier: Apache-2.0
//
// Sums over lines of numbers: a team of threads for each line, one thread, a warp or a block of TEAM_MOST. Kernels are
// written once for all three:
//
//   static __global__ void sum_of_line(size_t lines, size_t n, const float *x, float *y)
//   {
//       __shared__ float part[NN_CUDA_PARTS];
//       const size_t k = nn_cuda_line();
//       if (k >= lines)
//           return;
//       float sum = 0;
//       NN_CUDA_TEAM_EACH(j, n)
//       sum += x[k * n + j];
//       sum = nn_cuda_team_sum(sum, part);
//       if (threadIdx.x == 0)
//           y[k] = sum;
//   }
//   NN_CUDA_RUN_TEAMS(context, sum_of_line, nn_cuda_team(lines, n, 1), lines, n, x, y);
//
// A block with several teams waits nowhere, so that some of them may return.
#ifndef NN_CUDA_TEAMS_H
#define NN_CUDA_TEAMS_H

#include "workerd/nn/cuda/cuda.h"

enum { NN_CUDA_WARP = 32, NN_CUDA_TEAM_MOST = 256, NN_CUDA_PARTS = NN_CUDA_TEAM_MOST / NN_CUDA_WARP };

// blockDim for lines of n numbers that are `step` apart. Threads with lines of their own read side by side where the
// lines lie so.
static inline dim3 nn_cuda_team(size_t lines, size_t n, size_t step)
{
    if (n <= 2 || (step > 1 && lines >= 1024))
        return dim3(1, NN_CUDA_TEAM_MOST);
    return n <= 1024 ? dim3(NN_CUDA_WARP, 4) : dim3(NN_CUDA_TEAM_MOST);
}

static inline unsigned nn_cuda_teams(size_t lines, dim3 team)
{
    return (unsigned)((lines + team.y - 1) / team.y);
}

// NN_CUDA_RUN with a team for each of so many lines; the kernel's first argument is `lines`.
#define NN_CUDA_RUN_TEAMS(context, kernel, team, lines, ...) \
    NN_CUDA_RUN(context, kernel, nn_cuda_teams(lines, team), team, 0, lines, __VA_ARGS__)

// ---- in kernels ---------------------------------------------------------------------------------------------------

#define NN_CUDA_TEAM_EACH(j, n) for (size_t j = threadIdx.x; j < (size_t)(n); j += blockDim.x)

static inline __device__ size_t nn_cuda_line(void)
{
    return (size_t)blockIdx.x * blockDim.y + threadIdx.y;
}

struct nn_cuda_plus {
    template <class T> static __device__ T of(T a, T b)
    {
        return a + b;
    }
};

struct nn_cuda_most {
    static __device__ float of(float a, float b)
    {
        return fmaxf(a, b);
    }
};

// What another thread of the warp has. A struct of several numbers has one of these functions of its own.
template <class T> static inline __device__ T nn_cuda_of_lane(T x, int by)
{
    return __shfl_xor_sync(0xffffffffu, x, by);
}

// In the same order for every thread, so that all have the same bits.
template <class Of, class T> static inline __device__ T nn_cuda_team_all(T x, T *part)
{
    if (blockDim.x == 1)
        return x;
    for (int by = NN_CUDA_WARP / 2; by > 0; by /= 2)
        x = Of::of(x, nn_cuda_of_lane(x, by));
    if (blockDim.x == NN_CUDA_WARP)
        return x;
    __syncthreads();  // part is no longer read
    if (threadIdx.x % NN_CUDA_WARP == 0)
        part[threadIdx.x / NN_CUDA_WARP] = x;
    __syncthreads();
    x = part[0];
    for (unsigned k = 1; k < blockDim.x / NN_CUDA_WARP; k++)
        x = Of::of(x, part[k]);
    return x;
}

template <class T> static inline __device__ T nn_cuda_team_sum(T x, T *part)
{
    return nn_cuda_team_all<nn_cuda_plus>(x, part);
}

// A NaN counts for nothing.
static inline __device__ float nn_cuda_team_max(float x, float *part)
{
    return nn_cuda_team_all<nn_cuda_most>(x, part);
}

// Divisions of 64 bits take several times as long as those of 32.
static inline __device__ size_t nn_cuda_quotient(size_t a, size_t b)
{
    return (a | b) >> 32 ? a / b : (uint32_t)a / (uint32_t)b;
}

static inline __device__ size_t nn_cuda_remainder(size_t a, size_t b)
{
    return (a | b) >> 32 ? a % b : (uint32_t)a % (uint32_t)b;
}

#endif
