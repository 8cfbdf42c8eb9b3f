// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by cuDNN. conv2d.cu plans and runs them, and computes by itself what cuDNN does not: where it cannot be
// loaded, where a job does without it, where the padding is uneven, where it has no algorithm for the shapes.
//
// What stays with own kernels, and why:
//   pooling              cuDNN does not say which of several equal cells is the greatest, nor hands it on to the
//                        gradient; ours is the first, as Keras's. Means have padding on one side alone, which cuDNN
//                        lacks.
//   batch normalization  cuDNN gives the variance with n - 1 in place of n, and otherwise 1 / sqrt(variance + epsilon),
//                        from which a small variance cannot be had back: what our operators hand on is that with n.
//   recurrent layers     cuDNN's know no mask but rows that end, and want all weights in one buffer of their own order,
//                        to be packed in each step and its gradient unpacked.
#ifndef NN_CUDA_CUDNN_H
#define NN_CUDA_CUDNN_H

#include "workerd/nn/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// x (n, h, w, c), y (n, oh, ow, oc), kernel (kh, kw, c / groups, oc); padding before the first row and column.
struct nn_cuda_conv2d {
    int n, h, w, c, kh, kw, oh, ow, oc, groups, stride[2], pad[2], dilation[2];
};

enum nn_cudnn_way { NN_CUDNN_FORWARD, NN_CUDNN_DATA, NN_CUDNN_WEIGHTS, NN_CUDNN_WAYS };

// cuDNN's filters are of another order than Keras's kernels: (oc, kh, kw, c / groups) or (oc, c / groups, kh, kw). One
// of that order lies at the start of the scratch memory; cuDNN's own workspace behind it.
struct nn_cudnn_conv2d;  // a plan
struct nn_cudnn_filter {
    float *data;
    bool channels_last;
};

// Reserves the scratch memory, too. NULL: own kernels compute it.
enum ps_code nn_cudnn_plan_conv2d(struct nn_context *c, enum nn_cudnn_way way, const struct nn_cuda_conv2d *s,
                                  struct nn_cudnn_conv2d **plan, struct ps_error *e);
void nn_cudnn_free_conv2d(struct nn_cudnn_conv2d *plan);
struct nn_cudnn_filter nn_cudnn_filter_of(const struct nn_cudnn_conv2d *plan);
// Of the filter, x and y (or their gradients), the one that the way is to compute is written.
void nn_cudnn_run_conv2d(const struct nn_cudnn_conv2d *plan, float *x, float *y);
// "cudnn:implicit_precomp_gemm"
const char *nn_cudnn_info_conv2d(const struct nn_cudnn_conv2d *plan);

// nn_device's. FAILED_PRECONDITION: why there is no cuDNN on this device.
enum ps_code nn_cudnn_set_convolutions(struct nn_context *c, enum nn_convolutions which, struct ps_error *e);
enum ps_code nn_cudnn_check(struct nn_context *c, struct ps_error *e);
void nn_cudnn_close(struct nn_context *c);

#ifdef __cplusplus
}
#endif

#endif
