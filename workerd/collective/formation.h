// SPDX-License-Identifier: Apache-2.0
//
// A formation: workers that have met and add up together, until one of them ends or is lost. Those of one host share
// memory (shm.h), the first ones of the hosts are a ring (ring.h).
//
// Receives from: collective.c, which adds up; peers.c, which makes it and says why it ends. Hands to: ring.c, shm.c.
// Threads: one adds up.
#ifndef WK_FORMATION_H
#define WK_FORMATION_H

#include <signal.h>
#include <stdatomic.h>

#include "workerd/collective/hosts.h"
#include "workerd/collective/ring.h"
#include "workerd/collective/shm.h"

struct wk_formation {
    // By whoever opens it.
    uint64_t session;                   // drawn by the worker at which they met; not 0
    const char *const *addresses;       // of all workers, by rank
    const volatile sig_atomic_t *stop;  // not 0: a signal asks to stop
    uint64_t patience;                  // ns: who waits for so long says for whom, and again after so long

    // By peers.c, of the member that this one watches: when it has left, ns, 0: it has not. Whoever has lost one tells
    // all others; where that never comes, it is this one that was lost.
    _Atomic uint64_t left;

    uint32_t n, self;        // members, and which of them this worker is
    uint32_t *rank;          // [n] the workers' ranks, ascending
    char **name;             // [n] these, in errors
    struct wk_hosts hosts;   // of members, not ranks
    uint32_t *here;          // [hosts.members] the members of this host,
    const char **here_name;  // and their names
    uint32_t *first;         // [hosts.hosts] the first member of each host: the ranks of the ring
    struct wk_ring *ring;    // of the first workers of hosts; every member's is told why the formation ends
    const char **ring_name;  // [hosts.hosts] their names
    struct wk_shm *shm;      // NULL: no other member shares memory with this one
    uint64_t share_until;    // ns, ps_now: so long it waits for the others to come to that; 0: they have
    uint64_t signalled;      // ns, ps_now: since when a wait has known of a signal; 0: none has
    // Of the reduction at hand.
    uint64_t grace;               // ns: for so long after a signal it is still awaited
    uint64_t waiting_since, say;  // ns: ps_now; when to say next for whom it waits
    bool said;                    // it has, of this reduction,
    const char *what;             // which is that of this
};

// Of n workers of these ranks, ascending, and hosts (hosts.h), among them `self`.
void wk_formation_open(struct wk_formation *f, const uint32_t *rank, const char *const *host, uint32_t n,
                       uint32_t self);
// Is this member the first of its host, and are there others? Then it is one of the ring.
bool wk_formation_is_on_ring(const struct wk_formation *f);
// By who waits for the member that has this rank on the ring: as wk_formation_reduce's errors. arg: the formation.
enum ps_code wk_formation_look_at_ring(void *arg, uint32_t rank, struct ps_error *e);
// Waits for the other members of this host. Errors as wk_shm_open. DEADLINE_EXCEEDED: within timeout, ns, and a moment
// they have not come.
enum ps_code wk_formation_share_memory(struct wk_formation *f, uint64_t timeout, struct ps_error *e);
void wk_formation_close(struct wk_formation *f);

// Adds up an array of each member, in its place: the ranks' values in an order that the members and their hosts decide.
// After an error the formation is of no use. ABORTED: a member has ended or is lost, and which one. CANCELLED: a signal
// has come, and a wait has known of it for so many ns, grace. INVALID_ARGUMENT: another member adds up another array.
enum ps_code wk_formation_reduce(struct wk_formation *f, const struct wk_array *array, uint64_t grace,
                                 struct ps_error *e);
// By who waits for members elsewhere: ABORTED, as there. By any thread.
enum ps_code wk_formation_look(struct wk_formation *f, struct ps_error *e);

#endif
