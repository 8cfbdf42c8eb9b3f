// SPDX-License-Identifier: Apache-2.0
#include "libclient/op.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "libclient/call.h"
#include "libclient/convert.h"

// What every handle of an operation is for which there was no memory at all.
static struct psc_op no_memory = {
    .result.error = {PSC_RESOURCE_EXHAUSTED, "no memory for an operation"},
    .done = true,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .cond = PTHREAD_COND_INITIALIZER,
};

static struct psc_op *of_memory(struct ps_owner *o)
{
    return (struct psc_op *)((char *)o - offsetof(struct psc_op, memory));
}

// ---- the end of an operation --------------------------------------------------------------------------------------

void psc__op_drop(struct psc_op *op)
{
    if (op == &no_memory || atomic_fetch_sub(&op->holders, 1) != 1)
        return;
    pthread_cond_destroy(&op->cond);
    pthread_mutex_destroy(&op->mutex);
    psc__op_free_strings(op);
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
    pthread_cond_broadcast(&c->told);
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

// What the next operation with the same psc_seen need not get again; how many tensors this one has left alone.
static void note_seen(struct psc_op *op)
{
    uint32_t touched = 0, last = UINT32_MAX;
    for (uint32_t i = 0; i < op->n_pieces; i++) {
        const struct psc__piece *piece = &op->pieces[i];
        if (!piece->touched)
            continue;
        op->seen->changes[piece->partition] = piece->changes;
        touched += piece->tensor != last;  // a tensor's pieces lie side by side
        last = piece->tensor;
    }
    op->result.unchanged = op->n_tensors - touched;
}

// All blocks of an atomic update take effect at a task together, whichever request's answer told of it.
static void count_staged(struct psc_op *op)
{
    struct ps_error e;
    for (uint32_t t = 0; t < op->client->n_tasks; t++) {
        const struct psc__share *share = &op->shares[t];
        if (share->committed) {
            op->result.applied += share->staged;
        } else if (share->repeated) {
            op->result.duplicates += share->staged;
        } else if (share->staged && op->result.error.code == PSC_OK) {
            ps_fail(&e, PS_INTERNAL, "%s: " PSC__TASK " has all %" PRIu64 " bytes of an atomic update, not applied",
                    psc__method_name(op->method), PSC__TASK_ARGS(&op->client->tasks[t]), share->bytes);
            psc__error_out(&e, &op->result.error);
        }
    }
}

// All blocks of a partition's gradient count in the round, or none, whichever request's answer told of it. The pieces of a
// partition lie side by side.
static void count_partial(struct psc_op *op)
{
    for (uint32_t i = 0, end; i < op->n_pieces; i = end) {
        uint32_t partial = 0;
        bool stale = false;
        for (end = i; end < op->n_pieces && op->pieces[end].partition == op->pieces[i].partition; end++) {
            partial += op->pieces[end].partial;
            stale |= op->pieces[end].stale;
        }
        *(stale ? &op->result.stale : &op->result.queued) += partial;
    }
}

static void op_finish(struct psc_op *op)
{
    op->over = true;
    if (op->round)
        count_partial(op);
    if (op->atomic)
        count_staged(op);
    if (op->seen && op->result.error.code == PSC_OK)
        note_seen(op);
    if (op->result.error.code == PSC_OK)
        psc__op_hand_over(op);
    if (op->seen)
        op->seen->busy = false;
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

bool psc__ops_finish_refused(struct psc_client *c)
{
    struct psc_op *op;
    bool some = false;
    for (op = TAILQ_FIRST(&c->ops); op; op = TAILQ_NEXT(op, link)) {
        some |= op->refused;
        if (op->refused)
            finish_refused(op);
    }
    return some;
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
    struct psc__share *share = &op->shares[r->task->index];
    bool read = !r->mutates;
    TAILQ_REMOVE(&op->requests, r, of_op);
    free(r);
    if (read) {
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

// An operation may find no memory while its requests are sent, and end: so the tasks are pumped one by one, each
// whether or not it has some of them.
static void op_start(struct psc__seat *seat)
{
    struct psc_op *op = (struct psc_op *)((char *)seat - offsetof(struct psc_op, seat));
    psc_client *c = op->client;
    if (op->seat.mutates)
        start_updates(op);
    else
        start_reads(op);
    for (uint32_t t = 0; t < c->n_tasks; t++)
        psc__queue_pump(&c->tasks[t]);
}

static bool is_read(int method)
{
    return method == PARAMSERVER__V1__METHOD__GET || method == PARAMSERVER__V1__METHOD__PULL;
}

static struct psc_op *op_alloc(const psc_client *c)
{
    return ps_try_alloc(sizeof(struct psc_op) + c->n_tasks * sizeof(struct psc__share));
}

static void op_init(struct psc_op *op, psc_client *c, const struct psc__op_spec *spec)
{
    pthread_condattr_t monotonic;
    op->client = c;
    op->method = spec->method;
    op->round = spec->round;
    op->examples = spec->examples;
    op->atomic = spec->atomic;
    op->refuse_nonfinite = spec->refuse_nonfinite;
    op->callback = spec->callback;
    op->arg = spec->arg;
    op->seat.mutates = !is_read(spec->method);
    op->seat.start = op_start;
    op->memory.free = memory_released;
    atomic_init(&op->memory.refs, 1);
    atomic_init(&op->holders, spec->handle ? 2 : 1);
    atomic_init(&op->done, false);
    op->started = psc__now(c);
    op->deadline =
        spec->round && spec->method != PARAMSERVER__V1__METHOD__PUSH ? UINT64_MAX : op->started + c->timeout_ns;
    TAILQ_INIT(&op->requests);
    for (uint32_t t = 0; t < c->n_tasks; t++)
        TAILQ_INIT(&op->shares[t].held);
    pthread_mutex_init(&op->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&op->cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static enum ps_code check_seen(struct psc_op *op, psc_seen *seen, struct ps_error *e)
{
    if (seen->layout != op->layout)
        return ps_fail(e, PS_INVALID_ARGUMENT, "get: what was seen is another client's");
    if (seen->busy)
        return ps_fail(e, PS_FAILED_PRECONDITION, "get: another operation with the same psc_seen is under way");
    op->seen = seen;
    seen->busy = true;
    return PS_OK;
}

static enum ps_code op_prepare(struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e)
{
    psc_client *c = op->client;
    if (c->ended.code != PS_OK)
        return (*e = c->ended).code;
    if (!c->layout)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: no variables are known: psc_declare or psc_attach comes first",
                       psc__method_name(op->method));
    op->layout = c->layout;
    if (spec->atomic && c->update == PSC_SYNC)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: atomic is not for a sync job: a round takes effect at once anyway",
                       psc__method_name(op->method));
    if (spec->atomic && op->method == PARAMSERVER__V1__METHOD__PUSH_PULL)
        return ps_fail(e, PS_INVALID_ARGUMENT, "push_pull: atomic is for psc_push, and a psc_pull after it");
    if (spec->n && !spec->tensors)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: there are no tensors, %zu were named", psc__method_name(op->method),
                       spec->n);
    if (op->method == PARAMSERVER__V1__METHOD__PUSH_PULL && spec->n && !spec->into)
        return ps_fail(e, PS_INVALID_ARGUMENT, "push_pull: there are no tensors to pull into");
    if (spec->seen && check_seen(op, spec->seen, e) != PS_OK)
        return e->code;
    return psc__op_cut(op, spec, e);
}

// ---- without memory -----------------------------------------------------------------------------------------------

// Operations that can do nothing but fail, for when others cannot be made. Each serves once; those used are made up
// for as soon as there is memory again.
enum { SPARES = 16 };

// Locked.
static bool add_spare(psc_client *c)
{
    struct psc_op *spare = op_alloc(c);
    if (!spare)
        return false;
    TAILQ_INSERT_TAIL(&c->spares, spare, link);
    c->n_spares++;
    return true;
}

static struct psc_op *take_spare(psc_client *c)
{
    struct psc_op *spare = TAILQ_FIRST(&c->spares);
    if (spare) {
        TAILQ_REMOVE(&c->spares, spare, link);
        c->n_spares--;
    }
    return spare;
}

enum ps_code psc__ops_reserve(struct psc_client *c, struct ps_error *e)
{
    while (c->n_spares < SPARES)
        if (!add_spare(c))
            return ps_no_memory(e, "a client");
    return PS_OK;
}

void psc__ops_unreserve(struct psc_client *c)
{
    struct psc_op *spare;
    while ((spare = take_spare(c)))
        free(spare);
}

// Not even a spare is left: all of them have failed and wait for their callbacks.
static void fail_here(const struct psc__op_spec *spec)
{
    if (spec->handle)
        *spec->handle = &no_memory;
    if (spec->callback)
        spec->callback(spec->arg, &no_memory.result);
}

static void op_begin(psc_client *c, const struct psc__op_spec *spec)
{
    struct ps_error e = {.code = PS_OK};
    psc__lock(c);
    struct psc_op *op = op_alloc(c);
    bool poor = !op;
    if (!poor && c->n_spares < SPARES)
        add_spare(c);
    if (poor && !(op = take_spare(c))) {
        psc__unlock(c);
        fail_here(spec);
        return;
    }
    op_init(op, c, spec);
    if (spec->handle)
        *spec->handle = op;
    TAILQ_INSERT_TAIL(&c->ops, op, link);
    if (poor)
        ps_fail(&e, PS_RESOURCE_EXHAUSTED, "%s: no memory for an operation", psc__method_name(spec->method));
    if (poor || op_prepare(op, spec, &e) != PS_OK || op->left == 0)
        refuse(op, &e);
    else
        psc__window_enter(&c->window, &op->seat);
    psc__unlock(c);
}

// ---- the public functions -----------------------------------------------------------------------------------------

static struct psc__op_spec plain(int method, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                                 psc_op **op)
{
    return (struct psc__op_spec){
        .method = method, .tensors = tensors, .n = n, .callback = callback, .arg = arg, .handle = op};
}

void psc_put(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = plain(PARAMSERVER__V1__METHOD__PUT, tensors, n, callback, arg, op);
    op_begin(client, &spec);
}

void psc_get(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = plain(PARAMSERVER__V1__METHOD__GET, tensors, n, callback, arg, op);
    op_begin(client, &spec);
}

void psc_get_newer(psc_client *client, psc_seen *seen, const psc_tensor *tensors, size_t n, psc_callback callback,
                   void *arg, psc_op **op)
{
    struct psc__op_spec spec = plain(PARAMSERVER__V1__METHOD__GET, tensors, n, callback, arg, op);
    spec.seen = seen;
    op_begin(client, &spec);
}

void psc_assign_add(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                    psc_op **op)
{
    struct psc__op_spec spec = plain(PARAMSERVER__V1__METHOD__ASSIGN_ADD, tensors, n, callback, arg, op);
    op_begin(client, &spec);
}

void psc_assign_sub(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                    psc_op **op)
{
    struct psc__op_spec spec = plain(PARAMSERVER__V1__METHOD__ASSIGN_SUB, tensors, n, callback, arg, op);
    op_begin(client, &spec);
}

// NULL: no round, no examples.
static void add_options(struct psc__op_spec *spec, const psc_push_options *options)
{
    if (!options)
        return;
    spec->round = options->round;
    spec->examples = options->examples;
    spec->atomic = options->atomic;
    spec->refuse_nonfinite = options->refuse_nonfinite;
}

void psc_push(psc_client *client, const psc_tensor *tensors, size_t n, const psc_push_options *options,
              psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = plain(PARAMSERVER__V1__METHOD__PUSH, tensors, n, callback, arg, op);
    add_options(&spec, options);
    op_begin(client, &spec);
}

void psc_push_pull(psc_client *client, const psc_tensor *tensors, const psc_tensor *into, size_t n,
                   const psc_push_options *options, psc_callback callback, void *arg, psc_op **op)
{
    struct psc__op_spec spec = plain(PARAMSERVER__V1__METHOD__PUSH_PULL, tensors, n, callback, arg, op);
    add_options(&spec, options);
    spec.into = into;
    op_begin(client, &spec);
}

void psc_pull(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback, void *arg,
              psc_op **op)
{
    struct psc__op_spec spec = plain(PARAMSERVER__V1__METHOD__PULL, tensors, n, callback, arg, op);
    spec.round = round;
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
        *s = (psc_seen){.layout = l, .changes = changes};
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
