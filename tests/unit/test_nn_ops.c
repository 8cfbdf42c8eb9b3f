// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels against the references: the same numbers over the same shapes, those of the MNIST network among
// them; the same bits on every run; and never one of oneDNN's slow reference implementations.
#include "tests/unit/nn_ops/compare.h"
#include "tests/unit/nn_ops/families.h"
#include "tests/unit/nn_ops/larger.h"
#include "workerd/nn/cpu/conv2d_pool.h"
#include "workerd/nn/cpu/vector.h"

#include <float.h>

// Does no library compute it?
static bool is_own(const struct op_run *r)
{
    char *info = nn_program_info(r->program), *save = NULL;
    bool own = true;
    for (char *line = strtok_r(info, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *kernel = strrchr(line, ' ') + 1;
        own &= strcmp(kernel, "own") == 0 || strcmp(kernel, "reference") == 0;
    }
    free(info);
    return own;
}

// Of numbers whose sums depend on their order: what is our own has the same bits on any number of threads.
static void check_threads(const struct op_case *c)
{
    static const int threads[] = {1, 2, 5};
    struct op_run r[COUNT(threads)];
    for (size_t k = 0; k < COUNT(threads); k++) {
        op_open(&r[k], c, &nn_device_cpu, threads[k]);
        op_fill(&r[k], false);
        op_go(&r[k]);
        assert_runs_same(&r[0], &r[k]);
    }
    for (size_t k = 0; k < COUNT(threads); k++)
        op_close(&r[k]);
}

// One thread twice, for the bits; two threads and five.
static void check_cpu(const struct op_case *c)
{
    struct op_run ref, one, again, two, five;
    run_case(&ref, c, &nn_device_ref, 1);
    run_case(&one, c, &nn_device_cpu, 1);
    run_case(&again, c, &nn_device_cpu, 1);
    run_case(&two, c, &nn_device_cpu, 2);
    run_case(&five, c, &nn_device_cpu, 5);
    assert_runs_close(&ref, &one);
    assert_runs_close(&ref, &two);
    assert_runs_close(&ref, &five);
    assert_runs_same(&one, &again);
    if (is_own(&one))
        check_threads(c);
    struct op_run *all[] = {&ref, &one, &again, &two, &five};
    for (size_t k = 0; k < COUNT(all); k++)
        op_close(all[k]);
}

static void test_cpu_is_as_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        check_cpu(&cases[i]);
    for (size_t f = 0; f < COUNT(families); f++)
        for (size_t i = 0; i < families[f].n; i++)
            check_cpu(&families[f].cases[i]);
}

// The vectors of other processors.
static void test_narrower_vectors(void **state)
{
    (void)state;
    for (int widest = 8; widest >= 4; widest /= 2) {
        conv2d_pool_widest = widest;
        for (size_t i = 0; i < COUNT(fused_cases); i++)
            check_cpu(&fused_cases[i]);
    }
    conv2d_pool_widest = 16;
}

// Up to the greatest float and down to the least.
static void test_vector_exponential(void **state)
{
    (void)state;
    for (float x = -87; x < 120; x += 0.0625f) {
        double expected = exp(x), far = fabs(vector_exp(x) - expected) / expected;
        if (expected > FLT_MAX ? vector_exp(x) != INFINITY : !(far < 1e-6))
            fail_msg("exp(%g): %g, expected %g", (double)x, (double)vector_exp(x), expected);
    }
    assert_true(vector_exp(-INFINITY) == 0 && vector_exp(INFINITY) == INFINITY && isnan(vector_exp(NAN)));
}

// Where a primitive has no fast implementation it takes a hundred times as long; the same goes for our own references
// of what trains.
static void check_fast(const struct op_case *c)
{
    struct op_run r;
    op_open(&r, c, &nn_device_cpu, 1);
    char *info = nn_program_info(r.program);
    if (strstr(info, " ref"))
        fail_msg("%s: %s", c->name, info);
    free(info);
    op_close(&r);
}

static void test_no_slow_implementation(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        if (cases[i].class != &nn_op_softmax)  // seen by the last layer alone
            check_fast(&cases[i]);
    for (size_t i = 0; i < COUNT(spatial_cases); i++)
        check_fast(&spatial_cases[i]);
}

// The first layer of a network asks for no dx, a frozen one for no gradient: what is asked for is the same without.
static void test_only_what_is_wanted(void **state)
{
    (void)state;
    struct op_case without = cases[3];
    struct op_run a, b;
    without.learns[0] = false;
    run_case(&a, &cases[3], &nn_device_cpu, 1);
    run_case(&b, &without, &nn_device_cpu, 1);
    assert_memory_equal(a.grad[1], b.grad[1], nn_type_bytes(&without.in[1]));
    char *all = nn_program_info(a.program), *fewer = nn_program_info(b.program);
    assert_true(strstr(all, "conv2d_backward_data") && !strstr(fewer, "conv2d_backward_data"));
    free(all);
    free(fewer);
    op_close(&a);
    op_close(&b);
}

static void check_nan(const struct nn_device *device)
{
    const struct op_case relu = {"relu", &nn_op_relu, NULL, 0, 1, 1, {FLOATS(1, 4)}, {true}};
    const struct op_case pairs = POOL("pairs", 1, 8, 1, 1, 2, 1, 2, 1, 0, 0, 4, 1);
    const struct op_case one = POOL("one window", 1, 8, 1, 1, 8, 1, 8, 1, 0, 0, 1, 1);
    const float x[8] = {NAN, 1, 2, NAN, 3, NAN, NAN, 4};
    struct op_run r;
    op_open(&r, &relu, device, 1);
    memcpy(r.in[0], (float[]){NAN, -1, 0, 2}, 4 * sizeof(float));
    memcpy(r.dy, (float[]){1, 1, 1, 1}, 4 * sizeof(float));
    op_go(&r);
    assert_true(isnan(op_out(&r, 0)[0]) && op_out(&r, 0)[1] == 0 && op_out(&r, 0)[3] == 2);
    assert_true(r.grad[0][1] == 0 && r.grad[0][2] == 0 && r.grad[0][3] == 1);
    op_close(&r);
    op_open(&r, &pairs, device, 1);
    op_fill(&r, true);
    memcpy(r.in[0], x, sizeof x);
    op_go(&r);
    for (int i = 0; i < 4; i++)
        assert_true(isnan(op_out(&r, 0)[i]));
    assert_memory_equal(op_out(&r, 1), ((uint8_t[]){0, 1, 1, 0}), 4);
    op_close(&r);
    op_open(&r, &one, device, 1);
    op_fill(&r, true);
    memcpy(r.in[0], x, sizeof x);
    op_go(&r);
    assert_true(isnan(op_out(&r, 0)[0]) && *(const uint8_t *)op_out(&r, 1) == 0);
    op_close(&r);
}

// With the relu that a convolution or a dense layer computes itself; what it cuts off is nothing at all.
static void check_fused_nan(const struct op_case *c, const struct nn_device *device)
{
    struct op_run r;
    op_open(&r, c, device, 1);
    op_fill(&r, true);
    memcpy(r.in[0], (float[]){NAN, -1, 0, 2}, 4 * sizeof(float));
    *(float *)r.in[1] = 1;
    op_go(&r);
    assert_true(isnan(op_out(&r, 0)[0]));
    assert_true(op_out(&r, 0)[1] == 0 && op_out(&r, 0)[2] == 0 && op_out(&r, 0)[3] == 2);
    op_close(&r);
}

static void test_nan_goes_on(void **state)
{
    (void)state;
    const struct op_case conv2d = CONV("conv2d", 1, 4, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, NN_RELU, 0);
    const struct op_case dense = DENSE("dense", 4, 1, 1, NN_RELU, 0);
    const struct nn_device *const devices[] = {&nn_device_ref, &nn_device_cpu};
    for (size_t i = 0; i < COUNT(devices); i++) {
        check_nan(devices[i]);
        check_nan_target(devices[i]);
        check_fused_nan(&conv2d, devices[i]);
        check_fused_nan(&dense, devices[i]);
    }
}

static void test_fan_out(void **state)
{
    (void)state;
    check_fan_out(&nn_device_ref);
    check_fan_out(&nn_device_cpu);
}

static void drop(struct op_run *r, uint32_t step, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((float *)r->in[0])[i] = 1;
    *(uint64_t *)r->in[1] = 1;
    r->step = (struct nn_step){1, step};
    op_go(r);
    memcpy(y, op_out(r, 0), n * sizeof *y);
}

// What is kept: about 1 - rate, scaled; another choice at the next step and in another layer; all of it at rate 0.
static void test_dropout_mask(void **state)
{
    (void)state;
    enum { N = 10000 };
    static float y[N], next[N], other[N], all[N];
    int kept = 0;
    const struct nn_type types[2] = {FLOATS(2, 1, N), {NN_UINT64, 1, {1}}};
    const struct nn_dropout attrs[] = {{0.25f, 1}, {0.25f, 2}, {0, 1}};
    float *const to[] = {y, other, all};
    for (int i = 0; i < 3; i++) {
        struct op_case c = {"mask", &nn_op_dropout, &attrs[i], sizeof attrs[i], 2, 1, {types[0], types[1]}, {false}};
        struct op_run r;
        op_open(&r, &c, &nn_device_cpu, 1);
        drop(&r, 1, to[i], N);
        if (i == 0)
            drop(&r, 2, next, N);
        op_close(&r);
    }
    for (int i = 0; i < N; i++) {
        assert_true(y[i] == 0 || fabsf(y[i] - 4.0f / 3) < 1e-6f);
        assert_true(all[i] == 1);
        kept += y[i] != 0;
    }
    assert_in_range(kept, 7350, 7650);
    assert_memory_not_equal(y, next, sizeof y);
    assert_memory_not_equal(y, other, sizeof y);
}

enum { ROWS = 5 };

static void xent_open(struct op_run *r, struct op_case *c, const struct nn_loss_outputs *attr, int classes,
                      const struct nn_device *device)
{
    *c = (struct op_case){.name = "softmax_xent",
                          .class = &nn_op_softmax_xent,
                          .attr = attr,
                          .attr_bytes = sizeof *attr,
                          .n_in = 3,
                          .n_out = 1 + attr->probabilities + attr->gradient,
                          .in = {FLOATS(2, ROWS, classes), {NN_INT32, 1, {ROWS}}, FLOATS(1, ROWS)}};
    op_open(r, c, device, 1);
    op_fill(r, false);
    float *x = r->in[0];
    for (int i = 0; i < ROWS * classes; i++)
        x[i] *= i % 3 ? 5 : 200;
    for (int i = 0; i < ROWS; i++)
        ((float *)r->in[2])[i] = i == 3 ? 0 : 0.25f;
}

// Rows of fewer and of more classes than a vector has, labels whose probability is no float any more.
static void test_softmax_xent(void **state)
{
    (void)state;
    static const int classes[] = {2, 10, 32, 33, 1003};
    static const struct nn_loss_outputs outputs[] = {{true, true}, {true, false}, {false, true}, {false, false}};
    for (size_t k = 0; k < COUNT(classes) * COUNT(outputs); k++) {
        const struct nn_loss_outputs *attr = &outputs[k / COUNT(classes)];
        struct op_case a, b;
        struct op_run ref, cpu;
        xent_open(&ref, &a, attr, classes[k % COUNT(classes)], &nn_device_ref);
        xent_open(&cpu, &b, attr, classes[k % COUNT(classes)], &nn_device_cpu);
        op_go(&ref);
        op_go(&cpu);
        for (int i = 0; i < a.n_out; i++)
            assert_close(a.name, "output", op_out(&ref, i), op_out(&cpu, i), nn_type_count(&ref.type[i]));
        op_close(&ref);
        op_close(&cpu);
    }
}

static void check_xent_nonfinite(const struct nn_device *device)
{
    static const struct nn_loss_outputs both = {true, true};
    struct op_case c;
    struct op_run r;
    xent_open(&r, &c, &both, 3, device);
    memcpy(r.in[0], (float[]){1, NAN, 2, -INFINITY, 3, 3, INFINITY, 0, 0}, 9 * sizeof(float));
    memcpy(r.in[1], (int32_t[]){0, 1, 0}, 3 * sizeof(int32_t));
    op_go(&r);
    const float *loss = op_out(&r, 0), *y = op_out(&r, 1), *dx = op_out(&r, 2);
    for (int i = 0; i < 3; i++)
        assert_true(isnan(y[i]) && isnan(dx[i]) && isnan(y[6]));
    assert_true(isnan(loss[0]) && isnan(loss[2]));
    assert_true(y[3] == 0 && y[4] == 0.5f && fabsf(loss[1] - logf(2)) < 1e-6f);
    op_close(&r);
}

// A NaN goes on, an impossible class has probability 0.
static void test_softmax_xent_nonfinite(void **state)
{
    (void)state;
    check_xent_nonfinite(&nn_device_ref);
    check_xent_nonfinite(&nn_device_cpu);
}

// Sizes that do not follow from each other.
static void test_refused_shapes(void **state)
{
    (void)state;
    const struct {
        struct op_case c;
        const char *text;
    } bad[] = {
        {CONV("k", 1, 2, 2, 1, 3, 3, 1, 1, 0, 0, 0, 0, 1, NN_RELU, 0), "a kernel of 3x3 does not fit an image of 2x2"},
        {{"d", &nn_op_dense, ATTR((struct nn_dense){NN_LINEAR, false}), 2, 1, {FLOATS(2, 4, 5), FLOATS(2, 6, 7)}, {0}},
         "dense: the kernel is not as long"},
        {POOL("p", 1, 26, 26, 1, 2, 2, 2, 2, 0, 0, 14, 13), "lies outside the image of 26"},
        {POOL("p", 1, 26, 26, 1, 65536, 65536, 2, 2, 0, 0, 1, 1), "expected at most 2147483647 cells"},
        {SPATIAL_CONV("g", 1, 5, 5, 4, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0, 2, 5, NN_LINEAR, 0), "not as its attributes say"},
        {SPATIAL_CONV("w", 1, 5, 5, 1, 3, 3, 1, 1, 3, 1, 0, 0, 0, 0, 1, 1, NN_LINEAR, 0), "a kernel of 3x3 does not"},
        {SPATIAL_TRANSPOSE("t", 1, 3, 4, 3, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0, 6, 6, 2), "not as its attributes say"},
        {SPATIAL_POOL("a", &nn_op_avgpool, 1, 1, 6, 6, 1, 2, 2, 2, 2, 2, 0, 4, 3), "lies outside the image of 6"},
        {SPATIAL_PAD("f", 1, 3, 3, 1, -3, 0, 0, 3), "a frame of 1x1"},
        {SPATIAL_RESIZE("u", 1, 3, 3, 1, 0, 3, false), "the size that it says"},
        {{"a", &nn_op_add, NULL, 0, 2, 1, {FLOATS(2, 4, 5), FLOATS(2, 5, 4)}, {0}}, "tensors of one shape"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct op_run r;
        struct ps_error e = {0};
        assert_int_equal(op_try_open(&r, &bad[i].c, &nn_device_ref, 1, &e), PS_INVALID_ARGUMENT);
        if (!strstr(e.text, bad[i].text) || !strstr(e.text, bad[i].c.name))
            fail_msg("%s", e.text);
    }
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_is_as_the_reference),
        cmocka_unit_test(test_narrower_vectors),
        cmocka_unit_test(test_vector_exponential),
        cmocka_unit_test(test_no_slow_implementation),
        cmocka_unit_test(test_only_what_is_wanted),
        cmocka_unit_test(test_nan_goes_on),
        cmocka_unit_test(test_fan_out),
        cmocka_unit_test(test_dropout_mask),
        cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_softmax_xent_nonfinite),
        cmocka_unit_test(test_refused_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
