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
