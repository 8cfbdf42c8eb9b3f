// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ENDPOINT_HOST_MAX = 64 };

union endpoint {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_un un;
};

// Its length; 0: the text is no address.
static socklen_t endpoint_parse(const char *text, union endpoint *a)
{
    char host[ENDPOINT_HOST_MAX];
    const char *colon = strrchr(text, ':');
    memset(a, 0, sizeof *a);
    if (strncmp(text, "unix:", 5) == 0) {
        a->un.sun_family = AF_UNIX;
        snprintf(a->un.sun_path, sizeof a->un.sun_path, "%s", text + 5);
        return sizeof a->un;
    }
    if (!colon)
        return 0;
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    a->in.sin_family = AF_INET;
    a->in.sin_port = htons((uint16_t)atoi(colon + 1));
    return inet_pton(AF_INET, host, &a->in.sin_addr) == 1 ? sizeof a->in : 0;
}

enum ps_code endpoint_listen(char *address, int *listener, struct ps_error *e)
{
    union endpoint a;
    socklen_t len = endpoint_parse(address, &a);
    *listener = -1;
    if (len == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s is no IPv4 address", address);
    const int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, &a.any, len) || listen(fd, 512)) {
        ps_fail(e, PS_UNAVAILABLE, "cannot listen on %s: %s", address, strerror(errno));
        if (fd >= 0)
            close(fd);
        return e->code;
    }
    *listener = fd;
    if (a.any.sa_family != AF_INET)
        return PS_OK;
    getsockname(fd, &a.any, &len);
    snprintf(strrchr(address, ':'), sizeof ":65535", ":%d", ntohs(a.in.sin_port));
    return PS_OK;
}

int endpoint_connect(const char *address)
{
    union endpoint a;
    const socklen_t len = endpoint_parse(address, &a);
    const int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, &a.any, len) == 0) {
        if (fd >= 0)
            endpoint_no_delay(fd);
        return fd;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

void endpoint_no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // of a unix socket it is an error that does not matter
}
