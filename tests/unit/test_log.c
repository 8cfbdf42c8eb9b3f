// SPDX-License-Identifier: Apache-2.0
//
// common/base/log: what a line looks like to a person, to the journal and to a program.
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"

static struct {
    char text[8192];
    int stderr_before, ends[2];
} caught;

static void catch_begin(void)
{
    caught.stderr_before = dup(STDERR_FILENO);
    assert_int_equal(pipe(caught.ends), 0);
    dup2(caught.ends[1], STDERR_FILENO);
}

// What has been written since.
static const char *catch_end(void)
{
    dup2(caught.stderr_before, STDERR_FILENO);
    close(caught.stderr_before);
    close(caught.ends[1]);
    const ssize_t n = read(caught.ends[0], caught.text, sizeof caught.text - 1);
    close(caught.ends[0]);
    caught.text[n > 0 ? n : 0] = '\0';
    return caught.text;
}

// As a service's, whose stderr is this pipe.
static void give_to_journal(void)
{
    char stream[64];
    struct stat s;
    assert_int_equal(fstat(STDERR_FILENO, &s), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)s.st_dev, (unsigned long long)s.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
}

static int reset(void **state)
{
    (void)state;
    unsetenv("JOURNAL_STREAM");
    unsetenv("PARAMSERVER_LOG");
    return 0;
}

static void test_plain(void **state)
{
    (void)state;
    catch_begin();
    ps_log_init("psd[0]", PS_LOG_INFO);
    ps_warn("a \"word\"\nand\033[2J more");
    ps_debug("nobody hears this");
    assert_string_equal(catch_end(), "psd[0] W a \"word\"?and?[2J more\n");
}

static void test_journal(void **state)
{
    (void)state;
    catch_begin();
    give_to_journal();
    ps_log_init("psd[0]", PS_LOG_INFO);
    ps_error_log("one");
    ps_warn("two");
    ps_info("three");
    assert_string_equal(catch_end(), "<3>psd[0] one\n<4>psd[0] two\n<6>psd[0] three\n");
}

// The variable is inherited by programs whose stderr is another file.
static void test_not_the_journal(void **state)
{
    (void)state;
    setenv("JOURNAL_STREAM", "1:2", 1);
    catch_begin();
    ps_log_init("psctl", PS_LOG_INFO);
    ps_info("one");
    assert_string_equal(catch_end(), "psctl I one\n");
}

static void pass(struct ps_log_relay *r, const char *text)
{
    ps_log_pass(r, text, strlen(text));
}

// What the process writes that this one has started: lines, in pieces, and what is none.
static const char *passed_on(void)
{
    struct ps_log_relay r = {.len = 0};
    char longer[sizeof r.line + 64];
    memset(longer, 'x', sizeof longer);
    memcpy(longer + sizeof r.line - 1, "workerd[0] E \n", sizeof "workerd[0] E \n");
    pass(&r, "workerd I one\nworkerd[0] E t");
    pass(&r, "wo\n\nEpoch 1/2\nworkerd[0] X\nworkerds E x\n");
    pass(&r, longer);
    pass(&r, "workerd[0] W three");
    ps_log_pass_end(&r);
    pass(&r, "workerd[0] D four\n");
    return catch_end();
}

// What comes before the long line, with where that begins, and what after it.
static void expect_passed_on(const char *before, const char *after)
{
    const char *all = passed_on(), *rest = strstr(all, "xxx");
    assert_non_null(rest);
    assert_memory_equal(all, before, strlen(before));
    assert_string_equal(rest + strspn(rest, "x"), after);
}

static void test_passes_on_to_the_journal(void **state)
{
    (void)state;
    catch_begin();
    give_to_journal();
    ps_log_init("workerd[0]", PS_LOG_INFO);
    expect_passed_on("<6>workerd one\n<3>workerd[0] two\n\nEpoch 1/2\nworkerd[0] X\nworkerds E x\nxxx",
                     "workerd[0] E \n<4>workerd[0] three\n<7>workerd[0] four\n");
}

static void test_passes_on_to_people(void **state)
{
    (void)state;
    catch_begin();
    ps_log_init("workerd[0]", PS_LOG_INFO);
    expect_passed_on("workerd I one\nworkerd[0] E two\n\nEpoch 1/2\nworkerd[0] X\nworkerds E x\nxxx",
                     "workerd[0] E \nworkerd[0] W threeworkerd[0] D four\n");
}

static void check_object(const char *line, const char *level, const char *text)
{
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    assert_int_equal(json_object_size(o), 4);
    assert_int_equal(strlen(json_string_value(json_object_get(o, "time"))), strlen("2025-01-31T23:59:59.123Z"));
    assert_string_equal(json_string_value(json_object_get(o, "level")), level);
    assert_string_equal(json_string_value(json_object_get(o, "program")), "workerd[3]");
    assert_string_equal(json_string_value(json_object_get(o, "text")), text);
    json_decref(o);
}

static const char *logged_as_json(const char *text)
{
    catch_begin();
    give_to_journal();
    setenv("PARAMSERVER_LOG", "json", 1);
    ps_log_init("workerd[3]", PS_LOG_INFO);
    ps_warn("%s", text);
    return catch_end();
}

static void test_json(void **state)
{
    char quotes[1500], wanted[1024];
    (void)state;
    check_object(logged_as_json("job 'a\\b': \"c\"\x01 \xc3\xa4"), "warning", "job 'a\\b': \"c\"? \xc3\xa4");
    memset(quotes, '"', sizeof quotes);
    quotes[sizeof quotes - 1] = '\0';
    memset(wanted, '"', sizeof wanted);
    wanted[sizeof wanted - 1] = '\0';
    check_object(logged_as_json(quotes), "warning", wanted);
}

// Each line is an object, those of the other process as they are, also the longest.
static void test_passes_on_objects(void **state)
{
    struct ps_log_relay r = {.len = 0};
    char quotes[1024], *own, *rest, *line;
    (void)state;
    memset(quotes, '"', sizeof quotes - 1);
    quotes[sizeof quotes - 1] = '\0';
    own = strdup(logged_as_json(quotes));
    catch_begin();
    ps_log_init("workerd[3]", PS_LOG_INFO);
    pass(&r, own);
    pass(&r, "Epoch 1/2\n250/250 \"\x1b[1m\n\n{no object\n{'loss': 0.5}\nthe ");
    pass(&r, "last");
    ps_log_pass_end(&r);
    rest = strdup(catch_end());
    assert_memory_equal(rest, own, strlen(own));
    line = strtok(rest + strlen(own), "\n");
    check_object(line, "info", "Epoch 1/2");
    check_object(strtok(NULL, "\n"), "info", "250/250 \"?[1m");
    check_object(strtok(NULL, "\n"), "info", "");
    check_object(strtok(NULL, "\n"), "info", "{no object");
    check_object(strtok(NULL, "\n"), "info", "{'loss': 0.5}");
    check_object(strtok(NULL, "\n"), "info", "the last");
    assert_null(strtok(NULL, "\n"));
    free(rest);
    free(own);
}

// What others can cause as often as they like: one line in ten seconds, which counts the others.
static void test_seldom(void **state)
{
    struct ps_log_seldom s = {0};
    char more[PS_LOG_MORE] = "?";
    (void)state;
    assert_true(ps_log_is_due(&s, PS_SECOND, more));
    assert_string_equal(more, "");
    for (int i = 0; i < 3; i++)
        assert_false(ps_log_is_due(&s, (9 + i) * PS_SECOND - 1, more));
    assert_true(ps_log_is_due(&s, 11 * PS_SECOND, more));
    assert_string_equal(more, "; 3 more since the last such line");
    assert_false(ps_log_is_due(&s, 20 * PS_SECOND, more));
    assert_true(ps_log_is_due(&s, 100 * PS_SECOND, more));
    assert_string_equal(more, "; 1 more since the last such line");
    assert_true(ps_log_is_due(&s, 110 * PS_SECOND, more));
    assert_string_equal(more, "");
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_plain, reset),
        cmocka_unit_test_setup(test_journal, reset),
        cmocka_unit_test_setup(test_not_the_journal, reset),
        cmocka_unit_test_setup(test_passes_on_to_the_journal, reset),
        cmocka_unit_test_setup(test_passes_on_to_people, reset),
        cmocka_unit_test_setup(test_json, reset),
        cmocka_unit_test_setup(test_passes_on_objects, reset),
        cmocka_unit_test(test_seldom),
    };
    return cmocka_run_group_tests(tests, NULL, reset);
}
