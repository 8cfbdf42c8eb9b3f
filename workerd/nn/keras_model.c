// SPDX-License-Identifier: Apache-2.0
//
// Sequential and Functional: models, and models that are layers of another one. A model is opened (its layers are put
// into ours, those of inner models too), then called on values, which calls its layers: one within another as often as
// the outer one says.
//
// Sequential: each layer is called on what the one before gives. Functional: each layer says of each of its calls
// (inbound_nodes) which outputs of which calls of others it takes.
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/keras.h"

enum { MAX_DEPTH = 16 };  // of models within models

// A layer or a model of a document.
struct member {
    struct nn_layer *layer;  // NULL: a model
    struct keras_model *model;
};

// One call that a Functional document asks for: a node of a member.
struct node {
    int member, node;
    int value[NN_MAX_PORTS], values;  // what it gives; none: not called yet
};

struct keras_model {
    struct nn_json at, config, layers;  // of the document
    bool functional, trainable;
    bool keras2;      // as Keras 2 writes calls
    char *prefix;     // of its layers' names: "", or "inner/" of a model that is a layer
    char *saved;      // where Keras saves it: "", or "layers/sequential/" of a model that is a layer
    json_t *classes;  // how many layers of each class it has, as far as it is read
    int depth;
    size_t n;
    struct member *member;  // [n]
    json_t *names;          // of the members: name -> index
    struct node *node;      // those of a member stand together
    size_t nodes, *first;   // [n] and one: a member's first node
};

static void keras_close_model(struct keras_model *k)
{
    if (!k)
        return;
    for (size_t i = 0; k->member && i < k->n; i++)
        keras_close_model(k->member[i].model);
    json_decref(k->names);
    json_decref(k->classes);
    free(k->prefix);
    free(k->saved);
    free(k->member);
    free(k->node);
    free(k->first);
    free(k);
}

// ---- open ---------------------------------------------------------------------------------------------------------

static const char *keras_class_name(const struct nn_json *at)
{
    const char *word = json_string_value(json_object_get(at->value, "class_name"));
    return word ? word : "";
}

// Is it a model, and not a layer?
static bool keras_is_model(const struct nn_json *at)
{
    const char *word = keras_class_name(at);
    return strcmp(word, "Sequential") == 0 || strcmp(word, "Functional") == 0 || strcmp(word, "Model") == 0;
}

static enum ps_code keras_open_model(struct keras_reader *r, struct keras_model *k, struct ps_error *e);

// Where Keras saves a member.
static char *keras_saved_layer(struct keras_model *k, const struct nn_json *at)
{
    char *name = nn_saved_name(keras_class_name(at));
    json_int_t before = json_integer_value(json_object_get(k->classes, name));
    char *saved = before > 0 ? ps_printf("%slayers/%s_%d/", k->saved, name, (int)before)
                             : ps_printf("%slayers/%s/", k->saved, name);
    json_object_set_new(k->classes, name, json_integer(before + 1));
    free(name);
    return saved;
}

// The member's name; no other has it.
static enum ps_code keras_name_member(struct keras_model *k, const struct nn_json *config, size_t i, const char **word,
                                      struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, "name");
    if (nn_setting_name(&at, word, e))
        return e->code;
    if (json_object_get(k->names, *word))
        return nn_json_expected(&at, e, "a name that no other layer has");
    json_object_set_new(k->names, *word, json_integer((json_int_t)i));
    return PS_OK;
}

static enum ps_code keras_open_inner(struct keras_reader *r, struct keras_model *k, const struct nn_json *at, size_t i,
                                     struct ps_error *e)
{
    struct keras_model *inner = k->member[i].model = ps_alloc(sizeof *inner);
    const char *word;
    struct nn_json config = nn_json_member(at, "config");
    *inner = (struct keras_model){.at = *at, .trainable = k->trainable, .depth = k->depth + 1};
    if (inner->depth > MAX_DEPTH)
        return nn_json_fail(at, e, "expected at most %d models within each other", MAX_DEPTH);
    if (nn_json_object(&config, e) || keras_name_member(k, &config, i, &word, e))
        return e->code;
    inner->prefix = ps_printf("%s%s/", k->prefix, word);
    inner->saved = keras_saved_layer(k, at);
    return keras_open_model(r, inner, e);
}

static enum ps_code keras_open_member(struct keras_reader *r, struct keras_model *k, size_t i, struct ps_error *e)
{
    struct nn_json at = nn_json_element(&k->layers, i), config = nn_json_member(&at, "config");
    const struct nn_layer_class *class;
    const char *word;
    if (keras_is_model(&at))
        return keras_open_inner(r, k, &at, i, e);
    if (keras_check_layer(&at, &config, &class, e) || keras_name_member(k, &config, i, &word, e))
        return e->code;
    struct nn_layer *l = k->member[i].layer = keras_put_layer(r, class, ps_printf("%s%s", k->prefix, word));
    l->saved = keras_saved_layer(k, &at);
    if (nn_setting_bool(&config, "trainable", &l->trainable, e) ||
        (r->archive && class->vocabulary && keras_load_vocabulary(r->archive, l->saved, &config, e)))
        return e->code;
    l->trainable = l->trainable && k->trainable;
    return PS_OK;
}

static enum ps_code keras_open_kind(struct keras_model *k, struct ps_error *e)
{
    struct nn_json class_name = nn_json_member(&k->at, "class_name");
    if (nn_json_object(&k->at, e))
        return e->code;
    if (!keras_is_model(&k->at))
        return nn_json_expected(&class_name, e, "\"Sequential\" or \"Functional\"");
    k->functional = strcmp(keras_class_name(&k->at), "Sequential") != 0;  // Model is Keras 2's first name of it
    return nn_setting_class(&k->at, e);
}

static void keras_add_nodes(struct keras_model *k, size_t *cap, size_t member, size_t calls)
{
    for (size_t i = 0; i < calls; i++) {
        if (k->nodes == *cap) {
            *cap = *cap ? 2 * *cap : 64;
            k->node = ps_realloc(k->node, *cap * sizeof *k->node);
        }
        k->node[k->nodes++] = (struct node){.member = (int)member, .node = (int)i};
    }
}

static void keras_list_nodes(struct keras_model *k)
{
    size_t cap = 0;
    k->first = ps_alloc((k->n + 1) * sizeof *k->first);
    k->keras2 = nn_setting_is_keras2(&k->at);
    for (size_t i = 0; i < k->n; i++) {
        const json_t *inbound = json_object_get(json_array_get(k->layers.value, i), "inbound_nodes");
        bool input = k->member[i].layer && k->member[i].layer->class == &nn_layer_input;
        k->keras2 = k->keras2 || json_is_array(json_array_get(inbound, 0));
        keras_add_nodes(k, &cap, i, input ? 1 : json_array_size(inbound));
        k->first[i + 1] = k->nodes;
    }
}

// All but k->at, k->prefix, k->depth and the trainable of the model around it, which the caller has set.
static enum ps_code keras_open_model(struct keras_reader *r, struct keras_model *k, struct ps_error *e)
{
    bool trainable = true;
    k->config = nn_json_member(&k->at, "config");
    k->layers = nn_json_member(&k->config, "layers");
    k->names = json_object();
    k->classes = json_object();
    if (keras_open_kind(k, e) || nn_json_object(&k->config, e) || nn_setting_dtype(&k->config, e) ||
        nn_setting_bool(&k->config, "trainable", &trainable, e) || nn_json_array(&k->layers, &k->n, e))
        return e->code;
    if (k->n < 1 || k->n > NN_MAX_LAYERS) {
        k->n = 0;
        return nn_json_expected(&k->layers, e, "1 to %d layers", NN_MAX_LAYERS);
    }
    k->trainable = k->trainable && trainable;
    k->member = ps_alloc(k->n * sizeof *k->member);
    for (size_t i = 0; i < k->n; i++)
        if (keras_open_member(r, k, i, e))
            return e->code;
    keras_list_nodes(k);
    return PS_OK;
}

// ---- call ---------------------------------------------------------------------------------------------------------

// in: what it is called on; NULL: its own InputLayers make the values. *n_out of out[NN_MAX_PORTS].
static enum ps_code keras_call_model(struct keras_reader *r, const struct keras_model *k, const int *in, int n_in,
                                     int *out, int *n_out, struct ps_error *e);

// A member on values.
static enum ps_code keras_call_member(struct keras_reader *r, const struct keras_model *k, size_t i,
                                      const struct keras_arguments *a, int *out, int *n_out, struct ps_error *e)
{
    struct nn_json at = nn_json_element(&k->layers, i), config = nn_json_member(&at, "config");
    const struct member *member = &k->member[i];
    const bool before = r->inference;
    r->inference = before || a->inference;
    enum ps_code code = member->model ? keras_call_model(r, member->model, a->in, a->n_in, out, n_out, e)
                                      : keras_call(r, &at, &config, member->layer, a, out, n_out, e);
    r->inference = before;
    return code;
}

// The InputLayer of a model that is called on a value stands for that, if it has its shape.
static enum ps_code keras_check_given(struct keras_reader *r, const struct keras_model *k, size_t i, int value,
                                      struct ps_error *e)
{
    struct nn_json at = nn_json_element(&k->layers, i), config = nn_json_member(&at, "config");
    struct nn_building b = {
        .model = r->model, .at = &at, .config = &config, .layer = k->member[i].layer, .first = true};
    const struct nn_type *given = &r->model->value[value].type;
    char have[128], want[128];
    if (b.layer->class->build(&b, e))
        return e->code;
    if (memcmp(&b.out, given, sizeof *given) == 0)
        return PS_OK;
    return nn_json_fail(&at, e, "the model is called on a value of shape %s, but its InputLayer has %s",
                        ps_shape_text((const uint64_t *)given->dim, (size_t)given->rank, have, sizeof have),
                        ps_shape_text((const uint64_t *)b.out.dim, (size_t)b.out.rank, want, sizeof want));
}

static bool keras_is_input(const struct keras_model *k, size_t i)
{
    return k->member[i].layer && k->member[i].layer->class == &nn_layer_input;
}

// ---- Sequential ---------------------------------------------------------------------------------------------------

// Keras 2 lets the first layer say the shape of the input itself.
static enum ps_code keras_call_implied_input(struct keras_reader *r, const struct keras_model *k, int *out, int *n_out,
                                             struct ps_error *e)
{
    struct nn_json at = nn_json_element(&k->layers, 0), config = nn_json_member(&at, "config");
    struct nn_json keras2 = nn_json_member(&config, "batch_input_shape");
    if (!keras2.value || !k->member[0].layer)
        return nn_json_fail(&at, e,
                            "expected an InputLayer with a batch_shape as the first layer, or a batch_input_shape in "
                            "this one");
    struct nn_layer *input = keras_put_layer(r, &nn_layer_input, ps_printf("%s_input", k->member[0].layer->name));
    struct keras_arguments none;
    keras_no_arguments(&none);
    return keras_call(r, &at, &config, input, &none, out, n_out, e);
}

static enum ps_code keras_call_sequential(struct keras_reader *r, const struct keras_model *k, const int *in, int n_in,
                                          int *out, int *n_out, struct ps_error *e)
{
    size_t i = 0;
    if (n_in > 1)
        return nn_json_fail(&k->at, e, "a Sequential model takes 1 input, not %d", n_in);
    if (n_in == 1 && keras_is_input(k, 0) && keras_check_given(r, k, i++, in[0], e))
        return e->code;
    *n_out = n_in;
    out[0] = n_in ? in[0] : -1;
    if (n_in == 0 && !keras_is_input(k, 0) && keras_call_implied_input(r, k, out, n_out, e))
        return e->code;
    for (; i < k->n; i++) {
        struct keras_arguments a;
        keras_no_arguments(&a);
        if (*n_out > 1)
            return nn_json_fail(&k->layers, e, "what has several outputs can only be the last of a Sequential model");
        a.in[0] = out[0];
        a.n_in = *n_out;
        if (keras_call_member(r, k, i, &a, out, n_out, e))
            return e->code;
    }
    return PS_OK;
}

// ---- Functional ---------------------------------------------------------------------------------------------------

// The nodes of one call of a model.
struct run {
    struct keras_reader *r;
    const struct keras_model *k;
    struct node *node;
    const struct keras_model *inner;  // the Functional model that the node in question calls; NULL: it calls another
};

// Of "input_layers" or "output_layers", which is ["name", 0, 0], a list of these, or an object of them by name.
static enum ps_code keras_port_count(const struct nn_json *list, size_t *n, struct ps_error *e)
{
    *n = json_is_string(json_array_get(list->value, 0)) ? 1 : json_object_size(list->value);
    if (*n == 0 && nn_json_array(list, n, e))
        return e->code;
    return *n >= 1 && *n <= NN_MAX_PORTS ? PS_OK : nn_json_expected(list, e, "1 to %d of them", NN_MAX_PORTS);
}

// Keras counts what goes by name in the order of the names, whatever order the document has.
static struct nn_json keras_nth_member(const struct nn_json *object, size_t n)
{
    json_t *all = (json_t *)object->value, *ignored;
    const char *key;
    json_object_foreach(all, key, ignored)
    {
        size_t before = 0;
        for (void *i = json_object_iter(all); i; i = json_object_iter_next(all, i))
            before += strcmp(json_object_iter_key(i), key) < 0;
        if (before == n)
            break;
    }
    return nn_json_member(object, key);
}

static struct nn_json keras_port(const struct nn_json *list, size_t i)
{
    if (json_is_string(json_array_get(list->value, 0)))
        return *list;
    return json_is_object(list->value) ? keras_nth_member(list, i) : nn_json_element(list, i);
}

// ["dense", 0, 0]: the node of a member, and which of its outputs. listed: in a list of inputs, of outputs or, in Keras
// 2, of what a call takes. There the call of a model on its own inputs counts as the model's first; in the history that
// Keras 3 writes of a value that a call takes, it does not.
static enum ps_code keras_find_node(const struct run *run, const struct nn_json *at, bool listed, struct node **found,
                                    int *which, struct ps_error *e)
{
    const struct keras_model *k = run->k;
    struct nn_json name = nn_json_element(at, 0), node = nn_json_element(at, 1), output = nn_json_element(at, 2);
    const char *word;
    int64_t number, out;
    if (nn_json_string(&name, &word, e) || nn_json_int(&node, 0, INT32_MAX, &number, e) ||
        nn_json_int(&output, 0, NN_MAX_PORTS - 1, &out, e))
        return e->code;
    const json_t *index = json_object_get(k->names, word);
    if (!index)
        return nn_json_expected(&name, e, "the name of a layer of this model");
    const size_t i = (size_t)json_integer_value(index);
    const struct keras_model *inner = k->member[i].model;
    number -= inner && listed && (k->keras2 ? keras_is_input(inner, 0) : inner->functional);
    if (number < 0 || (uint64_t)number >= k->first[i + 1] - k->first[i])
        return nn_json_expected(&node, e, "a call of layer \"%s\"", word);
    *found = &run->node[k->first[i] + (size_t)number];
    *which = (int)out;
    if ((*found)->values && *which >= (*found)->values)
        return nn_json_expected(&output, e, "an output of layer \"%s\"", word);
    return PS_OK;
}

// A reference to a value: Keras 2's list, or Keras 3's tensor with its history. -1: it has not been made yet.
static enum ps_code keras_read_reference(const struct run *run, const struct nn_json *at, int *value,
                                         struct ps_error *e)
{
    struct nn_json config = nn_json_member(at, "config"), history = nn_json_member(&config, "keras_history");
    const bool listed = !json_is_object(at->value);
    struct node *found;
    int which;
    if (!listed && nn_json_object(&config, e))
        return e->code;
    if (keras_find_node(run, listed ? at : &history, listed, &found, &which, e))
        return e->code;
    *value = found->values ? found->value[which] : -1;
    return PS_OK;
}

// A value that a call takes: *value, and *ready stays as it is if that has been made.
static enum ps_code keras_read_value(const struct run *run, const struct nn_json *at, int *value, bool *ready,
                                     struct ps_error *e)
{
    if (keras_read_reference(run, at, value, e))
        return e->code;
    *ready = *ready && *value >= 0;
    return PS_OK;
}

static enum ps_code keras_add_value(const struct run *run, const struct nn_json *at, struct keras_arguments *a,
                                    bool *ready, struct ps_error *e)
{
    if (a->n_in == NN_CALL_IN)
        return nn_json_fail(at->up, e, "expected at most %d inputs", NN_CALL_IN);
    return keras_read_value(run, at, &a->in[a->n_in++], ready, e);
}

// What a model is called on by name: no tensor, of which Keras 3 writes an object, too.
static bool keras_is_by_name(const struct nn_json *at)
{
    return json_is_object(at->value) && !json_is_string(json_object_get(at->value, "class_name"));
}

// Of those, what the model takes as its input number i: by the names that its inputs have, or else by its InputLayers'.
static struct nn_json keras_by_name(const struct run *run, const struct nn_json *at, size_t i)
{
    struct nn_json ports = nn_json_member(&run->inner->config, "input_layers"), port = keras_port(&ports, i);
    const char *name = json_string_value(json_array_get(port.value, 0));
    return nn_json_member(at, json_is_object(ports.value) ? port.key : name ? name : "");
}

static enum ps_code keras_count_by_name(const struct run *run, const struct nn_json *at, size_t *n, struct ps_error *e)
{
    if (!run->inner)
        return nn_json_expected(at, e, "a value, or a list of them: a layer takes none by name");
    struct nn_json ports = nn_json_member(&run->inner->config, "input_layers");
    return keras_port_count(&ports, n, e);
}

// Or a list of them: the states of a recurrent layer; or values by name.
static enum ps_code keras_add_input(const struct run *run, const struct nn_json *at, struct keras_arguments *a,
                                    bool *ready, struct ps_error *e)
{
    const bool by_name = keras_is_by_name(at);
    size_t n = json_is_string(json_array_get(at->value, 0)) ? 0 : json_array_size(at->value);
    if (by_name && keras_count_by_name(run, at, &n, e))
        return e->code;
    for (size_t i = 0; i < n; i++) {
        struct nn_json one = by_name ? keras_by_name(run, at, i) : nn_json_element(at, i);
        if (by_name ? keras_add_value(run, &one, a, ready, e) : keras_add_input(run, &one, a, ready, e))
            return e->code;
    }
    return n > 0 ? PS_OK : keras_add_value(run, at, a, ready, e);
}

// The inputs of a node, all in one list or one by one.
static enum ps_code keras_read_inputs(const struct run *run, const struct nn_json *list,
                                      const struct nn_layer_class *class, struct keras_arguments *a, bool *ready,
                                      struct ps_error *e)
{
    size_t n;
    if (nn_json_array(list, &n, e))
        return e->code;
    for (size_t i = 0; i < n; i++) {
        struct nn_json at = nn_json_element(list, i);
        if (class && class->constant && i == 1 ? nn_json_real(&at, -(double)FLT_MAX, (double)FLT_MAX, &a->constant, e)
                                               : keras_add_input(run, &at, a, ready, e))
            return e->code;
    }
    return PS_OK;
}

// A mask, or those of all inputs, in a list or by name, some of which may be null.
static enum ps_code keras_read_masks(const struct run *run, const struct nn_json *at, int *mask, bool *ready,
                                     struct ps_error *e)
{
    const bool by_name = keras_is_by_name(at);
    size_t n = json_is_string(json_array_get(at->value, 0)) ? 0 : json_array_size(at->value);
    if (by_name && keras_count_by_name(run, at, &n, e))
        return e->code;
    if (n == 0)
        return keras_read_value(run, at, mask, ready, e);
    if (n > NN_CALL_IN)
        return nn_json_fail(at, e, "expected at most %d masks", NN_CALL_IN);
    for (size_t i = 0; i < n; i++) {
        struct nn_json one = by_name ? keras_by_name(run, at, i) : nn_json_element(at, i);
        if (nn_json_given(&one) && keras_read_value(run, &one, &mask[i], ready, e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code keras_read_argument(const struct run *run, const struct nn_json *at,
                                        const struct nn_argument *argument, struct keras_arguments *a, bool *ready,
                                        struct ps_error *e)
{
    switch (argument->kind) {
    case NN_ARG_INPUT:
        return keras_add_input(run, at, a, ready, e);
    case NN_ARG_MASK:
        return argument->input ? keras_read_value(run, at, &a->mask[argument->input], ready, e)
                               : keras_read_masks(run, at, a->mask, ready, e);
    case NN_ARG_FLAG:
        break;
    }
    return nn_json_bool(at, &a->flag, e);
}

// Whether a call trains the program says, but for Keras 2, where training=False stays so in a model that is trained.
static enum ps_code keras_read_training(const struct nn_json *named, struct keras_arguments *a, struct ps_error *e)
{
    struct nn_json at = nn_json_member(named, "training");
    bool training = true;
    if (!nn_json_given(&at) || !nn_setting_is_keras2(&at))
        return PS_OK;
    if (nn_json_bool(&at, &training, e))
        return e->code;
    a->inference = !training;
    return training ? nn_json_expected(&at, e, "null or false: a layer cannot train where the model does not") : PS_OK;
}

// What a call is given by name.
static enum ps_code keras_read_named(const struct run *run, const struct nn_json *named,
                                     const struct nn_layer_class *class, struct keras_arguments *a, bool *ready,
                                     struct ps_error *e)
{
    static const struct nn_argument others[] = {{"inputs", NN_ARG_INPUT, 0}, {"mask", NN_ARG_MASK, 0}, {NULL}};
    const struct nn_argument *known = class && class->arguments ? class->arguments : others;
    for (void *i = json_object_iter((json_t *)named->value); i; i = json_object_iter_next((json_t *)named->value, i)) {
        const char *name = json_object_iter_key(i);
        const struct nn_argument *k = known;
        struct nn_json at = nn_json_member(named, name);
        while (k->name && strcmp(k->name, name) != 0)
            k++;
        if (!k->name && nn_json_given(&at) && strcmp(name, "training") != 0 && !json_is_false(at.value))
            return nn_json_fail(&at, e, "expected null: this argument of a call is not supported");
    }
    if (keras_read_training(named, a, e))
        return e->code;
    for (const struct nn_argument *k = known; k->name; k++) {
        struct nn_json at = nn_json_member(named, k->name);
        if (nn_json_given(&at) && keras_read_argument(run, &at, k, a, ready, e))
            return e->code;
    }
    return PS_OK;
}

// class: NULL where a model is called. *ready: all that it takes has been made.
static enum ps_code keras_read_node(const struct run *run, const struct nn_json *node,
                                    const struct nn_layer_class *class, struct keras_arguments *a, bool *ready,
                                    struct ps_error *e)
{
    struct nn_json args = nn_json_member(node, "args"), inner = nn_json_element(&args, 0);
    struct nn_json keras3 = nn_json_member(node, "kwargs"), first = nn_json_element(node, 0);
    struct nn_json keras2 = nn_json_element(&first, 3);
    const bool object = json_is_object(node->value);
    const struct nn_json *list = !object ? node : json_is_array(inner.value) ? &inner : &args;
    *ready = true;
    if (object && run->k->keras2)  // a model, on values by name
        return keras_add_input(run, node, a, ready, e);
    if (keras_read_inputs(run, list, class, a, ready, e))
        return e->code;
    return keras_read_named(run, object ? &keras3 : &keras2, class, a, ready, e);
}

// Calls a node if what it takes has been made.
static enum ps_code keras_try_node(const struct run *run, struct node *node, struct ps_error *e)
{
    const struct keras_model *k = run->k;
    const size_t member = (size_t)node->member;
    struct nn_json at = nn_json_element(&k->layers, member), inbound = nn_json_member(&at, "inbound_nodes");
    struct nn_json own = nn_json_element(&inbound, (size_t)node->node);
    const struct keras_model *inner = k->member[member].model;
    const struct run calling = {run->r, k, run->node, inner && inner->functional ? inner : NULL};
    struct keras_arguments a;
    bool ready = true;
    keras_no_arguments(&a);
    if (!keras_is_input(k, member) &&
        keras_read_node(&calling, &own, k->member[member].layer ? k->member[member].layer->class : NULL, &a, &ready, e))
        return e->code;
    if (!ready)
        return PS_OK;
    return keras_call_member(run->r, k, member, &a, node->value, &node->values, e);
}

// Every round calls at least one node, or some take what only they make. Rounds go up and down the list in turn: most
// documents have what is taken first, some last.
static enum ps_code keras_call_nodes(const struct run *run, struct ps_error *e)
{
    const struct keras_model *k = run->k;
    size_t left = 0;
    for (size_t i = 0; i < k->nodes; i++)
        left += run->node[i].values == 0;
    for (bool down = false; left > 0; down = !down) {
        size_t before = left;
        for (size_t i = 0; i < k->nodes; i++) {
            struct node *node = &run->node[down ? k->nodes - 1 - i : i];
            if (node->values)
                continue;
            if (keras_try_node(run, node, e))
                return e->code;
            left -= node->values > 0;
        }
        if (left == before)
            return nn_json_fail(
                &k->layers, e,
                "expected calls that can be made one after the other: %zu take%s what they give themselves", left,
                left == 1 ? "s" : "");
    }
    return PS_OK;
}

// The values that the model is called on stand in the place of its InputLayers'.
static enum ps_code keras_give_inputs(const struct run *run, const int *in, int n_in, struct ps_error *e)
{
    struct nn_json list = nn_json_member(&run->k->config, "input_layers");
    size_t n;
    if (keras_port_count(&list, &n, e))
        return e->code;
    if ((size_t)n_in != n)
        return nn_json_fail(&run->k->at, e, "the model takes %zu input%s, not %d", n, n == 1 ? "" : "s", n_in);
    for (size_t i = 0; i < n; i++) {
        struct nn_json at = keras_port(&list, i);
        struct node *node;
        int which;
        if (keras_find_node(run, &at, true, &node, &which, e))
            return e->code;
        if (!keras_is_input(run->k, (size_t)node->member) || node->values)
            return nn_json_fail(&list, e, "expected each InputLayer of the model once");
        if (keras_check_given(run->r, run->k, (size_t)node->member, in[i], e))
            return e->code;
        node->value[0] = in[i];
        node->values = 1;
    }
    return PS_OK;
}

static enum ps_code keras_read_ports(const struct run *run, const char *key, int *value, int *n_values,
                                     struct ps_error *e)
{
    struct nn_json list = nn_json_member(&run->k->config, key);
    size_t n;
    if (keras_port_count(&list, &n, e))
        return e->code;
    for (size_t i = 0; i < n; i++) {
        struct nn_json at = keras_port(&list, i);
        if (keras_read_reference(run, &at, &value[i], e))
            return e->code;
    }
    *n_values = (int)n;
    return PS_OK;
}

static enum ps_code keras_call_functional(struct keras_reader *r, const struct keras_model *k, const int *in, int n_in,
                                          int *out, int *n_out, struct ps_error *e)
{
    struct run run = {.r = r, .k = k, .node = ps_alloc((k->nodes + 1) * sizeof(struct node))};
    memcpy(run.node, k->node, k->nodes * sizeof *run.node);
    enum ps_code code = in ? keras_give_inputs(&run, in, n_in, e) : PS_OK;
    if (code == PS_OK)
        code = keras_call_nodes(&run, e);
    if (code == PS_OK && !in)
        code = keras_read_ports(&run, "input_layers", r->model->input, &r->model->n_inputs, e);
    if (code == PS_OK)
        code = keras_read_ports(&run, "output_layers", out, n_out, e);
    free(run.node);
    return code;
}

static enum ps_code keras_call_model(struct keras_reader *r, const struct keras_model *k, const int *in, int n_in,
                                     int *out, int *n_out, struct ps_error *e)
{
    return k->functional ? keras_call_functional(r, k, in, n_in, out, n_out, e)
                         : keras_call_sequential(r, k, in, n_in, out, n_out, e);
}

// ---- the whole ----------------------------------------------------------------------------------------------------

// The model's inputs are InputLayers, and all that there are.
static enum ps_code keras_check_inputs(const struct nn_model *m, const struct keras_model *k, struct ps_error *e)
{
    struct nn_json list = nn_json_member(&k->config, "input_layers");
    int inputs = 0;
    bool all = true;
    for (size_t i = 0; i < m->calls; i++)
        inputs += m->layer[m->call[i].layer].class == &nn_layer_input;
    for (int i = 0; i < m->n_inputs; i++) {
        all = all && m->layer[m->call[m->value[m->input[i]].call].layer].class == &nn_layer_input;
        for (int j = 0; j < i; j++)
            all = all && m->input[i] != m->input[j];
    }
    return all && inputs == m->n_inputs ? PS_OK : nn_json_fail(&list, e, "expected each InputLayer of the model once");
}

// Those of all models within each other, and an implied input.
static size_t keras_count_layers(const json_t *document, int depth)
{
    const json_t *layers = json_object_get(json_object_get(document, "config"), "layers"), *layer;
    size_t i, n = 1;
    json_array_foreach(layers, i, layer) n += depth <= MAX_DEPTH ? keras_count_layers(layer, depth + 1) : 0;
    return n;
}

// As Keras calls them: by the member of this model that gives one, be that a layer or a model.
static void keras_name_outputs(struct nn_model *m, const struct keras_model *k)
{
    struct nn_json list = nn_json_member(&k->config, "output_layers");
    struct nn_json last = nn_json_element(&k->layers, k->n - 1), config = nn_json_member(&last, "config");
    for (int i = 0; i < m->n_outputs; i++) {
        struct nn_json port = keras_port(&list, (size_t)i);
        m->output_name[i] = ps_strdup(
            json_string_value(k->functional ? json_array_get(port.value, 0) : json_object_get(config.value, "name")));
    }
}

static enum ps_code keras_read_opened(struct keras_reader *r, struct keras_model *k, struct ps_error *e)
{
    struct nn_model *m = r->model;
    if (keras_open_model(r, k, e) || keras_call_model(r, k, NULL, 0, m->output, &m->n_outputs, e))
        return e->code;
    keras_name_outputs(m, k);
    if (k->functional)
        return keras_check_inputs(m, k, e);
    m->input[0] = 0;
    m->n_inputs = 1;
    return PS_OK;
}

enum ps_code keras_read_model(struct keras_reader *r, const struct nn_json *root, struct ps_error *e)
{
    struct nn_json config = nn_json_member(root, "config"), own = nn_json_member(&config, "name");
    struct keras_model *k = ps_alloc(sizeof *k);
    const char *word = "";
    size_t layers = keras_count_layers(root->value, 0);
    *k = (struct keras_model){.at = *root, .trainable = true, .prefix = ps_strdup(""), .saved = ps_strdup("")};
    enum ps_code code = keras_open_kind(k, e);
    if (code == PS_OK)
        code = nn_json_object(&config, e);
    if (code == PS_OK)
        code = nn_setting_name(&own, &word, e);
    r->model->name = ps_strdup(word);
    r->model->layer = ps_alloc((layers + 1) * sizeof *r->model->layer);
    if (code == PS_OK)
        code = keras_read_opened(r, k, e);
    keras_close_model(k);
    return code;
}
