// SPDX-License-Identifier: Apache-2.0
//
// What workerd --layers names has numbers of Keras's that it is held to: each layer and activation in a model of
// tests/golden/keras (test_keras trains them), each loss there, too; each metric in metrics.json (test_metrics), each
// optimizer in rules.h (test_rule), each initializer in initializers.json (test_nn_model). Prints how many.
#include <glob.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/job/loss.h"
#include "common/job/metric.h"
#include "common/job/optimizer.h"
#include "common/math/rule.h"
#include "tests/golden/rules.h"
#include "tests/unit/nn_files.h"

// What has none, and why.
static const struct {
    const char *name, *why;
} without[] = {
    {"RandomFlip", "what Keras draws is its own; test_nn_gradients has what it does"},
    {"gelu_approximate", "KerasHub's name; what it computes is in nn_ops/pointwise.h"},
    {"confusion_matrix", "Keras has no such metric; test_metrics counts by hand"},
};

// ---- the models ---------------------------------------------------------------------------------------------------

enum { NAMES = 256 };

static struct {
    char *name[NAMES];
    int n;
} seen;

static void see(const char *name)
{
    for (int i = 0; i < seen.n; i++)
        if (strcmp(seen.name[i], name) == 0)
            return;
    assert_true(seen.n < NAMES);
    seen.name[seen.n++] = strdup(name);
}

static bool is_seen(const char *name)
{
    for (int i = 0; i < seen.n; i++)
        if (strcmp(seen.name[i], name) == 0)
            return true;
    return false;
}

// What a model's document names: classes, and what has the key of an activation. True: it has masks or states.
static bool goldens_walk(const json_t *at)
{
    const char *class = json_string_value(json_object_get(at, "class_name")), *key;
    bool any = class && (strcmp(class, "Masking") == 0 || strcmp(class, "BatchNormalization") == 0);
    json_t *value;
    size_t i;
    if (class)
        see(class);
    json_object_foreach((json_t *)at, key, value)
    {
        size_t n = strlen(key);
        if (json_is_string(value) && n >= strlen("activation") &&
            strcmp(key + n - strlen("activation"), "activation") == 0)
            see(json_string_value(value));
        any |= (strcmp(key, "mask_zero") == 0 && json_is_true(value)) | goldens_walk(value);
    }
    json_array_foreach((json_t *)at, i, value) any |= goldens_walk(value);
    return any;
}

struct counts {
    int models, functional, states;
};

static bool loss_seen[PS_LOSS_KINDS];

static void see_loss(const json_t *from)
{
    struct ps_loss loss;
    struct ps_error e = {0};
    const char *key;
    if (ps_loss_read("loss", from, &loss, &key, &e) != PS_OK)
        fail_msg("%s", e.text);
    loss_seen[loss.kind] = true;
}

static void see_golden(const char *path, struct counts *of)
{
    json_t *document = json_load_file(path, 0, NULL), *loss = json_object_get(document, "loss"), *one;
    const json_t *model = json_object_get(document, "model");
    const char *class = json_string_value(json_object_get(model, "class_name"));
    const char *version = json_string_value(json_object_get(model, "keras_version"));
    size_t i;
    if (!class)
        fail_msg("%s has no model", path);
    of += version && strncmp(version, "2.", 2) == 0;
    of->models++;
    of->functional += strcmp(class, "Sequential") != 0;
    of->states += goldens_walk(model);
    json_array_foreach(loss, i, one) see_loss(one);
    if (!json_is_array(loss))
        see_loss(loss);
    json_decref(document);
}

static void see_goldens(void **state)
{
    (void)state;
    glob_t found;
    struct counts of[2] = {{0}};
    assert_int_equal(glob(source("tests/golden/keras/*.json"), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        see_golden(found.gl_pathv[i], of);
    globfree(&found);
    for (int k = 0; k < 2; k++) {
        print_message("Keras %d: %d models, %d of them Functional, %d with masks or states\n", 3 - k, of[k].models,
                      of[k].functional, of[k].states);
        assert_true(of[k].functional >= 20 && of[k].states >= 10);
    }
    assert_true(of[0].models + of[1].models >= 60);
}

// ---- what there is ------------------------------------------------------------------------------------------------

static bool has_reason(const char *name)
{
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (strcmp(without[i].name, name) == 0)
            return true;
    return false;
}

// Counts, and complains of what has neither a golden nor a reason, or both.
static void expect_golden(const char *what, const char *name, bool has, int *n)
{
    *n += has;
    if (has == has_reason(name))
        fail_msg("%s %s has %s", what, name, has ? "a golden, and a reason to have none" : "no golden");
}

static void models_have_all(void **state)
{
    (void)state;
    int layers = 0, activations = 0, losses = 0;
    for (size_t i = 0; nn_layer_name(i); i++)
        expect_golden("layer", nn_layer_name(i), is_seen(nn_layer_name(i)), &layers);
    for (size_t i = 0; nn_function_name(i); i++)
        expect_golden("activation", nn_function_name(i), is_seen(nn_function_name(i)), &activations);
    for (int i = 0; i < ps_losses.n; i++)
        expect_golden("loss", ps_losses.named[i].name, loss_seen[i], &losses);
    print_message("goldens of %d layers, %d activations, %d losses\n", layers, activations, losses);
    for (int i = 0; i < seen.n; i++)
        free(seen.name[i]);
}

static void metrics_have_goldens(void **state)
{
    (void)state;
    json_t *document = json_load_file(source("tests/golden/metrics.json"), 0, NULL), *one;
    bool metric[PS_METRIC_KINDS] = {false};
    size_t i;
    int n = 0;
    json_array_foreach(json_object_get(document, "cases"), i, one)
    {
        struct ps_metric m;
        struct ps_error e = {0};
        const char *key;
        assert_int_equal(ps_metric_read("metric", json_object_get(one, "metric"), &m, &key, &e), PS_OK);
        metric[m.kind] = true;
    }
    json_decref(document);
    for (int k = 0; k < ps_metrics.n; k++)
        expect_golden("metric", ps_metrics.named[k].name, metric[k], &n);
    print_message("goldens of %d metrics\n", n);
}

static void optimizers_have_goldens(void **state)
{
    (void)state;
    int n = 0;
    for (size_t i = 0; ps_job_optimizers[i]; i++)
        for (int variant = 0; variant < 4; variant++) {
            const struct ps_rule *rule = ps_rule_for_optimizer(ps_job_optimizers[i], variant & 1, variant & 2);
            bool found = false;
            for (size_t k = 0; k < sizeof golden / sizeof *golden; k++)
                found |= strcmp(golden[k].rule, rule->name) == 0;
            expect_golden("rule", rule->name, found, &(int){0});
            n += found && variant == 0;
        }
    print_message("goldens of %d optimizers\n", n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(see_goldens),
        cmocka_unit_test(models_have_all),
        cmocka_unit_test(metrics_have_goldens),
        cmocka_unit_test(optimizers_have_goldens),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
