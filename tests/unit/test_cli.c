// SPDX-License-Identifier: Apache-2.0
//
// Command lines of psctl, and the .npy files it writes and reads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/parse.h"
#include "common/math/half.h"
#include "libclient/psclient.h"
#include "tools/common/cli.h"
#include "tools/psctl/npy.h"
#include "tools/psctl/operand.h"

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
    expect_wrong("--upt=3", "psctl x: unknown option --upt=3; psctl x --help lists the known ones\n");
    expect_wrong("--whatever", "psctl x: unknown option --whatever; psctl x --help lists the known ones\n");
    expect_wrong("-q", "psctl x: unknown option -q; psctl x --help lists the known ones\n");
    expect_wrong("--set", "psctl x: --set needs a value\n");
    expect_wrong("-o", "psctl x: -o needs a value\n");
    expect_wrong("--json=1", "psctl x: --json takes no value\n");
    expect_wrong("--jso", "psctl x: unknown option --jso, did you mean --json?\n");
    expect_wrong("job --j=1", "psctl x: unknown option --j=1, did you mean --json?\n");
    expect_wrong("--out file job", "psctl x: unknown option --out, did you mean --output?\n");
    expect_wrong("--out=file", "psctl x: unknown option --out=file, did you mean --output?\n");
    expect_wrong("job --out", "psctl x: unknown option --out, did you mean --output?\n");
    expect_wrong("job -1", "psctl x: -1: no negative number is taken here\n");
    expect_wrong("job -0.5 --json", "psctl x: -0.5: no negative number is taken here\n");
    expect_wrong("--ps 0", "psctl x: --ps is 0, expected a number from 1 to 64\n");
    expect_wrong("--ps 65", "psctl x: --ps is 65, expected a number from 1 to 64\n");
    expect_wrong("--ps 3x", "psctl x: --ps is 3x, expected a number from 1 to 64\n");
    expect_wrong("--ps 99999999999999999999",
                 "psctl x: --ps is 99999999999999999999, expected a number from 1 to 64\n");
}

// ---- operands -----------------------------------------------------------------------------------------------------

static void expect_text(enum ps_code code, enum ps_code want, const struct ps_error *e, const char *text)
{
    assert_int_equal(code, want);
    assert_string_equal(e->text, text);
}

static void operands_are_taken_whole_or_refused(void **state)
{
    (void)state;
    struct ps_error e;
    char name[OPERAND_NAME_MAX];
    double x;
    uint32_t index;
    uint64_t bytes;
    assert_int_equal(operand_number("1e-3", &x, &e), PS_OK);
    assert_true(x == 1e-3);
    expect_text(operand_number("0.1x", &x, &e), PS_INVALID_ARGUMENT, &e, "the value is '0.1x', expected a number");
    expect_text(operand_number("", &x, &e), PS_INVALID_ARGUMENT, &e, "the value is '', expected a number");
    expect_text(operand_number("nan", &x, &e), PS_INVALID_ARGUMENT, &e, "the value is 'nan', expected a number");
    expect_text(operand_number("1e999", &x, &e), PS_INVALID_ARGUMENT, &e, "the value is '1e999', expected a number");
    assert_int_equal(operand_assignment("beta_1=0.5", name, &x, &e), PS_OK);
    assert_string_equal(name, "beta_1");
    assert_true(x == 0.5);
    expect_text(operand_assignment("=1", name, &x, &e), PS_INVALID_ARGUMENT, &e, "'=1' is not NAME=VALUE");
    expect_text(operand_assignment("momentum", name, &x, &e), PS_INVALID_ARGUMENT, &e, "'momentum' is not NAME=VALUE");
    expect_text(operand_assignment("m=high", name, &x, &e), PS_INVALID_ARGUMENT, &e,
                "m: the value is 'high', expected a number");
    assert_int_equal(operand_task("ps:12", "ps", &index, &e), PS_OK);
    assert_int_equal(index, 12);
    const char *const wrong[] = {"ps",    "ps:",      "ps:-1",         "ps:1x",
                                 "psx:1", "worker:1", "ps:4294967295", "ps:99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(operand_task(wrong[i], "ps", &index, &e), PS_INVALID_ARGUMENT);
        assert_non_null(strstr(e.text, "is not ps:N, N from 0"));
    }
    assert_int_equal(operand_bytes("3M", &bytes, &e), PS_OK);
    assert_int_equal(bytes, 3 << 20);
    assert_int_equal(operand_bytes("12", &bytes, &e), PS_OK);
    assert_int_equal(bytes, 12);
    assert_int_equal(operand_bytes("64k", &bytes, &e), PS_OK);
    assert_int_equal(bytes, 64 << 10);
    assert_int_equal(operand_bytes("2GiB", &bytes, &e), PS_OK);
    assert_true(bytes == UINT64_C(2) << 30);
    const char *const no_bytes[] = {"",    "0",   "M",     "-1",           "1Q",
                                    "1MB", "1iB", "1KiBx", "99999999999T", "99999999999999999999"};
    for (size_t i = 0; i < sizeof no_bytes / sizeof *no_bytes; i++)
        assert_int_equal(operand_bytes(no_bytes[i], &bytes, &e), PS_INVALID_ARGUMENT);
}

static void numbers_are_decimal_and_whole(void **state)
{
    (void)state;
    long n = 0;
    assert_true(ps_parse_number("12", 1, 12, &n) && n == 12);
    assert_true(ps_parse_number("-3", -3, 0, &n) && n == -3);
    const char *const wrong[] = {"", " 5", "5 ", "0x10", "1.0", "1e1", "13", "0", "-", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(ps_parse_number(wrong[i], 1, 12, &n));
    assert_int_equal(n, -3);
}

static void rows_are_a_range(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t first, end;
    } good[] = {{"2:5", 2, 5}, {":5", 0, 5}, {"2:", 2, 10}, {":", 0, 10}, {"9:10", 9, 10}};
    const char *const wrong[] = {"", "3", "1-2", "a:b", "1:2:3", "-1:2", "1:x", "99999999999999999999:"};
    const char *const outside[] = {"5:5", "5:2", "0:11", "10:"};
    struct ps_error e;
    uint64_t first, end;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(operand_rows(good[i].text, 10, &first, &end, &e), PS_OK);
        assert_int_equal(first, good[i].first);
        assert_int_equal(end, good[i].end);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(operand_rows(wrong[i], 10, &first, &end, &e), PS_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_int_equal(operand_rows(outside[i], 10, &first, &end, &e), PS_OUT_OF_RANGE);
    assert_string_equal(e.text, "--rows is 10:, expected A below B, and B at most 10");
}

// ---- npy ----------------------------------------------------------------------------------------------------------

static void npy_is_as_numpy_reads_it(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cli-XXXXXX", got[256];
    const uint64_t shape[] = {2, 3};
    float data[] = {1, 2, 3, 4, 5, 6};
    close(mkstemp(path));
    assert_int_equal(npy_write(path, &(struct npy_array){PSC_FLOAT32, shape, 2, 6, data}, NULL), PS_OK);
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
    double data[1000] = {0};
    const uint64_t shape[] = {1000};
    const struct npy_array a = {PSC_FLOAT64, shape, 1, 1000, data};
    assert_int_equal(npy_write("/nowhere/x.npy", &a, &e), PS_CANNOT_CREATE);
    assert_string_equal(e.text, "cannot create /nowhere/x.npy: No such file or directory");
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(npy_write("/dev/full", &a, &e), PS_CANNOT_WRITE);
}

// Elements of any bits go into a file and come back.
static void npy_there_and_back_for_every_type(void **state)
{
    (void)state;
    const int dtypes[] = {PSC_FLOAT32, PSC_FLOAT64, PSC_INT32, PSC_INT64, PSC_FLOAT16, PSC_UINT8, PSC_BFLOAT16};
    char path[] = "/tmp/test_cli-XXXXXX";
    const uint64_t shape[] = {3, 4};
    uint8_t data[12 * 8], back[12 * 8];
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(37 * i + 11);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const struct npy_array there = {dtypes[i], shape, 2, 12, data}, again = {dtypes[i], shape, 2, 12, back};
        memset(back, 0, sizeof back);
        assert_int_equal(npy_write(path, &there, NULL), PS_OK);
        assert_int_equal(npy_read(path, &again, NULL), PS_OK);
        assert_memory_equal(data, back, 12 * npy_element_size(dtypes[i]));
    }
    unlink(path);
}

static void npy_of_strings(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cli-XXXXXX";
    const uint64_t shape[] = {3};
    struct ps_error e;
    psc_string s[] = {{"ab\0c", 4}, {NULL, 0}, {"xyzzy", 5}}, back[3];
    const struct npy_array there = {PSC_STRING, shape, 1, 3, s}, again = {PSC_STRING, shape, 1, 3, back};
    close(mkstemp(path));
    assert_int_equal(npy_write(path, &there, &e), PS_OK);
    assert_int_equal(npy_read(path, &again, &e), PS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(back[i].len, s[i].len);
        if (s[i].len)
            assert_memory_equal(back[i].data, s[i].data, s[i].len);
    }
    npy_elements_free(&again);
    s[2] = (psc_string){"x\0", 2};
    assert_int_equal(npy_write(path, &there, &e), PS_DATA_LOSS);
    expect_text(e.code, PS_DATA_LOSS, &e, "element 2 ends in a zero byte, which NumPy's type S does not keep");
    unlink(path);
}

// Halves, by the values that their definitions name.
static void halves(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cli-XXXXXX";
    const uint64_t shape[] = {5};
    // Half way between two bfloat16: to the even one, both ways; beyond the greatest: infinity; NaN stays NaN.
    float from[] = {1.00390625F, 1.01171875F, 3.4e38F, NAN, -1.5F};
    uint16_t to[5];
    close(mkstemp(path));
    assert_int_equal(npy_write(path, &(struct npy_array){PSC_FLOAT32, shape, 1, 5, from}, NULL), PS_OK);
    assert_int_equal(npy_read(path, &(struct npy_array){PSC_BFLOAT16, shape, 1, 5, to}, NULL), PS_OK);
    unlink(path);
    assert_int_equal(to[0], 0x3f80);
    assert_int_equal(to[1], 0x3f82);
    assert_int_equal(to[2], 0x7f80);
    assert_true(isnan(ps_of_bfloat16(to[3])));
    assert_int_equal(to[4], 0xbfc0);
    assert_true(ps_of_bfloat16(0xbfc0) == -1.5F);
    assert_true(ps_of_float16(0x3c00) == 1);
    assert_true(ps_of_float16(0xc000) == -2);
    assert_true(ps_of_float16(0x7bff) == 65504);
    assert_true(ps_of_float16(0x0400) == 0x1p-14F);
    assert_true(ps_of_float16(0x0001) == 0x1p-24F);
    assert_true(ps_of_float16(0x83ff) == -1023 * 0x1p-24F);
    assert_true(isinf(ps_of_float16(0x7c00)) && isnan(ps_of_float16(0x7c01)));
}

static const struct {
    const char *dict;
    int elements;  // bytes
    const char *text;
} bad_npy[] = {
    {"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }", 32,
     "its elements are of NumPy's type f8, the variable is float32: expected f4"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }", 16, "type i4, the variable is float32"},
    {"{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), }", 8, "type f2, the variable is float32"},
    {"{'descr': '|S4', 'fortran_order': False, 'shape': (2, 2), }", 16, "type S4, the variable is float32"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 16, "its shape is (4,), expected (2, 2)"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }", 16, "its shape is (1, 4), expected (2, 2)"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1), }", 16, "its shape is (2, 2, 1), expected (2, 2)"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", 16, "expected a fortran_order of False"},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2), }", 16, "expected a descr of"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }", 16, "expected a descr of"},
    {"{'descr': '<U4', 'fortran_order': False, 'shape': (2, 2), }", 64, "expected a descr of"},
    {"{'descr': '|S99999999999999999999', 'fortran_order': False, 'shape': (2, 2), }", 16, "expected a descr of"},
    {"{'descr': '|S4611686018427387904', 'fortran_order': False, 'shape': (2, 2), }", 16, "16 bytes follow the header"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", 15, "15 bytes follow the header"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", 17, "17 bytes follow the header"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 16, "overflows 64 bits"},
    {"", 0, "expected '{'"},
};

static void npy_that_is_wrong_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cli-XXXXXX";
    const uint64_t shape[] = {2, 2};
    float data[4] = {1, 2, 3, 4};
    const struct npy_array a = {PSC_FLOAT32, shape, 2, 4, data};
    struct ps_error e;
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof bad_npy / sizeof *bad_npy; i++) {
        FILE *file = fopen(path, "wb");
        fprintf(file, "\x93NUMPY%c%c%c%c%s%*s", 1, 0, (int)strlen(bad_npy[i].dict), 0, bad_npy[i].dict,
                bad_npy[i].elements, "");
        fclose(file);
        assert_int_not_equal(npy_read(path, &a, &e), PS_OK);
        if (!strstr(e.text, bad_npy[i].text))
            print_error("row %zu: \"%s\" without \"%s\"\n", i, e.text, bad_npy[i].text);
        assert_non_null(strstr(e.text, bad_npy[i].text));
        assert_non_null(strstr(e.text, path));
        assert_true(data[0] == 1 && data[3] == 4);
    }
    unlink(path);
    expect_text(npy_read("/tmp", &a, &e), PS_NOT_FOUND, &e, "cannot read /tmp: Is a directory");
    assert_int_equal(npy_read(path, &a, &e), PS_NOT_FOUND);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_options_anywhere),
        cmocka_unit_test(stops_at_the_command),
        cmocka_unit_test(help_is_known_to_every_command),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(operands_are_taken_whole_or_refused),
        cmocka_unit_test(numbers_are_decimal_and_whole),
        cmocka_unit_test(rows_are_a_range),
        cmocka_unit_test(npy_is_as_numpy_reads_it),
        cmocka_unit_test(npy_that_cannot_be_written_is_an_error),
        cmocka_unit_test(npy_there_and_back_for_every_type),
        cmocka_unit_test(npy_of_strings),
        cmocka_unit_test(halves),
        cmocka_unit_test(npy_that_is_wrong_is_refused),
    };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
