// SPDX-License-Identifier: Apache-2.0
//
// A ring all-reduce (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC
// 69, 2009): the sum of an array of each rank, at each rank, for which a rank sends and receives 2 (p - 1) / p times
// its size.
//
//     The array is cut into p segments, a segment into chunks. A chunk of segment s sets out from rank s. At each of the
//     next p - 1 ranks that rank's own values are added to it, after which it is the sum; it goes on through p - 1 more,
//     which take it as it is. A chunk waits for no other one.
//
// A small array goes directly: each rank sends the whole of it to each other one, and adds up what has come. It takes
// the time of one message, where the ring takes that of 2 (p - 1).
//
// The ranks' values are added in an order that the segment decides, or of a small array in the order of the ranks: all
// ranks get the same bits, and get them again in the next run.
//
// Receives from: formation.c, which begins and waits; peers.c, to which chunks come. Hands to: peers.c, as a
// wk_ring_link. Threads: any; a rank begins its reductions one after the other, in the order in which all ranks do.
#ifndef WK_RING_H
#define WK_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "workerd/collective/add.h"

struct wk_ring;

enum {
    WK_RING_CHUNK = 256 << 10,  // bytes of a chunk
    // An array goes directly where a rank sends at most so many bytes more than on a ring, and to no more other ranks:
    // half a millisecond of a network of 1 Gbit/s; and the connections that a host may well have.
    WK_RING_DIRECT = 64 << 10,
    WK_RING_DIRECT_RANKS = 32
};

// A reduction under way, in memory of whoever waits for it.
struct wk_ring_reduction {
    uint64_t sequence;  // 0, 1, ... in the order in which they begin
    void *values;
    size_t n;  // elements
    enum wk_number type;
    size_t left;  // elements that are not the sum yet
    size_t busy;  // chunks that are being added, or are sent and not acknowledged
    bool direct;
    uint32_t awaited;              // direct: how many ranks' arrays have not come;
    struct wk_ring_message *come;  // those that have, until all have
    struct wk_ring_reduction *next;
};

// Which part of which reduction: its first element, and how many ranks it has passed. One that goes directly to its
// receiver counts those between the two.
struct wk_ring_chunk {
    uint64_t sequence, first;
    uint32_t hop;
};

// A chunk that has come. The ring has it until it calls done, which it does once: OK, or why the ring is of no use.
struct wk_ring_message {
    struct wk_ring_chunk chunk;
    struct ps_slices data;
    void (*done)(struct wk_ring_message *m, enum ps_code code, const char *text);
    struct wk_ring_message *next;
};

// To the other ranks.
struct wk_ring_link {
    // Sends a chunk to a rank, and takes over its data. Where those have no owner, they stay until wk_ring_sent is
    // called for r, which may be NULL. Not from inside send.
    void (*send)(void *ctx, struct wk_ring_reduction *r, uint32_t to, struct wk_ring_chunk chunk, struct ps_slice data);
    void *ctx;
};

struct wk_ring *wk_ring_create(struct wk_ring_link link);
// rank of ranks, two or more, before the first reduction and the first chunk.
void wk_ring_join(struct wk_ring *ring, uint32_t rank, uint32_t ranks);
// No thread is in a function of the ring, and no chunk is on its way.
void wk_ring_destroy(struct wk_ring *ring);

// values are the ring's until the wait for *r ends.
void wk_ring_begin(struct wk_ring *ring, struct wk_ring_reduction *r, void *values, size_t n, enum wk_number type);
// Waits until values are the sum, and nobody needs them any more; or until the given time (ns, ps_now's clock),
// DEADLINE_EXCEEDED: wait again. Any other error is why the ring has failed; values are then of no use.
enum ps_code wk_ring_wait(struct wk_ring *ring, struct wk_ring_reduction *r, uint64_t until, struct ps_error *e);

// For which rank it waits: one of those.
uint32_t wk_ring_missing(struct wk_ring *ring, struct wk_ring_reduction *r);
// Before the end: waits until the other ranks have all that they need of this one, or the ring fails, or until then.
void wk_ring_flush(struct wk_ring *ring, uint64_t until);

// The link's. A chunk of a reduction that has not begun here waits for that.
void wk_ring_receive(struct wk_ring *ring, struct wk_ring_message *m);
void wk_ring_sent(struct wk_ring *ring, struct wk_ring_reduction *r);
// The rank before has ended: an error, for all that wait for chunks of it now or later.
void wk_ring_end_of_chunks(struct wk_ring *ring, enum ps_code code, const char *text);
// Has it failed, or has the rank before ended?
enum ps_code wk_ring_look(struct wk_ring *ring, struct ps_error *e);
// All that waits, and all that begins from now on, ends with this. The first reason stays.
void wk_ring_fail(struct wk_ring *ring, enum ps_code code, const char *text);

#endif
