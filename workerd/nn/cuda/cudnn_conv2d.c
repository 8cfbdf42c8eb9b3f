// SPDX-License-Identifier: Apache-2.0
//
// What a convolution of cuDNN needs, prepared when the program is planned: descriptors, and for each kind of
// multiplication an algorithm that gives the same bits in every run. Images are NHWC. Filters may be of either order:
// some versions of cuDNN have an algorithm for one alone.
#include "workerd/nn/cuda/cudnn_inside.h"

#ifdef HAVE_CUDNN

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"

// How factors are multiplied: as they are, or rounded to TF32 where the GPU has it. cuDNN never rounds float32 to
// bfloat16, but to float16, of which the range is smaller; who asks for bfloat16 gets TF32 of it.
enum { MATH_FMA, MATH_TENSOR, MATHS };
static const cudnnMathType_t cudnn_math[MATHS] = {CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH};

enum { FORMATS = 2, PINNED = 2, ALGORITHMS = CUDNN_CONVOLUTION_FWD_ALGO_COUNT };  // no way has more than forward

// By their numbers.
static const char *const cudnn_names[NN_CUDNN_WAYS][ALGORITHMS] = {
    [NN_CUDNN_FORWARD] = {"cudnn:implicit_gemm", "cudnn:implicit_precomp_gemm", "cudnn:gemm", "cudnn:direct",
                          "cudnn:fft", "cudnn:fft_tiling", "cudnn:winograd", "cudnn:winograd_nonfused"},
    [NN_CUDNN_DATA] = {"cudnn:algo_0", "cudnn:algo_1", "cudnn:fft", "cudnn:fft_tiling", "cudnn:winograd",
                       "cudnn:winograd_nonfused"},
    [NN_CUDNN_WEIGHTS] = {"cudnn:algo_0", "cudnn:algo_1", "cudnn:fft", "cudnn:algo_3", "cudnn:winograd",
                          "cudnn:winograd_nonfused", "cudnn:fft_tiling"},
};

// Those that are deterministic, as cuDNN documents, in the order in which they are tried.
static const int cudnn_pinned[NN_CUDNN_WAYS][PINNED] = {
    [NN_CUDNN_FORWARD] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM},
    [NN_CUDNN_DATA] = {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
    [NN_CUDNN_WEIGHTS] = {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
};
static const cudnnTensorFormat_t cudnn_formats[FORMATS] = {CUDNN_TENSOR_NHWC, CUDNN_TENSOR_NCHW};

// An algorithm that asks for more is left alone: own kernels have patches of 256 MiB.
static const size_t cudnn_workspace_most = (size_t)1 << 30;

struct cudnn_choice {
    bool found;
    int algorithm, math, format;  // the filter's, in cudnn_formats
    size_t workspace;
};

struct nn_cudnn_conv2d {
    struct nn_context *context;
    enum nn_cudnn_way way;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t filter[FORMATS];
    cudnnConvolutionDescriptor_t conv[MATHS];
    struct cudnn_choice choice[MATHS];
    size_t filter_bytes;  // what is kept of the scratch memory for the filter
};

// ---- descriptors --------------------------------------------------------------------------------------------------

static int cudnn_places(int size, int pad, int window, int dilation, int stride)
{
    return (size + 2 * pad - (window - 1) * dilation - 1) / stride + 1;
}

// cuDNN pads both sides alike. That comes to the same where the rows and columns that it pads more than we, or less,
// are those that no window reaches.
static bool cudnn_is_even(const struct nn_cuda_conv2d *s)
{
    return cudnn_places(s->h, s->pad[0], s->kh, s->dilation[0], s->stride[0]) == s->oh &&
           cudnn_places(s->w, s->pad[1], s->kw, s->dilation[1], s->stride[1]) == s->ow;
}

static cudnnStatus_t cudnn_describe_tensor(cudnnTensorDescriptor_t *t, int n, int c, int h, int w)
{
    const cudnnStatus_t status = CUDNN(cudnnCreateTensorDescriptor, t);
    return status ? status : CUDNN(cudnnSetTensor4dDescriptor, *t, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, n, c, h, w);
}

static cudnnStatus_t cudnn_describe_filter(cudnnFilterDescriptor_t *filter, cudnnTensorFormat_t format,
                                           const struct nn_cuda_conv2d *s)
{
    const cudnnStatus_t status = CUDNN(cudnnCreateFilterDescriptor, filter);
    return status ? status
                  : CUDNN(cudnnSetFilter4dDescriptor, *filter, CUDNN_DATA_FLOAT, format, s->oc, s->c / s->groups, s->kh,
                          s->kw);
}

static cudnnStatus_t cudnn_describe_windows(cudnnConvolutionDescriptor_t *conv, cudnnMathType_t math,
                                            const struct nn_cuda_conv2d *s)
{
    cudnnStatus_t status = CUDNN(cudnnCreateConvolutionDescriptor, conv);
    if (status == CUDNN_STATUS_SUCCESS)
        status = CUDNN(cudnnSetConvolution2dDescriptor, *conv, s->pad[0], s->pad[1], s->stride[0], s->stride[1],
                       s->dilation[0], s->dilation[1], CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    if (status == CUDNN_STATUS_SUCCESS)
        status = CUDNN(cudnnSetConvolutionGroupCount, *conv, s->groups);
    return status ? status : CUDNN(cudnnSetConvolutionMathType, *conv, math);
}

static cudnnStatus_t cudnn_describe(struct nn_cudnn_conv2d *p, const struct nn_cuda_conv2d *s)
{
    cudnnStatus_t status = cudnn_describe_tensor(&p->x, s->n, s->c, s->h, s->w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn_describe_tensor(&p->y, s->n, s->oc, s->oh, s->ow);
    for (int i = 0; i < FORMATS && status == CUDNN_STATUS_SUCCESS; i++)
        status = cudnn_describe_filter(&p->filter[i], cudnn_formats[i], s);
    for (int i = 0; i < MATHS && status == CUDNN_STATUS_SUCCESS; i++)
        status = cudnn_describe_windows(&p->conv[i], cudnn_math[i], s);
    return status;
}

void nn_cudnn_free_conv2d(struct nn_cudnn_conv2d *p)
{
    if (!p)
        return;
    if (p->x)
        CUDNN(cudnnDestroyTensorDescriptor, p->x);
    if (p->y)
        CUDNN(cudnnDestroyTensorDescriptor, p->y);
    for (int i = 0; i < FORMATS; i++)
        if (p->filter[i])
            CUDNN(cudnnDestroyFilterDescriptor, p->filter[i]);
    for (int i = 0; i < MATHS; i++)
        if (p->conv[i])
            CUDNN(cudnnDestroyConvolutionDescriptor, p->conv[i]);
    free(p);
}

// ---- algorithms ---------------------------------------------------------------------------------------------------

static cudnnStatus_t cudnn_workspace(const struct nn_cudnn_conv2d *p, int math, int format, int algorithm,
                                     size_t *bytes)
{
    const cudnnHandle_t handle = p->context->cudnn;
    switch (p->way) {
    case NN_CUDNN_FORWARD:
        return CUDNN(cudnnGetConvolutionForwardWorkspaceSize, handle, p->x, p->filter[format], p->conv[math], p->y,
                     (cudnnConvolutionFwdAlgo_t)algorithm, bytes);
    case NN_CUDNN_DATA:
        return CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize, handle, p->filter[format], p->y, p->conv[math], p->x,
                     (cudnnConvolutionBwdDataAlgo_t)algorithm, bytes);
    default:
        return CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize, handle, p->x, p->y, p->conv[math],
                     p->filter[format], (cudnnConvolutionBwdFilterAlgo_t)algorithm, bytes);
    }
}

// Has this cuDNN that algorithm for these shapes, on this GPU?
static bool cudnn_has(const struct nn_cudnn_conv2d *p, int math, int format, int algorithm, struct cudnn_choice *choice)
{
    size_t bytes = 0;
    if (cudnn_workspace(p, math, format, algorithm, &bytes) || bytes > cudnn_workspace_most)
        return false;
    *choice = (struct cudnn_choice){true, algorithm, math, format, bytes};
    return true;
}

static void cudnn_choose(const struct nn_cudnn_conv2d *p, int math, struct cudnn_choice *choice)
{
    for (int i = 0; i < PINNED && !choice->found; i++)
        for (int format = 0; format < FORMATS && !choice->found; format++)
            cudnn_has(p, math, format, cudnn_pinned[p->way][i], choice);
}

// The fastest first. It takes memory of the device by itself, and gives it back.
#define CUDNN_MEASURE(function, perf, ...)                                                                         \
    do {                                                                                                           \
        perf found[ALGORITHMS];                                                                                    \
        if (CUDNN(function, p->context->cudnn, __VA_ARGS__, ALGORITHMS, &n, found))                                \
            return 0;                                                                                              \
        for (int i = 0; i < n; i++)                                                                                \
            measured[i] = (struct cudnn_measured){(int)found[i].algo, found[i].status ? INFINITY : found[i].time}; \
        return n;                                                                                                  \
    } while (0)

struct cudnn_measured {
    int algorithm;
    float milliseconds;
};

static int cudnn_measure(const struct nn_cudnn_conv2d *p, int math, int format, struct cudnn_measured *measured)
{
    const cudnnFilterDescriptor_t f = p->filter[format];
    int n = 0;
    switch (p->way) {
    case NN_CUDNN_FORWARD:
        CUDNN_MEASURE(cudnnFindConvolutionForwardAlgorithm, cudnnConvolutionFwdAlgoPerf_t, p->x, f, p->conv[math],
                      p->y);
    case NN_CUDNN_DATA:
        CUDNN_MEASURE(cudnnFindConvolutionBackwardDataAlgorithm, cudnnConvolutionBwdDataAlgoPerf_t, f, p->y,
                      p->conv[math], p->x);
    default:
        CUDNN_MEASURE(cudnnFindConvolutionBackwardFilterAlgorithm, cudnnConvolutionBwdFilterAlgoPerf_t, p->x, p->y,
                      p->conv[math], f);
    }
}

static void cudnn_choose_fastest(const struct nn_cudnn_conv2d *p, int math, struct cudnn_choice *choice)
{
    float least = INFINITY;
    for (int format = 0; format < FORMATS; format++) {
        struct cudnn_measured measured[ALGORITHMS];
        const int n = cudnn_measure(p, math, format, measured);
        for (int i = 0; i < n; i++)
            if (measured[i].milliseconds < least && cudnn_has(p, math, format, measured[i].algorithm, choice))
                least = measured[i].milliseconds;
    }
}

static int cudnn_math_now(const struct nn_cudnn_conv2d *p)
{
    return p->context->precision == NN_FLOAT32 ? MATH_FMA : MATH_TENSOR;
}

// Where nothing can be measured, as for want of memory, those that are pinned serve. Rounding is allowed, not asked
// for.
static bool cudnn_choose_all(struct nn_cudnn_conv2d *p)
{
    if (p->context->convolutions == NN_CONVOLUTIONS_FASTEST)
        cudnn_choose_fastest(p, cudnn_math_now(p), &p->choice[cudnn_math_now(p)]);
    for (int math = 0; math < MATHS; math++)
        cudnn_choose(p, math, &p->choice[math]);
    if (!p->choice[MATH_TENSOR].found)
        p->choice[MATH_TENSOR] = p->choice[MATH_FMA];
    return p->choice[MATH_FMA].found;
}

// ---- plans --------------------------------------------------------------------------------------------------------

static enum ps_code cudnn_reserve_all(const struct nn_cudnn_conv2d *p, struct ps_error *e)
{
    size_t most = 0;
    for (int math = 0; math < MATHS; math++)
        most = p->choice[math].workspace > most ? p->choice[math].workspace : most;
    return nn_cuda_reserve(p->context, p->filter_bytes + most, e);
}

enum ps_code nn_cudnn_plan_conv2d(struct nn_context *c, enum nn_cudnn_way way, const struct nn_cuda_conv2d *s,
                                  struct nn_cudnn_conv2d **plan, struct ps_error *e)
{
    struct ps_error why;
    *plan = NULL;
    nn_cuda_note(c, cudaSetDevice(c->index), "it is set for a thread");
    if (c->convolutions == NN_CONVOLUTIONS_OWN || !cudnn_is_even(s) || nn_cudnn_check(c, &why))
        return PS_OK;
    const size_t filter = (size_t)s->oc * (size_t)(s->c / s->groups) * (size_t)s->kh * (size_t)s->kw * sizeof(float);
    struct nn_cudnn_conv2d *p = ps_alloc(sizeof *p);
    *p = (struct nn_cudnn_conv2d){.context = c, .way = way, .filter_bytes = (filter + 255) / 256 * 256};
    if (cudnn_describe(p, s) || !cudnn_choose_all(p)) {
        nn_cudnn_free_conv2d(p);
        return PS_OK;
    }
    if (cudnn_reserve_all(p, e)) {
        nn_cudnn_free_conv2d(p);
        return e->code;
    }
    *plan = p;
    return PS_OK;
}

struct nn_cudnn_filter nn_cudnn_filter_of(const struct nn_cudnn_conv2d *p)
{
    const int format = p->choice[cudnn_math_now(p)].format;
    return (struct nn_cudnn_filter){p->context->scratch, cudnn_formats[format] == CUDNN_TENSOR_NHWC};
}

const char *nn_cudnn_info_conv2d(const struct nn_cudnn_conv2d *p)
{
    return cudnn_names[p->way][p->choice[cudnn_math_now(p)].algorithm];
}

// ---- runs ---------------------------------------------------------------------------------------------------------

static cudnnStatus_t cudnn_run_way(const struct nn_cudnn_conv2d *p, const struct cudnn_choice *choice, float *x,
                                   float *y)
{
    const float one = 1, none = 0;
    const cudnnHandle_t handle = p->context->cudnn;
    const cudnnFilterDescriptor_t f = p->filter[choice->format];
    const cudnnConvolutionDescriptor_t conv = p->conv[choice->math];
    const int algorithm = choice->algorithm;
    float *filter = p->context->scratch;
    void *workspace = choice->workspace ? (char *)p->context->scratch + p->filter_bytes : NULL;
    switch (p->way) {
    case NN_CUDNN_FORWARD:
        return CUDNN(cudnnConvolutionForward, handle, &one, p->x, x, f, filter, conv,
                     (cudnnConvolutionFwdAlgo_t)algorithm, workspace, choice->workspace, &none, p->y, y);
    case NN_CUDNN_DATA:
        return CUDNN(cudnnConvolutionBackwardData, handle, &one, f, filter, p->y, y, conv,
                     (cudnnConvolutionBwdDataAlgo_t)algorithm, workspace, choice->workspace, &none, p->x, x);
    default:
        return CUDNN(cudnnConvolutionBackwardFilter, handle, &one, p->x, x, p->y, y, conv,
                     (cudnnConvolutionBwdFilterAlgo_t)algorithm, workspace, choice->workspace, &none, f, filter);
    }
}

void nn_cudnn_run_conv2d(const struct nn_cudnn_conv2d *p, float *x, float *y)
{
    if (p->context->error.code == PS_OK)
        nn_cudnn_note(p->context, cudnn_run_way(p, &p->choice[cudnn_math_now(p)], x, y), "a convolution of cuDNN");
}

#else

enum ps_code nn_cudnn_plan_conv2d(struct nn_context *c, enum nn_cudnn_way way, const struct nn_cuda_conv2d *s,
                                  struct nn_cudnn_conv2d **plan, struct ps_error *e)
{
    (void)c, (void)way, (void)s, (void)e;
    *plan = NULL;
    return PS_OK;
}

void nn_cudnn_free_conv2d(struct nn_cudnn_conv2d *p)
{
    (void)p;
}

struct nn_cudnn_filter nn_cudnn_filter_of(const struct nn_cudnn_conv2d *p)
{
    (void)p;
    return (struct nn_cudnn_filter){0};
}

const char *nn_cudnn_info_conv2d(const struct nn_cudnn_conv2d *p)
{
    (void)p;
    return NULL;
}

void nn_cudnn_run_conv2d(const struct nn_cudnn_conv2d *p, float *x, float *y)
{
    (void)p, (void)x, (void)y;
}

#endif
