// SPDX-License-Identifier: Apache-2.0
// Calls at the control task that wait for other workers: barrier, lease, clock; and the last one, leave.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/utf8.h"
#include "common/wire/wire.h"
#include "libclient/client.h"

// Where a worker may be silent for longer, one that is done tries for as long as that.
enum { LEAVE_TIMEOUT_MS = 2000, LEAVE_REASON_MAX = 320 };  // bytes of a reason, with its end: as many as psd keeps

struct control_call {
    struct psc_client *client;
    const struct kind *kind;
    psc_share *share;           // lease, of
    uint64_t examples, want;    // so many in the epoch and at once
    uint64_t batch;             // and in a batch of a sync share
    uint64_t *clock, *slowest;  // clock
    psc__done_fn done;
    void *arg;
};

struct kind {
    int method;
    bool mutates;
    const ProtobufCMessageDescriptor *reply;
    uint64_t (*generation)(const ProtobufCMessage *m);
    uint64_t (*epoch)(const ProtobufCMessage *m);  // of the members; may be NULL
    void (*take)(const struct control_call *v, const ProtobufCMessage *m, struct ps_error *e);  // likewise
};

static const struct kind leave;

static void control_members_heard(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct control_call *v = arg;
    struct ps_error e = *error;
    psc__lock(v->client);
    if (e.code == PS_OK)
        psc__heartbeat_heard(v->client, reply, &e);
    psc__unlock(v->client);
    v->done(v->arg, &(struct ps_error){.code = PS_OK});  // all have met, whatever became of the heartbeat
    free(v);
}

// Who has met the others may rely on knowing who they are. True: control_members_heard goes on.
static bool control_asks_for_members(struct control_call *v, uint64_t epoch)
{
    struct ps_error e;
    psc__lock(v->client);
    bool asks =
        epoch > v->client->member.epoch && psc__heartbeat(v->client, control_members_heard, v, true, &e) == PS_OK;
    psc__unlock(v->client);
    return asks;
}

static void control_answered(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct control_call *v = arg;
    struct psc__task *control = &v->client->tasks[0];
    struct ps_error e = *error;
    uint64_t epoch = 0;
    ProtobufCMessage *m;
    if (e.code == PS_OK && psc__decode(control, v->kind->reply, reply, &m, &e) == PS_OK) {
        psc__lock(v->client);
        psc__check_generation(control, v->kind->generation(m), &e);
        psc__unlock(v->client);
        if (e.code == PS_OK && v->kind->take)
            v->kind->take(v, m, &e);
        if (v->kind->epoch)
            epoch = v->kind->epoch(m);
        ps_msg_free(m);
    }
    if (e.code != PS_OK)
        ps_error_prefix(&e, "%s", psc__method_name(v->kind->method));
    else if (control_asks_for_members(v, epoch))
        return;
    v->done(v->arg, &e);
    free(v);
}

// Locked. What cannot be started is for the caller to tell.
static enum ps_code control_start(const struct control_call *call, const ProtobufCMessage *request, int timeout_ms,
                                  struct ps_error *e)
{
    struct control_call *v = ps_try_alloc(sizeof *v);
    if (!v)
        return ps_no_memory(e, "a call");
    *v = *call;
    struct psc__call_spec spec = {.method = v->kind->method,
                                  .message = request,
                                  .timeout_ms = timeout_ms,
                                  .refused_ms = v->kind == &leave ? LEAVE_TIMEOUT_MS : 0,
                                  .mutates = v->kind->mutates,
                                  .last = v->kind == &leave,
                                  .done = control_answered,
                                  .arg = v,
                                  .owns_arg = true};
    if (psc__call_locked(v->client, &spec, e) != PS_OK)
        free(v);
    return e->code;
}

static void control_begin(const struct control_call *v, const ProtobufCMessage *request, int timeout_ms)
{
    struct ps_error e = {.code = PS_OK};
    psc__lock(v->client);
    enum ps_code code = control_start(v, request, timeout_ms, &e);
    psc__unlock(v->client);
    if (code == PS_OK)
        return;
    ps_error_prefix(&e, "%s", psc__method_name(v->kind->method));
    v->done(v->arg, &e);
}

// ---- barrier ------------------------------------------------------------------------------------------------------

static uint64_t barrier_generation(const ProtobufCMessage *m)
{
    return ((const Paramserver__V1__BarrierReply *)m)->generation;
}

static uint64_t barrier_epoch(const ProtobufCMessage *m)
{
    return ((const Paramserver__V1__BarrierReply *)m)->epoch;
}

static const struct kind barrier = {PARAMSERVER__V1__METHOD__BARRIER,
                                    true,
                                    &paramserver__v1__barrier_reply__descriptor,
                                    barrier_generation,
                                    barrier_epoch,
                                    NULL};

void psc__barrier(struct psc_client *c, const char *name, psc__done_fn done, void *arg)
{
    Paramserver__V1__BarrierRequest request = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    request.name = (char *)name;
    control_begin(&(struct control_call){.client = c, .kind = &barrier, .done = done, .arg = arg}, &request.base,
                  PSC__NO_LIMIT);
}

// ---- lease --------------------------------------------------------------------------------------------------------

static uint64_t lease_generation(const ProtobufCMessage *m)
{
    return ((const Paramserver__V1__LeaseReply *)m)->generation;
}

// A psd that says nothing of it has one mode alone, as has a job whose workers do not follow another.
static psc_update lease_update(const struct control_call *v, const Paramserver__V1__LeaseReply *r)
{
    switch (v->client->follows_mode ? r->update : PARAMSERVER__V1__UPDATE__UPDATE_NONE) {
    case PARAMSERVER__V1__UPDATE__ASYNC:
        return PSC_ASYNC;
    case PARAMSERVER__V1__UPDATE__SYNC:
        return PSC_SYNC;
    case PARAMSERVER__V1__UPDATE__SSP:
        return PSC_SSP;
    default:
        return v->client->update;
    }
}

// Would a trainer that takes it stay within the epoch? Batches of a sync share may be empty, past its end.
static bool lease_fits(const struct control_call *v, const Paramserver__V1__LeaseReply *r)
{
    if (r->count == 0)
        return true;
    if (lease_update(v, r) != PSC_SYNC)
        return r->count <= v->want && r->first < v->examples && r->count <= v->examples - r->first;
    return r->count <= v->batch && r->first <= r->end && r->end <= v->examples && r->stride && r->steps &&
           r->steps - 1 <= (UINT64_MAX - r->first) / r->stride;
}

static void lease_take(const struct control_call *v, const ProtobufCMessage *m, struct ps_error *e)
{
    const Paramserver__V1__LeaseReply *r = (const Paramserver__V1__LeaseReply *)m;
    if (!lease_fits(v, r)) {
        ps_fail(e, PS_INTERNAL,
                PSC__TASK ": the share from %" PRIu64 " on, of %" PRIu64 " at once, every %" PRIu64 ", %" PRIu64
                          " times up to %" PRIu64 ", is none of %" PRIu64 " examples",
                PSC__TASK_ARGS(&v->client->tasks[0]), r->first, r->count, r->stride, r->steps, r->end, v->examples);
        return;
    }
    *v->share = (psc_share){.first = r->first,
                            .count = r->count,
                            .stride = r->stride,
                            .end = r->end,
                            .steps = r->steps,
                            .round = r->round,
                            .update = lease_update(v, r),
                            .steps_before = r->steps_before,
                            .iterations_before = r->iterations_before,
                            .furthest = r->furthest};
    psc__lock(v->client);
    if (v->client->member.late && r->count == 0 && r->epoch > v->client->member.data_epoch)
        v->client->member.data_epoch = r->epoch;
    psc__unlock(v->client);
}

static const struct kind lease = {PARAMSERVER__V1__METHOD__LEASE,
                                  true,
                                  &paramserver__v1__lease_reply__descriptor,
                                  lease_generation,
                                  NULL,
                                  lease_take};

static void lease_begin(const struct control_call *v, Paramserver__V1__LeaseRequest *request)
{
    psc_client *c = v->client;
    request->examples = v->examples;
    request->want = v->want;
    request->batch = c->share_batch;
    psc__lock(c);
    request->begin = request->epoch == c->skip_epoch ? c->skip : 0;
    request->steps_before = c->steps_before;
    request->iterations_before = c->iterations_before;
    psc__unlock(c);
    control_begin(v, &request->base, PSC__NO_LIMIT);
}

void psc_skip_examples(psc_client *c, uint64_t epoch, uint64_t examples)
{
    psc__lock(c);
    c->skip_epoch = epoch;
    c->skip = examples;
    psc__unlock(c);
}

void psc_count_from(psc_client *c, uint64_t steps, uint64_t iterations)
{
    psc__lock(c);
    c->steps_before = steps;
    c->iterations_before = iterations;
    psc__unlock(c);
}

void psc__lease(struct psc_client *c, uint64_t epoch, uint64_t examples, uint64_t want, uint64_t round,
                psc_share *share, psc__done_fn done, void *arg)
{
    const uint64_t batch = c->share_batch ? c->share_batch : want;
    const struct control_call v = {c, &lease, share, examples, want, batch, .done = done, .arg = arg};
    Paramserver__V1__LeaseRequest request = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    request.epoch = epoch;
    request.round = round;
    request.rounds = c->share_rounds;
    lease_begin(&v, &request);
}

void psc__lease_ahead(struct psc_client *c, uint64_t epoch, uint64_t examples, uint64_t want, psc_share *share,
                      psc__done_fn done, void *arg)
{
    const struct control_call v = {c, &lease, share, examples, want, want, .done = done, .arg = arg};
    Paramserver__V1__LeaseRequest request = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    request.epoch = epoch;
    request.ahead = true;
    lease_begin(&v, &request);
}

// ---- clock --------------------------------------------------------------------------------------------------------

static uint64_t clock_generation(const ProtobufCMessage *m)
{
    return ((const Paramserver__V1__ClockReply *)m)->generation;
}

static void clock_take(const struct control_call *v, const ProtobufCMessage *m, struct ps_error *e)
{
    (void)e;
    const Paramserver__V1__ClockReply *r = (const Paramserver__V1__ClockReply *)m;
    if (v->clock)
        *v->clock = r->clock;
    if (v->slowest)
        *v->slowest = r->slowest;
}

// The number of the step makes it safe to repeat: it needs no sequence.
static const struct kind clock_kind = {PARAMSERVER__V1__METHOD__CLOCK,
                                       false,
                                       &paramserver__v1__clock_reply__descriptor,
                                       clock_generation,
                                       NULL,
                                       clock_take};

void psc__clock(struct psc_client *c, uint64_t step, bool wait, uint64_t *clock, uint64_t *slowest, psc__done_fn done,
                void *arg)
{
    Paramserver__V1__ClockRequest request = PARAMSERVER__V1__CLOCK_REQUEST__INIT;
    struct control_call v = {
        .client = c, .kind = &clock_kind, .clock = clock, .slowest = slowest, .done = done, .arg = arg};
    request.step = step;
    request.wait = wait;
    control_begin(&v, &request.base, wait ? PSC__NO_LIMIT : (int)(c->timeout_ns / PS_MS));
}

// ---- leave --------------------------------------------------------------------------------------------------------

static uint64_t leave_generation(const ProtobufCMessage *m)
{
    (void)m;
    return 0;
}

static const struct kind leave = {
    PARAMSERVER__V1__METHOD__LEAVE, false, &paramserver__v1__leave_reply__descriptor, leave_generation, NULL, NULL};

struct leaving {
    struct psc_client *client;
    psc__done_fn done;
    void *arg;
    bool failed;
    char reason[];
};

// Without its Leave a worker that is done counts as dead, and its job as failed; for one that has failed that is no
// other end. Where nobody listens the job is lost, and nobody waits for long.
static int leave_timeout_ms(const struct psc_client *c, const char *reason)
{
    const int patience_ms = (int)(c->member.dead_after_ns / PS_MS);
    return !reason && patience_ms > LEAVE_TIMEOUT_MS ? patience_ms : LEAVE_TIMEOUT_MS;
}

// reason NULL: done.
static void leave_send(struct psc_client *c, const char *reason, psc__done_fn done, void *arg)
{
    Paramserver__V1__LeaveRequest request = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
    struct control_call v = {.client = c, .kind = &leave, .done = done, .arg = arg};
    struct ps_error e = {.code = PS_OK};
    request.failed = reason != NULL;
    if (reason)
        request.reason = (char *)reason;
    psc__lock(c);
    request.interrupted = reason && c->member.interrupted;
    enum ps_code code = control_start(&v, &request.base, leave_timeout_ms(c, reason), &e);
    psc__unlock(c);
    if (code != PS_OK)
        done(arg, &e);
}

// The last heartbeat has been answered, or never will be.
static void leave_reported(void *arg, const struct ps_error *e, struct ps_slices *reply)
{
    struct leaving *l = arg;
    (void)e, (void)reply;
    leave_send(l->client, l->failed ? l->reason : NULL, l->done, l->arg);
    free(l);
}

// Sends psc_report's last numbers, if no heartbeat has brought them; leave_reported goes on. False: there is nothing to
// send, or no memory to do so.
static bool leave_report(struct psc_client *c, const char *reason, psc__done_fn done, void *arg)
{
    struct ps_error e;
    size_t size = reason ? strlen(reason) + 1 : 0;
    struct leaving *l = ps_try_alloc(sizeof *l + size);
    if (!l)
        return false;
    *l = (struct leaving){.client = c, .done = done, .arg = arg, .failed = reason != NULL};
    if (reason)
        memcpy(l->reason, reason, size);
    psc__lock(c);
    bool sent = c->member.unsent && psc__heartbeat(c, leave_reported, l, true, &e) == PS_OK;
    psc__unlock(c);
    if (!sent)
        free(l);
    return sent;
}

void psc__leave(struct psc_client *c, const char *reason, psc__done_fn done, void *arg)
{
    char plain[LEAVE_REASON_MAX];
    if (reason) {  // psd refuses a Leave that is not UTF-8, and the worker would count as dead
        ps_utf8_cut(reason, plain, sizeof plain);
        reason = plain;
    }
    psc__lock(c);
    // A control task that has been given up need not be waited for once more. It hears of the loss of another one.
    bool goodbye = c->member.joined && !c->tasks[0].given_up;
    psc__end(c, PS_CANCELLED, "the client was closed");
    psc__unlock(c);
    if (!goodbye)
        done(arg, &(struct ps_error){.code = PS_OK});
    else if (!leave_report(c, reason, done, arg))
        leave_send(c, reason, done, arg);
}
