// SPDX-License-Identifier: Apache-2.0
//
// Right programs that call cuBLAS, cuDNN and NCCL.
#include "tests/cuda/examples.h"
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cudnn.h>
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

// ---- convolutions --------------------------------------------------------------------------------------------------

// Images of 3 x 3 pixels with 2 channels, windows of 2 x 2 one pixel apart, 3 channels.
enum { SIDE = 3, WINDOW = 2, IN = 2, PLACES = SIDE - WINDOW + 1, OUT = 3 };
enum { IMAGE = SIDE * SIDE * IN, FILTER = OUT * WINDOW * WINDOW * IN, RESULT = PLACES * PLACES * OUT, SPARE = 1024 };
struct convolution {
    cudnnHandle_t handle;
    cudaStream_t stream;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t last, first;  // where a filter's channels lie
    cudnnConvolutionDescriptor_t windows;
    float *x_there, *w_there, *y_there, *spare;
    float one, none;
};

static float image_at(int iy, int ix, int c)
{
    return (float)((iy * SIDE + ix) * IN + c);
}

static float filter_at(int k, int r, int s, int c)
{
    return (float)((k * 5 + r * 3 + s * 2 + c) % 7);
}

// channels_last: (OUT, WINDOW, WINDOW, IN), else (OUT, IN, WINDOW, WINDOW).
static int filter_index(bool channels_last, int k, int r, int s, int c)
{
    return channels_last ? ((k * WINDOW + r) * WINDOW + s) * IN + c : ((k * IN + c) * WINDOW + r) * WINDOW + s;
}

static void convolution_begin(struct convolution *v)
{
    *v = convolution();
    v->one = 1;
    cudaStreamCreate(&v->stream);
    cudnnCreate(&v->handle);
    cudnnSetStream(v->handle, v->stream);
    cudnnCreateTensorDescriptor(&v->x);
    cudnnCreateTensorDescriptor(&v->y);
    cudnnCreateFilterDescriptor(&v->last);
    cudnnCreateFilterDescriptor(&v->first);
    cudnnCreateConvolutionDescriptor(&v->windows);
    cudnnSetTensor4dDescriptor(v->x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, IN, SIDE, SIDE);
    cudnnSetTensor4dDescriptor(v->y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, OUT, PLACES, PLACES);
    cudnnSetFilter4dDescriptor(v->last, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, OUT, IN, WINDOW, WINDOW);
    cudnnSetFilter4dDescriptor(v->first, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, OUT, IN, WINDOW, WINDOW);
    cudnnSetConvolution2dDescriptor(v->windows, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    cudnnSetConvolutionMathType(v->windows, CUDNN_FMA_MATH);
    cudaMalloc(&v->x_there, IMAGE * sizeof(float));
    cudaMalloc(&v->w_there, FILTER * sizeof(float));
    cudaMalloc(&v->y_there, RESULT * sizeof(float));
    cudaMalloc(&v->spare, SPARE);
}

static void convolution_end(struct convolution *v)
{
    cudaStreamSynchronize(v->stream);
    cudnnDestroyTensorDescriptor(v->x);
    cudnnDestroyTensorDescriptor(v->y);
    cudnnDestroyFilterDescriptor(v->last);
    cudnnDestroyFilterDescriptor(v->first);
    cudnnDestroyConvolutionDescriptor(v->windows);
    cudnnDestroy(v->handle);
    cudaStreamDestroy(v->stream);
    cudaFree(v->x_there);
    cudaFree(v->w_there);
    cudaFree(v->y_there);
    cudaFree(v->spare);
}

static void convolution_put(struct convolution *v, bool channels_last)
{
    float x[IMAGE], w[FILTER];
    for (int i = 0; i < IMAGE; i++)
        x[i] = image_at(i / IN / SIDE, i / IN % SIDE, i % IN);
    for (int i = 0; i < FILTER; i++) {
        const int k = i / (WINDOW * WINDOW * IN), r = i / (WINDOW * IN) % WINDOW, s = i / IN % WINDOW, c = i % IN;
        w[filter_index(channels_last, k, r, s, c)] = filter_at(k, r, s, c);
    }
    cudaMemcpyAsync(v->x_there, x, sizeof x, cudaMemcpyHostToDevice, v->stream);
    cudaMemcpyAsync(v->w_there, w, sizeof w, cudaMemcpyHostToDevice, v->stream);
}

static float convolution_wanted(int oy, int ox, int k)
{
    float sum = 0;
    for (int r = 0; r < WINDOW; r++)
        for (int s = 0; s < WINDOW; s++)
            for (int c = 0; c < IN; c++)
                sum += image_at(oy + r, ox + s, c) * filter_at(k, r, s, c);
    return sum;
}

static bool convolution_forward(struct convolution *v, bool channels_last)
{
    float y[RESULT];
    convolution_put(v, channels_last);
    if (cudnnConvolutionForward(v->handle, &v->one, v->x, v->x_there, channels_last ? v->last : v->first, v->w_there,
                                v->windows, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, v->spare, SPARE, &v->none,
                                v->y, v->y_there) != CUDNN_STATUS_SUCCESS)
        return false;
    cudaMemcpyAsync(y, v->y_there, sizeof y, cudaMemcpyDeviceToHost, v->stream);
    cudaStreamSynchronize(v->stream);
    for (int i = 0; i < RESULT; i++)
        if (y[i] != convolution_wanted(i / OUT / PLACES, i / OUT % PLACES, i % OUT))
            return false;
    return true;
}

// The gradients of the sum of y: what a pixel is multiplied with, and what a cell of the filter is.
static bool convolution_backward(struct convolution *v)
{
    float x[IMAGE], w[FILTER], dy[RESULT];
    convolution_put(v, true);
    for (int i = 0; i < RESULT; i++)
        dy[i] = 1;
    cudaMemcpyAsync(v->y_there, dy, sizeof dy, cudaMemcpyHostToDevice, v->stream);
    cudnnConvolutionBackwardData(v->handle, &v->one, v->last, v->w_there, v->y, v->y_there, v->windows,
                                 CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, v->spare, SPARE, &v->none, v->x, v->x_there);
    cudaMemcpyAsync(x, v->x_there, sizeof x, cudaMemcpyDeviceToHost, v->stream);
    convolution_put(v, true);
    cudnnConvolutionBackwardFilter(v->handle, &v->one, v->x, v->x_there, v->y, v->y_there, v->windows,
                                   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, v->spare, SPARE, &v->none, v->last, v->w_there);
    cudaMemcpyAsync(w, v->w_there, sizeof w, cudaMemcpyDeviceToHost, v->stream);
    cudaStreamSynchronize(v->stream);
    float corner = 0;
    for (int k = 0; k < OUT; k++)
        corner += filter_at(k, 0, 0, 1);
    for (int k = 0; k < OUT; k++)
        if (w[filter_index(true, k, 1, 0, 1)] !=
            image_at(1, 0, 1) + image_at(1, 1, 1) + image_at(2, 0, 1) + image_at(2, 1, 1))
            return false;
    return x[1] == corner;
}

// What cuDNN refuses.
static bool convolution_refused(struct convolution *v)
{
    size_t bytes;
    const cudnnStatus_t no_such = cudnnGetConvolutionForwardWorkspaceSize(
        v->handle, v->x, v->last, v->windows, v->y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, &bytes);
    const cudnnStatus_t wrong_size = cudnnGetConvolutionForwardWorkspaceSize(
        v->handle, v->y, v->last, v->windows, v->x, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, &bytes);
    const cudnnStatus_t no_room = cudnnConvolutionForward(v->handle, &v->one, v->x, v->x_there, v->last, v->w_there,
                                                          v->windows, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                                          v->spare, 8, &v->none, v->y, v->y_there);
    return no_such == CUDNN_STATUS_NOT_SUPPORTED && wrong_size == CUDNN_STATUS_BAD_PARAM &&
           no_room == CUDNN_STATUS_BAD_PARAM;
}

bool run_convolutions()
{
    struct convolution v;
    convolution_begin(&v);
    bool right = convolution_forward(&v, true) && convolution_forward(&v, false) && convolution_backward(&v) &&
                 convolution_refused(&v);
    convolution_end(&v);
    return right && emu_counted().live_cudnn == 0;
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
