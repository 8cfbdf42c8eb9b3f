// SPDX-License-Identifier: Apache-2.0
//
// A worker that dies in the middle of a round and comes back as a later incarnation, as a ps task sees it that is not
// the control task.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "psd/sync/sync.h"
#include "tests/unit/psd_job.h"

#define DEAD PARAMSERVER__V1__MEMBER_STATE__DEAD
#define LIVE PARAMSERVER__V1__MEMBER_STATE__LIVE

// A sync job of two workers on task 1 of 2, which owns "a" and "big" (two blocks).
static void open_at_1(struct job *j)
{
    struct declaring x;
    fill_job(j, 140000);
    j->core = core_new_task(1, 2, 64 << 20);
    j->pa.task = j->pbig.task = 1;
    declare_init(&x, j, SYNC, "sgd");
    struct answer a = ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("declare: %s", a.text);
}

// Both live, worker 1 as said.
static uint64_t send_view(struct psd_core *core, uint64_t epoch, Paramserver__V1__MemberState state,
                          uint64_t incarnation, bool excluded)
{
    Paramserver__V1__SetMembersRequest r = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    Paramserver__V1__Member members[2], *pointers[2];
    ProtobufCMessage *reply = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        paramserver__v1__member__init(pointers[i] = &members[i]);
        members[i].rank = i;
        members[i].state = LIVE;
        members[i].incarnation = 1;
    }
    members[1].state = state;
    members[1].incarnation = incarnation;
    members[1].excluded = members[0].excluded = excluded;
    r.job = (char *)"job";
    r.run = 1;
    r.epoch = epoch;
    r.members = pointers;
    r.n_members = 2;
    struct answer a =
        ask(core, M(SET_MEMBERS), &r.base, NULL, &paramserver__v1__set_members_reply__descriptor, &reply, NULL);
    assert_int_equal(a.code, PS_OK);
    uint64_t open = ((Paramserver__V1__SetMembersReply *)reply)->open_round;
    ps_msg_free(reply);
    return open;
}

static struct answer push_from(struct psd_core *core, uint32_t rank, uint64_t incarnation, uint64_t sequence,
                               const char *name, uint64_t first, uint64_t count, uint64_t round)
{
    struct update u;
    update_init(&u, rank, sequence, name, first, count);
    if (incarnation > 1)
        another_process(&u.caller);
    u.r.round = round;
    return send_update(core, &u, M(PUSH), count, 1, NULL);
}

static struct answer push(struct psd_core *core, uint32_t rank, uint64_t incarnation, uint64_t sequence,
                          const char *name, uint64_t count, uint64_t round)
{
    return push_from(core, rank, incarnation, sequence, name, 0, count, round);
}

// Its gradient is whole in "a": that round closes with it alone when everyone has waited, and the next one is open to
// its next incarnation. Of "big" one block had come, which is forgotten.
static void test_settled(void **state)
{
    struct job j;
    (void)state;
    open_at_1(&j);
    assert_int_equal(push(j.core, 1, 1, 1, "a", 15, 1).code, PS_OK);
    assert_int_equal(push(j.core, 1, 1, 2, "big", 131072, 1).code, PS_OK);
    assert_int_equal(send_view(j.core, 2, DEAD, 1, false), 1);
    assert_int_equal(send_view(j.core, 3, LIVE, 2, true), 1);
    assert_true(send_view(j.core, 4, LIVE, 2, false) == 1);  // of "big"
    assert_true(read_one(j.core, "a") != 0);
    assert_int_equal(push(j.core, 1, 2, 1, "a", 15, 2).code, PS_OK);
    assert_int_equal(push(j.core, 1, 2, 2, "big", 131072, 1).code, PS_OK);
    psd_core_destroy(j.core);
}

// It may not push any more under its old incarnation, once this task has heard of its next one alone.
static void test_fenced(void **state)
{
    struct job j;
    (void)state;
    open_at_1(&j);
    assert_int_equal(push(j.core, 1, 1, 1, "a", 15, 1).code, PS_OK);
    send_view(j.core, 4, LIVE, 2, false);
    struct answer a = push(j.core, 1, 1, 2, "big", 131072, 1);
    assert_int_equal(a.code, PS_ABORTED);
    assert_non_null(strstr(a.text, "taken for dead"));
    assert_int_equal(push(j.core, 1, 2, 2, "big", 131072, 1).code, PS_OK);
    psd_core_destroy(j.core);
}

// What one who stays has brought of a gradient was acknowledged: it is there when the rest of it comes.
static void test_who_stays(void **state)
{
    struct job j;
    (void)state;
    open_at_1(&j);
    send_view(j.core, 2, DEAD, 1, false);
    assert_int_equal(push(j.core, 0, 1, 1, "big", 131072, 1).code, PS_OK);
    send_view(j.core, 3, LIVE, 2, false);
    assert_int_equal(push_from(j.core, 0, 1, 1, "big", 131072, 140000 - 131072, 1).code, PS_OK);
    assert_true(read_one(j.core, "big") == 0);
    assert_int_equal(push(j.core, 1, 2, 1, "big", 140000, 1).code, PS_OK);
    assert_true(read_one(j.core, "big") != 0);
    psd_core_destroy(j.core);
}

// What happens between the check of worker 1's gradient and its turn voids it.
static void expect_stale_after(void (*meanwhile)(struct job *j))
{
    struct job j;
    const struct psd_gradient first = {.rank = 1, .block = 0, .number = 1, .examples = 1, .id = {1, 1, 1}};
    struct ps_slices payload = floats(15, 1);
    open_at_1(&j);
    struct psd_partition *p = &j.core->table.newest->partitions[0];
    struct psd_round *round = p->round;
    struct psd_page *gradient = psd_round_copy(round, 0, &payload, 0);
    Paramserver__V1__Outcome outcome;
    assert_int_equal(psd_round_check(round, "a", &first, &outcome, NULL), PS_OK);
    meanwhile(&j);
    assert_int_equal(psd_round_add(round, 1, &first, &gradient), PARAMSERVER__V1__OUTCOME__STALE);
    assert_int_equal(round->contributions[1].blocks, 0);
    round->busy = false;
    psd_page_unref(gradient);
    ps_slices_clear(&payload);
    psd_core_destroy(j.core);
}

static void worker_1_dies(struct job *j)
{
    send_view(j->core, 2, DEAD, 1, false);
}

// A gradient whose worker is told to be gone between its check and its turn is not queued.
static void test_gone_meanwhile(void **state)
{
    (void)state;
    expect_stale_after(worker_1_dies);
}

static void the_job_is_resumed(struct job *j)
{
    struct declaring x;
    declare_init(&x, j, SYNC, "sgd");
    x.caller.run = 2;
    x.r.on_existing = PARAMSERVER__V1__ON_EXISTING__RESUME;
    assert_int_equal(ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

// A gradient whose run ends between its check and its turn, because the job is resumed, is not counted in the next run.
static void test_resumed_meanwhile(void **state)
{
    (void)state;
    expect_stale_after(the_job_is_resumed);
}

// What has counted in the run before says nothing of what workers train in the next one.
static void test_counts_begin_again(void **state)
{
    struct job j;
    uint64_t counted[2], in_all[2];
    (void)state;
    open_at_1(&j);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(push(j.core, rank, 1, 1, "a", 15, 1).code, PS_OK);
        assert_int_equal(push(j.core, rank, 1, 2, "big", 140000, 1).code, PS_OK);
    }
    psd_rounds_counted(j.core->table.newest, counted, in_all);
    assert_true(in_all[0] == 1 && in_all[1] == 1);
    the_job_is_resumed(&j);
    psd_rounds_counted(j.core->table.newest, counted, in_all);
    assert_true(counted[0] == 0 && counted[1] == 0 && in_all[0] == 0 && in_all[1] == 0);
    psd_core_destroy(j.core);
}

static void the_rounds_end(struct job *j)
{
    struct psd_call *ready = NULL;
    psd_sync_end(j->core->table.newest, &ready);
    assert_null(ready);
}

// A gradient whose job leaves its rounds between its check and its turn is not queued, where nobody would look for it.
static void test_rounds_end_meanwhile(void **state)
{
    (void)state;
    expect_stale_after(the_rounds_end);
}

static void the_rounds_begin_again(struct job *j)
{
    j->core->table.newest->partitions[0].made->busy = true;
    the_rounds_end(j);
    psd_sync_begin(j->core->table.newest, 1);
}

// Nor is one taken while another thread still has the gradients of the rounds before: it would forget this one, too.
static void test_rounds_begin_meanwhile(void **state)
{
    (void)state;
    expect_stale_after(the_rounds_begin_again);
}

// That a run has failed is heard late, when the job goes on as the next one.
static void test_fails_late(void **state)
{
    struct job j;
    (void)state;
    open_at_1(&j);
    struct psd_job *job = psd_job_lookup(&j.core->table, "job");
    assert_true(psd_job_fail(job, 1, "worker 0 is dead"));
    the_job_is_resumed(&j);
    assert_false(psd_job_fail(job, 1, "worker 1 is dead, too"));
    assert_false(psd_job_has_failed(job));
    assert_true(psd_job_fail(job, 2, "it was tested"));
    assert_string_equal(job->failure, "it was tested");
    psd_core_destroy(j.core);
}

// As the control task says.
static void test_interrupted(void **state)
{
    Paramserver__V1__SetMembersRequest r = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    Paramserver__V1__Member members[2], *pointers[2];
    struct job j;
    (void)state;
    open_at_1(&j);
    for (uint32_t i = 0; i < 2; i++) {
        paramserver__v1__member__init(pointers[i] = &members[i]);
        members[i].rank = i;
    }
    r.members = pointers;
    r.n_members = 2;
    r.job = (char *)"job";
    r.run = 1;
    r.epoch = 9;
    r.failure = (char *)"worker 1 was interrupted";
    r.interrupted = true;
    assert_int_equal(ask(j.core, M(SET_MEMBERS), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    struct psd_job *job = psd_job_lookup(&j.core->table, "job");
    assert_true(psd_job_has_failed(job) && atomic_load(&job->interrupted));
    assert_string_equal(job->failure, "worker 1 was interrupted");
    psd_core_destroy(j.core);
}

// Half of an atomic Put to "big" by worker 1's next incarnation; what became of it.
static Paramserver__V1__Outcome put_half(struct psd_core *core, uint64_t first, uint64_t count)
{
    struct update u;
    update_init(&u, 1, 1, "big", first, count);
    another_process(&u.caller);
    u.r.atomic_bytes = 140000 * sizeof(float);
    return update_ok(core, &u, M(PUT), count, 1).outcome;
}

// An earlier list of members, in which its last incarnation is dead, comes late: what the next one has staged stays.
static void test_staged_since(void **state)
{
    struct job j;
    (void)state;
    open_at_1(&j);
    send_view(j.core, 11, LIVE, 2, false);
    assert_int_equal(put_half(j.core, 0, 131072), PARAMSERVER__V1__OUTCOME__STAGED);
    send_view(j.core, 10, DEAD, 1, false);
    assert_int_equal(put_half(j.core, 131072, 140000 - 131072), PARAMSERVER__V1__OUTCOME__APPLIED);
    psd_core_destroy(j.core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settled),
                                       cmocka_unit_test(test_fenced),
                                       cmocka_unit_test(test_who_stays),
                                       cmocka_unit_test(test_gone_meanwhile),
                                       cmocka_unit_test(test_resumed_meanwhile),
                                       cmocka_unit_test(test_fails_late),
                                       cmocka_unit_test(test_rounds_end_meanwhile),
                                       cmocka_unit_test(test_counts_begin_again),
                                       cmocka_unit_test(test_rounds_begin_meanwhile),
                                       cmocka_unit_test(test_interrupted),
                                       cmocka_unit_test(test_staged_since)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
