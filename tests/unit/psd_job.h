// SPDX-License-Identifier: Apache-2.0
//
// A job in a psd core, for tests that ask the core directly: two workers, two variables, calls by one line each.
#ifndef TEST_PSD_JOB_H
#define TEST_PSD_JOB_H

#include "psd/control/state.h"
#include "tests/unit/psd_core.h"

#define M(name) PARAMSERVER__V1__METHOD__##name
#define SYNC PARAMSERVER__V1__UPDATE__SYNC
#define ASYNC PARAMSERVER__V1__UPDATE__ASYNC

// Job "job" of two workers with variables "a" (3, 5) and "big" of `big` elements, both trainable.
struct job {
    struct psd_core *core;
    uint64_t shape[2], big_shape[1];
    Paramserver__V1__Variable a, big;
    Paramserver__V1__Partition pa, pbig;
    Paramserver__V1__Variable *variables[2];
    Paramserver__V1__Partition *partitions[2];
};

// Requests that a test may spoil or change before it asks.
struct joining {
    Paramserver__V1__JoinRequest r;
    Paramserver__V1__Caller caller;
};

static inline void join_init(struct joining *x, uint32_t rank, Paramserver__V1__Update update)
{
    paramserver__v1__join_request__init(&x->r);
    x->caller = caller_of(rank, 0);
    x->r.caller = &x->caller;
    x->r.address = (char *)"pid 1 on here";
    x->r.workers = 2;
    x->r.update = update;
}

static inline struct answer join(struct psd_core *core, uint32_t rank, Paramserver__V1__Update update)
{
    struct joining x;
    join_init(&x, rank, update);
    return ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL);
}

// What the last join_again was told, by rank; at first as of a worker that comes back to the first run.
static struct again {
    uint64_t run, incarnation;
} test_again[8];

static inline void forget_again(void)
{
    for (uint32_t rank = 0; rank < 8; rank++)
        test_again[rank] = (struct again){1, 2};
}

// The same rank in another process: a later one.
static inline void another_process(Paramserver__V1__Caller *caller)
{
    static uint8_t ids[8][16];
    memset(ids[caller->worker - 1], 'A' + (int)caller->worker, 16);
    caller->client.data = ids[caller->worker - 1];
    if (!test_again[0].run)
        forget_again();
    caller->run = test_again[caller->worker - 1].run;
    caller->incarnation = test_again[caller->worker - 1].incarnation;
}

static inline struct answer join_again(struct psd_core *core, uint32_t rank, Paramserver__V1__Update update,
                                       Paramserver__V1__OnExisting on_existing)
{
    struct joining x;
    join_init(&x, rank, update);
    another_process(&x.caller);
    x.r.on_existing = on_existing;
    ProtobufCMessage *m = NULL;
    struct answer a = ask(core, M(JOIN), &x.r.base, NULL, &paramserver__v1__join_reply__descriptor, &m, NULL);
    if (m) {
        const Paramserver__V1__JoinReply *reply = (Paramserver__V1__JoinReply *)m;
        test_again[rank] = (struct again){reply->run, reply->incarnation};
        ps_msg_free(m);
    }
    return a;
}

struct declaring {
    Paramserver__V1__DeclareRequest r;
    Paramserver__V1__Caller caller;
};

static inline void declare_init(struct declaring *x, struct job *j, Paramserver__V1__Update update, const char *rule)
{
    paramserver__v1__declare_request__init(&x->r);
    x->caller = caller_of(0, 0);
    x->r.caller = &x->caller;
    x->r.update = update;
    x->r.workers = 2;
    x->r.tasks = j->core->config.tasks;
    x->r.task = j->core->config.task;
    x->r.rule = (char *)rule;
    x->r.variables = j->variables;
    x->r.partitions = j->partitions;
    x->r.n_variables = x->r.n_partitions = 2;
}

static inline struct answer declare(struct job *j, Paramserver__V1__Update update, const char *rule)
{
    struct declaring x;
    declare_init(&x, j, update, rule);
    return ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
}

static inline void fill_job(struct job *j, uint64_t big)
{
    paramserver__v1__variable__init(&j->a);
    paramserver__v1__variable__init(&j->big);
    paramserver__v1__partition__init(&j->pa);
    paramserver__v1__partition__init(&j->pbig);
    j->shape[0] = 3;
    j->shape[1] = 5;
    j->big_shape[0] = big;
    j->a.name = (char *)"a";
    j->a.n_shape = 2;
    j->a.shape = j->shape;
    j->big.name = (char *)"big";
    j->big.n_shape = 1;
    j->big.shape = j->big_shape;
    j->a.dtype = j->big.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    j->a.trainable = j->big.trainable = true;
    j->pa.count = 15;
    j->pbig.variable = 1;
    j->pbig.count = big;
    j->variables[0] = &j->a;
    j->variables[1] = &j->big;
    j->partitions[0] = &j->pa;
    j->partitions[1] = &j->pbig;
}

static inline void job_open(struct job *j, Paramserver__V1__Update update, const char *rule, uint64_t big,
                            uint64_t memory)
{
    fill_job(j, big);
    forget_again();
    j->core = core_new(memory);
    assert_int_equal(join(j->core, 0, update).code, PS_OK);
    assert_int_equal(join(j->core, 1, update).code, PS_OK);
    struct answer a = declare(j, update, rule);
    if (a.code)
        fail_msg("declare: %s", a.text);
}

// What the pool has given out, but for what is kept of workers, of clients and of what they have changed.
static inline size_t pages_used(struct psd_core *core)
{
    size_t used = psd_pool_used(&core->pool);
    for (const struct psd_job *job = core->table.newest; job; job = job->older)
        used -= job->store.dedup_bytes + psd_clients_bytes(&job->clients) + (job->control ? job->control->room : 0);
    return used;
}

// A push (or put, or add) of `count` floats of `value` to elements from `first` on of a variable.
struct update {
    Paramserver__V1__UpdateRequest r;
    Paramserver__V1__Caller caller;
    Paramserver__V1__Tensor t, *tensors[1];
    uint64_t shape[2];
};

static inline void update_init(struct update *u, uint32_t rank, uint64_t sequence, const char *name, uint64_t first,
                               uint64_t count)
{
    paramserver__v1__update_request__init(&u->r);
    paramserver__v1__tensor__init(&u->t);
    u->caller = caller_of(rank, sequence);
    u->r.caller = &u->caller;
    u->r.examples = 1;
    u->t.variable = (char *)name;
    u->t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    u->t.first = first;
    u->t.count = count;
    u->tensors[0] = &u->t;
    u->r.tensors = u->tensors;
    u->r.n_tensors = 1;
}

static inline struct answer send_update(struct psd_core *core, struct update *u, int method, size_t n, float value,
                                        Paramserver__V1__UpdateReply **reply)
{
    struct ps_slices payload = floats(n, value);
    return ask(core, method, &u->r.base, &payload, &paramserver__v1__update_reply__descriptor,
               (ProtobufCMessage **)reply, NULL);
}

static inline float read_one_at(struct psd_core *core, const char *name, uint64_t at)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    ProtobufCMessage *reply = NULL;
    struct ps_slices bytes = PS_SLICES_EMPTY;
    float value = -1;
    caller.worker = caller.run = 0;  // in whichever run the job is
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    t.variable = (char *)name;
    t.first = at;
    t.count = 1;
    struct answer a = ask(core, M(GET), &r.base, NULL, &paramserver__v1__read_reply__descriptor, &reply, &bytes);
    if (a.code)
        fail_msg("get: %s", a.text);
    assert_int_equal(bytes.len, sizeof value);
    ps_slices_copy_out(&bytes, 0, sizeof value, &value);
    ps_slices_clear(&bytes);
    ps_msg_free(reply);
    return value;
}

static inline float read_one(struct psd_core *core, const char *name)
{
    return read_one_at(core, name, 0);
}

// An update that is taken; its only tensor's result.
static inline Paramserver__V1__TensorResult update_ok(struct psd_core *core, struct update *u, int method, size_t n,
                                                      float value)
{
    Paramserver__V1__UpdateReply *reply = NULL;
    struct answer a = send_update(core, u, method, n, value, &reply);
    if (a.code)
        fail_msg("update: %s", a.text);
    Paramserver__V1__TensorResult result = *reply->results[0];
    ps_msg_free(&reply->base);
    return result;
}

// reason NULL: it is done; else it has failed.
static inline struct answer leave(struct psd_core *core, uint32_t rank, const char *reason)
{
    Paramserver__V1__LeaveRequest r = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    r.caller = &caller;
    r.failed = reason != NULL;
    if (reason)
        r.reason = (char *)reason;
    return ask(core, M(LEAVE), &r.base, NULL, NULL, NULL, NULL);
}

#endif
