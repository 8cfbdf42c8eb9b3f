// SPDX-License-Identifier: Apache-2.0
#include "psd/http/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/http/json.h"
#include "common/summary/figures.h"
#include "common/summary/summary.h"

typedef Paramserver__V1__Member Member;
typedef Paramserver__V1__WorkersReply Workers;

static void status_put_summary(struct ps_json *j, const struct ps_overview *overview)
{
    struct ps_summary summary;
    ps_summarize(overview, &summary);
    ps_json_begin(j, "summary", '{');
    ps_json_text(j, "level", ps_level_name(summary.level));
    ps_json_text(j, "state", summary.state);
    ps_json_text(j, "risk", summary.risk);
    ps_json_text(j, "worst", summary.worst);
    ps_json_text(j, "command", summary.command);
    ps_json_end(j, '}');
}

static void status_put_task(struct ps_json *j, const Paramserver__V1__StatusReply *s)
{
    ps_json_count(j, "task", s->task);
    ps_json_count(j, "tasks", s->tasks);
    ps_json_text(j, "version", s->version);
    ps_json_count(j, "clock_ms", s->clock_ms);
    ps_json_count(j, "uptime_ms", s->uptime_ms);
    ps_json_flag(j, "draining", s->draining);
    ps_json_count(j, "certificate_until", s->certificate_until);
    ps_json_begin(j, "memory", '{');
    ps_json_count(j, "resident_bytes", s->resident_bytes);
    ps_json_count(j, "block_bytes", s->block_bytes);
    ps_json_count(j, "pinned_bytes", s->pinned_bytes);
    ps_json_count(j, "limit_bytes", s->limit_bytes);
    ps_json_count(j, "queued_bytes", s->queued_bytes);
    ps_json_end(j, '}');
}

static void status_put_queue(struct ps_json *j, const Paramserver__V1__QueueFigures *q)
{
    if (!q)
        return;
    ps_json_begin(j, "queue", '{');
    ps_json_count(j, "queued", q->queued);
    ps_json_count(j, "running", q->running);
    ps_json_count(j, "oldest_ms", q->oldest_ms);
    ps_json_count(j, "failed", q->failed);
    ps_json_end(j, '}');
}

// ---- workers ------------------------------------------------------------------------------------------------------

static void status_put_reports(struct ps_json *j, const Member *m)
{
    ps_json_count(j, "step", m->step);
    ps_json_count(j, "clock", m->clock);
    ps_json_count(j, "silent_ms", m->silent_ms);
    if (!m->step)
        return;
    ps_json_number(j, "examples_per_second", m->examples_per_second);
    ps_json_number(j, "loss", m->loss);
}

static void status_put_member(struct ps_json *j, const Member *m)
{
    ps_json_begin(j, NULL, '{');
    ps_json_count(j, "rank", m->rank);
    ps_json_text(j, "state", ps_member_state(m));
    ps_json_text(j, "process", m->address);
    if (ps_member_has_joined(m))
        status_put_reports(j, m);
    ps_json_flag(j, "excluded", m->excluded);
    ps_json_flag(j, "draining", m->draining);
    ps_json_text(j, "reason", m->reason);
    ps_json_end(j, '}');
}

// Those that are dead, or those that are not: at most room of them. Returns the room that is left.
static size_t status_put_members(struct ps_json *j, const Workers *workers, bool dead, size_t room)
{
    for (size_t i = 0; i < workers->n_members && room > 0; i++) {
        if ((workers->members[i]->state == PARAMSERVER__V1__MEMBER_STATE__DEAD) != dead)
            continue;
        status_put_member(j, workers->members[i]);
        room--;
    }
    return room;
}

static void status_put_counts(struct ps_json *j, const struct ps_figures *f)
{
    ps_json_begin(j, "workers_in_state", '{');
    ps_json_count(j, "expected", f->expected);
    ps_json_count(j, "live", f->live);
    ps_json_count(j, "left", f->left);
    ps_json_count(j, "dead", f->dead);
    ps_json_end(j, '}');
}

static void status_put_workers(struct ps_json *j, const Workers *workers)
{
    const struct ps_figures f = ps_figures_of(workers);
    if (f.trains) {
        ps_json_number(j, "examples_per_second", f.examples_per_second);
        ps_json_number(j, "loss", f.loss);
    }
    status_put_counts(j, &f);
    ps_json_begin(j, "workers", '[');
    const size_t room = status_put_members(j, workers, true, PSD_STATUS_WORKERS);
    status_put_members(j, workers, false, room);
    ps_json_end(j, ']');
}

// ---- waits --------------------------------------------------------------------------------------------------------

static void status_put_wait(struct ps_json *j, const Paramserver__V1__Wait *w)
{
    const ProtobufCEnumValue *method =
        protobuf_c_enum_descriptor_get_value(&paramserver__v1__method__descriptor, (int)w->method);
    ps_json_begin(j, NULL, '{');
    if (w->worker)
        ps_json_count(j, "worker", w->worker - 1);
    ps_json_text(j, "method", method ? method->name : "");
    ps_json_text(j, "what", w->what);
    ps_json_text(j, "whom", w->whom);
    ps_json_count(j, "since_ms", w->since_ms);
    ps_json_end(j, '}');
}

static void status_put_waits(struct ps_json *j, const Paramserver__V1__WaitsReply *waits, const char *job)
{
    size_t room = PSD_STATUS_WAITS;
    ps_json_begin(j, "waits", '[');
    for (size_t i = 0; waits && i < waits->n_waits && room > 0; i++) {
        if (strcmp(waits->waits[i]->job, job) != 0)
            continue;
        status_put_wait(j, waits->waits[i]);
        room--;
    }
    ps_json_end(j, ']');
}

// ---- jobs ---------------------------------------------------------------------------------------------------------

static void status_put_place(struct ps_json *j, const Paramserver__V1__JobStatus *job)
{
    char run[24];
    snprintf(run, sizeof run, "%" PRIu64, job->run);
    ps_json_text(j, "name", job->name);
    ps_json_text(j, "run", run);  // a string: it may be greater than 2^53
    ps_json_text(j, "user", job->user);
    ps_json_text(j, "mode", ps_mode_name(job->update));
    ps_json_text(j, "state", job->state);
    ps_json_text(j, "reason", job->reason);
    ps_json_count(j, "variables", job->variables);
    ps_json_count(j, "partitions", job->partitions);
    ps_json_count(j, "bytes", job->bytes);
}

static void status_put_progress(struct ps_json *j, const Paramserver__V1__JobStatus *job)
{
    const Paramserver__V1__Progress *p = job->progress;
    ps_json_count(j, "epochs", p->epochs);
    ps_json_count(j, "epochs_ended", p->epochs_ended);
    ps_json_count(j, "time_left_ms", job->time_left_ms);
    if (p->checkpoints != PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_UNKNOWN)
        ps_json_flag(j, "checkpoints", p->checkpoints == PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_SOME);
    if (p->checkpoint_step) {
        ps_json_count(j, "checkpoint_step", p->checkpoint_step);
        ps_json_count(j, "checkpoint_age_ms", job->checkpoint_age_ms);
    }
    ps_json_begin(j, "metrics", '{');
    for (size_t i = 0; i < p->n_metrics; i++)
        ps_json_number(j, p->metrics[i]->name, p->metrics[i]->value);
    ps_json_end(j, '}');
}

static void status_put_course(struct ps_json *j, const Paramserver__V1__JobStatus *job)
{
    uint64_t epoch;
    ps_json_count(j, "steps", job->steps);
    ps_json_count(j, "round", job->round);
    ps_json_count(j, "updates", job->updates);
    ps_json_number(j, "updates_per_second", job->updates_per_second);
    ps_json_number(j, "bytes_per_second", job->bytes_per_second);
    ps_json_count(j, "bytes_moved", job->bytes_moved);
    ps_json_count(j, "staleness", job->staleness);
    ps_json_count(j, "duplicates", job->duplicates);
    ps_json_count(j, "stale", job->stale);
    ps_json_count(j, "nonfinite", job->nonfinite);
    ps_json_count(j, "waiting", job->waiting);
    if (job->age_ms)
        ps_json_count(j, "age_ms", job->age_ms);
    if (job->progress)
        status_put_progress(j, job);
    if (ps_job_epoch(job, &epoch))
        ps_json_count(j, "epoch", epoch);
    if (job->examples == 0)
        return;
    ps_json_count(j, "examples", job->examples);
    ps_json_count(j, "examples_done", job->examples_done);
}

static void status_put_job(struct ps_json *j, const struct ps_overview *overview, size_t i)
{
    const Paramserver__V1__JobStatus *job = overview->status->jobs[i];
    ps_json_begin(j, NULL, '{');
    status_put_place(j, job);
    status_put_course(j, job);
    if (overview->workers[i])
        status_put_workers(j, overview->workers[i]);
    status_put_waits(j, overview->waits, job->name);
    ps_json_end(j, '}');
}

enum ps_code psd_status_text(const struct ps_overview *overview, char **text, struct ps_error *e)
{
    struct ps_json j;
    if (ps_json_open(&j, e))
        return e->code;
    ps_json_begin(&j, NULL, '{');
    status_put_task(&j, overview->status);
    status_put_queue(&j, overview->status->queue);
    status_put_summary(&j, overview);
    ps_json_begin(&j, "jobs", '[');
    for (size_t i = 0; i < overview->status->n_jobs; i++)
        status_put_job(&j, overview, i);
    ps_json_end(&j, ']');
    ps_json_end(&j, '}');
    return ps_json_close(&j, text, e);
}
