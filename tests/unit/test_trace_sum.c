// SPDX-License-Identifier: Apache-2.0
//
// What waits come to: rows of one kind, whom most of the time went to, and the sentence that says who made others wait.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tools/psctl/trace.h"

enum { WAITS_MAX = 16 };

static struct trace_wait waits[WAITS_MAX];
static Paramserver__V1__PastWait pasts[WAITS_MAX];
static struct trace trace = {.v = waits};

static int forget(void **state)
{
    (void)state;
    trace.n = 0;
    return 0;
}

// A worker (rank) waits at a ps task from one time (ms) to another, for a worker (rank; -1: for none).
static Paramserver__V1__PastWait *wait_at(size_t task, uint32_t who, uint64_t from, uint64_t to, int whom)
{
    Paramserver__V1__PastWait *past = &pasts[trace.n];
    paramserver__v1__past_wait__init(past);
    past->job = (char *)"net";
    past->method = PARAMSERVER__V1__METHOD__PULL;
    past->kind = PARAMSERVER__V1__WAIT_KIND__FOR_ROUND;
    past->worker = who + 1;
    past->whom = (uint32_t)(whom + 1);
    waits[trace.n++] = (struct trace_wait){task, past, TRACE_NOW + from * PS_MS, TRACE_NOW + to * PS_MS};
    return past;
}

static void assert_rows(const char *expected)
{
    struct table t;
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    table_init(&t, trace_sum_columns, trace_sum_n_columns);
    trace_sum_fill(&t, &trace);
    table_print_within(&t, 0, to);
    fclose(to);
    assert_string_equal(text, expected);
    free(text);
    table_fini(&t);
}

static void assert_said(const char *expected)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    trace_sum_say(&trace, to);
    fclose(to);
    assert_string_equal(text, expected);
    free(text);
}

// In any order, with as many for another worker that took less time.
static void test_one_row(void **state)
{
    (void)state;
    wait_at(0, 0, 300, 340, 1);
    wait_at(0, 0, 0, 10, 2);
    wait_at(0, 0, 100, 150, 1);
    wait_at(0, 0, 200, 230, 2);
    wait_at(0, 0, 980, 1000, -1);
    assert_rows("ps  job  who       call  waited for  times   total  median  longest  of the time  of whom    share\n"
                " 0  net  worker 0  PULL  round           5  150 ms   30 ms    50 ms       15.0 %  worker 1  60.0 %\n");
    assert_said("job net: worker 1 made others wait: worker 0 9 % of 1.0 s\n");
}

// Another ps task, job, caller, method or kind is another row; those that took longest are first.
static void test_rows(void **state)
{
    (void)state;
    wait_at(0, 0, 0, 10, 1);
    wait_at(1, 0, 0, 20, 1);
    wait_at(0, 2, 0, 30, 1);
    wait_at(0, 0, 0, 40, -1)->method = PARAMSERVER__V1__METHOD__PUSH_PULL;
    wait_at(0, 0, 0, 50, 1)->kind = PARAMSERVER__V1__WAIT_KIND__FOR_CLOCK;
    wait_at(0, 0, 0, 60, 1)->job = (char *)"other";
    assert_rows(
        "ps  job    who       call       waited for  times  total  median  longest  of the time  of whom     share\n"
        " 0  other  worker 0  PULL       round           1  60 ms   60 ms    60 ms      100.0 %  worker 1  100.0 %\n"
        " 0  net    worker 0  PULL       clock           1  50 ms   50 ms    50 ms      100.0 %  worker 1  100.0 %\n"
        " 0  net    worker 0  PUSH_PULL  round           1  40 ms   40 ms    40 ms       80.0 %  -               -\n"
        " 0  net    worker 2  PULL       round           1  30 ms   30 ms    30 ms       60.0 %  worker 1  100.0 %\n"
        " 1  net    worker 0  PULL       round           1  20 ms   20 ms    20 ms      100.0 %  worker 1  100.0 %\n"
        " 0  net    worker 0  PULL       round           1  10 ms   10 ms    10 ms       20.0 %  worker 1  100.0 %\n");
}

// Waits of one worker at the same time, as at two ps tasks, are no more than that time.
static void test_at_the_same_time(void **state)
{
    (void)state;
    wait_at(0, 0, 0, 100, 1);
    wait_at(1, 0, 50, 150, 1);
    wait_at(1, 0, 60, 90, 1);
    wait_at(0, 0, 190, 200, 1);
    assert_said("job net: worker 1 made others wait: worker 0 80 % of 200 ms\n");
}

// For whom all others have waited longest; of these the three that have waited longest.
static void test_who_makes_others_wait(void **state)
{
    (void)state;
    wait_at(0, 0, 0, 600, 9);
    for (uint32_t who = 1; who < 5; who++)
        wait_at(0, who, 0, 200 + 10 * who, 7);
    wait_at(0, 5, 900, 1000, 7);
    assert_said("job net: worker 7 made others wait: worker 4 24 %, worker 3 23 %, worker 2 22 % of 1.0 s\n");
}

// Whoever is known goes before what nobody is known of.
static void test_nobody_is_known(void **state)
{
    (void)state;
    wait_at(0, 0, 0, 100, -1);
    wait_at(0, 0, 150, 200, -1);
    assert_said("job net: worker 0 75 % of 200 ms waited, for no worker\n");
    wait_at(0, 0, 120, 130, 3);
    assert_said("job net: worker 3 made others wait: worker 0 5 % of 200 ms\n");
    wait_at(0, 0, 0, 10, 2)->job = (char *)"another";
    assert_said("job another: worker 2 made others wait: worker 0 100 % of 10 ms\n"
                "job net: worker 3 made others wait: worker 0 5 % of 200 ms\n");
}

static void test_nothing(void **state)
{
    (void)state;
    assert_rows("");
    assert_said("");
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_one_row, forget),
        cmocka_unit_test_setup(test_rows, forget),
        cmocka_unit_test_setup(test_at_the_same_time, forget),
        cmocka_unit_test_setup(test_who_makes_others_wait, forget),
        cmocka_unit_test_setup(test_nobody_is_known, forget),
        cmocka_unit_test_setup(test_nothing, forget),
    };
    return cmocka_run_group_tests_name("trace sum", tests, NULL, NULL);
}
