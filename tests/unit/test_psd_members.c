// SPDX-License-Identifier: Apache-2.0
//
// What a job's workers do at the control task: meet, rest, share the epoch's examples, keep ssp's clock, come late, are
// asked to leave; and how all that is told.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "psd/control/state.h"
#include "tests/unit/psd_job.h"

#define SSP PARAMSERVER__V1__UPDATE__SSP
#define OP(name) PARAMSERVER__V1__REDUCE_OP__##name

static bool is_done(const struct answer *a, enum ps_code code)
{
    return a->answered && a->code == code;
}

static void drop(struct answer *a)
{
    ps_slices_clear(&a->body);
}

// ---- collectives -------------------------------------------------------------------------------------------------

static void enter(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence, const char *name)
{
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    r.caller = &caller;
    r.name = (char *)name;
    ask_later(core, a, M(BARRIER), &r.base, NULL, UINT64_MAX);
}

struct reducing {
    Paramserver__V1__ReduceRequest r;
    Paramserver__V1__Caller caller;
};

static void reduce_init(struct reducing *x, uint32_t rank, uint64_t sequence, Paramserver__V1__ReduceOp op,
                        Paramserver__V1__DType dtype, uint64_t count)
{
    paramserver__v1__reduce_request__init(&x->r);
    x->caller = caller_of(rank, sequence);
    x->r.caller = &x->caller;
    x->r.name = (char *)"all";
    x->r.op = op;
    x->r.dtype = dtype;
    x->r.count = count;
}

static void bring(struct psd_core *core, struct answer *a, struct reducing *x, const void *data, size_t bytes)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    ps_slices_add(&payload, ps_slice_copy(data, bytes));
    ask_later(core, a, M(REDUCE), &x->r.base, &payload, UINT64_MAX);
}

// The bytes of a reduction's answer.
static size_t result_of(struct answer *a, void *to, size_t size)
{
    ProtobufCMessage *m;
    struct ps_slices payload = PS_SLICES_EMPTY;
    assert_true(is_done(a, PS_OK));
    assert_int_equal(ps_msg_unpack(&paramserver__v1__reduce_reply__descriptor, &a->body, &m, &payload, NULL), PS_OK);
    size_t n = payload.len;
    assert_true(n <= size);
    ps_slices_copy_out(&payload, 0, n, to);
    ps_slices_clear(&payload);
    ps_msg_free(m);
    drop(a);
    return n;
}

#define DTYPE(name) PARAMSERVER__V1__DTYPE__##name

// Both bring two elements; what each operation makes of them.
static void test_reductions(void **state)
{
    static const struct {
        Paramserver__V1__ReduceOp op;
        double sum[2];
    } rows[] = {{OP(SUM), {8, -3}}, {OP(MEAN), {4, -1.5}}, {OP(MIN), {3, -5}}, {OP(MAX), {5, 2}}};
    struct job j;
    uint64_t sequence = 1;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++, sequence++) {
        struct reducing x[2];
        struct answer a[2];
        const float mine[2][2] = {{3, 2}, {5, -5}};
        float result[2];
        for (uint32_t rank = 0; rank < 2; rank++) {
            reduce_init(&x[rank], rank, sequence, rows[i].op, DTYPE(FLOAT32), 2);
            bring(j.core, &a[rank], &x[rank], mine[rank], sizeof mine[rank]);
            assert_int_equal(a[0].answered, rank);
        }
        for (int k = 0; k < 2; k++) {
            assert_int_equal(result_of(&a[k], result, sizeof result), sizeof result);
            assert_true(result[0] == (float)rows[i].sum[0] && result[1] == (float)rows[i].sum[1]);
        }
        bring(j.core, &a[0], &x[0], mine[0], sizeof mine[0]);  // a copy gets the same
        result_of(&a[0], result, sizeof result);
        assert_true(result[0] == (float)rows[i].sum[0]);
    }
    struct reducing x[2], old;
    struct answer a[2], late;
    const int64_t whole[2] = {7, -10};
    int64_t mean;
    for (uint32_t rank = 0; rank < 2; rank++) {
        reduce_init(&x[rank], rank, sequence, OP(MEAN), DTYPE(INT64), 1);
        bring(j.core, &a[rank], &x[rank], &whole[rank], sizeof whole[rank]);
        if (rank)
            continue;
        reduce_init(&old, 0, sequence - 1, OP(MAX), DTYPE(FLOAT32), 1);
        bring(j.core, &late, &old, &whole[0], sizeof(float));
        assert_true(is_done(&late, PS_ABORTED));  // it is in the next one: nobody waits for the last one's result
    }
    for (int k = 0; k < 2; k++) {
        result_of(&a[k], &mean, sizeof mean);
        assert_int_equal(mean, -1);
    }
    psd_core_destroy(j.core);
}

static void test_not_a_number_shows(void **state)
{
    struct job j;
    struct reducing x;
    struct answer a[2];
    const float nan_[] = {NAN}, one[] = {1};
    float result;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    for (uint64_t s = 1; s <= 2; s++) {
        reduce_init(&x, 0, s, s == 1 ? OP(MIN) : OP(MAX), DTYPE(FLOAT32), 1);
        bring(j.core, &a[0], &x, s == 1 ? nan_ : one, 4);
        reduce_init(&x, 1, s, s == 1 ? OP(MIN) : OP(MAX), DTYPE(FLOAT32), 1);
        bring(j.core, &a[1], &x, s == 1 ? one : nan_, 4);
        result_of(&a[0], &result, sizeof result);
        assert_true(isnan(result));
        drop(&a[1]);
    }
    psd_core_destroy(j.core);
}

static void test_gather_and_broadcast(void **state)
{
    struct job j;
    struct reducing x;
    struct answer a[2];
    char all[16] = "";
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 8 << 20);
    reduce_init(&x, 1, 1, OP(GATHER), DTYPE(UINT8), 3);
    bring(j.core, &a[1], &x, "cde", 3);
    reduce_init(&x, 0, 1, OP(GATHER), DTYPE(UINT8), 2);
    bring(j.core, &a[0], &x, "ab", 2);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(result_of(&a[k], all, sizeof all), 5);
        assert_memory_equal(all, "abcde", 5);
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        reduce_init(&x, rank, 2, OP(BROADCAST), DTYPE(UINT8), rank ? 4 : 0);
        x.r.root = 1;
        bring(j.core, &a[rank], &x, "root", rank ? 4 : 0);
    }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(result_of(&a[k], all, sizeof all), 4);
        assert_memory_equal(all, "root", 4);
    }
    // More than a reply has: it is the same however often they ask.
    char *half = calloc(1, 3 << 20);
    for (uint32_t rank = 0; rank < 2; rank++) {
        reduce_init(&x, rank, 3, OP(GATHER), DTYPE(UINT8), 3 << 20);
        bring(j.core, &a[rank], &x, half, 3 << 20);
    }
    free(half);
    for (int k = 0; k < 2; k++) {
        assert_true(is_done(&a[k], PS_FAILED_PRECONDITION));
        assert_non_null(strstr(a[k].text, "gather: 2 workers bring 6291456 bytes"));
    }
    // The root leaves: there is nobody to have it from.
    reduce_init(&x, 0, 4, OP(BROADCAST), DTYPE(UINT8), 0);
    x.r.root = 1;
    bring(j.core, &a[0], &x, "", 0);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    assert_true(is_done(&a[0], PS_ABORTED));
    assert_non_null(strstr(a[0].text, "worker 1, whose value it is, is left"));
    psd_core_destroy(j.core);
}

// A gRPC client that nobody has told otherwise takes 4 MiB, all in all.
static void test_the_largest_reduction(void **state)
{
    struct job j;
    struct reducing x;
    struct answer a[2];
    char *zeros = calloc(1, PSD_REDUCE_MAX);
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 32 << 20);
    for (uint64_t sequence = 1; sequence <= 2; sequence++) {
        const size_t bytes = PSD_REDUCE_MAX / sequence;
        for (uint32_t rank = 0; rank < 2; rank++) {
            reduce_init(&x, rank, sequence, sequence == 1 ? OP(SUM) : OP(GATHER), DTYPE(FLOAT32), bytes / 4);
            bring(j.core, &a[rank], &x, zeros, bytes);
        }
        for (int k = 0; k < 2; k++) {
            assert_true(is_done(&a[k], PS_OK));
            assert_in_range(a[k].body.len, PSD_REDUCE_MAX, PS_CHUNK_MAX);
            drop(&a[k]);
        }
    }
    psd_core_destroy(j.core);
    free(zeros);
}

static void test_bad_reductions(void **state)
{
    static const struct {
        int op, dtype;
        uint64_t count, sequence;
        size_t bytes;
        const char *text;
    } rows[] = {
        {0, PS_FLOAT32, 1, 1, 4, "there is no operation 0"},
        {7, PS_FLOAT32, 1, 1, 4, "there is no operation 7"},
        {1, 0, 1, 1, 4, "SUM 'all': unknown dtype cannot be reduced"},
        {1, 7, 4, 1, 4, "SUM 'all': uint8 cannot be reduced"},
        {1, PS_FLOAT32, 2, 1, 4, "2 elements of 4 bytes were announced, 4 bytes came"},
        {1, PS_FLOAT32, UINT64_MAX / 2, 1, 4, "4 bytes came"},
        {1, PS_FLOAT32, 1, 0, 4, "expected a sequence"},
        {5, PS_STRING, 4, 1, 4, "GATHER 'all': string cannot be reduced"},
        {1, PS_FLOAT32, PSD_REDUCE_MAX / 4 + 1, 1, PSD_REDUCE_MAX + 4, "at most 3932160 at once"},
    };
    struct job j;
    char *zeros = calloc(1, (4 << 20) + 4);
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reducing x;
        struct answer a;
        reduce_init(&x, 0, rows[i].sequence, (Paramserver__V1__ReduceOp)rows[i].op,
                    (Paramserver__V1__DType)rows[i].dtype, rows[i].count);
        bring(j.core, &a, &x, zeros, rows[i].bytes);
        if (!is_done(&a, PS_INVALID_ARGUMENT) || !strstr(a.text, rows[i].text))
            fail_msg("row %zu: %d %s", i, (int)a.code, a.text);
    }
    // Who brings something else than those who wait would wait for ever.
    struct reducing x;
    struct answer waits, other;
    reduce_init(&x, 0, 1, OP(SUM), DTYPE(FLOAT32), 1);
    bring(j.core, &waits, &x, zeros, 4);
    reduce_init(&x, 1, 1, OP(SUM), DTYPE(FLOAT32), 2);
    bring(j.core, &other, &x, zeros, 8);
    assert_true(is_done(&other, PS_FAILED_PRECONDITION));
    assert_non_null(strstr(other.text, "they would wait for each other"));
    enter(j.core, &other, 1, 1, "all");
    assert_true(is_done(&other, PS_FAILED_PRECONDITION));
    assert_non_null(strstr(other.text, "barrier 'all': worker 0 waits in "));
    assert_non_null(strstr(other.text, " (float32, 1 elements): they would wait for each other"));
    assert_false(waits.answered);
    psd_core_drain(j.core);
    assert_true(is_done(&waits, PS_UNAVAILABLE));
    psd_core_destroy(j.core);
    free(zeros);
}

// A sequence is of one collective: under that of a barrier that was passed there is no reduction to ask for again, nor
// the other way round.
static void test_sequence_of_another_collective(void **state)
{
    struct job j;
    struct reducing x;
    struct answer a;
    const float one = 1;
    float sum;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    enter(j.core, &a, 0, 1, "all");
    assert_true(is_done(&a, PS_OK));
    drop(&a);
    reduce_init(&x, 0, 1, OP(SUM), DTYPE(FLOAT32), 1);
    bring(j.core, &a, &x, &one, sizeof one);
    assert_true(is_done(&a, PS_INVALID_ARGUMENT));
    assert_string_equal(a.text, "SUM 'all': sequence 1 was that of barrier 'all'");
    reduce_init(&x, 0, 2, OP(SUM), DTYPE(FLOAT32), 1);
    bring(j.core, &a, &x, &one, sizeof one);
    result_of(&a, &sum, sizeof sum);
    enter(j.core, &a, 0, 2, "all");
    assert_true(is_done(&a, PS_INVALID_ARGUMENT));
    psd_core_destroy(j.core);
}

// The mean of integers is that of their sum, which may be greater than they can be.
static void test_mean_of_great_integers(void **state)
{
    struct job j;
    struct reducing x[2];
    struct answer a[2];
    const int32_t mine[2][2] = {{INT32_MAX, INT32_MIN}, {INT32_MAX, INT32_MIN}};
    const int64_t longs[2] = {INT64_MAX, INT64_MAX - 2};
    int32_t mean[2];
    int64_t mean_of_longs;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++) {
        reduce_init(&x[rank], rank, 1, OP(MEAN), DTYPE(INT32), 2);
        bring(j.core, &a[rank], &x[rank], mine[rank], sizeof mine[rank]);
    }
    for (int k = 0; k < 2; k++) {
        result_of(&a[k], mean, sizeof mean);
        assert_true(mean[0] == INT32_MAX && mean[1] == INT32_MIN);
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        reduce_init(&x[rank], rank, 2, OP(MEAN), DTYPE(INT64), 1);
        bring(j.core, &a[rank], &x[rank], &longs[rank], sizeof longs[rank]);
    }
    for (int k = 0; k < 2; k++) {
        result_of(&a[k], &mean_of_longs, sizeof mean_of_longs);
        assert_true(mean_of_longs == INT64_MAX - 1);
    }
    psd_core_destroy(j.core);
}

// Who enters the next collective has given up the one it was in, and is not told that it has passed that.
static void test_superseded_collective(void **state)
{
    struct job j;
    struct answer first, second, other;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    enter(j.core, &first, 0, 5, "one");
    enter(j.core, &second, 0, 6, "two");
    assert_true(is_done(&first, PS_ABORTED));
    assert_non_null(strstr(first.text, "this is 5"));
    enter(j.core, &other, 1, 1, "two");
    assert_true(is_done(&second, PS_OK) && is_done(&other, PS_OK));
    drop(&second);
    drop(&other);
    psd_core_destroy(j.core);
}

// ---- what ended without effect -------------------------------------------------------------------------------------

static void enter_for(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence, const char *name,
                      uint64_t ns)
{
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    r.caller = &caller;
    r.name = (char *)name;
    ask_later(core, a, M(BARRIER), &r.base, NULL, test_time + ns);
}

// A barrier whose time was over is not entered: the other waits, until the worker comes again, under the same sequence.
static void test_a_late_barrier_is_not_entered(void **state)
{
    struct job j;
    struct answer a, b, again;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    enter_for(j.core, &a, 0, 1, "A", PS_SECOND / 2);
    core_run(j.core, PS_SECOND);
    assert_true(is_done(&a, PS_DEADLINE_EXCEEDED));
    enter(j.core, &b, 1, 1, "A");
    assert_false(b.answered);
    enter(j.core, &again, 0, 1, "A");
    assert_true(is_done(&b, PS_OK) && is_done(&again, PS_OK));
    drop(&b);
    drop(&again);
    psd_core_destroy(j.core);
}

// A value whose time was over is not summed.
static void test_a_late_value_is_not_summed(void **state)
{
    struct job j;
    struct reducing x[3];
    struct answer a[3];
    const float mine[] = {100, 1, 1};
    float sum;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    reduce_init(&x[0], 0, 1, OP(SUM), DTYPE(FLOAT32), 1);
    bring(j.core, &a[0], &x[0], &mine[0], sizeof mine[0]);
    j.core->table.newest->control->members[0].participation.waiting.earliest = a[0].call.deadline = test_time;
    psd_member_recount(j.core->table.newest->control, &j.core->table.newest->control->members[0]);
    core_run(j.core, 100 * PS_MS);
    assert_true(is_done(&a[0], PS_DEADLINE_EXCEEDED));
    reduce_init(&x[1], 1, 1, OP(SUM), DTYPE(FLOAT32), 1);
    bring(j.core, &a[1], &x[1], &mine[1], sizeof mine[1]);
    assert_false(a[1].answered);
    reduce_init(&x[2], 0, 2, OP(SUM), DTYPE(FLOAT32), 1);
    bring(j.core, &a[2], &x[2], &mine[2], sizeof mine[2]);
    result_of(&a[1], &sum, sizeof sum);
    assert_true(sum == 2);
    result_of(&a[2], &sum, sizeof sum);
    psd_core_destroy(j.core);
}

// Nobody waits in it any more: another barrier is not refused because of it.
static void test_a_late_barrier_refuses_no_other(void **state)
{
    struct job j;
    struct answer a, b, c;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    enter_for(j.core, &a, 0, 1, "A", PS_SECOND / 2);
    core_run(j.core, PS_SECOND);
    enter(j.core, &b, 1, 1, "B");
    assert_false(b.answered);
    enter(j.core, &c, 0, 2, "B");
    assert_true(is_done(&b, PS_OK) && is_done(&c, PS_OK));
    drop(&b);
    drop(&c);
    psd_core_destroy(j.core);
}

// Who was cancelled in a barrier has entered nothing: the other waits until it comes again.
static void test_the_cancelled_are_not_counted(void **state)
{
    struct job j;
    struct answer a, b, again;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    enter(j.core, &a, 0, 1, "A");
    psd_core_cancel(j.core, &a.call);
    assert_true(is_done(&a, PS_CANCELLED));
    assert_int_equal(j.core->table.newest->control->tally.in_collective, 0);
    enter(j.core, &b, 1, 1, "A");
    assert_false(b.answered);
    enter(j.core, &again, 0, 1, "A");
    assert_true(is_done(&b, PS_OK) && is_done(&again, PS_OK));
    drop(&b);
    drop(&again);
    psd_core_destroy(j.core);
}

// ---- rest ---------------------------------------------------------------------------------------------------------

static enum ps_code push(struct psd_core *core, uint32_t rank, uint64_t sequence, uint64_t round)
{
    struct update u;
    update_init(&u, rank, sequence, "a", 0, 15);
    u.r.round = round;
    enum ps_code code = send_update(core, &u, M(PUSH), 15, 100, NULL).code;
    update_init(&u, rank, sequence, "big", 0, 20);
    u.r.round = round;
    return code ? code : send_update(core, &u, M(PUSH), 20, 100, NULL).code;
}

// Without its list of members.
static Paramserver__V1__HeartbeatReply heartbeat(struct psd_core *core, uint32_t rank)
{
    Paramserver__V1__HeartbeatRequest r = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    ProtobufCMessage *m;
    r.caller = &caller;
    assert_int_equal(
        ask(core, M(HEARTBEAT), &r.base, NULL, &paramserver__v1__heartbeat_reply__descriptor, &m, NULL).code, PS_OK);
    const Paramserver__V1__HeartbeatReply copy = *(Paramserver__V1__HeartbeatReply *)m;
    ps_msg_free(m);
    return copy;
}

// A worker whose barrier ended so, and which does not come again, trains on: rounds wait for it again, and take what it
// pushes. As long as it is not heard it may be cut off, and still wait.
static void test_a_late_barrier_excludes_nobody(void **state)
{
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    enter_for(j.core, &a, 0, 1, "A", PS_SECOND / 2);
    core_run(j.core, 300 * PS_MS);
    assert_true(j.core->table.newest->control->members[0].excluded);
    core_run(j.core, 400 * PS_MS);
    assert_true(is_done(&a, PS_DEADLINE_EXCEEDED));
    for (int i = 0; i < 4; i++, core_run(j.core, PS_SECOND / 2)) {
        assert_true(j.core->table.newest->control->members[0].excluded);
        heartbeat(j.core, 1);
    }
    assert_true(j.core->table.newest->control->members[0].excluded);
    for (int i = 0; i < 5; i++, core_run(j.core, PS_SECOND / 2))
        for (uint32_t rank = 0; rank < 2; rank++)
            heartbeat(j.core, rank);
    assert_false(j.core->table.newest->control->members[0].excluded);
    assert_int_equal(push(j.core, 1, 1, 1), PS_OK);
    assert_true(read_one(j.core, "a") == 0);
    assert_int_equal(push(j.core, 0, 2, 1), PS_OK);
    assert_true(read_one(j.core, "a") == -1);
    psd_core_destroy(j.core);
}

// Worker 1 has 93 batches, worker 0 has 100. Both end together, and then both take part again.
static void test_unequal_batches(void **state)
{
    enum { FEW = 93, MANY = 100 };
    struct job j;
    struct answer a[2];
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint64_t round = 1; round <= FEW; round++)
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(push(j.core, rank, round, round), PS_OK);
    enter(j.core, &a[1], 1, FEW + 1, "epoch");
    assert_int_equal(push(j.core, 0, FEW + 1, FEW + 1), PS_OK);
    assert_true(read_one(j.core, "a") == -FEW);
    core_run(j.core, 200 * PS_MS);
    assert_true(read_one(j.core, "a") == -(FEW + 1));
    for (uint64_t round = FEW + 2; round <= MANY; round++)
        assert_int_equal(push(j.core, 0, round, round), PS_OK);
    assert_true(read_one(j.core, "a") == -MANY);
    assert_false(a[1].answered);
    assert_int_equal(push(j.core, 1, MANY + 1, MANY + 1), PS_ABORTED);  // it rests
    enter(j.core, &a[0], 0, MANY + 1, "epoch");
    assert_true(is_done(&a[0], PS_OK) && is_done(&a[1], PS_OK));
    assert_int_equal(push(j.core, 0, MANY + 2, MANY + 1), PS_OK);
    assert_true(read_one(j.core, "a") == -MANY);
    assert_int_equal(push(j.core, 1, MANY + 2, MANY + 1), PS_OK);
    assert_true(read_one(j.core, "a") == -(MANY + 1));
    drop(&a[0]);
    drop(&a[1]);
    psd_core_destroy(j.core);
}

// With two tasks: nobody goes on before the other task knows that all take part again.
static void test_all_know_before_all_go_on(void **state)
{
    struct job j;
    struct answer a[2];
    (void)state;
    fill_job(&j, 20);
    j.core = core_new_task(0, 2, 1 << 20);
    test_sent.code = PS_OK;
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(join(j.core, rank, SYNC).code, PS_OK);
    assert_int_equal(declare(&j, SYNC, "sgd").code, PS_OK);
    enter(j.core, &a[1], 1, 1, "epoch");
    core_run(j.core, 200 * PS_MS);
    assert_true(test_sent.n > 0);  // it rests
    test_sent.code = PS_UNAVAILABLE;
    enter(j.core, &a[0], 0, 1, "epoch");
    core_run(j.core, 200 * PS_MS);
    assert_false(a[0].answered || a[1].answered);
    test_sent.code = PS_OK;
    core_run(j.core, 100 * PS_MS);
    assert_true(is_done(&a[0], PS_OK) && is_done(&a[1], PS_OK));
    drop(&a[0]);
    drop(&a[1]);
    ps_slices_clear(&test_sent.last);
    psd_core_destroy(j.core);
}

// The rounds of a Get: the least and the greatest of what it has read.
static uint64_t round_of_get(struct psd_core *core)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    ProtobufCMessage *m;
    struct ps_slices bytes = PS_SLICES_EMPTY;
    t.variable = (char *)"a";
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    assert_int_equal(ask(core, M(GET), &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes).code,
                     PS_OK);
    uint64_t round = ((Paramserver__V1__ReadReply *)m)->round;
    assert_int_equal(((Paramserver__V1__ReadReply *)m)->last_round, round);
    ps_slices_clear(&bytes);
    ps_msg_free(m);
    return round;
}

static void push_nothing(struct psd_core *core, uint64_t round, float value)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct update u;
        update_init(&u, rank, round, "a", 0, 15);
        u.r.round = round;
        u.r.examples = 0;
        assert_int_equal(send_update(core, &u, M(PUSH), 15, value, NULL).code, PS_OK);
    }
}

static void push_nothing_at_all(struct psd_core *core)
{
    push_nothing(core, 2, 0);
    push_nothing(core, 3, -0.0f);
}

static void push_without_examples(struct psd_core *core)
{
    push_nothing(core, 4, 100);
    push_nothing(core, 5, 100);
}

// A round that stands for no example changes nothing, and is a round all the same. Where gradients came for it that are
// not those of empty batches, the log says so once.
static void test_a_round_of_nothing(void **state)
{
    struct job j;
    char line[1024];
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(push(j.core, rank, 1, 1), PS_OK);
    assert_int_equal(round_of_get(j.core), 1);
    assert_int_equal(lines_logged_by(push_nothing_at_all, j.core, line, sizeof line), 0);
    assert_int_equal(round_of_get(j.core), 3);
    assert_int_equal(lines_logged_by(push_without_examples, j.core, line, sizeof line), 1);
    assert_non_null(strstr(line, "W job 'job': round 4 of 'a' changes nothing"));
    assert_int_equal(round_of_get(j.core), 5);
    assert_true(read_one(j.core, "a") == -1);
    psd_core_destroy(j.core);
}

// ---- shares -------------------------------------------------------------------------------------------------------

struct leasing {
    Paramserver__V1__LeaseRequest r;
    Paramserver__V1__Caller caller;
};

static void lease_rounds(struct psd_core *core, struct answer *a, Paramserver__V1__Caller caller, uint64_t epoch,
                         uint64_t round, uint64_t rounds)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    r.caller = &caller;
    r.epoch = epoch;
    r.examples = 95;
    r.want = 10;
    r.round = round;
    r.rounds = rounds;
    ask_later(core, a, M(LEASE), &r.base, NULL, UINT64_MAX);
}

static void lease_as(struct psd_core *core, struct answer *a, Paramserver__V1__Caller caller, uint64_t epoch,
                     uint64_t round)
{
    lease_rounds(core, a, caller, epoch, round, 0);
}

static void lease(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence, uint64_t epoch,
                  uint64_t round)
{
    lease_as(core, a, caller_of(rank, sequence), epoch, round);
}

static Paramserver__V1__LeaseReply share_of(struct answer *a)
{
    ProtobufCMessage *m;
    struct ps_slices none = PS_SLICES_EMPTY;
    if (!is_done(a, PS_OK))
        fail_msg("lease: answered %d, %d %s", a->answered, (int)a->code, a->text);
    assert_int_equal(ps_msg_unpack(&paramserver__v1__lease_reply__descriptor, &a->body, &m, &none, NULL), PS_OK);
    Paramserver__V1__LeaseReply r = *(Paramserver__V1__LeaseReply *)m;
    ps_msg_free(m);
    drop(a);
    return r;
}

static uint64_t done_of(struct psd_core *core)
{
    return core->table.newest->control->data.done;
}

static Paramserver__V1__StatusReply *status_of(struct psd_core *core)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *m;
    assert_int_equal(ask(core, M(STATUS), &r.base, NULL, &paramserver__v1__status_reply__descriptor, &m, NULL).code,
                     PS_OK);
    return (Paramserver__V1__StatusReply *)m;
}

static uint64_t status_done(struct psd_core *core)
{
    Paramserver__V1__StatusReply *s = status_of(core);
    const uint64_t done = s->jobs[0]->examples_done;
    ps_msg_free(&s->base);
    return done;
}

// Two workers share an epoch of 95 in batches of 10: 10 batches, 5 rounds; the last of them has 5 examples.
static void test_shares(void **state)
{
    struct job j;
    struct answer a[2];
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        lease(j.core, &a[0], 0, 10 * epoch + 1, epoch, 5 * epoch);
        assert_false(a[0].answered);
        lease(j.core, &a[1], 1, 10 * epoch + 1, epoch, 5 * epoch);
        for (uint64_t rank = 0; rank < 2; rank++) {
            Paramserver__V1__LeaseReply s = share_of(&a[rank]);
            assert_true(s.first == 10 * rank && s.count == 10 && s.stride == 20 && s.end == 95 && s.steps == 5);
            assert_int_equal(s.round, 5 * epoch);
        }
        for (uint64_t round = 5 * epoch + 1; round <= 5 * epoch + 5; round++)
            for (uint32_t rank = 0; rank < 2; rank++) {
                assert_int_equal(status_done(j.core), 20 * (round - 5 * epoch - 1));
                assert_int_equal(push(j.core, rank, 20 * epoch + round, round), PS_OK);
            }
        assert_int_equal(status_done(j.core), 95);
        for (uint32_t rank = 0; rank < 2; rank++)
            lease(j.core, &a[rank], rank, 10 * epoch + 2, epoch, 5 * epoch + 5);
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(share_of(&a[rank]).count, 0);
        assert_int_equal(done_of(j.core), 95);
    }
    psd_core_destroy(j.core);
}

// Of a worker that names a round which nobody can have closed: the others' shares go on from where they are.
static void test_a_round_that_cannot_be_closed(void **state)
{
    const uint64_t rounds[] = {UINT64_MAX, INT64_MAX, 2 * PS_WINDOW};
    struct job j;
    struct answer a[2];
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    lease(j.core, &a[0], 0, 1, 0, 0);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        lease(j.core, &a[1], 1, 1 + i, 0, rounds[i]);
        assert_true(is_done(&a[1], PS_INVALID_ARGUMENT));
        assert_non_null(strstr(a[1].text, " cannot be closed, at most 2"));
        drop(&a[1]);
    }
    lease(j.core, &a[1], 1, 4, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(share_of(&a[rank]).round, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(push(j.core, rank, 2, 1), PS_OK);
    lease(j.core, &a[0], 0, 2, 0, PS_WINDOW + 1);
    assert_false(a[0].answered);
    assert_int_equal(leave(j.core, 1, "").code, PS_OK);
    drop(&a[0]);
    psd_core_destroy(j.core);
}

// Worker 1 dies after two of its five rounds: worker 0 trains the other three, every example counts once.
static void test_the_dead_leave_their_shares(void **state)
{
    struct job j;
    struct answer a[2];
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        lease(j.core, &a[rank], rank, 1, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(share_of(&a[rank]).steps, 5);
    for (uint64_t round = 1; round <= 2; round++)
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(push(j.core, rank, 1 + round, round), PS_OK);
    assert_int_equal(leave(j.core, 1, "of a bullet").code, PS_OK);
    assert_int_equal(status_done(j.core), 40);
    for (uint64_t round = 3; round <= 5; round++)
        assert_int_equal(push(j.core, 0, 1 + round, round), PS_OK);
    assert_true(read_one(j.core, "a") == -5);
    assert_int_equal(status_done(j.core), 50 + 20);
    lease(j.core, &a[0], 0, 7, 0, 5);
    Paramserver__V1__LeaseReply s = share_of(&a[0]);
    assert_true(s.first == 50 && s.count == 10 && s.stride == 20 && s.end == 95 && s.steps == 3);
    assert_int_equal(s.round, 5);
    assert_int_equal(done_of(j.core), 50 + 20);
    lease(j.core, &a[0], 0, 8, 0, 8);
    assert_int_equal(share_of(&a[0]).count, 0);
    assert_int_equal(done_of(j.core), 95);
    psd_core_destroy(j.core);
}

// Worker 1 comes back in the middle of the epoch: it rests until the others have done their shares, and then has one.
static void test_coming_back_to_sync(void **state)
{
    struct job j;
    struct answer a[2];
    struct joining x;
    ProtobufCMessage *m;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        lease(j.core, &a[rank], rank, 1, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        share_of(&a[rank]);
    assert_int_equal(leave(j.core, 1, "of a bullet").code, PS_OK);
    join_init(&x, 1, SYNC);
    another_process(&x.caller);
    assert_int_equal(ask(j.core, M(JOIN), &x.r.base, NULL, &paramserver__v1__join_reply__descriptor, &m, NULL).code,
                     PS_OK);
    assert_true(((Paramserver__V1__JoinReply *)m)->late);
    assert_int_equal(((Paramserver__V1__JoinReply *)m)->data_epoch, 0);
    ps_msg_free(m);
    x.caller.sequence = x.caller.oldest = 1;
    lease_as(j.core, &a[1], x.caller, 0, 0);
    for (uint64_t round = 1; round <= 5; round++)
        assert_int_equal(push(j.core, 0, 1 + round, round), PS_OK);
    assert_true(read_one(j.core, "a") == -5);
    assert_false(a[1].answered);
    lease(j.core, &a[0], 0, 7, 0, 5);
    Paramserver__V1__LeaseReply s = share_of(&a[0]), late = share_of(&a[1]);
    assert_true(s.first == 10 && s.stride == 40 && s.steps == 3);
    assert_true(late.first == 30 && late.stride == 40 && late.steps == 3 && late.round == 5);
    assert_int_equal(push(j.core, 0, 8, 6), PS_OK);
    assert_true(read_one(j.core, "a") == -5);  // waits for both again
    psd_core_destroy(j.core);
}

static Paramserver__V1__JoinReply join_as_another(struct psd_core *core, uint32_t rank)
{
    struct joining x;
    ProtobufCMessage *m;
    join_init(&x, rank, SYNC);
    another_process(&x.caller);
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, &paramserver__v1__join_reply__descriptor, &m, NULL).code,
                     PS_OK);
    Paramserver__V1__JoinReply copy = *(Paramserver__V1__JoinReply *)m;
    ps_msg_free(m);
    return copy;
}

// Worker 0 comes back: worker 1, which has been there for longer, stays the chief until it goes.
static void test_the_chief_has_been_there_for_longest(void **state)
{
    struct job j;
    struct answer a[2];
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    const struct psd_control *c = j.core->table.newest->control;
    assert_int_equal(psd_chief(c), 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        lease(j.core, &a[rank], rank, 1, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        share_of(&a[rank]);
    assert_int_equal(leave(j.core, 0, "of a bullet").code, PS_OK);
    assert_int_equal(psd_chief(c), 1);
    const Paramserver__V1__JoinReply back = join_as_another(j.core, 0);
    assert_true(back.late && back.chief == 1 && back.arrival == back.epoch);
    assert_int_equal(psd_chief(c), 1);
    assert_int_equal(leave(j.core, 1, "of another one").code, PS_OK);
    assert_int_equal(psd_chief(c), 0);
    const Paramserver__V1__JoinReply later = join_as_another(j.core, 1);
    assert_true(later.chief == 0 && later.arrival > back.arrival);
    psd_core_destroy(j.core);
}

// Who comes late hears how many steps there were before the run, and which is the furthest; that all hear.
static void test_who_comes_late_knows_where_all_are(void **state)
{
    struct job j;
    struct answer a[2];
    Paramserver__V1__HeartbeatRequest h = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    r.examples = 95;
    r.want = 10;
    r.steps_before = 7000;
    r.iterations_before = 7500;
    ask_later(j.core, &a[0], M(LEASE), &r.base, NULL, UINT64_MAX);
    assert_int_equal(share_of(&a[0]).steps_before, 7000);
    for (uint32_t rank = 0; rank < 2; rank++) {
        Paramserver__V1__Caller heart = caller_of(rank, 0);
        h.caller = &heart;
        h.step = rank ? 7200 : 7300;
        assert_int_equal(ask(j.core, M(HEARTBEAT), &h.base, NULL, NULL, NULL, NULL).code, PS_OK);
    }
    assert_int_equal(heartbeat(j.core, 1).furthest, 7300);
    lease(j.core, &a[1], 1, 1, 0, 0);
    const Paramserver__V1__LeaseReply late = share_of(&a[1]);
    assert_true(late.steps_before == 7000 && late.iterations_before == 7500 && late.furthest == 7300);
    psd_core_destroy(j.core);
}

// A job that goes on from a checkpoint: 40 examples of epoch 3 were trained before. Worker 0 knows; worker 1 has come
// back after the barrier at the start, and has been told of no epoch.
static Paramserver__V1__Caller resumed_open(struct job *j, Paramserver__V1__Update update)
{
    struct answer a[2];
    job_open(j, update, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        enter(j->core, &a[rank], rank, 1, "start");
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_true(is_done(&a[rank], PS_OK));
        drop(&a[rank]);
    }
    assert_int_equal(leave(j->core, 1, "of a bullet").code, PS_OK);
    assert_int_equal(join_again(j->core, 1, update, PARAMSERVER__V1__ON_EXISTING__REFUSE).code, PS_OK);
    Paramserver__V1__Caller late = caller_of(1, 0);
    another_process(&late);
    return late;
}

static void resumed_lease(struct psd_core *core, struct answer *a, Paramserver__V1__Caller caller, uint64_t sequence,
                          uint64_t epoch, uint64_t begin)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    caller.sequence = caller.oldest = sequence;
    r.caller = &caller;
    r.epoch = epoch;
    r.examples = 100;
    r.want = 10;
    r.begin = begin;
    r.steps_before = begin ? 7000 : 0;
    ask_later(core, a, M(LEASE), &r.base, NULL, UINT64_MAX);
}

// Whichever of the two asks first, they train what is left of epoch 3.
static void test_who_comes_late_to_a_job_that_goes_on_in_an_epoch(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct job j;
        struct answer a[2];
        Paramserver__V1__Caller late = resumed_open(&j, SYNC);
        if (first == 0)
            resumed_lease(j.core, &a[0], caller_of(0, 0), 2, 3, 40);
        resumed_lease(j.core, &a[1], late, 1, 0, 0);
        if (first == 1) {
            assert_false(a[1].answered);
            resumed_lease(j.core, &a[0], caller_of(0, 0), 2, 3, 40);
        }
        assert_false(a[0].answered);
        const Paramserver__V1__LeaseReply heard = share_of(&a[1]);
        assert_true(heard.count == 0 && heard.epoch == 3 && heard.steps_before == 7000);
        resumed_lease(j.core, &a[1], late, 2, 3, 0);
        const Paramserver__V1__LeaseReply s = share_of(&a[0]), of_late = share_of(&a[1]);
        assert_true(s.first == 40 && s.stride == 20 && s.end == 100 && s.steps == 3);
        assert_true(of_late.first == 50 && of_late.stride == 20 && of_late.end == 100 && of_late.steps == 3);
        psd_core_destroy(j.core);
    }
}

static void test_who_comes_late_waits_for_the_first_range(void **state)
{
    struct job j;
    struct answer a[2];
    (void)state;
    const Paramserver__V1__Caller late = resumed_open(&j, ASYNC);
    resumed_lease(j.core, &a[1], late, 1, 0, 0);
    assert_false(a[1].answered);
    enter(j.core, &a[0], 0, 2, "weights");  // it does not keep the others from meeting
    assert_true(is_done(&a[0], PS_OK));
    drop(&a[0]);
    assert_false(a[1].answered);
    resumed_lease(j.core, &a[0], caller_of(0, 0), 3, 3, 40);
    assert_int_equal(share_of(&a[0]).first, 40);
    const Paramserver__V1__LeaseReply heard = share_of(&a[1]);
    assert_true(heard.count == 0 && heard.epoch == 3 && heard.steps_before == 7000);
    resumed_lease(j.core, &a[1], late, 2, 3, 0);
    assert_int_equal(share_of(&a[1]).first, 50);
    psd_core_destroy(j.core);
}

// Where nobody lives who was there from the beginning, it begins with what is asked for.
static void test_who_comes_late_and_is_alone(void **state)
{
    static const Paramserver__V1__Update updates[] = {SYNC, ASYNC};
    (void)state;
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
        struct job j;
        struct answer a;
        const Paramserver__V1__Caller late = resumed_open(&j, updates[i]);
        resumed_lease(j.core, &a, late, 1, 0, 0);
        assert_false(a.answered);
        assert_int_equal(leave(j.core, 0, "of another one").code, PS_OK);
        const Paramserver__V1__LeaseReply s = share_of(&a);
        assert_true(s.first == 0 && s.count == 10);
        psd_core_destroy(j.core);
    }
}

static Paramserver__V1__LeaseReply share_of_rounds(struct psd_core *core, uint64_t sequence, uint64_t round,
                                                   struct answer a[2])
{
    for (uint32_t rank = 0; rank < 2; rank++)
        lease_rounds(core, &a[rank], caller_of(rank, sequence), 0, round, 2);
    Paramserver__V1__LeaseReply first = share_of(&a[0]), second = share_of(&a[1]);
    if (first.count == 0)
        return first;
    assert_true(first.steps == second.steps && first.end == second.end && first.round == round);
    assert_true(second.first == first.first + 10);
    return first;
}

static void push_both(struct psd_core *core, uint64_t sequence, uint64_t round)
{
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(push(core, rank, sequence, round), PS_OK);
}

// Two rounds at a time: 95 examples are shares of 40, 40 and 15, which is one round.
static void test_shares_of_some_rounds(void **state)
{
    struct job j;
    struct answer a[2];
    Paramserver__V1__LeaseReply s;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint64_t k = 0; k < 2; k++) {
        s = share_of_rounds(j.core, 10 * k + 1, 2 * k, a);
        assert_true(s.first == 40 * k && s.end == 40 * k + 40 && s.steps == 2 && s.stride == 20);
        for (uint64_t round = 2 * k + 1; round <= 2 * k + 2; round++)
            push_both(j.core, 8 * k + 1 + round, round);
        assert_int_equal(status_done(j.core), 40 * k + 40);
    }
    s = share_of_rounds(j.core, 21, 4, a);
    assert_true(s.first == 80 && s.end == 95 && s.steps == 1);
    push_both(j.core, 22, 5);
    assert_int_equal(status_done(j.core), 95);
    assert_int_equal(share_of_rounds(j.core, 23, 5, a).count, 0);
    assert_int_equal(done_of(j.core), 95);
    psd_core_destroy(j.core);
}

// Worker 1 dies in the second of its two rounds: what it had not trained comes last, and every example counts once.
static void test_the_dead_leave_some_rounds(void **state)
{
    struct job j;
    struct answer a[2];
    const uint64_t first[] = {40, 60, 80, 30}, end[] = {60, 80, 95, 40};
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    share_of_rounds(j.core, 1, 0, a);
    push_both(j.core, 2, 1);
    assert_int_equal(push(j.core, 0, 3, 2), PS_OK);
    assert_int_equal(leave(j.core, 1, "of a bullet").code, PS_OK);
    assert_int_equal(status_done(j.core), 30);
    for (uint64_t k = 0, round = 2; k < 4; k++) {
        lease_rounds(j.core, &a[0], caller_of(0, 10 * k + 11), 0, round, 2);
        Paramserver__V1__LeaseReply s = share_of(&a[0]);
        assert_int_equal(s.first, first[k]);
        assert_int_equal(s.end, end[k]);
        for (uint64_t i = 0; i < s.steps; i++)
            assert_int_equal(push(j.core, 0, 10 * k + 12 + i, ++round), PS_OK);
    }
    assert_int_equal(status_done(j.core), 95);
    psd_core_destroy(j.core);
}

// Both workers die in round 1, and worker 1's gradient is in variable a alone, which closes the round there. Worker 0,
// when it is back, gets no batch before round 1 is closed in all variables: in a, that batch would be too late for it,
// and worker 1's would be taken for it.
static void test_a_round_closed_in_part(void **state)
{
    struct job j;
    struct answer a[2];
    struct joining x;
    struct update u;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        lease(j.core, &a[rank], rank, 1, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(share_of(&a[rank]).steps, 5);
    assert_int_equal(leave(j.core, 0, "of a bullet").code, PS_OK);
    join_init(&x, 0, SYNC);
    another_process(&x.caller);
    assert_int_equal(ask(j.core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    x.caller.sequence = x.caller.oldest = 1;
    lease_as(j.core, &a[0], x.caller, 0, 0);
    update_init(&u, 1, 2, "a", 0, 15);
    u.r.round = 1;
    assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 100, NULL).code, PS_OK);
    assert_int_equal(leave(j.core, 1, "of another").code, PS_OK);
    psd_core_tick(j.core);
    Paramserver__V1__LeaseReply s = share_of(&a[0]);
    assert_true(s.first == 95 && s.end == 95 && s.count == 10 && s.steps == 1 && s.round == 0);
    x.caller.sequence = 2;
    lease_as(j.core, &a[0], x.caller, 0, 1);
    s = share_of(&a[0]);
    assert_true(s.first == 30 && s.stride == 20 && s.end == 95 && s.steps == 4 && s.round == 1);  // worker 1's others
    psd_core_destroy(j.core);
}

// A worker that came late and has had no share yet waits for its first; the others' collectives do not wait for it.
static void test_collectives_without_who_came_late(void **state)
{
    struct job j;
    struct answer a[2], barrier;
    struct joining x;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        lease(j.core, &a[rank], rank, 1, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        share_of(&a[rank]);
    assert_int_equal(leave(j.core, 1, "of a bullet").code, PS_OK);
    lease(j.core, &a[0], 0, 2, 0, 0);
    share_of(&a[0]);
    lease(j.core, &a[0], 0, 3, 0, 0);
    assert_int_equal(share_of(&a[0]).count, 0);  // the epoch is over
    join_init(&x, 1, SYNC);
    another_process(&x.caller);
    assert_int_equal(ask(j.core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    x.caller.sequence = x.caller.oldest = 1;
    lease_as(j.core, &a[1], x.caller, 1, 0);
    enter(j.core, &barrier, 0, 4, "between epochs");
    assert_true(is_done(&barrier, PS_OK));
    drop(&barrier);
    assert_false(a[1].answered);
    assert_int_equal(push(j.core, 0, 5, 1), PS_OK);
    assert_true(read_one(j.core, "a") == -1);  // rounds do not wait for it either
    lease(j.core, &a[0], 0, 6, 1, 1);
    assert_int_equal(share_of(&a[0]).stride, 20);
    assert_int_equal(share_of(&a[1]).stride, 20);
    psd_core_destroy(j.core);
}

static void lease_of(struct psd_core *core, struct answer *a, Paramserver__V1__Caller caller, uint64_t examples,
                     uint64_t want)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    r.caller = &caller;
    r.examples = examples;
    r.want = want;
    ask_later(core, a, M(LEASE), &r.base, NULL, UINT64_MAX);
}

// A late copy of an earlier request does not take the place of the one that waits.
static void test_late_share(void **state)
{
    struct job j;
    struct answer a, late, other;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    lease(j.core, &a, 0, 8, 0, 0);
    lease(j.core, &late, 0, 7, 0, 0);
    assert_true(is_done(&late, PS_ABORTED));
    assert_non_null(strstr(late.text, "this is 7"));
    lease(j.core, &other, 1, 1, 0, 0);
    assert_int_equal(share_of(&other).steps, 5);
    assert_int_equal(share_of(&a).steps, 5);
    psd_core_destroy(j.core);
}

// An epoch is over; one worker waits for the next one, another at the end of this one, which the first has left or
// never comes to, as who joins late: the other goes on alone, and the two meet in the next epoch.
static void test_the_end_of_an_epoch_is_not_waited_for_twice(void **state)
{
    const float mine[2] = {3, 4};
    float sum[2];
    struct job j;
    struct reducing x;
    struct answer a, b;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint64_t sequence = 1; sequence <= 2; sequence++) {
        lease(j.core, &a, 0, sequence, 0, 0);
        lease(j.core, &b, 1, sequence, 0, 0);
        assert_int_equal(share_of(&a).count != 0, sequence == 1);
        assert_int_equal(share_of(&b).count != 0, sequence == 1);
    }
    lease(j.core, &a, 0, 3, 1, 0);
    assert_false(a.answered);
    reduce_init(&x, 1, 1, OP(SUM), DTYPE(FLOAT32), 2);
    bring(j.core, &b, &x, mine, sizeof mine);
    assert_int_equal(result_of(&b, sum, sizeof sum), sizeof sum);
    assert_true(sum[0] == mine[0] && sum[1] == mine[1]);
    assert_false(a.answered);
    lease(j.core, &b, 1, 3, 1, 0);
    assert_true(share_of(&a).count && share_of(&b).count);
    enter(j.core, &b, 1, 2, "start");
    assert_false(b.answered);
    enter(j.core, &a, 0, 2, "start");
    assert_true(is_done(&a, PS_OK) && is_done(&b, PS_OK));
    drop(&a);
    drop(&b);
    psd_core_destroy(j.core);
}

// What a share has is known without a look at each of its batches.
static void test_many_batches(void **state)
{
    const uint64_t examples = (UINT64_C(1) << 60) + 1;
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    lease_of(j.core, &a, caller_of(0, 1), examples, 4);
    Paramserver__V1__LeaseReply s = share_of(&a);
    assert_true(s.first == 0 && s.count == 4 && s.stride == 4 && s.end == examples);
    assert_true(s.steps == (UINT64_C(1) << 58) + 1);
    lease_of(j.core, &a, caller_of(0, 2), examples, 4);
    assert_int_equal(share_of(&a).count, 0);
    assert_true(done_of(j.core) == examples);
    lease_of(j.core, &a, caller_of(0, 3), UINT64_C(1) << 62, 4);
    assert_true(is_done(&a, PS_INVALID_ARGUMENT));
    psd_core_destroy(j.core);
}

// A batch that all have lost goes from share to share: its stride does not grow until it means nothing any more.
static void test_one_batch_for_many(void **state)
{
    enum { WORKERS = 8, LIVES = 8 };
    uint8_t lives[LIVES + 1][16] = {{0}};  // worker 0's client ids
    struct psd_core *core = core_new(1 << 20);
    struct joining x;
    struct answer a[WORKERS];
    (void)state;
    for (uint8_t life = 1; life <= LIVES; life++) {
        lives[life][0] = life;
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            join_init(&x, rank, SYNC);
            x.r.workers = WORKERS;
            x.caller.client.data = rank ? x.caller.client.data : lives[life];
            if (life == 1 || rank == 0)
                assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
        }
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            Paramserver__V1__Caller caller = caller_of(rank, life);
            caller.incarnation = rank ? 1 : life;
            caller.client.data = rank ? caller.client.data : lives[life];
            lease_of(core, &a[rank], caller, 100, UINT64_C(1) << 46);
        }
        core->table.newest->control->declared = true;
        core_run(core, 100 * PS_MS);
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            Paramserver__V1__LeaseReply s = share_of(&a[rank]);
            assert_true(s.steps == 1 && s.end == 100 && s.stride >= 100);
            assert_true(rank == 0 ? s.first == 0 : s.first >= 100);
        }
        Paramserver__V1__LeaveRequest r = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
        Paramserver__V1__Caller caller = caller_of(0, 0);
        caller.incarnation = life;
        caller.client.data = lives[life];
        r.caller = &caller;
        r.failed = true;
        assert_int_equal(ask(core, M(LEAVE), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    }
    psd_core_destroy(core);
}

static Paramserver__V1__LeaseReply share_ahead(struct psd_core *core, uint32_t rank, uint64_t sequence)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    struct answer a;
    r.caller = &caller;
    r.examples = 95;
    r.want = 10;
    r.ahead = true;
    ask_later(core, &a, M(LEASE), &r.base, NULL, UINT64_MAX);
    return share_of(&a);
}

// Who asks ahead has trained what came before the last range. It has two then, which both come back when it is gone.
static void test_ahead(void **state)
{
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    lease(j.core, &a, 0, 1, 0, 0);
    assert_int_equal(share_of(&a).first, 0);
    for (int copy = 0; copy < 2; copy++)  // sent again under its sequence it is answered as before
        assert_int_equal(share_ahead(j.core, 0, 2).first, 10);
    assert_int_equal(done_of(j.core), 0);
    assert_int_equal(share_ahead(j.core, 0, 3).first, 20);
    assert_int_equal(done_of(j.core), 10);
    lease(j.core, &a, 1, 1, 0, 0);
    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(share_of(&a).first, 30 + 10 * i);
        lease(j.core, &a, 1, 2 + i, 0, 0);
    }
    assert_int_equal(share_of(&a).count, 5);
    assert_int_equal(done_of(j.core), 70);
    // Nothing is left to give. It is not told what was given to it before, nor does it wait.
    for (int copy = 0; copy < 2; copy++)
        assert_int_equal(share_ahead(j.core, 0, 4).count, 0);
    assert_int_equal(done_of(j.core), 80);
    assert_int_equal(share_ahead(j.core, 1, 8).count, 0);
    psd_core_destroy(j.core);
}

// A copy of a request that got nothing gets nothing, though something has come back since: its client knows of none.
static void test_ahead_of_nothing(void **state)
{
    struct job j;
    struct answer a;
    Paramserver__V1__LeaveRequest r = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 100);
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    lease(j.core, &a, 0, 1, 0, 0);
    drop(&a);
    assert_int_equal(share_ahead(j.core, 0, 2).first, 10);
    for (uint64_t i = 0; i < 8; i++) {
        lease(j.core, &a, 1, 1 + i, 0, 0);
        assert_true(share_of(&a).count > 0);
    }
    assert_int_equal(share_ahead(j.core, 1, 9).count, 0);
    r.caller = &caller;
    assert_int_equal(ask(j.core, M(LEAVE), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    assert_int_equal(share_ahead(j.core, 1, 9).count, 0);
    assert_int_equal(share_ahead(j.core, 1, 10).count, 10);
    assert_int_equal(share_ahead(j.core, 1, 11).count, 10);
    lease(j.core, &a, 1, 12, 0, 0);
    assert_int_equal(share_of(&a).count, 0);
    assert_int_equal(done_of(j.core), 95);
    psd_core_destroy(j.core);
}

static void test_ahead_in_sync(void **state)
{
    struct job j;
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    r.examples = 95;
    r.want = 10;
    r.ahead = true;
    assert_int_equal(ask(j.core, M(LEASE), &r.base, NULL, NULL, NULL, NULL).code, PS_INVALID_ARGUMENT);
    psd_core_destroy(j.core);
}

// Who waits for examples that nobody will train is told that the epoch is over.
static void test_given_up(void **state)
{
    struct job j;
    struct answer a[2], barrier;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    for (uint64_t i = 0; i < 9; i++) {
        lease(j.core, &a[0], 0, 1 + i, 0, 0);
        assert_int_equal(share_of(&a[0]).count, 10);
    }
    lease(j.core, &a[1], 1, 1, 0, 0);
    assert_int_equal(share_of(&a[1]).count, 5);
    lease(j.core, &a[0], 0, 20, 0, 0);
    assert_false(a[0].answered);
    enter(j.core, &barrier, 1, 2, "enough");
    assert_int_equal(share_of(&a[0]).count, 0);
    assert_false(barrier.answered);
    enter(j.core, &a[0], 0, 21, "enough");
    assert_true(is_done(&a[0], PS_OK) && is_done(&barrier, PS_OK));
    drop(&a[0]);
    drop(&barrier);
    // What was not trained does not count in the next epoch.
    for (uint64_t i = 0; i < 10; i++) {
        lease(j.core, &a[0], 0, 30 + i, 1, 0);
        assert_true(share_of(&a[0]).count > 0);
    }
    lease(j.core, &a[0], 0, 50, 1, 0);
    assert_int_equal(share_of(&a[0]).count, 0);
    assert_int_equal(done_of(j.core), 95);
    psd_core_destroy(j.core);
}

// Worker 1 has enough of an epoch, and worker 0 goes with it. The next one is whole, whatever was left of this one.
static void give_up_and_begin_again(struct psd_core *core, uint64_t rounds)
{
    struct answer a[2], barrier;
    enter(core, &barrier, 1, 10, "enough");
    lease_rounds(core, &a[0], caller_of(0, 10), 0, 2, rounds);
    assert_int_equal(share_of(&a[0]).count, 0);
    enter(core, &a[0], 0, 11, "enough");
    assert_true(is_done(&a[0], PS_OK) && is_done(&barrier, PS_OK));
    drop(&a[0]);
    drop(&barrier);
    for (uint32_t rank = 0; rank < 2; rank++)
        lease_rounds(core, &a[rank], caller_of(rank, 12), 1, 2, rounds);
    for (uint64_t rank = 0; rank < 2; rank++) {
        const Paramserver__V1__LeaseReply s = share_of(&a[rank]);
        assert_true(s.first == 10 * rank && s.stride == 20 && s.round == 2);
        assert_int_equal(s.steps, rounds ? rounds : 5);
    }
    assert_int_equal(core->table.newest->control->data.number, 1);
    assert_int_equal(done_of(core), 0);
}

static void test_rounds_given_up(void **state)
{
    struct job j;
    struct answer a[2];
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    share_of_rounds(j.core, 1, 0, a);
    for (uint64_t round = 1; round <= 2; round++)
        push_both(j.core, 1 + round, round);
    give_up_and_begin_again(j.core, 2);
    psd_core_destroy(j.core);
}

// Of three workers one dies, and the two others give up before they come to what it had not trained.
static void test_given_up_after_a_death(void **state)
{
    struct psd_core *core = core_new(1 << 20);
    struct joining x;
    struct answer a[3];
    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        join_init(&x, rank, SYNC);
        x.r.workers = 3;
        assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    }
    core->table.newest->control->declared = true;
    for (uint32_t rank = 0; rank < 3; rank++)
        lease(core, &a[rank], rank, 1, 0, 0);
    for (uint64_t rank = 0; rank < 3; rank++)
        assert_int_equal(share_of(&a[rank]).first, 10 * rank);
    assert_int_equal(leave(core, 2, "of a bullet").code, PS_OK);
    give_up_and_begin_again(core, 0);
    psd_core_destroy(core);
}

// ---- ssp ----------------------------------------------------------------------------------------------------------

static void tick(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t step, bool wait)
{
    Paramserver__V1__ClockRequest r = PARAMSERVER__V1__CLOCK_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    r.caller = &caller;
    r.step = step;
    r.wait = wait;
    ask_later(core, a, M(CLOCK), &r.base, NULL, UINT64_MAX);
}

static struct psd_core *ssp_open(uint32_t staleness, uint32_t workers)
{
    struct psd_core *core = core_new(1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct joining x;
        join_init(&x, rank, SSP);
        x.r.staleness = staleness;
        x.r.workers = workers;
        assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    }
    return core;
}

static void test_nobody_runs_ahead(void **state)
{
    struct psd_core *core = ssp_open(2, 2);
    struct answer a, b, waits;
    (void)state;
    for (uint64_t step = 0; step <= 2; step++) {
        tick(core, &a, 0, step, true);
        assert_true(is_done(&a, PS_OK));
        drop(&a);
    }
    tick(core, &waits, 0, 3, true);
    assert_false(waits.answered);
    tick(core, &b, 1, 0, true);  // the slowest never waits
    assert_true(is_done(&b, PS_OK));
    drop(&b);
    assert_false(waits.answered);
    tick(core, &b, 1, 1, false);
    assert_true(is_done(&b, PS_OK) && is_done(&waits, PS_OK));
    drop(&b);
    drop(&waits);
    assert_int_equal(core->table.newest->control->farthest, 2);
    // A death lets go who waits for the dead.
    tick(core, &waits, 0, 4, true);
    assert_false(waits.answered);
    assert_int_equal(leave(core, 1, NULL).code, PS_OK);
    assert_true(is_done(&waits, PS_OK));
    drop(&waits);
    psd_core_destroy(core);
}

static enum ps_code set_mode(struct psd_core *core, Paramserver__V1__Update update, uint32_t staleness, uint64_t epoch,
                             Paramserver__V1__Update replaced)
{
    Paramserver__V1__SetModeRequest r = PARAMSERVER__V1__SET_MODE_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    r.job = (char *)"job";
    r.update = update;
    r.staleness = staleness;
    enum ps_code code =
        ask(core, M(SET_MODE), &r.base, NULL, &paramserver__v1__set_mode_reply__descriptor, &m, NULL).code;
    if (m) {
        assert_int_equal(((Paramserver__V1__SetModeReply *)m)->data_epoch, epoch);
        assert_int_equal(((Paramserver__V1__SetModeReply *)m)->replaced, replaced);
        ps_msg_free(m);
    }
    return code;
}

// Time for what is looked at at a tick.
static void settle(struct psd_core *core)
{
    for (int i = 0; i < 3; i++)
        psd_core_tick(core);
}

// A lease of epoch `epoch`, which is trained as `update` says.
static void lease_in(struct psd_core *core, uint32_t rank, uint64_t sequence, uint64_t epoch,
                     Paramserver__V1__Update update)
{
    struct answer a;
    lease(core, &a, rank, sequence, epoch, 0);
    assert_int_equal(share_of(&a).update, update);
}

// Of 10 ranges each of two workers has one.
static void end_epoch(struct psd_core *core)
{
    struct answer a, b;
    for (uint64_t sequence = 2; sequence < 10; sequence++)
        lease_in(core, 0, sequence, 0, ASYNC);
    lease(core, &a, 0, 10, 0, 0);
    assert_false(a.answered);
    lease(core, &b, 1, 2, 0, 0);
    assert_int_equal(share_of(&a).count + share_of(&b).count, 0);
}

static bool may_step(struct psd_core *core, uint32_t rank, uint64_t step)
{
    struct answer a;
    tick(core, &a, rank, step, true);
    if (!a.answered)
        return false;
    assert_int_equal(a.code, PS_OK);
    drop(&a);
    return true;
}

// The latest request holds, from the next epoch on, for all. What was trained as async does not count in the clock.
static void test_mode_changes(void **state)
{
    const Paramserver__V1__Update none = PARAMSERVER__V1__UPDATE__UPDATE_NONE;
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct psd_core *core = j.core;
    lease_in(core, 0, 1, 0, ASYNC);
    assert_int_equal(set_mode(core, SSP, 1, 0, none), PS_FAILED_PRECONDITION);  // the workers would not follow
    psd_core_destroy(core);
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    core = j.core;
    core->table.newest->control->follows_mode = true;
    assert_int_equal(set_mode(core, SSP, 1, 0, none), PS_FAILED_PRECONDITION);  // nothing is leased yet
    lease_in(core, 0, 1, 0, ASYNC);
    lease_in(core, 1, 1, 0, ASYNC);
    assert_int_equal(set_mode(core, none, 0, 0, none), PS_INVALID_ARGUMENT);
    assert_int_equal(set_mode(core, ASYNC, 3, 0, none), PS_INVALID_ARGUMENT);
    assert_int_equal(set_mode(core, ASYNC, 0, 0, none), PS_OK);
    assert_int_equal(set_mode(core, SSP, 5, 1, none), PS_OK);
    assert_int_equal(set_mode(core, SSP, 1, 1, SSP), PS_OK);
    assert_int_equal(set_mode(core, SSP, 1, 1, none), PS_OK);
    assert_true(may_step(core, 0, 40));  // nobody waits before
    end_epoch(core);
    lease_in(core, 0, 20, 1, SSP);
    lease_in(core, 1, 20, 1, SSP);
    assert_true(may_step(core, 0, 40) && may_step(core, 1, 25));
    assert_true(may_step(core, 0, 41));
    struct answer ahead;
    tick(core, &ahead, 0, 42, true);
    assert_false(ahead.answered);
    assert_true(may_step(core, 1, 26));
    assert_true(is_done(&ahead, PS_OK));
    drop(&ahead);
    psd_core_destroy(core);
}

static enum ps_code push_big(struct psd_core *core, uint32_t rank, uint64_t sequence, uint64_t round)
{
    struct update u;
    Paramserver__V1__UpdateReply *reply = NULL;
    update_init(&u, rank, sequence, "big", 0, 20);
    u.r.round = round;
    struct answer a = send_update(core, &u, M(PUSH), 20, 1, &reply);
    if (reply)
        ps_msg_free(&reply->base);
    return a.code;
}

// To every variable that has rounds; of so many examples.
static enum ps_code push_round_of_all(struct psd_core *core, uint32_t rank, uint64_t sequence, uint64_t round,
                                      uint64_t examples)
{
    struct update u;
    Paramserver__V1__UpdateReply *reply = NULL;
    struct answer a = {0};
    for (uint32_t i = 0; i < core->table.newest->n_variables; i++) {
        const struct psd_variable *v = &core->table.newest->variables[i];
        if (!v->rule)
            continue;
        update_init(&u, rank, sequence + i, v->name, 0, v->count);
        u.r.round = round;
        u.r.examples = examples;
        a = send_update(core, &u, M(PUSH), v->count, 1, &reply);
        if (reply)
            ps_msg_free(&reply->base);
        reply = NULL;
        if (a.code)
            break;
    }
    return a.code;
}

// Both ask for epoch `epoch`, and get it together. Returns the round that their shares begin after.
static uint64_t share_in_rounds(struct psd_core *core, uint64_t sequence, uint64_t epoch, uint64_t closed)
{
    struct answer a, b;
    lease(core, &a, 0, sequence, epoch, closed);
    assert_false(a.answered);
    lease(core, &b, 1, sequence, epoch, closed);
    settle(core);
    Paramserver__V1__LeaseReply x = share_of(&a), y = share_of(&b);
    assert_true(x.update == SYNC && y.update == SYNC && x.round == y.round && x.steps == 5);
    return x.round;
}

// Both have trained their shares: the epoch is over.
static void end_rounds(struct psd_core *core, uint64_t sequence, uint64_t epoch, uint64_t closed)
{
    struct answer a, b;
    lease(core, &a, 0, sequence, epoch, closed);
    lease(core, &b, 1, sequence, epoch, closed);
    settle(core);
    assert_int_equal(share_of(&a).count + share_of(&b).count, 0);
}

// The job comes into its rounds, and leaves them, between two epochs, and their room with them. Values and steps stay.
static void test_rounds_come_and_go(void **state)
{
    const Paramserver__V1__Update none = PARAMSERVER__V1__UPDATE__UPDATE_NONE;
    struct job j;
    struct answer a, b;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct psd_core *core = j.core;
    struct psd_job *job = core->table.newest;
    const struct psd_block *block = &job->partitions[job->n_partitions - 1].blocks[0];
    job->control->follows_mode = true;
    lease_in(core, 0, 1, 0, ASYNC);
    lease_in(core, 1, 1, 0, ASYNC);
    const size_t before = pages_used(core);
    assert_int_equal(set_mode(core, SYNC, 0, 1, none), PS_OK);
    const size_t kept = pages_used(core), gradients = job->rounds_room;
    assert_true(gradients >= 2 * 20 * sizeof(float) && kept >= before + gradients);
    assert_int_equal(push_big(core, 0, 100, 0), PS_OK);  // as before, until the epoch is over
    assert_int_equal(push_big(core, 0, 101, 1), PS_FAILED_PRECONDITION);
    assert_int_equal(set_mode(core, ASYNC, 0, 0, SYNC), PS_OK);
    settle(core);
    assert_int_equal(pages_used(core), kept - gradients);
    assert_int_equal(set_mode(core, SYNC, 0, 1, none), PS_OK);
    assert_int_equal(pages_used(core), kept);
    end_epoch(core);
    assert_int_equal(share_in_rounds(core, 20, 1, 0), 0);
    assert_true(psd_job_is_sync(job));
    assert_int_equal(push_big(core, 0, 100, 0), PS_OK);  // again, as its answer was lost
    assert_int_equal(push_big(core, 0, 102, 0), PS_INVALID_ARGUMENT);
    for (uint64_t round = 1; round <= 5; round++) {
        assert_int_equal(push_big(core, 0, 110 + round, round), PS_OK);
        assert_int_equal(push_big(core, 1, 110 + round, round), PS_OK);
    }
    assert_int_equal(block->steps, 1 + 5);
    assert_int_equal(set_mode(core, ASYNC, 0, 2, none), PS_OK);
    end_rounds(core, 30, 1, 5);
    lease(core, &a, 0, 40, 2, 5);
    assert_false(a.answered);  // until nobody trains in rounds
    lease(core, &b, 1, 40, 2, 5);
    settle(core);
    assert_true(share_of(&a).update == ASYNC && share_of(&b).update == ASYNC);
    assert_false(psd_job_is_sync(job));
    assert_int_equal(pages_used(core), kept - gradients);
    assert_int_equal(push_big(core, 0, 115, 5), PS_OK);  // again
    assert_int_equal(push_big(core, 0, 120, 6), PS_FAILED_PRECONDITION);
    assert_int_equal(push_big(core, 0, 121, 0), PS_OK);
    assert_int_equal(block->steps, 1 + 5 + 1);
    psd_core_destroy(core);
}

// Who has waited for rounds that are taken back before they begin trains with the others.
static void test_rounds_taken_back(void **state)
{
    const Paramserver__V1__Update none = PARAMSERVER__V1__UPDATE__UPDATE_NONE;
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct psd_core *core = j.core;
    core->table.newest->control->follows_mode = true;
    lease_in(core, 0, 1, 0, ASYNC);
    lease_in(core, 1, 1, 0, ASYNC);
    assert_int_equal(set_mode(core, SYNC, 0, 1, none), PS_OK);
    end_epoch(core);
    lease(core, &a, 0, 20, 1, 0);
    assert_false(a.answered);
    assert_int_equal(set_mode(core, ASYNC, 0, 0, SYNC), PS_OK);
    lease_in(core, 1, 20, 1, ASYNC);
    assert_true(a.answered);
    Paramserver__V1__LeaseReply range = share_of(&a);
    assert_true(range.update == ASYNC && range.count > 0);
    psd_core_destroy(core);
}

// A round has a number of its own: those that come later go on after it. What was declared sync keeps its room.
static void test_rounds_go_on(void **state)
{
    const Paramserver__V1__Update none = PARAMSERVER__V1__UPDATE__UPDATE_NONE;
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    struct psd_core *core = j.core;
    struct psd_job *job = core->table.newest;
    job->control->follows_mode = true;
    const size_t room = pages_used(core);
    assert_int_equal(share_in_rounds(core, 1, 0, 0), 0);
    assert_int_equal(push_big(core, 0, 101, 1), PS_OK);
    assert_int_equal(push_big(core, 1, 101, 1), PS_OK);
    assert_int_equal(set_mode(core, SSP, 1, 1, none), PS_OK);
    end_rounds(core, 2, 0, 1);
    struct answer a, b;
    lease(core, &a, 0, 3, 1, 1);
    lease(core, &b, 1, 3, 1, 1);
    settle(core);
    assert_true(share_of(&a).update == SSP && share_of(&b).update == SSP);
    assert_int_equal(pages_used(core), room);
    assert_int_equal(set_mode(core, SYNC, 0, 2, none), PS_OK);
    for (uint64_t sequence = 4; sequence < 12; sequence++)
        lease_in(core, 0, sequence, 1, SSP);
    lease(core, &a, 0, 12, 1, 0);
    lease(core, &b, 1, 12, 1, 0);
    assert_int_equal(share_of(&a).count + share_of(&b).count, 0);
    assert_int_equal(share_in_rounds(core, 20, 2, 1), 1);
    assert_int_equal(push_big(core, 0, 110, 1), PS_OK);  // stale
    assert_int_equal(push_big(core, 0, 111, 2), PS_OK);
    assert_int_equal(push_big(core, 1, 111, 2), PS_OK);
    assert_int_equal(job->partitions[job->n_partitions - 1].made->closed, 2);
    psd_core_destroy(core);
}

// The last gradient of a worker that has died is in an open round: it is closed before the rounds end.
static void test_rounds_are_mended(void **state)
{
    const Paramserver__V1__Update none = PARAMSERVER__V1__UPDATE__UPDATE_NONE;
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    struct psd_core *core = j.core;
    const struct psd_job *job = core->table.newest;
    job->control->follows_mode = true;
    assert_int_equal(share_in_rounds(core, 1, 0, 0), 0);
    for (uint64_t round = 1; round <= 4; round++)
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(push_round_of_all(core, rank, 100 + 2 * round, round, 1), PS_OK);
    assert_int_equal(push_round_of_all(core, 1, 120, 5, 1), PS_OK);
    assert_int_equal(set_mode(core, ASYNC, 0, 1, none), PS_OK);
    assert_int_equal(leave(core, 1, "it is killed").code, PS_OK);
    lease(core, &a, 0, 2, 0, 4);
    settle(core);
    assert_int_equal(share_of(&a).count, 0);
    lease(core, &a, 0, 3, 1, 4);
    settle(core);
    Paramserver__V1__LeaseReply share = share_of(&a);
    assert_true(share.update == SYNC && share.round == 4 && share.steps == 1 && share.first == share.end);
    assert_int_equal(push_round_of_all(core, 0, 120, 5, 0), PS_OK);
    lease(core, &a, 0, 4, 1, 5);
    settle(core);
    assert_int_equal(share_of(&a).update, ASYNC);
    assert_int_equal(job->partitions[job->n_partitions - 1].blocks[0].steps, 5);
    psd_core_destroy(core);
}

// Without memory for the gradients of rounds nothing changes, and it is said how much there would have to be.
static void test_rounds_need_room(void **state)
{
    const Paramserver__V1__Update none = PARAMSERVER__V1__UPDATE__UPDATE_NONE;
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct psd_core *core = j.core;
    struct psd_job *job = core->table.newest;
    job->control->follows_mode = true;
    lease_in(core, 0, 1, 0, ASYNC);
    lease_in(core, 1, 1, 0, ASYNC);
    const size_t used = psd_pool_used(&core->pool);
    core->pool.limit = used + 64;
    assert_int_equal(set_mode(core, SYNC, 0, 0, none), PS_RESOURCE_EXHAUSTED);
    const char *text = job->agree->lead.error.text;
    const char *lacks = strstr(text, "set mode: ps task 0 lacks ");
    assert_non_null(lacks);
    const size_t missing = strtoull(lacks + strlen("set mode: ps task 0 lacks "), NULL, 10);
    assert_int_equal(psd_pool_used(&core->pool), used);
    assert_true(job->control->next.update == ASYNC && !job->keeps_rounds);
    core->pool.limit = used + 64 + missing - 1;
    assert_int_equal(set_mode(core, SYNC, 0, 0, none), PS_RESOURCE_EXHAUSTED);
    core->pool.limit = used + 64 + missing;
    assert_int_equal(set_mode(core, SYNC, 0, 1, none), PS_OK);
    psd_core_destroy(core);
}

// Who waits in a collective holds nobody up, and is level with the others afterwards.
static void test_collectives_stop_no_clock(void **state)
{
    struct psd_core *core = ssp_open(1, 2);
    struct answer a, meets, also;
    (void)state;
    enter(core, &meets, 1, 1, "here");
    for (uint64_t step = 0; step <= 50; step++) {
        tick(core, &a, 0, step, true);
        assert_true(is_done(&a, PS_OK));
        drop(&a);
    }
    enter(core, &also, 0, 1, "here");
    assert_true(is_done(&meets, PS_OK) && is_done(&also, PS_OK));
    drop(&meets);
    drop(&also);
    tick(core, &a, 0, 51, true);
    assert_true(is_done(&a, PS_OK));
    drop(&a);
    tick(core, &a, 0, 52, true);
    assert_false(a.answered);
    tick(core, &also, 1, 1, true);
    assert_true(is_done(&also, PS_OK) && is_done(&a, PS_OK));
    drop(&also);
    drop(&a);
    psd_core_destroy(core);
}

static void test_clocks_are_ssp(void **state)
{
    struct job j;
    struct answer a;
    struct joining x;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    tick(j.core, &a, 0, 1, true);
    assert_true(is_done(&a, PS_FAILED_PRECONDITION));
    join_init(&x, 0, ASYNC);
    x.r.staleness = 5;
    assert_int_equal(ask(j.core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_INVALID_ARGUMENT);
    psd_core_destroy(j.core);
    struct psd_core *core = ssp_open(2, 3);
    join_init(&x, 2, SSP);
    x.r.workers = 3;
    x.r.staleness = 5;
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_FAILED_PRECONDITION);
    psd_core_destroy(core);
}

// All begin with the same checkpoint; who comes later gets what the others have.
static void assert_one_checkpoint(void)
{
    struct psd_core *core = core_new(1 << 20);
    struct joining x;
    struct answer a;
    for (uint32_t rank = 0; rank < 2; rank++) {
        join_init(&x, rank, SYNC);
        x.r.configuration = (char *)(rank ? "seed=0\ncheckpoint=none\n" : "seed=0\ncheckpoint=step 7, 0a\n");
        a = ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL);
    }
    assert_int_equal(a.code, PS_FAILED_PRECONDITION);
    assert_string_equal(a.text,
                        "worker 1's checkpoint is none, worker 0 opened job 'job' with step 7, 0a: expected all "
                        "workers to go on from the same checkpoint, or none");
    core->table.newest->control->begun = true;
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    x.r.configuration = (char *)"seed=1\ncheckpoint=none\n";
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_FAILED_PRECONDITION);
    psd_core_destroy(core);
}

// What workers must have alike is compared with worker 0's, line by line; one that says nothing is taken.
static void test_one_configuration(void **state)
{
    struct psd_core *core = core_new(1 << 20);
    struct joining x;
    struct answer a;
    (void)state;
    join_init(&x, 0, SYNC);
    x.r.workers = 3;
    x.r.configuration = (char *)"seed=0\nseed.b=9\nepochs=2\n";
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    static const struct {
        const char *brings, *text;
    } cases[] = {
        {"seed=99\nseed.b=9\nepochs=2\n",
         "worker 1's seed is 99, worker 0 opened job 'job' with 0: give both the same job file"},
        {"seed=0\nseed.b=9\nepochs=20\n",
         "worker 1's epochs is 20, worker 0 opened job 'job' with 2: give both the same job file"},
        {"seed=0\nepochs=2",
         "worker 1's seed.b is not said, worker 0 opened job 'job' with 9: give both the same job file"},
        {"epochs=2\nseed=0\nseed.b=9\nsteps=7",
         "worker 1's steps is 7, worker 0 opened job 'job' with not said: give both the same job file"},
        {"epochs=2\nseed=0\nseed.b=9\ndata.words=1f",
         "worker 1's data.words is 1f, worker 0 opened job 'job' with not said: expected data with the same words or "
         "classes, in the same order"},
    };
    join_init(&x, 1, SYNC);
    x.r.workers = 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        x.r.configuration = (char *)cases[i].brings;
        a = ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL);
        assert_int_equal(a.code, PS_FAILED_PRECONDITION);
        assert_string_equal(a.text, cases[i].text);
    }
    x.r.configuration = (char *)"epochs=2\nseed.b=9\nseed=0";
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    join_init(&x, 2, SYNC);
    x.r.workers = 3;
    char *much = malloc(PSD_CONFIGURATION_MAX + 2);
    memset(much, 'x', PSD_CONFIGURATION_MAX + 1);
    much[PSD_CONFIGURATION_MAX + 1] = '\0';
    x.r.configuration = much;
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_INVALID_ARGUMENT);
    free(much);
    x.r.configuration = (char *)"";
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    psd_core_destroy(core);
    assert_one_checkpoint();
}

// ---- coming late, being asked to leave, being heard -----------------------------------------------------------------

static void test_who_does_not_come(void **state)
{
    struct psd_core *core = core_new(1 << 20);
    struct answer a;
    struct joining x;
    (void)state;
    join_init(&x, 0, ASYNC);
    x.r.join_within_ms = 2000;
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    core->table.newest->control->declared = true;  // else a death would end it
    enter(core, &a, 0, 1, "start");
    core_run(core, PS_SECOND);
    assert_false(a.answered);
    core->table.newest->control->members[0].last_seen = test_time;
    core_run(core, 1100 * PS_MS);
    assert_true(is_done(&a, PS_OK));
    drop(&a);
    assert_string_equal(core->table.newest->control->members[1].reason, "did not join within 2.0 s");
    join_init(&x, 1, ASYNC);
    x.r.join_within_ms = 2000;
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    psd_core_destroy(core);
}

static Paramserver__V1__WorkersReply *workers_of(struct psd_core *core)
{
    Paramserver__V1__WorkersRequest r = PARAMSERVER__V1__WORKERS_REQUEST__INIT;
    ProtobufCMessage *reply;
    r.job = (char *)"job";
    assert_int_equal(
        ask(core, M(WORKERS), &r.base, NULL, &paramserver__v1__workers_reply__descriptor, &reply, NULL).code, PS_OK);
    return (Paramserver__V1__WorkersReply *)reply;
}

// For how long it has not been heard is said of every worker that ever was.
static void test_silence_of_who_is_gone(void **state)
{
    struct job j;
    struct joining x;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    core_run(j.core, 10 * PS_SECOND);
    Paramserver__V1__WorkersReply *w = workers_of(j.core);
    assert_int_equal(w->members[0]->state, PARAMSERVER__V1__MEMBER_STATE__DEAD);
    assert_in_range(w->members[0]->silent_ms, 10000, 10001);
    assert_int_equal(w->members[1]->state, PARAMSERVER__V1__MEMBER_STATE__LEFT);
    assert_in_range(w->members[1]->silent_ms, 10000, 10001);
    ps_msg_free(&w->base);
    psd_core_destroy(j.core);
    struct psd_core *core = core_new(1 << 20);
    join_init(&x, 0, ASYNC);
    assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    core_run(core, PS_SECOND);
    w = workers_of(core);
    assert_in_range(w->members[0]->silent_ms, 1000, 1001);
    assert_int_equal(w->members[1]->silent_ms, 0);
    ps_msg_free(&w->base);
    psd_core_destroy(core);
}

// Why a worker has failed is told whole, and so is why the job has.
static void test_reasons_are_whole(void **state)
{
    static const char why[] =
        "workers.yaml, line 12: no memory for a replica with batches of 4096 rows: it takes 123456789 "
        "bytes, expected a smaller batch, of which there is one in every file of the examples";
    struct job j;
    char failure[512];
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, why).code, PS_OK);
    snprintf(failure, sizeof failure, "failed: %s", why);
    assert_string_equal(j.core->table.newest->control->members[1].reason, failure);
    snprintf(failure, sizeof failure, "worker 1 failed: %s, and 0 of at least 1 remain", why);
    assert_string_equal(j.core->table.newest->failure, failure);
    psd_core_destroy(j.core);
}

// A process that was stopped has heard nobody: it does not bury them all when it wakes.
static void test_a_stopped_task_buries_nobody(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    psd_core_tick(j.core);
    test_time += 60 * PS_SECOND;
    psd_core_tick(j.core);
    assert_true(psd_is_live(&j.core->table.newest->control->members[0]));
    core_run(j.core, 3100 * PS_MS);
    assert_false(psd_is_live(&j.core->table.newest->control->members[0]));
    psd_core_destroy(j.core);
}

static struct answer drain(struct psd_core *core, const char *job, uint32_t worker, bool undo)
{
    Paramserver__V1__DrainRequest r = PARAMSERVER__V1__DRAIN_REQUEST__INIT;
    r.job = (char *)job;
    r.worker = worker;
    r.undo = undo;
    return ask(core, M(DRAIN), &r.base, NULL, NULL, NULL, NULL);
}

static bool is_asked_to_leave(struct psd_core *core, uint32_t rank)
{
    return heartbeat(core, rank).drain;
}

static uint64_t chief_silent_ms(struct psd_core *core, uint32_t rank)
{
    return heartbeat(core, rank).chief_silent_ms;
}

static void test_heartbeats_tell_of_a_silent_chief(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    chief_silent_ms(j.core, 0);
    test_time += 700 * PS_MS;
    assert_int_equal(chief_silent_ms(j.core, 1), 700);
    assert_int_equal(chief_silent_ms(j.core, 0), 0);
    assert_int_equal(chief_silent_ms(j.core, 1), 0);
    psd_core_destroy(j.core);
}

static void report_progress(struct psd_core *core, uint32_t rank, const struct ps_progress *p)
{
    Paramserver__V1__HeartbeatRequest r = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    struct ps_progress_message message;
    r.caller = &caller;
    r.examples_per_second = 10;
    r.progress = ps_progress_write(p, &message);
    assert_int_equal(ask(core, M(HEARTBEAT), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

// But what was asked for before may be taken back.
static void test_mode_of_the_last_epoch(void **state)
{
    const Paramserver__V1__Update none = PARAMSERVER__V1__UPDATE__UPDATE_NONE;
    Paramserver__V1__SetModeRequest r = PARAMSERVER__V1__SET_MODE_REQUEST__INIT;
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct psd_core *core = j.core;
    core->table.newest->control->follows_mode = true;
    lease_in(core, 0, 1, 0, ASYNC);
    lease_in(core, 1, 1, 0, ASYNC);
    assert_int_equal(set_mode(core, SSP, 1, 1, none), PS_OK);  // nobody has said how many there are
    report_progress(core, 0, &(struct ps_progress){.epochs = 2});
    assert_int_equal(set_mode(core, SSP, 2, 1, SSP), PS_OK);
    report_progress(core, 0, &(struct ps_progress){.epochs = 1});
    r.job = (char *)"job";
    r.update = SYNC;
    const struct answer a = ask(core, M(SET_MODE), &r.base, NULL, NULL, NULL, NULL);
    assert_int_equal(a.code, PS_FAILED_PRECONDITION);
    assert_string_equal(
        a.text, "set mode: job 'job' trains its last epoch, 1 of 1: the mode changes from one epoch to the next");
    assert_int_equal(set_mode(core, ASYNC, 0, 0, SSP), PS_OK);
    psd_core_destroy(core);
}

// The chief's word counts, the last one that it gave.
static void test_progress(void **state)
{
    struct job j;
    struct ps_progress p = {.epochs = 20, .ended = 3};
    Paramserver__V1__StatusReply *s;
    struct answer a[2];
    (void)state;
    ps_progress_add(&p, "val_loss", 0.25);
    ps_progress_add(&p, "a\033 name that is so long that it has to be cut somewhere before its end", 1);
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        lease(j.core, &a[rank], rank, 1, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        share_of(&a[rank]);
    report_progress(j.core, 1, &p);
    s = status_of(j.core);
    assert_null(s->jobs[0]->progress);
    assert_true(s->jobs[0]->time_left_ms == 0 && s->jobs[0]->examples_per_second == 10);
    ps_msg_free(&s->base);

    report_progress(j.core, 0, &p);
    report_progress(j.core, 0, &(struct ps_progress){0});
    report_progress(j.core, 0, &(struct ps_progress){.epochs = 20, .ended = 3});  // a chief that has come anew
    test_time += PS_SECOND;
    s = status_of(j.core);
    assert_int_equal(s->jobs[0]->progress->epochs, 20);
    assert_int_equal(s->jobs[0]->progress->epochs_ended, 3);
    assert_int_equal(s->jobs[0]->progress->n_metrics, 2);
    assert_string_equal(s->jobs[0]->progress->metrics[0]->name, "val_loss");
    assert_true(s->jobs[0]->progress->metrics[0]->value == 0.25);
    assert_string_equal(s->jobs[0]->progress->metrics[1]->name,
                        "a? name that is so long that it has to be cut somewhere...");
    // 20 epochs of 95 examples, at 20 a second.
    assert_true(s->jobs[0]->time_left_ms == 95000 && s->jobs[0]->examples_per_second == 20);
    ps_msg_free(&s->base);

    p = (struct ps_progress){.epochs = 20, .ended = 21};
    ps_progress_add(&p, "loss", NAN);
    ps_progress_add(&p, "loss", 1);
    ps_progress_add(&p, "", 1);
    ps_progress_add(&p, "auc", 1);
    assert_int_equal(leave(j.core, 0, NULL).code, PS_OK);
    report_progress(j.core, 1, &p);  // the chief now
    s = status_of(j.core);
    assert_int_equal(s->jobs[0]->progress->epochs_ended, 20);
    assert_int_equal(s->jobs[0]->progress->n_metrics, 2);
    assert_string_equal(s->jobs[0]->progress->metrics[1]->name, "auc");
    ps_msg_free(&s->base);

    test_time += PS_SECOND;
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    test_time += 60 * PS_SECOND;
    s = status_of(j.core);
    assert_string_equal(s->jobs[0]->state, "done");
    assert_in_range(s->jobs[0]->age_ms, 1000, 10000);
    assert_true(s->jobs[0]->time_left_ms == 0 && s->jobs[0]->examples_per_second == 0);
    assert_int_equal(s->jobs[0]->progress->epochs_ended, 20);
    ps_msg_free(&s->base);
    psd_core_destroy(j.core);
}

// Who looks at a job learns how many workers it needs, of how many.
static void test_status_says_how_many_it_needs(void **state)
{
    (void)state;
    for (uint32_t least = 0; least < 3; least++) {
        struct psd_core *core = core_new(1 << 20);
        struct joining x;
        join_init(&x, 0, SYNC);
        x.r.workers = 3;
        x.r.min_workers = least;
        assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
        Paramserver__V1__StatusReply *s = status_of(core);
        assert_int_equal(s->jobs[0]->min_workers, least ? least : 1);
        assert_int_equal(s->jobs[0]->workers, 3);
        assert_int_equal(s->jobs[0]->live_workers, 1);
        ps_msg_free(&s->base);
        psd_core_destroy(core);
    }
}

// Of two workers one has come, and a signal ends it: nobody waits for the other one.
static void test_interrupted_before_all_are_there(void **state)
{
    struct joining x;
    (void)state;
    for (int interrupted = 0; interrupted < 2; interrupted++) {
        struct psd_core *core = core_new(1 << 20);
        join_init(&x, 0, SYNC);
        x.r.min_workers = 1;
        assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
        Paramserver__V1__LeaveRequest r = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
        r.caller = &x.caller;
        r.failed = true;
        r.interrupted = interrupted;
        r.reason = (char *)"by signal 15";
        assert_int_equal(ask(core, M(LEAVE), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
        Paramserver__V1__StatusReply *s = status_of(core);
        assert_string_equal(s->jobs[0]->state, interrupted ? "interrupted" : "failed");
        assert_string_equal(s->jobs[0]->reason, interrupted
                                                    ? "worker 0 ended: by signal 15, and no worker lives"
                                                    : "worker 0 failed: by signal 15 before the job was declared");
        ps_msg_free(&s->base);
        psd_core_destroy(core);
    }
}

static void end_by_signal(struct psd_core *core, uint32_t rank, bool interrupted)
{
    Paramserver__V1__LeaveRequest r = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    r.caller = &caller;
    r.failed = true;
    r.interrupted = interrupted;
    r.reason = (char *)"by signal 15";
    assert_int_equal(ask(core, M(LEAVE), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

// A job that people end has not failed.
static void test_interrupted(void **state)
{
    struct job j;
    (void)state;
    for (int interrupted = 0; interrupted < 3; interrupted++) {  // none, the last one, both
        job_open(&j, SYNC, "sgd", 20, 1 << 20);
        for (uint32_t rank = 0; rank < 2; rank++)
            end_by_signal(j.core, rank, rank + (uint32_t)interrupted >= 2);
        Paramserver__V1__StatusReply *s = status_of(j.core);
        assert_string_equal(s->jobs[0]->state, interrupted == 2 ? "interrupted" : "failed");
        assert_string_equal(s->jobs[0]->reason, interrupted
                                                    ? "worker 1 ended: by signal 15, and 0 of at least 1 remain"
                                                    : "worker 1 failed: by signal 15, and 0 of at least 1 remain");
        ps_msg_free(&s->base);
        psd_core_destroy(j.core);
    }
}

// Nor one that people end after a worker was lost that could be spared.
static void test_interrupted_after_one_was_lost(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (int i = 0; i < 8; i++) {
        core_run(j.core, 500 * PS_MS);
        heartbeat(j.core, 0);
    }
    Paramserver__V1__StatusReply *s = status_of(j.core);
    assert_int_equal(s->jobs[0]->live_workers, 1);
    ps_msg_free(&s->base);
    end_by_signal(j.core, 0, true);
    s = status_of(j.core);
    assert_string_equal(s->jobs[0]->state, "interrupted");
    ps_msg_free(&s->base);
    psd_core_destroy(j.core);
}

// In the place of a chief that has died, whether it is back or not; not of one that a signal has ended.
static void test_heartbeats_tell_of_an_heir(void **state)
{
    struct job j;
    (void)state;
    for (int interrupted = 0; interrupted < 2; interrupted++) {
        job_open(&j, SYNC, "sgd", 20, 1 << 20);
        assert_false(heartbeat(j.core, 1).chief_is_heir);
        end_by_signal(j.core, 0, interrupted);
        assert_int_equal(heartbeat(j.core, 1).chief, 1);
        assert_int_equal(heartbeat(j.core, 1).chief_is_heir, !interrupted);
        join_as_another(j.core, 0);
        assert_int_equal(heartbeat(j.core, 1).chief_is_heir, !interrupted);
        psd_core_destroy(j.core);
    }
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    end_by_signal(j.core, 1, false);  // no chief
    assert_false(heartbeat(j.core, 0).chief_is_heir);
    psd_core_destroy(j.core);
}

static uint64_t wall(void *ctx)
{
    (void)ctx;
    return 1000000 + test_time / PS_MS;
}

// What the worker hears of checkpoints that were asked for, after it has said what has become of `number` of them.
static uint64_t hear_of_checkpoints(struct psd_core *core, uint32_t rank, uint64_t number)
{
    Paramserver__V1__HeartbeatRequest r = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    ProtobufCMessage *m;
    r.caller = &caller;
    r.checkpoint = number;
    assert_int_equal(
        ask(core, M(HEARTBEAT), &r.base, NULL, &paramserver__v1__heartbeat_reply__descriptor, &m, NULL).code, PS_OK);
    const uint64_t asked = ((Paramserver__V1__HeartbeatReply *)m)->checkpoints;
    ps_msg_free(m);
    return asked;
}

// What was answered is asked of nobody again: the next chief would write one that nobody waits for.
static void test_checkpoint_is_asked_for_once(void **state)
{
    Paramserver__V1__CheckpointRequest r = PARAMSERVER__V1__CHECKPOINT_REQUEST__INIT;
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    r.job = (char *)"job";
    for (uint64_t i = 1; i < 3; i++) {
        assert_int_equal(ask(j.core, M(CHECKPOINT), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
        assert_int_equal(hear_of_checkpoints(j.core, 0, i - 1), i);
        assert_int_equal(hear_of_checkpoints(j.core, 1, 0), i);
        hear_of_checkpoints(j.core, 0, i);
        assert_int_equal(hear_of_checkpoints(j.core, 0, i), 0);
        assert_int_equal(hear_of_checkpoints(j.core, 1, 0), 0);
    }
    psd_core_destroy(j.core);
}

// The newest one is that which was written last, whoever the chief is and however it counts its steps; where there is
// none, the job is as old as what may be lost.
static void test_newest_checkpoint(void **state)
{
    struct {
        struct ps_progress said;
        uint64_t written, step, age_ms;  // written: ms ago
    } line[] = {{{.epochs = 20}, 0, 0, 0},
                {{.epochs = 20, .checkpoints = PS_CHECKPOINTS_NONE}, 0, 0, 0},
                {{.epochs = 20, .checkpoints = PS_CHECKPOINTS_SOME}, 0, 0, 3000},
                {{.epochs = 20, .checkpoints = PS_CHECKPOINTS_SOME, .checkpoint = 40}, 70000, 40, 71000},
                {{.epochs = 20}, 0, 40, 72000},
                {{.epochs = 20, .checkpoints = PS_CHECKPOINTS_SOME, .checkpoint = 50}, 90000, 40, 73000},
                {{.epochs = 20, .checkpoints = PS_CHECKPOINTS_SOME, .checkpoint = 20}, 0, 20, 1000}};
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    j.core->world.wall = wall;
    for (size_t i = 0; i < sizeof line / sizeof *line; i++) {
        line[i].said.checkpoint_ms = wall(NULL) - line[i].written;
        report_progress(j.core, 0, &line[i].said);
        test_time += PS_SECOND;
        Paramserver__V1__StatusReply *s = status_of(j.core);
        assert_int_equal(s->jobs[0]->progress->checkpoints, i < 2 ? line[i].said.checkpoints : PS_CHECKPOINTS_SOME);
        assert_int_equal(s->jobs[0]->progress->checkpoint_step, line[i].step);
        assert_int_equal(s->jobs[0]->checkpoint_age_ms, line[i].age_ms);
        ps_msg_free(&s->base);
    }
    psd_core_destroy(j.core);
}

static void test_drain(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    assert_int_equal(drain(j.core, "job", 2, false).code, PS_OK);
    assert_true(is_asked_to_leave(j.core, 1) && !is_asked_to_leave(j.core, 0));
    assert_int_equal(drain(j.core, "job", 2, true).code, PS_OK);
    assert_false(is_asked_to_leave(j.core, 1));
    assert_int_equal(drain(j.core, "job", 3, false).code, PS_NOT_FOUND);
    assert_int_equal(drain(j.core, "jib", 1, false).code, PS_NOT_FOUND);
    // The task: running jobs go on, new ones are refused.
    assert_int_equal(drain(j.core, "", 0, false).code, PS_OK);
    assert_true(push(j.core, 0, 1, 0) == PS_OK);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
    struct answer a = join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__REPLACE);
    assert_int_equal(a.code, PS_FAILED_PRECONDITION);
    assert_non_null(strstr(a.text, "it takes no new jobs"));
    assert_int_equal(drain(j.core, "", 0, true).code, PS_OK);
    assert_int_equal(join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__REPLACE).code, PS_OK);
    psd_core_destroy(j.core);
}

static void expect_reason(struct psd_core *core, const char *state, const char *reason)
{
    Paramserver__V1__StatusReply *s = status_of(core);
    assert_string_equal(s->jobs[0]->state, state);
    assert_string_equal(s->jobs[0]->reason, reason);
    ps_msg_free(&s->base);
}

static void expect_states(struct psd_core *core, Paramserver__V1__MemberState first,
                          Paramserver__V1__MemberState second)
{
    const struct psd_control *c = core->table.newest->control;
    assert_int_equal(c->members[0].state, first);
    assert_int_equal(c->members[1].state, second);
}

// Who was drained is not waited for where the training begins anew, and once more; started again, it takes part.
static void test_drained_and_begun_anew(void **state)
{
    struct job j;
    (void)state;
    for (int how = PARAMSERVER__V1__ON_EXISTING__RESUME; how <= PARAMSERVER__V1__ON_EXISTING__REPLACE; how++) {
        job_open(&j, ASYNC, "sgd", 20, 1 << 20);
        assert_int_equal(drain(j.core, "job", 2, false).code, PS_OK);
        assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
        assert_int_equal(leave(j.core, 0, "ps:1 is gone").code, PS_OK);
        assert_int_equal(join_again(j.core, 0, ASYNC, (Paramserver__V1__OnExisting)how).code, PS_OK);
        expect_states(j.core, PARAMSERVER__V1__MEMBER_STATE__LIVE, PARAMSERVER__V1__MEMBER_STATE__LEFT);
        assert_int_equal(join_again(j.core, 1, ASYNC, (Paramserver__V1__OnExisting)how).code, PS_OK);
        expect_states(j.core, PARAMSERVER__V1__MEMBER_STATE__LIVE, PARAMSERVER__V1__MEMBER_STATE__LIVE);
        psd_core_destroy(j.core);
    }
}

// Where people have ended the run, or begin another much later, that is a new training: of all.
static void test_drained_and_begun_by_people(void **state)
{
    struct job j;
    (void)state;
    for (int later = 0; later < 2; later++) {
        job_open(&j, ASYNC, "sgd", 20, 1 << 20);
        assert_int_equal(drain(j.core, "job", 2, false).code, PS_OK);
        assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
        end_by_signal(j.core, 0, !later);
        core_run(j.core, later ? (PSD_JOIN_WITHIN_MS + 1) * PS_MS : 0);
        assert_int_equal(join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__RESUME).code, PS_OK);
        expect_states(j.core, PARAMSERVER__V1__MEMBER_STATE__LIVE, PARAMSERVER__V1__MEMBER_STATE__EXPECTED);
        psd_core_destroy(j.core);
    }
}

// Once all have left, the next training is of all.
static void test_drained_and_done(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    assert_int_equal(drain(j.core, "job", 2, false).code, PS_OK);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
    assert_int_equal(join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__REPLACE).code, PS_OK);
    expect_states(j.core, PARAMSERVER__V1__MEMBER_STATE__LIVE, PARAMSERVER__V1__MEMBER_STATE__EXPECTED);
    psd_core_destroy(j.core);
}

// A job that begins anew, and waits for its workers, says why.
static void test_why_the_last_run_has_ended(void **state)
{
    struct job j;
    (void)state;
    for (int how = PARAMSERVER__V1__ON_EXISTING__RESUME; how <= PARAMSERVER__V1__ON_EXISTING__REPLACE; how++) {
        job_open(&j, ASYNC, "sgd", 20, 1 << 20);
        expect_reason(j.core, "running", "");
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(leave(j.core, rank, "of a bullet").code, PS_OK);
        expect_reason(j.core, "failed", "worker 1 failed: of a bullet, and 0 of at least 1 remain");
        assert_int_equal(join_again(j.core, 0, ASYNC, (Paramserver__V1__OnExisting)how).code, PS_OK);
        expect_reason(j.core, "opening",
                      "its last run has ended: worker 1 failed: of a bullet, and 0 of at least 1 remain");
        assert_int_equal(join_again(j.core, 1, ASYNC, (Paramserver__V1__OnExisting)how).code, PS_OK);
        expect_reason(j.core, "opening", "");
        psd_core_destroy(j.core);
    }
}

// ---- Waits --------------------------------------------------------------------------------------------------------

static Paramserver__V1__WaitsReply *waits_of(struct psd_core *core, const char *job, uint32_t skip)
{
    Paramserver__V1__WaitsRequest r = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    r.job = (char *)job;
    r.skip = skip;
    assert_int_equal(ask(core, M(WAITS), &r.base, NULL, &paramserver__v1__waits_reply__descriptor, &m, NULL).code,
                     PS_OK);
    return (Paramserver__V1__WaitsReply *)m;
}

// Another process comes under the rank of worker 1, which is not known to be gone.
static void join_rank_1(struct psd_core *core, struct answer *a, uint64_t deadline)
{
    struct joining x;
    join_init(&x, 1, ASYNC);
    another_process(&x.caller);
    ask_later(core, a, M(JOIN), &x.r.base, NULL, deadline);
}

// Time passes in steps of half a second, after each of which these are heard.
static void hear(struct psd_core *core, int steps, bool rank_1)
{
    struct psd_control *c = core->table.newest->control;
    for (int i = 0; i < steps; i++) {
        core_run(core, PS_SECOND / 2);
        psd_member_heard(c, &c->members[0], test_time);
        if (rank_1)
            psd_member_heard(c, &c->members[1], test_time);
        psd_job_touch(core->table.newest);
    }
}

// A worker that is started again at once waits until the death of who it was before is certain, and gets its rank then.
static void test_back_before_its_death_is_known(void **state)
{
    struct job j;
    struct answer a;
    ProtobufCMessage *m;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    const uint64_t before = j.core->table.newest->control->members[1].incarnation;
    hear(j.core, 2, false);
    join_rank_1(j.core, &a, UINT64_MAX);
    hear(j.core, 3, false);
    assert_false(a.answered);
    Paramserver__V1__WaitsReply *w = waits_of(j.core, "job", 0);
    assert_int_equal(w->n_waits, 1);
    assert_int_equal(w->waits[0]->method, M(JOIN));
    assert_string_equal(w->waits[0]->what, "its rank");
    assert_string_equal(w->waits[0]->whom, "worker 1, pid 1 on here, whose death is not certain yet");
    ps_msg_free(&w->base);
    hear(j.core, 2, false);
    assert_true(is_done(&a, PS_OK));
    assert_int_equal(ps_msg_unpack(&paramserver__v1__join_reply__descriptor, &a.body, &m, &nothing, NULL), PS_OK);
    assert_true(((Paramserver__V1__JoinReply *)m)->incarnation > before);
    ps_msg_free(m);
    drop(&a);
    psd_core_destroy(j.core);
}

// Nor does it wait longer than who it was before is there: that one was asked to leave.
static void test_back_when_it_has_left(void **state)
{
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    join_rank_1(j.core, &a, UINT64_MAX);
    assert_false(a.answered);
    assert_int_equal(drain(j.core, "job", 2, false).code, PS_OK);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    assert_true(is_done(&a, PS_OK));
    drop(&a);
    psd_core_destroy(j.core);
}

// Where who it was before is done, all have come to the end: whoever comes then is for the next run, in which it finds
// something to train.
static void test_next_worker_when_one_is_done(void **state)
{
    struct job j;
    struct joining x;
    struct answer before, after;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    join_rank_1(j.core, &before, UINT64_MAX);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    join_rank_1(j.core, &after, UINT64_MAX);
    assert_false(before.answered || after.answered);
    Paramserver__V1__WaitsReply *w = waits_of(j.core, "job", 0);
    assert_int_equal(w->n_waits, 2);
    assert_string_equal(w->waits[0]->what, "its rank");
    assert_string_equal(w->waits[0]->whom, "the end of the run that is under way, in which worker 1 is done");
    ps_msg_free(&w->base);
    assert_int_equal(leave(j.core, 0, NULL).code, PS_OK);
    assert_false(before.answered || after.answered);
    const uint64_t run = atomic_load(&j.core->table.newest->run);
    join_init(&x, 0, ASYNC);
    another_process(&x.caller);
    assert_int_equal(ask(j.core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    assert_true(atomic_load(&j.core->table.newest->run) > run);
    assert_true(before.answered && after.answered);
    assert_int_equal(before.code, PS_OK);
    assert_int_equal(after.code, PS_OK);
    drop(&before);
    drop(&after);
    psd_core_destroy(j.core);
}

// Two processes have one rank: the second is refused when the first has been heard after it would have had to be dead.
static void test_two_of_one_rank(void **state)
{
    struct job j;
    struct answer a, late, gone;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    join_rank_1(j.core, &late, test_time + 2 * PS_SECOND);
    join_rank_1(j.core, &gone, UINT64_MAX);
    join_rank_1(j.core, &a, UINT64_MAX);
    psd_core_cancel(j.core, &gone.call);
    assert_true(is_done(&gone, PS_CANCELLED));
    hear(j.core, 5, true);
    assert_true(is_done(&late, PS_DEADLINE_EXCEEDED));
    assert_string_equal(late.text,
                        "waited 2.0 s for its rank, for worker 1, pid 1 on here, whose death is not certain yet");
    assert_false(a.answered);
    hear(j.core, 3, true);
    assert_true(is_done(&a, PS_ALREADY_EXISTS));
    assert_non_null(strstr(a.text, "is alive as pid 1 on here: two workers cannot have one rank"));
    assert_int_equal(j.core->table.newest->control->deadlines.n, 0);
    psd_core_destroy(j.core);
}

// Another process waits for the rank of worker 0 when the job is done: it opens no other run, whose values would be
// fresh.
static void test_back_to_a_job_that_is_done(void **state)
{
    struct job j;
    struct joining x;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    const struct psd_job *before = j.core->table.newest;
    join_init(&x, 0, ASYNC);
    another_process(&x.caller);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    ask_later(j.core, &a, M(JOIN), &x.r.base, NULL, UINT64_MAX);
    assert_false(a.answered);
    assert_int_equal(leave(j.core, 0, NULL).code, PS_OK);
    assert_true(is_done(&a, PS_ABORTED));
    assert_non_null(strstr(a.text, "has ended while this worker waited for its rank"));
    assert_ptr_equal(j.core->table.newest, before);
    psd_core_destroy(j.core);
}

// Of a job that nobody has opened there is who waits for that.
static void test_waits_for_a_job_to_be_opened(void **state)
{
    struct psd_core *core = core_new(1 << 20);
    struct joining x;
    struct answer a;
    Paramserver__V1__WaitsRequest r = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    (void)state;
    join_init(&x, 1, ASYNC);
    ask_later(core, &a, M(JOIN), &x.r.base, NULL, UINT64_MAX);
    Paramserver__V1__WaitsReply *w = waits_of(core, "job", 0);
    assert_int_equal(w->n_waits, 1);
    assert_string_equal(w->waits[0]->job, "job");
    assert_string_equal(w->waits[0]->what, "the job to be opened");
    assert_string_equal(w->waits[0]->whom, "worker 0");
    ps_msg_free(&w->base);
    r.job = (char *)"other";
    assert_int_equal(ask(core, M(WAITS), &r.base, NULL, NULL, NULL, NULL).code, PS_NOT_FOUND);
    psd_core_drain(core);
    assert_true(is_done(&a, PS_UNAVAILABLE));
    psd_core_destroy(core);
}

// The job ends under a Join that waits for a rank: it waits for the job to be opened again, as others do.
static void test_back_to_a_job_that_ends(void **state)
{
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    join_rank_1(j.core, &a, UINT64_MAX);
    psd_job_fail(j.core->table.newest, atomic_load(&j.core->table.newest->run), "it was tested");
    core_run(j.core, 100 * PS_MS);
    assert_false(a.answered);
    Paramserver__V1__WaitsReply *w = waits_of(j.core, "", 0);
    assert_int_equal(w->n_waits, 1);
    assert_string_equal(w->waits[0]->what, "the job to be opened");
    ps_msg_free(&w->base);
    assert_int_equal(join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__RESUME).code, PS_OK);
    assert_true(is_done(&a, PS_OK));
    drop(&a);
    psd_core_destroy(j.core);
}

// Worker 1 moves data and sends nothing else: it lives, for as long as it is it that does. A copy of who it was before,
// or nobody, keeps it from being dead.
static void test_who_moves_data_lives(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    const struct psd_member *m = &j.core->table.newest->control->members[1];
    for (uint64_t sequence = 1; sequence <= 20; sequence++) {
        assert_int_equal(push(j.core, 1, sequence, 0), PS_OK);
        hear(j.core, 1, false);
        assert_true(psd_is_live(m));
    }
    for (uint64_t sequence = 21; sequence <= 27; sequence++) {
        update_init(&u, 1, sequence, "a", 0, 15);
        u.caller.incarnation--;
        assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 100, NULL).code, PS_ABORTED);
        hear(j.core, 1, false);
    }
    assert_false(psd_is_live(m));
    assert_non_null(strstr(m->reason, "sent no message for "));
    psd_core_destroy(j.core);
}

// Worker 0 pulls this variable of round 1.
static void pull_later(struct psd_core *core, struct answer *a, const char *name, uint64_t deadline)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    t.variable = (char *)name;
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    r.round = 1;
    ask_later(core, a, M(PULL), &r.base, NULL, deadline);
}

static void test_who_waits_for_whom(void **state)
{
    struct job j;
    struct answer pull, barrier;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    assert_int_equal(push(j.core, 0, 1, 1), PS_OK);
    pull_later(j.core, &pull, "a", test_time + 5 * PS_SECOND);
    core_run(j.core, PS_SECOND);
    enter(j.core, &barrier, 0, 2, "b");
    Paramserver__V1__WaitsReply *w = waits_of(j.core, "", 0);
    assert_int_equal(w->total, 2);
    assert_int_equal(w->n_waits, 2);
    assert_int_equal(w->waits[0]->method, M(PULL));
    assert_string_equal(w->waits[0]->job, "job");
    assert_string_equal(w->waits[0]->what, "round 1 of 'a'");
    assert_string_equal(w->waits[0]->whom, "worker 1 (live, step 0, silent 1.0 s)");
    assert_int_equal(w->waits[0]->worker, 1);
    assert_int_equal(w->waits[0]->client.len, 16);
    assert_int_equal(w->waits[0]->since_ms, 1000);
    assert_in_range(w->waits[0]->left_ms, 3900, 4001);
    assert_string_equal(w->waits[1]->what, "barrier 'b'");
    assert_int_equal(w->waits[1]->left_ms, 0);
    ps_msg_free(&w->base);
    w = waits_of(j.core, "job", 1);
    assert_int_equal(w->total, 2);
    assert_int_equal(w->n_waits, 1);
    assert_string_equal(w->waits[0]->what, "barrier 'b'");
    ps_msg_free(&w->base);
    psd_core_drain(j.core);
    assert_true(is_done(&pull, PS_UNAVAILABLE) && is_done(&barrier, PS_UNAVAILABLE));
    psd_core_destroy(j.core);
}

// For people epochs are counted from 1, as Keras does.
static void test_who_waits_for_an_epoch(void **state)
{
    struct job j;
    struct answer share;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    lease(j.core, &share, 1, 1, 0, 0);
    Paramserver__V1__WaitsReply *w = waits_of(j.core, "job", 0);
    assert_int_equal(w->n_waits, 1);
    assert_string_equal(w->waits[0]->what, "the rest of epoch 1");
    assert_string_equal(w->waits[0]->whom, "worker 0 (live, step 0, silent 0.0 s)");
    ps_msg_free(&w->base);
    psd_core_drain(j.core);
    assert_true(is_done(&share, PS_UNAVAILABLE));
    psd_core_destroy(j.core);

    // An async worker has had all that there is of its epoch.
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct answer other;
    for (uint64_t sequence = 1; sequence <= 21; sequence++) {  // the 11th says that all of the first epoch is trained
        lease(j.core, &other, 0, sequence, sequence > 11, 0);
        assert_int_equal(share_of(&other).count != 0, sequence != 11);
    }
    lease(j.core, &share, 1, 1, 1, 0);
    w = waits_of(j.core, "job", 0);
    assert_int_equal(w->n_waits, 1);
    assert_string_equal(w->waits[0]->what, "the rest of epoch 2");
    ps_msg_free(&w->base);
    psd_core_drain(j.core);
    assert_true(is_done(&share, PS_UNAVAILABLE));
    psd_core_destroy(j.core);
}

// What a name that is cut to fit ends with is still UTF-8: without, nothing of the list could be read.
static void test_names_are_cut(void **state)
{
    struct job j;
    struct answer barrier;
    char name[84];
    (void)state;
    memset(name, 'x', 78);
    strcpy(name + 78, "\xc3\xa9\xc3\xa9");
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    enter(j.core, &barrier, 0, 1, name);
    Paramserver__V1__WaitsReply *w = waits_of(j.core, "job", 0);
    assert_int_equal(w->n_waits, 1);
    assert_non_null(strstr(w->waits[0]->what, "xx?'"));
    ps_msg_free(&w->base);
    psd_core_drain(j.core);
    assert_true(is_done(&barrier, PS_UNAVAILABLE));
    psd_core_destroy(j.core);

    // Nor does a variable's.
    struct answer pull;
    char variable[192];
    memset(variable, 'x', 179);
    strcpy(variable + 179, "\xc3\xa9");
    fill_job(&j, 20);
    j.a.name = variable;
    j.core = core_new(1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(join(j.core, rank, SYNC).code, PS_OK);
    assert_int_equal(declare(&j, SYNC, "sgd").code, PS_OK);
    pull_later(j.core, &pull, variable, UINT64_MAX);
    w = waits_of(j.core, "job", 0);
    assert_int_equal(w->n_waits, 1);
    assert_non_null(strstr(w->waits[0]->what, "xx?'"));
    ps_msg_free(&w->base);
    psd_core_drain(j.core);
    assert_true(is_done(&pull, PS_UNAVAILABLE));
    psd_core_destroy(j.core);
}

// Calls of one worker that wait for different things, and too long, each say their own.
static void test_late_for_different_things(void **state)
{
    struct psd_core *core = ssp_open(2, 2);
    struct answer barrier, clock;
    (void)state;
    tick(core, &clock, 0, 50, true);
    enter(core, &barrier, 0, 1, "b");
    barrier.call.deadline = clock.call.deadline = test_time + PS_SECOND;
    core->table.newest->control->members[0].participation.waiting.earliest = test_time;
    core->table.newest->control->members[0].for_clock.earliest = test_time;
    psd_member_recount(core->table.newest->control, &core->table.newest->control->members[0]);
    core_run(core, 1100 * PS_MS);
    assert_true(is_done(&barrier, PS_DEADLINE_EXCEEDED) && is_done(&clock, PS_DEADLINE_EXCEEDED));
    assert_non_null(strstr(barrier.text, "for barrier 'b', for worker 1"));
    assert_non_null(strstr(clock.text, "for clock 48: it is at 50, staleness is 2"));
    psd_core_destroy(core);
}

// Who begins to wait while the calls are listed, or ended, has not waited for ages.
static void test_waits_from_now_on(void **state)
{
    struct job j;
    struct answer a[2];
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    enter(j.core, &a[0], 0, 1, "b");
    test_time -= PS_MS;
    Paramserver__V1__WaitsReply *w = waits_of(j.core, "job", 0);
    assert_int_equal(w->waits[0]->since_ms, 0);
    ps_msg_free(&w->base);
    a[0].call.deadline = test_time;
    j.core->table.newest->control->members[0].participation.waiting.earliest = test_time;
    psd_member_recount(j.core->table.newest->control, &j.core->table.newest->control->members[0]);
    psd_core_tick(j.core);
    assert_false(j.core->table.newest->control->members[0].excluded);
    assert_true(is_done(&a[0], PS_DEADLINE_EXCEEDED));
    assert_non_null(strstr(a[0].text, "waited 0.0 s for barrier 'b'"));
    psd_core_destroy(j.core);
}

// ---- nothing walks ------------------------------------------------------------------------------------------------

struct crowd_caller {
    Paramserver__V1__Caller caller;
    uint8_t id[16];
};

static void crowd_caller_init(struct crowd_caller *x, const char *job, uint64_t run, uint32_t rank)
{
    paramserver__v1__caller__init(&x->caller);
    memset(x->id, 1, sizeof x->id);
    memcpy(x->id, &rank, sizeof rank);
    x->caller.protocol = PS_PROTOCOL;
    x->caller.job = (char *)job;
    x->caller.client = (ProtobufCBinaryData){sizeof x->id, x->id};
    x->caller.worker = rank + 1;
    x->caller.run = x->caller.incarnation = run;
}

static struct psd_control *crowd_join(struct psd_core *core, const char *job, uint32_t workers, uint32_t rank)
{
    Paramserver__V1__JoinRequest r = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    struct crowd_caller x;
    crowd_caller_init(&x, job, 0, rank);
    r.caller = &x.caller;
    r.workers = workers;
    r.update = SSP;
    r.staleness = 4;
    struct answer a = ask(core, M(JOIN), &r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("join: %s", a.text);
    return psd_job_lookup(&core->table, job)->control;
}

static void crowd_step(struct psd_core *core, const char *job, uint64_t run, uint32_t rank, uint64_t step)
{
    Paramserver__V1__ClockRequest r = PARAMSERVER__V1__CLOCK_REQUEST__INIT;
    struct crowd_caller x;
    crowd_caller_init(&x, job, run, rank);
    r.caller = &x.caller;
    r.step = step;
    assert_int_equal(ask(core, M(CLOCK), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

static void crowd_beat(struct psd_core *core, const char *job, uint64_t run, uint32_t rank, uint64_t epoch)
{
    Paramserver__V1__HeartbeatRequest r = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    struct crowd_caller x;
    crowd_caller_init(&x, job, run, rank);
    r.caller = &x.caller;
    r.epoch = epoch;
    assert_int_equal(ask(core, M(HEARTBEAT), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

// How many members a join, a heartbeat, a step of the clock and a tick look at, among so many.
struct looked_at {
    uint64_t join, beat, step, tick;  // members
    uint64_t jobs_used, jobs_idle;    // jobs in a tick: right after a call of one, and when nothing has happened
};

static uint64_t jobs_visited(struct psd_core *core)
{
    const uint64_t before = core->table.visited;
    psd_core_tick(core);
    return core->table.visited - before;
}

static struct looked_at crowd_count(uint32_t workers, int jobs)
{
    struct psd_core *core = core_new((size_t)2 << 30);
    struct looked_at v;
    char name[16] = "job-0";
    struct psd_control *c = NULL;
    for (int i = 0; i < jobs; i++) {
        snprintf(name, sizeof name, "job-%d", i);
        for (uint32_t rank = 0; rank + 1 < workers; rank++)
            c = crowd_join(core, name, workers, rank);
    }
    const uint64_t run = atomic_load(&psd_job_lookup(&core->table, name)->run);
    uint64_t before = c->visited;
    crowd_join(core, name, workers, workers - 1);
    v.join = c->visited - before - (workers <= PSD_MEMBERS_WHOLE ? workers : 0);  // but for those that the reply names
    before = c->visited;
    crowd_beat(core, name, run, workers / 2, c->epoch);
    v.beat = c->visited - before;
    before = c->visited;
    crowd_step(core, name, run, workers / 2, 1);
    v.step = c->visited - before;
    before = c->visited;
    psd_core_tick(core);
    v.tick = c->visited - before;
    v.jobs_idle = jobs_visited(core);
    crowd_beat(core, name, run, workers / 2, c->epoch);
    v.jobs_used = jobs_visited(core);
    psd_core_destroy(core);
    return v;
}

// The same with ten workers or ten thousand, with one job or a thousand.
static void test_nothing_walks(void **state)
{
    static const struct {
        uint32_t workers;
        int jobs;
    } rows[] = {{10, 1}, {100, 1}, {1000, 1}, {10000, 1}, {10, 100}, {10, 1000}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct looked_at v = crowd_count(rows[i].workers, rows[i].jobs);
        if (v.join > 4 || v.beat > 2 || v.step > 3 || v.tick > 1 || v.jobs_used > 1 || v.jobs_idle > 0)
            fail_msg("%u workers, %d jobs: join %" PRIu64 ", heartbeat %" PRIu64 ", step %" PRIu64 ", tick %" PRIu64
                     ", jobs in a tick %" PRIu64 ", %" PRIu64,
                     rows[i].workers, rows[i].jobs, v.join, v.beat, v.step, v.tick, v.jobs_used, v.jobs_idle);
    }
}

struct crowd {
    struct psd_core *core;
    struct psd_control *control;
    struct answer *in;  // [CROWD - 1] their barriers
};

enum { CROWD = 10000 };

// All but the last worker are in a barrier.
static void crowd_enter(struct crowd *x)
{
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    x->core = core_new((size_t)2 << 30);
    x->in = calloc(CROWD - 1, sizeof *x->in);
    for (uint32_t rank = 0; rank < CROWD; rank++)
        x->control = crowd_join(x->core, "crowd", CROWD, rank);
    for (uint32_t rank = 0; rank + 1 < CROWD; rank++) {
        struct crowd_caller caller;
        crowd_caller_init(&caller, "crowd", atomic_load(&psd_job_lookup(&x->core->table, "crowd")->run), rank);
        caller.caller.sequence = 1;
        r.caller = &caller.caller;
        r.name = (char *)"start";
        ask_later(x->core, &x->in[rank], M(BARRIER), &r.base, NULL, test_time + 2 * PS_SECOND);
        assert_false(x->in[rank].answered);
    }
}

// One of ten thousand has not come to a barrier: what tells of those who wait for it looks at each member a few times,
// and has one line for all of them.
static void test_one_line_for_a_barrier(void **state)
{
    struct crowd x;
    char line[1024] = "";
    (void)state;
    crowd_enter(&x);
    x.core->config.stall_ms = 1000;
    psd_job_lookup(&x.core->table, "crowd")->stalled_at = 0;
    test_time += 1500 * PS_MS;
    uint64_t before = x.control->visited;
    assert_int_equal(lines_logged_by(psd_core_tick, x.core, line, sizeof line), 1);
    assert_non_null(strstr(line, "job 'crowd': 9999 calls wait long for barrier 'start': worker 9999 (live, step 0, "));
    assert_in_range(x.control->visited - before, CROWD, 3 * CROWD);

    before = x.control->visited;
    Paramserver__V1__WaitsReply *w = waits_of(x.core, "crowd", 0);
    assert_in_range(x.control->visited - before, CROWD, 3 * CROWD);
    assert_int_equal(w->total, CROWD - 1);
    assert_string_equal(w->waits[0]->what, "barrier 'start'");
    assert_string_equal(w->waits[0]->whom, "worker 9999 (live, step 0, silent 1.5 s)");
    assert_string_equal(w->waits[1]->whom, "worker 9999 (live, step 0, silent 1.5 s)");
    ps_msg_free(&w->base);

    test_time += 600 * PS_MS;  // their time is over
    before = x.control->visited;
    assert_int_equal(lines_logged_by(psd_core_tick, x.core, line, sizeof line), 0);
    assert_in_range(x.control->visited - before, CROWD, 5 * CROWD);
    for (uint32_t i = 0; i < CROWD - 1; i++) {
        assert_true(is_done(&x.in[i], PS_DEADLINE_EXCEEDED));
        assert_non_null(strstr(x.in[i].text, "waited 2.1 s for barrier 'start', for worker 9999 (live, step 0, "));
    }
    psd_core_destroy(x.core);
    free(x.in);
}

// Workers of several jobs that nobody has opened: each job has its own line.
static void test_a_line_for_each_job_to_be_opened(void **state)
{
    static const char *const names[] = {"red", "blue", "red"};
    struct psd_core *core = core_new(1 << 20);
    struct answer a[3];
    char line[1024] = "";
    (void)state;
    core->config.stall_ms = 1000;
    for (uint32_t i = 0; i < 3; i++) {
        struct joining x;
        join_init(&x, 1 + i, ASYNC);
        x.r.workers = 4;
        x.caller.job = (char *)names[i];
        ask_later(core, &a[i], M(JOIN), &x.r.base, NULL, UINT64_MAX);
    }
    test_time += 1500 * PS_MS;
    assert_int_equal(lines_logged_by(psd_core_tick, core, line, sizeof line), 2);
    assert_non_null(strstr(line, "job 'red': 2 calls wait long for the job to be opened: worker 0\n"));
    test_time += 1500 * PS_MS;
    assert_int_equal(lines_logged_by(psd_core_tick, core, line, sizeof line), 0);
    psd_core_drain(core);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(is_done(&a[i], PS_UNAVAILABLE));
    psd_core_destroy(core);
}

// Two wait for one round, each with its own deadline, and nobody uses the job meanwhile.
static void test_late_one_after_the_other(void **state)
{
    struct job j;
    struct answer first, second;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    assert_int_equal(push(j.core, 0, 1, 1), PS_OK);
    pull_later(j.core, &first, "a", test_time + PS_SECOND);
    pull_later(j.core, &second, "a", test_time + 3 * PS_SECOND / 2);
    core_run(j.core, PS_SECOND);
    assert_true(is_done(&first, PS_DEADLINE_EXCEEDED));
    assert_false(second.answered);
    core_run(j.core, PS_SECOND / 2);
    assert_true(is_done(&second, PS_DEADLINE_EXCEEDED));
    drop(&first);
    drop(&second);
    psd_core_destroy(j.core);
}

// Ten thousand pulls wait for one round: all are listed, all are let go by one push.
static void test_ten_thousand_wait(void **state)
{
    enum { N = 10000 };
    struct job j;
    struct answer *pulls = calloc(N, sizeof *pulls);
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    assert_int_equal(push(j.core, 0, 1, 1), PS_OK);
    for (int i = 0; i < N; i++)
        pull_later(j.core, &pulls[i], "a", UINT64_MAX);
    uint32_t listed = 0, total = 1;
    while (listed < total) {
        Paramserver__V1__WaitsReply *w = waits_of(j.core, "job", listed);
        assert_true(w->n_waits > 0);
        listed += (uint32_t)w->n_waits;
        total = w->total;
        ps_msg_free(&w->base);
    }
    assert_int_equal(total, N);
    assert_int_equal(push(j.core, 1, 1, 1), PS_OK);
    for (int i = 0; i < N; i++) {
        assert_true(is_done(&pulls[i], PS_OK));
        drop(&pulls[i]);
    }
    psd_core_destroy(j.core);
    free(pulls);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_reductions),
    cmocka_unit_test(test_not_a_number_shows),
    cmocka_unit_test(test_gather_and_broadcast),
    cmocka_unit_test(test_the_largest_reduction),
    cmocka_unit_test(test_bad_reductions),
    cmocka_unit_test(test_sequence_of_another_collective),
    cmocka_unit_test(test_superseded_collective),
    cmocka_unit_test(test_mean_of_great_integers),
    cmocka_unit_test(test_a_late_barrier_is_not_entered),
    cmocka_unit_test(test_a_late_value_is_not_summed),
    cmocka_unit_test(test_a_late_barrier_refuses_no_other),
    cmocka_unit_test(test_the_cancelled_are_not_counted),
    cmocka_unit_test(test_a_late_barrier_excludes_nobody),
    cmocka_unit_test(test_unequal_batches),
    cmocka_unit_test(test_all_know_before_all_go_on),
    cmocka_unit_test(test_a_round_of_nothing),
    cmocka_unit_test(test_shares),
    cmocka_unit_test(test_a_round_that_cannot_be_closed),
    cmocka_unit_test(test_the_dead_leave_their_shares),
    cmocka_unit_test(test_shares_of_some_rounds),
    cmocka_unit_test(test_the_dead_leave_some_rounds),
    cmocka_unit_test(test_coming_back_to_sync),
    cmocka_unit_test(test_the_chief_has_been_there_for_longest),
    cmocka_unit_test(test_who_comes_late_knows_where_all_are),
    cmocka_unit_test(test_who_comes_late_to_a_job_that_goes_on_in_an_epoch),
    cmocka_unit_test(test_who_comes_late_waits_for_the_first_range),
    cmocka_unit_test(test_who_comes_late_and_is_alone),
    cmocka_unit_test(test_a_round_closed_in_part),
    cmocka_unit_test(test_collectives_without_who_came_late),
    cmocka_unit_test(test_late_share),
    cmocka_unit_test(test_the_end_of_an_epoch_is_not_waited_for_twice),
    cmocka_unit_test(test_many_batches),
    cmocka_unit_test(test_one_batch_for_many),
    cmocka_unit_test(test_ahead),
    cmocka_unit_test(test_ahead_of_nothing),
    cmocka_unit_test(test_ahead_in_sync),
    cmocka_unit_test(test_given_up),
    cmocka_unit_test(test_rounds_given_up),
    cmocka_unit_test(test_given_up_after_a_death),
    cmocka_unit_test(test_nobody_runs_ahead),
    cmocka_unit_test(test_mode_changes),
    cmocka_unit_test(test_mode_of_the_last_epoch),
    cmocka_unit_test(test_rounds_come_and_go),
    cmocka_unit_test(test_rounds_taken_back),
    cmocka_unit_test(test_rounds_go_on),
    cmocka_unit_test(test_rounds_need_room),
    cmocka_unit_test(test_rounds_are_mended),
    cmocka_unit_test(test_collectives_stop_no_clock),
    cmocka_unit_test(test_clocks_are_ssp),
    cmocka_unit_test(test_one_configuration),
    cmocka_unit_test(test_who_does_not_come),
    cmocka_unit_test(test_silence_of_who_is_gone),
    cmocka_unit_test(test_reasons_are_whole),
    cmocka_unit_test(test_a_stopped_task_buries_nobody),
    cmocka_unit_test(test_back_before_its_death_is_known),
    cmocka_unit_test(test_back_when_it_has_left),
    cmocka_unit_test(test_next_worker_when_one_is_done),
    cmocka_unit_test(test_two_of_one_rank),
    cmocka_unit_test(test_back_to_a_job_that_is_done),
    cmocka_unit_test(test_waits_for_a_job_to_be_opened),
    cmocka_unit_test(test_back_to_a_job_that_ends),
    cmocka_unit_test(test_who_moves_data_lives),
    cmocka_unit_test(test_progress),
    cmocka_unit_test(test_checkpoint_is_asked_for_once),
    cmocka_unit_test(test_newest_checkpoint),
    cmocka_unit_test(test_interrupted),
    cmocka_unit_test(test_interrupted_after_one_was_lost),
    cmocka_unit_test(test_heartbeats_tell_of_an_heir),
    cmocka_unit_test(test_status_says_how_many_it_needs),
    cmocka_unit_test(test_interrupted_before_all_are_there),
    cmocka_unit_test(test_drain),
    cmocka_unit_test(test_drained_and_begun_anew),
    cmocka_unit_test(test_drained_and_begun_by_people),
    cmocka_unit_test(test_drained_and_done),
    cmocka_unit_test(test_why_the_last_run_has_ended),
    cmocka_unit_test(test_who_waits_for_whom),
    cmocka_unit_test(test_who_waits_for_an_epoch),
    cmocka_unit_test(test_names_are_cut),
    cmocka_unit_test(test_late_for_different_things),
    cmocka_unit_test(test_waits_from_now_on),
    cmocka_unit_test(test_nothing_walks),
    cmocka_unit_test(test_one_line_for_a_barrier),
    cmocka_unit_test(test_heartbeats_tell_of_a_silent_chief),
    cmocka_unit_test(test_a_line_for_each_job_to_be_opened),
    cmocka_unit_test(test_late_one_after_the_other),
    cmocka_unit_test(test_ten_thousand_wait),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
