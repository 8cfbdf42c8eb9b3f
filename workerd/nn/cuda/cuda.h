// SPDX-License-Identifier: Apache-2.0
//
// The GPU's kernels: cuBLAS for the matrix products, own kernels for what lies between. One .cu file per operator or
// family, named as in workerd/nn/cpu, with its kernels and their nn_kernel; device.c holds the table, error.c keeps
// the first error, memory.c copies.
//
// A nn_kernel's run queues work on the context's stream and waits for nothing. Its plan, which is made when the program
// is, gets what memory it needs (nn_cuda_reserve). Launches go through NN_CUDA_RUN, which keeps the first error.
//
// Deterministic: one stream computes, sums have a fixed order, no float is added atomically. Products are of
// float32, unless matmul_precision says otherwise.
#ifndef NN_CUDA_CUDA_H
#define NN_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The operators' headers are C, in which `class` is a name like others.
#ifdef __cplusplus
#define class class_
#define _Alignas alignas
extern "C" {
#endif
#include "workerd/nn/device.h"
#ifdef __cplusplus
}
#undef class
#undef _Alignas
#endif

#include <cublas_v2.h>
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct nn_context {
    int index;
    char name[80];        // "gpu:0 (NVIDIA H100 80GB HBM3)"
    cudaStream_t stream;  // kernels, copies to the device
    cudaStream_t copies;  // copies from the device
    cublasHandle_t blas;
    cublasComputeType_t products;
    void *workspace;             // its own: products do not allocate while a step is recorded
    struct cudnnContext *cudnn;  // NULL: no convolution has been planned, or there is none
    struct ps_error no_cudnn;    // why there is none, once that is known
    enum nn_convolutions convolutions;
    enum nn_precision precision;
    int major, minor;       // its compute capability; 0: not known
    bool tensor_cores;      // that multiply factors of TF32: from compute capability 8.0 on
    struct ps_error error;  // the first one; from then on nothing is queued
    // Scratch memory of the kernels, which run one after the other: as much as the one that needs most (a plan asks,
    // nn_cuda_reserve). Where it lies is known when a kernel runs.
    void *scratch;
    size_t scratch_bytes;
    // Copies from the device: all that have number below `finished` are done; the others have an event each.
    uint64_t taken, finished;
    uint64_t recorded_from;  // the first copy of what is recorded
    cudaEvent_t *arrived, queued;
    size_t n_arrived;
    // Sums over GPUs; NULL: it has joined none.
    struct ncclComm *comm;
    bool abroad;                  // nn_sums_ranks's
    bool (*gives_up)(void *arg);  // its
    void *gives_up_arg;
    struct ps_error unsummed;  // why the sums have failed, though the GPU has not, and may join anew
    cudaStream_t sums;
    cudaEvent_t added;  // the last of them; with peers: what is to be added is there
    struct nn_cuda_group *peers;
    int rank;  // of them
};

// error.c. UNAVAILABLE: another process has the GPU, or the host's services have not set it up yet: that may pass by
// itself.
enum ps_code nn_cuda_code(cudaError_t error);
// They keep the first error. what: which part of a step it was, for people.
void nn_cuda_note(struct nn_context *c, cudaError_t error, const char *what);
void nn_cuda_note_blas(struct nn_context *c, cublasStatus_t status, const char *what);
void nn_cuda_set_precision(struct nn_context *c, enum nn_precision precision);
// For a plan: kernels find at least so many bytes at c->scratch when they run.
enum ps_code nn_cuda_reserve(struct nn_context *c, size_t bytes, struct ps_error *e);

// graph.c: nn_device_memory's
bool nn_cuda_record(struct nn_context *c);
void *nn_cuda_recorded(struct nn_context *c);
bool nn_cuda_replay(struct nn_context *c, void *graph);
void nn_cuda_free_graph(struct nn_context *c, void *graph);

extern const struct nn_device_memory nn_cuda_memory;
void nn_cuda_open_memory(struct nn_context *c);
void nn_cuda_close_memory(struct nn_context *c);

// sums.c
extern const struct nn_device_sums nn_cuda_sums;
void nn_cuda_close_sums(struct nn_context *c);
// peers.c
extern const struct nn_device_sums nn_cuda_peers;
void nn_cuda_close_peers(struct nn_context *c);
// scale.cu: sum[i] += x[i]
cudaError_t nn_cuda_sum_two(cudaStream_t stream, float *sum, const float *x, size_t n);
// cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction: the module has none for the device that is set.
cudaError_t nn_cuda_find_kernels(void);
// x[i] *= by
void nn_cuda_scale(struct nn_context *c, float *x, size_t n, float by);

// A matrix by rows; or many, so many elements apart.
struct nn_cuda_matrix {
    const float *data;
    size_t leading;  // elements from one row to the next
    bool transposed;
    size_t stride;
};

// Y (rows, columns) = scale A (rows, inner) B (inner, columns), `count` times.
struct nn_cuda_product {
    size_t rows, columns, inner;
    struct nn_cuda_matrix a, b;
    float scale;
    float *y;
    size_t leading, stride, count;  // of y
    bool add;                       // to what Y has
};
void nn_cuda_multiply(struct nn_context *c, const struct nn_cuda_product *p);

// ---- kernels, by file ---------------------------------------------------------------------------------------------

// activation.cu
extern const struct nn_kernel nn_cuda_activation, nn_cuda_activation_backward;
// broadcast.cu
extern const struct nn_kernel nn_cuda_binary, nn_cuda_choose, nn_cuda_reduce;
// dropout.cu
extern const struct nn_kernel nn_cuda_dropout, nn_cuda_noise, nn_cuda_flip, nn_cuda_window, nn_cuda_window_backward;
// embedding.cu
extern const struct nn_kernel nn_cuda_embedding, nn_cuda_embedding_backward, nn_cuda_truncate, nn_cuda_spread;
// images.cu
extern const struct nn_kernel nn_cuda_pad2d, nn_cuda_resize2d, nn_cuda_resize2d_backward;
// lookup.cu
extern const struct nn_kernel nn_cuda_lookup, nn_cuda_bins, nn_cuda_constant;
extern const struct nn_kernel nn_cuda_places, nn_cuda_places_backward;
// losses.cu
extern const struct nn_kernel nn_cuda_loss, nn_cuda_loss_weights, nn_cuda_mse;
extern const struct nn_kernel nn_cuda_penalty, nn_cuda_penalty_backward;
// mask.cu
extern const struct nn_kernel nn_cuda_not_equal, nn_cuda_any, nn_cuda_mask_or, nn_cuda_mask_and, nn_cuda_masked;
extern const struct nn_kernel nn_cuda_masked_mean, nn_cuda_masked_mean_backward;
// normalize.cu
extern const struct nn_kernel nn_cuda_normalize, nn_cuda_normalize_backward;
extern const struct nn_kernel nn_cuda_normalize_by, nn_cuda_normalize_by_backward, nn_cuda_moments;
// pointwise.cu
extern const struct nn_kernel nn_cuda_add, nn_cuda_affine, nn_cuda_copy, nn_cuda_relu, nn_cuda_relu_backward;
extern const struct nn_kernel nn_cuda_bias, nn_cuda_bias_backward, nn_cuda_both_ways, nn_cuda_both_ways_backward;
// rnn.cu
extern const struct nn_kernel nn_cuda_rnn, nn_cuda_rnn_backward;
// softmax.cu
extern const struct nn_kernel nn_cuda_softmax, nn_cuda_softmax_backward, nn_cuda_softmax_xent, nn_cuda_sparse_xent;
extern const struct nn_kernel nn_cuda_axis_function, nn_cuda_axis_function_backward;
// transpose.cu
extern const struct nn_kernel nn_cuda_concat, nn_cuda_concat_backward, nn_cuda_transpose;
extern const struct nn_kernel nn_cuda_repeat, nn_cuda_repeat_backward;
// conv2d.cu
extern const struct nn_kernel nn_cuda_conv2d, nn_cuda_conv2d_backward_data, nn_cuda_conv2d_backward_weights;
// dot.cu
extern const struct nn_kernel nn_cuda_dot, nn_cuda_dot_backward, nn_cuda_unit_length;
// Can it be a product of matrices?
bool nn_cuda_dot_fits(const struct nn_op *op);
bool nn_cuda_dot_backward_fits(const struct nn_op *op);
// rule.cu
bool nn_cuda_applies(const struct ps_rule *rule, const double *hyper);
void nn_cuda_apply(struct nn_context *c, const struct nn_update *u, size_t n);
// pool2d.cu
extern const struct nn_kernel nn_cuda_maxpool, nn_cuda_maxpool_backward, nn_cuda_avgpool, nn_cuda_avgpool_backward;
// sequence.cu
extern const struct nn_kernel nn_cuda_attention_scores, nn_cuda_attention_sum;
extern const struct nn_kernel nn_cuda_attention_softmax, nn_cuda_attention_softmax_backward;
// dense.cu
extern const struct nn_kernel nn_cuda_dense, nn_cuda_dense_backward_data, nn_cuda_dense_backward_weights;
// y (rows, n) += b, which may be NULL; then the activation.
void nn_cuda_bias_activation(struct nn_context *c, enum nn_activation act, size_t rows, size_t n, const float *b,
                             float *y);
// sum (n) = the sum of the rows of x (rows, n), by way of the scratch memory, which a plan reserves; of so many rows at
// most without it, so that x may lie there.
enum { NN_CUDA_SUM_IN_ONE = 512 };
enum ps_code nn_cuda_reserve_sum(struct nn_context *c, size_t rows, size_t n, struct ps_error *e);
void nn_cuda_sum_rows(struct nn_context *c, size_t rows, size_t n, const float *x, float *sum);

// ---- launches of kernels ------------------------------------------------------------------------------------------

#ifdef __cplusplus
}

#include "workerd/nn/cuda/launch.h"

// NN_CUDA_RUN(context, kernel, grid, block, shared, arguments...), on the context's stream.
#define NN_CUDA_RUN(context, kernel, grid, block, shared, ...)                                                   \
    do {                                                                                                         \
        struct nn_context *const nn_cuda_c = (context);                                                          \
        if (nn_cuda_c->error.code == PS_OK)                                                                      \
            nn_cuda_note(nn_cuda_c, NN_CUDA_LAUNCH(kernel, grid, block, shared, nn_cuda_c->stream, __VA_ARGS__), \
                         #kernel);                                                                               \
    } while (0)

// A thread for each of n elements, and no more of them than keep a GPU busy: kernels loop (NN_CUDA_EACH).
static inline unsigned nn_cuda_threads(size_t n)
{
    return n >= 256 ? 256 : (unsigned)(n + 31) / 32 * 32;
}

static inline unsigned nn_cuda_blocks(size_t n)
{
    const size_t blocks = (n + 255) / 256;
    return blocks > 4096 ? 4096 : (unsigned)blocks;
}

// NN_CUDA_RUN of a kernel with a thread for each of n elements; its first argument is n.
#define NN_CUDA_RUN_EACH(context, kernel, n, ...) \
    NN_CUDA_RUN(context, kernel, nn_cuda_blocks(n), nn_cuda_threads(n), 0, n, __VA_ARGS__)

// In a kernel: for (size_t i: this thread's of n elements)
#define NN_CUDA_EACH(i, n) \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (size_t)(n); i += (size_t)gridDim.x * blockDim.x)

// A NaN goes on.
static inline __device__ float nn_cuda_activate(enum nn_activation act, float x)
{
    return act == NN_RELU && x < 0 ? 0 : x;
}

// The arguments of a run.
static inline const float *nn_cuda_in(const struct nn_frame *f, int i)
{
    return (const float *)f->in[i];
}

static inline float *nn_cuda_out(const struct nn_frame *f, int i)
{
    return (float *)f->out[i];
}

// The operator's attributes: `struct nn_dense`.
template <class A> static inline const A *nn_cuda_attr(const struct nn_frame *f)
{
    return (const A *)(const void *)f->op->attr;
}
#endif

#endif
