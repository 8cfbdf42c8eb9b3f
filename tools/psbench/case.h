// SPDX-License-Identifier: Apache-2.0
//
// What is measured: one case is one command on one size in one configuration. All cases of a run are repeated in turn,
// so that what disturbs the machine disturbs all of them.
#ifndef PSBENCH_CASE_H
#define PSBENCH_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/psbench/stats.h"

// Who does the work.
enum bench_target {
    BENCH_PSD,     // psd, through libpsclient
    BENCH_RING,    // workers alone
    BENCH_SOCKET,  // a program of its own over a plain socket: the limit of what psd can reach
    BENCH_MEMORY,  // one thread and its memory, no other process
};

enum bench_command {
    BENCH_PUSH,
    BENCH_PULL,
    BENCH_PUSHPULL,
    BENCH_ASSIGN_ADD,
    BENCH_ALLREDUCE,  // BENCH_RING alone
    BENCH_LIMIT,      // on the command line: stands for all sockets' and memory's cases
    BENCH_MEMCPY,     // BENCH_MEMORY alone
    BENCH_APPLY,      // BENCH_MEMORY alone: the rule
};
enum { BENCH_COMMANDS = BENCH_APPLY + 1, BENCH_SAID_COMMANDS = BENCH_LIMIT + 1 };

enum bench_transport { BENCH_TCP, BENCH_TLS, BENCH_UNIX, BENCH_SHM };  // BENCH_SHM: of BENCH_RING alone
enum { BENCH_TRANSPORTS = BENCH_SHM + 1, BENCH_RING_WORKERS_MAX = 64 };

// noop is assign_add, w += g: psd has no path that takes a gradient and applies nothing.
enum bench_rule { BENCH_NOOP, BENCH_SGD, BENCH_ADAM };
enum { BENCH_RULES = BENCH_ADAM + 1 };

extern const char *const bench_targets[];           // "psd"
extern const char *const bench_commands[];          // "push"
extern const char *const bench_transports[];        // "tcp"
extern const char *const bench_rules[];             // "noop"
const char *bench_rule_name(enum bench_rule rule);  // the library's: "assign_add"

// One repetition. What is not known is NaN.
struct bench_sample {
    double bytes_per_s;  // of the variable, once per call
    double calls_per_s;
    double client_cpu, server_cpu;  // seconds per byte
    double client_rss, server_rss;  // bytes, at their peak, of all processes together
    double share_min, share_max;  // calls of the worker that made the fewest and the most, over the mean of all workers
};

struct bench_case {
    enum bench_target target;
    enum bench_command command;
    enum bench_transport transport;
    enum bench_rule rule;
    uint64_t size;  // bytes of the variable, a multiple of 4
    long window;    // calls under way per worker
    long workers, ps;
    const struct bench_case *limit;  // the socket's case that does the same work; NULL: none

    struct bench_sample *samples;  // [repeat]
    size_t n_samples;
    struct histogram latency;  // ns, of all samples
};

// What the command line asks for.
struct bench_plan {
    bool commands[BENCH_SAID_COMMANDS];
    bool transports[BENCH_TRANSPORTS], rules[BENCH_RULES];
    uint64_t *sizes;
    size_t n_sizes;
    long *workers;
    size_t n_workers;
    long window;  // 0: by size
    long ps, repeat;
    double seconds;     // of a repetition
    bool no_limit;      // leave the socket's cases out
    const char *host;   // that servers listen on
    const char *netns;  // network namespace of the servers; NULL: ours
    const char *tls;    // folder of certificates, for BENCH_TLS
};

struct bench_cases {
    struct bench_case *v;
    size_t n;
};

// Every combination, in the order in which a repetition goes through them. A case's limit stands right after it, where
// no earlier case has the same.
void bench_cases_make(struct bench_cases *cases, const struct bench_plan *plan);
void bench_cases_free(struct bench_cases *cases);

// The window where none is given: enough calls under way that neither side waits for the other.
long bench_window(uint64_t size);

#endif
