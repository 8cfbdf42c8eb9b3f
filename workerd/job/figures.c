// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

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

void wk_meter_add(struct wk_meter *m, const struct nn_result *result)
{
    if (!result->of)
        return;
    if (!m->of)
        *m = (struct wk_meter){result->of, ps_alloc(nn_measures_sums(result->of) * sizeof *m->sum)};
    for (size_t i = 0; i < nn_measures_sums(m->of); i++)
        m->sum[i] += result->sums[i];
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

static void figures_take(void *arg, const char *name, double value)
{
    const struct figures_prefixed *p = arg;
    wk_figures_add(p->to, p->prefix, name, value);
}

void wk_meter_figures(const struct wk_meter *m, const char *prefix, struct wk_figures *to)
{
    struct figures_prefixed p = {to, prefix};
    if (m->of)
        nn_measures_tell(m->of, m->sum, figures_take, &p);
}
