// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/options.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/error.h"
#include "common/base/parse.h"
#include "config.h"
#include "tools/common/cli.h"
#include "tools/psbench/servers.h"

static const char help[] = "usage: psbench COMMAND... [OPTIONS]\n"
                           "Measures psd on this machine: starts its own, calls it, ends it.\n"
                           "\n"
                           "  push pull pushpull assign_add   calls of libpsclient on one variable\n"
                           "  allreduce                       of 2 or more --workers, on a ring, without psd\n"
                           "  limit                           memory, and plain sockets doing the same work\n"
                           "\n"
                           "  --size LIST        bytes of the variable, K, M, G (4K,64K,1M,16M)\n"
                           "  --window N         calls under way per worker (64 to 2, by size)\n"
                           "  --workers LIST     client processes (1)\n"
                           "  --ps N             ps tasks (1)\n"
                           "  --transport LIST   tcp, tls, unix; of allreduce shm, too (tcp)\n"
                           "  --tls FOLDER       certificates for tls (psctl tls init makes them)\n"
                           "  --rule LIST        what a push does: noop (w += g), sgd, adam (sgd)\n"
                           "  --seconds S        of a repetition, as it counts (1)\n"
                           "  --repeat N         repetitions, in turn with all others (5)\n"
                           "  --no-limit         do not measure the plain socket beside each\n"
                           "  --host ADDRESS     IPv4 address that servers listen on (127.0.0.1)\n"
                           "  --netns NAME       network namespace that servers run in\n"
                           "  --json             one object, or an array of them\n"
                           "  --plot FILE        GB/s over size, as SVG\n"
                           "  --help, --version\n";

enum { LIST_MAX = 64, WORKERS_MAX = 1024 };

// ---- words --------------------------------------------------------------------------------------------------------

bool options_size(const char *text, uint64_t *bytes)
{
    uint64_t n;
    if (!ps_parse_bytes(text, &n) || n % 4 || n > UINT64_C(4) << 30)
        return false;
    *bytes = n;
    return true;
}

// The next word of a list with commas; false: there is none left.
static bool options_next(const char **list, char word[32])
{
    if (!**list)
        return false;
    size_t len = strcspn(*list, ",");
    snprintf(word, 32, "%.*s", (int)(len < 31 ? len : 31), *list);
    *list += len + ((*list)[len] == ',');
    return true;
}

static bool options_wrong(const char *what, const char *word, const char *const *known, int n)
{
    const char *near = ps_nearest(word, known, n);
    fprintf(stderr, "psbench: unknown %s %s", what, word);
    if (near)
        fprintf(stderr, ", did you mean %s?\n", near);
    else
        fprintf(stderr, "; psbench --help lists the known ones\n");
    return false;
}

// Sets chosen[i] for every word of the list that is known[i].
static bool options_choose(const char *what, const char *list, const char *const *known, int n, bool *chosen)
{
    char word[32];
    while (options_next(&list, word)) {
        int i = 0;
        while (i < n && strcmp(known[i], word) != 0)
            i++;
        if (i == n)
            return options_wrong(what, word, known, n);
        chosen[i] = true;
    }
    return true;
}

static bool options_sizes(struct bench_plan *plan, const char *list)
{
    char word[32];
    plan->sizes = ps_alloc(LIST_MAX * sizeof *plan->sizes);
    if (!*list) {
        fprintf(stderr, "psbench: --size is empty, expected sizes such as 64K,1M\n");
        return false;
    }
    while (plan->n_sizes < LIST_MAX && options_next(&list, word))
        if (!options_size(word, &plan->sizes[plan->n_sizes++])) {
            fprintf(stderr, "psbench: --size is %s, expected a multiple of 4 bytes up to 4G, such as 64K or 1M\n",
                    word);
            return false;
        }
    return true;
}

static bool options_workers(struct bench_plan *plan, const char *list)
{
    char word[32];
    plan->workers = ps_alloc(LIST_MAX * sizeof *plan->workers);
    while (plan->n_workers < LIST_MAX && options_next(&list, word)) {
        long n;
        if (!ps_parse_number(word, 1, WORKERS_MAX, &n)) {
            fprintf(stderr, "psbench: --workers is %s, expected a number from 1 to %d\n", word, WORKERS_MAX);
            return false;
        }
        plan->workers[plan->n_workers++] = n;
    }
    if (plan->n_workers == 0)
        fprintf(stderr, "psbench: --workers is empty, expected numbers such as 1,8\n");
    return plan->n_workers > 0;
}

// An all-reduce is of several, each of which has an address.
static bool options_ring(const struct bench_plan *plan)
{
    for (size_t i = 0; plan->commands[BENCH_ALLREDUCE] && i < plan->n_workers; i++)
        if (plan->workers[i] < 2 || plan->workers[i] > BENCH_RING_WORKERS_MAX) {
            fprintf(stderr, "psbench: --workers is %ld, expected 2 to %d for allreduce\n", plan->workers[i],
                    BENCH_RING_WORKERS_MAX);
            return false;
        }
    return true;
}

static bool options_tls(const struct bench_plan *plan)
{
    if (plan->transports[BENCH_TLS] == (plan->tls != NULL))
        return true;
    fprintf(stderr, "psbench: --transport tls and --tls FOLDER go together\n");
    return false;
}

// Servers and plain sockets listen on it: a host's name is not looked up.
static bool options_host(const char *host)
{
    struct in_addr address;
    if (inet_pton(AF_INET, host, &address) == 1)
        return true;
    fprintf(stderr, "psbench: --host is %s, expected an IPv4 address such as 127.0.0.1\n", host);
    return false;
}

static bool options_seconds(struct bench_plan *plan, const char *text)
{
    char *end;
    plan->seconds = strtod(text, &end);
    if (end != text && !*end && plan->seconds >= 0.01 && plan->seconds <= 3600)
        return true;
    fprintf(stderr, "psbench: --seconds is %s, expected a number from 0.01 to 3600\n", text);
    return false;
}

// ---- the whole ----------------------------------------------------------------------------------------------------

struct said {
    const char *size, *workers, *transport, *rule, *seconds;
    bool version;
};

static bool options_understand(struct bench_plan *plan, const struct said *said, int n, char **commands)
{
    for (int i = 0; i < n; i++)
        if (!options_choose("command", commands[i], bench_commands, BENCH_SAID_COMMANDS, plan->commands))
            return false;
    if (plan->no_limit && plan->commands[BENCH_LIMIT]) {
        fprintf(stderr, "psbench: --no-limit does not go with limit\n");
        return false;
    }
    return options_sizes(plan, said->size) && options_workers(plan, said->workers) && options_ring(plan) &&
           options_seconds(plan, said->seconds) && options_host(plan->host) &&
           options_choose("transport", said->transport, bench_transports, BENCH_TRANSPORTS, plan->transports) &&
           options_tls(plan) && options_choose("rule", said->rule, bench_rules, BENCH_RULES, plan->rules);
}

bool options_parse(struct options *o, int argc, char **argv, int *exit_code)
{
    struct said said = {.size = "4K,64K,1M,16M", .workers = "1", .transport = "tcp", .rule = "sgd", .seconds = "1"};
    *o = (struct options){.plan = {.ps = 1, .repeat = 5, .host = "127.0.0.1"}};
    struct bench_plan *plan = &o->plan;
    const struct cli_option known[] = {{.name = "size", .text = &said.size},
                                       {.name = "window", .number = &plan->window, .min = 1, .max = 4096},
                                       {.name = "workers", .text = &said.workers},
                                       {.name = "ps", .number = &plan->ps, .min = 1, .max = SERVERS_MAX},
                                       {.name = "transport", .text = &said.transport},
                                       {.name = "tls", .text = &plan->tls},
                                       {.name = "rule", .text = &said.rule},
                                       {.name = "seconds", .text = &said.seconds},
                                       {.name = "repeat", .number = &plan->repeat, .min = 1, .max = 1000},
                                       {.name = "no-limit", .flag = &plan->no_limit},
                                       {.name = "host", .text = &plan->host},
                                       {.name = "netns", .text = &plan->netns},
                                       {.name = "json", .flag = &o->json},
                                       {.name = "plot", .text = &o->plot},
                                       {.name = "version", .letter = 'V', .flag = &said.version}};
    int first = 0;
    enum cli_result result = cli_parse("psbench", argc, argv, known, sizeof known / sizeof *known, false, &first);
    *exit_code = result == CLI_WRONG ? PS_EXIT_USAGE : 0;
    if (result == CLI_HELP)
        fputs(help, stdout);
    else if (result == CLI_OK && said.version)
        puts("psbench " PACKAGE_VERSION);
    if (result != CLI_OK || said.version)
        return false;
    *exit_code = PS_EXIT_USAGE;
    if (first == argc) {
        fprintf(stderr, "psbench: no command; psbench --help lists them\n");
        return false;
    }
    return options_understand(plan, &said, argc - first, argv + first);
}

void options_free(struct options *o)
{
    free(o->plan.sizes);
    free(o->plan.workers);
}
