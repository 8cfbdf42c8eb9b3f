// SPDX-License-Identifier: Apache-2.0
//
// The emulated CUDA runtime: found before the real header of this name where .cu files are compiled as C++, and .c
// files that call the runtime, for tests without a GPU. It has what the trainer uses of the runtime and no more;
// whatever is missing is missing at compile time.
//
// Each function of the runtime is a macro that adds the caller's place, for the messages of the emulator.
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#define CUDA_EMULATED 1
#define CUDART_VERSION 12000

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define EMU_DEFAULT(value) = value
#define EMU_HERE (emu_place{__FILE__, __LINE__})
extern "C" {
#else
#include <stdbool.h>
#define EMU_DEFAULT(value)
#define EMU_HERE ((struct emu_place){__FILE__, __LINE__})
#endif

// Where the program calls the runtime.
struct emu_place {
    const char *file;
    int line;
};

// ---- types ---------------------------------------------------------------------------------------------------------

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorLaunchFailure = 719,
    cudaErrorSystemNotReady = 802,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorUnknown = 999
} cudaError_t;

typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;
typedef struct emu_graph *cudaGraph_t;
typedef struct emu_graph_exec *cudaGraphExec_t;
#define CUDART_CB
typedef struct emu_pool *cudaMemPool_t;
typedef void (*cudaHostFn_t)(void *argument);

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMemoryPoolsSupported = 115
};
enum {
    cudaStreamDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2
};
struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
struct cudaFuncAttributes {
    int maxThreadsPerBlock;
};
typedef struct {
    char bytes[16];
} cudaUUID_t;
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
    int warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount, pciBusID, pciDeviceID, pciDomainID;
};
#ifndef __cplusplus
typedef enum cudaError cudaError;
#endif

// ---- errors and devices --------------------------------------------------------------------------------------------

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t emu_cudaSetDevice(struct emu_place at, int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t emu_cudaDeviceSynchronize(struct emu_place at);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value);
#define cudaSetDevice(...) emu_cudaSetDevice(EMU_HERE, __VA_ARGS__)
#define cudaDeviceSynchronize() emu_cudaDeviceSynchronize(EMU_HERE)

// ---- memory --------------------------------------------------------------------------------------------------------

cudaError_t emu_cudaMalloc(struct emu_place at, void **memory, size_t size);
cudaError_t emu_cudaMallocAsync(struct emu_place at, void **memory, size_t size, cudaStream_t stream);
cudaError_t emu_cudaFree(struct emu_place at, void *memory);
cudaError_t emu_cudaFreeAsync(struct emu_place at, void *memory, cudaStream_t stream);
cudaError_t emu_cudaHostAlloc(struct emu_place at, void **memory, size_t size, unsigned flags);
cudaError_t emu_cudaFreeHost(struct emu_place at, void *memory);
cudaError_t emu_cudaMemcpy(struct emu_place at, void *to, const void *from, size_t size, enum cudaMemcpyKind kind);
cudaError_t emu_cudaMemcpyAsync(struct emu_place at, void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                                cudaStream_t stream EMU_DEFAULT(0));
cudaError_t emu_cudaMemcpy2DAsync(struct emu_place at, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                  size_t width, size_t height, enum cudaMemcpyKind kind,
                                  cudaStream_t stream EMU_DEFAULT(0));
cudaError_t emu_cudaMemcpyPeerAsync(struct emu_place at, void *to, int to_device, const void *from, int from_device,
                                    size_t size, cudaStream_t stream EMU_DEFAULT(0));
cudaError_t emu_cudaMemset(struct emu_place at, void *memory, int value, size_t size);
cudaError_t emu_cudaMemsetAsync(struct emu_place at, void *memory, int value, size_t size,
                                cudaStream_t stream EMU_DEFAULT(0));
cudaError_t cudaHostGetDevicePointer(void **there, void *memory, unsigned flags);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer);
#define cudaMalloc(...) emu_cudaMalloc(EMU_HERE, __VA_ARGS__)
#define cudaMallocAsync(...) emu_cudaMallocAsync(EMU_HERE, __VA_ARGS__)
#define cudaFree(...) emu_cudaFree(EMU_HERE, __VA_ARGS__)
#define cudaFreeAsync(...) emu_cudaFreeAsync(EMU_HERE, __VA_ARGS__)
#define cudaHostAlloc(...) emu_cudaHostAlloc(EMU_HERE, __VA_ARGS__)
#define cudaMallocHost(memory, size) emu_cudaHostAlloc(EMU_HERE, memory, size, cudaHostAllocDefault)
#define cudaFreeHost(...) emu_cudaFreeHost(EMU_HERE, __VA_ARGS__)
#define cudaMemcpy(...) emu_cudaMemcpy(EMU_HERE, __VA_ARGS__)
#define cudaMemcpyAsync(...) emu_cudaMemcpyAsync(EMU_HERE, __VA_ARGS__)
#define cudaMemcpy2DAsync(...) emu_cudaMemcpy2DAsync(EMU_HERE, __VA_ARGS__)
#define cudaMemcpyPeerAsync(...) emu_cudaMemcpyPeerAsync(EMU_HERE, __VA_ARGS__)
#define cudaMemset(...) emu_cudaMemset(EMU_HERE, __VA_ARGS__)
#define cudaMemsetAsync(...) emu_cudaMemsetAsync(EMU_HERE, __VA_ARGS__)

// ---- streams, events, graphs ---------------------------------------------------------------------------------------

cudaError_t emu_cudaStreamCreate(struct emu_place at, cudaStream_t *stream, unsigned flags);
cudaError_t emu_cudaStreamDestroy(struct emu_place at, cudaStream_t stream);
cudaError_t emu_cudaStreamSynchronize(struct emu_place at, cudaStream_t stream);
cudaError_t emu_cudaStreamQuery(struct emu_place at, cudaStream_t stream);
cudaError_t emu_cudaStreamWaitEvent(struct emu_place at, cudaStream_t stream, cudaEvent_t event,
                                    unsigned flags EMU_DEFAULT(0));
cudaError_t emu_cudaLaunchHostFunc(struct emu_place at, cudaStream_t stream, cudaHostFn_t function, void *argument);
cudaError_t emu_cudaEventCreate(struct emu_place at, cudaEvent_t *event, unsigned flags);
cudaError_t emu_cudaEventDestroy(struct emu_place at, cudaEvent_t event);
cudaError_t emu_cudaEventRecord(struct emu_place at, cudaEvent_t event, cudaStream_t stream EMU_DEFAULT(0));
cudaError_t emu_cudaEventSynchronize(struct emu_place at, cudaEvent_t event);
cudaError_t emu_cudaEventQuery(struct emu_place at, cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end);
#define cudaStreamCreate(stream) emu_cudaStreamCreate(EMU_HERE, stream, cudaStreamDefault)
#define cudaStreamCreateWithFlags(stream, flags) emu_cudaStreamCreate(EMU_HERE, stream, flags)
#define cudaStreamCreateWithPriority(stream, flags, priority) \
    ((void)(priority), emu_cudaStreamCreate(EMU_HERE, stream, flags))
#define cudaStreamDestroy(...) emu_cudaStreamDestroy(EMU_HERE, __VA_ARGS__)
#define cudaStreamSynchronize(...) emu_cudaStreamSynchronize(EMU_HERE, __VA_ARGS__)
#define cudaStreamQuery(...) emu_cudaStreamQuery(EMU_HERE, __VA_ARGS__)
#define cudaStreamWaitEvent(...) emu_cudaStreamWaitEvent(EMU_HERE, __VA_ARGS__)
#define cudaLaunchHostFunc(...) emu_cudaLaunchHostFunc(EMU_HERE, __VA_ARGS__)
#define cudaEventCreate(event) emu_cudaEventCreate(EMU_HERE, event, cudaEventDefault)
#define cudaEventCreateWithFlags(event, flags) emu_cudaEventCreate(EMU_HERE, event, flags)
#define cudaEventDestroy(...) emu_cudaEventDestroy(EMU_HERE, __VA_ARGS__)
#define cudaEventRecord(...) emu_cudaEventRecord(EMU_HERE, __VA_ARGS__)
#define cudaEventSynchronize(...) emu_cudaEventSynchronize(EMU_HERE, __VA_ARGS__)
#define cudaEventQuery(...) emu_cudaEventQuery(EMU_HERE, __VA_ARGS__)

cudaError_t emu_cudaStreamBeginCapture(struct emu_place at, cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t emu_cudaStreamEndCapture(struct emu_place at, cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t emu_cudaGraphInstantiate(struct emu_place at, cudaGraphExec_t *exec, cudaGraph_t graph,
                                     unsigned long long flags EMU_DEFAULT(0));
cudaError_t emu_cudaGraphLaunch(struct emu_place at, cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t emu_cudaGraphExecDestroy(struct emu_place at, cudaGraphExec_t exec);
#define cudaStreamBeginCapture(...) emu_cudaStreamBeginCapture(EMU_HERE, __VA_ARGS__)
#define cudaStreamEndCapture(...) emu_cudaStreamEndCapture(EMU_HERE, __VA_ARGS__)
#define cudaGraphInstantiate(...) emu_cudaGraphInstantiate(EMU_HERE, __VA_ARGS__)
#define cudaGraphLaunch(...) emu_cudaGraphLaunch(EMU_HERE, __VA_ARGS__)
#define cudaGraphExecDestroy(...) emu_cudaGraphExecDestroy(EMU_HERE, __VA_ARGS__)

#ifdef __cplusplus
}

// As the real header has it: &pointer, whatever it points to.
template <class T> cudaError_t emu_cudaMalloc(emu_place at, T **memory, size_t size)
{
    return emu_cudaMalloc(at, reinterpret_cast<void **>(memory), size);
}
template <class T> cudaError_t emu_cudaMallocAsync(emu_place at, T **memory, size_t size, cudaStream_t stream)
{
    return emu_cudaMallocAsync(at, reinterpret_cast<void **>(memory), size, stream);
}
template <class T> cudaError_t emu_cudaHostAlloc(emu_place at, T **memory, size_t size, unsigned flags)
{
    return emu_cudaHostAlloc(at, reinterpret_cast<void **>(memory), size, flags);
}

#include "emulated/kernel.h"
#include "emulated/math.h"
#endif

#endif
