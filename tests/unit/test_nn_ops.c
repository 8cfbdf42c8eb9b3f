// SPDX-License-Identifier: Apache-2.0
// The CPU's operators against the reference's: the same numbers over the same shapes, those of the MNIST network among
// them; the same bits on every run; and never one of oneDNN's slow reference implementations.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "common/base/alloc.h"
#include "common/math/philox.h"
#include "workerd/nn/op.h"

static const struct nn_ops *ref = &nn_ref_ops, *cpu = &nn_cpu_ops;

static const struct nn_conv2d conv2d_shapes[] = {
    {64, 28, 28, 1, 3, 3, 1, 1, 0, 0, 0, 0, 26, 26, 32, NN_RELU, 1},   // MNIST, first
    {64, 13, 13, 32, 3, 3, 1, 1, 0, 0, 0, 0, 11, 11, 64, NN_RELU, 1},  // MNIST, second
    {2, 28, 28, 1, 5, 5, 1, 1, 2, 2, 2, 2, 28, 28, 6, NN_LINEAR, 1},   // same
    {3, 7, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 7, 6, 5, NN_RELU, 0},         // odd channels
    {2, 9, 8, 2, 2, 1, 1, 1, 0, 0, 1, 0, 9, 8, 3, NN_LINEAR, 0},       // same: padded below only
    {2, 16, 15, 16, 3, 3, 2, 2, 0, 1, 1, 1, 8, 8, 32, NN_RELU, 1},     // same, strides 2
    {2, 8, 7, 4, 3, 2, 2, 3, 0, 0, 0, 0, 3, 2, 17, NN_RELU, 1},        // valid, uneven strides
    {1, 6, 6, 64, 1, 1, 1, 1, 0, 0, 0, 0, 6, 6, 10, NN_RELU, 1},       // 1x1
};
static const struct nn_dense dense_shapes[] = {
    {64, 1600, 64, NN_RELU, 1},  // MNIST
    {64, 64, 10, NN_LINEAR, 1},  // MNIST, last
    {5, 3, 7, NN_RELU, 0},
    {1, 17, 1, NN_LINEAR, 1},
};
static const struct nn_maxpool maxpool_shapes[] = {
    {64, 26, 26, 32, 2, 2, 2, 2, 0, 0, 13, 13},  // MNIST
    {64, 11, 11, 64, 2, 2, 2, 2, 0, 0, 5, 5},    // MNIST, second: a row and a column are left out
    {2, 5, 7, 3, 2, 2, 2, 2, 0, 0, 3, 4},        // same
    {2, 9, 9, 17, 3, 3, 1, 1, 1, 1, 9, 9},       // same, overlapping
    {1, 7, 7, 1, 2, 1, 3, 2, 0, 0, 2, 4},        // strides beyond the window
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

// n numbers in [-1, 1), others for every id.
static float *numbers(size_t n, uint64_t id)
{
    float *v = ps_alloc_aligned(n * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        uint32_t draw[4];
        ps_philox(7, PS_RANDOM_INIT, id, i, draw);
        v[i] = 2 * ps_uniform(draw[0]) - 1;
    }
    return v;
}

static void assert_close(const char *what, const float *expected, const float *got, size_t n)
{
    float scale = 0;
    for (size_t i = 0; i < n; i++)
        scale = fmaxf(scale, fabsf(expected[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(expected[i] - got[i]) <= 1e-4f * scale))
            fail_msg("%s[%zu]: expected %g, got %g (the largest is %g)", what, i, expected[i], got[i], scale);
}

static struct nn_context *open_device(const struct nn_ops *ops, int threads)
{
    struct nn_context *ctx;
    struct ps_error e;
    if (ops->open(threads, &ctx, &e))
        fail_msg("%s", e.text);
    return ctx;
}

// A layer with weights, what goes into it and what comes out.
struct layer {
    size_t nx, nw, nb, ny;
    float *x, *w, *b, *dy;
};

struct result {
    float *y, *dx, *dw, *db;
};

static struct layer layer_make(size_t nx, size_t nw, size_t nb, size_t ny)
{
    return (struct layer){nx, nw, nb, ny, numbers(nx, 1), numbers(nw, 2), nb ? numbers(nb, 3) : NULL, numbers(ny, 4)};
}

static struct layer conv2d_layer(const struct nn_conv2d *s)
{
    return layer_make((size_t)s->n * s->h * s->w * s->c, (size_t)s->kh * s->kw * s->c * s->oc,
                      s->bias ? (size_t)s->oc : 0, (size_t)s->n * s->oh * s->ow * s->oc);
}

static struct layer dense_layer(const struct nn_dense *s)
{
    return layer_make((size_t)s->n * s->in, (size_t)s->in * s->out, s->bias ? (size_t)s->out : 0,
                      (size_t)s->n * s->out);
}

static void layer_fini(struct layer *l)
{
    free(l->x);
    free(l->w);
    free(l->b);
    free(l->dy);
}

// Filled with what no operator may leave there.
static struct result result_make(const struct layer *l)
{
    return (struct result){numbers(l->ny, 5), numbers(l->nx, 6), numbers(l->nw, 7), l->nb ? numbers(l->nb, 8) : NULL};
}

static void result_fini(struct result *r)
{
    free(r->y);
    free(r->dx);
    free(r->dw);
    free(r->db);
}

typedef void (*forward_fn)(struct nn_plan *p, const float *x, const float *w, const float *b, float *y);
typedef void (*backward_fn)(struct nn_plan *p, const float *x, const float *w, const float *y, float *dy, float *dx,
                            float *dw, float *db);

// y: the forward result to go back from, or NULL for its own. Two devices may round to different sides of a relu.
static struct result layer_run(const struct layer *l, struct nn_plan *plan, forward_fn forward, backward_fn backward,
                               const float *y)
{
    struct result r = result_make(l);
    float *dy = memcpy(ps_alloc_aligned(l->ny * sizeof *dy), l->dy, l->ny * sizeof *dy);
    forward(plan, l->x, l->w, l->b, r.y);
    backward(plan, l->x, l->w, y ? y : r.y, dy, r.dx, r.dw, r.db);
    free(dy);
    return r;
}

static struct result conv2d_run(const struct nn_ops *ops, int threads, const struct nn_conv2d *s, const struct layer *l,
                                const float *y)
{
    struct nn_context *ctx = open_device(ops, threads);
    struct nn_plan *plan;
    struct ps_error e;
    if (ops->conv2d_plan(ctx, s, &plan, &e))
        fail_msg("%s", e.text);
    struct result r = layer_run(l, plan, ops->conv2d_forward, ops->conv2d_backward, y);
    ops->plan_free(plan);
    ops->close(ctx);
    return r;
}

static struct result dense_run(const struct nn_ops *ops, int threads, const struct nn_dense *s, const struct layer *l,
                               const float *y)
{
    struct nn_context *ctx = open_device(ops, threads);
    struct nn_plan *plan;
    struct ps_error e;
    if (ops->dense_plan(ctx, s, &plan, &e))
        fail_msg("%s", e.text);
    struct result r = layer_run(l, plan, ops->dense_forward, ops->dense_backward, y);
    ops->plan_free(plan);
    ops->close(ctx);
    return r;
}

static void assert_results_close(const struct layer *l, const struct result *expected, const struct result *got)
{
    assert_close("y", expected->y, got->y, l->ny);
    assert_close("dx", expected->dx, got->dx, l->nx);
    assert_close("dw", expected->dw, got->dw, l->nw);
    if (l->nb)
        assert_close("db", expected->db, got->db, l->nb);
}

static void assert_results_same(const struct layer *l, const struct result *a, const struct result *b)
{
    assert_memory_equal(a->y, b->y, l->ny * sizeof *a->y);
    assert_memory_equal(a->dx, b->dx, l->nx * sizeof *a->dx);
    assert_memory_equal(a->dw, b->dw, l->nw * sizeof *a->dw);
    if (l->nb)
        assert_memory_equal(a->db, b->db, l->nb * sizeof *a->db);
}

// One thread twice, for the bits, and two threads.
static void test_conv2d(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(conv2d_shapes); i++) {
        const struct nn_conv2d *s = &conv2d_shapes[i];
        struct layer l = conv2d_layer(s);
        struct result expected = conv2d_run(ref, 1, s, &l, NULL);
        struct result one = conv2d_run(cpu, 1, s, &l, expected.y), again = conv2d_run(cpu, 1, s, &l, expected.y);
        struct result two = conv2d_run(cpu, 2, s, &l, expected.y);
        assert_results_close(&l, &expected, &one);
        assert_results_close(&l, &expected, &two);
        assert_results_same(&l, &one, &again);
        result_fini(&expected);
        result_fini(&one);
        result_fini(&again);
        result_fini(&two);
        layer_fini(&l);
    }
}

static void test_dense(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(dense_shapes); i++) {
        const struct nn_dense *s = &dense_shapes[i];
        struct layer l = dense_layer(s);
        struct result expected = dense_run(ref, 1, s, &l, NULL);
        struct result one = dense_run(cpu, 1, s, &l, expected.y), again = dense_run(cpu, 1, s, &l, expected.y);
        struct result two = dense_run(cpu, 2, s, &l, expected.y);
        assert_results_close(&l, &expected, &one);
        assert_results_close(&l, &expected, &two);
        assert_results_same(&l, &one, &again);
        result_fini(&expected);
        result_fini(&one);
        result_fini(&again);
        result_fini(&two);
        layer_fini(&l);
    }
}

// The first layer of a network asks for no dx; the other gradients are the same without it.
static void test_without_dx(void **state)
{
    (void)state;
    const struct nn_conv2d *s = &conv2d_shapes[3];
    struct layer l = conv2d_layer(s);
    struct result with = conv2d_run(cpu, 1, s, &l, NULL), without = result_make(&l);
    struct nn_context *ctx = open_device(cpu, 1);
    struct nn_plan *plan;
    assert_int_equal(PS_OK, cpu->conv2d_plan(ctx, s, &plan, NULL));
    cpu->conv2d_backward(plan, l.x, l.w, with.y, l.dy, NULL, without.dw, without.db);
    assert_memory_equal(with.dw, without.dw, l.nw * sizeof *with.dw);
    cpu->plan_free(plan);
    cpu->close(ctx);
    result_fini(&with);
    result_fini(&without);
    layer_fini(&l);
}

// Where a primitive has no fast implementation it takes a hundred times as long.
static void test_no_slow_implementation(void **state)
{
    (void)state;
    struct nn_context *ctx = open_device(cpu, 1);
    for (size_t i = 0; i < COUNT(conv2d_shapes); i++) {
        struct nn_plan *plan;
        assert_int_equal(PS_OK, cpu->conv2d_plan(ctx, &conv2d_shapes[i], &plan, NULL));
        const char *info = cpu->plan_info(plan);
        assert_non_null(strstr(info, "fwd="));
        assert_non_null(strstr(info, "bwd_d="));
        assert_non_null(strstr(info, "bwd_w="));
        if (strstr(info, "ref"))
            fail_msg("shape %zu: %s", i, info);
        cpu->plan_free(plan);
    }
    cpu->close(ctx);
}

static void check_maxpool(const struct nn_maxpool *s)
{
    size_t nx = (size_t)s->n * s->h * s->w * s->c, ny = (size_t)s->n * s->oh * s->ow * s->c;
    struct nn_context *ref_ctx = open_device(ref, 1), *cpu_ctx = open_device(cpu, 1);
    struct nn_plan *ref_plan, *cpu_plan;
    assert_int_equal(PS_OK, ref->maxpool_plan(ref_ctx, s, &ref_plan, NULL));
    assert_int_equal(PS_OK, cpu->maxpool_plan(cpu_ctx, s, &cpu_plan, NULL));
    assert_null(strstr(cpu->plan_info(cpu_plan), "ref"));

    float *x = numbers(nx, 1), *dy = numbers(ny, 2), *y = numbers(ny, 3), *dx = numbers(nx, 4);
    float *expected_y = numbers(ny, 5), *expected_dx = numbers(nx, 6);
    uint8_t *at = ps_alloc(ny), *expected_at = ps_alloc(ny);
    for (size_t i = 0; i < nx; i++)
        x[i] = roundf(4 * x[i]);  // coarse, so that there are equals
    ref->maxpool_forward(ref_plan, x, expected_y, expected_at);
    cpu->maxpool_forward(cpu_plan, x, y, at);
    assert_memory_equal(expected_y, y, ny * sizeof *y);
    assert_memory_equal(expected_at, at, ny);
    ref->maxpool_backward(ref_plan, dy, at, expected_dx);
    cpu->maxpool_backward(cpu_plan, dy, at, dx);
    assert_close("dx", expected_dx, dx, nx);

    void *all[] = {x, dy, y, dx, expected_y, expected_dx, at, expected_at};
    for (size_t i = 0; i < COUNT(all); i++)
        free(all[i]);
    ref->plan_free(ref_plan);
    cpu->plan_free(cpu_plan);
    ref->close(ref_ctx);
    cpu->close(cpu_ctx);
}

static void test_maxpool(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(maxpool_shapes); i++)
        check_maxpool(&maxpool_shapes[i]);
}

static void test_relu(void **state)
{
    (void)state;
    enum { N = 1003 };
    float *x = numbers(N, 1), *dy = numbers(N, 2), expected[N], y[N];
    x[5] = 0;
    ref->relu_forward(N, x, expected);
    cpu->relu_forward(N, x, y);
    assert_memory_equal(expected, y, sizeof y);
    ref->relu_backward(N, y, dy, expected);
    cpu->relu_backward(N, y, dy, dy);  // in place
    assert_memory_equal(expected, dy, sizeof expected);
    free(x);
    free(dy);
}

// A NaN is no 0, alone or after a convolution or a dense layer.
static void check_relu_nan(const struct nn_ops *ops)
{
    const float x[3] = {NAN, -1, 1}, w[1] = {1}, b[1] = {0};
    float y[3];
    struct nn_context *ctx = open_device(ops, 1);
    struct nn_plan *conv2d, *dense;
    ops->relu_forward(3, x, y);
    assert_true(isnan(y[0]) && y[1] == 0 && y[2] == 1);
    const struct nn_conv2d point = {1, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 3, 1, 1, NN_RELU, 1};
    assert_int_equal(PS_OK, ops->conv2d_plan(ctx, &point, &conv2d, NULL));
    ops->conv2d_forward(conv2d, x, w, b, y);
    assert_true(isnan(y[0]) && !(y[1] > 0) && y[1] > -1e-20f && y[2] == 1);
    const struct nn_dense one = {3, 1, 1, NN_RELU, 1};
    assert_int_equal(PS_OK, ops->dense_plan(ctx, &one, &dense, NULL));
    ops->dense_forward(dense, x, w, b, y);
    assert_true(isnan(y[0]) && y[1] == 0 && y[2] == 1);
    ops->plan_free(conv2d);
    ops->plan_free(dense);
    ops->close(ctx);
}

// The first NaN of a window is its maximum.
static void check_maxpool_nan(const struct nn_ops *ops)
{
    const float x[8] = {NAN, 1, 2, NAN, 3, NAN, NAN, 4};
    float y[4];
    uint8_t at[4];
    struct nn_context *ctx = open_device(ops, 1);
    struct nn_plan *plan;
    assert_int_equal(PS_OK,
                     ops->maxpool_plan(ctx, &(struct nn_maxpool){1, 8, 1, 1, 2, 1, 2, 1, 0, 0, 4, 1}, &plan, NULL));
    ops->maxpool_forward(plan, x, y, at);
    for (int i = 0; i < 4; i++)
        assert_true(isnan(y[i]));
    assert_memory_equal(at, ((uint8_t[]){0, 1, 1, 0}), 4);
    ops->plan_free(plan);
    assert_int_equal(PS_OK,
                     ops->maxpool_plan(ctx, &(struct nn_maxpool){1, 8, 1, 1, 8, 1, 8, 1, 0, 0, 1, 1}, &plan, NULL));
    ops->maxpool_forward(plan, x, y, at);
    assert_true(isnan(y[0]) && at[0] == 0);
    ops->plan_free(plan);
    ops->close(ctx);
}

static void test_nan_goes_on(void **state)
{
    (void)state;
    const struct nn_ops *tables[] = {ref, cpu};
    for (size_t i = 0; i < COUNT(tables); i++) {
        check_relu_nan(tables[i]);
        check_maxpool_nan(tables[i]);
    }
}

// Shapes that begin in the midst of a block of draws and that need several batches of them; and far examples.
static void test_dropout_same_bits(void **state)
{
    (void)state;
    const uint64_t example[] = {3, 0, UINT64_C(1) << 40, 17};
    const int per[] = {1, 7, 64, 1601};
    float *x = numbers(4 * 1601, 1), *expected = numbers(4 * 1601, 2), *y = numbers(4 * 1601, 3);
    for (size_t i = 0; i < COUNT(per); i++) {
        size_t n = 4 * (size_t)per[i];
        ref->dropout(4, per[i], example, 0.3f, 99, 2, 11, x, expected);
        cpu->dropout(4, per[i], example, 0.3f, 99, 2, 11, x, y);
        assert_memory_equal(expected, y, n * sizeof *y);
    }
    free(x);
    free(expected);
    free(y);
}

// What is kept: about 1 - rate, scaled; another choice at the next step and in another layer; all of it at rate 0.
static void test_dropout_mask(void **state)
{
    (void)state;
    enum { N = 10000 };
    const uint64_t example = 1;
    static float x[N], y[N], next[N], other[N];
    int kept = 0;
    for (int i = 0; i < N; i++)
        x[i] = 1;
    cpu->dropout(1, N, &example, 0.25f, 1, 1, 1, x, y);
    for (int i = 0; i < N; i++) {
        assert_true(y[i] == 0 || fabsf(y[i] - 4.0f / 3) < 1e-6f);
        kept += y[i] != 0;
    }
    assert_in_range(kept, 7350, 7650);
    cpu->dropout(1, N, &example, 0.25f, 1, 1, 2, x, next);
    cpu->dropout(1, N, &example, 0.25f, 1, 2, 1, x, other);
    assert_memory_not_equal(y, next, sizeof y);
    assert_memory_not_equal(y, other, sizeof y);
    cpu->dropout(1, N, &example, 0, 1, 1, 1, x, y);
    assert_memory_equal(x, y, sizeof y);
}

// Rows of fewer and of more classes than a vector has, labels whose probability is no float any more, and padding.
static void test_softmax_xent(void **state)
{
    (void)state;
    enum { ROWS = 7, VALID = 5, MOST = 1003 };
    static const int classes[] = {2, 10, 32, 33, MOST};
    float *x = numbers(ROWS * MOST, 1), *expected_y = numbers(ROWS * MOST, 2), *expected_dx = numbers(ROWS * MOST, 3);
    float *y = numbers(ROWS * MOST, 2), *dx = numbers(ROWS * MOST, 4), expected[ROWS], loss[ROWS];
    for (int i = 0; i < ROWS * MOST; i++)
        x[i] *= i % 3 ? 5 : 200;
    for (size_t k = 0; k < COUNT(classes); k++) {
        size_t n = (size_t)ROWS * (size_t)classes[k];
        const int32_t label[VALID] = {0, 1, classes[k] - 1, classes[k] / 2, 1};
        ref->softmax_xent(ROWS, VALID, classes[k], x, label, expected_y, expected, expected_dx);
        cpu->softmax_xent(ROWS, VALID, classes[k], x, label, y, loss, dx);
        assert_close("loss", expected, loss, VALID);
        assert_close("y", expected_y, y, n);
        assert_close("dx", expected_dx, dx, n);
        cpu->softmax_xent(ROWS, VALID, classes[k], x, label, NULL, loss, dx);
        assert_close("loss alone", expected, loss, VALID);
        assert_close("dx without y", expected_dx, dx, n);
    }
    float *all[] = {x, expected_y, expected_dx, y, dx};
    for (size_t i = 0; i < COUNT(all); i++)
        free(all[i]);
}

static void check_xent_nonfinite(const struct nn_ops *ops)
{
    float y[9], loss[3], dx[9];
    const float x[9] = {1, NAN, 2, -INFINITY, 3, 3, INFINITY, 0, 0};
    ops->softmax_xent(3, 3, 3, x, (const int32_t[]){0, 1, 0}, y, loss, dx);
    for (int i = 0; i < 3; i++)
        assert_true(isnan(y[i]) && isnan(dx[i]) && isnan(y[6]));
    assert_true(isnan(loss[0]) && isnan(loss[2]));
    assert_true(y[3] == 0 && y[4] == 0.5f && fabsf(loss[1] - logf(2)) < 1e-6f);
}

// A NaN goes on, an impossible class has probability 0.
static void test_softmax_xent_nonfinite(void **state)
{
    (void)state;
    check_xent_nonfinite(ref);
    check_xent_nonfinite(cpu);
}

// Both tables refuse sizes that do not follow from each other, and say which.
static void test_refused_shapes(void **state)
{
    (void)state;
    const struct nn_ops *tables[] = {ref, cpu};
    for (size_t i = 0; i < COUNT(tables); i++) {
        const struct nn_ops *ops = tables[i];
        struct nn_context *ctx = open_device(ops, 1);
        struct nn_conv2d conv2d = conv2d_shapes[0];
        struct nn_dense dense = dense_shapes[0];
        struct nn_maxpool maxpool = maxpool_shapes[0], wide = maxpool_shapes[0];
        conv2d.oh = 27;
        dense.in = 0;
        maxpool.oh = 14;
        wide.ph = wide.pw = 17;
        struct nn_plan *plan;
        struct ps_error e;
        assert_int_equal(PS_INVALID_ARGUMENT, ops->conv2d_plan(ctx, &conv2d, &plan, &e));
        assert_non_null(strstr(e.text, "output is 27x26, expected 26x26"));
        assert_int_equal(PS_INVALID_ARGUMENT, ops->dense_plan(ctx, &dense, &plan, &e));
        assert_int_equal(PS_INVALID_ARGUMENT, ops->maxpool_plan(ctx, &maxpool, &plan, &e));
        assert_non_null(strstr(e.text, "outside the image of 26x26"));
        assert_int_equal(PS_UNIMPLEMENTED, ops->maxpool_plan(ctx, &wide, &plan, &e));
        ops->close(ctx);
    }
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_without_dx),
        cmocka_unit_test(test_no_slow_implementation),
        cmocka_unit_test(test_maxpool),
        cmocka_unit_test(test_relu),
        cmocka_unit_test(test_nan_goes_on),
        cmocka_unit_test(test_dropout_same_bits),
        cmocka_unit_test(test_dropout_mask),
        cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_softmax_xent_nonfinite),
        cmocka_unit_test(test_refused_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
