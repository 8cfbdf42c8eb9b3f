// SPDX-License-Identifier: Apache-2.0
#include "common/base/order.h"

#include <stdlib.h>

#include "common/base/alloc.h"

// ---- queues -------------------------------------------------------------------------------------------------------

bool ps_queue_init(struct ps_queue *q, uint32_t items)
{
    *q = (struct ps_queue){PS_NO_ITEM, PS_NO_ITEM, 0, ps_try_alloc_array(items, sizeof *q->links)};
    return q->links != NULL;
}

void ps_queue_fini(struct ps_queue *q)
{
    free(q->links);
}

void ps_queue_drop(struct ps_queue *q, uint32_t item)
{
    struct ps_queue_link *l = &q->links[item];
    if (!l->in)
        return;
    if (l->before == PS_NO_ITEM)
        q->first = l->after;
    else
        q->links[l->before].after = l->after;
    if (l->after == PS_NO_ITEM)
        q->last = l->before;
    else
        q->links[l->after].before = l->before;
    l->in = false;
    q->n--;
}

void ps_queue_push(struct ps_queue *q, uint32_t item)
{
    ps_queue_drop(q, item);
    q->links[item] = (struct ps_queue_link){q->last, PS_NO_ITEM, true};
    if (q->last == PS_NO_ITEM)
        q->first = item;
    else
        q->links[q->last].after = item;
    q->last = item;
    q->n++;
}

// ---- heaps --------------------------------------------------------------------------------------------------------

bool ps_heap_init(struct ps_heap *h, uint32_t items)
{
    *h = (struct ps_heap){0, ps_try_alloc_array(items, sizeof *h->items), ps_try_alloc_array(items, sizeof *h->at),
                          ps_try_alloc_array(items, sizeof *h->keys)};
    return h->items && h->at && h->keys;
}

void ps_heap_fini(struct ps_heap *h)
{
    free(h->items);
    free(h->at);
    free(h->keys);
}

static void heap_place(struct ps_heap *h, uint32_t i, uint32_t item)
{
    h->items[i] = item;
    h->at[item] = i + 1;
}

// The item at i goes up, then down, to where its key belongs.
static void heap_settle(struct ps_heap *h, uint32_t i)
{
    const uint32_t item = h->items[i];
    const uint64_t key = h->keys[item];
    for (; i && h->keys[h->items[(i - 1) / 2]] > key; i = (i - 1) / 2)
        heap_place(h, i, h->items[(i - 1) / 2]);
    for (uint32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->keys[h->items[child + 1]] < h->keys[h->items[child]])
            child++;
        if (h->keys[h->items[child]] >= key)
            break;
        heap_place(h, i, h->items[child]);
    }
    heap_place(h, i, item);
}

void ps_heap_set(struct ps_heap *h, uint32_t item, uint64_t key)
{
    if (h->at[item] && h->keys[item] == key)
        return;
    h->keys[item] = key;
    if (!h->at[item])
        heap_place(h, h->n++, item);
    heap_settle(h, h->at[item] - 1);
}

void ps_heap_drop(struct ps_heap *h, uint32_t item)
{
    if (!h->at[item])
        return;
    const uint32_t i = h->at[item] - 1, last = h->items[--h->n];
    h->at[item] = 0;
    if (last == item)
        return;
    heap_place(h, i, last);
    heap_settle(h, i);
}

uint64_t ps_heap_least_but(const struct ps_heap *h, uint32_t item)
{
    uint64_t least = UINT64_MAX;
    if (ps_heap_first(h) != item)
        return ps_heap_least(h);
    for (uint32_t child = 1; child <= 2 && child < h->n; child++)
        least = h->keys[h->items[child]] < least ? h->keys[h->items[child]] : least;
    return least;
}
