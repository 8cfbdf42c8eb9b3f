// SPDX-License-Identifier: Apache-2.0
#include "psd/job/table.h"
#include "psd/job/users.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"

bool psd_table_init(struct psd_table *table, struct psd_host *host, uint64_t wall_us)
{
    if (!ps_heap_init(&table->due, PSD_MAX_JOBS)) {
        ps_heap_fini(&table->due);
        return false;
    }
    for (uint32_t i = 0; i < PSD_MAX_JOBS; i++)
        table->free_places[i] = i;
    table->host = host;
    pthread_mutex_init(&table->lock, NULL);
    psd_runs_init(&table->runs, wall_us);
    host->runs = &table->runs;
    host->touched = table->touched;
    return true;
}

void psd_table_fini(struct psd_table *table)
{
    while (table->newest) {
        struct psd_job *job = table->newest;
        table->newest = job->older;
        psd_job_free(job);
    }
    ps_heap_fini(&table->due);
    pthread_mutex_destroy(&table->lock);
}

// ---- the table: its lock is held ----------------------------------------------------------------------------------

static struct psd_job **table_bucket(struct psd_table *table, const char *name)
{
    return &table->buckets[ps_hash(PS_HASH_SEED, name, strlen(name)) & (PSD_TABLE_BUCKETS - 1)];
}

// The link that points to the job of this name, or the end of its bucket.
static struct psd_job **table_seek(struct psd_table *table, const char *name)
{
    struct psd_job **at = table_bucket(table, name);
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next_of_name;
    return at;
}

struct psd_job *psd_job_lookup(struct psd_table *table, const char *name)
{
    return *table_seek(table, name);
}

void psd_job_install(struct psd_table *table, struct psd_job *job)
{
    struct psd_job **bucket = table_bucket(table, job->name);
    job->next_of_name = *bucket;
    *bucket = job;
    job->older = table->newest;
    job->newer = NULL;
    *(table->newest ? &table->newest->newer : &table->oldest) = job;
    table->newest = job;
    const uint32_t place = table->free_places[PSD_MAX_JOBS - ++table->n];
    table->places[place] = job;
    atomic_store(&job->place, place);
    psd_job_touch(job);
}

static void table_vacate(struct psd_table *table, struct psd_job *job)
{
    const uint32_t place = atomic_exchange(&job->place, PS_NO_ITEM);
    ps_heap_drop(&table->due, place);
    table->places[place] = NULL;
    table->free_places[PSD_MAX_JOBS - table->n--] = place;
}

static bool table_job_is_over(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool over = psd_job_is_over(job);
    pthread_mutex_unlock(&job->lock);
    return over;
}

void psd_job_remove(struct psd_table *table, struct psd_job *job, const char *why, struct psd_call **ready)
{
    struct psd_job **at = table_seek(table, job->name);
    if (*at != job)
        return;
    *at = job->next_of_name;
    *(job->older ? &job->older->newer : &table->oldest) = job->newer;
    *(job->newer ? &job->newer->older : &table->newest) = job->older;
    table_vacate(table, job);
    // What the control task has never told of elsewhere may be no run that it gave out.
    if (atomic_load(&job->declared) && (table->host->task == 0 || job->view))
        psd_runs_remember(&table->runs, job->name, atomic_load(&job->run));
    if (table_job_is_over(job))
        psd_job_let_go(job, why);
    else
        psd_job_fail(job, atomic_load(&job->run), why);
    psd_job_collect(job, ready);
    job->refs--;
}

void psd_job_take_out(struct psd_table *table, struct psd_job *job, const char *why, struct psd_job **gone,
                      struct psd_call **ready)
{
    psd_job_ref(job);
    *gone = job;
    psd_job_stop(job, why);
    psd_job_remove(table, job, why, ready);
}

static bool job_is_void(struct psd_job *job)
{
    return table_job_is_over(job) && !job->declaring && !atomic_load(&job->declared);
}

bool psd_job_drop_void(struct psd_table *table, const char *account, struct psd_job **gone, struct psd_call **ready)
{
    struct psd_job *job = table->oldest;
    while (job && ((account && strcmp(job->user->account, account) != 0) || !job_is_void(job)))
        job = job->newer;
    if (!job)
        return false;
    psd_job_ref(job);
    *gone = job;
    psd_job_remove(table, job, "it was never declared, and another job needs its place", ready);
    return true;
}

static uint32_t table_count_jobs(const struct psd_table *table, const struct ps_identity *from)
{
    const char *account = ps_identity_account(from);
    uint32_t n = 0;
    for (const struct psd_job *job = table->newest; job; job = job->older)
        n += strcmp(job->user->account, account) == 0;
    return n;
}

enum ps_code psd_job_make_place(struct psd_table *table, const struct ps_identity *from, struct psd_job **gone,
                                struct psd_call **ready, struct ps_error *e)
{
    const struct psd_users *users = table->host->users;
    struct ps_error full = {.code = PS_OK};
    if (psd_users_check_jobs(users, from, table_count_jobs(table, from), &full) &&
        (*gone || !psd_job_drop_void(table, ps_identity_account(from), gone, ready) ||
         psd_users_check_jobs(users, from, table_count_jobs(table, from), &full))) {
        *e = full;
        return e->code;
    }
    if (table->n < PSD_MAX_JOBS || (!*gone && psd_job_drop_void(table, NULL, gone, ready)))
        return PS_OK;
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "ps task %" PRIu32 " has %" PRIu32 " jobs and takes no more: stop one",
                   table->host->task, table->n);
}

// ---- references ---------------------------------------------------------------------------------------------------

struct psd_job *psd_job_find(struct psd_table *table, const char *name)
{
    pthread_mutex_lock(&table->lock);
    struct psd_job *job = psd_job_lookup(table, name);
    if (job)
        psd_job_ref(job);
    pthread_mutex_unlock(&table->lock);
    return job;
}

void psd_job_ref(struct psd_job *job)
{
    atomic_fetch_add(&job->refs, 1);
}

// Who finds its bit set has made its changes before the tick that will clear it.
void psd_job_touch(struct psd_job *job)
{
    const uint32_t place = atomic_load_explicit(&job->place, memory_order_relaxed);
    if (place == PS_NO_ITEM)
        return;
    atomic_ullong *word = &job->host->touched[place / 64];
    const unsigned long long bit = 1ull << place % 64;
    if (!(atomic_load(word) & bit))
        atomic_fetch_or(word, bit);
}

// Without having used it.
static void job_let_go(struct psd_job *job)
{
    if (atomic_fetch_sub(&job->refs, 1) > 1)
        return;
    // Whoever cancels a call that was parked here may still want a lock of the job's.
    pthread_mutex_lock(&job->host->cancelling);
    pthread_mutex_unlock(&job->host->cancelling);
    psd_job_free(job);
}

void psd_job_unref(struct psd_job *job)
{
    if (!job)
        return;
    psd_job_touch(job);
    job_let_go(job);
}

enum ps_code psd_jobs_hold(struct psd_table *table, const char *name, struct psd_jobs *jobs, struct ps_error *e)
{
    *jobs = (struct psd_jobs){0};
    pthread_mutex_lock(&table->lock);
    jobs->v = ps_try_alloc_array(table->n, sizeof(struct psd_job *));
    struct psd_job *job = !jobs->v ? NULL : name[0] ? psd_job_lookup(table, name) : table->newest;
    for (; job; job = name[0] ? NULL : job->older) {
        psd_job_ref(job);
        jobs->v[jobs->n++] = job;
    }
    pthread_mutex_unlock(&table->lock);
    if (!jobs->v)
        return ps_no_memory(e, "a list of jobs");
    if (name[0] && jobs->n == 0) {
        psd_jobs_release(jobs);
        return ps_fail(e, PS_NOT_FOUND, "ps task %" PRIu32 " has no job '%.128s'", table->host->task, name);
    }
    return PS_OK;
}

void psd_jobs_release(struct psd_jobs *jobs)
{
    for (size_t i = 0; i < jobs->n; i++)
        psd_job_unref(jobs->v[i]);
    free(jobs->v);
    *jobs = (struct psd_jobs){0};
}

// ---- time ---------------------------------------------------------------------------------------------------------

// The table's lock is held. Takes a place's job in, unless there is none any more.
static void table_take(struct psd_table *table, uint32_t place, struct psd_job **jobs, uint32_t *n)
{
    struct psd_job *job = table->places[place];
    ps_heap_drop(&table->due, place);
    if (!job)
        return;
    psd_job_ref(job);
    jobs[(*n)++] = job;
}

uint32_t psd_table_take_due(struct psd_table *table, uint64_t now, struct psd_job *jobs[PSD_MAX_JOBS])
{
    uint32_t n = 0;
    pthread_mutex_lock(&table->lock);
    for (uint32_t i = 0; i < PSD_TABLE_WORDS; i++)
        for (unsigned long long bits = atomic_exchange(&table->touched[i], 0); bits; bits &= bits - 1)
            table_take(table, 64 * i + (uint32_t)__builtin_ctzll(bits), jobs, &n);
    while (ps_heap_least(&table->due) <= now)
        table_take(table, ps_heap_first(&table->due), jobs, &n);
    table->visited += n;
    pthread_mutex_unlock(&table->lock);
    return n;
}

void psd_table_put_due(struct psd_table *table, struct psd_job *job, uint64_t due)
{
    pthread_mutex_lock(&table->lock);
    const uint32_t place = atomic_load(&job->place);
    if (place != PS_NO_ITEM && due != UINT64_MAX)
        ps_heap_set(&table->due, place, due);
    pthread_mutex_unlock(&table->lock);
    job_let_go(job);
}
