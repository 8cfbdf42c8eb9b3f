// SPDX-License-Identifier: Apache-2.0
#include "psd/rpc/descriptors.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

// Descriptors that connections do not get: for files, for connections to other tasks, for a shell's `psctl`.
enum { RESERVE = 16 };

static const uint64_t say_every_ns = 10 * PS_SECOND;

static atomic_long limit = -1;  // connections have descriptors below limit - reserve; -1: not known
static atomic_ulong closed;     // connections since the log said so
static atomic_ullong said;      // when; 0: never

long psd_descriptors_raise(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return 0;
    rlim_t was = r.rlim_cur;
    r.rlim_cur = r.rlim_max;
    if (was != r.rlim_max && setrlimit(RLIMIT_NOFILE, &r) != 0) {
        ps_warn("the limit of %lu open files stays: %s", (unsigned long)was, strerror(errno));
        r.rlim_cur = was;
    }
    if (r.rlim_cur == RLIM_INFINITY || r.rlim_cur > (rlim_t)1 << 30)
        return 0;
    long most = (long)r.rlim_cur;
    atomic_store(&limit, most > 2 * RESERVE ? most - RESERVE : most / 2);
    return most;
}

static void descriptors_say(void)
{
    uint64_t now = ps_now();
    unsigned long long last = atomic_load(&said);
    if ((last && now - last < say_every_ns) || !atomic_compare_exchange_strong(&said, &last, now))
        return;
    ps_warn("new connections are closed, %lu so far: all descriptors but %d are in use; raise the limit of open files "
            "(ulimit -n, LimitNOFILE=)",
            atomic_exchange(&closed, 0), RESERVE);
}

// The core's listeners call this one instead of the C library's. The system gives out the lowest descriptor that is
// free: one at the limit says that all below are in use. What waits is then closed to the last, because the core hears
// of a socket only when something new arrives at it.
int accept4(int listener, struct sockaddr *address, socklen_t *len, int flags)
{
    socklen_t room = len ? *len : 0;
    for (;;) {
        long fd = syscall(SYS_accept4, listener, address, len, flags), most = atomic_load(&limit);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            errno = EAGAIN;
            return -1;
        }
        if (fd < 0 || most < 0 || fd < most)
            return (int)fd;
        close((int)fd);
        atomic_fetch_add(&closed, 1);
        descriptors_say();
        if (len)
            *len = room;
    }
}
