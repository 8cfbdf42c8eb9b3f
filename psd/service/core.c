// SPDX-License-Identifier: Apache-2.0
//
// The core: it is made and ended, ticks, and drains.
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "psd/control/agree.h"
#include "psd/control/state.h"
#include "psd/job/staging.h"
#include "psd/service/service.h"
#include "psd/service/waits.h"
#include "psd/sync/sync.h"

// What each job of this task consists of, besides its blocks.
static const struct psd_component *const components[] = {
    &psd_control_component,
    &psd_agree_component,
    &psd_sync_component,
    &psd_staging_component,
    &psd_clients_component,
    &psd_watch_component,
    NULL,
};

static void core_run_ready(void *core, struct psd_call *ready)
{
    psd_run_ready(core, ready);
}

static void core_init_host(struct psd_core *core)
{
    const struct psd_world *world = &core->world;
    core->host = (struct psd_host){.task = core->config.task,
                                   .tasks = core->config.tasks,
                                   .dead_after_ms = core->config.dead_after_ms,
                                   .workers = world->workers,
                                   .pool = &core->pool,
                                   .components = components,
                                   .world = world->ctx,
                                   .now = world->now,
                                   .send = world->send,
                                   .core = core,
                                   .run_ready = core_run_ready};
    pthread_mutex_init(&core->host.cancelling, NULL);
}

enum ps_code psd_core_create(const struct psd_config *config, const struct psd_world *world, struct psd_core **out,
                             struct ps_error *e)
{
    if (config->tasks == 0 || config->task >= config->tasks)
        return ps_fail(e, PS_INVALID_ARGUMENT, "ps task %" PRIu32 " of %" PRIu32 ": expected one below the number",
                       config->task, config->tasks);
    struct psd_core *core = ps_try_alloc(sizeof *core);
    if (!core)
        return ps_no_memory(e, "the core");
    core->config = *config;
    core->world = *world;
    core->started = core->rates_at = world->now(world->ctx);
    while (core->generation == 0)
        core->generation = world->random(world->ctx);
    psd_pool_init(&core->pool, config->memory_bytes);
    core_init_host(core);
    psd_table_init(&core->table, &core->host, world->wall ? world->wall(world->ctx) * 1000 : 0);
    psd_snapshots_init(&core->snapshots, &core->pool);
    pthread_mutex_init(&core->tick_lock, NULL);
    *out = core;
    return PS_OK;
}

void psd_core_destroy(struct psd_core *core)
{
    psd_snapshots_fini(&core->snapshots);
    psd_table_fini(&core->table);
    psd_pool_fini(&core->pool);
    pthread_mutex_destroy(&core->tick_lock);
    pthread_mutex_destroy(&core->host.cancelling);
    free(core);
}

// ---- time ---------------------------------------------------------------------------------------------------------

static void tick_rates(struct psd_job *job, double seconds)
{
    uint64_t updates = atomic_load(&job->updates), bytes = atomic_load(&job->bytes_moved);
    pthread_mutex_lock(&job->lock);
    job->updates_per_second = (double)(updates - job->last_updates) / seconds;
    job->bytes_per_second = (double)(bytes - job->last_bytes) / seconds;
    job->last_updates = updates;
    job->last_bytes = bytes;
    pthread_mutex_unlock(&job->lock);
}

static void tick_job(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    psd_job_tick(job, now, ready);
    psd_waits_end_late(core, job, now);
    if (atomic_load(&job->failed) == 2)
        psd_job_collect(job, ready);
}

// What is done every second. Tick lock held.
static void tick_second(struct psd_core *core, const struct psd_jobs *jobs, uint64_t now)
{
    if (now - core->rates_at < PS_SECOND)
        return;
    for (size_t i = 0; i < jobs->n; i++) {
        tick_rates(jobs->v[i], (double)(now - core->rates_at) / (double)PS_SECOND);
        psd_waits_log_stalls(core, jobs->v[i], now);
    }
    psd_waits_log_stalls(core, NULL, now);
    core->rates_at = now;
}

// Ticks that come late mean that this process was stopped or had no processor: nobody was heard meanwhile.
enum { LATE_TICK_MS = 500 };

void psd_core_tick(struct psd_core *core)
{
    struct psd_call *ready = NULL;
    struct psd_jobs jobs;
    pthread_mutex_lock(&core->tick_lock);
    uint64_t now = psd_now(core);
    if (core->ticked_at && now - core->ticked_at > LATE_TICK_MS * PS_MS)
        core->host.slept += now - core->ticked_at;
    core->ticked_at = now;
    if (psd_jobs_hold(&core->table, "", &jobs, NULL) == PS_OK) {
        for (size_t i = 0; i < jobs.n; i++)
            tick_job(core, jobs.v[i], now, &ready);
        tick_second(core, &jobs, now);
        psd_jobs_release(&jobs);
    }
    pthread_mutex_unlock(&core->tick_lock);
    psd_waits_end_late(core, NULL, now);
    psd_snapshots_expire(&core->snapshots, now, NULL);
    psd_run_ready(core, ready);
}

// Wakes every parked call; each tries to park again, and is refused because this task drains.
void psd_core_drain(struct psd_core *core)
{
    struct psd_call *all = NULL;
    atomic_store(&core->draining, true);
    pthread_mutex_lock(&core->table.lock);
    for (struct psd_job *job = core->table.newest; job; job = job->older)
        psd_job_collect(job, &all);
    psd_ready_all(&all, &core->table.joining);
    pthread_mutex_unlock(&core->table.lock);
    psd_run_ready(core, all);
}
