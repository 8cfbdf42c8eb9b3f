// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/philox.h"
#include "common/rule.h"
#include "tests/golden/rules.h"

enum { N_GOLDEN = sizeof golden / sizeof *golden, N = 67 };

// One variable and its slots.
struct state {
    float w[N];
    float slot[PS_RULE_MAX_SLOTS][N];
};

// Applies g to n elements from first, from *in to *out, which may be the same.
static void apply(const struct ps_rule *rule, const double *hyper, uint64_t step, const float *g, size_t first,
                  size_t n, const struct state *in, struct state *out)
{
    struct ps_rule_args a = {.n = n, .step = step, .g = g + first, .w_in = in->w + first, .w_out = out->w + first};
    for (int i = 0; i < rule->slots; i++) {
        a.slot_in[i] = in->slot[i] + first;
        a.slot_out[i] = out->slot[i] + first;
    }
    rule->apply(hyper, &a);
}

static const struct ps_rule *golden_rule(const struct golden *c, double *hyper)
{
    struct ps_error e = {0};
    const struct ps_rule *rule = ps_rule_find(c->rule);
    assert_non_null(rule);
    ps_rule_defaults(rule, hyper);
    for (size_t i = 0; i < sizeof c->hyper / sizeof *c->hyper && c->hyper[i].name; i++)
        assert_int_equal(PS_OK, ps_rule_set(rule, hyper, c->hyper[i].name, c->hyper[i].value, &e));
    return rule;
}

static void assert_near(const float *expected, const float *got, double tolerance, const struct golden *c, int step)
{
    for (int i = 0; i < GOLDEN_N; i++) {
        double bound = tolerance * fmax(1, fabs((double)expected[i]));
        if (!(fabs((double)got[i] - (double)expected[i]) <= bound))
            fail_msg("case %d (%s), step %d, element %d: %.9g, Keras has %.9g", (int)(c - golden), c->rule, step, i,
                     (double)got[i], (double)expected[i]);
    }
}

// The linear rules to the bit; adam as near as Keras's own float scalars allow.
static void follows_keras(void **ctx)
{
    (void)ctx;
    for (const struct golden *c = golden; c < golden + N_GOLDEN; c++) {
        double hyper[PS_RULE_MAX_HYPERS];
        const struct ps_rule *rule = golden_rule(c, hyper);
        double tolerance = strcmp(c->rule, "adam") == 0 ? 1e-6 : 0;
        struct state s = {.w = {0}};
        memcpy(s.w, golden_weights, sizeof golden_weights);
        for (int step = 1; step <= GOLDEN_STEPS; step++) {
            apply(rule, hyper, (uint64_t)step, golden_gradient[step - 1], 0, GOLDEN_N, &s, &s);
            assert_near(c->after[step - 1], s.w, tolerance, c, step);
        }
        for (int i = 0; i < rule->slots; i++)
            assert_near(c->slot[i], s.slot[i], tolerance, c, GOLDEN_STEPS);
    }
}

static void fill(float *to, uint64_t what)
{
    for (uint64_t i = 0; i < N; i++) {
        uint32_t r[4];
        ps_philox(1, PS_RANDOM_INIT, what, i, r);
        to[i] = ps_uniform(r[0]) * 2 - 1;
    }
}

// The vector loops, their tails, and one element at a time; in place and out of place.
static void same_bits_however_it_is_cut(void **ctx)
{
    (void)ctx;
    for (const struct golden *c = golden; c < golden + N_GOLDEN; c++) {
        double hyper[PS_RULE_MAX_HYPERS];
        const struct ps_rule *rule = golden_rule(c, hyper);
        struct state in_place = {.w = {0}}, apart[2], single;
        fill(in_place.w, 0);
        apart[0] = apart[1] = single = in_place;
        for (uint64_t step = 1; step <= 5; step++) {
            float g[N];
            fill(g, step);
            apply(rule, hyper, step, g, 0, N, &in_place, &in_place);
            apply(rule, hyper, step, g, 0, N, &apart[(step - 1) % 2], &apart[step % 2]);
            for (size_t i = 0; i < N; i++)
                apply(rule, hyper, step, g, i, 1, &single, &single);
            assert_memory_equal(&in_place, &apart[step % 2], sizeof in_place);
            assert_memory_equal(&in_place, &single, sizeof in_place);
        }
    }
}

static void assign_add_adds(void **ctx)
{
    (void)ctx;
    struct state s = {.w = {1, -2, 0.5f}};
    const float g[] = {0.25f, 2, -1};
    apply(ps_rule_find("assign_add"), NULL, 1, g, 0, 3, &s, &s);
    const float expected[] = {1.25f, 0, -0.5f};
    assert_memory_equal(s.w, expected, sizeof expected);
}

static void adam_stays_finite(void **ctx)
{
    (void)ctx;
    const struct ps_rule *adam = ps_rule_find("adam");
    double hyper[PS_RULE_MAX_HYPERS];
    ps_rule_defaults(adam, hyper);
    struct state s = {.w = {1}};
    const float zero[N] = {0}, one[N] = {1};
    apply(adam, hyper, 1, zero, 0, 1, &s, &s);
    assert_true(s.w[0] == 1);
    apply(adam, hyper, UINT64_MAX, one, 0, 1, &s, &s);
    assert_true(isfinite(s.w[0]) && s.w[0] < 1);
}

static void table_is_consistent(void **ctx)
{
    (void)ctx;
    const struct ps_rule *r;
    for (int i = 0; (r = ps_rule_at(i)); i++) {
        assert_ptr_equal(r, ps_rule_find(r->name));
        assert_true(r->slots <= PS_RULE_MAX_SLOTS && r->apply);
        for (int h = 0; r->hyper[h].name; h++) {
            double hyper[PS_RULE_MAX_HYPERS];
            assert_int_equal(PS_OK, ps_rule_set(r, hyper, r->hyper[h].name, r->hyper[h].value, NULL));
        }
    }
    assert_null(ps_rule_at(-1));
    assert_null(ps_rule_find("adamm"));
}

static void optimizers_are_rules(void **ctx)
{
    (void)ctx;
    static const struct {
        const char *optimizer;
        double momentum;
        bool flag;
        const char *rule;
    } row[] = {
        {"sgd", 0, false, "sgd"},
        {"SGD", 0.9, false, "momentum"},
        {"sgd", 0, true, "sgd"},
        {"sgd", 0.9, true, "nesterov"},
        {"RMSprop", 0, false, "rmsprop"},
        {"rmsprop", 0.9, false, "rmsprop_momentum"},
        {"rmsprop", 0, true, "rmsprop_centered"},
        {"rmsprop", 0.9, true, "rmsprop_centered"},
        {"Adam", 0, false, "adam"},
        {"AdamW", 0, false, "adamw"},
        {"adagrad", 0, false, "adagrad"},
        {"adadelta", 0, false, "adadelta"},
        {"ftrl", 0, false, "ftrl"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_string_equal(row[i].rule, ps_rule_for_optimizer(row[i].optimizer, row[i].momentum, row[i].flag)->name);
    assert_null(ps_rule_for_optimizer("momentum", 0.9, false));
    assert_null(ps_rule_for_optimizer("assign_add", 0, false));
}

static void refuses(const char *rule, const char *name, double value, const char *why)
{
    struct ps_error e = {0};
    double hyper[PS_RULE_MAX_HYPERS], before[PS_RULE_MAX_HYPERS];
    const struct ps_rule *r = ps_rule_find(rule);
    ps_rule_defaults(r, hyper);
    memcpy(before, hyper, sizeof before);
    assert_int_equal(PS_INVALID_ARGUMENT, ps_rule_set(r, hyper, name, value, &e));
    assert_string_equal(why, e.text);
    assert_memory_equal(before, hyper, sizeof before);
}

static void refuses_what_makes_no_sense(void **ctx)
{
    (void)ctx;
    refuses("adam", "beta1", 0.9, "rule adam has no \"beta1\"; did you mean \"beta_1\"?");
    refuses("sgd", "momentum", 0.9, "rule sgd has no \"momentum\"");
    refuses("assign_add", "learning_rate", 1, "rule assign_add has no \"learning_rate\"");
    refuses("sgd", "learning_rate", -1, "learning_rate of rule sgd is -1; it must lie between 0 and 1000000");
    refuses("sgd", "learning_rate", NAN, "learning_rate of rule sgd is nan; it must lie between 0 and 1000000");
    refuses("adam", "beta_2", 1, "beta_2 of rule adam is 1; it must lie between 0 and 0.999999999");
    refuses("momentum", "nesterov", 0.5, "nesterov of rule momentum is 0.5; it must be 0 or 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_keras),
        cmocka_unit_test(same_bits_however_it_is_cut),
        cmocka_unit_test(assign_add_adds),
        cmocka_unit_test(adam_stays_finite),
        cmocka_unit_test(table_is_consistent),
        cmocka_unit_test(optimizers_are_rules),
        cmocka_unit_test(refuses_what_makes_no_sense),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
