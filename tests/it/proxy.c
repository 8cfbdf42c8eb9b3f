// SPDX-License-Identifier: Apache-2.0
#include "tests/it/proxy.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 64 };

struct connection {
    int fd[2];  // client's, server's; -1: free
    uint64_t left[2];
};

struct proxy {
    int listener;
    struct sockaddr_un server;
    pthread_t thread;
    atomic_bool stop;
    atomic_ullong limit[2], passed[2], cuts;
    atomic_ullong order[2];  // to cut those that are open: bytes + 1; 0: none
    struct connection connections[MAX_CONNECTIONS];
};

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    return a;
}

static void close_connection(struct connection *c)
{
    for (int i = 0; i < 2; i++) {
        if (c->fd[i] >= 0)
            close(c->fd[i]);
        c->fd[i] = -1;
    }
}

// Close-on-exec: a process that inherited an end would keep a connection open that was cut.
static void take_connection(struct proxy *p)
{
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC),
        server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), i = 0;
    while (i < MAX_CONNECTIONS && p->connections[i].fd[0] >= 0)
        i++;
    if (i == MAX_CONNECTIONS || connect(server, (struct sockaddr *)&p->server, sizeof p->server) != 0) {
        close(client);
        close(server);
        return;
    }
    p->connections[i] = (struct connection){{client, server}, {atomic_load(&p->limit[0]), atomic_load(&p->limit[1])}};
}

static bool send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

// Moves what has come on side `from`; at the limit the connection breaks, both ways.
static void forward(struct proxy *p, struct connection *c, int from)
{
    char buffer[4096];
    ssize_t n = recv(c->fd[from], buffer, sizeof buffer, 0);
    if (n <= 0) {
        close_connection(c);
        return;
    }
    size_t len = (uint64_t)n < c->left[from] ? (size_t)n : (size_t)c->left[from];
    bool sent = send_all(c->fd[!from], buffer, len);
    atomic_fetch_add(&p->passed[from], len);
    if (c->left[from] != UINT64_MAX)
        c->left[from] -= len;
    if (c->left[from] == 0)
        atomic_fetch_add(&p->cuts, 1);
    if (!sent || c->left[from] == 0)
        close_connection(c);
}

static void obey(struct proxy *p, int direction)
{
    uint64_t order = atomic_exchange(&p->order[direction], 0);
    for (int i = 0; order && i < MAX_CONNECTIONS; i++) {
        struct connection *c = &p->connections[i];
        if (c->fd[0] < 0)
            continue;
        c->left[direction] = order - 1;
        if (order > 1)
            continue;
        atomic_fetch_add(&p->cuts, 1);
        close_connection(c);
    }
}

static void *proxy_run(void *arg)
{
    struct proxy *p = arg;
    while (!atomic_load(&p->stop)) {
        obey(p, PROXY_UP);
        obey(p, PROXY_DOWN);
        struct pollfd fds[1 + 2 * MAX_CONNECTIONS] = {{p->listener, POLLIN, 0}};
        for (int i = 0; i < 2 * MAX_CONNECTIONS; i++)
            fds[1 + i] = (struct pollfd){p->connections[i / 2].fd[i % 2], POLLIN, 0};
        if (poll(fds, 1 + 2 * MAX_CONNECTIONS, 50) <= 0)
            continue;
        if (fds[0].revents)
            take_connection(p);
        for (int i = 0; i < 2 * MAX_CONNECTIONS; i++)
            if (fds[1 + i].revents && p->connections[i / 2].fd[i % 2] == fds[1 + i].fd && fds[1 + i].fd >= 0)
                forward(p, &p->connections[i / 2], i % 2);
    }
    return NULL;
}

struct proxy *proxy_start(const char *listen_path, const char *server_path)
{
    struct proxy *p = calloc(1, sizeof *p);
    struct sockaddr_un a = address_of(listen_path);
    p->server = address_of(server_path);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        p->connections[i].fd[0] = p->connections[i].fd[1] = -1;
    atomic_init(&p->limit[0], UINT64_MAX);
    atomic_init(&p->limit[1], UINT64_MAX);
    if (bind(p->listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(p->listener, 16) != 0 ||
        pthread_create(&p->thread, NULL, proxy_run, p) != 0) {
        fprintf(stderr, "proxy: %s: %s\n", listen_path, strerror(errno));
        exit(2);
    }
    return p;
}

void proxy_cut_after(struct proxy *p, int direction, uint64_t bytes)
{
    atomic_store(&p->limit[direction], bytes);
}

void proxy_cut(struct proxy *p, int direction, uint64_t bytes)
{
    atomic_store(&p->order[direction], bytes + 1);
}

uint64_t proxy_cuts(struct proxy *p)
{
    return atomic_load(&p->cuts);
}

uint64_t proxy_passed(struct proxy *p, int direction)
{
    return atomic_exchange(&p->passed[direction], 0);
}

void proxy_stop(struct proxy *p)
{
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        close_connection(&p->connections[i]);
    close(p->listener);
    free(p);
}
