// SPDX-License-Identifier: Apache-2.0
//
// gRPC around the core of psd.
//
// Receives from: the network (common/rpc's server). Hands to: psd_core_call. The other way it is the core's world:
// time, randomness, and messages to the other ps tasks. Threads: the server's call the core; the client's own runs
// what psd_world.send reports.
#ifndef PSD_RPC_H
#define PSD_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tls/munge.h"
#include "common/tls/tls.h"
#include "psd/service/core.h"

struct psd_rpc;

struct psd_rpc_listen {
    const char *const *addresses;
    size_t n;
    const char *known_as;  // this task's address in the cluster
    bool insecure;         // addresses that other hosts can reach are allowed
    int threads;           // 0: the server's default
    size_t bytes;          // of requests and answers in flight
};

// peers[i] is ps task i's address; the one of this task is there for its index only. tls and munge outlive it; NULL:
// none. NULL is returned where there is no thread for it (RESOURCE_EXHAUSTED).
struct psd_rpc *psd_rpc_create(const char *const *peers, size_t n, struct ps_tls *tls, struct ps_munge *munge,
                               struct ps_error *e);
const struct psd_world *psd_rpc_world(struct psd_rpc *r);

// Serves the core from now on. Errors are ps_server_start's.
enum ps_code psd_rpc_start(struct psd_rpc *r, struct psd_core *core, const struct psd_rpc_listen *listen,
                           struct ps_error *e);
int psd_rpc_port(const struct psd_rpc *r, size_t i);  // bound for the i-th address; 0: a unix socket

void psd_rpc_drain(struct psd_rpc *r);  // new calls are refused; psd_core_drain follows
// Waits up to grace_ns for the last replies to be sent, then cuts. False: a client neither reads nor goes, and what it
// is connected to cannot be freed: exit without.
bool psd_rpc_stop(struct psd_rpc *r, uint64_t grace_ns);
void psd_rpc_destroy(struct psd_rpc *r);  // stopped

#endif
