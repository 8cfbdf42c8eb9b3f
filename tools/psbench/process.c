// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/signals.h"

enum { END_MS = 5000, LOOK_MS = 5 };

pid_t process_fork(void)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (!ps_signal_ignored(SIGHUP))
        signal(SIGHUP, SIG_DFL);
    static const int reset[] = {SIGINT, SIGTERM, SIGPIPE};
    for (size_t i = 0; i < sizeof reset / sizeof *reset; i++)
        signal(reset[i], SIG_DFL);
    return 0;
}

enum ps_code process_enter(const char *netns, struct ps_error *e)
{
    if (!netns)
        return PS_OK;
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", netns);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    return entered
               ? PS_OK
               : ps_fail(e, PS_FAILED_PRECONDITION, "cannot enter the network namespace %s: %s", path, strerror(error));
}

void process_end(pid_t pid)
{
    kill(pid, SIGTERM);
    for (int ms = 0; ms < END_MS; ms += LOOK_MS) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        ps_sleep(LOOK_MS * PS_MS);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

uint64_t process_cpu(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        return 0;
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t process_rss(pid_t pid)
{
    char path[64], line[256];
    uint64_t kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "VmHWM: %" SCNu64, &kib) != 1) {
    }
    if (file)
        fclose(file);
    return kib * 1024;
}
