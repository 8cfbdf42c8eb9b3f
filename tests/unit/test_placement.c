// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/plan/placement.h"

// float32 without slots.
static struct ps_placement_var var(const char *name, uint64_t rows, uint64_t row_count)
{
    return (struct ps_placement_var){.name = name, .rows = rows, .row_count = row_count, .elem_size = 4};
}

static struct ps_placement_spec spec(const char *placement, const char *partitioner)
{
    struct ps_placement_spec s;
    struct ps_error e = {0};
    if (ps_placement_parse(placement, partitioner, &s, &e) != PS_OK)
        fail_msg("%s", e.text);
    return s;
}

// The plan as "var:first+count@task ...".
static void assert_plan(const char *expected, const char *placement, const char *partitioner,
                        const struct ps_placement_var *vars, size_t n, uint32_t tasks)
{
    struct ps_placement_spec s = spec(placement, partitioner);
    struct ps_partition *p;
    struct ps_error e = {0};
    size_t n_parts, at = 0;
    char text[512] = "";
    if (ps_placement_plan(&s, vars, n, tasks, &p, &n_parts, &e) != PS_OK)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < n_parts && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u:%u+%u@%u", i ? " " : "", p[i].var,
                               (unsigned)p[i].first, (unsigned)p[i].count, p[i].task);
    free(p);
    assert_string_equal(expected, text);
}

static void round_robin_follows_declaration(void **ctx)
{
    (void)ctx;
    const struct ps_placement_var vars[] = {var("a", 1, 1), var("b", 9, 9), var("c", 5, 2), var("d", 1, 1)};
    assert_plan("0:0+1@0 1:0+81@1 2:0+10@0 3:0+1@1", "round_robin", "none", vars, 4, 2);
    assert_plan("0:0+1@0 1:0+45@1 1:45+36@2 2:0+6@0 2:6+4@1 3:0+1@2", "round_robin", "fixed:2", vars, 4, 3);
}

static void greedy_balances(void **ctx)
{
    (void)ctx;
    const struct ps_placement_var vars[] = {var("a", 1, 10), var("b", 1, 70), var("c", 1, 40), var("d", 1, 40)};
    assert_plan("0:0+10@0 1:0+70@0 2:0+40@1 3:0+40@1", "greedy", "none", vars, 4, 2);
}

static void greedy_ignores_the_order_of_declaration(void **ctx)
{
    (void)ctx;
    const struct ps_placement_var one[] = {var("x", 1, 5), var("y", 1, 5), var("z", 1, 5)};
    const struct ps_placement_var two[] = {var("z", 1, 5), var("x", 1, 5), var("y", 1, 5)};
    assert_plan("0:0+5@0 1:0+5@1 2:0+5@0", "greedy", NULL, one, 3, 2);
    assert_plan("0:0+5@0 1:0+5@0 2:0+5@1", "greedy", NULL, two, 3, 2);
}

static void slots_count_for_the_load(void **ctx)
{
    (void)ctx;
    struct ps_placement_var vars[] = {var("a", 1, 10), var("b", 1, 12), var("c", 1, 8)};
    vars[0].slots = 2;
    assert_plan("0:0+10@0 1:0+12@1 2:0+8@1", NULL, NULL, vars, 3, 2);
}

static void fixed_cuts_rows_evenly(void **ctx)
{
    (void)ctx;
    const struct ps_placement_var rows = var("v", 10, 3), few = var("v", 2, 7), scalar = var("v", 1, 1);
    assert_plan("0:0+9@0 0:9+9@1 0:18+6@2 0:24+6@3", "round_robin", "fixed:4", &rows, 1, 4);
    assert_plan("0:0+7@0 0:7+7@1", "round_robin", "fixed:4", &few, 1, 4);
    assert_plan("0:0+1@0", "round_robin", "fixed:4", &scalar, 1, 4);
}

// Rows of 10 floats: 40 bytes.
static void min_bytes_is_a_floor(void **ctx)
{
    (void)ctx;
    const struct ps_placement_var v = var("v", 5, 10);
    assert_plan("0:0+20@0 0:20+20@1 0:40+10@2", "round_robin", "min_bytes:40", &v, 1,
                3);                                                              // no more than tasks
    assert_plan("0:0+30@0 0:30+20@1", "round_robin", "min_bytes:41", &v, 1, 3);  // two rows at least
    assert_plan("0:0+50@0", "round_robin", "min_bytes:1KiB", &v, 1, 3);
}

static void max_bytes_is_a_ceiling(void **ctx)
{
    (void)ctx;
    const struct ps_placement_var v = var("v", 5, 10);
    assert_plan("0:0+50@0", "round_robin", "max_bytes:200", &v, 1, 2);
    assert_plan("0:0+30@0 0:30+20@1", "round_robin", "max_bytes:199", &v, 1, 2);
    assert_plan("0:0+20@0 0:20+20@1 0:40+10@0", "round_robin", "max_bytes:80", &v, 1, 2);
    assert_plan("0:0+10@0 0:10+10@1 0:20+10@0 0:30+10@1 0:40+10@0", "round_robin", "max_bytes:1", &v, 1, 2);
}

static void nothing_gives_nothing(void **ctx)
{
    (void)ctx;
    assert_plan("", NULL, NULL, NULL, 0, 2);
}

static void parses(void **ctx)
{
    (void)ctx;
    struct ps_placement_spec s = spec("round_robin", "max_bytes:3MiB");
    assert_int_equal(PS_ROUND_ROBIN, s.placement);
    assert_int_equal(PS_PARTITION_MAX_BYTES, s.partitioner);
    assert_int_equal(3 << 20, s.partitioner_arg);
    s = spec(NULL, NULL);
    assert_int_equal(PS_GREEDY, s.placement);
    assert_int_equal(PS_PARTITION_NONE, s.partitioner);
}

static void refuses_specs(void **ctx)
{
    (void)ctx;
    static const char *const bad[] = {"",
                                      "fixed",
                                      "fixed:",
                                      "fixed:0",
                                      "fixed:-1",
                                      "fixed: 2",
                                      "fixed:2KiB",
                                      "fixed:2x",
                                      "min_bytes:1KB",
                                      "max_bytes:99999999999999999999",
                                      "foxed:2",
                                      "none:1",
                                      "max_bytes:18014398509481984K"};
    struct ps_placement_spec s;
    struct ps_error e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ps_placement_parse(NULL, bad[i], &s, &e) != PS_INVALID_ARGUMENT)
            fail_msg("took \"%s\"", bad[i]);
        assert_non_null(strstr(e.text, bad[i]));
    }
    assert_int_equal(PS_INVALID_ARGUMENT, ps_placement_parse("gready", NULL, &s, &e));
    assert_string_equal("placement \"gready\" is not one of round_robin, greedy", e.text);
}

static void refused(const char *why, const struct ps_placement_var *v, const char *partitioner, uint32_t tasks)
{
    struct ps_placement_spec s = spec(NULL, partitioner);
    struct ps_partition *p = NULL;
    struct ps_error e = {0};
    size_t n;
    assert_int_not_equal(PS_OK, ps_placement_plan(&s, v, 1, tasks, &p, &n, &e));
    assert_string_equal(why, e.text);
    assert_null(p);
}

static void refuses_variables(void **ctx)
{
    (void)ctx;
    struct ps_placement_var v = var("v", 1 << 20, 1);
    refused("there is no ps task to place variables on", &v, NULL, 0);
    refused("variable v would be cut into 1048576 partitions; a job may have 65536 in all", &v, "max_bytes:4", 2);
    v.rows = 0;
    refused("variable v has no elements", &v, NULL, 1);
    v = var("v", UINT64_C(1) << 40, UINT64_C(1) << 40);
    refused("the bytes of the variables up to v overflow 63 bits", &v, NULL, 1);
    v = var("v", UINT64_C(1) << 60, 1);
    v.slots = 2;
    refused("the bytes of the variables up to v overflow 63 bits", &v, NULL, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_robin_follows_declaration),
        cmocka_unit_test(greedy_balances),
        cmocka_unit_test(greedy_ignores_the_order_of_declaration),
        cmocka_unit_test(slots_count_for_the_load),
        cmocka_unit_test(fixed_cuts_rows_evenly),
        cmocka_unit_test(min_bytes_is_a_floor),
        cmocka_unit_test(max_bytes_is_a_ceiling),
        cmocka_unit_test(nothing_gives_nothing),
        cmocka_unit_test(parses),
        cmocka_unit_test(refuses_specs),
        cmocka_unit_test(refuses_variables),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
