// SPDX-License-Identifier: Apache-2.0
//
// workerd/job/callback.c: two workers with the same callbacks, of whom one is the chief, is lost, and the other takes
// over.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "workerd/job/callback.h"

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

// ---- workers --------------------------------------------------------------------------------------------------------

struct worker {
    struct wk_run run;
    struct ps_job *job;
    struct wk_callbacks *callbacks;
};

static char csv[] = "/tmp/test_callbacks.XXXXXX", json[] = "/tmp/test_callbacks.XXXXXX";
static char logs[256];  // callbacks with these files

static int make_files(void **state)
{
    (void)state;
    strcpy(csv + sizeof csv - 7, "XXXXXX");
    strcpy(json + sizeof json - 7, "XXXXXX");
    close(mkstemp(csv));
    close(mkstemp(json));
    snprintf(logs, sizeof logs, "{name: csv_log, path: %s}, {name: json_lines, path: %s}", csv, json);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(csv);
    unlink(json);
    return 0;
}

static void start_with(struct worker *w, const char *callbacks)
{
    struct ps_error e = {.code = PS_OK};
    char text[1024];
    memset(w, 0, sizeof *w);
    snprintf(text, sizeof text,
             "model: m\ndata: {kind: synthetic-digits}\nloss: {name: sparse_categorical_crossentropy}\n"
             "optimizer: {name: sgd}\nbatch_size: 1\nepochs: 9\noutput: o\ncallbacks: [%s]\n",
             callbacks);
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &w->job, &e), &e);
    w->run.env.job = w->job;
    must(wk_callbacks_open(&w->run, &w->callbacks, &e), &e);
}

static void start(struct worker *w)
{
    start_with(w, logs);
}

static void chief_begins(struct worker *w)
{
    struct ps_error e = {.code = PS_OK};
    must(wk_callbacks_begin(w->callbacks, &w->run, false, &e), &e);
}

static void tell(struct worker *w, enum wk_event event, struct wk_moment m)
{
    struct ps_error e = {.code = PS_OK};
    m.run = &w->run;
    must(wk_callbacks_call(w->callbacks, event, &m, &e), &e);
}

// Of epoch n, the loss is n.
static void end_epoch(struct worker *w, uint64_t epoch, bool leads)
{
    w->run.position = (struct wk_position){.epoch = epoch + 1, .step = 10 * (epoch + 1)};
    w->run.figures.n = 0;
    wk_figures_add(&w->run.figures, "", "loss", (double)epoch);
    tell(w, WK_EPOCH_ENDS, (struct wk_moment){.epoch = epoch, .leads = leads});
}

static void step(struct worker *w, bool leads)
{
    w->run.position.first = 1;
    tell(w, WK_STEP, (struct wk_moment){.leads = leads});
}

static void stop(struct worker *w)
{
    wk_callbacks_close(w->callbacks);
    w->callbacks = NULL;
    wk_figures_free(&w->run.figures);
    ps_job_free(w->job);
}

// ---- files ----------------------------------------------------------------------------------------------------------

static void append(const char *path, const char *text)
{
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect_text(const char *path, const char *wanted)
{
    char text[1024] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_string_equal(text, wanted);
}

// Both logs have these epochs, each once.
static void expect_epochs(uint64_t first, uint64_t n)
{
    char rows[512] = "epoch,loss\r\n", objects[512] = "";
    for (uint64_t i = first; i < first + n; i++) {
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "%d,%d.0\r\n", (int)i, (int)i);
        snprintf(objects + strlen(objects), sizeof objects - strlen(objects),
                 "{\"epoch\": %d, \"step\": %d, \"loss\": %d.0}\n", (int)i, (int)(10 * (i + 1)), (int)i);
    }
    expect_text(csv, rows);
    expect_text(json, objects);
}

// ---- tests ----------------------------------------------------------------------------------------------------------

static void begin_two(struct worker w[2])
{
    start(&w[0]);
    start(&w[1]);
    chief_begins(&w[0]);
    for (uint64_t epoch = 0; epoch < 2; epoch++)
        for (int i = 0; i < 2; i++)
            end_epoch(&w[i], epoch, i == 0);
}

// The chief is lost when the epoch has ended for all, and it has not written its line.
static void writes_what_the_lost_chief_has_not(void **state)
{
    struct worker w[2];
    (void)state;
    begin_two(w);
    stop(&w[0]);
    end_epoch(&w[1], 2, false);
    step(&w[1], true);
    expect_epochs(0, 3);
    end_epoch(&w[1], 3, true);
    expect_epochs(0, 4);
    stop(&w[1]);
}

// It is lost when it has written its line, and the others end the epoch anew, without it.
static void writes_no_line_twice(void **state)
{
    struct worker w[2];
    (void)state;
    begin_two(w);
    end_epoch(&w[0], 2, true);
    stop(&w[0]);
    end_epoch(&w[1], 2, true);
    expect_epochs(0, 3);
    end_epoch(&w[1], 3, true);
    expect_epochs(0, 4);
    stop(&w[1]);
}

static void cuts_half_a_line_off(void **state)
{
    struct worker w[2];
    (void)state;
    begin_two(w);
    append(csv, "2,");
    append(json, "{\"epoch\": 2, \"st");
    stop(&w[0]);
    end_epoch(&w[1], 2, false);
    step(&w[1], true);
    expect_epochs(0, 3);
    stop(&w[1]);
}

// Lines stay in a file that may be written to and not read; whether the last one is among them cannot be known.
static void keeps_what_it_cannot_read(void **state)
{
    const bool root = geteuid() == 0;
    struct worker w[2];
    (void)state;
    begin_two(w);
    stop(&w[0]);
    assert_int_equal(chmod(csv, 0222) | chmod(json, 0222), 0);
    assert_int_equal(root ? seteuid(65534) : 0, 0);
    step(&w[1], true);
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(chmod(csv, 0600) | chmod(json, 0600), 0);
    end_epoch(&w[1], 2, true);
    expect_epochs(0, 3);
    stop(&w[1]);
}

// Where it has no disk in common with the chief, its log begins with the last epoch that it heard of.
static void begins_a_log_of_its_own(void **state)
{
    struct worker w[2];
    (void)state;
    begin_two(w);
    stop(&w[0]);
    unlink(csv);
    unlink(json);
    step(&w[1], true);
    end_epoch(&w[1], 2, true);
    expect_epochs(1, 2);
    stop(&w[1]);
}

// All have loaded a checkpoint, the chief has cut its logs back to that, and it is lost some epochs later.
static void keeps_what_was_written_since_a_resume(void **state)
{
    struct worker w[2];
    struct wk_checkpoint from = {.json = json_object(), .path = "checkpoint"};
    struct ps_error e = {.code = PS_OK};
    (void)state;
    begin_two(w);
    wk_callbacks_save(w[0].callbacks, &from);
    end_epoch(&w[0], 2, true);
    stop(&w[0]);
    stop(&w[1]);
    for (int i = 0; i < 2; i++) {
        start(&w[i]);
        w[i].run.position = (struct wk_position){.epoch = 2, .step = 20};
        must(wk_callbacks_load(w[i].callbacks, &from, &e), &e);
    }
    chief_begins(&w[0]);
    expect_epochs(0, 2);
    for (uint64_t epoch = 2; epoch < 4; epoch++)
        for (int i = 0; i < 2; i++)
            end_epoch(&w[i], epoch, i == 0);
    stop(&w[0]);
    step(&w[1], true);
    end_epoch(&w[1], 4, true);
    expect_epochs(0, 5);
    stop(&w[1]);
    json_decref(from.json);
}

// ---- names --------------------------------------------------------------------------------------------------------

// An epoch with these two figures, 0.25 and 0.75.
static void end_epoch_with(struct worker *w, const char *accuracy, const char *loss)
{
    w->run.position = (struct wk_position){.epoch = 1, .step = 10};
    w->run.figures.n = 0;
    wk_figures_add(&w->run.figures, "", accuracy, 0.25);
    wk_figures_add(&w->run.figures, "", loss, 0.75);
    tell(w, WK_EPOCH_ENDS, (struct wk_moment){.leads = true});
}

// Those of a layer may have 128 bytes, and what is measured of it comes behind.
static void long_names_stay_whole(void **state)
{
#define TEN "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
#define LAYER TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "12345678"
    struct worker w;
    (void)state;
    start(&w);
    chief_begins(&w);
    end_epoch_with(&w, LAYER "_accuracy", LAYER "_loss");
    expect_text(csv, "epoch," LAYER "_accuracy," LAYER "_loss\r\n0,0.25,0.75\r\n");
    expect_text(json, "{\"epoch\": 0, \"step\": 10, \"" LAYER "_accuracy\": 0.25, \"" LAYER "_loss\": 0.75}\n");
    wk_figures_add(&w.run.figures, "val_", LAYER "_loss", 0.5);
    assert_true(*wk_figures_find(&w.run.figures, "val_" LAYER "_loss") == 0.5);
    stop(&w);
}

// A layer's name may have anything in it.
static void names_are_quoted(void **state)
{
    struct worker w;
    (void)state;
    start(&w);
    chief_begins(&w);
    end_epoch_with(&w, "pri\"o, x_accuracy", "back\\slash_loss");
    expect_text(csv, "epoch,\"pri\"\"o, x_accuracy\",back\\slash_loss\r\n0,0.25,0.75\r\n");
    expect_text(json, "{\"epoch\": 0, \"step\": 10, \"pri\\\"o, x_accuracy\": 0.25, \"back\\\\slash_loss\": 0.75}\n");
    stop(&w);
}

// Where the separator is in them; whoever takes over finds the epoch all the same.
static void numbers_are_quoted(void **state)
{
    char text[128];
    struct worker w[2];
    (void)state;
    snprintf(text, sizeof text, "{name: csv_log, path: %s, separator: '0'}", csv);
    for (int i = 0; i < 2; i++)
        start_with(&w[i], text);
    chief_begins(&w[0]);
    for (int i = 0; i < 2; i++)
        end_epoch(&w[i], 0, i == 0);
    expect_text(csv, "epoch0loss\r\n\"0\"0\"0.0\"\r\n");
    stop(&w[0]);
    step(&w[1], true);
    expect_text(csv, "epoch0loss\r\n\"0\"0\"0.0\"\r\n");
    end_epoch(&w[1], 1, true);
    expect_text(csv, "epoch0loss\r\n\"0\"0\"0.0\"\r\n10\"1.0\"\r\n");
    stop(&w[1]);
}

// ---- checkpoints --------------------------------------------------------------------------------------------------

// A worker that goes on from what another one has saved.
static void go_on(struct worker *w, const char *callbacks, const struct wk_checkpoint *from)
{
    struct ps_error e = {.code = PS_OK};
    start_with(w, callbacks);
    w->run.position = (struct wk_position){.epoch = 1, .step = 10};
    must(wk_callbacks_load(w->callbacks, from, &e), &e);
}

// While it holds, no file becomes longer than that.
static struct rlimit limit_files(rlim_t bytes)
{
    struct rlimit old, less;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    less = (struct rlimit){bytes, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    return old;
}

static void end_epoch_on_full_disk(struct worker *w, uint64_t epoch, rlim_t bytes)
{
    const struct rlimit old = limit_files(bytes);
    end_epoch(w, epoch, true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
}

// The training goes on where the disk is full, and no half line stays in a log that has room again.
static void a_full_disk_ends_no_training(void **state)
{
    struct worker w;
    (void)state;
    start(&w);
    chief_begins(&w);
    end_epoch_on_full_disk(&w, 0, 5);
    expect_text(csv, "");
    expect_text(json, "");
    end_epoch(&w, 1, true);
    expect_epochs(1, 1);
    end_epoch_on_full_disk(&w, 2, strlen("epoch,loss\r\n1,1.0\r\n") + 3);
    expect_epochs(1, 1);
    end_epoch(&w, 3, true);
    expect_text(csv, "epoch,loss\r\n1,1.0\r\n3,3.0\r\n");
    stop(&w);
}

// A worker that takes over goes on without the log that it cannot open, and a checkpoint does not say how long that is.
static void takes_over_without_a_log(void **state)
{
    struct worker w[2];
    struct wk_checkpoint from = {.json = json_object(), .path = "checkpoint"};
    (void)state;
    begin_two(w);
    stop(&w[0]);
    unlink(csv);
    assert_int_equal(mkdir(csv, 0777), 0);
    end_epoch(&w[1], 2, false);
    step(&w[1], true);
    end_epoch(&w[1], 3, true);
    wk_callbacks_save(w[1].callbacks, &from);
    stop(&w[1]);
    assert_int_equal(rmdir(csv), 0);
    append(csv, "epoch,loss\r\n0,0.0\r\n1,1.0\r\n2,2.0\r\n3,3.0\r\n");
    expect_epochs(0, 4);
    go_on(&w[0], logs, &from);
    chief_begins(&w[0]);
    expect_epochs(0, 4);
    stop(&w[0]);
    json_decref(from.json);
}

// Which csv_log is which says its path: the second goes on where the first is not there any more. Where its folder has
// another name, the file's says it; of another file nothing is cut off.
static void states_go_by_path(void **state)
{
    struct worker w;
    struct wk_checkpoint from = {.json = json_object(), .path = "checkpoint"};
    char text[512], other[64];
    (void)state;
    snprintf(other, sizeof other, "%s.other", csv);
    snprintf(text, sizeof text, "{name: csv_log, path: %s}, {name: csv_log, path: %s}", json, csv);
    append(json, "0");  // so that they have not the same length
    start_with(&w, text);
    w.run.position.first = 1;
    chief_begins(&w);
    end_epoch(&w, 0, true);
    wk_callbacks_save(w.callbacks, &from);
    stop(&w);
    append(csv, "1,1.0\r\n");
    snprintf(text, sizeof text, "{name: csv_log, path: %s}", csv);
    go_on(&w, text, &from);
    chief_begins(&w);
    expect_text(csv, "epoch,loss\r\n0,0.0\r\n");
    stop(&w);
    append(csv, "1,1.0\r\n");
    snprintf(text, sizeof text, "{name: csv_log, path: /tmp/../tmp%s}", strrchr(csv, '/'));
    go_on(&w, text, &from);
    chief_begins(&w);
    expect_text(csv, "epoch,loss\r\n0,0.0\r\n");
    stop(&w);
    append(other, "epoch,loss\r\n0,0.5\r\n1,0.25\r\n");
    snprintf(text, sizeof text, "{name: csv_log, path: %s}", other);
    go_on(&w, text, &from);
    chief_begins(&w);
    expect_text(other, "epoch,loss\r\n0,0.5\r\n1,0.25\r\n");
    stop(&w);
    unlink(other);
    json_decref(from.json);
}

// What an older version has saved goes by the number among those of a name.
static void states_without_a_path_go_by_key(void **state)
{
    struct worker w;
    struct wk_checkpoint from = {.json = json_object(), .path = "checkpoint"};
    (void)state;
    start(&w);
    chief_begins(&w);
    end_epoch(&w, 0, true);
    wk_callbacks_save(w.callbacks, &from);
    stop(&w);
    json_t *all = json_object_get(from.json, "callbacks");
    assert_int_equal(json_object_del(json_object_get(all, "csv_log"), "path"), 0);
    assert_int_equal(json_object_del(json_object_get(all, "json_lines"), "path"), 0);
    append(csv, "1,1.0\r\n");
    append(json, "{\"epoch\": 1");
    go_on(&w, logs, &from);
    chief_begins(&w);
    expect_epochs(0, 1);
    stop(&w);
    json_decref(from.json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_what_the_lost_chief_has_not, make_files, remove_files),
        cmocka_unit_test_setup_teardown(writes_no_line_twice, make_files, remove_files),
        cmocka_unit_test_setup_teardown(cuts_half_a_line_off, make_files, remove_files),
        cmocka_unit_test_setup_teardown(keeps_what_it_cannot_read, make_files, remove_files),
        cmocka_unit_test_setup_teardown(begins_a_log_of_its_own, make_files, remove_files),
        cmocka_unit_test_setup_teardown(keeps_what_was_written_since_a_resume, make_files, remove_files),
        cmocka_unit_test_setup_teardown(a_full_disk_ends_no_training, make_files, remove_files),
        cmocka_unit_test_setup_teardown(takes_over_without_a_log, make_files, remove_files),
        cmocka_unit_test_setup_teardown(states_go_by_path, make_files, remove_files),
        cmocka_unit_test_setup_teardown(states_without_a_path_go_by_key, make_files, remove_files),
        cmocka_unit_test_setup_teardown(long_names_stay_whole, make_files, remove_files),
        cmocka_unit_test_setup_teardown(names_are_quoted, make_files, remove_files),
        cmocka_unit_test_setup_teardown(numbers_are_quoted, make_files, remove_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
