// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "workerd/strategy/bucket_order.h"

enum { N = 8, MS = 1000000 };

static struct wk_bucket_order order;

static int open_order(void **ctx)
{
    (void)ctx;
    wk_bucket_order_open(&order, N);
    return 0;
}

static int close_order(void **ctx)
{
    (void)ctx;
    wk_bucket_order_close(&order);
    return 0;
}

static void assert_order(const char *expected)
{
    char got[N + 1] = "";
    for (size_t k = 0; k < N; k++)
        got[k] = (char)('0' + order.at[k]);
    assert_string_equal(got, expected);
    assert_int_equal(order.at[order.last], N - 1);
}

// One rank: a bucket is ready every millisecond, each takes so long, and a step computes for 12 ms.
static void set_times(double times[2 * N + 1], double takes)
{
    for (size_t k = 0; k < N; k++) {
        times[k] = (double)(k + 1) * MS;
        times[N + k] = takes * MS;
    }
    times[2 * N] = 12.0 * MS;
}

static void learn(double takes)
{
    double times[2 * N + 1];
    set_times(times, takes);
    wk_bucket_order_learn(&order, times, 1);
}

static void nothing_is_known(void **ctx)
{
    (void)ctx;
    assert_order("01234567");
}

static void a_network_that_keeps_up(void **ctx)
{
    (void)ctx;
    learn(0.9);
    assert_order("01234567");
}

// At 1 ms: 0, until 3.5 ms. Of 1 and 2: 2, until 6. Of 1, 3, 4 and 5: 5, until 8.5. Then all are ready.
static void whenever_the_network_is_free_what_is_needed_first(void **ctx)
{
    (void)ctx;
    learn(2.5);
    assert_order("02576431");
    assert_int_equal(order.last, 3);
}

// To 2.2 ms: 0, to 3.4: 1, to 4.6: 2, to 5.8: 3, to 7: 4. Then 6 would be there 0.2 ms after 7 is ready.
static void where_computing_takes_longer_the_last_one_waits_for_no_other(void **ctx)
{
    (void)ctx;
    learn(1.2);
    assert_order("01234765");
}

// 6 and 7 are ready at once, and the network is a little slow: what would overlap is next to nothing.
static void not_worth_a_copy(void **ctx)
{
    (void)ctx;
    double times[2 * N + 1];
    set_times(times, 0.3);
    times[6] = times[7];
    wk_bucket_order_learn(&order, times, 1);
    assert_order("01234567");
    wk_bucket_order_reset(&order);
    times[N + 6] = 0.4 * MS;
    wk_bucket_order_learn(&order, times, 1);
    assert_order("01234576");
}

// Each rank waits for the other one in half of the sums; rank 0 computes much faster.
static void the_slowest_rank_computes_and_the_fastest_sum_counts(void **ctx)
{
    (void)ctx;
    double times[2][2 * N + 1];
    for (size_t rank = 0; rank < 2; rank++) {
        for (size_t k = 0; k < N; k++) {
            times[rank][k] = (double)(k + 1) * (rank ? MS : MS / 10);
            times[rank][N + k] = k % 2 == rank ? 1.2 * MS : 9 * MS;
        }
        times[rank][2 * N] = rank ? 12.0 * MS : 1.2 * MS;
    }
    wk_bucket_order_learn(&order, times[0], 2);
    assert_order("01234765");
}

static void one_slow_step_changes_no_order(void **ctx)
{
    (void)ctx;
    for (int i = 0; i < 4; i++)
        learn(0.5);
    learn(1.4);  // 0.95 on the average
    assert_order("01234567");
    for (int i = 0; i < 8; i++)
        learn(2.6);
    assert_order("02576431");
    wk_bucket_order_reset(&order);
    assert_order("01234567");
    assert_int_equal(order.last, N - 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_order, close_order)
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_known),
        TEST(a_network_that_keeps_up),
        TEST(whenever_the_network_is_free_what_is_needed_first),
        TEST(where_computing_takes_longer_the_last_one_waits_for_no_other),
        TEST(not_worth_a_copy),
        TEST(the_slowest_rank_computes_and_the_fastest_sum_counts),
        TEST(one_slow_step_changes_no_order),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
