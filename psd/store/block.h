// SPDX-License-Identifier: Apache-2.0
//
// Blocks: the unit of lock, version, dedup and pin.
//
// A block's values and slots lie in one page. A reader pins the page (takes a reference); an update writes in
// place while nobody has it pinned and into a fresh page otherwise. So a reader's page never changes under
// it, and an update never waits for a reader.
//
// Receives from: job. Hands to: pool, dedup. Threads: any. The fields of a block are guarded by its lock, which
// is held only to apply or to pin, never across I/O. Knows neither jobs nor messages.
//
// Lock order in psd, outermost first: core's job table, job, partition or staging, job's cut, block, pool. Replies are
// made with none held.
#ifndef PSD_BLOCK_H
#define PSD_BLOCK_H

#include "common/base/error.h"
#include "psd/store/dedup.h"
#include "psd/store/pool.h"

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
