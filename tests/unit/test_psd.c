// SPDX-License-Identifier: Apache-2.0
//
// The psd core by itself: what a request may not be, what it changes, what it leaves alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "common/base/clock.h"
#include "psd/service/reply.h"
#include "tests/unit/psd_job.h"

// ---- bad input ----------------------------------------------------------------------------------------------------

// One row: how the good push is spoiled, and what is said. It must leave "a" at 0.
struct bad {
    const char *what;
    void (*spoil)(struct update *u);
    enum ps_code code;
    const char *text;
};

#define SPOIL(name, statement)         \
    static void name(struct update *u) \
    {                                  \
        statement;                     \
    }
SPOIL(no_caller, u->r.caller = NULL)
SPOIL(protocol, u->caller.protocol = PS_PROTOCOL + 1)
SPOIL(empty_job, u->caller.job = (char *)"")
SPOIL(other_job, u->caller.job = (char *)"other")
SPOIL(short_client, u->caller.client.len = 15)
SPOIL(generation, u->caller.generation = 99)
SPOIL(no_sequence, u->caller.sequence = 0)
SPOIL(oldest_above, u->caller.oldest = 9)
SPOIL(window, u->caller.sequence = 1 + PS_WINDOW)
SPOIL(rank, u->caller.worker = 7)
SPOIL(incarnation, u->caller.incarnation = 0)
SPOIL(identity, u->caller.worker = 2)
SPOIL(no_tensor, u->r.n_tensors = 0)
SPOIL(variable, u->t.variable = (char *)"b")
SPOIL(no_dtype, u->t.dtype = 0)
SPOIL(dtype, u->t.dtype = PARAMSERVER__V1__DTYPE__FLOAT64)
SPOIL(unknown_dtype, u->t.dtype = 77)
SPOIL(shape, u->t.n_shape = 2; u->t.shape = u->shape; u->shape[0] = 5; u->shape[1] = 3)
SPOIL(rank_of_shape, u->t.n_shape = 1; u->t.shape = u->shape; u->shape[0] = 15)
SPOIL(past_end, u->t.first = 1)
SPOIL(overflow, u->t.first = UINT64_MAX)
SPOIL(part_of_block, u->t.count = 14)
SPOIL(wrong_payload, u->t.variable = (char *)"big"; u->t.count = 20)
SPOIL(no_round, u->r.round = 0)
SPOIL(round_ahead, u->r.round = 3)
SPOIL(not_a_worker, u->caller.worker = 0; u->caller.client.data = (uint8_t *)"0123456789abcdef")

static const struct bad bad_updates[] = {
    {"no caller", no_caller, PS_INVALID_ARGUMENT, "names no caller"},
    {"another protocol", protocol, PS_FAILED_PRECONDITION, "protocol 3"},
    {"no job name", empty_job, PS_INVALID_ARGUMENT, "name of 1 to 128"},
    {"unknown job", other_job, PS_NOT_FOUND, "no job 'other'"},
    {"short client id", short_client, PS_INVALID_ARGUMENT, "15 bytes, expected 16"},
    {"old generation", generation, PS_ABORTED, "restarted"},
    {"sequence 0", no_sequence, PS_INVALID_ARGUMENT, "1 <= oldest <= sequence"},
    {"oldest above sequence", oldest_above, PS_INVALID_ARGUMENT, "1 <= oldest <= sequence"},
    {"sequence past the window", window, PS_INVALID_ARGUMENT, "at most 256"},
    {"rank past the workers", rank, PS_INVALID_ARGUMENT, "worker 6"},
    {"old incarnation", incarnation, PS_ABORTED, "taken for dead"},
    {"another identity", identity, PS_INVALID_ARGUMENT, "another worker"},
    {"no tensor", no_tensor, PS_INVALID_ARGUMENT, "names no tensor"},
    {"unknown variable", variable, PS_NOT_FOUND, "no variable 'b'"},
    {"no dtype", no_dtype, PS_INVALID_ARGUMENT, "without a dtype"},
    {"another dtype", dtype, PS_INVALID_ARGUMENT, "is float32, the request says float64"},
    {"no such dtype", unknown_dtype, PS_INVALID_ARGUMENT, "unknown dtype"},
    {"another shape", shape, PS_INVALID_ARGUMENT, "(3, 5), the request says (5, 3)"},
    {"another rank", rank_of_shape, PS_INVALID_ARGUMENT, "(3, 5), the request says (15,)"},
    {"range past the end", past_end, PS_OUT_OF_RANGE, "has 15 elements"},
    {"range that overflows", overflow, PS_OUT_OF_RANGE, "has 15 elements"},
    {"part of a block", part_of_block, PS_INVALID_ARGUMENT, "whole blocks"},
    {"payload of another length", wrong_payload, PS_INVALID_ARGUMENT, "80 bytes of payload, 60 came"},
    {"no round", no_round, PS_INVALID_ARGUMENT, "names its round"},
    {"a round ahead", round_ahead, PS_FAILED_PRECONDITION, "round 1 is open, the push is for round 3"},
    {"from no worker", not_a_worker, PS_INVALID_ARGUMENT, "comes from one of its workers"},
};

static void test_bad_updates(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    // The client is known as worker 0, so that another identity is one.
    struct update first;
    update_init(&first, 0, 1, "a", 0, 15);
    assert_int_equal(send_update(j.core, &first, M(PUT), 15, 0, NULL).code, PS_OK);
    for (size_t i = 0; i < sizeof bad_updates / sizeof bad_updates[0]; i++) {
        struct update u;
        update_init(&u, 0, 2, "a", 0, 15);
        u.r.round = 1;
        bad_updates[i].spoil(&u);
        if (bad_updates[i].spoil == window)
            u.caller.oldest = 1;
        struct answer a = send_update(j.core, &u, M(PUSH), 15, 1, NULL);
        if (a.code != bad_updates[i].code || !strstr(a.text, bad_updates[i].text))
            fail_msg("%s: %s: %s", bad_updates[i].what, ps_code_name(a.code), a.text);
        assert_true(read_one(j.core, "a") == 0);
    }
    // None of them took part in the round: the two real gradients close it, and are all there is in it.
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct update u;
        update_init(&u, rank, 2, "a", 0, 15);
        u.r.round = 1;
        struct answer a = send_update(j.core, &u, M(PUSH), 15, 100, NULL);
        if (a.code)
            fail_msg("worker %u: %s", rank, a.text);
    }
    assert_true(read_one(j.core, "a") == -1);
    psd_core_destroy(j.core);
}

// ---- encoded gradients --------------------------------------------------------------------------------------------

// A push of n elements of `name` from first on, whose payload are these bytes.
static struct answer push_encoded(struct psd_core *core, uint64_t sequence, const char *name, uint64_t first,
                                  uint64_t n, Paramserver__V1__DType dtype, const void *bytes, size_t len)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct update u;
    update_init(&u, 0, sequence, name, first, n);
    u.t.dtype = dtype;
    for (size_t at = 0; at < len; at += 7)  // as they may come from a socket
        ps_slices_add(&payload, ps_slice_copy((const uint8_t *)bytes + at, len - at < 7 ? len - at : 7));
    return ask(core, M(PUSH), &u.r.base, &payload, NULL, NULL, NULL);
}

// The rule is sgd, whose rate is 0.01. Elements 200 to 499 of `big` lie in two groups, and the first is 100 half ones.
static void test_encoded(void **state)
{
    struct job j;
    uint8_t bytes[2 * sizeof(float) + 300];
    const float scales[] = {0.5f, 2};
    const uint16_t halves[15] = {0x3fc0};  // 1.5
    (void)state;
    job_open(&j, ASYNC, "sgd", 600, 1 << 20);
    const unsigned long long before = atomic_load(&j.core->table.newest->bytes_moved);
    assert_int_equal(push_encoded(j.core, 1, "a", 0, 15, PARAMSERVER__V1__DTYPE__BFLOAT16, halves, 30).code, PS_OK);
    assert_true(read_one(j.core, "a") == -1.5f * 0.01f);
    memcpy(bytes, scales, sizeof scales);
    memset(bytes + sizeof scales, 100, 300);
    bytes[sizeof scales + 299] = (uint8_t)-3;
    struct answer a =
        push_encoded(j.core, 2, "big", 200, 300, PARAMSERVER__V1__DTYPE__SCALED_INT8, bytes, sizeof bytes);
    if (a.code)
        fail_msg("%s", a.text);
    assert_true(read_one_at(j.core, "big", 199) == 0);
    assert_true(read_one_at(j.core, "big", 200) == -50.0f * 0.01f);
    assert_true(read_one_at(j.core, "big", 255) == -50.0f * 0.01f);
    assert_true(read_one_at(j.core, "big", 256) == -200.0f * 0.01f);
    assert_true(read_one_at(j.core, "big", 499) == 6.0f * 0.01f);
    assert_true(read_one_at(j.core, "big", 500) == 0);
    assert_true(atomic_load(&j.core->table.newest->bytes_moved) - before == 30 + sizeof bytes + 7 * sizeof(float));
    psd_core_destroy(j.core);
}

static void test_bad_encoded(void **state)
{
    enum { MANY = (2 << 20) + 1 };
    static uint8_t bytes[MANY + 4 * (MANY / 256 + 1)];
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", MANY, 64 << 20);
    a = push_encoded(j.core, 1, "a", 0, 15, PARAMSERVER__V1__DTYPE__SCALED_INT8, bytes, 18);
    assert_true(a.code == PS_INVALID_ARGUMENT && strstr(a.text, "'a': 15 elements of scaled_int8 are 19 bytes"));
    a = push_encoded(j.core, 1, "a", 0, 15, PARAMSERVER__V1__DTYPE__SCALED_INT8, bytes, 20);
    assert_true(a.code == PS_INVALID_ARGUMENT && strstr(a.text, "need 19 bytes of payload, 20 came"));
    a = push_encoded(j.core, 1, "big", 0, MANY, PARAMSERVER__V1__DTYPE__SCALED_INT8, bytes, sizeof bytes);
    assert_true(a.code == PS_INVALID_ARGUMENT && strstr(a.text, "at most 8388608 bytes as they are decoded"));
    a = push_encoded(j.core, 1, "b", 0, 15, PARAMSERVER__V1__DTYPE__SCALED_INT8, bytes, 19);
    assert_int_equal(a.code, PS_NOT_FOUND);
    struct update u;
    update_init(&u, 0, 1, "a", 0, 15);
    u.t.dtype = PARAMSERVER__V1__DTYPE__SCALED_INT8;
    a = send_update(j.core, &u, M(PUT), 15, 1, NULL);
    assert_true(a.code == PS_INVALID_ARGUMENT && strstr(a.text, "is float32, the request says scaled_int8"));
    u.r.atomic_bytes = 19;
    a = send_update(j.core, &u, M(PUSH), 15, 1, NULL);
    assert_true(a.code == PS_INVALID_ARGUMENT && strstr(a.text, "an encoded gradient in an atomic update"));
    assert_true(read_one(j.core, "a") == 0 && read_one(j.core, "big") == 0);
    psd_core_destroy(j.core);
}

static void test_bad_messages(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    for (int method = 0; method <= M(SET_MEMBERS) + 1; method++) {
        struct answer a = {.call = {.method = method, .deadline = UINT64_MAX, .reply = on_reply}};
        ps_slices_add(&a.call.request, ps_slice_copy("\xff\xff\xff\xff\xff\xff", 6));
        psd_core_call(j.core, &a.call);
        assert_true(a.answered && a.code != PS_OK && a.text[0]);
    }
    psd_core_destroy(j.core);
}

// A request of one good and one bad tensor changes nothing, and takes no sequence.
static void test_all_or_nothing(void **state)
{
    struct job j;
    struct update u;
    Paramserver__V1__Tensor bad = PARAMSERVER__V1__TENSOR__INIT;
    (void)state;
    job_open(&j, ASYNC, "assign_add", 20, 1 << 20);
    update_init(&u, 0, 1, "a", 0, 15);
    Paramserver__V1__Tensor *tensors[] = {&u.t, &bad};
    bad.variable = (char *)"b";
    u.r.tensors = tensors;
    u.r.n_tensors = 2;
    assert_int_equal(send_update(j.core, &u, M(PUSH), 35, 1, NULL).code, PS_NOT_FOUND);
    assert_true(read_one(j.core, "a") == 0);
    u.r.n_tensors = 1;
    assert_int_equal(update_ok(j.core, &u, M(PUSH), 15, 1).outcome, PARAMSERVER__V1__OUTCOME__APPLIED);
    assert_true(read_one(j.core, "a") == 1);
    psd_core_destroy(j.core);
}

struct bad_declaration {
    const char *what;
    void (*spoil)(struct job *j);
    enum ps_code code;
    const char *text;
};

#define SPOIL_JOB(name, statement)  \
    static void name(struct job *j) \
    {                               \
        statement;                  \
    }
SPOIL_JOB(zero_dim, j->shape[0] = 0)
SPOIL_JOB(huge, j->shape[0] = j->shape[1] = UINT64_C(1) << 32)
SPOIL_JOB(too_big, j->big_shape[0] = j->pbig.count = 1 << 20)
SPOIL_JOB(twice, j->big.name = (char *)"a")
SPOIL_JOB(nameless, j->a.name = (char *)"")
SPOIL_JOB(not_float, j->a.dtype = PARAMSERVER__V1__DTYPE__INT64)
SPOIL_JOB(hole, j->pa.count = 14)
SPOIL_JOB(overlap, j->pbig.first = 3)
SPOIL_JOB(no_task, j->pa.task = 1)
SPOIL_JOB(stray, j->pbig.variable = 9)

static const struct bad_declaration bad_declarations[] = {
    {"dimension 0", zero_dim, PS_INVALID_ARGUMENT, "dimension 0 is 0"},
    {"2^64 elements", huge, PS_INVALID_ARGUMENT, "overflows"},
    {"more than the memory", too_big, PS_FAILED_PRECONDITION, "would need 4"},
    {"a name twice", twice, PS_INVALID_ARGUMENT, "declared twice"},
    {"no name", nameless, PS_INVALID_ARGUMENT, "needs a name"},
    {"trainable int64", not_float, PS_INVALID_ARGUMENT, "must be float32"},
    {"a hole", hole, PS_INVALID_ARGUMENT, "cover 14 of its 15"},
    {"an overlap", overlap, PS_INVALID_ARGUMENT, "begins at 0"},
    {"a task that is not there", no_task, PS_INVALID_ARGUMENT, "task 1"},
    {"a partition of no variable", stray, PS_INVALID_ARGUMENT, "cover 0 of its 20"},
};

// A declaration that is refused leaves the job undeclared and no memory behind: the good one is taken afterwards.
static void test_bad_declarations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_declarations / sizeof bad_declarations[0]; i++) {
        struct job j;
        fill_job(&j, 20);
        j.core = core_new(1 << 20);
        assert_int_equal(join(j.core, 0, ASYNC).code, PS_OK);
        bad_declarations[i].spoil(&j);
        struct answer a = declare(&j, ASYNC, "sgd");
        if (a.code != bad_declarations[i].code || !strstr(a.text, bad_declarations[i].text))
            fail_msg("%s: %s: %s", bad_declarations[i].what, ps_code_name(a.code), a.text);
        assert_int_equal(pages_used(j.core), 0);
        fill_job(&j, 20);
        assert_int_equal(declare(&j, ASYNC, "sgd").code, PS_OK);
        psd_core_destroy(j.core);
    }
}

// What psd takes clients can decode the description of.
static void test_many_partitions(void **state)
{
    static Paramserver__V1__Partition p[PS_MAX_PARTITIONS + 1], *pointers[PS_MAX_PARTITIONS + 1];
    Paramserver__V1__DescribeRequest describe = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    ProtobufCMessage *m = NULL;
    struct job j;
    struct declaring x;
    (void)state;
    for (uint32_t n = PS_MAX_PARTITIONS + 1; n >= PS_MAX_PARTITIONS; n--) {
        fill_job(&j, n - 1);
        j.core = core_new(256 << 20);
        assert_int_equal(join(j.core, 0, ASYNC).code, PS_OK);
        declare_init(&x, &j, ASYNC, "sgd");
        for (uint32_t i = 0; i < n; i++) {
            paramserver__v1__partition__init(pointers[i] = &p[i]);
            p[i].variable = i > 0;
            p[i].first = i ? i - 1 : 0;
            p[i].count = i ? 1 : 15;
        }
        x.r.partitions = pointers;
        x.r.n_partitions = n;
        struct answer a = ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
        assert_int_equal(a.code, n > PS_MAX_PARTITIONS ? PS_INVALID_ARGUMENT : PS_OK);
        assert_true(a.code == PS_OK || strstr(a.text, "65537 partitions; expected at most 65536"));
        describe.caller = &caller;
        if (a.code == PS_OK)
            ask(j.core, M(DESCRIBE), &describe.base, NULL, &paramserver__v1__describe_reply__descriptor, &m, NULL);
        assert_true(a.code != PS_OK || m);
        ps_msg_free(m);
        psd_core_destroy(j.core);
    }
}

enum { MANY_SCALARS = 40000 };

// Scalars whose names have so many bytes, each with that rule of its own.
static struct answer declare_many(struct job *j, int name, const char *rule)
{
    static Paramserver__V1__Partition p[MANY_SCALARS], *ps[MANY_SCALARS];
    static Paramserver__V1__Variable v[MANY_SCALARS], *vs[MANY_SCALARS];
    static char names[MANY_SCALARS][128];
    struct declaring x;
    declare_init(&x, j, ASYNC, "sgd");
    for (uint32_t i = 0; i < MANY_SCALARS; i++) {
        paramserver__v1__partition__init(ps[i] = &p[i]);
        p[i].variable = i;
        p[i].count = 1;
        paramserver__v1__variable__init(vs[i] = &v[i]);
        snprintf(names[i], sizeof names[i], "%0*u", name, i);
        v[i].name = names[i];
        v[i].dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
        v[i].trainable = true;
        v[i].rule = (char *)rule;
    }
    x.r.variables = vs;
    x.r.partitions = ps;
    x.r.n_variables = x.r.n_partitions = MANY_SCALARS;
    return ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
}

// What is declared can be described to others: what could not be is refused. Where the state of its partitions makes it
// too large, that is left out.
static void test_large_descriptions(void **state)
{
    Paramserver__V1__DescribeRequest describe = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    ProtobufCMessage *m = NULL;
    struct job j;
    (void)state;
    fill_job(&j, 20);
    j.core = core_new(512 << 20);
    assert_int_equal(join(j.core, 0, ASYNC).code, PS_OK);
    struct answer a = declare_many(&j, 20, "adam");
    assert_int_equal(a.code, PS_INVALID_ARGUMENT);
    assert_non_null(strstr(a.text, "their names 800000 of them; expected at most 4194304"));
    a = declare_many(&j, 88, "");
    if (a.code)
        fail_msg("%s", a.text);
    describe.caller = &caller;
    ask(j.core, M(DESCRIBE), &describe.base, NULL, &paramserver__v1__describe_reply__descriptor, &m, NULL);
    assert_non_null(m);
    assert_int_equal(((Paramserver__V1__DescribeReply *)m)->n_variables, MANY_SCALARS);
    assert_int_equal(((Paramserver__V1__DescribeReply *)m)->n_states, 0);
    ps_msg_free(m);
    psd_core_destroy(j.core);
}

static void test_push_before_declare(void **state)
{
    struct update u;
    struct psd_core *core = core_new(1 << 20);
    (void)state;
    assert_int_equal(join(core, 0, ASYNC).code, PS_OK);
    update_init(&u, 0, 1, "a", 0, 15);
    struct answer a = send_update(core, &u, M(PUSH), 15, 1, NULL);
    assert_int_equal(a.code, PS_FAILED_PRECONDITION);
    assert_non_null(strstr(a.text, "not declared"));
    psd_core_destroy(core);
}

// ---- exactly once -------------------------------------------------------------------------------------------------

enum { THREADS = 64, ROUNDS = 24 / TEST_PART };

struct racer {
    struct psd_core *core;
    pthread_barrier_t *start;
    atomic_uint *applied;
    uint64_t sequence;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    struct update u;
    Paramserver__V1__UpdateReply *reply = NULL;
    update_init(&u, 0, r->sequence, "big", 0, 200000);
    pthread_barrier_wait(r->start);
    if (send_update(r->core, &u, M(PUSH), 200000, 1, &reply).code == PS_OK)
        atomic_fetch_add(r->applied, reply->results[0]->blocks - reply->results[0]->duplicates);
    ps_msg_free(&reply->base);
    return NULL;
}

// 64 threads send one push under one sequence: each of its two blocks is changed once.
static void test_one_sequence(void **state)
{
    struct job j;
    pthread_t thread[THREADS];
    pthread_barrier_t start;
    atomic_uint applied = 0;
    (void)state;
    job_open(&j, ASYNC, "assign_add", 200000, 8 << 20);
    pthread_barrier_init(&start, NULL, THREADS);
    for (uint64_t k = 1; k <= ROUNDS; k++) {
        struct racer r = {j.core, &start, &applied, k};
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, race, &r), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(thread[i], NULL);
        assert_true(read_one(j.core, "big") == (float)k);
    }
    assert_int_equal(atomic_load(&applied), 2 * ROUNDS);
    pthread_barrier_destroy(&start);
    psd_core_destroy(j.core);
}

// The window moves: what is below `oldest` counts as taken, what is above is not confused with it.
static void test_window(void **state)
{
    struct job j;
    struct update u;
    float sum = 0;
    (void)state;
    job_open(&j, ASYNC, "assign_add", 20, 1 << 20);
    for (uint64_t s = 1; s < 2000; s += 1 + s % 7) {
        for (int again = 0; again < 2; again++) {
            update_init(&u, 0, s, "a", 0, 15);
            u.caller.oldest = s > 200 ? s - 200 : 1;
            assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 1, NULL).code, PS_OK);
        }
        assert_true(read_one(j.core, "a") == ++sum);
    }
    update_init(&u, 0, 3, "a", 0, 15);
    u.caller.oldest = 1;
    assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 1, NULL).code, PS_OK);
    assert_true(read_one(j.core, "a") == sum);
    psd_core_destroy(j.core);
}

// A copy of a request that its client has given up, as another block has heard, is not applied where it comes first.
static void test_given_up(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    job_open(&j, ASYNC, "assign_add", 20, 1 << 20);
    update_init(&u, 0, 5, "big", 0, 20);
    update_ok(j.core, &u, M(PUSH), 20, 1);
    update_init(&u, 0, 3, "a", 0, 15);
    u.caller.oldest = 1;
    assert_int_equal(update_ok(j.core, &u, M(PUSH), 15, 1).outcome, PARAMSERVER__V1__OUTCOME__DUPLICATE);
    assert_true(read_one(j.core, "a") == 0);
    psd_core_destroy(j.core);
}

// ---- rounds -------------------------------------------------------------------------------------------------------

// The second gradient of a worker for one round is refused and does not stand in for the other worker's.
static void test_two_gradients(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint64_t s = 1; s <= 2; s++) {
        update_init(&u, 0, s, "a", 0, 15);
        u.r.round = 1;
        struct answer a = send_update(j.core, &u, M(PUSH), 15, 100, NULL);
        assert_int_equal(a.code, s == 1 ? PS_OK : PS_ALREADY_EXISTS);
        assert_true(read_one(j.core, "a") == 0);
    }
    update_init(&u, 1, 1, "a", 0, 15);
    u.r.round = 1;
    u.r.examples = 3;
    assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 200, NULL).code, PS_OK);
    // 0 - 0.01 * (1 * 100 + 3 * 200) / 4
    assert_true(read_one(j.core, "a") == -1.75f);
    psd_core_destroy(j.core);
}

static Paramserver__V1__Outcome push_round(struct psd_core *core, uint32_t rank, uint64_t sequence, uint64_t round,
                                           uint64_t first, uint64_t count)
{
    struct update u;
    update_init(&u, rank, sequence, "big", first, count);
    u.r.round = round;
    return update_ok(core, &u, M(PUSH), count, 100).outcome;
}

// A gradient for a round that is closed is dropped, again and again, and does not stand in the next one.
static void test_stale(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(push_round(j.core, rank, 1, 1, 0, 20), PARAMSERVER__V1__OUTCOME__QUEUED);
    for (int i = 0; i < 2; i++)
        assert_int_equal(push_round(j.core, 0, 2, 1, 0, 20), PARAMSERVER__V1__OUTCOME__STALE);
    assert_int_equal(push_round(j.core, 0, 1, 1, 0, 20), PARAMSERVER__V1__OUTCOME__DUPLICATE);
    assert_int_equal(push_round(j.core, 1, 2, 2, 0, 20), PARAMSERVER__V1__OUTCOME__QUEUED);
    assert_true(read_one(j.core, "big") == -1);
    assert_int_equal(push_round(j.core, 0, 3, 2, 0, 20), PARAMSERVER__V1__OUTCOME__QUEUED);
    assert_true(read_one(j.core, "big") == -2);
    psd_core_destroy(j.core);
}

// A gradient that is in by one of two blocks neither closes the round nor, once its worker has left, counts in it.
static void test_part_of_a_gradient(void **state)
{
    enum { BLOCK = PS_BLOCK_BYTES / sizeof(float), N = 200000 };
    struct job j;
    struct update u;
    (void)state;
    job_open(&j, SYNC, "sgd", N, 8 << 20);
    update_init(&u, 1, 1, "big", 0, BLOCK);
    u.r.round = 1;
    update_ok(j.core, &u, M(PUSH), BLOCK, 900);
    push_round(j.core, 0, 1, 1, 0, N);
    assert_true(read_one(j.core, "big") == 0);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    assert_true(read_one(j.core, "big") == -1);
    psd_core_destroy(j.core);
}

// A rule that counts its steps counts rounds as it counts pushes.
static void test_steps(void **state)
{
    struct job j;
    float value[2];
    (void)state;
    for (int sync = 0; sync < 2; sync++) {
        job_open(&j, sync ? SYNC : ASYNC, "adam", 20, 1 << 20);
        for (uint64_t k = 1; k <= 3; k++)
            for (uint32_t rank = 0; rank < (sync ? 2 : 1); rank++)
                push_round(j.core, rank, k, sync ? k : 0, 0, 20);
        value[sync] = read_one(j.core, "big");
        psd_core_destroy(j.core);
    }
    assert_true(value[0] == value[1]);
}

// A call that is waited for on its own thread.
struct waited {
    struct psd_call call;  // first
    sem_t answered;
    enum ps_code code;
};

static void wake_waited(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct waited *w = (struct waited *)call;
    (void)text;
    w->code = code;
    ps_slices_clear(body);
    sem_post(&w->answered);
}

static enum ps_code ask_and_wait(struct psd_core *core, int method, const ProtobufCMessage *m,
                                 struct ps_slices *payload)
{
    struct waited w = {.call = {.method = method, .deadline = UINT64_MAX, .reply = wake_waited}};
    sem_init(&w.answered, 0, 0);
    ps_msg_pack(m, payload, &w.call.request);
    psd_core_call(core, &w.call);
    sem_wait(&w.answered);
    sem_destroy(&w.answered);
    return w.code;
}

enum { SYNC_ROUNDS = 40, SYNC_BIG = 200000 };

struct sync_worker {
    struct psd_core *core;
    uint32_t rank;
    enum ps_code code;  // of the first call that failed
};

// A round of both variables: push them in one request, wait for them in one.
static enum ps_code take_round(const struct sync_worker *w, uint64_t k)
{
    struct update u;
    Paramserver__V1__ReadRequest read = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Tensor big = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&u.t, &big};
    struct ps_slices payload = floats(15 + SYNC_BIG, 100);
    update_init(&u, w->rank, k, "a", 0, 0);
    big.variable = (char *)"big";
    big.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    u.r.tensors = tensors;
    u.r.n_tensors = 2;
    u.r.round = k;
    enum ps_code code = ask_and_wait(w->core, M(PUSH), &u.r.base, &payload);
    read.caller = &u.caller;
    read.tensors = tensors;
    read.n_tensors = 2;
    read.round = k;
    return code ? code : ask_and_wait(w->core, M(PULL), &read.base, NULL);
}

static void *run_sync_worker(void *arg)
{
    struct sync_worker *w = arg;
    for (uint64_t k = 1; k <= SYNC_ROUNDS && w->code == PS_OK; k++)
        w->code = take_round(w, k);
    return NULL;
}

// Two workers go round by round on threads of their own, while others read, ask for the status and let time pass.
static void test_threads(void **state)
{
    struct job j;
    pthread_t thread[2];
    struct sync_worker workers[2];
    (void)state;
    job_open(&j, SYNC, "sgd", SYNC_BIG, 8 << 20);
    for (uint32_t rank = 0; rank < 2; rank++) {
        workers[rank] = (struct sync_worker){j.core, rank, PS_OK};
        assert_int_equal(pthread_create(&thread[rank], NULL, run_sync_worker, &workers[rank]), 0);
    }
    for (int i = 0; i < 200; i++) {
        Paramserver__V1__StatusRequest status = PARAMSERVER__V1__STATUS_REQUEST__INIT;
        assert_int_equal(ask(j.core, M(STATUS), &status.base, NULL, NULL, NULL, NULL).code, PS_OK);
        float x = read_one(j.core, "big");
        assert_true(x == (float)(int)x && x <= 0 && x >= -SYNC_ROUNDS);
        psd_core_tick(j.core);
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        pthread_join(thread[rank], NULL);
        assert_int_equal(workers[rank].code, PS_OK);
    }
    assert_true(read_one(j.core, "a") == -SYNC_ROUNDS && read_one(j.core, "big") == -SYNC_ROUNDS);
    psd_core_destroy(j.core);
}

// A mean over no example counts for nothing, whatever it says: 0 / 0 is what workers bring.
static void test_no_examples(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++) {
        update_init(&u, rank, 1, "a", 0, 15);
        u.r.round = 1;
        u.r.examples = rank ? 0 : 3;
        assert_int_equal(send_update(j.core, &u, M(PUSH), 15, rank ? nanf("") : 100, NULL).code, PS_OK);
    }
    assert_true(read_one(j.core, "a") == -1);
    psd_core_destroy(j.core);
}

// ---- bounds -------------------------------------------------------------------------------------------------------

// A round's bookkeeping counts where it is more than the values: 4096 workers of two small variables.
static void test_many_workers(void **state)
{
    struct job j;
    struct joining join;
    struct declaring x;
    (void)state;
    fill_job(&j, 20);
    j.core = core_new(4096 * (sizeof(struct psd_member) + 160));
    join_init(&join, 0, SYNC);
    join.r.workers = 4096;
    assert_int_equal(ask(j.core, M(JOIN), &join.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    declare_init(&x, &j, SYNC, "sgd");
    x.r.workers = 4096;
    struct answer a = ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
    assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
    assert_int_equal(pages_used(j.core), 0);
    psd_core_destroy(j.core);
}

// Clients without number do not fill the memory, nor slow each other down; the known ones go on.
static void test_many_clients(void **state)
{
    struct job j;
    struct update u;
    uint8_t id[16] = {0};
    (void)state;
    job_open(&j, ASYNC, "assign_add", 20, 64 << 20);
    for (uint32_t i = 0; i <= 1 << 17; i++) {
        update_init(&u, 0, 1, "a", 0, 15);
        u.caller.worker = 0;
        u.caller.client.data = id;
        memcpy(id, &i, sizeof i);
        struct answer a = send_update(j.core, &u, M(PUSH), 15, 1, NULL);
        assert_int_equal(a.code, i == 1 << 17 ? PS_RESOURCE_EXHAUSTED : PS_OK);
    }
    memset(id, 0, sizeof id);
    assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 1, NULL).code, PS_OK);
    assert_true(read_one(j.core, "a") == 1 << 17);
    psd_core_destroy(j.core);
}

// A client that is refused leaves nothing behind.
static void test_superseded_clients(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    job_open(&j, ASYNC, "assign_add", 20, 1 << 20);
    assert_int_equal(leave(j.core, 0, "of old age").code, PS_OK);
    assert_int_equal(join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__REFUSE).code, PS_OK);
    update_init(&u, 0, 1, "a", 0, 15);
    another_process(&u.caller);
    assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 1, NULL).code, PS_OK);
    update_init(&u, 0, 1, "a", 0, 15);
    assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 1, NULL).code, PS_ABORTED);
    assert_int_equal(j.core->table.newest->clients.n, 1);
    assert_true(read_one(j.core, "a") == 1);
    psd_core_destroy(j.core);
}

// One small request does not make the core count the same blocks for ever.
static void test_repeated_ranges(void **state)
{
    enum { N = 1 << 20, TIMES = 1000 };
    struct job j;
    struct update u;
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Tensor *tensors[TIMES];
    (void)state;
    job_open(&j, ASYNC, "sgd", N, 8 << 20);
    update_init(&u, 0, 1, "big", 0, 0);
    for (int i = 0; i < TIMES; i++)
        tensors[i] = &u.t;
    r.caller = &u.caller;
    r.tensors = tensors;
    r.n_tensors = TIMES;
    assert_int_equal(ask(j.core, M(GET), &r.base, NULL, NULL, NULL, NULL).code, PS_INVALID_ARGUMENT);
    assert_int_equal(ask(j.core, M(PULL), &r.base, NULL, NULL, NULL, NULL).code, PS_INVALID_ARGUMENT);
    u.r.tensors = tensors;
    u.r.n_tensors = TIMES;
    struct answer a = send_update(j.core, &u, M(PUSH), 15, 1, NULL);
    assert_int_equal(a.code, PS_INVALID_ARGUMENT);
    assert_non_null(strstr(a.text, "at least 4194304 bytes"));
    r.n_tensors = 1;
    assert_int_equal(ask(j.core, M(PULL), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    // Two variables in turn: the blocks of each are looked up once.
    struct psd_extents pieces = {0};
    struct ps_error e = {0};
    Paramserver__V1__Tensor a_whole = PARAMSERVER__V1__TENSOR__INIT;
    a_whole.variable = (char *)"a";
    for (int i = 0; i < TIMES; i += 2)
        tensors[i] = &a_whole;
    assert_int_equal(psd_job_locate(j.core->table.newest, tensors, TIMES, PSD_READ, 0, &pieces, &e),
                     PS_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "comes again"));
    assert_in_range(pieces.n, 1, 1 + N / (PS_BLOCK_BYTES / sizeof(float)));
    psd_extents_free(&pieces);
    psd_core_destroy(j.core);
}

// Whoever waits is counted.
static void test_status_counts_waiting(void **state)
{
    struct job j;
    struct answer barrier;
    ProtobufCMessage *m = NULL;
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__StatusRequest status = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    ask_later(j.core, &barrier, M(BARRIER), &r.base, NULL, UINT64_MAX);
    ask(j.core, M(STATUS), &status.base, NULL, &paramserver__v1__status_reply__descriptor, &m, NULL);
    assert_int_equal(((Paramserver__V1__StatusReply *)m)->jobs[0]->waiting, 1);
    ps_msg_free(m);
    psd_core_drain(j.core);
    assert_int_equal(barrier.code, PS_UNAVAILABLE);
    psd_core_destroy(j.core);
}

// What large requests take while they wait is bounded, beside the memory for blocks.
static void test_parked_requests_are_bounded(void **state)
{
    enum { NAME = 8192, MEMORY = 1 << 20, FIT = MEMORY / PSD_PARKED_FRACTION / (PSD_DECODED_FACTOR * (NAME + 128)) };
    struct job j;
    struct answer waits[FIT + 2], small;
    char name[NAME + 1];
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, MEMORY);
    memset(name, 'n', NAME);
    name[NAME] = '\0';
    r.caller = &caller;
    r.name = name;
    for (int i = 0; i < FIT + 1; i++)
        ask_later(j.core, &waits[i], M(BARRIER), &r.base, NULL, test_time + PS_SECOND);
    assert_false(waits[FIT - 1].answered);
    assert_int_equal(waits[FIT].code, PS_UNAVAILABLE);
    assert_non_null(strstr(waits[FIT].text, "more large requests wait"));
    core_run(j.core, 2 * PS_SECOND);  // their time is over: there is room again
    assert_int_equal(waits[0].code, PS_DEADLINE_EXCEEDED);
    assert_int_equal(j.core->parked_bytes, 0);
    ask_later(j.core, &waits[0], M(BARRIER), &r.base, NULL, UINT64_MAX);
    assert_false(waits[0].answered);
    r.name = (char *)"n";
    caller.sequence++;
    ask_later(j.core, &small, M(BARRIER), &r.base, NULL, UINT64_MAX);  // is not counted
    assert_int_equal(j.core->parked_bytes, 0);                         // and ends the earlier one
    psd_core_drain(j.core);
    psd_core_destroy(j.core);
}

// ---- replies ------------------------------------------------------------------------------------------------------

// Every number of a message is as large as it can be, those of fields to come too.
static void fill_to_the_brim(ProtobufCMessage *m)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        void *at = (char *)m + f->offset;
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
            continue;
        if (f->type == PROTOBUF_C_TYPE_UINT64)
            *(uint64_t *)at = UINT64_MAX;
        else if (f->type == PROTOBUF_C_TYPE_UINT32)
            *(uint32_t *)at = UINT32_MAX;
        else if (f->type == PROTOBUF_C_TYPE_ENUM)
            *(int32_t *)at = INT32_MAX;
        else if (f->type == PROTOBUF_C_TYPE_BOOL)
            *(protobuf_c_boolean *)at = true;
        else
            assert_true(f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_BYTES);
    }
}

// The room that is reserved for a reply is enough for the largest one of its kind.
static void test_reply_bounds(void **state)
{
    enum { N = 300 };
    char name[256];
    Paramserver__V1__TensorResult result = PARAMSERVER__V1__TENSOR_RESULT__INIT, *results[N];
    Paramserver__V1__Tensor tensor = PARAMSERVER__V1__TENSOR__INIT, *tensors[N];
    Paramserver__V1__UpdateReply update = PARAMSERVER__V1__UPDATE_REPLY__INIT;
    Paramserver__V1__ReadReply reading = PARAMSERVER__V1__READ_REPLY__INIT;
    Paramserver__V1__PushPullReply both = PARAMSERVER__V1__PUSH_PULL_REPLY__INIT;
    (void)state;
    memset(name, 'x', 255);
    name[255] = 0;
    fill_to_the_brim(&result.base);
    fill_to_the_brim(&tensor.base);
    fill_to_the_brim(&update.base);
    fill_to_the_brim(&reading.base);
    fill_to_the_brim(&both.base);
    tensor.variable = name;
    for (int i = 0; i < N; i++) {
        results[i] = &result;
        tensors[i] = &tensor;
    }
    update.results = both.results = results;
    reading.tensors = both.tensors = tensors;
    update.n_results = both.n_results = reading.n_tensors = both.n_tensors = N;
    const size_t of_results = PSD_REPLY_BYTES + N * PSD_RESULT_BYTES, of_tensors = N * (PSD_TENSOR_BYTES + 255);
    assert_true(protobuf_c_message_get_packed_size(&update.base) + PS_MSG_WRITE_MORE <= of_results);
    assert_true(protobuf_c_message_get_packed_size(&reading.base) + PS_MSG_WRITE_MORE <= PSD_REPLY_BYTES + of_tensors);
    assert_true(protobuf_c_message_get_packed_size(&both.base) + PS_MSG_WRITE_MORE <= of_results + of_tensors);
}

// One that would not fit is not written.
static void test_reply_too_large(void **state)
{
    struct psd_reply builder;
    struct psd_request t = {0};
    Paramserver__V1__TensorResult result = PARAMSERVER__V1__TENSOR_RESULT__INIT, *results[10];
    Paramserver__V1__UpdateReply update = PARAMSERVER__V1__UPDATE_REPLY__INIT;
    (void)state;
    fill_to_the_brim(&result.base);
    for (int i = 0; i < 10; i++)
        results[i] = &result;
    update.results = results;
    update.n_results = 10;
    assert_int_equal(psd_reply_init(&builder, 1, NULL, 0, NULL), PS_OK);
    assert_int_equal(psd_reply_send(&builder, &t, &update.base), PS_INTERNAL);
    assert_int_equal(t.reply.len, 0);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------

// A Get of 64 MiB whose reader stalls: pushes to single blocks go on, memory grows by the blocks they touch and no
// more however often, and the reader gets one version.
static void test_stalled_reader(void **state)
{
    enum { N = 16 << 20 };
    struct job j;
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    uint64_t done = 0, sequence = 0;
    (void)state;
    job_open(&j, ASYNC, "assign_add", N, 128 << 20);
    size_t before = pages_used(j.core);
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    t.variable = (char *)"big";
    do {
        ProtobufCMessage *m = NULL;
        struct ps_slices bytes = PS_SLICES_EMPTY;
        struct answer a = ask(j.core, M(GET), &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes);
        if (a.code)
            fail_msg("get: %s", a.text);
        Paramserver__V1__ReadReply *reply = (Paramserver__V1__ReadReply *)m;
        for (size_t i = 0; i < bytes.len; i += TEST_PART * sizeof(float)) {
            float x, scratch;
            memcpy(&x, ps_slices_peek(&bytes, i, sizeof x, &scratch), sizeof x);
            if (x != 0)
                fail_msg("element %zu is %g", (done + i) / sizeof x, (double)x);
        }
        done += bytes.len;
        r.offset = reply->next_offset;
        r.snapshot = reply->snapshot;
        ps_slices_clear(&bytes);
        ps_msg_free(m);
        for (int k = 0; k < 16; k++) {
            struct update u;
            update_init(&u, 0, ++sequence, "big", (uint64_t)(k % 8 * 13) * (PS_BLOCK_BYTES / 4), PS_BLOCK_BYTES / 4);
            assert_int_equal(send_update(j.core, &u, M(PUSH), PS_BLOCK_BYTES / 4, 1, NULL).code, PS_OK);
        }
        assert_true(pages_used(j.core) <= before + 8 * PS_BLOCK_BYTES + (64 << 10));  // and the snapshot itself
    } while (r.offset);
    assert_int_equal(done, (uint64_t)N * sizeof(float));
    assert_true(read_one(j.core, "big") == (float)sequence / 8);  // every message saw each of 8 blocks pushed twice
    r.release = true;
    assert_int_equal(ask(j.core, M(GET), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    assert_int_equal(pages_used(j.core), before);
    psd_core_destroy(j.core);
}

// A Get of "big", which takes several messages, that has sent its first one.
struct reading {
    Paramserver__V1__ReadRequest r;
    Paramserver__V1__Caller caller;
    Paramserver__V1__Tensor t, *tensors[1];
};

static void reading_init(struct reading *x)
{
    paramserver__v1__read_request__init(&x->r);
    paramserver__v1__tensor__init(x->tensors[0] = &x->t);
    x->caller = caller_of(0, 0);
    x->r.caller = &x->caller;
    x->r.tensors = x->tensors;
    x->r.n_tensors = 1;
    x->t.variable = (char *)"big";
}

static void begin_reading(struct psd_core *core, struct reading *x)
{
    ProtobufCMessage *m = NULL;
    reading_init(x);
    struct answer a = ask(core, M(GET), &x->r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, NULL);
    assert_int_equal(a.code, PS_OK);
    x->r.offset = ((Paramserver__V1__ReadReply *)m)->next_offset;
    x->r.snapshot = ((Paramserver__V1__ReadReply *)m)->snapshot;
    ps_msg_free(m);
}

static struct answer go_on_reading(struct psd_core *core, struct reading *x)
{
    return ask(core, M(GET), &x->r.base, NULL, NULL, NULL, NULL);
}

// Read to its end, a snapshot stays for a repetition of its last part, not for as long as one that is being read.
static void test_snapshot_read_to_its_end(void **state)
{
    enum { N = 4 << 20 };
    struct job j;
    struct reading x;
    (void)state;
    job_open(&j, ASYNC, "sgd", N, 64 << 20);
    begin_reading(j.core, &x);
    const uint64_t last = (uint64_t)N * sizeof(float) - PS_BLOCK_BYTES;
    core_run(j.core, 20 * PS_SECOND);
    x.r.offset = last;
    assert_int_equal(go_on_reading(j.core, &x).code, PS_OK);
    core_run(j.core, 4 * PS_SECOND);
    assert_int_equal(j.core->snapshots.n, 1);
    assert_int_equal(go_on_reading(j.core, &x).code, PS_OK);  // its answer was lost
    x.r.offset = PS_BLOCK_BYTES;
    assert_int_equal(go_on_reading(j.core, &x).code, PS_OK);  // it is not finished after all
    core_run(j.core, 20 * PS_SECOND);
    x.r.offset = last;
    assert_int_equal(go_on_reading(j.core, &x).code, PS_OK);
    core_run(j.core, 6 * PS_SECOND);
    assert_int_equal(j.core->snapshots.n, 0);
    struct answer a = go_on_reading(j.core, &x);
    assert_int_equal(a.code, PS_ABORTED);
    assert_non_null(strstr(a.text, "is gone (read to its end, "));
    psd_core_destroy(j.core);
}

// Where the memory is needed, the oldest reader starts again.
static void test_snapshot_revoked(void **state)
{
    enum { N = 4 << 20 };
    struct job j;
    struct reading x;
    (void)state;
    job_open(&j, ASYNC, "assign_add", N, 17 << 20);
    begin_reading(j.core, &x);
    for (uint64_t k = 0; k < 8; k++) {
        struct update u;
        update_init(&u, 0, k + 1, "big", k * (PS_BLOCK_BYTES / 4), PS_BLOCK_BYTES / 4);
        assert_int_equal(send_update(j.core, &u, M(PUSH), PS_BLOCK_BYTES / 4, 1, NULL).code, PS_OK);
    }
    struct answer a = go_on_reading(j.core, &x);
    assert_int_equal(a.code, PS_ABORTED);
    assert_non_null(strstr(a.text, "start again"));
    psd_core_destroy(j.core);
}

// A push is not refused for want of memory that it does not want any more once the reader has given way: 2 MiB, where
// 1 MiB is left and the snapshot itself has cost nothing yet.
static void test_snapshot_gives_way(void **state)
{
    enum { N = 4 << 20 };
    struct job j;
    struct reading x;
    struct update u;
    (void)state;
    job_open(&j, ASYNC, "assign_add", N, 17 << 20);
    begin_reading(j.core, &x);
    update_init(&u, 0, 1, "big", 0, PS_BLOCK_BYTES);
    assert_int_equal(send_update(j.core, &u, M(PUSH), PS_BLOCK_BYTES, 1, NULL).code, PS_OK);
    assert_int_equal(go_on_reading(j.core, &x).code, PS_ABORTED);
    psd_core_destroy(j.core);
}

static uint64_t pinned_bytes(struct psd_core *core)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    assert_int_equal(ask(core, M(STATUS), &r.base, NULL, &paramserver__v1__status_reply__descriptor, &m, NULL).code,
                     PS_OK);
    uint64_t pinned = ((Paramserver__V1__StatusReply *)m)->pinned_bytes;
    ps_msg_free(m);
    return pinned;
}

// A page is pinned once, however many hold it.
static void test_pinned_bytes(void **state)
{
    enum { N = 4 << 20 };
    struct job j;
    struct reading x;
    (void)state;
    job_open(&j, ASYNC, "sgd", N, 64 << 20);
    for (int i = 0; i < 3; i++) {
        begin_reading(j.core, &x);
        assert_int_equal(pinned_bytes(j.core), N * sizeof(float));
    }
    while (psd_snapshots_drop_oldest(&j.core->snapshots))
        continue;
    assert_int_equal(pinned_bytes(j.core), 0);
    psd_core_destroy(j.core);
}

// Readers that never finish push each other out.
static void test_many_snapshots(void **state)
{
    struct job j;
    struct reading first, second, x;
    (void)state;
    job_open(&j, ASYNC, "assign_add", 2 << 20, 16 << 20);
    begin_reading(j.core, &first);
    begin_reading(j.core, &second);
    for (int i = 2; i <= 4096; i++)
        begin_reading(j.core, &x);
    assert_int_equal(go_on_reading(j.core, &first).code, PS_ABORTED);
    assert_int_equal(go_on_reading(j.core, &second).code, PS_OK);
    psd_core_destroy(j.core);
}

// Free pages are found again by their size, however many there are of others.
static void test_free_pages(void **state)
{
    enum { MANY = 200000, SOME = 1000, SMALL = 4, LARGE = 5000 };
    struct psd_page **many = calloc(MANY, sizeof *many), *some[SOME];
    struct psd_pool pool;
    (void)state;
    psd_pool_init(&pool, (size_t)1 << 30);
    some[0] = psd_page_new(&pool, LARGE);
    psd_page_unref(some[0]);
    for (int i = 0; i < MANY; i++)
        many[i] = psd_page_new(&pool, SMALL);
    for (int i = 0; i < MANY; i++)
        psd_page_unref(many[i]);
    assert_int_equal(pool.kept, MANY * SMALL + LARGE);
    for (int i = 0; i < SOME; i++)
        some[i] = psd_page_new(&pool, LARGE);
    assert_int_equal(pool.kept, MANY * SMALL);  // the one there was
    for (int i = 0; i < SOME; i++)
        psd_page_unref(some[i]);
    psd_pool_fini(&pool);
    free(many);
}

// Near the limit only what is needed of the free pages is given back.
static void test_free_pages_stay(void **state)
{
    enum { PAGES = 100, BYTES = 4096 };
    struct psd_page *pages[PAGES];
    struct psd_pool pool;
    (void)state;
    psd_pool_init(&pool, PAGES * BYTES);
    for (int i = 0; i < PAGES; i++)
        assert_non_null(pages[i] = psd_page_try(&pool, BYTES));
    for (int i = 0; i < PAGES; i++)
        psd_page_unref(pages[i]);
    assert_int_equal(pool.kept, PAGES * BYTES);
    assert_true(psd_pool_take(&pool, 1));
    assert_int_equal(pool.kept, (PAGES - 1) * BYTES);
    assert_non_null(pages[0] = psd_page_try(&pool, 2 * BYTES));
    assert_int_equal(pool.kept, (PAGES - 3) * BYTES);
    assert_null(psd_page_try(&pool, PAGES * BYTES));  // and none for what does not fit anyhow
    assert_int_equal(pool.kept, (PAGES - 3) * BYTES);
    psd_page_unref(pages[0]);
    psd_pool_give(&pool, 1);
    psd_pool_fini(&pool);
}

// What a job has left goes back to the system, in portions, but for what somebody takes meanwhile.
static void test_free_pages_of_a_job_that_is_gone(void **state)
{
    enum { PAGES = 100, BYTES = 4096 };
    struct psd_page *pages[PAGES];
    struct psd_pool pool;
    (void)state;
    psd_pool_init(&pool, (size_t)1 << 30);
    for (int i = 0; i < PAGES; i++)
        pages[i] = psd_page_new(&pool, BYTES);
    for (int i = 0; i < PAGES; i++)
        psd_page_unref(pages[i]);
    psd_pool_shrink(&pool, PAGES * BYTES);
    assert_int_equal(pool.kept, PAGES * BYTES);  // the job is here
    psd_pool_retire(&pool);
    psd_pool_shrink(&pool, 10 * BYTES);
    assert_int_equal(pool.kept, 90 * BYTES);
    for (int i = 0; i < 50; i++)
        pages[i] = psd_page_new(&pool, BYTES);
    psd_pool_shrink(&pool, 10 * BYTES);
    assert_int_equal(pool.kept, 30 * BYTES);
    psd_pool_shrink(&pool, PAGES * BYTES);
    assert_int_equal(pool.kept, 0);
    for (int i = 0; i < 50; i++)
        psd_page_unref(pages[i]);
    psd_pool_shrink(&pool, PAGES * BYTES);
    assert_int_equal(pool.kept, 50 * BYTES);
    psd_pool_fini(&pool);
}

// It takes a second for 1 GiB.
static void test_memory_of_a_job_that_was_stopped(void **state)
{
    Paramserver__V1__StopJobRequest r = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 2 << 20, 64 << 20);
    for (uint64_t at = 0; at < 2 << 20; at += 1 << 10)
        read_one_at(j.core, "big", at);
    r.job = (char *)"job";
    assert_int_equal(ask(j.core, M(STOP_JOB), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    assert_true(j.core->pool.kept > 0);
    core_run(j.core, PS_SECOND);
    assert_int_equal(j.core->pool.kept, 0);
    psd_core_destroy(j.core);
}

// One that was never declared has left nothing: others' free pages stay.
static void test_memory_beside_a_job_that_was_void(void **state)
{
    Paramserver__V1__StopJobRequest r = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    struct psd_core *core = core_new(1 << 20);
    (void)state;
    forget_again();
    psd_page_unref(psd_page_new(&core->pool, 4096));
    assert_int_equal(join(core, 0, ASYNC).code, PS_OK);
    r.job = (char *)"job";
    assert_int_equal(ask(core, M(STOP_JOB), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    core_run(core, PS_SECOND);
    assert_int_equal(core->pool.kept, 4096);
    psd_core_destroy(core);
}

// A Get that takes several messages although it asks for one element again and again: for what it says of each.
static void begin_long_reading(struct psd_core *core, Paramserver__V1__Tensor **tensors, size_t n)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = n;
    struct answer a = ask(core, M(GET), &r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("get: %s", a.text);
}

// What is kept of a snapshot counts: others give way to it. One is kept in any case.
static void test_snapshots_count(void **state)
{
    enum { N = 100000, READERS = 20 / TEST_PART, MEMORY = 64 << 20 };
    struct job j;
    Paramserver__V1__Tensor *t = calloc(N, sizeof *t), **tensors = calloc(N, sizeof *tensors);
    (void)state;
    for (size_t i = 0; i < N; i++) {
        paramserver__v1__tensor__init(tensors[i] = &t[i]);
        t[i].variable = (char *)"big";
        t[i].first = i;
        t[i].count = 1;
    }
    job_open(&j, ASYNC, "sgd", N, MEMORY);
    size_t before = psd_pool_used(&j.core->pool);
    for (int i = 0; i < READERS; i++)
        begin_long_reading(j.core, tensors, N);
    size_t each = N * (sizeof(struct psd_extent) + sizeof(struct psd_pinned));
    assert_in_range(j.core->snapshots.n, 1, MEMORY / each);
    assert_in_range(psd_pool_used(&j.core->pool), before + j.core->snapshots.n * each, MEMORY);
    while (psd_snapshots_drop_oldest(&j.core->snapshots))
        continue;
    assert_int_equal(psd_pool_used(&j.core->pool), before);
    j.core->pool.limit = before + 4096;
    for (int i = 0; i < 2; i++)
        begin_long_reading(j.core, tensors, N);
    assert_int_equal(j.core->snapshots.n, 1);
    psd_core_destroy(j.core);
    free(t);
    free(tensors);
}

// What a block keeps besides its values survives a Put that finds it pinned.
static void test_slots_survive(void **state)
{
    enum { N = 2 << 20, BLOCK = PS_BLOCK_BYTES / sizeof(float) };
    float value[2];
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        struct job j;
        struct reading x;
        struct update u;
        job_open(&j, ASYNC, "adam", N, 64 << 20);
        update_init(&u, 0, 1, "big", 0, BLOCK);
        update_ok(j.core, &u, M(PUSH), BLOCK, 1);
        if (pinned)
            begin_reading(j.core, &x);
        update_init(&u, 0, 2, "big", 0, BLOCK);
        update_ok(j.core, &u, M(PUT), BLOCK, 5);
        update_init(&u, 0, 3, "big", 0, BLOCK);
        update_ok(j.core, &u, M(PUSH), BLOCK, -3);
        value[pinned] = read_one(j.core, "big");
        psd_core_destroy(j.core);
    }
    assert_true(value[0] == value[1]);
}

static const uint64_t instant_blocks = 6;
enum { INSTANT_PUSHES = 96 / TEST_PART };

static void *push_all_blocks(void *arg)
{
    const uint64_t count = instant_blocks * PS_BLOCK_BYTES / sizeof(float);
    for (uint64_t k = 1; k <= INSTANT_PUSHES; k++) {
        struct update u;
        update_init(&u, 0, k, "big", 0, count);
        send_update(arg, &u, M(PUSH), count, 1, NULL);
    }
    return NULL;
}

// A Get lies between two updates of blocks: of a push under way it has seen the first blocks and not the last ones.
static void test_one_instant(void **state)
{
    const size_t block = PS_BLOCK_BYTES / sizeof(float);
    struct job j;
    pthread_t thread;
    float last = 0;
    (void)state;
    job_open(&j, ASYNC, "assign_add", instant_blocks * block, 64 << 20);
    assert_int_equal(pthread_create(&thread, NULL, push_all_blocks, j.core), 0);
    while (last < INSTANT_PUSHES) {
        struct reading x;
        struct ps_slices bytes = PS_SLICES_EMPTY;
        ProtobufCMessage *m = NULL;
        float value[6];
        reading_init(&x);
        ask(j.core, M(GET), &x.r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes);
        for (size_t i = 0; i < instant_blocks; i++)
            ps_slices_copy_out(&bytes, i * PS_BLOCK_BYTES, sizeof(float), &value[i]);
        for (size_t i = 1; i < instant_blocks; i++)
            assert_true(value[i] <= value[i - 1] && value[i] >= value[0] - 1);
        last = value[instant_blocks - 1];
        ps_slices_clear(&bytes);
        ps_msg_free(m);
    }
    pthread_join(thread, NULL);
    psd_core_destroy(j.core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_updates),
        cmocka_unit_test(test_encoded),
        cmocka_unit_test(test_bad_encoded),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_bad_declarations),
        cmocka_unit_test(test_many_partitions),
        cmocka_unit_test(test_large_descriptions),
        cmocka_unit_test(test_push_before_declare),
        cmocka_unit_test(test_one_sequence),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_two_gradients),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_part_of_a_gradient),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_no_examples),
        cmocka_unit_test(test_many_workers),
        cmocka_unit_test(test_many_clients),
        cmocka_unit_test(test_superseded_clients),
        cmocka_unit_test(test_repeated_ranges),
        cmocka_unit_test(test_status_counts_waiting),
        cmocka_unit_test(test_parked_requests_are_bounded),
        cmocka_unit_test(test_stalled_reader),
        cmocka_unit_test(test_reply_bounds),
        cmocka_unit_test(test_reply_too_large),
        cmocka_unit_test(test_snapshot_read_to_its_end),
        cmocka_unit_test(test_snapshot_revoked),
        cmocka_unit_test(test_snapshot_gives_way),
        cmocka_unit_test(test_many_snapshots),
        cmocka_unit_test(test_pinned_bytes),
        cmocka_unit_test(test_snapshots_count),
        cmocka_unit_test(test_free_pages),
        cmocka_unit_test(test_free_pages_stay),
        cmocka_unit_test(test_free_pages_of_a_job_that_is_gone),
        cmocka_unit_test(test_memory_of_a_job_that_was_stopped),
        cmocka_unit_test(test_memory_beside_a_job_that_was_void),
        cmocka_unit_test(test_slots_survive),
        cmocka_unit_test(test_one_instant),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
