// SPDX-License-Identifier: Apache-2.0
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/ops/activation.h"
#include "workerd/nn/ops/attention.h"
#include "workerd/nn/ops/avgpool.h"
#include "workerd/nn/ops/bias.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/conv2d_pool.h"
#include "workerd/nn/ops/embedding.h"
#include "workerd/nn/ops/losses.h"
#include "workerd/nn/ops/normalize.h"
#include "workerd/nn/ops/pad2d.h"
#include "workerd/nn/ops/penalty.h"
#include "workerd/nn/ops/resize2d.h"
#include "workerd/nn/ops/rnn.h"

// Numbers too small for a normal float count as 0 while a network is computed, as they do in TensorFlow: they mean
// nothing there, and each takes the processor a hundred times as long. Threads of OpenMP have it from the one that
// starts them. The rules, which are to give the same bits everywhere, run outside.
#ifdef __SSE__
enum { FLUSH = 1 << 15 | 1 << 6 };  // results; operands

static void cpu_enter(struct nn_context *context)
{
    nn_cpu_use_threads(context);
    context->control = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(context->control | FLUSH);
}

static void cpu_leave(struct nn_context *context)
{
    __builtin_ia32_ldmxcsr(context->control);
}
#else
static void cpu_enter(struct nn_context *context)
{
    nn_cpu_use_threads(context);
}

static void cpu_leave(struct nn_context *context)
{
    (void)context;
}
#endif

static void cpu_close(struct nn_context *context)
{
    if (!context)
        return;
    dnnl_stream_destroy(context->stream);
    dnnl_engine_destroy(context->engine);
    free(context);
}

static enum ps_code cpu_open(int index, int threads, struct nn_context **context, struct ps_error *e)
{
    (void)index;
    struct nn_context *c = ps_alloc(sizeof *c);
    c->threads = threads > 0 ? threads : 1;
    dnnl_status_t s = dnnl_engine_create(&c->engine, dnnl_cpu, 0);
    if (!s)
        s = dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags);
    if (s) {
        cpu_close(c);
        return nn_cpu_fail(e, s, "cannot open the CPU");
    }
    *context = c;
    return PS_OK;
}

static const struct {
    const struct nn_op_class *class;
    const struct nn_kernel *kernel;
} kernels[] = {
    {&nn_op_activation, &nn_cpu_activation},
    {&nn_op_activation_backward, &nn_cpu_activation_backward},
    {&nn_op_add, &nn_cpu_add},
    {&nn_op_affine, &nn_cpu_affine},
    {&nn_op_attention_scores, &nn_cpu_attention_scores},
    {&nn_op_attention_sum, &nn_cpu_attention_sum},
    {&nn_op_attention_softmax, &nn_cpu_attention_softmax},
    {&nn_op_attention_softmax_backward, &nn_cpu_attention_softmax_backward},
    {&nn_op_avgpool, &nn_cpu_avgpool},
    {&nn_op_avgpool_backward, &nn_cpu_avgpool_backward},
    {&nn_op_axis_function, &nn_cpu_axis_function},
    {&nn_op_axis_function_backward, &nn_cpu_axis_function_backward},
    {&nn_op_bias, &nn_cpu_bias},
    {&nn_op_bias_backward, &nn_cpu_bias_backward},
    {&nn_op_binary, &nn_cpu_binary},
    {&nn_op_conv2d, &nn_cpu_conv2d},
    {&nn_op_conv2d_backward_data, &nn_cpu_conv2d_backward_data},
    {&nn_op_conv2d_backward_weights, &nn_cpu_conv2d_backward_weights},
    {&nn_op_conv2d_pool, &nn_cpu_conv2d_pool},
    {&nn_op_conv2d_pool_backward_data, &nn_cpu_conv2d_pool_backward_data},
    {&nn_op_conv2d_pool_backward_weights, &nn_cpu_conv2d_pool_backward_weights},
    {&nn_op_copy, &nn_cpu_copy},
    {&nn_op_dense, &nn_cpu_dense},
    {&nn_op_dense_backward_data, &nn_cpu_dense_backward_data},
    {&nn_op_dense_backward_weights, &nn_cpu_dense_backward_weights},
    {&nn_op_dropout, &nn_cpu_dropout},
    {&nn_op_embedding, &nn_cpu_embedding},
    {&nn_op_embedding_backward, &nn_cpu_embedding_backward},
    {&nn_op_loss, &nn_cpu_loss},
    {&nn_op_maxpool, &nn_cpu_maxpool},
    {&nn_op_maxpool_backward, &nn_cpu_maxpool_backward},
    {&nn_op_moments, &nn_cpu_moments},
    {&nn_op_normalize, &nn_cpu_normalize},
    {&nn_op_normalize_backward, &nn_cpu_normalize_backward},
    {&nn_op_normalize_by, &nn_cpu_normalize_by},
    {&nn_op_normalize_by_backward, &nn_cpu_normalize_by_backward},
    {&nn_op_pad2d, &nn_cpu_pad2d},
    {&nn_op_penalty, &nn_cpu_penalty},
    {&nn_op_penalty_backward, &nn_cpu_penalty_backward},
    {&nn_op_reduce, &nn_cpu_reduce},
    {&nn_op_relu, &nn_cpu_relu},
    {&nn_op_relu_backward, &nn_cpu_relu_backward},
    {&nn_op_rnn, &nn_cpu_rnn},
    {&nn_op_rnn_backward, &nn_cpu_rnn_backward},
    {&nn_op_softmax, &nn_cpu_softmax},
    {&nn_op_softmax_backward, &nn_cpu_softmax_backward},
    {&nn_op_softmax_xent, &nn_cpu_softmax_xent},
    {&nn_op_resize2d, &nn_cpu_resize2d},
    {&nn_op_resize2d_backward, &nn_cpu_resize2d_backward},
};

static const struct nn_kernel *cpu_pick(const struct nn_op *op)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].class == op->class)
            return kernels[i].kernel;
    return &nn_kernel_ref;
}

// The kernel of a convolution is read once for each image: where that is too large for the nearest memory, oneDNN's
// blocks are better.
static bool cpu_joins(const struct nn_op *op)
{
    enum { LARGEST = 512 << 10 };
    return op->class == &nn_op_conv2d_pool && nn_type_bytes(&op->in_type[1]) <= LARGEST;
}

static void cpu_describe(char *text, size_t size)
{
    const dnnl_version_t *version = dnnl_version();
    int isa = (int)dnnl_get_effective_cpu_isa();
    snprintf(text, size, "oneDNN %d.%d.%d, %s, %d processors", version->major, version->minor, version->patch,
             isa == (isa | dnnl_cpu_isa_avx512_core) ? "AVX-512"
             : isa == (isa | dnnl_cpu_isa_avx2)      ? "AVX2"
                                                     : "vectors of 16 bytes",
             omp_get_num_procs());
}

const struct nn_device nn_device_cpu = {.name = "cpu",
                                        .describe = cpu_describe,
                                        .open = cpu_open,
                                        .close = cpu_close,
                                        .enter = cpu_enter,
                                        .leave = cpu_leave,
                                        .pick = cpu_pick,
                                        .joins = cpu_joins,
                                        .peak = nn_cpu_peak};
