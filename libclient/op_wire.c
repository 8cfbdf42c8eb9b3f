// SPDX-License-Identifier: Apache-2.0
// A request's message is packed when it is sent; a reply is checked against what was asked, and its bytes are copied
// once, to where the caller wants them.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/dtype.h"
#include "libclient/op.h"

// ---- requests -----------------------------------------------------------------------------------------------------

// Headers of requests are put together here before they are packed: no allocation per request.
struct psc__scratch {
    Paramserver__V1__Tensor *tensors;
    Paramserver__V1__Tensor **pointers;
    size_t cap;
};

void psc__scratch_free(struct psc_client *c)
{
    if (c->scratch) {
        free(c->scratch->tensors);
        free(c->scratch->pointers);
    }
    free(c->scratch);
}

// NULL: no memory.
static struct psc__scratch *scratch_reserve(psc_client *c, size_t n)
{
    if (!c->scratch)
        c->scratch = ps_try_alloc(sizeof *c->scratch);
    struct psc__scratch *s = c->scratch;
    if (!s || s->cap >= n)
        return s;
    size_t cap = n > 64 ? n : 64;
    s->cap = 0;  // the pointers are to nothing until there are new ones
    Paramserver__V1__Tensor *tensors = ps_try_realloc(s->tensors, cap * sizeof *tensors);
    if (tensors)
        s->tensors = tensors;
    Paramserver__V1__Tensor **pointers = tensors ? ps_try_realloc(s->pointers, cap * sizeof *pointers) : NULL;
    if (!pointers)
        return NULL;
    s->pointers = pointers;
    s->cap = cap;
    for (size_t i = 0; i < cap; i++)
        s->pointers[i] = &s->tensors[i];
    return s;
}

static void wire_tensor(const struct psc_op *op, const struct psc__extent *extent, bool mutates,
                        Paramserver__V1__Tensor *t)
{
    const struct psc__variable *v = psc__op_variable(op, extent);
    paramserver__v1__tensor__init(t);
    t->variable = (char *)v->is.name;
    t->first = extent->first;
    t->count = extent->count;
    if (op->seen)
        t->changes = op->seen->changes[extent->partition];
    if (!mutates)
        return;
    t->dtype = (Paramserver__V1__DType)v->is.dtype;
    t->n_shape = v->is.rank;
    t->shape = (uint64_t *)v->is.shape;
    t->version = extent->version;
    if (extent->is_strings)
        t->bytes = extent->bytes;
}

// The headers of r's ranges, in the scratch. NULL: no memory.
static Paramserver__V1__Tensor **wire_pack_tensors(struct psc_op *op, const struct psc__op_request *r)
{
    struct psc__scratch *s = scratch_reserve(op->client, r->n_extents);
    uint32_t i = r->first_extent;
    for (uint32_t n = 0; s && n < r->n_extents; n++, i = op->extents[i].next)
        wire_tensor(op, &op->extents[i], r->is.mutates, &s->tensors[n]);
    return s ? s->pointers : NULL;
}

static void wire_pack_update(struct psc_op *op, const struct psc__op_request *r, Paramserver__V1__Caller *caller,
                             Paramserver__V1__Tensor **tensors, struct ps_slices *to)
{
    Paramserver__V1__UpdateRequest m = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    struct ps_slices payload = PS_ROPE_EMPTY;
    for (uint32_t i = r->first_extent; i != PSC__NO_EXTENT; i = op->extents[i].next) {
        const struct psc__extent *extent = &op->extents[i];
        ps_owner_ref(&op->memory);
        ps_slices_add(&payload, (struct ps_slice){extent->data, extent->bytes, &op->memory});
    }
    m.caller = caller;
    m.n_tensors = r->n_extents;
    m.tensors = tensors;
    m.round = op->round;
    m.examples = op->examples;
    m.refuse_nonfinite = op->refuse_nonfinite;
    if (op->atomic)
        m.atomic_bytes = op->per_task[r->per_task].bytes;
    ps_msg_pack(&m.base, &payload, to);
}

static void wire_pack_read(struct psc_op *op, const struct psc__op_request *r, Paramserver__V1__Caller *caller,
                           Paramserver__V1__Tensor **tensors, struct ps_slices *to)
{
    Paramserver__V1__ReadRequest m = PARAMSERVER__V1__READ_REQUEST__INIT;
    m.caller = caller;
    m.n_tensors = r->n_extents;
    m.tensors = tensors;
    m.round = op->round;
    m.offset = r->offset;
    m.snapshot = r->snapshot;
    m.if_newer = op->seen != NULL;
    ps_msg_pack(&m.base, NULL, to);
}

void psc__op_pack(struct psc_op *op, const struct psc__op_request *r, struct ps_slices *to)
{
    Paramserver__V1__Caller caller;
    Paramserver__V1__Tensor **tensors = wire_pack_tensors(op, r);
    psc__caller_init(&caller, r->is.queue->task, op->seat.sequence);
    if (!tensors)
        to->broken = true;
    else if (r->is.mutates)
        wire_pack_update(op, r, &caller, tensors, to);
    else
        wire_pack_read(op, r, &caller, tensors, to);
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
static uint64_t place_part(const struct psc_op *op, const struct psc__place *p, const Paramserver__V1__Tensor *t,
                           uint64_t done)
{
    if (p->extent == PSC__NO_EXTENT)
        return 0;
    const struct psc__extent *extent = &op->extents[p->extent];
    uint64_t left = t->count - done, room = extent->count - p->at;
    if (t->first + done != extent->first + p->at || strcmp(t->variable, psc__op_variable(op, extent)->is.name) != 0)
        return 0;
    return left < room ? left : room;
}

// What has not changed since it was seen is not there: p moves on to the range that t begins.
static void place_skip_unchanged(const struct psc_op *op, struct psc__place *p, const Paramserver__V1__Tensor *t)
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

static enum ps_code source_open(struct source *s, const Paramserver__V1__Tensor *t, uint64_t bytes, bool strings,
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
static enum ps_code reply_copy_tensor(const struct psc_op *op, const Paramserver__V1__Tensor *t, struct psc__place *p,
                                      const struct ps_slices *payload, size_t *at, struct ps_error *e)
{
    struct source s = {.payload = payload, .at = *at};
    enum ps_code code = PS_OK;
    uint64_t bytes = 0;
    place_skip_unchanged(op, p, t);
    for (uint64_t done = 0, n; code == PS_OK && (done == 0 || done < t->count); done += n) {
        n = place_part(op, p, t, done);
        if (n == 0) {  // as of a tensor of nothing
            code = ps_fail(e, PS_INTERNAL, "answered with [%" PRIu64 ", +%" PRIu64 ") of '%s', out of turn", t->first,
                           t->count, t->variable);
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
        code = ps_fail(e, PS_INTERNAL, "answered with %zu bytes more than the strings of '%s' have",
                       (size_t)(s.end - s.bytes), t->variable);
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
        if (reply_copy_tensor(op, a->tensors[i], &p, payload, &at, e) != PS_OK)
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

static void answer_open_update(struct psc__answer *a)
{
    const Paramserver__V1__UpdateReply *m = (Paramserver__V1__UpdateReply *)a->message;
    a->generation = m->generation;
    a->results = m->results;
    a->n_results = m->n_results;
}

static void answer_open_push_pull(struct psc__answer *a)
{
    const Paramserver__V1__PushPullReply *m = (Paramserver__V1__PushPullReply *)a->message;
    a->generation = m->generation;
    a->results = m->results;
    a->n_results = m->n_results;
    a->tensors = m->tensors;
    a->n_tensors = m->n_tensors;
    a->round = m->round;
}

static void answer_open_read(struct psc__answer *a)
{
    const Paramserver__V1__ReadReply *m = (Paramserver__V1__ReadReply *)a->message;
    a->generation = m->generation;
    a->tensors = m->tensors;
    a->n_tensors = m->n_tensors;
    a->next_offset = m->next_offset;
    a->snapshot = m->snapshot;
    a->round = m->round;
    a->last_round = m->last_round;
}

static const struct reply_kind {
    const ProtobufCMessageDescriptor *type;
    void (*open)(struct psc__answer *);
    bool results, values;
} update_kind = {&paramserver__v1__update_reply__descriptor, answer_open_update, true, false},
  push_pull_kind = {&paramserver__v1__push_pull_reply__descriptor, answer_open_push_pull, true, true},
  read_kind = {&paramserver__v1__read_reply__descriptor, answer_open_read, false, true};

static const struct reply_kind *reply_kind_of(const struct psc_op *op)
{
    if (!op->seat.mutates)
        return &read_kind;
    return op->method == PARAMSERVER__V1__METHOD__PUSH_PULL ? &push_pull_kind : &update_kind;
}

static enum ps_code reply_read_parts(const struct psc_op *op, const struct psc__op_request *r,
                                     const struct ps_slices *payload, struct psc__answer *a, struct ps_error *e)
{
    const struct reply_kind *kind = reply_kind_of(op);
    kind->open(a);
    if (payload->broken)
        return ps_no_memory(e, "an answer");
    if (kind->results && a->n_results != r->n_extents)
        return ps_fail(e, PS_INTERNAL, "%zu results for %u tensors", a->n_results, r->n_extents);
    return kind->values ? reply_copy_payload(op, r, a, payload, e) : PS_OK;
}

enum ps_code psc__op_read_reply(const struct psc_op *op, const struct psc__op_request *r, const struct ps_slices *reply,
                                struct psc__answer *a, struct ps_error *e)
{
    struct ps_slices payload = PS_ROPE_EMPTY;
    *a = (struct psc__answer){0};
    enum ps_code code = psc__unpack(r->is.queue->task, reply_kind_of(op)->type, reply, &a->message, &payload, e);
    if (code == PS_OK) {
        code = reply_read_parts(op, r, &payload, a, e);
        if (code != PS_OK) {
            ps_error_prefix(e, PSC__TASK, PSC__TASK_ARGS(r->is.queue->task));
            psc__answer_free(a);
        }
    }
    ps_slices_clear(&payload);
    return code == PS_OK ? code : ps_error_prefix(e, "%s", psc__method_name(op->method));
}

void psc__answer_free(struct psc__answer *a)
{
    ps_msg_free(a->message);
    a->message = NULL;
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

static void found_open_round(struct psc_op *op, uint64_t round)
{
    if (round > op->found.open_round)
        op->found.open_round = round;
}

// What a read has found.
static void found_read(struct psc_op *op, const struct psc__op_request *r)
{
    if (r->version != UINT64_MAX)  // not all was unchanged since it was seen
        found_version(op, r->version);
    found_round(op, r->round);
    if (r->last_round > op->found.last_round)
        op->found.last_round = r->last_round;
}

static void op_accept_result(struct psc_op *op, struct psc__per_task *per_task, struct psc__extent *extent,
                             const Paramserver__V1__TensorResult *r)
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

// A range's changes are those of its parts together. How those of a tensor that psd has joined belong to its ranges is
// not known: these are got again.
static void extent_add_changes(struct psc__extent *extent, const Paramserver__V1__Tensor *t, uint64_t here)
{
    if (here == t->count && extent->changes != UINT64_MAX)
        extent->changes += t->changes;
    else
        extent->changes = UINT64_MAX;
}

static void op_accept_tensor(struct psc_op *op, struct psc__op_request *r, struct psc__place *p,
                             const Paramserver__V1__Tensor *t)
{
    if (t->version < r->version)
        r->version = t->version;
    place_skip_unchanged(op, p, t);
    for (uint64_t done = 0, n; done < t->count; done += n) {
        struct psc__extent *extent = &op->extents[p->extent];
        n = place_part(op, p, t, done);
        extent->touched = true;
        extent_add_changes(extent, t, n);
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
        op_accept_result(op, &op->per_task[r->per_task], &op->extents[at], a->results[i]);
    for (size_t i = 0; i < a->n_tensors; i++)
        op_accept_tensor(op, r, &p, a->tensors[i]);
    if (op->method == PARAMSERVER__V1__METHOD__PUSH_PULL && op->round)
        found_open_round(op, a->round + 1);
    if (a->round < r->round)
        r->round = a->round;
    if (a->last_round > r->last_round)
        r->last_round = a->last_round;
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
    r->is.goes_on = false;
    r->version = r->round = UINT64_MAX;
    r->place = (struct psc__place){r->first_extent, 0};
    for (uint32_t i = r->first_extent; i != PSC__NO_EXTENT; i = op->extents[i].next) {
        op->extents[i].touched = false;
        op->extents[i].changes = 0;
    }
}
