// SPDX-License-Identifier: Apache-2.0
//
// libclient inside. The public functions wait; underneath nothing does: everything is started by a function that
// returns at once, and reported through a callback. tests/sim drives this layer with a world of its own.
//
//     wait.c           the public functions that wait: thin, over the layer below
//     op*.c            an operation on tensors: cut into requests, results gathered
//     member.c         joining, heartbeats, leaving                      declare.c  the job's variables
//     visit.c          barrier, lease, clock: calls at the control task  reduce.c   reduce, all-gather, broadcast
//     queue.c          requests to one task: order, bounds, resending    call.c     a single call, repeated
//     window.c         sequences                                         layout.c   variables, partitions, blocks
//     transport.h      the world
//
// The lock. One mutex per client guards all that is not constant. world.call and world.after are called with it held
// (so that what is decided first is sent first); they never call back from inside. What has to run without it (the
// callbacks) is put on `later` and run by psc__unlock. Functions say "locked" where they expect it held.
#ifndef PSC_CLIENT_H
#define PSC_CLIENT_H

#include <pthread.h>
#include <signal.h>
#include <sys/queue.h>

#include "common/base/error.h"
#include "libclient/layout.h"
#include "libclient/psclient.h"
#include "libclient/queue.h"
#include "libclient/transport.h"
#include "libclient/window.h"
#include "proto/paramserver.pb-c.h"

// What psc__unlock runs once the lock is free. Embed it.
struct psc__later {
    TAILQ_ENTRY(psc__later) link;
    void (*run)(struct psc__later *);
};

struct psc__task {
    struct psc_client *client;
    uint32_t index;
    char *address;
    uint64_t generation;  // 0: it has not answered yet
    struct psc__queue queue;
};

// What the control task said of the job, and what it is told with the next heartbeat.
struct psc__membership {
    bool joined, late, draining;
    uint64_t run;          // constant once joined or attached; 0: not known
    uint64_t incarnation;  // likewise
    uint64_t data_epoch;   // likewise
    uint64_t epoch;
    uint64_t heartbeat_ns, dead_after_ns;
    uint64_t heard;  // when the last heartbeat was answered
    uint32_t live;   // workers
    uint32_t chief;  // rank
    uint64_t step;
    double images_per_second, loss;
    bool unsent;  // these have changed since the last heartbeat, or that one was lost
};

// Headers of requests are put together here before they are packed: no allocation per request.
struct psc__scratch {
    Paramserver__V1__Tensor *tensors;
    Paramserver__V1__Tensor **pointers;
    size_t cap;
};

struct psc_client {
    // Constant.
    struct psc_world world;
    char *job;
    int rank;  // -1: an observer
    uint32_t workers, min_workers;
    uint32_t staleness, join_within_ms;
    psc_on_existing on_existing;
    bool unary;
    uint64_t timeout_ns;
    size_t chunk_bytes;
    const volatile sig_atomic_t *stop;  // may be NULL
    uint8_t id[16];
    uint32_t n_tasks;
    struct psc__task *tasks;

    pthread_mutex_t lock;
    pthread_cond_t told;  // the end of an operation has been
    TAILQ_HEAD(, psc__later) later;
    struct ps_error ended;  // OK: the job goes on; else why it does not
    psc_update update;
    struct psc__window window;
    uint64_t last_visit;  // sequence: visits, which wait for other workers, must not hold up updates for so long
    struct psc__membership member;
    struct psc__layout *layout;   // NULL: neither declared nor attached; else constant but for the versions
    TAILQ_HEAD(, psc_op) ops;     // whose end has not been told
    TAILQ_HEAD(, psc_op) spares;  // for when there is no memory for others
    uint32_t n_spares;
    TAILQ_HEAD(, psc__call) calls;  // likewise, or that still wait for a reply or a timer
    struct psc__scratch scratch;
};

// ---- starting things ----------------------------------------------------------------------------------------------

// Runs once, without the lock; where there is no memory to begin, before the function that starts it returns. e->code
// PS_OK: done, and what out pointers were given is set.
typedef void (*psc__done_fn)(void *arg, const struct ps_error *e);

// Makes sure that all tasks answer and are who they should be, then joins; heartbeats follow. An observer is done at
// once: what is down shows in the calls.
void psc__join(struct psc_client *c, psc__done_fn done, void *arg);
// The declaration is copied; *resumed (may be NULL) must live until done.
void psc__declare(struct psc_client *c, const psc_declaration *d, bool *resumed, psc__done_fn done, void *arg);
void psc__attach(struct psc_client *c, psc__done_fn done, void *arg);
void psc__barrier(struct psc_client *c, const char *name, psc__done_fn done, void *arg);
void psc__lease(struct psc_client *c, uint64_t epoch, uint64_t examples, uint64_t want, uint64_t round,
                psc_share *share, psc__done_fn done, void *arg);
// *clock, *slowest (may be NULL) must live until done.
void psc__clock(struct psc_client *c, uint64_t step, bool wait, uint64_t *clock, uint64_t *slowest, psc__done_fn done,
                void *arg);
// data, *workers, ... must live until done; what is NULL in psclient.h may be NULL here.
void psc__reduce(struct psc_client *c, const char *name, psc_reduce_op op, psc_dtype dtype, void *data, uint64_t count,
                 uint32_t *workers, psc__done_fn done, void *arg);
void psc__all_gather(struct psc_client *c, const char *name, const void *data, uint64_t bytes, void **all,
                     uint64_t *all_bytes, uint64_t *sizes, psc__done_fn done, void *arg);
void psc__broadcast(struct psc_client *c, const char *name, uint32_t root, void *data, uint64_t bytes,
                    psc__done_fn done, void *arg);
// Ends all operations with CANCELLED, then tells the control task. Nothing may be started afterwards, but by their
// callbacks: that ends the same way.
void psc__leave(struct psc_client *c, const char *reason, psc__done_fn done, void *arg);
// Shuts the world down and frees everything. Not from a callback. Without psc__leave before: as if it had died.
void psc__client_free(struct psc_client *c);

// ---- shared by the files of this directory ------------------------------------------------------------------------

void psc__lock(struct psc_client *c);
void psc__unlock(struct psc_client *c);  // and runs what is on `later`
void psc__run_later(struct psc_client *c, struct psc__later *l, void (*run)(struct psc__later *));  // locked

uint64_t psc__now(struct psc_client *c);
void psc__after(struct psc_client *c, uint64_t delay_ns, void (*fn)(void *), void *arg);

// Locked. The job is over for this client: ends everything with this error. The first reason stays.
void psc__end(struct psc_client *c, enum ps_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Locked. The task does not know the job of which this client is a worker: that ends the client.
void psc__lost_job(struct psc__task *t, const char *text);
// Locked. Notes the generation that a task answered with; false: it has changed, and that ended the client.
bool psc__saw_generation(struct psc__task *t, uint64_t generation);
// Locked. The Caller of a request to t; its strings stay the client's.
void psc__caller_init(Paramserver__V1__Caller *caller, const struct psc__task *t, uint64_t sequence);

// "ps:1 (host:7071)", the way every error names a task.
#define PSC__TASK "ps:%u (%s)"
#define PSC__TASK_ARGS(t) (t)->index, (t)->address

// "push", the way every error names a call.
const char *psc__method_name(int method);

#endif
