// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/case.h"

#include <stdlib.h>

#include "common/base/alloc.h"

const char *const bench_targets[] = {"psd", "ring", "socket", "memory"};
const char *const bench_commands[] = {"push",      "pull",  "pushpull", "assign_add",
                                      "allreduce", "limit", "memcpy",   "apply"};
const char *const bench_transports[] = {"tcp", "tls", "unix", "shm"};
const char *const bench_rules[] = {"noop", "sgd", "adam"};

const char *bench_rule_name(enum bench_rule rule)
{
    return rule == BENCH_NOOP ? "assign_add" : bench_rules[rule];
}

long bench_window(uint64_t size)
{
    const uint64_t kib = 1024, mib = 1024 * kib;
    return size <= 16 * kib ? 64 : size <= 256 * kib ? 16 : size <= 2 * mib ? 8 : size <= 32 * mib ? 4 : 2;
}

// ---- the list -----------------------------------------------------------------------------------------------------

static bool case_does_same(const struct bench_case *a, const struct bench_case *b)
{
    return a->target == b->target && a->command == b->command && a->transport == b->transport && a->rule == b->rule &&
           a->size == b->size && a->window == b->window && a->workers == b->workers;
}

// The index of c in the list, where it is put if it is not there.
static size_t case_put(struct bench_cases *cases, const struct bench_case *c)
{
    for (size_t i = 0; i < cases->n; i++)
        if (case_does_same(&cases->v[i], c))
            return i;
    cases->v[cases->n] = *c;
    return cases->n++;
}

// The same work without psd, and without TLS. assign_add is a push of w += g.
static struct bench_case case_over_socket(const struct bench_case *c)
{
    struct bench_case socket = *c;
    socket.target = BENCH_SOCKET;
    if (c->command == BENCH_ASSIGN_ADD)
        socket.command = BENCH_PUSH;
    if (c->command == BENCH_PULL)
        socket.rule = BENCH_NOOP;
    if (c->transport == BENCH_TLS)
        socket.transport = BENCH_TCP;
    socket.ps = c->command != BENCH_ALLREDUCE;
    return socket;
}

static void case_put_limits(struct bench_cases *cases, const struct bench_case *c)
{
    static const enum bench_command commands[] = {BENCH_PUSH, BENCH_PULL, BENCH_PUSHPULL};
    struct bench_case limit = *c;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        limit.command = commands[i];
        struct bench_case socket = case_over_socket(&limit);
        case_put(cases, &socket);
    }
    limit = (struct bench_case){.target = BENCH_MEMORY, .size = c->size, .window = 1, .workers = 1};
    limit.command = BENCH_MEMCPY;
    case_put(cases, &limit);
    limit.command = BENCH_APPLY;
    for (int rule = 0; rule < BENCH_RULES; rule++) {
        limit.rule = (enum bench_rule)rule;
        case_put(cases, &limit);
    }
}

static void case_put_with_limit(struct bench_cases *cases, const struct bench_case *c, bool no_limit)
{
    size_t at = case_put(cases, c);
    struct bench_case socket = case_over_socket(c);
    if (!no_limit)
        cases->v[at].limit = &cases->v[case_put(cases, &socket)];
}

// One call after the other, and no ps task. No socket does what shared memory does.
static void case_put_ring(struct bench_cases *cases, struct bench_case c, bool no_limit)
{
    c.window = 1;
    c.ps = 0;
    if (c.transport == BENCH_SHM)
        case_put(cases, &c);
    else
        case_put_with_limit(cases, &c, no_limit);
}

static void case_put_sizes_and_workers(struct bench_cases *cases, const struct bench_plan *plan, struct bench_case c)
{
    // A rule says nothing of assign_add, which is its own, nor of an all-reduce.
    if (c.command == BENCH_ASSIGN_ADD || c.command == BENCH_ALLREDUCE)
        c.rule = BENCH_NOOP;
    c.target = c.command == BENCH_ALLREDUCE ? BENCH_RING : BENCH_PSD;
    for (size_t i = 0; i < plan->n_sizes * plan->n_workers; i++) {
        c.size = plan->sizes[i / plan->n_workers];
        c.workers = plan->workers[i % plan->n_workers];
        c.window = plan->window ? plan->window : bench_window(c.size);
        if (c.command == BENCH_LIMIT)
            case_put_limits(cases, &c);
        else if (c.command == BENCH_ALLREDUCE)
            case_put_ring(cases, c, plan->no_limit);
        else
            case_put_with_limit(cases, &c, plan->no_limit);
    }
}

void bench_cases_make(struct bench_cases *cases, const struct bench_plan *plan)
{
    enum { MOST_EACH = BENCH_SAID_COMMANDS * BENCH_TRANSPORTS * BENCH_RULES * 8 };
    *cases = (struct bench_cases){.v = ps_alloc(plan->n_sizes * plan->n_workers * MOST_EACH * sizeof *cases->v)};
    struct bench_case c = {.target = BENCH_PSD, .ps = plan->ps};
    for (int command = 0; command < BENCH_SAID_COMMANDS; command++)
        for (int transport = 0; transport < BENCH_TRANSPORTS; transport++)
            for (int rule = 0; rule < BENCH_RULES; rule++) {
                c.command = (enum bench_command)command;
                c.transport = (enum bench_transport)transport;
                c.rule = (enum bench_rule)rule;
                if (plan->commands[command] && plan->transports[transport] && plan->rules[rule] &&
                    (c.transport != BENCH_SHM || c.command == BENCH_ALLREDUCE))
                    case_put_sizes_and_workers(cases, plan, c);
            }
    for (size_t i = 0; i < cases->n; i++)
        cases->v[i].samples = ps_alloc((size_t)plan->repeat * sizeof *cases->v[i].samples);
}

void bench_cases_free(struct bench_cases *cases)
{
    for (size_t i = 0; i < cases->n; i++)
        free(cases->v[i].samples);
    free(cases->v);
}
