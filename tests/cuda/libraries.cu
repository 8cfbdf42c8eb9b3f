// SPDX-License-Identifier: Apache-2.0
//
// Right programs that call cuBLAS and NCCL.
#include "tests/cuda/examples.h"
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <nccl.h>
#include <stdint.h>
#include <string.h>
#include <vector>

// ---- products ------------------------------------------------------------------------------------------------------

// Matrices by columns on the device, in one allocation.
enum { M = 5, N = 7, K = 4, BATCH = 2 };
struct products {
    cublasHandle_t handle;
    cudaStream_t stream;
    float a[BATCH * M * K], b[BATCH * K * N], c[BATCH * M * N];
    float *a_there, *b_there, *c_there;
};

// A is kept transposed: element (i, k) lies at i * K + k.
static float product_wanted(const struct products *p, int batch, int i, int j)
{
    float sum = 0;
    for (int k = 0; k < K; k++)
        sum += p->a[batch * M * K + i * K + k] * p->b[batch * K * N + j * K + k];
    return sum;
}

static void products_begin(struct products *p)
{
    for (int i = 0; i < BATCH * M * K; i++)
        p->a[i] = (float)i;
    for (int i = 0; i < BATCH * K * N; i++)
        p->b[i] = (float)(i % 5);
    cudaStreamCreate(&p->stream);
    cublasCreate(&p->handle);
    cublasSetStream(p->handle, p->stream);
    cudaMalloc(&p->a_there, sizeof p->a);
    cudaMalloc(&p->b_there, sizeof p->b);
    cudaMalloc(&p->c_there, sizeof p->c);
    cudaMemcpyAsync(p->a_there, p->a, sizeof p->a, cudaMemcpyHostToDevice, p->stream);
    cudaMemcpyAsync(p->b_there, p->b, sizeof p->b, cudaMemcpyHostToDevice, p->stream);
}

static void products_end(struct products *p)
{
    cudaStreamSynchronize(p->stream);
    cublasDestroy(p->handle);
    cudaStreamDestroy(p->stream);
    cudaFree(p->a_there);
    cudaFree(p->b_there);
    cudaFree(p->c_there);
}

// C = 2 A B of each of a batch.
static bool products_of_batch(struct products *p)
{
    const float two = 2, none = 0;
    cublasSgemmStridedBatched(p->handle, CUBLAS_OP_T, CUBLAS_OP_N, M, N, K, &two, p->a_there, K, M * K, p->b_there, K,
                              K * N, &none, p->c_there, M, M * N, BATCH);
    cudaMemcpyAsync(p->c, p->c_there, sizeof p->c, cudaMemcpyDeviceToHost, p->stream);
    cudaStreamSynchronize(p->stream);
    for (int batch = 0; batch < BATCH; batch++)
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++)
                if (p->c[batch * M * N + j * M + i] != 2 * product_wanted(p, batch, i, j))
                    return false;
    return true;
}

// The first C again: C = A B - C.
static bool products_added(struct products *p)
{
    const float one = 1, less = -1;
    cublasSgemm(p->handle, CUBLAS_OP_T, CUBLAS_OP_N, M, N, K, &one, p->a_there, K, p->b_there, K, &less, p->c_there, M);
    cudaMemcpyAsync(p->c, p->c_there, sizeof p->c, cudaMemcpyDeviceToHost, p->stream);
    cudaStreamSynchronize(p->stream);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            if (p->c[j * M + i] != -product_wanted(p, 0, i, j))
                return false;
    return true;
}

// y = A x with the first column of B, into every second element.
static bool product_with_vector(struct products *p)
{
    const float one = 1, none = 0;
    cublasSgemv(p->handle, CUBLAS_OP_T, K, M, &one, p->a_there, K, p->b_there, 1, &none, p->c_there, 2);
    cudaMemcpyAsync(p->c, p->c_there, sizeof p->c, cudaMemcpyDeviceToHost, p->stream);
    cudaStreamSynchronize(p->stream);
    for (int i = 0; i < M; i++)
        if (p->c[2 * i] != product_wanted(p, 0, i, 0))
            return false;
    return true;
}

// C = A B of matrices of bf16, which hold these numbers exactly, in the memory of the others.
static bool products_of_bf16(struct products *p)
{
    const float one = 1, none = 0;
    __nv_bfloat16 a[M * K], b[K * N];
    for (int i = 0; i < M * K; i++)
        a[i] = __float2bfloat16(p->a[i]);
    for (int i = 0; i < K * N; i++)
        b[i] = __float2bfloat16(p->b[i]);
    cudaMemcpyAsync(p->a_there, a, sizeof a, cudaMemcpyHostToDevice, p->stream);
    cudaMemcpyAsync(p->b_there, b, sizeof b, cudaMemcpyHostToDevice, p->stream);
    cublasGemmEx(p->handle, CUBLAS_OP_T, CUBLAS_OP_N, M, N, K, &one, p->a_there, CUDA_R_16BF, K, p->b_there,
                 CUDA_R_16BF, K, &none, p->c_there, CUDA_R_32F, M, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    cudaMemcpyAsync(p->c, p->c_there, sizeof p->c, cudaMemcpyDeviceToHost, p->stream);
    cudaStreamSynchronize(p->stream);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            if (p->c[j * M + i] != product_wanted(p, 0, i, j))
                return false;
    return true;
}

bool run_products()
{
    struct products p;
    products_begin(&p);
    bool right = products_of_batch(&p) && products_added(&p) && product_with_vector(&p) && products_of_bf16(&p);
    products_end(&p);
    return right;
}

// ---- collectives ---------------------------------------------------------------------------------------------------

enum { RANKS = 2, COUNT = 3 };

struct collectives {
    ncclComm_t comms[RANKS];
    cudaStream_t streams[RANKS];
    float *in[RANKS], *out[RANKS];  // RANKS * COUNT elements
};

static void collectives_begin(struct collectives *c)
{
    ncclCommInitAll(c->comms, RANKS, NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        float host[RANKS * COUNT];
        for (int i = 0; i < RANKS * COUNT; i++)
            host[i] = (float)(10 * rank + i);
        cudaSetDevice(rank);
        cudaStreamCreate(&c->streams[rank]);
        cudaMalloc(&c->in[rank], sizeof host);
        cudaMalloc(&c->out[rank], sizeof host);
        cudaMemcpyAsync(c->in[rank], host, sizeof host, cudaMemcpyHostToDevice, c->streams[rank]);
        cudaMemsetAsync(c->out[rank], 0, sizeof host, c->streams[rank]);
    }
}

static void collectives_end(struct collectives *c)
{
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        cudaStreamSynchronize(c->streams[rank]);
        cudaFree(c->in[rank]);
        cudaFree(c->out[rank]);
        cudaStreamDestroy(c->streams[rank]);
        ncclCommDestroy(c->comms[rank]);
    }
    cudaSetDevice(0);
}

// Calls call(rank) for each in one group; then wanted(rank, i) is what lies in out.
template <class F, class W> static bool collective_gives(struct collectives *c, int count, F call, W wanted)
{
    bool right = true;
    ncclGroupStart();
    for (int rank = 0; rank < RANKS; rank++)
        call(rank);
    ncclGroupEnd();
    for (int rank = 0; rank < RANKS; rank++) {
        float host[RANKS * COUNT];
        cudaSetDevice(rank);
        cudaMemcpyAsync(host, c->out[rank], sizeof host, cudaMemcpyDeviceToHost, c->streams[rank]);
        cudaStreamSynchronize(c->streams[rank]);
        for (int i = 0; i < count; i++)
            right = right && host[i] == (float)wanted(rank, i);
    }
    return right;
}

static bool collectives_of_sums(struct collectives *c)
{
    return collective_gives(
               c, COUNT,
               [c](int r) {
                   ncclAllReduce(c->in[r], c->out[r], COUNT, ncclFloat32, ncclSum, c->comms[r], c->streams[r]);
               },
               [](int, int i) { return 10 + 2 * i; }) &&
           collective_gives(
               c, COUNT,
               [c](int r) {
                   ncclAllReduce(c->in[r], c->out[r], COUNT, ncclFloat32, ncclAvg, c->comms[r], c->streams[r]);
               },
               [](int, int i) { return 5 + i; }) &&
           collective_gives(
               c, COUNT,
               [c](int r) {
                   ncclReduceScatter(c->in[r], c->out[r], COUNT, ncclFloat32, ncclSum, c->comms[r], c->streams[r]);
               },
               [](int r, int i) { return 10 + 2 * (r * COUNT + i); }) &&
           collective_gives(
               c, COUNT,
               [c](int r) {
                   ncclReduce(c->in[r], c->out[r], COUNT, ncclFloat32, ncclMax, 1, c->comms[r], c->streams[r]);
               },
               [](int r, int i) { return r == 1 ? 10 + i : 10 + 2 * i; });
}

static bool collectives_of_copies(struct collectives *c)
{
    return collective_gives(
               c, RANKS * COUNT,
               [c](int r) { ncclAllGather(c->in[r], c->out[r], COUNT, ncclFloat32, c->comms[r], c->streams[r]); },
               [](int, int i) { return 10 * (i / COUNT) + i % COUNT; }) &&
           collective_gives(
               c, COUNT,
               [c](int r) { ncclBroadcast(c->in[r], c->out[r], COUNT, ncclFloat32, 1, c->comms[r], c->streams[r]); },
               [](int, int i) { return 10 + i; });
}

// bf16 is the upper half of a float: here 1.5 and 3, and twice that.
static bool collective_of_bf16(struct collectives *c)
{
    uint16_t halves[2] = {0x3fc0, 0x4040}, wanted[2] = {0x4040, 0x40c0}, got[2];
    bool right = true;
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        cudaMemcpyAsync(c->in[rank], halves, sizeof halves, cudaMemcpyHostToDevice, c->streams[rank]);
    }
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++)
        ncclAllReduce(c->in[r], c->in[r], 2, ncclBfloat16, ncclSum, c->comms[r], c->streams[r]);
    ncclGroupEnd();
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        cudaMemcpyAsync(got, c->in[rank], sizeof got, cudaMemcpyDeviceToHost, c->streams[rank]);
        cudaStreamSynchronize(c->streams[rank]);
        right = right && memcmp(got, wanted, sizeof got) == 0;
    }
    return right;
}

bool run_collectives()
{
    struct collectives c;
    collectives_begin(&c);
    bool right = collectives_of_sums(&c) && collectives_of_copies(&c) && collective_of_bf16(&c);
    collectives_end(&c);
    return right;
}
