// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels against the references: the same numbers over the same shapes, those of the MNIST network among
// them; the same bits on every run; and never one of oneDNN's slow reference implementations.
#include "tests/unit/nn_ops/families.h"
#include "workerd/nn/cpu/conv2d_pool.h"
#include "workerd/nn/ops/losses.h"

#define RATE ATTR((struct nn_dropout){0.3f, 2})

// x (n, h, w, c), kernel (kh, kw, oc), strides, padding.
#define CONV(name, n, h, w, c, kh, kw, sh, sw, pt, pl, pb, pr, oc, act, bias)                                         \
    {                                                                                                                 \
        name, &nn_op_conv2d,                                                                                          \
            ATTR((struct nn_conv2d){{h, w}, {kh, kw}, {sh, sw}, {pt, pl}, {pb, pr}, act, bias, {1, 1}, 1}), 2 + bias, \
            1, {FLOATS(4, n, h, w, c), FLOATS(4, kh, kw, c, oc), FLOATS(1, oc)},                                      \
        {                                                                                                             \
            true, true, bias                                                                                          \
        }                                                                                                             \
    }
#define DENSE(name, n, in, out, act, bias)                                   \
    {                                                                        \
        name, &nn_op_dense, ATTR((struct nn_dense){act, bias}), 2 + bias, 1, \
            {FLOATS(2, n, in), FLOATS(2, in, out), FLOATS(1, out)},          \
        {                                                                    \
            true, true, bias                                                 \
        }                                                                    \
    }
#define POOL(name, n, h, w, c, ph, pw, sh, sw, pt, pl, oh, ow)                                                \
    {                                                                                                         \
        name, &nn_op_maxpool, ATTR((struct nn_pool2d){{h, w}, {ph, pw}, {sh, sw}, {pt, pl}, {oh, ow}}), 1, 2, \
            {FLOATS(4, n, h, w, c)},                                                                          \
        {                                                                                                     \
            true                                                                                              \
        }                                                                                                     \
    }
#define DROPOUT(name, per)                                                          \
    {                                                                               \
        name, &nn_op_dropout, RATE, 2, 1, {FLOATS(2, 4, per), {NN_UINT64, 1, {4}}}, \
        {                                                                           \
            true                                                                    \
        }                                                                           \
    }
// A batch's and a layer's, of x (rows, n); a group's, of x (rows, image, groups, of a group).
#define BATCH_NORM(name, rows, n)                                                                                \
    {                                                                                                            \
        name, &nn_op_normalize,                                                                                  \
            ATTR((struct nn_normalize){{rows, n, 1, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}), 3, 3, \
            {FLOATS(2, rows, n), FLOATS(1, n), FLOATS(1, n)},                                                    \
        {                                                                                                        \
            true, true, true                                                                                     \
        }                                                                                                        \
    }
#define BATCH_NORM_RELU(name, rows, n)                                                                                 \
    {                                                                                                                  \
        name, &nn_op_normalize,                                                                                        \
            ATTR((struct nn_normalize){{rows, n, 1, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true, NN_RELU}), 3, \
            3, {FLOATS(2, rows, n), FLOATS(1, n), FLOATS(1, n)},                                                       \
        {                                                                                                              \
            true, true, true                                                                                           \
        }                                                                                                              \
    }
#define LAYER_NORM(name, rows, n)                                                                                \
    {                                                                                                            \
        name, &nn_op_normalize,                                                                                  \
            ATTR((struct nn_normalize){{rows, n, 1, 1}, {1, 0, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}), 3, 3, \
            {FLOATS(2, rows, n), FLOATS(1, n), FLOATS(1, n)},                                                    \
        {                                                                                                        \
            true, true, true                                                                                     \
        }                                                                                                        \
    }
#define GROUP_NORM(name, rows, image, groups, n)                                                                       \
    {                                                                                                                  \
        name, &nn_op_normalize,                                                                                        \
            ATTR((struct nn_normalize){{rows, image, groups, n}, {1, 0, 1, 0}, {0, 0, 1, 1}, EPSILON, true, true}), 3, \
            3, {FLOATS(3, rows, image, (groups) * (n)), FLOATS(1, (groups) * (n)), FLOATS(1, (groups) * (n))},         \
        {                                                                                                              \
            true, true, true                                                                                           \
        }                                                                                                              \
    }
#define CELL(name, cell, act, gate, n, t, u, gates, bias)                                                         \
    {                                                                                                             \
        name, &nn_op_rnn, ATTR((struct nn_rnn){cell, act, gate, true, false, false, bias, false}), 2 + (bias), 2, \
            {FLOATS(3, n, t, (gates) * (u)), FLOATS(2, u, (gates) * (u)), FLOATS(2, 2, (gates) * (u))},           \
        {                                                                                                         \
            true, true, bias                                                                                      \
        }                                                                                                         \
    }
#define PAIR(name, kind, learn, a0, a1, a2, a3, b0, b1, b2, b3)     \
    {                                                               \
        name, &nn_op_binary, ATTR((struct nn_binary){kind}), 2, 1,  \
            {FLOATS(4, a0, a1, a2, a3), FLOATS(4, b0, b1, b2, b3)}, \
        {                                                           \
            learn, learn                                            \
        }                                                           \
    }
#define BINARY_XENT(name, n, width, probability, slope, smoothing)                                               \
    {                                                                                                            \
        name, &nn_op_loss,                                                                                       \
            ATTR((struct nn_loss_attr){                                                                          \
                .loss = PS_LOSS(.kind = PS_LOSS_BINARY_XENT, .from_logits = true, .label_smoothing = smoothing), \
                .probabilities = probability,                                                                    \
                .gradient = slope}),                                                                             \
            3, 1 + (probability) + (slope), {FLOATS(2, n, width), FLOATS(2, n, width), FLOATS(1, n)},            \
        {                                                                                                        \
            false                                                                                                \
        }                                                                                                        \
    }
// Scores of 2 x 3 heads; masks (rows, i) and (rows, j) where they are.
#define ATTENTION(name, masks, causal, i, j, inputs)                                                          \
    {                                                                                                         \
        name, &nn_op_attention_softmax, ATTR((struct nn_attention_softmax){masks, masks, causal}), inputs, 1, \
            {FLOATS(4, 2, 3, i, j), FLOATS(2, 2, i), FLOATS(2, 2, j)}, {true}, (masks)*2                      \
    }

static const struct op_case cases[] = {
    CONV("MNIST, first", 64, 28, 28, 1, 3, 3, 1, 1, 0, 0, 0, 0, 32, NN_RELU, 1),
    CONV("MNIST, second", 64, 13, 13, 32, 3, 3, 1, 1, 0, 0, 0, 0, 64, NN_RELU, 1),
    CONV("same", 2, 28, 28, 1, 5, 5, 1, 1, 2, 2, 2, 2, 6, NN_LINEAR, 1),
    CONV("odd channels", 3, 7, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 5, NN_RELU, 0),
    CONV("same: padded below only", 2, 9, 8, 2, 2, 1, 1, 1, 0, 0, 1, 0, 3, NN_LINEAR, 0),
    CONV("same, strides 2", 2, 16, 15, 16, 3, 3, 2, 2, 0, 1, 1, 1, 32, NN_RELU, 1),
    CONV("uneven strides", 2, 8, 7, 4, 3, 2, 2, 3, 0, 0, 0, 0, 17, NN_RELU, 1),
    CONV("1x1", 1, 6, 6, 64, 1, 1, 1, 1, 0, 0, 0, 0, 10, NN_RELU, 1),
    DENSE("MNIST, third", 64, 1600, 64, NN_RELU, 1),
    DENSE("MNIST, last", 64, 64, 10, NN_LINEAR, 1),
    DENSE("no bias", 5, 3, 7, NN_RELU, 0),
    DENSE("one of one", 1, 17, 1, NN_LINEAR, 1),
    {"dense, three axes",
     &nn_op_dense,
     ATTR((struct nn_dense){NN_RELU, true}),
     3,
     1,
     {FLOATS(3, 3, 5, 4), FLOATS(2, 4, 6), FLOATS(1, 6)},
     {true, true, true}},
    POOL("pool, MNIST, first", 64, 26, 26, 32, 2, 2, 2, 2, 0, 0, 13, 13),
    POOL("pool, MNIST, second", 64, 11, 11, 64, 2, 2, 2, 2, 0, 0, 5, 5),
    POOL("pool, same", 2, 5, 7, 3, 2, 2, 2, 2, 0, 0, 3, 4),
    POOL("pool, same, overlapping", 2, 9, 9, 17, 3, 3, 1, 1, 1, 1, 9, 9),
    POOL("pool, strides beyond the window", 1, 7, 7, 1, 2, 1, 3, 2, 0, 0, 2, 4),
    {"relu", &nn_op_relu, NULL, 0, 1, 1, {FLOATS(2, 17, 59)}, {true}},
    {"add", &nn_op_add, NULL, 0, 2, 1, {FLOATS(2, 17, 59), FLOATS(2, 17, 59)}, {true, true}},
    {"softmax", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(3, 3, 4, 33)}, {true}},
    DROPOUT("dropout of one", 1),
    DROPOUT("dropout, part of a block", 7),
    DROPOUT("dropout, several batches of draws", 1601),
    BATCH_NORM("batch, one channel", 4099, 1),
    BATCH_NORM("batch, three channels", 20001, 3),
    BATCH_NORM("batch, 16 channels, an uneven last block", 4097, 16),
    BATCH_NORM("batch, 63 channels", 1000, 63),
    BATCH_NORM("batch, 65 channels", 1000, 65),
    BATCH_NORM("batch, two rows", 2, 40),
    BATCH_NORM_RELU("batch, relu, 16 channels", 4097, 16),
    BATCH_NORM_RELU("batch, relu, 65 channels", 1000, 65),
    LAYER_NORM("layer, two elements", 7, 2),
    LAYER_NORM("layer, 33 elements", 2001, 33),
    LAYER_NORM("layer, a long row", 5, 20001),
    GROUP_NORM("group, one of one", 3, 700, 1, 17),
    GROUP_NORM("group, of many", 3, 300, 8, 9),
    {"normalize, channels first, large images",
     &nn_op_normalize,
     ATTR((struct nn_normalize){{4, 3, 9001, 1}, {0, 1, 0, 0}, {0, 1, 0, 0}, EPSILON, true, true}),
     3,
     3,
     {FLOATS(3, 4, 3, 9001), FLOATS(1, 3), FLOATS(1, 3)},
     {true, true, true}},
    {"softmax, one class", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(2, 5, 1)}, {false}},
    {"softmax, many classes", &nn_op_softmax, NULL, 0, 1, 1, {FLOATS(2, 33, 1003)}, {true}},
    ATTENTION("attention, whole", false, false, 9, 33, 1),
    ATTENTION("attention, causal", false, true, 65, 65, 1),
    ATTENTION("attention, masked by i and j", true, false, 17, 71, 3),
    ATTENTION("attention, masked and causal", true, true, 40, 71, 3),
    {"embedding, wide", &nn_op_embedding, NULL, 0, 2, 1, {FLOATS(2, 7, 83), {NN_INT32, 2, {3, 301}}}, {true}},
    PAIR("times, of one shape", NN_B_MULTIPLY, true, 4, 3, 1001, 7, 4, 3, 1001, 7),
    PAIR("times, each channel of each row", NN_B_MULTIPLY, true, 4, 33, 35, 7, 4, 1, 1, 7),
    PAIR("minus, each channel", NN_B_SUBTRACT, true, 4, 33, 35, 7, 1, 1, 1, 7),
    PAIR("plus, each row", NN_B_ADD, true, 4, 1, 1, 1, 4, 33, 35, 7),
    PAIR("times, one of all", NN_B_MULTIPLY, true, 4, 33, 35, 7, 1, 1, 1, 1),
    PAIR("times, every other dimension", NN_B_MULTIPLY, true, 1, 33, 1, 7, 4, 1, 35, 1),
    PAIR("times, one of one", NN_B_MULTIPLY, true, 1, 1, 1, 1, 1, 1, 1, 1),
    PAIR("greater", NN_B_MAXIMUM, false, 4, 33, 35, 7, 4, 1, 1, 7),
    PAIR("lesser", NN_B_MINIMUM, false, 4, 33, 35, 7, 1, 1, 35, 7),
    {"affine, many", &nn_op_affine, ATTR((struct nn_affine){-2, 0.5f}), 1, 1, {FLOATS(2, 33, 1003)}, {true}},
    {"penalty, many", &nn_op_penalty, ATTR((struct nn_penalty){0.5f, 0.25f}), 1, 1, {FLOATS(2, 33, 1003)}, {true}},
    BINARY_XENT("binary cross-entropy, one output", 65, 1, true, true, 0),
    BINARY_XENT("binary cross-entropy, of pixels", 64, 783, true, true, 0.25),
    BINARY_XENT("binary cross-entropy, the loss alone", 3, 67, false, false, 0),
    CONV_POOL("conv2d_pool, MNIST, first", 20, 28, 28, 1, 3, 3, 0, 0, 0, 0, 32, NN_RELU, 1),
    CONV_POOL("conv2d_pool, MNIST, second", 10, 13, 13, 32, 3, 3, 0, 0, 0, 0, 64, NN_RELU, 1),
    CELL("LSTM, 128 units", NN_RNN_LSTM, NN_RNN_TANH, NN_RNN_SIGMOID, 33, 3, 128, 4, false),
    CELL("GRU, 130 units", NN_RNN_GRU, NN_RNN_TANH, NN_RNN_SIGMOID, 33, 3, 130, 3, false),
    CELL("GRU, reset after, 65 units", NN_RNN_GRU_AFTER, NN_RNN_TANH, NN_RNN_SIGMOID, 64, 3, 65, 3, true),
    CELL("LSTM, relu and Keras 2's hard sigmoid", NN_RNN_LSTM, NN_RNN_RELU, NN_RNN_HARD_SIGMOID2, 3, 4, 9, 4, false),
    CELL("simple, linear", NN_RNN_SIMPLE, NN_RNN_LINEAR, NN_RNN_LINEAR, 3, 4, 17, 1, false),
};

static void assert_close(const char *name, const char *what, const float *expected, const float *got, size_t n)
{
    float scale = 0;
    for (size_t i = 0; i < n; i++)
        scale = fmaxf(scale, fabsf(expected[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(expected[i] - got[i]) <= 1e-4f * scale))
            fail_msg("%s: %s[%zu]: expected %g, got %g (the largest is %g)", name, what, i, (double)expected[i],
                     (double)got[i], (double)scale);
}

static void assert_runs_close(const struct op_run *a, const struct op_run *b)
{
    const struct op_case *c = a->c;
    assert_close(c->name, "y", op_out(a, 0), op_out(b, 0), nn_type_count(&a->type[0]));
    for (int k = 1; k < c->n_out; k++)
        if (a->type[k].dtype == NN_FLOAT)
            assert_close(c->name, "output", op_out(a, k), op_out(b, k), nn_type_count(&a->type[k]));
        else
            assert_memory_equal(op_out(a, k), op_out(b, k), nn_type_bytes(&a->type[k]));
    for (int i = 0; i < c->n_in; i++)
        if (c->learns[i])
            assert_close(c->name, "gradient", a->grad[i], b->grad[i], nn_type_count(&c->in[i]));
}

static void assert_runs_same(const struct op_run *a, const struct op_run *b)
{
    for (int k = 0; k < a->c->n_out; k++)
        assert_memory_equal(op_out(a, k), op_out(b, k), nn_type_bytes(&a->type[k]));
    for (int i = 0; i < a->c->n_in; i++)
        if (a->c->learns[i])
            assert_memory_equal(a->grad[i], b->grad[i], nn_type_bytes(&a->c->in[i]));
}

static void run_case(struct op_run *r, const struct op_case *c, const struct nn_device *device, int threads)
{
    op_open(r, c, device, threads);
    op_fill(r, true);
    op_go(r);
}

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
