// SPDX-License-Identifier: Apache-2.0
//
// What is drawn anew at each step while a network is trained, and does nothing else: Dropout and SpatialDropout,
// GaussianDropout, GaussianNoise.
#include <math.h>

#include "workerd/nn/layer.h"
#include "workerd/nn/ops/noise.h"

struct dropout {
    double rate;                           // or the standard deviation
    bool shared[NN_MAX_RANK], any_shared;  // dimensions with the batch along which all places are dropped or none
};

#define RATE(key)                                                                           \
    {                                                                                       \
        key, NN_KEY_REAL, NN_AT(struct dropout, rate), .required = true, .min = 0, .max = 1 \
    }

// [null, 1, 8]: a mask of this shape, null or the input's size for all places, 1 for one of all.
static enum ps_code dropout_read_shape(struct nn_building *b, struct dropout *c, struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, "noise_shape");
    const struct nn_type *in = &b->in[0]->type;
    if (!nn_json_given(&at))
        return PS_OK;
    if ((int)json_array_size(at.value) != in->rank + 1)
        return nn_json_expected(&at, e, "null, or null for the batch and %d sizes", in->rank);
    for (int i = 0; i <= in->rank; i++) {
        struct nn_json size = nn_json_element(&at, (size_t)i);
        json_int_t v = json_integer_value(size.value);
        if (!nn_json_given(&size))
            continue;
        if (i == 0 || !json_is_integer(size.value) || (v != 1 && v != in->dim[i - 1]))
            return nn_json_expected(&size, e,
                                    i == 0 ? "null: a mask for each example" : "null, 1 or the size of the input");
        c->shared[i] = v == 1;
        c->any_shared = c->any_shared || v == 1;
    }
    return PS_OK;
}

static enum ps_code dropout_build(struct nn_building *b, struct ps_error *e)
{
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    return dropout_read_shape(b, b->layer->config, e);
}

static int dropout_emit_noise(struct nn_emitter *m, const struct nn_call *call, int kind, double amount)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const struct dropout *c = NN_CONFIG(struct dropout, l);
    struct nn_noise attr = {.kind = kind, .amount = (float)amount, .layer = call->stream};
    int x = nn_emit_tensor(m, call->in[0]);
    for (int i = 0; i < NN_MAX_RANK; i++)
        attr.shared[i] = c->shared[i];
    if (m->training && amount > 0)
        nn_tape_put(m->tape, &nn_op_noise, &attr, sizeof attr, (int[]){x, nn_emit_examples(m)}, 2, &x, 1);
    return x;
}

static int dropout_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const struct dropout *c = NN_CONFIG(struct dropout, l);
    const struct nn_dropout attr = {.rate = (float)c->rate, .layer = call->stream};
    int x = nn_emit_tensor(m, call->in[0]);
    if (c->any_shared)
        return dropout_emit_noise(m, call, NN_NOISE_DROPS, c->rate);
    if (m->training && attr.rate > 0)
        nn_tape_put(m->tape, &nn_op_dropout, &attr, sizeof attr, (int[]){x, nn_emit_examples(m)}, 2, &x, 1);
    return x;
}

static const struct nn_key dropout_keys[] = {
    RATE("rate"), {"seed", NN_KEY_NONE}, {"noise_shape", NN_KEY_BY_BUILD}, {NULL}};

const struct nn_layer_class nn_layer_dropout = {"Dropout",     sizeof(struct dropout), dropout_keys,
                                                dropout_build, dropout_emit,           .passes_mask = true};

// ---- whole channels -----------------------------------------------------------------------------------------------

static enum ps_code spatial_dropout_build(struct nn_building *b, int rank, struct ps_error *e)
{
    struct dropout *c = b->layer->config;
    if (dropout_build(b, e))
        return e->code;
    if (b->out.rank != rank)
        return nn_json_fail(b->at, e, "%s expected an input with %d dimensions besides the batch, not %d",
                            b->layer->class->name, rank, b->out.rank);
    for (int i = 1; i < rank; i++)
        c->shared[i] = true;
    return PS_OK;
}

static enum ps_code spatial_dropout1d_build(struct nn_building *b, struct ps_error *e)
{
    return spatial_dropout_build(b, 2, e);
}

static enum ps_code spatial_dropout2d_build(struct nn_building *b, struct ps_error *e)
{
    return spatial_dropout_build(b, 3, e);
}

static int spatial_dropout_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return dropout_emit_noise(m, call, NN_NOISE_DROPS, NN_CONFIG(struct dropout, nn_emit_layer(m, call))->rate);
}

static const struct nn_key spatial_keys[] = {RATE("rate"),
                                             {"seed", NN_KEY_NONE},
                                             {"noise_shape", NN_KEY_BY_BUILD},
                                             {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"},
                                             {NULL}};

const struct nn_layer_class nn_layer_spatial_dropout1d = {"SpatialDropout1D",   sizeof(struct dropout),
                                                          spatial_keys,         spatial_dropout1d_build,
                                                          spatial_dropout_emit, .passes_mask = true};
const struct nn_layer_class nn_layer_spatial_dropout2d = {"SpatialDropout2D",   sizeof(struct dropout),
                                                          spatial_keys,         spatial_dropout2d_build,
                                                          spatial_dropout_emit, .passes_mask = true};

// ---- normal noise -------------------------------------------------------------------------------------------------

static int gaussian_dropout_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const double rate = NN_CONFIG(struct dropout, nn_emit_layer(m, call))->rate;
    return dropout_emit_noise(m, call, NN_NOISE_TIMES, sqrt(rate / (1 - rate)));
}

static int gaussian_noise_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return dropout_emit_noise(m, call, NN_NOISE_ADDED, NN_CONFIG(struct dropout, nn_emit_layer(m, call))->rate);
}

static const struct nn_key gaussian_dropout_keys[] = {RATE("rate"), {"seed", NN_KEY_NONE}, {NULL}};

const struct nn_layer_class nn_layer_gaussian_dropout = {"GaussianDropout",     sizeof(struct dropout),
                                                         gaussian_dropout_keys, dropout_build,
                                                         gaussian_dropout_emit, .passes_mask = true};

// Keras 3 takes deviations up to 1, Keras 2 any.
static const struct nn_key gaussian_noise_keys[] = {
    {"stddev", NN_KEY_REAL, NN_AT(struct dropout, rate), .required = true, .min = 0, .max = 1e30},
    {"seed", NN_KEY_NONE},
    {NULL}};

const struct nn_layer_class nn_layer_gaussian_noise = {"GaussianNoise", sizeof(struct dropout), gaussian_noise_keys,
                                                       dropout_build,   gaussian_noise_emit,    .passes_mask = true};
