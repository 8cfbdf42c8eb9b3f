// SPDX-License-Identifier: Apache-2.0
//
// Blocks: the unit of lock, version, mark and pin.
//
// A block's values and slots lie in one page. A reader pins the page (takes a reference); an update writes in
// place while nobody has it pinned and into a fresh page otherwise. So a reader's page never changes under
// it, and an update never waits for a reader.
//
// Receives from: shard. Hands to: nobody. Threads: any. The fields of a block are guarded by its lock, which
// is held only to apply or to pin, never across I/O. A page is immutable while it has more than one
// reference: references are added under the block's lock only.
//
// Lock order in psd, outermost first: core's job table, job, partition or staging, job's cut, block, pool. Replies are
// made with none held.
#ifndef PSD_STORAGE_H
#define PSD_STORAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/math/rule.h"
#include "common/wire/slice.h"
#include "common/wire/wire.h"

// ---- pool ---------------------------------------------------------------------------------------------------------

struct psd_page {
    struct ps_owner owner;
    struct psd_pool *pool;
    struct psd_page *next_free;
    size_t bytes;
    _Alignas(64) uint8_t data[];
};

enum { PSD_POOL_LISTS = 256 };

// Pages of all jobs, bounded in bytes. Free pages are kept for the next block of the same size, because
// mapping fresh memory costs more than writing it.
struct psd_pool {
    pthread_mutex_t lock;
    struct psd_page *free_pages[PSD_POOL_LISTS];  // by a hash of their size
    size_t used, kept, limit;  // bytes: in pages given out and taken otherwise, in free pages, at most in both
};

void psd_pool_init(struct psd_pool *pool, size_t limit);
void psd_pool_fini(struct psd_pool *pool);  // all pages must have come back
bool psd_pool_has_room(struct psd_pool *pool, size_t bytes);
size_t psd_pool_used(struct psd_pool *pool);
// Counts memory that is no page: room that is about to be needed, marks, clients. False: it does not fit the limit.
bool psd_pool_take(struct psd_pool *pool, size_t bytes);
void psd_pool_give(struct psd_pool *pool, size_t bytes);
// Not zeroed. Goes past the limit rather than fail, for whoever has made sure of the room before; NULL only where
// malloc has nothing left.
struct psd_page *psd_page_new(struct psd_pool *pool, size_t bytes);
struct psd_page *psd_page_try(struct psd_pool *pool, size_t bytes);  // NULL also where it does not fit the limit
void psd_page_unref(struct psd_page *page);

// ---- marks --------------------------------------------------------------------------------------------------------

// Which sequences of one client a block has taken: all below base, and those whose bit (sequence % PS_WINDOW)
// is set.
struct psd_mark {
    uint64_t base;
    uint64_t bits[PS_WINDOW / 64];
};

// What a mutating request is known by.
struct psd_request_id {
    uint32_t client;  // index in the job
    uint64_t sequence, oldest;
};

void psd_mark_advance(struct psd_mark *mark, uint64_t oldest);
bool psd_mark_test(const struct psd_mark *mark, uint64_t sequence);
void psd_mark_set(struct psd_mark *mark, uint64_t sequence);

// ---- blocks -------------------------------------------------------------------------------------------------------

struct psd_block {
    pthread_mutex_t lock;
    struct psd_page *page;
    uint32_t count;        // elements
    uint32_t value_bytes;  // of STRING: of its elements' lengths (uint32 each) and, after them, their bytes
    uint64_t version;      // updates of any kind
    uint64_t steps;        // applications of the rule
    uint64_t round;        // sync: the last one that was applied
    uint32_t n_marks;      // marks[client's index in the job]
    struct psd_mark *marks;
};

// Bytes of a page that holds values and slots; slot k begins at psd_slot_offset(value_bytes, k).
size_t psd_page_bytes(size_t value_bytes, int slots);
size_t psd_slot_offset(size_t value_bytes, int k);

// Zero-filled. RESOURCE_EXHAUSTED: malloc has nothing left.
enum ps_code psd_block_init(struct psd_block *b, struct psd_pool *pool, uint32_t count, size_t elem_size, int slots,
                            struct ps_error *e);
void psd_block_fini(struct psd_block *b);

// All of these: the block's lock is held.
bool psd_block_pinned(const struct psd_block *b);
struct psd_page *psd_block_pin(struct psd_block *b);
// Makes room for the mark of a client, counted in *bytes and the pool. RESOURCE_EXHAUSTED: there is none.
enum ps_code psd_block_prepare(struct psd_block *b, uint32_t client, atomic_ullong *bytes, struct ps_error *e);
// Has the block taken this sequence?
bool psd_block_has_stamp(const struct psd_block *b, const struct psd_request_id *stamp);
// Marks it as taken, where psd_block_prepare has been called for its client. False: it was already.
bool psd_block_stamp(struct psd_block *b, const struct psd_request_id *stamp);
// Begins a change: the block's page is what to read, *out where to write all of the page: the same page, or *spare (NULL:
// there is none; taken if it is used), or a fresh one. psd_block_commit makes out the block's page and counts the update.
// False: there is no memory.
bool psd_block_begin(struct psd_block *b, struct psd_page **spare, struct psd_page **out);
// Likewise, with *out of so many bytes: the block's own page where it may be written, else *spare (NULL: there is none;
// taken if it is used), else another. False: that does not fit the limit.
bool psd_block_begin_with(struct psd_block *b, size_t bytes, struct psd_page **spare, struct psd_page **out);
void psd_block_commit(struct psd_block *b, struct psd_page *out);

#endif
