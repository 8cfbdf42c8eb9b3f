// SPDX-License-Identifier: Apache-2.0
//
// Status, Drain, Checkpoint and StopJob: what psctl asks a task.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "config.h"
#include "psd/control/state.h"
#include "psd/service/service.h"
#include "psd/service/waits.h"

struct job_status {
    Paramserver__V1__JobStatus out;
    char reason[PSD_FAILURE_MAX];
    struct ps_progress progress;
    struct ps_progress_message progress_message;
};

static void count_partitions(struct psd_job *job, Paramserver__V1__JobStatus *out)
{
    uint64_t round = UINT64_MAX;
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_partition *p = &job->partitions[i];
        struct psd_round *in = p->round;
        if (!p->blocks)
            continue;
        out->partitions++;
        if (job->variables[p->variable].rule) {
            pthread_mutex_lock(&p->blocks[0].lock);
            out->steps = p->blocks[0].steps > out->steps ? p->blocks[0].steps : out->steps;
            pthread_mutex_unlock(&p->blocks[0].lock);
        }
        out->variables += p->variable != last;
        last = p->variable;
        if (in) {
            pthread_mutex_lock(&in->lock);
            round = in->closed < round ? in->closed : round;
            pthread_mutex_unlock(&in->lock);
        }
    }
    out->round = round == UINT64_MAX ? 0 : round;
}

// 0: the job writes no checkpoints, or its chief has not said.
static uint64_t admin_checkpoint_age(const struct psd_core *core, const struct ps_progress *p, uint64_t age_ms)
{
    const uint64_t now = psd_wall(core);
    if (p->checkpoints != PS_CHECKPOINTS_SOME)
        return 0;
    if (!p->checkpoint)
        return age_ms;
    return now > p->checkpoint_ms ? now - p->checkpoint_ms : 0;
}

static void describe_job(struct psd_core *core, struct psd_job *job, struct job_status *s)
{
    Paramserver__V1__JobStatus *out = &s->out;
    paramserver__v1__job_status__init(out);
    out->name = job->name;
    out->user = job->user->name;
    out->run = atomic_load(&job->run);
    out->reason = s->reason;
    if (atomic_load(&job->declared)) {
        out->update = psd_job_update(job);
        out->bytes = atomic_load(&job->store.page_bytes);
        count_partitions(job, out);
    }
    psd_control_describe(job, out, s->reason, sizeof s->reason, &s->progress);
    out->checkpoint_age_ms = admin_checkpoint_age(core, &s->progress, out->age_ms);
    out->progress = ps_progress_write(&s->progress, &s->progress_message);
    out->waiting = psd_waits_count(core, job);
    out->updates = atomic_load(&job->updates);
    out->bytes_moved = atomic_load(&job->bytes_moved);
    out->duplicates = atomic_load(&job->duplicates);
    out->stale = atomic_load(&job->stale);
    out->nonfinite = atomic_load(&job->nonfinite);
    out->dedup_bytes = atomic_load(&job->store.dedup_bytes);
    if (out->update && out->update != PARAMSERVER__V1__UPDATE__SSP)  // there it is that of the clock
        out->staleness = atomic_load(&job->met_staleness);
    pthread_mutex_lock(&job->lock);
    out->updates_per_second = job->updates_per_second;
    out->bytes_per_second = job->bytes_per_second;
    pthread_mutex_unlock(&job->lock);
}

static void describe_task(struct psd_core *core, Paramserver__V1__StatusReply *out)
{
    out->generation = core->generation;
    out->version = (char *)PACKAGE_VERSION;
    out->newest = psd_runs_newest(&core->table.runs);
    out->task = core->config.task;
    out->tasks = core->config.tasks;
    out->cluster_hash = core->config.cluster_hash;
    out->uptime_ms = (psd_now(core) - core->started) / PS_MS;
    out->clock_ms = psd_wall(core);
    out->resident_bytes = core->world.resident(core->world.ctx);
    out->queued_bytes = core->world.queued ? core->world.queued(core->world.ctx) : 0;
    if (core->world.certificate_until)
        out->certificate_until = core->world.certificate_until(core->world.ctx);
    out->block_bytes = psd_pool_used(&core->pool);
    out->limit_bytes = core->pool.limit;
    out->draining = atomic_load(&core->refuses_jobs);
    pthread_mutex_lock(&core->snapshots.lock);
    out->pinned_bytes = core->snapshots.pinned;
    pthread_mutex_unlock(&core->snapshots.lock);
}

static void describe_queue(struct psd_core *core, Paramserver__V1__QueueFigures *queue,
                           Paramserver__V1__StatusReply *out)
{
    if (!core->queue)
        return;
    paramserver__v1__queue_figures__init(queue);
    queue->queued = atomic_load(&core->queued_jobs);
    queue->running = atomic_load(&core->running_jobs);
    queue->failed = atomic_load(&core->failed_jobs);
    queue->failed_lately = atomic_load(&core->lately_failed_jobs);
    queue->oldest_ms = atomic_load(&core->oldest_job_ms);
    out->queue = queue;
}

int psd_status(struct psd_request *t)
{
    const Paramserver__V1__StatusRequest *r = (const Paramserver__V1__StatusRequest *)t->request;
    Paramserver__V1__StatusReply out = PARAMSERVER__V1__STATUS_REPLY__INIT;
    Paramserver__V1__QueueFigures queue;
    struct psd_jobs jobs;
    if (psd_jobs_hold(&t->core->table, r->job, &jobs, &t->error) && t->error.code != PS_NOT_FOUND)
        return (int)t->error.code;
    struct job_status *v = ps_try_alloc_array(jobs.n, sizeof *v);
    out.jobs = ps_try_alloc_array(jobs.n, sizeof(void *));
    int code = v && out.jobs ? PS_OK : (int)ps_no_memory(&t->error, "a list of jobs");
    if (code == PS_OK) {
        describe_task(t->core, &out);
        describe_queue(t->core, &queue, &out);
        for (uint32_t i = 0; i < jobs.n; i++) {
            if (!psd_request_owns(t, jobs.v[i]))
                continue;
            describe_job(t->core, jobs.v[i], &v[out.n_jobs]);
            out.jobs[out.n_jobs] = &v[out.n_jobs].out;
            out.n_jobs++;
        }
        code = psd_request_reply(t, &out.base, NULL);
    }
    free(out.jobs);
    free(v);
    psd_jobs_release(&jobs);
    return code;
}

// ---- Drain --------------------------------------------------------------------------------------------------------

enum ps_code psd_refuse_when_draining(struct psd_request *t)
{
    if (!atomic_load(&t->core->refuses_jobs))
        return PS_OK;
    return ps_fail(&t->error, PS_FAILED_PRECONDITION, PSD_DRAINS, t->core->config.task);
}

static int drain_worker(struct psd_request *t, const Paramserver__V1__DrainRequest *r)
{
    if (psd_request_find_job(t, r->job))
        return (int)t->error.code;
    pthread_mutex_lock(&t->job->lock);
    struct psd_control *c = t->job->control;
    struct psd_member *m = c && r->worker <= c->workers ? &c->members[r->worker - 1] : NULL;
    int code = PS_OK;
    if (!c)
        code = (int)ps_fail(&t->error, PS_FAILED_PRECONDITION, "workers are known at ps task 0, this is %" PRIu32,
                            t->core->config.task);
    else if (!m || !psd_is_live(m))
        code =
            (int)ps_fail(&t->error, m ? PS_FAILED_PRECONDITION : PS_NOT_FOUND, "worker %" PRIu32 " of job '%s' is %s",
                         r->worker - 1, t->job->name, m ? psd_state_name(m->state) : "none of its workers");
    else
        m->draining = !r->undo;
    pthread_mutex_unlock(&t->job->lock);
    return code;
}

static bool still_runs(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool runs = !psd_job_is_over(job);
    pthread_mutex_unlock(&job->lock);
    return runs;
}

int psd_drain(struct psd_request *t)
{
    const Paramserver__V1__DrainRequest *r = (const Paramserver__V1__DrainRequest *)t->request;
    Paramserver__V1__DrainReply out = PARAMSERVER__V1__DRAIN_REPLY__INIT;
    struct psd_jobs jobs = {0};
    out.generation = t->core->generation;
    if (r->worker) {
        int code = drain_worker(t, r);
        return code == PS_OK ? psd_request_reply(t, &out.base, NULL) : code;
    }
    int code = (int)psd_jobs_hold(&t->core->table, "", &jobs, &t->error);
    if (code != PS_OK)
        return code;
    out.jobs = ps_try_alloc_array(jobs.n, sizeof(char *));
    for (size_t i = 0; out.jobs && i < jobs.n; i++)
        if (still_runs(jobs.v[i]))
            out.jobs[out.n_jobs++] = jobs.v[i]->name;
    code = out.jobs ? psd_request_reply(t, &out.base, NULL) : (int)ps_no_memory(&t->error, "a list of jobs");
    if (code == PS_OK)
        atomic_store(&t->core->refuses_jobs, !r->undo);
    free(out.jobs);
    psd_jobs_release(&jobs);
    return code;
}

// ---- Checkpoint ---------------------------------------------------------------------------------------------------

// Job locked.
static enum ps_code checkpoint_request(struct psd_request *t, const Paramserver__V1__CheckpointRequest *r,
                                       Paramserver__V1__CheckpointReply *out)
{
    struct psd_control *c = t->job->control;
    if (r->number > c->checkpoints.asked)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "job '%s' was asked for %" PRIu64 " checkpoints, not %" PRIu64 ": it has begun anew since",
                       t->job->name, c->checkpoints.asked, r->number);
    if (psd_job_is_over(t->job) && (!r->number || r->number > c->checkpoints.over))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "job '%s' does not run any more", t->job->name);
    out->number = r->number ? r->number : ++c->checkpoints.asked;
    out->over = out->number <= c->checkpoints.over;
    out->failed = out->over && c->checkpoints.failed;
    out->text = out->over ? c->checkpoints.text : out->text;
    return PS_OK;
}

int psd_checkpoint(struct psd_request *t)
{
    const Paramserver__V1__CheckpointRequest *r = (const Paramserver__V1__CheckpointRequest *)t->request;
    Paramserver__V1__CheckpointReply out = PARAMSERVER__V1__CHECKPOINT_REPLY__INIT;
    out.generation = t->core->generation;
    if (psd_request_find_job(t, r->job))
        return (int)t->error.code;
    pthread_mutex_lock(&t->job->lock);
    int code = PS_OK;
    if (!t->job->control)
        code = (int)ps_fail(&t->error, PS_FAILED_PRECONDITION, "checkpoints are asked of ps task 0, this is %" PRIu32,
                            t->core->config.task);
    else
        code = (int)checkpoint_request(t, r, &out);
    if (code == PS_OK)
        code = psd_request_reply(t, &out.base, NULL);
    pthread_mutex_unlock(&t->job->lock);
    return code;
}

// ---- StopJob ------------------------------------------------------------------------------------------------------

int psd_stop_job(struct psd_request *t)
{
    const Paramserver__V1__StopJobRequest *r = (const Paramserver__V1__StopJobRequest *)t->request;
    Paramserver__V1__StopJobReply out = PARAMSERVER__V1__STOP_JOB_REPLY__INIT;
    pthread_mutex_lock(&t->core->table.lock);
    struct psd_job *job = psd_job_lookup(&t->core->table, r->job);
    if (job)
        psd_job_take_out(&t->core->table, job, "it was stopped", &t->gone, &t->ready);
    pthread_mutex_unlock(&t->core->table.lock);
    if (!job)
        return ps_fail(&t->error, PS_NOT_FOUND, "ps task %" PRIu32 " has no job '%.128s'", t->core->config.task,
                       r->job);
    psd_drop_gone(t);
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}
