// SPDX-License-Identifier: Apache-2.0
#include "psd/sync/round.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/math/aggregate.h"
#include "psd/sync/norm.h"

static enum ps_code take_memory(struct psd_round *round, struct psd_pool *pool)
{
    const struct psd_partition *p = round->partition;
    size_t n = p->n_blocks, workers = round->workers;
    round->member = ps_try_alloc_array(workers, sizeof *round->member);
    round->counted = ps_try_alloc_array(workers, sizeof *round->counted);
    round->contributions = ps_try_alloc_array(workers, sizeof *round->contributions);
    round->pages = ps_try_alloc_array(workers * n, sizeof(struct psd_page *));
    round->in = ps_try_alloc_array(workers * n, sizeof *round->in);
    round->spares = ps_try_alloc_array(n, sizeof(struct psd_page *));
    if (!round->member || !round->counted || !round->contributions || !round->pages || !round->in || !round->spares)
        return PS_RESOURCE_EXHAUSTED;
    for (size_t rank = 0; rank < workers; rank++)
        round->contributions[rank] =
            (struct psd_contribution){.pages = round->pages + rank * n, .in = round->in + rank * n};
    for (size_t i = 0; i < workers * n; i++)
        if (!(round->pages[i] = psd_page_new(pool, p->blocks[i % n].value_bytes)))
            return PS_RESOURCE_EXHAUSTED;
    return PS_OK;
}

enum ps_code psd_round_create(const struct psd_job *job, struct psd_partition *p, struct psd_round **out,
                              struct ps_error *e)
{
    struct psd_round *round = ps_try_alloc(sizeof *round);
    if (!round)
        return ps_no_memory(e, "a round");
    pthread_mutex_init(&round->lock, NULL);
    round->partition = p;
    round->workers = job->workers;
    round->enough = job->replicas_to_aggregate ? job->replicas_to_aggregate : job->workers;
    if (take_memory(round, job->pool)) {
        psd_round_destroy(round);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for the gradients of %" PRIu32 " workers", job->workers);
    }
    memset(round->member, true, job->workers * sizeof *round->member);
    *out = round;
    return PS_OK;
}

static void drop_spares(struct psd_round *round)
{
    for (uint32_t k = 0; round->spares && k < round->partition->n_blocks; k++) {
        if (round->spares[k])
            psd_page_unref(round->spares[k]);
        round->spares[k] = NULL;
    }
}

void psd_round_destroy(struct psd_round *round)
{
    if (!round)
        return;
    drop_spares(round);
    free(round->spares);
    for (size_t i = 0; round->pages && i < (size_t)round->workers * round->partition->n_blocks; i++)
        if (round->pages[i])
            psd_page_unref(round->pages[i]);
    free(round->pages);
    free(round->in);
    free(round->contributions);
    free(round->counted);
    free(round->member);
    pthread_mutex_destroy(&round->lock);
    free(round);
}

// ---- gradients ----------------------------------------------------------------------------------------------------

// The functions below: the round's lock is held.

static bool is_whole(const struct psd_round *round, uint32_t rank)
{
    return round->contributions[rank].blocks == round->partition->n_blocks;
}

// Completes an open round in which enough members' gradients are whole. Those of departed workers are there besides.
static void judge(struct psd_round *round)
{
    uint32_t members = 0, whole = 0, departed = 0;
    for (uint32_t rank = 0; rank < round->workers; rank++) {
        members += round->member[rank];
        whole += round->member[rank] && is_whole(round, rank);
        departed += !round->member[rank] && is_whole(round, rank);
    }
    uint32_t needed = members < round->enough ? members : round->enough;
    if (round->state == PSD_ROUND_OPEN && whole >= needed && whole + departed)
        round->state = PSD_ROUND_COMPLETE;
}

// The first round that is not complete.
static uint64_t open_number(const struct psd_round *round)
{
    return round->closed + 1 + (round->state != PSD_ROUND_OPEN);
}

uint64_t psd_round_open(struct psd_round *round)
{
    pthread_mutex_lock(&round->lock);
    uint64_t open = open_number(round);
    pthread_mutex_unlock(&round->lock);
    return open;
}

enum ps_code psd_round_check(struct psd_round *round, const char *variable, uint32_t rank, uint64_t number,
                             uint64_t examples, uint32_t block, Paramserver__V1__Outcome *outcome, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    if (examples > PS_EXAMPLES_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': a gradient of %" PRIu64 " examples; expected at most %" PRIu64, variable,
                       examples, PS_EXAMPLES_MAX);
    pthread_mutex_lock(&round->lock);
    const struct psd_contribution *c = &round->contributions[rank];
    *outcome = number < open_number(round) ? PARAMSERVER__V1__OUTCOME__STALE : PARAMSERVER__V1__OUTCOME__QUEUED;
    if (number > round->closed + 1)
        code = ps_fail(e, PS_FAILED_PRECONDITION,
                       "variable '%s': round %" PRIu64 " is open, the push is for round %" PRIu64, variable,
                       round->closed + 1, number);
    else if (!round->member[rank])
        code = ps_fail(e, PS_ABORTED, "variable '%s': worker %" PRIu32 " is not a member of round %" PRIu64 " any more",
                       variable, rank, round->closed + 1);
    else if (number == open_number(round) && c->blocks && c->examples != examples)
        code =
            ps_fail(e, PS_INVALID_ARGUMENT,
                    "variable '%s': a gradient of %" PRIu64 " examples, of which other blocks came as one of %" PRIu64,
                    variable, examples, c->examples);
    else if (number == open_number(round) && c->in[block])
        code = ps_fail(e, PS_ALREADY_EXISTS,
                       "variable '%s': worker %" PRIu32 " has already contributed a gradient to round %" PRIu64,
                       variable, rank, number);
    pthread_mutex_unlock(&round->lock);
    return code;
}

Paramserver__V1__Outcome psd_round_add(struct psd_round *round, uint32_t rank, uint64_t number, uint64_t examples,
                                       uint32_t block, const struct psd_request_id *stamp,
                                       const struct ps_slices *payload, size_t offset)
{
    Paramserver__V1__Outcome outcome = PARAMSERVER__V1__OUTCOME__QUEUED;
    pthread_mutex_lock(&round->lock);
    struct psd_contribution *c = &round->contributions[rank];
    struct psd_block *b = &round->partition->blocks[block];
    // Since the check its worker may have been taken out, and told what of it counts.
    bool open = round->state == PSD_ROUND_OPEN && number == round->closed + 1 && round->member[rank];
    bool fresh = open && !c->in[block];
    pthread_mutex_lock(&b->lock);
    bool had = psd_block_has_taken(b, stamp), room = !fresh || had || psd_block_reserve(b, stamp);
    if (fresh && !had && room)
        psd_block_record(b, stamp);
    pthread_mutex_unlock(&b->lock);
    if (!room) {
        outcome = PARAMSERVER__V1__OUTCOME__OUTCOME_NONE;
    } else if (had || (open && !fresh)) {
        outcome = PARAMSERVER__V1__OUTCOME__DUPLICATE;
    } else if (!open) {
        outcome = PARAMSERVER__V1__OUTCOME__STALE;
    } else {
        ps_slices_copy_out(payload, offset, c->pages[block]->bytes, c->pages[block]->data);
        c->in[block] = true;
        c->examples = examples;
        c->blocks++;
        if (is_whole(round, rank))
            judge(round);
    }
    pthread_mutex_unlock(&round->lock);
    return outcome;
}

// ---- the update ---------------------------------------------------------------------------------------------------

// Elements [at, at + n) of a block's mean gradient, over the whole gradients that have examples, in rank order.
static void mean_gradient(const struct psd_round *round, uint32_t block, size_t at, size_t n, uint64_t total,
                          float *mean)
{
    bool begun = false;
    for (uint32_t rank = 0; rank < round->workers; rank++) {
        const struct psd_contribution *c = &round->contributions[rank];
        if (!is_whole(round, rank) || c->examples == 0)
            continue;
        const float *g = (const float *)c->pages[block]->data + at;
        if (begun)
            ps_aggregate_add(n, c->examples, g, mean);
        else
            ps_aggregate_begin(n, c->examples, g, mean);
        begun = true;
    }
    ps_aggregate_mean(n, total, mean, mean);
}

// Takes a block's mean gradient in runs that stay in the first-level cache.
enum { RUN = 4096 };

// A page for each block that is held by readers now. False: there is no memory for all of them.
static bool reserve_pages(struct psd_round *round)
{
    for (uint32_t k = round->applied; k < round->partition->n_blocks; k++) {
        struct psd_block *b = &round->partition->blocks[k];
        pthread_mutex_lock(&b->lock);
        bool pinned = psd_block_pinned(b);
        pthread_mutex_unlock(&b->lock);
        if (pinned && !round->spares[k] && !(round->spares[k] = psd_page_new(b->page->pool, b->page->bytes)))
            return false;
    }
    return true;
}

struct round_update {
    struct psd_job *job;
    struct psd_round *round;
    uint32_t block;
    float total;
};

static void round_fill(void *arg, struct psd_block *b, struct psd_page *out)
{
    const struct round_update *u = arg;
    struct psd_round *round = u->round;
    struct psd_step step;
    float mean[RUN];
    psd_step_init(&step, u->job, &u->job->variables[round->partition->variable], b, round->closed + 1);
    step.clip_factor = round->factor;
    for (size_t at = 0; at < b->count; at += RUN) {
        size_t n = b->count - at < RUN ? b->count - at : RUN;
        mean_gradient(round, u->block, at, n, u->total, mean);
        psd_step_apply(&step, b, out, at, n, mean);
    }
    b->steps++;
    b->round = round->closed + 1;
}

// False: a reader has come since its page was reserved, and there is no memory for one.
static bool apply_block(struct psd_job *job, struct psd_round *round, uint32_t k, float total)
{
    struct psd_block *b = &round->partition->blocks[k];
    struct round_update u = {job, round, k, total};
    const struct psd_variable *v = &job->variables[round->partition->variable];
    const struct psd_write w = {.bytes = psd_page_bytes(b->value_bytes, v->blank.slots), .fill = round_fill, .arg = &u};
    uint64_t found, version;
    pthread_rwlock_rdlock(&job->cut);
    enum psd_written written = psd_block_write(b, &w, &round->spares[k], &found, &version);
    pthread_rwlock_unlock(&job->cut);
    return written == PSD_WRITTEN;
}

static uint64_t count_examples(const struct psd_round *round)
{
    uint64_t examples = 0;
    for (uint32_t rank = 0; rank < round->workers; rank++)
        if (is_whole(round, rank))
            examples += round->contributions[rank].examples;
    return examples;
}

// Of the mean gradient, run by run and block by block, whatever the number of tasks and threads. A mean over no example
// is nothing.
static double sum_squares(const struct psd_round *round)
{
    const struct psd_partition *p = round->partition;
    const uint64_t examples = count_examples(round);
    double sum = 0;
    float mean[RUN];
    for (uint32_t k = 0; examples && k < p->n_blocks; k++) {
        double of_block = 0;
        for (size_t at = 0; at < p->blocks[k].count; at += RUN) {
            size_t n = p->blocks[k].count - at < RUN ? p->blocks[k].count - at : RUN;
            mean_gradient(round, k, at, n, examples, mean);
            of_block += ps_sum_squares(mean, n);
        }
        sum += of_block;
    }
    return sum;
}

static void forget_gradient(struct psd_contribution *c, uint32_t n_blocks)
{
    memset(c->in, 0, n_blocks * sizeof *c->in);
    c->blocks = 0;
}

static void forget_gradients(struct psd_round *round)
{
    for (uint32_t rank = 0; rank < round->workers; rank++)
        forget_gradient(&round->contributions[rank], round->partition->n_blocks);
    round->state = PSD_ROUND_OPEN;
}

// What a Get says of blocks that a round has left as they were.
static void note_round(struct psd_round *round, uint64_t number)
{
    for (uint32_t k = 0; k < round->partition->n_blocks; k++) {
        struct psd_block *b = &round->partition->blocks[k];
        pthread_mutex_lock(&b->lock);
        b->round = number;
        pthread_mutex_unlock(&b->lock);
    }
}

// Goes on with a round that is APPLYING, as far as there is memory. One whose gradients stand for no example at all
// changes nothing, but closes. Gradients that are not whole are forgotten.
static void apply(struct psd_job *job, struct psd_round *round, struct psd_call **ready)
{
    uint64_t examples = count_examples(round);
    if (examples && !reserve_pages(round))
        return;
    for (; examples && round->applied < round->partition->n_blocks; round->applied++)
        if (!apply_block(job, round, round->applied, examples))
            return;
    drop_spares(round);
    round->closed++;
    if (!examples)
        note_round(round, round->closed);
    for (uint32_t rank = 0; rank < round->workers; rank++)
        if (is_whole(round, rank))
            round->counted[rank] = round->closed;
    forget_gradients(round);
    psd_ready_all(ready, &round->waiting);
}

static void begin_apply(struct psd_job *job, struct psd_round *round, float factor, struct psd_call **ready)
{
    round->state = PSD_ROUND_APPLYING;
    round->factor = factor;
    round->applied = 0;
    apply(job, round, ready);
}

static struct psd_clip clip_of(struct psd_job *job, const struct psd_variable *v, uint64_t number)
{
    pthread_rwlock_rdlock(&job->cut);
    struct psd_clip clip = psd_clip_at(job, v, number);
    pthread_rwlock_unlock(&job->cut);
    return clip;
}

static void close_round(struct psd_job *job, struct psd_round *round, struct psd_call **ready)
{
    const struct psd_variable *v = &job->variables[round->partition->variable];
    round->number = round->closed + 1;
    round->clip = clip_of(job, v, round->number);
    if (round->clip.by == PSD_CLIP_NONE) {
        begin_apply(job, round, 1, ready);
        return;
    }
    round->sum = sum_squares(round);
    if (round->clip.by == PSD_CLIP_VARIABLE && v->n_partitions == 1) {
        begin_apply(job, round, ps_clip_factor(round->sum, round->clip.limit), ready);
        return;
    }
    round->state = PSD_ROUND_AWAITING;
    psd_norm_await(job, round);
}

void psd_round_try_close(struct psd_job *job, struct psd_round *round, struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    if (round->state == PSD_ROUND_COMPLETE && !psd_round_is_held(job, round->closed + 1))
        close_round(job, round, ready);
    else if (round->state == PSD_ROUND_APPLYING)
        apply(job, round, ready);
    pthread_mutex_unlock(&round->lock);
}

void psd_rounds_try_close(struct psd_job *job, struct psd_call **ready)
{
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions; i++)
        if (job->partitions[i].round)
            psd_round_try_close(job, job->partitions[i].round, ready);
}

void psd_round_finish(struct psd_job *job, struct psd_round *round, uint64_t number, double total,
                      struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    if (round->state == PSD_ROUND_AWAITING && round->number == number)
        begin_apply(job, round, ps_clip_factor(total, round->clip.limit), ready);
    pthread_mutex_unlock(&round->lock);
}

uint64_t psd_round_decided(struct psd_round *round)
{
    pthread_mutex_lock(&round->lock);
    uint64_t decided = round->closed + (round->state == PSD_ROUND_AWAITING || round->state == PSD_ROUND_APPLYING);
    pthread_mutex_unlock(&round->lock);
    return decided;
}

// ---- members ------------------------------------------------------------------------------------------------------

static bool comes_back(const struct psd_round *round, const struct psd_view *roster)
{
    bool any = false;
    for (uint32_t rank = 0; rank < round->workers && rank < roster->n; rank++)
        any |= roster->takes_part[rank] && !round->member[rank];
    return any;
}

// Nobody comes back before everyone has waited: what is whole in an open round then is of those who have gone. It counts
// by itself. Where no gradient is whole, theirs are forgotten: they must not be taken for those of other incarnations.
// Who has waited with a part of its gradient in brings the rest of it.
static void settle(struct psd_round *round)
{
    bool whole = false;
    for (uint32_t rank = 0; rank < round->workers; rank++)
        whole |= is_whole(round, rank);
    if (round->state == PSD_ROUND_OPEN && whole)
        round->state = PSD_ROUND_COMPLETE;
    for (uint32_t rank = 0; round->state == PSD_ROUND_OPEN && rank < round->workers; rank++)
        if (!round->member[rank])
            forget_gradient(&round->contributions[rank], round->partition->n_blocks);
}

void psd_round_set_members(struct psd_job *job, struct psd_round *round, const struct psd_view *roster,
                           struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    if (roster->epoch >= round->epoch) {
        round->epoch = roster->epoch;
        if (comes_back(round, roster))
            settle(round);
        for (uint32_t rank = 0; rank < round->workers; rank++)
            round->member[rank] = rank < roster->n && roster->takes_part[rank];
        judge(round);
        round->over = roster->over;
        if (round->over)
            psd_ready_all(ready, &round->waiting);
    }
    pthread_mutex_unlock(&round->lock);
    psd_round_try_close(job, round, ready);
}

bool psd_round_misses(const struct psd_round *round, uint32_t rank)
{
    return round->state == PSD_ROUND_OPEN && round->member[rank] && !is_whole(round, rank);
}

void psd_round_reset(struct psd_round *round)
{
    pthread_mutex_lock(&round->lock);
    drop_spares(round);
    forget_gradients(round);
    memset(round->member, true, round->workers * sizeof *round->member);
    memset(round->counted, 0, round->workers * sizeof *round->counted);
    round->closed = 0;
    round->epoch = 0;
    round->over = false;
    note_round(round, 0);
    pthread_mutex_unlock(&round->lock);
}

static uint64_t counted_here(struct psd_round *round, uint32_t rank)
{
    bool decided = !round->member[rank] || round->state != PSD_ROUND_OPEN;
    return decided && is_whole(round, rank) ? round->closed + 1 : round->counted[rank];
}

void psd_rounds_counted(struct psd_job *job, uint64_t *counted, uint64_t *counted_in_all)
{
    bool any = false;
    memset(counted, 0, job->workers * sizeof *counted);
    memset(counted_in_all, 0, job->workers * sizeof *counted_in_all);
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (!round)
            continue;
        pthread_mutex_lock(&round->lock);
        for (uint32_t rank = 0; rank < round->workers; rank++) {
            uint64_t last = counted_here(round, rank);
            counted[rank] = last > counted[rank] ? last : counted[rank];
            counted_in_all[rank] = !any || last < counted_in_all[rank] ? last : counted_in_all[rank];
        }
        pthread_mutex_unlock(&round->lock);
        any = true;
    }
}

uint64_t psd_rounds_open(struct psd_job *job)
{
    uint64_t least = 0;
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (!round)
            continue;
        pthread_mutex_lock(&round->lock);
        if (least == 0 || open_number(round) < least)
            least = open_number(round);
        pthread_mutex_unlock(&round->lock);
    }
    return least;
}
