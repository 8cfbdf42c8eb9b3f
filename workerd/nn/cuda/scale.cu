// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/cuda/cuda.h"

static __global__ void scale_all(size_t n, float *x, float by)
{
    NN_CUDA_EACH(i, n)
    x[i] *= by;
}

void nn_cuda_scale(struct nn_context *c, float *x, size_t n, float by)
{
    NN_CUDA_RUN_EACH(c, scale_all, n, x, by);
}

cudaError_t nn_cuda_find_kernels(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(scale_all));
}

static __global__ void sum_two(size_t n, float *sum, const float *x)
{
    NN_CUDA_EACH(i, n)
    sum[i] += x[i];
}

cudaError_t nn_cuda_sum_two(cudaStream_t stream, float *sum, const float *x, size_t n)
{
    return NN_CUDA_LAUNCH(sum_two, nn_cuda_blocks(n), nn_cuda_threads(n), 0, stream, n, sum, x);
}
