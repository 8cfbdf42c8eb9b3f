// SPDX-License-Identifier: Apache-2.0
#include "psd/sync/norm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "psd/job/job.h"
#include "psd/service/service.h"

enum { PER_MESSAGE = 1024 };  // partitions

struct sum {
    uint64_t round;
    double value;
};

// The partitions whose sums are added up: those of a variable, or of the model.
struct group {
    uint64_t round;
    uint32_t in;  // how many sums of this round are there
    double total;
};

struct psd_norm {
    pthread_mutex_t lock;
    uint64_t run;           // grows with every new run: what was sent in an earlier one is void
    struct psd_round *due;  // they wait for their norm and are not on their way

    // At the control task; of round r in [r % 2].
    struct sum (*sums)[2];      // [n_partitions]
    struct group (*groups)[2];  // [n_variables + 1]: each variable, then the model
    uint32_t in_model;          // partitions that count in the norm of the model
    struct psd_waiters waiting;
};

static bool is_sync(const struct psd_job *job)
{
    return job->update == PARAMSERVER__V1__UPDATE__SYNC;
}

size_t psd_norm_bytes(const struct psd_job *job, uint32_t task)
{
    if (!is_sync(job))
        return 0;
    size_t here = sizeof(struct psd_norm);
    if (task == 0)
        here += job->n_partitions * 2 * sizeof(struct sum) + (job->n_variables + 1) * 2 * sizeof(struct group);
    return here;
}

enum ps_code psd_norm_create(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    if (!is_sync(job))
        return PS_OK;
    struct psd_norm *norms = ps_try_alloc(sizeof *norms);
    if (!norms)
        return ps_no_memory(e, "clipping by norm");
    pthread_mutex_init(&norms->lock, NULL);
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

void psd_norm_free(struct psd_norm *norms)
{
    if (!norms)
        return;
    free(norms->sums);
    free(norms->groups);
    pthread_mutex_destroy(&norms->lock);
    free(norms);
}

void psd_norm_reset(struct psd_job *job)
{
    struct psd_norm *norms = job->norms;
    if (!norms)
        return;
    pthread_mutex_lock(&norms->lock);
    norms->run++;
    norms->due = NULL;
    if (norms->sums) {
        memset(norms->sums, 0, job->n_partitions * sizeof *norms->sums);
        memset(norms->groups, 0, ((size_t)job->n_variables + 1) * sizeof *norms->groups);
    }
    pthread_mutex_unlock(&norms->lock);
}

static void make_due(struct psd_norm *norms, struct psd_round *round)
{
    round->next_due = norms->due;
    norms->due = round;
}

void psd_norm_await(struct psd_job *job, struct psd_round *round)
{
    pthread_mutex_lock(&job->norms->lock);
    make_due(job->norms, round);
    pthread_mutex_unlock(&job->norms->lock);
}

// ---- adding up, at the control task -------------------------------------------------------------------------------

static struct group *group_of(const struct psd_job *job, const struct psd_partition *p, bool of_model, uint64_t round)
{
    return &job->norms->groups[of_model ? job->n_variables : p->variable][round % 2];
}

static uint32_t group_size(const struct psd_job *job, const struct psd_partition *p, bool of_model)
{
    return of_model ? job->norms->in_model : job->variables[p->variable].n_partitions;
}

// In the order of the partitions. Every one of the group is there.
static double add_up(const struct psd_job *job, const struct psd_partition *p, bool of_model, uint64_t round)
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

static bool is_known(const struct psd_job *job, const struct psd_partition *p, bool of_model, uint64_t round)
{
    const struct group *g = group_of(job, p, of_model, round);
    return g->round == round && g->in == group_size(job, p, of_model);
}

// Norms locked. True: it was the last of its group.
static bool record(struct psd_job *job, uint32_t partition, bool of_model, uint64_t round, double value)
{
    const struct psd_partition *p = &job->partitions[partition];
    struct sum *sum = &job->norms->sums[partition][round % 2];
    struct group *g = group_of(job, p, of_model, round);
    if (sum->round >= round || g->round > round)
        return false;
    *sum = (struct sum){round, value};
    if (g->round != round)
        *g = (struct group){.round = round};
    g->in++;
    if (g->in < group_size(job, p, of_model))
        return false;
    g->total = add_up(job, p, of_model, round);
    return true;
}

static uint32_t index_of(const struct psd_job *job, const struct psd_round *round)
{
    return (uint32_t)(round->partition - job->partitions);
}

static bool is_of_model(const struct psd_round *round)
{
    return round->clip.by == PSD_CLIP_MODEL;
}

// What is due at the control task itself gives its sums. They are there at once, so that only the first look counts.
static void record_own(struct psd_job *job, struct psd_call **ready)
{
    struct psd_norm *norms = job->norms;
    bool completed = false;
    pthread_mutex_lock(&norms->lock);
    for (struct psd_round *r = norms->due; r; r = r->next_due)
        completed |= record(job, index_of(job, r), is_of_model(r), r->number, r->sum);
    if (completed)
        psd_ready_all(ready, &norms->waiting);
    pthread_mutex_unlock(&norms->lock);
}

// Takes a round whose total is known out of those that are due. NULL: there is none.
static struct psd_round *take_known(struct psd_job *job, uint64_t *number, double *total)
{
    struct psd_norm *norms = job->norms;
    pthread_mutex_lock(&norms->lock);
    struct psd_round **at = &norms->due, *found;
    while (*at && !is_known(job, (*at)->partition, is_of_model(*at), (*at)->number))
        at = &(*at)->next_due;
    found = *at;
    if (found) {
        *at = found->next_due;
        *number = found->number;
        *total = group_of(job, found->partition, is_of_model(found), found->number)->total;
    }
    pthread_mutex_unlock(&norms->lock);
    return found;
}

static void finish_own(struct psd_job *job, struct psd_call **ready)
{
    struct psd_round *round;
    uint64_t number;
    double total;
    record_own(job, ready);
    while ((round = take_known(job, &number, &total)))
        psd_round_finish(job, round, number, total, ready);
}

// ---- asking, elsewhere --------------------------------------------------------------------------------------------

// A SumSquares under way. It holds a reference on the job.
struct asking {
    struct psd_core *core;
    struct psd_job *job;
    uint64_t run, round;
    uint32_t n;
    uint32_t partitions[PER_MESSAGE];
    double sums[PER_MESSAGE];
};

// Takes rounds that are due out of the list: some with one number, the first one's. False: there are none.
static bool take_due(struct psd_norm *norms, const struct psd_job *job, struct asking *x)
{
    pthread_mutex_lock(&norms->lock);
    struct psd_round **at = &norms->due;
    x->run = norms->run;
    x->round = norms->due ? norms->due->number : 0;
    x->n = 0;
    while (*at && x->n < PER_MESSAGE) {
        struct psd_round *r = *at;
        if (r->number != x->round) {
            at = &r->next_due;
            continue;
        }
        *at = r->next_due;
        x->partitions[x->n] = index_of(job, r);
        x->sums[x->n++] = r->sum;
    }
    pthread_mutex_unlock(&norms->lock);
    return x->n > 0;
}

static void put_back(const struct asking *x)
{
    struct psd_norm *norms = x->job->norms;
    pthread_mutex_lock(&norms->lock);
    for (uint32_t i = 0; norms->run == x->run && i < x->n; i++)
        make_due(norms, x->job->partitions[x->partitions[i]].round);
    pthread_mutex_unlock(&norms->lock);
}

// Does the reply have a total for each partition? Then their rounds are finished.
static bool take_totals(const struct asking *x, const struct ps_slices *message, struct psd_call **ready)
{
    ProtobufCMessage *m = NULL;
    struct ps_slices nothing = PS_ROPE_EMPTY;
    bool good = ps_msg_unpack(&paramserver__v1__sum_squares_reply__descriptor, message, &m, &nothing, NULL) == PS_OK &&
                ((Paramserver__V1__SumSquaresReply *)m)->n_totals == x->n;
    for (uint32_t i = 0; good && i < x->n; i++)
        psd_round_finish(x->job, x->job->partitions[x->partitions[i]].round, x->round,
                         ((Paramserver__V1__SumSquaresReply *)m)->totals[i], ready);
    ps_slices_clear(&nothing);
    ps_msg_free(m);
    return good;
}

static bool is_void(const struct asking *x)
{
    pthread_mutex_lock(&x->job->norms->lock);
    bool other_run = x->job->norms->run != x->run;
    pthread_mutex_unlock(&x->job->norms->lock);
    return other_run || atomic_load(&x->job->failed) == 2;
}

static void on_totals(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct asking *x = arg;
    struct psd_call *ready = NULL;
    char why[160];
    if (is_void(x)) {
        ;
    } else if (code == PS_OUT_OF_RANGE) {
        snprintf(why, sizeof why, "ps task 0 has forgotten the norms of round %" PRIu64 ", which is not closed here",
                 x->round);
        psd_job_fail(x->job, why);
    } else if (code != PS_OK || !take_totals(x, reply, &ready)) {
        put_back(x);
    }
    psd_run_ready(x->core, ready);
    psd_job_unref(x->core, x->job);
    free(x);
}

static bool pack(const struct asking *x, struct ps_slices *message)
{
    Paramserver__V1__SumSquaresRequest m = PARAMSERVER__V1__SUM_SQUARES_REQUEST__INIT;
    m.job = x->job->name;
    m.run = atomic_load(&x->job->run);
    m.round = x->round;
    m.n_partitions = m.n_sums = x->n;
    m.partitions = (uint32_t *)x->partitions;
    m.sums = (double *)x->sums;
    ps_msg_pack(&m.base, NULL, message);
    return !message->broken;
}

// False: nothing was due, or there was no memory; then it is due still.
static bool ask(struct psd_core *core, struct psd_job *job)
{
    struct ps_slices message = PS_ROPE_EMPTY;
    struct asking *x = ps_try_alloc(sizeof *x);
    if (!x)
        return false;
    x->core = core;
    x->job = job;
    bool any = take_due(job->norms, job, x);
    if (!any || !pack(x, &message)) {
        put_back(x);
        ps_slices_clear(&message);
        free(x);
        return false;
    }
    pthread_mutex_lock(&core->table);
    job->refs++;
    pthread_mutex_unlock(&core->table);
    core->world.send(core->world.ctx, 0, PARAMSERVER__V1__METHOD__SUM_SQUARES, &message, on_totals, x);
    return true;
}

static bool is_anything_due(struct psd_norm *norms)
{
    pthread_mutex_lock(&norms->lock);
    bool any = norms->due != NULL;
    pthread_mutex_unlock(&norms->lock);
    return any;
}

void psd_norm_send(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    if (!atomic_load(&job->declared) || !job->norms || !is_anything_due(job->norms) || atomic_load(&job->failed) == 2)
        return;
    if (core->config.task == 0)
        finish_own(job, ready);
    else
        while (is_anything_due(job->norms) && ask(core, job))
            continue;
}

// ---- being asked --------------------------------------------------------------------------------------------------

static enum ps_code check_job(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r)
{
    t->job = psd_job_find(t->core, r->job);
    if (!t->job || !atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_NOT_FOUND, "sum squares: ps task %" PRIu32 " has no job '%.128s'",
                       t->core->config.task, r->job);
    if (t->core->config.task != 0)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "sum squares: this is ps task %" PRIu32 ", norms are added up at task 0", t->core->config.task);
    if (r->run != atomic_load(&t->job->run))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "sum squares: job '%s' is in another run here than %" PRIu64,
                       t->job->name, r->run);
    if (atomic_load(&t->job->failed) == 2)
        return (enum ps_code)psd_request_fail_ended(t);
    if (!t->job->norms)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "sum squares: job '%s' is not sync", t->job->name);
    return PS_OK;
}

static enum ps_code check_sums(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r)
{
    struct ps_error *e = &t->error;
    if (r->round == 0 || r->n_partitions == 0 || r->n_partitions != r->n_sums)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "sum squares: round %" PRIu64 ", %zu partitions and %zu sums; expected a round from 1 and a sum "
                       "for each partition",
                       r->round, r->n_partitions, r->n_sums);
    for (size_t i = 0; i < r->n_partitions; i++) {
        if (r->partitions[i] >= t->job->n_partitions)
            return ps_fail(e, PS_INVALID_ARGUMENT, "sum squares: partition %" PRIu32 " of %" PRIu32, r->partitions[i],
                           t->job->n_partitions);
        if (t->job->partitions[r->partitions[i]].task == 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "sum squares: partition %" PRIu32 " lies here, at ps task 0",
                           r->partitions[i]);
        if (r->sums[i] < 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "sum squares: %g is no sum of squares", r->sums[i]);
    }
    return PS_OK;
}

// Whose norm each partition is clipped by in this round.
static enum ps_code read_groups(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r, bool *of_model)
{
    struct psd_job *job = t->job;
    enum ps_code code = PS_OK;
    pthread_rwlock_rdlock(&job->cut);
    for (size_t i = 0; i < r->n_partitions && code == PS_OK; i++) {
        const struct psd_variable *v = &job->variables[job->partitions[r->partitions[i]].variable];
        struct psd_clip clip = {PSD_CLIP_NONE, 0};
        if (v->rule)
            clip = psd_clip_at(job, v, r->round);
        if (clip.by == PSD_CLIP_NONE)
            code = ps_fail(&t->error, PS_FAILED_PRECONDITION,
                           "sum squares: variable '%s' is clipped by no norm in round %" PRIu64, v->name, r->round);
        of_model[i] = clip.by == PSD_CLIP_MODEL;
    }
    pthread_rwlock_unlock(&job->cut);
    return code;
}

static enum ps_code check_rounds(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r)
{
    for (size_t i = 0; i < r->n_partitions; i++)
        if (t->job->norms->sums[r->partitions[i]][r->round % 2].round > r->round)
            return ps_fail(&t->error, PS_OUT_OF_RANGE,
                           "sum squares: round %" PRIu64 " of partition %" PRIu32 " is long over", r->round,
                           r->partitions[i]);
    return PS_OK;
}

// The totals, or PSD_PARKED until all of them are known. Norms locked.
static int take_sums(struct psd_request *t, const Paramserver__V1__SumSquaresRequest *r, const bool *of_model,
                     double *totals, bool *completed)
{
    bool all = true;
    if (check_rounds(t, r))
        return (int)t->error.code;
    for (size_t i = 0; i < r->n_partitions; i++)
        *completed |= record(t->job, r->partitions[i], of_model[i], r->round, r->sums[i]);
    for (size_t i = 0; i < r->n_partitions && all; i++) {
        const struct psd_partition *p = &t->job->partitions[r->partitions[i]];
        all = is_known(t->job, p, of_model[i], r->round);
        totals[i] = all ? group_of(t->job, p, of_model[i], r->round)->total : 0;
    }
    if (*completed)
        psd_ready_all(&t->ready, &t->job->norms->waiting);
    return all ? PS_OK : psd_park(t, &t->job->norms->waiting);
}

int psd_sum_squares(struct psd_request *t)
{
    const Paramserver__V1__SumSquaresRequest *r = (const Paramserver__V1__SumSquaresRequest *)t->request;
    Paramserver__V1__SumSquaresReply out = PARAMSERVER__V1__SUM_SQUARES_REPLY__INIT;
    bool completed = false;
    if (check_job(t, r) || check_sums(t, r))
        return (int)t->error.code;
    bool *of_model = ps_try_alloc_array(r->n_partitions, sizeof *of_model);
    double *totals = ps_try_alloc_array(r->n_partitions, sizeof *totals);
    int code = of_model && totals ? (int)read_groups(t, r, of_model) : (int)ps_no_memory(&t->error, "a sum of squares");
    if (code == PS_OK) {
        pthread_mutex_lock(&t->job->norms->lock);
        code = take_sums(t, r, of_model, totals, &completed);
        pthread_mutex_unlock(&t->job->norms->lock);
    }
    if (completed)
        psd_norm_send(t->core, t->job, &t->ready);
    if (code == PS_OK) {
        out.generation = t->core->generation;
        out.n_totals = r->n_partitions;
        out.totals = totals;
        code = psd_request_reply(t, &out.base, NULL);
    }
    free(totals);
    free(of_model);
    return code;
}

// ---- who waits ----------------------------------------------------------------------------------------------------

bool psd_norm_walk(struct psd_job *job, bool (*look)(struct psd_waiters *list, void *arg), void *arg, char *what,
                   char *whom, size_t size)
{
    if (!atomic_load(&job->declared) || !job->norms)
        return false;
    pthread_mutex_lock(&job->norms->lock);
    bool wanted = job->norms->waiting.n && look(&job->norms->waiting, arg);
    pthread_mutex_unlock(&job->norms->lock);
    snprintf(what, size, "the norm of a gradient");
    snprintf(whom, size, "the other ps tasks' part of it");
    return wanted;
}
