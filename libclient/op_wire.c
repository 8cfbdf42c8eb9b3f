// SPDX-License-Identifier: Apache-2.0
// A request's message is packed when it is sent; a reply is checked against what was asked, and its bytes are copied
// once, to where the caller wants them.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/dtype.h"
#include "common/wire/wire.h"
#include "libclient/op.h"

// ---- requests -----------------------------------------------------------------------------------------------------

// Field numbers.
enum { REQUEST_CALLER = 1, REQUEST_TENSORS = 2, REQUEST_ROUND = 3 };
enum { UPDATE_EXAMPLES = 4, UPDATE_REFUSE_NONFINITE, UPDATE_ATOMIC_BYTES, UPDATE_STEPS = 8 };
enum { READ_OFFSET = 4, READ_SNAPSHOT, READ_IF_NEWER = 7, READ_AVERAGES, READ_SHARD };

// A range of a partition; of the whole partition, 0 and 0.
static struct ps_tensor_head wire_tensor(const struct psc_op *op, const struct psc__op_request *r,
                                         const struct psc__extent *extent)
{
    const struct psc__partition *p = &op->layout->partitions[extent->partition];
    struct ps_tensor_head t = {.partition = extent->partition + 1, .slot = extent->slot};
    if (extent->count != p->count) {
        t.first = extent->first;
        t.count = extent->count;
    }
    if (op->seen)
        t.changes = op->seen->changes[extent->partition];
    if (r->is.mutates)
        t.version = extent->version;
    if (r->is.mutates && extent->is_strings)
        t.bytes = extent->bytes;
    if (extent->encoded)
        t.dtype = op->encoding;
    return t;
}

static size_t wire_tensor_size(const struct ps_tensor_head *t)
{
    return ps_uint_size(t->dtype) + ps_uint_size(t->first) + ps_uint_size(t->count) + ps_uint_size(t->version) +
           ps_uint_size(t->changes) + ps_uint_size(t->bytes) + ps_uint_size(t->partition) + ps_uint_size(t->slot);
}

static uint8_t *wire_put_tensor(uint8_t *to, const struct ps_tensor_head *t)
{
    to = ps_put_length(to, REQUEST_TENSORS, wire_tensor_size(t));
    to = ps_put_uint(to, PS_TENSOR_DTYPE, t->dtype);
    to = ps_put_uint(to, PS_TENSOR_FIRST, t->first);
    to = ps_put_uint(to, PS_TENSOR_COUNT, t->count);
    to = ps_put_uint(to, PS_TENSOR_VERSION, t->version);
    to = ps_put_uint(to, PS_TENSOR_CHANGES, t->changes);
    to = ps_put_uint(to, PS_TENSOR_BYTES, t->bytes);
    to = ps_put_uint(to, PS_TENSOR_PARTITION, t->partition);
    return ps_put_uint(to, PS_TENSOR_SLOT, t->slot);
}

static size_t wire_tensors_size(const struct psc_op *op, const struct psc__op_request *r)
{
    size_t size = 0;
    for (uint32_t i = r->first_extent; i != PSC__NO_EXTENT; i = op->extents[i].next) {
        struct ps_tensor_head t = wire_tensor(op, r, &op->extents[i]);
        size_t tensor = wire_tensor_size(&t);
        size += ps_length_size(tensor) + tensor;
    }
    return size;
}

// Field numbers of Caller.
enum { CALLER_SEQUENCE = 5, CALLER_OLDEST };

// In a session a read's is empty, an update's says where it stands among the client's.
struct wire_caller {
    Paramserver__V1__Caller full;  // where there is no session
    uint64_t sequence, oldest;
    size_t size;
};

static struct wire_caller wire_caller(const struct psc_op *op, struct psc__task *task)
{
    struct wire_caller c = {.sequence = op->ticket.sequence};
    if (!psc__has_sessions(op->client)) {
        psc__caller_init(&c.full, task, c.sequence);
        c.size = paramserver__v1__caller__get_packed_size(&c.full);
        return c;
    }
    if (op->ticket.mutates)
        c.oldest = op->client->window.oldest;
    c.size = ps_uint_size(c.sequence) + ps_uint_size(c.oldest);
    return c;
}

static uint8_t *wire_put_caller(uint8_t *to, const struct psc_op *op, const struct wire_caller *c)
{
    to = ps_put_length(to, REQUEST_CALLER, c->size);
    if (!psc__has_sessions(op->client))
        return to + paramserver__v1__caller__pack(&c->full, to);
    to = ps_put_uint(to, CALLER_SEQUENCE, c->sequence);
    return ps_put_uint(to, CALLER_OLDEST, c->oldest);
}

// Caller and tensors, the beginning of both requests, of *size bytes; room for `more` after them. NULL: no memory.
static uint8_t *wire_begin(const struct psc_op *op, const struct psc__op_request *r, size_t more, struct ps_slice *s)
{
    const struct wire_caller caller = wire_caller(op, r->is.queue->task);
    uint8_t *to;
    *s = ps_slice_new(ps_length_size(caller.size) + caller.size + wire_tensors_size(op, r) + more, &to);
    if (!to)
        return NULL;
    to = wire_put_caller(to, op, &caller);
    for (uint32_t i = r->first_extent; i != PSC__NO_EXTENT; i = op->extents[i].next) {
        struct ps_tensor_head t = wire_tensor(op, r, &op->extents[i]);
        to = wire_put_tensor(to, &t);
    }
    return to;
}

static bool wire_pack_update(struct psc_op *op, const struct psc__op_request *r, struct ps_slice *s)
{
    uint64_t atomic = op->atomic ? op->per_task[r->per_task].bytes : 0;
    size_t more = ps_uint_size(op->round) + ps_uint_size(op->examples) + ps_uint_size(op->refuse_nonfinite) +
                  ps_uint_size(atomic) + ps_uint_size(op->steps) + (r->is.bytes ? ps_length_size(r->is.bytes) : 0);
    uint8_t *to = wire_begin(op, r, more, s);
    if (!to)
        return false;
    to = ps_put_uint(to, REQUEST_ROUND, op->round);
    to = ps_put_uint(to, UPDATE_EXAMPLES, op->examples);
    to = ps_put_uint(to, UPDATE_REFUSE_NONFINITE, op->refuse_nonfinite);
    to = ps_put_uint(to, UPDATE_ATOMIC_BYTES, atomic);
    to = ps_put_uint(to, UPDATE_STEPS, op->steps);
    if (r->is.bytes)
        ps_put_length(to, PS_PAYLOAD_FIELD, r->is.bytes);
    return true;
}

static Paramserver__V1__Shard wire_shard(const struct psc_op *op)
{
    Paramserver__V1__Shard shard = PARAMSERVER__V1__SHARD__INIT;
    if (!op->shards)
        return shard;
    shard.name = (char *)op->shards->name;
    shard.checkpoint = op->shards->checkpoint;
    shard.alone = op->shards->alone;
    return shard;
}

static bool wire_pack_read(const struct psc_op *op, const struct psc__op_request *r, struct ps_slice *s)
{
    bool newer = op->seen != NULL;
    const Paramserver__V1__Shard shard = wire_shard(op);
    const size_t shard_bytes = paramserver__v1__shard__get_packed_size(&shard);
    size_t more = ps_uint_size(op->round) + ps_uint_size(r->offset) + ps_uint_size(r->snapshot) + ps_uint_size(newer) +
                  ps_uint_size(op->averages) + (op->shards ? ps_length_size(shard_bytes) + shard_bytes : 0);
    uint8_t *to = wire_begin(op, r, more, s);
    if (!to)
        return false;
    to = ps_put_uint(to, REQUEST_ROUND, op->round);
    to = ps_put_uint(to, READ_OFFSET, r->offset);
    to = ps_put_uint(to, READ_SNAPSHOT, r->snapshot);
    to = ps_put_uint(to, READ_IF_NEWER, newer);
    to = ps_put_uint(to, READ_AVERAGES, op->averages);
    if (op->shards)
        paramserver__v1__shard__pack(&shard, ps_put_length(to, READ_SHARD, shard_bytes));
    return true;
}

void psc__op_pack(struct psc_op *op, const struct psc__op_request *r, struct ps_slices *to)
{
    struct ps_slice header;
    bool packed = r->is.mutates ? wire_pack_update(op, r, &header) : wire_pack_read(op, r, &header);
    to->broken |= !packed;
    if (packed)
        ps_slices_add(to, header);
    for (uint32_t i = r->first_extent; packed && r->is.mutates && i != PSC__NO_EXTENT; i = op->extents[i].next) {
        const struct psc__extent *extent = &op->extents[i];
        if (extent->scales) {
            ps_owner_ref(&op->memory);
            ps_slices_add(to, (struct ps_slice){extent->scales, extent->scale_bytes, &op->memory});
        }
        ps_owner_ref(&op->memory);
        ps_slices_add(to, (struct ps_slice){extent->data, extent->bytes - extent->scale_bytes, &op->memory});
    }
}

// ---- replies: their values ----------------------------------------------------------------------------------------

static void place_advance(const struct psc_op *op, struct psc__place *p, uint64_t count)
{
    p->at += count;
    if (p->at == op->extents[p->extent].count)
        *p = (struct psc__place){op->extents[p->extent].next, 0};
}

// How much of t, of which `done` elements are dealt with, lies in the range at p; 0: it is not what comes next.
// psd joins ranges that touch each other, so a tensor may go on in the next range.
static uint64_t place_part(const struct psc_op *op, const struct psc__place *p, const struct ps_tensor_head *t,
                           uint64_t done)
{
    if (p->extent == PSC__NO_EXTENT)
        return 0;
    const struct psc__extent *extent = &op->extents[p->extent];
    uint64_t left = t->count - done, room = extent->count - p->at;
    if (t->first + done != extent->first + p->at || t->partition != (uint64_t)extent->partition + 1 ||
        t->slot != extent->slot)
        return 0;
    return left < room ? left : room;
}

// What has not changed since it was seen is not there: p moves on to the range that t begins.
static void place_skip_unchanged(const struct psc_op *op, struct psc__place *p, const struct ps_tensor_head *t)
{
    while (op->seen && p->extent != PSC__NO_EXTENT && p->at == 0 && (!t || place_part(op, p, t, 0) == 0))
        p->extent = op->extents[p->extent].next;
}

// A tensor's bytes in the payload. Numbers are copied from there, strings by way of `text`.
struct source {
    const struct ps_slices *payload;
    size_t at;                             // numbers
    uint8_t *text;                         // strings: all bytes of the tensor
    const uint8_t *lengths, *bytes, *end;  // in text
};

static enum ps_code source_open(struct source *s, const struct ps_tensor_head *t, uint64_t bytes, bool strings,
                                struct ps_error *e)
{
    if (bytes > s->payload->len - s->at || (strings && bytes / PS_STRING_LENGTH < t->count))
        return ps_fail(e, PS_INTERNAL, "answered with %zu bytes, fewer than its headers speak of", s->payload->len);
    if (!strings)
        return PS_OK;
    s->text = ps_try_alloc(bytes);
    if (!s->text)
        return ps_no_memory(e, "strings");
    ps_slices_copy_out(s->payload, s->at, bytes, s->text);
    s->lengths = s->text;
    s->bytes = s->text + t->count * PS_STRING_LENGTH;
    s->end = s->text + bytes;
    return PS_OK;
}

// n elements into the range at p.
static enum ps_code source_take(struct source *s, const struct psc_op *op, const struct psc__place *p, uint64_t n,
                                struct ps_error *e)
{
    const struct psc__extent *extent = &op->extents[p->extent];
    if (extent->is_strings) {
        const uint8_t *lengths = s->lengths;
        s->lengths += n * PS_STRING_LENGTH;
        return psc__strings_take(extent->strings + p->at, n, lengths, &s->bytes, s->end, e);
    }
    uint32_t elem_size = psc__op_variable(op, extent)->elem_size;
    ps_slices_copy_out(s->payload, s->at, n * elem_size, extent->into + p->at * elem_size);
    s->at += n * elem_size;
    return PS_OK;
}

// Moves *p and *at (in the payload) past t.
static enum ps_code reply_copy_tensor(const struct psc_op *op, const struct ps_tensor_head *t, struct psc__place *p,
                                      const struct ps_slices *payload, size_t *at, struct ps_error *e)
{
    struct source s = {.payload = payload, .at = *at};
    enum ps_code code = PS_OK;
    uint64_t bytes = 0;
    place_skip_unchanged(op, p, t);
    for (uint64_t done = 0, n; code == PS_OK && (done == 0 || done < t->count); done += n) {
        n = place_part(op, p, t, done);
        if (n == 0) {  // as of a tensor of nothing
            code = ps_fail(e, PS_INTERNAL,
                           "answered with [%" PRIu64 ", +%" PRIu64 ") of partition %" PRIu64 ", out of turn", t->first,
                           t->count, t->partition - 1);
            break;
        }
        if (done == 0) {
            uint32_t elem_size = psc__op_variable(op, &op->extents[p->extent])->elem_size;
            if (__builtin_mul_overflow(t->count, elem_size, &bytes))
                bytes = UINT64_MAX;
            bytes = elem_size ? bytes : t->bytes;
            code = source_open(&s, t, bytes, elem_size == 0, e);
        }
        if (code == PS_OK)
            code = source_take(&s, op, p, n, e);
        if (code == PS_OK)
            place_advance(op, p, n);
    }
    if (code == PS_OK && s.bytes != s.end)
        code = ps_fail(e, PS_INTERNAL, "answered with %zu bytes more than the strings of partition %" PRIu64 " have",
                       (size_t)(s.end - s.bytes), t->partition - 1);
    free(s.text);
    *at += bytes;
    return code;
}

static bool place_equal(struct psc__place a, struct psc__place b)
{
    return a.extent == b.extent && a.at == b.at;
}

static enum ps_code reply_copy_payload(const struct psc_op *op, const struct psc__op_request *r, struct psc__answer *a,
                                       const struct ps_slices *payload, struct ps_error *e)
{
    struct psc__place p = r->place;
    size_t at = 0;
    for (size_t i = 0; i < a->n_tensors; i++)
        if (reply_copy_tensor(op, &a->tensors[i], &p, payload, &at, e) != PS_OK)
            return e->code;
    bool moved = !place_equal(p, r->place);
    if (a->next_offset == 0)
        place_skip_unchanged(op, &p, NULL);
    bool complete = p.extent == PSC__NO_EXTENT;
    if (at != payload->len || complete != (a->next_offset == 0) ||
        (!complete && (!moved || a->next_offset <= r->offset)))
        return ps_fail(e, PS_INTERNAL, "answered %zu of %zu bytes from %" PRIu64 " on, to be continued at %" PRIu64,
                       payload->len, r->is.bytes, r->offset, a->next_offset);
    a->place = p;
    return PS_OK;
}

// ---- replies: what they say ---------------------------------------------------------------------------------------

// The fields of a reply, by the way of their numbers.
enum reply_field { NOWHERE, GENERATION, RESULTS, TENSORS, NEXT_OFFSET, SNAPSHOT, ROUND, LAST_ROUND, VERSION };

static const struct reply_kind {
    const char *name;
    bool results, values;
    enum reply_field fields[8];  // by number
} update_kind = {"UpdateReply", true, false, {0, GENERATION, RESULTS}},
  push_pull_kind = {"PushPullReply", true, true, {0, GENERATION, RESULTS, TENSORS, ROUND}},
  read_kind = {"ReadReply", false, true, {0, GENERATION, TENSORS, NEXT_OFFSET, SNAPSHOT, ROUND, LAST_ROUND, VERSION}};

static const struct reply_kind *reply_kind_of(const struct psc_op *op)
{
    if (!op->ticket.mutates)
        return &read_kind;
    return op->method == PARAMSERVER__V1__METHOD__PUSH_PULL ? &push_pull_kind : &update_kind;
}

static enum reply_field reply_field_of(const struct reply_kind *kind, const struct ps_field *f)
{
    return f->number < sizeof kind->fields / sizeof *kind->fields ? kind->fields[f->number] : NOWHERE;
}

static uint64_t *answer_number(struct psc__answer *a, enum reply_field field)
{
    switch (field) {
    case GENERATION:
        return &a->generation;
    case NEXT_OFFSET:
        return &a->next_offset;
    case SNAPSHOT:
        return &a->snapshot;
    case ROUND:
        return &a->round;
    case LAST_ROUND:
        return &a->last_round;
    case VERSION:
        return &a->version;
    default:
        return NULL;
    }
}

// Counts results and tensors, and takes the numbers. False: malformed.
static bool answer_scan(struct psc__answer *a, const struct reply_kind *kind, struct ps_reader r)
{
    struct ps_field f;
    while (ps_read_field(&r, &f)) {
        enum reply_field field = reply_field_of(kind, &f);
        uint64_t *number = answer_number(a, field);
        if (field != NOWHERE && f.type != (number ? PS_VARINT : PS_LENGTH))
            return false;
        if (number)
            *number = f.value;
        a->n_results += field == RESULTS;
        a->n_tensors += field == TENSORS;
    }
    return r.at == r.end;
}

static bool answer_fill(struct psc__answer *a, const struct reply_kind *kind, struct ps_reader r)
{
    struct ps_field f;
    size_t results = 0, tensors = 0;
    while (ps_read_field(&r, &f)) {
        enum reply_field field = reply_field_of(kind, &f);
        if ((field == RESULTS && !ps_read_result(&f, &a->results[results++])) ||
            (field == TENSORS && !ps_read_tensor(&f, &a->tensors[tensors++])))
            return false;
    }
    return true;
}

// Room for what was counted, at most PS_DECODE_MAX bytes.
static bool answer_reserve(struct psc__answer *a)
{
    bool few_results = a->n_results <= PSC__ANSWER_FEW, few_tensors = a->n_tensors <= PSC__ANSWER_FEW;
    if (a->n_results > PS_DECODE_MAX / sizeof *a->results || a->n_tensors > PS_DECODE_MAX / sizeof *a->tensors)
        return false;
    a->results = few_results ? a->few_results : ps_try_alloc_array(a->n_results, sizeof *a->results);
    a->tensors = few_tensors ? a->few_tensors : ps_try_alloc_array(a->n_tensors, sizeof *a->tensors);
    return a->results && a->tensors;
}

// The header of a reply, in one piece. NULL: no memory.
static const uint8_t *answer_header(struct psc__answer *a, const struct ps_slices *reply, size_t len)
{
    if (len == 0 || reply->v[0].len >= len)
        return len ? reply->v[0].data : (const uint8_t *)"";
    a->copy = ps_try_alloc(len);
    if (a->copy)
        ps_slices_copy_out(reply, 0, len, a->copy);
    return a->copy;
}

static enum ps_code answer_decode(struct psc__answer *a, const struct reply_kind *kind, const struct ps_slices *reply,
                                  struct ps_slices *payload, struct ps_error *e)
{
    size_t len;
    if (reply->broken)
        return ps_no_memory(e, "an answer");
    if (ps_msg_split(kind->name, reply, &len, payload, e) != PS_OK)
        return e->code;
    const uint8_t *header = answer_header(a, reply, len);
    struct ps_reader r = {header, header + len};
    if (!header)
        return ps_no_memory(e, "an answer");
    if (!answer_scan(a, kind, r))
        return ps_fail(e, PS_INTERNAL, "%s: malformed", kind->name);
    if (!answer_reserve(a))
        return ps_no_memory(e, "an answer");
    return answer_fill(a, kind, r) ? PS_OK : ps_fail(e, PS_INTERNAL, "%s: malformed", kind->name);
}

// All of the values have stayed there.
static enum ps_code reply_check_shard(struct psc__answer *a, const struct ps_slices *payload, struct ps_error *e)
{
    a->place = (struct psc__place){.extent = PSC__NO_EXTENT};
    if (a->n_tensors || payload->len || a->next_offset || a->snapshot)
        return ps_fail(e, PS_INTERNAL, "answered a request to write a shard with %zu tensors", a->n_tensors);
    return PS_OK;
}

static enum ps_code reply_read_parts(const struct psc_op *op, const struct psc__op_request *r,
                                     const struct ps_slices *payload, struct psc__answer *a, struct ps_error *e)
{
    const struct reply_kind *kind = reply_kind_of(op);
    if (kind->results && a->n_results != r->n_extents)
        return ps_fail(e, PS_INTERNAL, "%zu results for %u tensors", a->n_results, r->n_extents);
    if (op->shards)
        return reply_check_shard(a, payload, e);
    return kind->values ? reply_copy_payload(op, r, a, payload, e) : PS_OK;
}

enum ps_code psc__op_read_reply(const struct psc_op *op, const struct psc__op_request *r, const struct ps_slices *reply,
                                struct psc__answer *a, struct ps_error *e)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    const struct psc__task *t = r->is.queue->task;
    const struct reply_kind *kind = reply_kind_of(op);
    a->copy = NULL;
    a->results = NULL;
    a->tensors = NULL;
    a->n_results = a->n_tensors = 0;
    a->generation = a->next_offset = a->snapshot = a->round = a->last_round = a->version = 0;
    a->place = (struct psc__place){0};
    enum ps_code code = answer_decode(a, kind, reply, &payload, e);
    if (code != PS_OK) {
        ps_error_prefix(e, PSC__TASK ": answer that is no %s", PSC__TASK_ARGS(t), kind->name);
        e->code = code == PS_RESOURCE_EXHAUSTED ? code : PS_INTERNAL;
    } else if ((code = reply_read_parts(op, r, &payload, a, e)) != PS_OK) {
        ps_error_prefix(e, PSC__TASK, PSC__TASK_ARGS(t));
    }
    ps_slices_clear(&payload);
    if (code == PS_OK)
        return PS_OK;
    psc__answer_free(a);
    return ps_error_prefix(e, "%s", op->name);
}

void psc__answer_free(struct psc__answer *a)
{
    free(a->copy);
    if (a->results != a->few_results)
        free(a->results);
    if (a->tensors != a->few_tensors)
        free(a->tensors);
    a->copy = NULL;
    a->results = NULL;
    a->tensors = NULL;
}

// ---- replies: what they change ------------------------------------------------------------------------------------

static void found_version(struct psc_op *op, uint64_t version)
{
    if (!op->versioned || version < op->found.version)
        op->found.version = version;
    op->versioned = true;
}

static void found_round(struct psc_op *op, uint64_t round)
{
    if (!op->rounded || round < op->found.round)
        op->found.round = round;
    op->rounded = true;
}

static void found_last_round(struct psc_op *op, uint64_t round)
{
    if (round > op->found.last_round)
        op->found.last_round = round;
}

// What a push has found. A PushPull's next round is that of the values that it brings.
static void found_open_round(struct psc_op *op, uint64_t round)
{
    if (op->method == PARAMSERVER__V1__METHOD__PUSH_PULL)
        found_last_round(op, round - 1);
    else if (round > op->found.open_round)
        op->found.open_round = round;
}

// Where a round closes without a worker (replicas_to_aggregate), partitions run apart: of those whose values a PushPull
// brings, the last one may still be in a round that others have closed.
static void found_closed(struct psc_op *op, uint64_t round)
{
    found_last_round(op, round);
    if (op->found.open_round == 0 || round + 1 < op->found.open_round)
        op->found.open_round = round + 1;
}

// What a read has found.
static void found_read(struct psc_op *op, const struct psc__op_request *r)
{
    if (r->version != UINT64_MAX)  // not all was unchanged since it was seen
        found_version(op, r->version);
    found_round(op, r->round);
    found_last_round(op, r->last_round);
}

static void op_accept_result(struct psc_op *op, struct psc__per_task *per_task, struct psc__extent *extent,
                             const struct ps_tensor_result *r)
{
    struct psc__found *sum = &op->found;
    uint32_t changed = r->blocks - r->duplicates;
    found_version(op, r->version);
    if (r->staleness > sum->staleness)
        sum->staleness = r->staleness;
    sum->duplicates += r->duplicates;
    sum->nonfinite += r->nonfinite;
    switch (r->outcome) {
    case PARAMSERVER__V1__OUTCOME__APPLIED:
        sum->applied += changed;
        per_task->committed = true;
        break;
    case PARAMSERVER__V1__OUTCOME__QUEUED:
        sum->queued += changed;
        found_round(op, r->round);
        found_open_round(op, r->round + 1);
        break;
    case PARAMSERVER__V1__OUTCOME__STALE:
        sum->stale += changed;
        extent->stale = true;
        found_open_round(op, r->round);
        break;
    case PARAMSERVER__V1__OUTCOME__STAGED:
        if (op->atomic)
            per_task->staged += changed;
        else
            extent->partial += changed;
        break;
    default:
        per_task->repeated = true;
        if (op->round) {  // only what was counted in its round is known
            found_round(op, op->round);
            found_open_round(op, op->round + 1);
        }
    }
}

static void op_note_version(struct psc_op *op, const struct psc__extent *extent, uint64_t first, uint64_t count,
                            uint64_t version)
{
    struct psc__layout *l = op->layout;
    uint64_t block,
        n = psc__layout_blocks(psc__op_variable(op, extent), &l->partitions[extent->partition], first, count, &block);
    for (uint64_t b = 0; b < n; b++)
        l->versions[block + b] = version;
}

static void op_accept_tensor(struct psc_op *op, struct psc__op_request *r, struct psc__place *p,
                             const struct ps_tensor_head *t)
{
    if (t->version < r->version)
        r->version = t->version;
    place_skip_unchanged(op, p, t);
    for (uint64_t done = 0, n; done < t->count; done += n) {
        struct psc__extent *extent = &op->extents[p->extent];
        n = place_part(op, p, t, done);
        extent->touched = true;
        extent->changes += t->changes;  // a range of psc_get_newer is a whole partition: no tensor goes beyond it
        if (op->method != PARAMSERVER__V1__METHOD__GET)
            op_note_version(op, extent, t->first + done, n, t->version);
        place_advance(op, p, n);
    }
}

bool psc__op_accept(struct psc_op *op, struct psc__op_request *r, const struct psc__answer *a)
{
    struct psc__place p = r->place;
    if (!psc__saw_generation(r->is.queue->task, a->generation))
        return false;
    uint32_t at = r->first_extent;
    for (size_t i = 0; i < a->n_results && at != PSC__NO_EXTENT; i++, at = op->extents[at].next)
        op_accept_result(op, &op->per_task[r->per_task], &op->extents[at], &a->results[i]);
    for (size_t i = 0; i < a->n_tensors; i++)
        op_accept_tensor(op, r, &p, &a->tensors[i]);
    if (op->method == PARAMSERVER__V1__METHOD__PUSH_PULL && op->round)
        found_closed(op, a->round);
    if (a->round < r->round)
        r->round = a->round;
    if (a->last_round > r->last_round)
        r->last_round = a->last_round;
    if (op->shards)
        r->version = a->version;
    r->offset = a->next_offset;
    r->snapshot = a->snapshot;
    r->is.goes_on = a->snapshot != 0;
    r->place = a->place;
    if (!r->is.mutates && r->offset == 0)
        found_read(op, r);
    return r->offset != 0;
}

void psc__op_restart(struct psc_op *op, struct psc__op_request *r)
{
    r->offset = r->snapshot = r->last_round = 0;
    r->restarted = true;
    r->is.goes_on = false;
    r->version = r->round = UINT64_MAX;
    r->place = (struct psc__place){r->first_extent, 0};
    for (uint32_t i = r->first_extent; i != PSC__NO_EXTENT; i = op->extents[i].next) {
        op->extents[i].touched = false;
        op->extents[i].changes = 0;
    }
}
