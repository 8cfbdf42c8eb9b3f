// SPDX-License-Identifier: Apache-2.0
// The description of a cluster: what is read, and that each mistake is named with its line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/psclient.h"

static void test_reads(void **state)
{
    (void)state;
    psc_cluster *c;
    psc_error e;
    const char *yaml = "ps: [\"127.0.0.1:7070\", 'unix:/run/psd1.sock', \"[::1]:7071\"]\n"
                       "worker:\n  - node1\n  - {host: node2}\n";
    assert_int_equal(psc_cluster_parse(yaml, "c.yaml", &c, &e), PSC_OK);
    assert_string_equal(e.text, "");
    assert_int_equal(psc_cluster_tasks(c), 3);
    assert_int_equal(psc_cluster_workers(c), 2);
    assert_string_equal(psc_cluster_address(c, 0), "127.0.0.1:7070");
    assert_string_equal(psc_cluster_address(c, 1), "unix:/run/psd1.sock");
    assert_null(psc_cluster_address(c, 3));
    psc_cluster_free(c);
    psc_cluster_free(NULL);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *text;
    } bad[] = {
        {"", "c.yaml: ps is missing"},
        {"- a:1", "c.yaml:1: expected a map"},
        {"worker: []", "c.yaml: ps is missing"},
        {"ps: []", "c.yaml:1: ps must be a list of addresses"},
        {"worker: [a]\nps: 7", "c.yaml:2: ps must be a list of addresses"},
        {"ps: [a:1]\nworker: 3", "c.yaml:2: worker must be a list"},
        {"ps: [a:1]\n\nworkers: [a]", "c.yaml:3: unknown key 'workers'; did you mean 'worker'?"},
        {"ps: [a:1]\nchief: [a]", "c.yaml:2: unknown key 'chief'; expected ps or worker"},
        {"ps: [a:1]\n[x]: y", "c.yaml:2: "},
        {"ps: [a:1]\nps: [b:1]", "c.yaml:2: "},
        {"ps:\n  - a:1\n  - b", "c.yaml:3: ps address 'b': expected host:port"},
        {"ps:\n  - a:1\n  - a:1", "c.yaml:3: ps address 'a:1': is there twice"},
        {"ps: [[a]]", "c.yaml:1: ps must be a string, not a list"},
        {"ps: ['a:0']", "the port must be a number from 1 to 65535"},
        {"ps: ['a:65536']", "the port must be"},
        {"ps: ['a:1x']", "the port must be"},
        {"ps: ['a: 1']", "the port must be"},
        {"ps: ['a:']", "the port must be"},
        {"ps: [':1']", "expected host:port"},
        {"ps: ['unix:']", "the path after unix: is missing"},
        {"ps: [a:1\nworker: ]]", "c.yaml:2: "},
        {"ps: [*x]", "c.yaml:1: "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        psc_cluster *c = NULL;
        psc_error e;
        psc_code code = psc_cluster_parse(bad[i].yaml, "c.yaml", &c, &e);
        if (code != PSC_INVALID_ARGUMENT || c || !strstr(e.text, bad[i].text))
            fail_msg("'%s': got '%s', expected '%s'", bad[i].yaml, e.text, bad[i].text);
        assert_int_equal(psc_cluster_parse(bad[i].yaml, "c.yaml", &c, NULL), PSC_INVALID_ARGUMENT);
    }
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cluster.XXXXXX";
    psc_cluster *c;
    psc_error e;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "ps: [a:1]\n", 10), 10);
    close(fd);
    assert_int_equal(psc_cluster_load(path, &c, &e), PSC_OK);
    assert_int_equal(psc_cluster_tasks(c), 1);
    assert_int_equal(psc_cluster_workers(c), 0);
    psc_cluster_free(c);
    unlink(path);
    assert_int_equal(psc_cluster_load(path, &c, &e), PSC_NOT_FOUND);
    assert_non_null(strstr(e.text, path));
    assert_int_not_equal(psc_cluster_load("/", &c, &e), PSC_OK);
    assert_int_not_equal(psc_cluster_load("/dev/zero", &c, &e), PSC_OK);
}

static void test_lists(void **state)
{
    (void)state;
    psc_cluster *c;
    psc_error e;
    assert_int_equal(psc_cluster_create((const char *[]){"a:1", "unix:/x"}, 2, &c, &e), PSC_OK);
    assert_int_equal(psc_cluster_tasks(c), 2);
    psc_cluster_free(c);
    assert_int_equal(psc_cluster_create((const char *[]){"a:1", "x"}, 2, &c, &e), PSC_INVALID_ARGUMENT);
    assert_int_equal(psc_cluster_create(NULL, 0, &c, &e), PSC_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_lists),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
