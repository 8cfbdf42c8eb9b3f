// SPDX-License-Identifier: Apache-2.0
//
// The CUDA module on a GPU (make check-gpu): its kernels against the references; the same bits when they run again.
#include "tests/unit/nn_ops/compare.h"
#include "tests/unit/nn_ops/larger.h"

static void check_on_gpu(const struct nn_device *gpu, const struct op_case *c)
{
    struct op_run ref, one, again;
    run_case(&ref, c, &nn_device_ref, 1);
    run_case(&one, c, gpu, 1);
    run_case(&again, c, gpu, 1);
    assert_runs_close(&ref, &one);
    assert_runs_same(&one, &again);
    op_close(&ref);
    op_close(&one);
    op_close(&again);
}

static void test_gpu_is_as_the_reference(void **state)
{
    const struct nn_device *gpu;
    struct ps_error e = {0};
    int index;
    (void)state;
    if (nn_device_find("gpu", &gpu, &index, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < COUNT(cases); i++)
        check_on_gpu(gpu, &cases[i]);
    for (size_t f = 0; f < COUNT(families); f++)
        for (size_t i = 0; i < families[f].n; i++)
            check_on_gpu(gpu, &families[f].cases[i]);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpu_is_as_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
