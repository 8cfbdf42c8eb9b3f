// SPDX-License-Identifier: Apache-2.0
//
// What a partition costs: counted by hand, at the edges of a block, and where it is more than can be counted. That psd
// asks for the same is tests/unit/test_psd_data.c's and tests/it/psctl_alone.sh's to show.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/plan/cost.h"
#include "common/wire/dtype.h"
#include "common/wire/wire.h"

static void an_async_partition(void **state)
{
    (void)state;
    struct ps_memory m = {0};
    assert_true(ps_memory_add(&m, &(struct ps_memory_part){.count = 1000, .dtype = PS_FLOAT32, .slots = 2}));
    assert_int_equal(m.blocks, 1);
    assert_int_equal(m.values, 4000);
    assert_int_equal(m.slots, 2 * 4032);  // each begins at a multiple of 64
    assert_int_equal(m.rounds, 0);
    assert_int_equal(m.kept, PS_MEMORY_BLOCK + PS_MEMORY_PAGE);
    assert_int_equal(ps_memory_total(&m), 4000 + 2 * 4032 + PS_MEMORY_BLOCK + PS_MEMORY_PAGE);
    assert_int_equal(ps_memory_dedup(&m, 3), 120);
}

static void a_sync_partition_holds_every_workers_gradient(void **state)
{
    (void)state;
    struct ps_memory m = {0};
    const struct ps_memory_part part = {
        .count = 3 * PS_BLOCK_BYTES / 4 + 1, .dtype = PS_FLOAT32, .slots = 1, .round_workers = 5};
    assert_true(ps_memory_add(&m, &part));
    assert_int_equal(m.blocks, 4);
    assert_int_equal(m.values, 4 * part.count);
    assert_int_equal(m.rounds, 5 * m.values);
    assert_int_equal(m.kept, 4 * (PS_MEMORY_BLOCK + PS_MEMORY_PAGE + 5 * (PS_MEMORY_PAGE + PS_MEMORY_GRADIENT)) +
                                 PS_MEMORY_ROUND + 5 * PS_MEMORY_CONTRIBUTION);
    assert_int_equal(ps_memory_dedup(&m, 5), 5 * 4 * 40);
}

static void blocks_end_where_they_should(void **state)
{
    (void)state;
    const uint64_t full = PS_BLOCK_BYTES / 8;
    const uint64_t counts[] = {1, full - 1, full, full + 1, 2 * full, 2 * full + 1}, blocks[] = {1, 1, 1, 2, 2, 3};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct ps_memory m = {0};
        assert_true(ps_memory_add(&m, &(struct ps_memory_part){.count = counts[i], .dtype = PS_FLOAT64}));
        assert_int_equal(m.blocks, blocks[i]);
    }
}

static void a_block_of_strings_is_of_1024(void **state)
{
    (void)state;
    struct ps_memory m = {0};
    assert_true(ps_memory_add(&m, &(struct ps_memory_part){.count = 1025, .dtype = PS_STRING}));
    assert_int_equal(m.blocks, 2);
    assert_int_equal(m.values, 4 * 1025);
}

static void what_cannot_be_counted_changes_nothing(void **state)
{
    (void)state;
    static const struct ps_memory_part much[] = {
        {.count = UINT64_MAX, .dtype = PS_FLOAT32},
        {.count = UINT64_MAX / 4, .dtype = PS_FLOAT32},
        {.count = INT64_MAX / 8, .dtype = PS_FLOAT32, .slots = 2},
        {.count = INT64_MAX / 8, .dtype = PS_FLOAT32, .round_workers = 2},
        {.count = 1, .dtype = PS_FLOAT32, .slots = SIZE_MAX},
        {.count = 1, .dtype = 99},
    };
    struct ps_memory m = {0};
    assert_true(ps_memory_add(&m, &(struct ps_memory_part){.count = 10, .dtype = PS_FLOAT32}));
    uint64_t before = ps_memory_total(&m);
    for (size_t i = 0; i < sizeof much / sizeof *much; i++) {
        assert_false(ps_memory_add(&m, &much[i]));
        assert_int_equal(ps_memory_total(&m), before);
        assert_int_equal(m.blocks, 1);
    }
    // Two that fit alone, and not together.
    const struct ps_memory_part half = {.count = INT64_MAX / 8, .dtype = PS_FLOAT32};
    struct ps_memory two = {0};
    assert_true(ps_memory_add(&two, &half));
    assert_false(ps_memory_add(&two, &half));
}

static void a_job_is_known_to_each_task(void **state)
{
    (void)state;
    struct ps_memory_job j = {.variables = 7, .partitions = 9, .workers = 5, .tasks = 3, .sync = true};
    uint64_t everywhere = PS_MEMORY_JOB + 7 * PS_MEMORY_VARIABLE + 9 * PS_MEMORY_PARTITION + 5 * PS_MEMORY_WORKER;
    assert_int_equal(ps_memory_job(&j), everywhere);
    j.control = true;
    uint64_t control = everywhere + 5 * PS_MEMORY_MEMBER + 3 * PS_MEMORY_TASK;
    assert_int_equal(ps_memory_job(&j), control + 16 * PS_MEMORY_NORM);
    j.sync = false;
    assert_int_equal(ps_memory_job(&j), control);
}

static void memory_is_divided(void **state)
{
    (void)state;
    const uint64_t mib = 1 << 20, gib = 1 << 30;
    assert_int_equal(ps_memory_in_flight(16 * mib), 4 * mib);
    assert_int_equal(ps_memory_in_flight(gib / 2), 64 * mib);
    assert_int_equal(ps_memory_in_flight(4 * gib), gib / 2);
    assert_int_equal(ps_memory_in_flight(64 * gib), gib);
    assert_int_equal(ps_memory_for_blocks(16 * mib), 8 * mib);
    assert_int_equal(ps_memory_for_blocks(64 * mib), 32 * mib);
    assert_int_equal(ps_memory_for_blocks(64 * gib), 64 * gib - gib - gib / 4);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_async_partition),
        cmocka_unit_test(a_sync_partition_holds_every_workers_gradient),
        cmocka_unit_test(blocks_end_where_they_should),
        cmocka_unit_test(a_block_of_strings_is_of_1024),
        cmocka_unit_test(a_job_is_known_to_each_task),
        cmocka_unit_test(memory_is_divided),
        cmocka_unit_test(what_cannot_be_counted_changes_nothing),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
