// SPDX-License-Identifier: Apache-2.0
#include "psd/job/apply.h"

#include <string.h>

#include "common/math/finite.h"
#include "psd/job/step.h"
#include "psd/store/numbers.h"

struct scan {
    int dtype;
    uint64_t n, first;
};

static bool scan_run(void *arg, size_t at, const void *data, size_t n)
{
    struct scan *s = arg;
    size_t found = ps_nonfinite(s->dtype, data, n);
    if (found && !s->n)
        s->first = at + ps_nonfinite_first(s->dtype, data, n);
    s->n += found;
    return true;
}

uint64_t psd_update_nonfinite(const struct psd_extent *p, struct psd_feed *feed, uint64_t *first)
{
    struct scan s = {.dtype = p->variable->dtype};
    if (s.dtype == PS_FLOAT32 || s.dtype == PS_FLOAT64)
        psd_feed_walk(feed, p->at, p->bytes, ps_dtype_size(s.dtype), scan_run, &s);
    if (s.n && first)
        *first = p->first + s.first;
    return s.n;
}

// ---- a block ------------------------------------------------------------------------------------------------------

enum psd_effect psd_update_effect(int method, const struct psd_variable *v)
{
    switch (method) {
    case PARAMSERVER__V1__METHOD__PUT:
        return PSD_PUT;
    case PARAMSERVER__V1__METHOD__ASSIGN_ADD:
        return PSD_ADD;
    case PARAMSERVER__V1__METHOD__ASSIGN_SUB:
        return PSD_SUBTRACT;
    default:
        return v->rule ? PSD_RULE : PSD_ADD;
    }
}

struct change {
    enum psd_effect how;
    int dtype;
    size_t size;  // of an element; 1 where they are bytes to copy, which need no alignment
    const struct psd_block *b;
    struct psd_page *out;
    size_t offset;  // of the extent, in elements
    bool count;
    size_t nonfinite;
    struct psd_step step;
};

static void change_elements(struct change *c, size_t at, const void *data, size_t n)
{
    const void *from = c->b->page->data + at * c->size;
    void *to = c->out->data + at * c->size;
    switch (c->how) {
    case PSD_PUT:
        memcpy(to, data, n * c->size);
        break;
    case PSD_ADD:
        psd_numbers_add(c->dtype, to, from, data, n);
        break;
    case PSD_SUBTRACT:
        psd_numbers_subtract(c->dtype, to, from, data, n);
        break;
    case PSD_RULE:
        psd_step_apply(&c->step, c->b, c->out, at, n, data);
        break;
    }
    if (c->count)
        c->nonfinite += ps_nonfinite(c->dtype, data, n);
}

// So many bytes at once: what is counted is still in the first cache then.
enum { CHANGE_BYTES = 8 << 10 };

static bool change_run(void *arg, size_t first, const void *data, size_t n)
{
    struct change *c = arg;
    const size_t step = c->count ? CHANGE_BYTES / c->size : n;
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < step ? n - done : step;
        change_elements(c, c->offset + first + done, (const uint8_t *)data + done * c->size, some);
    }
    return true;
}

// What no extent writes: all around a slice or a slot, the slots of what is no rule's update.
static void copy_the_rest(const struct psd_update *u, const struct psd_block *b, struct psd_page *out)
{
    size_t from = psd_slot_offset(b->value_bytes, 0);
    if (out == b->page)
        return;
    if (u->extents->count < b->count || u->slot)
        memcpy(out->data, b->page->data, b->page->bytes);
    else if (u->how != PSD_RULE && b->page->bytes > from)
        memcpy(out->data + from, b->page->data + from, b->page->bytes - from);
}

static void put_strings(const struct psd_extent *p, struct psd_block *b, struct psd_page *out, struct psd_feed *feed)
{
    size_t lengths = (size_t)p->count * PS_STRING_LENGTH;
    psd_feed_copy(feed, p->at, lengths, out->data);
    psd_feed_copy(feed, p->text_at, p->bytes - lengths, out->data + lengths);
    b->value_bytes = p->bytes;
}

static void update_fill(void *arg, struct psd_block *b, struct psd_page *out)
{
    const struct psd_update *u = arg;
    const struct psd_variable *v = u->extents->variable;
    size_t size = ps_dtype_size(v->dtype);
    struct change c = {.how = u->how, .dtype = v->dtype, .size = u->how == PSD_PUT ? 1 : size, .b = b, .out = out};
    c.count = u->count;
    if (v->dtype == PS_STRING) {
        put_strings(u->extents, b, out, u->feed);
        return;
    }
    copy_the_rest(u, b, out);
    if (u->how == PSD_RULE)
        psd_step_init(&c.step, u->job, v, b, 0);
    for (size_t i = 0; i < u->n; i++) {
        struct psd_extent *extent = &u->extents[i];
        c.offset = extent->offset * (size / c.size);
        if (u->slot)  // of bytes, as what is put always is
            c.offset += psd_slot_offset(b->value_bytes, (int)u->slot - 1);
        c.nonfinite = 0;
        psd_feed_walk(u->feed, extent->at, extent->bytes, c.size, change_run, &c);
        extent->nonfinite = (uint32_t)c.nonfinite;
    }
    b->steps = u->steps ? u->steps : b->steps + (u->how == PSD_RULE);
}

size_t psd_update_page_bytes(const struct psd_extent *p)
{
    const struct psd_variable *v = p->variable;
    return v->dtype == PS_STRING ? p->bytes
                                 : psd_page_bytes(psd_extent_block(p)->count * ps_dtype_size(v->dtype), v->blank.slots);
}

enum psd_written psd_update_block(const struct psd_update *u, struct psd_page **spare, uint64_t *found,
                                  uint64_t *version)
{
    struct psd_update copy = *u;
    const struct psd_write w = {.id = u->id,
                                .promised = u->promised,
                                .bytes = psd_update_page_bytes(u->extents),
                                .fill = update_fill,
                                .arg = &copy};
    return psd_block_write(psd_extent_block(u->extents), &w, spare, found, version);
}
