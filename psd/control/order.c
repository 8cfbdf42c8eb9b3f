// SPDX-License-Identifier: Apache-2.0
#include "psd/control/order.h"

#include <stdlib.h>

#include "common/base/alloc.h"

// ---- queues -------------------------------------------------------------------------------------------------------

bool psd_queue_init(struct psd_queue *q, uint32_t ranks)
{
    *q = (struct psd_queue){PSD_NO_RANK, PSD_NO_RANK, 0, ps_try_alloc_array(ranks, sizeof *q->links)};
    return q->links != NULL;
}

void psd_queue_fini(struct psd_queue *q)
{
    free(q->links);
}

void psd_queue_drop(struct psd_queue *q, uint32_t rank)
{
    struct psd_queue_link *l = &q->links[rank];
    if (!l->in)
        return;
    if (l->before == PSD_NO_RANK)
        q->first = l->after;
    else
        q->links[l->before].after = l->after;
    if (l->after == PSD_NO_RANK)
        q->last = l->before;
    else
        q->links[l->after].before = l->before;
    l->in = false;
    q->n--;
}

void psd_queue_push(struct psd_queue *q, uint32_t rank)
{
    psd_queue_drop(q, rank);
    q->links[rank] = (struct psd_queue_link){q->last, PSD_NO_RANK, true};
    if (q->last == PSD_NO_RANK)
        q->first = rank;
    else
        q->links[q->last].after = rank;
    q->last = rank;
    q->n++;
}

// ---- heaps --------------------------------------------------------------------------------------------------------

bool psd_heap_init(struct psd_heap *h, uint32_t ranks)
{
    *h = (struct psd_heap){0, ps_try_alloc_array(ranks, sizeof *h->ranks), ps_try_alloc_array(ranks, sizeof *h->at),
                           ps_try_alloc_array(ranks, sizeof *h->keys)};
    return h->ranks && h->at && h->keys;
}

void psd_heap_fini(struct psd_heap *h)
{
    free(h->ranks);
    free(h->at);
    free(h->keys);
}

static void heap_place(struct psd_heap *h, uint32_t i, uint32_t rank)
{
    h->ranks[i] = rank;
    h->at[rank] = i + 1;
}

// The rank at i goes up, then down, to where its key belongs.
static void heap_settle(struct psd_heap *h, uint32_t i)
{
    const uint32_t rank = h->ranks[i];
    const uint64_t key = h->keys[rank];
    for (; i && h->keys[h->ranks[(i - 1) / 2]] > key; i = (i - 1) / 2)
        heap_place(h, i, h->ranks[(i - 1) / 2]);
    for (uint32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->keys[h->ranks[child + 1]] < h->keys[h->ranks[child]])
            child++;
        if (h->keys[h->ranks[child]] >= key)
            break;
        heap_place(h, i, h->ranks[child]);
    }
    heap_place(h, i, rank);
}

void psd_heap_set(struct psd_heap *h, uint32_t rank, uint64_t key)
{
    if (h->at[rank] && h->keys[rank] == key)
        return;
    h->keys[rank] = key;
    if (!h->at[rank])
        heap_place(h, h->n++, rank);
    heap_settle(h, h->at[rank] - 1);
}

void psd_heap_drop(struct psd_heap *h, uint32_t rank)
{
    if (!h->at[rank])
        return;
    const uint32_t i = h->at[rank] - 1, last = h->ranks[--h->n];
    h->at[rank] = 0;
    if (last == rank)
        return;
    heap_place(h, i, last);
    heap_settle(h, i);
}

uint64_t psd_heap_least_but(const struct psd_heap *h, uint32_t rank)
{
    uint64_t least = UINT64_MAX;
    if (psd_heap_first(h) != rank)
        return psd_heap_least(h);
    for (uint32_t child = 1; child <= 2 && child < h->n; child++)
        least = h->keys[h->ranks[child]] < least ? h->keys[h->ranks[child]] : least;
    return least;
}
