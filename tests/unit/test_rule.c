// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/math/philox.h"
#include "common/math/rule.h"
#include "tests/golden/rules.h"

// N: more than one run of an application that clips, and no multiple of any vector's width.
enum { N_GOLDEN = sizeof golden / sizeof *golden, N = 2115 };

// One variable and its slots, and what its gradient is multiplied by.
struct state {
    float clip_factor;
    float w[N];
    float slot[PS_RULE_MAX_SLOTS][N];
};

static void start(struct state *s, const struct ps_rule *rule, const double *hyper)
{
    memset(s, 0, sizeof *s);
    s->clip_factor = 1;
    for (int k = 0; k < ps_rule_slots(rule, hyper); k++)
        for (size_t i = 0; i < N; i++)
            s->slot[k][i] = ps_rule_slot_init(rule, hyper, k);
}

// Applies g to n elements from first, from *in to *out, which may be the same.
static void apply(const struct ps_rule *rule, const double *hyper, uint64_t step, const float *g, size_t first,
                  size_t n, const struct state *in, struct state *out)
{
    struct ps_rule_args a = {.n = n,
                             .step = step,
                             .trainable = true,
                             .clip_factor = in->clip_factor,
                             .g = g + first,
                             .w_in = in->w + first,
                             .w_out = out->w + first};
    for (int i = 0; i < ps_rule_slots(rule, hyper); i++) {
        a.slot_in[i] = in->slot[i] + first;
        a.slot_out[i] = out->slot[i] + first;
    }
    ps_rule_apply(rule, hyper, &a);
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

static void assert_slots(const struct golden *c, const struct ps_rule *rule, const double *hyper, const struct state *s,
                         double tolerance)
{
    const int slots = ps_rule_slots(rule, hyper);
    for (int k = 0; k < PS_RULE_MAX_SLOTS && c->slot[k].name; k++) {
        int i = 0;
        while (i < slots && strcmp(ps_rule_slot_name(rule, hyper, i), c->slot[k].name) != 0)
            i++;
        if (i == slots)
            fail_msg("rule %s has no slot %s", c->rule, c->slot[k].name);
        assert_near(c->slot[k].value, s->slot[i], tolerance, c, GOLDEN_STEPS);
    }
}

// The limit to a norm, the one variable being the whole model.
static double norm_limit(const struct ps_rule *rule, const double *hyper)
{
    return rule->learns ? hyper[PS_HYPER_CLIPNORM] + hyper[PS_HYPER_GLOBAL_CLIPNORM] : 0;
}

// To the bit, but where Keras rounds scalars (ftrl's, and the bias corrections of adam and its kin, by 6e-6 of them at
// step 1) or a norm to float on the way.
static double tolerance_of(const struct ps_rule *rule, const double *hyper)
{
    if (strncmp(rule->name, "adam", 4) == 0 || strcmp(rule->name, "nadam") == 0)
        return 1e-6 + 4e-5 * hyper[PS_HYPER_LEARNING_RATE];
    return strcmp(rule->name, "ftrl") == 0 || norm_limit(rule, hyper) > 0 ? 1e-6 : 0;
}

static void follows_keras(void **ctx)
{
    (void)ctx;
    static struct state s;
    for (const struct golden *c = golden; c < golden + N_GOLDEN; c++) {
        double hyper[PS_RULE_MAX_HYPERS];
        const struct ps_rule *rule = golden_rule(c, hyper);
        double tolerance = tolerance_of(rule, hyper);
        int kept = 0;
        start(&s, rule, hyper);
        memcpy(s.w, golden_weights, sizeof golden_weights);
        for (int step = 1; step <= GOLDEN_STEPS; step++) {
            const float *g = golden_gradient[step - 1];
            s.clip_factor = ps_clip_factor(ps_sum_squares(g, GOLDEN_N), norm_limit(rule, hyper));
            apply(rule, hyper, (uint64_t)step, g, 0, GOLDEN_N, &s, &s);
            if (step == golden_kept[kept])
                assert_near(c->after[kept++], s.w, tolerance, c, step);
        }
        assert_int_equal(GOLDEN_KEPT, kept);
        assert_slots(c, rule, hyper, &s, tolerance);
    }
}

static const struct ps_rule_hyper *find_hyper(const struct ps_rule *rule, const char *name)
{
    for (int h = 0; h < PS_RULE_MAX_HYPERS && rule->hyper[h].name; h++)
        if (strcmp(rule->hyper[h].name, name) == 0)
            return &rule->hyper[h];
    return NULL;
}

static void defaults_are_kerass(void **ctx)
{
    (void)ctx;
    for (size_t i = 0; i < sizeof golden_default / sizeof *golden_default; i++) {
        const struct ps_rule_hyper *h = find_hyper(ps_rule_find(golden_default[i].rule), golden_default[i].name);
        if (!h || fabs(h->value - golden_default[i].value) > 0)
            fail_msg("%s of %s is %g, in Keras %g", golden_default[i].name, golden_default[i].rule,
                     h ? h->value : (double)NAN, golden_default[i].value);
    }
    // Those that pick their rule have the same ones.
    static const char *const wider[][2] = {{"sgd", "momentum"},
                                           {"sgd", "nesterov"},
                                           {"rmsprop", "rmsprop_momentum"},
                                           {"rmsprop", "rmsprop_centered"},
                                           {"adam", "adam_amsgrad"},
                                           {"adamw", "adamw_amsgrad"}};
    for (size_t i = 0; i < sizeof wider / sizeof *wider; i++) {
        const struct ps_rule *narrow = ps_rule_find(wider[i][0]), *wide = ps_rule_find(wider[i][1]);
        for (int h = 0; narrow->hyper[h].name; h++)
            assert_true(fabs(find_hyper(wide, narrow->hyper[h].name)->value - narrow->hyper[h].value) <= 0);
        const struct ps_rule_hyper *momentum = find_hyper(wide, "momentum");
        assert_true(!momentum || fabs(momentum->value) <= 0);
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
    static struct state in_place, apart[2], single;
    for (const struct golden *c = golden; c < golden + N_GOLDEN; c++) {
        double hyper[PS_RULE_MAX_HYPERS];
        const struct ps_rule *rule = golden_rule(c, hyper);
        start(&in_place, rule, hyper);
        in_place.clip_factor = norm_limit(rule, hyper) > 0 ? 0.3F : 1;
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
    struct state s = {.w = {1, -2, 0.5f}};  // and knows no clipping
    const float g[] = {0.25f, 2, -1};
    apply(ps_rule_find("assign_add"), NULL, 1, g, 0, 3, &s, &s);
    const float expected[] = {1.25f, 0, -0.5f};
    assert_memory_equal(s.w, expected, sizeof expected);
}

// ---- clipping and weight decay ------------------------------------------------------------------------------------

static void set(const struct ps_rule *rule, double *hyper, const char *name, double value)
{
    struct ps_error e;
    if (ps_rule_set(rule, hyper, name, value, &e) != PS_OK)
        fail_msg("%s", e.text);
}

// The rule by name, its defaults, and a state with all weights 0.
static const struct ps_rule *begin(const char *name, double *hyper, struct state *s)
{
    const struct ps_rule *rule = ps_rule_find(name);
    ps_rule_defaults(rule, hyper);
    start(s, rule, hyper);
    return rule;
}

static void what_is_not_trainable_is_left_alone(void **ctx)
{
    (void)ctx;
    double hyper[PS_RULE_MAX_HYPERS];
    struct state s;
    const struct ps_rule *sgd = begin("sgd", hyper, &s);
    set(sgd, hyper, "learning_rate", 1);
    set(sgd, hyper, "weight_decay", 0.5);
    set(sgd, hyper, "clipvalue", 1);
    const float g[] = {4, -4};
    s.w[0] = s.w[1] = 8;
    s.clip_factor = 0.5F;
    apply(sgd, hyper, 1, g, 0, 2, &s, &s);
    assert_true(s.w[0] == 8 - 4 - 1 && s.w[1] == 8 - 4 + 1);
    struct ps_rule_args a = {.n = 2, .step = 1, .g = g, .w_in = s.w, .w_out = s.w};
    ps_rule_apply(sgd, hyper, &a);
    assert_true(s.w[0] == 3 - 4 && s.w[1] == 5 + 4);
}

// Clipping does not make a number of what is none.
static void nan_stays_nan(void **ctx)
{
    (void)ctx;
    double hyper[PS_RULE_MAX_HYPERS];
    struct state s;
    const struct ps_rule *sgd = begin("sgd", hyper, &s);
    set(sgd, hyper, "clipvalue", 1);
    set(sgd, hyper, "learning_rate", 1);
    float g[19];
    for (int i = 0; i < 19; i++)
        g[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    apply(sgd, hyper, 1, g, 0, 19, &s, &s);
    for (int i = 0; i < 19; i++)
        assert_true(i % 3 == 0 ? isnan(s.w[i]) : s.w[i] == (i % 3 == 1 ? -1 : 1));
    sgd = begin("sgd", hyper, &s);
    s.clip_factor = NAN;
    g[1] = 1;
    apply(sgd, hyper, 1, g, 1, 1, &s, &s);
    assert_true(isnan(s.w[1]));
}

// The expected values come from the same sums written down elsewhere.
static void sums_of_squares_have_one_order(void **ctx)
{
    (void)ctx;
    float g[1001];
    for (int shift = 0; shift < 2; shift++) {  // aligned or not
        for (int i = 0; i < 1000; i++)
            g[shift + i] = (float)((i * 7919 % 10007 - 5003) / 977.0);
        assert_true(ps_sum_squares(g + shift, 3) == 0x1.1eca31e105382p+5);
        assert_true(ps_sum_squares(g + shift, 16) == 0x1.379e6b6851e6ep+7);
        assert_true(ps_sum_squares(g + shift, 17) == 0x1.3d18e9bd51c8ep+7);
        assert_true(ps_sum_squares(g + shift, 1000) == 0x1.11739a6d42f0ep+13);
        assert_true(ps_sum_squares(g + shift, 0) == 0);
    }
    g[999] = NAN;
    assert_true(isnan(ps_sum_squares(g, 1000)));
    g[999] = 3e38F;
    assert_true(isfinite(ps_sum_squares(g, 1000)));
}

static void factors(void **ctx)
{
    (void)ctx;
    assert_true(ps_clip_factor(16, 1) == 0.25F);
    assert_true(ps_clip_factor(16, 4) == 1);
    assert_true(ps_clip_factor(16, 5) == 1);
    assert_true(ps_clip_factor(0, 1) == 1);
    assert_true(ps_clip_factor(16, 0) == 1);  // off
    assert_true(ps_clip_factor(INFINITY, 0) == 1);
    assert_true(isnan(ps_clip_factor(INFINITY, 1)));
    assert_true(isnan(ps_clip_factor(NAN, 1)));
}

// ---- at the edges -------------------------------------------------------------------------------------------------

static void adam_and_its_kin_stay_finite(void **ctx)
{
    (void)ctx;
    static const char *const kin[] = {"adam", "adamw", "adam_amsgrad", "adamw_amsgrad", "nadam", "adamax", "lion"};
    for (size_t i = 0; i < sizeof kin / sizeof *kin; i++) {
        double hyper[PS_RULE_MAX_HYPERS];
        struct state s;
        const struct ps_rule *rule = begin(kin[i], hyper, &s);
        const float zero[1] = {0}, one[1] = {1};
        set(rule, hyper, "weight_decay", 0);
        s.w[0] = 1;
        apply(rule, hyper, 1, zero, 0, 1, &s, &s);
        assert_true(s.w[0] == 1);
        apply(rule, hyper, UINT64_MAX, one, 0, 1, &s, &s);
        assert_true(isfinite(s.w[0]) && s.w[0] < 1);
    }
}

// As in Keras, what was once no number stays none, and does not come back as one by way of a comparison.
static void nan_stays_nan_in_slots(void **ctx)
{
    (void)ctx;
    static const char *const kin[] = {"adam_amsgrad", "nadam", "adamax", "lion"};
    for (size_t i = 0; i < sizeof kin / sizeof *kin; i++) {
        double hyper[PS_RULE_MAX_HYPERS];
        struct state s;
        const struct ps_rule *rule = begin(kin[i], hyper, &s);
        const float nan[1] = {NAN}, one[1] = {1};
        apply(rule, hyper, 1, nan, 0, 1, &s, &s);
        assert_true(isnan(s.w[0]) && isnan(s.slot[rule->own_slots - 1][0]));
        s.w[0] = 0;
        apply(rule, hyper, 2, one, 0, 1, &s, &s);
        assert_true(isnan(s.w[0]));
    }
}

// A gradient that hardly changes has no variance, which floats may show as one below 0.
static void rmsprop_centered_stays_finite(void **ctx)
{
    (void)ctx;
    double hyper[PS_RULE_MAX_HYPERS];
    struct state s;
    const struct ps_rule *rule = begin("rmsprop_centered", hyper, &s);
    set(rule, hyper, "rho", 0.5);
    float g[64];
    for (int i = 0; i < 64; i++)
        g[i] = 1000 + (float)i / 7;
    for (uint64_t step = 1; step <= 200; step++)
        apply(rule, hyper, step, g, 0, 64, &s, &s);
    for (int i = 0; i < 64; i++)
        assert_true(isfinite(s.w[i]) && s.w[i] < 0);
}

static void ftrl_divides_by_nothing(void **ctx)
{
    (void)ctx;
    double hyper[PS_RULE_MAX_HYPERS];
    struct state s, to;
    const struct ps_rule *ftrl = begin("ftrl", hyper, &s);
    const float g[] = {0, 1};
    // A rate of 0 changes nothing.
    set(ftrl, hyper, "learning_rate", 0);
    s.w[0] = s.w[1] = s.slot[1][1] = 2;
    memset(&to, 0, sizeof to);
    apply(ftrl, hyper, 1, g, 0, 2, &s, &to);
    assert_true(to.w[0] == 2 && to.w[1] == 2 && to.slot[1][1] == 2);
    assert_true(to.slot[0][1] == 0.1F);
    apply(ftrl, hyper, 1, g, 0, 2, &s, &s);
    assert_true(s.w[1] == 2);
    // Nor does a gradient of 0 before the first that is not.
    ps_rule_defaults(ftrl, hyper);
    set(ftrl, hyper, "initial_accumulator_value", 0);
    start(&s, ftrl, hyper);
    s.w[0] = s.w[1] = 2;
    apply(ftrl, hyper, 1, g, 0, 2, &s, &s);
    assert_true(s.w[0] == 2 && isfinite(s.w[1]) && s.w[1] != 2);
}

static void slots_start_somewhere(void **ctx)
{
    (void)ctx;
    double hyper[PS_RULE_MAX_HYPERS];
    struct state s;
    const struct ps_rule *rule = begin("adagrad", hyper, &s);
    assert_true(ps_rule_slot_init(rule, hyper, 0) == 0.1F);
    set(rule, hyper, "initial_accumulator_value", 3);
    assert_true(ps_rule_slot_init(rule, hyper, 0) == 3);
    rule = begin("ftrl", hyper, &s);
    assert_true(ps_rule_slot_init(rule, hyper, 0) == 0.1F && ps_rule_slot_init(rule, hyper, 1) == 0);
    rule = begin("adam", hyper, &s);
    assert_true(ps_rule_slot_init(rule, hyper, 0) == 0 && ps_rule_slot_init(rule, hyper, 1) == 0);
}

// ---- the table ----------------------------------------------------------------------------------------------------

static void table_is_consistent(void **ctx)
{
    (void)ctx;
    const struct ps_rule *r;
    for (int i = 0; (r = ps_rule_at(i)); i++) {
        assert_ptr_equal(r, ps_rule_find(r->name));
        assert_true(r->own_slots <= PS_RULE_MAX_OWN_SLOTS && r->apply);
        for (int k = 0; k < PS_RULE_MAX_OWN_SLOTS; k++) {
            assert_int_equal(k < r->own_slots, r->own_slot_name[k] != NULL);
            assert_true(r->slot_start[k] == 0 || (k < r->own_slots && r->slot_start[k] >= PS_HYPER_OWN));
        }
        assert_int_equal(r->learns, r->hyper[0].name && strcmp(r->hyper[0].name, "learning_rate") == 0);
        assert_null(r->hyper[PS_RULE_MAX_HYPERS - 1].name);
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
        {"Adam", 0, true, "adam_amsgrad"},
        {"AdamW", 0.9, true, "adamw_amsgrad"},
        {"Nadam", 0, false, "nadam"},
        {"Adamax", 0, false, "adamax"},
        {"Lion", 0, false, "lion"},
        {"ftrl", 0, false, "ftrl"},
        {"Delayed_Nesterov", 0, false, "delayed_nesterov"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_string_equal(row[i].rule, ps_rule_for_optimizer(row[i].optimizer, row[i].momentum, row[i].flag)->name);
    assert_null(ps_rule_for_optimizer("momentum", 0.9, false));
    assert_null(ps_rule_for_optimizer("assign_add", 0, false));
}

static void slots_that_hyperparameters_add(void **ctx)
{
    (void)ctx;
    double hyper[PS_RULE_MAX_HYPERS];
    const struct ps_rule *adagrad = ps_rule_find("adagrad");
    ps_rule_defaults(adagrad, hyper);
    assert_int_equal(1, ps_rule_slots(adagrad, hyper));
    assert_int_equal(-1, ps_rule_average_slot(adagrad, hyper));
    set(adagrad, hyper, "gradient_accumulation_steps", 1);  // is none
    assert_int_equal(1, ps_rule_slots(adagrad, hyper));
    set(adagrad, hyper, "use_ema", 1);
    assert_int_equal(2, ps_rule_slots(adagrad, hyper));
    assert_int_equal(1, ps_rule_average_slot(adagrad, hyper));
    set(adagrad, hyper, "gradient_accumulation_steps", 2);
    assert_int_equal(3, ps_rule_slots(adagrad, hyper));
    assert_int_equal(2, ps_rule_average_slot(adagrad, hyper));
    static const char *const name[] = {"accumulator", "gradient_accumulator", "average"};
    for (int k = 0; k < 3; k++) {
        assert_string_equal(name[k], ps_rule_slot_name(adagrad, hyper, k));
        assert_true(ps_rule_slot_init(adagrad, hyper, k) == (k ? 0 : 0.1F));
    }
    for (int i = 0; i < PS_RULE_MAX_HYPERS; i++)
        hyper[i] = 2;
    assert_int_equal(0, ps_rule_slots(ps_rule_find("ema"), hyper));
}

static void refuses(const char *rule, const char *name, double value, const char *why)
{
    struct ps_error e = {0};
    double hyper[PS_RULE_MAX_HYPERS], before[PS_RULE_MAX_HYPERS];
    const struct ps_rule *r = ps_rule_find(rule);
    ps_rule_defaults(r, hyper);
    memcpy(before, hyper, sizeof before);
    assert_int_equal(PS_INVALID_ARGUMENT, ps_rule_set(r, hyper, name, value, &e));
    assert_int_equal(0, strncmp(why, e.text, strlen(why)));  // the names that it has follow
    assert_memory_equal(before, hyper, sizeof before);
}

static void refuses_what_makes_no_sense(void **ctx)
{
    (void)ctx;
    refuses("adam", "beta1", 0.9, "rule adam has no \"beta1\"; did you mean \"beta_1\"?");
    refuses("sgd", "momentum", 0.9, "rule sgd has no \"momentum\"; it has learning_rate, ");
    refuses("adam", "lr", 0.9, "rule adam has no \"lr\"; did you mean \"learning_rate\"?");
    refuses("assign_add", "learning_rate", 1, "rule assign_add has no \"learning_rate\"");
    refuses("sgd", "learning_rate", -1, "learning_rate of rule sgd is -1; it must lie between 0 and 1000000");
    refuses("sgd", "learning_rate", NAN, "learning_rate of rule sgd is nan; it must lie between 0 and 1000000");
    refuses("adam", "beta_2", 1, "beta_2 of rule adam is 1; it must lie between 0 and 0.999999999");
    refuses("momentum", "nesterov", 1, "rule momentum has no \"nesterov\"");
    refuses("sgd", "clipvalue", -1, "clipvalue of rule sgd is -1; it must lie between 0 and 1e+30");
    refuses("ftrl", "learning_rate_power", 0.5,
            "learning_rate_power of rule ftrl is 0.5; it must lie between -10 and 0");
    refuses("sgd", "use_ema", 0.5, "use_ema of rule sgd is 0.5; it must be a whole number");
    refuses("sgd", "gradient_accumulation_steps", -1,
            "gradient_accumulation_steps of rule sgd is -1; it must lie between 0 and 1000000");
    refuses("ema", "learning_rate", 1, "rule ema has no \"learning_rate\"");
}

static void clips_in_one_way(void **ctx)
{
    (void)ctx;
    static const char *const way[] = {"clipnorm", "clipvalue", "global_clipnorm"};
    double hyper[PS_RULE_MAX_HYPERS];
    struct ps_error e;
    const struct ps_rule *adam = ps_rule_find("adam");
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            ps_rule_defaults(adam, hyper);
            set(adam, hyper, way[i], 1);
            set(adam, hyper, way[k], 1);
            enum ps_code code = ps_rule_check(adam, hyper, &e);
            assert_int_equal(i == k ? PS_OK : PS_INVALID_ARGUMENT, code);
        }
    assert_string_equal("only one of clipnorm (0), clipvalue (1) and global_clipnorm (1) of rule adam may be set",
                        e.text);
    for (int i = 0; i < PS_RULE_MAX_HYPERS; i++)
        hyper[i] = 1;
    assert_int_equal(PS_OK, ps_rule_check(ps_rule_find("ema"), hyper, &e));
}

// Algorithm 3 of arXiv 2401.09135, line by line, of one element.
struct delayed {
    double w, m, sum;
};

static void delayed_step(struct delayed *d, double g, uint64_t step, double rate, double beta, double n, double c)
{
    d->sum += g;
    if (step % (uint64_t)n == 0) {
        d->m = beta * d->m + d->sum / n;
        d->w -= rate * ((1 - c * n + c) * beta * d->m + g / n);
        d->sum = 0;
    } else {
        d->w -= rate * (c * beta * d->m + g / n);
    }
}

static void delays_momentum(void **ctx)
{
    static const struct {
        double delay, activation;
    } row[] = {{0, 0}, {1, 0}, {3, 0}, {4, 0.1}, {4, 0.25}};
    static struct state s;
    const struct ps_rule *rule = ps_rule_find("delayed_nesterov");
    (void)ctx;
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        struct delayed d[GOLDEN_N] = {{0}};
        double hyper[PS_RULE_MAX_HYPERS];
        ps_rule_defaults(rule, hyper);
        set(rule, hyper, "learning_rate", 0.7);
        set(rule, hyper, "delay", row[k].delay);
        set(rule, hyper, "activation", row[k].activation);
        start(&s, rule, hyper);
        for (int i = 0; i < GOLDEN_N; i++)
            d[i].w = (double)(s.w[i] = golden_weights[i]);
        for (int step = 1; step <= GOLDEN_STEPS; step++) {
            const float *g = golden_gradient[step - 1];
            apply(rule, hyper, (uint64_t)step, g, 0, GOLDEN_N, &s, &s);
            for (int i = 0; i < GOLDEN_N; i++) {
                delayed_step(&d[i], (double)g[i], (uint64_t)step, 0.7, 0.9, fmax(row[k].delay, 1), row[k].activation);
                if (!(fabs((double)s.w[i] - d[i].w) <= 1e-5 * fmax(1, fabs(d[i].w))))
                    fail_msg("row %zu, step %d, element %d: %.9g, expected %.9g", k, step, i, (double)s.w[i], d[i].w);
            }
        }
        for (int i = 0; i < GOLDEN_N; i++) {
            assert_true(fabs((double)s.slot[0][i] - d[i].m) <= 1e-5 * fmax(1, fabs(d[i].m)));
            assert_true(fabs((double)s.slot[1][i] - d[i].sum) <= 1e-5 * fmax(1, fabs(d[i].sum)));
        }
    }
}

// Of one gradient it makes what nesterov does, whose momentum has the rate in it; of several, after the last one, what
// nesterov makes of their mean.
static void delays_no_more_than_momentum(void **ctx)
{
    enum { DELAY = 5 };
    static struct state delayed, at_once;
    const struct ps_rule *rule = ps_rule_find("delayed_nesterov"), *nesterov = ps_rule_find("nesterov");
    double hyper[PS_RULE_MAX_HYPERS], other[PS_RULE_MAX_HYPERS];
    float mean[GOLDEN_N];
    (void)ctx;
    ps_rule_defaults(rule, hyper);
    ps_rule_defaults(nesterov, other);
    set(rule, hyper, "delay", DELAY);
    set(rule, hyper, "learning_rate", 0.1);
    set(nesterov, other, "learning_rate", 0.1);
    set(nesterov, other, "momentum", 0.9);
    start(&delayed, rule, hyper);
    start(&at_once, nesterov, other);
    for (int step = 1; step <= GOLDEN_STEPS; step++) {
        const float *g = golden_gradient[step - 1];
        for (int i = 0; i < GOLDEN_N; i++)
            mean[i] = ((step - 1) % DELAY ? mean[i] : 0) + g[i] / DELAY;
        apply(rule, hyper, (uint64_t)step, g, 0, GOLDEN_N, &delayed, &delayed);
        if (step % DELAY)
            continue;
        apply(nesterov, other, (uint64_t)step / DELAY, mean, 0, GOLDEN_N, &at_once, &at_once);
        for (int i = 0; i < GOLDEN_N; i++)
            assert_true(fabs((double)(delayed.w[i] - at_once.w[i])) <= 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_keras),
        cmocka_unit_test(defaults_are_kerass),
        cmocka_unit_test(same_bits_however_it_is_cut),
        cmocka_unit_test(assign_add_adds),
        cmocka_unit_test(what_is_not_trainable_is_left_alone),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(sums_of_squares_have_one_order),
        cmocka_unit_test(factors),
        cmocka_unit_test(adam_and_its_kin_stay_finite),
        cmocka_unit_test(nan_stays_nan_in_slots),
        cmocka_unit_test(rmsprop_centered_stays_finite),
        cmocka_unit_test(ftrl_divides_by_nothing),
        cmocka_unit_test(slots_start_somewhere),
        cmocka_unit_test(slots_that_hyperparameters_add),
        cmocka_unit_test(table_is_consistent),
        cmocka_unit_test(optimizers_are_rules),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(clips_in_one_way),
        cmocka_unit_test(delays_momentum),
        cmocka_unit_test(delays_no_more_than_momentum),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
