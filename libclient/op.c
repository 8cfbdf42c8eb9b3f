// SPDX-License-Identifier: Apache-2.0
#include "libclient/op.h"

#include <stdlib.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "libclient/call.h"
#include "libclient/convert.h"

static struct psc_op *of_memory(struct ps_owner *o)
{
    return (struct psc_op *)((char *)o - offsetof(struct psc_op, memory));
}

// ---- the end of an operation --------------------------------------------------------------------------------------

void psc__op_drop(struct psc_op *op)
{
    if (atomic_fetch_sub(&op->holders, 1) != 1)
        return;
    pthread_cond_destroy(&op->cond);
    pthread_mutex_destroy(&op->mutex);
    free(op->shares);
    free(op->pieces);
    free(op);
}

// Without the lock.
static void op_tell(struct psc__later *later)
{
    struct psc_op *op = (struct psc_op *)((char *)later - offsetof(struct psc_op, later));
    psc_client *c = op->client;
    if (op->callback)
        op->callback(op->arg, &op->result);
    pthread_mutex_lock(&c->lock);
    TAILQ_REMOVE(&c->ops, op, link);
    if (TAILQ_EMPTY(&c->ops))
        pthread_cond_broadcast(&c->idle);
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_lock(&op->mutex);
    atomic_store(&op->done, true);
    pthread_cond_broadcast(&op->cond);
    pthread_mutex_unlock(&op->mutex);
    psc__op_drop(op);
}

// Outcome known, memory free.
static void op_end(struct psc_op *op)
{
    psc__run_later(op->client, &op->later, op_tell);
}

// The transport has dropped the last reference.
static void memory_released(struct ps_owner *o)
{
    psc_client *c = of_memory(o)->client;
    psc__lock(c);
    op_end(of_memory(o));
    psc__unlock(c);
}

void psc__op_hold(struct psc_op *op)
{
    ps_owner_ref(&op->memory);
}

void psc__op_unhold(struct psc_op *op)
{
    if (atomic_fetch_sub(&op->memory.refs, 1) == 1)
        op_end(op);
}

static void op_finish(struct psc_op *op)
{
    op->over = true;
    psc__window_leave(&op->client->window, &op->seat);
    psc__op_unhold(op);
}

static void detach(struct psc__request *r)
{
    TAILQ_REMOVE(&r->op->requests, r, of_op);
    if (r->state == PSC__FLYING || r->state == PSC__LANDED) {
        r->op = NULL;
        return;
    }
    if (r->state == PSC__QUEUED)
        psc__queue_remove(r);
    free(r);
}

void psc__op_fail(struct psc_op *op, const struct ps_error *e)
{
    struct psc__request *r;
    if (op->over)
        return;
    psc__error_out(e, &op->result.error);
    while ((r = TAILQ_FIRST(&op->requests)))
        detach(r);
    for (uint32_t t = 0; t < op->client->n_tasks; t++)
        psc__queue_pump(&op->client->tasks[t]);  // reads may have waited for these
    op_finish(op);
}

void psc__ops_fail(struct psc_client *c, const struct ps_error *e)
{
    struct psc_op *op, *next;
    for (op = TAILQ_FIRST(&c->ops); op; op = next) {
        next = TAILQ_NEXT(op, link);
        if (!op->refused)
            psc__op_fail(op, e);
    }
}

void psc__ops_expire(struct psc_client *c)
{
    struct psc_op *op, *next;
    uint64_t now = psc__now(c);
    for (op = TAILQ_FIRST(&c->ops); op; op = next) {
        next = TAILQ_NEXT(op, link);
        // A second for the transport to say it better.
        if (op->over || op->refused || op->deadline == UINT64_MAX || now < op->deadline + PS_SECOND)
            continue;
        struct ps_error e;
        ps_fail(&e, PS_DEADLINE_EXCEEDED, "%s: not finished after %.1f s: %s", psc__method_name(op->method),
                (double)(now - op->started) / 1e9,
                op->seat.state == PSC__SEAT_WAITS ? "256 earlier operations are still open" : "no answer");
        psc__op_fail(op, &e);
    }
}

// ---- an operation that ends before it begins ----------------------------------------------------------------------

static void finish_refused(struct psc_op *op)
{
    op->refused = false;
    op_finish(op);
}

static void tell_refused(void *arg)
{
    struct psc_op *op = arg;
    psc_client *c = op->client;
    psc__lock(c);
    finish_refused(op);
    psc__unlock(c);
}

void psc__ops_finish_refused(struct psc_client *c)
{
    struct psc_op *op, *next;
    for (op = TAILQ_FIRST(&c->ops); op; op = next) {
        next = TAILQ_NEXT(op, link);
        if (op->refused)
            finish_refused(op);
    }
}

// Callbacks never run from inside the function that starts an operation: so this takes a timer too.
static void refuse(struct psc_op *op, const struct ps_error *e)
{
    struct psc__request *r;
    psc__error_out(e, &op->result.error);
    while ((r = TAILQ_FIRST(&op->requests))) {
        TAILQ_REMOVE(&op->requests, r, of_op);
        free(r);
    }
    op->refused = true;
    psc__after(op->client, 0, tell_refused, op);
}

// ---- requests -----------------------------------------------------------------------------------------------------

static void admit(struct psc__share *share)
{
    struct psc__request *r;
    while (share->admitted < PSC__READS_FLYING && (r = TAILQ_FIRST(&share->held))) {
        TAILQ_REMOVE(&share->held, r, link);
        share->admitted++;
        psc__queue_add(r);
    }
}

void psc__op_request_done(struct psc_op *op, struct psc__request *r)
{
    struct psc__share *share = op->shares ? &op->shares[r->task->index] : NULL;
    TAILQ_REMOVE(&op->requests, r, of_op);
    free(r);
    if (share) {
        share->admitted--;
        admit(share);
    }
    if (--op->left == 0)
        op_finish(op);
}

// ---- starting -----------------------------------------------------------------------------------------------------

static void start_reads(struct psc_op *op)
{
    psc_client *c = op->client;
    struct psc__request *r;
    op->shares = ps_alloc(c->n_tasks * sizeof *op->shares);
    for (uint32_t t = 0; t < c->n_tasks; t++)
        TAILQ_INIT(&op->shares[t].held);
    for (r = TAILQ_FIRST(&op->requests); r; r = TAILQ_NEXT(r, of_op))
        TAILQ_INSERT_TAIL(&op->shares[r->task->index].held, r, link);
    for (uint32_t t = 0; t < c->n_tasks; t++)
        admit(&op->shares[t]);
}

static void start_updates(struct psc_op *op)
{
    struct psc__request *r;
    for (r = TAILQ_FIRST(&op->requests); r; r = TAILQ_NEXT(r, of_op))
        psc__queue_add(r);
}

static void op_start(struct psc__seat *seat)
{
    struct psc_op *op = (struct psc_op *)((char *)seat - offsetof(struct psc_op, seat));
    struct psc__request *r;
    if (op->seat.mutates)
        start_updates(op);
    else
        start_reads(op);
    for (r = TAILQ_FIRST(&op->requests); r; r = TAILQ_NEXT(r, of_op))
        psc__queue_pump(r->task);
}

static struct psc_op *op_new(psc_client *c, int method, psc_callback callback, void *arg, bool handle)
{
    struct psc_op *op = ps_alloc(sizeof *op);
    pthread_condattr_t monotonic;
    op->client = c;
    op->method = method;
    op->seat.mutates = method != PARAMSERVER__V1__METHOD__GET && method != PARAMSERVER__V1__METHOD__PULL;
    op->seat.start = op_start;
    op->memory.free = memory_released;
    atomic_init(&op->memory.refs, 1);
    atomic_init(&op->holders, handle ? 2 : 1);
    atomic_init(&op->done, false);
    op->callback = callback;
    op->arg = arg;
    op->started = psc__now(c);
    op->deadline = op->started + c->timeout_ns;
    TAILQ_INIT(&op->requests);
    pthread_mutex_init(&op->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&op->cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return op;
}

static enum ps_code op_prepare(struct psc_op *op, const psc_tensor *tensors, size_t n, struct ps_error *e)
{
    psc_client *c = op->client;
    if (c->ended.code != PS_OK)
        return (*e = c->ended).code;
    if (!c->layout)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: no variables are known: psc_declare or psc_attach comes first",
                       psc__method_name(op->method));
    op->layout = c->layout;
    return psc__op_cut(op, tensors, n, e);
}

static void op_begin(struct psc_op *op, const psc_tensor *tensors, size_t n, psc_op **handle)
{
    psc_client *c = op->client;
    struct ps_error e = {.code = PS_OK};
    if (handle)
        *handle = op;
    psc__lock(c);
    TAILQ_INSERT_TAIL(&c->ops, op, link);
    if (op_prepare(op, tensors, n, &e) != PS_OK || op->left == 0)
        refuse(op, &e);
    else
        psc__window_enter(&c->window, &op->seat);
    psc__unlock(c);
}

void psc_put(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    op_begin(op_new(client, PARAMSERVER__V1__METHOD__PUT, callback, arg, op), tensors, n, op);
}

void psc_get(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    op_begin(op_new(client, PARAMSERVER__V1__METHOD__GET, callback, arg, op), tensors, n, op);
}

void psc_assign_add(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                    psc_op **op)
{
    op_begin(op_new(client, PARAMSERVER__V1__METHOD__ASSIGN_ADD, callback, arg, op), tensors, n, op);
}

void psc_push(psc_client *client, const psc_tensor *tensors, size_t n, const psc_push_options *options,
              psc_callback callback, void *arg, psc_op **op)
{
    struct psc_op *push = op_new(client, PARAMSERVER__V1__METHOD__PUSH, callback, arg, op);
    push->round = options->round;
    push->examples = options->examples;
    op_begin(push, tensors, n, op);
}

void psc_pull(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback, void *arg,
              psc_op **op)
{
    struct psc_op *pull = op_new(client, PARAMSERVER__V1__METHOD__PULL, callback, arg, op);
    pull->round = round;
    if (round > 0)
        pull->deadline = UINT64_MAX;
    op_begin(pull, tensors, n, op);
}
