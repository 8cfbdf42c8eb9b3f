// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/math/philox.h"
#include "tests/unit/fake_inside.h"

enum { TRAVEL = PS_MS };

struct event {
    uint64_t at, order;
    void (*fn)(void *);
    void *arg;
    struct call *call;  // NULL: a timer of the client
};

// ---- events -------------------------------------------------------------------------------------------------------

static uint64_t draw(struct fake *f)
{
    uint32_t w[4];
    ps_philox(f->seed, PS_RANDOM_DELAY, 0, f->in->draws++, w);
    return (uint64_t)w[0] << 32 | w[1];
}

static void add_event(struct fake *f, uint64_t at, void (*fn)(void *), void *arg, struct call *call)
{
    struct fake_inside *in = f->in;
    pthread_mutex_lock(&in->lock);
    if (in->n == in->cap) {
        in->cap = in->cap ? 2 * in->cap : 64;
        in->events = ps_realloc(in->events, in->cap * sizeof *in->events);
    }
    in->events[in->n++] = (struct event){at, in->orders++, fn, arg, call};
    pthread_mutex_unlock(&in->lock);
}

static bool take_event(struct fake *f, uint64_t until, struct event *e)
{
    struct fake_inside *in = f->in;
    size_t first = 0;
    pthread_mutex_lock(&in->lock);
    for (size_t i = 1; i < in->n; i++) {
        const struct event *a = &in->events[i], *b = &in->events[first];
        if (a->at < b->at || (a->at == b->at && a->order < b->order))
            first = i;
    }
    bool found = in->n && in->events[first].at <= until;
    if (found) {
        *e = in->events[first];
        in->events[first] = in->events[--in->n];
    }
    pthread_mutex_unlock(&in->lock);
    return found;
}

bool fake_run(struct fake *f, atomic_int *done, double seconds)
{
    uint64_t until = f->now + (uint64_t)(seconds * 1e9);
    struct event e;
    bool happened = true;
    while (happened && !atomic_load(done)) {
        pthread_mutex_lock(&f->in->happening);
        happened = take_event(f, until, &e);
        if (happened) {
            f->now = e.at > f->now ? e.at : f->now;
            e.fn(e.arg);
        }
        pthread_mutex_unlock(&f->in->happening);
    }
    return atomic_load(done);
}

void fake_idle(struct fake *f, double seconds)
{
    atomic_int never = 0;
    uint64_t until = f->now + (uint64_t)(seconds * 1e9);
    fake_run(f, &never, seconds);
    f->now = until;
}

// ---- answers ------------------------------------------------------------------------------------------------------

static void deliver_reply(void *arg)
{
    struct call *c = arg;
    bool lost = c->cut || (!c->f->unary && c->serial != c->f->in->tasks[c->task].serial);
    if (lost && c->code == PS_OK) {
        c->code = PS_UNAVAILABLE;
        c->text = "connection lost";
        ps_slices_clear(&c->body);
    }
    c->reply(c->arg, c->code, c->text, &c->body);
    ps_slices_clear(&c->body);
    ps_slices_clear(&c->request);
    free(c);
}

static void answer_at(struct call *c, uint64_t at, enum ps_code code, const char *text)
{
    c->code = code;
    c->text = text;
    add_event(c->f, at, deliver_reply, c, c);
}

void fake_answer(struct call *c, enum ps_code code, const char *text)
{
    bool read = c->method == PARAMSERVER__V1__METHOD__GET || c->method == PARAMSERVER__V1__METHOD__PULL;
    uint64_t extra = c->f->shuffle ? draw(c->f) % (200 * TRAVEL) : read ? c->f->read_ns : 0;
    answer_at(c, c->f->now + TRAVEL + extra, code, text);
}

void fake_answer_with(struct call *c, const ProtobufCMessage *m, struct ps_slices *payload)
{
    ps_msg_pack(m, payload, &c->body);
    fake_answer(c, PS_OK, "");
}

// Looks for parked calls whose time is over.
static void look_at_parked(void *arg)
{
    struct fake *f = arg;
    struct call *c, *next;
    for (c = TAILQ_FIRST(&f->in->parked); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->deadline > f->now)
            continue;
        TAILQ_REMOVE(&f->in->parked, c, link);
        fake_answer(c, PS_DEADLINE_EXCEEDED, "still waiting");
    }
}

void fake_park(struct call *c)
{
    TAILQ_INSERT_TAIL(&c->f->in->parked, c, link);
    add_event(c->f, c->deadline, look_at_parked, c->f, NULL);
}

void fake_note(struct call *c, const Paramserver__V1__Caller *caller, Paramserver__V1__Tensor **tensors, size_t n,
               struct fake_arrival a)
{
    a.task = c->task;
    a.method = c->method;
    a.priority = c->priority;
    a.sequence = caller->sequence;
    a.oldest = caller->oldest;
    a.tensors = n;
    a.first = n ? tensors[0]->first : 0;
    a.count = n ? tensors[0]->count : 0;
    a.version = n ? tensors[0]->version : 0;
    if (c->f->n_arrivals < FAKE_ARRIVALS)
        c->f->arrivals[c->f->n_arrivals++] = a;
}

// ---- the other calls ----------------------------------------------------------------------------------------------

enum { RESUMED_ROUND = 41 };  // Join's, which Declare has to say

static void declare(struct call *c, const Paramserver__V1__DeclareRequest *r)
{
    Paramserver__V1__DeclareReply out = PARAMSERVER__V1__DECLARE_REPLY__INIT;
    if (r->resumed_round != RESUMED_ROUND) {
        fake_answer(c, PS_INVALID_ARGUMENT, "this is not the round that Join has said");
        return;
    }
    fake_make_variables(c->f, c->task, r);
    if (c->task == 0 && !c->f->in->declared) {
        size_t len = paramserver__v1__declare_request__get_packed_size(r);
        uint8_t *bytes = ps_alloc(len);
        paramserver__v1__declare_request__pack(r, bytes);
        c->f->in->declared = paramserver__v1__declare_request__unpack(NULL, len, bytes);
        free(bytes);
    }
    out.generation = c->f->generation[c->task];
    out.resumptions = c->task == 0 ? c->f->resumptions : 99;
    fake_answer_with(c, &out.base, NULL);
}

static void describe(struct call *c)
{
    Paramserver__V1__DescribeReply out = PARAMSERVER__V1__DESCRIBE_REPLY__INIT;
    const Paramserver__V1__DeclareRequest *d = c->f->in->declared;
    if (!d) {
        fake_park(c);
        return;
    }
    out.generation = c->f->generation[0];
    out.resumptions = c->f->resumptions;
    out.update = d->update;
    out.tasks = d->tasks;
    out.n_variables = d->n_variables;
    out.variables = d->variables;
    out.n_partitions = d->n_partitions;
    out.partitions = d->partitions;
    out.block_bytes = PS_BLOCK_BYTES;
    out.schedule = d->schedule;
    fake_answer_with(c, &out.base, NULL);
}

static void status(struct call *c)
{
    Paramserver__V1__StatusReply out = PARAMSERVER__V1__STATUS_REPLY__INIT;
    out.generation = c->f->generation[c->task];
    out.task = c->f->answers_to_wrong_task ? 0 : c->task;
    out.newest = c->f->newest[c->task];
    fake_answer_with(c, &out.base, NULL);
}

struct members {
    Paramserver__V1__Member of[2], *pointers[2];
};

static uint64_t epoch_of(const struct fake *f)
{
    return f->left ? 2 : 1;
}

static void list_members(const struct fake *f, struct members *m)
{
    for (uint32_t i = 0; i < 2; i++) {
        paramserver__v1__member__init(&m->of[i]);
        m->of[i].rank = i;
        m->pointers[i] = &m->of[i];
    }
    m->of[0].state = f->left ? PARAMSERVER__V1__MEMBER_STATE__LEFT : PARAMSERVER__V1__MEMBER_STATE__LIVE;
    m->of[1].state = f->left ? PARAMSERVER__V1__MEMBER_STATE__LIVE : PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
}

static void join(struct call *c, const Paramserver__V1__JoinRequest *r)
{
    Paramserver__V1__JoinReply out = PARAMSERVER__V1__JOIN_REPLY__INIT;
    struct members m;
    if (r->caller->generation && r->caller->generation != c->f->generation[0]) {
        fake_answer(c, PS_ABORTED, "ps task 0 has restarted and lost what it had of job 'test'");
        return;
    }
    list_members(c->f, &m);
    c->f->joined_after = r->newest;
    out.generation = c->f->generation[0];
    out.run = 7;
    out.incarnation = 8;
    out.epoch = epoch_of(c->f);
    out.heartbeat_ms = 500;
    out.dead_after_ms = c->f->dead_after_ms ? c->f->dead_after_ms : 3000;
    out.n_members = 2;
    out.members = m.pointers;
    out.live = 1;
    out.chief = c->f->left ? 1 : 0;
    out.late = c->f->late;
    out.arrival = c->f->late ? out.epoch : 0;
    out.data_epoch = c->f->data_epoch;
    out.on_existing = r->on_existing;
    out.resumed_round = RESUMED_ROUND;
    c->f->staleness = r->staleness;
    c->f->join_within_ms = r->join_within_ms;
    snprintf(c->f->configuration, sizeof c->f->configuration, "%s", r->configuration);
    fake_answer_with(c, &out.base, NULL);
}

static void heartbeat(struct call *c, const Paramserver__V1__HeartbeatRequest *r)
{
    Paramserver__V1__HeartbeatReply out = PARAMSERVER__V1__HEARTBEAT_REPLY__INIT;
    struct members m;
    list_members(c->f, &m);
    c->f->heartbeats++;
    c->f->step = r->step;
    if (r->progress)
        ps_progress_read(&c->f->progress, r->progress);
    c->f->checkpoint = r->checkpoint;
    c->f->checkpoint_failed = r->checkpoint_failed;
    snprintf(c->f->checkpoint_text, sizeof c->f->checkpoint_text, "%s", r->checkpoint_text);
    c->f->waits = r->waits;
    out.generation = c->f->generation[0];
    out.epoch = epoch_of(c->f);
    out.n_members = out.epoch == r->epoch ? 0 : 2;
    out.members = m.pointers;
    out.live = 1;
    out.chief = c->f->left ? 1 : 0;
    out.chief_silent_ms = c->f->chief_silent_ms;
    out.chief_is_heir = c->f->heir;
    out.furthest = c->f->furthest;
    out.drain = c->f->drain;
    if (c->f->end_job)
        fake_answer(c, PS_ABORTED, "worker 1 is dead, and 1 of at least 2 remain");
    else
        fake_answer_with(c, &out.base, NULL);
}

static void barrier(struct call *c)
{
    Paramserver__V1__BarrierReply out = PARAMSERVER__V1__BARRIER_REPLY__INIT;
    if (!c->f->barrier_open) {
        fake_park(c);
        return;
    }
    out.generation = c->f->generation[0];
    out.epoch = epoch_of(c->f);
    fake_answer_with(c, &out.base, NULL);
}

static void lease(struct call *c, const Paramserver__V1__LeaseRequest *r)
{
    Paramserver__V1__LeaseReply out = PARAMSERVER__V1__LEASE_REPLY__INIT;
    out.generation = c->f->generation[0];
    out.first = r->epoch * 1000 % r->examples;
    out.count = r->want;
    out.stride = 2 * r->want;
    out.end = r->examples;
    out.steps = 3;
    out.round = r->round;
    out.epoch = c->f->lease_epoch;
    if (c->f->share) {
        out.first = c->f->share[0];
        out.count = c->f->share[1];
        out.stride = c->f->share[2];
        out.end = c->f->share[3];
        out.steps = c->f->share[4];
    }
    fake_answer_with(c, &out.base, NULL);
}

static void leave(struct call *c, const Paramserver__V1__LeaveRequest *r)
{
    Paramserver__V1__LeaveReply out = PARAMSERVER__V1__LEAVE_REPLY__INIT;
    c->f->leaves++;
    snprintf(c->f->reason, sizeof c->f->reason, "%s", r->reason);
    fake_answer_with(c, &out.base, NULL);
}

static void clock_(struct call *c, const Paramserver__V1__ClockRequest *r)
{
    Paramserver__V1__ClockReply out = PARAMSERVER__V1__CLOCK_REPLY__INIT;
    if (r->wait && r->step > c->f->slowest + c->f->staleness) {
        fake_park(c);
        return;
    }
    out.generation = c->f->generation[0];
    out.clock = r->step;
    out.slowest = c->f->slowest;
    fake_answer_with(c, &out.base, NULL);
}

static void set_hyper(struct call *c, const Paramserver__V1__SetHyperRequest *r)
{
    Paramserver__V1__SetHyperReply out = PARAMSERVER__V1__SET_HYPER_REPLY__INIT;
    out.generation = c->f->generation[0];
    out.round = r->round ? r->round : 7;
    if (strcmp(r->name, "learning_rate") == 0 && r->value == 0.5)
        fake_answer_with(c, &out.base, NULL);
    else
        fake_answer(c, PS_INVALID_ARGUMENT, "the rule has no such hyperparameter");
}

static void load_shard(struct call *c, const Paramserver__V1__LoadShardRequest *r)
{
    Paramserver__V1__LoadShardReply out = PARAMSERVER__V1__LOAD_SHARD_REPLY__INIT;
    fake_note(c, r->caller, NULL, 0, (struct fake_arrival){0});
    out.generation = c->f->generation[c->task];
    out.elements = 1;
    fake_answer_with(c, &out.base, NULL);
}

// ---- reduce -------------------------------------------------------------------------------------------------------

enum { RANKS = 8 };

struct brought {
    struct call *call;
    Paramserver__V1__ReduceRequest *request;
    struct ps_slices payload;
};

static void combine(const Paramserver__V1__ReduceRequest *r, uint8_t *sum, const uint8_t *more)
{
    for (uint64_t i = 0; i < r->count; i++)
        if (r->dtype == PARAMSERVER__V1__DTYPE__FLOAT64)
            ((double *)sum)[i] += ((const double *)more)[i];
        else if (r->op == PARAMSERVER__V1__REDUCE_OP__MAX)
            ((int32_t *)sum)[i] =
                ((int32_t *)sum)[i] > ((const int32_t *)more)[i] ? ((int32_t *)sum)[i] : ((const int32_t *)more)[i];
        else
            ((int32_t *)sum)[i] += ((const int32_t *)more)[i];
}

static void add_brought(struct ps_slices *out, const struct brought *b)
{
    const Paramserver__V1__ReduceRequest *r = b->request;
    uint8_t *bytes = ps_alloc(b->payload.len + 1);
    ps_slices_copy_out(&b->payload, 0, b->payload.len, bytes);
    if (r->op == PARAMSERVER__V1__REDUCE_OP__GATHER || out->len == 0)
        ps_slices_add(out, ps_slice_copy(bytes, b->payload.len));
    else if (r->op != PARAMSERVER__V1__REDUCE_OP__BROADCAST)
        combine(r, (uint8_t *)out->v[0].data, bytes);
    free(bytes);
}

static struct met *find_met(struct fake *f, const Paramserver__V1__Caller *caller)
{
    for (size_t i = 0; i < f->in->n_met; i++)
        if (f->in->met[i].worker == caller->worker && f->in->met[i].sequence == caller->sequence)
            return &f->in->met[i];
    return NULL;
}

// All have come: each gets the same answer, which is kept.
static void answer_collective(struct fake *f, const struct brought *all)
{
    Paramserver__V1__ReduceReply out = PARAMSERVER__V1__REDUCE_REPLY__INIT;
    uint32_t ranks[RANKS];
    uint64_t counts[RANKS];
    struct ps_slices payload = PS_SLICES_EMPTY;
    out.generation = f->generation[0];
    out.ranks = ranks;
    out.counts = counts;
    for (uint32_t r = 0; r < RANKS; r++) {
        if (!all[r].call)
            continue;
        add_brought(&payload, &all[r]);
        ranks[out.n_ranks++] = r;
        if (all[r].request->op == PARAMSERVER__V1__REDUCE_OP__GATHER)
            counts[out.n_counts++] = all[r].request->count;
    }
    f->met++;
    for (uint32_t r = 0; r < RANKS; r++) {
        if (!all[r].call)
            continue;
        struct ps_slices copy = PS_SLICES_EMPTY;
        struct met *m = &f->in->met[f->in->n_met++ % FAKE_MET];
        ps_slices_add_range(&copy, &payload, 0, payload.len);
        *m = (struct met){r + 1, all[r].request->caller->sequence, PS_SLICES_EMPTY};
        ps_msg_pack(&out.base, &copy, &m->reply);
        ps_slices_add_range(&all[r].call->body, &m->reply, 0, m->reply.len);
        fake_answer(all[r].call, PS_OK, "");
    }
    ps_slices_clear(&payload);
}

// The calls of this name that are parked, by rank.
static size_t collect(struct fake *f, const char *name, struct brought *all)
{
    size_t n = 0;
    struct call *c;
    TAILQ_FOREACH(c, &f->in->parked, link)
    {
        struct ps_slices payload = PS_SLICES_EMPTY;
        ProtobufCMessage *m;
        if (c->method != PARAMSERVER__V1__METHOD__REDUCE ||
            ps_msg_unpack(&paramserver__v1__reduce_request__descriptor, &c->request, &m, &payload, NULL) != PS_OK)
            continue;
        Paramserver__V1__ReduceRequest *r = (Paramserver__V1__ReduceRequest *)m;
        if (strcmp(r->name, name) == 0 && !all[r->caller->worker - 1].call) {
            all[r->caller->worker - 1] = (struct brought){c, r, payload};
            n++;
        } else {
            ps_slices_clear(&payload);
            ps_msg_free(m);
        }
    }
    return n;
}

static void reduce(struct call *c, const Paramserver__V1__ReduceRequest *r)
{
    struct brought all[RANKS] = {0};
    const struct met *before = find_met(c->f, r->caller);
    snprintf(c->f->last_name, sizeof c->f->last_name, "%s", r->name);
    if (before) {
        ps_slices_add_range(&c->body, &before->reply, 0, before->reply.len);
        fake_answer(c, PS_OK, "");
        return;
    }
    fake_park(c);
    bool complete = collect(c->f, r->name, all) == c->f->collective_size;
    for (uint32_t i = 0; complete && i < RANKS; i++)
        if (all[i].call)
            TAILQ_REMOVE(&c->f->in->parked, all[i].call, link);
    if (complete)
        answer_collective(c->f, all);
    for (uint32_t i = 0; i < RANKS; i++)
        if (all[i].call) {
            ps_slices_clear(&all[i].payload);
            ps_msg_free(&all[i].request->base);
        }
}

// ---- serving ------------------------------------------------------------------------------------------------------

static const ProtobufCMessageDescriptor *const request_types[] = {
    [PARAMSERVER__V1__METHOD__JOIN] = &paramserver__v1__join_request__descriptor,
    [PARAMSERVER__V1__METHOD__HEARTBEAT] = &paramserver__v1__heartbeat_request__descriptor,
    [PARAMSERVER__V1__METHOD__LEAVE] = &paramserver__v1__leave_request__descriptor,
    [PARAMSERVER__V1__METHOD__BARRIER] = &paramserver__v1__barrier_request__descriptor,
    [PARAMSERVER__V1__METHOD__LEASE] = &paramserver__v1__lease_request__descriptor,
    [PARAMSERVER__V1__METHOD__DECLARE] = &paramserver__v1__declare_request__descriptor,
    [PARAMSERVER__V1__METHOD__DESCRIBE] = &paramserver__v1__describe_request__descriptor,
    [PARAMSERVER__V1__METHOD__PUT] = &paramserver__v1__update_request__descriptor,
    [PARAMSERVER__V1__METHOD__ASSIGN_ADD] = &paramserver__v1__update_request__descriptor,
    [PARAMSERVER__V1__METHOD__PUSH] = &paramserver__v1__update_request__descriptor,
    [PARAMSERVER__V1__METHOD__GET] = &paramserver__v1__read_request__descriptor,
    [PARAMSERVER__V1__METHOD__PULL] = &paramserver__v1__read_request__descriptor,
    [PARAMSERVER__V1__METHOD__STATUS] = &paramserver__v1__status_request__descriptor,
    [PARAMSERVER__V1__METHOD__ASSIGN_SUB] = &paramserver__v1__update_request__descriptor,
    [PARAMSERVER__V1__METHOD__PUSH_PULL] = &paramserver__v1__update_request__descriptor,
    [PARAMSERVER__V1__METHOD__REDUCE] = &paramserver__v1__reduce_request__descriptor,
    [PARAMSERVER__V1__METHOD__CLOCK] = &paramserver__v1__clock_request__descriptor,
    [PARAMSERVER__V1__METHOD__SET_HYPER] = &paramserver__v1__set_hyper_request__descriptor,
    [PARAMSERVER__V1__METHOD__LOAD_SHARD] = &paramserver__v1__load_shard_request__descriptor,
};

static void serve(struct call *c, const ProtobufCMessage *m, const struct ps_slices *payload)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)m;
    switch (c->method) {
    case PARAMSERVER__V1__METHOD__STATUS:
        status(c);
        break;
    case PARAMSERVER__V1__METHOD__JOIN:
        join(c, (const Paramserver__V1__JoinRequest *)m);
        break;
    case PARAMSERVER__V1__METHOD__HEARTBEAT:
        heartbeat(c, (const Paramserver__V1__HeartbeatRequest *)m);
        break;
    case PARAMSERVER__V1__METHOD__LEAVE:
        leave(c, (const Paramserver__V1__LeaveRequest *)m);
        break;
    case PARAMSERVER__V1__METHOD__BARRIER:
        barrier(c);
        break;
    case PARAMSERVER__V1__METHOD__LEASE:
        lease(c, (const Paramserver__V1__LeaseRequest *)m);
        break;
    case PARAMSERVER__V1__METHOD__DECLARE:
        declare(c, (const Paramserver__V1__DeclareRequest *)m);
        break;
    case PARAMSERVER__V1__METHOD__DESCRIBE:
        describe(c);
        break;
    case PARAMSERVER__V1__METHOD__GET:
    case PARAMSERVER__V1__METHOD__PULL:
        if (r->round > c->f->round)
            fake_park(c);
        else
            fake_read(c, r);
        break;
    case PARAMSERVER__V1__METHOD__CLOCK:
        clock_(c, (const Paramserver__V1__ClockRequest *)m);
        break;
    case PARAMSERVER__V1__METHOD__REDUCE:
        reduce(c, (const Paramserver__V1__ReduceRequest *)m);
        break;
    case PARAMSERVER__V1__METHOD__SET_HYPER:
        set_hyper(c, (const Paramserver__V1__SetHyperRequest *)m);
        break;
    case PARAMSERVER__V1__METHOD__LOAD_SHARD:
        load_shard(c, (const Paramserver__V1__LoadShardRequest *)m);
        break;
    default:
        fake_update(c, (const Paramserver__V1__UpdateRequest *)m, payload);
    }
}

static void aside(struct fake *f, bool on)
{
    if (f->aside)
        f->aside(on);
}

static void execute(struct call *c)
{
    struct fake *f = c->f;
    ProtobufCMessage *m;
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct ps_error e;
    aside(f, true);
    if (ps_msg_unpack(request_types[c->method], &c->request, &m, &payload, &e) == PS_OK) {
        serve(c, m, &payload);
        ps_slices_clear(&payload);
        ps_msg_free(m);
    } else {
        fake_answer(c, PS_INVALID_ARGUMENT, "not a request");
    }
    aside(f, false);
}

const void *fake_declared(struct fake *f)
{
    return f->in->declared;
}

void fake_wake(struct fake *f)
{
    TAILQ_HEAD(, call) woken = TAILQ_HEAD_INITIALIZER(woken);
    struct call *c;
    TAILQ_CONCAT(&woken, &f->in->parked, link);
    while ((c = TAILQ_FIRST(&woken))) {
        TAILQ_REMOVE(&woken, c, link);
        execute(c);
    }
}

// ---- the network --------------------------------------------------------------------------------------------------

static void cut(struct call *c, bool executes, const char *why)
{
    struct fake *f = c->f;
    struct call *p, *next;
    c->cut = true;
    if (executes)
        execute(c);
    else
        fake_answer(c, PS_UNAVAILABLE, why);
    if (f->unary)
        return;
    f->in->tasks[c->task].serial++;
    for (p = TAILQ_FIRST(&f->in->parked); p; p = next) {
        next = TAILQ_NEXT(p, link);
        if (p->task != c->task)
            continue;
        TAILQ_REMOVE(&f->in->parked, p, link);
        fake_answer(p, PS_UNAVAILABLE, "connection lost");
    }
}

static void arrive(void *arg)
{
    struct call *c = arg;
    struct fake *f = c->f;
    if (!f->unary && c->serial != f->in->tasks[c->task].serial) {
        fake_answer(c, PS_UNAVAILABLE, "connection lost");
        return;
    }
    enum fake_fate fate = f->fate ? f->fate(f, c->task, c->method, f->arrived) : FAKE_DELIVER;
    if (f->silent && c->method == PARAMSERVER__V1__METHOD__HEARTBEAT)
        fate = FAKE_LOSE;
    f->arrived++;
    switch (fate) {
    case FAKE_DELIVER:
        execute(c);
        break;
    case FAKE_CUT_BEFORE:
    case FAKE_CUT_AFTER:
        cut(c, fate == FAKE_CUT_AFTER, "connection lost");
        break;
    case FAKE_GONE:
        cut(c, false, "failed to connect: " PSC_NOBODY_LISTENS);
        break;
    case FAKE_REFUSE:
        fake_answer(c, PS_RESOURCE_EXHAUSTED, "no memory");
        break;
    case FAKE_ABORT:
        fake_answer(c, PS_ABORTED, "the job has ended");
        break;
    case FAKE_NO_JOB:
        fake_answer(c, PS_NOT_FOUND, "ps task has no job 'test'");
        break;
    case FAKE_UNKNOWN:
        fake_answer(c, PS_UNAUTHENTICATED, "the munge credential has expired");
        break;
    case FAKE_GARBAGE:
        ps_slices_add(&c->body, ps_slice_copy("\xff\xff\xff\x7f", 4));
        fake_answer(c, PS_OK, "");
        break;
    case FAKE_LOSE:
        answer_at(c, c->deadline, PS_DEADLINE_EXCEEDED, "no answer");
        break;
    }
}

static void world_call(void *ctx, uint32_t task, int method, uint32_t priority, uint64_t deadline,
                       struct ps_slices *request, psc_reply_fn reply, void *arg)
{
    struct fake *f = ctx;
    struct call *c = ps_alloc(sizeof *c);
    uint8_t *bytes;
    aside(f, true);
    struct ps_slice copy = ps_slice_new(request->len, &bytes);
    ps_slices_copy_out(request, 0, request->len, bytes);
    *c = (struct call){.f = f, .task = task, .method = method, .priority = priority, .reply = reply, .arg = arg};
    ps_slices_add(&c->request, copy);
    aside(f, false);
    if (f->hold_memory && method == PARAMSERVER__V1__METHOD__PUSH)
        ps_slices_move(&f->in->held, request);
    ps_slices_clear(request);
    c->serial = f->in->tasks[task].serial;
    c->deadline = deadline;
    if (method == f->watched)
        f->deadline = deadline;
    add_event(f, f->now + TRAVEL + (f->unary ? draw(f) % (20 * TRAVEL) : 0), arrive, c, c);
}

void fake_release_memory(struct fake *f)
{
    struct ps_slices held = PS_SLICES_EMPTY;
    ps_slices_move(&held, &f->in->held);
    ps_slices_clear(&held);
}

// ---- the world ----------------------------------------------------------------------------------------------------

static uint64_t world_now(void *ctx)
{
    return ((struct fake *)ctx)->now;
}

static void world_after(void *ctx, uint64_t delay, void (*fn)(void *), void *arg)
{
    struct fake *f = ctx;
    if (f->worlds == 0)
        abort();
    add_event(f, f->now + delay, fn, arg, NULL);
}

static uint64_t world_random(void *ctx)
{
    return draw(ctx);
}

static void world_cut(void *ctx)
{
    ((struct fake *)ctx)->cuts++;
}

static void world_shutdown(void *ctx)
{
    struct fake *f = ctx;
    struct event e;
    struct call *c;
    pthread_mutex_lock(&f->in->happening);
    while ((c = TAILQ_FIRST(&f->in->parked))) {
        TAILQ_REMOVE(&f->in->parked, c, link);
        fake_answer(c, PS_CANCELLED, "shut down");
    }
    while (take_event(f, UINT64_MAX, &e))
        if (e.call) {
            e.call->code = PS_CANCELLED;
            deliver_reply(e.call);
        }
    pthread_mutex_unlock(&f->in->happening);
    if (!f->keeps_memory)
        fake_release_memory(f);
}

static void world_destroy(void *ctx)
{
    ((struct fake *)ctx)->worlds--;
}

struct psc_world fake_world(struct fake *f)
{
    if (!f->in) {
        f->in = ps_alloc(sizeof *f->in);
        pthread_mutex_init(&f->in->lock, NULL);
        pthread_mutex_init(&f->in->happening, NULL);
        TAILQ_INIT(&f->in->parked);
        f->now = PS_SECOND;
        for (uint32_t t = 0; t < FAKE_TASKS; t++)
            f->generation[t] = 100 + t;
    }
    f->worlds++;
    return (struct psc_world){.ctx = f,
                              .call = world_call,
                              .cut = world_cut,
                              .now = world_now,
                              .after = world_after,
                              .random = world_random,
                              .shutdown = world_shutdown,
                              .destroy = world_destroy};
}

void fake_free(struct fake *f)
{
    if (!f->in)
        return;
    fake_free_variables(f);
    for (size_t i = 0; i < f->in->n_met && i < FAKE_MET; i++)
        ps_slices_clear(&f->in->met[i].reply);
    if (f->in->declared)
        paramserver__v1__declare_request__free_unpacked(f->in->declared, NULL);
    free(f->in->events);
    pthread_mutex_destroy(&f->in->happening);
    pthread_mutex_destroy(&f->in->lock);
    free(f->in);
}
