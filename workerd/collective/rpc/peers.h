// SPDX-License-Identifier: Apache-2.0
//
// The workers of a job as each other's peers: each is a gRPC server, and a client of the others. They meet at worker 0,
// which lets nobody in whose job is another one, and form a ring.
//
// A worker that ends, for whatever reason, is noticed by its neighbours: at once where its connection ends, within
// seconds where it falls silent. Who notices tells all others, so that every worker's error names the one that is gone.
//
// Receives from: collective.c. Hands to: ring.c; common/rpc. Threads: those of server and client, besides the caller's.
#ifndef WK_PEERS_H
#define WK_PEERS_H

#include <signal.h>

#include "workerd/collective/ring.h"
#include "workerd/collective/shm.h"

struct wk_peers;

struct wk_peers_options {
    const char *job;
    uint32_t rank;
    const char *const *addresses;  // of all workers, by rank
    uint32_t workers;              // two or more
    const char *configuration;     // what all must have alike; see common/plan/configuration.h
    bool shares_memory;            // with workers of the same host that do, too
    const char *host;              // what names that host; NULL: wk_shm_host says
    bool insecure;                 // it may listen where other hosts can connect
    uint64_t timeout;              // ns, for the others to come
    const volatile sig_atomic_t *stop;
};

// Waits for all. INVALID_ARGUMENT and the like: its own address, where it listens. DEADLINE_EXCEEDED, UNAVAILABLE: who
// has not come. FAILED_PRECONDITION, ALREADY_EXISTS: worker 0 refuses it. CANCELLED: a signal. The job and
// the addresses stay until close.
enum ps_code wk_peers_open(const struct wk_peers_options *options, struct wk_peers **peers, struct ps_error *e);
struct wk_ring *wk_peers_ring(struct wk_peers *p);  // of the workers; of those that share memory the first
struct wk_shm *wk_peers_shm(struct wk_peers *p);    // of those of this host; NULL: there is no other
bool wk_peers_is_first(const struct wk_peers *p);   // of its host
uint32_t wk_peers_hosts(const struct wk_peers *p);
// reason NULL: all is done; else the others are notified why this worker ends.
void wk_peers_close(struct wk_peers *p, const char *reason);

#endif
