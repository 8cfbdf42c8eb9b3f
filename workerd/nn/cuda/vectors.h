// SPDX-License-Identifier: Apache-2.0
//
// Several floats by one load or store: a GPU moves 16 bytes as fast as 4. Kernels are written once for both:
//
//   template <int N> static __global__ void double_all(size_t n, const float *x, float *y)
//   {
//       NN_CUDA_EACH_VECTOR(i, n, N)
//       {
//           nn_cuda_floats<N> v = nn_cuda_load<N>(x + i);
//           for (int k = 0; k < N; k++)
//               v.at[k] *= 2;
//           nn_cuda_store(y + i, v);
//       }
//   }
//   NN_CUDA_RUN_VECTORS(context, double_all, n, x, y);
#ifndef NN_CUDA_VECTORS_H
#define NN_CUDA_VECTORS_H

#include "workerd/nn/cuda/cuda.h"

enum { NN_CUDA_VECTOR = 4 };

// Do n floats at each of these addresses, or at none (NULL), divide into vectors that a load may move?
template <class... P> static inline bool nn_cuda_has_vectors(size_t n, P... pointers)
{
    return n % NN_CUDA_VECTOR == 0 && ((uintptr_t)pointers | ...) % (NN_CUDA_VECTOR * sizeof(float)) == 0;
}

// NN_CUDA_RUN_EACH of kernel<NN_CUDA_VECTOR> where that may be, and of kernel<1> elsewhere; all other arguments are
// pointers to n floats.
#define NN_CUDA_RUN_VECTORS(context, kernel, n, ...)                                        \
    do {                                                                                    \
        const size_t nn_cuda_n = (n);                                                       \
        const size_t nn_cuda_vectors = nn_cuda_n / NN_CUDA_VECTOR;                          \
        if (nn_cuda_has_vectors(nn_cuda_n, __VA_ARGS__))                                    \
            NN_CUDA_RUN(context, (kernel<NN_CUDA_VECTOR>), nn_cuda_blocks(nn_cuda_vectors), \
                        nn_cuda_threads(nn_cuda_vectors), 0, nn_cuda_n, __VA_ARGS__);       \
        else                                                                                \
            NN_CUDA_RUN_EACH(context, (kernel<1>), nn_cuda_n, __VA_ARGS__);                 \
    } while (0)

// ---- in kernels ---------------------------------------------------------------------------------------------------

template <int N> struct alignas(N * sizeof(float)) nn_cuda_floats {
    float at[N];
};

template <int N> static inline __device__ nn_cuda_floats<N> nn_cuda_load(const float *from)
{
    return *reinterpret_cast<const nn_cuda_floats<N> *>(from);
}

template <int N> static inline __device__ void nn_cuda_store(float *to, const nn_cuda_floats<N> &v)
{
    *reinterpret_cast<nn_cuda_floats<N> *>(to) = v;
}

// for (size_t i: the first of each of this thread's vectors of N of n elements)
#define NN_CUDA_EACH_VECTOR(i, n, N)                                                        \
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * (N); i < (size_t)(n); \
         i += (size_t)gridDim.x * blockDim.x * (N))

#endif
