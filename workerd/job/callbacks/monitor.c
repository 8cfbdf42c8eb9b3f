// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/callbacks/monitor.h"

#include <math.h>
#include <string.h>

#include "common/base/error.h"

static bool monitor_has_word(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strstr(name, *words))
            return true;
    return false;
}

// Will the epochs have such a figure? reduce_lr_on_plateau adds the last one.
static enum ps_code monitor_check_name(const char *name, const struct wk_run *run, struct ps_error *e)
{
    const char *words[WK_MAX_FIGURES];
    struct wk_figures known = {0};
    char list[400] = "";
    wk_figures_name(&known, nn_replica_measures(run->env.replica), "");
    if (wk_data_test(run->data)->examples > 0)
        wk_figures_name(&known, nn_replica_measures(run->env.replica), "val_");
    if (wk_figures_find(&known, name) || strcmp(name, "learning_rate") == 0)
        return PS_OK;
    for (size_t i = 0; i < known.n; i++) {
        words[i] = known.v[i].name;
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, words[i], sizeof list - strlen(list) - 1);
    }
    const char *nearest = ps_nearest(name, words, (int)known.n);
    if (nearest)
        return ps_fail(e, PS_INVALID_ARGUMENT, "monitor '%.64s': the job has no such figure; did you mean '%s'?", name,
                       nearest);
    return ps_fail(e, PS_INVALID_ARGUMENT, "monitor '%.64s': the job has no such figure; expected one of %s", name,
                   list);
}

enum ps_code wk_monitor_open(const struct ps_callback *settings, double min_delta, const struct wk_run *run,
                             struct wk_monitor *m, struct ps_error *e)
{
    static const char *const up[] = {"acc", "auc", "precision", "recall", "f1", "top_k", NULL};
    static const char *const down[] = {"loss", "error", "mse", "mae", "rmse", "mape", "msle", NULL};
    const char *mode = ps_callback_text(settings, "mode");
    *m = (struct wk_monitor){.name = ps_callback_text(settings, "monitor"), .min_delta = fabs(min_delta), .best = NAN};
    m->up = strcmp(mode, "max") == 0 || (strcmp(mode, "auto") == 0 && monitor_has_word(m->name, up));
    if (monitor_check_name(m->name, run, e))
        return e->code;
    if (strcmp(mode, "auto") == 0 && !m->up && !monitor_has_word(m->name, down))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "monitor '%.64s': its name does not say whether more of it is better: set mode to min or max",
                       m->name);
    return PS_OK;
}

const double *wk_monitor_value(const struct wk_monitor *m, const struct wk_run *run)
{
    return wk_figures_find(&run->figures, m->name);
}

bool wk_monitor_is_better(const struct wk_monitor *m, double value, double than)
{
    if (isnan(than))
        return true;
    return m->up ? value - m->min_delta > than : value + m->min_delta < than;
}
