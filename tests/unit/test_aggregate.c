// SPDX-License-Identifier: Apache-2.0
//
// The rank-ordered mean: its order decides the bits, nothing else does.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "common/math/aggregate.h"

enum { N = 1003 };  // no multiple of a vector

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void aggregate_in_order(const int *order, int n, const uint64_t *examples, float (*g)[N], float *mean)
{
    float sum[N];
    uint64_t total = 0;
    for (int k = 0; k < n; k++) {
        if (k == 0)
            ps_aggregate_begin(N, examples[order[k]], g[order[k]], sum);
        else
            ps_aggregate_add(N, examples[order[k]], g[order[k]], sum);
        total += examples[order[k]];
    }
    ps_aggregate_mean(N, total, sum, mean);
}

static void fill_gradients(float (*g)[N], int n)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < N; i++)
            g[k][i] = sinf((float)(k * 7919 + i)) * (float)(1 << (i + k) % 17);
}

// Floats at 1e8 are 8 apart: 3 x 1 is lost where it is added to that, and is all that is left where it comes last.
static void test_order(void **state)
{
    static const int up[] = {0, 1, 2}, down[] = {2, 0, 1};
    const uint64_t examples[] = {1, 3, 1};
    float g[3][N], one[N], other[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        g[0][i] = 1e8f;
        g[1][i] = 1;
        g[2][i] = -1e8f;
    }
    aggregate_in_order(up, 3, examples, g, one);
    aggregate_in_order(down, 3, examples, g, other);
    for (int i = 0; i < N; i++)
        assert_true(one[i] == 0 && other[i] == 3.0f / 5);
    fill_gradients(g, 3);
    aggregate_in_order(up, 3, examples, g, one);
    aggregate_in_order(up, 3, examples, g, other);
    assert_memory_equal(one, other, sizeof one);
}

// The formula as it is written down, one element at a time, each operation rounded to float.
static void test_formula(void **state)
{
    static const int order[] = {0, 1, 2, 3};
    const uint64_t examples[] = {3, 1, 64, 7};
    float g[4][N], mean[N];
    (void)state;
    fill_gradients(g, 4);
    aggregate_in_order(order, 4, examples, g, mean);
    for (int i = 0; i < N; i++) {
        volatile float sum = 0;
        for (int k = 0; k < 4; k++) {
            volatile float product = (float)examples[k] * g[k][i];
            sum = sum + product;
        }
        volatile float expected = sum / 75.0f;
        assert_int_equal(bits_of(mean[i]), bits_of(expected));
    }
}

// 4097 x 4097 = 2^24 + 2^13 + 1 needs 25 bits. Rounded it loses the 1; a fused multiply-add keeps it until the end.
static void test_not_contracted(void **state)
{
    float g[N], sum[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        g[i] = 4097;
        sum[i] = -16785408;
    }
    ps_aggregate_add(N, 4097, g, sum);
    for (int i = 0; i < N; i++)
        assert_int_equal(bits_of(sum[i]), 0);
}

// In place; and -0 as a sum that starts at zero leaves it.
static void test_in_place(void **state)
{
    float g[2][N], sum[N];
    (void)state;
    fill_gradients(g, 2);
    g[0][5] = -0.0f;
    ps_aggregate_begin(N, 3, g[0], sum);
    ps_aggregate_begin(N, 3, g[0], g[0]);
    assert_memory_equal(sum, g[0], sizeof sum);
    assert_int_equal(bits_of(sum[5]), 0);
    ps_aggregate_mean(N, 3, g[0], sum);
    ps_aggregate_mean(N, 3, g[0], g[0]);
    assert_memory_equal(sum, g[0], sizeof sum);
}

// The greatest counts that are taken, of as many contributors as a job may have.
static void test_big_counts(void **state)
{
    float g[N], sum[N];
    uint64_t total = 0;
    (void)state;
    for (int i = 0; i < N; i++)
        g[i] = 0.5f;
    for (int k = 0; k < 1 << 16; k++)
        total += PS_EXAMPLES_MAX;
    assert_true(total == UINT64_C(1) << 56);
    ps_aggregate_begin(N, PS_EXAMPLES_MAX, g, sum);
    for (int k = 1; k < 1 << 10; k++)
        ps_aggregate_add(N, PS_EXAMPLES_MAX, g, sum);
    ps_aggregate_mean(N, PS_EXAMPLES_MAX << 10, sum, sum);
    assert_true(sum[0] == 0.5f && sum[N - 1] == 0.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_formula),
                                       cmocka_unit_test(test_not_contracted), cmocka_unit_test(test_in_place),
                                       cmocka_unit_test(test_big_counts)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
