// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/summary/figures.h"
#include "common/wire/wire.h"
#include "tools/common/table.h"
#include "tools/psctl/queue.h"

static struct job_sum *sum_of(struct jobs *jobs, const Paramserver__V1__JobStatus *job)
{
    for (size_t i = 0; i < jobs->n; i++)
        if (strcmp(jobs->v[i].name, job->name) == 0)
            return &jobs->v[i];
    jobs->v = ps_realloc(jobs->v, (jobs->n + 1) * sizeof *jobs->v);
    jobs->v[jobs->n] = (struct job_sum){.name = job->name,
                                        .run = job->run,
                                        .state = job->state,
                                        .user = job->user,
                                        .reason = job->reason,
                                        .update = (int)job->update,
                                        .round = UINT64_MAX};
    return &jobs->v[jobs->n++];
}

static void job_sum_add(struct job_sum *sum, const Paramserver__V1__JobStatus *job, bool control)
{
    if (control)
        sum->control = job;
    // The tasks are in order, so the state is the control task's; a reason that only another knows is worth
    // showing.
    if (sum->reason[0] == '\0' && job->reason[0] != '\0') {
        sum->reason = job->reason;
        sum->state = job->state;
    }
    if (sum->run == 0)
        sum->run = job->run;
    // 0 also where a task holds nothing that takes part in rounds.
    if (job->round > 0 && job->round < sum->round)
        sum->round = job->round;
    sum->partitions += job->partitions;
    sum->bytes += job->bytes;
    sum->steps = job->steps > sum->steps ? job->steps : sum->steps;
    sum->updates += job->updates;
    sum->waiting += job->waiting;
    sum->duplicates += job->duplicates;
    sum->stale += job->stale;
    sum->nonfinite += job->nonfinite;
    sum->dedup_bytes += job->dedup_bytes;
    sum->bytes_moved += job->bytes_moved;
    if (job->staleness > sum->staleness && (control || sum->update != PARAMSERVER__V1__UPDATE__SSP))
        sum->staleness = job->staleness;  // of ssp the control task's, in steps: others met theirs before a set-mode
    if (job->examples > 0) {
        sum->data_epoch = job->data_epoch;
        sum->examples = job->examples;
        sum->examples_done = job->examples_done;
    }
    sum->updates_per_second += job->updates_per_second;
    sum->bytes_per_second += job->bytes_per_second;
}

void jobs_ask(struct cluster *c, struct answer **answers, struct jobs *jobs)
{
    Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    *jobs = (struct jobs){0};
    cluster_ask(c, PARAMSERVER__V1__METHOD__STATUS, &request.base, &paramserver__v1__status_reply__descriptor, answers);
    for (size_t i = 0; i < c->tasks; i++) {
        const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)(*answers)[i].reply;
        for (size_t k = 0; status && k < status->n_jobs; k++)
            job_sum_add(sum_of(jobs, status->jobs[k]), status->jobs[k], i == 0);
    }
    for (size_t i = 0; i < jobs->n; i++)
        if (jobs->v[i].round == UINT64_MAX)
            jobs->v[i].round = 0;
}

enum ps_code jobs_find(const struct jobs *jobs, const char *name, struct ps_error *e)
{
    char known[256] = "";
    size_t len = 0;
    const char **names = ps_alloc(jobs->n * sizeof *names);
    for (size_t i = 0; i < jobs->n; i++) {
        names[i] = jobs->v[i].name;
        if (len < sizeof known)
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", names[i]);
        if (strcmp(names[i], name) == 0) {
            free(names);
            return PS_OK;
        }
    }
    const char *near = ps_nearest(name, names, (int)jobs->n);
    free(names);
    if (near)
        return ps_fail(e, PS_NOT_FOUND, "no job %.128s here; did you mean %.128s?", name, near);
    return ps_fail(e, PS_NOT_FOUND, "no job %.128s here; %s%s", name, jobs->n ? "there are: " : "there is none", known);
}

// jobs_find, but of a job that is in the queue says that.
static enum ps_code jobs_seek(struct cluster *c, const struct jobs *jobs, const char *name, struct ps_error *e)
{
    char where[256];
    const enum ps_code code = jobs_find(jobs, name, e);
    if (code && queue_place(c, name, where, sizeof where))
        return ps_fail(e, PS_NOT_FOUND, "no job %.128s here; %s", name, where);
    return code;
}

int jobs_report_error(struct cluster *c, const char *job, const struct ps_error *e)
{
    struct answer *answers;
    struct jobs jobs;
    struct ps_error found;
    if (e->code != PS_NOT_FOUND || !strstr(e->text, "no job '"))
        return call_report(e);
    jobs_ask(c, &answers, &jobs);
    int exit_code = call_report(jobs_seek(c, &jobs, job, &found) ? &found : e);
    free(jobs.v);
    cluster_answers_free(answers, c->tasks);
    return exit_code;
}

int jobs_report_answers(struct cluster *c, const struct answer *answers, const char *job)
{
    for (size_t i = 0; i < c->tasks; i++)
        if (answers[i].reply || answers[i].error.code != PS_NOT_FOUND)
            return cluster_report(answers, c->tasks);
    return jobs_report_error(c, job, &answers[0].error);
}

void jobs_state(struct cluster *c, const char *job, char *to, size_t size)
{
    Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct ps_error e;
    to[0] = '\0';
    request.job = (char *)job;
    if (cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__STATUS, &request.base,
                        &paramserver__v1__status_reply__descriptor, &reply, &e))
        return;
    const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)reply;
    for (size_t i = 0; i < status->n_jobs; i++)
        if (strcmp(status->jobs[i]->name, job) == 0)
            snprintf(to, size, "%s", status->jobs[i]->state);
    ps_msg_free(reply);
}

json_t *jobs_live_workers(const struct job_sum *job)
{
    return job->control ? table_count(job->control->live_workers) : NULL;
}

json_t *jobs_all_workers(const struct job_sum *job)
{
    return job->control && job->control->workers ? table_count(job->control->workers) : NULL;
}

json_t *jobs_min_workers(const struct job_sum *job)
{
    return job->control && job->control->min_workers ? table_count(job->control->min_workers) : NULL;
}

json_t *jobs_epoch_done(const struct job_sum *job)
{
    return job->examples ? json_real((double)job->examples_done / (double)job->examples) : NULL;
}

json_t *jobs_epoch(const struct job_sum *job)
{
    uint64_t epoch;
    return job->control && ps_job_epoch(job->control, &epoch) ? table_count(epoch) : NULL;
}

const Paramserver__V1__Progress *jobs_progress(const struct job_sum *job)
{
    return job->control ? job->control->progress : NULL;
}

json_t *jobs_epochs(const struct job_sum *job)
{
    const Paramserver__V1__Progress *p = jobs_progress(job);
    return p ? table_count(p->epochs) : NULL;
}

json_t *jobs_time_left(const struct job_sum *job)
{
    return job->control && job->control->time_left_ms ? table_count(job->control->time_left_ms) : NULL;
}

json_t *jobs_age(const struct job_sum *job)
{
    return job->control ? table_count(job->control->age_ms) : NULL;
}

static const Paramserver__V1__Progress *jobs_saved(const struct job_sum *job)
{
    const Paramserver__V1__Progress *p = jobs_progress(job);
    return p && p->checkpoint_step ? p : NULL;
}

json_t *jobs_checkpoint(const struct job_sum *job)
{
    const Paramserver__V1__Progress *p = jobs_saved(job);
    return p ? table_count(p->checkpoint_step) : NULL;
}

json_t *jobs_checkpoint_age(const struct job_sum *job)
{
    return jobs_saved(job) ? table_count(job->control->checkpoint_age_ms) : NULL;
}

json_t *jobs_speed(const struct job_sum *job)
{
    const double speed = job->control ? job->control->examples_per_second : 0;
    return speed > 0 ? json_real(speed) : NULL;
}

json_t *jobs_metrics(const Paramserver__V1__Progress *progress)
{
    json_t *metrics = json_object();
    for (size_t i = 0; i < progress->n_metrics; i++)
        json_object_set_new(metrics, progress->metrics[i]->name, table_real(progress->metrics[i]->value));
    return metrics;
}

int jobs_report(struct cluster *c, const struct answer *answers, const struct jobs *jobs, const char *only)
{
    struct ps_error e;
    int exit_code = cluster_report(answers, c->tasks);
    if (exit_code == 0 && only && jobs_seek(c, jobs, only, &e))
        exit_code = call_report(&e);
    return exit_code;
}

int jobs_show(struct cluster *c, struct call *call, jobs_show_fn show)
{
    const char *only = call->argc ? call->argv[0] : NULL;
    struct answer *answers;
    struct jobs jobs;
    jobs_ask(c, &answers, &jobs);
    show(c, answers, &jobs, only, call->target.json);
    int exit_code = jobs_report(c, answers, &jobs, only);
    free(jobs.v);
    cluster_answers_free(answers, c->tasks);
    return exit_code;
}

int jobs_ask_for(struct cluster *c, const char *job)
{
    struct answer *answers;
    cluster_describe(c, &answers);
    int exit_code = jobs_report_answers(c, answers, job);
    cluster_answers_free(answers, c->tasks);
    return exit_code;
}
