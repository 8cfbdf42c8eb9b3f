// SPDX-License-Identifier: Apache-2.0
//
// When a training whose others are lost begins anew, and when it gives up (workerd/job/recovery.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "workerd/job/recovery.h"

// A worker that had come in, trained, and could begin anew.
static const struct wk_ended trained = {
    .recovers = true, .opened = true, .trained = true, .checkpoint = 40, .patience = 60 * PS_SECOND};

static bool begins(struct wk_recovery *r, struct wk_ended ended, enum ps_code code, uint64_t seconds)
{
    struct ps_error e = {code, "ps task 1 is lost"};
    return wk_recovery_begins(r, &ended, seconds * PS_SECOND, &e);
}

static void who_lost_others_begins_anew(void **state)
{
    struct wk_recovery r = {0};
    (void)state;
    assert_true(begins(&r, trained, PS_ABORTED, 100));
    assert_true(begins(&r, trained, PS_UNAVAILABLE, 101));
}

static void own_errors_are_final(void **state)
{
    static const enum ps_code own[] = {PS_INVALID_ARGUMENT, PS_NOT_FOUND,    PS_FAILED_PRECONDITION,
                                       PS_INTERNAL,         PS_CANNOT_WRITE, PS_ALREADY_EXISTS,
                                       PS_CANCELLED};
    (void)state;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct wk_recovery r = {0};
        assert_false(begins(&r, trained, own[i], 100));
        assert_true(begins(&r, trained, PS_ABORTED, 101));
        assert_false(begins(&r, trained, own[i], 102));
    }
}

// A disk that cannot be read for a moment: others go on without it, and whoever started it may do so again.
static void own_data_are_no_loss_of_others(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = trained;
    (void)state;
    ended.data_lost = true;
    assert_false(begins(&r, ended, PS_UNAVAILABLE, 100));
}

// Whatever it went on from, and when: the next one is another.
static void a_lost_checkpoint_is_passed_over(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = {.recovers = true, .opened = true, .lost = true, .patience = 60 * PS_SECOND};
    (void)state;
    assert_true(begins(&r, ended, PS_DATA_LOSS, 100));
    assert_true(begins(&r, ended, PS_DATA_LOSS, 101));
    ended.lost = false;
    assert_false(begins(&r, ended, PS_DATA_LOSS, 102));
}

static void a_job_without_backups_does_not_begin_anew(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = trained;
    (void)state;
    ended.recovers = false;
    assert_false(begins(&r, ended, PS_ABORTED, 100));
}

static void a_cluster_that_was_never_there_is_final(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = trained;
    (void)state;
    ended.opened = ended.trained = false;
    assert_false(begins(&r, ended, PS_UNAVAILABLE, 100));
}

// Others may have found another checkpoint, or the run that has ended may still have this rank.
// One that is lost while the others begin anew.
static void a_second_loss_is_no_end(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = trained;
    (void)state;
    assert_true(begins(&r, ended, PS_ABORTED, 100));
    ended.opened = ended.trained = false;
    assert_true(begins(&r, ended, PS_UNAVAILABLE, 110));
}

// A worker that was just started, too.
static void a_file_that_is_outdated_is_looked_for_anew(void **state)
{
    static const enum ps_code codes[] = {PS_FAILED_PRECONDITION, PS_NOT_FOUND};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct wk_recovery r = {0};
        struct wk_ended ended = {.recovers = true, .outdated = true, .patience = 60 * PS_SECOND};
        assert_true(begins(&r, ended, codes[i], 100));
        assert_false(begins(&r, ended, codes[i], 161));
    }
}

static void after_a_loss_others_may_be_elsewhere(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = trained;
    (void)state;
    ended.trained = false;
    assert_false(begins(&r, ended, PS_FAILED_PRECONDITION, 99));
    assert_true(begins(&r, ended, PS_ABORTED, 100));
    assert_true(begins(&r, ended, PS_FAILED_PRECONDITION, 101));
    assert_true(begins(&r, ended, PS_ALREADY_EXISTS, 102));
    ended.trained = true;
    assert_false(begins(&r, ended, PS_FAILED_PRECONDITION, 103));
}

static void waits_as_long_as_the_timeout(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = trained;
    struct ps_error e = {PS_ABORTED, "ps task 1 is lost"};
    (void)state;
    assert_true(begins(&r, ended, PS_ABORTED, 100));
    ended.trained = false;
    assert_true(begins(&r, ended, PS_ABORTED, 130));
    assert_true(begins(&r, ended, PS_ABORTED, 160));
    assert_false(wk_recovery_begins(&r, &ended, 161 * PS_SECOND, &e));
    assert_int_equal(e.code, PS_ABORTED);
    assert_string_equal(e.text, "the training has not gone on for 61 s: ps task 1 is lost");
}

static void a_step_begins_the_wait_anew(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = trained;
    (void)state;
    assert_true(begins(&r, ended, PS_ABORTED, 100));
    assert_true(begins(&r, ended, PS_ABORTED, 1000));
    ended.trained = false;
    assert_true(begins(&r, ended, PS_ABORTED, 1060));
}

static void the_same_way_to_the_same_end_is_no_accident(void **state)
{
    struct wk_recovery r = {0};
    struct wk_ended ended = trained;
    struct ps_error e = {PS_UNAVAILABLE, "ps task 1 is lost"};
    (void)state;
    for (int i = 0; i < WK_RECOVERY_ENDS; i++)
        assert_true(begins(&r, ended, PS_ABORTED, 100));
    ended.checkpoint = 60;  // it has got further
    for (int i = 0; i < WK_RECOVERY_ENDS; i++)
        assert_true(begins(&r, ended, PS_ABORTED, 100));
    assert_false(wk_recovery_begins(&r, &ended, 100 * PS_SECOND, &e));
    assert_int_equal(e.code, PS_INTERNAL);
    assert_string_equal(e.text, "the training has ended early 11 times on its way from step 60: ps task 1 is lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_lost_others_begins_anew),
        cmocka_unit_test(own_errors_are_final),
        cmocka_unit_test(own_data_are_no_loss_of_others),
        cmocka_unit_test(a_job_without_backups_does_not_begin_anew),
        cmocka_unit_test(a_lost_checkpoint_is_passed_over),
        cmocka_unit_test(a_cluster_that_was_never_there_is_final),
        cmocka_unit_test(a_second_loss_is_no_end),
        cmocka_unit_test(a_file_that_is_outdated_is_looked_for_anew),
        cmocka_unit_test(after_a_loss_others_may_be_elsewhere),
        cmocka_unit_test(waits_as_long_as_the_timeout),
        cmocka_unit_test(a_step_begins_the_wait_anew),
        cmocka_unit_test(the_same_way_to_the_same_end_is_no_accident),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
