// SPDX-License-Identifier: Apache-2.0
#include "psd/job/snapshot.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "psd/job/table.h"

void psd_snapshots_init(struct psd_snapshots *all, struct psd_pool *pool)
{
    *all = (struct psd_snapshots){.pool = pool};
    pthread_mutex_init(&all->lock, NULL);
}

void psd_snapshots_fini(struct psd_snapshots *all)
{
    while (psd_snapshots_drop_oldest(all))
        continue;
    pthread_mutex_destroy(&all->lock);
}

// ---- the list: its lock is held -----------------------------------------------------------------------------------

static struct psd_snapshot **snapshot_bucket(struct psd_snapshots *all, uint64_t id)
{
    return &all->buckets[id % PSD_SNAPSHOT_BUCKETS];
}

static struct psd_snapshot *snapshot_lookup(struct psd_snapshots *all, uint64_t id)
{
    struct psd_snapshot *s = *snapshot_bucket(all, id);
    while (s && s->id != id)
        s = s->next_in_bucket;
    return s;
}

static void snapshot_link(struct psd_snapshots *all, struct psd_snapshot *s)
{
    struct psd_snapshot **bucket = snapshot_bucket(all, s->id);
    s->next_in_bucket = *bucket;
    *bucket = s;
    s->older = all->newest;
    s->newer = NULL;
    *(all->newest ? &all->newest->newer : &all->oldest) = s;
    all->newest = s;
    all->n++;
}

// The list's reference becomes the caller's.
static void snapshot_unlink(struct psd_snapshots *all, struct psd_snapshot *s)
{
    struct psd_snapshot **at = snapshot_bucket(all, s->id);
    while (*at != s)
        at = &(*at)->next_in_bucket;
    *at = s->next_in_bucket;
    *(s->older ? &s->older->newer : &all->oldest) = s->newer;
    *(s->newer ? &s->newer->older : &all->newest) = s->older;
    all->n--;
}

// ---- references ---------------------------------------------------------------------------------------------------

// A page that several snapshots hold, or one holds for several extents, counts once.
static void snapshot_count(struct psd_snapshots *all, const struct psd_snapshot *s, bool holds)
{
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < s->extents.n; i++) {
        struct psd_page *page = s->pinned[i].page;
        if (holds && page->snapshots++ == 0)
            all->pinned += page->bytes;
        else if (!holds && --page->snapshots == 0)
            all->pinned -= page->bytes;
    }
    pthread_mutex_unlock(&all->lock);
}

void psd_snapshot_unref(struct psd_snapshots *all, struct psd_snapshot *s)
{
    pthread_mutex_lock(&all->lock);
    bool last = --s->refs == 0;
    pthread_mutex_unlock(&all->lock);
    if (!last)
        return;
    snapshot_count(all, s, false);
    for (size_t i = 0; i < s->extents.n; i++)
        psd_page_unref(s->pinned[i].page);
    psd_pool_give(all->pool, s->room);
    psd_extents_free(&s->extents);
    free(s->pinned);
    psd_job_unref(s->job);
    free(s);
}

// One that is kept takes its place beside the others as far as there is room, and one does in any case: else nothing of
// more than a message could be read where blocks fill the pool.
static void snapshot_take_room(struct psd_snapshots *all, struct psd_snapshot *s)
{
    size_t bytes = sizeof *s + s->extents.cap * (sizeof *s->extents.v + sizeof *s->pinned);
    bool taken;
    while (!(taken = psd_pool_take(all->pool, bytes)) && psd_snapshots_drop_oldest(all))
        continue;
    s->room = taken ? bytes : 0;
}

void psd_snapshot_keep(struct psd_snapshots *all, struct psd_snapshot *s, uint64_t now)
{
    snapshot_take_room(all, s);
    pthread_mutex_lock(&all->lock);
    s->expires = now + PSD_SNAPSHOT_S * PS_SECOND;
    s->refs++;
    snapshot_link(all, s);
    bool too_many = all->n > PSD_MAX_SNAPSHOTS;
    pthread_mutex_unlock(&all->lock);
    if (too_many)
        psd_snapshots_drop_oldest(all);
}

struct psd_snapshot *psd_snapshot_find(struct psd_snapshots *all, uint64_t id, uint64_t now)
{
    pthread_mutex_lock(&all->lock);
    struct psd_snapshot *s = snapshot_lookup(all, id);
    if (s) {
        s->refs++;
        s->expires = now + PSD_SNAPSHOT_S * PS_SECOND;
    }
    pthread_mutex_unlock(&all->lock);
    return s;
}

void psd_snapshot_sent(struct psd_snapshots *all, struct psd_snapshot *s, uint64_t now)
{
    pthread_mutex_lock(&all->lock);
    s->expires = now + PSD_SNAPSHOT_READ_S * PS_SECOND;
    pthread_mutex_unlock(&all->lock);
}

void psd_snapshot_release(struct psd_snapshots *all, uint64_t id)
{
    pthread_mutex_lock(&all->lock);
    struct psd_snapshot *s = snapshot_lookup(all, id);
    if (s)
        snapshot_unlink(all, s);
    pthread_mutex_unlock(&all->lock);
    if (s)
        psd_snapshot_unref(all, s);
}

bool psd_snapshots_drop_oldest(struct psd_snapshots *all)
{
    pthread_mutex_lock(&all->lock);
    struct psd_snapshot *s = all->oldest;
    if (s)
        snapshot_unlink(all, s);
    pthread_mutex_unlock(&all->lock);
    if (s)
        psd_snapshot_unref(all, s);
    return s != NULL;
}

void psd_snapshots_expire(struct psd_snapshots *all, uint64_t now, const struct psd_job *of)
{
    struct psd_snapshot *gone = NULL, *next;
    pthread_mutex_lock(&all->lock);
    for (struct psd_snapshot *s = all->oldest; s; s = next) {
        next = s->newer;
        if (s->expires > now && s->job != of)
            continue;
        snapshot_unlink(all, s);
        s->newer = gone;
        gone = s;
    }
    pthread_mutex_unlock(&all->lock);
    for (; gone; gone = next) {
        next = gone->newer;
        psd_snapshot_unref(all, gone);
    }
}

// ---- pin ----------------------------------------------------------------------------------------------------------

// The slot of the rule that has the average of the block's weights, counted from 1; 0: none has. The block is locked.
static uint32_t snapshot_average(const struct psd_variable *v, const struct psd_block *b)
{
    const int slot = v->rule && v->trainable && b->steps > 0 ? ps_rule_average_slot(v->rule, v->hyper) : -1;
    return (uint32_t)(slot + 1);
}

static struct psd_pinned pin_by(const struct psd_extent *p, bool average, struct psd_page *(*pin)(struct psd_block *b))
{
    struct psd_block *b = psd_extent_block(p);
    pthread_mutex_lock(&b->lock);
    const uint32_t slot = average ? snapshot_average(p->variable, b) : p->slot;
    struct psd_pinned out = {.page = pin(b), .version = b->version, .round = b->round};
    if (slot)
        out.from = psd_slot_offset(b->value_bytes, (int)slot - 1);
    pthread_mutex_unlock(&b->lock);
    return out;
}

struct psd_pinned psd_pin(const struct psd_extent *p)
{
    return pin_by(p, false, psd_block_pin);
}

struct psd_pinned psd_pin_average(const struct psd_extent *p)
{
    return pin_by(p, true, psd_block_pin);
}

// Bytes of an extent of strings as they are in a payload; page: its block's.
static uint32_t snapshot_strings_bytes(const struct psd_extent *p, const struct psd_page *page)
{
    const uint32_t *lengths = (const uint32_t *)page->data + p->offset;
    size_t bytes = p->count * PS_STRING_LENGTH;
    for (uint32_t i = 0; i < p->count; i++)
        bytes += lengths[i];
    return (uint32_t)bytes;
}

// Versions and rounds of a snapshot's blocks at this instant; the snapshot lock is held exclusively.
static void snapshot_look(struct psd_snapshot *s)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < s->extents.n; i++) {
        struct psd_block *b = psd_extent_block(&s->extents.v[i]);
        pthread_mutex_lock(&b->lock);
        s->pinned[i] = (struct psd_pinned){.version = b->version, .round = b->round};
        pthread_mutex_unlock(&b->lock);
        if (!s->extents.v[i].round)
            continue;
        least = s->pinned[i].round < least ? s->pinned[i].round : least;
        s->last_round = s->pinned[i].round > s->last_round ? s->pinned[i].round : s->last_round;
    }
    s->round = least == UINT64_MAX ? 0 : least;
}

// Leaves out the tensors whose blocks have changed no more often than the reader knows.
static void snapshot_leave_out(struct psd_snapshot *s, const struct psd_known *known)
{
    struct psd_extent *v = s->extents.v;
    size_t kept = 0;
    for (size_t i = 0, end; i < s->extents.n; i = end) {
        uint64_t changes = 0;
        for (end = i; end < s->extents.n && v[end].tensor == v[i].tensor; end++)
            changes += s->pinned[end].version;
        bool keep = known->changed(known->arg, v[i].tensor, changes);
        for (size_t k = i; k < end && keep; k++)
            v[kept++] = v[k];
    }
    s->extents.n = kept;
}

// Fresh blocks may be gigabytes: they are filled message by message, as they are read. Of strings the lengths are
// needed at once.
static void snapshot_pin(struct psd_snapshot *s)
{
    s->extents.bytes = 0;
    for (size_t i = 0; i < s->extents.n; i++) {
        struct psd_extent *p = &s->extents.v[i];
        bool strings = p->variable->dtype == PS_STRING;
        s->pinned[i] = pin_by(p, false, strings ? psd_block_pin : psd_block_hold);
        s->pinned[i].at = s->extents.bytes;
        if (strings)
            p->bytes = snapshot_strings_bytes(p, s->pinned[i].page);
        s->extents.bytes += p->bytes;
    }
}

struct psd_snapshot *psd_snapshot_take(struct psd_snapshots *all, struct psd_job *job, struct psd_extents *extents,
                                       const struct psd_known *known, uint64_t id)
{
    struct psd_snapshot *s = ps_try_alloc(sizeof *s);
    if (!s || !(s->pinned = ps_try_alloc_array(extents->n, sizeof *s->pinned))) {
        free(s);
        return NULL;
    }
    s->id = id;
    s->job = job;
    s->refs = 1;
    s->extents = *extents;
    *extents = (struct psd_extents){0};
    pthread_rwlock_wrlock(&job->snapshot_lock);
    snapshot_look(s);
    if (known)
        snapshot_leave_out(s, known);
    snapshot_pin(s);
    pthread_rwlock_unlock(&job->snapshot_lock);
    snapshot_count(all, s, true);
    return s;
}

size_t psd_snapshot_seek(const struct psd_snapshot *s, uint64_t offset)
{
    size_t low = 0, high = s->extents.n;
    if (offset == 0)
        return 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->pinned[middle].at < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->extents.n && s->pinned[low].at == offset ? low : SIZE_MAX;
}
