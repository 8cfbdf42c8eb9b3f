// SPDX-License-Identifier: Apache-2.0
//
// Items 0, 1, ... in an order, so that nothing has to walk over all of them: queues (append and remove in constant
// time) and heaps (the least key first; with points in time for keys: timers). Each has room for every item from the
// start, so that nothing can fail later.
//
// Threads: the caller's lock guards them.
#ifndef PS_ORDER_H
#define PS_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PS_NO_ITEM = UINT32_MAX };

struct ps_queue_link {
    uint32_t before, after;
    bool in;
};

struct ps_queue {
    uint32_t first, last, n;      // PS_NO_ITEM where n is 0
    struct ps_queue_link *links;  // [items]
};

bool ps_queue_init(struct ps_queue *q, uint32_t items);  // false: no memory
void ps_queue_fini(struct ps_queue *q);
void ps_queue_push(struct ps_queue *q, uint32_t item);  // to its end, wherever it was
void ps_queue_drop(struct ps_queue *q, uint32_t item);  // if it is in

static inline bool ps_queue_has(const struct ps_queue *q, uint32_t item)
{
    return q->links[item].in;
}

static inline uint32_t ps_queue_next(const struct ps_queue *q, uint32_t item)
{
    return q->links[item].after;
}

static inline uint32_t ps_queue_before(const struct ps_queue *q, uint32_t item)
{
    return q->links[item].before;
}

struct ps_heap {
    uint32_t n;
    uint32_t *items;  // [n] the heap
    uint32_t *at;     // [items] where each is in it, + 1; 0: it is not
    uint64_t *keys;   // [items]
};

bool ps_heap_init(struct ps_heap *h, uint32_t items);  // false: no memory
void ps_heap_fini(struct ps_heap *h);
void ps_heap_set(struct ps_heap *h, uint32_t item, uint64_t key);  // puts it in, or changes its key
void ps_heap_drop(struct ps_heap *h, uint32_t item);               // if it is in

static inline uint32_t ps_heap_first(const struct ps_heap *h)  // PS_NO_ITEM: it is empty
{
    return h->n ? h->items[0] : (uint32_t)PS_NO_ITEM;
}

static inline uint64_t ps_heap_least(const struct ps_heap *h)  // UINT64_MAX: it is empty
{
    return h->n ? h->keys[h->items[0]] : UINT64_MAX;
}

// The least key of all but this one; UINT64_MAX: there is no other.
uint64_t ps_heap_least_but(const struct ps_heap *h, uint32_t item);

// Bytes that each item takes.
enum {
    PS_QUEUE_BYTES = sizeof(struct ps_queue_link),
    PS_HEAP_BYTES = 2 * sizeof(uint32_t) + sizeof(uint64_t),
};

#endif
