// SPDX-License-Identifier: Apache-2.0
//
// What the sources that call cuDNN share: CUDNN(function, arguments...) calls a function of the library.
#ifndef NN_CUDA_CUDNN_INSIDE_H
#define NN_CUDA_CUDNN_INSIDE_H

#include "config.h"
#include "workerd/nn/cuda/cudnn.h"

#ifdef CUDA_EMULATED
#define HAVE_CUDNN 1
#endif

#ifdef HAVE_CUDNN

#include <cudnn.h>

#ifdef CUDA_EMULATED

#define CUDNN(function, ...) function(__VA_ARGS__)

#else

#define CUDNN(function, ...) nn_cudnn_library()->function(__VA_ARGS__)
#define NN_CUDNN_FUNCTIONS(X)                         \
    X(cudnnCreate)                                    \
    X(cudnnDestroy)                                   \
    X(cudnnSetStream)                                 \
    X(cudnnGetErrorString)                            \
    X(cudnnCreateTensorDescriptor)                    \
    X(cudnnDestroyTensorDescriptor)                   \
    X(cudnnSetTensor4dDescriptor)                     \
    X(cudnnCreateFilterDescriptor)                    \
    X(cudnnDestroyFilterDescriptor)                   \
    X(cudnnSetFilter4dDescriptor)                     \
    X(cudnnCreateConvolutionDescriptor)               \
    X(cudnnDestroyConvolutionDescriptor)              \
    X(cudnnSetConvolution2dDescriptor)                \
    X(cudnnSetConvolutionGroupCount)                  \
    X(cudnnSetConvolutionMathType)                    \
    X(cudnnFindConvolutionForwardAlgorithm)           \
    X(cudnnFindConvolutionBackwardDataAlgorithm)      \
    X(cudnnFindConvolutionBackwardFilterAlgorithm)    \
    X(cudnnGetConvolutionForwardWorkspaceSize)        \
    X(cudnnGetConvolutionBackwardDataWorkspaceSize)   \
    X(cudnnGetConvolutionBackwardFilterWorkspaceSize) \
    X(cudnnConvolutionForward) X(cudnnConvolutionBackwardData) X(cudnnConvolutionBackwardFilter)
#define NN_CUDNN_POINTER(function) __typeof__(&function) function;
struct nn_cudnn_functions {
    NN_CUDNN_FUNCTIONS(NN_CUDNN_POINTER)
};
// Once nn_cudnn_check has found it.
const struct nn_cudnn_functions *nn_cudnn_library(void);

#endif

void nn_cudnn_note(struct nn_context *c, cudnnStatus_t status, const char *what);

#endif

#endif
