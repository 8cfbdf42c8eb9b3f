// SPDX-License-Identifier: Apache-2.0
//
// workerd/nn: a whole network in training, against finite differences and against itself; against Keras: test_keras.
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "common/file/safetensors.h"
#include "common/math/philox.h"
#include "tests/unit/nn_files.h"
#include "workerd/nn/model.h"

static const struct ps_loss logits = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT, .from_logits = true),
                            probabilities = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT), mse = PS_LOSS(.kind = PS_LOSS_MSE);
static const char *const devices[] = {"ref", "cpu"};

// Layers by hand, above an input of this batch shape; ' stands for ".
static struct nn_model *parse(const char *shape, const char *layers)
{
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    char *json =
        ps_printf("{'class_name': 'Sequential', 'config': {'name': 'net', 'layers': [{'class_name': 'InputLayer', "
                  "'config': {'name': 'in', 'batch_shape': [null, %s]}}, %s]}}",
                  shape, layers);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    if (nn_model_parse(json, "test", &m, &e) != PS_OK)
        fail_msg("%s", e.text);
    free(json);
    return m;
}

static struct nn_replica *replicate(const struct nn_model *m, const char *device, int rows, const struct ps_loss *loss)
{
    struct ps_error e = {0};
    struct nn_replica *r = NULL;
    if (nn_replica_create(m, device, rows, 1, 77, loss, &r, &e) != PS_OK)
        fail_msg("%s", e.text);
    return r;
}

static void train(struct nn_replica *r, const struct nn_batch *b, uint64_t step, const struct nn_hooks *hooks,
                  struct nn_result *result)
{
    struct ps_error e = {0};
    if (nn_replica_train(r, b, step, hooks, result, &e) != PS_OK)
        fail_msg("%s", e.text);
}

static void evaluate(struct nn_replica *r, const struct nn_batch *b, struct nn_result *result)
{
    struct ps_error e = {0};
    if (nn_replica_evaluate(r, b, result, &e) != PS_OK)
        fail_msg("%s", e.text);
}

static void init_params(const struct nn_model *m, struct nn_replica *r)
{
    for (size_t i = 0; i < nn_model_params(m); i++)
        nn_model_init_param(m, i, 3, nn_replica_param(r, i));
}

static void descend(const struct nn_model *m, struct nn_replica *r, float rate)
{
    for (size_t i = 0; i < nn_model_params(m); i++)
        for (uint64_t j = 0; j < nn_model_param(m, i)->count; j++)
            nn_replica_param(r, i)[j] -= rate * nn_replica_grad(r, i)[j];
}

// tolerance: of numbers up to 1; of greater ones in proportion.
static void check_close(const char *what, const float *found, const float *expected, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)found[i] - (double)expected[i]) <= tolerance * fmax(1, fabs((double)expected[i]))))
            fail_msg("%s[%zu]: %.9g, expected %.9g", what, i, (double)found[i], (double)expected[i]);
}

// n numbers in [-1, 1) that are the same every time.
static void fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t word[4];
        ps_philox(seed, PS_RANDOM_INIT, 1, i, word);
        x[i] = 2 * ps_uniform(word[0]) - 1;
    }
}

// ---- a small network ----------------------------------------------------------------------------------------------

// tests/golden/keras/tiny_conv, with its weights at first, as one batch. Points into itself: stays where it was opened.
struct golden {
    struct nn_model *model;
    struct ps_safetensors *tensors;
    float *x;
    int32_t *label;
    struct nn_batch batch;
};

static const struct ps_safetensor *tensor(const struct golden *g, const char *name)
{
    const struct ps_safetensor *t = ps_safetensors_find(g->tensors, name);
    if (!t)
        fail_msg("no tensor %s", name);
    return t;
}

static void open_golden(struct golden *g)
{
    struct ps_error e = {0};
    json_t *document = json_load_file(source("tests/golden/keras/tiny_conv.json"), 0, NULL);
    char *text = json_dumps(json_object_get(document, "model"), 0);
    assert_non_null(text);
    if (nn_model_parse(text, "tiny_conv.json", &g->model, &e) != PS_OK)
        fail_msg("%s", e.text);
    free(text);
    json_decref(document);
    if (ps_safetensors_read(source("tests/golden/keras/tiny_conv.safetensors"), &g->tensors, &e) != PS_OK)
        fail_msg("%s", e.text);
    const struct ps_safetensor *x = tensor(g, "x"), *y = tensor(g, "y");
    assert_int_equal(x->count, y->count * elements(nn_model_input(g->model, 0)));
    g->x = ps_alloc(x->count * sizeof *g->x);
    memcpy(g->x, x->data, x->count * sizeof *g->x);
    g->label = ps_alloc(y->count * sizeof *g->label);
    for (size_t i = 0; i < y->count; i++)
        g->label[i] = (int32_t)y->data[i];
    g->batch = (struct nn_batch){.rows = (int)y->count, .input = {g->x}, .target = {g->label}};
}

static void close_golden(struct golden *g)
{
    free(g->x);
    free(g->label);
    ps_safetensors_free(g->tensors);
    nn_model_free(g->model);
}

static void set_golden_params(const struct golden *g, struct nn_replica *r)
{
    for (size_t i = 0; i < nn_model_params(g->model); i++) {
        const struct nn_param *p = nn_model_param(g->model, i);
        const struct ps_safetensor *t = tensor(g, p->name);
        assert_int_equal(t->rank, p->rank);
        assert_memory_equal(t->shape, p->shape, p->rank * sizeof *p->shape);
        memcpy(nn_replica_param(r, i), t->data, p->count * sizeof(float));
    }
}

// ---- against finite differences -----------------------------------------------------------------------------------

static double loss_at(struct nn_replica *r, const struct nn_batch *b)
{
    struct nn_result result;
    train(r, b, 9, NULL, &result);
    return result.loss / b->rows;
}

// d loss / d parameter, every parameter, by the central difference. Float32 and kinks allow no more than a loose bound
// on each, and a tight one on nearly all.
static void check_gradients(const struct nn_model *m, const struct ps_loss *loss, const struct nn_batch *b)
{
    const float h = 2e-3f;
    struct nn_replica *r = replicate(m, "ref", b->rows, loss);
    size_t all = 0, off = 0;
    init_params(m, r);
    loss_at(r, b);
    for (size_t i = 0; i < nn_model_params(m); i++) {
        size_t n = nn_model_param(m, i)->count;
        float *grad = ps_alloc(n * sizeof *grad), *p = nn_replica_param(r, i);
        loss_at(r, b);
        memcpy(grad, nn_replica_grad(r, i), n * sizeof *grad);
        for (size_t j = 0; j < n; j++) {
            float was = p[j];
            p[j] = was + h;
            double above = loss_at(r, b);
            p[j] = was - h;
            double slope = (above - loss_at(r, b)) / (2 * (double)h), error = fabs(slope - (double)grad[j]);
            p[j] = was;
            if (error > 0.05)
                fail_msg("%s[%zu]: %g, expected %g", nn_model_param(m, i)->name, j, (double)grad[j], slope);
            off += error > 2e-3;
            all++;
        }
        free(grad);
    }
    if (off * 50 > all)
        fail_msg("%zu of %zu gradients are not the slope of the loss", off, all);
    nn_replica_free(r);
}

#define LAYER(class, config) "{'class_name': '" class "', 'config': {" config "}}"
#define DENSE(name, config) LAYER("Dense", "'name': '" name "', 'bias_initializer': 'random_normal', " config)

static const char deep_layers[] = LAYER(
    "Conv2D",
    "'name': 'c', 'filters': 3, 'kernel_size': 3, 'padding': 'same', 'bias_initializer': "
    "'random_normal'") ", " LAYER("MaxPooling2D",
                                  "'name': 'p'") ", " LAYER("ReLU",
                                                            "'name': 'r'") ", " LAYER("Dropout",
                                                                                      "'name': 'x', 'rate': "
                                                                                      "0.25") ", " DENSE("e",
                                                                                                         "'un"
                                                                                                         "its"
                                                                                                         "': "
                                                                                                         "4, "
                                                                                                         "'ac"
                                                                                                         "tiv"
                                                                                                         "ati"
                                                                                                         "on'"
                                                                                                         ": "
                                                                                                         "'so"
                                                                                                         "ftm"
                                                                                                         "ax"
                                                                                                         "'") ","
                                                                                                              " " LAYER("Flatten", "'name': 'f'") ", " DENSE(
                                                                                                                  "d",
                                                                                                                  "'uni"
                                                                                                                  "ts':"
                                                                                                                  " 5, "
                                                                                                                  "'act"
                                                                                                                  "ivat"
                                                                                                                  "ion'"
                                                                                                                  ": "
                                                                                                                  "'rel"
                                                                                                                  "u'") ", " DENSE("o",
                                                                                                                                   "'units': 3");

static void gradients_are_slopes(void **state)
{
    (void)state;
    const int32_t label[4] = {0, 2, 1, 2};
    const uint64_t example[4] = {11, 5, 900, 3};
    float x[4 * 50], target[4 * 3];
    fill(x, 4 * 50, 1);
    fill(target, 4 * 3, 2);
    struct nn_model *m = parse("5, 5, 2", deep_layers);
    check_gradients(m, &logits, &(struct nn_batch){.rows = 4, .input = {x}, .target = {label}, .example = example});
    check_gradients(m, &mse, &(struct nn_batch){.rows = 4, .input = {x}, .target = {target}, .example = example});
    nn_model_free(m);
    m = parse("50", DENSE("d", "'units': 3, 'activation': 'softmax'"));
    check_gradients(m, &probabilities, &(struct nn_batch){.rows = 4, .input = {x}, .target = {label}});
    nn_model_free(m);
}

// A layer that is called twice, and a sum: y = Add(relu(d(x)), d(relu(d(x)))), with d before relu read by nobody else.
// The nodes as Keras 3 writes them, or as Keras 2.
static struct nn_model *parse_functional(bool keras3)
{
    static const char *const tensor[] = {"['%s', %d, 0, {}]", "{'class_name': '__keras_tensor__', 'config': {'shape': "
                                                              "[null, 3], 'dtype': 'float32', 'keras_history': "
                                                              "['%s', %d, 0]}}"};
    static const char *const one[] = {"[%s]", "{'args': [%s], 'kwargs': {}}"};
    static const char *const two[] = {"[%s, %s]", "{'args': [[%s, %s]], 'kwargs': {}}"};
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    // Of d, the call that can be made first is the first, or the second.
    const int of = !keras3;
    char *x = ps_printf(tensor[keras3], "x", 0), *d0 = ps_printf(tensor[keras3], "d", of);
    char *d1 = ps_printf(tensor[keras3], "d", !of), *r = ps_printf(tensor[keras3], "r", 0);
    char *of_x = ps_printf(one[keras3], x), *of_d = ps_printf(one[keras3], d0), *of_r = ps_printf(one[keras3], r);
    char *sum = ps_printf(two[keras3], r, d1);
    // The sum stands before what it takes: the order is found.
    char *json = ps_printf("{'class_name': 'Functional', 'config': {'name': 'net', 'layers': ["
                           "{'class_name': 'Add', 'name': 's', 'config': {'name': 's'}, 'inbound_nodes': [%s]},"
                           "{'class_name': 'InputLayer', 'name': 'x', 'config': {'name': 'x', 'batch_shape': [null, "
                           "3]}, 'inbound_nodes': []},"
                           "{'class_name': 'Dense', 'name': 'd', 'config': {'name': 'd', 'units': 3, "
                           "'bias_initializer': 'random_normal'}, "
                           "'inbound_nodes': [%s, %s]},"
                           "{'class_name': 'ReLU', 'name': 'r', 'config': {'name': 'r'}, 'inbound_nodes': [%s]}], "
                           "'input_layers': [['x', 0, 0]], 'output_layers': ['s', 0, 0]}}",
                           sum, of ? of_r : of_x, of ? of_x : of_r, of_d);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    if (nn_model_parse(json, "test", &m, &e) != PS_OK)
        fail_msg("%s", e.text);
    char *all[] = {x, d0, d1, r, of_x, of_d, of_r, sum, json};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return m;
}

static void functional_gradients_are_slopes(void **state)
{
    (void)state;
    float x[4 * 3], target[4 * 3];
    fill(x, 4 * 3, 1);
    fill(target, 4 * 3, 2);
    for (int keras3 = 0; keras3 < 2; keras3++) {
        struct nn_model *m = parse_functional(keras3);
        assert_int_equal(nn_model_params(m), 2);
        check_gradients(m, &mse, &(struct nn_batch){.rows = 4, .input = {x}, .target = {target}});
        nn_model_free(m);
    }
}

// With the identity for d: y = relu(x) + relu(x).
static void functional_values(void **state)
{
    (void)state;
    const float identity[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, x[3] = {1, -2, 3}, target[3] = {0};
    for (int d = 0; d < 2; d++) {
        struct nn_model *m = parse_functional(true);
        struct nn_replica *r = replicate(m, devices[d], 1, &mse);
        struct nn_result result;
        memcpy(nn_replica_param(r, 0), identity, sizeof identity);
        memset(nn_replica_param(r, 1), 0, 3 * sizeof(float));
        evaluate(r, &(struct nn_batch){.rows = 1, .input = {x}, .target = {target}}, &result);
        check_close("y", nn_replica_output(r, 0), (const float[]){2, 0, 6}, 3, 0);
        nn_replica_free(r);
        nn_model_free(m);
    }
}

// y = Add(d(x), relu(d(x))): what d gives is read before and after the relu.
static void what_is_read_twice_stays(void **state)
{
    (void)state;
    char json[] =
        "{'class_name': 'Functional', 'config': {'name': 'net', 'layers': ["
        "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_shape': [null, 1]}, 'inbound_nodes': []},"
        "{'class_name': 'Dense', 'config': {'name': 'd', 'units': 1, 'use_bias': false}, "
        "'inbound_nodes': [[['x', 0, 0, {}]]]},"
        "{'class_name': 'ReLU', 'config': {'name': 'r'}, 'inbound_nodes': [[['d', 0, 0, {}]]]},"
        "{'class_name': 'Add', 'config': {'name': 's'}, "
        "'inbound_nodes': [[['d', 0, 0, {}], ['r', 0, 0, {}]]]}], "
        "'input_layers': [['x', 0, 0]], 'output_layers': [['s', 0, 0]]}}";
    const float x[2] = {1, -2}, target[2] = {0};
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    struct nn_result result;
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    if (nn_model_parse(json, "test", &m, &e) != PS_OK)
        fail_msg("%s", e.text);
    struct nn_replica *r = replicate(m, "cpu", 2, &mse);
    nn_replica_param(r, 0)[0] = 1;
    train(r, &(struct nn_batch){.rows = 2, .input = {x}, .target = {target}}, 0, NULL, &result);
    check_close("y", nn_replica_output(r, 0), (const float[]){2, -2}, 2, 0);
    check_close("gradient", nn_replica_grad(r, 0), (const float[]){(2 * 2 * 2 + 2 * -2 * -2) / 2}, 1, 0);
    nn_replica_free(r);
    nn_model_free(m);
}

// ---- against itself -----------------------------------------------------------------------------------------------

static void smaller_batches_are_exact(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct golden g;
        open_golden(&g);
        struct nn_replica *exact = replicate(g.model, devices[d], 3, &logits);
        struct nn_replica *larger = replicate(g.model, devices[d], 5, &logits);
        struct nn_result a, b;
        set_golden_params(&g, exact);
        set_golden_params(&g, larger);
        g.x[3 * elements(nn_model_input(g.model, 0))] = INFINITY;  // a fourth row, to be left behind by nothing
        g.batch.rows = 4;
        train(larger, &g.batch, 0, NULL, &b);
        g.batch.rows = 3;
        train(exact, &g.batch, 0, NULL, &a);
        train(larger, &g.batch, 0, NULL, &b);
        assert_true(fabs(a.loss - b.loss) < 1e-5 && a.loss > 0);
        for (size_t i = 0; i < nn_model_params(g.model); i++)
            check_close(nn_model_param(g.model, i)->name, nn_replica_grad(larger, i), nn_replica_grad(exact, i),
                        nn_model_param(g.model, i)->count, 1e-6);
        evaluate(larger, &g.batch, &b);
        assert_true(fabs(a.loss - b.loss) < 1e-5);
        check_close("output", nn_replica_output(larger, 0), nn_replica_output(exact, 0), 9, 1e-5);
        nn_replica_free(exact);
        nn_replica_free(larger);
        close_golden(&g);
    }
}

static void empty_batch_changes_nothing(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct golden g;
        open_golden(&g);
        struct nn_replica *r = replicate(g.model, devices[d], 5, &logits);
        struct nn_result result = {.loss = 1, .output = {1}};
        set_golden_params(&g, r);
        train(r, &g.batch, 0, NULL, &result);
        train(r, &(struct nn_batch){0}, 0, NULL, &result);
        assert_true(result.loss == 0 && result.output[0] == 0);
        for (size_t i = 0; i < nn_model_params(g.model); i++)
            for (uint64_t j = 0; j < nn_model_param(g.model, i)->count; j++)
                assert_true(nn_replica_grad(r, i)[j] == 0);
        nn_replica_free(r);
        close_golden(&g);
    }
}

// Dropout depends on (seed, layer, step, example), not on the row nor on the batch's size, and evaluation drops
// nothing.
static void dropout_repeats(void **state)
{
    (void)state;
    const char *layers = LAYER("Dropout", "'name': 'x', 'rate': 0.5") ", " LAYER("Dropout", "'name': 'y', 'rate': 0");
    struct nn_model *m = parse("64", layers);
    struct nn_replica *r = replicate(m, "cpu", 4, &mse);
    const uint64_t example[4] = {7, 8, 1000000007, 1}, turned[2] = {1000000007, 7};
    float x[4 * 64], target[4 * 64] = {0}, first[4 * 64];
    struct nn_result result;
    for (int i = 0; i < 4 * 64; i++)
        x[i] = 1;
    train(r, &(struct nn_batch){4, {x}, {target}, example}, 6, NULL, &result);
    memcpy(first, nn_replica_output(r, 0), sizeof first);
    int kept = 0;
    for (int i = 0; i < 4 * 64; i++) {
        assert_true(first[i] == 0 || first[i] == 2);
        kept += first[i] == 2;
    }
    assert_in_range(kept, 96, 160);
    assert_memory_not_equal(first, first + 64, 64 * sizeof(float));
    train(r, &(struct nn_batch){2, {x}, {target}, turned}, 6, NULL, &result);
    assert_memory_equal(nn_replica_output(r, 0), first + 2 * 64, 64 * sizeof(float));
    assert_memory_equal(nn_replica_output(r, 0) + 64, first, 64 * sizeof(float));
    train(r, &(struct nn_batch){4, {x}, {target}, example}, 7, NULL, &result);
    assert_memory_not_equal(nn_replica_output(r, 0), first, sizeof first);
    evaluate(r, &(struct nn_batch){4, {x}, {target}, example}, &result);
    assert_memory_equal(nn_replica_output(r, 0), x, sizeof x);
    nn_replica_free(r);
    nn_model_free(m);
}

static struct nn_model *parse_text(const char *json)
{
    struct nn_model *m = NULL;
    struct ps_error e = {0};
    if (nn_model_parse(json, "model.json", &m, &e) != PS_OK)
        fail_msg("%s", e.text);
    return m;
}

// A recurrent layer's dropout takes the same features of its input at all steps, and other ones of another example.
static void dropout_before_a_recurrent_layer_is_of_all_steps(void **state)
{
    (void)state;
    enum { ROWS = 16, STEPS = 3, FEATURES = 8 };
    struct nn_model *m =
        parse("3, 8", LAYER("SimpleRNN", "'name': 'x', 'units': 1, 'activation': 'linear', 'use_bias': "
                                         "false, 'return_sequences': true, 'dropout': 0.5"));
    struct nn_replica *r = replicate(m, "cpu", ROWS, &mse);
    uint64_t example[ROWS];
    float x[ROWS * STEPS * FEATURES], target[ROWS * STEPS] = {0};
    struct nn_result result;
    for (int i = 0; i < ROWS * STEPS * FEATURES; i++)
        x[i] = 1;
    for (int i = 0; i < ROWS; i++)
        example[i] = (uint64_t)i;
    for (int i = 0; i < FEATURES; i++)
        nn_replica_param(r, 0)[i] = 1;
    nn_replica_param(r, 1)[0] = 0;
    evaluate(r, &(struct nn_batch){ROWS, {x}, {target}, example}, &result);
    assert_true(nn_replica_output(r, 0)[0] == FEATURES);
    train(r, &(struct nn_batch){ROWS, {x}, {target}, example}, 6, NULL, &result);
    const float *y = nn_replica_output(r, 0);
    int others = 0;
    for (int i = 0; i < ROWS; i++) {
        assert_true(y[i * STEPS] == y[i * STEPS + 1] && y[i * STEPS] == y[i * STEPS + 2]);
        assert_true((int)y[i * STEPS] % 2 == 0);
        others += y[i * STEPS] != y[0];
    }
    assert_true(others > 0);
    nn_replica_free(r);
    nn_model_free(m);
}

// An attention's dropout is of what its softmax gives, while it is trained.
static void attention_drops(void **state)
{
    (void)state;
    char *json = ps_printf(
        "{%s, \"config\": {\"name\": \"net\", \"layers\": ["
        "{%s, \"name\": \"x\", \"config\": {\"name\": \"x\", \"batch_input_shape\": [null, 4, 8]}, \"inbound_nodes\": "
        "[]},"
        "{%s, \"name\": \"a\", \"config\": {\"name\": \"a\", \"num_heads\": 2, \"key_dim\": 3, \"dropout\": 0.5},"
        " \"inbound_nodes\": [[[\"x\", 0, 0, {\"value\": [\"x\", 0, 0]}]]]}],"
        "\"input_layers\": [[\"x\", 0, 0]], \"output_layers\": [[\"a\", 0, 0]]}}",
        "\"class_name\": \"Functional\"", "\"class_name\": \"InputLayer\"", "\"class_name\": \"MultiHeadAttention\"");
    struct nn_model *m = parse_text(json);
    struct nn_replica *r = replicate(m, "cpu", 1, &mse);
    const uint64_t example[1] = {7};
    float x[32], target[32] = {0}, first[32], whole[32];
    struct nn_result result;
    for (int i = 0; i < 32; i++)
        x[i] = (float)(i % 5) - 2;
    for (size_t i = 0; i < nn_model_params(m); i++)
        for (uint64_t j = 0; j < nn_model_param(m, i)->count; j++)
            nn_replica_param(r, i)[j] = (float)(j % 3) - 0.5f;
    const struct nn_batch batch = {1, {x}, {target}, example};
    evaluate(r, &batch, &result);
    memcpy(whole, nn_replica_output(r, 0), sizeof whole);
    train(r, &batch, 6, NULL, &result);
    memcpy(first, nn_replica_output(r, 0), sizeof first);
    assert_memory_not_equal(first, whole, sizeof whole);
    train(r, &batch, 7, NULL, &result);
    assert_memory_not_equal(first, nn_replica_output(r, 0), sizeof first);
    train(r, &batch, 6, NULL, &result);
    assert_memory_equal(first, nn_replica_output(r, 0), sizeof first);
    nn_replica_free(r);
    nn_model_free(m);
    free(json);
}

// ' stands for ".
static struct nn_model *parse_quoted(const char *text)
{
    char *json = ps_strdup(text);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    struct nn_model *m = parse_text(json);
    free(json);
    return m;
}

// A layer that is called on inputs of two ranks.
//
// What it gives of x, 6 numbers in lines of n; returns how many numbers these are.
static size_t give_lines(const char *class, const float *x, int n, float *y)
{
    const int lines = 6 / n;
    size_t given = 0;
    for (int a = 0; a < lines; a++) {
        float sum = 0, squares = 0;
        for (int i = 0; i < n; i++) {
            sum += expf(x[a * n + i]);
            squares += x[a * n + i] * x[a * n + i];
        }
        for (int i = 0; i < n && strcmp(class, "Softmax") == 0; i++)
            y[given++] = expf(x[a * n + i]) / sum;
        for (int i = 0; i < n && strcmp(class, "UnitNormalization") == 0; i++)
            y[given++] = x[a * n + i] / sqrtf(squares);
        for (int i = 0; i < 2 * n && strcmp(class, "Concatenate") == 0; i++)
            y[given++] = x[a * n + i % n];
        for (int b = 0; b < lines && strcmp(class, "Dot") == 0; b++) {
            y[given] = 0;
            for (int i = 0; i < n; i++)
                y[given] += x[a * n + i] * x[b * n + i];
            given++;
        }
    }
    return given;
}

// x is of shape (2, 3), and r the same in shape (6), or the other way round; the layer is called on x, then on r.
static void check_two_ranks(const char *class, const char *config, bool long_first, int call)
{
    const bool two = strcmp(class, "Concatenate") == 0 || strcmp(class, "Dot") == 0;
    const char *calls = two ? "[['x', 0, 0, {}], ['x', 0, 0, {}]], [['r', 0, 0, {}], ['r', 0, 0, {}]]"
                            : "[['x', 0, 0, {}]], [['r', 0, 0, {}]]";
    const float x[6] = {0.2f, 0.3f, 0.6f, 0, -0.3f, 0.4f}, target[12] = {0};
    float expected[12];
    struct nn_result result;
    char *json = ps_printf(
        "{'class_name': 'Functional', 'config': {'name': 'net', 'layers': ["
        "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_shape': [null, %s]}, 'inbound_nodes': []},"
        "{'class_name': 'Reshape', 'config': {'name': 'r', 'target_shape': [%s]}, 'inbound_nodes': [[['x', 0, 0, "
        "{}]]]}, {'class_name': '%s', 'config': {'name': 'm'%s}, 'inbound_nodes': [%s]}], "
        "'input_layers': [['x', 0, 0]], 'output_layers': [['m', %d, 0]]}}",
        long_first ? "6" : "2, 3", long_first ? "2, 3" : "6", class, config, calls, call);
    struct nn_model *m = parse_quoted(json);
    struct nn_replica *r = replicate(m, "cpu", 1, &mse);
    evaluate(r, &(struct nn_batch){.rows = 1, .input = {x}, .target = {target}}, &result);
    const size_t n = give_lines(class, x, long_first == (call == 0) ? 6 : 3, expected);
    assert_int_equal(elements(nn_model_output(m, 0)), n);
    check_close(class, nn_replica_output(r, 0), expected, n, 1e-5);
    nn_replica_free(r);
    nn_model_free(m);
    free(json);
}

static void the_last_axis_is_that_of_each_call(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        check_two_ranks("Softmax", "", k / 2, k % 2);
        check_two_ranks("UnitNormalization", "", k / 2, k % 2);
        check_two_ranks("Concatenate", "", k / 2, k % 2);
        check_two_ranks("Dot", ", 'axes': -1", k / 2, k % 2);
    }
}

// A query's step that may look at nothing gets nothing in Keras 3, where weights are dropped, and all alike elsewhere:
// of an attention whose values are its bias of 2, and whose output is their sum.
static void attention_of_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        double dropout;
        float expected;
    } cases[] = {{"3.15.0", 0.5, 0}, {"3.15.0", 0, 2}, {"2.15.0", 0.5, 2}};
    const float x[2] = {0}, target[2] = {0};
    struct nn_result result;
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        char *json = ps_printf(
            "{'class_name': 'Functional', 'keras_version': '%s', 'config': {'name': 'net', 'layers': ["
            "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_input_shape': [null, 2, 1]}, "
            "'inbound_nodes': []},"
            "{'class_name': 'Masking', 'config': {'name': 'k'}, 'inbound_nodes': [[['x', 0, 0, {}]]]},"
            "{'class_name': 'MultiHeadAttention', 'config': {'name': 'a', 'num_heads': 1, 'key_dim': 1, 'dropout': %g},"
            "'inbound_nodes': [[['k', 0, 0, {'value': ['k', 0, 0]}]]]}],"
            "'input_layers': [['x', 0, 0]], 'output_layers': [['a', 0, 0]]}}",
            cases[k / 2].version, cases[k / 2].dropout);
        struct nn_model *m = parse_quoted(json);
        struct nn_replica *r = replicate(m, devices[k % 2], 1, &mse);
        for (size_t i = 0; i < nn_model_params(m); i++)
            nn_replica_param(r, i)[0] = strstr(nn_model_param(m, i)->name, "value/bias")      ? 2
                                        : strstr(nn_model_param(m, i)->name, "output/kernel") ? 1
                                                                                              : 0;
        evaluate(r, &(struct nn_batch){.rows = 1, .input = {x}, .target = {target}}, &result);
        check_close("y", nn_replica_output(r, 0), (const float[]){cases[k / 2].expected, cases[k / 2].expected}, 2, 0);
        nn_replica_free(r);
        nn_model_free(m);
        free(json);
    }
}

// A layer, and a model, that Keras 2 calls with training=False drop nothing while the model is trained; Keras 3 says so
// of calls by itself, and means nothing by it.
static void training_of_a_call(void **state)
{
    (void)state;
    static const char drop[] = "{'class_name': 'Dropout', 'config': {'name': 'd', 'rate': 0.5}%s}";
    static const char inner[] =
        "{'class_name': 'Sequential', 'config': {'name': 'd', 'layers': [{'class_name': 'InputLayer', 'config': "
        "{'name': 'i', 'batch_input_shape': [null, 64]}}, {'class_name': 'Dropout', 'config': {'name': 'e', 'rate': "
        "0.5}}]}%s}";
    static const struct {
        const char *version, *layer, *training;
        int call;
        bool drops;
    } cases[] = {{"2.15.0", drop, "false", 0, false},
                 {"2.15.0", drop, "null", 0, true},
                 {"3.15.0", drop, "false", 0, true},
                 {"2.15.0", inner, "false", 1, false},
                 {"2.15.0", inner, "null", 1, true}};
    const uint64_t example[1] = {7};
    float x[64], target[64] = {0};
    struct nn_result result;
    for (int i = 0; i < 64; i++)
        x[i] = 1;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *node = ps_printf(", 'inbound_nodes': [[['x', 0, 0, {'training': %s}]]]", cases[k].training);
        char *layer = ps_printf(cases[k].layer, node);
        char *json =
            ps_printf("{'class_name': 'Functional', 'keras_version': '%s', 'config': {'name': 'net', 'layers': "
                      "[{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_input_shape': [null, 64]},"
                      " 'inbound_nodes': []}, %s],"
                      "'input_layers': [['x', 0, 0]], 'output_layers': [['d', %d, 0]]}}",
                      cases[k].version, layer, cases[k].call);
        struct nn_model *m = parse_quoted(json);
        struct nn_replica *r = replicate(m, "cpu", 1, &mse);
        train(r, &(struct nn_batch){1, {x}, {target}, example}, 6, NULL, &result);
        assert_int_equal(memcmp(nn_replica_output(r, 0), x, sizeof x) != 0, cases[k].drops);
        nn_replica_free(r);
        nn_model_free(m);
        free(node);
        free(layer);
        free(json);
    }
}

// Of two steps 2 and 0, of which the second is masked, the mean of what a layer makes of them: of the first alone where
// the layer passes its mask on.
static void masks_go_on(void **state)
{
    (void)state;
    static const struct {
        const char *layer;
        float expected;
    } cases[] = {
        {"{'class_name': 'Add', 'module': 'keras.layers', 'config': {'name': 'l'}, "
         "'inbound_nodes': [[['k', 0, 0, {}], ['k', 0, 0, {}]]]}",
         4},
        {"{'class_name': 'Add', 'module': 'keras.src.ops.numpy', 'config': {'name': 'l'}, "
         "'inbound_nodes': [[['k', 0, 0, {}], ['k', 0, 0, {}]]]}",
         2},
        {"{'class_name': 'ActivityRegularization', 'config': {'name': 'l'}, 'inbound_nodes': [[['k', 0, 0, {}]]]}", 2},
    };
    const float x[2] = {2, 0}, target[1] = {0};
    struct nn_result result;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *json = ps_printf(
            "{'class_name': 'Functional', 'config': {'name': 'net', 'layers': ["
            "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_shape': [null, 2, 1]}, 'inbound_nodes': []},"
            "{'class_name': 'Masking', 'config': {'name': 'k'}, 'inbound_nodes': [[['x', 0, 0, {}]]]}, %s,"
            "{'class_name': 'GlobalAveragePooling1D', 'config': {'name': 'g'}, 'inbound_nodes': [[['l', 0, 0, {}]]]}],"
            "'input_layers': [['x', 0, 0]], 'output_layers': [['g', 0, 0]]}}",
            cases[k].layer);
        struct nn_model *m = parse_quoted(json);
        struct nn_replica *r = replicate(m, "cpu", 1, &mse);
        evaluate(r, &(struct nn_batch){.rows = 1, .input = {x}, .target = {target}}, &result);
        check_close("mean", nn_replica_output(r, 0), &cases[k].expected, 1, 0);
        nn_replica_free(r);
        nn_model_free(m);
        free(json);
    }
}

// A layer that is called twice draws other numbers in each call, in the first one as where there is no other.
static void calls_draw_apart(void **state)
{
    (void)state;
    static const char *const layers[] = {
        "'class_name': 'Dropout', 'config': {'name': 'd', 'rate': 0.5}",
        "'class_name': 'GaussianNoise', 'config': {'name': 'd', 'stddev': 0.5}",
        "'class_name': 'TimeDistributed', 'config': {'name': 'd', 'layer': {'class_name': 'Dropout', 'config': "
        "{'name': 'e', 'rate': 0.5}}}",
    };
    const struct ps_loss both[2] = {mse, mse};
    const uint64_t example[1] = {7};
    float x[64], target[64] = {0}, once[64];
    struct nn_result result;
    for (int i = 0; i < 64; i++)
        x[i] = 1;
    for (size_t k = 0; k < 2 * sizeof layers / sizeof *layers; k++) {
        const bool twice = k % 2;
        char *json = ps_printf("{'class_name': 'Functional', 'config': {'name': 'net', 'layers': [{'class_name': "
                               "'InputLayer', 'config': {'name': 'x', 'batch_shape': [null, 8, 8]}, 'inbound_nodes': "
                               "[]}, {%s, 'inbound_nodes': [[['x', 0, 0, {}]]%s]}],"
                               "'input_layers': [['x', 0, 0]], 'output_layers': [['d', 0, 0]%s]}}",
                               layers[k / 2], twice ? ", [['x', 0, 0, {}]]" : "", twice ? ", ['d', 1, 0]" : "");
        struct nn_model *m = parse_quoted(json);
        struct nn_replica *r = replicate(m, "cpu", 1, both);
        train(r, &(struct nn_batch){1, {x}, {target, target}, example}, 6, NULL, &result);
        if (twice) {
            assert_memory_equal(nn_replica_output(r, 0), once, sizeof once);
            assert_memory_not_equal(nn_replica_output(r, 1), once, sizeof once);
        } else {
            memcpy(once, nn_replica_output(r, 0), sizeof once);
        }
        nn_replica_free(r);
        nn_model_free(m);
        free(json);
    }
}

// The squares of what all four projections give, which are their biases of 1, 2, 3 and 4 at both steps; Keras 2 counts
// those of the last one twice.
static void attention_activity(void **state)
{
    (void)state;
    static const char *const versions[] = {"3.15.0", "2.15.0"};
    const double expected[] = {2 * (1 + 4 + 9 + 16), 2 * (1 + 4 + 9 + 2 * 16)};
    const float x[2] = {5, 6}, target[2] = {4, 4};
    struct nn_result result;
    for (int k = 0; k < 2; k++) {
        char *json =
            ps_printf("{'class_name': 'Functional', 'keras_version': '%s', 'config': {'name': 'net', 'layers': ["
                      "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_input_shape': [null, 2, 1]}, "
                      "'inbound_nodes': []},"
                      "{'class_name': 'MultiHeadAttention', 'config': {'name': 'a', 'num_heads': 1, 'key_dim': 1, "
                      "'activity_regularizer': {'class_name': 'L2', 'config': {'l2': 1}}},"
                      "'inbound_nodes': [[['x', 0, 0, {'value': ['x', 0, 0]}]]]}],"
                      "'input_layers': [['x', 0, 0]], 'output_layers': [['a', 0, 0]]}}",
                      versions[k]);
        struct nn_model *m = parse_quoted(json);
        struct nn_replica *r = replicate(m, "cpu", 1, &mse);
        for (size_t i = 0; i < nn_model_params(m); i++)
            nn_replica_param(r, i)[0] = i % 2 ? (float)(i / 2 + 1) : 0;
        evaluate(r, &(struct nn_batch){.rows = 1, .input = {x}, .target = {target}}, &result);
        assert_true(fabs(result.loss - expected[k]) < 1e-4);
        nn_replica_free(r);
        nn_model_free(m);
        free(json);
    }
}

// What a layer that TimeDistributed wraps says of its activity, the squares of 1 and 2, is Keras 2's alone: the mean
// over the steps.
static void distributed_activity(void **state)
{
    (void)state;
    static const char *const versions[] = {"3.15.0", "2.15.0"};
    const double expected[] = {0, 2.5};
    const float x[2] = {1, 2};
    struct nn_result result;
    for (int k = 0; k < 2; k++) {
        char *json = ps_printf(
            "{'class_name': 'Sequential', 'keras_version': '%s', 'config': {'name': 'net', 'layers': ["
            "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_input_shape': [null, 2, 1]}},"
            "{'class_name': 'TimeDistributed', 'config': {'name': 't', 'layer': {'class_name': 'Dense', 'config': "
            "{'name': 'd', 'units': 1, 'activity_regularizer': {'class_name': 'L2', 'config': {'l2': 1}}}}}}]}}",
            versions[k]);
        struct nn_model *m = parse_quoted(json);
        struct nn_replica *r = replicate(m, "cpu", 1, &mse);
        nn_replica_param(r, 0)[0] = 1;
        nn_replica_param(r, 1)[0] = 0;
        evaluate(r, &(struct nn_batch){.rows = 1, .input = {x}, .target = {x}}, &result);
        assert_true(fabs(result.loss - expected[k]) < 1e-5);
        nn_replica_free(r);
        nn_model_free(m);
        free(json);
    }
}

// What is too short to be made as long as 1: below 1e-12 and, of Dot, below 1e-7 in Keras 3, below 1e-6 in Keras 2. Of
// lines that are 5e-9 long.
static void short_lines(void **state)
{
    (void)state;
    static const char unit[] = "'class_name': 'UnitNormalization', 'config': {'name': 'u'}, "
                               "'inbound_nodes': [[['x', 0, 0, {}]]]";
    static const char dot[] = "'class_name': 'Dot', 'config': {'name': 'u', 'axes': 1, 'normalize': true}, "
                              "'inbound_nodes': [[['x', 0, 0, {}], ['x', 0, 0, {}]]]";
    static const struct {
        const char *version, *layer;
        float expected;
    } cases[] = {{"3.15.0", unit, 0.6f}, {"2.15.0", unit, 3e-3f}, {"3.15.0", dot, 2.5e-3f}, {"2.15.0", dot, 2.5e-5f}};
    const float x[2] = {3e-9f, 4e-9f}, target[2] = {0};
    struct nn_result result;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *json =
            ps_printf("{'class_name': 'Functional', 'keras_version': '%s', 'config': {'name': 'net', 'layers': "
                      "[{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_input_shape': [null, 2]}, "
                      "'inbound_nodes': []}, {%s}],"
                      "'input_layers': [['x', 0, 0]], 'output_layers': [['u', 0, 0]]}}",
                      cases[k].version, cases[k].layer);
        struct nn_model *m = parse_quoted(json);
        struct nn_replica *r = replicate(m, "cpu", 1, &mse);
        evaluate(r, &(struct nn_batch){.rows = 1, .input = {x}, .target = {target}}, &result);
        check_close("y", nn_replica_output(r, 0), &cases[k].expected, 1, (double)cases[k].expected * 1e-5);
        nn_replica_free(r);
        nn_model_free(m);
        free(json);
    }
}

// Softmax()(x, mask=m) of two rows, of which one has nothing that counts; a mask of one row is that of both. A half is
// not enough.
static void softmax_masks(void **state)
{
    (void)state;
    static const struct {
        const char *version, *shape;
        float mask[6], y[6];
    } cases[] = {
        {"3.15.0", "2, 3", {1, 0.5f, 1, 0, 0, 0}, {0.25f, 0, 0.75f, 0, 0, 0}},
        {"3.15.0", "1, 3", {1, 0, 1}, {0.25f, 0, 0.75f, 0.5f, 0, 0.5f}},
        {"2.15.0", "2, 3", {1, 0, 1, 0, 0, 0}, {0.25f, 0, 0.75f, 1 / 3.0f, 1 / 3.0f, 1 / 3.0f}},
    };
    const float x[6] = {0, 9, logf(3), 5, 5, 5}, target[6] = {0};
    struct nn_result result;
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        char *json =
            ps_printf("{'class_name': 'Functional', 'keras_version': '%s', 'config': {'name': 'net', 'layers': ["
                      "{'class_name': 'InputLayer', 'config': {'name': 'x', 'batch_input_shape': [null, 2, 3]}, "
                      "'inbound_nodes': []},"
                      "{'class_name': 'InputLayer', 'config': {'name': 'm', 'batch_input_shape': [null, %s]}, "
                      "'inbound_nodes': []},"
                      "{'class_name': 'Softmax', 'config': {'name': 's'}, "
                      "'inbound_nodes': [[['x', 0, 0, {'mask': ['m', 0, 0]}]]]}],"
                      "'input_layers': [['x', 0, 0], ['m', 0, 0]], 'output_layers': [['s', 0, 0]]}}",
                      cases[k / 2].version, cases[k / 2].shape);
        struct nn_model *m = parse_quoted(json);
        struct nn_replica *r = replicate(m, devices[k % 2], 1, &mse);
        evaluate(r, &(struct nn_batch){.rows = 1, .input = {x, cases[k / 2].mask}, .target = {target}}, &result);
        check_close("y", nn_replica_output(r, 0), cases[k / 2].y, 6, 1e-6);
        nn_replica_free(r);
        nn_model_free(m);
        free(json);
    }
}

// What a step told of variables. Whoever has a variable between ready and need may change it.
struct order {
    size_t param[8], n;  // as they became ready
    size_t needed[8], n_needed;
    struct nn_replica *r;
    const float *value;  // [variables] the first element of each, which comes when it is needed; NULL: they are there
    size_t fails_at;     // the number of a need, from 1
    size_t ready_fails_at;
};

static enum ps_code note_need(void *arg, size_t i, struct ps_error *e)
{
    struct order *o = arg;
    assert_true(o->n_needed < 8);
    o->needed[o->n_needed++] = i;
    if (o->value)
        nn_replica_param(o->r, i)[0] = o->value[i];
    return o->n_needed == o->fails_at ? ps_fail(e, PS_UNAVAILABLE, "it has gone") : PS_OK;
}

// It is this one's now: what is left of the step shall neither read the value nor write the gradient.
static enum ps_code note_ready(void *arg, size_t i, struct ps_error *e)
{
    struct order *o = arg;
    o->param[o->n++] = i;
    nn_replica_param(o->r, i)[0] += 1000;
    nn_replica_grad(o->r, i)[0] += 1000;
    return o->n == o->ready_fails_at ? ps_fail(e, PS_ABORTED, "nobody wants it") : PS_OK;
}

static void gradients_are_reported_when_final(void **state)
{
    (void)state;
    struct golden g;
    open_golden(&g);
    struct nn_replica *r = replicate(g.model, "cpu", 5, &logits);
    float grad[8], value[8];
    struct order o = {.r = r, .value = value};
    const struct nn_hooks hooks = {note_need, note_ready, NULL, &o};
    struct nn_result result;
    const size_t *order;
    set_golden_params(&g, r);
    train(r, &g.batch, 0, NULL, &result);
    for (size_t i = 0; i < 8; i++) {
        grad[i] = nn_replica_grad(r, i)[0];
        value[i] = nn_replica_param(r, i)[0];
        nn_replica_param(r, i)[0] = NAN;
    }
    train(r, &g.batch, 0, &hooks, &result);
    assert_int_equal(o.n, 8);
    assert_int_equal(o.n_needed, 8);
    assert_int_equal(nn_replica_order(r, &order), 8);
    for (size_t k = 0; k < 8; k++) {
        assert_int_equal(o.param[k], 7 - k);
        assert_int_equal(o.needed[k] / 2, k / 2);  // layer by layer
        assert_int_equal(order[k], 7 - k);
        assert_true(nn_replica_grad(r, k)[0] == grad[k] + 1000);
        if (k)
            assert_true(nn_replica_grad(r, order[k]) > nn_replica_grad(r, order[k - 1]));
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal((uintptr_t)nn_replica_param(r, i) % 64, 0);
        assert_int_equal((uintptr_t)nn_replica_grad(r, i) % 64, 0);
    }
    nn_replica_free(r);
    close_golden(&g);
}

// Where a value does not come, or nobody takes a gradient, the step ends, and nothing after that is told.
static void a_step_ends_where_a_hook_fails(void **state)
{
    (void)state;
    struct golden g;
    open_golden(&g);
    struct nn_replica *r = replicate(g.model, "cpu", 5, &logits);
    struct order o = {.r = r, .fails_at = 3};
    const struct nn_hooks hooks = {note_need, note_ready, NULL, &o};
    struct nn_result result;
    struct ps_error e = {.code = PS_OK};
    set_golden_params(&g, r);
    assert_int_equal(nn_replica_train(r, &g.batch, 0, &hooks, &result, &e), PS_UNAVAILABLE);
    assert_string_equal(e.text, "it has gone");
    assert_int_equal(o.n_needed, 3);
    assert_int_equal(o.n, 0);
    o = (struct order){.r = r, .ready_fails_at = 2};
    assert_int_equal(nn_replica_train(r, &g.batch, 0, &hooks, &result, &e), PS_ABORTED);
    assert_string_equal(e.text, "nobody wants it");
    assert_int_equal(o.n, 2);
    nn_replica_free(r);
    close_golden(&g);
}

// A layer that is called twice is ready after both, and one that no output needs is told of, too; a batch of no rows
// has gradients of 0.
static void every_variable_that_learns_is_reported_once(void **state)
{
    static const char text[] =
        "{\"class_name\": \"Functional\", \"config\": {\"name\": \"net\", \"layers\": ["
        "{\"class_name\": \"InputLayer\", \"name\": \"in\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 3]},"
        " \"inbound_nodes\": []},"
        "{\"class_name\": \"Dense\", \"name\": \"twice\", \"config\": {\"name\": \"twice\", \"units\": 3},"
        " \"inbound_nodes\": [[[\"in\", 0, 0, {}]], [[\"twice\", 0, 0, {}]]]},"
        "{\"class_name\": \"Dense\", \"name\": \"idle\", \"config\": {\"name\": \"idle\", \"units\": 1},"
        " \"inbound_nodes\": [[[\"in\", 0, 0, {}]]]}],"
        "\"input_layers\": [[\"in\", 0, 0]], \"output_layers\": [[\"twice\", 1, 0]]}}";
    (void)state;
    struct ps_error e = {.code = PS_OK};
    struct nn_model *m = NULL;
    if (nn_model_parse(text, "test", &m, &e))
        fail_msg("%s", e.text);
    for (int rows = 1; rows >= 0; rows--) {
        struct nn_replica *r = replicate(m, "cpu", 1, &mse);
        struct order o = {.r = r};
        const struct nn_hooks hooks = {note_need, note_ready, NULL, &o};
        struct nn_result result;
        const float x[3] = {1, 2, 3}, target[3] = {4, 5, 6};
        init_params(m, r);
        train(r, &(struct nn_batch){rows, {x}, {target}, NULL}, 0, &hooks, &result);
        assert_int_equal(o.n_needed, rows ? 6 : 4);  // the idle layer is computed, and has no gradient
        assert_int_equal(o.n, 4);
        assert_true(o.param[0] + o.param[1] == 1 && o.param[2] == 2 && o.param[3] == 3);
        if (!rows)
            assert_true(nn_replica_grad(r, 0)[0] == 1000 && nn_replica_grad(r, 0)[1] == 0);
        nn_replica_free(r);
    }
    nn_model_free(m);
}

static void frozen_layers_are_not_reported(void **state)
{
    (void)state;
    struct nn_model *m = parse("4", DENSE("a", "'units': 4, 'trainable': false") ", " DENSE(
                                        "b", "'units': 4") ", " DENSE("c", "'units': 2, 'trainable': false"));
    struct nn_replica *r = replicate(m, "ref", 1, &mse);
    struct order o = {.r = r};
    const struct nn_hooks hooks = {note_need, note_ready, NULL, &o};
    struct nn_result result;
    const float x[4] = {1, 2, 3, 4}, target[2] = {5, 6};
    init_params(m, r);
    train(r, &(struct nn_batch){1, {x}, {target}, NULL}, 0, &hooks, &result);
    assert_int_equal(o.n, 2);
    assert_true(o.param[0] == 3 && o.param[1] == 2);
    nn_replica_free(r);
    nn_model_free(m);
}

static struct nn_model *parse_partly_frozen(const char *trainable)
{
    char *layers =
        ps_printf("{'class_name': 'Conv2D', 'config': {'name': 'a', 'filters': 2, 'kernel_size': 2}}, "
                  "{'class_name': 'Conv2D', 'config': {'name': 'b', 'filters': 2, 'kernel_size': 2, 'trainable': %s}}, "
                  "{'class_name': 'Flatten', 'config': {'name': 'f'}}, "
                  "{'class_name': 'Dense', 'config': {'name': 'c', 'units': 3}}, "
                  "{'class_name': 'Dense', 'config': {'name': 'd', 'units': 2, 'trainable': %s}}",
                  trainable, trainable);
    struct nn_model *m = parse("4, 4, 1", layers);
    free(layers);
    return m;
}

// The gradients of frozen layers are not computed, and those of the layers below them are as if they were.
static void frozen_layers_get_no_gradient(void **state)
{
    (void)state;
    const float untouched = 77, target[2] = {5, 6};
    float x[16];
    for (int i = 0; i < 16; i++)
        x[i] = (float)(i % 5) - 2;
    for (int d = 0; d < 2; d++) {
        struct nn_model *m[2] = {parse_partly_frozen("true"), parse_partly_frozen("false")};
        struct nn_replica *r[2];
        for (int k = 0; k < 2; k++) {
            struct nn_result result;
            r[k] = replicate(m[k], devices[d], 1, &mse);
            init_params(m[k], r[k]);
            for (size_t i = 0; i < 8; i++)
                nn_replica_grad(r[k], i)[0] = untouched;
            train(r[k], &(struct nn_batch){1, {x}, {target}, NULL}, 0, NULL, &result);
        }
        for (size_t i = 0; i < 8; i++) {
            const struct nn_param *p = nn_model_param(m[1], i);
            if (p->trainable)
                assert_memory_equal(nn_replica_grad(r[0], i), nn_replica_grad(r[1], i), p->count * sizeof(float));
            else
                assert_true(nn_replica_grad(r[1], i)[0] == untouched && nn_replica_grad(r[0], i)[0] != untouched);
        }
        for (int k = 0; k < 2; k++) {
            nn_replica_free(r[k]);
            nn_model_free(m[k]);
        }
    }
}

// Four points of two classes that no straight line parts.
static void training_reduces_the_loss(void **state)
{
    (void)state;
    const float x[8] = {0, 0, 0, 1, 1, 0, 1, 1};
    const int32_t label[4] = {0, 1, 1, 0};
    for (int d = 0; d < 2; d++) {
        struct nn_model *m = parse("2", DENSE("h", "'units': 16, 'activation': 'relu'") ", " DENSE("o", "'units': 2"));
        struct nn_replica *r = replicate(m, devices[d], 4, &logits);
        struct nn_batch b = {.rows = 4, .input = {x}, .target = {label}};
        struct nn_result first, last;
        init_params(m, r);
        evaluate(r, &b, &first);
        for (uint64_t step = 0; step < 500; step++) {
            train(r, &b, step, NULL, &last);
            descend(m, r, 0.3f);
        }
        evaluate(r, &b, &last);
        assert_true(first.loss > 1);
        assert_true(last.loss < 0.2);
        for (int i = 0; i < 4; i++)
            assert_true((nn_replica_output(r, 0)[2 * i + 1] > nn_replica_output(r, 0)[2 * i]) == label[i]);
        nn_replica_free(r);
        nn_model_free(m);
    }
}

static void check_refused(const struct nn_model *m, const char *device, int rows, const struct ps_loss *loss,
                          enum ps_code code, const char *says)
{
    struct ps_error e = {0};
    struct nn_replica *r = NULL;
    assert_int_equal(nn_replica_create(m, device, rows, 1, 0, loss, &r, &e), code);
    assert_null(r);
    if (!strstr(e.text, says))
        fail_msg("no \"%s\" in \"%s\"", says, e.text);
}

static void refuses(void **state)
{
    (void)state;
    struct nn_model *m = parse("30000", DENSE("o", "'units': 2"));
    check_refused(m, "tpu", 1, &logits, PS_INVALID_ARGUMENT,
                  "device \"tpu\" is not known: expected \"cpu\", \"gpu\" or \"ref\"");
    check_refused(m, "cpu:a", 1, &logits, PS_INVALID_ARGUMENT,
                  "device \"cpu:a\": expected a number after the colon, as in gpu:0");
    check_refused(m, "cpu", 0, &logits, PS_INVALID_ARGUMENT, "expected a batch of 1 or more rows, not 0");
    check_refused(m, "cpu", 100000, &logits, PS_INVALID_ARGUMENT, "layer \"in\" gives more than 2147483647 elements");
    check_refused(m, "cpu", 1, &probabilities, PS_FAILED_PRECONDITION, "set from_logits to true");
    nn_model_free(m);
}

// Numbers that an Embedding looks up, as floats and as integers: one that is not in its table is named.
static void ids_outside_the_table(void **state)
{
    (void)state;
    static const char *const shapes[] = {"3", "3], 'dtype': 'int32', 'batch_input_shape': [null, 3"};
    const float floats[] = {0, 4, 2, 1, 5, 0}, fit[] = {0, 4, 2, 1, 4, 0}, y[12] = {0};
    const int32_t integers[] = {0, 4, 2, 1, -1, 0};
    for (size_t i = 0; i < 2; i++) {
        struct nn_model *m = parse(shapes[i], "{'class_name': 'Embedding', 'config': {'name': 'e', 'input_dim': 5, "
                                              "'output_dim': 2}}");
        struct nn_replica *r = replicate(m, "cpu", 2, &mse);
        struct nn_batch b = {.rows = 2, .input = {i ? (const void *)integers : floats}, .target = {y}};
        struct nn_result result;
        struct ps_error e = {0};
        assert_int_equal(nn_replica_train(r, &b, 0, NULL, &result, &e), PS_INVALID_ARGUMENT);
        assert_string_equal(e.text, i ? "input \"in\" of example 1 has -1, which the model looks up: expected a whole "
                                        "number from 0 to 4"
                                      : "input \"in\" of example 1 has 5, which the model looks up: expected a whole "
                                        "number from 0 to 4");
        if (i == 0) {
            b.input[0] = fit;
            evaluate(r, &b, &result);
        }
        nn_replica_free(r);
        nn_model_free(m);
    }
}

// Of ten layers of convolution, batch normalization and relu, each of whose tensors takes 16 KiB, the step keeps what
// the convolutions give alone: a relu's output is computed once more where the backward pass reads it.
static void activations_are_computed_again(void **state)
{
    (void)state;
    enum { LAYERS = 10, BYTES = 16 << 10, OTHERS = 4 };  // a gradient, what it is made from and into; what is small
    char *layers = ps_printf("%s", DENSE("d", "'units': 4"));
    struct nn_model *m;
    for (int i = 0; i < LAYERS; i++) {
        char *more = ps_printf("%s, {'class_name': 'Conv2D', 'config': {'name': 'c%d', 'filters': 4, 'kernel_size': 3, "
                               "'padding': 'same', 'use_bias': false}}, {'class_name': 'BatchNormalization', 'config': "
                               "{'name': 'n%d'}}, {'class_name': 'ReLU', 'config': {'name': 'r%d'}}",
                               layers, i, i, i);
        free(layers);
        layers = more;
    }
    m = parse("8, 8, 1", layers);
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        struct nn_replica *r = replicate(m, devices[d], 16, &mse);
        assert_in_range(nn_replica_arena(r), LAYERS * BYTES, (LAYERS + 1 + OTHERS) * BYTES);
        nn_replica_free(r);
    }
    nn_model_free(m);
    free(layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_outside_the_table),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(functional_gradients_are_slopes),
        cmocka_unit_test(functional_values),
        cmocka_unit_test(what_is_read_twice_stays),
        cmocka_unit_test(the_last_axis_is_that_of_each_call),
        cmocka_unit_test(smaller_batches_are_exact),
        cmocka_unit_test(empty_batch_changes_nothing),
        cmocka_unit_test(activations_are_computed_again),
        cmocka_unit_test(dropout_repeats),
        cmocka_unit_test(dropout_before_a_recurrent_layer_is_of_all_steps),
        cmocka_unit_test(attention_drops),
        cmocka_unit_test(attention_of_nothing),
        cmocka_unit_test(training_of_a_call),
        cmocka_unit_test(masks_go_on),
        cmocka_unit_test(calls_draw_apart),
        cmocka_unit_test(attention_activity),
        cmocka_unit_test(distributed_activity),
        cmocka_unit_test(short_lines),
        cmocka_unit_test(softmax_masks),
        cmocka_unit_test(gradients_are_reported_when_final),
        cmocka_unit_test(a_step_ends_where_a_hook_fails),
        cmocka_unit_test(every_variable_that_learns_is_reported_once),
        cmocka_unit_test(frozen_layers_are_not_reported),
        cmocka_unit_test(frozen_layers_get_no_gradient),
        cmocka_unit_test(training_reduces_the_loss),
        cmocka_unit_test(refuses),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
