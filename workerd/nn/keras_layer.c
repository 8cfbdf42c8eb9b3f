// SPDX-License-Identifier: Apache-2.0
//
// Layers of a document, and what their calls put into the model.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/keras.h"

static enum ps_code keras_find_class(const struct nn_json *at, const struct nn_layer_class **class, struct ps_error *e)
{
    const char *word, **known = ps_alloc((nn_layer_n_classes + 1) * sizeof *known);
    enum ps_code code = nn_json_string(at, &word, e);
    *class = NULL;
    for (size_t i = 0; code == PS_OK && i < nn_layer_n_classes; i++) {
        known[i] = nn_layer_classes[i]->name;
        if (strcmp(word, known[i]) == 0)
            *class = nn_layer_classes[i];
    }
    if (code == PS_OK && !*class) {
        const char *near = ps_nearest(word, known, (int)nn_layer_n_classes);
        code = nn_json_expected(at, e, "a layer of those that \"workerd --layers\" lists%s%s%s",
                                near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    }
    free(known);
    return code;
}

// Of a layer's object: its class, and that its settings are known.
enum ps_code keras_check_layer(const struct nn_json *at, const struct nn_json *config,
                               const struct nn_layer_class **class, struct ps_error *e)
{
    struct nn_json class_name = nn_json_member(at, "class_name");
    if (nn_json_object(at, e) || nn_setting_class(at, e) || keras_find_class(&class_name, class, e) ||
        nn_json_object(config, e) || nn_keys_check(config, *class, e))
        return e->code;
    return nn_setting_dtype(config, e);
}

struct nn_layer *keras_put_layer(struct keras_reader *r, const struct nn_layer_class *class, char *name)
{
    struct nn_model *m = r->model;
    struct nn_layer *l = &m->layer[m->layers];
    *l = (struct nn_layer){.class = class, .name = name, .trainable = true, .number = (uint32_t)m->layers++};
    l->config = ps_alloc(class->config_bytes + 1);
    return l;
}

static int keras_add_value(struct keras_reader *r, const struct nn_type *type)
{
    struct nn_model *m = r->model;
    if (m->values == r->cap_values) {
        r->cap_values = r->cap_values ? 2 * r->cap_values : 64;
        m->value = ps_realloc(m->value, r->cap_values * sizeof *m->value);
    }
    m->value[m->values] = (struct nn_value){.type = *type, .call = (int)m->calls};
    return (int)m->values++;
}

static struct nn_call *keras_next_call(struct keras_reader *r)
{
    struct nn_model *m = r->model;
    if (m->calls == r->cap_calls) {
        r->cap_calls = r->cap_calls ? 2 * r->cap_calls : 64;
        m->call = ps_realloc(m->call, r->cap_calls * sizeof *m->call);
    }
    return &m->call[m->calls];
}

enum ps_code keras_call(struct keras_reader *r, const struct nn_json *at, const struct nn_json *config,
                        struct nn_layer *layer, const int *in, int n_in, int *out, struct ps_error *e)
{
    struct nn_model *m = r->model;
    const bool first = !layer->called;
    struct nn_building b = {.model = m, .at = at, .config = config, .layer = layer, .first = first, .n_in = n_in};
    uint64_t count;
    for (int i = 0; i < n_in; i++)
        b.in[i] = &m->value[in[i]];
    if ((first && (nn_keys_read(&b, layer->class, layer->config, e) || nn_build_activity(&b, e))) ||
        layer->class->build(&b, e) || nn_build_elements(at, "an output", &b.out, &count, e))
        return e->code;
    struct nn_call *call = keras_next_call(r);
    *call = (struct nn_call){.layer = (int)(layer - m->layer), .n_in = n_in};
    for (int i = 0; i < n_in; i++)
        call->in[i] = in[i];
    layer->called = true;
    *out = keras_add_value(r, &b.out);
    m->call[m->calls++].out = *out;
    return PS_OK;
}
