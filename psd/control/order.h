// SPDX-License-Identifier: Apache-2.0
//
// Ranks in an order, so that nothing has to walk over all members: queues (append and remove in constant time) and heaps
// (the least key first). Each has room for every rank from the start, so that nothing can fail later.
//
// Receives from: control. Hands to: nobody. Threads: guarded by the job's lock.
#ifndef PSD_CONTROL_ORDER_H
#define PSD_CONTROL_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PSD_NO_RANK = UINT32_MAX };

struct psd_queue_link {
    uint32_t before, after;
    bool in;
};

struct psd_queue {
    uint32_t first, last, n;       // PSD_NO_RANK where n is 0
    struct psd_queue_link *links;  // [ranks]
};

bool psd_queue_init(struct psd_queue *q, uint32_t ranks);  // false: no memory
void psd_queue_fini(struct psd_queue *q);
void psd_queue_push(struct psd_queue *q, uint32_t rank);  // to its end, wherever it was
void psd_queue_drop(struct psd_queue *q, uint32_t rank);  // if it is in

static inline bool psd_queue_has(const struct psd_queue *q, uint32_t rank)
{
    return q->links[rank].in;
}

static inline uint32_t psd_queue_next(const struct psd_queue *q, uint32_t rank)
{
    return q->links[rank].after;
}

static inline uint32_t psd_queue_before(const struct psd_queue *q, uint32_t rank)
{
    return q->links[rank].before;
}

struct psd_heap {
    uint32_t n;
    uint32_t *ranks;  // [n] the heap
    uint32_t *at;     // [ranks] where each is in it, + 1; 0: it is not
    uint64_t *keys;   // [ranks]
};

bool psd_heap_init(struct psd_heap *h, uint32_t ranks);  // false: no memory
void psd_heap_fini(struct psd_heap *h);
void psd_heap_set(struct psd_heap *h, uint32_t rank, uint64_t key);  // puts it in, or changes its key
void psd_heap_drop(struct psd_heap *h, uint32_t rank);               // if it is in

static inline uint32_t psd_heap_first(const struct psd_heap *h)  // PSD_NO_RANK: it is empty
{
    return h->n ? h->ranks[0] : (uint32_t)PSD_NO_RANK;
}

static inline uint64_t psd_heap_least(const struct psd_heap *h)  // UINT64_MAX: it is empty
{
    return h->n ? h->keys[h->ranks[0]] : UINT64_MAX;
}

// The least key of all but this one; UINT64_MAX: there is no other.
uint64_t psd_heap_least_but(const struct psd_heap *h, uint32_t rank);

// Bytes that each rank takes.
enum {
    PSD_QUEUE_BYTES = sizeof(struct psd_queue_link),
    PSD_HEAP_BYTES = 2 * sizeof(uint32_t) + sizeof(uint64_t),
};

#endif
