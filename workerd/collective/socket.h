// SPDX-License-Identifier: Apache-2.0
//
// A connection on which numbers travel one way: a socket that does not block, as it is or under TLS.
//
// Receives from: rpc/mesh.h, which connects. Hands to: the kernel. Threads: one at a time.
#ifndef WK_SOCKET_H
#define WK_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct ssl_st;

struct wk_socket {
    int fd;              // -1: there is no connection
    struct ssl_st *tls;  // NULL: it is as it is
};

#define WK_NO_SOCKET ((struct wk_socket){.fd = -1})

// As send and recv with MSG_DONTWAIT: how many bytes; 0: the other end has closed it; -1 and errno. EAGAIN: to be tried
// again with the same bytes, or more behind them, once the events come that wk_socket_events names. more: of the same
// array follows at once.
ssize_t wk_socket_send(struct wk_socket *s, const void *data, size_t n, bool more);
ssize_t wk_socket_receive(struct wk_socket *s, void *to, size_t room);
// Have both ends shown their certificates? 1; 0: not yet, try again once the events come that wk_socket_events names;
// -1: they do not do. 1 at once where there is no TLS.
int wk_socket_shake_hands(struct wk_socket *s);
// What to poll for, for who wants POLLIN or POLLOUT: until both ends have shown their certificates that may be the
// other one.
short wk_socket_events(const struct wk_socket *s, short wanted);
void wk_socket_close(struct wk_socket *s);  // there may be none; there is none then

#endif
