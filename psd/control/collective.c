// SPDX-License-Identifier: Apache-2.0
//
// Meetings of a job's workers: a barrier, or a reduction, which is a barrier that brings a value. A meeting ends when
// everyone who lives is in it; those who left or died are not waited for. What came of it is kept with each member until
// its next one, so that a retry gets the same answer.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "psd/control/control.h"

#define NO_OP PARAMSERVER__V1__REDUCE_OP__REDUCE_NONE
#define GATHER PARAMSERVER__V1__REDUCE_OP__GATHER
#define BROADCAST PARAMSERVER__V1__REDUCE_OP__BROADCAST

// ---- what came of it ----------------------------------------------------------------------------------------------

static void outcome_unref(struct psd_outcome *o)
{
    if (!o || --o->refs)
        return;
    if (o->value)
        psd_page_unref(o->value);
    free(o->counts);
    free(o->ranks);
    free(o);
}

void psd_visit_clear(struct psd_visit *v)
{
    outcome_unref(v->outcome);
    v->outcome = NULL;
    if (v->value)
        psd_page_unref(v->value);
    v->value = NULL;
}

// NULL: no memory.
static struct psd_outcome *outcome_new(const struct psd_control *c)
{
    struct psd_outcome *o = ps_try_alloc(sizeof *o);
    if (!o)
        return NULL;
    o->refs = 1;
    o->ranks = ps_try_alloc_array(c->workers, sizeof *o->ranks);
    o->counts = ps_try_alloc_array(c->workers, sizeof *o->counts);
    if (!o->ranks || !o->counts) {
        outcome_unref(o);
        return NULL;
    }
    for (uint32_t i = 0; i < c->workers; i++) {
        if (!psd_is_awaited(&c->members[i]))
            continue;
        o->ranks[o->n_ranks] = i;
        o->counts[o->n_ranks++] = c->members[i].visit.count;
    }
    return o;
}

static const struct psd_visit *visit_of(const struct psd_control *c, const struct psd_outcome *o, uint32_t i)
{
    return &c->members[o->ranks[i]].visit;
}

// Not PS_OK and no error in *o: malloc has nothing left, which may be otherwise at the next tick.
static enum ps_code take_page(struct psd_job *job, struct psd_outcome *o, uint64_t bytes)
{
    o->bytes = bytes;
    if (bytes == 0)
        return PS_OK;
    if (!psd_pool_has_room(job->pool, bytes))
        return ps_fail(&o->error, PS_RESOURCE_EXHAUSTED, "a result of %" PRIu64 " bytes does not fit the limit of %zu",
                       bytes, job->pool->limit);
    o->value = psd_page_new(job->pool, bytes);
    return o->value ? PS_OK : PS_RESOURCE_EXHAUSTED;
}

static void gather(struct psd_job *job, const struct psd_control *c, struct psd_outcome *o, size_t size)
{
    uint64_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < o->n_ranks; i++)
        bytes += o->counts[i] * size;
    if (bytes > PS_CHUNK_MAX) {
        ps_fail(&o->error, PS_RESOURCE_EXHAUSTED,
                "gather: %" PRIu32 " workers bring %" PRIu64 " bytes, a reply has at most %d", o->n_ranks, bytes,
                PS_CHUNK_MAX);
        return;
    }
    if (take_page(job, o, bytes))
        return;
    for (uint32_t i = 0; i < o->n_ranks; i++) {
        if (o->counts[i] == 0)
            continue;
        memcpy(o->value->data + at, visit_of(c, o, i)->value->data, o->counts[i] * size);
        at += o->counts[i] * size;
    }
}

static void broadcast(const struct psd_control *c, struct psd_outcome *o, uint32_t root, size_t size)
{
    const struct psd_member *m = root < c->workers ? &c->members[root] : NULL;
    if (!m || !psd_is_awaited(m)) {
        ps_fail(&o->error, PS_ABORTED, "broadcast: worker %" PRIu32 ", whose value it is, is %s", root,
                m ? psd_state_name(m->state) : "none of the job");
        return;
    }
    o->bytes = m->visit.count * size;
    o->value = m->visit.value;
    if (o->value)
        ps_owner_ref(&o->value->owner);
}

// The result so far, and one more value. NaN wins in minimum and maximum, as in numpy.
#define FOLD(type, is_nan)                                              \
    do {                                                                \
        type *to = (type *)o->value->data;                              \
        const type *by = (const type *)v->value->data;                  \
        for (uint64_t k = 0; k < n; k++)                                \
            switch (v->op) {                                            \
            case PARAMSERVER__V1__REDUCE_OP__MIN:                       \
                to[k] = by[k] < to[k] || is_nan(by[k]) ? by[k] : to[k]; \
                break;                                                  \
            case PARAMSERVER__V1__REDUCE_OP__MAX:                       \
                to[k] = by[k] > to[k] || is_nan(by[k]) ? by[k] : to[k]; \
                break;                                                  \
            default:                                                    \
                to[k] += by[k];                                         \
            }                                                           \
    } while (0)

#define DIVIDE(type, by)                        \
    do {                                        \
        type *to = (type *)o->value->data;      \
        for (uint64_t k = 0; k < n; k++)        \
            to[k] = (type)(to[k] / (type)(by)); \
    } while (0)

#define NEVER(x) false

static void fold(struct psd_outcome *o, const struct psd_visit *v, uint64_t n)
{
    bool ordered = v->op == PARAMSERVER__V1__REDUCE_OP__MIN || v->op == PARAMSERVER__V1__REDUCE_OP__MAX;
    switch (v->dtype) {
    case PS_FLOAT32:
        FOLD(float, isnan);
        break;
    case PS_FLOAT64:
        FOLD(double, isnan);
        break;
    case PS_INT32:
        if (ordered)
            FOLD(int32_t, NEVER);
        else
            FOLD(uint32_t, NEVER);  // wraps around
        break;
    case PS_INT64:
        if (ordered)
            FOLD(int64_t, NEVER);
        else
            FOLD(uint64_t, NEVER);
        break;
    }
}

static void divide(struct psd_outcome *o, int dtype, uint64_t n, uint32_t by)
{
    switch (dtype) {
    case PS_FLOAT32:
        DIVIDE(float, by);
        break;
    case PS_FLOAT64:
        DIVIDE(double, by);
        break;
    case PS_INT32:
        DIVIDE(int32_t, (int32_t)by);
        break;
    case PS_INT64:
        DIVIDE(int64_t, (int64_t)by);
        break;
    }
}

// In rank order.
static void reduce(struct psd_job *job, const struct psd_control *c, struct psd_outcome *o,
                   const struct psd_visit *first, size_t size)
{
    uint64_t n = first->count;
    if (take_page(job, o, n * size) || n == 0)
        return;
    memcpy(o->value->data, first->value->data, n * size);
    for (uint32_t i = 1; i < o->n_ranks; i++)
        fold(o, visit_of(c, o, i), n);
    if (first->op == PARAMSERVER__V1__REDUCE_OP__MEAN)
        divide(o, first->dtype, n, o->n_ranks);
}

// What comes of a reduction; NULL: no memory.
static struct psd_outcome *conclude(struct psd_job *job, const struct psd_visit *first)
{
    const struct psd_control *c = job->control;
    struct psd_outcome *o = outcome_new(c);
    size_t size = ps_dtype_size(first->dtype);
    if (!o)
        return NULL;
    if (first->op == GATHER)
        gather(job, c, o, size);
    else if (first->op == BROADCAST)
        broadcast(c, o, first->root, size);
    else
        reduce(job, c, o, first, size);
    if (o->error.code || o->bytes == 0 || o->value)
        return o;
    outcome_unref(o);
    return NULL;
}

void psd_collective_end(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    struct psd_outcome *o = NULL;
    const struct psd_visit *first = NULL;
    for (uint32_t i = 0; i < c->workers && !first; i++)
        first = psd_is_awaited(&c->members[i]) ? &c->members[i].visit : NULL;
    if (first->op != NO_OP && !(o = conclude(job, first)))
        return;  // at the next tick
    psd_clock_align(c);
    for (uint32_t i = 0; i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (!psd_is_awaited(m))
            continue;
        psd_visit_clear(&m->visit);
        m->visit.outcome = o;
        if (o)
            o->refs++;
        m->visit.passed = m->visit.entered;
        psd_ready_all(ready, &m->visit.waiting);
        psd_control_goes_on(c, m);
    }
    outcome_unref(o);
}

// ---- entering -----------------------------------------------------------------------------------------------------

static bool agrees(const struct psd_visit *a, const struct psd_visit *b)
{
    bool counts = a->op == GATHER || a->op == BROADCAST || a->count == b->count;
    return a->op == b->op && a->dtype == b->dtype && a->root == b->root && counts && strcmp(a->name, b->name) == 0;
}

static const char *op_name(Paramserver__V1__ReduceOp op)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&paramserver__v1__reduce_op__descriptor, (int)op);
    return op == NO_OP ? "barrier" : v ? v->name : "?";
}

// Is somebody else in a meeting of another kind? Then the two would wait for each other for ever.
static enum ps_code check_others(struct psd_request *t, const struct psd_visit *mine)
{
    const struct psd_control *c = t->job->control;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct psd_member *m = &c->members[i];
        if (i == t->caller->worker - 1 || !psd_is_live(m) || !psd_in_collective(m) || agrees(&m->visit, mine))
            continue;
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "%s '%s' (%s, %" PRIu64 " elements): worker %" PRIu32 " waits in %s '%s' (%s, %" PRIu64
                       "): they would wait for each other",
                       op_name(mine->op), mine->name, ps_dtype_name(mine->dtype), mine->count, i, op_name(m->visit.op),
                       m->visit.name, ps_dtype_name(m->visit.dtype), m->visit.count);
    }
    return PS_OK;
}

static enum ps_code take_value(struct psd_request *t, struct psd_visit *v)
{
    size_t bytes = t->payload.len;
    if (bytes == 0)
        return PS_OK;
    v->value = psd_pool_has_room(t->job->pool, bytes) ? psd_page_new(t->job->pool, bytes) : NULL;
    if (!v->value)
        return ps_fail(&t->error, PS_RESOURCE_EXHAUSTED, "%s '%s': no memory for a value of %zu bytes", op_name(v->op),
                       v->name, bytes);
    ps_slices_copy_out(&t->payload, 0, bytes, v->value->data);
    return PS_OK;
}

// Job locked. PS_OK: it is over, *visit is the member's.
static int meet(struct psd_request *t, const struct psd_visit *mine, struct psd_visit **visit)
{
    uint64_t sequence = t->caller->sequence;
    struct psd_member *m = psd_live_member(t);
    if (!m)
        return (int)t->error.code;
    struct psd_visit *v = *visit = &m->visit;
    if (sequence == 0)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s: expected a sequence, so that a retry is known as one",
                       op_name(mine->op));
    if (sequence == v->entered && !agrees(v, mine))
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s '%s': sequence %" PRIu64 " was that of %s '%s'",
                       op_name(mine->op), mine->name, sequence, op_name(v->op), v->name);
    // What came of a meeting is known until the next is entered; that a barrier was passed, always.
    if (sequence <= v->passed && (mine->op == NO_OP || sequence == v->entered))
        return PS_OK;
    if (sequence < v->entered)
        return psd_fail_superseded(t, op_name(mine->op), v->entered);
    if (check_others(t, mine))
        return (int)t->error.code;
    if (sequence > v->entered) {
        struct psd_visit fresh = *mine;
        if (take_value(t, &fresh))
            return (int)t->error.code;
        psd_ready_all(&t->ready, &v->waiting);  // for the meeting that is given up: they are told so
        fresh.passed = v->passed;
        fresh.entered = sequence;
        psd_visit_clear(v);
        *v = fresh;
    }
    int code = psd_park(t, &v->waiting);
    if (code == PSD_PARKED) {
        psd_control_waits(m, psd_now(t->core));
        psd_control_advance(t->job, &t->ready);
    }
    return code;
}

static void take_name(struct psd_visit *v, const char *name)
{
    snprintf(v->name, sizeof v->name, "%s", name);
    ps_utf8_repair(v->name);
}

int psd_barrier(struct psd_request *t)
{
    const Paramserver__V1__BarrierRequest *r = (const Paramserver__V1__BarrierRequest *)t->request;
    Paramserver__V1__BarrierReply out = PARAMSERVER__V1__BARRIER_REPLY__INIT;
    struct psd_visit mine = {.op = NO_OP}, *visit;
    take_name(&mine, r->name);
    pthread_mutex_lock(&t->job->lock);
    int code = meet(t, &mine, &visit);
    out.epoch = t->job->control ? t->job->control->epoch : 0;
    pthread_mutex_unlock(&t->job->lock);
    if (code == PSD_PARKED)
        psd_view_spread(t->core, t->job, psd_now(t->core), &t->ready);
    out.generation = t->core->generation;
    return code == PS_OK ? psd_request_reply(t, &out.base, NULL) : code;
}

// ---- Reduce -------------------------------------------------------------------------------------------------------

static enum ps_code check_reduce(struct psd_request *t, const Paramserver__V1__ReduceRequest *r)
{
    bool moves = r->op == GATHER || r->op == BROADCAST;
    bool known = r->op > NO_OP && r->op <= BROADCAST;
    size_t size = ps_dtype_size((int)r->dtype), bytes;
    if (!known)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "reduce '%.80s': there is no operation %d", r->name, (int)r->op);
    if (size == 0 || (!moves && (int)r->dtype > PS_INT64))
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s '%.80s': dtype %d cannot be reduced", op_name(r->op),
                       r->name, (int)r->dtype);
    if (__builtin_mul_overflow(r->count, size, &bytes) || bytes != t->payload.len)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                       "%s '%.80s': %" PRIu64 " elements of %zu bytes were announced, %zu bytes came", op_name(r->op),
                       r->name, r->count, size, t->payload.len);
    if (bytes > PS_CHUNK_MAX)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s '%.80s': %zu bytes; at most %d at once", op_name(r->op),
                       r->name, bytes, PS_CHUNK_MAX);
    return PS_OK;
}

// Job locked.
static int reply_outcome(struct psd_request *t, const struct psd_visit *v)
{
    Paramserver__V1__ReduceReply out = PARAMSERVER__V1__REDUCE_REPLY__INIT;
    struct ps_slices payload = PS_ROPE_EMPTY;
    struct psd_outcome *o = v->outcome;
    if (o->error.code) {
        t->error = o->error;
        return (int)o->error.code;
    }
    out.generation = t->core->generation;
    out.epoch = t->job->control->epoch;
    out.n_ranks = o->n_ranks;
    out.ranks = o->ranks;
    out.n_counts = v->op == GATHER ? o->n_ranks : 0;
    out.counts = o->counts;
    if (o->bytes) {
        ps_owner_ref(&o->value->owner);
        ps_slices_add(&payload, (struct ps_slice){o->value->data, o->bytes, &o->value->owner});
    }
    return psd_request_reply(t, &out.base, &payload);
}

int psd_reduce(struct psd_request *t)
{
    const Paramserver__V1__ReduceRequest *r = (const Paramserver__V1__ReduceRequest *)t->request;
    struct psd_visit mine = {.op = r->op, .dtype = (int)r->dtype, .count = r->count, .root = r->root}, *visit;
    if (check_reduce(t, r))
        return (int)t->error.code;
    take_name(&mine, r->name);
    pthread_mutex_lock(&t->job->lock);
    int code = meet(t, &mine, &visit);
    if (code == PS_OK)
        code = reply_outcome(t, visit);
    pthread_mutex_unlock(&t->job->lock);
    if (code == PSD_PARKED)
        psd_view_spread(t->core, t->job, psd_now(t->core), &t->ready);
    return code;
}
