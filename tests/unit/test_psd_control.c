// SPDX-License-Identifier: Apache-2.0
//
// The control task and the rounds that follow its membership: who is waited for, what comes back, what a late message
// may not undo.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "common/clock.h"
#include "psd/service.h"
#include "tests/unit/psd_job.h"

// ---- who is waited for --------------------------------------------------------------------------------------------

static void test_silence_is_death(void **state)
{
    struct job j;
    struct update u;
    struct answer barrier;
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    r.name = (char *)"here";
    test_time += 2 * PS_SECOND;
    ask_later(j.core, &barrier, M(BARRIER), &r.base, NULL, UINT64_MAX);
    update_init(&u, 0, 2, "a", 0, 15);
    u.r.round = 1;
    assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 100, NULL).code, PS_OK);
    psd_core_tick(j.core);
    assert_false(barrier.answered);
    assert_true(read_one(j.core, "a") == 0);
    test_time += 2 * PS_SECOND;
    psd_core_tick(j.core);
    assert_true(barrier.answered && barrier.code == PS_OK);
    assert_true(read_one(j.core, "a") == -1);
    ps_rope_clear(&barrier.body);
    psd_core_destroy(j.core);
}

// A call that waits past its deadline says for whom.
static void test_waits_for_whom(void **state)
{
    struct job j;
    struct answer barrier;
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    r.name = (char *)"here";
    ask_later(j.core, &barrier, M(BARRIER), &r.base, NULL, test_time + PS_SECOND);
    test_time += 2 * PS_SECOND;
    psd_core_tick(j.core);
    assert_true(barrier.answered);
    assert_int_equal(barrier.code, PS_DEADLINE_EXCEEDED);
    assert_non_null(strstr(barrier.text, "waited 2.0 s for the barrier, for worker 1 (live"));
    psd_core_destroy(j.core);
}

// ---- barriers -----------------------------------------------------------------------------------------------------

static void barrier(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence, const char *name,
                    uint64_t deadline)
{
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    r.caller = &caller;
    r.name = (char *)name;
    ask_later(core, a, M(BARRIER), &r.base, NULL, deadline);
}

static void assert_passed(struct answer *a)
{
    assert_true(a->answered);
    assert_int_equal(a->code, PS_OK);
    ps_rope_clear(&a->body);
}

// A copy of a barrier's message that arrives when its caller is in a later barrier does not take it out of that.
static void test_late_barrier(void **state)
{
    struct job j;
    struct answer first, copy, second, other;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    barrier(j.core, &first, 0, 5, "one", test_time + PS_SECOND);
    test_time += 2 * PS_SECOND;
    psd_core_tick(j.core);
    assert_int_equal(first.code, PS_DEADLINE_EXCEEDED);
    barrier(j.core, &second, 0, 6, "two", UINT64_MAX);
    assert_false(second.answered);
    barrier(j.core, &copy, 0, 5, "one", UINT64_MAX);
    assert_int_equal(copy.code, PS_ABORTED);
    barrier(j.core, &other, 1, 1, "two", UINT64_MAX);
    assert_passed(&second);
    assert_passed(&other);
    psd_core_destroy(j.core);
}

// A member that leaves does not hold up those who wait.
static void test_leave_opens_barrier(void **state)
{
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    barrier(j.core, &a, 0, 1, "here", UINT64_MAX);
    assert_false(a.answered);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    assert_passed(&a);
    psd_core_destroy(j.core);
}

// ---- leases -------------------------------------------------------------------------------------------------------

static void lease(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence, uint64_t epoch)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    r.caller = &caller;
    r.epoch = epoch;
    r.examples = 100;
    r.want = 30;
    ask_later(core, a, M(LEASE), &r.base, NULL, UINT64_MAX);
}

static void assert_lease(struct answer *a, uint64_t first, uint64_t count)
{
    ProtobufCMessage *m = NULL;
    struct ps_rope none = PS_ROPE_EMPTY;
    assert_true(a->answered);
    assert_int_equal(a->code, PS_OK);
    assert_int_equal(ps_msg_unpack(&paramserver__v1__lease_reply__descriptor, &a->body, &m, &none, NULL), PS_OK);
    assert_int_equal(((Paramserver__V1__LeaseReply *)m)->first, first);
    assert_int_equal(((Paramserver__V1__LeaseReply *)m)->count, count);
    ps_msg_free(m);
    ps_rope_clear(&a->body);
}

// An epoch is one joint pass: retries get the same range, a dead worker's comes back, who is first waits for the rest.
static void test_leases(void **state)
{
    struct job j;
    struct answer a, b;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    lease(j.core, &a, 0, 1, 0);
    assert_lease(&a, 0, 30);
    lease(j.core, &a, 0, 1, 0);
    assert_lease(&a, 0, 30);
    lease(j.core, &b, 1, 1, 0);
    assert_lease(&b, 30, 30);
    lease(j.core, &a, 0, 2, 0);
    assert_lease(&a, 60, 30);
    lease(j.core, &a, 0, 3, 0);
    assert_lease(&a, 90, 10);
    test_time += 2 * PS_SECOND;
    lease(j.core, &a, 0, 4, 0);
    assert_false(a.answered);
    test_time += 2 * PS_SECOND;
    psd_core_tick(j.core);
    assert_lease(&a, 30, 30);
    lease(j.core, &a, 0, 5, 0);
    assert_lease(&a, 0, 0);
    lease(j.core, &a, 0, 6, 1);
    assert_lease(&a, 0, 30);
    psd_core_destroy(j.core);
}

// A copy of a lease's message that arrives after the next lease takes nothing and reports nothing as done.
static void test_late_lease(void **state)
{
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    lease(j.core, &a, 0, 1, 0);
    assert_lease(&a, 0, 30);
    lease(j.core, &a, 0, 2, 0);
    assert_lease(&a, 30, 30);
    lease(j.core, &a, 0, 1, 0);
    assert_int_equal(a.code, PS_ABORTED);
    lease(j.core, &a, 0, 2, 0);
    assert_lease(&a, 30, 30);
    psd_core_destroy(j.core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silence_is_death), cmocka_unit_test(test_waits_for_whom),
        cmocka_unit_test(test_late_barrier),     cmocka_unit_test(test_leave_opens_barrier),
        cmocka_unit_test(test_leases),           cmocka_unit_test(test_late_lease),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
