// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

void wk_figures_add(struct wk_figures *f, const char *prefix, const char *name, double value)
{
    if (f->n == f->room) {
        f->room = f->room ? 2 * f->room : 16;
        f->v = ps_realloc(f->v, f->room * sizeof *f->v);
    }
    struct wk_figure *v = &f->v[f->n++];
    snprintf(v->name, sizeof v->name, "%s%s", prefix, name);
    v->value = value;
    v->validation = *prefix != '\0';
    v->better = NN_BETTER_UNKNOWN;
}

void wk_figures_set(struct wk_figures *f, const char *name, double value)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].name, name) == 0) {
            f->v[i].value = value;
            return;
        }
    wk_figures_add(f, "", name, value);
}

void wk_figures_copy(struct wk_figures *to, const struct wk_figures *from)
{
    to->n = 0;
    for (size_t i = 0; i < from->n; i++) {
        wk_figures_add(to, "", from->v[i].name, from->v[i].value);
        to->v[i] = from->v[i];
    }
}

void wk_figures_free(struct wk_figures *f)
{
    free(f->v);
    *f = (struct wk_figures){0};
}

void wk_figures_drop_validation(struct wk_figures *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (!f->v[i].validation)
            f->v[n++] = f->v[i];
    f->n = n;
}

static bool figures_has_validation(const struct wk_figures *f, const char *name)
{
    bool has = false;
    for (size_t i = 0; i < f->n; i++)
        has |= f->v[i].validation && strcmp(f->v[i].name, name) == 0;
    return has;
}

void wk_figures_prefer_validation(struct wk_figures *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].validation || !figures_has_validation(f, f->v[i].name))
            f->v[n++] = f->v[i];
    f->n = n;
}

json_t *wk_number_save(double x)
{
    if (isnan(x))
        return json_null();
    return isfinite(x) ? json_real(x) : json_string(x > 0 ? "inf" : "-inf");
}

bool wk_number_load(const json_t *from, double *to)
{
    const char *text = json_is_string(from) ? json_string_value(from) : "";
    if (json_is_null(from))
        *to = NAN;
    else if (json_is_number(from))
        *to = json_number_value(from);
    else if (strcmp(text, "inf") == 0)
        *to = INFINITY;
    else if (strcmp(text, "-inf") == 0)
        *to = -INFINITY;
    else
        return false;
    return true;
}

enum ps_code wk_state_real(const json_t *from, const char *key, double *to, struct ps_error *e)
{
    if (!wk_number_load(json_object_get(from, key), to))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected a number", key);
    return PS_OK;
}

enum ps_code wk_state_count(const json_t *from, const char *key, uint64_t *to, struct ps_error *e)
{
    const json_t *v = json_object_get(from, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected a whole number of 0 or more", key);
    *to = (uint64_t)json_integer_value(v);
    return PS_OK;
}

const char *wk_figure_text(double value, char text[WK_FIGURE_TEXT])
{
    const double size = fabs(value);
    const bool small = size > 0 && size < 1e-3;
    snprintf(text, WK_FIGURE_TEXT, small ? "%.4e" : "%.4f", isnan(value) ? (double)NAN : value);
    return text;
}

const double *wk_figures_find(const struct wk_figures *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].name, name) == 0)
            return &f->v[i].value;
    return NULL;
}

void wk_meter_open(struct wk_meter *m, const struct nn_measures *of)
{
    if (!m->of)
        *m = (struct wk_meter){of, ps_alloc(2 * nn_measures_sums(of) * sizeof *m->sum)};
}

void wk_meter_add(struct wk_meter *m, const struct nn_result *result)
{
    if (!result->of)
        return;
    wk_meter_open(m, result->of);
    const size_t n = nn_measures_sums(m->of);
    memcpy(m->sum + n, m->sum, n * sizeof *m->sum);
    for (size_t i = 0; i < n; i++)
        m->sum[i] += result->sums[i];
}

void wk_meter_take_back(struct wk_meter *m)
{
    const size_t n = m->of ? nn_measures_sums(m->of) : 0;
    for (size_t i = 0; i < n; i++) {
        const double last = m->sum[i];
        m->sum[i] = m->sum[n + i];
        m->sum[n + i] = last;
    }
}

void wk_meter_reset(struct wk_meter *m)
{
    free(m->sum);
    *m = (struct wk_meter){0};
}

struct figures_prefixed {
    struct wk_figures *to;
    const char *prefix;
};

static void figures_take(void *arg, const char *name, double value, enum nn_better better)
{
    const struct figures_prefixed *p = arg;
    wk_figures_add(p->to, p->prefix, name, value);
    p->to->v[p->to->n - 1].better = better;
}

void wk_meter_figures(const struct wk_meter *m, const char *prefix, struct wk_figures *to)
{
    struct figures_prefixed p = {to, prefix};
    if (m->of)
        nn_measures_tell(m->of, m->sum, figures_take, &p);
}

void wk_figures_name(struct wk_figures *f, const struct nn_measures *of, const char *prefix)
{
    struct wk_meter one = {0};
    wk_meter_open(&one, of);
    one.sum[0] = 1;  // of no examples there are no figures
    wk_meter_figures(&one, prefix, f);
    wk_meter_reset(&one);
}

json_t *wk_meter_matrices(const struct wk_meter *m, const char *prefix)
{
    json_t *all = json_object();
    const char *name;
    const double *value;
    size_t classes;
    for (size_t i = 0; m->of && nn_measures_matrix(m->of, m->sum, i, &name, &value, &classes); i++) {
        char key[WK_FIGURE_NAME];
        json_t *rows = json_array();
        for (size_t y = 0; y < classes; y++, value += classes) {
            json_array_append_new(rows, json_array());
            for (size_t x = 0; x < classes; x++)
                json_array_append_new(json_array_get(rows, y), json_integer((json_int_t)value[x]));
        }
        snprintf(key, sizeof key, "%s%s", prefix, name);
        json_object_set_new(all, key, rows);
    }
    return all;
}

json_t *wk_meter_save(const struct wk_meter *m)
{
    json_t *sums = json_array();
    for (size_t i = 0; m->of && i < nn_measures_sums(m->of); i++)
        json_array_append_new(sums, wk_number_save(m->sum[i]));
    return sums;
}

enum ps_code wk_meter_load(struct wk_meter *m, const struct nn_measures *of, const json_t *from, struct ps_error *e)
{
    const size_t n = nn_measures_sums(of);
    wk_meter_reset(m);
    if (json_is_array(from) && json_array_size(from) == 0)
        return PS_OK;
    if (json_array_size(from) != n)
        return ps_fail(e, PS_INVALID_ARGUMENT, "meter: expected %zu numbers, or none", n);
    wk_meter_open(m, of);
    for (size_t i = 0; i < n; i++)
        if (!wk_number_load(json_array_get(from, i), &m->sum[i]))
            return ps_fail(e, PS_INVALID_ARGUMENT, "meter[%zu]: expected a number", i);
    return PS_OK;
}
