// SPDX-License-Identifier: Apache-2.0
#include "libclient/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/sometimes.h"
#include "common/math/encoding.h"
#include "common/math/finite.h"
#include "libclient/call.h"
#include "libclient/convert.h"

// Of operations and requests that have ended, so many are kept for the next ones, with arrays of so many elements.
enum { IDLE_OPS = 64, FREE_REQUESTS = 256, KEPT_ELEMENTS = 64 };
enum { FIRST_ROUND_SECONDS = 5 };  // what is usual before there has been a round
enum { DRAIN_SECONDS = 2 };        // from the transport's shutdown on; a thread may be about to let go of memory
enum { RELEASE_MS = 5000 };        // in which a task hears that a snapshot is not needed any more, or not from here

static struct psc_op *op_of_memory(struct ps_owner *o)
{
    return (struct psc_op *)((char *)o - offsetof(struct psc_op, memory));
}

static struct psc__op_request *op_request(struct psc__request *r)
{
    return (struct psc__op_request *)r;
}

// ---- those that are kept ------------------------------------------------------------------------------------------

static void op_destroy(struct psc_op *op)
{
    free(op->extents);
    free(op->per_task);
    free(op);
}

static void ops_end(struct psc_client *c, const struct ps_error *why);

bool psc__ops_create(struct psc_client *c)
{
    struct psc__ops *ops = c->ops = ps_try_alloc(sizeof *ops);
    if (!ops)
        return false;
    TAILQ_INIT(&ops->open);
    TAILQ_INIT(&ops->free_requests);
    TAILQ_INIT(&ops->idle);
    ops->users = 1;
    pthread_mutex_init(&ops->lock, NULL);
    ps_cond_init(&ops->ended);
    ops->ender.end = ops_end;
    TAILQ_INSERT_TAIL(&c->enders, &ops->ender, link);
    return true;
}

// Somebody is done with it: the client, or an operation that is idle now. Its lock is held, and given back.
static void ops_release(struct psc__ops *ops)
{
    struct psc_op *op;
    bool last = --ops->users == 0;
    pthread_mutex_unlock(&ops->lock);
    if (!last)
        return;
    while ((op = TAILQ_FIRST(&ops->idle))) {
        TAILQ_REMOVE(&ops->idle, op, link);
        op_destroy(op);
    }
    pthread_cond_destroy(&ops->ended);
    pthread_mutex_destroy(&ops->lock);
    free(ops);
}

void psc__ops_free(struct psc_client *c)
{
    struct psc__op_request *r;
    if (!c->ops)
        return;
    while ((r = TAILQ_FIRST(&c->ops->free_requests))) {
        TAILQ_REMOVE(&c->ops->free_requests, r, link);
        free(r);
    }
    pthread_mutex_lock(&c->ops->lock);
    ops_release(c->ops);
    c->ops = NULL;
}

// All zero but for the arrays. NULL: no memory.
static struct psc_op *op_take(struct psc__ops *ops)
{
    pthread_mutex_lock(&ops->lock);
    struct psc_op *op = TAILQ_FIRST(&ops->idle);
    if (op) {
        TAILQ_REMOVE(&ops->idle, op, link);
        ops->n_idle--;
    } else {
        op = ps_try_alloc(sizeof *op);
    }
    ops->users += op != NULL;
    ops->unreported += op != NULL;
    pthread_mutex_unlock(&ops->lock);
    return op;
}

// Nobody has it any more. The lock of ops is held, and given back.
static void op_return(struct psc__ops *ops, struct psc_op *op)
{
    bool keep = ops->n_idle < IDLE_OPS && op->cap_extents <= KEPT_ELEMENTS && op->cap_per_task <= KEPT_ELEMENTS;
    struct psc__extent *extents = op->extents;
    struct psc__per_task *per_task = op->per_task;
    size_t cap_extents = op->cap_extents, cap_per_task = op->cap_per_task;
    if (keep) {
        memset(op, 0, sizeof *op);
        op->extents = extents;
        op->per_task = per_task;
        op->cap_extents = cap_extents;
        op->cap_per_task = cap_per_task;
        TAILQ_INSERT_HEAD(&ops->idle, op, link);
        ops->n_idle++;
    } else {
        op_destroy(op);
    }
    ops_release(ops);
}

// One holder has let go: any thread. The lock of ops is held, and given back.
static void op_drop(struct psc_op *op)
{
    struct psc__ops *ops = op->ops;
    if (atomic_fetch_sub(&op->holders, 1) != 1) {
        pthread_mutex_unlock(&ops->lock);
        return;
    }
    psc__op_free_strings(op);
    psc__op_free_encoded(op);
    free(op->why);
    op_return(ops, op);
}

static void op_released(void *arg, const struct ps_error *e, struct ps_slices *reply)
{
    (void)arg, (void)e, (void)reply;  // psd forgets it in time, too
}

// A get that took several messages has ended: its task need not keep what it read.
static void op_release_snapshot(struct psc_client *c, struct psc__op_request *r)
{
    Paramserver__V1__ReadRequest message = PARAMSERVER__V1__READ_REQUEST__INIT;
    struct ps_error e;
    message.snapshot = r->snapshot;
    message.release = true;
    r->snapshot = 0;
    if (!message.snapshot || c->ended.code != PS_OK)
        return;
    (void)psc__call_locked(c,
                           &(struct psc__call_spec){.task = r->is.queue->task->index,
                                                    .method = PARAMSERVER__V1__METHOD__GET,
                                                    .message = &message.base,
                                                    .timeout_ms = RELEASE_MS,
                                                    .once = true,
                                                    .done = op_released},
                           &e);
}

static void op_request_free(struct psc_client *c, struct psc__op_request *r)
{
    op_release_snapshot(c, r);
    if (c->ops->n_free_requests == FREE_REQUESTS) {
        free(r);
        return;
    }
    TAILQ_INSERT_HEAD(&c->ops->free_requests, r, link);
    c->ops->n_free_requests++;
}

// ---- the end of an operation --------------------------------------------------------------------------------------

static void op_set_error(struct psc_op *op, const struct ps_error *e)
{
    op->code = e->code;
    op->why = e->code == PS_OK ? NULL : ps_try_alloc(sizeof *op->why);
    if (op->why)
        *op->why = *e;
}

static void op_error_out(const struct psc_op *op, psc_error *to)
{
    struct ps_error e = {.code = op->code, .text = "no memory for the reason"};
    psc__error_out(op->why ? op->why : &e, to);
}

static void op_result_out(const struct psc_op *op, psc_result *to)
{
    const struct psc__found *f = &op->found;
    op_error_out(op, &to->error);
    to->version = f->version;
    to->staleness = f->staleness;
    to->round = f->round;
    to->applied = f->applied;
    to->queued = f->queued;
    to->stale = f->stale;
    to->duplicates = f->duplicates;
    to->open_round = f->open_round;
    to->last_round = f->last_round;
    to->nonfinite = f->nonfinite;
    to->unchanged = f->unchanged;
}

// Without the lock.
static void op_report(struct psc__later *later)
{
    struct psc_op *op = (struct psc_op *)((char *)later - offsetof(struct psc_op, later));
    struct psc__ops *ops = op->ops;
    if (op->callback) {
        psc_result result;
        op_result_out(op, &result);
        op->callback(op->arg, &result);
    }
    pthread_mutex_lock(&ops->lock);
    atomic_store(&op->done, true);
    ops->unreported--;
    ops->reported++;
    if (ops->waiting)
        pthread_cond_broadcast(&ops->ended);
    op_drop(op);
}

// Outcome known, memory free.
static void op_end(struct psc_op *op)
{
    TAILQ_REMOVE(&op->ops->open, op, link);
    psc__run_later(op->client, &op->later, op_report);
}

// The transport has dropped the last reference. Where its end has been told without that, there is no client any more.
static void op_memory_released(struct ps_owner *o)
{
    struct psc_op *op = op_of_memory(o);
    if (atomic_exchange(&op->memory_is, PSC__MEMORY_RELEASED) == PSC__MEMORY_LEFT) {
        pthread_mutex_lock(&op->ops->lock);
        op_drop(op);
        return;
    }
    psc_client *c = op->client;
    psc__lock(c);
    op_end(op);
    psc__unlock(c);
}

static void op_unhold(struct psc_op *op)
{
    if (atomic_fetch_sub(&op->memory.refs, 1) == 1)
        op_end(op);
}

// What the next operation with the same psc_seen need not get again; how many tensors this one has left alone.
static void op_note_seen(struct psc_op *op)
{
    uint32_t touched = 0, last = UINT32_MAX;
    for (uint32_t i = 0; i < op->n_extents; i++) {
        const struct psc__extent *extent = &op->extents[i];
        if (!extent->touched)
            continue;
        op->seen->changes[extent->partition] = extent->changes;
        touched += extent->tensor != last;  // a tensor's extents lie side by side
        last = extent->tensor;
    }
    op->found.unchanged = op->n_tensors - touched;
}

// All blocks of an atomic update take effect at a task together, whichever request's answer told of it.
static void op_count_staged(struct psc_op *op)
{
    struct ps_error e;
    for (uint32_t i = 0; i < op->n_per_task; i++) {
        const struct psc__per_task *p = &op->per_task[i];
        if (p->committed) {
            op->found.applied += p->staged;
        } else if (p->repeated) {
            op->found.duplicates += p->staged;
        } else if (p->staged && op->code == PS_OK) {
            ps_fail(&e, PS_INTERNAL, "%s: " PSC__TASK " has all %" PRIu64 " bytes of an atomic update, not applied",
                    op->name, PSC__TASK_ARGS(&op->client->tasks[p->task]), p->bytes);
            op_set_error(op, &e);
        }
    }
}

// All blocks of a partition's gradient count in the round, or none, whichever request's answer told of it. The extents
// of a partition lie side by side.
static void op_count_partial(struct psc_op *op)
{
    for (uint32_t i = 0, end; i < op->n_extents; i = end) {
        uint32_t partial = 0;
        bool stale = false;
        for (end = i; end < op->n_extents && op->extents[end].partition == op->extents[i].partition; end++) {
            partial += op->extents[end].partial;
            stale |= op->extents[end].stale;
        }
        *(stale ? &op->found.stale : &op->found.queued) += partial;
    }
}

// An operation of a round has ended.
static void op_note_round(const struct psc_op *op)
{
    struct psc__ops *ops = op->ops;
    const uint64_t took = psc__now(op->client) - op->started;
    if (op->round > ops->round) {
        ops->round_before_ns = ops->round_ns;
        ops->round_ns = 0;
        ops->round = op->round;
    }
    ops->round_ns = took > ops->round_ns ? took : ops->round_ns;
}

void psc__ops_name_wait(struct psc_client *c, uint64_t since, char *what, size_t size)
{
    const struct psc__ops *ops = c->ops;
    const uint64_t before = ops->round_ns > ops->round_before_ns ? ops->round_ns : ops->round_before_ns;
    const uint64_t usual = before ? before : FIRST_ROUND_SECONDS * PS_SECOND, now = psc__now(c);
    const struct psc_op *op;
    TAILQ_FOREACH(op, &ops->open, link)
    if (!op->over && !op->refused && op->deadline == UINT64_MAX && op->started < since && now - op->started > 2 * usual)
        break;
    if (op && c->workers > 1)
        snprintf(what, size, "the other workers' gradients of round %" PRIu64, op->round);
}

static void op_finish(struct psc_op *op)
{
    op->over = true;
    if (op->deadline == UINT64_MAX && op->code == PS_OK)
        op_note_round(op);
    if (op->round)
        op_count_partial(op);
    if (op->atomic)
        op_count_staged(op);
    if (op->seen && op->code == PS_OK)
        op_note_seen(op);
    if (op->code == PS_OK)
        psc__op_hand_over(op);
    if (op->seen)
        op->seen->busy = false;
    psc__window_leave(&op->client->window, &op->ticket);
    op_unhold(op);
}

static void op_detach(struct psc__op_request *r)
{
    struct psc_client *c = r->op->client;
    TAILQ_REMOVE(&r->op->requests, r, link);
    if (r->is.state == PSC__FLYING || r->is.state == PSC__LANDED) {
        r->is.abandoned = true;
        r->op = NULL;
        return;
    }
    if (r->is.state == PSC__QUEUED)
        psc__queue_remove(&r->is);
    op_request_free(c, r);
}

// Requests that were sent are left to land, the others are freed.
static void op_give_up(struct psc_op *op, const struct ps_error *e)
{
    struct psc__op_request *r;
    op_set_error(op, e);
    while ((r = TAILQ_FIRST(&op->requests)))
        op_detach(r);
}

static void op_fail(struct psc_op *op, const struct ps_error *e)
{
    if (op->over)
        return;
    op_give_up(op, e);
    psc__queues_pump(op->client);  // reads may have waited for these
    op_finish(op);
}

static void ops_end(struct psc_client *c, const struct ps_error *why)
{
    struct psc_op *op, *next;
    for (op = TAILQ_FIRST(&c->ops->open); op; op = next) {
        next = TAILQ_NEXT(op, link);
        if (!op->refused)
            op_fail(op, why);
    }
}

void psc__ops_expire(struct psc_client *c)
{
    struct psc_op *op, *next;
    uint64_t now = psc__now(c);
    for (op = TAILQ_FIRST(&c->ops->open); op; op = next) {
        next = TAILQ_NEXT(op, link);
        // A second for the transport to say it better.
        if (op->over || op->refused || op->deadline == UINT64_MAX || now < op->deadline + PS_SECOND)
            continue;
        struct ps_error e;
        ps_fail(&e, PS_DEADLINE_EXCEEDED, "%s: not finished after %.1f s: %s", op->name,
                (double)(now - op->started) / 1e9,
                op->ticket.state == PSC__TICKET_WAITS ? "256 earlier operations are still open" : "no answer");
        op_fail(op, &e);
        next = TAILQ_FIRST(&c->ops->open);  // others may have ended with it
    }
}

// ---- an operation that ends before it begins ----------------------------------------------------------------------

static void op_finish_refused(struct psc_op *op)
{
    op->refused = false;
    op_finish(op);
}

static void op_report_refused(void *arg)
{
    struct psc_op *op = arg;
    psc_client *c = op->client;
    psc__lock(c);
    op_finish_refused(op);
    psc__unlock(c);
}

// Callbacks never run from inside the function that starts an operation: so this takes a timer too.
static void op_refuse(struct psc_op *op, const struct ps_error *e)
{
    struct psc__op_request *r;
    op_set_error(op, e);
    while ((r = TAILQ_FIRST(&op->requests))) {
        TAILQ_REMOVE(&op->requests, r, link);
        op_request_free(op->client, r);
    }
    op->refused = true;
    psc__after(op->client, 0, op_report_refused, op);
}

// Its callback runs on no thread of the caller's either.
static void op_cancel(struct psc_op *op, const struct ps_error *e)
{
    psc_client *c = op->client;
    if (op->over || op->refused)
        return;
    op_give_up(op, e);
    op->refused = true;
    psc__window_leave(&c->window, &op->ticket);  // it is not to be started
    psc__after(c, 0, op_report_refused, op);
    psc__queues_pump(c);
}

static void ops_finish_refused(struct psc_client *c)
{
    struct psc_op *op, *next;
    psc__lock(c);
    for (op = TAILQ_FIRST(&c->ops->open); op; op = next) {
        next = TAILQ_NEXT(op, link);
        if (op->refused)
            op_finish_refused(op);
    }
    psc__unlock(c);  // callbacks may start others, which are refused
}

static void op_set_stuck(struct psc_op *op)
{
    const struct psc__task *t = &op->client->tasks[op->per_task[0].task];
    const char *others = op->n_per_task > 1 ? ", or another ps task," : "";
    struct ps_error e;
    ps_fail(&e, op->code ? op->code : PS_CANCELLED,
            "%s: the client was closed, and " PSC__TASK "%s has not taken what was sent: the tensors' memory is in use",
            op->name, PSC__TASK_ARGS(t), others);
    free(op->why);
    op_set_error(op, &e);
}

// The transport has shut down, and keeps the memory of some all the same. They end without that; what the transport
// looks at besides the tensors is freed when it lets go.
static void ops_leave_memory(struct psc_client *c)
{
    struct psc_op *op, *next;
    psc__lock(c);
    for (op = TAILQ_FIRST(&c->ops->open); op; op = next) {
        enum psc__memory held = PSC__MEMORY_HELD;
        next = TAILQ_NEXT(op, link);
        if (op->refused || !op->over)
            continue;
        atomic_fetch_add(&op->holders, 1);  // the transport, from before it can find that its memory was left
        if (atomic_compare_exchange_strong(&op->memory_is, &held, PSC__MEMORY_LEFT)) {
            op_set_stuck(op);
            op_end(op);
        } else {
            atomic_fetch_sub(&op->holders, 1);  // it lets go at this moment, and waits for the client's lock
        }
    }
    psc__unlock(c);
}

// Other threads may be about to let go of an operation's memory; and its callback may start another.
void psc__ops_drain(struct psc_client *c)
{
    struct psc__ops *ops = c->ops;
    pthread_mutex_lock(&ops->lock);
    while (ops->unreported) {
        const uint64_t reported = ops->reported, until = ps_now() + DRAIN_SECONDS * PS_SECOND;
        bool in_time = true;
        pthread_mutex_unlock(&ops->lock);
        ops_finish_refused(c);
        pthread_mutex_lock(&ops->lock);
        ops->waiting++;
        while (ops->unreported && ops->reported == reported && in_time)
            in_time = ps_cond_wait_until(&ops->ended, &ops->lock, until);
        ops->waiting--;
        pthread_mutex_unlock(&ops->lock);
        if (!in_time)
            ops_leave_memory(c);
        pthread_mutex_lock(&ops->lock);
    }
    pthread_mutex_unlock(&ops->lock);
}

// ---- requests -----------------------------------------------------------------------------------------------------

static void op_admit(struct psc__per_task *p)
{
    struct psc__request *r;
    while (p->admitted < PSC__READS_FLYING && (r = TAILQ_FIRST(&p->held))) {
        TAILQ_REMOVE(&p->held, r, link);
        p->admitted++;
        psc__queue_add(r);
    }
}

static void op_request_done(struct psc_op *op, struct psc__op_request *r)
{
    struct psc__per_task *p = &op->per_task[r->per_task];
    bool read = !r->is.mutates;
    TAILQ_REMOVE(&op->requests, r, link);
    op_request_free(op->client, r);
    if (read) {
        p->admitted--;
        op_admit(p);
    }
    if (--op->left == 0)
        op_finish(op);
}

// Has all of the operation that is another task's been done?
static bool op_is_done_elsewhere(const struct psc_op *op, const struct psc__op_request *r)
{
    const struct psc__op_request *other;
    for (uint32_t i = 0; i < op->n_per_task; i++) {
        TAILQ_FOREACH(other, &op->requests, link)
        if (other->per_task == i)
            break;
        if (i != r->per_task && !other)
            return true;
    }
    return false;
}

static void op_request_pack(struct psc__request *r, struct ps_slices *to)
{
    if (r->mutates && r->again && op_is_done_elsewhere(op_request(r)->op, op_request(r)))
        ps_sometimes(PS_SOMETIMES_PUSH_CUT);
    psc__op_pack(op_request(r)->op, op_request(r), to);
}

// A read that goes on has as long as at first. Not one that had to begin again: what it reads could be lost each time.
static void op_extend(struct psc_op *op, struct psc__op_request *r)
{
    if (op->deadline != UINT64_MAX && !r->restarted)
        r->is.deadline = op->deadline = psc__now(op->client) + op->client->timeout_ns;
}

static bool op_request_accept(struct psc__request *request, const struct ps_slices *reply)
{
    struct psc__op_request *r = op_request(request);
    struct psc_op *op = r->op;
    struct psc_client *c = op->client;
    struct psc__answer answer;
    struct ps_error e;
    bool goes_on = false, values = !r->is.mutates || op->method == PARAMSERVER__V1__METHOD__PUSH_PULL;
    ps_owner_ref(&op->memory);
    if (values)
        psc__unlock(c);
    enum ps_code code = psc__op_read_reply(op, r, reply, &answer, &e);
    if (values)
        psc__lock(c);
    if (r->op && code != PS_OK)
        op_fail(op, &e);
    if (r->op)
        goes_on = psc__op_accept(op, r, &answer);  // which may end the client, and so the operation
    if (r->op && goes_on)
        op_extend(op, r);
    if (!r->op)
        op_request_free(c, r);
    else if (!goes_on)
        op_request_done(op, r);
    op_unhold(op);
    psc__answer_free(&answer);
    return goes_on;
}

static void op_request_restart(struct psc__request *r)
{
    psc__op_restart(op_request(r)->op, op_request(r));
}

static void op_request_fail(struct psc__request *r, const struct ps_error *e)
{
    op_fail(op_request(r)->op, e);
}

static void op_request_drop(struct psc__request *r)
{
    op_request_free(r->queue->task->client, op_request(r));
}

static const struct psc__request_kind op_request_kind = {op_request_pack, op_request_accept, op_request_restart,
                                                         op_request_fail, op_request_drop};

// ---- starting -----------------------------------------------------------------------------------------------------

static void op_start_reads(struct psc_op *op)
{
    struct psc__op_request *r;
    for (uint32_t i = 0; i < op->n_per_task; i++)
        TAILQ_INIT(&op->per_task[i].held);
    TAILQ_FOREACH(r, &op->requests, link)
    TAILQ_INSERT_TAIL(&op->per_task[r->per_task].held, &r->is, link);
    for (uint32_t i = 0; i < op->n_per_task; i++)
        op_admit(&op->per_task[i]);
}

static void op_start_updates(struct psc_op *op)
{
    struct psc__op_request *r;
    TAILQ_FOREACH(r, &op->requests, link)
    psc__queue_add(&r->is);
}

// An operation may find no memory while its requests are sent, and end: so the tasks are pumped one by one, each
// whether or not it has some of them.
static void op_start(struct psc__ticket *ticket)
{
    struct psc_op *op = (struct psc_op *)((char *)ticket - offsetof(struct psc_op, ticket));
    psc_client *c = op->client;
    struct psc__op_request *r;
    TAILQ_FOREACH(r, &op->requests, link)
    r->is.sequence = op->ticket.sequence;
    if (op->ticket.mutates)
        op_start_updates(op);
    else
        op_start_reads(op);
    psc__queues_pump(c);
}

static bool method_is_read(int method)
{
    return method == PARAMSERVER__V1__METHOD__GET || method == PARAMSERVER__V1__METHOD__PULL;
}

// A read or a push and pull of a round waits for the others.
static uint64_t op_deadline(const struct psc_op *op, const struct psc__op_spec *spec)
{
    if (spec->round && spec->method != PARAMSERVER__V1__METHOD__PUSH)
        return UINT64_MAX;
    return op->started + (spec->shards ? psc__shards_timeout(spec->shards) * PS_MS : op->client->timeout_ns);
}

static void op_init(struct psc_op *op, psc_client *c, const struct psc__op_spec *spec)
{
    op->client = c;
    op->ops = c->ops;
    op->method = spec->method;
    op->name = spec->name;
    op->round = spec->round;
    op->examples = spec->examples;
    op->priority = spec->priority;
    op->atomic = spec->atomic;
    op->refuse_nonfinite = spec->refuse_nonfinite;
    op->averages = spec->averages;
    op->steps = spec->steps;
    op->shards = spec->shards;
    op->callback = spec->callback;
    op->arg = spec->arg;
    op->ticket.mutates = !method_is_read(spec->method);
    op->ticket.start = op_start;
    op->memory.free = op_memory_released;
    atomic_init(&op->memory.refs, 1);
    atomic_init(&op->holders, spec->handle ? 2 : 1);
    atomic_init(&op->memory_is, PSC__MEMORY_HELD);
    atomic_init(&op->done, false);
    op->started = psc__now(c);
    op->deadline = op_deadline(op, spec);
    TAILQ_INIT(&op->requests);
}

static enum ps_code op_check_seen(struct psc_op *op, psc_seen *seen, struct ps_error *e)
{
    if (memcmp(seen->client, op->client->id, sizeof seen->client) != 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "get: what was seen is another client's");
    if (seen->busy)
        return ps_fail(e, PS_FAILED_PRECONDITION, "get: another operation with the same psc_seen is under way");
    op->seen = seen;
    seen->busy = true;
    return PS_OK;
}

// All of the operation, before any of it is sent: psd sees one request of it after the other, and would have applied
// those before.
static enum ps_code op_check_finite(const struct psc__op_spec *spec, struct ps_error *e)
{
    for (size_t i = 0; spec->refuse_nonfinite && i < spec->n; i++) {
        const psc_tensor *t = &spec->tensors[i];
        const float *residual = spec->encoding ? spec->residual[i] : NULL;
        const size_t at = residual ? ps_encoding_nonfinite_first((int)spec->encoding, t->count, t->data, residual)
                                   : ps_nonfinite_first((int)t->dtype, t->data, t->count);
        if (at < t->count)
            return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': the gradient's element %" PRIu64 " is not finite",
                           t->name, (t->part ? t->first : 0) + at);
    }
    return PS_OK;
}

static enum ps_code op_prepare(struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e)
{
    psc_client *c = op->client;
    if (c->ended.code != PS_OK)
        return (*e = c->ended).code;
    if (!c->layout)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: no variables are known: psc_declare or psc_attach comes first",
                       op->name);
    op->layout = c->layout;
    if (spec->atomic && psc__op_in_rounds(op))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: atomic is not for a sync job: a round takes effect at once anyway",
                       op->name);
    if (spec->atomic && op->method == PARAMSERVER__V1__METHOD__PUSH_PULL)
        return ps_fail(e, PS_INVALID_ARGUMENT, "push_pull: atomic is for psc_push, and a psc_pull after it");
    if (spec->n && !spec->tensors)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: there are no tensors, %zu were named", op->name, spec->n);
    if (op->method == PARAMSERVER__V1__METHOD__PUSH_PULL && spec->n && !spec->into)
        return ps_fail(e, PS_INVALID_ARGUMENT, "push_pull: there are no tensors to pull into");
    if (spec->seen && op_check_seen(op, spec->seen, e) != PS_OK)
        return e->code;
    if (psc__op_cut(op, spec, e) != PS_OK || psc__op_check_encoding(op, spec, e) != PS_OK ||
        op_check_finite(spec, e) != PS_OK)
        return e->code;
    return psc__op_encode_gradients(op, spec, e);
}

// The requests were cut: what the queues want to know of them.
static void op_dress_requests(struct psc_op *op)
{
    struct psc__op_request *r;
    TAILQ_FOREACH(r, &op->requests, link)
    {
        r->is.kind = &op_request_kind;
        r->is.queue = &op->client->queues[op->per_task[r->per_task].task];
        r->is.method = op->method;
        r->is.name = op->name;
        r->is.started = op->started;
        r->is.deadline = op->deadline;
        r->is.priority = op->atomic ? 0 : op->priority;
        r->is.mutates = op->ticket.mutates;
        r->is.put = op->method == PARAMSERVER__V1__METHOD__PUT;
        r->is.round_trip = op->method == PARAMSERVER__V1__METHOD__PUSH_PULL && op->round > 0;
    }
}

// There is no memory to tell it later.
static void op_fail_here(const struct psc__op_spec *spec)
{
    psc_result result = {.error.code = PSC_RESOURCE_EXHAUSTED, .error.text = "no memory for an operation"};
    if (spec->handle)
        *spec->handle = NULL;
    if (spec->callback)
        spec->callback(spec->arg, &result);
}

static void op_begin(psc_client *c, const struct psc__op_spec *spec)
{
    struct ps_error e = {.code = PS_OK};
    psc__lock(c);
    struct psc_op *op = op_take(c->ops);
    if (!op) {
        psc__unlock(c);
        op_fail_here(spec);
        return;
    }
    op_init(op, c, spec);
    if (spec->handle)
        *spec->handle = op;
    TAILQ_INSERT_TAIL(&c->ops->open, op, link);
    if (op_prepare(op, spec, &e) != PS_OK || op->left == 0) {
        op_refuse(op, &e);
    } else {
        op_dress_requests(op);
        psc__window_enter(&c->window, &op->ticket);
    }
    psc__unlock(c);
}

// ---- the public functions -----------------------------------------------------------------------------------------

static struct psc__op_spec op_spec(int method, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                                   psc_op **op)
{
    return (struct psc__op_spec){.method = method,
                                 .name = psc__method_name(method),
                                 .tensors = tensors,
                                 .n = n,
                                 .callback = callback,
                                 .arg = arg,
                                 .handle = op};
}

void psc_put(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__PUT, tensors, n, callback, arg, op);
    op_begin(client, &spec);
}

void psc_get(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__GET, tensors, n, callback, arg, op);
    op_begin(client, &spec);
}

void psc_get_newer(psc_client *client, psc_seen *seen, const psc_tensor *tensors, size_t n, psc_callback callback,
                   void *arg, psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__GET, tensors, n, callback, arg, op);
    spec.seen = seen;
    op_begin(client, &spec);
}

void psc_assign_add(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                    psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__ASSIGN_ADD, tensors, n, callback, arg, op);
    op_begin(client, &spec);
}

void psc_assign_sub(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                    psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__ASSIGN_SUB, tensors, n, callback, arg, op);
    op_begin(client, &spec);
}

// NULL: no round, no examples.
static void op_add_options(struct psc__op_spec *spec, const psc_push_options *options)
{
    if (!options)
        return;
    spec->round = options->round;
    spec->examples = options->examples;
    spec->priority = options->priority;
    spec->atomic = options->atomic;
    spec->refuse_nonfinite = options->refuse_nonfinite;
    spec->encoding = options->encoding;
    spec->residual = options->residual;
}

void psc_push(psc_client *client, const psc_tensor *tensors, size_t n, const psc_push_options *options,
              psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__PUSH, tensors, n, callback, arg, op);
    op_add_options(&spec, options);
    op_begin(client, &spec);
}

void psc_push_pull(psc_client *client, const psc_tensor *tensors, const psc_tensor *into, size_t n,
                   const psc_push_options *options, psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__PUSH_PULL, tensors, n, callback, arg, op);
    op_add_options(&spec, options);
    spec.into = into;
    op_begin(client, &spec);
}

void psc_pull(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback, void *arg,
              psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__PULL, tensors, n, callback, arg, op);
    spec.round = round;
    op_begin(client, &spec);
}

void psc_pull_averages(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback,
                       void *arg, psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__PULL, tensors, n, callback, arg, op);
    spec.round = round;
    spec.name = "pull averages";
    spec.averages = true;
    op_begin(client, &spec);
}

void psc_put_state(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t steps, psc_callback callback,
                   void *arg, psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__PUT, tensors, n, callback, arg, op);
    spec.name = "put state";
    spec.steps = steps;
    op_begin(client, &spec);
}

void psc_write_shards(psc_client *client, const psc_tensor *tensors, size_t n, const psc_shards *shards,
                      psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = op_spec(PARAMSERVER__V1__METHOD__GET, tensors, n, callback, arg, op);
    spec.name = "write shards";
    spec.shards = shards;
    op_begin(client, &spec);
}

// ---- what was seen ------------------------------------------------------------------------------------------------

psc_code psc_seen_create(psc_client *client, psc_seen **seen, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    psc__lock(client);
    const struct psc__layout *l = client->layout;
    psc__unlock(client);
    psc_seen *s = l ? ps_try_alloc(sizeof *s) : NULL;
    uint64_t *changes = s ? ps_try_alloc_array(l->n_partitions, sizeof *changes) : NULL;
    if (!l) {
        ps_fail(&e, PS_FAILED_PRECONDITION, "no variables are known: psc_declare or psc_attach comes first");
    } else if (!changes) {
        free(s);
        ps_no_memory(&e, "what a reader has seen");
    } else {
        for (size_t i = 0; i < l->n_partitions; i++)
            changes[i] = UINT64_MAX;
        *s = (psc_seen){.changes = changes};
        memcpy(s->client, client->id, sizeof s->client);
        *seen = s;
    }
    return psc__error_out(&e, error);
}

void psc_seen_free(psc_seen *seen)
{
    if (!seen)
        return;
    free(seen->changes);
    free(seen);
}

// ---- waiting for one ----------------------------------------------------------------------------------------------

bool psc_done(psc_op *op, int timeout_ms)
{
    if (!op || atomic_load(&op->done) || timeout_ms <= 0)
        return !op || atomic_load(&op->done);
    const uint64_t until = ps_now() + (uint64_t)timeout_ms * PS_MS;
    struct psc__ops *ops = op->ops;
    pthread_mutex_lock(&ops->lock);
    ops->waiting++;
    while (!atomic_load(&op->done) && ps_cond_wait_until(&ops->ended, &ops->lock, until))
        continue;
    ops->waiting--;
    pthread_mutex_unlock(&ops->lock);
    return atomic_load(&op->done);
}

void psc_cancel(psc_op *op)
{
    if (!op)
        return;
    struct ps_error e;
    ps_fail(&e, PS_CANCELLED, "%s: it was cancelled", op->name);
    psc_client *c = op->client;
    psc__lock(c);
    op_cancel(op, &e);
    psc__unlock(c);
}

psc_code psc_wait(psc_op *op, psc_result *result, psc_error *error)
{
    psc_result found = {.error.code = PSC_RESOURCE_EXHAUSTED, .error.text = "no memory for an operation"};
    if (op) {
        struct psc__ops *ops = op->ops;
        pthread_mutex_lock(&ops->lock);
        ops->waiting++;
        while (!atomic_load(&op->done))
            pthread_cond_wait(&ops->ended, &ops->lock);
        ops->waiting--;
        op_result_out(op, &found);
        op_drop(op);
    }
    if (result)
        *result = found;
    if (error)
        *error = found.error;
    return found.error.code;
}
