// SPDX-License-Identifier: Apache-2.0
//
// Examples are made when they are first needed, by the thread that needs them, and kept: a job's first step does not
// wait for the last image to be decoded, nor does its second epoch decode them again.
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/data/source.h"

enum { UNREAD, BEING_READ, READ };

struct cache {
    struct wk_source base;
    struct wk_source *from;
    atomic_uchar *state;  // (examples, columns)
    uint8_t *bytes;       // (examples, row)
    size_t row;           // bytes of an example: its columns, one after the other
    size_t *offset;       // of each column
};

static uint8_t *cache_place(const struct cache *c, uint64_t example, size_t column)
{
    return c->bytes + example * c->row + c->offset[column];
}

// What cannot be read is tried again by whoever needs it next, and fails again. A column that nobody needs is not read.
static enum ps_code cache_need(const struct cache *c, uint64_t example, size_t column, struct ps_error *e)
{
    atomic_uchar *now = &c->state[example * c->base.columns + column];
    for (;;) {
        unsigned char state = UNREAD;
        if (atomic_load_explicit(now, memory_order_acquire) == READ)
            return PS_OK;
        if (atomic_compare_exchange_strong(now, &state, BEING_READ)) {
            enum ps_code code = c->from->class->read(c->from, example, column, cache_place(c, example, column), e);
            atomic_store_explicit(now, code == PS_OK ? READ : UNREAD, memory_order_release);
            return code;
        }
        sched_yield();
    }
}

static enum ps_code cache_read(const struct wk_source *s, uint64_t example, size_t column, void *to, struct ps_error *e)
{
    const struct cache *c = (const struct cache *)s;
    const struct wk_column *col = &s->column[column];
    if (cache_need(c, example, column, e))
        return e->code;
    memcpy(to, cache_place(c, example, column), col->count * wk_dtype_size(col->dtype));
    return PS_OK;
}

static void cache_where(const struct wk_source *s, uint64_t example, size_t column, char *to, size_t size)
{
    const struct cache *c = (const struct cache *)s;
    c->from->class->where(c->from, example, column, to, size);
}

static void cache_free(struct wk_source *s)
{
    struct cache *c = (struct cache *)s;
    wk_source_free(c->from);
    wk_source_fini(s);
    free((void *)c->state);
    free(c->bytes);
    free(c->offset);
    free(c);
}

static const struct wk_source_class cache_class = {.read = cache_read, .where = cache_where, .free = cache_free};

// What a column takes of an example: whole words, so that those after it are aligned.
static size_t cache_bytes(const struct wk_column *c)
{
    return (c->count * wk_dtype_size(c->dtype) + 3) / 4 * 4;
}

enum ps_code wk_cache_create(struct wk_source *source, struct wk_source **out, struct ps_error *e)
{
    uint64_t row = 0, bytes;
    for (size_t i = 0; i < source->columns; i++)
        row += cache_bytes(&source->column[i]);
    if (__builtin_mul_overflow(row, source->examples, &bytes) || bytes > WK_CACHE) {
        *out = source;
        return PS_OK;
    }
    struct cache *c = ps_alloc(sizeof *c);
    c->base = (struct wk_source){.class = &cache_class, .examples = source->examples};
    c->from = source;
    c->offset = ps_alloc(source->columns * sizeof *c->offset);
    for (size_t i = 0; i < source->columns; i++) {
        const struct wk_column *from = &source->column[i];
        struct wk_column *to = wk_source_add(&c->base, from->name, from->dtype, from->shape, from->rank);
        to->y = from->y;
        to->classes = from->classes;
        c->offset[i] = c->row;
        c->row += cache_bytes(from);
    }
    c->state = wk_array(source->examples, source->columns, sizeof *c->state, e);
    c->bytes = c->state ? wk_array(source->examples, c->row, 1, e) : NULL;
    if (!c->bytes) {
        cache_free(&c->base);
        return PS_RESOURCE_EXHAUSTED;
    }
    memset((void *)c->state, UNREAD, source->examples * source->columns * sizeof *c->state);
    *out = &c->base;
    return PS_OK;
}
