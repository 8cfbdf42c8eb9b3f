// SPDX-License-Identifier: Apache-2.0
//
// Blocks: the unit of lock, version, dedup and pin.
//
// A block's values and slots lie in one page. A reader pins the page (takes a reference); an update writes in
// place while nobody has it pinned and into a fresh page otherwise. So a reader's page never changes under
// it, and an update never waits for a reader. Memory that nobody has asked for yet is not touched: a fresh block's page
// is filled by whoever reads or changes the block first.
//
// One function changes a block: psd_block_write. Whatever writes (a push, a put, a round, an atomic update) goes
// through it.
//
// Receives from: job. Hands to: pool, dedup. Threads: any. The fields of a block are guarded by its lock, which
// is held only to apply or to pin, never across I/O. Knows neither jobs nor messages.
//
// Lock order in psd, outermost first: core's job table, job, partition or staging, job's snapshot lock, block, then as
// leaves the pool, the table of clients and the trace. Replies are made with none held.
#ifndef PSD_BLOCK_H
#define PSD_BLOCK_H

#include <pthread.h>

#include "common/base/error.h"
#include "common/math/rule.h"
#include "common/wire/wire.h"
#include "psd/store/dedup.h"
#include "psd/store/pool.h"

// What a block holds before its first update: values of 0, and in every element of slot k this.
struct psd_blank {
    int slots;
    float start[PS_RULE_MAX_SLOTS];
};

struct psd_block {
    pthread_mutex_t lock;
    struct psd_page *page;
    const struct psd_blank *blank;  // not NULL: the page has not been filled yet
    struct psd_store *store;
    uint32_t count;        // elements
    uint32_t value_bytes;  // of STRING: of its elements' lengths (uint32 each) and, after them, their bytes
    uint64_t version;      // updates of any kind
    uint64_t steps;        // applications of the rule
    uint64_t round;        // sync: the last one that was applied
    struct psd_dedup dedup;
};

// Bytes of a page that holds values and slots; slot k begins at psd_slot_offset(value_bytes, k).
size_t psd_page_bytes(size_t value_bytes, int slots);
size_t psd_slot_offset(size_t value_bytes, int k);

// Touches none of the page's memory; blank and store outlive the block. RESOURCE_EXHAUSTED: malloc has nothing left.
enum ps_code psd_block_init(struct psd_block *b, struct psd_store *store, uint32_t count, size_t elem_size,
                            const struct psd_blank *blank, struct ps_error *e);
void psd_block_fini(struct psd_block *b);

// All of these: the block's lock is held.
void psd_block_fill(struct psd_block *b);  // writes a fresh block's page, unless that has been done; here for tests
bool psd_block_pinned(const struct psd_block *b);
struct psd_page *psd_block_pin(struct psd_block *b);
// As psd_block_pin, but a fresh page is not filled yet: psd_block_fill_held does before it is read, unless a write has.
struct psd_page *psd_block_hold(struct psd_block *b);
void psd_block_fill_held(struct psd_block *b, const struct psd_page *page);  // takes the block's lock itself
// Has the block taken this request?
bool psd_block_has_taken(const struct psd_block *b, const struct psd_request_id *id);
// Makes place for the record of a request, so that psd_block_record finds it if it follows at once. False: there is no
// room for it.
bool psd_block_reserve(struct psd_block *b, const struct psd_request_id *id);
void psd_block_record(struct psd_block *b, const struct psd_request_id *id);
// Likewise, for a write that comes later: the place is kept until psd_block_write with `promised`, or
// psd_block_give_up.
bool psd_block_promise(struct psd_block *b, const struct psd_request_id *id);
void psd_block_give_up(struct psd_block *b);

// One change of a block.
struct psd_write {
    const struct psd_request_id *id;  // NULL: what changes it is known otherwise, as a round by its number
    bool promised;                    // place for the request has been promised
    size_t bytes;                     // of its page from then on
    // Makes all of the page at out, from the block's own: the same one where nobody has it pinned.
    void (*fill)(void *arg, struct psd_block *b, struct psd_page *out);
    bool (*wanted)(void *arg);  // asked under the lock; NULL: it is
    void *arg;
};

enum psd_written { PSD_WRITTEN, PSD_TAKEN_BEFORE, PSD_NOT_WANTED, PSD_NO_ROOM };

// Reserves, applies, counts the version and records the request, in one round of the block's lock, which is not held;
// of the job's snapshot lock a share is. *spare (NULL: there is none; taken if it is used): a page of w->bytes that was
// reserved before. *found, *version: before and after. PSD_NO_ROOM: nothing has changed; what it needs does not fit the
// limit.
enum psd_written psd_block_write(struct psd_block *b, const struct psd_write *w, struct psd_page **spare,
                                 uint64_t *found, uint64_t *version);

#endif
