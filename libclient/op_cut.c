// SPDX-License-Identifier: Apache-2.0
// An operation's tensors become requests: partitions tell the task, blocks go into a request as long as its payload
// stays within chunk_bytes, and small variables of one task ride together.
//
// A block takes a sequence once, so all that an operation has for a block is one unit: the rows of an embedding that
// lie in one block are in one request, even where it grows beyond chunk_bytes and PSC__EXTENTS_MAX for that. A pull
// takes none: its units end where a request can name no more.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/dtype.h"
#include "libclient/op.h"

// A tensor, checked.
struct range {
    struct psc__variable *variable;
    uint32_t slot;
    uint64_t first, end;
    uint32_t tensor;
};

struct psc__cutting {
    struct range *ranges;
    size_t cap_ranges;
    struct {
        uint64_t mark;   // the operation that touched the task last,
        uint32_t index;  // and where its part for the task is
    } * tasks;           // [client's]
    uint64_t marks;      // operations so far
};

struct cutter {
    struct psc_op *op;
    const struct psc__op_spec *spec;
    struct psc__cutting *kept;
    struct range *ranges;   // by variable, then slot, then first
    size_t limit, extents;  // bytes per request, and ranges
    struct ps_error *e;
};

// ---- checking -----------------------------------------------------------------------------------------------------

static bool method_is_arithmetic(int method)
{
    return method != PARAMSERVER__V1__METHOD__PUT && method != PARAMSERVER__V1__METHOD__GET &&
           method != PARAMSERVER__V1__METHOD__PULL;
}

static bool method_takes_slots(int method)
{
    return method == PARAMSERVER__V1__METHOD__PUT || method == PARAMSERVER__V1__METHOD__GET;
}

static bool method_is_push(int method)
{
    return method == PARAMSERVER__V1__METHOD__PUSH || method == PARAMSERVER__V1__METHOD__PUSH_PULL;
}

static enum ps_code cut_check_part(const struct psc_op *op, const psc_tensor *t, const struct psc__variable *v,
                                   struct ps_error *e)
{
    bool whole = !t->part || (t->first == 0 && t->count == v->count);
    bool in_rounds = psc__op_in_rounds(op) && (v->is.trainable || v->is.rule);
    if (!t->part && t->count != v->count)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s' has %" PRIu64 " elements, the tensor has %" PRIu64 "; expected the whole of it",
                       t->name, v->count, t->count);
    if (t->part && (t->count == 0 || t->first >= v->count || t->count > v->count - t->first))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s' has %" PRIu64 " elements, the tensor is %" PRIu64 " of them from %" PRIu64 " on",
                       t->name, v->count, t->count, t->first);
    if (!whole && op->seen)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': only the whole of it can be got where it is newer",
                       t->name);
    if (!whole && in_rounds && method_is_push(op->method))
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': in a sync job a gradient is of the whole variable",
                       t->name);
    return PS_OK;
}

static enum ps_code cut_check_tensor(const struct psc_op *op, const psc_tensor *t, struct psc__variable **variable,
                                     struct ps_error *e)
{
    struct psc__variable *v = *variable = t->name ? psc__layout_find(op->layout, t->name) : NULL;
    if (!v)
        return psc__layout_no_such(op->layout, t->name ? t->name : "(no name)", e);
    if (t->dtype != v->is.dtype)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is %s, the tensor is %s", t->name,
                       ps_dtype_name((int)v->is.dtype), ps_dtype_name((int)t->dtype));
    if (method_is_arithmetic(op->method) && !ps_dtype_is_number((int)t->dtype))
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is %s, which is for put and get alone", t->name,
                       ps_dtype_name((int)t->dtype));
    if (method_is_push(op->method) && !v->is.trainable && !v->is.rule)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s' is not trainable and names no rule: it takes no gradient; assign_add adds to it",
                       t->name);
    if (!t->data && !op->shards)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': the tensor has no data", t->name);
    if (t->slot && (!method_takes_slots(op->method) || op->seen))
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': a slot is for put and get alone", t->name);
    return cut_check_part(op, t, v, e);
}

// psc_push_pull: where values go is what the gradient is of.
static enum ps_code cut_check_into(const psc_tensor *t, const psc_tensor *into, struct psc__variable *v,
                                   const struct psc__layout *l, struct ps_error *e)
{
    uint64_t first = t->part ? t->first : 0, into_first = into->part ? into->first : 0;
    if (!into->name || psc__layout_find(l, into->name) != v || into->count != t->count || into_first != first ||
        into->dtype != t->dtype || !into->data)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': the tensor to pull into is of '%s' from %" PRIu64 ", %" PRIu64 " %s%s; expected "
                       "the range that is pushed, from %" PRIu64 ", %" PRIu64 " %s",
                       t->name, into->name ? into->name : "(no name)", into_first, into->count,
                       ps_dtype_name((int)into->dtype), into->data ? "" : " without data", first, t->count,
                       ps_dtype_name((int)t->dtype));
    return PS_OK;
}

// In the order in which variables are first named, then of their slots, then of their elements.
static int range_compare(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->variable != y->variable)
        return x->variable->nth < y->variable->nth ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static enum ps_code cut_check_tensors(struct cutter *cut)
{
    const struct psc__op_spec *spec = cut->spec;
    struct psc_op *op = cut->op;
    struct psc__layout *l = op->layout;
    bool repeated = false;
    l->marks++;
    for (size_t i = 0; i < spec->n; i++) {
        const psc_tensor *t = &spec->tensors[i];
        struct psc__variable *v;
        if (cut_check_tensor(op, t, &v, cut->e) != PS_OK ||
            (spec->into && cut_check_into(t, &spec->into[i], v, l, cut->e) != PS_OK))
            return cut->e->code;
        repeated |= v->mark == l->marks;
        if (v->mark != l->marks)
            v->nth = (uint32_t)i;
        v->mark = l->marks;
        uint64_t first = t->part ? t->first : 0;
        cut->ranges[i] = (struct range){v, t->slot, first, first + t->count, (uint32_t)i};
    }
    if (!repeated)
        return PS_OK;
    qsort(cut->ranges, spec->n, sizeof *cut->ranges, range_compare);
    for (size_t i = 1; i < spec->n; i++) {
        const struct range *r = &cut->ranges[i], *before = r - 1;
        if (r->variable != before->variable)
            continue;
        if (r->slot != before->slot && op->ticket.mutates)
            return ps_fail(cut->e, PS_INVALID_ARGUMENT,
                           "variable '%s': slots %" PRIu32 " and %" PRIu32 " in one operation: expected one of them",
                           r->variable->is.name, before->slot, r->slot);
        if (r->slot == before->slot && r->first < before->end)
            return ps_fail(cut->e, PS_INVALID_ARGUMENT,
                           "variable '%s': element %" PRIu64 " is there twice in one operation", r->variable->is.name,
                           r->first);
    }
    return PS_OK;
}

// ---- units --------------------------------------------------------------------------------------------------------

// Goes through the ranges of one variable.
struct walk {
    const struct range *at, *end;
    uint64_t next;  // element; in *at, or before it
};

struct overlap {
    const struct range *of;
    uint64_t first, count;
};

static uint64_t walk_position(const struct walk *w)
{
    return w->next > w->at->first ? w->next : w->at->first;
}

// The next stretch of a range below `limit`. False: none.
static bool walk_advance(struct walk *w, uint64_t limit, struct overlap *o)
{
    if (w->at == w->end || walk_position(w) >= limit)
        return false;
    uint64_t first = walk_position(w), end = w->at->end < limit ? w->at->end : limit;
    *o = (struct overlap){w->at, first, end - first};
    w->next = end;
    w->at += end == w->at->end;
    return true;
}

// All that the operation has for one block.
struct unit {
    const struct psc__partition *partition;
    uint64_t block;       // index into the layout's versions
    uint64_t first, end;  // the block's elements
    uint64_t count;       // of these in the operation
    size_t bytes, extents;
};

static const psc_string *overlap_strings(const struct cutter *cut, const struct overlap *o)
{
    return (const psc_string *)cut->spec->tensors[o->of->tensor].data + (o->first - o->of->first);
}

// Of payload. How long strings are that have not been read is not known.
static size_t overlap_bytes(const struct cutter *cut, const struct overlap *o)
{
    const struct psc__variable *v = o->of->variable;
    size_t bytes = o->count * (v->elem_size ? v->elem_size : PS_STRING_LENGTH);
    if (v->elem_size || !cut->op->ticket.mutates)
        return bytes;
    const psc_string *s = overlap_strings(cut, o);
    for (uint64_t i = 0; i < o->count; i++)
        if (__builtin_add_overflow(bytes, s[i].len, &bytes))
            return SIZE_MAX;
    return bytes;
}

// The unit that the walk comes to next; p: a partition at or before it.
static struct unit cut_unit_at(const struct cutter *cut, const struct walk *at, const struct psc__partition *p)
{
    const struct psc__variable *v = at->at->variable;
    uint64_t element = walk_position(at);
    struct unit u = {0};
    struct overlap o = {0};
    while (element >= p->first + p->count)
        p++;
    uint64_t i = (element - p->first) / v->block_elems, end = p->first + p->count;
    u.partition = p;
    u.block = p->first_block + i;
    u.first = p->first + i * v->block_elems;
    u.end = end - u.first > v->block_elems ? u.first + v->block_elems : end;
    const size_t most = cut->op->method == PARAMSERVER__V1__METHOD__PULL ? cut->extents : SIZE_MAX;
    for (struct walk w = *at; u.extents < most && walk_advance(&w, u.end, &o); u.extents++) {
        u.count += o.count;
        if (__builtin_add_overflow(u.bytes, overlap_bytes(cut, &o), &u.bytes))
            u.bytes = SIZE_MAX;
    }
    if (u.extents == most)
        u.end = o.first + o.count;
    return u;
}

// So many ranges of one block a request can name, and its reply tell of.
static size_t cut_most_extents(const struct cutter *cut, const struct psc__variable *v, const struct unit *u)
{
    const size_t room = PS_CHUNK_MAX - PSC__REPLY_MARGIN, each = PS_RESULT_BYTES + PSC__EXTENT_BYTES;
    if (cut->op->method != PARAMSERVER__V1__METHOD__PUSH_PULL || u->extents <= cut->extents)
        return PSC__GET_EXTENTS_MAX;
    const size_t fit = u->bytes < room ? (room - u->bytes) / (each + strlen(v->is.name)) : 0;
    return fit < PSC__GET_EXTENTS_MAX ? fit : PSC__GET_EXTENTS_MAX;
}

static enum ps_code cut_check_unit(const struct cutter *cut, const struct psc__variable *v, const struct unit *u)
{
    size_t most = PS_CHUNK_MAX - PSC__REPLY_MARGIN;
    if (u->extents > cut_most_extents(cut, v, u))
        return ps_fail(cut->e, PS_INVALID_ARGUMENT,
                       "variable '%s': %zu ranges of one block, elements [%" PRIu64 ", %" PRIu64 "), are more than one "
                       "request can name",
                       v->is.name, u->extents, u->first, u->end);
    if (v->elem_size || !cut->op->ticket.mutates)
        return PS_OK;
    if (u->count != u->end - u->first)
        return ps_fail(cut->e, PS_INVALID_ARGUMENT,
                       "variable '%s': %" PRIu64 " of the elements [%" PRIu64 ", %" PRIu64
                       ") change; strings change in "
                       "whole blocks of %u",
                       v->is.name, u->count, u->first, u->end, v->block_elems);
    if (u->bytes > most)
        return ps_fail(cut->e, PS_INVALID_ARGUMENT,
                       "variable '%s': the strings [%" PRIu64 ", %" PRIu64
                       ") take %zu bytes, at most %zu fit a message",
                       v->is.name, u->first, u->end, u->bytes, most);
    return PS_OK;
}

// ---- requests -----------------------------------------------------------------------------------------------------

// What the operation has for the task. NULL: no memory.
static struct psc__per_task *cut_per_task(struct cutter *cut, uint32_t task)
{
    struct psc__cutting *kept = cut->kept;
    struct psc_op *op = cut->op;
    if (kept->tasks[task].mark == kept->marks)
        return &op->per_task[kept->tasks[task].index];
    struct psc__per_task *per_task =
        ps_try_reserve(op->per_task, op->n_per_task + 1, &op->cap_per_task, sizeof *per_task);
    if (!per_task)
        return NULL;
    op->per_task = per_task;
    kept->tasks[task].mark = kept->marks;
    kept->tasks[task].index = op->n_per_task;
    per_task += op->n_per_task++;
    *per_task = (struct psc__per_task){.task = task};
    return per_task;
}

// One that was used before, or a fresh one. NULL: no memory.
static struct psc__op_request *cut_take_request(struct psc__ops *ops)
{
    struct psc__op_request *r = TAILQ_FIRST(&ops->free_requests);
    if (!r)
        return ps_try_alloc(sizeof *r);
    TAILQ_REMOVE(&ops->free_requests, r, link);
    ops->n_free_requests--;
    *r = (struct psc__op_request){0};
    return r;
}

static struct psc__op_request *cut_new_request(struct psc_op *op, struct psc__per_task *per_task)
{
    struct psc__op_request *r = cut_take_request(op->ops);
    if (!r)
        return NULL;
    r->op = op;
    r->per_task = (uint32_t)(per_task - op->per_task);
    r->is.state = PSC__HELD;
    r->first_extent = r->last_extent = PSC__NO_EXTENT;
    r->version = r->round = UINT64_MAX;
    TAILQ_INSERT_TAIL(&op->requests, r, link);
    op->left++;
    return r;
}

// The one that u goes into. NULL: no memory; or a get, which is of one instant at each task, has no room for it.
static struct psc__op_request *cut_request_for(struct cutter *cut, const struct psc__variable *v, const struct unit *u)
{
    struct psc__task *t = &cut->op->client->tasks[u->partition->task];
    struct psc__per_task *per_task = cut_per_task(cut, u->partition->task);
    struct psc__op_request *r = per_task ? per_task->open : NULL;
    bool full = !r || r->is.bytes + u->bytes > cut->limit || r->n_extents + u->extents > cut->extents;
    if (r && full && cut->op->method == PARAMSERVER__V1__METHOD__GET) {
        ps_fail(cut->e, PS_INVALID_ARGUMENT,
                "variable '%s': %zu ranges of it after %u others are more than one request to " PSC__TASK
                " can name; a get reads all of them at one instant",
                v->is.name, u->extents, r->n_extents, PSC__TASK_ARGS(t));
        return NULL;
    }
    if (full && per_task)
        per_task->open = r = cut_new_request(cut->op, per_task);
    if (!r) {
        ps_no_memory(cut->e, "a request");
        return NULL;
    }
    per_task->bytes += u->bytes;
    return r;
}

static bool cut_reserve_extent(struct psc_op *op)
{
    struct psc__extent *extents = ps_try_reserve(op->extents, op->n_extents + 1, &op->cap_extents, sizeof *extents);
    if (extents)
        op->extents = extents;
    return extents;
}

static void cut_point_to_memory(const struct cutter *cut, struct psc__extent *extent, const struct overlap *o)
{
    const struct psc__variable *v = o->of->variable;
    if (cut->op->shards)
        return;
    uint64_t at = (o->first - o->of->first) * (v->elem_size ? v->elem_size : sizeof(psc_string));
    uint8_t *data = (uint8_t *)cut->spec->tensors[o->of->tensor].data + at;
    if (!cut->op->ticket.mutates)
        extent->into = data;
    else if (v->elem_size)
        extent->data = data;
    else
        extent->strings = (psc_string *)(void *)data;
    if (cut->spec->into)
        extent->into = (uint8_t *)cut->spec->into[o->of->tensor].data + at;
}

// Goes on with the request's last extent where o follows it in memory, else adds one.
static bool cut_add_overlap(struct cutter *cut, struct psc__op_request *r, const struct unit *u,
                            const struct overlap *o)
{
    struct psc_op *op = cut->op;
    uint64_t version = op->layout->versions[u->block];
    size_t bytes = overlap_bytes(cut, o);
    uint32_t partition = (uint32_t)(u->partition - op->layout->partitions);
    struct psc__extent *last = r->n_extents ? &op->extents[r->last_extent] : NULL;
    r->is.bytes += bytes;
    if (last && last->partition == partition && last->tensor == o->of->tensor) {
        last->count += o->count;
        last->bytes += bytes;
        last->version = version < last->version ? version : last->version;
        return true;
    }
    if (!cut_reserve_extent(op))
        return false;
    uint32_t i = op->n_extents++;
    struct psc__extent *extent = &op->extents[i];
    *extent = (struct psc__extent){.partition = partition,
                                   .next = PSC__NO_EXTENT,
                                   .tensor = o->of->tensor,
                                   .slot = o->of->slot,
                                   .is_strings = o->of->variable->elem_size == 0,
                                   .first = o->first,
                                   .count = o->count,
                                   .version = version,
                                   .bytes = bytes};
    cut_point_to_memory(cut, extent, o);
    if (r->n_extents++)
        op->extents[r->last_extent].next = i;
    else
        r->first_extent = r->place.extent = i;
    r->last_extent = i;
    return true;
}

// All ranges of one variable's values, or of one of its slots.
static enum ps_code cut_variable(struct cutter *cut, const struct range *at, const struct range *end)
{
    struct psc_op *op = cut->op;
    const struct psc__variable *v = at->variable;
    const struct psc__partition *p = &op->layout->partitions[v->first_partition];
    struct walk w = {.at = at, .end = end};
    struct overlap o;
    while (w.at < end) {
        struct unit u = cut_unit_at(cut, &w, p);
        if (cut_check_unit(cut, v, &u) != PS_OK)
            return cut->e->code;
        struct psc__op_request *r = cut_request_for(cut, v, &u);
        if (!r)
            return cut->e->code;
        while (walk_advance(&w, u.end, &o))
            if (!cut_add_overlap(cut, r, &u, &o))
                return ps_no_memory(cut->e, "the ranges of a request");
        p = u.partition;
    }
    return PS_OK;
}

static enum ps_code cut_all(struct cutter *cut)
{
    const struct range *at = cut->ranges, *end = at + cut->spec->n, *next;
    for (; at < end; at = next) {
        for (next = at + 1; next < end && next->variable == at->variable && next->slot == at->slot;)
            next++;
        if (cut_variable(cut, at, next) != PS_OK)
            return cut->e->code;
    }
    return psc__op_encode(cut->op, cut->e);
}

// ---- the whole ----------------------------------------------------------------------------------------------------

static size_t cut_limit(const struct psc_op *op)
{
    size_t chunk = op->client->chunk_bytes, reply = PS_CHUNK_MAX - PSC__REPLY_MARGIN;
    if (op->method == PARAMSERVER__V1__METHOD__PUSH_PULL && chunk > reply)
        return reply;
    return chunk;
}

void psc__cutting_free(struct psc_client *c)
{
    if (c->cutting) {
        free(c->cutting->ranges);
        free(c->cutting->tasks);
    }
    free(c->cutting);
}

// The client's memory for cutting, with room for n ranges. NULL: no memory.
static struct psc__cutting *cutting_reserve(struct psc_client *c, size_t n)
{
    if (!c->cutting)
        c->cutting = ps_try_alloc(sizeof *c->cutting);
    struct psc__cutting *kept = c->cutting;
    if (kept && !kept->tasks)
        kept->tasks = ps_try_alloc_array(c->n_tasks, sizeof *kept->tasks);
    if (!kept || !kept->tasks)
        return NULL;
    struct range *ranges = ps_try_reserve(kept->ranges, n + 1, &kept->cap_ranges, sizeof *ranges);
    if (!ranges)
        return NULL;
    kept->ranges = ranges;
    kept->marks++;
    return kept;
}

enum ps_code psc__op_cut(struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e)
{
    struct cutter cut = {.op = op, .spec = spec, .e = e, .limit = cut_limit(op), .extents = PSC__EXTENTS_MAX};
    if (op->method == PARAMSERVER__V1__METHOD__GET) {  // one snapshot per task, which psd cuts
        cut.limit = SIZE_MAX;
        cut.extents = PSC__GET_EXTENTS_MAX;
    }
    op->n_tensors = (uint32_t)spec->n;
    if (spec->n >= UINT32_MAX) {
        ps_fail(e, PS_INVALID_ARGUMENT, "%zu tensors", spec->n);
    } else if (!(cut.kept = cutting_reserve(op->client, spec->n))) {
        ps_no_memory(e, "an operation");
    } else {
        cut.ranges = cut.kept->ranges;
        if (cut_check_tensors(&cut) == PS_OK)
            cut_all(&cut);
    }
    return e->code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", op->name);
}
