// SPDX-License-Identifier: Apache-2.0
//
// Rescaling, Normalization, Identity: what makes features fit.
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/layer.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/noise.h"
#include "workerd/nn/ops/normalize.h"

static enum ps_code rescaling_build(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    return PS_OK;
}

struct rescaling {
    double scale, offset;
};

static const struct nn_key rescaling_keys[] = {
    {"scale", NN_KEY_REAL, NN_AT(struct rescaling, scale), .required = true, .min = -1e30, .max = 1e30},
    {"offset", NN_KEY_REAL, NN_AT(struct rescaling, offset), .min = -1e30, .max = 1e30},
    {NULL}};

static int rescaling_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct rescaling *c = NN_CONFIG(struct rescaling, nn_emit_layer(m, call));
    const struct nn_affine attr = {(float)c->scale, (float)c->offset};
    int x = nn_emit_tensor(m, call->in[0]);
    nn_tape_put(m->tape, &nn_op_affine, &attr, sizeof attr, &x, 1, &x, 1);
    return x;
}

const struct nn_layer_class nn_layer_rescaling = {"Rescaling",     sizeof(struct rescaling), rescaling_keys,
                                                  rescaling_build, rescaling_emit,           .passes_mask = true};

static int identity_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_tensor(m, call->in[0]);
}

static const struct nn_key identity_keys[] = {{NULL}};

const struct nn_layer_class nn_layer_identity = {"Identity",         0, identity_keys, rescaling_build, identity_emit,
                                                 .passes_mask = true};

// ---- Normalization ------------------------------------------------------------------------------------------------
//
// (x - mean) / sqrt(variance), of each place along the last axis or axes. Mean and variance stand in the document, or
// are variables that Keras's adapt() has set.

struct standardization {
    int64_t n;       // places
    bool given;      // in the document
    float number[];  // n means, then n variances, where they are given
};

// The last axes of the input: [-1], [2, 3]; or none, null or [].
static enum ps_code standardization_read_axes(struct nn_building *b, int64_t *n, int *rank, struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, "axis");
    const struct nn_type *in = &b->in[0]->type;
    const bool list = json_is_array(at.value);
    size_t axes = list ? json_array_size(at.value) : at.value && !nn_json_given(&at) ? 0 : 1;
    *n = 1;
    *rank = (int)axes;
    for (size_t i = 0; i < axes; i++) {
        struct nn_json own = nn_json_element(&at, i);
        const struct nn_json *axis = list ? &own : &at;
        const int expected = in->rank - (int)axes + (int)i;  // of the dimensions without the batch
        json_int_t v = axis->value ? json_integer_value(axis->value) : -1;
        if (expected < 0 || (axis->value && !json_is_integer(axis->value)) ||
            (v != expected + 1 && v != expected - in->rank))
            return nn_json_expected(&at, e, "the last axis or axes of the input: -1, or a list like [-2, -1]");
        *n *= in->dim[expected];
    }
    return PS_OK;
}

// A number, or a list of them, in lists of one: [[1, 2, 3]]. One number is that of all n.
static enum ps_code standardization_read(const struct nn_json *at, int64_t n, float *to, struct ps_error *e)
{
    struct nn_json only = nn_json_element(at, 0);
    size_t count = json_is_array(at->value) ? json_array_size(at->value) : 1;
    double v;
    if (json_is_array(at->value) && count == 1 && json_is_array(only.value) && at->up->up)
        return standardization_read(&only, n, to, e);
    if (count != 1 && (int64_t)count != n)
        return nn_json_expected(at, e, "1 or %d numbers", (int)n);
    for (size_t i = 0; i < (size_t)n; i++) {
        struct nn_json own = nn_json_element(at, count == 1 ? 0 : i);
        if (nn_json_real(json_is_array(at->value) ? &own : at, -1e30, 1e30, &v, e))
            return e->code;
        to[i] = (float)v;
    }
    return PS_OK;
}

static enum ps_code standardization_build_given(struct nn_building *b, struct ps_error *e)
{
    struct standardization *c = b->layer->config;
    struct nn_json mean = nn_json_member(b->config, "mean"), variance = nn_json_member(b->config, "variance");
    c = ps_realloc(c, sizeof *c + 2 * (size_t)c->n * sizeof *c->number);
    b->layer->config = c;
    c->given = true;
    if (standardization_read(&mean, c->n, c->number, e) || standardization_read(&variance, c->n, c->number + c->n, e))
        return e->code;
    for (int64_t i = c->n; i < 2 * c->n; i++)
        if (c->number[i] < 0)
            return nn_json_expected(&variance, e, "variances of 0 or more");
    return PS_OK;
}

static enum ps_code standardization_build_variables(struct nn_building *b, int rank, struct ps_error *e)
{
    const struct nn_type *in = &b->in[0]->type;
    struct nn_type type = {.dtype = NN_FLOAT, .rank = rank};
    memcpy(type.dim, in->dim + in->rank - rank, (size_t)rank * sizeof *type.dim);
    if (nn_build_variable(b, "mean", "Zeros", &type, e) || nn_build_variable(b, "variance", "Ones", &type, e))
        return e->code;
    for (int i = 0; i < 2; i++)
        b->model->variable[b->layer->variable[i]].param.trainable = false;
    return PS_OK;
}

static enum ps_code standardization_build(struct nn_building *b, struct ps_error *e)
{
    struct standardization *c = b->layer->config;
    struct nn_json mean = nn_json_member(b->config, "mean"), variance = nn_json_member(b->config, "variance");
    int64_t n;
    int rank;
    if (rescaling_build(b, e) || standardization_read_axes(b, &n, &rank, e))
        return e->code;
    if (!b->first && n != c->n)
        return nn_json_fail(b->at, e,
                            "Normalization is called on inputs of different shapes: expected %d places, not %d",
                            (int)c->n, (int)n);
    c->n = n;
    if (nn_json_given(&mean) != nn_json_given(&variance))
        return nn_json_expected(nn_json_given(&mean) ? &variance : &mean, e, "mean and variance, or neither");
    if (!nn_json_given(&mean))
        return standardization_build_variables(b, rank, e);
    return b->first ? standardization_build_given(b, e) : PS_OK;
}

static int standardization_constant(struct nn_emitter *m, const struct standardization *c, const float *value)
{
    const struct nn_constant attr = {value, c->n};
    int y;
    nn_tape_put(m->tape, &nn_op_constant, &attr, sizeof attr, NULL, 0, &y, 1);
    return y;
}

// Keras divides by no less than 1e-7: of what does not vary, by its square root here.
static int standardization_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct standardization *c = NN_CONFIG(struct standardization, nn_emit_layer(m, call));
    const int64_t all = (int64_t)nn_type_count(nn_emit_type(m, call->in[0])) * m->rows;
    const struct nn_normalize attr = {.dim = {all / c->n, c->n, 1, 1}, .statistic = {[1] = true}, .epsilon = 1e-14f};
    int in[3] = {nn_emit_tensor(m, call->in[0])}, y;
    for (int i = 0; i < 2; i++)
        in[1 + i] = c->given ? standardization_constant(m, c, c->number + i * c->n) : nn_emit_variable(m, call, i);
    nn_tape_put(m->tape, &nn_op_normalize_by, &attr, sizeof attr, in, 3, &y, 1);
    return y;
}

static const struct nn_key standardization_keys[] = {{"axis", NN_KEY_BY_BUILD},
                                                     {"mean", NN_KEY_BY_BUILD},
                                                     {"variance", NN_KEY_BY_BUILD},
                                                     {"invert", NN_KEY_REFUSED},
                                                     {NULL}};

const struct nn_layer_class nn_layer_normalization = {"Normalization",      sizeof(struct standardization),
                                                      standardization_keys, standardization_build,
                                                      standardization_emit, .passes_mask = true,
                                                      .counts = true};
