// SPDX-License-Identifier: Apache-2.0
//
// The parameter server without its network: calls in, replies out, time and peers through a vtable. psd/rpc
// puts gRPC around it, tests/sim a simulated network.
//
// Receives from: psd/rpc (or tests/sim). Hands to: service. Threads: psd_core_call and psd_core_tick may be
// called from any number of threads at once; none of them blocks. Replies are made on the thread that made
// them ready, with no lock held.
#ifndef PSD_CORE_H
#define PSD_CORE_H

#include "common/base/workers.h"
#include "psd/call/call.h"

struct psd_core;
struct psd_session;

// What is said of a ps task that drains: its index.
#define PSD_DRAINS "ps task %" PRIu32 " is being drained: it takes no new jobs"

struct psd_world {
    void *ctx;
    uint64_t (*now)(void *ctx);  // ns, monotonic
    uint64_t (*random)(void *ctx);
    uint64_t (*resident)(void *ctx);  // bytes of this process that are in memory
    uint64_t (*wall)(void *ctx);      // ms since 1970; may be NULL, as the next
    uint64_t (*queued)(void *ctx);    // bytes of requests that came and are not answered, and of answers not sent
    uint64_t (*certificate_until)(void *ctx);  // s since 1970; 0: there is no TLS; may be NULL
    // Sends a message of the Peer service to another ps task. Its answer comes back through done, never from inside
    // send; reply is empty unless code is PS_OK, and done's only while it runs.
    void (*send)(void *ctx, uint32_t task, int method, struct ps_slices *request,
                 void (*done)(void *arg, enum ps_code code, const struct ps_slices *reply), void *arg);
    struct ps_workers *workers;  // for the arithmetic of rounds; NULL: who makes it possible does it. Outlives the core
};

struct psd_config {
    uint32_t task, tasks;   // this one, and how many ps tasks the cluster has
    uint64_t memory_bytes;  // for blocks: values, slots, pins, rounds
    uint32_t heartbeat_ms;  // what workers are told
    uint32_t dead_after_ms;
    uint32_t stall_ms;        // a call parked for longer is logged; 0: never
    uint64_t cluster_hash;    // of the ps tasks' addresses, for those who compare
    uint32_t user_jobs;       // that one user may have, whom a certificate names; 0: as many as there may be
    uint64_t user_bytes;      // of memory_bytes, that its jobs may declare; 0: all
    const char *queue;        // the folder of the jobs that wait for workers, for task 0; NULL: there is no queue
    const char *checkpoints;  // the folder of shards of checkpoints; NULL: none are written here
};

enum ps_code psd_core_create(const struct psd_config *config, const struct psd_world *world, struct psd_core **core,
                             struct ps_error *e);
void psd_core_call(struct psd_core *core, struct psd_call *call);
// The client of a call is gone: where the call waits it is answered with CANCELLED, else it waits no more. Any thread,
// once psd_core_call has returned; the call may be answered meanwhile, or have been: its memory lives until this
// returns.
void psd_core_cancel(struct psd_core *core, struct psd_call *call);
// A stream has ended: its session (may be NULL) is not used any more. Any thread; a core that is gone does not matter.
void psd_session_close(struct psd_session *session);
// Deadlines of parked calls, deaths, snapshots' time to live, rates. Call every 50 ms or so.
void psd_core_tick(struct psd_core *core);
// Answers everything parked with UNAVAILABLE "... is shutting down", takes nothing new that would park.
void psd_core_drain(struct psd_core *core);
void psd_core_destroy(struct psd_core *core);

#endif
