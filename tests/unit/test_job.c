// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/file/yaml.h"
#include "common/job/job.h"

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
    assert_int_equal(1, j->loss.n);
    assert_int_equal(PS_LOSS_SPARSE_XENT, j->loss.of[0].loss.kind);
    assert_false(j->loss.of[0].loss.from_logits);
    same_real(1, j->loss.of[0].loss.weight);
    assert_int_equal(0, j->metrics.n);
    assert_int_equal(0, j->class_weight.n);
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
    assert_int_equal(12, j->n_hypers);
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
                             "strategy: {name: parameter_server, update: sync, placement: round_robin,\n"
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
    assert_true(j->loss.of[0].loss.from_logits);
    assert_int_equal(PS_METRIC_ACCURACY, j->metrics.of[0].metric.kind);
    assert_string_equal("nesterov", j->rule);
    same_real(0.1, hyper(j, "learning_rate"));
    same_real(0.9, hyper(j, "momentum"));
    assert_int_equal(PS_STRATEGY_PARAMETER_SERVER, j->strategy);
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

// Of the rules of an optimizer the one with the fewest slots.
static void optimizers_are_rules(void **ctx)
{
    (void)ctx;
    static const struct {
        const char *set, *rule;
        size_t n_hypers;
    } row[] = {
        {"optimizer={name: sgd, learning_rate: 0.5, nesterov: true}", "sgd", 9},
        {"optimizer={name: sgd, momentum: 0.5}", "momentum", 10},
        {"optimizer={name: sgd, momentum: 0.5, nesterov: true}", "nesterov", 10},
        {"optimizer={name: adam}", "adam", 12},
        {"optimizer={name: adamw}", "adamw", 12},
        {"optimizer={name: rmsprop, rho: 0.5}", "rmsprop", 11},
        {"optimizer={name: rmsprop, momentum: 0.5}", "rmsprop_momentum", 12},
        {"optimizer={name: rmsprop, centered: true}", "rmsprop_centered", 12},
        {"optimizer={name: adagrad}", "adagrad", 11},
        {"optimizer={name: adadelta}", "adadelta", 11},
        {"optimizer={name: ftrl}", "ftrl", 15},
        {"optimizer={name: adam, amsgrad: true}", "adam_amsgrad", 12},
        {"optimizer={name: adamw, amsgrad: true}", "adamw_amsgrad", 12},
        {"optimizer={name: nadam}", "nadam", 12},
        {"optimizer={name: adamax}", "adamax", 12},
        {"optimizer={name: lion}", "lion", 11},
        // As Keras's users write it.
        {"optimizer=adam", "adam", 12},
        {"optimizer=AdamW", "adamw", 12},
        {"optimizer='SGD'", "sgd", 9},
        {"optimizer.name=RMSprop", "rmsprop", 11},
        {"optimizer={name: Lion}", "lion", 11},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct ps_job *j = with(LEAST, row[i].set);
        assert_string_equal(row[i].rule, j->rule);
        assert_int_equal(row[i].n_hypers, j->n_hypers);
        assert_int_equal(PS_SCHEDULE_NONE, j->schedule.kind);
        ps_job_free(j);
    }
    struct ps_job *j = with(LEAST, "optimizer={name: sgd, momentum: 0.5, learning_rate: 0.25, clipnorm: 3}");
    same_real(0.25, hyper(j, "learning_rate"));
    same_real(0.5, hyper(j, "momentum"));
    same_real(3, hyper(j, "clipnorm"));
    same_real(0, hyper(j, "weight_decay"));
    ps_job_free(j);
    j = with(LEAST, "optimizer={name: adamw}");
    same_real(0.004, hyper(j, "weight_decay"));
    ps_job_free(j);
}

static void scale(void **ctx)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1/255", 1.0 / 255}, {"0.5", 0.5}, {"-2", -2}, {"1e-3/4", 1e-3 / 4}};
    static const char *const bad[] = {"0",     "0/3", "1/0",          "1/",           "/2",
                                      "1/2/3", "a/b", "1e-300/1e300", "1e300/1e-300", "[1]"};
    (void)ctx;
    struct ps_job *j = parse(LEAST, "dir/job.yaml", NULL, 0);
    same_real(1, j->data.scale);
    ps_job_free(j);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char set[64];
        snprintf(set, sizeof set, "data.scale=%s", good[i].text);
        j = with(LEAST, set);
        same_real(good[i].value, j->data.scale);
        json_t *root = ps_job_json(j);
        same_real(good[i].value, json_real_value(json_object_get(json_object_get(root, "data"), "scale")));
        json_decref(root);
        ps_job_free(j);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char set[64], why[160];
        snprintf(set, sizeof set, "data.scale=%s", bad[i]);
        snprintf(why, sizeof why,
                 "--set data.scale: data.scale must be a number other than 0, or a quotient such as 1/255, not %s%s%s",
                 *bad[i] == '[' ? "" : "\"", *bad[i] == '[' ? "a list" : bad[i], *bad[i] == '[' ? "" : "\"");
        refuses_set(LEAST, set, why);
    }
}

static void schedules(void **ctx)
{
    (void)ctx;
    struct ps_job *j = with(LEAST, "optimizer={name: adam, learning_rate: {schedule: cosine, initial: 0.5, "
                                   "decay_steps: 100, alpha: 0.1, warmup_steps: 10, warmup_initial: 0.25}}");
    assert_int_equal(PS_COSINE, j->schedule.kind);
    same_real(0.5, j->schedule.initial);
    assert_int_equal(100, j->schedule.decay_steps);
    same_real(0.1, j->schedule.alpha);
    assert_int_equal(10, j->schedule.warmup_steps);
    same_real(0.25, hyper(j, "learning_rate"));  // of step 0
    ps_job_free(j);
    j = with(LEAST, "optimizer.learning_rate={schedule: piecewise, boundaries: [10, 20], values: [3, 2, 1.5]}");
    assert_int_equal(PS_PIECEWISE, j->schedule.kind);
    assert_int_equal(2, j->schedule.n_boundaries);
    assert_int_equal(20, j->schedule.boundary[1]);
    same_real(1.5, j->schedule.value[2]);
    same_real(3, hyper(j, "learning_rate"));
    ps_job_free(j);
    j = with(LEAST, "optimizer.learning_rate={schedule: exponential, initial: 1, decay_steps: 3, decay_rate: 0.5, "
                    "staircase: true}");
    assert_int_equal(PS_EXPONENTIAL, j->schedule.kind);
    assert_int_equal(3, j->schedule.decay_steps);
    same_real(0.5, j->schedule.decay_rate);
    assert_true(j->schedule.staircase);
    ps_job_free(j);
}

static struct ps_job *scaled(const char *optimizer, const char *strategy, uint32_t replicas)
{
    const char *const sets[] = {optimizer, strategy, "batch_size=10"};
    struct ps_job *j = parse(LEAST, "dir/job.yaml", sets, 3);
    struct ps_error e;
    if (ps_job_scale_rate(j, replicas, 195, &e))
        fail_msg("%s", e.text);
    return j;
}

static void rate_is(const struct ps_job *j, uint64_t step, double expected)
{
    const double got = j->schedule.kind ? ps_schedule_rate(&j->schedule, step) : hyper(j, "learning_rate");
    if (fabs(got - expected) > 1e-12)
        fail_msg("step %d: %.17g is not %.17g", (int)step, got, expected);
}

static void scaled_rate(void **ctx)
{
    char text[160];
    (void)ctx;
    struct ps_job *j =
        scaled("optimizer={name: sgd, lr: 0.1, scale_learning_rate: linear}", "strategy.name=mirrored", 4);
    rate_is(j, 0, 0.4);
    ps_job_scale_text(j, 4, text, sizeof text);
    assert_string_equal("learning rate 0.4: 0.1 times 4, for 4 replicas", text);
    char *written = ps_job_configuration(j);  // is the file's: a checkpoint goes on with any number of replicas
    assert_non_null(strstr(written, "optimizer.learning_rate=0.1\n"));
    free(written);
    ps_job_free(j);
    j = scaled("optimizer={name: sgd, lr: 0.1, scale_learning_rate: sqrt}", "strategy.name=mirrored", 4);
    rate_is(j, 0, 0.2);
    ps_job_free(j);
    j = scaled("optimizer={name: sgd, lr: 0.1}", "strategy.name=mirrored", 4);
    rate_is(j, 0, 0.1);
    ps_job_free(j);
    j = scaled("optimizer={name: sgd, scale_learning_rate: linear, lr: {schedule: piecewise, boundaries: [3], "
               "values: [0.1, 0.01]}}",
               "strategy.name=mirrored", 3);
    rate_is(j, 3, 0.3);
    rate_is(j, 4, 0.03);
    ps_job_free(j);
    j = scaled("optimizer={name: sgd, scale_learning_rate: linear, lr: {schedule: polynomial, initial: 0.1, "
               "end_learning_rate: 0.02, decay_steps: 4}}",
               "strategy.name=mirrored", 2);
    rate_is(j, 2, 0.12);
    rate_is(j, 9, 0.04);
    ps_job_free(j);
    j = scaled("optimizer={name: sgd, scale_learning_rate: linear, lr: {schedule: constant, initial: 0.1, "
               "warmup_initial: 0.02, warmup_steps: 4}}",
               "strategy.name=mirrored", 3);
    rate_is(j, 0, 0.06);
    rate_is(j, 2, 0.18);
    rate_is(j, 4, 0.3);
    ps_job_free(j);
}

// 195 examples are 5 steps of 4 replicas, whose rate is rate / 4 * (1 + epoch * (4 - 1) / 2), which Horovod's
// LearningRateWarmupCallback has one step earlier; in updates of one replica alone they are 20 steps.
static void warm_up_by_epochs(void **ctx)
{
    static const char optimizer[] = "optimizer={name: sgd, lr: 0.1, scale_learning_rate: linear, warmup_epochs: 2}";
    static const double by_hand[] = {0.1, 0.13, 0.16, 0.19, 0.22, 0.25, 0.28, 0.31, 0.34, 0.37, 0.4, 0.4};
    static const char *const together[] = {"strategy.name=mirrored", "strategy.name=multi_worker_mirrored",
                                           "strategy={name: parameter_server, update: sync}",
                                           "strategy.name=local_steps"};
    static const char *const alone[] = {"strategy.update=async", "strategy={update: ssp, staleness: 2}"};
    char text[160];
    (void)ctx;
    for (size_t k = 0; k < sizeof together / sizeof *together; k++) {
        struct ps_job *j = scaled(optimizer, together[k], 4);
        for (uint64_t step = 0; step < sizeof by_hand / sizeof *by_hand; step++)
            rate_is(j, step, by_hand[step]);
        same_real(0.1, hyper(j, "learning_rate"));
        ps_job_scale_text(j, 4, text, sizeof text);
        assert_string_equal("learning rate 0.4: 0.1 times 4, for 4 replicas; from 0.1 in the first 10 steps", text);
        ps_job_free(j);
    }
    for (size_t k = 0; k < sizeof alone / sizeof *alone; k++) {
        struct ps_job *j = scaled(optimizer, alone[k], 4);
        assert_int_equal(40, j->schedule.warmup_steps);
        ps_job_free(j);
    }
    struct ps_job *j = scaled(optimizer, "strategy={update: async, n_push: 4}", 4);
    assert_int_equal(10, j->schedule.warmup_steps);
    ps_job_free(j);
    // Of two of four gradients a round is made; there are no more gradients than replicas.
    j = scaled(optimizer, "strategy={update: sync, replicas_to_aggregate: 2}", 4);
    assert_int_equal(20, j->schedule.warmup_steps);
    ps_job_free(j);
    j = scaled(optimizer, "strategy={update: sync, replicas_to_aggregate: 5}", 4);
    assert_int_equal(10, j->schedule.warmup_steps);
    ps_job_free(j);
    j = scaled("optimizer={name: sgd, scale_learning_rate: linear, warmup_epochs: 1, lr: {schedule: exponential, "
               "initial: 0.1, decay_steps: 1, decay_rate: 0.5}}",
               "strategy.name=mirrored", 2);
    rate_is(j, 5, 0.15);
    rate_is(j, 10, 0.2);
    rate_is(j, 11, 0.1);
    ps_job_free(j);
}

// Before anything starts: who reads .h5 would expect what Keras no longer writes.
static void an_output_of_no_known_kind(void **ctx)
{
    (void)ctx;
    refuses_set(LEAST, "output=net.h5",
                "--set output: output must be a name that ends in .keras, .weights.h5 or .safetensors, not net.h5");
    refuses_set(LEAST, "output=net.hdf5",
                "--set output: output must be a name that ends in .keras, .weights.h5 or .safetensors, not net.hdf5");
    refuses_set(
        LEAST, "output=v1.2/net.pt",
        "--set output: output must be a name that ends in .keras, .weights.h5 or .safetensors, not v1.2/net.pt");
    ps_job_free(with(LEAST, "output=net.weights.h5"));
    ps_job_free(with(LEAST, "output=net.v2"));
    ps_job_free(with(LEAST, "output=/dev/null"));
}

static void a_plateau_and_a_schedule(void **ctx)
{
    (void)ctx;
    const char *plateau = "callbacks=[{name: reduce_lr_on_plateau, monitor: loss}]";
    ps_job_free(with(LEAST, plateau));
    refuses_set("model: m.json\ndata: {kind: synthetic-digits}\nloss: {name: sparse_categorical_crossentropy}\n"
                "optimizer: {name: sgd, learning_rate: {schedule: constant, initial: 0.1}}\n",
                plateau,
                "--set callbacks: callbacks: reduce_lr_on_plateau does not go with a learning rate that follows a "
                "schedule");
}

static void scaled_rates_that_are_refused(void **ctx)
{
    (void)ctx;
    refuses_set(LEAST, "optimizer.warmup_epochs=2",
                "--set optimizer.warmup_epochs: optimizer.warmup_epochs does not go with "
                "optimizer.scale_learning_rate none: expected linear or sqrt");
    refuses_set(LEAST, "optimizer={name: sgd, scale_learning_rate: linear, warmup_epochs: -1}",
                "--set optimizer: optimizer.warmup_epochs must be a number from 0 to 1e6, not \"-1\"");
    refuses_set(LEAST,
                "optimizer={name: sgd, scale_learning_rate: linear, warmup_epochs: 1, lr: {schedule: constant, "
                "initial: 1, warmup_steps: 3}}",
                "--set optimizer: optimizer.warmup_epochs does not go with optimizer.learning_rate.warmup_steps: "
                "expected one of them");
    refuses_set(LEAST, "optimizer.scale_learning_rate=root",
                "--set optimizer.scale_learning_rate: optimizer.scale_learning_rate must be none, linear or sqrt, "
                "not \"root\"");
    struct ps_job *j = with(LEAST, "optimizer={name: sgd, lr: 400000, scale_learning_rate: linear}");
    struct ps_error e;
    assert_int_equal(PS_INVALID_ARGUMENT, ps_job_scale_rate(j, 3, 100, &e));
    assert_string_equal("optimizer.learning_rate times 3, for 3 replicas: it is 1.2e+06; it must be at most 1e+06",
                        e.text);
    ps_job_free(j);
}

static void accumulation_and_average(void **ctx)
{
    (void)ctx;
    struct ps_job *j = with(LEAST "strategy: {name: one_device}\n",
                            "optimizer={name: adam, gradient_accumulation_steps: 4, use_ema: true, ema_momentum: 0.5}");
    same_real(4, hyper(j, "gradient_accumulation_steps"));
    same_real(1, hyper(j, "use_ema"));
    same_real(0.5, hyper(j, "ema_momentum"));
    same_real(0, hyper(j, "ema_overwrite_frequency"));
    json_t *root = ps_job_json(j), *optimizer = json_object_get(root, "optimizer");
    assert_true(json_is_true(json_object_get(optimizer, "use_ema")));  // so that it can be read again
    assert_int_equal(4, json_integer_value(json_object_get(optimizer, "gradient_accumulation_steps")));
    json_decref(root);
    ps_job_free(j);
    j = with(LEAST, "optimizer={name: adam, use_ema: true, ema_overwrite_frequency: 100}");
    same_real(100, hyper(j, "ema_overwrite_frequency"));
    ps_job_free(j);
}

// The other schedules, with the defaults that Keras has for them.
static void schedules_have_kerass_defaults(void **ctx)
{
    (void)ctx;
    struct ps_job *j = with(LEAST, "optimizer.learning_rate={schedule: polynomial, initial: 0.5, decay_steps: 7}");
    assert_int_equal(PS_POLYNOMIAL, j->schedule.kind);
    same_real(0.0001, j->schedule.end_learning_rate);
    same_real(1, j->schedule.power);
    assert_false(j->schedule.cycle);
    ps_job_free(j);
    j = with(LEAST, "optimizer.learning_rate={schedule: polynomial, initial: 0.5, decay_steps: 7, cycle: true, "
                    "power: 2, end_learning_rate: 0.25}");
    same_real(0.25, j->schedule.end_learning_rate);
    same_real(2, j->schedule.power);
    assert_true(j->schedule.cycle);
    ps_job_free(j);
    j = with(LEAST, "optimizer.learning_rate={schedule: cosine_restarts, initial: 0.5, decay_steps: 7}");
    assert_int_equal(PS_COSINE_RESTARTS, j->schedule.kind);
    same_real(2, j->schedule.t_mul);
    same_real(1, j->schedule.m_mul);
    same_real(0, j->schedule.alpha);
    ps_job_free(j);
    j = with(LEAST, "optimizer.learning_rate={schedule: inverse_time, initial: 0.5, decay_steps: 7, decay_rate: 2, "
                    "staircase: true}");
    assert_int_equal(PS_INVERSE_TIME, j->schedule.kind);
    same_real(2, j->schedule.decay_rate);
    assert_true(j->schedule.staircase);
    ps_job_free(j);
}

// What Keras's users write is the same job as that of the table's keys and words.
static void kerass_spelling(void **ctx)
{
    (void)ctx;
    static const struct {
        const char *keras, *ours;
    } row[] = {
        {"{name: SGD, lr: 0.25}", "{name: sgd, learning_rate: 0.25}"},
        {"{name: SGD, lr: ~}", "sgd"},
        {"{name: Nadam, lr: {schedule: ExponentialDecay, initial_learning_rate: 0.1, decay_steps: 5, decay_rate: 0.5}}",
         "{name: nadam, learning_rate: {schedule: exponential, initial: 0.1, decay_steps: 5, decay_rate: 0.5}}"},
        {"{name: adam, learning_rate: {schedule: CosineDecayRestarts, initial_learning_rate: 0.1, "
         "first_decay_steps: 5}}",
         "{name: adam, learning_rate: {schedule: cosine_restarts, initial: 0.1, decay_steps: 5}}"},
        {"{name: adam, learning_rate: {schedule: CosineDecay, initial_learning_rate: 0.1, decay_steps: 5, "
         "warmup_target: 0.5, warmup_steps: 3}}",
         "{name: adam, learning_rate: {schedule: cosine, initial: 0.5, warmup_initial: 0.1, decay_steps: 5, "
         "warmup_steps: 3}}"},
        {"{name: adam, learning_rate: {schedule: InverseTimeDecay, initial_learning_rate: 1, decay_steps: 5, "
         "decay_rate: 2}}",
         "{name: adam, learning_rate: {schedule: inverse_time, initial: 1, decay_steps: 5, decay_rate: 2}}"},
        {"{name: adam, learning_rate: {schedule: PolynomialDecay, initial_learning_rate: 1, decay_steps: 5}}",
         "{name: adam, learning_rate: {schedule: polynomial, initial: 1, decay_steps: 5}}"},
        {"{name: adam, learning_rate: {schedule: PiecewiseConstantDecay, boundaries: [1], values: [2, 1]}}",
         "{name: adam, learning_rate: {schedule: piecewise, boundaries: [1], values: [2, 1]}}"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char set[2][256];
        snprintf(set[0], sizeof *set, "optimizer=%s", row[i].keras);
        snprintf(set[1], sizeof *set, "optimizer=%s", row[i].ours);
        struct ps_job *keras = with(LEAST, set[0]), *ours = with(LEAST, set[1]);
        char *got = ps_job_configuration(keras), *expected = ps_job_configuration(ours);
        assert_string_equal(expected, got);
        free(got);
        free(expected);
        ps_job_free(keras);
        ps_job_free(ours);
    }
}

// What is assigned counts, in whichever spelling it and the file are.
static void assigned_spelling(void **ctx)
{
    (void)ctx;
    static const char *const row[][2] = {
        {"lr: 0.5", "optimizer.learning_rate=0.25"},
        {"learning_rate: 0.5", "optimizer.lr=0.25"},
        {"lr: 0.5", "optimizer.lr=0.25"},
        {"learning_rate: {schedule: constant, initial: 0.5}", "optimizer.learning_rate.initial_learning_rate=0.25"},
        {"learning_rate: {schedule: constant, initial_learning_rate: 0.5}", "optimizer.learning_rate.initial=0.25"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "model: m\ndata: {kind: synthetic-digits}\nloss: {name: mse}\n"
                 "optimizer: {name: sgd, %s}\n",
                 row[i][0]);
        struct ps_job *j = with(text, row[i][1]);
        same_real(0.25, hyper(j, "learning_rate"));
        ps_job_free(j);
    }
    struct ps_job *j =
        with("model: m\ndata: {kind: synthetic-digits}\nloss: {name: mse}\noptimizer: Adam\n", "optimizer.lr=0.25");
    assert_string_equal("adam", j->rule);
    same_real(0.25, hyper(j, "learning_rate"));
    ps_job_free(j);
}

static void updates(void **ctx)
{
    (void)ctx;
    struct ps_job *j = with(LEAST, "strategy={update: ssp, staleness: 0, refuse_nonfinite: true}");
    assert_int_equal(PS_SSP, j->update);
    assert_int_equal(0, j->staleness);
    assert_true(j->refuse_nonfinite);
    assert_int_equal(0, j->n_fetch);
    ps_job_free(j);
    j = with(LEAST, "strategy={update: sync, replicas_to_aggregate: 3}");
    assert_int_equal(3, j->replicas_to_aggregate);
    assert_false(j->refuse_nonfinite);
    ps_job_free(j);
    j = with(LEAST "matmul_precision: bfloat16\ncudnn: fastest\n", "strategy={update: async, n_push: 4}");
    assert_int_equal(PS_PRECISION_BFLOAT16, j->matmul_precision);
    assert_int_equal(PS_CUDNN_FASTEST, j->cudnn);
    assert_int_equal(4, j->n_push);
    assert_int_equal(1, j->n_fetch);
    ps_job_free(j);
}

static void replicas_normalize_together(void **ctx)
{
    (void)ctx;
    struct ps_job *j = with(LEAST, "strategy={name: mirrored, sync_batchnorm: true}");
    assert_true(j->sync_batchnorm);
    ps_job_free(j);
    j = with(LEAST, "strategy.name=multi_worker_mirrored");
    assert_false(j->sync_batchnorm);
    ps_job_free(j);
    refuses_set(
        LEAST, "strategy.sync_batchnorm=true",
        "--set strategy.sync_batchnorm: strategy.sync_batchnorm does not go with strategy.name parameter_server");
}

// The ps tasks have a part of the variables, and all workers take part in every round.
static void hybrid_shares_the_variables(void **ctx)
{
    static const char HYBRID[] = LEAST "strategy: {name: hybrid}\n";
    (void)ctx;
    struct ps_job *j = with(HYBRID, "strategy.partitioner=fixed:2");
    assert_int_equal(PS_SYNC, j->update);
    assert_true(ps_job_needs_ps(j) && ps_job_needs_peers(j) && ps_job_needs_all_workers(j));
    assert_int_equal(3, ps_job_min_workers(j, 3));
    ps_job_free(j);
    j = with(LEAST "strategy: {name: multi_worker_mirrored, min_workers: 2}\n", "seed=1");
    assert_true(!ps_job_needs_ps(j) && ps_job_needs_peers(j) && !ps_job_needs_all_workers(j));
    assert_int_equal(2, ps_job_min_workers(j, 3));
    ps_job_free(j);
    refuses_set(HYBRID, "strategy.update=async",
                "--set strategy.update: strategy.update async does not go with strategy.name hybrid: expected sync");
    refuses_set(HYBRID, "on_existing=resume",
                "--set on_existing: on_existing resume does not go with strategy.name hybrid, as the ps tasks have the "
                "tables alone: expected refuse or replace");
    refuses_set(
        HYBRID, "optimizer={name: adam, global_clipnorm: 1}",
        "--set optimizer: optimizer.global_clipnorm does not go with strategy.name hybrid, where nobody has all "
        "gradients: expected clipnorm or clipvalue");
    refuses_set(HYBRID, "optimizer={name: adam, use_ema: true}",
                "--set optimizer: optimizer.use_ema does not go with strategy.name hybrid");
    refuses_set(HYBRID, "strategy.min_workers=1",
                "--set strategy.min_workers: strategy.min_workers does not go with strategy.name hybrid");
    refuses_set(HYBRID, "strategy.devices=[cpu:0, cpu:1]",
                "--set strategy.devices: strategy.devices does not go with strategy.name hybrid");
}

static void workers_add_up_by(void **ctx)
{
    static const char WORKERS[] = LEAST "strategy: {name: multi_worker_mirrored, communication: nccl}\n";
    (void)ctx;
    struct ps_job *j = with(LEAST "strategy: {name: multi_worker_mirrored}\n", "seed=1");
    assert_int_equal(PS_COMMUNICATION_AUTO, j->communication);
    ps_job_free(j);
    j = with(WORKERS, "seed=1");
    assert_int_equal(PS_COMMUNICATION_NCCL, j->communication);
    ps_job_free(j);
    j = with(WORKERS, "strategy.communication=ring");
    assert_int_equal(PS_COMMUNICATION_RING, j->communication);
    ps_job_free(j);
    refuses_set(WORKERS, "strategy.communication=mpi",
                "--set strategy.communication: strategy.communication must be auto, ring or nccl, not \"mpi\"");
    refuses_set(WORKERS, "strategy.gradient_compression=float16",
                "--set strategy.gradient_compression: strategy.gradient_compression float16 does not go with "
                "strategy.communication nccl: expected none");
    refuses_set(LEAST "strategy: {name: hybrid}\n", "strategy.communication=nccl",
                "--set strategy.communication: strategy.communication nccl does not go with strategy.name hybrid: "
                "expected auto or ring");
    refuses_set(LEAST "strategy: {name: mirrored}\n", "strategy.communication=nccl",
                "--set strategy.communication: strategy.communication does not go with strategy.name mirrored");
}

// What is for several workers or their servers is refused; update says nothing where there is one worker.
static void one_device_has_no_servers(void **ctx)
{
    (void)ctx;
    static const char *const keys[] = {"strategy.n_fetch=2",
                                       "strategy.n_push=2",
                                       "strategy.staleness=1",
                                       "strategy.replicas_to_aggregate=1",
                                       "strategy.placement=greedy",
                                       "strategy.partitioner=none",
                                       "strategy.min_workers=1",
                                       "on_existing=resume",
                                       "delay_ms=1"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[160];
        int len = (int)strcspn(keys[i], "=");
        snprintf(text, sizeof text, "--set %.*s: %.*s does not go with strategy.name one_device", len, keys[i], len,
                 keys[i]);
        refuses_set(LEAST "strategy: {name: one_device}\n", keys[i], text);
    }
    struct ps_job *j = with(LEAST "strategy: {name: one_device, update: ssp, refuse_nonfinite: true}\n", "seed=1");
    assert_true(j->refuse_nonfinite);
    json_t *json = ps_job_json(j);
    char *text = json_dumps(json, 0);
    assert_null(strstr(text, "placement"));
    ps_job_free(parse(text, "job.json", NULL, 0));
    free(text);
    json_decref(json);
    ps_job_free(j);
}

static void paths_become_absolute(void **ctx)
{
    (void)ctx;
    struct ps_job *j =
        with("model: m.json\nloss: mse\noptimizer: adam\ndata: {kind: csv, path: /data/x.csv, test_path: t.csv}\n"
             "callbacks: [{name: csv_log, path: log.csv}, terminate_on_nan, {name: backup, path: b}]\n",
             "output=out/w.safetensors");
    struct ps_job *columns = with("model: m.json\nloss: mse\noptimizer: adam\n"
                                  "data: {kind: csv, path: x.csv, columns: {a: {type: category, vocabulary: v.txt}}}\n",
                                  "output=w.safetensors");
    struct ps_error e;
    assert_int_equal(PS_OK, ps_job_make_absolute(columns, "/home/alice", &e));
    assert_string_equal("/home/alice/dir/v.txt", columns->data.columns.of[0].vocabulary);
    ps_job_free(columns);
    assert_int_equal(PS_OK, ps_job_make_absolute(j, "/home/alice", &e));
    assert_string_equal("/home/alice/dir/m.json", j->model);
    assert_string_equal("/data/x.csv", j->data.path);
    assert_string_equal("/home/alice/dir/t.csv", j->data.test_path);
    assert_string_equal("/home/alice/out/w.safetensors", j->output);
    assert_null(j->weights);
    assert_string_equal("/home/alice/dir/log.csv", ps_callback_text(&j->callbacks.v[0], "path"));
    assert_string_equal("/home/alice/dir/b", ps_callback_text(&j->callbacks.v[2], "path"));
    ps_job_free(j);
}

// No JSON could have it: the job would be without its output.
static void a_path_that_is_not_utf8_is_refused(void **ctx)
{
    (void)ctx;
    struct ps_job *j =
        with("model: /m.json\nloss: mse\noptimizer: adam\ndata: {kind: synthetic-digits}\n", "output=w.safetensors");
    struct ps_error e;
    assert_int_equal(PS_INVALID_ARGUMENT, ps_job_make_absolute(j, "/home/al\xefs", &e));
    assert_string_equal("the path /home/al?s/w.safetensors is not UTF-8: expected one that a job can hold", e.text);
    ps_job_free(j);
}

static double outer_hyper(const struct ps_job *j, const char *name)
{
    for (size_t i = 0; i < j->outer.n_hypers; i++)
        if (strcmp(j->outer.hypers[i].name, name) == 0)
            return j->outer.hypers[i].value;
    fail_msg("the outer rule has no %s", name);
    return 0;
}

static void check_outer(const char *set, const char *rule, double rate, double momentum)
{
    struct ps_job *j = with(LEAST "strategy: {name: local_steps}\n", set);
    const struct ps_rule *found;
    double hyper[PS_RULE_MAX_HYPERS];
    struct ps_error e;
    assert_string_equal(rule, j->outer.rule);
    same_real(rate, outer_hyper(j, "learning_rate"));
    if (momentum > 0)
        same_real(momentum, outer_hyper(j, "momentum"));
    assert_int_equal(PS_OK, ps_job_server_rule(j, &found, hyper, &e));
    assert_string_equal(rule, found->name);
    same_real(rate, hyper[PS_HYPER_LEARNING_RATE]);
    assert_true(ps_job_needs_ps(j));
    json_t *json = ps_job_json(j);  // is a job file of the same job
    char *text = json_dumps(json, 0), *shared = ps_job_configuration(j);
    struct ps_job *again = parse(text, "job.json", NULL, 0);
    char *shared_again = ps_job_configuration(again);
    assert_string_equal(shared, shared_again);
    assert_non_null(strstr(shared, "strategy.outer_optimizer.learning_rate="));
    ps_job_free(again);
    free(shared_again);
    free(shared);
    free(text);
    json_decref(json);
    ps_job_free(j);
}

static void local_steps_have_an_outer_optimizer(void **ctx)
{
    (void)ctx;
    struct ps_job *j = with(LEAST "strategy: {name: local_steps}\n", "seed=1");
    assert_int_equal(50, j->local_steps);
    assert_int_equal(PS_SYNC, j->update);
    ps_job_free(j);
    check_outer("seed=1", "nesterov", 0.7, 0.9);
    check_outer("strategy.update=async", "delayed_nesterov", 0.7, 0.9);
    check_outer("strategy={name: local_steps, update: async, outer_optimizer: {delay: 8, momentum: 0.5}}",
                "delayed_nesterov", 0.7, 0.5);
    check_outer("strategy={name: local_steps, update: async, outer_optimizer: sgd}", "sgd", 0.7, 0);
    check_outer("strategy.outer_optimizer=Delayed_Nesterov", "delayed_nesterov", 0.7, 0.9);
    check_outer("strategy.outer_optimizer=SGD", "nesterov", 0.7, 0.9);
    check_outer("strategy.outer_optimizer.nesterov=false", "momentum", 0.7, 0.9);
    check_outer("strategy.outer_optimizer={lr: 1, momentum: 0}", "sgd", 1, 0);
    check_outer("strategy.outer_optimizer={name: adam, learning_rate: 0.1}", "adam", 0.1, 0);
}

static void local_steps_that_are_refused(void **ctx)
{
    (void)ctx;
#define LOCAL LEAST "strategy: {name: local_steps}\n"
    refuses_set(LOCAL, "strategy.local_steps=0",
                "--set strategy.local_steps: strategy.local_steps must be a whole number from 1 to 1048576, not \"0\"");
    refuses_set(LOCAL, "strategy.update=ssp",
                "--set strategy.update: strategy.update ssp does not go with strategy.name local_steps: expected sync "
                "or async");
    refuses_set(LOCAL, "strategy.n_push=2",
                "--set strategy.n_push: strategy.n_push does not go with strategy.name local_steps");
    refuses_set(
        LOCAL, "strategy.gradient_compression=float16",
        "--set strategy.gradient_compression: strategy.gradient_compression float16 does not go with strategy.name "
        "local_steps: expected none, bfloat16 or int8");
    refuses_set(
        LEAST "strategy: {name: multi_worker_mirrored}\n", "strategy.gradient_compression=int8",
        "--set strategy.gradient_compression: strategy.gradient_compression int8 does not go with strategy.name "
        "multi_worker_mirrored: expected none, bfloat16 or float16");
    refuses_set(
        LOCAL, "strategy.grace_seconds=2",
        "--set strategy.grace_seconds: strategy.grace_seconds goes with strategy.replicas_to_aggregate alone: all "
        "workers are waited for");
    refuses_set(LEAST "strategy: {name: local_steps, replicas_to_aggregate: 2}\n", "strategy.grace_seconds=-1",
                "--set strategy.grace_seconds: strategy.grace_seconds must be a number from 0 to 86400, not \"-1\"");
    refuses_set(LEAST "strategy: {name: local_steps, update: async}\n", "strategy.grace_seconds=2",
                "--set strategy.grace_seconds: strategy.grace_seconds does not go with strategy.update async");
    refuses_set(LOCAL, "strategy.outer_optimizer=sdg",
                "--set strategy.outer_optimizer: strategy.outer_optimizer.name \"sdg\" is not known; did you mean "
                "\"sgd\"?");
    refuses_set(LOCAL, "optimizer=delayed_nesterov",
                "--set optimizer: optimizer.name must be sgd, adam, adamw, rmsprop, adagrad, adadelta, nadam, adamax, "
                "lion or ftrl, not \"delayed_nesterov\"");
    refuses_set(
        LOCAL, "strategy.outer_optimizer={name: delayed_nesterov, delay: 1.5}",
        "--set strategy.outer_optimizer: strategy.outer_optimizer delayed_nesterov: delay of rule delayed_nesterov "
        "is 1.5; it must be a whole number");
    refuses_set(LOCAL, "strategy.outer_optimizer={momentun: 0.5}",
                "--set strategy.outer_optimizer: strategy.outer_optimizer sgd has no \"momentun\"; did "
                "you mean \"momentum\"?");
    refuses_set(LOCAL, "strategy.outer_optimizer={name: adam, nesterov: true}",
                "--set strategy.outer_optimizer: strategy.outer_optimizer.nesterov does not go with "
                "strategy.outer_optimizer.name adam");
    refuses_set(LOCAL, "optimizer={name: adam, use_ema: true}",
                "--set optimizer: optimizer.use_ema does not go with strategy.name local_steps: expected it in "
                "strategy.outer_optimizer, for the weights that all workers share");
    refuses_set(LEAST "strategy: {name: one_device}\n", "strategy.local_steps=5",
                "--set strategy.local_steps: strategy.local_steps does not go with strategy.name one_device");
    refuses_set(LEAST, "strategy.outer_optimizer.momentum=0.5",
                "--set strategy.outer_optimizer.momentum: strategy.outer_optimizer does not go with strategy.name "
                "parameter_server");
}

static void fragments_that_are_refused(void **ctx)
{
    (void)ctx;
    refuses_set(LOCAL, "strategy.fragment_sync_delay=50",
                "--set strategy.fragment_sync_delay: strategy.fragment_sync_delay is 50: expected less than "
                "strategy.local_steps, 50");
    refuses_set(LOCAL, "strategy.fragments=65",
                "--set strategy.fragments: strategy.fragments must be a whole number from 1 to 64, not \"65\"");
    refuses_set(LEAST "strategy: {name: local_steps, update: async}\n", "strategy.fragments=2",
                "--set strategy.fragments: strategy.fragments does not go with strategy.update async");
    refuses_set(LEAST "strategy: {name: local_steps, fragments: 2}\n", "strategy.replicas_to_aggregate=1",
                "--set strategy.replicas_to_aggregate: strategy.replicas_to_aggregate does not go with fragments or "
                "fragment_sync_delay");
    refuses_set(LEAST "strategy: {name: local_steps, fragments: 2}\n", "strategy.outer_optimizer.global_clipnorm=1",
                "--set strategy.outer_optimizer.global_clipnorm: strategy.outer_optimizer.global_clipnorm does not go "
                "with strategy.fragments, as the norm of all parts is known with the last one alone: expected clipnorm "
                "or clipvalue");
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
    assert_int_equal(1, j->metrics.n);
    assert_string_equal("one", j->name);
    assert_string_equal("w", j->output);
    assert_null(j->weights);
    ps_job_free(j);
}

// Every name in a table is read as what it names, in each of its spellings, and no two share one.
static void every_spelling_is_taken(void **ctx)
{
    const struct ps_names *const tables[] = {&ps_losses, &ps_metrics};
    (void)ctx;
    for (int t = 0; t < 2; t++)
        for (int kind = 0; kind < tables[t]->n; kind++) {
            char spellings[256], set[300], *left = spellings;
            snprintf(spellings, sizeof spellings, "%s %s", tables[t]->named[kind].name,
                     tables[t]->named[kind].spellings);
            for (char *one; (one = strtok_r(left, " ", &left));) {
                snprintf(set, sizeof set, t == 0 ? "loss=%s" : "metrics=[{class_name: %s, config: {}}]", one);
                struct ps_job *j = with(LEAST, set);
                assert_int_equal(kind, t == 0 ? j->loss.of[0].loss.kind : j->metrics.of[0].metric.kind);
                ps_job_free(j);
            }
        }
}

static void names_are_listed(void **ctx)
{
    (void)ctx;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    ps_named_list(&ps_losses, to);
    ps_named_list(&ps_metrics, to);
    fclose(to);
    assert_non_null(strstr(text, "\nhuber {delta}: squared up to an error of delta, absolute beyond it\n"));
    assert_non_null(strstr(text, "\nmse: mean of squared errors\n"));
    assert_non_null(strstr(text, "\nauc {num_thresholds, curve, from_logits}: area under"));
    free(text);
}

static void losses_and_metrics(void **ctx)
{
    (void)ctx;
    struct ps_job *j = parse("model: m\ndata: {kind: synthetic-digits}\noptimizer: {name: adam}\n"
                             "loss:\n  price: {name: huber, delta: 2, weight: 0.5}\n  kind: bce\n"
                             "metrics: {kind: [acc, {name: auc, curve: pr}], price: mae}\n"
                             "class_weight: {3: 2, 1: 0.5}\n",
                             "job.yaml", NULL, 0);
    const char *const outputs[] = {"kind", "price"}, *const others[] = {"kind", "cost"};
    struct ps_loss loss[3];
    struct ps_error e = {.code = PS_OK};
    size_t place[PS_MAX_METRICS];
    assert_int_equal(PS_OK, ps_job_losses_bind(&j->loss, outputs, 2, loss, &e));
    assert_int_equal(PS_LOSS_BINARY_XENT, loss[0].kind);
    assert_int_equal(PS_LOSS_HUBER, loss[1].kind);
    same_real(2, loss[1].delta);
    same_real(0.5, loss[1].weight);
    assert_int_equal(PS_OK, ps_job_metrics_bind(&j->metrics, outputs, 2, place, &e));
    assert_int_equal(3, j->metrics.n);
    assert_string_equal("acc", j->metrics.of[0].metric.label);
    assert_int_equal(PS_CURVE_PR, j->metrics.of[1].metric.curve);
    assert_int_equal(200, j->metrics.of[1].metric.num_thresholds);
    assert_true(place[0] == 0 && place[1] == 0 && place[2] == 1);
    assert_int_equal(1, j->class_weight.of[0].class);
    assert_int_equal(3, j->class_weight.of[1].class);
    struct ps_job *none = with(LEAST "class_weight: {}\n", "seed=1");
    assert_int_equal(0, none->class_weight.n);
    ps_job_free(none);
    none = with(LEAST "class_weight: {3: 2}\n", "class_weight={}");
    assert_int_equal(0, none->class_weight.n);
    ps_job_free(none);

    assert_int_equal(PS_FAILED_PRECONDITION, ps_job_losses_bind(&j->loss, others, 2, loss, &e));
    assert_string_equal("loss: the model has no output \"price\"; its first is \"kind\"", e.text);
    assert_int_equal(PS_FAILED_PRECONDITION,
                     ps_job_losses_bind(&j->loss, (const char *[]){"kind", "price", "c"}, 3, loss, &e));
    assert_string_equal("loss: output \"c\" of the model has none", e.text);
    ps_job_free(j);
    j = with(LEAST "metrics: [acc]\n", "loss=[mse, mae, mae]");
    assert_int_equal(PS_FAILED_PRECONDITION, ps_job_losses_bind(&j->loss, outputs, 2, loss, &e));
    assert_string_equal("loss: there are 3, but the model has 2 outputs", e.text);
    assert_int_equal(PS_FAILED_PRECONDITION, ps_job_metrics_bind(&j->metrics, outputs, 2, place, &e));
    assert_string_equal("metrics: the model has 2 outputs: expected a map such as {kind: [acc]}", e.text);
    ps_job_free(j);
}

// JSON is YAML: what a job says of itself is a job file that says the same.
static void json_is_a_job_file(void **ctx)
{
    (void)ctx;
    static const char *const sets[] = {"seed=7",
                                       "optimizer={name: sgd, momentum: 0.9, nesterov: true}",
                                       "data={kind: npy, x: a, y: b}",
                                       "data={kind: csv, path: 'a\"b'}",
                                       "optimizer={name: sgd, learning_rate: 1e-3}",
                                       "optimizer={name: rmsprop, momentum: 0.1, centered: true, clipvalue: 2}",
                                       "optimizer={name: ftrl, beta: 0.1, global_clipnorm: 2, weight_decay: 0.1}",
                                       "optimizer.learning_rate={schedule: constant, initial: 1, warmup_steps: 9}",
                                       "optimizer.learning_rate={schedule: piecewise, boundaries: [1, 9], values: "
                                       "[0.3, 0.2, 0.1], warmup_steps: 3, warmup_initial: 0.01}",
                                       "optimizer.learning_rate={schedule: exponential, initial: 0.1, decay_steps: "
                                       "10, decay_rate: 0.9, staircase: true}",
                                       "optimizer.learning_rate={schedule: cosine, initial: 0.1, decay_steps: 10}",
                                       "strategy={update: ssp, staleness: 3}",
                                       "strategy={update: sync, replicas_to_aggregate: 3, refuse_nonfinite: true}",
                                       "strategy={n_fetch: 2, n_push: 3}",
                                       "loss={name: Huber, delta: 2, weight: 0.5}",
                                       "loss=[mse, {name: bce, label_smoothing: 0.1}]",
                                       "loss={'a b': mse, c: BinaryFocalCrossentropy}",
                                       "metrics=[acc, {name: top_k, k: 3}, precision, {name: Recall, class_id: 0}]",
                                       "metrics={a: [{name: AUC, curve: PR}], b: F1Score}",
                                       "class_weight={0: 1, 7: 2.5}"};
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
    j = with(LEAST, "optimizer.learning_rate={schedule: constant, initial: 0.5}");
    root = ps_job_json(j);
    json_t *rate = json_object_get(json_object_get(root, "optimizer"), "learning_rate");
    assert_string_equal("constant", json_string_value(json_object_get(rate, "schedule")));
    same_real(0.5, json_real_value(json_object_get(rate, "initial")));
    json_decref(root);
    ps_job_free(j);
}

static void configuration_is_what_is_shared(void **ctx)
{
    (void)ctx;
    const char *const sets[] = {"seed=7", "optimizer.learning_rate=0.1", "threads=3", "output=w", "delay_ms=9"};
    struct ps_job *j = parse(LEAST, "dir/job.yaml", sets, sizeof sets / sizeof *sets);
    char *text = ps_job_configuration(j);
    assert_non_null(strstr(text, "\nseed=7\n"));
    assert_non_null(strstr(text, "\nbatch_size=64\n"));
    assert_non_null(strstr(text, "\noptimizer.name=adam\n"));
    assert_non_null(strstr(text, "\noptimizer.learning_rate=0.1\n"));
    assert_non_null(strstr(text, "\noptimizer.beta_2=0.999\n"));
    assert_non_null(strstr(text, "data.shuffle=true\n"));
    assert_non_null(strstr(text, "\nstrategy.update=async\n"));
    assert_null(strstr(text, "m.json"));
    assert_null(strstr(text, "threads="));
    assert_null(strstr(text, "output="));
    assert_null(strstr(text, "delay_ms="));
    free(text);
    ps_job_free(j);
}

#define IN_COLUMNS                                                \
    "model: m.json\nloss: mse\noptimizer: adam\n"                 \
    "data: {kind: csv, path: x.csv, columns: {a: {type: category" \
    "%s}, b: number}}\n"

// Nor of a column's vocabulary; but that it has one counts.
static void configuration_has_no_folders(void **ctx)
{
    char read[256], unread[256];
    (void)ctx;
    snprintf(read, sizeof read, IN_COLUMNS, ", vocabulary: v.txt");
    snprintf(unread, sizeof unread, IN_COLUMNS, "");
    struct ps_job *in = parse(read, "dir/f.yaml", NULL, 0), *here = parse(read, "f.yaml", NULL, 0);
    struct ps_job *without = parse(unread, "f.yaml", NULL, 0);
    char *text = ps_job_configuration(in), *same = ps_job_configuration(here), *other = ps_job_configuration(without);
    assert_string_equal(text, same);
    assert_string_not_equal(text, other);
    assert_null(strstr(text, "v.txt"));
    // What older versions wrote, and what this one writes, become what this one writes.
    char *before = strstr(text, "data.columns="), *after = strchr(before, '\n'), older[4096], *renewed;
    snprintf(
        older, sizeof older,
        "%.*sdata.columns={\"a\":{\"type\":\"category\",\"vocabulary\":\"dir/v.txt\"},\"b\":{\"type\":\"number\"}}%s",
        (int)(before - text), text, after);
    renewed = ps_job_configuration_renew(older);
    assert_string_equal(renewed, text);
    free(renewed);
    renewed = ps_job_configuration_renew(text);
    assert_string_equal(renewed, text);
    free(renewed);
    free(text);
    free(same);
    free(other);
    ps_job_free(in);
    ps_job_free(here);
    ps_job_free(without);
}

static void configuration_lines_without_a_default(void **ctx)
{
    (void)ctx;
    static const char *const optional[] = {
        "data.weight=age\n", "class_weight={\"0\":1.0}", "data.columns={}", "data.inputs=", "data.outputs={}",
        "data.label",        "data.image_size=[1,2]\nx"};
    static const char *const others[] = {"seed=0",         "model=0123", "weights=w", "data.kind=csv",
                                         "data.weights=x", "",           "\n"};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        assert_true(ps_job_configuration_is_optional(optional[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(ps_job_configuration_is_optional(others[i]));
}

// ---- what is refused ----------------------------------------------------------------------------------------------

static void unknown_keys(void **ctx)
{
    (void)ctx;
    refuses("model: m\noptimiser:\n  name: adam\n",
            "job.yaml:2: unknown key \"optimiser\"; did you mean \"optimizer\"?");
    refuses(LEAST "strategy:\n  name: one_device\n  palcement: greedy\n",
            "job.yaml:7: unknown key \"palcement\" in strategy; did you mean \"placement\"?");
    refuses(LEAST "callback: []\n", "job.yaml:5: unknown key \"callback\"; did you mean \"callbacks\"?");
    refuses(LEAST "strategy.update: sync\n", "job.yaml:5: unknown key \"strategy.update\"");
    refuses(LEAST "data.kind: idx\n", "job.yaml:5: unknown key \"data.kind\"");
    refuses_set(LEAST, "optimizer.beta1=0.5",
                "--set optimizer.beta1: optimizer adam has no \"beta1\"; did you mean \"beta_1\"?");
    refuses_set(LEAST, "optimizer={name: sgd, nestrov: true}",
                "--set optimizer: optimizer sgd has no \"nestrov\"; did you mean \"nesterov\"?");
    refuses_set(LEAST, "optimizer={name: adam, warmup_epoch: 3}",
                "--set optimizer: optimizer adam has no \"warmup_epoch\"; did you mean \"warmup_epochs\"?");
    refuses_set(
        LEAST, "optimizer={name: adam, warmup_steps: 3}",
        "--set optimizer: optimizer adam has no \"warmup_steps\"; expected it in optimizer.learning_rate, which "
        "is a map then");
    refuses_set(LOCAL, "strategy.outer_optimizer={nestrov: true}",
                "--set strategy.outer_optimizer: strategy.outer_optimizer sgd has no \"nestrov\"; did you mean "
                "\"nesterov\"?");
    refuses_set(LEAST, "strategy.stale=1", "--set strategy.stale: unknown key \"stale\" in strategy");
}

// ---- callbacks ------------------------------------------------------------------------------------------------------

#define ALONE LEAST "strategy: {name: one_device}\n"

static void callbacks(void **ctx)
{
    (void)ctx;
    struct ps_job *j = parse(ALONE "callbacks:\n"
                                   "  - terminate_on_nan\n"
                                   "  - name: early_stopping\n"
                                   "    patience: 3\n"
                                   "    mode: max\n"
                                   "    restore_best_weights: true\n"
                                   "  - {name: csv_log, path: log.csv}\n"
                                   "  - {name: reduce_lr_on_plateau, factor: 0.5}\n",
                             "dir/job.yaml", NULL, 0);
    const struct ps_callback *c = j->callbacks.v;
    assert_int_equal(4, j->callbacks.n);
    assert_string_equal("terminate_on_nan", ps_callback_name(&c[0]));
    assert_string_equal("early_stopping", ps_callback_name(&c[1]));
    assert_int_equal(3, ps_callback_count(&c[1], "patience"));
    assert_string_equal("val_loss", ps_callback_text(&c[1], "monitor"));
    assert_string_equal("max", ps_callback_text(&c[1], "mode"));
    assert_true(ps_callback_flag(&c[1], "restore_best_weights"));
    assert_true(isnan(ps_callback_real(&c[1], "baseline")));
    assert_string_equal("dir/log.csv", ps_callback_text(&c[2], "path"));
    assert_string_equal(",", ps_callback_text(&c[2], "separator"));
    same_real(0.5, ps_callback_real(&c[3], "factor"));
    same_real(0.0001, ps_callback_real(&c[3], "min_delta"));
    // What it says of itself is a job file with the same callbacks.
    json_t *said = ps_job_json(j), *again;
    char *text = json_dumps(said, 0);
    struct ps_job *k = parse(text, "job.yaml", NULL, 0);
    again = ps_job_json(k);
    assert_true(json_equal(json_object_get(said, "callbacks"), json_object_get(again, "callbacks")));
    json_decref(said);
    json_decref(again);
    free(text);
    ps_job_free(k);
    ps_job_free(j);
    // Those that look on go with several workers, too.
    ps_job_free(with(LEAST, "callbacks=[{name: json_lines, path: l}]"));
}

static void callbacks_by_the_names_of_keras(void **ctx)
{
    static const char *const names[] = {"csv_log",          "tensorboard", "early_stopping", "reduce_lr_on_plateau",
                                        "terminate_on_nan", "checkpoint",  "backup"};
    (void)ctx;
    struct ps_job *j =
        with(ALONE, "callbacks=[{name: CSVLogger, path: l}, {name: TensorBoard, path: t}, EarlyStopping, "
                    "ReduceLROnPlateau, TerminateOnNaN, {name: ModelCheckpoint, path: c}, "
                    "{name: BackupAndRestore, path: b}]");
    assert_int_equal(sizeof names / sizeof *names, j->callbacks.n);
    for (size_t i = 0; i < j->callbacks.n; i++)
        assert_string_equal(names[i], ps_callback_name(&j->callbacks.v[i]));
    ps_job_free(j);
}

static void callbacks_that_are_sharded(void **ctx)
{
    (void)ctx;
    struct ps_job *j = parse(LEAST "strategy: {name: parameter_server}\n"
                                   "callbacks:\n"
                                   "  - {name: csv_log, path: log.csv}\n"
                                   "  - {name: checkpoint, path: c}\n"
                                   "  - {name: tensorboard, path: c}\n"
                                   "  - {name: backup, path: b, sharded: true}\n"
                                   "  - {name: checkpoint, path: b, sharded: true}\n",
                             "dir/job.yaml", NULL, 0);
    assert_string_equal(ps_callbacks_shards(&j->callbacks), "dir/b");
    ps_job_free(j);
    j = parse(ALONE "callbacks: [{name: checkpoint, path: c}]\n", "dir/job.yaml", NULL, 0);
    assert_null(ps_callbacks_shards(&j->callbacks));
    ps_job_free(j);
}

static void several_write_to_what_is_no_file(void **ctx)
{
    (void)ctx;
    struct ps_error e = {.code = PS_OK};
    struct ps_job *j =
        with(ALONE "callbacks: [{name: csv_log, path: /dev/null}, {name: json_lines, path: /dev/null}]\n",
             "output=/dev/null");
    if (ps_job_check_files(j, "/dev/null", "/dev/null", &e))
        fail_msg("%s", e.text);
    ps_job_free(j);
}

static void no_two_write_to_one_file(void **ctx)
{
    (void)ctx;
    static const struct {
        const char *output, *summary, *timeline, *why;
    } rows[] = {
        {"w", "s", "t", NULL},
        {"w", NULL, NULL, NULL},
        {"w", "./w", NULL, "--summary writes to ./w, as output: expected another path"},
        {"w", NULL, "../%s/w", "--timeline writes to ../%s/w, as output: expected another path"},
        {"w", "s", "./s", "--timeline writes to ./s, as --summary: expected another path"},
        {"./l", NULL, NULL, "callback csv_log writes to ./l, as output: expected another path"},
        {"w", "l", NULL, "callback csv_log writes to l, as --summary: expected another path"},
        {"w", NULL, "q/", "callback checkpoint writes to q/, as --timeline: expected another path"},
    };
    char folder[] = "/tmp/test_job.XXXXXX", before[4096];
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ps_error e = {.code = PS_OK};
        char output[64], timeline[64], why[128];
        snprintf(output, sizeof output, "output=%s", rows[i].output);
        snprintf(timeline, sizeof timeline, rows[i].timeline ? rows[i].timeline : "", folder + strlen("/tmp/"));
        snprintf(why, sizeof why, rows[i].why ? rows[i].why : "", folder + strlen("/tmp/"));
        const char *set = output;
        struct ps_job *j =
            parse(ALONE "callbacks: [{name: csv_log, path: l}, {name: checkpoint, path: q}]\n", "job.yaml", &set, 1);
        const enum ps_code code = ps_job_check_files(j, rows[i].summary, rows[i].timeline ? timeline : NULL, &e);
        ps_job_free(j);
        if (code != (rows[i].why ? PS_INVALID_ARGUMENT : PS_OK) || strcmp(e.text, why) != 0)
            fail_msg("\"%s\", expected \"%s\"", e.text, why);
    }
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rmdir(folder), 0);
}

struct callbacks_row {
    const char *list, *why;
};

static void refuses_callbacks(const struct callbacks_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[512], why[256];
        snprintf(text, sizeof text, ALONE "callbacks: %s\n", rows[i].list);
        snprintf(why, sizeof why, "job.yaml:6: %s", rows[i].why);
        refuses(text, why);
    }
}

static void callbacks_with_the_keys_of_keras(void **ctx)
{
    static const struct callbacks_row rows[] = {
        {"[{name: csv_log, filename: x}]", "unknown key \"filename\" in callback csv_log; did you mean \"path\"?"},
        {"[{name: ModelCheckpoint, filepath: x}]",
         "unknown key \"filepath\" in callback checkpoint; did you mean \"path\"?"},
        {"[{name: TensorBoard, log_dir: x}]",
         "unknown key \"log_dir\" in callback tensorboard; did you mean \"path\"?"},
        {"[{name: BackupAndRestore, backup_dir: x}]",
         "unknown key \"backup_dir\" in callback backup; did you mean \"path\"?"},
        {"[{name: CSVLogger, append: true}]", "unknown key \"append\" in callback csv_log; it has path, separator"},
        {"[{name: ReduceLROnPlateau, filename: x}]", "unknown key \"filename\" in callback reduce_lr_on_plateau; it "
                                                     "has monitor, mode, factor, patience, min_delta, "
                                                     "cooldown, min_lr"},
        {"[{name: EarlyStopping, verbose: 1}]",
         "unknown key \"verbose\" in callback early_stopping; it has monitor, mode, min_delta, patience, baseline, "
         "restore_best_weights, start_from_epoch"},
        {"[{name: TerminateOnNaN, path: x}]", "unknown key \"path\" in callback terminate_on_nan"},
    };
    (void)ctx;
    refuses_callbacks(rows, sizeof rows / sizeof *rows);
}

static void wrong_callbacks(void **ctx)
{
    static const struct callbacks_row rows[] = {
        {"early_stopping",
         "callbacks must be a list such as [{name: early_stopping, patience: 3}], not \"early_stopping\""},
        {"[{patience: 3}]", "callbacks: each must be a map with a name, such as {name: early_stopping}"},
        {"[[csv_log]]", "callbacks: each must be a map with a name, such as {name: early_stopping}"},
        {"[{name: }]", "callbacks: each must be a map with a name, such as {name: early_stopping}"},
        {"[{name: early_stoping}]", "a callback \"early_stoping\" is not known; did you mean \"early_stopping\"?"},
        {"[csv_log]", "callback csv_log: path is missing"},
        {"[{name: csv_log, path: ''}]", "csv_log.path must be a path, not the string \"\""},
        {"[{name: csv_log, path: l, seperator: x}]",
         "unknown key \"seperator\" in callback csv_log; did you mean \"separator\"?"},
        {"[{name: early_stopping, patience: -1}]",
         "early_stopping.patience must be a whole number from 0 to 1073741824, not \"-1\""},
        {"[{name: early_stopping, mode: up}]", "early_stopping.mode must be auto, min or max, not \"up\""},
        {"[{name: early_stopping, restore_best_weights: 1}]",
         "early_stopping.restore_best_weights must be true or false, not \"1\""},
        {"[{name: early_stopping, baseline: low}]", "early_stopping.baseline must be a number, not \"low\""},
        {"[{name: reduce_lr_on_plateau, factor: 1}]", "reduce_lr_on_plateau.factor must be below 1, not \"1\""},
        {"[{name: reduce_lr_on_plateau, min_lr: -1}]", "reduce_lr_on_plateau.min_lr must be 0 or more, not \"-1\""},
        {"[{name: backup, path: b, sharded: true}, {name: checkpoint, path: c, sharded: true}]",
         "callbacks: those that are sharded have one path, that of the ps tasks: expected b"},
        {"[{name: backup, path: b, sharded: true}, {name: backup, path: b, sharded: true}]",
         "callbacks: a second backup that is sharded: expected one"},
        {"[{name: backup, path: b, sharded: true}, {name: backup, path: c, sharded: true}]",
         "callbacks: a second backup that is sharded: expected one"},
        {"[{name: backup, path: b}, {name: csv_log, path: b}]",
         "callbacks: csv_log writes to b, as backup before it: expected another path"},
        {"[{name: backup, path: b}, {name: checkpoint, path: b}, {name: checkpoint, path: b, keep: 9}]",
         "callbacks: checkpoint writes to b, as checkpoint before it: expected another path"},
        {"[{name: checkpoint, path: q}, {name: checkpoint, path: ./q, keep: 3}]",
         "callbacks: checkpoint writes to ./q, as checkpoint before it: expected another path"},
        {"[{name: csv_log, path: none/l}, {name: json_lines, path: none/./l}]",
         "callbacks: json_lines writes to none/./l, as csv_log before it: expected another path"},
        {"[{name: csv_log, path: l}, terminate_on_nan, {name: json_lines, path: l}]",
         "callbacks: json_lines writes to l, as csv_log before it: expected another path"},
        {"[{name: backup, path: b, sharded: true}]",
         "callbacks: sharded does not go with strategy.name one_device, with which the ps tasks do not have all that a "
         "checkpoint keeps: expected parameter_server"},
        {"[{name: checkpoint, path: c, every_steps: 0.5}]",
         "checkpoint.every_steps must be a whole number from 0 to 1073741824, not \"0.5\""},
    };
    (void)ctx;
    refuses_callbacks(rows, sizeof rows / sizeof *rows);
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
    refuses_set(LEAST, "loss=[]", "--set loss: loss must be the name of a loss, or one for each output, not a list");
    refuses_set(LEAST, "loss={name: huber, delta: wide}",
                "--set loss: loss.delta must be a number from 1e-09 to 1e+30, not \"wide\"");
    refuses_set(LEAST, "loss={name: mse, weight: -1}",
                "--set loss: loss.weight must be a number from 0 to 1e+30, not -1");
    refuses_set(LEAST, "loss={name: bce, from_logits: 1}", "--set loss: loss.from_logits must be true or false, not 1");
    refuses_set(LEAST, "loss=[mse, [mse]]",
                "--set loss: loss[1] must be the name of a loss, or a map with its name and settings");
    refuses_set(LEAST, "metrics=[{name: top_k, k: 2.5}]",
                "--set metrics: metrics[0].k must be a whole number from 1 to 1.07374e+09, not 2.5");
    refuses_set(LEAST, "metrics={a: [acc, {name: auc, curve: ROK}]}",
                "--set metrics: metrics.a[1].curve must be ROC or PR, not \"ROK\"");
    refuses_set(LEAST, "class_weight=[1, 2]",
                "--set class_weight: class_weight must be a map from class numbers to weights, such as {0: 1, 1: 5}, "
                "not a list");
    refuses_set(LEAST, "class_weight={a: 2}",
                "--set class_weight: class_weight: a class must be a whole number from 0, not \"a\"");
    refuses_set(LEAST, "class_weight={0: -2}",
                "--set class_weight: class_weight must be numbers from 0 to 1e30, not \"-2\"");
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
    refuses_set(LEAST, "optimizer.name=adagrat",
                "--set optimizer.name: optimizer.name \"adagrat\" is not known; did you mean \"adagrad\"?");
#define NAMES "sgd, adam, adamw, rmsprop, adagrad, adadelta, nadam, adamax, lion or ftrl"
    refuses_set(LEAST, "optimizer.name=lamb_", "--set optimizer.name: optimizer.name must be " NAMES ", not \"lamb_\"");
    // As near to adam as to adamw: either might not be what is meant.
    refuses_set(LEAST, "optimizer=adamx", "--set optimizer: optimizer.name must be " NAMES ", not \"adamx\"");
#undef NAMES
    refuses_set(LEAST, "optimizer=lamb",
                "--set optimizer: optimizer Lamb is not supported: what it does to a weight depends on others");
    refuses_set(LEAST, "optimizer=lars",
                "--set optimizer: optimizer LARS is not supported: what it does to a weight depends on others");
    refuses_set(
        LEAST, "optimizer=schedulefreeadamw",
        "--set optimizer: optimizer ScheduleFreeAdamW is not supported: no rule steps from the weights' average");
    refuses_set(LEAST, "optimizer=[adam]", "--set optimizer: optimizer must be a map, not a list");
    refuses_set(LEAST, "loss=mse_", "--set loss: loss \"mse_\" is not known; did you mean \"mse\"?");
    refuses_set(LEAST, "loss={name: hubber}", "--set loss: loss \"hubber\" is not known; did you mean \"huber\"?");
    refuses_set(LEAST, "loss={a: mse, b: MeanSquareError}",
                "--set loss: loss.b \"MeanSquareError\" is not known; did you mean \"MeanSquaredError\"?");
    refuses_set(LEAST, "loss={name: huber, dleta: 2}",
                "--set loss: loss: loss huber has no \"dleta\"; did you mean \"delta\"?");
    refuses_set(LEAST, "loss={name: mse, from_logits: true}", "--set loss: loss: loss mse has no \"from_logits\"");
    refuses("model: m\ndata: {kind: synthetic-digits}\noptimizer: {name: adam}\nloss:\n  name: huber\n  dleta: 2\n",
            "job.yaml:6: loss: loss huber has no \"dleta\"; did you mean \"delta\"?");
    refuses_set(LEAST, "loss={name: mse, reduction: sum}",
                "--set loss: loss.reduction must be sum_over_batch_size, not \"sum\"");
    refuses_set(LEAST, "metrics=[acuracy]",
                "--set metrics: metrics[0] \"acuracy\" is not known; did you mean \"accuracy\"?");
    refuses_set(LEAST, "metrics=[fog]",
                "--set metrics: metrics[0] must be accuracy, binary_accuracy, categorical_accuracy, "
                "sparse_categorical_accuracy, top_k, precision, recall, auc, f1, mse, rmse, mae, mape, "
                "cosine_similarity or confusion_matrix, not \"fog\"");
    refuses_set(LEAST, "strategy.name=tpu",
                "--set strategy.name: strategy.name tpu is not supported; there are parameter_server, one_device, "
                "mirrored, multi_worker_mirrored, local_steps, central_storage and hybrid");
    refuses_set(LEAST, "strategy.name=MultiWorkerMirroredStrategy",
                "--set strategy.name: strategy.name \"MultiWorkerMirroredStrategy\" is not known; did you mean "
                "\"multi_worker_mirrored\"?");
    refuses_set(LEAST, "strategy.name=CentralStorageStrategy",
                "--set strategy.name: strategy.name \"CentralStorageStrategy\" is not known; did you mean "
                "\"central_storage\"?");
    refuses_set(LEAST, "data.kind=hdf5",
                "--set data.kind: data.kind must be idx, csv, npy, npz, cifar, images, tfrecord, text or "
                "synthetic-digits, not \"hdf5\"");
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
    refuses_set(LEAST, "loss=", "job.yaml: loss is missing");
}

static void what_does_not_fit_together(void **ctx)
{
    (void)ctx;
    refuses_set(LEAST, "data.path=x", "--set data.path: data.path does not go with data.kind synthetic-digits");
    refuses_set(LEAST, "data={kind: npy, x: a, y: b, x_test: c}",
                "--set data: data.x_test and data.y_test go together");
}

static void optimizers_that_are_refused(void **ctx)
{
    (void)ctx;
#define SET "--set optimizer: "
    refuses_set(LEAST, "optimizer.nesterov=true",
                "--set optimizer.nesterov: optimizer.nesterov does not go with optimizer.name adam");
    refuses_set(LEAST, "optimizer={name: sgd, centered: true}",
                SET "optimizer.centered does not go with optimizer.name sgd");
    refuses_set(LEAST, "optimizer={name: nadam, amsgrad: true}",
                SET "optimizer.amsgrad does not go with optimizer.name nadam");
    refuses_set(LEAST, "optimizer={name: adam, amsgrad: 0.5}",
                SET "optimizer.amsgrad must be true or false, not \"0.5\"");
    refuses_set(LEAST, "optimizer={name: adam, lr: 0.1, learning_rate: 0.1}",
                SET "lr and learning_rate say the same; give one of them");
    refuses_set(LEAST, "optimizer={name: lion, beta_1: 1.5}",
                SET "optimizer lion: beta_1 of rule lion is 1.5; it must lie between 0 and 1");
    refuses_set(LEAST, "optimizer={name: lion, epsilon: 1}",
                SET "optimizer lion has no \"epsilon\"; it has learning_rate, weight_decay, clipnorm, "
                    "clipvalue, global_clipnorm, gradient_accumulation_steps, use_ema, ema_momentum, "
                    "ema_overwrite_frequency, beta_1, beta_2, name, scale_learning_rate, warmup_epochs");
    refuses_set(LEAST, "optimizer={name: adam, use_ema: 1}", SET "optimizer.use_ema must be true or false, not \"1\"");
    refuses_set(LEAST, "optimizer={name: adam, gradient_accumulation_steps: 2.5}",
                SET "optimizer adam: gradient_accumulation_steps of rule adam is 2.5; it must be a whole number");
    refuses_set(LEAST, "optimizer={name: adam, gradient_accumulation_steps: 2, clipnorm: 1}",
                SET "optimizer adam: gradient_accumulation_steps of rule adam does not go with clipnorm and "
                    "global_clipnorm where ps tasks apply it: none of them has the accumulated gradient whole");
    refuses_set(LEAST, "optimizer={name: adam, gradient_accumulation_step: 2}",
                SET "optimizer adam has no \"gradient_accumulation_step\"; did you mean "
                    "\"gradient_accumulation_steps\"?");
    // As near to beta_2 as to beta_1.
    refuses_set(LEAST, "optimizer={name: lion, beta_3: 1}",
                SET "optimizer lion has no \"beta_3\"; it has learning_rate, weight_decay, clipnorm, "
                    "clipvalue, global_clipnorm, gradient_accumulation_steps, use_ema, ema_momentum, "
                    "ema_overwrite_frequency, beta_1, beta_2, name, scale_learning_rate, warmup_epochs");
    refuses_set(LEAST, "optimizer={name: sgd, nesterov: 1}", SET "optimizer.nesterov must be true or false, not \"1\"");
    refuses_set(LEAST, "optimizer={name: sgd, momentum: true}",
                SET "optimizer.momentum must be a number, not \"true\"");
    refuses_set(LEAST, "optimizer={name: sgd, clip_norm: 1}",
                SET "optimizer sgd has no \"clip_norm\"; did you mean \"clipnorm\"?");
    refuses_set(LEAST, "optimizer={name: adagrad, initial_accumulator_value: -1}",
                SET "optimizer adagrad: initial_accumulator_value of rule adagrad is -1; it must lie between 0 and "
                    "1e+30");
    refuses("model: m.json\ndata: {kind: synthetic-digits}\nloss: {name: mse}\n"
            "optimizer:\n  name: adam\n  clipnorm: 1\n  clipvalue: 2\n",
            "job.yaml:4: optimizer adam: only one of clipnorm (1), clipvalue (2) and global_clipnorm (0) of rule adam "
            "may be set");
#undef SET
}

static void schedules_that_are_refused(void **ctx)
{
    (void)ctx;
#define SET "--set optimizer.learning_rate: "
#define KEY "optimizer.learning_rate"
    refuses_set(LEAST, KEY "=[1]", SET "optimizer.learning_rate must be a number, not a list");
    refuses_set(LEAST, KEY "={initial: 1}", SET "optimizer.learning_rate.schedule is missing");
    refuses_set(LEAST, KEY "={schedule: cosine, initial: 1, decay_steps: 1, initial_learning_rate: 1}",
                SET "initial_learning_rate and initial say the same; give one of them");
    refuses_set(LEAST, KEY "={schedule: cosine, initial: 1, decay_steps: 1, warmup_target: 1}",
                SET "warmup_target and initial say the same; give one of them");
    refuses_set(LEAST, KEY "={schedule: CosineDecay, initial_learning_rate: 1, decay_steps: 1, warmup_steps: 1}",
                SET "warmup_steps needs warmup_target beside initial_learning_rate: that is where the warm-up begins, "
                    "and the target where it ends");
    refuses_set(LEAST, KEY "={schedule: constant, initial: 1, warmup_target: 1}",
                SET "warmup_target is of schedule cosine; with constant, a warm-up goes from warmup_initial to where "
                    "the schedule begins");
    refuses_set(LEAST, KEY "={schedule: polynomial, initial: 1, decay_steps: 1, power: 0}",
                SET "optimizer.learning_rate: schedule polynomial needs power above 0");
    refuses_set(LEAST, KEY "={schedule: cosine_restarts, initial: 1, decay_steps: 1, t_mul: 0.5}",
                SET "optimizer.learning_rate: t_mul of schedule cosine_restarts is 0.5; it must be 1, or lie between "
                    "1.01 and 1e+06");
    refuses_set(LEAST, KEY "={schedule: cosine, initial: 1, decay_steps: 1, cycle: true}",
                SET "optimizer.learning_rate.cycle does not go with optimizer.learning_rate.schedule cosine");
    refuses_set(LEAST, KEY "={schedule: inverse_time, initial: 1, decay_steps: 1}",
                "job.yaml: optimizer.learning_rate.decay_rate is missing, which optimizer.learning_rate.schedule "
                "inverse_time needs");
    refuses_set(LEAST, KEY "={schedule: ~}", SET "optimizer.learning_rate.schedule is missing");
    refuses_set(LEAST, KEY "={schedule: cosin}",
                SET "optimizer.learning_rate.schedule \"cosin\" is not known; did you mean \"cosine\"?");
    refuses_set(LEAST, KEY "={schedule: cosine, intial: 1}",
                SET "unknown key \"intial\" in optimizer.learning_rate; did you mean \"initial\"?");
    refuses_set(LEAST, KEY "={schedule: cosine, initial: 1}",
                "job.yaml: optimizer.learning_rate.decay_steps is missing, which optimizer.learning_rate.schedule "
                "cosine needs");
    refuses_set(LEAST, KEY "={schedule: cosine, initial: 1, decay_steps: 9, staircase: true}",
                SET "optimizer.learning_rate.staircase does not go with optimizer.learning_rate.schedule cosine");
    refuses_set(LEAST, KEY "={schedule: piecewise, initial: 1}",
                SET "optimizer.learning_rate.initial does not go with optimizer.learning_rate.schedule piecewise");
    refuses_set(LEAST, KEY "={schedule: piecewise, boundaries: [], values: [1]}",
                SET "optimizer.learning_rate.boundaries has 0 numbers; it must have 1 to 32");
    refuses_set(LEAST, KEY "={schedule: piecewise, boundaries: [1, 2.5], values: [1, 2, 3]}",
                SET "optimizer.learning_rate.boundaries must be a whole number from 0 to 9223372036854775807, not "
                    "\"2.5\"");
    refuses_set(LEAST, KEY "={schedule: piecewise, boundaries: [1, 2], values: [1, 2]}",
                SET "optimizer.learning_rate.values has 2 numbers; it must have 3, one more than boundaries");
    refuses_set(LEAST, KEY "={schedule: piecewise, boundaries: [2, 2], values: [1, 2, 3]}",
                SET "optimizer.learning_rate: boundaries of schedule piecewise must grow, but 2 follows 2");
    refuses_set(LEAST, KEY "={schedule: constant, initial: 0}",
                SET "optimizer.learning_rate: schedule constant needs initial above 0");
    refuses_set("model: m\ndata: {kind: synthetic-digits}\nloss: {name: mse}\noptimizer:\n  name: sgd\n"
                "  learning_rate:\n    schedule: cosine\n    initial: -1\n    decay_steps: 1\n",
                "seed=1",
                "job.yaml:6: optimizer.learning_rate: initial of schedule cosine is -1; it must lie between 0 and "
                "1e+06");
#undef SET
#undef KEY
}

static void updates_that_are_refused(void **ctx)
{
    (void)ctx;
    refuses_set(LEAST, "strategy.update=ssp",
                "job.yaml: strategy.staleness is missing, which strategy.update ssp needs");
    refuses_set(LEAST, "strategy.staleness=1",
                "--set strategy.staleness: strategy.staleness does not go with strategy.update async");
    refuses_set(LEAST, "strategy={update: sync, n_push: 2}",
                "--set strategy: strategy.n_push does not go with strategy.update sync");
    refuses_set(LEAST, "strategy={update: ssp, staleness: 1, n_fetch: 2}",
                "--set strategy: strategy.n_fetch does not go with strategy.update ssp");
    refuses_set(LEAST, "strategy.n_fetch=0",
                "--set strategy.n_fetch: strategy.n_fetch must be a whole number from 1 to 1048576, not \"0\"");
    refuses_set(LEAST, "strategy.replicas_to_aggregate=2",
                "--set strategy.replicas_to_aggregate: strategy.replicas_to_aggregate does not go with "
                "strategy.update async");
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
    refuses("a: 1\n\tb: 2\n", "job.yaml:2: while scanning a plain scalar: found a tab, where YAML takes "
                              "spaces only");
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
    assert_string_equal("f:65537: a map has more than 65536 keys", e.text);
    memset(text, ' ', PS_YAML_MAX_BYTES + 1);
    assert_int_equal(PS_INVALID_ARGUMENT, ps_yaml_parse(text, PS_YAML_MAX_BYTES + 1, "f", &root, &e));
    assert_string_equal("f: more than 16777216 bytes", e.text);
    free(text);
}

// Of as many as there may be: each is found, and a twin of any.
static void yaml_of_many_keys(void **ctx)
{
    (void)ctx;
    struct ps_yaml *root;
    struct ps_error e = {.code = PS_OK};
    const char *const twins[] = {"k0", "k999", "k65534"};
    char *text = calloc(1, PS_YAML_MAX_KEYS * 16), *at = text, why[80];
    assert_non_null(text);
    for (int i = 0; i < PS_YAML_MAX_KEYS - 1; i++)
        at += sprintf(at, "k%d: %d\n", i, i);
    assert_int_equal(PS_OK, ps_yaml_parse(text, strlen(text), "f", &root, &e));
    assert_string_equal("65534", ps_yaml_find(root, "k65534")->text);
    ps_yaml_free(root);
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        sprintf(at, "%s: 1\n", twins[i]);
        assert_int_equal(PS_INVALID_ARGUMENT, ps_yaml_parse(text, strlen(text), "f", &root, &e));
        snprintf(why, sizeof why, "f:65536: key \"%s\" appears twice, first on line %d", twins[i],
                 atoi(twins[i] + 1) + 1);
        assert_string_equal(why, e.text);
    }
    free(text);
}

// As ImageNet has; what workers have to have alike stays short, and each weight counts.
static void a_thousand_classes_weigh(void **ctx)
{
    (void)ctx;
    enum { CLASSES = 1000 };
    char *configuration[2];
    for (int i = 0; i < 2; i++) {
        char *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);
        fputs(LEAST "class_weight: {", to);
        for (int k = 0; k < CLASSES; k++)
            fprintf(to, "%s%d: %.7g", k ? ", " : "", k, k == 700 ? i : 1 + k / 7.0);
        fputs("}\n", to);
        fclose(to);
        struct ps_job *j = parse(text, "job.yaml", NULL, 0);
        assert_int_equal(j->class_weight.n, CLASSES);
        configuration[i] = ps_job_configuration(j);
        ps_job_free(j);
        free(text);
    }
    assert_true(strlen(configuration[0]) < 4096);
    assert_string_not_equal(configuration[0], configuration[1]);
    free(configuration[0]);
    free(configuration[1]);
}

static void files(void **ctx)
{
    (void)ctx;
    struct ps_job *job;
    struct ps_error e;
    assert_int_equal(PS_NOT_FOUND, ps_job_load("no/such/job.yaml", NULL, 0, &job, &e));
    assert_string_equal("cannot read no/such/job.yaml: No such file or directory", e.text);
    assert_int_equal(PS_NOT_FOUND, ps_job_load("/", NULL, 0, &job, &e));
    assert_string_equal("cannot read /: Is a directory", e.text);
}

static void examples(void **ctx)
{
    (void)ctx;
    static const char *const example[] = {"softmax/async.yaml",  "conv/sync.yaml",       "linear/sync.yaml",
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

// ---- data ---------------------------------------------------------------------------------------------------------

#define CSV_JOB                                                                     \
    "model: m.json\n"                                                               \
    "loss: {name: mse}\n"                                                           \
    "optimizer: {name: sgd}\n"                                                      \
    "data:\n"                                                                       \
    "  kind: csv\n"                                                                 \
    "  path: t.csv\n"                                                               \
    "  columns: {city: {type: category, vocabulary: c.txt}, id: skip, 3: number}\n" \
    "  inputs: {place: city, numbers: [a, b]}\n"                                    \
    "  outputs: {out: y}\n"                                                         \
    "  label: [y, z]\n"                                                             \
    "  separator: ;\n"                                                              \
    "  header: true\n"                                                              \
    "  weight: w\n"                                                                 \
    "  augment: {flip: both, crop: 4, noise: 0.5}\n"                                \
    "  validation_split: 0.25\n"                                                    \
    "  threads: 3\n"

static void check_columns(const struct ps_job_data *d, const char *vocabulary)
{
    assert_int_equal(3, d->columns.n);
    assert_int_equal(PS_COLUMN_CATEGORY, ps_job_columns_find(&d->columns, "city")->type);
    assert_string_equal(vocabulary, ps_job_columns_find(&d->columns, "city")->vocabulary);
    assert_int_equal(PS_COLUMN_SKIP, ps_job_columns_find(&d->columns, "id")->type);
    assert_int_equal(2, d->inputs.n);
    assert_string_equal("place", d->inputs.of[0].name);
    assert_int_equal(1, d->inputs.of[0].n);
    assert_string_equal("b", d->inputs.of[1].column[1]);
    assert_int_equal(1, d->outputs.n);
    assert_int_equal(2, d->label.n);
    assert_string_equal(";", d->separator);
    assert_int_equal(PS_HEADER_YES, d->header);
    assert_int_equal(PS_FLIP_BOTH, d->flip);
    assert_int_equal(4, d->crop);
    assert_int_equal(3, d->threads);
    assert_string_equal("w", d->weight);
}

// Read, and read again from what ps_job_json says of it.
static void columns_of_data(void **state)
{
    struct ps_job *again;
    struct ps_error e;
    (void)state;
    struct ps_job *j = parse(CSV_JOB, "d/job.yaml", NULL, 0);
    check_columns(&j->data, "d/c.txt");
    json_t *root = ps_job_json(j);
    char *text = json_dumps(root, 0);
    if (ps_job_parse(text, strlen(text), "d/job.yaml", NULL, 0, &again, &e))
        fail_msg("%s", e.text);
    check_columns(&again->data, "d/d/c.txt");
    ps_job_free(again);
    free(text);
    json_decref(root);
    ps_job_free(j);
}

static void wrong_columns_of_data(void **state)
{
    (void)state;
    refuses_set(CSV_JOB, "data.columns=7", "--set data.columns: data.columns must be a map of names, not \"7\"");
    refuses_set(CSV_JOB, "data.columns={a: word}",
                "--set data.columns: data.columns.a must be any, number, category, bytes, image or skip, not \"word\"");
    refuses_set(CSV_JOB, "data.columns={a: {kind: x}}",
                "--set data.columns: unknown key \"kind\" in data.columns.a: expected type, vocabulary or shape");
    refuses_set(CSV_JOB, "data.columns={a: {type: number, vocabulary: x}}",
                "--set data.columns: data.columns.a has a vocabulary: expected type: category");
    refuses_set(CSV_JOB, "data.inputs={a: {b: c}}",
                "--set data.inputs: data.inputs.a must be a column or a list of columns, not a map");
    refuses_set(CSV_JOB, "data.validation_split=1",
                "--set data.validation_split: data.validation_split must be a number from 0 to below 1, not \"1\"");
    refuses_set(CSV_JOB, "data.separator=ab",
                "--set data.separator: data.separator must be a character that is no quote, or tab, not \"ab\"");
    refuses_set(CSV_JOB, "data.augment.flipp=1",
                "--set data.augment.flipp: unknown key \"flipp\" in data.augment; did you "
                "mean \"flip\"?");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(defaults),
    cmocka_unit_test(everything),
    cmocka_unit_test(optimizers_are_rules),
    cmocka_unit_test(scale),
    cmocka_unit_test(schedules),
    cmocka_unit_test(scaled_rate),
    cmocka_unit_test(warm_up_by_epochs),
    cmocka_unit_test(scaled_rates_that_are_refused),
    cmocka_unit_test(an_output_of_no_known_kind),
    cmocka_unit_test(a_plateau_and_a_schedule),
    cmocka_unit_test(accumulation_and_average),
    cmocka_unit_test(schedules_have_kerass_defaults),
    cmocka_unit_test(kerass_spelling),
    cmocka_unit_test(assigned_spelling),
    cmocka_unit_test(updates),
    cmocka_unit_test(replicas_normalize_together),
    cmocka_unit_test(workers_add_up_by),
    cmocka_unit_test(one_device_has_no_servers),
    cmocka_unit_test(hybrid_shares_the_variables),
    cmocka_unit_test(paths_become_absolute),
    cmocka_unit_test(a_path_that_is_not_utf8_is_refused),
    cmocka_unit_test(local_steps_have_an_outer_optimizer),
    cmocka_unit_test(local_steps_that_are_refused),
    cmocka_unit_test(fragments_that_are_refused),
    cmocka_unit_test(sets_lie_over_the_file),
    cmocka_unit_test(every_spelling_is_taken),
    cmocka_unit_test(losses_and_metrics),
    cmocka_unit_test(names_are_listed),
    cmocka_unit_test(json_is_a_job_file),
    cmocka_unit_test(json_has_what_counts),
    cmocka_unit_test(configuration_is_what_is_shared),
    cmocka_unit_test(configuration_has_no_folders),
    cmocka_unit_test(configuration_lines_without_a_default),
    cmocka_unit_test(unknown_keys),
    cmocka_unit_test(callbacks),
    cmocka_unit_test(callbacks_by_the_names_of_keras),
    cmocka_unit_test(callbacks_with_the_keys_of_keras),
    cmocka_unit_test(callbacks_that_are_sharded),
    cmocka_unit_test(wrong_callbacks),
    cmocka_unit_test(several_write_to_what_is_no_file),
    cmocka_unit_test(no_two_write_to_one_file),
    cmocka_unit_test(wrong_types),
    cmocka_unit_test(wrong_words),
    cmocka_unit_test(columns_of_data),
    cmocka_unit_test(wrong_columns_of_data),
    cmocka_unit_test(what_is_missing),
    cmocka_unit_test(what_does_not_fit_together),
    cmocka_unit_test(optimizers_that_are_refused),
    cmocka_unit_test(schedules_that_are_refused),
    cmocka_unit_test(updates_that_are_refused),
    cmocka_unit_test(names),
    cmocka_unit_test(bad_sets),
    cmocka_unit_test(yaml_that_is_refused),
    cmocka_unit_test(yaml_is_bounded),
    cmocka_unit_test(yaml_of_many_keys),
    cmocka_unit_test(a_thousand_classes_weigh),
    cmocka_unit_test(files),
    cmocka_unit_test(examples),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
