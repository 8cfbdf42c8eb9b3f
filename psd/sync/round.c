// SPDX-License-Identifier: Apache-2.0
#include "psd/sync/round.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/sometimes.h"
#include "common/math/aggregate.h"
#include "psd/job/host.h"

static enum ps_code round_alloc(struct psd_round *round)
{
    size_t n = round->partition->n_blocks, workers = round->workers;
    round->member = ps_try_alloc_array(workers, sizeof *round->member);
    round->counted = ps_try_alloc_array(workers, sizeof *round->counted);
    round->batch = ps_try_alloc_array(workers, sizeof *round->batch);
    round->contributions = ps_try_alloc_array(workers, sizeof *round->contributions);
    round->pages = ps_try_alloc_array(workers * n, sizeof(struct psd_page *));
    round->sum = ps_try_alloc_array(n, sizeof(struct psd_page *));
    round->spares = ps_try_alloc_array(n, sizeof(struct psd_page *));
    round->squares = ps_try_alloc_array(n, sizeof *round->squares);
    round->applied = ps_try_alloc_array(n, sizeof *round->applied);
    if (!round->member || !round->counted || !round->batch || !round->contributions || !round->pages || !round->sum ||
        !round->spares || !round->squares || !round->applied)
        return PS_RESOURCE_EXHAUSTED;
    for (size_t rank = 0; rank < workers; rank++)
        round->contributions[rank].pages = round->pages + rank * n;
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
    round->pool = job->pool;
    round->job_run = &job->run;
    round->workers = job->workers;
    round->host = job->host;
    round->grace = job->grace_ms * PS_MS;
    round->enough = job->replicas_to_aggregate ? job->replicas_to_aggregate : job->workers;
    if (round_alloc(round)) {
        psd_round_destroy(round);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for the gradients of %" PRIu32 " workers", job->workers);
    }
    memset(round->member, true, job->workers * sizeof *round->member);
    round->members = job->workers;
    *out = round;
    return PS_OK;
}

static void pages_drop(struct psd_page **pages, size_t n)
{
    for (size_t k = 0; pages && k < n; k++) {
        if (pages[k])
            psd_page_unref(pages[k]);
        pages[k] = NULL;
    }
}

void psd_round_destroy(struct psd_round *round)
{
    if (!round)
        return;
    size_t n = round->partition->n_blocks;
    pages_drop(round->spares, n);
    pages_drop(round->sum, n);
    pages_drop(round->pages, round->workers * n);
    free(round->applied);
    free(round->squares);
    free(round->spares);
    free(round->sum);
    free(round->pages);
    free(round->contributions);
    free(round->batch);
    free(round->counted);
    free(round->member);
    pthread_mutex_destroy(&round->lock);
    free(round);
}

// ---- gradients ----------------------------------------------------------------------------------------------------

// The static functions below: the round's lock is held.

static bool is_whole(const struct psd_round *round, uint32_t rank)
{
    return !round->abandoned && round->contributions[rank].blocks == round->partition->n_blocks;
}

// After the members, or all gradients, have changed.
static void round_count(struct psd_round *round)
{
    round->members = round->whole = round->whole_members = 0;
    for (uint32_t rank = 0; rank < round->workers; rank++) {
        round->members += round->member[rank];
        round->whole += is_whole(round, rank);
        round->whole_members += round->member[rank] && is_whole(round, rank);
    }
}

// Is the time over in which the other members' gradients count, too? There are enough.
static bool round_grace_is_over(struct psd_round *round)
{
    if (round->grace == 0 || round->whole_members >= round->members)
        return true;
    const uint64_t now = psd_host_now(round->host);
    if (round->enough_at == 0)
        round->enough_at = now;
    return now - round->enough_at >= round->grace;
}

// Completes an open round in which enough members' gradients are whole. Those of departed workers count besides.
static void round_judge(struct psd_round *round)
{
    uint32_t needed = round->members < round->enough ? round->members : round->enough;
    if (round->state != PSD_ROUND_OPEN)
        return;
    if (round->whole_members < needed || !round->whole)
        round->enough_at = 0;
    else if (round_grace_is_over(round))
        round->state = PSD_ROUND_COMPLETE;
}

// The first that an open round waits for, which does not take part in the view (NULL: of all); as in Caller, 0: none.
static uint32_t round_first_missing(const struct psd_round *round, const struct psd_view *view)
{
    for (uint32_t rank = 0; rank < round->workers; rank++)
        if (psd_round_misses(round, rank) && !(view && rank < view->n && view->takes_part[rank]))
            return rank + 1;
    return 0;
}

uint64_t psd_round_tick(struct psd_round *round)
{
    uint64_t due = UINT64_MAX;
    pthread_mutex_lock(&round->lock);
    if (round->enough_at && round->state == PSD_ROUND_OPEN) {
        round->awaited = round_first_missing(round, NULL);
        round_judge(round);
    }
    if (round->enough_at && round->state == PSD_ROUND_OPEN)
        due = round->enough_at + round->grace;
    pthread_mutex_unlock(&round->lock);
    return due;
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

uint64_t psd_round_decided(struct psd_round *round)
{
    pthread_mutex_lock(&round->lock);
    uint64_t decided = round->closed + (round->state > PSD_ROUND_COMPLETE);
    pthread_mutex_unlock(&round->lock);
    return decided;
}

static bool has_block(const struct psd_contribution *c, uint32_t block)
{
    return c->folded || c->pages[block];
}

// A gradient is of one operation: blocks of two would be a mixture of their values.
static bool is_of_another(const struct psd_contribution *c, const struct psd_request_id *id)
{
    return c->blocks && (c->client != id->client || c->sequence != id->sequence);
}

enum ps_code psd_round_check(struct psd_round *round, const char *variable, const struct psd_gradient *g,
                             Paramserver__V1__Outcome *outcome, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    if (g->examples > PS_EXAMPLES_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': a gradient of %" PRIu64 " examples; expected at most %" PRIu64, variable,
                       g->examples, PS_EXAMPLES_MAX);
    pthread_mutex_lock(&round->lock);
    const struct psd_contribution *c = &round->contributions[g->rank];
    *outcome = g->number < open_number(round) ? PARAMSERVER__V1__OUTCOME__STALE : PARAMSERVER__V1__OUTCOME__QUEUED;
    if (round->off)
        code =
            ps_fail(e, PS_FAILED_PRECONDITION,
                    "variable '%s': the job has left its rounds, the push is for round %" PRIu64, variable, g->number);
    else if (round->abandoned)
        code = ps_fail(e, PS_UNAVAILABLE, "variable '%s': its round still ends its work for the run before", variable);
    else if (g->number > round->closed + 1 && g->number == open_number(round))
        code = ps_fail(e, PS_UNAVAILABLE, "variable '%s': round %" PRIu64 " opens once round %" PRIu64 " is applied",
                       variable, g->number, g->number - 1);
    else if (g->number > round->closed + 1)
        code = ps_fail(e, PS_FAILED_PRECONDITION,
                       "variable '%s': round %" PRIu64 " is open, the push is for round %" PRIu64, variable,
                       round->closed + 1, g->number);
    else if (!round->member[g->rank])
        code = ps_fail(e, PS_ABORTED, "variable '%s': worker %" PRIu32 " is not a member of round %" PRIu64 " any more",
                       variable, g->rank, round->closed + 1);
    else if (g->number == open_number(round) && c->blocks && c->examples != g->examples)
        code =
            ps_fail(e, PS_INVALID_ARGUMENT,
                    "variable '%s': a gradient of %" PRIu64 " examples, of which other blocks came as one of %" PRIu64,
                    variable, g->examples, c->examples);
    else if (g->number == open_number(round) && (has_block(c, g->block) || is_of_another(c, &g->id)))
        code = ps_fail(e, PS_ALREADY_EXISTS,
                       "variable '%s': another gradient of worker %" PRIu32 " for round %" PRIu64
                       " is there, some of it or all",
                       variable, g->rank, g->number);
    pthread_mutex_unlock(&round->lock);
    return code;
}

struct psd_page *psd_round_copy(const struct psd_round *round, uint32_t block, const struct ps_slices *payload,
                                size_t offset)
{
    const struct psd_block *b = &round->partition->blocks[block];
    struct psd_page *page = psd_page_reserved(round->pool, (size_t)b->count * sizeof(float));
    if (page)
        ps_slices_copy_out(payload, offset, page->bytes, page->data);
    return page;
}

Paramserver__V1__Outcome psd_round_add(struct psd_round *round, uint64_t run, const struct psd_gradient *g,
                                       struct psd_page **gradient)
{
    Paramserver__V1__Outcome outcome;
    pthread_mutex_lock(&round->lock);
    struct psd_contribution *c = &round->contributions[g->rank];
    struct psd_block *b = &round->partition->blocks[g->block];
    // Since the check its worker may have been taken out, and told what of it counts; or the round may have been reset,
    // for a run that the job began before.
    bool open = atomic_load(round->job_run) == run && round->state == PSD_ROUND_OPEN &&
                g->number == round->closed + 1 && round->member[g->rank] && !round->abandoned && !round->off &&
                *gradient;
    bool fresh = open && !has_block(c, g->block) && !is_of_another(c, &g->id);
    pthread_mutex_lock(&b->lock);
    bool had = psd_block_has_taken(b, &g->id), room = !fresh || had || psd_block_reserve(b, &g->id);
    if (fresh && !had && room)
        psd_block_record(b, &g->id);
    pthread_mutex_unlock(&b->lock);
    if (!room) {
        outcome = PARAMSERVER__V1__OUTCOME__OUTCOME_NONE;
    } else if (had || (open && !fresh)) {
        outcome = PARAMSERVER__V1__OUTCOME__DUPLICATE;
    } else if (!open) {
        ps_sometimes(PS_SOMETIMES_STALE_PUSH);
        outcome = PARAMSERVER__V1__OUTCOME__STALE;
    } else {
        c->pages[g->block] = *gradient;
        *gradient = NULL;
        c->examples = g->examples;
        c->client = g->id.client;
        c->sequence = g->id.sequence;
        c->blocks++;
        outcome = is_whole(round, g->rank) ? PARAMSERVER__V1__OUTCOME__QUEUED : PARAMSERVER__V1__OUTCOME__STAGED;
        if (outcome == PARAMSERVER__V1__OUTCOME__QUEUED) {
            round->whole++;
            round->whole_members++;
            round->awaited = g->rank + 1;
            round_judge(round);
        }
    }
    pthread_mutex_unlock(&round->lock);
    return outcome;
}

static void contribution_forget(struct psd_contribution *c, uint32_t n_blocks)
{
    pages_drop(c->pages, n_blocks);
    c->blocks = 0;
    c->folded = false;
}

void psd_round_forget(struct psd_round *round)
{
    uint32_t n = round->partition->n_blocks;
    for (uint32_t rank = 0; rank < round->workers; rank++)
        contribution_forget(&round->contributions[rank], n);
    pages_drop(round->sum, n);
    pages_drop(round->spares, n);
    memset(round->applied, 0, n * sizeof *round->applied);
    round->begun = round->ignores = false;
    round->examples = 0;
    round->next = 0;
    round->abandoned = false;
    round->whole = round->whole_members = 0;
    round->enough_at = 0;
    round->awaited = 0;
    round->state = PSD_ROUND_OPEN;
}

// ---- the sum ------------------------------------------------------------------------------------------------------

// A mean gradient is taken in runs that stay in the first-level cache.
enum { RUN = 4096 };

// Can the rank still contribute to the round, or not any more? (The caller knows that it is not whole.)
static bool is_expected(const struct psd_round *round, uint32_t rank)
{
    return round->state == PSD_ROUND_OPEN && round->member[rank];
}

size_t psd_round_work(const struct psd_round *round, bool held)
{
    size_t passes = 0;
    for (uint32_t rank = round->next; rank < round->workers; rank++)
        if (is_whole(round, rank))
            passes += !round->contributions[rank].folded;
        else if (is_expected(round, rank))
            break;
    if ((round->state == PSD_ROUND_COMPLETE && !held) || round->state == PSD_ROUND_SQUARING ||
        round->state == PSD_ROUND_APPLYING)
        passes += 2;
    return passes * round->partition->n_blocks;
}

// The first gradient becomes the sum: its pages are not needed otherwise.
static void sum_begin(struct psd_round *round, const struct psd_contribution *c)
{
    for (uint32_t k = 0; k < round->partition->n_blocks; k++) {
        round->sum[k] = c->pages[k];
        c->pages[k] = NULL;
    }
}

bool psd_round_take_batch(struct psd_round *round)
{
    bool any = false;
    round->n_batch = 0;
    for (; round->next < round->workers; round->next++) {
        struct psd_contribution *c = &round->contributions[round->next];
        if (!is_whole(round, round->next)) {
            if (is_expected(round, round->next))
                break;
            continue;
        }
        if (c->folded)
            continue;
        c->folded = any = true;
        round->batch[round->n_batch++] = round->next;
    }
    return any;
}

struct fold {
    struct psd_round *round;
    bool begin;  // the first of the batch is the sum, not multiplied by its examples yet
};

// Every gradient of the batch, in rank order. A mean over no example is no number, so a gradient of none is not even
// multiplied.
static void fold_block(void *arg, uint32_t k)
{
    const struct fold *f = arg;
    const struct psd_round *round = f->round;
    const size_t count = round->partition->blocks[k].count;
    for (size_t at = 0; at < count; at += RUN) {
        size_t n = count - at < RUN ? count - at : RUN;
        float *sum = (float *)round->sum[k]->data + at;
        for (uint32_t i = 0; i < round->n_batch; i++) {
            const struct psd_contribution *c = &round->contributions[round->batch[i]];
            if (f->begin && i == 0)
                ps_aggregate_begin(n, c->examples, sum, sum);
            else
                ps_aggregate_add(n, c->examples, (const float *)c->pages[k]->data + at, sum);
        }
    }
    for (uint32_t i = f->begin; i < round->n_batch; i++)
        pages_drop(&round->contributions[round->batch[i]].pages[k], 1);
}

static bool contribution_is_zero(const struct psd_round *round, const struct psd_contribution *c)
{
    for (uint32_t k = 0; k < round->partition->n_blocks; k++) {
        const float *values = (const float *)c->pages[k]->data;
        for (size_t i = 0; i < round->partition->blocks[k].count; i++)
            if (values[i] != 0)
                return false;
    }
    return true;
}

// Drops those of the batch that stand for no example. libclient's callers bring zeros for an empty batch: another
// gradient of no examples is one of a client that has left their number out.
static void batch_thin(struct psd_round *round)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < round->n_batch; i++) {
        struct psd_contribution *c = &round->contributions[round->batch[i]];
        round->examples += c->examples;
        if (c->examples) {
            round->batch[n++] = round->batch[i];
        } else {
            round->ignores = round->ignores || (round->examples == 0 && !contribution_is_zero(round, c));
            pages_drop(c->pages, round->partition->n_blocks);
        }
    }
    round->n_batch = n;
}

void psd_round_fold(struct psd_round *round, struct ps_workers *workers)
{
    batch_thin(round);
    if (round->n_batch == 0)
        return;
    struct fold f = {round, !round->begun};
    if (f.begin)
        sum_begin(round, &round->contributions[round->batch[0]]);
    round->begun = true;
    ps_workers_for(workers, round->partition->n_blocks, fold_block, &f);
}

// Run by run and block by block, whatever the number of tasks and threads.
static void square_block(void *arg, uint32_t k)
{
    struct psd_round *round = arg;
    const size_t count = round->partition->blocks[k].count;
    double square = 0;
    float mean[RUN];
    for (size_t at = 0; at < count; at += RUN) {
        size_t n = count - at < RUN ? count - at : RUN;
        ps_aggregate_mean(n, round->examples, (const float *)round->sum[k]->data + at, mean);
        square += ps_sum_squares(mean, n);
    }
    round->squares[k] = square;
}

void psd_round_square(struct psd_round *round, struct ps_workers *workers)
{
    double square = 0;
    if (round->examples) {
        ps_workers_for(workers, round->partition->n_blocks, square_block, round);
        for (uint32_t k = 0; k < round->partition->n_blocks; k++)
            square += round->squares[k];
    }
    round->square = square;
}

// ---- the update ---------------------------------------------------------------------------------------------------

struct apply {
    struct psd_job *job;
    struct psd_round *round;
    uint64_t run, number;
    atomic_bool lacks_memory;
};

struct apply_block {
    const struct apply *a;
    uint32_t k;
};

// The round may be reset meanwhile, which takes the locks of all blocks.
static bool round_is_on(void *arg)
{
    const struct apply *a = ((const struct apply_block *)arg)->a;
    return atomic_load(&a->round->run) == a->run;
}

static void round_fill_block(void *arg, struct psd_block *b, struct psd_page *out)
{
    const struct apply_block *x = arg;
    const struct apply *a = x->a;
    struct psd_round *round = a->round;
    float mean[RUN];
    struct psd_step step;
    psd_step_init(&step, a->job, &a->job->variables[round->partition->variable], b, a->number);
    step.clip_factor = round->factor;
    for (size_t at = 0; at < b->count; at += RUN) {
        size_t n = b->count - at < RUN ? b->count - at : RUN;
        ps_aggregate_mean(n, round->examples, (const float *)round->sum[x->k]->data + at, mean);
        psd_step_apply(&step, b, out, at, n, mean);
    }
    b->steps++;
    b->round = a->number;
}

static void apply_round_block(void *arg, uint32_t k)
{
    struct apply *a = arg;
    struct psd_round *round = a->round;
    struct psd_block *b = &round->partition->blocks[k];
    struct apply_block x = {a, k};
    const struct psd_variable *v = &a->job->variables[round->partition->variable];
    const struct psd_write w = {.bytes = psd_page_bytes(b->value_bytes, v->blank.slots),
                                .fill = round_fill_block,
                                .wanted = round_is_on,
                                .arg = &x};
    uint64_t found, version;
    if (round->applied[k])
        return;
    pthread_rwlock_rdlock(&a->job->snapshot_lock);
    enum psd_written written = psd_block_write(b, &w, &round->spares[k], &found, &version);
    pthread_rwlock_unlock(&a->job->snapshot_lock);
    // A reader has come since its page was reserved.
    if (written == PSD_NO_ROOM) {
        atomic_store(&a->lacks_memory, true);
        return;
    }
    round->applied[k] = true;
    pages_drop(&round->sum[k], 1);
}

// A page for each block that is pinned by readers now. False: there is no memory for all of them.
static bool reserve_pages(struct psd_round *round)
{
    for (uint32_t k = 0; k < round->partition->n_blocks; k++) {
        struct psd_block *b = &round->partition->blocks[k];
        pthread_mutex_lock(&b->lock);
        bool pinned = !round->applied[k] && psd_block_pinned(b);
        size_t bytes = b->page->bytes;
        pthread_mutex_unlock(&b->lock);
        if (pinned && !round->spares[k] && !(round->spares[k] = psd_page_new(round->pool, bytes)))
            return false;
    }
    return true;
}

// What a Get says of blocks that a round has left as they were.
static void note_round(struct psd_round *round, uint64_t run, uint64_t number)
{
    for (uint32_t k = 0; k < round->partition->n_blocks; k++) {
        struct psd_block *b = &round->partition->blocks[k];
        pthread_mutex_lock(&b->lock);
        if (atomic_load(&round->run) == run)
            b->round = number;
        pthread_mutex_unlock(&b->lock);
    }
}

// Who leaves `examples` out trains in an async job, and nothing in a sync one.
static void round_warn_once(struct psd_job *job, const struct psd_round *round)
{
    if (!round->ignores || atomic_exchange(&job->warned_of_examples, true))
        return;
    ps_warn("job '%s': round %" PRIu64
            " of '%s' changes nothing: its gradients, which are not zero, are of 0 examples; "
            "expected in each push the number of examples that its gradient is the mean of",
            job->name, round->number, job->variables[round->partition->variable].name);
}

bool psd_round_apply(struct psd_job *job, struct psd_round *round, uint64_t run, struct ps_workers *workers)
{
    struct apply a = {.job = job, .round = round, .run = run, .number = round->number};
    if (round->examples == 0) {
        note_round(round, run, a.number);
        round_warn_once(job, round);
        return true;
    }
    if (!reserve_pages(round))
        return false;
    ps_workers_for(workers, round->partition->n_blocks, apply_round_block, &a);
    return !atomic_load(&a.lacks_memory);
}

void psd_round_close(struct psd_round *round, struct psd_call **ready)
{
    const uint32_t awaited = round->awaited;
    round->closed++;
    for (uint32_t rank = 0; rank < round->workers; rank++)
        if (is_whole(round, rank))
            round->counted[rank] = round->closed;
    psd_round_forget(round);
    psd_ready_after(ready, &round->waiting, awaited);
}

// ---- members ------------------------------------------------------------------------------------------------------

static bool comes_back(const struct psd_round *round, const struct psd_view *view)
{
    bool any = false;
    for (uint32_t rank = 0; rank < round->workers && rank < view->n; rank++)
        any |= view->takes_part[rank] && !round->member[rank];
    return any;
}

// A worker comes back only after all others have waited for it: the gradients that are whole in an open round then are
// of workers that have departed. The round closes with them. If none is whole, the parts of those workers' gradients
// are forgotten, so that they are not taken for parts of their next incarnations'. A member that has waited with a part
// of its gradient in brings the rest.
static void round_settle(struct psd_round *round)
{
    if (round->state == PSD_ROUND_OPEN && round->whole)
        round->state = PSD_ROUND_COMPLETE;
    if (round->abandoned)
        return;  // the busy thread forgets them all
    for (uint32_t rank = 0; round->state == PSD_ROUND_OPEN && rank < round->workers; rank++)
        if (!round->member[rank])
            contribution_forget(&round->contributions[rank], round->partition->n_blocks);
}

void psd_round_set_members(struct psd_round *round, const struct psd_view *view, struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    if (atomic_load(round->job_run) == view->run && view->epoch >= round->epoch) {
        const uint32_t dropped = round_first_missing(round, view);
        round->epoch = view->epoch;
        if (comes_back(round, view))
            round_settle(round);
        for (uint32_t rank = 0; rank < round->workers; rank++)
            round->member[rank] = rank < view->n && view->takes_part[rank];
        round->next = 0;  // who did not count so far may, as long as nothing is folded
        round_count(round);
        bool open = round->state == PSD_ROUND_OPEN;
        round_judge(round);
        if (open && round->state != PSD_ROUND_OPEN)
            ps_sometimes(PS_SOMETIMES_ROUND_SHRUNK);
        if (dropped)
            round->awaited = dropped;
        round->over = view->over;
        if (round->over)
            psd_ready_all(ready, &round->waiting);
    }
    pthread_mutex_unlock(&round->lock);
}

bool psd_round_misses(const struct psd_round *round, uint32_t rank)
{
    return round->state == PSD_ROUND_OPEN && round->member[rank] && !is_whole(round, rank);
}

// All gradients; those that the busy thread has it forgets itself.
static void round_abandon(struct psd_round *round)
{
    if (round->busy) {
        round->abandoned = true;
        round->state = PSD_ROUND_OPEN;
    } else {
        psd_round_forget(round);
    }
}

void psd_round_reset(struct psd_round *round, struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    uint64_t run = atomic_fetch_add(&round->run, 1) + 1;
    round_abandon(round);
    memset(round->member, true, round->workers * sizeof *round->member);
    memset(round->counted, 0, round->workers * sizeof *round->counted);
    round_count(round);
    round->closed = 0;
    round->epoch = 0;
    round->over = false;
    note_round(round, run, 0);
    psd_ready_all(ready, &round->waiting);
    pthread_mutex_unlock(&round->lock);
}

void psd_round_begin(struct psd_round *round, uint64_t closed)
{
    pthread_mutex_lock(&round->lock);
    uint64_t run = atomic_fetch_add(&round->run, 1) + 1;
    round_abandon(round);
    memset(round->member, true, round->workers * sizeof *round->member);
    round_count(round);
    round->closed = closed;
    round->epoch = 0;
    round->over = round->off = false;
    note_round(round, run, closed);
    pthread_mutex_unlock(&round->lock);
}

void psd_round_end(struct psd_round *round, struct psd_call **ready)
{
    pthread_mutex_lock(&round->lock);
    round_abandon(round);
    round->off = round->over = true;
    psd_ready_all(ready, &round->waiting);
    pthread_mutex_unlock(&round->lock);
}

bool psd_round_settle(struct psd_round *round)
{
    pthread_mutex_lock(&round->lock);
    if (round->state == PSD_ROUND_OPEN && round->whole)
        round->state = PSD_ROUND_COMPLETE;
    bool settled = round->state == PSD_ROUND_OPEN && !round->busy && !round->abandoned;
    pthread_mutex_unlock(&round->lock);
    return settled;
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
