// SPDX-License-Identifier: Apache-2.0
//
// A ring all-reduce (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC
// 69, 2009): the sum of an array of each rank, at each rank, for which a rank sends and receives 2 (p - 1) / p times
// its size.
//
//     The array is cut into p segments. In step s = 0 ... 2 (p - 1) - 1 rank r sends segment r - s to the next rank and
//     receives segment r - s - 1 from the one before. In the first p - 1 steps it adds its own values to what comes,
//     after which that is the sum; in the others it takes what comes as it is. A number waits for no other one: it is
//     sent on as soon as it has come.
//
// A small array goes directly: each rank sends the whole of it to each other one, and adds up what has come. It takes
// the time of one message, where the ring takes that of 2 (p - 1).
//
// The ranks' values are added in an order that the segment decides, or of a small array in the order of the ranks: all
// ranks get the same bits, and get them again in the next run.
//
// The numbers travel on sockets, which the thread that adds up reads and writes itself: nothing is handed from thread
// to thread. Before each array goes what it is, so that ranks that add up different ones notice.
//
// Receives from: formation.c; peers.c, which says who has ended. Hands to: sockets (rpc/mesh.h). Threads: one adds up;
// any others say why it fails.
#ifndef WK_RING_H
#define WK_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "workerd/collective/add.h"
#include "workerd/collective/socket.h"

struct wk_ring;

enum {
    // An array goes directly where it has at most so many bytes; where a rank sends at most so many bytes more than on
    // a ring, three quarters of a millisecond of a network of 1 Gbit/s; and to no more other ranks: so many connections
    // a host may well have.
    WK_RING_DIRECT = 256 << 10,
    WK_RING_DIRECT_MORE = 96 << 10,
    WK_RING_DIRECT_RANKS = 32
};

// Asked by who waits, ten times per second: is there a reason not to wait for this rank? PS_OK: none is known.
typedef enum ps_code (*wk_ring_look_fn)(void *arg, uint32_t rank, struct ps_error *e);

// Does a rank of so many send to that one? Each connection carries numbers one way: of two that send to each other at
// once, one connection would have them wait for its lock.
bool wk_ring_sends(uint32_t rank, uint32_t to, uint32_t ranks);

// Without ranks: it can fail.
struct wk_ring *wk_ring_create(void);
// The sockets of a rank: by rank, those to send on and those to receive from, as wk_ring_sends says; all others are
// WK_NO_SOCKET.
struct wk_ring_sockets {
    struct wk_socket *to, *from;
};

// rank of ranks, two or more. The ring takes over the sockets, which do not block, and frees the arrays. name: by rank,
// for errors; stays.
void wk_ring_join(struct wk_ring *ring, uint32_t rank, uint32_t ranks, struct wk_ring_sockets sockets,
                  const char *const *name);
void wk_ring_destroy(struct wk_ring *ring);  // may be NULL

// Adds up an array of each rank, in its place. After an error the ring is of no use: why it has failed; what look says;
// ABORTED: a connection has ended. INVALID_ARGUMENT: another rank adds up another array.
enum ps_code wk_ring_reduce(struct wk_ring *ring, const struct wk_array *array, wk_ring_look_fn look, void *arg,
                            struct ps_error *e);

// Before the end: waits until the other ranks' hosts have all that was sent, or until then (ns, ps_now's clock).
void wk_ring_flush(struct wk_ring *ring, uint64_t until);

// A member has ended, and may have sent before all that is needed of it: an error for who waits for so long, ns, and
// nothing comes. The first reason stays.
void wk_ring_end_of_numbers(struct wk_ring *ring, enum ps_code code, const char *text, uint64_t silence);
// Has it failed, or has a member ended?
enum ps_code wk_ring_look(struct wk_ring *ring, struct ps_error *e);
// The same, by who waits for numbers that come through another rank: what a member that has ended has sent before may
// still be on its way for as long as on the ring.
enum ps_code wk_ring_look_behind(struct wk_ring *ring, struct ps_error *e);
// What is under way, and all that begins from now on, ends with this. The first reason stays.
void wk_ring_fail(struct wk_ring *ring, enum ps_code code, const char *text);

#endif
