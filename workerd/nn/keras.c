// SPDX-License-Identifier: Apache-2.0
//
// Keras's Sequential models from JSON, as model.to_json() of Keras 3 and of Keras 2 writes them, or as one writes them
// by hand: what is left out has Keras's default. Top to bottom: shapes, parameters, one reader per layer, the document.
//
// A layer's reader also works out the shape it gives, because a shape that does not fit is an error at a place in the
// document too. A setting that would change the result and that we do not have is refused, never read over.
#include <errno.h>
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
    json_t *names;  // of the layers so far: an object used as a set
};

// A layer being read: where it stands, what comes in, what goes out.
struct reading {
    struct reader *reader;
    const struct nn_json *at;      // $.config.layers[i]
    const struct nn_json *config;  // $.config.layers[i].config
    const struct nn_layer *in;     // the layer below; NULL: none
    struct nn_layer *out;
};

// ---- shapes -------------------------------------------------------------------------------------------------------

static enum ps_code keras_elements(const struct nn_json *at, const char *what, const uint64_t *shape, size_t rank,
                                   uint64_t *count, struct ps_error *e)
{
    char text[128];
    uint64_t n = 1;
    for (size_t i = 0; i < rank; i++) {
        if (shape[i] > NN_MAX_ELEMENTS / n)
            return nn_json_fail(at, e, "%s of shape %s has more than %d elements", what,
                                ps_shape_text(shape, rank, text, sizeof text), NN_MAX_ELEMENTS);
        n *= shape[i];
    }
    *count = n;
    return PS_OK;
}

static enum ps_code set_shape(struct reading *r, const uint64_t *shape, size_t rank, struct ps_error *e)
{
    memcpy(r->out->shape, shape, rank * sizeof *shape);
    r->out->rank = rank;
    return keras_elements(r->at, "an output", shape, rank, &r->out->count, e);
}

static enum ps_code same_shape(struct reading *r, struct ps_error *e)
{
    return set_shape(r, r->in->shape, r->in->rank, e);
}

static enum ps_code needs_image(struct reading *r, struct ps_error *e)
{
    char text[128];
    if (r->in->rank == 3)
        return PS_OK;
    return nn_json_fail(r->at, e, "%s expected an input of shape (height, width, channels), but \"%s\" gives %s",
                        r->out->class_name, r->in->name, ps_shape_text(r->in->shape, r->in->rank, text, sizeof text));
}

// A window of k cells that moves by stride over one axis of in cells. "same" is TensorFlow's: ceil(in / stride)
// positions, the cells that lack divided between the two ends, the odd one after.
struct axis {
    int in, k, stride;            // given
    int out, pad_first, pad_end;  // worked out
};

static enum ps_code place_window(struct reading *r, struct axis *a, bool same, struct ps_error *e)
{
    if (!same && a->k > a->in) {
        char text[128];
        return nn_json_fail(r->config, e,
                            "a window of %d does not fit the input %s: expected a smaller one, or padding \"same\"",
                            a->k, ps_shape_text(r->in->shape, r->in->rank, text, sizeof text));
    }
    if (same) {
        a->out = (int)(((int64_t)a->in + a->stride - 1) / a->stride);
        int64_t lack = (int64_t)(a->out - 1) * a->stride + a->k - a->in;
        if (a->in + lack > NN_MAX_ELEMENTS)
            return nn_json_fail(r->config, e, "an image of %d padded for a window of %d: expected at most %d together",
                                a->in, a->k, NN_MAX_ELEMENTS);
        a->pad_first = lack > 0 ? (int)(lack / 2) : 0;
        a->pad_end = lack > 0 ? (int)(lack - lack / 2) : 0;
    } else {
        a->out = (a->in - a->k) / a->stride + 1;
    }
    return PS_OK;
}

// Both axes of an image, for Conv2D and MaxPooling2D.
static enum ps_code place_windows(struct reading *r, const int window[2], const int stride[2], struct axis axis[2],
                                  struct ps_error *e)
{
    bool same;
    enum ps_code code = needs_image(r, e);
    if (code == PS_OK)
        code = nn_setting_only_word(r->config, "data_format", "channels_last", e);
    if (code == PS_OK)
        code = nn_setting_padding(r->config, &same, e);
    for (int i = 0; code == PS_OK && i < 2; i++) {
        axis[i] = (struct axis){.in = (int)r->in->shape[i], .k = window[i], .stride = stride[i]};
        code = place_window(r, &axis[i], same, e);
    }
    return code;
}

// ---- parameters ---------------------------------------------------------------------------------------------------

static enum ps_code add_variable(struct reading *r, const char *what, const char *fallback, const uint64_t *shape,
                                 size_t rank, int *index, struct ps_error *e)
{
    struct nn_model *m = r->reader->model;
    m->variable = ps_realloc(m->variable, (m->variables + 1) * sizeof *m->variable);
    struct nn_variable *v = &m->variable[m->variables];
    *v = (struct nn_variable){0};
    char key[32];
    snprintf(key, sizeof key, "%s_initializer", what);
    struct nn_json initializer = nn_json_member(r->config, key);
    enum ps_code code = nn_init_read(&initializer, fallback, shape, rank, &v->init, e);
    if (code == PS_OK)
        code = keras_elements(r->at, what, shape, rank, &v->param.count, e);
    if (code != PS_OK)
        return code;
    v->param.name = ps_printf("%s/%s/%s", m->name, r->out->name, what);
    v->param.layer = r->out->name;
    v->param.rank = rank;
    v->param.trainable = r->out->trainable;
    memcpy(v->param.shape, shape, rank * sizeof *shape);
    *index = (int)m->variables++;
    return PS_OK;
}

// The kernel, whose last dimension counts the outputs, and a bias for each output unless use_bias is false.
static enum ps_code add_kernel_bias(struct reading *r, const uint64_t *shape, size_t rank, struct ps_error *e)
{
    bool use_bias = true;
    enum ps_code code = nn_setting_bool(r->config, "use_bias", &use_bias, e);
    if (code == PS_OK)
        code = add_variable(r, "kernel", "GlorotUniform", shape, rank, &r->out->kernel, e);
    if (code == PS_OK && use_bias)
        code = add_variable(r, "bias", "Zeros", &shape[rank - 1], 1, &r->out->bias, e);
    return code;
}

// ---- layers -------------------------------------------------------------------------------------------------------

// A batch shape: [null, 28, 28, 1]. The batch's size is the job's, whatever stands first.
static enum ps_code read_batch_shape(struct reading *r, const struct nn_json *at, struct ps_error *e)
{
    uint64_t shape[PS_MAX_RANK];
    size_t n;
    enum ps_code code = nn_json_array(at, &n, e);
    if (code != PS_OK)
        return code;
    if (n < 2 || n > PS_MAX_RANK + 1)
        return nn_json_expected(at, e, "null for the batch and 1 to %d dimensions", PS_MAX_RANK);
    for (size_t i = 1; code == PS_OK && i < n; i++) {
        struct nn_json dimension = nn_json_element(at, i);
        int size = 0;
        code = nn_setting_size(&dimension, &size, e);
        shape[i - 1] = (uint64_t)size;
    }
    return code == PS_OK ? set_shape(r, shape, n - 1, e) : code;
}

static enum ps_code read_input(struct reading *r, struct ps_error *e)
{
    struct nn_json keras3 = nn_json_member(r->config, "batch_shape");
    struct nn_json keras2 = nn_json_member(r->config, "batch_input_shape");
    if (r->in)
        return nn_json_fail(r->at, e, "expected InputLayer as the first layer only");
    return read_batch_shape(r, keras2.value ? &keras2 : &keras3, e);
}

static enum ps_code read_dense(struct reading *r, struct ps_error *e)
{
    struct nn_json units = nn_json_member(r->config, "units"), activation = nn_json_member(r->config, "activation");
    int out = 0;
    enum ps_code code = nn_setting_size(&units, &out, e);
    if (code == PS_OK)
        code = nn_setting_function(&activation, &r->out->function, e);
    if (code != PS_OK)
        return code;
    uint64_t shape[PS_MAX_RANK], in = r->in->shape[r->in->rank - 1];
    memcpy(shape, r->in->shape, sizeof shape);
    shape[r->in->rank - 1] = (uint64_t)out;
    code = set_shape(r, shape, r->in->rank, e);
    if (code == PS_OK)
        code = add_kernel_bias(r, (uint64_t[]){in, (uint64_t)out}, 2, e);
    r->out->dense = (struct nn_dense){.bias = r->out->bias >= 0};
    return code;
}

static enum ps_code read_conv_settings(struct reading *r, int *filters, int kernel[2], int stride[2],
                                       struct ps_error *e)
{
    struct nn_json count = nn_json_member(r->config, "filters"), size = nn_json_member(r->config, "kernel_size");
    struct nn_json activation = nn_json_member(r->config, "activation");
    struct nn_json dilation_rate = nn_json_member(r->config, "dilation_rate");
    int dilation[2] = {1, 1};
    enum ps_code code = nn_setting_size(&count, filters, e);
    if (code == PS_OK)
        code = nn_setting_pair(&size, kernel, e);
    if (code == PS_OK)
        code = nn_setting_optional_pair(r->config, "strides", stride, e);
    if (code == PS_OK)
        code = nn_setting_optional_pair(r->config, "dilation_rate", dilation, e);
    if (code == PS_OK && (dilation[0] != 1 || dilation[1] != 1))
        return nn_json_fail(&dilation_rate, e, "expected 1 or [1, 1], not [%d, %d]", dilation[0], dilation[1]);
    if (code == PS_OK)
        code = nn_setting_only_number(r->config, "groups", 1, e);
    if (code == PS_OK)
        code = nn_setting_function(&activation, &r->out->function, e);
    return code;
}

static enum ps_code read_conv2d(struct reading *r, struct ps_error *e)
{
    int filters = 0, kernel[2] = {0}, stride[2] = {1, 1};
    struct axis axis[2] = {0};
    enum ps_code code = read_conv_settings(r, &filters, kernel, stride, e);
    if (code == PS_OK)
        code = place_windows(r, kernel, stride, axis, e);
    if (code != PS_OK)
        return code;
    const struct axis *y = &axis[0], *x = &axis[1];
    uint64_t c = r->in->shape[2], oc = (uint64_t)filters;
    code = set_shape(r, (uint64_t[]){(uint64_t)y->out, (uint64_t)x->out, oc}, 3, e);
    if (code == PS_OK)
        code = add_kernel_bias(r, (uint64_t[]){(uint64_t)y->k, (uint64_t)x->k, c, oc}, 4, e);
    r->out->conv = (struct nn_conv2d){.image = {y->in, x->in},
                                      .kernel = {y->k, x->k},
                                      .stride = {y->stride, x->stride},
                                      .pad_begin = {y->pad_first, x->pad_first},
                                      .pad_end = {y->pad_end, x->pad_end},
                                      .bias = r->out->bias >= 0};
    return code;
}

static enum ps_code read_maxpool(struct reading *r, struct ps_error *e)
{
    struct nn_json pool_size = nn_json_member(r->config, "pool_size");
    int window[2] = {2, 2};
    struct axis axis[2] = {0};
    enum ps_code code = nn_setting_optional_pair(r->config, "pool_size", window, e);
    if (code == PS_OK && (int64_t)window[0] * window[1] > NN_MAX_WINDOW)
        return nn_json_fail(&pool_size, e, "expected at most %d cells, not %d x %d", NN_MAX_WINDOW, window[0],
                            window[1]);
    int stride[2] = {window[0], window[1]};
    if (code == PS_OK)
        code = nn_setting_optional_pair(r->config, "strides", stride, e);
    if (code == PS_OK)
        code = place_windows(r, window, stride, axis, e);
    if (code != PS_OK)
        return code;
    const struct axis *y = &axis[0], *x = &axis[1];
    uint64_t c = r->in->shape[2];
    r->out->pool = (struct nn_maxpool){.image = {y->in, x->in},
                                       .window = {y->k, x->k},
                                       .stride = {y->stride, x->stride},
                                       .pad_begin = {y->pad_first, x->pad_first},
                                       .out = {y->out, x->out}};
    return set_shape(r, (uint64_t[]){(uint64_t)y->out, (uint64_t)x->out, c}, 3, e);
}

static enum ps_code read_flatten(struct reading *r, struct ps_error *e)
{
    enum ps_code code = nn_setting_only_word(r->config, "data_format", "channels_last", e);
    return code == PS_OK ? set_shape(r, &r->in->count, 1, e) : code;
}

static enum ps_code read_activation(struct reading *r, struct ps_error *e)
{
    struct nn_json activation = nn_json_member(r->config, "activation");
    if (!activation.value)
        return nn_json_expected(&activation, e, "the name of an activation");
    enum ps_code code = nn_setting_function(&activation, &r->out->function, e);
    return code == PS_OK ? same_shape(r, e) : code;
}

static enum ps_code read_relu(struct reading *r, struct ps_error *e)
{
    struct nn_json max_value = nn_json_member(r->config, "max_value");
    if (nn_json_given(&max_value))
        return nn_json_expected(&max_value, e, "null");
    enum ps_code code = nn_setting_only_number(r->config, "negative_slope", 0, e);
    if (code == PS_OK)
        code = nn_setting_only_number(r->config, "threshold", 0, e);
    r->out->function = NN_F_RELU;
    return code == PS_OK ? same_shape(r, e) : code;
}

static enum ps_code read_softmax(struct reading *r, struct ps_error *e)
{
    struct nn_json axis = nn_json_member(r->config, "axis");
    bool last = json_is_integer(axis.value) &&
                (json_integer_value(axis.value) == -1 || json_integer_value(axis.value) == (json_int_t)r->in->rank);
    if (nn_json_given(&axis) && !last)
        return nn_json_expected(&axis, e, "the last axis: -1 or %zu", r->in->rank);
    r->out->function = NN_F_SOFTMAX;
    return same_shape(r, e);
}

static enum ps_code read_dropout(struct reading *r, struct ps_error *e)
{
    struct nn_json at = nn_json_member(r->config, "rate");
    double rate = 0;
    enum ps_code code = nn_json_real(&at, 0, 1, &rate, e);
    if (code == PS_OK && (float)rate >= 1)
        return nn_json_expected(&at, e, "a number from 0 to below 1");
    r->out->rate = (float)rate;
    return code == PS_OK ? same_shape(r, e) : code;
}

// What config may hold: these in every layer, and each layer's own.
#define COMMON "name", "trainable", "dtype", "batch_input_shape"
#define WEIGHTS "activation", "use_bias", "kernel_initializer", "bias_initializer"

static const struct layer_class {
    const char *name;
    enum nn_layer_kind kind;
    enum ps_code (*read)(struct reading *r, struct ps_error *e);
    const char *settings[16];
} classes[] = {
    {"InputLayer",
     NN_INPUT,
     read_input,
     {"batch_shape", "sparse", "ragged", "optional", COMMON}},  // first: implied ones are made of it
    {"Dense", NN_DENSE, read_dense, {"units", WEIGHTS, COMMON}},
    {"Conv2D",
     NN_CONV2D,
     read_conv2d,
     {"filters", "kernel_size", "strides", "padding", "data_format", "dilation_rate", "groups", WEIGHTS, COMMON}},
    {"MaxPooling2D", NN_MAXPOOL, read_maxpool, {"pool_size", "strides", "padding", "data_format", COMMON}},
    {"Flatten", NN_FLATTEN, read_flatten, {"data_format", COMMON}},
    {"Activation", NN_ACTIVATE, read_activation, {"activation", COMMON}},
    {"Dropout", NN_DROPOUT, read_dropout, {"rate", "seed", COMMON}},
    {"ReLU", NN_ACTIVATE, read_relu, {"max_value", "negative_slope", "threshold", COMMON}},
    {"Softmax", NN_ACTIVATE, read_softmax, {"axis", COMMON}},
};
enum { CLASSES = sizeof classes / sizeof classes[0] };

// Settings that Keras has and we do not, by their names: no other is what was meant. InputLayer has the last ones as
// false.
static const char *const refused[] = {"kernel_regularizer",
                                      "bias_regularizer",
                                      "activity_regularizer",
                                      "kernel_constraint",
                                      "bias_constraint",
                                      "noise_shape",
                                      "lora_rank",
                                      "sparse",
                                      "ragged",
                                      "optional"};

static enum ps_code check_settings(const struct nn_json *config, const struct layer_class *class, struct ps_error *e)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct nn_json at = nn_json_member(config, refused[i]);
        if (nn_json_given(&at) && !json_is_false(at.value))
            return nn_json_fail(&at, e, "expected null: this setting is not supported");
    }
    return nn_json_only(config, class->settings, e);
}

static enum ps_code keras_find_class(const struct nn_json *at, const struct layer_class **class, struct ps_error *e)
{
    const char *word, *known[CLASSES + 1] = {0};
    char list[160];
    enum ps_code code = nn_json_string(at, &word, e);
    if (code != PS_OK)
        return code;
    for (int i = 0; i < CLASSES; i++) {
        if (strcmp(word, classes[i].name) == 0) {
            *class = &classes[i];
            return PS_OK;
        }
        known[i] = classes[i].name;
    }
    const char *near = ps_nearest(word, known, CLASSES);
    nn_json_list(known, list, sizeof list);
    if (near)
        return nn_json_expected(at, e, "one of %s (did you mean %s?)", list, near);
    return nn_json_expected(at, e, "one of %s", list);
}

// Takes over name.
static struct nn_layer *push_layer(struct nn_model *m, const struct layer_class *class, char *name)
{
    struct nn_layer *l = &m->layer[m->layers++];
    *l = (struct nn_layer){.kind = class->kind, .class_name = class->name, .name = name};
    l->trainable = true;
    l->kernel = l->bias = -1;
    return l;
}

static enum ps_code add_layer(struct reader *reader, const struct layer_class *class, const struct nn_json *config,
                              struct nn_layer **layer, struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, "name");
    const char *word;
    enum ps_code code = nn_setting_name(&at, &word, e);
    if (code != PS_OK)
        return code;
    if (json_object_get(reader->names, word))
        return nn_json_expected(&at, e, "a name that no other layer has");
    json_object_set_new(reader->names, word, json_true());
    *layer = push_layer(reader->model, class, ps_strdup(word));
    return PS_OK;
}

// Keras 2 lets the first layer say the shape of the input itself.
static enum ps_code add_implied_input(struct reader *reader, struct reading *r, struct ps_error *e)
{
    struct nn_json keras2 = nn_json_member(r->config, "batch_input_shape"), own = nn_json_member(r->config, "name");
    if (!keras2.value)
        return nn_json_fail(r->at, e,
                            "expected an InputLayer with a batch_shape as the first layer, or a "
                            "batch_input_shape in this one");
    const char *word;
    enum ps_code code = nn_setting_name(&own, &word, e);
    if (code != PS_OK)
        return code;
    struct nn_layer *input = push_layer(reader->model, &classes[0], ps_printf("%s_input", word));
    struct reading implied = {.reader = reader, .at = r->at, .config = r->config, .out = input};
    code = read_batch_shape(&implied, &keras2, e);
    r->in = input;
    return code;
}

static enum ps_code read_layer(struct reader *reader, const struct nn_json *at, bool trainable, struct ps_error *e)
{
    struct nn_json class_name = nn_json_member(at, "class_name"), config = nn_json_member(at, "config");
    struct nn_model *m = reader->model;
    struct reading r = {.reader = reader, .at = at, .config = &config};
    const struct layer_class *class = NULL;
    enum ps_code code = nn_json_object(at, e);
    if (code == PS_OK)
        code = nn_setting_class(at, e);
    if (code == PS_OK)
        code = keras_find_class(&class_name, &class, e);
    if (code == PS_OK)
        code = nn_json_object(&config, e);
    if (code == PS_OK)
        code = check_settings(&config, class, e);
    if (code == PS_OK)
        code = nn_setting_dtype(&config, e);
    if (code != PS_OK)
        return code;
    if (m->layers > 0)
        r.in = &m->layer[m->layers - 1];
    else if (class->kind != NN_INPUT)
        code = add_implied_input(reader, &r, e);
    if (code == PS_OK)
        code = add_layer(reader, class, &config, &r.out, e);
    if (code == PS_OK)
        code = nn_setting_bool(&config, "trainable", &r.out->trainable, e);
    if (code != PS_OK)
        return code;
    r.out->trainable = r.out->trainable && trainable;
    return class->read(&r, e);
}

// ---- the document -------------------------------------------------------------------------------------------------

static enum ps_code read_layers(struct reader *reader, const struct nn_json *layers, bool trainable, struct ps_error *e)
{
    struct nn_model *m = reader->model;
    size_t n;
    enum ps_code code = nn_json_array(layers, &n, e);
    if (code != PS_OK)
        return code;
    if (n < 1 || n > NN_MAX_LAYERS)
        return nn_json_expected(layers, e, "1 to %d layers", NN_MAX_LAYERS);
    m->layer = ps_alloc((n + 1) * sizeof *m->layer);  // and an implied input
    for (size_t i = 0; code == PS_OK && i < n; i++) {
        struct nn_json layer = nn_json_element(layers, i);
        code = read_layer(reader, &layer, trainable, e);
    }
    return code;
}

static enum ps_code read_document(struct reader *reader, const struct nn_json *root, struct ps_error *e)
{
    struct nn_json class_name = nn_json_member(root, "class_name"), config = nn_json_member(root, "config");
    struct nn_json own_name = nn_json_member(&config, "name"), layers = nn_json_member(&config, "layers");
    const char *word;
    bool trainable = true;
    enum ps_code code = nn_json_object(root, e);
    if (code == PS_OK && !nn_json_given(&class_name))
        code = nn_json_expected(&class_name, e, "\"Sequential\"");
    if (code == PS_OK)
        code = nn_setting_only_word(root, "class_name", "Sequential", e);
    if (code == PS_OK)
        code = nn_setting_class(root, e);
    if (code == PS_OK)
        code = nn_json_object(&config, e);
    if (code == PS_OK)
        code = nn_setting_dtype(&config, e);
    if (code == PS_OK)
        code = nn_setting_name(&own_name, &word, e);
    if (code == PS_OK)
        code = nn_setting_bool(&config, "trainable", &trainable, e);
    if (code != PS_OK)
        return code;
    reader->model->name = ps_strdup(word);
    return read_layers(reader, &layers, trainable, e);
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
    enum ps_code code = read_document(&reader, &at, e);
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
