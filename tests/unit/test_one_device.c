// SPDX-License-Identifier: Apache-2.0
//
// workerd/strategy: what one_device makes of gradients that are put into the replica by hand.
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
#include "workerd/strategy/strategy.h"

void *__real_ps_try_alloc_array(size_t n, size_t size);
void *__wrap_ps_try_alloc_array(size_t n, size_t size);

// Parameters 0 and 1, a kernel and a bias of one element, are not trained; 2 and 3 are.
static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 1]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"frozen\", \"units\": 1, \"trainable\": false}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"dense\", \"units\": 1}}]}}";

static const char constrained_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 1]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"frozen\", \"units\": 1, \"trainable\": false}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"dense\", \"units\": 1, \"bias_constraint\": \"non_neg\"}}]}}";

enum { N_PARAMS = 4 };

static const char *document = model_text;

struct training {
    struct nn_model *model;
    struct ps_job *job;
    struct wk_env env;
    void *state;
};

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

static size_t allocations_left = SIZE_MAX;  // of a training; the job file has what it needs
static bool reads_job;

void *__wrap_ps_try_alloc_array(size_t n, size_t size)
{
    return reads_job || (allocations_left && allocations_left--) ? __real_ps_try_alloc_array(n, size) : NULL;
}

static enum ps_code open_training(struct training *t, const char *optimizer, struct ps_error *error)
{
    static const struct ps_loss mse = PS_LOSS(.kind = PS_LOSS_MSE);
    struct ps_error e = {.code = PS_OK};
    char text[512];
    memset(t, 0, sizeof *t);
    snprintf(text, sizeof text,
             "model: m\ndata: {kind: synthetic-digits}\nloss: {name: mse}\noptimizer: {%s}\n"
             "strategy: {name: one_device}\n",
             optimizer);
    reads_job = true;
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &t->job, &e), &e);
    reads_job = false;
    must(nn_model_parse(document, "test", &t->model, &e), &e);
    must(nn_replica_create(t->model, "ref", 1, 1, 1, &mse, &t->env.replica, &e), &e);
    t->env.job = t->job;
    t->env.model = t->model;
    assert_int_equal(N_PARAMS, nn_model_params(t->model));
    return wk_one_device.open(&t->env, &t->state, error);
}

// Trains with this optimizer; all parameters are 8.
static void begin(struct training *t, const char *optimizer)
{
    struct ps_error e = {.code = PS_OK};
    must(open_training(t, optimizer, &e), &e);
    for (size_t i = 0; i < N_PARAMS; i++)
        nn_replica_param(t->env.replica, i)[0] = 8;
}

static void end(struct training *t)
{
    if (t->state)
        wk_one_device.close(t->state, NULL);
    nn_replica_free(t->env.replica);
    nn_model_free(t->model);
    ps_job_free(t->job);
}

// One step with these gradients of the trained parameters, after which those have these values and the others are as
// they were.
static void step(struct training *t, uint64_t number, float kernel, float bias, float kernel_after, float bias_after)
{
    struct ps_error e = {.code = PS_OK};
    const float g[N_PARAMS] = {100, 100, kernel, bias}, after[N_PARAMS] = {8, 8, kernel_after, bias_after};
    for (size_t i = 0; i < N_PARAMS; i++)
        nn_replica_grad(t->env.replica, i)[0] = g[i];
    must(wk_one_device.home->end(t->state, &(struct wk_work){.step = number, .rows = 1}, &e), &e);
    for (size_t i = 0; i < N_PARAMS; i++) {
        float w = nn_replica_param(t->env.replica, i)[0];
        if (w < after[i] || w > after[i])
            fail_msg("step %llu: parameter %zu is %.9g, not %.9g", (unsigned long long)number, i, (double)w,
                     (double)after[i]);
    }
}

static void follows_the_schedule(void **ctx)
{
    (void)ctx;
    struct training t;
    begin(&t, "name: sgd, learning_rate: {schedule: piecewise, boundaries: [0, 1], values: [1, 0.5, 0.25]}");
    step(&t, 0, 1, 2, 7, 6);
    step(&t, 1, 1, 2, 6.5F, 5);
    step(&t, 2, 1, 2, 6.25F, 4.5F);
    end(&t);
}

static void clips_each_by_its_norm(void **ctx)
{
    (void)ctx;
    struct training t;
    begin(&t, "name: sgd, learning_rate: 1, clipnorm: 2");
    step(&t, 0, 4, -1, 6, 9);
    end(&t);
}

// The norm of 3 and 4 is 5; what is not trained has no part in it.
static void clips_all_by_theirs(void **ctx)
{
    (void)ctx;
    struct training t;
    begin(&t, "name: sgd, learning_rate: 1, global_clipnorm: 2.5");
    step(&t, 0, 3, 4, 6.5F, 6);
    step(&t, 1, 0.5F, 1, 6, 5);
    end(&t);
}

static void clips_by_value_and_decays(void **ctx)
{
    (void)ctx;
    struct training t;
    begin(&t, "name: sgd, learning_rate: 0.5, clipvalue: 1, weight_decay: 0.25");
    step(&t, 0, 4, -0.5F, 8 - 1 - 0.5F, 8 - 1 + 0.25F);
    end(&t);
}

// w -= rate * g / sqrt(start + g^2), epsilon being far too small to count.
static void slots_start_where_the_rule_says(void **ctx)
{
    (void)ctx;
    struct training t;
    begin(&t, "name: adagrad, learning_rate: 1, initial_accumulator_value: 16, epsilon: 1e-20");
    step(&t, 0, 3, -3, 8 - 3 / 5.0F, 8 + 3 / 5.0F);
    end(&t);
}

// The mean of three moves the weights once; then it begins anew.
static void accumulates(void **ctx)
{
    (void)ctx;
    struct training t;
    begin(&t, "name: sgd, lr: 0.5, gradient_accumulation_steps: 3");
    step(&t, 0, 1, 2, 8, 8);
    step(&t, 1, 4, 5, 8, 8);
    step(&t, 2, 1, -1, 7, 7);
    step(&t, 3, 1, 2, 7, 7);
    end(&t);
}

// What is clipped is the mean: (3, 4), whose norms are 3, 4 and 5.
static void clips_what_is_accumulated(void **ctx)
{
    (void)ctx;
    static const char *const how[] = {"clipnorm: 2", "global_clipnorm: 2.5"};
    static const float kernel[] = {6, 6.5F}, bias[] = {6, 6};
    for (int i = 0; i < 2; i++) {
        struct training t;
        char optimizer[128];
        snprintf(optimizer, sizeof optimizer, "name: sgd, lr: 1, gradient_accumulation_steps: 2, %s", how[i]);
        begin(&t, optimizer);
        step(&t, 0, 7, -1, 8, 8);
        step(&t, 1, -1, 9, kernel[i], bias[i]);
        step(&t, 2, 0.5F, 0.5F, kernel[i], bias[i]);
        end(&t);
    }
}

static struct wk_work next_batch(struct training *t)
{
    struct wk_work work;
    struct ps_error e;
    t->env.examples = 1000;
    assert_int_equal(WK_BATCH, wk_one_device.sharder->next(t->state, 0, false, &work, &e));
    return work;
}

// While it trains the weights are themselves; when it ends they are their average.
static void ends_with_the_average(void **ctx)
{
    (void)ctx;
    struct training t;
    struct wk_history history = {0};
    struct ps_error e = {.code = PS_OK};
    begin(&t, "name: sgd, lr: 1, use_ema: true, ema_momentum: 0.5");
    must(wk_one_device.group->finish(t.state, &history, &e), &e);  // of no step there is none
    assert_false(history.averaged);
    step(&t, next_batch(&t).step, 1, 2, 7, 6);
    step(&t, next_batch(&t).step, 1, 2, 6, 4);
    must(wk_one_device.group->finish(t.state, &history, &e), &e);
    assert_true(history.averaged);
    static const float average[N_PARAMS] = {8, 8, 6.5F, 5};
    for (size_t i = 0; i < N_PARAMS; i++)
        assert_memory_equal(nn_replica_param(t.env.replica, i), &average[i], sizeof *average);
    end(&t);
}

// A gradient with a NaN or an infinity is an error, and changes nothing, where the job says so.
static void refuses_what_is_not_finite(void **ctx)
{
    (void)ctx;
    struct training t;
    struct ps_error e = {.code = PS_OK};
    begin(&t, "name: sgd, learning_rate: 1");
    t.job->refuse_nonfinite = true;
    step(&t, 0, 1, 2, 7, 6);
    for (size_t i = 0; i < N_PARAMS; i++)  // of what is frozen nobody looks at it
        nn_replica_grad(t.env.replica, i)[0] = i == 2 ? 1 : NAN;
    assert_int_equal(wk_one_device.home->end(t.state, &(struct wk_work){.step = 1, .rows = 1}, &e),
                     PS_INVALID_ARGUMENT);
    assert_string_equal(e.text, "variable 'net/dense/bias': the gradient's element 0 is not finite");
    step(&t, 1, 1, 2, 6, 4);
    end(&t);
}

// The bias, which may not be negative, would be -2 after the rule.
static void constrains_after_the_rule(void **ctx)
{
    (void)ctx;
    struct training t;
    document = constrained_text;
    begin(&t, "name: sgd, learning_rate: 1");
    step(&t, 0, 10, 10, -2, 0);
    end(&t);
    document = model_text;
}

// Want of memory is said in a sentence, and leaves nothing behind.
static void no_memory_for_slots(void **ctx)
{
    (void)ctx;
    for (size_t n = 0; n < 4; n++) {
        struct training t;
        struct ps_error e = {.code = PS_OK};
        allocations_left = n;
        assert_int_equal(open_training(&t, "name: adam", &e), PS_RESOURCE_EXHAUSTED);
        allocations_left = SIZE_MAX;
        assert_string_equal(e.text, n < 2 ? "no memory for a slot of 'net/dense/kernel', which takes 4 bytes"
                                          : "no memory for a slot of 'net/dense/bias', which takes 4 bytes");
        end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_schedule),
        cmocka_unit_test(clips_each_by_its_norm),
        cmocka_unit_test(clips_all_by_theirs),
        cmocka_unit_test(clips_by_value_and_decays),
        cmocka_unit_test(slots_start_where_the_rule_says),
        cmocka_unit_test(accumulates),
        cmocka_unit_test(clips_what_is_accumulated),
        cmocka_unit_test(ends_with_the_average),
        cmocka_unit_test(refuses_what_is_not_finite),
        cmocka_unit_test(constrains_after_the_rule),
        cmocka_unit_test(no_memory_for_slots),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
