// SPDX-License-Identifier: Apache-2.0
//
// Status and StopJob: what psctl asks a task.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "config.h"
#include "psd/service.h"

struct job_status {
    Paramserver__V1__JobStatus out;
    char reason[256];
};

static void count_partitions(struct psd_job *job, Paramserver__V1__JobStatus *out)
{
    uint64_t round = UINT64_MAX;
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_partition *p = &job->partitions[i];
        if (!p->blocks)
            continue;
        out->partitions++;
        out->variables += p->variable != last;
        last = p->variable;
        if (p->round) {
            pthread_mutex_lock(&p->round->lock);
            round = p->round->closed < round ? p->round->closed : round;
            out->waiting += p->round->waiting.n;
            pthread_mutex_unlock(&p->round->lock);
        }
    }
    out->round = round == UINT64_MAX ? 0 : round;
}

static void describe_job(struct psd_job *job, struct job_status *s)
{
    Paramserver__V1__JobStatus *out = &s->out;
    const char *state;
    paramserver__v1__job_status__init(out);
    psd_control_describe(job, &state, &out->live_workers, s->reason, sizeof s->reason);
    out->name = job->name;
    out->run_id = job->run_id;
    out->state = (char *)state;
    out->reason = s->reason;
    if (atomic_load(&job->declared)) {
        out->update = job->update;
        out->bytes = job->bytes;
        count_partitions(job, out);
    }
    out->waiting += psd_control_waiting(job);
    out->updates = atomic_load(&job->updates);
    out->duplicates = atomic_load(&job->duplicates);
    out->stale = atomic_load(&job->stale);
    pthread_mutex_lock(&job->lock);
    out->waiting += job->waiting.n;
    out->updates_per_second = job->updates_per_second;
    out->bytes_per_second = job->bytes_per_second;
    pthread_mutex_unlock(&job->lock);
}

// Table lock held. Returns the number of jobs described: all, or the one of that name.
static size_t describe_jobs(struct psd_core *core, const char *name, struct job_status *v,
                            Paramserver__V1__JobStatus **to)
{
    size_t n = 0;
    for (struct psd_job *job = core->jobs; job; job = job->next)
        if (!name[0] || strcmp(job->name, name) == 0) {
            describe_job(job, &v[n]);
            to[n] = &v[n].out;
            n++;
        }
    return n;
}

int psd_status(struct psd_turn *t)
{
    const Paramserver__V1__StatusRequest *r = (const Paramserver__V1__StatusRequest *)t->request;
    Paramserver__V1__StatusReply out = PARAMSERVER__V1__STATUS_REPLY__INIT;
    struct psd_core *core = t->core;
    size_t n = 0;
    out.generation = core->generation;
    out.version = (char *)PACKAGE_VERSION;
    out.task = core->config.task;
    out.uptime_ms = (core->world.now(core->world.ctx) - core->started) / PS_MS;
    out.resident_bytes = core->world.resident(core->world.ctx);
    out.block_bytes = psd_pool_used(&core->pool);
    out.limit_bytes = core->pool.limit;
    pthread_mutex_lock(&core->snapshot_lock);
    out.pinned_bytes = core->pinned;
    pthread_mutex_unlock(&core->snapshot_lock);
    pthread_mutex_lock(&core->table);
    for (struct psd_job *job = core->jobs; job; job = job->next)
        n++;
    struct job_status *v = ps_alloc(n * sizeof *v);
    out.jobs = ps_alloc(n * sizeof(void *));
    out.n_jobs = describe_jobs(core, r->job, v, out.jobs);
    int code = psd_turn_reply(t, &out.base, NULL);
    pthread_mutex_unlock(&core->table);
    free(out.jobs);
    free(v);
    return code;
}

int psd_stop_job(struct psd_turn *t)
{
    const Paramserver__V1__StopJobRequest *r = (const Paramserver__V1__StopJobRequest *)t->request;
    Paramserver__V1__StopJobReply out = PARAMSERVER__V1__STOP_JOB_REPLY__INIT;
    pthread_mutex_lock(&t->core->table);
    struct psd_job *job = psd_job_lookup(t->core, r->job);
    if (job) {
        job->refs++;
        t->gone = job;
        psd_job_remove(t->core, job, &t->ready);
    }
    pthread_mutex_unlock(&t->core->table);
    if (!job)
        return ps_fail(&t->error, PS_NOT_FOUND, "ps task %" PRIu32 " has no job '%.128s'", t->core->config.task,
                       r->job);
    psd_drop_gone(t);
    out.generation = t->core->generation;
    return psd_turn_reply(t, &out.base, NULL);
}
