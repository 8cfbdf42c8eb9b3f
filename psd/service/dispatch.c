// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a call: it is decoded, its caller and job are checked, its method runs; it is parked, goes on, and is
// answered.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/sometimes.h"
#include "common/base/utf8.h"
#include "psd/control/state.h"
#include "psd/service/session.h"

void psd_core_cancel(struct psd_core *core, struct psd_call *call)
{
    pthread_mutex_lock(&core->host.cancelling);
    atomic_store(&call->cancelled, true);
    bool parked = psd_call_take(call, psd_control_forget_call);
    pthread_mutex_unlock(&core->host.cancelling);
    if (parked)
        psd_call_give_up(call, psd_now(core), PS_CANCELLED, "the client is gone");
}

// ---- calls --------------------------------------------------------------------------------------------------------

#define WITH_CALLER 1
#define WITH_JOB 2
#define SMALL_REPLY 4
#define MOVES_DATA 8
#define AUDITED 16

// What is done for a method before its own steps: the caller is checked; the job is looked up and must live; there is
// room for a small reply; a worker that moves data shows that it lives. And after them: what was changed by hand is
// logged.
static const struct method {
    const ProtobufCMessageDescriptor *type;
    psd_method_fn run;
    int needs;
} methods[] = {
#define METHOD(NAME, type, fn, needs) \
    [PARAMSERVER__V1__METHOD__##NAME] = {&paramserver__v1__##type##_request__descriptor, fn, needs}
    METHOD(JOIN, join, psd_join, WITH_CALLER),
    METHOD(HEARTBEAT, heartbeat, psd_heartbeat, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(LEAVE, leave, psd_leave, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(BARRIER, barrier, psd_barrier, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(LEASE, lease, psd_lease, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(DECLARE, declare, psd_declare, WITH_CALLER | SMALL_REPLY),
    METHOD(DESCRIBE, describe, psd_describe, WITH_CALLER | WITH_JOB),
    METHOD(PUT, update, psd_update_values, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(ASSIGN_ADD, update, psd_update_values, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(PUSH, update, psd_update_values, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(GET, read, psd_get, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(PULL, read, psd_pull, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(LOAD_SHARD, load_shard, psd_load_shard, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(PRUNE_SHARDS, prune_shards, psd_prune_shards, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(STATUS, status, psd_status, 0),
    METHOD(WORKERS, workers, psd_workers, 0),
    METHOD(STOP_JOB, stop_job, psd_stop_job, SMALL_REPLY | AUDITED),
    METHOD(SET_MEMBERS, set_members, psd_set_members, 0),
    METHOD(ASSIGN_SUB, update, psd_update_values, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(PUSH_PULL, update, psd_update_values, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(REDUCE, reduce, psd_reduce, WITH_CALLER | WITH_JOB),
    METHOD(CLOCK, clock, psd_clock, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(WAITS, waits, psd_waits, 0),
    METHOD(TRACE, trace, psd_trace, 0),
    METHOD(SET_HYPER, set_hyper, psd_set_hyper, SMALL_REPLY | AUDITED),
    METHOD(SET_MODE, set_mode, psd_set_mode, SMALL_REPLY | AUDITED),
    METHOD(CHECKPOINT, checkpoint, psd_checkpoint, SMALL_REPLY | AUDITED),
    METHOD(DRAIN, drain, psd_drain, SMALL_REPLY | AUDITED),
    METHOD(AGREE, agree, psd_agree, SMALL_REPLY),
    METHOD(SUM_SQUARES, sum_squares, psd_sum_squares, 0),
    METHOD(OPEN, open, psd_open, SMALL_REPLY),
    METHOD(SUBMIT, submit, psd_submit, SMALL_REPLY | AUDITED),
    METHOD(LIST, list, psd_list, 0),
    METHOD(CANCEL, cancel, psd_cancel, SMALL_REPLY | AUDITED),
    METHOD(LOGS, logs, psd_logs, 0),
    METHOD(NEXT, next, psd_next, 0),
    METHOD(REPORT, report, psd_report, SMALL_REPLY),
#undef METHOD
};

static enum ps_code check_caller(struct psd_request *t, const struct method *m)
{
    // The caller is field 1 of every request that has one.
    const Paramserver__V1__Caller *c =
        *(Paramserver__V1__Caller *const *)((const char *)t->request + m->type->fields[0].offset);
    if (!c)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "the request names no caller");
    t->caller = c;
    if (c->protocol != PS_PROTOCOL)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "protocol %" PRIu32 " is not spoken here; this is %d%s",
                       c->protocol, PS_PROTOCOL,
                       c->protocol || !t->call->session
                           ? ""
                           : ", and the session of a stream stands for the caller of Put, AssignAdd, AssignSub, Push, "
                             "PushPull, Get and Pull alone");
    if (c->job[0] == '\0' || strlen(c->job) > 128)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "the job needs a name of 1 to 128 bytes");
    if (!ps_utf8_is_plain(c->job))
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "the job's name has control characters");
    if (c->client.len != 16)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "the client id has %zu bytes, expected 16", c->client.len);
    if (c->generation && c->generation != t->core->generation)
        return ps_fail(&t->error, PS_ABORTED, "ps task %" PRIu32 " has restarted and lost what it had of job '%s'",
                       t->core->config.task, c->job);
    if (c->run >= PSD_RUN_LIMIT)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "run %" PRIu64 " was never given out", c->run);
    if (m->run != psd_join)
        psd_runs_hear(&t->core->table.runs, c->run);
    return PS_OK;
}

// Those who do not belong to the job learn its run by a Describe. Task 0 gives it to workers when they join.
static bool dispatch_may_name_no_run(const struct psd_request *t, const struct method *m)
{
    return t->caller->worker == 0 &&
           (m->run == psd_describe ||
            (m->run == psd_get && !((const Paramserver__V1__ReadRequest *)t->request)->if_newer));
}

static enum ps_code dispatch_no_job(struct psd_request *t)
{
    pthread_mutex_lock(&t->core->table.lock);
    uint64_t past = psd_runs_past(&t->core->table.runs, t->caller->job);
    pthread_mutex_unlock(&t->core->table.lock);
    if (t->caller->run && t->caller->run < past)
        return ps_fail(&t->error, PS_ABORTED, "run %" PRIu64 " of job '%s' has ended", t->caller->run, t->caller->job);
    return psd_request_fail_no_job(t, t->caller->job);
}

static enum ps_code dispatch_check_run(struct psd_request *t, const struct method *m)
{
    uint64_t run = atomic_load(&t->job->run), asked = t->caller->run;
    bool waits = m->run == psd_describe && ((const Paramserver__V1__DescribeRequest *)t->request)->wait;
    if (asked == 0 && !dispatch_may_name_no_run(t, m))
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "the request names no run of job '%s'", t->job->name);
    if (asked && asked < run)
        ps_sometimes(PS_SOMETIMES_OLD_RUN);
    if (asked && asked < run)
        return ps_fail(&t->error, PS_ABORTED, "run %" PRIu64 " of job '%s' has ended, this is run %" PRIu64, asked,
                       t->job->name, run);
    if (asked > run && !waits)
        return ps_fail(&t->error, PS_UNAVAILABLE,
                       "ps task %" PRIu32 " has not heard of run %" PRIu64 " of job '%s' yet, this is run %" PRIu64,
                       t->core->config.task, asked, t->job->name, run);
    return PS_OK;
}

// Is it the caller's run, and does it live?
static enum ps_code dispatch_check_job(struct psd_request *t, const struct method *m)
{
    if (psd_request_check_owner(t, t->job) || dispatch_check_run(t, m))
        return t->error.code;
    if (psd_job_has_failed(t->job) && !psd_request_outlives_job(t) && m->run != psd_describe && m->run != psd_leave)
        return (enum ps_code)psd_request_fail_ended(t);
    return PS_OK;
}

static enum ps_code find_job(struct psd_request *t, const struct method *m)
{
    t->job = psd_job_find(&t->core->table, t->caller->job);
    if (!t->job && m->run == psd_describe && ((const Paramserver__V1__DescribeRequest *)t->request)->wait)
        return PS_OK;  // it waits for the job itself
    if (!t->job)
        return dispatch_no_job(t);
    return dispatch_check_job(t, m);
}

// At the control task. Without a lock: who looks at it (psd/control/member.c) can do with the one before.
static void dispatch_hear(const struct psd_request *q)
{
    struct psd_job *job = q->job;
    if (q->core->config.task || !q->caller->worker || !atomic_load(&job->declared) || q->caller->worker > job->workers)
        return;
    struct psd_heard *heard = &job->heard[q->caller->worker - 1];
    uint64_t slept = atomic_load_explicit(&q->core->host.slept, memory_order_relaxed);
    atomic_store_explicit(&heard->incarnation, q->caller->incarnation, memory_order_relaxed);
    atomic_store_explicit(&heard->at, psd_now(q->core) - slept, memory_order_relaxed);
}

static const struct method *dispatch_method(const struct psd_call *call)
{
    bool known = call->method > 0 && call->method < (int)(sizeof methods / sizeof methods[0]);
    return known && methods[call->method].run ? &methods[call->method] : NULL;  // others are of a worker's service
}

static enum ps_code dispatch_decode(struct psd_request *q, const struct method *m)
{
    ProtobufCMessage *request = NULL;
    enum ps_code code = ps_msg_unpack(m->type, &q->call->request, &request, &q->payload, &q->error);
    q->request = request;
    return code;
}

// The caller of a request that has one, which is its field 1.
static const Paramserver__V1__Caller *dispatch_caller(const struct psd_request *q, const struct method *m)
{
    return m->needs & WITH_CALLER
               ? *(Paramserver__V1__Caller *const *)((const char *)q->request + m->type->fields[0].offset)
               : NULL;
}

// Who calls, and the job, from the session of the stream: what was found out for the request before this one is not
// found out again.
static enum ps_code dispatch_use_session(struct psd_request *q, const struct method *m)
{
    struct psd_session *s = *q->call->session;
    Paramserver__V1__Caller *caller = (Paramserver__V1__Caller *)dispatch_caller(q, m);
    if (!s)
        return ps_fail(&q->error, PS_FAILED_PRECONDITION,
                       "the request leaves its caller to the session of the stream, which has none: expected Open "
                       "before it");
    if (psd_session_is_lost(s))
        return ps_fail(&q->error, PS_UNAVAILABLE, "there was no memory to open the session of the stream");
    psd_session_complete(s, q->call, caller);
    q->caller = caller;
    q->job = psd_session_job(s);
    bool known = q->job != NULL;
    if (known ? dispatch_check_job(q, m) : check_caller(q, m) || find_job(q, m))
        return q->error.code;
    if (!known)
        psd_session_set_job(s, q->job);
    caller->job = q->job->name;
    return PS_OK;
}

static bool dispatch_is_in_session(const struct psd_request *q, const struct method *m)
{
    const Paramserver__V1__Caller *caller = m->needs & MOVES_DATA && q->call->session ? dispatch_caller(q, m) : NULL;
    return caller && psd_session_is_meant(caller);
}

static enum ps_code dispatch_find_caller(struct psd_request *q, const struct method *m)
{
    if (dispatch_is_in_session(q, m))
        return dispatch_use_session(q, m);
    if (m->needs & WITH_CALLER && check_caller(q, m))
        return q->error.code;
    return m->needs & WITH_JOB ? find_job(q, m) : PS_OK;
}

// A call comes: PSD_PARKED, or its code with the reply or the error in *q.
static int dispatch_start(struct psd_request *q, const struct method *m)
{
    int code = (int)dispatch_decode(q, m);
    if (code == PS_OK)
        code = (int)dispatch_find_caller(q, m);
    if (code == PS_OK && m->needs & MOVES_DATA)
        dispatch_hear(q);
    if (code == PS_OK && m->needs & SMALL_REPLY)
        code = (int)psd_request_reserve(q, PSD_REPLY_BYTES);
    if (code == PS_OK)
        code = m->run(q);
    if (code == PS_RESOURCE_EXHAUSTED && m->run == psd_open && q->call->session)
        psd_session_lose(q->call->session);
    return code;
}

// What it has waited for is there, or its job has ended, or begun another run.
static int dispatch_go_on(struct psd_request *q, const struct method *m)
{
    struct psd_call *call = q->call;
    call->wait_until = psd_now(q->core);
    q->request = call->message;
    q->caller = dispatch_caller(q, m);
    ps_slices_move(&q->room, &call->room);
    q->room_data = call->room_data;
    q->job = call->job;
    call->message = call->job = NULL;
    if (!q->job && m->needs & WITH_JOB && find_job(q, m))
        return (int)q->error.code;
    const bool of_run = q->job && m->run != psd_join;  // a Join is of whatever run there is
    if (of_run && q->caller && dispatch_check_run(q, m))
        return (int)q->error.code;
    if (of_run && psd_job_has_failed(q->job) && !psd_request_outlives_job(q)) {
        ps_sometimes(PS_SOMETIMES_PARKED_ENDED);
        return psd_request_fail_ended(q);
    }
    return call->resume ? call->resume(q) : m->run(q);
}

// Who asks what has become of a checkpoint changes nothing.
static bool dispatch_is_audited(const struct psd_request *q, const struct method *m)
{
    const bool looks = q->request && q->call->method == PARAMSERVER__V1__METHOD__CHECKPOINT &&
                       ((const Paramserver__V1__CheckpointRequest *)q->request)->number;
    return m && m->needs & AUDITED && !looks;
}

// " (sync)": what a change was, beyond its method and job; "": that says it all. to[size]
static void dispatch_say_change(const struct psd_request *q, char *to, size_t size)
{
    const Paramserver__V1__DrainRequest *drain = (const Paramserver__V1__DrainRequest *)q->request;
    const Paramserver__V1__SetHyperRequest *hyper = (const Paramserver__V1__SetHyperRequest *)q->request;
    const Paramserver__V1__SetModeRequest *mode = (const Paramserver__V1__SetModeRequest *)q->request;
    to[0] = '\0';
    if (!q->request)
        return;
    if (q->call->method == PARAMSERVER__V1__METHOD__SET_HYPER)
        snprintf(to, size, " (%.64s = %g)", hyper->name, hyper->value);
    else if (q->call->method == PARAMSERVER__V1__METHOD__SET_MODE)
        snprintf(to, size, " (%s)", psd_update_name(mode->update));
    else if (q->call->method == PARAMSERVER__V1__METHOD__CANCEL &&
             ((const Paramserver__V1__CancelRequest *)q->request)->forget)
        snprintf(to, size, " (forget)");
    else if (q->call->method == PARAMSERVER__V1__METHOD__DRAIN && drain->worker)
        snprintf(to, size, " (worker %" PRIu32 "%s)", drain->worker - 1, drain->undo ? ", undo" : "");
    else if (q->call->method == PARAMSERVER__V1__METHOD__DRAIN && drain->undo)
        snprintf(to, size, " (undo)");
}

// "audit: SetMode of job 'mnist' (sync) by alice: done"
static void dispatch_audit(const struct psd_request *q, const struct method *m, enum ps_code code)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(m->type, "job");
    const bool named = q->request && field;
    const char *job = named ? *(char *const *)((const char *)q->request + field->offset) : "";
    const char *user = psd_request_user(q), *type = m->type->short_name;
    char change[128];
    dispatch_say_change(q, change, sizeof change);
    ps_info("audit: %.*s%s%s%s%s by %s: %s%s%s", (int)(strlen(type) - strlen("Request")), type, *job ? " of job '" : "",
            job, *job ? "'" : "", change, *user ? user : "somebody, without TLS and munge",
            code ? ps_code_name(code) : "done", code ? ": " : "", code ? q->error.text : "");
}

// Who is refused for want of room asks again and again. "no room: Declare of job 'mnist' by worker 0 of alice: the job
// needs ...; 12 more since the last such line"
static void dispatch_log_refusal(const struct psd_request *q, const struct method *m)
{
    char who[48] = "a client that is no worker", more[PS_LOG_MORE];
    if (!ps_log_is_due(&q->core->refusals, psd_now(q->core), more))
        return;
    const char *user = psd_request_user(q), *type = m->type->short_name, *job = q->caller ? q->caller->job : "";
    if (q->caller && q->caller->worker)
        snprintf(who, sizeof who, "worker %" PRIu32, q->caller->worker - 1);
    ps_warn("no room: %.*s%s%.128s%s by %s%s%s: %s%s", (int)(strlen(type) - strlen("Request")), type,
            *job ? " of job '" : "", job, *job ? "'" : "", who, *user ? " of " : "", user, q->error.text, more);
}

static Paramserver__V1__WaitEnd dispatch_wait_end(const struct psd_request *q, enum ps_code code)
{
    if (code == PS_OK)
        return PARAMSERVER__V1__WAIT_END__WENT_ON;
    if (code == PS_CANCELLED)
        return PARAMSERVER__V1__WAIT_END__END_CANCELLED;
    const bool given_up = code == PS_ABORTED || (q->job && psd_job_has_failed(q->job));
    return given_up ? PARAMSERVER__V1__WAIT_END__END_WITH_JOB : PARAMSERVER__V1__WAIT_END__END_REFUSED;
}

static void run_one(struct psd_core *core, struct psd_call *call, struct psd_call **ready)
{
    struct psd_request q = {.core = core, .call = call};
    const struct method *m = dispatch_method(call);
    int code = m ? PS_OK : (int)ps_fail(&q.error, PS_UNIMPLEMENTED, "there is no method %d", call->method);
    if (m)
        code = call->message ? dispatch_go_on(&q, m) : dispatch_start(&q, m);
    if (code != PSD_PARKED) {
        if (call->wait_since && call->wait.kind == PARAMSERVER__V1__WAIT_KIND__FOR_FILE)
            call->wait_until = psd_now(core);  // it was not parked to be taken up, but to be done
        psd_call_end_wait(q.job, call, dispatch_wait_end(&q, (enum ps_code)code));
        if (dispatch_is_audited(&q, m) && code != PS_NOT_FOUND)
            dispatch_audit(&q, m, (enum ps_code)code);
        else if (m && code == PS_RESOURCE_EXHAUSTED)
            dispatch_log_refusal(&q, m);
        if (!call->message)
            ps_msg_free((ProtobufCMessage *)q.request);
        psd_call_answer(call, (enum ps_code)code, code ? q.error.text : "", &q.reply);
        ps_slices_clear(&q.reply);
    }
    psd_job_unref(q.job);
    ps_slices_clear(&q.payload);
    ps_slices_clear(&q.room);
    psd_move_calls(ready, &q.ready);
}

void psd_run_ready(struct psd_core *core, struct psd_call *ready)
{
    while (ready) {
        struct psd_call *call = ready;
        ready = call->next;
        run_one(core, call, &ready);
    }
}

void psd_core_call(struct psd_core *core, struct psd_call *call)
{
    call->next = NULL;
    call->parked_since = call->wait_since = 0;
    call->awaited = 0;
    call->stall_logged = false;
    call->worker = 0;
    memset(call->client, 0, sizeof call->client);
    atomic_init(&call->lock, NULL);
    atomic_init(&call->cancelled, false);
    call->list = NULL;
    call->counted = 0;
    call->room = (struct ps_slices)PS_SLICES_EMPTY;
    call->message = call->state = call->job = NULL;
    call->resume = NULL;
    call->state_free = NULL;
    psd_run_ready(core, call);
}
