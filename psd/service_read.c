// SPDX-License-Identifier: Apache-2.0
//
// Get and Pull: locate the blocks -> wait (a Pull for its round) -> pin -> send the pinned pages' own memory.
//
// A Pull pins block by block, one message at a time. A Get pins everything it asks for in one instant,
// between two updates; what does not fit the first message stays pinned as a snapshot until it is released,
// its time is over, or the pool needs the room.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "psd/service.h"

#define SNAPSHOT_TTL (60 * PS_SECOND)

// Snapshots that are kept at once: as many as a job may have workers. Readers that never finish would keep more.
enum { MAX_SNAPSHOTS = 4096 };

// A piece that has been pinned: what to send does not need the block any more.
struct pinned {
    char *name;  // of the variable; lives as long as the job, which the snapshot references
    int dtype;
    uint64_t first;
    uint32_t offset, count;
    uint64_t version;
    struct psd_page *page;
};

struct psd_snapshot {
    uint64_t id;
    struct psd_job *job;
    struct pinned *pieces;
    size_t n;
    uint64_t bytes, page_bytes;
    uint64_t expires;  // this and the rest: guarded by the core's snapshot lock
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
    for (size_t i = 0; i < s->n; i++)
        psd_page_unref(s->pieces[i].page);
    free(s->pieces);
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
        s->expires = core->world.now(core->world.ctx) + SNAPSHOT_TTL;
    }
    pthread_mutex_unlock(&core->snapshot_lock);
    return s;
}

static bool is_oldest(const struct psd_snapshot *s, const void *arg)
{
    (void)arg;
    return s != NULL;
}

// Adds a snapshot to the list, which takes a reference of its own. Where there are too many, the oldest is given up.
static void keep_snapshot(struct psd_core *core, struct psd_snapshot *s)
{
    s->expires = core->world.now(core->world.ctx) + SNAPSHOT_TTL;
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

static struct pinned pin(const struct psd_piece *p)
{
    struct psd_block *b = psd_piece_block(p);
    pthread_mutex_lock(&b->lock);
    struct pinned out = {p->variable->name, p->variable->dtype, p->first,        p->offset,
                         p->count,          b->version,         psd_block_pin(b)};
    pthread_mutex_unlock(&b->lock);
    return out;
}

// All pieces between two updates, as a snapshot that is in no list yet.
static struct psd_snapshot *pin_all(struct psd_turn *t, const struct psd_pieces *pieces)
{
    struct psd_snapshot *s = ps_alloc(sizeof *s);
    s->pieces = ps_alloc(pieces->n * sizeof *s->pieces);
    s->bytes = pieces->bytes;
    pthread_rwlock_wrlock(&t->job->cut);
    for (; s->n < pieces->n; s->n++) {
        s->pieces[s->n] = pin(&pieces->v[s->n]);
        s->page_bytes += s->pieces[s->n].page->bytes;
    }
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

// ---- send ---------------------------------------------------------------------------------------------------------

// Adjacent pieces of one variable become one tensor of the reply, which has room for one per piece.
static void add_tensor(Paramserver__V1__ReadReply *out, const struct pinned *p)
{
    Paramserver__V1__Tensor *last = out->n_tensors ? out->tensors[out->n_tensors - 1] : NULL;
    if (last && last->variable == p->name && last->first + last->count == p->first) {
        last->count += p->count;
        last->version = p->version < last->version ? p->version : last->version;
        return;
    }
    Paramserver__V1__Tensor *tensor = ps_alloc(sizeof *tensor);
    paramserver__v1__tensor__init(tensor);
    tensor->variable = p->name;
    tensor->dtype = (Paramserver__V1__DType)p->dtype;
    tensor->first = p->first;
    tensor->count = p->count;
    tensor->version = p->version;
    out->tensors[out->n_tensors++] = tensor;
}

static void add_payload(struct ps_rope *payload, const struct pinned *p)
{
    size_t size = ps_dtype_size(p->dtype);
    ps_owner_ref(&p->page->owner);
    ps_rope_add(payload, (struct ps_slice){p->page->data + p->offset * size, p->count * size, &p->page->owner});
}

// Bytes of a reply's own fields and of a tensor's besides its name, at most.
enum { REPLY_OVERHEAD = 128, TENSOR_OVERHEAD = 64 };

// How many pieces from `from` on fit one message, with their headers: many gRPC clients take no more than 4 MiB unless
// told to. At least one (a block is smaller than a message).
static size_t fit(const struct psd_piece *v, size_t from, size_t n)
{
    size_t bytes = REPLY_OVERHEAD, i = from;
    while (i < n) {
        bytes += TENSOR_OVERHEAD + strlen(v[i].variable->name);
        bytes += v[i].count * ps_dtype_size(v[i].variable->dtype);
        if (bytes > PS_CHUNK_MAX && i > from)
            break;
        i++;
    }
    return i - from;
}

static int send_pieces(struct psd_turn *t, const struct pinned *pieces, size_t n, Paramserver__V1__ReadReply *out)
{
    struct ps_rope payload = PS_ROPE_EMPTY;
    out->tensors = ps_alloc(n * sizeof *out->tensors);
    for (size_t i = 0; i < n; i++) {
        add_tensor(out, &pieces[i]);
        add_payload(&payload, &pieces[i]);
    }
    atomic_fetch_add(&t->job->bytes_moved, payload.len);
    out->generation = t->core->generation;
    psd_turn_reply(t, &out->base, &payload);
    for (size_t i = 0; i < out->n_tensors; i++)
        free(out->tensors[i]);
    free(out->tensors);
    return PS_OK;
}

// ---- the two methods ----------------------------------------------------------------------------------------------

static enum ps_code locate(struct psd_turn *t, const Paramserver__V1__ReadRequest *r, struct psd_pieces *pieces)
{
    if (!atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "job '%s' is not declared on ps task %" PRIu32 " yet",
                       t->job->name, t->core->config.task);
    if (r->n_tensors == 0)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "the request names no tensor");
    for (size_t i = 0; i < r->n_tensors; i++)
        if (psd_job_locate(t->job, r->tensors[i], false, pieces, &t->error))
            return t->error.code;
        else if (pieces->bytes > t->job->bytes + PS_CHUNK_MAX)
            return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                           "the request asks for the same elements again and again: job '%s' has %" PRIu64
                           " bytes here",
                           t->job->name, t->job->bytes);
    return PS_OK;
}

// The piece at which `offset` bytes have been sent.
static enum ps_code seek(struct psd_turn *t, const struct psd_pieces *pieces, uint64_t offset, size_t *at)
{
    uint64_t bytes = 0;
    for (*at = 0; *at < pieces->n && bytes < offset; ++*at)
        bytes += pieces->v[*at].count * ps_dtype_size(pieces->v[*at].variable->dtype);
    if (bytes != offset || *at == pieces->n)
        return ps_fail(&t->error, PS_OUT_OF_RANGE,
                       "offset %" PRIu64 " of %" PRIu64 " bytes: expected a next_offset of an earlier reply", offset,
                       pieces->bytes);
    return PS_OK;
}

static uint64_t next_offset(const struct psd_pieces *pieces, size_t from, size_t n, uint64_t offset)
{
    for (size_t i = from; i < from + n; i++)
        offset += pieces->v[i].count * ps_dtype_size(pieces->v[i].variable->dtype);
    return offset == pieces->bytes ? 0 : offset;
}

// The snapshot a Get goes on reading, or a fresh one.
static enum ps_code snapshot_for(struct psd_turn *t, const Paramserver__V1__ReadRequest *r,
                                 const struct psd_pieces *pieces, struct psd_snapshot **out)
{
    struct psd_snapshot *s = r->snapshot ? find_snapshot(t->core, r->snapshot) : pin_all(t, pieces);
    if (!s)
        return ps_fail(&t->error, PS_ABORTED,
                       "snapshot %016" PRIx64
                       " is gone (60 s without a request, or its memory was needed): start again",
                       r->snapshot);
    if (s->n != pieces->n || s->bytes != pieces->bytes || s->job != t->job) {
        snapshot_unref(t->core, s);
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "snapshot %016" PRIx64 " was taken for other ranges",
                       r->snapshot);
    }
    *out = s;
    return PS_OK;
}

static int get_from(struct psd_turn *t, const Paramserver__V1__ReadRequest *r, const struct psd_pieces *pieces)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    struct psd_snapshot *s = NULL;
    size_t at;
    if (seek(t, pieces, r->offset, &at) || snapshot_for(t, r, pieces, &s))
        return (int)t->error.code;
    size_t n = fit(pieces->v, at, pieces->n);
    out.next_offset = next_offset(pieces, at, n, r->offset);
    out.snapshot = r->snapshot || out.next_offset ? s->id : 0;
    if (out.snapshot && !r->snapshot)
        keep_snapshot(t->core, s);
    int code = send_pieces(t, s->pieces + at, n, &out);
    snapshot_unref(t->core, s);
    return code;
}

int psd_get(struct psd_turn *t)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)t->request;
    struct psd_pieces pieces = {0};
    if (r->release) {
        Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
        struct psd_snapshot *s = take_snapshot(t->core, has_id, &r->snapshot);
        if (s)
            snapshot_unref(t->core, s);
        out.generation = t->core->generation;
        return psd_turn_reply(t, &out.base, NULL);
    }
    int code = (int)locate(t, r, &pieces);
    if (code == PS_OK)
        code = get_from(t, r, &pieces);
    psd_pieces_free(&pieces);
    return code;
}

// The first round that is not closed yet takes the call; *closed gets the least round of those that are.
static int wait_for_round(struct psd_turn *t, const struct psd_pieces *pieces, uint64_t wanted, uint64_t *closed)
{
    struct psd_round *last = NULL;
    *closed = UINT64_MAX;
    for (size_t i = 0; i < pieces->n; i++) {
        struct psd_round *round = pieces->v[i].partition->round;
        int code = PS_OK;
        if (!round || round == last)
            continue;
        last = round;
        pthread_mutex_lock(&round->lock);
        if (round->closed < wanted)
            code = psd_park(t, &round->waiting);
        else if (round->closed < *closed)
            *closed = round->closed;
        pthread_mutex_unlock(&round->lock);
        if (code != PS_OK)
            return code;
    }
    if (*closed == UINT64_MAX)
        *closed = 0;
    return PS_OK;
}

static int pull_from(struct psd_turn *t, const Paramserver__V1__ReadRequest *r, const struct psd_pieces *pieces,
                     uint64_t closed)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    size_t at;
    if (seek(t, pieces, r->offset, &at))
        return (int)t->error.code;
    size_t n = fit(pieces->v, at, pieces->n);
    struct pinned *pinned = ps_alloc(n * sizeof *pinned);
    for (size_t i = 0; i < n; i++)
        pinned[i] = pin(&pieces->v[at + i]);
    out.next_offset = next_offset(pieces, at, n, r->offset);
    out.round = closed;
    send_pieces(t, pinned, n, &out);
    for (size_t i = 0; i < n; i++)
        psd_page_unref(pinned[i].page);
    free(pinned);
    return PS_OK;
}

int psd_pull(struct psd_turn *t)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)t->request;
    struct psd_pieces pieces = {0};
    uint64_t closed;
    int code = (int)locate(t, r, &pieces);
    if (code == PS_OK)
        code = wait_for_round(t, &pieces, r->round, &closed);
    if (code == PS_OK)
        code = pull_from(t, r, &pieces, closed);
    psd_pieces_free(&pieces);
    return code;
}
