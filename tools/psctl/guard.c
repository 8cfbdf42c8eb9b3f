// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tools/psctl/group.h"

enum { GROUPS_MAX = 2 * GROUP_MAX, END_MS = 2000, LOOK_MS = 50 };

// ---- the guard's own process --------------------------------------------------------------------------------------

struct groups {
    pid_t v[GROUPS_MAX];
    int n;
};

// A group's number: it runs; negative: it has ended.
static void guard_note(struct groups *g, pid_t group)
{
    for (int i = 0; i < g->n; i++)
        if (g->v[i] == -group) {
            g->v[i] = g->v[--g->n];
            return;
        }
    if (group > 0 && g->n < GROUPS_MAX)
        g->v[g->n++] = group;
}

// True: someone is still there.
static bool signal_all(const struct groups *g, int signum)
{
    bool any = false;
    for (int i = 0; i < g->n; i++)
        any |= kill(-g->v[i], signum) == 0;
    return any;
}

static void guard_run(int fd)
{
    struct groups groups = {.n = 0};
    pid_t group;
    ssize_t got;
    while ((got = read(fd, &group, sizeof group)) == (ssize_t)sizeof group || (got < 0 && errno == EINTR))
        if (got > 0)
            guard_note(&groups, group);
    signal_all(&groups, SIGTERM);
    for (int ms = 0; ms < END_MS && signal_all(&groups, 0); ms += LOOK_MS)
        ps_sleep(LOOK_MS * PS_MS);
    signal_all(&groups, SIGKILL);
}

// A session of its own and no descriptor but the pipe: neither a key at the terminal nor psctl's group's end ends it,
// and nobody who reads psctl's output waits for it.
static void guard_process(const int pipes[2])
{
    int null = open("/dev/null", O_RDWR);
    setsid();
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    close(pipes[1]);
    guard_run(pipes[0]);
    _exit(0);
}

// ---- psctl's side -------------------------------------------------------------------------------------------------

void guard_start(struct guard *g)
{
    int pipes[2];
    *g = (struct guard){.fd = -1};
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return;
    g->pid = fork();
    if (g->pid == 0)
        guard_process(pipes);
    close(pipes[0]);
    if (g->pid > 0)
        g->fd = pipes[1];
    else
        close(pipes[1]);
}

static void guard_send(struct guard *g, pid_t what)
{
    if (g->fd >= 0 && write(g->fd, &what, sizeof what) != (ssize_t)sizeof what) {
        close(g->fd);  // it is gone
        g->fd = -1;
    }
}

void guard_add(struct guard *g, pid_t group)
{
    guard_send(g, group);
}

void guard_remove(struct guard *g, pid_t group)
{
    guard_send(g, -group);
}

void guard_end(struct guard *g)
{
    if (g->fd >= 0)
        close(g->fd);
    if (g->pid > 0)
        waitpid(g->pid, NULL, 0);
}
