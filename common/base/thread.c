// SPDX-License-Identifier: Apache-2.0
#include "common/base/thread.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// As the kernel's struct sched_attr, which the C library has not always had.
struct thread_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;  // ns; of SCHED_OTHER: runtime is its slice
};

static const uint64_t thread_short_slice = 100 * 1000;  // the shortest that the kernel grants

void ps_thread_ask_short_slices(void)
{
    struct thread_attributes a = {0};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != SCHED_OTHER)
        return;
    a.runtime = thread_short_slice;
    syscall(SYS_sched_setattr, 0, &a, 0);
}

void ps_thread_block_signals(sigset_t *before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE, SIGXFSZ, SIGPROF};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

enum ps_code ps_no_thread(struct ps_error *e, const char *what, int error)
{
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no thread for %s: %s", what, strerror(error));
}

unsigned ps_thread_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    return (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
}
