// SPDX-License-Identifier: Apache-2.0
//
// The limit of what psd can reach: the same work over a plain socket, by two processes with one thread per connection
// that do nothing else. No messages, no retries, no versions, no locks: both know the size, a push is its bytes and an
// answer of eight, a pull a question of eight bytes and its bytes back. Whatever can be sent goes into one system call;
// the server applies the rule to chunks as large as libclient's.
#ifndef PSBENCH_SOCKET_H
#define PSBENCH_SOCKET_H

#include "tools/psbench/load.h"
#include "tools/psbench/servers.h"

struct socket_server {
    pid_t pid;
    int listener;
    struct rundir dir;
    char address[SERVERS_ADDRESS_MAX];  // as psd's
};

// A process that serves c's workers at host, in that network namespace.
enum ps_code socket_server_start(struct socket_server *s, const struct bench_case *c, const char *host,
                                 const char *netns, struct ps_error *e);
void socket_server_end(struct socket_server *s);

struct socket_work {
    const struct bench_case *c;
    const struct socket_server *server;
};

// A load_work_fn. arg: struct socket_work.
enum ps_code socket_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e);

#endif
