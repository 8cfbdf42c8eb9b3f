// SPDX-License-Identifier: Apache-2.0
//
// checkpoint: the whole training in a file, every so many steps or seconds, else at the end of each epoch; the last
// `keep` of them stay (0: all). backup: the same, of which the last one alone stays; with it a training begins where
// the one before it was interrupted, and at its end the file is removed.
#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "workerd/job/callbacks/log_file.h"
#include "workerd/job/callbacks/monitor.h"
#include "workerd/job/resume.h"

struct checkpointing {
    const char *folder, *kind;
    uint64_t every_steps, every, keep;  // every: ns
    uint64_t saved;                     // when, ns
    bool best_only, remove;
    struct wk_monitor monitor;
};

static enum ps_code checkpoint_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                    struct ps_error *e)
{
    struct checkpointing c = {.folder = ps_callback_text(settings, "path"),
                              .kind = "",
                              .every_steps = ps_callback_count(settings, "every_steps"),
                              .every = ps_callback_count(settings, "every_seconds") * PS_SECOND,
                              .keep = ps_callback_count(settings, "keep"),
                              .best_only = ps_callback_flag(settings, "save_best_only")};
    (void)run;
    if (c.best_only && (c.every_steps || c.every))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "save_best_only goes by the figures of an epoch: it does not go with every_%s",
                       c.every_steps ? "steps" : "seconds");
    if (c.best_only && wk_monitor_open(settings, 0, &c.monitor, e))
        return e->code;
    *state = ps_alloc(sizeof c);
    *(struct checkpointing *)*state = c;
    return PS_OK;
}

static enum ps_code backup_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                struct ps_error *e)
{
    struct checkpointing *c = ps_alloc(sizeof *c);
    (void)run;
    (void)e;
    *c = (struct checkpointing){.folder = ps_callback_text(settings, "path"),
                                .kind = "-backup",
                                .every_steps = ps_callback_count(settings, "every_steps"),
                                .every = ps_callback_count(settings, "every_seconds") * PS_SECOND,
                                .keep = 1,
                                .remove = ps_callback_flag(settings, "delete_checkpoint")};
    *state = c;
    return PS_OK;
}

static enum ps_code checkpoint_begin(void *state, struct wk_run *run, struct ps_error *e)
{
    struct checkpointing *c = state;
    c->saved = ps_now();
    if (wk_make_folder(c->folder, e))
        return e->code;
    wk_resume_clean(c->folder, run->env.job->name, c->kind);
    return PS_OK;
}

static enum ps_code checkpoint_save_now(struct checkpointing *c, struct wk_run *run, struct ps_error *e)
{
    const char *job = run->env.job->name;
    char *path = wk_resume_path(c->folder, job, c->kind, run->position.step);
    enum ps_code code = wk_resume_save(run, path, e);
    free(path);
    c->saved = ps_now();
    if (code == PS_OK && c->keep)
        wk_resume_prune(c->folder, job, c->kind, c->keep);
    return code;
}

static enum ps_code checkpoint_step(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct checkpointing *c = state;
    bool due = (c->every_steps && m->run->position.step % c->every_steps == 0) ||
               (c->every && ps_now() - c->saved >= c->every);
    if (!due || m->run->strategy->home->refresh(m->run->state, e))
        return due ? e->code : PS_OK;
    return checkpoint_save_now(c, m->run, e);
}

static enum ps_code checkpoint_epoch_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct checkpointing *c = state;
    if (c->every_steps || c->every)
        return PS_OK;
    if (c->best_only) {
        const double *value = wk_monitor_value(&c->monitor, m->run);
        if (!value || !wk_monitor_is_better(&c->monitor, *value, c->monitor.best))
            return PS_OK;
        c->monitor.best = *value;
    }
    return checkpoint_save_now(c, m->run, e);
}

static enum ps_code checkpoint_stopped(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct checkpointing *c = state;
    return c->best_only ? PS_OK : checkpoint_save_now(c, m->run, e);
}

static enum ps_code backup_written(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct checkpointing *c = state;
    (void)e;
    if (c->remove)
        wk_resume_prune(c->folder, m->run->env.job->name, c->kind, 0);
    return PS_OK;
}

static void checkpoint_save(void *state, json_t *to, struct wk_checkpoint *arrays, const char *prefix)
{
    struct checkpointing *c = state;
    (void)arrays;
    (void)prefix;
    if (c->best_only)
        json_object_set_new(to, "best", isnan(c->monitor.best) ? json_null() : json_real(c->monitor.best));
}

static enum ps_code checkpoint_load(void *state, const json_t *from, const struct wk_checkpoint *arrays,
                                    const char *prefix, struct ps_error *e)
{
    struct checkpointing *c = state;
    (void)arrays;
    (void)prefix;
    return c->best_only ? wk_state_real(from, "best", &c->monitor.best, e) : PS_OK;
}

const struct wk_callback_class wk_checkpoint_callback = {
    .name = "checkpoint",
    .last = true,
    .open = checkpoint_open,
    .close = free,
    .begin = checkpoint_begin,
    .step = checkpoint_step,
    .epoch_end = checkpoint_epoch_end,
    .stopped = checkpoint_stopped,
    .save = checkpoint_save,
    .load = checkpoint_load,
};

const struct wk_callback_class wk_backup = {
    .name = "backup",
    .last = true,
    .open = backup_open,
    .close = free,
    .begin = checkpoint_begin,
    .step = checkpoint_step,
    .epoch_end = checkpoint_epoch_end,
    .written = backup_written,
    .stopped = checkpoint_stopped,
};
