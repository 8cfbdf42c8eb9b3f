// SPDX-License-Identifier: Apache-2.0
#include "psd/store/pool.h"

#include <stdlib.h>
#include <string.h>

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

// The lock is held, and given up.
static void page_keep_or_free(struct psd_pool *pool, struct psd_page *page)
{
    bool fits = pool->used + pool->kept + page->bytes <= pool->limit;
    if (fits)
        keep(pool, page);
    pthread_mutex_unlock(&pool->lock);
    if (!fits)
        free(page);
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

// page: a kept one, or NULL. NULL: malloc has nothing left.
static struct psd_page *page_init(struct psd_pool *pool, size_t bytes, struct psd_page *page,
                                  void (*free_page)(struct ps_owner *owner))
{
    if (!page)
        page = aligned_alloc(64, (sizeof *page + bytes + 63) & ~(size_t)63);
    if (!page)
        return NULL;
    page->owner.free = free_page;
    atomic_init(&page->owner.refs, 1);
    page->pool = pool;
    page->bytes = bytes;
    page->snapshots = 0;
    return page;
}

// A page for room that has been taken. Gives the room back where malloc has nothing left.
static struct psd_page *make_page(struct psd_pool *pool, size_t bytes, struct psd_page *page)
{
    page = page_init(pool, bytes, page, page_free);
    if (!page)
        psd_pool_give(pool, bytes);
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

struct psd_page *psd_page_reserved(struct psd_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    struct psd_page *page = page_init(pool, bytes, take_kept(pool, bytes), page_free_reserved);
    pool->reserved += page ? bytes : 0;
    pthread_mutex_unlock(&pool->lock);
    return page;
}

void psd_page_unref(struct psd_page *page)
{
    ps_owner_unref(&page->owner);
}
