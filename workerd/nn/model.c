// SPDX-License-Identifier: Apache-2.0
//
// What others ask of a model once it is read.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "workerd/nn/layer.h"

void nn_model_free(struct nn_model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->layers; i++)
        free(m->layer[i].name);
    for (size_t i = 0; i < m->variables; i++)
        free((char *)m->variable[i].param.name);
    free(m->layer);
    free(m->variable);
    free(m->name);
    free(m);
}

size_t nn_model_params(const struct nn_model *m)
{
    return m->variables;
}

const struct nn_param *nn_model_param(const struct nn_model *m, size_t i)
{
    return &m->variable[i].param;
}

size_t nn_model_inputs(const struct nn_model *m)
{
    return m->layer[0].count;
}

size_t nn_model_outputs(const struct nn_model *m)
{
    return m->layer[m->layers - 1].count;
}

const uint64_t *nn_model_input_shape(const struct nn_model *m, size_t *rank)
{
    *rank = m->layer[0].rank;
    return m->layer[0].shape;
}

const uint64_t *nn_model_output_shape(const struct nn_model *m, size_t *rank)
{
    const struct nn_layer *last = &m->layer[m->layers - 1];
    *rank = last->rank;
    return last->shape;
}

void nn_model_init_param(const struct nn_model *m, size_t i, uint64_t seed, float *value)
{
    nn_init_draw(&m->variable[i].init, seed, i, m->variable[i].param.count, value);
}

// The layer whose values the loss sees: the last one that changes any. While training, dropout does.
static const struct nn_layer *last_function(const struct nn_model *m)
{
    const struct nn_layer *l = &m->layer[m->layers - 1];
    while (l->kind == NN_FLATTEN || (l->kind == NN_ACTIVATE && l->function == NN_F_LINEAR))
        l--;
    return l;
}

static bool gives_probabilities(const struct nn_layer *l)
{
    bool has_function = l->kind == NN_CONV2D || l->kind == NN_DENSE || l->kind == NN_ACTIVATE;
    return has_function && l->function == NN_F_SOFTMAX;
}

enum ps_code nn_model_check_loss(const struct nn_model *m, const struct nn_loss *loss, struct ps_error *e)
{
    const struct nn_layer *out = &m->layer[m->layers - 1], *last = last_function(m);
    char text[128];
    if (loss->kind == NN_MSE)
        return PS_OK;
    if (out->rank != 1 || out->count < 2)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "sparse categorical cross-entropy expects an output of shape (classes,) with 2 or more classes, "
                       "but layer \"%s\" gives %s",
                       out->name, ps_shape_text(out->shape, out->rank, text, sizeof text));
    if (loss->from_logits && gives_probabilities(last))
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "layer \"%s\" ends in a softmax, but the loss expects logits: set from_logits to false, or "
                       "remove the softmax from the model",
                       last->name);
    if (!loss->from_logits && !gives_probabilities(last))
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "layer \"%s\" gives logits, but the loss expects probabilities: set from_logits to true, or "
                       "end the model in a softmax",
                       last->name);
    return PS_OK;
}

// 121,930
static char *model_grouped(uint64_t n, char to[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            to[at++] = ',';
        to[at++] = digits[i];
    }
    to[at] = '\0';
    return to;
}

static uint64_t layer_params(const struct nn_model *m, const struct nn_layer *l)
{
    uint64_t n = l->kernel >= 0 ? m->variable[l->kernel].param.count : 0;
    return l->bias >= 0 ? n + m->variable[l->bias].param.count : n;
}

// "(None, 26, 26, 32)": None stands for the batch, as in Keras.
static void batch_shape_text(const struct nn_layer *l, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "(None");
    for (size_t i = 0; i < l->rank && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, ", %" PRIu64, l->shape[i]);
    if (n < size)
        snprintf(to + n, size - n, ")");
}

char *nn_model_summary(const struct nn_model *m)
{
    char *text = NULL, number[32], shape[160];
    size_t size;
    uint64_t total = 0, trainable = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, "Model: \"%s\"\n%-36s %-24s %12s\n", m->name, "Layer (type)", "Output shape", "Parameters");
    for (const struct nn_layer *l = m->layer; l < m->layer + m->layers; l++) {
        char title[192];
        snprintf(title, sizeof title, "%s (%s)", l->name, l->class_name);
        batch_shape_text(l, shape, sizeof shape);
        fprintf(f, "%-36s %-24s %12s\n", title, shape, model_grouped(layer_params(m, l), number));
        total += layer_params(m, l);
        trainable += l->trainable ? layer_params(m, l) : 0;
    }
    fprintf(f, "Total parameters: %s", model_grouped(total, number));
    fprintf(f, " (trainable: %s)\n", model_grouped(trainable, number));
    fclose(f);
    return text;
}
