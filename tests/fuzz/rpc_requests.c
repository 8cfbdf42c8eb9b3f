// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/rpc_requests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint8_t feed_byte(struct feed *f)
{
    return f->at < f->len ? f->data[f->at++] : 0;
}

#define METHODS(X)                                         \
    X(JOIN, join_request, join_reply)                      \
    X(HEARTBEAT, heartbeat_request, heartbeat_reply)       \
    X(LEAVE, leave_request, leave_reply)                   \
    X(BARRIER, barrier_request, barrier_reply)             \
    X(LEASE, lease_request, lease_reply)                   \
    X(DECLARE, declare_request, declare_reply)             \
    X(DESCRIBE, describe_request, describe_reply)          \
    X(PUT, update_request, update_reply)                   \
    X(ASSIGN_ADD, update_request, update_reply)            \
    X(ASSIGN_SUB, update_request, update_reply)            \
    X(PUSH, update_request, update_reply)                  \
    X(PUSH_PULL, update_request, push_pull_reply)          \
    X(GET, read_request, read_reply)                       \
    X(PULL, read_request, read_reply)                      \
    X(REDUCE, reduce_request, reduce_reply)                \
    X(CLOCK, clock_request, clock_reply)                   \
    X(STATUS, status_request, status_reply)                \
    X(WORKERS, workers_request, workers_reply)             \
    X(STOP_JOB, stop_job_request, stop_job_reply)          \
    X(SET_MEMBERS, set_members_request, set_members_reply) \
    X(WAITS, waits_request, waits_reply)                   \
    X(SET_HYPER, set_hyper_request, set_hyper_reply)       \
    X(SET_MODE, set_mode_request, set_mode_reply)          \
    X(DRAIN, drain_request, drain_reply)                   \
    X(AGREE, agree_request, agree_reply)                   \
    X(SUM_SQUARES, sum_squares_request, sum_squares_reply) \
    X(OPEN, open_request, open_reply)                      \
    X(SUBMIT, submit_request, submit_reply)                \
    X(LIST, list_request, list_reply)                      \
    X(CANCEL, cancel_request, cancel_reply)                \
    X(LOGS, logs_request, logs_reply)                      \
    X(NEXT, next_request, next_reply)                      \
    X(REPORT, report_request, report_reply)                \
    X(CHECKPOINT, checkpoint_request, checkpoint_reply)    \
    X(TRACE, trace_request, trace_reply)

static const struct {
    const ProtobufCMessageDescriptor *request, *reply;
} types[FUZZ_METHODS] = {
#define X(method, request, reply) \
    [PARAMSERVER__V1__METHOD__##  \
        method] = {&paramserver__v1__##request##__descriptor, &paramserver__v1__##reply##__descriptor},
    METHODS(X)
#undef X
};

_Static_assert(PARAMSERVER__V1__METHOD__TRACE + 1 == FUZZ_METHODS, "the last of them");

const ProtobufCMessageDescriptor *request_type(int method)
{
    return method > 0 && method < FUZZ_METHODS ? types[method].request : NULL;
}

const ProtobufCMessageDescriptor *reply_type(int method)
{
    return method > 0 && method < FUZZ_METHODS ? types[method].reply : NULL;
}

const char *method_name(int method)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&paramserver__v1__method__descriptor, method);
    return v ? v->name : "?";
}

// ---- right ones ---------------------------------------------------------------------------------------------------

enum { MOST_PARTITIONS = 2 * FUZZ_VARIABLES, BIG = 131072 + 1000 };

// The job's variables. Of two tasks each owns a half of "e" and every second one of the others.
static const struct variable {
    const char *name;
    Paramserver__V1__DType dtype;
    size_t rank;
    uint64_t shape[2], count;
    bool trainable;
    uint32_t task;  // of two; 2: split
    size_t width;   // bytes of an element
} variables[] = {
    {"a", PARAMSERVER__V1__DTYPE__FLOAT32, 2, {3, 5}, 15, true, 0, 4},
    {"e", PARAMSERVER__V1__DTYPE__FLOAT32, 2, {6, 2}, 12, true, 2, 4},
    {"n", PARAMSERVER__V1__DTYPE__INT64, 1, {4}, 4, false, 1, 8},
    {"d", PARAMSERVER__V1__DTYPE__FLOAT64, 0, {0}, 1, false, 0, 8},
    {"big", PARAMSERVER__V1__DTYPE__FLOAT32, 1, {BIG}, BIG, true, 1, 4},
    {"h", PARAMSERVER__V1__DTYPE__BFLOAT16, 1, {3}, 3, false, 0, 2},
    {"s", PARAMSERVER__V1__DTYPE__STRING, 1, {2}, 2, false, 1, 0},
};
enum { BIG_VARIABLE = 4, FIRST_OF_EVERY_DTYPE = 5 };
_Static_assert(sizeof variables / sizeof *variables == FUZZ_VARIABLES, "as many as rounds are kept of");

static bool has_variable(const struct fuzz_job *job, size_t i)
{
    return i == BIG_VARIABLE ? job->big : i < FIRST_OF_EVERY_DTYPE || job->every_dtype;
}

// The elements of a variable that a task owns. False: none.
static bool owned(const struct fuzz_job *job, const struct variable *v, uint32_t task, uint64_t *first, uint64_t *count)
{
    bool split = job->tasks > 1 && v->task == 2;
    *first = split && task == 1 ? v->count / 2 : 0;
    *count = split ? v->count / 2 : v->count;
    return split || job->tasks == 1 || v->task % job->tasks == task;
}

static uint8_t ids[FUZZ_CALLERS][16];

// Which worker, and which of its sequences: a fresh one, the last again, a fresh one with all others open, an old one.
static Paramserver__V1__Caller caller_from(struct fuzz_job *job, uint8_t choice)
{
    Paramserver__V1__Caller c = PARAMSERVER__V1__CALLER__INIT;
    c.worker = choice % FUZZ_CALLERS;
    uint64_t *last = &job->sequence[c.worker];
    memset(ids[c.worker], 'a' + (int)c.worker, sizeof ids[c.worker]);
    c.protocol = PS_PROTOCOL;
    c.job = (char *)"job";
    c.client = (ProtobufCBinaryData){16, ids[c.worker]};
    c.incarnation = c.run = job->run;
    switch (choice / FUZZ_CALLERS % 4) {
    case 0:
        c.oldest = c.sequence = ++*last;
        break;
    case 1:
        c.oldest = c.sequence = *last ? *last : 1;
        break;
    case 2:
        c.sequence = ++*last;
        c.oldest = *last > PS_WINDOW / 2 ? *last - PS_WINDOW / 2 : 1;
        break;
    case 3:
        c.oldest = c.sequence = *last > 3 ? *last - 3 : 1;
        break;
    }
    return c;
}

// What a request says of its caller.
static Paramserver__V1__Caller caller_said(Paramserver__V1__Caller c, uint8_t choice)
{
    Paramserver__V1__Caller in_session = PARAMSERVER__V1__CALLER__INIT;
    in_session.sequence = c.sequence;
    in_session.oldest = c.oldest;
    return choice & FUZZ_IN_SESSION ? in_session : c;
}

struct declaration {
    Paramserver__V1__DeclareRequest r;
    Paramserver__V1__Variable v[FUZZ_VARIABLES], *vs[FUZZ_VARIABLES];
    Paramserver__V1__Partition p[MOST_PARTITIONS], *ps[MOST_PARTITIONS];
};

static void add_partitions(struct declaration *d, const struct fuzz_job *job, const struct variable *v, uint32_t index)
{
    for (uint32_t task = 0; task < job->tasks; task++) {
        Paramserver__V1__Partition *p = &d->p[d->r.n_partitions];
        uint64_t first, count;
        if (!owned(job, v, task, &first, &count))
            continue;
        paramserver__v1__partition__init(p);
        p->variable = index;
        p->first = first;
        p->count = count;
        p->task = task;
        d->ps[d->r.n_partitions++] = p;
    }
}

static void fill_declaration(struct declaration *d, const struct fuzz_job *job)
{
    paramserver__v1__declare_request__init(&d->r);
    d->r.update = job->update;
    d->r.workers = FUZZ_WORKERS;
    d->r.tasks = job->tasks;
    d->r.task = job->task;
    d->r.rule = (char *)"momentum";
    d->r.staleness = job->update == PARAMSERVER__V1__UPDATE__SSP ? 2 : 0;
    d->r.variables = d->vs;
    d->r.partitions = d->ps;
    for (size_t i = 0; i < FUZZ_VARIABLES; i++) {
        Paramserver__V1__Variable *v = &d->v[d->r.n_variables];
        if (!has_variable(job, i))
            continue;
        paramserver__v1__variable__init(v);
        v->name = (char *)variables[i].name;
        v->dtype = variables[i].dtype;
        v->n_shape = variables[i].rank;
        v->shape = (uint64_t *)variables[i].shape;
        v->trainable = variables[i].trainable;
        add_partitions(d, job, &variables[i], (uint32_t)d->r.n_variables);
        d->vs[d->r.n_variables++] = v;
    }
}

// One or two of the variables that lie on this task, as a request's headers; their payload where values is set.
struct tensors {
    Paramserver__V1__Tensor t[2], *ts[2];
    size_t n, first;  // first: which variable is
};

static void add_payload(struct ps_slices *payload, const struct variable *v, Paramserver__V1__Tensor *t, uint8_t choice)
{
    uint8_t *data;
    size_t width = v->width ? v->width : 4, bytes = (size_t)t->count * width;
    struct ps_slice s = ps_slice_new(bytes, &data);
    memset(data, v->width ? choice & 0x3f : 0, bytes);  // numbers that are neither 0 nor NaN; strings that are empty
    t->bytes = bytes;
    ps_slices_add(payload, s);
}

static void fill_tensors(struct tensors *x, const struct fuzz_job *job, uint8_t choice, struct ps_slices *payload)
{
    size_t wanted = choice & 0x80 ? 2 : 1;
    for (size_t i = 0; i < FUZZ_VARIABLES && x->n < wanted; i++) {
        size_t k = (i + (choice & 0x3f)) % FUZZ_VARIABLES;
        const struct variable *v = &variables[k];
        Paramserver__V1__Tensor *t = &x->t[x->n];
        uint64_t first, count;
        if (!has_variable(job, k) || !owned(job, v, job->task, &first, &count) ||
            (payload && choice & 0x40 && !v->trainable))
            continue;
        paramserver__v1__tensor__init(t);
        t->variable = (char *)v->name;
        t->first = first;
        t->count = count;
        if (payload) {
            t->dtype = v->dtype;
            t->n_shape = v->rank;
            t->shape = (uint64_t *)v->shape;
            add_payload(payload, v, t, choice);
        }
        x->first = x->n ? x->first : k;
        x->ts[x->n++] = t;
    }
}

static void make_update(struct fuzz_job *job, int method, uint8_t who, uint8_t which, struct ps_slices *out)
{
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_from(job, who);
    struct tensors x = {.n = 0};
    struct ps_slices payload = PS_SLICES_EMPTY;
    bool push = method == PARAMSERVER__V1__METHOD__PUSH || method == PARAMSERVER__V1__METHOD__PUSH_PULL;
    fill_tensors(&x, job, push ? which | 0x40 : which & ~0x40, &payload);
    uint64_t *round = &job->round[caller.worker][x.first];
    if (push && job->update == PARAMSERVER__V1__UPDATE__SYNC)
        r.round = who / FUZZ_CALLERS % 4 == 1 ? *round : ++*round;
    caller = caller_said(caller, who);
    r.caller = &caller;
    r.tensors = x.ts;
    r.n_tensors = x.n;
    r.examples = push;
    ps_msg_pack(&r.base, &payload, out);
}

static void make_read(struct fuzz_job *job, int method, uint8_t who, uint8_t which, struct ps_slices *out)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_said(caller_from(job, who), who);
    struct tensors x = {.n = 0};
    fill_tensors(&x, job, which, NULL);
    r.caller = &caller;
    r.tensors = x.ts;
    r.n_tensors = x.n;
    r.if_newer = which & 0x40 && method == PARAMSERVER__V1__METHOD__GET;
    ps_msg_pack(&r.base, NULL, out);
}

static void make_reduce(struct fuzz_job *job, uint8_t who, uint8_t which, struct ps_slices *out)
{
    Paramserver__V1__ReduceRequest r = PARAMSERVER__V1__REDUCE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_from(job, who);
    struct ps_slices payload = PS_SLICES_EMPTY;
    const float values[] = {1, 2, 3, 4};
    r.caller = &caller;
    r.name = (char *)"r";
    r.op = (Paramserver__V1__ReduceOp)(1 + which % 6);
    r.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    r.count = 4;
    ps_slices_add(&payload, ps_slice_copy(values, sizeof values));
    ps_msg_pack(&r.base, &payload, out);
}

static void make_set_members(struct fuzz_job *job, uint8_t which, struct ps_slices *out)
{
    Paramserver__V1__SetMembersRequest r = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    Paramserver__V1__Member m[FUZZ_WORKERS], *ms[FUZZ_WORKERS];
    for (uint32_t i = 0; i < FUZZ_WORKERS; i++) {
        paramserver__v1__member__init(ms[i] = &m[i]);
        m[i].rank = i;
        m[i].incarnation = job->run;
        m[i].state = which >> i & 1 ? PARAMSERVER__V1__MEMBER_STATE__DEAD : PARAMSERVER__V1__MEMBER_STATE__LIVE;
    }
    r.job = (char *)"job";
    r.run = job->run;
    r.epoch = 1 + which / 4;
    r.members = ms;
    r.n_members = FUZZ_WORKERS;
    ps_msg_pack(&r.base, NULL, out);
}

static void make_peer(struct fuzz_job *job, int method, uint8_t which, struct ps_slices *out)
{
    Paramserver__V1__AgreeRequest p = PARAMSERVER__V1__AGREE_REQUEST__INIT;
    uint8_t value[32] = {0, 0, 0, 0, 0, 0, 0xd0, 0x3f};  // 0.25
    Paramserver__V1__SumSquaresRequest s = PARAMSERVER__V1__SUM_SQUARES_REQUEST__INIT;
    uint32_t partition = which % 4;
    double sum = which / 4;
    p.job = s.job = (char *)"job";
    p.run = s.run = job->run;
    p.number = 1 + which / 64;
    p.kind = PARAMSERVER__V1__AGREE_KIND__HYPER;
    memcpy(value + 8, "learning_rate", 13);
    p.value = (ProtobufCBinaryData){8 + 13, value};
    p.round = s.round = 1 + which / 4 % 4;
    p.phase = (Paramserver__V1__AgreeRequest__Phase)(1 + which % 4);
    s.n_partitions = s.n_sums = 1;
    s.partitions = &partition;
    s.sums = &sum;
    ps_msg_pack(method == PARAMSERVER__V1__METHOD__SUM_SQUARES ? &s.base : &p.base, NULL, out);
}

#define MESSAGE(Type, INIT, ...)                                     \
    do {                                                             \
        Paramserver__V1__##Type r = PARAMSERVER__V1__##INIT##__INIT; \
        __VA_ARGS__;                                                 \
        ps_msg_pack(&r.base, NULL, out);                             \
    } while (0)

static void make_heartbeat(Paramserver__V1__Caller *caller, uint8_t which, struct ps_slices *out)
{
    static Paramserver__V1__Metric metric = PARAMSERVER__V1__METRIC__INIT;
    static Paramserver__V1__Metric *metrics[40];
    Paramserver__V1__Progress progress = PARAMSERVER__V1__PROGRESS__INIT;
    metric.name = (char *)"val_loss";
    metric.value = which;
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        metrics[i] = &metric;
    progress.epochs = which % 8;
    progress.epochs_ended = which % 16;
    progress.n_metrics = which % 41;
    progress.metrics = metrics;
    MESSAGE(HeartbeatRequest, HEARTBEAT_REQUEST, r.caller = caller; r.step = which; r.progress = &progress);
}

static void make_membership(struct fuzz_job *job, int method, uint8_t who, uint8_t which, struct ps_slices *out)
{
    Paramserver__V1__Caller caller = caller_from(job, who);
    switch (method) {
    case PARAMSERVER__V1__METHOD__JOIN:
        MESSAGE(JoinRequest, JOIN_REQUEST, r.caller = &caller; r.address = (char *)"here:1"; r.workers = FUZZ_WORKERS;
                r.update = job->update; r.on_existing = (Paramserver__V1__OnExisting)(which % 3);
                r.staleness = job->update == PARAMSERVER__V1__UPDATE__SSP ? 2 : 0);
        break;
    case PARAMSERVER__V1__METHOD__HEARTBEAT:
        make_heartbeat(&caller, which, out);
        break;
    case PARAMSERVER__V1__METHOD__LEAVE:
        MESSAGE(LeaveRequest, LEAVE_REQUEST, r.caller = &caller; r.failed = which & 1;
                r.reason = (char *)(r.failed ? "no more" : ""));
        break;
    case PARAMSERVER__V1__METHOD__BARRIER:
        MESSAGE(BarrierRequest, BARRIER_REQUEST, r.caller = &caller; r.name = (char *)(which & 1 ? "c" : "b"));
        break;
    case PARAMSERVER__V1__METHOD__LEASE:
        MESSAGE(LeaseRequest, LEASE_REQUEST, r.caller = &caller; r.examples = 100; r.want = 10; r.epoch = which % 4;
                r.round = job->round[caller.worker][0]);
        break;
    case PARAMSERVER__V1__METHOD__CLOCK:
        MESSAGE(ClockRequest, CLOCK_REQUEST, r.caller = &caller; r.step = which >> 1; r.wait = which & 1);
        break;
    case PARAMSERVER__V1__METHOD__OPEN:
        MESSAGE(OpenRequest, OPEN_REQUEST, r.caller = &caller);
        break;
    case PARAMSERVER__V1__METHOD__DESCRIBE:
        MESSAGE(DescribeRequest, DESCRIBE_REQUEST, r.caller = &caller; r.wait = which & 1);
        break;
    }
}

static void make_admin(int method, uint8_t which, struct ps_slices *out)
{
    char *job = (char *)(which & 1 ? "" : "job");
    switch (method) {
    case PARAMSERVER__V1__METHOD__STATUS:
        MESSAGE(StatusRequest, STATUS_REQUEST, r.job = job);
        break;
    case PARAMSERVER__V1__METHOD__WORKERS:
        MESSAGE(WorkersRequest, WORKERS_REQUEST, r.job = (char *)"job");
        break;
    case PARAMSERVER__V1__METHOD__STOP_JOB:
        MESSAGE(StopJobRequest, STOP_JOB_REQUEST, r.job = (char *)"job");
        break;
    case PARAMSERVER__V1__METHOD__WAITS:
        MESSAGE(WaitsRequest, WAITS_REQUEST, r.job = job);
        break;
    case PARAMSERVER__V1__METHOD__TRACE:
        MESSAGE(TraceRequest, TRACE_REQUEST, r.job = job; r.skip = which / 2);
        break;
    case PARAMSERVER__V1__METHOD__SET_HYPER:
        MESSAGE(SetHyperRequest, SET_HYPER_REQUEST, r.job = (char *)"job"; r.name = (char *)"learning_rate";
                r.value = 0.5; r.round = which % 8);
        break;
    case PARAMSERVER__V1__METHOD__SET_MODE:
        MESSAGE(SetModeRequest, SET_MODE_REQUEST, r.job = (char *)"job";
                r.update = (Paramserver__V1__Update)(which % 5); r.staleness = which / 5 % 3);
        break;
    case PARAMSERVER__V1__METHOD__CHECKPOINT:
        MESSAGE(CheckpointRequest, CHECKPOINT_REQUEST, r.job = (char *)"job"; r.number = which % 3);
        break;
    case PARAMSERVER__V1__METHOD__DRAIN:
        MESSAGE(DrainRequest, DRAIN_REQUEST, r.job = job; r.worker = which % 4; r.undo = which & 8);
        break;
    }
}

void request_make(struct fuzz_job *job, int method, struct feed *f, struct ps_slices *out)
{
    uint8_t who = feed_byte(f), which = feed_byte(f);
    const ProtobufCMessageDescriptor *type = request_type(method);
    if (type == &paramserver__v1__update_request__descriptor) {
        make_update(job, method, who, which, out);
    } else if (type == &paramserver__v1__read_request__descriptor) {
        make_read(job, method, who, which, out);
    } else if (method == PARAMSERVER__V1__METHOD__REDUCE) {
        make_reduce(job, who, which, out);
    } else if (method == PARAMSERVER__V1__METHOD__SET_MEMBERS) {
        make_set_members(job, which, out);
    } else if (method == PARAMSERVER__V1__METHOD__AGREE || method == PARAMSERVER__V1__METHOD__SUM_SQUARES) {
        make_peer(job, method, which, out);
    } else if (method == PARAMSERVER__V1__METHOD__DECLARE) {
        struct declaration d = {0};
        Paramserver__V1__Caller caller = caller_from(job, who);
        fill_declaration(&d, job);
        d.r.caller = &caller;
        d.r.on_existing = (Paramserver__V1__OnExisting)(which % 3);
        ps_msg_pack(&d.r.base, NULL, out);
    } else if (type && type->fields[0].type == PROTOBUF_C_TYPE_MESSAGE) {
        make_membership(job, method, who, which, out);
    } else {
        make_admin(method, which, out);
    }
}

// ---- changes ------------------------------------------------------------------------------------------------------

static const uint64_t numbers[] = {0,          1,          2,          3,          7,          16,         255,
                                   256,        4096,       4097,       0x7fffffff, 1u << 31,   UINT32_MAX, 1ull << 32,
                                   1ull << 40, 1ull << 61, 1ull << 62, INT64_MAX,  1ull << 63, UINT64_MAX};
static const double reals[] = {0, -0.0, 1, -1, 0.5, 1e-320, 1e308, -1e308, INFINITY, -INFINITY, NAN, 1e-7};
static const char *const words[] = {"",
                                    "job",
                                    "a",
                                    "e",
                                    "n",
                                    "big",
                                    "s",
                                    "other",
                                    "b",
                                    "sgd",
                                    "momentum",
                                    "nesterov",
                                    "adagrad",
                                    "adadelta",
                                    "rmsprop",
                                    "adam",
                                    "adamw",
                                    "ftrl",
                                    "adamw_amsgrad",
                                    "nadam",
                                    "adamax",
                                    "lion",
                                    "ema",
                                    "assign_add",
                                    "cosine",
                                    "cosine_restarts",
                                    "polynomial",
                                    "inverse_time",
                                    "piecewise",
                                    "exponential",
                                    "constant",
                                    "learning_rate",
                                    "clipnorm",
                                    "clipvalue",
                                    "global_clipnorm",
                                    "weight_decay",
                                    "\xff",
                                    "job/x",
                                    "%s%n",
                                    "\xc3\xa9"};

// A field of a request or of a message in it.
struct place {
    ProtobufCMessage *m;
    const ProtobufCFieldDescriptor *field;
};

// protobuf-c's generic access, as its documentation lays messages out.
static void *member_of(const struct place *p)
{
    return (char *)p->m + p->field->offset;
}

static size_t *count_of(const struct place *p)
{
    return (size_t *)(void *)((char *)p->m + p->field->quantifier_offset);
}

// Puts the index-th field on *found; index counts down over the message and those in it.
static bool find_place(ProtobufCMessage *m, size_t *index, struct place *found)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        struct place p = {m, &m->descriptor->fields[i]};
        if ((*index)-- == 0) {
            *found = p;
            return true;
        }
        if (p.field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        bool repeated = p.field->label == PROTOBUF_C_LABEL_REPEATED;
        ProtobufCMessage **children = repeated ? *(ProtobufCMessage ***)member_of(&p) : member_of(&p);
        size_t n = repeated ? *count_of(&p) : *children != NULL;
        for (size_t k = 0; k < n; k++)
            if (find_place(children[k], index, found))
                return true;
    }
    return false;
}

static uint64_t changed_number(uint64_t old, uint8_t how, uint8_t value)
{
    switch (how % 4) {
    case 0:
        return numbers[value % (sizeof numbers / sizeof *numbers)];
    case 1:
        return value;
    case 2:
        return old + value;
    default:
        return old - value;
    }
}

static char *fresh_word(uint8_t how, uint8_t value)
{
    if (how % 8 != 7)
        return strdup(words[value % (sizeof words / sizeof *words)]);
    char *word = malloc((size_t)value * 8 + 1);
    memset(word, 'w', (size_t)value * 8);
    word[(size_t)value * 8] = 0;
    return word;
}

static void change_bytes(ProtobufCBinaryData *bytes, uint8_t how, uint8_t value)
{
    size_t len = how & 1 ? value : bytes->len;
    uint8_t *data = calloc(1, len + 1);
    if (bytes->data)
        memcpy(data, bytes->data, len < bytes->len ? len : bytes->len);
    if (!(how & 1) && len)
        data[value % len] ^= how | 1;
    free(bytes->data);
    *bytes = (ProtobufCBinaryData){len, data};
}

// One value of a scalar field, which is not repeated, or its first element.
static void change_scalar(const ProtobufCFieldDescriptor *field, void *at, uint8_t how, uint8_t value)
{
    uint64_t u64;
    uint32_t u32;
    double real = reals[value % (sizeof reals / sizeof *reals)];
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT64:
        memcpy(&u64, at, sizeof u64);
        u64 = changed_number(u64, how, value);
        memcpy(at, &u64, sizeof u64);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM:
        memcpy(&u32, at, sizeof u32);
        u32 = (uint32_t)changed_number(u32, how, value);
        memcpy(at, &u32, sizeof u32);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at ^= 1;
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(at, &real, sizeof real);
        break;
    default:
        break;
    }
}

static size_t width_of(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_UINT64 || field->type == PROTOBUF_C_TYPE_DOUBLE ? 8 : 4;
}

static ProtobufCMessage *copy_of(const ProtobufCMessage *m)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = malloc(n + 1);
    protobuf_c_message_pack(m, packed);
    ProtobufCMessage *copy = protobuf_c_message_unpack(m->descriptor, NULL, n, packed);
    free(packed);
    return copy;
}

// An element less, one more, or one changed.
static void change_list(const struct place *p, uint8_t how, uint8_t value)
{
    size_t *n = count_of(p), width = p->field->type == PROTOBUF_C_TYPE_MESSAGE ? sizeof(void *) : width_of(p->field);
    char **list = member_of(p);
    bool messages = p->field->type == PROTOBUF_C_TYPE_MESSAGE;
    if (how % 3 == 0 && *n) {
        --*n;
        if (messages)
            protobuf_c_message_free_unpacked(((ProtobufCMessage **)(void *)*list)[*n], NULL);
    } else if (how % 3 == 1 && (*n || !messages)) {
        *list = realloc(*list, (*n + 1) * width);
        memset(*list + *n * width, 0, width);
        if (messages)
            ((ProtobufCMessage **)(void *)*list)[*n] = copy_of(((ProtobufCMessage **)(void *)*list)[value % *n]);
        else
            change_scalar(p->field, *list + *n * width, how >> 2, value);
        ++*n;
    } else if (*n && !messages) {
        change_scalar(p->field, *list + (how >> 4) % *n * width, how >> 2, value);
    }
}

static void change_place(const struct place *p, uint8_t how, uint8_t value)
{
    void *at = member_of(p);
    if (p->field->label == PROTOBUF_C_LABEL_REPEATED) {
        change_list(p, how, value);
    } else if (p->field->type == PROTOBUF_C_TYPE_MESSAGE) {
        protobuf_c_message_free_unpacked(*(ProtobufCMessage **)at, NULL);
        *(ProtobufCMessage **)at = NULL;
    } else if (p->field->type == PROTOBUF_C_TYPE_STRING) {
        if (*(const char **)at != p->field->default_value)
            free(*(char **)at);
        *(char **)at = fresh_word(how, value);
    } else if (p->field->type == PROTOBUF_C_TYPE_BYTES) {
        change_bytes(at, how, value);
    } else {
        change_scalar(p->field, at, how, value);
    }
}

// Shorter, longer, or other bytes in it.
static void change_payload(struct ps_slices *payload, uint8_t how, uint8_t value)
{
    size_t len = how % 4 == 0 ? payload->len / 2 : how % 4 == 1 ? payload->len + value : payload->len;
    uint8_t *data;
    struct ps_slice s = ps_slice_new(len, &data);
    memset(data, 0, len);
    ps_slices_copy_out(payload, 0, len < payload->len ? len : payload->len, data);
    for (size_t i = 0; how % 4 >= 2 && i < len; i += how % 4 == 2 ? 1 : 1 + value)
        data[i] = value;
    ps_slices_clear(payload);
    ps_slices_add(payload, s);
}

void request_change(int method, int n, struct feed *f, struct ps_slices *request)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    ProtobufCMessage *decoded;
    if (n == 0 || ps_msg_unpack(request_type(method), request, &decoded, &payload, NULL))
        return;
    ProtobufCMessage *m = copy_of(decoded);  // whose parts can be freed and replaced one by one
    ps_msg_free(decoded);
    for (; n; n--) {
        size_t index = feed_byte(f);
        uint8_t how = feed_byte(f), value = feed_byte(f);
        struct place p;
        if (index == UINT8_MAX || !find_place(m, &index, &p) || p.field->id == PS_PAYLOAD_FIELD)
            change_payload(&payload, how, value);
        else
            change_place(&p, how, value);
    }
    ps_slices_clear(request);
    ps_msg_pack(m, &payload, request);
    protobuf_c_message_free_unpacked(m, NULL);
}
