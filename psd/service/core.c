// SPDX-License-Identifier: Apache-2.0
//
// The core: it is made and ended, ticks, and drains.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/file/output.h"
#include "psd/control/agree.h"
#include "psd/control/state.h"
#include "psd/job/staging.h"
#include "psd/job/trace.h"
#include "psd/queue/queue.h"
#include "psd/service/file_thread.h"
#include "psd/service/service.h"
#include "psd/service/waits.h"
#include "psd/sync/sync.h"

// What each job of this task consists of, besides its blocks.
static const struct psd_component *const components[] = {
    &psd_control_component, &psd_agree_component, &psd_sync_component,  &psd_staging_component,
    &psd_clients_component, &psd_trace_component, &psd_watch_component, NULL,
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
                                   .asking = &core->asking,
                                   .pool = &core->pool,
                                   .components = components,
                                   .users = &core->users,
                                   .world = world->ctx,
                                   .now = world->now,
                                   .send = world->send,
                                   .core = core,
                                   .run_ready = core_run_ready};
    pthread_mutex_init(&core->host.cancelling, NULL);
}

// The queue of the core's folder, if it has one, and the thread for its files.
static enum ps_code core_open_queue(struct psd_core *core, struct ps_error *e)
{
    const struct psd_file_thread_work work = {core, psd_run_ready, psd_pass_time_in_queue, 0};
    if (!core->config.queue || core->config.task)
        return PS_OK;
    if (psd_queue_open(core->config.queue, psd_now(core), &core->queue, e))
        return e->code;
    core->others = ps_try_alloc_array(core->config.tasks, sizeof *core->others);
    if (!core->others)
        return ps_no_memory(e, "the other ps tasks");
    psd_note_queue(core);
    return psd_file_thread_start(&work, &core->file_thread, e);
}

// The thread that writes shards of checkpoints, if the core has a folder for them. Trainings go first.
static enum ps_code core_open_shards(struct psd_core *core, struct ps_error *e)
{
    enum { SHARDS_NICE = 10 };
    const struct psd_file_thread_work work = {core, psd_run_ready, NULL, SHARDS_NICE};
    const char *folder = core->config.checkpoints;
    if (!folder)
        return PS_OK;
    if (ps_make_folder(folder, e))
        return ps_error_prefix(e, "--checkpoints");
    if (access(folder, R_OK | W_OK | X_OK))
        return ps_fail(e, PS_PERMISSION_DENIED, "--checkpoints: %s: %s: expected a folder that can be written", folder,
                       strerror(errno));
    return psd_file_thread_start(&work, &core->shard_thread, e);
}

static void core_close_files(struct psd_core *core)
{
    psd_file_thread_stop(core->shard_thread);
    psd_file_thread_free(core->shard_thread);
    psd_file_thread_stop(core->file_thread);
    psd_file_thread_free(core->file_thread);
    psd_queue_close(core->queue);
    free(core->leftover.job);
    free(core->others);
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
    core->started = core->logged_at = world->now(world->ctx);
    while (core->generation == 0)
        core->generation = world->random(world->ctx);
    psd_pool_init(&core->pool, config->memory_bytes);
    psd_users_init(&core->users, config->user_jobs, config->user_bytes);
    core_init_host(core);
    if (!psd_table_init(&core->table, &core->host, world->wall ? world->wall(world->ctx) * 1000 : 0)) {
        free(core);
        return ps_no_memory(e, "the job table");
    }
    psd_snapshots_init(&core->snapshots, &core->pool);
    pthread_mutex_init(&core->tick_lock, NULL);
    if (core_open_queue(core, e) || core_open_shards(core, e)) {
        psd_core_destroy(core);
        return e->code;
    }
    *out = core;
    return PS_OK;
}

void psd_core_destroy(struct psd_core *core)
{
    core_close_files(core);
    psd_snapshots_fini(&core->snapshots);
    psd_table_fini(&core->table);
    psd_users_fini(&core->users);
    psd_pool_fini(&core->pool);
    pthread_mutex_destroy(&core->tick_lock);
    pthread_mutex_destroy(&core->host.cancelling);
    free(core);
}

// ---- time ---------------------------------------------------------------------------------------------------------

// Returns when it is to be called again; UINT64_MAX: when something has changed.
static uint64_t tick_rates(struct psd_job *job, uint64_t now)
{
    uint64_t updates = atomic_load(&job->updates), bytes = atomic_load(&job->bytes_moved), due = UINT64_MAX;
    pthread_mutex_lock(&job->lock);
    if (job->rates_at && now - job->rates_at >= PS_SECOND) {
        const double seconds = (double)(now - job->rates_at) / (double)PS_SECOND;
        job->updates_per_second = (double)(updates - job->last_updates) / seconds;
        job->bytes_per_second = (double)(bytes - job->last_bytes) / seconds;
        job->last_updates = updates;
        job->last_bytes = bytes;
        job->rates_at = job->bytes_per_second > 0 || job->updates_per_second > 0 ? now : 0;
    } else if (!job->rates_at && (updates != job->last_updates || bytes != job->last_bytes)) {
        job->rates_at = now;
    }
    if (job->rates_at)
        due = job->rates_at + PS_SECOND;
    pthread_mutex_unlock(&job->lock);
    return due;
}

// Returns when the job is to be looked at again though nobody uses it.
static uint64_t tick_job(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    uint64_t due = psd_job_tick(job, now, ready);
    const uint64_t waits = psd_waits_tick(core, job, now, due), rates = tick_rates(job, now);
    if (psd_job_has_failed(job))
        psd_job_collect(job, ready);
    due = waits < due ? waits : due;
    return rates < due ? rates : due;
}

// Of memory, given back to the system by each tick: in milliseconds.
enum { SHRINK_BYTES = 64 << 20 };

// Ticks that come late mean that this process was stopped or had no processor: nobody was heard meanwhile.
enum { LATE_TICK_MS = 500 };

void psd_core_tick(struct psd_core *core)
{
    struct psd_call *ready = NULL;
    pthread_mutex_lock(&core->tick_lock);
    const uint64_t now = psd_now(core), before = atomic_load(&core->host.ticked_at);
    if (before && now - before > LATE_TICK_MS * PS_MS)
        core->host.slept += now - before;
    atomic_store(&core->host.ticked_at, now);
    const uint32_t n = psd_table_take_due(&core->table, now, core->ticking);
    for (uint32_t i = 0; i < n; i++)
        psd_table_put_due(&core->table, core->ticking[i], tick_job(core, core->ticking[i], now, &ready));
    if (now - core->logged_at >= PS_SECOND) {
        psd_waits_log_stalls(core, NULL, now);
        psd_ask_who_drains(core);
        core->logged_at = now;
    }
    pthread_mutex_unlock(&core->tick_lock);
    psd_waits_end_late(core, NULL, now);
    psd_snapshots_expire(&core->snapshots, now, NULL);
    psd_pool_shrink(&core->pool, SHRINK_BYTES);
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
    psd_file_thread_stop(core->file_thread);
    psd_file_thread_stop(core->shard_thread);
}
