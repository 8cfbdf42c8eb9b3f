// SPDX-License-Identifier: Apache-2.0
#include "psd/round.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "psd/step.h"
#include "psd/update.h"

enum ps_code psd_round_create(struct psd_partition *p, struct psd_pool *pool, uint32_t workers, struct psd_round **out,
                              struct ps_error *e)
{
    struct psd_round *round = ps_alloc(sizeof *round);
    pthread_mutex_init(&round->lock, NULL);
    round->partition = p;
    round->workers = workers;
    round->member = ps_alloc(workers * sizeof *round->member);
    round->contributions = ps_alloc(workers * sizeof *round->contributions);
    *out = round;
    for (uint32_t rank = 0; rank < workers; rank++) {
        struct psd_contribution *c = &round->contributions[rank];
        round->member[rank] = true;
        c->in = ps_alloc(p->n_blocks * sizeof *c->in);
        c->pages = ps_alloc(p->n_blocks * sizeof(struct psd_page *));
        for (uint32_t k = 0; k < p->n_blocks; k++) {
            c->pages[k] = psd_page_new(pool, p->blocks[k].value_bytes);
            if (!c->pages[k])
                return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for the gradients of %" PRIu32 " workers", workers);
        }
    }
    return PS_OK;
}

void psd_round_destroy(struct psd_round *round)
{
    if (!round)
        return;
    for (uint32_t rank = 0; rank < round->workers; rank++) {
        struct psd_contribution *c = &round->contributions[rank];
        for (uint32_t k = 0; c->pages && k < round->partition->n_blocks; k++)
            if (c->pages[k])
                psd_page_unref(c->pages[k]);
        free(c->pages);
        free(c->in);
    }
    free(round->contributions);
    free(round->member);
    pthread_mutex_destroy(&round->lock);
    free(round);
}

enum ps_code psd_round_check(struct psd_round *round, const char *variable, uint32_t rank, uint64_t number,
                             uint32_t block, Paramserver__V1__Outcome *outcome, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    pthread_mutex_lock(&round->lock);
    *outcome = number <= round->closed ? PARAMSERVER__V1__OUTCOME__STALE : PARAMSERVER__V1__OUTCOME__QUEUED;
    if (number > round->closed + 1)
        code = ps_fail(e, PS_FAILED_PRECONDITION,
                       "variable '%s': round %" PRIu64 " is open, the push is for round %" PRIu64, variable,
                       round->closed + 1, number);
    else if (!round->member[rank])
        code = ps_fail(e, PS_ABORTED, "variable '%s': worker %" PRIu32 " is not a member of round %" PRIu64 " any more",
                       variable, rank, round->closed + 1);
    else if (number == round->closed + 1 && round->contributions[rank].in[block])
        code = ps_fail(e, PS_ALREADY_EXISTS,
                       "variable '%s': worker %" PRIu32 " has already contributed a gradient to round %" PRIu64,
                       variable, rank, number);
    pthread_mutex_unlock(&round->lock);
    return code;
}

Paramserver__V1__Outcome psd_round_add(struct psd_round *round, uint32_t rank, uint64_t number, uint64_t examples,
                                       uint32_t block, const struct psd_stamp *stamp, const struct ps_rope *payload,
                                       size_t offset)
{
    Paramserver__V1__Outcome outcome = PARAMSERVER__V1__OUTCOME__QUEUED;
    pthread_mutex_lock(&round->lock);
    struct psd_contribution *c = &round->contributions[rank];
    struct psd_block *b = &round->partition->blocks[block];
    bool open = number == round->closed + 1, fresh = open && !c->in[block];
    pthread_mutex_lock(&b->lock);
    bool had = fresh ? !psd_block_stamp(b, stamp) : psd_block_has_stamp(b, stamp);
    pthread_mutex_unlock(&b->lock);
    if (had || (open && !fresh)) {
        outcome = PARAMSERVER__V1__OUTCOME__DUPLICATE;
    } else if (!open) {
        outcome = PARAMSERVER__V1__OUTCOME__STALE;
    } else {
        ps_rope_copy_out(payload, offset, c->pages[block]->bytes, c->pages[block]->data);
        c->in[block] = true;
        c->examples = examples;
        c->blocks++;
    }
    pthread_mutex_unlock(&round->lock);
    return outcome;
}

// The round's lock is held.
static void forget_gradients(struct psd_round *round)
{
    for (uint32_t rank = 0; rank < round->workers; rank++) {
        struct psd_contribution *c = &round->contributions[rank];
        memset(c->in, 0, round->partition->n_blocks * sizeof *c->in);
        c->blocks = 0;
    }
}

static bool is_whole(const struct psd_round *round, uint32_t rank)
{
    return round->contributions[rank].blocks == round->partition->n_blocks;
}

static bool is_complete(const struct psd_round *round)
{
    bool any = false;
    for (uint32_t rank = 0; rank < round->workers; rank++) {
        if (round->member[rank] && !is_whole(round, rank))
            return false;
        any |= is_whole(round, rank);
    }
    return any;
}

// Elements [at, at + n) of a block's mean gradient: sum(n_i g_i) / sum(n_i), in rank order. A mean over no example is
// no number, so one with n_i = 0 is not even multiplied.
static void mean_gradient(const struct psd_round *round, uint32_t block, size_t at, size_t n, float total, float *mean)
{
    memset(mean, 0, n * sizeof *mean);
    for (uint32_t rank = 0; rank < round->workers; rank++) {
        if (!is_whole(round, rank) || round->contributions[rank].examples == 0)
            continue;
        const float weight = (float)round->contributions[rank].examples;
        const float *g = (const float *)round->contributions[rank].pages[block]->data + at;
        for (size_t i = 0; i < n; i++)
            mean[i] += weight * g[i];
    }
    for (size_t i = 0; i < n; i++)
        mean[i] /= total;
}

// Takes a block's mean gradient in runs that stay in the first-level cache.
enum { RUN = 4096 };

static void apply_block(struct psd_job *job, const struct psd_round *round, uint32_t k, float total)
{
    struct psd_block *b = &round->partition->blocks[k];
    float mean[RUN];
    struct psd_page *out;
    struct psd_step step;
    struct ps_error e;
    pthread_rwlock_rdlock(&job->cut);
    pthread_mutex_lock(&b->lock);
    if (psd_block_begin(b, &out, &e) == PS_OK) {
        psd_step_init(&step, job, &job->variables[round->partition->variable], b, round->closed + 1);
        for (size_t at = 0; at < b->count; at += RUN) {
            size_t n = b->count - at < RUN ? b->count - at : RUN;
            mean_gradient(round, k, at, n, total, mean);
            psd_step_apply(&step, b, out, at, n, mean);
        }
        b->steps++;
        b->round = round->closed + 1;
        psd_block_commit(b, out);
    } else {
        psd_job_fail(job, e.text);
    }
    pthread_mutex_unlock(&b->lock);
    pthread_rwlock_unlock(&job->cut);
}

// The round's lock is held. A round whose gradients stand for no example at all changes nothing, but closes.
static void apply(struct psd_job *job, struct psd_round *round)
{
    uint64_t examples = 0;
    for (uint32_t rank = 0; rank < round->workers; rank++)
        if (is_whole(round, rank))
            examples += round->contributions[rank].examples;
    for (uint32_t k = 0; examples && k < round->partition->n_blocks; k++)
        apply_block(job, round, k, (float)examples);
    forget_gradients(round);
    round->closed++;
}

void psd_round_try_close(struct psd_job *job, struct psd_round *round, struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    if (is_complete(round)) {
        apply(job, round);
        psd_ready_all(ready, &round->waiting);
    }
    pthread_mutex_unlock(&round->lock);
}

void psd_round_set_members(struct psd_job *job, struct psd_round *round, const struct psd_roster *roster,
                           struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    if (roster->epoch >= round->epoch) {
        round->epoch = roster->epoch;
        for (uint32_t rank = 0; rank < round->workers; rank++)
            round->member[rank] = rank < roster->n && roster->takes_part[rank];
    }
    pthread_mutex_unlock(&round->lock);
    psd_round_try_close(job, round, ready);
}

bool psd_round_has_gradient(struct psd_round *round, uint32_t rank)
{
    pthread_mutex_lock(&round->lock);
    bool has = is_whole(round, rank);
    pthread_mutex_unlock(&round->lock);
    return has;
}

bool psd_round_misses(const struct psd_round *round, uint32_t rank)
{
    return round->member[rank] && !is_whole(round, rank);
}

void psd_round_reset(struct psd_round *round)
{
    pthread_mutex_lock(&round->lock);
    forget_gradients(round);
    for (uint32_t rank = 0; rank < round->workers; rank++)
        round->member[rank] = true;
    round->closed = 0;
    round->epoch = 0;
    pthread_mutex_unlock(&round->lock);
}
