// SPDX-License-Identifier: Apache-2.0
//
// What others ask of a model once it is read.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "workerd/nn/layer.h"

static void layer_fini(struct nn_layer *l)
{
    for (int k = 0; k < l->n_children; k++)
        layer_fini(&l->child[k]);
    free(l->child);
    free(l->path);
    free(l->saved);
    free(l->name);
    free(l->config);
}

static void call_fini(struct nn_call *call)
{
    for (int k = 0; k < call->n_inner; k++)
        call_fini(&call->inner[k]);
    free(call->inner);
}

void nn_model_free(struct nn_model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->layers; i++)
        layer_fini(&m->layer[i]);
    for (size_t i = 0; i < m->calls; i++)
        call_fini(&m->call[i]);
    for (size_t i = 0; i < m->variables; i++)
        free((char *)m->variable[i].param.name);
    for (size_t i = 0; i < m->values; i++)
        free(m->value[i].words);
    for (int k = 0; k < m->n_outputs; k++)
        free(m->output_name[k]);
    free(m->layer);
    free(m->value);
    free(m->call);
    free(m->variable);
    free(m->document);
    free(m->metadata);
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
    return (size_t)m->n_inputs;
}

size_t nn_model_outputs(const struct nn_model *m)
{
    return (size_t)m->n_outputs;
}

static struct nn_port model_port(const struct nn_model *m, const char *name, int value)
{
    const struct nn_value *v = &m->value[value];
    return (struct nn_port){name, &v->type, v->ids, v->words, v->only, v->n_only};
}

struct nn_port nn_model_input(const struct nn_model *m, size_t k)
{
    return model_port(m, m->layer[m->call[m->value[m->input[k]].call].layer].name, m->input[k]);
}

struct nn_port nn_model_output(const struct nn_model *m, size_t k)
{
    return model_port(m, m->output_name[k], m->output[k]);
}

size_t nn_model_nodes(const struct nn_model *m)
{
    return m->calls;
}

struct nn_node nn_model_node(const struct nn_model *m, size_t i)
{
    const struct nn_call *call = &m->call[i];
    const struct nn_layer *layer = &m->layer[call->layer];
    struct nn_node node = {.kind = layer->class->name, .type = &m->value[call->out].type, .n_in = call->n_in};
    int before = 0;
    for (size_t k = 0; k < i; k++)
        before += m->call[k].layer == call->layer;
    if (before)
        snprintf(node.name, sizeof node.name, "%.200s/call_%d", layer->name, before + 1);
    else
        snprintf(node.name, sizeof node.name, "%.200s", layer->name);
    for (int k = 0; k < call->n_in; k++)
        node.in[k] = m->value[call->in[k]].call;
    return node;
}

void nn_model_init_param(const struct nn_model *m, size_t i, uint64_t seed, float *value)
{
    nn_init_draw(&m->variable[i].init, seed, i, m->variable[i].param.count, value);
}

void nn_model_constrain(const struct nn_model *m, size_t i, float *value)
{
    const struct nn_variable *v = &m->variable[i];
    nn_constraint_apply(&v->constraint, v->param.shape, v->param.rank, value);
}

const char *nn_model_constraint(const struct nn_model *m, size_t i)
{
    return nn_constraint_name(&m->variable[i].constraint);
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
    uint64_t n = 0;
    for (int i = 0; i < l->n_variables; i++)
        n += m->variable[l->variable[i]].param.count;
    return n;
}

// What its first call gives.
static const struct nn_type *layer_output(const struct nn_model *m, const struct nn_layer *l)
{
    for (size_t i = 0; i < m->calls; i++)
        if (&m->layer[m->call[i].layer] == l)
            return &m->value[m->call[i].out].type;
    return NULL;
}

// "(None, 26, 26, 32)": None stands for the batch, as in Keras.
static void batch_shape_text(const struct nn_type *type, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "(None");
    for (int i = 0; type && i < type->rank && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, ", %" PRId64, type->dim[i]);
    if (n < size)
        snprintf(to + n, size - n, ")");
}

static int summary_title(const struct nn_layer *l, char *to, size_t size)
{
    return snprintf(to, size, "%s (%s)", l->name, l->class->name);
}

char *nn_model_summary(const struct nn_model *m)
{
    char *text = NULL, number[32], shape[160], title[192];
    size_t size;
    uint64_t total = 0, trainable = 0;
    int width = 36;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (const struct nn_layer *l = m->layer; l < m->layer + m->layers; l++) {
        int length = summary_title(l, title, sizeof title);
        width = l->called && length > width ? length : width;
    }
    fprintf(f, "Model: \"%s\"\n%-*s %-24s %12s\n", m->name, width, "Layer (type)", "Output shape", "Parameters");
    for (const struct nn_layer *l = m->layer; l < m->layer + m->layers; l++) {
        if (!l->called)
            continue;  // the InputLayer of a model that is a layer
        summary_title(l, title, sizeof title);
        batch_shape_text(layer_output(m, l), shape, sizeof shape);
        fprintf(f, "%-*s %-24s %12s\n", width, title, shape, model_grouped(layer_params(m, l), number));
        total += layer_params(m, l);
    }
    for (size_t i = 0; i < m->variables; i++)
        trainable += m->variable[i].param.trainable ? m->variable[i].param.count : 0;
    fprintf(f, "Total parameters: %s", model_grouped(total, number));
    fprintf(f, " (trainable: %s)\n", model_grouped(trainable, number));
    fclose(f);
    return text;
}
