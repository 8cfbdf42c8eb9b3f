// SPDX-License-Identifier: Apache-2.0
//
// Convolution on oneDNN. Images stay NHWC: every one of its fast implementations accepts it. The weights are reordered
// between Keras's layout and the one that the implementation asks for at every step: they are small.
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/nn/cpu/cpu.h"

// The plan of one of the three operators: forward, gradient of the data, gradient of the weights. src, dst, kernel and
// bias have no memory of their own: each run lends them its arguments, values or gradients.
struct conv2d {
    const struct nn_context *context;
    dnnl_memory_t src, dst, kernel, bias;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t run;
    dnnl_primitive_t reorder;  // between `kernel` and `packed`: before a run, or after it for the weights' gradient
    dnnl_memory_t packed;      // the weights in the layout of `run`
    dnnl_memory_t scratch;
    char info[128];
};

// What a primitive is made from.
struct description {
    dnnl_dims_t src_dims, dst_dims, kernel_dims, kernel_strides, bias_dims, strides, dilates, pad_begin, pad_end;
    int kernel_rank;
    dnnl_memory_desc_t src, dst, kernel, any_kernel, bias_desc;
    const dnnl_memory_desc_t *bias;  // &bias_desc, or NULL without one
    dnnl_primitive_attr_t attr;
    bool relu;
};

static void conv2d_free(void *plan)
{
    struct conv2d *c = plan;
    dnnl_primitive_destroy(c->run);
    dnnl_primitive_destroy(c->reorder);
    dnnl_primitive_desc_destroy(c->desc);
    dnnl_memory_destroy(c->packed);
    dnnl_memory_destroy(c->scratch);
    dnnl_memory_destroy(c->src);
    dnnl_memory_destroy(c->dst);
    dnnl_memory_destroy(c->kernel);
    dnnl_memory_destroy(c->bias);
    free(c);
}

// ---- descriptions -------------------------------------------------------------------------------------------------

// Kernels (kh, kw, in, out) are (group, out, in, h, w) to oneDNN; where there is one group it wants to hear of none.
static void describe_kernel(const struct nn_conv2d *a, const struct nn_type *x, const struct nn_type *y,
                            struct description *d)
{
    const dnnl_dim_t in = x->dim[3] / a->groups, out = y->dim[3] / a->groups, width = a->kernel[1];
    const dnnl_dim_t pixel = in * y->dim[3];
    const dnnl_dims_t dims = {a->groups, out, in, a->kernel[0], width};
    const dnnl_dims_t strides = {out, 1, y->dim[3], width * pixel, pixel};
    const int first = a->groups == 1;
    d->kernel_rank = 5 - first;
    memcpy(d->kernel_dims, dims + first, (size_t)d->kernel_rank * sizeof *dims);
    memcpy(d->kernel_strides, strides + first, (size_t)d->kernel_rank * sizeof *strides);
}

// oneDNN names dimensions (n, c, h, w) whatever lies in memory. x (n, h, w, c), y (n, oh, ow, oc).
static void describe_dims(const struct nn_conv2d *a, const struct nn_type *x, const struct nn_type *y,
                          struct description *d)
{
    memcpy(d->src_dims, (dnnl_dims_t){x->dim[0], x->dim[3], x->dim[1], x->dim[2]}, sizeof d->src_dims);
    memcpy(d->dst_dims, (dnnl_dims_t){y->dim[0], y->dim[3], y->dim[1], y->dim[2]}, sizeof d->dst_dims);
    memcpy(d->bias_dims, (dnnl_dims_t){y->dim[3]}, sizeof d->bias_dims);
    memcpy(d->strides, (dnnl_dims_t){a->stride[0], a->stride[1]}, sizeof d->strides);
    memcpy(d->dilates, (dnnl_dims_t){a->dilation[0] - 1, a->dilation[1] - 1}, sizeof d->dilates);
    memcpy(d->pad_begin, (dnnl_dims_t){a->pad_begin[0], a->pad_begin[1]}, sizeof d->pad_begin);
    memcpy(d->pad_end, (dnnl_dims_t){a->pad_end[0], a->pad_end[1]}, sizeof d->pad_end);
    describe_kernel(a, x, y, d);
    d->bias = a->bias ? &d->bias_desc : NULL;
    d->relu = a->act == NN_RELU;
}

static dnnl_status_t describe_tensors(struct description *d)
{
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&d->src, 4, d->src_dims, dnnl_f32, dnnl_nhwc);
    if (!status)
        status = dnnl_memory_desc_init_by_tag(&d->dst, 4, d->dst_dims, dnnl_f32, dnnl_nhwc);
    if (!status)
        status =
            dnnl_memory_desc_init_by_strides(&d->kernel, d->kernel_rank, d->kernel_dims, dnnl_f32, d->kernel_strides);
    if (!status)
        status =
            dnnl_memory_desc_init_by_tag(&d->any_kernel, d->kernel_rank, d->kernel_dims, dnnl_f32, dnnl_format_tag_any);
    if (!status)
        status = dnnl_memory_desc_init_by_tag(&d->bias_desc, 1, d->bias_dims, dnnl_f32, dnnl_x);
    return status;
}

// A relu of slope 0 makes a NaN 0; of any other slope it multiplies what is not above 0. The least float there is
// counts as 0 where the network is computed (nn_device.enter), and a NaN times it is one.
static dnnl_status_t fuse_relu(dnnl_primitive_attr_t attr)
{
    const float slope = FLT_TRUE_MIN;
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
static dnnl_status_t describe_attributes(struct description *d, bool forward)
{
    dnnl_status_t status = dnnl_primitive_attr_create(&d->attr);
    if (!status)
        status = dnnl_primitive_attr_set_scratchpad_mode(d->attr, dnnl_scratchpad_mode_user);
    if (!status && forward && d->relu)
        status = fuse_relu(d->attr);
    return status;
}

// ---- plans --------------------------------------------------------------------------------------------------------

enum direction { FORWARD, DATA, WEIGHTS };

static dnnl_status_t forward_desc(const struct conv2d *c, const struct description *d, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *desc)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &op, dnnl_forward_training, dnnl_convolution_direct, &d->src, &d->any_kernel, d->bias, &d->dst, d->strides,
        d->dilates, d->pad_begin, d->pad_end);
    return status ? status : dnnl_primitive_desc_create(desc, &op, attr, c->context->engine, NULL);
}

static dnnl_status_t backward_desc(const struct conv2d *c, const struct description *d, enum direction direction,
                                   dnnl_primitive_desc_t *desc)
{
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t forward = NULL;  // which forward pass the gradient belongs to
    dnnl_status_t status = forward_desc(c, d, NULL, &forward);
    if (status)
        return status;
    status = direction == DATA
                 ? dnnl_dilated_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &d->src,
                                                                    &d->any_kernel, &d->dst, d->strides, d->dilates,
                                                                    d->pad_begin, d->pad_end)
                 : dnnl_dilated_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, &d->src,
                                                                       &d->any_kernel, d->bias, &d->dst, d->strides,
                                                                       d->dilates, d->pad_begin, d->pad_end);
    if (!status)
        status = dnnl_primitive_desc_create(desc, &op, d->attr, c->context->engine, forward);
    dnnl_primitive_desc_destroy(forward);
    return status;
}

static dnnl_status_t make_reorder(dnnl_engine_t engine, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                  dnnl_primitive_t *reorder)
{
    dnnl_primitive_desc_t desc;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL);
    if (status)
        return status;
    status = dnnl_primitive_create(reorder, desc);
    dnnl_primitive_desc_destroy(desc);
    return status;
}

static dnnl_status_t make_primitives(struct conv2d *c, const struct description *d, enum direction direction)
{
    dnnl_engine_t engine = c->context->engine;
    dnnl_query_t weights = direction == WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(c->desc, weights, 0);
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(c->desc, dnnl_query_scratchpad_md, 0);
    dnnl_status_t status = dnnl_primitive_create(&c->run, c->desc);
    if (!status)
        status = dnnl_memory_create(&c->packed, packed, engine, DNNL_MEMORY_ALLOCATE);
    if (!status)
        status = dnnl_memory_create(&c->scratch, scratch, engine, DNNL_MEMORY_ALLOCATE);
    if (status)
        return status;
    return direction == WEIGHTS ? make_reorder(engine, packed, &d->kernel, &c->reorder)
                                : make_reorder(engine, &d->kernel, packed, &c->reorder);
}

static dnnl_status_t make_memories(struct conv2d *c, const struct description *d)
{
    dnnl_engine_t engine = c->context->engine;
    dnnl_status_t status = dnnl_memory_create(&c->src, &d->src, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&c->dst, &d->dst, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&c->kernel, &d->kernel, engine, DNNL_MEMORY_NONE);
    if (!status && d->bias)
        status = dnnl_memory_create(&c->bias, d->bias, engine, DNNL_MEMORY_NONE);
    return status;
}

static dnnl_status_t make_all(struct conv2d *c, struct description *d, enum direction direction)
{
    dnnl_status_t status = describe_tensors(d);
    if (!status)
        status = describe_attributes(d, direction == FORWARD);
    if (!status)
        status = make_memories(c, d);
    if (!status)
        status =
            direction == FORWARD ? forward_desc(c, d, d->attr, &c->desc) : backward_desc(c, d, direction, &c->desc);
    return status ? status : make_primitives(c, d, direction);
}

// A reference implementation is right but a hundred times slower. It is not seen where there is AVX2.
static void note_implementation(struct conv2d *c, const struct nn_op *op)
{
    const char *name = "?";
    dnnl_primitive_desc_query(c->desc, dnnl_query_impl_info_str, 0, &name);
    snprintf(c->info, sizeof c->info, "%s", name);
    if (strncmp(name, "ref", 3) == 0)
        ps_warn("layer \"%s\": oneDNN has only its slow reference of %s on this processor (%s)", op->layer,
                op->class->name, name);
}

static enum ps_code conv2d_plan(struct nn_context *context, const struct nn_op *op, const struct nn_type *x,
                                const struct nn_type *y, enum direction direction, void **plan, struct ps_error *e)
{
    struct description d = {.attr = NULL};
    nn_cpu_use_threads(context);
    struct conv2d *c = ps_alloc(sizeof *c);
    c->context = context;
    describe_dims((const struct nn_conv2d *)op->attr, x, y, &d);
    dnnl_status_t status = make_all(c, &d, direction);
    dnnl_primitive_attr_destroy(d.attr);
    if (status) {
        conv2d_free(c);
        return nn_cpu_fail(e, status, "cannot prepare a convolution");
    }
    note_implementation(c, op);
    *plan = c;
    return PS_OK;
}

static enum ps_code conv2d_plan_forward(struct nn_context *context, const struct nn_op *op, void **plan,
                                        struct ps_error *e)
{
    return conv2d_plan(context, op, &op->in_type[0], &op->out_type[0], FORWARD, plan, e);
}

static enum ps_code conv2d_plan_data(struct nn_context *context, const struct nn_op *op, void **plan,
                                     struct ps_error *e)
{
    return conv2d_plan(context, op, &op->out_type[0], &op->in_type[1], DATA, plan, e);
}

static enum ps_code conv2d_plan_weights(struct nn_context *context, const struct nn_op *op, void **plan,
                                        struct ps_error *e)
{
    return conv2d_plan(context, op, &op->in_type[0], &op->in_type[1], WEIGHTS, plan, e);
}

static const char *conv2d_info(const void *plan)
{
    return ((const struct conv2d *)plan)->info;
}

// ---- runs ---------------------------------------------------------------------------------------------------------

static void conv2d_lend(dnnl_memory_t memory, const void *to)
{
    nn_cpu_must(dnnl_memory_set_data_handle(memory, (void *)to), "convolution memory");
}

static void conv2d_reorder(const struct conv2d *c, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    nn_cpu_must(dnnl_primitive_execute(c->reorder, c->context->stream, 2, args), "convolution reorder");
}

// args ends with the scratch memory and, only where there is one, the bias.
static void conv2d_execute(const struct conv2d *c, const dnnl_exec_arg_t args[5], const char *what)
{
    nn_cpu_must(dnnl_primitive_execute(c->run, c->context->stream, args[4].memory ? 5 : 4, args), what);
}

static void conv2d_run(const struct nn_frame *f)
{
    const struct conv2d *c = f->plan;
    conv2d_lend(c->src, f->in[0]);
    conv2d_lend(c->kernel, f->in[1]);
    conv2d_lend(c->dst, f->out[0]);
    if (c->bias)
        conv2d_lend(c->bias, f->in[2]);
    conv2d_reorder(c, c->kernel, c->packed);
    conv2d_execute(c,
                   (const dnnl_exec_arg_t[5]){{DNNL_ARG_SRC, c->src},
                                              {DNNL_ARG_WEIGHTS, c->packed},
                                              {DNNL_ARG_DST, c->dst},
                                              {DNNL_ARG_SCRATCHPAD, c->scratch},
                                              {DNNL_ARG_BIAS, c->bias}},
                   "convolution");
}

static void conv2d_run_weights(const struct nn_frame *f)
{
    const struct conv2d *c = f->plan;
    conv2d_lend(c->src, f->in[0]);
    conv2d_lend(c->dst, f->in[1]);
    conv2d_lend(c->kernel, f->out[0]);
    if (c->bias)
        conv2d_lend(c->bias, f->out[1]);
    conv2d_execute(c,
                   (const dnnl_exec_arg_t[5]){{DNNL_ARG_SRC, c->src},
                                              {DNNL_ARG_DIFF_DST, c->dst},
                                              {DNNL_ARG_DIFF_WEIGHTS, c->packed},
                                              {DNNL_ARG_SCRATCHPAD, c->scratch},
                                              {DNNL_ARG_DIFF_BIAS, c->bias}},
                   "convolution's weight gradient");
    conv2d_reorder(c, c->packed, c->kernel);
}

static void conv2d_run_data(const struct nn_frame *f)
{
    const struct conv2d *c = f->plan;
    conv2d_lend(c->kernel, f->in[0]);
    conv2d_lend(c->dst, f->in[1]);
    conv2d_lend(c->src, f->out[0]);
    conv2d_reorder(c, c->kernel, c->packed);
    conv2d_execute(c,
                   (const dnnl_exec_arg_t[5]){{DNNL_ARG_DIFF_SRC, c->src},
                                              {DNNL_ARG_DIFF_DST, c->dst},
                                              {DNNL_ARG_WEIGHTS, c->packed},
                                              {DNNL_ARG_SCRATCHPAD, c->scratch},
                                              {0, NULL}},
                   "convolution's data gradient");
}

const struct nn_kernel nn_cpu_conv2d = {conv2d_plan_forward, conv2d_run, conv2d_free, conv2d_info};
const struct nn_kernel nn_cpu_conv2d_backward_data = {conv2d_plan_data, conv2d_run_data, conv2d_free, conv2d_info};
const struct nn_kernel nn_cpu_conv2d_backward_weights = {conv2d_plan_weights, conv2d_run_weights, conv2d_free,
                                                         conv2d_info};
