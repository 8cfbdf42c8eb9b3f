// SPDX-License-Identifier: Apache-2.0
//
// Get and Pull: locate the blocks -> wait (a Pull for its round) -> pin -> send the pinned pages' own memory.
//
// A Pull pins what goes into one message, between two atomic updates. A Get pins everything it asks for in one instant,
// between two updates; what does not fit the first message stays pinned as a snapshot until it is released,
// its time is over, or the pool needs the room.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "psd/service/reply.h"

#define SNAPSHOT_TTL (60 * PS_SECOND)

// Snapshots that are kept at once: as many as a job may have workers. Readers that never finish would keep more.
enum { MAX_SNAPSHOTS = 4096 };

struct psd_snapshot {
    uint64_t id;
    struct psd_job *job;
    uint64_t request;           // digest of the request it was taken for
    struct psd_extents pieces;  // that are not left out
    struct psd_pinned *pinned;  // [pieces.n]
    uint64_t page_bytes;
    size_t room;                 // taken from the pool for what is kept besides pages
    uint64_t round, last_round;  // least and greatest of the partitions asked for
    uint64_t expires;            // this and the rest: guarded by the core's snapshot lock
    int refs;
    struct psd_snapshot *next;
};

// ---- snapshots ----------------------------------------------------------------------------------------------------

static void snapshot_unref(struct psd_core *core, struct psd_snapshot *s)
{
    pthread_mutex_lock(&core->snapshot_lock);
    bool last = --s->refs == 0;
    if (last)
        core->pinned -= s->page_bytes;
    pthread_mutex_unlock(&core->snapshot_lock);
    if (!last)
        return;
    for (size_t i = 0; i < s->pieces.n; i++)
        psd_page_unref(s->pinned[i].page);
    psd_pool_give(&core->pool, s->room);
    psd_extents_free(&s->pieces);
    free(s->pinned);
    psd_job_unref(core, s->job);
    free(s);
}

// Takes the first snapshot for which wanted() holds out of the list, with the list's reference.
static struct psd_snapshot *take_snapshot(struct psd_core *core,
                                          bool (*wanted)(const struct psd_snapshot *, const void *), const void *arg)
{
    pthread_mutex_lock(&core->snapshot_lock);
    struct psd_snapshot **at = &core->snapshots, *s;
    while (*at && !wanted(*at, arg))
        at = &(*at)->next;
    s = *at;
    if (s) {
        *at = s->next;
        core->n_snapshots--;
    }
    pthread_mutex_unlock(&core->snapshot_lock);
    return s;
}

// The snapshot of this id, kept for another while, with a reference; or NULL.
static struct psd_snapshot *find_snapshot(struct psd_core *core, uint64_t id)
{
    pthread_mutex_lock(&core->snapshot_lock);
    struct psd_snapshot *s = core->snapshots;
    while (s && s->id != id)
        s = s->next;
    if (s) {
        s->refs++;
        s->expires = psd_now(core) + SNAPSHOT_TTL;
    }
    pthread_mutex_unlock(&core->snapshot_lock);
    return s;
}

static bool is_oldest(const struct psd_snapshot *s, const void *arg)
{
    (void)arg;
    return s != NULL;
}

// A snapshot is kept beside the others as far as there is room, and one in any case: else nothing of more than a message
// could be read where blocks fill the pool.
static void take_room(struct psd_core *core, struct psd_snapshot *s)
{
    size_t bytes = sizeof *s + s->pieces.cap * (sizeof *s->pieces.v + sizeof *s->pinned);
    bool taken;
    while (!(taken = psd_pool_take(&core->pool, bytes)) && psd_drop_oldest_snapshot(core))
        continue;
    s->room = taken ? bytes : 0;
}

// Adds a snapshot to the list, which takes a reference of its own. Where there are too many, the oldest is given up.
static void keep_snapshot(struct psd_core *core, struct psd_snapshot *s)
{
    take_room(core, s);
    s->expires = psd_now(core) + SNAPSHOT_TTL;
    pthread_mutex_lock(&core->snapshot_lock);
    struct psd_snapshot **at = &core->snapshots;
    while (*at)
        at = &(*at)->next;
    *at = s;
    s->refs++;
    bool too_many = ++core->n_snapshots > MAX_SNAPSHOTS;
    pthread_mutex_unlock(&core->snapshot_lock);
    if (too_many)
        psd_drop_oldest_snapshot(core);
}

struct expiry {
    uint64_t now;
    const struct psd_job *of;
};

static bool is_over(const struct psd_snapshot *s, const void *arg)
{
    const struct expiry *x = arg;
    return s->expires <= x->now || s->job == x->of;
}

static bool has_id(const struct psd_snapshot *s, const void *arg)
{
    return s->id == *(const uint64_t *)arg;
}

bool psd_drop_oldest_snapshot(struct psd_core *core)
{
    struct psd_snapshot *s = take_snapshot(core, is_oldest, NULL);
    if (s)
        snapshot_unref(core, s);
    return s != NULL;
}

void psd_expire_snapshots(struct psd_core *core, uint64_t now, const struct psd_job *of)
{
    struct expiry x = {now, of};
    struct psd_snapshot *s = NULL;
    while ((s = take_snapshot(core, is_over, &x)))
        snapshot_unref(core, s);
}

// ---- pin ----------------------------------------------------------------------------------------------------------

// Versions and rounds of a snapshot's blocks at this instant; the cut is held exclusively.
static void look(struct psd_snapshot *s)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < s->pieces.n; i++) {
        struct psd_block *b = psd_extent_block(&s->pieces.v[i]);
        pthread_mutex_lock(&b->lock);
        s->pinned[i] = (struct psd_pinned){.version = b->version, .round = b->round};
        pthread_mutex_unlock(&b->lock);
        if (!s->pieces.v[i].partition->round)
            continue;
        least = s->pinned[i].round < least ? s->pinned[i].round : least;
        s->last_round = s->pinned[i].round > s->last_round ? s->pinned[i].round : s->last_round;
    }
    s->round = least == UINT64_MAX ? 0 : least;
}

// Leaves out the ranges that have been changed as often as the request knows.
static void leave_out(struct psd_snapshot *s, const Paramserver__V1__ReadRequest *r)
{
    struct psd_extent *v = s->pieces.v;
    size_t kept = 0;
    for (size_t i = 0, end; i < s->pieces.n; i = end) {
        uint64_t changes = 0;
        for (end = i; end < s->pieces.n && v[end].tensor == v[i].tensor; end++)
            changes += s->pinned[end].version;
        for (size_t k = i; k < end && changes != r->tensors[v[i].tensor]->changes; k++)
            v[kept++] = v[k];
    }
    s->pieces.n = kept;
}

static void pin_pieces(struct psd_snapshot *s)
{
    s->pieces.bytes = 0;
    for (size_t i = 0; i < s->pieces.n; i++) {
        struct psd_extent *p = &s->pieces.v[i];
        s->pinned[i] = psd_pin(p);
        s->page_bytes += s->pinned[i].page->bytes;
        if (p->variable->dtype == PS_STRING)
            p->bytes = psd_strings_bytes(p, s->pinned[i].page);
        s->pieces.bytes += p->bytes;
    }
}

// What makes two requests for parts of one snapshot the same.
static uint64_t digest(const Paramserver__V1__ReadRequest *r)
{
    uint64_t h = PS_HASH_SEED;
    for (size_t i = 0; i < r->n_tensors; i++) {
        const Paramserver__V1__Tensor *t = r->tensors[i];
        const uint64_t range[] = {t->first, t->count, r->if_newer ? t->changes : 0};
        h = ps_hash(h, t->variable, strlen(t->variable) + 1);
        h = ps_hash(h, range, sizeof range);
    }
    return h;
}

// All pieces between two updates, as a snapshot that is in no list yet. NULL: no memory.
static struct psd_snapshot *pin_all(struct psd_request *t, const Paramserver__V1__ReadRequest *r,
                                    struct psd_extents *pieces)
{
    struct psd_snapshot *s = ps_try_alloc(sizeof *s);
    if (!s || !(s->pinned = ps_try_alloc_array(pieces->n, sizeof *s->pinned))) {
        free(s);
        ps_no_memory(&t->error, "a snapshot");
        return NULL;
    }
    s->pieces = *pieces;
    *pieces = (struct psd_extents){0};
    s->request = digest(r);
    pthread_rwlock_wrlock(&t->job->cut);
    look(s);
    if (r->if_newer)
        leave_out(s, r);
    pin_pieces(s);
    pthread_rwlock_unlock(&t->job->cut);
    pthread_mutex_lock(&t->core->table);
    t->job->refs++;
    pthread_mutex_unlock(&t->core->table);
    s->job = t->job;
    s->refs = 1;
    pthread_mutex_lock(&t->core->snapshot_lock);
    t->core->pinned += s->page_bytes;
    pthread_mutex_unlock(&t->core->snapshot_lock);
    while (s->id == 0)
        s->id = t->core->world.random(t->core->world.ctx);
    return s;
}

// ---- the part that one message has --------------------------------------------------------------------------------

struct part {
    size_t from, n;        // pieces
    uint64_t next_offset;  // 0: they are the last
};

// Pieces from `offset` bytes on, as many as fit one message with their headers: many gRPC clients take no more than
// 4 MiB unless told to. At least one (a block is smaller than a message).
static enum ps_code find_part(const struct psd_extents *pieces, uint64_t offset, struct part *part, struct ps_error *e)
{
    uint64_t at = 0, bytes = PSD_REPLY_BYTES;
    size_t i = 0;
    while (i < pieces->n && at < offset)
        at += pieces->v[i++].bytes;
    if (at != offset || (i == pieces->n && offset))
        return ps_fail(e, PS_OUT_OF_RANGE,
                       "offset %" PRIu64 " of %" PRIu64 " bytes: expected a next_offset of an earlier reply", offset,
                       pieces->bytes);
    *part = (struct part){.from = i};
    for (; i < pieces->n; i++) {
        bytes += PSD_TENSOR_BYTES + strlen(pieces->v[i].variable->name) + pieces->v[i].bytes;
        if (bytes > PS_CHUNK_MAX && part->n)
            break;
        at += pieces->v[i].bytes;
        part->n++;
    }
    part->next_offset = i == pieces->n ? 0 : at;
    return PS_OK;
}

// ---- the two methods ----------------------------------------------------------------------------------------------

static enum ps_code check_declared(struct psd_request *t)
{
    if (!atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "job '%s' is not declared on ps task %" PRIu32 " yet",
                       t->job->name, t->core->config.task);
    return PS_OK;
}

static enum ps_code locate(struct psd_request *t, const Paramserver__V1__ReadRequest *r, struct psd_extents *pieces)
{
    return psd_job_locate(t->job, r->tensors, r->n_tensors, PSD_READ, 0, pieces, &t->error);
}

static struct psd_snapshot *take_fresh_snapshot(struct psd_request *t, const Paramserver__V1__ReadRequest *r)
{
    struct psd_extents pieces = {0};
    struct psd_snapshot *s = locate(t, r, &pieces) == PS_OK ? pin_all(t, r, &pieces) : NULL;
    psd_extents_free(&pieces);
    return s;
}

// The snapshot that a Get goes on reading, with a reference; NULL: see the turn's error.
static struct psd_snapshot *go_on_with_snapshot(struct psd_request *t, const Paramserver__V1__ReadRequest *r)
{
    struct psd_snapshot *s = find_snapshot(t->core, r->snapshot);
    if (!s)
        ps_fail(&t->error, PS_ABORTED,
                "snapshot %016" PRIx64 " is gone (60 s without a request, or its memory was needed): start again",
                r->snapshot);
    else if (s->job != t->job || s->request != digest(r)) {
        snapshot_unref(t->core, s);
        s = NULL;
        ps_fail(&t->error, PS_INVALID_ARGUMENT, "snapshot %016" PRIx64 " was taken for other ranges", r->snapshot);
    }
    return s;
}

// Strings of one range come in one piece of the message: the runs in it.
static void add_pinned(struct psd_reply *d, const struct psd_snapshot *s, const struct part *part)
{
    const struct psd_extent *v = s->pieces.v;
    for (size_t i = part->from, end; i < part->from + part->n; i = end) {
        for (end = i; end < part->from + part->n && v[end].tensor == v[i].tensor; end++)
            ps_owner_ref(&s->pinned[end].page->owner);
        psd_reply_add(d, &v[i], &s->pinned[i], end - i);
    }
}

static int get_from(struct psd_request *t, const Paramserver__V1__ReadRequest *r, struct psd_snapshot *s)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    struct psd_reply draft;
    struct part part;
    if (find_part(&s->pieces, r->offset, &part, &t->error) ||
        psd_reply_init(&draft, 0, s->pieces.v + part.from, part.n, &t->error))
        return (int)t->error.code;
    out.generation = t->core->generation;
    out.next_offset = part.next_offset;
    out.snapshot = r->snapshot || out.next_offset ? s->id : 0;
    out.round = s->round;
    out.last_round = s->last_round;
    if (out.snapshot && !r->snapshot)
        keep_snapshot(t->core, s);
    add_pinned(&draft, s, &part);
    out.tensors = draft.tensors;
    out.n_tensors = draft.n_tensors;
    return psd_reply_send(&draft, t, &out.base);
}

static int release(struct psd_request *t, const Paramserver__V1__ReadRequest *r)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    struct psd_snapshot *s = take_snapshot(t->core, has_id, &r->snapshot);
    if (s)
        snapshot_unref(t->core, s);
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}

int psd_get(struct psd_request *t)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)t->request;
    if (r->release)
        return release(t, r);
    if (check_declared(t))
        return (int)t->error.code;
    struct psd_snapshot *s = r->snapshot ? go_on_with_snapshot(t, r) : take_fresh_snapshot(t, r);
    if (!s)
        return (int)t->error.code;
    int code = get_from(t, r, s);
    snapshot_unref(t->core, s);
    return code;
}

static int pull_from(struct psd_request *t, const Paramserver__V1__ReadRequest *r, const struct psd_extents *pieces,
                     uint64_t closed)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    struct psd_reply draft;
    struct part part;
    if (find_part(pieces, r->offset, &part, &t->error) ||
        psd_reply_init(&draft, 0, pieces->v + part.from, part.n, &t->error))
        return (int)t->error.code;
    psd_reply_add_values(&draft, t->job, pieces->v + part.from, part.n);
    out.generation = t->core->generation;
    out.next_offset = part.next_offset;
    out.round = closed;
    out.tensors = draft.tensors;
    out.n_tensors = draft.n_tensors;
    return psd_reply_send(&draft, t, &out.base);
}

// A worker's read is of numbers that are trained, block by block; what strings take is known only once they are pinned.
static enum ps_code check_no_strings(const struct psd_extents *pieces, struct ps_error *e)
{
    for (size_t i = 0; i < pieces->n; i++)
        if (pieces->v[i].variable->dtype == PS_STRING)
            return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is string: it is read by Get, not Pull",
                           pieces->v[i].variable->name);
    return PS_OK;
}

int psd_pull(struct psd_request *t)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)t->request;
    struct psd_extents pieces = {0};
    uint64_t closed;
    int code = (int)check_declared(t);
    if (code == PS_OK)
        code = (int)locate(t, r, &pieces);
    if (code == PS_OK)
        code = (int)check_no_strings(&pieces, &t->error);
    if (code == PS_OK)
        code = psd_wait_for_round(t, &pieces, r->round, &closed);
    if (code == PS_OK)
        code = pull_from(t, r, &pieces, closed);
    psd_extents_free(&pieces);
    return code;
}
