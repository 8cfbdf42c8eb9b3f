// SPDX-License-Identifier: Apache-2.0
#include "psd/job/job.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/order.h"
#include "common/base/utf8.h"
#include "psd/job/component.h"
#include "psd/job/declaration.h"
#include "psd/job/host.h"
#include "psd/job/users.h"

// NULL: no memory.
struct psd_job *psd_job_new(const char *name, const struct ps_identity *from, struct psd_host *host)
{
    struct psd_job *job = ps_try_alloc(sizeof *job);
    pthread_rwlockattr_t attr;
    if (!job || !(job->name = ps_try_strdup(name)) || !(job->user = psd_users_find(host->users, from))) {
        free(job ? job->name : NULL);
        free(job);
        return NULL;
    }
    job->host = host;
    atomic_init(&job->place, PS_NO_ITEM);
    atomic_init(&job->late_at, UINT64_MAX);
    atomic_init(&job->stalled_at, UINT64_MAX);
    job->pool = host->pool;
    job->refs = job->keepers = 1;
    psd_clients_init(&job->clients);
    job->store = (struct psd_store){.pool = host->pool, .oldest = psd_clients_oldest, .clients = &job->clients};
    pthread_mutex_init(&job->lock, NULL);
    pthread_mutex_init(&job->staging, NULL);
    pthread_mutex_init(&job->ending, NULL);
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&job->snapshot_lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    return job;
}

void psd_job_free(struct psd_job *job)
{
    psd_job_undeclare(job);
    psd_components_free(job);
    if (atomic_load(&job->declared))
        psd_pool_retire(job->pool);
    pthread_rwlock_destroy(&job->snapshot_lock);
    pthread_mutex_destroy(&job->ending);
    pthread_mutex_destroy(&job->staging);
    pthread_mutex_destroy(&job->lock);
    free(job->name);
    psd_users_let_go(job->host->users, job->user);
    psd_job_forget(job);
}

void psd_job_keep(struct psd_job *job)
{
    atomic_fetch_add(&job->keepers, 1);
}

void psd_job_forget(struct psd_job *job)
{
    if (atomic_fetch_sub(&job->keepers, 1) == 1)
        free(job);
}

bool psd_job_try_ref(struct psd_job *job)
{
    int refs = atomic_load(&job->refs);
    while (refs && !atomic_compare_exchange_weak(&job->refs, &refs, refs + 1))
        continue;
    return refs != 0;
}

static bool job_end(struct psd_job *job, uint64_t run, const char *reason, bool interrupted, enum ps_log_level level)
{
    pthread_mutex_lock(&job->ending);
    bool fails = !psd_job_has_failed(job) && atomic_load(&job->run) == run;
    if (fails) {
        ps_utf8_cut(reason, job->failure, sizeof job->failure);
        atomic_store(&job->interrupted, interrupted);
        atomic_store(&job->failed, true);
        // Elsewhere than at task 0 one that is not declared is a declaration that is refused: who refuses it logs that.
        if (job->host->task == 0 || atomic_load(&job->declared))
            ps_log(level, "job '%s' has ended: %s", job->name, job->failure);
    }
    pthread_mutex_unlock(&job->ending);
    return fails;
}

bool psd_job_end(struct psd_job *job, uint64_t run, const char *reason, bool interrupted)
{
    return job_end(job, run, reason, interrupted, atomic_load(&job->stopped) ? PS_LOG_INFO : PS_LOG_WARNING);
}

void psd_job_let_go(struct psd_job *job, const char *why)
{
    job_end(job, atomic_load(&job->run), why, false, PS_LOG_INFO);
}

bool psd_job_fail(struct psd_job *job, uint64_t run, const char *reason)
{
    return psd_job_end(job, run, reason, false);
}

void psd_job_stop(struct psd_job *job, const char *why)
{
    atomic_store(&job->stopped, true);
    psd_job_fail(job, atomic_load(&job->run), why);
}

void psd_job_set_run(struct psd_job *job, uint64_t run, bool failed)
{
    pthread_mutex_lock(&job->ending);
    atomic_store(&job->run, run);
    if (!failed)
        atomic_store(&job->failed, false);
    pthread_mutex_unlock(&job->ending);
}

const char *psd_update_name(Paramserver__V1__Update update)
{
    return update == PARAMSERVER__V1__UPDATE__ASYNC  ? "async"
           : update == PARAMSERVER__V1__UPDATE__SYNC ? "sync"
           : update == PARAMSERVER__V1__UPDATE__SSP  ? "ssp"
                                                     : "none";
}
