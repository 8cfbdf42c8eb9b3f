// SPDX-License-Identifier: Apache-2.0
//
// The CUDA module on a GPU (make check-gpu): its kernels against the references; the same bits when they run again.
// Convolutions by cuDNN, where it is there, by its fastest algorithms, and by own kernels.
#include "tests/unit/nn_ops/compare.h"
#include "tests/unit/nn_ops/rounded.h"

// The device, but that its convolutions are these from the start.
static struct {
    const struct nn_device *gpu;
    enum nn_convolutions convolutions;
} chosen;

static enum ps_code open_chosen(int index, int threads, struct nn_context **context, struct ps_error *e)
{
    if (chosen.gpu->open(index, threads, context, e))
        return e->code;
    if (chosen.gpu->set_convolutions(*context, chosen.convolutions, e)) {
        chosen.gpu->close(*context);
        return e->code;
    }
    return PS_OK;
}

static bool is_convolution(const struct nn_op_class *class)
{
    return class == &nn_op_conv2d || class == &nn_op_conv2d_backward_data || class == &nn_op_conv2d_backward_weights;
}

static void print_convolutions(const struct op_run *r)
{
    for (int k = 0; k < nn_program_ops(r->program); k++)
        if (is_convolution(nn_program_op(r->program, k)->class))
            print_message("# %s: %s by %s\n", r->c->name, nn_program_op(r->program, k)->class->name,
                          nn_program_kernel(r->program, k));
}

static void check_on_gpu(const struct nn_device *gpu, const struct op_case *c, bool repeats)
{
    struct op_run ref, one, again;
    run_case(&ref, c, &nn_device_ref, 1);
    run_case(&one, c, gpu, 1);
    run_case(&again, c, gpu, 1);
    assert_runs_close(&ref, &one);
    if (repeats)
        assert_runs_same(&one, &again);
    print_convolutions(&one);
    op_close(&ref);
    op_close(&one);
    op_close(&again);
}

static void check_all(const struct nn_device *gpu, bool convolutions_alone, bool repeats)
{
    for (size_t i = 0; i < COUNT(cases); i++)
        if (!convolutions_alone || is_convolution(cases[i].class))
            check_on_gpu(gpu, &cases[i], repeats);
    for (size_t f = 0; f < COUNT(families); f++)
        for (size_t i = 0; i < families[f].n; i++)
            if (!convolutions_alone || is_convolution(families[f].cases[i].class))
                check_on_gpu(gpu, &families[f].cases[i], repeats);
}

static const struct nn_device *find_gpu(void)
{
    const struct nn_device *gpu;
    struct ps_error e = {0};
    int index;
    if (nn_device_find("gpu", &gpu, &index, &e))
        fail_msg("%s", e.text);
    return gpu;
}

static void test_gpu_is_as_the_reference(void **state)
{
    (void)state;
    check_all(find_gpu(), false, true);
}

static void check_chosen(enum nn_convolutions which)
{
    struct nn_device device = *find_gpu();
    chosen.gpu = find_gpu();
    chosen.convolutions = which;
    device.open = open_chosen;
    check_all(&device, true, which == NN_CONVOLUTIONS_OWN);
}

static void test_own_convolutions(void **state)
{
    (void)state;
    check_chosen(NN_CONVOLUTIONS_OWN);
}

static void test_fastest_convolutions(void **state)
{
    (void)state;
    struct nn_context *context;
    struct ps_error e = {0};
    chosen.gpu = find_gpu();
    chosen.convolutions = NN_CONVOLUTIONS_FASTEST;
    if (open_chosen(0, 1, &context, &e)) {
        print_message("# %s\n", e.text);
        skip();
    }
    chosen.gpu->close(context);
    check_chosen(NN_CONVOLUTIONS_FASTEST);
}

// By tensor cores, where the GPU has them: cuBLAS uses them, too.
static void test_rounded_convolutions(void **state)
{
    const struct op_case dense = DENSE("rounded, dense", 8, 40, 24, NN_LINEAR, 0);
    const bool rounds =
        rounded_distance(&dense, find_gpu(), NN_TENSORFLOAT32) > 10 * rounded_distance(&dense, find_gpu(), NN_FLOAT32);
    (void)state;
    for (size_t i = 0; i < COUNT(rounded_cases); i++) {
        const struct op_case *c = &rounded_cases[i];
        const double whole = rounded_distance(c, find_gpu(), NN_FLOAT32);
        const double rounded = rounded_distance(c, find_gpu(), NN_TENSORFLOAT32);
        print_message("# %s: %g away, by tensor cores %g\n", c->name, whole, rounded);
        if (!(whole < 2e-5 && rounded < 2e-2 && (rounded > 10 * whole) == rounds))
            fail_msg("%s: %g and %g away: expected at most 2e-5, 2e-2, and more than by products", c->name, whole,
                     rounded);
    }
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu_is_as_the_reference), cmocka_unit_test(test_own_convolutions),
        cmocka_unit_test(test_fastest_convolutions), cmocka_unit_test(test_rounded_convolutions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
