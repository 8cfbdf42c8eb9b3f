// SPDX-License-Identifier: Apache-2.0
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/math/elementary.h"
#include "common/math/schedule.h"
#include "tests/golden/schedules.h"

// ---- the rate -----------------------------------------------------------------------------------------------------

// Keras computes in float.
static void follows_keras(void **ctx)
{
    (void)ctx;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
        for (size_t k = 0; k < golden[i].n; k++) {
            const struct golden *c = &golden[i];
            double rate = ps_schedule_rate(&c->schedule, c->step[k]), off = fabs(rate - c->rate[k]);
            assert_int_equal(PS_OK, ps_schedule_check(&c->schedule, NULL));
            if (!(off <= 2e-6 * c->rate[k] + 2e-8 * c->schedule.initial))
                fail_msg("case %zu, step %llu: %.9g, Keras has %.9g", i, (unsigned long long)c->step[k], rate,
                         c->rate[k]);
        }
}

static void same(double expected, double got)
{
    if (expected < got || expected > got || isnan(got))
        fail_msg("%.17g is not %.17g", got, expected);
}

// The schedule's own steps begin where the warm-up ends.
static void warms_up(void **ctx)
{
    (void)ctx;
    struct ps_schedule s = {.kind = PS_CONSTANT, .initial = 1, .warmup_steps = 4, .warmup_initial = 0.5};
    const double constant[] = {0.5, 0.625, 0.75, 0.875, 1, 1};
    for (uint64_t step = 0; step < 6; step++)
        same(constant[step], ps_schedule_rate(&s, step));
    s = (struct ps_schedule){.kind = PS_PIECEWISE, .n_boundaries = 1, .boundary = {1}, .value = {8, 2}};
    s.warmup_steps = 2;
    const double piecewise[] = {0, 4, 8, 8, 2, 2};
    for (uint64_t step = 0; step < 6; step++)
        same(piecewise[step], ps_schedule_rate(&s, step));
    s = (struct ps_schedule){.kind = PS_EXPONENTIAL, .initial = 1, .decay_steps = 1, .decay_rate = 0.5};
    s.warmup_steps = 1;
    s.warmup_initial = 2;  // down
    const double exponential[] = {2, 1, 0.5, 0.25};
    for (uint64_t step = 0; step < 4; step++)
        assert_true(fabs(exponential[step] - ps_schedule_rate(&s, step)) < 1e-15);
}

static void edges(void **ctx)
{
    (void)ctx;
    struct ps_schedule s = {.kind = PS_COSINE, .initial = 0.1, .decay_steps = 1000};
    same(0.1, ps_schedule_rate(&s, 0));
    same(0, ps_schedule_rate(&s, 1000));
    same(0, ps_schedule_rate(&s, UINT64_MAX));
    s.alpha = 1;
    same(0.1, ps_schedule_rate(&s, 400));
    s = (struct ps_schedule){.kind = PS_EXPONENTIAL, .initial = 1, .decay_steps = 1, .decay_rate = 2};
    same(1e6, ps_schedule_rate(&s, 100));  // never more
    same(1e6, ps_schedule_rate(&s, UINT64_MAX));
    s.decay_rate = 0.5;
    same(0, ps_schedule_rate(&s, UINT64_MAX));
    s.decay_rate = 1;
    same(1, ps_schedule_rate(&s, UINT64_MAX));
    s = (struct ps_schedule){.kind = PS_COSINE_RESTARTS, .initial = 1, .decay_steps = 1, .t_mul = 1.01, .m_mul = 2};
    assert_true(ps_schedule_rate(&s, UINT64_MAX) <= 1e6);  // and ends
    s.t_mul = 1;
    s.m_mul = 1;
    for (uint64_t step = 0; step < 9; step++)
        same(1, ps_schedule_rate(&s, step));  // each step is a restart
    s = (struct ps_schedule){.kind = PS_POLYNOMIAL, .initial = 4, .decay_steps = 4, .power = 1, .cycle = true};
    const double cycles[] = {4, 3, 2, 1, 0, 1.5, 1, 0.5, 0, 1, 2.0 / 3};
    for (uint64_t step = 0; step < 11; step++)
        assert_true(fabs(cycles[step] - ps_schedule_rate(&s, step)) < 1e-15);
    same(0, ps_schedule_rate(&s, UINT64_MAX));
    s = (struct ps_schedule){.kind = PS_INVERSE_TIME, .initial = 4, .decay_steps = 1, .decay_rate = 1};
    same(1, ps_schedule_rate(&s, 3));
    s = (struct ps_schedule){.kind = PS_PIECEWISE, .n_boundaries = PS_SCHEDULE_MAX_BOUNDARIES};
    for (uint64_t i = 0; i <= PS_SCHEDULE_MAX_BOUNDARIES; i++) {
        s.boundary[i % PS_SCHEDULE_MAX_BOUNDARIES] = i % PS_SCHEDULE_MAX_BOUNDARIES;
        s.value[i] = (double)i;
    }
    assert_int_equal(PS_OK, ps_schedule_check(&s, NULL));
    for (uint64_t i = 0; i <= PS_SCHEDULE_MAX_BOUNDARIES; i++)
        same((double)i, ps_schedule_rate(&s, i));
    same(PS_SCHEDULE_MAX_BOUNDARIES, ps_schedule_rate(&s, UINT64_MAX));
}

static void kinds_have_names(void **ctx)
{
    (void)ctx;
    for (int k = PS_SCHEDULE_NONE; k <= PS_INVERSE_TIME; k++)
        assert_int_equal(k, ps_schedule_find(ps_schedule_name((enum ps_schedule_kind)k)));
    char all[160];
    ps_schedule_names(all, sizeof all);
    assert_string_equal("constant, piecewise, exponential, cosine, cosine_restarts, polynomial or inverse_time", all);
    assert_string_equal("cosine", ps_schedule_name(PS_COSINE));
    assert_string_equal("", ps_schedule_name(PS_SCHEDULE_NONE));
    assert_int_equal(PS_SCHEDULE_NONE, ps_schedule_find("Cosine"));
}

// ---- what is refused ----------------------------------------------------------------------------------------------

static void refuses(const struct ps_schedule *s, const char *why)
{
    struct ps_error e = {0};
    assert_int_equal(PS_INVALID_ARGUMENT, ps_schedule_check(s, &e));
    assert_string_equal(why, e.text);
}

static void refuses_what_makes_no_sense(void **ctx)
{
    (void)ctx;
    static const struct {
        struct ps_schedule schedule;
        const char *why;
    } row[] = {
        {{.kind = (enum ps_schedule_kind)8, .initial = 1}, "there is no schedule 8"},
        {{.kind = PS_CONSTANT}, "schedule constant needs initial above 0"},
        {{.kind = PS_CONSTANT, .initial = NAN}, "initial of schedule constant is nan; it must lie between 0 and 1e+06"},
        {{.kind = PS_CONSTANT, .initial = 1, .warmup_initial = -1},
         "warmup_initial of schedule constant is -1; it must lie between 0 and 1e+06"},
        {{.kind = PS_EXPONENTIAL, .initial = 1, .decay_rate = 0.5}, "schedule exponential needs decay_steps above 0"},
        {{.kind = PS_EXPONENTIAL, .initial = 1, .decay_steps = 1}, "schedule exponential needs decay_rate above 0"},
        {{.kind = PS_EXPONENTIAL, .initial = 1, .decay_steps = 1, .decay_rate = INFINITY},
         "decay_rate of schedule exponential is inf; it must lie between 0 and 1e+06"},
        {{.kind = PS_COSINE, .initial = 2e6, .decay_steps = 1},
         "initial of schedule cosine is 2e+06; it must lie between 0 and 1e+06"},
        {{.kind = PS_COSINE, .initial = 1}, "schedule cosine needs decay_steps above 0"},
        {{.kind = PS_COSINE, .initial = 1, .decay_steps = 1, .alpha = 1.5},
         "alpha of schedule cosine is 1.5; it must lie between 0 and 1"},
        {{.kind = PS_COSINE_RESTARTS, .initial = 1, .m_mul = 1, .t_mul = 2},
         "schedule cosine_restarts needs decay_steps above 0"},
        {{.kind = PS_COSINE_RESTARTS, .initial = 1, .decay_steps = 1, .m_mul = 1},
         "t_mul of schedule cosine_restarts is 0; it must be 1, or lie between 1.01 and 1e+06"},
        {{.kind = PS_COSINE_RESTARTS, .initial = 1, .decay_steps = 1, .m_mul = 1, .t_mul = 1.0001},
         "t_mul of schedule cosine_restarts is 1.0001; it must be 1, or lie between 1.01 and 1e+06"},
        {{.kind = PS_COSINE_RESTARTS, .initial = 1, .decay_steps = 1, .t_mul = 1},
         "schedule cosine_restarts needs m_mul above 0"},
        {{.kind = PS_COSINE_RESTARTS, .initial = 1, .decay_steps = 1, .t_mul = 1, .m_mul = 1, .alpha = -1},
         "alpha of schedule cosine_restarts is -1; it must lie between 0 and 1"},
        {{.kind = PS_POLYNOMIAL, .initial = 1, .power = 1}, "schedule polynomial needs decay_steps above 0"},
        {{.kind = PS_POLYNOMIAL, .initial = 1, .decay_steps = 1}, "schedule polynomial needs power above 0"},
        {{.kind = PS_POLYNOMIAL, .initial = 1, .decay_steps = 1, .power = NAN},
         "power of schedule polynomial is nan; it must lie between 0 and 1000"},
        {{.kind = PS_POLYNOMIAL, .initial = 1, .decay_steps = 1, .power = 1, .end_learning_rate = -1},
         "end_learning_rate of schedule polynomial is -1; it must lie between 0 and 1e+06"},
        {{.kind = PS_INVERSE_TIME, .initial = 1, .decay_steps = 1}, "schedule inverse_time needs decay_rate above 0"},
        {{.kind = PS_PIECEWISE}, "schedule piecewise has 0 boundaries; it must have 1 to 32"},
        {{.kind = PS_PIECEWISE, .n_boundaries = 33}, "schedule piecewise has 33 boundaries; it must have 1 to 32"},
        {{.kind = PS_PIECEWISE, .n_boundaries = 2, .boundary = {3, 3}, .value = {1, 1, 1}},
         "boundaries of schedule piecewise must grow, but 3 follows 3"},
        {{.kind = PS_PIECEWISE, .n_boundaries = 1, .boundary = {3}, .value = {1, -1}},
         "a value of schedule piecewise is -1; it must lie between 0 and 1e+06"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        refuses(&row[i].schedule, row[i].why);
    assert_int_equal(PS_OK, ps_schedule_check(&(struct ps_schedule){.initial = NAN}, NULL));  // none at all
    assert_int_equal(PS_INVALID_ARGUMENT, ps_schedule_check(&row[1].schedule, NULL));
}

// ---- elementary functions -----------------------------------------------------------------------------------------

static void assert_power(double base, double exponent)
{
    double expected = pow(base, exponent), got = ps_power(base, exponent);
    if (expected >= DBL_MIN && expected <= DBL_MAX && !(fabs(got / expected - 1) < 1e-15 * (1 + fabs(log(expected)))))
        fail_msg("%.17g ^ %g is %.17g, not %.17g", base, exponent, got, expected);
}

static void powers(void **ctx)
{
    (void)ctx;
    for (int k = -40; k <= 40; k++) {
        for (int i = -300; i <= 300; i += 7)
            assert_power((1 + (i + 300) / 601.0) * pow(10, i), k / 16.0);
        for (int i = 32; i <= 128; i++)
            assert_power(i / 64.0, k / 16.0);
    }
    same(1, ps_power(0, 0));
    same(0, ps_power(0, 0.5));
    same(INFINITY, ps_power(0, -1));
    same(INFINITY, ps_power(INFINITY, 2));
    same(0, ps_power(INFINITY, -2));
    same(0, ps_power(1e-300, 2));
    same(INFINITY, ps_power(1e300, 2));
    assert_true(isnan(ps_power(NAN, 2)) && isnan(ps_power(-1, 2)) && isnan(ps_power(2, NAN)));
    same(1, ps_power_int(0.3, 0));
    same(0.3 * 0.3 * 0.3, ps_power_int(0.3, 3));
    same(0, ps_power_int(0.9, UINT64_MAX));
}

static void cosines(void **ctx)
{
    (void)ctx;
    for (int i = 0; i <= 1000; i++)
        assert_true(fabs(ps_cos_pi(i / 1000.0) - cos(acos(-1) * i / 1000)) < 1e-15);
    same(1, ps_cos_pi(0));
    same(0, ps_cos_pi(0.5));
    same(-1, ps_cos_pi(1));
}

// Bits that any machine has to come to.
static void same_bits(void **ctx)
{
    (void)ctx;
    same(0x1.3551fafc73be7p-1, ps_power(0.96, 12.345));
    same(0x1.da3f812810442p-1, ps_cos_pi(0.123));
    same(0x1.3c6ef372fe94ep-2, ps_cos_pi(0.4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_keras),
        cmocka_unit_test(warms_up),
        cmocka_unit_test(edges),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(powers),
        cmocka_unit_test(cosines),
        cmocka_unit_test(same_bits),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
