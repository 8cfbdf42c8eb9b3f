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

// What stands in a variable's name between its layer's and its own, part by part, and the attribute of the layer that
// it stands for. Those that end in "_" have more behind that.
static const struct {
    const char *part, *attribute;
} saved_parts[] = {
    {"lstm_cell", "cell"},
    {"gru_cell", "cell"},
    {"simple_rnn_cell", "cell"},
    {"forward_", "forward_layer"},
    {"backward_", "backward_layer"},
    {"query", "query_dense"},
    {"key", "key_dense"},
    {"value", "value_dense"},
    {"attention_output", "output_dense"},
};

static const char *saved_attribute(const struct nn_layer *layer, const char *part, size_t length)
{
    if (strcmp(layer->class->name, "TimeDistributed") == 0)
        return "layer";
    for (size_t i = 0; i < sizeof saved_parts / sizeof *saved_parts; i++) {
        const char *known = saved_parts[i].part;
        size_t n = strlen(known);
        bool open = known[n - 1] == '_';
        if ((open ? length > n : length == n) && memcmp(part, known, n) == 0)
            return saved_parts[i].attribute;
    }
    return NULL;
}

// "forward_lstm/lstm_cell/" of a variable's name; its length.
static size_t saved_inner(const struct nn_model *m, const struct nn_layer *layer, size_t i, const char **inner)
{
    const char *name = m->variable[i].param.name + strlen(m->name) + 1 + strlen(layer->name) + 1;
    const char *end = strrchr(name, '/');
    *inner = name;
    return end ? (size_t)(end + 1 - name) : 0;
}

// How many of the layer's variables before its k-th one lie at the same place inside of it.
static int saved_number(const struct nn_model *m, const struct nn_layer *layer, int k)
{
    const char *inner, *other;
    size_t n = saved_inner(m, layer, (size_t)layer->variable[k], &inner);
    int number = 0;
    for (int i = 0; i < k; i++)
        number += saved_inner(m, layer, (size_t)layer->variable[i], &other) == n && memcmp(inner, other, n) == 0;
    return number;
}

static char *saved_path(const struct nn_model *m, const struct nn_layer *layer, int k)
{
    char inner[256] = "";
    const char *at;
    size_t n = saved_inner(m, layer, (size_t)layer->variable[k], &at), length = 0;
    for (const char *end = at + n; at < end && length < sizeof inner;) {
        size_t part = (size_t)((const char *)memchr(at, '/', (size_t)(end - at)) - at);
        const char *attribute = saved_attribute(layer, at, part);
        length += (size_t)snprintf(inner + length, sizeof inner - length, "%.*s/",
                                   attribute ? (int)strlen(attribute) : (int)part, attribute ? attribute : at);
        at += part + 1;
    }
    return ps_printf("%s%svars/%d", layer->saved, inner, saved_number(m, layer, k));
}

char **nn_model_saved_paths(const struct nn_model *m)
{
    char **paths = ps_alloc((m->variables + m->layers + 1) * sizeof *paths);
    size_t n = m->variables;
    for (const struct nn_layer *l = m->layer; l < m->layer + m->layers; l++) {
        for (int k = 0; k < l->n_variables; k++)
            paths[l->variable[k]] = saved_path(m, l, k);
        if (l->class->counts && l->n_variables > 0)
            paths[n++] = ps_printf("%svars/%d", l->saved, l->n_variables);
    }
    return paths;
}

void nn_model_free_saved_paths(char **paths)
{
    for (size_t i = 0; paths[i]; i++)
        free(paths[i]);
    free(paths);
}

const char *nn_model_document(const struct nn_model *m)
{
    return m->document;
}

const char *nn_model_metadata(const struct nn_model *m)
{
    return m->metadata;
}
