// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/servers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "tools/common/program.h"
#include "tools/psbench/process.h"
#include "tools/psbench/stop.h"

enum { READY_FD = 3, READY_MS = 60000, LOOK_MS = 100 };

enum ps_code servers_find(struct servers *s, struct ps_error *e)
{
    return program_find("psd", "PSD", s->program, sizeof s->program, e);
}

// ---- addresses ----------------------------------------------------------------------------------------------------

// Every task is told where all of them are, so ports are chosen before any task runs: free ones, of different sockets
// that are open at once. Someone else may take one in between; then psd says so.
static enum ps_code servers_choose_ports(struct servers *s, struct ps_error *e)
{
    int fds[SERVERS_MAX];
    enum ps_code code = PS_OK;
    for (int i = 0; i < s->n; i++) {
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof any;
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fds[i] < 0 || bind(fds[i], (struct sockaddr *)&any, len) ||
            getsockname(fds[i], (struct sockaddr *)&any, &len))
            code = ps_fail(e, PS_UNAVAILABLE, "cannot find a free port: %s", strerror(errno));
        snprintf(s->addresses[i], sizeof s->addresses[i], "%s:%d", s->host, ntohs(any.sin_port));
    }
    for (int i = 0; i < s->n; i++)
        close(fds[i]);
    return code;
}

static enum ps_code servers_choose_addresses(struct servers *s, enum bench_transport transport, struct ps_error *e)
{
    if (rundir_create(&s->dir, s->n, 0, e))
        return e->code;
    if (transport == BENCH_TCP || transport == BENCH_TLS)
        return servers_choose_ports(s, e);
    for (int i = 0; i < s->n; i++)
        rundir_address(&s->dir, i, s->addresses[i]);
    return PS_OK;
}

static char *servers_peers(const struct servers *s)
{
    char *list = ps_strdup(s->addresses[0]);
    for (int i = 1; i < s->n; i++) {
        char *longer = ps_printf("%s,%s", list, s->addresses[i]);
        free(list);
        list = longer;
    }
    return list;
}

// ---- the start ----------------------------------------------------------------------------------------------------

// In the child. What psd says goes to standard error: standard output is psbench's alone. It listens where its user
// said, loopback or not.
static _Noreturn void servers_exec(const struct servers *s, int task, int ready_fd)
{
    struct ps_error e;
    char index[16], fd[16], *peers = servers_peers(s);
    snprintf(index, sizeof index, "%d", task);
    snprintf(fd, sizeof fd, "%d", READY_FD);
    char *argv[] = {
        (char *)s->program, "--quiet", "--insecure", "--listen", (char *)s->addresses[task], "--task",         index,
        "--peers",          peers,     "--ready-fd", fd,         s->shown ? "--tls" : NULL,  (char *)s->shown, NULL};
    if (process_enter(s->netns, &e)) {
        fprintf(stderr, "psbench: %s\n", e.text);
        _exit(1);
    }
    dup2(STDERR_FILENO, STDOUT_FILENO);
    if (ready_fd == READY_FD)
        fcntl(READY_FD, F_SETFD, 0);
    else
        dup2(ready_fd, READY_FD);
    execv(s->program, argv);
    fprintf(stderr, "psbench: cannot start %s: %s\n", s->program, strerror(errno));
    _exit(1);
}

static enum ps_code servers_await_ready(int fd, int task, struct ps_error *e)
{
    uint64_t until = ps_now() + READY_MS * PS_MS;
    for (;;) {
        char text[16];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int got = poll(&p, 1, LOOK_MS);
        if (stop_asked(e))
            return e->code;
        if (got > 0)
            return read(fd, text, sizeof text) > 0
                       ? PS_OK
                       : ps_fail(e, PS_UNAVAILABLE, "ps task %d has ended before it served", task);
        if (ps_now() > until)
            return ps_fail(e, PS_DEADLINE_EXCEEDED, "ps task %d was not ready within %d s", task, READY_MS / 1000);
    }
}

static enum ps_code servers_start_one(struct servers *s, int task, struct ps_error *e)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot make a pipe: %s", strerror(errno));
    s->pids[task] = process_fork();
    if (s->pids[task] == 0)
        servers_exec(s, task, pipes[1]);
    close(pipes[1]);
    enum ps_code code = s->pids[task] > 0 ? servers_await_ready(pipes[0], task, e)
                                          : ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot fork: %s", strerror(errno));
    close(pipes[0]);
    return code;
}

enum ps_code servers_start(struct servers *s, int n, enum bench_transport transport, struct ps_error *e)
{
    s->n = n;
    s->shown = transport == BENCH_TLS ? s->tls : NULL;
    memset(s->pids, 0, sizeof s->pids);
    enum ps_code code = servers_choose_addresses(s, transport, e);
    for (int i = 0; i < n && !code; i++)
        code = servers_start_one(s, i, e);
    if (code)
        servers_end(s);
    return code;
}

void servers_end(struct servers *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->pids[i] > 0)
            process_end(s->pids[i]);
    if (s->dir.path[0])
        rundir_remove(&s->dir);
    s->n = 0;
    s->dir.path[0] = '\0';
}
