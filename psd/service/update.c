// SPDX-License-Identifier: Apache-2.0
//
// Put, AssignAdd, AssignSub, Push, PushPull: check the request -> decode its gradients -> locate its blocks -> check
// rounds -> reserve all that it needs -> apply block by block -> (PushPull: wait for the round, pin) -> reply. An
// atomic update is staged instead (psd/job/staging.h), and applied when all of it has come. Everything is validated and
// reserved before anything is applied; from then on nothing is refused.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/sometimes.h"
#include "psd/job/encoded.h"
#include "psd/job/staging.h"
#include "psd/service/reply.h"

typedef Paramserver__V1__TensorResult result_t;

// What a block's change needs.
struct reserved {
    struct psd_page *page;  // NULL: none is needed, or it was used
    bool promised;          // place for the record of the request (psd/store/dedup.h)
};

// What a PushPull that has pushed goes on with: the answer as far as it is known, and where the values are read.
struct push_pull {
    uint64_t round;
    size_t n_results;
    result_t *results, **pointers;
    struct psd_extents extents;
    size_t at;  // the extent whose round it waits for
    struct psd_reply builder;
};

struct update {
    struct psd_request *t;
    const Paramserver__V1__UpdateRequest *request;
    int method;
    bool push, pull;  // Push or PushPull; PushPull
    struct psd_request_id id;
    struct psd_extents extents;
    struct psd_feed feed;
    result_t *results, **pointers;  // [n_tensors], and to each
    struct reserved *reserved;      // [extents.n] for the block that begins at an extent; NULL: they are not needed
    size_t bytes_moved;             // of payload as it came
    size_t round_bytes;             // of pinned blocks that rounds will change
    struct psd_reply builder;
    struct push_pull *then;  // room for what a PushPull goes on with
};

// ---- check --------------------------------------------------------------------------------------------------------

static enum ps_code check_sequence(struct psd_request *t)
{
    const Paramserver__V1__Caller *c = t->caller;
    if (c->sequence == 0 || c->oldest == 0 || c->oldest > c->sequence)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                       "sequence %" PRIu64 " with oldest %" PRIu64 ": expected 1 <= oldest <= sequence", c->sequence,
                       c->oldest);
    if (c->sequence - c->oldest >= PS_WINDOW)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                       "sequence %" PRIu64 " with oldest %" PRIu64 ": at most %d may be open at once", c->sequence,
                       c->oldest, PS_WINDOW);
    return psd_request_check_rank(t);
}

// The round that an extent's push goes to, or NULL: it is applied on arrival.
static struct psd_round *round_of(const struct update *u, const struct psd_extent *p)
{
    return u->push ? p->round : NULL;
}

static enum ps_code check_dtype(const struct update *u, const struct psd_variable *v,
                                const Paramserver__V1__Tensor *tensor, struct ps_error *e)
{
    if (!tensor->dtype && !tensor->partition)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': the request brings values without a dtype", v->name);
    if (u->method != PARAMSERVER__V1__METHOD__PUT && !ps_dtype_is_number(v->dtype))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s' is %s, which takes no arithmetic: expected float32, float64, int32 or int64",
                       v->name, ps_dtype_name(v->dtype));
    return PS_OK;
}

// Bytes of an encoded block of strings, so that it can be read back in one message.
enum { STRINGS_MAX = PS_CHUNK_MAX - 1024 };

static bool add_lengths(void *arg, size_t first, const void *data, size_t n)
{
    uint64_t *bytes = arg;
    (void)first;
    for (size_t i = 0; i < n; i++) {
        uint32_t length;
        memcpy(&length, (const uint8_t *)data + i * sizeof length, sizeof length);
        *bytes += length;
    }
    return true;
}

// Extents [i, end) are a tensor's, whose strings begin at `at` in the payload, or would: all lengths, then all bytes.
static enum ps_code read_strings(struct update *u, const Paramserver__V1__Tensor *tensor, size_t i, size_t end,
                                 uint64_t at)
{
    struct ps_error *e = &u->t->error;
    const char *name = u->extents.v[i].variable->name;
    uint64_t count = 0, text = 0, left = at < u->t->payload.len ? u->t->payload.len - at : 0;
    for (size_t k = i; k < end; k++)
        count += u->extents.v[k].count;
    if (tensor->bytes > left || tensor->bytes < count * PS_STRING_LENGTH)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': %" PRIu64 " strings in %" PRIu64 " bytes; expected at least %" PRIu64
                       ", and at most the %" PRIu64 " that came",
                       name, count, tensor->bytes, count * PS_STRING_LENGTH, left);
    for (size_t k = i; k < end; k++) {
        struct psd_extent *p = &u->extents.v[k];
        uint64_t bytes = 0;
        p->at = (uint32_t)at;
        psd_feed_walk(&u->feed, at, (size_t)p->count * PS_STRING_LENGTH, PS_STRING_LENGTH, add_lengths, &bytes);
        p->text_at = (uint32_t)(u->t->payload.len - left + count * PS_STRING_LENGTH + text);
        if (bytes > STRINGS_MAX - p->count * PS_STRING_LENGTH)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "variable '%s': the %" PRIu32 " strings at %" PRIu64 " have %" PRIu64
                           " bytes; a block of them has at most %d",
                           name, p->count, p->first, bytes, STRINGS_MAX);
        p->bytes = (uint32_t)(p->count * PS_STRING_LENGTH + bytes);
        text += bytes;
        at += p->count * PS_STRING_LENGTH;
    }
    if (count * PS_STRING_LENGTH + text != tensor->bytes)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': %" PRIu64 " strings of %" PRIu64 " bytes in all do not make the %" PRIu64
                       " bytes that are announced",
                       name, count, text, tensor->bytes);
    return PS_OK;
}

// Where the values of extents [i, end), which are a tensor's, lie in the payload; moves *at past them.
static enum ps_code update_place_payload(struct update *u, const Paramserver__V1__Tensor *tensor, size_t i, size_t end,
                                         uint64_t *at)
{
    const struct psd_variable *v = u->extents.v[i].variable;
    uint64_t from = *at;
    if (check_dtype(u, v, tensor, &u->t->error))
        return u->t->error.code;
    if (v->dtype == PS_STRING) {
        *at += tensor->bytes;
        return read_strings(u, tensor, i, end, from);
    }
    for (size_t k = i; k < end; k++) {
        u->extents.v[k].at = (uint32_t)*at;
        *at += u->extents.v[k].bytes;
    }
    if (tensor->bytes && tensor->bytes != *at - from)
        return ps_fail(&u->t->error, PS_INVALID_ARGUMENT,
                       "variable '%s': the range has %" PRIu64 " bytes, the request says %" PRIu64, v->name, *at - from,
                       tensor->bytes);
    return PS_OK;
}

static enum ps_code update_decode(struct update *u)
{
    struct psd_request *t = u->t;
    const Paramserver__V1__UpdateRequest *r = u->request;
    u->bytes_moved = t->payload.len;
    if (!u->push || !psd_has_encoded(r->tensors, r->n_tensors))
        return PS_OK;
    if (r->atomic_bytes)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "an encoded gradient in an atomic update: expected float32");
    return psd_decode_gradients(t->job, r->tensors, r->n_tensors, &t->payload, &t->error);
}

static enum ps_code update_locate(struct update *u)
{
    struct psd_request *t = u->t;
    uint64_t at = 0;
    if (psd_job_locate(t->job, u->request->tensors, u->request->n_tensors, u->push ? PSD_PUSH : PSD_UPDATE,
                       t->payload.len, &u->extents, &t->error))
        return t->error.code;
    for (size_t i = 0, end; i < u->extents.n; i = end) {
        const struct psd_extent *v = u->extents.v;
        for (end = i + 1; end < u->extents.n && v[end].tensor == v[i].tensor;)
            end++;
        if (update_place_payload(u, u->request->tensors[v[i].tensor], i, end, &at))
            return t->error.code;
    }
    if (at != t->payload.len)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "the tensors need %" PRIu64 " bytes of payload, %zu came", at,
                       t->payload.len);
    return PS_OK;
}

static enum ps_code check_finite(struct update *u)
{
    uint64_t first;
    for (size_t i = 0; u->request->refuse_nonfinite && i < u->extents.n; i++)
        if (psd_update_nonfinite(&u->extents.v[i], &u->feed, &first)) {
            atomic_fetch_add(&u->t->job->nonfinite, 1);
            return ps_fail(&u->t->error, PS_INVALID_ARGUMENT,
                           "variable '%s': the gradient's element %" PRIu64 " is not finite",
                           u->extents.v[i].variable->name, first);
        }
    return PS_OK;
}

static enum ps_code check_atomic(struct update *u)
{
    uint64_t bytes = u->request->atomic_bytes;
    struct ps_error *e = &u->t->error;
    if (bytes == 0)
        return PS_OK;
    if (u->pull)
        return ps_fail(e, PS_INVALID_ARGUMENT, "a PushPull of an atomic update: expected a Push, and then a Pull");
    if (bytes > u->t->core->pool.limit)
        return ps_fail(e, PS_FAILED_PRECONDITION, "an atomic update of %" PRIu64 " bytes exceeds the limit of %zu",
                       bytes, u->t->core->pool.limit);
    for (size_t i = 0; i < u->extents.n; i++)
        if (round_of(u, &u->extents.v[i]))
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "variable '%s': a push to a round takes effect at once with the others', not as an atomic "
                           "update",
                           u->extents.v[i].variable->name);
    return PS_OK;
}

// What a Put overwrites beside values.
static enum ps_code check_slots(struct update *u)
{
    const Paramserver__V1__UpdateRequest *r = u->request;
    uint32_t slot = 0;
    for (size_t i = 0; i < r->n_tensors && !slot; i++)
        slot = r->tensors[i]->slot;
    if ((slot || r->steps) && (u->method != PARAMSERVER__V1__METHOD__PUT || r->atomic_bytes))
        return ps_fail(&u->t->error, PS_INVALID_ARGUMENT,
                       "slot %" PRIu32 " and steps %" PRIu64 ": expected a Put that is not atomic", slot, r->steps);
    return PS_OK;
}

// The reply goes back in one message, with the values of a PushPull.
static enum ps_code check_reply(struct update *u)
{
    size_t bytes = PSD_REPLY_BYTES + u->request->n_tensors * PSD_RESULT_BYTES;
    for (size_t i = 0; u->pull && i < u->extents.n; i++)
        bytes += PSD_TENSOR_BYTES + strlen(u->extents.v[i].variable->name) + u->extents.v[i].bytes;
    if (bytes > PS_CHUNK_MAX)
        return ps_fail(&u->t->error, PS_INVALID_ARGUMENT,
                       "the reply would have %zu bytes, expected at most %d: ask in parts", bytes, PS_CHUNK_MAX);
    return PS_OK;
}

static bool has_taken(const struct update *u, struct psd_block *b)
{
    pthread_mutex_lock(&b->lock);
    bool has = psd_block_has_taken(b, &u->id);
    pthread_mutex_unlock(&b->lock);
    return has;
}

static struct psd_gradient update_gradient_of(const struct update *u, const struct psd_extent *p)
{
    return (struct psd_gradient){.rank = u->t->caller->worker - 1,
                                 .block = p->block,
                                 .number = u->request->round,
                                 .examples = u->request->examples,
                                 .id = u->id};
}

// What comes again and has been taken is a duplicate, though the job may have come into its rounds since, or left them.
static enum ps_code check_rounds(struct update *u)
{
    struct psd_request *t = u->t;
    for (size_t i = 0; i < u->extents.n; i++) {
        const struct psd_extent *p = &u->extents.v[i];
        struct psd_round *round = round_of(u, p);
        Paramserver__V1__Outcome outcome;
        const bool unknown = !round && u->push && u->request->round && p->variable->rule;
        if (!round && !unknown)
            continue;
        if (round && t->caller->worker == 0)
            return ps_fail(&t->error, PS_INVALID_ARGUMENT, "a push to a sync job comes from one of its workers");
        if (has_taken(u, psd_extent_block(p)))
            continue;
        if (unknown)
            return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                           "variable '%s': a push for round %" PRIu64 " of job '%s', which is in no rounds",
                           p->variable->name, u->request->round, t->job->name);
        if (u->request->round == 0)
            return ps_fail(&t->error, PS_INVALID_ARGUMENT, "a push to a sync job names its round, from 1");
        const struct psd_gradient gradient = update_gradient_of(u, p);
        if (psd_round_check(round, p->variable->name, &gradient, &outcome, &t->error))
            return t->error.code;
    }
    return PS_OK;
}

// ---- reserve ------------------------------------------------------------------------------------------------------
//
// Memory is taken before the first block is changed. A request for one block takes what it needs when that is changed,
// in the same round of its lock.

static enum ps_code fail_room(struct update *u, size_t bytes)
{
    return ps_fail(&u->t->error, PS_RESOURCE_EXHAUSTED,
                   "%zu bytes for blocks that readers hold, or that become larger, do not fit the limit of %zu", bytes,
                   u->t->core->pool.limit);
}

// The gradient that the round will hold, unless the round is closed already.
static enum ps_code copy_gradient(struct update *u, size_t i)
{
    const struct psd_extent *p = &u->extents.v[i];
    struct psd_round *round = round_of(u, p);
    struct psd_page **page = &u->reserved[i].page;
    if (u->request->round < psd_round_open(round) || *page)
        return PS_OK;
    *page = psd_round_copy(round, p->block, &u->t->payload, p->at);
    return *page ? PS_OK : ps_no_memory(&u->t->error, "a gradient");
}

// Place for the record of the request in the block that begins at extent i, and a page where the block's own may not be
// written, now or (room only) when its round closes.
static enum ps_code reserve_block(struct update *u, size_t i)
{
    const struct psd_extent *p = &u->extents.v[i];
    struct psd_block *b = psd_extent_block(p);
    struct reserved *r = &u->reserved[i];
    bool in_round = round_of(u, p) != NULL;
    size_t bytes = psd_update_page_bytes(p);
    pthread_mutex_lock(&b->lock);
    bool taken = psd_block_has_taken(b, &u->id);
    bool fresh = !taken && (psd_block_pinned(b) || b->page->bytes != bytes);
    if (!taken && !in_round && !r->promised)
        r->promised = psd_block_promise(b, &u->id);
    bool place = taken || r->promised || (in_round && psd_block_reserve(b, &u->id));
    pthread_mutex_unlock(&b->lock);
    if (!place)
        return ps_fail(&u->t->error, PS_RESOURCE_EXHAUSTED,
                       "what is kept of one request more in a block does not fit the limit of %zu",
                       u->t->core->pool.limit);
    if (in_round && !taken && copy_gradient(u, i))
        return u->t->error.code;
    if (!fresh)
        return PS_OK;
    if (!in_round)
        return r->page || (r->page = psd_page_try(&u->t->core->pool, bytes)) ? PS_OK : fail_room(u, bytes);
    if (!psd_pool_has_room(&u->t->core->pool, u->round_bytes + bytes))
        return fail_room(u, u->round_bytes + bytes);
    u->round_bytes += bytes;
    return PS_OK;
}

// Where the pool is full, snapshots give way one by one: each may free memory, or leave blocks that need no copy.
static enum ps_code reserve_blocks(struct update *u)
{
    size_t first = psd_extents_block_end(&u->extents, 0);
    if (first == u->extents.n && !round_of(u, &u->extents.v[0]))
        return PS_OK;
    u->reserved = ps_try_alloc_array(u->extents.n, sizeof *u->reserved);
    if (!u->reserved)
        return ps_no_memory(&u->t->error, "an update");
    for (size_t i = 0; i < u->extents.n; i = psd_extents_block_end(&u->extents, i)) {
        enum ps_code code;
        while ((code = reserve_block(u, i)) == PS_RESOURCE_EXHAUSTED &&
               psd_snapshots_drop_oldest(&u->t->core->snapshots))
            continue;
        if (code != PS_OK)
            return code;
    }
    return PS_OK;
}

// What was reserved and not used.
static void give_up_reserved(struct update *u)
{
    for (size_t i = 0; u->reserved && i < u->extents.n; i++) {
        struct reserved *r = &u->reserved[i];
        struct psd_block *b = psd_extent_block(&u->extents.v[i]);
        if (r->page)
            psd_page_unref(r->page);
        if (!r->promised)
            continue;
        pthread_mutex_lock(&b->lock);
        psd_block_give_up(b);
        pthread_mutex_unlock(&b->lock);
    }
    free(u->reserved);
}

static enum ps_code reserve_reply(struct update *u)
{
    size_t n = u->request->n_tensors;
    u->results = ps_try_alloc_array(n, sizeof *u->results + sizeof *u->pointers);
    if (!u->results)
        return ps_no_memory(&u->t->error, "the reply");
    u->pointers = (result_t **)(u->results + n);
    if (u->pull && !(u->then = ps_try_alloc(sizeof *u->then)))
        return ps_no_memory(&u->t->error, "the reply");
    for (size_t i = 0; i < n; i++)
        paramserver__v1__tensor_result__init(u->pointers[i] = &u->results[i]);
    return psd_reply_init(&u->builder, n, u->extents.v, u->pull ? u->extents.n : 0, &u->t->error);
}

// ---- apply --------------------------------------------------------------------------------------------------------

// What became of a block, in the result of each tensor that has an extent in it.
struct applied {
    Paramserver__V1__Outcome outcome;
    uint64_t found, version;  // before and after
    uint64_t round;
    bool counted;  // its extents' nonfinite
};

// Those that were counted when they were applied; else in a walk of their own.
static uint64_t nonfinite_of(struct update *u, const struct psd_extent *p, const struct applied *a)
{
    if (!u->push || u->request->refuse_nonfinite)
        return 0;
    return a->counted ? p->nonfinite : psd_update_nonfinite(p, &u->feed, NULL);
}

// A tensor's outcome is the one that says most. Of a gradient that is what its last block has found: queued or stale.
static void update_note_outcome(struct update *u, const struct psd_extent *p, const struct applied *a)
{
    static const int rank[] = {[PARAMSERVER__V1__OUTCOME__DUPLICATE] = 1,
                               [PARAMSERVER__V1__OUTCOME__STAGED] = 2,
                               [PARAMSERVER__V1__OUTCOME__STALE] = 3,
                               [PARAMSERVER__V1__OUTCOME__QUEUED] = 4,
                               [PARAMSERVER__V1__OUTCOME__APPLIED] = 5};
    result_t *r = u->pointers[p->tensor];
    uint64_t pulled = u->request->tensors[p->tensor]->version;
    if (rank[a->outcome] > rank[r->outcome]) {
        r->outcome = a->outcome;
        r->round = a->round;
    }
    if (r->blocks == 0 || a->version < r->version)
        r->version = a->version;
    if (a->outcome == PARAMSERVER__V1__OUTCOME__APPLIED && pulled && a->found > pulled &&
        a->found - pulled > r->staleness)
        r->staleness = a->found - pulled;
    r->blocks++;
    r->duplicates += a->outcome == PARAMSERVER__V1__OUTCOME__DUPLICATE;
    r->nonfinite += nonfinite_of(u, p, a);
}

// No room for a change of the block. Where others have been changed, the request is to come again for the rest.
static enum ps_code fail_block(struct update *u, size_t i)
{
    const struct psd_extent *p = &u->extents.v[i];
    if (i == 0)
        return fail_room(u, psd_update_page_bytes(p));
    return ps_fail(&u->t->error, PS_UNAVAILABLE,
                   "variable '%s': a reader holds block %" PRIu32
                   " and there is no room for another: send it again under the same sequence",
                   p->variable->name, p->block);
}

// The job has come into its rounds since the request was located.
static enum ps_code fail_mode(struct update *u)
{
    return ps_fail(&u->t->error, PS_UNAVAILABLE, "job '%s' has become sync meanwhile: send it again", u->t->job->name);
}

// Extents [i, end) are all in one block.
static enum ps_code apply_now(struct update *u, size_t i, size_t end, struct applied *a)
{
    struct psd_job *job = u->t->job;
    struct reserved none = {0}, *r = u->reserved ? &u->reserved[i] : &none;
    struct psd_update update = {.job = job,
                                .how = psd_update_effect(u->method, u->extents.v[i].variable),
                                .extents = &u->extents.v[i],
                                .n = end - i,
                                .feed = &u->feed,
                                .id = &u->id,
                                .count = u->push,
                                .slot = u->extents.v[i].slot,
                                .steps = u->request->steps};
    enum psd_written written;
    do {
        pthread_rwlock_rdlock(&job->snapshot_lock);
        const bool late = u->push && u->extents.v[i].partition->round;
        update.promised = r->promised;
        r->promised &= late;
        written = late ? PSD_NOT_WANTED : psd_update_block(&update, &r->page, &a->found, &a->version);
        pthread_rwlock_unlock(&job->snapshot_lock);
    } while (written == PSD_NO_ROOM && psd_snapshots_drop_oldest(&u->t->core->snapshots));
    if (written == PSD_NO_ROOM)
        return fail_block(u, i);
    if (written == PSD_NOT_WANTED)
        return fail_mode(u);
    a->counted = written == PSD_WRITTEN;
    a->outcome = a->counted ? PARAMSERVER__V1__OUTCOME__APPLIED : PARAMSERVER__V1__OUTCOME__DUPLICATE;
    return PS_OK;
}

static enum ps_code apply_in_round(struct update *u, size_t i, struct psd_round *round, struct applied *a)
{
    const struct psd_extent *p = &u->extents.v[i];
    struct psd_block *b = psd_extent_block(p);
    struct psd_page *none = NULL, **values = u->reserved ? &u->reserved[i].page : &none;
    const struct psd_gradient gradient = update_gradient_of(u, p);
    a->outcome = psd_round_add(round, u->t->caller->run, &gradient, values);
    if (a->outcome == PARAMSERVER__V1__OUTCOME__OUTCOME_NONE)
        return fail_block(u, i);
    a->round = a->outcome == PARAMSERVER__V1__OUTCOME__STALE ? psd_round_open(round) : u->request->round;
    pthread_mutex_lock(&b->lock);
    a->version = b->version;
    pthread_mutex_unlock(&b->lock);
    return PS_OK;
}

static enum ps_code update_apply_block(struct update *u, size_t i, size_t end)
{
    const struct psd_extent *p = &u->extents.v[i];
    struct psd_round *round = round_of(u, p);
    struct applied a = {0};
    enum ps_code code = round ? apply_in_round(u, i, round, &a) : apply_now(u, i, end, &a);
    for (size_t k = i; code == PS_OK && k < end; k++)
        update_note_outcome(u, &u->extents.v[k], &a);
    return code;
}

// Rounds whose last gradient may have been in this request. Blocks of a partition lie side by side.
static void close_rounds(struct update *u)
{
    struct psd_round *last = NULL;
    for (size_t i = 0; i < u->extents.n; i++) {
        struct psd_round *round = round_of(u, &u->extents.v[i]);
        if (round && round != last)
            psd_sync_advance(u->t->job, round, &u->t->ready);
        last = round;
    }
    psd_sync_send_norms(u->t->job, &u->t->ready);
}

// Rounds are closed even where a block could not be changed: what is in them counts.
static enum ps_code update_apply(struct update *u)
{
    enum ps_code code = PS_OK;
    for (size_t i = 0, end; i < u->extents.n && code == PS_OK; i = end) {
        end = psd_extents_block_end(&u->extents, i);
        code = update_apply_block(u, i, end);
    }
    close_rounds(u);
    return code;
}

static enum ps_code update_stage(struct update *u)
{
    struct psd_request *t = u->t;
    struct psd_atomic atomic = {.caller = t->caller,
                                .id = u->id,
                                .bytes = u->request->atomic_bytes,
                                .now = psd_now(t->core),
                                .method = u->method,
                                .extents = &u->extents,
                                .feed = &u->feed};
    struct applied a = {0};
    enum ps_code code;
    while ((code = psd_staging_add(t->job, &atomic, &a.outcome, &t->error)) == PS_RESOURCE_EXHAUSTED &&
           psd_snapshots_drop_oldest(&t->core->snapshots))
        continue;
    for (size_t i = 0; code == PS_OK && i < u->extents.n; i++) {
        struct psd_block *b = psd_extent_block(&u->extents.v[i]);
        pthread_mutex_lock(&b->lock);
        a.version = b->version;
        pthread_mutex_unlock(&b->lock);
        a.found = a.version - 1;
        update_note_outcome(u, &u->extents.v[i], &a);
    }
    return code;
}

// ---- reply --------------------------------------------------------------------------------------------------------

static void update_count_changes(struct update *u)
{
    struct psd_job *job = u->t->job;
    bool changed = false, stale = false, staged = false;
    uint64_t nonfinite = 0, staleness = 0;
    for (size_t i = 0; i < u->request->n_tensors; i++) {
        const result_t *r = &u->results[i];
        changed |= r->outcome == PARAMSERVER__V1__OUTCOME__APPLIED || r->outcome == PARAMSERVER__V1__OUTCOME__QUEUED;
        stale |= r->outcome == PARAMSERVER__V1__OUTCOME__STALE;
        staged |= r->outcome == PARAMSERVER__V1__OUTCOME__STAGED;
        nonfinite += r->nonfinite;
        staleness = r->staleness > staleness ? r->staleness : staleness;
    }
    if (!changed && !stale && !staged)
        ps_sometimes(PS_SOMETIMES_DUPLICATE);
    if (changed || stale || !staged)
        atomic_fetch_add(changed ? &job->updates : stale ? &job->stale : &job->duplicates, 1);
    if (nonfinite && (changed || stale || staged))
        atomic_fetch_add(&job->nonfinite, 1);
    unsigned long long met = atomic_load_explicit(&job->met_staleness, memory_order_relaxed);
    while (staleness > met && !atomic_compare_exchange_weak(&job->met_staleness, &met, staleness))
        continue;
    atomic_fetch_add(&job->bytes_moved, u->bytes_moved);
}

static int update_send_reply(struct update *u)
{
    return psd_reply_send_results(&u->builder, u->t, u->results, u->request->n_tensors);
}

static void push_pull_free(void *state)
{
    struct push_pull *w = state;
    free(w->results);
    psd_reply_fini(&w->builder);
    psd_extents_free(&w->extents);
    free(w);
}

static int push_pull_resume(struct psd_request *q)
{
    struct push_pull *w = q->call->state;
    Paramserver__V1__PushPullReply out = PARAMSERVER__V1__PUSH_PULL_REPLY__INIT;
    int code = psd_wait_for_round(q, &w->extents, w->round, &w->at);
    if (code != PS_OK)
        return code;
    out.round = psd_sync_least_closed(&w->extents);
    psd_reply_add_values(&w->builder, q->job, w->extents.v, w->extents.n, false);
    out.generation = q->core->generation;
    out.n_results = w->n_results;
    out.results = w->pointers;
    out.tensors = w->builder.tensors;
    out.n_tensors = w->builder.n_tensors;
    return psd_reply_send(&w->builder, q, &out.base);
}

// Moves what the answer needs into *u->then. The payload has done its part: many large ones that wait would else fill
// the room for requests, and the push that they wait for could not be read.
static int push_pull_wait(struct update *u)
{
    struct psd_request *q = u->t;
    struct push_pull *w = u->then;
    *w = (struct push_pull){.round = u->request->round,
                            .n_results = u->request->n_tensors,
                            .results = u->results,
                            .pointers = u->pointers,
                            .extents = u->extents,
                            .builder = u->builder};
    u->then = NULL;
    u->results = NULL;
    u->extents = (struct psd_extents){0};
    u->builder = (struct psd_reply){0};
    ps_slices_clear(&q->payload);
    psd_request_wait_with(q, push_pull_resume, w, push_pull_free);
    return push_pull_resume(q);
}

// ---- the methods --------------------------------------------------------------------------------------------------

// What is wrong with the request itself. Nothing is taken in of its client either.
static enum ps_code update_check(struct update *u)
{
    if (check_sequence(u->t) || update_decode(u) || update_locate(u) || check_atomic(u) || check_slots(u) ||
        check_reply(u) || (u->push && check_finite(u)))
        return u->t->error.code;
    return PS_OK;
}

static enum ps_code update_take(struct update *u)
{
    if (update_check(u) || psd_job_client(u->t->job, u->t->caller, &u->id, &u->t->error) || reserve_reply(u))
        return u->t->error.code;
    if (u->request->atomic_bytes)
        return update_stage(u);
    if (check_rounds(u) || reserve_blocks(u))
        return u->t->error.code;
    return update_apply(u);
}

static int update_answer(struct update *u)
{
    update_count_changes(u);
    return u->pull ? push_pull_wait(u) : update_send_reply(u);
}

int psd_update_values(struct psd_request *t)
{
    struct update u = {.t = t,
                       .request = (const Paramserver__V1__UpdateRequest *)t->request,
                       .method = t->call->method,
                       .pull = t->call->method == PARAMSERVER__V1__METHOD__PUSH_PULL,
                       .feed = {.payload = &t->payload}};
    u.push = u.pull || t->call->method == PARAMSERVER__V1__METHOD__PUSH;
    int code = (int)update_take(&u);
    give_up_reserved(&u);
    if (code == PS_OK)
        code = update_answer(&u);
    free(u.then);
    free(u.results);
    psd_reply_fini(&u.builder);
    psd_extents_free(&u.extents);
    return code;
}
