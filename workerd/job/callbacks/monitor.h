// SPDX-License-Identifier: Apache-2.0
//
// What the callbacks share that watch one of the epoch's figures: is it better than the best until now?
#ifndef WK_MONITOR_H
#define WK_MONITOR_H

#include "workerd/job/callback.h"

struct wk_monitor {
    const char *name;  // the settings'
    bool up;           // the greater the better
    double min_delta;
    double best;  // NaN: none yet
};

// From the settings monitor and mode; `auto` goes by the metric, as Keras does: accuracies go up, losses down. run has
// its replica and its data. INVALID_ARGUMENT: no epoch of it has such a figure; or the metric does not say which way.
enum ps_code wk_monitor_open(const struct ps_callback *settings, double min_delta, const struct wk_run *run,
                             struct wk_monitor *m, struct ps_error *e);
// NULL: this epoch has no such figure, as where a worker came too late to train any of it.
const double *wk_monitor_value(const struct wk_monitor *m, const struct wk_run *run);
// Than the best until now, of which NaN says that there is none. A value of NaN never is.
bool wk_monitor_is_better(const struct wk_monitor *m, double value, double than);

// The best until now, and of which figure it is. *goes_on: false where the checkpoint has that of another figure or
// mode, which is logged: what the callback has counted since is void, too. prefix: the callback's, for the log.
void wk_monitor_save(const struct wk_monitor *m, json_t *to);
enum ps_code wk_monitor_load(struct wk_monitor *m, const json_t *from, const struct wk_checkpoint *of,
                             const char *prefix, bool *goes_on, struct ps_error *e);

#endif
