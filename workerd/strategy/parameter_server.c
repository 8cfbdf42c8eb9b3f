// SPDX-License-Identifier: Apache-2.0
//
// parameter_server, and of local_steps what it has alike: joins the job, which the chief declares and puts initial
// weights into; what all have seen and who writes the results, at the end. What happens in between:
// parameter_server.h says where.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "workerd/strategy/configuration.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/parameter_server.h"
#include "workerd/strategy/variables.h"

// After a signal a worker waits so long for a new chief where the old one is silent. The client itself ends after 8 s.
enum { CHIEF_SECONDS = 6, CHIEF_MARGIN_MS = 100 };

// ---- open ---------------------------------------------------------------------------------------------------------

static void say_what_it_waits_for(void *arg, const char *what)
{
    (void)arg;
    ps_info("waiting for %s", what);
}

// The ps tasks, and how they are reached.
static psc_code cluster_of(const struct wk_env *env, psc_cluster **cluster, psc_error *error)
{
    psc_code code = psc_cluster_create(env->ps, env->n_ps, cluster, error);
    const psc_tls tls =
        env->tls ? (psc_tls){env->tls->folder, env->tls->ca, env->tls->certificate, env->tls->key} : (psc_tls){NULL};
    if (code)
        return code;
    if (env->tls)
        code = psc_cluster_set_tls(*cluster, &tls, error);
    else if (env->munge)
        code = psc_cluster_set_munge(*cluster, env->munge_socket, error);
    if (code)
        psc_cluster_free(*cluster);
    return code;
}

static enum ps_code connect_cluster(struct wk_parameter_server_state *s, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    psc_error error;
    psc_cluster *cluster;
    psc_options options = {
        .job = job->name,
        .rank = (int)s->env->rank,
        .workers = s->env->workers,
        .min_workers = s->env->min_workers,
        .update = s->update,
        .staleness = (uint32_t)job->staleness,
        .share_rounds = s->share_rounds,
        .follows_mode = s->follows_mode,
        .share_batch = s->follows_mode ? (uint64_t)job->batch_size : 0,
        .on_existing = (psc_on_existing)job->on_existing,
        .timeout_ms = (int)(job->timeout * 1000),
        .join_within_ms = (int)(job->timeout * 1000),
        .stop = s->env->stop,
        .waits = say_what_it_waits_for,
    };
    if (cluster_of(s->env, &cluster, &error))
        return wk_take_error(&error, e);
    char *configuration = wk_configuration_to_begin(s->env);
    options.configuration = configuration;
    psc_code code = psc_connect(cluster, &options, &s->client, &error);
    psc_cluster_free(cluster);
    free(configuration);
    return code ? wk_take_error(&error, e) : PS_OK;
}

// delayed_nesterov: unless the job says otherwise, momentum follows as many differences as there are workers.
static double strategy_hyper_value(const struct wk_env *env, const struct ps_hyper *h)
{
    const bool fits = env->job->update == PS_ASYNC && h->value == 0 && strcmp(h->name, "delay") == 0;
    return fits ? (double)env->workers : h->value;
}

static enum ps_code strategy_declare(struct wk_parameter_server_state *s, bool *resumed, struct ps_error *e)
{
    const struct ps_job *job = s->env->job;
    psc_error error;
    const struct ps_outer_optimizer *outer = job->strategy == PS_STRATEGY_LOCAL_STEPS ? &job->outer : NULL;
    const struct ps_schedule none = {.kind = PS_SCHEDULE_NONE}, *from = outer ? &none : &job->schedule;
    const struct ps_hyper *hyper = outer ? outer->hypers : job->hypers;
    psc_schedule schedule = {
        .kind = ps_schedule_name(from->kind),
        .boundaries = from->kind == PS_PIECEWISE ? from->boundary : NULL,
        .values = from->kind == PS_PIECEWISE ? from->value : NULL,
    };
#define COPY(name) schedule.name = from->name;
    PS_SCHEDULE_NUMBERS(COPY)
#undef COPY
    psc_declaration d = {
        .rule = outer ? outer->rule : job->rule,
        .placement = job->placement,
        .partitioner = job->partitioner,
        .n_hypers = outer ? outer->n_hypers : job->n_hypers,
        .schedule = from->kind == PS_SCHEDULE_NONE ? NULL : &schedule,
        .replicas_to_aggregate = (uint32_t)job->replicas_to_aggregate,
        .grace_ms = (uint32_t)(job->grace_seconds * 1000 + 0.5),
    };
    psc_hyper *hypers = ps_alloc(d.n_hypers * sizeof *hypers);
    for (size_t i = 0; i < d.n_hypers; i++)
        hypers[i] = (psc_hyper){hyper[i].name, strategy_hyper_value(s->env, &hyper[i])};
    psc_variable *variables = wk_variables(s->env->model, s->env->has, s->state_momentum, &d.n_variables);
    d.variables = variables;
    d.hypers = hypers;
    psc_code code = psc_declare(s->client, &d, resumed, &error);
    free(variables);
    free(hypers);
    return code ? wk_take_error(&error, e) : PS_OK;
}

// The chief's: initial weights, unless the job goes on with old ones, or a checkpoint has them.
static enum ps_code put_initial(struct wk_parameter_server_state *s, bool resumed, struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    if (resumed || s->env->checkpoint)
        return PS_OK;
    psc_put(s->client, s->weights, s->n, NULL, NULL, &op);
    return psc_wait(op, NULL, &error) ? wk_take_error(&error, e) : PS_OK;
}

// Does each round close with all workers?
static bool strategy_awaits_all(const struct wk_parameter_server_state *s)
{
    return s->update == PSC_SYNC && s->env->job->replicas_to_aggregate == 0;
}

bool wk_psd_in_rounds_of_all(const struct wk_parameter_server_state *s)
{
    return strategy_awaits_all(s) && !s->is_outer;
}

bool wk_psd_closes_whole_rounds(const struct wk_parameter_server_state *s)
{
    return strategy_awaits_all(s) && (!s->is_outer || s->n_buckets <= 1);
}

void wk_psd_count_step(struct wk_parameter_server_state *s)
{
    const uint64_t now = ps_now();
    s->step_ns = s->step_began ? now - s->step_began : 0;
    s->step_began = now;
}

uint64_t wk_psd_step_ns(const struct wk_parameter_server_state *s)
{
    const uint64_t most = WK_STEP_SECONDS * PS_SECOND;
    return s->step_ns < most ? s->step_ns : most;
}

enum ps_code wk_psd_barrier(struct wk_parameter_server_state *s, const char *name, struct ps_error *e)
{
    psc_error error;
    return psc_barrier(s->client, name, &error) ? wk_take_error(&error, e) : PS_OK;
}

enum ps_code wk_psd_health(const struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_error error;
    return psc_health(s->client, &error) ? wk_take_error(&error, e) : PS_OK;
}

static enum ps_code agree_on_weights(struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_error error;
    bool resumed = false;
    if (s->env->rank == 0 && !psc_is_late(s->client)) {
        if (strategy_declare(s, &resumed, e))
            return e->code;
        if (s->env->job->on_existing == PS_RESUME && !resumed && !s->env->checkpoint)
            ps_warn("the ps tasks have no weights of job '%s' to go on with (on_existing: resume): it begins anew",
                    s->env->job->name);
        if (put_initial(s, resumed, e))
            return e->code;
    } else if (psc_attach(s->client, &error)) {
        return wk_take_error(&error, e);
    }
    return psc_is_late(s->client) ? PS_OK : wk_psd_barrier(s, "start", e);
}

// The client ends with the signal; who only reads needs no job that goes on. The thread that writes a checkpoint looks
// at the reader, too.
static enum ps_code strategy_open_reader(struct wk_parameter_server_state *s, struct ps_error *e)
{
    const psc_options options = {
        .job = s->env->job->name, .rank = -1, .timeout_ms = WK_SALVAGE_MS, .refused_ms = WK_SALVAGE_REFUSED_MS};
    psc_error error;
    psc_cluster *cluster;
    psc_client *reader;
    if (cluster_of(s->env, &cluster, &error))
        return wk_take_error(&error, e);
    psc_code code = psc_connect(cluster, &options, &reader, &error);
    psc_cluster_free(cluster);
    if (code == PSC_OK && (code = psc_attach(reader, &error)) != PSC_OK)
        psc_close(reader, NULL);
    if (code)
        return wk_take_error(&error, e);
    s->reader = reader;
    return PS_OK;
}

static enum ps_code strategy_read_once(struct wk_parameter_server_state *s, psc_result *result, struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    psc_get(s->reader, s->weights, s->n, NULL, NULL, &op);
    if (psc_wait(op, result, &error))
        return wk_take_error(&error, e);
    s->salvaged = result->round == result->last_round ? result->round : UINT64_MAX;
    return PS_OK;
}

// Others may close a round just then: what is read once more is of that.
static enum ps_code strategy_read_weights(struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_result result;
    const bool in_rounds = wk_psd_closes_whole_rounds(s);
    if (strategy_read_once(s, &result, e))
        return e->code;
    if (in_rounds && s->salvaged == UINT64_MAX && strategy_read_once(s, &result, e))
        return e->code;
    if (in_rounds && s->salvaged == UINT64_MAX)
        ps_warn("a step was cut: some of the weights are of round %" PRIu64 " and some of round %" PRIu64, result.round,
                result.last_round);
    return PS_OK;
}

// In rounds of all workers: those who have ended before their last step leave the round open that this one's is in, and
// may close it later. Of local_steps the last period is taken back, which nothing but the position counts.
static bool strategy_undo_last_step(struct wk_parameter_server_state *s)
{
    if (s->is_outer)
        return wk_psd_closes_whole_rounds(s) && s->salvaged + 1 == s->counted;
    s->trained += s->undone;
    s->trained_to += s->undone;
    s->undone = wk_psd_in_rounds_of_all(s) && s->salvaged + 1 == wk_psd_rounds_trained(s);
    s->trained -= s->undone;
    s->trained_to -= s->undone;
    return s->undone;
}

// A live chief is heard again soon. What it last said may have been on its way a moment longer than is known here.
static bool strategy_chief_lives(const struct wk_parameter_server_state *s)
{
    return ps_now() > s->stopped_at + CHIEF_MARGIN_MS * PS_MS + psc_chief_silence(s->client) * PS_MS;
}

// The chief keeps the weights. It may have been killed just before the signal came, and not count as dead yet: then who
// comes in its place does.
static bool strategy_keeps_weights(const struct wk_parameter_server_state *s)
{
    const uint64_t until = s->stopped_at + CHIEF_SECONDS * PS_SECOND;
    struct ps_error ended = {.code = PS_OK};
    if (psc_is_chief(s->client))
        return true;
    while (!psc_is_heir(s->client) && !strategy_chief_lives(s) && !wk_psd_health(s, &ended) && ps_now() < until)
        ps_sleep(10 * PS_MS);
    if (!psc_is_chief(s->client) && !strategy_chief_lives(s) && ended.code == PS_OK)
        ps_warn("the chief, who keeps the weights, has been silent for %.1f s, and nobody is in its place",
                (double)psc_chief_silence(s->client) / 1e3);
    return psc_is_heir(s->client);
}

enum ps_code wk_home_salvage(void *state, bool *undone, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    s->stopped_at = s->stopped_at ? s->stopped_at : ps_now();
    wk_home_leave(s);
    if (!strategy_keeps_weights(s))
        return ps_fail(e, PS_NOT_FOUND, "the chief writes the weights");
    if ((!s->reader && strategy_open_reader(s, e)) || strategy_read_weights(s, e))
        return e->code;
    *undone = strategy_undo_last_step(s);
    return PS_OK;
}

enum ps_code wk_psd_refuse_constraints(const struct wk_env *env, struct ps_error *e)
{
    const struct nn_model *model = env->model;
    for (size_t i = 0; i < nn_model_params(model); i++)
        if (wk_env_has(env, i) && nn_model_constraint(model, i))
            return ps_fail(
                e, PS_FAILED_PRECONDITION,
                "variable '%s' has the constraint %s, which %s does not apply: expected strategy one_device, "
                "mirrored, central_storage or multi_worker_mirrored",
                nn_model_param(model, i)->name, nn_model_constraint(model, i), ps_job_strategies[env->job->strategy]);
    return PS_OK;
}

enum ps_code wk_psd_join(struct wk_parameter_server_state *s, struct ps_error *e)
{
    if (connect_cluster(s, e) || agree_on_weights(s, e))
        return e->code;
    s->was_chief = psc_is_chief(s->client);
    return PS_OK;
}

// The chief, who keeps the weights, may have heard the same signal a moment later, and be in a step that this one has
// taken. Does this worker's end end the job for it, or close the round of that step without those who have not pushed?
static bool strategy_ends_others_step(const struct wk_parameter_server_state *s)
{
    const struct wk_env *env = s->env;
    return !psc_is_chief(s->client) && !s->reader && (env->min_workers == env->workers || s->update == PSC_SYNC);
}

// So long a step of the chief may last, whatever signals come meanwhile.
static void strategy_wait_for_others_step(const struct wk_parameter_server_state *s)
{
    const uint64_t until = ps_now() + WK_SIGNAL_SECONDS * PS_SECOND + wk_psd_step_ns(s);
    for (uint64_t now = ps_now(); now < until; now = ps_now())
        ps_sleep(until - now);
}

// What has failed besides, such as writing the weights, is a failure. ABORTED: others have ended, of the same signal.
static bool strategy_is_interrupted(const struct ps_error *why)
{
    return why->code == PS_CANCELLED || why->code == PS_ABORTED;
}

void wk_psd_close(struct wk_parameter_server_state *s, const struct ps_error *why)
{
    const bool signalled = s->client && why && s->env->stop && ps_signal_number(s->env->stop);
    if (s->reader)
        psc_close(s->reader, NULL);
    if (signalled && strategy_is_interrupted(why))
        psc_report_interrupted(s->client);
    if (signalled && strategy_ends_others_step(s))
        strategy_wait_for_others_step(s);
    if (s->client)
        psc_close(s->client, why ? why->text : NULL);
}

static void parameter_server_close(void *state, const struct ps_error *why)
{
    struct wk_parameter_server_state *s = state;
    wk_psd_close(s, why);
    wk_home_free(s);
    free(s);
}

static enum ps_code parameter_server_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    if (wk_psd_refuse_constraints(env, e))
        return e->code;
    struct wk_parameter_server_state *s = ps_alloc(sizeof *s);
    s->env = env;
    s->update = (psc_update)env->job->update;
    s->follows_mode = env->job->n_push <= 1 && env->job->n_fetch <= 1;
    // Before anything is opened: with weights or memory that cannot be had no job begins.
    if (wk_home_open(s, e) || (env->rank == 0 && wk_init_weights(env, e)) || wk_psd_join(s, e)) {
        parameter_server_close(s, e);
        return e->code;
    }
    *state = s;
    return PS_OK;
}

// ---- end ----------------------------------------------------------------------------------------------------------

static bool parameter_server_is_chief(void *state)
{
    struct wk_parameter_server_state *s = state;
    return psc_is_chief(s->client);
}

// What the control task knows of gradients that count in part.
static enum ps_code strategy_count_splits(struct wk_parameter_server_state *s, struct wk_history *history,
                                          struct ps_error *e)
{
    psc_splits splits;
    psc_error error;
    if (psc_split_gradients(s->client, &splits, &error))
        return wk_take_error(&error, e);
    history->splits = splits.count;
    history->split_round = splits.round;
    history->split_worker = splits.worker;
    return PS_OK;
}

static enum ps_code parameter_server_sum(void *state, double *values, uint64_t n, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    return s->settle(s, e) ? e->code : wk_history_add_up(s->client, "the end of an epoch", values, n, e);
}

// As Keras's fit does, takes the weights' averages, if they are kept, for the weights from now on.
static enum ps_code parameter_server_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    if (s->settle(s, e) || wk_history_join(s->client, strategy_awaits_all(s), history, e))
        return e->code;
    s->averages = history->averaged = wk_home_averages(s);
    return s->update == PSC_SYNC ? strategy_count_splits(s, history, e) : PS_OK;
}

static uint64_t parameter_server_arrival(void *state)
{
    struct wk_parameter_server_state *s = state;
    return psc_arrival(s->client);
}

// Who has been there for longest, and of those the lowest rank, of all who have come this far: what heartbeats told may
// be of the past. -1, below all of them: the results are written.
static enum ps_code parameter_server_elect(void *state, bool written, enum wk_writer *writer, struct ps_error *e)
{
    struct wk_parameter_server_state *s = state;
    const int64_t self = (int64_t)psc_arrival(s->client) * s->env->workers + s->env->rank, done = -1;
    int64_t least = written ? done : self;
    psc_error error;
    if (psc_reduce(s->client, "writer", PSC_MIN, PSC_INT64, &least, 1, NULL, &error))
        return wk_take_error(&error, e);
    *writer = least == done ? WK_NOBODY : least == self ? WK_SELF : WK_ANOTHER;
    return PS_OK;
}

static uint64_t parameter_server_asked(void *state)
{
    const struct wk_parameter_server_state *s = state;
    return psc_checkpoints(s->client);
}

static void parameter_server_answer(void *state, uint64_t number, bool failed, const char *text)
{
    const struct wk_parameter_server_state *s = state;
    psc_report_checkpoint(s->client, number, failed, text);
}

static void parameter_server_report(void *state, uint64_t step, double images_per_second, double loss)
{
    struct wk_parameter_server_state *s = state;
    psc_report(s->client, step, images_per_second, loss);
}

static void parameter_server_report_progress(void *state, const struct ps_progress *p)
{
    struct wk_parameter_server_state *s = state;
    psc_metric metrics[PS_MAX_PROGRESS];
    for (size_t i = 0; i < p->n; i++)
        metrics[i] = (psc_metric){p->metric[i].name, p->metric[i].value};
    if (p->checkpoints != PS_CHECKPOINTS_UNKNOWN)
        psc_report_saved(s->client, p->checkpoints == PS_CHECKPOINTS_SOME, p->checkpoint, p->checkpoint_ms);
    psc_report_epoch(s->client, p->epochs, p->ended, metrics, p->n);
}

static bool parameter_server_in_rounds(void *state)
{
    const struct wk_parameter_server_state *s = state;
    return s->update == PSC_SYNC;
}

const struct wk_group wk_psd_group = {
    .sum = parameter_server_sum,
    .finish = parameter_server_finish,
    .elect = parameter_server_elect,
    .is_chief = parameter_server_is_chief,
    .arrival = parameter_server_arrival,
    .in_rounds = parameter_server_in_rounds,
    .report = parameter_server_report,
    .report_progress = parameter_server_report_progress,
    .asked = parameter_server_asked,
    .answer = parameter_server_answer,
};

const struct wk_strategy wk_parameter_server = {
    .name = "parameter_server",
    .sharder = &wk_psd_sharder,
    .home = &wk_psd_home,
    .group = &wk_psd_group,
    .open = parameter_server_open,
    .close = parameter_server_close,
};
