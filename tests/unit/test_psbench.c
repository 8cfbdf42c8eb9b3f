// SPDX-License-Identifier: Apache-2.0
//
// What psbench makes of its measurements: medians, quantiles, fractions of limits; and which cases a command line
// means.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/psbench/case.h"
#include "tools/psbench/options.h"
#include "tools/psbench/report.h"
#include "tools/psbench/stats.h"

static void test_spread(void **state)
{
    (void)state;
    double odd[] = {5, 1, 9}, even[] = {4, 8, 1, 2}, unknown[] = {NAN, 7, NAN}, one[] = {3};
    struct spread s = spread_of(odd, 3);
    assert_true(s.median == 5 && s.min == 1 && s.max == 9);
    s = spread_of(even, 4);
    assert_true(s.median == 3 && s.min == 1 && s.max == 8);
    s = spread_of(unknown, 3);
    assert_true(s.median == 7 && s.min == 7 && s.max == 7);
    s = spread_of(one, 1);
    assert_true(s.median == 3);
    s = spread_of(NULL, 0);
    assert_true(isnan(s.median) && isnan(s.min) && isnan(s.max));
}

// Every value is told to within its bucket, on both sides of every power of two.
static void test_histogram_is_exact_enough(void **state)
{
    (void)state;
    struct histogram *h = calloc(1, sizeof *h);
    for (uint64_t power = 1; power < UINT64_C(1) << 41; power *= 2)
        for (int64_t off = -1; off <= 1; off++) {
            uint64_t value = power + (uint64_t)off;
            memset(h, 0, sizeof *h);
            histogram_add(h, value);
            assert_true(fabs(histogram_quantile(h, 0.5) - (double)value) <= 0.008 * (double)value);
        }
    memset(h, 0, sizeof *h);
    histogram_add(h, UINT64_MAX);  // counts as the greatest
    assert_true(histogram_quantile(h, 1) > 4e12);
    free(h);
}

static void test_quantiles(void **state)
{
    (void)state;
    struct histogram *h = calloc(1, sizeof *h), *other = calloc(1, sizeof *other);
    assert_true(isnan(histogram_quantile(h, 0.5)));
    for (uint64_t i = 1; i <= 500; i++) {
        histogram_add(h, 2 * i - 1);
        histogram_add(other, 2 * i);
    }
    histogram_merge(h, other);  // 1 ... 1000
    const double q[] = {0, 0.001, 0.5, 0.99, 0.999, 1}, want[] = {1, 1, 500, 990, 999, 1000};
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        assert_true(fabs(histogram_quantile(h, q[i]) - want[i]) <= 0.008 * want[i]);
    free(other);
    free(h);
}

static void test_size(void **state)
{
    (void)state;
    const struct {
        const char *text;
        uint64_t bytes;  // 0: refused
    } cases[] = {{"4", 4},
                 {"1K", 1024},
                 {"64k", 65536},
                 {"1MiB", 1 << 20},
                 {"3G", UINT64_C(3) << 30},
                 {"1000", 1000},
                 {"0", 0},
                 {"3", 0},
                 {"", 0},
                 {"K", 0},
                 {"1KB", 0},
                 {"4 ", 0},
                 {"-4", 0},
                 {"+4", 0},
                 {"5G", 0},
                 {"1e6", 0},
                 {"1KiBx", 0},
                 {"4294967295G", 0},
                 {"99999999999999999999", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 0;
        bool good = options_size(cases[i].text, &bytes);
        if (good != (cases[i].bytes != 0) || bytes != cases[i].bytes)
            fail_msg("%s: %d, %llu", cases[i].text, good, (unsigned long long)bytes);
    }
}

static struct bench_plan plan_of(uint64_t *sizes, size_t n)
{
    static long workers[] = {2};
    struct bench_plan plan = {.sizes = sizes, .n_sizes = n, .workers = workers, .n_workers = 1, .ps = 3, .repeat = 2};
    plan.transports[BENCH_TCP] = plan.rules[BENCH_SGD] = true;
    return plan;
}

// A case's limit does the same work in the same repetition; what two cases have in common is measured once.
static void test_cases_have_limits(void **state)
{
    (void)state;
    uint64_t sizes[] = {4, 1 << 20};
    struct bench_plan plan = plan_of(sizes, 2);
    struct bench_cases cases;
    plan.commands[BENCH_PUSH] = plan.commands[BENCH_PULL] = plan.rules[BENCH_ADAM] = true;
    bench_cases_make(&cases, &plan);
    assert_int_equal(cases.n, 2 * (2 + 2 + 2 + 1));  // push, pull; their two rules; pushes' limits, pulls' in common
    for (size_t i = 0; i < cases.n; i++) {
        const struct bench_case *c = &cases.v[i], *limit = c->limit;
        assert_int_equal(c->window, bench_window(c->size));
        assert_int_equal(c->workers, 2);
        if (c->target == BENCH_SOCKET) {
            assert_null(limit);
            continue;
        }
        assert_non_null(limit);
        assert_int_equal(limit->target, BENCH_SOCKET);
        assert_int_equal(limit->command, c->command);
        assert_int_equal(limit->size, c->size);
        assert_int_equal(limit->rule, c->command == BENCH_PULL ? BENCH_NOOP : c->rule);
    }
    bench_cases_free(&cases);
}

static void test_cases_without_limits(void **state)
{
    (void)state;
    uint64_t sizes[] = {4, 4};
    struct bench_plan plan = plan_of(sizes, 2);
    struct bench_cases cases;
    plan.commands[BENCH_ASSIGN_ADD] = plan.rules[BENCH_ADAM] = plan.no_limit = true;
    plan.window = 5;
    bench_cases_make(&cases, &plan);
    assert_int_equal(cases.n, 1);  // it has no rule, and the sizes are one
    assert_int_equal(cases.v[0].rule, BENCH_NOOP);
    assert_int_equal(cases.v[0].window, 5);
    assert_null(cases.v[0].limit);
    bench_cases_free(&cases);
}

// An all-reduce's limit is a ring of sockets; there is none where no socket is.
static void test_cases_of_allreduce(void **state)
{
    (void)state;
    uint64_t sizes[] = {4096};
    struct bench_plan plan = plan_of(sizes, 1);
    struct bench_cases cases;
    plan.commands[BENCH_ALLREDUCE] = plan.transports[BENCH_UNIX] = plan.transports[BENCH_SHM] = true;
    bench_cases_make(&cases, &plan);
    assert_int_equal(cases.n, 2 + 2 + 1);
    for (size_t i = 0; i < cases.n; i++) {
        const struct bench_case *c = &cases.v[i], *limit = c->limit;
        assert_int_equal(c->command, BENCH_ALLREDUCE);
        assert_int_equal(c->window, 1);
        if (c->target == BENCH_SOCKET || c->transport == BENCH_SHM) {
            assert_null(limit);
            continue;
        }
        assert_int_equal(limit->target, BENCH_SOCKET);
        assert_int_equal(limit->transport, c->transport);
        assert_int_equal(limit->workers, c->workers);
    }
    bench_cases_free(&cases);
}

static void test_cases_by_workers(void **state)
{
    (void)state;
    uint64_t sizes[] = {4, 8};
    long workers[] = {1, 64};
    struct bench_plan plan = plan_of(sizes, 2);
    struct bench_cases cases;
    plan.commands[BENCH_PUSH] = true;
    plan.workers = workers;
    plan.n_workers = 2;
    bench_cases_make(&cases, &plan);
    assert_int_equal(cases.n, 2 * 2 * 2);
    for (size_t i = 0; i < cases.n; i++) {
        assert_int_equal(cases.v[i].size, sizes[i / 4]);
        assert_int_equal(cases.v[i].workers, workers[i / 2 % 2]);
    }
    bench_cases_free(&cases);
}

static void test_everything_fits(void **state)
{
    (void)state;
    uint64_t sizes[] = {4, 8, 12};
    struct bench_plan plan = plan_of(sizes, 3);
    struct bench_cases cases;
    for (int i = 0; i < BENCH_SAID_COMMANDS; i++)
        plan.commands[i] = true;
    for (int i = 0; i < BENCH_TRANSPORTS; i++)
        plan.transports[i] = true;
    for (int i = 0; i < BENCH_RULES; i++)
        plan.rules[i] = true;
    bench_cases_make(&cases, &plan);
    // psd, over tcp, tls and unix: push, pull, pushpull by three rules, assign_add; sockets, over tcp and unix: push,
    // pushpull by three rules, pull. A ring has a fourth transport, and sockets of its own over those two.
    assert_int_equal(cases.n, 3 * (3 * 10 + 2 * 7 + 4 + 4 + 2));
    bench_cases_free(&cases);
}

// The fraction is the median of the repetitions' own, not the fraction of medians.
static void test_report(void **state)
{
    (void)state;
    struct bench_sample own[] = {
        {1e9, 10, 2e-9, NAN, 100, NAN}, {4e9, 40, 4e-9, NAN, 300, NAN}, {3e9, 30, 6e-9, NAN, 200, NAN}};
    struct bench_sample other[] = {{2e9, 20}, {16e9, 160}, {4e9, 40}};
    struct bench_case limit = {.target = BENCH_SOCKET, .samples = other, .n_samples = 3};
    struct bench_case c = {.samples = own, .n_samples = 3, .limit = &limit, .size = 1000};
    struct report_numbers n;
    histogram_add(&c.latency, 2000);
    report_sum_up(&c, &n);
    assert_true(n.gb_per_s.median == 3 && n.gb_per_s.min == 1 && n.gb_per_s.max == 4);
    assert_true(n.calls_per_s == 30 && n.client_rss == 200 && isnan(n.server_rss) && isnan(n.server_cpu));
    assert_true(fabs(n.client_cpu - 4) < 1e-9);
    assert_true(n.limit_fraction == 0.5);  // of 0.5, 0.25, 0.75
    assert_true(fabs(n.p50_us - 2) < 0.02);
    struct bench_cases cases = {.v = &c, .n = 1};
    json_t *one = report_json(&cases, false);
    assert_true(json_is_object(one));
    assert_true(json_is_null(json_object_get(one, "server_rss_bytes")));
    assert_int_equal(json_integer_value(json_object_get(one, "client_rss_bytes")), 200);
    assert_true(json_real_value(json_object_get(json_object_get(one, "gb_per_s"), "max")) == 4);
    json_decref(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_histogram_is_exact_enough),
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_cases_have_limits),
        cmocka_unit_test(test_cases_without_limits),
        cmocka_unit_test(test_cases_of_allreduce),
        cmocka_unit_test(test_everything_fits),
        cmocka_unit_test(test_cases_by_workers),
        cmocka_unit_test(test_report),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
