// SPDX-License-Identifier: Apache-2.0
//
// A dense layer is three matrix products. They go to oneDNN's sgemm, which takes Keras's layout as it is: a primitive
// would pack the weights anew at every step.
#include "workerd/nn/cpu/cpu.h"

// y = x w
static void dense_run(const struct nn_frame *f)
{
    const struct nn_dense *a = (const struct nn_dense *)f->op->attr;
    const struct nn_type *w = &f->op->in_type[1];
    dnnl_dim_t n = (dnnl_dim_t)nn_type_rows(&f->op->in_type[0]), in = w->dim[0], out = w->dim[1];
    nn_cpu_must(dnnl_sgemm('N', 'N', n, out, in, 1, f->in[0], in, f->in[1], out, 0, f->out[0], out), "dense");
    nn_cpu_bias_activation(f->context, a->act, (size_t)n, (size_t)out, a->bias ? f->in[2] : NULL, f->out[0]);
}

// dw = x^T dy
static void dense_run_weights(const struct nn_frame *f)
{
    const struct nn_type *dw = &f->op->out_type[0];
    dnnl_dim_t n = (dnnl_dim_t)nn_type_rows(&f->op->in_type[0]), in = dw->dim[0], out = dw->dim[1];
    if (f->op->n_out > 1)
        nn_cpu_sum_rows(f->context, (size_t)n, (size_t)out, f->in[1], f->out[1]);
    nn_cpu_must(dnnl_sgemm('T', 'N', in, out, n, 1, f->in[0], in, f->in[1], out, 0, f->out[0], out),
                "dense weight gradient");
}

// dx = dy w^T
static void dense_run_data(const struct nn_frame *f)
{
    const struct nn_type *w = &f->op->in_type[0];
    dnnl_dim_t n = (dnnl_dim_t)nn_type_rows(&f->op->in_type[1]), in = w->dim[0], out = w->dim[1];
    nn_cpu_must(dnnl_sgemm('N', 'T', n, in, out, 1, f->in[1], out, f->in[0], out, 0, f->out[0], in),
                "dense data gradient");
}

static const char *dense_info(const void *plan)
{
    (void)plan;
    return "sgemm";
}

const struct nn_kernel nn_cpu_dense = {.run = dense_run, .info = dense_info};
const struct nn_kernel nn_cpu_dense_backward_weights = {.run = dense_run_weights, .info = dense_info};
const struct nn_kernel nn_cpu_dense_backward_data = {.run = dense_run_data, .info = dense_info};
