// SPDX-License-Identifier: Apache-2.0
//
// workerd/job/callback.c: two workers with the same callbacks, of whom one is the chief, is lost, and the other takes
// over.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int make_files(void **state)
{
    (void)state;
    strcpy(csv + sizeof csv - 7, "XXXXXX");
    strcpy(json + sizeof json - 7, "XXXXXX");
    close(mkstemp(csv));
    close(mkstemp(json));
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(csv);
    unlink(json);
    return 0;
}

static void start(struct worker *w)
{
    struct ps_error e = {.code = PS_OK};
    char text[512];
    memset(w, 0, sizeof *w);
    snprintf(text, sizeof text,
             "model: m\ndata: {kind: synthetic-digits}\nloss: {name: sparse_categorical_crossentropy}\n"
             "optimizer: {name: sgd}\nbatch_size: 1\nepochs: 9\noutput: o\n"
             "callbacks: [{name: csv_log, path: %s}, {name: json_lines, path: %s}]\n",
             csv, json);
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &w->job, &e), &e);
    w->run.env.job = w->job;
    must(wk_callbacks_open(&w->run, &w->callbacks, &e), &e);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_what_the_lost_chief_has_not, make_files, remove_files),
        cmocka_unit_test_setup_teardown(writes_no_line_twice, make_files, remove_files),
        cmocka_unit_test_setup_teardown(cuts_half_a_line_off, make_files, remove_files),
        cmocka_unit_test_setup_teardown(begins_a_log_of_its_own, make_files, remove_files),
        cmocka_unit_test_setup_teardown(keeps_what_was_written_since_a_resume, make_files, remove_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
