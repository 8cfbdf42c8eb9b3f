// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/ring.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

enum {
    RING_BUFFER = 128 << 10,  // bytes that come and are added at a time, so that they stay in the processor's cache
    RING_LOOK_MS = 100,
    RING_FLUSH_MS = 1
};
// How long a rank looks again and again whether something has come before it lets the kernel wake it; and how long it
// waits to hear why a connection has ended.
static const uint64_t ring_spin = 50 * 1000, ring_reason = 2 * PS_SECOND;

struct wk_ring {
    uint32_t rank, ranks;
    struct wk_socket *to, *from;  // [ranks]
    const char *const *name;
    uint64_t sequence;    // of the next array
    uint8_t *come, *out;  // [RING_BUFFER] numbers as they travel
    bool spins;           // what it waited for last came soon
    uint8_t *arrays;      // all ranks' that go directly, one behind the other
    size_t arrays_size;   // bytes

    int wake;  // an eventfd: the ring has failed
    pthread_mutex_t lock;
    struct ps_error failed;  // code PS_OK: it has not
    struct ps_error ended;   // likewise: no member has,
    uint64_t ended_at;       // which was heard of then, ns: ps_now,
    uint64_t silence;        // whose numbers are awaited for so long, ns, after the last ones that came
};

struct wk_ring *wk_ring_create(void)
{
    struct wk_ring *ring = ps_alloc(sizeof *ring);
    pthread_mutex_init(&ring->lock, NULL);
    ring->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);  // where there is none a failure is seen somewhat later
    return ring;
}

void wk_ring_join(struct wk_ring *ring, uint32_t rank, uint32_t ranks, struct wk_ring_sockets sockets,
                  const char *const *name)
{
    ring->rank = rank;
    ring->ranks = ranks;
    ring->name = name;
    ring->to = sockets.to;
    ring->from = sockets.from;
    ring->come = ps_alloc(RING_BUFFER);
    ring->out = ps_alloc(RING_BUFFER);
}

void wk_ring_destroy(struct wk_ring *ring)
{
    if (!ring)
        return;
    for (uint32_t k = 0; k < ring->ranks; k++) {
        wk_socket_close(&ring->to[k]);
        wk_socket_close(&ring->from[k]);
    }
    if (ring->wake >= 0)
        close(ring->wake);
    pthread_mutex_destroy(&ring->lock);
    free(ring->to);
    free(ring->from);
    free(ring->come);
    free(ring->out);
    free(ring->arrays);
    free(ring);
}

bool wk_ring_sends(uint32_t rank, uint32_t to, uint32_t ranks)
{
    return rank != to && ((rank + 1) % ranks == to || ranks - 1 <= WK_RING_DIRECT_RANKS);
}

// ---- ends ---------------------------------------------------------------------------------------------------------

void wk_ring_end_of_numbers(struct wk_ring *ring, enum ps_code code, const char *text, uint64_t silence)
{
    pthread_mutex_lock(&ring->lock);
    if (!ring->ended.code) {
        ps_fail(&ring->ended, code, "%s", text);
        ring->ended_at = ps_now();
        ring->silence = silence;
    }
    pthread_mutex_unlock(&ring->lock);
}

void wk_ring_fail(struct wk_ring *ring, enum ps_code code, const char *text)
{
    static const uint64_t one = 1;
    pthread_mutex_lock(&ring->lock);
    if (!ring->failed.code)
        ps_fail(&ring->failed, code, "%s", text);
    pthread_mutex_unlock(&ring->lock);
    if (ring->wake >= 0 && write(ring->wake, &one, sizeof one) < 0)
        return;  // it has been written to before
}

static enum ps_code ring_failed(struct wk_ring *ring, struct ps_error *e)
{
    pthread_mutex_lock(&ring->lock);
    *e = ring->failed;
    pthread_mutex_unlock(&ring->lock);
    return e->code;
}

// Has it failed? Or has a member ended, and has nothing come since then for as long as its numbers are awaited?
static enum ps_code ring_look_since(struct wk_ring *ring, uint64_t then, struct ps_error *e)
{
    pthread_mutex_lock(&ring->lock);
    *e = ring->failed.code || ps_now() < then + ring->silence ? ring->failed : ring->ended;
    pthread_mutex_unlock(&ring->lock);
    return e->code;
}

enum ps_code wk_ring_look(struct wk_ring *ring, struct ps_error *e)
{
    pthread_mutex_lock(&ring->lock);
    *e = ring->failed.code ? ring->failed : ring->ended;
    pthread_mutex_unlock(&ring->lock);
    return e->code;
}

enum ps_code wk_ring_look_behind(struct wk_ring *ring, struct ps_error *e)
{
    pthread_mutex_lock(&ring->lock);
    const uint64_t then = ring->ended_at;
    pthread_mutex_unlock(&ring->lock);
    return ring_look_since(ring, then, e);
}

// Has the kernel of another rank's host not acknowledged all?
static bool ring_is_unsent(const struct wk_ring *ring)
{
    int bytes, unsent = 0;
    for (uint32_t k = 0; k < ring->ranks; k++)
        unsent |= ring->to[k].fd >= 0 && ioctl(ring->to[k].fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
    return unsent;
}

void wk_ring_flush(struct wk_ring *ring, uint64_t until)
{
    struct ps_error e;
    while (ring_is_unsent(ring) && !ring_failed(ring, &e) && ps_now() < until)
        ps_sleep(RING_FLUSH_MS * PS_MS);
}

// ---- waiting ------------------------------------------------------------------------------------------------------

// An array that travels is preceded by this.
struct header {
    uint64_t sequence, id, n;
    uint32_t type;
    char what[WK_WHAT];
};

// A reduction at hand.
struct run {
    struct wk_ring *ring;
    char *values;
    size_t n, size, wire;  // size: bytes of a number; wire: as it travels
    enum wk_number type;
    struct header header;
    wk_ring_look_fn look;
    void *arg;
    uint64_t moved, looked;  // ns, ps_now: when bytes moved last, and when look was asked
};

static enum ps_code run_look(struct run *run, uint32_t rank, uint64_t now, struct ps_error *e)
{
    if (now < run->looked + RING_LOOK_MS * PS_MS)
        return PS_OK;
    run->looked = now;
    return run->look(run->arg, rank, e);
}

// Nothing is heard of a connection that is waited for in no direction.
static struct pollfd ring_event(int fd, bool in, bool out)
{
    return (struct pollfd){.fd = in || out ? fd : -1, .events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0))};
}

// After a pass over the connections; fds: what it waits for, [0] is the ring's wake. rank: the one that it waits for.
static enum ps_code run_pause(struct run *run, bool has_moved, struct pollfd *fds, nfds_t n, uint32_t rank,
                              struct ps_error *e)
{
    const uint64_t now = ps_now();
    run->moved = has_moved ? now : run->moved;
    if (run_look(run, rank, now, e) || has_moved)
        return e->code;
    if (run->ring->spins && now < run->moved + ring_spin) {
        sched_yield();  // to a rank of this host, or to who computes
        return PS_OK;
    }
    // One that has ended may have sent all that is needed of it, and what is missed may be another one's.
    const bool silent = poll(fds, n, RING_LOOK_MS) == 0;
    run->ring->spins = ps_now() < now + ring_spin;
    return silent ? ring_look_since(run->ring, run->moved, e) : ring_failed(run->ring, e);
}

// A connection has ended. Why is known soon: who ends says so, and who is lost is missed by its neighbours.
static enum ps_code run_lose(struct run *run, uint32_t rank, int error, struct ps_error *e)
{
    struct pollfd wake = ring_event(run->ring->wake, true, false);
    for (const uint64_t until = ps_now() + ring_reason; ps_now() < until; poll(&wake, 1, RING_LOOK_MS))
        if (wk_ring_look(run->ring, e) || run->look(run->arg, rank, e))
            return e->code;
    return ps_fail(e, PS_ABORTED, "%s is gone: its connection has ended: %s", run->ring->name[rank],
                   error ? strerror(error) : "it was closed");
}

static enum ps_code run_check_header(const struct run *run, const struct header *h, uint32_t rank, struct ps_error *e)
{
    const struct header *own = &run->header;
    if (memcmp(h, own, sizeof *h) == 0)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "%s adds up %.99s (array %" PRIu64 ", of %" PRIu64 " numbers of type %" PRIu32
                   "): expected %.99s (array %" PRIu64 ", of %" PRIu64 " of type %" PRIu32 ")",
                   run->ring->name[rank], h->what, h->sequence, h->n, h->type, own->what, own->sequence, own->n,
                   own->type);
}

// ---- one direction of a connection --------------------------------------------------------------------------------

enum moved { MOVED_NOTHING, MOVED_SOME, MOVED_LOST };

static enum moved moved_bytes(ssize_t n, size_t *bytes)
{
    *bytes = n > 0 ? (size_t)n : 0;
    return n > 0 ? MOVED_SOME : n < 0 && (errno == EAGAIN || errno == EINTR) ? MOVED_NOTHING : MOVED_LOST;
}

// more: of the same array follows at once.
static enum moved ring_send(struct wk_socket *s, const uint8_t **data, size_t *left, bool more)
{
    size_t bytes;
    const enum moved moved = moved_bytes(wk_socket_send(s, *data, *left, more), &bytes);
    *data += bytes;
    *left -= bytes;
    return moved;
}

static enum moved ring_receive(struct wk_socket *s, void *to, size_t room, size_t *have)
{
    size_t bytes;
    const enum moved moved = moved_bytes(wk_socket_receive(s, to, room), &bytes);
    *have += bytes;
    return moved;
}

// ---- on the ring --------------------------------------------------------------------------------------------------

// A number's place in a stream of segments.
struct place {
    uint32_t step, behind;  // in step s it is segment rank - s - behind
    size_t first, end;      // elements: the next one; where the segment ends
};

struct round {
    struct run run;
    uint32_t steps;
    struct place out, in;
    const uint8_t *data;  // what leaves now,
    size_t left;          // so many bytes
    struct header header;
    size_t have_header, have;  // bytes of the header; of the next number, or several, that have come
};

static char *round_at(const struct round *r, size_t element)
{
    return r->run.values + element * r->run.size;
}

// To the next number of the stream, which is in the next segment that has any.
static void round_enter_segment(const struct round *r, struct place *p)
{
    const struct wk_ring *ring = r->run.ring;
    while (p->first == p->end && ++p->step < r->steps) {
        const uint32_t segment = (ring->rank + 2 * ring->ranks - p->step - p->behind) % ring->ranks;
        p->first = (size_t)((unsigned __int128)r->run.n * segment / ring->ranks);
        p->end = (size_t)((unsigned __int128)r->run.n * (segment + 1) / ring->ranks);
    }
}

// Up to where numbers may leave: those of the first step, and of each other one those that have come in the one before.
static size_t round_ready(const struct round *r)
{
    if (r->out.step == 0 || r->in.step >= r->out.step)
        return r->out.end;
    return r->in.step + 1 == r->out.step ? r->in.first : r->out.first;
}

static void round_refill(struct round *r)
{
    const struct run *run = &r->run;
    const bool as_it_is = run->wire == run->size;
    size_t n = round_ready(r) - r->out.first;
    if (r->left > 0 || r->out.step == r->steps || n == 0)
        return;
    n = !as_it_is && n > RING_BUFFER / run->wire ? RING_BUFFER / run->wire : n;
    r->data = as_it_is ? (uint8_t *)round_at(r, r->out.first) : run->ring->out;
    r->left = n * run->wire;
    if (!as_it_is)
        wk_encode(run->type, round_at(r, r->out.first), n, run->ring->out);
    r->out.first += n;
    round_enter_segment(r, &r->out);
}

static enum moved round_send(struct round *r, struct wk_socket *s)
{
    const uint8_t *header = (const uint8_t *)&r->run.header;
    const bool is_header = r->data >= header && r->data < header + sizeof r->run.header;
    const bool more = is_header && r->out.step < r->steps && round_ready(r) > r->out.first;
    round_refill(r);
    return r->left ? ring_send(s, &r->data, &r->left, more) : MOVED_NOTHING;
}

// Of what has come, whole numbers.
static void round_take(struct round *r, bool adds, bool in_place)
{
    const struct run *run = &r->run;
    const size_t n = r->have / run->wire;
    if (adds)
        wk_add_come(run->type, round_at(r, r->in.first), run->ring->come, n);
    else if (!in_place)
        wk_take_come(run->type, round_at(r, r->in.first), run->ring->come, n);
    r->have -= n * run->wire;
    r->in.first += n;
    if (!in_place)
        memmove(run->ring->come, run->ring->come + n * run->wire, r->have);
    round_enter_segment(r, &r->in);
}

static enum moved round_receive(struct round *r, struct wk_socket *s)
{
    const struct run *run = &r->run;
    const bool adds = r->in.step < r->steps / 2, in_place = !adds && run->wire == run->size;
    if (r->have_header < sizeof r->header)
        return ring_receive(s, (char *)&r->header + r->have_header, sizeof r->header - r->have_header, &r->have_header);
    if (r->in.step == r->steps)
        return MOVED_NOTHING;
    char *to = in_place ? round_at(r, r->in.first) : (char *)run->ring->come;
    size_t room = (r->in.end - r->in.first) * run->wire;
    room = in_place || room < RING_BUFFER ? room : RING_BUFFER;
    const enum moved moved = ring_receive(s, to + r->have, room - r->have, &r->have);
    if (moved == MOVED_SOME)
        round_take(r, adds, in_place);
    return moved;
}

// Has all come, and left?
static bool round_is_done(const struct round *r)
{
    return r->in.step == r->steps && r->out.step == r->steps && r->left == 0;
}

// One pass over both connections.
static enum ps_code round_move(struct round *r, uint32_t next, uint32_t before, struct ps_error *e)
{
    struct wk_ring *ring = r->run.ring;
    const bool had_header = r->have_header == sizeof r->header;
    const enum moved sent = round_send(r, &ring->to[next]);
    const enum moved come = sent == MOVED_LOST ? MOVED_NOTHING : round_receive(r, &ring->from[before]);
    if (sent == MOVED_LOST || come == MOVED_LOST)
        return run_lose(&r->run, sent == MOVED_LOST ? next : before, errno, e);
    if (!had_header && r->have_header == sizeof r->header && run_check_header(&r->run, &r->header, before, e))
        return e->code;
    struct pollfd fds[] = {ring_event(ring->wake, true, false),
                           ring_event(ring->from[before].fd, r->in.step < r->steps, false),
                           ring_event(ring->to[next].fd, false, r->left > 0)};
    return round_is_done(r) ? PS_OK : run_pause(&r->run, sent == MOVED_SOME || come == MOVED_SOME, fds, 3, before, e);
}

static enum ps_code ring_reduce_round(const struct run *run, struct ps_error *e)
{
    const struct wk_ring *ring = run->ring;
    const uint32_t next = (ring->rank + 1) % ring->ranks, before = (ring->rank + ring->ranks - 1) % ring->ranks;
    struct round r = {.run = *run,
                      .steps = 2 * (ring->ranks - 1),
                      .out = {.step = UINT32_MAX, .behind = 0},
                      .in = {.step = UINT32_MAX, .behind = 1},
                      .left = sizeof run->header};
    r.data = (uint8_t *)&r.run.header;
    round_enter_segment(&r, &r.out);
    round_enter_segment(&r, &r.in);
    while (e->code == PS_OK && !round_is_done(&r))
        round_move(&r, next, before, e);
    return e->code;
}

// ---- small arrays: directly ---------------------------------------------------------------------------------------

static bool ring_goes_directly(const struct wk_ring *ring, size_t bytes)
{
    const size_t p = ring->ranks;
    return bytes <= WK_RING_DIRECT && p - 1 <= WK_RING_DIRECT_RANKS &&
           bytes * (p - 1) * (p - 2) / p <= WK_RING_DIRECT_MORE;
}

// What goes to a rank, and what comes from it: header and numbers.
struct exchange {
    const uint8_t *data;
    size_t left, have;
    uint8_t *come;
};

// One pass. *missing: a rank whose array has not come; the own one: all have.
static enum ps_code direct_move(struct run *run, struct exchange *x, size_t bytes, uint32_t *missing, bool *done,
                                struct ps_error *e)
{
    struct wk_ring *ring = run->ring;
    struct pollfd fds[2 * WK_RING_DIRECT_RANKS + 1] = {ring_event(ring->wake, true, false)};
    nfds_t n = 1;
    bool has_moved = false;
    *missing = ring->rank;
    *done = true;
    for (uint32_t k = 0; k < ring->ranks; k++) {
        if (k == ring->rank)
            continue;
        const size_t had = x[k].have;
        const enum moved sent = x[k].left ? ring_send(&ring->to[k], &x[k].data, &x[k].left, false) : MOVED_NOTHING;
        const enum moved come = sent != MOVED_LOST && had < bytes
                                    ? ring_receive(&ring->from[k], x[k].come + had, bytes - had, &x[k].have)
                                    : MOVED_NOTHING;
        if (sent == MOVED_LOST || come == MOVED_LOST)
            return run_lose(run, k, errno, e);
        if (had < sizeof run->header && x[k].have >= sizeof run->header &&
            run_check_header(run, (struct header *)x[k].come, k, e))
            return e->code;
        has_moved |= sent == MOVED_SOME || come == MOVED_SOME;
        *missing = x[k].have < bytes ? k : *missing;
        *done &= x[k].have == bytes && x[k].left == 0;
        fds[n++] = ring_event(ring->from[k].fd, x[k].have < bytes, false);
        fds[n++] = ring_event(ring->to[k].fd, false, x[k].left > 0);
    }
    return *done ? PS_OK : run_pause(run, has_moved, fds, n, *missing, e);
}

// Memory for so many bytes, which stays for the next arrays.
static uint8_t *direct_room(struct wk_ring *ring, size_t bytes)
{
    if (bytes > ring->arrays_size) {
        free(ring->arrays);
        ring->arrays = ps_alloc(bytes);
        ring->arrays_size = bytes;
    }
    return ring->arrays;
}

static enum ps_code ring_reduce_directly(struct run *run, struct ps_error *e)
{
    struct wk_ring *ring = run->ring;
    const size_t bytes = sizeof run->header + run->n * run->wire, room = (bytes + 15) & ~(size_t)15;
    uint8_t *all = direct_room(ring, ring->ranks * room), *own = all + ring->rank * room;
    struct exchange x[WK_RING_DIRECT_RANKS + 1];
    uint32_t missing;
    bool done = false;
    memcpy(own, &run->header, sizeof run->header);
    wk_encode(run->type, run->values, run->n, own + sizeof run->header);
    for (uint32_t k = 0; k < ring->ranks; k++)
        x[k] = (struct exchange){.data = own, .left = bytes, .come = all + k * room};
    while (!done && direct_move(run, x, bytes, &missing, &done, e) == PS_OK)
        ;
    for (uint32_t k = 0; k < ring->ranks && e->code == PS_OK; k++)
        (k ? wk_add_come : wk_take_come)(run->type, run->values, x[k].come + sizeof run->header, run->n);
    return e->code;
}

// ---- reduce -------------------------------------------------------------------------------------------------------

enum ps_code wk_ring_reduce(struct wk_ring *ring, const struct wk_array *array, wk_ring_look_fn look, void *arg,
                            struct ps_error *e)
{
    struct run run = {
        .ring = ring,
        .values = array->values,
        .n = array->n,
        .size = wk_number_size(array->type),
        .wire = wk_wire_size(array->type),
        .type = array->type,
        .header = {ring->sequence++, wk_array_id(array), array->n, (uint32_t)array->type, ""},
        .look = look,
        .arg = arg,
        .moved = ps_now(),
    };
    run.looked = run.moved;
    snprintf(run.header.what, sizeof run.header.what, "%s", array->what);
    e->code = PS_OK;
    if (run.n == 0 || ring_failed(ring, e))
        return e->code;
    return ring_goes_directly(ring, run.n * run.size) ? ring_reduce_directly(&run, e) : ring_reduce_round(&run, e);
}
