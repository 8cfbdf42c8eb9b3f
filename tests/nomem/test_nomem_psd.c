// SPDX-License-Identifier: Apache-2.0
//
// The Nth allocation of a psd's life fails, alone or with those that follow, for every N: what is refused for that has
// changed nothing that anybody can see, the same request is then taken, the job ends up as if nothing had failed, and
// nothing leaks.
//
// A life is a script of calls on one to three ps tasks, whose messages to each other are delivered in between. Where a
// call is refused its script goes on only when, sent again under its sequence, it has been taken.
//
// How much of that is tried: see nomem_rows.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>

#include "common/base/hash.h"
#include "psd/control/state.h"
#include "tests/nomem/nomem.h"
#include "tests/unit/psd_cluster.h"

#define D(name) PARAMSERVER__V1__DTYPE__##name
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { MEMORY = 64 << 20, PENDING = 8, TRIES = 200 };

struct sent {
    struct answer a;
    uint32_t task;
    int method;
    struct ps_slices request;  // to send it again
};

struct life {
    struct cluster c;
    uint32_t rank;                   // whose calls they are
    struct ps_slices held[PENDING];  // answers to reads, whose blocks stay pinned
    size_t n_held;
    uint64_t given;             // digest of the leases
    struct sent sent[PENDING];  // calls that wait
};

// ---- what anybody can see -----------------------------------------------------------------------------------------

static uint64_t mix_partition(uint64_t h, const struct psd_job *job, const struct psd_partition *p)
{
    const struct psd_variable *v = &job->variables[p->variable];
    for (uint32_t k = 0; k < p->n_blocks; k++) {
        struct psd_block *b = &p->blocks[k];
        const uint64_t numbers[] = {b->version, b->steps, b->round, b->value_bytes};
        h = ps_hash(h, numbers, sizeof numbers);
        psd_page_unref(psd_block_pin(b));  // which fills one that is blank
        h = ps_hash(h, b->page->data, b->value_bytes);
        for (int slot = 0; slot < v->blank.slots; slot++)
            h = ps_hash(h, b->page->data + psd_slot_offset(b->value_bytes, slot), b->value_bytes);
    }
    if (p->round) {
        const uint64_t numbers[] = {p->round->closed, (uint64_t)p->round->state, p->round->epoch};
        h = ps_hash(h, numbers, sizeof numbers);
        for (uint32_t rank = 0; rank < p->round->workers; rank++) {
            const struct psd_contribution *c = &p->round->contributions[rank];
            h = ps_hash(h, &c->blocks, sizeof c->blocks);
            for (uint32_t k = 0; k < p->n_blocks; k++) {
                bool in = c->folded || c->pages[k];
                h = ps_hash(h, &in, sizeof in);
            }
        }
        h = ps_hash(h, p->round->member, p->round->workers * sizeof *p->round->member);
    }
    return h;
}

// Values, slots, versions and rounds of all tasks.
static uint64_t digest_values(const struct cluster *c)
{
    uint64_t h = PS_HASH_SEED;
    for (uint32_t task = 0; task < c->tasks; task++)
        for (const struct psd_job *job = c->task[task].core->table.newest; job; job = job->older) {
            h = ps_hash(h, job->name, strlen(job->name));
            h = ps_hash(h, &job->n_changes, sizeof job->n_changes);
            for (uint32_t i = 0; i < job->n_partitions; i++)
                h = mix_partition(h, job, &job->partitions[i]);
        }
    return h;
}

static uint64_t mix_reply(uint64_t h, struct psd_core *core, int method, const ProtobufCMessage *m)
{
    struct answer a;
    ask_later(core, &a, method, m, NULL, UINT64_MAX);
    h = ps_hash(h, &a.code, sizeof a.code);
    for (size_t i = 0; i < a.body.n; i++)
        h = ps_hash(h, a.body.v[i].data, a.body.v[i].len);
    ps_slices_clear(&a.body);
    return h;
}

// What is counted of memory may grow for a request that is refused later on: it is needed for the next one. A number
// that a refused Join was given is nobody's.
static uint64_t mix_status(uint64_t h, struct psd_core *core)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    uint8_t bytes[4096];
    ask(core, M(STATUS), &r.base, NULL, &paramserver__v1__status_reply__descriptor, &m, NULL);
    Paramserver__V1__StatusReply *status = (Paramserver__V1__StatusReply *)m;
    assert_non_null(status);
    status->block_bytes = status->newest = 0;
    for (size_t i = 0; i < status->n_jobs; i++)
        status->jobs[i]->dedup_bytes = status->jobs[i]->bytes_moved = 0;
    assert_true(protobuf_c_message_get_packed_size(m) <= sizeof bytes);
    h = ps_hash(h, bytes, protobuf_c_message_pack(m, bytes));
    ps_msg_free(m);
    return h;
}

// And what Status, Describe, Workers and Waits show.
static uint64_t digest_all(const struct cluster *c)
{
    uint64_t h = digest_values(c);
    for (uint32_t task = 0; task < c->tasks; task++) {
        Paramserver__V1__DescribeRequest describe = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
        Paramserver__V1__WorkersRequest workers = PARAMSERVER__V1__WORKERS_REQUEST__INIT;
        Paramserver__V1__WaitsRequest waits = PARAMSERVER__V1__WAITS_REQUEST__INIT;
        Paramserver__V1__Caller caller = caller_of(7, 0);
        caller.worker = 0;
        describe.caller = &caller;
        workers.job = (char *)"job";
        h = mix_status(h, c->task[task].core);
        h = mix_reply(h, c->task[task].core, M(DESCRIBE), &describe.base);
        h = mix_reply(h, c->task[task].core, M(WORKERS), &workers.base);
        h = mix_reply(h, c->task[task].core, M(WAITS), &waits.base);
    }
    return h;
}

// ---- calls --------------------------------------------------------------------------------------------------------

static bool is_refused(const struct answer *a)
{
    return a->answered && (a->code == PS_RESOURCE_EXHAUSTED || a->code == PS_UNAVAILABLE);
}

static void send_now(struct life *l, struct sent *s)
{
    s->a = (struct answer){.call = {.method = s->method, .deadline = UINT64_MAX, .reply = on_reply}};
    for (size_t i = 0; i < s->request.n; i++)
        ps_slices_add(&s->a.call.request, ps_slice_ref(s->request.v[i]));
    nomem_window(true);
    psd_core_call(l->c.task[s->task].core, &s->a.call);
    nomem_window(false);
}

// Sends until it is taken or waits: what is refused for memory has changed nothing.
static void send_until_taken(struct life *l, struct sent *s)
{
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = digest_all(&l->c), failed = nomem_failed();
        send_now(l, s);
        if (!is_refused(&s->a))
            return;
        if (nomem_failed() == failed)
            fail_msg("method %d: refused, and no allocation has failed: %s", s->method, s->a.text);
        if (s->a.code == PS_RESOURCE_EXHAUSTED && !strstr(s->a.text, "memory") && !strstr(s->a.text, "limit"))
            fail_msg("method %d: refused for no memory with '%s'", s->method, s->a.text);
        // A declaration that replaces a job forgets that one before it makes blocks.
        bool replaces = s->method == M(DECLARE) && l->c.declare.on_existing == PARAMSERVER__V1__ON_EXISTING__REPLACE;
        if (s->a.code == PS_RESOURCE_EXHAUSTED && digest_all(&l->c) != before &&
            (!replaces || strstr(s->a.text, "another job")))
            fail_msg("method %d: refused with '%s', and something has changed", s->method, s->a.text);
    }
    fail_msg("method %d is refused again and again: %s", s->method, s->a.text);
}

static void pass(struct life *l, uint64_t ms)
{
    nomem_window(true);
    settle(&l->c, ms);
    nomem_window(false);
}

static struct sent *start(struct life *l, uint32_t task, int method, const ProtobufCMessage *m,
                          struct ps_slices *payload)
{
    struct sent *s = l->sent;
    while (s->method)
        s++;
    *s = (struct sent){.task = task, .method = method};
    ps_msg_pack(m, payload, &s->request);
    send_until_taken(l, s);
    return s;
}

// Waits for a call, which is sent again where there was no memory to answer it. The body stays in s->a.
static void wait_for(struct life *l, struct sent *s)
{
    for (int i = 0; i < 200 && (!s->a.answered || is_refused(&s->a)); i++) {
        if (is_refused(&s->a))
            send_until_taken(l, s);
        if (!s->a.answered)
            pass(l, 50);
    }
    if (!s->a.answered)
        fail_msg("method %d is not answered", s->method);
    if (s->a.code)
        fail_msg("method %d: %s", s->method, s->a.text);
    if (s->a.body.broken)
        fail_msg("method %d: its answer is not whole", s->method);
    ps_slices_clear(&s->request);
    s->method = 0;
}

static void finish(struct life *l, struct sent *s)
{
    wait_for(l, s);
    ps_slices_clear(&s->a.body);
}

static void call(struct life *l, uint32_t task, int method, const ProtobufCMessage *m)
{
    finish(l, start(l, task, method, m, NULL));
}

static Paramserver__V1__Caller *caller(struct life *l, bool counts)
{
    Paramserver__V1__Caller *c = &l->c.callers[l->rank];
    c->sequence = counts ? ++l->c.sequence[l->rank] : 0;
    c->oldest = c->sequence;
    return c;
}

// ---- the methods --------------------------------------------------------------------------------------------------

static struct sent *start_join(struct life *l, uint32_t rank)
{
    Paramserver__V1__JoinRequest r = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    l->rank = rank;
    r.caller = caller(l, false);
    r.on_existing = l->c.declare.on_existing;
    r.address = (char *)"here:1";
    r.workers = l->c.workers;
    r.update = l->c.declare.update;
    r.staleness = l->c.declare.staleness;
    return start(l, 0, M(JOIN), &r.base, NULL);
}

static void end_join(struct life *l, uint32_t rank, struct sent *s)
{
    ProtobufCMessage *reply = NULL;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    wait_for(l, s);
    assert_int_equal(ps_msg_unpack(&paramserver__v1__join_reply__descriptor, &s->a.body, &reply, &nothing, NULL),
                     PS_OK);
    cluster_joined(&l->c, rank, (Paramserver__V1__JoinReply *)reply);
    ps_msg_free(reply);
    ps_slices_clear(&s->a.body);
}

static void declare(struct life *l)
{
    l->rank = 0;
    caller(l, false);
    for (uint32_t task = l->c.tasks; task--;) {
        l->c.declare.task = task;
        call(l, task, M(DECLARE), &l->c.declare.base);
    }
}

// The chief's join waits for nobody, the others' for it: they come first.
static void open_job(struct life *l)
{
    struct sent *joins[8];
    for (uint32_t rank = l->c.workers; rank--;)
        joins[rank] = start_join(l, rank);
    for (uint32_t rank = 0; rank < l->c.workers; rank++)
        end_join(l, rank, joins[rank]);
    declare(l);
}

struct part {
    uint32_t variable;
    uint64_t first, count;
};

// The ranges' bytes; every number is value. Strings have 3 bytes each.
static struct ps_slices payload_of(const struct life *l, const struct part *parts, size_t n, float value)
{
    struct ps_slices all = PS_SLICES_EMPTY;
    for (size_t i = 0; i < n; i++) {
        if (l->c.v[parts[i].variable].dtype != D(STRING)) {
            struct ps_slices one = floats(parts[i].count, value);
            ps_slices_move(&all, &one);
            continue;
        }
        for (uint64_t k = 0; k < parts[i].count; k++)
            ps_slices_add(&all, ps_slice_copy(&(uint32_t){3}, sizeof(uint32_t)));
        for (uint64_t k = 0; k < parts[i].count; k++)
            ps_slices_add(&all, ps_slice_copy("abc", 3));
    }
    return all;
}

static void name_parts(const struct life *l, const struct part *parts, size_t n, Paramserver__V1__Tensor *t,
                       Paramserver__V1__Tensor **tensors, bool values)
{
    for (size_t i = 0; i < n; i++) {
        const Paramserver__V1__Variable *v = &l->c.v[parts[i].variable];
        paramserver__v1__tensor__init(tensors[i] = &t[i]);
        t[i].variable = v->name;
        t[i].first = parts[i].first;
        t[i].count = parts[i].count;
        if (values)
            t[i].dtype = v->dtype;
        if (values && v->dtype == D(STRING))
            t[i].bytes = parts[i].count * 7;
    }
}

struct how {
    uint64_t round, atomic_bytes;
    bool same_sequence;
};

static struct sent *start_update(struct life *l, uint32_t task, int method, struct how how, float value, size_t n,
                                 const struct part *parts)
{
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    Paramserver__V1__Tensor t[4], *tensors[4];
    struct ps_slices payload = payload_of(l, parts, n, value);
    if (how.same_sequence)
        l->c.sequence[l->rank]--;
    r.caller = caller(l, true);
    r.tensors = tensors;
    r.n_tensors = n;
    r.round = how.round;
    r.examples = 1;
    r.atomic_bytes = how.atomic_bytes;
    name_parts(l, parts, n, t, tensors, true);
    return start(l, task, method, &r.base, &payload);
}

#define PARTS(...)                                                     \
    COUNT(((const struct part[]){__VA_ARGS__})), (const struct part[]) \
    {                                                                  \
        __VA_ARGS__                                                    \
    }

static const struct how now = {0};

static void update(struct life *l, uint32_t task, int method, struct how how, float value, size_t n,
                   const struct part *parts)
{
    finish(l, start_update(l, task, method, how, value, n, parts));
}

// The answer is held, and with it its blocks, until release_all.
static struct sent *start_read(struct life *l, uint32_t task, int method, uint64_t round, size_t n,
                               const struct part *parts)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Tensor t[4], *tensors[4];
    r.caller = caller(l, false);
    r.tensors = tensors;
    r.n_tensors = n;
    r.round = round;
    r.if_newer = method == M(GET) && round == 0 && n > 1;
    name_parts(l, parts, n, t, tensors, false);
    return start(l, task, method, &r.base, NULL);
}

static void hold(struct life *l, struct sent *s)
{
    wait_for(l, s);
    assert_true(l->n_held < PENDING);
    ps_slices_move(&l->held[l->n_held++], &s->a.body);
}

static void release_all(struct life *l)
{
    while (l->n_held)
        ps_slices_clear(&l->held[--l->n_held]);
}

static void take(struct life *l, uint32_t task, int method, uint64_t round, size_t n, const struct part *parts)
{
    hold(l, start_read(l, task, method, round, n, parts));
}

static struct sent *start_collective(struct life *l, Paramserver__V1__ReduceOp op, float value)
{
    Paramserver__V1__BarrierRequest b = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__ReduceRequest r = PARAMSERVER__V1__REDUCE_REQUEST__INIT;
    struct ps_slices payload = floats(3, value);
    b.name = r.name = (char *)"m";
    b.caller = r.caller = caller(l, true);
    r.op = op;
    r.dtype = D(FLOAT32);
    r.count = 3;
    if (op)
        return start(l, 0, M(REDUCE), &r.base, &payload);
    ps_slices_clear(&payload);
    return start(l, 0, M(BARRIER), &b.base, NULL);
}

// All workers meet.
static void meet_all(struct life *l, Paramserver__V1__ReduceOp op)
{
    struct sent *collectives[8];
    for (uint32_t rank = 0; rank < l->c.workers; rank++) {
        l->rank = rank;
        collectives[rank] = start_collective(l, op, (float)rank);
    }
    for (uint32_t rank = 0; rank < l->c.workers; rank++)
        finish(l, collectives[rank]);
    l->rank = 0;
}

static struct sent *start_lease(struct life *l, uint32_t rank, uint64_t round)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    l->rank = rank;
    r.caller = caller(l, true);
    r.examples = 40;
    r.want = 10;
    r.round = round;
    return start(l, 0, M(LEASE), &r.base, NULL);
}

static void end_lease(struct life *l, struct sent *s)
{
    ProtobufCMessage *m = NULL;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    wait_for(l, s);
    assert_int_equal(ps_msg_unpack(&paramserver__v1__lease_reply__descriptor, &s->a.body, &m, &nothing, NULL), PS_OK);
    const Paramserver__V1__LeaseReply *r = (Paramserver__V1__LeaseReply *)m;
    const uint64_t share[] = {r->first, r->count, r->stride, r->end, r->steps, r->round};
    l->given = ps_hash(l->given, share, sizeof share);
    ps_msg_free(m);
    ps_slices_clear(&s->a.body);
}

static struct sent *start_clock(struct life *l, uint32_t rank, uint64_t step)
{
    Paramserver__V1__ClockRequest r = PARAMSERVER__V1__CLOCK_REQUEST__INIT;
    l->rank = rank;
    r.caller = caller(l, false);
    r.step = step;
    r.wait = true;
    return start(l, 0, M(CLOCK), &r.base, NULL);
}

static void heartbeat(struct life *l, uint32_t rank, uint64_t step)
{
    Paramserver__V1__HeartbeatRequest r = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    l->rank = rank;
    r.caller = caller(l, false);
    r.step = step;
    call(l, 0, M(HEARTBEAT), &r.base);
}

static void leave_as(struct life *l, uint32_t rank, bool failed)
{
    Paramserver__V1__LeaveRequest r = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
    l->rank = rank;
    r.caller = caller(l, false);
    r.failed = failed;
    r.reason = (char *)"because";
    call(l, 0, M(LEAVE), &r.base);
    l->rank = 0;
}

static void set(struct life *l, const char *name, double value, uint64_t round)
{
    Paramserver__V1__SetHyperRequest r = PARAMSERVER__V1__SET_HYPER_REQUEST__INIT;
    r.job = (char *)"job";
    r.name = (char *)name;
    r.value = value;
    r.round = round;
    call(l, 0, M(SET_HYPER), &r.base);
}

static void drain(struct life *l, uint32_t worker, bool undo)
{
    Paramserver__V1__DrainRequest r = PARAMSERVER__V1__DRAIN_REQUEST__INIT;
    r.job = (char *)"job";
    r.worker = worker;
    r.undo = undo;
    call(l, 0, M(DRAIN), &r.base);
}

static void look(struct life *l)
{
    Paramserver__V1__StatusRequest status = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    Paramserver__V1__WorkersRequest workers = PARAMSERVER__V1__WORKERS_REQUEST__INIT;
    Paramserver__V1__WaitsRequest waits = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    Paramserver__V1__DescribeRequest describe = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    workers.job = (char *)"job";
    describe.caller = caller(l, false);
    call(l, 0, M(STATUS), &status.base);
    call(l, 0, M(WORKERS), &workers.base);
    call(l, 0, M(WAITS), &waits.base);
    call(l, l->c.tasks - 1, M(DESCRIBE), &describe.base);
}

// The same ranks in other processes.
static void be_born_again(struct life *l)
{
    static uint8_t ids[8][16];
    for (uint32_t rank = 0; rank < l->c.workers; rank++) {
        if (l->c.callers[rank].client.data != ids[rank])
            memset(ids[rank], 'A' + (int)rank, 16);
        ids[rank][15]++;  // a process that was never here
        l->c.callers[rank].client.data = ids[rank];
        l->c.sequence[rank] = 0;
    }
}

// ---- lives --------------------------------------------------------------------------------------------------------

// Partitions of w: 0 .. 3 and 4 .. 7, on tasks 0 and 1; n on task 0; s on task 1.
static const struct variable few[] = {
    {"w", 8, 2}, {.name = "n", .count = 4, .n_partitions = 1, .passive = true}, {"s", 2, 1, .passive = true}};
enum { W, N, S };

static void open_few(struct life *l, uint32_t tasks, uint32_t workers, Paramserver__V1__Update update, const char *rule)
{
    cluster_open(&l->c, tasks, workers, MEMORY, few, COUNT(few));
    l->c.v[S].dtype = D(STRING);
    l->c.declare.update = update;
    l->c.declare.rule = (char *)rule;
}

static void push_as(struct life *l, uint32_t rank, uint32_t task, struct how how, float value, size_t n,
                    const struct part *parts)
{
    l->rank = rank;
    update(l, task, M(PUSH), how, value, n, parts);
}

static void live_async(struct life *l)
{
    const struct how staged = {.atomic_bytes = 32}, rest = {.atomic_bytes = 32, .same_sequence = true};
    open_few(l, 2, 2, ASYNC, "momentum");
    open_job(l);
    update(l, 0, M(PUT), now, 1, PARTS({W, 0, 4}, {N, 0, 4}));
    update(l, 1, M(PUT), now, 1, PARTS({W, 4, 4}, {S, 0, 2}));
    meet_all(l, PARAMSERVER__V1__REDUCE_OP__REDUCE_NONE);
    take(l, 0, M(GET), 0, PARTS({W, 0, 4}, {N, 0, 4}));  // every change of these is a copy now
    take(l, 1, M(PULL), 0, PARTS({W, 4, 4}));
    take(l, 1, M(GET), 0, PARTS({S, 0, 2}));
    push_as(l, 1, 0, now, 2, PARTS({W, 0, 4}));
    push_as(l, 1, 0, now, 2, PARTS({W, 2, 1}));
    update(l, 1, M(PUSH_PULL), now, 2, PARTS({W, 4, 4}));
    update(l, 1, M(PUT), now, 2, PARTS({W, 4, 2}, {S, 0, 2}));
    update(l, 0, M(ASSIGN_ADD), now, 2, PARTS({N, 0, 4}));
    update(l, 0, M(ASSIGN_SUB), now, 1, PARTS({N, 1, 2}));
    push_as(l, 1, 0, now, 2, PARTS({N, 0, 1}, {W, 0, 2}));
    push_as(l, 1, 0, staged, 3, PARTS({W, 0, 4}));
    push_as(l, 1, 0, rest, 3, PARTS({N, 0, 4}));
    release_all(l);
    set(l, "learning_rate", 0.5, 0);
    push_as(l, 0, 0, now, 1, PARTS({W, 0, 4}));
    look(l);
}

// A job ends and another takes its place, then one goes on with its values.
static void live_runs(struct life *l)
{
    Paramserver__V1__StopJobRequest stop = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    open_few(l, 2, 2, ASYNC, "sgd");
    open_job(l);
    push_as(l, 0, 0, now, 1, PARTS({W, 0, 4}));
    drain(l, 1, false);
    heartbeat(l, 0, 3);
    leave_as(l, 0, false);
    leave_as(l, 1, false);
    be_born_again(l);
    l->c.declare.on_existing = PARAMSERVER__V1__ON_EXISTING__RESUME;
    open_job(l);
    push_as(l, 0, 0, now, 1, PARTS({W, 0, 4}));
    leave_as(l, 0, false);
    leave_as(l, 1, true);
    be_born_again(l);
    l->c.declare.on_existing = PARAMSERVER__V1__ON_EXISTING__REPLACE;
    l->c.declare.rule = (char *)"adam";
    open_job(l);
    push_as(l, 0, 1, now, 1, PARTS({W, 4, 4}));
    drain(l, 0, false);
    drain(l, 0, true);
    stop.job = (char *)"job";
    call(l, 1, M(STOP_JOB), &stop.base);
}

// Rounds whose gradients are clipped by a norm over both tasks, one of them with its blocks pinned; one that waits.
static void live_sync(struct life *l)
{
    const struct how first = {.round = 1}, second = {.round = 2};
    open_few(l, 2, 2, SYNC, "adam");
    job_hyper(&l->c, "global_clipnorm", 1);
    open_job(l);
    take(l, 0, M(PULL), 0, PARTS({W, 0, 4}));
    take(l, 1, M(GET), 0, PARTS({W, 4, 4}));
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t task = 0; task < 2; task++)
            push_as(l, rank, task, first, 1 + (float)rank, PARTS({W, 4 * task, 4}));
    take(l, 0, M(PULL), 1, PARTS({W, 0, 4}));
    take(l, 1, M(PULL), 1, PARTS({W, 4, 4}));
    struct sent *both[2];
    for (uint32_t rank = 0; rank < 2; rank++) {
        l->rank = rank;
        push_as(l, rank, 1, second, 3, PARTS({W, 4, 4}));
        both[rank] = start_update(l, 0, M(PUSH_PULL), second, 3, PARTS({W, 0, 4}));
    }
    finish(l, both[0]);
    finish(l, both[1]);
    look(l);
}

// The learning rate changes on three tasks in one round.
static void live_hyper(struct life *l)
{
    static const struct variable w = {"w", 6, 3};
    cluster_open(&l->c, 3, 1, MEMORY, &w, 1);
    open_job(l);
    set(l, "learning_rate", 2, 2);
    for (uint64_t round = 1; round <= 3; round++) {
        for (uint32_t task = 0; task < 3; task++)
            push_as(l, 0, task, (struct how){.round = round}, 1, PARTS({W, 2 * task, 2}));
        pass(l, 100);
    }
}

static void live_collectives(struct life *l)
{
    open_few(l, 1, 3, ASYNC, "sgd");
    open_job(l);
    meet_all(l, PARAMSERVER__V1__REDUCE_OP__SUM);
    meet_all(l, PARAMSERVER__V1__REDUCE_OP__GATHER);
    meet_all(l, PARAMSERVER__V1__REDUCE_OP__BROADCAST);
    l->rank = 0;
    struct sent *first = start_collective(l, PARAMSERVER__V1__REDUCE_OP__MAX, 1);
    l->rank = 1;
    struct sent *second = start_collective(l, PARAMSERVER__V1__REDUCE_OP__MAX, 2);
    leave_as(l, 2, false);
    finish(l, first);
    finish(l, second);
}

// An epoch of 40 examples, of which a worker that dies has some. Who comes again joins as another process.
static void live_leases(struct life *l, Paramserver__V1__Update how)
{
    open_few(l, 2, 3, how, "sgd");
    open_job(l);
    struct sent *leases[3];
    uint32_t first = how == SYNC ? 0 : 2;  // async: alone, before the others
    for (uint32_t rank = first; rank < 3; rank++)
        leases[rank] = start_lease(l, rank, 0);
    for (uint32_t rank = first; rank < 3; rank++)
        end_lease(l, leases[rank]);
    for (uint32_t rank = 0; rank < 3 && how == SYNC; rank++)
        for (uint32_t task = 0; task < 2; task++)
            push_as(l, rank, task, (struct how){.round = 1}, 1, PARTS({W, 4 * task, 4}));
    leave_as(l, 2, true);
    for (int i = 0; i < 4; i++) {
        for (uint32_t rank = 0; rank < 2; rank++)
            leases[rank] = start_lease(l, rank, how == SYNC);
        end_lease(l, leases[0]);
        end_lease(l, leases[1]);
    }
    be_born_again(l);
    end_join(l, 2, start_join(l, 2));
    look(l);
}

static void live_async_leases(struct life *l)
{
    live_leases(l, ASYNC);
}

static void live_sync_leases(struct life *l)
{
    live_leases(l, SYNC);
}

static void live_ssp(struct life *l)
{
    open_few(l, 2, 2, SSP, "adagrad");
    l->c.declare.staleness = 1;
    open_job(l);
    push_as(l, 0, 0, now, 1, PARTS({W, 0, 4}));
    finish(l, start_clock(l, 0, 1));
    struct sent *ahead = start_clock(l, 0, 2);
    push_as(l, 1, 1, now, 1, PARTS({W, 4, 4}));
    finish(l, start_clock(l, 1, 1));
    finish(l, ahead);
    heartbeat(l, 1, 1);
}

static const char *of_rule;

static void live_rule(struct life *l)
{
    static const struct variable w = {"w", 3, 1};
    cluster_open(&l->c, 1, 1, MEMORY, &w, 1);
    l->c.declare.update = ASYNC;
    l->c.declare.rule = (char *)of_rule;
    open_job(l);
    take(l, 0, M(PULL), 0, PARTS({0, 0, 3}));
    push_as(l, 0, 0, now, 1, PARTS({0, 0, 3}));
    push_as(l, 0, 0, now, 1, PARTS({0, 1, 1}));
}

// ---- sweeps -------------------------------------------------------------------------------------------------------

struct end {
    uint64_t allocations, values;
};

static struct end live(void (*script)(struct life *), uint64_t nth, uint64_t k)
{
    struct life l = {0};
    struct end end;
    nomem_mark();
    nomem_fail(nth, k);
    script(&l);
    pass(&l, 2000);
    end.allocations = nomem_count();
    end.values = ps_hash(digest_values(&l.c), &l.given, sizeof l.given);
    release_all(&l);
    nomem_window(true);
    cluster_close(&l.c);
    nomem_window(false);
    if (nomem_live(true))
        fail_msg("allocation %" PRIu64 " fails, and %" PRIu64 " after it: leaked", nth, k - 1);
    return end;
}

static void sweep(void (*script)(struct life *))
{
    const uint64_t *rows;
    const size_t n_rows = nomem_rows(&rows);
    struct end well = live(script, 0, 0);
    assert_true(well.allocations > 20);
    assert_true(live(script, 0, 0).values == well.values);
    for (size_t row = 0; row < n_rows; row++)
        for (uint64_t n = 0; n < well.allocations; n += nomem_stride())
            if (live(script, n, rows[row]).values != well.values)
                fail_msg("allocation %" PRIu64 " of %" PRIu64 " fails, and %" PRIu64
                         " after it: the job ends up otherwise",
                         n, well.allocations, rows[row] - 1);
}

#define SWEEP(name)                       \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        sweep(live_##name);               \
    }

SWEEP(async)
SWEEP(runs)
SWEEP(sync)
SWEEP(hyper)
SWEEP(collectives)
SWEEP(async_leases)
SWEEP(sync_leases)
SWEEP(ssp)

static void test_rules(void **state)
{
    static const char *const rules[] = {"assign_add", "sgd",          "momentum", "nesterov", "adagrad",
                                        "adadelta",   "rmsprop",      "adam",     "adamw",    "ftrl",
                                        "ema",        "adam_amsgrad", "nadam",    "adamax",   "lion"};
    (void)state;
    for (size_t i = 0; i < COUNT(rules); i++) {
        of_rule = rules[i];
        sweep(live_rule);
    }
}

// Both blocks of a partition are held by readers, and there is no memory for one of the copies: neither changes until
// there is memory for both.
static void test_round_waits(void **state)
{
    enum { ONE = PS_BLOCK_BYTES / sizeof(float) };
    static const struct variable w = {"w", ONE + 1, 1};
    const struct how first = {.round = 1};
    bool waited = false;
    (void)state;
    for (uint64_t n = 0; n == 0 || nomem_failed(); n++) {
        struct life l = {0};
        nomem_mark();
        nomem_fail(0, 0);
        cluster_open(&l.c, 1, 1, MEMORY, &w, 1);
        open_job(&l);
        take(&l, 0, M(PULL), 0, PARTS({0, 0, ONE + 1}));
        struct psd_partition *p = &l.c.task[0].core->table.newest->partitions[0];
        nomem_fail(n, 1);
        push_as(&l, 0, 0, first, 1, PARTS({0, 0, ONE + 1}));
        uint64_t closed = p->round->closed;
        waited |= closed == 0;
        for (uint32_t k = 0; k < 2; k++)
            assert_int_equal(p->blocks[k].version, closed);
        pass(&l, 100);
        for (uint32_t k = 0; k < 2; k++)
            assert_int_equal(p->blocks[k].version, 1);
        assert_int_equal(p->round->closed, 1);
        release_all(&l);
        cluster_close(&l.c);
        assert_int_equal(nomem_live(true), 0);
    }
    assert_true(waited);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_async),       cmocka_unit_test(test_runs),        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_hyper),       cmocka_unit_test(test_collectives), cmocka_unit_test(test_async_leases),
        cmocka_unit_test(test_sync_leases), cmocka_unit_test(test_ssp),         cmocka_unit_test(test_rules),
        cmocka_unit_test(test_round_waits),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
