// SPDX-License-Identifier: Apache-2.0
#include "workerd/agent/child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"

// A file without a name: nothing of it is left, whatever ends the processes.
static enum ps_code child_make_file(const char *text, int *fd, struct ps_error *e)
{
    const size_t len = strlen(text);
    *fd = memfd_create("job", MFD_CLOEXEC);
    if (*fd >= 0 && write(*fd, text, len) == (ssize_t)len)
        return PS_OK;
    const int error = errno;
    if (*fd >= 0)
        close(*fd);
    return ps_fail(e, PS_CANNOT_CREATE, "cannot keep the job in memory: %s", strerror(error));
}

// Between fork and exec: system calls alone.
static void child_become(char *const *argv, int file, int output, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    signal(SIGPIPE, SIG_DFL);
    fcntl(file, F_SETFD, 0);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv("/proc/self/exe", argv);
    _exit(127);
}

static char **child_words(char *const *args, const char *file, const char *workers)
{
    size_t n = 0;
    while (args[n])
        n++;
    char **words = ps_alloc((n + 5) * sizeof *words);
    memcpy(words, args, n * sizeof *words);
    words[n] = (char *)"--job";
    words[n + 1] = (char *)file;
    words[n + 2] = (char *)"--workers";
    words[n + 3] = (char *)workers;
    return words;
}

enum ps_code wk_child_start(struct wk_child *c, char *const *args, const char *job, uint32_t workers,
                            struct ps_error *e)
{
    char path[48], count[16];
    int file, pipes[2];
    *c = (struct wk_child){.output = -1};
    if (child_make_file(job, &file, e))
        return e->code;
    if (pipe2(pipes, O_CLOEXEC)) {
        close(file);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot make a pipe: %s", strerror(errno));
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    snprintf(count, sizeof count, "%" PRIu32, workers);
    char **words = child_words(args, path, count);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        child_become(words, file, pipes[1], parent);
    const int error = errno;
    free(words);
    close(file);
    close(pipes[1]);
    if (pid < 0) {
        close(pipes[0]);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot start a process: %s", strerror(error));
    }
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    c->pid = pid;
    c->output = pipes[0];
    return PS_OK;
}

size_t wk_child_read(struct wk_child *c, void *to, size_t size, int wait_ms)
{
    struct pollfd p = {.fd = size ? c->output : -1, .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0 || c->output < 0)
        return 0;
    const ssize_t n = read(c->output, to, size);
    if (n == 0) {
        close(c->output);
        c->output = -1;
    }
    return n > 0 ? (size_t)n : 0;
}

bool wk_child_has_ended(struct wk_child *c)
{
    if (c->pid && waitpid(c->pid, &c->status, WNOHANG) == c->pid)
        c->pid = 0;
    return !c->pid;
}

void wk_child_kill(const struct wk_child *c, int signal)
{
    if (c->pid)
        kill(c->pid, signal);
}

void wk_child_close(struct wk_child *c)
{
    if (c->output >= 0)
        close(c->output);
    c->output = -1;
}
