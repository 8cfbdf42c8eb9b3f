// SPDX-License-Identifier: Apache-2.0
// A request's message is packed when it is sent; a reply is checked against what was asked, and its bytes are copied
// once, to where the caller wants them.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/dtype.h"
#include "libclient/call.h"
#include "libclient/op.h"

// ---- requests -----------------------------------------------------------------------------------------------------

const struct psc__variable *psc__op_variable(const struct psc_op *op, const struct psc__piece *piece)
{
    return &op->layout->variables[op->layout->partitions[piece->partition].variable];
}

// NULL: no memory.
static struct psc__scratch *scratch(psc_client *c, size_t n)
{
    struct psc__scratch *s = &c->scratch;
    if (s->cap >= n)
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

static void header_of(const struct psc_op *op, const struct psc__piece *piece, bool mutates, Paramserver__V1__Tensor *t)
{
    const struct psc__variable *v = psc__op_variable(op, piece);
    paramserver__v1__tensor__init(t);
    t->variable = (char *)v->is.name;
    t->first = piece->first;
    t->count = piece->count;
    if (op->seen)
        t->changes = op->seen->changes[piece->partition];
    if (!mutates)
        return;
    t->dtype = (Paramserver__V1__DType)v->is.dtype;
    t->n_shape = v->is.rank;
    t->shape = (uint64_t *)v->is.shape;
    t->version = piece->version;
    if (piece->is_strings)
        t->bytes = piece->bytes;
}

// The headers of r's ranges, in the scratch. NULL: no memory.
static Paramserver__V1__Tensor **pack_tensors(struct psc_op *op, const struct psc__request *r)
{
    struct psc__scratch *s = scratch(op->client, r->n_pieces);
    uint32_t i = r->first_piece;
    for (uint32_t n = 0; s && n < r->n_pieces; n++, i = op->pieces[i].next)
        header_of(op, &op->pieces[i], r->mutates, &s->tensors[n]);
    return s ? s->pointers : NULL;
}

static void pack_update(struct psc_op *op, const struct psc__request *r, Paramserver__V1__Caller *caller,
                        Paramserver__V1__Tensor **tensors, struct ps_slices *to)
{
    Paramserver__V1__UpdateRequest m = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    struct ps_slices payload = PS_ROPE_EMPTY;
    for (uint32_t i = r->first_piece; i != PSC__NO_PIECE; i = op->pieces[i].next) {
        const struct psc__piece *piece = &op->pieces[i];
        psc__op_hold(op);
        ps_slices_add(&payload, (struct ps_slice){piece->data, piece->bytes, &op->memory});
    }
    m.caller = caller;
    m.n_tensors = r->n_pieces;
    m.tensors = tensors;
    m.round = op->round;
    m.examples = op->examples;
    m.refuse_nonfinite = op->refuse_nonfinite;
    if (op->atomic)
        m.atomic_bytes = op->shares[r->task->index].bytes;
    ps_msg_pack(&m.base, &payload, to);
}

static void pack_read(struct psc_op *op, const struct psc__request *r, Paramserver__V1__Caller *caller,
                      Paramserver__V1__Tensor **tensors, struct ps_slices *to)
{
    Paramserver__V1__ReadRequest m = PARAMSERVER__V1__READ_REQUEST__INIT;
    m.caller = caller;
    m.n_tensors = r->n_pieces;
    m.tensors = tensors;
    m.round = op->round;
    m.offset = r->offset;
    m.snapshot = r->snapshot;
    m.if_newer = op->seen != NULL;
    ps_msg_pack(&m.base, NULL, to);
}

void psc__op_pack(struct psc_op *op, const struct psc__request *r, struct ps_slices *to)
{
    Paramserver__V1__Caller caller;
    Paramserver__V1__Tensor **tensors = pack_tensors(op, r);
    psc__caller_init(&caller, r->task, op->seat.sequence);
    if (!tensors)
        to->broken = true;
    else if (r->mutates)
        pack_update(op, r, &caller, tensors, to);
    else
        pack_read(op, r, &caller, tensors, to);
}

int psc__op_method(const struct psc_op *op)
{
    return op->method;
}

uint32_t psc__op_timeout_ms(const struct psc_op *op)
{
    return psc__timeout_ms(op->client, op->deadline);
}

uint64_t psc__op_deadline(const struct psc_op *op)
{
    return op->deadline;
}

uint64_t psc__op_started(const struct psc_op *op)
{
    return op->started;
}

uint64_t psc__op_sequence(const struct psc_op *op)
{
    return op->seat.sequence;
}

// ---- replies: their values ----------------------------------------------------------------------------------------

static void place_advance(const struct psc_op *op, struct psc__place *p, uint64_t count)
{
    p->at += count;
    if (p->at == op->pieces[p->piece].count)
        *p = (struct psc__place){op->pieces[p->piece].next, 0};
}

// How much of t, of which `done` elements are dealt with, lies in the range at p; 0: it is not what comes next.
// psd joins ranges that touch each other, so a tensor may go on in the next range.
static uint64_t part_here(const struct psc_op *op, const struct psc__place *p, const Paramserver__V1__Tensor *t,
                          uint64_t done)
{
    if (p->piece == PSC__NO_PIECE)
        return 0;
    const struct psc__piece *piece = &op->pieces[p->piece];
    uint64_t left = t->count - done, room = piece->count - p->at;
    if (t->first + done != piece->first + p->at || strcmp(t->variable, psc__op_variable(op, piece)->is.name) != 0)
        return 0;
    return left < room ? left : room;
}

// What has not changed since it was seen is not there: p moves on to the range that t begins.
static void skip_unchanged(const struct psc_op *op, struct psc__place *p, const Paramserver__V1__Tensor *t)
{
    while (op->seen && p->piece != PSC__NO_PIECE && p->at == 0 && (!t || part_here(op, p, t, 0) == 0))
        p->piece = op->pieces[p->piece].next;
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
    const struct psc__piece *piece = &op->pieces[p->piece];
    if (piece->is_strings) {
        const uint8_t *lengths = s->lengths;
        s->lengths += n * PS_STRING_LENGTH;
        return psc__strings_take(piece->strings + p->at, n, lengths, &s->bytes, s->end, e);
    }
    uint32_t elem_size = psc__op_variable(op, piece)->elem_size;
    ps_slices_copy_out(s->payload, s->at, n * elem_size, piece->into + p->at * elem_size);
    s->at += n * elem_size;
    return PS_OK;
}

// Moves *p and *at (in the payload) past t.
static enum ps_code copy_tensor(const struct psc_op *op, const Paramserver__V1__Tensor *t, struct psc__place *p,
                                const struct ps_slices *payload, size_t *at, struct ps_error *e)
{
    struct source s = {.payload = payload, .at = *at};
    enum ps_code code = PS_OK;
    uint64_t bytes = 0;
    skip_unchanged(op, p, t);
    for (uint64_t done = 0, n; code == PS_OK && (done == 0 || done < t->count); done += n) {
        n = part_here(op, p, t, done);
        if (n == 0) {  // as of a tensor of nothing
            code = ps_fail(e, PS_INTERNAL, "answered with [%" PRIu64 ", +%" PRIu64 ") of '%s', out of turn", t->first,
                           t->count, t->variable);
            break;
        }
        if (done == 0) {
            uint32_t elem_size = psc__op_variable(op, &op->pieces[p->piece])->elem_size;
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

static bool same_place(struct psc__place a, struct psc__place b)
{
    return a.piece == b.piece && a.at == b.at;
}

static enum ps_code copy_payload(const struct psc_op *op, const struct psc__request *r, struct psc__answer *a,
                                 const struct ps_slices *payload, struct ps_error *e)
{
    struct psc__place p = r->place;
    size_t at = 0;
    for (size_t i = 0; i < a->n_tensors; i++)
        if (copy_tensor(op, a->tensors[i], &p, payload, &at, e) != PS_OK)
            return e->code;
    bool moved = !same_place(p, r->place);
    if (a->next_offset == 0)
        skip_unchanged(op, &p, NULL);
    bool complete = p.piece == PSC__NO_PIECE;
    if (at != payload->len || complete != (a->next_offset == 0) ||
        (!complete && (!moved || a->next_offset <= r->offset)))
        return ps_fail(e, PS_INTERNAL, "answered %zu of %zu bytes from %" PRIu64 " on, to be continued at %" PRIu64,
                       payload->len, r->bytes, r->offset, a->next_offset);
    a->place = p;
    return PS_OK;
}

// ---- replies: what they say ---------------------------------------------------------------------------------------

static void open_update(struct psc__answer *a)
{
    const Paramserver__V1__UpdateReply *m = (Paramserver__V1__UpdateReply *)a->message;
    a->generation = m->generation;
    a->results = m->results;
    a->n_results = m->n_results;
}

static void open_push_pull(struct psc__answer *a)
{
    const Paramserver__V1__PushPullReply *m = (Paramserver__V1__PushPullReply *)a->message;
    a->generation = m->generation;
    a->results = m->results;
    a->n_results = m->n_results;
    a->tensors = m->tensors;
    a->n_tensors = m->n_tensors;
    a->round = m->round;
}

static void open_read(struct psc__answer *a)
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
} update_kind = {&paramserver__v1__update_reply__descriptor, open_update, true, false},
  push_pull_kind = {&paramserver__v1__push_pull_reply__descriptor, open_push_pull, true, true},
  read_kind = {&paramserver__v1__read_reply__descriptor, open_read, false, true};

static const struct reply_kind *kind_of(const struct psc_op *op)
{
    if (!op->seat.mutates)
        return &read_kind;
    return op->method == PARAMSERVER__V1__METHOD__PUSH_PULL ? &push_pull_kind : &update_kind;
}

static enum ps_code read_parts(const struct psc_op *op, const struct psc__request *r, const struct ps_slices *payload,
                               struct psc__answer *a, struct ps_error *e)
{
    const struct reply_kind *kind = kind_of(op);
    kind->open(a);
    if (payload->broken)
        return ps_no_memory(e, "an answer");
    if (kind->results && a->n_results != r->n_pieces)
        return ps_fail(e, PS_INTERNAL, "%zu results for %u tensors", a->n_results, r->n_pieces);
    return kind->values ? copy_payload(op, r, a, payload, e) : PS_OK;
}

enum ps_code psc__op_read_reply(const struct psc_op *op, const struct psc__request *r, const struct ps_slices *reply,
                                struct psc__answer *a, struct ps_error *e)
{
    struct ps_slices payload = PS_ROPE_EMPTY;
    *a = (struct psc__answer){0};
    enum ps_code code = psc__call_unpack(r->task, kind_of(op)->type, reply, &a->message, &payload, e);
    if (code == PS_OK) {
        code = read_parts(op, r, &payload, a, e);
        if (code != PS_OK) {
            ps_error_prefix(e, PSC__TASK, PSC__TASK_ARGS(r->task));
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

static void count_version(struct psc_op *op, uint64_t version)
{
    if (!op->versioned || version < op->result.version)
        op->result.version = version;
    op->versioned = true;
}

static void count_round(struct psc_op *op, uint64_t round)
{
    if (!op->rounded || round < op->result.round)
        op->result.round = round;
    op->rounded = true;
}

static void count_open_round(struct psc_op *op, uint64_t round)
{
    if (round > op->result.open_round)
        op->result.open_round = round;
}

// What a read has found.
static void count_read(struct psc_op *op, const struct psc__request *r)
{
    if (r->version != UINT64_MAX)  // not all was unchanged since it was seen
        count_version(op, r->version);
    count_round(op, r->round);
    if (r->last_round > op->result.last_round)
        op->result.last_round = r->last_round;
}

static void accept_result(struct psc_op *op, struct psc__share *share, struct psc__piece *piece,
                          const Paramserver__V1__TensorResult *r)
{
    psc_result *sum = &op->result;
    uint32_t changed = r->blocks - r->duplicates;
    count_version(op, r->version);
    if (r->staleness > sum->staleness)
        sum->staleness = r->staleness;
    sum->duplicates += r->duplicates;
    sum->nonfinite += r->nonfinite;
    switch (r->outcome) {
    case PARAMSERVER__V1__OUTCOME__APPLIED:
        sum->applied += changed;
        share->committed = true;
        break;
    case PARAMSERVER__V1__OUTCOME__QUEUED:
        sum->queued += changed;
        count_round(op, r->round);
        count_open_round(op, r->round + 1);
        break;
    case PARAMSERVER__V1__OUTCOME__STALE:
        sum->stale += changed;
        piece->stale = true;
        count_open_round(op, r->round);
        break;
    case PARAMSERVER__V1__OUTCOME__STAGED:
        if (op->atomic)
            share->staged += changed;
        else
            piece->partial += changed;
        break;
    default:
        share->repeated = true;
        if (op->round) {  // only what was counted in its round is known
            count_round(op, op->round);
            count_open_round(op, op->round + 1);
        }
    }
}

static void note_version(struct psc_op *op, const struct psc__piece *piece, uint64_t first, uint64_t count,
                         uint64_t version)
{
    struct psc__layout *l = op->layout;
    uint64_t block,
        n = psc__layout_blocks(psc__op_variable(op, piece), &l->partitions[piece->partition], first, count, &block);
    for (uint64_t b = 0; b < n; b++)
        l->versions[block + b] = version;
}

// A range's changes are those of its parts together. How those of a tensor that psd has joined belong to its ranges is
// not known: these are got again.
static void add_changes(struct psc__piece *piece, const Paramserver__V1__Tensor *t, uint64_t here)
{
    if (here == t->count && piece->changes != UINT64_MAX)
        piece->changes += t->changes;
    else
        piece->changes = UINT64_MAX;
}

static void accept_tensor(struct psc_op *op, struct psc__request *r, struct psc__place *p,
                          const Paramserver__V1__Tensor *t)
{
    if (t->version < r->version)
        r->version = t->version;
    skip_unchanged(op, p, t);
    for (uint64_t done = 0, n; done < t->count; done += n) {
        struct psc__piece *piece = &op->pieces[p->piece];
        n = part_here(op, p, t, done);
        piece->touched = true;
        add_changes(piece, t, n);
        if (op->method != PARAMSERVER__V1__METHOD__GET)
            note_version(op, piece, t->first + done, n, t->version);
        place_advance(op, p, n);
    }
}

bool psc__op_accept(struct psc_op *op, struct psc__request *r, const struct psc__answer *a)
{
    struct psc__place p = r->place;
    if (!psc__saw_generation(r->task, a->generation))
        return false;
    uint32_t piece = r->first_piece;
    for (size_t i = 0; i < a->n_results && piece != PSC__NO_PIECE; i++, piece = op->pieces[piece].next)
        accept_result(op, &op->shares[r->task->index], &op->pieces[piece], a->results[i]);
    for (size_t i = 0; i < a->n_tensors; i++)
        accept_tensor(op, r, &p, a->tensors[i]);
    if (op->method == PARAMSERVER__V1__METHOD__PUSH_PULL && op->round)
        count_open_round(op, a->round + 1);
    if (a->round < r->round)
        r->round = a->round;
    if (a->last_round > r->last_round)
        r->last_round = a->last_round;
    r->offset = a->next_offset;
    r->snapshot = a->snapshot;
    r->place = a->place;
    if (!r->mutates && r->offset == 0)
        count_read(op, r);
    return r->offset != 0;
}

void psc__op_restart(struct psc_op *op, struct psc__request *r)
{
    r->offset = r->snapshot = r->last_round = 0;
    r->version = r->round = UINT64_MAX;
    r->place = (struct psc__place){r->first_piece, 0};
    for (uint32_t i = r->first_piece; i != PSC__NO_PIECE; i = op->pieces[i].next) {
        op->pieces[i].touched = false;
        op->pieces[i].changes = 0;
    }
}
