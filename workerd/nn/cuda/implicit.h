// SPDX-License-Identifier: Apache-2.0
//
// Convolution as a product of matrices whose patches are never written: a block gathers those of its tile into shared
// memory (Chetlur et al. 2014, cuDNN, section 3). For few channels, where a library's tiles are mostly padding. The
// bits are the same in every run.
#ifndef NN_CUDA_IMPLICIT_H
#define NN_CUDA_IMPLICIT_H

#include "workerd/nn/cuda/cudnn.h"

#ifdef __cplusplus
extern "C" {
#endif

// So many channels at most: for more, cuBLAS and cuDNN are the faster. Tests change it, before anything is planned.
extern int nn_cuda_implicit_most;
// Are the shapes those that it is the faster for?
bool nn_cuda_implicit_fits(const struct nn_cuda_conv2d *s);

// Is this code compiled for tensor cores that multiply factors of TF32? Asks the device that is set.
bool nn_cuda_implicit_has_tensor_cores(void);

// y = act(x * kernel + bias); bias may be NULL
void nn_cuda_implicit_forward(struct nn_context *c, const struct nn_cuda_conv2d *s, const float *x, const float *kernel,
                              const float *bias, enum nn_activation act, float *y);
// dx of dy and the kernel
void nn_cuda_implicit_data(struct nn_context *c, const struct nn_cuda_conv2d *s, const float *kernel, const float *dy,
                           float *dx);
// dw of x and dy, by way of the scratch memory, which a plan reserves.
enum ps_code nn_cuda_implicit_reserve(struct nn_context *c, const struct nn_cuda_conv2d *s, struct ps_error *e);
void nn_cuda_implicit_weights(struct nn_context *c, const struct nn_cuda_conv2d *s, const float *x, const float *dy,
                              float *dw);

#ifdef __cplusplus
}
#endif

#endif
