// SPDX-License-Identifier: Apache-2.0
//
// What is kept of calls that have waited: the ring itself, and for each kind of wait who waited, for what, for whom,
// for how long, and how it ended.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "psd/job/trace.h"
#include "psd/service/service.h"
#include "tests/unit/psd_job.h"

#define KIND(name) PARAMSERVER__V1__WAIT_KIND__FOR_##name
#define END(name) PARAMSERVER__V1__WAIT_END__##name
#define SSP PARAMSERVER__V1__UPDATE__SSP

// ---- the ring -----------------------------------------------------------------------------------------------------

static struct psd_past_wait copied[PSD_TRACE_WAITS];

static void add_numbered(struct psd_job *job, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++)
        psd_trace_add(job, &(struct psd_past_wait){.wait.number = i, .since = i, .until = 2 * i});
}

// The newest first, down to `last`.
static void assert_copied(struct psd_job *job, uint64_t newest, size_t n)
{
    assert_int_equal(psd_trace_copy(job, copied), n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(copied[i].wait.number, newest - i);
        assert_int_equal(copied[i].until, 2 * (newest - i));
    }
}

static void test_newest_first(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct psd_job *job = j.core->table.newest;
    assert_int_equal(psd_trace_copy(job, copied), 0);
    add_numbered(job, 1, 4);
    assert_copied(job, 3, 3);
    add_numbered(job, 4, PSD_TRACE_WAITS + 1);
    assert_copied(job, PSD_TRACE_WAITS, PSD_TRACE_WAITS);
    psd_core_destroy(j.core);
}

static void test_oldest_goes(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct psd_job *job = j.core->table.newest;
    add_numbered(job, 0, PSD_TRACE_WAITS + 1);
    assert_copied(job, PSD_TRACE_WAITS, PSD_TRACE_WAITS);
    add_numbered(job, PSD_TRACE_WAITS + 1, 3 * PSD_TRACE_WAITS + 7);
    assert_copied(job, 3 * PSD_TRACE_WAITS + 6, PSD_TRACE_WAITS);
    psd_core_destroy(j.core);
}

// It counts in the memory that jobs are admitted by, and is given back.
static void test_is_counted(void **state)
{
    struct job j;
    (void)state;
    fill_job(&j, 20);
    j.core = core_new(sizeof(struct psd_trace));
    forget_again();
    assert_int_equal(join(j.core, 0, ASYNC).code, PS_OK);
    assert_int_equal(declare(&j, ASYNC, "sgd").code, PS_FAILED_PRECONDITION);
    psd_core_destroy(j.core);
}

enum { ADDED = 20000 / TEST_PART, ADDERS = 3 };

static void *adds(void *job)
{
    add_numbered(job, 0, ADDED);
    return NULL;
}

// Each wait is whole, whoever adds meanwhile.
static void test_from_all_threads(void **state)
{
    struct job j;
    pthread_t thread[ADDERS];
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    struct psd_job *job = j.core->table.newest;
    for (int i = 0; i < ADDERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, adds, job), 0);
    for (size_t n = 0; n < PSD_TRACE_WAITS;) {
        n = psd_trace_copy(job, copied);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(copied[i].until, 2 * copied[i].since);
    }
    for (int i = 0; i < ADDERS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(job->trace->added, ADDERS * ADDED);
    psd_core_destroy(j.core);
}

// ---- Trace --------------------------------------------------------------------------------------------------------

static Paramserver__V1__TraceReply *trace_from(struct psd_core *core, const char *job, uint32_t skip)
{
    Paramserver__V1__TraceRequest r = PARAMSERVER__V1__TRACE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    r.job = (char *)job;
    r.skip = skip;
    struct answer a = ask(core, M(TRACE), &r.base, NULL, &paramserver__v1__trace_reply__descriptor, &reply, NULL);
    if (a.code)
        fail_msg("trace: %s", a.text);
    return (Paramserver__V1__TraceReply *)reply;
}

struct expected {
    int method;
    uint32_t worker, whom;  // as in Caller
    Paramserver__V1__WaitKind kind;
    const char *what;
    Paramserver__V1__WaitEnd end;
    uint64_t waited_ms, ended_ms;
};

static void assert_wait(const Paramserver__V1__PastWait *w, const struct expected *x)
{
    const Paramserver__V1__Caller caller = caller_of(x->worker - 1, 0);
    assert_string_equal(w->job, "job");
    assert_int_equal(w->method, x->method);
    assert_int_equal(w->worker, x->worker);
    assert_int_equal(w->client.len, 16);
    assert_memory_equal(w->client.data, caller.client.data, 16);
    assert_int_equal(w->kind, x->kind);
    assert_string_equal(w->what, x->what);
    assert_int_equal(w->whom, x->whom);
    assert_int_equal(w->end, x->end);
    assert_int_equal(w->waited_us, x->waited_ms * 1000);
    assert_int_equal(w->ended_us, x->ended_ms * 1000);
}

static void assert_waits(struct psd_core *core, const struct expected *x, size_t n)
{
    Paramserver__V1__TraceReply *reply = trace_from(core, "job", 0);
    assert_int_equal(reply->n_waits, n);
    assert_int_equal(reply->total, n);
    for (size_t i = 0; i < n; i++)
        assert_wait(reply->waits[i], &x[i]);
    ps_msg_free(&reply->base);
}

static void pass_ms(uint64_t ms)
{
    test_time += ms * PS_MS;
}

// A pull of "a", and of "big", too, once they have closed that round.
static void pull_later(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t round, uint64_t deadline)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, u = t, *tensors[] = {&t, &u};
    r.caller = &caller;
    r.round = round;
    r.tensors = tensors;
    r.n_tensors = 2;
    t.variable = (char *)"a";
    u.variable = (char *)"big";
    ask_later(core, a, M(PULL), &r.base, NULL, deadline);
}

static void push_to(struct psd_core *core, uint32_t rank, uint64_t sequence, uint64_t round, const char *name)
{
    struct update u;
    const size_t n = *name == 'a' ? 15 : 20;
    update_init(&u, rank, sequence, name, 0, n);
    u.r.round = round;
    assert_int_equal(send_update(core, &u, M(PUSH), n, 1, NULL).code, PS_OK);
}

static void assert_ends(struct answer *a, enum ps_code code)
{
    assert_true(a->answered);
    assert_int_equal(a->code, code);
    ps_slices_clear(&a->body);
}

// Two rounds: who comes last is the one that was waited for, and a pull of two variables waits once.
static void test_rounds(void **state)
{
    struct job j;
    struct answer pull;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint64_t round = 1; round <= 2; round++) {
        push_to(j.core, 0, 2 * round - 1, round, "a");
        push_to(j.core, 0, 2 * round, round, "big");
        pull_later(j.core, &pull, 0, round, UINT64_MAX);
        pass_ms(100 * round);
        push_to(j.core, 1, 2 * round - 1, round, "a");
        assert_false(pull.answered);
        pass_ms(10);
        push_to(j.core, 1, 2 * round, round, "big");
        assert_ends(&pull, PS_OK);
    }
    pass_ms(7);
    const struct expected x[] = {
        {M(PULL), 1, 2, KIND(ROUND), "round 2 of 'big'", END(WENT_ON), 210, 7},
        {M(PULL), 1, 2, KIND(ROUND), "round 1 of 'big'", END(WENT_ON), 110, 217},
    };
    assert_waits(j.core, x, 2);
    psd_core_destroy(j.core);
}

// What is answered at once has not waited.
static void test_who_does_not_wait(void **state)
{
    struct job j;
    struct answer pull;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++) {
        push_to(j.core, rank, 1, 1, "a");
        push_to(j.core, rank, 2, 1, "big");
    }
    pull_later(j.core, &pull, 0, 1, UINT64_MAX);
    assert_ends(&pull, PS_OK);
    assert_waits(j.core, NULL, 0);
    psd_core_destroy(j.core);
}

// A worker that leaves is whom a round has waited for, not the one that came last.
static void test_departures(void **state)
{
    struct job j;
    struct answer pull;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    push_to(j.core, 0, 1, 1, "a");
    push_to(j.core, 0, 2, 1, "big");
    pull_later(j.core, &pull, 0, 1, UINT64_MAX);
    pass_ms(50);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    assert_ends(&pull, PS_OK);
    const struct expected x = {M(PULL), 1, 2, KIND(ROUND), "round 1 of 'a'", END(WENT_ON), 50, 0};
    assert_waits(j.core, &x, 1);
    psd_core_destroy(j.core);
}

static void barrier_later(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence, const char *name)
{
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    r.caller = &caller;
    r.name = (char *)name;
    ask_later(core, a, M(BARRIER), &r.base, NULL, UINT64_MAX);
}

// A name that is too long is cut, and who comes last waits for nobody.
static void test_barriers(void **state)
{
    struct job j;
    struct answer first, last;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    barrier_later(j.core, &first, 1, 1, "a name of more than thirty-one bytes");
    pass_ms(30);
    barrier_later(j.core, &last, 0, 1, "a name of more than thirty-one bytes");
    assert_ends(&first, PS_OK);
    assert_ends(&last, PS_OK);
    const char *what = "barrier 'a name of more than thirty-one '";
    Paramserver__V1__TraceReply *reply = trace_from(j.core, "job", 0);
    assert_int_equal(reply->n_waits, 2);
    for (int i = 0; i < 2; i++) {
        const bool was_first = reply->waits[i]->worker == 2;
        const struct expected x = {M(BARRIER), was_first ? 2 : 1, was_first ? 1 : 0,  KIND(BARRIER),
                                   what,       END(WENT_ON),      was_first ? 30 : 0, 0};
        assert_wait(reply->waits[i], &x);
    }
    assert_int_not_equal(reply->waits[0]->worker, reply->waits[1]->worker);
    ps_msg_free(&reply->base);
    psd_core_destroy(j.core);
}

static void lease_later(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    r.caller = &caller;
    r.epoch = 0;
    r.examples = 20;
    r.want = 10;
    ask_later(core, a, M(LEASE), &r.base, NULL, UINT64_MAX);
}

// Who has trained its share waits for the other's end.
static void test_shares(void **state)
{
    struct job j;
    struct answer a, b;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    lease_later(j.core, &a, 0, 1);
    assert_ends(&a, PS_OK);
    lease_later(j.core, &b, 1, 1);
    assert_ends(&b, PS_OK);
    lease_later(j.core, &a, 0, 2);
    assert_false(a.answered);
    pass_ms(40);
    lease_later(j.core, &b, 1, 2);
    assert_ends(&b, PS_OK);
    assert_ends(&a, PS_OK);
    const struct expected x = {M(LEASE), 1, 2, KIND(SHARE), "the rest of epoch 1", END(WENT_ON), 40, 0};
    assert_waits(j.core, &x, 1);
    psd_core_destroy(j.core);
}

static void clock_later(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t step)
{
    Paramserver__V1__ClockRequest r = PARAMSERVER__V1__CLOCK_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    r.caller = &caller;
    r.step = step;
    r.wait = true;
    ask_later(core, a, M(CLOCK), &r.base, NULL, UINT64_MAX);
}

static void open_ssp(struct job *j)
{
    fill_job(j, 20);
    forget_again();
    j->core = core_new(1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct joining x;
        join_init(&x, rank, SSP);
        x.r.staleness = 2;
        assert_int_equal(ask(j->core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    }
    struct declaring x;
    declare_init(&x, j, SSP, "sgd");
    x.r.staleness = 2;
    assert_int_equal(ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

static void test_clocks(void **state)
{
    struct job j;
    struct answer ahead, behind;
    (void)state;
    open_ssp(&j);
    clock_later(j.core, &ahead, 1, 3);
    assert_false(ahead.answered);
    pass_ms(60);
    clock_later(j.core, &behind, 0, 1);
    assert_ends(&behind, PS_OK);
    assert_ends(&ahead, PS_OK);
    const struct expected x = {M(CLOCK), 2, 1, KIND(CLOCK), "clock 1", END(WENT_ON), 60, 0};
    assert_waits(j.core, &x, 1);
    psd_core_destroy(j.core);
}

// What ends otherwise says how, and for nobody: its deadline passes, its client goes, its job ends.
static void test_ends(void **state)
{
    struct job j;
    struct answer late, gone, ended;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    pull_later(j.core, &late, 0, 1, test_time + 100 * PS_MS);
    pull_later(j.core, &gone, 1, 1, UINT64_MAX);
    core_run(j.core, 100 * PS_MS);
    assert_ends(&late, PS_DEADLINE_EXCEEDED);
    pass_ms(20);
    psd_core_cancel(j.core, &gone.call);
    assert_ends(&gone, PS_CANCELLED);
    pull_later(j.core, &ended, 1, 1, UINT64_MAX);
    pass_ms(5);
    assert_true(psd_job_fail(j.core->table.newest, j.core->table.newest->run, "its time had come"));
    psd_core_tick(j.core);
    assert_ends(&ended, PS_ABORTED);
    const struct expected x[] = {
        {M(PULL), 2, 0, KIND(ROUND), "round 1 of 'a'", END(END_WITH_JOB), 5, 0},
        {M(PULL), 2, 0, KIND(ROUND), "round 1 of 'a'", END(END_CANCELLED), 120, 5},
        {M(PULL), 1, 0, KIND(ROUND), "round 1 of 'a'", END(END_BY_DEADLINE), 100, 25},
    };
    assert_waits(j.core, x, 3);
    psd_core_destroy(j.core);
}

// ---- the list -----------------------------------------------------------------------------------------------------

static void test_skips(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    add_numbered(j.core->table.newest, 1, 11);
    Paramserver__V1__TraceReply *reply = trace_from(j.core, "", 7);
    assert_int_equal(reply->total, 10);
    assert_int_equal(reply->n_waits, 3);
    ps_msg_free(&reply->base);
    reply = trace_from(j.core, "job", 10);
    assert_int_equal(reply->total, 10);
    assert_int_equal(reply->n_waits, 0);
    ps_msg_free(&reply->base);
    psd_core_destroy(j.core);
}

static void test_no_such_job(void **state)
{
    struct job j;
    Paramserver__V1__TraceRequest r = PARAMSERVER__V1__TRACE_REQUEST__INIT;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    r.job = (char *)"other";
    struct answer a = ask(j.core, M(TRACE), &r.base, NULL, NULL, NULL, NULL);
    assert_int_equal(a.code, PS_NOT_FOUND);
    assert_string_equal(a.text, "ps task 0 has no job 'other'");
    psd_core_destroy(j.core);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_first), cmocka_unit_test(test_oldest_goes),
        cmocka_unit_test(test_is_counted),   cmocka_unit_test(test_from_all_threads),
        cmocka_unit_test(test_rounds),       cmocka_unit_test(test_who_does_not_wait),
        cmocka_unit_test(test_departures),   cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_shares),       cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_ends),         cmocka_unit_test(test_skips),
        cmocka_unit_test(test_no_such_job),
    };
    return cmocka_run_group_tests_name("psd trace", tests, NULL, NULL);
}
