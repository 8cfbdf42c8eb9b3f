// SPDX-License-Identifier: Apache-2.0
#include "common/job/columns.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/job/path.h"

static const char *const column_types[] = {"any", "number", "category", "bytes", "image", "skip", NULL};

static enum ps_code columns_check_map(const struct ps_yaml *v, const char *what, struct ps_error *e)
{
    return v->kind == PS_YAML_MAP ? PS_OK : ps_yaml_expected(v, what, e, "a map of names");
}

static size_t columns_count(const struct ps_yaml *v)
{
    size_t n = 0;
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        n++;
    return n;
}

static enum ps_code columns_take_shape(const struct ps_yaml *v, const char *what, struct ps_job_column *c,
                                       struct ps_error *e)
{
    if (v->kind != PS_YAML_LIST || columns_count(v) == 0 || columns_count(v) > PS_MAX_RANK)
        return ps_yaml_expected(v, what, e, "a list of 1 to %d dimensions", PS_MAX_RANK);
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        if (ps_yaml_uint(item, what, 1, INT32_MAX, &c->shape[c->rank++], e))
            return e->code;
    return PS_OK;
}

static enum ps_code columns_take_setting(const struct ps_yaml *v, const char *what, struct ps_job_column *c,
                                         struct ps_error *e)
{
    const char *text;
    if (strcmp(v->key, "type") == 0)
        return ps_yaml_choice(v, what, column_types, &c->type, e);
    if (strcmp(v->key, "shape") == 0)
        return columns_take_shape(v, what, c, e);
    if (strcmp(v->key, "vocabulary") != 0)
        return ps_yaml_fail(v, e, "unknown key \"%.60s\" in %s: expected type, vocabulary or shape", v->key, what);
    if (ps_yaml_string(v, what, &text, e))
        return e->code;
    c->vocabulary = ps_job_resolve_path(v, text);
    return PS_OK;
}

static enum ps_code columns_take_one(const struct ps_yaml *v, const char *what, struct ps_job_column *c,
                                     struct ps_error *e)
{
    if (v->kind != PS_YAML_MAP)
        return ps_yaml_choice(v, what, column_types, &c->type, e);
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        if (columns_take_setting(item, what, c, e))
            return e->code;
    if (c->vocabulary && c->type != PS_COLUMN_CATEGORY)
        return ps_yaml_fail(v, e, "%s has a vocabulary: expected type: category", what);
    return PS_OK;
}

enum ps_code ps_job_columns_parse(const struct ps_yaml *v, const char *what, struct ps_job_columns *to,
                                  struct ps_error *e)
{
    if (columns_check_map(v, what, e))
        return e->code;
    to->of = ps_alloc((columns_count(v) + 1) * sizeof *to->of);
    for (const struct ps_yaml *item = v->first; item; item = item->next) {
        char path[128];
        struct ps_job_column *c = &to->of[to->n++];
        snprintf(path, sizeof path, "%s.%s", what, item->key);
        c->name = ps_strdup(item->key);
        if (columns_take_one(item, path, c, e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code ports_take_name(const struct ps_yaml *v, const char *what, struct ps_job_port *p,
                                    struct ps_error *e)
{
    const char *text;
    if (ps_yaml_string(v, what, &text, e))
        return e->code;
    p->column[p->n++] = ps_strdup(text);
    return PS_OK;
}

enum ps_code ps_job_port_parse(const struct ps_yaml *v, const char *what, struct ps_job_port *p, struct ps_error *e)
{
    size_t n = v->kind == PS_YAML_LIST ? columns_count(v) : 1;
    if (v->kind == PS_YAML_MAP || n == 0)
        return ps_yaml_expected(v, what, e, "a column or a list of columns");
    p->column = ps_alloc(n * sizeof *p->column);
    if (v->kind == PS_YAML_SCALAR)
        return ports_take_name(v, what, p, e);
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        if (ports_take_name(item, what, p, e))
            return e->code;
    return PS_OK;
}

enum ps_code ps_job_ports_parse(const struct ps_yaml *v, const char *what, struct ps_job_ports *to, struct ps_error *e)
{
    if (columns_check_map(v, what, e))
        return e->code;
    to->of = ps_alloc((columns_count(v) + 1) * sizeof *to->of);
    for (const struct ps_yaml *item = v->first; item; item = item->next) {
        char path[128];
        struct ps_job_port *p = &to->of[to->n++];
        snprintf(path, sizeof path, "%s.%s", what, item->key);
        p->name = ps_strdup(item->key);
        if (ps_job_port_parse(item, path, p, e))
            return e->code;
    }
    return PS_OK;
}

void ps_job_columns_free(struct ps_job_columns *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->of[i].name);
        free(c->of[i].vocabulary);
    }
    free(c->of);
    *c = (struct ps_job_columns){0};
}

void ps_job_port_free(struct ps_job_port *p)
{
    for (size_t k = 0; k < p->n; k++)
        free(p->column[k]);
    free(p->column);
    free(p->name);
    *p = (struct ps_job_port){0};
}

void ps_job_ports_free(struct ps_job_ports *p)
{
    for (size_t i = 0; i < p->n; i++)
        ps_job_port_free(&p->of[i]);
    free(p->of);
    *p = (struct ps_job_ports){0};
}

json_t *ps_job_columns_json(const struct ps_job_columns *c)
{
    json_t *map = c->n ? json_object() : NULL;
    for (size_t i = 0; i < c->n; i++) {
        const struct ps_job_column *one = &c->of[i];
        json_t *settings = json_pack("{s:s}", "type", column_types[one->type]);
        if (one->vocabulary)
            json_object_set_new(settings, "vocabulary", json_string(one->vocabulary));
        if (one->rank)
            json_object_set_new(settings, "shape", json_array());
        for (size_t k = 0; k < one->rank; k++)
            json_array_append_new(json_object_get(settings, "shape"), json_integer((json_int_t)one->shape[k]));
        json_object_set_new(map, one->name, settings);
    }
    return map;
}

void ps_job_columns_hide_paths(json_t *columns)
{
    const char *name;
    json_t *settings;
    json_object_foreach(columns, name, settings)
    {
        if (json_object_get(settings, "vocabulary"))
            json_object_set_new(settings, "vocabulary", json_true());
    }
}

json_t *ps_job_port_json(const struct ps_job_port *p)
{
    json_t *list = p->n ? json_array() : NULL;
    for (size_t k = 0; k < p->n; k++)
        json_array_append_new(list, json_string(p->column[k]));
    return list;
}

json_t *ps_job_ports_json(const struct ps_job_ports *p)
{
    json_t *map = p->n ? json_object() : NULL;
    for (size_t i = 0; i < p->n; i++)
        json_object_set_new(map, p->of[i].name, ps_job_port_json(&p->of[i]));
    return map;
}
