// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/figures.h"

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
