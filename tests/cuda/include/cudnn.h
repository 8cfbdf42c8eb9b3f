// SPDX-License-Identifier: Apache-2.0
//
// The emulated cuDNN: convolutions by plain loops. Values are cuDNN's own. An algorithm that cuDNN documents as
// deterministic sums in one order, the others in one that is drawn from the seed; without CUDNN_FMA_MATH factors are
// rounded to TF32. What cuDNN refuses is refused: wrong shapes, formats that an algorithm does not take, a workspace
// that is too small.
#ifndef EMULATED_CUDNN_H
#define EMULATED_CUDNN_H

#include "cuda_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDNN_MAJOR 9
#define CUDNN_MINOR 0

typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;
typedef enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_INTERNAL_ERROR = 4000,
    CUDNN_STATUS_EXECUTION_FAILED = 5000
} cudnnStatus_t;
typedef enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_DOUBLE = 1, CUDNN_DATA_HALF = 2 } cudnnDataType_t;
typedef enum {
    CUDNN_DEFAULT_MATH = 0,
    CUDNN_TENSOR_OP_MATH = 1,
    CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2,
    CUDNN_FMA_MATH = 3
} cudnnMathType_t;
typedef enum { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1 } cudnnTensorFormat_t;
typedef enum { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;
typedef enum { CUDNN_NON_DETERMINISTIC = 0, CUDNN_DETERMINISTIC = 1 } cudnnDeterminism_t;
typedef enum {
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0,
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1,
    CUDNN_CONVOLUTION_FWD_ALGO_COUNT = 8
} cudnnConvolutionFwdAlgo_t;
typedef enum {
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT = 6
} cudnnConvolutionBwdDataAlgo_t;
typedef enum {
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 = 0,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 = 3,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT = 7
} cudnnConvolutionBwdFilterAlgo_t;

typedef struct {
    cudnnConvolutionFwdAlgo_t algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} cudnnConvolutionFwdAlgoPerf_t;
typedef struct {
    cudnnConvolutionBwdDataAlgo_t algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} cudnnConvolutionBwdDataAlgoPerf_t;
typedef struct {
    cudnnConvolutionBwdFilterAlgo_t algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} cudnnConvolutionBwdFilterAlgoPerf_t;

const char *cudnnGetErrorString(cudnnStatus_t status);
cudnnStatus_t emu_cudnnCreate(struct emu_place at, cudnnHandle_t *handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor);
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter);
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w);
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *conv);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv);
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math);
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                                                      cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t *bytes);
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t dy,
                                                           cudnnConvolutionDescriptor_t conv,
                                                           cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t *bytes);
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                             cudnnTensorDescriptor_t dy,
                                                             cudnnConvolutionDescriptor_t conv,
                                                             cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *bytes);

// All that it could be, the fastest first: the one whose sums have no order.
cudnnStatus_t emu_cudnnFindConvolutionForwardAlgorithm(struct emu_place at, cudnnHandle_t handle,
                                                       cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                                       cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y,
                                                       int asked, int *returned, cudnnConvolutionFwdAlgoPerf_t *found);
cudnnStatus_t emu_cudnnFindConvolutionBackwardDataAlgorithm(struct emu_place at, cudnnHandle_t handle,
                                                            cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
                                                            cudnnConvolutionDescriptor_t conv,
                                                            cudnnTensorDescriptor_t dx, int asked, int *returned,
                                                            cudnnConvolutionBwdDataAlgoPerf_t *found);
cudnnStatus_t emu_cudnnFindConvolutionBackwardFilterAlgorithm(struct emu_place at, cudnnHandle_t handle,
                                                              cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
                                                              cudnnConvolutionDescriptor_t conv,
                                                              cudnnFilterDescriptor_t dw, int asked, int *returned,
                                                              cudnnConvolutionBwdFilterAlgoPerf_t *found);

// alpha and beta lie in the host's memory.
cudnnStatus_t emu_cudnnConvolutionForward(struct emu_place at, cudnnHandle_t handle, const void *alpha,
                                          cudnnTensorDescriptor_t x_desc, const void *x, cudnnFilterDescriptor_t w_desc,
                                          const void *w, cudnnConvolutionDescriptor_t conv,
                                          cudnnConvolutionFwdAlgo_t algorithm, void *workspace, size_t bytes,
                                          const void *beta, cudnnTensorDescriptor_t y_desc, void *y);
cudnnStatus_t emu_cudnnConvolutionBackwardData(struct emu_place at, cudnnHandle_t handle, const void *alpha,
                                               cudnnFilterDescriptor_t w_desc, const void *w,
                                               cudnnTensorDescriptor_t dy_desc, const void *dy,
                                               cudnnConvolutionDescriptor_t conv,
                                               cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace, size_t bytes,
                                               const void *beta, cudnnTensorDescriptor_t dx_desc, void *dx);
cudnnStatus_t emu_cudnnConvolutionBackwardFilter(struct emu_place at, cudnnHandle_t handle, const void *alpha,
                                                 cudnnTensorDescriptor_t x_desc, const void *x,
                                                 cudnnTensorDescriptor_t dy_desc, const void *dy,
                                                 cudnnConvolutionDescriptor_t conv,
                                                 cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                                 size_t bytes, const void *beta, cudnnFilterDescriptor_t dw_desc,
                                                 void *dw);
#define cudnnCreate(...) emu_cudnnCreate(EMU_HERE, __VA_ARGS__)
#define cudnnFindConvolutionForwardAlgorithm(...) emu_cudnnFindConvolutionForwardAlgorithm(EMU_HERE, __VA_ARGS__)
#define cudnnFindConvolutionBackwardDataAlgorithm(...) \
    emu_cudnnFindConvolutionBackwardDataAlgorithm(EMU_HERE, __VA_ARGS__)
#define cudnnFindConvolutionBackwardFilterAlgorithm(...) \
    emu_cudnnFindConvolutionBackwardFilterAlgorithm(EMU_HERE, __VA_ARGS__)
#define cudnnConvolutionForward(...) emu_cudnnConvolutionForward(EMU_HERE, __VA_ARGS__)
#define cudnnConvolutionBackwardData(...) emu_cudnnConvolutionBackwardData(EMU_HERE, __VA_ARGS__)
#define cudnnConvolutionBackwardFilter(...) emu_cudnnConvolutionBackwardFilter(EMU_HERE, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
