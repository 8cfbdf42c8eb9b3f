// SPDX-License-Identifier: Apache-2.0
#include "psd/job/staging.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/sometimes.h"

// All of an update's extents in one block. Their values lie in page, which is their payload.
struct staged_block {
    struct psd_page *page, *spare;  // spare: for psd_block_write
    size_t first, n;                // extents of the chunk
    bool promised;                  // place for the request in its block
};

// What one request brought, in one allocation.
struct chunk {
    struct chunk *next;
    size_t taken;  // bytes of the pool for this
    struct psd_extent *extents;
    size_t n_blocks;
    struct staged_block blocks[];
};

struct psd_staged {
    struct psd_staged *next;
    uint32_t client, worker;  // its index in the job; rank + 1, or 0
    uint64_t incarnation, sequence;
    int method;
    uint64_t bytes, here;  // announced, staged
    uint64_t touched;      // ns
    struct chunk *chunks;
    // The blocks in it, a hash table with open addressing.
    const struct psd_block **table;
    size_t n, cap;  // cap: a power of two, or 0
};

// ---- forgetting ---------------------------------------------------------------------------------------------------

static void free_chunk(struct psd_job *job, struct chunk *c)
{
    for (size_t i = 0; i < c->n_blocks; i++) {
        if (c->blocks[i].page)
            psd_page_unref(c->blocks[i].page);
        if (c->blocks[i].spare)
            psd_page_unref(c->blocks[i].spare);
    }
    psd_pool_give(job->pool, c->taken);
    free(c);
}

static size_t table_bytes(size_t cap)
{
    return cap * sizeof(const struct psd_block *);
}

// *at: its link in the job's list.
static void staging_forget(struct psd_job *job, struct psd_staged **at)
{
    struct psd_staged *s = *at;
    *at = s->next;
    while (s->chunks) {
        struct chunk *c = s->chunks;
        s->chunks = c->next;
        free_chunk(job, c);
    }
    psd_pool_give(job->pool, sizeof *s + table_bytes(s->cap));
    free(s->table);
    free(s);
}

struct reason {
    uint64_t now;
    bool ended;     // the job
    uint32_t gone;  // rank + 1 of a worker that has departed, and
    uint64_t incarnation;
};

// The job's lock is held where no worker is gone.
static bool is_over(const struct psd_job *job, const struct psd_staged *s, const struct reason *why)
{
    if (why->gone)
        return s->worker == why->gone && s->incarnation <= why->incarnation;
    return why->ended || why->now >= s->touched + PSD_STAGED_S * PS_SECOND ||
           (s->worker && s->incarnation < job->incarnations[s->worker - 1]);
}

// The staging lock is held.
static void forget_among(struct psd_job *job, const struct reason *why)
{
    for (struct psd_staged **at = &job->staged; *at;)
        if (is_over(job, *at, why))
            staging_forget(job, at);
        else
            at = &(*at)->next;
}

static void forget_where(struct psd_job *job, const struct reason *why)
{
    pthread_mutex_lock(&job->staging);
    forget_among(job, why);
    pthread_mutex_unlock(&job->staging);
}

// The staging lock is held. When the first of them will have been silent for too long.
static uint64_t staging_due(const struct psd_job *job)
{
    uint64_t due = UINT64_MAX;
    for (const struct psd_staged *s = job->staged; s; s = s->next)
        due = s->touched + PSD_STAGED_S * PS_SECOND < due ? s->touched + PSD_STAGED_S * PS_SECOND : due;
    return due;
}

// Forgets what has been silent for too long or has been superseded, and everything where the job has ended. While an
// update takes effect, which may take long, nobody waits for it with the job's lock: the next tick looks again.
static uint64_t staging_tick(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    uint64_t due = now;
    (void)ready;
    pthread_mutex_lock(&job->lock);
    const bool free_to_look = pthread_mutex_trylock(&job->staging) == 0;
    if (free_to_look)
        forget_among(job, &(struct reason){.now = now, .ended = psd_job_has_failed(job)});
    pthread_mutex_unlock(&job->lock);
    if (free_to_look) {
        due = staging_due(job);
        pthread_mutex_unlock(&job->staging);
    }
    return due;
}

void psd_staging_drop_worker(struct psd_job *job, uint32_t rank, uint64_t incarnation)
{
    forget_where(job, &(struct reason){.gone = rank + 1, .incarnation = incarnation});
}

static void staging_drop_all(struct psd_job *job)
{
    forget_where(job, &(struct reason){.ended = true});
}

static void staging_begin_run(struct psd_job *job, struct psd_call **ready)
{
    (void)ready;
    staging_drop_all(job);
}

const struct psd_component psd_staging_component = {
    .name = "staging", .begin_run = staging_begin_run, .tick = staging_tick, .free = staging_drop_all};

// ---- the blocks that are in an update -----------------------------------------------------------------------------

// Where a block is in the table, or would be. Multiplicative hashing (Knuth, The Art of Computer Programming 6.4).
static const struct psd_block **slot_of(const struct psd_staged *s, const struct psd_block *b)
{
    size_t i = (size_t)((uintptr_t)b * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (s->cap - 1);
    while (s->table[i] && s->table[i] != b)
        i = (i + 1) & (s->cap - 1);
    return &s->table[i];
}

static bool is_staged(const struct psd_staged *s, const struct psd_block *b)
{
    return s->cap && *slot_of(s, b);
}

// Room for n more blocks, half of it empty.
static enum ps_code grow_table(struct psd_job *job, struct psd_staged *s, size_t n, struct ps_error *e)
{
    struct psd_staged larger = *s;
    while (larger.cap < 2 * (s->n + n))
        larger.cap = larger.cap ? 2 * larger.cap : 16;
    if (larger.cap == s->cap)
        return PS_OK;
    size_t more = table_bytes(larger.cap) - table_bytes(s->cap);
    if (!psd_pool_take(job->pool, more))
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%zu bytes to stage an atomic update do not fit the limit of %zu",
                       more, job->pool->limit);
    larger.table = ps_try_alloc_array(larger.cap, sizeof(const struct psd_block *));
    if (!larger.table) {
        psd_pool_give(job->pool, more);
        return ps_no_memory(e, "an atomic update");
    }
    for (size_t i = 0; i < s->cap; i++)
        if (s->table[i])
            *slot_of(&larger, s->table[i]) = s->table[i];
    free(s->table);
    *s = larger;
    return PS_OK;
}

// ---- staging ------------------------------------------------------------------------------------------------------

// Memory that counts in the pool; NULL: there is none.
static void *alloc_counted(struct psd_job *job, size_t bytes)
{
    if (!psd_pool_take(job->pool, bytes))
        return NULL;
    void *p = ps_try_alloc(bytes);
    if (!p)
        psd_pool_give(job->pool, bytes);
    return p;
}

// The update that a request belongs to, made where it is the first. Earlier ones that its client has given up are
// forgotten.
static enum ps_code find_staged(struct psd_job *job, const struct psd_atomic *a, struct psd_staged **out,
                                struct ps_error *e)
{
    for (struct psd_staged **at = &job->staged; *at;) {
        struct psd_staged *s = *at;
        bool mine = s->client == a->id.client;
        if (mine && s->sequence == a->id.sequence) {
            *out = s;
            return PS_OK;
        }
        if (mine && s->sequence < a->id.oldest)
            staging_forget(job, at);
        else
            at = &s->next;
    }
    struct psd_staged *s = alloc_counted(job, sizeof *s);
    if (!s)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%zu bytes to stage an atomic update do not fit the limit of %zu",
                       sizeof *s, job->pool->limit);
    *s = (struct psd_staged){.next = job->staged,
                             .client = a->id.client,
                             .worker = a->caller->worker,
                             .incarnation = a->caller->incarnation,
                             .sequence = a->id.sequence,
                             .method = a->method,
                             .bytes = a->bytes};
    job->staged = *out = s;
    return PS_OK;
}

// What a request adds: blocks and extents that are not staged yet.
struct addition {
    size_t blocks, extents;
    uint64_t bytes;
};

static struct addition count_addition(const struct psd_staged *s, const struct psd_extents *extents)
{
    struct addition n = {0};
    for (size_t i = 0, end; i < extents->n; i = end) {
        end = psd_extents_block_end(extents, i);
        if (is_staged(s, psd_extent_block(&extents->v[i])))
            continue;
        n.blocks++;
        n.extents += end - i;
        for (size_t k = i; k < end; k++)
            n.bytes += extents->v[k].bytes;
    }
    return n;
}

static enum ps_code check_addition(const struct psd_staged *s, const struct psd_atomic *a, const struct addition *n,
                                   struct ps_error *e)
{
    if (s->method != a->method || s->bytes != a->bytes)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "sequence %" PRIu64 " is an atomic update of %" PRIu64 " bytes; a request of it says %" PRIu64
                       " bytes%s",
                       s->sequence, s->bytes, a->bytes, s->method != a->method ? ", by another method" : "");
    if (n->bytes > s->bytes - s->here)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "atomic update of %" PRIu64 " bytes: %" PRIu64 " are here already, %" PRIu64 " more came",
                       s->bytes, s->here, n->bytes);
    return PS_OK;
}

static struct chunk *new_chunk(struct psd_job *job, const struct addition *n)
{
    size_t blocks = sizeof(struct chunk) + n->blocks * sizeof(struct staged_block);
    size_t bytes = blocks + n->extents * sizeof(struct psd_extent);
    struct chunk *c = alloc_counted(job, bytes);
    if (!c)
        return NULL;
    c->taken = bytes;
    c->extents = (struct psd_extent *)((char *)c + blocks);
    return c;
}

// Extents [i, end) of a request become the chunk's next block: their values lie side by side in its page, strings as
// they lie in a block.
static bool stage_block(struct psd_job *job, struct chunk *c, size_t first, const struct psd_atomic *a, size_t i,
                        size_t end)
{
    struct staged_block *b = &c->blocks[c->n_blocks];
    uint32_t bytes = 0;
    *b = (struct staged_block){.first = first, .n = end - i};
    for (size_t k = i; k < end; k++) {
        c->extents[first + k - i] = a->extents->v[k];
        c->extents[first + k - i].at = bytes;
        bytes += a->extents->v[k].bytes;
    }
    b->page = psd_page_try(job->pool, bytes);
    if (!b->page)
        return false;
    c->n_blocks++;
    const struct psd_extent *from = &a->extents->v[i];
    if (from->variable->dtype == PS_STRING) {
        uint32_t lengths = from->count * PS_STRING_LENGTH;
        c->extents[first].text_at = lengths;
        psd_feed_copy(a->feed, from->at, lengths, b->page->data);
        psd_feed_copy(a->feed, from->text_at, bytes - lengths, b->page->data + lengths);
    } else {
        psd_feed_copy(a->feed, from->at, bytes, b->page->data);
    }
    return true;
}

static enum ps_code staging_stage(struct psd_job *job, struct psd_staged *s, const struct psd_atomic *a,
                                  struct ps_error *e)
{
    struct addition n = count_addition(s, a->extents);
    size_t extents = 0;
    if (check_addition(s, a, &n, e))
        return e->code;
    s->touched = a->now;
    if (n.blocks == 0)
        return PS_OK;
    struct chunk *c = grow_table(job, s, n.blocks, e) ? NULL : new_chunk(job, &n);
    for (size_t i = 0, end; c && i < a->extents->n; i = end) {
        end = psd_extents_block_end(a->extents, i);
        if (is_staged(s, psd_extent_block(&a->extents->v[i])))
            continue;
        if (!stage_block(job, c, extents, a, i, end)) {
            free_chunk(job, c);
            c = NULL;
        }
        extents += end - i;
    }
    if (!c)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%" PRIu64 " bytes to stage do not fit the limit of %zu", n.bytes,
                       job->pool->limit);
    for (size_t i = 0; i < c->n_blocks; i++) {
        const struct psd_block *b = psd_extent_block(&c->extents[c->blocks[i].first]);
        *slot_of(s, b) = b;
    }
    s->n += n.blocks;
    s->here += n.bytes;
    c->next = s->chunks;
    s->chunks = c;
    return PS_OK;
}

// ---- taking effect ------------------------------------------------------------------------------------------------

// What a block needs so that nothing fails once the first one has been changed.
static enum ps_code prepare_block(struct psd_job *job, const struct psd_request_id *id,
                                  const struct psd_extent *extents, struct staged_block *to, struct ps_error *e)
{
    struct psd_block *b = psd_extent_block(&extents[to->first]);
    size_t bytes = psd_update_page_bytes(&extents[to->first]);
    pthread_mutex_lock(&b->lock);
    to->promised = psd_block_promise(b, id);
    bool fresh = psd_block_pinned(b) || b->page->bytes != bytes;
    pthread_mutex_unlock(&b->lock);
    if (!to->promised || (fresh && !to->spare && !(to->spare = psd_page_try(job->pool, bytes))))
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%zu bytes for a fresh block do not fit the limit of %zu", bytes,
                       job->pool->limit);
    return PS_OK;
}

static void give_up_block(const struct psd_extent *extents, struct staged_block *b)
{
    struct psd_block *block = psd_extent_block(&extents[b->first]);
    pthread_mutex_lock(&block->lock);
    if (b->promised)
        psd_block_give_up(block);
    b->promised = false;
    pthread_mutex_unlock(&block->lock);
}

// The snapshot lock keeps readers out: a block that was not pinned when it was prepared still is not.
static void staging_apply_block(struct psd_job *job, const struct psd_staged *s, const struct psd_request_id *id,
                                struct psd_extent *extents, struct staged_block *from)
{
    struct psd_extent *p = &extents[from->first];
    struct ps_slice slice = {from->page->data, from->page->bytes, NULL};
    struct ps_slices payload = {.v = &slice, .n = 1, .len = slice.len};
    struct psd_feed feed = {.payload = &payload};
    uint64_t found, version;
    const struct psd_update u = {.job = job,
                                 .how = psd_update_effect(s->method, p->variable),
                                 .extents = p,
                                 .n = from->n,
                                 .feed = &feed,
                                 .id = id,
                                 .promised = true};
    psd_update_block(&u, &from->spare, &found, &version);
    from->promised = false;
}

// Has the job come into its rounds since a push was located? Then none is applied on arrival.
static bool staging_is_late(const struct psd_staged *s)
{
    bool late = false;
    for (struct chunk *c = s->chunks; c && s->method == PARAMSERVER__V1__METHOD__PUSH; c = c->next)
        for (size_t i = 0; i < c->n_blocks && !late; i++)
            late = c->extents[c->blocks[i].first].partition->round;
    return late;
}

static enum ps_code staging_commit(struct psd_job *job, const struct psd_staged *s, const struct psd_request_id *id,
                                   struct ps_error *e)
{
    enum ps_code code = PS_OK;
    pthread_rwlock_wrlock(&job->snapshot_lock);
    if (staging_is_late(s))
        code = ps_fail(e, PS_UNAVAILABLE, "job '%s' has become sync meanwhile: send it again", job->name);
    for (struct chunk *c = s->chunks; c && code == PS_OK; c = c->next)
        for (size_t i = 0; i < c->n_blocks && code == PS_OK; i++)
            code = prepare_block(job, id, c->extents, &c->blocks[i], e);
    for (struct chunk *c = s->chunks; c; c = c->next)
        for (size_t i = 0; i < c->n_blocks; i++)
            if (code == PS_OK)
                staging_apply_block(job, s, id, c->extents, &c->blocks[i]);
            else
                give_up_block(c->extents, &c->blocks[i]);
    pthread_rwlock_unlock(&job->snapshot_lock);
    return code;
}

// ---- a request ----------------------------------------------------------------------------------------------------

static bool all_have_taken(const struct psd_atomic *a)
{
    bool all = true;
    for (size_t i = 0; i < a->extents->n && all; i++) {
        struct psd_block *b = psd_extent_block(&a->extents->v[i]);
        pthread_mutex_lock(&b->lock);
        all = psd_block_has_taken(b, &a->id);
        pthread_mutex_unlock(&b->lock);
    }
    return all;
}

// Its blocks would say that they have all that is below `oldest`.
static enum ps_code staging_check_oldest(const struct psd_job *job, const struct psd_atomic *a, struct ps_error *e)
{
    for (const struct psd_staged *s = job->staged; s && a->id.sequence < a->id.oldest; s = s->next)
        if (s->client == a->id.client && s->sequence == a->id.sequence)
            return ps_fail(e, PS_FAILED_PRECONDITION,
                           "atomic update of %" PRIu64 " bytes: %" PRIu64 " are here, and its sequence %" PRIu64
                           " was given up, as below oldest %" PRIu64 ": send it all under a new one",
                           s->bytes, s->here, s->sequence, a->id.oldest);
    return PS_OK;
}

static enum ps_code staging_add_request(struct psd_job *job, const struct psd_atomic *a,
                                        Paramserver__V1__Outcome *outcome, struct ps_error *e)
{
    struct psd_staged *s = NULL;
    *outcome = PARAMSERVER__V1__OUTCOME__DUPLICATE;
    if (staging_check_oldest(job, a, e))
        return e->code;
    if (all_have_taken(a))
        return PS_OK;
    if (find_staged(job, a, &s, e))
        return e->code;
    enum ps_code code = staging_stage(job, s, a, e);
    bool whole = code == PS_OK && s->here == s->bytes;
    if (whole)
        code = staging_commit(job, s, &a->id, e);
    if (!whole)
        ps_sometimes(PS_SOMETIMES_STAGED_PART);
    *outcome = whole ? PARAMSERVER__V1__OUTCOME__APPLIED : PARAMSERVER__V1__OUTCOME__STAGED;
    if ((whole && code == PS_OK) || !s->chunks) {
        struct psd_staged **at = &job->staged;
        while (*at != s)
            at = &(*at)->next;
        staging_forget(job, at);
    }
    return code;
}

enum ps_code psd_staging_add(struct psd_job *job, const struct psd_atomic *a, Paramserver__V1__Outcome *outcome,
                             struct ps_error *e)
{
    pthread_mutex_lock(&job->staging);
    enum ps_code code = staging_add_request(job, a, outcome, e);
    pthread_mutex_unlock(&job->staging);
    return code;
}
