// SPDX-License-Identifier: Apache-2.0
// The reference operators, in double precision: values worked out by hand, and every gradient against the slope of
// what it is the gradient of.
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

static const struct nn_ops *ops = &nn_ref_ops_double;

// n numbers in [-1, 1), others for every id.
static double *numbers(size_t n, uint64_t id)
{
    double *v = ps_alloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        uint32_t draw[4];
        ps_philox(7, PS_RANDOM_INIT, id, i, draw);
        v[i] = 2.0 * ps_uniform(draw[0]) - 1;
    }
    return v;
}

static double *copy(const double *v, size_t n)
{
    return memcpy(ps_alloc(n * sizeof *v), v, n * sizeof *v);
}

// sum_i a_i * b_i: turns an operator's output into one number, whose gradient with respect to a is b.
static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

// An operator between the numbers it is given and one number that comes out.
struct function {
    double (*value)(const struct function *f);
    const void *shape;
    struct nn_plan *plan;
    double *x, *w, *b, *y, *weight;  // value = sum weight * y
    size_t ny;
};

// p (n) is one of the function's inputs, gradient what the operator said. Central differences.
static void assert_gradient(const char *what, const struct function *f, double *p, const double *gradient, size_t n)
{
    const double h = 1e-5;
    double scale = 0;
    for (size_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(gradient[i]));
    assert_true(scale > 0);
    for (size_t i = 0; i < n; i++) {
        double was = p[i];
        p[i] = was + h;
        double up = f->value(f);
        p[i] = was - h;
        double slope = (up - f->value(f)) / (2 * h);
        p[i] = was;
        if (!(fabs(slope - gradient[i]) <= 1e-7 * scale))
            fail_msg("%s[%zu] is %.12g, the slope is %.12g", what, i, gradient[i], slope);
    }
}

static void assert_numbers(const double *expected, const double *got, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(expected[i] - got[i]) <= 1e-9 * fmax(1, fabs(expected[i]))))
            fail_msg("[%zu]: expected %.12g, got %.12g", i, expected[i], got[i]);
}

// conv2d

static double conv2d_value(const struct function *f)
{
    ops->conv2d_forward(f->plan, f->x, f->w, f->b, f->y);
    return dot(f->y, f->weight, f->ny);
}

static void check_conv2d(const struct nn_conv2d *s)
{
    size_t nx = (size_t)s->n * s->h * s->w * s->c, nw = (size_t)s->kh * s->kw * s->c * s->oc, nb = (size_t)s->oc;
    struct function f = {.value = conv2d_value, .ny = (size_t)s->n * s->oh * s->ow * s->oc};
    struct ps_error e;
    if (ops->conv2d_plan(NULL, s, &f.plan, &e))
        fail_msg("%s", e.text);
    f.x = numbers(nx, 1);
    f.w = numbers(nw, 2);
    f.b = s->bias ? numbers(nb, 3) : NULL;
    f.weight = numbers(f.ny, 4);
    f.y = ps_alloc(f.ny * sizeof *f.y);
    conv2d_value(&f);

    double *dx = numbers(nx, 5), *dw = numbers(nw, 6), *db = s->bias ? numbers(nb, 7) : NULL;
    double *y = copy(f.y, f.ny), *dy = copy(f.weight, f.ny);
    ops->conv2d_backward(f.plan, f.x, f.w, y, dy, dx, dw, db);
    assert_gradient("conv2d dx", &f, f.x, dx, nx);
    assert_gradient("conv2d dw", &f, f.w, dw, nw);
    if (s->bias)
        assert_gradient("conv2d db", &f, f.b, db, nb);

    double *all[] = {f.x, f.w, f.b, f.weight, f.y, dx, dw, db, y, dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    ops->plan_free(f.plan);
}

static void test_conv2d_gradients(void **state)
{
    (void)state;
    const struct nn_conv2d shapes[] = {
        {2, 5, 6, 3, 3, 3, 1, 1, 0, 0, 0, 0, 3, 4, 4, NN_RELU, 1},    // valid
        {2, 5, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 5, 6, 2, NN_LINEAR, 1},  // same
        {1, 6, 5, 2, 2, 2, 1, 1, 0, 0, 1, 1, 6, 5, 3, NN_RELU, 0},    // same, an even kernel: only below, right
        {2, 6, 7, 2, 3, 3, 2, 2, 0, 1, 1, 1, 3, 4, 2, NN_RELU, 1},    // same, strides 2
        {1, 8, 7, 1, 3, 2, 2, 3, 0, 0, 0, 0, 3, 2, 5, NN_LINEAR, 0},  // valid, uneven strides: a row is left over
        {2, 3, 3, 2, 1, 1, 1, 1, 0, 0, 0, 0, 3, 3, 3, NN_RELU, 1},    // 1x1
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_conv2d(&shapes[i]);
}

// Where the kernel lies and how it is laid out.
static void test_conv2d_values(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, w[] = {1, 10, 100, 1000}, b[] = {0.5};
    struct nn_conv2d same = {1, 3, 3, 1, 2, 2, 1, 1, 0, 0, 1, 1, 3, 3, 1, NN_LINEAR, 1};
    const double expected[] = {4310.5, 5421.5, 502.5, 7643.5, 8754.5, 805.5, 76.5, 87.5, 8.5};
    struct nn_plan *plan;
    double y[9];
    assert_int_equal(PS_OK, ops->conv2d_plan(NULL, &same, &plan, NULL));
    ops->conv2d_forward(plan, x, w, b, y);
    assert_numbers(expected, y, 9);
    ops->plan_free(plan);

    // Channels: kernel (in, out).
    struct nn_conv2d point = {1, 1, 1, 2, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 3, NN_RELU, 0};
    const double in[] = {5, -6}, kernel[] = {1, 2, 3, 4, 5, -6};
    assert_int_equal(PS_OK, ops->conv2d_plan(NULL, &point, &plan, NULL));
    ops->conv2d_forward(plan, in, kernel, NULL, y);
    assert_numbers((const double[]){0, 0, 51}, y, 3);
    ops->plan_free(plan);
}

// dense

static double dense_value(const struct function *f)
{
    ops->dense_forward(f->plan, f->x, f->w, f->b, f->y);
    return dot(f->y, f->weight, f->ny);
}

static void check_dense(const struct nn_dense *s)
{
    size_t nx = (size_t)s->n * s->in, nw = (size_t)s->in * s->out, nb = (size_t)s->out;
    struct function f = {.value = dense_value, .ny = (size_t)s->n * s->out};
    assert_int_equal(PS_OK, ops->dense_plan(NULL, s, &f.plan, NULL));
    f.x = numbers(nx, 11);
    f.w = numbers(nw, 12);
    f.b = s->bias ? numbers(nb, 13) : NULL;
    f.weight = numbers(f.ny, 14);
    f.y = ps_alloc(f.ny * sizeof *f.y);
    dense_value(&f);

    double *dx = numbers(nx, 15), *dw = numbers(nw, 16), *db = s->bias ? numbers(nb, 17) : NULL;
    double *y = copy(f.y, f.ny), *dy = copy(f.weight, f.ny);
    ops->dense_backward(f.plan, f.x, f.w, y, dy, dx, dw, db);
    assert_gradient("dense dx", &f, f.x, dx, nx);
    assert_gradient("dense dw", &f, f.w, dw, nw);
    if (s->bias)
        assert_gradient("dense db", &f, f.b, db, nb);

    double *all[] = {f.x, f.w, f.b, f.weight, f.y, dx, dw, db, y, dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    ops->plan_free(f.plan);
}

static void test_dense_gradients(void **state)
{
    (void)state;
    const struct nn_dense shapes[] = {{4, 7, 5, NN_RELU, 1}, {3, 5, 6, NN_LINEAR, 1}, {2, 4, 1, NN_LINEAR, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_dense(&shapes[i]);
}

static void test_dense_values(void **state)
{
    (void)state;
    struct nn_dense s = {1, 2, 3, NN_RELU, 1};
    struct nn_plan *plan;
    double y[3];
    assert_int_equal(PS_OK, ops->dense_plan(NULL, &s, &plan, NULL));
    ops->dense_forward(plan, (const double[]){1, 2}, (const double[]){1, 2, 3, 4, 5, -6}, (const double[]){10, 20, 1},
                       y);
    assert_numbers((const double[]){19, 32, 0}, y, 3);
    ops->plan_free(plan);
}

// maxpool

static uint8_t at[1024];

static double maxpool_value(const struct function *f)
{
    ops->maxpool_forward(f->plan, f->x, f->y, at);
    return dot(f->y, f->weight, f->ny);
}

static void check_maxpool(const struct nn_maxpool *s)
{
    size_t nx = (size_t)s->n * s->h * s->w * s->c;
    struct function f = {.value = maxpool_value, .ny = (size_t)s->n * s->oh * s->ow * s->c};
    assert_true(f.ny <= sizeof at);
    assert_int_equal(PS_OK, ops->maxpool_plan(NULL, s, &f.plan, NULL));
    f.x = numbers(nx, 21);
    f.weight = numbers(f.ny, 22);
    f.y = ps_alloc(f.ny * sizeof *f.y);
    maxpool_value(&f);
    double *dx = numbers(nx, 23);
    ops->maxpool_backward(f.plan, f.weight, at, dx);
    assert_gradient("maxpool dx", &f, f.x, dx, nx);
    free(f.x);
    free(f.y);
    free(f.weight);
    free(dx);
    ops->plan_free(f.plan);
}

static void test_maxpool_gradients(void **state)
{
    (void)state;
    const struct nn_maxpool shapes[] = {
        {2, 6, 4, 3, 2, 2, 2, 2, 0, 0, 3, 2},  // as most have it
        {2, 5, 7, 2, 2, 2, 2, 2, 0, 0, 2, 3},  // valid: the last row and column are left out
        {2, 5, 7, 2, 2, 2, 2, 2, 0, 0, 3, 4},  // same: the last windows reach beyond the image
        {1, 5, 5, 2, 3, 3, 1, 1, 1, 1, 5, 5},  // same, overlapping
        {1, 7, 7, 2, 2, 1, 3, 2, 0, 0, 2, 4},  // strides beyond the window
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_maxpool(&shapes[i]);
}

// The first of equals wins, what lies outside never does.
static void test_maxpool_values(void **state)
{
    (void)state;
    const double x[] = {-1, -1, -2, -3, -1, -2, -5, -4, -3};
    struct nn_maxpool same = {1, 3, 3, 1, 2, 2, 1, 1, 0, 0, 3, 3};
    const uint8_t expected_at[] = {0, 0, 0, 1, 0, 0, 1, 1, 0};
    struct nn_plan *plan;
    double y[9];
    assert_int_equal(PS_OK, ops->maxpool_plan(NULL, &same, &plan, NULL));
    ops->maxpool_forward(plan, x, y, at);
    assert_numbers((const double[]){-1, -1, -2, -1, -1, -2, -4, -3, -3}, y, 9);
    assert_memory_equal(expected_at, at, 9);
    ops->plan_free(plan);
}

// relu and softmax: rows (4) of classes (5)

enum { ROWS = 4, CLASSES = 5 };

static double relu_value(const struct function *f)
{
    ops->relu_forward(f->ny, f->x, f->y);
    return dot(f->y, f->weight, f->ny);
}

static double softmax_value(const struct function *f)
{
    ops->softmax_forward(ROWS, CLASSES, f->x, f->y);
    return dot(f->y, f->weight, f->ny);
}

static void test_relu_and_softmax_gradients(void **state)
{
    (void)state;
    double y[ROWS * CLASSES], dx[ROWS * CLASSES];
    struct function f = {.value = relu_value, .y = y, .ny = ROWS * CLASSES};
    f.x = numbers(f.ny, 31);
    f.weight = numbers(f.ny, 32);
    relu_value(&f);
    ops->relu_backward(f.ny, y, f.weight, dx);
    assert_gradient("relu dx", &f, f.x, dx, f.ny);

    f.value = softmax_value;
    softmax_value(&f);
    ops->softmax_backward(ROWS, CLASSES, y, f.weight, dx);
    assert_gradient("softmax dx", &f, f.x, dx, f.ny);
    free(f.x);
    free(f.weight);
}

static void test_softmax_values(void **state)
{
    (void)state;
    double y[4];
    ops->softmax_forward(2, 2, (const double[]){0, log(3), 1000, -1000}, y);
    assert_numbers((const double[]){0.25, 0.75, 1, 0}, y, 4);
}

// The losses: the mean over the first VALID of ROWS

enum { VALID = 3 };
static const int32_t label[ROWS] = {2, 0, 4, 1};

static double mean_loss(const double *loss)
{
    double sum = 0;
    for (int i = 0; i < VALID; i++)
        sum += loss[i] / VALID;
    return sum;
}

static double xent_value(const struct function *f)
{
    double loss[ROWS];
    if (*(const int *)f->shape)
        ops->softmax_xent(ROWS, VALID, CLASSES, f->x, label, NULL, loss, NULL);
    else
        ops->sparse_xent(ROWS, VALID, CLASSES, f->x, label, loss, NULL);
    return mean_loss(loss);
}

static double mse_value(const struct function *f)
{
    double loss[ROWS];
    ops->mse(ROWS, VALID, CLASSES, f->x, f->weight, loss, NULL);
    return mean_loss(loss);
}

static void test_loss_gradients(void **state)
{
    (void)state;
    size_t n = ROWS * CLASSES;
    double loss[ROWS], *dx = numbers(n, 41);
    for (int from_logits = 0; from_logits < 2; from_logits++) {
        struct function f = {.value = xent_value, .shape = &from_logits, .x = numbers(n, 42)};
        for (size_t i = 0; i < n && !from_logits; i++)
            f.x[i] = 0.5 + 0.4 * f.x[i];  // probabilities, away from where they are clipped
        if (from_logits)
            ops->softmax_xent(ROWS, VALID, CLASSES, f.x, label, NULL, loss, dx);
        else
            ops->sparse_xent(ROWS, VALID, CLASSES, f.x, label, loss, dx);
        assert_gradient(from_logits ? "softmax_xent dx" : "sparse_xent dx", &f, f.x, dx, n);
        free(f.x);
    }
    struct function f = {.value = mse_value, .x = numbers(n, 43), .weight = numbers(n, 44)};
    ops->mse(ROWS, VALID, CLASSES, f.x, f.weight, loss, dx);
    assert_gradient("mse dx", &f, f.x, dx, n);
    free(f.x);
    free(f.weight);
    free(dx);
}

static void test_loss_values(void **state)
{
    (void)state;
    double loss[2], y[4], dx[4];
    ops->softmax_xent(2, 2, 2, (const double[]){0, log(3), 1000, -1000}, (const int32_t[]){0, 1}, y, loss, dx);
    assert_numbers((const double[]){log(4), 2000}, loss, 2);
    assert_numbers((const double[]){0.25, 0.75, 1, 0}, y, 4);
    assert_numbers((const double[]){-0.375, 0.375, 0.5, -0.5}, dx, 4);

    // Clipped to [1e-7, 1 - 1e-7], where the slope is nought.
    ops->sparse_xent(2, 2, 2, (const double[]){0, 1, 0, 1}, (const int32_t[]){0, 1}, loss, dx);
    assert_numbers((const double[]){-log(1e-7), -log1p(-1e-7)}, loss, 2);
    assert_numbers((const double[]){0, 0, 0, 0}, dx, 4);

    // What does not add up to 1 is made to; a NaN is no 0.
    ops->sparse_xent(2, 2, 2, (const double[]){0.25, 0.25, NAN, 0.5}, (const int32_t[]){0, 1}, loss, dx);
    assert_numbers((const double[]){log(2)}, loss, 1);
    assert_numbers((const double[]){-1, 1}, dx, 2);
    assert_true(isnan(loss[1]) && isnan(dx[3]));

    // A row of padding.
    ops->mse(2, 1, 2, (const double[]){1, 2, 5, 5}, (const double[]){0, 4, 0, 0}, loss, dx);
    assert_numbers((const double[]){2.5}, loss, 1);
    assert_numbers((const double[]){1, -2, 0, 0}, dx, 4);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d_gradients),  cmocka_unit_test(test_conv2d_values),
        cmocka_unit_test(test_dense_gradients),   cmocka_unit_test(test_dense_values),
        cmocka_unit_test(test_maxpool_gradients), cmocka_unit_test(test_maxpool_values),
        cmocka_unit_test(test_softmax_values),    cmocka_unit_test(test_relu_and_softmax_gradients),
        cmocka_unit_test(test_loss_gradients),    cmocka_unit_test(test_loss_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
