// SPDX-License-Identifier: Apache-2.0
//
// Metrics against Keras's (tests/golden/metrics.json), and what is measured of a model with several outputs.
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
#include "tests/unit/nn_files.h"
#include "workerd/job/objectives.h"
#include "workerd/nn/measure.h"

enum { BATCH = 5, WORKERS = 2, MOST = 1000 };

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

static void is_near(double expected, double got)
{
    if (!(fabs(expected - got) < 1e-6))
        fail_msg("expected %.9g, got %.9g", expected, got);
}

// ---- Keras's numbers ----------------------------------------------------------------------------------------------

// Rows of numbers, or numbers, one after the other.
static float *floats_of(const json_t *rows, size_t *width)
{
    float *v = ps_alloc(MOST * sizeof *v), *to = v;
    *width = json_array_size(json_array_get(rows, 0));
    for (size_t i = 0; i < json_array_size(rows); i++)
        for (size_t k = 0; k < *width; k++)
            *to++ = (float)json_number_value(json_array_get(json_array_get(rows, i), k));
    return v;
}

struct data {
    struct nn_scores all;
    float *output, *target;
    int32_t *label;
};

static void open_data(struct data *d, const json_t *from)
{
    const json_t *output = json_object_get(from, "output"), *label = json_object_get(from, "label");
    *d = (struct data){.label = NULL};
    d->output = floats_of(output, &d->all.width);
    d->all.rows = json_array_size(output);
    d->label = ps_alloc((d->all.rows + 1) * sizeof *d->label);
    for (size_t i = 0; i < json_array_size(label); i++)
        d->label[i] = (int32_t)json_integer_value(json_array_get(label, i));
    d->target = label ? NULL : floats_of(json_object_get(from, "target"), &d->all.width);
}

static void close_data(struct data *d)
{
    free(d->output);
    free(d->target);
    free(d->label);
}

static struct nn_scores batch_of(const struct data *d, size_t first)
{
    const size_t left = d->all.rows - first, width = d->all.width;
    return (struct nn_scores){.rows = left < BATCH ? left : BATCH,
                              .width = width,
                              .output = d->output + first * width,
                              .target = d->target ? d->target + first * width : NULL,
                              .label = d->label + first};
}

// Two workers take turns with the batches; their sums are added up.
static void check_case(const json_t *one, const json_t *all)
{
    struct ps_metric m;
    struct ps_error e = {.code = PS_OK};
    struct data d;
    const char *key;
    double value[16], *state[WORKERS];
    const json_t *expected = json_object_get(one, "value");
    must(ps_metric_read("metric", json_object_get(one, "metric"), &m, &key, &e), &e);
    open_data(&d, json_object_get(all, json_string_value(json_object_get(one, "data"))));
    const size_t n = nn_metric_states(&m, d.all.width), values = nn_metric_values(&m, d.all.width);
    for (int w = 0; w < WORKERS; w++)
        state[w] = ps_alloc(n * sizeof **state);
    for (size_t first = 0, w = 0; first < d.all.rows; first += BATCH, w++) {
        const struct nn_scores s = batch_of(&d, first);
        nn_metric_update(&m, &s, state[w % WORKERS]);
    }
    for (size_t i = 0; i < n; i++)
        state[0][i] += state[1][i];
    nn_metric_result(&m, d.all.width, state[0], value);
    assert_int_equal(values, json_is_array(expected) ? json_array_size(expected) : 1);
    for (size_t i = 0; i < values; i++) {
        double keras = json_number_value(json_is_array(expected) ? json_array_get(expected, i) : expected);
        if (!(fabs(value[i] - keras) <= 1e-5 * fmax(1, fabs(keras)))) {
            char *text = json_dumps(one, 0);
            fail_msg("%s: %.9g", text, value[i]);
        }
    }
    for (int w = 0; w < WORKERS; w++)
        free(state[w]);
    close_data(&d);
}

static void measures_as_keras(void **state)
{
    (void)state;
    json_t *document = json_load_file(source("tests/golden/metrics.json"), 0, NULL), *one;
    const json_t *cases = json_object_get(document, "cases");
    size_t i;
    assert_true(json_array_size(cases) > 40);
    json_array_foreach(cases, i, one) check_case(one, json_object_get(document, "data"));
    json_decref(document);
}

static void measures_nothing(void **state)
{
    (void)state;
    for (int kind = 0; kind < PS_METRIC_KINDS; kind++) {
        const struct ps_metric m = {.kind = kind, .k = 1, .num_thresholds = 10, .class_id = -1, .threshold = -1};
        double *none = ps_alloc(nn_metric_states(&m, 3) * sizeof *none), value[9];
        nn_metric_result(&m, 3, none, value);
        for (size_t i = 0; i < nn_metric_values(&m, 3); i++)
            assert_true(value[i] == 0);
        free(none);
    }
}

// Rows are what is, columns what is said; one column is yes or no.
static void counts_confusions(void **state)
{
    (void)state;
    const struct ps_metric m = {.kind = PS_METRIC_CONFUSION};
    const float three[] = {1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1}, one[] = {0.9f, 0.1f, 0.7f}, is[] = {1, 1, 0};
    const int32_t label[] = {0, 1, 1, 2};
    const float weight[] = {1, 1, 0.5f, 1};
    double matrix[9] = {0}, value[9], yes[4] = {0};
    nn_metric_update(&m, &(struct nn_scores){4, 3, three, NULL, label, weight}, matrix);
    nn_metric_result(&m, 3, matrix, value);
    const double expected[9] = {1, 0, 0, 0.5, 1, 0, 0, 0, 1}, expected_yes[4] = {0, 1, 1, 1};
    assert_memory_equal(expected, value, sizeof expected);
    nn_metric_update(&m, &(struct nn_scores){3, 1, one, is, NULL, NULL}, yes);
    assert_memory_equal(expected_yes, yes, sizeof expected_yes);
}

// Keras's means over rows heed the output's mask, its precision does not.
static void masks_rows(void **state)
{
    (void)state;
    static const struct {
        int kind;
        double value;
    } of[] = {{PS_METRIC_ACCURACY, 0.5}, {PS_METRIC_MAE, 0.5}, {PS_METRIC_PRECISION, 0.75}};
    const float y[] = {1, 1, 1, 1}, t[] = {1, 0, 1, 1}, counts[] = {0.5f, 2, 0, 0};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct ps_metric m = {.kind = of[i].kind, .class_id = -1, .threshold = -1};
        double sums[2] = {0}, value;
        nn_metric_update(&m, &(struct nn_scores){.rows = 4, .width = 1, .output = y, .target = t, .counts = counts},
                         sums);
        nn_metric_result(&m, 1, sums, &value);
        is_near(of[i].value, value);
    }
}

// ---- a model ------------------------------------------------------------------------------------------------------

static struct nn_model *parse_model(const char *outputs)
{
    struct nn_model *m;
    struct ps_error e = {.code = PS_OK};
    char *text = ps_printf(
        "{\"class_name\": \"Functional\", \"config\": {\"name\": \"n\", \"layers\": ["
        "{\"class_name\": \"InputLayer\", \"name\": \"i\", \"config\": {\"name\": \"i\", \"batch_shape\": [null, 2]},"
        " \"inbound_nodes\": []},"
        "{\"class_name\": \"Dense\", \"name\": \"a\", \"config\": {\"name\": \"a\", \"units\": 2}, \"inbound_nodes\": "
        "[[[\"i\", 0, 0, {}]]]},"
        "{\"class_name\": \"Dense\", \"name\": \"b\", \"config\": {\"name\": \"b\", \"units\": 1}, \"inbound_nodes\": "
        "[[[\"i\", 0, 0, {}]]]}], \"input_layers\": [[\"i\", 0, 0]], \"output_layers\": [%s]}}",
        outputs);
    must(nn_model_parse(text, "test", &m, &e), &e);
    free(text);
    return m;
}

static struct ps_job *parse_job(const char *lines)
{
    struct ps_job *job;
    struct ps_error e = {.code = PS_OK};
    char *text = ps_printf("model: m\ndata: {kind: synthetic-digits}\noptimizer: {name: sgd}\n%s", lines);
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &job, &e), &e);
    free(text);
    return job;
}

struct listed {
    char names[256];
    double value[16];
    int n;
};

static void take_figure(void *arg, const char *name, double value, enum nn_better better)
{
    struct listed *t = arg;
    size_t len = strlen(t->names);
    (void)better;
    snprintf(t->names + len, sizeof t->names - len, "%s%s", len ? " " : "", name);
    t->value[t->n++] = value;
}

#define OUTPUTS "[\"a\", 0, 0], [\"b\", 0, 0]"

// Three examples in batches of 2 and 1: the means are of examples, not of batches. Output a is (x, 0), output b is 0.
static void means_are_of_examples(void **state)
{
    (void)state;
    struct nn_model *m = parse_model(OUTPUTS);
    struct ps_job *job = parse_job("loss: {a: {name: mse, weight: 2}, b: mae}\n"
                                   "metrics: {a: [mae, {name: mean_absolute_error}, mae], b: confusion_matrix}\n");
    struct wk_objectives o;
    struct ps_error e = {.code = PS_OK};
    struct nn_replica *r;
    const float x[] = {1, 0, 2, 0, 3, 0}, a[6] = {0}, b[] = {1, 1, 4}, weight[] = {1, 1, 0};
    must(wk_objectives_bind(&o, job, m, &e), &e);
    must(nn_replica_create(m, "ref", 2, 1, 1, o.loss, &r, &e), &e);
    must(nn_replica_measure(r, o.metric, o.n_metrics, &e), &e);
    for (size_t i = 0; i < nn_model_params(m); i++)
        memset(nn_replica_param(r, i), 0, nn_model_param(m, i)->count * sizeof(float));
    nn_replica_param(r, 0)[0] = 1;
    double *sums = ps_alloc(nn_measures_sums(nn_replica_measures(r)) * sizeof *sums);
    for (int first = 0; first < 3; first += 2) {
        const struct nn_batch batch = {.rows = first ? 1 : 2,
                                       .input = {x + 2 * first},
                                       .target = {a + 2 * first, b + first},
                                       .weight = weight + first};
        struct nn_result result;
        must(nn_replica_evaluate(r, &batch, &result, &e), &e);
        for (size_t i = 0; i < nn_measures_sums(result.of); i++)
            sums[i] += result.sums[i];
    }
    struct listed t = {.n = 0};
    nn_measures_tell(nn_replica_measures(r), sums, take_figure, &t);
    assert_string_equal(t.names, "a_loss a_mae a_mae_1 a_mean_absolute_error b_loss loss");
    is_near((0.5 + 2) / 3, t.value[0]);        // the third example weighs nothing in a loss,
    is_near((0.5 + 1 + 1.5) / 3, t.value[1]);  // but in a metric
    is_near(2.0 / 3, t.value[4]);
    is_near((2 * 2.5 + 2) / 3, t.value[5]);
    const char *name;
    const double *matrix;
    size_t classes;
    assert_true(nn_measures_matrix(nn_replica_measures(r), sums, 0, &name, &matrix, &classes));
    assert_string_equal(name, "b_confusion_matrix");
    assert_true(classes == 2 && matrix[2] == 3);
    assert_false(nn_measures_matrix(nn_replica_measures(r), sums, 1, &name, &matrix, &classes));
    free(sums);
    nn_replica_free(r);
    nn_model_free(m);
    ps_job_free(job);
}

// A tagger's padding, two of three steps: the one that counts is wrong, the others are right.
static void masked_steps_are_not_measured(void **state)
{
    (void)state;
    struct nn_model *m;
    struct ps_job *job = parse_job("loss: {name: mse}\nmetrics: [mae, rmse]\n");
    struct wk_objectives o;
    struct ps_error e = {.code = PS_OK};
    struct nn_replica *r;
    struct nn_result result;
    const float x[] = {1, 0, 0}, t[] = {3, 0, 0};
    must(
        nn_model_parse("{\"class_name\": \"Sequential\", \"config\": {\"name\": \"s\", \"layers\": ["
                       "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"i\", \"batch_shape\": [null, 3, 1]}},"
                       "{\"class_name\": \"Masking\", \"config\": {\"name\": \"k\", \"mask_value\": 0.0}}]}}",
                       "test", &m, &e),
        &e);
    must(wk_objectives_bind(&o, job, m, &e), &e);
    must(nn_replica_create(m, "cpu", 1, 1, 1, o.loss, &r, &e), &e);
    must(nn_replica_measure(r, o.metric, o.n_metrics, &e), &e);
    must(nn_replica_evaluate(r, &(struct nn_batch){.rows = 1, .input = {x}, .target = {t}}, &result, &e), &e);
    struct listed f = {.n = 0};
    nn_measures_tell(nn_replica_measures(r), result.sums, take_figure, &f);
    assert_string_equal(f.names, "loss mae rmse");
    is_near(4, f.value[0]);
    is_near(2, f.value[1]);
    is_near(sqrt(4.0 / 3), f.value[2]);  // as Keras has it
    nn_replica_free(r);
    nn_model_free(m);
    ps_job_free(job);
}

static void refuses_what_does_not_fit(void **state)
{
    static const struct {
        const char *outputs, *job, *why;
    } rows[] = {
        {OUTPUTS, "loss: mse\nmetrics: [acc]\n", "metrics: the model has 2 outputs: expected a map such as {a: [acc]}"},
        {OUTPUTS, "loss: {a: mse}\n", "loss: output \"b\" of the model has none"},
        {OUTPUTS, "loss: mse\nclass_weight: {0: 1}\n",
         "class_weight: the model has 2 outputs: expected one of one output"},
        {"[\"a\", 0, 0]", "loss: mse\nclass_weight: {0: 1, 2: 3}\n",
         "class_weight: output \"a\" has 2 classes, 0 to 1, and none is 2"},
        {"[\"b\", 0, 0]", "loss: {name: bce, from_logits: true}\nclass_weight: {2: 3}\n",
         "class_weight: output \"b\" has 2 classes, 0 to 1, and none is 2"},
        {OUTPUTS, "loss: mse\nmetrics: {c: acc}\n", "metrics: the model has no output \"c\"; its first is \"a\""},
        {"[\"a\", 0, 0]", "loss: {name: sparse_categorical_crossentropy, from_logits: true}\nmetrics: [mse]\n",
         "metric mse compares output \"a\" with numbers, but the loss compares it with class numbers"},
        {"[\"a\", 0, 0]", "loss: mse\nmetrics: [sparse_categorical_accuracy]\n",
         "metric sparse_categorical_accuracy compares output \"a\" with class numbers, but the loss compares it with "
         "numbers: expected categorical_accuracy or accuracy"},
        {"[\"b\", 0, 0]", "loss: mse\nmetrics: [top_k]\n",
         "metric top_k needs 2 or more classes, but output \"b\" has one column"},
        {"[\"a\", 0, 0]", "loss: mse\nmetrics: [{name: precision, class_id: 2}]\n",
         "metric precision: class_id is 2, but output \"a\" has 2 columns"},
        {"[\"b\", 0, 0]", "loss: {name: categorical_crossentropy, from_logits: true}\n",
         "loss categorical_crossentropy expects an output of shape (classes,), or (..., classes), with 2 or more "
         "classes, but layer \"b\" gives (1,)"},
        {"[\"b\", 0, 0]", "loss: bce\n",
         "layer \"b\" gives logits, but the loss expects probabilities: set from_logits to true, or end the model in a "
         "sigmoid"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct nn_model *m = parse_model(rows[i].outputs);
        struct ps_job *job = parse_job(rows[i].job);
        struct wk_objectives o;
        struct ps_error e = {.code = PS_OK};
        assert_int_equal(wk_objectives_bind(&o, job, m, &e), PS_FAILED_PRECONDITION);
        assert_string_equal(e.text, rows[i].why);
        nn_model_free(m);
        ps_job_free(job);
    }
}

// Class numbers, the greatest of several columns, or the nearest whole number of one; on top of the batch's weights.
static void classes_weigh(void **state)
{
    (void)state;
    struct nn_model *two = parse_model("[\"a\", 0, 0]"), *one = parse_model("[\"b\", 0, 0]");
    struct ps_job *job = parse_job("loss: mse\nclass_weight: {1: 5, 0: 0.5}\n");
    const struct ps_loss numbers = PS_LOSS(.kind = PS_LOSS_MSE), labels = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT);
    const int32_t label[] = {1, 0, 2};
    const float hot[] = {0, 1, 1, 0, 0.2f, 0.8f}, single[] = {0.9f, -0.4f, 7}, own[] = {1, 2, 3};
    float weight[3];
    wk_class_weights(&job->class_weight, two, &labels, &(struct nn_batch){.rows = 3, .target = {label}}, weight);
    assert_true(weight[0] == 5 && weight[1] == 0.5f && weight[2] == 1);
    wk_class_weights(&job->class_weight, two, &numbers, &(struct nn_batch){.rows = 3, .target = {hot}, .weight = own},
                     weight);
    assert_true(weight[0] == 5 && weight[1] == 1 && weight[2] == 15);
    wk_class_weights(&job->class_weight, one, &numbers, &(struct nn_batch){.rows = 3, .target = {single}}, weight);
    assert_true(weight[0] == 5 && weight[1] == 0.5f && weight[2] == 1);
    nn_model_free(two);
    nn_model_free(one);
    ps_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_as_keras),
        cmocka_unit_test(measures_nothing),
        cmocka_unit_test(counts_confusions),
        cmocka_unit_test(means_are_of_examples),
        cmocka_unit_test(masks_rows),
        cmocka_unit_test(masked_steps_are_not_measured),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(classes_weigh),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
