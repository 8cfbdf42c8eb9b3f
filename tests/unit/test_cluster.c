// SPDX-License-Identifier: Apache-2.0
// The description of a cluster: what is read, from YAML, TF_CONFIG and lists, and that each mistake is named with its
// place, and leaves nothing behind.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cluster/cluster.h"
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

// ---- bad input ----------------------------------------------------------------------------------------------------

// text: the whole sentence; where it ends with "...", how it begins.
struct bad {
    const char *input, *text;
};

typedef psc_code (*parse_fn)(const char *text, psc_cluster **c, psc_error *e);

static psc_code parse_yaml(const char *text, psc_cluster **c, psc_error *e)
{
    return psc_cluster_parse(text, "c.yaml", c, e);
}

static bool says(const char *text, const char *expected)
{
    size_t n = strlen(expected);
    bool open = n > 3 && strcmp(expected + n - 3, "...") == 0;
    return open ? strncmp(text, expected, n - 3) == 0 && strlen(text) > n - 3 : strcmp(text, expected) == 0;
}

static void refused(parse_fn parse, const char *input, const char *text)
{
    psc_cluster *const untouched = (psc_cluster *)&refused, *c = untouched;
    psc_error e;
    psc_code code = parse(input, &c, &e);
    if (code != PSC_INVALID_ARGUMENT || e.code != code || c != untouched || !says(e.text, text))
        fail_msg("%.200s\n got      (%d) %s\n expected %s", input, code, e.text, text);
    assert_int_equal(parse(input, &c, NULL), PSC_INVALID_ARGUMENT);
}

static void test_yaml_mistakes(void **state)
{
    (void)state;
    static const char forms[] = "c.yaml:1: ps address '%s': expected host:port or unix:/path";
    static const struct bad bad[] = {
        {"", "c.yaml: ps is missing: the list of the ps tasks' addresses"},
        {"# nothing\n", "c.yaml: ps is missing: the list of the ps tasks' addresses"},
        {"- a:1", "c.yaml:1: expected a map with the key ps: a list of addresses"},
        {"7", "c.yaml:1: expected a map with the key ps: a list of addresses"},
        {"worker: ['a:1', 'b:1']",
         "c.yaml: lists workers alone: expected ps, too, the list of the ps tasks' addresses; of a "
         "job without ps tasks its workers' logs say how it goes"},
        {"worker: []", "c.yaml: ps is missing: the list of the ps tasks' addresses"},
        {"ps: []", "c.yaml:1: ps must be a list of addresses, as in [\"127.0.0.1:7070\"], not a list"},
        {"ps:", "c.yaml:1: ps must be a list of addresses, as in [\"127.0.0.1:7070\"], not empty"},
        {"ps: {a: 1}", "c.yaml:1: ps must be a list of addresses, as in [\"127.0.0.1:7070\"], not a map"},
        {"worker: [a]\nps: 7", "c.yaml:2: ps must be a list of addresses, as in [\"127.0.0.1:7070\"], not \"7\""},
        {"ps: [a:1]\nworker: 3", "c.yaml:2: worker must be a list with one entry per worker, not \"3\""},
        {"ps: [a:1]\n\nworkers: [a]", "c.yaml:3: unknown key 'workers'; did you mean 'worker'?"},
        {"ps: [a:1]\nchief: [a]", "c.yaml:2: unknown key 'chief'; expected ps, worker, tls or munge"},
        {"ps: [a:1]\n[x]: y", "c.yaml:2: a key must be a word"},
        {"ps: [a:1]\nps: [b:1]", "c.yaml:2: key \"ps\" appears twice, first on line 1"},
        {"ps:\n  - a:1\n  - b", "c.yaml:3: ps address 'b': expected host:port or unix:/path"},
        {"ps:\n  - a:1\n  - a:1", "c.yaml:3: ps address 'a:1': is there twice, each task needs its own"},
        {"ps: [[a]]", "c.yaml:1: ps must be a string, not a list"},
        {"ps: [~]", "c.yaml:1: ps must be a string, not empty"},
        {"ps: ['a:0']", "c.yaml:1: ps address 'a:0': the port must be a number from 1 to 65535"},
        {"ps: ['a:65536']", "c.yaml:1: ps address 'a:65536': the port must be a number from 1 to 65535"},
        {"ps: ['a:99999999999999999999']", "c.yaml:1: ps address 'a:99999999999999999999': the port must be..."},
        {"ps: ['a:1x']", "c.yaml:1: ps address 'a:1x': the port must be a number from 1 to 65535"},
        {"ps: ['a: 1']", "c.yaml:1: ps address 'a: 1': the port must be a number from 1 to 65535"},
        {"ps: ['a:-1']", "c.yaml:1: ps address 'a:-1': the port must be a number from 1 to 65535"},
        {"ps: ['a:']", "c.yaml:1: ps address 'a:': the port must be a number from 1 to 65535"},
        {"ps: ['unix:']", "c.yaml:1: ps address 'unix:': the path after unix: is missing"},
        {"ps: ['::1:7070']", "c.yaml:1: ps address '::1:7070': expected host:port, where an IPv6 address has..."},
        {"ps: ['a:1:2']", "c.yaml:1: ps address 'a:1:2': expected host:port, where an IPv6 address has brackets, as in "
                          "[::1]:7070"},
        {"ps: [a:1\nworker: ]]", "c.yaml:2: ..."},
        {"ps: [\"a:1\\0\"]", "c.yaml:1: a value has a NUL byte in it"},
        {"ps: [*x]", "c.yaml:1: aliases (*name) are not supported"},
        {"ps: &x [a:1]", "c.yaml:1: anchors (&name) are not supported"},
        {"ps: !!seq [a:1]", "c.yaml:1: tags (!name) are not supported"},
        {"ps: [a:1]\n---\nps: [a:1]", "c.yaml:2: a second document begins here; there may be one"},
        {"ps: [\xff]", "c.yaml:1: invalid leading UTF-8 octet at byte 5"},
        {"ps: [a:1]\nworker: [[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]", "c.yaml:2: values are nested too deeply"},
    };
    static const char *const no_addresses[] = {":1", "a", "grpc://a:1", "a b:1", "a,b:1", "a/b:1", "a\tb:1", "\x7f:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(parse_yaml, bad[i].input, bad[i].text);
    for (size_t i = 0; i < sizeof no_addresses / sizeof *no_addresses; i++) {
        char input[64], text[128];
        snprintf(input, sizeof input, "ps: [\"%s\"]", no_addresses[i]);
        snprintf(text, sizeof text, forms, no_addresses[i]);
        for (char *c = text; *c; c++)
            *c = *c == '\t' ? ' ' : *c;    // an error's text is one line that steers no terminal
        if (no_addresses[i][0] != '\x7f')  // which YAML does not take
            refused(parse_yaml, input, text);
        assert_int_equal(psc_cluster_create(&no_addresses[i], 1, &(psc_cluster *){NULL}, NULL), PSC_INVALID_ARGUMENT);
    }
}

#define TASK(type, index) "\"task\": {\"type\": " type ", \"index\": " index "}"
#define PS_OF(list) "{\"cluster\": {\"ps\": " list "}}"
#define CLUSTER(jobs) "{\"cluster\": {\"ps\": [\"p:1\"], " jobs "}}"
#define FULL(task) \
    "{\"cluster\": {\"ps\": [\"p:1\", \"q:1\"], \"worker\": [\"a:1\", \"b:1\"], \"chief\": [\"c:1\"]}, " task "}"
#define ADDRESSES "a list of addresses"
#define KNOWN "ps, worker, chief or evaluator"

static void test_tf_config_is_no_json(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"", "TF_CONFIG: line 1, column 0: not JSON: '[' or '{' expected"},
        {"{", "TF_CONFIG: line 1, column 1: not JSON: string or '}' expected"},
        {"{}}", "TF_CONFIG: line 1, column 3: not JSON: end of file expected"},
        {"{\"cluster\":\n {\"ps\": [\"a:1\",]}}", "TF_CONFIG: line 2, column 16: not JSON: ..."},
        {"7", "TF_CONFIG: line 1, column 1: not JSON: '[' or '{' expected"},
        {"{\"a\": 99999999999999999999}", "TF_CONFIG: line 1, column 26: not JSON: too big integer"},
        {"{\"a\": 1e999}", "TF_CONFIG: line 1, column 11: not JSON: real number overflow"},
        {"{\"cluster\": {}, \"cluster\": {}}", "TF_CONFIG: line 1, column 25: not JSON: duplicate object key"},
        {PS_OF("[\"\xff:1\"]"), "TF_CONFIG: line 1, column 21: not JSON: unable to decode byte 0xff"},
        {PS_OF("[\"a\\u0000:1\"]"), "TF_CONFIG: line 1, column 31: not JSON: \\u0000 is not allowed without..."},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(psc_cluster_parse_tf_config, bad[i].input, bad[i].text);
}

static void test_tf_config_cluster_mistakes(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"[]", "TF_CONFIG must be an object with cluster and task, not a list"},
        {"{}", "TF_CONFIG: cluster is missing: expected an object with the addresses of ps, worker and chief"},
        {"{\"cluster\": []}", "TF_CONFIG: cluster must be an object with the addresses of ps, worker and chief, not a "
                              "list"},
        {"{\"cluster\": null}", "TF_CONFIG: cluster must be an object with the addresses of ps, worker and chief, not "
                                "null"},
        {"{\"cluster\": {}}", "TF_CONFIG: cluster.ps is missing: expected the ps tasks' addresses"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, " TASK("\"worker\"", "0") "}",
         "TF_CONFIG: cluster.ps is missing: expected the ps tasks' addresses"},
        {PS_OF("[]"), "TF_CONFIG: cluster.ps is empty: expected the ps tasks' addresses"},
        {PS_OF("\"a:1\""), "TF_CONFIG: cluster.ps must be " ADDRESSES ", not a string"},
        {PS_OF("{\"0\": \"a:1\"}"), "TF_CONFIG: cluster.ps must be " ADDRESSES ", not an object"},
        {PS_OF("[\"a:1\", 7]"), "TF_CONFIG: cluster.ps[1] must be an address, as in \"node1:7070\", not a number"},
        {PS_OF("[\"a:1\", true]"), "TF_CONFIG: cluster.ps[1] must be an address, as in \"node1:7070\", not a boolean"},
        {PS_OF("[\"a:1\", \"\"]"), "TF_CONFIG: cluster.ps[1] is empty: expected host:port"},
        {PS_OF("[\"a\"]"), "TF_CONFIG: cluster.ps[0]: ps address 'a': expected host:port or unix:/path"},
        {PS_OF("[\"grpc://a:1\"]"),
         "TF_CONFIG: cluster.ps[0]: ps address 'grpc://a:1': expected host:port or unix:/path"},
        {PS_OF("[\"a:0\"]"), "TF_CONFIG: cluster.ps[0]: ps address 'a:0': the port must be a number from 1 to 65535"},
        {PS_OF("[\"a:1\", \"b:1\", \"a:1\"]"),
         "TF_CONFIG: cluster.ps[2]: address 'a:1' is cluster.ps[0] as well, each task needs its own"},
        {CLUSTER("\"worker\": [\"a:1\", \"p:1\"]"),
         "TF_CONFIG: cluster.worker[1]: address 'p:1' is cluster.ps[0] as well, each task needs its own"},
        {CLUSTER("\"worker\": {}"), "TF_CONFIG: cluster.worker must be " ADDRESSES ", not an object"},
        {CLUSTER("\"worker\": [[\"a:1\"]]"),
         "TF_CONFIG: cluster.worker[0] must be an address, as in \"node1:7070\", not a list"},
        {CLUSTER("\"chief\": [\"a:1\", \"b:1\"]"), "TF_CONFIG: cluster.chief has 2 addresses: expected at most 1"},
        {CLUSTER("\"chief\": [\"a:1\"], \"master\": []"),
         "TF_CONFIG: cluster.master: the chief is at cluster.chief already"},
        {CLUSTER("\"workers\": [\"a:1\"]"), "TF_CONFIG: cluster: unknown task type 'workers'; did you mean 'worker'?"},
        {CLUSTER("\"tpu_worker\": []"), "TF_CONFIG: cluster: unknown task type 'tpu_worker'; expected " KNOWN},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(psc_cluster_parse_tf_config, bad[i].input, bad[i].text);
}

static void test_tf_config_task_mistakes(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {FULL("\"task\": 1"), "TF_CONFIG: task must be an object with type and index, not a number"},
        {FULL("\"task\": null"), "TF_CONFIG: task must be an object with type and index, not null"},
        {FULL("\"task\": {}"), "TF_CONFIG: task.type is missing: expected " KNOWN},
        {FULL("\"task\": {\"index\": 0}"), "TF_CONFIG: task.type is missing: expected " KNOWN},
        {FULL("\"task\": {\"type\": \"ps\"}"), "TF_CONFIG: task.index is missing: expected a whole number from 0 on"},
        {FULL(TASK("7", "0")), "TF_CONFIG: task.type must be " KNOWN ", not a number"},
        {FULL(TASK("\"wroker\"", "0")), "TF_CONFIG: task.type: unknown task type 'wroker'; did you mean 'worker'?"},
        {FULL(TASK("\"coordinator\"", "0")), "TF_CONFIG: task.type: unknown task type 'coordinator'; expected " KNOWN},
        {FULL(TASK("\"ps\"", "-1")), "TF_CONFIG: task.index must be a whole number from 0 on, not a number"},
        {FULL(TASK("\"ps\"", "0.5")), "TF_CONFIG: task.index must be a whole number from 0 on, not a number"},
        {FULL(TASK("\"ps\"", "true")), "TF_CONFIG: task.index must be a whole number from 0 on, not a boolean"},
        {FULL(TASK("\"ps\"", "\"\"")), "TF_CONFIG: task.index must be a whole number from 0 on, not a string"},
        {FULL(TASK("\"ps\"", "\"1x\"")), "TF_CONFIG: task.index must be a whole number from 0 on, not a string"},
        {FULL(TASK("\"ps\"", "\" 1\"")), "TF_CONFIG: task.index must be a whole number from 0 on, not a string"},
        {FULL(TASK("\"ps\"", "2")), "TF_CONFIG: task.index is 2, but cluster.ps has 2 addresses, the first is 0"},
        {FULL(TASK("\"worker\"", "2")),
         "TF_CONFIG: task.index is 2, but cluster.worker has 2 addresses, the first is 0"},
        {FULL(TASK("\"chief\"", "1")), "TF_CONFIG: task.index is 1, but cluster.chief has 1 address, the first is 0"},
        {FULL(TASK("\"ps\"", "9223372036854775807")), "TF_CONFIG: task.index is 9223372036854775807, but..."},
        {FULL(TASK("\"ps\"", "\"99999999999999999999999\"")), "TF_CONFIG: task.index is 18446744073709551615, but..."},
        {FULL(TASK("\"ps\"", "9223372036854775808")), "TF_CONFIG: line 1, column 131: not JSON: too big integer"},
        {"{\"cluster\": {\"ps\": [\"p:1\"]}, " TASK("\"worker\"", "0") "}",
         "TF_CONFIG: task.type is worker, but cluster lists none"},
        {"{\"cluster\": {\"ps\": [\"p:1\"], \"chief\": []}, " TASK("\"chief\"", "0") "}",
         "TF_CONFIG: task.type is chief, but cluster lists none"},
        {"{\"cluster\": {\"ps\": [\"p:1\"], \"evaluator\": [\"e:1\"]}, " TASK("\"evaluator\"", "1") "}",
         "TF_CONFIG: task.index is 1, but cluster.evaluator has 1 address, the first is 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(psc_cluster_parse_tf_config, bad[i].input, bad[i].text);
}

// before, piece n times, after.
static char *repeated(const char *before, const char *piece, size_t n, const char *after)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    fputs(before, f);
    for (size_t i = 0; i < n; i++)
        fprintf(f, piece, i, i);
    fputs(after, f);
    fclose(f);
    return text;
}

static void refused_long(parse_fn parse, char *input, const char *text)
{
    refused(parse, input, text);
    free(input);
}

static void test_too_much(void **state)
{
    (void)state;
    psc_cluster *c;
    char *most = repeated("ps: [a:1", ", a%zu:1", 4095, "]\nworker: [a]\n");  // as many tasks as may be
    assert_int_equal(psc_cluster_parse(most, "c.yaml", &c, NULL), PSC_OK);
    assert_int_equal(psc_cluster_tasks(c), 4096);
    psc_cluster_free(c);
    free(most);
    most = repeated("ps: [a:1]\nworker: [a", ", a", 65535, "]\n");
    assert_int_equal(psc_cluster_parse(most, "c.yaml", &c, NULL), PSC_OK);
    assert_int_equal(psc_cluster_workers(c), 65536);
    psc_cluster_free(c);
    free(most);
    // Each of a length that names of hosts have.
    most = repeated("ps: [a:1]\nworker:\n", "  - worker-%05zu.training.example.com:7070\n", 65536, "");
    assert_int_equal(psc_cluster_parse(most, "c.yaml", &c, NULL), PSC_OK);
    assert_int_equal(psc_cluster_workers(c), 65536);
    psc_cluster_free(c);
    free(most);
    refused_long(parse_yaml, repeated("ps: [a:1]\nworker:\n", "  - w%zu:1\n", 65535, "  - w65000:1\n"),
                 "c.yaml:65538: worker address 'w65000:1': is there twice, each worker needs its own");
    refused_long(parse_yaml, repeated("ps: [a:1", ", a%zu:1", 4096, "]"),
                 "c.yaml:1: there are more than 4096 ps tasks");
    refused_long(parse_yaml, repeated("ps: [a:1]\nworker: [a", ", a", 65536, "]"),
                 "c.yaml:2: there are more than 65536 workers");
    refused_long(parse_yaml, repeated("ps: [a:1]\n", "# %zu\n", 2000000, ""), "c.yaml: more than 16777216 bytes");
    refused_long(parse_yaml, repeated("ps: [a:1]\nworker: ", "[", 100000, ""),
                 "c.yaml:2: values are nested too deeply");

    refused_long(psc_cluster_parse_tf_config, repeated("{\"cluster\": {\"ps\": [\"a:1\"", ", \"a%zu:1\"", 4096, "]}}"),
                 "TF_CONFIG: cluster.ps has 4097 addresses: expected at most 4096");
    refused_long(psc_cluster_parse_tf_config,
                 repeated("{\"cluster\": {\"ps\": [\"a:1\"], \"chief\": [\"b:1\"], \"worker\": [\"c\"", ", \"a%zu\"",
                          4095, "]}}"),
                 "TF_CONFIG: there are 4097 workers: expected at most 4096");
    refused_long(psc_cluster_parse_tf_config, repeated("{\"a\": ", "[", 100000, ""),
                 "TF_CONFIG: line 1, column 2054: not JSON: maximum parsing depth reached");
    refused_long(psc_cluster_parse_tf_config, repeated("{", "        ", 200000, "}"),
                 "TF_CONFIG: more than 1048576 bytes");
    refused_long(psc_cluster_parse_tf_config, repeated("{\"cluster\": {\"ps\": [\"", "aaaaaaaaaaaaaaaa", 4096, "\"]}}"),
                 "TF_CONFIG: cluster.ps[0]: ps address 'aaaa...");

    char *path = repeated("unix:/", "%zu", 10, "");
    char longer[128];
    snprintf(longer, sizeof longer, "unix:%0107d", 0);
    assert_int_equal(psc_cluster_create((const char *[]){path, longer}, 2, &c, NULL), PSC_OK);
    psc_cluster_free(c);
    strcat(longer, "0");
    assert_int_equal(psc_cluster_create((const char *[]){longer}, 1, &c, NULL), PSC_INVALID_ARGUMENT);
    free(path);
}

// ---- TF_CONFIG ----------------------------------------------------------------------------------------------------

static void assert_task(const char *json, psc_task_type type, size_t index, size_t workers)
{
    psc_cluster *c = NULL;
    psc_error e;
    size_t i = 4711;
    if (psc_cluster_parse_tf_config(json, &c, &e))
        fail_msg("%s: %s", json, e.text);
    assert_int_equal(psc_cluster_task(c, &i), type);
    assert_int_equal(psc_cluster_task(c, NULL), type);
    assert_int_equal(i, type == PSC_TASK_NONE ? 4711 : index);
    assert_int_equal(psc_cluster_workers(c), workers);
    psc_cluster_free(c);
}

static void test_tf_config_tasks(void **state)
{
    (void)state;
#define PLAIN(task) "{\"cluster\": {\"ps\": [\"p:1\"], \"worker\": [\"a:1\", \"b:1\"]}, " task "}"
    assert_task(FULL(TASK("\"ps\"", "1")), PSC_TASK_PS, 1, 3);
    assert_task(FULL(TASK("\"chief\"", "0")), PSC_TASK_WORKER, 0, 3);
    assert_task(FULL(TASK("\"master\"", "0")), PSC_TASK_WORKER, 0, 3);
    assert_task(FULL(TASK("\"worker\"", "0")), PSC_TASK_WORKER, 1, 3);
    assert_task(FULL(TASK("\"worker\"", "1")), PSC_TASK_WORKER, 2, 3);
    assert_task(FULL(TASK("\"worker\"", "\"1\"")), PSC_TASK_WORKER, 2, 3);
    assert_task(FULL(TASK("\"evaluator\"", "0")), PSC_TASK_EVALUATOR, 0, 3);
    assert_task(FULL("\"rpc_layer\": \"grpc\", \"environment\": {\"cloud\": [1]}"), PSC_TASK_NONE, 0, 3);
    assert_task(FULL("\"task\": {\"type\": \"ps\", \"index\": 0, \"trial\": \"7\"}"), PSC_TASK_PS, 0, 3);
    assert_task(PLAIN(TASK("\"worker\"", "0")), PSC_TASK_WORKER, 0, 2);
    assert_task(PLAIN(TASK("\"worker\"", "1")), PSC_TASK_WORKER, 1, 2);
    assert_task(
        "{\"cluster\": {\"worker\": [\"a:1\"], \"master\": [\"m:1\"], \"ps\": [\"p:1\"]}, " TASK("\"worker\"", "0") "}",
        PSC_TASK_WORKER, 1, 2);
    assert_task("{\"cluster\": {\"evaluator\": [\"e:1\", \"f:1\"], \"ps\": [\"p:1\"]}, " TASK("\"evaluator\"", "1") "}",
                PSC_TASK_EVALUATOR, 1, 0);
}

// What a cluster is, as one string.
static char *spec_of(const psc_cluster *c)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    for (size_t i = 0; i < psc_cluster_tasks(c); i++)
        fprintf(f, "%s ", psc_cluster_address(c, i));
    fprintf(f, "workers %zu", psc_cluster_workers(c));
    fclose(f);
    return text;
}

static void test_same(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *json;
    } same[] = {
        {"ps: [p:1, q:1]\nworker: [c, a, b]\n", FULL(TASK("\"worker\"", "1"))},
        {"ps: [p:1, q:1]\nworker: [c, a, b]\n", FULL(TASK("\"ps\"", "0"))},
        {"ps: ['unix:/run/a.sock', '[::1]:7070']\n", PS_OF("[\"unix:/run/a.sock\", \"[::1]:7070\"]")},
        {"ps: ['p:1']\nworker: [a]", CLUSTER("\"chief\": [\"a:1\"]")},
        {"ps: ['p:1']\nworker: []", CLUSTER("\"worker\": [], \"evaluator\": [\"e:1\"]")},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        psc_cluster *yaml, *json;
        assert_int_equal(parse_yaml(same[i].yaml, &yaml, NULL), PSC_OK);
        assert_int_equal(psc_cluster_parse_tf_config(same[i].json, &json, NULL), PSC_OK);
        char *a = spec_of(yaml), *b = spec_of(json);
        assert_string_equal(a, b);
        assert_int_equal(psc_cluster_task(yaml, NULL), PSC_TASK_NONE);
        free(a);
        free(b);
        psc_cluster_free(yaml);
        psc_cluster_free(json);
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

static void test_find(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cluster.XXXXXX";
    psc_cluster *c;
    psc_error e;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "ps: [y:1]\n", 10), 10);
    close(fd);

    unsetenv("TF_CONFIG");
    assert_int_equal(psc_cluster_find(NULL, &c, &e), PSC_NOT_FOUND);
    assert_string_equal(e.text, "no cluster is named: neither a cluster file nor the environment's TF_CONFIG");
    setenv("TF_CONFIG", "", 1);
    assert_int_equal(psc_cluster_find(NULL, &c, NULL), PSC_NOT_FOUND);
    setenv("TF_CONFIG", "{}", 1);
    assert_int_equal(psc_cluster_find(NULL, &c, &e), PSC_INVALID_ARGUMENT);
    setenv("TF_CONFIG", FULL(TASK("\"ps\"", "1")), 1);
    assert_int_equal(psc_cluster_find(NULL, &c, &e), PSC_OK);
    assert_int_equal(psc_cluster_task(c, NULL), PSC_TASK_PS);
    psc_cluster_free(c);

    // The file comes first, and is not made good for by the environment.
    assert_int_equal(psc_cluster_find(path, &c, &e), PSC_OK);
    assert_string_equal(psc_cluster_address(c, 0), "y:1");
    assert_int_equal(psc_cluster_task(c, NULL), PSC_TASK_NONE);
    psc_cluster_free(c);
    unlink(path);
    assert_int_equal(psc_cluster_find(path, &c, &e), PSC_NOT_FOUND);
    assert_non_null(strstr(e.text, path));
    unsetenv("TF_CONFIG");
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
    assert_string_equal(e.text, "ps address 'x': expected host:port or unix:/path");
    assert_int_equal(psc_cluster_create((const char *[]){"a:1", "a:1"}, 2, &c, &e), PSC_INVALID_ARGUMENT);
    assert_string_equal(e.text, "ps address 'a:1': is there twice, each task needs its own");
    assert_int_equal(psc_cluster_create(NULL, 0, &c, &e), PSC_INVALID_ARGUMENT);
    assert_string_equal(e.text, "a cluster needs at least one ps task");
}

// ---- no memory ----------------------------------------------------------------------------------------------------

// Allocations of ours and of jansson's (the linker wraps the first) fail from the countdown's end on; those of the C
// library and of libyaml do not.
static long until_none = -1;  // -1: never

static bool refuse_memory(void)
{
    return until_none >= 0 && until_none-- == 0;
}

void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_malloc(size_t size);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse_memory() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return refuse_memory() ? NULL : __real_realloc(p, size);
}

void *__wrap_malloc(size_t size)
{
    return refuse_memory() ? NULL : __real_malloc(size);
}

char *__wrap_strdup(const char *s)
{
    return refuse_memory() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return refuse_memory() ? NULL : __real_strndup(s, n);
}

static psc_code create_two(const char *text, psc_cluster **c, psc_error *e)
{
    return psc_cluster_create((const char *[]){text, "b:1"}, 2, c, e);
}

// Fails the nth allocation for every n until there is none left to fail.
static void sweep(parse_fn parse, const char *input, long at_least)
{
    for (long n = 0;; n++) {
        psc_cluster *c = NULL;
        psc_error e;
        until_none = n;
        psc_code code = parse(input, &c, &e);
        bool met = until_none < 0;
        until_none = -1;
        if (!met) {
            assert_int_equal(code, PSC_OK);
            psc_cluster_free(c);
            assert_true(n >= at_least);
            return;
        }
        // jansson takes some of its own failures for mistakes in the text.
        bool mistaken = parse == psc_cluster_parse_tf_config && strstr(e.text, "not JSON");
        if (code == PSC_OK || c || (!mistaken && (code != PSC_RESOURCE_EXHAUSTED || !strstr(e.text, "no memory "))))
            fail_msg("allocation %ld of '%s': %d %s", n, input, code, e.text);
    }
}

static bool same_path(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_tls(const struct ps_tls_files *a, const struct ps_tls_files *b)
{
    return same_path(a->folder, b->folder) && same_path(a->ca, b->ca) && same_path(a->certificate, b->certificate) &&
           same_path(a->key, b->key);
}

// A cluster that had certificates has them still: else the next connection would be in plain text.
static void test_what_is_refused_changes_nothing(void **state)
{
    (void)state;
    const struct ps_tls_files folder = {.folder = (char *)"/tls"}, no_certificate = {.ca = (char *)"ca"},
                              all = {NULL, (char *)"ca", (char *)"certificate", (char *)"key"};
    struct ps_cluster c = {0};
    struct ps_error e;
    assert_int_equal(ps_cluster_set_tls(&c, &folder, &e), PS_OK);
    assert_int_equal(ps_cluster_set_tls(&c, &no_certificate, &e), PS_INVALID_ARGUMENT);
    assert_true(same_tls(&c.tls, &folder));
    for (long n = 0; n < 3; n++) {
        until_none = n;
        assert_int_equal(ps_cluster_set_tls(&c, &all, &e), PS_RESOURCE_EXHAUSTED);
        until_none = -1;
        assert_true(same_tls(&c.tls, &folder));
    }
    assert_int_equal(ps_cluster_set_munge(&c, "/run/munged", &e), PS_INVALID_ARGUMENT);
    assert_true(!c.munge && !c.munge_socket);
    assert_int_equal(ps_cluster_set_tls(&c, &all, &e), PS_OK);
    assert_true(same_tls(&c.tls, &all));
    ps_cluster_fini(&c);

    assert_int_equal(ps_cluster_set_munge(&c, "/run/munged", &e), PS_OK);
    assert_int_equal(ps_cluster_set_tls(&c, &folder, &e), PS_INVALID_ARGUMENT);
    assert_false(ps_cluster_has_tls(&c));
    until_none = 0;
    assert_int_equal(ps_cluster_set_munge(&c, "/other", &e), PS_RESOURCE_EXHAUSTED);
    until_none = -1;
    assert_int_equal(ps_cluster_set_munge(&c, NULL, &e), PS_OK);
    assert_true(c.munge);
    assert_string_equal(c.munge_socket, "/run/munged");
    ps_cluster_fini(&c);
}

static void test_no_memory(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cluster.XXXXXX";
    const char *yaml = "ps: [a:1, b:1]\nworker: [x, {y: z}]\n";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, yaml, strlen(yaml)), strlen(yaml));
    close(fd);
    sweep(parse_yaml, yaml, 12);
    sweep(psc_cluster_load, path, 13);
    sweep(create_two, "a:1", 5);
    json_set_alloc_funcs(__wrap_malloc, free);
    sweep(psc_cluster_parse_tf_config, FULL(TASK("\"worker\"", "1")), 30);
    json_set_alloc_funcs(__real_malloc, free);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_yaml_mistakes),
        cmocka_unit_test(test_tf_config_is_no_json),
        cmocka_unit_test(test_tf_config_cluster_mistakes),
        cmocka_unit_test(test_tf_config_task_mistakes),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_tf_config_tasks),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_what_is_refused_changes_nothing),
        cmocka_unit_test(test_no_memory),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
