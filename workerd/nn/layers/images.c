// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layers/images.h"

#include <string.h>

static char *image_shape_text(const struct nn_type *type, char *to, size_t size)
{
    return (char *)ps_shape_text((const uint64_t *)type->dim, (size_t)type->rank, to, size);
}

struct nn_type nn_image_of(const struct nn_type *type)
{
    return type->rank == 2 ? (struct nn_type){type->dtype, 3, {1, type->dim[0], type->dim[1]}} : *type;
}

enum ps_code nn_image_build(struct nn_building *b, bool sequence, struct nn_type *image, struct ps_error *e)
{
    char text[128];
    if (nn_build_inputs(b, 1, e))
        return e->code;
    const struct nn_type *type = &b->in[0]->type;
    const char *from = b->model->layer[b->model->call[b->in[0]->call].layer].name;
    *image = nn_image_of(type);
    if (type->dtype != NN_FLOAT)
        return nn_json_fail(b->at, e, "%s expected an input of float32, but \"%s\" gives another",
                            b->layer->class->name, from);
    if (type->rank == 3 - sequence)
        return PS_OK;
    return nn_json_fail(b->at, e, "%s expected an input of shape (%s, channels), but \"%s\" gives %s",
                        b->layer->class->name, sequence ? "steps" : "height, width", from,
                        image_shape_text(type, text, sizeof text));
}

void nn_image_give(struct nn_building *b, int64_t height, int64_t width, int64_t channels)
{
    b->out = b->in[0]->type.rank == 2 ? (struct nn_type){NN_FLOAT, 2, {width, channels}}
                                      : (struct nn_type){NN_FLOAT, 3, {height, width, channels}};
}

// ---- windows ------------------------------------------------------------------------------------------------------

// From the first cell to the last.
static int64_t axis_reach(const struct nn_axis *a)
{
    return (int64_t)(a->k - 1) * a->dilation + 1;
}

static void axis_place(struct nn_axis *a, enum nn_padding padding)
{
    const int64_t reach = axis_reach(a);
    a->out = (int)(((int64_t)a->in + a->stride - 1) / a->stride);
    const int64_t lack = (int64_t)(a->out - 1) * a->stride + reach - a->in;
    a->pad_begin = a->pad_end = 0;
    if (padding == NN_VALID) {
        a->out = (int)((a->in - reach) / a->stride + 1);
    } else if (padding == NN_CAUSAL) {
        a->pad_begin = (int)(reach - 1);
    } else if (lack > 0) {
        a->pad_begin = (int)(lack / 2);
        a->pad_end = (int)(lack - lack / 2);
    }
}

static enum ps_code axis_check(struct nn_building *b, const struct nn_axis *a, enum nn_padding padding,
                               struct ps_error *e)
{
    char text[128];
    const int64_t reach = axis_reach(a);
    if (padding == NN_VALID && reach > a->in)
        return nn_json_fail(b->config, e,
                            "a window of %lld does not fit the input %s: expected a smaller one, or padding \"same\"",
                            (long long)reach, image_shape_text(&b->in[0]->type, text, sizeof text));
    if (padding != NN_VALID && reach + a->in + a->stride > NN_MAX_ELEMENTS)
        return nn_json_fail(b->config, e, "an image of %d padded for a window of %lld: expected at most %d together",
                            a->in, (long long)reach, NN_MAX_ELEMENTS);
    return PS_OK;
}

static struct nn_axis axis_of(const struct nn_windows *w, const struct nn_type *image, int i)
{
    return (struct nn_axis){
        .in = (int)image->dim[i], .k = w->size[i], .stride = w->stride[i], .dilation = w->dilation[i]};
}

enum ps_code nn_image_check_windows(struct nn_building *b, const struct nn_windows *w, struct ps_error *e)
{
    const struct nn_json at = nn_json_member(b->config, "dilation_rate");
    const bool strides = w->stride[0] > 1 || w->stride[1] > 1, dilation = w->dilation[0] > 1 || w->dilation[1] > 1;
    return strides && dilation ? nn_json_expected(&at, e, "1 where strides are not") : PS_OK;
}

enum ps_code nn_image_build_windows(struct nn_building *b, const struct nn_windows *w, const struct nn_type *image,
                                    struct nn_axis axis[2], struct ps_error *e)
{
    if (nn_image_check_windows(b, w, e))
        return e->code;
    for (int i = 0; i < 2; i++) {
        axis[i] = axis_of(w, image, i);
        if (axis_check(b, &axis[i], w->padding, e))
            return e->code;
        axis_place(&axis[i], w->padding);
    }
    return PS_OK;
}

// Of windows that fit.
static void image_place_windows(const struct nn_windows *w, const struct nn_type *image, struct nn_axis axis[2])
{
    for (int i = 0; i < 2; i++) {
        axis[i] = axis_of(w, image, i);
        axis_place(&axis[i], w->padding);
    }
}

// ---- operators ----------------------------------------------------------------------------------------------------

struct nn_conv2d nn_image_conv2d(const struct nn_windows *w, const struct nn_type *image, int groups, bool bias)
{
    struct nn_conv2d attr = {.groups = groups, .bias = bias};
    struct nn_axis axis[2];
    image_place_windows(w, image, axis);
    for (int i = 0; i < 2; i++) {
        attr.image[i] = axis[i].in;
        attr.kernel[i] = axis[i].k;
        attr.stride[i] = axis[i].stride;
        attr.dilation[i] = axis[i].dilation;
        attr.pad_begin[i] = axis[i].pad_begin;
        attr.pad_end[i] = axis[i].pad_end;
    }
    return attr;
}

struct nn_pool2d nn_image_pool2d(const struct nn_windows *w, const struct nn_type *image)
{
    struct nn_pool2d attr;
    struct nn_axis axis[2];
    image_place_windows(w, image, axis);
    for (int i = 0; i < 2; i++) {
        attr.image[i] = axis[i].in;
        attr.window[i] = axis[i].k;
        attr.stride[i] = axis[i].stride;
        attr.pad_begin[i] = axis[i].pad_begin;
        attr.out[i] = axis[i].out;
    }
    return attr;
}

int nn_image_input(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_type *type = nn_emit_type(m, call->in[0]), image = nn_image_of(type);
    const int x = nn_emit_tensor(m, call->in[0]);
    return type->rank == image.rank ? x : nn_emit_view(m, x, &image);
}

int nn_image_output(struct nn_emitter *m, const struct nn_call *call, int tensor)
{
    const struct nn_type *type = nn_emit_type(m, call->out);
    return type->rank == 3 ? tensor : nn_emit_view(m, tensor, type);
}

int nn_image_kernel(struct nn_emitter *m, const struct nn_call *call, int k, const struct nn_windows *w, int64_t in,
                    int64_t out)
{
    const struct nn_type type = {NN_FLOAT, 4, {w->size[0], w->size[1], in, out}};
    const int kernel = nn_emit_variable(m, call, k);
    return memcmp(&m->tape->tensor[kernel].type, &type, sizeof type) == 0 ? kernel
                                                                          : nn_tape_view(m->tape, kernel, &type);
}

int nn_image_put_conv2d(struct nn_emitter *m, const struct nn_call *call, const struct nn_conv2d *attr, int x,
                        int kernel, int bias)
{
    int in[3] = {x, kernel, attr->bias ? nn_emit_variable(m, call, bias) : -1}, y;
    nn_tape_put(m->tape, &nn_op_conv2d, attr, sizeof *attr, in, 2 + attr->bias, &y, 1);
    return y;
}
