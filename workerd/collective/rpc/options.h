// SPDX-License-Identifier: Apache-2.0
//
// What a worker says of itself and of the others.
#ifndef WK_PEERS_OPTIONS_H
#define WK_PEERS_OPTIONS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct ps_tls;
struct ps_munge;

// All strings and arrays stay until the worker's peers are closed; configuration is copied.
struct wk_peers_options {
    const char *job;
    uint32_t rank;
    const char *const *addresses;  // of all workers, by rank
    uint32_t workers;              // two or more
    uint32_t min_workers;          // with fewer that are left the job ends; 0: all have to stay
    const char *configuration;     // what all must have alike; see common/plan/configuration.h
    bool shares_memory;            // with workers of the same host that do, too
    const char *host;              // what names that host; NULL: wk_shm_host says
    const char *ring_at;           // where it takes connections of a ring (mesh.h); by wk_peers_open
    struct ps_tls *tls;            // NULL: none
    struct ps_munge *munge;        // likewise; of the connections of a ring the session's number says enough
    bool insecure;                 // without both: it may listen where other hosts can connect
    uint64_t timeout;              // ns, for the others to come
    uint64_t patience;             // ns: who waits for another one for so long says so
    const volatile sig_atomic_t *stop;
};

#endif
