// SPDX-License-Identifier: Apache-2.0
//
// Programs that meet faults: what they get from the runtime, and that it is theirs to go on.
#include "tests/cuda/examples.h"
#include "workerd/nn/cuda/launch.h"
#include <nccl.h>
#include <thread>

static __global__ void fault_fill(float *x, int n, float value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = value;
}

enum { N = 32, BYTES = N * sizeof(float) };

static const char *second_allocation_fails()
{
    float *first, *second, *third;
    if (cudaMalloc(&first, BYTES) != cudaSuccess)
        return "the first allocation failed";
    if (cudaMalloc(&second, BYTES) != cudaErrorMemoryAllocation || second)
        return "the second allocation did not fail";
    if (cudaGetLastError() != cudaErrorMemoryAllocation || cudaGetLastError() != cudaSuccess)
        return "cudaGetLastError does not say it once";
    if (cudaMalloc(&third, BYTES) != cudaSuccess)
        return "the third allocation failed";
    cudaFree(first);
    cudaFree(third);
    return cudaGetLastError() == cudaSuccess ? NULL : "there is an error left";
}

static const char *memory_is_short()
{
    float *all, *more;
    size_t available, total;
    if (cudaMalloc(&all, 3 << 20) != cudaSuccess || cudaMalloc(&more, 2 << 20) != cudaErrorMemoryAllocation)
        return "4 MiB do not hold 3 MiB alone";
    cudaMemGetInfo(&available, &total);
    if (total != 4 << 20 || available != 1 << 20)
        return "cudaMemGetInfo says something else";
    cudaFree(all);
    if (cudaMalloc(&more, 2 << 20) != cudaSuccess)
        return "memory that was freed is not there";
    cudaFree(more);
    return NULL;
}

static const char *second_launch_fails()
{
    float *x;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaMalloc(&x, BYTES);
    for (int i = 0; i < 3; i++)
        NN_CUDA_LAUNCH(fault_fill, 1, N, 0, stream, x, (int)N, 1.0f);
    if (cudaStreamSynchronize(stream) != cudaErrorLaunchFailure)
        return "the host does not learn of it when it waits";
    if (cudaMalloc(&x, BYTES) != cudaErrorLaunchFailure || cudaGetLastError() != cudaErrorLaunchFailure ||
        cudaGetLastError() != cudaErrorLaunchFailure)
        return "it does not stay";
    return NULL;
}

static const char *launch_refused()
{
    float *x;
    cudaMalloc(&x, BYTES);
    if (NN_CUDA_LAUNCH(fault_fill, 1, 1025, 0, 0, x, (int)N, 1.0f) != cudaErrorInvalidConfiguration)
        return "1025 threads are a block";
    if (NN_CUDA_LAUNCH(fault_fill, 0, 32, 0, 0, x, (int)N, 1.0f) != cudaErrorInvalidConfiguration)
        return "no blocks are a grid";
    if (NN_CUDA_LAUNCH(fault_fill, 1, 32, 64 * 1024, 0, x, (int)N, 1.0f) != cudaErrorInvalidConfiguration)
        return "64 KiB of shared memory need no attribute";
    if (cudaFuncSetAttribute(fault_fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024) != cudaSuccess ||
        NN_CUDA_LAUNCH(fault_fill, 1, 32, 64 * 1024, 0, x, (int)N, 1.0f) != cudaSuccess)
        return "64 KiB of shared memory are refused with the attribute";
    if (cudaSetDevice(1) != cudaErrorInvalidDevice)
        return "there is a second device";
    cudaDeviceSynchronize();
    cudaFree(x);
    return NULL;
}

static const char *no_devices()
{
    int count = 1;
    if (cudaGetDeviceCount(&count) != cudaErrorInsufficientDriver || count)
        return "there are devices";
    return cudaSetDevice(0) == cudaErrorInvalidDevice && !cudaGetLastError() ? "the error is lost" : NULL;
}

static const char *second_collective_fails()
{
    float *x;
    ncclComm_t comm;
    ncclCommInitAll(&comm, 1, NULL);
    cudaMalloc(&x, BYTES);
    cudaMemset(x, 0, BYTES);
    if (ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, 0) != ncclSuccess ||
        ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, 0) != ncclSystemError)
        return "the second collective does not fail";
    cudaStreamSynchronize(0);
    cudaFree(x);
    ncclCommDestroy(comm);
    return NULL;
}

static __global__ void wait_for_other(volatile int *flag)
{
    if (threadIdx.x == 0)
        while (!*flag)
            ;
}

static const char *thread_waits_forever()
{
    int *flag;
    cudaMalloc(&flag, sizeof *flag);
    cudaMemset(flag, 0, sizeof *flag);
    NN_CUDA_LAUNCH(wait_for_other, 1, 32, 0, 0, flag);
    cudaDeviceSynchronize();
    return NULL;
}

static void reduce_forever(const ncclUniqueId &id, int rank, float *x)
{
    ncclComm_t comm;
    cudaSetDevice(rank);
    ncclCommInitRank(&comm, 2, id, rank);
    cudaMemset(x, 0, BYTES);
    for (int step = 0; step < 3; step++)
        ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, 0);
    cudaStreamSynchronize(0);
    ncclCommDestroy(comm);
}

static const char *rank_leaves()
{
    ncclUniqueId id;
    float *x[2];
    ncclGetUniqueId(&id);
    for (int rank = 0; rank < 2; rank++) {
        cudaSetDevice(rank);
        cudaMalloc(&x[rank], BYTES);
    }
    std::thread other([id, x] { reduce_forever(id, 1, x[1]); });
    reduce_forever(id, 0, x[0]);
    other.join();
    return NULL;
}

// Rank 0's sum keeps its GPU busy until rank 1 comes, which may wait for that GPU.
static const char *rank_allocates_while_awaited()
{
    float *x, *y;
    ncclComm_t comms[2];
    ncclCommInitAll(comms, 2, NULL);
    cudaMalloc(&x, BYTES);
    cudaMemset(x, 0, BYTES);
    ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comms[0], 0);
    cudaSetDevice(1);
    cudaMalloc(&y, BYTES);
    return NULL;
}

// It is no error of the call, and ends when it is aborted.
static const char *second_sum_breaks()
{
    float *x;
    ncclComm_t comm;
    ncclResult_t error;
    ncclCommInitAll(&comm, 1, NULL);
    cudaMalloc(&x, BYTES);
    cudaMemset(x, 0, BYTES);
    ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, 0);
    if (cudaStreamSynchronize(0) != cudaSuccess || ncclCommGetAsyncError(comm, &error) || error != ncclSuccess)
        return "the first one breaks";
    ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, 0);
    if (ncclCommGetAsyncError(comm, &error) || error != ncclRemoteError || cudaStreamQuery(0) != cudaErrorNotReady)
        return "the second one does not break";
    ncclCommAbort(comm);
    if (cudaStreamSynchronize(0) != cudaSuccess)
        return "the stream does not go on";
    cudaFree(x);
    return NULL;
}

// A rank that polls, and gives up.
static const char *rank_leaves_and_is_left()
{
    float *x;
    ncclComm_t comms[2];
    ncclCommInitAll(comms, 2, NULL);
    cudaMalloc(&x, BYTES);
    cudaMemset(x, 0, BYTES);
    ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comms[0], 0);
    for (int i = 0; i < 20000; i++)
        if (cudaStreamQuery(0) != cudaErrorNotReady)
            return "the collective has ended";
    ncclCommAbort(comms[0]);
    if (cudaStreamSynchronize(0) != cudaSuccess)
        return "the stream does not go on";
    cudaFree(x);
    return NULL;
}

// ---- orders --------------------------------------------------------------------------------------------------------

enum { DRAWN = 4 };

static unsigned order_number(const unsigned *order)
{
    unsigned number = 0;
    for (int i = 0; i < DRAWN; i++)
        number = number * DRAWN + order[i];
    return number;
}

static __global__ void take_tickets(unsigned *next, unsigned *order)
{
    order[threadIdx.x] = atomicAdd(next, 1u);
}

unsigned order_of_threads()
{
    unsigned *memory, order[DRAWN];
    cudaMalloc(&memory, (1 + DRAWN) * sizeof(unsigned));
    cudaMemset(memory, 0, sizeof(unsigned));
    NN_CUDA_LAUNCH(take_tickets, 1, DRAWN, 0, 0, memory, memory + 1);
    cudaMemcpy(order, memory + 1, sizeof order, cudaMemcpyDeviceToHost);
    cudaFree(memory);
    return order_number(order);
}

static unsigned streams_run, stream_order[DRAWN];

static void CUDART_CB take_stream_ticket(void *mine)
{
    *(unsigned *)mine = streams_run++;
}

unsigned order_of_streams()
{
    cudaStream_t streams[DRAWN];
    streams_run = 0;
    for (int i = 0; i < DRAWN; i++) {
        cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
        cudaLaunchHostFunc(streams[i], take_stream_ticket, &stream_order[i]);
    }
    cudaDeviceSynchronize();
    for (cudaStream_t stream : streams)
        cudaStreamDestroy(stream);
    return order_number(stream_order);
}

// ---- the table -----------------------------------------------------------------------------------------------------

static struct emu_config config_of(int devices)
{
    struct emu_config config = {};
    config.devices = devices;
    return config;
}

static struct emu_config config_allocation(uint64_t number, size_t memory)
{
    struct emu_config config = config_of(1);
    config.fail_allocation = number;
    config.device_memory = memory;
    return config;
}

static struct emu_config config_launch(uint64_t number)
{
    struct emu_config config = config_of(1);
    config.fail_launch = number;
    return config;
}

static struct emu_config config_absent(int rank, uint64_t from)
{
    struct emu_config config = config_of(2);
    config.absent_rank = rank + 1;
    config.absent_from = from;
    return config;
}

static struct emu_config config_collective(uint64_t number)
{
    struct emu_config config = config_of(1);
    config.fail_collective = number;
    return config;
}

static struct emu_config config_break(uint64_t number)
{
    struct emu_config config = config_of(1);
    config.break_collective = number;
    return config;
}

static struct emu_config config_no_devices(int error)
{
    struct emu_config config = config_of(1);
    config.no_devices = error;
    return config;
}

static struct emu_config config_accesses(uint64_t most)
{
    struct emu_config config = config_of(1);
    config.thread_accesses = most;
    return config;
}

const struct planned_fault planned_faults[] = {
    {"the second allocation finds no memory", config_allocation(2, 0), second_allocation_fails, NULL},
    {"a device's memory is full", config_allocation(0, 4 << 20), memory_is_short, NULL},
    {"the second launch fails when it runs", config_launch(2), second_launch_fails, NULL},
    {"launches that no device takes", config_of(1), launch_refused, NULL},
    {"the driver is too old", config_no_devices(cudaErrorInsufficientDriver), no_devices, NULL},
    {"the second collective fails", config_collective(2), second_collective_fails, NULL},
    {"the second collective breaks when it runs", config_break(2), second_sum_breaks, NULL},
    {"a thread waits for another one by reading memory", config_accesses(1000), thread_waits_forever,
     "for the 1001th time"},
    {"a rank leaves before its second collective", config_absent(1, 2), rank_leaves, "waits for rank 1"},
    {"a rank allocates while another one waits for it", config_of(2), rank_allocates_while_awaited,
     "may wait for ever: ncclAllReduce"},
    {"a rank never comes, and the other one gives up", config_absent(1, 1), rank_leaves_and_is_left, NULL},
    {NULL, {}, NULL, NULL},
};
