// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/cuda/cuda.h"

enum ps_code nn_cuda_code(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return PS_RESOURCE_EXHAUSTED;
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
        return PS_UNAVAILABLE;
    default:
        return PS_INTERNAL;
    }
}

void nn_cuda_note(struct nn_context *c, cudaError_t error, const char *what)
{
    if (error == cudaSuccess || c->error.code)
        return;
    ps_fail(&c->error, nn_cuda_code(error), "%s: %s has failed: %s (%s)", c->name, what, cudaGetErrorString(error),
            cudaGetErrorName(error));
}

void nn_cuda_note_blas(struct nn_context *c, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS || c->error.code)
        return;
    // Where the device has failed before, that is the cause. Sums may wait for other devices: they are not waited for.
    nn_cuda_note(c, cudaStreamSynchronize(c->stream), "what was queued on it");
    if (c->error.code)
        return;
    ps_fail(&c->error, status == CUBLAS_STATUS_ALLOC_FAILED ? PS_RESOURCE_EXHAUSTED : PS_INTERNAL,
            "%s: %s has failed: %s", c->name, what, cublasGetStatusString(status));
}
