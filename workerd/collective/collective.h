// SPDX-License-Identifier: Apache-2.0
//
// Collective operations of the replicas that train one model: those of one process, which are threads, and over several
// workers the replicas of all of them.
//
//     ranks 0 ... d - 1 are the d replicas of worker 0, the next d those of worker 1, ...
//
// An all-reduce adds up an array of each rank: first those of a worker, each replica a part of it, in the order of the
// ranks; then, on a ring (ring.h), those of the workers. All ranks get the same bits.
//
//     collective.c      the replicas of a process
//     ring.c            the all-reduce among workers, without a network
//     rpc/peers.c       its network: a server and a client in each worker
//     rpc/rendezvous.c  how they find each other
//     add.c             what comes is added to what is here
//
// Receives from: the strategies. Hands to: common/rpc. Threads: each replica has a thread, which calls.
#ifndef WK_COLLECTIVE_H
#define WK_COLLECTIVE_H

#include "workerd/collective/rpc/peers.h"

struct wk_collective;

// d replicas; peers.workers may be 1, and then only stop is looked at. Errors as wk_peers_open.
enum ps_code wk_collective_open(const struct wk_peers_options *peers, uint32_t d, struct wk_collective **c,
                                struct ps_error *e);
// No replica is in it any more. reason NULL: all is done.
void wk_collective_close(struct wk_collective *c, const char *reason);

// Begins the sum of all ranks' arrays, each of n numbers, in the array's place. All ranks begin the same ones in the
// same order, and wait for them in that order. The array, and *r, stay where they are and belong to the collective
// until the wait has ended; where that fails, until it is closed.
void wk_collective_begin(struct wk_collective *c, uint32_t device, struct wk_reduction *r, void *values, size_t n,
                         enum wk_ring_type type);
// ABORTED: a replica or worker has ended, and which one. CANCELLED: so it has, and a signal has come here, too.
enum ps_code wk_collective_wait(struct wk_collective *c, uint32_t device, struct wk_reduction *r, struct ps_error *e);
// A replica of this process ends before its time: all that wait for it end with this.
void wk_collective_fail(struct wk_collective *c, const char *text);

#endif
