// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/probe.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/tls/tls.h"

enum { HANDSHAKE_MS = 2000 };  // for one that is tried because HTTP/2 without one has failed

static void probe_say(struct probe *p, enum probe_result result, const char *detail)
{
    p->result = result;
    snprintf(p->detail, sizeof p->detail, "%s", detail);
}

// ---- resolving ----------------------------------------------------------------------------------------------------

// A question to the resolver, which knows no deadline of its own: a thread waits for it, and frees it where whoever
// asked has not waited as long.
struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool answered, given_up;
    char host[256], port[8];
    int error;  // EAI_
    struct addrinfo *found;
};

// "host:port", "[host]:port"
static bool probe_split(const char *address, struct lookup *l)
{
    const char *colon = strrchr(address, ':');
    bool brackets = *address == '[';
    const char *from = address + brackets, *to = colon ? colon - brackets : NULL;
    if (!to || to <= from || (size_t)(to - from) >= sizeof l->host || strlen(colon + 1) >= sizeof l->port)
        return false;
    memcpy(l->host, from, (size_t)(to - from));
    strcpy(l->port, colon + 1);
    return true;
}

static void lookup_free(struct lookup *l)
{
    if (l->found)
        freeaddrinfo(l->found);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *look_up(void *arg)
{
    struct lookup *l = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(l->host, l->port, &hints, &found);
    pthread_mutex_lock(&l->lock);
    l->error = error;
    l->found = error ? NULL : found;
    l->answered = true;
    bool given_up = l->given_up;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (given_up)
        lookup_free(l);
    return NULL;
}

// Waits for the answer; false: gave up, the thread frees it.
static bool probe_wait(struct lookup *l, uint64_t until)
{
    pthread_mutex_lock(&l->lock);
    while (!l->answered && ps_cond_wait_until(&l->changed, &l->lock, until))
        continue;
    bool answered = l->answered;
    l->given_up = !answered;
    pthread_mutex_unlock(&l->lock);
    return answered;
}

// The list is to be freed; NULL: said why not.
static struct addrinfo *probe_resolve(const char *address, uint64_t until, struct probe *p)
{
    struct lookup *l = ps_alloc(sizeof *l);
    struct addrinfo *found = NULL;
    pthread_t thread;
    pthread_mutex_init(&l->lock, NULL);
    ps_cond_init(&l->changed);
    if (!probe_split(address, l)) {
        probe_say(p, PROBE_NO_NAME, gai_strerror(EAI_NONAME));
    } else if ((errno = pthread_create(&thread, NULL, look_up, l))) {
        probe_say(p, PROBE_NO_NAME, strerror(errno));
    } else {
        pthread_detach(thread);
        if (!probe_wait(l, until)) {
            probe_say(p, PROBE_NO_NAME, "no answer to the look-up of the name");
            return NULL;
        }
        if (l->error)
            probe_say(p, PROBE_NO_NAME, gai_strerror(l->error));
        found = l->found;
        l->found = NULL;
    }
    lookup_free(l);
    return found;
}

// ---- connecting ---------------------------------------------------------------------------------------------------

static bool probe_wait_for(int fd, short events, uint64_t until)
{
    struct pollfd one = {.fd = fd, .events = events};
    int n;
    do {
        uint64_t now = ps_now();
        n = poll(&one, 1, until > now ? (int)((until - now) / PS_MS) + 1 : 0);
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

// -1: said why not.
static int connect_to(const struct sockaddr *to, socklen_t size, uint64_t until, struct probe *p)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    socklen_t len = sizeof error;
    if (fd >= 0 && connect(fd, to, size) == 0)
        return fd;
    error = errno;
    if (fd >= 0 && error == EINPROGRESS) {
        error = ETIMEDOUT;
        if (probe_wait_for(fd, POLLOUT, until))
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error == 0)
            return fd;
    }
    if (fd >= 0)
        close(fd);
    bool file = to->sa_family == AF_UNIX && (error == ENOENT || error == EACCES || error == ENOTSOCK);
    // A unix socket whose queue of connections is full: its process takes none.
    bool stuck = to->sa_family == AF_UNIX && error == EAGAIN;
    probe_say(p,
              error == ECONNREFUSED ? PROBE_REFUSED
              : file                ? PROBE_NO_SOCKET
              : stuck               ? PROBE_SILENT
                                    : PROBE_UNREACHABLE,
              strerror(error));
    return -1;
}

static int connect_unix(const char *path, uint64_t until, struct probe *p)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path) {
        probe_say(p, PROBE_NO_SOCKET, "the path is too long for a socket");
        return -1;
    }
    strcpy(to.sun_path, path);
    return connect_to((struct sockaddr *)&to, sizeof to, until, p);
}

// Whichever of its addresses takes the connection.
static int connect_host(const char *address, uint64_t until, struct probe *p)
{
    struct addrinfo *list = probe_resolve(address, until, p);
    int fd = -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = connect_to(a->ai_addr, a->ai_addrlen, until, p);
    if (list)
        freeaddrinfo(list);
    return fd;
}

// ---- listening ----------------------------------------------------------------------------------------------------

// The preface of RFC 9113, 3.4: a fixed text and a SETTINGS frame, here an empty one.
static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";

// A server's first frame is SETTINGS: three bytes of length, a multiple of six, type 4, no flag, stream 0.
static bool is_settings(const unsigned char *b, ssize_t n)
{
    static const unsigned char rest[] = {4, 0, 0, 0, 0, 0};
    return n >= 9 && b[0] == 0 && (b[1] << 8 | b[2]) % 6 == 0 && memcmp(b + 3, rest, sizeof rest) == 0;
}

static bool is_tls(const unsigned char *b, ssize_t n)
{
    return n >= 3 && (b[0] == 0x15 || b[0] == 0x16) && b[1] == 3;
}

// The first line of what was said, as far as it can be printed.
static void probe_quote(struct probe *p, const unsigned char *b, ssize_t n)
{
    size_t len = 0;
    while ((ssize_t)len < n && len < 60 && b[len] != '\r' && b[len] != '\n')
        len++;
    for (size_t i = 0; i < len; i++)
        p->detail[i] = (char)(b[i] >= ' ' && b[i] < 0x7f ? b[i] : '.');
    p->detail[len] = '\0';
    p->result = PROBE_OTHER;
}

static void probe_greet(int fd, uint64_t until, struct probe *p)
{
    unsigned char said[256];
    ssize_t n = send(fd, preface, sizeof preface, MSG_NOSIGNAL);
    if (n > 0 && !probe_wait_for(fd, POLLIN, until)) {
        probe_say(p, PROBE_SILENT, "");
        return;
    }
    n = n > 0 ? recv(fd, said, sizeof said, 0) : n;
    if (n <= 0)
        probe_say(p, PROBE_CLOSED, n < 0 ? strerror(errno) : "");
    else if (is_settings(said, n))
        probe_say(p, PROBE_HTTP2, "");
    else if (is_tls(said, n))
        probe_say(p, PROBE_TLS, "");
    else
        probe_quote(p, said, n);
}

static int probe_connect(const char *address, uint64_t until, struct probe *p)
{
    return strncmp(address, "unix:", 5) == 0 ? connect_unix(address + 5, until, p) : connect_host(address, until, p);
}

// ---- TLS ----------------------------------------------------------------------------------------------------------

// Does something that OpenSSL may have to be asked for again. Its last result.
static int tls_do(SSL *ssl, int (*step)(SSL *ssl), uint64_t until)
{
    for (;;) {
        ERR_clear_error();
        const int n = step(ssl), error = n > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, n);
        const short events = error == SSL_ERROR_WANT_READ ? POLLIN : error == SSL_ERROR_WANT_WRITE ? POLLOUT : 0;
        if (!events || !probe_wait_for(SSL_get_fd(ssl), events, until))
            return n;
    }
}

static int tls_send_preface(SSL *ssl)
{
    return SSL_write(ssl, preface, sizeof preface);
}

// One byte of what is said first, which is left there: the server has let the client in.
static int tls_hear(SSL *ssl)
{
    char first;
    return SSL_peek(ssl, &first, 1);
}

static void tls_judge_handshake(SSL *ssl, uint64_t until, struct probe *p)
{
    const long verdict = SSL_get_verify_result(ssl);
    const int reason = ERR_GET_REASON(ERR_peek_error());
    if (verdict == X509_V_ERR_HOSTNAME_MISMATCH)
        probe_say(p, PROBE_UNTRUSTED, "it is of another role than psd");
    else if (verdict != X509_V_OK)
        probe_say(p, PROBE_UNTRUSTED, X509_verify_cert_error_string(verdict));
    else if (reason == SSL_R_WRONG_VERSION_NUMBER)
        probe_say(p, PROBE_PLAIN, "");
    else
        probe_say(p, ps_now() < until ? PROBE_CLOSED : PROBE_SILENT, "");
}

// OpenSSL writes to sockets as to files, and the other end may have closed this one: the signal is this thread's, and
// is taken away.
static void tls_without_signal(void (*run)(int fd, struct ps_tls *tls, uint64_t until, struct probe *p), int fd,
                               struct ps_tls *tls, uint64_t until, struct probe *p)
{
    const struct timespec now = {0};
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    run(fd, tls, until, p);
    while (sigtimedwait(&pipe, NULL, &now) == SIGPIPE)
        ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void probe_greet_tls(int fd, struct ps_tls *tls, uint64_t until, struct probe *p)
{
    SSL *ssl = ps_tls_connection(tls, fd, false, PS_ROLE_PSD);
    if (!ssl) {
        probe_say(p, PROBE_CLOSED, "no memory");
    } else if (tls_do(ssl, SSL_do_handshake, until) != 1) {
        tls_judge_handshake(ssl, until, p);
    } else if (tls_do(ssl, tls_send_preface, until) > 0 && tls_do(ssl, tls_hear, until) > 0) {
        probe_say(p, PROBE_HTTP2, "");
    } else {
        const unsigned long error = ERR_peek_error();  // an alert, or that it has hung up
        const char *alert = ERR_GET_REASON(error) > SSL_AD_REASON_OFFSET ? ERR_reason_error_string(error) : "";
        probe_say(p, ps_now() < until ? PROBE_NOT_TRUSTED : PROBE_SILENT, alert ? alert : "");
    }
    ERR_clear_error();
    SSL_free(ssl);
}

// Who hangs up when HTTP/2 is spoken may take a handshake.
static void probe_shake_hands(int fd, struct ps_tls *none, uint64_t until, struct probe *p)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = context ? SSL_new(context) : NULL;
    (void)none;
    if (ssl && SSL_set_fd(ssl, fd) == 1) {
        SSL_set_connect_state(ssl);
        tls_do(ssl, SSL_do_handshake, until);
        X509 *shown = SSL_get_peer_certificate(ssl);
        if (shown)
            probe_say(p, PROBE_TLS, "");
        X509_free(shown);
    }
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(context);
}

static void probe_try_tls(const char *address, uint64_t until, struct probe *p)
{
    struct probe ignored;
    const int fd = probe_connect(address, until, &ignored);
    if (fd < 0)
        return;
    tls_without_signal(probe_shake_hands, fd, NULL, until, p);
    close(fd);
}

void probe(const char *address, int timeout_ms, struct ps_tls *tls, struct probe *p)
{
    const uint64_t until = ps_now() + (uint64_t)timeout_ms * PS_MS;
    const int fd = probe_connect(address, until, p);
    if (fd < 0)
        return;
    if (tls)
        tls_without_signal(probe_greet_tls, fd, tls, until, p);
    else
        probe_greet(fd, until, p);
    close(fd);
    const uint64_t soon = ps_now() + HANDSHAKE_MS * PS_MS;
    if (!tls && p->result == PROBE_CLOSED)
        probe_try_tls(address, until < soon ? until : soon, p);
}
