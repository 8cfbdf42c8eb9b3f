// SPDX-License-Identifier: Apache-2.0
#include "common/base/notify.h"

#include <stdbool.h>
#include <stddef.h>
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

// Half of what systemd waits (sd_watchdog_enabled(3)).
void ps_watchdog_init(struct ps_watchdog *w)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    const bool own = !pid || strtol(pid, NULL, 10) == getpid();
    *w = (struct ps_watchdog){.interval = us && own ? strtoull(us, NULL, 10) * 1000 / 2 : 0};
}

void ps_watchdog_feed(struct ps_watchdog *w)
{
    const uint64_t now = ps_now();
    if (!w->interval || now < w->next)
        return;
    w->next = now + w->interval;
    ps_notify("WATCHDOG=1");
}
