// SPDX-License-Identifier: Apache-2.0
#include "psd/store/dedup.h"

#include <stdlib.h>

#include "common/base/alloc.h"

enum { WORD = 64, FIRST_CAP = 4 };

// Open addressing with linear probing; multiplicative hashing (Knuth, The Art of Computer Programming 6.4), by 2^64 /
// phi. Returns the entry, or the free one where it would be; the table is never full.
static struct psd_dedup_entry *dedup_probe(const struct psd_dedup *d, uint32_t client, uint64_t word)
{
    uint64_t h = (((uint64_t)client << 32) ^ word) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    struct psd_dedup_entry *entry = &d->v[h & (d->cap - 1)];
    while (entry->client && (entry->client != client || entry->word != word))
        entry = &d->v[++h & (d->cap - 1)];
    return entry;
}

static struct psd_dedup_entry *dedup_find(const struct psd_dedup *d, const struct psd_request_id *id)
{
    struct psd_dedup_entry *entry = d->cap ? dedup_probe(d, id->client, id->sequence / WORD) : NULL;
    return entry && entry->client ? entry : NULL;
}

bool psd_dedup_has(const struct psd_dedup *d, const struct psd_request_id *id)
{
    if (id->sequence < id->oldest)
        return true;
    const struct psd_dedup_entry *entry = dedup_find(d, id);
    return entry && entry->taken >> id->sequence % WORD & 1;
}

static size_t dedup_bytes(uint32_t cap)
{
    return cap * sizeof(struct psd_dedup_entry);
}

// May a sequence of the entry still come?
static bool dedup_is_open(const struct psd_dedup_entry *entry, const struct psd_store *store)
{
    return entry->client && entry->word >= store->oldest(store->clients, entry->client) / WORD;
}

// Moves what is still open to a table that is at most half full with one more. False: there is no memory for it, and
// all is as before.
static bool dedup_renew(struct psd_dedup *d, struct psd_store *store)
{
    struct psd_dedup fresh = {.cap = FIRST_CAP, .promised = d->promised};
    uint32_t open = 0;
    for (uint32_t i = 0; i < d->cap; i++)
        open += dedup_is_open(&d->v[i], store);
    while (fresh.cap < 2 * (open + d->promised + 1))
        fresh.cap *= 2;
    if (!psd_pool_take(store->pool, dedup_bytes(fresh.cap)))
        return false;
    if (!(fresh.v = ps_try_alloc_array(fresh.cap, sizeof *fresh.v))) {
        psd_pool_give(store->pool, dedup_bytes(fresh.cap));
        return false;
    }
    // Clients go on meanwhile: what is found closed now may have been open before, not the other way round.
    for (uint32_t i = 0; i < d->cap; i++)
        if (dedup_is_open(&d->v[i], store)) {
            *dedup_probe(&fresh, d->v[i].client, d->v[i].word) = d->v[i];
            fresh.n++;
        }
    atomic_fetch_add(&store->dedup_bytes, dedup_bytes(fresh.cap));
    psd_dedup_fini(d, store);
    *d = fresh;
    return true;
}

bool psd_dedup_reserve(struct psd_dedup *d, struct psd_store *store, const struct psd_request_id *id)
{
    uint32_t n = d->n + d->promised;
    if (dedup_find(d, id) || n + 1 <= d->cap / 4 * 3)
        return true;
    return dedup_renew(d, store) || n + 1 < d->cap;
}

bool psd_dedup_promise(struct psd_dedup *d, struct psd_store *store, const struct psd_request_id *id)
{
    bool room = psd_dedup_reserve(d, store, id);
    d->promised += room;
    return room;
}

void psd_dedup_give_up(struct psd_dedup *d)
{
    d->promised--;
}

void psd_dedup_add(struct psd_dedup *d, const struct psd_request_id *id)
{
    struct psd_dedup_entry *entry = dedup_probe(d, id->client, id->sequence / WORD);
    d->n += !entry->client;
    entry->client = id->client;
    entry->word = id->sequence / WORD;
    entry->taken |= UINT64_C(1) << id->sequence % WORD;
}

void psd_dedup_fini(struct psd_dedup *d, struct psd_store *store)
{
    psd_pool_give(store->pool, dedup_bytes(d->cap));
    atomic_fetch_sub(&store->dedup_bytes, dedup_bytes(d->cap));
    free(d->v);
    *d = (struct psd_dedup){0};
}
