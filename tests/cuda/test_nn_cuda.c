// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device on the emulated GPU: its kernels against the references, in several orders of execution; nothing is
// left behind.
//
// CUDA_SEEDS: how many orders of each, 2 if it is not set.
#include "tests/cuda/emulator.h"
#include "tests/unit/nn_ops/compare.h"
#include "tests/unit/nn_ops/larger.h"
#include "workerd/nn/cuda/module.h"

extern const struct nn_device nn_device_cuda;

// In place of the module's loading.
enum ps_code nn_cuda_load(const struct nn_device **device, struct ps_error *e)
{
    (void)e;
    *device = &nn_device_cuda;
    return PS_OK;
}

static uint64_t seeds(void)
{
    const char *wanted = getenv("CUDA_SEEDS");
    return wanted ? strtoull(wanted, NULL, 10) : 2;
}

static void begin(uint64_t seed)
{
    emu_reset(&(struct emu_config){.seed = seed});
}

static void assert_nothing_left(void)
{
    const struct emu_counts counts = emu_counted();
    assert_int_equal(counts.live_allocations, 0);
    assert_int_equal(counts.live_streams, 0);
    assert_int_equal(counts.live_events, 0);
}

// ---- operators ----------------------------------------------------------------------------------------------------

static void check_case(const struct op_case *c, uint64_t seed)
{
    struct op_run ref, cuda;
    begin(seed);
    run_case(&ref, c, &nn_device_ref, 1);
    run_case(&cuda, c, &nn_device_cuda, 1);
    assert_runs_close(&ref, &cuda);
    op_close(&ref);
    op_close(&cuda);
    assert_nothing_left();
}

static void test_operators(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seeds(); seed++)
        for (size_t f = 0; f < COUNT(families); f++)
            for (size_t i = 0; i < families[f].n; i++)
                check_case(&families[f].cases[i], seed);
}

static void test_larger_operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        check_case(&cases[i], 1);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_larger_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
