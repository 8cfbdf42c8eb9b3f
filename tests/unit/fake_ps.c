// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_ps.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/philox.h"
#include "common/wire.h"
#include "proto/paramserver.pb-c.h"

enum { BLOCK = PS_BLOCK_BYTES / sizeof(float), BLOCKS = 16, SEQUENCES = 2048, TRAVEL = PS_MS };

struct call {
    TAILQ_ENTRY(call) link;  // while parked
    struct fake *f;
    uint32_t task;
    int method;
    uint64_t serial, deadline;  // of the connection; on the fake's clock
    bool cut;                   // its answer is lost
    struct ps_rope request, body;
    enum ps_code code;
    const char *text;
    psc_reply_fn reply;
    void *arg;
};

struct event {
    uint64_t at, order;
    void (*fn)(void *);
    void *arg;
    struct call *call;  // NULL: a timer of the client
};

struct variable {
    char *name;
    uint64_t count;
    float *values;
    struct part {
        uint64_t first, count;
        uint32_t task, block;  // its first
    } parts[BLOCKS];
    size_t n_parts;
    uint64_t version[BLOCKS];
    bool seen[BLOCKS][SEQUENCES];
};

struct task {
    struct variable variables[FAKE_VARIABLES];
    size_t n;
    uint64_t serial;  // of the connection
    uint64_t oldest;  // sequences below it are forgotten, and counted as seen
};

struct fake_inside {
    pthread_mutex_t lock;  // of the events: calls come from any thread
    pthread_mutex_t turn;  // held while an event happens
    struct event *events;
    size_t n, cap;
    uint64_t orders, draws;
    TAILQ_HEAD(, call) parked;
    struct ps_rope held;
    struct task tasks[FAKE_TASKS];
    Paramserver__V1__DeclareRequest *declared;
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
        pthread_mutex_lock(&f->in->turn);
        happened = take_event(f, until, &e);
        if (happened) {
            f->now = e.at > f->now ? e.at : f->now;
            e.fn(e.arg);
        }
        pthread_mutex_unlock(&f->in->turn);
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

static void tell(void *arg)
{
    struct call *c = arg;
    bool lost = c->cut || (!c->f->unary && c->serial != c->f->in->tasks[c->task].serial);
    if (lost && c->code == PS_OK) {
        c->code = PS_UNAVAILABLE;
        c->text = "connection lost";
        ps_rope_clear(&c->body);
    }
    c->reply(c->arg, c->code, c->text, &c->body);
    ps_rope_clear(&c->body);
    ps_rope_clear(&c->request);
    free(c);
}

static void answer_at(struct call *c, uint64_t at, enum ps_code code, const char *text)
{
    c->code = code;
    c->text = text;
    add_event(c->f, at, tell, c, c);
}

static void answer(struct call *c, enum ps_code code, const char *text)
{
    uint64_t extra = c->f->shuffle ? draw(c->f) % (200 * TRAVEL) : 0;
    answer_at(c, c->f->now + TRAVEL + extra, code, text);
}

static void answer_with(struct call *c, const ProtobufCMessage *m, struct ps_rope *payload)
{
    ps_msg_pack(m, payload, &c->body);
    answer(c, PS_OK, "");
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
        answer(c, PS_DEADLINE_EXCEEDED, "still waiting");
    }
}

static void park(struct call *c)
{
    TAILQ_INSERT_TAIL(&c->f->in->parked, c, link);
    add_event(c->f, c->deadline, look_at_parked, c->f, NULL);
}

// ---- tensors ------------------------------------------------------------------------------------------------------

static struct variable *find(struct fake *f, uint32_t task, const char *name)
{
    struct task *t = &f->in->tasks[task];
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->variables[i].name, name) == 0)
            return &t->variables[i];
    return NULL;
}

static const struct part *part_of(const struct variable *v, uint64_t element)
{
    size_t i = 0;
    while (element >= v->parts[i].first + v->parts[i].count)
        i++;
    return &v->parts[i];
}

// The block of an element, and where it ends; `end` at the latest.
static uint32_t block_of(const struct variable *v, uint64_t element, uint64_t end, uint64_t *block_end)
{
    const struct part *p = part_of(v, element);
    uint64_t i = (element - p->first) / BLOCK;
    *block_end = (i + 1) * BLOCK < p->count ? p->first + (i + 1) * BLOCK : p->first + p->count;
    if (end < *block_end)
        *block_end = end;
    return p->block + (uint32_t)i;
}

uint32_t fake_owner(struct fake *f, const char *variable, uint64_t element)
{
    return part_of(find(f, 0, variable), element)->task;
}

float fake_value(struct fake *f, const char *variable, uint64_t element)
{
    return find(f, fake_owner(f, variable, element), variable)->values[element];
}

static void update_block(struct variable *v, const struct call *c, uint32_t b, uint64_t first, uint64_t end,
                         const float *from)
{
    for (uint64_t i = first; i < end; i++)
        v->values[i] = c->method == PARAMSERVER__V1__METHOD__PUT ? from[i - first] : v->values[i] + from[i - first];
    v->version[b]++;
}

static void update_tensor(struct call *c, const Paramserver__V1__UpdateRequest *r, const Paramserver__V1__Tensor *t,
                          const float *from, Paramserver__V1__TensorResult *out)
{
    struct variable *v = find(c->f, c->task, t->variable);
    uint64_t end = t->first + t->count, next;
    out->version = UINT64_MAX;
    for (uint64_t i = t->first; i < end; i = next) {
        uint32_t b = block_of(v, i, end, &next);
        out->blocks++;
        bool seen = r->caller->sequence < c->f->in->tasks[c->task].oldest || v->seen[b][r->caller->sequence];
        out->duplicates += seen;
        if (!seen)
            update_block(v, c, b, i, next, from + (i - t->first));
        v->seen[b][r->caller->sequence] = true;
        if (v->version[b] < out->version)
            out->version = v->version[b];
    }
    out->outcome =
        out->duplicates == out->blocks ? PARAMSERVER__V1__OUTCOME__DUPLICATE : PARAMSERVER__V1__OUTCOME__APPLIED;
    out->staleness = out->version - 1 - t->version;
}

static void note(struct call *c, const Paramserver__V1__Caller *caller, Paramserver__V1__Tensor **tensors, size_t n,
                 struct fake_arrival a)
{
    a.task = c->task;
    a.method = c->method;
    a.sequence = caller->sequence;
    a.oldest = caller->oldest;
    a.tensors = n;
    a.first = n ? tensors[0]->first : 0;
    a.version = n ? tensors[0]->version : 0;
    if (c->f->n_arrivals < FAKE_ARRIVALS)
        c->f->arrivals[c->f->n_arrivals++] = a;
}

static void update(struct call *c, const Paramserver__V1__UpdateRequest *r, const struct ps_rope *payload)
{
    Paramserver__V1__UpdateReply out = PARAMSERVER__V1__UPDATE_REPLY__INIT;
    Paramserver__V1__TensorResult results[FAKE_VARIABLES], *pointers[FAKE_VARIABLES];
    struct task *t = &c->f->in->tasks[c->task];
    float *from = ps_alloc(payload->len);
    size_t at = 0;
    t->oldest = r->caller->oldest > t->oldest ? r->caller->oldest : t->oldest;
    ps_rope_copy_out(payload, 0, payload->len, from);
    out.generation = c->f->generation[c->task];
    out.n_results = r->n_tensors;
    out.results = pointers;
    bool duplicate = true;
    for (size_t i = 0; i < r->n_tensors; i++) {
        paramserver__v1__tensor_result__init(pointers[i] = &results[i]);
        update_tensor(c, r, r->tensors[i], from + at, &results[i]);
        at += r->tensors[i]->count;
        duplicate = duplicate && results[i].outcome == PARAMSERVER__V1__OUTCOME__DUPLICATE;
    }
    note(c, r->caller, r->tensors, r->n_tensors,
         (struct fake_arrival){.round = r->round, .bytes = payload->len, .duplicate = duplicate});
    free(from);
    answer_with(c, &out.base, NULL);
}

// As many whole blocks from `offset` on as fit.
static void read(struct call *c, const Paramserver__V1__ReadRequest *r)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    Paramserver__V1__Tensor tensors[64], *pointers[64];
    struct ps_rope payload = PS_ROPE_EMPTY;
    size_t limit = c->f->reply_bytes ? c->f->reply_bytes : SIZE_MAX;
    uint64_t at = 0;
    out.tensors = pointers;
    for (size_t i = 0; i < r->n_tensors; i++) {
        const Paramserver__V1__Tensor *t = r->tensors[i];
        struct variable *v = find(c->f, c->task, t->variable);
        uint64_t end = t->first + t->count, next;
        for (uint64_t k = t->first; k < end; k = next) {
            uint32_t b = block_of(v, k, end, &next);
            uint64_t bytes = (next - k) * sizeof(float);
            if (at >= r->offset && (payload.len + bytes <= limit || payload.len == 0) && !out.next_offset) {
                Paramserver__V1__Tensor *piece = pointers[out.n_tensors] = &tensors[out.n_tensors];
                out.n_tensors++;
                paramserver__v1__tensor__init(piece);
                piece->variable = v->name;
                piece->first = k;
                piece->count = next - k;
                piece->version = v->version[b];
                ps_rope_add(&payload, ps_slice_copy(v->values + k, bytes));
            } else if (at >= r->offset && !out.next_offset) {
                out.next_offset = at;
            }
            at += bytes;
        }
    }
    out.generation = c->f->generation[c->task];
    out.snapshot = out.next_offset ? 99 : 0;
    out.round = c->f->round;
    note(c, r->caller, r->tensors, r->n_tensors, (struct fake_arrival){.round = r->round, .snapshot = r->snapshot});
    answer_with(c, &out.base, &payload);
}

// ---- the other calls ----------------------------------------------------------------------------------------------

static void declare(struct call *c, const Paramserver__V1__DeclareRequest *r)
{
    Paramserver__V1__DeclareReply out = PARAMSERVER__V1__DECLARE_REPLY__INIT;
    struct task *t = &c->f->in->tasks[c->task];
    bool fresh = t->n == 0;
    for (size_t i = 0; i < r->n_variables && fresh; i++) {
        struct variable *v = &t->variables[t->n++];
        v->name = ps_strdup(r->variables[i]->name);
        v->count = 1;
        for (size_t k = 0; k < r->variables[i]->n_shape; k++)
            v->count *= r->variables[i]->shape[k];
        v->values = ps_alloc(v->count * sizeof(float));
    }
    for (size_t i = 0; i < r->n_partitions && fresh; i++) {
        const Paramserver__V1__Partition *p = r->partitions[i];
        struct variable *v = &t->variables[p->variable];
        const struct part *last = v->n_parts ? &v->parts[v->n_parts - 1] : NULL;
        uint32_t block = last ? last->block + (uint32_t)((last->count + BLOCK - 1) / BLOCK) : 0;
        v->parts[v->n_parts++] = (struct part){p->first, p->count, p->task, block};
    }
    if (c->task == 0 && !c->f->in->declared) {
        size_t len = paramserver__v1__declare_request__get_packed_size(r);
        uint8_t *bytes = ps_alloc(len);
        paramserver__v1__declare_request__pack(r, bytes);
        c->f->in->declared = paramserver__v1__declare_request__unpack(NULL, len, bytes);
        free(bytes);
    }
    out.generation = c->f->generation[c->task];
    answer_with(c, &out.base, NULL);
}

static void describe(struct call *c)
{
    Paramserver__V1__DescribeReply out = PARAMSERVER__V1__DESCRIBE_REPLY__INIT;
    const Paramserver__V1__DeclareRequest *d = c->f->in->declared;
    if (!d) {
        park(c);
        return;
    }
    out.generation = c->f->generation[0];
    out.update = d->update;
    out.tasks = d->tasks;
    out.n_variables = d->n_variables;
    out.variables = d->variables;
    out.n_partitions = d->n_partitions;
    out.partitions = d->partitions;
    out.block_bytes = PS_BLOCK_BYTES;
    answer_with(c, &out.base, NULL);
}

static void status(struct call *c)
{
    Paramserver__V1__StatusReply out = PARAMSERVER__V1__STATUS_REPLY__INIT;
    out.generation = c->f->generation[c->task];
    out.task = c->f->answers_to_wrong_task ? 0 : c->task;
    answer_with(c, &out.base, NULL);
}

static void join(struct call *c)
{
    Paramserver__V1__JoinReply out = PARAMSERVER__V1__JOIN_REPLY__INIT;
    Paramserver__V1__Member m[2] = {PARAMSERVER__V1__MEMBER__INIT, PARAMSERVER__V1__MEMBER__INIT};
    Paramserver__V1__Member *pointers[] = {&m[0], &m[1]};
    m[0].state = PARAMSERVER__V1__MEMBER_STATE__LIVE;
    m[1].state = PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
    m[1].rank = 1;
    out.generation = c->f->generation[0];
    out.run_id = (char *)"run-1";
    out.epoch = 1;
    out.heartbeat_ms = 500;
    out.dead_after_ms = 3000;
    out.n_members = 2;
    out.members = pointers;
    answer_with(c, &out.base, NULL);
}

static void heartbeat(struct call *c)
{
    Paramserver__V1__HeartbeatReply out = PARAMSERVER__V1__HEARTBEAT_REPLY__INIT;
    c->f->heartbeats++;
    out.generation = c->f->generation[0];
    out.epoch = 1;
    if (c->f->end_job)
        answer(c, PS_ABORTED, "worker 1 is dead, and 1 of at least 2 remain");
    else
        answer_with(c, &out.base, NULL);
}

static void barrier(struct call *c)
{
    Paramserver__V1__BarrierReply out = PARAMSERVER__V1__BARRIER_REPLY__INIT;
    if (!c->f->barrier_open) {
        park(c);
        return;
    }
    out.generation = c->f->generation[0];
    answer_with(c, &out.base, NULL);
}

static void lease(struct call *c, const Paramserver__V1__LeaseRequest *r)
{
    Paramserver__V1__LeaseReply out = PARAMSERVER__V1__LEASE_REPLY__INIT;
    out.generation = c->f->generation[0];
    out.first = r->epoch * 1000;
    out.count = r->want;
    answer_with(c, &out.base, NULL);
}

static void leave(struct call *c)
{
    Paramserver__V1__LeaveReply out = PARAMSERVER__V1__LEAVE_REPLY__INIT;
    c->f->leaves++;
    answer_with(c, &out.base, NULL);
}

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
};

static void serve(struct call *c, const ProtobufCMessage *m, const struct ps_rope *payload)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)m;
    switch (c->method) {
    case PARAMSERVER__V1__METHOD__STATUS:
        status(c);
        break;
    case PARAMSERVER__V1__METHOD__JOIN:
        join(c);
        break;
    case PARAMSERVER__V1__METHOD__HEARTBEAT:
        heartbeat(c);
        break;
    case PARAMSERVER__V1__METHOD__LEAVE:
        leave(c);
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
            park(c);
        else
            read(c, r);
        break;
    default:
        update(c, (const Paramserver__V1__UpdateRequest *)m, payload);
    }
}

static void execute(struct call *c)
{
    ProtobufCMessage *m;
    struct ps_rope payload = PS_ROPE_EMPTY;
    struct ps_error e;
    if (ps_msg_unpack(request_types[c->method], &c->request, &m, &payload, &e) != PS_OK) {
        answer(c, PS_INVALID_ARGUMENT, "not a request");
        return;
    }
    serve(c, m, &payload);
    ps_rope_clear(&payload);
    ps_msg_free(m);
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

static void cut(struct call *c, bool executes)
{
    struct fake *f = c->f;
    struct call *p, *next;
    c->cut = true;
    if (executes)
        execute(c);
    else
        answer(c, PS_UNAVAILABLE, "connection refused");
    if (f->unary)
        return;
    f->in->tasks[c->task].serial++;
    for (p = TAILQ_FIRST(&f->in->parked); p; p = next) {
        next = TAILQ_NEXT(p, link);
        if (p->task != c->task)
            continue;
        TAILQ_REMOVE(&f->in->parked, p, link);
        answer(p, PS_UNAVAILABLE, "connection lost");
    }
}

static void arrive(void *arg)
{
    struct call *c = arg;
    struct fake *f = c->f;
    if (!f->unary && c->serial != f->in->tasks[c->task].serial) {
        answer(c, PS_UNAVAILABLE, "connection lost");
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
        cut(c, fate == FAKE_CUT_AFTER);
        break;
    case FAKE_REFUSE:
        answer(c, PS_RESOURCE_EXHAUSTED, "no memory");
        break;
    case FAKE_ABORT:
        answer(c, PS_ABORTED, "the job has ended");
        break;
    case FAKE_GARBAGE:
        ps_rope_add(&c->body, ps_slice_copy("\xff\xff\xff\x7f", 4));
        answer(c, PS_OK, "");
        break;
    case FAKE_LOSE:
        answer_at(c, c->deadline, PS_DEADLINE_EXCEEDED, "no answer");
        break;
    }
}

static void world_call(void *ctx, uint32_t task, int method, uint32_t timeout_ms, struct ps_rope *request,
                       psc_reply_fn reply, void *arg)
{
    struct fake *f = ctx;
    struct call *c = ps_alloc(sizeof *c);
    uint8_t *bytes;
    struct ps_slice copy = ps_slice_new(request->len, &bytes);
    ps_rope_copy_out(request, 0, request->len, bytes);
    *c = (struct call){.f = f, .task = task, .method = method, .reply = reply, .arg = arg};
    ps_rope_add(&c->request, copy);
    if (f->hold_memory && method == PARAMSERVER__V1__METHOD__PUSH)
        ps_rope_move(&f->in->held, request);
    ps_rope_clear(request);
    c->serial = f->in->tasks[task].serial;
    c->deadline = f->now + timeout_ms * PS_MS;
    add_event(f, f->now + TRAVEL + (f->unary ? draw(f) % (20 * TRAVEL) : 0), arrive, c, c);
}

void fake_release_memory(struct fake *f)
{
    struct ps_rope held = PS_ROPE_EMPTY;
    ps_rope_move(&held, &f->in->held);
    ps_rope_clear(&held);
}

// ---- the world ----------------------------------------------------------------------------------------------------

static uint64_t world_now(void *ctx)
{
    return ((struct fake *)ctx)->now;
}

static void world_after(void *ctx, uint64_t delay, void (*fn)(void *), void *arg)
{
    struct fake *f = ctx;
    add_event(f, f->now + delay, fn, arg, NULL);
}

static uint64_t world_random(void *ctx)
{
    return draw(ctx);
}

static void world_shutdown(void *ctx)
{
    struct fake *f = ctx;
    struct event e;
    struct call *c;
    pthread_mutex_lock(&f->in->turn);
    while ((c = TAILQ_FIRST(&f->in->parked))) {
        TAILQ_REMOVE(&f->in->parked, c, link);
        answer(c, PS_CANCELLED, "shut down");
    }
    while (take_event(f, UINT64_MAX, &e))
        if (e.call) {
            e.call->code = PS_CANCELLED;
            tell(e.call);
        }
    pthread_mutex_unlock(&f->in->turn);
}

static void world_destroy(void *ctx)
{
    fake_release_memory(ctx);
}

struct psc_world fake_world(struct fake *f)
{
    if (!f->in) {
        f->in = ps_alloc(sizeof *f->in);
        pthread_mutex_init(&f->in->lock, NULL);
        pthread_mutex_init(&f->in->turn, NULL);
        TAILQ_INIT(&f->in->parked);
        f->now = PS_SECOND;
        for (uint32_t t = 0; t < FAKE_TASKS; t++)
            f->generation[t] = 100 + t;
    }
    return (struct psc_world){.ctx = f,
                              .incarnation = 5,
                              .call = world_call,
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
    for (uint32_t t = 0; t < FAKE_TASKS; t++)
        for (size_t i = 0; i < f->in->tasks[t].n; i++) {
            free(f->in->tasks[t].variables[i].name);
            free(f->in->tasks[t].variables[i].values);
        }
    if (f->in->declared)
        paramserver__v1__declare_request__free_unpacked(f->in->declared, NULL);
    free(f->in->events);
    pthread_mutex_destroy(&f->in->turn);
    pthread_mutex_destroy(&f->in->lock);
    free(f->in);
}
