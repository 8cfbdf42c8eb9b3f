// SPDX-License-Identifier: Apache-2.0
//
// Trainings that are killed and go on, and what callbacks do: workerd/job with one_device, whose weights are compared
// byte by byte. A training runs in a process of its own, and is killed in the step that the test says.
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/file/safetensors.h"
#include "common/math/finite.h"
#include "common/wire/dtype.h"
#include "workerd/job/callback.h"
#include "workerd/job/callbacks/monitor.h"
#include "workerd/job/checkpoints.h"
#include "workerd/job/evaluate.h"
#include "workerd/job/loop.h"
#include "workerd/job/resume.h"
#include "workerd/job/search.h"
#include "workerd/job/summary.h"
#include "workerd/strategy/losses.h"

static const char outputs_text[] =
    "{\"class_name\": \"Functional\", \"config\": {\"name\": \"n\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"name\": \"i\", \"config\": {\"name\": \"i\", \"batch_shape\": [null, 2]},"
    " \"inbound_nodes\": []},"
    "{\"class_name\": \"Dense\", \"name\": \"acceleration\", \"config\": {\"name\": \"acceleration\", \"units\": 1},"
    " \"inbound_nodes\": [[[\"i\", 0, 0, {}]]]},"
    "{\"class_name\": \"Dense\", \"name\": \"error\", \"config\": {\"name\": \"error\", \"units\": 1},"
    " \"inbound_nodes\": [[[\"i\", 0, 0, {}]]]}],"
    " \"input_layers\": [[\"i\", 0, 0]], \"output_layers\": [[\"acceleration\", 0, 0], [\"error\", 0, 0]]}}";
static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 28, 28]}},"
    "{\"class_name\": \"Flatten\", \"config\": {\"name\": \"flatten\"}},"
    "{\"class_name\": \"Dropout\", \"config\": {\"name\": \"dropout\", \"rate\": 0.5}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"dense\", \"units\": 10}}]}}";

// 7 steps an epoch, of which the last is short.
enum { EXAMPLES = 100, BATCH = 16, EPOCHS = 4, STEPS = 7 * EPOCHS, TEST_EXAMPLES = 20 };

static char folder[32];
static const char *set;  // "KEY=VALUE" laid over the jobs; NULL: nothing
// The training reads the checkpoint that was found itself, as replicas beside the first do; it is gone by then.
static bool reads_again, removes_found;
static const char *vocabulary;  // of the column that the jobs have; NULL: none
static uint64_t numbering;      // of words by the data

// ---- a training -----------------------------------------------------------------------------------------------------

// one_device, in whose n-th step a signal comes: SIGKILL ends the process, another one sets `stop`.
static struct wk_home home;
static enum ps_code (*home_end)(void *state, const struct wk_work *work, struct ps_error *e);  // in place of end_step
static enum ps_code (*home_save)(void *state, struct wk_checkpoint *to, struct ps_error *e);   // NULL: one_device's
static enum ps_code (*home_salvage)(void *state, bool *undone, struct ps_error *e);            // NULL: likewise
static struct wk_group group;
static struct wk_sharder sharder;
static enum wk_next (*sharder_next)(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e);
static uint64_t (*sharder_count_on)(void *state);
static uint64_t strategy_seed;  // 0: the job's
static bool comes_late;
static struct wk_strategy strategy;
static uint64_t signal_step;
static int signal_number, stops_in_evaluation;
static volatile sig_atomic_t stop;

static enum ps_code end_step(void *state, const struct wk_work *work, struct ps_error *e)
{
    enum ps_code code = wk_one_device.home->end(state, work, e);
    if (work->step == signal_step && signal_number == SIGKILL)
        raise(SIGKILL);
    if (work->step == signal_step)
        stop = signal_number;
    return code;
}

static enum ps_code sum(void *state, double *values, uint64_t n, struct ps_error *e)
{
    if (stops_in_evaluation && --stops_in_evaluation == 0)
        stop = SIGTERM;
    return wk_one_device.group->sum(state, values, n, e);
}

static uint64_t draw_from(void *state)
{
    return strategy_seed ? strategy_seed : wk_one_device.sharder->seed(state);
}

static uint64_t come(void *state, bool *late)
{
    const uint64_t epoch = wk_one_device.sharder->first_epoch(state, late);
    *late = comes_late;
    return epoch;
}

static unsigned rates_set;

static void set_rate(void *state, double rate)
{
    rates_set++;
    wk_one_device.home->set_rate(state, rate);
}

struct training {
    struct wk_run run;
    struct nn_model *model;
    struct ps_job *job;
    struct wk_found found;
    struct wk_lost lost;  // of which others have lost something
    const char *resume;   // what was found
    struct ps_error error;
};

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

static char *in_folder(const char *name)
{
    return ps_printf("%s/%s", folder, name);
}

static void write_text(const char *name, const char *text)
{
    char *path = in_folder(name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static char *read_text(const char *name, size_t *size)
{
    char *path = in_folder(name), *text = ps_alloc(1 << 20);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("there is no %s", path);
    *size = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    free(path);
    return text;
}

static void open_job(struct training *t, const char *lines)
{
    char *path = in_folder("job.yaml");
    char *text = ps_printf("model: model.json\ndata: {kind: synthetic-digits, scale: 1/255}\n"
                           "loss: {name: sparse_categorical_crossentropy, from_logits: true}\nmetrics: [accuracy]\n"
                           "optimizer: {name: adam, learning_rate: 0.01}\nstrategy: {name: one_device}\n"
                           "batch_size: %d\nepochs: %d\noutput: %s/out.safetensors\n%s",
                           BATCH, EPOCHS, folder, lines);
    struct ps_error e = {.code = PS_OK};
    must(ps_job_parse(text, strlen(text), path, &set, set != NULL, &t->job, &e), &e);
    free(text);
    free(path);
}

// As jobs with CSV data have one.
static void take_column(struct ps_job_data *data)
{
    data->kind = PS_DATA_CSV;
    data->columns.of = ps_alloc(sizeof *data->columns.of);
    data->columns.of[data->columns.n++] =
        (struct ps_job_column){.name = ps_strdup("a"), .type = PS_COLUMN_CATEGORY, .vocabulary = ps_strdup(vocabulary)};
}

// What main does.
static enum ps_code train_here(struct training *t, const char *lines, bool resumes)
{
    static const struct ps_loss loss = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT, .from_logits = true);
    struct ps_error e = {.code = PS_OK};
    memset(t, 0, sizeof *t);
    open_job(t, lines);
    must(nn_model_parse(model_text, "test", &t->model, &e), &e);
    must(nn_replica_create(t->model, "ref", BATCH, 1, 1, &loss, &t->run.env.replica, &e), &e);
    struct nn_metric metric[PS_MAX_METRICS];
    for (size_t i = 0; i < t->job->metrics.n; i++)
        metric[i] = (struct nn_metric){t->job->metrics.of[i].metric, 0};
    must(nn_replica_measure(t->run.env.replica, metric, t->job->metrics.n, &e), &e);
    t->job->data.train_examples = EXAMPLES;
    t->job->data.test_examples = TEST_EXAMPLES;
    must(wk_data_open(&t->job->data, t->model, 0, &t->run.data, &e), &e);
    must(wk_data_bind(t->run.data, t->model, &loss, &e), &e);
    if (vocabulary)
        take_column(&t->job->data);
    strategy = wk_one_device;
    home = *strategy.home;
    home.end = home_end ? home_end : end_step;
    home.save = home_save ? home_save : home.save;
    home.salvage = home_salvage;
    home.set_rate = set_rate;
    group = *strategy.group;
    group.sum = sum;
    strategy.home = &home;
    strategy.group = &group;
    sharder = *strategy.sharder;
    sharder.seed = draw_from;
    sharder.next = sharder_next ? sharder_next : sharder.next;
    sharder.count_on = sharder_count_on;
    sharder.first_epoch = come;
    strategy.sharder = &sharder;
    stop = 0;
    must(ps_job_scale_rate(t->job, 1, EXAMPLES, &e), &e);
    t->job->schedule.warmup_initial = 0.001;  // as with more replicas
    t->run.env.job = t->job;
    t->run.env.model = t->model;
    t->run.env.examples = EXAMPLES;
    t->run.env.numbering = numbering;
    t->run.env.stop = &stop;
    t->run.strategy = &strategy;
    t->run.quiet = true;
    if (wk_search_newest(t->job, !resumes, &t->lost, &t->found, &t->error))
        return t->error.code;
    t->resume = t->run.resume = t->found.path;
    t->run.resume_read = t->resume && !reads_again ? &t->found.read : NULL;
    if (t->resume && removes_found)
        assert_int_equal(unlink(t->resume), 0);
    must(strategy.open(&t->run.env, &t->run.state, &e), &e);
    return wk_loop(&t->run, &t->error);
}

static void end(struct training *t)
{
    if (t->run.state)
        strategy.close(t->run.state, NULL);
    wk_run_free(&t->run);
    wk_data_free(t->run.data);
    nn_replica_free(t->run.env.replica);
    nn_model_free(t->model);
    ps_job_free(t->job);
    wk_found_free(&t->found);
}

static void train(struct training *t, const char *lines, bool resumes)
{
    signal_number = 0;
    must(train_here(t, lines, resumes), &t->error);
}

// In a process that is killed in this step.
static void train_and_die(const char *lines, uint64_t step, bool resumes)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct training t;
        signal_step = step;
        signal_number = SIGKILL;
        train_here(&t, lines, resumes);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void same_file(const char *a, const char *b)
{
    size_t n, m;
    char *x = read_text(a, &n), *y = read_text(b, &m);
    if (n != m || memcmp(x, y, n) != 0)
        fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

static void move(const char *from, const char *to)
{
    char *a = in_folder(from), *b = in_folder(to);
    assert_int_equal(rename(a, b), 0);
    free(a);
    free(b);
}

static bool exists(const char *name)
{
    char *path = in_folder(name);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

static int begin_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_resume.XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_text("model.json", model_text);
    signal_number = stops_in_evaluation = 0;
    set = NULL;
    home_end = NULL;
    home_save = NULL;
    home_salvage = NULL;
    sharder_next = NULL;
    sharder_count_on = NULL;
    reads_again = removes_found = comes_late = false;
    vocabulary = NULL;
    numbering = 0;
    strategy_seed = 0;
    rates_set = 0;
    return 0;
}

static int end_folder(void **state)
{
    char *command = ps_printf("rm -rf '%s'", folder);
    (void)state;
    int status = system(command);
    free(command);
    return status;
}

// ---- killed and gone on ---------------------------------------------------------------------------------------------

#define LOGS "callbacks:\n  - {name: csv_log, path: log.csv}\n  - {name: json_lines, path: log.jsonl}\n"
#define PLATEAU "  - {name: reduce_lr_on_plateau, patience: 1, monitor: loss, min_delta: 0.5, cooldown: 1}\n"

static void remove_checkpoints(void)
{
    char *command = ps_printf("rm -rf '%s/ck' '%s/log.csv' '%s/log.jsonl'", folder, folder, folder);
    assert_int_equal(system(command), 0);
    free(command);
}

static void kill_and_go_on(const char *job, uint64_t step, uint64_t steps, double loss)
{
    struct training t;
    remove_checkpoints();
    train_and_die(job, step, true);
    train(&t, job, true);
    assert_int_equal(t.run.history.steps, steps);
    assert_memory_equal(&t.run.history.loss[steps - 1], &loss, sizeof loss);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
    same_file("log.csv", "whole.csv");
    same_file("log.jsonl", "whole.jsonl");
}

// The weights, and the lines of the logs, are those of the training that nobody killed.
static void goes_on_as_if_never_killed(void **state)
{
    // One keeps the best weights, the other is at its end after two epochs in vain.
    static const char *const around[] = {
        LOGS "  - {name: early_stopping, patience: 1, min_delta: 0.05, restore_best_weights: true}\n" PLATEAU,
        LOGS PLATEAU "  - {name: early_stopping, patience: 2, min_delta: 1000}\n"};
    static const char *const every[] = {"every_steps: 1, keep: 2", "every_steps: 3", "keep: 1"};
    unsigned dice = 7;
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct training t;
        train(&t, around[i], false);
        const uint64_t steps = t.run.position.step;
        const double loss = t.run.history.loss[steps - 1];
        assert_true(steps > 14 && steps <= STEPS);
        end(&t);
        move("out.safetensors", "whole.safetensors");
        move("log.csv", "whole.csv");
        move("log.jsonl", "whole.jsonl");
        for (int k = 0; k < 10; k++) {
            char *job = ps_printf("%s  - {name: checkpoint, path: ck, %s}\n", around[i], every[k % 3]);
            dice = dice * 1103515245 + 12345;
            kill_and_go_on(job, (dice >> 16) % steps, steps, loss);
            free(job);
        }
    }
}

// An epoch that `steps` has cut ends once, when the training has gone on to its end.
static void ends_a_cut_epoch_once(void **state)
{
    static const char around[] = LOGS "  - {name: early_stopping, patience: 3, min_delta: 1000}\n"
                                      "  - {name: reduce_lr_on_plateau, patience: 0, monitor: loss, min_delta: 1000}\n"
                                      "  - {name: checkpoint, path: ck/best, save_best_only: true, monitor: loss}\n"
                                      "  - {name: checkpoint, path: ck}\n";
    static const char *const cut[] = {"steps=3", "steps=10", "steps=16", "steps=24"};
    struct training t;
    (void)state;
    set = "steps=24";
    train(&t, around, false);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    move("log.csv", "whole.csv");
    move("log.jsonl", "whole.jsonl");
    remove_checkpoints();
    for (int k = 0; k < 4; k++) {
        set = cut[k];
        train(&t, around, k > 0);
        end(&t);
    }
    for (int k = 0; k < 2; k++) {
        same_file("out.safetensors", "whole.safetensors");
        same_file("log.csv", "whole.csv");
        same_file("log.jsonl", "whole.jsonl");
        train(&t, around, true);  // of which nothing is left
        end(&t);
    }
}

// Twice in one training, once before there is a checkpoint.
static void is_killed_again(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 4}]\n";
    struct training t;
    (void)state;
    train(&t, "", false);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    train_and_die(job, 2, true);
    train_and_die(job, 11, true);
    train_and_die(job, 17, true);
    train(&t, job, true);
    assert_non_null(t.resume);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
    // When all is trained there is nothing to do but to write it.
    train(&t, job, true);
    assert_int_equal(t.run.position.step, STEPS);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
}

// What was read when the checkpoint was found is what the training goes on with.
static void reads_what_was_found_once(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 3}]\n";
    struct training t;
    (void)state;
    train(&t, "", false);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    for (int i = 0; i < 2; i++) {
        remove_checkpoints();
        train_and_die(job, 14, true);
        reads_again = i == 0;
        removes_found = i == 1;
        train(&t, job, true);
        assert_true(t.run.resumed_at == 9 || t.run.resumed_at == 12);
        assert_true(reads_again || !t.found.read.file);
        end(&t);
        same_file("out.safetensors", "whole.safetensors");
        reads_again = removes_found = false;
    }
    remove_checkpoints();
    train_and_die(job, 14, true);
    reads_again = removes_found = true;
    assert_int_equal(train_here(&t, job, true), PS_NOT_FOUND);
    end(&t);
}

// A training of which a run has drawn from another seed goes on with that, and its examples come once in each epoch.
// Who comes late draws from what the checkpoint says; not where the strategy has a seed of its own.
static void goes_on_with_its_seed(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 3}]\n";
    const uint64_t seed = UINT64_C(0xfedcba9876543210);
    struct training t;
    (void)state;
    strategy_seed = seed;
    train(&t, "", false);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    for (int i = 0; i < 2; i++) {
        remove_checkpoints();
        strategy_seed = seed;
        train_and_die(job, 11, true);
        strategy_seed = 0;
        reads_again = i;
        train(&t, job, true);
        assert_true(t.run.resumed_at == 6 || t.run.resumed_at == 9);
        end(&t);
        same_file("out.safetensors", "whole.safetensors");
        comes_late = true;
        for (strategy_seed = 0; strategy_seed < 8; strategy_seed += 7) {
            train(&t, job, true);
            assert_int_equal(t.run.resumed_at, 0);
            assert_true(t.run.seed == (strategy_seed ? strategy_seed : seed));
            end(&t);
        }
        comes_late = reads_again = false;
    }
}

// A backup is gone on from without being asked, and is gone in the end.
static void backs_up(void **state)
{
    static const char job[] = "callbacks: [{name: backup, path: ck/a/b, every_steps: 3}]\n";
    struct training t;
    (void)state;
    train(&t, "", false);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    train_and_die(job, 14, false);  // that of step 12 may be on disk by then
    assert_true(exists("ck/a/b/job-backup-0000000009.safetensors"));
    assert_false(exists("ck/a/b/job-backup-0000000003.safetensors"));
    train(&t, job, false);
    assert_non_null(t.resume);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
    assert_false(exists("ck/a/b/job-backup-0000000027.safetensors"));
    assert_false(exists("ck/a/b/job-backup-0000000024.safetensors"));
    train(&t, job, false);
    assert_null(t.resume);
    end(&t);
}

// Of which job an older version's checkpoint is, only its name says.
static void write_unsigned(const char *name)
{
    const float x = 1;
    const uint64_t shape = 1;
    struct wk_checkpoint c;
    struct ps_error e;
    char *path = in_folder(name);
    wk_checkpoint_init(&c, NULL);
    wk_checkpoint_put(&c, NULL, "x", &shape, 1, &x);
    must(wk_checkpoint_write(&c, path, &e), &e);
    wk_checkpoint_free(&c);
    free(path);
}

static void expect_owner(const struct wk_checkpoints *of, const char *name, enum ps_code expected)
{
    struct ps_error e;
    char *path = in_folder(name);
    assert_int_equal(wk_checkpoints_check_owner(of, path, &e), expected);
    if (expected)
        assert_non_null(strstr(e.text, ".safetensors: is a checkpoint of job 'job-backup'"));
    free(path);
}

// The backups of job `job` and the checkpoints of job `job-backup` have the same names. Neither job goes on from the
// other's, removes them, or writes over them; what a person has renamed is the job's whose name it has.
static void leaves_another_jobs_checkpoints(void **state)
{
    static const char job[] = "callbacks: [{name: backup, path: ck, every_steps: 3}]\n";
    static const char other[] =
        "name: job-backup\ncallbacks: [{name: checkpoint, path: ck, every_steps: 9, keep: 2}]\n";
    static const char renamed[] = "name: new\ncallbacks: [{name: checkpoint, path: ck}]\n";
    const struct wk_checkpoints backups = {folder, "job", "-backup"};
    struct training t;
    (void)state;
    train(&t, other, false);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    train(&t, job, false);
    assert_null(t.resume);
    assert_int_equal(t.run.position.step, STEPS);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
    expect_owner(&backups, "ck/job-backup-0000000018.safetensors", PS_ALREADY_EXISTS);
    expect_owner(&backups, "ck/job-backup-0000000027.safetensors", PS_ALREADY_EXISTS);
    train_and_die(job, 14, false);  // that of step 12 may be on disk by then
    assert_true(exists("ck/job-backup-0000000009.safetensors"));
    expect_owner(&backups, "ck/job-backup-0000000009.safetensors", PS_OK);
    train(&t, other, true);
    assert_int_equal(t.run.resumed_at, 27);
    end(&t);
    train(&t, job, false);
    assert_true(t.run.resumed_at == 9 || t.run.resumed_at == 12);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
    move("ck/job-backup-0000000027.safetensors", "ck/new-0000000027.safetensors");
    train(&t, renamed, true);
    assert_int_equal(t.run.resumed_at, 27);
    end(&t);
    write_unsigned("ck/job-backup-0000000001.safetensors");
    expect_owner(&backups, "ck/job-backup-0000000001.safetensors", PS_OK);
}

// The files that were removed from the folder, in order.
static void expect_removed(int events, const char *const *names, size_t n)
{
    char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    const ssize_t size = read(events, buffer, sizeof buffer);
    const char *at = buffer;
    for (size_t i = 0; i < n; i++) {
        const struct inotify_event *event = (const struct inotify_event *)at;
        assert_true(at < buffer + size);
        assert_string_equal(event->name, names[i]);
        at += sizeof *event + event->len;
    }
    assert_true(at == buffer + size);
}

// A training that is killed while its backups are removed leaves the newest: the one after it trains nothing again.
static void removes_the_oldest_first(void **state)
{
    static const char *const names[] = {"job-backup-0000000001.safetensors", "job-backup-0000000002.safetensors",
                                        "job-backup-0000000003.safetensors", "job-backup-0000000004.safetensors"};
    const struct wk_checkpoints backups = {folder, "job", "-backup"};
    const int events = inotify_init1(IN_NONBLOCK);
    (void)state;
    for (size_t i = 0; i < 4; i++)
        write_unsigned(names[3 - i]);
    assert_true(events >= 0 && inotify_add_watch(events, folder, IN_DELETE) >= 0);
    assert_false(wk_checkpoints_prune(&backups, 3, 2));
    expect_removed(events, names, 1);
    assert_false(wk_checkpoints_prune(&backups, UINT64_MAX, 0));
    expect_removed(events, names + 1, 3);
    close(events);
}

static void damage(const char *name)
{
    char *path = in_folder(name);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, 20000, SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, 20000, SEEK_SET);
    fputc(byte ^ 1, f);
    assert_int_equal(fclose(f), 0);
    free(path);
}

// A damaged checkpoint is passed over for the one before it; where there is no other, nothing begins.
static void passes_over_damaged(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 9, keep: 2}]\n";
    struct training t;
    struct ps_error e = {.code = PS_OK};
    struct wk_found found;
    (void)state;
    train(&t, job, false);
    move("out.safetensors", "whole.safetensors");
    end(&t);
    damage("ck/job-0000000027.safetensors");
    train(&t, job, true);
    assert_int_equal(t.run.resumed_at, 18);
    same_file("out.safetensors", "whole.safetensors");
    damage("ck/job-0000000027.safetensors");
    damage("ck/job-0000000018.safetensors");
    assert_int_equal(wk_search_newest(t.job, false, &t.lost, &found, &e), PS_DATA_LOSS);
    assert_non_null(strstr(e.text, "ck/job-0000000027.safetensors"));
    assert_null(found.path);
    assert_null(found.words);
    wk_found_free(&found);
    end(&t);
}

static int read_errno;  // 0: the system decides

ssize_t read(int fd, void *to, size_t n)
{
    if (read_errno) {
        errno = read_errno;
        return -1;
    }
    return syscall(SYS_read, fd, to, n);
}

// One that cannot be read at the moment is not passed over: later it may be, and the steps after the one before it with
// it.
static void waits_for_unreadable(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 9, keep: 2}]\n";
    struct training t;
    struct ps_error e = {.code = PS_OK};
    struct wk_found found;
    (void)state;
    train(&t, job, false);
    read_errno = EIO;
    const enum ps_code code = wk_search_newest(t.job, false, &t.lost, &found, &e);
    read_errno = 0;
    assert_int_equal(code, PS_UNAVAILABLE);
    assert_non_null(strstr(e.text, "ck/job-0000000027.safetensors: reading at byte 0: Input/output error"));
    assert_null(found.path);
    wk_found_free(&found);
    must(wk_search_newest(t.job, false, &t.lost, &found, &e), &e);
    assert_non_null(strstr(found.path, "ck/job-0000000027.safetensors"));
    wk_found_free(&found);
    end(&t);
}

// So is one of which something is lost that others keep.
static void passes_over_lost(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 9, keep: 2}]\n";
    const struct ps_error why = {PS_DATA_LOSS, "ps:1 has no such shard"}, other = {PS_DATA_LOSS, "ps:0 has none"};
    struct training t;
    struct ps_error e = {.code = PS_OK};
    struct wk_found found;
    (void)state;
    train(&t, job, false);
    must(wk_search_newest(t.job, false, &t.lost, &found, &e), &e);
    assert_non_null(strstr(found.path, "ck/job-0000000027.safetensors"));
    wk_lost_add(&t.lost, found.path, "of another file there", &other);
    wk_lost_add(&t.lost, found.path, found.words, &why);
    wk_found_free(&found);
    must(wk_search_newest(t.job, false, &t.lost, &found, &e), &e);
    assert_non_null(strstr(found.path, "ck/job-0000000018.safetensors"));
    wk_lost_set_aside(&t.lost, found.path);
    assert_true(exists("ck/job-0000000027.safetensors.lost"));
    move("ck/job-0000000018.safetensors", "ck/job-0000000027.safetensors");
    wk_lost_set_aside(&t.lost, found.path);  // another one has the name by now
    move("ck/job-0000000027.safetensors", "ck/job-0000000018.safetensors");
    wk_lost_add(&t.lost, found.path, found.words, &other);
    wk_lost_set_aside(&t.lost, found.path);  // itself
    wk_found_free(&found);
    assert_int_equal(wk_search_newest(t.job, false, &t.lost, &found, &e), PS_DATA_LOSS);
    assert_string_equal(e.text, other.text);
    wk_found_free(&found);
    assert_true(wk_lost_put_back(&t.lost));
    assert_false(wk_lost_put_back(&t.lost));
    assert_false(exists("ck/job-0000000027.safetensors.lost"));
    assert_int_equal(wk_search_newest(t.job, false, &t.lost, &found, &e), PS_DATA_LOSS);
    assert_string_equal(e.text, why.text);
    wk_found_free(&found);
    wk_lost_free(&t.lost);
    must(wk_search_newest(t.job, false, &t.lost, &found, &e), &e);
    assert_non_null(strstr(found.path, "ck/job-0000000027.safetensors"));
    wk_found_free(&found);
    end(&t);
}

static void age(const char *name, int seconds)
{
    const struct timespec now = {time(NULL) - seconds, 0}, times[] = {now, now};
    char *path = in_folder(name);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    free(path);
}

// Is one warned of the file, where another one was found?
static bool is_warned_of(const struct training *t, const char *name)
{
    char text[1024];
    FILE *to = tmpfile();
    const int was = dup(STDERR_FILENO);
    dup2(fileno(to), STDERR_FILENO);
    ps_log_init("test", PS_LOG_WARNING);
    wk_search_warn(t->job, &t->found);
    ps_log_init("test", PS_LOG_ERROR);
    dup2(was, STDERR_FILENO);
    close(was);
    rewind(to);
    text[fread(text, 1, sizeof text - 1, to)] = '\0';
    fclose(to);
    return strstr(text, name) != NULL;
}

// Two callbacks write one after the other; and what is passed over is newer. But an earlier step comes before.
static void warns_of_another_training(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 9, keep: 2},\n"
                              "            {name: checkpoint, path: ck/other, every_steps: 9, keep: 2}]\n";
    struct training t;
    (void)state;
    train(&t, job, false);
    end(&t);
    train(&t, job, true);
    assert_non_null(strstr(t.resume, "/ck/job-0000000027.safetensors"));
    age("ck/job-0000000018.safetensors", 40);
    age("ck/other/job-0000000018.safetensors", 30);
    age("ck/job-0000000027.safetensors", 20);
    age("ck/other/job-0000000027.safetensors", 10);
    assert_false(is_warned_of(&t, ".safetensors"));
    age("ck/other/job-0000000018.safetensors", 0);
    assert_true(is_warned_of(&t, "/ck/other/job-0000000018.safetensors was written later"));
    age("ck/other/job-0000000018.safetensors", 50);
    free(t.found.path);
    t.found.path = in_folder("ck/job-0000000018.safetensors");  // the others are damaged
    assert_false(is_warned_of(&t, ".safetensors"));
    end(&t);
}

// What a full disk refuses is said, and the training goes on; but a checkpoint that a signal asks for has to be there.
static void goes_on_without(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 9}]\n";
    struct training t;
    struct rlimit old, less;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    less = (struct rlimit){60000, old.rlim_max};  // the weights are smaller, with their slots they are not
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    train(&t, job, false);
    assert_int_equal(t.run.position.step, STEPS);
    end(&t);
    assert_true(exists("out.safetensors"));
    assert_false(exists("ck/job-0000000027.safetensors"));
    signal_step = 10;
    signal_number = SIGTERM;
    assert_int_equal(train_here(&t, job, false), PS_CANNOT_WRITE);
    end(&t);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
}

// ---- a slow disk ----------------------------------------------------------------------------------------------------

// The checkpoints' writer waits for the training to be that far.
enum { SLOW_MS = 100, SLOW_UNTIL = 25, SLOW_PATIENCE_MS = 20000 };
static atomic_uint_fast64_t trained;
static atomic_bool slow_gave_up;
static atomic_int slow_begun;

static enum ps_code slow_end_step(void *state, const struct wk_work *work, struct ps_error *e)
{
    atomic_store(&trained, work->step);
    usleep(SLOW_MS * 1000);
    return wk_one_device.home->end(state, work, e);
}

static void slow_begin(struct wk_checkpoint_fetch *f, struct wk_checkpoint *c)
{
    (void)f;
    (void)c;
    atomic_fetch_add(&slow_begun, 1);
}

static enum ps_code slow_wait(struct wk_checkpoint_fetch *f, struct ps_error *e)
{
    int ms = 0;
    (void)f;
    (void)e;
    while (atomic_load(&trained) < SLOW_UNTIL && ms++ < SLOW_PATIENCE_MS)
        usleep(1000);
    if (atomic_load(&trained) < SLOW_UNTIL)
        atomic_store(&slow_gave_up, true);
    return PS_OK;
}

static void slow_free(struct wk_checkpoint_fetch *f)
{
    (void)f;
}

static enum ps_code slow_save(void *state, struct wk_checkpoint *to, struct ps_error *e)
{
    static struct wk_checkpoint_fetch fetch = {slow_begin, slow_wait, slow_free};
    to->fetch = &fetch;
    return wk_one_device.home->save(state, to, e);
}

// One by seconds is due while the one before is written.
static void does_not_wait_for_a_slow_disk(void **state)
{
    struct training t;
    (void)state;
    home_end = slow_end_step;
    home_save = slow_save;
    train(&t, "callbacks: [{name: checkpoint, path: ck, every_seconds: 1, keep: 0}]\n", false);
    end(&t);
    assert_false(atomic_load(&slow_gave_up));
    assert_int_not_equal(atomic_load(&slow_begun), 0);
}

// ---- a signal -------------------------------------------------------------------------------------------------------

static void writes_what_there_is(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_seconds: 1000}]\n";
    struct training t;
    (void)state;
    train(&t, "", false);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    signal_step = 9;
    signal_number = SIGINT;
    assert_int_equal(train_here(&t, job, true), PS_CANCELLED);
    assert_non_null(strstr(t.error.text, "stopped by SIGINT after step 10; the weights are in "));
    assert_true(t.run.all_saved);
    end(&t);
    assert_true(exists("out.safetensors") && exists("ck/job-0000000010.safetensors"));
    train(&t, job, true);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
}

// How many files became this one since the events were read last; each had a name of its own before.
static int files_named(int events, const char *name)
{
    char buffer[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    const ssize_t size = read(events, buffer, sizeof buffer);
    int n = 0;
    for (const char *at = buffer; at < buffer + size;) {
        const struct inotify_event *event = (const struct inotify_event *)at;
        n += strncmp(event->name, name, strlen(name)) == 0;
        at += sizeof *event + event->len;
    }
    return n;
}

// What is there already is not written again: the weights are waited for.
static void writes_once_after_a_signal(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 5}, {name: backup, path: ck}]\n";
    const int events = inotify_init1(IN_NONBLOCK);
    struct training t;
    char *path = in_folder("ck");
    (void)state;
    assert_int_equal(mkdir(path, 0777), 0);
    signal_number = SIGTERM;
    for (uint64_t step = 8; step <= 9; step++) {
        assert_true(events >= 0 && inotify_add_watch(events, path, IN_MOVED_FROM) >= 0);
        signal_step = step;
        assert_int_equal(train_here(&t, job, false), PS_CANCELLED);
        assert_true(t.run.all_saved);
        end(&t);
        char *name = ps_printf("job-%010d.safetensors", (int)step + 1);
        assert_int_equal(files_named(events, name), 1);
        free(name);
    }
    close(events);
    free(path);
}

static void says_that_no_weights_are_kept(void **state)
{
    struct training t;
    (void)state;
    set = "output=/dev/null";
    signal_step = 9;
    signal_number = SIGINT;
    assert_int_equal(train_here(&t, "", false), PS_CANCELLED);
    assert_string_equal(t.error.text, "stopped by SIGINT after step 10; no output is written");
    assert_false(t.run.all_saved);
    end(&t);
}

// In the step in which the signal comes, a file takes the place of the folder ck.
static enum ps_code end_without_folder(void *state, const struct wk_work *work, struct ps_error *e)
{
    const enum ps_code code = end_step(state, work, e);
    if (work->step == signal_step) {
        remove_checkpoints();
        write_text("ck", "no folder");
    }
    return code;
}

// The one that cannot be written is the error; the other one is there, and the training goes on from it.
static void each_writes_what_it_can(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_seconds: 1000},\n"
                              "            {name: checkpoint, path: other, every_seconds: 1000}]\n";
    struct training t;
    (void)state;
    signal_step = 9;
    signal_number = SIGTERM;
    home_end = end_without_folder;
    assert_int_equal(train_here(&t, job, true), PS_CANNOT_CREATE);
    assert_non_null(strstr(t.error.text, "callback checkpoint: "));
    assert_true(t.run.all_saved);
    end(&t);
    assert_true(exists("other/job-0000000010.safetensors"));
}

// The step in which the signal comes is in no weights: others have ended before theirs.
static enum ps_code end_alone(void *state, const struct wk_work *work, struct ps_error *e)
{
    if (work->step != signal_step)
        return wk_one_device.home->end(state, work, e);
    stop = signal_number;
    return PS_OK;
}

static enum ps_code salvage_step_before(void *state, bool *undone, struct ps_error *e)
{
    (void)state, (void)e;
    *undone = true;
    return PS_OK;
}

// Such a step is taken again, and counts once: in the weights, among the losses and in the figures of its epoch.
static void a_step_that_does_not_count_is_taken_again(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 100}]\n";
    struct training t;
    struct wk_history *h = &t.run.history;
    (void)state;
    train(&t, "", false);
    const uint64_t steps = h->steps;
    const double examples = h->total_examples;
    struct wk_figures figures = {0};
    wk_figures_copy(&figures, &t.run.figures);
    double *losses = ps_alloc(steps * sizeof *losses);
    memcpy(losses, h->loss, steps * sizeof *losses);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    signal_step = 23;
    signal_number = SIGTERM;
    home_end = end_alone;
    home_salvage = salvage_step_before;
    assert_int_equal(train_here(&t, job, true), PS_CANCELLED);
    end(&t);
    assert_true(exists("ck/job-0000000023.safetensors"));
    home_end = NULL;
    home_salvage = NULL;
    train(&t, job, true);
    assert_int_equal(h->steps, steps);
    assert_true(h->total_examples == examples);
    assert_memory_equal(h->loss, losses, steps * sizeof *losses);
    assert_int_equal(t.run.figures.n, figures.n);
    for (size_t i = 0; i < figures.n; i++)
        assert_true(t.run.figures.v[i].value == figures.v[i].value);
    wk_figures_free(&figures);
    free(losses);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
}

static enum ps_code end_with_the_job(void *state, const struct wk_work *work, struct ps_error *e)
{
    if (work->step != signal_step)
        return wk_one_device.home->end(state, work, e);
    stop = signal_number;
    return ps_fail(e, PS_ABORTED, "the job has ended: 1 of at least 2 remain");
}

static enum ps_code leave_it_to_another(void *state, bool *undone, struct ps_error *e)
{
    (void)state, (void)undone;
    return ps_fail(e, PS_NOT_FOUND, "the chief writes the weights");
}

// Who learns of another's end before it looks at its own signal has been stopped by that, too.
static void an_end_of_the_same_signal_is_that(void **state)
{
    struct training t;
    (void)state;
    signal_step = 9;
    signal_number = SIGTERM;
    home_end = end_with_the_job;
    home_salvage = leave_it_to_another;
    assert_int_equal(train_here(&t, "", false), PS_CANCELLED);
    assert_non_null(strstr(t.error.text, "stopped by SIGTERM: "));
    assert_non_null(strstr(t.error.text, "the job has ended: 1 of at least 2 remain"));
    end(&t);
    signal_number = 0;
    assert_int_equal(train_here(&t, "", false), PS_ABORTED);
    end(&t);
}

static uint64_t count_on_to_27(void *state)
{
    (void)state;
    return 27;
}

// Who writes in the place of another one counts on from the furthest step, and so does who goes on from that.
static void a_checkpoint_is_named_beyond_those_of_others(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 100}]\n";
    struct training t;
    (void)state;
    signal_step = 23;
    signal_number = SIGTERM;
    sharder_count_on = count_on_to_27;
    assert_int_equal(train_here(&t, job, true), PS_CANCELLED);
    end(&t);
    assert_true(exists("ck/job-0000000027.safetensors"));
    sharder_count_on = NULL;
    train(&t, job, true);
    assert_int_equal(t.run.history.steps, STEPS + 3);
    assert_true(t.run.history.loss[23] > 0 && t.run.history.examples[24] == 0 && t.run.history.loss[27] > 0);
    end(&t);
}

static int salvaged;  // so often

static enum ps_code salvage_step_before_once(void *state, bool *undone, struct ps_error *e)
{
    (void)state, (void)e;
    *undone = salvaged++ == 0;
    return PS_OK;
}

static enum ps_code save_not_at_once(void *state, struct wk_checkpoint *to, struct ps_error *e)
{
    if (salvaged == 1)
        return ps_fail(e, PS_ABORTED, "others have closed its round");
    return wk_one_device.home->save(state, to, e);
}

// Others have closed the round of such a step after it was taken back: it counts, as if it had never been.
static void a_step_that_counts_late_is_not_taken_again(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 100}]\n";
    struct training t;
    (void)state;
    train(&t, "", false);
    const double loss = *wk_figures_find(&t.run.figures, "loss");
    end(&t);
    move("out.safetensors", "whole.safetensors");
    signal_step = 23;
    signal_number = SIGTERM;
    salvaged = 0;
    home_salvage = salvage_step_before_once;
    home_save = save_not_at_once;
    assert_int_equal(train_here(&t, job, true), PS_CANCELLED);
    assert_int_equal(salvaged, 2);
    end(&t);
    assert_true(exists("ck/job-0000000024.safetensors"));
    home_salvage = NULL;
    home_save = NULL;
    train(&t, job, true);
    assert_true(*wk_figures_find(&t.run.figures, "loss") == loss);
    assert_int_equal(t.run.history.steps, STEPS);
    for (uint64_t i = 0; i < STEPS; i++)
        assert_true(t.run.history.loss[i] > 0);
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
}

// As of local_steps, three at a time.
static enum wk_next next_of_period(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e)
{
    enum { PERIOD = 3 * BATCH };
    const enum wk_next next = wk_one_device.sharder->next(state, epoch, idle, work, e);
    if (next == WK_BATCH) {
        work->ends_period = work->end % PERIOD == 0 || work->end == EXAMPLES;
        work->end = work->ends_period ? work->end : work->end / PERIOD * PERIOD;
    }
    return next;
}

// A period that is in no weights is taken again as a whole, though steps of the next one have been taken.
static void a_period_that_does_not_count_is_taken_again(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 100}]\n";
    struct training t;
    struct wk_checkpoint c;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    signal_step = 7 + 4;
    signal_number = SIGTERM;
    home_salvage = salvage_step_before;
    sharder_next = next_of_period;
    assert_int_equal(train_here(&t, job, true), PS_CANCELLED);
    end(&t);
    char *path = in_folder("ck/job-0000000009.safetensors");
    must(wk_checkpoint_read(&c, path, true, &e), &e);
    assert_int_equal(json_integer_value(json_object_get(c.json, "epoch")), 1);
    assert_int_equal(json_integer_value(json_object_get(c.json, "first")), 0);
    wk_checkpoint_free(&c);
    free(path);
}

// A checkpoint with one thing in its JSON set to another.
static void tamper(const char *name, const char *key, const char *value)
{
    struct wk_checkpoint c;
    struct ps_error e = {.code = PS_OK};
    char *path = in_folder(name);
    must(wk_checkpoint_read(&c, path, true, &e), &e);
    json_object_set_new(c.json, key, json_loads(value, JSON_DECODE_ANY, NULL));
    for (size_t i = 0; i < c.file->n; i++)
        wk_checkpoint_put(&c, NULL, c.file->tensor[i].name, c.file->tensor[i].shape, c.file->tensor[i].rank,
                          c.file->tensor[i].data);
    must(wk_checkpoint_write(&c, path, &e), &e);
    wk_checkpoint_free(&c);
    free(path);
}

// A training that was killed before it had written its results has all of them when it goes on.
static void looks_again_at_what_is_whole(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck}]\n";
    struct training t;
    struct wk_figures figures = {0};
    (void)state;
    set = "metrics=[accuracy, confusion_matrix]";
    train(&t, job, false);
    wk_figures_copy(&figures, &t.run.figures);
    json_t *matrices = json_incref(t.run.matrices);
    assert_true(json_is_array(json_object_get(matrices, "val_confusion_matrix")));
    end(&t);
    tamper("ck/job-0000000028.safetensors", "figures", "[[\"loss\", 1], [\"val_loss\", 2]]");  // of other examples
    train(&t, job, true);
    assert_int_equal(t.run.position.step, STEPS);
    assert_true(t.run.evaluated);
    assert_true(*wk_figures_find(&t.run.figures, "loss") == 1);
    assert_true(*wk_figures_find(&t.run.figures, "val_loss") == *wk_figures_find(&figures, "val_loss"));
    assert_true(json_equal(t.run.matrices, matrices));
    json_decref(matrices);
    wk_figures_free(&figures);
    end(&t);
}

enum { LONG = 1250000 };

static void take_long_history(struct wk_run *run)
{
    struct wk_history *h = &run->history;
    wk_losses_free(h);
    for (uint64_t step = 0; step < LONG; step++) {
        wk_losses_extend(h, step + 1);
        h->loss[step - h->first] = (double)step;
        h->examples[step - h->first] = 2;
    }
    run->position.step = LONG;
}

// Nor does the training itself: what a summary has of each step is of the newest.
static void keeps_the_newest_steps(void **state)
{
    struct wk_run run = {0};
    const struct wk_history *h = &run.history;
    (void)state;
    take_long_history(&run);
    assert_true(h->steps == LONG && h->first == 500000 && h->room == WK_LOSSES_KEPT);
    for (uint64_t step = h->first; step < LONG; step++)
        assert_true(h->loss[step - h->first] == (double)step && h->examples[step - h->first] == 2);
    assert_true(h->examples_before == 2.0 * (double)h->first);
    // A worker that was away for long has the same ones as the others.
    struct wk_history late = {0};
    wk_losses_extend(&late, 3);
    late.examples[2] = 7;
    wk_losses_extend(&late, LONG);
    assert_true(late.first == h->first && late.steps == LONG && late.examples_before == 7 && late.examples[0] == 0);
    wk_losses_free(&late);
    wk_losses_extend(&late, WK_LOSSES_KEPT);
    assert_int_equal(late.first, 0);
    wk_losses_free(&late);
    wk_losses_free(&run.history);
}

// A checkpoint of a long training is no larger than one of a short one: of old steps it has only how much they trained.
static void remembers_no_step_for_ever(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck}]\n";
    struct training t;
    const struct wk_history *h = &t.run.history;
    struct wk_checkpoint c;
    struct ps_error e;
    (void)state;
    train(&t, job, false);
    take_long_history(&t.run);
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    must(wk_resume_save(&t.run, NULL, &c, &e), &e);
    assert_int_equal(json_array_size(json_object_get(c.json, "losses")), 100000);
    char *path = in_folder("ck/job-0001250000.safetensors");
    must(wk_checkpoint_write(&c, path, &e), &e);
    wk_checkpoint_free(&c);
    free(path);
    end(&t);
    train(&t, job, true);
    assert_int_equal(h->steps, LONG);
    assert_true(h->total_examples == 2.0 * LONG);
    const uint64_t listed = LONG - 100000 - h->first;
    assert_true(h->loss[LONG - 1 - h->first] == LONG - 1);
    assert_true(h->loss[listed] == LONG - 100000 && h->loss[listed - 1] == 0);
    end(&t);
}

// The weights are the final ones, whatever is known of how good they are.
static void writes_weights_where_it_does_not_look(void **state)
{
    struct training t;
    (void)state;
    train(&t, "", false);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    stops_in_evaluation = 2 * EPOCHS - 1;  // the first of two sums of the last epoch
    assert_int_equal(train_here(&t, "", false), PS_CANCELLED);
    assert_non_null(strstr(t.error.text, "; the weights are in "));
    end(&t);
    same_file("out.safetensors", "whole.safetensors");
}

// ---- what is refused ------------------------------------------------------------------------------------------------

static void refuses_resume(const char *lines, const char *why)
{
    struct training t;
    signal_number = 0;
    enum ps_code code = train_here(&t, lines, true);
    if (code == PS_OK || !strstr(t.error.text, why))
        fail_msg("expected '%s', not '%s'", why, t.error.text);
    end(&t);
}

static void refuses_another_jobs_checkpoint(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck}]\n";
    struct training t;
    (void)state;
    train(&t, job, true);
    end(&t);
    set = "seed=3";
    refuses_resume(job, "is of a job with seed=0, but this one has seed=3");
    set = NULL;
    write_text("ck/job-0000000028.safetensors", "no safetensors at all");
    refuses_resume(job, "expected a safetensors header of at most");
    move("out.safetensors", "ck/job-0000000028.safetensors");
    refuses_resume(job, "has no checksums: expected a checkpoint");
}

// What a job says in addition, and says no longer; a checkpoint of before does not know which keys have come since.
static void refuses_what_was_added_to_a_job(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, keep: 0}]\n";
    struct training t;
    (void)state;
    set = "epochs=1";
    train(&t, job, true);
    end(&t);
    set = "class_weight={0: 1, 1: 5}";
    refuses_resume(job,
                   "is of a job without class_weight, but this one has class_weight={\"0\":1.0,\"1\":5.0}; with that");
    set = NULL;
    tamper("ck/job-0000000007.safetensors", "configuration", "\"epochs=1\\nseed=0\\n\"");
    train(&t, job, true);
    end(&t);
}

// Where the file of a column's vocabulary lies does not count, nor that older checkpoints say it.
static void takes_a_vocabulary_from_elsewhere(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, keep: 0}]\n";
    struct training t;
    (void)state;
    set = "epochs=1";
    vocabulary = "v.txt";
    train(&t, job, true);
    end(&t);
    set = "epochs=2";
    vocabulary = "elsewhere/v.txt";
    train(&t, job, true);
    assert_non_null(strstr(t.resume, "ck/job-0000000007"));
    end(&t);
    set = NULL;
    tamper("ck/job-0000000014.safetensors", "configuration",
           "\"seed=0\\ndata.columns={\\\"a\\\":{\\\"type\\\":\\\"category\\\",\\\"vocabulary\\\":\\\"v.txt\\\"}}\\n\"");
    train(&t, job, true);
    assert_non_null(strstr(t.resume, "ck/job-0000000014"));
    end(&t);
}

// What the training data number otherwise is another training; a checkpoint of before does not say how they did.
static void refuses_words_with_other_numbers(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, keep: 0}]\n";
    struct training t;
    (void)state;
    set = "epochs=1";
    train(&t, job, true);
    end(&t);
    numbering = 31;
    set = "epochs=2";
    train(&t, job, true);
    assert_non_null(strstr(t.resume, "ck/job-0000000007"));
    end(&t);
    set = "epochs=3";
    for (numbering = 0; numbering < 31; numbering += 30)
        refuses_resume(job, "is of a job whose data have other words or classes, or number them in another order; ");
    numbering = 31;
    train(&t, job, true);
    assert_non_null(strstr(t.resume, "ck/job-0000000014"));
    end(&t);
    set = NULL;
}

static void refuses_what_is_wrong_in_a_checkpoint(void **state)
{
    static const char job[] = "callbacks: [{name: early_stopping}, {name: checkpoint, path: ck, keep: 0}]\n";
    static const struct {
        const char *key, *value, *why;
    } rows[] = {
        {"version", "2", "another version"},
        {"configuration", "7", "another version"},
        {"epoch", "-1", "epoch: expected a whole number of 0 or more"},
        {"first", "101", "first: expected a position in an epoch of 100 examples"},
        {"epoch", "2", "it is in epoch 2 of its training, and the job has 1: expected as many epochs or more"},
        {"step", "\"7\"", "step: expected a whole number of 0 or more"},
        {"meter", "{}", "meter: expected 5 numbers, or none"},
        {"figures", "[[1, 2]]", "figures[0]: expected a name and a number"},
        {"losses", "[1]", "losses: expected one number per step"},
        {"examples", "null", "examples: expected one number per step"},
        {"learning_rate", "-1.5", "$.learning_rate: expected a number of 0 or more"},
        {"callbacks", "{\"early_stopping\": {\"best\": \"x\"}, \"checkpoint\": {}}",
         "$.callbacks.early_stopping: best: expected a number"},
    };
    (void)state;
    set = "epochs=1";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct training t;
        remove_checkpoints();
        train(&t, job, true);
        end(&t);
        tamper("ck/job-0000000007.safetensors", rows[i].key, rows[i].value);
        refuses_resume(job, rows[i].why);
    }
}

// ---- callbacks ------------------------------------------------------------------------------------------------------

#define KEPT "callbacks: [{name: checkpoint, path: ck}, "

// Nothing can become better by so much: the second epoch is the last, and its weights are not kept.
static void stops_early(void **state)
{
    struct training t;
    (void)state;
    set = "epochs=1";
    train(&t, "", false);
    end(&t);
    set = NULL;
    move("out.safetensors", "first.safetensors");
    train(&t, "callbacks: [{name: early_stopping, min_delta: 1000, restore_best_weights: true}]\n", false);
    assert_int_equal(t.run.position.step, 14);
    assert_true(t.run.evaluated);
    end(&t);
    same_file("out.safetensors", "first.safetensors");
    train(&t, "callbacks: [{name: early_stopping, min_delta: 1000, patience: 2}]\n", false);
    assert_int_equal(t.run.position.step, 21);
    end(&t);
    train(&t, "callbacks: [{name: early_stopping, min_delta: 1000, start_from_epoch: 2}]\n", false);
    assert_int_equal(t.run.position.step, 28);
    end(&t);
}

// An epoch ends with such a loss, on both splits. Returns whether the training does.
static bool ends(struct wk_run *run, struct wk_moment m, double loss)
{
    struct ps_error e;
    m.run = run;
    run->figures.n = 0;
    wk_figures_add(&run->figures, "", "loss", loss);
    wk_figures_add(&run->figures, "val_", "loss", loss);
    must(wk_callbacks_call(run->callbacks, WK_EPOCH_ENDS, &m, &e), &e);
    return m.stop;
}

static bool ends_with(struct wk_run *run, uint64_t epoch, double loss)
{
    return ends(run, (struct wk_moment){.epoch = epoch, .leads = true}, loss);
}

// Where the best figure until then is infinite the next infinity is no better, also after a checkpoint; what has been
// summed up of the epoch stays infinite.
static void goes_on_from_infinities(void **state)
{
    struct training t;
    struct ps_error e;
    (void)state;
    train(&t,
          "callbacks: [{name: early_stopping, monitor: loss, patience: 2},\n"
          "            {name: reduce_lr_on_plateau, monitor: loss, patience: 2, factor: 0.5},\n"
          "            {name: checkpoint, path: ck/best, save_best_only: true, monitor: loss},\n"
          "            {name: checkpoint, path: ck}]\n",
          false);
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    wk_meter_open(&t.run.meter, nn_replica_measures(t.run.env.replica));
    t.run.meter.sum[1] = INFINITY;
    t.run.history.loss[3] = -INFINITY;
    assert_false(ends_with(&t.run, 0, INFINITY));
    wk_callbacks_close(t.run.callbacks);
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    char *path = in_folder("ck/job-0000000028.safetensors");
    t.run.resume = path;
    must(wk_resume_load(&t.run, &e), &e);
    assert_true(t.run.meter.sum[1] == INFINITY);
    assert_true(t.run.history.loss[3] == -INFINITY);
    assert_false(ends_with(&t.run, 1, INFINITY));
    assert_true(ends_with(&t.run, 2, INFINITY));
    assert_true(home.rate(t.run.state) == (double)0.01f / 2);
    t.run.resume = NULL;
    free(path);
    end(&t);
}

// What has ended stays so, unless its settings would let it go on now.
static void stays_stopped(void **state)
{
    struct training t;
    (void)state;
    train(&t, KEPT "{name: early_stopping, min_delta: 1000, restore_best_weights: true}]\n", false);
    assert_int_equal(t.run.position.step, 14);
    end(&t);
    move("out.safetensors", "first.safetensors");
    train(&t, KEPT "{name: early_stopping, min_delta: 1000, restore_best_weights: true}]\n", true);
    assert_int_equal(t.run.position.step, 14);
    end(&t);
    same_file("out.safetensors", "first.safetensors");
    train(&t, KEPT "{name: early_stopping, min_delta: 1000, patience: 2}]\n", true);
    assert_int_equal(t.run.position.step, 21);
    end(&t);
}

static void keeps_the_best(void **state)
{
    struct training t;
    (void)state;
    train(&t, "callbacks: [{name: checkpoint, path: ck, save_best_only: true, monitor: loss, mode: max, keep: 0}]\n",
          false);
    end(&t);
    assert_true(exists("ck/job-0000000007.safetensors"));
    assert_false(exists("ck/job-0000000014.safetensors"));
}

// The first epoch is the best, and the training goes on after it from what another callback has written then.
static void goes_on_with_the_best(void **state)
{
    static const char *const jobs[] = {
        "callbacks: [{name: checkpoint, path: ck, keep: 0},\n"
        "            {name: checkpoint, path: ck/best, save_best_only: true, monitor: loss, mode: max}]\n",
        "callbacks: [{name: checkpoint, path: ck, save_best_only: true, monitor: val_loss, mode: max, keep: 0},\n"
        "            {name: checkpoint, path: ck/best, save_best_only: true, monitor: loss, mode: max}]\n"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct training t;
        remove_checkpoints();
        set = "epochs=1";
        train(&t, jobs[i], false);
        end(&t);
        set = NULL;
        train(&t, jobs[i], true);
        assert_non_null(strstr(t.resume, "/ck/job-0000000007.safetensors"));
        end(&t);
        assert_true(exists("ck/best/job-0000000007.safetensors"));
        assert_false(exists("ck/best/job-0000000028.safetensors"));
    }
}

// The first epoch is the best, but a folder is in its checkpoint's way. That of the second one is better than none.
static void keeps_the_best_that_can_be_written(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, save_best_only: true, monitor: loss, "
                              "mode: max}]\n";
    struct training t;
    char *command = ps_printf("mkdir -p '%s/ck/job-0000000007.safetensors/x'", folder);
    (void)state;
    assert_int_equal(system(command), 0);
    free(command);
    train(&t, job, false);
    end(&t);
    assert_true(exists("ck/job-0000000014.safetensors"));
    assert_false(exists("ck/job-0000000021.safetensors"));
}

enum { BEST_MS = 500 };
static bool best_fetched, best_was_late;

// The backup of the same step does not come before it.
static enum ps_code best_wait(struct wk_checkpoint_fetch *f, struct ps_error *e)
{
    (void)f, (void)e;
    for (int ms = 0; ms < BEST_MS && !best_was_late; ms += 10) {
        usleep(10000);
        best_was_late = exists("ck/job-backup-0000000007.safetensors");
    }
    return PS_OK;
}

// The first one that is written.
static enum ps_code best_save(void *state, struct wk_checkpoint *to, struct ps_error *e)
{
    static struct wk_checkpoint_fetch fetch = {slow_begin, best_wait, slow_free};
    to->fetch = best_fetched ? NULL : &fetch;
    best_fetched = true;
    return wk_one_device.home->save(state, to, e);
}

// Whatever the order in the job file.
static void a_backup_waits_for_the_best(void **state)
{
    static const char *const jobs[] = {
        "callbacks: [{name: checkpoint, path: ck, save_best_only: true, monitor: loss},\n"
        "            {name: backup, path: ck}]\n",
        "callbacks: [{name: backup, path: ck},\n"
        "            {name: checkpoint, path: ck, save_best_only: true, monitor: loss}]"
        "\n"};
    (void)state;
    home_save = best_save;
    set = "epochs=1";
    for (int i = 0; i < 2; i++) {
        struct training t;
        remove_checkpoints();
        best_fetched = best_was_late = false;
        train(&t, jobs[i], false);
        end(&t);
        assert_true(exists("ck/job-0000000007.safetensors"));
        assert_false(best_was_late);
    }
}

// A worker that takes over knows how good the best epoch was that it has heard of, and one that was cut counts as none.
static void knows_the_best_of_the_lost_chief(void **state)
{
    struct training t;
    struct ps_error e;
    (void)state;
    train(&t, "callbacks: [{name: checkpoint, path: ck, save_best_only: true, monitor: loss, mode: max, keep: 0}]\n",
          false);
    remove_checkpoints();
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    ends(&t.run, (struct wk_moment){.epoch = 0}, 5);
    ends(&t.run, (struct wk_moment){.epoch = 1, .cut = true}, 9);
    ends_with(&t.run, 2, 4);
    t.run.position.step++;
    ends_with(&t.run, 3, 6);
    wk_callbacks_close(t.run.callbacks);
    t.run.callbacks = NULL;
    assert_false(exists("ck/job-0000000028.safetensors"));
    assert_true(exists("ck/job-0000000029.safetensors"));
    end(&t);
}

// Where a folder of checkpoints cannot be made, a worker that takes over trains on.
static void takes_over_without_a_folder(void **state)
{
    struct training t;
    struct ps_error e;
    char *path = in_folder("ck");
    (void)state;
    train(&t, "callbacks: [{name: checkpoint, path: ck}]\n", false);
    remove_checkpoints();
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    assert_false(ends(&t.run, (struct wk_moment){.epoch = 0}, 5));
    assert_false(ends_with(&t.run, 1, 4));
    wk_callbacks_close(t.run.callbacks);
    t.run.callbacks = NULL;
    end(&t);
    free(path);
}

// Callbacks monitored the loss in mode max, which was 100. The training goes on: its next epoch ends with this value.
static void expect_best(const char *monitor, const char *mode, double value, bool anew)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, save_best_only: true, monitor: %s, mode: %s},\n"
                              "            {name: reduce_lr_on_plateau, patience: 1, monitor: %s, mode: %s},\n"
                              "            {name: early_stopping, patience: 1, monitor: %s, mode: %s}]\n";
    char *before = ps_printf(job, "loss", "max", "loss", "max", "loss", "max");
    char *now = ps_printf(job, monitor, mode, monitor, mode, monitor, mode);
    struct wk_checkpoint c = {.json = json_object(), .path = "checkpoint"};
    struct training t;
    struct ps_error e;
    train(&t, before, false);
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    assert_false(ends_with(&t.run, 0, 100));
    wk_callbacks_save(t.run.callbacks, &c);
    end(&t);
    train(&t, now, false);
    const double rate = home.rate(t.run.state);
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    must(wk_callbacks_load(t.run.callbacks, &c, &e), &e);
    t.run.position.step = 99;
    assert_int_equal(ends_with(&t.run, 1, value), !anew);
    assert_int_equal(home.rate(t.run.state) == rate, anew);
    wk_callbacks_close(t.run.callbacks);
    t.run.callbacks = NULL;
    assert_int_equal(exists("ck/job-0000000099.safetensors"), anew);
    end(&t);
    json_decref(c.json);
    free(before);
    free(now);
}

// With another figure, or in the other mode, nothing is the best yet, and no epoch was in vain.
static void begins_anew_with_another_figure(void **state)
{
    (void)state;
    expect_best("loss", "max", 50, false);
    expect_best("loss", "min", 200, true);
    expect_best("val_loss", "max", 50, true);
}

// What an early_stopping in mode auto goes by: "up", "down", or what refuses it.
static void monitors(const char *name, const char *expected)
{
    static const struct ps_loss loss[] = {PS_LOSS(.kind = PS_LOSS_MSE), PS_LOSS(.kind = PS_LOSS_MSE)};
    struct training t = {.run = {.quiet = true}};
    struct ps_error e = {.code = PS_OK};
    struct wk_monitor m;
    struct nn_metric metric[4];
    char *lines = ps_printf("callbacks: [{name: early_stopping, monitor: %s}]\n", name);
    set = "metrics=[mae, cosine_similarity, binary_accuracy, recall]";
    open_job(&t, lines);
    for (size_t i = 0; i < 4; i++)
        metric[i] = (struct nn_metric){t.job->metrics.of[i].metric, i / 2};
    must(nn_model_parse(outputs_text, "test", &t.model, &e), &e);
    must(nn_replica_create(t.model, "ref", BATCH, 1, 1, loss, &t.run.env.replica, &e), &e);
    must(nn_replica_measure(t.run.env.replica, metric, 4, &e), &e);
    must(wk_data_open(&t.job->data, t.model, 0, &t.run.data, &e), &e);
    const enum ps_code code = wk_monitor_open(&t.job->callbacks.v[0], 0, &t.run, &m, &e);
    const char *found = code ? e.text : m.up ? "up" : "down";
    if (!strstr(found, expected))
        fail_msg("%s: expected %s, not %s", name, expected, found);
    end(&t);
    free(lines);
}

// By the metric, whatever the output is called.
static void monitors_by_the_metric(void **state)
{
    (void)state;
    monitors("loss", "down");
    monitors("val_loss", "down");
    monitors("acceleration_loss", "down");
    monitors("val_acceleration_loss", "down");
    monitors("val_acceleration_mae", "down");
    monitors("error_binary_accuracy", "up");
    monitors("val_error_recall", "up");
    monitors("val_acceleration_cosine_similarity", "up");
    monitors("learning_rate", "set mode to min or max");
}

// The rate after each epoch, by Keras's rules: patience 1, and an epoch that cools does not count.
static void reduces_the_rate(void **state)
{
    struct training t;
    (void)state;
    set = "epochs=6";
    train(&t,
          "callbacks: [{name: reduce_lr_on_plateau, min_delta: 1000, patience: 1, factor: 0.5, cooldown: 1, min_lr: "
          "0.003}]\n",
          false);
    // Epochs 2, 3 and 4 (the cool one is the one in which the wait begins anew), then min_lr.
    assert_true(home.rate(t.run.state) == 0.003);
    end(&t);
    set = "epochs=3";
    train(&t, "callbacks: [{name: reduce_lr_on_plateau, min_delta: 1000, patience: 2, factor: 0.5}]\n", false);
    assert_true(home.rate(t.run.state) == (double)0.01f / 2);
    assert_non_null(wk_figures_find(&t.run.figures, "learning_rate"));
    end(&t);
    train(&t, "callbacks: [reduce_lr_on_plateau, {name: reduce_lr_on_plateau, monitor: loss}]\n", false);
    assert_int_equal(t.run.figures.n, 2 * 2 + 1);  // the rate is there once
    end(&t);
}

// At min_lr nothing is left to reduce: the float32 nearest to 0.1 is above it.
static void reduces_to_min_lr_once(void **state)
{
    struct training t;
    (void)state;
    set = "optimizer={name: sgd, learning_rate: 0.3}";
    train(&t, "callbacks: [{name: reduce_lr_on_plateau, min_delta: 1000, patience: 0, min_lr: 0.1}]\n", false);
    assert_true((float)home.rate(t.run.state) == 0.1f);
    assert_int_equal(rates_set, 1);
    end(&t);
}

#define WARMS_UP "optimizer={name: adam, learning_rate: 0.01, scale_learning_rate: linear, warmup_epochs: "

// Not before the last epoch that warms up has ended; from then on the rate is that of the callback, also in a training
// that goes on.
static void reduces_a_rate_that_has_warmed_up(void **state)
{
    static const char job[] = LOGS "  - {name: reduce_lr_on_plateau, min_delta: 1000, patience: 0, factor: 0.5}\n";
    struct training t;
    (void)state;
    set = WARMS_UP "4}";
    train(&t, job, false);
    assert_true(home.rate(t.run.state) == (double)0.01f / 2);
    end(&t);
    remove_checkpoints();
    set = WARMS_UP "2}";
    train(&t, job, false);
    const uint64_t steps = t.run.position.step;
    const double loss = t.run.history.loss[steps - 1];
    assert_true(home.rate(t.run.state) == (double)0.01f / 8);
    end(&t);
    move("out.safetensors", "whole.safetensors");
    move("log.csv", "whole.csv");
    move("log.jsonl", "whole.jsonl");
    kill_and_go_on(LOGS "  - {name: reduce_lr_on_plateau, min_delta: 1000, patience: 0, factor: 0.5}\n"
                        "  - {name: checkpoint, path: ck, every_steps: 1}\n",
                   17, steps, loss);
}

// A rate that makes infinities of the weights.
static void terminates_on_nan(void **state)
{
    struct training t;
    (void)state;
    set = "optimizer={name: sgd, learning_rate: 1000000, weight_decay: 1000000}";
    train(&t, "callbacks: [terminate_on_nan]\n", false);
    uint64_t steps = t.run.position.step;
    end(&t);
    assert_true(steps < STEPS);
}

// Such weights take no finite ones' place, and no backup goes for them.
static void keeps_finite_checkpoints(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 1},\n"
                              "            {name: backup, path: backups, every_steps: 1}]\n";
    const struct wk_lost none = {0};
    struct training t;
    struct wk_found found;
    struct ps_error e;
    (void)state;
    set = "optimizer={name: sgd, learning_rate: 1000000, weight_decay: 1000000}";
    train(&t, job, false);
    assert_int_equal(t.run.position.step, STEPS);
    assert_non_null(wk_nonfinite_weights(&t.run));
    for (int backups = 0; backups < 2; backups++) {
        must(wk_search_newest(t.job, backups, &none, &found, &e), &e);
        assert_non_null(found.path);
        assert_non_null(strstr(found.path, backups ? "/backups/" : "/ck/"));
        const struct nn_param *p = nn_model_param(t.model, 0);
        const float *kernel = wk_checkpoint_find(&found.read, NULL, p->name, p->count, &e);
        assert_non_null(kernel);
        assert_int_equal(ps_nonfinite(PS_FLOAT32, kernel, p->count), 0);
        wk_found_free(&found);
    }
    end(&t);
}

// Nor do they turn the end that a signal asks for into another.
static void ends_as_asked_with_weights_of_nan(void **state)
{
    static const char job[] = "callbacks: [{name: checkpoint, path: ck, every_steps: 1}]\n";
    struct training t;
    (void)state;
    set = "optimizer={name: sgd, learning_rate: 1000000, weight_decay: 1000000}";
    signal_step = STEPS - 2;
    signal_number = SIGTERM;
    assert_int_equal(train_here(&t, job, false), PS_CANCELLED);
    assert_non_null(wk_nonfinite_weights(&t.run));
    assert_non_null(strstr(t.error.text, "stopped by SIGTERM after step"));
    end(&t);
}

// What is NaN from the first epoch on is never better: the training ends as where nothing becomes better.
static void stops_early_on_nan(void **state)
{
    struct training t;
    (void)state;
    set = "optimizer={name: sgd, learning_rate: 1000000, weight_decay: 1000000}";
    train(&t,
          "callbacks: [{name: early_stopping, monitor: loss, patience: 1},\n"
          "            {name: checkpoint, path: ck, save_best_only: true, monitor: loss}]\n",
          false);
    assert_true(isnan(*wk_figures_find(&t.run.figures, "loss")));
    assert_int_equal(t.run.position.step, 14);
    assert_false(exists("ck/job-0000000007.safetensors"));
    end(&t);
}

static void logs(void **state)
{
    struct training t;
    size_t size;
    (void)state;
    set = "epochs=2";
    train(&t, "callbacks: [{name: csv_log, path: log.csv, separator: ;}, {name: json_lines, path: l}]\n", false);
    const double loss = *wk_figures_find(&t.run.figures, "loss");
    end(&t);
    char *text = read_text("log.csv", &size), *line = strchr(text, '\n') + 1, *second = strchr(line, '\n') + 1;
    assert_memory_equal(text, "epoch;accuracy;loss;val_accuracy;val_loss\r\n0;0.", 46);
    assert_memory_equal(second, "1;0.", 4);
    assert_true(strtod(strchr(second + 2, ';') + 1, NULL) == loss);
    free(text);
    text = read_text("l", &size);
    json_t *first = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    assert_int_equal(json_integer_value(json_object_get(first, "step")), 7);
    assert_true(json_is_real(json_object_get(first, "val_loss")));
    json_decref(first);
    free(text);
}

// Ten of each f1, and the losses after them: the callbacks have all of them, also where the training goes on.
static void keeps_all_figures(void **state)
{
    static const char job[] = LOGS "  - {name: early_stopping, monitor: val_loss, patience: 9}\n";
    struct training t;
    (void)state;
    set = "metrics=[accuracy, f1, f1, f1, f1, f1, f1, f1, f1]";
    train(&t, job, false);
    const uint64_t steps = t.run.position.step;
    const double loss = t.run.history.loss[steps - 1];
    assert_int_equal(t.run.figures.n, 2 * (1 + 8 * 10 + 1));
    assert_string_equal(t.run.figures.v[t.run.figures.n - 1].name, "val_loss");
    end(&t);
    move("out.safetensors", "whole.safetensors");
    move("log.csv", "whole.csv");
    move("log.jsonl", "whole.jsonl");
    kill_and_go_on(LOGS "  - {name: early_stopping, monitor: val_loss, patience: 9}\n"
                        "  - {name: checkpoint, path: ck, every_steps: 1}\n",
                   17, steps, loss);
}

// A training that goes on goes on in the same files, in which no epoch stands twice.
static void tensorboard_goes_on(void **state)
{
    static const char job[] = "callbacks: [{name: tensorboard, path: tb, histogram_freq: 1, update_steps: 2},\n"
                              "            {name: checkpoint, path: ck, every_steps: 3}]\n";
    struct training t;
    (void)state;
    train(&t, job, true);
    end(&t);
    char *count = ps_printf("cat %s/tb/*/events.out.tfevents.* | wc -c >%s/size; ls %s/tb/* | grep -c events >>%s/size",
                            folder, folder, folder, folder);
    size_t size;
    assert_int_equal(system(count), 0);
    char *whole = read_text("size", &size);
    assert_non_null(strstr(whole, "\n2\n"));
    char *command = ps_printf("rm -rf %s/tb %s/ck", folder, folder);
    assert_int_equal(system(command), 0);
    train_and_die(job, 17, true);
    train(&t, job, true);
    end(&t);
    assert_int_equal(system(count), 0);
    char *again = read_text("size", &size);
    assert_string_equal(whole, again);
    free(whole);
    free(again);
    free(count);
    free(command);
}

// How many event files a folder has.
static long event_files(const char *name)
{
    size_t size;
    char *count = ps_printf("ls %s/%s/ 2>/dev/null | grep -c events >%s/n", folder, name, folder);
    assert_true(system(count) >= 0);
    char *text = read_text("n", &size);
    const long n = strtol(text, NULL, 10);
    free(count);
    free(text);
    return n;
}

#define BOARD(path) "callbacks: [{name: tensorboard, path: " path "}, {name: checkpoint, path: ck, every_steps: 3}]\n"

// The files are looked for where the job says, by their names: where the folder has moved they grow there, and in a new
// one others begin.
static void tensorboard_moves(void **state)
{
    struct training t;
    (void)state;
    train_and_die(BOARD("tb"), 17, true);
    char *old = in_folder("old");
    assert_int_equal(mkdir(old, 0777), 0);
    free(old);
    move("tb", "old/tb");
    train_and_die(BOARD("old/tb"), 23, true);
    assert_int_equal(event_files("old/tb/train"), 1);
    train(&t, BOARD("new"), true);
    end(&t);
    assert_int_equal(event_files("old/tb/train"), 1);
    assert_int_equal(event_files("new/train"), 1);
    assert_int_equal(event_files("new/validation"), 1);
    assert_false(exists("tb"));
}

#define LOST "events.out.tfevents.0000000001.lost.1"

// A worker that takes over leaves the file of the chief that was lost as it is, and has one of its own.
static void tensorboard_takes_over(void **state)
{
    static const char job[] = "callbacks: [{name: tensorboard, path: tb}]\n";
    struct training t;
    struct ps_error e;
    size_t size;
    (void)state;
    train(&t, job, false);
    struct wk_checkpoint c = {.json = json_pack("{s: {s: {s: {s: s, s: i}}}}", "callbacks", "tensorboard", "train",
                                                "path", LOST, "length", 2),
                              .path = "checkpoint"};
    char *command = ps_printf("rm %s/tb/*/events*", folder);
    assert_int_equal(system(command), 0);
    write_text("tb/train/" LOST, "half");
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    must(wk_callbacks_load(t.run.callbacks, &c, &e), &e);
    ends_with(&t.run, 4, 1);
    end(&t);
    assert_int_equal(event_files("tb/train"), 2);
    char *text = read_text("tb/train/" LOST, &size);
    assert_int_equal(size, strlen("half"));
    free(text);
    free(command);
    json_decref(c.json);
}

// Is the text in a file of this folder?
static bool is_within(const char *text, const char *of)
{
    char *command = ps_printf("grep -raq '%s' '%s/%s'", text, folder, of);
    const int status = system(command);
    free(command);
    return status == 0;
}

// Of the output val_kind: a figure of the training whose name begins as those of the test split do.
static void an_outputs_name_is_no_split(void **state)
{
    static const char job[] = "callbacks: [{name: tensorboard, path: tb}, {name: checkpoint, path: ck}]\n";
    struct training t;
    struct ps_error e;
    (void)state;
    train(&t, job, false);
    const size_t n = t.run.figures.n;
    must(wk_callbacks_open(&t.run, &t.run.callbacks, &e), &e);
    const double measured = *wk_figures_find(&t.run.figures, "val_loss");
    wk_figures_add(&t.run.figures, "", "val_kind_loss", 3);
    wk_figures_add(&t.run.figures, "", "val_loss", -3);  // an output val's
    must(wk_evaluate(&t.run, &e), &e);
    assert_int_equal(t.run.figures.n, n + 1);
    assert_true(*wk_figures_find(&t.run.figures, "val_kind_loss") == 3);
    assert_true(*wk_figures_find(&t.run.figures, "val_loss") == measured);
    must(wk_callbacks_call(t.run.callbacks, WK_EPOCH_ENDS,
                           &(struct wk_moment){.run = &t.run, .epoch = 4, .leads = true}, &e),
         &e);
    end(&t);
    assert_true(is_within("epoch_val_kind_loss", "tb/train"));
    assert_true(is_within("epoch_loss", "tb/validation"));
    assert_false(is_within("epoch_kind_loss", "tb/validation"));
    train(&t, job, true);
    assert_int_equal(t.run.figures.n, n + 1);
    assert_true(*wk_figures_find(&t.run.figures, "val_kind_loss") == 3);
    end(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(goes_on_as_if_never_killed, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(goes_on_from_infinities, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(ends_a_cut_epoch_once, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(is_killed_again, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(reads_what_was_found_once, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(goes_on_with_its_seed, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(backs_up, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(leaves_another_jobs_checkpoints, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(removes_the_oldest_first, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(passes_over_damaged, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(waits_for_unreadable, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(passes_over_lost, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(warns_of_another_training, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(goes_on_without, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(does_not_wait_for_a_slow_disk, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(writes_what_there_is, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(writes_once_after_a_signal, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(says_that_no_weights_are_kept, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(each_writes_what_it_can, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(a_step_that_does_not_count_is_taken_again, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(an_end_of_the_same_signal_is_that, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(a_checkpoint_is_named_beyond_those_of_others, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(a_step_that_counts_late_is_not_taken_again, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(a_period_that_does_not_count_is_taken_again, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(looks_again_at_what_is_whole, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(remembers_no_step_for_ever, begin_folder, end_folder),
    cmocka_unit_test(keeps_the_newest_steps),
    cmocka_unit_test_setup_teardown(writes_weights_where_it_does_not_look, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(refuses_another_jobs_checkpoint, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(refuses_what_was_added_to_a_job, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(takes_a_vocabulary_from_elsewhere, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(refuses_words_with_other_numbers, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(refuses_what_is_wrong_in_a_checkpoint, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(stops_early, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(stays_stopped, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(keeps_the_best, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(goes_on_with_the_best, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(keeps_the_best_that_can_be_written, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(a_backup_waits_for_the_best, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(knows_the_best_of_the_lost_chief, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(takes_over_without_a_folder, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(begins_anew_with_another_figure, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(monitors_by_the_metric, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(reduces_the_rate, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(reduces_to_min_lr_once, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(reduces_a_rate_that_has_warmed_up, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(terminates_on_nan, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(keeps_finite_checkpoints, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(ends_as_asked_with_weights_of_nan, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(stops_early_on_nan, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(logs, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(keeps_all_figures, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(tensorboard_goes_on, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(tensorboard_moves, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(tensorboard_takes_over, begin_folder, end_folder),
    cmocka_unit_test_setup_teardown(an_outputs_name_is_no_split, begin_folder, end_folder),
};

int main(void)
{
    ps_log_init("test", PS_LOG_ERROR);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
