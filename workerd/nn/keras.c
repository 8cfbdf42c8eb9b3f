// SPDX-License-Identifier: Apache-2.0
//
// Keras's models from JSON, as model.to_json() of Keras 3 and of Keras 2 writes them, or as one writes them by hand:
// what is left out has Keras's default. Sequential: each layer is called on what the one before gives. Functional: each
// layer says of each of its calls (inbound_nodes) which outputs of which calls of others it takes.
#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "workerd/nn/layer.h"
#include "workerd/nn/setting.h"

enum { MAX_FILE = 64 << 20 };

struct reader {
    struct nn_model *model;
    json_t *names;  // of the layers: name -> index
    size_t cap_calls;
};

// ---- layers -------------------------------------------------------------------------------------------------------

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

// Takes over name.
static struct nn_layer *keras_put_layer(struct reader *r, const struct nn_layer_class *class, char *name)
{
    struct nn_model *m = r->model;
    struct nn_layer *l = &m->layer[m->layers];
    *l = (struct nn_layer){.class = class, .name = name, .trainable = true, .number = (uint32_t)m->layers};
    l->config = ps_alloc(class->config_bytes + 1);
    json_object_set_new(r->names, name, json_integer((json_int_t)m->layers++));
    return l;
}

static enum ps_code keras_add_layer(struct reader *r, const struct nn_layer_class *class, const struct nn_json *config,
                                    bool trainable, struct nn_layer **layer, struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, "name");
    const char *word;
    if (nn_setting_name(&at, &word, e))
        return e->code;
    if (json_object_get(r->names, word))
        return nn_json_expected(&at, e, "a name that no other layer has");
    *layer = keras_put_layer(r, class, ps_strdup(word));
    if (nn_setting_bool(config, "trainable", &(*layer)->trainable, e))
        return e->code;
    (*layer)->trainable = (*layer)->trainable && trainable;
    return PS_OK;
}

// Of a layer's object: its class, and that its settings are known.
enum ps_code nn_build_class(const struct nn_json *at, const struct nn_json *config, const struct nn_layer_class **class,
                            struct ps_error *e)
{
    struct nn_json class_name = nn_json_member(at, "class_name");
    if (nn_json_object(at, e) || nn_setting_class(at, e) || keras_find_class(&class_name, class, e) ||
        nn_json_object(config, e) || nn_keys_check(config, *class, e))
        return e->code;
    return *class == &nn_layer_input ? PS_OK : nn_setting_dtype(config, e);
}

// ---- calls --------------------------------------------------------------------------------------------------------

static struct nn_call *keras_next_call(struct reader *r)
{
    struct nn_model *m = r->model;
    if (m->calls == r->cap_calls) {
        r->cap_calls = r->cap_calls ? 2 * r->cap_calls : 64;
        m->call = ps_realloc(m->call, r->cap_calls * sizeof *m->call);
    }
    return &m->call[m->calls];
}

// What a node of the document says.
struct keras_arguments {
    int in[NN_CALL_IN], n_in;
    int mask[NN_CALL_IN];  // those that it names; -1: none
    bool flag, ready;      // ready: all that it takes has been made
    double constant;
};

static int keras_put_value(struct reader *r, const struct nn_building *b)
{
    struct nn_model *m = r->model;
    int mask = b->out_mask;
    if (mask == NN_NEW_MASK)
        mask = nn_build_value(m, &b->new_mask, (int)m->calls);
    int out = nn_build_value(m, &b->out, (int)m->calls);
    m->value[out].mask = mask;
    return out;
}

// Calls a layer on values; *out is what it gives.
static enum ps_code keras_call(struct reader *r, const struct nn_json *at, const struct nn_json *config,
                               struct nn_layer *layer, const struct keras_arguments *a, int *out, struct ps_error *e)
{
    struct nn_model *m = r->model;
    struct nn_building b = {.model = m, .at = at, .config = config, .layer = layer, .n_in = a->n_in, .flag = a->flag,
                            .constant = a->constant};
    for (int i = 0; i < a->n_in; i++) {
        b.value[i] = a->in[i];
        b.mask[i] = a->mask[i] >= 0 ? a->mask[i] : m->value[a->in[i]].mask;
    }
    struct nn_call call = {.layer = (int)(layer - m->layer), .n_in = a->n_in, .flag = a->flag, .constant = a->constant};
    enum ps_code code = nn_build_call(&b, e);
    call.inner = b.inner;
    call.n_inner = b.n_inner;
    for (int i = 0; i < a->n_in; i++) {
        call.in[i] = a->in[i];
        call.mask[i] = b.mask[i];
    }
    if (code == PS_OK)
        *out = call.out = keras_put_value(r, &b);
    *keras_next_call(r) = call;
    m->calls++;
    return code;
}

// ---- Sequential ---------------------------------------------------------------------------------------------------

// Keras 2 lets the first layer say the shape of the input itself.
static enum ps_code keras_call_implied_input(struct reader *r, const struct nn_json *at, const struct nn_json *config,
                                             int *out, struct ps_error *e)
{
    struct nn_json keras2 = nn_json_member(config, "batch_input_shape"), own = nn_json_member(config, "name");
    const char *word;
    if (!keras2.value)
        return nn_json_fail(at, e,
                            "expected an InputLayer with a batch_shape as the first layer, or a batch_input_shape in "
                            "this one");
    if (nn_setting_name(&own, &word, e))
        return e->code;
    struct nn_layer *input = keras_put_layer(r, &nn_layer_input, ps_printf("%s_input", word));
    return keras_call(r, at, config, input, &(struct keras_arguments){0}, out, e);
}

static enum ps_code keras_read_sequential_layer(struct reader *r, const struct nn_json *at, bool trainable, int *value,
                                                struct ps_error *e)
{
    struct nn_json config = nn_json_member(at, "config");
    const struct nn_layer_class *class;
    struct nn_layer *layer;
    if (nn_build_class(at, &config, &class, e))
        return e->code;
    if (*value < 0 && class != &nn_layer_input && keras_call_implied_input(r, at, &config, value, e))
        return e->code;
    if (keras_add_layer(r, class, &config, trainable, &layer, e))
        return e->code;
    const struct keras_arguments a = {.in = {*value}, .n_in = *value >= 0, .mask = {-1}};
    return keras_call(r, at, &config, layer, &a, value, e);
}

static enum ps_code keras_read_sequential(struct reader *r, const struct nn_json *layers, size_t n, bool trainable,
                                          struct ps_error *e)
{
    int value = -1;
    for (size_t i = 0; i < n; i++) {
        struct nn_json layer = nn_json_element(layers, i);
        if (keras_read_sequential_layer(r, &layer, trainable, &value, e))
            return e->code;
    }
    r->model->input[0] = 0;
    r->model->output[0] = value;
    r->model->n_inputs = r->model->n_outputs = 1;
    return PS_OK;
}

// ---- Functional ---------------------------------------------------------------------------------------------------

// One call that the document asks for: a node of a layer.
struct node {
    int layer;  // of the document and of the model
    int node;   // of the layer
    int value;  // what it gives; -1: not called yet
};

struct nodes {
    struct node *v;  // those of a layer stand together
    size_t n;
    size_t *first;  // [layers] and one: its first node
    const struct nn_json *layers;
};

// ["dense", 0, 0]: the node of a layer, and which of its outputs. Sets *found to NULL where the layer is there, but not
// the node.
static enum ps_code keras_find_node(const struct reader *r, const struct nodes *nodes, const struct nn_json *at,
                                    const struct node **found, struct ps_error *e)
{
    struct nn_json name = nn_json_element(at, 0), node = nn_json_element(at, 1), output = nn_json_element(at, 2);
    const char *word;
    int64_t number, which;
    *found = NULL;
    if (nn_json_string(&name, &word, e) || nn_json_int(&node, 0, INT32_MAX, &number, e) ||
        nn_json_int(&output, 0, 0, &which, e))
        return e->code;
    const json_t *layer = json_object_get(r->names, word);
    if (!layer)
        return nn_json_expected(&name, e, "the name of a layer of this model");
    const size_t *first = &nodes->first[json_integer_value(layer)];
    if ((uint64_t)number < first[1] - first[0])
        *found = &nodes->v[first[0] + (size_t)number];
    return *found ? PS_OK : nn_json_expected(&node, e, "a call of layer \"%s\"", word);
}

// An input of a node: Keras 2's list, or Keras 3's tensor with its history.
static enum ps_code keras_read_input(const struct reader *r, const struct nodes *nodes, const struct nn_json *at,
                                     int *value, struct ps_error *e)
{
    struct nn_json config = nn_json_member(at, "config"), history = nn_json_member(&config, "keras_history");
    const struct node *found;
    if (json_is_object(at->value) && nn_json_object(&config, e))
        return e->code;
    if (keras_find_node(r, nodes, json_is_object(at->value) ? &history : at, &found, e))
        return e->code;
    *value = found->value;
    return PS_OK;
}

static enum ps_code keras_add_input(const struct reader *r, const struct nodes *nodes, const struct nn_json *at,
                                    struct keras_arguments *a, struct ps_error *e)
{
    if (a->n_in == NN_CALL_IN)
        return nn_json_fail(at->up, e, "expected at most %d inputs", NN_CALL_IN);
    if (keras_read_input(r, nodes, at, &a->in[a->n_in], e))
        return e->code;
    a->ready = a->ready && a->in[a->n_in++] >= 0;
    return PS_OK;
}

// The inputs of a node, all in one list or one by one.
static enum ps_code keras_read_inputs(const struct reader *r, const struct nodes *nodes, const struct nn_json *list,
                                      const struct nn_layer_class *class, struct keras_arguments *a, struct ps_error *e)
{
    size_t n;
    if (nn_json_array(list, &n, e))
        return e->code;
    for (size_t i = 0; i < n; i++) {
        struct nn_json at = nn_json_element(list, i);
        if (class->constant && i == 1 && n == 2 ? nn_json_real(&at, -FLT_MAX, FLT_MAX, &a->constant, e)
                                                : keras_add_input(r, nodes, &at, a, e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code keras_read_argument(const struct reader *r, const struct nodes *nodes, const struct nn_json *at,
                                        const struct nn_argument *argument, struct keras_arguments *a,
                                        struct ps_error *e)
{
    if (argument->kind == NN_ARG_INPUT)
        return keras_add_input(r, nodes, at, a, e);
    if (argument->kind == NN_ARG_FLAG)
        return nn_json_bool(at, &a->flag, e);
    if (keras_read_input(r, nodes, at, &a->mask[argument->input], e))
        return e->code;
    a->ready = a->ready && a->mask[argument->input] >= 0;
    return PS_OK;
}

// What a call is given by name. Whether it trains is what the program does.
static enum ps_code keras_read_named(const struct reader *r, const struct nodes *nodes, const struct nn_json *named,
                                     const struct nn_layer_class *class, struct keras_arguments *a, struct ps_error *e)
{
    static const struct nn_argument others[] = {{"inputs", NN_ARG_INPUT, 0}, {"mask", NN_ARG_MASK, 0}, {NULL}};
    const struct nn_argument *known = class->arguments ? class->arguments : others;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)named->value, name, value)
    {
        const struct nn_argument *k = known;
        struct nn_json at = nn_json_member(named, name);
        while (k->name && strcmp(k->name, name) != 0)
            k++;
        if (!k->name && nn_json_given(&at) && strcmp(name, "training") != 0)
            return nn_json_fail(&at, e, "expected null: this argument of a call is not supported");
    }
    for (const struct nn_argument *k = known; k->name; k++) {
        struct nn_json at = nn_json_member(named, k->name);
        if (nn_json_given(&at) && keras_read_argument(r, nodes, &at, k, a, e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code keras_read_node(const struct reader *r, const struct nodes *nodes, const struct nn_json *node,
                                    const struct nn_layer_class *class, struct keras_arguments *a, struct ps_error *e)
{
    struct nn_json args = nn_json_member(node, "args"), inner = nn_json_element(&args, 0);
    struct nn_json keras3 = nn_json_member(node, "kwargs"), first = nn_json_element(node, 0);
    struct nn_json keras2 = nn_json_element(&first, 3);
    const bool object = json_is_object(node->value);
    const struct nn_json *list = !object ? node : json_is_array(inner.value) ? &inner : &args;
    for (int i = 0; i < NN_CALL_IN; i++)
        a->mask[i] = -1;
    if (keras_read_inputs(r, nodes, list, class, a, e))
        return e->code;
    return keras_read_named(r, nodes, object ? &keras3 : &keras2, class, a, e);
}

// Calls a node if what it takes has been made; *called says so.
static enum ps_code keras_try_node(struct reader *r, const struct nodes *nodes, struct node *node, bool *called,
                                   struct ps_error *e)
{
    struct nn_json at = nn_json_element(nodes->layers, (size_t)node->layer), config = nn_json_member(&at, "config");
    struct nn_json inbound = nn_json_member(&at, "inbound_nodes"), own = nn_json_element(&inbound, (size_t)node->node);
    struct nn_layer *layer = &r->model->layer[node->layer];
    struct keras_arguments a = {.ready = true};
    if (layer->class != &nn_layer_input && keras_read_node(r, nodes, &own, layer->class, &a, e))
        return e->code;
    *called = a.ready;
    return a.ready ? keras_call(r, &at, &config, layer, &a, &node->value, e) : PS_OK;
}

// Every round calls at least one node, or some take what only they make. Rounds go up and down the list in turn: most
// documents have what is taken first, some last.
static enum ps_code keras_call_nodes(struct reader *r, struct nodes *nodes, struct ps_error *e)
{
    bool down = false;
    for (size_t left = nodes->n; left > 0; down = !down) {
        size_t before = left;
        for (size_t i = 0; i < nodes->n; i++) {
            struct node *node = &nodes->v[down ? nodes->n - 1 - i : i];
            bool called = false;
            if (node->value < 0 && keras_try_node(r, nodes, node, &called, e))
                return e->code;
            left -= called;
        }
        if (left == before)
            return nn_json_fail(
                nodes->layers, e,
                "expected calls that can be made one after the other: %zu take%s what they give themselves", left,
                left == 1 ? "s" : "");
    }
    return PS_OK;
}

static enum ps_code keras_list_nodes(struct reader *r, const struct nn_json *layers, size_t n, bool trainable,
                                     struct nodes *nodes, struct ps_error *e)
{
    size_t cap = 0;
    nodes->first = ps_alloc((n + 1) * sizeof *nodes->first);
    for (size_t i = 0; i < n; i++) {
        struct nn_json at = nn_json_element(layers, i), config = nn_json_member(&at, "config");
        struct nn_json inbound = nn_json_member(&at, "inbound_nodes");
        const struct nn_layer_class *class;
        struct nn_layer *layer;
        size_t calls = json_array_size(inbound.value);
        if (nn_build_class(&at, &config, &class, e) || keras_add_layer(r, class, &config, trainable, &layer, e))
            return e->code;
        calls = class == &nn_layer_input ? 1 : calls;
        for (size_t k = 0; k < calls; k++) {
            if (nodes->n == cap) {
                cap = cap ? 2 * cap : 64;
                nodes->v = ps_realloc(nodes->v, cap * sizeof *nodes->v);
            }
            nodes->v[nodes->n++] = (struct node){(int)i, (int)k, -1};
        }
        nodes->first[i + 1] = nodes->n;
    }
    return PS_OK;
}

// "input_layers" and "output_layers": ["name", 0, 0], a list of these, or an object of them by name.
static enum ps_code keras_read_ports(const struct reader *r, const struct nodes *nodes, const struct nn_json *config,
                                     const char *key, int *value, int *n, struct ps_error *e)
{
    struct nn_json list = nn_json_member(config, key), first = nn_json_element(&list, 0);
    const bool one = json_is_string(first.value);
    size_t count = one ? 1 : json_is_object(list.value) ? json_object_size(list.value) : 0;
    if (!one && !json_is_object(list.value) && nn_json_array(&list, &count, e))
        return e->code;
    if (count < 1 || count > NN_MAX_PORTS)
        return nn_json_expected(&list, e, "1 to %d of them", NN_MAX_PORTS);
    void *member = json_object_iter((json_t *)list.value);
    for (size_t i = 0; i < count; i++) {
        struct nn_json at = one      ? list
                            : member ? nn_json_member(&list, json_object_iter_key(member))
                                     : nn_json_element(&list, i);
        if (keras_read_input(r, nodes, &at, &value[i], e))
            return e->code;
        member = member ? json_object_iter_next((json_t *)list.value, member) : NULL;
    }
    *n = (int)count;
    return PS_OK;
}

// The model's inputs are InputLayers, and all that there are.
static enum ps_code keras_check_inputs(const struct nn_model *m, const struct nn_json *config, struct ps_error *e)
{
    struct nn_json list = nn_json_member(config, "input_layers");
    int inputs = 0;
    bool all = true;
    for (size_t i = 0; i < m->calls; i++)
        inputs += m->layer[m->call[i].layer].class == &nn_layer_input;
    for (int k = 0; k < m->n_inputs; k++) {
        all = all && m->layer[m->call[m->value[m->input[k]].call].layer].class == &nn_layer_input;
        for (int i = 0; i < k; i++)
            all = all && m->input[i] != m->input[k];
    }
    return all && inputs == m->n_inputs ? PS_OK : nn_json_fail(&list, e, "expected each InputLayer of the model once");
}

static enum ps_code keras_read_functional(struct reader *r, const struct nn_json *config, const struct nn_json *layers,
                                          size_t n, bool trainable, struct ps_error *e)
{
    struct nodes nodes = {.layers = layers};
    enum ps_code code = keras_list_nodes(r, layers, n, trainable, &nodes, e);
    if (code == PS_OK)
        code = keras_call_nodes(r, &nodes, e);
    if (code == PS_OK)
        code = keras_read_ports(r, &nodes, config, "input_layers", r->model->input, &r->model->n_inputs, e);
    if (code == PS_OK)
        code = keras_check_inputs(r->model, config, e);
    if (code == PS_OK)
        code = keras_read_ports(r, &nodes, config, "output_layers", r->model->output, &r->model->n_outputs, e);
    free(nodes.first);
    free(nodes.v);
    return code;
}

// ---- the document -------------------------------------------------------------------------------------------------

static enum ps_code keras_read_kind(const struct nn_json *root, bool *functional, struct ps_error *e)
{
    struct nn_json class_name = nn_json_member(root, "class_name");
    const char *word;
    if (nn_json_object(root, e))
        return e->code;
    if (!nn_json_given(&class_name))
        return nn_json_expected(&class_name, e, "\"Sequential\" or \"Functional\"");
    if (nn_json_string(&class_name, &word, e))
        return e->code;
    *functional = strcmp(word, "Functional") == 0 || strcmp(word, "Model") == 0;  // Keras 2's first name of it
    if (!*functional && strcmp(word, "Sequential") != 0)
        return nn_json_expected(&class_name, e, "\"Sequential\" or \"Functional\"");
    return nn_setting_class(root, e);
}

static enum ps_code keras_read_document(struct reader *r, const struct nn_json *root, struct ps_error *e)
{
    struct nn_json config = nn_json_member(root, "config"), layers = nn_json_member(&config, "layers");
    struct nn_json own_name = nn_json_member(&config, "name");
    bool functional = false, trainable = true;
    const char *word;
    size_t n;
    if (keras_read_kind(root, &functional, e) || nn_json_object(&config, e) || nn_setting_dtype(&config, e) ||
        nn_setting_name(&own_name, &word, e) || nn_setting_bool(&config, "trainable", &trainable, e))
        return e->code;
    r->model->name = ps_strdup(word);
    if (nn_json_array(&layers, &n, e))
        return e->code;
    if (n < 1 || n > NN_MAX_LAYERS)
        return nn_json_expected(&layers, e, "1 to %d layers", NN_MAX_LAYERS);
    r->model->layer = ps_alloc((n + 1) * sizeof *r->model->layer);  // and an implied input
    return functional ? keras_read_functional(r, &config, &layers, n, trainable, e)
                      : keras_read_sequential(r, &layers, n, trainable, e);
}
// Takes over root.
static enum ps_code read_model(json_t *root, const json_error_t *error, const char *file, struct nn_model **model,
                               struct ps_error *e)
{
    if (!root)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: line %d, column %d: expected JSON: %s", file, error->line,
                       error->column, error->text);
    if (json_is_string(root)) {
        json_decref(root);
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s is a JSON string: write model.to_json() itself, not json.dump of it",
                       file);
    }
    struct reader reader = {.model = ps_alloc(sizeof *reader.model), .names = json_object()};
    struct nn_json at = nn_json_root(file, root);
    enum ps_code code = keras_read_document(&reader, &at, e);
    json_decref(reader.names);
    json_decref(root);
    if (code == PS_OK)
        *model = reader.model;
    else
        nn_model_free(reader.model);
    return code;
}

enum ps_code nn_model_parse(const char *json, const char *name, struct nn_model **model, struct ps_error *e)
{
    json_error_t error;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    return read_model(root, &error, name, model, e);
}

enum ps_code nn_model_load(const char *path, struct nn_model **model, struct ps_error *e)
{
    struct stat st;
    json_error_t error;
    FILE *f = fopen(path, "re");
    if (!f)
        return ps_fail(e, PS_NOT_FOUND, "%s: %s", path, strerror(errno));
    if (fstat(fileno(f), &st) == 0 && (S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && st.st_size == 0))) {
        fclose(f);
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s is %s; expected a file with model.to_json()", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "empty");
    }
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > MAX_FILE) {
        fclose(f);
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected a file of at most %d bytes", path, MAX_FILE);
    }
    json_t *root = json_loadf(f, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    fclose(f);
    return read_model(root, &error, path, model, e);
}
