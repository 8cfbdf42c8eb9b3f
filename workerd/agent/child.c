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
#include "common/base/self.h"
#include "common/base/signals.h"

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

// Between fork and exec: system calls alone. mask: of signals, as it was before the fork. What is told to end meanwhile
// ends: a handler of this program would note it in memory that exec throws away.
static void child_become(char *const *argv, int file, int output, int ready, pid_t parent, const sigset_t *mask)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    if (!ps_signal_ignored(SIGHUP))
        signal(SIGHUP, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    fcntl(file, F_SETFD, 0);
    fcntl(ready, F_SETFD, 0);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv("/proc/self/exe", argv);
    _exit(127);
}

// The words with which this program trains the job: its own arguments, and those that name the job.
static char **child_words(char *const *args, const char *const *more, size_t n_more)
{
    size_t n = 0;
    while (args[n])
        n++;
    const char **all = ps_alloc((n + n_more + 1) * sizeof *all);
    memcpy(all, args, n * sizeof *all);
    memcpy(all + n, more, n_more * sizeof *all);
    char **words = ps_self_words(all);
    free(all);
    return words;
}

static enum ps_code child_make_pipes(int output[2], int ready[2], struct ps_error *e)
{
    const bool made = pipe2(output, O_CLOEXEC) == 0;
    if (made && pipe2(ready, O_CLOEXEC) == 0)
        return PS_OK;
    const int error = errno;
    if (made) {
        close(output[0]);
        close(output[1]);
    }
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot make a pipe: %s", strerror(error));
}

static pid_t child_fork(char *const *args, const char *job_file, uint32_t workers, int file, int output, int ready)
{
    char count[16], fd[16];
    snprintf(count, sizeof count, "%" PRIu32, workers);
    snprintf(fd, sizeof fd, "%d", ready);
    const char *const more[] = {"--job", job_file, "--workers", count, "--ready-fd", fd};
    char **words = child_words(args, more, sizeof more / sizeof *more);
    sigset_t ends, mask;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ends, &mask);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        child_become(words, file, output, ready, parent, &mask);
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    free(words);
    errno = error;
    return pid;
}

enum ps_code wk_child_start(struct wk_child *c, char *const *args, const char *job, uint32_t workers,
                            struct ps_error *e)
{
    char path[48];
    int file, output[2], ready[2];
    *c = (struct wk_child){.output = -1, .ready = -1};
    if (child_make_file(job, &file, e))
        return e->code;
    if (child_make_pipes(output, ready, e)) {
        close(file);
        return e->code;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const pid_t pid = child_fork(args, path, workers, file, output[1], ready[1]);
    const int error = errno;
    close(file);
    close(output[1]);
    close(ready[1]);
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    fcntl(ready[0], F_SETFL, O_NONBLOCK);
    c->output = output[0];
    c->ready = ready[0];
    if (pid < 0) {
        wk_child_close(c);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot start a process: %s", strerror(error));
    }
    c->pid = pid;
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

bool wk_child_came(const struct wk_child *c)
{
    char said[16];  // "READY", once
    return c->ready >= 0 && read(c->ready, said, sizeof said) > 0;
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
    if (c->ready >= 0)
        close(c->ready);
    c->output = c->ready = -1;
}
