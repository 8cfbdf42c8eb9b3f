// SPDX-License-Identifier: Apache-2.0
//
// What a job's workers ask of the control task: Heartbeat, Leave, Barrier, Reduce, Lease, Clock, and Workers for
// people. Each decodes, calls one function of psd/control, lets go on whom that allows to, tells the other tasks, and
// answers.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "psd/control/state.h"
#include "psd/service/service.h"

_Static_assert((int)PSD_WAITS != (int)PSD_PARKED, "what must wait is not parked yet");

// Job locked. What control has decided: a call that must wait is parked in its list.
static int membership_park(struct psd_request *t, struct psd_waiters *list, int code, const struct psd_wait *wait)
{
    return code == PSD_WAITS ? psd_park(t, list, &t->job->lock, wait) : code;
}

// ---- Heartbeat, Leave, Workers ------------------------------------------------------------------------------------

// Job locked. The number of the last checkpoint that was asked for and has not been answered; 0: all have been. Who
// becomes the chief now writes none again that the one before has written.
static uint64_t heartbeat_checkpoint(const struct psd_checkpoints *c)
{
    return c->asked > c->over ? c->asked : 0;
}

// Job locked. The members that have changed since the epoch that the caller knows. Without memory for the list they are
// told with a later heartbeat.
static int heartbeat_reply(struct psd_request *t, const Paramserver__V1__HeartbeatRequest *r, bool drain)
{
    Paramserver__V1__HeartbeatReply out = PARAMSERVER__V1__HEARTBEAT_REPLY__INIT;
    struct psd_member_list list = {0};
    out.generation = t->core->generation;
    out.drain = drain;
    out.epoch = t->job->control->epoch;
    out.live = t->job->control->tally.live;
    out.chief = psd_chief(t->job->control);
    out.chief_is_heir = t->job->control->lost_chief;
    out.furthest = t->job->control->furthest;
    if (out.chief != PS_NO_ITEM)
        out.chief_silent_ms = psd_member_silent_ms(t->job->control, out.chief, psd_now(t->core));
    out.checkpoints = heartbeat_checkpoint(&t->job->control->checkpoints);
    if (psd_members_are_many(t->job->control, r->epoch)) {
        out.n_members = 0;
    } else if (out.epoch != r->epoch && psd_members_list(t->job->control, r->epoch, psd_now(t->core), &list)) {
        out.n_members = list.n;
        out.members = list.pointers;
    } else {
        out.epoch = r->epoch;
    }
    int code = psd_request_reply(t, &out.base, NULL);
    if (code != PS_OK) {
        out.epoch = r->epoch;
        out.n_members = 0;
        code = psd_request_reply(t, &out.base, NULL);
    }
    psd_members_list_free(&list);
    return code;
}

// Job locked. What the chief says of the checkpoints that it was asked for. Of two that it wrote the one that is there
// counts.
static void heartbeat_note_checkpoint(struct psd_checkpoints *c, const Paramserver__V1__HeartbeatRequest *r)
{
    const bool better = r->checkpoint == c->over && c->failed && !r->checkpoint_failed;
    if (r->checkpoint > c->asked || (r->checkpoint <= c->over && !better))
        return;
    c->over = r->checkpoint;
    c->failed = r->checkpoint_failed;
    ps_utf8_cut(r->checkpoint_text, c->text, sizeof c->text);
}

int psd_heartbeat(struct psd_request *t)
{
    const Paramserver__V1__HeartbeatRequest *r = (const Paramserver__V1__HeartbeatRequest *)t->request;
    const uint64_t now = psd_now(t->core);
    pthread_mutex_lock(&t->job->lock);
    struct psd_member *m = psd_member_live(t->job, t->caller, now, &t->error);
    int code = (int)t->error.code;
    if (m) {
        if (r->waits)
            psd_member_waits_on(t->job->control, m, now);
        m->step = r->step;
        if (r->step > t->job->control->furthest)
            t->job->control->furthest = r->step;
        m->examples_per_second = r->examples_per_second;
        m->loss = r->loss;
        heartbeat_note_checkpoint(&t->job->control->checkpoints, r);
        if (r->progress && psd_rank_of(t->job->control, m) == psd_chief(t->job->control))
            ps_progress_read(&t->job->control->progress, r->progress);
        code = heartbeat_reply(t, r, m->draining);
    }
    pthread_mutex_unlock(&t->job->lock);
    return code;
}

int psd_leave(struct psd_request *t)
{
    Paramserver__V1__LeaveReply out = PARAMSERVER__V1__LEAVE_REPLY__INIT;
    uint64_t now = psd_now(t->core);
    pthread_mutex_lock(&t->job->lock);
    int code =
        (int)psd_member_leave(t->job, (const Paramserver__V1__LeaveRequest *)t->request, now, &t->ready, &t->error);
    if (code == PS_OK)
        psd_control_advance(t->job, &t->ready);
    pthread_mutex_unlock(&t->job->lock);
    if (code != PS_OK)
        return code;
    psd_control_broadcast(t->job, now, &t->ready);
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}

enum { WORKERS_ROOM = PS_CHUNK_MAX - 1024, WORKERS_OVERHEAD = 8 };

// As many of n as fit one reply.
static size_t workers_fit_reply(Paramserver__V1__Member *const *members, size_t n)
{
    size_t bytes = 0, i = 0;
    for (; i < n; i++) {
        bytes += WORKERS_OVERHEAD + paramserver__v1__member__get_packed_size(members[i]);
        if (bytes > WORKERS_ROOM)
            break;
    }
    return i;
}

int psd_workers(struct psd_request *t)
{
    const Paramserver__V1__WorkersRequest *r = (const Paramserver__V1__WorkersRequest *)t->request;
    Paramserver__V1__WorkersReply out = PARAMSERVER__V1__WORKERS_REPLY__INIT;
    struct psd_member_list list;
    if (psd_request_find_job(t, r->job))
        return (int)t->error.code;
    pthread_mutex_lock(&t->job->lock);
    struct psd_control *c = t->job->control;
    int code = PS_OK;
    if (!c)
        code = ps_fail(&t->error, PS_FAILED_PRECONDITION, "workers are known at ps task 0, this is %" PRIu32,
                       t->core->config.task);
    else if (!psd_members_list(c, 0, psd_now(t->core), &list))
        code = ps_no_memory(&t->error, "a list of members");
    if (code == PS_OK) {
        const size_t skip = r->skip < list.n ? r->skip : list.n;
        out.epoch = c->epoch;
        out.total = (uint32_t)list.n;
        out.members = list.pointers + skip;
        out.n_members = workers_fit_reply(out.members, list.n - skip);
        code = psd_request_reply(t, &out.base, NULL);
        psd_members_list_free(&list);
    }
    pthread_mutex_unlock(&t->job->lock);
    return code;
}

// ---- Barrier, Reduce ----------------------------------------------------------------------------------------------

static struct psd_wait membership_collective_wait(const struct psd_participation *wish, uint64_t sequence)
{
    struct psd_wait wait = {.kind = wish->op ? PARAMSERVER__V1__WAIT_KIND__FOR_REDUCTION
                                             : PARAMSERVER__V1__WAIT_KIND__FOR_BARRIER,
                            .number = sequence};
    memcpy(wait.name, wish->name, sizeof wait.name - 1);
    return wait;
}

// Job locked. PS_OK: the collective is over, *m is the caller.
static int membership_collect(struct psd_request *t, const struct psd_participation *wish, struct psd_member **m)
{
    uint64_t now = psd_now(t->core);
    *m = psd_member_live(t->job, t->caller, now, &t->error);
    if (!*m)
        return (int)t->error.code;
    int code = psd_collective_enter(t->job, *m, t->caller, wish, &t->payload, &t->ready, &t->error);
    const struct psd_wait wait = membership_collective_wait(wish, t->caller->sequence);
    code = membership_park(t, &(*m)->participation.waiting, code, &wait);
    if (code == PSD_PARKED) {
        psd_member_waits(t->job->control, *m, now);
        psd_control_advance(t->job, &t->ready);
    }
    return code;
}

static void collective_name(struct psd_participation *p, const char *name)
{
    snprintf(p->name, sizeof p->name, "%s", name);
    ps_utf8_repair(p->name);
}

int psd_barrier(struct psd_request *t)
{
    const Paramserver__V1__BarrierRequest *r = (const Paramserver__V1__BarrierRequest *)t->request;
    Paramserver__V1__BarrierReply out = PARAMSERVER__V1__BARRIER_REPLY__INIT;
    struct psd_participation wish = {.op = PARAMSERVER__V1__REDUCE_OP__REDUCE_NONE};
    struct psd_member *m;
    collective_name(&wish, r->name);
    pthread_mutex_lock(&t->job->lock);
    int code = membership_collect(t, &wish, &m);
    out.epoch = t->job->control ? t->job->control->epoch : 0;
    pthread_mutex_unlock(&t->job->lock);
    if (code == PSD_PARKED)
        psd_control_broadcast(t->job, psd_now(t->core), &t->ready);
    out.generation = t->core->generation;
    return code == PS_OK ? psd_request_reply(t, &out.base, NULL) : code;
}

static enum ps_code reduce_check(struct psd_request *t, const Paramserver__V1__ReduceRequest *r)
{
    const char *op = psd_reduce_op_name(r->op);
    bool moves = r->op == PARAMSERVER__V1__REDUCE_OP__GATHER || r->op == PARAMSERVER__V1__REDUCE_OP__BROADCAST;
    bool known = r->op > PARAMSERVER__V1__REDUCE_OP__REDUCE_NONE && r->op <= PARAMSERVER__V1__REDUCE_OP__BROADCAST;
    size_t size = ps_dtype_size((int)r->dtype), bytes;
    if (!known)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "reduce '%.80s': there is no operation %d", r->name, (int)r->op);
    if (size == 0 || (!moves && (int)r->dtype > PS_INT64))
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s '%.80s': %s cannot be reduced", op, r->name,
                       ps_dtype_name((int)r->dtype));
    if (__builtin_mul_overflow(r->count, size, &bytes) || bytes != t->payload.len)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                       "%s '%.80s': %" PRIu64 " elements of %zu bytes were announced, %zu bytes came", op, r->name,
                       r->count, size, t->payload.len);
    if (bytes > PSD_REDUCE_MAX)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s '%.80s': %zu bytes; at most %d at once", op, r->name, bytes,
                       PSD_REDUCE_MAX);
    return PS_OK;
}

// Job locked.
static int reduce_reply(struct psd_request *t, const struct psd_participation *p)
{
    Paramserver__V1__ReduceReply out = PARAMSERVER__V1__REDUCE_REPLY__INIT;
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct psd_outcome *o = p->outcome;
    if (o->error.code) {
        t->error = o->error;
        return (int)o->error.code;
    }
    out.generation = t->core->generation;
    out.epoch = t->job->control->epoch;
    out.n_ranks = o->n_ranks;
    out.ranks = o->ranks;
    out.n_counts = p->op == PARAMSERVER__V1__REDUCE_OP__GATHER ? o->n_ranks : 0;
    out.counts = o->counts;
    if (o->bytes) {
        ps_owner_ref(&o->value->owner);
        ps_slices_add(&payload, (struct ps_slice){o->value->data, o->bytes, &o->value->owner});
    }
    return psd_request_reply(t, &out.base, &payload);
}

// The member keeps the value that it has brought: a call that waits goes on without its payload.
static int reduce_collect(struct psd_request *t)
{
    const Paramserver__V1__ReduceRequest *r = (const Paramserver__V1__ReduceRequest *)t->request;
    struct psd_participation wish = {.op = r->op, .dtype = (int)r->dtype, .count = r->count, .root = r->root};
    struct psd_member *m;
    psd_request_wait_with(t, reduce_collect, NULL, NULL);
    collective_name(&wish, r->name);
    pthread_mutex_lock(&t->job->lock);
    int code = membership_collect(t, &wish, &m);
    if (code == PS_OK)
        code = reduce_reply(t, &m->participation);
    pthread_mutex_unlock(&t->job->lock);
    if (code == PSD_PARKED)
        psd_control_broadcast(t->job, psd_now(t->core), &t->ready);
    return code;
}

int psd_reduce(struct psd_request *t)
{
    const Paramserver__V1__ReduceRequest *r = (const Paramserver__V1__ReduceRequest *)t->request;
    return reduce_check(t, r) ? (int)t->error.code : reduce_collect(t);
}

// ---- Lease, Clock -------------------------------------------------------------------------------------------------

// Job locked.
static void lease_fill(const struct psd_control *c, const struct psd_assignment *given,
                       Paramserver__V1__LeaseReply *out)
{
    out->first = given->first;
    out->count = given->count;
    out->stride = given->stride;
    out->end = given->end;
    out->steps = given->steps;
    out->round = given->stride ? c->data.round : 0;
    out->update = c->mode.update;
    out->steps_before = c->steps_before;
    out->iterations_before = c->iterations_before;
    out->furthest = c->furthest;
    out->epoch = c->data.number;
}

int psd_lease(struct psd_request *t)
{
    const Paramserver__V1__LeaseRequest *r = (const Paramserver__V1__LeaseRequest *)t->request;
    Paramserver__V1__LeaseReply out = PARAMSERVER__V1__LEASE_REPLY__INIT;
    struct psd_assignment given = {0};
    uint64_t now = psd_now(t->core);
    pthread_mutex_lock(&t->job->lock);
    struct psd_member *m = psd_member_live(t->job, t->caller, now, &t->error);
    int code = m ? psd_lease_take(t->job, m, r, &given, &t->ready, &t->error) : (int)t->error.code;
    const struct psd_wait wait = {.kind = PARAMSERVER__V1__WAIT_KIND__FOR_SHARE, .number = r->epoch + 1};
    code = membership_park(t, m ? &m->for_lease : NULL, code, &wait);
    if (code == PSD_PARKED) {
        psd_member_waits(t->job->control, m, now);
        psd_control_advance(t->job, &t->ready);
    }
    if (code == PS_OK)
        lease_fill(t->job->control, &given, &out);
    pthread_mutex_unlock(&t->job->lock);
    if (code == PSD_PARKED)
        psd_control_broadcast(t->job, now, &t->ready);
    out.generation = t->core->generation;
    return code == PS_OK ? psd_request_reply(t, &out.base, NULL) : code;
}

int psd_clock(struct psd_request *t)
{
    const Paramserver__V1__ClockRequest *r = (const Paramserver__V1__ClockRequest *)t->request;
    Paramserver__V1__ClockReply out = PARAMSERVER__V1__CLOCK_REPLY__INIT;
    pthread_mutex_lock(&t->job->lock);
    struct psd_member *m = psd_member_live(t->job, t->caller, psd_now(t->core), &t->error);
    int code = m ? psd_clock_step(t->job, m, r, &out, &t->ready, &t->error) : (int)t->error.code;
    const struct psd_wait wait = {.kind = PARAMSERVER__V1__WAIT_KIND__FOR_CLOCK,
                                  .number = m ? psd_clock_gate(t->job->control, m) : 0};
    code = membership_park(t, m ? &m->for_clock : NULL, code, &wait);
    if (code == PSD_PARKED)
        psd_member_recount(t->job->control, m);
    pthread_mutex_unlock(&t->job->lock);
    out.generation = t->core->generation;
    return code == PS_OK ? psd_request_reply(t, &out.base, NULL) : code;
}
