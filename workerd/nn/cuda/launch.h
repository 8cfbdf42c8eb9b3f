// SPDX-License-Identifier: Apache-2.0
//
// How .cu files reach the GPU, and the only header of this room that knows that there are two runtimes: CUDA's own
// under nvcc, and the emulated one of tests/cuda where the same files are compiled as C++ for tests without a GPU.
//
//   static __global__ void scale(float *x, int n, float by) { ... }
//   error = NN_CUDA_LAUNCH(scale, blocks, threads, 0, stream, x, n, by);
//
// What a .cu file keeps to, so that it means the same under both:
//   - kernels and device functions are static; a kernel's arguments are values, pointers or structs of them
//   - shared memory: __shared__ float tile[32]; or, of a size that the launch gives, NN_CUDA_SHARED(float, tile);
//   - warps by __shfl_*_sync, __ballot_sync, __syncwarp with masks, no cooperative groups; atomics of integers alone
//   - nothing that sm_70 or CUDA 12 lack
//   - blocks of one launch tell each other nothing, but by atomics; nothing is read that nothing has written, padding
//     neither: the emulator calls the one a race and the other an error
//   - the host's code of this room is compiled to be watched, too (tests/cuda/local.mk), so that its use of pinned
//     memory is seen
#ifndef NN_CUDA_LAUNCH_H
#define NN_CUDA_LAUNCH_H

#include <cuda_runtime.h>

// Returns the launch's error; errors of the kernel itself come with a later call of the runtime. A template with a
// comma stands in parentheses.
#define NN_CUDA_LAUNCH(kernel, grid, block, shared, stream, ...) \
    nn_cuda_launch(#kernel, __FILE__, __LINE__, kernel, grid, block, shared, stream, __VA_ARGS__)

#ifdef CUDA_EMULATED

template <class... P, class... A>
static inline cudaError_t nn_cuda_launch(const char *name, const char *file, int line, void (*kernel)(P...), dim3 grid,
                                         dim3 block, size_t shared, cudaStream_t stream, A &&...arguments)
{
    return emu_launch(emu_place{file, line}, name, kernel, grid, block, shared, stream, std::forward<A>(arguments)...);
}

#define NN_CUDA_SHARED(type, name) type *name = static_cast<type *>(emu_dynamic_shared())

#else

// P: what the kernel takes; the arguments are converted to it here.
template <class... P>
static inline cudaError_t nn_cuda_launch_converted(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                                   cudaStream_t stream, P... arguments)
{
    void *pointers[] = {(void *)&arguments...};
    return cudaLaunchKernel((const void *)kernel, grid, block, pointers, shared, stream);
}

template <class... P, class... A>
static inline cudaError_t nn_cuda_launch(const char *name, const char *file, int line, void (*kernel)(P...), dim3 grid,
                                         dim3 block, size_t shared, cudaStream_t stream, A... arguments)
{
    (void)name, (void)file, (void)line;
    return nn_cuda_launch_converted<P...>(kernel, grid, block, shared, stream, static_cast<P>(arguments)...);
}

// One array of bytes for all: C++ would not have the same name twice with different types.
#define NN_CUDA_SHARED(type, name)                                          \
    extern __shared__ __align__(16) unsigned char nn_cuda_dynamic_shared[]; \
    type *name = reinterpret_cast<type *>(nn_cuda_dynamic_shared)

#endif

#endif
