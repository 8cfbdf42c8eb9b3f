// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "config.h"
#include "workerd/nn/cuda/cuda.h"
#include "workerd/nn/cuda/implicit.h"
#include "workerd/nn/cuda/version.h"
#include "workerd/nn/ops/activation.h"
#include "workerd/nn/ops/attention.h"
#include "workerd/nn/ops/avgpool.h"
#include "workerd/nn/ops/bias.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/both_ways.h"
#include "workerd/nn/ops/concat.h"
#include "workerd/nn/ops/dot.h"
#include "workerd/nn/ops/embedding.h"
#include "workerd/nn/ops/lookup.h"
#include "workerd/nn/ops/losses.h"
#include "workerd/nn/ops/mask.h"
#include "workerd/nn/ops/noise.h"
#include "workerd/nn/ops/normalize.h"
#include "workerd/nn/ops/pad2d.h"
#include "workerd/nn/ops/penalty.h"
#include "workerd/nn/ops/resize2d.h"
#include "workerd/nn/ops/rnn.h"
#include "workerd/nn/ops/transpose.h"

// What the module says that it is of (module.c).
extern const char nn_cuda_version[];
const char nn_cuda_version[] = PACKAGE_VERSION;
extern const struct nn_device nn_device_cuda;

static const struct {
    const struct nn_op_class *class;
    const struct nn_kernel *kernel;
    bool (*fits)(const struct nn_op *op);  // NULL: whatever the shapes are
} kernels[] = {
    {&nn_op_activation, &nn_cuda_activation},
    {&nn_op_activation_backward, &nn_cuda_activation_backward},
    {&nn_op_add, &nn_cuda_add},
    {&nn_op_affine, &nn_cuda_affine},
    {&nn_op_any, &nn_cuda_any},
    {&nn_op_attention_scores, &nn_cuda_attention_scores},
    {&nn_op_attention_softmax, &nn_cuda_attention_softmax},
    {&nn_op_attention_softmax_backward, &nn_cuda_attention_softmax_backward},
    {&nn_op_attention_sum, &nn_cuda_attention_sum},
    {&nn_op_avgpool, &nn_cuda_avgpool},
    {&nn_op_avgpool_backward, &nn_cuda_avgpool_backward},
    {&nn_op_axis_function, &nn_cuda_axis_function},
    {&nn_op_axis_function_backward, &nn_cuda_axis_function_backward},
    {&nn_op_bias, &nn_cuda_bias},
    {&nn_op_bias_backward, &nn_cuda_bias_backward},
    {&nn_op_binary, &nn_cuda_binary},
    {&nn_op_bins, &nn_cuda_bins},
    {&nn_op_both_ways, &nn_cuda_both_ways},
    {&nn_op_both_ways_backward, &nn_cuda_both_ways_backward},
    {&nn_op_choose, &nn_cuda_choose},
    {&nn_op_concat, &nn_cuda_concat},
    {&nn_op_concat_backward, &nn_cuda_concat_backward},
    {&nn_op_constant, &nn_cuda_constant},
    {&nn_op_conv2d, &nn_cuda_conv2d},
    {&nn_op_conv2d_backward_data, &nn_cuda_conv2d_backward_data},
    {&nn_op_conv2d_backward_weights, &nn_cuda_conv2d_backward_weights},
    {&nn_op_copy, &nn_cuda_copy},
    {&nn_op_dense, &nn_cuda_dense},
    {&nn_op_dense_backward_data, &nn_cuda_dense_backward_data},
    {&nn_op_dense_backward_weights, &nn_cuda_dense_backward_weights},
    {&nn_op_dot, &nn_cuda_dot, nn_cuda_dot_fits},
    {&nn_op_dot_backward, &nn_cuda_dot_backward, nn_cuda_dot_backward_fits},
    {&nn_op_dropout, &nn_cuda_dropout},
    {&nn_op_embedding, &nn_cuda_embedding},
    {&nn_op_embedding_backward, &nn_cuda_embedding_backward},
    {&nn_op_flip, &nn_cuda_flip},
    {&nn_op_lookup, &nn_cuda_lookup},
    {&nn_op_loss, &nn_cuda_loss},
    {&nn_op_loss_weights, &nn_cuda_loss_weights},
    {&nn_op_mask_and, &nn_cuda_mask_and},
    {&nn_op_mask_or, &nn_cuda_mask_or},
    {&nn_op_masked, &nn_cuda_masked},
    {&nn_op_masked_mean, &nn_cuda_masked_mean},
    {&nn_op_masked_mean_backward, &nn_cuda_masked_mean_backward},
    {&nn_op_maxpool, &nn_cuda_maxpool},
    {&nn_op_maxpool_backward, &nn_cuda_maxpool_backward},
    {&nn_op_mse, &nn_cuda_mse},
    {&nn_op_noise, &nn_cuda_noise},
    {&nn_op_moments, &nn_cuda_moments},
    {&nn_op_normalize, &nn_cuda_normalize},
    {&nn_op_normalize_backward, &nn_cuda_normalize_backward},
    {&nn_op_normalize_by, &nn_cuda_normalize_by},
    {&nn_op_normalize_by_backward, &nn_cuda_normalize_by_backward},
    {&nn_op_not_equal, &nn_cuda_not_equal},
    {&nn_op_pad2d, &nn_cuda_pad2d},
    {&nn_op_penalty, &nn_cuda_penalty},
    {&nn_op_penalty_backward, &nn_cuda_penalty_backward},
    {&nn_op_places, &nn_cuda_places},
    {&nn_op_places_backward, &nn_cuda_places_backward},
    {&nn_op_reduce, &nn_cuda_reduce},
    {&nn_op_relu, &nn_cuda_relu},
    {&nn_op_relu_backward, &nn_cuda_relu_backward},
    {&nn_op_repeat, &nn_cuda_repeat},
    {&nn_op_repeat_backward, &nn_cuda_repeat_backward},
    {&nn_op_resize2d, &nn_cuda_resize2d},
    {&nn_op_resize2d_backward, &nn_cuda_resize2d_backward},
    {&nn_op_rnn, &nn_cuda_rnn},
    {&nn_op_rnn_backward, &nn_cuda_rnn_backward},
    {&nn_op_softmax, &nn_cuda_softmax},
    {&nn_op_softmax_backward, &nn_cuda_softmax_backward},
    {&nn_op_softmax_xent, &nn_cuda_softmax_xent},
    {&nn_op_sparse_xent, &nn_cuda_sparse_xent},
    {&nn_op_spread, &nn_cuda_spread},
    {&nn_op_transpose, &nn_cuda_transpose},
    {&nn_op_truncate, &nn_cuda_truncate},
    {&nn_op_unit_length, &nn_cuda_unit_length},
    {&nn_op_unit_length_backward, &nn_cuda_unit_length},
    {&nn_op_window, &nn_cuda_window},
    {&nn_op_window_backward, &nn_cuda_window_backward},
};

static const struct nn_kernel *cuda_pick(const struct nn_op *op)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].class == op->class && (!kernels[i].fits || kernels[i].fits(op)))
            return kernels[i].kernel;
    return &nn_kernel_ref;
}

// ---- devices ------------------------------------------------------------------------------------------------------

static enum ps_code cuda_count(int *count, struct ps_error *e)
{
    int driver = 0;
    const cudaError_t error = cudaGetDeviceCount(count);
    cudaGetLastError();
    if (error == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "the NVIDIA driver of this machine is %s: expected %s or later, which CUDA %d.%d needs",
                       driver ? "too old" : "not there", NN_CUDA_DRIVER, CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0))
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "there is no GPU that CUDA sees: expected one, and "
                       "CUDA_VISIBLE_DEVICES, if it is set, to name it");
    if (error == cudaErrorSystemNotReady)
        return ps_fail(e, nn_cuda_code(error),
                       "the GPUs are not set up yet: expected NVIDIA's services to run, "
                       "nvidia-fabricmanager where they have NVSwitch (cudaErrorSystemNotReady)");
    if (error)
        return ps_fail(e, PS_FAILED_PRECONDITION, "CUDA cannot be used here: %s (%s)", cudaGetErrorString(error),
                       cudaGetErrorName(error));
    return PS_OK;
}

static void cuda_know(struct nn_context *c)
{
    struct cudaDeviceProp properties;
    const bool known = cudaGetDeviceProperties(&properties, c->index) == cudaSuccess;
    c->major = known ? properties.major : 0;
    c->minor = known ? properties.minor : 0;
    c->tensor_cores = c->major >= 8 && nn_cuda_implicit_has_tensor_cores();
    snprintf(c->name, sizeof c->name, "gpu:%d (%.64s)", c->index, known ? properties.name : "of an unknown kind");
}

static void cuda_close(struct nn_context *c)
{
    if (!c)
        return;
    cudaSetDevice(c->index);
    nn_cuda_close_peers(c);
    nn_cuda_close_sums(c);
    nn_cudnn_close(c);
    if (c->blas)
        cublasDestroy(c->blas);
    nn_cuda_close_memory(c);
    free(c);
}

// A GPU that is older than those for which configure's NVCCFLAGS have the module built.
static enum ps_code cuda_check_kernels(const struct nn_context *c, struct ps_error *e)
{
    const cudaError_t error = nn_cuda_find_kernels();
    e->code = PS_OK;
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction)
        return PS_OK;
    cudaGetLastError();
    const int capability = 10 * c->major + c->minor;
    if (capability < 70)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s has compute capability %d.%d: expected a GPU of 7.0 or later",
                       c->name, c->major, c->minor);
    return ps_fail(
        e, PS_FAILED_PRECONDITION,
        "%s has compute capability %d.%d, and the CUDA module has no kernels for that: expected a later GPU, "
        "or a module built with %s-arch=sm_%d%d in NVCCFLAGS",
        c->name, c->major, c->minor, capability < NN_CUDA_OLDEST ? "CUDA 12 and " : "", c->major, c->minor);
}

// Bytes, as NVIDIA recommends (cublasSetWorkspace): more from compute capability 9.0 on.
static size_t cuda_workspace(const struct nn_context *c)
{
    return (size_t)(c->major >= 9 ? 32 : 4) << 20;
}

// Where it has no memory for itself, it says that it was not initialized.
static enum ps_code cuda_create_blas(struct nn_context *c, struct ps_error *e)
{
    const cublasStatus_t status = cublasCreate(&c->blas);
    e->code = PS_OK;
    if (status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ALLOC_FAILED)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                       "%s: cuBLAS cannot be opened: %s; the GPU has %zu bytes of memory left", c->name,
                       cublasGetStatusString(status), nn_cuda_memory.available(c));
    nn_cuda_note_blas(c, status, "cuBLAS");
    return c->error.code ? ps_fail(e, c->error.code, "%s", c->error.text) : PS_OK;
}

static enum ps_code cuda_open_blas(struct nn_context *c, struct ps_error *e)
{
    const size_t workspace = cuda_workspace(c);
    if (nn_cuda_memory.get(c, workspace, &c->workspace, e))
        return ps_error_prefix(e, "cuBLAS");
    if (cuda_create_blas(c, e))
        return e->code;
    nn_cuda_note_blas(c, cublasSetStream(c->blas, c->stream), "cuBLAS");
    nn_cuda_note_blas(c, cublasSetWorkspace(c->blas, c->workspace, workspace), "cuBLAS");
    nn_cuda_note_blas(c, cublasSetMathMode(c->blas, CUBLAS_DEFAULT_MATH), "cuBLAS");
    nn_cuda_note_blas(c, cublasSetAtomicsMode(c->blas, CUBLAS_ATOMICS_NOT_ALLOWED), "cuBLAS");
    return c->error.code ? ps_fail(e, c->error.code, "%s", c->error.text) : PS_OK;
}

static enum ps_code cuda_open(int index, int threads, struct nn_context **context, struct ps_error *e)
{
    int count;
    (void)threads;
    if (cuda_count(&count, e))
        return e->code;
    if (index >= count)
        return ps_fail(e, PS_FAILED_PRECONDITION, "there is no gpu:%d: CUDA sees %d, expected gpu:0 to gpu:%d", index,
                       count, count - 1);
    struct nn_context *c = ps_alloc(sizeof *c);
    c->index = index;
    nn_cuda_set_precision(c, NN_FLOAT32);
    snprintf(c->name, sizeof c->name, "gpu:%d", index);
    nn_cuda_note(c, cudaSetDevice(index), "cudaSetDevice");
    cuda_know(c);
    nn_cuda_open_memory(c);
    if (cuda_check_kernels(c, e) || cuda_open_blas(c, e)) {
        cuda_close(c);
        return e->code;
    }
    *context = c;
    return PS_OK;
}

static void cuda_enter(struct nn_context *c)
{
    nn_cuda_note(c, cudaSetDevice(c->index), "cudaSetDevice");
}

static void cuda_leave(struct nn_context *c)
{
    (void)c;
}

static void cuda_describe(char *text, size_t size)
{
    struct cudaDeviceProp first;
    struct ps_error e = {PS_OK, ""};
    int count = 0;
    if (cuda_count(&count, &e))
        snprintf(text, size, "%s", e.text);
    else if (cudaGetDeviceProperties(&first, 0) == cudaSuccess)
        snprintf(text, size, "CUDA %d.%d, %d of %s, %.1f GiB", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, count,
                 first.name, (double)first.totalGlobalMem / (1 << 30));
    else
        snprintf(text, size, "CUDA %d.%d, %d GPUs", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, count);
}

const struct nn_device nn_device_cuda = {.name = "gpu",
                                         .describe = cuda_describe,
                                         .open = cuda_open,
                                         .close = cuda_close,
                                         .enter = cuda_enter,
                                         .leave = cuda_leave,
                                         .set_precision = nn_cuda_set_precision,
                                         .set_convolutions = nn_cudnn_set_convolutions,
                                         .pick = cuda_pick,
                                         .memory = &nn_cuda_memory,
                                         .sums = {&nn_cuda_sums, &nn_cuda_peers},
                                         .applies = nn_cuda_applies,
                                         .apply = nn_cuda_apply};
