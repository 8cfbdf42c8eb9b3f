// SPDX-License-Identifier: Apache-2.0
//
// What the builds of layers share: inputs, variables.
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/keras.h"

// "(28, 28, 1)"
static char *build_shape_text(const struct nn_type *type, char *to, size_t size)
{
    uint64_t shape[NN_MAX_RANK];
    for (int i = 0; i < type->rank; i++)
        shape[i] = (uint64_t)type->dim[i];
    return (char *)ps_shape_text(shape, (size_t)type->rank, to, size);
}

enum ps_code nn_build_elements(const struct nn_json *at, const char *what, const struct nn_type *type, uint64_t *count,
                               struct ps_error *e)
{
    char text[128];
    uint64_t n = 1;
    for (int i = 0; i < type->rank; i++) {
        if ((uint64_t)type->dim[i] > NN_MAX_ELEMENTS / n)
            return nn_json_fail(at, e, "%s of shape %s has more than %d elements", what,
                                build_shape_text(type, text, sizeof text), NN_MAX_ELEMENTS);
        n *= (uint64_t)type->dim[i];
    }
    *count = n;
    return PS_OK;
}

enum ps_code nn_build_inputs(struct nn_building *b, int n, struct ps_error *e)
{
    return b->n_in == n ? PS_OK
                        : nn_json_fail(b->at, e, "%s takes %d input%s, not %d", b->layer->class->name, n,
                                       n == 1 ? "" : "s", b->n_in);
}

// ---- calls --------------------------------------------------------------------------------------------------------

int nn_build_value(struct nn_model *m, const struct nn_type *type, int call)
{
    if (m->values == m->cap_values) {
        m->cap_values = m->cap_values ? 2 * m->cap_values : 64;
        m->value = ps_realloc(m->value, m->cap_values * sizeof *m->value);
    }
    m->value[m->values] = (struct nn_value){.type = *type, .call = call, .mask = -1};
    return (int)m->values++;
}

static enum ps_code build_check_dtypes(const struct nn_building *b, struct ps_error *e)
{
    for (int i = 0; i < b->n_in; i++)
        if (b->in[i]->type.dtype != NN_FLOAT && !b->layer->class->integers)
            return nn_json_fail(b->at, e, "%s expects floats, but \"%s\" gives integers", b->layer->class->name,
                                b->model->layer[b->model->call[b->in[i]->call].layer].name);
    for (int i = 0; i < b->n_in; i++)
        if (b->in[i]->text && !b->layer->class->strings)
            return nn_json_fail(b->at, e, "%s cannot read strings; expected a StringLookup behind an input of strings",
                                b->layer->class->name);
    return PS_OK;
}

void nn_build_ids(struct nn_building *b, int64_t ids)
{
    int64_t *most = &b->model->value[b->value[0]].ids;
    *most = *most && *most < ids ? *most : ids;
}

// Each call draws other numbers. A layer's place takes 14 bits of its number, and its place in others those above 24.
static uint32_t build_stream(const struct nn_layer *l)
{
    return l->number | (l->called & 0x3ff) << 14;
}

enum ps_code nn_build_call(struct nn_building *b, struct ps_error *e)
{
    const struct nn_layer_class *class = b->layer->class;
    uint64_t count;
    for (int i = 0; i < b->n_in; i++) {
        b->copy[i] = b->model->value[b->value[i]];
        b->in[i] = &b->copy[i];
    }
    b->first = !b->layer->called;
    b->own_variables = 0;
    b->stream = build_stream(b->layer);
    b->out_mask = class->passes_mask && b->n_in ? b->mask[0] : -1;
    if (build_check_dtypes(b, e) || nn_keys_read(b, class, b->layer->config, e) ||
        (b->first && nn_build_activity(b, e)) || class->build(b, e))
        return e->code;
    b->layer->called++;
    for (int k = 0; k < b->n_more; k++)
        if (nn_build_elements(b->at, "an output", &b->more[k], &count, e))
            return e->code;
    return nn_build_elements(b->at, "an output", &b->out, &count, e);
}

// Its class and its name, as the first call finds them.
static enum ps_code build_open_inner(struct nn_building *b, int k, const struct nn_json *at,
                                     const struct nn_json *config, const char *name, struct ps_error *e)
{
    struct nn_json own = nn_json_member(config, "name");
    struct nn_layer *l = b->layer;
    const struct nn_layer_class *class;
    const char *word;
    bool trainable = true;
    if (keras_check_layer(at, config, &class, e) || nn_setting_name(&own, &word, e) ||
        nn_setting_bool(config, "trainable", &trainable, e))
        return e->code;
    if (class == &nn_layer_input)
        return nn_json_fail(at, e, "expected a layer that takes an input");
    if (!l->child)
        l->child = ps_alloc(NN_LAYER_CHILDREN * sizeof *l->child);
    l->child[k] = (struct nn_layer){.class = class,
                                    .name = ps_strdup(name ? name : word),
                                    .trainable = trainable && l->trainable,
                                    .config = ps_alloc(class->config_bytes + 1),
                                    .number = l->number | (uint32_t)(k + 1) << 24,
                                    .path = ps_printf("%s/%s", l->path ? l->path : l->name, name ? name : word)};
    l->n_children = k + 1;
    return PS_OK;
}

enum ps_code nn_build_inner(struct nn_building *b, int k, const struct nn_json *at, const char *name,
                            const struct nn_type *in, bool mask, struct nn_type *out, struct ps_error *e)
{
    struct nn_json config = nn_json_member(at, "config");
    struct nn_model *m = b->model;
    if (b->first && build_open_inner(b, k, at, &config, name, e))
        return e->code;
    struct nn_building inner = {
        .model = m, .at = at, .config = &config, .layer = &b->layer->child[k], .n_in = 1, .outer = b};
    // What it reads is said to come from where the wrapping layer has it from.
    inner.value[0] = nn_build_value(m, in, m->value[b->value[0]].call);
    inner.mask[0] = mask ? b->mask[0] : -1;
    inner.inference = b->inference;
    struct nn_call call = {.child = inner.layer, .in = {inner.value[0]}, .n_in = 1};
    for (int i = 1; i < NN_CALL_IN; i++)
        inner.mask[i] = -1;
    memcpy(call.mask, inner.mask, sizeof call.mask);
    enum ps_code code = nn_build_call(&inner, e);
    call.stream = inner.stream;
    call.inner = inner.inner;
    call.n_inner = inner.n_inner;
    if (code == PS_OK) {
        call.out = nn_build_value(m, &inner.out, (int)m->calls);
        for (call.n_more = 0; call.n_more < inner.n_more; call.n_more++)
            call.more[call.n_more] = nn_build_value(m, &inner.more[call.n_more], (int)m->calls);
        *out = inner.out;
    }
    b->inner = ps_realloc(b->inner, (size_t)(b->n_inner + 1) * sizeof *b->inner);
    b->inner[b->n_inner++] = call;
    return code;
}

// ---- variables ----------------------------------------------------------------------------------------------------

static struct nn_variable *build_next_variable(struct nn_model *m)
{
    if (m->variables == m->cap_variables) {
        m->cap_variables = m->cap_variables ? 2 * m->cap_variables : 16;
        m->variable = ps_realloc(m->variable, m->cap_variables * sizeof *m->variable);
    }
    struct nn_variable *v = &m->variable[m->variables];
    *v = (struct nn_variable){.param = {.name = NULL}};
    return v;
}

// "kernel_initializer" of "kernel" and of "lstm_cell/kernel", "recurrent_initializer" of "recurrent_kernel".
static void build_initializer_key(const char *what, char *to, size_t size)
{
    const char *slash = strrchr(what, '/'), *word = slash ? slash + 1 : what;
    const char *end = strstr(word, "_kernel");
    snprintf(to, size, "%.*s_initializer", (int)(end ? (size_t)(end - word) : strlen(word)), word);
}

enum ps_code nn_build_variable(struct nn_building *b, const char *what, const char *fallback,
                               const struct nn_type *type, struct ps_error *e)
{
    char key[64];
    build_initializer_key(what, key, sizeof key);
    return nn_build_variable_by(b, what, key, fallback, type, e);
}

// "depthwise_regularizer" beside "depthwise_initializer".
static struct nn_json build_beside(const struct nn_json *config, const char *initializer, const char *what,
                                   char key[64])
{
    snprintf(key, 64, "%.*s%s", (int)(strlen(initializer) - strlen("initializer")), initializer, what);
    return nn_json_member(config, key);
}

// The call's next variable, which the layer's first call has made.
static enum ps_code build_meet_variable(struct nn_building *b, const char *what, const struct nn_type *type,
                                        struct ps_error *e)
{
    const struct nn_param *p = &b->model->variable[b->layer->variable[b->own_variables++]].param;
    char made[128], needed[128];
    bool same = p->rank == (size_t)type->rank;
    for (int i = 0; same && i < type->rank; i++)
        same = p->shape[i] == (uint64_t)type->dim[i];
    return same ? PS_OK
                : nn_json_fail(b->at, e,
                               "%s is called on inputs of different shapes: its %s of shape %s would have to be of "
                               "shape %s, too",
                               b->layer->class->name, what, ps_shape_text(p->shape, p->rank, made, sizeof made),
                               build_shape_text(type, needed, sizeof needed));
}

static enum ps_code build_make_variable(struct nn_building *b, const char *what, const char *key, const char *fallback,
                                        const struct nn_type *type, struct ps_error *e)
{
    struct nn_model *m = b->model;
    struct nn_variable *v = build_next_variable(m);
    struct nn_json initializer = nn_json_member(b->config, key);
    char regularizer_key[64], constraint_key[64];
    struct nn_json regularizer = build_beside(b->config, key, "regularizer", regularizer_key);
    struct nn_json constraint = build_beside(b->config, key, "constraint", constraint_key);
    v->param.rank = (size_t)type->rank;
    for (int i = 0; i < type->rank; i++)
        v->param.shape[i] = (uint64_t)type->dim[i];
    if (nn_init_read(&initializer, fallback, v->param.shape, v->param.rank, &v->init, e) ||
        nn_build_elements(b->at, what, type, &v->param.count, e) ||
        nn_regularizer_read(&regularizer, &v->regularizer, e) ||
        nn_constraint_read(&constraint, v->param.rank, &v->constraint, e))
        return e->code;
    v->param.name = ps_printf("%s/%s/%s", m->name, b->layer->path ? b->layer->path : b->layer->name, what);
    v->param.trainable = b->layer->trainable;
    for (struct nn_building *of = b; of; of = of->outer) {
        if (of->layer->n_variables == NN_LAYER_VARIABLES)
            return nn_json_fail(b->at, e, "expected at most %d variables of a layer", NN_LAYER_VARIABLES);
        of->layer->variable[of->layer->n_variables++] = (int)m->variables;
        v->param.layer = of->layer->name;
    }
    b->own_variables++;
    m->variables++;
    return PS_OK;
}

enum ps_code nn_build_variable_by(struct nn_building *b, const char *what, const char *key, const char *fallback,
                                  const struct nn_type *type, struct ps_error *e)
{
    return b->first ? build_make_variable(b, what, key, fallback, type, e) : build_meet_variable(b, what, type, e);
}

// The one that was added last.
static struct nn_param *build_last_param(const struct nn_building *b)
{
    return &b->model->variable[b->layer->variable[b->own_variables - 1]].param;
}

enum ps_code nn_build_state(struct nn_building *b, const char *what, const char *fallback, const struct nn_type *type,
                            double momentum, struct ps_error *e)
{
    if (nn_build_variable(b, what, fallback, type, e))
        return e->code;
    struct nn_param *p = build_last_param(b);
    p->rule = b->layer->trainable ? "ema" : NULL;
    p->momentum = momentum;
    p->trainable = false;
    return PS_OK;
}

enum ps_code nn_build_table(struct nn_building *b, const char *what, const char *fallback, const struct nn_type *type,
                            struct ps_error *e)
{
    if (nn_build_variable(b, what, fallback, type, e))
        return e->code;
    build_last_param(b)->table = true;
    return PS_OK;
}

enum ps_code nn_build_activity(struct nn_building *b, struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, "activity_regularizer");
    return nn_regularizer_read(&at, &b->layer->activity, e);
}

enum ps_code nn_build_kernel_bias(struct nn_building *b, const struct nn_type *kernel, bool bias, struct ps_error *e)
{
    uint64_t count;
    if (nn_build_elements(b->at, "an output", &b->out, &count, e) ||
        nn_build_variable(b, "kernel", "GlorotUniform", kernel, e))
        return e->code;
    const struct nn_type outputs = {NN_FLOAT, 1, {kernel->dim[kernel->rank - 1]}};
    return bias ? nn_build_variable(b, "bias", "Zeros", &outputs, e) : PS_OK;
}
