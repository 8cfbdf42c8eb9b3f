// SPDX-License-Identifier: Apache-2.0
//
// The host's part of a program may be C: with the emulated headers, and watched, as with the real ones.
#include "tests/cuda/host_code.h"
#include <cuda_runtime.h>

bool host_code_copies(void)
{
    enum { COUNT = 16 };
    float *pinned, *there;
    cudaStream_t stream;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return false;
    cudaHostAlloc((void **)&pinned, 2 * COUNT * sizeof *pinned, cudaHostAllocDefault);
    cudaMalloc((void **)&there, COUNT * sizeof *there);
    for (int i = 0; i < COUNT; i++)
        pinned[i] = (float)i;
    cudaMemcpyAsync(there, pinned, COUNT * sizeof *there, cudaMemcpyHostToDevice, stream);
    cudaMemcpyAsync(pinned + COUNT, there, COUNT * sizeof *there, cudaMemcpyDeviceToHost, stream);
    bool right = cudaStreamSynchronize(stream) == cudaSuccess;
    for (int i = 0; i < COUNT; i++)
        right = right && pinned[COUNT + i] == (float)i;
    cudaFree(there);
    cudaFreeHost(pinned);
    cudaStreamDestroy(stream);
    return right;
}
