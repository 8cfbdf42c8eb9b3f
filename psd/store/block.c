// SPDX-License-Identifier: Apache-2.0
#include "psd/store/block.h"
#include "common/base/sometimes.h"

#include <string.h>

size_t psd_slot_offset(size_t value_bytes, int k)
{
    return ((value_bytes + 63) & ~(size_t)63) * (size_t)(k + 1);
}

size_t psd_page_bytes(size_t value_bytes, int slots)
{
    return psd_slot_offset(value_bytes, slots - 1) + value_bytes;
}

enum ps_code psd_block_init(struct psd_block *b, struct psd_store *store, uint32_t count, size_t elem_size,
                            const struct psd_blank *blank, struct ps_error *e)
{
    size_t bytes = psd_page_bytes(count * elem_size, blank->slots);
    struct psd_page *page = psd_page_new(store->pool, bytes);
    if (!page)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for a block of %zu bytes", bytes);
    *b = (struct psd_block){
        .page = page, .blank = blank, .store = store, .count = count, .value_bytes = (uint32_t)(count * elem_size)};
    atomic_fetch_add(&store->page_bytes, bytes);
    pthread_mutex_init(&b->lock, NULL);
    return PS_OK;
}

void psd_block_fini(struct psd_block *b)
{
    atomic_fetch_sub(&b->store->page_bytes, b->page->bytes);
    psd_dedup_fini(&b->dedup, b->store);
    psd_page_unref(b->page);
    pthread_mutex_destroy(&b->lock);
}

// Writes what the block has held from the start. Pages come back to the pool as they were left.
void psd_block_fill(struct psd_block *b)
{
    const struct psd_blank *blank = b->blank;
    if (!blank)
        return;
    b->blank = NULL;
    if (!b->page->zeroed)
        memset(b->page->data, 0, b->page->bytes);
    for (int k = 0; k < blank->slots; k++) {
        float *slot = (float *)(b->page->data + psd_slot_offset(b->value_bytes, k));
        for (uint32_t i = 0; blank->start[k] != 0 && i < b->count; i++)
            slot[i] = blank->start[k];
    }
}

bool psd_block_pinned(const struct psd_block *b)
{
    return atomic_load_explicit(&b->page->owner.refs, memory_order_acquire) > 1;
}

struct psd_page *psd_block_hold(struct psd_block *b)
{
    ps_owner_ref(&b->page->owner);
    return b->page;
}

struct psd_page *psd_block_pin(struct psd_block *b)
{
    psd_block_fill(b);
    return psd_block_hold(b);
}

// A write fills the block's page before it puts another in its place.
void psd_block_fill_held(struct psd_block *b, const struct psd_page *page)
{
    pthread_mutex_lock(&b->lock);
    if (b->page == page)
        psd_block_fill(b);
    pthread_mutex_unlock(&b->lock);
}

bool psd_block_has_taken(const struct psd_block *b, const struct psd_request_id *id)
{
    return psd_dedup_has(&b->dedup, id);
}

bool psd_block_reserve(struct psd_block *b, const struct psd_request_id *id)
{
    return psd_dedup_reserve(&b->dedup, b->store, id);
}

void psd_block_record(struct psd_block *b, const struct psd_request_id *id)
{
    psd_dedup_add(&b->dedup, id);
}

bool psd_block_promise(struct psd_block *b, const struct psd_request_id *id)
{
    return psd_dedup_promise(&b->dedup, b->store, id);
}

void psd_block_give_up(struct psd_block *b)
{
    psd_dedup_give_up(&b->dedup);
}

// Where to write: the block's own page while nobody has it pinned, else the spare one, else another. NULL: no room.
static struct psd_page *block_begin(struct psd_block *b, size_t bytes, struct psd_page **spare)
{
    struct psd_page *out = b->page;
    if (psd_block_pinned(b))
        ps_sometimes(PS_SOMETIMES_PINNED_UPDATE);
    if (!psd_block_pinned(b) && b->page->bytes == bytes)
        return out;
    out = *spare ? *spare : psd_page_try(b->store->pool, bytes);
    *spare = NULL;
    return out;
}

static void block_commit(struct psd_block *b, struct psd_page *out)
{
    if (out != b->page) {
        atomic_fetch_add(&b->store->page_bytes, out->bytes - b->page->bytes);
        psd_page_unref(b->page);
        b->page = out;
    }
    b->version++;
}

static enum psd_written block_write(struct psd_block *b, const struct psd_write *w, struct psd_page **spare)
{
    if (w->promised)
        psd_block_give_up(b);
    if (w->wanted && !w->wanted(w->arg))
        return PSD_NOT_WANTED;
    if (w->id && psd_block_has_taken(b, w->id))
        return PSD_TAKEN_BEFORE;
    if (w->id && !w->promised && !psd_block_reserve(b, w->id))
        return PSD_NO_ROOM;
    struct psd_page *out = block_begin(b, w->bytes, spare);
    if (!out)
        return PSD_NO_ROOM;
    psd_block_fill(b);
    w->fill(w->arg, b, out);
    block_commit(b, out);
    if (w->id)
        psd_block_record(b, w->id);
    return PSD_WRITTEN;
}

enum psd_written psd_block_write(struct psd_block *b, const struct psd_write *w, struct psd_page **spare,
                                 uint64_t *found, uint64_t *version)
{
    pthread_mutex_lock(&b->lock);
    *found = b->version;
    enum psd_written written = block_write(b, w, spare);
    *version = b->version;
    pthread_mutex_unlock(&b->lock);
    return written;
}
