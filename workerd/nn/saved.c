// SPDX-License-Identifier: Apache-2.0
//
// Where Keras 3 saves a variable: by the attributes that lead to it from the model, not by names, which differ from one
// run of Python to the next:
//
//     layers/<class of the layer>_<how many of it came before>/<attributes inside the layer>/vars/<its number there>
//
// "layers/conv2d_1/vars/0", "layers/bidirectional/forward_layer/cell/vars/2"; a model that is a layer has layers of its
// own, "layers/sequential/layers/dense/vars/0". keras/src/saving/saving_lib.py.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/layer.h"

// An underscore before each capital that begins a word, and before each that follows a small letter: "Conv2DTranspose"
// is conv2d_transpose, "PReLU" p_re_lu.
char *nn_saved_name(const char *name)
{
    char *word = ps_alloc(2 * strlen(name) + 1), *to = word;
    for (size_t i = 0; name[i]; i++) {
        bool upper = isupper((unsigned char)name[i]);
        bool begins = upper && i > 0 && (islower((unsigned char)name[i + 1]) || islower((unsigned char)name[i - 1]));
        if (begins)
            *to++ = '_';
        *to++ = (char)tolower((unsigned char)name[i]);
    }
    return word;
}

// The attributes inside a layer, as far as they are known.
struct saved_text {
    char text[128];
};

static void saved_add(struct saved_text *to, const char *part)
{
    size_t n = strlen(to->text);
    snprintf(to->text + n, sizeof to->text - n, "%s", part);
}

// Of a layer that is wrapped, how Keras's wrapper calls it.
static const char *saved_child(const struct nn_layer *layer, int child)
{
    if (strcmp(layer->class->name, "Bidirectional") == 0)
        return child == 0 ? "forward_layer/" : "backward_layer/";
    return "layer/";
}

// MultiHeadAttention's own layers, as they are named and as they are saved. Keras 2, and Keras 3 at first, put a "_" in
// front.
static const struct {
    const char *name, *attribute;
} saved_attention[] = {
    {"query/", "query_dense/"},
    {"key/", "key_dense/"},
    {"value/", "value_dense/"},
    {"attention_output/", "output_dense/"},
};

// What leads from a layer that wraps no other to the variable that it names so: "" for "kernel".
static void saved_attribute(const struct nn_model *m, const char *name, struct saved_text *to)
{
    const char *end = strrchr(name, '/');
    for (size_t i = 0; i < sizeof saved_attention / sizeof *saved_attention; i++)
        if (strncmp(name, saved_attention[i].name, strlen(saved_attention[i].name)) == 0) {
            saved_add(to, m->keras2 ? "_" : "");
            saved_add(to, saved_attention[i].attribute);
            return;
        }
    saved_add(to, end ? "cell/" : "");  // "lstm_cell/kernel"
}

static bool saved_has(const struct nn_layer *layer, int variable)
{
    for (int i = 0; i < layer->n_variables; i++)
        if (layer->variable[i] == variable)
            return true;
    return false;
}

// The attributes that lead from a layer to a variable of its.
static void saved_inner(const struct nn_model *m, const struct nn_layer *layer, int variable, struct saved_text *to)
{
    for (int i = 0; i < layer->n_children;) {
        if (!saved_has(&layer->child[i], variable)) {
            i++;
            continue;
        }
        saved_add(to, saved_child(layer, i));
        layer = &layer->child[i];
        i = 0;
    }
    const char *path = layer->path ? layer->path : layer->name;
    saved_attribute(m, m->variable[variable].param.name + strlen(m->name) + 1 + strlen(path) + 1, to);
}

static char *saved_path(const struct nn_model *m, const struct nn_layer *layer, int k)
{
    struct saved_text inner = {""};
    int number = 0;
    saved_inner(m, layer, layer->variable[k], &inner);
    for (int i = 0; i < k; i++) {
        struct saved_text other = {""};
        saved_inner(m, layer, layer->variable[i], &other);
        number += strcmp(inner.text, other.text) == 0;
    }
    return ps_printf("%s%svars/%d", layer->saved, inner.text, number);
}

struct nn_saved *nn_model_saved(const struct nn_model *m)
{
    struct nn_saved *saved = ps_alloc((m->variables + m->layers + 1) * sizeof *saved);
    size_t n = m->variables;
    for (const struct nn_layer *l = m->layer; l < m->layer + m->layers; l++) {
        for (int k = 0; k < l->n_variables; k++)
            saved[l->variable[k]].path = saved_path(m, l, k);
        if (l->class->counts && l->n_variables > 0)
            saved[n++].path = ps_printf("%svars/%d", l->saved, l->n_variables);
        const char *name;
        struct nn_saved more = {NULL};
        if (l->class->saves && (more.value = l->class->saves(l->config, &name, &more.count))) {
            more.path = ps_printf("%svars/%s", l->saved, name);
            saved[n++] = more;
        }
    }
    return saved;
}

void nn_model_free_saved(struct nn_saved *saved)
{
    for (size_t i = 0; saved[i].path; i++)
        free(saved[i].path);
    free(saved);
}

const char *nn_model_document(const struct nn_model *m)
{
    return m->document;
}

const char *nn_model_metadata(const struct nn_model *m)
{
    return m->metadata;
}

const char *nn_model_synchronized(const struct nn_model *m)
{
    return m->synchronized;
}

void nn_model_synchronize(struct nn_model *m, enum nn_synchronize which)
{
    m->synchronize = which;
}

bool nn_model_is_keras2(const struct nn_model *m)
{
    return m->keras2;
}
