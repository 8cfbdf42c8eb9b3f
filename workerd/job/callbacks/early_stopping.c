// SPDX-License-Identifier: Apache-2.0
//
// Ends the training when a figure has not become better for `patience` epochs.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/job/callbacks/monitor.h"

struct early_stopping {
    struct wk_monitor monitor;
    double baseline;  // NaN: none
    uint64_t patience, start, wait, best_epoch;
    bool restore, stopped;
    char why[256];
    const struct wk_run *run;
    float **best;  // [params]; NULL: the best weights are not kept, or there are none yet
};

static void early_stopping_forget(struct early_stopping *s)
{
    for (size_t i = 0; s->best && i < nn_model_params(s->run->env.model); i++)
        free(s->best[i]);
    free(s->best);
    s->best = NULL;
}

static void early_stopping_close(void *state)
{
    early_stopping_forget(state);
    free(state);
}

static enum ps_code early_stopping_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                        struct ps_error *e)
{
    struct wk_monitor monitor;
    if (wk_monitor_open(settings, ps_callback_real(settings, "min_delta"), run, &monitor, e))
        return e->code;
    struct early_stopping *s = ps_alloc(sizeof *s);
    *s = (struct early_stopping){.monitor = monitor,
                                 .baseline = ps_callback_real(settings, "baseline"),
                                 .patience = ps_callback_count(settings, "patience"),
                                 .start = ps_callback_count(settings, "start_from_epoch"),
                                 .restore = ps_callback_flag(settings, "restore_best_weights"),
                                 .run = run};
    *state = s;
    return PS_OK;
}

// Room for a copy of all parameters.
static enum ps_code early_stopping_make_room(struct early_stopping *s, struct ps_error *e)
{
    const struct nn_model *model = s->run->env.model;
    if (s->best)
        return PS_OK;
    s->best = ps_alloc((nn_model_params(model) + 1) * sizeof *s->best);
    for (size_t i = 0; i < nn_model_params(model); i++) {
        s->best[i] = ps_try_alloc_array(nn_model_param(model, i)->count, sizeof **s->best);
        if (!s->best[i])
            return ps_no_memory(e, "a copy of the best weights");
    }
    return PS_OK;
}

static enum ps_code early_stopping_keep(struct early_stopping *s, uint64_t epoch, struct ps_error *e)
{
    const struct nn_model *model = s->run->env.model;
    s->best_epoch = epoch;
    if (!s->restore)
        return PS_OK;
    if (early_stopping_make_room(s, e))
        return e->code;
    for (size_t i = 0; i < nn_model_params(model); i++)
        memcpy(s->best[i], nn_replica_param(s->run->env.replica, i),
               nn_model_param(model, i)->count * sizeof **s->best);
    return PS_OK;
}

static enum ps_code early_stopping_epoch_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct early_stopping *s = state;
    const double *value = m->epoch < s->start ? NULL : wk_monitor_value(&s->monitor, m->run);
    if (!value)
        return PS_OK;
    s->stopped = false;  // it had, of a training that goes on with more patience
    if (s->restore && !s->best && isnan(s->monitor.best) && early_stopping_keep(s, m->epoch, e))
        return e->code;
    s->wait++;
    if (wk_monitor_is_better(&s->monitor, *value, s->monitor.best)) {
        s->monitor.best = *value;
        if (early_stopping_keep(s, m->epoch, e))
            return e->code;
        if (isnan(s->baseline) || wk_monitor_is_better(&s->monitor, *value, s->baseline))
            s->wait = 0;
        return PS_OK;
    }
    if (s->wait >= s->patience && m->epoch > 0) {
        m->stop = s->stopped = true;
        m->why = m->why ? m->why : s->why;
        if (isnan(s->monitor.best))
            snprintf(s->why, sizeof s->why, "epoch %" PRIu64 ": early stopping: %s has been nan in all epochs",
                     m->epoch + 1, s->monitor.name);
        else
            snprintf(s->why, sizeof s->why, "epoch %" PRIu64 ": early stopping: %s was best, %.6g, in epoch %" PRIu64,
                     m->epoch + 1, s->monitor.name, s->monitor.best, s->best_epoch + 1);
    }
    return PS_OK;
}

static enum ps_code early_stopping_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct early_stopping *s = state;
    const struct nn_model *model = s->run->env.model;
    (void)e;
    if (!s->best && s->restore && !isnan(s->monitor.best))
        ps_warn("the weights are the last ones, and not the best: nobody here has those of the end of epoch %" PRIu64,
                s->best_epoch + 1);
    if (!s->best)
        return PS_OK;
    for (size_t i = 0; i < nn_model_params(model); i++) {
        size_t bytes = nn_model_param(model, i)->count * sizeof **s->best;
        float *now = nn_replica_param(s->run->env.replica, i);
        m->changed |= memcmp(now, s->best[i], bytes) != 0;
        memcpy(now, s->best[i], bytes);
    }
    if (m->changed)
        ps_info("the weights are those of the end of epoch %" PRIu64 ", the best", s->best_epoch + 1);
    return PS_OK;
}

static bool early_stopping_is_over(const void *state)
{
    const struct early_stopping *s = state;
    return s->stopped && s->wait >= s->patience;
}

static bool early_stopping_tell(const void *state, double *numbers)
{
    const struct early_stopping *s = state;
    numbers[0] = s->monitor.best;
    numbers[1] = (double)s->wait;
    numbers[2] = (double)s->best_epoch;
    return true;
}

// The weights that were kept here are not the best where that was an epoch which this worker has not seen.
static void early_stopping_take(void *state, const double *numbers)
{
    struct early_stopping *s = state;
    const uint64_t best_epoch = (uint64_t)numbers[2];
    if (best_epoch != s->best_epoch)
        early_stopping_forget(s);
    s->monitor.best = numbers[0];
    s->wait = (uint64_t)numbers[1];
    s->best_epoch = best_epoch;
}

static void early_stopping_save(void *state, json_t *to, struct wk_checkpoint *arrays, const char *prefix)
{
    struct early_stopping *s = state;
    const struct nn_model *model = s->run->env.model;
    wk_monitor_save(&s->monitor, to);
    json_object_set_new(to, "wait", json_integer((json_int_t)s->wait));
    json_object_set_new(to, "best_epoch", json_integer((json_int_t)s->best_epoch));
    json_object_set_new(to, "stopped", json_boolean(s->stopped));
    json_object_set_new(to, "weights", json_boolean(s->best != NULL));
    for (size_t i = 0; s->best && i < nn_model_params(model); i++) {
        const struct nn_param *p = nn_model_param(model, i);
        wk_checkpoint_put(arrays, prefix, p->name, p->shape, p->rank, s->best[i]);
    }
}

static enum ps_code early_stopping_load_best(struct early_stopping *s, const struct wk_checkpoint *arrays,
                                             const char *prefix, struct ps_error *e)
{
    const struct nn_model *model = s->run->env.model;
    if (early_stopping_make_room(s, e))
        return e->code;
    for (size_t i = 0; i < nn_model_params(model); i++) {
        const struct nn_param *p = nn_model_param(model, i);
        if (wk_checkpoint_get(arrays, prefix, p->name, p->count, s->best[i], e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code early_stopping_load(void *state, const json_t *from, const struct wk_checkpoint *arrays,
                                        const char *prefix, struct ps_error *e)
{
    struct early_stopping *s = state;
    bool goes_on;
    if (wk_monitor_load(&s->monitor, from, arrays, prefix, &goes_on, e))
        return e->code;
    if (!goes_on)
        return PS_OK;
    if (wk_state_count(from, "wait", &s->wait, e) || wk_state_count(from, "best_epoch", &s->best_epoch, e))
        return e->code;
    s->stopped = json_is_true(json_object_get(from, "stopped"));
    if (s->restore && json_is_true(json_object_get(from, "weights")))
        return early_stopping_load_best(s, arrays, prefix, e);
    return PS_OK;
}

const struct wk_callback_class wk_early_stopping = {
    .name = "early_stopping",
    .steers = true,
    .open = early_stopping_open,
    .close = early_stopping_close,
    .is_over = early_stopping_is_over,
    .epoch_end = early_stopping_epoch_end,
    .end = early_stopping_end,
    .tell = early_stopping_tell,
    .take = early_stopping_take,
    .save = early_stopping_save,
    .load = early_stopping_load,
};
