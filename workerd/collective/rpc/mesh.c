// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/rpc/mesh.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/rpc/address.h"

enum { MESH_PLACE = 128, MESH_STRANGERS = 64, MESH_BACKLOG = 256, MESH_LOOK_MS = 20 };
// How long one attempt to connect may take, and who has connected may say nothing; how long after a failed attempt the
// next one follows.
static const uint64_t mesh_attempt = 2 * PS_SECOND, mesh_again = 50 * PS_MS;

struct wk_mesh {
    struct ps_tls *tls;  // NULL: none
    int listener[PS_ADDRESSES_MAX];
    size_t n;
    char places[PS_ADDRESSES_MAX * MESH_PLACE];
};

// ---- listening ----------------------------------------------------------------------------------------------------

static void mesh_remove_socket(const struct wk_mesh *m)
{
    if (strncmp(m->places, "unix:", 5) == 0)
        unlink(m->places + 5);
}

void wk_mesh_close(struct wk_mesh *m)
{
    if (!m)
        return;
    mesh_remove_socket(m);  // before: while somebody listens there no other process takes the name
    for (size_t k = 0; k < m->n; k++)
        close(m->listener[k]);
    free(m);
}

static enum ps_code mesh_listen_at(struct wk_mesh *m, const struct sockaddr *at, socklen_t len, const char *address,
                                   struct ps_error *e)
{
    const int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, at, len) || listen(fd, MESH_BACKLOG)) {
        ps_fail(e, PS_UNAVAILABLE, "cannot listen on %s for the numbers of other workers: %s", address,
                strerror(errno));
        if (fd >= 0)
            close(fd);
        return e->code;
    }
    m->listener[m->n++] = fd;
    return PS_OK;
}

static enum ps_code mesh_listen_unix(struct wk_mesh *m, const char *address, struct ps_error *e)
{
    struct sockaddr_storage at;
    const socklen_t len = ps_address_parse(address, &at);
    if (mesh_listen_at(m, (struct sockaddr *)&at, len, address, e))
        return e->code;
    snprintf(m->places, sizeof m->places, "%s", address);
    return PS_OK;
}

// On a port that the kernel picks.
static enum ps_code mesh_listen_ip(struct wk_mesh *m, struct sockaddr_storage *at, const char *address,
                                   struct ps_error *e)
{
    char text[PS_ADDRESS_TEXT];
    socklen_t len = at->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (mesh_listen_at(m, (struct sockaddr *)at, len, address, e))
        return e->code;
    len = sizeof *at;
    getsockname(m->listener[m->n - 1], (struct sockaddr *)at, &len);
    ps_address_text(at, 0, text);
    const size_t used = strlen(m->places);
    snprintf(m->places + used, sizeof m->places - used, "%s%s", used ? " " : "", text);
    return PS_OK;
}

// "unix:/PATH.ring", or "HOST:0". Malloc'd.
static char *mesh_beside(const char *address)
{
    const char *colon = strrchr(address, ':');
    const bool is_unix = strncmp(address, "unix:", 5) == 0;
    return is_unix ? ps_printf("%s.ring", address) : ps_printf("%.*s:0", colon ? (int)(colon - address) : 0, address);
}

enum ps_code wk_mesh_open(const char *address, struct ps_tls *tls, bool insecure, struct wk_mesh **mesh,
                          struct ps_error *e)
{
    struct ps_addresses found;
    struct wk_mesh *m = ps_alloc(sizeof *m);
    m->tls = tls;
    char *beside = mesh_beside(address);
    const int held = ps_address_hold(beside);
    e->code = PS_OK;
    if (ps_address_admit(beside, insecure || tls, &found, e))
        ps_error_prefix(e, "for the numbers of other workers");
    else if (found.n == 0)
        mesh_listen_unix(m, beside, e);
    ps_address_let_go(held);
    for (size_t k = 0; k < found.n && e->code == PS_OK; k++)
        mesh_listen_ip(m, &found.at[k], address, e);
    free(beside);
    if (e->code)
        wk_mesh_close(m);
    else
        *mesh = m;
    return e->code;
}

const char *wk_mesh_places(const struct wk_mesh *m)
{
    return m->places;
}

// ---- connecting ---------------------------------------------------------------------------------------------------

// What who connects says first.
struct hello {
    char what[8];
    uint64_t session;
    uint32_t rank, zero;
};

static const char hello_what[8] = "ps-ring1";

// What it hears then: else it could take for connected what the other one has given up.
static const char hello_answer = '1';

struct attempt {
    struct wk_socket socket;  // WK_NO_SOCKET: none is under way
    bool connected, greeted;  // it has said hello, and awaits the answer
    size_t tries;             // places that have been tried
    uint64_t end;             // ns, ps_now: of this attempt
    uint64_t begins;          // of the next
};

// One that has connected, and not said all.
struct stranger {
    struct wk_socket socket;
    size_t have;
    uint64_t end;
    struct hello hello;
};

struct bootstrap {
    const struct wk_mesh *mesh;
    const struct wk_mesh_ring *ring;
    struct wk_ring_sockets sockets;
    struct attempt *attempt;  // [ranks]
    struct stranger stranger[MESH_STRANGERS];
    size_t strangers;
    uint64_t accepts;  // ns, ps_now: not before
};

static void mesh_no_delay(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // of a unix socket it is an error that does not matter
}

// Place k of several, between spaces, and again from the first. False: there is none.
static bool mesh_place(const char *places, size_t k, char place[MESH_PLACE])
{
    size_t n = places[0] != '\0';
    for (const char *p = places; *p; p++)
        n += *p == ' ';
    for (k = n ? k % n : 0; k > 0; k--)
        places = strchr(places, ' ') + 1;
    const size_t len = strcspn(places, " ");
    snprintf(place, MESH_PLACE, "%.*s", (int)len, places);
    return len > 0 && len < MESH_PLACE;
}

static void attempt_fail(struct attempt *a, uint64_t now)
{
    wk_socket_close(&a->socket);
    a->begins = now + mesh_again;
}

static void attempt_begin(struct attempt *a, const char *places, uint64_t now)
{
    char place[MESH_PLACE];
    struct sockaddr_storage at;
    const socklen_t len = mesh_place(places, a->tries++, place) ? ps_address_parse(place, &at) : 0;
    a->connected = a->greeted = false;
    a->socket.fd = len ? socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    a->end = now + mesh_attempt;
    if (a->socket.fd < 0 || (connect(a->socket.fd, (struct sockaddr *)&at, len) && errno != EINPROGRESS))
        attempt_fail(a, now);
}

// It is connected, or has failed.
static bool attempt_connect(struct attempt *a, struct ps_tls *tls)
{
    int error = 0;
    socklen_t len = sizeof error;
    getsockopt(a->socket.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    mesh_no_delay(a->socket.fd);
    if (tls && !error)
        a->socket.tls = ps_tls_connection(tls, a->socket.fd, false, PS_ROLE_WORKER);
    a->connected = !error && (!tls || a->socket.tls);
    return a->connected;
}

// Says hello, after the handshake where there is one. False: it has failed.
static bool attempt_greet(struct attempt *a, struct ps_tls *tls, uint64_t session, uint32_t rank)
{
    struct hello hello = {.session = session, .rank = rank};
    const int shaken = wk_socket_shake_hands(&a->socket);
    if (shaken < 1)
        return shaken == 0;
    if (tls && !ps_tls_is_own_user(tls, a->socket.tls))
        return false;  // it does not hear the session
    memcpy(hello.what, hello_what, sizeof hello.what);
    const ssize_t n = wk_socket_send(&a->socket, &hello, sizeof hello, false);
    a->greeted = n == sizeof hello;
    return a->greeted || (n < 0 && errno == EAGAIN);
}

// It can go on. False: it has failed.
static bool bootstrap_move_attempt(struct bootstrap *m, uint32_t rank)
{
    struct attempt *a = &m->attempt[rank];
    struct ps_tls *tls = m->mesh->tls;
    char answer = 0;
    if (!a->connected && !attempt_connect(a, tls))
        return false;
    if (!a->greeted)
        return attempt_greet(a, tls, m->ring->session, m->ring->rank);
    const ssize_t n = wk_socket_receive(&a->socket, &answer, 1);
    if (n < 0 && errno == EAGAIN)
        return true;
    if (n != 1 || answer != hello_answer)
        return false;
    m->sockets.to[rank] = a->socket;
    a->socket = WK_NO_SOCKET;
    return true;
}

static short attempt_events(const struct attempt *a)
{
    return wk_socket_events(&a->socket, a->greeted ? POLLIN : POLLOUT);
}

// ---- being connected to -------------------------------------------------------------------------------------------

// Where there are too many, the oldest stranger goes.
static void bootstrap_accept(struct bootstrap *m, int listener, uint64_t now)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        m->accepts = now + mesh_again;  // there is no descriptor left, or it is gone
        return;
    }
    if (m->strangers == MESH_STRANGERS) {
        wk_socket_close(&m->stranger[0].socket);
        memmove(&m->stranger[0], &m->stranger[1], --m->strangers * sizeof m->stranger[0]);
    }
    struct stranger s = {.socket = {.fd = fd}, .end = now + mesh_attempt};
    if (m->mesh->tls && !(s.socket.tls = ps_tls_connection(m->mesh->tls, fd, true, PS_ROLE_WORKER)))
        wk_socket_close(&s.socket);
    else
        m->stranger[m->strangers++] = s;
}

// Has it said that it is a rank of this session? One that has come before tries again, since it has had no answer.
static bool bootstrap_knows(const struct bootstrap *m, const struct stranger *s)
{
    const struct wk_mesh_ring *ring = m->ring;
    const struct hello *h = &s->hello;
    if (m->mesh->tls && !ps_tls_is_own_user(m->mesh->tls, s->socket.tls))
        return false;
    return memcmp(h->what, hello_what, sizeof h->what) == 0 && h->session == ring->session && h->rank < ring->ranks &&
           wk_ring_sends(h->rank, ring->rank, ring->ranks);
}

static void bootstrap_take(struct bootstrap *m, struct stranger *s)
{
    struct wk_socket *from = &m->sockets.from[s->hello.rank];
    wk_socket_close(from);
    if (wk_socket_send(&s->socket, &hello_answer, 1, false) == 1)
        *from = s->socket;
    else
        wk_socket_close(&s->socket);
}

// Takes in what it says. False: it is a stranger no longer.
static bool bootstrap_hear(struct bootstrap *m, struct stranger *s, uint64_t now)
{
    const ssize_t n = wk_socket_receive(&s->socket, (char *)&s->hello + s->have, sizeof s->hello - s->have);
    const bool waits = n < 0 && (errno == EAGAIN || errno == EINTR);
    s->have += n > 0 ? (size_t)n : 0;
    if ((waits || (n > 0 && s->have < sizeof s->hello)) && now < s->end)
        return true;
    if (s->have == sizeof s->hello && bootstrap_knows(m, s)) {
        bootstrap_take(m, s);
    } else {
        wk_socket_close(&s->socket);  // of another session or user, or no worker at all
    }
    return false;
}

static void bootstrap_hear_strangers(struct bootstrap *m, uint64_t now)
{
    size_t left = 0;
    for (size_t k = 0; k < m->strangers; k++)
        if (bootstrap_hear(m, &m->stranger[k], now))
            m->stranger[left++] = m->stranger[k];
    m->strangers = left;
}

// ---- the bootstrap ------------------------------------------------------------------------------------------------

// A rank to or from which there is no connection, and should be; `ranks`: there is none.
static uint32_t bootstrap_missing(const struct bootstrap *m)
{
    const struct wk_mesh_ring *ring = m->ring;
    uint32_t k = 0;
    while (k < ring->ranks && (m->sockets.to[k].fd >= 0 || !wk_ring_sends(ring->rank, k, ring->ranks)) &&
           (m->sockets.from[k].fd >= 0 || !wk_ring_sends(k, ring->rank, ring->ranks)))
        k++;
    return k;
}

static void bootstrap_begin_attempts(struct bootstrap *m, uint64_t now)
{
    const struct wk_mesh_ring *ring = m->ring;
    for (uint32_t k = 0; k < ring->ranks; k++) {
        struct attempt *a = &m->attempt[k];
        if (a->socket.fd < 0 && m->sockets.to[k].fd < 0 && now >= a->begins &&
            wk_ring_sends(ring->rank, k, ring->ranks))
            attempt_begin(a, ring->places[k], now);
    }
}

// Waits for something to happen, and sees to it.
static void bootstrap_poll(struct bootstrap *m, struct pollfd *fds)
{
    const size_t listeners = ps_now() >= m->accepts ? m->mesh->n : 0;
    size_t n = 0;
    for (size_t k = 0; k < listeners; k++)
        fds[n++] = (struct pollfd){.fd = m->mesh->listener[k], .events = POLLIN};
    for (uint32_t k = 0; k < m->ring->ranks; k++)
        fds[n++] = (struct pollfd){.fd = m->attempt[k].socket.fd, .events = attempt_events(&m->attempt[k])};
    for (size_t k = 0; k < m->strangers; k++)
        fds[n++] =
            (struct pollfd){.fd = m->stranger[k].socket.fd, .events = wk_socket_events(&m->stranger[k].socket, POLLIN)};
    if (poll(fds, n, MESH_LOOK_MS) < 0)
        return;
    const uint64_t now = ps_now();
    for (uint32_t k = 0; k < m->ring->ranks; k++)
        if (m->attempt[k].socket.fd >= 0 && ((fds[listeners + k].revents && !bootstrap_move_attempt(m, k)) ||
                                             (m->attempt[k].socket.fd >= 0 && now >= m->attempt[k].end)))
            attempt_fail(&m->attempt[k], now);
    for (size_t k = 0; k < listeners; k++)
        if (fds[k].revents)
            bootstrap_accept(m, m->mesh->listener[k], now);
    bootstrap_hear_strangers(m, now);
}

static void mesh_close_all(struct wk_socket *socket, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        wk_socket_close(&socket[k]);
    free(socket);
}

static void bootstrap_end(struct bootstrap *m, bool failed)
{
    for (uint32_t k = 0; k < m->ring->ranks; k++)
        wk_socket_close(&m->attempt[k].socket);
    for (size_t k = 0; k < m->strangers; k++)
        wk_socket_close(&m->stranger[k].socket);
    if (failed) {
        mesh_close_all(m->sockets.to, m->ring->ranks);
        mesh_close_all(m->sockets.from, m->ring->ranks);
    }
    free(m->attempt);
}

enum ps_code wk_mesh_connect(struct wk_mesh *mesh, const struct wk_mesh_ring *ring, struct wk_ring_sockets *sockets,
                             struct ps_error *e)
{
    const uint32_t ranks = ring->ranks;
    struct bootstrap m = {.mesh = mesh, .ring = ring};
    struct pollfd *fds = ps_alloc((PS_ADDRESSES_MAX + ranks + MESH_STRANGERS) * sizeof *fds);
    uint32_t missing;
    m.attempt = ps_alloc(ranks * sizeof *m.attempt);
    m.sockets.to = ps_alloc(ranks * sizeof *m.sockets.to);
    m.sockets.from = ps_alloc(ranks * sizeof *m.sockets.from);
    for (uint32_t k = 0; k < ranks; k++)
        m.attempt[k].socket = m.sockets.to[k] = m.sockets.from[k] = WK_NO_SOCKET;
    e->code = PS_OK;
    while ((missing = bootstrap_missing(&m)) < ranks && ring->look(ring->arg, missing, e) == PS_OK) {
        bootstrap_begin_attempts(&m, ps_now());
        bootstrap_poll(&m, fds);
    }
    bootstrap_end(&m, e->code != PS_OK);
    free(fds);
    *sockets = m.sockets;
    return e->code;
}
