// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as what happens to a ps task: requests of every method, right ones with some of their fields changed, ones
// sent again, bytes that are no requests, answers of other ps tasks, time that passes. Whatever it is:
//
//   - a call is answered once, at once or later, at the latest when the task drains;
//   - an answer is a reply that can be read, or a code with a sentence;
//   - a request that is refused at once has changed nothing that anyone can ask for;
//   - memory stays within the task's limit, and none is lost.
//
// Byte 0 says what stands when it begins, see struct fuzz. Then steps: a byte of which five bits say what happens (a
// method, or one of enum other) and three how many fields are changed, a byte for deadline and slices, and what the
// step itself needs. With FUZZ_RPC_TRACE in the environment each call is shown with what became of it.
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/utf8.h"
#include "psd/service/core.h"
#include "tests/fuzz/rpc_requests.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_STEPS = 256, MOST_SENT = 64, HEAP_MAX = 96 << 20, LOST_MAX = 1 << 20 };

// Steps that are not the method of that number.
enum other { PEER_ANSWERS = 0, AGAIN = 26, RAW, STRANGE_METHOD, TIME_PASSES, OPENS, DRAIN };

#define fail(...)                     \
    do {                              \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr);          \
        abort();                      \
    } while (0)

// What another ps task has been sent and not answered.
struct sent {
    int method;
    void (*done)(void *arg, enum ps_code code, const struct ps_slices *reply);
    void *arg;
};

struct fuzz {
    struct psd_core *core;
    struct fuzz_job job;
    uint64_t time, random;
    bool sending;  // psd_world.send is running
    struct sent sent[MOST_SENT];
    size_t n_sent;
    struct asked *parked;         // calls that have not been answered
    struct psd_session *session;  // of all calls: they come over one stream

    struct ps_slices last;  // the last request
    int last_method;
    uint64_t digest;  // of all that can be asked for
    bool known;       // it is the present one
};

// A call, freed as soon as it is answered: the core must not look at it after that.
struct asked {
    struct psd_call call;  // first
    struct fuzz *f;
    struct asked *next;
    struct outcome *to;  // NULL: whoever asked has gone on
};

struct outcome {
    bool answered;
    enum ps_code code;
    char text[600];
    struct ps_slices body;
};

// ---- the world ----------------------------------------------------------------------------------------------------

static uint64_t now(void *ctx)
{
    return ((struct fuzz *)ctx)->time;
}

static uint64_t random_number(void *ctx)
{
    return ((struct fuzz *)ctx)->random += UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t resident(void *ctx)
{
    (void)ctx;
    return 1 << 20;
}

static void send_to_peer(void *ctx, uint32_t task, int method, struct ps_slices *request,
                         void (*done)(void *arg, enum ps_code code, const struct ps_slices *reply), void *arg)
{
    struct fuzz *f = ctx;
    if (task >= f->job.tasks || task == f->job.task || !request_type(method))
        fail("method %d was sent to ps task %" PRIu32 " of %" PRIu32, method, task, f->job.tasks);
    ps_slices_clear(request);
    if (f->n_sent == MOST_SENT)
        fail("%d messages to other ps tasks are under way", MOST_SENT);
    f->sent[f->n_sent++] = (struct sent){method, done, arg};
}

static void answer_peer(struct fuzz *f, size_t i, enum ps_code code, struct ps_slices *reply)
{
    struct sent s = f->sent[i];
    memmove(&f->sent[i], &f->sent[i + 1], (--f->n_sent - i) * sizeof s);
    s.done(s.arg, code, reply);
    f->known = false;
}

// ---- calls --------------------------------------------------------------------------------------------------------

static void check_answer(const struct asked *a, enum ps_code code, const char *text, const struct ps_slices *body)
{
    const ProtobufCMessageDescriptor *type = reply_type(a->call.method);
    const char *name = method_name(a->call.method);
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct ps_error e = {0};
    ProtobufCMessage *reply;
    if ((int)code < 0 || code > PS_UNAUTHENTICATED)
        fail("%s: code %d", name, (int)code);
    if (code == PS_INTERNAL)
        fail("%s: %s", name, text);
    if (code && (body->len || !text[0] || !ps_utf8_valid(text)))
        fail("%s: code %d with text '%s' and %zu bytes of reply", name, (int)code, text, body->len);
    if (code)
        return;
    if (!type || body->broken || text[0])
        fail("%s: OK with '%s'", name, text);
    if (ps_msg_unpack(type, body, &reply, &payload, &e))
        fail("%s: a reply that cannot be read: %s", name, e.text);
    ps_msg_free(reply);
    ps_slices_clear(&payload);
}

static void on_reply(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct asked *a = (struct asked *)call, **at = &a->f->parked;
    check_answer(a, code, text, body);
    if (call->request.n)
        fail("%s: answered with its request still there", method_name(call->method));
    if (a->to) {
        a->to->answered = true;
        a->to->code = code;
        snprintf(a->to->text, sizeof a->to->text, "%s", text);
        ps_slices_move(&a->to->body, body);
    }
    ps_slices_clear(body);
    while (*at && *at != a)
        at = &(*at)->next;
    if (!*at)
        fail("%s: answered twice", method_name(call->method));
    *at = a->next;
    free(a);
}

// Moves the request. The outcome's body is the caller's.
static struct outcome call(struct fuzz *f, int method, struct ps_slices *request, uint64_t deadline)
{
    struct outcome out = {.answered = false};
    struct asked *a = calloc(1, sizeof *a);
    *a = (struct asked){.call = {.method = method,
                                 .deadline = deadline,
                                 .request = *request,
                                 .reply = on_reply,
                                 .session = &f->session},
                        .f = f,
                        .next = f->parked,
                        .to = &out};
    *request = PS_SLICES_EMPTY;
    f->parked = a;
    psd_core_call(f->core, &a->call);
    for (struct asked *p = f->parked; p; p = p->next)
        if (p->to == &out)
            p->to = NULL;
    return out;
}

// ---- what can be asked for ----------------------------------------------------------------------------------------

// Two lanes of multiply and add over words, the rest byte by byte: speed is all that is asked of it.
static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    const uint8_t *at = data;
    uint64_t word, other = ~h;
    for (; n >= 16; n -= 16, at += 16) {
        memcpy(&word, at, 8);
        h = (h + word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
        memcpy(&word, at + 8, 8);
        other = (other + word) * UINT64_C(0xbf58476d1ce4e5b9);
        other ^= other >> 31;
    }
    for (; n; n--)
        h = (h ^ *at++) * UINT64_C(0x100000001b3);
    return (h ^ other) * UINT64_C(0x94d049bb133111eb);
}

static uint64_t mix_number(uint64_t h, uint64_t number)
{
    return mix(h, &number, sizeof number);
}

static uint64_t mix_answer(uint64_t h, struct outcome *o)
{
    h = mix_number(h, o->answered ? o->code : 99);
    for (size_t i = 0; i < o->body.n; i++)
        h = mix(h, o->body.v[i].data, o->body.v[i].len);
    ps_slices_clear(&o->body);
    return h;
}

static Paramserver__V1__Caller observer(const char *job)
{
    static uint8_t id[16] = "who only watches";
    Paramserver__V1__Caller c = PARAMSERVER__V1__CALLER__INIT;
    c.protocol = PS_PROTOCOL;
    c.job = (char *)job;
    c.client = (ProtobufCBinaryData){16, id};
    c.incarnation = c.run = 1;
    return c;
}

static struct outcome ask(struct fuzz *f, int method, const ProtobufCMessage *m)
{
    struct ps_slices request = PS_SLICES_EMPTY;
    ps_msg_pack(m, NULL, &request);
    return call(f, method, &request, UINT64_MAX);
}

// Values of one variable, in the ranges that lie here.
static uint64_t mix_values(struct fuzz *f, uint64_t h, const char *job, const Paramserver__V1__DescribeReply *d,
                           const Paramserver__V1__Partition *p)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller c = observer(job);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *ts[] = {&t};
    if (p->task != f->job.task || p->count == 0 || p->count > 1 << 20)
        return h;
    t.variable = d->variables[p->variable]->name;
    t.first = p->first;
    t.count = p->count;
    r.caller = &c;
    r.tensors = ts;
    r.n_tensors = 1;
    struct outcome o = ask(f, PARAMSERVER__V1__METHOD__GET, &r.base);
    if (o.code)
        fail("what is declared cannot be read: variable '%s' of job '%s': %s", t.variable, job, o.text);
    return mix_answer(h, &o);
}

// Who is in the job; not for how long they have been silent, because a refused request is a sign of life, too.
static uint64_t mix_members(struct fuzz *f, uint64_t h, const char *job)
{
    Paramserver__V1__WorkersRequest r = PARAMSERVER__V1__WORKERS_REQUEST__INIT;
    Paramserver__V1__WorkersReply *w = NULL;
    struct ps_slices payload = PS_SLICES_EMPTY;
    r.job = (char *)job;
    struct outcome o = ask(f, PARAMSERVER__V1__METHOD__WORKERS, &r.base);
    if (o.code || ps_msg_unpack(&paramserver__v1__workers_reply__descriptor, &o.body, (ProtobufCMessage **)&w, &payload,
                                NULL) != PS_OK)
        return mix_answer(h, &o);
    for (size_t i = 0; i < w->n_members; i++) {
        Paramserver__V1__Member *m = w->members[i];
        const uint64_t numbers[] = {m->rank, m->state, m->incarnation, m->step, m->excluded, m->draining, m->clock};
        h = mix(h, numbers, sizeof numbers);
        h = mix(h, m->address, strlen(m->address));
        h = mix(h, m->reason, strlen(m->reason));
    }
    h = mix_number(h, w->epoch);
    ps_msg_free(&w->base);
    ps_slices_clear(&o.body);
    return h;
}

static uint64_t mix_job(struct fuzz *f, uint64_t h, const char *job)
{
    Paramserver__V1__DescribeRequest r = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller c = observer(job);
    Paramserver__V1__DescribeReply *d = NULL;
    struct ps_slices payload = PS_SLICES_EMPTY;
    r.caller = &c;
    struct outcome o = ask(f, PARAMSERVER__V1__METHOD__DESCRIBE, &r.base);
    h = mix_members(f, h, job);
    if (o.code == PS_OK && ps_msg_unpack(&paramserver__v1__describe_reply__descriptor, &o.body, (ProtobufCMessage **)&d,
                                         &payload, NULL) == PS_OK) {
        for (size_t i = 0; i < d->n_partitions && i < 64; i++)
            h = mix_values(f, h, job, d, d->partitions[i]);
        ps_msg_free(&d->base);
    }
    return mix_answer(h, &o);
}

// What Status says, without what counts refused requests or goes on with time.
static uint64_t mix_status(uint64_t h, const Paramserver__V1__JobStatus *s)
{
    const uint64_t numbers[] = {s->update,      s->variables,  s->partitions,   s->bytes,         s->updates,
                                s->round,       s->waiting,    s->live_workers, s->duplicates,    s->stale,
                                s->staleness,   s->data_epoch, s->examples,     s->examples_done, s->dedup_bytes,
                                s->min_workers, s->workers};
    h = mix(h, s->name, strlen(s->name));
    h = mix_number(h, s->run);
    h = mix(h, s->state, strlen(s->state));
    h = mix(h, s->reason, strlen(s->reason));
    return mix(h, numbers, sizeof numbers);
}

static uint64_t digest(struct fuzz *f)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    Paramserver__V1__StatusReply *s = NULL;
    struct ps_slices payload = PS_SLICES_EMPTY;
    uint64_t h = 4711;
    struct outcome o = ask(f, PARAMSERVER__V1__METHOD__STATUS, &r.base);
    if (o.code || ps_msg_unpack(&paramserver__v1__status_reply__descriptor, &o.body, (ProtobufCMessage **)&s, &payload,
                                NULL) != PS_OK)
        fail("status: %s", o.text);
    if (s->block_bytes > s->limit_bytes)
        fail("%" PRIu64 " bytes in blocks, the limit is %" PRIu64, s->block_bytes, s->limit_bytes);
    if (s->pinned_bytes > s->block_bytes)
        fail("%" PRIu64 " bytes are pinned of %" PRIu64, s->pinned_bytes, s->block_bytes);
    h = mix_number(h, s->draining);
    for (size_t i = 0; i < s->n_jobs; i++) {
        h = mix_status(h, s->jobs[i]);
        h = mix_job(f, h, s->jobs[i]->name);
    }
    ps_msg_free(&s->base);
    ps_slices_clear(&o.body);
    return h;
}

// ---- steps --------------------------------------------------------------------------------------------------------

// The same bytes in slices that end somewhere else.
static void cut(struct ps_slices *r, size_t most)
{
    struct ps_slices pieces = PS_SLICES_EMPTY;
    for (size_t at = 0, n; at < r->len; at += n) {
        n = r->len - at < most ? r->len - at : most;
        ps_slices_add_range(&pieces, r, at, n);
    }
    ps_slices_clear(r);
    *r = pieces;
}

// Moves the request, and looks at what became of it.
static enum ps_code try(struct fuzz *f, int method, struct ps_slices *request, uint8_t how)
{
    static const uint64_t patience[] = {UINT64_MAX, 1000000, 1000000000, 0};
    static const size_t slices[] = {PS_MESSAGE_MAX, 1000, 16, 1};
    uint64_t wait = patience[how & 3];
    if (request->len < 10000)
        cut(request, slices[how >> 2 & 3]);
    ps_slices_clear(&f->last);
    ps_slices_add_range(&f->last, request, 0, request->len);
    f->last_method = method;
    if (!f->known)
        f->digest = digest(f);
    struct outcome o = call(f, method, request, wait == UINT64_MAX ? wait : f->time + wait);
    ps_slices_clear(&o.body);
    f->known = o.answered && o.code;
    if (f->known && digest(f) != f->digest)
        fail("%s: was refused, and has changed something: %s", method_name(method), o.text);
    if (getenv("FUZZ_RPC_TRACE"))
        fprintf(stderr, "%s: %d %s\n", method_name(method), o.answered ? (int)o.code : -1, o.text);
    return o.answered ? o.code : PS_OK;
}

static void pass_time(struct fuzz *f, uint8_t how)
{
    static const uint64_t ms[] = {50, 500, 1100, 3100, 10000, 61000};
    f->time += ms[how % (sizeof ms / sizeof *ms)] * 1000000;
    f->known = false;
    psd_core_tick(f->core);
}

static void raw(struct feed *in, struct ps_slices *request)
{
    size_t n = feed_byte(in);
    n = n < in->len - in->at ? n : in->len - in->at;
    ps_slices_add(request, ps_slice_copy(in->data + in->at, n));
    in->at += n;
}

static void peer_answers(struct fuzz *f, struct feed *in, uint8_t how)
{
    struct ps_slices reply = PS_SLICES_EMPTY;
    if (how & 1)
        raw(in, &reply);
    if (f->n_sent)
        answer_peer(f, (how >> 4) % f->n_sent, how & 2 ? PS_UNAVAILABLE : PS_OK, &reply);
    ps_slices_clear(&reply);
}

static void step(struct fuzz *f, struct feed *in)
{
    uint8_t op = feed_byte(in), how = feed_byte(in);
    struct ps_slices request = PS_SLICES_EMPTY;
    int what = op % 32;
    switch (what) {
    case PEER_ANSWERS:
        peer_answers(f, in, how);
        break;
    case AGAIN:
        ps_slices_add_range(&request, &f->last, 0, f->last.len);
        try(f, f->last_method, &request, how);
        break;
    case RAW:
        what = 1 + feed_byte(in) % (FUZZ_METHODS - 1);
        raw(in, &request);
        try(f, what, &request, how);
        break;
    case STRANGE_METHOD:
        raw(in, &request);
        try(f, (int8_t)feed_byte(in) * 1000, &request, how);
        break;
    case TIME_PASSES:
        pass_time(f, how);
        break;
    case DRAIN:
        f->known = false;
        psd_core_drain(f->core);
        break;
    default:
        if (what == OPENS)
            what = how & 0x40 ? (int)PARAMSERVER__V1__METHOD__SET_MODE : (int)PARAMSERVER__V1__METHOD__OPEN;
        request_make(&f->job, what, in, &request);
        request_change(what, op / 32, in, &request);
        try(f, what, &request, how);
    }
}

// ---- begin and end ------------------------------------------------------------------------------------------------

static enum ps_code make_and_try(struct fuzz *f, int method, uint8_t who, uint8_t which)
{
    struct feed in = {(const uint8_t[]){who, which}, 2, 0};
    struct ps_slices request = PS_SLICES_EMPTY;
    request_make(&f->job, method, &in, &request);
    return try(f, method, &request, 0);
}

// The run is a number that the control task gives out: from its status.
static void learn_run(struct fuzz *f)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    Paramserver__V1__StatusReply *s = NULL;
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct outcome o = ask(f, PARAMSERVER__V1__METHOD__STATUS, &r.base);
    ps_msg_unpack(&paramserver__v1__status_reply__descriptor, &o.body, (ProtobufCMessage **)&s, &payload, NULL);
    if (s && s->n_jobs)
        f->job.run = s->jobs[0]->run;
    if (s)
        ps_msg_free(&s->base);
    ps_slices_clear(&o.body);
}

// Joins and declares, as byte 0 wants it: update (0: no job yet), two tasks, the second of them, a big variable, all
// dtypes, little memory.
static void begin(struct fuzz *f, uint8_t setup)
{
    static const Paramserver__V1__Update updates[] = {PARAMSERVER__V1__UPDATE__ASYNC, PARAMSERVER__V1__UPDATE__ASYNC,
                                                      PARAMSERVER__V1__UPDATE__SYNC, PARAMSERVER__V1__UPDATE__SSP};
    f->time = 1000000000;
    f->job.update = updates[setup & 3];
    f->job.tasks = setup & 4 ? 2 : 1;
    f->job.task = setup & 4 && setup & 8;
    f->job.big = setup & 16;
    f->job.every_dtype = setup & 32;
    struct psd_config config = {.task = f->job.task,
                                .tasks = f->job.tasks,
                                .memory_bytes = setup & 64 ? 2 << 20 : 16 << 20,
                                .heartbeat_ms = 500,
                                .dead_after_ms = 3000};
    struct psd_world world = {
        .ctx = f, .now = now, .random = random_number, .resident = resident, .send = send_to_peer};
    if (psd_core_create(&config, &world, &f->core, NULL))
        fail("no core");
    if (!(setup & 3))
        return;
    if (f->job.task == 0) {
        for (uint8_t worker = 1; worker <= FUZZ_WORKERS; worker++)
            make_and_try(f, PARAMSERVER__V1__METHOD__JOIN, worker, 0);
        learn_run(f);
    } else {
        f->job.run = 1;
    }
    make_and_try(f, PARAMSERVER__V1__METHOD__DECLARE, 1, 0);
}

// Everything parked is answered, everything sent comes back, in this order: a task that drains has not heard from the
// others yet.
static void end(struct fuzz *f)
{
    struct ps_slices nothing = PS_SLICES_EMPTY;
    psd_core_drain(f->core);
    if (f->parked)
        fail("%s: not answered when the task drained", method_name(f->parked->call.method));
    digest(f);
    while (f->n_sent)
        answer_peer(f, 0, PS_UNAVAILABLE, &nothing);
    psd_core_destroy(f->core);
    psd_session_close(f->session);
    ps_slices_clear(&f->last);
}

static size_t heap(void)  // 0 under a sanitizer, which watches memory itself
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static void run(const uint8_t *data, size_t size)
{
    struct feed in = {data, size, 0};
    struct fuzz *f = calloc(1, sizeof *f);
    size_t before = heap();
    begin(f, feed_byte(&in));
    for (int i = 0; i < MOST_STEPS && in.at < in.len; i++)
        step(f, &in);
    if (heap() > before + HEAP_MAX)
        fail("%zu bytes of memory are in use", heap() - before);
    end(f);
    free(f);
}

// The requests that others are made from have to be right: where they are not, changing them finds nothing.
static void prove(void)
{
    static const int methods[] = {
        PARAMSERVER__V1__METHOD__HEARTBEAT, PARAMSERVER__V1__METHOD__OPEN,    PARAMSERVER__V1__METHOD__DECLARE,
        PARAMSERVER__V1__METHOD__DESCRIBE,  PARAMSERVER__V1__METHOD__PUT,     PARAMSERVER__V1__METHOD__ASSIGN_ADD,
        PARAMSERVER__V1__METHOD__PUSH,      PARAMSERVER__V1__METHOD__GET,     PARAMSERVER__V1__METHOD__PULL,
        PARAMSERVER__V1__METHOD__STATUS,    PARAMSERVER__V1__METHOD__WORKERS, PARAMSERVER__V1__METHOD__LEASE,
        PARAMSERVER__V1__METHOD__BARRIER,   PARAMSERVER__V1__METHOD__LEAVE,   PARAMSERVER__V1__METHOD__STOP_JOB};
    for (uint8_t setup = 1; setup <= 2; setup++) {
        struct fuzz *f = calloc(1, sizeof *f);
        begin(f, setup);
        for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
            enum ps_code code = make_and_try(f, methods[i], 1, 0);
            bool again = methods[i] == PARAMSERVER__V1__METHOD__PUT || methods[i] == PARAMSERVER__V1__METHOD__GET;
            if (code == PS_OK && again)
                code = make_and_try(f, methods[i], 1 | FUZZ_IN_SESSION, 0);
            if (code)
                fail("%s: a right request is refused with code %d", method_name(methods[i]), (int)code);
        }
        end(f);
        free(f);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static size_t at_first;
    if (!at_first) {
        ps_log_init("fuzz", PS_LOG_ERROR);
        prove();
        at_first = heap() + 1;
    }
    run(data, size);
    // Less may lie in the allocator's caches.
    if (heap() > at_first + LOST_MAX)
        fail("%zu bytes of memory have been lost by this input and those before it", heap() - at_first);
    return 0;
}
