// SPDX-License-Identifier: Apache-2.0
//
// Collectives of a job's workers: a barrier, or a reduction, which is a barrier that brings a value. A collective
// completes when every live worker is in it; workers that left or died are not waited for. Each member keeps the result
// until it enters the next collective, so that a retry gets the same answer.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/sometimes.h"
#include "psd/control/state.h"

#define NO_OP PARAMSERVER__V1__REDUCE_OP__REDUCE_NONE
#define GATHER PARAMSERVER__V1__REDUCE_OP__GATHER
#define BROADCAST PARAMSERVER__V1__REDUCE_OP__BROADCAST

// ---- results ------------------------------------------------------------------------------------------------------

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

void psd_participation_clear(struct psd_participation *v)
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
        o->counts[o->n_ranks++] = c->members[i].participation.count;
    }
    return o;
}

static const struct psd_participation *outcome_brought(const struct psd_control *c, const struct psd_outcome *o,
                                                       uint32_t i)
{
    return &c->members[o->ranks[i]].participation;
}

// Not PS_OK and no error in *o: malloc has nothing left, which may be otherwise at the next tick.
static enum ps_code outcome_take_page(struct psd_job *job, struct psd_outcome *o, uint64_t bytes)
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

static void reduce_gather(struct psd_job *job, const struct psd_control *c, struct psd_outcome *o, size_t size)
{
    uint64_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < o->n_ranks; i++)
        bytes += o->counts[i] * size;
    if (bytes > PSD_REDUCE_MAX) {
        ps_fail(&o->error, PS_FAILED_PRECONDITION,
                "gather: %" PRIu32 " workers bring %" PRIu64 " bytes, a reply has at most %d", o->n_ranks, bytes,
                PSD_REDUCE_MAX);
        return;
    }
    if (outcome_take_page(job, o, bytes))
        return;
    for (uint32_t i = 0; i < o->n_ranks; i++) {
        if (o->counts[i] == 0)
            continue;
        memcpy(o->value->data + at, outcome_brought(c, o, i)->value->data, o->counts[i] * size);
        at += o->counts[i] * size;
    }
}

static void reduce_broadcast(const struct psd_control *c, struct psd_outcome *o, uint32_t root, size_t size)
{
    const struct psd_member *m = root < c->workers ? &c->members[root] : NULL;
    if (!m || !psd_is_awaited(m)) {
        ps_fail(&o->error, PS_ABORTED, "broadcast: worker %" PRIu32 ", whose value it is, is %s", root,
                m ? psd_state_name(m->state) : "none of the job");
        return;
    }
    o->bytes = m->participation.count * size;
    o->value = m->participation.value;
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

static void reduce_fold(struct psd_outcome *o, const struct psd_participation *v, uint64_t n)
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

static void reduce_divide(struct psd_outcome *o, int dtype, uint64_t n, uint32_t by)
{
    switch (dtype) {
    case PS_FLOAT32:
        DIVIDE(float, by);
        break;
    case PS_FLOAT64:
        DIVIDE(double, by);
        break;
    }
}

// The mean of integers is that of their sum as it is, not as it wraps around: in 128 bits.
#define MEAN_OF_INTEGERS(type)                                                   \
    do {                                                                         \
        type *to = (type *)o->value->data;                                       \
        for (uint64_t k = 0; k < n; k++) {                                       \
            __int128 sum = 0;                                                    \
            for (uint32_t i = 0; i < o->n_ranks; i++)                            \
                sum += ((const type *)outcome_brought(c, o, i)->value->data)[k]; \
            to[k] = (type)(sum / o->n_ranks);                                    \
        }                                                                        \
    } while (0)

// In rank order.
static void reduce_values(struct psd_job *job, const struct psd_control *c, struct psd_outcome *o,
                          const struct psd_participation *first, size_t size)
{
    uint64_t n = first->count;
    if (outcome_take_page(job, o, n * size) || n == 0)
        return;
    if (first->op == PARAMSERVER__V1__REDUCE_OP__MEAN && first->dtype == PS_INT32) {
        MEAN_OF_INTEGERS(int32_t);
        return;
    }
    if (first->op == PARAMSERVER__V1__REDUCE_OP__MEAN && first->dtype == PS_INT64) {
        MEAN_OF_INTEGERS(int64_t);
        return;
    }
    memcpy(o->value->data, first->value->data, n * size);
    for (uint32_t i = 1; i < o->n_ranks; i++)
        reduce_fold(o, outcome_brought(c, o, i), n);
    if (first->op == PARAMSERVER__V1__REDUCE_OP__MEAN)
        reduce_divide(o, first->dtype, n, o->n_ranks);
}

// What comes of a reduction; NULL: no memory.
static struct psd_outcome *collective_conclude(struct psd_job *job, const struct psd_participation *first)
{
    const struct psd_control *c = job->control;
    struct psd_outcome *o = outcome_new(c);
    size_t size = ps_dtype_size(first->dtype);
    if (!o)
        return NULL;
    if (first->op == GATHER)
        reduce_gather(job, c, o, size);
    else if (first->op == BROADCAST)
        reduce_broadcast(c, o, first->root, size);
    else
        reduce_values(job, c, o, first, size);
    if (o->error.code || o->bytes == 0 || o->value)
        return o;
    outcome_unref(o);
    return NULL;
}

void psd_collective_complete(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    struct psd_outcome *o = NULL;
    const struct psd_participation *first = NULL;
    for (uint32_t i = 0; i < c->workers && !first; i++)
        first = psd_is_awaited(&c->members[i]) ? &c->members[i].participation : NULL;
    if (first->op != NO_OP && !(o = collective_conclude(job, first)))
        return;  // at the next tick
    psd_clock_align(c);
    for (uint32_t i = 0; i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (!psd_is_awaited(m))
            continue;
        psd_participation_clear(&m->participation);
        m->participation.outcome = o;
        if (o)
            o->refs++;
        m->participation.passed = m->participation.entered;
        psd_ready_after(ready, &m->participation.waiting, c->mover);
        psd_member_goes_on(c, m);
        psd_clock_level(c, m);
    }
    outcome_unref(o);
}

// ---- entering -----------------------------------------------------------------------------------------------------

static bool collective_agrees(const struct psd_participation *a, const struct psd_participation *b)
{
    bool counts = a->op == GATHER || a->op == BROADCAST || a->count == b->count;
    return a->op == b->op && a->dtype == b->dtype && a->root == b->root && counts && strcmp(a->name, b->name) == 0;
}

const char *psd_reduce_op_name(Paramserver__V1__ReduceOp op)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&paramserver__v1__reduce_op__descriptor, (int)op);
    return op == NO_OP ? "barrier" : v ? v->name : "?";
}

// "reduce 'sum' (float32, 3 elements)"; of a barrier, which has no values, "barrier 'end'".
static const char *collective_text(const struct psd_participation *p, char *text, size_t size)
{
    const char *const what = psd_reduce_op_name(p->op);
    if (p->op == NO_OP)
        snprintf(text, size, "%s '%s'", what, p->name);
    else
        snprintf(text, size, "%s '%s' (%s, %" PRIu64 " elements)", what, p->name, ps_dtype_name(p->dtype), p->count);
    return text;
}

// Is somebody else in another collective? Then the two would wait for each other for ever. All others are in the same
// one.
static enum ps_code collective_check_others(const struct psd_control *c, const struct psd_member *me,
                                            const struct psd_participation *wish, struct ps_error *e)
{
    uint32_t rank = c->in_collective.first;
    while (rank != PS_NO_ITEM && (rank == psd_rank_of(c, me) || !psd_in_collective(&c->members[rank])))
        rank = ps_queue_next(&c->in_collective, rank);
    if (rank == PS_NO_ITEM || collective_agrees(&c->members[rank].participation, wish))
        return PS_OK;
    const struct psd_participation *other = &c->members[rank].participation;
    char mine[160], theirs[160];
    return ps_fail(e, PS_FAILED_PRECONDITION, "%s: worker %" PRIu32 " waits in %s: they would wait for each other",
                   collective_text(wish, mine, sizeof mine), rank, collective_text(other, theirs, sizeof theirs));
}

static enum ps_code collective_take_value(struct psd_pool *pool, const struct ps_slices *value,
                                          struct psd_participation *p, struct ps_error *e)
{
    size_t bytes = value->len;
    if (bytes == 0)
        return PS_OK;
    p->value = psd_pool_has_room(pool, bytes) ? psd_page_new(pool, bytes) : NULL;
    if (!p->value)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s '%s': no memory for a value of %zu bytes",
                       psd_reduce_op_name(p->op), p->name, bytes);
    ps_slices_copy_out(value, 0, bytes, p->value->data);
    return PS_OK;
}

int psd_collective_enter(struct psd_job *job, struct psd_member *m, const Paramserver__V1__Caller *caller,
                         const struct psd_participation *wish, const struct ps_slices *value, struct psd_call **ready,
                         struct ps_error *e)
{
    struct psd_participation *p = &m->participation, entered = *wish;
    const uint64_t sequence = caller->sequence;
    const char *what = psd_reduce_op_name(wish->op);
    if (sequence == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected a sequence, so that a retry is known as one", what);
    if (sequence == p->entered && !collective_agrees(p, wish))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s '%s': sequence %" PRIu64 " was that of %s '%s'", what, wish->name,
                       sequence, psd_reduce_op_name(p->op), p->name);
    // The result is kept until the next collective is entered; that a barrier was passed is known always.
    if (sequence <= p->passed && (wish->op == NO_OP || sequence == p->entered)) {
        ps_sometimes(PS_SOMETIMES_BARRIER_AGAIN);
        return PS_OK;
    }
    if (sequence < p->entered)
        return psd_fail_superseded(caller, what, p->entered, e);
    if (collective_check_others(job->control, m, wish, e))
        return (int)e->code;
    if (sequence == p->entered)
        return PSD_WAITS;
    job->control->mover = caller->worker;
    if (collective_take_value(job->pool, value, &entered, e))
        return (int)e->code;
    psd_ready_all(ready, &p->waiting);  // they asked for the collective that is given up, and are told so
    entered.passed = p->passed;
    entered.entered = sequence;
    psd_participation_clear(p);
    *p = entered;
    return PSD_WAITS;
}
