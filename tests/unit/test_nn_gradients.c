// SPDX-License-Identifier: Apache-2.0
// The references, in double precision: values worked out by hand, and every gradient against the slope of what it is
// the gradient of.
#include "tests/unit/nn_ops/families.h"
#include "workerd/nn/ops/losses.h"

// x (n, h, w, c), kernel (kh, kw, oc), strides, padding.
#define CONV(n, h, w, c, kh, kw, sh, sw, pt, pl, pb, pr, oc, act, bias)                                               \
    {                                                                                                                 \
        "conv2d", &nn_op_conv2d,                                                                                      \
            ATTR((struct nn_conv2d){{h, w}, {kh, kw}, {sh, sw}, {pt, pl}, {pb, pr}, act, bias, {1, 1}, 1}), 2 + bias, \
            1, {FLOATS(4, n, h, w, c), FLOATS(4, kh, kw, c, oc), FLOATS(1, oc)},                                      \
        {                                                                                                             \
            true, true, bias                                                                                          \
        }                                                                                                             \
    }
#define DENSE(n, in, out, act, bias)                                            \
    {                                                                           \
        "dense", &nn_op_dense, ATTR((struct nn_dense){act, bias}), 2 + bias, 1, \
            {FLOATS(2, n, in), FLOATS(2, in, out), FLOATS(1, out)},             \
        {                                                                       \
            true, true, bias                                                    \
        }                                                                       \
    }
#define POOL(n, h, w, c, ph, pw, sh, sw, pt, pl, oh, ow)                                                           \
    {                                                                                                              \
        "maxpool", &nn_op_maxpool, ATTR((struct nn_pool2d){{h, w}, {ph, pw}, {sh, sw}, {pt, pl}, {oh, ow}}), 1, 2, \
            {FLOATS(4, n, h, w, c)},                                                                               \
        {                                                                                                          \
            true                                                                                                   \
        }                                                                                                          \
    }

static const struct op_case cases[] = {
    CONV(2, 5, 6, 3, 3, 3, 1, 1, 0, 0, 0, 0, 4, NN_RELU, 1),    // valid
    CONV(2, 5, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 2, NN_LINEAR, 1),  // same
    CONV(1, 6, 5, 2, 2, 2, 1, 1, 0, 0, 1, 1, 3, NN_RELU, 0),    // same, an even kernel: only below, right
    CONV(2, 6, 7, 2, 3, 3, 2, 2, 0, 1, 1, 1, 2, NN_RELU, 1),    // same, strides 2
    CONV(1, 8, 7, 1, 3, 2, 2, 3, 0, 0, 0, 0, 5, NN_LINEAR, 0),  // valid, uneven strides: a row is left over
    CONV(2, 3, 3, 2, 1, 1, 1, 1, 0, 0, 0, 0, 3, NN_RELU, 1),    // 1x1
    DENSE(4, 7, 5, NN_RELU, 1),
    DENSE(3, 5, 6, NN_LINEAR, 1),
    DENSE(2, 4, 1, NN_LINEAR, 0),
    POOL(2, 6, 4, 3, 2, 2, 2, 2, 0, 0, 3, 2),  // as most have it
    POOL(2, 5, 7, 2, 2, 2, 2, 2, 0, 0, 2, 3),  // valid: the last row and column are left out
    POOL(2, 5, 7, 2, 2, 2, 2, 2, 0, 0, 3, 4),  // same: the last windows reach beyond the image
    POOL(1, 5, 5, 2, 3, 3, 1, 1, 1, 1, 5, 5),  // same, overlapping
    POOL(1, 7, 7, 2, 2, 1, 3, 2, 0, 0, 2, 4),  // strides beyond the window
    {"dropout",
     &nn_op_dropout,
     ATTR((struct nn_dropout){0.4f, 1}),
     2,
     1,
     {FLOATS(2, 4, 5), {NN_UINT64, 1, {4}}},
     {true}},
};

// What turns an operator's output into one number: sum_i weight_i * y_i, whose gradient with respect to y is weight.
static double weighted(const struct op_run *r, const double *weight)
{
    const double *y = op_out(r, r->c->y);
    double sum = 0;
    for (size_t i = 0; i < nn_type_count(&r->type[r->c->y]); i++)
        sum += weight[i] * y[i];
    return sum;
}

// gradient (n) is what the operator said of its input. Central differences; where n is large, of every few elements: an
// odd number, which meets all rows and channels.
static void check_slopes(struct op_run *r, double *x, const double *gradient, size_t n, const double *weight)
{
    const double h = 1e-5;
    const size_t every = n / 256 | 1;
    double scale = 0;
    for (size_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(gradient[i]));
    assert_true(scale > 0);
    for (size_t i = 0; i < n; i += every) {
        double was = x[i];
        x[i] = was + h;
        op_go(r);
        double above = weighted(r, weight);
        x[i] = was - h;
        op_go(r);
        double slope = (above - weighted(r, weight)) / (2 * h);
        x[i] = was;
        if (!(fabs(slope - gradient[i]) <= 1e-7 * scale))
            fail_msg("%s[%zu] is %.12g, the slope is %.12g", r->c->name, i, gradient[i], slope);
    }
}

static double *copy_of(const double *v, size_t n)
{
    return memcpy(ps_alloc(n * sizeof *v), v, n * sizeof *v);
}

static void check_case(const struct op_case *c)
{
    struct op_run r;
    op_open(&r, c, &nn_device_ref, 1);
    op_fill(&r, false);
    for (int i = 0; i < c->n_in; i++) {
        if (!c->learns[i])
            continue;
        size_t n = nn_type_count(&c->in[i]);
        op_go(&r);
        double *gradient = copy_of(r.grad[i], n);
        check_slopes(&r, r.in[i], gradient, n, r.dy);
        free(gradient);
    }
    op_close(&r);
}

static void test_gradients_are_slopes(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(cases); k++)
        check_case(&cases[k]);
    for (size_t f = 0; f < COUNT(families); f++)
        for (size_t k = 0; k < families[f].n; k++)
            check_case(&families[f].cases[k]);
}

// ---- losses -------------------------------------------------------------------------------------------------------

enum { ROWS = 4, CLASSES = 5 };
static const struct nn_loss_outputs with_gradient = {.gradient = true};

// Of sum(weight * loss), where one row weighs nothing.
static void check_loss(const struct nn_op_class *class, struct nn_type expected)
{
    const struct op_case c = {.name = class->name,
                              .class = class,
                              .attr = &with_gradient,
                              .attr_bytes = sizeof with_gradient,
                              .n_in = 3,
                              .n_out = 2,
                              .in = {FLOATS(2, ROWS, CLASSES), expected, FLOATS(1, ROWS)}};
    struct op_run r;
    op_open(&r, &c, &nn_device_ref, 1);
    op_fill(&r, false);
    double *x = r.in[0], *weight = r.in[2];
    for (int i = 0; i < ROWS * CLASSES && class == &nn_op_sparse_xent; i++)
        x[i] = 0.5 + 0.4 * x[i];  // probabilities, away from where they are clipped
    weight[1] = 0;
    op_go(&r);
    double *gradient = copy_of(op_out(&r, 1), ROWS * CLASSES);
    for (int i = 0; i < CLASSES; i++)
        assert_true(gradient[CLASSES + i] == 0);
    check_slopes(&r, x, gradient, ROWS * CLASSES, weight);
    free(gradient);
    op_close(&r);
}

// Of each kind in ops/losses.c: targets are at a distance from outputs where a loss has an edge there.
static void check_loss_kind(const struct ps_loss *loss, bool probabilities, const double *target)
{
    const struct nn_loss_attr attr = {.loss = *loss, .gradient = true, .probabilities = probabilities};
    const struct op_case c = {.name = ps_losses.named[loss->kind].name,
                              .class = &nn_op_loss,
                              .attr = &attr,
                              .attr_bytes = sizeof attr,
                              .n_in = 3,
                              .n_out = 2 + probabilities,
                              .in = {FLOATS(2, ROWS, CLASSES), FLOATS(2, ROWS, CLASSES), FLOATS(1, ROWS)}};
    struct op_run r;
    op_open(&r, &c, &nn_device_ref, 1);
    op_fill(&r, false);
    double *x = r.in[0], *weight = r.in[2];
    for (int i = 0; i < ROWS * CLASSES; i++)
        x[i] = 0.5 + 0.4 * x[i];
    memcpy(r.in[1], target, ROWS * CLASSES * sizeof *target);
    weight[1] = 0;
    op_go(&r);
    double *gradient = copy_of(op_out(&r, 1 + probabilities), ROWS * CLASSES);
    for (int i = 0; i < CLASSES; i++)
        assert_true(gradient[CLASSES + i] == 0);
    check_slopes(&r, x, gradient, ROWS * CLASSES, weight);
    free(gradient);
    op_close(&r);
}

// Targets: yes or no; numbers; distributions. Each with the settings that change the formula.
static void check_loss_kinds(void)
{
    double yes[ROWS * CLASSES], number[ROWS * CLASSES], part[ROWS * CLASSES];
    for (int i = 0; i < ROWS * CLASSES; i++) {
        yes[i] = i % CLASSES == (i / CLASSES * 2) % CLASSES;
        number[i] = 1.2 + 0.1 * (i % 7);
        part[i] = (i % CLASSES + 1) / 15.0;
    }
    for (int kind = 0; kind < PS_LOSS_KINDS; kind++) {
        struct ps_loss loss = PS_LOSS(.kind = kind, .delta = 0.9, .alpha = 0.3, .gamma = 1.7, .label_smoothing = 0.1);
        const bool binary = kind == PS_LOSS_BINARY_XENT || kind == PS_LOSS_BINARY_FOCAL;
        const bool hinge = kind == PS_LOSS_HINGE || kind == PS_LOSS_SQUARED_HINGE || kind == PS_LOSS_CATEGORICAL_HINGE;
        const bool parts = kind == PS_LOSS_XENT || kind == PS_LOSS_FOCAL || kind == PS_LOSS_KL;
        if (kind == PS_LOSS_SPARSE_XENT || kind == PS_LOSS_MSE)
            continue;
        loss.apply_class_balancing = kind == PS_LOSS_BINARY_FOCAL;
        check_loss_kind(&loss, false, binary || hinge ? yes : parts ? part : number);
        loss.from_logits = true;
        if (binary || kind == PS_LOSS_XENT)
            check_loss_kind(&loss, true, binary ? yes : part);
    }
}

static void test_loss_gradients(void **state)
{
    (void)state;
    check_loss_kinds();
    check_loss(&nn_op_softmax_xent, (struct nn_type){NN_INT32, 1, {ROWS}});
    check_loss(&nn_op_sparse_xent, (struct nn_type){NN_INT32, 1, {ROWS}});
    check_loss(&nn_op_mse, (struct nn_type)FLOATS(2, ROWS, CLASSES));
}

// ---- values -------------------------------------------------------------------------------------------------------

static void assert_numbers(const double *expected, const double *got, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(expected[i] - got[i]) <= 1e-9 * fmax(1, fabs(expected[i]))))
            fail_msg("[%zu]: expected %.12g, got %.12g", i, expected[i], got[i]);
}

// The numbers of each input one after the other.
static void open_with(struct op_run *r, const struct op_case *c, const double *const *in)
{
    op_open(r, c, &nn_device_ref, 1);
    op_fill(r, false);
    for (int i = 0; i < c->n_in; i++)
        if (in[i])
            memcpy(r->in[i], in[i], nn_type_bytes(&c->in[i]));
    op_go(r);
}

// Where the kernel lies and how it is laid out.
static void test_conv2d_values(void **state)
{
    (void)state;
    const struct op_case same = CONV(1, 3, 3, 1, 2, 2, 1, 1, 0, 0, 1, 1, 1, NN_LINEAR, 1);
    const struct op_case point = CONV(1, 1, 1, 2, 1, 1, 1, 1, 0, 0, 0, 0, 3, NN_RELU, 0);
    struct op_run r;
    open_with(
        &r, &same,
        (const double *const[]){(double[]){0, 1, 2, 3, 4, 5, 6, 7, 8}, (double[]){1, 10, 100, 1000}, (double[]){0.5}});
    assert_numbers((const double[]){4310.5, 5421.5, 502.5, 7643.5, 8754.5, 805.5, 76.5, 87.5, 8.5}, op_out(&r, 0), 9);
    op_close(&r);
    // Channels: kernel (in, out).
    open_with(&r, &point, (const double *const[]){(double[]){5, -6}, (double[]){1, 2, 3, 4, 5, -6}});
    assert_numbers((const double[]){0, 0, 51}, op_out(&r, 0), 3);
    op_close(&r);
}

static void test_dense_values(void **state)
{
    (void)state;
    const struct op_case c = DENSE(1, 2, 3, NN_RELU, 1);
    struct op_run r;
    open_with(&r, &c, (const double *const[]){(double[]){1, 2}, (double[]){1, 2, 3, 4, 5, -6}, (double[]){10, 20, 1}});
    assert_numbers((const double[]){19, 32, 0}, op_out(&r, 0), 3);
    op_close(&r);
}

// The first of equals wins, what lies outside never does.
static void test_maxpool_values(void **state)
{
    (void)state;
    const struct op_case same = POOL(1, 3, 3, 1, 2, 2, 1, 1, 0, 0, 3, 3);
    const uint8_t at[] = {0, 0, 0, 1, 0, 0, 1, 1, 0};
    struct op_run r;
    open_with(&r, &same, (const double *const[]){(double[]){-1, -1, -2, -3, -1, -2, -5, -4, -3}});
    assert_numbers((const double[]){-1, -1, -2, -1, -1, -2, -4, -3, -3}, op_out(&r, 0), 9);
    assert_memory_equal(at, op_out(&r, 1), 9);
    op_close(&r);
}

static void test_softmax_values(void **state)
{
    (void)state;
    const struct op_case c = {"softmax", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(2, 2, 2)}, {0}};
    struct op_run r;
    open_with(&r, &c, (const double *const[]){(double[]){0, log(3), 1000, -1000}});
    assert_numbers((const double[]){0.25, 0.75, 1, 0}, op_out(&r, 0), 4);
    op_close(&r);
}

// Where nothing counts, everything counts alike, or is 0.
static void test_attention_softmax_values(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        const struct op_case c = {"attention_softmax",
                                  &nn_op_attention_softmax,
                                  ATTR((struct nn_attention_softmax){.by_both = true, .zero_unseen = zero}),
                                  2,
                                  1,
                                  {FLOATS(4, 1, 1, 2, 2), FLOATS(3, 1, 2, 2)},
                                  {0}};
        const double unseen = zero ? 0 : 0.5;
        struct op_run r;
        open_with(&r, &c, (const double *const[]){(double[]){0, log(3), 7, 9}, (double[]){1, 1, 0, 0}});
        assert_numbers((const double[]){0.25, 0.75, unseen, unseen}, op_out(&r, 0), 4);
        op_close(&r);
    }
}

struct loss_values {
    double loss[2], dx[4];
};

// Two rows of two classes, labels 0 and 1, each weighing a half.
static struct loss_values loss_of(const struct nn_op_class *class, const double x[4])
{
    const struct op_case c = {.name = class->name,
                              .class = class,
                              .attr = &with_gradient,
                              .attr_bytes = sizeof with_gradient,
                              .n_in = 3,
                              .n_out = 2,
                              .in = {FLOATS(2, 2, 2), {NN_INT32, 1, {2}}, FLOATS(1, 2)}};
    struct op_run r;
    struct loss_values v;
    op_open(&r, &c, &nn_device_ref, 1);
    memcpy(r.in[0], x, 4 * sizeof *x);
    memcpy(r.in[1], (int32_t[]){0, 1}, 2 * sizeof(int32_t));
    memcpy(r.in[2], (double[]){0.5, 0.5}, 2 * sizeof(double));
    op_go(&r);
    memcpy(v.loss, op_out(&r, 0), sizeof v.loss);
    memcpy(v.dx, op_out(&r, 1), sizeof v.dx);
    op_close(&r);
    return v;
}

static void test_loss_values(void **state)
{
    (void)state;
    struct loss_values v = loss_of(&nn_op_softmax_xent, (double[]){0, log(3), 1000, -1000});
    assert_numbers((const double[]){log(4), 2000}, v.loss, 2);
    assert_numbers((const double[]){-0.375, 0.375, 0.5, -0.5}, v.dx, 4);

    // Clipped to [1e-7, 1 - 1e-7], where the slope is nought.
    v = loss_of(&nn_op_sparse_xent, (double[]){0, 1, 0, 1});
    assert_numbers((const double[]){-log(1e-7), -log1p(-1e-7)}, v.loss, 2);
    assert_numbers((const double[]){0, 0, 0, 0}, v.dx, 4);

    // What does not add up to 1 is made to; a NaN is no 0.
    v = loss_of(&nn_op_sparse_xent, (double[]){0.25, 0.25, NAN, 0.5});
    assert_numbers((const double[]){log(2)}, v.loss, 1);
    assert_numbers((const double[]){-1, 1}, v.dx, 2);
    assert_true(isnan(v.loss[1]) && isnan(v.dx[3]));
}

// ---- what is drawn ------------------------------------------------------------------------------------------------

enum { DRAWN = 4000 };

static void check_spread(int kind, double mean, double deviation)
{
    const struct op_case c = {"noise",
                              &nn_op_noise,
                              ATTR((struct nn_noise){.kind = kind, .amount = 0.5f, .layer = 3}),
                              2,
                              1,
                              {FLOATS(2, 2, DRAWN / 2), {NN_UINT64, 1, {2}}},
                              {0}};
    struct op_run r;
    double sum = 0, squares = 0;
    op_open(&r, &c, &nn_device_ref, 1);
    for (int i = 0; i < DRAWN; i++)
        ((double *)r.in[0])[i] = 2;
    memcpy(r.in[1], (uint64_t[]){5, 9}, 2 * sizeof(uint64_t));
    op_go(&r);
    for (int i = 0; i < DRAWN; i++) {
        sum += op_out(&r, 0)[i];
        squares += op_out(&r, 0)[i] * op_out(&r, 0)[i];
    }
    double found = sqrt(squares / DRAWN - sum / DRAWN * sum / DRAWN);
    if (fabs(sum / DRAWN - mean) > 0.06 * deviation || fabs(found / deviation - 1) > 0.04)
        fail_msg("kind %d: mean %g, deviation %g", kind, sum / DRAWN, found);
    op_close(&r);
}

static void test_noise_spreads(void **state)
{
    (void)state;
    check_spread(NN_NOISE_ADDED, 2, 0.5);
    check_spread(NN_NOISE_TIMES, 2, 1);
    check_spread(NN_NOISE_DROPS, 2, 2);
}

// Whole channels are dropped, others of each example.
static void test_shared_noise(void **state)
{
    (void)state;
    const struct op_case c = {"noise",
                              &nn_op_noise,
                              ATTR((struct nn_noise){.kind = NN_NOISE_DROPS, .amount = 0.5f, .shared = {[1] = true}}),
                              2,
                              1,
                              {FLOATS(3, 2, 3, 32), {NN_UINT64, 1, {2}}},
                              {0}};
    struct op_run r;
    op_open(&r, &c, &nn_device_ref, 1);
    for (int i = 0; i < 2 * 3 * 32; i++)
        ((double *)r.in[0])[i] = 1;
    memcpy(r.in[1], (uint64_t[]){5, 9}, 2 * sizeof(uint64_t));
    op_go(&r);
    const double *y = op_out(&r, 0);
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(y, y + i * 32, 32 * sizeof *y);
        assert_memory_equal(y + 96, y + 96 + i * 32, 32 * sizeof *y);
    }
    assert_memory_not_equal(y, y + 96, 32 * sizeof *y);
    op_close(&r);
}

// Of 32 images each comes as it is, turned along one axis, or both; all of that happens.
static void test_flips(void **state)
{
    (void)state;
    static const double turned[4][4] = {{1, 2, 3, 4}, {2, 1, 4, 3}, {3, 4, 1, 2}, {4, 3, 2, 1}};
    const struct op_case c = {"flip", &nn_op_flip, ATTR((struct nn_flip){true, true, 3}),
                              2,      1,           {FLOATS(4, 32, 2, 2, 1), {NN_UINT64, 1, {32}}},
                              {0}};
    struct op_run r;
    int seen[4] = {0};
    op_open(&r, &c, &nn_device_ref, 1);
    for (uint64_t i = 0; i < 32; i++) {
        memcpy((double *)r.in[0] + 4 * i, turned[0], sizeof turned[0]);
        ((uint64_t *)r.in[1])[i] = i;
    }
    op_go(&r);
    for (int i = 0; i < 32; i++)
        for (int k = 0; k < 4; k++)
            seen[k] += memcmp(op_out(&r, 0) + 4 * i, turned[k], sizeof turned[k]) == 0;
    assert_int_equal(seen[0] + seen[1] + seen[2] + seen[3], 32);
    for (int k = 0; k < 4; k++)
        assert_true(seen[k] >= 2);
    op_close(&r);
}

// Of 64 images 3 x 2 windows of 2 x 2 pixels are taken, each of the six at least once, and nothing else.
static void test_windows(void **state)
{
    (void)state;
    const struct op_case c = {"window",
                              &nn_op_window,
                              ATTR((struct nn_window){{4, 3}, {2, 2}, 3}),
                              2,
                              1,
                              {FLOATS(4, 64, 4, 3, 1), {NN_UINT64, 1, {64}}},
                              {0}};
    struct op_run r;
    int seen[3][2] = {{0}}, all = 0;
    op_open(&r, &c, &nn_device_ref, 1);
    for (uint64_t i = 0; i < 64; i++) {
        for (int k = 0; k < 12; k++)
            ((double *)r.in[0])[12 * i + (uint64_t)k] = k;
        ((uint64_t *)r.in[1])[i] = i;
    }
    op_go(&r);
    for (int i = 0; i < 64; i++)
        for (int row = 0; row < 3; row++)
            for (int column = 0; column < 2; column++) {
                const double first = 3 * row + column, window[4] = {first, first + 1, first + 3, first + 4};
                seen[row][column] += memcmp(op_out(&r, 0) + 4 * i, window, sizeof window) == 0;
            }
    for (int k = 0; k < 6; k++) {
        assert_true(seen[k / 2][k % 2] > 0);
        all += seen[k / 2][k % 2];
    }
    assert_int_equal(64, all);
    op_close(&r);
}

// ---- tapes --------------------------------------------------------------------------------------------------------

static void test_fan_out(void **state)
{
    (void)state;
    check_fan_out(&nn_device_ref);
}

// Two weights are added: the gradient is both's, each in its own memory.
static void test_one_gradient_of_two(void **state)
{
    (void)state;
    const struct op_case c = {"add", &nn_op_add, NULL, 0, 2, 1, {FLOATS(1, 3), FLOATS(1, 3)}, {true, true}};
    struct op_run r;
    op_open(&r, &c, &nn_device_ref, 1);
    op_fill(&r, false);
    op_go(&r);
    assert_memory_equal(r.grad[0], r.dy, 3 * sizeof(double));
    assert_memory_equal(r.grad[1], r.dy, 3 * sizeof(double));
    op_close(&r);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_slopes),
        cmocka_unit_test(test_loss_gradients),
        cmocka_unit_test(test_conv2d_values),
        cmocka_unit_test(test_dense_values),
        cmocka_unit_test(test_maxpool_values),
        cmocka_unit_test(test_softmax_values),
        cmocka_unit_test(test_attention_softmax_values),
        cmocka_unit_test(test_loss_values),
        cmocka_unit_test(test_fan_out),
        cmocka_unit_test(test_one_gradient_of_two),
        cmocka_unit_test(test_noise_spreads),
        cmocka_unit_test(test_shared_noise),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
