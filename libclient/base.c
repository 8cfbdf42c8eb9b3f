// SPDX-License-Identifier: Apache-2.0
#include "libclient/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/wire/wire.h"

// ---- the lock, time -----------------------------------------------------------------------------------------------

void psc__lock(struct psc_client *c)
{
    pthread_mutex_lock(&c->lock);
}

void psc__unlock(struct psc_client *c)
{
    TAILQ_HEAD(, psc__later) now = TAILQ_HEAD_INITIALIZER(now);
    TAILQ_CONCAT(&now, &c->later, link);
    pthread_mutex_unlock(&c->lock);
    struct psc__later *l;
    while ((l = TAILQ_FIRST(&now))) {
        TAILQ_REMOVE(&now, l, link);
        l->run(l);
    }
}

void psc__run_later(struct psc_client *c, struct psc__later *l, void (*run)(struct psc__later *))
{
    l->run = run;
    TAILQ_INSERT_TAIL(&c->later, l, link);
}

uint64_t psc__now(struct psc_client *c)
{
    return c->world.now(c->world.ctx);
}

void psc__after(struct psc_client *c, uint64_t delay_ns, void (*fn)(void *), void *arg)
{
    c->world.after(c->world.ctx, delay_ns, fn, arg);
}

uint64_t psc__backoff(struct psc_client *c, uint32_t attempt)
{
    // A fifth of what has passed, about: a task that is started again is not missed for long.
    uint64_t base = attempt < 20 ? (50 * PS_MS) << attempt / 4 : PS_SECOND;
    return base / 2 + c->world.random(c->world.ctx) % base;
}

int psc__ms_left(struct psc_client *c, uint64_t deadline)
{
    uint64_t now = psc__now(c), left = deadline > now ? (deadline - now) / PS_MS : 0;
    return left ? (int)left : 1;
}

uint64_t psc__attempt_deadline(struct psc_client *c, uint64_t deadline)
{
    return deadline == UINT64_MAX ? psc__now(c) + PSC__TRY_MS * PS_MS : deadline;
}

// ---- what all requests share --------------------------------------------------------------------------------------

void psc__caller_init(Paramserver__V1__Caller *caller, const struct psc__task *t, uint64_t sequence)
{
    struct psc_client *c = t->client;
    paramserver__v1__caller__init(caller);
    caller->protocol = PS_PROTOCOL;
    caller->job = c->job;
    caller->client = (ProtobufCBinaryData){sizeof c->id, c->id};
    caller->incarnation = c->member.incarnation;
    caller->run = c->member.run;
    caller->sequence = sequence;
    caller->oldest = c->window.oldest;
    caller->generation = t->generation;
    caller->worker = (uint32_t)(c->rank + 1);
}

bool psc__has_sessions(const struct psc_client *c)
{
    return c->world.open && !c->unary;
}

bool psc__open_session(struct psc__task *t)
{
    struct psc_client *c = t->client;
    Paramserver__V1__OpenRequest request = PARAMSERVER__V1__OPEN_REQUEST__INIT;
    Paramserver__V1__Caller caller;
    uint8_t *to;
    if (!psc__has_sessions(c) || (t->opened && t->opened_as == t->generation))
        return true;
    psc__caller_init(&caller, t, 0);
    caller.oldest = 0;
    request.caller = &caller;
    struct ps_slice s = ps_slice_new(paramserver__v1__open_request__get_packed_size(&request), &to);
    if (!to)
        return false;
    paramserver__v1__open_request__pack(&request, to);
    t->opened = true;
    t->opened_as = t->generation;
    c->world.open(c->world.ctx, t->index, PARAMSERVER__V1__METHOD__OPEN, s);
    return true;
}

bool psc__saw_generation(struct psc__task *t, uint64_t generation)
{
    if (generation == 0 || generation == t->generation)
        return true;
    if (t->generation == 0) {
        t->generation = generation;
        return true;
    }
    psc__end(t->client, PS_ABORTED, PSC__TASK " has restarted and lost what it had of the job", PSC__TASK_ARGS(t));
    return false;
}

enum ps_code psc__check_generation(struct psc__task *t, uint64_t generation, struct ps_error *e)
{
    if (!psc__saw_generation(t, generation))
        *e = t->client->ended;
    return e->code;
}

bool psc__says_nobody_listens(const char *text)
{
    static const char *const words[] = {PSC_NOBODY_LISTENS, PSC_NO_SOCKET};
    size_t len = strlen(text);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if (len >= n && strcmp(text + len - n, words[i]) == 0)
            return true;
    }
    return false;
}

void psc__task_unreachable(struct psc__task *t, const char *text)
{
    struct psc_client *c = t->client;
    uint64_t now = psc__now(c);
    if (c->ended.code)  // by the client's own cut, as like as not
        return;
    snprintf(t->why, sizeof t->why, "%s", text);
    if (!t->refused_since && psc__says_nobody_listens(text))
        t->refused_since = now;
    const uint64_t patience = c->member.joined ? c->member.dead_after_ns : c->rank < 0 ? c->refused_ns : 0;
    t->given_up = patience && t->refused_since && now - t->refused_since >= patience;
    if (t->given_up)
        psc__end(c, PS_UNAVAILABLE, PSC__TASK " cannot be reached, tried for %.1f s: %s: the job's state there is lost",
                 PSC__TASK_ARGS(t), (double)(now - t->refused_since) / 1e9, text);
}

void psc__task_heard(struct psc__task *t)
{
    t->refused_since = 0;
    t->why[0] = 0;
}

enum ps_code psc__reply_code(const struct psc_client *c, enum ps_code code)
{
    return code == PS_UNAUTHENTICATED && c->member.joined ? PS_UNAVAILABLE : code;
}

// A call that is refused at once has not waited, whatever else is answered at that moment.
bool psc__task_was_there(const struct psc__task *t, uint64_t sent)
{
    return t->heard >= sent + PS_SECOND;
}

const char *psc__method_name(int method)
{
    static const char *const names[] = {
        [PARAMSERVER__V1__METHOD__JOIN] = "join",
        [PARAMSERVER__V1__METHOD__HEARTBEAT] = "heartbeat",
        [PARAMSERVER__V1__METHOD__LEAVE] = "leave",
        [PARAMSERVER__V1__METHOD__BARRIER] = "barrier",
        [PARAMSERVER__V1__METHOD__LEASE] = "lease",
        [PARAMSERVER__V1__METHOD__DECLARE] = "declare",
        [PARAMSERVER__V1__METHOD__DESCRIBE] = "describe",
        [PARAMSERVER__V1__METHOD__PUT] = "put",
        [PARAMSERVER__V1__METHOD__ASSIGN_ADD] = "assign_add",
        [PARAMSERVER__V1__METHOD__PUSH] = "push",
        [PARAMSERVER__V1__METHOD__GET] = "get",
        [PARAMSERVER__V1__METHOD__PULL] = "pull",
        [PARAMSERVER__V1__METHOD__STATUS] = "status",
        [PARAMSERVER__V1__METHOD__WORKERS] = "workers",
        [PARAMSERVER__V1__METHOD__STOP_JOB] = "stop job",
        [PARAMSERVER__V1__METHOD__SET_MEMBERS] = "set members",
        [PARAMSERVER__V1__METHOD__ASSIGN_SUB] = "assign_sub",
        [PARAMSERVER__V1__METHOD__PUSH_PULL] = "push_pull",
        [PARAMSERVER__V1__METHOD__REDUCE] = "reduce",
        [PARAMSERVER__V1__METHOD__CLOCK] = "clock",
        [PARAMSERVER__V1__METHOD__WAITS] = "waits",
        [PARAMSERVER__V1__METHOD__SET_HYPER] = "set hyper",
        [PARAMSERVER__V1__METHOD__DRAIN] = "drain",
        [PARAMSERVER__V1__METHOD__AGREE] = "agree",
        [PARAMSERVER__V1__METHOD__SUM_SQUARES] = "sum squares",
        [PARAMSERVER__V1__METHOD__OPEN] = "open",
        [PARAMSERVER__V1__METHOD__SET_MODE] = "set mode",
        [PARAMSERVER__V1__METHOD__SUBMIT] = "submit",
        [PARAMSERVER__V1__METHOD__LIST] = "list",
        [PARAMSERVER__V1__METHOD__CANCEL] = "cancel",
        [PARAMSERVER__V1__METHOD__LOGS] = "logs",
        [PARAMSERVER__V1__METHOD__NEXT] = "next",
        [PARAMSERVER__V1__METHOD__REPORT] = "report",
        [PARAMSERVER__V1__METHOD__CHECKPOINT] = "checkpoint",
        [PARAMSERVER__V1__METHOD__TRACE] = "trace",
        [PARAMSERVER__V1__METHOD__PRUNE_SHARDS] = "prune shards",
        [PARAMSERVER__V1__METHOD__LOAD_SHARD] = "load shard",
    };
    const bool known = method > 0 && method < (int)(sizeof names / sizeof *names) && names[method];
    return known ? names[method] : "call";
}

// A task that has answered since the job began, and is the same still, has lost it by a StopJob alone.
void psc__lost_job(struct psc__task *t, const char *text)
{
    if (t->generation)
        psc__end(t->client, PS_CANCELLED, PSC__TASK ": %s: it was stopped", PSC__TASK_ARGS(t), text);
    else
        psc__end(t->client, PS_ABORTED, PSC__TASK ": %s: it has restarted, or the job was stopped", PSC__TASK_ARGS(t),
                 text);
}

void psc__end(struct psc_client *c, enum ps_code code, const char *format, ...)
{
    if (c->ended.code != PS_OK)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(c->ended.text, sizeof c->ended.text, format, args);
    va_end(args);
    c->ended.code = code;
    c->window.closed = true;
    struct psc__ender *ender;
    TAILQ_FOREACH(ender, &c->enders, link)
    ender->end(c, &c->ended);
    // Operations need not wait until the tasks have their requests; but what a signal stops is sent as far as it goes:
    // see client_stop.
    if (c->world.cut && c->stopped.code == PS_OK)
        c->world.cut(c->world.ctx);
}

// ---- replies ------------------------------------------------------------------------------------------------------

enum ps_code psc__unpack(const struct psc__task *t, const ProtobufCMessageDescriptor *type,
                         const struct ps_slices *reply, ProtobufCMessage **m, struct ps_slices *payload,
                         struct ps_error *e)
{
    enum ps_code code = reply->broken ? ps_no_memory(e, "an answer") : ps_msg_unpack(type, reply, m, payload, e);
    if (code == PS_OK)
        return PS_OK;
    ps_error_prefix(e, PSC__TASK ": answer that is no %s", PSC__TASK_ARGS(t), type->short_name);
    if (code != PS_RESOURCE_EXHAUSTED)
        e->code = PS_INTERNAL;
    return e->code;
}

enum ps_code psc__decode(const struct psc__task *t, const ProtobufCMessageDescriptor *type,
                         const struct ps_slices *reply, ProtobufCMessage **m, struct ps_error *e)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    enum ps_code code = psc__unpack(t, type, reply, m, &payload, e);
    ps_slices_clear(&payload);
    return code;
}
