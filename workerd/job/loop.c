// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/loop.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "workerd/job/callback.h"
#include "workerd/job/epoch.h"
#include "workerd/job/evaluate.h"
#include "workerd/job/metrics.h"
#include "workerd/job/progress.h"
#include "workerd/job/resume.h"
#include "workerd/job/search.h"
#include "workerd/job/step.h"
#include "workerd/job/summary.h"
#include "workerd/strategy/losses.h"

struct loop {
    struct wk_run *run;
    struct wk_stepper stepper;
    struct wk_progress progress;
    uint64_t trained;           // steps of this worker
    uint64_t timed;             // ns: run->train_seconds counts up to then
    uint64_t step;              // the next one's number, as the strategy counts
    bool in_period;             // which is in the middle of a period of local_steps
    double examples, seconds;   // that there were when this process began
    double loss;                // the mean of the last batch that was not empty,
    bool has_loss;              // if there was one
    struct wk_position before;  // the last step that has moved it,
    bool in_epoch;              // which is of the epoch at hand, so that it can be taken back,
    bool undone;                // and has been: before is the position after it
    uint64_t asked;             // so many checkpoints that people asked for were looked at
    uint64_t ended, saved;      // epochs, and run->saved, as others were told last
    bool too_late;              // it came to a job that had ended, nearly
    bool epoch_open;            // its figures are in nobody's yet
    bool stop;                  // a callback wants the training to end,
    bool stop_later;            // at the end of the epoch
    bool written;               // the results are
};

static double seconds_since(uint64_t t)
{
    return (double)(ps_now() - t) / (double)PS_SECOND;
}

// ---- one step -----------------------------------------------------------------------------------------------------

// Steps that this worker was not there for are empty.
static void loop_remember_step(struct loop *l, uint64_t step, double loss, double examples)
{
    struct wk_history *h = &l->run->history;
    wk_losses_extend(h, step + 1);
    assert(step >= h->first);
    h->loss[step - h->first] = loss;
    h->examples[step - h->first] = examples;
    h->total_examples += examples;
}

// Of an epoch all time counts, what is waited for between two steps too. Returns what has been added, in ns.
static uint64_t loop_count_time(struct loop *l)
{
    const uint64_t now = ps_now(), ns = now - l->timed;
    l->run->train_seconds += (double)ns / (double)PS_SECOND;
    l->timed = now;
    return ns;
}

// ---- how far it is -------------------------------------------------------------------------------------------------

// This worker's steps for so many examples, for the progress bar; async workers share them by who comes first.
static uint64_t steps_for(const struct wk_env *env, uint64_t examples)
{
    uint64_t per_step = (uint64_t)env->job->batch_size * (env->replicas ? env->replicas : 1);
    return (examples + per_step - 1) / per_step;
}

// No more than the job's steps.
static uint64_t loop_epochs(const struct loop *l)
{
    const struct ps_job *job = l->run->env.job;
    const uint64_t per_epoch = steps_for(&l->run->env, l->run->env.examples);
    const uint64_t most = job->steps && per_epoch ? (job->steps + per_epoch - 1) / per_epoch : job->epochs;
    return most < job->epochs ? most : job->epochs;
}

// Of all workers the chief's word counts; whoever is it now. figures: of the last epoch; NULL: they are not known.
static void loop_report_progress(struct loop *l, uint64_t ended, const struct wk_figures *figures)
{
    const struct wk_run *run = l->run;
    const struct wk_group *group = run->strategy->group;
    struct ps_progress p = {.epochs = loop_epochs(l),
                            .ended = ended,
                            .checkpoints =
                                ps_job_goes_on(run->env.job, true) ? PS_CHECKPOINTS_SOME : PS_CHECKPOINTS_NONE,
                            .checkpoint = run->saved,
                            .checkpoint_ms = run->saved_ms};
    l->ended = ended;
    l->saved = run->saved;
    if (!group->report_progress)
        return;
    for (size_t i = 0; figures && i < figures->n; i++)
        ps_progress_add(&p, figures->v[i].name, figures->v[i].value);
    group->report_progress(run->state, &p);
}

// ---- callbacks ----------------------------------------------------------------------------------------------------

static enum ps_code loop_tell(struct loop *l, enum wk_event event, struct wk_moment *m, struct ps_error *e)
{
    struct wk_run *run = l->run;
    m->run = run;
    enum ps_code code = wk_callbacks_call(run->callbacks, event, m, e);
    run->evaluated &= !m->changed;
    if (run->saved != l->saved)
        loop_report_progress(l, l->ended, NULL);
    return code;
}

// A job without a callback that writes checkpoints when it is asked to says so.
static void loop_answer(struct loop *l)
{
    const struct wk_group *group = l->run->strategy->group;
    const uint64_t asked = group->asked ? group->asked(l->run->state) : 0;
    const bool is_new = asked > l->asked;
    l->asked = is_new ? asked : l->asked;
    if (is_new && !wk_callbacks_keep(l->run->callbacks))
        group->answer(l->run->state, asked, true,
                      "the job has no callback checkpoint or backup, or one with save_best_only alone");
}

// In the middle of an epoch nobody who takes part in rounds can leave the others alone.
static enum ps_code loop_tell_step(struct loop *l, const struct wk_work *work, const struct nn_result *result,
                                   struct ps_error *e)
{
    const struct wk_group *group = l->run->strategy->group;
    const bool in_rounds = group->in_rounds && group->in_rounds(l->run->state);
    struct wk_moment m = {.epoch = work->epoch,
                          .result = *result,
                          .step = work->step,
                          .rows = work->rows,
                          .in_period = work->in_period,
                          .leads = group->is_chief(l->run->state)};
    enum ps_code code = loop_tell(l, WK_STEP, &m, e);
    if (m.leads)
        loop_answer(l);
    *(in_rounds ? &l->stop_later : &l->stop) |= m.stop;
    return code;
}

// Those of the epoch so far.
static void loop_make_figures(struct loop *l)
{
    struct wk_run *run = l->run;
    run->figures.n = 0;
    wk_meter_figures(&run->meter, "", &run->figures);
}

// Of this worker, since it began: what a checkpoint brings was measured by others.
static double loop_speed(const struct loop *l)
{
    const struct wk_run *run = l->run;
    return (run->history.total_examples - l->examples) / (run->train_seconds - l->seconds);
}

// An empty batch has no loss: that of the one before stands. Who has trained none has nothing to tell.
static void loop_report_step(struct loop *l, const struct wk_work *work, const struct nn_result *result)
{
    const struct wk_group *group = l->run->strategy->group;
    if (work->rows > 0) {
        l->loss = result->loss / work->rows;
        l->has_loss = true;
    }
    if (l->has_loss && group->report)
        group->report(l->run->state, l->step, loop_speed(l), l->loss);
}

// In the middle of a period of local_steps the position is that of its beginning, and what may have to be taken back is
// the period before it.
static void loop_remember_position(struct loop *l, const struct wk_work *work)
{
    const struct wk_position *p = &l->run->position;
    if (l->in_epoch && !work->ends_period && p->first == work->end)
        return;
    l->before = *p;
    l->in_epoch = true;
}

static enum ps_code loop_train(struct loop *l, const struct wk_work *work, struct ps_error *e)
{
    struct wk_run *run = l->run;
    struct nn_result result = {0};
    l->step = run->position.step = work->step;
    bool happened;
    if (wk_stepper_train(&l->stepper, work, &result, &happened, e))
        return e->code;
    if (!happened)
        return PS_OK;
    l->step = work->step + 1 + work->skipped;
    l->in_period = work->in_period;
    if (l->trained++ == 0)
        run->seconds_to_first_step = seconds_since(run->started);
    const uint64_t ns = loop_count_time(l);
    loop_remember_step(l, work->step, result.loss, work->rows);
    if (work->skipped)
        loop_remember_step(l, l->step - 1, 0, 0);
    wk_meter_add(&run->meter, &result);
    loop_remember_position(l, work);
    run->position = (struct wk_position){work->epoch, work->end, l->step};
    run->evaluated = false;
    if (wk_progress_step(&l->progress)) {
        loop_make_figures(l);
        wk_progress_show(&l->progress, &run->figures);
    }
    wk_metrics_step(run->metrics, &(struct wk_metrics_step){run->env.device, l->step, ns, work->rows, result.loss});
    loop_report_step(l, work, &result);
    return loop_tell_step(l, work, &result, e);
}

// In rounds of local_steps all end with the period in which they come to the limit: of what they have of a part of one
// no position tells.
static bool is_enough(const struct loop *l)
{
    uint64_t limit = l->run->env.job->steps;
    return l->stop || (limit && l->step >= limit && !l->in_period);
}

// ---- epochs -------------------------------------------------------------------------------------------------------

static enum ps_code train_epoch(struct loop *l, uint64_t epoch, struct ps_error *e)
{
    const struct wk_run *run = l->run;
    struct wk_work work;
    bool some = true;
    wk_stepper_begin_epoch(&l->stepper);
    l->timed = ps_now();
    while (some && !is_enough(l)) {
        if (wk_stopped(run, e))
            return e->code;
        if (wk_stepper_next(&l->stepper, epoch, &work, &some, e) || (some && loop_train(l, &work, e)))
            return ps_error_prefix(e, "step %" PRIu64, l->step);
    }
    wk_metrics_time(run->metrics, run->env.device, loop_count_time(l));
    return PS_OK;
}

// The chief shows its progress; where it has died or left, the next one does.
static bool is_shown(const struct loop *l)
{
    return !l->run->quiet && l->run->strategy->group->is_chief(l->run->state);
}

// What all have measured, shown and told. A worker that came when the others were through with it has nothing to tell.
static enum ps_code loop_close_epoch(struct loop *l, struct wk_epoch *p, struct ps_error *e)
{
    struct wk_run *run = l->run;
    struct wk_moment m = {.epoch = p->epoch, .leads = wk_epoch_leads(run, p)};
    m.cut = l->epoch_open && !l->stepper.epoch_over && run->position.first != run->env.examples;
    if (l->epoch_open && !m.cut) {
        run->position = (struct wk_position){p->epoch + 1, 0, l->step};
        wk_meter_reset(&run->meter);
    }
    l->epoch_open = l->in_epoch = false;
    if (!p->follows && loop_tell(l, WK_EPOCH_ENDS, &m, e))
        return e->code;
    p->stop_if_leads = m.stop;
    p->why = m.why;
    wk_callbacks_tell(run->callbacks, p->found);
    l->progress.epoch = p->epoch;
    l->progress.quiet = run->quiet || !m.leads;
    wk_progress_epoch_end(&l->progress, &run->figures);
    if (run->env.device == 0 && !p->follows)
        wk_metrics_end_epoch(run->metrics, &run->figures);
    if (!p->follows)
        loop_report_progress(l, p->epoch + 1, &run->figures);
    return PS_OK;
}

// Comes to the end of an epoch, with all others. final: it was the last one of all.
static enum ps_code loop_end_epoch(struct loop *l, uint64_t *epoch, bool finished, bool *final, struct ps_error *e)
{
    struct wk_run *run = l->run;
    struct wk_epoch p = {.epoch = *epoch,
                         .meter = l->epoch_open ? &run->meter : NULL,
                         .finished = finished,
                         .stop = l->stop || l->stop_later,
                         .steers = wk_callbacks_steer(run->callbacks),
                         .late = run->late && l->trained == 0};
    if (wk_epoch_look(run, &p, e) == PS_OK && loop_close_epoch(l, &p, e) == PS_OK &&
        wk_epoch_decide(run, &p, e) == PS_OK)
        wk_callbacks_take(run->callbacks, p.found);
    if (p.stop_if_leads && p.why && wk_epoch_leads(run, &p))
        ps_info("%s", p.why);
    l->stop |= p.stop;
    *final = p.final || l->stop;
    *epoch = p.epoch;
    wk_epoch_free(&p);
    return e->code;
}

static void loop_begin_epoch(struct loop *l, uint64_t epoch)
{
    struct wk_run *run = l->run;
    if (run->position.epoch != epoch || run->position.first == 0) {
        run->position = (struct wk_position){epoch, 0, l->step};
        wk_meter_reset(&run->meter);
    }
    l->epoch_open = true;
    if (run->env.device == 0)
        wk_metrics_begin_epoch(run->metrics, epoch);
    l->progress.quiet = !is_shown(l);
    wk_progress_epoch_begin(&l->progress, epoch, steps_for(&run->env, run->position.first));
}

// A worker that has come late may learn only when it asks that the others are epochs ahead: a job that goes on from a
// checkpoint begins with any.
static uint64_t loop_find_others(const struct loop *l, uint64_t epoch)
{
    bool late;
    if (!l->run->late || l->trained)
        return epoch;
    const uint64_t there = l->run->strategy->sharder->first_epoch(l->run->state, &late);
    return there > epoch ? there : epoch;
}

static enum ps_code train_all(struct loop *l, uint64_t epoch, struct ps_error *e)
{
    const struct ps_job *job = l->run->env.job;
    bool final = false;
    // A checkpoint's figures may be those of a part of an epoch.
    loop_report_progress(l, epoch, epoch > 0 && l->run->position.first == 0 ? &l->run->figures : NULL);
    for (; epoch < job->epochs && !is_enough(l) && !l->stepper.drained; epoch++) {
        const uint64_t start = ps_track_now(l->run->env.compute), began = epoch;
        loop_begin_epoch(l, epoch);
        if (train_epoch(l, epoch, e))
            return e->code;
        const uint64_t there = loop_find_others(l, epoch);
        if (there > epoch) {
            epoch = there - 1;
            continue;
        }
        const bool finished = epoch + 1 == job->epochs || is_enough(l);
        if (!l->stepper.drained && loop_end_epoch(l, &epoch, finished, &final, e))
            return e->code;
        ps_track_end(l->run->env.compute, &(struct ps_span){PS_SPAN_EPOCH, "epoch", start, "epoch", began + 1});
    }
    // The others may be over the end already, where they do not wait for it any more.
    l->too_late = l->run->late && l->trained == 0;
    // Those who have steps left train further epochs.
    while (l->trained && !l->stepper.drained && !final)
        if (loop_end_epoch(l, &epoch, true, &final, e))
            return e->code;
    return PS_OK;
}

static bool loop_keeps_output(const struct ps_job *job)
{
    return strcmp(job->output, "/dev/null") != 0;
}

// Puts into an error that is none of the weights where these are.
static enum ps_code loop_say_where(struct wk_run *run, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    struct ps_error why = *e;
    run->all_saved = run->saved && run->saved == run->position.step;
    if (!loop_keeps_output(job))
        return ps_fail(e, why.code, "%.400s; no output is written", why.text);
    return ps_fail(e, why.code, "%.200s; the weights are in %.220s", why.text, job->output);
}

static enum ps_code loop_save_results(const struct wk_run *run, struct ps_error *e)
{
    return wk_save_weights(run, e) || (run->summary && wk_save_summary(run, e)) ? e->code : PS_OK;
}

// What is left to be known of the weights that are written: what callbacks make of them at the end, and the test split
// with those where they are not the ones that all have evaluated.
static enum ps_code loop_look_at_results(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    struct wk_moment m = {.epoch = l->progress.epoch, .leads = true};
    run->evaluated &= !run->history.averaged;
    if (!run->evaluated && run->strategy->home->refresh(run->state, e))
        return e->code;
    if (loop_tell(l, WK_END, &m, e))
        return e->code;
    return run->evaluated ? PS_OK : wk_evaluate(run, e);
}

static enum ps_code loop_write_results(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    enum ps_code code = loop_look_at_results(l, e);
    // A signal in the evaluation: the weights are the final ones, and nothing is known of how good they are.
    if (code && code != PS_CANCELLED)
        return code;
    struct ps_error why = {.code = PS_OK};
    if (loop_save_results(run, &why)) {
        *e = why;
        return why.code;
    }
    l->written = true;
    if (code)
        return loop_say_where(run, e);
    if (!run->quiet && loop_keeps_output(run->env.job))
        printf("Weights written to %s\n", run->env.job->output);
    return PS_OK;
}

static enum ps_code loop_finish(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    enum wk_writer writer = WK_ANOTHER;
    bool written = false;
    const uint64_t start = wk_wait_begin(&run->env);
    const enum ps_code code = run->strategy->group->finish(run->state, &run->history, e);
    wk_wait_end(&run->env, WK_WAIT_WORKERS, "all workers", start);
    if (code)
        return ps_error_prefix(e, "after the last step");
    while (writer != WK_NOBODY) {
        if (run->strategy->group->elect(run->state, written, &writer, e))
            return ps_error_prefix(e, "while the results are written");
        if (writer == WK_SELF && loop_write_results(l, e))
            return e->code;
        written |= writer == WK_SELF;
    }
    struct wk_moment m = {.epoch = l->progress.epoch, .leads = true};
    return written ? loop_tell(l, WK_WRITTEN, &m, e) : PS_OK;
}

// ---- a signal -----------------------------------------------------------------------------------------------------

// Is there something to keep? A replica that has all variables has them, too, when another one has ended.
static bool loop_keeps_weights(const struct wk_run *run, enum ps_code code)
{
    const bool others_ended = code == PS_ABORTED;  // of the same signal, perhaps
    return ps_signal_number(run->env.stop) ? code == PS_CANCELLED || others_ended : others_ended && run->env.collective;
}

// The last step is the next one that is trained; or, where it has been that, it is not.
static void loop_take_back(struct loop *l)
{
    struct wk_run *run = l->run;
    const struct wk_position last = run->position;
    if (!l->in_epoch)
        return;
    run->position = l->before;
    run->history.steps = l->before.step;
    wk_meter_take_back(&run->meter);
    l->before = last;
}

// Others have counted more steps than this worker, which are in the weights that it writes.
static void loop_count_on(struct loop *l)
{
    struct wk_run *run = l->run;
    const struct wk_sharder *sharder = run->strategy->sharder;
    const uint64_t step = sharder->count_on ? sharder->count_on(run->state) : 0;
    if (step <= run->position.step)
        return;
    loop_remember_step(l, step - 1, 0, 0);
    run->position.step = step;
}

// The weights as they are now, and the position that they are of.
static enum ps_code loop_salvage(struct loop *l, struct ps_error *e)
{
    const struct wk_home *home = l->run->strategy->home;
    bool undone = false;
    if (home->salvage && home->salvage(l->run->state, &undone, e))
        return e->code;
    if (undone != l->undone)
        loop_take_back(l);
    l->undone = undone;
    loop_count_on(l);
    return PS_OK;
}

// A step that others were in may have got into what the home keeps since the weights were read: they are read again,
// and nothing more can follow.
static enum ps_code loop_tell_stopped(struct loop *l, struct ps_error *e)
{
    const struct wk_run *run = l->run;
    struct wk_moment m = {.epoch = run->position.epoch, .leads = true};
    struct ps_error why = {.code = PS_OK};
    const bool may_change = run->strategy->home->salvage && !run->env.collective;
    if (loop_tell(l, WK_STOPPED, &m, e) != PS_ABORTED || !may_change || loop_salvage(l, &why))
        return e->code;
    e->code = PS_OK;
    return loop_tell(l, WK_STOPPED, &m, e);
}

// Nothing is left to this worker. Of the same signal others may have ended before it.
static enum ps_code loop_leave_to_others(const struct wk_run *run, struct ps_error *e)
{
    const struct ps_error why = *e;
    const int number = ps_signal_number(run->env.stop);
    if (number && why.code == PS_ABORTED)
        ps_fail(e, PS_CANCELLED, "stopped by %s: %s", ps_signal_name(number), why.text);
    return e->code;
}

// After the step in which a signal came, or another replica ended: what there is stays. The checkpoint is first, as the
// weights are those of its position.
static enum ps_code loop_leave(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    struct ps_error why = {.code = PS_OK}, kept = {.code = PS_OK};
    if (l->written || run->position.step == 0 || loop_salvage(l, &why) == PS_NOT_FOUND)
        return loop_leave_to_others(run, e);
    if (why.code == PS_OK)
        loop_tell_stopped(l, &kept);
    if (why.code || wk_save_weights(run, &why))
        return ps_fail(e, why.code, "%s, and the weights are lost: %s",
                       ps_signal_number(run->env.stop) ? "stopped by a signal" : "another replica has ended", why.text);
    if (kept.code)
        *e = kept;  // without a checkpoint that has all of it no training goes on from here
    else if (ps_signal_number(run->env.stop))
        e->code = PS_CANCELLED;  // whatever else has ended by then
    return loop_say_where(run, e);
}

static enum ps_code loop_run(struct loop *l, struct ps_error *e)
{
    struct wk_run *run = l->run;
    enum ps_code code = PS_OK;
    const uint64_t epoch = run->strategy->sharder->first_epoch(run->state, &run->late);
    if (run->strategy->group->is_chief(run->state))
        code = wk_callbacks_begin(run->callbacks, run, run->late, e);
    if (code == PS_OK)
        code = train_all(l, run->resume ? run->position.epoch : epoch, e);
    if (code == PS_OK && !l->stepper.drained && !l->too_late)
        code = loop_finish(l, e);
    return loop_keeps_weights(run, code) ? loop_leave(l, e) : code;
}

// A checkpoint that has all of the job.
static void loop_say_nothing_is_left(const struct loop *l)
{
    const struct wk_run *run = l->run;
    const struct ps_job *job = run->env.job;
    if (run->resume && run->env.replica_rank == 0 && (run->position.epoch >= job->epochs || is_enough(l)))
        ps_info("%s %s: none is left to train", run->resume,
                l->stop ? "is of a training that was stopped early" : "has all steps of the job");
}

// run->resume is lost; or the training goes on from it, and nothing has to be remembered of those before.
static void loop_note_lost(const struct wk_run *run, enum ps_code code, const struct ps_error *e)
{
    if (code == PS_DATA_LOSS)
        wk_lost_add(run->lost, run->resume, run->env.checkpoint, e);
    else if (code == PS_OK)
        wk_lost_free(run->lost);
}

// A worker that comes to others who train has what they have; how they draw it knows from their checkpoint.
static enum ps_code loop_resume(struct wk_run *run, struct ps_error *e)
{
    run->strategy->sharder->first_epoch(run->state, &run->late);
    run->seed = run->strategy->sharder->seed(run->state);
    if (run->late) {
        wk_resume_take_seed(run);
        run->resume = NULL;
    }
    const enum ps_code code = run->resume ? wk_resume_load(run, e) : PS_OK;
    if (run->lost)
        loop_note_lost(run, code, e);
    wk_resume_forget(run);
    return code;
}

enum ps_code wk_loop(struct wk_run *run, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    struct loop l = {.run = run};
    run->save = wk_resume_save;
    if (wk_callbacks_open(run, &run->callbacks, e) || loop_resume(run, e) ||
        wk_stepper_open(&l.stepper, run, run->seed, e))
        return e->code;
    l.stop = run->resume && wk_callbacks_are_over(run->callbacks);
    l.step = run->position.step;
    l.examples = run->history.total_examples;
    l.seconds = run->train_seconds;
    wk_progress_init(&l.progress, run->quiet, job->epochs, steps_for(&run->env, run->env.examples));
    loop_say_nothing_is_left(&l);
    enum ps_code code = loop_run(&l, e);
    run->drained = l.stepper.drained || l.too_late;
    wk_callbacks_close(run->callbacks);  // what they still write is there before this worker leaves
    run->callbacks = NULL;
    wk_progress_fini(&l.progress);
    wk_stepper_close(&l.stepper);
    return code;
}

void wk_run_free(struct wk_run *run)
{
    wk_callbacks_close(run->callbacks);
    wk_meter_reset(&run->meter);
    wk_figures_free(&run->figures);
    json_decref(run->matrices);
    free(run->configuration);
    wk_losses_free(&run->history);
}
