// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/job.h"
#include "common/yaml.h"

// The least that a job file may say, on lines 1 to 4.
#define LEAST                                         \
    "model: m.json\n"                                 \
    "data: {kind: synthetic-digits}\n"                \
    "loss: {name: sparse_categorical_crossentropy}\n" \
    "optimizer: {name: adam}\n"

// ---- helpers ------------------------------------------------------------------------------------------------------

static struct ps_job *parse(const char *text, const char *path, const char *const *sets, size_t n_sets)
{
    struct ps_job *job = NULL;
    struct ps_error e = {.code = PS_OK};
    if (ps_job_parse(text, strlen(text), path, sets, n_sets, &job, &e) != PS_OK)
        fail_msg("%s", e.text);
    return job;
}

static struct ps_job *with(const char *text, const char *set)
{
    return parse(text, "dir/job.yaml", &set, 1);
}

static void refuses_set(const char *text, const char *set, const char *why)
{
    struct ps_job *job = NULL;
    struct ps_error e = {.code = PS_OK};
    enum ps_code code = ps_job_parse(text, strlen(text), "job.yaml", &set, set != NULL, &job, &e);
    ps_job_free(job);
    if (code == PS_OK)
        fail_msg("took what should give: %s", why);
    assert_int_equal(PS_INVALID_ARGUMENT, code);
    assert_int_equal(code, e.code);
    assert_string_equal(why, e.text);
    assert_null(job);
}

static void refuses(const char *text, const char *why)
{
    refuses_set(text, NULL, why);
}

static double hyper(const struct ps_job *job, const char *name)
{
    for (size_t i = 0; i < job->n_hypers; i++)
        if (strcmp(job->hypers[i].name, name) == 0)
            return job->hypers[i].value;
    fail_msg("no hyperparameter %s", name);
    return 0;
}

static void same_real(double expected, double got)
{
    if (expected < got || expected > got)
        fail_msg("%.17g is not %.17g", got, expected);
}

// ---- what is taken ------------------------------------------------------------------------------------------------

static void defaults(void **ctx)
{
    (void)ctx;
    struct ps_job *j = parse(LEAST, "dir/mnist.v2.yaml", NULL, 0);
    assert_string_equal("mnist.v2", j->name);
    assert_string_equal("mnist.v2.safetensors", j->output);
    assert_string_equal("dir/m.json", j->model);
    assert_null(j->weights);
    assert_int_equal(PS_DATA_DIGITS, j->data.kind);
    assert_int_equal(20000, j->data.train_examples);
    assert_int_equal(2000, j->data.test_examples);
    assert_true(j->shuffle);
    assert_int_equal(PS_LOSS_SPARSE_XENT, j->loss);
    assert_false(j->from_logits);
    assert_false(j->accuracy);
    assert_int_equal(PS_STRATEGY_PARAMETER_SERVER, j->strategy);
    assert_int_equal(PS_ASYNC, j->update);
    assert_string_equal("greedy", j->placement);
    assert_string_equal("none", j->partitioner);
    assert_int_equal(1, j->min_workers);
    assert_int_equal(64, j->batch_size);
    assert_int_equal(1, j->epochs);
    assert_int_equal(0, j->steps);
    assert_int_equal(1, j->threads);
    assert_string_equal("cpu", j->device);
    assert_int_equal(PS_REFUSE, j->on_existing);
    assert_int_equal(60, j->timeout);
    assert_string_equal("adam", j->rule);
    assert_int_equal(4, j->n_hypers);
    same_real(0.001, hyper(j, "learning_rate"));
    ps_job_free(j);
}

static void everything(void **ctx)
{
    (void)ctx;
    struct ps_job *j = parse("model: /abs/m.json\n"
                             "weights: ../w.safetensors\n"
                             "data:\n"
                             "  kind: npy\n"
                             "  x: x.npy\n"
                             "  y: y.npy\n"
                             "  x_test: xt.npy\n"
                             "  y_test: yt.npy\n"
                             "  shuffle: false\n"
                             "loss: {name: sparse_categorical_crossentropy, from_logits: true}\n"
                             "metrics: [accuracy]\n"
                             "optimizer: {name: sgd, learning_rate: 1e-1, momentum: 0.9, nesterov: true}\n"
                             "strategy: {name: one_device, update: sync, placement: round_robin,\n"
                             "           partitioner: 'max_bytes:1MiB', min_workers: 2}\n"
                             "batch_size: 32\nepochs: 3\nsteps: 1000\nseed: 7\nthreads: 2\ndevice: ref\n"
                             "name: run-1\non_existing: replace\ntimeout: 5\ndelay_ms: 20\noutput: out/w.safetensors\n",
                             "d/job.yaml", NULL, 0);
    assert_string_equal("/abs/m.json", j->model);
    assert_string_equal("d/../w.safetensors", j->weights);
    assert_int_equal(PS_DATA_NPY, j->data.kind);
    assert_string_equal("d/x.npy", j->data.x);
    assert_string_equal("d/yt.npy", j->data.y_test);
    assert_false(j->shuffle);
    assert_true(j->from_logits);
    assert_true(j->accuracy);
    assert_string_equal("momentum", j->rule);
    same_real(0.1, hyper(j, "learning_rate"));
    same_real(0.9, hyper(j, "momentum"));
    same_real(1, hyper(j, "nesterov"));
    assert_int_equal(PS_STRATEGY_ONE_DEVICE, j->strategy);
    assert_int_equal(PS_SYNC, j->update);
    assert_string_equal("round_robin", j->placement);
    assert_string_equal("max_bytes:1MiB", j->partitioner);
    assert_int_equal(2, j->min_workers);
    assert_int_equal(32, j->batch_size);
    assert_int_equal(3, j->epochs);
    assert_int_equal(1000, j->steps);
    assert_int_equal(7, j->seed);
    assert_int_equal(2, j->threads);
    assert_string_equal("ref", j->device);
    assert_string_equal("run-1", j->name);
    assert_int_equal(PS_REPLACE, j->on_existing);
    assert_int_equal(5, j->timeout);
    assert_int_equal(20, j->delay_ms);
    assert_string_equal("d/out/w.safetensors", j->output);
    ps_job_free(j);
}

static void sgd_is_a_rule_by_its_momentum(void **ctx)
{
    (void)ctx;
    struct ps_job *j = with(LEAST, "optimizer={name: sgd, learning_rate: 0.5, nesterov: true}");
    assert_string_equal("sgd", j->rule);
    assert_int_equal(1, j->n_hypers);
    same_real(0.5, j->hypers[0].value);
    ps_job_free(j);
    j = with(LEAST, "optimizer={name: sgd, momentum: 0.5}");
    assert_string_equal("momentum", j->rule);
    same_real(0.01, hyper(j, "learning_rate"));
    same_real(0.5, hyper(j, "momentum"));
    ps_job_free(j);
}

static void sets_lie_over_the_file(void **ctx)
{
    (void)ctx;
    const char *const sets[] = {"data.kind=idx",         "data.path=some/DIR", "strategy.update=sync",
                                "optimizer.beta_1=0.5",  "metrics=[accuracy]", "name=one",
                                "optimizer.beta_1=0.75", "output='w'",         "weights="};
    struct ps_job *j = parse(LEAST "weights: w\n", "dir/job.yaml", sets, sizeof sets / sizeof *sets);
    assert_int_equal(PS_DATA_IDX, j->data.kind);
    assert_string_equal("some/DIR", j->data.path);  // not beside the file
    assert_string_equal("dir/m.json", j->model);
    assert_int_equal(PS_SYNC, j->update);
    same_real(0.75, hyper(j, "beta_1"));
    assert_true(j->accuracy);
    assert_string_equal("one", j->name);
    assert_string_equal("w", j->output);
    assert_null(j->weights);
    ps_job_free(j);
}

// JSON is YAML: what a job says of itself is a job file that says the same.
static void json_is_a_job_file(void **ctx)
{
    (void)ctx;
    static const char *const sets[] = {"seed=7", "optimizer={name: sgd, momentum: 0.9, nesterov: true}",
                                       "data={kind: npy, x: a, y: b}", "data={kind: csv, path: 'a\"b'}",
                                       "optimizer={name: sgd, learning_rate: 1e-3}"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct ps_job *one = parse(LEAST, "job.yaml", &sets[i], 1);
        json_t *json_one = ps_job_json(one);
        char *text = json_dumps(json_one, JSON_INDENT(2));
        struct ps_job *two = parse(text, "job.yaml", NULL, 0);
        json_t *json_two = ps_job_json(two);
        if (!json_equal(json_one, json_two))
            fail_msg("came back changed: %s", text);
        json_decref(json_one);
        json_decref(json_two);
        free(text);
        ps_job_free(one);
        ps_job_free(two);
    }
}

static void json_has_what_counts(void **ctx)
{
    (void)ctx;
    struct ps_job *j = with(LEAST, "strategy.update=sync");
    json_t *root = ps_job_json(j);
    assert_string_equal("sync", json_string_value(json_object_get(json_object_get(root, "strategy"), "update")));
    assert_int_equal(64, json_integer_value(json_object_get(root, "batch_size")));
    json_t *optimizer = json_object_get(root, "optimizer");
    assert_string_equal("adam", json_string_value(json_object_get(optimizer, "name")));
    same_real(0.999, json_real_value(json_object_get(optimizer, "beta_2")));
    assert_null(json_object_get(root, "weights"));
    assert_null(json_object_get(json_object_get(root, "data"), "path"));
    json_decref(root);
    ps_job_free(j);
}

// ---- what is refused ----------------------------------------------------------------------------------------------

static void unknown_keys(void **ctx)
{
    (void)ctx;
    refuses("model: m\noptimiser:\n  name: adam\n",
            "job.yaml:2: unknown key \"optimiser\"; did you mean \"optimizer\"?");
    refuses(LEAST "strategy:\n  name: one_device\n  palcement: greedy\n",
            "job.yaml:7: unknown key \"palcement\" in strategy; did you mean \"placement\"?");
    refuses(LEAST "callbacks: []\n", "job.yaml:5: unknown key \"callbacks\"");
    refuses(LEAST "strategy.update: sync\n", "job.yaml:5: unknown key \"strategy.update\"");
    refuses(LEAST "data.kind: idx\n", "job.yaml:5: unknown key \"data.kind\"");
    refuses_set(LEAST, "optimizer.beta1=0.5",
                "--set optimizer.beta1: optimizer adam: rule adam has no \"beta1\"; did you mean \"beta_1\"?");
    refuses_set(LEAST, "strategy.stale=1", "--set strategy.stale: unknown key \"stale\" in strategy");
}

static void wrong_types(void **ctx)
{
    (void)ctx;
    refuses(LEAST "batch_size: many\n",
            "job.yaml:5: batch_size must be a whole number from 1 to 1048576, not \"many\"");
    refuses(LEAST "batch_size: \"64\"\n",
            "job.yaml:5: batch_size must be a whole number from 1 to 1048576, not the string \"64\"");
    refuses(LEAST "seed: -1\n", "job.yaml:5: seed must be a whole number from 0 to 9223372036854775807, not \"-1\"");
    refuses(LEAST "seed: 99999999999999999999\n", "job.yaml:5: seed must be a whole number from 0 to "
                                                  "9223372036854775807, not \"99999999999999999999\"");
    refuses_set(LEAST, "data.shuffle=yes", "--set data.shuffle: data.shuffle must be true or false, not \"yes\"");
    refuses_set(LEAST, "name=[a]", "--set name: name must be a string, not a list");
    refuses_set(LEAST, "model=''", "--set model: model must be a path, not the string \"\"");
    refuses_set(LEAST, "strategy=sync", "--set strategy: strategy must be a map, not \"sync\"");
    refuses_set(LEAST, "metrics=accuracy",
                "--set metrics: metrics must be a list such as [accuracy], not \"accuracy\"");
    refuses_set(LEAST, "metrics=[mae]", "--set metrics: metrics must be accuracy, not \"mae\"");
    refuses_set(LEAST, "optimizer.epsilon=small",
                "--set optimizer.epsilon: optimizer.epsilon must be a number, not "
                "\"small\"");
    refuses_set(LEAST, "optimizer.beta_1=2",
                "--set optimizer.beta_1: optimizer adam: beta_1 of rule adam is 2; it must "
                "lie between 0 and 0.999999999");
    refuses("[1, 2]", "job.yaml:1: a job file must be a map of keys such as model, data and optimizer, not a list");
}

static void wrong_words(void **ctx)
{
    (void)ctx;
    refuses_set(LEAST, "optimizer.name=Adam",
                "--set optimizer.name: optimizer.name \"Adam\" is not known; did you mean "
                "\"adam\"?");
    refuses_set(LEAST, "optimizer.name=lamb_",
                "--set optimizer.name: optimizer.name must be sgd or adam, not \"lamb_\"");
    refuses_set(LEAST, "strategy.name=mirrored",
                "--set strategy.name: strategy.name mirrored is not supported; there "
                "are parameter_server and one_device");
    refuses_set(LEAST, "strategy.update=ssp",
                "--set strategy.update: strategy.update ssp is not supported; there are "
                "async and sync");
    refuses_set(LEAST, "data.kind=tfrecord",
                "--set data.kind: data.kind must be idx, csv, npy or synthetic-digits, not \"tfrecord\"");
    refuses_set(LEAST, "strategy.partitioner=fixed",
                "--set strategy.partitioner: strategy.partitioner \"fixed\" is not "
                "one of none, fixed:N, min_bytes:B, max_bytes:B (N and B from 1; B "
                "with KiB, MiB or GiB if wanted)");
}

static void what_is_missing(void **ctx)
{
    (void)ctx;
    refuses("", "job.yaml: model is missing");
    refuses_set(LEAST, "data.kind=idx", "job.yaml: data.path is missing, which data.kind idx needs");
    refuses_set(LEAST, "optimizer.name=", "job.yaml: optimizer.name is missing");
    refuses_set(LEAST, "loss=", "job.yaml: loss.name is missing");
}

static void what_does_not_fit_together(void **ctx)
{
    (void)ctx;
    refuses_set(LEAST, "data.path=x", "--set data.path: data.path does not go with data.kind synthetic-digits");
    refuses_set(LEAST, "data={kind: npy, x: a, y: b, x_test: c}",
                "--set data: data.x_test and data.y_test go together");
    refuses_set(LEAST "metrics: [accuracy]\n", "loss.name=mse",
                "job.yaml:5: accuracy needs class labels; loss mse has none");
    refuses_set(LEAST, "loss={name: mse, from_logits: true}", "--set loss: loss mse has no from_logits");
}

static void names(void **ctx)
{
    (void)ctx;
    struct ps_job *job;
    struct ps_error e;
    refuses_set(LEAST, "name=a/b",
                "--set name: name must be at most 128 letters, digits, '.', '_' and '-', not '.' "
                "first, not \"a/b\"");
    assert_int_equal(PS_INVALID_ARGUMENT, ps_job_parse(LEAST, strlen(LEAST), "my job.yaml", NULL, 0, &job, &e));
    assert_string_equal("my job.yaml: the job has no name, and \"my job\", from the file's, cannot be one: set name",
                        e.text);
}

static void bad_sets(void **ctx)
{
    (void)ctx;
    static const char must_be[] = "must be KEY=VALUE, KEY a dotted path such as optimizer.name";
    static const char *const bad[] = {"", "seed", "=1", ".=1", "a..b=1", "a.=1", ".a=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[256];
        snprintf(why, sizeof why, "--set %s: %s", bad[i], must_be);
        refuses_set(LEAST, bad[i], why);
    }
    refuses_set(LEAST, "model.path=x", "--set model.path: model is not a map");
    refuses_set(LEAST, "data=kind: idx", "--set data: the value must be a scalar, [a, list] or {a: map}");
    refuses_set(LEAST, "data={kind: idx", "--set data: while parsing a flow mapping: did not find expected ',' or '}'");
}

// ---- YAML ---------------------------------------------------------------------------------------------------------

static void yaml_that_is_refused(void **ctx)
{
    (void)ctx;
    refuses("model: &m x\n", "job.yaml:1: anchors (&name) are not supported");
    refuses("model: x\nweights: *m\n", "job.yaml:2: aliases (*name) are not supported");
    refuses("model: !!str x\n", "job.yaml:1: tags (!name) are not supported");
    refuses("model: x\nseed: 1\nmodel: y\n", "job.yaml:3: key \"model\" appears twice, first on line 1");
    refuses("? [a]\n: b\n", "job.yaml:1: a key must be a word");
    refuses("a: 1\n---\nb: 1\n", "job.yaml:2: a second document begins here; there may be one");
    refuses("a: \"x\\0y\"\n", "job.yaml:1: a value has a NUL byte in it");
    refuses("a: [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]\n", "job.yaml:1: values are nested too deeply");
    refuses("a: 1\n\tb: 2\n", "job.yaml:2: while scanning a plain scalar: found a tab character that violates "
                              "indentation");
    refuses("a: 1\nb: \xff\n", "job.yaml:1: invalid leading UTF-8 octet at byte 8");
}

static void yaml_is_bounded(void **ctx)
{
    (void)ctx;
    struct ps_yaml *root;
    struct ps_error e = {.code = PS_OK};
    char *text = calloc(1, PS_YAML_MAX_BYTES + 1), *at = text;
    assert_non_null(text);
    for (int i = 0; i <= PS_YAML_MAX_KEYS; i++)
        at += sprintf(at, "k%d: 1\n", i);
    assert_int_equal(PS_INVALID_ARGUMENT, ps_yaml_parse(text, strlen(text), "f", &root, &e));
    assert_string_equal("f:257: a map has more than 256 keys", e.text);
    memset(text, ' ', PS_YAML_MAX_BYTES + 1);
    assert_int_equal(PS_INVALID_ARGUMENT, ps_yaml_parse(text, PS_YAML_MAX_BYTES + 1, "f", &root, &e));
    assert_string_equal("f: more than 1048576 bytes", e.text);
    free(text);
}

static void files(void **ctx)
{
    (void)ctx;
    struct ps_job *job;
    struct ps_error e;
    assert_int_equal(PS_NOT_FOUND, ps_job_load("no/such/job.yaml", NULL, 0, &job, &e));
    assert_string_equal("cannot read no/such/job.yaml: No such file or directory", e.text);
    assert_int_equal(PS_INVALID_ARGUMENT, ps_job_load("/", NULL, 0, &job, &e));
    assert_string_equal("cannot read /: Is a directory", e.text);
}

static void examples(void **ctx)
{
    (void)ctx;
    static const char *const example[] = {"softmax/job.yaml",    "conv/job.yaml",        "linear/job.yaml",
                                          "mnist-cnn/sync.yaml", "mnist-cnn/async.yaml", "mnist-cnn/one_device.yaml"};
    const char *top = getenv("top_srcdir");
    for (size_t i = 0; i < sizeof example / sizeof *example; i++) {
        char path[4096];
        struct ps_job *job = NULL;
        struct ps_error e = {.code = PS_OK};
        snprintf(path, sizeof path, "%s/deploy/examples/%s", top ? top : ".", example[i]);
        if (ps_job_load(path, NULL, 0, &job, &e) != PS_OK)
            fail_msg("%s", e.text);
        ps_job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(everything),
        cmocka_unit_test(sgd_is_a_rule_by_its_momentum),
        cmocka_unit_test(sets_lie_over_the_file),
        cmocka_unit_test(json_is_a_job_file),
        cmocka_unit_test(json_has_what_counts),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(wrong_types),
        cmocka_unit_test(wrong_words),
        cmocka_unit_test(what_is_missing),
        cmocka_unit_test(what_does_not_fit_together),
        cmocka_unit_test(names),
        cmocka_unit_test(bad_sets),
        cmocka_unit_test(yaml_that_is_refused),
        cmocka_unit_test(yaml_is_bounded),
        cmocka_unit_test(files),
        cmocka_unit_test(examples),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
