// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/buffer.h"

#include <grpc/grpc.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

// Up to here copying a slice is cheaper than what the core does for each one: a reference count, an entry of its
// slice buffers, one of writev's.
enum { SMALL = 2048 };

// How long the core may take to drop slices once all is closed; they are dropped within a few ms, or never.
enum { SETTLE_MS = 1000 };

// ---- releases -----------------------------------------------------------------------------------------------------

static _Thread_local struct ps_releases *collecting;

void ps_releases_begin(struct ps_releases *to)
{
    *to = (struct ps_releases){0};
    collecting = to;
}

void ps_releases_end(void)
{
    collecting = NULL;
}

void ps_releases_run(struct ps_releases *r)
{
    for (size_t i = 0; i < r->n; i++)
        ps_owner_unref(r->v[i]);
    free(r->v);
    *r = (struct ps_releases){0};
}

static void releases_add(struct ps_releases *r, struct ps_owner *owner)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 8;
        r->v = ps_realloc(r->v, r->cap * sizeof *r->v);
    }
    r->v[r->n++] = owner;
}

void ps_releases_move(struct ps_releases *to, struct ps_releases *from)
{
    for (size_t i = 0; i < from->n; i++)
        releases_add(to, from->v[i]);
    free(from->v);
    *from = (struct ps_releases){0};
}

static void owner_release(void *owner)
{
    if (collecting)
        releases_add(collecting, owner);
    else
        ps_owner_unref(owner);
}

// ---- in -----------------------------------------------------------------------------------------------------------

struct received {
    struct ps_owner owner;
    grpc_byte_buffer *buffer;
    size_t bytes;
    void (*freed)(void *arg, size_t bytes);
    void *arg;
};

static void received_free(struct ps_owner *o)
{
    struct received *r = (struct received *)o;
    grpc_byte_buffer_destroy(r->buffer);
    if (r->freed)
        r->freed(r->arg, r->bytes);
    free(r);
}

bool ps_slices_from_buffer(struct ps_slices *out, grpc_byte_buffer *buffer, void (*freed)(void *arg, size_t bytes),
                           void *arg)
{
    grpc_slice_buffer *slices = &buffer->data.raw.slice_buffer;
    struct received *r = ps_try_alloc(sizeof *r);
    if (!r) {
        grpc_byte_buffer_destroy(buffer);
        return false;
    }
    *r = (struct received){.buffer = buffer, .bytes = slices->length};
    r->owner.free = received_free;
    atomic_init(&r->owner.refs, 1);
    for (size_t i = 0; i < slices->count; i++) {
        grpc_slice *s = &slices->slices[i];  // where it is: short ones hold their bytes themselves
        struct ps_slice part = {GRPC_SLICE_START_PTR(*s), GRPC_SLICE_LENGTH(*s), &r->owner};
        ps_slices_add(out, ps_slice_ref(part));
    }
    bool whole = !out->broken;
    if (whole) {
        r->freed = freed;
        r->arg = arg;
    } else {
        ps_slices_clear(out);
    }
    ps_owner_unref(&r->owner);
    return whole;
}

// ---- out ----------------------------------------------------------------------------------------------------------

struct loan {
    struct ps_owner *owner;
    struct ps_loans *loans;
};

// As in cq.c: the core synchronises the thread that drops a slice with the one that lent it, a race detector sees this.
static atomic_uint lent;

static void loan_give_back(void *arg)
{
    atomic_load(&lent);
    struct loan loan = *(struct loan *)arg;
    free(arg);
    if (!atomic_load(&loan.loans->abandoned))
        owner_release(loan.owner);
    atomic_fetch_add(&loan.loans->back, 1);
    atomic_fetch_sub(&loan.loans->out, 1);
}

// Gives the reference to the core. False: no memory.
static bool loan_lend(const struct ps_slice *s, struct ps_loans *loans, grpc_slice *out)
{
    if (!s->owner) {
        *out = grpc_slice_from_static_buffer(s->data, s->len);
        return true;
    }
    struct loan *loan = ps_try_alloc(sizeof *loan);
    if (!loan)
        return false;
    *loan = (struct loan){s->owner, loans};
    atomic_fetch_add(&loans->out, 1);
    atomic_fetch_add(&lent, 1);
    *out = grpc_slice_new_with_user_data((void *)s->data, s->len, loan_give_back, loan);
    return true;
}

bool ps_loans_wait(struct ps_loans *loans, int limit_ms)
{
    for (int ms = 0; atomic_load(&loans->out) && ms < limit_ms; ms++)
        ps_sleep(PS_MS);
    return !atomic_load(&loans->out);
}

bool ps_loans_settle(struct ps_loans *loans)
{
    bool settled = ps_loans_wait(loans, SETTLE_MS);
    atomic_store(&loans->abandoned, !settled);
    return settled;
}

// Memory of a run: the first time little, for the header of one large slice; then for many small ones.
enum { FIRST_RUN = 1 << 10, RUN = 32 << 10 };

void ps_packer_init(struct ps_packer *p, struct ps_loans *loans)
{
    *p = (struct ps_packer){.buffer = grpc_raw_byte_buffer_create(NULL, 0), .loans = loans};
}

static void packer_end_run(struct ps_packer *p)
{
    if (!p->at)
        return;
    GRPC_SLICE_SET_LENGTH(p->run, p->used);
    grpc_slice_buffer_add(&p->buffer->data.raw.slice_buffer, p->run);
    p->at = p->end = NULL;
}

// Where the next n bytes go; n <= FIRST_RUN or so.
static uint8_t *packer_reserve(struct ps_packer *p, size_t n)
{
    if ((size_t)(p->end - p->at) >= n)
        return p->at;
    bool first = !p->at && !p->buffer->data.raw.slice_buffer.count;
    packer_end_run(p);
    size_t size = first ? FIRST_RUN : RUN;
    size = n > size ? n : size;
    p->run = grpc_slice_malloc(size);
    p->at = GRPC_SLICE_START_PTR(p->run);
    p->end = p->at + size;
    p->used = 0;
    return p->at;
}

static void packer_took(struct ps_packer *p, size_t n)
{
    p->at += n;
    p->used += n;
}

static void packer_add_slice(struct ps_packer *p, const struct ps_slice *s)
{
    grpc_slice loan;
    if (s->len <= SMALL) {
        memcpy(packer_reserve(p, s->len), s->data, s->len);
        packer_took(p, s->len);
    } else if (loan_lend(s, p->loans, &loan)) {
        packer_end_run(p);
        grpc_slice_buffer_add(&p->buffer->data.raw.slice_buffer, loan);
        return;  // with the reference
    } else {
        p->broken = true;
    }
    if (s->owner)
        owner_release(s->owner);
}

static void packer_add(struct ps_packer *p, struct ps_slices *in)
{
    p->broken |= in->broken;
    for (size_t i = 0; i < in->n; i++)
        packer_add_slice(p, &in->v[i]);
    free(in->v);
    *in = PS_SLICES_EMPTY;
}

void ps_packer_add_record(struct ps_packer *p, const struct ps_record_head *head, struct ps_slices *body)
{
    size_t room = PS_RECORD_HEAD + (head->error ? strlen(head->error) : 0);
    packer_took(p, ps_record_write(head, body->len, packer_reserve(p, room)));
    packer_add(p, body);
}

void ps_packer_add_small_record(struct ps_packer *p, const struct ps_record_head *head, const void *body, size_t len)
{
    uint8_t *to = packer_reserve(p, PS_RECORD_HEAD + len + (head->error ? strlen(head->error) : 0));
    size_t n = ps_record_write(head, len, to);
    memcpy(to + n, body, len);
    packer_took(p, n + len);
}

grpc_byte_buffer *ps_packer_end(struct ps_packer *p)
{
    packer_end_run(p);
    if (!p->broken)
        return p->buffer;
    grpc_byte_buffer_destroy(p->buffer);
    return NULL;
}

grpc_byte_buffer *ps_slices_to_buffer(struct ps_slices *in, struct ps_loans *loans)
{
    struct ps_packer p;
    ps_packer_init(&p, loans);
    packer_add(&p, in);
    return ps_packer_end(&p);
}
