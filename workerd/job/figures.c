// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void wk_figures_add(struct wk_figures *f, const char *prefix, const char *name, double value)
{
    if (f->n == WK_MAX_FIGURES)
        return;
    struct wk_figure *v = &f->v[f->n++];
    snprintf(v->name, sizeof v->name, "%s%s", prefix, name);
    v->value = value;
}

void wk_figures_drop(struct wk_figures *f, const char *prefix)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (strncmp(f->v[i].name, prefix, strlen(prefix)) != 0)
            f->v[n++] = f->v[i];
    f->n = n;
}

const double *wk_figures_find(const struct wk_figures *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].name, name) == 0)
            return &f->v[i].value;
    return NULL;
}

void wk_meter_add(struct wk_meter *m, const struct nn_result *result, int rows)
{
    m->examples += rows;
    m->loss += result->loss;
    m->correct += (double)result->correct;
}

void wk_meter_figures(const struct wk_meter *m, const struct ps_job *job, const char *prefix, struct wk_figures *to)
{
    if (m->examples == 0)
        return;
    if (job->accuracy)
        wk_figures_add(to, prefix, "accuracy", m->correct / m->examples);
    wk_figures_add(to, prefix, "loss", m->loss / m->examples);
}

// JSON has no NaN.
static json_t *meter_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *wk_meter_save(const struct wk_meter *m)
{
    return json_pack("{s:o, s:o, s:o}", "examples", meter_number(m->examples), "loss", meter_number(m->loss), "correct",
                     meter_number(m->correct));
}

enum ps_code wk_meter_load(struct wk_meter *m, const json_t *from, struct ps_error *e)
{
    static const char *const names[] = {"examples", "loss", "correct"};
    double *const to[] = {&m->examples, &m->loss, &m->correct};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(from, names[i]);
        if (!json_is_real(v) && !json_is_null(v))
            return ps_fail(e, PS_INVALID_ARGUMENT, "meter.%s: expected a number", names[i]);
        *to[i] = json_is_null(v) ? NAN : json_real_value(v);
    }
    return PS_OK;
}
