// SPDX-License-Identifier: Apache-2.0
//
// The rounds of a job that was not declared sync, or is not any more: their room, and when they begin and end.
#include <stdlib.h>

#include "psd/job/declaration.h"
#include "psd/job/host.h"
#include "psd/sync/norm.h"
#include "psd/sync/sync.h"

// ---- room ---------------------------------------------------------------------------------------------------------

static bool switch_has_round(const struct psd_job *job, const struct psd_partition *p, uint32_t task)
{
    return p->task == task && job->variables[p->variable].rule;
}

// With many workers and small variables this is most of what a job takes.
static bool switch_count_round(const struct psd_job *job, const struct psd_partition *p, struct psd_sync_room *room)
{
    const size_t size = psd_element_bytes(&job->variables[p->variable]), workers = job->workers;
    const size_t each = workers * PSD_ROUND_BYTES_PER_GRADIENT_BLOCK + PSD_ROUND_BYTES_PER_BLOCK;
    const size_t once = sizeof(struct psd_round) + workers * PSD_ROUND_BYTES_PER_WORKER;
    const size_t blocks = psd_partition_blocks(job, p);
    size_t values, pages, kept;
    return !__builtin_mul_overflow(p->count * size, workers, &values) &&
           !__builtin_mul_overflow(blocks, workers * PSD_PAGE_OVERHEAD, &pages) &&
           !__builtin_mul_overflow(blocks, each, &kept) &&
           !__builtin_add_overflow(room->gradients, values, &room->gradients) &&
           !__builtin_add_overflow(room->gradients, pages, &room->gradients) &&
           !__builtin_add_overflow(room->once, kept, &room->once) &&
           !__builtin_add_overflow(room->once, once, &room->once);
}

bool psd_sync_count(const struct psd_job *job, uint32_t task, struct psd_sync_room *room)
{
    *room = (struct psd_sync_room){0};
    for (uint32_t i = 0; i < job->n_partitions; i++)
        if (switch_has_round(job, &job->partitions[i], task) && !switch_count_round(job, &job->partitions[i], room))
            return false;
    return !__builtin_add_overflow(room->once, psd_norm_bytes(job, task), &room->once);
}

enum ps_code psd_sync_make(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_partition *p = &job->partitions[i];
        if (switch_has_round(job, p, task) && !p->made && psd_round_create(job, p, &p->made, e))
            return e->code;
    }
    return job->norms ? PS_OK : psd_norm_create(job, task, e);
}

void psd_sync_destroy(struct psd_job *job)
{
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        job->partitions[i].round = NULL;
        psd_round_destroy(job->partitions[i].made);
        job->partitions[i].made = NULL;
    }
    psd_norm_destroy(job);
    psd_pool_give(job->pool, job->rounds_room);
    job->rounds_room = 0;
}

// Takes *room, less what is there already. False: *missing bytes lack.
static bool switch_take_room(struct psd_job *job, struct psd_sync_room *room, uint64_t *missing)
{
    size_t bytes, used = psd_pool_used(job->pool), limit = job->pool->limit, left = limit > used ? limit - used : 0;
    const bool counted = psd_sync_count(job, job->host->task, room);
    room->once = job->norms ? 0 : room->once;
    if (!counted || __builtin_add_overflow(room->once, room->gradients, &bytes)) {
        *missing = UINT64_MAX;
        return false;
    }
    *missing = bytes > left ? bytes - left : 1;  // what is left may have changed since it was looked at
    return psd_pool_take(job->pool, bytes);
}

bool psd_sync_keep(struct psd_job *job, uint64_t *missing)
{
    struct psd_sync_room room;
    struct ps_error e;
    if (job->keeps_rounds)
        return true;
    if (!switch_take_room(job, &room, missing))
        return false;
    if (psd_sync_make(job, job->host->task, &e)) {
        *missing = room.once + room.gradients;
        psd_pool_give(job->pool, *missing);
        psd_sync_destroy(job);  // nobody has seen them: the job has not been in rounds
        return false;
    }
    job->room += room.once;
    job->rounds_room = room.gradients;
    job->keeps_rounds = true;
    return true;
}

void psd_sync_give_up(struct psd_job *job)
{
    if (psd_job_is_sync(job) || job->update == PARAMSERVER__V1__UPDATE__SYNC)
        return;
    psd_pool_give(job->pool, job->rounds_room);
    job->rounds_room = 0;
    job->keeps_rounds = false;
}

// ---- begin, end ---------------------------------------------------------------------------------------------------

// Between two changes of blocks: a push that is to be applied on arrival looks once more before it is, and one that is
// for a round is told by the round.
static void switch_show(struct psd_job *job, bool in_rounds)
{
    pthread_rwlock_wrlock(&job->snapshot_lock);
    for (uint32_t i = 0; i < job->n_partitions; i++)
        job->partitions[i].round = in_rounds ? job->partitions[i].made : NULL;
    atomic_store(&job->in_rounds, in_rounds);
    pthread_rwlock_unlock(&job->snapshot_lock);
}

void psd_sync_begin(struct psd_job *job, uint64_t first)
{
    for (uint32_t i = 0; i < job->n_partitions; i++)
        if (job->partitions[i].made)
            psd_round_begin(job->partitions[i].made, first - 1);
    switch_show(job, true);
}

void psd_sync_end(struct psd_job *job, struct psd_call **ready)
{
    switch_show(job, false);
    for (uint32_t i = 0; i < job->n_partitions; i++)
        if (job->partitions[i].made)
            psd_round_end(job->partitions[i].made, ready);
    psd_sync_give_up(job);
}

bool psd_sync_settle(struct psd_job *job)
{
    bool settled = true;
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        settled &= !round || psd_round_settle(round);
    }
    return settled;
}
