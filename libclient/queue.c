// SPDX-License-Identifier: Apache-2.0
#include "libclient/queue.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/wire/wire.h"

static void queue_replied(void *arg, enum ps_code code, const char *text, struct ps_slices *reply);

bool psc__queues_create(struct psc_client *c)
{
    c->queues = ps_try_alloc_array(c->n_tasks, sizeof *c->queues);
    for (uint32_t t = 0; c->queues && t < c->n_tasks; t++) {
        struct psc__queue *q = &c->queues[t];
        q->task = &c->tasks[t];
        TAILQ_INIT(&q->returned);
        TAILQ_INIT(&q->updates);
        TAILQ_INIT(&q->reads);
        TAILQ_INIT(&q->expired);
        TAILQ_INIT(&q->reads_flying);
    }
    return c->queues;
}

void psc__queues_free(struct psc_client *c)
{
    free(c->queues);
    c->queues = NULL;
}

static void queue_append(struct psc__requests *list, struct psc__request *r)
{
    r->list = list;
    TAILQ_INSERT_TAIL(list, r, link);
}

// An update takes the place of the first that it goes before; that one and those behind it move back by one. What a
// read waits for stays before it.
static void queue_insert_update(struct psc__queue *q, struct psc__request *r)
{
    const struct psc__request *read = TAILQ_LAST(&q->reads, psc__requests);
    struct psc__request *before = TAILQ_LAST(&q->updates, psc__requests);
    r->order = ++q->last_order;
    r->list = &q->updates;
    for (; before && ps_goes_before(r->priority, before->priority) && (!read || before->order > read->order);
         before = TAILQ_PREV(before, psc__requests, link))
        r->order = before->order++;
    if (before)
        TAILQ_INSERT_AFTER(&q->updates, before, r, link);
    else
        TAILQ_INSERT_HEAD(&q->updates, r, link);
}

void psc__queue_add(struct psc__request *r)
{
    struct psc__queue *q = r->queue;
    r->state = PSC__QUEUED;
    if (r->mutates) {
        queue_insert_update(q, r);
    } else {
        r->order = q->last_order;
        queue_append(&q->reads, r);
    }
}

void psc__queue_remove(struct psc__request *r)
{
    TAILQ_REMOVE(r->list, r, link);
    r->list = NULL;
}

// ---- sending ------------------------------------------------------------------------------------------------------

static struct psc__request *queue_next_update(const struct psc__queue *q)
{
    struct psc__request *r = TAILQ_FIRST(&q->returned);
    return r ? r : TAILQ_FIRST(&q->updates);
}

static bool queue_may_update(const struct psc__queue *q, const struct psc__request *r)
{
    if (q->updates_flying == 0)
        return true;
    if (q->draining || q->task->client->unary || q->careful_order)
        return false;
    if ((r->put || q->flying_put) && r->sequence != q->flying_sequence)
        return false;
    return r->round_trip ||
           (q->updates_flying < PSC__UPDATES_FLYING && q->bytes_flying + r->bytes <= PSC__BYTES_FLYING);
}

static bool queue_may_read(const struct psc__queue *q, const struct psc__request *r)
{
    const struct psc__request *unsent = queue_next_update(q);
    if (q->draining || (unsent && unsent->order <= r->order))
        return false;
    return !q->task->client->unary || q->updates_flying == 0 || q->flying_order > r->order;
}

static void queue_fly(struct psc__queue *q, struct psc__request *r)
{
    psc__queue_remove(r);
    r->state = PSC__FLYING;
    r->alone = q->careful_order > 0;
    r->overtook = false;
    if (!r->again)
        r->unsure = psc__now(q->task->client);
    if (!r->mutates)
        queue_append(&q->reads_flying, r);
    if (!r->mutates || r->round_trip)
        return;
    q->updates_flying++;
    q->bytes_flying += r->bytes;
    q->flying_order = r->order;
    q->flying_sequence = r->sequence;
    q->flying_put = r->put;
}

static void queue_send(struct psc__queue *q, struct psc__request *r)
{
    struct psc_client *c = q->task->client;
    struct ps_slices message = PS_SLICES_EMPTY;
    struct ps_error e;
    if (psc__open_session(q->task))
        r->kind->pack(r, &message);
    else
        message.broken = true;
    if (message.broken) {
        ps_slices_clear(&message);
        ps_fail(&e, PS_RESOURCE_EXHAUSTED, "%s: no memory for a request of %zu bytes to " PSC__TASK, r->name, r->bytes,
                PSC__TASK_ARGS(q->task));
        r->kind->fail(r, &e);
        return;
    }
    queue_fly(q, r);
    if (r->deadline == UINT64_MAX)
        r->sent = psc__now(c);
    c->world.call(c->world.ctx, q->task->index, r->method, r->priority, psc__attempt_deadline(c, r->deadline), &message,
                  queue_replied, r);
}

static void queue_pump(struct psc__queue *q)
{
    struct psc__request *r;
    // An operation that fails here pumps all queues: this one is at it already.
    if (q->paused || q->pumping || q->task->client->ended.code != PS_OK)
        return;
    q->pumping = true;
    while ((r = queue_next_update(q)) && queue_may_update(q, r))
        queue_send(q, r);
    while ((r = TAILQ_FIRST(&q->reads)) && queue_may_read(q, r))
        queue_send(q, r);
    q->pumping = false;
}

bool psc__queue_is_down(const struct psc__queue *q, uint64_t since)
{
    return q->down_since && q->down_since < since && (queue_next_update(q) || !TAILQ_EMPTY(&q->reads));
}

void psc__queues_pump(struct psc_client *c)
{
    for (uint32_t t = 0; t < c->n_tasks; t++)
        queue_pump(&c->queues[t]);
}

// ---- sending again ------------------------------------------------------------------------------------------------

// An update of an observer that may have taken effect. Once psd has forgotten the observer (psd/job/clients.h) it would
// take effect again.
static bool queue_is_too_late(const struct psc__queue *q, const struct psc__request *r, uint64_t now)
{
    return r->mutates && r->again && q->task->client->rank < 0 && now - r->unsure >= PS_UNSURE_S * PS_SECOND;
}

// When a request of q has to be given up, if its task stays as it is.
static uint64_t queue_give_up_at(const struct psc__queue *q, const struct psc__request *r)
{
    if (queue_is_too_late(q, r, psc__now(q->task->client)))
        return 0;
    if (r->deadline != UINT64_MAX)
        return r->deadline;
    // Another request may have been answered while the queue rested: then the task is not down.
    return q->down_since ? q->down_since + q->task->client->timeout_ns : UINT64_MAX;
}

static void queue_give_up(struct psc__queue *q, struct psc__request *r)
{
    struct ps_error e;
    uint64_t since = r->started > q->down_since ? r->started : q->down_since;
    double seconds = (double)(psc__now(q->task->client) - since) / 1e9;
    if (queue_is_too_late(q, r, psc__now(q->task->client)))
        ps_fail(&e, PS_UNAVAILABLE,
                "%s: " PSC__TASK
                " has not taken it for %d s, and would take it for another one from now on: whether it "
                "took effect is not known: %s",
                r->name, PSC__TASK_ARGS(q->task), PS_UNSURE_S, q->why.text);
    else if (q->why.code == PS_UNAVAILABLE)
        ps_fail(&e, PS_UNAVAILABLE, "%s: " PSC__TASK " cannot be reached, tried for %.1f s: %s", r->name,
                PSC__TASK_ARGS(q->task), seconds, q->why.text);
    else
        ps_fail(&e, q->why.code, "%s: " PSC__TASK " refused for %.1f s: %s", r->name, PSC__TASK_ARGS(q->task), seconds,
                q->why.text);
    r->kind->fail(r, &e);
}

static void queue_collect_expired(struct psc__queue *q, struct psc__requests *list, uint64_t now)
{
    struct psc__request *r, *next;
    for (r = TAILQ_FIRST(list); r; r = next) {
        next = TAILQ_NEXT(r, link);
        if (now < queue_give_up_at(q, r))
            continue;
        psc__queue_remove(r);
        queue_append(&q->expired, r);
    }
}

// Giving up one ends all requests of its operation: they leave the list of the expired with it.
static void queue_expire(struct psc__queue *q)
{
    struct psc__request *r;
    uint64_t now = psc__now(q->task->client);
    queue_collect_expired(q, &q->returned, now);
    queue_collect_expired(q, &q->updates, now);
    queue_collect_expired(q, &q->reads, now);
    while ((r = TAILQ_FIRST(&q->expired)))
        queue_give_up(q, r);
}

// The rest is over.
static void queue_resume(void *arg)
{
    struct psc__queue *q = arg;
    psc__lock(q->task->client);
    q->paused = false;
    queue_expire(q);
    queue_pump(q);
    psc__unlock(q->task->client);
}

// Answers come in order, or nearly: an update's place is at the end, or near it.
static void queue_put_back(struct psc__queue *q, struct psc__request *r)
{
    struct psc__request *before = TAILQ_LAST(&q->returned, psc__requests);
    r->state = PSC__QUEUED;
    r->list = r->mutates ? &q->returned : &q->reads;
    while (r->mutates && before && before->order > r->order)
        before = TAILQ_PREV(before, psc__requests, link);
    if (r->mutates && before)
        TAILQ_INSERT_AFTER(&q->returned, before, r, link);
    else
        TAILQ_INSERT_HEAD(r->list, r, link);
}

// An update has been refused, or its answer is lost. What was read behind it may be without it.
static void queue_note_overtaken(struct psc__queue *q, const struct psc__request *update)
{
    struct psc__request *r;
    TAILQ_FOREACH(r, &q->reads_flying, link)
    r->overtook |= r->order >= update->order;
}

static void queue_pause(struct psc__queue *q, enum ps_code code, const char *text)
{
    struct psc_client *c = q->task->client;
    if (!q->down_since)
        q->down_since = psc__now(c);
    q->draining = q->updates_flying > 0;
    ps_fail(&q->why, code, "%s", text);
    if (q->paused)
        return;
    q->paused = true;
    psc__after(c, psc__backoff(c, q->attempt++), queue_resume, q);
}

// ---- landing ------------------------------------------------------------------------------------------------------

static void queue_land(struct psc__queue *q, struct psc__request *r)
{
    r->state = PSC__LANDED;
    if (!r->mutates)
        psc__queue_remove(r);
    if (!r->mutates || r->round_trip)
        return;
    q->bytes_flying -= r->bytes;
    if (--q->updates_flying == 0)
        q->draining = false;
}

static void queue_answered(struct psc__queue *q, const struct psc__request *r)
{
    q->attempt = 0;
    q->down_since = 0;
    if (r->mutates && r->alone && r->order >= q->careful_order)
        q->careful_order = 0;
}

static void queue_refused(struct psc__queue *q, struct psc__request *r, enum ps_code code, const char *text)
{
    queue_put_back(q, r);
    r->again |= code == PS_UNAVAILABLE;
    if (r->mutates)
        queue_note_overtaken(q, r);
    if (r->sent && psc__task_was_there(q->task, r->sent))
        q->down_since = 0;
    if (code == PS_RESOURCE_EXHAUSTED && r->mutates && r->order > q->careful_order)
        q->careful_order = r->order;
    queue_pause(q, code, text);
    if (psc__now(q->task->client) >= queue_give_up_at(q, r))
        queue_give_up(q, r);
}

static void queue_say(const struct psc__queue *q, const struct psc__request *r, enum ps_code code, const char *text,
                      struct ps_error *e)
{
    const struct psc__task *t = q->task;
    double seconds = (double)(psc__now(t->client) - r->started) / 1e9;
    if (code == PS_DEADLINE_EXCEEDED)  // text tells of the last attempt, which may have been short
        ps_fail(e, code, "%s: " PSC__TASK ": not done within %.1f s: %s", r->name, PSC__TASK_ARGS(t), seconds, text);
    else
        ps_fail(e, code, "%s: " PSC__TASK ": %s", r->name, PSC__TASK_ARGS(t), text);
}

static void queue_failed(struct psc__queue *q, struct psc__request *r, enum ps_code code, const char *text)
{
    struct psc__task *t = q->task;
    struct ps_error e;
    if (code == PS_DEADLINE_EXCEEDED && r->deadline == UINT64_MAX) {
        queue_put_back(q, r);  // waits for a round: others live, so it goes on
        return;
    }
    if (code == PS_ABORTED && r->goes_on) {
        r->kind->restart(r);  // psd needed the memory: that read starts again
        queue_put_back(q, r);
        return;
    }
    if (code == PS_UNAVAILABLE || code == PS_RESOURCE_EXHAUSTED) {
        queue_refused(q, r, code, text);
        return;
    }
    if (code == PS_ABORTED) {
        // The job has ended, the task has lost its state, or another process has this worker's place: whichever, this
        // client must not go on as if nothing had happened.
        psc__end(t->client, code, PSC__TASK ": %s", PSC__TASK_ARGS(t), text);
    } else if (code == PS_NOT_FOUND && t->client->member.joined) {
        psc__lost_job(t, text);
    } else {
        queue_say(q, r, code, text, &e);
        r->kind->fail(r, &e);
    }
    r->kind->free(r);
}

static void queue_replied(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct psc__request *r = arg;
    struct psc__queue *q = r->queue;
    struct psc_client *c = q->task->client;
    psc__lock(c);
    code = psc__reply_code(c, code);
    queue_land(q, r);
    if (code != PS_UNAVAILABLE && code != PS_RESOURCE_EXHAUSTED)
        queue_answered(q, r);
    if (code == PS_UNAVAILABLE)
        psc__task_unreachable(q->task, text);  // which may end the client, and so r's operation
    else if (code != PS_DEADLINE_EXCEEDED)
        psc__task_heard(q->task);
    if (r->abandoned) {
        r->kind->free(r);
    } else if (code == PS_OK && r->overtook) {
        r->kind->restart(r);
        queue_put_back(q, r);
    } else if (code == PS_OK) {
        if (r->kind->accept(r, reply))
            queue_put_back(q, r);
    } else {
        queue_failed(q, r, code, text);
    }
    queue_pump(q);
    psc__unlock(c);
}
