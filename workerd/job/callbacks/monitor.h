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
    bool warned;  // that the run has no such figure
};

// From the settings monitor and mode; `auto` goes by the name, as Keras does: accuracies go up, losses down.
// INVALID_ARGUMENT: that does not say it.
enum ps_code wk_monitor_open(const struct ps_callback *settings, double min_delta, struct wk_monitor *m,
                             struct ps_error *e);
// NULL, and a warning the first time: the run has no such figure.
const double *wk_monitor_value(struct wk_monitor *m, const struct wk_run *run);
bool wk_monitor_is_better(const struct wk_monitor *m, double value, double than);

#endif
