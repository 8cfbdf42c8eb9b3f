// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/callbacks/monitor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/error.h"
#include "common/base/log.h"

// Those that the epochs will have.
static void monitor_name_figures(const struct wk_run *run, struct wk_figures *known)
{
    wk_figures_name(known, nn_replica_measures(run->env.replica), "");
    if (wk_data_test(run->data)->examples > 0)
        wk_figures_name(known, nn_replica_measures(run->env.replica), "val_");
}

static enum ps_code monitor_fail_name(const char *name, const struct wk_figures *known, struct ps_error *e)
{
    const char **words = ps_alloc((known->n + 1) * sizeof *words);
    char list[400] = "";
    for (size_t i = 0; i < known->n; i++) {
        words[i] = known->v[i].name;
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, words[i], sizeof list - strlen(list) - 1);
    }
    const char *nearest = ps_nearest(name, words, (int)known->n);
    free(words);
    if (nearest)
        return ps_fail(e, PS_INVALID_ARGUMENT, "monitor '%.200s': the job has no such figure; did you mean '%.200s'?",
                       name, nearest);
    return ps_fail(e, PS_INVALID_ARGUMENT, "monitor '%.200s': the job has no such figure; expected one of %s", name,
                   list);
}

// What `auto` goes by, of a figure that there will be. reduce_lr_on_plateau adds the last one.
static enum ps_code monitor_find(const char *name, const struct wk_run *run, enum nn_better *better, struct ps_error *e)
{
    struct wk_figures known = {0};
    bool found = strcmp(name, "learning_rate") == 0;
    monitor_name_figures(run, &known);
    *better = NN_BETTER_UNKNOWN;
    for (size_t i = known.n; i--;)
        if (strcmp(known.v[i].name, name) == 0) {
            *better = known.v[i].better;
            found = true;
        }
    const enum ps_code code = found ? PS_OK : monitor_fail_name(name, &known, e);
    wk_figures_free(&known);
    return code;
}

enum ps_code wk_monitor_open(const struct ps_callback *settings, double min_delta, const struct wk_run *run,
                             struct wk_monitor *m, struct ps_error *e)
{
    const char *mode = ps_callback_text(settings, "mode");
    const bool is_auto = strcmp(mode, "auto") == 0;
    enum nn_better better;
    *m = (struct wk_monitor){.name = ps_callback_text(settings, "monitor"), .min_delta = fabs(min_delta), .best = NAN};
    if (monitor_find(m->name, run, &better, e))
        return e->code;
    m->up = is_auto ? better == NN_BETTER_MORE : strcmp(mode, "max") == 0;
    if (is_auto && better == NN_BETTER_UNKNOWN)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "monitor '%.200s': its name does not say whether more of it is better: set mode to min or max",
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
        return !isnan(value);
    return m->up ? value - m->min_delta > than : value + m->min_delta < than;
}

static const char *monitor_mode(const struct wk_monitor *m)
{
    return m->up ? "max" : "min";
}

void wk_monitor_save(const struct wk_monitor *m, json_t *to)
{
    json_object_set_new(to, "best", wk_number_save(m->best));
    json_object_set_new(to, "monitor", json_string(m->name));
    json_object_set_new(to, "mode", json_string(monitor_mode(m)));
}

// An older version has saved the best figure alone.
enum ps_code wk_monitor_load(struct wk_monitor *m, const json_t *from, const struct wk_checkpoint *of,
                             const char *prefix, bool *goes_on, struct ps_error *e)
{
    const char *name = json_string_value(json_object_get(from, "monitor"));
    const char *mode = json_string_value(json_object_get(from, "mode"));
    *goes_on = !mode || (name && strcmp(name, m->name) == 0 && strcmp(mode, monitor_mode(m)) == 0);
    if (*goes_on)
        return wk_state_real(from, "best", &m->best, e);
    ps_warn("%s: %s: monitored %.200s with mode %.64s, and now %.200s with mode %s: its best begins anew", of->path,
            prefix, name ? name : "another figure", mode, m->name, monitor_mode(m));
    return PS_OK;
}
