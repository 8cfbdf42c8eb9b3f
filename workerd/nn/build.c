// SPDX-License-Identifier: Apache-2.0
//
// What the builds of layers share: inputs, variables.
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

enum ps_code nn_build_inputs(struct nn_building *b, int n, struct ps_error *e)
{
    return b->n_in == n ? PS_OK
                        : nn_json_fail(b->at, e, "%s takes %d input%s, not %d", b->layer->class->name, n,
                                       n == 1 ? "" : "s", b->n_in);
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
    char key[64];
    snprintf(key, sizeof key, "%s_initializer", what);
    return nn_build_variable_by(b, what, key, fallback, type, e);
}

enum ps_code nn_build_variable_by(struct nn_building *b, const char *what, const char *key, const char *fallback,
                                  const struct nn_type *type, struct ps_error *e)
{
    struct nn_model *m = b->model;
    struct nn_variable *v = build_next_variable(m);
    struct nn_json initializer = nn_json_member(b->config, key);
    v->param.rank = (size_t)type->rank;
    for (int i = 0; i < type->rank; i++)
        v->param.shape[i] = (uint64_t)type->dim[i];
    if (nn_init_read(&initializer, fallback, v->param.shape, v->param.rank, &v->init, e) ||
        nn_build_elements(b->at, what, type, &v->param.count, e))
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
