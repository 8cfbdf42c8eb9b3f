// SPDX-License-Identifier: Apache-2.0
// A request's message is packed when it is sent; a reply is checked against what was asked, and its bytes are copied
// once, to where the caller wants them.
#include <inttypes.h>
#include <string.h>

#include "common/alloc.h"
#include "libclient/call.h"
#include "libclient/op.h"

// ---- requests -----------------------------------------------------------------------------------------------------

static const struct psc__variable *variable_of(const struct psc_op *op, const struct psc__piece *piece)
{
    return &op->layout->variables[op->layout->partitions[piece->partition].variable];
}

static struct psc__scratch *scratch(psc_client *c, size_t n)
{
    struct psc__scratch *s = &c->scratch;
    if (s->cap < n) {
        s->cap = n > 64 ? n : 64;
        s->tensors = ps_realloc(s->tensors, s->cap * sizeof *s->tensors);
        s->pointers = ps_realloc(s->pointers, s->cap * sizeof *s->pointers);
        for (size_t i = 0; i < s->cap; i++)
            s->pointers[i] = &s->tensors[i];
    }
    return s;
}

// The headers of r's ranges, in the scratch.
static Paramserver__V1__Tensor **pack_tensors(struct psc_op *op, const struct psc__request *r)
{
    struct psc__scratch *s = scratch(op->client, r->n_pieces);
    uint32_t i = r->first_piece;
    for (uint32_t n = 0; n < r->n_pieces; n++, i = op->pieces[i].next) {
        const struct psc__piece *piece = &op->pieces[i];
        const struct psc__variable *v = variable_of(op, piece);
        Paramserver__V1__Tensor *t = &s->tensors[n];
        paramserver__v1__tensor__init(t);
        t->variable = (char *)v->is.name;
        t->first = piece->first;
        t->count = piece->count;
        if (r->mutates) {
            t->dtype = (Paramserver__V1__DType)v->is.dtype;
            t->n_shape = v->is.rank;
            t->shape = (uint64_t *)v->is.shape;
            t->version = piece->version;
        }
    }
    return s->pointers;
}

static void pack_update(struct psc_op *op, const struct psc__request *r, Paramserver__V1__Caller *caller,
                        struct ps_rope *to)
{
    Paramserver__V1__UpdateRequest m = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    struct ps_rope payload = PS_ROPE_EMPTY;
    for (uint32_t i = r->first_piece; i != PSC__NO_PIECE; i = op->pieces[i].next) {
        const struct psc__piece *piece = &op->pieces[i];
        psc__op_hold(op);
        ps_rope_add(&payload,
                    (struct ps_slice){piece->data, piece->count * variable_of(op, piece)->elem_size, &op->memory});
    }
    m.caller = caller;
    m.n_tensors = r->n_pieces;
    m.tensors = pack_tensors(op, r);
    m.round = op->round;
    m.examples = op->examples;
    ps_msg_pack(&m.base, &payload, to);
}

static void pack_read(struct psc_op *op, const struct psc__request *r, Paramserver__V1__Caller *caller,
                      struct ps_rope *to)
{
    Paramserver__V1__ReadRequest m = PARAMSERVER__V1__READ_REQUEST__INIT;
    m.caller = caller;
    m.n_tensors = r->n_pieces;
    m.tensors = pack_tensors(op, r);
    m.round = op->round;
    m.offset = r->offset;
    m.snapshot = r->snapshot;
    ps_msg_pack(&m.base, NULL, to);
}

void psc__op_pack(struct psc_op *op, const struct psc__request *r, struct ps_rope *to)
{
    Paramserver__V1__Caller caller;
    psc__caller_init(&caller, r->task, op->seat.sequence);
    if (r->mutates)
        pack_update(op, r, &caller, to);
    else
        pack_read(op, r, &caller, to);
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

// ---- replies ------------------------------------------------------------------------------------------------------

// A place in a request's concatenated ranges.
struct place {
    uint32_t piece;
    uint64_t at;  // elements into it
};

static struct place place_at(const struct psc_op *op, const struct psc__request *r, uint64_t offset)
{
    struct place p = {r->first_piece, 0};
    while (p.piece != PSC__NO_PIECE) {
        const struct psc__piece *piece = &op->pieces[p.piece];
        uint64_t bytes = piece->count * variable_of(op, piece)->elem_size;
        if (offset < bytes) {
            p.at = offset / variable_of(op, piece)->elem_size;
            break;
        }
        offset -= bytes;
        p.piece = piece->next;
    }
    return p;
}

static void place_advance(const struct psc_op *op, struct place *p, uint64_t count)
{
    p->at += count;
    if (p->at == op->pieces[p->piece].count)
        *p = (struct place){op->pieces[p->piece].next, 0};
}

// How much of t, of which `done` elements are dealt with, lies in the range at p; 0: it is not what comes next.
// psd joins ranges that touch each other, so a tensor may go on in the next range.
static uint64_t part_here(const struct psc_op *op, const struct place *p, const Paramserver__V1__Tensor *t,
                          uint64_t done)
{
    if (p->piece == PSC__NO_PIECE)
        return 0;
    const struct psc__piece *piece = &op->pieces[p->piece];
    uint64_t left = t->count - done, room = piece->count - p->at;
    if (t->first + done != piece->first + p->at || strcmp(t->variable, variable_of(op, piece)->is.name) != 0)
        return 0;
    return left < room ? left : room;
}

// Moves *p and *at (in the payload) past t.
static enum ps_code copy_tensor(const struct psc_op *op, const Paramserver__V1__Tensor *t, struct place *p,
                                const struct ps_rope *payload, size_t *at, struct ps_error *e)
{
    for (uint64_t done = 0, n; done < t->count; done += n) {
        n = part_here(op, p, t, done);
        if (n == 0)
            return ps_fail(e, PS_INTERNAL, "answered with [%" PRIu64 ", +%" PRIu64 ") of '%s', out of turn", t->first,
                           t->count, t->variable);
        const struct psc__piece *piece = &op->pieces[p->piece];
        uint32_t elem_size = variable_of(op, piece)->elem_size;
        if (n * elem_size > payload->len - *at)
            return ps_fail(e, PS_INTERNAL, "answered with %zu bytes, fewer than its headers speak of", payload->len);
        ps_rope_copy_out(payload, *at, n * elem_size, piece->data + p->at * elem_size);
        *at += n * elem_size;
        place_advance(op, p, n);
    }
    return PS_OK;
}

static enum ps_code copy_payload(const struct psc_op *op, const struct psc__request *r,
                                 const Paramserver__V1__ReadReply *m, const struct ps_rope *payload, struct ps_error *e)
{
    struct place p = place_at(op, r, r->offset);
    size_t at = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        if (copy_tensor(op, m->tensors[i], &p, payload, &at, e) != PS_OK)
            return e->code;
    bool complete = p.piece == PSC__NO_PIECE;
    uint64_t expected = complete ? 0 : r->offset + at;
    if (at == 0 || at != payload->len || m->next_offset != expected)
        return ps_fail(e, PS_INTERNAL, "answered %zu of %zu bytes from %" PRIu64 " on, to be continued at %" PRIu64,
                       payload->len, r->bytes, r->offset, m->next_offset);
    return PS_OK;
}

static enum ps_code read_update(const struct psc__request *r, const struct ps_rope *reply, struct psc__answer *a,
                                struct ps_error *e)
{
    ProtobufCMessage *m;
    enum ps_code code = psc__call_decode(r->task, &paramserver__v1__update_reply__descriptor, reply, &m, e);
    if (code != PS_OK)
        return code;
    a->update = (Paramserver__V1__UpdateReply *)m;
    if (a->update->n_results == r->n_pieces)
        return PS_OK;
    return ps_fail(e, PS_INTERNAL, PSC__TASK ": %zu results for %u tensors", PSC__TASK_ARGS(r->task),
                   a->update->n_results, r->n_pieces);
}

static enum ps_code read_read(const struct psc_op *op, const struct psc__request *r, const struct ps_rope *reply,
                              struct psc__answer *a, struct ps_error *e)
{
    ProtobufCMessage *m;
    struct ps_rope payload = PS_ROPE_EMPTY;
    enum ps_code code = ps_msg_unpack(&paramserver__v1__read_reply__descriptor, reply, &m, &payload, e);
    if (code == PS_OK) {
        a->read = (Paramserver__V1__ReadReply *)m;
        code = copy_payload(op, r, a->read, &payload, e);
    }
    ps_rope_clear(&payload);
    if (code == PS_OK)
        return PS_OK;
    ps_error_prefix(e, PSC__TASK, PSC__TASK_ARGS(r->task));
    return e->code = PS_INTERNAL;
}

enum ps_code psc__op_read_reply(const struct psc_op *op, const struct psc__request *r, const struct ps_rope *reply,
                                struct psc__answer *a, struct ps_error *e)
{
    *a = (struct psc__answer){0};
    enum ps_code code = r->mutates ? read_update(r, reply, a, e) : read_read(op, r, reply, a, e);
    return code == PS_OK ? code : ps_error_prefix(e, "%s", psc__method_name(op->method));
}

void psc__answer_free(struct psc__answer *a)
{
    if (a->update)
        ps_msg_free(&a->update->base);
    if (a->read)
        ps_msg_free(&a->read->base);
}

static void count_version(struct psc_op *op, uint64_t version, uint64_t round)
{
    psc_result *sum = &op->result;
    if (!op->counted || version < sum->version)
        sum->version = version;
    if (!op->counted || round < sum->round)
        sum->round = round;
    op->counted = true;
}

static void accept_update(struct psc_op *op, const Paramserver__V1__UpdateReply *m)
{
    psc_result *sum = &op->result;
    for (size_t i = 0; i < m->n_results; i++) {
        const Paramserver__V1__TensorResult *r = m->results[i];
        uint32_t changed = r->blocks - r->duplicates;
        count_version(op, r->version, r->round);
        if (r->staleness > sum->staleness)
            sum->staleness = r->staleness;
        sum->duplicates += r->duplicates;
        if (r->outcome == PARAMSERVER__V1__OUTCOME__APPLIED)
            sum->applied += changed;
        else if (r->outcome == PARAMSERVER__V1__OUTCOME__QUEUED)
            sum->queued += changed;
        else if (r->outcome == PARAMSERVER__V1__OUTCOME__STALE)
            sum->stale += changed;
    }
}

static void note_version(struct psc_op *op, const struct psc__piece *piece, uint64_t first, uint64_t count,
                         uint64_t version)
{
    struct psc__layout *l = op->layout;
    uint64_t block,
        n = psc__layout_blocks(variable_of(op, piece), &l->partitions[piece->partition], first, count, &block);
    for (uint64_t b = 0; b < n; b++)
        l->versions[block + b] = version;
}

static void accept_read(struct psc_op *op, const struct psc__request *r, const Paramserver__V1__ReadReply *m)
{
    struct place p = place_at(op, r, r->offset);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const Paramserver__V1__Tensor *t = m->tensors[i];
        count_version(op, t->version, m->round);
        if (op->method != PARAMSERVER__V1__METHOD__PULL)
            continue;
        for (uint64_t done = 0, n; done < t->count; done += n) {
            n = part_here(op, &p, t, done);
            note_version(op, &op->pieces[p.piece], t->first + done, n, t->version);
            place_advance(op, &p, n);
        }
    }
}

bool psc__op_accept(struct psc_op *op, struct psc__request *r, const struct psc__answer *a)
{
    if (!psc__saw_generation(r->task, r->mutates ? a->update->generation : a->read->generation))
        return false;
    if (r->mutates) {
        accept_update(op, a->update);
        return false;
    }
    accept_read(op, r, a->read);
    r->offset = a->read->next_offset;
    r->snapshot = a->read->snapshot;
    return r->offset != 0;
}
