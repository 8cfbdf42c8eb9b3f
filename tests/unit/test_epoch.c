// SPDX-License-Identifier: Apache-2.0
//
// workerd/job/epoch.c: workers, each a thread of the test, at the end of an epoch. What they add up goes through the
// test's table, in which some die and one comes late.
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
#include "workerd/job/callback.h"
#include "workerd/job/epoch.h"
#include "workerd/job/evaluate.h"

static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 28, 28]}},"
    "{\"class_name\": \"Flatten\", \"config\": {\"name\": \"flatten\"}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"dense\", \"units\": 10}}]}}";

enum { WORKERS = 3, BATCH = 16, NEVER = 100 };

struct worker {
    struct wk_run run;
    struct wk_epoch end;
    struct wk_meter meter;
    struct ps_error error;
    int dies_at;   // it is dead before this sum of all
    int comes_at;  // it takes part from this sum of all on
    int tells;     // how often it has said the rate
    bool decides;  // and does not only look
    double rate;   // that a callback has set,
    bool is_set;   // if one has
    volatile sig_atomic_t stop;
};

// All of it under the lock.
static struct table {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int sums;  // that are done
    bool in[WORKERS], dead[WORKERS], out[WORKERS];
    double *brought[WORKERS];
    uint64_t n;
    struct worker worker[WORKERS];
} table;

static struct nn_model *model;
static struct ps_job *job;

static bool table_awaits(int rank)
{
    return !table.dead[rank] && !table.out[rank] && table.worker[rank].comes_at <= table.sums;
}

static void table_complete_if_all_are_in(void)
{
    int in = 0;
    for (int r = 0; r < WORKERS; r++) {
        if (table_awaits(r) && !table.in[r])
            return;
        in += table.in[r];
    }
    if (!in)
        return;
    double *sum = ps_alloc(table.n * sizeof *sum);
    for (int r = 0; r < WORKERS; r++)
        for (uint64_t i = 0; table.in[r] && i < table.n; i++)
            sum[i] += table.brought[r][i];
    for (int r = 0; r < WORKERS; r++)
        if (table.in[r])
            memcpy(table.brought[r], sum, table.n * sizeof *sum);
    free(sum);
    memset(table.in, 0, sizeof table.in);
    table.sums++;
    pthread_cond_broadcast(&table.changed);
}

static enum ps_code table_sum(void *state, double *values, uint64_t n, struct ps_error *e)
{
    struct worker *w = state;
    const int rank = (int)w->run.env.replica_rank;
    enum ps_code code = PS_OK;
    pthread_mutex_lock(&table.lock);
    const int now = table.sums;
    if (now == w->dies_at) {
        table.dead[rank] = true;
        code = ps_fail(e, PS_ABORTED, "it is dead");
    } else {
        table.in[rank] = true;
        table.brought[rank] = values;
        table.n = n;
    }
    table_complete_if_all_are_in();
    while (code == PS_OK && table.sums == now)
        pthread_cond_wait(&table.changed, &table.lock);
    pthread_mutex_unlock(&table.lock);
    return code;
}

static enum ps_code table_refresh(void *state, struct ps_error *e)
{
    (void)state, (void)e;
    return PS_OK;
}

static enum ps_code table_tell_rate(void *state, struct ps_error *e)
{
    struct worker *w = state;
    (void)e;
    w->tells++;
    return PS_OK;
}

static double table_rate(void *state)
{
    const struct worker *w = state;
    return w->rate;
}

static bool table_follows_schedule(const void *state)
{
    const struct worker *w = state;
    return !w->is_set;
}

static void table_take_rate(void *state, bool is_set, double rate)
{
    struct worker *w = state;
    w->is_set = is_set;
    w->rate = rate;
}

static const struct wk_home home = {.refresh = table_refresh,
                                    .rate = table_rate,
                                    .follows_schedule = table_follows_schedule,
                                    .take_rate = table_take_rate,
                                    .tell_rate = table_tell_rate};
static const struct wk_group group = {.sum = table_sum};
static const struct wk_strategy strategy = {.home = &home, .group = &group};

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

static void open_worker(struct worker *w, uint32_t rank)
{
    static const struct ps_loss loss = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT, .from_logits = true);
    struct ps_error e = {.code = PS_OK};
    const struct nn_metric accuracy = {job->metrics.of[0].metric, 0};
    *w = (struct worker){.dies_at = NEVER, .decides = true, .end = {.epoch = 4}};
    must(nn_replica_create(model, "ref", BATCH, 1, 1, &loss, &w->run.env.replica, &e), &e);
    must(nn_replica_measure(w->run.env.replica, &accuracy, 1, &e), &e);
    must(wk_data_open(&job->data, model, 0, &w->run.data, &e), &e);
    must(wk_data_bind(w->run.data, model, &loss, &e), &e);
    for (size_t i = 0; i < nn_model_params(model); i++)
        nn_model_init_param(model, i, 1, nn_replica_param(w->run.env.replica, i));
    w->run.env.job = job;
    w->run.env.model = model;
    w->run.env.replica_rank = rank;
    w->run.env.replicas = WORKERS;
    w->run.env.stop = &w->stop;
    w->run.strategy = &strategy;
    w->run.state = w;
    // 10, 20, 30 examples, whose loss is 1, 2, 3 on the average.
    wk_meter_open(&w->meter, nn_replica_measures(w->run.env.replica));
    w->meter.sum[0] = 10 * (rank + 1);
    w->meter.sum[1] = w->meter.sum[0] * (rank + 1);
    w->end.meter = &w->meter;
}

static int begin(void **state)
{
    (void)state;
    static const char text[] = "model: m\ndata: {kind: synthetic-digits, train_examples: 16, test_examples: 100}\n"
                               "loss: {name: sparse_categorical_crossentropy}\nmetrics: [accuracy]\n"
                               "optimizer: {name: sgd}\nbatch_size: 16\nepochs: 9\ncallbacks:\n"
                               "- {name: early_stopping, monitor: loss, patience: 5, restore_best_weights: true}\n"
                               "- {name: reduce_lr_on_plateau, monitor: loss, patience: 5}\n"
                               "- {name: checkpoint, path: /tmp/c, monitor: loss, save_best_only: true}\n";
    struct ps_error e = {.code = PS_OK};
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &job, &e), &e);
    must(nn_model_parse(model_text, "test", &model, &e), &e);
    memset(&table, 0, sizeof table);
    pthread_mutex_init(&table.lock, NULL);
    pthread_cond_init(&table.changed, NULL);
    for (uint32_t r = 0; r < WORKERS; r++)
        open_worker(&table.worker[r], r);
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (int r = 0; r < WORKERS; r++) {
        struct worker *w = &table.worker[r];
        wk_epoch_free(&w->end);
        wk_meter_reset(&w->meter);
        wk_figures_free(&w->run.figures);
        json_decref(w->run.matrices);
        wk_data_free(w->run.data);
        nn_replica_free(w->run.env.replica);
    }
    nn_model_free(model);
    ps_job_free(job);
    return 0;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    pthread_mutex_lock(&table.lock);
    while (table.sums < w->comes_at)
        pthread_cond_wait(&table.changed, &table.lock);
    pthread_mutex_unlock(&table.lock);
    if (wk_epoch_look(&w->run, &w->end, &w->error) == PS_OK && w->decides)
        wk_epoch_decide(&w->run, &w->end, &w->error);
    pthread_mutex_lock(&table.lock);
    table.out[w->run.env.replica_rank] = true;
    table_complete_if_all_are_in();
    pthread_mutex_unlock(&table.lock);
    return NULL;
}

static void meet(void)
{
    pthread_t thread[WORKERS];
    for (int r = 0; r < WORKERS; r++)
        pthread_create(&thread[r], NULL, work, &table.worker[r]);
    for (int r = 0; r < WORKERS; r++)
        pthread_join(thread[r], NULL);
}

static double figure(int rank, const char *name)
{
    const double *value = wk_figures_find(&table.worker[rank].run.figures, name);
    return value ? *value : NAN;
}

static void is_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

// What one worker finds who evaluates all of it.
static double loss_of_all(void)
{
    struct worker alone;
    struct ps_error e = {.code = PS_OK};
    open_worker(&alone, 0);
    must(wk_evaluate(&alone.run, &e), &e);
    const double loss = *wk_figures_find(&alone.run.figures, "val_loss");
    wk_meter_reset(&alone.meter);
    wk_figures_free(&alone.run.figures);
    json_decref(alone.run.matrices);
    wk_data_free(alone.run.data);
    nn_replica_free(alone.run.env.replica);
    return loss;
}

// ---- tests ----------------------------------------------------------------------------------------------------------

static void figures_are_everybodys(void **state)
{
    (void)state;
    const double loss = loss_of_all();
    meet();
    assert_int_equal(table.sums, 2);
    for (int r = 0; r < WORKERS; r++) {
        must(table.worker[r].error.code, &table.worker[r].error);
        is_near(figure(r, "loss"), (10 + 40 + 90) / 60.);
        is_near(figure(r, "val_loss"), loss);
        assert_true(table.worker[r].run.evaluated);
        assert_int_equal(table.worker[r].end.leader, 0);
        assert_false(table.worker[r].end.final);
    }
}

// It evaluates a share, and others all of it when its share does not come.
static void who_dies_is_not_waited_for(void **state)
{
    (void)state;
    const double loss = loss_of_all();
    table.worker[0].dies_at = 1;
    meet();
    assert_int_equal(table.sums, 3);
    for (int r = 1; r < WORKERS; r++) {
        must(table.worker[r].error.code, &table.worker[r].error);
        is_near(figure(r, "loss"), (10 + 40 + 90) / 60.);
        is_near(figure(r, "val_loss"), loss);
        assert_int_equal(table.worker[r].end.leader, 1);
    }
}

// Nobody knows whether it has done so.
static void another_tells_the_rate(void **state)
{
    (void)state;
    table.worker[0].dies_at = 2;
    table.worker[2].end.steers = true;
    meet();
    assert_int_equal(table.worker[0].tells, 1);
    assert_int_equal(table.worker[1].tells, 1);
    assert_int_equal(table.worker[2].tells, 0);
    assert_int_equal(table.sums, 4);
}

// One that has come late has reduced its own; 0 is a rate, too.
static void all_go_on_at_the_leaders_rate(void **state)
{
    static const double set[] = {0.5, 0};
    for (int is_set = 0; is_set <= 1; is_set++)
        for (size_t k = 0; k < sizeof set / sizeof *set; k++) {
            for (int r = 0; r < WORKERS; r++) {
                table.worker[r].end.steers = true;
                table_take_rate(&table.worker[r], is_set, set[k]);
            }
            table_take_rate(&table.worker[2], true, 0.25);
            meet();
            for (int r = 0; r < WORKERS; r++) {
                assert_int_equal(table.worker[r].is_set, is_set);
                assert_true(!is_set || table.worker[r].rate == set[k]);
            }
            end(state);
            begin(state);
        }
}

// Who has come late has seen fewer epochs: its callbacks end the training once it leads, and not before.
static void the_leader_ends_the_training(void **state)
{
    for (int r = 0; r < WORKERS; r++)
        table.worker[r].end.steers = true;
    table.worker[1].end.stop_if_leads = true;
    meet();
    for (int r = 0; r < WORKERS; r++)
        assert_false(table.worker[r].end.stop);
    end(state);
    begin(state);
    for (int r = 0; r < WORKERS; r++)
        table.worker[r].end.steers = true;
    table.worker[0].dies_at = 2;
    table.worker[1].end.stop_if_leads = true;
    meet();
    for (int r = 1; r < WORKERS; r++)
        assert_true(table.worker[r].end.stop);
}

// Whatever the others are at, it goes on with them.
static void who_comes_late_follows(void **state)
{
    for (int at = 1; at <= 2; at++) {
        if (at == 2) {
            end(state);
            begin(state);
        }
        struct worker *late = &table.worker[0];
        const double loss = loss_of_all();
        late->comes_at = at;
        late->end.meter = NULL;
        late->end.epoch = 3;
        table.worker[1].end.steers = true;
        meet();
        must(late->error.code, &late->error);
        assert_int_equal(table.sums, 3);
        assert_true(late->end.follows);
        assert_int_equal(late->end.epoch, 4);
        assert_int_equal(late->tells, 0);
        assert_int_equal(table.worker[1].tells, 1);
        is_near(figure(1, "loss"), (40 + 90) / 50.);
        is_near(figure(1, "val_loss"), loss);
    }
}

static void who_is_done_waits_for_the_others(void **state)
{
    for (int done = 1; done <= WORKERS; done++) {
        for (int r = 0; r < done; r++)
            table.worker[r].end.finished = true;
        meet();
        for (int r = 0; r < WORKERS; r++)
            assert_int_equal(table.worker[r].end.final, done == WORKERS);
        end(state);
        begin(state);
    }
    table.worker[1].end.stop = true;
    meet();
    for (int r = 0; r < WORKERS; r++)
        assert_true(table.worker[r].end.stop && table.worker[r].end.final);
}

static void hear_epoch(struct worker *w, uint64_t epoch, double loss)
{
    struct wk_moment m = {.run = &w->run, .epoch = epoch};
    w->run.figures.n = 0;
    wk_figures_add(&w->run.figures, "", "loss", loss);
    must(wk_callbacks_call(w->run.callbacks, WK_EPOCH_ENDS, &m, &w->error), &w->error);
}

static struct wk_checkpoint states_of(const struct worker *w)
{
    struct wk_checkpoint c = {.json = json_object(), .path = "none"};
    wk_callbacks_save(w->run.callbacks, &c);
    return c;
}

// It has heard the last of four epochs alone, which was the best one that it knows. Of weights that it has not kept it
// says nothing.
static void who_comes_late_learns_what_the_leader_has_found(void **state)
{
    static const double loss[] = {3, 1, 2.5, 2};
    (void)state;
    for (int r = 0; r < WORKERS; r++) {
        struct worker *w = &table.worker[r];
        must(wk_callbacks_open(&w->run, &w->run.callbacks, &w->error), &w->error);
        for (uint64_t epoch = r < 2 ? 0 : 3; epoch < 4; epoch++)
            hear_epoch(w, epoch, loss[epoch]);
        w->end.steers = wk_callbacks_tell(w->run.callbacks, w->end.found);
        assert_true(w->end.steers);
    }
    meet();
    for (int r = 0; r < WORKERS; r++) {
        struct worker *w = &table.worker[r];
        wk_callbacks_take(w->run.callbacks, w->end.found);
        w->end.found[0] += 2;  // the callbacks of another job file: a best of 0
        w->end.found[1] = 0;
        wk_callbacks_take(w->run.callbacks, w->end.found);
        struct wk_checkpoint c = states_of(w);
        const json_t *all = json_object_get(c.json, "callbacks"), *stops = json_object_get(all, "early_stopping");
        const json_t *reduces = json_object_get(all, "reduce_lr_on_plateau"),
                     *keeps = json_object_get(all, "checkpoint");
        assert_true(json_number_value(json_object_get(stops, "best")) == 1);
        assert_int_equal(json_integer_value(json_object_get(stops, "best_epoch")), 1);
        assert_int_equal(json_integer_value(json_object_get(stops, "wait")), 2);
        assert_int_equal(json_is_true(json_object_get(stops, "weights")), r < 2);
        assert_true(json_number_value(json_object_get(reduces, "best")) == 1);
        assert_int_equal(json_integer_value(json_object_get(reduces, "wait")), 2);
        assert_true(json_number_value(json_object_get(keeps, "best")) == 1);
        wk_checkpoint_free(&c);
        wk_callbacks_close(w->run.callbacks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(figures_are_everybodys, begin, end),
        cmocka_unit_test_setup_teardown(who_dies_is_not_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(another_tells_the_rate, begin, end),
        cmocka_unit_test_setup_teardown(all_go_on_at_the_leaders_rate, begin, end),
        cmocka_unit_test_setup_teardown(the_leader_ends_the_training, begin, end),
        cmocka_unit_test_setup_teardown(who_comes_late_follows, begin, end),
        cmocka_unit_test_setup_teardown(who_comes_late_learns_what_the_leader_has_found, begin, end),
        cmocka_unit_test_setup_teardown(who_is_done_waits_for_the_others, begin, end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
