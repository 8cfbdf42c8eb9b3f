// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/summary.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/file/output.h"
#include "common/math/finite.h"
#include "common/wire/dtype.h"
#include "workerd/strategy/losses.h"
#include "workerd/weights/weights.h"

static bool summary_ends_on_nan(const struct ps_job *job)
{
    for (size_t i = 0; i < job->callbacks.n; i++)
        if (strcmp(ps_callback_name(&job->callbacks.v[i]), "terminate_on_nan") == 0)
            return true;
    return false;
}

const struct nn_param *wk_nonfinite_weights(const struct wk_run *run)
{
    for (size_t i = 0; i < nn_model_params(run->env.model); i++) {
        const struct nn_param *p = nn_model_param(run->env.model, i);
        if (ps_nonfinite(PS_FLOAT32, nn_replica_param(run->env.replica, i), p->count))
            return p;
    }
    return NULL;
}

// Who trains in a queue sees no progress bar: a loss that has become NaN ends nothing by itself.
static void summary_warn_of_nonfinite(const struct wk_run *run)
{
    const struct nn_param *p = wk_nonfinite_weights(run);
    if (p)
        ps_warn("the weights that are written hold a NaN or an infinity, first in %s%s", p->name,
                summary_ends_on_nan(run->env.job) ? ""
                                                  : ": the callback terminate_on_nan would have ended the training");
}

enum ps_code wk_save_weights(const struct wk_run *run, struct ps_error *e)
{
    size_t n = nn_model_params(run->env.model);
    if (nn_replica_fetch(run->env.replica, e))
        return e->code;
    const float **value = ps_alloc((n + 1) * sizeof *value);
    for (size_t i = 0; i < n; i++)
        value[i] = nn_replica_param(run->env.replica, i);
    summary_warn_of_nonfinite(run);
    enum ps_code code = wk_weights_write(run->env.job->output, run->env.model, value, e);
    free(value);
    return code;
}

// JSON has no NaN.
static json_t *summary_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *summary_figure(const struct wk_run *run, const char *name)
{
    const double *value = wk_figures_find(&run->figures, name);
    return value ? summary_number(*value) : json_null();
}

// As the job's metrics have it: accuracy or acc.
static json_t *summary_accuracy(const struct wk_run *run)
{
    return summary_figure(run, wk_figures_find(&run->figures, "val_acc") ? "val_acc" : "val_accuracy");
}

// All of them, by Keras's names.
static json_t *summary_figures(const struct wk_figures *f)
{
    json_t *all = json_object();
    for (size_t i = 0; i < f->n; i++)
        json_object_set_new(all, f->v[i].name, summary_number(f->v[i].value));
    return all;
}

static json_t *mean_losses(const struct wk_history *h)
{
    json_t *list = json_array();
    for (uint64_t k = 0; k < wk_losses_kept(h); k++)
        json_array_append_new(list, summary_number(h->examples[k] > 0 ? h->loss[k] / h->examples[k] : NAN));
    return list;
}

// The most of it that this process has had so far.
static json_int_t summary_peak_memory(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (json_int_t)used.ru_maxrss * 1024;
}

static json_t *summary_make(const struct wk_run *run)
{
    const struct ps_job *job = run->env.job;
    char path[PATH_MAX];
    json_t *s = json_object();
    json_object_set_new(s, "job", json_string(job->name));
    json_object_set_new(s, "strategy", json_string(ps_job_strategies[job->strategy]));
    json_object_set_new(s, "workers", json_integer(run->env.workers));
    json_object_set_new(s, "replicas", json_integer(run->env.replicas));
    json_object_set_new(s, "ps", json_integer((json_int_t)run->env.n_ps));
    json_object_set_new(s, "test_accuracy", summary_accuracy(run));
    json_object_set_new(s, "test_loss", summary_figure(run, "val_loss"));
    json_object_set_new(s, "figures", summary_figures(&run->figures));
    json_object_update(s, run->matrices);
    json_object_set_new(s, "examples_per_second", summary_number(run->history.total_examples / run->train_seconds));
    json_object_set_new(s, "steps", json_integer((json_int_t)run->history.steps));
    json_object_set_new(s, "seconds", summary_number((double)(ps_now() - run->started) / (double)PS_SECOND));
    json_object_set_new(s, "seconds_to_first_step", summary_number(run->seconds_to_first_step));
    json_object_set_new(s, "peak_memory_bytes", json_integer(summary_peak_memory()));
    json_object_set_new(s, "weights", json_string(realpath(job->output, path) ? path : job->output));
    if (run->history.splits) {
        json_object_set_new(s, "split_gradients", json_integer((json_int_t)run->history.splits));
        json_object_set_new(s, "split_worker", json_integer(run->history.split_worker));
        json_object_set_new(s, "split_round", json_integer((json_int_t)run->history.split_round));
    }
    if (run->history.first)
        json_object_set_new(s, "train_loss_first", json_integer((json_int_t)run->history.first));
    json_object_set_new(s, "train_loss", mean_losses(&run->history));
    return s;
}

enum ps_code wk_save_summary(const struct wk_run *run, struct ps_error *e)
{
    struct ps_output o;
    if (ps_output_open(&o, run->summary, e))
        return e->code;
    json_t *s = summary_make(run);
    json_dumpf(s, o.file, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(s);
    return ps_output_commit(&o, e);
}
