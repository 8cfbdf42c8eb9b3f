// SPDX-License-Identifier: Apache-2.0
//
// A dense layer is three matrix products. They go to oneDNN's sgemm, which takes Keras's layout as it is: a primitive
// would pack the weights anew at every step.
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/nn/cpu/cpu.h"

struct dense {
    struct nn_plan plan;
    struct nn_dense shape;
};

static void dense_free(struct nn_plan *plan)
{
    free(plan->info);
    free(plan);
}

enum ps_code nn_cpu_dense_plan(struct nn_context *ctx, const struct nn_dense *s, struct nn_plan **plan,
                               struct ps_error *e)
{
    enum ps_code code = nn_dense_check(s, e);
    if (code)
        return code;
    struct dense *d = ps_alloc(sizeof *d);
    d->plan.ctx = ctx;
    d->plan.free = dense_free;
    d->shape = *s;
    d->plan.info = ps_strdup("sgemm");
    *plan = &d->plan;
    return PS_OK;
}

// y = x w
void nn_cpu_dense_forward(struct nn_plan *p, const float *x, const float *w, const float *b, float *y)
{
    const struct nn_dense *s = &((struct dense *)p)->shape;
    nn_cpu_enter(p->ctx);
    nn_cpu_must(dnnl_sgemm('N', 'N', s->n, s->out, s->in, 1, x, s->in, w, s->out, 0, y, s->out), "dense forward");
    nn_cpu_bias_activation(s->act, (size_t)s->n, (size_t)s->out, b, y);
}

// dw = x^T dy, dx = dy w^T
void nn_cpu_dense_backward(struct nn_plan *p, const float *x, const float *w, const float *y, float *dy, float *dx,
                           float *dw, float *db)
{
    const struct nn_dense *s = &((struct dense *)p)->shape;
    nn_cpu_enter(p->ctx);
    if (s->act == NN_RELU)
        nn_cpu_relu_backward((size_t)s->n * s->out, y, dy, dy);
    if (db)
        nn_cpu_bias_gradient((size_t)s->n, (size_t)s->out, dy, db);
    if (dw)
        nn_cpu_must(dnnl_sgemm('T', 'N', s->in, s->out, s->n, 1, x, s->in, dy, s->out, 0, dw, s->out),
                    "dense weight gradient");
    if (dx)
        nn_cpu_must(dnnl_sgemm('N', 'T', s->n, s->in, s->out, 1, dy, s->out, w, s->out, 0, dx, s->in),
                    "dense data gradient");
}
