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
    return *class == &nn_layer_input || (*class)->any_dtype ? PS_OK : nn_setting_dtype(config, e);
}

struct nn_layer *keras_put_layer(struct keras_reader *r, const struct nn_layer_class *class, char *name)
{
    struct nn_model *m = r->model;
    struct nn_layer *l = &m->layer[m->layers];
    *l = (struct nn_layer){.class = class, .name = name, .trainable = true, .number = (uint32_t)m->layers++};
    l->config = ps_alloc(class->config_bytes + 1);
    return l;
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

void keras_no_arguments(struct keras_arguments *a)
{
    *a = (struct keras_arguments){0};
    for (int i = 0; i < NN_CALL_IN; i++)
        a->mask[i] = -1;
}

static int keras_put_value(struct keras_reader *r, const struct nn_building *b)
{
    struct nn_model *m = r->model;
    int mask = b->out_mask;
    if (mask == NN_NEW_MASK)
        mask = nn_build_value(m, &b->new_mask, (int)m->calls);
    int out = nn_build_value(m, &b->out, (int)m->calls);
    m->value[out].mask = mask;
    m->value[out].below = b->below;
    m->value[out].text = b->text;
    return out;
}

enum ps_code keras_call(struct keras_reader *r, const struct nn_json *at, const struct nn_json *config,
                        struct nn_layer *layer, const struct keras_arguments *a, int *out, int *n_out,
                        struct ps_error *e)
{
    struct nn_model *m = r->model;
    struct nn_building b = {.model = m, .at = at, .config = config, .layer = layer, .n_in = a->n_in, .flag = a->flag};
    struct nn_call call = {.layer = (int)(layer - m->layer), .n_in = a->n_in, .flag = a->flag, .constant = a->constant};
    b.inference = call.inference = r->inference;
    for (int i = 0; i < NN_CALL_IN; i++)
        b.mask[i] = a->mask[i];
    for (int i = 0; i < a->n_in; i++) {
        call.in[i] = b.value[i] = a->in[i];
        b.mask[i] = a->mask[i] >= 0 ? a->mask[i] : m->value[a->in[i]].mask;
    }
    b.named_mask = a->mask[0] >= 0;
    enum ps_code code = nn_build_call(&b, e);
    b.out_mask = nn_setting_is_operation(at) ? -1 : b.out_mask;
    call.stream = b.stream;
    memcpy(call.mask, b.mask, sizeof call.mask);
    call.inner = b.inner;
    call.n_inner = b.n_inner;
    if (code == PS_OK) {
        *n_out = 1;
        out[0] = call.out = keras_put_value(r, &b);
    }
    for (; code == PS_OK && call.n_more < b.n_more; call.n_more++)
        out[(*n_out)++] = call.more[call.n_more] = nn_build_value(m, &b.more[call.n_more], (int)m->calls);
    *keras_next_call(r) = call;
    m->calls++;
    return code;
}
