// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/socket_ring.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "tools/psbench/allreduce.h"
#include "tools/psbench/endpoint.h"
#include "workerd/collective/add.h"

// RING_CHUNK: bytes that are received and added at a time; they stay in the processor's cache.
enum { RING_CHUNK = 128 * 1024 };
static const uint64_t RING_PATIENCE = 10 * PS_SECOND;  // for the others to listen

// The array is p blocks of the same length, padded with zeros. What passes one connection is a stream of 2 (p - 1)
// blocks: in step s rank r sends block r - s and receives block r - s - 1, to be added in the first p - 1 steps and to
// be kept in the others. So a byte may be sent once the byte one block earlier in the stream has come.
struct socket_ring {
    int to, from;
    uint64_t p, rank;
    uint64_t block;      // bytes
    float *values;       // [p * block]
    char *chunk;         // [RING_CHUNK + sizeof(float)] what has come of the next numbers
    size_t have;         // bytes of it
    uint64_t sent, got;  // bytes of the stream; got does not count `have`
};

static char *socket_ring_at(const struct socket_ring *r, uint64_t at, uint64_t behind)
{
    const uint64_t step = at / r->block;
    return (char *)r->values + (r->rank + 2 * r->p - step - behind) % r->p * r->block + at % r->block;
}

// The part of [at, to) that lies in one block.
static uint64_t socket_ring_within(const struct socket_ring *r, uint64_t at, uint64_t to)
{
    const uint64_t end = (at / r->block + 1) * r->block;
    return (end < to ? end : to) - at;
}

static long socket_ring_send(struct socket_ring *r, uint64_t total)
{
    const uint64_t ready = r->got + r->block < total ? r->got + r->block : total;
    if (r->sent == ready)
        return 0;
    const ssize_t n =
        send(r->to, socket_ring_at(r, r->sent, 0), socket_ring_within(r, r->sent, ready), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        r->sent += (uint64_t)n;
    return n >= 0 ? n : errno == EAGAIN || errno == EINTR ? 0 : -1;
}

static void socket_ring_take(struct socket_ring *r)
{
    const size_t whole = r->have / sizeof(float) * sizeof(float);
    char *mine = socket_ring_at(r, r->got, 1);
    if (r->got < (r->p - 1) * r->block) {
        wk_add(WK_FLOAT, mine, r->chunk, whole / sizeof(float));
    } else {
        memcpy(mine, r->chunk, whole);
    }
    r->got += whole;
    r->have -= whole;
    memmove(r->chunk, r->chunk + whole, r->have);
}

static long socket_ring_receive(struct socket_ring *r, uint64_t total)
{
    const uint64_t left = socket_ring_within(r, r->got, total);
    const uint64_t most = left < RING_CHUNK ? left : RING_CHUNK;
    if (r->got == total)
        return 0;
    const ssize_t n = recv(r->from, r->chunk + r->have, most - r->have, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    if (n < 0)
        return 0;
    r->have += (size_t)n;
    socket_ring_take(r);
    return n;
}

static enum ps_code socket_ring_reduce(struct socket_ring *r, struct ps_error *e)
{
    const uint64_t total = 2 * (r->p - 1) * r->block;
    r->sent = r->got = 0;
    while (r->sent < total || r->got < total) {
        const long sent = socket_ring_send(r, total), got = socket_ring_receive(r, total);
        if (sent < 0 || got < 0)
            return ps_fail(e, PS_UNAVAILABLE, "the socket's connection has ended: %s", strerror(errno));
        if (sent || got)
            continue;
        const bool sends = r->sent < total && r->sent < r->got + r->block;
        struct pollfd wait[] = {{.fd = r->from, .events = POLLIN}, {.fd = r->to, .events = sends ? POLLOUT : 0}};
        poll(wait, 2, -1);
    }
    return PS_OK;
}

static enum ps_code socket_ring_connect(struct socket_ring *r, const struct allreduce_places *places, int rank,
                                        struct ps_error *e)
{
    char address[RUNDIR_PATH_MAX];
    const char *next = places->address[(rank + 1) % places->n];
    const uint64_t end = ps_now() + RING_PATIENCE;
    int listener;
    memcpy(address, places->address[rank], sizeof address);
    if (endpoint_listen(address, &listener, e))
        return e->code;
    while ((r->to = endpoint_connect(next)) < 0 && ps_now() < end)
        ps_sleep(PS_MS);
    if (r->to < 0)
        return ps_fail(e, PS_UNAVAILABLE, "cannot connect to %s: %s", next, strerror(errno));
    r->from = accept(listener, NULL, NULL);
    close(listener);
    return PS_OK;
}

// Before anything counts: are the sums right?
static enum ps_code socket_ring_try(struct socket_ring *r, size_t n, struct ps_error *e)
{
    const float sum = (float)(r->p * (r->p + 1) / 2);
    for (size_t i = 0; i < n; i++)
        r->values[i] = (float)(r->rank + 1);
    if (socket_ring_reduce(r, e))
        return e->code;
    for (size_t i = 0; i < n; i++)
        if (r->values[i] != sum)
            return ps_fail(e, PS_INTERNAL, "the ring's sum %zu of %zu is %g, expected %g", i, n, (double)r->values[i],
                           (double)sum);
    memset(r->values, 0, n * sizeof *r->values);
    return PS_OK;
}

// The last number of the array says whether any worker has had enough: all end with the same call.
static enum ps_code socket_ring_call(struct socket_ring *r, size_t last, struct load_meter *m, struct ps_error *e)
{
    uint64_t started = ps_now();
    bool more = true;
    do {
        r->values[last] = more ? 0 : 1;
        if (socket_ring_reduce(r, e))
            return e->code;
        more = load_count(m, &started, 1);
    } while (r->values[last] == 0);
    return PS_OK;
}

// The memory ends with the process, and the connections.
enum ps_code socket_ring_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e)
{
    const struct allreduce_work *work = arg;
    const uint64_t n = work->c->size / sizeof(float), p = (uint64_t)work->places->n, block = (n + p - 1) / p;
    struct socket_ring r = {.p = p, .rank = (uint64_t)rank, .block = block * sizeof(float)};
    r.values = ps_alloc(p * r.block);
    r.chunk = ps_alloc(RING_CHUNK + sizeof(float));
    if (socket_ring_connect(&r, work->places, rank, e) || socket_ring_try(&r, n, e))
        return e->code;
    load_ready(m);
    if (socket_ring_call(&r, n - 1, m, e))
        return e->code;
    load_done(m);
    return PS_OK;
}
