// SPDX-License-Identifier: Apache-2.0
//
// Tables of fields: which of a reply's fields is which metric. All samples of a metric stand together, as the format
// wants it, so that each goes over all jobs or workers.
#include "psd/http/view.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/http/metrics.h"
#include "common/summary/figures.h"

// ---- the tables ---------------------------------------------------------------------------------------------------

enum view_kind { VIEW_UINT32, VIEW_UINT64, VIEW_MILLISECONDS, VIEW_DOUBLE, VIEW_BOOL };

struct view_metric {
    const char *name, *type, *help;
    enum view_kind kind;
    size_t at;      // where the field is in its message
    bool of_steps;  // a worker's that has done none has no such
};

#define TASK(field) offsetof(Paramserver__V1__StatusReply, field)
static const struct view_metric view_task[] = {
    {"paramserver_psd_uptime_seconds", "gauge", "Time since this ps task was started.", VIEW_MILLISECONDS,
     TASK(uptime_ms)},
    {"paramserver_psd_resident_bytes", "gauge", "Memory of the process that is resident.", VIEW_UINT64,
     TASK(resident_bytes)},
    {"paramserver_psd_blocks_bytes", "gauge", "Memory in use by blocks: values, optimizer slots, snapshots, rounds.",
     VIEW_UINT64, TASK(block_bytes)},
    {"paramserver_psd_pinned_bytes", "gauge", "Memory of blocks that is held by snapshots of readers.", VIEW_UINT64,
     TASK(pinned_bytes)},
    {"paramserver_psd_limit_bytes", "gauge", "Memory that blocks may take.", VIEW_UINT64, TASK(limit_bytes)},
    {"paramserver_psd_queued_bytes", "gauge", "Requests that are not answered, and answers that are not sent.",
     VIEW_UINT64, TASK(queued_bytes)},
    {"paramserver_psd_certificate_expires_seconds", "gauge",
     "When the certificate of this ps task ends, since 1970; 0 without TLS.", VIEW_UINT64, TASK(certificate_until)},
    {"paramserver_psd_draining", "gauge", "1 where this ps task takes no new jobs.", VIEW_BOOL, TASK(draining)},
};

#define JOB(field) offsetof(Paramserver__V1__JobStatus, field)
static const struct view_metric view_job[] = {
    {"paramserver_job_variables", "gauge", "Variables of which this ps task holds some.", VIEW_UINT32, JOB(variables)},
    {"paramserver_job_partitions", "gauge", "Partitions of variables that this ps task holds.", VIEW_UINT32,
     JOB(partitions)},
    {"paramserver_job_variables_bytes", "gauge", "Memory of these partitions, values and optimizer slots.", VIEW_UINT64,
     JOB(bytes)},
    {"paramserver_job_request_ids_bytes", "gauge", "Memory of the request ids kept so that nothing is applied twice.",
     VIEW_UINT64, JOB(dedup_bytes)},
    {"paramserver_job_updates_total", "counter", "Requests that changed something.", VIEW_UINT64, JOB(updates)},
    {"paramserver_job_bytes_moved_total", "counter", "Payload of pushes, pulls, puts and gets, in both directions.",
     VIEW_UINT64, JOB(bytes_moved)},
    {"paramserver_job_duplicates_total", "counter",
     "Requests that changed nothing because they had been applied already.", VIEW_UINT64, JOB(duplicates)},
    {"paramserver_job_stale_total", "counter", "Gradients that were dropped because their round was complete.",
     VIEW_UINT64, JOB(stale)},
    {"paramserver_job_nonfinite_total", "counter", "Pushes with a NaN or an infinity that came, refused or not.",
     VIEW_UINT64, JOB(nonfinite)},
    {"paramserver_job_steps", "gauge",
     "Applications of the optimizer's rule to the variable here that has had the most; restore sets it back.",
     VIEW_UINT64, JOB(steps)},
    {"paramserver_job_round", "gauge", "Sync: the last round that all partitions here have closed.", VIEW_UINT64,
     JOB(round)},
    {"paramserver_job_staleness_max", "gauge",
     "The greatest staleness met: async of a push in updates, ssp of a worker in steps.", VIEW_UINT64, JOB(staleness)},
    {"paramserver_job_waiting_calls", "gauge", "Calls that wait at this ps task.", VIEW_UINT32, JOB(waiting)},
};

// Task 0 alone knows these.
static const struct view_metric view_control[] = {
    {"paramserver_job_live_workers", "gauge", "Workers of the job that live.", VIEW_UINT32, JOB(live_workers)},
    {"paramserver_job_min_workers", "gauge",
     "Where a worker dies and fewer that live or may still come remain, the job ends.", VIEW_UINT32, JOB(min_workers)},
    {"paramserver_job_examples", "gauge", "Examples of the epoch; 0: ps task 0 leases none out.", VIEW_UINT64,
     JOB(examples)},
    {"paramserver_job_examples_done", "gauge", "Of these those that are trained.", VIEW_UINT64, JOB(examples_done)},
    {"paramserver_job_age_seconds", "gauge", "Time since this run of the job was opened, or that it took.",
     VIEW_MILLISECONDS, JOB(age_ms)},
    {"paramserver_job_time_left_seconds", "gauge",
     "Time to the end of all epochs by the workers' mean speed so far, without evaluations; 0: not known.",
     VIEW_MILLISECONDS, JOB(time_left_ms)},
    {"paramserver_job_examples_per_second", "gauge", "Of the live workers, as they say: each its mean since it began.",
     VIEW_DOUBLE, JOB(examples_per_second)},
    {"paramserver_job_split_gradients_total", "counter",
     "Workers that ended while the gradient of their last round counted in some partitions alone.", VIEW_UINT64,
     JOB(splits)},
};

#define WORKER(field) offsetof(Paramserver__V1__Member, field)
static const struct view_metric view_worker[] = {
    {"paramserver_worker_step", "gauge", "The step that the worker reported last.", VIEW_UINT64, WORKER(step)},
    {"paramserver_worker_clock", "gauge", "Ssp: the worker's clock, in steps.", VIEW_UINT64, WORKER(clock)},
    {"paramserver_worker_silent_seconds", "gauge", "Time since the worker was heard.", VIEW_MILLISECONDS,
     WORKER(silent_ms)},
    {"paramserver_worker_examples_per_second", "gauge", "Examples per second, as the worker reported last.",
     VIEW_DOUBLE, WORKER(examples_per_second), .of_steps = true},
    {"paramserver_worker_loss", "gauge", "The loss that the worker reported last.", VIEW_DOUBLE, WORKER(loss),
     .of_steps = true},
    {"paramserver_worker_excluded", "gauge", "1 where rounds do not wait for the worker.", VIEW_BOOL, WORKER(excluded)},
    {"paramserver_worker_draining", "gauge", "1 where the worker was asked to leave.", VIEW_BOOL, WORKER(draining)},
};

static double view_value(const struct view_metric *m, const void *message)
{
    const char *field = (const char *)message + m->at;
    switch (m->kind) {
    case VIEW_UINT32:
        return *(const uint32_t *)field;
    case VIEW_UINT64:
        return (double)*(const uint64_t *)field;
    case VIEW_MILLISECONDS:
        return (double)*(const uint64_t *)field / 1000;
    case VIEW_DOUBLE:
        return *(const double *)field;
    default:
        return *(const protobuf_c_boolean *)field ? 1 : 0;
    }
}

// ---- what they are of ---------------------------------------------------------------------------------------------

struct view {
    struct ps_metrics to;
    const Paramserver__V1__StatusReply *status;
    Paramserver__V1__WorkersReply *const *workers;
    char task[16];
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static void view_begin(struct view *v, const struct view_metric *m)
{
    ps_metrics_family(&v->to, m->name, m->type, m->help);
}

static void view_put_task(struct view *v)
{
    const struct ps_label labels[] = {{"task", v->task}, {"version", v->status->version}};
    ps_metrics_family(&v->to, "paramserver_psd_info", "gauge", "The program that runs as this ps task.");
    ps_metrics_sample(&v->to, labels, 2, 1);
    ps_metrics_family(&v->to, "paramserver_psd_jobs", "gauge", "Jobs that this ps task knows.");
    ps_metrics_sample(&v->to, labels, 1, (double)v->status->n_jobs);
    for (size_t i = 0; i < LENGTH(view_task); i++) {
        view_begin(v, &view_task[i]);
        ps_metrics_sample(&v->to, labels, 1, view_value(&view_task[i], v->status));
    }
}

// Task 0's, where it has a queue.
static void view_put_queue(struct view *v)
{
    const Paramserver__V1__QueueFigures *q = v->status->queue;
    const struct ps_label queued[] = {{"task", v->task}, {"state", "queued"}},
                          running[] = {{"task", v->task}, {"state", "running"}};
    if (!q)
        return;
    const uint64_t now = v->status->clock_ms;
    ps_metrics_family(&v->to, "paramserver_queue_jobs", "gauge", "Jobs of psctl submit that have not ended.");
    ps_metrics_sample(&v->to, queued, LENGTH(queued), q->queued);
    ps_metrics_sample(&v->to, running, LENGTH(running), q->running);
    ps_metrics_family(&v->to, "paramserver_queue_oldest_seconds", "gauge",
                      "How long ago the first of the jobs that wait was submitted; 0: none waits.");
    ps_metrics_sample(&v->to, queued, 1, q->oldest_ms && now > q->oldest_ms ? (double)(now - q->oldest_ms) / 1000 : 0);
    ps_metrics_family(&v->to, "paramserver_queue_failed_jobs", "gauge",
                      "Jobs of psctl submit that have failed within the last day, and are not forgotten.");
    ps_metrics_sample(&v->to, queued, 1, q->failed_lately);
}

static void view_put_job(struct view *v, const Paramserver__V1__JobStatus *job, double value)
{
    const struct ps_label labels[] = {{"job", job->name}, {"task", v->task}};
    ps_metrics_sample(&v->to, labels, LENGTH(labels), value);
}

static void view_put_jobs(struct view *v, const struct view_metric *metrics, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        view_begin(v, &metrics[i]);
        for (size_t j = 0; j < v->status->n_jobs; j++)
            view_put_job(v, v->status->jobs[j], view_value(&metrics[i], v->status->jobs[j]));
    }
}

static void view_put_job_infos(struct view *v)
{
    ps_metrics_family(&v->to, "paramserver_job_info", "gauge", "A job: its update mode, and the user who opened it.");
    for (size_t j = 0; j < v->status->n_jobs; j++) {
        const Paramserver__V1__JobStatus *job = v->status->jobs[j];
        const struct ps_label labels[] = {
            {"job", job->name}, {"task", v->task}, {"update", ps_mode_name(job->update)}, {"user", job->user}};
        ps_metrics_sample(&v->to, labels, LENGTH(labels), 1);
    }
}

// One sample for each state, so that none of them vanishes when the state changes.
static void view_put_job_states(struct view *v)
{
    static const char *const states[] = {"opening", "running", "done", "failed", "interrupted"};
    ps_metrics_family(&v->to, "paramserver_job_state", "gauge", "1 for the state that the job is in.");
    for (size_t j = 0; j < v->status->n_jobs; j++)
        for (size_t i = 0; i < LENGTH(states); i++) {
            const Paramserver__V1__JobStatus *job = v->status->jobs[j];
            const struct ps_label labels[] = {{"job", job->name}, {"task", v->task}, {"state", states[i]}};
            ps_metrics_sample(&v->to, labels, LENGTH(labels), strcmp(job->state, states[i]) == 0);
        }
}

// Nothing of a job that writes none.
static void view_put_job_checkpoints(struct view *v)
{
    ps_metrics_family(&v->to, "paramserver_job_checkpoint_step", "gauge",
                      "Of which step of the chief the newest checkpoint is.");
    for (size_t j = 0; j < v->status->n_jobs; j++) {
        const Paramserver__V1__JobStatus *job = v->status->jobs[j];
        if (job->progress && job->progress->checkpoint_step)
            view_put_job(v, job, (double)job->progress->checkpoint_step);
    }
    ps_metrics_family(&v->to, "paramserver_job_checkpoint_age_seconds", "gauge",
                      "Time since it was written; before the first one, since the job was opened.");
    for (size_t j = 0; j < v->status->n_jobs; j++) {
        const Paramserver__V1__JobStatus *job = v->status->jobs[j];
        if (job->progress && job->progress->checkpoints == PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_SOME)
            view_put_job(v, job, (double)job->checkpoint_age_ms / 1000);
    }
}

// As workers count: from 1, and no further than to the last.
static void view_put_job_epochs(struct view *v)
{
    ps_metrics_family(&v->to, "paramserver_job_epoch", "gauge",
                      "The epoch that is trained, from 1; where all are, the last.");
    for (size_t j = 0; j < v->status->n_jobs; j++) {
        const Paramserver__V1__JobStatus *job = v->status->jobs[j];
        uint64_t ended;
        if (!ps_job_epoch(job, &ended))
            continue;
        const bool all = job->progress && ended == job->progress->epochs;
        view_put_job(v, job, (double)(all ? ended : ended + 1));
    }
}

// What the chief says; nothing where it has not.
static void view_put_job_progress(struct view *v)
{
    ps_metrics_family(&v->to, "paramserver_job_epochs", "gauge", "Epochs that the job trains in all.");
    for (size_t j = 0; j < v->status->n_jobs; j++)
        if (v->status->jobs[j]->progress)
            view_put_job(v, v->status->jobs[j], (double)v->status->jobs[j]->progress->epochs);
    ps_metrics_family(&v->to, "paramserver_job_metric", "gauge", "A metric of the last epoch that has ended.");
    for (size_t j = 0; j < v->status->n_jobs; j++) {
        const Paramserver__V1__JobStatus *job = v->status->jobs[j];
        for (size_t i = 0; job->progress && i < job->progress->n_metrics; i++) {
            const Paramserver__V1__Metric *metric = job->progress->metrics[i];
            const struct ps_label labels[] = {{"job", job->name}, {"task", v->task}, {"metric", metric->name}};
            ps_metrics_sample(&v->to, labels, LENGTH(labels), metric->value);
        }
    }
}

// ---- workers ------------------------------------------------------------------------------------------------------

static void view_each_worker(struct view *v,
                             void (*put)(struct view *v, const char *job, const char *rank,
                                         const Paramserver__V1__Member *worker, const void *arg),
                             const void *arg)
{
    char rank[16];
    for (size_t j = 0; j < v->status->n_jobs; j++)
        for (size_t i = 0; v->workers[j] && i < v->workers[j]->n_members; i++) {
            const Paramserver__V1__Member *worker = v->workers[j]->members[i];
            snprintf(rank, sizeof rank, "%" PRIu32, worker->rank);
            put(v, v->status->jobs[j]->name, rank, worker, arg);
        }
}

static void view_put_worker(struct view *v, const char *job, const char *rank, const Paramserver__V1__Member *worker,
                            const void *arg)
{
    const struct ps_label labels[] = {{"job", job}, {"worker", rank}};
    const struct view_metric *m = arg;
    if (ps_member_has_joined(worker) && (worker->step || !m->of_steps))
        ps_metrics_sample(&v->to, labels, LENGTH(labels), view_value(m, worker));
}

static void view_put_worker_state(struct view *v, const char *job, const char *rank,
                                  const Paramserver__V1__Member *worker, const void *arg)
{
    static const char *const states[] = {"expected", "live", "left", "dead"};
    (void)arg;
    for (size_t i = 0; i < LENGTH(states); i++) {
        const struct ps_label labels[] = {{"job", job}, {"worker", rank}, {"state", states[i]}};
        ps_metrics_sample(&v->to, labels, LENGTH(labels), strcmp(ps_member_state(worker), states[i]) == 0);
    }
}

static void view_put_workers(struct view *v)
{
    ps_metrics_family(&v->to, "paramserver_worker_state", "gauge", "1 for the state that the worker is in.");
    view_each_worker(v, view_put_worker_state, NULL);
    for (size_t i = 0; i < LENGTH(view_worker); i++) {
        view_begin(v, &view_worker[i]);
        view_each_worker(v, view_put_worker, &view_worker[i]);
    }
}

enum ps_code psd_view_text(const Paramserver__V1__StatusReply *status, Paramserver__V1__WorkersReply *const *workers,
                           char **text, struct ps_error *e)
{
    struct view v = {.status = status, .workers = workers};
    if (ps_metrics_open(&v.to, e))
        return e->code;
    snprintf(v.task, sizeof v.task, "%" PRIu32, status->task);
    view_put_task(&v);
    view_put_queue(&v);
    view_put_job_infos(&v);
    view_put_job_states(&v);
    view_put_jobs(&v, view_job, LENGTH(view_job));
    if (status->task == 0) {
        view_put_jobs(&v, view_control, LENGTH(view_control));
        view_put_job_epochs(&v);
        view_put_job_progress(&v);
        view_put_job_checkpoints(&v);
        view_put_workers(&v);
    }
    return ps_metrics_close(&v.to, text, e);
}
