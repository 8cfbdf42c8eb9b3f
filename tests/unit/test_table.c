// SPDX-License-Identifier: Apache-2.0
//
// What psctl shows: alignment, units, JSON. Each case compares whole documents.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/table.h"
#include "tools/psctl/findings.h"
#include "tools/psctl/screen.h"

static const struct table_column columns[] = {
    {"name", "variable", TABLE_TEXT}, {"shape", "shape", TABLE_SHAPE},  {"tasks", "ps", TABLE_LIST},
    {"bytes", "bytes", TABLE_BYTES},  {"loss", "loss", TABLE_REAL},     {"version", "version", TABLE_COUNT},
    {"silent", "silent", TABLE_MS},   {"reason", "reason", TABLE_TEXT},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static json_t *pair(int a, int b)
{
    return json_pack("[i, i]", a, b);
}

static void fill(struct table *t)
{
    table_init(t, columns, COLUMNS);
    table_row(t);
    table_cell(t, table_text("kernel"));
    table_cell(t, pair(3, 32));
    table_cell(t, pair(0, 1));
    table_cell(t, json_integer(1258291));
    table_cell(t, json_real(0.123456));
    table_cell(t, json_integer(7));
    table_cell(t, json_integer(350));
    table_row(t);
    table_cell(t, table_text("größe"));
    table_cell(t, json_array());
    table_cell(t, json_pack("[i]", 1));
    table_cell(t, json_integer(4));
    table_cell(t, table_real(NAN));
    table_cell(t, json_integer(1200));
    table_cell(t, json_integer(3723000));
}

// What show writes into a file, as a string to be freed.
static char *shown(const struct table *t, bool record, bool json)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    table_show(&(struct table_part){"t", t, record}, 1, json, file);
    fclose(file);
    return text;
}

static void aligns_columns_and_leaves_out_unknown_ones(void **state)
{
    (void)state;
    struct table t;
    fill(&t);
    char *text = shown(&t, false, false);
    assert_string_equal(text, "variable  shape    ps     bytes    loss  version      silent\n"
                              "kernel    (3, 32)  0,1  1.2 MiB  0.1235        7      350 ms\n"
                              "größe     ()       1        4 B     nan     1200  1 h 02 min\n");
    free(text);
    table_fini(&t);
}

static void shows_a_record_as_lines(void **state)
{
    (void)state;
    struct table t;
    fill(&t);
    char *text = shown(&t, true, false);
    assert_string_equal(text, "variable  kernel\n"
                              "shape     (3, 32)\n"
                              "ps        0,1\n"
                              "bytes     1.2 MiB\n"
                              "loss      0.1235\n"
                              "version   7\n"
                              "silent    350 ms\n");
    free(text);
    table_fini(&t);
}

static void json_has_raw_numbers_and_every_key(void **state)
{
    (void)state;
    struct table t;
    fill(&t);
    char *text = shown(&t, false, true);
    json_t *got = json_loads(text, 0, NULL);
    json_t *want =
        json_pack("[{s:s, s:[i,i], s:[i,i], s:i, s:f, s:i, s:i, s:n}, {s:s, s:[], s:[i], s:i, s:n, s:i, s:i, s:n}]",
                  "name", "kernel", "shape", 3, 32, "tasks", 0, 1, "bytes", 1258291, "loss", 0.123456, "version", 7,
                  "silent", 350, "reason", "name", "größe", "shape", "tasks", 1, "bytes", 4, "loss", "version", 1200,
                  "silent", 3723000, "reason");
    assert_non_null(want);
    assert_true(json_equal(got, want));
    json_decref(want);
    json_decref(got);
    free(text);
    table_fini(&t);
}

// JSON has no number for them, also within a list or among named ones.
static void json_has_null_for_what_is_not_finite(void **state)
{
    (void)state;
    static const struct table_column three[] = {
        {"loss", "loss", TABLE_REAL}, {"first", "first", TABLE_LIST}, {"metrics", "metrics", TABLE_NUMBERS}};
    struct table t;
    table_init(&t, three, 3);
    table_row(&t);
    table_cell(&t, table_real(INFINITY));
    table_cell(&t, json_pack("[o, f, s]", table_real(NAN), 0.5, "nan"));
    table_cell(&t, json_pack("{s:o, s:i}", "auc", table_real(-INFINITY), "n", 7));
    char *text = shown(&t, true, true);
    json_t *got = json_loads(text, 0, NULL);
    json_t *want = json_pack("{s:n, s:[n, f, s], s:{s:n, s:i}}", "loss", "first", 0.5, "nan", "metrics", "auc", "n", 7);
    assert_non_null(want);
    assert_true(json_equal(got, want));
    json_decref(want);
    json_decref(got);
    free(text);
    table_fini(&t);
}

static void several_parts_are_members_of_an_object(void **state)
{
    (void)state;
    struct table t, none;
    char *text = NULL;
    size_t size = 0;
    fill(&t);
    table_init(&none, columns, COLUMNS);
    const struct table_part parts[] = {{"empty", &none, false}, {"all", &t, false}, {"one", &t, true}};
    FILE *file = open_memstream(&text, &size);
    table_show(parts, 3, true, file);
    fclose(file);
    json_t *got = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(got, "empty")), 0);
    assert_int_equal(json_array_size(json_object_get(got, "all")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(got, "one"), "version")), 7);
    json_decref(got);
    free(text);
    table_fini(&none);
    table_fini(&t);
}

static void expect_cell(enum table_type type, json_t *value, const char *want)
{
    const struct table_column column = {"x", "x", type};
    struct table t;
    table_init(&t, &column, 1);
    table_row(&t);
    table_cell(&t, value);
    char line[128];
    snprintf(line, sizeof line, "x  %s\n", want);
    char *text = shown(&t, true, false);
    assert_string_equal(text, line);
    free(text);
    table_fini(&t);
}

static void units_change_where_they_should(void **state)
{
    (void)state;
    expect_cell(TABLE_BYTES, json_integer(0), "0 B");
    expect_cell(TABLE_BYTES, json_integer(1023), "1023 B");
    expect_cell(TABLE_BYTES, json_integer(1024), "1.0 KiB");
    expect_cell(TABLE_BYTES, json_integer(1048575), "1.0 MiB");  // not 1024.0 KiB
    expect_cell(TABLE_BYTES, json_real(1.5e12), "1.4 TiB");
    expect_cell(TABLE_MS, json_integer(999), "999 ms");
    expect_cell(TABLE_MS, json_integer(2550), "2.5 s");
    expect_cell(TABLE_MS, json_integer(61000), "1 min 01 s");
    expect_cell(TABLE_US, json_integer(49), "0.0 ms");
    expect_cell(TABLE_US, json_integer(9950), "9.9 ms");
    expect_cell(TABLE_US, json_integer(10000), "10 ms");
    expect_cell(TABLE_US, json_integer(2550000), "2.5 s");
    expect_cell(TABLE_INDEX, json_integer(0), "1");
    expect_cell(TABLE_REAL, json_integer(12345678), "12345678");
    expect_cell(TABLE_REAL, json_real(31234.5), "31234");
    expect_cell(TABLE_REAL, json_real(-1e12), "-1e+12");
}

static void shares_flags_and_lists_of_texts(void **state)
{
    (void)state;
    expect_cell(TABLE_SHARE, json_real(0.4154), "41.5 %");
    expect_cell(TABLE_SHARE, json_integer(1), "100.0 %");
    expect_cell(TABLE_FLAG, json_true(), "yes");
    expect_cell(TABLE_LIST, json_pack("[s, s]", "mnist", "a\nb"), "mnist,a?b");
    expect_cell(TABLE_NUMBERS, json_pack("{s:f, s:i, s:o}", "val\nloss", 0.25, "n", 7, "auc", table_real(NAN)),
                "val?loss 0.25, n 7, auc nan");
    expect_cell(TABLE_LIST, json_pack("[o, o, n, f]", table_real(NAN), table_real(-INFINITY), 0.5), "nan,-inf,-,0.5");
    expect_cell(TABLE_COUNT, table_count(INT64_MAX), "9223372036854775807");
}

static void many_numbers_are_cut_between_two(void **state)
{
    json_t *many = json_object();
    char name[32];
    (void)state;
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "val_accuracy_%02d", i);
        json_object_set_new(many, name, json_real(0.25));
    }
    const struct table_column column = {"x", "x", TABLE_NUMBERS};
    struct table t;
    table_init(&t, &column, 1);
    table_row(&t);
    table_cell(&t, many);
    char *text = shown(&t, false, false);
    assert_non_null(strstr(text, "val_accuracy_22 0.25, ...\n"));
    free(text);
    table_fini(&t);
}

static void a_flag_that_nobody_has_is_no_column(void **state)
{
    (void)state;
    const struct table_column two[] = {{"n", "n", TABLE_COUNT}, {"draining", "draining", TABLE_FLAG}};
    struct table t;
    table_init(&t, two, 2);
    table_row(&t);
    table_cell(&t, table_count(1));
    table_cell(&t, json_false());
    char *text = shown(&t, false, false);
    assert_string_equal(text, "n\n1\n");
    free(text);
    table_row(&t);
    table_cell(&t, table_count(2));
    table_cell(&t, json_true());
    text = shown(&t, false, false);
    assert_string_equal(text, "n  draining\n1  -\n2  yes\n");
    free(text);
    table_fini(&t);
}

static void a_column_that_is_always_shown(void **state)
{
    (void)state;
    static const struct table_column always[] = {{"name", "job", TABLE_TEXT},
                                                 {"workers", "workers", TABLE_COUNT, .always = true}};
    struct table t;
    table_init(&t, always, 2);
    table_row(&t);
    table_cell(&t, table_text("a"));
    char *text = shown(&t, false, false), *record = shown(&t, true, false);
    assert_string_equal(text, "job  workers\n"
                              "a          -\n");
    assert_string_equal(record, "job      a\n"
                                "workers  -\n");
    free(record);
    free(text);
    table_fini(&t);
}

static void findings_end_with_the_worst(void **state)
{
    (void)state;
    struct findings f;
    findings_init(&f);
    findings_add(&f, VERDICT_OK, "ps:0", NULL, "version %d", 1);
    assert_int_equal(findings_exit(&f), 0);
    findings_add(&f, VERDICT_WARNING, "ps:1", "stop old jobs", "full");
    assert_int_equal(findings_exit(&f), 0);
    findings_add(&f, VERDICT_FAILED, "job a", "start it again", "has failed");
    assert_int_equal(findings_exit(&f), 75);
    findings_add(&f, VERDICT_WRONG, "ps:2", "order", "is ps:1");
    assert_int_equal(findings_exit(&f), 78);
    findings_add(&f, VERDICT_UNREACHABLE, "ps:3", "start it", "refused");
    findings_add(&f, VERDICT_WARNING, "ps:4", NULL, "full");
    assert_int_equal(findings_exit(&f), 69);
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    findings_show(&f, false, file);
    fclose(file);
    assert_string_equal(text, "verdict      what   finding; what to do\n"
                              "ok           ps:0   version 1\n"
                              "warning      ps:1   full; stop old jobs\n"
                              "failed       job a  has failed; start it again\n"
                              "wrong        ps:2   is ps:1; order\n"
                              "unreachable  ps:3   refused; start it\n"
                              "warning      ps:4   full\n");
    free(text);
    findings_fini(&f);
}

static void expect_cut(const char *text, int rows, int wide, const char *want)
{
    char *cut = screen_cut(text, rows, wide);
    assert_string_equal(cut, want);
    free(cut);
}

static void a_screen_shows_what_fits(void **state)
{
    (void)state;
    expect_cut("abc\ndef\nghi\n", 2, 2, "ab\nde\n");
    expect_cut("abc\n", 24, 80, "abc\n");
    expect_cut("gr\xc3\xb6\xc3\x9f"
               "e\n",
               1, 3, "gr\xc3\xb6\n");
    expect_cut("abc\n", 0, 80, "");
    expect_cut("", 3, 3, "");
}

// Rows of a table whose name and reason are long: what is found on a screen of so many lines and columns.
static void expect_screen(size_t n_rows, size_t n_few, int lines, int wide, bool utf8, const char *want)
{
    static const struct table_column some[] = {
        {"name", "job", TABLE_TEXT},       {"state", "state", TABLE_TEXT}, {"waiting", "waiting", TABLE_COUNT},
        {"bytes", "bytes/s", TABLE_BYTES}, {"loss", "loss", TABLE_REAL},   {"reason", "reason", TABLE_SENTENCE}};
    struct table t, few;
    table_init(&t, some, 6);
    table_init(&few, some, 3);
    for (size_t i = 0; i < n_rows; i++) {
        table_row(&t);
        table_cell(&t, table_text("größe-0123456789-0123456789-0123456789"));
        table_cell(&t, table_text("failed"));
        table_cell(&t, table_count(3));
        table_cell(&t, table_count(1024));
        table_cell(&t, json_real(0.5));
        table_cell(&t, i ? NULL : table_text("worker 1 sent no heartbeat for 5.0 s, and 0 of at least 1 remain"));
    }
    for (size_t i = 0; i < n_few; i++) {
        table_row(&few);
        table_cell(&few, table_text("a"));
    }
    const struct table_part parts[] = {{"all", &t, false}, {"few", &few, false}};
    const struct table_screen screen = {lines, wide, utf8};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    table_show_screen(parts, 2, &screen, file);
    fclose(file);
    assert_string_equal(text, want);
    free(text);
    table_fini(&few);
    table_fini(&t);
}

static void a_narrow_screen_shows_what_matters(void **state)
{
    (void)state;
    expect_screen(1, 0, 24, 80, true,
                  "job                       state   waiting  reason\n"
                  "größe-0123456789-012345…  failed        3  worker 1 sent no heartbeat for 5.0 s…\n"
                  "\n"
                  "2 columns are not shown\n");
    expect_screen(1, 0, 24, 89, false,
                  "job                       state   waiting  bytes/s  reason\n"
                  "größe-0123456789-0123...  failed        3  1.0 KiB  worker 1 sent no heartbeat for 5.0...\n"
                  "\n"
                  "1 column is not shown\n");
    expect_screen(
        1, 0, 24, 200, true,
        "job                       state   waiting  bytes/s  loss  reason\n"
        "größe-0123456789-012345…  failed        3  1.0 KiB   0.5  worker 1 sent no heartbeat for 5.0 s, and 0 of "
        "at least 1 remain\n");
}

static void expect_within(int columns, const char *want)
{
    static const struct table_column some[] = {{"name", "job", TABLE_TEXT},
                                               {"version", "version", TABLE_TEXT, .detail = true},
                                               {"epoch", "epoch", TABLE_INDEX},
                                               {"requests", "requests", TABLE_COUNT, .detail = true},
                                               {"reason", "reason", TABLE_SENTENCE}};
    struct table t;
    table_init(&t, some, 5);
    table_row(&t);
    table_cell(&t, table_text("mnist"));
    table_cell(&t, table_text("0.1.0"));
    table_cell(&t, table_count(2));
    table_cell(&t, table_count(1234567));
    table_cell(&t, table_text("worker 1 sent no heartbeat for 5.0 s"));
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    table_print_within(&t, columns, file);
    fclose(file);
    assert_string_equal(text, want);
    free(text);
    table_fini(&t);
}

// Those on the right first, and no more than have to; what is no detail stays, though the line breaks.
static void a_narrow_terminal_lacks_details(void **state)
{
    (void)state;
    const char *all = "job    version  epoch  requests  reason\n"
                      "mnist  0.1.0        3   1234567  worker 1 sent no heartbeat for 5.0 s\n";
    expect_within(0, all);
    expect_within(80, all);
    expect_within(50, "job    version  epoch  requests  reason\n"
                      "mnist  0.1.0        3   1234567  worker 1 sent ...\n");
    expect_within(48, "job    version  epoch  reason\n"
                      "mnist  0.1.0        3  worker 1 sent no heart...\n"
                      "(1 more column in a wider window, or with --json)\n");
    expect_within(32, "job    epoch  reason\n"
                      "mnist      3  worker 1 sent n...\n"
                      "(2 more columns in a wider window, or with --json)\n");
    expect_within(20, "job    epoch  reason\n"
                      "mnist      3  worker 1 sent no heartbeat for 5.0 s\n"
                      "(2 more columns in a wider window, or with --json)\n");
}

static void a_low_screen_is_shared(void **state)
{
    (void)state;
    expect_screen(
        1, 4, 9, 200, true,
        "job                       state   waiting  bytes/s  loss  reason\n"
        "größe-0123456789-012345…  failed        3  1.0 KiB   0.5  worker 1 sent no heartbeat for 5.0 s, and 0 of "
        "at least 1 remain\n"
        "\n"
        "job\na\na\na\n"
        "\n"
        "1 row is not shown\n");
    expect_screen(0, 9, 8, 80, true, "job\na\na\na\na\na\n\n4 rows are not shown\n");
    expect_screen(0, 5, 8, 80, true, "job\na\na\na\na\na\n");
    expect_screen(0, 3, 2, 80, true, "job\n\n3 rows are not shown\n");
}

static void text_from_the_wire_does_not_steer_the_terminal(void **state)
{
    (void)state;
    expect_cell(TABLE_TEXT, json_string("a\033[2Jb\nc"), "a?[2Jb?c");
}

static void a_long_list_is_cut_not_overrun(void **state)
{
    (void)state;
    json_t *list = json_array();
    for (int i = 0; i < 1000; i++)
        json_array_append_new(list, json_integer(100000 + i));
    const struct table_column column = {"x", "x", TABLE_LIST};
    struct table t;
    table_init(&t, &column, 1);
    table_row(&t);
    table_cell(&t, list);
    char *text = shown(&t, false, false);
    assert_true(strlen(text) < 600);
    free(text);
    table_fini(&t);
}

// A file's name is of any bytes; null would say that there is none.
static void text_that_is_not_utf8_is_shown(void **state)
{
    (void)state;
    json_t *text = table_text("net\xff.safetensors");
    assert_non_null(text);
    assert_string_equal(json_string_value(text), "net?.safetensors");
    json_decref(text);
    assert_null(table_text(""));
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligns_columns_and_leaves_out_unknown_ones),
        cmocka_unit_test(shows_a_record_as_lines),
        cmocka_unit_test(json_has_raw_numbers_and_every_key),
        cmocka_unit_test(json_has_null_for_what_is_not_finite),
        cmocka_unit_test(several_parts_are_members_of_an_object),
        cmocka_unit_test(units_change_where_they_should),
        cmocka_unit_test(shares_flags_and_lists_of_texts),
        cmocka_unit_test(many_numbers_are_cut_between_two),
        cmocka_unit_test(a_flag_that_nobody_has_is_no_column),
        cmocka_unit_test(a_column_that_is_always_shown),
        cmocka_unit_test(findings_end_with_the_worst),
        cmocka_unit_test(a_screen_shows_what_fits),
        cmocka_unit_test(a_narrow_screen_shows_what_matters),
        cmocka_unit_test(a_narrow_terminal_lacks_details),
        cmocka_unit_test(a_low_screen_is_shared),
        cmocka_unit_test(text_from_the_wire_does_not_steer_the_terminal),
        cmocka_unit_test(a_long_list_is_cut_not_overrun),
        cmocka_unit_test(text_that_is_not_utf8_is_shown),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
