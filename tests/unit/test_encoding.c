// SPDX-License-Identifier: Apache-2.0
//
// Gradients in fewer bytes: what comes back of them, what is kept of what does not, and that no cut changes a bit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "common/math/encoding.h"
#include "common/wire/dtype.h"

enum { N = 1003, SCALES = 8 * sizeof(float) };

struct wire {
    uint8_t scales[SCALES], numbers[2 * N];
};

static float value(int i)
{
    return sinf((float)i * 1.7f) * (float)(1 << i % 11);
}

static void fill(float *x, float *residual)
{
    for (int i = 0; i < N; i++) {
        x[i] = value(i);
        residual[i] = 0;
    }
}

static void test_halves(void **state)
{
    struct wire w;
    float x[N], residual[N], back[N];
    (void)state;
    fill(x, residual);
    ps_encoding_write(PS_BFLOAT16, 0, N, x, residual, w.scales, w.numbers);
    ps_encoding_read(PS_BFLOAT16, 0, N, w.scales, w.numbers, back);
    for (int i = 0; i < N; i++) {
        assert_true(fabsf(back[i] - x[i]) <= ldexpf(fabsf(x[i]), -8));
        assert_true(back[i] + residual[i] == x[i]);
    }
    assert_int_equal(ps_encoding_scales(PS_BFLOAT16, 0, N) + ps_encoding_numbers(PS_BFLOAT16, N), 2 * N);
}

// The greatest of a group comes back whole, the others within half a scale.
static void test_bytes(void **state)
{
    struct wire w;
    float x[N], residual[N], back[N];
    (void)state;
    fill(x, residual);
    ps_encoding_write(PS_SCALED_INT8, 0, N, x, residual, w.scales, w.numbers);
    ps_encoding_read(PS_SCALED_INT8, 0, N, w.scales, w.numbers, back);
    for (int first = 0; first < N; first += PS_ENCODING_GROUP) {
        float scale;
        memcpy(&scale, w.scales + first / PS_ENCODING_GROUP * (int)sizeof scale, sizeof scale);
        for (int i = first; i < N && i < first + PS_ENCODING_GROUP; i++) {
            assert_true(fabsf(x[i]) <= scale * 127.001f);
            assert_true(fabsf(back[i] - x[i]) <= scale * 0.5001f);
            assert_true(fabsf(back[i] + residual[i] - x[i]) <= scale * 1e-5f);
        }
    }
    assert_int_equal(ps_encoding_scales(PS_SCALED_INT8, 0, N), 4 * sizeof(float));
    assert_int_equal(ps_encoding_scales(PS_SCALED_INT8, 255, 2), 2 * sizeof(float));
    assert_int_equal(ps_encoding_scales(PS_SCALED_INT8, 256, 256), sizeof(float));
}

// What is lost comes with the next ones: the sum of many is that of the gradients, to one quantum.
static void test_feedback(void **state)
{
    static const int dtypes[] = {PS_BFLOAT16, PS_SCALED_INT8};
    enum { TIMES = 100 };
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        struct wire w;
        float x[N], residual[N], back[N];
        double sum[N] = {0};
        fill(x, residual);
        for (int k = 0; k < TIMES; k++) {
            ps_encoding_write(dtypes[d], 0, N, x, residual, w.scales, w.numbers);
            ps_encoding_read(dtypes[d], 0, N, w.scales, w.numbers, back);
            for (int i = 0; i < N; i++)
                sum[i] += (double)back[i];
        }
        for (int i = 0; i < N; i++)
            assert_true(fabs(sum[i] - TIMES * (double)x[i]) <= 1024.0 / 127);
    }
}

// Two ranges that meet within a group, each with the scale that the whole tensor has given it.
static void test_cut(void **state)
{
    enum { FIRST = 100, CUT = 300 };
    struct wire w;
    float x[N], residual[N], whole[N], parts[N];
    (void)state;
    fill(x, residual);
    ps_encoding_write(PS_SCALED_INT8, FIRST, N, x, residual, w.scales, w.numbers);
    ps_encoding_read(PS_SCALED_INT8, FIRST, N, w.scales, w.numbers, whole);
    ps_encoding_read(PS_SCALED_INT8, FIRST, CUT, w.scales, w.numbers, parts);
    const size_t group = (FIRST + CUT) / PS_ENCODING_GROUP - FIRST / PS_ENCODING_GROUP;
    ps_encoding_read(PS_SCALED_INT8, FIRST + CUT, N - CUT, w.scales + group * sizeof(float), w.numbers + CUT,
                     parts + CUT);
    assert_memory_equal(whole, parts, sizeof whole);
}

static void test_odd_numbers(void **state)
{
    static const int dtypes[] = {PS_BFLOAT16, PS_SCALED_INT8};
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (size_t k = 0; k < 3; k++) {
            struct wire w;
            float x[N], residual[N], back[N];
            fill(x, residual);
            x[300] = odd[k];
            ps_encoding_write(dtypes[d], 0, N, x, residual, w.scales, w.numbers);
            ps_encoding_read(dtypes[d], 0, N, w.scales, w.numbers, back);
            assert_false(isfinite(back[300]));
            for (int i = 0; i < N; i++)
                assert_true(isfinite(residual[i]));
            assert_true(isfinite(back[0]) && isfinite(back[N - 1]));
        }
}

static void test_small_numbers(void **state)
{
    struct wire w;
    float x[N], residual[N], back[N];
    (void)state;
    fill(x, residual);
    for (int i = 0; i < N; i++)
        x[i] = i < 256 ? 0 : ldexpf((float)(i % 190), -149);  // 190 of the smallest there is
    ps_encoding_write(PS_SCALED_INT8, 0, N, x, residual, w.scales, w.numbers);
    ps_encoding_read(PS_SCALED_INT8, 0, N, w.scales, w.numbers, back);
    for (int i = 0; i < N; i++)
        assert_true(back[i] + residual[i] == x[i]);
}

// What it says before is what comes back.
static void test_nonfinite_first(void **state)
{
    const float most = 3.40282347e38f, half_most = 3.3895314e38f;  // of floats, of bfloat16
    const float x[] = {most, -most, half_most, -half_most, 3.396e38f, 3.3962e38f, 0, INFINITY, NAN, 2e38f, 2e38f};
    const float residual[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1.5e38f, 1e38f};
    const int dtypes[] = {PS_BFLOAT16, PS_SCALED_INT8};
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
            struct wire w;
            float kept = residual[i], back;
            const size_t first = ps_encoding_nonfinite_first(dtypes[d], 1, &x[i], &residual[i]);
            ps_encoding_write(dtypes[d], 0, 1, &x[i], &kept, w.scales, w.numbers);
            ps_encoding_read(dtypes[d], 0, 1, w.scales, w.numbers, &back);
            assert_int_equal(first, isfinite(back) ? 1 : 0);
        }
    assert_int_equal(ps_encoding_nonfinite_first(PS_BFLOAT16, 11, x, residual), 0);
    assert_int_equal(ps_encoding_nonfinite_first(PS_SCALED_INT8, 9, x + 2, residual + 2), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves),          cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_feedback),        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_odd_numbers),     cmocka_unit_test(test_small_numbers),
        cmocka_unit_test(test_nonfinite_first),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
