// SPDX-License-Identifier: Apache-2.0
//
// Put, AssignAdd, Push: check the request -> locate its blocks -> check rounds and room -> apply block by
// block -> reply. Everything is validated before anything is applied; from then on nothing is refused.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "psd/service.h"
#include "psd/update.h"

typedef Paramserver__V1__TensorResult result_t;

struct update {
    struct psd_turn *t;
    const Paramserver__V1__UpdateRequest *request;
    struct psd_stamp stamp;
    struct psd_pieces pieces;
    size_t *ends;  // [n_tensors] pieces.v index past the tensor's last
    result_t *results;
    bool push;
};

// ---- check --------------------------------------------------------------------------------------------------------

static enum ps_code check_sequence(struct psd_turn *t)
{
    const Paramserver__V1__Caller *c = t->caller;
    if (c->sequence == 0 || c->oldest == 0 || c->oldest > c->sequence)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                       "sequence %" PRIu64 " with oldest %" PRIu64 ": expected 1 <= oldest <= sequence", c->sequence,
                       c->oldest);
    if (c->sequence - c->oldest >= PS_WINDOW)
        return ps_fail(&t->error, PS_RESOURCE_EXHAUSTED,
                       "sequence %" PRIu64 " with oldest %" PRIu64 ": at most %d may be open at once", c->sequence,
                       c->oldest, PS_WINDOW);
    if (!atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "job '%s' is not declared on ps task %" PRIu32 " yet",
                       t->job->name, t->core->config.task);
    if (c->worker > t->job->workers)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "worker %" PRIu32 " of job '%s', which has %" PRIu32,
                       c->worker - 1, t->job->name, t->job->workers);
    return PS_OK;
}

static enum ps_code locate(struct update *u)
{
    struct ps_error *e = &u->t->error;
    if (u->request->n_tensors == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the request names no tensor");
    for (size_t i = 0; i < u->request->n_tensors; i++) {
        const Paramserver__V1__Tensor *tensor = u->request->tensors[i];
        if (psd_job_locate(u->t->job, tensor, true, &u->pieces, e))
            return e->code;
        if (u->pieces.bytes > u->t->payload.len)
            break;
        if (!tensor->dtype)
            return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%.128s': the request brings values without a dtype",
                           tensor->variable);
        u->ends[i] = u->pieces.n;
    }
    if (u->pieces.bytes != u->t->payload.len)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the tensors need %s%" PRIu64 " bytes of payload, %zu came",
                       u->pieces.bytes > u->t->payload.len ? "at least " : "", u->pieces.bytes, u->t->payload.len);
    return PS_OK;
}

static bool has_stamp(const struct update *u, struct psd_block *b)
{
    pthread_mutex_lock(&b->lock);
    bool has = psd_block_has_stamp(b, &u->stamp);
    pthread_mutex_unlock(&b->lock);
    return has;
}

// The round that a piece's push goes to, or NULL: it is applied on arrival.
static struct psd_round *round_of(const struct update *u, const struct psd_piece *p)
{
    return u->push ? p->partition->round : NULL;
}

static enum ps_code check_rounds(struct update *u)
{
    struct psd_turn *t = u->t;
    for (size_t i = 0; i < u->pieces.n; i++) {
        const struct psd_piece *p = &u->pieces.v[i];
        struct psd_round *round = round_of(u, p);
        Paramserver__V1__Outcome outcome;
        if (!round)
            continue;
        if (t->caller->worker == 0)
            return ps_fail(&t->error, PS_INVALID_ARGUMENT, "a push to a sync job comes from one of its workers");
        if (u->request->round == 0)
            return ps_fail(&t->error, PS_INVALID_ARGUMENT, "a push to a sync job names its round, from 1");
        if (has_stamp(u, psd_piece_block(p)))
            continue;
        if (psd_round_check(round, p->variable->name, t->caller->worker - 1, u->request->round, p->block, &outcome,
                            &t->error))
            return t->error.code;
    }
    return PS_OK;
}

// Bytes of the blocks that a reader has pinned: they are about to be copied, now or when the round closes.
static size_t bytes_to_copy(struct update *u)
{
    size_t bytes = 0;
    for (size_t i = 0; i < u->pieces.n; i++) {
        struct psd_block *b = psd_piece_block(&u->pieces.v[i]);
        pthread_mutex_lock(&b->lock);
        bytes += psd_block_pinned(b) ? b->page->bytes : 0;
        pthread_mutex_unlock(&b->lock);
    }
    return bytes;
}

// Where the pool is full, snapshots give way one by one: each may free memory, or leave blocks that need no copy.
static enum ps_code check_room(struct update *u)
{
    size_t need;
    while ((need = bytes_to_copy(u)) && !psd_pool_has_room(&u->t->core->pool, need))
        if (!psd_drop_oldest_snapshot(u->t->core))
            return ps_fail(&u->t->error, PS_RESOURCE_EXHAUSTED,
                           "%zu bytes for blocks that readers hold do not fit the limit of %zu", need,
                           u->t->core->pool.limit);
    return PS_OK;
}

// ---- apply --------------------------------------------------------------------------------------------------------

// Block locked, cut held, stamp not seen before.
static void change_block(struct update *u, const struct psd_piece *p, struct psd_block *b, struct psd_page *out,
                         size_t offset)
{
    const struct ps_rope *payload = &u->t->payload;
    bool add = u->t->call->method == PARAMSERVER__V1__METHOD__ASSIGN_ADD || (u->push && !p->variable->trainable);
    if (add)
        psd_update_add(p->variable->dtype, b, out, payload, offset);
    else if (u->push)
        psd_update_push(u->t->job, p->variable, b, out, payload, offset);
    else
        psd_update_put(b, out, payload, offset);
}

static Paramserver__V1__Outcome apply_now(struct update *u, const struct psd_piece *p, size_t offset,
                                          const Paramserver__V1__Tensor *tensor, result_t *r)
{
    struct psd_block *b = psd_piece_block(p);
    Paramserver__V1__Outcome outcome = PARAMSERVER__V1__OUTCOME__DUPLICATE;
    struct psd_page *out;
    pthread_rwlock_rdlock(&u->t->job->cut);
    pthread_mutex_lock(&b->lock);
    uint64_t found = b->version;
    if (!psd_block_has_stamp(b, &u->stamp)) {
        if (psd_block_begin(b, &out, &u->t->error) == PS_OK) {
            change_block(u, p, b, out, offset);
            psd_block_commit(b, out);
            psd_block_stamp(b, &u->stamp);
            outcome = PARAMSERVER__V1__OUTCOME__APPLIED;
            if (tensor->version && found > tensor->version && found - tensor->version > r->staleness)
                r->staleness = found - tensor->version;
        } else {
            outcome = PARAMSERVER__V1__OUTCOME__OUTCOME_NONE;
        }
    }
    if (r->blocks == 0 || b->version < r->version)
        r->version = b->version;
    pthread_mutex_unlock(&b->lock);
    pthread_rwlock_unlock(&u->t->job->cut);
    return outcome;
}

static Paramserver__V1__Outcome apply_in_round(struct update *u, const struct psd_piece *p, size_t offset,
                                               struct psd_round *round, result_t *r)
{
    r->round = u->request->round;
    return psd_round_add(round, u->t->caller->worker - 1, u->request->round, u->request->examples, p->block, &u->stamp,
                         &u->t->payload, offset);
}

// One tensor's pieces. Its outcome is the one that says most: applied or queued before stale before
// duplicate.
static enum ps_code apply_tensor(struct update *u, size_t i, size_t *piece, size_t *offset)
{
    static const int rank[] = {[PARAMSERVER__V1__OUTCOME__DUPLICATE] = 1,
                               [PARAMSERVER__V1__OUTCOME__STALE] = 2,
                               [PARAMSERVER__V1__OUTCOME__QUEUED] = 3,
                               [PARAMSERVER__V1__OUTCOME__APPLIED] = 4};
    result_t *r = &u->results[i];
    paramserver__v1__tensor_result__init(r);
    for (; *piece < u->ends[i]; ++*piece) {
        const struct psd_piece *p = &u->pieces.v[*piece];
        struct psd_round *round = round_of(u, p);
        Paramserver__V1__Outcome outcome =
            round ? apply_in_round(u, p, *offset, round, r) : apply_now(u, p, *offset, u->request->tensors[i], r);
        if (outcome == PARAMSERVER__V1__OUTCOME__OUTCOME_NONE)
            return u->t->error.code;
        if (rank[outcome] > rank[r->outcome])
            r->outcome = outcome;
        r->blocks++;
        r->duplicates += outcome == PARAMSERVER__V1__OUTCOME__DUPLICATE;
        *offset += psd_piece_block(p)->value_bytes;
    }
    return PS_OK;
}

// Rounds whose last gradient may have been in this request. Blocks of a partition lie side by side.
static void close_rounds(struct update *u)
{
    struct psd_round *last = NULL;
    for (size_t i = 0; i < u->pieces.n; i++) {
        struct psd_round *round = round_of(u, &u->pieces.v[i]);
        if (round && round != last)
            psd_round_try_close(u->t->job, round, &u->t->ready);
        last = round;
    }
}

static enum ps_code apply(struct update *u)
{
    size_t piece = 0, offset = 0;
    for (size_t i = 0; i < u->request->n_tensors; i++)
        if (apply_tensor(u, i, &piece, &offset))
            return u->t->error.code;
    close_rounds(u);
    return PS_OK;
}

// ---- reply --------------------------------------------------------------------------------------------------------

static void count(struct update *u)
{
    struct psd_job *job = u->t->job;
    bool changed = false, stale = false;
    for (size_t i = 0; i < u->request->n_tensors; i++) {
        Paramserver__V1__Outcome outcome = u->results[i].outcome;
        changed |= outcome == PARAMSERVER__V1__OUTCOME__APPLIED || outcome == PARAMSERVER__V1__OUTCOME__QUEUED;
        stale |= outcome == PARAMSERVER__V1__OUTCOME__STALE;
    }
    atomic_fetch_add(changed ? &job->updates : stale ? &job->stale : &job->duplicates, 1);
    atomic_fetch_add(&job->bytes_moved, u->t->payload.len);
}

static int reply(struct update *u)
{
    Paramserver__V1__UpdateReply out = PARAMSERVER__V1__UPDATE_REPLY__INIT;
    size_t n = u->request->n_tensors;
    result_t **results = ps_alloc(n * sizeof *results);
    for (size_t i = 0; i < n; i++)
        results[i] = &u->results[i];
    out.generation = u->t->core->generation;
    out.n_results = n;
    out.results = results;
    psd_turn_reply(u->t, &out.base, NULL);
    free(results);
    return PS_OK;
}

static int update(struct psd_turn *t, bool push)
{
    struct update u = {.t = t, .request = (const Paramserver__V1__UpdateRequest *)t->request, .push = push};
    int code = (int)check_sequence(t);
    if (code == PS_OK)
        code = (int)psd_job_client(t->job, t->caller, &u.stamp, &t->error);
    u.ends = ps_alloc(u.request->n_tensors * sizeof *u.ends);
    u.results = ps_alloc(u.request->n_tensors * sizeof *u.results);
    if (code == PS_OK)
        code = (int)locate(&u);
    if (code == PS_OK)
        code = (int)check_rounds(&u);
    if (code == PS_OK)
        code = (int)check_room(&u);
    if (code == PS_OK)
        code = (int)apply(&u);
    if (code == PS_OK) {
        count(&u);
        code = reply(&u);
    }
    psd_pieces_free(&u.pieces);
    free(u.results);
    free(u.ends);
    return code;
}

int psd_put(struct psd_turn *t)
{
    return update(t, false);
}

int psd_assign_add(struct psd_turn *t)
{
    return update(t, false);
}

int psd_push(struct psd_turn *t)
{
    return update(t, true);
}
