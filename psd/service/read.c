// SPDX-License-Identifier: Apache-2.0
//
// Get and Pull: locate the blocks -> wait (a Pull for its round) -> pin -> send the pinned pages' own memory.
//
// A Pull pins what goes into one message, between two atomic updates. A Get pins everything it asks for in one instant,
// between two updates; what does not fit the first message stays pinned as a snapshot until it is released,
// its time is over (soon after its last part was sent), or the pool needs the room.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/sometimes.h"
#include "psd/service/reply.h"

// ---- snapshots ----------------------------------------------------------------------------------------------------

// What makes two requests for parts of one snapshot the same.
static uint64_t read_request_digest(const Paramserver__V1__ReadRequest *r)
{
    uint64_t h = PS_HASH_SEED;
    for (size_t i = 0; i < r->n_tensors; i++) {
        const Paramserver__V1__Tensor *t = r->tensors[i];
        const uint64_t range[] = {t->partition, t->slot, t->first, t->count, r->if_newer ? t->changes : 0};
        h = ps_hash(h, t->variable, strlen(t->variable) + 1);
        h = ps_hash(h, range, sizeof range);
    }
    return h;
}

static bool has_changed(void *arg, uint32_t tensor, uint64_t changes)
{
    const Paramserver__V1__ReadRequest *r = arg;
    return changes != r->tensors[tensor]->changes;
}

// All extents between two updates, as a snapshot that is in no list yet. NULL: no memory.
static struct psd_snapshot *pin_all(struct psd_request *t, Paramserver__V1__ReadRequest *r, struct psd_extents *extents)
{
    const struct psd_known known = {has_changed, r};
    uint64_t id = 0;
    while (id == 0)
        id = t->core->world.random(t->core->world.ctx);
    psd_job_ref(t->job);
    struct psd_snapshot *s = psd_snapshot_take(&t->core->snapshots, t->job, extents, r->if_newer ? &known : NULL, id);
    if (!s) {
        psd_job_unref(t->job);
        ps_no_memory(&t->error, "a snapshot");
        return NULL;
    }
    s->request = read_request_digest(r);
    return s;
}

// ---- the part that one message has --------------------------------------------------------------------------------

struct part {
    size_t from, n;        // extents
    uint64_t next_offset;  // 0: they are the last
};

// Extents from number i on, which begins at `offset` bytes, as many as fit one message with their headers: many gRPC
// clients take no more than 4 MiB unless told to. At least one (a block is smaller than a message).
static struct part find_part(const struct psd_extents *extents, size_t i, uint64_t offset)
{
    struct part part = {.from = i};
    uint64_t at = offset, bytes = PSD_REPLY_BYTES;
    for (; i < extents->n; i++) {
        bytes += PSD_TENSOR_BYTES + strlen(extents->v[i].variable->name) + extents->v[i].bytes;
        if (bytes > PS_CHUNK_MAX && part.n)
            break;
        at += extents->v[i].bytes;
        part.n++;
    }
    part.next_offset = i == extents->n ? 0 : at;
    return part;
}

static enum ps_code fail_offset(uint64_t offset, const struct psd_extents *extents, struct ps_error *e)
{
    return ps_fail(e, PS_OUT_OF_RANGE,
                   "offset %" PRIu64 " of %" PRIu64 " bytes: expected a next_offset of an earlier reply", offset,
                   extents->bytes);
}

// ---- Get ----------------------------------------------------------------------------------------------------------

// A partition's index says nothing without a run: another one may have been declared differently.
static enum ps_code read_check_names(struct psd_request *t, const Paramserver__V1__ReadRequest *r)
{
    for (size_t i = 0; !t->caller->run && i < r->n_tensors; i++)
        if (r->tensors[i]->partition)
            return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                           "the request names partition %" PRIu32 " of job '%s', and no run of it: expected both",
                           r->tensors[i]->partition - 1, t->job->name);
    return PS_OK;
}

static enum ps_code read_locate(struct psd_request *t, const Paramserver__V1__ReadRequest *r,
                                struct psd_extents *extents)
{
    if (read_check_names(t, r))
        return t->error.code;
    return psd_job_locate(t->job, r->tensors, r->n_tensors, PSD_READ, 0, extents, &t->error);
}

static struct psd_snapshot *take_fresh_snapshot(struct psd_request *t, Paramserver__V1__ReadRequest *r)
{
    struct psd_extents extents = {0};
    struct psd_snapshot *s = read_locate(t, r, &extents) == PS_OK ? pin_all(t, r, &extents) : NULL;
    psd_extents_free(&extents);
    return s;
}

// The snapshot that a Get goes on reading, with a reference; NULL: see the request's error.
static struct psd_snapshot *go_on_with_snapshot(struct psd_request *t, const Paramserver__V1__ReadRequest *r)
{
    struct psd_snapshot *s = psd_snapshot_find(&t->core->snapshots, r->snapshot, psd_now(t->core));
    if (!s) {
        ps_sometimes(PS_SOMETIMES_PIN_REVOKED);
        ps_fail(&t->error, PS_ABORTED,
                "snapshot %016" PRIx64
                " is gone (read to its end, %d s without a request, or its memory was needed): start again",
                r->snapshot, PSD_SNAPSHOT_S);
    } else if (s->job != t->job || s->request != read_request_digest(r)) {
        psd_snapshot_unref(&t->core->snapshots, s);
        s = NULL;
        ps_fail(&t->error, PS_INVALID_ARGUMENT, "snapshot %016" PRIx64 " was taken for other ranges", r->snapshot);
    }
    return s;
}

// Strings of one range come in one piece of the message: the runs in it.
static void add_pinned(struct psd_reply *d, const struct psd_snapshot *s, const struct part *part)
{
    const struct psd_extent *v = s->extents.v;
    for (size_t i = part->from, end; i < part->from + part->n; i = end) {
        for (end = i; end < part->from + part->n && v[end].tensor == v[i].tensor; end++) {
            psd_block_fill_held(psd_extent_block(&v[end]), s->pinned[end].page);
            ps_owner_ref(&s->pinned[end].page->owner);
        }
        psd_reply_add(d, &v[i], &s->pinned[i], end - i);
    }
}

static int get_from(struct psd_request *t, const Paramserver__V1__ReadRequest *r, struct psd_snapshot *s)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    struct psd_reply builder;
    size_t from = psd_snapshot_seek(s, r->offset);
    if (from == SIZE_MAX)
        return (int)fail_offset(r->offset, &s->extents, &t->error);
    struct part part = find_part(&s->extents, from, r->offset);
    if (psd_reply_init(&builder, 0, s->extents.v + part.from, part.n, &t->error))
        return (int)t->error.code;
    out.generation = t->core->generation;
    out.next_offset = part.next_offset;
    out.snapshot = r->snapshot || out.next_offset ? s->id : 0;
    out.round = s->round;
    out.last_round = s->last_round;
    if (out.snapshot && !r->snapshot)
        psd_snapshot_keep(&t->core->snapshots, s, psd_now(t->core));
    if (!out.next_offset)
        psd_snapshot_sent(&t->core->snapshots, s, psd_now(t->core));
    add_pinned(&builder, s, &part);
    out.tensors = builder.tensors;
    out.n_tensors = builder.n_tensors;
    return psd_reply_send(&builder, t, &out.base);
}

static int read_release_snapshot(struct psd_request *t, const Paramserver__V1__ReadRequest *r)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    psd_snapshot_release(&t->core->snapshots, r->snapshot);
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}

int psd_get(struct psd_request *t)
{
    Paramserver__V1__ReadRequest *r = (Paramserver__V1__ReadRequest *)t->request;
    if (r->release)
        return read_release_snapshot(t, r);
    if (psd_request_check_declared(t))
        return (int)t->error.code;
    if (r->averages)
        return (int)ps_fail(&t->error, PS_INVALID_ARGUMENT, "Get of averages: expected a Pull");
    if (r->shard && (r->snapshot || r->if_newer))
        return (int)ps_fail(&t->error, PS_INVALID_ARGUMENT, "a shard is of a snapshot of its own, and of all of it");
    struct psd_snapshot *s = r->snapshot ? go_on_with_snapshot(t, r) : take_fresh_snapshot(t, r);
    if (!s)
        return (int)t->error.code;
    if (r->shard)
        return psd_write_shard(t, r, s);
    int code = get_from(t, r, s);
    psd_snapshot_unref(&t->core->snapshots, s);
    return code;
}

// ---- Pull ---------------------------------------------------------------------------------------------------------

// What a Pull that waits for a round goes on with.
struct pull {
    struct psd_extents extents;
    size_t at;  // the extent whose round it waits for
};

static int pull_from(struct psd_request *t, const Paramserver__V1__ReadRequest *r, const struct psd_extents *extents)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    struct psd_reply builder;
    size_t from = 0;
    uint64_t at = 0;
    while (from < extents->n && at < r->offset)
        at += extents->v[from++].bytes;
    if (at != r->offset || (from == extents->n && r->offset))
        return (int)fail_offset(r->offset, extents, &t->error);
    struct part part = find_part(extents, from, r->offset);
    if (psd_reply_init(&builder, 0, extents->v + part.from, part.n, &t->error))
        return (int)t->error.code;
    psd_reply_add_values(&builder, t->job, extents->v + part.from, part.n, r->averages);
    out.generation = t->core->generation;
    out.next_offset = part.next_offset;
    out.round = psd_sync_least_closed(extents);
    out.tensors = builder.tensors;
    out.n_tensors = builder.n_tensors;
    return psd_reply_send(&builder, t, &out.base);
}

// A worker's read is of numbers that are trained, block by block; what strings take is known only once they are pinned.
// Slots are of no use without the values of the same instant.
static enum ps_code pull_check(const struct psd_extents *extents, struct ps_error *e)
{
    for (size_t i = 0; i < extents->n; i++)
        if (extents->v[i].variable->dtype == PS_STRING || extents->v[i].slot)
            return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s'%s: it is read by Get, not Pull",
                           extents->v[i].variable->name, extents->v[i].slot ? ", a slot" : " is string");
    return PS_OK;
}

static void pull_free(void *state)
{
    struct pull *p = state;
    psd_extents_free(&p->extents);
    free(p);
}

static int pull_resume(struct psd_request *t)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)t->request;
    struct pull *p = t->call->state;
    int code = psd_wait_for_round(t, &p->extents, r->round, &p->at);
    return code == PS_OK ? pull_from(t, r, &p->extents) : code;
}

// Takes over the extents.
static int pull_wait(struct psd_request *t, struct psd_extents *extents)
{
    struct pull *p = ps_try_alloc(sizeof *p);
    if (!p)
        return ps_no_memory(&t->error, "a pull");
    p->extents = *extents;
    *extents = (struct psd_extents){0};
    psd_request_wait_with(t, pull_resume, p, pull_free);
    return pull_resume(t);
}

int psd_pull(struct psd_request *t)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)t->request;
    struct psd_extents extents = {0};
    int code = (int)psd_request_check_declared(t);
    if (code == PS_OK)
        code = (int)read_locate(t, r, &extents);
    if (code == PS_OK)
        code = (int)pull_check(&extents, &t->error);
    if (code == PS_OK)
        code = r->round ? pull_wait(t, &extents) : pull_from(t, r, &extents);
    psd_extents_free(&extents);
    return code;
}
