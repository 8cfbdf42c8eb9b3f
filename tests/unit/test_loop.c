// SPDX-License-Identifier: Apache-2.0
//
// workerd/job/loop.c with a strategy of the test: what it times, whom it shows to, when it stops. Time is made up, too.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "tests/unit/hearing.h"
#include "workerd/job/loop.h"
#include "workerd/job/metrics.h"
#include "workerd/nn/measure.h"

uint64_t __wrap_ps_now(void);

static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 28, 28]}},"
    "{\"class_name\": \"Flatten\", \"config\": {\"name\": \"flatten\"}},"
    "{\"class_name\": \"Dropout\", \"config\": {\"name\": \"dropout\", \"rate\": 0.5}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"dense\", \"units\": 10}}]}}";

// Where in what is added up the count of evaluated examples is, and the stage of the first worker.
enum { EPOCH_EVALUATED = 4, EPOCH_HEAD = 7, EPOCH_VALIDATION = 2, EPOCH_STAGES = 4 };

enum { EPOCHS = 3, BATCH = 16, BATCHES = 4, TEST_EXAMPLES = 100 };

// The strategy, and what it has been asked for.
struct world {
    const char *lines;           // of the job file besides; may be NULL
    uint64_t now;                // ns
    uint64_t wait, train, look;  // how long next, end and refresh take
    uint64_t taken;              // batches of the epoch
    uint64_t epochs_begun;
    uint64_t others;              // epochs that are over when this worker comes; 0: it was there from the beginning
    bool asked;                   // before that it does not know
    struct ps_progress progress;  // the last report
    int progress_reports;
    int refreshed, stop_at;  // a signal comes in the n-th refresh; 0: never
    double rate, loss;       // of the last report
    int reports;
    uint64_t empty;              // of an epoch's batches, the last ones
    struct wk_metrics *metrics;  // NULL: none
    volatile sig_atomic_t stop;
    uint64_t seed;
    bool in_order;  // examples are not shuffled
    bool quiet;
    int sums, dies_at;  // another worker, the leader, is dead before the n-th sum; 0: there is none
};

static struct world world;

uint64_t __wrap_ps_now(void)
{
    return world.now;
}

static uint64_t fake_first_epoch(void *state, bool *late)
{
    const struct world *w = state;
    *late = w->others > 0;
    return w->asked ? w->others : 0;
}

static uint64_t fake_seed(void *state)
{
    struct world *w = state;
    return w->seed;
}

static enum wk_next fake_next(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e)
{
    struct world *w = state;
    (void)e;
    w->epochs_begun = epoch + 1;
    w->asked = true;
    if (epoch < w->others)
        return idle ? WK_EPOCH_END : WK_LATER;
    if (w->taken == BATCHES && !idle)
        return WK_LATER;
    w->now += w->wait;
    if (w->taken == BATCHES) {
        w->taken = 0;
        return WK_EPOCH_END;
    }
    *work = (struct wk_work){epoch, w->taken * BATCH, epoch * BATCHES + w->taken,
                             w->taken < BATCHES - w->empty ? BATCH : 0};
    w->taken++;
    return WK_BATCH;
}

static enum ps_code fake_begin(void *state, const struct wk_work *work, struct ps_error *e)
{
    (void)state, (void)work, (void)e;
    return PS_OK;
}

static enum ps_code fake_end(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct world *w = state;
    (void)work, (void)e;
    w->now += w->train;
    return PS_OK;
}

static enum ps_code fake_refresh(void *state, struct ps_error *e)
{
    struct world *w = state;
    (void)e;
    w->now += w->look;
    if (++w->refreshed == w->stop_at)
        w->stop = SIGTERM;
    return PS_OK;
}

// The other one is at the same stage, and evaluates what this one does not (epoch.c).
static enum ps_code fake_sum(void *state, double *values, uint64_t n, struct ps_error *e)
{
    struct world *w = state;
    (void)n, (void)e;
    if (++w->sums >= w->dies_at)
        return PS_OK;
    values[EPOCH_HEAD] = values[EPOCH_HEAD + 1];
    if ((int)values[EPOCH_HEAD] % EPOCH_STAGES == EPOCH_VALIDATION)
        values[EPOCH_EVALUATED] = TEST_EXAMPLES;
    return PS_OK;
}

static enum ps_code fake_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    (void)state, (void)history, (void)e;
    return PS_OK;
}

static enum ps_code fake_elect(void *state, bool written, enum wk_writer *writer, struct ps_error *e)
{
    (void)state, (void)e;
    *writer = written ? WK_NOBODY : WK_SELF;
    return PS_OK;
}

static bool fake_is_chief(void *state)
{
    (void)state;
    return true;
}

static void fake_report(void *state, uint64_t step, double examples_per_second, double loss)
{
    struct world *w = state;
    (void)step;
    w->rate = examples_per_second;
    w->loss = loss;
    w->reports++;
}

static void fake_report_progress(void *state, const struct ps_progress *progress)
{
    struct world *w = state;
    w->progress = *progress;
    w->progress_reports++;
}

static const struct wk_sharder sharder = {.first_epoch = fake_first_epoch, .seed = fake_seed, .next = fake_next};
static const struct wk_home home = {.begin = fake_begin, .end = fake_end, .refresh = fake_refresh};
static const struct wk_group group = {
    .sum = fake_sum,
    .finish = fake_finish,
    .elect = fake_elect,
    .is_chief = fake_is_chief,
    .report = fake_report,
    .report_progress = fake_report_progress,
};
static const struct wk_strategy fake = {.sharder = &sharder, .home = &home, .group = &group};

// ---- a run ----------------------------------------------------------------------------------------------------------

struct training {
    struct wk_run run;
    struct nn_model *model;
    struct ps_job *job;
    char output[32];
    struct ps_error error;
};

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

// Runs the whole job, with what the test has set in the world.
static enum ps_code train(struct training *t)
{
    static const struct ps_loss loss = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT, .from_logits = true);
    struct ps_error e = {.code = PS_OK};
    char text[512];
    memset(t, 0, sizeof *t);
    strcpy(t->output, "/tmp/test_loop.XXXXXX");
    close(mkstemp(t->output));
    snprintf(text, sizeof text,
             "model: m\ndata: {kind: synthetic-digits}\nloss: {name: sparse_categorical_crossentropy}\n"
             "metrics: [accuracy]\n"
             "optimizer: {name: sgd}\nbatch_size: %d\nepochs: %d\noutput: %s\n%s",
             BATCH, EPOCHS, t->output, world.lines ? world.lines : "");
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &t->job, &e), &e);
    must(nn_model_parse(model_text, "test", &t->model, &e), &e);
    must(nn_replica_create(t->model, "ref", BATCH, 1, 1, &loss, &t->run.env.replica, &e), &e);
    const struct nn_metric accuracy = {t->job->metrics.of[0].metric, 0};
    must(nn_replica_measure(t->run.env.replica, &accuracy, 1, &e), &e);
    t->job->data.train_examples = BATCH * BATCHES;
    t->job->data.test_examples = TEST_EXAMPLES;
    must(wk_data_open(&t->job->data, t->model, 0, &t->run.data, &e), &e);
    must(wk_data_bind(t->run.data, t->model, &loss, &e), &e);
    for (size_t i = 0; i < nn_model_params(t->model); i++)
        nn_model_init_param(t->model, i, 1, nn_replica_param(t->run.env.replica, i));
    t->job->shuffle = !world.in_order;
    t->run.env.job = t->job;
    t->run.env.model = t->model;
    t->run.env.examples = BATCH * BATCHES;
    t->run.env.stop = &world.stop;
    t->run.env.replicas = world.dies_at ? 2 : 1;
    t->run.env.replica_rank = world.dies_at ? 1 : 0;
    t->run.strategy = &fake;
    t->run.quiet = world.quiet;
    t->run.state = &world;
    t->run.started = world.now;
    t->run.metrics = world.metrics;
    return wk_loop(&t->run, &t->error);
}

static void end(struct training *t)
{
    unlink(t->output);
    wk_run_free(&t->run);
    wk_data_free(t->run.data);
    nn_replica_free(t->run.env.replica);
    nn_model_free(t->model);
    ps_job_free(t->job);
}

static int begin_world(void **state)
{
    (void)state;
    world = (struct world){.now = PS_SECOND};
    return 0;
}

// ---- tests ----------------------------------------------------------------------------------------------------------

// What a worker waits for between steps is time of its training; evaluations are not.
static void times_whole_epochs(void **state)
{
    struct training t;
    (void)state;
    world.wait = PS_SECOND;
    world.train = 2 * PS_SECOND;
    world.look = 1000 * PS_SECOND;
    must(train(&t), &t.error);
    double seconds = EPOCHS * (BATCHES * 3 + 1);
    assert_true(t.run.train_seconds > seconds - 1e-6 && t.run.train_seconds < seconds + 1e-6);
    assert_true(world.rate > 0);
    assert_int_equal(world.refreshed, EPOCHS);
    end(&t);
}

// The wait for the end of an epoch, too.
static void its_metrics_have_all_the_time(void **state)
{
    struct training t;
    struct wk_metrics metrics;
    (void)state;
    world.wait = PS_SECOND;
    world.train = 2 * PS_SECOND;
    world.look = 1000 * PS_SECOND;
    world.metrics = &metrics;
    wk_metrics_init(&metrics);
    must(train(&t), &t.error);
    assert_int_equal(metrics.trained_ns, EPOCHS * (BATCHES * 3 + 1) * PS_SECOND);
    assert_int_equal(metrics.examples, EPOCHS * BATCHES * BATCH);
    wk_metrics_fini(&metrics);
    end(&t);
}

// Where the examples are no multiple of what all workers take in a step, some get none in the last one.
static void an_empty_batch_has_no_loss(void **state)
{
    struct training t;
    (void)state;
    world.empty = 1;
    must(train(&t), &t.error);
    const uint64_t last = EPOCHS * BATCHES - 1;
    assert_int_equal(world.reports, EPOCHS * BATCHES);
    assert_true(t.run.history.examples[last] == 0 && t.run.history.examples[last - 1] == BATCH);
    assert_true(world.loss > 0 && world.loss == t.run.history.loss[last - 1] / BATCH);
    end(&t);
    begin_world(state);
    world.empty = BATCHES;
    must(train(&t), &t.error);
    assert_int_equal(world.reports, 0);
    end(&t);
}

// What is shown makes no difference to what is done.
static void evaluates_quietly(void **state)
{
    struct training t;
    (void)state;
    world.quiet = true;
    must(train(&t), &t.error);
    assert_int_equal(world.refreshed, EPOCHS);
    end(&t);
}

// Keras's names, in its order.
static void names_its_figures(void **state)
{
    static const char *const names[] = {"accuracy", "loss", "val_accuracy", "val_loss"};
    struct training t;
    (void)state;
    must(train(&t), &t.error);
    assert_int_equal(t.run.figures.n, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(t.run.figures.v[i].name, names[i]);
    assert_true(t.run.figures.v[1].value > 0 && t.run.figures.v[3].value > 0);
    assert_null(wk_figures_find(&t.run.figures, "auc"));
    end(&t);
}

// At the begin, and at the end of each epoch with its figures.
static void says_how_far_it_is(void **state)
{
    const struct ps_progress *p = &world.progress;
    struct training t;
    (void)state;
    must(train(&t), &t.error);
    assert_int_equal(world.progress_reports, EPOCHS + 1);
    assert_true(p->epochs == EPOCHS && p->ended == EPOCHS && p->n == 4);
    assert_string_equal(p->metric[2].name, "val_accuracy");
    assert_true(p->metric[3].value == t.run.figures.v[3].value && p->metric[3].value > 0);
    end(&t);
    begin_world(state);
    world.stop_at = 1;
    assert_int_equal(train(&t), PS_CANCELLED);
    assert_true(p->epochs == EPOCHS && p->ended == 0 && p->n == 0);
    end(&t);
}

// In the training loss, not in that of an evaluation.
static void classes_have_weights(void **state)
{
    double loss[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct training t;
        begin_world(state);
        world.lines = i ? "class_weight: {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2, 9: 2}\n" : NULL;
        must(train(&t), &t.error);
        loss[i] = t.run.history.loss[0];
        end(&t);
    }
    assert_true(loss[1] > 2 * loss[0] * (1 - 1e-6) && loss[1] < 2 * loss[0] * (1 + 1e-6));
}

// Who comes late to a job that goes on in the last epoch trains that with the others, and ends none before it.
static void goes_where_the_others_are(void **state)
{
    struct training t;
    (void)state;
    world.others = EPOCHS - 1;
    must(train(&t), &t.error);
    assert_int_equal(world.refreshed, 1);
    assert_int_equal(t.run.history.total_examples, BATCH * BATCHES);
    assert_int_equal(t.run.position.epoch, EPOCHS);
    end(&t);
}

// A signal in an evaluation ends it.
static void stops_in_an_evaluation(void **state)
{
    (void)state;
    for (int k = 1; k <= EPOCHS; k++) {
        struct training t;
        begin_world(state);
        world.stop_at = k;
        assert_int_equal(train(&t), PS_CANCELLED);
        assert_non_null(strstr(t.error.text, "stopped by SIGTERM"));
        assert_int_equal(world.epochs_begun, k);
        assert_null(wk_figures_find(&t.run.figures, "val_loss"));  // not known
        end(&t);
    }
}

// The order of examples and what dropout drops are drawn from the strategy's seed.
static void draws_from_the_strategys_seed(void **state)
{
    (void)state;
    for (int in_order = 0; in_order < 2; in_order++) {
        double loss[3];
        for (int i = 0; i < 3; i++) {
            struct training t;
            begin_world(state);
            world.seed = i < 2 ? 7 : 8;
            world.in_order = in_order;
            must(train(&t), &t.error);
            loss[i] = t.run.history.loss[0];
            end(&t);
        }
        assert_true(memcmp(&loss[0], &loss[1], sizeof *loss) == 0);
        assert_true(memcmp(&loss[0], &loss[2], sizeof *loss) != 0);
    }
}

// The training of two workers ends early with the second epoch. The leader says why; where it dies before that is
// decided, the one who decides.
static void who_decides_says_why_it_ends(void **state)
{
    static const int figures_validation_decision = 3;
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        char said[4096];
        struct training t;
        world = (struct world){.now = PS_SECOND,
                               .quiet = true,
                               .lines = "callbacks: [{name: early_stopping, min_delta: 1000, patience: 1}]\n",
                               .dies_at = dies ? 2 * figures_validation_decision : 1000};
        struct hearing heard = hearing_begin();
        const enum ps_code code = train(&t);
        hearing_end(&heard, said, sizeof said);
        must(code, &t.error);
        if (!strstr(said, "epoch 2: early stopping: ") != !dies)
            fail_msg("dies %d: %s", dies, said);
        end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(times_whole_epochs, begin_world),
        cmocka_unit_test_setup(its_metrics_have_all_the_time, begin_world),
        cmocka_unit_test_setup(an_empty_batch_has_no_loss, begin_world),
        cmocka_unit_test_setup(evaluates_quietly, begin_world),
        cmocka_unit_test_setup(names_its_figures, begin_world),
        cmocka_unit_test_setup(says_how_far_it_is, begin_world),
        cmocka_unit_test_setup(classes_have_weights, begin_world),
        cmocka_unit_test_setup(goes_where_the_others_are, begin_world),
        cmocka_unit_test_setup(stops_in_an_evaluation, begin_world),
        cmocka_unit_test_setup(draws_from_the_strategys_seed, begin_world),
        cmocka_unit_test_setup(who_decides_says_why_it_ends, begin_world),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
