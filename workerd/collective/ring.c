// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/ring.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "workerd/collective/add.h"

struct wk_ring {
    uint32_t rank, ranks;
    struct wk_ring_link link;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t next;                        // sequence
    struct wk_ring_reduction *under_way;  // begun, and waited for
    struct wk_ring_message *early;        // of reductions that have not begun
    size_t direct;                        // chunks sent directly, and not acknowledged
    struct ps_error failed;               // code PS_OK: it has not
    struct ps_error ended;                // likewise: the rank before has not
};

struct wk_ring *wk_ring_create(struct wk_ring_link link)
{
    struct wk_ring *ring = ps_alloc(sizeof *ring);
    pthread_condattr_t attributes;
    *ring = (struct wk_ring){.link = link};
    pthread_mutex_init(&ring->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&ring->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return ring;
}

void wk_ring_join(struct wk_ring *ring, uint32_t rank, uint32_t ranks)
{
    pthread_mutex_lock(&ring->lock);
    ring->rank = rank;
    ring->ranks = ranks;
    pthread_mutex_unlock(&ring->lock);
}

void wk_ring_destroy(struct wk_ring *ring)
{
    if (!ring)
        return;
    pthread_cond_destroy(&ring->changed);
    pthread_mutex_destroy(&ring->lock);
    free(ring);
}

// ---- segments and chunks ------------------------------------------------------------------------------------------

// Where a segment begins; that of `ranks` is the end.
static size_t ring_segment(const struct wk_ring *ring, const struct wk_ring_reduction *r, uint32_t segment)
{
    return (size_t)((unsigned __int128)r->n * segment / ring->ranks);
}

static char *ring_at(const struct wk_ring_reduction *r, size_t element)
{
    return (char *)r->values + element * wk_number_size(r->type);
}

// The elements of a chunk that begins there, within a segment that ends there.
static size_t ring_chunk_elements(const struct wk_ring_reduction *r, size_t first, size_t end)
{
    const size_t whole = WK_RING_CHUNK / wk_number_size(r->type);
    return end - first < whole ? end - first : whole;
}

static bool ring_has_come(const struct wk_ring_reduction *r, uint32_t hop)
{
    const struct wk_ring_message *m = r->come;
    while (m && m->chunk.hop != hop)
        m = m->next;
    return m != NULL;
}

// Is a chunk that comes here with so many hops the sum, once it is added or taken?
static bool ring_is_sum(const struct wk_ring *ring, uint32_t hop)
{
    return hop + 1 >= ring->ranks - 1;
}

// How many elements a chunk has that comes here; 0: there is no such chunk, or it has come before.
static size_t ring_expected(const struct wk_ring *ring, const struct wk_ring_reduction *r,
                            const struct wk_ring_chunk *c)
{
    const size_t whole = WK_RING_CHUNK / wk_number_size(r->type);
    if (r->direct)
        return r->awaited > 0 && c->hop < ring->ranks - 1 && c->first == 0 && !ring_has_come(r, c->hop) ? r->n : 0;
    if (c->hop >= 2 * (ring->ranks - 1))
        return 0;
    const uint32_t segment = (ring->rank + 2 * ring->ranks - 1 - c->hop) % ring->ranks;
    const size_t begin = ring_segment(ring, r, segment), end = ring_segment(ring, r, segment + 1);
    if (c->first < begin || c->first >= end || (c->first - begin) % whole != 0)
        return 0;
    const size_t elements = ring_chunk_elements(r, c->first, end);
    return ring_is_sum(ring, c->hop) && elements > r->left ? 0 : elements;
}

// ---- what a chunk does --------------------------------------------------------------------------------------------

// Calls done of each of a list.
static void ring_end_messages(struct wk_ring_message *list, enum ps_code code, const char *text)
{
    while (list) {
        struct wk_ring_message *m = list;
        list = m->next;
        m->done(m, code, text);
    }
}

// A copy of these numbers, as they travel. Empty, and the ring has failed: there is no memory.
static struct ps_slice ring_copy(struct wk_ring *ring, const struct wk_ring_reduction *r, size_t first, size_t elements)
{
    uint8_t *wire;
    const size_t bytes = elements * wk_wire_size(r->type);
    const struct ps_slice copy = ps_slice_new(bytes, &wire);
    if (wire)
        wk_encode(r->type, ring_at(r, first), elements, wire);
    else
        wk_ring_fail(ring, PS_RESOURCE_EXHAUSTED, "no memory for a chunk of an all-reduce");
    return copy;
}

static void ring_send(struct wk_ring *ring, struct wk_ring_reduction *r, struct wk_ring_chunk chunk, size_t elements)
{
    const uint32_t next = (ring->rank + 1) % ring->ranks;
    const bool as_it_is = wk_wire_size(r->type) == wk_number_size(r->type);
    const struct ps_slice data =
        as_it_is ? (struct ps_slice){(uint8_t *)ring_at(r, chunk.first), elements * wk_number_size(r->type), NULL}
                 : ring_copy(ring, r, chunk.first, elements);
    ring->link.send(ring->link.ctx, r, next, chunk, data);
}

// Adds, or takes; no other thread works with these elements.
static void ring_take(const struct wk_ring *ring, const struct wk_ring_reduction *r, const struct wk_ring_message *m,
                      size_t elements)
{
    if (m->chunk.hop >= ring->ranks - 1)
        wk_take_slices(r->type, ring_at(r, m->chunk.first), &m->data, elements);
    else
        wk_add_slices(r->type, ring_at(r, m->chunk.first), &m->data, elements);
}

// locked
static void ring_check_done(struct wk_ring *ring, struct wk_ring_reduction *r)
{
    if (r->left == 0 && r->busy == 0)
        pthread_cond_broadcast(&ring->changed);
}

// A chunk of it is through.
static void ring_has_worked(struct wk_ring *ring, struct wk_ring_reduction *r)
{
    pthread_mutex_lock(&ring->lock);
    r->busy--;
    ring_check_done(ring, r);
    pthread_mutex_unlock(&ring->lock);
}

// One that has been found to belong to r, which counts it as busy: until it is acknowledged, where it goes on. Then r
// may be over, and another one in its memory, before this returns.
static void ring_work(struct wk_ring *ring, struct wk_ring_reduction *r, struct wk_ring_message *m, size_t elements)
{
    const struct wk_ring_chunk on = {m->chunk.sequence, m->chunk.first, m->chunk.hop + 1};
    const bool goes_on = on.hop < 2 * (ring->ranks - 1);
    ring_take(ring, r, m, elements);
    if (goes_on)
        ring_send(ring, r, on, elements);
    else
        ring_has_worked(ring, r);
    m->done(m, PS_OK, NULL);  // not before: the rank before may end once it knows
}

static void ring_refuse(struct wk_ring *ring, struct wk_ring_message *m)
{
    char text[160];
    snprintf(text, sizeof text,
             "a chunk of %zu bytes at element %" PRIu64 " of reduction %" PRIu64 ", hop %" PRIu32
             ", does not belong to this ring of %" PRIu32 " workers",
             m->data.len, m->chunk.first, m->chunk.sequence, m->chunk.hop, ring->ranks);
    m->done(m, PS_INVALID_ARGUMENT, text);
    wk_ring_fail(ring, PS_INVALID_ARGUMENT, text);
}

// ---- small arrays: directly ---------------------------------------------------------------------------------------

static bool ring_goes_directly(const struct wk_ring *ring, size_t n, enum wk_number type)
{
    const size_t p = ring->ranks, bytes = n * wk_number_size(type);
    return n > 0 && bytes <= WK_RING_CHUNK && p - 1 <= WK_RING_DIRECT_RANKS &&
           bytes * (p - 1) * (p - 2) / p <= WK_RING_DIRECT;
}

// The rank whose chunk has passed so many.
static uint32_t ring_sender(const struct wk_ring *ring, uint32_t hop)
{
    return (ring->rank + 2 * ring->ranks - 1 - hop) % ring->ranks;
}

static void ring_send_directly(struct wk_ring *ring, const struct wk_ring_reduction *r)
{
    pthread_mutex_lock(&ring->lock);
    const uint32_t others = ring->failed.code ? 0 : ring->ranks - 1;
    ring->direct += others;
    pthread_mutex_unlock(&ring->lock);
    const struct ps_slice copy = ring_copy(ring, r, 0, r->n);
    for (uint32_t hop = 0; hop < others; hop++)
        ring->link.send(ring->link.ctx, NULL, (ring->rank + 1 + hop) % ring->ranks,
                        (struct wk_ring_chunk){r->sequence, 0, hop}, ps_slice_ref(copy));
    ps_slice_unref(copy);
}

static const struct ps_slices *ring_array_of(const struct wk_ring *ring, const struct wk_ring_message *list,
                                             uint32_t rank)
{
    while (ring_sender(ring, list->chunk.hop) != rank)
        list = list->next;
    return &list->data;
}

// In the order of the ranks: those below this one, this one, those above.
static void ring_add_directly(const struct wk_ring *ring, const struct wk_ring_reduction *r,
                              const struct wk_ring_message *list)
{
    if (ring->rank > 0) {
        char *below = ps_alloc(r->n * wk_number_size(r->type));
        wk_take_slices(r->type, below, ring_array_of(ring, list, 0), r->n);
        for (uint32_t rank = 1; rank < ring->rank; rank++)
            wk_add_slices(r->type, below, ring_array_of(ring, list, rank), r->n);
        wk_add(r->type, r->values, below, r->n);
        free(below);
    }
    for (uint32_t rank = ring->rank + 1; rank < ring->ranks; rank++)
        wk_add_slices(r->type, r->values, ring_array_of(ring, list, rank), r->n);
}

// locked. All that have come where this one is the last, else NULL.
static struct wk_ring_message *ring_keep(struct wk_ring_reduction *r, struct wk_ring_message *m)
{
    m->next = r->come;
    r->come = m;
    if (--r->awaited > 0)
        return NULL;
    r->come = NULL;
    r->busy++;
    return m;
}

static void ring_work_directly(struct wk_ring *ring, struct wk_ring_reduction *r, struct wk_ring_message *list)
{
    ring_add_directly(ring, r, list);
    pthread_mutex_lock(&ring->lock);
    r->left = 0;
    r->busy--;
    ring_check_done(ring, r);
    pthread_mutex_unlock(&ring->lock);
    ring_end_messages(list, PS_OK, NULL);
}

// ---- chunks that come ---------------------------------------------------------------------------------------------

// Does it belong to the reduction? Of one that has ended, none does.
static bool ring_fits(const struct wk_ring *ring, const struct wk_ring_reduction *r, const struct wk_ring_message *m,
                      size_t *elements)
{
    *elements = r ? ring_expected(ring, r, &m->chunk) : 0;
    return *elements > 0 && m->data.len == *elements * wk_wire_size(r->type);
}

static struct wk_ring_reduction *ring_find(const struct wk_ring *ring, uint64_t sequence)
{
    struct wk_ring_reduction *r = ring->under_way;
    while (r && r->sequence != sequence)
        r = r->next;
    return r;
}

void wk_ring_receive(struct wk_ring *ring, struct wk_ring_message *m)
{
    struct wk_ring_reduction *r = NULL;
    struct wk_ring_message *all = NULL;  // that belong to one that goes directly
    size_t elements = 0;
    pthread_mutex_lock(&ring->lock);
    struct ps_error failed = ring->failed;
    const bool early = !failed.code && m->chunk.sequence >= ring->next;
    if (early) {
        m->next = ring->early;
        ring->early = m;
    } else if (!failed.code) {
        r = ring_find(ring, m->chunk.sequence);
        r = ring_fits(ring, r, m, &elements) ? r : NULL;
        failed = r ? failed : ring->ended;  // who waited for it may have left with that
    }
    const bool direct = r && r->direct;
    if (direct) {
        all = ring_keep(r, m);
    } else if (r) {
        r->left -= ring_is_sum(ring, m->chunk.hop) ? elements : 0;
        r->busy++;
    }
    pthread_mutex_unlock(&ring->lock);
    if (failed.code)
        m->done(m, PS_ABORTED, failed.text);
    else if (all)
        ring_work_directly(ring, r, all);
    else if (r && !direct)
        ring_work(ring, r, m, elements);
    else if (!r && !early)
        ring_refuse(ring, m);
}

void wk_ring_sent(struct wk_ring *ring, struct wk_ring_reduction *r)
{
    if (r) {
        ring_has_worked(ring, r);
        return;
    }
    pthread_mutex_lock(&ring->lock);
    if (--ring->direct == 0)
        pthread_cond_broadcast(&ring->changed);
    pthread_mutex_unlock(&ring->lock);
}

// ---- begin and wait -----------------------------------------------------------------------------------------------

// Takes out those that have waited for this reduction.
static struct wk_ring_message *ring_take_early(struct wk_ring *ring, uint64_t sequence)
{
    struct wk_ring_message *list = NULL, **at = &ring->early;
    while (*at) {
        struct wk_ring_message *m = *at;
        if (m->chunk.sequence != sequence) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        m->next = list;
        list = m;
    }
    return list;
}

static void ring_receive_early(struct wk_ring *ring, struct wk_ring_message *list)
{
    while (list) {
        struct wk_ring_message *m = list;
        list = m->next;
        wk_ring_receive(ring, m);
    }
}

static size_t ring_own_chunks(const struct wk_ring *ring, const struct wk_ring_reduction *r)
{
    const size_t whole = WK_RING_CHUNK / wk_number_size(r->type);
    return (ring_segment(ring, r, ring->rank + 1) - ring_segment(ring, r, ring->rank) + whole - 1) / whole;
}

// The segment with which this rank begins.
static void ring_send_own(struct wk_ring *ring, struct wk_ring_reduction *r)
{
    const size_t begin = ring_segment(ring, r, ring->rank), end = ring_segment(ring, r, ring->rank + 1);
    size_t elements;
    for (size_t first = begin; first < end; first += elements) {
        elements = ring_chunk_elements(r, first, end);
        ring_send(ring, r, (struct wk_ring_chunk){r->sequence, first, 0}, elements);
    }
}

// From now on its chunks are taken. Those that have come before; and whether it can be begun.
static struct wk_ring_message *ring_admit(struct wk_ring *ring, struct wk_ring_reduction *r, bool *failed)
{
    pthread_mutex_lock(&ring->lock);
    ring->next++;
    r->next = ring->under_way;
    ring->under_way = r;
    *failed = ring->failed.code != PS_OK;
    r->busy = *failed || r->direct ? 0 : ring_own_chunks(ring, r);
    struct wk_ring_message *early = *failed ? NULL : ring_take_early(ring, r->sequence);
    pthread_mutex_unlock(&ring->lock);
    return early;
}

void wk_ring_begin(struct wk_ring *ring, struct wk_ring_reduction *r, void *values, size_t n, enum wk_number type)
{
    bool failed;
    *r = (struct wk_ring_reduction){.sequence = ring->next, .values = values, .n = n, .type = type, .left = n};
    r->direct = ring_goes_directly(ring, n, type);
    r->awaited = ring->ranks - 1;
    if (r->direct)
        ring_send_directly(ring, r);  // as they are: nothing is added to the values before
    struct wk_ring_message *early = ring_admit(ring, r, &failed);
    if (!failed && !r->direct)
        ring_send_own(ring, r);
    ring_receive_early(ring, early);
}

// locked. Those of its chunks that waited for others.
static struct wk_ring_message *ring_forget(struct wk_ring *ring, const struct wk_ring_reduction *r)
{
    struct wk_ring_reduction **at = &ring->under_way;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    return r->come;
}

// Why nothing more comes of it.
static const struct ps_error *ring_error(const struct wk_ring *ring, const struct wk_ring_reduction *r)
{
    return ring->failed.code ? &ring->failed : r->left > 0 && ring->ended.code ? &ring->ended : NULL;
}

static struct timespec ring_time(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / PS_SECOND), (long)(ns % PS_SECOND)};
}

enum ps_code wk_ring_wait(struct wk_ring *ring, struct wk_ring_reduction *r, uint64_t until, struct ps_error *e)
{
    const struct timespec at = ring_time(until);
    const struct ps_error *error = NULL;
    struct wk_ring_message *waited = NULL;
    int timed_out = 0;
    pthread_mutex_lock(&ring->lock);
    while ((r->left > 0 || r->busy > 0) && !(error = ring_error(ring, r)) && !timed_out)
        timed_out = pthread_cond_timedwait(&ring->changed, &ring->lock, &at);
    if (error)
        *e = *error;
    else if (r->left > 0 || r->busy > 0)
        ps_fail(e, PS_DEADLINE_EXCEEDED, "reduction %" PRIu64 " is not done", r->sequence);
    else
        e->code = PS_OK;
    if (e->code != PS_DEADLINE_EXCEEDED)
        waited = ring_forget(ring, r);
    pthread_mutex_unlock(&ring->lock);
    ring_end_messages(waited, PS_ABORTED, e->text);
    return e->code;
}

uint32_t wk_ring_missing(struct wk_ring *ring, struct wk_ring_reduction *r)
{
    uint32_t hop = 0;
    pthread_mutex_lock(&ring->lock);
    while (r->direct && hop + 2 < ring->ranks && ring_has_come(r, hop))
        hop++;
    pthread_mutex_unlock(&ring->lock);
    return ring_sender(ring, hop);
}

// ---- ends ---------------------------------------------------------------------------------------------------------

void wk_ring_end_of_chunks(struct wk_ring *ring, enum ps_code code, const char *text)
{
    pthread_mutex_lock(&ring->lock);
    if (!ring->ended.code)
        ps_fail(&ring->ended, code, "%s", text);
    pthread_cond_broadcast(&ring->changed);
    pthread_mutex_unlock(&ring->lock);
}

// locked. All chunks that wait for something.
static struct wk_ring_message *ring_take_waiting(struct wk_ring *ring)
{
    struct wk_ring_message *list = ring->early, **end = &list;
    ring->early = NULL;
    for (struct wk_ring_reduction *r = ring->under_way; r; r = r->next) {
        while (*end)
            end = &(*end)->next;
        *end = r->come;
        r->come = NULL;
    }
    return list;
}

void wk_ring_fail(struct wk_ring *ring, enum ps_code code, const char *text)
{
    pthread_mutex_lock(&ring->lock);
    if (!ring->failed.code)
        ps_fail(&ring->failed, code, "%s", text);
    struct wk_ring_message *waiting = ring_take_waiting(ring);
    pthread_cond_broadcast(&ring->changed);
    pthread_mutex_unlock(&ring->lock);
    ring_end_messages(waiting, PS_ABORTED, text);
}

void wk_ring_flush(struct wk_ring *ring, uint64_t until)
{
    const struct timespec at = ring_time(until);
    int timed_out = 0;
    pthread_mutex_lock(&ring->lock);
    while (ring->direct > 0 && !ring->failed.code && !timed_out)
        timed_out = pthread_cond_timedwait(&ring->changed, &ring->lock, &at);
    pthread_mutex_unlock(&ring->lock);
}

enum ps_code wk_ring_look(struct wk_ring *ring, struct ps_error *e)
{
    pthread_mutex_lock(&ring->lock);
    *e = ring->failed.code ? ring->failed : ring->ended;
    pthread_mutex_unlock(&ring->lock);
    return e->code;
}
