// SPDX-License-Identifier: Apache-2.0
//
// The clients of a job that have changed something here: by their ids, for each request; by their numbers, for blocks
// that ask which of a client's requests may still come again (psd/store/dedup.h).
//
// A client is forgotten when nobody would hear it any more: a worker's, once a later incarnation is obeyed; another's,
// once it has been silent for PS_SILENT_CLIENT_S: by then it has given up what it may have sent before (PS_UNSURE_S).
// Numbers are never given out again.
//
// Receives from: service. Hands to: nobody. Threads: any. The tables are changed under the job's lock and
// their own, and read under either.
#ifndef PSD_CLIENTS_H
#define PSD_CLIENTS_H

#include <pthread.h>

#include "common/base/error.h"
#include "proto/paramserver.pb-c.h"
#include "psd/store/block.h"

struct psd_component;
struct psd_job;

struct psd_client {
    uint8_t id[16];
    uint32_t number;
    uint32_t worker;  // rank + 1, or 0
    uint64_t incarnation;
    atomic_ullong oldest;                            // the greatest `oldest` that it has sent
    uint64_t touched;                                // ns; guarded by the job's lock, as is the list
    struct psd_client *next_of_id, *next_of_number;  // in their buckets
    struct psd_client *older, *newer;                // by when they were last heard
};

struct psd_clients {
    pthread_mutex_t lock;                    // a leaf
    struct psd_client **of_id, **of_number;  // [cap] hash tables
    uint32_t n, cap;                         // cap: a power of two, or 0
    uint32_t last_number;
    struct psd_client *oldest, *newest;
    uint64_t now;  // ns, to a tick
};

void psd_clients_init(struct psd_clients *clients);
size_t psd_clients_bytes(const struct psd_clients *clients);  // taken from the pool; here for tests

// The first sequence of a client that may still come, of which its blocks must know whether they have taken it;
// UINT64_MAX: none, it is forgotten. clients: a struct psd_clients.
uint64_t psd_clients_oldest(void *clients, uint32_t number);

// The job is declared, and the caller's worker one of its own. ABORTED: it was taken for dead, or another process has
// its rank now; UNAVAILABLE: this task has not heard of it yet.
enum ps_code psd_job_check_incarnation(struct psd_job *job, const Paramserver__V1__Caller *caller, struct ps_error *e);

// Who sends a request, made on first sight. INVALID_ARGUMENT, ABORTED: another identity, an old incarnation.
// RESOURCE_EXHAUSTED: too many clients, or no room for one more.
enum ps_code psd_job_client(struct psd_job *job, const Paramserver__V1__Caller *caller, struct psd_request_id *id,
                            struct ps_error *e);

extern const struct psd_component psd_clients_component;

#endif
