// SPDX-License-Identifier: Apache-2.0
//
// mirrored on emulated GPUs that add up among themselves, over seeds of the order in which they run: what it trains is
// what one device trains with the whole batch, the same bytes on every replica and in every order. An all-reduce that
// breaks, or to which a rank never comes, ends all replicas with a sentence that names it.
//
// CUDA_SEEDS: how many orders of each, 200 if it is not set; 20 under the address sanitizer.
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/cuda/emulator.h"
#include "workerd/collective/collective.h"
#include "workerd/nn/cuda/module.h"
#include "workerd/strategy/strategy.h"

extern const struct nn_device nn_device_cuda;

// In place of the module's loading.
enum ps_code nn_cuda_load(const struct nn_device **device, struct ps_error *e)
{
    (void)e;
    *device = &nn_device_cuda;
    return PS_OK;
}

// The last step of an epoch has rows for three quarters of the replicas: of four. Of two, the second makes a program of
// its rows then.
enum {
    GPUS_MAX = 4,
    EXAMPLES = 22,
    STEP = 8,
    EPOCHS = 2,
    STEPS = EPOCHS * 3,
    FEATURES = 6,
    CLASSES = 3,
    WEIGHTS = 256
};

// A program has memory of its own for the constants of the first layer.
static const char plain[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 6]}},"
    "{\"class_name\": \"Normalization\", \"config\": {\"name\": \"norm\", \"mean\": 0, \"variance\": 1}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"one\", \"units\": 8, \"activation\": \"relu\"}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"two\", \"units\": 5, \"activation\": \"tanh\"}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"three\", \"units\": 3, \"activation\": \"softmax\"}}]}}";
#define NORM(name, settings)                                                                                        \
    "{\"class_name\": \"BatchNormalization\", \"config\": {\"name\": \"" name "\", \"synchronized\": true" settings \
    "}},"
static const char synchronized[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 6]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"one\", \"units\": 8}}," NORM(
        "a", "") "{\"class_name\": \"Dense\", \"config\": {\"name\": \"two\", \"units\": 5, \"activation\": "
                 "\"tanh\"}}," NORM("b",
                                    ", \"scale\": false") "{\"class_name\": \"Dense\", \"config\": {\"name\": "
                                                          "\"three\", \"units\": 3, \"activation\": \"softmax\"}}]}}";
static const char *network = plain;
static int timeout = 60;
static const struct ps_loss loss = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT);
static const volatile sig_atomic_t no_signal;

static float x[EXAMPLES * FEATURES];
static int32_t label[EXAMPLES];

// Its inputs are numbers of an Embedding's table: 0 in all examples.
static const char embedding[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 6]}},"
    "{\"class_name\": \"Embedding\", \"config\": {\"name\": \"table\", \"input_dim\": 4, \"output_dim\": 2}},"
    "{\"class_name\": \"Flatten\", \"config\": {\"name\": \"flat\"}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"out\", \"units\": 3, \"activation\": \"softmax\"}}]}}";
static uint32_t slow;                         // rank + 1, which sleeps in its first step for longer than the timeout
static uint32_t stranger;                     // rank + 1, whose inputs are
static float outside[STEP * FEATURES] = {7};  // these, of which one is outside that table

// One training, of so many replicas.
struct training {
    struct ps_job *job;
    struct nn_model *model;
    struct wk_collective *collective;
    const struct wk_strategy *strategy;
    struct replica {
        struct training *of;
        struct wk_env env;
        void *state;
        pthread_t thread;
        float weights[WEIGHTS];
        bool slept;
        struct ps_error error;
    } replica[GPUS_MAX];
    uint32_t n;
    struct ps_error error;  // of the replicas', the one that is no consequence of another one's
};

static uint64_t seeds(void)
{
#ifdef __SANITIZE_ADDRESS__
    const uint64_t usual = 20;
#else
    const uint64_t usual = 200;
#endif
    const char *wanted = getenv("CUDA_SEEDS");
    return wanted ? strtoull(wanted, NULL, 10) : usual;
}

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

// ---- a training ---------------------------------------------------------------------------------------------------

static enum ps_code replica_step(struct replica *r, const struct wk_work *work)
{
    const struct wk_home *home = r->of->strategy->home;
    const struct nn_hooks hooks = {home->need, home->ready, home->sum, r->state};
    const float *const input = r->env.device + 1 == stranger ? outside : &x[work->first * FEATURES];
    const struct nn_batch batch = {.rows = work->rows, .input = {input}, .target = {&label[work->first]}};
    struct nn_result result;
    if (home->begin(r->state, work, &r->error))
        return r->error.code;
    if (r->env.device + 1 == slow && !r->slept)
        sleep((unsigned)timeout + 1);
    r->slept = true;
    if (nn_replica_train(r->env.replica, &batch, work->step, home->need ? &hooks : NULL, &result, &r->error))
        return r->error.code;
    return home->end(r->state, work, &r->error);
}

static void replica_copy_weights(struct replica *r)
{
    size_t at = 0;
    for (size_t i = 0; i < nn_model_params(r->of->model); i++) {
        const size_t count = (size_t)nn_model_param(r->of->model, i)->count;
        assert_true(at + count <= WEIGHTS);
        memcpy(r->weights + at, nn_replica_param(r->env.replica, i), count * sizeof(float));
        at += count;
    }
}

static void *replica_thread(void *arg)
{
    struct replica *r = arg;
    const struct wk_strategy *s = r->of->strategy;
    struct wk_work work;
    s->open(&r->env, &r->state, &r->error);
    for (uint64_t epoch = 0; epoch < EPOCHS && r->error.code == PS_OK; epoch++)
        while (r->error.code == PS_OK && s->sharder->next(r->state, epoch, true, &work, &r->error) == WK_BATCH)
            replica_step(r, &work);
    if (r->error.code == PS_OK)
        replica_copy_weights(r);
    else if (r->of->collective)
        wk_collective_fail(r->of->collective, r->env.device, &r->error);
    return NULL;
}

static void training_open(struct training *t, const char *strategy, uint32_t n)
{
    const struct wk_peers_options options = {.workers = 1, .stop = &no_signal};
    struct ps_error e = {.code = PS_OK};
    char text[512];
    *t = (struct training){.n = n, .strategy = n ? &wk_mirrored : &wk_one_device};
    snprintf(text, sizeof text,
             "model: m\ndata: {kind: synthetic-digits}\nloss: {name: sparse_categorical_crossentropy}\n"
             "optimizer: {name: sgd, learning_rate: 0.1, momentum: 0.9}\nstrategy: {name: %s}\nbatch_size: %u\n"
             "timeout: %d\n",
             strategy, STEP / (n ? n : 1), timeout);
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &t->job, &e), &e);
    must(nn_model_parse(network, "test", &t->model, &e), &e);
    if (n)
        must(wk_collective_open(&options, n, &t->collective, &e), &e);
}

static void training_close(struct training *t)
{
    const uint32_t n = t->n ? t->n : 1;
    wk_collective_close(t->collective, t->error.code ? t->error.text : NULL);
    for (uint32_t i = 0; i < n; i++) {
        if (t->replica[i].state)
            t->strategy->close(t->replica[i].state, t->error.code ? &t->error : NULL);
        nn_replica_free(t->replica[i].env.replica);
    }
    nn_model_free(t->model);
    ps_job_free(t->job);
}

static void training_join(struct training *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ps_error *e = &t->replica[i].error;
        pthread_join(t->replica[i].thread, NULL);
        if (e->code && (!t->error.code || t->error.code == PS_ABORTED))
            t->error = *e;
    }
}

// gpus 0: one device, the CPU, with the whole batch.
static void train(struct training *t, const char *strategy, uint32_t gpus)
{
    const uint32_t n = gpus ? gpus : 1;
    struct ps_error e = {.code = PS_OK};
    char device[16];
    training_open(t, strategy, gpus);
    for (uint32_t i = 0; i < n; i++) {
        struct replica *r = &t->replica[i];
        snprintf(device, sizeof device, "%s:%u", gpus ? "gpu" : "cpu", i);
        r->of = t;
        r->env = (struct wk_env){.job = t->job,
                                 .model = t->model,
                                 .examples = EXAMPLES,
                                 .workers = 1,
                                 .min_workers = 1,
                                 .replica_rank = i,
                                 .replicas = n,
                                 .device = i,
                                 .collective = t->collective,
                                 .stop = &no_signal};
        must(nn_replica_create(t->model, device, t->job->batch_size, 1, 0, &loss, &r->env.replica, &e), &e);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_create(&t->replica[i].thread, NULL, replica_thread, &t->replica[i]);
    training_join(t, n);
    training_close(t);
}

static const char *devices_of(uint32_t gpus, const char *ops)
{
    static char text[160];
    snprintf(text, sizeof text, "mirrored, devices: [gpu:0, gpu:1%s], compare_every: 1, cross_device_ops: %s",
             gpus == 4 ? ", gpu:2, gpu:3" : "", ops);
    return text;
}

static void assert_nothing_left(void)
{
    const struct emu_counts counts = emu_counted();
    assert_int_equal(counts.live_allocations, 0);
    assert_int_equal(counts.live_streams, 0);
    assert_int_equal(counts.live_events, 0);
}

// ---- tests --------------------------------------------------------------------------------------------------------

static void assert_close(const float *a, const float *b)
{
    for (int i = 0; i < WEIGHTS; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5F))
            fail_msg("weight %d is %g, not %g", i, (double)a[i], (double)b[i]);
}

static void train_in_orders(uint32_t gpus, const char *ops)
{
    static struct training alone, first, t;
    const bool by_nccl = strcmp(ops, "reduction_to_one_device") != 0;
    train(&alone, "one_device", 0);
    must(alone.error.code, &alone.error);
    for (uint64_t seed = 1; seed <= seeds(); seed++) {
        emu_reset(&(struct emu_config){.seed = seed, .devices = (int)gpus});
        train(&t, devices_of(gpus, ops), gpus);
        must(t.error.code, &t.error);
        // Several buckets in each step.
        assert_int_equal(emu_counted().reaches, by_nccl ? 0 : 2 * (gpus - 1));  // to the first one, and back
        assert_true(by_nccl ? emu_counted().collectives >= (uint64_t)STEPS * 3 : emu_counted().collectives == 0);
        assert_nothing_left();
        if (seed == 1)
            first = t;
        for (uint32_t i = 0; i < gpus; i++)
            assert_memory_equal(first.replica[0].weights, t.replica[i].weights, sizeof t.replica[i].weights);
        assert_close(alone.replica[0].weights, t.replica[0].weights);
    }
}

static void two_gpus_train_as_one_device(void **state)
{
    (void)state;
    train_in_orders(2, "auto");
}

static void four_gpus_train_as_one_device(void **state)
{
    (void)state;
    train_in_orders(4, "nccl");
}

static void the_first_gpu_adds_up(void **state)
{
    (void)state;
    train_in_orders(2, "reduction_to_one_device");
    train_in_orders(4, "reduction_to_one_device");
}

// Their statistics, too, in the host's memory, whoever adds up the gradients.
static void batches_are_normalized_as_one(void **state)
{
    (void)state;
    network = synchronized;
    train_in_orders(2, "auto");
    network = plain;
}

// The same, of workers: here of one.
static void workers_say_how(void **state)
{
    static const struct {
        const char *strategy;
        bool by_nccl;
    } how[] = {
        {"multi_worker_mirrored, devices: [gpu:0, gpu:1], compare_every: 1", true},
        {"multi_worker_mirrored, devices: [gpu:0, gpu:1], compare_every: 1, communication: nccl", true},
        {"multi_worker_mirrored, devices: [gpu:0, gpu:1], compare_every: 1, communication: ring", false},
        {"multi_worker_mirrored, devices: [gpu:0, gpu:1], gradient_compression: bfloat16", false},
        {"multi_worker_mirrored, devices: [gpu:0, gpu:1], refuse_nonfinite: true", false},
    };
    static struct training alone, t;
    (void)state;
    train(&alone, "one_device", 0);
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        emu_reset(&(struct emu_config){.seed = i + 1, .devices = 2});
        train(&t, how[i].strategy, 2);
        must(t.error.code, &t.error);
        assert_int_equal(emu_counted().collectives > 0, how[i].by_nccl);
        assert_nothing_left();
        assert_close(alone.replica[0].weights, t.replica[0].weights);
    }
    emu_reset(&(struct emu_config){.seed = 1, .devices = 2});
    train(&t, "multi_worker_mirrored, devices: [gpu:0, gpu:1], refuse_nonfinite: true, communication: nccl", 2);
    assert_int_equal(PS_FAILED_PRECONDITION, t.error.code);
    assert_non_null(strstr(t.error.text, "strategy.communication is nccl, and worker 0 cannot: the host applies"));
}

// The same in the host's memory, where the job says so.
static void host_adds_up(void)
{
    static struct training alone, t;
    train(&alone, "one_device", 0);
    emu_reset(&(struct emu_config){.seed = 1, .devices = 2});
    train(&t, "mirrored, devices: [gpu:0, gpu:1], cross_device_ops: hierarchical_copy", 2);
    must(t.error.code, &t.error);
    assert_int_equal(emu_counted().collectives, 0);
    assert_close(alone.replica[0].weights, t.replica[0].weights);
}

static void the_host_adds_up(void **state)
{
    (void)state;
    host_adds_up();
    network = synchronized;
    host_adds_up();
    network = plain;
}

static void assert_fails(uint32_t gpus, struct emu_config fault, const char *says)
{
    static struct training t;
    fault.devices = (int)gpus;
    fault.patience = UINT64_MAX;
    emu_reset(&fault);
    train(&t, devices_of(gpus, "nccl"), gpus);
    assert_int_equal(PS_INTERNAL, t.error.code);
    if (strncmp(t.error.text, "replica ", 8) != 0 || !strstr(t.error.text, says))
        fail_msg("it does not say \"%s\": %s", says, t.error.text);
    assert_null(emu_error());
    assert_nothing_left();
}

static void an_all_reduce_that_breaks_is_named(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seeds(); seed++)
        assert_fails(seed % 2 ? 2 : 4, (struct emu_config){.seed = seed, .break_collective = 1 + seed * 7 % STEPS},
                     "an all-reduce has failed: NCCL: remote process exited");
}

// The others, who wait for it, end with it.
static void fail_in_orders(const char *ops)
{
    static struct training t;
    for (uint64_t seed = 1; seed <= seeds(); seed++) {
        emu_reset(&(struct emu_config){.seed = seed, .devices = 2, .fail_launch = 1 + seed * 13 % 120});
        train(&t, devices_of(2, ops), 2);
        assert_int_equal(PS_INTERNAL, t.error.code);
        if (!strstr(t.error.text, "gpu:") || !strstr(t.error.text, "cudaErrorLaunchFailure"))
            fail_msg("it names no GPU, or not what has failed: %s", t.error.text);
        assert_null(emu_error());
    }
}

static void a_gpu_that_fails_is_named(void **state)
{
    (void)state;
    fail_in_orders("nccl");
    fail_in_orders("reduction_to_one_device");
    network = synchronized;
    fail_in_orders("nccl");
    network = plain;
}

// Of those that wait on the host then, for NCCL's first all-reduce or to meet the others.
static void assert_ends_all(uint32_t gpus, struct emu_config fault, enum ps_code code, const char *says)
{
    static struct training t;
    fault.devices = (int)gpus;
    emu_reset(&fault);
    train(&t, devices_of(gpus, "nccl"), gpus);
    assert_int_equal(code, t.error.code);
    if (!strstr(t.error.text, says))
        fail_msg("it does not say \"%s\": %s", says, t.error.text);
    assert_null(emu_error());
    assert_nothing_left();
}

static void a_replica_that_fails_before_its_first_sum_ends_all(void **state)
{
    (void)state;
    network = embedding;
    for (uint64_t seed = 1; seed <= seeds(); seed++) {
        stranger = 1 + seed % 2;
        assert_ends_all(seed % 3 ? 2 : 4, (struct emu_config){.seed = seed}, PS_INVALID_ARGUMENT,
                        "has 7, which the model looks up: expected a whole number from 0 to 3");
    }
    stranger = 0;
    network = plain;
}

// NCCL's first all-reduce waits for it on the host.
static void a_slow_replica_is_awaited(void **state)
{
    static struct training t;
    (void)state;
    timeout = 3;
    for (slow = 1; slow <= 2; slow++) {
        emu_reset(&(struct emu_config){.seed = slow, .devices = 2, .patience = UINT64_MAX});
        train(&t, devices_of(2, "nccl"), 2);
        must(t.error.code, &t.error);
        assert_nothing_left();
    }
    slow = 0;
    timeout = 60;
}

static void a_gpu_that_cannot_join_ends_all(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seeds(); seed++)
        assert_ends_all(seed % 3 ? 2 : 4, (struct emu_config){.seed = seed, .fail_join = 1 + seed % 2}, PS_INTERNAL,
                        "to meet the other GPUs has failed: NCCL: unhandled system error");
}

static void a_gpu_without_memory_for_nccl_names_a_way_out(void **state)
{
    (void)state;
    assert_ends_all(2,
                    (struct emu_config){.seed = 1,
                                        .fail_join = 1,
                                        .join_says = "Failed to CUDA calloc 4194304 bytes: out of memory\nmore"},
                    PS_RESOURCE_EXHAUSTED,
                    "to meet the other GPUs has failed: NCCL: unhandled system error: Failed to CUDA calloc 4194304 "
                    "bytes: out of memory; expected a smaller batch, or strategy.cross_device_ops: hierarchical_copy");
}

// Each takes its timeout of a second.
static void a_rank_that_never_comes_is_named(void **state)
{
    char says[80];
    (void)state;
    timeout = 1;
    for (uint32_t rank = 0; rank < 4; rank++) {
        snprintf(says, sizeof says, "waits for 1 s in an all-reduce that has ended on replica %u (gpu:%u): expected",
                 rank, rank);
        assert_fails(rank < 2 ? 2 : 4,
                     (struct emu_config){.seed = rank + 1, .absent_rank = (int)rank + 1, .absent_from = 1 + 2 * rank},
                     says);
    }
    timeout = 60;
}

static void fill_examples(void)
{
    for (int i = 0; i < EXAMPLES * FEATURES; i++)
        x[i] = (float)(i * 7 % 11) / 11.0F - 0.5F;
    for (int i = 0; i < EXAMPLES; i++)
        label[i] = i * 5 % CLASSES;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_gpus_train_as_one_device),
        cmocka_unit_test(four_gpus_train_as_one_device),
        cmocka_unit_test(the_first_gpu_adds_up),
        cmocka_unit_test(batches_are_normalized_as_one),
        cmocka_unit_test(workers_say_how),
        cmocka_unit_test(the_host_adds_up),
        cmocka_unit_test(an_all_reduce_that_breaks_is_named),
        cmocka_unit_test(a_gpu_that_fails_is_named),
        cmocka_unit_test(a_replica_that_fails_before_its_first_sum_ends_all),
        cmocka_unit_test(a_slow_replica_is_awaited),
        cmocka_unit_test(a_gpu_that_cannot_join_ends_all),
        cmocka_unit_test(a_gpu_without_memory_for_nccl_names_a_way_out),
        cmocka_unit_test(a_rank_that_never_comes_is_named),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    ps_log_init("mirrored", PS_LOG_WARNING);
    fill_examples();
    alarm(1800 + seeds());  // who waits for ever is found, too: long, since a busy machine is slow
    return cmocka_run_group_tests(tests, NULL, NULL);
}
