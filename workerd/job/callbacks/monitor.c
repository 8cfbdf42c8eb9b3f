// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/callbacks/monitor.h"

#include <math.h>
#include <string.h>

#include "common/base/log.h"

static bool monitor_has_word(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strstr(name, *words))
            return true;
    return false;
}

enum ps_code wk_monitor_open(const struct ps_callback *settings, double min_delta, struct wk_monitor *m,
                             struct ps_error *e)
{
    static const char *const up[] = {"acc", "auc", "precision", "recall", "f1", "top_k", NULL};
    static const char *const down[] = {"loss", "error", "mse", "mae", "rmse", "mape", "msle", NULL};
    const char *mode = ps_callback_text(settings, "mode");
    *m = (struct wk_monitor){.name = ps_callback_text(settings, "monitor"), .min_delta = fabs(min_delta), .best = NAN};
    m->up = strcmp(mode, "max") == 0 || (strcmp(mode, "auto") == 0 && monitor_has_word(m->name, up));
    if (strcmp(mode, "auto") == 0 && !m->up && !monitor_has_word(m->name, down))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "monitor '%.64s': its name does not say whether more of it is better: set mode to min or max",
                       m->name);
    return PS_OK;
}

const double *wk_monitor_value(struct wk_monitor *m, const struct wk_run *run)
{
    const double *value = wk_figures_find(&run->figures, m->name);
    char known[400] = "";
    if (value || m->warned)
        return value;
    for (size_t i = 0; i < run->figures.n; i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, run->figures.v[i].name, sizeof known - strlen(known) - 1);
    }
    ps_warn("a callback monitors '%s', of which nothing is known: it does not act; known are %s", m->name, known);
    m->warned = true;
    return NULL;
}

bool wk_monitor_is_better(const struct wk_monitor *m, double value, double than)
{
    if (isnan(than))
        return true;
    return m->up ? value - m->min_delta > than : value + m->min_delta < than;
}
