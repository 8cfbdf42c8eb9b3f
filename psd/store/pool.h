// SPDX-License-Identifier: Apache-2.0
//
// The memory of blocks: pages, and the pool that bounds them in bytes together with what is counted beside them.
//
// Receives from: block, job. Hands to: nobody. Threads: any.
#ifndef PSD_POOL_H
#define PSD_POOL_H

#include <pthread.h>

#include "common/wire/slice.h"

// A page is immutable while it has more than one reference: references are added under its block's lock only.
struct psd_page {
    _Alignas(64) struct ps_owner owner;
    struct psd_pool *pool;
    struct psd_page *next_free;
    size_t bytes;
    uint8_t *data;       // behind the page itself, or where that is large in memory of its own
    bool zeroed;         // data was 0 when the pool gave the page out; of use until the first write
    uint32_t snapshots;  // that hold it: psd/job/snapshot.c
};

enum { PSD_POOL_LISTS = 256 };

// Pages of all jobs, bounded in bytes. Free pages are kept for the next block of the same size, because
// mapping fresh memory costs more than writing it.
struct psd_pool {
    pthread_mutex_t lock;
    struct psd_page *free_pages[PSD_POOL_LISTS];  // by a hash of their size
    size_t next_list;                             // the first to free pages of
    size_t kept;                                  // bytes in free pages
    size_t surplus;       // of these, from before the last psd_pool_retire: psd_pool_shrink gives them back
    _Atomic size_t used;  // bytes in pages given out, and taken otherwise; changed under the lock
    size_t limit;         // of both together
    size_t reserved;      // bytes of used that are pages now: psd_page_reserved
};

void psd_pool_init(struct psd_pool *pool, size_t limit);
void psd_pool_fini(struct psd_pool *pool);                    // all pages must have come back
bool psd_pool_has_room(struct psd_pool *pool, size_t bytes);  // at this moment; takes no lock
size_t psd_pool_used(struct psd_pool *pool);
// A job is gone, with sizes that no other may have: as many bytes as are in free pages at the moment go back to the
// system, or as are still free then, whosever the pages were: at most so many, and a page, with each psd_pool_shrink.
void psd_pool_retire(struct psd_pool *pool);
void psd_pool_shrink(struct psd_pool *pool, size_t most);
// Counts memory that is no page: room that is about to be needed, what is known of clients. False: it does not fit the
// limit.
bool psd_pool_take(struct psd_pool *pool, size_t bytes);
void psd_pool_give(struct psd_pool *pool, size_t bytes);
// Goes past the limit rather than fail, for whoever has made sure of the room before; NULL only where malloc, or the
// kernel, has nothing left.
struct psd_page *psd_page_new(struct psd_pool *pool, size_t bytes);
struct psd_page *psd_page_try(struct psd_pool *pool, size_t bytes);  // NULL also where it does not fit the limit
// Likewise, of bytes that psd_pool_take has counted for longer than the page lives, which are not given back with it.
// NULL: malloc has nothing left.
struct psd_page *psd_page_reserved(struct psd_pool *pool, size_t bytes);
void psd_page_unref(struct psd_page *page);

#endif
