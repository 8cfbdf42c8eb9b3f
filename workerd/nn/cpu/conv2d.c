// SPDX-License-Identifier: Apache-2.0
//
// Convolution on oneDNN. Images stay NHWC, where every one of its fast implementations feels at home; the weights go
// into the layout that each direction asks for, and out of it, at every step: they are small.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/nn/cpu/cpu.h"

// One of the three: forward, gradient of the data, gradient of the weights.
struct direction {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t run;
    dnnl_primitive_t repack;  // between Keras's layout and the one of `packed`: before a run, after for the gradient
    dnnl_memory_t packed;     // the weights in the layout of `run`
    dnnl_memory_t scratch;
};

// src, dst, kernel and bias have no memory of their own: each call lends them its arguments, values or gradients.
struct conv2d {
    struct nn_plan plan;
    struct nn_conv2d shape;
    dnnl_memory_t src, dst, kernel, bias;
    struct direction forward, data, weights;
};

// What the three directions are made from.
struct description {
    dnnl_memory_desc_t src, dst, kernel, any_kernel, bias_desc;
    const dnnl_memory_desc_t *bias;  // &bias_desc, or NULL without one
    dnnl_dims_t strides, pad_begin, pad_end;
    dnnl_primitive_attr_t plain, fused;  // fused: with the activation
};

static void direction_fini(struct direction *d)
{
    dnnl_primitive_destroy(d->run);
    dnnl_primitive_destroy(d->repack);
    dnnl_primitive_desc_destroy(d->desc);
    dnnl_memory_destroy(d->packed);
    dnnl_memory_destroy(d->scratch);
}

static void conv2d_free(struct nn_plan *plan)
{
    struct conv2d *c = (struct conv2d *)plan;
    direction_fini(&c->forward);
    direction_fini(&c->data);
    direction_fini(&c->weights);
    dnnl_memory_destroy(c->src);
    dnnl_memory_destroy(c->dst);
    dnnl_memory_destroy(c->kernel);
    dnnl_memory_destroy(c->bias);
    free(c->plan.info);
    free(c);
}

static void description_fini(struct description *d)
{
    dnnl_primitive_attr_destroy(d->plain);
    dnnl_primitive_attr_destroy(d->fused);
}

// oneDNN names dimensions (n, c, h, w) and (out, in, h, w) whatever lies in memory.
static dnnl_status_t describe_tensors(const struct nn_conv2d *s, struct description *d)
{
    const dnnl_dims_t src = {s->n, s->c, s->h, s->w}, dst = {s->n, s->oc, s->oh, s->ow};
    const dnnl_dims_t kernel = {s->oc, s->c, s->kh, s->kw}, bias = {s->oc};
    memcpy(d->strides, (dnnl_dims_t){s->sh, s->sw}, sizeof d->strides);
    memcpy(d->pad_begin, (dnnl_dims_t){s->pad_top, s->pad_left}, sizeof d->pad_begin);
    memcpy(d->pad_end, (dnnl_dims_t){s->pad_bottom, s->pad_right}, sizeof d->pad_end);
    d->bias = s->bias ? &d->bias_desc : NULL;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&d->src, 4, src, dnnl_f32, dnnl_nhwc);
    if (!status)
        status = dnnl_memory_desc_init_by_tag(&d->dst, 4, dst, dnnl_f32, dnnl_nhwc);
    if (!status)
        status = dnnl_memory_desc_init_by_tag(&d->kernel, 4, kernel, dnnl_f32, dnnl_hwio);
    if (!status)
        status = dnnl_memory_desc_init_by_tag(&d->any_kernel, 4, kernel, dnnl_f32, dnnl_format_tag_any);
    if (!status)
        status = dnnl_memory_desc_init_by_tag(&d->bias_desc, 1, bias, dnnl_f32, dnnl_x);
    return status;
}

// With a slope of 0 oneDNN takes max(x, 0), which turns a NaN into 0. With any other it multiplies what is not
// positive by it: this one is too small to matter and too large to make denormal numbers, which are slow.
static dnnl_status_t fuse_relu(dnnl_primitive_attr_t attr)
{
    const float slope = 1e-30f;
    dnnl_post_ops_t after;
    dnnl_status_t status = dnnl_post_ops_create(&after);
    if (status)
        return status;
    status = dnnl_post_ops_append_eltwise(after, 1, dnnl_eltwise_relu, slope, 0);
    if (!status)
        status = dnnl_primitive_attr_set_post_ops(attr, after);
    dnnl_post_ops_destroy(after);
    return status;
}

// Scratch memory is the plan's own: oneDNN's is shared by all primitives of the thread that made them.
static dnnl_status_t describe_attributes(const struct nn_conv2d *s, struct description *d)
{
    dnnl_status_t status = dnnl_primitive_attr_create(&d->plain);
    if (!status)
        status = dnnl_primitive_attr_set_scratchpad_mode(d->plain, dnnl_scratchpad_mode_user);
    if (!status)
        status = dnnl_primitive_attr_clone(&d->fused, d->plain);
    if (!status && s->act == NN_RELU)
        status = fuse_relu(d->fused);
    return status;
}

static dnnl_status_t make_repack(dnnl_engine_t engine, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                 dnnl_primitive_t *repack)
{
    dnnl_primitive_desc_t desc;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL);
    if (status)
        return status;
    status = dnnl_primitive_create(repack, desc);
    dnnl_primitive_desc_destroy(desc);
    return status;
}

// weights: which of the primitive's memories holds them.
static dnnl_status_t make_direction(struct conv2d *c, const struct description *d, const_dnnl_op_desc_t op,
                                    const_dnnl_primitive_attr_t attr, dnnl_query_t weights, struct direction *dir)
{
    dnnl_engine_t engine = c->plan.ctx->engine;
    // The gradients are told which forward pass they belong to; that one itself has none before it.
    dnnl_status_t status = dnnl_primitive_desc_create(&dir->desc, op, attr, engine, c->forward.desc);
    if (status)
        return status;
    const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(dir->desc, weights, 0);
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(dir->desc, dnnl_query_scratchpad_md, 0);
    status = dnnl_primitive_create(&dir->run, dir->desc);
    if (!status)
        status = dnnl_memory_create(&dir->packed, packed, engine, DNNL_MEMORY_ALLOCATE);
    if (!status)
        status = dnnl_memory_create(&dir->scratch, scratch, engine, DNNL_MEMORY_ALLOCATE);
    if (status)
        return status;
    return weights == dnnl_query_diff_weights_md ? make_repack(engine, packed, &d->kernel, &dir->repack)
                                                 : make_repack(engine, &d->kernel, packed, &dir->repack);
}

static dnnl_status_t make_forward(struct conv2d *c, const struct description *d)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status =
        dnnl_convolution_forward_desc_init(&op, dnnl_forward_training, dnnl_convolution_direct, &d->src, &d->any_kernel,
                                           d->bias, &d->dst, d->strides, d->pad_begin, d->pad_end);
    return status ? status : make_direction(c, d, &op, d->fused, dnnl_query_weights_md, &c->forward);
}

static dnnl_status_t make_data(struct conv2d *c, const struct description *d)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_convolution_backward_data_desc_init(
        &op, dnnl_convolution_direct, &d->src, &d->any_kernel, &d->dst, d->strides, d->pad_begin, d->pad_end);
    return status ? status : make_direction(c, d, &op, d->plain, dnnl_query_weights_md, &c->data);
}

static dnnl_status_t make_weights(struct conv2d *c, const struct description *d)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_convolution_backward_weights_desc_init(
        &op, dnnl_convolution_direct, &d->src, &d->any_kernel, d->bias, &d->dst, d->strides, d->pad_begin, d->pad_end);
    return status ? status : make_direction(c, d, &op, d->plain, dnnl_query_diff_weights_md, &c->weights);
}

static dnnl_status_t make_memories(struct conv2d *c, const struct description *d)
{
    dnnl_engine_t engine = c->plan.ctx->engine;
    dnnl_status_t status = dnnl_memory_create(&c->src, &d->src, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&c->dst, &d->dst, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&c->kernel, &d->kernel, engine, DNNL_MEMORY_NONE);
    if (!status && d->bias)
        status = dnnl_memory_create(&c->bias, d->bias, engine, DNNL_MEMORY_NONE);
    return status;
}

static dnnl_status_t make_all(struct conv2d *c, struct description *d)
{
    dnnl_status_t status = describe_tensors(&c->shape, d);
    if (!status)
        status = describe_attributes(&c->shape, d);
    if (!status)
        status = make_memories(c, d);
    if (!status)
        status = make_forward(c, d);
    if (!status)
        status = make_data(c, d);
    if (!status)
        status = make_weights(c, d);
    return status;
}

static const char *conv2d_implementation(const struct direction *d)
{
    const char *name = "?";
    dnnl_primitive_desc_query(d->desc, dnnl_query_impl_info_str, 0, &name);
    return name;
}

// A reference implementation is right but a hundred times slower. It is not seen where there is AVX2.
static void note_implementations(struct conv2d *c)
{
    c->plan.info = ps_printf("fwd=%s bwd_d=%s bwd_w=%s", conv2d_implementation(&c->forward),
                             conv2d_implementation(&c->data), conv2d_implementation(&c->weights));
    if (strstr(c->plan.info, "=ref"))
        ps_warn("conv2d %dx%dx%d, kernel %dx%d: oneDNN has only its slow reference on this processor (%s)", c->shape.h,
                c->shape.w, c->shape.c, c->shape.kh, c->shape.kw, c->plan.info);
}

enum ps_code nn_cpu_conv2d_plan(struct nn_context *ctx, const struct nn_conv2d *s, struct nn_plan **plan,
                                struct ps_error *e)
{
    enum ps_code code = nn_conv2d_check(s, e);
    if (code)
        return code;
    nn_cpu_enter(ctx);
    struct conv2d *c = ps_alloc(sizeof *c);
    c->plan.ctx = ctx;
    c->plan.free = conv2d_free;
    c->shape = *s;
    struct description d = {0};
    dnnl_status_t status = make_all(c, &d);
    description_fini(&d);
    if (status) {
        conv2d_free(&c->plan);
        return nn_cpu_fail(e, status, "cannot prepare conv2d");
    }
    note_implementations(c);
    *plan = &c->plan;
    return PS_OK;
}

// oneDNN's memories take no const; what a direction only reads stays as it is.
static void conv2d_lend(dnnl_memory_t memory, const float *p)
{
    nn_cpu_must(dnnl_memory_set_data_handle(memory, (void *)p), "conv2d argument");
}

static void conv2d_repack(const struct conv2d *c, const struct direction *d, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    nn_cpu_must(dnnl_primitive_execute(d->repack, c->plan.ctx->stream, 2, args), "conv2d repack");
}

// args ends with the scratch memory and, only where there is one, the bias.
static void conv2d_run(const struct conv2d *c, const struct direction *d, const dnnl_exec_arg_t args[5],
                       const char *what)
{
    nn_cpu_must(dnnl_primitive_execute(d->run, c->plan.ctx->stream, args[4].memory ? 5 : 4, args), what);
}

void nn_cpu_conv2d_forward(struct nn_plan *p, const float *x, const float *w, const float *b, float *y)
{
    struct conv2d *c = (struct conv2d *)p;
    const struct direction *d = &c->forward;
    nn_cpu_enter(p->ctx);
    conv2d_lend(c->src, x);
    conv2d_lend(c->kernel, w);
    conv2d_lend(c->dst, y);
    if (c->bias)
        conv2d_lend(c->bias, b);
    conv2d_repack(c, d, c->kernel, d->packed);
    conv2d_run(c, d,
               (const dnnl_exec_arg_t[5]){{DNNL_ARG_SRC, c->src},
                                          {DNNL_ARG_WEIGHTS, d->packed},
                                          {DNNL_ARG_DST, c->dst},
                                          {DNNL_ARG_SCRATCHPAD, d->scratch},
                                          {DNNL_ARG_BIAS, c->bias}},
               "conv2d forward");
}

static void backward_weights(struct conv2d *c, const float *x, float *dw, float *db)
{
    const struct direction *d = &c->weights;
    conv2d_lend(c->src, x);
    conv2d_lend(c->kernel, dw);
    if (c->bias)
        conv2d_lend(c->bias, db);
    conv2d_run(c, d,
               (const dnnl_exec_arg_t[5]){{DNNL_ARG_SRC, c->src},
                                          {DNNL_ARG_DIFF_DST, c->dst},
                                          {DNNL_ARG_DIFF_WEIGHTS, d->packed},
                                          {DNNL_ARG_SCRATCHPAD, d->scratch},
                                          {DNNL_ARG_DIFF_BIAS, c->bias}},
               "conv2d weight gradient");
    conv2d_repack(c, d, d->packed, c->kernel);
}

static void backward_data(struct conv2d *c, const float *w, float *dx)
{
    const struct direction *d = &c->data;
    conv2d_lend(c->src, dx);
    conv2d_lend(c->kernel, w);
    conv2d_repack(c, d, c->kernel, d->packed);
    conv2d_run(c, d,
               (const dnnl_exec_arg_t[5]){{DNNL_ARG_DIFF_SRC, c->src},
                                          {DNNL_ARG_DIFF_DST, c->dst},
                                          {DNNL_ARG_WEIGHTS, d->packed},
                                          {DNNL_ARG_SCRATCHPAD, d->scratch},
                                          {0, NULL}},
               "conv2d data gradient");
}

void nn_cpu_conv2d_backward(struct nn_plan *p, const float *x, const float *w, const float *y, float *dy, float *dx,
                            float *dw, float *db)
{
    struct conv2d *c = (struct conv2d *)p;
    const struct nn_conv2d *s = &c->shape;
    nn_cpu_enter(p->ctx);
    if (s->act == NN_RELU)
        nn_cpu_relu_backward((size_t)s->n * s->oh * s->ow * s->oc, y, dy, dy);
    conv2d_lend(c->dst, dy);
    if (dw)
        backward_weights(c, x, dw, db);
    if (dx)
        backward_data(c, w, dx);
}
