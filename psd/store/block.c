// SPDX-License-Identifier: Apache-2.0
#include "psd/store/block.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

size_t psd_slot_offset(size_t value_bytes, int k)
{
    return ((value_bytes + 63) & ~(size_t)63) * (size_t)(k + 1);
}

size_t psd_page_bytes(size_t value_bytes, int slots)
{
    return psd_slot_offset(value_bytes, slots - 1) + value_bytes;
}

enum ps_code psd_block_init(struct psd_block *b, struct psd_pool *pool, uint32_t count, size_t elem_size, int slots,
                            struct ps_error *e)
{
    size_t bytes = psd_page_bytes(count * elem_size, slots);
    struct psd_page *page = psd_page_new(pool, bytes);
    if (!page)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for a block of %zu bytes", bytes);
    memset(page->data, 0, bytes);
    *b = (struct psd_block){.page = page, .count = count, .value_bytes = (uint32_t)(count * elem_size)};
    pthread_mutex_init(&b->lock, NULL);
    return PS_OK;
}

void psd_block_fini(struct psd_block *b)
{
    psd_pool_give(b->page->pool, b->n_marks * sizeof *b->marks);
    psd_page_unref(b->page);
    free(b->marks);
    pthread_mutex_destroy(&b->lock);
}

bool psd_block_pinned(const struct psd_block *b)
{
    return atomic_load_explicit(&b->page->owner.refs, memory_order_acquire) > 1;
}

struct psd_page *psd_block_pin(struct psd_block *b)
{
    ps_owner_ref(&b->page->owner);
    return b->page;
}

enum ps_code psd_block_prepare(struct psd_block *b, uint32_t client, atomic_ullong *bytes, struct ps_error *e)
{
    if (client < b->n_marks)
        return PS_OK;
    uint32_t n = client + 1 + client / 4;
    size_t more = (n - b->n_marks) * sizeof *b->marks;
    if (!psd_pool_take(b->page->pool, more))
        return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                       "%zu bytes for the marks of what clients have changed do not fit the limit of %zu", more,
                       b->page->pool->limit);
    struct psd_mark *marks = ps_try_realloc(b->marks, n * sizeof *b->marks);
    if (!marks) {
        psd_pool_give(b->page->pool, more);
        return ps_no_memory(e, "the marks of what clients have changed");
    }
    memset(marks + b->n_marks, 0, more);
    b->marks = marks;
    b->n_marks = n;
    atomic_fetch_add(bytes, more);
    return PS_OK;
}

bool psd_block_has_stamp(const struct psd_block *b, const struct psd_request_id *stamp)
{
    if (stamp->sequence < stamp->oldest)
        return true;
    return stamp->client < b->n_marks && psd_mark_test(&b->marks[stamp->client], stamp->sequence);
}

bool psd_block_stamp(struct psd_block *b, const struct psd_request_id *stamp)
{
    if (psd_block_has_stamp(b, stamp))
        return false;
    psd_mark_advance(&b->marks[stamp->client], stamp->oldest);
    psd_mark_set(&b->marks[stamp->client], stamp->sequence);
    return true;
}

bool psd_block_begin(struct psd_block *b, struct psd_page **spare, struct psd_page **out)
{
    *out = b->page;
    if (!psd_block_pinned(b))
        return true;
    *out = *spare ? *spare : psd_page_new(b->page->pool, b->page->bytes);
    *spare = NULL;
    return *out != NULL;
}

bool psd_block_begin_with(struct psd_block *b, size_t bytes, struct psd_page **spare, struct psd_page **out)
{
    if (!psd_block_pinned(b) && b->page->bytes == bytes) {
        *out = b->page;
        return true;
    }
    *out = *spare ? *spare : psd_page_try(b->page->pool, bytes);
    *spare = NULL;
    return *out != NULL;
}

void psd_block_commit(struct psd_block *b, struct psd_page *out)
{
    if (out != b->page) {
        psd_page_unref(b->page);
        b->page = out;
    }
    b->version++;
}
