// SPDX-License-Identifier: Apache-2.0
//
// What Keras gets: every model of tests/golden/keras (golden.py says what they hold) is trained as Keras has trained
// it, on each device: losses, first gradients, weights afterwards, predictions and their loss. One test for each.
#include <glob.h>
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
#include "tests/unit/nn_files.h"
#include "workerd/nn/model.h"

#ifndef DEVICES
#define DEVICES "ref", "cpu"
#endif
static const char *const devices[] = {DEVICES};

// A column of the data, in the dtype in which a batch has it.
struct column {
    void *rows;
    size_t row_bytes;
};

struct golden {
    const char *name;
    struct nn_model *model;
    struct ps_loss loss[NN_MAX_PORTS];
    struct ps_safetensors *tensors;
    struct column input[NN_MAX_PORTS], target[NN_MAX_PORTS];
    int rows, batch;
    double tolerance;  // of the greatest number of a tensor
    double each;       // of every number, or of 1 where it is less; infinite where nothing is said
};

// ---- a golden's files ---------------------------------------------------------------------------------------------

static const struct ps_safetensor *find(const struct golden *g, const char *prefix, const char *name)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s%s", prefix, *prefix && *name ? "/" : "", name);
    return ps_safetensors_find(g->tensors, full);
}

// "x", or one of several: "x/NAME".
static const struct ps_safetensor *find_column(const struct golden *g, const char *what, const char *port)
{
    const struct ps_safetensor *t = find(g, what, "");
    t = t ? t : find(g, what, port);
    if (!t)
        fail_msg("%s: no %s of %s", g->name, what, port);
    return t;
}

// A variable's: Keras leaves out the names of Functional models.
static const struct ps_safetensor *find_variable(const struct golden *g, const char *what, const char *name)
{
    const struct ps_safetensor *t = NULL;
    for (const char *at = name; !t && at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        t = find(g, what, at);
    if (!t)
        fail_msg("%s: no %s of %s", g->name, *what ? what : "value", name);
    return t;
}

static void take_column(const struct golden *g, struct column *c, const struct ps_safetensor *t, enum nn_dtype dtype)
{
    assert_int_equal(t->shape[0], g->rows);
    c->row_bytes = t->count / (size_t)g->rows * sizeof(float);
    c->rows = ps_alloc(t->count * sizeof(float));
    for (size_t i = 0; i < t->count; i++)
        if (dtype == NN_INT32)
            ((int32_t *)c->rows)[i] = (int32_t)t->data[i];
        else
            ((float *)c->rows)[i] = t->data[i];
}

static void read_loss(const json_t *from, struct ps_loss *loss)
{
    struct ps_error e = {0};
    const char *key;
    if (ps_loss_read("loss", from, loss, &key, &e) != PS_OK)
        fail_msg("%s", e.text);
}

static double bound_of(const json_t *document, const char *key, double otherwise)
{
    const json_t *bound = json_object_get(document, key);
    return bound ? json_number_value(bound) : otherwise;
}

static void read_document(struct golden *g, const char *path)
{
    struct ps_error e = {0};
    json_t *document = json_load_file(path, 0, NULL), *loss = json_object_get(document, "loss");
    char *text = json_dumps(json_object_get(document, "model"), 0);
    assert_non_null(text);
    if (nn_model_parse(text, g->name, &g->model, &e) != PS_OK)
        fail_msg("%s", e.text);
    for (size_t k = 0; k < nn_model_outputs(g->model); k++)
        read_loss(json_is_array(loss) ? json_array_get(loss, k) : loss, &g->loss[k]);
    g->batch = (int)json_integer_value(json_object_get(document, "batch"));
    g->tolerance = bound_of(document, "tolerance", 1e-4);
    g->each = bound_of(document, "each", INFINITY);
    free(text);
    json_decref(document);
}

static void open_golden(struct golden *g, const char *json)
{
    struct ps_error e = {0};
    *g = (struct golden){.name = strrchr(json, '/') + 1};
    read_document(g, json);
    char *tensors = ps_printf("%.*s.safetensors", (int)(strrchr(json, '.') - json), json);
    if (ps_safetensors_read(tensors, &g->tensors, &e) != PS_OK)
        fail_msg("%s", e.text);
    g->rows = (int)find_column(g, "x", nn_model_input(g->model, 0).name)->shape[0];
    for (size_t k = 0; k < nn_model_inputs(g->model); k++) {
        const struct nn_port p = nn_model_input(g->model, k);
        take_column(g, &g->input[k], find_column(g, "x", p.name), p.type->dtype);
    }
    for (size_t k = 0; k < nn_model_outputs(g->model); k++)
        take_column(g, &g->target[k], find_column(g, "y", nn_model_output(g->model, k).name),
                    ps_loss_has_labels(&g->loss[k]) ? NN_INT32 : NN_FLOAT);
    free(tensors);
}

static void close_golden(struct golden *g)
{
    for (int k = 0; k < NN_MAX_PORTS; k++) {
        free(g->input[k].rows);
        free(g->target[k].rows);
    }
    ps_safetensors_free(g->tensors);
    nn_model_free(g->model);
}

// The batch that starts at example `first`: of fewer rows where the examples end.
static struct nn_batch take_batch(const struct golden *g, int first)
{
    struct nn_batch b = {.rows = g->rows - first < g->batch ? g->rows - first : g->batch};
    const struct ps_safetensor *weight = ps_safetensors_find(g->tensors, "sample_weight");
    b.weight = weight ? weight->data + first : NULL;
    for (int k = 0; k < NN_MAX_PORTS; k++) {
        b.input[k] = (char *)g->input[k].rows + (size_t)first * g->input[k].row_bytes;
        b.target[k] = (char *)g->target[k].rows + (size_t)first * g->target[k].row_bytes;
    }
    return b;
}

// ---- a training ---------------------------------------------------------------------------------------------------

static void check_close(const struct golden *g, const char *what, const float *found, const float *expected, size_t n)
{
    double scale = 0.01;  // what should be nothing is rounding
    for (size_t i = 0; i < n; i++)
        scale = fmax(scale, fabs((double)expected[i]));
    for (size_t i = 0; i < n; i++) {
        double bound = fmin(g->tolerance * scale, g->each * fmax(1, fabs((double)expected[i])));
        if (!(fabs((double)found[i] - (double)expected[i]) <= bound))
            fail_msg("%s: %s[%zu] is %.9g, Keras has %.9g (the greatest is %g)", g->name, what, i, (double)found[i],
                     (double)expected[i], scale);
    }
}

static void set_weights(const struct golden *g, struct nn_replica *r)
{
    for (size_t i = 0; i < nn_model_params(g->model); i++) {
        const struct nn_param *p = nn_model_param(g->model, i);
        const struct ps_safetensor *t = find_variable(g, "", p->name);
        if (t->rank != p->rank || memcmp(t->shape, p->shape, p->rank * sizeof *p->shape) != 0)
            fail_msg("%s: %s has another shape than Keras's", g->name, p->name);
        memcpy(nn_replica_param(r, i), t->data, p->count * sizeof(float));
    }
}

static void check_gradients(const struct golden *g, struct nn_replica *r)
{
    for (size_t i = 0; i < nn_model_params(g->model); i++) {
        const struct nn_param *p = nn_model_param(g->model, i);
        if (p->trainable)
            check_close(g, p->name, nn_replica_grad(r, i), find_variable(g, "gradient", p->name)->data, p->count);
    }
}

// sgd; a state follows what the batch has.
static void descend(const struct golden *g, struct nn_replica *r)
{
    for (size_t i = 0; i < nn_model_params(g->model); i++) {
        const struct nn_param *p = nn_model_param(g->model, i);
        const float keep = (float)p->momentum, *grad = nn_replica_grad(r, i);
        float *w = nn_replica_param(r, i);
        for (uint64_t j = 0; j < p->count && nn_param_changes(p); j++)
            w[j] = p->rule ? keep * w[j] + (1 - keep) * grad[j] : w[j] - 0.1f * grad[j];
        if (p->trainable)
            nn_model_constrain(g->model, i, w);
    }
}

static void check_steps(const struct golden *g, struct nn_replica *r)
{
    const struct ps_safetensor *losses = find_column(g, "losses", "");
    int first = 0;
    for (uint64_t step = 0; step < losses->count; step++) {
        struct nn_batch b = take_batch(g, first);
        struct nn_result result;
        struct ps_error e = {0};
        if (nn_replica_train(r, &b, step, NULL, &result, &e) != PS_OK)
            fail_msg("%s: %s", g->name, e.text);
        float mean = (float)(result.loss / b.rows);
        check_close(g, "loss", &mean, &losses->data[step], 1);
        if (step == 0)
            check_gradients(g, r);
        descend(g, r);
        first = first + b.rows < g->rows ? first + b.rows : 0;
    }
    for (size_t i = 0; i < nn_model_params(g->model); i++) {
        const struct nn_param *p = nn_model_param(g->model, i);
        check_close(g, p->name, nn_replica_param(r, i), find_variable(g, "after", p->name)->data, p->count);
    }
}

static void check_predictions(const struct golden *g, struct nn_replica *r)
{
    double loss = 0;
    for (int first = 0; first < g->rows; first += g->batch) {
        struct nn_batch b = take_batch(g, first);
        struct nn_result result;
        struct ps_error e = {0};
        if (nn_replica_evaluate(r, &b, &result, &e) != PS_OK)
            fail_msg("%s: %s", g->name, e.text);
        for (size_t k = 0; k < nn_model_outputs(g->model); k++) {
            const struct nn_port p = nn_model_output(g->model, k);
            size_t n = nn_type_count(p.type);
            check_close(g, p.name, nn_replica_output(r, k), find_column(g, "output", p.name)->data + (size_t)first * n,
                        (size_t)b.rows * n);
        }
        loss += result.loss;
    }
    float mean = (float)(loss / g->rows);
    check_close(g, "evaluated", &mean, find_column(g, "evaluated", "")->data, 1);
}

static void trains_as_keras(void **state)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        struct golden g;
        struct nn_replica *r = NULL;
        struct ps_error e = {0};
        open_golden(&g, *state);
        if (nn_replica_create(g.model, devices[i], g.batch, 1, 7, g.loss, &r, &e) != PS_OK)
            fail_msg("%s: %s", g.name, e.text);
        set_weights(&g, r);
        check_steps(&g, r);
        check_predictions(&g, r);
        nn_replica_free(r);
        close_golden(&g);
    }
}

int main(void)
{
    glob_t found;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (glob(source("tests/golden/keras/*.json"), 0, NULL, &found) != 0)
        return EXIT_FAILURE;
    struct CMUnitTest *tests = ps_alloc(found.gl_pathc * sizeof *tests);
    for (size_t i = 0; i < found.gl_pathc; i++)
        tests[i] =
            (struct CMUnitTest){strrchr(found.gl_pathv[i], '/') + 1, trains_as_keras, NULL, NULL, found.gl_pathv[i]};
    int failed = _cmocka_run_group_tests("keras", tests, found.gl_pathc, NULL, NULL);
    free(tests);
    globfree(&found);
    return failed;
}
