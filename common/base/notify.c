// SPDX-License-Identifier: Apache-2.0
#include "common/base/notify.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

void ps_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof to.sun_path)
        return;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    memcpy(to.sun_path, path, strlen(path));
    if (*path == '@')  // an abstract name
        to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, len) < 0)
        ps_warn("cannot tell systemd %s at %s", state, path);
    if (fd >= 0)
        close(fd);
}

// Half of what systemd waits (sd_watchdog_enabled(3)); 0: it does not.
static uint64_t notify_interval(void)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    const bool own = !pid || strtol(pid, NULL, 10) == getpid();
    return us && own ? strtoull(us, NULL, 10) * 1000 / 2 : 0;
}

void ps_notify_alive(void)
{
    static uint64_t next;
    const uint64_t now = ps_now(), interval = notify_interval();
    if (!interval || now < next)
        return;
    next = now + interval;
    ps_notify("WATCHDOG=1");
}
