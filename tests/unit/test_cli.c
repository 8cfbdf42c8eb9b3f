// SPDX-License-Identifier: Apache-2.0
//
// Command lines of psctl, and the .npy files it writes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/dtype.h"
#include "tools/psctl/cli.h"
#include "tools/psctl/npy.h"

enum { WORDS_MAX = 12 };

struct values {
    bool json;
    const char *output;
    long ps;
    struct cli_list sets;
};

struct parsed {
    enum cli_result result;
    struct values v;
    const char *operand;  // the first, NULL: none
    char said[512];       // on stderr
};

// Parses one line of words separated by single spaces.
static struct parsed parse(char *line, bool stop_at_operand)
{
    struct parsed p = {.v.ps = 2};
    const struct cli_option options[] = {{.name = "json", .flag = &p.v.json},
                                         {.name = "output", .letter = 'o', .text = &p.v.output},
                                         {.name = "ps", .number = &p.v.ps, .min = 1, .max = 64},
                                         {.name = "set", .list = &p.v.sets}};
    char *argv[WORDS_MAX + 1] = {"psctl"}, *rest = line;
    int argc = 1, first = 0, saved = dup(STDERR_FILENO);
    for (char *word; argc < WORDS_MAX && (word = strsep(&rest, " "));)
        argv[argc++] = word;
    FILE *file = tmpfile();
    dup2(fileno(file), STDERR_FILENO);
    p.result = cli_parse("psctl x", argc, argv, options, 4, stop_at_operand, &first);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    p.said[fread(p.said, 1, sizeof p.said - 1, file)] = '\0';
    fclose(file);
    p.operand = p.result == CLI_OK && first < argc ? argv[first] : NULL;
    return p;
}

static void takes_options_anywhere(void **state)
{
    (void)state;
    char line[] = "job.yaml --json --ps 3 -o out.npy --set a=1 --set=b=2";
    struct parsed p = parse(line, false);
    assert_int_equal(p.result, CLI_OK);
    assert_string_equal(p.operand, "job.yaml");
    assert_true(p.v.json);
    assert_int_equal(p.v.ps, 3);
    assert_string_equal(p.v.output, "out.npy");
    assert_int_equal(p.v.sets.n, 2);
    assert_string_equal(p.v.sets.items[1], "b=2");
    free(p.v.sets.items);
}

static void stops_at_the_command(void **state)
{
    (void)state;
    char line[] = "--json get --ps 3";
    struct parsed p = parse(line, true);
    assert_int_equal(p.result, CLI_OK);
    assert_string_equal(p.operand, "get");
    assert_int_equal(p.v.ps, 2);
}

static void help_is_known_to_every_command(void **state)
{
    (void)state;
    char line[] = "job --help";
    assert_int_equal(parse(line, false).result, CLI_HELP);
}

static void expect_wrong(const char *line, const char *said)
{
    char copy[128];
    snprintf(copy, sizeof copy, "%s", line);
    struct parsed p = parse(copy, false);
    assert_int_equal(p.result, CLI_WRONG);
    assert_string_equal(p.said, said);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    expect_wrong("--jsn", "psctl x: unknown option --jsn, did you mean --json?\n");
    expect_wrong("job --ouptut=3", "psctl x: unknown option --ouptut=3, did you mean --output?\n");
    expect_wrong("--whatever", "psctl x: unknown option --whatever; psctl x --help lists the known ones\n");
    expect_wrong("-q", "psctl x: unknown option -q; psctl x --help lists the known ones\n");
    expect_wrong("--set", "psctl x: --set needs a value\n");
    expect_wrong("--ps 0", "psctl x: --ps is 0, expected a number from 1 to 64\n");
    expect_wrong("--ps 65", "psctl x: --ps is 65, expected a number from 1 to 64\n");
    expect_wrong("--ps 3x", "psctl x: --ps is 3x, expected a number from 1 to 64\n");
    expect_wrong("--ps 99999999999999999999",
                 "psctl x: --ps is 99999999999999999999, expected a number from 1 to 64\n");
}

static void npy_is_as_numpy_reads_it(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cli-XXXXXX", got[256];
    const uint64_t shape[] = {2, 3};
    const float data[] = {1, 2, 3, 4, 5, 6};
    close(mkstemp(path));
    assert_int_equal(npy_write(path, PS_FLOAT32, shape, 2, data, 6, NULL), PS_OK);
    FILE *file = fopen(path, "rb");
    size_t len = fread(got, 1, sizeof got, file);
    fclose(file);
    unlink(path);
    size_t header = 10 + (size_t)(uint8_t)got[8] + 256 * (size_t)(uint8_t)got[9];
    assert_memory_equal(got, "\x93NUMPY\x01\x00", 8);
    assert_int_equal(header % 64, 0);
    assert_memory_equal(got + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3,), }", 60);
    assert_int_equal(got[header - 1], '\n');
    assert_int_equal(len, header + sizeof data);
    assert_memory_equal(got + header, data, sizeof data);
}

static void npy_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    struct ps_error e;
    const double data[1000] = {0};
    const uint64_t shape[] = {1000};
    assert_int_equal(npy_write("/nowhere/x.npy", PS_FLOAT64, shape, 1, data, 1000, &e), PS_INVALID_ARGUMENT);
    assert_string_equal(e.text, "cannot write /nowhere/x.npy: No such file or directory");
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(npy_write("/dev/full", PS_FLOAT64, shape, 1, data, 1000, &e), PS_RESOURCE_EXHAUSTED);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_options_anywhere),         cmocka_unit_test(stops_at_the_command),
        cmocka_unit_test(help_is_known_to_every_command), cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(npy_is_as_numpy_reads_it),       cmocka_unit_test(npy_that_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
