// SPDX-License-Identifier: Apache-2.0
#include "psd/service/request.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "psd/job/table.h"

// ---- the end of a request -----------------------------------------------------------------------------------------

const char *psd_request_user(const struct psd_request *t)
{
    return t->call->from ? t->call->from->user : "";
}

bool psd_request_owns(const struct psd_request *t, const struct psd_job *job)
{
    const struct ps_identity *from = t->call->from;
    const char *account = ps_identity_account(from);
    return !*account || from->roles & (PS_ROLE_ADMIN | PS_ROLE_PSD) || strcmp(account, job->user->account) == 0;
}

enum ps_code psd_request_check_owner(struct psd_request *t, const struct psd_job *job)
{
    if (psd_request_owns(t, job))
        return PS_OK;
    return ps_fail(&t->error, PS_PERMISSION_DENIED, "job '%s' is %s's, not %s's: choose another name", job->name,
                   job->user->name[0] ? job->user->name : "nobody", psd_request_user(t));
}

enum ps_code psd_request_check_declared(struct psd_request *t)
{
    if (!atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "job '%s' is not declared on ps task %" PRIu32 " yet",
                       t->job->name, t->core->config.task);
    return PS_OK;
}

enum ps_code psd_request_check_rank(struct psd_request *t)
{
    if (psd_request_check_declared(t))
        return t->error.code;
    if (t->caller->worker > t->job->workers)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "worker %" PRIu32 " of job '%s', which has %" PRIu32,
                       t->caller->worker - 1, t->job->name, t->job->workers);
    return PS_OK;
}

enum ps_code psd_request_fail_no_job(struct psd_request *t, const char *name)
{
    return ps_fail(&t->error, PS_NOT_FOUND, "ps task %" PRIu32 " has no job '%.128s'", t->core->config.task, name);
}

int psd_request_fail_ended(struct psd_request *t)
{
    if (atomic_load(&t->job->stopped) && t->caller)
        return (int)psd_request_fail_no_job(t, t->caller->job);
    return ps_fail(&t->error, PS_ABORTED, "job '%s' has ended: %s", t->job->name, t->job->failure);
}

void psd_drop_job(struct psd_core *core, struct psd_job *gone)
{
    if (!gone)
        return;
    psd_snapshots_expire(&core->snapshots, 0, gone);
    psd_job_unref(gone);
}

void psd_drop_gone(struct psd_request *t)
{
    psd_drop_job(t->core, t->gone);
    t->gone = NULL;
}

// A call that has waited may have taken effect: where there is no memory to go on with it (code RESOURCE_EXHAUSTED), it
// is to be sent again (UNAVAILABLE). Returns the code to answer.
static int request_fail_later(struct psd_request *t, int code)
{
    if (code == PS_RESOURCE_EXHAUSTED && t->call->parked_since)
        code = (int)(t->error.code = PS_UNAVAILABLE);
    return code;
}

enum ps_code psd_request_find_job(struct psd_request *t, const char *name)
{
    t->job = psd_job_find(&t->core->table, name);
    return t->job ? PS_OK : psd_request_fail_no_job(t, name);
}

// ---- parked calls -------------------------------------------------------------------------------------------------

void psd_wait_lower(atomic_ullong *at, uint64_t to)
{
    unsigned long long old = atomic_load(at);
    while (to < old && !atomic_compare_exchange_weak(at, &old, to))
        continue;
}

// A walk over the job's lists raises late_at first, and looks then: it finds this call, or is before this.
static void park_note(const struct psd_core *core, const struct psd_call *call)
{
    if (!call->job)
        return;
    psd_wait_lower(&call->job->late_at, call->deadline);
    if (core->config.stall_ms)
        psd_wait_lower(&call->job->stalled_at, call->parked_since + core->config.stall_ms * PS_MS);
}

// The transport counts a request no more once its message is freed. What is decoded of it stays, but for its payload.
static enum ps_code park_count(struct psd_request *q)
{
    struct psd_core *core = q->core;
    const size_t bytes = PSD_DECODED_FACTOR * protobuf_c_message_get_packed_size(q->request);
    if (bytes <= PSD_PARKED_SMALL)
        return PS_OK;
    if (atomic_fetch_add(&core->parked_bytes, bytes) + bytes > core->config.memory_bytes / PSD_PARKED_FRACTION) {
        atomic_fetch_sub(&core->parked_bytes, bytes);
        return ps_fail(&q->error, PS_UNAVAILABLE,
                       "more large requests wait at ps task %" PRIu32 " than there is room for", core->config.task);
    }
    q->call->counted = bytes;
    q->call->counted_in = &core->parked_bytes;
    return PS_OK;
}

// A call that has waited before for the same goes on with that.
static void park_note_wait(struct psd_request *q, const struct psd_wait *wait)
{
    struct psd_call *call = q->call;
    const bool same = call->wait_since && call->wait.kind == wait->kind && call->wait.number == wait->number;
    if (!same && call->wait_since)
        psd_call_end_wait(q->job, call, PARAMSERVER__V1__WAIT_END__WENT_ON);
    if (!same)
        call->wait_since = psd_now(q->core);
    call->wait = *wait;
}

int psd_park(struct psd_request *q, struct psd_waiters *list, pthread_mutex_t *lock, const struct psd_wait *wait)
{
    struct psd_call *call = q->call;
    if (atomic_load(&q->core->draining))
        return ps_fail(&q->error, PS_UNAVAILABLE, "ps task %" PRIu32 " is shutting down", q->core->config.task);
    if (q->job && psd_job_has_failed(q->job) && !psd_request_outlives_job(q))
        return psd_request_fail_ended(q);
    if (call->parked_since == 0 && park_count(q))
        return (int)q->error.code;
    if (call->parked_since == 0) {
        call->parked_since = psd_now(q->core);
        ps_slices_clear(&q->payload);
        ps_slices_clear(&call->request);
        if (call->let_go)
            call->let_go(call);
    }
    if (q->caller) {
        call->worker = q->caller->worker;
        memmove(call->client, q->caller->client.data, sizeof call->client);
    }
    call->message = (void *)q->request;
    ps_slices_move(&call->room, &q->room);
    call->room_data = q->room_data;
    call->job = q->job;
    if (call->job)
        psd_job_ref(call->job);
    if (psd_waiters_add(list, lock, call)) {
        park_note_wait(q, wait);
        park_note(q->core, call);
        return PSD_PARKED;
    }
    return ps_fail(&q->error, PS_CANCELLED, "the client is gone");
}

void psd_request_wait_with(struct psd_request *q, int (*resume)(struct psd_request *q), void *state,
                           void (*state_free)(void *state))
{
    q->call->resume = resume;
    q->call->state = state;
    q->call->state_free = state_free;
}

void psd_call_end_wait(struct psd_job *job, struct psd_call *call, Paramserver__V1__WaitEnd end)
{
    if (!call->wait_since)
        return;
    struct psd_past_wait past = {.wait = call->wait,
                                 .since = call->wait_since,
                                 .until = call->wait_until,
                                 .worker = call->worker,
                                 .whom = call->awaited == call->worker ? 0 : call->awaited,
                                 .method = (uint8_t)call->method,
                                 .end = (uint8_t)end};
    memcpy(past.client, call->client, sizeof past.client);
    if (job && atomic_load(&job->declared))
        psd_trace_add(job, &past);
    call->wait_since = 0;
}

void psd_call_answer(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    ps_slices_clear(&call->request);
    ps_slices_clear(&call->room);
    ps_msg_free(call->message);
    if (call->counted)
        atomic_fetch_sub(call->counted_in, call->counted);
    call->counted = 0;
    if (call->state_free)
        call->state_free(call->state);
    struct psd_job *job = call->job;
    call->message = call->state = call->job = NULL;
    call->state_free = NULL;
    call->reply(call, code, text, body);
    psd_job_unref(job);
}

void psd_call_give_up(struct psd_call *call, uint64_t now, enum ps_code code, const char *text)
{
    struct ps_slices nothing = PS_SLICES_EMPTY;
    call->awaited = 0;
    call->wait_until = now > call->wait_since ? now : call->wait_since;
    psd_call_end_wait(call->job, call,
                      code == PS_CANCELLED ? PARAMSERVER__V1__WAIT_END__END_CANCELLED
                                           : PARAMSERVER__V1__WAIT_END__END_BY_DEADLINE);
    psd_call_answer(call, code, text, &nothing);
}

// ---- the reply ----------------------------------------------------------------------------------------------------

enum ps_code psd_request_reserve(struct psd_request *t, size_t bytes)
{
    ps_slices_clear(&t->room);
    ps_slices_add(&t->room, ps_slice_new(bytes, &t->room_data));
    return t->room.len ? PS_OK : ps_no_memory(&t->error, "the answer");
}

int psd_request_reply(struct psd_request *t, const ProtobufCMessage *reply, struct ps_slices *payload)
{
    if (!payload && t->room.len >= protobuf_c_message_get_packed_size(reply) + PS_MSG_WRITE_MORE) {
        t->room.v[0].len = t->room.len = ps_msg_write(reply, 0, t->room_data);
        ps_slices_move(&t->reply, &t->room);
        return PS_OK;
    }
    ps_msg_pack(reply, payload, &t->reply);
    if (!t->reply.broken)
        return PS_OK;
    ps_slices_clear(&t->reply);
    return request_fail_later(t, ps_no_memory(&t->error, "the answer"));
}
