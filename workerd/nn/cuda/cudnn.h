// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by cuDNN. conv2d.cu plans and runs them, and computes by itself what cuDNN does not: where it cannot be
// loaded, where a job does without it, where the padding is uneven, where it has no algorithm for the shapes.
//
// What stays with own kernels, and why:
//   few channels         implicit.cu is two to ten times as fast: cuDNN's deterministic algorithms for float32 took 40
//                        to 240 us on an H100 where it takes 13 to 24 (ResNet-56, batches of 64).
//   pooling              cuDNN does not say which of several equal cells is the greatest, nor hands its place on to the
//                        gradient; ours is the first, as Keras's. It pads both sides alike.
//   batch normalization  our images are NHWC, for which cuDNN's kernels of float32 are its slow ones. It hands on the
//                        variance with n - 1 in place of n, which is none for one element; ours is that with n.
//   recurrent layers     cuDNN knows no mask but one of rows that end, wants all weights in one buffer of its own order,
//                        and leaves to the backward pass a buffer for which no operator of the tape has an output.
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
