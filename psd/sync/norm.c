// SPDX-License-Identifier: Apache-2.0
#include "psd/sync/norm.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "psd/job/host.h"
#include "psd/job/hyper.h"
#include "psd/sync/round.h"

size_t psd_norm_bytes(const struct psd_job *job, uint32_t task)
{
    size_t here = sizeof(struct psd_norm);
    if (task == 0)
        here += job->n_partitions * 2 * sizeof(struct psd_norm_sum) +
                (job->n_variables + 1) * 2 * sizeof(struct psd_norm_group);
    return here;
}

enum ps_code psd_norm_create(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    struct psd_norm *norms = ps_try_alloc(sizeof *norms);
    if (!norms)
        return ps_no_memory(e, "clipping by norm");
    pthread_mutex_init(&norms->lock, NULL);
    norms->run = atomic_load(&job->run);
    job->norms = norms;
    if (task != 0)
        return PS_OK;
    norms->sums = ps_try_alloc_array(job->n_partitions, sizeof *norms->sums);
    norms->groups = ps_try_alloc_array((size_t)job->n_variables + 1, sizeof *norms->groups);
    if (!norms->sums || !norms->groups)
        return ps_no_memory(e, "the norms of the partitions");
    for (uint32_t i = 0; i < job->n_variables; i++)
        if (job->variables[i].rule && psd_clips_with_model(&job->variables[i]))
            norms->in_model += job->variables[i].n_partitions;
    return PS_OK;
}

void psd_norm_destroy(struct psd_job *job)
{
    struct psd_norm *norms = job->norms;
    if (!norms)
        return;
    job->norms = NULL;
    free(norms->sums);
    free(norms->groups);
    pthread_mutex_destroy(&norms->lock);
    free(norms);
}

void psd_norm_reset(struct psd_job *job, struct psd_call **ready)
{
    struct psd_norm *norms = job->norms;
    if (!norms)
        return;
    pthread_mutex_lock(&norms->lock);
    norms->run = atomic_load(&job->run);
    norms->due = NULL;
    norms->asking = 0;
    norms->telling = false;
    if (norms->sums) {
        memset(norms->sums, 0, job->n_partitions * sizeof *norms->sums);
        memset(norms->groups, 0, ((size_t)job->n_variables + 1) * sizeof *norms->groups);
    }
    psd_ready_all(ready, &norms->waiting);
    pthread_mutex_unlock(&norms->lock);
}

// ---- sums ---------------------------------------------------------------------------------------------------------

static struct psd_norm_group *group_of(const struct psd_job *job, const struct psd_partition *p, bool of_model,
                                       uint64_t round)
{
    return &job->norms->groups[of_model ? job->n_variables : p->variable][round % 2];
}

static uint32_t group_size(const struct psd_job *job, const struct psd_partition *p, bool of_model)
{
    return of_model ? job->norms->in_model : job->variables[p->variable].n_partitions;
}

// In the order of the partitions. Every one of the group is there.
static double group_add_up(const struct psd_job *job, const struct psd_partition *p, bool of_model, uint64_t round)
{
    const struct psd_variable *v = &job->variables[p->variable];
    uint32_t first = of_model ? 0 : v->first_partition, n = of_model ? job->n_partitions : v->n_partitions;
    double total = 0;
    for (uint32_t i = first; i < first + n; i++) {
        const struct psd_variable *whose = &job->variables[job->partitions[i].variable];
        if (!of_model || (whose->rule && psd_clips_with_model(whose)))
            total += job->norms->sums[i][round % 2].value;
    }
    return total;
}

bool psd_norm_record(struct psd_job *job, uint32_t partition, bool of_model, uint64_t round, double value)
{
    const struct psd_partition *p = &job->partitions[partition];
    struct psd_norm_sum *sum = &job->norms->sums[partition][round % 2];
    struct psd_norm_group *g = group_of(job, p, of_model, round);
    if (sum->round >= round || g->round > round)
        return false;
    *sum = (struct psd_norm_sum){round, value};
    if (g->round != round)
        *g = (struct psd_norm_group){.round = round};
    g->in++;
    if (g->in < group_size(job, p, of_model))
        return false;
    g->total = group_add_up(job, p, of_model, round);
    return true;
}

bool psd_norm_total(const struct psd_job *job, uint32_t partition, bool of_model, uint64_t round, double *total)
{
    const struct psd_partition *p = &job->partitions[partition];
    const struct psd_norm_group *g = group_of(job, p, of_model, round);
    *total = g->total;
    return g->round == round && g->in == group_size(job, p, of_model);
}

bool psd_norm_is_past(const struct psd_job *job, uint32_t partition, uint64_t round)
{
    return job->norms->sums[partition][round % 2].round > round;
}

// ---- rounds that are due ------------------------------------------------------------------------------------------

static uint32_t index_of(const struct psd_job *job, const struct psd_round *round)
{
    return (uint32_t)(round->partition - job->partitions);
}

static bool is_of_model(const struct psd_round *round)
{
    return round->clip.by == PSD_CLIP_MODEL;
}

static void due_add(struct psd_norm *norms, struct psd_round *round)
{
    round->next_due = norms->due;
    norms->due = round;
}

void psd_norm_make_due(struct psd_job *job, struct psd_round *round)
{
    pthread_mutex_lock(&job->norms->lock);
    round->recorded = false;
    due_add(job->norms, round);
    pthread_mutex_unlock(&job->norms->lock);
}

static const struct psd_round *due_unrecorded(const struct psd_norm *norms)
{
    const struct psd_round *r = norms->due;
    while (r && r->recorded)
        r = r->next_due;
    return r;
}

// Messages that ask, at most: of a job; of all jobs, by all tasks together, and what that comes to for each of them.
// The smallest psd takes 16 calls of a connection: server_calls_per_connection.
enum { ASKING = 2, ASKING_OF_ALL = 64, ASKING_LEAST = 2, ASKING_MOST = 8 };

bool psd_norm_is_due(struct psd_job *job)
{
    struct psd_norm *norms = job->norms;
    pthread_mutex_lock(&norms->lock);
    bool is = norms->due;
    if (is && job->host->task != 0)
        is = norms->asking < ASKING || (!norms->telling && due_unrecorded(norms));
    pthread_mutex_unlock(&norms->lock);
    return is;
}

bool psd_norm_is_of_run(struct psd_job *job, uint64_t run)
{
    pthread_mutex_lock(&job->norms->lock);
    bool same = job->norms->run == run;
    pthread_mutex_unlock(&job->norms->lock);
    return same;
}

static bool norm_begin_asking(struct psd_job *job)
{
    const uint32_t share = ASKING_OF_ALL / job->host->tasks;
    const uint32_t most = share < ASKING_LEAST ? ASKING_LEAST : share < ASKING_MOST ? share : ASKING_MOST;
    if (job->norms->asking == ASKING)
        return false;
    if (atomic_fetch_add(job->host->asking, 1) >= most) {
        atomic_fetch_sub(job->host->asking, 1);
        return false;
    }
    job->norms->asking++;
    return true;
}

// The first round that the next message is for. NULL: none may be sent.
static const struct psd_round *norm_begin_with(struct psd_job *job, struct psd_norm_message *m)
{
    struct psd_norm *norms = job->norms;
    const struct psd_round *first = norms->due;
    m->at_once = first && !norm_begin_asking(job);
    if (!m->at_once)
        return first;
    first = norms->telling ? NULL : due_unrecorded(norms);
    norms->telling |= first != NULL;
    return first;
}

bool psd_norm_begin_message(struct psd_job *job, struct psd_norm_message *m)
{
    struct psd_norm *norms = job->norms;
    m->n = 0;
    pthread_mutex_lock(&norms->lock);
    const struct psd_round *first = norm_begin_with(job, m);
    struct psd_round **at = &norms->due, *r;
    m->run = norms->run;
    m->round = first ? first->number : 0;
    while (first && (r = *at) && m->n < PSD_NORM_PER_MESSAGE) {
        if (r->number != m->round || (m->at_once && r->recorded)) {
            at = &r->next_due;
            continue;
        }
        *at = r->next_due;
        m->rounds[m->n++] = r;
    }
    pthread_mutex_unlock(&norms->lock);
    return first;
}

void psd_norm_end_message(struct psd_job *job, const struct psd_norm_message *m, bool recorded)
{
    struct psd_norm *norms = job->norms;
    if (!m->at_once)
        atomic_fetch_sub(job->host->asking, 1);
    pthread_mutex_lock(&norms->lock);
    const bool of_run = norms->run == m->run;
    if (of_run && m->at_once)
        norms->telling = false;
    else if (of_run)
        norms->asking--;
    for (uint32_t i = 0; of_run && i < m->n; i++) {
        m->rounds[i]->recorded = recorded;
        due_add(norms, m->rounds[i]);
    }
    pthread_mutex_unlock(&norms->lock);
}

void psd_norm_tell_again(struct psd_job *job)
{
    pthread_mutex_lock(&job->norms->lock);
    for (struct psd_round *r = job->norms->due; r; r = r->next_due)
        r->recorded = false;
    pthread_mutex_unlock(&job->norms->lock);
}

struct psd_round *psd_norm_take_known(struct psd_job *job, uint64_t *number, double *total)
{
    struct psd_norm *norms = job->norms;
    pthread_mutex_lock(&norms->lock);
    struct psd_round **at = &norms->due, *found;
    while (*at && !psd_norm_total(job, index_of(job, *at), is_of_model(*at), (*at)->number, total))
        at = &(*at)->next_due;
    found = *at;
    if (found) {
        *at = found->next_due;
        *number = found->number;
    }
    pthread_mutex_unlock(&norms->lock);
    return found;
}

// They are there at once, so that only the first look counts.
void psd_norm_record_due(struct psd_job *job, struct psd_call **ready)
{
    struct psd_norm *norms = job->norms;
    bool completed = false;
    pthread_mutex_lock(&norms->lock);
    for (struct psd_round *r = norms->due; r; r = r->next_due)
        completed |= psd_norm_record(job, index_of(job, r), is_of_model(r), r->number, r->square);
    if (completed)
        psd_ready_all(ready, &norms->waiting);
    pthread_mutex_unlock(&norms->lock);
}

// ---- who waits ----------------------------------------------------------------------------------------------------

void psd_norm_walk(struct psd_job *job, const struct psd_look *look)
{
    if (!job->norms)
        return;
    pthread_mutex_lock(&job->norms->lock);
    bool wanted = job->norms->waiting.n && look->look(&job->norms->waiting, look->arg);
    pthread_mutex_unlock(&job->norms->lock);
    if (wanted)
        psd_look_report(look, job, "the norm of a gradient", "the other ps tasks' part of it");
}
