// SPDX-License-Identifier: Apache-2.0
//
// workerd/nn: synchronized batch normalization of replicas that have parts of a batch, some of no rows: together they
// have the gradients and the moving statistics of one replica with the whole batch.
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "common/math/philox.h"
#include "workerd/nn/model.h"

enum { ROWS = 12, ELEMENTS = 24, OUTPUTS = 3, REPLICAS = 3, SUMS = 64, EVENTS = 64 };

static const struct ps_loss mse = PS_LOSS(.kind = PS_LOSS_MSE);
static const char *const devices[] = {"ref", "cpu"};
static float x[ROWS * ELEMENTS], target[ROWS * OUTPUTS];

// Above an input of this shape, of ELEMENTS elements; ' stands for ".
struct network {
    const char *shape, *layers;
};
#define NORM(name, settings) \
    "{'class_name': 'BatchNormalization', 'config': {'name': '" name "', 'synchronized': true, " settings "}}, "
#define DENSE(name, units) \
    "{'class_name': 'Dense', 'config': {'name': '" name "', 'units': " units ", 'activation': 'tanh'}}"
#define FLATTEN "{'class_name': 'Flatten', 'config': {'name': 'flatten'}}, "
#define CONV \
    "{'class_name': 'Conv2D', 'config': {'name': 'conv', 'filters': 4, 'kernel_size': [2, 2], 'padding': 'same'}}, "
static const struct network networks[] = {
    {"24", DENSE("one", "6") ", " NORM("norm", "'epsilon': 0.01") DENSE("two", "3")},
    {"24", DENSE("one", "6") ", " NORM("a", "'scale': false") DENSE("two", "5") ", " NORM("b", "'center': false")
               DENSE("three", "3")},
    {"24", NORM("first", "'scale': false, 'center': false") DENSE("one", "6") ", " NORM("a", "'trainable': false")
               DENSE("two", "3")},
    {"3, 4, 2", CONV NORM("norm", "'momentum': 0.5") FLATTEN DENSE("dense", "3")},
    {"3, 4, 2", CONV NORM("norm", "'axis': 1") FLATTEN DENSE("dense", "3")},
};

// What replicas do together, each on a thread.
struct together {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n, came;
    uint64_t sums;  // that are done
    double sum[SUMS];
    struct part {
        struct together *of;
        struct nn_replica *replica;
        pthread_t thread;
        int first, rows;
        double own[SUMS];
        int fails_at;  // of its sums, from 1; 0: none
        int n_sums;
        int event[EVENTS], n_events;  // 1 + the variable that is ready; - n: a sum of n numbers
        struct nn_result result;
        struct ps_error error;
    } part[REPLICAS];
};

static void note(struct part *p, int event)
{
    assert_true(p->n_events < EVENTS);
    p->event[p->n_events++] = event;
}

static enum ps_code part_need(void *arg, size_t variable, struct ps_error *e)
{
    (void)arg;
    (void)variable;
    (void)e;
    return PS_OK;
}

static enum ps_code part_ready(void *arg, size_t variable, struct ps_error *e)
{
    (void)e;
    note(arg, 1 + (int)variable);
    return PS_OK;
}

// locked, by the last that comes: in the order of the replicas.
static void add_up(struct together *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        t->sum[i] = t->part[0].own[i];
        for (int k = 1; k < t->n; k++)
            t->sum[i] += t->part[k].own[i];
    }
    t->came = 0;
    t->sums++;
    pthread_cond_broadcast(&t->changed);
}

static enum ps_code part_sum(void *arg, double *values, size_t n, struct ps_error *e)
{
    struct part *p = arg;
    struct together *t = p->of;
    note(p, -(int)n);
    assert_true(n <= SUMS);
    if (++p->n_sums == p->fails_at)
        return ps_fail(e, PS_ABORTED, "a worker is lost");
    pthread_mutex_lock(&t->lock);
    memcpy(p->own, values, n * sizeof *values);
    const uint64_t this = t->sums;
    if (++t->came == t->n)
        add_up(t, n);
    while (t->sums == this)
        pthread_cond_wait(&t->changed, &t->lock);
    memcpy(values, t->sum, n * sizeof *values);
    pthread_mutex_unlock(&t->lock);
    return PS_OK;
}

static void *part_train(void *arg)
{
    struct part *p = arg;
    const struct nn_batch b = {
        .rows = p->rows, .input = {x + p->first * ELEMENTS}, .target = {target + p->first * OUTPUTS}};
    const struct nn_hooks hooks = {part_need, part_ready, part_sum, p};
    nn_replica_train(p->replica, &b, 0, &hooks, &p->result, &p->error);
    return NULL;
}

static struct nn_model *parse(const struct network *n)
{
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    char *json =
        ps_printf("{'class_name': 'Sequential', 'config': {'name': 'net', 'layers': [{'class_name': 'InputLayer', "
                  "'config': {'name': 'in', 'batch_shape': [null, %s]}}, %s]}}",
                  n->shape, n->layers);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    if (nn_model_parse(json, "test", &m, &e) != PS_OK)
        fail_msg("%s", e.text);
    free(json);
    return m;
}

static void open_part(struct part *p, const struct nn_model *m, const char *device)
{
    struct ps_error e = {0};
    if (nn_replica_create(m, device, ROWS, 1, 77, &mse, &p->replica, &e) != PS_OK)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < nn_model_params(m); i++)
        nn_model_init_param(m, i, 5, nn_replica_param(p->replica, i));
}

static void open_parts(struct together *t, const struct nn_model *m, const char *device, const int *rows, int n)
{
    *t = (struct together){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .n = n};
    for (int k = 0, at = 0; k < n; at += rows[k++]) {
        t->part[k] = (struct part){.of = t, .first = at, .rows = rows[k]};
        open_part(&t->part[k], m, device);
    }
}

static void train_parts(struct together *t)
{
    for (int k = 0; k < t->n; k++)
        assert_int_equal(pthread_create(&t->part[k].thread, NULL, part_train, &t->part[k]), 0);
    for (int k = 0; k < t->n; k++)
        pthread_join(t->part[k].thread, NULL);
}

static void close_parts(struct together *t)
{
    for (int k = 0; k < t->n; k++)
        nn_replica_free(t->part[k].replica);
}

// Sums of the parts' gradients, each counting by its rows: of a state all have the same.
static void check_variable(struct together *t, struct part *whole, const struct nn_model *m, size_t i)
{
    const struct nn_param *p = nn_model_param(m, i);
    const float *expected = nn_replica_grad(whole->replica, i);
    for (size_t k = 0; k < p->count && nn_param_changes(p); k++) {
        double sum = 0;
        for (int r = 0; r < t->n; r++)
            sum += (double)nn_replica_grad(t->part[r].replica, i)[k] * t->part[r].rows / ROWS;
        if (fabs(sum - (double)expected[k]) > 2e-6 * (1 + fabs((double)expected[k])))
            fail_msg("%s[%zu]: %g, expected %g", p->name, k, sum, (double)expected[k]);
        for (int r = 0; r < t->n && p->rule; r++)
            if (t->part[r].rows)
                assert_true(nn_replica_grad(t->part[r].replica, i)[k] == nn_replica_grad(t->part[0].replica, i)[k]);
    }
}

static void check_same_order(const struct together *t)
{
    for (int k = 1; k < t->n; k++) {
        assert_int_equal(t->part[k].n_events, t->part[0].n_events);
        assert_memory_equal(t->part[k].event, t->part[0].event, (size_t)t->part[0].n_events * sizeof(int));
    }
}

static void check_parts(const struct network *n, const char *device, const int *rows, int parts)
{
    struct nn_model *m = parse(n), *alone = parse(n);
    struct together t, whole;
    nn_model_synchronize(alone, NN_SYNCHRONIZE_NONE);
    open_parts(&t, m, device, rows, parts);
    open_parts(&whole, alone, device, (const int[]){ROWS}, 1);
    train_parts(&t);
    train_parts(&whole);
    assert_int_equal(whole.sums, 0);
    double loss = 0;
    for (int k = 0; k < parts; k++)
        loss += t.part[k].result.loss;
    assert_true(fabs(loss - whole.part[0].result.loss) < 1e-5 * loss);
    for (size_t i = 0; i < nn_model_params(m); i++)
        check_variable(&t, &whole.part[0], m, i);
    check_same_order(&t);
    close_parts(&t);
    close_parts(&whole);
    nn_model_free(m);
    nn_model_free(alone);
}

static void parts_are_the_whole(void **state)
{
    static const int splits[][REPLICAS] = {{6, 6}, {9, 3}, {12, 0}, {4, 1, 7}, {5, 7, 0}, {12}};
    (void)state;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
            for (size_t k = 0; k < sizeof splits / sizeof *splits; k++)
                check_parts(&networks[i], devices[d], splits[k], k == 5 ? 1 : k < 3 ? 2 : 3);
}

// All layers, whatever they say of themselves.
static void all_may_be(void **state)
{
    struct network plain = {
        "24", DENSE("one", "6") ", "
                                "{'class_name': 'BatchNormalization', 'config': {'name': 'norm'}}, " DENSE("two", "3")};
    struct nn_model *m = parse(&plain), *marked = parse(&networks[0]);
    struct together t;
    (void)state;
    assert_null(nn_model_synchronized(m));
    assert_string_equal(nn_model_synchronized(marked), "norm");
    for (int all = 0; all <= 1; all++) {
        nn_model_synchronize(m, all ? NN_SYNCHRONIZE_ALL : NN_SYNCHRONIZE_MARKED);
        open_parts(&t, m, "cpu", (const int[]){6, 6}, 2);
        train_parts(&t);
        assert_int_equal(t.sums, 2 * all);
        close_parts(&t);
    }
    nn_model_free(m);
    nn_model_free(marked);
}

// The means are far from 0 and the variance is small: what it is made of does not cancel out.
static void a_variance_beside_large_means(void **state)
{
    struct nn_model *m = parse(&networks[2]);
    struct together t;
    (void)state;
    for (size_t i = 0; i < ROWS * ELEMENTS; i++)
        x[i] += 1000;
    open_parts(&t, m, "cpu", (const int[]){5, 7}, 2);
    train_parts(&t);
    for (size_t c = 0; c < ELEMENTS; c++) {
        double mean = 0, variance = 0;
        for (size_t r = 0; r < ROWS; r++)
            mean += (double)x[r * ELEMENTS + c] / ROWS;
        for (size_t r = 0; r < ROWS; r++)
            variance += ((double)x[r * ELEMENTS + c] - mean) * ((double)x[r * ELEMENTS + c] - mean) / ROWS;
        const double found = (double)nn_replica_grad(t.part[1].replica, 1)[c];
        if (fabs(found - variance) > 1e-3 * variance)
            fail_msg("the variance of channel %zu is %g, expected %g", c, found, variance);
    }
    for (size_t i = 0; i < ROWS * ELEMENTS; i++)
        x[i] -= 1000;
    close_parts(&t);
    nn_model_free(m);
}

// Whichever of its sums fails: that is the step's error, and no variable becomes ready after it.
static void a_sum_that_fails_ends_the_step(void **state)
{
    struct nn_model *m = parse(&networks[0]);
    struct together t;
    (void)state;
    for (int rows = 0; rows <= ROWS; rows += ROWS)
        for (int at = 1; at <= 2; at++) {
            open_parts(&t, m, "cpu", &rows, 1);
            t.part[0].fails_at = at;
            train_parts(&t);
            assert_int_equal(t.part[0].error.code, PS_ABORTED);
            assert_string_equal(t.part[0].error.text, "a worker is lost");
            assert_true(t.part[0].event[t.part[0].n_events - 1] < 0);
            close_parts(&t);
        }
    nn_model_free(m);
}

static float draw(uint32_t purpose, size_t i)
{
    uint32_t word[4];
    ps_philox(3, purpose, 0, i, word);
    return ps_uniform(word[0]);
}

static int draw_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS * ELEMENTS; i++)
        x[i] = 2 * draw(100, i) - 0.7F;
    for (size_t i = 0; i < ROWS * OUTPUTS; i++)
        target[i] = draw(101, i);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(all_may_be),
        cmocka_unit_test(a_variance_beside_large_means),
        cmocka_unit_test(a_sum_that_fails_ends_the_step),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, draw_batch, NULL);
}
