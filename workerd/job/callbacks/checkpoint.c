// SPDX-License-Identifier: Apache-2.0
//
// checkpoint: the whole training in a file, every so many steps or seconds, else at the end of each epoch; the last
// `keep` of them stay (0: all). backup: the same; with it a training begins where the one before it was interrupted,
// and at its end the files are removed.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/file/output.h"
#include "workerd/job/callbacks/log_file.h"
#include "workerd/job/callbacks/monitor.h"
#include "workerd/job/checkpoint_writer.h"
#include "workerd/job/folders.h"
#include "workerd/job/summary.h"

struct checkpointing {
    struct wk_checkpoint_writer writer;
    uint64_t every_steps, every;  // every: ns
    uint64_t saved;               // when, ns
    uint64_t asked, signals;      // by people, by signals: so many were looked at
    bool pending;                 // one was begun, and has not been waited for
    struct wk_position last;      // of the last one that was begun; step 0: it was not written
    bool due;                     // by its steps
    uint64_t number;              // of the one that is being written, if people asked for it; else 0
    bool best_only, remove, sharded;
    bool warned;         // that another training may write there
    struct wk_run *run;  // since it began
    bool better;         // best_only: so is the figure of the epoch that ends
    struct wk_monitor monitor;
    double best_before;  // the last one was begun, which stays the best where it is not written
};

static struct checkpointing *checkpoint_make(const struct ps_callback *settings, const struct wk_run *run,
                                             const char *kind)
{
    struct checkpointing *c = ps_alloc(sizeof *c);
    *c = (struct checkpointing){
        .writer = {.to = {ps_callback_text(settings, "path"), run->env.job->name, kind},
                   .keep = ps_callback_count(settings, "keep")},
        .every_steps = ps_callback_count(settings, "every_steps"),
        .every = ps_callback_count(settings, "every_seconds") * PS_SECOND,
        .sharded = ps_callback_flag(settings, "sharded"),
    };
    return c;
}

static enum ps_code checkpoint_open_best(struct checkpointing *c, const struct ps_callback *settings,
                                         const struct wk_run *run, struct ps_error *e)
{
    if (c->every_steps || c->every)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "save_best_only goes by the figures of an epoch: it does not go with every_%s",
                       c->every_steps ? "steps" : "seconds");
    return wk_monitor_open(settings, 0, run, &c->monitor, e);
}

static void checkpoint_close(void *state)
{
    struct checkpointing *c = state;
    struct ps_error why = {.code = PS_OK};
    if (wk_checkpoint_writer_wait(&c->writer, &why))
        ps_error_log("the checkpoint of step %" PRIu64 " is not written: %s", c->writer.step, why.text);
    wk_checkpoint_writer_free(&c->writer);
    free(c);
}

// Keras's ModelCheckpoint takes a file's name there.
static void checkpoint_warn_of_name(const char *path)
{
    const char *end = path ? strrchr(path, '.') : NULL;
    if (end && (strcmp(end, ".keras") == 0 || strcmp(end, ".h5") == 0))
        ps_warn("callback checkpoint: %s is a folder: the files in it are called NAME-STEP.safetensors", path);
}

static enum ps_code checkpoint_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                    struct ps_error *e)
{
    struct checkpointing *c = checkpoint_make(settings, run, "");
    c->best_only = ps_callback_flag(settings, "save_best_only");
    checkpoint_warn_of_name(c->writer.to.folder);
    if (c->best_only && checkpoint_open_best(c, settings, run, e)) {
        checkpoint_close(c);
        return e->code;
    }
    *state = c;
    return PS_OK;
}

static enum ps_code backup_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                struct ps_error *e)
{
    struct checkpointing *c = checkpoint_make(settings, run, "-backup");
    (void)e;
    c->remove = ps_callback_flag(settings, "delete_checkpoint");
    *state = c;
    return PS_OK;
}

static uint64_t checkpoint_signals(const struct wk_run *run)
{
    return run->env.checkpoint_signals ? (uint64_t)ps_signal_number(run->env.checkpoint_signals) : 0;
}

// In the middle of a training nothing ends by that: whoever has a folder may hang, and be followed by this worker.
static void checkpoint_keep_others_away(struct checkpointing *c, const struct wk_run *run)
{
    struct ps_error why;
    if (!run->folders || wk_folders_take(run->folders, run->env.job, &why) == PS_OK)
        return;
    if (!c->warned)
        ps_warn("%s", why.text);
    c->warned = true;
}

// A ps task that writes no shards is found before the first checkpoint: asked to remove those of no checkpoint, it says
// so. What others are about to write stays.
static enum ps_code checkpoint_try_shards(const struct wk_checkpoint_writer *w, struct ps_error *e)
{
    struct ps_error why;
    const enum ps_code code = w->prune_shards ? w->prune_shards(w->arg, "none", 0, NULL, 0, &why) : PS_OK;
    return code == PS_FAILED_PRECONDITION ? ps_fail(e, code, "sharded: %s", why.text) : PS_OK;
}

// Where a worker takes over without the folder, each checkpoint says that it is not written, and the training goes on.
static enum ps_code checkpoint_begin(void *state, struct wk_run *run, bool takes_over, struct ps_error *e)
{
    struct checkpointing *c = state;
    struct ps_error why = {.code = PS_OK};
    c->run = run;
    c->saved = ps_now();
    c->signals = checkpoint_signals(run);
    // Where another one is sharded, it alone knows which shards are being written.
    if (c->sharded || !ps_callbacks_shards(&run->env.job->callbacks))
        c->writer.prune_shards = run->strategy->home->prune_shards;
    c->writer.arg = run->state;
    if (ps_make_folder(c->writer.to.folder, &why) && !takes_over)
        return ps_fail(e, why.code, "%s", why.text);
    checkpoint_keep_others_away(c, run);
    wk_checkpoints_clean(&c->writer.to);
    return c->sharded ? checkpoint_try_shards(&c->writer, e) : PS_OK;
}

// ---- writing ------------------------------------------------------------------------------------------------------

// The last one that was begun is on disk. Another callback's may be newer.
static void checkpoint_note(const struct checkpointing *c, struct wk_run *run)
{
    char *path = wk_checkpoints_path(&c->writer.to, c->writer.step);
    const uint64_t written_ms = wk_checkpoints_written_ms(path);
    free(path);
    if (written_ms < run->saved_ms)
        return;
    run->saved = c->writer.step;
    run->saved_ms = written_ms;
}

// A disk that is full ends no training: the next checkpoint may fit.
static void checkpoint_wait(struct checkpointing *c, struct wk_run *run, bool goes_on)
{
    struct ps_error why = {.code = PS_OK};
    const bool wrote = c->pending, failed = wk_checkpoint_writer_wait(&c->writer, &why) != PS_OK;
    c->pending = false;
    if (failed)
        c->last.step = 0;
    if (failed && c->best_only)
        c->monitor.best = c->best_before;
    if (failed)
        ps_error_log("the checkpoint of step %" PRIu64 " is not written: %s%s", c->writer.step, why.text,
                     goes_on ? "; the training goes on" : "");
    else if (wrote)
        checkpoint_note(c, run);
    if (!c->number)
        return;
    char *path = wk_checkpoints_path(&c->writer.to, c->writer.step);
    run->strategy->group->answer(run->state, c->number, failed, failed ? why.text : path);
    c->number = 0;
    free(path);
}

// number: of this one, if people asked for it; else 0. The one before it is there, or has failed.
static enum ps_code checkpoint_save_now(struct checkpointing *c, struct wk_run *run, uint64_t number,
                                        struct ps_error *e)
{
    struct wk_checkpoint checkpoint;
    struct ps_shards_of shards = {0};
    checkpoint_keep_others_away(c, run);
    if (c->sharded)
        shards = wk_checkpoints_shards(&c->writer.to, run->position.step);
    const enum ps_code code = run->save(run, c->sharded ? &shards : NULL, &checkpoint, e);
    free((char *)shards.name);
    if (code)
        return code;
    wk_checkpoint_writer_begin(&c->writer, &checkpoint, run->position.step);
    c->pending = true;
    c->last = run->position;
    c->number = number;
    c->saved = ps_now();
    return PS_OK;
}

// By a signal, or by people, and then *number is what they call it. The best is not what they want.
static bool checkpoint_is_asked(struct checkpointing *c, const struct wk_run *run, uint64_t *number)
{
    const struct wk_group *group = run->strategy->group;
    const uint64_t asked = group->asked ? group->asked(run->state) : 0, signals = checkpoint_signals(run);
    const bool is = !c->best_only && (asked > c->asked || signals > c->signals);
    *number = is && asked > c->asked ? asked : 0;
    c->asked = asked > c->asked ? asked : c->asked;
    c->signals = signals;
    return is;
}

static bool checkpoint_keeps(const void *state)
{
    return !((const struct checkpointing *)state)->best_only;
}

// Those by time follow each other no faster than they can be written; the training does not wait for that.
static bool checkpoint_is_due(struct checkpointing *c, bool idle)
{
    const bool due = c->due || (c->every && idle && ps_now() - c->saved >= c->every);
    c->due = false;
    return due;
}

static enum ps_code checkpoint_step(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct checkpointing *c = state;
    const bool idle = wk_checkpoint_writer_is_done(&c->writer);
    uint64_t number;
    if (c->pending && idle)
        checkpoint_wait(c, m->run, true);
    c->due |= wk_moment_is_every(m, c->every_steps);
    if (m->in_period)  // its end is waited for
        return PS_OK;
    const bool is_asked = checkpoint_is_asked(c, m->run, &number), is_due = checkpoint_is_due(c, idle);
    if (!is_asked && !is_due)
        return PS_OK;
    checkpoint_wait(c, m->run, true);
    return checkpoint_save_now(c, m->run, number, e);
}

// Than what is on disk: one that is being written may fail.
static bool checkpoint_is_better(struct checkpointing *c, double value, struct wk_run *run)
{
    if (c->pending && wk_monitor_is_better(&c->monitor, value, c->best_before))
        checkpoint_wait(c, run, true);
    return wk_monitor_is_better(&c->monitor, value, c->monitor.best);
}

// All workers know the best figure until now, so that whoever takes over does not take the next one for the best.
static enum ps_code checkpoint_look(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct checkpointing *c = state;
    const double *value = c->best_only ? wk_monitor_value(&c->monitor, m->run) : NULL;
    (void)e;
    c->better = value && checkpoint_is_better(c, *value, m->run);
    if (!c->better)
        return PS_OK;
    c->best_before = c->monitor.best;
    c->monitor.best = m->cut ? c->monitor.best : *value;
    return PS_OK;
}

static enum ps_code checkpoint_epoch_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct checkpointing *c = state;
    if (c->every_steps || c->every || (c->best_only && !c->better) || !m->leads)
        return PS_OK;
    checkpoint_wait(c, m->run, true);
    return checkpoint_save_now(c, m->run, 0, e);
}

static enum ps_code checkpoint_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    (void)e;
    checkpoint_wait(state, m->run, false);
    return PS_OK;
}

// Is all on disk that there is? Ps tasks may have more of others than the position says, unless rounds wait for this
// worker.
static bool checkpoint_is_there(const struct checkpointing *c, const struct wk_run *run)
{
    const struct wk_position *last = &c->last, *now = &run->position;
    const struct wk_group *group = run->strategy->group;
    const bool waited_for = group->in_rounds && group->in_rounds(run->state) && !run->env.job->replicas_to_aggregate;
    const bool counted = !run->strategy->home->salvage || waited_for;
    return counted && last->step && last->step == now->step && last->epoch == now->epoch && last->first == now->first;
}

// Where the weights are not finite, it is not what the training ends with.
static enum ps_code checkpoint_stopped(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct checkpointing *c = state;
    struct ps_error why;
    checkpoint_wait(c, m->run, false);
    if (c->best_only || checkpoint_is_there(c, m->run))
        return PS_OK;
    if (checkpoint_save_now(c, m->run, 0, e))
        return e->code;
    c->pending = false;
    c->last.step = 0;  // told again, the weights are others
    const enum ps_code code = wk_checkpoint_writer_wait(&c->writer, &why);
    if (code == PS_INVALID_ARGUMENT)
        ps_error_log("the checkpoint of step %" PRIu64 " is not written: %s", c->writer.step, why.text);
    else if (code)
        return (*e = why).code;
    else
        checkpoint_note(c, m->run);
    return PS_OK;
}

// Weights that are not finite are no result. A backup is finite; but one in shards may not be.
static bool backup_is_wanted(const struct checkpointing *c, const struct wk_run *run)
{
    const bool is = !c->sharded && wk_nonfinite_weights(run);
    if (is)
        ps_warn("the backups in %s stay, as the final weights are not finite", c->writer.to.folder);
    return is;
}

static enum ps_code backup_written(void *state, struct wk_moment *m, struct ps_error *e)
{
    const struct checkpointing *c = state;
    const struct wk_checkpoint_writer *w = &c->writer;
    (void)e;
    if (!c->remove || backup_is_wanted(c, m->run))
        return PS_OK;
    if (wk_checkpoints_prune(&w->to, UINT64_MAX, 0) || c->sharded)
        wk_checkpoint_writer_prune_shards(w);
    return PS_OK;
}

static bool checkpoint_tell(const void *state, double *numbers)
{
    const struct checkpointing *c = state;
    numbers[0] = c->monitor.best;
    return c->best_only;
}

static void checkpoint_take(void *state, const double *numbers)
{
    struct checkpointing *c = state;
    c->monitor.best = numbers[0];
}

// What another callback writes says no figure is the best that may be on disk after it, or never.
static void checkpoint_save(void *state, json_t *to, struct wk_checkpoint *arrays, const char *prefix)
{
    struct checkpointing *c = state;
    (void)arrays;
    (void)prefix;
    if (!c->best_only)
        return;
    if (c->pending)
        checkpoint_wait(c, c->run, true);
    wk_monitor_save(&c->monitor, to);
}

// One that kept more than the best did not look how good they were.
static enum ps_code checkpoint_load(void *state, const json_t *from, const struct wk_checkpoint *arrays,
                                    const char *prefix, struct ps_error *e)
{
    struct checkpointing *c = state;
    bool ignored;
    if (!c->best_only || !json_object_get(from, "best"))
        return PS_OK;
    return wk_monitor_load(&c->monitor, from, arrays, prefix, &ignored, e);
}

const struct wk_callback_class wk_checkpoint_callback = {
    .name = "checkpoint",
    .last = true,
    .hears_epochs = true,
    .look = checkpoint_look,
    .tell = checkpoint_tell,
    .take = checkpoint_take,
    .keeps = checkpoint_keeps,
    .open = checkpoint_open,
    .close = checkpoint_close,
    .begin = checkpoint_begin,
    .step = checkpoint_step,
    .epoch_end = checkpoint_epoch_end,
    .end = checkpoint_end,
    .stopped = checkpoint_stopped,
    .save = checkpoint_save,
    .load = checkpoint_load,
};

const struct wk_callback_class wk_backup = {
    .name = "backup",
    .last = true,
    .keeps = checkpoint_keeps,
    .open = backup_open,
    .close = checkpoint_close,
    .begin = checkpoint_begin,
    .step = checkpoint_step,
    .epoch_end = checkpoint_epoch_end,
    .end = checkpoint_end,
    .written = backup_written,
    .stopped = checkpoint_stopped,
};
