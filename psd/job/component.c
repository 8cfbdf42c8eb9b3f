// SPDX-License-Identifier: Apache-2.0
#include "psd/job/component.h"

#include "psd/job/host.h"

// psd_host.components: from the highest down, ends with NULL.
typedef const struct psd_component *const *component_list;

bool psd_components_bytes(const struct psd_job *job, uint32_t task, size_t *bytes)
{
    for (component_list c = job->host->components; *c; c++)
        if ((*c)->bytes && !(*c)->bytes(job, task, bytes))
            return false;
    return true;
}

enum ps_code psd_components_create(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    for (component_list c = job->host->components; *c; c++)
        if ((*c)->create && (*c)->create(job, task, e))
            return e->code;
    return PS_OK;
}

void psd_components_destroy(struct psd_job *job)
{
    for (component_list c = job->host->components; *c; c++)
        if ((*c)->destroy)
            (*c)->destroy(job);
}

void psd_components_free(struct psd_job *job)
{
    for (component_list c = job->host->components; *c; c++)
        if ((*c)->free)
            (*c)->free(job);
}

void psd_job_begin_run(struct psd_job *job, struct psd_call **ready)
{
    size_t n = 0;
    while (job->host->components[n])
        n++;
    while (n--)
        if (job->host->components[n]->begin_run)
            job->host->components[n]->begin_run(job, ready);
}

uint64_t psd_job_tick(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    uint64_t earliest = UINT64_MAX;
    for (component_list c = job->host->components; *c; c++) {
        const uint64_t due = (*c)->tick ? (*c)->tick(job, now, ready) : UINT64_MAX;
        earliest = due < earliest ? due : earliest;
    }
    return earliest;
}

// ---- calls that wait ----------------------------------------------------------------------------------------------

void psd_job_walk(struct psd_job *job, const struct psd_look *look)
{
    pthread_mutex_lock(&job->lock);
    bool wanted = job->waiting.n && look->look(&job->waiting, look->arg);
    pthread_mutex_unlock(&job->lock);
    if (wanted)
        psd_look_report(look, job, "the job to be declared", "the chief");
    for (component_list c = job->host->components; *c; c++)
        if ((*c)->walk)
            (*c)->walk(job, look);
}

static bool component_collect(struct psd_waiters *list, void *ready)
{
    psd_ready_all(ready, list);
    return false;
}

void psd_job_collect(struct psd_job *job, struct psd_call **ready)
{
    psd_job_walk(job, &(struct psd_look){.look = component_collect, .arg = ready});
}

// ---- questions ----------------------------------------------------------------------------------------------------

bool psd_job_is_over(const struct psd_job *job)
{
    if (psd_job_has_failed(job))
        return true;
    for (component_list c = job->host->components; *c; c++)
        if ((*c)->is_over && (*c)->is_over(job))
            return true;
    return false;
}

void psd_job_name_worker(struct psd_job *job, uint32_t rank, char *text, size_t size)
{
    for (component_list c = job->host->components; *c; c++)
        if ((*c)->name_worker)
            (*c)->name_worker(job, rank, text, size);
}

void psd_job_name_holder(struct psd_job *job, uint64_t round, char *text, size_t size)
{
    text[0] = '\0';
    for (component_list c = job->host->components; *c; c++)
        if ((*c)->name_holder)
            (*c)->name_holder(job, round, text, size);
}
