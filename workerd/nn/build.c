// SPDX-License-Identifier: Apache-2.0
//
// What the builds of layers share: inputs, windows, variables.
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/layer.h"
#include "workerd/nn/setting.h"

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

static const char *build_input_name(const struct nn_building *b)
{
    return b->model->layer[b->model->call[b->in[0]->call].layer].name;
}

enum ps_code nn_build_inputs(struct nn_building *b, int n, struct ps_error *e)
{
    return b->n_in == n ? PS_OK
                        : nn_json_fail(b->at, e, "%s takes %d input%s, not %d", b->layer->class->name, n,
                                       n == 1 ? "" : "s", b->n_in);
}

enum ps_code nn_build_image(struct nn_building *b, struct ps_error *e)
{
    char text[128];
    if (nn_build_inputs(b, 1, e))
        return e->code;
    if (b->in[0]->type.rank == 3)
        return PS_OK;
    return nn_json_fail(b->at, e, "%s expected an input of shape (height, width, channels), but \"%s\" gives %s",
                        b->layer->class->name, build_input_name(b),
                        build_shape_text(&b->in[0]->type, text, sizeof text));
}

void nn_axis_place(struct nn_axis *a, bool same)
{
    a->pad_begin = a->pad_end = 0;
    if (!same) {
        a->out = (a->in - a->k) / a->stride + 1;
        return;
    }
    a->out = (int)(((int64_t)a->in + a->stride - 1) / a->stride);
    int64_t lack = (int64_t)(a->out - 1) * a->stride + a->k - a->in;
    a->pad_begin = lack > 0 ? (int)(lack / 2) : 0;
    a->pad_end = lack > 0 ? (int)(lack - lack / 2) : 0;
}

enum ps_code nn_build_window(struct nn_building *b, struct nn_axis *a, bool same, struct ps_error *e)
{
    if (!same && a->k > a->in) {
        char text[128];
        return nn_json_fail(b->config, e,
                            "a window of %d does not fit the input %s: expected a smaller one, or padding \"same\"",
                            a->k, build_shape_text(&b->in[0]->type, text, sizeof text));
    }
    if (same && (int64_t)a->in + a->k + a->stride > NN_MAX_ELEMENTS)
        return nn_json_fail(b->config, e, "an image of %d padded for a window of %d: expected at most %d together",
                            a->in, a->k, NN_MAX_ELEMENTS);
    nn_axis_place(a, same);
    return PS_OK;
}

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

enum ps_code nn_build_variable(struct nn_building *b, const char *what, const char *fallback,
                               const struct nn_type *type, struct ps_error *e)
{
    struct nn_model *m = b->model;
    struct nn_variable *v = build_next_variable(m);
    char key[3][64];
    snprintf(key[0], sizeof key[0], "%s_initializer", what);
    snprintf(key[1], sizeof key[1], "%s_regularizer", what);
    snprintf(key[2], sizeof key[2], "%s_constraint", what);
    struct nn_json initializer = nn_json_member(b->config, key[0]), regularizer = nn_json_member(b->config, key[1]);
    struct nn_json constraint = nn_json_member(b->config, key[2]);
    v->param.rank = (size_t)type->rank;
    for (int i = 0; i < type->rank; i++)
        v->param.shape[i] = (uint64_t)type->dim[i];
    if (nn_init_read(&initializer, fallback, v->param.shape, v->param.rank, &v->init, e) ||
        nn_build_elements(b->at, what, type, &v->param.count, e) ||
        nn_regularizer_read(&regularizer, &v->regularizer, e) ||
        nn_constraint_read(&constraint, v->param.rank, &v->constraint, e))
        return e->code;
    v->param.name = ps_printf("%s/%s/%s", m->name, b->layer->name, what);
    v->param.layer = b->layer->name;
    v->param.trainable = b->layer->trainable;
    b->layer->variable[b->layer->n_variables++] = (int)m->variables++;
    return PS_OK;
}

enum ps_code nn_build_state(struct nn_building *b, const char *what, const char *fallback, const struct nn_type *type,
                            double momentum, struct ps_error *e)
{
    if (nn_build_variable(b, what, fallback, type, e))
        return e->code;
    struct nn_param *p = &b->model->variable[b->model->variables - 1].param;
    p->rule = p->trainable ? "ema" : NULL;
    p->momentum = momentum;
    p->trainable = false;
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
    if (!b->first)
        return PS_OK;
    if (nn_build_elements(b->at, "an output", &b->out, &count, e) ||
        nn_build_variable(b, "kernel", "GlorotUniform", kernel, e))
        return e->code;
    const struct nn_type outputs = {NN_FLOAT, 1, {kernel->dim[kernel->rank - 1]}};
    return bias ? nn_build_variable(b, "bias", "Zeros", &outputs, e) : PS_OK;
}
