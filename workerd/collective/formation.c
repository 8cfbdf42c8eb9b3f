// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/formation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"

static const uint64_t formation_patience_after_left = 2 * PS_SECOND;
// How much longer the others wait for the first of a host, which waits as long itself for the ring before.
static const uint64_t formation_share_margin = 2 * PS_SECOND;

// ---- waiting ------------------------------------------------------------------------------------------------------

static bool formation_is_here(const struct wk_formation *f, uint32_t member)
{
    for (uint32_t k = 0; k < f->hosts.members; k++)
        if (f->here[k] == member)
            return true;
    return false;
}

// "worker 1 (HOST:PORT), worker 2 (HOST:PORT)": `member`, and of this host, where it is on it, all that are awaited.
static void formation_name_missing(const struct wk_formation *f, uint32_t member, char *to, size_t size)
{
    const bool here = f->shm && formation_is_here(f, member);
    size_t n = (size_t)snprintf(to, size, "%s", f->name[member]);
    for (uint32_t k = 0; here && k < f->hosts.members && n < size; k++)
        if (f->here[k] != member && wk_shm_awaits(f->shm, k))
            n += (size_t)snprintf(to + n, size - n, ", %s", f->here_name[k]);
}

static void formation_say(struct wk_formation *f, uint32_t member, uint64_t now)
{
    char names[512];
    if (!f->waiting_since || now < f->say)
        return;
    formation_name_missing(f, member, names, sizeof names);
    ps_warn("waiting for %s, for %.1f s: all-reduce of %s", names, (double)(now - f->waiting_since) / PS_SECOND,
            f->what);
    f->say = now + f->patience;
    f->said = true;
}

// The others are in another session, or have ended, and have not said why.
static enum ps_code formation_look_at_next(struct wk_formation *f, struct ps_error *e)
{
    const uint64_t left = atomic_load(&f->left);
    return left && ps_now() > left + formation_patience_after_left
               ? ps_fail(e, PS_ABORTED, "%s has left, and has not said why", f->name[(f->self + 1) % f->n])
               : PS_OK;
}

enum ps_code wk_formation_look(struct wk_formation *f, struct ps_error *e)
{
    return wk_ring_look(f->ring, e) ? e->code : formation_look_at_next(f, e);
}

// By who waits for a member, a few times per second.
static enum ps_code formation_look(struct wk_formation *f, uint32_t member, struct ps_error *e)
{
    const int number = ps_signal_number(f->stop);
    if (number && !f->signalled)
        f->signalled = ps_now();
    if (number && ps_now() >= f->signalled + f->grace)
        return ps_fail(e, PS_CANCELLED, "stopped by %s in an all-reduce", ps_signal_name(number));
    if (formation_look_at_next(f, e))
        return e->code;
    formation_say(f, member, ps_now());
    return PS_OK;
}

static enum ps_code formation_look_at_host(void *arg, uint32_t member, struct ps_error *e)
{
    struct wk_formation *f = arg;
    if (wk_ring_look_behind(f->ring, e) || formation_look(f, f->here[member], e))
        return e->code;
    return f->share_until == 0 || ps_now() < f->share_until
               ? PS_OK
               : ps_fail(e, PS_DEADLINE_EXCEEDED,
                         "%s and this worker have not come to share memory in time: expected one /dev/shm for the "
                         "workers of a host",
                         f->here_name[member]);
}

// What the ring itself has been told it looks at: who has ended may have sent all before.
enum ps_code wk_formation_look_at_ring(void *arg, uint32_t rank, struct ps_error *e)
{
    struct wk_formation *f = arg;
    return formation_look(f, f->first[rank], e);
}

// ---- open and close -----------------------------------------------------------------------------------------------

void wk_formation_open(struct wk_formation *f, const uint32_t *rank, const char *const *host, uint32_t n, uint32_t self)
{
    f->n = n;
    f->rank = ps_alloc(n * sizeof *f->rank);
    memcpy(f->rank, rank, n * sizeof *f->rank);
    f->name = ps_alloc(n * sizeof *f->name);
    for (uint32_t k = 0; k < n; k++)
        f->name[k] = ps_printf("worker %" PRIu32 " (%.100s)", f->rank[k], f->addresses[f->rank[k]]);
    while (f->rank[f->self] != self)
        f->self++;
    f->hosts = wk_hosts_find(host, n, f->self);
    f->here = ps_alloc(f->hosts.members * sizeof *f->here);
    f->here_name = ps_alloc(f->hosts.members * sizeof *f->here_name);
    for (uint32_t k = 0; k < f->hosts.members; k++) {
        f->here[k] = wk_hosts_member(host, f->self, k);
        f->here_name[k] = f->name[f->here[k]];
    }
    f->first = ps_alloc(f->hosts.hosts * sizeof *f->first);
    f->ring_name = ps_alloc(f->hosts.hosts * sizeof *f->ring_name);
    for (uint32_t k = 0; k < f->hosts.hosts; k++) {
        f->first[k] = wk_hosts_first(host, k);
        f->ring_name[k] = f->name[f->first[k]];
    }
    f->ring = wk_ring_create();
}

bool wk_formation_is_on_ring(const struct wk_formation *f)
{
    return f->hosts.hosts > 1 && f->hosts.member == 0;
}

enum ps_code wk_formation_share_memory(struct wk_formation *f, uint64_t timeout, struct ps_error *e)
{
    const struct wk_hosts *h = &f->hosts;
    char name[64];
    snprintf(name, sizeof name, "/paramserver-%016" PRIx64 "-%" PRIu32, f->session, h->first);
    const struct wk_shm_options options = {.name = name,
                                           .member = h->member,
                                           .members = h->members,
                                           .members_name = f->here_name,
                                           .look = formation_look_at_host,
                                           .arg = f};
    if (h->members == 1)
        return PS_OK;
    f->share_until = ps_now() + timeout + formation_share_margin;
    const enum ps_code code = wk_shm_open(&options, &f->shm, e);
    f->share_until = 0;
    return code;
}

void wk_formation_close(struct wk_formation *f)
{
    wk_shm_close(f->shm);
    wk_ring_destroy(f->ring);
    for (uint32_t k = 0; k < f->n; k++)
        free(f->name[k]);
    free(f->name);
    free(f->here_name);
    free(f->ring_name);
    free(f->first);
    free(f->here);
    free(f->rank);
}

// ---- reduce -------------------------------------------------------------------------------------------------------

static enum ps_code formation_reduce(struct wk_formation *f, const struct wk_array *array, struct ps_error *e)
{
    const bool one_host = f->hosts.hosts == 1;
    if (!f->shm)
        return wk_ring_reduce(f->ring, array, wk_formation_look_at_ring, f, e);
    if (wk_shm_reduce(f->shm, array, one_host, e) || one_host)
        return e->code;
    if (f->hosts.member == 0 && wk_ring_reduce(f->ring, array, wk_formation_look_at_ring, f, e))
        return e->code;
    return wk_shm_broadcast(f->shm, array, e);
}

enum ps_code wk_formation_reduce(struct wk_formation *f, const struct wk_array *array, uint64_t grace,
                                 struct ps_error *e)
{
    e->code = PS_OK;
    if (f->n == 1)
        return PS_OK;
    f->what = array->what;
    f->grace = grace;
    f->said = false;
    f->waiting_since = ps_now();
    f->say = f->waiting_since + f->patience;
    if (formation_reduce(f, array, e) == PS_OK && f->said)
        ps_info("goes on after %.1f s: all-reduce of %s", (double)(ps_now() - f->waiting_since) / PS_SECOND,
                array->what);
    return e->code;
}
