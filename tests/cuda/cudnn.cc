// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/include/cudnn.h"
#include "tests/cuda/fiber.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/touch.h"
#include <algorithm>
#include <math.h>

struct cudnnContext {
    int device;
    cudaStream_t stream;
};

struct cudnnTensorStruct {
    cudnnTensorFormat_t format;
    int n, c, h, w;  // n 0: it has not been set
};

struct cudnnFilterStruct {
    cudnnTensorFormat_t format;
    int k, c, h, w;
};

struct cudnnConvolutionStruct {
    int pad[2], stride[2], dilation[2];  // stride 0: it has not been set
    int groups;
    cudnnMathType_t math;
};

enum way { FORWARD, DATA, FILTER };

// ---- handles and descriptors ---------------------------------------------------------------------------------------

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
    return "an unknown status of cuDNN";
}

static bool lacks(unsigned what)
{
    return emu_config_now().without & what;
}

// It takes memory of the device.
cudnnStatus_t emu_cudnnCreate(emu_place at, cudnnHandle_t *handle)
{
    emu_entry entry;
    if (emu_failed() || emu_capture_forbids(at, "cudnnCreate", NULL))
        return CUDNN_STATUS_INTERNAL_ERROR;
    if (lacks(EMU_NO_CUDNN))
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = new cudnnContext{emu_device_now(), NULL};
    emu_count()->live_cudnn++;
    return CUDNN_STATUS_SUCCESS;
}

template <class T> static cudnnStatus_t create(T **made)
{
    emu_entry entry;
    *made = new T();
    emu_count()->live_cudnn++;
    return CUDNN_STATUS_SUCCESS;
}

template <class T> static cudnnStatus_t destroy(T *made)
{
    emu_entry entry;
    if (!made)
        return CUDNN_STATUS_BAD_PARAM;
    delete made;
    emu_count()->live_cudnn--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    return destroy(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor)
{
    return create(tensor);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor)
{
    return destroy(tensor);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    if (n < 1 || c < 1 || h < 1 || w < 1)
        return CUDNN_STATUS_BAD_PARAM;
    if (type != CUDNN_DATA_FLOAT || (double)n * c * h * w > 0x7fffffff)
        return CUDNN_STATUS_NOT_SUPPORTED;
    *tensor = cudnnTensorStruct{format, n, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter)
{
    return create(filter);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter)
{
    return destroy(filter);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    if (k < 1 || c < 1 || h < 1 || w < 1)
        return CUDNN_STATUS_BAD_PARAM;
    if (type != CUDNN_DATA_FLOAT)
        return CUDNN_STATUS_NOT_SUPPORTED;
    *filter = cudnnFilterStruct{format, k, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *conv)
{
    cudnnStatus_t status = create(conv);
    (*conv)->groups = 1;
    return status;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv)
{
    return destroy(conv);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute)
{
    if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1)
        return CUDNN_STATUS_BAD_PARAM;
    if (mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT)
        return CUDNN_STATUS_NOT_SUPPORTED;
    *conv = cudnnConvolutionStruct{
        {pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, conv->groups, CUDNN_DEFAULT_MATH};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups)
{
    if (groups < 1)
        return CUDNN_STATUS_BAD_PARAM;
    conv->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math)
{
    conv->math = math;
    return CUDNN_STATUS_SUCCESS;
}

// ---- what is supported ---------------------------------------------------------------------------------------------

struct problem {
    way to;
    int algorithm;
    cudnnTensorStruct x, y;
    cudnnFilterStruct w;
    cudnnConvolutionStruct conv;
};

static int places(int size, int window, const cudnnConvolutionStruct &conv, int axis)
{
    return (size + 2 * conv.pad[axis] - (window - 1) * conv.dilation[axis] - 1) / conv.stride[axis] + 1;
}

static bool problem_fits(const problem &p)
{
    return p.x.n > 0 && p.y.n == p.x.n && p.w.k > 0 && p.conv.stride[0] > 0 && p.x.c == p.w.c * p.conv.groups &&
           p.y.c == p.w.k && p.w.k % p.conv.groups == 0 && p.y.h == places(p.x.h, p.w.h, p.conv, 0) &&
           p.y.w == places(p.x.w, p.w.w, p.conv, 1);
}

// Of float, with images of NHWC.
static bool problem_is_supported(const problem &p)
{
    bool tensor_cores = p.conv.math != CUDNN_FMA_MATH;
    if (p.x.format != CUDNN_TENSOR_NHWC || p.y.format != CUDNN_TENSOR_NHWC)
        return false;
    if (lacks(tensor_cores ? EMU_NO_TENSOR_CORES : EMU_NO_FMA))
        return false;
    if (p.w.format == CUDNN_TENSOR_NHWC && lacks(EMU_NO_FILTERS_OF_NHWC))
        return false;
    switch (p.to) {
    case FORWARD:
        return p.algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
                   ? !lacks(EMU_NO_PRECOMPUTED_INDICES)
                   : p.algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM && p.w.format == CUDNN_TENSOR_NCHW;
    case DATA:
        return p.algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 || p.algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
    default:
        return p.algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 ||
               p.algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 || p.algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3;
    }
}

static bool problem_is_deterministic(const problem &p)
{
    return p.to == FORWARD || p.algorithm == 1;
}

// Some, that depends on all of it.
static size_t problem_workspace(const problem &p)
{
    if (p.algorithm == 0)
        return 0;
    return 64 + (size_t)p.y.h * p.y.w * 4 + (size_t)p.w.k * 16 + (p.conv.math == CUDNN_FMA_MATH ? 0 : 128);
}

static cudnnStatus_t problem_ask(const problem &p, size_t *bytes)
{
    emu_entry entry;
    if (!problem_fits(p))
        return CUDNN_STATUS_BAD_PARAM;
    if (!problem_is_supported(p))
        return CUDNN_STATUS_NOT_SUPPORTED;
    *bytes = problem_workspace(p);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                                                      cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t *bytes)
{
    return problem_ask(problem{FORWARD, algorithm, *x, *y, *w, *conv}, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t dy,
                                                           cudnnConvolutionDescriptor_t conv,
                                                           cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t *bytes)
{
    return problem_ask(problem{DATA, algorithm, *dx, *dy, *w, *conv}, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                             cudnnTensorDescriptor_t dy,
                                                             cudnnConvolutionDescriptor_t conv,
                                                             cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *bytes)
{
    return problem_ask(problem{FILTER, algorithm, *x, *dy, *dw, *conv}, bytes);
}

// ---- which is the fastest ------------------------------------------------------------------------------------------

// In an order that no clock says, so that it is known which comes first.
static float problem_time(const problem &p)
{
    return 8 - (problem_is_deterministic(p) ? 0 : 4) - (float)p.algorithm * 0.125f - (float)p.w.format * 0.0625f;
}

// It takes memory of the device.
template <class P>
static cudnnStatus_t problem_find(emu_place at, const char *call, cudnnHandle_t handle, problem p, int count, int asked,
                                  int *returned, P *found)
{
    emu_entry entry;
    if (emu_failed() || emu_capture_forbids(at, call, NULL) || handle->device != emu_device_now())
        return CUDNN_STATUS_INTERNAL_ERROR;
    if (!problem_fits(p))
        return CUDNN_STATUS_BAD_PARAM;
    *returned = 0;
    for (p.algorithm = 0; p.algorithm < count && *returned < asked; p.algorithm++) {
        P one = {};
        one.algo = static_cast<decltype(one.algo)>(p.algorithm);
        one.status = problem_is_supported(p) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
        one.time = one.status ? -1 : problem_time(p);
        one.determinism = problem_is_deterministic(p) ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
        one.mathType = p.conv.math;
        found[(*returned)++] = one;
    }
    std::stable_sort(found, found + *returned,
                     [](const P &a, const P &b) { return (a.status ? 1000 : a.time) < (b.status ? 1000 : b.time); });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t emu_cudnnFindConvolutionForwardAlgorithm(emu_place at, cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                       cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                                                       cudnnTensorDescriptor_t y, int asked, int *returned,
                                                       cudnnConvolutionFwdAlgoPerf_t *found)
{
    return problem_find(at, "cudnnFindConvolutionForwardAlgorithm", handle, problem{FORWARD, 0, *x, *y, *w, *conv},
                        CUDNN_CONVOLUTION_FWD_ALGO_COUNT, asked, returned, found);
}

cudnnStatus_t emu_cudnnFindConvolutionBackwardDataAlgorithm(emu_place at, cudnnHandle_t handle,
                                                            cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
                                                            cudnnConvolutionDescriptor_t conv,
                                                            cudnnTensorDescriptor_t dx, int asked, int *returned,
                                                            cudnnConvolutionBwdDataAlgoPerf_t *found)
{
    return problem_find(at, "cudnnFindConvolutionBackwardDataAlgorithm", handle, problem{DATA, 0, *dx, *dy, *w, *conv},
                        CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, asked, returned, found);
}

cudnnStatus_t emu_cudnnFindConvolutionBackwardFilterAlgorithm(emu_place at, cudnnHandle_t handle,
                                                              cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
                                                              cudnnConvolutionDescriptor_t conv,
                                                              cudnnFilterDescriptor_t dw, int asked, int *returned,
                                                              cudnnConvolutionBwdFilterAlgoPerf_t *found)
{
    return problem_find(at, "cudnnFindConvolutionBackwardFilterAlgorithm", handle,
                        problem{FILTER, 0, *x, *dy, *dw, *conv}, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, asked,
                        returned, found);
}

// ---- convolutions --------------------------------------------------------------------------------------------------

struct operands {
    float *x, *w, *y;
    char *workspace;
    size_t bytes;
};

// What the three ways do with one pair of elements that belong together.
static void pair_add(way to, const operands &o, size_t x, size_t w, size_t y, float (*round)(float))
{
    if (to == FORWARD)
        o.y[y] += round(o.x[x]) * round(o.w[w]);
    else if (to == DATA)
        o.x[x] += round(o.w[w]) * round(o.y[y]);
    else
        o.w[w] += round(o.x[x]) * round(o.y[y]);
}

static size_t filter_index(const cudnnFilterStruct &f, int k, int c, int r, int s)
{
    if (f.format == CUDNN_TENSOR_NHWC)
        return (((size_t)k * f.h + r) * f.w + s) * f.c + c;
    return (((size_t)k * f.c + c) * f.h + r) * f.w + s;
}

// All pairs of one output pixel and one cell of its window.
static void cell_add(const problem &p, const operands &o, size_t pixel, int cell, float (*round)(float))
{
    int ox = (int)(pixel % p.y.w), oy = (int)(pixel / p.y.w % p.y.h), n = (int)(pixel / p.y.w / p.y.h);
    int r = cell / p.w.w, s = cell % p.w.w;
    int iy = oy * p.conv.stride[0] + r * p.conv.dilation[0] - p.conv.pad[0];
    int ix = ox * p.conv.stride[1] + s * p.conv.dilation[1] - p.conv.pad[1];
    if (iy < 0 || iy >= p.x.h || ix < 0 || ix >= p.x.w)
        return;
    int of_group = p.w.k / p.conv.groups;
    size_t x = (((size_t)n * p.x.h + iy) * p.x.w + ix) * p.x.c, y = pixel * p.y.c;
    for (int k = 0; k < p.w.k; k++)
        for (int c = 0; c < p.w.c; c++)
            pair_add(p.to, o, x + (size_t)(k / of_group) * p.w.c + c, filter_index(p.w, k, c, r, s), y + k, round);
}

static float whole(float value)
{
    return value;
}

// To 10 bits of mantissa, to even between two.
static float tf32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (isfinite(value))
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&value, &bits, 4);
    return value;
}

static size_t tensor_bytes(const cudnnTensorStruct &t)
{
    return (size_t)t.n * t.c * t.h * t.w * sizeof(float);
}

static size_t filter_bytes(const cudnnFilterStruct &f)
{
    return (size_t)f.k * f.c * f.h * f.w * sizeof(float);
}

// One order for those that are deterministic, one of two for the others.
static void problem_compute(const problem &p, const operands &o)
{
    bool backwards = !problem_is_deterministic(p) && emu_random(2);
    int cells = p.w.h * p.w.w;
    size_t pixels = (size_t)p.y.n * p.y.h * p.y.w;
    float (*round)(float) = p.conv.math == CUDNN_FMA_MATH ? whole : tf32;
    for (size_t i = 0; i < pixels; i++)
        for (int k = 0; k < cells; k++)
            cell_add(p, o, backwards ? pixels - 1 - i : i, backwards ? cells - 1 - k : k, round);
}

static void problem_run(const problem &p, const operands &o, uint32_t task)
{
    emu_kind x = p.to == DATA ? EMU_WRITE : EMU_READ, w = p.to == FILTER ? EMU_WRITE : EMU_READ;
    emu_kind y = p.to == FORWARD ? EMU_WRITE : EMU_READ;
    if (!emu_touch_range(o.workspace, o.bytes, EMU_WRITE, task) || !emu_touch_range(o.x, tensor_bytes(p.x), x, task) ||
        !emu_touch_range(o.w, filter_bytes(p.w), w, task) || !emu_touch_range(o.y, tensor_bytes(p.y), y, task))
        return;
    operands seen = {(float *)emu_memory_alias(o.x), (float *)emu_memory_alias(o.w), (float *)emu_memory_alias(o.y),
                     (char *)emu_memory_alias(o.workspace), o.bytes};
    if (o.bytes)
        memset(seen.workspace, 0xff, o.bytes);  // whatever lay there is lost
    if (p.to == FORWARD)
        memset(seen.y, 0, tensor_bytes(p.y));
    else if (p.to == DATA)
        memset(seen.x, 0, tensor_bytes(p.x));
    else
        memset(seen.w, 0, filter_bytes(p.w));
    problem_compute(p, seen);
}

static cudnnStatus_t problem_add(emu_place at, const char *call, cudnnHandle_t handle, const void *alpha,
                                 const void *beta, const problem &p, const operands &o)
{
    emu_entry entry;
    if (!problem_fits(p) || o.bytes < problem_workspace(p) || (o.bytes && ((uintptr_t)o.workspace & 15)))
        return CUDNN_STATUS_BAD_PARAM;
    if (!problem_is_supported(p) || *(const float *)alpha != 1 || *(const float *)beta != 0)
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (handle->device != emu_device_now()) {
        emu_fail(emu_format(
            "%s (%s) is called while device %d is set, with a handle of device %d: expected cudaSetDevice(%d) "
            "before it",
            call, emu_place_text(at).c_str(), emu_device_now(), handle->device, handle->device));
        return CUDNN_STATUS_EXECUTION_FAILED;
    }
    emu_stream *s = emu_stream_use(handle->stream, at, call);
    if (!s)
        return CUDNN_STATUS_EXECUTION_FAILED;
    cudaError_t error = emu_stream_add(s, emu_work{call, at, [p, o](uint32_t task) { problem_run(p, o, task); }});
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

cudnnStatus_t emu_cudnnConvolutionForward(emu_place at, cudnnHandle_t handle, const void *alpha,
                                          cudnnTensorDescriptor_t x_desc, const void *x, cudnnFilterDescriptor_t w_desc,
                                          const void *w, cudnnConvolutionDescriptor_t conv,
                                          cudnnConvolutionFwdAlgo_t algorithm, void *workspace, size_t bytes,
                                          const void *beta, cudnnTensorDescriptor_t y_desc, void *y)
{
    return problem_add(at, "cudnnConvolutionForward", handle, alpha, beta,
                       problem{FORWARD, algorithm, *x_desc, *y_desc, *w_desc, *conv},
                       operands{(float *)x, (float *)w, (float *)y, (char *)workspace, bytes});
}

cudnnStatus_t emu_cudnnConvolutionBackwardData(emu_place at, cudnnHandle_t handle, const void *alpha,
                                               cudnnFilterDescriptor_t w_desc, const void *w,
                                               cudnnTensorDescriptor_t dy_desc, const void *dy,
                                               cudnnConvolutionDescriptor_t conv,
                                               cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace, size_t bytes,
                                               const void *beta, cudnnTensorDescriptor_t dx_desc, void *dx)
{
    return problem_add(at, "cudnnConvolutionBackwardData", handle, alpha, beta,
                       problem{DATA, algorithm, *dx_desc, *dy_desc, *w_desc, *conv},
                       operands{(float *)dx, (float *)w, (float *)dy, (char *)workspace, bytes});
}

cudnnStatus_t emu_cudnnConvolutionBackwardFilter(emu_place at, cudnnHandle_t handle, const void *alpha,
                                                 cudnnTensorDescriptor_t x_desc, const void *x,
                                                 cudnnTensorDescriptor_t dy_desc, const void *dy,
                                                 cudnnConvolutionDescriptor_t conv,
                                                 cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                                 size_t bytes, const void *beta, cudnnFilterDescriptor_t dw_desc,
                                                 void *dw)
{
    return problem_add(at, "cudnnConvolutionBackwardFilter", handle, alpha, beta,
                       problem{FILTER, algorithm, *x_desc, *dy_desc, *dw_desc, *conv},
                       operands{(float *)x, (float *)dw, (float *)dy, (char *)workspace, bytes});
}
