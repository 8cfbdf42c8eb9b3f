// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/socket.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

// What has come of an operation of OpenSSL, in the words of send and recv.
static ssize_t socket_tls_result(struct wk_socket *s, int result)
{
    const int error = result > 0 ? SSL_ERROR_NONE : SSL_get_error(s->tls, result);
    switch (error) {
    case SSL_ERROR_NONE:
        return result;
    case SSL_ERROR_ZERO_RETURN:
        errno = 0;
        return 0;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_SYSCALL:
        return errno ? -1 : 0;
    default:
        ERR_clear_error();
        errno = EPROTO;
        return -1;
    }
}

static int socket_int(size_t n)
{
    return n < INT_MAX ? (int)n : INT_MAX;
}

ssize_t wk_socket_send(struct wk_socket *s, const void *data, size_t n, bool more)
{
    errno = 0;
    if (!s->tls)
        return send(s->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    ERR_clear_error();
    return socket_tls_result(s, SSL_write(s->tls, data, socket_int(n)));
}

ssize_t wk_socket_receive(struct wk_socket *s, void *to, size_t room)
{
    errno = 0;
    if (!s->tls)
        return recv(s->fd, to, room, MSG_DONTWAIT);
    ERR_clear_error();
    return socket_tls_result(s, SSL_read(s->tls, to, socket_int(room)));
}

int wk_socket_shake_hands(struct wk_socket *s)
{
    if (!s->tls)
        return 1;
    errno = 0;
    ERR_clear_error();
    const ssize_t n = socket_tls_result(s, SSL_do_handshake(s->tls));
    return n > 0 ? 1 : n < 0 && errno == EAGAIN ? 0 : -1;
}

short wk_socket_events(const struct wk_socket *s, short wanted)
{
    if (!s->tls || SSL_is_init_finished(s->tls) || SSL_want_nothing(s->tls))
        return wanted;
    return SSL_want_read(s->tls) ? POLLIN : POLLOUT;
}

void wk_socket_close(struct wk_socket *s)
{
    SSL_free(s->tls);
    if (s->fd >= 0)
        close(s->fd);
    *s = WK_NO_SOCKET;
}
