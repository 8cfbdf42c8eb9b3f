// SPDX-License-Identifier: Apache-2.0
//
// The rounds and norms of a job as one of its components: they are counted, made with its declaration, and end with it.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "psd/sync/norm.h"
#include "psd/sync/sync.h"

// ---- with the declaration -----------------------------------------------------------------------------------------

static bool sync_bytes(const struct psd_job *job, uint32_t task, size_t *bytes)
{
    struct psd_sync_room room;
    if (!psd_job_is_sync(job))
        return true;
    return psd_sync_count(job, task, &room) && !__builtin_add_overflow(*bytes, room.once, bytes) &&
           !__builtin_add_overflow(*bytes, room.gradients, bytes);
}

static enum ps_code sync_create(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    if (!psd_job_is_sync(job))
        return PS_OK;
    if (psd_sync_make(job, task, e))
        return e->code;
    for (uint32_t i = 0; i < job->n_partitions; i++)
        job->partitions[i].round = job->partitions[i].made;
    return PS_OK;
}

// ---- the job's life -----------------------------------------------------------------------------------------------

// As it was declared, whatever it has become in the run before.
static void sync_begin_run(struct psd_job *job, struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    for (uint32_t i = 0; i < job->n_partitions; i++)
        if (job->partitions[i].made)
            psd_round_reset(job->partitions[i].made, ready);
    if (psd_job_is_sync(job) && job->update != PARAMSERVER__V1__UPDATE__SYNC)
        psd_sync_end(job, ready);
    else if (!psd_job_is_sync(job) && job->update == PARAMSERVER__V1__UPDATE__SYNC)
        psd_sync_begin(job, 1);
    psd_sync_give_up(job);
    psd_norm_reset(job, ready);  // a job that has just left its rounds keeps its norms, too
    pthread_mutex_unlock(&job->lock);
}

// When the first of the rounds that wait for late gradients does so no more.
static uint64_t sync_tick_grace(struct psd_job *job)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; atomic_load(&job->declared) && job->grace_ms && i < job->n_partitions; i++) {
        const uint64_t its = job->partitions[i].round ? psd_round_tick(job->partitions[i].round) : UINT64_MAX;
        due = its < due ? its : due;
    }
    return due;
}

// A round that has not closed by itself, for want of memory or of a norm, is tried again at every tick.
static uint64_t sync_tick(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    bool open = true;
    const uint64_t due = sync_tick_grace(job);
    if (atomic_load(&job->declared) && psd_job_is_sync(job))
        psd_norm_tell_again(job);
    psd_sync_advance_all(job, ready);
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions && open; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (!round)
            continue;
        pthread_mutex_lock(&round->lock);
        open = round->state == PSD_ROUND_OPEN && !round->abandoned && !psd_round_work(round, true);
        pthread_mutex_unlock(&round->lock);
    }
    return open ? due : now;
}

// ---- who waits ----------------------------------------------------------------------------------------------------

// The workers that the open round waits for. NULL: no memory. The round's lock is held.
static bool *round_missing(const struct psd_round *round)
{
    bool *missing = ps_try_alloc_array(round->workers, sizeof *missing);
    for (uint32_t rank = 0; missing && rank < round->workers; rank++)
        missing[rank] = psd_round_misses(round, rank);
    return missing;
}

static void round_walk(struct psd_job *job, struct psd_round *round, const struct psd_look *look)
{
    char what[PSD_WAIT_TEXT_MAX], whom[PSD_WAIT_TEXT_MAX] = "";
    pthread_mutex_lock(&round->lock);
    bool wanted = round->waiting.n && look->look(&round->waiting, look->arg);
    uint64_t number = round->closed + 1;
    bool *missing = wanted ? round_missing(round) : NULL;
    pthread_mutex_unlock(&round->lock);
    if (!wanted)
        return;
    pthread_mutex_lock(&job->lock);
    for (uint32_t rank = 0; missing && rank < round->workers; rank++)
        if (missing[rank])
            psd_job_name_worker(job, rank, whom, sizeof whom);
    pthread_mutex_unlock(&job->lock);
    free(missing);
    if (!whom[0])
        psd_job_name_holder(job, number, whom, sizeof whom);
    snprintf(what, sizeof what, "round %" PRIu64 " of '%.180s'", number,
             job->variables[round->partition->variable].name);
    ps_utf8_repair(what);
    psd_look_report(look, job, what, whom);
}

static void sync_walk(struct psd_job *job, const struct psd_look *look)
{
    if (!atomic_load(&job->declared))
        return;
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (round)
            round_walk(job, round, look);
    }
    if (psd_job_is_sync(job))
        psd_norm_walk(job, look);
}

const struct psd_component psd_sync_component = {.name = "sync",
                                                 .bytes = sync_bytes,
                                                 .create = sync_create,
                                                 .destroy = psd_sync_destroy,
                                                 .begin_run = sync_begin_run,
                                                 .tick = sync_tick,
                                                 .walk = sync_walk};
