// SPDX-License-Identifier: Apache-2.0
// Reduce, all-gather, broadcast: calls of Reduce at the control task, one after the other, each of as much as a message
// holds. All workers cut alike, so their calls meet: "NAME" where one call is enough, else "NAME (1/3)" and so on. An
// all-gather begins with "NAME (sizes)", for what fits a call depends on how many bring something.
//
// Whoever takes part in the first call must take part in all: a result of some parts with a worker and others without
// is none.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/dtype.h"
#include "common/wire/wire.h"
#include "libclient/client.h"
#include "libclient/op.h"

enum { PART_BYTES = PS_CHUNK_MAX - PSC__REPLY_MARGIN };  // of payload in a request, and in a reply

struct collective {
    struct psc_client *client;
    const struct kind *kind;
    char *name;
    Paramserver__V1__ReduceOp op;
    Paramserver__V1__DType dtype;
    uint32_t root;         // broadcast
    uint8_t *data;         // what this worker brings; reduce, broadcast: and gets
    uint64_t bytes;        // of it
    uint64_t part_bytes;   // of it in a call
    uint64_t part, parts;  // the call under way, of how many
    bool sizes;            // all-gather: that call is the one before the first
    uint32_t *ranks;       // who took part in the first call
    size_t n_ranks;
    uint32_t *workers;           // reduce: out
    uint64_t *theirs, *offsets;  // all-gather: per rank of ranks: bytes, where they begin in all
    uint8_t *all;                // [all_bytes] the result until every part is there
    uint64_t all_bytes;
    void **all_out;  // likewise: out
    uint64_t *all_bytes_out, *sizes_out;
    psc__done_fn done;
    void *arg;
};

struct kind {
    const char *name;
    void (*bring)(const struct collective *m, Paramserver__V1__ReduceRequest *r);
    enum ps_code (*take)(struct collective *m, const Paramserver__V1__ReduceReply *r, const struct ps_slices *payload,
                         struct ps_error *e);
    void (*hand_over)(struct collective *m);
};

static void collective_call(struct collective *m);

// ---- who takes part -----------------------------------------------------------------------------------------------

static bool ranks_have(const uint32_t *ranks, size_t n, uint32_t rank)
{
    for (size_t i = 0; i < n; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

// Each part is of the same workers as the first. Both lists ascend.
static enum ps_code collective_compare_ranks(const struct collective *m, const Paramserver__V1__ReduceReply *r,
                                             struct ps_error *e)
{
    size_t i = 0;
    while (i < m->n_ranks && i < r->n_ranks && m->ranks[i] == r->ranks[i])
        i++;
    if (i == m->n_ranks && i == r->n_ranks)
        return PS_OK;
    if (i < m->n_ranks && (i == r->n_ranks || m->ranks[i] < r->ranks[i]))
        return ps_fail(e, PS_ABORTED, "worker %u left in the middle", m->ranks[i]);
    return ps_fail(e, PS_ABORTED, "worker %u came in the middle", r->ranks[i]);
}

static enum ps_code collective_check_ranks(struct collective *m, const Paramserver__V1__ReduceReply *r,
                                           struct ps_error *e)
{
    if (m->ranks)
        return collective_compare_ranks(m, r, e);
    if (r->n_ranks == 0 || !ranks_have(r->ranks, r->n_ranks, (uint32_t)m->client->rank))
        return ps_fail(e, PS_INTERNAL, "answered for %zu workers without this one", r->n_ranks);
    m->ranks = ps_try_alloc_array(r->n_ranks, sizeof *m->ranks);
    if (!m->ranks)
        return ps_no_memory(e, "who took part");
    memcpy(m->ranks, r->ranks, r->n_ranks * sizeof *m->ranks);
    m->n_ranks = r->n_ranks;
    return PS_OK;
}

// ---- parts -------------------------------------------------------------------------------------------------------

// This call's part of `bytes` bytes that are cut into parts; empty beyond their end.
static uint64_t collective_part(const struct collective *m, uint64_t bytes, uint64_t *first)
{
    *first = m->part * m->part_bytes;
    if (*first >= bytes)
        return 0;
    return bytes - *first < m->part_bytes ? bytes - *first : m->part_bytes;
}

static uint64_t collective_parts_of(uint64_t bytes, uint64_t part_bytes)
{
    return bytes / part_bytes + (bytes % part_bytes > 0);
}

static void collective_bring_part(const struct collective *m, Paramserver__V1__ReduceRequest *r)
{
    uint64_t first, n = collective_part(m, m->bytes, &first);
    r->count = n / ps_dtype_size((int)m->dtype);
    r->payload = (ProtobufCBinaryData){n, n ? m->data + first : NULL};
}

static enum ps_code collective_make_room(struct collective *m, struct ps_error *e)
{
    m->all = ps_try_alloc(m->all_bytes);
    if (!m->all)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for a result of %" PRIu64 " bytes", m->all_bytes);
    return PS_OK;
}

// Into the caller's data at once where it is the only part. Where another one may fail yet they keep what they bring.
static enum ps_code collective_take_part(struct collective *m, const Paramserver__V1__ReduceReply *r,
                                         const struct ps_slices *payload, struct ps_error *e)
{
    (void)r;
    uint64_t first, n = collective_part(m, m->bytes, &first);
    if (payload->len != n)
        return ps_fail(e, m->op == PARAMSERVER__V1__REDUCE_OP__BROADCAST ? PS_INVALID_ARGUMENT : PS_INTERNAL,
                       "%" PRIu64 " bytes were expected here, %zu came", n, payload->len);
    if (n)
        ps_slices_copy_out(payload, 0, n, (m->all ? m->all : m->data) + first);
    return PS_OK;
}

static void collective_hand_over(struct collective *m)
{
    if (m->all)
        memcpy(m->data, m->all, m->bytes);
}

// ---- reduce -------------------------------------------------------------------------------------------------------

static void reduce_done(struct collective *m)
{
    collective_hand_over(m);
    if (m->workers)
        *m->workers = (uint32_t)m->n_ranks;
}

static const struct kind reduce = {"reduce", collective_bring_part, collective_take_part, reduce_done};

// ---- broadcast ----------------------------------------------------------------------------------------------------

// It has the result.
static bool collective_is_root(const struct collective *m)
{
    return m->op == PARAMSERVER__V1__REDUCE_OP__BROADCAST && (uint32_t)m->client->rank == m->root;
}

static void broadcast_bring(const struct collective *m, Paramserver__V1__ReduceRequest *r)
{
    r->root = m->root;
    if (collective_is_root(m))
        collective_bring_part(m, r);
}

static const struct kind broadcast = {"broadcast", broadcast_bring, collective_take_part, collective_hand_over};

// ---- all-gather ---------------------------------------------------------------------------------------------------

static void gather_bring(const struct collective *m, Paramserver__V1__ReduceRequest *r)
{
    if (!m->sizes) {
        collective_bring_part(m, r);
        return;
    }
    r->dtype = PARAMSERVER__V1__DTYPE__INT64;
    r->count = 1;
    r->payload = (ProtobufCBinaryData){sizeof m->bytes, (uint8_t *)&m->bytes};
}

static enum ps_code gather_take_sizes(struct collective *m, const struct ps_slices *payload, struct ps_error *e)
{
    uint64_t most = 0;
    if (payload->len != m->n_ranks * sizeof *m->theirs)
        return ps_fail(e, PS_INTERNAL, "answered with %zu bytes for the sizes of %zu workers", payload->len,
                       m->n_ranks);
    m->theirs = ps_try_alloc_array(m->n_ranks, sizeof *m->theirs);
    m->offsets = ps_try_alloc_array(m->n_ranks, sizeof *m->offsets);
    if (!m->theirs || !m->offsets)
        return ps_no_memory(e, "the sizes");
    ps_slices_copy_out(payload, 0, payload->len, m->theirs);
    for (size_t i = 0; i < m->n_ranks; i++) {
        m->offsets[i] = m->all_bytes;
        if (m->theirs[i] > INT64_MAX || __builtin_add_overflow(m->all_bytes, m->theirs[i], &m->all_bytes))
            return ps_fail(e, PS_INTERNAL, "worker %u brings %" PRIu64 " bytes", m->ranks[i], m->theirs[i]);
        most = m->theirs[i] > most ? m->theirs[i] : most;
    }
    if (collective_make_room(m, e) != PS_OK)
        return e->code;
    m->part_bytes = PART_BYTES / m->n_ranks;
    m->parts = collective_parts_of(most, m->part_bytes);
    return PS_OK;
}

static enum ps_code gather_take(struct collective *m, const Paramserver__V1__ReduceReply *r,
                                const struct ps_slices *payload, struct ps_error *e)
{
    size_t at = 0;
    if (m->sizes)
        return gather_take_sizes(m, payload, e);
    if (r->n_counts != m->n_ranks)
        return ps_fail(e, PS_INTERNAL, "answered with %zu counts for %zu workers", r->n_counts, m->n_ranks);
    for (size_t i = 0; i < m->n_ranks; i++) {
        uint64_t first, n = collective_part(m, m->theirs[i], &first);
        if (r->counts[i] != n || n > payload->len - at)
            return ps_fail(e, PS_INTERNAL,
                           "answered with %" PRIu64 " bytes of worker %u and %zu in all; expected %" PRIu64,
                           r->counts[i], m->ranks[i], payload->len, n);
        ps_slices_copy_out(payload, at, n, m->all + m->offsets[i] + first);
        at += n;
    }
    return PS_OK;
}

static void all_gather_done(struct collective *m)
{
    for (uint32_t r = 0; m->sizes_out && r < m->client->workers; r++)
        m->sizes_out[r] = 0;
    for (size_t i = 0; m->sizes_out && i < m->n_ranks; i++)
        if (m->ranks[i] < m->client->workers)
            m->sizes_out[m->ranks[i]] = m->theirs[i];
    *m->all_out = m->all;
    *m->all_bytes_out = m->all_bytes;
    m->all = NULL;
}

static const struct kind all_gather = {"all_gather", gather_bring, gather_take, all_gather_done};

// ---- one call after the other -------------------------------------------------------------------------------------

static void collective_free(struct collective *m)
{
    free(m->name);
    free(m->ranks);
    free(m->theirs);
    free(m->offsets);
    free(m->all);
    free(m);
}

static void collective_end(struct collective *m, struct ps_error *e)
{
    if (e->code != PS_OK)
        ps_error_prefix(e, "%s '%s'", m->kind->name, m->name);
    else
        m->kind->hand_over(m);
    m->done(m->arg, e);
    collective_free(m);
}

static enum ps_code collective_take_reply(struct collective *m, const struct ps_slices *reply, struct ps_error *e)
{
    struct psc__task *control = &m->client->tasks[0];
    ProtobufCMessage *message;
    struct ps_slices payload = PS_SLICES_EMPTY;
    if (psc__unpack(control, &paramserver__v1__reduce_reply__descriptor, reply, &message, &payload, e) != PS_OK)
        return e->code;
    const Paramserver__V1__ReduceReply *r = (Paramserver__V1__ReduceReply *)message;
    psc__lock(m->client);
    psc__check_generation(control, r->generation, e);
    psc__unlock(m->client);
    if (e->code == PS_OK && payload.broken)
        ps_no_memory(e, "an answer");
    if (e->code == PS_OK && collective_check_ranks(m, r, e) == PS_OK)
        m->kind->take(m, r, &payload, e);
    ps_slices_clear(&payload);
    ps_msg_free(message);
    return e->code;
}

static void collective_answered(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct collective *m = arg;
    struct ps_error e = *error;
    if (e.code == PS_OK)
        collective_take_reply(m, reply, &e);
    if (m->sizes)
        m->sizes = false;
    else
        m->part++;
    if (e.code == PS_OK && m->part < m->parts)
        collective_call(m);
    else
        collective_end(m, &e);
}

static void collective_call(struct collective *m)
{
    Paramserver__V1__ReduceRequest request = PARAMSERVER__V1__REDUCE_REQUEST__INIT;
    struct ps_error e = {.code = PS_OK};
    size_t size = strlen(m->name) + 64;
    char *name = ps_try_alloc(size);
    struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__REDUCE,
                                  .message = &request.base,
                                  .timeout_ms = PSC__NO_LIMIT,
                                  .mutates = true,
                                  .done = collective_answered,
                                  .arg = m};
    if (!name) {
        ps_no_memory(&e, "a call");
        collective_end(m, &e);
        return;
    }
    if (m->sizes)
        snprintf(name, size, "%s (sizes)", m->name);
    else if (m->parts > 1)
        snprintf(name, size, "%s (%" PRIu64 "/%" PRIu64 ")", m->name, m->part + 1, m->parts);
    else
        snprintf(name, size, "%s", m->name);
    request.name = name;
    request.op = m->op;
    request.dtype = m->dtype;
    m->kind->bring(m, &request);
    psc__call(m->client, &spec, &e);
    free(name);
    if (e.code != PS_OK)
        collective_end(m, &e);
}

// ---- starting -----------------------------------------------------------------------------------------------------

static enum ps_code collective_check(const struct collective *m, const char *name, struct ps_error *e)
{
    if (!name || !name[0])
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: it has no name", m->kind->name);
    if (m->client->rank < 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s '%s': an observer takes no part", m->kind->name, name);
    if (m->bytes && !m->data)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s '%s': there is no data", m->kind->name, name);
    return PS_OK;
}

// e: what is wrong already, or OK.
static void collective_start(const struct collective *from, const char *name, struct ps_error *e)
{
    struct collective *m = NULL;
    if (e->code == PS_OK && collective_check(from, name, e) == PS_OK && !(m = ps_try_alloc(sizeof *m)))
        ps_no_memory(e, from->kind->name);
    if (m) {
        *m = *from;
        m->name = ps_try_strdup(name);
        m->all_bytes = m->parts > 1 && !collective_is_root(m) ? m->bytes : 0;
        if (!m->name)
            ps_no_memory(e, from->kind->name);
        else if (m->all_bytes)
            collective_make_room(m, e);
    }
    if (e->code == PS_OK) {
        collective_call(m);
        return;
    }
    from->done(from->arg, e);
    if (m)
        collective_free(m);
}

void psc__reduce(struct psc_client *c, const char *name, psc_reduce_op op, psc_dtype dtype, void *data, uint64_t count,
                 uint32_t *workers, psc__done_fn done, void *arg)
{
    struct ps_error e = {.code = PS_OK};
    struct collective m = {.client = c,
                           .kind = &reduce,
                           .op = (Paramserver__V1__ReduceOp)op,
                           .dtype = (Paramserver__V1__DType)dtype,
                           .data = data,
                           .part_bytes = PART_BYTES,
                           .workers = workers,
                           .done = done,
                           .arg = arg};
    if (op < PSC_SUM || op > PSC_MAX)
        ps_fail(&e, PS_INVALID_ARGUMENT, "reduce: no operation %d; expected sum, mean, min or max", (int)op);
    else if (dtype < PSC_FLOAT32 || dtype > PSC_INT64)
        ps_fail(&e, PS_INVALID_ARGUMENT, "reduce: %s; expected float32, float64, int32 or int64",
                ps_dtype_name((int)dtype));
    else if (__builtin_mul_overflow(count, ps_dtype_size((int)dtype), &m.bytes) || m.bytes > INT64_MAX)
        ps_fail(&e, PS_INVALID_ARGUMENT, "reduce: %" PRIu64 " elements overflow 63 bits of bytes", count);
    m.parts = collective_parts_of(m.bytes, PART_BYTES);
    collective_start(&m, name, &e);
}

void psc__broadcast(struct psc_client *c, const char *name, uint32_t root, void *data, uint64_t bytes,
                    psc__done_fn done, void *arg)
{
    struct ps_error e = {.code = PS_OK};
    struct collective m = {.client = c,
                           .kind = &broadcast,
                           .op = PARAMSERVER__V1__REDUCE_OP__BROADCAST,
                           .dtype = PARAMSERVER__V1__DTYPE__UINT8,
                           .root = root,
                           .data = data,
                           .bytes = bytes,
                           .part_bytes = PART_BYTES,
                           .parts = collective_parts_of(bytes, PART_BYTES),
                           .done = done,
                           .arg = arg};
    if (root >= c->workers)
        ps_fail(&e, PS_INVALID_ARGUMENT, "broadcast: the root is worker %u of %u", root, c->workers);
    collective_start(&m, name, &e);
}

void psc__all_gather(struct psc_client *c, const char *name, const void *data, uint64_t bytes, void **all,
                     uint64_t *all_bytes, uint64_t *sizes, psc__done_fn done, void *arg)
{
    struct ps_error e = {.code = PS_OK};
    struct collective m = {.client = c,
                           .kind = &all_gather,
                           .op = PARAMSERVER__V1__REDUCE_OP__GATHER,
                           .dtype = PARAMSERVER__V1__DTYPE__UINT8,
                           .data = (uint8_t *)data,
                           .bytes = bytes,
                           .sizes = true,
                           .all_out = all,
                           .all_bytes_out = all_bytes,
                           .sizes_out = sizes,
                           .done = done,
                           .arg = arg};
    collective_start(&m, name, &e);
}
