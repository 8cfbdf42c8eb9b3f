// SPDX-License-Identifier: Apache-2.0
#include "workerd/attempt.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/file/output.h"
#include "common/job/job.h"
#include "workerd/job/folders.h"
#include "workerd/job/metrics.h"
#include "workerd/job/objectives.h"
#include "workerd/job/place.h"
#include "workerd/job/profile.h"
#include "workerd/job/replicas.h"
#include "workerd/job/resume.h"
#include "workerd/job/search.h"
#include "workerd/job/timeline.h"
#include "workerd/weights/weights.h"

struct attempt {
    struct wk_options *options;
    uint64_t not_before;
    volatile sig_atomic_t *begun;
    struct wk_run *run;
    struct wk_ended *ended;

    struct ps_job *job;          // run->env.job, which others only read
    struct wk_found checkpoint;  // from which it goes on
    struct nn_model *model;
    bool shown;  // this worker speaks of itself; rank 0 shows its progress
};

// ---- what the training stands on, in order ------------------------------------------------------------------------

// Sets the log's name, and whether progress is shown.
static void attempt_take_place(struct wk_run *run, const struct wk_options *o)
{
    char name[32];
    snprintf(name, sizeof name, "workerd[%" PRIu32 "]", run->env.rank);
    ps_log_init(name, PS_LOG_INFO);
    run->quiet = o->quiet;
}

static enum ps_code attempt_open_data(struct wk_run *run, const struct ps_loss *loss, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    if (wk_data_open(&job->data, run->env.model, job->seed, &run->data, e) ||
        wk_data_bind(run->data, run->env.model, loss, e))
        return e->code;
    wk_data_stop(run->data, run->env.stop);
    run->env.examples = wk_data_train(run->data)->examples;
    run->env.test_examples = wk_data_test(run->data)->examples;
    run->env.numbering = wk_data_numbering(run->data);
    return PS_OK;
}

// The model and the data.
static enum ps_code attempt_build(struct attempt *a, struct ps_error *e)
{
    struct wk_run *run = a->run;
    struct wk_objectives o;
    if (nn_model_load(a->job->model, &a->model, e) || wk_objectives_bind(&o, a->job, a->model, e))
        return e->code;
    run->env.model = a->model;
    return attempt_open_data(run, o.loss, e);
}

// Those that are lost are set aside at once: a worker that dies now is to find the same one when it is there again.
// Where nothing is left, they all stay as they were: what they lack may be had another time, as with a disk that is not
// mounted.
static enum ps_code attempt_search(struct wk_run *run, const struct ps_job *job, const struct wk_options *o,
                                   struct wk_found *found, struct ps_error *e)
{
    enum ps_code code = wk_search_newest(job, !o->resume, run->lost, found, e);
    if (wk_search_passes_over(code) && wk_lost_put_back(run->lost)) {
        wk_found_free(found);
        code = wk_search_newest(job, !o->resume, run->lost, found, e);
    }
    if (found->path)
        wk_lost_set_aside(run->lost, found->path);
    return code;
}

// Where the training goes on: with --resume the newest checkpoint, without it a backup's.
static enum ps_code attempt_find_checkpoint(struct attempt *a, struct ps_error *e)
{
    struct wk_run *run = a->run;
    const struct ps_job *job = a->job;
    const struct wk_options *o = a->options;
    struct wk_found *found = &a->checkpoint;
    size_t folders;
    if (o->profile)
        return PS_OK;  // it trains from the beginning
    if (attempt_search(run, job, o, found, e))
        return e->code;
    run->resume = found->path;
    run->resume_read = found->path ? &found->read : NULL;
    if (o->resume && ps_job_check_resume(job, o->job, e))
        return e->code;
    run->env.checkpoint = found->words;
    if (found->path)
        ps_info("goes on from %s", found->path);
    else if (ps_job_goes_on(job, o->resume))
        ps_info("there is no %s of job '%s' in %s%s yet: begins anew", o->resume ? "checkpoint" : "backup", job->name,
                wk_search_folder(job, !o->resume, &folders),
                folders > 1 ? ", nor in the other callbacks' folders," : "");
    return PS_OK;
}

// What trainings that were killed while they wrote their results have left.
static void attempt_clean(const struct wk_run *run)
{
    ps_output_clean(run->env.job->output);
    if (run->summary)
        ps_output_clean(run->summary);
}

static enum ps_code attempt_prepare(struct attempt *a, struct ps_error *e)
{
    // Rank 0 is who writes the results, unless it dies.
    struct wk_run *run = a->run;
    const struct ps_job *job = a->job;
    if (run->env.rank == 0 &&
        (ps_job_check_files(job, run->summary, run->timeline->path, e) || wk_weights_check_output(job->output, e) ||
         (run->folders && wk_folders_take(run->folders, job, e))))
        return e->code;
    if (run->env.rank == 0)
        attempt_clean(run);
    if (run->env.rank == 0 && run->folders && (a->options->resume || !a->checkpoint.path))
        wk_search_warn(job, a->checkpoint.path ? &a->checkpoint : NULL);
    if (run->timeline->path && ps_output_check(run->timeline->path, e))
        return e->code;
    if (attempt_build(a, e) || wk_timeline_open(run, e))
        return e->code;
    ps_signal_set(a->begun, 1);
    return PS_OK;
}

// By the number of replicas, which stays that of the start.
static enum ps_code attempt_scale_rate(const struct wk_run *run, struct ps_job *job, struct ps_error *e)
{
    const uint32_t replicas = run->env.workers * wk_replicas_of_worker(run);
    char text[160];
    if (job->scale_rate == PS_SCALE_NONE)
        return PS_OK;
    if (ps_job_scale_rate(job, replicas, run->env.examples, e))
        return e->code;
    ps_job_scale_text(job, replicas, text, sizeof text);
    if (!run->quiet && run->env.rank == 0)
        ps_info("%s", text);
    return PS_OK;
}

// Do replicas train no batch of an epoch but as part of a step of all?
static bool attempt_is_together(const struct ps_job *job)
{
    return job->strategy != PS_STRATEGY_LOCAL_STEPS &&
           (job->strategy != PS_STRATEGY_PARAMETER_SERVER || job->update == PS_SYNC);
}

// The optimizer takes no more gradients in the whole training. Where each worker trains alone, one may train all.
static uint64_t attempt_most_steps(const struct wk_run *run, uint32_t replicas)
{
    const struct ps_job *job = run->env.job;
    const bool together = attempt_is_together(job);
    const uint64_t per_step = together ? ps_job_examples_per_step(job, replicas) : (uint64_t)job->batch_size;
    const uint64_t steps = job->epochs * ((run->env.examples + per_step - 1) / per_step);
    const uint64_t each = together ? 1 : replicas;  // counts its own
    return job->steps && job->steps < steps / each ? job->steps * each : steps;
}

// As Keras does, it trains them; who wrote the one or the other may have meant something else.
static void attempt_look_at_batch(const struct wk_run *run)
{
    const struct ps_job *job = run->env.job;
    const uint64_t batch = (uint64_t)job->batch_size, examples = run->env.examples;
    const uint32_t replicas = run->env.workers * wk_replicas_of_worker(run);
    const uint64_t steps = attempt_most_steps(run, replicas);
    const double together = job->hypers[PS_HYPER_ACCUMULATION_STEPS].value;
    if (run->env.rank != 0)
        return;
    if (batch > examples)
        ps_warn("batch_size is %" PRIu64 ", but there are %" PRIu64 " examples to train: an epoch is one step", batch,
                examples);
    if (attempt_is_together(job) && (replicas - 1) * batch >= examples)
        ps_warn("%" PRIu64 " examples fill %" PRIu64 " of %" PRIu32 " replicas' batches of %" PRIu64
                ": the others train nothing",
                examples, (examples + batch - 1) / batch, replicas, batch);
    if (together > (double)steps)
        ps_warn("gradient_accumulation_steps is %g, but the training has at most %" PRIu64
                " step%s: the optimizer takes none",
                together, steps, steps == 1 ? "" : "s");
}

// Which batch normalizations are by what all replicas have: none, where these do not take their steps together.
static void attempt_synchronize(const struct wk_run *run, struct nn_model *model)
{
    const uint32_t replicas = run->env.workers * wk_replicas_of_worker(run);
    const char *layer = nn_model_synchronized(model);
    const bool together = run->strategy->home->sum && replicas > 1;
    nn_model_synchronize(model, !together                      ? NN_SYNCHRONIZE_NONE
                                : run->env.job->sync_batchnorm ? NN_SYNCHRONIZE_ALL
                                                               : NN_SYNCHRONIZE_MARKED);
    if (layer && !together && replicas > 1 && run->env.rank == 0)
        ps_warn("layer \"%s\" is synchronized: strategy %s takes no steps together, so each worker normalizes by its "
                "own batch",
                layer, ps_job_strategies[run->env.job->strategy]);
}

// ---- the training -------------------------------------------------------------------------------------------------

// Others come to the same end within a moment, and may have heard a signal that comes here, too. Returns the code of
// what was done meanwhile, or that of a signal.
static enum ps_code attempt_await_others(const struct attempt *a, enum ps_code code, struct ps_error *e)
{
    const uint64_t until = a->not_before;
    const volatile sig_atomic_t *stop = a->run->env.stop;
    const uint64_t now = ps_now(), left = now < until ? until - now : 0;
    if (left && !ps_signal_number(stop))
        ps_sleep(left);
    if (until && ps_signal_number(stop))
        return ps_fail(e, PS_CANCELLED, "stopped by %s", ps_signal_name(ps_signal_number(stop)));
    return code;
}

static enum ps_code attempt_made(void *arg, struct ps_error *e)
{
    return attempt_await_others(arg, PS_OK, e);
}

static void attempt_opened(void *arg)
{
    struct attempt *a = arg;
    const struct wk_env *env = &a->run->env;
    if (a->options->ready_fd >= 0) {
        dprintf((int)a->options->ready_fd, "READY\n");
        close((int)a->options->ready_fd);
        a->options->ready_fd = -1;
    }
    a->ended->opened = true;
    wk_metrics_trains(a->run->metrics);
    a->shown = !a->options->quiet && env->rank != 0;
    if (a->shown)
        ps_info("joined job '%s' as worker %" PRIu32 " of %" PRIu32, a->job->name, env->rank, env->workers);
}

static enum ps_code attempt_work(struct wk_run *run, void *arg, struct ps_error *e)
{
    const struct attempt *a = arg;
    return a->options->profile ? wk_profile(run, a->options->look.json, e) : wk_loop(run, e);
}

static enum ps_code attempt_train(struct attempt *a, const struct wk_place *place, struct ps_error *e)
{
    const struct wk_options *o = a->options;
    struct wk_run *run = a->run;
    struct ps_job *job = a->job;
    const struct wk_replicas_options options = {
        .peers = {.job = job->name,
                  .rank = place->rank,
                  .addresses = (const char *const *)place->cluster.worker,
                  .workers = place->workers,
                  .min_workers = run->env.min_workers,
                  .shares_memory = job->communication != PS_COMMUNICATION_RING,
                  .tls = place->tls,
                  .munge = place->munge,
                  .insecure = o->insecure,
                  .timeout = (uint64_t)job->timeout * PS_SECOND,
                  .patience = (uint64_t)job->stall_seconds * PS_SECOND,
                  .stop = run->env.stop},
        .made = attempt_made,
        .opened = attempt_opened,
        .work = attempt_work,
        .arg = a,
    };
    if (o->profile && run->strategy->replicates && (place->workers > 1 || job->devices.n > 1))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "--profile is of one replica where strategy %s has several: expected one worker and one device",
                       ps_job_strategies[job->strategy]);
    attempt_take_place(run, o);
    wk_metrics_begin(run->metrics, job->name, ps_job_strategies[job->strategy], place->rank);
    if (place->tls)
        signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets as to files
    if (o->timeline && !run->timeline->path)
        run->timeline->path = wk_timeline_path(o->timeline, run->env.rank);
    if (attempt_prepare(a, e) || attempt_scale_rate(run, job, e))
        return e->code;
    attempt_look_at_batch(run);
    attempt_synchronize(run, a->model);
    if (wk_replicas_train(run, &options, e))
        return e->code;
    if (run->drained)
        ps_info("leaves: it was asked to, or nothing was left; the others train the rest");
    else if (a->shown)
        ps_info("leaves job '%s': it is done", job->name);
    return PS_OK;
}

// Finds its place in the cluster, and trains there.
static enum ps_code attempt_take_part(struct attempt *a, struct ps_error *e)
{
    const struct wk_options *o = a->options;
    const struct ps_job *job = a->job;
    struct wk_run *run = a->run;
    const struct wk_place_options asked = {.job = o->job,
                                           .cluster = o->cluster,
                                           .ps = o->ps,
                                           .tls = o->tls,
                                           .munge = o->munge,
                                           .rank = o->rank,
                                           .workers = o->workers,
                                           .strategy = ps_job_strategies[job->strategy],
                                           .needs_ps = ps_job_needs_ps(job),
                                           .needs_peers = ps_job_needs_peers(job)};
    struct wk_place place;
    enum ps_code code = wk_place_find(&place, &asked, e);
    char *training = wk_place_training(&place);
    struct wk_folders folders = {.training = training, .rank = place.rank};
    run->folders = o->profile ? NULL : &folders;
    run->summary = o->summary;
    run->env.rank = place.rank;
    run->env.workers = place.workers;
    run->env.min_workers = (uint32_t)(o->min_workers ? o->min_workers : ps_job_min_workers(job, place.workers));
    run->env.ps = (const char *const *)place.cluster.addresses;
    run->env.n_ps = place.cluster.n;
    run->env.tls = place.tls ? &place.cluster.tls : NULL;
    run->env.munge = place.munge != NULL;
    run->env.munge_socket = place.cluster.munge_socket;
    run->env.insecure = o->insecure;
    if (code == PS_OK && place.evaluator)
        ps_info("TF_CONFIG: an evaluator takes no part in the training: nothing to do");
    else if (code == PS_OK && run->env.min_workers > place.workers)
        code = ps_fail(e, PS_INVALID_ARGUMENT, "%s: the job needs %" PRIu32 " workers, and has %" PRIu32, o->job,
                       run->env.min_workers, place.workers);
    else if (code == PS_OK && ps_job_needs_all_workers(job) && run->env.min_workers != place.workers)
        code = ps_fail(e, PS_INVALID_ARGUMENT,
                       "--min-workers is %" PRIu32 ", but with strategy %s the job ends with the first worker that is "
                       "lost: expected %" PRIu32,
                       run->env.min_workers, ps_job_strategies[job->strategy], place.workers);
    else if (code == PS_OK)
        code = attempt_train(a, &place, e);
    wk_place_fini(&place);
    wk_folders_release(&folders);
    run->folders = NULL;
    free(training);
    return code;
}

// Instead of a training.
static enum ps_code attempt_look(struct attempt *a, struct ps_error *e)
{
    const struct wk_look *look = &a->options->look;
    const bool weights = look->evaluate || look->predict;
    if (weights ? attempt_build(a, e) || wk_replica_create(a->run, 0, e) : nn_model_load(a->job->model, &a->model, e))
        return e->code;
    ps_signal_set(a->begun, 1);
    if (look->model)
        wk_look_at_model(a->job, a->model);
    return weights ? wk_look_at_weights(a->run, look, e) : PS_OK;
}

static const struct wk_strategy *const strategy_of[] = {[PS_STRATEGY_ONE_DEVICE] = &wk_one_device,
                                                        [PS_STRATEGY_PARAMETER_SERVER] = &wk_parameter_server,
                                                        [PS_STRATEGY_LOCAL_STEPS] = &wk_local_steps,
                                                        [PS_STRATEGY_MIRRORED] = &wk_mirrored,
                                                        [PS_STRATEGY_CENTRAL_STORAGE] = &wk_mirrored,
                                                        [PS_STRATEGY_MULTI_WORKER_MIRRORED] = &wk_mirrored,
                                                        [PS_STRATEGY_HYBRID] = &wk_hybrid};

// What a run that has failed left on the ps tasks gives way to what the checkpoint has.
static void attempt_let_replace(struct ps_job *job, const struct wk_options *o)
{
    if (ps_job_goes_on(job, o->resume) && job->on_existing == PS_REFUSE)
        job->on_existing = PS_REPLACE;
}

static bool attempt_is_outdated(const struct wk_run *run, const struct wk_options *o)
{
    struct ps_error e = {.code = PS_OK};
    struct wk_found newest;
    const bool found = wk_search_newest(run->env.job, !o->resume, run->lost, &newest, &e) == PS_OK;
    const bool same = newest.path && run->resume ? strcmp(newest.path, run->resume) == 0 : newest.path == run->resume;
    wk_found_free(&newest);
    return found && !same;
}

static void attempt_say_how_it_ended(const struct attempt *a, size_t lost_before)
{
    const struct wk_run *run = a->run;
    const struct ps_job *job = a->job;
    const struct wk_options *o = a->options;
    struct wk_ended *ended = a->ended;
    ended->recovers = ps_job_goes_on(job, o->resume) && (ps_job_needs_ps(job) || ps_job_needs_peers(job)) &&
                      !o->profile && !wk_look_is_wanted(&o->look);
    ended->trained = run->seconds_to_first_step > 0;
    ended->data_lost = run->data_lost;
    ended->lost = run->lost->n > lost_before;
    ended->outdated = ended->recovers && !ended->trained && !ended->lost && !ps_signal_number(run->env.stop) &&
                      attempt_is_outdated(run, o);
    ended->checkpoint = run->resumed_at;
    ended->patience = (uint64_t)job->timeout * PS_SECOND;
    ended->saved = run->saved;
    ended->all_saved = run->all_saved;
    ended->resumes = !ps_job_goes_on(job, false);
}

static enum ps_code attempt_do(struct attempt *a, struct ps_error *e)
{
    struct wk_run *run = a->run;
    const struct wk_options *o = a->options;
    enum ps_code code = ps_job_load(o->job, o->sets, (size_t)o->n_sets, &a->job, e);
    run->env.job = a->job;
    if (code == PS_OK) {
        run->strategy = strategy_of[a->job->strategy];
        attempt_let_replace(a->job, o);
    }
    if (code == PS_OK && wk_look_is_wanted(&o->look))
        return attempt_look(a, e);
    if (code == PS_OK)
        code = attempt_find_checkpoint(a, e);
    return code == PS_OK ? attempt_take_part(a, e) : attempt_await_others(a, code, e);
}

enum ps_code wk_attempt(const struct wk_attempt *asked, struct wk_run *run, struct wk_ended *ended, struct ps_error *e)
{
    struct attempt a = {
        .options = asked->options, .not_before = asked->not_before, .begun = asked->begun, .run = run, .ended = ended};
    const size_t lost_before = run->lost->n;
    const enum ps_code code = attempt_do(&a, e);
    wk_resume_forget(run);
    if (a.job)
        attempt_say_how_it_ended(&a, lost_before);
    wk_run_free(run);
    nn_replica_free(run->env.replica);
    ended->holds_data = run->data && wk_data_held(run->data);
    if (!ended->holds_data) {
        wk_data_free(run->data);
        nn_model_free(a.model);
        ps_job_free(a.job);
    }
    wk_found_free(&a.checkpoint);
    return code;
}
