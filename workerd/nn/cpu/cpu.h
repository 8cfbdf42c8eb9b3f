// SPDX-License-Identifier: Apache-2.0
//
// The CPU's kernels: oneDNN for the convolutions and the matrix products, plain vectorised C for what lies between.
// One file per operator or family; device.c holds the table, share.c the threads,
// dnnl.c what oneDNN is told and says.
#ifndef NN_CPU_H
#define NN_CPU_H

#include <oneapi/dnnl/dnnl.h>

#include "common/math/cpu.h"
#include "workerd/nn/device.h"

struct nn_context {
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    unsigned control;  // what floating point did before nn_device.enter
};

// OpenMP, on which oneDNN runs, keeps its number of threads per calling thread: whoever prepares a primitive calls this
// first.
void nn_cpu_use_threads(const struct nn_context *context);
// Floats to read or write for which another thread is worth its start.
enum { NN_CPU_SHARED = 16 * 1024 };
// nn_device's.
double nn_cpu_peak(struct nn_context *context);
// One range [first, last) of a loop.
typedef void nn_cpu_part(void *arg, size_t first, size_t last);
// Calls part for ranges that together are [0, n), on as many of the context's threads as have `least` or more each.
// Where the ranges end follows from their number: what a part writes must not.
void nn_cpu_share(const struct nn_context *context, size_t n, size_t least, nn_cpu_part *part, void *arg);
// Fills e from oneDNN's status.
enum ps_code nn_cpu_fail(struct ps_error *e, dnnl_status_t status, const char *what);
// Of what the plan prepared, oneDNN can only fail for lack of memory, and that ends the process as in ps_alloc.
void nn_cpu_must(dnnl_status_t status, const char *what);

extern const struct nn_kernel nn_cpu_activation;
extern const struct nn_kernel nn_cpu_activation_backward;
extern const struct nn_kernel nn_cpu_add;
extern const struct nn_kernel nn_cpu_affine;
extern const struct nn_kernel nn_cpu_attention_scores, nn_cpu_attention_sum;
extern const struct nn_kernel nn_cpu_attention_softmax, nn_cpu_attention_softmax_backward;
extern const struct nn_kernel nn_cpu_avgpool;
extern const struct nn_kernel nn_cpu_avgpool_backward;
extern const struct nn_kernel nn_cpu_axis_function, nn_cpu_axis_function_backward;
extern const struct nn_kernel nn_cpu_bias;
extern const struct nn_kernel nn_cpu_bias_backward;
extern const struct nn_kernel nn_cpu_binary;
extern const struct nn_kernel nn_cpu_conv2d;
extern const struct nn_kernel nn_cpu_conv2d_backward_data;
extern const struct nn_kernel nn_cpu_conv2d_backward_weights;
extern const struct nn_kernel nn_cpu_conv2d_pool;
extern const struct nn_kernel nn_cpu_conv2d_pool_backward_data;
extern const struct nn_kernel nn_cpu_conv2d_pool_backward_weights;
extern const struct nn_kernel nn_cpu_copy;
extern const struct nn_kernel nn_cpu_dense;
extern const struct nn_kernel nn_cpu_dense_backward_data;
extern const struct nn_kernel nn_cpu_dense_backward_weights;
extern const struct nn_kernel nn_cpu_dropout;
extern const struct nn_kernel nn_cpu_embedding, nn_cpu_embedding_backward;
extern const struct nn_kernel nn_cpu_loss;
extern const struct nn_kernel nn_cpu_maxpool;
extern const struct nn_kernel nn_cpu_maxpool_backward;
extern const struct nn_kernel nn_cpu_normalize, nn_cpu_normalize_backward;
extern const struct nn_kernel nn_cpu_normalize_by, nn_cpu_normalize_by_backward, nn_cpu_moments;
extern const struct nn_kernel nn_cpu_pad2d;
extern const struct nn_kernel nn_cpu_penalty, nn_cpu_penalty_backward;
extern const struct nn_kernel nn_cpu_reduce;
extern const struct nn_kernel nn_cpu_relu;
extern const struct nn_kernel nn_cpu_relu_backward;
extern const struct nn_kernel nn_cpu_rnn, nn_cpu_rnn_backward;
extern const struct nn_kernel nn_cpu_softmax, nn_cpu_softmax_backward;
extern const struct nn_kernel nn_cpu_softmax_xent;
extern const struct nn_kernel nn_cpu_resize2d;
extern const struct nn_kernel nn_cpu_resize2d_backward;

// How many pieces of so many floats are worth a thread.
static inline size_t nn_cpu_least(size_t floats)
{
    return NN_CPU_SHARED / (floats > 0 ? floats : 1) + 1;
}

// y (rows, n) += b, which may be NULL; then the activation.
void nn_cpu_bias_activation(const struct nn_context *context, enum nn_activation act, size_t rows, size_t n,
                            const float *b, float *y);
// sum (n) = the sum of the rows of x (rows, n)
void nn_cpu_sum_rows(const struct nn_context *context, size_t rows, size_t n, const float *x, float *sum);

#endif
