// SPDX-License-Identifier: Apache-2.0
#include <omp.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/loss.h"

void nn_cpu_enter(const struct nn_context *ctx)
{
    omp_set_num_threads(ctx->threads);
}

enum ps_code nn_cpu_fail(struct ps_error *e, dnnl_status_t status, const char *what)
{
    enum ps_code code = status == dnnl_out_of_memory ? PS_RESOURCE_EXHAUSTED : PS_INTERNAL;
    return ps_fail(e, code, "oneDNN: %s: %s", what, dnnl_status2str(status));
}

void nn_cpu_must(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    ps_error_log("oneDNN: %s: %s", what, dnnl_status2str(status));
    abort();
}

static void cpu_close(struct nn_context *ctx)
{
    if (!ctx)
        return;
    dnnl_stream_destroy(ctx->stream);
    dnnl_engine_destroy(ctx->engine);
    free(ctx);
}

static enum ps_code cpu_open(int threads, struct nn_context **ctx, struct ps_error *e)
{
    struct nn_context *c = ps_alloc(sizeof *c);
    c->threads = threads > 0 ? threads : 1;
    dnnl_status_t s = dnnl_engine_create(&c->engine, dnnl_cpu, 0);
    if (!s)
        s = dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags);
    if (s) {
        cpu_close(c);
        return nn_cpu_fail(e, s, "cannot open the CPU");
    }
    *ctx = c;
    return PS_OK;
}

static void cpu_plan_free(struct nn_plan *plan)
{
    if (plan)
        plan->free(plan);
}

static const char *cpu_plan_info(const struct nn_plan *plan)
{
    return plan->info ? plan->info : "";
}

const struct nn_ops nn_cpu_ops = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .plan_free = cpu_plan_free,
    .plan_info = cpu_plan_info,
    .conv2d_plan = nn_cpu_conv2d_plan,
    .conv2d_forward = nn_cpu_conv2d_forward,
    .conv2d_backward = nn_cpu_conv2d_backward,
    .dense_plan = nn_cpu_dense_plan,
    .dense_forward = nn_cpu_dense_forward,
    .dense_backward = nn_cpu_dense_backward,
    .maxpool_plan = nn_cpu_maxpool_plan,
    .maxpool_forward = nn_cpu_maxpool_forward,
    .maxpool_backward = nn_cpu_maxpool_backward,
    .relu_forward = nn_cpu_relu_forward,
    .relu_backward = nn_cpu_relu_backward,
    .softmax_forward = nn_softmax_forward,
    .softmax_backward = nn_softmax_backward,
    .dropout = nn_cpu_dropout,
    .softmax_xent = nn_cpu_softmax_xent,
    .sparse_xent = nn_sparse_xent,
    .mse = nn_mse,
};
