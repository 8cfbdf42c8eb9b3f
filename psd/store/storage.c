// SPDX-License-Identifier: Apache-2.0
#include "psd/store/storage.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

// ---- pool ---------------------------------------------------------------------------------------------------------

void psd_pool_init(struct psd_pool *pool, size_t limit)
{
    *pool = (struct psd_pool){.limit = limit};
    pthread_mutex_init(&pool->lock, NULL);
}

// Multiplicative hashing (Knuth, The Art of Computer Programming 6.4), by 2^64 / phi.
static struct psd_page **list_of(struct psd_pool *pool, size_t bytes)
{
    return &pool->free_pages[(bytes * UINT64_C(0x9e3779b97f4a7c15) >> 32) % PSD_POOL_LISTS];
}

static void keep(struct psd_pool *pool, struct psd_page *page)
{
    struct psd_page **list = list_of(pool, page->bytes);
    page->next_free = *list;
    *list = page;
    pool->kept += page->bytes;
}

static void free_kept(struct psd_pool *pool)
{
    for (size_t i = 0; i < PSD_POOL_LISTS; i++)
        while (pool->free_pages[i]) {
            struct psd_page *page = pool->free_pages[i];
            pool->free_pages[i] = page->next_free;
            pool->kept -= page->bytes;
            free(page);
        }
}

void psd_pool_fini(struct psd_pool *pool)
{
    free_kept(pool);
    pthread_mutex_destroy(&pool->lock);
}

bool psd_pool_has_room(struct psd_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    bool room = bytes <= pool->limit && pool->used <= pool->limit - bytes;
    pthread_mutex_unlock(&pool->lock);
    return room;
}

size_t psd_pool_used(struct psd_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t used = pool->used;
    pthread_mutex_unlock(&pool->lock);
    return used;
}

// The lock is held.
static bool take(struct psd_pool *pool, size_t bytes)
{
    if (bytes > pool->limit || pool->used > pool->limit - bytes)
        return false;
    pool->used += bytes;
    if (pool->used + pool->kept > pool->limit)
        free_kept(pool);
    return true;
}

bool psd_pool_take(struct psd_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    bool taken = take(pool, bytes);
    pthread_mutex_unlock(&pool->lock);
    return taken;
}

void psd_pool_give(struct psd_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    pool->used -= bytes;
    pthread_mutex_unlock(&pool->lock);
}

static void page_free(struct ps_owner *owner)
{
    struct psd_page *page = (struct psd_page *)owner;
    struct psd_pool *pool = page->pool;
    pthread_mutex_lock(&pool->lock);
    pool->used -= page->bytes;
    bool fits = pool->used + pool->kept + page->bytes <= pool->limit;
    if (fits)
        keep(pool, page);
    pthread_mutex_unlock(&pool->lock);
    if (!fits)
        free(page);
}

// A kept page of exactly this size. Most sizes are few (whole blocks and the ends of partitions); those of strings may be
// any, and share lists: the search ends early.
static struct psd_page *take_kept(struct psd_pool *pool, size_t bytes)
{
    int looks = 16;
    for (struct psd_page **at = list_of(pool, bytes); *at && looks; at = &(*at)->next_free, looks--) {
        struct psd_page *page = *at;
        if (page->bytes == bytes) {
            *at = page->next_free;
            pool->kept -= bytes;
            return page;
        }
    }
    return NULL;
}

// A page for room that has been taken; page: a kept one, or NULL. Gives the room back where malloc has nothing left.
static struct psd_page *make_page(struct psd_pool *pool, size_t bytes, struct psd_page *page)
{
    if (!page)
        page = aligned_alloc(64, (sizeof *page + bytes + 63) & ~(size_t)63);
    if (!page) {
        psd_pool_give(pool, bytes);
        return NULL;
    }
    page->owner.free = page_free;
    atomic_init(&page->owner.refs, 1);
    page->pool = pool;
    page->bytes = bytes;
    return page;
}

struct psd_page *psd_page_new(struct psd_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    struct psd_page *page = take_kept(pool, bytes);
    if (!page && pool->used + pool->kept + bytes > pool->limit)
        free_kept(pool);
    pool->used += bytes;
    pthread_mutex_unlock(&pool->lock);
    return make_page(pool, bytes, page);
}

struct psd_page *psd_page_try(struct psd_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    struct psd_page *page = take_kept(pool, bytes);
    bool room = take(pool, bytes);
    if (!room && page)
        keep(pool, page);
    pthread_mutex_unlock(&pool->lock);
    return room ? make_page(pool, bytes, page) : NULL;
}

void psd_page_unref(struct psd_page *page)
{
    ps_owner_unref(&page->owner);
}

// ---- marks --------------------------------------------------------------------------------------------------------

static uint64_t *mark_word(struct psd_mark *mark, uint64_t sequence)
{
    return &mark->bits[sequence % PS_WINDOW / 64];
}

void psd_mark_advance(struct psd_mark *mark, uint64_t oldest)
{
    if (oldest <= mark->base)
        return;
    if (oldest - mark->base >= PS_WINDOW)
        memset(mark->bits, 0, sizeof mark->bits);
    else
        for (uint64_t s = mark->base; s < oldest; s++)
            *mark_word(mark, s) &= ~(UINT64_C(1) << s % 64);
    mark->base = oldest;
}

bool psd_mark_test(const struct psd_mark *mark, uint64_t sequence)
{
    if (sequence < mark->base)
        return true;
    return sequence - mark->base < PS_WINDOW && mark->bits[sequence % PS_WINDOW / 64] >> sequence % 64 & 1;
}

void psd_mark_set(struct psd_mark *mark, uint64_t sequence)
{
    *mark_word(mark, sequence) |= UINT64_C(1) << sequence % 64;
}

// ---- blocks -------------------------------------------------------------------------------------------------------

size_t psd_slot_offset(size_t value_bytes, int k)
{
    return ((value_bytes + 63) & ~(size_t)63) * (size_t)(k + 1);
}

size_t psd_page_bytes(size_t value_bytes, int slots)
{
    return psd_slot_offset(value_bytes, slots - 1) + value_bytes;
}

enum ps_code psd_block_init(struct psd_block *b, struct psd_pool *pool, uint32_t count, size_t elem_size, int slots,
                            struct ps_error *e)
{
    size_t bytes = psd_page_bytes(count * elem_size, slots);
    struct psd_page *page = psd_page_new(pool, bytes);
    if (!page)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for a block of %zu bytes", bytes);
    memset(page->data, 0, bytes);
    *b = (struct psd_block){.page = page, .count = count, .value_bytes = (uint32_t)(count * elem_size)};
    pthread_mutex_init(&b->lock, NULL);
    return PS_OK;
}

void psd_block_fini(struct psd_block *b)
{
    psd_pool_give(b->page->pool, b->n_marks * sizeof *b->marks);
    psd_page_unref(b->page);
    free(b->marks);
    pthread_mutex_destroy(&b->lock);
}

bool psd_block_pinned(const struct psd_block *b)
{
    return atomic_load_explicit(&b->page->owner.refs, memory_order_acquire) > 1;
}

struct psd_page *psd_block_pin(struct psd_block *b)
{
    ps_owner_ref(&b->page->owner);
    return b->page;
}

enum ps_code psd_block_prepare(struct psd_block *b, uint32_t client, atomic_ullong *bytes, struct ps_error *e)
{
    if (client < b->n_marks)
        return PS_OK;
    uint32_t n = client + 1 + client / 4;
    size_t more = (n - b->n_marks) * sizeof *b->marks;
    if (!psd_pool_take(b->page->pool, more))
        return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                       "%zu bytes for the marks of what clients have changed do not fit the limit of %zu", more,
                       b->page->pool->limit);
    struct psd_mark *marks = ps_try_realloc(b->marks, n * sizeof *b->marks);
    if (!marks) {
        psd_pool_give(b->page->pool, more);
        return ps_no_memory(e, "the marks of what clients have changed");
    }
    memset(marks + b->n_marks, 0, more);
    b->marks = marks;
    b->n_marks = n;
    atomic_fetch_add(bytes, more);
    return PS_OK;
}

bool psd_block_has_stamp(const struct psd_block *b, const struct psd_request_id *stamp)
{
    if (stamp->sequence < stamp->oldest)
        return true;
    return stamp->client < b->n_marks && psd_mark_test(&b->marks[stamp->client], stamp->sequence);
}

bool psd_block_stamp(struct psd_block *b, const struct psd_request_id *stamp)
{
    if (psd_block_has_stamp(b, stamp))
        return false;
    psd_mark_advance(&b->marks[stamp->client], stamp->oldest);
    psd_mark_set(&b->marks[stamp->client], stamp->sequence);
    return true;
}

bool psd_block_begin(struct psd_block *b, struct psd_page **spare, struct psd_page **out)
{
    *out = b->page;
    if (!psd_block_pinned(b))
        return true;
    *out = *spare ? *spare : psd_page_new(b->page->pool, b->page->bytes);
    *spare = NULL;
    return *out != NULL;
}

bool psd_block_begin_with(struct psd_block *b, size_t bytes, struct psd_page **spare, struct psd_page **out)
{
    if (!psd_block_pinned(b) && b->page->bytes == bytes) {
        *out = b->page;
        return true;
    }
    *out = *spare ? *spare : psd_page_try(b->page->pool, bytes);
    *spare = NULL;
    return *out != NULL;
}

void psd_block_commit(struct psd_block *b, struct psd_page *out)
{
    if (out != b->page) {
        psd_page_unref(b->page);
        b->page = out;
    }
    b->version++;
}
