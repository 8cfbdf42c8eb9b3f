// SPDX-License-Identifier: Apache-2.0
// An operation's tensors become requests: partitions tell the task, whole blocks go into a request as long as its
// payload stays within chunk_bytes, and small variables of one task ride together.
#include <inttypes.h>
#include <stdlib.h>

#include "common/alloc.h"
#include "common/dtype.h"
#include "libclient/op.h"

// The request of each task that still has room, while an operation is cut.
struct cutter {
    struct psc_op *op;
    struct psc__request **open;  // per task
    size_t limit;                // bytes per request
};

static struct psc__request *request_new(struct psc_op *op, struct psc__task *t)
{
    struct psc__request *r = ps_alloc(sizeof *r);
    r->task = t;
    r->op = op;
    r->mutates = op->seat.mutates;
    r->state = PSC__HELD;
    r->first_piece = r->last_piece = PSC__NO_PIECE;
    TAILQ_INSERT_TAIL(&op->requests, r, of_op);
    op->left++;
    return r;
}

static void add_piece(struct psc__request *r, const struct psc__piece *piece, uint32_t elem_size)
{
    struct psc_op *op = r->op;
    if (op->n_pieces == op->cap_pieces) {
        op->cap_pieces = op->cap_pieces ? 2 * op->cap_pieces : 8;
        op->pieces = ps_realloc(op->pieces, op->cap_pieces * sizeof *op->pieces);
    }
    uint32_t i = op->n_pieces++;
    op->pieces[i] = *piece;
    op->pieces[i].next = PSC__NO_PIECE;
    if (r->n_pieces++)
        op->pieces[r->last_piece].next = i;
    else
        r->first_piece = i;
    r->last_piece = i;
    r->bytes += piece->count * elem_size;
}

// How many of the range's elements go into r: all, or whole blocks; 0: it is full.
static uint64_t fitting(const struct cutter *cut, const struct psc__request *r, const struct psc__variable *v,
                        uint64_t count)
{
    uint64_t room = cut->limit > r->bytes ? (cut->limit - r->bytes) / v->elem_size : 0;
    if (r->n_pieces == PSC__PIECES_MAX)
        return 0;
    if (r->n_pieces == 0 && room < v->block_elems)
        room = v->block_elems;
    return room >= count ? count : room / v->block_elems * v->block_elems;
}

static uint64_t least_version(const struct psc__layout *l, const struct psc__variable *v,
                              const struct psc__partition *p, uint64_t first, uint64_t count)
{
    uint64_t block, least = UINT64_MAX, n = psc__layout_blocks(v, p, first, count, &block);
    for (uint64_t i = 0; i < n; i++)
        if (l->versions[block + i] < least)
            least = l->versions[block + i];
    return least;
}

static void cut_partition(struct cutter *cut, const struct psc__variable *v, const struct psc__partition *p,
                          uint8_t *data)
{
    struct psc_op *op = cut->op;
    struct psc__request **open = &cut->open[p->task];
    uint64_t first = p->first, left = p->count;
    while (left) {
        uint64_t n = *open ? fitting(cut, *open, v, left) : 0;
        if (n == 0) {
            *open = request_new(op, &op->client->tasks[p->task]);
            n = fitting(cut, *open, v, left);
        }
        struct psc__piece piece = {.partition = (uint32_t)(p - op->layout->partitions),
                                   .first = first,
                                   .count = n,
                                   .data = data + first * v->elem_size};
        if (op->method == PARAMSERVER__V1__METHOD__PUSH)
            piece.version = least_version(op->layout, v, p, first, n);
        add_piece(*open, &piece, v->elem_size);
        first += n;
        left -= n;
    }
}

// The variable that t is a value of, or NULL and the error.
static struct psc__variable *check_tensor(const struct psc_op *op, const psc_tensor *t, struct ps_error *e)
{
    struct psc__layout *l = op->layout;
    struct psc__variable *v = t->name ? psc__layout_find(l, t->name) : NULL;
    if (!v)
        psc__layout_no_such(l, t->name ? t->name : "(no name)", e);
    else if (t->dtype != v->is.dtype)
        ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is %s, the tensor is %s", t->name,
                ps_dtype_name((int)v->is.dtype), ps_dtype_name((int)t->dtype));
    else if (t->count != v->count)
        ps_fail(e, PS_INVALID_ARGUMENT,
                "variable '%s' has %" PRIu64 " elements, the tensor has %" PRIu64 "; expected the whole of it", t->name,
                v->count, t->count);
    else if (!t->data)
        ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': the tensor has no data", t->name);
    else if (v->mark == l->marks)
        ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is there twice in one operation", t->name);
    else
        v->mark = l->marks;
    return e->code == PS_OK ? v : NULL;
}

enum ps_code psc__op_cut(struct psc_op *op, const psc_tensor *tensors, size_t n, struct ps_error *e)
{
    psc_client *c = op->client;
    struct cutter cut = {.op = op, .limit = SIZE_MAX};  // get: one request per task, which psd cuts
    struct psc__variable *v;
    if (op->method != PARAMSERVER__V1__METHOD__GET)
        cut.limit = c->chunk_bytes;
    cut.open = ps_alloc(c->n_tasks * sizeof(struct psc__request *));
    op->layout->marks++;
    for (size_t i = 0; i < n && (v = check_tensor(op, &tensors[i], e)); i++)
        for (uint32_t p = 0; p < v->n_partitions; p++)
            cut_partition(&cut, v, &op->layout->partitions[v->first_partition + p], tensors[i].data);
    free(cut.open);
    return e->code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", psc__method_name(op->method));
}
