// SPDX-License-Identifier: Apache-2.0
//
// Collective operations of the replicas that train one model: those of one process, which are threads, and over several
// workers the replicas of all of them.
//
//     ranks 0 ... d - 1 are the d replicas of the first worker, the next d those of the second, ...
//
// An all-reduce adds up an array of each rank: first those of a worker, in the order of the ranks; then, over a
// formation, those of the workers. All ranks get the same bits. A thread does that, while the replicas compute on, in
// the order in which it was begun; who waits does it itself where the thread has not come to it.
//
// A worker that is lost ends what is under way. Those who are left may meet anew, with other ranks, and go on.
//
//     collective.c      the replicas of a process
//     formation.c       the workers that add up together
//     shm.c, ring.c     how: on one host through memory, among hosts on a ring, whose sockets it is given
//     hosts.c           which workers are on which host
//     rpc/peers.c       the network: a server and a client in each worker; who has ended, who is lost
//     rpc/rendezvous.c  how the workers find each other
//     rpc/mesh.c        how a ring's sockets come about
//     add.c             sums of numbers
//
// Receives from: the strategies. Hands to: formation.c, rpc/. Threads: each replica has a thread, which calls; one more
// adds up.
#ifndef WK_COLLECTIVE_H
#define WK_COLLECTIVE_H

#include "workerd/collective/rpc/peers.h"

struct wk_collective;

enum wk_operation {
    WK_ALL_REDUCE,  // the sum of all ranks' arrays, at all
    // Where there is one worker:
    WK_REDUCE,    // the sum, at replica 0 alone
    WK_BROADCAST  // replica 0's array, at all
};

// An operation under way, in memory of whoever waits for it. It and the array stay where they are and belong to the
// collective until the wait has ended; where that fails, until all replicas of the process have met anew, or it is
// closed.
struct wk_reduction {
    enum wk_operation operation;
    void *values;
    size_t n;
    enum wk_number type;
    const char *what;  // alike at all ranks; named in a warning where others do not come; NULL: "figures"
    uint64_t grace;    // ns: for so long after a signal it is still awaited
    bool done;
    uint64_t began;  // ns, ps_now: when all replicas of the process had begun it, and no other one was under way,
    uint64_t ended;  // and when it was done
    struct wk_reduction *next;
};

// So many replicas of this process. peers.workers may be 1, and then only stop is looked at. Errors as wk_peers_open.
enum ps_code wk_collective_open(const struct wk_peers_options *peers, uint32_t replicas, struct wk_collective **c,
                                struct ps_error *e);
// No replica is in it any more. reason NULL: all is done; else the other workers are told why this one ends.
void wk_collective_close(struct wk_collective *c, const char *reason);

// That of a replica, and how many there are: they change where the workers meet anew.
uint32_t wk_collective_rank(const struct wk_collective *c, uint32_t replica);
uint32_t wk_collective_ranks(const struct wk_collective *c);

// Begins an operation on all ranks' arrays, each of n numbers, in the array's place: what the caller says in *r, where
// all else is 0. All ranks begin the same ones in the same order, and wait for them in any order.
void wk_collective_begin(struct wk_collective *c, uint32_t replica, struct wk_reduction *r);
// ABORTED: a replica or worker has ended or is lost, and which one. CANCELLED: so it has, and a signal has come here,
// too. INVALID_ARGUMENT: another rank has begun a different one; who does not see it hears ABORTED, once this worker
// ends.
enum ps_code wk_collective_wait(struct wk_collective *c, struct wk_reduction *r, struct ps_error *e);
// Has it ended well? Asks, and waits for nothing.
bool wk_collective_is_done(struct wk_collective *c, const struct wk_reduction *r);
// Both in one: with less delay, and nothing computed meanwhile.
enum ps_code wk_collective_reduce(struct wk_collective *c, uint32_t replica, struct wk_reduction *r,
                                  struct ps_error *e);

// A replica of this process ends before its time: all of the process that wait for it end with this. The other workers
// are told, too; of a signal (CANCELLED) or another's end (ABORTED) by replica 0 alone, which has kept the weights by
// then.
void wk_collective_fail(struct wk_collective *c, uint32_t replica, const struct ps_error *why);
// For who waits elsewhere: ABORTED once a replica of this process has ended before its time, or a worker has ended or
// is lost; CANCELLED: so it has, and a signal has come here, too.
enum ps_code wk_collective_look(struct wk_collective *c, struct ps_error *e);
// Had the job begun before this worker came, so that its replicas have nothing of what the others have?
bool wk_collective_joined(const struct wk_collective *c);
// Are there newcomers among those who have met, who had nothing of what the others have? All replicas find the same.
bool wk_collective_has_newcomers(const struct wk_collective *c);
// By every replica, where there are: the newcomers have what the others have; all_know: every replica has said so here
// once. Until then a newcomer that ends by itself, or is lost, is none of those of whom more than half have to be left.
void wk_collective_welcome(struct wk_collective *c, bool all_know);
// How often the workers have met anew. The same until this replica calls reform.
uint64_t wk_collective_reforms(struct wk_collective *c);
// Does this worker keep the weights where all end? Of those that are left, as far as is known, the one with the least
// arrival does, of several the lowest; nobody, where others may go on without it. arrival: of each worker of the job;
// NULL: all have the same.
bool wk_collective_leads(const struct wk_collective *c, const double *arrival);
// After a signal, before that: asks whoever leads in place of this worker whether it lives, as it may have been lost
// just now, and so on with the next where it does not answer. Takes a few seconds for each that stands still.
void wk_collective_ask_leader(const struct wk_collective *c, const double *arrival);
// How many workers wait at this one to come back.
uint32_t wk_collective_guests(const struct wk_collective *c);
// After ABORTED, by every replica of this process: the workers that are left meet anew, and nothing is under way any
// more. admits: they let those in who want to come back, else these wait on. *e: on entry why; on return that again
// where there is no going on, or why they could not meet.
enum ps_code wk_collective_reform(struct wk_collective *c, bool admits, struct ps_error *e);

#endif
