// SPDX-License-Identifier: Apache-2.0
#include "psd/store/pool.h"

#include <stdlib.h>

#include "common/base/alloc.h"

void psd_pool_init(struct psd_pool *pool, size_t limit)
{
    *pool = (struct psd_pool){.limit = limit};
    pthread_mutex_init(&pool->lock, NULL);
}

// ---- a page's memory ----------------------------------------------------------------------------------------------

// Pages of at least so many bytes have their data in a mapping of its own, which nobody touches before the first write:
// until then a declared block costs its page's head. AddressSanitizer watches the ends of what malloc gives, so that
// under it all is malloc's.
#ifdef __SANITIZE_ADDRESS__
#define MAPPED_BYTES SIZE_MAX
#else
#define MAPPED_BYTES (128 << 10)
#endif

// NULL: malloc, or the kernel, has nothing left.
static struct psd_page *page_alloc(size_t bytes)
{
    const bool mapped = bytes >= MAPPED_BYTES;
    struct psd_page *page = ps_try_alloc_aligned(sizeof *page + (mapped ? 0 : bytes));
    if (!page)
        return NULL;
    page->data = mapped ? ps_try_map(bytes) : (uint8_t *)(page + 1);
    if (!page->data) {
        free(page);
        return NULL;
    }
    page->bytes = bytes;
    page->zeroed = mapped;
    return page;
}

static void page_dispose(struct psd_page *page)
{
    if (page->bytes >= MAPPED_BYTES)
        ps_unmap(page->data, page->bytes);
    free(page);
}

// ---- free pages: the pool's lock is held --------------------------------------------------------------------------

// Multiplicative hashing (Knuth, The Art of Computer Programming 6.4), by 2^64 / phi.
static struct psd_page **pool_list(struct psd_pool *pool, size_t bytes)
{
    return &pool->free_pages[(bytes * UINT64_C(0x9e3779b97f4a7c15) >> 32) % PSD_POOL_LISTS];
}

static void pool_keep(struct psd_pool *pool, struct psd_page *page)
{
    struct psd_page **list = pool_list(pool, page->bytes);
    page->zeroed = false;
    page->next_free = *list;
    *list = page;
    pool->kept += page->bytes;
}

// A kept page of exactly this size. Most sizes are few (whole blocks and the ends of partitions); those of strings may
// be any, and share lists: the search ends early.
static struct psd_page *pool_find(struct psd_pool *pool, size_t bytes)
{
    int looks = 16;
    for (struct psd_page **at = pool_list(pool, bytes); *at && looks; at = &(*at)->next_free, looks--) {
        struct psd_page *page = *at;
        if (page->bytes == bytes) {
            *at = page->next_free;
            pool->kept -= bytes;
            return page;
        }
    }
    return NULL;
}

// Takes as many pages out as are too many, for pool_free once the lock is open: list after list, so that all sizes lose
// some in the course of time.
static struct psd_page *pool_trim(struct psd_pool *pool, size_t limit)
{
    struct psd_page *out = NULL;
    while (pool->kept && pool->used + pool->kept > limit) {
        struct psd_page **list = &pool->free_pages[pool->next_list % PSD_POOL_LISTS], *page = *list;
        if (!page) {
            pool->next_list++;
            continue;
        }
        *list = page->next_free;
        pool->kept -= page->bytes;
        page->next_free = out;
        out = page;
    }
    return out;
}

static void pool_free(struct psd_page *pages)
{
    while (pages) {
        struct psd_page *page = pages;
        pages = page->next_free;
        page_dispose(page);
    }
}

void psd_pool_fini(struct psd_pool *pool)
{
    pool_free(pool_trim(pool, 0));
    pthread_mutex_destroy(&pool->lock);
}

// ---- room ---------------------------------------------------------------------------------------------------------

bool psd_pool_has_room(struct psd_pool *pool, size_t bytes)
{
    return bytes <= pool->limit && atomic_load_explicit(&pool->used, memory_order_relaxed) <= pool->limit - bytes;
}

size_t psd_pool_used(struct psd_pool *pool)
{
    return atomic_load(&pool->used);
}

bool psd_pool_take(struct psd_pool *pool, size_t bytes)
{
    struct psd_page *too_many = NULL;
    pthread_mutex_lock(&pool->lock);
    bool room = psd_pool_has_room(pool, bytes);
    if (room) {
        pool->used += bytes;
        too_many = pool_trim(pool, pool->limit);
    }
    pthread_mutex_unlock(&pool->lock);
    pool_free(too_many);
    return room;
}

void psd_pool_give(struct psd_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    pool->used -= bytes;
    pthread_mutex_unlock(&pool->lock);
}

void psd_pool_retire(struct psd_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->surplus = pool->kept;
    pthread_mutex_unlock(&pool->lock);
}

void psd_pool_shrink(struct psd_pool *pool, size_t most)
{
    pthread_mutex_lock(&pool->lock);
    const size_t before = pool->kept, surplus = pool->surplus < before ? pool->surplus : before;
    struct psd_page *out = surplus ? pool_trim(pool, pool->used + before - (surplus < most ? surplus : most)) : NULL;
    const size_t gone = before - pool->kept;
    pool->surplus = gone < surplus ? surplus - gone : 0;
    pthread_mutex_unlock(&pool->lock);
    pool_free(out);
}

// ---- pages --------------------------------------------------------------------------------------------------------

// The lock is held, and given up.
static void page_keep_or_free(struct psd_pool *pool, struct psd_page *page)
{
    bool fits = pool->used + pool->kept + page->bytes <= pool->limit;
    if (fits)
        pool_keep(pool, page);
    pthread_mutex_unlock(&pool->lock);
    if (!fits)
        page_dispose(page);
}

static void page_free(struct ps_owner *owner)
{
    struct psd_page *page = (struct psd_page *)owner;
    pthread_mutex_lock(&page->pool->lock);
    page->pool->used -= page->bytes;
    page_keep_or_free(page->pool, page);
}

static void page_free_reserved(struct ps_owner *owner)
{
    struct psd_page *page = (struct psd_page *)owner;
    pthread_mutex_lock(&page->pool->lock);
    page->pool->reserved -= page->bytes;
    page_keep_or_free(page->pool, page);
}

// page: a kept one, or NULL. NULL: malloc has nothing left.
static struct psd_page *page_init(struct psd_pool *pool, size_t bytes, struct psd_page *page,
                                  void (*free_page)(struct ps_owner *owner))
{
    if (!page)
        page = page_alloc(bytes);
    if (!page)
        return NULL;
    page->owner.free = free_page;
    atomic_init(&page->owner.refs, 1);
    page->pool = pool;
    page->snapshots = 0;
    return page;
}

// A page for room that has been taken; page: a kept one, or NULL. Gives the room back where malloc has nothing left.
static struct psd_page *page_make(struct psd_pool *pool, size_t bytes, struct psd_page *page)
{
    page = page_init(pool, bytes, page, page_free);
    if (!page)
        psd_pool_give(pool, bytes);
    return page;
}

static struct psd_page *page_get(struct psd_pool *pool, size_t bytes, bool past_the_limit)
{
    struct psd_page *page = NULL, *too_many = NULL;
    pthread_mutex_lock(&pool->lock);
    bool room = past_the_limit || psd_pool_has_room(pool, bytes);
    if (room) {
        page = pool_find(pool, bytes);
        pool->used += bytes;
        too_many = pool_trim(pool, pool->limit);
    }
    pthread_mutex_unlock(&pool->lock);
    pool_free(too_many);
    return room ? page_make(pool, bytes, page) : NULL;
}

struct psd_page *psd_page_new(struct psd_pool *pool, size_t bytes)
{
    return page_get(pool, bytes, true);
}

struct psd_page *psd_page_try(struct psd_pool *pool, size_t bytes)
{
    return page_get(pool, bytes, false);
}

struct psd_page *psd_page_reserved(struct psd_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    struct psd_page *page = pool_find(pool, bytes);
    pthread_mutex_unlock(&pool->lock);
    page = page_init(pool, bytes, page, page_free_reserved);
    if (!page)
        return NULL;
    pthread_mutex_lock(&pool->lock);
    pool->reserved += bytes;
    pthread_mutex_unlock(&pool->lock);
    return page;
}

void psd_page_unref(struct psd_page *page)
{
    ps_owner_unref(&page->owner);
}
