// SPDX-License-Identifier: Apache-2.0
//
// Which requests a block has taken, so that each takes effect once. Kept are those that may come again: the sequences
// of a client from the oldest on that it has open. What is older is known to have been taken; it is pruned when there
// is no place for more.
//
// Receives from: block. Hands to: pool. Threads: any; guarded by the block's lock.
#ifndef PSD_DEDUP_H
#define PSD_DEDUP_H

#include <stdbool.h>
#include <stdint.h>

#include "psd/store/pool.h"

// What a mutating request is known by.
struct psd_request_id {
    uint32_t client;            // its number in the job, never given out again
    uint64_t sequence, oldest;  // oldest: the least that the client may still send
};

// 64 sequences of a client, from 64 * word on.
struct psd_dedup_entry {
    uint64_t word, taken;
    uint32_t client;  // from 1; 0: the entry is free
};

struct psd_dedup {
    struct psd_dedup_entry *v;  // [cap] a hash table by client and word
    uint32_t n, cap, promised;  // cap: a power of two, or 0; promised: places that are kept free
};

// What the blocks of a job share.
struct psd_store {
    struct psd_pool *pool;
    atomic_ullong page_bytes, dedup_bytes;               // of all its blocks
    uint64_t (*oldest)(void *clients, uint32_t client);  // the oldest of any client now; UINT64_MAX: it is gone
    void *clients;
};

bool psd_dedup_has(const struct psd_dedup *d, const struct psd_request_id *id);
// Makes place for one request more. False: its memory does not fit the limit, or there is none.
bool psd_dedup_reserve(struct psd_dedup *d, struct psd_store *store, const struct psd_request_id *id);
// Likewise, and keeps the place until psd_dedup_give_up, which is called before psd_dedup_add.
bool psd_dedup_promise(struct psd_dedup *d, struct psd_store *store, const struct psd_request_id *id);
void psd_dedup_give_up(struct psd_dedup *d);
void psd_dedup_add(struct psd_dedup *d, const struct psd_request_id *id);  // for which place has been made
void psd_dedup_fini(struct psd_dedup *d, struct psd_store *store);

#endif
