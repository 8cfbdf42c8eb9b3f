// SPDX-License-Identifier: Apache-2.0
#include "libclient/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/wire/wire.h"

// Those of a client.
struct psc__calls {
    TAILQ_HEAD(, psc__call) open;  // whose end has not been reported, or that still wait for a reply or a timer
    // Of calls that change something: theirs are apart from those of updates, which must not wait until other workers
    // have come.
    uint64_t last_sequence;
    struct psc__ender ender;
};

struct psc__call {
    struct psc__later later;
    TAILQ_ENTRY(psc__call) link;
    struct psc_client *client;
    struct psc__task *task;
    int method;
    uint64_t sequence;  // 0: none
    const char *awaits;
    bool once, last;
    struct ps_slice message;  // packed; sent each time by reference, behind a fresh Caller
    uint64_t started, deadline;
    uint64_t refused_until;  // where nobody listens: not sent again from then on
    uint64_t sent;           // the attempt that is under way, or was last
    uint64_t down_since;     // first failure since it last waited at its task; 0: none
    uint32_t attempt;
    bool away;            // a reply or a timer will still come back to it
    bool over, reported;  // its end is decided; done has run
    struct ps_error error;
    struct ps_slices reply;
    psc__call_fn done;
    void *arg;
    bool owns_arg;
};

static void call_send(struct psc__call *call);

static void call_free(struct psc__call *call)
{
    TAILQ_REMOVE(&call->client->calls->open, call, link);
    if (call->owns_arg && !call->reported)
        free(call->arg);
    ps_slice_unref(call->message);
    ps_slices_clear(&call->reply);
    free(call);
}

// Waits for other workers, not for an answer alone.
static bool call_is_patient(const struct psc__call *call)
{
    return call->deadline == UINT64_MAX;
}

// ---- its end ------------------------------------------------------------------------------------------------------

static void call_report(struct psc__later *later)
{
    struct psc__call *call = (struct psc__call *)((char *)later - offsetof(struct psc__call, later));
    struct psc_client *c = call->client;
    call->done(call->arg, &call->error, &call->reply);
    psc__lock(c);
    call->reported = true;
    if (!call->away)
        call_free(call);
    psc__unlock(c);
}

static void call_finish(struct psc__call *call, const struct ps_error *e)
{
    if (call->over)
        return;
    call->over = true;
    call->error = *e;
    psc__run_later(call->client, &call->later, call_report);
}

// psd's own, with for whom it has waited.
static bool call_is_psds_word(const char *text)
{
    return strncmp(text, "waited ", 7) == 0;
}

static void call_fail(struct psc__call *call, enum ps_code code, const char *text)
{
    struct ps_error e;
    double seconds = (double)(psc__now(call->client) - call->started) / 1e9;
    if (code == PS_UNAVAILABLE && !call->once)
        ps_fail(&e, code, PSC__TASK " cannot be reached, tried for %.1f s: %s", PSC__TASK_ARGS(call->task), seconds,
                text);
    else if (code == PS_DEADLINE_EXCEEDED && call_is_psds_word(text))
        ps_fail(&e, code, PSC__TASK ": %s", PSC__TASK_ARGS(call->task), text);
    else if (code == PS_DEADLINE_EXCEEDED && !call->once)
        ps_fail(&e, code, PSC__TASK ": waited %.1f s for %s: %s", PSC__TASK_ARGS(call->task), seconds,
                call->awaits ? call->awaits : "an answer", text);
    else if (code == PS_DEADLINE_EXCEEDED)
        ps_fail(&e, code, PSC__TASK ": %s within %.1f s", PSC__TASK_ARGS(call->task), text, seconds);
    else
        ps_fail(&e, code, PSC__TASK ": %s", PSC__TASK_ARGS(call->task), text);
    call_finish(call, &e);
}

// ---- sending and resending ----------------------------------------------------------------------------------------

// Back from the world. True: its end was decided meanwhile, there is nothing left to do.
static bool call_landed(struct psc__call *call)
{
    bool over = call->over;
    call->away = false;
    if (over && call->reported)
        call_free(call);
    return over;
}

// A call after the end: its callback still must not run from inside the function that starts it.
static void call_refuse(void *arg)
{
    struct psc__call *call = arg;
    struct psc_client *c = call->client;
    psc__lock(c);
    if (!call_landed(call))
        call_finish(call, c->ended.code ? &c->ended : &c->stopped);
    psc__unlock(c);
}

static void call_again(void *arg)
{
    struct psc__call *call = arg;
    struct psc_client *c = call->client;
    psc__lock(c);
    const bool over = call_landed(call);
    if (!over && psc__now(c) < call->deadline)
        call_send(call);
    else if (!over)
        call_fail(call, call->error.code, call->error.text);
    psc__unlock(c);
}

// Until when it is tried again, where an attempt has ended so.
static uint64_t call_try_until(const struct psc__call *call, const char *text)
{
    uint64_t until = call_is_patient(call) ? call->down_since + call->client->timeout_ns : call->deadline;
    return call->refused_until < until && psc__says_nobody_listens(text) ? call->refused_until : until;
}

static bool call_may_repeat(struct psc__call *call, enum ps_code code, const char *text)
{
    uint64_t now = psc__now(call->client);
    if (call->once)
        return false;
    if (code == PS_DEADLINE_EXCEEDED)
        return call_is_patient(call);
    if (code != PS_UNAVAILABLE && code != PS_RESOURCE_EXHAUSTED)
        return false;
    if (!call->down_since || psc__task_was_there(call->task, call->sent))
        call->down_since = now;
    return now < call_try_until(call, text);
}

static void call_repeat(struct psc__call *call, enum ps_code code, const char *text)
{
    ps_fail(&call->error, code, "%s", text);
    if (code == PS_DEADLINE_EXCEEDED) {
        call->down_since = 0;
        call->attempt = 0;
        call_send(call);
        return;
    }
    const uint64_t until = call_try_until(call, text), now = psc__now(call->client);
    const uint64_t delay = psc__backoff(call->client, call->attempt++), left = until > now ? until - now : 0;
    call->away = true;
    psc__after(call->client, delay < left ? delay : left, call_again, call);
}

// The last attempt had no answer. Does the refusal before it say more, as that one had too little time left for one?
static bool call_was_refused(const struct psc__call *call, const char *text)
{
    const bool was_short = call->sent + PS_SECOND > call->deadline && !call_is_psds_word(text);
    return call->error.code == PS_RESOURCE_EXHAUSTED ||
           (call->error.code == PS_UNAVAILABLE && was_short && call->task->why[0]);
}

// Those of the service ParameterServer; Admin's have none.
static bool call_has_caller(int method)
{
    return method < PARAMSERVER__V1__METHOD__STATUS || method >= PARAMSERVER__V1__METHOD__PRUNE_SHARDS ||
           (method >= PARAMSERVER__V1__METHOD__ASSIGN_SUB && method <= PARAMSERVER__V1__METHOD__CLOCK);
}

static void call_note_heard(struct psc__task *t)
{
    t->heard = psc__now(t->client);
    psc__task_heard(t);
}

static void call_replied(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct psc__call *call = arg;
    struct psc_client *c = call->client;
    psc__lock(c);
    code = psc__reply_code(c, code);
    if (code == PS_UNAVAILABLE)
        psc__task_unreachable(call->task, text);  // which may end the client, and so the call
    else if (code != PS_DEADLINE_EXCEEDED)
        call_note_heard(call->task);
    if (!call_landed(call)) {
        if (code == PS_OK) {
            ps_slices_move(&call->reply, reply);
            call_finish(call, &(struct ps_error){.code = PS_OK});
        } else if (call_may_repeat(call, code, text)) {
            call_repeat(call, code, text);
        } else {
            if (code == PS_DEADLINE_EXCEEDED && call_was_refused(call, text)) {
                code = call->error.code;
                text = call->error.text;
            }
            if (code == PS_NOT_FOUND && c->member.joined && c->layout && call_has_caller(call->method))
                psc__lost_job(call->task, text);  // this call too ends so, unless all had ended before
            call_fail(call, code, text);
        }
    }
    psc__unlock(c);
}

static void call_add_caller(struct psc__call *call, struct ps_slices *request)
{
    // Caller is field 1 of every request that has one, and the parts of a message may be joined on the wire: so the
    // rest is packed once, and each attempt brings what is known by then.
    Paramserver__V1__Caller caller;
    Paramserver__V1__BarrierRequest any = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    psc__caller_init(&caller, call->task, call->sequence);
    any.caller = &caller;
    ps_msg_pack(&any.base, NULL, request);
}

static void call_send(struct psc__call *call)
{
    struct psc_client *c = call->client;
    struct ps_slices request = PS_SLICES_EMPTY;
    if (call_has_caller(call->method))
        call_add_caller(call, &request);
    ps_slices_add(&request, ps_slice_ref(call->message));
    if (request.broken) {
        ps_slices_clear(&request);
        call_fail(call, PS_RESOURCE_EXHAUSTED, "no memory for a request");
        return;
    }
    call->away = true;
    call->sent = psc__now(c);
    c->world.call(c->world.ctx, call->task->index, call->method, 0, psc__attempt_deadline(c, call->deadline), &request,
                  call_replied, call);
}

// NULL: no memory.
static struct psc__call *call_new(const ProtobufCMessage *message)
{
    uint8_t *data;
    struct psc__call *call = ps_try_alloc(sizeof *call);
    if (!call)
        return NULL;
    call->message = ps_slice_new(protobuf_c_message_get_packed_size(message), &data);
    if (data) {
        protobuf_c_message_pack(message, data);
        return call;
    }
    free(call);
    return NULL;
}

enum ps_code psc__call_locked(struct psc_client *c, const struct psc__call_spec *spec, struct ps_error *e)
{
    struct psc__call *call = call_new(spec->message);
    if (!call)
        return ps_no_memory(e, "a call");
    call->client = c;
    call->task = &c->tasks[spec->task];
    call->method = spec->method;
    call->awaits = spec->awaits;
    call->once = spec->once;
    call->last = spec->last;
    call->done = spec->done;
    call->arg = spec->arg;
    call->owns_arg = spec->owns_arg;
    call->started = psc__now(c);
    call->deadline = spec->timeout_ms < 0 ? UINT64_MAX : call->started + (uint64_t)spec->timeout_ms * PS_MS;
    call->refused_until = spec->refused_ms ? call->started + (uint64_t)spec->refused_ms * PS_MS : UINT64_MAX;
    if (spec->mutates)
        call->sequence = ++c->calls->last_sequence;
    TAILQ_INSERT_TAIL(&c->calls->open, call, link);
    if ((c->ended.code || (c->stopped.code && !spec->once)) && !spec->last) {
        call->away = true;
        psc__after(c, 0, call_refuse, call);
    } else {
        call_send(call);
    }
    return PS_OK;
}

enum ps_code psc__call(struct psc_client *c, const struct psc__call_spec *spec, struct ps_error *e)
{
    psc__lock(c);
    enum ps_code code = psc__call_locked(c, spec, e);
    psc__unlock(c);
    return code;
}

bool psc__calls_wait_for_others(const struct psc_client *c, uint64_t since)
{
    const struct psc__call *call;
    TAILQ_FOREACH(call, &c->calls->open, link)
    if (!call->over && call_is_patient(call) && call->started < since)
        return true;
    return false;
}

// What a call that has no deadline waits for, in psctl's words.
static const char *call_for_whom(int method)
{
    switch (method) {
    case PARAMSERVER__V1__METHOD__LEASE:
        return "the other workers to train the rest of the epoch";
    case PARAMSERVER__V1__METHOD__CLOCK:
        return "the slowest worker";
    case PARAMSERVER__V1__METHOD__REDUCE:
        return "the other workers to bring what is added up";
    default:
        return "the other workers to come to a barrier";
    }
}

void psc__calls_name_wait(const struct psc_client *c, uint64_t since, char *what, size_t size)
{
    const struct psc__call *call;
    TAILQ_FOREACH(call, &c->calls->open, link)
    if (!call->over && !call->once && call->started < since)
        break;
    if (!call)
        return;
    if (call->task->why[0])
        snprintf(what, size, PSC__TASK ": %s", PSC__TASK_ARGS(call->task), call->task->why);
    else if (call->error.code == PS_RESOURCE_EXHAUSTED && call->sent >= since)  // again and again
        snprintf(what, size, PSC__TASK ": %s", PSC__TASK_ARGS(call->task), call->error.text);
    else if (call->awaits)
        snprintf(what, size, "%s", call->awaits);
    else if (call_is_patient(call))
        snprintf(what, size, "%s", call_for_whom(call->method));
    else
        snprintf(what, size, PSC__TASK ": no answer to %s yet", PSC__TASK_ARGS(call->task),
                 psc__method_name(call->method));
}

void psc__calls_stop(struct psc_client *c)
{
    struct psc__call *call;
    TAILQ_FOREACH(call, &c->calls->open, link)
    if (!call->once && !call->last)
        call_finish(call, &c->stopped);
}

static void calls_end(struct psc_client *c, const struct ps_error *why)
{
    struct psc__call *call;
    TAILQ_FOREACH(call, &c->calls->open, link)
    call_finish(call, why);
}

bool psc__calls_create(struct psc_client *c)
{
    c->calls = ps_try_alloc(sizeof *c->calls);
    if (!c->calls)
        return false;
    TAILQ_INIT(&c->calls->open);
    c->calls->ender.end = calls_end;
    TAILQ_INSERT_TAIL(&c->enders, &c->calls->ender, link);
    return true;
}

void psc__calls_free(struct psc_client *c)
{
    struct psc__call *call;
    while (c->calls && (call = TAILQ_FIRST(&c->calls->open)))
        call_free(call);
    free(c->calls);
    c->calls = NULL;
}
