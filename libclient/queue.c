// SPDX-License-Identifier: Apache-2.0
#include "libclient/queue.h"

#include <stdlib.h>

#include "libclient/call.h"
#include "libclient/client.h"
#include "libclient/op.h"

static void request_replied(void *arg, enum ps_code code, const char *text, struct ps_slices *reply);

void psc__queue_init(struct psc__queue *q)
{
    TAILQ_INIT(&q->updates);
    TAILQ_INIT(&q->reads);
    TAILQ_INIT(&q->reads_flying);
}

void psc__queue_add(struct psc__request *r)
{
    struct psc__queue *q = &r->task->queue;
    r->ticket = r->mutates ? ++q->last_ticket : q->last_ticket;
    r->sequence = psc__op_sequence(r->op);
    r->state = PSC__QUEUED;
    TAILQ_INSERT_TAIL(r->mutates ? &q->updates : &q->reads, r, link);
}

void psc__queue_remove(struct psc__request *r)
{
    struct psc__queue *q = &r->task->queue;
    TAILQ_REMOVE(r->mutates ? &q->updates : &q->reads, r, link);
}

// ---- sending ------------------------------------------------------------------------------------------------------

static bool may_send_update(const struct psc__task *t, const struct psc__request *r)
{
    const struct psc__queue *q = &t->queue;
    if (q->updates_flying == 0)
        return true;
    if (q->draining || t->client->unary || q->careful_ticket)
        return false;
    if ((r->put || q->flying_put) && r->sequence != q->flying_sequence)
        return false;
    return r->round_trip ||
           (q->updates_flying < PSC__UPDATES_FLYING && q->bytes_flying + r->bytes <= PSC__BYTES_FLYING);
}

static bool may_send_read(const struct psc__task *t, const struct psc__request *r)
{
    const struct psc__queue *q = &t->queue;
    const struct psc__request *unsent = TAILQ_FIRST(&q->updates);
    if (q->draining || (unsent && unsent->ticket <= r->ticket))
        return false;
    return !t->client->unary || q->updates_flying == 0 || q->flying_ticket > r->ticket;
}

static void fly(struct psc__request *r)
{
    struct psc__queue *q = &r->task->queue;
    psc__queue_remove(r);
    r->state = PSC__FLYING;
    r->alone = q->careful_ticket > 0;
    r->overtook = false;
    if (!r->mutates)
        TAILQ_INSERT_TAIL(&q->reads_flying, r, link);
    if (!r->mutates || r->round_trip)
        return;
    q->updates_flying++;
    q->bytes_flying += r->bytes;
    q->flying_ticket = r->ticket;
    q->flying_sequence = r->sequence;
    q->flying_put = r->put;
}

static void request_send(struct psc__request *r)
{
    struct psc_client *c = r->task->client;
    struct ps_slices message = PS_ROPE_EMPTY;
    struct ps_error e;
    psc__op_pack(r->op, r, &message);
    if (message.broken) {
        ps_slices_clear(&message);
        ps_fail(&e, PS_RESOURCE_EXHAUSTED, "%s: no memory for a request of %zu bytes to " PSC__TASK,
                psc__method_name(psc__op_method(r->op)), r->bytes, PSC__TASK_ARGS(r->task));
        psc__op_fail(r->op, &e);
        return;
    }
    fly(r);
    c->world.call(c->world.ctx, r->task->index, psc__op_method(r->op), psc__op_timeout_ms(r->op), &message,
                  request_replied, r);
}

void psc__queue_pump(struct psc__task *t)
{
    struct psc__queue *q = &t->queue;
    struct psc__request *r;
    // An operation that fails here pumps all queues: this one is at it already.
    if (q->resting || q->pumping || t->client->ended.code != PS_OK)
        return;
    q->pumping = true;
    while ((r = TAILQ_FIRST(&q->updates)) && may_send_update(t, r))
        request_send(r);
    while ((r = TAILQ_FIRST(&q->reads)) && may_send_read(t, r))
        request_send(r);
    q->pumping = false;
}

// ---- sending again ------------------------------------------------------------------------------------------------

// When this request's operation has to be given up, if its task stays as it is.
static uint64_t give_up_at(const struct psc__request *r)
{
    uint64_t deadline = psc__op_deadline(r->op);
    if (deadline != UINT64_MAX)
        return deadline;
    // Another request may have been answered while the queue rested: then the task is not down.
    return r->task->queue.down_since ? r->task->queue.down_since + r->task->client->timeout_ns : UINT64_MAX;
}

static struct psc__request *first_expired(const struct psc__requests *list, uint64_t now)
{
    struct psc__request *r;
    for (r = TAILQ_FIRST(list); r; r = TAILQ_NEXT(r, link))
        if (now >= give_up_at(r))
            return r;
    return NULL;
}

static void give_up(struct psc__request *r)
{
    struct psc__task *t = r->task;
    struct ps_error e;
    uint64_t since = psc__op_started(r->op) > t->queue.down_since ? psc__op_started(r->op) : t->queue.down_since;
    double seconds = (double)(psc__now(t->client) - since) / 1e9;
    const char *method = psc__method_name(psc__op_method(r->op));
    if (t->queue.why.code == PS_UNAVAILABLE)
        ps_fail(&e, PS_UNAVAILABLE, "%s: " PSC__TASK " cannot be reached, tried for %.1f s: %s", method,
                PSC__TASK_ARGS(t), seconds, t->queue.why.text);
    else
        ps_fail(&e, t->queue.why.code, "%s: " PSC__TASK " refused for %.1f s: %s", method, PSC__TASK_ARGS(t), seconds,
                t->queue.why.text);
    psc__op_fail(r->op, &e);
}

// The rest is over.
static void task_resume(void *arg)
{
    struct psc__task *t = arg;
    struct psc__queue *q = &t->queue;
    struct psc__request *r;
    psc__lock(t->client);
    q->resting = false;
    uint64_t now = psc__now(t->client);
    while ((r = first_expired(&q->updates, now)) || (r = first_expired(&q->reads, now)))
        give_up(r);
    psc__queue_pump(t);
    psc__unlock(t->client);
}

static void put_back(struct psc__request *r)
{
    struct psc__queue *q = &r->task->queue;
    struct psc__request *later;
    r->state = PSC__QUEUED;
    if (!r->mutates) {
        TAILQ_INSERT_HEAD(&q->reads, r, link);
        return;
    }
    for (later = TAILQ_FIRST(&q->updates); later; later = TAILQ_NEXT(later, link))
        if (later->ticket > r->ticket)
            break;
    if (later)
        TAILQ_INSERT_BEFORE(later, r, link);
    else
        TAILQ_INSERT_TAIL(&q->updates, r, link);
}

// An update has been refused, or its answer is lost. What was read behind it may be without it.
static void note_overtaken(const struct psc__request *update)
{
    struct psc__request *r;
    for (r = TAILQ_FIRST(&update->task->queue.reads_flying); r; r = TAILQ_NEXT(r, link))
        r->overtook |= r->ticket >= update->ticket;
}

static void rest(struct psc__task *t, enum ps_code code, const char *text)
{
    struct psc__queue *q = &t->queue;
    if (!q->down_since)
        q->down_since = psc__now(t->client);
    q->draining = q->updates_flying > 0;
    ps_fail(&q->why, code, "%s", text);
    if (q->resting)
        return;
    q->resting = true;
    psc__after(t->client, psc__backoff(t->client, q->attempt++), task_resume, t);
}

// ---- landing ------------------------------------------------------------------------------------------------------

static void land(struct psc__request *r)
{
    struct psc__queue *q = &r->task->queue;
    r->state = PSC__LANDED;
    if (!r->mutates)
        TAILQ_REMOVE(&q->reads_flying, r, link);
    if (!r->mutates || r->round_trip)
        return;
    q->bytes_flying -= r->bytes;
    if (--q->updates_flying == 0)
        q->draining = false;
}

static void answered(const struct psc__request *r)
{
    struct psc__queue *q = &r->task->queue;
    q->attempt = 0;
    q->down_since = 0;
    if (r->mutates && r->alone && r->ticket >= q->careful_ticket)
        q->careful_ticket = 0;
}

// Called with the lock held and returns with it held; lets go of it in between, while bytes are copied.
static void request_accept(struct psc__request *r, const struct ps_slices *reply)
{
    struct psc_op *op = r->op;
    struct psc_client *c = r->task->client;
    struct psc__answer answer;
    struct ps_error e;
    psc__op_hold(op);
    psc__unlock(c);
    enum ps_code code = psc__op_read_reply(op, r, reply, &answer, &e);
    psc__lock(c);
    if (r->op && code != PS_OK) {
        psc__op_fail(op, &e);
    } else if (r->op && psc__op_accept(op, r, &answer)) {
        put_back(r);
        r = NULL;
    } else if (r->op) {
        psc__op_request_done(op, r);
        r = NULL;
    }
    free(r);
    psc__op_unhold(op);
    psc__answer_free(&answer);
}

static void request_failed(struct psc__request *r, enum ps_code code, const char *text)
{
    struct psc__task *t = r->task;
    if (code == PS_DEADLINE_EXCEEDED && psc__op_deadline(r->op) == UINT64_MAX) {
        put_back(r);  // waits for a round: others live, so it goes on
    } else if (code == PS_ABORTED && r->snapshot) {
        psc__op_restart(r->op, r);  // psd needed the memory: that read starts again
        put_back(r);
    } else if (code == PS_ABORTED) {
        // The job has ended, the task has lost its state, or another process has this worker's place: whichever, this
        // client must not go on as if nothing had happened.
        psc__end(t->client, code, PSC__TASK ": %s", PSC__TASK_ARGS(t), text);
        free(r);
    } else if (code == PS_NOT_FOUND && t->client->member.joined) {
        psc__lost_job(t, text);
        free(r);
    } else if (code == PS_UNAVAILABLE || code == PS_RESOURCE_EXHAUSTED) {
        put_back(r);
        if (r->mutates)
            note_overtaken(r);
        if (code == PS_RESOURCE_EXHAUSTED && r->mutates && r->ticket > t->queue.careful_ticket)
            t->queue.careful_ticket = r->ticket;
        rest(t, code, text);
        if (psc__now(t->client) >= give_up_at(r))
            give_up(r);
    } else {
        struct ps_error e;
        ps_fail(&e, code, "%s: " PSC__TASK ": %s", psc__method_name(psc__op_method(r->op)), PSC__TASK_ARGS(t), text);
        psc__op_fail(r->op, &e);
        free(r);
    }
}

static void request_replied(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct psc__request *r = arg;
    struct psc__task *t = r->task;
    psc__lock(t->client);
    land(r);
    if (code != PS_UNAVAILABLE && code != PS_RESOURCE_EXHAUSTED)
        answered(r);
    if (!r->op) {
        free(r);
    } else if (code == PS_OK && r->overtook) {
        psc__op_restart(r->op, r);
        put_back(r);
    } else if (code == PS_OK) {
        request_accept(r, reply);
    } else {
        request_failed(r, code, text);
    }
    psc__queue_pump(t);
    psc__unlock(t->client);
}
