// SPDX-License-Identifier: Apache-2.0
//
// Right programs: their results are right, and nothing is found in them, in whatever order they run. nvcc compiles
// them, too.
#include "tests/cuda/examples.h"
#include "tests/cuda/host_code.h"
#include "workerd/nn/cuda/launch.h"
#include <condition_variable>
#include <cuda_bf16.h>
#include <mutex>
#include <nccl.h>
#include <thread>
#include <vector>

static bool ok(cudaError_t error)
{
    return error == cudaSuccess;
}

// ---- a sum: shuffles, then shared memory ---------------------------------------------------------------------------

static __device__ float warp_sum(float x)
{
    for (int by = 16; by > 0; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

static __global__ void __launch_bounds__(256) block_sums(const float *x, int n, float *sums)
{
    __shared__ float warps[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = warp_sum(i < n ? __ldg(&x[i]) : 0.0f);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++)
            sum += warps[w];
        sums[blockIdx.x] = sum;
    }
}

static bool run_sum()
{
    enum { N = 1000, BLOCKS = 4 };
    std::vector<float> x(N), sums(BLOCKS);
    float *on_device, *sums_on_device, wanted = 0, got = 0;
    for (int i = 0; i < N; i++)
        wanted += x[i] = (float)(i % 17);
    cudaMalloc(&on_device, N * sizeof(float));
    cudaMalloc(&sums_on_device, BLOCKS * sizeof(float));
    cudaMemcpy(on_device, x.data(), N * sizeof(float), cudaMemcpyHostToDevice);
    NN_CUDA_LAUNCH(block_sums, BLOCKS, 256, 0, 0, on_device, N, sums_on_device);
    cudaMemcpy(sums.data(), sums_on_device, BLOCKS * sizeof(float), cudaMemcpyDeviceToHost);
    for (float sum : sums)
        got += sum;
    cudaFree(on_device);
    cudaFree(sums_on_device);
    return got == wanted && ok(cudaGetLastError());
}

// ---- a transposition: shared memory of a size that the launch gives, vectors of four -------------------------------

template <int TILE, class T> static __global__ void transpose(const T *from, T *to, int rows, int columns)
{
    NN_CUDA_SHARED(T, tile);
    int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    if (row < rows && column < columns)
        tile[threadIdx.y * (TILE + 1) + threadIdx.x] = from[row * columns + column];
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    if (row < columns && column < rows)
        to[row * rows + column] = tile[threadIdx.x * (TILE + 1) + threadIdx.y];
}

static __global__ void scale4(float4 *x, int n, float by)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = x[i];
        x[i] = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    }
}

static bool run_transpose()
{
    enum { ROWS = 20, COLUMNS = 12, TILE = 8, N = ROWS * COLUMNS };
    std::vector<float> x(N), y(N);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    float *from, *to;
    cudaMalloc(&from, N * sizeof(float));
    cudaMalloc(&to, N * sizeof(float));
    cudaMemcpy(from, x.data(), N * sizeof(float), cudaMemcpyHostToDevice);
    NN_CUDA_LAUNCH((transpose<TILE, float>), dim3((COLUMNS + TILE - 1) / TILE, (ROWS + TILE - 1) / TILE),
                   dim3(TILE, TILE), TILE * (TILE + 1) * sizeof(float), 0, from, to, ROWS, COLUMNS);
    NN_CUDA_LAUNCH(scale4, 2, 32, 0, 0, reinterpret_cast<float4 *>(to), N / 4, 2.0f);
    cudaMemcpy(y.data(), to, N * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(from);
    cudaFree(to);
    for (int i = 0; i < N; i++)
        if (y[i] != 2 * x[i % ROWS * COLUMNS + i / ROWS])
            return false;
    return ok(cudaGetLastError());
}

// ---- bf16: two bytes each, by neighbouring threads -----------------------------------------------------------------

static __global__ void halve(const float *x, __nv_bfloat16 *half, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        half[i] = __float2bfloat16(0.5f * x[i]);
}

static __global__ void widen(const __nv_bfloat16 *half, float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = __bfloat162float(half[i]);
}

static bool run_bf16()
{
    enum { N = 37 };
    float host[N], *x;
    __nv_bfloat16 *half;
    for (int i = 0; i < N; i++)
        host[i] = (float)i;
    cudaMalloc(&x, sizeof host);
    cudaMalloc(&half, N * sizeof *half);
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    NN_CUDA_LAUNCH(halve, 2, 32, 0, 0, x, half, (int)N);
    NN_CUDA_LAUNCH(widen, 2, 32, 0, 0, half, x, (int)N);
    cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
    cudaFree(x);
    cudaFree(half);
    for (int i = 0; i < N; i++)
        if (host[i] != 0.5f * (float)i)
            return false;
    return true;
}

// ---- counts: integer atomics, votes, barriers of a warp ------------------------------------------------------------

static __global__ void count_kinds(const unsigned char *kinds, int n, unsigned *counts, unsigned *odd_warps)
{
    __shared__ unsigned mine[4];
    __shared__ unsigned char last[2][32];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < 4)
        mine[threadIdx.x] = 0;
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char kind = i < (unsigned)n ? kinds[i] : 0;
    if (i < (unsigned)n)
        atomicAdd(&mine[kind], 1u);
    // Each lane looks at its neighbour's through memory of the warp.
    last[warp][lane] = kind;
    __syncwarp();
    bool same = last[warp][(lane + 1) % 32] == kind;
    if (__any_sync(0xffffffffu, same) && lane == 0)
        atomicMax(odd_warps, 1u);
    __syncthreads();
    if (threadIdx.x < 4)
        atomicAdd(&counts[threadIdx.x], mine[threadIdx.x]);
}

static bool run_counts()
{
    enum { N = 150 };
    std::vector<unsigned char> kinds(N);
    unsigned wanted[4] = {}, got[5];
    for (int i = 0; i < N; i++)
        wanted[kinds[i] = (unsigned char)(i / 2 % 4)]++;
    unsigned char *kinds_on_device;
    unsigned *counts;
    cudaMalloc(&kinds_on_device, N);
    cudaMalloc(&counts, sizeof got);
    cudaMemset(counts, 0, sizeof got);
    cudaMemcpy(kinds_on_device, kinds.data(), N, cudaMemcpyHostToDevice);
    NN_CUDA_LAUNCH(count_kinds, 3, 64, 0, 0, kinds_on_device, N, counts, counts + 4);
    cudaMemcpy(got, counts, sizeof got, cudaMemcpyDeviceToHost);
    cudaFree(counts);
    cudaFree(kinds_on_device);
    for (int i = 0; i < 4; i++)
        if (got[i] != wanted[i])
            return false;
    return got[4] == 1;
}

// ---- a pipeline: copies in, work and copies out on three streams, two buffers, pinned memory -----------------------

static __global__ void square(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] * x[i];
}

static bool run_pipeline()
{
    enum { CHUNK = 70, CHUNKS = 6 };
    cudaStream_t in, work, out;
    cudaEvent_t filled[2], done[2], emptied[2];
    float *x, *y, *host_x, *host_y;
    cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking);
    cudaMalloc(&x, 2 * CHUNK * sizeof(float));
    cudaMalloc(&y, 2 * CHUNK * sizeof(float));
    cudaHostAlloc((void **)&host_x, CHUNKS * CHUNK * sizeof(float), cudaHostAllocDefault);
    cudaHostAlloc((void **)&host_y, CHUNKS * CHUNK * sizeof(float), cudaHostAllocDefault);
    for (int i = 0; i < 2; i++) {
        cudaEventCreateWithFlags(&filled[i], cudaEventDisableTiming);
        cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming);
        cudaEventCreateWithFlags(&emptied[i], cudaEventDisableTiming);
    }
    for (int i = 0; i < CHUNKS * CHUNK; i++)
        host_x[i] = (float)i;
    for (int c = 0; c < CHUNKS; c++) {
        int b = c % 2;
        float *x_now = x + b * CHUNK, *y_now = y + b * CHUNK;
        cudaStreamWaitEvent(in, done[b], 0);
        cudaMemcpyAsync(x_now, host_x + c * CHUNK, CHUNK * sizeof(float), cudaMemcpyHostToDevice, in);
        cudaEventRecord(filled[b], in);
        cudaStreamWaitEvent(work, filled[b], 0);
        cudaStreamWaitEvent(work, emptied[b], 0);
        NN_CUDA_LAUNCH(square, (CHUNK + 31) / 32, 32, 0, work, x_now, y_now, CHUNK);
        cudaEventRecord(done[b], work);
        cudaStreamWaitEvent(out, done[b], 0);
        cudaMemcpyAsync(host_y + c * CHUNK, y_now, CHUNK * sizeof(float), cudaMemcpyDeviceToHost, out);
        cudaEventRecord(emptied[b], out);
    }
    cudaStreamSynchronize(out);
    bool right = true;
    for (int i = 0; i < CHUNKS * CHUNK; i++)
        right = right && host_y[i] == (float)i * (float)i;
    cudaDeviceSynchronize();
    cudaFree(x);
    cudaFree(y);
    cudaFreeHost(host_x);
    cudaFreeHost(host_y);
    for (int i = 0; i < 2; i++) {
        cudaEventDestroy(filled[i]);
        cudaEventDestroy(done[i]);
        cudaEventDestroy(emptied[i]);
    }
    cudaStreamDestroy(in);
    cudaStreamDestroy(work);
    cudaStreamDestroy(out);
    return right && ok(cudaGetLastError());
}

// ---- a graph of two branches, replayed -----------------------------------------------------------------------------

static __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

static __global__ void grow(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] += 1.0f;
}

// One branch grows a, the other one b, then c is their sum.
static cudaGraphExec_t capture_step(cudaStream_t one, cudaStream_t two, float *a, float *b, float *c, int n)
{
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(fork, one);
    cudaStreamWaitEvent(two, fork, 0);
    NN_CUDA_LAUNCH(grow, 2, 32, 0, one, a, n);
    NN_CUDA_LAUNCH(grow, 2, 32, 0, two, b, n);
    cudaEventRecord(join, two);
    cudaStreamWaitEvent(one, join, 0);
    NN_CUDA_LAUNCH(add, 2, 32, 0, one, a, b, c, n);
    if (ok(cudaStreamEndCapture(one, &graph))) {
        cudaGraphInstantiate(&exec, graph, 0);
        cudaGraphDestroy(graph);
    }
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    return exec;
}

static bool run_graph()
{
    enum { N = 50, STEPS = 3 };
    cudaStream_t one, two;
    cudaEvent_t begun;
    float *all, host[N];
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
    cudaMalloc(&all, 3 * N * sizeof(float));
    cudaMemsetAsync(all, 0, 2 * N * sizeof(float), one);
    cudaEventCreateWithFlags(&begun, cudaEventDisableTiming);
    cudaGraphExec_t exec = capture_step(one, two, all, all + N, all + 2 * N, N);
    if (!exec)
        return false;
    // Launches of one graph are ordered, on whichever streams they are.
    cudaEventRecord(begun, one);
    cudaStreamWaitEvent(two, begun, 0);
    for (int i = 0; i < STEPS; i++)
        cudaGraphLaunch(exec, i % 2 ? two : one);
    cudaMemcpyAsync(host, all + 2 * N, sizeof host, cudaMemcpyDeviceToHost, one);
    cudaStreamSynchronize(one);
    bool right = true;
    for (float x : host)
        right = right && x == 2.0f * STEPS;
    cudaGraphExecDestroy(exec);
    cudaEventDestroy(begun);
    cudaFree(all);
    cudaStreamDestroy(one);
    cudaStreamDestroy(two);
    return right && ok(cudaGetLastError());
}

// ---- all-reduce: a thread per GPU, or one for all ------------------------------------------------------------------

static __global__ void fill(float *x, int n, float value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = value + (float)i;
}

enum { REDUCED = 40 };

struct rank_state {
    float *x;
    cudaStream_t stream;
    ncclComm_t comm;
};

static void rank_begin(struct rank_state *r, int rank)
{
    cudaSetDevice(rank);
    cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking);
    cudaMalloc(&r->x, REDUCED * sizeof(float));
    NN_CUDA_LAUNCH(fill, 2, 32, 0, r->stream, r->x, (int)REDUCED, (float)rank);
}

static bool rank_end(struct rank_state *r, int rank, int ranks)
{
    float host[REDUCED];
    bool right = true;
    cudaSetDevice(rank);
    cudaMemcpyAsync(host, r->x, sizeof host, cudaMemcpyDeviceToHost, r->stream);
    cudaStreamSynchronize(r->stream);
    for (int i = 0; i < REDUCED; i++)
        right = right && host[i] == (float)(ranks * i + ranks * (ranks - 1) / 2);
    cudaFree(r->x);
    cudaStreamDestroy(r->stream);
    ncclCommDestroy(r->comm);
    return right;
}

static bool reduce_by_threads(int ranks)
{
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    std::vector<std::thread> threads;
    std::vector<rank_state> states(ranks);
    std::vector<char> right(ranks);
    for (int rank = 0; rank < ranks; rank++)
        rank_begin(&states[rank], rank);
    for (int rank = 0; rank < ranks; rank++)
        threads.emplace_back([&states, &right, id, rank, ranks] {
            struct rank_state *r = &states[rank];
            cudaSetDevice(rank);
            ncclCommInitRank(&r->comm, ranks, id, rank);
            ncclAllReduce(r->x, r->x, REDUCED, ncclFloat32, ncclSum, r->comm, r->stream);
            right[rank] = rank_end(r, rank, ranks);
        });
    for (std::thread &thread : threads)
        thread.join();
    for (char one : right)
        if (!one)
            return false;
    return true;
}

static bool run_reduce_2()
{
    return reduce_by_threads(2);
}

static bool run_reduce_4()
{
    return reduce_by_threads(4);
}

static bool run_reduce_grouped()
{
    struct rank_state r[2];
    ncclComm_t comms[2];
    bool right = true;
    ncclCommInitAll(comms, 2, NULL);
    for (int rank = 0; rank < 2; rank++) {
        rank_begin(&r[rank], rank);
        r[rank].comm = comms[rank];
    }
    ncclGroupStart();
    for (int rank = 0; rank < 2; rank++)
        ncclAllReduce(r[rank].x, r[rank].x, REDUCED, ncclFloat32, ncclSum, r[rank].comm, r[rank].stream);
    ncclGroupEnd();
    for (int rank = 0; rank < 2; rank++)
        right = rank_end(&r[rank], rank, 2) && right;
    cudaSetDevice(0);
    return right;
}

// ---- memory from the stream, a copy to another device --------------------------------------------------------------

static bool run_peers()
{
    enum { N = 20 };
    float *there, *here, host[N];
    cudaStream_t first, second;
    cudaEvent_t written;
    cudaSetDevice(1);
    cudaStreamCreate(&second);
    cudaMalloc(&there, N * sizeof(float));
    cudaSetDevice(0);
    cudaStreamCreate(&first);
    cudaEventCreate(&written);
    cudaMallocAsync((void **)&here, N * sizeof(float), first);
    NN_CUDA_LAUNCH(fill, 1, 32, 0, first, here, (int)N, 1.0f);
    cudaEventRecord(written, first);
    cudaSetDevice(1);
    cudaStreamWaitEvent(second, written, 0);
    cudaMemcpyPeerAsync(there, 1, here, 0, N * sizeof(float), second);
    cudaMemcpyAsync(host, there, sizeof host, cudaMemcpyDeviceToHost, second);
    cudaStreamSynchronize(second);
    cudaFree(there);
    cudaStreamDestroy(second);
    cudaSetDevice(0);
    cudaFreeAsync(here, first);
    cudaStreamSynchronize(first);
    cudaStreamDestroy(first);
    cudaEventDestroy(written);
    for (int i = 0; i < N; i++)
        if (host[i] != 1.0f + (float)i)
            return false;
    return true;
}

// ---- the host as one of a stream's workers -------------------------------------------------------------------------

struct host_work {
    const float *x;
    float sum;
};

static void CUDART_CB sum_on_host(void *argument)
{
    struct host_work *work = (struct host_work *)argument;
    work->sum = work->x[0] + work->x[1];
}

static bool run_host_function()
{
    float *x, *host;
    struct host_work work;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaMalloc(&x, 2 * sizeof(float));
    cudaHostAlloc((void **)&host, 2 * sizeof(float), cudaHostAllocDefault);
    NN_CUDA_LAUNCH(fill, 1, 2, 0, stream, x, 2, 3.0f);
    cudaMemcpyAsync(host, x, 2 * sizeof(float), cudaMemcpyDeviceToHost, stream);
    work.x = host;
    cudaLaunchHostFunc(stream, sum_on_host, &work);
    while (cudaStreamQuery(stream) == cudaErrorNotReady)
        ;
    cudaFree(x);
    cudaFreeHost(host);
    cudaStreamDestroy(stream);
    return work.sum == 7.0f;
}

// ---- a result that one thread waits for and another one uses -------------------------------------------------------

static bool run_hand_over()
{
    enum { N = 20 };
    float *x, host[N];
    bool there = false, right = true;
    std::mutex mutex;
    std::condition_variable changed;
    cudaMalloc(&x, N * sizeof(float));
    std::thread worker([&] {
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        NN_CUDA_LAUNCH(fill, 1, 32, 0, stream, x, (int)N, 5.0f);
        cudaStreamSynchronize(stream);
        cudaStreamDestroy(stream);
        std::lock_guard<std::mutex> held(mutex);
        there = true;
        changed.notify_one();
    });
    {
        std::unique_lock<std::mutex> held(mutex);
        changed.wait(held, [&] { return there; });
    }
    cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
    worker.join();
    cudaFree(x);
    for (int i = 0; i < N; i++)
        right = right && host[i] == 5.0f + (float)i;
    return right;
}

// ---- the default stream, and rows of a matrix ----------------------------------------------------------------------

// Ordered by the default stream alone, which waits for streams that block with it, and they for it.
static bool run_default_stream()
{
    enum { ROWS = 4, COLUMNS = 6, PITCH = 8, N = ROWS * PITCH };
    float *x, host[ROWS * COLUMNS], rows[ROWS / 2 * COLUMNS];
    cudaStream_t stream;
    bool right = true;
    cudaStreamCreate(&stream);
    cudaMalloc(&x, N * sizeof(float));
    cudaMemset(x, 0, N * sizeof(float));
    NN_CUDA_LAUNCH(fill, 1, 32, 0, stream, x, (int)N, 0.0f);
    NN_CUDA_LAUNCH(grow, 1, 32, 0, 0, x, (int)N);
    NN_CUDA_LAUNCH(grow, 1, 32, 0, stream, x, (int)N);
    cudaMemcpy2DAsync(host, COLUMNS * sizeof(float), x, PITCH * sizeof(float), COLUMNS * sizeof(float), ROWS,
                      cudaMemcpyDeviceToHost, 0);
    cudaStreamSynchronize(0);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        right = right && host[i] == (float)(i / COLUMNS * PITCH + i % COLUMNS + 2);
    // And back, each second row of the host's.
    cudaMemcpy2DAsync(x, COLUMNS * sizeof(float), host, 2 * COLUMNS * sizeof(float), COLUMNS * sizeof(float), ROWS / 2,
                      cudaMemcpyHostToDevice, 0);
    cudaMemcpy(rows, x, sizeof rows, cudaMemcpyDeviceToHost);
    for (int i = 0; i < ROWS / 2 * COLUMNS; i++)
        right = right && rows[i] == host[i / COLUMNS * 2 * COLUMNS + i % COLUMNS];
    cudaFree(x);
    cudaStreamDestroy(stream);
    return right;
}

// What a thread has waited for is there for who joins it.
static bool run_join()
{
    float *x, host[2];
    cudaMalloc(&x, sizeof host);
    std::thread worker([x] {
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        NN_CUDA_LAUNCH(fill, 1, 32, 0, stream, x, 2, 5.0f);
        cudaStreamSynchronize(stream);
        cudaStreamDestroy(stream);
    });
    worker.join();
    cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
    cudaFree(x);
    return host[0] == 5.0f && host[1] == 6.0f;
}

const struct right_example right_examples[] = {
    {"a sum by shuffles and shared memory", 1, run_sum},
    {"a transposition through dynamic shared memory", 1, run_transpose},
    {"bf16", 1, run_bf16},
    {"counts by integer atomics, votes, a warp's barrier", 1, run_counts},
    {"a pipeline of three streams with events", 1, run_pipeline},
    {"a graph of two branches, replayed", 1, run_graph},
    {"an all-reduce of 2 GPUs, a thread each", 2, run_reduce_2},
    {"an all-reduce of 4 GPUs, a thread each", 4, run_reduce_4},
    {"an all-reduce of 2 GPUs in one thread's group", 2, run_reduce_grouped},
    {"products by cuBLAS", 1, run_products},
    {"convolutions by cuDNN", 1, run_convolutions},
    {"every collective", 2, run_collectives},
    {"memory from a stream, copied to another GPU", 2, run_peers},
    {"a host function in a stream", 1, run_host_function},
    {"a result handed from thread to thread", 1, run_hand_over},
    {"a result of a thread that was joined", 1, run_join},
    {"the default stream, rows of a matrix", 1, run_default_stream},
    {"host code in C", 1, host_code_copies},
    {0, 0, 0},
};
