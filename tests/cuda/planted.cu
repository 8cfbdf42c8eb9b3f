// SPDX-License-Identifier: Apache-2.0
//
// Programs with one error each. On a GPU most of them give the right result nearly always. nvcc compiles them, too.
#include "tests/cuda/examples.h"
#include "workerd/nn/cuda/launch.h"
#include <cublas_v2.h>
#include <cudnn.h>
#include <nccl.h>
#include <thread>
#include <vector>

int planted_lines[2];
// Before a statement: its line is the i-th of those that the sentence must name.
#define PLANT(i) planted_lines[i] = __LINE__;

enum { N = 64, BYTES = N * sizeof(float) };

static __global__ void fill(float *x, int n, float value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = value;
}

static __global__ void twice(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = 2.0f * x[i];
}

// What most programs need.
struct things {
    cudaStream_t one, two;
    cudaEvent_t event;
    float *x, *y, *pinned;
};

static struct things begin()
{
    struct things t;
    cudaStreamCreateWithFlags(&t.one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&t.two, cudaStreamNonBlocking);
    cudaEventCreate(&t.event);
    cudaMalloc(&t.x, BYTES);
    cudaMalloc(&t.y, BYTES);
    cudaHostAlloc((void **)&t.pinned, BYTES, cudaHostAllocDefault);
    for (int i = 0; i < N; i++)
        t.pinned[i] = 1.0f;
    return t;
}

// ---- streams -------------------------------------------------------------------------------------------------------

static void missing_event()
{
    struct things t = begin();
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    PLANT(1) NN_CUDA_LAUNCH(twice, 2, 32, 0, t.two, t.x, t.y, (int)N);
    cudaDeviceSynchronize();
}

static void event_too_early()
{
    struct things t = begin();
    cudaEventRecord(t.event, t.one);
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    cudaStreamWaitEvent(t.two, t.event, 0);
    PLANT(1) cudaMemcpyAsync(t.pinned, t.x, BYTES, cudaMemcpyDeviceToHost, t.two);
    cudaDeviceSynchronize();
}

// The event is recorded on the stream that waits for it.
static void wrong_stream()
{
    struct things t = begin();
    PLANT(0) cudaMemcpyAsync(t.x, t.pinned, BYTES, cudaMemcpyHostToDevice, t.one);
    cudaEventRecord(t.event, t.two);
    cudaStreamWaitEvent(t.two, t.event, 0);
    PLANT(1) NN_CUDA_LAUNCH(twice, 2, 32, 0, t.two, t.x, t.y, (int)N);
    cudaDeviceSynchronize();
}

// The next write does not wait for a read.
static void buffer_reused()
{
    struct things t = begin();
    NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    cudaEventRecord(t.event, t.one);
    cudaStreamWaitEvent(t.two, t.event, 0);
    PLANT(0) NN_CUDA_LAUNCH(twice, 2, 32, 0, t.two, t.x, t.y, (int)N);
    PLANT(1) cudaMemcpyAsync(t.x, t.pinned, BYTES, cudaMemcpyHostToDevice, t.one);
    cudaDeviceSynchronize();
}

// Of three readers the writer waits for two.
static void one_reader_forgotten()
{
    struct things t = begin();
    cudaStream_t three;
    float *z;
    cudaStreamCreateWithFlags(&three, cudaStreamNonBlocking);
    cudaMalloc(&z, BYTES);
    NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    cudaStreamSynchronize(t.one);
    PLANT(0) NN_CUDA_LAUNCH(twice, 2, 32, 0, t.two, t.x, t.y, (int)N);
    NN_CUDA_LAUNCH(twice, 2, 32, 0, three, t.x, z, (int)N);
    cudaEventRecord(t.event, three);
    cudaStreamWaitEvent(t.one, t.event, 0);
    PLANT(1) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 2.0f);
    cudaDeviceSynchronize();
}

static void host_does_not_wait()
{
    struct things t = begin();
    NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    PLANT(0) cudaMemcpyAsync(t.pinned, t.x, BYTES, cudaMemcpyDeviceToHost, t.one);
    PLANT(1) float first = t.pinned[0];
    cudaStreamSynchronize(t.one);
    t.pinned[1] = first;
}

static void staging_reused()
{
    struct things t = begin();
    PLANT(0) cudaMemcpyAsync(t.x, t.pinned, BYTES, cudaMemcpyHostToDevice, t.one);
    PLANT(1) t.pinned[3] = 2.0f;
    cudaStreamSynchronize(t.one);
}

// One thread has waited; the other one goes on because a variable says so that orders nothing.
static void threads_unordered()
{
    struct things t = begin();
    static volatile bool ended;
    ended = false;
    std::thread first([t] {
        PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
        cudaStreamSynchronize(t.one);
        ended = true;
    });
    while (!ended)
        std::this_thread::yield();
    PLANT(1) NN_CUDA_LAUNCH(twice, 2, 32, 0, t.two, t.x, t.y, (int)N);
    cudaDeviceSynchronize();
    first.join();
}

static void destroyed_stream()
{
    struct things t = begin();
    cudaStream_t stream;
    PLANT(0) cudaStreamCreate(&stream);
    cudaStreamDestroy(stream);
    PLANT(1) cudaMemsetAsync(t.x, 0, BYTES, stream);
}

// ---- memory --------------------------------------------------------------------------------------------------------

static __global__ void unguarded(float *x)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] = 0;
}

static void unguarded_tail()
{
    struct things t = begin();
    PLANT(0) cudaMalloc(&t.y, BYTES - 8);
    PLANT(1) NN_CUDA_LAUNCH(unguarded, 2, 32, 0, t.one, t.y);
    cudaDeviceSynchronize();
}

static void copy_too_long()
{
    struct things t = begin();
    PLANT(0) cudaMalloc(&t.y, BYTES / 2);
    PLANT(1) cudaMemcpyAsync(t.y, t.pinned, BYTES, cudaMemcpyHostToDevice, t.one);
    cudaDeviceSynchronize();
}

static void use_after_free()
{
    struct things t = begin();
    PLANT(0) cudaFree(t.x);
    PLANT(1) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    cudaDeviceSynchronize();
}

static void free_while_used()
{
    struct things t = begin();
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    PLANT(1) cudaFree(t.x);
    cudaDeviceSynchronize();
}

static void double_free()
{
    struct things t = begin();
    PLANT(0) cudaFree(t.x);
    PLANT(1) cudaFree(t.x);
}

static void free_in_another_stream()
{
    struct things t = begin();
    float *z;
    cudaMallocAsync((void **)&z, BYTES, t.one);
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, z, (int)N, 1.0f);
    PLANT(1) cudaFreeAsync(z, t.two);
    cudaDeviceSynchronize();
}

static void not_allocated_yet()
{
    struct things t = begin();
    float *z;
    PLANT(0) cudaMallocAsync((void **)&z, BYTES, t.one);
    PLANT(1) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.two, z, (int)N, 1.0f);
    cudaDeviceSynchronize();
}

static void host_pointer_on_device()
{
    struct things t = begin();
    std::vector<float> host(N);
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, host.data(), (int)N, 1.0f);
    cudaDeviceSynchronize();
}

static void pinned_pointer_on_device()
{
    struct things t = begin();
    PLANT(0) cudaHostAlloc((void **)&t.pinned, BYTES, cudaHostAllocDefault);
    PLANT(1) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.pinned, (int)N, 1.0f);
    cudaDeviceSynchronize();
}

static void device_pointer_on_host()
{
    struct things t = begin();
    PLANT(0) cudaMalloc(&t.x, BYTES);
    PLANT(1) t.x[1] = 3.0f;
}

static void wrong_kind()
{
    struct things t = begin();
    PLANT(0) cudaHostAlloc((void **)&t.pinned, BYTES, cudaHostAllocDefault);
    PLANT(1) cudaMemcpyAsync(t.x, t.pinned, BYTES, cudaMemcpyDeviceToDevice, t.one);
}

static void overlapping_copy()
{
    struct things t = begin();
    PLANT(0) cudaMalloc(&t.x, BYTES);
    cudaMemsetAsync(t.x, 0, BYTES, t.one);
    PLANT(1) cudaMemcpyAsync(t.x + 4, t.x, BYTES / 2, cudaMemcpyDeviceToDevice, t.one);
}

static void nothing_written()
{
    struct things t = begin();
    PLANT(0) cudaMalloc(&t.x, BYTES);
    NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, N - 1, 1.0f);
    PLANT(1) NN_CUDA_LAUNCH(twice, 2, 32, 0, t.one, t.x, t.y, (int)N);
    cudaDeviceSynchronize();
}

static void nothing_written_but_copied()
{
    struct things t = begin();
    cudaMemcpyAsync(t.y, t.x, BYTES, cudaMemcpyDeviceToDevice, t.one);
    PLANT(1) cudaMemcpyAsync(t.pinned, t.y, BYTES, cudaMemcpyDeviceToHost, t.one);
    cudaDeviceSynchronize();
}

static __global__ void copy4(const float4 *x, float4 *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i];
}

static void misaligned()
{
    struct things t = begin();
    PLANT(0) cudaMalloc(&t.x, BYTES);
    cudaMemsetAsync(t.x, 0, BYTES, t.one);
    PLANT(1) NN_CUDA_LAUNCH(copy4, 1, 32, 0, t.one, (const float4 *)(t.x + 1), (float4 *)t.y, 4);
    cudaDeviceSynchronize();
}

// ---- threads -------------------------------------------------------------------------------------------------------

static __global__ void reverse_without_barrier(float *x)
{
    __shared__ float tile[32 + N];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

static void shared_race()
{
    struct things t = begin();
    cudaMemsetAsync(t.x, 0, BYTES, t.one);
    PLANT(0) NN_CUDA_LAUNCH(reverse_without_barrier, 1, N, 0, t.one, t.x);
    cudaDeviceSynchronize();
}

static __global__ void sums_without_second_barrier(float *x)
{
    NN_CUDA_SHARED(float, all);
    for (int round = 0; round < 2; round++) {
        all[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = all[threadIdx.x] + all[(threadIdx.x + 1) % N];
    }
}

static void shared_race_of_rounds()
{
    struct things t = begin();
    cudaMemsetAsync(t.x, 0, BYTES, t.one);
    PLANT(0) NN_CUDA_LAUNCH(sums_without_second_barrier, 1, N, BYTES, t.one, t.x);
    cudaDeviceSynchronize();
}

// One thread changes what others read: those of its warp, of another warp, of another block.
static __global__ void last_grows(float *x)
{
    float before = x[0];
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0)
        x[0] = before + 1.0f;
}

static void launch_last_grows(int blocks, int threads)
{
    struct things t = begin();
    cudaMemsetAsync(t.x, 0, BYTES, t.one);
    PLANT(0) NN_CUDA_LAUNCH(last_grows, blocks, threads, 0, t.one, t.x);
    cudaDeviceSynchronize();
}

static void lanes_race()
{
    launch_last_grows(1, 2);
}

static __global__ void two_warps_read(float *x)
{
    __shared__ float first;
    if (threadIdx.x == 0)
        first = 1.0f;
    __syncthreads();
    float sum = 0;
    if (threadIdx.x % 32 == 0)
        sum = first;
    if (threadIdx.x == 32)
        first = sum + 1.0f;
    x[threadIdx.x] = sum;
}

static void warps_race()
{
    struct things t = begin();
    PLANT(0) NN_CUDA_LAUNCH(two_warps_read, 1, N, 0, t.one, t.x);
    cudaDeviceSynchronize();
}

static void blocks_race_with_reads()
{
    launch_last_grows(3, 1);
}

static __global__ void all_write_one(float *sum)
{
    *sum = (float)blockIdx.x;
}

static void blocks_race()
{
    struct things t = begin();
    PLANT(0) NN_CUDA_LAUNCH(all_write_one, 4, 1, 0, t.one, t.x);
    cudaDeviceSynchronize();
}

static __global__ void barrier_in_branch(float *x)
{
    if (threadIdx.x < 40)
        __syncthreads();
    x[threadIdx.x] = 0;
}

static void barrier_not_reached()
{
    struct things t = begin();
    PLANT(0) NN_CUDA_LAUNCH(barrier_in_branch, 1, N, 0, t.one, t.x);
    cudaDeviceSynchronize();
}

static __global__ void two_barriers(float *x)
{
    if (threadIdx.x % 2)
        __syncthreads();
    else
        __syncthreads();
    x[threadIdx.x] = 0;
}

static void different_barriers()
{
    struct things t = begin();
    PLANT(0) NN_CUDA_LAUNCH(two_barriers, 1, N, 0, t.one, t.x);
    cudaDeviceSynchronize();
}

static __global__ void shuffle_in_branch(float *x)
{
    float sum = 1.0f;
    if (threadIdx.x % 32 < 16)
        sum += __shfl_down_sync(0xffffffffu, sum, 8);
    x[threadIdx.x] = sum;
}

static void shuffle_not_reached()
{
    struct things t = begin();
    PLANT(0) NN_CUDA_LAUNCH(shuffle_in_branch, 1, N, 0, t.one, t.x);
    cudaDeviceSynchronize();
}

static __global__ void add_atomically(float *sum)
{
    atomicAdd(sum, 1.0f);
}

static void float_atomic()
{
    struct things t = begin();
    cudaMemsetAsync(t.x, 0, BYTES, t.one);
    PLANT(0) NN_CUDA_LAUNCH(add_atomically, 1, N, 0, t.one, t.x);
    cudaDeviceSynchronize();
}

// ---- devices and libraries -----------------------------------------------------------------------------------------

static void stream_of_another_device()
{
    struct things t = begin();
    PLANT(0) cudaStreamCreateWithFlags(&t.one, cudaStreamNonBlocking);
    cudaSetDevice(1);
    PLANT(1) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    cudaSetDevice(0);
}

static void event_of_another_device()
{
    struct things t = begin();
    cudaSetDevice(1);
    PLANT(0) cudaStreamCreate(&t.two);
    PLANT(1) cudaEventRecord(t.event, t.two);
    cudaSetDevice(0);
}

static void memory_of_another_device()
{
    struct things t = begin();
    cudaSetDevice(1);
    PLANT(0) cudaMalloc(&t.y, BYTES);
    cudaSetDevice(0);
    PLANT(1) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.y, (int)N, 1.0f);
    cudaDeviceSynchronize();
}

static void product_without_event()
{
    struct things t = begin();
    cublasHandle_t handle;
    float alpha = 1, beta = 0;
    cublasCreate(&handle);
    cublasSetStream(handle, t.two);
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    PLANT(1) cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, 8, 8, 8, &alpha, t.x, 8, t.x, 8, &beta, t.y, 8);
    cudaDeviceSynchronize();
    cublasDestroy(handle);
}

// An image of 4 x 4 pixels, windows of 1 x 1.
static void convolution_without_event()
{
    struct things t = begin();
    cudnnHandle_t h;
    cudnnTensorDescriptor_t image;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    const cudnnConvolutionFwdAlgo_t algo = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    float one = 1, no = 0;
    void *spare;
    cudaMalloc(&spare, 1024);
    cudnnCreate(&h);
    cudnnSetStream(h, t.two);
    cudnnCreateTensorDescriptor(&image);
    cudnnCreateFilterDescriptor(&w);
    cudnnCreateConvolutionDescriptor(&conv);
    cudnnSetTensor4dDescriptor(image, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 1, 4, 4);
    cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 1, 1, 1, 1);
    cudnnSetConvolution2dDescriptor(conv, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    PLANT(1) cudnnConvolutionForward(h, &one, image, t.x, w, t.x + 16, conv, algo, spare, 1024, &no, image, t.y);
    cudaDeviceSynchronize();
    cudnnDestroyConvolutionDescriptor(conv);
    cudnnDestroyFilterDescriptor(w);
    cudnnDestroyTensorDescriptor(image);
    cudnnDestroy(h);
}

// ---- capture -------------------------------------------------------------------------------------------------------

static void handle_in_capture()
{
    struct things t = begin();
    cudaGraph_t graph;
    cudnnHandle_t handle;
    PLANT(0) cudaStreamBeginCapture(t.one, cudaStreamCaptureModeGlobal);
    PLANT(1) cudnnCreate(&handle);
    cudaStreamEndCapture(t.one, &graph);
}

static void allocation_in_capture()
{
    struct things t = begin();
    cudaGraph_t graph;
    PLANT(0) cudaStreamBeginCapture(t.one, cudaStreamCaptureModeGlobal);
    PLANT(1) cudaMalloc(&t.y, BYTES);
    cudaStreamEndCapture(t.one, &graph);
}

static void wait_in_capture()
{
    struct things t = begin();
    cudaGraph_t graph;
    PLANT(0) cudaStreamBeginCapture(t.one, cudaStreamCaptureModeThreadLocal);
    PLANT(1) cudaStreamSynchronize(t.one);
    cudaStreamEndCapture(t.one, &graph);
}

static void capture_not_joined()
{
    struct things t = begin();
    cudaGraph_t graph;
    cudaStreamBeginCapture(t.one, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(t.event, t.one);
    cudaStreamWaitEvent(t.two, t.event, 0);
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.two, t.x, (int)N, 1.0f);
    PLANT(1) cudaStreamEndCapture(t.one, &graph);
}

// Two branches of a graph write the same memory.
static void graph_race()
{
    struct things t = begin();
    cudaEvent_t join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEventCreate(&join);
    cudaStreamBeginCapture(t.one, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(t.event, t.one);
    cudaStreamWaitEvent(t.two, t.event, 0);
    PLANT(0) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.one, t.x, (int)N, 1.0f);
    PLANT(1) NN_CUDA_LAUNCH(fill, 2, 32, 0, t.two, t.x, (int)N, 2.0f);
    cudaEventRecord(join, t.two);
    cudaStreamWaitEvent(t.one, join, 0);
    cudaStreamEndCapture(t.one, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, t.one);
    cudaDeviceSynchronize();
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
}

// ---- ranks ---------------------------------------------------------------------------------------------------------

struct rank {
    int number;
    float *x, *y;
    cudaStream_t stream;
    ncclComm_t comm;
};

// Runs two ranks, each on a thread and a GPU of its own.
template <class F> static void with_ranks(F body)
{
    std::vector<std::thread> threads;
    struct rank ranks[2];
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    for (int i = 0; i < 2; i++) {
        cudaSetDevice(i);
        cudaMalloc(&ranks[i].x, BYTES);
        cudaMalloc(&ranks[i].y, BYTES);
    }
    for (int i = 0; i < 2; i++)
        threads.emplace_back([i, id, body, ranks] {
            struct rank r = ranks[i];
            r.number = i;
            cudaSetDevice(i);
            ncclCommInitRank(&r.comm, 2, id, i);
            cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking);
            cudaMemsetAsync(r.x, 0, BYTES, r.stream);
            cudaMemsetAsync(r.y, 0, BYTES, r.stream);
            body(r);
            cudaStreamSynchronize(r.stream);
            ncclCommDestroy(r.comm);
        });
    for (std::thread &thread : threads)
        thread.join();
}

static void collective_order()
{
    with_ranks([](const struct rank &r) {
        if (r.number == 0)
            ncclAllReduce(r.x, r.x, N, ncclFloat32, ncclSum, r.comm, r.stream);
        ncclBroadcast(r.y, r.y, N, ncclFloat32, 0, r.comm, r.stream);
        if (r.number == 1)
            ncclAllReduce(r.x, r.x, N, ncclFloat32, ncclSum, r.comm, r.stream);
    });
}

static void collective_size()
{
    with_ranks([](const struct rank &r) {
        if (r.number == 0)
            ncclAllReduce(r.x, r.x, N, ncclFloat32, ncclSum, r.comm, r.stream);
        else
            ncclAllReduce(r.x, r.x, N - 1, ncclFloat32, ncclSum, r.comm, r.stream);
    });
}

static void rank_never_comes()
{
    with_ranks([](const struct rank &r) {
        ncclAllReduce(r.x, r.x, N, ncclFloat32, ncclSum, r.comm, r.stream);
        if (r.number == 0)
            ncclAllReduce(r.y, r.y, N, ncclFloat32, ncclSum, r.comm, r.stream);
    });
}

static void rank_ends()
{
    struct things t = begin();
    ncclComm_t comm;
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    std::thread other([id] {
        ncclComm_t second;
        cudaSetDevice(1);
        PLANT(0) ncclCommInitRank(&second, 2, id, 1);
    });
    other.join();
    ncclCommInitRank(&comm, 2, id, 0);
    cudaMemsetAsync(t.x, 0, BYTES, t.one);
    PLANT(1) ncclAllReduce(t.x, t.x, N, ncclFloat32, ncclSum, comm, t.one);
    cudaStreamSynchronize(t.one);
}

static void rank_busy_forever()
{
    with_ranks([](const struct rank &r) {
        if (r.number == 0)
            ncclAllReduce(r.x, r.x, N, ncclFloat32, ncclSum, r.comm, r.stream);
        while (r.number == 1 && cudaStreamQuery(r.stream) != cudaErrorUnknown)
            ;
    });
}

static void reduced_without_event()
{
    with_ranks([](const struct rank &r) {
        cudaStream_t other;
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        ncclAllReduce(r.x, r.x, N, ncclFloat32, ncclSum, r.comm, r.stream);
        NN_CUDA_LAUNCH(twice, 2, 32, 0, other, r.x, r.y, (int)N);
        cudaDeviceSynchronize();
    });
}

static void ranks_without_group()
{
    struct things t = begin();
    ncclComm_t comms[2];
    cudaStream_t second;
    float *there;
    ncclCommInitAll(comms, 2, NULL);
    cudaSetDevice(1);
    cudaStreamCreate(&second);
    cudaMalloc(&there, BYTES);
    cudaSetDevice(0);
    PLANT(0) ncclAllReduce(t.x, t.x, N, ncclFloat32, ncclSum, comms[0], t.one);
    PLANT(1) ncclAllReduce(there, there, N, ncclFloat32, ncclSum, comms[1], second);
}

const struct planted_error planted_errors[] = {
    {"an event is missing", 1, missing_event, "nothing that orders the two"},
    {"an event is recorded too early", 1, event_too_early, "nothing that orders the two"},
    {"an event is recorded on the wrong stream", 1, wrong_stream, "nothing that orders the two"},
    {"a buffer is written while it is read", 1, buffer_reused, "nothing that orders the two"},
    {"a writer waits for one reader of two", 1, one_reader_forgotten, "nothing that orders the two"},
    {"the host reads a result before it is there", 1, host_does_not_wait, "nothing that orders the two"},
    {"the host writes staging memory that is being copied", 1, staging_reused, "nothing that orders the two"},
    {"a thread uses what another one waited for", 1, threads_unordered, "nothing that orders the two"},
    {"a stream is used after its end", 1, destroyed_stream, "which was destroyed"},
    {"a kernel's tail is not guarded", 1, unguarded_tail, "past the end of the 248 bytes"},
    {"a copy is too long", 1, copy_too_long, "the 128 bytes of cudaMalloc"},
    {"memory is used after it was freed", 1, use_after_free, "has freed"},
    {"memory is freed while a stream uses it", 1, free_while_used, "expected a wait before it"},
    {"memory is freed twice", 1, double_free, "expected one free"},
    {"memory is freed in a stream while another one uses it", 1, free_in_another_stream, "expected a wait before it"},
    {"memory is used in a stream before another one has it", 1, not_allocated_yet, "orders the allocation before it"},
    {"a kernel gets a host pointer", 1, host_pointer_on_device, "a pointer of the host"},
    {"a kernel gets pinned memory that is not mapped", 1, pinned_pointer_on_device, "pinned memory of the host"},
    {"the host uses a device pointer", 1, device_pointer_on_host, "the host writes 4 bytes"},
    {"a copy is of another kind than its pointers", 1, wrong_kind, "expected the kind of copy"},
    {"a copy overlaps itself", 1, overlapping_copy, "overlap"},
    {"a kernel reads what nothing has written", 1, nothing_written, "that nothing has written"},
    {"the host gets what nothing has written", 1, nothing_written_but_copied, "that nothing has written"},
    {"a vector is misaligned", 1, misaligned, "no multiple of their size"},
    {"a barrier between two uses of shared memory is missing", 1, shared_race, "no barrier between them"},
    {"a barrier between two rounds is missing", 1, shared_race_of_rounds, "no barrier between them"},
    {"a lane changes what its warp reads", 1, lanes_race, "no barrier between them"},
    {"a warp changes what another one reads", 1, warps_race, "no barrier between them"},
    {"a block changes what others read", 1, blocks_race_with_reads, "no barrier between them"},
    {"blocks write the same memory", 1, blocks_race, "no barrier between them"},
    {"a barrier is not reached by all", 1, barrier_not_reached, "waits in __syncthreads"},
    {"threads wait at different barriers", 1, different_barriers, "waits in __syncthreads"},
    {"a shuffle is not reached by all lanes", 1, shuffle_not_reached, "waits in a shuffle"},
    {"floats are added atomically", 1, float_atomic, "depends on who comes first"},
    {"a stream of another device is used", 2, stream_of_another_device, "expected cudaSetDevice(0)"},
    {"an event of another device is used", 2, event_of_another_device, "expected an event of the stream's device"},
    {"memory of another device is used", 2, memory_of_another_device, "memory of device 1"},
    {"a product does not wait for its factor", 1, product_without_event, "nothing that orders the two"},
    {"a convolution does not wait for its image", 1, convolution_without_event, "nothing that orders the two"},
    {"cuDNN begins during a capture", 1, handle_in_capture, "is captured"},
    {"memory is allocated during a capture", 1, allocation_in_capture, "is captured"},
    {"the host waits for a stream that is captured", 1, wait_in_capture, "is captured"},
    {"a captured stream does not join again", 1, capture_not_joined, "nothing waits for kernel fill"},
    {"two branches of a graph write the same memory", 1, graph_race, "nothing that orders the two"},
    {"ranks call collectives in different order", 2, collective_order, "expected the same call"},
    {"ranks call a collective of different sizes", 2, collective_size, "expected the same call"},
    {"a rank never comes", 2, rank_never_comes, "waits for rank 1"},
    {"a rank's thread ends", 2, rank_ends, "waits for rank 1"},
    {"a rank never comes, and does other things", 2, rank_busy_forever, "waits for rank 1"},
    {"a reduced buffer is read without an event", 2, reduced_without_event, "nothing that orders the two"},
    {"one thread drives two ranks without a group", 2, ranks_without_group, "are called by one thread"},
    {0, 0, 0, 0},
};
