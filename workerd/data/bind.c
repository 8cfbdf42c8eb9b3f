// SPDX-License-Identifier: Apache-2.0
//
// Where data and model meet: which columns are a batch's inputs and targets, and do they fit? The only file here that
// calls workerd/nn.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

// ---- shapes -------------------------------------------------------------------------------------------------------

struct shape {
    const uint64_t *size;
    size_t rank;
};

// Without dimensions of 1 at its ends.
static struct shape data_shape_core(struct shape s)
{
    while (s.rank > 0 && s.size[s.rank - 1] == 1)
        s.rank--;
    while (s.rank > 0 && s.size[0] == 1) {
        s.size++;
        s.rank--;
    }
    return s;
}

static uint64_t data_shape_elements(struct shape s)
{
    uint64_t n = 1;
    for (size_t i = 0; i < s.rank; i++)
        n *= s.size[i];
    return n;
}

// An equal number of elements alone could be an image with its axes in another order.
static bool data_shapes_fit(struct shape a, struct shape b)
{
    a = data_shape_core(a);
    b = data_shape_core(b);
    if (a.rank <= 1 || b.rank <= 1)
        return data_shape_elements(a) == data_shape_elements(b);
    return a.rank == b.rank && memcmp(a.size, b.size, a.rank * sizeof *a.size) == 0;
}

// hint: what else there is to say, "" or "; ...".
static enum ps_code bind_check_shape(const char *what, struct shape data, const char *end, struct shape model,
                                     const char *hint, struct ps_error *e)
{
    char have[128], want[128];
    if (data_shapes_fit(data, model))
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "%s of the data has shape %s, the model's %s is %s: expected the same, but for dimensions of 1 at "
                   "the ends, or one of the two flat%s",
                   what, ps_shape_text(data.size, data.rank, have, sizeof have), end,
                   ps_shape_text(model.size, model.rank, want, sizeof want), hint);
}

// Of one example; no dimension is negative.
static struct shape port_shape(struct nn_port port)
{
    return (struct shape){(const uint64_t *)port.type->dim, (size_t)port.type->rank};
}

// ---- which columns ------------------------------------------------------------------------------------------------

// A list of columns of a source; what the job says of y and the weights is left out of x.
struct bind_lists {
    size_t *x, *y;
    size_t n_x, n_y;
};

static bool bind_is_named(const struct ps_job_port *port, const char *name)
{
    for (size_t i = 0; i < port->n; i++)
        if (strcmp(port->column[i], name) == 0)
            return true;
    return false;
}

// Marks what has one of these names; several columns may have the same.
static void bind_mark(const struct wk_source *s, const struct ps_job_port *port, bool *marked)
{
    for (size_t i = 0; i < port->n; i++) {
        const int first = wk_source_find(s, port->column[i]);
        for (size_t k = first < 0 ? s->columns : (size_t)first; k < s->columns; k++)
            marked[k] = marked[k] || strcmp(s->column[k].name, s->column[first].name) == 0;
    }
}

// Is it a target, of each column; malloc'd.
static bool *bind_find_targets(const struct ps_job_data *spec, const struct wk_source *s)
{
    bool *target = ps_alloc(s->columns * sizeof *target);
    for (size_t i = 0; i < spec->outputs.n; i++)
        bind_mark(s, &spec->outputs.of[i], target);
    for (size_t k = 0; k < s->columns && !spec->label.n; k++)
        target[k] = target[k] || s->column[k].y;
    bind_mark(s, &spec->label, target);
    return target;
}

// The column of s that has the name of another source's column i, and is most often at its place; -1: none has.
static int bind_find_same(const struct wk_source *s, const struct wk_source *other, size_t i)
{
    const char *name = other->column[i].name;
    return i < s->columns && strcmp(s->column[i].name, name) == 0 ? (int)i : wk_source_find(s, name);
}

static enum ps_code bind_add_same(const struct wk_source *s, const struct wk_source *train, size_t i, size_t *list,
                                  size_t *n, struct ps_error *e)
{
    const int column = bind_find_same(s, train, i);
    if (column < 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "no column \"%.60s\", which the training data have",
                       train->column[i].name);
    list[(*n)++] = (size_t)column;
    return PS_OK;
}

static enum ps_code bind_fail_no_column(const struct wk_source *s, const char *what, struct ps_error *e)
{
    char list[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < s->columns && at < sizeof list - 40; i++)
        if (*s->column[i].name)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%.30s", at ? ", " : "", s->column[i].name);
    return ps_fail(e, PS_FAILED_PRECONDITION, "%s; the data have the columns %s%s", what, list,
                   at >= sizeof list - 40 ? ", ..." : "");
}

static enum ps_code bind_add_named(const struct wk_source *s, const struct ps_job_port *said, const char *key,
                                   struct wk_port *port, struct ps_error *e)
{
    char what[200];
    port->column = ps_alloc(said->n * sizeof *port->column);
    for (size_t i = 0; i < said->n; i++) {
        int column = wk_source_find(s, said->column[i]);
        snprintf(what, sizeof what, "%s%s%.60s: no column \"%.60s\"", key, said->name ? "." : "",
                 said->name ? said->name : "", said->column[i]);
        if (column < 0)
            return bind_fail_no_column(s, what, e);
        port->column[port->n++] = (size_t)column;
    }
    return PS_OK;
}

// Where the model's only input takes all of x, and the only output all of y, the lists have them: in the order of the
// training data's columns, which the test data may have in another; y in that of data.label, if it says any.
static enum ps_code bind_sort_columns(const struct ps_job_data *spec, const struct nn_model *model,
                                      const struct wk_source *train, const struct wk_source *s, struct bind_lists *l,
                                      struct ps_error *e)
{
    const bool all_x = nn_model_inputs(model) == 1 && !spec->inputs.n;
    const bool all_y = nn_model_outputs(model) == 1 && !spec->outputs.n && !spec->label.n;
    struct wk_port label = {0};
    enum ps_code code = spec->label.n ? bind_add_named(s, &spec->label, "data.label", &label, e) : PS_OK;
    *l = (struct bind_lists){.x = ps_alloc(train->columns * sizeof *l->x),
                             .y = spec->label.n ? label.column : ps_alloc(train->columns * sizeof *l->y),
                             .n_y = label.n};
    bool *target = bind_find_targets(spec, train);
    const int weight = spec->weight ? wk_source_find(train, spec->weight) : -1;
    for (size_t i = 0; i < train->columns && code == PS_OK; i++) {
        const char *name = train->column[i].name;
        if (!*name || (weight >= 0 && strcmp(train->column[weight].name, name) == 0))
            continue;
        if (target[i] && all_y)
            code = bind_add_same(s, train, i, l->y, &l->n_y, e);
        else if (!target[i] && all_x)
            code = bind_add_same(s, train, i, l->x, &l->n_x, e);
    }
    free(target);
    return code;
}

static const struct ps_job_port *bind_find_said(const struct ps_job_ports *ports, const char *name)
{
    for (size_t i = 0; i < ports->n; i++)
        if (strcmp(ports->of[i].name, name) == 0)
            return &ports->of[i];
    return NULL;
}

static const char *bind_port_name(const struct nn_model *model, bool inputs, size_t k)
{
    return inputs ? nn_model_input(model, k).name : nn_model_output(model, k).name;
}

static enum ps_code bind_fail_no_port(const char *key, const char *name, const struct nn_model *model, bool inputs,
                                      struct ps_error *e)
{
    const size_t n = inputs ? nn_model_inputs(model) : nn_model_outputs(model);
    const char *what = inputs ? "input" : "output";
    char list[256] = "";
    size_t at = 0;
    for (size_t k = 0; k < n && at < sizeof list - 70; k++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%.60s", k ? ", " : "", bind_port_name(model, inputs, k));
    return ps_fail(e, PS_FAILED_PRECONDITION, "%s.%.60s: the model has no %s of that name; its %s%s %s", key, name,
                   what, what, n == 1 ? " is" : "s are", list);
}

// Each name in the job is an input's or output's.
static enum ps_code bind_check_ports(const struct ps_job_ports *ports, const char *key, const struct nn_model *model,
                                     bool inputs, struct ps_error *e)
{
    size_t n = inputs ? nn_model_inputs(model) : nn_model_outputs(model);
    for (size_t i = 0; i < ports->n; i++) {
        bool found = false;
        for (size_t k = 0; k < n && !found; k++)
            found = strcmp(bind_port_name(model, inputs, k), ports->of[i].name) == 0;
        if (!found)
            return bind_fail_no_port(key, ports->of[i].name, model, inputs, e);
    }
    return PS_OK;
}

const struct nn_words *wk_bind_words(const struct wk_data *data, const char *column)
{
    for (size_t k = 0; data->model && k < nn_model_inputs(data->model); k++) {
        const struct nn_port in = nn_model_input(data->model, k);
        const struct ps_job_port *said = bind_find_said(&data->spec->inputs, in.name);
        if (in.words && (said ? bind_is_named(said, column) : strcmp(in.name, column) == 0))
            return in.words;
    }
    return NULL;
}

// An input of strings has columns that were read by its words.
static enum ps_code bind_check_words(const struct wk_source *s, const struct wk_port *port, const struct nn_port *in,
                                     struct ps_error *e)
{
    for (size_t i = 0; i < port->n; i++) {
        const struct wk_column *c = &s->column[port->column[i]];
        if (c->words != in->words)
            return ps_fail(e, PS_FAILED_PRECONDITION,
                           in->words ? "input \"%.60s\" takes words, which are read from CSV; column \"%.60s\" has "
                                       "numbers: name its column by data.inputs"
                                     : "input \"%.60s\" takes numbers; column \"%.60s\" has words of another input",
                           in->name, c->name);
    }
    return PS_OK;
}

// What reading it finds to be no integer is said then.
static enum ps_code bind_check_ints(const struct wk_source *s, const struct wk_port *port, struct ps_error *e)
{
    for (size_t i = 0; i < port->n; i++) {
        const struct wk_column *c = &s->column[port->column[i]];
        char where[512];
        if (!c->rounded)
            continue;
        s->class->where(s, c->rounded - 1, port->column[i], where, sizeof where);
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: the value is no integer of 32 bits, as input \"%.60s\" takes",
                       where, port->name);
    }
    return PS_OK;
}

// The inputs of a model, or its outputs.
struct bind_side {
    const struct ps_job_ports *said;
    const char *key, *word;  // "data.inputs", "input"
    const size_t *all;       // [n] the columns that are theirs where nothing is said
    size_t n;
    bool alone;  // there is one
};

// In this order: what the job says, the column of that name, all of them where there is one input (or output).
static enum ps_code bind_find_columns(const struct wk_source *s, const struct bind_side *side, const char *name,
                                      struct wk_port *port, struct ps_error *e)
{
    const struct ps_job_port *mine = bind_find_said(side->said, name);
    const struct ps_job_port same = {.column = (char *[]){(char *)name}, .n = 1};
    char what[200];
    port->name = name;
    if (mine)
        return bind_add_named(s, mine, side->key, port, e);
    if (wk_source_find(s, name) >= 0 && !(side->alone && side->n == 1))
        return bind_add_named(s, &same, side->key, port, e);
    snprintf(what, sizeof what,
             "no column for the model's %s \"%.60s\": expected one of its name, or %s: {%.60s: COLUMN}", side->word,
             name, side->key, name);
    if (!side->alone || side->n == 0)
        return bind_fail_no_column(s, what, e);
    port->column = ps_alloc(side->n * sizeof *port->column);
    memcpy(port->column, side->all, side->n * sizeof *side->all);
    port->n = side->n;
    return PS_OK;
}

// ---- what they are for --------------------------------------------------------------------------------------------

// Several columns are numbers side by side.
static struct shape bind_shape(const struct wk_source *s, struct wk_port *port, uint64_t *flat)
{
    port->count = 0;
    for (size_t i = 0; i < port->n; i++)
        port->count += s->column[port->column[i]].count;
    *flat = port->count;
    const struct wk_column *c = &s->column[port->column[0]];
    return port->n == 1 ? (struct shape){c->shape, c->rank} : (struct shape){flat, 1};
}

// Columns that can be read at once become one.
static void bind_merge(struct wk_source *s, struct wk_port *port)
{
    if (port->n > 1 && s->class->merge && s->class->merge(s, port->column, port->n)) {
        port->column[0] = s->columns - 1;
        port->n = 1;
    }
}

static bool bind_same_columns(const struct wk_port *a, const struct wk_port *b)
{
    return a->n == b->n && memcmp(a->column, b->column, a->n * sizeof *a->column) == 0;
}

static bool bind_augments(const struct wk_augment *a)
{
    return a->flip || a->crop || a->noise > 0;
}

// Images are (h, w) or (h, w, channels).
static void bind_find_image(const struct wk_source *s, const struct wk_augment *a, struct wk_port *port)
{
    const struct wk_column *c = &s->column[port->column[0]];
    if (!bind_augments(a) || port->n > 1 || port->dtype != NN_FLOAT || c->rank < 2 || c->rank > 3)
        return;
    port->image[0] = c->shape[0];
    port->image[1] = c->shape[1];
    port->image[2] = c->rank == 3 ? c->shape[2] : 1;
}

// What a port takes of the test data has the shape that it has in the training data.
static enum ps_code bind_check_alike(const struct wk_source *train, const struct wk_source *s,
                                     const struct wk_port *port, struct ps_error *e)
{
    for (size_t i = 0; i < port->n && s != train; i++) {
        const struct wk_column *c = &s->column[port->column[i]];
        const int k = bind_find_same(train, s, port->column[i]);
        const struct wk_column *want = k < 0 ? c : &train->column[k];
        char has[128], expected[128];
        if (c->rank != want->rank || memcmp(c->shape, want->shape, c->rank * sizeof *c->shape) != 0)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "%.60s of an example has shape %s, expected %s as in the training data", c->name,
                           ps_shape_text(c->shape, c->rank, has, sizeof has),
                           ps_shape_text(want->shape, want->rank, expected, sizeof expected));
    }
    return PS_OK;
}

// All of them before their shapes: where there is no column for an output, a wrong shape of the input's is no help.
static enum ps_code bind_find_all(const struct wk_data *data, struct wk_part *part, const struct nn_model *model,
                                  const struct bind_lists *lists, struct ps_error *e)
{
    const size_t inputs = nn_model_inputs(model), outputs = nn_model_outputs(model);
    const struct bind_side x = {&data->spec->inputs, "data.inputs", "input", lists->x, lists->n_x, inputs == 1};
    const struct bind_side y = {&data->spec->outputs, "data.outputs", "output", lists->y, lists->n_y, outputs == 1};
    for (size_t k = 0; k < inputs; k++) {
        part->inputs = k + 1;
        if (bind_find_columns(part->source, &x, nn_model_input(model, k).name, &part->input[k], e))
            return e->code;
    }
    for (size_t k = 0; k < outputs; k++) {
        part->targets = k + 1;
        if (bind_find_columns(part->source, &y, nn_model_output(model, k).name, &part->target[k], e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code bind_input(const struct wk_data *data, struct wk_part *part, const struct nn_model *model, size_t k,
                               struct ps_error *e)
{
    struct nn_port in = nn_model_input(model, k);
    struct wk_port *port = &part->input[k];
    uint64_t flat;
    char end[100] = "input";
    if (bind_check_alike(data->train.source, part->source, port, e) || bind_check_words(part->source, port, &in, e))
        return e->code;
    port->dtype = in.type->dtype;
    if (port->dtype == NN_INT32 && bind_check_ints(part->source, port, e))
        return e->code;
    port->scale = port->dtype == NN_FLOAT && data->spec->scale != 0 ? data->spec->scale : 1;
    if (nn_model_inputs(model) > 1)
        snprintf(end, sizeof end, "input %.60s", in.name);
    if (bind_check_shape("an example", bind_shape(part->source, port, &flat), end, port_shape(in), "", e))
        return e->code;
    if (part == &data->train)
        bind_find_image(part->source, &data->augment, port);
    return PS_OK;
}

// Who has classes one-hot where the loss takes their numbers, or the other way round.
static const char *bind_target_hint(const struct wk_port *port, struct shape have, struct shape want)
{
    const uint64_t own = data_shape_elements(have), model = data_shape_elements(want);
    if (port->label)
        return own == model * (uint64_t)port->classes ? "; a number for each class goes with the loss "
                                                        "categorical_crossentropy"
                                                      : "";
    const uint64_t width = want.rank ? want.size[want.rank - 1] : 1;
    return width > 1 && own * width == model ? "; the numbers of classes go with the loss "
                                               "sparse_categorical_crossentropy"
                                             : "";
}

// Labels have the output's shape without its last dimension, that of the classes.
static enum ps_code bind_target(const struct wk_data *data, struct wk_part *part, const struct nn_model *model,
                                const struct ps_loss *loss, size_t k, struct ps_error *e)
{
    struct nn_port out = nn_model_output(model, k);
    struct wk_port *port = &part->target[k];
    struct shape want = port_shape(out);
    uint64_t flat;
    char end[100] = "output";
    if (bind_check_alike(data->train.source, part->source, port, e))
        return e->code;
    port->label = ps_loss_has_labels(loss);
    port->dtype = port->label ? NN_INT32 : NN_FLOAT;
    port->scale = 1;
    if (port->label && want.rank > 0)
        port->classes = (int32_t)want.size[--want.rank];
    struct shape have = bind_shape(part->source, port, &flat);
    // A target that is an input, too, as an autoencoder's, is scaled like one.
    for (size_t i = 0; i < part->inputs && !port->label; i++)
        if (bind_same_columns(&part->input[i], port))
            port->scale = part->input[i].scale;
    if (nn_model_outputs(model) > 1)
        snprintf(end, sizeof end, "output %.60s", out.name);
    return bind_check_shape(port->label ? "a label" : "a target", have, port->label ? "labels' shape" : end, want,
                            bind_target_hint(port, have, want), e);
}

// Test data without the column have no weights, as in Keras.
static enum ps_code bind_weight(const struct wk_data *data, struct wk_part *part, struct ps_error *e)
{
    const struct ps_job_port said = {.column = (char *[]){data->spec->weight}, .n = 1};
    if (!data->spec->weight || (part == &data->test && wk_source_find(part->source, data->spec->weight) < 0))
        return PS_OK;
    if (bind_add_named(part->source, &said, "data.weight", &part->weight, e))
        return e->code;
    part->weight.dtype = NN_FLOAT;
    part->weight.scale = part->weight.count = 1;
    if (part->source->column[part->weight.column[0]].count != 1)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "data.weight: column \"%.60s\" has %zu numbers per example, expected one", data->spec->weight,
                       part->source->column[part->weight.column[0]].count);
    return PS_OK;
}

// ---- a look at what is in memory ----------------------------------------------------------------------------------

// Can reading it fail? Not so bytes that become floats, nor class numbers that are known to be few enough.
static bool bind_is_safe(const struct wk_source *s, const struct wk_port *port)
{
    for (size_t i = 0; i < port->n; i++) {
        const struct wk_column *c = &s->column[port->column[i]];
        bool bytes = c->dtype == NN_UINT8 && (!port->label || port->classes > UINT8_MAX);
        if (!bytes && !(port->label && c->classes && c->classes <= port->classes))
            return false;
    }
    return true;
}

static enum ps_code bind_look(const struct wk_part *part, const struct wk_port *port, struct ps_error *e)
{
    if (!port->n || !part->source->quick || bind_is_safe(part->source, port))
        return PS_OK;
    void *raw = wk_array(wk_part_raw(part), 1, 1, e), *to = raw ? wk_array(port->count, 1, sizeof(float), e) : NULL;
    enum ps_code code = to ? PS_OK : PS_RESOURCE_EXHAUSTED;
    for (uint64_t i = 0; i < part->split.examples && code == PS_OK; i++)
        code = wk_port_read(part, port, part->first + i, raw, to, e);
    free(raw);
    free(to);
    return code;
}

static enum ps_code bind_look_at_all(const struct wk_part *part, struct ps_error *e)
{
    for (size_t k = 0; k < part->inputs; k++)
        if (bind_look(part, &part->input[k], e))
            return e->code;
    for (size_t k = 0; k < part->targets; k++)
        if (bind_look(part, &part->target[k], e))
            return e->code;
    return bind_look(part, &part->weight, e);
}

// ---- all of it ----------------------------------------------------------------------------------------------------

static bool bind_has_column(const struct wk_port *port, size_t column)
{
    for (size_t i = 0; i < port->n; i++)
        if (port->column[i] == column)
            return true;
    return false;
}

static bool bind_takes_ints(const struct wk_part *part, size_t column)
{
    for (size_t k = 0; k < part->inputs; k++)
        if (part->input[k].dtype != NN_FLOAT && bind_has_column(&part->input[k], column))
            return true;
    for (size_t k = 0; k < part->targets; k++)
        if (part->target[k].dtype != NN_FLOAT && bind_has_column(&part->target[k], column))
            return true;
    return false;
}

// Integers of 64 bits are read as floats where nothing takes integers of them; floats of 64 bits as integers where
// something does, as a float32 would round them before.
static void bind_choose_dtypes(struct wk_part *part, const struct wk_port *port)
{
    for (size_t i = 0; i < port->n; i++) {
        struct wk_column *c = &part->source->column[port->column[i]];
        const bool ints = bind_takes_ints(part, port->column[i]);
        if (c->wide && !ints)
            c->dtype = NN_FLOAT;
        else if (c->doubles && ints)
            c->dtype = NN_INT32;
    }
}

// The last step: ports read what they need in the fewest pieces.
static void bind_finish_ports(struct wk_part *part)
{
    for (size_t k = 0; k < part->inputs; k++)
        bind_choose_dtypes(part, &part->input[k]);
    for (size_t k = 0; k < part->targets; k++)
        bind_choose_dtypes(part, &part->target[k]);
    bind_choose_dtypes(part, &part->weight);
    for (size_t k = 0; k < part->inputs; k++)
        bind_merge(part->source, &part->input[k]);
    for (size_t k = 0; k < part->targets; k++)
        bind_merge(part->source, &part->target[k]);
}

static enum ps_code bind_part(const struct wk_data *data, struct wk_part *part, const struct nn_model *model,
                              const struct ps_loss *loss, struct ps_error *e)
{
    struct bind_lists lists;
    enum ps_code code = bind_sort_columns(data->spec, model, data->train.source, part->source, &lists, e);
    if (code == PS_OK)
        code = bind_find_all(data, part, model, &lists, e);
    for (size_t k = 0; k < nn_model_inputs(model) && code == PS_OK; k++)
        code = bind_input(data, part, model, k, e);
    for (size_t k = 0; k < nn_model_outputs(model) && code == PS_OK; k++)
        code = bind_target(data, part, model, &loss[k], k, e);
    if (code == PS_OK)
        code = bind_weight(data, part, e);
    free(lists.x);
    free(lists.y);
    if (code != PS_OK)
        return code;
    bind_finish_ports(part);
    return bind_look_at_all(part, e);
}

static enum ps_code bind_check_augment(const struct wk_data *data, struct ps_error *e)
{
    for (size_t k = 0; k < data->train.inputs; k++)
        if (data->train.input[k].image[0])
            return PS_OK;
    return bind_augments(&data->augment)
               ? ps_fail(
                     e, PS_FAILED_PRECONDITION,
                     "data.augment: no input is an image: a float input of one column with shape (height, width) or "
                     "(height, width, channels)")
               : PS_OK;
}

enum ps_code wk_data_bind(struct wk_data *data, const struct nn_model *model, const struct ps_loss *loss,
                          struct ps_error *e)
{
    if (bind_check_ports(&data->spec->inputs, "data.inputs", model, true, e) ||
        bind_check_ports(&data->spec->outputs, "data.outputs", model, false, e) ||
        bind_part(data, &data->train, model, loss, e) || bind_check_augment(data, e))
        return e->code;
    if (data->test.split.examples && bind_part(data, &data->test, model, loss, e))
        return ps_error_prefix(e, "test data");
    data->spec = NULL;
    data->model = NULL;
    return PS_OK;
}
