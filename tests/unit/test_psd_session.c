// SPDX-License-Identifier: Apache-2.0
//
// Short requests: tensors named by their partitions, callers by the session of their stream.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "psd/service/service.h"
#include "tests/unit/psd_job.h"

enum { BIG = 140000, HALF = 70000 };  // elements; "big" is two partitions, each of a block

// A job of "a", partition 0, and "big", partitions 1 and 2.
static void open_cut(struct job *j, Paramserver__V1__Update update)
{
    struct declaring x;
    Paramserver__V1__Partition second = PARAMSERVER__V1__PARTITION__INIT;
    Paramserver__V1__Partition *partitions[] = {&j->pa, &j->pbig, &second};
    fill_job(j, BIG);
    forget_again();
    j->core = core_new(64 << 20);
    assert_int_equal(join(j->core, 0, update).code, PS_OK);
    assert_int_equal(join(j->core, 1, update).code, PS_OK);
    declare_init(&x, j, update, "assign_add");
    j->pbig.count = second.first = HALF;
    second.variable = 1;
    second.count = BIG - HALF;
    x.r.partitions = partitions;
    x.r.n_partitions = 3;
    struct answer a = ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("declare: %s", a.text);
}

// ---- partitions ---------------------------------------------------------------------------------------------------

static void update_of(struct update *u, uint64_t sequence, uint32_t partition, uint64_t first, uint64_t count)
{
    update_init(u, 0, sequence, "", first, count);
    u->t.dtype = PARAMSERVER__V1__DTYPE__DTYPE_NONE;
    u->t.partition = partition + 1;
}

// Element `at` of "big".
static float big_at(struct psd_core *core, uint64_t at)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    struct ps_slices bytes = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    float value = -1;
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    t.variable = (char *)"big";
    t.first = at;
    t.count = 1;
    struct answer a = ask(core, M(GET), &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes);
    if (a.code)
        fail_msg("get: %s", a.text);
    assert_string_equal(((Paramserver__V1__ReadReply *)m)->tensors[0]->variable, "big");
    ps_slices_copy_out(&bytes, 0, sizeof value, &value);
    ps_slices_clear(&bytes);
    ps_msg_free(m);
    return value;
}

static void test_whole_partition(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    open_cut(&j, ASYNC);
    update_of(&u, 1, 2, 0, 0);
    assert_int_equal(update_ok(j.core, &u, M(PUSH), BIG - HALF, 3).outcome, PARAMSERVER__V1__OUTCOME__APPLIED);
    assert_true(big_at(j.core, HALF - 1) == 0);
    assert_true(big_at(j.core, HALF) == 3);
    assert_true(big_at(j.core, BIG - 1) == 3);
    // Without first and count a variable is the whole variable, as it was.
    update_init(&u, 0, 2, "big", 0, 0);
    update_ok(j.core, &u, M(PUSH), BIG, 1);
    assert_true(big_at(j.core, 0) == 1 && big_at(j.core, BIG - 1) == 4);
    psd_core_destroy(j.core);
}

static void test_range_of_partition(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    open_cut(&j, ASYNC);
    update_of(&u, 1, 2, HALF + 5, 2);
    update_ok(j.core, &u, M(ASSIGN_ADD), 2, 7);
    assert_true(big_at(j.core, HALF + 4) == 0 && big_at(j.core, HALF + 5) == 7 && big_at(j.core, HALF + 6) == 7 &&
                big_at(j.core, HALF + 7) == 0);
    psd_core_destroy(j.core);
}

static void test_bad_partitions(void **state)
{
    static const struct {
        uint32_t partition;
        uint64_t first, count;
        const char *variable;
        enum ps_code code;
        const char *says;
    } bad[] = {
        {3, 0, 0, "", PS_NOT_FOUND, "job 'job' has no partition 3: it has 3, counted from 0"},
        {UINT32_MAX - 1, 0, 0, "", PS_NOT_FOUND, "job 'job' has no partition 4294967294: it has 3, counted from 0"},
        {1, 0, 0, "big", PS_INVALID_ARGUMENT, "variable 'big' and partition 1: expected one of them to be named"},
        {1, HALF, 1, "", PS_OUT_OF_RANGE, "variable 'big': partition 1 has [0, +70000), the request says [70000, +1)"},
        {2, HALF - 1, 2, "", PS_OUT_OF_RANGE,
         "variable 'big': partition 2 has [70000, +70000), the request says [69999, +2)"},
        {2, UINT64_MAX, 2, "", PS_OUT_OF_RANGE,
         "variable 'big' has 140000 elements, the request says [18446744073709551615, +2)"},
        {2, HALF, 0, "", PS_INVALID_ARGUMENT, "variable 'big': the range at 70000 is empty"},
    };
    struct job j;
    (void)state;
    open_cut(&j, ASYNC);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct update u;
        update_of(&u, 1, bad[i].partition, bad[i].first, bad[i].count);
        u.t.variable = (char *)bad[i].variable;
        struct answer a = send_update(j.core, &u, M(PUSH), 1, 1, NULL);
        assert_string_equal(a.text, bad[i].says);
        assert_int_equal(a.code, bad[i].code);
    }
    psd_core_destroy(j.core);
}

// Partitions of one variable are ranges of it: in order, one after the other, and none comes again.
static void test_order_of_partitions(void **state)
{
    static const struct {
        uint32_t partitions[3];
        bool good;
    } orders[] = {{{1, 2, 0}, true}, {{0, 1, 2}, true}, {{2, 1, 0}, false}, {{1, 0, 2}, false}, {{1, 1, 0}, false}};
    struct job j;
    (void)state;
    open_cut(&j, ASYNC);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct update u;
        Paramserver__V1__Tensor t[3], *tensors[3];
        Paramserver__V1__UpdateReply *reply = NULL;
        size_t elements = 0;
        update_of(&u, i + 1, 0, 0, 0);
        for (int k = 0; k < 3; k++) {
            uint32_t p = orders[i].partitions[k];
            t[k] = u.t;
            t[k].partition = p + 1;
            tensors[k] = &t[k];
            elements += p ? HALF : 15;
        }
        u.r.tensors = tensors;
        u.r.n_tensors = 3;
        struct answer a = send_update(j.core, &u, M(PUSH), elements, 1, &reply);
        assert_int_equal(a.code, orders[i].good ? PS_OK : PS_INVALID_ARGUMENT);
        if (reply)
            ps_msg_free(&reply->base);
    }
    assert_true(big_at(j.core, 0) == 2 && big_at(j.core, BIG - 1) == 2);
    psd_core_destroy(j.core);
}

// The answer names what was asked for, so that the client needs no name for it.
static void test_read_partitions(void **state)
{
    struct job j;
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t[2] = {PARAMSERVER__V1__TENSOR__INIT, PARAMSERVER__V1__TENSOR__INIT};
    Paramserver__V1__Tensor *tensors[] = {&t[0], &t[1]};
    struct ps_slices bytes = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    (void)state;
    open_cut(&j, ASYNC);
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 2;
    t[0].partition = 1;
    t[1].partition = 3;
    struct answer a = ask(j.core, M(PULL), &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes);
    assert_int_equal(a.code, PS_OK);
    const Paramserver__V1__ReadReply *reply = (Paramserver__V1__ReadReply *)m;
    assert_int_equal(reply->n_tensors, 2);
    assert_string_equal(reply->tensors[0]->variable, "");
    assert_int_equal(reply->tensors[0]->partition, 1);
    assert_int_equal(reply->tensors[1]->partition, 3);
    assert_int_equal(reply->tensors[1]->first, HALF);
    assert_int_equal(reply->tensors[1]->count, BIG - HALF);
    assert_int_equal(bytes.len, (15 + BIG - HALF) * sizeof(float));
    ps_slices_clear(&bytes);
    ps_msg_free(m);
    // Who names no run may not know this declaration.
    caller.run = caller.worker = 0;
    a = ask(j.core, M(GET), &r.base, NULL, NULL, NULL, NULL);
    assert_int_equal(a.code, PS_INVALID_ARGUMENT);
    assert_string_equal(a.text, "the request names partition 0 of job 'job', and no run of it: expected both");
    psd_core_destroy(j.core);
}

// ---- sessions -----------------------------------------------------------------------------------------------------

static struct answer open_as(struct psd_core *core, const Paramserver__V1__Caller *caller)
{
    Paramserver__V1__OpenRequest r = PARAMSERVER__V1__OPEN_REQUEST__INIT;
    r.caller = (Paramserver__V1__Caller *)caller;
    return ask(core, M(OPEN), &r.base, NULL, NULL, NULL, NULL);
}

// A push of `value` to element 0 of "a" that leaves its caller to the session.
static struct answer push_short(struct psd_core *core, uint64_t sequence, float value)
{
    struct update u;
    update_init(&u, 0, sequence, "a", 0, 1);
    paramserver__v1__caller__init(&u.caller);
    u.caller.sequence = u.caller.oldest = sequence;
    return send_update(core, &u, M(PUSH), 1, value, NULL);
}

// A read of element 0 of "a" that does so, too.
static struct answer get_short(struct psd_core *core)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = PARAMSERVER__V1__CALLER__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    t.variable = (char *)"a";
    t.count = 1;
    return ask(core, M(GET), &r.base, NULL, NULL, NULL, NULL);
}

static void expect_answer(struct answer a, enum ps_code code, const char *text)
{
    assert_string_equal(a.text, text);
    assert_int_equal(a.code, code);
}

static const char no_session[] =
    "the request leaves its caller to the session of the stream, which has none: expected Open before it";

static void test_session_opens(void **state)
{
    struct job j;
    struct update u;
    struct psd_session *session = NULL;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    (void)state;
    job_open(&j, ASYNC, "assign_add", 100, 64 << 20);
    // Without a stream it is as it was, and there is nothing to open.
    expect_answer(push_short(j.core, 1, 1), PS_FAILED_PRECONDITION, "protocol 0 is not spoken here; this is 2");
    expect_answer(open_as(j.core, &caller), PS_FAILED_PRECONDITION, "a stream has a session, a unary call has none");
    test_session = &session;
    expect_answer(push_short(j.core, 1, 1), PS_FAILED_PRECONDITION, no_session);
    expect_answer(open_as(j.core, &caller), PS_OK, "");
    expect_answer(push_short(j.core, 1, 1), PS_OK, "");
    assert_true(read_one(j.core, "a") == 1);  // by a full caller, on the same stream
    // A sequence is the client's, not the session's: it takes effect once, whichever way it comes.
    update_init(&u, 0, 1, "a", 0, 1);
    assert_int_equal(update_ok(j.core, &u, M(PUSH), 1, 1).outcome, PARAMSERVER__V1__OUTCOME__DUPLICATE);
    update_init(&u, 0, 2, "a", 0, 1);
    update_ok(j.core, &u, M(PUSH), 1, 1);
    expect_answer(push_short(j.core, 2, 1), PS_OK, "");
    assert_true(read_one(j.core, "a") == 2);
    // What is said with the sequence counts: here nothing is.
    expect_answer(push_short(j.core, 0, 1), PS_INVALID_ARGUMENT,
                  "sequence 0 with oldest 0: expected 1 <= oldest <= sequence");
    Paramserver__V1__DescribeRequest describe = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller empty = PARAMSERVER__V1__CALLER__INIT;
    describe.caller = &empty;
    expect_answer(ask(j.core, M(DESCRIBE), &describe.base, NULL, NULL, NULL, NULL), PS_FAILED_PRECONDITION,
                  "protocol 0 is not spoken here; this is 2, and the session of a stream stands for the caller of Put, "
                  "AssignAdd, AssignSub, Push, PushPull, Get and Pull alone");
    test_session = NULL;
    psd_session_close(session);
    psd_core_destroy(j.core);
}

// Opened again, it is another's; what cannot be a caller's leaves the one that is there.
static void test_session_opens_again(void **state)
{
    struct job j;
    struct psd_session *session = NULL;
    Paramserver__V1__Caller first = caller_of(0, 0), second = caller_of(1, 0), bad = caller_of(1, 0);
    (void)state;
    job_open(&j, ASYNC, "assign_add", 100, 64 << 20);
    test_session = &session;
    expect_answer(open_as(j.core, &first), PS_OK, "");
    expect_answer(push_short(j.core, 1, 1), PS_OK, "");
    bad.client.len = 15;
    expect_answer(open_as(j.core, &bad), PS_INVALID_ARGUMENT,
                  "expected a caller with a job of 1 to 128 bytes and a client id of 16");
    assert_int_equal(open_as(j.core, NULL).code, PS_INVALID_ARGUMENT);
    expect_answer(push_short(j.core, 1, 1), PS_OK, "");
    assert_true(read_one(j.core, "a") == 1);  // a duplicate of the first's
    expect_answer(open_as(j.core, &second), PS_OK, "");
    expect_answer(push_short(j.core, 1, 1), PS_OK, "");
    assert_true(read_one(j.core, "a") == 2);
    test_session = NULL;
    psd_session_close(session);
    psd_core_destroy(j.core);
}

// Refused in the words that a full caller would hear, for each request.
static void test_session_is_refused(void **state)
{
    struct job j;
    struct psd_session *session = NULL;
    Paramserver__V1__Caller strange = caller_of(0, 0), lost = caller_of(0, 0), early = caller_of(0, 0);
    (void)state;
    job_open(&j, ASYNC, "assign_add", 100, 64 << 20);
    test_session = &session;
    strange.protocol = 7;
    lost.generation = 1;
    early.run = 9;
    expect_answer(open_as(j.core, &strange), PS_OK, "");
    for (int i = 0; i < 2; i++)
        expect_answer(push_short(j.core, 1, 1), PS_FAILED_PRECONDITION, "protocol 7 is not spoken here; this is 2");
    expect_answer(open_as(j.core, &lost), PS_OK, "");
    assert_int_equal(push_short(j.core, 1, 1).code, PS_ABORTED);
    expect_answer(open_as(j.core, &early), PS_OK, "");
    expect_answer(push_short(j.core, 1, 1), PS_UNAVAILABLE,
                  "ps task 0 has not heard of run 9 of job 'job' yet, this is run 1");
    assert_true(read_one(j.core, "a") == 0);
    test_session = NULL;
    psd_session_close(session);
    psd_core_destroy(j.core);
}

// The job is stopped and opened anew between two requests: the session is of the first run, holds none of its memory,
// and finds the second.
static void test_session_of_an_older_run(void **state)
{
    struct job j;
    struct psd_session *session = NULL;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__StopJobRequest stop = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    (void)state;
    job_open(&j, ASYNC, "assign_add", 1 << 20, 64 << 20);
    test_session = &session;
    expect_answer(open_as(j.core, &caller), PS_OK, "");
    expect_answer(push_short(j.core, 1, 1), PS_OK, "");
    struct psd_job *used = psd_job_find(&j.core->table, "job");  // by a request that is still under way
    stop.job = (char *)"job";
    assert_int_equal(ask(j.core, M(STOP_JOB), &stop.base, NULL, NULL, NULL, NULL).code, PS_OK);
    expect_answer(push_short(j.core, 2, 1), PS_NOT_FOUND, "ps task 0 has no job 'job'");
    expect_answer(get_short(j.core), PS_NOT_FOUND, "ps task 0 has no job 'job'");
    psd_job_unref(used);
    assert_int_equal(psd_pool_used(&j.core->pool), 0);
    expect_answer(push_short(j.core, 2, 1), PS_NOT_FOUND, "ps task 0 has no job 'job'");
    assert_int_equal(join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__REFUSE).code, PS_OK);
    assert_int_equal(push_short(j.core, 2, 1).code, PS_ABORTED);
    test_session = NULL;
    psd_session_close(session);
    psd_core_destroy(j.core);
}

// Another run goes on with the values of the first, in the same job: the session is still the first run's.
static void test_session_of_a_resumed_run(void **state)
{
    struct job j;
    struct declaring x;
    struct psd_session *session = NULL;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    (void)state;
    job_open(&j, ASYNC, "assign_add", 100, 64 << 20);
    test_session = &session;
    expect_answer(open_as(j.core, &caller), PS_OK, "");
    expect_answer(push_short(j.core, 1, 1), PS_OK, "");
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(join_again(j.core, rank, ASYNC, PARAMSERVER__V1__ON_EXISTING__RESUME).code, PS_OK);
    declare_init(&x, &j, ASYNC, "assign_add");
    another_process(&x.caller);
    x.r.on_existing = PARAMSERVER__V1__ON_EXISTING__RESUME;
    expect_answer(ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL), PS_OK, "");
    struct answer a = push_short(j.core, 2, 1);
    assert_int_equal(a.code, PS_ABORTED);
    assert_non_null(strstr(a.text, "run 1 of job 'job' has ended, this is run "));
    assert_true(read_one(j.core, "a") == 1);
    test_session = NULL;
    psd_session_close(session);
    psd_core_destroy(j.core);
}

// A call that waits goes on after its stream has opened another session, and after its stream has ended.
static void test_session_of_a_parked_call(void **state)
{
    struct job j;
    struct psd_session *session = NULL;
    Paramserver__V1__Caller first = caller_of(0, 0), second = caller_of(1, 0);
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller nobody = PARAMSERVER__V1__CALLER__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    struct update u;
    struct answer pull;
    (void)state;
    job_open(&j, SYNC, "sgd", 100, 64 << 20);
    test_session = &session;
    expect_answer(open_as(j.core, &first), PS_OK, "");
    r.caller = &nobody;
    r.tensors = tensors;
    r.n_tensors = 1;
    r.round = 1;
    t.partition = 1;
    ask_later(j.core, &pull, M(PULL), &r.base, NULL, UINT64_MAX);
    assert_false(pull.answered);
    expect_answer(open_as(j.core, &second), PS_OK, "");
    test_session = NULL;
    psd_session_close(session);
    for (uint32_t rank = 0; rank < 2; rank++) {
        update_init(&u, rank, 1, "a", 0, 15);
        u.r.round = 1;
        update_ok(j.core, &u, M(PUSH), 15, 1);
    }
    assert_true(pull.answered);
    expect_answer(pull, PS_OK, "");
    assert_memory_equal(pull.call.client, first.client.data, 16);
    ps_slices_clear(&pull.body);
    psd_core_destroy(j.core);
}

// ---- users --------------------------------------------------------------------------------------------------------

static void expect_refused(struct answer a)
{
    if (a.code != PS_PERMISSION_DENIED)
        fail_msg("%d: %s", (int)a.code, a.text);
    assert_string_equal(a.text, "job 'job' is alice's, not bob's: choose another name");
}

static size_t jobs_seen(struct psd_core *core)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    assert_int_equal(PS_OK,
                     ask(core, M(STATUS), &r.base, NULL, &paramserver__v1__status_reply__descriptor, &m, NULL).code);
    const Paramserver__V1__StatusReply *s = (const Paramserver__V1__StatusReply *)m;
    const size_t n = s->n_jobs;
    assert_true(n == 0 || strcmp(s->jobs[0]->user, "alice") == 0);
    ps_msg_free(m);
    return n;
}

// By a call of its own, and in a session that was opened for the job.
static void test_job_is_its_users(void **state)
{
    static const struct ps_identity alice = {PS_ROLE_WORKER, "alice"}, bob = {PS_ROLE_WORKER, "bob"},
                                    admin = {PS_ROLE_ADMIN, "bob"};
    Paramserver__V1__HeartbeatRequest beat = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    Paramserver__V1__SetHyperRequest hyper = PARAMSERVER__V1__SET_HYPER_REQUEST__INIT;
    Paramserver__V1__Caller caller;
    struct declaring x;
    struct job j;
    struct update u;
    (void)state;
    test_from = &alice;
    open_cut(&j, ASYNC);
    update_init(&u, 0, 1, "a", 0, 15);
    update_ok(j.core, &u, M(PUSH), 15, 1);
    assert_int_equal(jobs_seen(j.core), 1);

    test_from = &bob;
    expect_refused(join(j.core, 0, ASYNC));
    declare_init(&x, &j, ASYNC, "assign_add");
    expect_refused(ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL));
    update_init(&u, 0, 2, "a", 0, 15);
    expect_refused(send_update(j.core, &u, M(PUSH), 15, 1, NULL));
    expect_refused(send_update(j.core, &u, M(PUT), 15, 1, NULL));
    caller = caller_of(0, 0);
    beat.caller = &caller;
    expect_refused(ask(j.core, M(HEARTBEAT), &beat.base, NULL, NULL, NULL, NULL));
    hyper.job = (char *)"job";
    hyper.name = (char *)"learning_rate";
    expect_refused(ask(j.core, M(SET_HYPER), &hyper.base, NULL, NULL, NULL, NULL));
    assert_int_equal(jobs_seen(j.core), 0);

    test_from = &admin;
    assert_int_equal(jobs_seen(j.core), 1);
    assert_true(big_at(j.core, 0) == 0);
    test_from = NULL;
    psd_core_destroy(j.core);
}

// A declaration of a job whose variables are all at task 1 of two, which this is.
static void declare_at_task_1(struct declaring *x, struct job *j)
{
    fill_job(j, BIG);
    j->core = core_new_task(1, 2, 64 << 20);
    j->pa.task = j->pbig.task = 1;
    declare_init(x, j, ASYNC, "assign_add");
}

// At a task that the control task has not told of the job, nobody has it yet: who takes the name does not keep it.
static void test_name_is_the_control_tasks_to_give(void **state)
{
    static const struct ps_identity alice = {PS_ROLE_WORKER, "alice"}, bob = {PS_ROLE_WORKER, "bob"};
    struct declaring x;
    struct job j;
    (void)state;
    declare_at_task_1(&x, &j);
    test_from = &bob;
    x.caller.run = (UINT64_C(1) << 62) + 7;
    assert_int_equal(ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    test_from = &alice;
    x.caller.run = 5;
    struct answer a = ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("%s", a.text);
    assert_int_equal(jobs_seen(j.core), 1);
    assert_int_equal(j.core->table.runs.forgotten, 0);
    test_from = NULL;
    psd_core_destroy(j.core);
}

// The control task tells who takes part in the job, which it has declared, too.
static void confirm(struct psd_core *core)
{
    Paramserver__V1__SetMembersRequest r = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    Paramserver__V1__Member members[2], *pointers[2];
    for (uint32_t i = 0; i < 2; i++) {
        paramserver__v1__member__init(pointers[i] = &members[i]);
        members[i].rank = i;
        members[i].state = PARAMSERVER__V1__MEMBER_STATE__LIVE;
        members[i].incarnation = 1;
    }
    r.job = (char *)"job";
    r.run = r.epoch = 1;
    r.members = pointers;
    r.n_members = 2;
    struct answer a = ask(core, M(SET_MEMBERS), &r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("%s", a.text);
}

// What another task has refused is declared otherwise: the first one goes, and its memory. A late copy of it, and what
// comes when the control task has confirmed the second, are refused.
static void test_declaration_is_corrected(void **state)
{
    struct declaring x;
    struct job j;
    (void)state;
    declare_at_task_1(&x, &j);
    x.caller.sequence = 2;
    assert_int_equal(ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    const size_t used = pages_used(j.core);
    j.pbig.count = j.big_shape[0] = BIG / 2;
    x.caller.sequence = 4;
    struct answer a = ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("%s", a.text);
    assert_int_equal(j.core->table.n, 1);
    assert_true(pages_used(j.core) < used);
    assert_int_equal(ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    j.pbig.count = j.big_shape[0] = BIG;
    x.caller.sequence = 2;
    assert_int_equal(ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_ALREADY_EXISTS);
    confirm(j.core);
    x.caller.sequence = 6;
    assert_int_equal(ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_ALREADY_EXISTS);
    psd_core_destroy(j.core);
}

static struct answer join_job(struct psd_core *core, uint32_t rank, const char *job)
{
    struct joining x;
    join_init(&x, rank, ASYNC);
    x.caller.job = (char *)job;
    return ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL);
}

// Quotas: of jobs, and of what they declare.
static void test_user_may_have_so_much(void **state)
{
    static const struct ps_identity alice = {PS_ROLE_WORKER, "alice"}, bob = {PS_ROLE_WORKER, "bob"};
    Paramserver__V1__StopJobRequest stop = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    struct declaring x;
    struct job j;
    struct ps_error e;
    (void)state;
    test_from = &alice;
    open_cut(&j, ASYNC);
    j.core->users.most_jobs = 1;
    struct answer a = join_job(j.core, 0, "other");
    assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
    assert_string_equal(a.text, "user alice has 1 job here, and may have no more: stop one");
    test_from = &bob;
    assert_int_equal(join_job(j.core, 0, "other").code, PS_OK);
    assert_int_equal(join_job(j.core, 1, "other").code, PS_OK);
    j.core->users.most_bytes = BIG;
    declare_init(&x, &j, ASYNC, "assign_add");
    x.caller.job = (char *)"other";
    x.caller.run = 2;
    j.pbig.count = BIG;
    a = ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
    if (!strstr(a.text, "declare: ps task 0: the job needs "))
        fail_msg("%s", a.text);
    assert_int_equal(a.code, PS_FAILED_PRECONDITION);
    assert_non_null(strstr(a.text, "; user bob may have "));
    struct psd_user *user = psd_job_lookup(&j.core->table, "other")->user;
    j.core->users.most_bytes = 64 * BIG;
    assert_int_equal(psd_users_take(&j.core->users, user, 64 * BIG, &e), PS_OK);  // for other jobs
    a = ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
    assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(a.text, " in use"));
    psd_users_give(&j.core->users, user, 64 * BIG);
    test_from = NULL;
    stop.job = (char *)"job";
    assert_int_equal(ask(j.core, M(STOP_JOB), &stop.base, NULL, NULL, NULL, NULL).code, PS_OK);
    test_from = &alice;
    assert_int_equal(join_job(j.core, 0, "third").code, PS_OK);
    test_from = NULL;
    psd_core_destroy(j.core);
}

// By munge: whatever name the name service has for it at that moment.
static void test_user_is_a_uid(void **state)
{
    static const struct ps_identity alice = {PS_ROLE_WORKER, "alice", "uid7"},
                                    nameless = {PS_ROLE_WORKER, "uid7", "uid7"},
                                    other = {PS_ROLE_WORKER, "alice", "uid8"};
    const struct ps_identity *const owners[] = {&alice, &nameless};
    struct update u;
    struct job j;
    (void)state;
    for (int first = 0; first < 2; first++) {
        test_from = owners[first];
        open_cut(&j, ASYNC);
        test_from = owners[!first];
        update_init(&u, 0, 1, "a", 0, 15);
        update_ok(j.core, &u, M(PUSH), 15, 1);
        j.core->users.most_jobs = 1;
        assert_int_equal(join_job(j.core, 0, "other").code, PS_RESOURCE_EXHAUSTED);
        test_from = &other;
        assert_int_equal(join(j.core, 0, ASYNC).code, PS_PERMISSION_DENIED);
        assert_int_equal(join_job(j.core, 0, "other").code, PS_OK);
        test_from = NULL;
        psd_core_destroy(j.core);
    }
}

// A job that has ended and never was declared does not count in its user's quota; one of another user stays.
static void test_user_is_rid_of_void_jobs(void **state)
{
    static const struct ps_identity alice = {PS_ROLE_WORKER, "alice"}, bob = {PS_ROLE_WORKER, "bob"};
    struct psd_core *core = core_new(64 << 20);
    (void)state;
    core->users.most_jobs = 1;
    for (int i = 0; i < 2; i++) {
        test_from = i ? &alice : &bob;
        const char *const name = i ? "first" : "bob's";
        assert_int_equal(join_job(core, 0, name).code, PS_OK);
        assert_int_equal(join_job(core, 0, "second").code, PS_RESOURCE_EXHAUSTED);
        struct psd_job *job = psd_job_lookup(&core->table, name);
        assert_true(psd_job_fail(job, atomic_load(&job->run), "its worker has left"));
    }
    struct answer a = join_job(core, 0, "second");
    if (a.code)
        fail_msg("%s", a.text);
    assert_null(psd_job_lookup(&core->table, "first"));
    assert_non_null(psd_job_lookup(&core->table, "bob's"));
    assert_int_equal(join_job(core, 0, "third").code, PS_RESOURCE_EXHAUSTED);
    test_from = NULL;
    psd_core_destroy(core);
}

static void join_twice(struct psd_core *core)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(join_job(core, 0, "other").code, PS_RESOURCE_EXHAUSTED);
}

// Who is refused for want of room asks again at once: what it is told is logged, and not each time.
static void test_refusals_are_logged_seldom(void **state)
{
    static const struct ps_identity alice = {PS_ROLE_WORKER, "alice"};
    char line[1024] = "";
    struct job j;
    (void)state;
    test_from = &alice;
    open_cut(&j, ASYNC);
    j.core->users.most_jobs = 1;
    assert_int_equal(lines_logged_by(join_twice, j.core, line, sizeof line), 1);
    assert_non_null(strstr(line, " W no room: Join of job 'other' by worker 0 of alice: user alice has 1 job here, and "
                                 "may have no more: stop one\n"));
    test_time += 9 * PS_SECOND;
    assert_int_equal(lines_logged_by(join_twice, j.core, line, sizeof line), 0);
    test_time += PS_SECOND;
    assert_int_equal(lines_logged_by(join_twice, j.core, line, sizeof line), 1);
    assert_non_null(strstr(line, ": stop one; 3 more since the last such line\n"));
    test_from = NULL;
    psd_core_destroy(j.core);
}

static struct declaring refused;

static void declare_twice(struct psd_core *core)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(ask(core, M(DECLARE), &refused.r.base, NULL, NULL, NULL, NULL).code, PS_RESOURCE_EXHAUSTED);
}

// A declaration that is refused elsewhere than at task 0 is no job that has ended there.
static void test_refused_declaration_is_logged_once(void **state)
{
    static const struct ps_identity alice = {PS_ROLE_WORKER, "alice"};
    char line[1024] = "";
    struct job j;
    (void)state;
    test_from = &alice;
    declare_at_task_1(&refused, &j);
    assert_true(psd_pool_take(&j.core->pool, j.core->pool.limit - BIG));
    assert_int_equal(lines_logged_by(declare_twice, j.core, line, sizeof line), 1);
    assert_non_null(
        strstr(line, " W no room: Declare of job 'job' by worker 0 of alice: declare: ps task 1 would need "));
    assert_int_equal(j.core->table.n, 0);
    psd_pool_give(&j.core->pool, j.core->pool.limit - BIG);
    test_from = NULL;
    psd_core_destroy(j.core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_partition),
        cmocka_unit_test(test_range_of_partition),
        cmocka_unit_test(test_bad_partitions),
        cmocka_unit_test(test_order_of_partitions),
        cmocka_unit_test(test_read_partitions),
        cmocka_unit_test(test_session_opens),
        cmocka_unit_test(test_session_opens_again),
        cmocka_unit_test(test_session_is_refused),
        cmocka_unit_test(test_session_of_an_older_run),
        cmocka_unit_test(test_session_of_a_parked_call),
        cmocka_unit_test(test_session_of_a_resumed_run),
        cmocka_unit_test(test_job_is_its_users),
        cmocka_unit_test(test_name_is_the_control_tasks_to_give),
        cmocka_unit_test(test_declaration_is_corrected),
        cmocka_unit_test(test_user_may_have_so_much),
        cmocka_unit_test(test_user_is_a_uid),
        cmocka_unit_test(test_user_is_rid_of_void_jobs),
        cmocka_unit_test(test_refusals_are_logged_seldom),
        cmocka_unit_test(test_refused_declaration_is_logged_once),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
