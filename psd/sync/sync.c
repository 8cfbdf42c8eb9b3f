// SPDX-License-Identifier: Apache-2.0
#include "psd/sync/sync.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/sometimes.h"
#include "common/wire/wire.h"
#include "psd/job/table.h"
#include "psd/sync/norm.h"

// ---- one round ----------------------------------------------------------------------------------------------------

// Blocks of arithmetic that are done at once: about as much as one message of an async push brings.
enum { LITTLE = 8 };

// The functions below: the round's lock is held, by the busy thread.

static void sync_begin_apply(struct psd_round *round, float factor)
{
    round->factor = factor;
    round->state = PSD_ROUND_APPLYING;
}

// Decides by which norm, if any, the complete round is clipped.
static void sync_begin_close(struct psd_job *job, struct psd_round *round)
{
    const struct psd_variable *v = &job->variables[round->partition->variable];
    round->number = round->closed + 1;
    pthread_rwlock_rdlock(&job->snapshot_lock);
    round->clip = psd_clip_at(job, v, round->number);
    pthread_rwlock_unlock(&job->snapshot_lock);
    if (round->clip.by == PSD_CLIP_NONE)
        sync_begin_apply(round, 1);
    else
        round->state = PSD_ROUND_SQUARING;
}

static void sync_squared(struct psd_job *job, struct psd_round *round)
{
    const struct psd_variable *v = &job->variables[round->partition->variable];
    if (round->clip.by == PSD_CLIP_VARIABLE && v->n_partitions == 1) {
        sync_begin_apply(round, ps_clip_factor(round->square, round->clip.limit));
        return;
    }
    round->state = PSD_ROUND_AWAITING;
    psd_norm_make_due(job, round);
}

enum pass { FOLD, SQUARE, APPLY };

// Gives up the lock for some arithmetic. False: that could not be done, or the round has been reset meanwhile.
static bool sync_compute(struct psd_job *job, struct psd_round *round, enum pass pass)
{
    struct ps_workers *workers = job->host->workers;
    uint64_t run = atomic_load(&round->run);
    bool done = true;
    pthread_mutex_unlock(&round->lock);
    if (pass == FOLD)
        psd_round_fold(round, workers);
    else if (pass == SQUARE)
        psd_round_square(round, workers);
    else
        done = psd_round_apply(job, round, run, workers);
    pthread_mutex_lock(&round->lock);
    return done && !round->abandoned;
}

// One step; the lock may be given up meanwhile. False: there is nothing to do now.
static bool sync_step(struct psd_job *job, struct psd_round *round, struct psd_call **ready)
{
    if (round->abandoned) {
        psd_round_forget(round);
        return true;
    }
    if (psd_round_take_batch(round)) {
        sync_compute(job, round, FOLD);
        return true;
    }
    switch (round->state) {
    case PSD_ROUND_COMPLETE:
        if (psd_round_is_held(job, round->closed + 1)) {
            ps_sometimes(PS_SOMETIMES_HELD);
            return false;
        }
        sync_begin_close(job, round);
        return true;
    case PSD_ROUND_SQUARING:
        if (sync_compute(job, round, SQUARE))
            sync_squared(job, round);
        return true;
    case PSD_ROUND_APPLYING:
        if (sync_compute(job, round, APPLY))
            psd_round_close(round, ready);
        else if (!round->abandoned)
            return false;
        return true;
    default:
        return false;
    }
}

// All steps that are possible; the round's lock is held, and busy is set by this thread.
static void sync_work(struct psd_job *job, struct psd_round *round, struct psd_call **ready)
{
    while (sync_step(job, round, ready))
        continue;
    round->busy = false;
}

static void sync_run_work(struct ps_work *work)
{
    struct psd_round *round = (struct psd_round *)((char *)work - offsetof(struct psd_round, work));
    struct psd_job *job = round->job;
    const struct psd_host *host = job->host;
    struct psd_call *ready = NULL;
    pthread_mutex_lock(&round->lock);
    sync_work(job, round, &ready);
    pthread_mutex_unlock(&round->lock);
    psd_sync_send_norms(job, &ready);
    psd_host_run_ready(host, ready);
    psd_job_unref(job);
}

void psd_sync_advance(struct psd_job *job, struct psd_round *round, struct psd_call **ready)
{
    struct ps_workers *workers = job->host->workers;
    pthread_mutex_lock(&round->lock);
    size_t work = round->busy ? 0 : psd_round_work(round, psd_round_is_held(job, round->closed + 1));
    bool little = !workers || work <= LITTLE;
    round->busy |= work != 0;
    if (work && little)
        sync_work(job, round, ready);
    pthread_mutex_unlock(&round->lock);
    if (work == 0 || little)
        return;
    psd_job_ref(job);
    round->work = (struct ps_work){.run = sync_run_work};
    round->job = job;
    ps_workers_run(workers, &round->work);
}

void psd_sync_advance_all(struct psd_job *job, struct psd_call **ready)
{
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (round)
            psd_sync_advance(job, round, ready);
    }
    psd_sync_send_norms(job, ready);
}

void psd_sync_set_members(struct psd_job *job, struct psd_round *round, const struct psd_view *view,
                          struct psd_call **ready)
{
    psd_round_set_members(round, view, ready);
    psd_sync_advance(job, round, ready);
}

// ---- waiting for a round ------------------------------------------------------------------------------------------

// The next extent whose round is another, from `at` on; extents->n: there is none.
static size_t sync_next_round(const struct psd_extents *extents, size_t at, const struct psd_round *last)
{
    while (at < extents->n && (!extents->v[at].round || extents->v[at].round == last))
        at++;
    return at;
}

struct psd_round *psd_sync_lock_open(const struct psd_extents *extents, uint64_t wanted, size_t *at)
{
    struct psd_round *round = NULL;
    while ((*at = sync_next_round(extents, *at, round)) < extents->n) {
        round = extents->v[*at].round;
        pthread_mutex_lock(&round->lock);
        if (round->closed < wanted)
            return round;
        pthread_mutex_unlock(&round->lock);
    }
    return NULL;
}

uint64_t psd_sync_least_closed(const struct psd_extents *extents)
{
    struct psd_round *round = NULL;
    uint64_t least = UINT64_MAX;
    for (size_t at = 0; (at = sync_next_round(extents, at, round)) < extents->n;) {
        round = extents->v[at].round;
        pthread_mutex_lock(&round->lock);
        least = round->closed < least ? round->closed : least;
        pthread_mutex_unlock(&round->lock);
    }
    return round ? least : 0;
}

uint64_t psd_sync_last_closed(const struct psd_job *job)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].made;
        if (!round)
            continue;
        pthread_mutex_lock(&round->lock);
        last = round->closed > last ? round->closed : last;
        pthread_mutex_unlock(&round->lock);
    }
    return last;
}

// ---- norms --------------------------------------------------------------------------------------------------------

// The total that round number has awaited, unless it does not any more.
static void sync_finish(struct psd_job *job, struct psd_round *round, uint64_t number, double total,
                        struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    if (round->state == PSD_ROUND_AWAITING && round->number == number)
        sync_begin_apply(round, ps_clip_factor(total, round->clip.limit));
    pthread_mutex_unlock(&round->lock);
    psd_sync_advance(job, round, ready);
}

static void sync_finish_own(struct psd_job *job, struct psd_call **ready)
{
    struct psd_round *round;
    uint64_t number;
    double total;
    psd_norm_record_due(job, ready);
    while ((round = psd_norm_take_known(job, &number, &total)))
        sync_finish(job, round, number, total, ready);
}

// A SumSquares under way. It holds a reference on the job.
//
// One that asks is parked at the control task until other sums are there, which this task may have, too: so none may
// wait until it is answered. Few ask at a time, fewer than a connection takes, and what becomes due beyond them goes in
// messages that are answered at once, each after one such answer at most: so every sum arrives, every total becomes
// known, and who is parked is answered. A sum that comes again changes nothing there, and a total nothing here, unless
// the round of its number still awaits it.
struct asking {
    struct psd_job *job;
    struct psd_norm_message m;
    uint32_t partitions[PSD_NORM_PER_MESSAGE];
    double sums[PSD_NORM_PER_MESSAGE];
};

// Finishes the rounds whose totals the reply has; the others are left in x. False: it is none, nothing has changed.
static bool asking_take_totals(struct asking *x, const struct ps_slices *message, struct psd_call **ready)
{
    ProtobufCMessage *m = NULL;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    const enum ps_code code =
        ps_msg_unpack(&paramserver__v1__sum_squares_reply__descriptor, message, &m, &nothing, NULL);
    const Paramserver__V1__SumSquaresReply *r = (Paramserver__V1__SumSquaresReply *)m;
    const bool good = code == PS_OK && r->n_totals == r->n_partitions && (r->n_totals || x->m.at_once);
    uint32_t left = 0, known = 0;
    for (uint32_t i = 0; good && i < x->m.n; i++) {
        if (known < r->n_totals && r->partitions[known] == x->partitions[i])
            sync_finish(x->job, x->m.rounds[i], x->m.round, r->totals[known++], ready);
        else
            x->m.rounds[left++] = x->m.rounds[i];
    }
    x->m.n = good ? left : x->m.n;
    ps_slices_clear(&nothing);
    ps_msg_free(m);
    return good;
}

static void asking_end(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct asking *x = arg;
    const struct psd_host *host = x->job->host;
    struct psd_call *ready = NULL;
    char why[160];
    bool recorded = false;
    if (!psd_norm_is_of_run(x->job, x->m.run) || psd_job_has_failed(x->job)) {
        ;
    } else if (code == PS_OUT_OF_RANGE) {
        snprintf(why, sizeof why, "ps task 0 has forgotten the norms of round %" PRIu64 ", which is not closed here",
                 x->m.round);
        psd_job_fail(x->job, x->m.run, why);
    } else {
        recorded = code == PS_OK && asking_take_totals(x, reply, &ready);
    }
    psd_norm_end_message(x->job, &x->m, recorded);
    if (recorded)
        psd_sync_send_norms(x->job, &ready);
    psd_host_run_ready(host, ready);
    psd_job_unref(x->job);
    free(x);
}

static bool asking_pack(const struct asking *x, struct ps_slices *message)
{
    Paramserver__V1__SumSquaresRequest m = PARAMSERVER__V1__SUM_SQUARES_REQUEST__INIT;
    m.job = x->job->name;
    m.run = x->m.run;
    m.round = x->m.round;
    m.n_partitions = m.n_sums = x->m.n;
    m.partitions = (uint32_t *)x->partitions;
    m.sums = (double *)x->sums;
    m.at_once = x->m.at_once;
    ps_msg_pack(&m.base, NULL, message);
    return !message->broken;
}

// False: no message may be sent now, or there was no memory; what is due is due still.
static bool sync_ask(struct psd_job *job)
{
    const struct psd_host *host = job->host;
    struct ps_slices message = PS_SLICES_EMPTY;
    struct asking *x = ps_try_alloc(sizeof *x);
    if (!x || !psd_norm_begin_message(job, &x->m)) {
        free(x);
        return false;
    }
    x->job = job;
    for (uint32_t i = 0; i < x->m.n; i++) {
        x->partitions[i] = (uint32_t)(x->m.rounds[i]->partition - job->partitions);
        x->sums[i] = x->m.rounds[i]->square;
    }
    if (!asking_pack(x, &message)) {
        psd_norm_end_message(job, &x->m, false);
        ps_slices_clear(&message);
        free(x);
        return false;
    }
    psd_job_ref(job);
    host->send(host->world, 0, PARAMSERVER__V1__METHOD__SUM_SQUARES, &message, asking_end, x);
    return true;
}

void psd_sync_send_norms(struct psd_job *job, struct psd_call **ready)
{
    if (!atomic_load(&job->declared) || !psd_job_is_sync(job) || !psd_norm_is_due(job) || psd_job_has_failed(job))
        return;
    if (job->host->task == 0)
        sync_finish_own(job, ready);
    else
        while (psd_norm_is_due(job) && sync_ask(job))
            continue;
}
